//! The quota for Leases of other namespaces than the cluster's own.

#![allow(clippy::panic, clippy::unwrap_used, reason = "tests fail by panicking")]

mod support;

use coordination_apiserver::limits::METERED_BYTES_MIN;
use coordination_apiserver::server::Config;
use serde_json::{Value, json};
use support::client::Client;
use support::exposition::Exposition;
use support::lease;
use support::server::TestServer;

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
    let server = server_for(2);
    let mut client = server.client();
    create(&mut client, "x", "a");
    create(&mut client, "y", "a");
    expect_used(&mut client, 2);

    let (collection, free) = (lease::collection("z"), lease::path("z", "b"));
    let message = format!(
        "leases.coordination.k8s.io \"b\" is forbidden: exceeded quota: lease-quota-bytes, requested: bytes={0}, \
         used: bytes={1}, limited: bytes={1}",
        METERED_BYTES_MIN,
        2 * METERED_BYTES_MIN
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
fn holders_renew_whatever_the_quota() {
    let server = server_for(2);
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
    // A longer Lease needs quota.
    let mut long = held.clone();
    long["metadata"]["annotations"] = json!({"a": "x".repeat(METERED_BYTES_MIN)});
    client.call("PUT", &target, &long.to_string()).expect_failure(403, "Forbidden", "longer");
    let patch = json!({"metadata": {"annotations": {"a": "x".repeat(METERED_BYTES_MIN)}}});
    let patch = patch.to_string();
    client.send(format!(
        "PATCH {target} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/merge-patch+json\r\n\
         Content-Length: {}\r\n\r\n{patch}",
        patch.len()
    ));
    client.recv_final("PATCH").expect_failure(403, "Forbidden", "longer, with a patch");
    assert_eq!(client.call("GET", &target, "").json(), held);
}

#[test]
fn a_lease_that_is_longer_than_the_quota_has_left_can_be_made_shorter() {
    let server = server_for(12);
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
fn the_clusters_own_leases_do_not_count() {
    let server = server_for(1);
    let mut client = server.client();
    create(&mut client, "x", "a");
    for namespace in ["kube-node-lease", "kube-system"] {
        for name in ["a", "b"] {
            create(&mut client, namespace, name);
        }
    }
    expect_used(&mut client, 1);
}
