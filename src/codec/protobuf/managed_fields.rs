//! Encodes and decodes `metav1.ManagedFieldsEntry`: a field manager and the fields that it owns. [`SentManagedFields`]
//! checks the list of these entries.

use super::meta::{put_time, read_time};
use super::reader::{Reader, WireError};
use super::sink::{LONG, SHORT, Sink};
use crate::lease::managed_fields::{FieldsV1, ManagedFields, ManagedFieldsEntry, SentEntry, SentManagedFields};

/// Appends the entries of the `managedFields` in an object's metadata.
pub(super) fn put_managed_fields<S: Sink>(out: &mut S, managed_fields: &ManagedFields) {
    for entry in managed_fields.entries() {
        out.put(KEY);
        out.put_sized(LONG, |out| put_entry(out, entry));
    }
}

/// Key of field 17, `managedFields`. The key takes two bytes, and [`Sink::put_key`] appends only keys of one byte.
const KEY: &[u8] = &[0x8a, 0x01];

fn put_entry<S: Sink>(out: &mut S, entry: &ManagedFieldsEntry) {
    out.put_bytes(1, entry.manager.as_bytes());
    out.put_bytes(2, entry.operation.as_str().as_bytes());
    out.put_bytes(3, entry.api_version.as_bytes());
    if let Some(time) = entry.time {
        out.put_message(4, SHORT, |out| put_time(out, time));
    }
    out.put_bytes(6, FieldsV1::TYPE.as_bytes());
    out.put_message(7, LONG, |out| out.put_bytes(1, entry.fields.as_json().as_bytes()));
    out.put_bytes(8, entry.subresource.as_bytes());
}

/// Decodes one entry of `managedFields`, and appends it to `list`.
pub(super) fn read_entry(bytes: &[u8], list: &mut SentManagedFields) -> Result<(), WireError> {
    let mut entry = SentEntry::default();
    let mut fields = None;
    let mut reader = Reader::new("ManagedFieldsEntry", bytes);
    while let Some(field) = reader.next()? {
        match field {
            1 => entry.manager = reader.text("Manager")?,
            2 => entry.operation = reader.text("Operation")?,
            3 => entry.api_version = reader.text("APIVersion")?,
            4 => entry.time = Some(read_time(reader.bytes("Time")?)?),
            6 => entry.fields_type = reader.text("FieldsType")?,
            7 => read_fields(reader.bytes("FieldsV1")?, &mut fields)?,
            8 => entry.subresource = reader.text("Subresource")?,
            _ => reader.skip()?,
        }
    }
    entry.fields = fields.map(fields_v1).transpose()?;
    list.push(entry);
    Ok(())
}

fn fields_v1(json: &[u8]) -> Result<FieldsV1, WireError> {
    std::str::from_utf8(json).map(FieldsV1::from_client).map_err(|_| WireError::NotUtf8 { field: "Raw" })
}

fn read_fields<'b>(bytes: &'b [u8], fields: &mut Option<&'b [u8]>) -> Result<(), WireError> {
    let found = fields.get_or_insert(&[]);
    let mut reader = Reader::new("FieldsV1", bytes);
    while let Some(field) = reader.next()? {
        match field {
            1 => *found = reader.bytes("Raw")?,
            _ => reader.skip()?,
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Encodes entries with the given `operation`, `apiVersion` and `fieldsType`, and decodes them to a list.
    fn list(entries: &[[&str; 3]]) -> ManagedFields {
        let mut list = SentManagedFields::default();
        for [operation, api_version, fields_type] in entries {
            let mut bytes = Vec::new();
            bytes.put_bytes(1, b"");
            bytes.put_bytes(2, operation.as_bytes());
            bytes.put_bytes(3, api_version.as_bytes());
            bytes.put_bytes(6, fields_type.as_bytes());
            read_entry(&bytes, &mut list).expect("an entry");
        }
        list.finish()
    }

    #[test]
    fn a_blank_entry_resets_and_an_invalid_entry_drops_the_list() {
        assert_eq!(list(&[["", "", ""]]), ManagedFields::reset());
        assert_eq!(list(&[["Update", "v1", "FieldsV1"]]).entries().len(), 1);
        for wrong in [["", "", ""], ["Create", "v1", "FieldsV1"], ["Apply", "", "FieldsV1"], ["Apply", "v1", ""]] {
            assert_eq!(list(&[["Update", "v1", "FieldsV1"], wrong]), ManagedFields::ABSENT, "{wrong:?}");
        }
    }

    #[test]
    fn fields_that_are_no_text_are_refused() {
        let mut list = SentManagedFields::default();
        let mut bytes = Vec::new();
        bytes.put_bytes(2, b"Apply");
        bytes.put_bytes(3, b"v1");
        bytes.put_bytes(6, b"FieldsV1");
        bytes.put_message(7, SHORT, |out: &mut Vec<u8>| out.put_bytes(1, b"{\xff}"));
        assert_eq!(read_entry(&bytes, &mut list), Err(WireError::NotUtf8 { field: "Raw" }));
    }
}
