//! Renewals in JSON (see [`crate::codec::renewal`]). A version has its digits, a time 20 bytes, and a `renewTime` 27.

use crate::codec::renewal::{Marked, put_version};
use crate::codec::time::{is_zero_micro_time, is_zero_time, parse_canonical_micro_time, time_text};
use crate::lease::{MicroTime, ResourceVersion, Time};
use memchr::memmem;

/// Bytes of a `renewTime`.
const RENEW_TIME_BYTES: usize = 27;
/// Bytes of a time of `managedFields`.
const TIME_BYTES: usize = 20;

/// See [`crate::codec::renewal::Marks`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RenewalMarks {
    version_at: u16,
    version_digits: u8,
    /// None if no fields are managed.
    managed_time_at: Option<u16>,
    renew_time_at: u16,
}

impl RenewalMarks {
    pub(crate) fn of(encoding: &[u8], of: &Marked) -> Option<Self> {
        if is_zero_micro_time(of.renew_time) || of.managed_time.is_some_and(is_zero_time) {
            return None;
        }
        // The name of a member cannot stand within a string: there its quotes would have backslashes before them. What
        // stands before the version are strings only, and so is what follows the time; `managedFields` are the last of
        // the metadata, and no name in `fieldsV1` is without a colon.
        let after = |needle: &[u8], at: Option<usize>| at.map(|at| at + needle.len());
        let version_at = after(VERSION, memmem::find(encoding, VERSION))?;
        let renew_time_at = after(RENEW_TIME, memmem::rfind(encoding, RENEW_TIME))?;
        let managed_time_at = match of.managed_time {
            Some(_) => Some(after(TIME, memmem::rfind(encoding, TIME))?),
            None => None,
        };
        let version_digits = encoding.get(version_at..)?.iter().position(|byte| *byte == b'"')?;
        let marks = Self {
            version_at: u16::try_from(version_at).ok()?,
            version_digits: u8::try_from(version_digits).ok()?,
            managed_time_at: managed_time_at.map(u16::try_from).transpose().ok()?,
            renew_time_at: u16::try_from(renew_time_at).ok()?,
        };
        // What stands there must be what we think it is; then putting in the same changes nothing.
        let (object, _) = encoding.split_at_checked(encoding.len().checked_sub(1)?)?;
        let mut same = Vec::with_capacity(encoding.len());
        let is_same = marks.renewed(encoding, object) == Some(of.renew_time)
            && marks.encode(&mut same, object, of.version, of.managed_time)
            && same == encoding;
        is_same.then_some(marks)
    }

    #[inline]
    pub(crate) fn renewed(&self, stored: &[u8], body: &[u8]) -> Option<MicroTime> {
        let (stored, body) = (without_line_feed(stored), without_line_feed(body));
        if stored.len() != body.len() {
            return None;
        }
        let at = usize::from(self.renew_time_at);
        let (stored_before, stored_rest) = stored.split_at_checked(at)?;
        let (before, rest) = body.split_at_checked(at)?;
        let (text, after) = rest.split_first_chunk::<RENEW_TIME_BYTES>()?;
        // What is behind is short and differs more often than not if anything does.
        if *after != *stored_rest.get(RENEW_TIME_BYTES..)? || before != stored_before {
            return None;
        }
        parse_canonical_micro_time(text).filter(|time| !is_zero_micro_time(*time))
    }

    #[inline]
    pub(crate) fn encode(
        &self,
        out: &mut Vec<u8>,
        body: &[u8],
        version: ResourceVersion,
        managed_time: Option<Time>,
    ) -> bool {
        out.extend_from_slice(without_line_feed(body));
        out.push(b'\n');
        if !put_version(out, self.version_at, self.version_digits, version) {
            return false;
        }
        let (at, time) = match (self.managed_time_at, managed_time) {
            (None, None) => return true,
            (Some(at), Some(time)) => (usize::from(at), time),
            _ => return false,
        };
        match (out.get_mut(at..at + TIME_BYTES), time_text(time)) {
            (Some(place), Some(text)) => place.copy_from_slice(&text),
            _ => return false,
        }
        true
    }
}

/// Our bodies end with a line feed, as Go's encoder ends them; others leave it out.
#[inline]
fn without_line_feed(body: &[u8]) -> &[u8] {
    body.strip_suffix(b"\n").unwrap_or(body)
}

const VERSION: &[u8] = b"\"resourceVersion\":\"";
const TIME: &[u8] = b"\"time\":\"";
const RENEW_TIME: &[u8] = b"\"renewTime\":\"";

#[cfg(test)]
mod tests {
    use super::*;
    use crate::codec::json::encode_lease_into;
    use crate::lease::managed_fields::{Writer, track};
    use crate::lease::{API_VERSION, Lease};

    fn lease() -> Lease {
        let mut lease = Lease::default();
        lease.metadata.name = "n".into();
        lease.metadata.namespace = "kube-node-lease".into();
        for key in ["resourceVersion", "renewTime", "time"] {
            // What looks like a mark and is none.
            lease.metadata.labels.insert(key.into(), "5".into());
            lease.metadata.annotations.insert(key.into(), format!(r#"{{"{key}":"5"}}"#).into());
        }
        lease.spec.holder_identity = Some("n".into());
        lease.spec.renew_time = Some(MicroTime(1_795_219_345_123_456));
        lease.spec.preferred_holder = Some(r#"{"renewTime":"2026-01-01T00:00:00.000000Z"}"#.into());
        track(None, &mut lease, &Writer { manager: "m", api_version: API_VERSION, now: Time(1_795_219_345) });
        lease
    }

    fn body(lease: &Lease, version: ResourceVersion) -> Vec<u8> {
        let mut out = Vec::new();
        encode_lease_into(&mut out, lease, Some(version), true);
        out.push(b'\n');
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
        let mut renewed = live.clone();
        renewed.spec.renew_time = Some(MicroTime(1_795_219_355_000_001));
        let sent = body(&renewed, STORED.version);
        track(Some(&live), &mut renewed, &Writer { manager: "m", api_version: API_VERSION, now: Time(1_795_219_355) });
        for sent in [&sent[..], &sent[..sent.len() - 1]] {
            assert_eq!(marks.renewed(&stored, sent), Some(MicroTime(1_795_219_355_000_001)));
            let mut out = Vec::new();
            assert!(marks.encode(&mut out, sent, ResourceVersion(12_346), Some(Time(1_795_219_355))));
            assert_eq!(out, body(&renewed, ResourceVersion(12_346)));
        }
        let mut out = Vec::new();
        assert!(!marks.encode(&mut out, &sent, ResourceVersion(100_000), Some(Time(1_795_219_355))), "a digit more");
    }

    #[test]
    fn whatever_else_is_another_is_no_renewal() {
        let stored = body(&lease(), STORED.version);
        let marks = RenewalMarks::of(&stored, &STORED).expect("marks");
        for at in 0..stored.len() - 1 {
            let mut sent = stored.clone();
            // A digit becomes a letter, so that a `renewTime` is none any more.
            sent[at] ^= 0x50;
            assert_eq!(marks.renewed(&stored, &sent), None, "byte {at}");
            sent.remove(at);
            assert_eq!(marks.renewed(&stored, &sent), None);
        }
    }
}
