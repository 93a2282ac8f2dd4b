//! Renewals in protobuf (see [`crate::codec::renewal`]). Numbers have no fixed length there: the nanoseconds of a
//! `renewTime` take from one to five bytes, and so the lengths of the messages around it change, though not the bytes
//! that these lengths take.
//!
//! ```text
//!   k8s\0 type 12 LENGTH { 0a metadata { … 32 VERSION … 8a01 entry { … 22 time { 08 SECONDS 10 00 } … } … }
//!                          12 LENGTH { … 22 LENGTH { 08 seconds 10 nanos } … } } tail
//! ```

use super::envelope::PREFIX;
use super::sink::varint;
use crate::codec::renewal::{Marked, put_version};
use crate::codec::time::{is_zero_micro_time, is_zero_time};
use crate::lease::{MicroTime, ResourceVersion, Time};
use std::ops::Range;

/// See [`crate::codec::renewal::Marks`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RenewalMarks {
    /// Length of the Lease.
    lease: Number,
    /// Length of the spec.
    spec: Number,
    /// Length of the `renewTime`.
    renew_time: Number,
    version_at: u16,
    version_digits: u8,
    /// Seconds of the time of the last entry; none if no fields are managed.
    managed_seconds: Option<Number>,
}

/// Where a number in base 128 stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Number {
    at: u16,
    width: u8,
}

impl RenewalMarks {
    pub(crate) fn of(encoding: &[u8], of: &Marked) -> Option<Self> {
        if is_zero_micro_time(of.renew_time) || of.managed_time.is_some_and(is_zero_time) {
            return None;
        }
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
                // Behind the key.
                let at = time.payload.start + 1;
                let (_, width) = number_at(encoding, at)?;
                Some(Number::new(at, width)?)
            }
        };
        let marks = Self {
            lease: lease.length()?,
            spec: spec.length()?,
            renew_time: renew_time.length()?,
            version_at: u16::try_from(version.payload.start).ok()?,
            version_digits: u8::try_from(version.payload.len()).ok()?,
            managed_seconds,
        };
        // What stands there must be what we think it is; then putting in the same changes nothing.
        let mut same = Vec::with_capacity(encoding.len());
        let is_same = marks.renewed(encoding, encoding) == Some(of.renew_time)
            && marks.encode(&mut same, encoding, of.version, of.managed_time)
            && same == encoding;
        is_same.then_some(marks)
    }

    #[inline]
    pub(crate) fn renewed(&self, stored: &[u8], body: &[u8]) -> Option<MicroTime> {
        // Lengths grow and shrink together, as far as they keep their widths.
        let is_longer_by_as_much = |number: Number| {
            let own = number.read(body)?;
            let grown = own + stored.len() as u64 == number.read(stored)? + body.len() as u64;
            grown.then_some(usize::try_from(own).ok()?)
        };
        let is_same = |from: usize, to: u16| match (body.get(from..usize::from(to)), stored.get(from..usize::from(to)))
        {
            (Some(own), Some(stored)) => own == stored,
            _ => false,
        };
        is_longer_by_as_much(self.lease)?;
        is_longer_by_as_much(self.spec)?;
        let length = is_longer_by_as_much(self.renew_time)?;
        let start = self.renew_time.end();
        let stored_end = start + usize::try_from(self.renew_time.read(stored)?).ok()?;
        let after = body.get(start + length..)?;
        let is_all_else_same = after == stored.get(stored_end..)?
            && is_same(0, self.lease.at)
            && is_same(self.lease.end(), self.spec.at)
            && is_same(self.spec.end(), self.renew_time.at);
        if !is_all_else_same {
            return None;
        }
        // As it is written here: both numbers, the nanoseconds without a fraction of a microsecond.
        let time = body.get(start..start + length)?;
        let (seconds, width) = (time.first() == Some(&SECONDS)).then(|| number_at(time, 1)).flatten()?;
        let nanos_at = 1 + width;
        let (nanos, width) = (time.get(nanos_at) == Some(&NANOS)).then(|| number_at(time, nanos_at + 1)).flatten()?;
        if nanos_at + 1 + width != length || seconds > SECONDS_MAX || nanos >= 1_000_000_000 || nanos % 1000 != 0 {
            return None;
        }
        Some(MicroTime((seconds * 1_000_000 + nanos / 1000).cast_signed()))
    }

    #[inline]
    pub(crate) fn encode(
        &self,
        out: &mut Vec<u8>,
        body: &[u8],
        version: ResourceVersion,
        managed_time: Option<Time>,
    ) -> bool {
        out.extend_from_slice(body);
        if !put_version(out, self.version_at, self.version_digits, version) {
            return false;
        }
        let (number, time) = match (self.managed_seconds, managed_time) {
            (None, None) => return true,
            (Some(number), Some(time)) => (number, time),
            _ => return false,
        };
        let (bytes, width) = varint(time.0.cast_unsigned());
        match (out.get_mut(usize::from(number.at)..number.end()), bytes.get(..width)) {
            (Some(place), Some(bytes)) if place.len() == bytes.len() => place.copy_from_slice(bytes),
            _ => return false,
        }
        true
    }
}

/// Keys of the two fields of a time.
const SECONDS: u8 = 0x08;
const NANOS: u8 = 0x10;

/// Far beyond the year 9999; and microseconds of them fit.
const SECONDS_MAX: u64 = 1 << 40;

impl Number {
    fn new(at: usize, width: usize) -> Option<Self> {
        Some(Self { at: u16::try_from(at).ok()?, width: u8::try_from(width).ok()? })
    }

    /// What stands there, if it is written with as many bytes and needs them.
    #[inline]
    fn read(self, bytes: &[u8]) -> Option<u64> {
        let (number, width) = number_at(bytes, usize::from(self.at))?;
        (width == usize::from(self.width)).then_some(number)
    }

    /// Where what follows begins.
    #[inline]
    fn end(self) -> usize {
        usize::from(self.at) + usize::from(self.width)
    }
}

/// The number at `at` and its width, if it is written as shortly as it can be.
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

/// A field that has a length.
struct Field {
    length_at: usize,
    payload: Range<usize>,
}

impl Field {
    /// The last field `number` of the message at `within`, which has only such fields as a Lease has.
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
    use crate::codec::protobuf::{decode_lease, encode_lease_into};
    use crate::lease::managed_fields::{Writer, track};
    use crate::lease::{API_VERSION, ApiVersion, Lease};

    fn lease() -> Lease {
        let mut lease = Lease::default();
        lease.metadata.name = "n".into();
        lease.metadata.namespace = "kube-node-lease".into();
        lease.metadata.labels.insert("a".into(), "b".into());
        lease.spec.holder_identity = Some("n".into());
        lease.spec.renew_time = Some(STORED.renew_time);
        lease.spec.lease_transitions = Some(3);
        track(None, &mut lease, &Writer { manager: "m", api_version: API_VERSION, now: Time(1_795_219_345) });
        lease
    }

    fn body(lease: &Lease, version: ResourceVersion) -> Vec<u8> {
        let mut out = Vec::new();
        encode_lease_into(&mut out, lease, Some(version), API_VERSION);
        out
    }

    const STORED: Marked = Marked {
        version: ResourceVersion(12_345),
        renew_time: MicroTime(1_795_219_345_123_456),
        managed_time: Some(Time(1_795_219_345)),
    };

    #[test]
    fn a_renewal_is_the_body_with_version_and_time_put_in() {
        let live = lease();
        let stored = body(&live, STORED.version);
        let marks = RenewalMarks::of(&stored, &STORED).expect("marks");
        // Nanoseconds of one to five bytes.
        for micros in [0, 1, 17, 1_000, 123_456, 999_999] {
            let mut renewed = live.clone();
            renewed.spec.renew_time = Some(MicroTime(1_795_219_355_000_000 + micros));
            let sent = body(&renewed, STORED.version);
            let now = Time(1_795_219_355);
            track(Some(&live), &mut renewed, &Writer { manager: "m", api_version: API_VERSION, now });
            assert_eq!(marks.renewed(&stored, &sent), renewed.spec.renew_time);
            let mut out = Vec::new();
            assert!(marks.encode(&mut out, &sent, ResourceVersion(12_346), Some(now)));
            assert_eq!(out, body(&renewed, ResourceVersion(12_346)));
            out.clear();
            assert!(!marks.encode(&mut out, &sent, ResourceVersion(100_000), Some(now)), "a digit more");
        }
    }

    #[test]
    fn whatever_else_is_another_is_no_renewal() {
        let live = lease();
        let stored = body(&live, STORED.version);
        let marks = RenewalMarks::of(&stored, &STORED).expect("marks");
        for at in 0..stored.len() {
            for bit in 0..8 {
                let mut sent = stored.clone();
                sent[at] ^= 1 << bit;
                // Unless it is another time and nothing else.
                if let Some(renew_time) = marks.renewed(&stored, &sent) {
                    let decoded = decode_lease(&sent, ApiVersion::V1).expect("a Lease").lease;
                    let mut renewed = live.clone();
                    renewed.spec.renew_time = Some(renew_time);
                    assert_eq!((decoded.spec, body(&renewed, STORED.version)), (renewed.spec, sent), "byte {at}");
                }
            }
            let mut sent = stored.clone();
            sent.remove(at);
            assert_eq!(marks.renewed(&stored, &sent), None, "byte {at}");
        }
    }
}
