//! Encodes objects as JSON, byte for byte like kube-apiserver. Fields are in the order of Go's structs. Empty fields
//! are omitted where the Go struct says `omitempty`. The encoders append to the caller's buffer, without a final line
//! feed.

use crate::api_error::{Status, StatusCause, StatusDetails};
use crate::go::json::push_string;
use crate::lease::managed_fields::ManagedFieldsEntry;
use crate::lease::validation::push_json_owner;
use crate::lease::{Lease, LeaseSpec, ObjectMeta, OwnerReference, StringMap};
use crate::resource::{ApiVersion, ResourceVersion};
use crate::timestamp::{MicroTime, Time, is_zero_micro_time, is_zero_time, push_micro_time, push_time};

/// Appends a Lease. `version` is the `resourceVersion` of the Lease; `None` in the response to a dry run of a creation.
/// `type_meta` is true if the JSON object has `kind` and `apiVersion`, which items of a list do not have.
pub fn encode_lease_into(out: &mut Vec<u8>, lease: &Lease, version: Option<ResourceVersion>, type_meta: bool) {
    // The reserved capacity is close to the final size: a buffer that grows is copied, and spare capacity takes memory.
    out.reserve(estimated_bytes(lease));
    out.extend_from_slice(if type_meta { LEASE_OPEN } else { LIST_ITEM_OPEN });
    push_object_meta(out, &lease.metadata, version);
    out.extend_from_slice(b",\"spec\":{");
    push_spec(out, &lease.spec);
    out.push(b'}');
}

/// Appends a `metav1.Status`.
pub fn encode_status_into(out: &mut Vec<u8>, status: &Status) {
    out.extend_from_slice(b"{\"kind\":\"Status\",\"apiVersion\":\"v1\",\"metadata\":{");
    if let Some(next) = &status.next {
        push_text(out, b"\"continue\":", next);
    }
    close(out, b'}');
    let outcome: &[u8] = if status.success { b",\"status\":\"Success\"," } else { b",\"status\":\"Failure\"," };
    out.extend_from_slice(outcome);
    push_text(out, b"\"message\":", &status.message);
    push_text(out, b"\"reason\":", status.reason);
    if let Some(details) = &status.details {
        out.extend_from_slice(b"\"details\":{");
        push_status_details(out, details);
        out.push(b',');
    }
    if status.code != 0 {
        push_integer(out, b"\"code\":", status.code);
    }
    close(out, b'}');
}

fn push_object_meta(out: &mut Vec<u8>, meta: &ObjectMeta, version: Option<ResourceVersion>) {
    push_text(out, b"\"name\":", &meta.name);
    push_text(out, b"\"generateName\":", &meta.generate_name);
    push_text(out, b"\"namespace\":", &meta.namespace);
    // Stored Leases have no `selfLink`, but a Lease in the response to a dry run may have one.
    push_text(out, b"\"selfLink\":", &meta.self_link);
    push_text(out, b"\"uid\":", &meta.uid);
    if let Some(version) = version {
        push_version(out, version);
    }
    if meta.generation != 0 {
        push_integer(out, b"\"generation\":", meta.generation);
    }
    // In Go, the creation time is no pointer, so its zero value is omitted. All other times of the object are pointers,
    // and their zero value is encoded as `null`.
    push_time_field(out, b"\"creationTimestamp\":", meta.creation_timestamp.filter(|time| !is_zero_time(*time)));
    push_time_field(out, b"\"deletionTimestamp\":", meta.deletion_timestamp);
    if let Some(seconds) = meta.deletion_grace_period_seconds {
        push_integer(out, b"\"deletionGracePeriodSeconds\":", seconds);
    }
    push_map(out, b"\"labels\":{", &meta.labels);
    push_map(out, b"\"annotations\":{", &meta.annotations);
    push_list(out, b"\"ownerReferences\":[", &meta.owner_references, push_json_owner);
    push_list(out, b"\"finalizers\":[", &meta.finalizers, |out, finalizer| push_string(out, finalizer));
    push_list(out, b"\"managedFields\":[", meta.managed_fields.entries(), push_managed_fields_entry);
    close(out, b'}');
}

fn push_managed_fields_entry(out: &mut Vec<u8>, entry: &ManagedFieldsEntry) {
    out.push(b'{');
    push_text(out, b"\"manager\":", &entry.manager);
    push_text(out, b"\"operation\":", entry.operation.as_str());
    push_text(out, b"\"apiVersion\":", &entry.api_version);
    push_time_field(out, b"\"time\":", entry.time);
    out.extend_from_slice(b"\"fieldsType\":\"FieldsV1\",\"fieldsV1\":");
    out.extend_from_slice(entry.fields.as_json().as_bytes());
    out.push(b',');
    push_text(out, b"\"subresource\":", &entry.subresource);
    close(out, b'}');
}

fn push_spec(out: &mut Vec<u8>, spec: &LeaseSpec) {
    push_optional_text(out, b"\"holderIdentity\":", spec.holder_identity.as_deref());
    if let Some(seconds) = spec.lease_duration_seconds {
        push_integer(out, b"\"leaseDurationSeconds\":", seconds);
    }
    push_micro_time_field(out, b"\"acquireTime\":", spec.acquire_time);
    push_micro_time_field(out, b"\"renewTime\":", spec.renew_time);
    if let Some(transitions) = spec.lease_transitions {
        push_integer(out, b"\"leaseTransitions\":", transitions);
    }
    push_optional_text(out, b"\"strategy\":", spec.strategy.as_deref());
    push_optional_text(out, b"\"preferredHolder\":", spec.preferred_holder.as_deref());
    close(out, b'}');
}

fn push_status_details(out: &mut Vec<u8>, details: &StatusDetails) {
    push_text(out, b"\"name\":", &details.name);
    push_text(out, b"\"group\":", details.group);
    push_text(out, b"\"kind\":", details.kind);
    push_text(out, b"\"uid\":", &details.uid);
    push_list(out, b"\"causes\":[", &details.causes, push_status_cause);
    if details.retry_after_seconds != 0 {
        push_integer(out, b"\"retryAfterSeconds\":", details.retry_after_seconds);
    }
    close(out, b'}');
}

fn push_status_cause(out: &mut Vec<u8>, cause: &StatusCause) {
    out.push(b'{');
    push_text(out, b"\"reason\":", cause.reason);
    push_text(out, b"\"message\":", &cause.message);
    push_text(out, b"\"field\":", &cause.field);
    close(out, b'}');
}

/// Estimates the length of a Lease in JSON, in bytes, if no character needs an escape. The constants are the lengths of
/// names, quotes, commas and values of fixed length.
fn estimated_bytes(lease: &Lease) -> usize {
    let (meta, spec) = (&lease.metadata, &lease.spec);
    let text = |text: &str, name: usize| if text.is_empty() { 0 } else { text.len() + name };
    let optional = |text: Option<&str>, name: usize| text.map_or(0, |text| text.len() + name);
    let given = |is_there: bool, bytes: usize| if is_there { bytes } else { 0 };
    let pairs = |map: &StringMap| map.iter().map(|(key, value)| key.len() + value.len() + 6).sum::<usize>();
    let owner = |owner: &OwnerReference| {
        47 + owner.api_version.len()
            + owner.kind.len()
            + owner.name.len()
            + owner.uid.len()
            + given(owner.controller.is_some(), 19)
            + given(owner.block_owner_deletion.is_some(), 27)
    };
    let entry = |entry: &ManagedFieldsEntry| {
        117 + entry.manager.len() + entry.api_version.len() + entry.fields.json_bytes() + text(&entry.subresource, 17)
    };
    let metadata = text(&meta.name, 10)
        + text(&meta.generate_name, 18)
        + text(&meta.namespace, 15)
        + text(&meta.uid, 9)
        + given(meta.generation != 0, 34)
        + given(meta.deletion_timestamp.is_some(), 43 + 51)
        + given(!meta.labels.is_empty(), 12 + pairs(&meta.labels))
        + given(!meta.annotations.is_empty(), 17 + pairs(&meta.annotations))
        + given(!meta.owner_references.is_empty(), 21 + meta.owner_references.iter().map(owner).sum::<usize>())
        + given(!meta.finalizers.is_empty(), 16 + meta.finalizers.iter().map(|name| name.len() + 3).sum::<usize>())
        + given(!meta.managed_fields.is_absent(), 19 + meta.managed_fields.entries().iter().map(entry).sum::<usize>());
    let spec = optional(spec.holder_identity.as_deref(), 20)
        + given(spec.lease_duration_seconds.is_some(), 28)
        + given(spec.acquire_time.is_some(), 44)
        + given(spec.renew_time.is_some(), 42)
        + given(spec.lease_transitions.is_some(), 24)
        + optional(spec.strategy.as_deref(), 14)
        + optional(spec.preferred_holder.as_deref(), 21);
    // The constants are the lengths of the type, the `resourceVersion`, the creation time, and a line feed.
    81 + 42 + 43 + metadata + spec
}

// The functions below append members of objects. Each member ends with a comma, and `close` replaces the last comma
// with the closing bracket. So the code for a member need not know whether the member is the first one.

/// Ends an object or an array. The bracket overwrites the comma after the last member.
fn close(out: &mut Vec<u8>, bracket: u8) {
    match out.last_mut() {
        Some(last @ b',') => *last = bracket,
        _ => out.push(bracket),
    }
}

/// Appends a member with a string, unless the string is empty.
#[inline]
fn push_text(out: &mut Vec<u8>, key: &[u8], text: &str) {
    if !text.is_empty() {
        push_optional_text(out, key, Some(text));
    }
}

/// Appends a member with a string if the string is present, even if it is empty.
#[inline]
fn push_optional_text(out: &mut Vec<u8>, key: &[u8], text: Option<&str>) {
    if let Some(text) = text {
        out.extend_from_slice(key);
        push_string(out, text);
        out.push(b',');
    }
}

fn push_integer(out: &mut Vec<u8>, key: &[u8], n: impl itoa::Integer) {
    out.extend_from_slice(key);
    out.extend_from_slice(itoa::Buffer::new().format(n).as_bytes());
    out.push(b',');
}

fn push_version(out: &mut Vec<u8>, version: ResourceVersion) {
    out.extend_from_slice(b"\"resourceVersion\":\"");
    out.extend_from_slice(itoa::Buffer::new().format(version.0).as_bytes());
    out.extend_from_slice(b"\",");
}

fn push_time_field(out: &mut Vec<u8>, key: &[u8], time: Option<Time>) {
    let Some(time) = time else { return };
    out.extend_from_slice(key);
    if is_zero_time(time) {
        out.extend_from_slice(b"null,");
    } else {
        out.push(b'"');
        push_time(out, time);
        out.extend_from_slice(b"\",");
    }
}

fn push_micro_time_field(out: &mut Vec<u8>, key: &[u8], time: Option<MicroTime>) {
    let Some(time) = time else { return };
    out.extend_from_slice(key);
    if is_zero_micro_time(time) {
        out.extend_from_slice(b"null,");
    } else {
        out.push(b'"');
        push_micro_time(out, time);
        out.extend_from_slice(b"\",");
    }
}

/// Appends a member with a list, unless the list is empty. `open` is the name of the member with the opening bracket.
fn push_list<T>(out: &mut Vec<u8>, open: &[u8], items: &[T], push: impl Fn(&mut Vec<u8>, &T)) {
    if items.is_empty() {
        return;
    }
    out.extend_from_slice(open);
    for item in items {
        push(out, item);
        out.push(b',');
    }
    close(out, b']');
    out.push(b',');
}

fn push_map(out: &mut Vec<u8>, open: &[u8], map: &StringMap) {
    if map.is_empty() {
        return;
    }
    out.extend_from_slice(open);
    for (key, value) in map.iter() {
        push_string(out, key);
        out.push(b':');
        push_string(out, value);
        out.push(b',');
    }
    close(out, b'}');
    out.push(b',');
}

/// Appends the Lease `json` in the API version `version`: changes only `apiVersion`. `json` is the output of
/// [`encode_lease_into`] with `kind` and `apiVersion`.
pub fn push_json_as(out: &mut Vec<u8>, json: &[u8], version: ApiVersion) {
    let from = push_type_meta(out, version);
    out.extend_from_slice(json.get(from..).unwrap_or_default());
}

/// Appends the start of a Lease, with `kind` and `apiVersion`, for an API version other than v1. Returns the number of
/// bytes at the start of [`encode_lease_into`]'s output that it replaces. For v1, appends nothing and returns 0, since
/// that output already has the right start.
#[inline]
pub fn push_type_meta(out: &mut Vec<u8>, version: ApiVersion) -> usize {
    match version {
        ApiVersion::V1 => 0,
        ApiVersion::V1Beta1 => {
            for part in ["{\"kind\":\"Lease\",\"apiVersion\":\"", version.group_version(), "\""] {
                out.extend_from_slice(part.as_bytes());
            }
            TYPE_META.len()
        }
    }
}

/// `kind` and `apiVersion` as [`encode_lease_into`] writes them.
const TYPE_META: &[u8] = b"{\"kind\":\"Lease\",\"apiVersion\":\"coordination.k8s.io/v1\"";

const LEASE_OPEN: &[u8] = b"{\"kind\":\"Lease\",\"apiVersion\":\"coordination.k8s.io/v1\",\"metadata\":{";
const LIST_ITEM_OPEN: &[u8] = b"{\"metadata\":{";

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api_error::{ApiError, FieldError, InvalidSubject};
    use crate::codec::bookmark::bookmark_lease;
    use crate::codec::text;
    use crate::lease::managed_fields::{ManagedFields, Writer, track};
    use crate::resource::API_VERSION;

    #[test]
    fn an_empty_lease_keeps_its_empty_parts() {
        let lease = Lease::default();
        assert_eq!(
            text(|out| encode_lease_into(out, &lease, None, true)),
            r#"{"kind":"Lease","apiVersion":"coordination.k8s.io/v1","metadata":{},"spec":{}}"#
        );
        assert_eq!(text(|out| encode_lease_into(out, &lease, None, false)), r#"{"metadata":{},"spec":{}}"#);
    }

    #[test]
    fn every_field_is_encoded_in_its_place() {
        let owner = OwnerReference {
            api_version: "v1".into(),
            kind: "Node".into(),
            name: "n".into(),
            uid: "u".into(),
            controller: Some(true),
            block_owner_deletion: Some(false),
        };
        let lease = Lease {
            metadata: ObjectMeta {
                name: "a<b".into(),
                generate_name: "g".into(),
                namespace: "ns".into(),
                self_link: "/s".into(),
                uid: "uid".into(),
                resource_version: String::new().into(),
                generation: 7,
                creation_timestamp: Some(Time(0)),
                deletion_timestamp: Some(Time(1)),
                deletion_grace_period_seconds: Some(0),
                labels: [("b".into(), "2".into()), ("a".into(), "1".into())].into_iter().collect(),
                annotations: [("k".into(), String::new().into())].into_iter().collect(),
                owner_references: vec![owner, OwnerReference::default()],
                finalizers: vec!["x/y".into(), "z".into()],
                managed_fields: ManagedFields::ABSENT,
            },
            spec: LeaseSpec {
                holder_identity: Some(String::new().into()),
                lease_duration_seconds: Some(40),
                acquire_time: Some(MicroTime(1)),
                renew_time: Some(MicroTime(-62_135_596_800_000_000)),
                lease_transitions: Some(0),
                strategy: Some("OldestEmulationVersion".into()),
                preferred_holder: Some("you".into()),
            },
        };
        assert_eq!(
            text(|out| encode_lease_into(out, &lease, Some(ResourceVersion(208)), false)),
            concat!(
                r#"{"metadata":{"name":"a\u003cb","generateName":"g","namespace":"ns","selfLink":"/s","uid":"uid","resourceVersion":"208","#,
                r#""generation":7,"creationTimestamp":"1970-01-01T00:00:00Z","deletionTimestamp":"1970-01-01T00:00:01Z","#,
                r#""deletionGracePeriodSeconds":0,"labels":{"a":"1","b":"2"},"annotations":{"k":""},"#,
                r#""ownerReferences":[{"apiVersion":"v1","kind":"Node","name":"n","uid":"u","controller":true,"#,
                r#""blockOwnerDeletion":false},{"apiVersion":"","kind":"","name":"","uid":""}],"finalizers":["x/y","z"]},"#,
                r#""spec":{"holderIdentity":"","leaseDurationSeconds":40,"acquireTime":"1970-01-01T00:00:00.000001Z","#,
                r#""renewTime":null,"leaseTransitions":0,"strategy":"OldestEmulationVersion","preferredHolder":"you"}}"#
            )
        );
    }

    /// The server stores the encoding of a Lease as long as the Lease exists. With a million Leases, spare capacity
    /// would take much memory.
    #[test]
    fn the_buffer_of_an_encoded_lease_has_little_spare_capacity() {
        let owner = OwnerReference {
            api_version: "v1".into(),
            kind: "Node".into(),
            name: "node-000001.example.com".into(),
            uid: "11111111-2222-3333-4444-555555555555".into(),
            ..OwnerReference::default()
        };
        let mut lease = Lease::named("kube-node-lease", "node-000001.example.com");
        lease.metadata.owner_references = vec![owner];
        lease.spec.holder_identity = Some("node-000001.example.com".into());
        lease.spec.lease_duration_seconds = Some(40);
        lease.spec.renew_time = Some(MicroTime(1_795_219_345_123_456));
        let writer = Writer { manager: "kubelet", api_version: API_VERSION, now: Time(1_795_219_345) };
        track(None, &mut lease, &writer);
        lease.metadata.uid = "5dfea7de-ed50-4ae2-986c-d87c7cf980f3".into();
        lease.metadata.creation_timestamp = Some(Time(1_795_219_345));
        let mut out = Vec::new();
        encode_lease_into(&mut out, &lease, Some(ResourceVersion(1_795_219_345_123_456)), true);
        out.push(b'\n');
        assert!(out.capacity() - out.len() < 32, "{} of {}", out.len(), out.capacity());
    }

    #[test]
    fn bookmarks_match_kube_apiserver() {
        assert_eq!(
            text(|out| encode_lease_into(out, &bookmark_lease(true), Some(ResourceVersion(209)), true)),
            r#"{"kind":"Lease","apiVersion":"coordination.k8s.io/v1","metadata":{"resourceVersion":"209","annotations":{"k8s.io/initial-events-end":"true"}},"spec":{}}"#
        );
        assert_eq!(
            text(|out| encode_lease_into(out, &bookmark_lease(false), Some(ResourceVersion(213)), true)),
            r#"{"kind":"Lease","apiVersion":"coordination.k8s.io/v1","metadata":{"resourceVersion":"213"},"spec":{}}"#
        );
    }

    #[test]
    fn statuses_match_kube_apiserver() {
        let not_found = ApiError::NotFound { name: "nothing".into() };
        assert_eq!(
            text(|out| encode_status_into(out, &not_found.status())),
            r#"{"kind":"Status","apiVersion":"v1","metadata":{},"status":"Failure","message":"leases.coordination.k8s.io \"nothing\" not found","reason":"NotFound","details":{"name":"nothing","group":"coordination.k8s.io","kind":"leases"},"code":404}"#
        );
        let unclassified = ApiError::Unclassified { message: "no".into() };
        assert_eq!(
            text(|out| encode_status_into(out, &unclassified.status())),
            r#"{"kind":"Status","apiVersion":"v1","metadata":{},"status":"Failure","message":"no","code":500}"#
        );
        assert_eq!(
            text(|out| encode_status_into(out, &Status::deleted("a", "u"))),
            r#"{"kind":"Status","apiVersion":"v1","metadata":{},"status":"Success","details":{"name":"a","group":"coordination.k8s.io","kind":"leases","uid":"u"}}"#
        );
        let expired = ApiError::Expired { message: "gone".into(), next: Some("t".into()) };
        assert_eq!(
            text(|out| encode_status_into(out, &expired.status())),
            r#"{"kind":"Status","apiVersion":"v1","metadata":{"continue":"t"},"status":"Failure","message":"gone","reason":"Expired","code":410}"#
        );
        assert!(
            text(|out| encode_status_into(out, &ApiError::PathNotFound.status()))
                .ends_with(r#","reason":"NotFound","details":{},"code":404}"#)
        );
    }

    #[test]
    fn causes_and_retry_seconds_are_in_details() {
        let invalid = ApiError::Invalid {
            subject: InvalidSubject::Lease,
            name: String::new(),
            causes: vec![FieldError::required("metadata.name", "name or generateName is required")],
        };
        assert_eq!(
            text(|out| encode_status_into(out, &invalid.status())),
            r#"{"kind":"Status","apiVersion":"v1","metadata":{},"status":"Failure","message":"Lease.coordination.k8s.io \"\" is invalid: metadata.name: Required value: name or generateName is required","reason":"Invalid","details":{"group":"coordination.k8s.io","kind":"Lease","causes":[{"reason":"FieldValueRequired","message":"Required value: name or generateName is required","field":"metadata.name"}]},"code":422}"#
        );
        let too_large = ApiError::TooLargeResourceVersion { requested: 9, current: 1, retry_after_seconds: 1 };
        assert!(
            text(|out| encode_status_into(out, &too_large.status()))
                .ends_with(r#""causes":[{"reason":"ResourceVersionTooLarge","message":"Too large resource version"}],"retryAfterSeconds":1},"code":504}"#)
        );
    }
}
