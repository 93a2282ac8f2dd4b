//! The group, its versions and its resource, in the three forms that clients ask for: one document a level, and
//! aggregated, v2 and v2beta1 (Kubernetes, "API discovery"). Fields stand in the order in which Go writes them.

use super::document::Document;
use crate::lease::{ApiVersion, GROUP, KIND, RESOURCE};
use serde::Serialize;

const SINGULAR: &str = "lease";
const VERBS: [&str; 8] = ["create", "delete", "deletecollection", "get", "list", "patch", "update", "watch"];
/// That of the built-in API, since what is stored is the same.
const STORAGE_VERSION_HASH: &str = "gqkMMb/YqFM=";

/// `/apis`
pub(super) fn group_list() -> Document {
    document(&GroupList { kind: "APIGroupList", api_version: "v1", groups: [Group::whole()] })
}

/// `/apis/coordination.k8s.io`
pub(super) fn group() -> Document {
    document(&TypedGroup { kind: "APIGroup", api_version: "v1", group: Group::whole() })
}

/// `/apis/coordination.k8s.io/` and a version.
pub(super) fn resource_list(version: ApiVersion) -> Document {
    let resource = Resource {
        name: RESOURCE,
        singular_name: SINGULAR,
        namespaced: true,
        kind: KIND,
        verbs: VERBS,
        storage_version_hash: STORAGE_VERSION_HASH,
    };
    document(&ResourceList {
        kind: "APIResourceList",
        api_version: "v1",
        group_version: version.group_version(),
        resources: [resource],
    })
}

/// `/api`: no version of the group without a name is served.
pub(super) fn legacy_versions() -> Document {
    Document::new("{\"kind\":\"APIVersions\",\"versions\":[],\"serverAddressByClientCIDRs\":[]}\n")
}

/// `/apis` aggregated, in a version of `apidiscovery.k8s.io`.
pub(super) fn aggregated(api_version: &str) -> Document {
    let versions = ApiVersion::ALL.into_iter().map(|version| VersionDiscovery {
        version: version.name(),
        resources: [ResourceDiscovery {
            resource: RESOURCE,
            // Group and version are those around it; kube-apiserver leaves them empty as well.
            response_kind: ResponseKind { group: "", version: "", kind: KIND },
            scope: "Namespaced",
            singular_resource: SINGULAR,
            verbs: VERBS,
        }],
        freshness: "Current",
    });
    let group = GroupDiscovery { metadata: Name { name: GROUP }, versions: versions.collect() };
    aggregated_of(api_version, vec![group])
}

/// `/api` aggregated.
pub(super) fn aggregated_legacy(api_version: &str) -> Document {
    aggregated_of(api_version, Vec::new())
}

fn aggregated_of(api_version: &str, items: Vec<GroupDiscovery>) -> Document {
    document(&GroupDiscoveryList { kind: "APIGroupDiscoveryList", api_version, metadata: Empty {}, items })
}

/// JSON and a line feed, as Go's encoder ends it.
fn document(value: &impl Serialize) -> Document {
    let mut json = serde_json::to_vec(value).expect("strings and lists of them have a JSON form");
    json.push(b'\n');
    Document::new(json)
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct GroupList {
    kind: &'static str,
    api_version: &'static str,
    groups: [Group; 1],
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct TypedGroup {
    kind: &'static str,
    api_version: &'static str,
    #[serde(flatten)]
    group: Group,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Group {
    name: &'static str,
    versions: Vec<GroupVersionForDiscovery>,
    preferred_version: GroupVersionForDiscovery,
}

impl Group {
    fn whole() -> Self {
        let of = |served: ApiVersion| GroupVersionForDiscovery {
            group_version: served.group_version(),
            version: served.name(),
        };
        let versions = ApiVersion::ALL;
        Self { name: GROUP, versions: versions.map(of).into(), preferred_version: of(versions[0]) }
    }
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct GroupVersionForDiscovery {
    group_version: &'static str,
    version: &'static str,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct ResourceList {
    kind: &'static str,
    api_version: &'static str,
    group_version: &'static str,
    resources: [Resource; 1],
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Resource {
    name: &'static str,
    singular_name: &'static str,
    namespaced: bool,
    kind: &'static str,
    verbs: [&'static str; VERBS.len()],
    storage_version_hash: &'static str,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct GroupDiscoveryList<'a> {
    kind: &'static str,
    api_version: &'a str,
    metadata: Empty,
    items: Vec<GroupDiscovery>,
}

#[derive(Serialize)]
struct Empty {}

#[derive(Serialize)]
struct GroupDiscovery {
    metadata: Name,
    versions: Vec<VersionDiscovery>,
}

#[derive(Serialize)]
struct Name {
    name: &'static str,
}

#[derive(Serialize)]
struct VersionDiscovery {
    version: &'static str,
    resources: [ResourceDiscovery; 1],
    freshness: &'static str,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct ResourceDiscovery {
    resource: &'static str,
    response_kind: ResponseKind,
    scope: &'static str,
    singular_resource: &'static str,
    verbs: [&'static str; VERBS.len()],
}

#[derive(Serialize)]
struct ResponseKind {
    group: &'static str,
    version: &'static str,
    kind: &'static str,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn documents_are_kube_apiservers_to_the_byte() {
        assert_eq!(
            group().body,
            "{\"kind\":\"APIGroup\",\"apiVersion\":\"v1\",\"name\":\"coordination.k8s.io\",\"versions\":[{\"groupVersion\":\"coordination.k8s.io/v1\",\"version\":\"v1\"},{\"groupVersion\":\"coordination.k8s.io/v1beta1\",\"version\":\"v1beta1\"}],\"preferredVersion\":{\"groupVersion\":\"coordination.k8s.io/v1\",\"version\":\"v1\"}}\n"
        );
        assert_eq!(
            resource_list(ApiVersion::V1).body,
            "{\"kind\":\"APIResourceList\",\"apiVersion\":\"v1\",\"groupVersion\":\"coordination.k8s.io/v1\",\"resources\":[{\"name\":\"leases\",\"singularName\":\"lease\",\"namespaced\":true,\"kind\":\"Lease\",\"verbs\":[\"create\",\"delete\",\"deletecollection\",\"get\",\"list\",\"patch\",\"update\",\"watch\"],\"storageVersionHash\":\"gqkMMb/YqFM=\"}]}\n"
        );
        assert_eq!(
            aggregated("apidiscovery.k8s.io/v2").body,
            "{\"kind\":\"APIGroupDiscoveryList\",\"apiVersion\":\"apidiscovery.k8s.io/v2\",\"metadata\":{},\"items\":[{\"metadata\":{\"name\":\"coordination.k8s.io\"},\"versions\":[{\"version\":\"v1\",\"resources\":[{\"resource\":\"leases\",\"responseKind\":{\"group\":\"\",\"version\":\"\",\"kind\":\"Lease\"},\"scope\":\"Namespaced\",\"singularResource\":\"lease\",\"verbs\":[\"create\",\"delete\",\"deletecollection\",\"get\",\"list\",\"patch\",\"update\",\"watch\"]}],\"freshness\":\"Current\"},{\"version\":\"v1beta1\",\"resources\":[{\"resource\":\"leases\",\"responseKind\":{\"group\":\"\",\"version\":\"\",\"kind\":\"Lease\"},\"scope\":\"Namespaced\",\"singularResource\":\"lease\",\"verbs\":[\"create\",\"delete\",\"deletecollection\",\"get\",\"list\",\"patch\",\"update\",\"watch\"]}],\"freshness\":\"Current\"}]}]}\n"
        );
        assert_eq!(
            aggregated_legacy("apidiscovery.k8s.io/v2beta1").body,
            "{\"kind\":\"APIGroupDiscoveryList\",\"apiVersion\":\"apidiscovery.k8s.io/v2beta1\",\"metadata\":{},\"items\":[]}\n"
        );
    }
}
