//! Where the parts of a Lease stand in its bytes, in either media type.

use std::ops::Range;

/// Where the parts of a body stand that change.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Places {
    /// The name, and what stands between it and the version: namespace and UID.
    pub(super) identity: Range<usize>,
    pub(super) version: Range<usize>,
    pub(super) renewed: Range<usize>,
}
