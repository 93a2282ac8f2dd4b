//! Watches: every watcher receives each change in its scope once and in order, or an error. `reflector.rs` tests
//! clients that keep a copy of the table and depend on this order.

#![allow(clippy::panic, clippy::unwrap_used, reason = "tests fail by panicking")]

mod support;

use coordination_apiserver::server::Config;
use serde_json::{Value, json};
use std::fmt;
use std::sync::{Barrier, LazyLock};
use std::thread;
use std::time::{Duration, Instant};
use support::client::{Client, request};
use support::http2::Http2Client;
use support::lease;
use support::server::TestServer;
use support::watch::{Watch, expect_expired, kind};

static SERVER: LazyLock<TestServer> = LazyLock::new(TestServer::start);

/// The parts of an event that tests compare.
#[derive(Clone, PartialEq, Eq)]
struct Seen {
    kind: String,
    name: String,
    version: u64,
}

impl fmt::Debug for Seen {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}@{}", self.kind, self.name, self.version)
    }
}

impl Seen {
    fn new(kind: &str, object: &Value) -> Self {
        Self { kind: kind.to_owned(), name: lease::name(object).to_owned(), version: lease::version(object) }
    }

    fn of(event: &Value) -> Self {
        Self::new(kind(event), &event["object"])
    }
}

/// Creates a Lease. Returns the event that a watcher must receive.
fn create(client: &mut Client, namespace: &str, name: &str) -> Seen {
    let created = client.call("POST", &lease::collection(namespace), &lease::new(name));
    Seen::new("ADDED", &created.expect_status(201, name).json())
}

/// Sets a Lease's `leaseTransitions` to `count`. Returns the event that a watcher must receive.
fn modify(client: &mut Client, namespace: &str, name: &str, count: usize) -> Seen {
    let patch = json!({"spec": {"leaseTransitions": count}}).to_string();
    let modified = client.call("PATCH", &lease::path(namespace, name), &patch);
    Seen::new("MODIFIED", &modified.expect_status(200, &patch).json())
}

/// Deletes a Lease. The response does not contain the version of the deletion.
fn delete(client: &mut Client, namespace: &str, name: &str) {
    client.call("DELETE", &lease::path(namespace, name), "").expect_status(200, name);
}

/// Returns the current version of a namespace's list.
fn present_version(client: &mut Client, namespace: &str) -> u64 {
    let target = lease::collection(namespace);
    lease::version(&client.call("GET", &target, "").expect_status(200, &target).json())
}

/// Returns the targets of three watches from `version` that include Lease `name`: of this name, of its namespace, and
/// of all namespaces.
fn targets(namespace: &str, name: &str, version: u64) -> [String; 3] {
    let collection = lease::collection(namespace);
    [
        format!("{collection}?watch=true&resourceVersion={version}&fieldSelector=metadata.name%3D{name}"),
        format!("{collection}?watch=true&resourceVersion={version}"),
        format!("/apis/coordination.k8s.io/v1/leases?watch=true&resourceVersion={version}"),
    ]
}

#[test]
fn a_hundred_watchers_see_a_thousand_events_each_once_and_in_order() {
    const WATCHERS: usize = 100;
    const EVENTS: usize = 1_000;
    const LEASES: usize = 10;
    let namespace = "hundred";
    let server = TestServer::start();
    let mut client = server.client();
    let first = create(&mut client, namespace, "first");
    let opened = Barrier::new(WATCHERS + 1);
    let (want, all_seen) = thread::scope(|scope| {
        let watchers: Vec<_> = (0..WATCHERS)
            .map(|number| {
                let [_, of_namespace, of_all] = targets(namespace, "first", first.version);
                let target = if number % 2 == 0 { of_namespace } else { of_all };
                let (opened, endpoint) = (&opened, server.endpoint());
                scope.spawn(move || {
                    let mut watch = Watch::open(&endpoint, &target);
                    opened.wait();
                    (0..EVENTS).map(|_| Seen::of(&watch.next())).collect::<Vec<_>>()
                })
            })
            .collect();
        opened.wait();
        let mut want = Vec::new();
        for number in 0..EVENTS {
            let name = format!("lease-{}", number % LEASES);
            want.push(match number / LEASES {
                0 => create(&mut client, namespace, &name),
                _ => modify(&mut client, namespace, &name, number),
            });
        }
        (want, watchers.into_iter().map(|watcher| watcher.join().unwrap()).collect::<Vec<_>>())
    });
    for (number, seen) in all_seen.iter().enumerate() {
        assert_same(&format!("watcher {number}"), seen, &want);
    }
}

/// Checks that two histories are equal, and names the first difference.
#[track_caller]
fn assert_same(who: &str, seen: &[Seen], want: &[Seen]) {
    let parted = seen.iter().zip(want).position(|(seen, want)| seen != want);
    if let Some(at) = parted {
        let around = at.saturating_sub(2)..(at + 3).min(seen.len()).min(want.len());
        panic!("{who}, at event {at}: saw {:?}\nwant {:?}", &seen[around.clone()], &want[around]);
    }
    assert_eq!(seen.len(), want.len(), "{who}: the number of events");
}

#[test]
fn watchers_of_a_name_see_only_its_events() {
    const LEASES: usize = 8;
    const ROUNDS: usize = 30;
    let namespace = "narrow";
    let mut client = SERVER.client();
    let start = present_version(&mut client, namespace);
    let mut watches: Vec<Watch> = (0..LEASES)
        .map(|number| Watch::open(&SERVER.endpoint(), &targets(namespace, &format!("lease-{number}"), start)[0]))
        .collect();
    let mut want: Vec<Vec<Seen>> = vec![Vec::new(); LEASES];
    for round in 0..ROUNDS {
        for (number, want) in want.iter_mut().enumerate() {
            let name = format!("lease-{number}");
            want.push(match round {
                0 => create(&mut client, namespace, &name),
                _ => modify(&mut client, namespace, &name, round),
            });
            // The same name in another namespace is another Lease. Its events must not reach these watchers.
            if round == 0 {
                create(&mut client, "narrow-elsewhere", &name);
            }
            modify(&mut client, "narrow-elsewhere", &name, round + 1);
        }
    }
    for (number, (watch, want)) in watches.iter_mut().zip(&want).enumerate() {
        let seen: Vec<Seen> = (0..ROUNDS).map(|_| Seen::of(&watch.next())).collect();
        assert_same(&format!("the watcher of lease-{number}"), &seen, want);
    }
}

#[test]
fn a_watch_resumes_after_any_version() {
    let namespace = "resume";
    let server = TestServer::start();
    let mut client = server.client();
    let start = present_version(&mut client, namespace);
    let mut history = Vec::new();
    for round in 0..10 {
        let name = format!("lease-{}", round % 3);
        history.push(create(&mut client, namespace, &name));
        history.push(modify(&mut client, namespace, &name, round + 1));
        delete(&mut client, namespace, &name);
        // The response to a deletion has no version. The list's version is that of the deletion, since there are no
        // other writers.
        history.push(Seen { kind: "DELETED".to_owned(), name, version: present_version(&mut client, namespace) });
    }
    let versions: Vec<u64> = std::iter::once(start).chain(history.iter().map(|seen| seen.version)).collect();
    assert!(versions.is_sorted_by(|a, b| a < b), "versions grow: {versions:?}");
    let mut watches: Vec<(u64, Watch)> = versions
        .iter()
        .map(|version| (*version, Watch::open(&server.endpoint(), &targets(namespace, "x", *version)[1])))
        .collect();
    // A later event marks the end of the missed events, and shows that no others follow.
    history.push(create(&mut client, namespace, "last"));
    for (version, watch) in &mut watches {
        let want: Vec<Seen> = history.iter().filter(|seen| seen.version > *version).cloned().collect();
        let seen: Vec<Seen> = want.iter().map(|_| Seen::of(&watch.next())).collect();
        assert_same(&format!("a watch resumed after {version}"), &seen, &want);
    }
}

#[test]
fn a_version_from_before_the_start_is_expired() {
    for target in &targets("too-old", "a", 1) {
        let mut watch = Watch::open(&SERVER.endpoint(), target);
        let events = watch.rest();
        assert_eq!(events.len(), 1, "{target}: {events:?}");
        expect_expired(&events[0]);
    }
}

#[test]
fn a_version_below_the_window_is_expired_and_one_within_it_is_not() {
    const WINDOW: usize = 64;
    let namespace = "window";
    let server = TestServer::start_with(Config { watch_window_events: WINDOW, ..Config::default() });
    let mut client = server.client();
    let mut history = vec![create(&mut client, namespace, "a")];
    history.extend((0..WINDOW * 3).map(|count| modify(&mut client, namespace, "a", count + 1)));
    for target in &targets(namespace, "a", history[WINDOW].version) {
        let events = Watch::open(&server.endpoint(), target).rest();
        assert_eq!(events.len(), 1, "{target}: {events:?}");
        expect_expired(&events[0]);
    }
    let from = history.len() - WINDOW / 2;
    for target in &targets(namespace, "a", history[from - 1].version) {
        let mut watch = Watch::open(&server.endpoint(), target);
        let seen: Vec<Seen> = history[from..].iter().map(|_| Seen::of(&watch.next())).collect();
        assert_same(target, &seen, &history[from..]);
    }
}

#[test]
fn a_quiet_watcher_does_not_expire_under_load() {
    const WINDOW: usize = 64;
    let server = TestServer::start_with(Config { watch_window_events: WINDOW, ..Config::default() });
    let mut client = server.client();
    let quiet = create(&mut client, "quiet", "quiet");
    let selected =
        format!("{}?watch=true&resourceVersion={}&labelSelector=no%3Dbody", lease::collection("busy"), quiet.version);
    let mut selective = Watch::open(&server.endpoint(), &selected);
    let [of_name, of_namespace, _] = targets("quiet", "quiet", quiet.version);
    let mut watches = [of_name, of_namespace].map(|target| (Watch::open(&server.endpoint(), &target), target));
    create(&mut client, "busy", "a");
    for count in 1..WINDOW * 10 {
        modify(&mut client, "busy", "a", count);
    }
    let modified = modify(&mut client, "quiet", "quiet", 1);
    for (watch, target) in &mut watches {
        assert_eq!(Seen::of(&watch.next()), modified, "{target}");
    }
    let labelled = json!({"metadata": {"labels": {"no": "body"}}}).to_string();
    client.call("PATCH", &lease::path("busy", "a"), &labelled).expect_status(200, &labelled);
    assert_eq!(kind(&selective.next()), "ADDED", "a change that makes a selector match");
}

/// Builds a patch of ten kilobytes. So the events of several hundred patches fill the kernel's buffers of a watch that
/// is not read.
fn bulky(count: usize) -> String {
    json!({"metadata": {"annotations": {"bulk": "x".repeat(10_000)}}, "spec": {"leaseTransitions": count}}).to_string()
}

/// Changes a Lease to `bulky(1)` … `bulky(count)`.
fn write_bulk(client: &mut Client, namespace: &str, name: &str, count: usize) {
    for count in 1..=count {
        client.call("PATCH", &lease::path(namespace, name), &bulky(count)).expect_status(200, "a bulky patch");
    }
}

#[test]
fn an_unread_watch_ends_when_it_falls_behind_the_window() {
    const WINDOW: usize = 64;
    const WRITES: usize = 1_500;
    let namespace = "slow";
    let server = TestServer::start_with(Config { watch_window_events: WINDOW, ..Config::default() });
    let mut client = server.client();
    let start = create(&mut client, namespace, "a").version;
    let mut watches = targets(namespace, "a", start).map(|target| (Watch::open(&server.endpoint(), &target), target));
    write_bulk(&mut client, namespace, "a", WRITES);
    for (watch, target) in &mut watches {
        let mut events = watch.rest();
        expect_expired(&events.pop().expect("an event"));
        assert!(events.len() < WRITES, "{target}: all {WRITES} events fitted into the kernel's buffers");
        for (at, event) in events.iter().enumerate() {
            let got = (kind(event), lease::transitions(&event["object"]));
            assert_eq!(got, ("MODIFIED", i64::try_from(at + 1).unwrap()), "{target}: event {at}, without a gap");
        }
    }
    client.call("GET", "/healthz", "").expect_status(200, "the writer, after the watchers were ended");
}

#[test]
fn a_late_reader_within_the_window_receives_every_event() {
    const WRITES: usize = 1_500;
    let namespace = "late";
    let server = TestServer::start();
    let mut client = server.client();
    let start = create(&mut client, namespace, "a").version;
    let mut watches = targets(namespace, "a", start).map(|target| (Watch::open(&server.endpoint(), &target), target));
    write_bulk(&mut client, namespace, "a", WRITES);
    for (watch, target) in &mut watches {
        for count in 1..=WRITES {
            let event = watch.next();
            let got = (kind(&event), lease::transitions(&event["object"]));
            assert_eq!(got, ("MODIFIED", i64::try_from(count).unwrap()), "{target}");
        }
    }
}

#[test]
fn a_time_out_ends_the_stream_and_not_the_connection() {
    let target = format!("{}?watch=true&timeoutSeconds=1", lease::collection("time-out"));
    let begun = Instant::now();
    let mut watch = Watch::open(&SERVER.endpoint(), &target);
    assert_eq!(watch.rest(), [Value::Null; 0]);
    let waited = begun.elapsed();
    assert!(waited >= Duration::from_millis(900), "1 s was {waited:?}");
    if !watch.head.connection_is("close") {
        watch.client.call("GET", "/healthz", "").expect_status(200, "a request after a watch");
    }
}

#[test]
fn a_request_after_a_watch_waits_for_its_end() {
    // RFC 9112 §9.3.2: pipelined responses come in order. So the response to the second request comes after the watch,
    // which lasts a second.
    let target = format!("{}?watch=true&timeoutSeconds=1", lease::collection("behind"));
    let both = [request("GET", &target, ""), request("GET", "/healthz", "")].concat();
    let mut watch = Watch::try_open(&SERVER.endpoint(), &target, &both).expect("a watch");
    create(&mut SERVER.client(), "behind", "a");
    assert_eq!(watch.rest().len(), 1);
    watch.client.recv("GET").expect_status(200, "a request that was sent with a watch");
}

#[test]
fn initial_events_end_with_a_bookmark_on_request() {
    let namespace = "bookmark";
    let mut client = SERVER.client();
    let created: Vec<Seen> = ["a", "b", "c"].map(|name| create(&mut client, namespace, name)).into();
    let options = "watch=true&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true";
    let mut watch = Watch::open(&SERVER.endpoint(), &format!("{}?{options}", lease::collection(namespace)));
    let seen: Vec<Seen> = created.iter().map(|_| Seen::of(&watch.next())).collect();
    assert_same("initial events", &seen, &created);
    let bookmark = watch.next();
    assert_eq!(bookmark["type"], "BOOKMARK", "{bookmark}");
    assert_eq!(bookmark["object"]["metadata"]["annotations"]["k8s.io/initial-events-end"], "true", "{bookmark}");
    assert!(lease::version(&bookmark["object"]) >= created[2].version, "{bookmark}");
    // A watch from the bookmark's version gets later events only.
    let mut resumed = Watch::open(&SERVER.endpoint(), &targets(namespace, "a", lease::version(&bookmark["object"]))[1]);
    let modified = modify(&mut client, namespace, "a", 1);
    assert_eq!(Seen::of(&watch.next()), modified);
    assert_eq!(Seen::of(&resumed.next()), modified);
}

#[test]
fn a_long_initial_list_is_consistent_with_the_changes_after_it() {
    const LEASES: usize = 2_000;
    let namespace = "initial";
    let mut client = SERVER.client();
    let names: Vec<String> = (0..LEASES).map(|number| format!("lease-{number:05}")).collect();
    Http2Client::open(&SERVER.endpoint()).create(namespace, names.clone());
    let options = "watch=true&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true";
    let mut watch = Watch::open(&SERVER.endpoint(), &format!("{}?{options}", lease::collection(namespace)));
    // The initial events do not fit into the buffers, so these changes happen while they are sent.
    let modified: Vec<Seen> = names.iter().rev().take(50).map(|name| modify(&mut client, namespace, name, 1)).collect();
    delete(&mut client, namespace, &names[0]);
    let mut initial = 0;
    let bookmark = loop {
        let event = watch.next();
        if kind(&event) == "BOOKMARK" {
            break lease::version(&event["object"]);
        }
        assert_eq!(
            (kind(&event), lease::name(&event["object"])),
            ("ADDED", names[initial].as_str()),
            "event {initial}"
        );
        assert!(initial < LEASES, "more initial events than Leases");
        initial += 1;
    };
    assert_eq!(initial, LEASES, "initial events");
    for want in modified.iter().filter(|seen| seen.version > bookmark) {
        assert_eq!(Seen::of(&watch.next()), *want);
    }
    let deleted = watch.next();
    assert_eq!((kind(&deleted), lease::name(&deleted["object"])), ("DELETED", names[0].as_str()));
}

#[test]
fn watches_over_tls_and_cleartext_deliver_the_same_events() {
    let namespace = "tls";
    let server = TestServer::start_secure();
    let mut client = server.client();
    let start = present_version(&mut client, namespace);
    let target = &targets(namespace, "a", start)[1];
    let mut watches = [server.endpoint(), server.secure_endpoint()].map(|endpoint| Watch::open(&endpoint, target));
    let mut want = vec![create(&mut client, namespace, "a")];
    want.extend((1..300).map(|count| modify(&mut client, namespace, "a", count)));
    for watch in &mut watches {
        let seen: Vec<Seen> = want.iter().map(|_| Seen::of(&watch.next())).collect();
        assert_same("over TLS or not", &seen, &want);
    }
}

/// Returns types and names of all events of the watch at `target`, which must end by itself (`timeoutSeconds`).
fn events_of(target: &str) -> Vec<(String, String)> {
    let events = Watch::open(&SERVER.endpoint(), target).rest();
    let name = |event: &Value| event["object"]["metadata"]["name"].as_str().unwrap_or_default().to_owned();
    events.iter().map(|event| (kind(event).to_owned(), name(event))).collect()
}

#[test]
fn the_watch_path_opens_a_watch() {
    let mut client = SERVER.client();
    for (namespace, name) in [("by-path", "a"), ("by-path", "b"), ("by-path-too", "a")] {
        create(&mut client, namespace, name);
    }
    let root = "/apis/coordination.k8s.io/v1/watch/namespaces/by-path/leases";
    let added =
        |names: &[&str]| -> Vec<_> { names.iter().map(|name| ("ADDED".to_owned(), (*name).to_owned())).collect() };
    assert_eq!(events_of(&format!("{root}?timeoutSeconds=1")), added(&["a", "b"]));
    assert_eq!(events_of(&format!("{root}?timeoutSeconds=1&watch=false&resourceVersion=0")), added(&["a", "b"]));
    assert_eq!(events_of(&format!("{root}/b?timeoutSeconds=1")), added(&["b"]));
    assert_eq!(events_of(&format!("{root}/b?timeoutSeconds=1&fieldSelector=metadata.name%3Db")), added(&["b"]));
    assert_eq!(events_of(&format!("{root}/b?timeoutSeconds=1&labelSelector=x%3Dy")), []);
    assert_eq!(events_of(&format!("{root}/nobody?timeoutSeconds=1")), []);
    let selected = "metadata.namespace%3Dby-path-too";
    let everywhere = "/apis/coordination.k8s.io/v1/watch/leases";
    assert_eq!(events_of(&format!("{everywhere}?timeoutSeconds=1&fieldSelector={selected}")), added(&["a"]));
    // On the watch path, the bookmark after the initial events is sent only if the request also has the parameter
    // `watch`.
    let mut marked = added(&["b"]);
    let bookmarks = format!("{root}/b?timeoutSeconds=1&allowWatchBookmarks=true");
    assert_eq!(events_of(&bookmarks)[..1], marked);
    marked.push(("BOOKMARK".to_owned(), String::new()));
    assert_eq!(events_of(&format!("{bookmarks}&watch=true"))[..2], marked);

    // With `resourceVersion`, the watch path shows only later changes, as `?watch=true` does.
    let listed = client.call("GET", &lease::collection("by-path"), "").json();
    let mut watch = Watch::open(&SERVER.endpoint(), &format!("{root}/a?resourceVersion={}", lease::version(&listed)));
    modify(&mut client, "by-path", "b", 1);
    let want = modify(&mut client, "by-path", "a", 1);
    assert_eq!(Seen::of(&watch.next()), want);
}

#[test]
fn invalid_requests_to_the_watch_path_are_refused() {
    let mut client = SERVER.client();
    let root = "/apis/coordination.k8s.io/v1/watch/namespaces/by-path/leases";
    for selector in ["metadata.name%3Dc", "metadata.namespace%3Dby-path", "metadata.name%21%3Db"] {
        let target = format!("{root}/b?fieldSelector={selector}");
        let refused = client.call("GET", &target, "").expect_failure(400, "BadRequest", &target).json();
        assert_eq!(refused["message"], "fieldSelector metadata.name doesn't match requested name");
    }
    // Without the parameter `watch`, the options of the watch path are those of a list.
    let target = format!("{root}?sendInitialEvents=true&resourceVersionMatch=NotOlderThan&resourceVersion=0");
    let refused = client.call("GET", &target, "").expect_failure(422, "Invalid", &target).json();
    let message = refused["message"].as_str().unwrap();
    assert!(message.contains("sendInitialEvents is forbidden for list"), "{message}");
    for method in ["POST", "PUT", "PATCH", "DELETE", "HEAD"] {
        client.call(method, root, "").expect_status(405, method);
    }
    client.call("GET", "/apis/coordination.k8s.io/v1/watch/namespaces/by-path", "").expect_status(404, "no resource");
}
