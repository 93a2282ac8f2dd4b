//! `v1beta1` beside `v1`: clients of both versions see the same Leases, and each response has the requested version.

#![allow(clippy::panic, clippy::unwrap_used, reason = "tests fail by panicking")]

mod support;

use serde_json::{Value, json};
use support::client::Client;
use support::exposition::Exposition;
use support::lease::item;
use support::response::Response;
use support::server::TestServer;
use support::watch::{Watch, kind};

const V1: &str = "coordination.k8s.io/v1";
const V1BETA1: &str = "coordination.k8s.io/v1beta1";
const PROTOBUF: &str = "application/vnd.kubernetes.protobuf";

fn collection(api_version: &str) -> String {
    format!("/apis/{api_version}/namespaces/n/leases")
}

fn path(api_version: &str, name: &str) -> String {
    format!("{}/{name}", collection(api_version))
}

fn lease(api_version: &str, name: &str) -> Value {
    json!({
        "apiVersion": api_version, "kind": "Lease", "metadata": {"name": name},
        "spec": {"holderIdentity": "h", "leaseDurationSeconds": 40, "strategy": "OldestEmulationVersion"},
    })
}

fn patch(client: &mut Client, target: &str, media_type: &str, body: &Value) -> Response {
    let lines = format!("User-Agent: test/1.0\r\nContent-Type: {media_type}\r\n");
    client.call_with("PATCH", target, &lines, body.to_string())
}

/// Returns the object without its `apiVersion`.
fn bare(mut object: Value) -> Value {
    object.as_object_mut().unwrap().remove("apiVersion").expect("it has one");
    object
}

/// Returns the managers with their operations and versions, sorted. They are sorted because the order of the entries
/// may vary: the server orders them by the second of each write.
fn managers(object: &Value) -> Vec<(&str, &str, &str)> {
    fn text<'v>(entry: &'v Value, name: &str) -> &'v str {
        entry[name].as_str().unwrap_or_default()
    }
    let entries = object["metadata"]["managedFields"].as_array().expect("managedFields");
    let mut managers: Vec<_> = entries
        .iter()
        .map(|entry| (text(entry, "manager"), text(entry, "operation"), text(entry, "apiVersion")))
        .collect();
    managers.sort_unstable();
    managers
}

#[test]
fn a_lease_is_the_same_in_both_versions() {
    let server = TestServer::start();
    let client = &mut server.client();
    let (old, new) = (V1BETA1, V1);
    let created = client.call("POST", &collection(old), &lease(old, "a").to_string()).expect_status(201, "create");
    assert!(created.body.starts_with(br#"{"kind":"Lease","apiVersion":"coordination.k8s.io/v1beta1","metadata":{"#));
    let created = created.json();
    assert_eq!(created["spec"]["strategy"], "OldestEmulationVersion");
    let read = client.call("GET", &path(new, "a"), "").json();
    assert_eq!(read["apiVersion"], V1);
    assert_eq!(bare(read.clone()), bare(created));
    assert_eq!(managers(&read), [("test", "Update", V1BETA1)]);

    // A renewal in v1 adds an entry for v1, which owns the fields that the renewal changes. The entry for v1beta1 keeps
    // the other fields.
    let mut renewed = read;
    renewed["spec"]["renewTime"] = "2026-01-02T03:04:05.678901Z".into();
    let renewed = client.call("PUT", &path(new, "a"), &renewed.to_string()).expect_status(200, "renew").json();
    assert_eq!(managers(&renewed), [("test", "Update", V1), ("test", "Update", V1BETA1)]);

    for target in [collection(old), "/apis/coordination.k8s.io/v1beta1/leases".to_owned(), collection(old) + "?limit=5"]
    {
        let list = client.call("GET", &target, "").expect_status(200, &target).json();
        assert_eq!((&list["kind"], &list["apiVersion"]), (&json!("LeaseList"), &json!(V1BETA1)));
        assert_eq!(list["items"][0], item(&renewed), "{target}");
    }
    // An update that changes nothing is a no-op in the other version too: even `managedFields` stays the same.
    let again = client.call("GET", &path(old, "a"), "").json();
    let same = client.call("PUT", &path(old, "a"), &again.to_string()).expect_status(200, "no-op").json();
    assert_eq!(same, again);
    client.call("DELETE", &path(old, "a"), "").expect_status(200, "delete");
    client.call("GET", &path(new, "a"), "").expect_failure(404, "NotFound", "deleted");
}

#[test]
fn a_body_of_the_other_version_is_refused() {
    let server = TestServer::start();
    let client = &mut server.client();
    for (asked, sent) in [(V1, V1BETA1), (V1BETA1, V1)] {
        let words = format!("the API version in the data ({sent}) does not match the expected API version ({asked})");
        let body = lease(sent, "a").to_string();
        let refused = client.call("POST", &collection(asked), &body).expect_failure(400, "BadRequest", &body).json();
        assert_eq!(refused["message"], words);
        let apply =
            patch(client, &(path(asked, "a") + "?fieldManager=m"), "application/apply-patch+yaml", &lease(sent, "a"));
        let (group, version) = sent.split_once('/').unwrap();
        let words = format!("invalid object type: {group}/{version}, Kind=Lease");
        assert_eq!(apply.expect_failure(400, "BadRequest", "apply").json()["message"], words);
    }
    // A body of the wrong version is still decoded, and unknown fields cause a warning. With strict validation, the
    // refusal names the unknown fields and not the wrong version.
    let unknown = format!(r#"{{"apiVersion":"{V1BETA1}","kind":"Lease","metadata":{{"name":"a"}},"nope":1}}"#);
    let refused = client.call("POST", &collection(V1), &unknown).expect_failure(400, "BadRequest", &unknown);
    assert_eq!(refused.head.field("warning"), Some(r#"299 - "unknown field \"nope\"""#));
    let strict = collection(V1) + "?fieldValidation=Strict";
    let refused = client.call("POST", &strict, &unknown).expect_failure(400, "BadRequest", &unknown).json();
    let words =
        r#"Lease in version "v1beta1" cannot be handled as a Lease: strict decoding error: unknown field "nope""#;
    assert_eq!(refused["message"], words);
    let spec = r#"{"spec":5}"#;
    let refused = client.call("POST", &collection(V1BETA1), spec).expect_failure(400, "BadRequest", spec).json();
    let words = r#"Lease in version "v1beta1" cannot be handled as a Lease: json: cannot unmarshal number into Go struct field Lease.spec of type v1beta1.LeaseSpec"#;
    assert_eq!(refused["message"], words);
    // A body without a version has the path's version.
    let created =
        client.call("POST", &collection(V1BETA1), r#"{"metadata":{"name":"b"}}"#).expect_status(201, "b").json();
    assert_eq!(created["apiVersion"], V1BETA1);
}

#[test]
fn every_patch_sees_its_own_version() {
    let server = TestServer::start();
    let client = &mut server.client();
    client.call("POST", &collection(V1), &lease(V1, "a").to_string()).expect_status(201, "create");
    let own = json!([{"op": "test", "path": "/apiVersion", "value": V1BETA1}, {"op": "add", "path": "/spec/leaseTransitions", "value": 1}]);
    let target = path(V1BETA1, "a");
    let got = patch(client, &target, "application/json-patch+json", &own).expect_status(200, "json patch").json();
    assert_eq!((&got["apiVersion"], &got["spec"]["leaseTransitions"]), (&json!(V1BETA1), &json!(1)));
    assert_eq!(managers(&got), [("test", "Update", V1), ("test", "Update", V1BETA1)]);
    patch(client, &path(V1, "a"), "application/json-patch+json", &own).expect_status(422, "json patch");
    for media_type in ["application/merge-patch+json", "application/strategic-merge-patch+json"] {
        let change = json!({"apiVersion": V1BETA1, "metadata": {"labels": {"by": media_type.len().to_string()}}});
        let got = patch(client, &target, media_type, &change).expect_status(200, media_type).json();
        assert_eq!(got["apiVersion"], V1BETA1);
        assert_eq!(got["metadata"]["labels"]["by"], media_type.len().to_string());
    }
}

#[test]
fn field_ownership_spans_api_versions() {
    let server = TestServer::start();
    let client = &mut server.client();
    let apply = |client: &mut Client, api_version: &str, manager: &str, spec: Value| {
        let config = json!({"apiVersion": api_version, "kind": "Lease", "metadata": {"name": "a"}, "spec": spec});
        let target = format!("{}?fieldManager={manager}", path(api_version, "a"));
        patch(client, &target, "application/apply-patch+yaml", &config)
    };
    let applied = apply(client, V1BETA1, "one", json!({"holderIdentity": "x", "leaseTransitions": 1}));
    assert_eq!(managers(&applied.expect_status(201, "apply").json()), [("one", "Apply", V1BETA1)]);
    // The same manager applies again, in the other version. It still has one entry in `managedFields`, without the
    // fields that it no longer names.
    let applied = apply(client, V1, "one", json!({"holderIdentity": "x"})).expect_status(200, "apply again").json();
    assert_eq!(managers(&applied), [("one", "Apply", V1)]);
    assert_eq!(applied["spec"], json!({"holderIdentity": "x"}));
    let conflict = apply(client, V1BETA1, "two", json!({"holderIdentity": "y"})).expect_failure(409, "Conflict", "two");
    let words = "Apply failed with 1 conflict: conflict with \"one\": .spec.holderIdentity";
    assert_eq!(conflict.json()["message"], words);
    // If the owner of a field has set it by an Update, the conflict also names the API version.
    let change = json!({"spec": {"leaseTransitions": 7}});
    patch(client, &path(V1BETA1, "a"), "application/merge-patch+json", &change).expect_status(200, "patch");
    let conflict = apply(client, V1, "two", json!({"leaseTransitions": 8})).expect_failure(409, "Conflict", "two");
    let words = format!("Apply failed with 1 conflict: conflict with \"test\" using {V1BETA1}: .spec.leaseTransitions");
    let message = conflict.json()["message"].as_str().unwrap().to_owned();
    assert_eq!(message, words);
}

#[test]
fn watches_use_their_own_version() {
    let server = TestServer::start();
    let client = &mut server.client();
    let query = "?watch=true&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true&timeoutSeconds=1";
    let mut old = Watch::open(&server.endpoint(), &(collection(V1BETA1) + query));
    let mut new = Watch::open(&server.endpoint(), &(collection(V1) + query));
    client.call("POST", &collection(V1), &lease(V1, "a").to_string()).expect_status(201, "create");
    client.call("DELETE", &path(V1, "a"), "").expect_status(200, "delete");
    let (old, new) = (old.rest(), new.rest());
    let kinds: Vec<_> = old.iter().map(kind).collect();
    assert_eq!(kinds[..3], ["BOOKMARK", "ADDED", "DELETED"]);
    assert_eq!(old.len(), new.len());
    for (old, new) in old.iter().zip(&new) {
        assert_eq!((&old["object"]["apiVersion"], &new["object"]["apiVersion"]), (&json!(V1BETA1), &json!(V1)));
        assert_eq!(bare(old["object"].clone()), bare(new["object"].clone()));
    }
    // A watch of v1beta1 from an expired version gets the same `Status` as a watch of v1.
    let mut expired = Watch::open(&server.endpoint(), &(collection(V1BETA1) + "?watch=true&resourceVersion=1"));
    support::watch::expect_expired(&expired.next());
}

/// Returns `apiVersion` from the envelope of a protobuf body.
fn envelope_version(body: &[u8]) -> &str {
    let rest = body.strip_prefix(b"k8s\0\x0a").expect("an envelope");
    let length = usize::from(rest[2]);
    std::str::from_utf8(&rest[3..3 + length]).expect("text")
}

#[test]
fn protobuf_yaml_and_tables_have_the_requested_version() {
    let server = TestServer::start();
    let client = &mut server.client();
    let accept = format!("Accept: {PROTOBUF}\r\n");
    client.call("POST", &collection(V1), &lease(V1, "a").to_string()).expect_status(201, "create");
    let get = |client: &mut Client, target: &str, accept: &str| {
        client.call_with("GET", target, accept, "").expect_status(200, target)
    };
    let mut messages = Vec::new();
    for version in [V1, V1BETA1] {
        let object = get(client, &path(version, "a"), &accept);
        assert_eq!(envelope_version(&object.body), version);
        let list = get(client, &collection(version), &accept);
        assert_eq!(envelope_version(&list.body), version);
        // The content of the envelope after its type is the same in both versions.
        let type_end = object.body.windows(5).position(|part| part == b"Lease").expect("a kind") + 5;
        messages.push(object.body[type_end..].to_vec());
        // An object that was read can be written back in its own version only.
        let lines = format!("User-Agent: test/1.0\r\nContent-Type: {PROTOBUF}\r\n");
        client.call_with("PUT", &path(version, "a"), &lines, &object.body).expect_status(200, "written back");
        let other = if version == V1 { V1BETA1 } else { V1 };
        let refused = client.call_with("PUT", &path(other, "a"), &lines, &object.body);
        let words =
            format!("the API version in the data ({version}) does not match the expected API version ({other})");
        assert_eq!(refused.expect_failure(400, "BadRequest", "the other version").json()["message"], words);
    }
    assert_eq!(messages[0], messages[1]);
    let yaml = get(client, &path(V1BETA1, "a"), "Accept: application/yaml\r\n");
    assert!(yaml.body.starts_with(b"apiVersion: coordination.k8s.io/v1beta1\nkind: Lease\n"));
    let table = "Accept: application/json;as=Table;v=v1;g=meta.k8s.io\r\n";
    for (include, want) in [("Object", V1BETA1), ("Metadata", "meta.k8s.io/v1")] {
        for target in [collection(V1BETA1), path(V1BETA1, "a")] {
            let table = get(client, &format!("{target}?includeObject={include}"), table).json();
            assert_eq!(table["apiVersion"], "meta.k8s.io/v1");
            assert_eq!(table["rows"][0]["object"]["apiVersion"], want, "{target} {include}");
        }
    }
    let partial = "Accept: application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io\r\n";
    let partial = get(client, &collection(V1BETA1), partial).json();
    assert_eq!(
        (&partial["apiVersion"], &partial["items"][0]["apiVersion"]),
        (&json!("meta.k8s.io/v1"), &json!("meta.k8s.io/v1"))
    );
}

#[test]
fn requests_are_counted_by_version() {
    let server = TestServer::start();
    let client = &mut server.client();
    client.call("GET", &collection(V1BETA1), "").expect_status(200, "a list");
    client.call("GET", &collection(V1BETA1), "").expect_status(200, "a list");
    client.call("GET", &collection(V1), "").expect_status(200, "a list");
    let metrics = Exposition::of(client.call("GET", "/metrics", ""));
    for (version, count) in [("v1beta1", 2.0), ("v1", 1.0)] {
        let series = format!(
            "apiserver_request_total{{verb=\"LIST\",dry_run=\"\",group=\"coordination.k8s.io\",version=\"{version}\",resource=\"leases\",subresource=\"\",scope=\"namespace\",component=\"apiserver\",code=\"200\"}}"
        );
        assert_eq!(metrics.value(&series), count);
    }
}
