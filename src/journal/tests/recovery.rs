//! After a crash at any moment, the next startup restores every acknowledged change.

use super::super::Limits;
use super::super::testing::{Store, Stored};
use super::generate;
use super::rig::{self, Dump, Rig, create, load, small_limits, times};
use crate::resource::ResourceVersion;
use crate::table::change::Change;
use crate::table::event_log::Event;
use fastrand::Rng;
use std::collections::BTreeMap;

/// Returns a random change of one of a few Leases. Returns `None` if a change of this Lease is in flight.
fn change(rig: &Rig, random: &mut Rng) -> Option<Change> {
    let (namespace, name) = (["n", "kube-node-lease"][random.usize(..2)], format!("{}", random.u8(..12)));
    if rig.journal.in_flight(namespace, &name).is_some() {
        return None;
    }
    let Some((slot, _)) = rig.table.find(namespace, &name) else { return Some(create(namespace, &name)) };
    let target = rig.table.target(slot);
    Some(match random.u8(..20) {
        0 => Change::Delete(target),
        1..4 => {
            let mut lease = generate::lease(random);
            (lease.metadata.namespace, lease.metadata.name) = (namespace.into(), name.into());
            Change::Replace(target, Box::new(lease))
        }
        _ => Change::Renew(target, times(random.i64(..2_000_000_000_000_000))),
    })
}

/// The Leases at each version, and the event of each version.
#[derive(Debug, Default)]
struct Past {
    dumps: BTreeMap<u64, Dump>,
    events: BTreeMap<u64, Event>,
    /// For each number of commits (the index), the highest version that was acknowledged before the next commit.
    acknowledged: Vec<u64>,
}

impl Past {
    fn note(&mut self, rig: &Rig) {
        let version = rig.table.version();
        self.dumps.entry(version.0).or_insert_with(|| rig.dump());
        let known = self.events.last_key_value().map_or(rig::FIRST_VERSION, |(version, _)| *version);
        let new = rig.table.log().since(ResourceVersion(known)).expect("all of them are noted in time");
        self.events.extend(new.map(|event| (event.version().0, event.clone())));
        let commits = rig.store.commit_count();
        self.acknowledged.resize(commits + 1, version.0);
        self.acknowledged[commits] = version.0;
    }

    /// Starts from stored content and checks the Leases and the watch window (the events from which watches can
    /// resume). All changes up to version `acknowledged` were acknowledged.
    fn check(&self, stored: &Stored, acknowledged: u64, window: usize) {
        let rig = load(stored, window).unwrap_or_else(|error| panic!("{error}"));
        let version = rig.table.version().0;
        assert!(version >= acknowledged, "version {acknowledged} was acknowledged, and there is {version}");
        let (found, dump) = (rig.dump(), self.dumps.get(&version).expect("a version that the writes have made"));
        for (key, lease) in dump {
            assert_eq!(found.get(key), Some(lease), "{key} at version {version}");
        }
        assert_eq!(found.len(), dump.len(), "version {version}");
        // The watch window has the same events as before the crash.
        let log = rig.table.log();
        for event in log.since(log.floor()).expect("from the floor") {
            let past = self.events.get(&event.version().0).expect("an event that never was");
            assert_eq!((event.after.key(), event.deleted), (past.after.key(), past.deleted));
            assert_eq!(event.after.lease(), past.after.lease(), "version {}", event.version());
            let before = |event: &Event| event.before.as_ref().map(|before| (before.version, before.number()));
            assert_eq!(before(event), before(past), "version {}", event.version());
        }
        let possible = usize::try_from(version - rig::FIRST_VERSION).expect("a small number");
        assert_eq!(log.len(), possible.min(window), "the watch window is not filled");
    }
}

/// Goal: a crash loses no acknowledged change, and a watch resumes after the crash. Method: random changes with small
/// limits, which cause snapshots, new bases, truncations and deletions of chunks. The test starts from the store's
/// content after each commit.
#[test]
fn a_crash_loses_no_acknowledged_change_or_watch_window() {
    for (seed, window) in [(1, 10), (2, 60), (3, 300), (4, 30), (5, 100)] {
        let mut random = Rng::with_seed(seed);
        let store = Store::default();
        store.keep_history();
        let mut rig = Rig::open(&store, small_limits(), window, 1);
        let mut past = Past::default();
        past.note(&rig);
        for turn in 0..200 {
            for _ in 0..random.usize(..9) {
                if let Some(change) = change(&rig, &mut random) {
                    drop(rig.submit(change));
                }
            }
            rig.turn();
            past.note(&rig);
            if turn % 67 == 66 {
                rig = rig.restart(small_limits(), 1 + turn);
                past.note(&rig);
            }
        }
        while !rig.journal.is_idle() || rig.journal.has_work() {
            rig.turn();
            past.note(&rig);
        }
        let history = store.history();
        for (index, stored) in history.iter().enumerate() {
            // `stored` is the content after `index + 1` commits. When the last of them became durable, changes of the
            // first `index` commits may have been acknowledged. So `stored` must contain these changes.
            let acknowledged = past.acknowledged.get(index).copied().unwrap_or(rig::FIRST_VERSION);
            past.check(stored, acknowledged, window);
        }
        assert!(rig.journal.stats().snapshot.is_some(), "seed {seed}: no snapshot was taken");
        let leftovers = store.stored();
        assert!(leftovers.entries.len() < window + 200, "seed {seed}: {} entries are left", leftovers.entries.len());
    }
}

#[test]
fn a_restart_continues_at_the_last_version() {
    let mut rig = Rig::open(&Store::default(), Limits::default(), 1_000, 1);
    rig.write(create("n", "a"));
    for writer in 2..40 {
        let version = rig.table.version();
        rig = rig.restart(Limits::default(), writer);
        assert_eq!(rig.table.version(), version);
        rig.write(rig.renewal("n", "a", i64::try_from(writer).expect("small")));
        assert_eq!(rig.table.version().0, version.0 + 1);
    }
    assert_eq!(rig.table.log().len(), 39);
}

#[test]
fn a_restart_with_a_used_writer_id_loses_no_change() {
    let mut rig = Rig::open(&Store::default(), Limits::default(), 1_000, 7);
    rig.write(create("n", "a"));
    let mut rig = rig.restart(Limits::default(), 7);
    rig.write(rig.renewal("n", "a", 3));
    let dump = rig.dump();
    assert_eq!(rig.restart(Limits::default(), 7).dump(), dump);
}

#[test]
fn a_large_store_is_loaded_from_many_chunks() {
    let limits = Limits { snapshot_bytes_min: 400_000, ..Limits::default() };
    let mut rig = Rig::open(&Store::default(), limits, 10, 1);
    for round in 0..12 {
        let tickets: Vec<_> = (0..1_000)
            .map(|n| {
                let mut lease = rig::lease("n", &format!("{round}-{n}"));
                // Random text does not compress well. So the chunks are not tiny.
                lease.spec.strategy = Some(format!("{:x}", Rng::with_seed(round * 1_000 + n).u128(..)).into());
                rig.submit(Change::Create(Box::new(lease)))
            })
            .collect();
        rig.settle();
        drop(tickets);
    }
    let chunks = rig.store.stored().chunks.len();
    assert!(chunks > 5, "{chunks}");
    let dump = rig.dump();
    assert_eq!(rig.restart(limits, 2).dump(), dump);
}
