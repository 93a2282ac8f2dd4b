//! Describes the API as OpenAPI 2.0 and 3.0, both from the same definitions. [`definition`] defines the objects,
//! [`schema`] generates the schemas of these objects, and [`operation`] describes the operations. The documents have
//! the same structure as those of kube-apiserver, since kubectl relies on that structure. The description texts are
//! this project's own.

mod definition;
mod operation;
mod schema;

use crate::resource::ApiVersion;
use serde_json::{Map, Value, json};

/// A version of OpenAPI. The version decides the structure of a document.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Dialect {
    /// OpenAPI 2.0. One document describes all API versions.
    V2,
    /// OpenAPI 3.0. One document describes one API version.
    V3,
}

/// Returns the OpenAPI 3.0 document of one API version.
pub(super) fn v3(version: ApiVersion) -> Value {
    let mut schemas = Map::new();
    schema::add(&mut schemas, version, Dialect::V3);
    let mut paths = Map::new();
    operation::add(&mut paths, version, Dialect::V3);
    json!({
        "openapi": "3.0.0",
        "info": info(),
        "paths": paths,
        "components": {"schemas": schemas},
    })
}

/// Returns the OpenAPI 2.0 document of all API versions.
pub(super) fn v2() -> Value {
    let (mut definitions, mut paths) = (Map::new(), Map::new());
    for version in ApiVersion::ALL {
        schema::add(&mut definitions, version, Dialect::V2);
        operation::add(&mut paths, version, Dialect::V2);
    }
    json!({"swagger": "2.0", "info": info(), "paths": paths, "definitions": definitions})
}

/// Returns the index of the OpenAPI 3.0 documents: the URL of each document. The URL contains the hash of the document.
pub(super) fn v3_index(documents: &[(ApiVersion, &str)]) -> Value {
    let paths: Map<_, _> = documents
        .iter()
        .map(|(version, hash)| {
            (format!("apis/{}", version.group_version()), json!({"serverRelativeURL": url(*version, hash)}))
        })
        .collect();
    json!({ "paths": paths })
}

/// Returns the URL of an OpenAPI 3.0 document. `hash` is the hash of the document.
pub(super) fn url(version: ApiVersion, hash: &str) -> String {
    format!("/openapi/v3/apis/{}?hash={hash}", version.group_version())
}

fn info() -> Value {
    json!({"title": env!("CARGO_PKG_NAME"), "version": env!("CARGO_PKG_VERSION")})
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    /// Adds every `$ref` in `value` to `found`.
    fn references<'v>(value: &'v Value, found: &mut BTreeSet<&'v str>) {
        match value {
            Value::Array(items) => items.iter().for_each(|item| references(item, found)),
            Value::Object(members) => {
                found.extend(members.get("$ref").and_then(Value::as_str));
                members.values().for_each(|member| references(member, found));
            }
            _ => {}
        }
    }

    #[test]
    fn every_reference_leads_to_a_schema_and_everything_is_described() {
        for (document, place) in [
            (v3(ApiVersion::V1), "/components/schemas"),
            (v3(ApiVersion::V1Beta1), "/components/schemas"),
            (v2(), "/definitions"),
        ] {
            let mut found = BTreeSet::new();
            references(&document, &mut found);
            let schemas = document.pointer(place).and_then(Value::as_object).expect("schemas");
            let known: BTreeSet<_> = schemas.keys().map(|name| format!("#{place}/{name}")).collect();
            let found: BTreeSet<_> = found.into_iter().map(str::to_owned).collect();
            // Every referenced schema must exist. Otherwise `kubectl explain` and kube-apiserver's aggregator fail.
            let missing: Vec<_> = found.difference(&known).collect();
            assert!(missing.is_empty(), "{missing:?}");
            let is_described = |value: &Value| value["description"].as_str().is_some_and(|text| text.ends_with('.'));
            for (name, schema) in schemas {
                assert!(is_described(schema), "{name}");
                for (property, schema) in schema["properties"].as_object().into_iter().flatten() {
                    assert!(is_described(schema), "{name}.{property}");
                }
            }
            for (path, item) in document["paths"].as_object().expect("paths") {
                let operations = item.as_object().expect("a path").values().filter(|value| value.is_object());
                for value in operations.chain([item]) {
                    assert!(value["operationId"].is_null() || is_described(value), "{path}: {value}");
                    for parameter in value["parameters"].as_array().into_iter().flatten() {
                        assert!(parameter["in"] == "body" || is_described(parameter), "{path}: {parameter}");
                    }
                }
            }
        }
    }

    /// Whether `value` or a value in it is null.
    fn has_null(value: &Value) -> bool {
        match value {
            Value::Null => true,
            Value::Array(items) => items.iter().any(has_null),
            Value::Object(members) => members.values().any(has_null),
            _ => false,
        }
    }

    #[test]
    fn no_member_of_a_document_is_null() {
        for document in [v3(ApiVersion::V1), v3(ApiVersion::V1Beta1), v2()] {
            for (name, member) in document.as_object().expect("a document") {
                assert!(!has_null(member), "{name}: {member}");
            }
        }
    }

    #[test]
    fn the_patch_operation_lists_the_field_validation_parameter() {
        let document = v3(ApiVersion::V1);
        let path = "/apis/coordination.k8s.io/v1/namespaces/{namespace}/leases/{name}";
        let patch = &document["paths"][path]["patch"];
        assert_eq!(patch["x-kubernetes-group-version-kind"]["kind"], "Lease");
        let names: Vec<_> = patch["parameters"].as_array().expect("parameters").iter().map(|p| &p["name"]).collect();
        assert_eq!(names, ["dryRun", "fieldManager", "fieldValidation", "force"]);
    }
}
