//! [`BuiltInLease`]: a Lease as kube-apiserver sends it.

use crate::resource::{API_VERSION, KIND};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::Value;

/// Implements [`kube::Resource`] for a type that represents a Lease. The fields in `$field` are the path to its
/// metadata.
macro_rules! impl_lease_resource {
    ($lease:ty, $($field:tt).+) => {
        impl kube::Resource for $lease {
            type DynamicType = ();
            type Scope = k8s_openapi::NamespaceResourceScope;

            fn kind((): &()) -> std::borrow::Cow<'_, str> {
                k8s_openapi::api::coordination::v1::Lease::kind(&())
            }

            fn group((): &()) -> std::borrow::Cow<'_, str> {
                k8s_openapi::api::coordination::v1::Lease::group(&())
            }

            fn version((): &()) -> std::borrow::Cow<'_, str> {
                k8s_openapi::api::coordination::v1::Lease::version(&())
            }

            fn plural((): &()) -> std::borrow::Cow<'_, str> {
                k8s_openapi::api::coordination::v1::Lease::plural(&())
            }

            fn meta(&self) -> &k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta {
                &self.$($field).+
            }

            fn meta_mut(&mut self) -> &mut k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta {
                &mut self.$($field).+
            }
        }
    };
}
pub(crate) use impl_lease_resource;

/// A Lease as kube-apiserver sends it. Only its key and version are decoded here: Kubernetes accepts times that the
/// types of `k8s_openapi` cannot represent, such as the end of the year 9999.
#[derive(Clone, Debug, Serialize)]
#[serde(transparent)]
pub(super) struct BuiltInLease {
    #[serde(skip)]
    pub(super) metadata: ObjectMeta,
    value: Value,
}

impl_lease_resource!(BuiltInLease, metadata);

impl<'de> Deserialize<'de> for BuiltInLease {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let mut value = Value::deserialize(deserializer)?;
        let text = |field: &str| value["metadata"][field].as_str().map(str::to_owned);
        let (name, namespace, resource_version) = (text("name"), text("namespace"), text("resourceVersion"));
        let metadata = ObjectMeta { name, namespace, resource_version, ..ObjectMeta::default() };
        // The items of a list lack these two members.
        if let Value::Object(members) = &mut value {
            members.insert("apiVersion".to_owned(), API_VERSION.into());
            members.insert("kind".to_owned(), KIND.into());
        }
        Ok(Self { metadata, value })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_lease_is_kept_as_kube_apiserver_sends_it() {
        let sent = json!({"metadata": {"namespace": "n", "name": "l", "resourceVersion": "7"},
            "spec": {"renewTime": "9999-12-31T23:59:59.999999Z"}});
        let lease: BuiltInLease = serde_json::from_value(sent.clone()).expect("a Lease");
        assert_eq!(lease.metadata.resource_version.as_deref(), Some("7"));
        let mut kept = serde_json::to_value(&lease).expect("JSON");
        let members = kept.as_object_mut().expect("an object");
        assert_eq!(
            [members.remove("apiVersion"), members.remove("kind")],
            [Some(json!("coordination.k8s.io/v1")), Some(json!("Lease"))]
        );
        assert_eq!(kept, sent);
    }
}
