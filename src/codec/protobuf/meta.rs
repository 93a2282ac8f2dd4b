//! Decodes and encodes `metav1.ObjectMeta`, `OwnerReference`, `ListMeta` and the two time types.

use super::managed_fields::{put_managed_fields, read_entry};
use super::reader::{Reader, WireError};
use super::sink::{SHORT, Sink};
use crate::codec::gathered::Entries;
use crate::codec::list_meta::ListMeta;
use crate::lease::managed_fields::SentManagedFields;
use crate::lease::{ObjectMeta, OwnerReference, StringMap};
use crate::resource::ResourceVersion;
use crate::timestamp::{MicroTime, Time, ZERO_SECONDS, is_zero_micro_time, is_zero_time};
use compact_str::CompactString;

const MICROS_PER_SECOND: i64 = 1_000_000;

pub(super) fn put_object_meta<S: Sink>(out: &mut S, meta: &ObjectMeta, version: Option<ResourceVersion>) {
    out.put_bytes(1, meta.name.as_bytes());
    out.put_bytes(2, meta.generate_name.as_bytes());
    out.put_bytes(3, meta.namespace.as_bytes());
    out.put_bytes(4, meta.self_link.as_bytes());
    out.put_bytes(5, meta.uid.as_bytes());
    put_version(out, 6, version);
    out.put_integer(7, meta.generation);
    out.put_message(8, SHORT, |out| put_time(out, meta.creation_timestamp.unwrap_or(Time(ZERO_SECONDS))));
    if let Some(time) = meta.deletion_timestamp {
        out.put_message(9, SHORT, |out| put_time(out, time));
    }
    if let Some(seconds) = meta.deletion_grace_period_seconds {
        out.put_integer(10, seconds);
    }
    put_map(out, 11, &meta.labels);
    put_map(out, 12, &meta.annotations);
    for owner in &meta.owner_references {
        out.put_message(13, SHORT, |out| put_owner_reference(out, owner));
    }
    for finalizer in &meta.finalizers {
        out.put_bytes(14, finalizer.as_bytes());
    }
    put_managed_fields(out, &meta.managed_fields);
}

fn put_owner_reference<S: Sink>(out: &mut S, owner: &OwnerReference) {
    out.put_bytes(1, owner.kind.as_bytes());
    out.put_bytes(3, owner.name.as_bytes());
    out.put_bytes(4, owner.uid.as_bytes());
    out.put_bytes(5, owner.api_version.as_bytes());
    if let Some(controller) = owner.controller {
        out.put_integer(6, controller.into());
    }
    if let Some(block) = owner.block_owner_deletion {
        out.put_integer(7, block.into());
    }
}

pub(super) fn put_list_meta<S: Sink>(out: &mut S, meta: &ListMeta<'_>) {
    out.put_bytes(1, b"");
    put_version(out, 2, meta.version);
    out.put_bytes(3, meta.next.as_bytes());
    if let Some(remaining) = meta.remaining {
        out.put_integer(4, i64::try_from(remaining).unwrap_or(i64::MAX));
    }
    if !meta.shard.is_empty() {
        out.put_message(5, SHORT, |out| out.put_bytes(1, meta.shard.as_bytes()));
    }
}

#[inline]
fn put_version<S: Sink>(out: &mut S, field: u8, version: Option<ResourceVersion>) {
    match version {
        Some(version) => out.put_bytes(field, itoa::Buffer::new().format(version.0).as_bytes()),
        None => out.put_bytes(field, b""),
    }
}

fn put_map<S: Sink>(out: &mut S, field: u8, map: &StringMap) {
    for (key, value) in map.iter() {
        out.put_message(field, SHORT, |out| {
            out.put_bytes(1, key.as_bytes());
            out.put_bytes(2, value.as_bytes());
        });
    }
}

pub(super) fn put_time<S: Sink>(out: &mut S, time: Time) {
    if !is_zero_time(time) {
        out.put_integer(1, time.0);
        out.put_integer(2, 0);
    }
}

pub(super) fn put_micro_time<S: Sink>(out: &mut S, time: MicroTime) {
    if !is_zero_micro_time(time) {
        out.put_integer(1, time.0.div_euclid(MICROS_PER_SECOND));
        out.put_integer(2, time.0.rem_euclid(MICROS_PER_SECOND) * 1_000);
    }
}

/// The lists and maps of the metadata, which a message may contain in many pieces.
#[derive(Debug, Default)]
pub(super) struct Repeated {
    entries: Entries<CompactString>,
    managed_fields: Option<SentManagedFields>,
}

impl Repeated {
    /// Moves the collected entries into `meta`. Returns the number of metadata entries, such as labels, in the message.
    /// If `managedFields` has no entries, the list is absent, since protobuf does not distinguish it from an empty one.
    pub(super) fn finish(self, meta: &mut ObjectMeta) -> usize {
        if let Some(list) = self.managed_fields {
            meta.managed_fields = list.finish();
        }
        self.entries.finish(meta)
    }
}

/// Decodes a message into `meta`. If `meta` already has values of an earlier message, overwrites them. Collects lists
/// and maps in `repeated`.
pub(super) fn read_object_meta(bytes: &[u8], meta: &mut ObjectMeta, repeated: &mut Repeated) -> Result<(), WireError> {
    let mut reader = Reader::new("ObjectMeta", bytes);
    while let Some(field) = reader.next()? {
        match field {
            1 => meta.name = reader.text("Name")?,
            2 => meta.generate_name = reader.text("GenerateName")?,
            3 => meta.namespace = reader.text("Namespace")?,
            4 => meta.self_link = reader.text("SelfLink")?,
            5 => meta.uid = reader.text("UID")?,
            6 => meta.resource_version = reader.text("ResourceVersion")?,
            7 => meta.generation = reader.int64("Generation")?,
            8 => {
                let time = read_time(reader.bytes("CreationTimestamp")?)?;
                meta.creation_timestamp = Some(time).filter(|time| !is_zero_time(*time));
            }
            9 => meta.deletion_timestamp = Some(read_time(reader.bytes("DeletionTimestamp")?)?),
            10 => meta.deletion_grace_period_seconds = Some(reader.int64("DeletionGracePeriodSeconds")?),
            11 => repeated.entries.labels.push(reader.entry("Labels")?),
            12 => repeated.entries.annotations.push(reader.entry("Annotations")?),
            13 => repeated.entries.owners.push(read_owner_reference(reader.bytes("OwnerReferences")?)?),
            14 => repeated.entries.finalizers.push(reader.text("Finalizers")?),
            17 => read_entry(reader.bytes("ManagedFields")?, repeated.managed_fields.get_or_insert_default())?,
            _ => reader.skip()?,
        }
    }
    Ok(())
}

fn read_owner_reference(bytes: &[u8]) -> Result<OwnerReference, WireError> {
    let mut owner = OwnerReference::default();
    let mut reader = Reader::new("OwnerReference", bytes);
    while let Some(field) = reader.next()? {
        match field {
            1 => owner.kind = reader.text("Kind")?,
            3 => owner.name = reader.text("Name")?,
            4 => owner.uid = reader.text("UID")?,
            5 => owner.api_version = reader.text("APIVersion")?,
            6 => owner.controller = Some(reader.boolean("Controller")?),
            7 => owner.block_owner_deletion = Some(reader.boolean("BlockOwnerDeletion")?),
            _ => reader.skip()?,
        }
    }
    Ok(owner)
}

/// Decodes a `metav1.Time`. Drops the fraction of a second, since `metav1.Time` has no fraction in JSON.
pub(super) fn read_time(bytes: &[u8]) -> Result<Time, WireError> {
    if bytes.is_empty() {
        return Ok(Time(ZERO_SECONDS));
    }
    read_timestamp(bytes).map(|(seconds, _)| Time(seconds))
}

/// Decodes a `metav1.MicroTime`. If the microseconds do not fit in an `i64`, about 290,000 years from now, returns the
/// nearest time that fits.
pub(super) fn read_micro_time(bytes: &[u8]) -> Result<MicroTime, WireError> {
    if bytes.is_empty() {
        return Ok(MicroTime(ZERO_SECONDS * MICROS_PER_SECOND));
    }
    let (seconds, nanos) = read_timestamp(bytes)?;
    let micros = i128::from(seconds) * i128::from(MICROS_PER_SECOND) + i128::from(nanos / 1_000);
    let nearest = if micros < 0 { i64::MIN } else { i64::MAX };
    Ok(MicroTime(i64::try_from(micros).unwrap_or(nearest)))
}

fn read_timestamp(bytes: &[u8]) -> Result<(i64, i32), WireError> {
    let (mut seconds, mut nanos) = (0, 0);
    let mut reader = Reader::new("Timestamp", bytes);
    while let Some(field) = reader.next()? {
        match field {
            1 => seconds = reader.int64("Seconds")?,
            2 => nanos = reader.int32("Nanos")?,
            _ => reader.skip()?,
        }
    }
    Ok((seconds, nanos))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn micro_time(seconds: i64, nanos: i64) -> MicroTime {
        let mut bytes = Vec::new();
        bytes.put_integer(1, seconds);
        bytes.put_integer(2, nanos);
        read_micro_time(&bytes).expect("a time")
    }

    #[test]
    fn times_round_trip_and_extremes_are_held() {
        for micros in [0, 1, -1, 1_999_999, -2_000_000, i64::MAX, i64::MIN, ZERO_SECONDS * MICROS_PER_SECOND] {
            let mut bytes = Vec::new();
            put_micro_time(&mut bytes, MicroTime(micros));
            assert_eq!(read_micro_time(&bytes), Ok(MicroTime(micros)));
        }
        for seconds in [0, -1, i64::MIN, i64::MAX, ZERO_SECONDS] {
            let mut bytes = Vec::new();
            put_time(&mut bytes, Time(seconds));
            assert_eq!(read_time(&bytes), Ok(Time(seconds)));
        }
        assert_eq!(micro_time(1, 1_999), MicroTime(1_000_001));
        assert_eq!(micro_time(1, -1_999), MicroTime(999_999));
        assert_eq!(micro_time(i64::MAX, 5), MicroTime(i64::MAX));
        // The first message has only an unknown field. Missing seconds mean 0, that is, 1970. But an empty message
        // means Go's zero time.
        assert_eq!(read_time(&[0x18, 0]), Ok(Time(0)));
        assert_eq!(read_time(&[]), Ok(Time(ZERO_SECONDS)));
    }

    #[test]
    fn the_last_value_of_a_repeated_key_counts() {
        let mut bytes = Vec::new();
        for (key, value) in [("b", "1"), ("a", "2"), ("b", "3")] {
            bytes.put_message(11, SHORT, |out: &mut Vec<u8>| {
                // The value of a map entry may come before its key.
                out.put_bytes(2, value.as_bytes());
                out.put_bytes(1, key.as_bytes());
            });
        }
        let (mut meta, mut repeated) = (ObjectMeta::default(), Repeated::default());
        repeated.entries.labels.push(("a".into(), "0".into()));
        repeated.entries.labels.push(("c".into(), "0".into()));
        read_object_meta(&bytes, &mut meta, &mut repeated).expect("metadata");
        assert_eq!(repeated.finish(&mut meta), 5);
        assert_eq!(meta.labels.iter().collect::<Vec<_>>(), [("a", "2"), ("b", "3"), ("c", "0")]);
    }
}
