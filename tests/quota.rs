//! The quota for the bytes of all Leases, and the part of it that one namespace may use: half of what the other
//! namespaces leave free.

#![allow(clippy::panic, clippy::unwrap_used, reason = "tests fail by panicking")]

mod support;

use coordination_apiserver::limits::METERED_BYTES_MIN;
use coordination_apiserver::server::{Config, StorageConfig};
use serde_json::{Value, json};
use support::client::Client;
use support::exposition::Exposition;
use support::http2::{Http2Client, Message};
use support::lease;
use support::server::{TestServer, is_durable};

/// Starts a server whose quota fits `leases` short Leases.
fn server_for(leases: usize) -> TestServer {
    TestServer::start_with(Config { lease_quota_bytes: leases * METERED_BYTES_MIN, ..Config::default() })
}

#[track_caller]
fn create(client: &mut Client, namespace: &str, name: &str) -> Value {
    client.call("POST", &lease::collection(namespace), &lease::new(name)).expect_status(201, name).json()
}

#[track_caller]
fn expect_used(client: &mut Client, leases: usize) {
    let metrics = Exposition::of(client.call("GET", "/metrics", ""));
    let used = metrics.value("coordination_lease_quota_used_bytes").to_string();
    assert_eq!(used, (leases * METERED_BYTES_MIN).to_string());
}

#[test]
fn writes_beyond_the_quota_are_refused_for_all_verbs_until_there_is_room() {
    let server = server_for(3);
    let mut client = server.client();
    create(&mut client, "x", "a");
    create(&mut client, "y", "a");
    expect_used(&mut client, 2);

    let (collection, free) = (lease::collection("z"), lease::path("z", "b"));
    let message = format!(
        "leases.coordination.k8s.io \"b\" is forbidden: exceeded quota: lease-quota-bytes, requested: bytes={}, \
         used: bytes=0, limited: bytes={}",
        METERED_BYTES_MIN,
        METERED_BYTES_MIN / 2
    );
    for (method, target) in
        [("POST", collection.clone()), ("POST", format!("{collection}?dryRun=All")), ("PUT", free.clone())]
    {
        let refused = client.call(method, &target, &lease::new("b")).expect_failure(403, "Forbidden", &target);
        assert_eq!(refused.json()["message"], message.as_str(), "{method} {target}");
    }
    client.call("GET", &free, "").expect_failure(404, "NotFound", "the Lease was not stored");

    client.call("DELETE", &lease::path("x", "a"), "").expect_status(200, "a deletion makes room");
    create(&mut client, "z", "b");
    client.call("DELETE", &lease::collection("z"), "").expect_status(200, "all of a namespace");
    expect_used(&mut client, 1);
}

#[test]
fn a_full_quota_does_not_refuse_renewals() {
    let server = server_for(3);
    let mut client = server.client();
    let mut held: Value = serde_json::from_str(&lease::new("a")).unwrap();
    held["metadata"]["annotations"] = json!({"b": "y".repeat(1000)});
    let mut held = client.call("POST", &lease::collection("x"), &held.to_string()).expect_status(201, "a").json();
    client.call("POST", &lease::collection("x"), &lease::new("b")).expect_failure(403, "Forbidden", "full");

    let target = lease::path("x", "a");
    for (second, holder) in [(1, "h"), (2, "h"), (3, "another holder, whose name is longer"), (4, "h")] {
        held["spec"]["holderIdentity"] = holder.into();
        held["spec"]["renewTime"] = format!("2026-01-02T03:04:0{second}.000000Z").into();
        held = client.call("PUT", &target, &held.to_string()).expect_status(200, holder).json();
    }
    // A change that makes the Lease longer needs quota, and not enough is left.
    let mut long = held.clone();
    long["metadata"]["annotations"] = json!({"a": "x".repeat(METERED_BYTES_MIN)});
    client.call("PUT", &target, &long.to_string()).expect_failure(403, "Forbidden", "longer");
    let patch = json!({"metadata": {"annotations": {"a": "x".repeat(METERED_BYTES_MIN)}}}).to_string();
    client.call("PATCH", &target, &patch).expect_failure(403, "Forbidden", "longer, with a patch");
    assert_eq!(client.call("GET", &target, "").json(), held);
}

#[test]
fn a_long_lease_can_be_shortened_at_a_full_quota() {
    let server = server_for(24);
    let mut client = server.client();
    let mut long: Value = serde_json::from_str(&lease::new("a")).unwrap();
    long["metadata"]["annotations"] = json!({"a": "x".repeat(METERED_BYTES_MIN), "b": "1"});
    let mut long = client.call("POST", &lease::collection("x"), &long.to_string()).expect_status(201, "long").json();
    let short = json!({"metadata": {"generateName": "n-"}}).to_string();
    while client.call("POST", &lease::collection("x"), &short).status() == 201 {}
    let target = lease::path("x", "a");
    for text in ["2", ""] {
        long["metadata"]["annotations"]["b"] = text.into();
        long = client.call("PUT", &target, &long.to_string()).expect_status(200, "not longer than before").json();
    }
    long["metadata"]["annotations"] = json!({});
    client.call("PUT", &target, &long.to_string()).expect_status(200, "short");
    create(&mut client, "x", "b");
}

#[test]
fn leases_of_the_cluster_do_not_count_toward_the_quota() {
    let server = server_for(2);
    let mut client = server.client();
    create(&mut client, "x", "a");
    for namespace in ["kube-node-lease", "kube-system"] {
        for name in ["a", "b"] {
            create(&mut client, namespace, name);
        }
    }
    expect_used(&mut client, 1);
}

/// Creates Leases until one is refused; returns the number of those created.
#[track_caller]
fn fill(client: &mut Client, namespace: &str, lease: &Value) -> usize {
    let mut created = 0;
    loop {
        let answer = client.call("POST", &lease::collection(namespace), &lease.to_string());
        if answer.status() != 201 {
            answer.expect_failure(403, "Forbidden", namespace);
            return created;
        }
        created += 1;
    }
}

fn short() -> Value {
    json!({"metadata": {"generateName": "n-"}})
}

fn long(bytes: usize) -> Value {
    json!({"metadata": {"generateName": "n-", "annotations": {"a": "x".repeat(bytes)}}})
}

#[test]
fn a_namespace_may_use_half_of_the_remaining_quota() {
    let server = server_for(64);
    let mut client = server.client();
    let counts = ["x", "y", "z"].map(|namespace| fill(&mut client, namespace, &short()));
    assert_eq!(counts, [32, 16, 8], "half of what the others leave");
    create(&mut client, "w", "a");
    let metrics = Exposition::of(client.call("GET", "/metrics", ""));
    let labels = ["namespace=\"x\""];
    let used = metrics.count("coordination_lease_quota_namespace_used_bytes", &labels);
    let limited = metrics.count("coordination_lease_quota_namespace_bytes", &labels);
    assert_eq!(used, 32 * METERED_BYTES_MIN);
    assert!(limited < used, "others have come since");
    // Leases of namespace `x` beyond its share stay. Clients can still acquire, renew and delete them.
    let listed = client.call("GET", &lease::collection("x"), "").expect_status(200, "all of x").json();
    let mut held = listed["items"][0].clone();
    held["spec"]["holderIdentity"] = "h".into();
    let target = lease::path("x", lease::name(&held));
    let held = client.call("PUT", &target, &held.to_string()).expect_status(200, "acquired").json();
    client.call("PUT", &target, &held.to_string()).expect_status(200, "renewed");
    client.call("DELETE", &target, "").expect_status(200, "deleted");
}

/// The server decides creations that arrive together before the first of them is in the table. So the quota must also
/// count creations in flight.
#[test]
fn creations_in_flight_count_toward_the_quota() {
    let folder = tempfile::tempdir().unwrap();
    let storage = StorageConfig::Disk(folder.path().join("data"));
    let server =
        TestServer::start_with(Config { lease_quota_bytes: 64 * METERED_BYTES_MIN, storage, ..Config::default() });
    let mut client = Http2Client::open(&server.endpoint());
    let create = Message::new("POST", &lease::collection("x"), &short().to_string());
    let keys: Vec<_> = (0..90).map(|_| client.queue(&create)).collect();
    client.flush().unwrap();
    let statuses: Vec<_> = keys.into_iter().map(|key| client.recv(key).status()).collect();
    assert_eq!(statuses.iter().filter(|status| **status == 201).count(), 32, "{statuses:?}");
}

#[test]
fn long_leases_of_the_cluster_count_toward_the_quota() {
    let server = server_for(640);
    let mut client = server.client();
    for namespace in ["kube-system", "kube-node-lease"] {
        let created = fill(&mut client, namespace, &long(200_000));
        assert!((1..=4).contains(&created), "{created} long ones in {namespace}");
        for name in ["a", "b"] {
            create(&mut client, namespace, name);
        }
    }
    create(&mut client, "x", "a");
    // A long Lease can still be acquired, shortened and deleted.
    let listed = client.call("GET", &lease::collection("kube-system"), "").json();
    let items = listed["items"].as_array().unwrap();
    let mut held = items.iter().find(|item| lease::name(item).starts_with("n-")).unwrap().clone();
    let target = lease::path("kube-system", lease::name(&held));
    held["spec"] = json!({"holderIdentity": "h", "leaseDurationSeconds": 15});
    let mut held = client.call("PUT", &target, &held.to_string()).expect_status(200, "acquired").json();
    held["metadata"]["annotations"] = json!({});
    client.call("PUT", &target, &held.to_string()).expect_status(200, "shorter");
    client.call("DELETE", &target, "").expect_status(200, "deleted");
}

/// Goal: a server keeps all Leases of the store that it loads, even if they exceed its quota.
#[test]
fn leases_above_the_quota_at_the_start_are_kept() {
    if is_durable() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let start = |quota| {
        let storage = StorageConfig::Disk(folder.path().join("data"));
        TestServer::start_with(Config { lease_quota_bytes: quota * METERED_BYTES_MIN, storage, ..Config::default() })
    };
    let server = start(64);
    assert_eq!(fill(&mut server.client(), "x", &short()), 32);
    drop(server);
    let server = start(4);
    let mut client = server.client();
    let listed = client.call("GET", &lease::collection("x"), "").expect_status(200, "loaded").json();
    assert_eq!(listed["items"].as_array().unwrap().len(), 32);
    client.call("POST", &lease::collection("x"), &short().to_string()).expect_failure(403, "Forbidden", "no more");
    for held in listed["items"].as_array().unwrap() {
        let mut held = held.clone();
        held["spec"]["holderIdentity"] = "h".into();
        let target = lease::path("x", lease::name(&held));
        client.call("PUT", &target, &held.to_string()).expect_status(200, "acquired");
        client.call("DELETE", &target, "").expect_status(200, "deleted");
    }
    create(&mut client, "y", "a");
}
