//! Generates the schemas of an OpenAPI document from [`DEFINITIONS`].

use super::Dialect;
use super::definition::Presence::Required;
use super::definition::{DEFINITIONS, Definition, Kind, Merge, Property, Shape, Type};
use crate::resource::ApiVersion;
use serde_json::{Map, Value, json};

/// Adds the schemas of all definitions for one API version to the schemas of an OpenAPI document.
pub(super) fn add(to: &mut Map<String, Value>, version: ApiVersion, dialect: Dialect) {
    for definition in DEFINITIONS {
        let schema = definition.schema(version, dialect);
        // API versions may share a schema. If the schema already exists, only its list of group, version and kind
        // grows.
        match to.get_mut(&full_name(definition.name, version)) {
            None => _ = to.insert(full_name(definition.name, version), schema),
            Some(present) => {
                // A mutable index, `present[KINDS]`, would add a null to a schema that has no such list.
                let kinds = present.get_mut(KINDS).and_then(Value::as_array_mut);
                let (Some(kinds), Value::Array(mut more)) = (kinds, schema[KINDS].clone()) else {
                    continue;
                };
                more.retain(|kind| !kinds.contains(kind));
                kinds.extend(more);
            }
        }
    }
}

const KINDS: &str = "x-kubernetes-group-version-kind";

/// Returns a reference (`$ref`) to the schema with the short name `name`.
pub(super) fn reference(name: &str, version: ApiVersion, dialect: Dialect) -> Value {
    let place = match dialect {
        Dialect::V2 => "#/definitions/",
        Dialect::V3 => "#/components/schemas/",
    };
    json!({"$ref": format!("{place}{}", full_name(name, version))})
}

/// Returns the full name of a schema. The full name includes the Kubernetes package, by which tools recognize the
/// schema.
fn full_name(name: &str, version: ApiVersion) -> String {
    match name.split_once('.') {
        Some(("coordination", kind)) => format!("io.k8s.api.coordination.{}.{kind}", version.name()),
        Some(("meta", kind)) => format!("io.k8s.apimachinery.pkg.apis.meta.v1.{kind}"),
        Some((package, kind)) => format!("io.k8s.apimachinery.pkg.{package}.{kind}"),
        None => name.to_owned(),
    }
}

impl Definition {
    fn schema(&self, version: ApiVersion, dialect: Dialect) -> Value {
        let mut schema = Map::new();
        schema.insert("description".into(), self.description.into());
        match self.shape {
            Shape::DateTime => {
                schema.insert("type".into(), "string".into());
                schema.insert("format".into(), "date-time".into());
            }
            Shape::Anything => _ = schema.insert("type".into(), "object".into()),
            Shape::Object(properties) => {
                schema.insert("type".into(), "object".into());
                let required: Vec<_> = properties.iter().filter(|p| p.presence == Required).map(|p| p.name).collect();
                if !required.is_empty() {
                    schema.insert("required".into(), required.into());
                }
                let properties: Map<_, _> =
                    properties.iter().map(|p| (p.name.to_owned(), p.schema(version, dialect))).collect();
                schema.insert("properties".into(), properties.into());
            }
        }
        let name = self.name.rsplit('.').next().unwrap_or_default();
        let own = json!({"group": crate::resource::GROUP, "kind": name, "version": version.name()});
        let meta = json!({"group": "", "kind": name, "version": "v1"});
        match self.kind {
            Kind::Part => {}
            Kind::Own => _ = schema.insert(KINDS.into(), json!([own])),
            Kind::Meta => _ = schema.insert(KINDS.into(), json!([meta])),
            Kind::Both => _ = schema.insert(KINDS.into(), json!([meta, own])),
        }
        if self.name == "meta.OwnerReference" {
            schema.insert("x-kubernetes-map-type".into(), "atomic".into());
        }
        schema.into()
    }
}

impl Property {
    fn schema(&self, version: ApiVersion, dialect: Dialect) -> Value {
        let is_required = self.presence == Required;
        let mut schema = self.kind.schema(version, dialect, is_required);
        schema["description"] = self.description.into();
        match self.merge {
            Merge::Unsaid => {}
            Merge::Atomic => schema["x-kubernetes-list-type"] = "atomic".into(),
            Merge::ByUid => {
                schema["x-kubernetes-list-map-keys"] = json!(["uid"]);
                schema["x-kubernetes-list-type"] = "map".into();
                schema["x-kubernetes-patch-merge-key"] = "uid".into();
                schema["x-kubernetes-patch-strategy"] = "merge".into();
            }
            Merge::Set => {
                schema["x-kubernetes-list-type"] = "set".into();
                schema["x-kubernetes-patch-strategy"] = "merge".into();
            }
        }
        schema
    }
}

impl Type {
    /// Returns the schema of a value of this type. In OpenAPI 3.0, a required scalar has a default such as 0, and
    /// [`Self::Value`] always has the default `{}`.
    fn schema(self, version: ApiVersion, dialect: Dialect, is_required: bool) -> Value {
        let scalar = |mut schema: Value, default: Value| {
            if is_required && dialect == Dialect::V3 {
                schema["default"] = default;
            }
            schema
        };
        // The caller adds a `description` beside the `$ref`. OpenAPI 2.0 documents may have such siblings of `$ref`. In
        // OpenAPI 3.0, siblings of `$ref` are ignored. So there the `$ref` is enclosed in `allOf`, and the
        // `description` and the default are siblings of `allOf`.
        let other = |name: &str, has_default: bool| match (dialect, has_default) {
            (Dialect::V2, _) => reference(name, version, dialect),
            (Dialect::V3, false) => json!({"allOf": [reference(name, version, dialect)]}),
            (Dialect::V3, true) => json!({"allOf": [reference(name, version, dialect)], "default": {}}),
        };
        let string = || Self::String.schema(version, dialect, false);
        match self {
            Self::Boolean => scalar(json!({"type": "boolean"}), false.into()),
            Self::Int32 => scalar(json!({"type": "integer", "format": "int32"}), 0.into()),
            Self::Int64 => scalar(json!({"type": "integer", "format": "int64"}), 0.into()),
            Self::String => scalar(json!({"type": "string"}), "".into()),
            Self::Strings => json!({"type": "array", "items": string()}),
            Self::StringMap => json!({"type": "object", "additionalProperties": string()}),
            Self::Value(name) => other(name, true),
            Self::Optional(name) => other(name, false),
            Self::List(name) => json!({"type": "array", "items": reference(name, version, dialect)}),
        }
    }
}
