//! A test rig: a table, its journal and a store. Tests run single turns of the event loop.

use super::super::testing::{Store, Stored};
use super::super::{CallPort, Config, Journal, Limits, Outcome, Refusal, Ticket, Worker};
use crate::engine::EngineError;
use crate::lease::Lease;
use crate::resource::ResourceVersion;
use crate::table::Table;
use crate::table::change::Change;
use crate::table::object::RenewedTimes;
use crate::timestamp::{MicroTime, Time};
use std::collections::BTreeMap;
use std::ops::Range;

/// Version of the table in a new store.
pub(super) const FIRST_VERSION: u64 = 1_700_000_000_000_000;

/// All Leases of a table: maps the key to the version of the creation, the version of the last change, and the Lease.
pub(super) type Dump = BTreeMap<String, (u64, u64, Lease)>;

#[derive(Debug)]
pub(super) struct Rig {
    pub(super) table: Table,
    pub(super) journal: Journal,
    pub(super) store: Store,
    pub(super) now_ms: u64,
    window: usize,
}

/// Limits so small that the few changes of a test cause snapshots and truncations.
pub(super) fn small_limits() -> Limits {
    Limits {
        snapshot_bytes_min: 2_000,
        truncated_entries_max: 4,
        dropped_chunks_max: 1,
        batch_changes_max: 7,
        upkeep_pause_ms_min: 0,
        upkeep_pause_ms_max: 0,
        ..Limits::default()
    }
}

impl Rig {
    /// Opens a store and loads the table.
    pub(super) fn open(store: &Store, limits: Limits, window: usize, writer: u64) -> Self {
        Self::try_open(store, limits, window, writer).unwrap_or_else(|error| panic!("{error}"))
    }

    pub(super) fn try_open(store: &Store, limits: Limits, window: usize, writer: u64) -> Result<Self, EngineError> {
        let worker = Worker::new(Box::new(store.clone()), "memory");
        let config = Config { limits, ..Config::new("memory", FIRST_VERSION) };
        let journal = Journal::new(Box::new(CallPort::new(worker)), config, writer);
        let table = Table::new(ResourceVersion(1), window, usize::MAX);
        let mut rig = Self { table, journal, store: store.clone(), now_ms: 0, window };
        assert_eq!(rig.journal.submit(&rig.table, create("n", "a"), None, 0).map(|_| ()), Err(Refusal::Loading));
        let mut calls = 0;
        while rig.journal.is_loading() {
            // Each call loads at most three records or changes. So the tests also cover a loading that is interrupted.
            let advanced = rig.journal.advance(&mut rig.table, 0, 3)?;
            assert_eq!(advanced.has_loaded, !rig.journal.is_loading());
            calls += 1;
            assert!(calls < 1_000_000, "loading does not end");
        }
        Ok(rig)
    }

    /// Drops the rig as in a crash, and opens the stored content again.
    pub(super) fn restart(self, limits: Limits, writer: u64) -> Self {
        let Self { store, window, .. } = self;
        Self::open(&store, limits, window, writer)
    }

    pub(super) fn submit(&mut self, change: Change) -> Ticket {
        self.journal.submit(&self.table, change, None, self.now_ms).expect("taken")
    }

    /// Handles the worker's events, and sends the waiting changes.
    pub(super) fn turn(&mut self) {
        self.now_ms += 1;
        self.journal.advance(&mut self.table, self.now_ms, 5).unwrap_or_else(|error| panic!("{error}"));
        self.journal.end_turn(&self.table, self.now_ms);
    }

    /// Runs turns until no work is left.
    pub(super) fn settle(&mut self) {
        self.turn();
        let mut turns = 0;
        while !self.journal.is_idle() || self.journal.has_work() {
            self.turn();
            turns += 1;
            assert!(turns < 100_000, "it does not come to rest: {:?}", self.journal);
        }
    }

    /// Submits a change and waits for its outcome.
    pub(super) fn write(&mut self, change: Change) -> Outcome {
        let ticket = self.submit(change);
        self.settle();
        assert!(self.journal.settled() >= ticket.number());
        ticket.take()
    }

    /// Creates the Leases `0` to `29` in the namespace `n`.
    pub(super) fn fill(&mut self) {
        for n in 0..30 {
            self.write(create("n", &format!("{n}")));
        }
    }

    /// Renews the Leases of [`Rig::fill`] at each of these times.
    pub(super) fn renew_all(&mut self, micros: Range<i64>) {
        for micros in micros {
            for n in 0..30 {
                drop(self.submit(self.renewal("n", &format!("{n}"), micros)));
            }
            self.settle();
        }
    }

    pub(super) fn renewal(&self, namespace: &str, name: &str, micros: i64) -> Change {
        let (slot, _) = self.table.find(namespace, name).expect("a Lease");
        Change::Renew(self.table.target(slot), times(micros))
    }

    pub(super) fn deletion(&self, namespace: &str, name: &str) -> Change {
        let (slot, _) = self.table.find(namespace, name).expect("a Lease");
        Change::Delete(self.table.target(slot))
    }

    pub(super) fn dump(&self) -> Dump {
        dump(&self.table)
    }
}

pub(super) fn times(micros: i64) -> RenewedTimes {
    RenewedTimes { renew_time: MicroTime(micros), managed_time: Some(Time(micros.div_euclid(1_000_000))) }
}

pub(super) fn lease(namespace: &str, name: &str) -> Lease {
    let mut lease = Lease::named(namespace, name);
    lease.metadata.uid = format!("uid-of-{name}").into();
    lease.spec.holder_identity = Some(name.into());
    lease
}

pub(super) fn create(namespace: &str, name: &str) -> Change {
    Change::Create(Box::new(lease(namespace, name)))
}

pub(super) fn dump(table: &Table) -> Dump {
    let mut all = Dump::new();
    let mut snapshot = crate::table::snapshot::Snapshot::now(table, crate::table::snapshot::Range::All);
    let each = |object: &crate::table::object::Object| {
        let state = (object.number().0, object.version.0, object.lease().into_owned());
        all.insert(object.key().as_str().to_owned(), state);
        true
    };
    snapshot.next(table, usize::MAX, each).expect("nothing is forgotten");
    all
}

/// Returns the events of a table's log, in order: the version, the key, whether the Lease was deleted, and the Lease
/// after the change.
pub(super) fn log(table: &Table) -> Vec<(u64, String, bool, Lease)> {
    let events = table.log().since(table.log().floor()).expect("from the floor");
    events
        .map(|event| {
            let after = &event.after;
            (event.version().0, after.key().as_str().to_owned(), event.deleted, after.lease().into_owned())
        })
        .collect()
}

pub(super) fn load(stored: &Stored, window: usize) -> Result<Rig, EngineError> {
    Rig::try_open(&Store::of(stored.clone()), small_limits(), window, 99)
}
