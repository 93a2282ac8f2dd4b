//! Lists and watches against a model of the table. Goal: the contract of client-go's reflector. A client lists, and
//! then watches from the version of the list. With any interleaving of writes, the client's copy equals the table at
//! each version that the client receives. A client that lags too far gets an error, lists again, and ends with the
//! content of the table.
//!
//! Method: one process without sockets. Seeded random writes go through the API, among them deletions of collections
//! that take many turns of the event loop. The model keeps the table's content at every version. Reflectors with all
//! kinds of selectors list in pages or start with a watch. They resume and close watches. A watch gets room for only a
//! few events in a turn, or for none. The event log is short, so the reflectors often fall behind it. After every
//! event, bookmark and list, the test compares a reflector with the model at that version.
//!
//! A failure prints its seed: `MODEL_SEED=… cargo test --test list_watch_model` runs only that seed. `MODEL_SEEDS=…`
//! sets the number of seeds.

#![allow(clippy::panic, clippy::unwrap_used, reason = "tests fail by panicking")]

use coordination_apiserver::api::job::Job;
use coordination_apiserver::api::{Api, Reply, Storage};
use coordination_apiserver::auth::Credentials;
use coordination_apiserver::clock::Now;
use coordination_apiserver::features::FeatureGates;
use coordination_apiserver::form::Response;
use coordination_apiserver::http::{FieldLines, Method, RequestHead};
use coordination_apiserver::resource::ResourceVersion;
use coordination_apiserver::table::Table;
use coordination_apiserver::table::snapshot::Stepped;
use coordination_apiserver::timestamp::Time;
use coordination_apiserver::watch::{Fill, WatchEnd, WatcherKey, Watchers};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};

const SEEDS: u64 = 150;
const TURNS: usize = 150;
const REFLECTORS: usize = 6;
const NAMESPACES: [&str; 2] = ["a", "a-b"];
const NAMES: [&str; 5] = ["n0", "n1", "n2", "n3", "n4"];
const COLORS: [&str; 3] = ["red", "green", "blue"];
const FIRST_VERSION: u64 = 1_000;

#[test]
fn reflectors_match_the_table_at_every_version() {
    let number = |name: &str| std::env::var(name).ok().and_then(|text| text.parse::<u64>().ok());
    let seeds: Vec<u64> = match number("MODEL_SEED") {
        Some(seed) => vec![seed],
        None => (0..number("MODEL_SEEDS").unwrap_or(SEEDS)).map(|_| fastrand::u64(..)).collect(),
    };
    let mut total = Seen::default();
    for seed in &seeds {
        match catch_unwind(AssertUnwindSafe(|| World::new(*seed).run())) {
            Ok(seen) => total.add(&seen),
            Err(_) => panic!("the seed is {seed}: MODEL_SEED={seed} runs it alone"),
        }
    }
    // Every kind of observation must have occurred, or the test would prove little.
    if seeds.len() as u64 >= SEEDS {
        let Seen { events, bookmarks, lists, expired_watches, expired_pages, timeouts, transitions } = total;
        for count in [events, bookmarks, lists, expired_watches, expired_pages, timeouts, transitions] {
            assert!(count > 50, "{total:?}");
        }
    }
}

/// Counts of what the reflectors observed.
#[derive(Clone, Copy, Debug, Default)]
struct Seen {
    events: usize,
    bookmarks: usize,
    lists: usize,
    expired_watches: usize,
    expired_pages: usize,
    timeouts: usize,
    /// Number of events whose kind differs from the change, because a selector began or ceased to match.
    transitions: usize,
}

impl Seen {
    fn add(&mut self, other: &Self) {
        self.events += other.events;
        self.bookmarks += other.bookmarks;
        self.lists += other.lists;
        self.expired_watches += other.expired_watches;
        self.expired_pages += other.expired_pages;
        self.timeouts += other.timeouts;
        self.transitions += other.transitions;
    }
}

/// A Lease in the model.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Known {
    version: u64,
    color: Option<String>,
}

/// Content of the table at one version, by namespace and name.
type State = BTreeMap<(&'static str, &'static str), Known>;
/// Versions in a reflector's copy, by namespace and name.
type Copy = BTreeMap<(String, String), u64>;

struct World {
    api: Api,
    table: Table,
    watchers: Watchers<usize>,
    credentials: Credentials,
    now: Now,
    rng: fastrand::Rng,
    /// `states[i]` is the content at version `FIRST_VERSION + i`.
    states: Vec<State>,
    /// Deletions of collections that are not complete.
    deletions: Vec<Job>,
    reflectors: Vec<Reflector>,
    seen: Seen,
}

struct NoLines;

impl FieldLines for NoLines {
    fn for_each(&self, _: &mut dyn FnMut(&[u8], &[u8])) {}
}

impl World {
    fn new(seed: u64) -> Self {
        let mut rng = fastrand::Rng::with_seed(seed);
        let events_max = rng.usize(1..60);
        let version = ResourceVersion(FIRST_VERSION);
        let mut api = Api::new();
        api.features = FeatureGates { sharded_list_and_watch: true };
        let reflectors = (0..REFLECTORS).map(|_| Reflector::new(&mut rng)).collect();
        Self {
            api,
            table: Table::new(version, events_max, usize::MAX),
            watchers: Watchers::new(version),
            credentials: Credentials::insecure(),
            now: Now { ms: 1_000, wall: Time(1_700_000_000) },
            rng,
            states: vec![State::new()],
            deletions: Vec::new(),
            reflectors,
            seen: Seen::default(),
        }
    }

    fn run(mut self) -> Seen {
        for _ in 0..TURNS {
            for _ in 0..self.rng.usize(1..8) {
                match self.rng.u8(..10) {
                    0..5 => self.write(),
                    5 => self.step_deletion(),
                    _ => {
                        let at = self.rng.usize(..REFLECTORS);
                        self.go_on(at, false);
                    }
                }
            }
            self.end_turn(false);
        }
        while !self.deletions.is_empty() {
            self.step_deletion();
        }
        // Writes have ended: all reflectors catch up.
        for round in 0.. {
            assert!(round < 1_000, "a reflector never catches up");
            for at in 0..REFLECTORS {
                self.go_on(at, true);
            }
            let is_quiet = self.end_turn(true);
            let is_watching = |reflector: &Reflector| matches!(reflector.stage, Stage::Watching { initial: None, .. });
            if is_quiet && self.reflectors.iter().all(is_watching) {
                break;
            }
        }
        for reflector in &self.reflectors {
            assert_eq!(reflector.copy, reflector.wanted.of(self.states.last().unwrap()), "{:?}", reflector.wanted);
        }
        self.seen
    }

    fn head(&self) -> u64 {
        FIRST_VERSION + self.states.len() as u64 - 1
    }

    fn send(&mut self, method: Method, target: &str, body: &Value) -> Reply {
        let (path, query) = target.split_once('?').unwrap_or((target, ""));
        let content_type: &[u8] =
            if method == Method::Patch { b"application/merge-patch+json" } else { b"application/json" };
        let bare = RequestHead::bare(method, path, query, &NoLines);
        let head = RequestHead { content_type: Some(content_type), user_agent: Some(b"model/1"), ..bare };
        let body = if body.is_null() { Vec::new() } else { body.to_string().into_bytes() };
        self.api.handle(&mut self.table, &head, &body, None, &self.credentials, self.now)
    }

    /// Performs one random write.
    fn write(&mut self) {
        let namespace = NAMESPACES[self.rng.usize(..2)];
        let name = NAMES[self.rng.usize(..NAMES.len())];
        let collection = format!("/apis/coordination.k8s.io/v1/namespaces/{namespace}/leases");
        let path = format!("{collection}/{name}");
        let color = self.rng.choice(COLORS).filter(|_| self.rng.u8(..4) > 0);
        let metadata = json!({"labels": {"color": color}});
        let transitions = self.rng.u16(..);
        let reply = match self.rng.u8(..12) {
            0..4 => {
                let finalizers = if self.rng.u8(..4) == 0 { json!(["x.y/z"]) } else { Value::Null };
                let labels = color.map_or_else(|| json!({}), |color| json!({"color": color}));
                let metadata = json!({"name": name, "labels": labels, "finalizers": finalizers});
                self.send(Method::Post, &collection, &json!({"metadata": metadata}))
            }
            4..7 => self.send(
                Method::Patch,
                &path,
                &json!({"metadata": metadata, "spec": {"leaseTransitions": transitions}}),
            ),
            7 => {
                let version =
                    self.states.last().unwrap().get(&(namespace, name)).map(|known| known.version.to_string());
                let metadata = json!({"name": name, "resourceVersion": version, "labels": {"color": "red"}});
                self.send(Method::Put, &path, &json!({"metadata": metadata, "spec": {"leaseTransitions": transitions}}))
            }
            8 => self.send(Method::Patch, &path, &json!({"metadata": {"finalizers": null}})),
            9 | 10 => self.send(Method::Delete, &path, &Value::Null),
            _ => {
                let selector = ["", "?labelSelector=color%3Dred", "?limit=2", "?fieldSelector=metadata.name%21%3Dn1"];
                let target = collection + selector[self.rng.usize(..selector.len())];
                self.send(Method::Delete, &target, &Value::Null)
            }
        };
        match reply {
            Reply::Response(response) => assert!([200, 201, 404, 409].contains(&response.status), "{response:?}"),
            Reply::Job(job) => self.deletions.push(*job),
            Reply::Watch(_) | Reply::Waiting(_) => panic!("the request is not a watch, and its namespace is known"),
        }
        self.learn();
    }

    /// Runs one step of a deletion.
    fn step_deletion(&mut self) {
        if self.deletions.is_empty() {
            return;
        }
        let at = self.rng.usize(..self.deletions.len());
        let mut out = Vec::new();
        // A deletion ends half-way if the event log has dropped states that it needs. On a connection, the response
        // would end there too.
        if !matches!(
            self.deletions[at].step(&mut self.table, &mut Storage::Memory, self.now, &mut out, 1_000),
            Ok(Stepped::More)
        ) {
            self.deletions.swap_remove(at);
        }
        self.learn();
    }

    /// Advances the model to the table's version. Each version is one change of one Lease. A deleted Lease does not
    /// show the version of its deletion. But one request deletes Leases in the order of their keys, which is also the
    /// order of `gone`. So the versions that no present Lease shows belong to the Leases in `gone`, in this order.
    fn learn(&mut self) {
        let last = self.states.last().unwrap();
        let mut changes: BTreeMap<u64, ((&'static str, &'static str), Option<Known>)> = BTreeMap::new();
        let mut gone = Vec::new();
        for key in NAMESPACES.into_iter().flat_map(|namespace| NAMES.into_iter().map(move |name| (namespace, name))) {
            match (last.get(&key), self.table.find(key.0, key.1)) {
                (known, Some((_, object))) => {
                    let version = object.version.0;
                    if known.is_none_or(|known| known.version != version) {
                        let color = object.metadata().labels.value("color").map(str::to_owned);
                        changes.insert(version, (key, Some(Known { version, color })));
                    }
                }
                (Some(_), None) => gone.push(key),
                (None, None) => {}
            }
        }
        let mut gone = gone.into_iter();
        for version in self.head() + 1..=self.table.version().0 {
            let (key, now) =
                changes.remove(&version).unwrap_or_else(|| (gone.next().expect("a version is a change"), None));
            let mut state = self.states.last().unwrap().clone();
            match now {
                Some(known) => _ = state.insert(key, known),
                None => _ = state.remove(&key),
            }
            self.states.push(state);
        }
        assert!(changes.is_empty() && gone.next().is_none(), "a change without a version");
    }

    /// Performs the work at the end of a turn. With `everybody`, every watcher with events gets unlimited room for its
    /// output. Otherwise some watchers get no room, and the others little. Returns whether no work was left.
    fn end_turn(&mut self, everybody: bool) -> bool {
        for job in &mut self.deletions {
            job.check(self.now, false);
        }
        for reflector in &mut self.reflectors {
            if let Stage::Listing(Listing { job: Some(job), .. }) = &mut reflector.stage {
                job.check(self.now, false);
            }
        }
        let marks_max = if everybody { usize::MAX } else { self.rng.usize(1..50) };
        self.watchers.notify(&self.table, marks_max);
        self.watchers.on_timeout(self.now);
        let (mut is_quiet, mut later) = (true, Vec::new());
        while let Some((key, owner)) = self.watchers.pop_dirty() {
            if !everybody && self.rng.u8(..3) == 0 {
                later.push(key);
                continue;
            }
            let mut out = Vec::new();
            let bytes_max = if everybody { usize::MAX } else { self.rng.usize(1..3_000) };
            let fill = self.watchers.fill(key, &self.table, self.now, &mut out, bytes_max);
            is_quiet &= out.is_empty() && fill == Fill::Idle;
            self.reflectors[owner].recv(key, &out, &self.states, &mut self.seen);
            match fill {
                Fill::More => later.push(key),
                Fill::Idle => {}
                Fill::Ended(why) => {
                    self.seen.timeouts += usize::from(why == WatchEnd::TimedOut);
                    self.reflectors[owner].on_end(key);
                }
            }
        }
        for key in later {
            self.watchers.mark_dirty(key);
        }
        // The clock stops at the end, so that no watch times out while others catch up.
        if !everybody {
            self.now.ms += self.rng.u64(..20_000);
        }
        is_quiet
    }

    /// Performs a reflector's next action. A reflector without a watch opens one, or starts or continues a list. An
    /// open watch stays open, but is sometimes closed unless `eager` is set. With `eager`, a step of a list has
    /// unlimited room for its output.
    fn go_on(&mut self, at: usize, eager: bool) {
        let mut reflector = std::mem::take(&mut self.reflectors[at]);
        let stage = std::mem::take(&mut reflector.stage);
        reflector.stage = match stage {
            Stage::Lost if reflector.begins_with_watch && self.rng.u8(..4) > 0 => self.open(at, &mut reflector, true),
            Stage::Lost => self.list(&reflector, None),
            Stage::Listing(listing) => self.go_on_listing(&mut reflector, listing, eager),
            Stage::Listed => self.open(at, &mut reflector, false),
            Stage::Watching { key, initial } if !eager && self.rng.u8(..6) == 0 => {
                self.watchers.remove(key);
                Stage::after_watch(initial.is_some())
            }
            watching @ Stage::Watching { .. } => watching,
        };
        self.reflectors[at] = reflector;
    }

    /// Starts a list, or requests its next page: `after` has the pages so far and the continue token.
    fn list(&mut self, reflector: &Reflector, after: Option<(Listing, String)>) -> Stage {
        let mut target = reflector.wanted.target();
        if reflector.limit > 0 {
            target.push_str(&format!("&limit={}", reflector.limit));
        }
        let mut listing = match after {
            Some((listing, token)) => {
                target.push_str(&format!("&continue={token}"));
                listing
            }
            None => {
                // Sometimes the list is exactly at the reflector's version, or at this version or a later one, or at
                // any version (0).
                match (reflector.version, self.rng.u8(..6)) {
                    (version @ 1.., 0) => {
                        target.push_str(&format!("&resourceVersion={version}&resourceVersionMatch=Exact"));
                    }
                    (version @ 1.., 1) => {
                        target.push_str(&format!("&resourceVersion={version}&resourceVersionMatch=NotOlderThan"));
                    }
                    (_, 2) => target.push_str("&resourceVersion=0"),
                    _ => {}
                }
                Listing::default()
            }
        };
        match self.send(Method::Get, &target, &Value::Null) {
            Reply::Job(job) => {
                listing.job = Some(job);
                Stage::Listing(listing)
            }
            Reply::Response(response) => {
                assert_eq!(response.status, 410, "{target}: {response:?}");
                self.seen.expired_pages += 1;
                Stage::Lost
            }
            Reply::Watch(_) | Reply::Waiting(_) => panic!("{target} is a list"),
        }
    }

    fn go_on_listing(&mut self, reflector: &mut Reflector, mut listing: Listing, eager: bool) -> Stage {
        let Some(mut job) = listing.job.take() else {
            let token = std::mem::take(&mut listing.token);
            return self.list(reflector, Some((listing, token)));
        };
        let bytes_max = if eager { usize::MAX } else { self.rng.usize(1..2_000) };
        match job.step(&mut self.table, &mut Storage::Memory, self.now, &mut listing.body, bytes_max) {
            Ok(Stepped::More) => {
                listing.job = Some(job);
                return Stage::Listing(listing);
            }
            Ok(Stepped::Done) => {}
            Err(_) => return Stage::Lost,
        }
        let page: Value = serde_json::from_slice(&std::mem::take(&mut listing.body)).expect("JSON");
        let version = version(&page);
        assert!(*listing.version.get_or_insert(version) == version, "every page is of the first one's version");
        for item in page["items"].as_array().unwrap() {
            let is_new = listing.copy.insert(key(item), crate::version(item)).is_none();
            assert!(is_new, "an item is in two pages");
        }
        let token = page["metadata"]["continue"].as_str().unwrap_or_default();
        if !token.is_empty() {
            listing.token = token.to_owned();
            return Stage::Listing(listing);
        }
        self.seen.lists += 1;
        assert_eq!(listing.copy, reflector.wanted.at(&self.states, version), "a list at {version}");
        (reflector.copy, reflector.version) = (listing.copy, version);
        Stage::Listed
    }

    /// Opens a watch, from the reflector's version or with initial events.
    fn open(&mut self, at: usize, reflector: &mut Reflector, with_initial: bool) -> Stage {
        let mut target = reflector.wanted.target() + "&watch=true&allowWatchBookmarks=true";
        target.push_str(&format!("&timeoutSeconds={}", self.rng.u16(1..400)));
        if with_initial {
            target.push_str("&sendInitialEvents=true&resourceVersionMatch=NotOlderThan");
        } else {
            target.push_str(&format!("&resourceVersion={}", reflector.version));
        }
        match self.send(Method::Get, &target, &Value::Null) {
            Reply::Watch(spec) => {
                let key = self.watchers.add(at, *spec, self.now);
                Stage::Watching { key, initial: with_initial.then(Copy::new) }
            }
            Reply::Response(Response { status, .. }) => panic!("{status} for {target}"),
            Reply::Job(_) | Reply::Waiting(_) => panic!("{target} is a watch"),
        }
    }
}

/// The Leases that a reflector wants.
#[derive(Clone, Debug, Default)]
struct Wanted {
    namespace: Option<&'static str>,
    /// Name, and whether the reflector wants only this name (true) or all other names (false).
    name: Option<(&'static str, bool)>,
    color: Option<ColorTerm>,
    /// Namespace whose shard the reflector wants; `None` for all shards.
    shard: Option<&'static str>,
}

#[derive(Clone, Copy, Debug)]
enum ColorTerm {
    Is(&'static str),
    IsNot(&'static str),
    IsAny([&'static str; 2]),
    Exists,
    IsAbsent,
}

impl Wanted {
    fn new(rng: &mut fastrand::Rng) -> Self {
        let color = COLORS[rng.usize(..3)];
        let terms = [
            ColorTerm::Is(color),
            ColorTerm::IsNot(color),
            ColorTerm::IsAny(["red", "blue"]),
            ColorTerm::Exists,
            ColorTerm::IsAbsent,
        ];
        Self {
            namespace: [None, Some("a"), Some("a-b")][rng.usize(..3)],
            name: [None, None, Some(("n1", true)), Some(("n2", false))][rng.usize(..4)],
            color: rng.choice(terms).filter(|_| rng.u8(..3) > 0),
            shard: [None, None, Some("a"), Some("a-b")][rng.usize(..4)],
        }
    }

    /// Returns path and query. More parameters can be added.
    fn target(&self) -> String {
        let mut target = match self.namespace {
            Some(namespace) => format!("/apis/coordination.k8s.io/v1/namespaces/{namespace}/leases?x=y"),
            None => "/apis/coordination.k8s.io/v1/leases?x=y".to_owned(),
        };
        if let Some((name, is)) = self.name {
            target.push_str(&format!("&fieldSelector=metadata.name{}{name}", if is { "%3D" } else { "%21%3D" }));
        }
        match self.color {
            None => {}
            Some(ColorTerm::Is(color)) => target.push_str(&format!("&labelSelector=color%3D{color}")),
            Some(ColorTerm::IsNot(color)) => target.push_str(&format!("&labelSelector=color%21%3D{color}")),
            Some(ColorTerm::IsAny([one, other])) => {
                target.push_str(&format!("&labelSelector=color%20in%20({one},{other})"));
            }
            Some(ColorTerm::Exists) => target.push_str("&labelSelector=color"),
            Some(ColorTerm::IsAbsent) => target.push_str("&labelSelector=%21color"),
        }
        if let Some(namespace) = self.shard {
            // The hash of "a" begins with af, and that of "a-b" with e6. So the bound 0xc separates the two namespaces.
            let (start, end) = if namespace == "a" { ("0x0", "0xc") } else { ("0xc", "0x10") };
            let shard = format!("object.metadata.namespace,'{start}{0:015}','{end}{0:015}'", 0);
            target.push_str(&format!("&shardSelector=shardRange({shard})"));
        }
        target
    }

    fn takes(&self, (namespace, name): (&str, &str), color: Option<&str>) -> bool {
        self.namespace.is_none_or(|wanted| wanted == namespace)
            && self.shard.is_none_or(|wanted| wanted == namespace)
            && self.name.is_none_or(|(wanted, is)| (wanted == name) == is)
            && self.color.is_none_or(|term| match term {
                ColorTerm::Is(wanted) => color == Some(wanted),
                ColorTerm::IsNot(unwanted) => color != Some(unwanted),
                ColorTerm::IsAny(wanted) => color.is_some_and(|color| wanted.contains(&color)),
                ColorTerm::Exists => color.is_some(),
                ColorTerm::IsAbsent => color.is_none(),
            })
    }

    /// Returns the wanted part of a state.
    fn of(&self, state: &State) -> Copy {
        let wanted = state.iter().filter(|(key, known)| self.takes(**key, known.color.as_deref()));
        wanted
            .map(|((namespace, name), known)| (((*namespace).to_owned(), (*name).to_owned()), known.version))
            .collect()
    }

    fn at(&self, states: &[State], version: u64) -> Copy {
        let at = usize::try_from(version - FIRST_VERSION).unwrap();
        self.of(states.get(at).unwrap_or_else(|| panic!("version {version} is in the future")))
    }
}

/// A client that keeps a copy of the wanted part of the table.
#[derive(Default)]
struct Reflector {
    wanted: Wanted,
    /// Items in a page; 0 for no pages.
    limit: usize,
    /// Whether the reflector starts with a watch instead of a list.
    begins_with_watch: bool,
    stage: Stage,
    copy: Copy,
    /// Version of `copy`; 0 before the first list or initial events.
    version: u64,
}

#[derive(Default)]
enum Stage {
    /// The reflector has no usable copy. It must list, or start a watch with initial events.
    #[default]
    Lost,
    Listing(Listing),
    /// The reflector has listed, or its watch has ended. It can watch from its version.
    Listed,
    Watching {
        key: WatcherKey,
        /// Leases of the initial events so far; `None` once their bookmark has arrived.
        initial: Option<Copy>,
    },
}

impl Stage {
    /// Stage after a watch ended: the copy is kept, unless its initial events were incomplete.
    fn after_watch(is_initial: bool) -> Self {
        if is_initial { Self::Lost } else { Self::Listed }
    }
}

#[derive(Default)]
struct Listing {
    job: Option<Box<Job>>,
    body: Vec<u8>,
    copy: Copy,
    version: Option<u64>,
    /// Continue token of the next page.
    token: String,
}

impl Reflector {
    fn new(rng: &mut fastrand::Rng) -> Self {
        Self {
            wanted: Wanted::new(rng),
            limit: [0, 1, 2, 5][rng.usize(..4)],
            begins_with_watch: rng.u8(..3) == 0,
            stage: Stage::Lost,
            copy: Copy::new(),
            version: 0,
        }
    }

    fn on_end(&mut self, key: WatcherKey) {
        if let Stage::Watching { key: own, initial } = &self.stage
            && *own == key
        {
            self.stage = Stage::after_watch(initial.is_some());
        }
    }

    /// Receives events of the reflector's watch. Events of a closed watch are ignored.
    fn recv(&mut self, key: WatcherKey, events: &[u8], states: &[State], seen: &mut Seen) {
        for line in events.split(|byte| *byte == b'\n').filter(|line| !line.is_empty()) {
            let event: Value = serde_json::from_slice(line).expect("JSON");
            if !matches!(self.stage, Stage::Watching { key: own, .. } if own == key) {
                return;
            }
            self.recv_event(&event, states, seen);
        }
    }

    fn recv_event(&mut self, event: &Value, states: &[State], seen: &mut Seen) {
        let (kind, object) = (event["type"].as_str().unwrap(), &event["object"]);
        if kind == "ERROR" {
            assert_eq!((object["code"].as_u64(), object["reason"].as_str()), (Some(410), Some("Expired")), "{event}");
            seen.expired_watches += 1;
            self.stage = Stage::Lost;
            return;
        }
        let Stage::Watching { initial, .. } = &mut self.stage else { return };
        let version = version(object);
        if let Some(first) = initial {
            if kind == "BOOKMARK" {
                assert_eq!(object["metadata"]["annotations"]["k8s.io/initial-events-end"], "true", "{event}");
                self.copy = std::mem::take(first);
                *initial = None;
            } else {
                assert_eq!(kind, "ADDED", "{event}");
                let is_new = first.insert(key(object), version).is_none();
                assert!(is_new, "an initial event came twice: {event}");
                return;
            }
        } else if kind == "BOOKMARK" {
            assert!(version >= self.version, "a bookmark below {}: {event}", self.version);
        } else {
            assert!(version > self.version, "an event not above {}: {event}", self.version);
            let before = self.copy.remove(&key(object));
            if kind != "DELETED" {
                self.copy.insert(key(object), version);
            }
            let fits = match kind {
                "ADDED" => before.is_none(),
                "MODIFIED" | "DELETED" => before.is_some(),
                _ => false,
            };
            assert!(fits, "the event does not fit {before:?}: {event}");
            seen.events += 1;
            let at = usize::try_from(version - FIRST_VERSION).unwrap();
            let exists = |at: usize| {
                states[at].keys().any(|(namespace, name)| {
                    (*namespace, *name)
                        == (
                            object["metadata"]["namespace"].as_str().unwrap(),
                            object["metadata"]["name"].as_str().unwrap(),
                        )
                })
            };
            let change = if !exists(at) {
                "DELETED"
            } else if exists(at - 1) {
                "MODIFIED"
            } else {
                "ADDED"
            };
            seen.transitions += usize::from(change != kind);
        }
        seen.bookmarks += usize::from(kind == "BOOKMARK");
        self.version = version;
        assert_eq!(self.copy, self.wanted.at(states, version), "after {event}");
    }
}

/// Returns `metadata.resourceVersion`.
fn version(object: &Value) -> u64 {
    object["metadata"]["resourceVersion"].as_str().and_then(|text| text.parse().ok()).expect("a version")
}

/// Returns namespace and name.
fn key(object: &Value) -> (String, String) {
    let text = |name: &str| object["metadata"][name].as_str().expect(name).to_owned();
    (text("namespace"), text("name"))
}
