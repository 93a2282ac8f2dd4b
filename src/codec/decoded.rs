//! What is read from a body, whichever format it came in.

use super::warnings::FieldWarnings;
use crate::lease::Lease;
use crate::resource::ApiVersion;
use compact_str::CompactString;

/// A Lease as it came, and what a strict reading minds about it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DecodedLease {
    /// The object.
    pub lease: Lease,
    /// The version that it is of, which need not be that of the path.
    pub version: ApiVersion,
    /// How many entries its metadata came with. If there are too many not all are in the object.
    pub entries: usize,
    /// Unknown and repeated fields.
    pub warnings: FieldWarnings,
}

/// What a client asks of a deletion, decoded and not yet checked.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DeleteOptions {
    /// Seconds before the object goes; the Lease API has no use for it.
    pub grace_period_seconds: Option<i64>,
    /// What must hold of the object. Options with empty preconditions differ from options without any.
    pub preconditions: Option<Preconditions>,
    /// The older way to say `propagation_policy`.
    pub orphan_dependents: Option<bool>,
    /// What becomes of dependents.
    pub propagation_policy: Option<CompactString>,
    /// Stages not to run; `All` is the only one there is.
    pub dry_run: Vec<CompactString>,
    /// `ignoreStoreReadErrorWithClusterBreakingPotential`: delete what cannot be read.
    pub ignore_store_read_error: Option<bool>,
}

/// Preconditions of a `DeleteOptions`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Preconditions {
    /// UID of the object.
    pub uid: Option<CompactString>,
    /// Version of the object.
    pub resource_version: Option<CompactString>,
}

impl DeleteOptions {
    /// Where Go has the kind registered, for no version in particular: any version will do, and clients send `v1`,
    /// `meta.k8s.io/v1`, and that of the object.
    pub(super) const SCHEME: &str = "pkg/runtime/scheme.go:111";
}
