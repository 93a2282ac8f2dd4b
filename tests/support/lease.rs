//! Leases and their paths.

use serde_json::{Value, json};

/// Path of a namespace's Leases.
pub(crate) fn collection(namespace: &str) -> String {
    format!("/apis/coordination.k8s.io/v1/namespaces/{namespace}/leases")
}

/// Path of one Lease.
pub(crate) fn path(namespace: &str, name: &str) -> String {
    format!("{}/{name}", collection(namespace))
}

/// A Lease to create.
pub(crate) fn new(name: &str) -> String {
    json!({
        "apiVersion": "coordination.k8s.io/v1",
        "kind": "Lease",
        "metadata": { "name": name },
        "spec": { "holderIdentity": "node-a", "leaseDurationSeconds": 40, "leaseTransitions": 0 },
    })
    .to_string()
}

/// `metadata.resourceVersion` of an object or a list.
///
/// # Panics
/// If it has none.
#[track_caller]
pub(crate) fn version(object: &Value) -> u64 {
    let version = object["metadata"]["resourceVersion"].as_str().and_then(|text| text.parse().ok());
    version.unwrap_or_else(|| panic!("no metadata.resourceVersion: {object}"))
}

/// `metadata.name` of an object.
///
/// # Panics
/// If it has none.
#[track_caller]
pub(crate) fn name(object: &Value) -> &str {
    object["metadata"]["name"].as_str().unwrap_or_else(|| panic!("no metadata.name: {object}"))
}

/// `spec.leaseTransitions` of a Lease; 0 if it has none.
pub(crate) fn transitions(object: &Value) -> i64 {
    object["spec"]["leaseTransitions"].as_i64().unwrap_or_default()
}
