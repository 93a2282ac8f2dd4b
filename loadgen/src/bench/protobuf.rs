//! The part of Kubernetes' protobuf that a bench needs: the encoding of a kubelet's Lease, and the byte ranges of the
//! fields that change. Field numbers are from `generated.proto` of `k8s.io/api` and `k8s.io/apimachinery`.

use super::places::Places;
use std::ops::Range;

/// Size of an encoded `MicroTime` in bytes, if its seconds and its nanoseconds take five bytes each; see [`spread`].
pub(super) const TIME_LEN: usize = 12;
/// Magic bytes before every object (`k8s.io/apimachinery/pkg/runtime/serializer/protobuf`).
const MAGIC: &[u8] = b"k8s\0";

/// Moves a time within its second so that its nanoseconds take five bytes as a varint. So one such time can be written
/// over another. The result is never before `micros`. Times keep their order, but neighbouring times may become equal.
pub(super) fn spread(micros: u64) -> u64 {
    let (second, rest) = (micros / 1_000_000, micros % 1_000_000);
    second * 1_000_000 + NANOS_LONG_US + rest * (1_000_000 - NANOS_LONG_US) / 1_000_000
}

/// Lowest number of microseconds whose nanoseconds have more than 28 bits. A varint of four bytes has only 28 bits.
const NANOS_LONG_US: u64 = (1_u64 << 28).div_ceil(1_000);

/// Appends the fields of a `MicroTime`: seconds and nanoseconds.
pub(super) fn push_time(out: &mut Vec<u8>, micros: u64) {
    out.push(0x08);
    push_varint(out, micros / 1_000_000);
    out.push(0x10);
    push_varint(out, micros % 1_000_000 * 1_000);
}

/// Appends the Lease that a kubelet creates, with the envelope of Kubernetes' protobuf.
pub(super) fn push_new(out: &mut Vec<u8>, namespace: &str, name: &str, owner_uid: u128, renewed: u64) {
    let mut uid = Vec::new();
    crate::object::push_uuid(&mut uid, owner_uid);
    let mut owner = Vec::new();
    for (number, value) in [(1, b"Node".as_slice()), (3, name.as_bytes()), (4, &uid), (5, b"v1")] {
        push_field(&mut owner, number, value);
    }
    let (mut metadata, mut time, mut spec) = (Vec::new(), Vec::new(), Vec::new());
    for (number, value) in [(1, name.as_bytes()), (3, namespace.as_bytes()), (13, &owner)] {
        push_field(&mut metadata, number, value);
    }
    push_time(&mut time, renewed);
    push_field(&mut spec, 1, name.as_bytes());
    spec.extend_from_slice(&[2 << 3, 40]);
    push_field(&mut spec, 4, &time);
    let (mut lease, mut kind) = (Vec::new(), Vec::new());
    push_field(&mut lease, 1, &metadata);
    push_field(&mut lease, 2, &spec);
    push_field(&mut kind, 1, b"coordination.k8s.io/v1");
    push_field(&mut kind, 2, b"Lease");
    out.extend_from_slice(MAGIC);
    push_field(out, 1, &kind);
    push_field(out, 2, &lease);
    push_field(out, 3, b"");
    push_field(out, 4, b"");
}

fn push_field(out: &mut Vec<u8>, number: u8, value: &[u8]) {
    // Field numbers are below 16, so the field's key is one byte.
    out.push(number << 3 | 2);
    push_varint(out, value.len() as u64);
    out.extend_from_slice(value);
}

fn push_varint(out: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        out.push(value.to_le_bytes()[0] | 0x80);
        value >>= 7;
    }
    out.push(value.to_le_bytes()[0]);
}

/// Returns the byte ranges of the fields that the bench reads or overwrites, in a Lease with its envelope.
pub(super) fn places(body: &[u8]) -> Option<Places> {
    body.starts_with(MAGIC).then_some(())?;
    let lease = field(body, MAGIC.len()..body.len(), 2)?;
    let metadata = field(body, lease.clone(), 1)?;
    let spec = field(body, lease, 2)?;
    let version = field(body, metadata.clone(), 6)?;
    let renewed = field(body, spec, 4)?;
    // The resourceVersion comes after the one-byte key of the field, and its length.
    let identity = metadata.start..version.start.checked_sub(1 + varint_len(version.len() as u64))?;
    (renewed.len() == TIME_LEN).then_some(Places { identity, version, renewed })
}

/// Returns the name in an encoded ObjectMeta, which may be cut after the name.
pub(super) fn name_of(metadata: &[u8]) -> Option<&[u8]> {
    metadata.get(field(metadata, 0..metadata.len(), 1)?)
}

/// Returns the Lease with a `renewTime` of [`TIME_LEN`] bytes. The messages around the `renewTime` get new lengths too.
/// Returns `None` if the `renewTime` has that length already, or is missing.
#[cold]
pub(super) fn lengthened(body: &[u8]) -> Option<Vec<u8>> {
    let lease = field(body, MAGIC.len()..body.len(), 2)?;
    let spec = field(body, lease.clone(), 2)?;
    let time = field(body, spec.clone(), 4).filter(|time| time.len() != TIME_LEN)?;
    let mut value = Vec::new();
    push_time(&mut value, spread(FAR_US));
    // Each step encodes the next outer message, with the new value in place of the old one.
    let (mut inner, mut number) = (time, 4);
    for (outer, outer_number) in [(spec, 2), (lease, 2), (0..body.len(), 0)] {
        // The old value comes after the one-byte key of the field, and its length.
        let start = inner.start.checked_sub(1 + varint_len(inner.len() as u64))?;
        let mut message = body.get(outer.start..start)?.to_vec();
        push_field(&mut message, number, &value);
        message.extend_from_slice(body.get(inner.end..outer.end)?);
        (value, inner, number) = (message, outer, outer_number);
    }
    Some(value)
}

fn varint_len(value: u64) -> usize {
    let mut out = Vec::new();
    push_varint(&mut out, value);
    out.len()
}

/// A time whose seconds take five bytes, as in all years from 1978 to 3058.
const FAR_US: u64 = 1_700_000_000_000_000;

/// Returns the byte range of the value of field `number` in the message at `message`. The field must be
/// length-delimited.
fn field(body: &[u8], message: Range<usize>, number: u64) -> Option<Range<usize>> {
    let mut at = message.start;
    while at < message.end {
        let key = varint(body, &mut at)?;
        match key & 7 {
            0 => _ = varint(body, &mut at)?,
            2 => {
                let len = usize::try_from(varint(body, &mut at)?).ok()?;
                let place = at..at.checked_add(len).filter(|&end| end <= message.end)?;
                if key >> 3 == number {
                    return Some(place);
                }
                at = place.end;
            }
            _ => return None,
        }
    }
    None
}

fn varint(body: &[u8], at: &mut usize) -> Option<u64> {
    let mut value = 0;
    for shift in (0..64).step_by(7) {
        let byte = *body.get(*at)?;
        *at += 1;
        value |= u64::from(byte & 0x7f) << shift;
        if byte < 0x80 {
            return Some(value);
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn encoded_times_keep_their_order_and_have_one_length() {
        let times = [0, 1, 500_000, 999_999, 1_000_000, 1_700_000].map(|us| spread(1_790_000_000_000_000 + us));
        assert!(times.is_sorted(), "{times:?}");
        for micros in times {
            let mut time = Vec::new();
            push_time(&mut time, micros);
            assert_eq!(time.len(), TIME_LEN, "{micros}");
        }
    }
}
