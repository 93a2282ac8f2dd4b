//! Renewals as bytes. A client that renews a Lease sends back what it got, with another `renewTime`; so where the body is
//! the stored encoding but for that time, nothing needs to be decoded, and the new encoding is the body with the new
//! version and the new time of its manager put in.
//!
//! [`Marks`] say where in an encoding these three stand. They are found once for all states of a Lease between which
//! nothing else changes, since none of the three changes its length: a state of which one would is none to mark.
//! Whether a renewal is one by the rules is not known here.

use crate::codec::{json, protobuf};
use crate::lease::{MicroTime, ResourceVersion, Time};
use crate::media_type::Format;

/// Where in the encoding of a Lease stands what a renewal changes. Places are bytes from the first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Marks {
    /// In JSON.
    Json(json::RenewalMarks),
    /// In protobuf.
    Protobuf(protobuf::RenewalMarks),
}

/// What the encoding is of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Marked {
    /// `resourceVersion`
    pub version: ResourceVersion,
    /// `spec.renewTime`, which is there.
    pub renew_time: MicroTime,
    /// The time of the last entry of `managedFields`; none if there is no entry.
    pub managed_time: Option<Time>,
}

impl Marks {
    /// Those of `encoding`, which is a whole body of ours. `None` if it is none in which something can be put in place.
    #[must_use]
    pub fn of(format: Format, encoding: &[u8], of: &Marked) -> Option<Self> {
        match format {
            Format::Json => json::RenewalMarks::of(encoding, of).map(Self::Json),
            Format::Protobuf => protobuf::RenewalMarks::of(encoding, of).map(Self::Protobuf),
            Format::Yaml => None,
        }
    }

    /// The `renewTime` in `body` if all else in it is as in `stored`, which these marks are of, and it is written as we
    /// would write it. It may be the same time.
    #[inline]
    #[must_use]
    pub fn renewed(&self, stored: &[u8], body: &[u8]) -> Option<MicroTime> {
        match self {
            Self::Json(marks) => marks.renewed(stored, body),
            Self::Protobuf(marks) => marks.renewed(stored, body),
        }
    }

    /// Appends the encoding of the renewed Lease to `out`, which is empty: `body`, of which [`Marks::renewed`] has told
    /// the time, with this version and this time. `false` if they cannot be put in; `out` is of no use then.
    #[inline]
    #[must_use]
    pub fn encode(&self, out: &mut Vec<u8>, body: &[u8], version: ResourceVersion, managed_time: Option<Time>) -> bool {
        match self {
            Self::Json(marks) => marks.encode(out, body, version, managed_time),
            Self::Protobuf(marks) => marks.encode(out, body, version, managed_time),
        }
    }
}

/// Writes the digits of `version` over those at `at`; whether there are as many.
#[inline]
pub(super) fn put_version(out: &mut [u8], at: u16, digits: u8, version: ResourceVersion) -> bool {
    let mut buffer = itoa::Buffer::new();
    let text = buffer.format(version.0).as_bytes();
    let place = out.get_mut(usize::from(at)..usize::from(at) + usize::from(digits));
    match place {
        Some(place) if place.len() == text.len() => place.copy_from_slice(text),
        _ => return false,
    }
    true
}
