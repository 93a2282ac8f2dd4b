//! The result of the decoding of a body, in any format.

use super::warnings::FieldWarnings;
use crate::lease::Lease;
use crate::resource::ApiVersion;
use compact_str::CompactString;

/// A Lease as the client sent it, with the complaints of strict decoding about the body.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DecodedLease {
    /// The Lease.
    pub lease: Lease,
    /// API version of the Lease in the body. It may differ from the API version in the path.
    pub version: ApiVersion,
    /// Number of metadata entries, such as labels, in the body. If this number exceeds
    /// [`METADATA_ENTRIES_MAX`](crate::limits::METADATA_ENTRIES_MAX), the server refuses the Lease, and `lease` may
    /// lack some of the entries.
    pub entries: usize,
    /// Complaints about unknown and repeated fields in the body.
    pub warnings: FieldWarnings,
}

/// Options of a deletion, decoded but not yet validated.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DeleteOptions {
    /// Grace period of the deletion, in seconds; unused by the Lease API.
    pub grace_period_seconds: Option<i64>,
    /// Preconditions on the Lease. If they are set, the server refuses `ignore_store_read_error`. Even an empty
    /// `preconditions` object counts as set.
    pub preconditions: Option<Preconditions>,
    /// The deprecated form of `propagation_policy`: whether the garbage collector retains the dependents.
    pub orphan_dependents: Option<bool>,
    /// What the garbage collector does with the dependents of the Lease: `Orphan`, `Background` or `Foreground`.
    pub propagation_policy: Option<CompactString>,
    /// Values of `dryRun`. The only valid value is `All`: the server checks the request, but deletes nothing.
    pub dry_run: Vec<CompactString>,
    /// `ignoreStoreReadErrorWithClusterBreakingPotential`: whether to delete an object that cannot be decoded.
    pub ignore_store_read_error: Option<bool>,
}

/// Preconditions of a deletion, in `DeleteOptions`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Preconditions {
    /// UID that the Lease must have.
    pub uid: Option<CompactString>,
    /// `resourceVersion` that the Lease must have.
    pub resource_version: Option<CompactString>,
}

impl DeleteOptions {
    /// The Go scheme that kube-apiserver names in its error about a body whose `kind` is neither empty nor
    /// `DeleteOptions`: `no kind "Pod" is registered for version "v1" in scheme "pkg/runtime/scheme.go:111"`. This
    /// server accepts any well-formed `apiVersion`, since clients send different values: `v1`, `meta.k8s.io/v1`, or the
    /// API version of the object.
    pub(super) const SCHEME: &str = "pkg/runtime/scheme.go:111";
}
