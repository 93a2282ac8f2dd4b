//! Many clients and one object: no update is lost, and a lock has one holder at a time.

#![allow(clippy::panic, clippy::unwrap_used, reason = "tests fail by panicking")]

mod support;

use serde_json::{Value, json};
use std::sync::LazyLock;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;
use std::time::Instant;
use support::PATIENCE;
use support::client::Client;
use support::exposition::Exposition;
use support::lease;
use support::server::TestServer;
use support::stream::Endpoint;

static SERVER: LazyLock<TestServer> = LazyLock::new(TestServer::start_secure);

/// Returns the endpoint for client `number`. Every other client uses TLS.
fn endpoint(number: usize) -> Endpoint {
    if number.is_multiple_of(2) { SERVER.endpoint() } else { SERVER.secure_endpoint() }
}

/// Replaces a Lease by a PUT. Returns the new state, or `None` after a conflict.
fn replace(client: &mut Client, path: &str, object: &Value) -> Option<Value> {
    let got = client.call("PUT", path, &object.to_string());
    if got.status() == 409 {
        got.expect_failure(409, "Conflict", &format!("PUT {path}"));
        return None;
    }
    Some(got.expect_status(200, &format!("PUT {path} {object}")).json())
}

/// Runs `act` in `count` threads at once. Each gets its number and a client.
fn at_once(count: usize, act: impl Fn(usize, &mut Client) + Sync) {
    thread::scope(|scope| {
        for number in 0..count {
            let act = &act;
            scope.spawn(move || act(number, &mut Client::open(&endpoint(number))));
        }
    });
}

#[test]
fn no_increment_is_lost() {
    const THREADS: usize = 8;
    const INCREMENTS: i64 = 200;
    let path = lease::path("cas", "counter");
    SERVER.client().call("POST", &lease::collection("cas"), &lease::new("counter")).expect_status(201, "counter");
    at_once(THREADS, |_, client| {
        let mut done = 0;
        while done < INCREMENTS {
            let mut object = client.call("GET", &path, "").expect_status(200, &path).json();
            object["spec"]["leaseTransitions"] = json!(lease::transitions(&object) + 1);
            let Some(updated) = replace(client, &path, &object) else { continue };
            assert_eq!(lease::transitions(&updated), lease::transitions(&object), "the updated Lease: {updated}");
            assert!(lease::version(&updated) > lease::version(&object), "from {object} to {updated}");
            done += 1;
        }
    });
    let counter = SERVER.client().call("GET", &path, "").expect_status(200, &path).json();
    assert_eq!(lease::transitions(&counter), INCREMENTS * i64::try_from(THREADS).unwrap(), "{counter}");
}

#[test]
fn a_lock_never_has_two_holders() {
    const CANDIDATES: usize = 6;
    const TERMS: usize = 60;
    let path = lease::path("lock", "leader");
    let free = json!({"metadata": {"name": "leader"}, "spec": {"holderIdentity": "", "leaseTransitions": 0}});
    SERVER.client().call("POST", &lease::collection("lock"), &free.to_string()).expect_status(201, "leader");
    let (held, terms) = (AtomicBool::new(false), AtomicUsize::new(0));
    at_once(CANDIDATES, |number, client| {
        let me = format!("candidate-{number}");
        while terms.load(Ordering::SeqCst) < TERMS {
            let mut object = client.call("GET", &path, "").expect_status(200, &path).json();
            if object["spec"]["holderIdentity"] != "" {
                thread::yield_now();
                continue;
            }
            object["spec"]["holderIdentity"] = json!(me);
            object["spec"]["leaseTransitions"] = json!(lease::transitions(&object) + 1);
            let Some(mut mine) = replace(client, &path, &object) else { continue };
            assert!(!held.swap(true, Ordering::SeqCst), "{me} got a lock that another client holds: {mine}");
            terms.fetch_add(1, Ordering::SeqCst);
            thread::yield_now();
            held.store(false, Ordering::SeqCst);
            mine["spec"]["holderIdentity"] = json!("");
            let released = replace(client, &path, &mine);
            assert!(released.is_some(), "another client changed a lock that {me} held: {mine}");
        }
    });
    let leader = SERVER.client().call("GET", &path, "").expect_status(200, &path).json();
    let transitions = usize::try_from(lease::transitions(&leader)).unwrap();
    assert_eq!(transitions, terms.load(Ordering::SeqCst), "a term for each transition: {leader}");
}

#[test]
fn one_of_many_creations_of_a_name_succeeds() {
    const THREADS: usize = 6;
    const NAMES: usize = 50;
    let created: Vec<AtomicUsize> = (0..NAMES).map(|_| AtomicUsize::new(0)).collect();
    at_once(THREADS, |_, client| {
        for (at, count) in created.iter().enumerate() {
            let name = format!("race-{at}");
            let got = client.call("POST", &lease::collection("creations"), &lease::new(&name));
            if got.status() == 201 {
                count.fetch_add(1, Ordering::SeqCst);
            } else {
                got.expect_failure(409, "AlreadyExists", &format!("POST {name}"));
            }
        }
    });
    for (at, count) in created.iter().enumerate() {
        assert_eq!(count.load(Ordering::SeqCst), 1, "creations of race-{at} that succeeded");
    }
}

#[test]
fn one_of_many_deletions_of_a_version_succeeds() {
    const ROUNDS: usize = 30;
    let (deleted, refused) = (AtomicUsize::new(0), AtomicUsize::new(0));
    for _ in 0..ROUNDS {
        let path = lease::path("deletions", "a");
        let mut client = SERVER.client();
        let created =
            client.call("POST", &lease::collection("deletions"), &lease::new("a")).expect_status(201, "a").json();
        let options = json!({"preconditions": {"resourceVersion": created["metadata"]["resourceVersion"]}}).to_string();
        at_once(4, |_, client| {
            let got = client.call("DELETE", &path, &options);
            let count = if got.status() == 200 { &deleted } else { &refused };
            assert!([200, 404].contains(&got.status()), "DELETE {path} {options}\ngot {got}");
            count.fetch_add(1, Ordering::SeqCst);
        });
    }
    assert_eq!((deleted.into_inner(), refused.into_inner()), (ROUNDS, ROUNDS * 3), "deletions that did and did not");
}

#[test]
fn merge_patches_without_a_version_do_not_undo_each_other() {
    const THREADS: usize = 6;
    const LABELS: usize = 20;
    let path = lease::path("patches", "a");
    SERVER.client().call("POST", &lease::collection("patches"), &lease::new("a")).expect_status(201, "a");
    at_once(THREADS, |number, client| {
        for label in 0..LABELS {
            let patch = json!({"metadata": {"labels": {format!("label-{number}-{label}"): "x"}}}).to_string();
            client.call("PATCH", &path, &patch).expect_status(200, &patch);
        }
    });
    let patched = SERVER.client().call("GET", &path, "").expect_status(200, &path).json();
    assert_eq!(
        patched["metadata"]["labels"].as_object().map(serde_json::Map::len),
        Some(THREADS * LABELS),
        "{patched}"
    );
}

/// Sets the flag when it is dropped, also by a panic.
struct End<'a>(&'a AtomicBool);

impl Drop for End<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Release);
    }
}

/// Several clients repeat a request that takes longer than the time budget of a turn of the event loop. Any other
/// request must wait for at most one of these requests, not for one from each client.
#[test]
fn a_request_waits_for_at_most_one_slow_request() {
    const SLOW: usize = 10;
    let server = TestServer::start();
    let path = lease::path("n", "long");
    let long = lease::new("long").replace("node-a", &"x y".repeat(70_000));
    server.client().call("POST", &lease::collection("n"), &long).expect_status(201, "a long Lease");
    let is_over = AtomicBool::new(false);
    let waited_for = thread::scope(|scope| {
        for _ in 0..SLOW {
            scope.spawn(|| {
                let mut client = server.client();
                let asked = format!("GET {path} HTTP/1.1\r\nHost: localhost\r\nAccept: application/yaml\r\n\r\n");
                client.send(&asked);
                while !is_over.load(Ordering::Acquire) {
                    client.send(&asked);
                    client.recv("GET").expect_status(200, &path);
                }
            });
        }
        // The flag ends the slow clients even if this thread panics.
        let _end = End(&is_over);
        let mut client = server.client();
        let mut served = || {
            let metrics = Exposition::of(client.call("GET", "/metrics", ""));
            metrics.count("apiserver_request_total", &["verb=\"GET\"", "resource=\"leases\""])
        };
        let begun = Instant::now();
        while served() < 2 * SLOW {
            assert!(begun.elapsed() < PATIENCE, "the slow clients are not served");
        }
        let counts: Vec<_> = (0..21).map(|_| served()).collect();
        let mut waited_for: Vec<_> = counts.windows(2).map(|pair| pair[1] - pair[0]).collect();
        waited_for.sort_unstable();
        waited_for
    });
    // On a busy machine, this thread may wait for a core while the server serves further slow requests. So the test
    // checks the median.
    assert!(waited_for[waited_for.len() / 2] <= 3, "slow requests between two others: {waited_for:?}");
}
