//! Names of Lease, the only resource, in each version of its API group; versions of `meta.k8s.io`; and
//! [`ResourceVersion`].

use std::fmt;

/// API group of the only resource.
pub const GROUP: &str = "coordination.k8s.io";
/// The preferred version of [`GROUP`].
pub const VERSION: &str = "v1";
/// API group of the canary, a test APIService. The command `takeover` creates the canary for a moment before it moves
/// the Leases. By it, the command finds out whether each kube-apiserver can forward requests to this server.
pub const CANARY_GROUP: &str = "canary.coordination-apiserver.io";
/// `apiVersion` of [`CANARY_GROUP`]: group and version.
pub const CANARY_API_VERSION: &str = "canary.coordination-apiserver.io/v1";
/// `apiVersion` of Leases in the preferred version: group and version.
pub const API_VERSION: &str = "coordination.k8s.io/v1";
/// `kind` of the resource.
pub const KIND: &str = "Lease";
/// `kind` of a list.
pub const LIST_KIND: &str = "LeaseList";
/// The resource's name in paths and in most error messages.
pub const RESOURCE: &str = "leases";

/// Namespace of the nodes' heartbeats.
pub const NODE_LEASE_NAMESPACE: &str = "kube-node-lease";

/// Namespaces of the cluster itself. Usually only components of the cluster may write there. So an ordinary Lease in
/// these namespaces does not count towards the quota of `--lease-quota-bytes`. A larger Lease counts only in part
/// (`limits::METERED_BYTES_MIN`).
pub const CLUSTER_NAMESPACES: [&str; 2] = [NODE_LEASE_NAMESPACE, "kube-system"];

/// Splits `apiVersion` into group and version. Returns `None` if `apiVersion` contains two slashes.
#[must_use]
pub fn group_and_version(api_version: &str) -> Option<(&str, &str)> {
    match api_version.split_once('/') {
        None => Some(("", api_version)),
        Some((_, version)) if version.contains('/') => None,
        parts => parts,
    }
}

/// A version of [`GROUP`]. Each Lease is served in every version, whatever version a client wrote it in. All versions
/// have the same fields, so a Lease is stored once. Only its `apiVersion` depends on the requested version.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum ApiVersion {
    /// `v1`, the version in which Leases are stored.
    #[default]
    V1,
    /// `v1beta1`, for old clients.
    V1Beta1,
}

impl ApiVersion {
    /// All versions, the preferred one first.
    pub const ALL: [Self; 2] = [Self::V1, Self::V1Beta1];

    /// Returns the version called `name`.
    #[must_use]
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|version| version.name() == name)
    }

    /// Returns the name of the version, such as `v1`.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::V1 => VERSION,
            Self::V1Beta1 => "v1beta1",
        }
    }

    /// Returns group and version, as in `apiVersion`.
    #[must_use]
    pub const fn group_version(self) -> &'static str {
        match self {
            Self::V1 => API_VERSION,
            Self::V1Beta1 => "coordination.k8s.io/v1beta1",
        }
    }
}

/// A version of `meta.k8s.io`, the group of `Table` and `PartialObjectMetadata`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum MetaVersion {
    /// `v1`
    V1,
    /// `v1beta1`
    V1Beta1,
}

impl MetaVersion {
    /// Returns the `apiVersion` of the objects.
    #[must_use]
    pub fn api_version(self) -> &'static str {
        match self {
            Self::V1 => "meta.k8s.io/v1",
            Self::V1Beta1 => "meta.k8s.io/v1beta1",
        }
    }
}

/// Exclusive upper bound of a `resourceVersion` from kube-apiserver's built-in storage. etcd revisions count from 1
/// and would need a thousand years to reach this bound. A `resourceVersion` of this server is far above the bound,
/// since the first one is a wall-clock time in microseconds.
pub const BUILT_IN_VERSIONS_END: u64 = 1 << 49;

/// The API's `resourceVersion`. Each change of a Lease takes the next number. The first number of a new store is the
/// time by the wall clock, in microseconds since the epoch.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ResourceVersion(pub u64);

impl fmt::Display for ResourceVersion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}
