//! Who gets a lock after a start: its holder.

#![allow(clippy::panic, clippy::unwrap_used, reason = "a failing test speaks by panicking")]

mod support;

use coordination_apiserver::server::Config;
use serde_json::{Value, json};
use std::thread;
use std::time::{Duration, Instant};
use support::client::{Client, request};
use support::lease;
use support::server::TestServer;

/// A lock that lasts so many seconds.
fn lock(holder: &str, seconds: u64) -> Value {
    json!({
        "apiVersion": "coordination.k8s.io/v1",
        "kind": "Lease",
        "metadata": { "name": "lock" },
        "spec": { "holderIdentity": holder, "leaseDurationSeconds": seconds },
    })
}

/// `holder` cannot have the lock, by whatever creates one.
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
    client.call("GET", &path, "").expect_failure(404, "NotFound", "nothing was stored");
}

#[test]
fn the_holder_of_before_the_start_has_its_lock_again_and_nobody_else() {
    let server = TestServer::start_with(Config { reclaim_seconds: 60, ..Config::default() });
    let mut client = server.client();
    let (collection, path) = (lease::collection("n"), lease::path("n", "lock"));
    expect_kept(&mut client, "other");
    // A renewal as client-go sends it, which it follows up with a creation.
    let mut renewal = lock("leader", 40);
    renewal["metadata"]["uid"] = "6e1b0f0c-5d1c-4d7c-9f6a-7c0b4b1f2a3d".into();
    renewal["metadata"]["resourceVersion"] = "7".into();
    let renewal = renewal.to_string();
    client.call("PUT", &format!("{path}?dryRun=All"), &renewal).expect_failure(409, "Conflict", "a dry run");
    expect_kept(&mut client, "leader");
    client.call("PUT", &path, &renewal).expect_failure(409, "Conflict", "its Lease is not there");
    expect_kept(&mut client, "other");
    let held = client.call("POST", &collection, &lock("leader", 40).to_string()).expect_status(201, "its own").json();
    client.call("POST", &collection, &lock("other", 40).to_string()).expect_failure(409, "AlreadyExists", "held");
    client.call("PUT", &path, &held.to_string()).expect_status(200, "it goes on");
}

#[test]
fn a_lock_that_nobody_claims_is_free_when_it_has_run_out() {
    let server = TestServer::start_with(Config { reclaim_seconds: 60, ..Config::default() });
    let mut client = server.client();
    let collection = lease::collection("n");
    let began = Instant::now();
    let other = lock("other", 2).to_string();
    client.call("POST", &collection, &other).expect_failure(429, "TooManyRequests", "the first request for a lock");
    // Meanwhile nodes come back, and what nobody holds is nobody's.
    client.call("POST", &lease::collection("kube-node-lease"), &lease::new("node-a")).expect_status(201, "a node");
    let unheld = json!({ "metadata": { "name": "unheld" }, "spec": {} });
    client.call("POST", &collection, &unheld.to_string()).expect_status(201, "unheld");
    while client.call("POST", &collection, &other).status() == 429 {
        assert!(began.elapsed() < Duration::from_secs(20), "it is never free");
        thread::sleep(Duration::from_millis(20));
    }
    // The server's clock counts whole milliseconds.
    assert!(began.elapsed() > Duration::from_millis(1990), "it may be held");
    client.call("GET", &lease::path("n", "lock"), "").expect_status(200, "its new holder's");
}

#[test]
fn without_a_period_nothing_is_kept_for_anybody() {
    let server = TestServer::start();
    server.client().call("POST", &lease::collection("n"), &lock("other", 2).to_string()).expect_status(201, "free");
}
