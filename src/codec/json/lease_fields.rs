//! Reads the fields of a Lease from simd-json's tape.
//!
//! The constants describe Go's structs: the path and the type of each field. The function that reads a field decides
//! whether the field is a pointer in Go. As in Go, a repeated object is merged with the earlier one. A repeated list
//! replaces the earlier one. Go differs from this decoder in one case. If an element of the later list omits a field,
//! Go retains the field's value from the element of the earlier list with the same index.

use super::fields::{Field, FieldReader, Place, Scope};
use super::tape::{Members, Value};
use crate::codec::DecodedLease;
use crate::codec::gathered::{Entries, Gathered};
use crate::lease::managed_fields::{FieldsV1, ManagedFields, SentEntry, SentManagedFields};
use crate::lease::{Lease, LeaseSpec, ObjectMeta, OwnerReference};
use crate::resource::ApiVersion;
use crate::timestamp::{parse_micro_time, parse_time};

const KIND: Field = Field::new(0, "kind", "string");
const API_VERSION: Field = Field::new(1, "apiVersion", "string");
const METADATA: Field = Field::new(2, "metadata", "v1.ObjectMeta");
const SPEC: Field = Field::new(3, "spec", "v1.LeaseSpec");
const SPEC_V1BETA1: Field = Field::new(3, "spec", "v1beta1.LeaseSpec");

const NAME: Field = Field::new(0, "metadata.name", "string");
const GENERATE_NAME: Field = Field::new(1, "metadata.generateName", "string");
const NAMESPACE: Field = Field::new(2, "metadata.namespace", "string");
const SELF_LINK: Field = Field::new(3, "metadata.selfLink", "string");
const UID: Field = Field::new(4, "metadata.uid", "types.UID");
const RESOURCE_VERSION: Field = Field::new(5, "metadata.resourceVersion", "string");
const GENERATION: Field = Field::new(6, "metadata.generation", "int64");
const CREATION_TIMESTAMP: Field = Field::new(7, "metadata.creationTimestamp", "string");
const DELETION_TIMESTAMP: Field = Field::new(8, "metadata.deletionTimestamp", "string");
const DELETION_GRACE_PERIOD_SECONDS: Field = Field::new(9, "metadata.deletionGracePeriodSeconds", "int64");
const LABELS: Field = Field::new(10, "metadata.labels", "map[string]string");
const ANNOTATIONS: Field = Field::new(11, "metadata.annotations", "map[string]string");
const OWNER_REFERENCES: Field = Field::new(12, "metadata.ownerReferences", "[]v1.OwnerReference");
const FINALIZERS: Field = Field::new(13, "metadata.finalizers", "[]string");
const MANAGED_FIELDS: Field = Field::new(14, "metadata.managedFields", "[]v1.ManagedFieldsEntry");

const OWNER_API_VERSION: Field = Field::new(0, "metadata.ownerReferences.apiVersion", "string");
const OWNER_KIND: Field = Field::new(1, "metadata.ownerReferences.kind", "string");
const OWNER_NAME: Field = Field::new(2, "metadata.ownerReferences.name", "string");
const OWNER_UID: Field = Field::new(3, "metadata.ownerReferences.uid", "types.UID");
const OWNER_CONTROLLER: Field = Field::new(4, "metadata.ownerReferences.controller", "bool");
const OWNER_BLOCK_OWNER_DELETION: Field = Field::new(5, "metadata.ownerReferences.blockOwnerDeletion", "bool");

const ENTRY_MANAGER: Field = Field::new(0, "metadata.managedFields.manager", "string");
const ENTRY_OPERATION: Field = Field::new(1, "metadata.managedFields.operation", "v1.ManagedFieldsOperationType");
const ENTRY_API_VERSION: Field = Field::new(2, "metadata.managedFields.apiVersion", "string");
const ENTRY_TIME: Field = Field::new(3, "metadata.managedFields.time", "string");
const ENTRY_FIELDS_TYPE: Field = Field::new(4, "metadata.managedFields.fieldsType", "string");
const ENTRY_FIELDS_V1: Field = Field::new(5, "metadata.managedFields.fieldsV1", "v1.FieldsV1");
const ENTRY_SUBRESOURCE: Field = Field::new(6, "metadata.managedFields.subresource", "string");

const HOLDER_IDENTITY: Field = Field::new(0, "spec.holderIdentity", "string");
const LEASE_DURATION_SECONDS: Field = Field::new(1, "spec.leaseDurationSeconds", "int32");
const ACQUIRE_TIME: Field = Field::new(2, "spec.acquireTime", "string");
const RENEW_TIME: Field = Field::new(3, "spec.renewTime", "string");
const LEASE_TRANSITIONS: Field = Field::new(4, "spec.leaseTransitions", "int32");
const STRATEGY: Field = Field::new(5, "spec.strategy", "v1.CoordinatedLeaseStrategy");
const PREFERRED_HOLDER: Field = Field::new(6, "spec.preferredHolder", "string");

/// Decodes a Lease of the API version `version` from the root value of `text`. The caller has checked that `kind` is
/// `Lease`.
///
/// # Errors
/// Go's message about why the value is not a Lease.
pub(super) fn read_lease(root: Value<'_, '_>, text: &[u8], version: ApiVersion) -> Result<DecodedLease, String> {
    let mut lease = Lease::default();
    let mut reader = FieldReader::default();
    let mut entries = Entries::default();
    if let Value::Object(members) = root {
        let scope = &mut Scope::new("Lease", Place::Root);
        for (key, value) in members {
            match key {
                "metadata" => {
                    if let Some(members) = reader.object(scope, &METADATA, value) {
                        read_object_meta(&mut reader, members, &mut lease.metadata, &mut entries)?;
                    }
                }
                "spec" => {
                    let field = match version {
                        ApiVersion::V1 => &SPEC,
                        ApiVersion::V1Beta1 => &SPEC_V1BETA1,
                    };
                    if let Some(members) = reader.object(scope, field, value) {
                        read_spec(&mut reader, members, &mut lease.spec)?;
                    }
                }
                // The caller has already checked the values of `kind` and `apiVersion`.
                "kind" => reader.skip(scope, &KIND),
                "apiVersion" => reader.skip(scope, &API_VERSION),
                _ => reader.unknown(scope, key),
            }
        }
    }
    let warnings = reader.finish(text)?;
    let entries = entries.finish(&mut lease.metadata);
    Ok(DecodedLease { lease, version, entries, warnings })
}

fn read_object_meta<'i>(
    reader: &mut FieldReader,
    members: Members<'_, 'i>,
    meta: &mut ObjectMeta,
    entries: &mut Entries<&'i str>,
) -> Result<(), String> {
    let scope = &mut Scope::new("ObjectMeta", Place::At("metadata"));
    for (key, value) in members {
        match key {
            "name" => reader.text(scope, &NAME, value, &mut meta.name),
            "generateName" => reader.text(scope, &GENERATE_NAME, value, &mut meta.generate_name),
            "namespace" => reader.text(scope, &NAMESPACE, value, &mut meta.namespace),
            "selfLink" => reader.text(scope, &SELF_LINK, value, &mut meta.self_link),
            "uid" => reader.text(scope, &UID, value, &mut meta.uid),
            "resourceVersion" => reader.text(scope, &RESOURCE_VERSION, value, &mut meta.resource_version),
            "generation" => reader.integer(scope, &GENERATION, value, &mut meta.generation),
            "creationTimestamp" => {
                reader.plain_time(scope, &CREATION_TIMESTAMP, value, &mut meta.creation_timestamp)?;
            }
            "deletionTimestamp" => {
                reader.time(scope, &DELETION_TIMESTAMP, value, &mut meta.deletion_timestamp, parse_time)?;
            }
            "deletionGracePeriodSeconds" => {
                let into = &mut meta.deletion_grace_period_seconds;
                reader.optional_integer(scope, &DELETION_GRACE_PERIOD_SECONDS, value, into);
            }
            "labels" => reader.pairs(scope, &LABELS, value, &mut entries.labels),
            "annotations" => reader.pairs(scope, &ANNOTATIONS, value, &mut entries.annotations),
            "ownerReferences" => read_owner_references(reader, scope, value, &mut entries.owners),
            "finalizers" => {
                if let Some(elements) = reader.array(scope, &FINALIZERS, value) {
                    entries.finalizers.clear();
                    for element in elements {
                        entries.finalizers.push_with(|| reader.text_element(scope, &FINALIZERS, element));
                    }
                }
            }
            "managedFields" => read_managed_fields(reader, scope, value, &mut meta.managed_fields)?,
            _ => reader.unknown(scope, key),
        }
    }
    Ok(())
}

fn read_owner_references(
    reader: &mut FieldReader,
    scope: &mut Scope,
    value: Value<'_, '_>,
    into: &mut Gathered<OwnerReference>,
) {
    let Some(elements) = reader.array(scope, &OWNER_REFERENCES, value) else { return };
    into.clear();
    for (index, element) in elements.enumerate() {
        into.push_with(|| {
            let mut owner = OwnerReference::default();
            match element {
                Value::Object(members) => read_owner_reference(reader, members, index, &mut owner),
                Value::Null => {}
                other => reader.wrong_element(scope, &OWNER_REFERENCES, &other, "v1.OwnerReference"),
            }
            owner
        });
    }
}

fn read_owner_reference(reader: &mut FieldReader, members: Members<'_, '_>, index: usize, owner: &mut OwnerReference) {
    let scope = &mut Scope::new("OwnerReference", Place::Element("metadata.ownerReferences", index));
    for (key, value) in members {
        match key {
            "apiVersion" => reader.text(scope, &OWNER_API_VERSION, value, &mut owner.api_version),
            "kind" => reader.text(scope, &OWNER_KIND, value, &mut owner.kind),
            "name" => reader.text(scope, &OWNER_NAME, value, &mut owner.name),
            "uid" => reader.text(scope, &OWNER_UID, value, &mut owner.uid),
            "controller" => reader.optional_bool(scope, &OWNER_CONTROLLER, value, &mut owner.controller),
            "blockOwnerDeletion" => {
                reader.optional_bool(scope, &OWNER_BLOCK_OWNER_DELETION, value, &mut owner.block_owner_deletion);
            }
            _ => reader.unknown(scope, key),
        }
    }
}

/// Reads the entries of `managedFields`. `null` means that the list is absent. An empty list asks the server to remove
/// all entries of the stored object.
fn read_managed_fields(
    reader: &mut FieldReader,
    scope: &mut Scope,
    value: Value<'_, '_>,
    into: &mut ManagedFields,
) -> Result<(), String> {
    let is_null = matches!(value, Value::Null);
    let Some(elements) = reader.array(scope, &MANAGED_FIELDS, value) else { return Ok(()) };
    let mut list = SentManagedFields::default();
    for (index, element) in elements.enumerate() {
        let mut entry = SentEntry::default();
        match element {
            Value::Object(members) => read_managed_fields_entry(reader, members, index, &mut entry)?,
            Value::Null => {}
            other => reader.wrong_element(scope, &MANAGED_FIELDS, &other, "v1.ManagedFieldsEntry"),
        }
        list.push(entry);
    }
    *into = if is_null { ManagedFields::ABSENT } else { list.finish() };
    Ok(())
}

fn read_managed_fields_entry(
    reader: &mut FieldReader,
    members: Members<'_, '_>,
    index: usize,
    entry: &mut SentEntry,
) -> Result<(), String> {
    let scope = &mut Scope::new("ManagedFieldsEntry", Place::Element("metadata.managedFields", index));
    for (key, value) in members {
        match key {
            "manager" => reader.text(scope, &ENTRY_MANAGER, value, &mut entry.manager),
            "operation" => reader.text(scope, &ENTRY_OPERATION, value, &mut entry.operation),
            "apiVersion" => reader.text(scope, &ENTRY_API_VERSION, value, &mut entry.api_version),
            "time" => reader.time(scope, &ENTRY_TIME, value, &mut entry.time, parse_time)?,
            "fieldsType" => reader.text(scope, &ENTRY_FIELDS_TYPE, value, &mut entry.fields_type),
            "fieldsV1" => {
                reader.skip(scope, &ENTRY_FIELDS_V1);
                entry.fields = match value {
                    Value::Null => None,
                    value => Some(FieldsV1::from_client(&reader.json_text(value))),
                };
            }
            "subresource" => reader.text(scope, &ENTRY_SUBRESOURCE, value, &mut entry.subresource),
            _ => reader.unknown(scope, key),
        }
    }
    Ok(())
}

fn read_spec(reader: &mut FieldReader, members: Members<'_, '_>, spec: &mut LeaseSpec) -> Result<(), String> {
    let scope = &mut Scope::new("LeaseSpec", Place::At("spec"));
    for (key, value) in members {
        match key {
            "holderIdentity" => reader.optional_text(scope, &HOLDER_IDENTITY, value, &mut spec.holder_identity),
            "leaseDurationSeconds" => {
                reader.optional_integer(scope, &LEASE_DURATION_SECONDS, value, &mut spec.lease_duration_seconds);
            }
            "acquireTime" => reader.time(scope, &ACQUIRE_TIME, value, &mut spec.acquire_time, parse_micro_time)?,
            "renewTime" => reader.time(scope, &RENEW_TIME, value, &mut spec.renew_time, parse_micro_time)?,
            "leaseTransitions" => {
                reader.optional_integer(scope, &LEASE_TRANSITIONS, value, &mut spec.lease_transitions);
            }
            "strategy" => reader.optional_text(scope, &STRATEGY, value, &mut spec.strategy),
            "preferredHolder" => reader.optional_text(scope, &PREFERRED_HOLDER, value, &mut spec.preferred_holder),
            _ => reader.unknown(scope, key),
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::super::decode::tests::{decode, lease, refusal, warnings};
    use super::*;
    use crate::timestamp::{MicroTime, Time};

    #[test]
    fn owned_metadata_is_decoded() {
        let body = r#"{"metadata":{"uid":"x","creationTimestamp":"2001-01-01T00:00:00.5Z","generation":7,"selfLink":"/x","deletionTimestamp":"2001-01-01T00:00:00+01:00","deletionGracePeriodSeconds":5,"name":"a","generateName":"b"}}"#;
        let meta = lease(body).metadata;
        assert_eq!((meta.generation, meta.deletion_grace_period_seconds), (7, Some(5)));
        assert_eq!(meta.creation_timestamp, Some(Time(978_307_200)));
        assert_eq!(meta.deletion_timestamp, Some(Time(978_303_600)));
        assert_eq!((meta.self_link.as_str(), meta.generate_name.as_str()), ("/x", "b"));
    }

    #[test]
    fn an_empty_body_of_any_kind_is_an_empty_lease() {
        for body in [
            "null",
            "{}",
            r#"{"kind":"Lease"}"#,
            r#"{"apiVersion":"coordination.k8s.io/v1"}"#,
            r#"{"kind":"","apiVersion":""}"#,
            r#"{"kind":null,"apiVersion":null,"metadata":null,"spec":null}"#,
            r#"{"metadata":{"name":null,"labels":null,"ownerReferences":null,"finalizers":null,"creationTimestamp":null,"deletionTimestamp":null,"generation":null,"managedFields":null}}"#,
            r#"{"metadata":{"creationTimestamp":"0001-01-01T00:00:00Z","labels":{},"finalizers":[]}}"#,
            r#"{"spec":{"holderIdentity":null,"leaseDurationSeconds":null,"renewTime":null,"acquireTime":null,"leaseTransitions":null,"strategy":null,"preferredHolder":null}}"#,
        ] {
            assert_eq!(lease(body), Lease::default(), "{body}");
        }
    }

    #[test]
    fn null_inside_a_list_or_map_is_an_empty_value() {
        let meta =
            lease(r#"{"metadata":{"labels":{"a":null},"finalizers":[null,"f"],"ownerReferences":[null]}}"#).metadata;
        assert_eq!(meta.labels.value("a"), Some(""));
        assert_eq!(meta.finalizers, ["", "f"]);
        assert_eq!(meta.owner_references.len(), 1);
    }

    #[test]
    fn fields_of_the_wrong_type_are_refused_in_the_words_of_go() {
        for (body, words) in [
            (r#"{"metadata":"x"}"#, "string into Go struct field Lease.metadata of type v1.ObjectMeta"),
            (r#"{"metadata":{"name":5}}"#, "number into Go struct field ObjectMeta.metadata.name of type string"),
            (r#"{"metadata":{"uid":true}}"#, "bool into Go struct field ObjectMeta.metadata.uid of type types.UID"),
            (
                r#"{"metadata":{"labels":[]}}"#,
                "array into Go struct field ObjectMeta.metadata.labels of type map[string]string",
            ),
            (
                r#"{"metadata":{"labels":{"a":1}}}"#,
                "number into Go struct field ObjectMeta.metadata.labels of type string",
            ),
            (
                r#"{"metadata":{"generation":"1"}}"#,
                "string into Go struct field ObjectMeta.metadata.generation of type int64",
            ),
            (
                r#"{"metadata":{"finalizers":"x"}}"#,
                "string into Go struct field ObjectMeta.metadata.finalizers of type []string",
            ),
            (
                r#"{"metadata":{"finalizers":[{}]}}"#,
                "object into Go struct field ObjectMeta.metadata.finalizers of type string",
            ),
            (
                r#"{"metadata":{"ownerReferences":{}}}"#,
                "object into Go struct field ObjectMeta.metadata.ownerReferences of type []v1.OwnerReference",
            ),
            (
                r#"{"metadata":{"ownerReferences":["x"]}}"#,
                "string into Go struct field ObjectMeta.metadata.ownerReferences of type v1.OwnerReference",
            ),
            (
                r#"{"metadata":{"ownerReferences":[{"controller":"x"}]}}"#,
                "string into Go struct field OwnerReference.metadata.ownerReferences.controller of type bool",
            ),
            (
                r#"{"metadata":{"creationTimestamp":5}}"#,
                "number into Go struct field ObjectMeta.metadata.creationTimestamp of type string",
            ),
            (
                r#"{"spec":{"leaseDurationSeconds":2147483648}}"#,
                "number 2147483648 into Go struct field LeaseSpec.spec.leaseDurationSeconds of type int32",
            ),
            (
                r#"{"spec":{"leaseDurationSeconds":100000000000000000000}}"#,
                "number 100000000000000000000 into Go struct field LeaseSpec.spec.leaseDurationSeconds of type int32",
            ),
            (
                r#"{"spec":{"leaseDurationSeconds":"40"}}"#,
                "string into Go struct field LeaseSpec.spec.leaseDurationSeconds of type int32",
            ),
            (
                r#"{"spec":{"leaseDurationSeconds":1.5}}"#,
                "number 1.5 into Go struct field LeaseSpec.spec.leaseDurationSeconds of type int32",
            ),
            (r#"{"spec":{"renewTime":5}}"#, "number into Go struct field LeaseSpec.spec.renewTime of type string"),
            // Only the first wrong type is reported.
            (
                r#"{"metadata":{"name":5},"spec":{"holderIdentity":5}}"#,
                "number into Go struct field ObjectMeta.metadata.name of type string",
            ),
        ] {
            let words = format!("Lease in version \"v1\" cannot be handled as a Lease: json: cannot unmarshal {words}");
            assert_eq!(refusal(body), words);
        }
    }

    #[test]
    fn integers_have_the_range_of_the_api() {
        let spec = lease(r#"{"spec":{"leaseDurationSeconds":2147483647,"leaseTransitions":-2147483648}}"#).spec;
        assert_eq!((spec.lease_duration_seconds, spec.lease_transitions), (Some(i32::MAX), Some(i32::MIN)));
        assert_eq!(lease(r#"{"metadata":{"generation":-9223372036854775808}}"#).metadata.generation, i64::MIN);
        for number in ["-2147483649", "9223372036854775808", "1e2", "40.0", "1e400", "-0.5"] {
            refusal(format!(r#"{{"spec":{{"leaseTransitions":{number}}}}}"#));
        }
    }

    #[test]
    fn an_invalid_time_is_reported_before_a_wrong_type() {
        assert_eq!(
            refusal(r#"{"metadata":{"name":5},"spec":{"renewTime":"yesterday"}}"#),
            r#"Lease in version "v1" cannot be handled as a Lease: parsing time "yesterday" as "2006-01-02T15:04:05.000000Z07:00": cannot parse "yesterday" as "2006""#
        );
        assert_eq!(
            refusal(r#"{"metadata":{"deletionTimestamp":""}}"#),
            r#"Lease in version "v1" cannot be handled as a Lease: parsing time "" as "2006-01-02T15:04:05Z07:00": cannot parse "" as "2006""#
        );
        let spec = lease(r#"{"spec":{"renewTime":"2026-01-02T03:04:05.000000+02:00"}}"#).spec;
        assert_eq!(spec.renew_time, Some(MicroTime(1_767_315_845_000_000)));
    }

    #[test]
    fn unknown_fields_are_reported_and_passed_over() {
        let body = r#"{"apiVersion":"coordination.k8s.io/v1","kind":"Lease","metadata":{"name":"u","colour":"red"},"spec":{"holderIdentity":"a","size":1},"extra":{}}"#;
        let decoded = decode(body).expect(body);
        assert_eq!(
            (decoded.lease.metadata.name.as_str(), decoded.lease.spec.holder_identity.as_deref()),
            ("u", Some("a"))
        );
        assert_eq!(
            warnings(body),
            ["unknown field \"metadata.colour\"", "unknown field \"spec.size\"", "unknown field \"extra\""]
        );
        assert_eq!(warnings(r#"{"spec":{"HolderIdentity":"a"}}"#), ["unknown field \"spec.HolderIdentity\""]);
        assert_eq!(
            warnings(r#"{"metadata":{"ownerReferences":[{},{"a\"b":[[{"x":1}]]}]},"Kind":"Lease"}"#),
            [r#"unknown field "metadata.ownerReferences[1].a\"b""#, r#"unknown field "Kind""#]
        );
    }

    #[test]
    fn repeated_fields_are_reported_and_the_last_counts() {
        let body = r#"{"spec":{"holderIdentity":"a","holderIdentity":"b"}}"#;
        assert_eq!(warnings(body), ["duplicate field \"spec.holderIdentity\""]);
        assert_eq!(lease(body).spec.holder_identity.as_deref(), Some("b"));
        assert_eq!(
            warnings(
                r#"{"kind":"Lease","kind":"Lease","metadata":{"labels":{"b":"","a":"","b":"","a":""},"ownerReferences":[{"uid":"","uid":""}]},"metadata":{"finalizers":[],"finalizers":[]}}"#
            ),
            [
                "duplicate field \"kind\"",
                "duplicate field \"metadata.labels.b\"",
                "duplicate field \"metadata.labels.a\"",
                "duplicate field \"metadata.ownerReferences[0].uid\"",
                "duplicate field \"metadata\"",
                "duplicate field \"metadata.finalizers\"",
            ]
        );
    }

    #[test]
    fn repeated_objects_are_merged() {
        let body = r#"{"metadata":{"name":"a","labels":{"a":"1","b":"1"}},"metadata":{"name":null,"uid":"u","labels":{"b":"2","c":"3"}}}"#;
        let meta = lease(body).metadata;
        assert_eq!((meta.name.as_str(), meta.uid.as_str()), ("a", "u"));
        assert_eq!(meta.labels.iter().collect::<Vec<_>>(), [("a", "1"), ("b", "2"), ("c", "3")]);
        assert!(lease(r#"{"metadata":{"labels":{"a":"1"},"labels":null}}"#).metadata.labels.is_empty());
    }
}
