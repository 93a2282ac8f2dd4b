//! Tests with bodies that were recorded from a real kube-apiserver. Decoded protobuf must encode to the same bytes. The
//! recorded JSON of the same objects must encode to these bytes too. Truncated, mutated and random messages must not
//! cause a panic.

use super::*;
use crate::api_error::ApiError;
use crate::codec::bookmark::bookmark_lease;
use crate::codec::discovery::{
    Group, GroupDiscovery, GroupDiscoveryList, GroupList, GroupVersion, GroupVersionKind, Name, Resource,
    ResourceDiscovery, ResourceList, VersionDiscovery,
};
use crate::codec::json::{Decoder, encode_lease_into as encode_json_into};
use crate::codec::list_meta::ListMeta;
use crate::lease::managed_fields::{FieldsV1, ManagedFields, SentEntry, SentManagedFields};
use crate::lease::{Lease, LeaseSpec, ObjectMeta, OwnerReference};
use crate::resource::{API_VERSION, ApiVersion, MetaVersion, ResourceVersion};
use crate::timestamp::{MicroTime, Time};
use compact_str::CompactString;

macro_rules! wire {
    ($file:literal) => {
        include_bytes!(concat!("../../../tests/wire/", $file))
    };
}

const BARE: &[u8] = wire!("lease-bare.pb");
const FULL: &[u8] = wire!("lease-full.pb");

fn bytes(encode: impl FnOnce(&mut Vec<u8>)) -> Vec<u8> {
    let mut out = Vec::new();
    encode(&mut out);
    out
}

fn lease(body: &[u8]) -> Lease {
    decode_lease(body, ApiVersion::V1).expect("a Lease").lease
}

/// Splits a Lease as the server stores it: the Lease without its `resourceVersion`, and the `resourceVersion`.
fn stored(mut lease: Lease) -> (Lease, Option<ResourceVersion>) {
    let version = std::mem::take(&mut lease.metadata.resource_version);
    (lease, version.parse().ok().map(ResourceVersion))
}

fn encoded(lease: Lease) -> Vec<u8> {
    let (lease, version) = stored(lease);
    bytes(|out| encode_lease_into(out, &lease, version, API_VERSION))
}

fn from_json(json: &str) -> Lease {
    Decoder::new().decode_lease(json.as_bytes(), ApiVersion::V1).expect(json).lease
}

#[test]
fn leases_decode_and_encode_to_the_same_bytes() {
    for (body, json) in [(BARE, &wire!("lease-bare.json")[..]), (FULL, wire!("lease-full.json"))] {
        assert_eq!(encoded(lease(body)), body);
        let json = std::str::from_utf8(json).expect("UTF-8").trim_end();
        assert_eq!(lease(body), from_json(json));
        assert_eq!(encoded(from_json(json)), body);
        let (lease, version) = stored(lease(body));
        assert_eq!(bytes(|out| encode_json_into(out, &lease, version, true)), json.as_bytes());
    }
}

#[test]
fn partial_metadata_matches_kube_apiserver() {
    let (lease, version) = stored(lease(FULL));
    let partial = bytes(|out| encode_partial_into(out, &lease.metadata, version, MetaVersion::V1));
    assert_eq!(partial, wire!("partial-full.pb"));
}

fn list(form: ListForm<'_>, leases: &[(Lease, Option<ResourceVersion>)]) -> Vec<u8> {
    let versioned = || leases.iter().map(|(lease, version)| (lease, version.expect("a version")));
    let items_len = match form {
        ListForm::Leases { .. } => versioned().map(|(lease, version)| lease_len(lease, version)).sum(),
        ListForm::Partial(_) => versioned().map(|(lease, version)| partial_len(&lease.metadata, version)).sum(),
    };
    let head = ListHead { form, meta: ListMeta::at(ResourceVersion(209)), items_len };
    bytes(|out| {
        head.push(out);
        for (lease, version) in versioned() {
            match form {
                ListForm::Leases { .. } => push_lease_item(out, lease, version),
                ListForm::Partial(_) => push_partial_item(out, &lease.metadata, version, form),
            }
        }
        head.push_tail(out);
    })
}

#[test]
fn lists_match_kube_apiserver() {
    let leases = [stored(lease(BARE)), stored(lease(FULL))];
    let form = ListForm::Leases { api_version: API_VERSION };
    assert_eq!(list(form, &[]), wire!("list-none.pb"));
    assert_eq!(list(form, &leases), wire!("list.pb"));
    assert_eq!(list(ListForm::Partial(MetaVersion::V1), &leases), wire!("partial-list.pb"));
    // The same list of Leases, made from the encoded bodies of its items.
    let messages = [raw_message(BARE), raw_message(FULL)];
    let items_len = messages.into_iter().map(raw_item_len).sum();
    let head = ListHead { form, meta: ListMeta::at(ResourceVersion(209)), items_len };
    let from_raw = bytes(|out| {
        head.push(out);
        messages.into_iter().for_each(|message| push_raw_item(out, message));
        head.push_tail(out);
    });
    assert_eq!(from_raw, wire!("list.pb"));
}

#[test]
fn a_v1beta1_partial_list_has_its_items_before_its_metadata() {
    let leases = [stored(lease(BARE))];
    let newer = list(ListForm::Partial(MetaVersion::V1), &leases);
    let older = list(ListForm::Partial(MetaVersion::V1Beta1), &leases);
    let (newer, older) = (raw_message(&newer), raw_message(&older));
    let meta_len = 11;
    let (meta, items) = newer.split_at(meta_len);
    let (older_items, older_meta) = older.split_at(older.len() - meta_len);
    assert_eq!((meta[0], items[0], older_items[0], older_meta[0]), (0x0a, 0x12, 0x0a, 0x12));
    assert_eq!((&meta[1..], &items[1..]), (&older_meta[1..], &older_items[1..]));
}

#[test]
fn statuses_match_kube_apiserver() {
    let status = ApiError::NotFound { name: "nothing".into() }.status();
    assert_eq!(bytes(|out| encode_status_into(out, &status)), wire!("status-404.pb"));
}

#[test]
fn discovery_matches_kube_apiserver() {
    let verbs = &["create", "delete", "deletecollection", "get", "list", "patch", "update", "watch"];
    let leases = Resource {
        name: "leases",
        singular_name: "lease",
        namespaced: true,
        kind: "Lease",
        verbs,
        storage_version_hash: "gqkMMb/YqFM=",
    };
    let list = ResourceList { group_version: API_VERSION, resources: vec![leases] };
    let document = bytes(|out| encode_discovery_into(out, "v1", "APIResourceList", &list));
    assert_eq!(document, wire!("discovery-legacy-version.pb"));

    let [v1, v1beta1] = ["v1", "v1beta1"].map(|version| GroupVersion {
        group_version: if version == "v1" { API_VERSION } else { "coordination.k8s.io/v1beta1" },
        version,
    });
    let group = Group { name: "coordination.k8s.io", versions: vec![v1, v1beta1], preferred_version: v1 };
    let one = bytes(|out| encode_discovery_into(out, "v1", "APIGroup", &group));
    assert_eq!(one, wire!("discovery-legacy-group.pb"));
    let all = bytes(|out| encode_discovery_into(out, "v1", "APIGroupList", &GroupList { groups: vec![group] }));
    assert_eq!(raw_message(&all).get(2..), Some(raw_message(&one)));

    let version = |version, resource, kind, singular_resource| VersionDiscovery {
        version,
        resources: vec![ResourceDiscovery {
            resource,
            response_kind: GroupVersionKind { group: "", version: "", kind },
            scope: "Namespaced",
            singular_resource,
            verbs,
        }],
        freshness: "Current",
    };
    let versions = vec![
        version("v1", "leases", "Lease", "lease"),
        version("v1beta1", "leasecandidates", "LeaseCandidate", "leasecandidate"),
    ];
    let group = GroupDiscovery { metadata: Name { name: "coordination.k8s.io" }, versions };
    let list = GroupDiscoveryList { items: vec![group], ..GroupDiscoveryList::default() };
    let document = bytes(|out| encode_discovery_into(out, "apidiscovery.k8s.io/v2", "APIGroupDiscoveryList", &list));
    // The message has the metadata of the list (8 bytes), the key and the length of the only item (3 bytes), and the
    // item.
    let message = raw_message(&document);
    assert_eq!(message.get(..8), Some(&b"\x0a\x06\x0a\0\x12\0\x1a\0"[..]));
    assert_eq!(message.get(11..), Some(&wire!("discovery-aggregated-group.pb")[..]));
}

#[test]
fn watch_frames_match_kube_apiserver() {
    let mut recorded = &wire!("watch.pb")[..];
    let mut events = std::str::from_utf8(wire!("watch.json")).expect("UTF-8").lines();
    let mut count = 0;
    while let Some((size, rest)) = recorded.split_first_chunk::<4>() {
        let size = usize::try_from(u32::from_be_bytes(*size)).expect("small");
        let frame = &recorded[..4 + size];
        recorded = &rest[size..];
        // The frame is `WatchEvent { type, object { raw } }`. The raw bytes are a body with its envelope.
        let type_len = usize::from(frame[5]);
        let event_type = std::str::from_utf8(&frame[6..6 + type_len]).expect("ASCII");
        let at = frame.windows(4).position(|bytes| bytes == b"k8s\0").expect("a body");
        let body = &frame[at..];
        assert_eq!(bytes(|out| push_watch_event(out, event_type, |out| out.extend_from_slice(body))), frame);
        let (lease, version) = stored(lease(body));
        let event = bytes(|out| {
            push_watch_event(out, event_type, |out| encode_lease_into(out, &lease, version, API_VERSION));
        });
        assert_eq!(event, frame);
        if event_type == "BOOKMARK" {
            let is_end = !lease.metadata.annotations.is_empty();
            let bookmark = bytes(|out| encode_lease_into(out, &bookmark_lease(is_end), version, API_VERSION));
            assert_eq!(bookmark, body);
        }
        // The two recordings of a watch, in protobuf and in JSON, were made one after the other. So only their first
        // two events are about the same objects.
        let json: serde_json::Value = serde_json::from_str(events.next().expect("an event")).expect("JSON");
        assert_eq!(json["type"], event_type);
        if count < 2 {
            assert_eq!(from_json(&json["object"].to_string()), self::lease(body));
        }
        count += 1;
    }
    assert_eq!((count, recorded.len(), events.next()), (7, 0, None));
}

#[test]
fn cut_and_mutated_bodies_never_panic() {
    for body in [BARE, FULL] {
        for end in 0..body.len() {
            let _ = decode_lease(&body[..end], ApiVersion::V1);
            let _ = decode_delete_options(&body[..end]);
        }
    }
    let mut random = fastrand::Rng::with_seed(5);
    for _ in 0..50_000 {
        let mut body = FULL.to_vec();
        for _ in 0..random.usize(1..6) {
            let at = random.usize(4..body.len());
            match random.u8(..3) {
                0 => body[at] = random.u8(..),
                1 => body[at] ^= 1 << random.u8(..8),
                _ => body.truncate(at.max(5)),
            }
        }
        if let Ok(decoded) = decode_lease(&body, ApiVersion::V1) {
            // An accepted body can be encoded again. The result decodes to the same Lease. The comparison leaves out
            // `managedFields`: an empty list is encoded like an absent one.
            let again = encoded(decoded.lease.clone());
            let [before, after] = [decoded.lease, lease(&again)].map(|lease| {
                let (mut lease, _) = stored(lease);
                lease.metadata.managed_fields = ManagedFields::default();
                lease
            });
            assert_eq!(after, before);
        }
        let _ = decode_delete_options(&body);
    }
    for _ in 0..50_000 {
        let mut body = b"k8s\0".to_vec();
        body.extend((0..random.usize(..40)).map(|_| random.u8(..)));
        let _ = decode_lease(&body, ApiVersion::V1);
        let _ = decode_delete_options(&body);
    }
}

#[test]
fn random_leases_round_trip() {
    let mut random = fastrand::Rng::with_seed(6);
    for _ in 0..3_000 {
        let lease = random_lease(&mut random);
        let version = ResourceVersion(random.u64(..));
        let body = bytes(|out| encode_lease_into(out, &lease, Some(version), API_VERSION));
        let (decoded, found) = stored(self::lease(&body));
        assert_eq!((&decoded, found), (&lease, Some(version)));
        let message = raw_message(&body);
        assert_eq!(lease_len(&lease, version), raw_item_len(message));
        assert!(lease_len(&lease, version) <= lease_len_max(&lease), "{lease:?}");
        let partial = bytes(|out| encode_partial_into(out, &lease.metadata, Some(version), MetaVersion::V1));
        assert_eq!(partial_len(&lease.metadata, version), raw_item_len(raw_message(&partial)));
        let older = bytes(|out| encode_lease_into(out, &lease, Some(version), "coordination.k8s.io/v1beta1"));
        assert_eq!(stored(decode_lease(&older, ApiVersion::V1Beta1).expect("a Lease").lease).0, lease);
    }
}

fn text(random: &mut fastrand::Rng) -> CompactString {
    let most = if random.u8(..) == 0 { 20_000 } else { 150 };
    (0..random.usize(..most)).map(|_| random.char(..)).collect()
}

fn some<T>(random: &mut fastrand::Rng, make: impl FnOnce(&mut fastrand::Rng) -> T) -> Option<T> {
    random.bool().then(|| make(random))
}

fn random_lease(random: &mut fastrand::Rng) -> Lease {
    let mut pairs = || (0..random.usize(..4)).map(|_| (text(random), text(random))).collect();
    let (labels, annotations) = (pairs(), pairs());
    let owner_references = (0..random.usize(..3)).map(|_| OwnerReference {
        api_version: text(random),
        kind: text(random),
        name: text(random),
        uid: text(random),
        controller: some(random, fastrand::Rng::bool),
        block_owner_deletion: some(random, fastrand::Rng::bool),
    });
    let owner_references = owner_references.collect();
    let mut managed_fields = SentManagedFields::default();
    let entries = random.usize(..3);
    for _ in 0..entries {
        managed_fields.push(SentEntry {
            manager: text(random),
            operation: if random.bool() { "Apply".into() } else { "Update".into() },
            api_version: "v1".into(),
            time: some(random, |random| Time(random.i64(..))),
            fields_type: FieldsV1::TYPE.into(),
            fields: Some(FieldsV1::from_client(&text(random))),
            subresource: text(random),
        });
    }
    let managed_fields = if entries == 0 { ManagedFields::ABSENT } else { managed_fields.finish() };
    let micro_time = |random: &mut fastrand::Rng| MicroTime(random.i64(-4_000_000_000_000_000..4_000_000_000_000_000));
    Lease {
        metadata: ObjectMeta {
            name: text(random),
            generate_name: text(random),
            namespace: text(random),
            self_link: text(random),
            uid: text(random),
            resource_version: CompactString::default(),
            generation: random.i64(..),
            creation_timestamp: some(random, |random| Time(random.i64(..))),
            deletion_timestamp: some(random, |random| Time(random.i64(..))),
            deletion_grace_period_seconds: some(random, |random| random.i64(..)),
            labels,
            annotations,
            owner_references,
            finalizers: (0..random.usize(..3)).map(|_| text(random)).collect(),
            managed_fields,
        },
        spec: LeaseSpec {
            holder_identity: some(random, text),
            lease_duration_seconds: some(random, |random| random.i32(..)),
            acquire_time: some(random, micro_time),
            renew_time: some(random, micro_time),
            lease_transitions: some(random, |random| random.i32(..)),
            strategy: some(random, text),
            preferred_holder: some(random, text),
        },
    }
}
