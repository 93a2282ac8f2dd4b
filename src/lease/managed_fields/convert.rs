//! Converts a JSON value to a Lease: the result of a strategic merge patch or of a server-side apply. The rules are
//! those of kube-apiserver's conversion of untyped maps (apimachinery `runtime/converter.go`). So the error messages
//! differ from those about a JSON body.

use super::schema::METADATA_FIELDS;
use super::{FieldsV1, ManagedFields, SentEntry, SentManagedFields};
use crate::go::print::json_type;
use crate::lease::{Lease, LeaseSpec, ObjectMeta, OwnerReference, StringMap};
use crate::timestamp::{MicroTime, Time, is_zero_time, parse_micro_time, parse_time};
use compact_str::CompactString;
use serde_json::{Map, Value};

/// The result of the conversion of a JSON value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Conversion {
    /// The Lease. Its `managedFields` are the list that the client has sent.
    pub lease: Lease,
    /// The message `unknown field "…"` for each member that the API does not define, up to `UNKNOWN_MAX`.
    pub unknown: Vec<String>,
}

/// Maximum number of messages in [`Conversion::unknown`].
const UNKNOWN_MAX: usize = 100;

type Object = Map<String, Value>;

/// Converts a JSON object to a Lease.
///
/// # Errors
/// The reason why the value is not a Lease, in Go's words.
pub fn lease_from_value(value: &Value) -> Result<Conversion, String> {
    let mut reader = Reader { unknown: Vec::new() };
    let mut lease = Lease::default();
    let root = object(value)?;
    for name in ["kind", "apiVersion"] {
        text(root, name)?;
    }
    if let Some(members) = present(root, "metadata") {
        lease.metadata = reader.metadata(object(members)?)?;
    }
    if let Some(members) = present(root, "spec") {
        lease.spec = reader.spec(object(members)?)?;
    }
    reader.report_unknown(root, "", &["apiVersion", "kind", "metadata", "spec"]);
    Ok(Conversion { lease, unknown: reader.unknown })
}

struct Reader {
    unknown: Vec<String>,
}

impl Reader {
    fn metadata(&mut self, members: &Object) -> Result<ObjectMeta, String> {
        let meta = ObjectMeta {
            name: text(members, "name")?,
            generate_name: text(members, "generateName")?,
            namespace: text(members, "namespace")?,
            self_link: text(members, "selfLink")?,
            uid: optional_text_of(members, "uid", "types.UID")?.unwrap_or_default(),
            resource_version: text(members, "resourceVersion")?,
            generation: integer(members, "generation")?.unwrap_or(0),
            creation_timestamp: time(members, "creationTimestamp")?.filter(|time| !is_zero_time(*time)),
            deletion_timestamp: time(members, "deletionTimestamp")?,
            deletion_grace_period_seconds: integer(members, "deletionGracePeriodSeconds")?,
            labels: string_map(members, "labels")?,
            annotations: string_map(members, "annotations")?,
            owner_references: self.owner_references(members)?,
            finalizers: finalizers(members)?,
            managed_fields: self.managed_fields(members)?,
        };
        self.report_unknown(members, "metadata.", &METADATA_FIELDS.map(|(name, _)| name));
        Ok(meta)
    }

    fn spec(&mut self, members: &Object) -> Result<LeaseSpec, String> {
        let spec = LeaseSpec {
            holder_identity: optional_text(members, "holderIdentity")?,
            lease_duration_seconds: integer(members, "leaseDurationSeconds")?.map(low_half),
            acquire_time: micro_time(members, "acquireTime")?,
            renew_time: micro_time(members, "renewTime")?,
            lease_transitions: integer(members, "leaseTransitions")?.map(low_half),
            strategy: optional_text_of(members, "strategy", "v1.CoordinatedLeaseStrategy")?,
            preferred_holder: optional_text(members, "preferredHolder")?,
        };
        self.report_unknown(members, "spec.", &LeaseSpec::FIELDS);
        Ok(spec)
    }

    fn owner_references(&mut self, members: &Object) -> Result<Vec<OwnerReference>, String> {
        let Some(value) = present(members, "ownerReferences") else { return Ok(Vec::new()) };
        let mut owners = Vec::new();
        for (index, element) in array(value)?.iter().enumerate() {
            if element.is_null() {
                owners.push(OwnerReference::default());
                continue;
            }
            let members = object(element)?;
            owners.push(OwnerReference {
                api_version: text(members, "apiVersion")?,
                kind: text(members, "kind")?,
                name: text(members, "name")?,
                uid: optional_text_of(members, "uid", "types.UID")?.unwrap_or_default(),
                controller: optional_bool(members, "controller")?,
                block_owner_deletion: optional_bool(members, "blockOwnerDeletion")?,
            });
            self.report_unknown(members, &format!("metadata.ownerReferences[{index}]."), &OwnerReference::FIELDS);
        }
        Ok(owners)
    }

    fn managed_fields(&mut self, members: &Object) -> Result<ManagedFields, String> {
        let Some(value) = present(members, "managedFields") else { return Ok(ManagedFields::ABSENT) };
        let mut list = SentManagedFields::default();
        for (index, element) in array(value)?.iter().enumerate() {
            if element.is_null() {
                list.push(SentEntry::default());
                continue;
            }
            let members = object(element)?;
            list.push(SentEntry {
                manager: text(members, "manager")?,
                operation: optional_text_of(members, "operation", "v1.ManagedFieldsOperationType")?.unwrap_or_default(),
                api_version: text(members, "apiVersion")?,
                time: time(members, "time")?,
                fields_type: text(members, "fieldsType")?,
                fields: present(members, "fieldsV1").map(|fields| FieldsV1::from_client(&fields.to_string())),
                subresource: text(members, "subresource")?,
            });
            self.report_unknown(members, &format!("metadata.managedFields[{index}]."), ENTRY_FIELDS);
        }
        Ok(list.finish())
    }

    fn report_unknown(&mut self, members: &Object, path: &str, known: &[&str]) {
        for name in members.keys().filter(|name| !known.contains(&name.as_str())) {
            if self.unknown.len() < UNKNOWN_MAX {
                self.unknown.push(format!("unknown field \"{path}{name}\""));
            }
        }
    }
}

const ENTRY_FIELDS: &[&str] = &["apiVersion", "fieldsType", "fieldsV1", "manager", "operation", "subresource", "time"];

/// Returns the member `name` if it is present and not null.
fn present<'v>(members: &'v Object, name: &str) -> Option<&'v Value> {
    members.get(name).filter(|value| !value.is_null())
}

fn object(value: &Value) -> Result<&Object, String> {
    value.as_object().ok_or_else(|| format!("cannot restore struct from: {}", go_kind(value)))
}

fn array(value: &Value) -> Result<&Vec<Value>, String> {
    value.as_array().ok_or_else(|| format!("cannot restore slice from {}", go_kind(value)))
}

fn text(members: &Object, name: &str) -> Result<CompactString, String> {
    Ok(optional_text(members, name)?.unwrap_or_default())
}

fn optional_text(members: &Object, name: &str) -> Result<Option<CompactString>, String> {
    optional_text_of(members, name, "string")
}

/// Reads a string. `go_type` is the name of its Go type for the error message.
fn optional_text_of(members: &Object, name: &str, go_type: &str) -> Result<Option<CompactString>, String> {
    present(members, name).map(|value| as_text_of(value, go_type)).transpose()
}

fn as_text(value: &Value) -> Result<CompactString, String> {
    as_text_of(value, "string")
}

fn as_text_of(value: &Value, go_type: &str) -> Result<CompactString, String> {
    match value {
        Value::String(text) => Ok(CompactString::new(text)),
        Value::Number(n) if !n.is_f64() => Err(format!("cannot convert int64 to {go_type}")),
        _ => Err("unrecognized type: string".to_owned()),
    }
}

fn optional_bool(members: &Object, name: &str) -> Result<Option<bool>, String> {
    let Some(value) = present(members, name) else { return Ok(None) };
    value.as_bool().map(Some).ok_or_else(|| "unrecognized type: bool".to_owned())
}

/// Reads an integer of any width. Accepts a float without a fraction.
fn integer(members: &Object, name: &str) -> Result<Option<i64>, String> {
    let go_type = if matches!(name, "leaseDurationSeconds" | "leaseTransitions") { "int32" } else { "int64" };
    match present(members, name) {
        None => Ok(None),
        Some(Value::Number(n)) => match (n.as_i64(), n.as_f64()) {
            (Some(n), _) => Ok(Some(n)),
            (None, Some(float)) if float.fract() == 0.0 => Ok(Some(go_int64(float))),
            _ => Err(format!("cannot convert float64 to {go_type}")),
        },
        Some(_) => Err(format!("unrecognized type: {go_type}")),
    }
}

/// Converts a whole `float64` to an integer like Go. If the float is out of range, Go's result depends on the CPU:
/// amd64 returns the minimum, and arm64 the nearest value. This function returns the minimum, like amd64.
fn go_int64(float: f64) -> i64 {
    const END: f64 = 9_223_372_036_854_775_808.0;
    #[expect(clippy::cast_possible_truncation, reason = "in range")]
    if (-END..END).contains(&float) { float as i64 } else { i64::MIN }
}

/// Converts an `int64` to an `int32` like Go, which takes the low 32 bits.
fn low_half(n: i64) -> i32 {
    let [a, b, c, d, ..] = n.to_le_bytes();
    i32::from_le_bytes([a, b, c, d])
}

fn time(members: &Object, name: &str) -> Result<Option<Time>, String> {
    time_text(members, name)?.map(parse_time).transpose()
}

fn micro_time(members: &Object, name: &str) -> Result<Option<MicroTime>, String> {
    time_text(members, name)?.map(parse_micro_time).transpose()
}

fn time_text<'v>(members: &'v Object, name: &str) -> Result<Option<&'v str>, String> {
    match present(members, name) {
        None => Ok(None),
        Some(Value::String(text)) => Ok(Some(text)),
        Some(other) => Err(format!("json: cannot unmarshal {} into Go value of type string", json_type(other))),
    }
}

fn string_map(members: &Object, name: &str) -> Result<StringMap, String> {
    let Some(value) = present(members, name) else { return Ok(StringMap::default()) };
    let pairs = value.as_object().ok_or_else(|| format!("cannot restore map from {}", go_kind(value)))?;
    let pair = |(key, value): (&String, &Value)| {
        let value = if value.is_null() { CompactString::default() } else { as_text(value)? };
        Ok((CompactString::new(key), value))
    };
    pairs.iter().map(pair).collect()
}

fn finalizers(members: &Object) -> Result<Vec<CompactString>, String> {
    let Some(value) = present(members, "finalizers") else { return Ok(Vec::new()) };
    let text = |element: &Value| if element.is_null() { Ok(CompactString::default()) } else { as_text(element) };
    array(value)?.iter().map(text).collect()
}

/// Returns the name of a JSON value's `reflect.Kind` in Go.
fn go_kind(value: &Value) -> &'static str {
    match value {
        Value::Null => "invalid",
        Value::Bool(_) => "bool",
        Value::Number(n) if n.is_f64() => "float64",
        Value::Number(_) => "int64",
        Value::String(_) => "string",
        Value::Array(_) => "slice",
        Value::Object(_) => "map",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::codec::json::encode_lease_into;
    use serde_json::json;

    #[test]
    fn a_full_lease_is_converted() {
        let value = json!({
            "apiVersion": "coordination.k8s.io/v1", "kind": "Lease",
            "metadata": {
                "name": "n", "namespace": "ns", "uid": "u", "generation": 3, "creationTimestamp": "2026-01-02T03:04:05Z",
                "deletionTimestamp": "2026-01-02T03:04:06Z", "deletionGracePeriodSeconds": 0,
                "labels": {"a": "1", "b": null}, "annotations": {"k": "v"},
                "ownerReferences": [{"apiVersion": "v1", "kind": "Node", "name": "n", "uid": "u", "controller": true}],
                "finalizers": ["f"],
            },
            "spec": {"holderIdentity": "", "leaseDurationSeconds": 40.0, "renewTime": "2026-01-02T03:04:05.678901Z", "strategy": null},
        });
        let Conversion { lease, unknown } = lease_from_value(&value).expect("a Lease");
        assert!(unknown.is_empty());
        let mut out = Vec::new();
        encode_lease_into(&mut out, &lease, None, true);
        let mut expected = value;
        expected["metadata"]["labels"]["b"] = "".into();
        expected["spec"] =
            json!({"holderIdentity": "", "leaseDurationSeconds": 40, "renewTime": "2026-01-02T03:04:05.678901Z"});
        assert_eq!(serde_json::from_slice::<Value>(&out).expect("JSON"), expected);
    }

    #[test]
    fn a_value_of_the_wrong_type_gets_the_error_of_the_converter() {
        for (value, words) in [
            (json!([]), "cannot restore struct from: slice"),
            (json!({"metadata": "x"}), "cannot restore struct from: string"),
            (json!({"metadata": {"name": 5}}), "cannot convert int64 to string"),
            (json!({"metadata": {"name": true}}), "unrecognized type: string"),
            (json!({"metadata": {"labels": []}}), "cannot restore map from slice"),
            (json!({"metadata": {"finalizers": {}}}), "cannot restore slice from map"),
            (json!({"metadata": {"ownerReferences": [{"controller": "x"}]}}), "unrecognized type: bool"),
            (json!({"spec": {"leaseTransitions": 1.5}}), "cannot convert float64 to int32"),
            (json!({"spec": {"leaseTransitions": "1"}}), "unrecognized type: int32"),
            (json!({"spec": {"renewTime": 5}}), "json: cannot unmarshal number into Go value of type string"),
            (
                json!({"spec": {"renewTime": "x"}}),
                "parsing time \"x\" as \"2006-01-02T15:04:05.000000Z07:00\": cannot parse \"x\" as \"2006\"",
            ),
        ] {
            assert_eq!(lease_from_value(&value), Err(words.to_owned()), "{value}");
        }
    }

    #[test]
    fn unknown_fields_are_reported_and_wide_integers_truncated() {
        let value = json!({"x": 1, "spec": {"y": {}, "leaseTransitions": 4_294_967_301_i64}, "metadata": {"ownerReferences": [{"z": 1}]}});
        let Conversion { lease, unknown } = lease_from_value(&value).expect("a Lease");
        assert_eq!(lease.spec.lease_transitions, Some(5));
        assert_eq!(
            unknown,
            ["unknown field \"metadata.ownerReferences[0].z\"", "unknown field \"spec.y\"", "unknown field \"x\"",]
        );
    }
}
