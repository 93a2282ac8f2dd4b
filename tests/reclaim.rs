//! A lock is a Lease with a holder, such as that of a leader election. After a start, a lock that the server does not
//! have may still have a holder from before. So for some time (`--reclaim-seconds`), the server reserves the lock: only
//! its last holder can create it.

#![allow(clippy::panic, clippy::unwrap_used, reason = "tests fail by panicking")]

mod support;

use coordination_apiserver::server::Config;
use serde_json::{Value, json};
use std::thread;
use std::time::{Duration, Instant};
use support::client::{Client, request, request_with};
use support::lease;
use support::server::TestServer;

/// Builds a lock whose lease duration is `seconds` seconds.
fn lock(holder: &str, seconds: u64) -> Value {
    json!({
        "apiVersion": "coordination.k8s.io/v1",
        "kind": "Lease",
        "metadata": { "name": "lock" },
        "spec": { "holderIdentity": holder, "leaseDurationSeconds": seconds },
    })
}

/// Builds the renewal of a lock that existed before the start of the server, as client-go sends it.
fn renewal(holder: &str) -> String {
    let mut renewal = lock(holder, 40);
    renewal["metadata"]["uid"] = "6e1b0f0c-5d1c-4d7c-9f6a-7c0b4b1f2a3d".into();
    renewal["metadata"]["resourceVersion"] = "7".into();
    renewal.to_string()
}

/// Builds the request for a server-side apply of `body` to the lock.
fn apply(body: &str) -> Vec<u8> {
    let target = lease::path("n", "lock") + "?fieldManager=m";
    request_with("PATCH", &target, "Content-Type: application/apply-patch+yaml\r\n", body.as_bytes())
}

/// Checks that each request gets 429, since the lock is reserved for its former holder.
#[track_caller]
fn expect_refused(client: &mut Client, requests: &[Vec<u8>]) {
    for request in requests {
        client.send(request);
        let sent = String::from_utf8_lossy(request);
        let refused = client.recv("POST").expect_failure(429, "TooManyRequests", &sent);
        let (seconds, status) = (refused.head.field("retry-after").unwrap(), refused.json());
        let message = format!(
            "leases.coordination.k8s.io \"lock\" may be held from before the start of the server: for {seconds} s \
             only its holder can acquire it"
        );
        assert_eq!(status["message"], message.as_str());
        assert_eq!(status["details"]["retryAfterSeconds"].to_string(), seconds);
        assert!((1..=40).contains(&seconds.parse().unwrap()), "{seconds}");
    }
}

/// Checks that `holder` cannot get the lock by any request that could create it.
#[track_caller]
fn expect_kept(client: &mut Client, holder: &str) {
    let (collection, path) = (lease::collection("n"), lease::path("n", "lock"));
    let body = lock(holder, 40).to_string();
    let dry_run = format!("{collection}?dryRun=All");
    let requests = [
        request("POST", &collection, &body),
        request("POST", &dry_run, &body),
        request("PUT", &path, &body),
        apply(&body),
    ];
    expect_refused(client, &requests);
    client.call("GET", &path, "").expect_failure(404, "NotFound", "the lock was not stored");
}

#[test]
fn a_lock_is_reserved_for_its_holder_after_a_start() {
    let server = TestServer::start_with(Config { reclaim_seconds: 60, ..Config::default() });
    let mut client = server.client();
    let (collection, path) = (lease::collection("n"), lease::path("n", "lock"));
    expect_kept(&mut client, "other");
    // After a failed renewal, client-go finds no Lease and creates it. A failed renewal shows the server that `leader`
    // was the holder. A failed dry run of a renewal does not.
    let renewal = renewal("leader");
    client.call("PUT", &format!("{path}?dryRun=All"), &renewal).expect_failure(409, "Conflict", "a dry run");
    expect_kept(&mut client, "leader");
    client.call("PUT", &path, &renewal).expect_failure(409, "Conflict", "the Lease does not exist");
    expect_kept(&mut client, "other");
    let held = client.call("POST", &collection, &lock("leader", 40).to_string()).expect_status(201, "its own").json();
    client.call("POST", &collection, &lock("other", 40).to_string()).expect_failure(409, "AlreadyExists", "held");
    client.call("PUT", &path, &held.to_string()).expect_status(200, "the holder renews");
}

#[test]
fn a_lock_whose_lease_was_created_without_a_holder_is_reserved_too() {
    let server = TestServer::start_with(Config { reclaim_seconds: 60, ..Config::default() });
    let mut client = server.client();
    let (collection, path) = (lease::collection("n"), lease::path("n", "lock"));
    let unheld = json!({ "metadata": { "name": "lock" }, "spec": {} }).to_string();
    let unheld = client.call("POST", &collection, &unheld).expect_status(201, "unheld").json();
    let update = |holder: &str| {
        let mut update = lock(holder, 40);
        update["metadata"]["resourceVersion"] = unheld["metadata"]["resourceVersion"].clone();
        update.to_string()
    };
    let acquisitions = |holder: &str| {
        let body = lock(holder, 40).to_string();
        [
            request("PUT", &path, &update(holder)),
            request("PUT", &format!("{path}?dryRun=All"), &update(holder)),
            request("PATCH", &path, &body),
            apply(&body),
        ]
    };
    expect_refused(&mut client, &acquisitions("other"));
    expect_refused(&mut client, &acquisitions("leader"));
    client.call("PUT", &path, &renewal("leader")).expect_failure(409, "Conflict", "the Lease has another UID");
    expect_refused(&mut client, &acquisitions("other"));
    let mut renewed = client.call("PUT", &path, &update("leader")).expect_status(200, "its own").json();
    renewed["spec"]["renewTime"] = "2026-01-02T03:04:05.000001Z".into();
    client.call("PUT", &path, &renewed.to_string()).expect_status(200, "the holder renews");

    // The holder itself released the lock at this server. So the lock is no longer reserved, and another client may
    // acquire it.
    client.call("PATCH", &path, r#"{"spec":{"holderIdentity":""}}"#).expect_status(200, "the holder releases the lock");
    client.call("PATCH", &path, &lock("other", 40).to_string()).expect_status(200, "another client acquires it");
}

#[test]
fn a_reserved_lock_is_free_after_its_lease_duration() {
    let server = TestServer::start_with(Config { reclaim_seconds: 60, ..Config::default() });
    let mut client = server.client();
    let collection = lease::collection("n");
    let began = Instant::now();
    let other = lock("other", 2).to_string();
    client.call("POST", &collection, &other).expect_failure(429, "TooManyRequests", "the first request for a lock");
    // While the lock is reserved, Leases of nodes and Leases without a holder can be created, since they are not
    // reserved.
    client.call("POST", &lease::collection("kube-node-lease"), &lease::new("node-a")).expect_status(201, "a node");
    let unheld = json!({ "metadata": { "name": "unheld" }, "spec": {} });
    client.call("POST", &collection, &unheld.to_string()).expect_status(201, "unheld");
    while client.call("POST", &collection, &other).status() == 429 {
        assert!(began.elapsed() < Duration::from_secs(20), "the lock never becomes free");
        thread::sleep(Duration::from_millis(20));
    }
    // The lease duration is 2 s. The server's clock counts whole milliseconds, so the test allows a small difference.
    assert!(began.elapsed() > Duration::from_millis(1990), "the lock is free too early");
    client.call("GET", &lease::path("n", "lock"), "").expect_status(200, "the lock of its new holder");
}

#[test]
fn without_a_period_no_lock_is_reserved() {
    let server = TestServer::start();
    server.client().call("POST", &lease::collection("n"), &lock("other", 2).to_string()).expect_status(201, "free");
}
