//! Discovery documents: which groups, versions and resources are served (Kubernetes, "API discovery").

use super::envelope::put_body;
use super::sink::{SHORT, Sink};

/// One resource of a version.
#[derive(Clone, Copy, Debug)]
pub struct ApiResource<'a> {
    /// Plural name, as in paths.
    pub name: &'a str,
    /// Singular name.
    pub singular_name: &'a str,
    /// Whether its objects are in namespaces.
    pub namespaced: bool,
    /// Kind of its objects.
    pub kind: &'a str,
    /// What can be done with it.
    pub verbs: &'a [&'a str],
    /// Tells whether two versions are stored alike.
    pub storage_version_hash: &'a str,
}

/// A group and the names of its versions, the preferred one first.
#[derive(Clone, Copy, Debug)]
pub struct ApiGroup<'a> {
    /// Name of the group.
    pub name: &'a str,
    /// Its versions.
    pub versions: &'a [&'a str],
}

/// Appends an `APIResourceList`.
pub fn encode_api_resource_list_into(out: &mut Vec<u8>, group_version: &str, resources: &[ApiResource<'_>]) {
    put_body(out, "v1", "APIResourceList", |out| {
        out.put_bytes(1, group_version.as_bytes());
        for resource in resources {
            out.put_message(2, SHORT, |out| put_resource(out, resource));
        }
    });
}

/// Appends an `APIGroup`.
pub fn encode_api_group_into(out: &mut Vec<u8>, group: &ApiGroup<'_>) {
    put_body(out, "v1", "APIGroup", |out| put_group(out, group));
}

/// Appends an `APIGroupList`.
pub fn encode_api_group_list_into(out: &mut Vec<u8>, groups: &[ApiGroup<'_>]) {
    put_body(out, "v1", "APIGroupList", |out| {
        for group in groups {
            out.put_message(1, SHORT, |out| put_group(out, group));
        }
    });
}

fn put_resource<S: Sink>(out: &mut S, resource: &ApiResource<'_>) {
    out.put_bytes(1, resource.name.as_bytes());
    out.put_integer(2, resource.namespaced.into());
    out.put_bytes(3, resource.kind.as_bytes());
    out.put_message(4, SHORT, |out| {
        for verb in resource.verbs {
            out.put_bytes(1, verb.as_bytes());
        }
    });
    out.put_bytes(6, resource.singular_name.as_bytes());
    // Group and version are those of the list.
    out.put_bytes(8, b"");
    out.put_bytes(9, b"");
    out.put_bytes(10, resource.storage_version_hash.as_bytes());
}

fn put_group<S: Sink>(out: &mut S, group: &ApiGroup<'_>) {
    out.put_bytes(1, group.name.as_bytes());
    for version in group.versions {
        out.put_message(2, SHORT, |out| put_version(out, group.name, version));
    }
    let preferred = group.versions.first().copied().unwrap_or_default();
    out.put_message(3, SHORT, |out| put_version(out, group.name, preferred));
}

fn put_version<S: Sink>(out: &mut S, group: &str, version: &str) {
    out.put_message(1, SHORT, |out| {
        out.put(group.as_bytes());
        out.put(b"/");
        out.put(version.as_bytes());
    });
    out.put_bytes(2, version.as_bytes());
}
