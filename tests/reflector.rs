//! Clients that keep a copy of the table, as controllers do: they list, watch, and list again when they lag too far.
//! Under random writes and with a small watch window, every copy must become equal to the table. `list_watch_model.rs`
//! checks more, with selectors and at every version. These tests have sockets, threads and real time.

#![allow(clippy::panic, clippy::unwrap_used, reason = "tests fail by panicking")]

mod support;

use coordination_apiserver::server::Config;
use serde_json::{Value, json};
use std::sync::{Arc, OnceLock};
use std::thread;
use std::time::Duration;
use support::client::Client;
use support::lease;
use support::server::TestServer;
use support::stream::Endpoint;
use support::watch::{Watch, expect_expired, kind};

const ALL: &str = "/apis/coordination.k8s.io/v1/leases";

#[test]
fn reflectors_converge_under_random_writes() {
    const WINDOW: usize = 150;
    const WRITES: usize = 2_500;
    let seed = fastrand::u64(..);
    let server = TestServer::start_with(Config { watch_window_events: WINDOW, ..Config::default() });
    let (endpoint, last_version) = (server.endpoint(), Arc::new(OnceLock::<u64>::new()));
    let reflectors: Vec<_> = (0..4)
        .map(|number| {
            let (endpoint, last_version) = (endpoint.clone(), Arc::clone(&last_version));
            thread::spawn(move || {
                let mut reflector = Reflector::new(endpoint, seed.wrapping_add(number));
                while last_version.get().is_none_or(|last| reflector.version < *last) {
                    reflector.follow();
                }
                reflector
            })
        })
        .collect();
    write_at_random(&mut server.client(), seed, WRITES);
    let list = server.client().call("GET", ALL, "").expect_status(200, ALL).json();
    last_version.set(lease::version(&list)).expect("set once");
    // This creation wakes clients that wait for another event. It comes after the list, so `want` gets the Lease here.
    let mut want = table_of(&list);
    let woken = server.client().call("POST", &lease::collection("reflected-0"), &lease::new("wake"));
    let woken = lease::version(&woken.expect_status(201, "wake").json());
    want.push(("reflected-0/wake".to_owned(), woken));
    want.sort();
    for (number, reflector) in reflectors.into_iter().enumerate() {
        let mut reflector = reflector.join().unwrap_or_else(|_| panic!("reflector {number} failed; seed {seed}"));
        while reflector.version < woken {
            reflector.follow();
        }
        assert_eq!(reflector.table, want, "reflector {number} after {} lists; seed {seed}", reflector.lists);
    }
}

/// Creates, changes and deletes Leases of two namespaces at random.
fn write_at_random(client: &mut Client, seed: u64, writes: usize) {
    let mut random = fastrand::Rng::with_seed(seed);
    for count in 0..writes {
        let (namespace, name) = (format!("reflected-{}", random.u8(..2)), format!("lease-{}", random.u8(..25)));
        let path = lease::path(&namespace, &name);
        let patch = json!({"spec": {"leaseTransitions": count}}).to_string();
        let got = match random.u8(..10) {
            0..3 => client.call("POST", &lease::collection(&namespace), &lease::new(&name)),
            3..5 => client.call("DELETE", &path, ""),
            _ => client.call("PATCH", &path, &patch),
        };
        assert!([200, 201, 404, 409].contains(&got.status()), "a random write of {path}; seed {seed}\ngot {got}");
    }
}

/// Returns namespaced names and versions of a list's items, sorted by name.
fn table_of(list: &Value) -> Vec<(String, u64)> {
    let items = list["items"].as_array().unwrap();
    let mut table: Vec<_> = items.iter().map(|item| (key(item), lease::version(item))).collect();
    table.sort();
    table
}

fn key(object: &Value) -> String {
    format!("{}/{}", object["metadata"]["namespace"].as_str().unwrap_or_default(), lease::name(object))
}

/// A client that keeps a copy of the table. It lists, watches, and lists again when it lags too far.
struct Reflector {
    endpoint: Endpoint,
    random: fastrand::Rng,
    table: Vec<(String, u64)>,
    /// Version of `table`.
    version: u64,
    lists: usize,
}

impl Reflector {
    fn new(endpoint: Endpoint, seed: u64) -> Self {
        let random = fastrand::Rng::with_seed(seed);
        Self { endpoint, random, table: Vec::new(), version: 0, lists: 0 }
    }

    /// Watches until the watch ends or this client closes it.
    fn follow(&mut self) {
        if self.version == 0 {
            self.list();
        }
        let target =
            format!("{ALL}?watch=true&resourceVersion={}&timeoutSeconds=1&allowWatchBookmarks=true", self.version);
        let mut watch = Watch::open(&self.endpoint, &target);
        // Sometimes the client sleeps until it lags too far; sometimes it closes the watch and resumes.
        let (events_max, nap) = (self.random.usize(1..400), self.random.u8(..6) == 0);
        for number in 0..events_max {
            if nap && number == events_max / 2 {
                thread::sleep(Duration::from_millis(150));
            }
            let Some(event) = watch.try_next().unwrap_or_else(|error| panic!("{target} broke: {error}")) else {
                return;
            };
            if kind(&event) == "ERROR" {
                expect_expired(&event);
                self.version = 0;
                return;
            }
            self.apply(&event);
        }
        if nap {
            thread::sleep(Duration::from_millis(150));
        }
    }

    /// Applies an event, which must fit the copy.
    fn apply(&mut self, event: &Value) {
        let object = &event["object"];
        let version = lease::version(object);
        if kind(event) == "BOOKMARK" {
            assert!(version >= self.version, "a bookmark below {}: {event}", self.version);
            self.version = version;
            return;
        }
        assert!(version > self.version, "an event not above {}: {event}", self.version);
        self.version = version;
        let key = key(object);
        let place = self.table.binary_search_by(|(known, _)| known.cmp(&key));
        match (kind(event), place) {
            ("ADDED", Err(at)) => self.table.insert(at, (key, version)),
            ("MODIFIED", Ok(at)) => self.table[at].1 = version,
            ("DELETED", Ok(at)) => _ = self.table.remove(at),
            (_, place) => panic!("an event that does not fit, the object is at {place:?}: {event}"),
        }
    }

    /// Lists in pages, and starts again if a page is requested too late.
    fn list(&mut self) {
        let mut client = Client::open(&self.endpoint);
        'anew: loop {
            self.lists += 1;
            let (mut table, mut token) = (Vec::new(), String::new());
            loop {
                let target = format!("{ALL}?limit=7{token}");
                let got = client.call("GET", &target, "");
                if got.status() == 410 {
                    got.expect_failure(410, "Expired", &target);
                    continue 'anew;
                }
                let page = got.expect_status(200, &target).json();
                table.extend(table_of(&page));
                match page["metadata"]["continue"].as_str() {
                    Some(next) if !next.is_empty() => token = format!("&continue={next}"),
                    _ => {
                        assert!(table.is_sorted_by(|a, b| a.0 < b.0), "pages overlap or are out of order: {table:?}");
                        self.version = lease::version(&page);
                        self.table = table;
                        return;
                    }
                }
            }
        }
    }
}
