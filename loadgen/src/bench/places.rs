//! Byte ranges of the parts of an encoded Lease, in either media type.

use std::ops::Range;

/// Byte ranges of the parts of a body that a bench compares or overwrites.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Places {
    /// The name and all that follows it up to the version: namespace and UID.
    pub(super) identity: Range<usize>,
    pub(super) version: Range<usize>,
    pub(super) renewed: Range<usize>,
}
