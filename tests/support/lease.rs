//! Leases and their paths.

use serde_json::{Value, json};

/// Returns the path of a namespace's Leases.
pub(crate) fn collection(namespace: &str) -> String {
    format!("/apis/coordination.k8s.io/v1/namespaces/{namespace}/leases")
}

/// Returns the path of one Lease.
pub(crate) fn path(namespace: &str, name: &str) -> String {
    format!("{}/{name}", collection(namespace))
}

/// Builds a Lease to create.
pub(crate) fn new(name: &str) -> String {
    json!({
        "apiVersion": "coordination.k8s.io/v1",
        "kind": "Lease",
        "metadata": { "name": name },
        "spec": { "holderIdentity": "node-a", "leaseDurationSeconds": 40, "leaseTransitions": 0 },
    })
    .to_string()
}

/// Returns a Lease in the form of an item of a list: without `kind` and `apiVersion`.
///
/// # Panics
/// If the Lease names no kind.
#[track_caller]
pub(crate) fn item(lease: &Value) -> Value {
    let mut item = lease.clone();
    let fields = item.as_object_mut().expect("an object");
    assert!(fields.remove("kind").is_some() && fields.remove("apiVersion").is_some());
    item
}

/// Returns `metadata.resourceVersion` of an object or a list.
///
/// # Panics
/// If the object has none.
#[track_caller]
pub(crate) fn version(object: &Value) -> u64 {
    let version = object["metadata"]["resourceVersion"].as_str().and_then(|text| text.parse().ok());
    version.unwrap_or_else(|| panic!("no metadata.resourceVersion: {object}"))
}

/// Returns `metadata.name` of an object.
///
/// # Panics
/// If the object has none.
#[track_caller]
pub(crate) fn name(object: &Value) -> &str {
    object["metadata"]["name"].as_str().unwrap_or_else(|| panic!("no metadata.name: {object}"))
}

/// Returns `spec.leaseTransitions` of a Lease, or 0.
pub(crate) fn transitions(object: &Value) -> i64 {
    object["spec"]["leaseTransitions"].as_i64().unwrap_or_default()
}
