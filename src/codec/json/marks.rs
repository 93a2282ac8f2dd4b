//! Finds and replaces three values in the JSON encoding of a Lease: those that a renewal changes (see
//! [`crate::codec::template`]). The `resourceVersion` takes as many bytes as it has digits. The time of the last entry
//! of `managedFields` takes 20 bytes, and the `renewTime` 27 bytes.

use crate::codec::values::{Values, has_at, put_at};
use crate::timestamp::{
    MicroTime, is_zero_micro_time, is_zero_time, micro_time_text, parse_canonical_micro_time, time_text,
};
use memchr::memmem;

/// Length of a `renewTime`, in bytes.
const RENEW_TIME_BYTES: usize = 27;
/// Length of a time of `managedFields`, in bytes.
const TIME_BYTES: usize = 20;

/// Positions of the three values that a renewal changes, in their order in the encoding.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Marks {
    version_at: u16,
    version_digits: u8,
    /// Position of the time of the last entry of `managedFields`; `None` if there is no such time.
    managed_time_at: Option<u16>,
    renew_time_at: u16,
}

impl Marks {
    pub(crate) fn of(encoding: &[u8], of: &Values) -> Option<Self> {
        // Each of the three searches below finds its member. No name matches inside a string, since each quote there
        // has a backslash before it. The first `resourceVersion` is the wanted one, since only members with string
        // values come before it. The last `renewTime` is the wanted one, since no nested value comes after it. The last
        // `time` is that of the last entry: `managedFields` ends the metadata, and each name in `fieldsV1` contains a
        // colon.
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
        // A check of the positions: if they are correct, the replacement of each value by itself changes nothing.
        let mut same = Vec::with_capacity(encoding.len());
        let is_same = marks.match_encoding(encoding, of, encoding) == of.renew_time
            && marks.push(&mut same, encoding, 0, of)
            && same == encoding;
        is_same.then_some(marks)
    }

    #[inline]
    pub(crate) fn push(&self, out: &mut Vec<u8>, encoding: &[u8], from: usize, values: &Values) -> bool {
        let start = out.len();
        out.extend_from_slice(encoding.get(from..).unwrap_or_default());
        let Some(out) = out.get_mut(start..) else { return false };
        let place = |at: u16| usize::from(at).wrapping_sub(from);
        let mut digits = itoa::Buffer::new();
        let version = digits.format(values.version.0).as_bytes();
        let is_put = version.len() == usize::from(self.version_digits) && put_at(out, place(self.version_at), version);
        let Some(renew_time) = values.renew_time.filter(|time| !is_zero_micro_time(*time)) else { return false };
        let Some(text) = micro_time_text(renew_time) else { return false };
        let is_put = is_put && put_at(out, place(self.renew_time_at), &text);
        match (self.managed_time_at, values.managed_time.filter(|time| !is_zero_time(*time))) {
            (None, None) => is_put,
            (Some(at), Some(time)) => is_put && time_text(time).is_some_and(|text| put_at(out, place(at), &text)),
            _ => false,
        }
    }

    #[inline]
    pub(crate) fn match_encoding(&self, encoding: &[u8], values: &Values, body: &[u8]) -> Option<MicroTime> {
        let (encoding, body) = (without_line_feed(encoding), without_line_feed(body));
        if encoding.len() != body.len() {
            return None;
        }
        let is_same = |from: usize, to: usize| match (body.get(from..to), encoding.get(from..to)) {
            (Some(own), Some(other)) => own == other,
            _ => false,
        };
        let version_at = usize::from(self.version_at);
        let version_end = version_at + usize::from(self.version_digits);
        let renew_time_at = usize::from(self.renew_time_at);
        let mut digits = itoa::Buffer::new();
        let version = digits.format(values.version.0).as_bytes();
        // The `resourceVersion` is compared first, since most bodies that do not match differ in it: another client has
        // written the Lease in the meantime.
        if version.len() != usize::from(self.version_digits) || !has_at(body, version_at, version) {
            return None;
        }
        let same_from = match (self.managed_time_at.map(usize::from), values.managed_time) {
            (None, None) => version_end,
            (Some(at), Some(time)) => {
                if !is_same(version_end, at) || !has_at(body, at, &time_text(time)?) {
                    return None;
                }
                at + TIME_BYTES
            }
            _ => return None,
        };
        if !is_same(0, version_at)
            || !is_same(same_from, renew_time_at)
            || !is_same(renew_time_at + RENEW_TIME_BYTES, body.len())
        {
            return None;
        }
        let text = body.get(renew_time_at..)?.first_chunk::<RENEW_TIME_BYTES>()?;
        parse_canonical_micro_time(text).filter(|time| !is_zero_micro_time(*time))
    }
}

/// Removes the final line feed. Like Go's encoder, the server appends one, but clients may omit it.
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
    use crate::codec::Format;
    use crate::codec::template::Template;
    use crate::codec::template::fixture::{STORED, encode};
    use crate::lease::Lease;
    use crate::lease::managed_fields::{Writer, track};
    use crate::resource::{API_VERSION, ResourceVersion};
    use crate::timestamp::Time;

    fn lease() -> Lease {
        let mut lease = Lease::named("kube-node-lease", "n");
        for key in ["resourceVersion", "renewTime", "time"] {
            // This label and this annotation look like members that the search might find.
            lease.metadata.labels.insert(key.into(), "5".into());
            lease.metadata.annotations.insert(key.into(), format!(r#"{{"{key}":"5"}}"#).into());
        }
        lease.spec.holder_identity = Some("n".into());
        lease.spec.renew_time = STORED.renew_time;
        lease.spec.preferred_holder = Some(r#"{"renewTime":"2026-01-01T00:00:00.000000Z"}"#.into());
        track(None, &mut lease, &Writer { manager: "m", api_version: API_VERSION, now: Time(1_795_219_345) });
        lease
    }

    const RENEWED: Values = Values {
        version: ResourceVersion(12_346),
        renew_time: Some(MicroTime(1_795_219_355_000_001)),
        managed_time: Some(Time(1_795_219_355)),
    };

    #[test]
    fn a_filled_template_equals_the_encoded_renewal() {
        let live = lease();
        let template = Template::new(Format::Json, &live, STORED);
        let mut renewed = live.clone();
        renewed.spec.renew_time = RENEWED.renew_time;
        let sent = encode(Format::Json, &renewed, STORED.version);
        track(Some(&live), &mut renewed, &Writer { manager: "m", api_version: API_VERSION, now: Time(1_795_219_355) });
        for sent in [&sent[..], &sent[..sent.len() - 1]] {
            assert_eq!(template.match_body(&STORED, sent, || true), RENEWED.renew_time);
        }
        let expected = encode(Format::Json, &renewed, RENEWED.version);
        for from in [0, 1, 40] {
            let mut out = b"before".to_vec();
            assert!(template.push(&mut out, from, &RENEWED));
            assert_eq!(out[6..], expected[from..]);
        }
        // A client can renew the renewed Lease again: the template also matches a body that has the values of the first
        // renewal.
        renewed.spec.renew_time = STORED.renew_time;
        let again = encode(Format::Json, &renewed, RENEWED.version);
        assert_eq!(template.match_body(&RENEWED, &again, || true), STORED.renew_time);
        assert_eq!(template.match_body(&STORED, &again, || true), None, "of another version");
    }

    #[test]
    fn values_that_do_not_fit_the_template_are_refused() {
        let template = Template::new(Format::Json, &lease(), STORED);
        let cases = [
            ("a digit more", Values { version: ResourceVersion(100_000), ..RENEWED }),
            ("no time", Values { renew_time: None, ..RENEWED }),
            ("a time that is null", Values { renew_time: Some(MicroTime(-62_135_596_800_000_000)), ..RENEWED }),
            ("a year of five digits", Values { renew_time: Some(MicroTime(253_402_300_800_000_000)), ..RENEWED }),
            ("no manager", Values { managed_time: None, ..RENEWED }),
            ("a manager's time that is null", Values { managed_time: Some(Time(-62_135_596_800)), ..RENEWED }),
        ];
        for (what, values) in cases {
            let mut out = b"before".to_vec();
            assert!(!template.push(&mut out, 0, &values), "{what}");
            assert_eq!(out, b"before", "{what}");
        }
    }

    #[test]
    fn a_body_with_any_other_change_is_not_a_renewal() {
        let stored = encode(Format::Json, &lease(), STORED.version);
        let template = Template::new(Format::Json, &lease(), STORED);
        for at in 0..stored.len() - 1 {
            let mut sent = stored.clone();
            // This change turns a digit into another character, so that a `renewTime` becomes invalid.
            sent[at] ^= 0x50;
            assert_eq!(template.match_body(&STORED, &sent, || true), None, "byte {at}");
            sent.remove(at);
            assert_eq!(template.match_body(&STORED, &sent, || true), None);
        }
    }
}
