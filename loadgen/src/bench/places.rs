//! The byte ranges of some fields in an encoded Lease, in JSON or protobuf.

use std::ops::Range;

/// The byte ranges of the fields of a Lease that a bench compares or overwrites.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Places {
    /// Range from the name to the resourceVersion. Namespace and UID are between them.
    pub(super) identity: Range<usize>,
    pub(super) version: Range<usize>,
    pub(super) renewed: Range<usize>,
}
