//! Discovery documents as objects: the groups, versions and resources served (Kubernetes, "API discovery").
//!
//! The fields are in the order of Go's structs. Serde encodes the objects as JSON, and [`super::protobuf`] as protobuf.

use serde::Serialize;

/// `APIGroup`: a group and its versions, the preferred version first.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Group {
    /// Name of the group.
    pub name: &'static str,
    /// Versions of the group that the server serves.
    pub versions: Vec<GroupVersion>,
    /// The preferred version: the first element of `versions`.
    pub preferred_version: GroupVersion,
}

/// `GroupVersionForDiscovery`: one version of a group.
#[derive(Clone, Copy, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct GroupVersion {
    /// Group and version, in the form of `apiVersion`.
    pub group_version: &'static str,
    /// The version, without the group.
    pub version: &'static str,
}

/// `APIGroupList`: all groups and their versions.
#[derive(Clone, Debug, Serialize)]
pub struct GroupList {
    /// All groups.
    pub groups: Vec<Group>,
}

/// `APIResourceList`: the resources of one API version.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ResourceList {
    /// Group and version, in the form of `apiVersion`.
    pub group_version: &'static str,
    /// Resources that the server serves in this version.
    pub resources: Vec<Resource>,
}

/// `APIResource`: one resource of an API version.
#[derive(Clone, Copy, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Resource {
    /// Plural name of the resource, as in paths.
    pub name: &'static str,
    /// Singular name of the resource.
    pub singular_name: &'static str,
    /// Whether objects of the resource have a namespace.
    pub namespaced: bool,
    /// Kind of the resource's objects.
    pub kind: &'static str,
    /// Verbs that the resource supports.
    pub verbs: &'static [&'static str],
    /// Hash of the API version in which the server stores objects. API versions that are stored in the same version
    /// have the same hash.
    pub storage_version_hash: &'static str,
}

/// `APIVersions`: the versions of the core group, whose name is empty.
#[derive(Clone, Debug, Default, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct LegacyVersions {
    /// Versions of the core group that the server serves: none.
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

/// `APIGroupDiscovery`: one group with the resources of its versions.
#[derive(Clone, Debug, Serialize)]
pub struct GroupDiscovery {
    /// Metadata with the name of the group.
    pub metadata: Name,
    /// Versions that the server serves, the preferred version first.
    pub versions: Vec<VersionDiscovery>,
}

/// Metadata with only a name.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Name {
    /// `name`
    pub name: &'static str,
}

/// `APIVersionDiscovery`: one version of a group, with its resources.
#[derive(Clone, Debug, Serialize)]
pub struct VersionDiscovery {
    /// The version, without the group.
    pub version: &'static str,
    /// Resources that the server serves in this version.
    pub resources: Vec<ResourceDiscovery>,
    /// `Current`, or `Stale` for a version whose server did not respond.
    pub freshness: &'static str,
}

/// `APIResourceDiscovery`: one resource of a version.
#[derive(Clone, Copy, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ResourceDiscovery {
    /// Plural name of the resource, as in paths.
    pub resource: &'static str,
    /// Type of the objects in responses.
    pub response_kind: GroupVersionKind,
    /// `Namespaced` or `Cluster`.
    pub scope: &'static str,
    /// Singular name of the resource.
    pub singular_resource: &'static str,
    /// Verbs that the resource supports.
    pub verbs: &'static [&'static str],
}

/// A type of objects. An empty group or version means the group and version that enclose the type in the document.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct GroupVersionKind {
    /// Group of the type.
    pub group: &'static str,
    /// Version of the type.
    pub version: &'static str,
    /// Kind of the type.
    pub kind: &'static str,
}
