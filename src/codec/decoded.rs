//! The result of decoding a body, in any format.

use super::warnings::FieldWarnings;
use crate::lease::Lease;
use crate::resource::ApiVersion;
use compact_str::CompactString;

/// A Lease as the client sent it, with the complaints of strict decoding.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DecodedLease {
    /// The object.
    pub lease: Lease,
    /// API version of the object. It may differ from the API version in the path.
    pub version: ApiVersion,
    /// Number of metadata entries in the body. If the number exceeds the limit, the object has only some of these
    /// entries.
    pub entries: usize,
    /// Unknown and repeated fields.
    pub warnings: FieldWarnings,
}

/// Options of a deletion, decoded but not yet validated.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DeleteOptions {
    /// Grace period, in seconds; unused by the Lease API.
    pub grace_period_seconds: Option<i64>,
    /// Preconditions on the object. An empty `preconditions` object differs from an absent one.
    pub preconditions: Option<Preconditions>,
    /// The deprecated form of `propagation_policy`.
    pub orphan_dependents: Option<bool>,
    /// What happens to the dependents.
    pub propagation_policy: Option<CompactString>,
    /// Stages that the dry run skips. Only `All` is valid.
    pub dry_run: Vec<CompactString>,
    /// `ignoreStoreReadErrorWithClusterBreakingPotential`: delete an object that cannot be read.
    pub ignore_store_read_error: Option<bool>,
}

/// Preconditions of a `DeleteOptions`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Preconditions {
    /// UID of the object.
    pub uid: Option<CompactString>,
    /// `resourceVersion` of the object.
    pub resource_version: Option<CompactString>,
}

impl DeleteOptions {
    /// Scheme that kube-apiserver's errors name for `DeleteOptions`. Any API version is accepted: clients send `v1`,
    /// `meta.k8s.io/v1`, or the API version of the object.
    pub(super) const SCHEME: &str = "pkg/runtime/scheme.go:111";
}
