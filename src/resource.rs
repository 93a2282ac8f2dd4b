//! What the one resource is called, in each version of its group, the versions of the group of what is made of it, and
//! the number that orders its states.

use std::fmt;

/// API group of the one resource served here.
pub const GROUP: &str = "coordination.k8s.io";
/// The preferred version of [`GROUP`].
pub const VERSION: &str = "v1";
/// `apiVersion` of the objects: group and version.
pub const API_VERSION: &str = "coordination.k8s.io/v1";
/// `kind` of the object.
pub const KIND: &str = "Lease";
/// `kind` of a list of objects.
pub const LIST_KIND: &str = "LeaseList";
/// The resource's name in paths and in most error messages.
pub const RESOURCE: &str = "leases";

/// The namespace of the nodes' heartbeats.
pub const NODE_LEASE_NAMESPACE: &str = "kube-node-lease";

/// Namespaces of the cluster itself, into which nobody else may write as a rule: their Leases do not count towards the
/// quota.
pub const CLUSTER_NAMESPACES: [&str; 2] = [NODE_LEASE_NAMESPACE, "kube-system"];

/// A version of [`GROUP`] in which Leases are served, whichever one a client writes in. All have the same fields, so a
/// Lease is kept once, and only its `apiVersion` is told apart.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum ApiVersion {
    /// `v1`, in which Leases are kept.
    #[default]
    V1,
    /// `v1beta1`, for old clients.
    V1Beta1,
}

impl ApiVersion {
    /// All, the preferred one first.
    pub const ALL: [Self; 2] = [Self::V1, Self::V1Beta1];

    /// The version that paths name so.
    #[must_use]
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|version| version.name() == name)
    }

    /// Its name: `v1`.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::V1 => VERSION,
            Self::V1Beta1 => "v1beta1",
        }
    }

    /// Group and version, as `apiVersion` has them.
    #[must_use]
    pub const fn group_version(self) -> &'static str {
        match self {
            Self::V1 => API_VERSION,
            Self::V1Beta1 => "coordination.k8s.io/v1beta1",
        }
    }
}

/// Versions of `meta.k8s.io`, the group of what is made of any object.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum MetaVersion {
    /// `v1`
    V1,
    /// `v1beta1`
    V1Beta1,
}

impl MetaVersion {
    /// `apiVersion` of the objects.
    #[must_use]
    pub fn api_version(self) -> &'static str {
        match self {
            Self::V1 => "meta.k8s.io/v1",
            Self::V1Beta1 => "meta.k8s.io/v1beta1",
        }
    }
}

/// The first version that is no version of kube-apiserver's built-in storage. etcd counts from 1 and would need a
/// thousand years to get here. A table begins far above, at the wall clock.
pub const BUILT_IN_VERSIONS_END: u64 = 1 << 49;

/// Version of one state of the table: every change gets the next one. Starts from the wall clock in microseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ResourceVersion(pub u64);

impl fmt::Display for ResourceVersion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}
