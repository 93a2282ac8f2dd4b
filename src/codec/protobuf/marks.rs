//! Finds and replaces three values in the protobuf encoding of a Lease: those that a renewal changes (see
//! [`crate::codec::template`]). They are the `resourceVersion`, the `renewTime`, and the time of the last entry of
//! `managedFields`. Numbers have no fixed length: the nanoseconds of a `renewTime` take one to five bytes. So another
//! `renewTime` may change the lengths of the enclosing messages. But each of these lengths must take the same number of
//! bytes as before, since it is overwritten in place.
//!
//! ```text
//!   k8s\0 type 12 LENGTH { 0a metadata { … 32 VERSION … 8a01 entry { … 22 time { 08 SECONDS 10 00 } … } … }
//!                          12 LENGTH { … 22 LENGTH { 08 seconds 10 nanos } … } } tail
//! ```

use super::envelope::PREFIX;
use super::meta::put_micro_time;
use super::sink::{length, varint};
use crate::codec::values::{Values, has_at, put_at};
use crate::timestamp::{MicroTime, is_zero_micro_time, is_zero_time};
use std::ops::Range;

/// Positions of the three values that a renewal changes, and of the lengths that change if another `renewTime` takes
/// more or fewer bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Marks {
    /// Length of the Lease message.
    lease: Number,
    version_at: u16,
    version_digits: u8,
    /// Position of the seconds in the time of the last entry of `managedFields`; `None` if there is no such time.
    managed_seconds: Option<Number>,
    /// Length of the spec message.
    spec: Number,
    /// Length of the `renewTime` message.
    renew_time: Number,
}

/// Position and width of a varint, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Number {
    at: u16,
    width: u8,
}

impl Marks {
    pub(crate) fn of(encoding: &[u8], of: &Values) -> Option<Self> {
        let lease = Field::last(encoding, PREFIX.len()..encoding.len(), 2)?;
        let metadata = Field::last(encoding, lease.payload.clone(), 1)?;
        let version = Field::last(encoding, metadata.payload.clone(), 6)?;
        let spec = Field::last(encoding, lease.payload.clone(), 2)?;
        let renew_time = Field::last(encoding, spec.payload.clone(), 4)?;
        let managed_seconds = match of.managed_time {
            None => None,
            Some(_) => {
                let entry = Field::last(encoding, metadata.payload, 17)?;
                let time = Field::last(encoding, entry.payload, 4)?;
                // The seconds come after the key of their field, which takes one byte.
                let at = time.payload.start + 1;
                let (_, width) = number_at(encoding, at)?;
                Some(Number::new(at, width)?)
            }
        };
        let marks = Self {
            lease: lease.length()?,
            version_at: u16::try_from(version.payload.start).ok()?,
            version_digits: u8::try_from(version.payload.len()).ok()?,
            managed_seconds,
            spec: spec.length()?,
            renew_time: renew_time.length()?,
        };
        // A check of the positions: if they are correct, the replacement of each value by itself changes nothing.
        let mut same = Vec::with_capacity(encoding.len());
        let is_same = marks.match_encoding(encoding, of, encoding) == of.renew_time
            && marks.push(&mut same, encoding, 0, of)
            && same == encoding;
        is_same.then_some(marks)
    }

    #[inline]
    pub(crate) fn push(&self, out: &mut Vec<u8>, encoding: &[u8], from: usize, values: &Values) -> bool {
        let Some(renew_time) = values.renew_time.filter(|time| !is_zero_micro_time(*time)) else { return false };
        let time_at = self.renew_time.end();
        let Some(stored_bytes) = self.renew_time.read(encoding) else { return false };
        let stored_end = time_at + usize::try_from(stored_bytes).unwrap_or_default();
        let (Some(before), Some(after)) = (encoding.get(from..time_at), encoding.get(stored_end..)) else {
            return false;
        };
        let start = out.len();
        out.extend_from_slice(before);
        put_micro_time(out, renew_time);
        let time_bytes = length(out.len() - start - before.len());
        out.extend_from_slice(after);
        let Some(out) = out.get_mut(start..) else { return false };
        let longer_by_as_much = |number: Number| Some(number.read(encoding)? + time_bytes - stored_bytes);
        let mut put = |number: Number, value: Option<u64>| {
            value.is_some_and(|value| {
                let (bytes, width) = varint(value);
                let bytes = bytes.get(..width).unwrap_or_default();
                width == usize::from(number.width) && put_at(out, usize::from(number.at).wrapping_sub(from), bytes)
            })
        };
        let is_put = put(self.renew_time, Some(time_bytes))
            && put(self.spec, longer_by_as_much(self.spec))
            && put(self.lease, longer_by_as_much(self.lease))
            && match (self.managed_seconds, values.managed_time.filter(|time| !is_zero_time(*time))) {
                (None, None) => true,
                (Some(number), Some(time)) => put(number, Some(time.0.cast_unsigned())),
                _ => false,
            };
        let mut digits = itoa::Buffer::new();
        let version = digits.format(values.version.0).as_bytes();
        is_put
            && version.len() == usize::from(self.version_digits)
            && put_at(out, usize::from(self.version_at).wrapping_sub(from), version)
    }

    #[inline]
    pub(crate) fn match_encoding(&self, encoding: &[u8], values: &Values, body: &[u8]) -> Option<MicroTime> {
        // If `renewTime` takes more bytes in `body`, each enclosing length is larger by the same number. Each length
        // must take the same number of bytes as in `encoding`.
        let is_longer_by_as_much = |number: Number| {
            let own = number.read(body)?;
            let grown = own + encoding.len() as u64 == number.read(encoding)? + body.len() as u64;
            grown.then_some(usize::try_from(own).ok()?)
        };
        let is_same =
            |from: usize, to: u16| match (body.get(from..usize::from(to)), encoding.get(from..usize::from(to))) {
                (Some(own), Some(other)) => own == other,
                _ => false,
            };
        let mut digits = itoa::Buffer::new();
        let version = digits.format(values.version.0).as_bytes();
        let version_at = usize::from(self.version_at);
        // The `resourceVersion` is compared first, since most bodies that do not match differ in it: another client has
        // written the Lease in the meantime.
        if version.len() != usize::from(self.version_digits) || !has_at(body, version_at, version) {
            return None;
        }
        is_longer_by_as_much(self.lease)?;
        is_longer_by_as_much(self.spec)?;
        let length = is_longer_by_as_much(self.renew_time)?;
        let start = self.renew_time.end();
        let encoded_end = start + usize::try_from(self.renew_time.read(encoding)?).ok()?;
        let same_from = match (self.managed_seconds, values.managed_time) {
            (None, None) => version_at + version.len(),
            (Some(number), Some(time)) => {
                let is_own = number.read(body)? == time.0.cast_unsigned();
                if !is_own || !is_same(version_at + version.len(), number.at) {
                    return None;
                }
                number.end()
            }
            _ => return None,
        };
        let is_all_else_same = body.get(start + length..)? == encoding.get(encoded_end..)?
            && is_same(0, self.lease.at)
            && is_same(self.lease.end(), self.version_at)
            && is_same(same_from, self.spec.at)
            && is_same(self.spec.end(), self.renew_time.at);
        if !is_all_else_same {
            return None;
        }
        // The `renewTime` must have the form that this server encodes: both numbers are present, and the nanoseconds
        // are whole microseconds.
        let time = body.get(start..start + length)?;
        let (seconds, width) = (time.first() == Some(&SECONDS)).then(|| number_at(time, 1)).flatten()?;
        let nanos_at = 1 + width;
        let (nanos, width) = (time.get(nanos_at) == Some(&NANOS)).then(|| number_at(time, nanos_at + 1)).flatten()?;
        if nanos_at + 1 + width != length || seconds > SECONDS_MAX || nanos >= 1_000_000_000 || nanos % 1000 != 0 {
            return None;
        }
        Some(MicroTime((seconds * 1_000_000 + nanos / 1000).cast_signed()))
    }
}

/// Keys of the two fields of a time message.
const SECONDS: u8 = 0x08;
const NANOS: u8 = 0x10;

/// Upper bound of the seconds of a time. This bound is far beyond the year 9999. As microseconds, it still fits in an
/// `i64`.
const SECONDS_MAX: u64 = 1 << 40;

impl Number {
    fn new(at: usize, width: usize) -> Option<Self> {
        Some(Self { at: u16::try_from(at).ok()?, width: u8::try_from(width).ok()? })
    }

    /// Returns the number at this position. Returns `None` if that number has another width, or more bytes than
    /// necessary.
    #[inline]
    fn read(self, bytes: &[u8]) -> Option<u64> {
        let (number, width) = number_at(bytes, usize::from(self.at))?;
        (width == usize::from(self.width)).then_some(number)
    }

    /// Returns the position of the first byte after the number.
    #[inline]
    fn end(self) -> usize {
        usize::from(self.at) + usize::from(self.width)
    }
}

/// Returns the varint at the offset `at`, and the width of the varint in bytes. Returns `None` if the varint has more
/// bytes than necessary, or has ten bytes, like a negative number.
#[inline]
fn number_at(bytes: &[u8], at: usize) -> Option<(u64, usize)> {
    let mut number = 0;
    for (index, byte) in bytes.get(at..)?.iter().take(9).enumerate() {
        number |= u64::from(byte & 0x7f) << (7 * index);
        if *byte < 0x80 {
            return (*byte != 0 || index == 0).then_some((number, index + 1));
        }
    }
    None
}

/// A length-delimited field: the offset of its length, and the range of its payload.
struct Field {
    length_at: usize,
    payload: Range<usize>,
}

impl Field {
    /// Finds the last field with this number in the message at `within`. Returns `None` if the message has no such
    /// field, or has a wire type that a Lease does not have.
    fn last(bytes: &[u8], within: Range<usize>, number: u64) -> Option<Self> {
        let bytes = bytes.get(..within.end)?;
        let (mut at, mut last) = (within.start, None);
        while at < within.end {
            let (key, width) = number_at(bytes, at)?;
            let length_at = at + width;
            let (value, width) = number_at(bytes, length_at)?;
            at = length_at + width;
            match key & 7 {
                0 => {}
                2 => {
                    let payload = at..at.checked_add(usize::try_from(value).ok()?)?;
                    at = payload.end;
                    if key >> 3 == number {
                        last = Some(Self { length_at, payload });
                    }
                }
                _ => return None,
            }
        }
        last.filter(|_| at == within.end)
    }

    fn length(&self) -> Option<Number> {
        Number::new(self.length_at, self.payload.start - self.length_at)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::codec::Format;
    use crate::codec::protobuf::decode_lease;
    use crate::codec::template::Template;
    use crate::codec::template::fixture::{STORED, encode};
    use crate::lease::Lease;
    use crate::lease::managed_fields::{Writer, track};
    use crate::resource::{API_VERSION, ApiVersion, ResourceVersion};
    use crate::timestamp::Time;

    fn lease() -> Lease {
        let mut lease = Lease::named("kube-node-lease", "n");
        lease.metadata.labels.insert("a".into(), "b".into());
        lease.spec.holder_identity = Some("n".into());
        lease.spec.renew_time = STORED.renew_time;
        lease.spec.lease_transitions = Some(3);
        track(None, &mut lease, &Writer { manager: "m", api_version: API_VERSION, now: Time(1_795_219_345) });
        lease
    }

    #[test]
    fn a_filled_template_equals_the_encoded_renewal() {
        let live = lease();
        let template = Template::new(Format::Protobuf, &live, STORED);
        // In these times, the nanoseconds take one to five bytes.
        for micros in [0, 1, 17, 1_000, 123_456, 999_999] {
            let mut renewed = live.clone();
            renewed.spec.renew_time = Some(MicroTime(1_795_219_355_000_000 + micros));
            let sent = encode(Format::Protobuf, &renewed, STORED.version);
            let now = Time(1_795_219_355);
            track(Some(&live), &mut renewed, &Writer { manager: "m", api_version: API_VERSION, now });
            assert_eq!(template.match_body(&STORED, &sent, || true), renewed.spec.renew_time);
            let version = ResourceVersion(12_346);
            let values = Values { version, renew_time: renewed.spec.renew_time, managed_time: Some(now) };
            let expected = encode(Format::Protobuf, &renewed, version);
            for from in [0, 5] {
                let mut out = b"before".to_vec();
                assert!(template.push(&mut out, from, &values));
                assert_eq!(out[6..], expected[from..]);
            }
            // A client can renew the renewed Lease again: the template also matches a body that has the values of the
            // first renewal.
            assert_eq!(template.match_body(&values, &expected, || true), renewed.spec.renew_time);
            assert_eq!(template.match_body(&STORED, &expected, || true), None, "of another version");
        }
    }

    #[test]
    fn values_that_do_not_fit_the_template_are_refused() {
        let template = Template::new(Format::Protobuf, &lease(), STORED);
        let other = Values { version: ResourceVersion(12_346), ..STORED };
        let cases = [
            ("a digit more", Values { version: ResourceVersion(100_000), ..other }),
            ("no time", Values { renew_time: None, ..other }),
            ("a time that is null", Values { renew_time: Some(MicroTime(-62_135_596_800_000_000)), ..other }),
            ("no manager", Values { managed_time: None, ..other }),
            ("a manager's time that is null", Values { managed_time: Some(Time(-62_135_596_800)), ..other }),
            ("a manager's time of more bytes", Values { managed_time: Some(Time(1 << 40)), ..other }),
        ];
        for (what, values) in cases {
            let mut out = b"before".to_vec();
            assert!(!template.push(&mut out, 0, &values), "{what}");
            assert_eq!(out, b"before", "{what}");
        }
    }

    #[test]
    fn a_template_writes_any_time_as_the_encoder_does() {
        let template = Template::new(Format::Protobuf, &lease(), STORED);
        for micros in [i64::MIN, -1, 0, 1, 999_999, 1 << 52, i64::MAX] {
            let renew_time = Some(MicroTime(micros));
            let mut renewed = lease();
            renewed.spec.renew_time = renew_time;
            let version = ResourceVersion(54_321);
            let mut out = Vec::new();
            assert!(template.push(&mut out, 0, &Values { version, renew_time, ..STORED }), "{micros}");
            assert_eq!(out, encode(Format::Protobuf, &renewed, version), "{micros}");
        }
    }

    #[test]
    fn a_body_with_any_other_change_is_not_a_renewal() {
        let live = lease();
        let stored = encode(Format::Protobuf, &live, STORED.version);
        let template = Template::new(Format::Protobuf, &live, STORED);
        for at in 0..stored.len() {
            for bit in 0..8 {
                let mut sent = stored.clone();
                sent[at] ^= 1 << bit;
                // The body still matches only if the flipped bit is in `renewTime`.
                if let Some(renew_time) = template.match_body(&STORED, &sent, || true) {
                    let decoded = decode_lease(&sent, ApiVersion::V1).expect("a Lease").lease;
                    let mut renewed = live.clone();
                    renewed.spec.renew_time = Some(renew_time);
                    assert_eq!(
                        (decoded.spec, encode(Format::Protobuf, &renewed, STORED.version)),
                        (renewed.spec, sent),
                        "byte {at}"
                    );
                }
            }
            let mut sent = stored.clone();
            sent.remove(at);
            assert_eq!(template.match_body(&STORED, &sent, || true), None, "byte {at}");
        }
    }
}
