//! Discovery documents as objects: the groups, versions and resources served (Kubernetes, "API discovery").
//!
//! Fields are in the order of the Go types. Serde writes the JSON, [`super::protobuf`] the protobuf.

use serde::Serialize;

/// `APIGroup`: a group and its versions, the preferred version first.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Group {
    /// Name of the group.
    pub name: &'static str,
    /// Versions served.
    pub versions: Vec<GroupVersion>,
    /// The first of the versions.
    pub preferred_version: GroupVersion,
}

/// `GroupVersionForDiscovery`
#[derive(Clone, Copy, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct GroupVersion {
    /// Group and version, as in `apiVersion`.
    pub group_version: &'static str,
    /// The version alone.
    pub version: &'static str,
}

/// `APIGroupList`
#[derive(Clone, Debug, Serialize)]
pub struct GroupList {
    /// All groups.
    pub groups: Vec<Group>,
}

/// `APIResourceList`: the resources of one version.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ResourceList {
    /// Group and version, as in `apiVersion`.
    pub group_version: &'static str,
    /// Resources served.
    pub resources: Vec<Resource>,
}

/// `APIResource`
#[derive(Clone, Copy, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Resource {
    /// Plural name, as in paths.
    pub name: &'static str,
    /// Singular name.
    pub singular_name: &'static str,
    /// Whether objects of the resource have a namespace.
    pub namespaced: bool,
    /// Kind of its objects.
    pub kind: &'static str,
    /// Verbs supported.
    pub verbs: &'static [&'static str],
    /// Hash that is equal for versions with the same stored form.
    pub storage_version_hash: &'static str,
}

/// `APIVersions`: the versions of the core group, which has no name.
#[derive(Clone, Debug, Default, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct LegacyVersions {
    /// Versions served: none.
    pub versions: [&'static str; 0],
    /// Other addresses of the server: none.
    #[serde(rename = "serverAddressByClientCIDRs")]
    pub server_addresses: [&'static str; 0],
}

/// `APIGroupDiscoveryList` of `apidiscovery.k8s.io`: all groups with their resources.
#[derive(Clone, Debug, Default, Serialize)]
pub struct GroupDiscoveryList {
    /// `metadata`, which is always empty.
    pub metadata: NoMetadata,
    /// All groups.
    pub items: Vec<GroupDiscovery>,
}

/// Empty metadata of a list.
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub struct NoMetadata {}

/// `APIGroupDiscovery`
#[derive(Clone, Debug, Serialize)]
pub struct GroupDiscovery {
    /// Metadata with the group's name.
    pub metadata: Name,
    /// Versions served, the preferred version first.
    pub versions: Vec<VersionDiscovery>,
}

/// Metadata with only a name.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Name {
    /// `name`
    pub name: &'static str,
}

/// `APIVersionDiscovery`
#[derive(Clone, Debug, Serialize)]
pub struct VersionDiscovery {
    /// The version alone.
    pub version: &'static str,
    /// Resources served.
    pub resources: Vec<ResourceDiscovery>,
    /// `Current`, or `Stale` for a version whose server did not respond.
    pub freshness: &'static str,
}

/// `APIResourceDiscovery`
#[derive(Clone, Copy, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ResourceDiscovery {
    /// Plural name, as in paths.
    pub resource: &'static str,
    /// Type of the responses.
    pub response_kind: GroupVersionKind,
    /// `Namespaced` or `Cluster`.
    pub scope: &'static str,
    /// Singular name.
    pub singular_resource: &'static str,
    /// Verbs supported.
    pub verbs: &'static [&'static str],
}

/// A type. An empty group or version means that of the enclosing version.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct GroupVersionKind {
    /// Group of the type.
    pub group: &'static str,
    /// Version of the type.
    pub version: &'static str,
    /// Kind of the type.
    pub kind: &'static str,
}
