//! The records of a snapshot: a byte stream with one record for each Lease, in any order. The stream is cut into
//! pieces, and a piece may end inside a record.
//!
//! In the layout of a record, a `number` is a varint (module `wire`):
//!
//! ```text
//!   number   length of the rest of the record, in bytes
//!   number   version of the Lease's creation
//!   number   version of the Lease's last change minus the version of its creation
//!            Lease, with the times of its last renewal
//! ```

use super::lease_form::{put_object, read_lease};
use super::wire::{FormError, Reader, put_length, put_varint};
use crate::lease::Lease;
use crate::resource::ResourceVersion;
use crate::table::object::Object;

/// A Lease in a snapshot.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Record {
    /// Version of the Lease's creation.
    pub(super) number: ResourceVersion,
    /// Version of the Lease's last change.
    pub(super) version: ResourceVersion,
    pub(super) lease: Lease,
}

/// Appends the record of an object.
pub(super) fn put_record(out: &mut Vec<u8>, object: &Object) {
    let start = out.len();
    put_varint(out, object.number().0);
    put_varint(out, object.version.0.wrapping_sub(object.number().0));
    put_object(out, object);
    let end = out.len();
    put_length(out, end - start);
    let length_bytes = out.len() - end;
    out[start..].rotate_right(length_bytes);
}

/// Reads records from the pieces of a snapshot.
#[derive(Debug, Default)]
pub(super) struct RecordReader {
    /// Bytes of the added pieces. [`RecordReader::push`] drops the bytes that have been read.
    bytes: Vec<u8>,
    /// Number of bytes in `bytes` that have been read.
    at: usize,
    /// Number of dropped bytes: the offset in the stream at which `bytes` begins.
    offset: usize,
}

impl RecordReader {
    /// Adds the next piece.
    pub(super) fn push(&mut self, piece: &[u8]) {
        self.bytes.drain(..self.at);
        self.offset += self.at;
        self.at = 0;
        self.bytes.extend_from_slice(piece);
    }

    /// Whether all bytes of the added pieces have been read.
    pub(super) fn is_empty(&self) -> bool {
        self.at == self.bytes.len()
    }

    /// Returns the next record; `None` if the record is not complete yet.
    ///
    /// # Errors
    /// [`FormError`], with the offset in the stream.
    pub(super) fn next(&mut self) -> Result<Option<Record>, FormError> {
        let mut reader = Reader::new(&self.bytes, self.at);
        // A piece may end inside a length or a record. The next piece contains the rest.
        let Ok(length) = reader.varint() else {
            return if reader.remaining() == 0 { Ok(None) } else { Err(self.moved(reader.damaged("a wrong length"))) };
        };
        let start = reader.offset();
        let whole = usize::try_from(length).ok().and_then(|length| start.checked_add(length));
        let Some(end) = whole.filter(|end| *end <= self.bytes.len()) else { return Ok(None) };
        let mut reader = Reader::new(self.bytes.get(..end).unwrap_or_default(), start);
        let record = read_record(&mut reader).map_err(|error| self.moved(error))?;
        self.at = end;
        Ok(Some(record))
    }

    fn moved(&self, error: FormError) -> FormError {
        match error {
            FormError::Damaged { offset, what } => FormError::Damaged { offset: self.offset + offset, what },
            FormError::Newer { .. } => error,
        }
    }
}

fn read_record(reader: &mut Reader<'_>) -> Result<Record, FormError> {
    let number = reader.varint()?;
    let version = number.wrapping_add(reader.varint()?);
    let lease = read_lease(reader)?;
    reader.finish()?;
    Ok(Record { number: ResourceVersion(number), version: ResourceVersion(version), lease })
}
