//! Discovery documents: the list of API groups, the group `coordination.k8s.io`, the resources of each API version, and
//! the aggregated document of all these (Kubernetes, "API discovery").

use super::document::Discovery;
use crate::codec::discovery::{
    Group, GroupDiscovery, GroupDiscoveryList, GroupList, GroupVersion, GroupVersionKind, LegacyVersions, Name,
    Resource, ResourceDiscovery, ResourceList, VersionDiscovery,
};
use crate::resource::{ApiVersion, CANARY_API_VERSION, GROUP, KIND, RESOURCE};

const SINGULAR: &str = "lease";
const VERBS: &[&str] = &["create", "delete", "deletecollection", "get", "list", "patch", "update", "watch"];
/// `storageVersionHash` of kube-apiserver's built-in Lease API. This server also stores Leases in the API version `v1`,
/// so the hash is the same.
const STORAGE_VERSION_HASH: &str = "gqkMMb/YqFM=";

/// Returns the document of `/apis`.
pub(super) fn group_list() -> Discovery {
    Discovery::new("v1", "APIGroupList", &GroupList { groups: vec![whole_group()] })
}

/// Returns the document of `/apis/coordination.k8s.io`.
pub(super) fn group() -> Discovery {
    Discovery::new("v1", "APIGroup", &whole_group())
}

fn whole_group() -> Group {
    let of = |served: ApiVersion| GroupVersion { group_version: served.group_version(), version: served.name() };
    let versions = ApiVersion::ALL;
    Group { name: GROUP, versions: versions.map(of).into(), preferred_version: of(versions[0]) }
}

/// Returns the document of `/apis/coordination.k8s.io/{version}`.
pub(super) fn resource_list(version: ApiVersion) -> Discovery {
    let resource = Resource {
        name: RESOURCE,
        singular_name: SINGULAR,
        namespaced: true,
        kind: KIND,
        verbs: VERBS,
        storage_version_hash: STORAGE_VERSION_HASH,
    };
    let list = ResourceList { group_version: version.group_version(), resources: vec![resource] };
    Discovery::new("v1", "APIResourceList", &list)
}

/// Returns the document of the canary, an API without resources. The command `takeover` reads this document through
/// each kube-apiserver, to check that kube-apiserver can forward requests to this server.
pub(super) fn canary() -> Discovery {
    Discovery::new("v1", "APIResourceList", &ResourceList { group_version: CANARY_API_VERSION, resources: Vec::new() })
}

/// Returns the document of `/api`. The document is empty, since this server does not serve the core group.
pub(super) fn legacy_versions() -> Discovery {
    Discovery::new("", "APIVersions", &LegacyVersions::default())
}

/// Returns the aggregated document of `/apis`. `api_version` is a version of `apidiscovery.k8s.io`.
pub(super) fn aggregated(api_version: &str) -> Discovery {
    let resource = ResourceDiscovery {
        resource: RESOURCE,
        // An empty group and version mean those of the parent in the document. kube-apiserver leaves these fields empty
        // too.
        response_kind: GroupVersionKind { group: "", version: "", kind: KIND },
        scope: "Namespaced",
        singular_resource: SINGULAR,
        verbs: VERBS,
    };
    let versions = ApiVersion::ALL.into_iter().map(|version| VersionDiscovery {
        version: version.name(),
        resources: vec![resource],
        freshness: "Current",
    });
    let group = GroupDiscovery { metadata: Name { name: GROUP }, versions: versions.collect() };
    aggregated_of(api_version, vec![group])
}

/// Returns the aggregated document of `/api`. `api_version` is a version of `apidiscovery.k8s.io`.
pub(super) fn aggregated_legacy(api_version: &str) -> Discovery {
    aggregated_of(api_version, Vec::new())
}

fn aggregated_of(api_version: &str, items: Vec<GroupDiscovery>) -> Discovery {
    let list = GroupDiscoveryList { items, ..GroupDiscoveryList::default() };
    Discovery::new(api_version, "APIGroupDiscoveryList", &list)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::media_type::DiscoveryForm;

    fn json(document: &Discovery) -> &str {
        std::str::from_utf8(document.body(DiscoveryForm::default())).expect("UTF-8")
    }

    #[test]
    fn discovery_documents_match_kube_apiserver_byte_for_byte() {
        assert_eq!(
            json(&group()),
            "{\"kind\":\"APIGroup\",\"apiVersion\":\"v1\",\"name\":\"coordination.k8s.io\",\"versions\":[{\"groupVersion\":\"coordination.k8s.io/v1\",\"version\":\"v1\"},{\"groupVersion\":\"coordination.k8s.io/v1beta1\",\"version\":\"v1beta1\"}],\"preferredVersion\":{\"groupVersion\":\"coordination.k8s.io/v1\",\"version\":\"v1\"}}\n"
        );
        assert_eq!(
            json(&resource_list(ApiVersion::V1)),
            "{\"kind\":\"APIResourceList\",\"apiVersion\":\"v1\",\"groupVersion\":\"coordination.k8s.io/v1\",\"resources\":[{\"name\":\"leases\",\"singularName\":\"lease\",\"namespaced\":true,\"kind\":\"Lease\",\"verbs\":[\"create\",\"delete\",\"deletecollection\",\"get\",\"list\",\"patch\",\"update\",\"watch\"],\"storageVersionHash\":\"gqkMMb/YqFM=\"}]}\n"
        );
        assert_eq!(
            json(&aggregated("apidiscovery.k8s.io/v2")),
            "{\"kind\":\"APIGroupDiscoveryList\",\"apiVersion\":\"apidiscovery.k8s.io/v2\",\"metadata\":{},\"items\":[{\"metadata\":{\"name\":\"coordination.k8s.io\"},\"versions\":[{\"version\":\"v1\",\"resources\":[{\"resource\":\"leases\",\"responseKind\":{\"group\":\"\",\"version\":\"\",\"kind\":\"Lease\"},\"scope\":\"Namespaced\",\"singularResource\":\"lease\",\"verbs\":[\"create\",\"delete\",\"deletecollection\",\"get\",\"list\",\"patch\",\"update\",\"watch\"]}],\"freshness\":\"Current\"},{\"version\":\"v1beta1\",\"resources\":[{\"resource\":\"leases\",\"responseKind\":{\"group\":\"\",\"version\":\"\",\"kind\":\"Lease\"},\"scope\":\"Namespaced\",\"singularResource\":\"lease\",\"verbs\":[\"create\",\"delete\",\"deletecollection\",\"get\",\"list\",\"patch\",\"update\",\"watch\"]}],\"freshness\":\"Current\"}]}]}\n"
        );
        assert_eq!(
            json(&aggregated_legacy("apidiscovery.k8s.io/v2beta1")),
            "{\"kind\":\"APIGroupDiscoveryList\",\"apiVersion\":\"apidiscovery.k8s.io/v2beta1\",\"metadata\":{},\"items\":[]}\n"
        );
    }
}
