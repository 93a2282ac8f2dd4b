//! After a start, the server reserves each missing lock for its last holder (`--reclaim-seconds`).

#![allow(clippy::panic, clippy::unwrap_used, reason = "tests fail by panicking")]

mod support;

use coordination_apiserver::server::Config;
use serde_json::{Value, json};
use std::thread;
use std::time::{Duration, Instant};
use support::client::{Client, request};
use support::lease;
use support::server::TestServer;

/// Builds a lock that lasts `seconds` seconds.
fn lock(holder: &str, seconds: u64) -> Value {
    json!({
        "apiVersion": "coordination.k8s.io/v1",
        "kind": "Lease",
        "metadata": { "name": "lock" },
        "spec": { "holderIdentity": holder, "leaseDurationSeconds": seconds },
    })
}

/// Expects that `holder` cannot get the lock by any request that could create it.
#[track_caller]
fn expect_kept(client: &mut Client, holder: &str) {
    let (collection, path) = (lease::collection("n"), lease::path("n", "lock"));
    let body = lock(holder, 40).to_string();
    let dry_run = format!("{collection}?dryRun=All");
    let apply = format!(
        "PATCH {path}?fieldManager=m HTTP/1.1\r\nHost: a\r\nContent-Type: application/apply-patch+yaml\r\n\
         Content-Length: {}\r\n\r\n{body}",
        body.len()
    );
    for request in [
        request("POST", &collection, &body),
        request("POST", &dry_run, &body),
        request("PUT", &path, &body),
        apply.into(),
    ] {
        client.send(&request);
        let sent = String::from_utf8_lossy(&request);
        let refused = client.recv("POST").expect_failure(429, "TooManyRequests", &sent);
        let (seconds, status) = (refused.head.field("retry-after").unwrap(), refused.json());
        let message = format!(
            "leases.coordination.k8s.io \"lock\" may be held from before the start of the server: for {seconds} s \
             only its holder can create it"
        );
        assert_eq!(status["message"], message.as_str());
        assert_eq!(status["details"]["retryAfterSeconds"].to_string(), seconds);
        assert!((1..=40).contains(&seconds.parse().unwrap()), "{seconds}");
    }
    client.call("GET", &path, "").expect_failure(404, "NotFound", "the lock was not stored");
}

#[test]
fn a_lock_is_reserved_for_its_holder_after_a_start() {
    let server = TestServer::start_with(Config { reclaim_seconds: 60, ..Config::default() });
    let mut client = server.client();
    let (collection, path) = (lease::collection("n"), lease::path("n", "lock"));
    expect_kept(&mut client, "other");
    // A renewal as client-go sends it. client-go then creates the Lease.
    let mut renewal = lock("leader", 40);
    renewal["metadata"]["uid"] = "6e1b0f0c-5d1c-4d7c-9f6a-7c0b4b1f2a3d".into();
    renewal["metadata"]["resourceVersion"] = "7".into();
    let renewal = renewal.to_string();
    client.call("PUT", &format!("{path}?dryRun=All"), &renewal).expect_failure(409, "Conflict", "a dry run");
    expect_kept(&mut client, "leader");
    client.call("PUT", &path, &renewal).expect_failure(409, "Conflict", "the Lease does not exist");
    expect_kept(&mut client, "other");
    let held = client.call("POST", &collection, &lock("leader", 40).to_string()).expect_status(201, "its own").json();
    client.call("POST", &collection, &lock("other", 40).to_string()).expect_failure(409, "AlreadyExists", "held");
    client.call("PUT", &path, &held.to_string()).expect_status(200, "the holder renews");
}

#[test]
fn a_reserved_lock_is_free_after_its_lease_duration() {
    let server = TestServer::start_with(Config { reclaim_seconds: 60, ..Config::default() });
    let mut client = server.client();
    let collection = lease::collection("n");
    let began = Instant::now();
    let other = lock("other", 2).to_string();
    client.call("POST", &collection, &other).expect_failure(429, "TooManyRequests", "the first request for a lock");
    // Meanwhile nodes return, and a Lease without a holder is not reserved.
    client.call("POST", &lease::collection("kube-node-lease"), &lease::new("node-a")).expect_status(201, "a node");
    let unheld = json!({ "metadata": { "name": "unheld" }, "spec": {} });
    client.call("POST", &collection, &unheld.to_string()).expect_status(201, "unheld");
    while client.call("POST", &collection, &other).status() == 429 {
        assert!(began.elapsed() < Duration::from_secs(20), "the lock never becomes free");
        thread::sleep(Duration::from_millis(20));
    }
    // The server's clock counts whole milliseconds.
    assert!(began.elapsed() > Duration::from_millis(1990), "the lock is free too early");
    client.call("GET", &lease::path("n", "lock"), "").expect_status(200, "the lock of its new holder");
}

#[test]
fn without_a_period_no_lock_is_reserved() {
    let server = TestServer::start();
    server.client().call("POST", &lease::collection("n"), &lock("other", 2).to_string()).expect_status(201, "free");
}
