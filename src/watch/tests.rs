//! Watchers compared with a naive model. Goal: each watcher sees every matching change once and in order, or gets an
//! error if it has missed changes. This holds for any room on its connection and any other watchers. Method: seeded
//! random writes, watchers and fills. A fill writes a watcher's events to its connection. Afterwards, the test computes
//! from the whole history which events a watcher should have seen.

use super::*;
use crate::lease::Lease;
use crate::limits::{JOB_KEYS_PER_STEP, JOB_MS_MAX, SCAN_EVENTS_PER_FILL, SELECTOR_TERMS_PER_LOOK};
use crate::media_type::negotiate;
use crate::schedule::{Permits, Requester};
use crate::selector::field::FieldSelector;
use crate::selector::label::LabelSelector;
use crate::selector::shard::ShardSelector;
use crate::table::object::{Key, Object};
use crate::table::snapshot::Stepped;
use crate::timestamp::Time;
use compact_str::CompactString;
use std::io::BufRead as _;

/// A table, its watchers, and the history of the table: every event since its first version.
struct World {
    table: Table,
    first: u64,
    history: Vec<crate::table::event_log::Event>,
    watchers: Watchers<usize>,
    rng: fastrand::Rng,
    now: Now,
    /// Number of calls of [`Watchers::notify`] that left changes for the next call.
    calls_behind: usize,
}

/// The client of a watch, and the events that it has seen.
struct Client {
    key: WatcherKey,
    range: Range,
    selector: Selector,
    after: u64,
    seen: Vec<(String, String, u64)>,
    expired: bool,
}

impl World {
    fn new(seed: u64, events_max: usize) -> Self {
        let first = 500;
        Self {
            table: Table::new(ResourceVersion(first), events_max, usize::MAX),
            first,
            history: Vec::new(),
            watchers: Watchers::new(ResourceVersion(first)),
            rng: fastrand::Rng::with_seed(seed),
            now: Now { ms: 1000, wall: Time(1_700_000_000) },
            calls_behind: 0,
        }
    }

    fn write(&mut self) {
        let namespace = ["a", "b"][self.rng.usize(0..2)];
        let mut lease = Lease::named(namespace, &format!("n{}", self.rng.u8(0..4)));
        if self.rng.bool() {
            lease.metadata.labels.insert("l".into(), ["1", "2"][self.rng.usize(0..2)].into());
        }
        let found = self.table.find(&lease.metadata.namespace, &lease.metadata.name);
        lease.metadata.uid = match found {
            // An import of kube-apiserver's own Leases may replace a Lease by another one of the same name, with
            // another UID.
            Some((_, object)) if self.rng.u8(0..8) > 0 => object.metadata().uid.clone(),
            _ => CompactString::from(format!("{:x}", self.rng.u64(..))),
        };
        match found.map(|(slot, _)| slot) {
            None => self.table.create(lease),
            Some(slot) if self.rng.u8(0..3) == 0 => self.table.remove(slot),
            Some(slot) => self.table.replace(slot, lease),
        };
        let event = self.table.log().event(self.table.version()).expect("just made").clone();
        self.history.push(event);
    }

    fn open(&mut self, owner: usize) -> Client {
        let range = match self.rng.u8(0..3) {
            0 => Range::All,
            1 => Range::Namespace("a".into()),
            _ => Range::Name(Key::new("b", "n1")),
        };
        let labels = if self.rng.bool() { "l=1" } else { "" };
        let shard = self.rng.bool().then(|| {
            let field = ["uid", "namespace"][self.rng.usize(0..2)];
            let ranges: Vec<_> = (0..self.rng.usize(1..3)).map(|_| shard_range(field, self.rng.u64(0..4), 4)).collect();
            shard(&ranges.join(" || "))
        });
        let selector = Selector {
            labels: LabelSelector::parse(labels).expect("a selector"),
            fields: FieldSelector::parse("").expect("a selector"),
            shard,
        };
        let head = self.table.version().0;
        let after = self.rng.u64(self.table.log().floor().0..=head);
        let start = WatchStart::After(ResourceVersion(after));
        let spec = WatchSpec { selector: selector.clone(), ..spec_of(range.clone(), start) };
        let key = self.watchers.add(owner, spec, self.now);
        Client { key, range, selector, after, seen: Vec::new(), expired: false }
    }

    /// Fills some of the dirty watchers (those that may have something to send), or all of them if `everybody` is true.
    /// The connections of the other watchers have no room now.
    fn fan_out(&mut self, clients: &mut [Client], everybody: bool) {
        let marks_max = if everybody { usize::MAX } else { self.rng.usize(1..8) };
        self.watchers.notify(&self.table, marks_max);
        self.calls_behind += usize::from(self.watchers.is_behind);
        let mut again = Vec::new();
        while let Some((key, owner)) = self.watchers.pop_dirty() {
            if !everybody && self.rng.bool() {
                again.push(key);
                continue;
            }
            let mut out = Vec::new();
            let bytes_max = if everybody { usize::MAX } else { self.rng.usize(1..2000) };
            let fill = self.watchers.fill(key, &self.table, self.now, &mut out, bytes_max);
            clients[owner].take(&out);
            match fill {
                Fill::More => again.push(key),
                Fill::Idle => {}
                Fill::Ended(why) => {
                    assert_eq!(why, WatchEnd::Expired);
                    clients[owner].expired = true;
                }
            }
        }
        for key in again {
            self.watchers.mark_dirty(key);
        }
    }

    /// Returns the events that a client should have seen, computed from the whole history.
    fn expected(&self, client: &Client) -> Vec<(String, String, u64)> {
        let takes = |object: &Object| client.range.contains(object.key()) && object.is_selected_by(&client.selector);
        let mut expected = Vec::new();
        for event in self.history.iter().filter(|event| event.version().0 > client.after) {
            let before = event.before.as_ref().is_some_and(takes);
            let after = !event.deleted && takes(&event.after);
            let kind = match (before, after) {
                (false, false) => continue,
                (false, true) => "ADDED",
                (true, true) => "MODIFIED",
                (true, false) => "DELETED",
            };
            expected.push((kind.to_owned(), event.after.key().as_str().to_owned(), event.version().0));
        }
        expected
    }
}

impl Client {
    fn take(&mut self, out: &[u8]) {
        for line in out.split(|byte| *byte == b'\n').filter(|line| !line.is_empty()) {
            let event: serde_json::Value = serde_json::from_slice(line).expect("JSON");
            if event["type"] == "ERROR" {
                assert_eq!(event["object"]["code"], 410);
                continue;
            }
            let text = |value: &serde_json::Value| value.as_str().unwrap_or_default().to_owned();
            let meta = &event["object"]["metadata"];
            let key = format!("{}/{}", text(&meta["namespace"]), text(&meta["name"]));
            let version = text(&meta["resourceVersion"]).parse().expect("a number");
            self.seen.push((text(&event["type"]), key, version));
        }
    }
}

/// Returns a watch that has no selector, no bookmarks and no timeout.
fn spec_of(range: Range, start: WatchStart) -> WatchSpec {
    WatchSpec {
        range,
        selector: Selector::default(),
        start,
        bookmarks: false,
        timeout_ms: u64::MAX,
        form: Form::default(),
    }
}

/// Returns a shard selector's text for the shard `index` of `count` equal shards.
fn shard_range(field: &str, index: u64, count: u64) -> String {
    let size = (1 << 64) / u128::from(count);
    let [start, end] =
        [u128::from(index) * size, if index + 1 == count { 1 << 64 } else { u128::from(index + 1) * size }];
    format!("shardRange(object.metadata.{field}, '0x{start:016x}', '0x{end:016x}')")
}

fn shard(text: &str) -> Box<ShardSelector> {
    Box::new(ShardSelector::parse(text).expect("a selector"))
}

#[test]
fn every_watcher_sees_every_change_once_and_in_order() {
    let mut calls_behind = 0;
    for seed in 0..200 {
        let mut world = World::new(seed, usize::MAX);
        let mut clients = Vec::new();
        for _ in 0..60 {
            for _ in 0..world.rng.usize(0..5) {
                world.write();
            }
            if clients.len() < 12 && world.rng.bool() {
                clients.push(world.open(clients.len()));
            }
            world.fan_out(&mut clients, false);
        }
        // Fills each watcher that has more events, in many rounds. One fill scans only a limited part of the event log.
        for _ in 0..100 {
            world.fan_out(&mut clients, true);
        }
        for client in &clients {
            assert!(!client.expired, "seed {seed}: the log kept everything");
            assert_eq!(client.seen, world.expected(client), "seed {seed}, {:?} after {}", client.range, client.after);
        }
        calls_behind += world.calls_behind;
    }
    assert!(calls_behind > 100, "notify left changes for its next call only {calls_behind} times");
}

/// Goal: a burst of changes in a namespace with many watchers does not stop the event loop. Method: counts the changes
/// that each call of `notify` reads, and checks that all changes arrive.
#[test]
fn a_burst_of_changes_marks_a_bounded_number_of_watchers_in_a_turn() {
    let mut world = World::new(1, usize::MAX);
    let write = |world: &mut World, name: &str| drop(world.table.put(Lease::named("a", name)));
    let spec = |after| spec_of(Range::Namespace("a".into()), WatchStart::After(after));
    let start = world.table.version();
    let keys: Vec<_> = (0..100).map(|owner| world.watchers.add(owner, spec(start), world.now)).collect();
    let mut out = Vec::new();
    let mut fill = |world: &mut World| {
        out.clear();
        while let Some((key, _)) = world.watchers.pop_dirty() {
            assert_eq!(world.watchers.fill(key, &world.table, world.now, &mut out, usize::MAX), Fill::Idle);
        }
        out.iter().filter(|byte| **byte == b'\n').count()
    };
    (0..800).for_each(|_| write(&mut world, "first"));
    world.watchers.notify(&world.table, usize::MAX);
    fill(&mut world);

    // Each change marks all 100 watchers. The third change exceeds the limit of 250 marks, so a call of `notify` reads
    // three changes, which make 300 events.
    (0..10).for_each(|_| write(&mut world, "burst"));
    let mut events = Vec::new();
    while events.is_empty() || world.watchers.has_dirty() {
        world.watchers.notify(&world.table, 250);
        events.push(fill(&mut world));
    }
    assert_eq!(events, [300, 300, 300, 100]);

    // 200 unread changes are more than one in `UNDELIVERED_SHARE` events of the log. So `notify` exceeds the 250 marks,
    // until no more than this share is unread.
    (0..200).for_each(|_| write(&mut world, "flood"));
    world.watchers.notify(&world.table, 250);
    let backlog = world.table.version().0 - world.watchers.notified.0;
    assert_eq!(backlog, world.table.log().len() as u64 / UNDELIVERED_SHARE as u64);

    // A new watch begins at the head, while `notify` has not read the last changes before the head. The next call of
    // `notify` must not add these changes to the pending changes of the new watch.
    let head = world.table.version();
    let late = world.watchers.add(100, spec(head), world.now);
    fill(&mut world);
    world.watchers.notify(&world.table, usize::MAX);
    assert!(world.watchers.entry(late).is_some_and(|entry| entry.watcher.pending_len() == 0));
    assert!(keys.iter().all(|key| world.watchers.entry(*key).is_some_and(|entry| entry.watcher.pending_len() > 0)));
}

#[test]
fn a_watcher_behind_the_event_log_expires_without_a_gap() {
    let mut expired = 0;
    for seed in 0..200 {
        let mut world = World::new(seed, 12);
        let mut clients = Vec::new();
        for _ in 0..60 {
            for _ in 0..world.rng.usize(0..12) {
                world.write();
            }
            if clients.len() < 12 {
                clients.push(world.open(clients.len()));
            }
            world.fan_out(&mut clients, false);
        }
        world.fan_out(&mut clients, true);
        for client in &clients {
            let expected = world.expected(client);
            if client.expired {
                expired += 1;
                assert_eq!(client.seen, expected[..client.seen.len()], "seed {seed}: a gap before the end");
                assert!(world.watchers.entry(client.key).is_none(), "seed {seed}: ended and still there");
            } else {
                assert_eq!(client.seen, expected, "seed {seed}: not told of what is missing");
            }
        }
    }
    assert!(expired > 100, "the test does not reach what it is about: {expired}");
}

#[test]
fn a_change_wakes_only_the_watchers_of_its_lease() {
    let mut world = World::new(1, usize::MAX);
    let spec = |name: &str| spec_of(Range::Name(Key::new("a", name)), WatchStart::After(ResourceVersion(500)));
    let keys: Vec<_> = (0..100).map(|i| world.watchers.add(i, spec(&format!("n{i}")), world.now)).collect();
    let mut out = Vec::new();
    while let Some((key, _)) = world.watchers.pop_dirty() {
        assert_eq!(world.watchers.fill(key, &world.table, world.now, &mut out, 1000), Fill::Idle);
    }
    world.table.create(Lease::named("a", "n7"));
    world.watchers.notify(&world.table, usize::MAX);
    assert_eq!(world.watchers.pop_dirty(), Some((keys[7], 7)));
    assert_eq!(world.watchers.pop_dirty(), None);
}

/// Goal: watchers whose shard selectors divide all Leases among them cost about as much as one watcher. Method:
/// compares the number of events examined for 64 such watchers and for 64 watchers of all Leases.
#[test]
fn many_shards_of_a_ring_cost_hardly_more_than_one_watcher() {
    let (watchers, writes) = (64, 1_000);
    let looks = |count: Option<u64>, ranges_each: u64| {
        let mut world = World::new(1, usize::MAX);
        let mut clients = Vec::new();
        for owner in 0..watchers {
            let mut client = world.open(0);
            world.watchers.remove(client.key);
            client.selector = Selector::default();
            client.selector.shard = count.map(|count| {
                let ranges =
                    (0..ranges_each).map(|nth| shard_range("uid", owner + nth * watchers, count * ranges_each));
                shard(&ranges.collect::<Vec<_>>().join(" || "))
            });
            (client.range, client.after) = (Range::All, world.first);
            let start = WatchStart::After(ResourceVersion(world.first));
            let spec = WatchSpec { selector: client.selector.clone(), ..spec_of(client.range.clone(), start) };
            client.key = world.watchers.add(clients.len(), spec, world.now);
            clients.push(client);
        }
        world.fan_out(&mut clients, true);
        for _ in 0..writes {
            world.write();
            world.fan_out(&mut clients, true);
        }
        for client in &clients {
            assert_eq!(client.seen, world.expected(client));
        }
        world.watchers.looks()
    };
    let unfiltered = looks(None, 1);
    assert_eq!(unfiltered, watchers * writes);
    // For each change, the index compares some hashes. Then only one watcher examines the event, at the cost of its
    // selector. So the 64 watchers together need few looks.
    for (count, ranges_each) in [(64, 1), (64, 4), (100, 1)] {
        let sharded = looks(Some(count), ranges_each);
        assert!(sharded >= writes / 2, "{sharded} for {count} shards: nobody has looked");
        assert!(sharded * 8 < unfiltered, "{sharded} for {count} shards of {ranges_each} ranges, and {unfiltered}");
    }
}

/// Goal: a selector with thousands of terms does not make a step of a watcher longer, however the watcher learns of
/// changes. Method: count the looks of each fill (examined Leases and events, weighted by the selector's cost), and
/// check that the events need several fills.
#[test]
fn a_long_selector_makes_a_fill_examine_fewer_leases() {
    let labels = (0..3000).map(|number| format!("!k{number}")).collect::<Vec<_>>().join(",");
    let selector = Selector { labels: LabelSelector::parse(&labels).expect("a selector"), ..Selector::default() };
    let cost = 3000 / SELECTOR_TERMS_PER_LOOK + 1;
    let writes = 20;
    for (name, range) in [("broad", Range::All), ("narrow", Range::Namespace("a".into()))] {
        for start in ["initial", "scan", "synced"] {
            let mut world = World::new(1, usize::MAX);
            let write = |world: &mut World| {
                for number in 0..writes {
                    world.table.put(Lease::named("a", &format!("n{number}")));
                }
                world.watchers.notify(&world.table, usize::MAX);
            };
            let first = world.table.version();
            if start != "synced" {
                write(&mut world);
            }
            let snapshot = Box::new(Snapshot::now(&world.table, range.clone()));
            let begin = match start {
                "initial" => WatchStart::Initial { snapshot, end_bookmark: false, permit: None },
                _ => WatchStart::After(first),
            };
            let spec = WatchSpec { selector: selector.clone(), ..spec_of(range.clone(), begin) };
            let key = world.watchers.add(0, spec, world.now);
            let mut out = Vec::new();
            if start == "synced" {
                assert_eq!(world.watchers.fill(key, &world.table, world.now, &mut out, usize::MAX), Fill::Idle);
                write(&mut world);
            }
            let mut fills = 0;
            loop {
                let looks = world.watchers.looks();
                let fill = world.watchers.fill(key, &world.table, world.now, &mut out, usize::MAX);
                let looks = world.watchers.looks() - looks;
                assert!(looks <= (SCAN_EVENTS_PER_FILL + cost) as u64, "{name}, {start}: {looks} looks at once");
                fills += 1;
                if fill == Fill::Idle {
                    break;
                }
                assert_eq!(fill, Fill::More, "{name}, {start}");
            }
            assert_eq!(out.iter().filter(|byte| **byte == b'\n').count(), writes, "{name}, {start}");
            let looks_max = if start == "initial" { JOB_KEYS_PER_STEP } else { SCAN_EVENTS_PER_FILL };
            assert!(fills > writes * cost / (looks_max + cost), "{name}, {start}: all in {fills} fillings");
        }
    }
}

#[test]
fn bookmarks_come_every_minute_and_at_the_timeout() {
    let mut world = World::new(1, usize::MAX);
    let start = WatchStart::After(ResourceVersion(500));
    let spec = WatchSpec { bookmarks: true, timeout_ms: 90_000, ..spec_of(Range::All, start) };
    let key = world.watchers.add(0, spec, world.now);
    let mut bookmarks = Vec::new();
    let mut ended_ms = None;
    while ended_ms.is_none() {
        world.watchers.on_timeout(world.now);
        if let Some((due, _)) = world.watchers.pop_dirty() {
            assert_eq!(due, key);
            let mut out = Vec::new();
            let fill = world.watchers.fill(key, &world.table, world.now, &mut out, 1000);
            if !out.is_empty() {
                bookmarks.push(world.now.ms);
                assert!(out.starts_with(b"{\"type\":\"BOOKMARK\""), "{}", out.escape_ascii());
            }
            if fill == Fill::Ended(WatchEnd::TimedOut) {
                ended_ms = Some(world.now.ms);
            }
        }
        world.now.ms += 500;
    }
    assert_eq!((bookmarks, ended_ms), (vec![61_000, 91_000], Some(91_000)));
    assert!(world.watchers.is_empty());
}

/// A list form, such as `PartialObjectMetadataList`, has neither events nor bookmarks. So the watch ends where its
/// first event or bookmark is due.
#[test]
fn the_first_event_ends_a_watch_in_a_list_form() {
    let accept = b"application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io";
    let representation = negotiate(Some(accept), true).expect("a form");
    for (bookmarks, changes, wait_ms, expected) in [
        (false, true, 0, Fill::Ended(WatchEnd::Unsuitable)),
        (true, false, 0, Fill::Idle),
        (true, false, 60_000, Fill::Ended(WatchEnd::Unsuitable)),
        (false, false, 60_000, Fill::Idle),
        (true, false, 90_000, Fill::Ended(WatchEnd::Unsuitable)),
        (false, false, 90_000, Fill::Ended(WatchEnd::TimedOut)),
    ] {
        let mut world = World::new(1, usize::MAX);
        let start = WatchStart::After(ResourceVersion(world.first));
        let form = Form { representation, ..Form::default() };
        let spec = WatchSpec { bookmarks, timeout_ms: 90_000, form, ..spec_of(Range::All, start) };
        let key = world.watchers.add(0, spec, world.now);
        if changes {
            world.write();
        }
        world.now.ms += wait_ms;
        let mut out = Vec::new();
        let fill = world.watchers.fill(key, &world.table, world.now, &mut out, 1000);
        assert_eq!(
            (fill, out.len(), world.watchers.events(), world.watchers.bytes()),
            (expected, 0, 0, 0),
            "{wait_ms}"
        );
    }
}

#[test]
fn initial_events_are_of_one_version_and_end_with_their_bookmark() {
    for seed in 0..50 {
        let mut world = World::new(seed, 1000);
        for _ in 0..30 {
            world.write();
        }
        let version = world.table.version();
        let names: Vec<_> = {
            let mut names = Vec::new();
            let mut snapshot = Snapshot::now(&world.table, Range::All);
            let all = snapshot.next(&world.table, usize::MAX, |object: &Object| {
                names.push((object.key().as_str().to_owned(), object.version.0));
                true
            });
            assert_eq!(all, Ok(Stepped::Done));
            names
        };
        let snapshot = Box::new(Snapshot::now(&world.table, Range::All));
        let start = WatchStart::Initial { snapshot, end_bookmark: true, permit: None };
        let spec = WatchSpec { bookmarks: true, ..spec_of(Range::All, start) };
        let key = world.watchers.add(0, spec, world.now);
        let mut out = Vec::new();
        loop {
            let room = out.len() + world.rng.usize(1..600);
            if world.watchers.fill(key, &world.table, world.now, &mut out, room) == Fill::Idle {
                break;
            }
            world.write();
            world.watchers.notify(&world.table, usize::MAX);
        }
        let text = String::from_utf8(out).expect("UTF-8");
        let lines: Vec<_> = text.lines().collect();
        for ((key, version), line) in names.iter().zip(&lines) {
            let name = key.split_once('/').expect("a key").1;
            assert!(line.contains(&format!("\"name\":\"{name}\"")) && line.contains(&version.to_string()), "{line}");
        }
        let bookmark = lines[names.len()];
        assert!(bookmark.contains("initial-events-end") && bookmark.contains(&version.to_string()), "{bookmark}");
        let later = world.history.iter().filter(|event| event.version() > version).count();
        assert_eq!(lines.len(), names.len() + 1 + later, "seed {seed}");
        assert!(world.first < version.0);
    }
}

/// Returns a world, a pool of one permit, and a watcher of `requester` that holds the permit. The watcher has sent a
/// part of its initial state.
fn world_with_initial_state(requester: Requester<'_>) -> (World, Permits, WatcherKey) {
    let mut world = World::new(1, usize::MAX);
    (0..30).for_each(|_| world.write());
    let permits = Permits::new(1);
    let snapshot = Box::new(Snapshot::now(&world.table, Range::All));
    let start = WatchStart::Initial { snapshot, end_bookmark: true, permit: permits.take(requester) };
    let spec = WatchSpec { bookmarks: true, ..spec_of(Range::All, start) };
    let key = world.watchers.add(0, spec, world.now);
    assert_eq!(world.watchers.pop_dirty(), Some((key, 0)));
    let mut out = Vec::new();
    assert_eq!(world.watchers.fill(key, &world.table, world.now, &mut out, 1), Fill::More);
    (world, permits, key)
}

#[test]
fn an_unread_initial_state_ends_when_its_permit_is_needed() {
    let (mut world, permits, key) = world_with_initial_state(Requester::User("a"));
    (0..2).for_each(|_| world.watchers.check_long());
    assert!(permits.take(Requester::User("b")).is_none(), "it is read");
    world.watchers.park(key);
    world.watchers.check_long();
    world.watchers.unpark(key);
    // A slow client reads enough for one more event between two checks.
    assert_eq!(world.watchers.fill(key, &world.table, world.now, &mut Vec::new(), 1), Fill::More);
    world.watchers.park(key);
    (0..2).for_each(|_| world.watchers.check_long());
    assert!(permits.take(Requester::User("b")).is_none(), "it is read slowly");
    world.watchers.check_long();
    assert!(permits.take(Requester::User("b")).is_some() && world.watchers.has_long());
    world.watchers.check_long();
    assert!(!world.watchers.has_long());
    world.watchers.unpark(key);
    assert_eq!(world.watchers.pop_dirty(), Some((key, 0)));
    let mut out = Vec::new();
    let filled = world.watchers.fill(key, &world.table, world.now, &mut out, usize::MAX);
    assert_eq!(filled, Fill::Ended(WatchEnd::Expired));
    assert!(String::from_utf8_lossy(&out).contains("list anew"));
}

/// Goal: a client that reads little or nothing of the initial state occupies the state's memory and its permit for at
/// most [`JOB_MS_MAX`], the time limit of a list.
#[test]
fn an_initial_state_is_released_at_its_deadline() {
    for is_parked in [false, true] {
        let (mut world, permits, key) = world_with_initial_state(Requester::Unnamed);
        if is_parked {
            world.watchers.park(key);
        }
        let began_ms = world.now.ms;
        world.now.ms = began_ms + JOB_MS_MAX - 1;
        world.watchers.on_timeout(world.now);
        assert!(permits.take(Requester::Unnamed).is_none(), "its time is not over");
        world.now.ms = began_ms + JOB_MS_MAX;
        assert_eq!(world.watchers.due_ms(), Some(world.now.ms), "the loop wakes for it");
        world.watchers.on_timeout(world.now);
        assert!(permits.take(Requester::Unnamed).is_some(), "parked: {is_parked}");
        if is_parked {
            assert!(!world.watchers.has_dirty(), "there is no room for its end");
            world.watchers.unpark(key);
        }
        assert_eq!(world.watchers.pop_dirty(), Some((key, 0)));
        let mut out = Vec::new();
        let fill = world.watchers.fill(key, &world.table, world.now, &mut out, usize::MAX);
        assert_eq!(fill, Fill::Ended(WatchEnd::Expired));
        let event: serde_json::Value = serde_json::from_slice(&out).expect("one event");
        assert_eq!((&event["type"], &event["object"]["reason"]), (&"ERROR".into(), &"Expired".into()));
        assert_eq!(event["object"]["code"], 410);
        assert!(world.watchers.is_empty());
    }
}

#[test]
fn every_watch_ends_with_only_the_error_event() {
    let mut world = World::new(3, 100);
    let mut clients: Vec<_> = (0..8).map(|owner| world.open(owner)).collect();
    world.fan_out(&mut clients, true);
    world.write();
    let error = ApiError::Expired { message: "list anew".to_owned(), next: None };
    world.watchers.end_all(&error);
    while let Some((key, _)) = world.watchers.pop_dirty() {
        let mut out = Vec::new();
        let fill = world.watchers.fill(key, &world.table, world.now, &mut out, usize::MAX);
        assert_eq!(fill, Fill::Ended(WatchEnd::Expired));
        let event: serde_json::Value = serde_json::from_slice(&out).expect("one event");
        assert_eq!((&event["type"], &event["object"]["code"]), (&"ERROR".into(), &410.into()), "{event}");
    }
    assert!(world.watchers.is_empty());
}

/// Goal: a client that reads slowly makes the server keep the initial state no longer than the timeout of its watch.
#[test]
fn a_timeout_ends_a_watch_during_its_initial_state() {
    for (after_ms, end) in [(29_999, None), (30_000, Some(WatchEnd::TimedOut))] {
        let mut world = World::new(1, usize::MAX);
        (0..30).for_each(|_| world.write());
        let snapshot = Box::new(Snapshot::now(&world.table, Range::All));
        let start = WatchStart::Initial { snapshot, end_bookmark: true, permit: None };
        let spec = WatchSpec { bookmarks: true, timeout_ms: 30_000, ..spec_of(Range::All, start) };
        let key = world.watchers.add(0, spec, world.now);
        let mut fill = |now| world.watchers.fill(key, &world.table, now, &mut Vec::new(), 1);
        assert_eq!(fill(world.now), Fill::More);
        let later = Now { ms: world.now.ms + after_ms, ..world.now };
        assert_eq!(fill(later), end.map_or(Fill::More, Fill::Ended), "{after_ms}");
        assert_eq!(world.watchers.is_empty(), end.is_some());
    }
}

/// A watcher that has not read all events at its timeout gets a bookmark with its cursor's version. The client resumes
/// from this version.
#[test]
fn a_timeout_ends_a_watch_that_is_behind() {
    let mut world = World::new(1, usize::MAX);
    let start = WatchStart::After(ResourceVersion(world.first));
    let spec = WatchSpec { bookmarks: true, timeout_ms: 30_000, ..spec_of(Range::All, start) };
    (0..30).for_each(|_| world.write());
    let key = world.watchers.add(0, spec, world.now);
    let mut out = Vec::new();
    assert_eq!(world.watchers.fill(key, &world.table, world.now, &mut out, 1), Fill::More);
    world.now.ms += 30_000;
    out.clear();
    let fill = world.watchers.fill(key, &world.table, world.now, &mut out, 1);
    assert_eq!(fill, Fill::Ended(WatchEnd::TimedOut));
    let lines: Vec<serde_json::Value> =
        out.lines().map(|line| serde_json::from_str(&line.expect("UTF-8")).expect("an event")).collect();
    let [event, bookmark] = &lines[..] else { panic!("{lines:?}") };
    assert_eq!(bookmark["type"], "BOOKMARK");
    assert_eq!(bookmark["object"]["metadata"]["resourceVersion"], (world.first + 2).to_string());
    assert_eq!(event["object"]["metadata"]["resourceVersion"], (world.first + 2).to_string());
    assert!(world.watchers.is_empty());
}
