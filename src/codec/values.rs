//! The three values that a renewal changes, and helpers to compare and write such values in an encoding.

use crate::resource::ResourceVersion;
use crate::timestamp::{MicroTime, Time};

/// The three values of a Lease that a renewal changes: its `resourceVersion`, its `renewTime`, and a time in its
/// `managedFields`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Values {
    /// `metadata.resourceVersion`
    pub version: ResourceVersion,
    /// `spec.renewTime`
    pub renew_time: Option<MicroTime>,
    /// Time of the last entry of `managedFields`. `None` if there is no entry, or if the last entry has no time.
    pub managed_time: Option<Time>,
}

/// Whether `body` contains `text` at the offset `at`.
#[inline]
pub(super) fn has_at(body: &[u8], at: usize, text: &[u8]) -> bool {
    body.get(at..at + text.len()).is_some_and(|own| own == text)
}

/// Overwrites the bytes of `out` at the offset `at` with `text`. Returns whether `text` fits into `out`.
#[inline]
#[must_use]
pub(super) fn put_at(out: &mut [u8], at: usize, text: &[u8]) -> bool {
    let place = out.get_mut(at..at + text.len());
    place.map(|place| place.copy_from_slice(text)).is_some()
}
