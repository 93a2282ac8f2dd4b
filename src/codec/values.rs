//! The three values in which the states of a Lease differ that are renewals of one, and how bytes are compared and
//! written at the places where they stand in an encoding.

use crate::resource::ResourceVersion;
use crate::timestamp::{MicroTime, Time};

/// What differs between the states of a Lease that are renewals of one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Values {
    /// `metadata.resourceVersion`
    pub version: ResourceVersion,
    /// `spec.renewTime`
    pub renew_time: Option<MicroTime>,
    /// The time of the last entry of `managedFields`; none if there is no entry, or it has no time.
    pub managed_time: Option<Time>,
}

/// Whether `body` has `text` at `at`.
#[inline]
pub(super) fn has_at(body: &[u8], at: usize, text: &[u8]) -> bool {
    body.get(at..at + text.len()).is_some_and(|own| own == text)
}

/// Writes `text` over what is at `at`; whether there was as much.
#[inline]
#[must_use]
pub(super) fn put_at(out: &mut [u8], at: usize, text: &[u8]) -> bool {
    let place = out.get_mut(at..at + text.len());
    place.map(|place| place.copy_from_slice(text)).is_some()
}
