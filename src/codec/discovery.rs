//! Discovery documents as objects: which groups, versions and resources are served (Kubernetes, "API discovery").
//!
//! Members stand in the order in which Go writes them. JSON is made by serde, protobuf by [`super::protobuf`].

use serde::Serialize;

/// `APIGroup`: a group and its versions, the preferred one first.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Group {
    /// Name of the group.
    pub name: &'static str,
    /// What is served of it.
    pub versions: Vec<GroupVersion>,
    /// The first of them.
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
    /// What is served of it.
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
    /// Whether its objects are in namespaces.
    pub namespaced: bool,
    /// Kind of its objects.
    pub kind: &'static str,
    /// What can be done with it.
    pub verbs: &'static [&'static str],
    /// Tells whether two versions are stored alike.
    pub storage_version_hash: &'static str,
}

/// `APIVersions`: the versions of the group without a name.
#[derive(Clone, Debug, Default, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct LegacyVersions {
    /// None are served.
    pub versions: [&'static str; 0],
    /// Where else the server can be reached: nowhere.
    #[serde(rename = "serverAddressByClientCIDRs")]
    pub server_addresses: [&'static str; 0],
}

/// `APIGroupDiscoveryList` of `apidiscovery.k8s.io`: all groups with all that is in them.
#[derive(Clone, Debug, Default, Serialize)]
pub struct GroupDiscoveryList {
    /// `metadata`, which is always empty.
    pub metadata: NoMetadata,
    /// All groups.
    pub items: Vec<GroupDiscovery>,
}

/// The metadata of a list that says nothing.
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub struct NoMetadata {}

/// `APIGroupDiscovery`
#[derive(Clone, Debug, Serialize)]
pub struct GroupDiscovery {
    /// Whose name is that of the group.
    pub metadata: Name,
    /// What is served of it, the preferred version first.
    pub versions: Vec<VersionDiscovery>,
}

/// The metadata of an object that has nothing but a name.
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
    /// What is served of it.
    pub resources: Vec<ResourceDiscovery>,
    /// `Current`, or `Stale` of what could not be asked for.
    pub freshness: &'static str,
}

/// `APIResourceDiscovery`
#[derive(Clone, Copy, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ResourceDiscovery {
    /// Plural name, as in paths.
    pub resource: &'static str,
    /// What is returned.
    pub response_kind: GroupVersionKind,
    /// `Namespaced` or `Cluster`.
    pub scope: &'static str,
    /// Singular name.
    pub singular_resource: &'static str,
    /// What can be done with it.
    pub verbs: &'static [&'static str],
}

/// Of a type whose group and version are those around it both are empty.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct GroupVersionKind {
    /// Group of the type.
    pub group: &'static str,
    /// Version of the type.
    pub version: &'static str,
    /// Its kind.
    pub kind: &'static str,
}
