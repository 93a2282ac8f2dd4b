//! Clients that keep a copy of the table, as controllers do: they list, follow with watches, and list anew when they
//! are too late. Under random writes and a small window every copy must come to equal the table. `list_watch_model.rs`
//! holds them to more, with selectors and at every version; here there are sockets, threads and time.

#![allow(clippy::panic, clippy::unwrap_used, reason = "a failing test speaks by panicking")]

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
    // Wakes those who wait for an event that will not come; it is newer than the list they are compared with.
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

/// Creates, changes and deletes Leases of two namespaces.
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

/// Namespaced names and versions of a list's items, by name.
fn table_of(list: &Value) -> Vec<(String, u64)> {
    let items = list["items"].as_array().unwrap();
    let mut table: Vec<_> = items.iter().map(|item| (key(item), lease::version(item))).collect();
    table.sort();
    table
}

fn key(object: &Value) -> String {
    format!("{}/{}", object["metadata"]["namespace"].as_str().unwrap_or_default(), lease::name(object))
}

/// A client that keeps a copy of the table: it lists, follows with watches, and lists anew when it is too late.
struct Reflector {
    endpoint: Endpoint,
    random: fastrand::Rng,
    table: Vec<(String, u64)>,
    /// The version that `table` is of.
    version: u64,
    lists: usize,
}

impl Reflector {
    fn new(endpoint: Endpoint, seed: u64) -> Self {
        let random = fastrand::Rng::with_seed(seed);
        Self { endpoint, random, table: Vec::new(), version: 0, lists: 0 }
    }

    /// One watch, up to its end or to where this client hangs up.
    fn follow(&mut self) {
        if self.version == 0 {
            self.list();
        }
        let target =
            format!("{ALL}?watch=true&resourceVersion={}&timeoutSeconds=1&allowWatchBookmarks=true", self.version);
        let mut watch = Watch::open(&self.endpoint, &target);
        // Now and then it sleeps until it is too late, and now and then it hangs up and resumes.
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

    /// Applies an event, which must fit what is there.
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

    /// Lists in pages, from the first again if a page comes too late.
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
