//! Tests of several journals over one store, each with its own table.

use super::super::seal::{self, FORMAT, SEAL_BYTES};
use super::super::testing::{SharedPort, SharedStore};
use super::super::{Config, Journal, Limits, Outcome, Ticket};
use super::rig::{FIRST_VERSION, create, dump, log, small_limits, times};
use crate::engine::{EngineError, Position};
use crate::resource::ResourceVersion;
use crate::table::Table;
use crate::table::change::Change;
use fastrand::Rng;

/// One of several processes that share a store.
#[derive(Debug)]
pub(super) struct Replica {
    table: Table,
    journal: Journal,
    now_ms: u64,
}

const WINDOW: usize = 100;

impl Replica {
    pub(super) fn open(store: &SharedStore, limits: Limits, writer: u64) -> Self {
        Self::try_open(store, limits, writer).unwrap_or_else(|error| panic!("{error}"))
    }

    fn try_open(store: &SharedStore, limits: Limits, writer: u64) -> Result<Self, EngineError> {
        let config = Config { is_shared: true, limits, ..Config::new("shared", FIRST_VERSION + writer) };
        let journal = Journal::new(Box::new(SharedPort::new(store)), config, writer);
        let mut replica = Self { table: Table::new(ResourceVersion(1), WINDOW, usize::MAX), journal, now_ms: 0 };
        while replica.journal.is_loading() {
            replica.journal.advance(&mut replica.table, 0, 3)?;
        }
        Ok(replica)
    }

    pub(super) fn submit(&mut self, change: Change) -> Ticket {
        self.journal.submit(&self.table, change, None, self.now_ms).expect("taken")
    }

    fn try_turn(&mut self) -> Result<(), EngineError> {
        self.now_ms += 1;
        self.journal.advance(&mut self.table, self.now_ms, 5)?;
        self.journal.end_turn(&self.table, self.now_ms);
        Ok(())
    }

    pub(super) fn turn(&mut self) {
        self.try_turn().unwrap_or_else(|error| panic!("{error}"));
    }

    fn renewal(&self, name: &str, micros: i64) -> Change {
        let (slot, _) = self.table.find("n", name).expect("a Lease");
        Change::Renew(self.table.target(slot), times(micros))
    }

    fn deletion(&self, name: &str) -> Change {
        let (slot, _) = self.table.find("n", name).expect("a Lease");
        Change::Delete(self.table.target(slot))
    }
}

fn settle(replicas: &mut [Replica]) {
    for _ in 0..50 {
        replicas.iter_mut().for_each(Replica::turn);
    }
    assert!(replicas.iter().all(|replica| replica.journal.is_idle()), "{replicas:?}");
}

/// Submits a change at one replica, and runs all replicas until they are idle.
fn write(replicas: &mut [Replica], at: usize, change: Change) {
    drop(replicas[at].submit(change));
    settle(replicas);
}

fn two() -> (SharedStore, Vec<Replica>) {
    let store = SharedStore::default();
    let replicas = [1, 2].map(|writer| Replica::open(&store, Limits::default(), writer));
    (store, replicas.into())
}

#[test]
fn every_replica_applies_the_writes_of_all_replicas() {
    let (_store, mut replicas) = two();
    assert_eq!(replicas[0].table.version(), replicas[1].table.version(), "one of them made the store");
    let first = replicas[0].submit(create("n", "a"));
    let second = replicas[1].submit(create("n", "b"));
    settle(&mut replicas);
    for ticket in [first, second] {
        assert!(matches!(ticket.take(), Outcome::Applied(_)));
    }
    assert_eq!(replicas[0].table.len(), 2);
    assert_eq!(dump(&replicas[0].table), dump(&replicas[1].table));
    assert_eq!(log(&replicas[0].table), log(&replicas[1].table));
}

#[test]
fn the_second_of_two_conflicting_changes_is_rejected_everywhere() {
    let (_store, mut replicas) = two();
    write(&mut replicas, 0, create("n", "a"));
    let changes = [replicas[0].renewal("a", 5), replicas[1].deletion("a")];
    let tickets: Vec<_> = changes.into_iter().enumerate().map(|(at, change)| replicas[at].submit(change)).collect();
    settle(&mut replicas);
    let applied: Vec<_> = tickets.iter().map(|ticket| matches!(ticket.take(), Outcome::Applied(_))).collect();
    assert_eq!(applied, [true, false]);
    assert_eq!(dump(&replicas[0].table), dump(&replicas[1].table));
    assert_eq!(replicas[1].table.len(), 1);
    // Replica 1 makes a renewal before it knows that replica 0 has deleted the Lease. Replica 0 creates the Lease
    // again, with another number. So the renewal matches no Lease.
    let renewal = replicas[1].renewal("a", 6);
    let deletion = replicas[0].deletion("a");
    drop(replicas[0].submit(deletion));
    replicas[0].turn();
    replicas[0].turn();
    drop(replicas[0].submit(create("n", "a")));
    let late = replicas[1].submit(renewal);
    settle(&mut replicas);
    assert!(matches!(late.take(), Outcome::Rejected));
    assert_eq!(dump(&replicas[0].table), dump(&replicas[1].table));
}

#[test]
fn a_passed_barrier_covers_all_acknowledged_writes() {
    let (_store, mut replicas) = two();
    let write = replicas[0].submit(create("n", "a"));
    for _ in 0..5 {
        replicas[0].turn();
    }
    assert!(matches!(write.take(), Outcome::Applied(_)));
    let barrier = replicas[1].journal.ask_barrier();
    assert!(replicas[1].journal.passed_barrier() < barrier && replicas[1].table.is_empty());
    while replicas[1].journal.passed_barrier() < barrier {
        replicas[1].turn();
    }
    assert_eq!(replicas[1].table.len(), 1);
}

#[test]
fn a_batch_that_is_repeated_is_applied_once() {
    let (store, mut replicas) = two();
    write(&mut replicas, 0, create("n", "a"));
    let deletion = replicas[1].deletion("a");
    write(&mut replicas, 1, deletion);
    // A second copy of the first entry, the creation of `a`, arrives late. The store accepts it, as if the first copy
    // had been truncated. The replicas must skip it.
    store.append_again(Position(1));
    settle(&mut replicas);
    write(&mut replicas, 1, create("n", "b"));
    for replica in &replicas {
        assert!(replica.table.find("n", "a").is_none() && replica.table.find("n", "b").is_some());
    }
    assert_eq!(dump(&Replica::open(&store, Limits::default(), 3).table), dump(&replicas[0].table));
}

#[test]
fn a_batch_without_room_may_be_applied_late_but_once() {
    let (store, mut replicas) = two();
    store.fill(1);
    let failed = replicas[0].submit(create("n", "a"));
    settle(&mut replicas);
    assert!(matches!(failed.take(), Outcome::Failed(_)));
    store.append_refused();
    replicas.iter_mut().for_each(|replica| replica.now_ms += 10_000);
    let after = replicas[0].submit(create("n", "b"));
    settle(&mut replicas);
    assert!(matches!(after.take(), Outcome::Applied(_)));
    assert_eq!(dump(&replicas[0].table), dump(&replicas[1].table));
    assert_eq!(replicas[1].table.len(), 2);
}

fn failure(replica: &mut Replica) -> EngineError {
    let noticed = (0..50).find_map(|_| replica.try_turn().err());
    noticed.expect("something is noticed")
}

fn lost(replica: &mut Replica) -> String {
    match failure(replica) {
        EngineError::Lost { what, .. } => what,
        other => panic!("{other}"),
    }
}

#[test]
fn a_lost_entry_is_detected_by_a_replica() {
    // The entry after the lost entry reveals the gap. If the same writer wrote both entries, a sequence number is
    // missing. If another writer wrote the later entry, its header names the position of the lost entry.
    for second in [0, 1] {
        let (store, mut replicas) = two();
        write(&mut replicas, 0, create("n", "a"));
        let mut last = Replica::open(&store, Limits::default(), 3);
        write(&mut replicas, 0, create("n", "b"));
        store.lose(Position(2));
        write(&mut replicas, second, create("n", "c"));
        let what = lost(&mut last);
        assert!(what.contains(if second == 0 { "sequence" } else { "after position 2" }), "{what}");
    }
}

#[test]
fn a_diverged_writer_is_detected_and_a_restart_recovers() {
    let (store, mut replicas) = two();
    write(&mut replicas, 0, create("n", "a"));
    drop(replicas[1].submit(create("n", "b")));
    replicas[1].turn();
    store.change_last(|payload| {
        payload.truncate(payload.len() - SEAL_BYTES);
        // The first byte of `chain` in the entry's header.
        payload[34] ^= 1;
        seal::seal(payload);
    });
    assert!(lost(&mut replicas[0]).contains("not equal"));
    let mut again = Replica::open(&store, Limits::default(), 3);
    drop(again.submit(create("n", "c")));
    for _ in 0..5 {
        again.turn();
    }
    assert_eq!(again.table.len(), 3);
}

/// Replicas of two releases share a store. The newer replica is the first to write its own format.
#[test]
fn a_replica_stops_with_an_error_at_a_newer_format() {
    let store = SharedStore::default();
    let newer = Limits { format: FORMAT + 1, ..Limits::default() };
    let mut replicas = [Replica::open(&store, Limits::default(), 1), Replica::open(&store, newer, 2)];
    write(&mut replicas, 0, create("n", "a"));
    assert_eq!(replicas[1].table.len(), 1, "a newer release reads the older format");
    drop(replicas[1].submit(create("n", "b")));
    replicas[1].turn();
    let error = failure(&mut replicas[0]);
    let (next, own) = (u32::from(FORMAT) + 1, u32::from(FORMAT));
    assert!(
        matches!(&error, EngineError::NewerFormat { found, known, .. } if (*found, *known) == (next, own)),
        "{error}"
    );
    replicas[1].turn();
    assert_eq!(replicas[1].table.len(), 2);
    // While the newer release still writes the older format, both replicas continue.
    let store = SharedStore::default();
    let mut replicas = [1, 2].map(|writer| Replica::open(&store, Limits::default(), writer));
    write(&mut replicas, 1, create("n", "b"));
    assert_eq!(replicas[0].table.len(), 1);
}

#[test]
fn one_writer_takes_the_snapshot_for_all_replicas() {
    let store = SharedStore::default();
    let limits = Limits { claim_spread_ms: 3, ..small_limits() };
    let mut replicas: Vec<_> = (1..=3).map(|writer| Replica::open(&store, limits, writer << 32)).collect();
    for round in 0..60 {
        for (at, replica) in replicas.iter_mut().enumerate() {
            let name = format!("node-{round}-{at}");
            drop(replica.submit(create("n", &name)));
        }
        settle(&mut replicas);
    }
    let taken: u64 = replicas.iter().map(|replica| replica.journal.stats().snapshots).sum();
    let claimed = store.claims();
    assert!(taken > 1 && claimed >= taken, "{taken} of {claimed}");
    assert!(claimed <= taken + 1, "two writers took one snapshot: {taken} of {claimed}");
    assert!(store.first_position() > Position(1), "the journal was not truncated");
    let newest = || replicas.iter().map(|replica| replica.journal.stats().snapshot.expect("a snapshot"));
    assert!(newest().all(|found| Some(found.leases) == newest().next().map(|first| first.leases)));
    let durations = newest().filter(|found| found.duration_ms.is_some()).count();
    assert_eq!(durations, 1, "only the replica that has taken the newest snapshot knows its duration");
    assert_eq!(dump(&Replica::open(&store, limits, 9).table), dump(&replicas[0].table));
}

#[test]
fn an_expired_snapshot_claim_is_taken_over() {
    let store = SharedStore::default();
    let limits = Limits { claim_spread_ms: 0, claim_ms_max: 100_000, ..small_limits() };
    let mut replicas: Vec<_> = [1, 2].map(|writer| Replica::open(&store, limits, writer)).into();
    let mut number = 0;
    while store.claims() == 0 {
        number += 1;
        drop(replicas[0].submit(create("n", &format!("node-{number}"))));
        replicas[0].turn();
    }
    let mut paused = replicas.remove(0);
    for _ in 0..30 {
        number += 1;
        write(&mut replicas, 0, create("n", &format!("other-{number}")));
    }
    assert_eq!((store.claims(), replicas[0].journal.stats().snapshots), (1, 0), "the claim is respected");
    replicas[0].now_ms += 100_001;
    settle(&mut replicas);
    assert_eq!(store.claims(), 2);
    // The paused replica continues with what it knew before the pause.
    for _ in 0..200 {
        paused.turn();
        replicas[0].turn();
    }
    assert_eq!(dump(&paused.table), dump(&replicas[0].table));
    assert_eq!(dump(&Replica::open(&store, limits, 9).table), dump(&replicas[0].table));
}

#[test]
fn replicas_converge_under_random_starts_and_stops() {
    for seed in 0..40 {
        let mut random = Rng::with_seed(seed);
        let store = SharedStore::default();
        let limits = Limits { claim_spread_ms: random.u64(..20), claim_ms_max: 50, ..small_limits() };
        let mut writer = 0;
        let mut open = |random: &mut Rng| {
            writer += 1 + random.u64(..1 << 40);
            Replica::open(&store, limits, writer)
        };
        let mut replicas: Vec<_> = (0..3).map(|_| open(&mut random)).collect();
        let mut acknowledged = Vec::new();
        for step in 0..400 {
            let at = random.usize(..replicas.len());
            let replica = &mut replicas[at];
            let name = format!("node-{}", random.u8(..12));
            if replica.journal.in_flight("n", &name).is_none() {
                let change = match (replica.table.find("n", &name), random.u8(..4)) {
                    (None, _) => create("n", &name),
                    (Some(_), 0) => replica.deletion(&name),
                    (Some(_), _) => replica.renewal(&name, i64::from(random.u32(..))),
                };
                acknowledged.push((at, replica.submit(change)));
            }
            for _ in 0..random.u8(..4) {
                let at = random.usize(..replicas.len());
                replicas[at].turn();
            }
            if step % 100 == 99 {
                let at = random.usize(..replicas.len());
                acknowledged.retain(|(other, _)| *other != at);
                replicas[at] = open(&mut random);
            }
        }
        settle(&mut replicas);
        let whole = open(&mut random);
        for replica in &replicas {
            assert_eq!(dump(&replica.table), dump(&whole.table), "seed {seed}");
            assert_eq!(replica.table.version(), whole.table.version(), "seed {seed}");
        }
        assert!(acknowledged.iter().all(|(_, ticket)| ticket.is_settled()), "seed {seed}");
    }
}
