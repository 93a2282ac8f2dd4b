//! Encodes discovery documents as protobuf (`generated.proto` of `k8s.io/apimachinery/pkg/apis/meta/v1` and
//! `k8s.io/api/apidiscovery`).

use super::envelope::put_body;
use super::meta::{put_list_meta, put_object_meta};
use super::sink::{LONG, SHORT, Sink};
use crate::codec::discovery::{
    Group, GroupDiscovery, GroupDiscoveryList, GroupList, GroupVersion, LegacyVersions, Resource, ResourceDiscovery,
    ResourceList, VersionDiscovery,
};
use crate::codec::list_meta::ListMeta;
use crate::lease::ObjectMeta;

/// A discovery document that can be encoded as protobuf.
pub trait DiscoveryMessage {
    /// Appends the message, without the envelope.
    fn push(&self, out: &mut Vec<u8>);
}

/// Appends the message of `document`, enclosed in its envelope.
pub fn encode_discovery_into(out: &mut Vec<u8>, api_version: &str, kind: &str, document: &dyn DiscoveryMessage) {
    put_body(out, api_version, kind, |out| document.push(out));
}

impl DiscoveryMessage for LegacyVersions {
    fn push(&self, _: &mut Vec<u8>) {
        // All lists of this message are empty, so the message has no bytes.
    }
}

impl DiscoveryMessage for GroupList {
    fn push(&self, out: &mut Vec<u8>) {
        for group in &self.groups {
            out.put_message(1, SHORT, |out| group.push(out));
        }
    }
}

impl DiscoveryMessage for Group {
    fn push(&self, out: &mut Vec<u8>) {
        out.put_bytes(1, self.name.as_bytes());
        for version in &self.versions {
            out.put_message(2, SHORT, |out| put_version(out, version));
        }
        out.put_message(3, SHORT, |out| put_version(out, &self.preferred_version));
    }
}

fn put_version<S: Sink>(out: &mut S, version: &GroupVersion) {
    out.put_bytes(1, version.group_version.as_bytes());
    out.put_bytes(2, version.version.as_bytes());
}

impl DiscoveryMessage for ResourceList {
    fn push(&self, out: &mut Vec<u8>) {
        out.put_bytes(1, self.group_version.as_bytes());
        for resource in &self.resources {
            out.put_message(2, SHORT, |out| put_resource(out, resource));
        }
    }
}

fn put_resource<S: Sink>(out: &mut S, resource: &Resource) {
    out.put_bytes(1, resource.name.as_bytes());
    out.put_integer(2, resource.namespaced.into());
    out.put_bytes(3, resource.kind.as_bytes());
    out.put_message(4, SHORT, |out| {
        for verb in resource.verbs {
            out.put_bytes(1, verb.as_bytes());
        }
    });
    out.put_bytes(6, resource.singular_name.as_bytes());
    // An empty group and version mean those of the list.
    out.put_bytes(8, b"");
    out.put_bytes(9, b"");
    out.put_bytes(10, resource.storage_version_hash.as_bytes());
}

impl DiscoveryMessage for GroupDiscoveryList {
    fn push(&self, out: &mut Vec<u8>) {
        out.put_message(1, SHORT, |out| put_list_meta(out, &ListMeta::default()));
        for group in &self.items {
            out.put_message(2, LONG, |out| put_group_discovery(out, group));
        }
    }
}

fn put_group_discovery<S: Sink>(out: &mut S, group: &GroupDiscovery) {
    let meta = ObjectMeta { name: group.metadata.name.into(), ..ObjectMeta::default() };
    out.put_message(1, SHORT, |out| put_object_meta(out, &meta, None));
    for version in &group.versions {
        out.put_message(2, LONG, |out| put_version_discovery(out, version));
    }
}

fn put_version_discovery<S: Sink>(out: &mut S, version: &VersionDiscovery) {
    out.put_bytes(1, version.version.as_bytes());
    for resource in &version.resources {
        out.put_message(2, LONG, |out| put_resource_discovery(out, resource));
    }
    out.put_bytes(3, version.freshness.as_bytes());
}

fn put_resource_discovery<S: Sink>(out: &mut S, resource: &ResourceDiscovery) {
    let kind = &resource.response_kind;
    out.put_bytes(1, resource.resource.as_bytes());
    out.put_message(2, SHORT, |out| {
        out.put_bytes(1, kind.group.as_bytes());
        out.put_bytes(2, kind.version.as_bytes());
        out.put_bytes(3, kind.kind.as_bytes());
    });
    out.put_bytes(3, resource.scope.as_bytes());
    out.put_bytes(4, resource.singular_resource.as_bytes());
    for verb in resource.verbs {
        out.put_bytes(5, verb.as_bytes());
    }
}
