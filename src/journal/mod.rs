//! The journal makes every change durable before any client can see the change. All changes have one order. A version
//! in this module is a `resourceVersion`.
//!
//! ```text
//!   Change ─► submit ─► batch ─► Port ─► Worker ─► Engine::commit
//!                                                      │ durable
//!   outcome, table ◄─ Table::apply ◄─ advance ◄─ Port ◄┘
//! ```
//!
//! The event loop owns a [`Journal`], which sends commits through a [`Port`] to a [`Worker`]. The worker owns the
//! [`Engine`](crate::engine::Engine) and may block. While the worker makes one batch durable, new changes wait in the
//! next batch. This module uses no random number, and only [`ThreadPort`] has a thread and reads a clock. So the
//! simulator (crate `sim`) can repeat a run exactly.
//!
//! The store holds entries, chunks and one manifest. An entry (module `entry`) is one batch of changes. A chunk
//! (`chunk`) is a piece of a snapshot, which is a stream of records (`record`). Module `seal` defines the first and
//! last bytes of each stored value. Module `lease_form` defines the binary form of a Lease. Each value has the number
//! of its format, and loading refuses a newer format.
//!
//! At startup, the journal loads the base (a snapshot or an empty table) that the manifest names. Then it applies every
//! later entry. Each entry contains the chain: a hash of all entries that the entry's writer had applied. With one
//! writer, an entry is damaged if its chain differs from the hash of the entries before it. Startup then fails with an
//! error that names the entry. An engine stores a commit completely or not at all. So this module never reads a partial
//! commit.
//!
//! # Several writers
//!
//! Processes that share a store have no leader. Each process is a writer: it appends its own entries. It applies the
//! entries of all writers in the order of their positions. Whether an entry is applied depends only on the entry's
//! header and the earlier entries. So all tables at the same position are equal. If two entries change the same state
//! of a Lease, every process rejects the later change. If an earlier entry is missing, or an entry's writer had a
//! different table, the process fails with [`EngineError::Lost`] and loads the store again.
//!
//! Another process may have acknowledged writes that this process has not applied yet. So a request that needs current
//! data asks for a [barrier](Journal::ask_barrier), and waits until the table has these writes.

mod applied;
mod barriers;
mod batches;
mod chunk;
mod config;
mod entry;
mod error;
pub mod inspect;
mod lease_form;
mod loading;
mod manifest;
pub mod migration;
mod port;
mod record;
mod replay;
mod reservations;
mod retained;
mod seal;
mod stats;
mod taking;
#[cfg(test)]
pub(crate) mod testing;
#[cfg(test)]
mod tests;
mod ticket;
mod upkeep;
mod wire;
mod worker;

pub use chunk::CHUNK_BYTES_MAX;
pub(crate) use chunk::{open_piece, seal_piece};
pub use config::{Config, Limits};
pub(crate) use entry::entry_name;
pub(crate) use manifest::base_end;
pub use port::{
    COMMANDS_MAX, CallPort, Command, Commit, End, Event, Piece, Port, StoreSize, StoredManifest, ThreadPort,
};
pub use seal::{FORMAT, FORMAT_WRITTEN_MIN};
pub use stats::{CommitStats, SnapshotStats, Stats};
pub use ticket::{Failure, Outcome, Refusal, Ticket};
pub use worker::Worker;

use crate::engine::{EngineError, Entry};
use crate::resource::ResourceVersion;
use crate::table::change::Change;
use crate::table::holder::HolderChange;
use crate::table::{Reserved, Table};
use applied::Applied;
use barriers::Barriers;
use batches::Batches;
use loading::Loading;
use replay::{Expected, Numbers, Replaying};
use stats::Counts;
use std::collections::VecDeque;
use tracing::{info, warn};
use upkeep::{Upkeep, Work};

/// The event loop's side of the journal. A turn is one pass through the event loop.
///
/// Call order in each turn: [`Journal::advance`], then [`Journal::submit`] any number of times, then
/// [`Journal::end_turn`].
#[derive(Debug)]
pub struct Journal {
    port: Box<dyn Port>,
    config: Config,
    phase: Phase,
    batches: Batches,
    applied: Applied,
    /// Durable entries that are not yet applied.
    delivered: VecDeque<Entry>,
    /// Another writer's entry that is being applied.
    replaying: Option<Replaying>,
    /// The slot of each Lease in the table, by the Lease's number (the version of its creation). The entries of other
    /// writers name a Lease by its number, not by its slot. `None` in a store with one writer.
    numbers: Option<Numbers>,
    barriers: Barriers,
    /// Whether the last call of [`Journal::advance`] stopped at its maximum number of records, so that work may remain.
    is_cut: bool,
    /// Time at which this process next asks for a barrier to check whether its table is current, in ms.
    look_ms: u64,
    is_reachable: bool,
    /// The commit that the worker is executing.
    under_way: Option<UnderWay>,
    gathering: Option<Gathering>,
    /// Time at which the first of the waiting changes was submitted, in ms.
    waiting_since_ms: u64,
    held: Option<Held>,
    /// Time at which writes are tried again after a commit for which the store had no space, in ms.
    no_space_until_ms: Option<u64>,
    is_stopped: bool,
    /// Size of the store, if the store reports it.
    store_size: Option<StoreSize>,
    counts: Counts,
    /// Version of the table after the last call of [`Journal::advance`].
    version: ResourceVersion,
    /// Time of the last call of [`Journal::advance`] or [`Journal::end_turn`], in ms.
    now_ms: u64,
}

#[derive(Debug)]
enum Phase {
    Loading(Box<Loading>),
    Ready(Box<Upkeep>),
    /// The store has failed and can no longer be used.
    Failed,
}

/// The commit that the worker is executing.
#[derive(Debug, Default)]
struct UnderWay {
    /// Time at which the commit was sent to the worker, in ms.
    begun_ms: u64,
    /// Number of changes and of bytes in the batch; 0 without a batch.
    changes: usize,
    bytes: usize,
    /// A copy of the batch, if the commit also has a task of [`Upkeep`], such as a piece of a snapshot. If the store
    /// refuses the commit, the journal sends the batch again without the task.
    batch_again: Option<Vec<u8>>,
    /// Whether the success of the commit shows that the store has space for entries. True for a batch and for
    /// [`Upkeep::probe`]. A disk without space for the next entry may still have space for a piece of a snapshot or for
    /// a new manifest. etcd without space still accepts a commit that only deletes.
    tests_space: bool,
}

/// The next batch waits for the next changes of the last batch's clients, except for one of every `ABSENT_SHARE`
/// clients. For example, after a batch of 80 changes, the next batch waits until 80 - 80 / 8 = 70 more changes have
/// been submitted.
const ABSENT_SHARE: usize = 8;

/// A wait for further changes from the clients whose changes were in the last batch.
#[derive(Clone, Copy, Debug)]
struct Gathering {
    /// Number of waiting changes at which the wait ends.
    changes: usize,
    /// Latest time at which the wait ends, in ms.
    until_ms: u64,
}

/// A batch that waits for more changes before it is sent.
#[derive(Clone, Copy, Debug)]
struct Held {
    /// Latest time at which the batch is sent, in ms.
    until_ms: u64,
    /// Whether the tasks of upkeep, such as a piece of a snapshot or a deletion, wait too. The next task can then share
    /// the commit of the batch.
    holds_upkeep: bool,
}

/// Result of [`Journal::advance`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Advanced {
    /// Number of tickets that were settled, that is, got an outcome.
    pub settled: usize,
    /// Whether a change of any writer was applied.
    pub has_applied: bool,
    /// Whether a barrier was passed.
    pub has_passed_barriers: bool,
    /// Whether this call completed the loading of the table.
    pub has_loaded: bool,
}

impl Journal {
    /// Creates a journal that loads its table through `port`. `writer` is a number that no earlier process used.
    #[must_use]
    pub fn new(mut port: Box<dyn Port>, config: Config, writer: u64) -> Self {
        let loading = Loading::begin(&mut *port, &config);
        Self {
            port,
            config,
            phase: Phase::Loading(Box::new(loading)),
            batches: Batches::new(writer),
            applied: Applied::default(),
            delivered: VecDeque::new(),
            replaying: None,
            numbers: None,
            barriers: Barriers::default(),
            is_cut: false,
            look_ms: 0,
            is_reachable: true,
            under_way: None,
            gathering: None,
            waiting_since_ms: 0,
            held: None,
            no_space_until_ms: None,
            is_stopped: false,
            store_size: None,
            counts: Counts::default(),
            version: ResourceVersion::default(),
            now_ms: 0,
        }
    }

    /// Whether the table is still being loaded.
    #[must_use]
    pub fn is_loading(&self) -> bool {
        matches!(self.phase, Phase::Loading(_))
    }

    /// Whether the journal can make changes durable. False while the table is still being loaded, while the store is
    /// unreachable or has no space, and after [`Journal::stop`] or an error.
    #[must_use]
    pub fn is_writable(&self) -> bool {
        let is_ready = matches!(self.phase, Phase::Ready(_));
        is_ready && self.is_reachable && self.no_space_until_ms.is_none() && !self.is_stopped
    }

    /// Whether the commit that the worker is executing takes so long that the store may never complete it.
    #[must_use]
    pub fn is_stuck(&self, now_ms: u64) -> bool {
        self.commit_age_ms(now_ms) >= self.config.limits.stuck_ms_min
    }

    fn commit_age_ms(&self, now_ms: u64) -> u64 {
        self.under_way.as_ref().map_or(0, |commit| now_ms.saturating_sub(commit.begun_ms))
    }

    /// Handles the worker's events. While loading, loads up to about `records_max` Leases and changes into the table,
    /// which is empty at first. Afterwards, applies up to about `records_max` durable changes in order, and settles
    /// their tickets.
    ///
    /// # Errors
    /// [`EngineError`], after which the journal can only be dropped. After [`EngineError::Lost`], the process loads the
    /// store again with a new journal. After any other error, the process must report the error and exit.
    pub fn advance(&mut self, table: &mut Table, now_ms: u64, records_max: usize) -> Result<Advanced, EngineError> {
        self.now_ms = now_ms;
        let (settled_before, passed_before) = (self.batches.settled(), self.barriers.passed());
        let was_loading = self.is_loading();
        let done =
            if was_loading { self.load(table, records_max) } else { self.apply_durable(table, now_ms, records_max) };
        if let Err(error) = done {
            self.phase = Phase::Failed;
            return Err(error);
        }
        assert!(self.version <= table.version(), "the table's version went back");
        let has_applied = self.version < table.version();
        self.version = table.version();
        Ok(Advanced {
            settled: usize::try_from(self.batches.settled() - settled_before).unwrap_or(usize::MAX),
            has_applied,
            has_passed_barriers: self.barriers.passed() > passed_before,
            has_loaded: was_loading && !self.is_loading(),
        })
    }

    fn load(&mut self, table: &mut Table, records_max: usize) -> Result<(), EngineError> {
        let Phase::Loading(loading) = &mut self.phase else { return Ok(()) };
        let mut budget = records_max.max(1);
        if !loading.advance(&mut *self.port, &self.config, table, &mut budget)? {
            return Ok(());
        }
        let Phase::Loading(loading) = std::mem::replace(&mut self.phase, Phase::Failed) else { return Ok(()) };
        let (applied, numbers, upkeep) = loading.finish(&self.config, table, self.now_ms);
        self.batches.rename(&applied);
        self.applied = applied;
        self.numbers = self.config.is_shared.then_some(numbers);
        self.phase = Phase::Ready(Box::new(upkeep));
        Ok(())
    }

    fn apply_durable(&mut self, table: &mut Table, now_ms: u64, changes_max: usize) -> Result<(), EngineError> {
        let mut budget = changes_max.max(1);
        self.is_cut = false;
        loop {
            budget -= match &self.replaying {
                None => self.batches.apply_batch(table, &mut self.applied, self.numbers.as_mut(), budget),
                Some(_) => self.replay(table, budget)?,
            };
            if budget == 0 || self.is_applying() {
                self.is_cut = true;
                return Ok(());
            }
            let store = &self.config.store;
            self.barriers.on_applied(&self.applied).map_err(|what| error::lost(store, &what))?;
            if let Some(entry) = self.delivered.pop_front() {
                self.take_entry(entry, table)?;
                // An entry takes time even if it is skipped. So it counts as one change against the budget. For a batch
                // of this process, its changes count instead.
                budget -= usize::from(!self.batches.is_applying());
            } else if let Some(event) = self.port.next() {
                self.take_event(event, now_ms)?;
            } else {
                return Ok(());
            }
        }
    }

    fn is_applying(&self) -> bool {
        self.batches.is_applying() || self.replaying.is_some()
    }

    /// Applies up to `changes_max` changes of another writer. Returns the number of handled changes.
    fn replay(&mut self, table: &mut Table, changes_max: usize) -> Result<usize, EngineError> {
        let (Some(replaying), Some(numbers)) = (&mut self.replaying, &mut self.numbers) else { return Ok(0) };
        let count = replaying.step(&self.config.store, table, numbers, changes_max)?;
        if replaying.is_done()
            && let Some(done) = self.replaying.take()
        {
            done.finish(&self.config.store, table, &mut self.applied)?;
        }
        Ok(count)
    }

    /// Handles a durable entry: begins to apply it, or skips it.
    fn take_entry(&mut self, entry: Entry, table: &Table) -> Result<(), EngineError> {
        let Phase::Ready(upkeep) = &mut self.phase else { return Ok(()) };
        let (store, position, version) = (&self.config.store, entry.position, table.version());
        let (bytes, expected) =
            (entry.payload.len(), if self.config.is_shared { Expected::Delivered } else { Expected::OneWriter });
        let own = entry::peek(&entry.payload).and_then(|name| self.batches.sent_header(name));
        match own {
            None if !self.config.is_shared => {
                return Err(error::damaged(store, &replay::name(position), "another process wrote it"));
            }
            None => self.replaying = Replaying::begin(store, entry, &mut self.applied, version, expected)?,
            Some(header) if replay::judge(store, position, &header, &self.applied, version, expected)? => {
                self.batches.begin_applying(position, version);
            }
            Some(_) => {
                self.applied.skip(position, version);
                self.batches.reject(&self.applied);
            }
        }
        upkeep.count_entry(position, bytes);
        Ok(())
    }

    /// Handles an event of the port.
    fn take_event(&mut self, event: Event, now_ms: u64) -> Result<(), EngineError> {
        let Phase::Ready(upkeep) = &mut self.phase else { return Ok(()) };
        match event {
            Event::Committed { entries, revision, chunk_bytes, took_us } => {
                let UnderWay { changes, bytes, tests_space, .. } = self.under_way.take().unwrap_or_default();
                let is_delivered = !entries.is_empty() || self.config.is_shared;
                assert!(changes == 0 || is_delivered, "a batch is durable that the engine does not deliver");
                if changes > 0 {
                    self.counts.on_commit(CommitStats { took_us, changes, bytes });
                    self.gathering = (changes >= self.config.limits.gathered_changes_min).then(|| Gathering {
                        changes: self.batches.waiting_len() + changes - changes / ABSENT_SHARE,
                        until_ms: now_ms.saturating_add(self.config.limits.gather_ms_max),
                    });
                }
                if tests_space && self.no_space_until_ms.take().is_some() {
                    info!(store = self.config.store, "the store has space again");
                }
                let has_snapshot = upkeep.on_durable(&self.config, chunk_bytes, revision, took_us, now_ms);
                self.counts.snapshots += u64::from(has_snapshot);
                self.delivered.extend(entries);
                Ok(())
            }
            Event::Failed(error) if error.leaves_store_usable() => {
                self.on_refused(&error, now_ms);
                Ok(())
            }
            Event::Failed(error) => Err(error),
            Event::Overtaken => {
                self.under_way = None;
                // This commit had a manifest, but another writer has replaced the stored manifest first. If the store
                // had no space, the commit may have been a test whether the store has space again ([`Upkeep::probe`]).
                // Until the port delivers the other writer's manifest, every further test fails in the same way. So the
                // journal pauses before the next test.
                let pause_until_ms = now_ms.saturating_add(self.config.limits.no_space_ms);
                self.no_space_until_ms = self.no_space_until_ms.map(|_| pause_until_ms);
                upkeep.on_overtaken(&self.config, now_ms);
                Ok(())
            }
            Event::End(end) => {
                self.barriers.on_end(end);
                Ok(())
            }
            Event::Delivered(entries) => {
                self.delivered.extend(entries);
                Ok(())
            }
            Event::Replaced(manifest) => upkeep.on_replaced(&self.config, &manifest, now_ms),
            Event::Reachable(is_reachable) => {
                self.set_reachable(is_reachable);
                Ok(())
            }
            Event::Size(size) => {
                self.set_store_size(size);
                Ok(())
            }
            Event::Opened { .. } | Event::Piece(_) | Event::Entries(_) => {
                Err(error::damaged(&self.config.store, "worker", "an event that answers no command"))
            }
        }
    }

    pub(crate) fn set_reachable(&mut self, is_reachable: bool) {
        match (self.is_reachable, is_reachable) {
            (true, false) => warn!(store = self.config.store, "the store cannot be reached"),
            (false, true) => info!(store = self.config.store, "the store is reachable again"),
            (true, true) | (false, false) => {}
        }
        self.is_reachable = is_reachable;
    }

    fn set_store_size(&mut self, size: StoreSize) {
        let was_growing = self.takes_creations();
        self.store_size = Some(size);
        let (store, in_use_bytes, max) = (&self.config.store, size.in_use_bytes, self.store_bytes_max());
        match (was_growing, self.takes_creations()) {
            (true, false) => warn!(store, in_use_bytes, max, "the store exceeds its size limit: creations are refused"),
            (false, true) => info!(store, in_use_bytes, max, "the store is within its size limit again"),
            (true, true) | (false, false) => {}
        }
    }

    /// Returns the maximum size of the store's pages in use, in bytes; `None` without a maximum. Above the maximum, the
    /// server refuses to create Leases.
    fn store_bytes_max(&self) -> Option<u64> {
        let share = |quota: u64| quota / 100 * config::QUOTA_SHARE;
        self.config.limits.store_bytes_max.or_else(|| self.store_size?.quota_bytes.map(share))
    }

    /// Whether the store is within its size limit. Above the limit, the server refuses creations of Leases, but no
    /// other writes.
    #[must_use]
    pub fn takes_creations(&self) -> bool {
        let Some((size, max)) = self.store_size.zip(self.store_bytes_max()) else { return true };
        size.in_use_bytes <= max
    }

    /// Handles a commit that the store refused. The store remains usable.
    fn on_refused(&mut self, error: &EngineError, now_ms: u64) {
        let Phase::Ready(upkeep) = &mut self.phase else { return };
        let UnderWay { changes, bytes, batch_again, .. } = self.under_way.take().unwrap_or_default();
        self.counts.storage_errors += u64::from(matches!(error, EngineError::NoSpace { .. }));
        let was_upkeep = upkeep.on_refused(&self.config, now_ms);
        if let Some(payload) = batch_again {
            let under_way = UnderWay { changes, bytes, ..UnderWay::default() };
            return self.send_commit(Commit { append: Some(payload), ..Commit::default() }, under_way);
        }
        if matches!(error, EngineError::TooLarge { .. }) {
            warn!(%error, changes, bytes, "a commit is refused");
            if changes > 0 {
                self.batches.fail_sent(Failure::TooLarge, &self.applied);
            }
        } else if changes > 0 || !was_upkeep {
            if self.no_space_until_ms.is_none() {
                warn!(%error, changes, "writes are refused");
            }
            self.batches.fail(Failure::NoSpace, &self.applied);
            self.no_space_until_ms = Some(now_ms.saturating_add(self.config.limits.no_space_ms));
        }
    }

    /// Whether [`Journal::advance`] or [`Journal::end_turn`] has work to do now. Otherwise they have work only after
    /// the next event of the worker, or at the time [`Journal::due_ms`].
    #[must_use]
    pub fn has_work(&self) -> bool {
        match &self.phase {
            Phase::Loading(loading) => loading.has_work(),
            Phase::Ready(upkeep) => {
                self.is_cut
                    || self.is_applying()
                    || !self.delivered.is_empty()
                    || self.barriers.has_work()
                    || self.under_way.is_none() && self.held.is_none() && self.batches.can_seal()
                    || self.under_way.is_none() && !self.holds_upkeep() && upkeep.has_work()
            }
            Phase::Failed => false,
        }
    }

    /// Whether no change and no commit is in flight, so that dropping the journal loses nothing.
    #[must_use]
    pub fn is_idle(&self) -> bool {
        self.batches.len() == 0 && self.under_way.is_none()
    }

    /// Returns the ticket number of the change of this Lease that is in flight. Until this change is settled, the
    /// journal refuses other changes of the Lease.
    #[inline]
    #[must_use]
    pub fn in_flight(&self, namespace: &str, name: &str) -> Option<u64> {
        self.batches.in_flight(namespace, name)
    }

    /// Submits a change that was made from the current state of `table`. `holder_change` describes how the change
    /// replaces the Lease's holder, if it does. Once the change is applied, [`Journal::take_holder_changes`] returns
    /// this description.
    ///
    /// # Errors
    /// [`Refusal`]; the change is dropped.
    #[inline]
    pub fn submit(
        &mut self,
        table: &Table,
        change: Change,
        holder_change: Option<Box<HolderChange>>,
        now_ms: u64,
    ) -> Result<Ticket, Refusal> {
        self.check_open(now_ms)?;
        if self.batches.is_full(&self.config.limits) {
            return Err(Refusal::Full);
        }
        if self.batches.waiting_len() == 0 {
            self.waiting_since_ms = now_ms;
        }
        self.batches.queue_change(table, change, holder_change).map_err(Refusal::Busy)
    }

    #[inline]
    fn check_open(&self, now_ms: u64) -> Result<(), Refusal> {
        match self.phase {
            Phase::Loading(_) => Err(Refusal::Loading),
            Phase::Failed => Err(Refusal::Stopped),
            Phase::Ready(_) if self.is_stopped => Err(Refusal::Stopped),
            Phase::Ready(_) if !self.is_reachable => Err(Refusal::Unreachable),
            Phase::Ready(_) if self.no_space_until_ms.is_some_and(|until| now_ms < until) => Err(Refusal::NoSpace),
            Phase::Ready(_) => Ok(()),
        }
    }

    /// Returns the number of the last settled ticket: that of the last change whose outcome is known. All tickets with
    /// lower numbers are settled too.
    #[inline]
    #[must_use]
    pub fn settled(&self) -> u64 {
        self.batches.settled()
    }

    /// Returns the number of a barrier for a new request. Once the barrier is [passed](Journal::passed_barrier), the
    /// table has every entry that any process had appended before this call. In a store with one writer, this barrier
    /// counts as passed at once.
    pub fn ask_barrier(&mut self) -> u64 {
        if self.config.is_shared { self.barriers.ask() } else { 0 }
    }

    /// Returns the number of the last passed barrier.
    #[inline]
    #[must_use]
    pub fn passed_barrier(&self) -> u64 {
        self.barriers.passed()
    }

    /// Returns the time at which the query of the last passed barrier began, in ms; `None` before the first one. The
    /// table has every entry that the store had at this time. In a store with one writer, returns `now_ms`.
    #[must_use]
    pub fn current_ms(&self, now_ms: u64) -> Option<u64> {
        if self.config.is_shared { self.barriers.passed_ms() } else { Some(now_ms) }
    }

    /// Whether the table is current: a barrier has shown that the table has every entry that the store had
    /// `behind_ms_max` ago. Always true in a store with one writer.
    #[must_use]
    pub fn is_current(&self, now_ms: u64) -> bool {
        let behind_ms_max = self.config.limits.behind_ms_max;
        self.current_ms(now_ms).is_some_and(|current_ms| now_ms <= current_ms.saturating_add(behind_ms_max))
    }

    /// Whether the store is reachable, according to the port's last event.
    #[inline]
    #[must_use]
    pub fn is_reachable(&self) -> bool {
        self.is_reachable
    }

    /// Returns the version of the table after the last applied change.
    #[inline]
    #[must_use]
    pub fn version(&self) -> ResourceVersion {
        self.version
    }

    /// Whether other processes write to the store too.
    #[inline]
    #[must_use]
    pub fn is_shared(&self) -> bool {
        self.config.is_shared
    }

    /// Returns the bytes of the quota `--lease-quota-bytes` that are reserved for creations and replacements in flight,
    /// in all namespaces and in `namespace`.
    #[must_use]
    pub fn reserved(&self, namespace: &str) -> Reserved {
        self.batches.reserved(namespace)
    }

    /// Ends a turn of the event loop. If a barrier was asked for, starts a query of the store for its last entry,
    /// unless a query is running. If the worker has no commit, sends it a batch of the waiting changes and at most one
    /// task of upkeep. A task is a piece of a snapshot, a new manifest, or a deletion of unneeded values. The batch may
    /// be held back until it has more changes.
    pub fn end_turn(&mut self, table: &Table, now_ms: u64) {
        self.now_ms = now_ms;
        if self.config.is_shared && matches!(self.phase, Phase::Ready(_)) {
            if now_ms >= self.look_ms {
                self.barriers.ask();
                self.look_ms = now_ms.saturating_add(self.config.limits.look_ms);
            }
            if self.barriers.begin_query(now_ms) {
                self.port.send(Command::FindEnd);
            }
        }
        if self.under_way.is_some() || self.is_applying() || !self.delivered.is_empty() {
            return;
        }
        self.held = self.hold_renewals(now_ms).or_else(|| self.hold_batch(now_ms));
        if self.holds_upkeep() {
            return;
        }
        let Phase::Ready(upkeep) = &mut self.phase else { return };
        let is_trying_again = self.no_space_until_ms.is_some_and(|until| now_ms >= until);
        if is_trying_again && self.batches.waiting_len() == 0 {
            let probe = upkeep.probe(&self.config);
            return self.send_commit(probe, UnderWay { tests_space: true, ..UnderWay::default() });
        }
        let work = upkeep.next(&self.config, table, &self.applied, self.batches.writer(), now_ms);
        let mut commit = match work {
            Some(Work::Alone(commit)) => return self.send_commit(commit, UnderWay::default()),
            Some(Work::Beside(commit)) => commit,
            None => Commit::default(),
        };
        let has_upkeep = commit != Commit::default();
        let mut under_way = UnderWay::default();
        // etcd limits the size of a commit. A piece of a snapshot and a large change together may exceed this limit. So
        // the large change waits for a later commit.
        let is_full = commit.piece.is_some() && self.batches.begins_large(&self.config.limits);
        if self.held.is_none()
            && !is_full
            && let Some(sealed) = self.batches.seal(&self.applied, table.version(), &self.config.limits)
        {
            (under_way.changes, under_way.bytes) = (sealed.changes, sealed.payload.len());
            under_way.batch_again = has_upkeep.then(|| sealed.payload.clone());
            commit.append = Some(sealed.payload);
        }
        if has_upkeep || under_way.changes > 0 {
            self.send_commit(commit, under_way);
        }
    }

    /// Returns how long the waiting changes are held back, if all of them are renewals. A renewal is a heartbeat, and a
    /// short delay does not harm a heartbeat. A commit of many renewals costs the store no more than a commit of one
    /// renewal.
    fn hold_renewals(&self, now_ms: u64) -> Option<Held> {
        let Limits { renewal_wait_ms, batch_changes_max, .. } = self.config.limits;
        let until_ms = self.waiting_since_ms.saturating_add(renewal_wait_ms);
        let is_held = self.batches.can_seal()
            && self.batches.only_renewals_wait()
            && self.batches.waiting_len() < batch_changes_max
            && now_ms < until_ms;
        is_held.then_some(Held { until_ms, holds_upkeep: false })
    }

    /// Returns how long a batch of many changes is held back. The batch waits for the next changes of the clients that
    /// the last batch has answered. Without the wait, the clients would split into two groups whose commits alternate.
    /// A commit costs the same processor time for one change and for many, so one common commit is cheaper. A batch of
    /// few changes is sent at once.
    fn hold_batch(&self, now_ms: u64) -> Option<Held> {
        let Limits { gathered_changes_min, batch_changes_max, .. } = self.config.limits;
        let Gathering { changes, until_ms } = self.gathering?;
        let is_held = (gathered_changes_min..batch_changes_max.min(changes)).contains(&self.batches.waiting_len())
            && now_ms < until_ms;
        is_held.then_some(Held { until_ms, holds_upkeep: true })
    }

    fn holds_upkeep(&self) -> bool {
        self.held.is_some_and(|held| held.holds_upkeep)
    }

    fn send_commit(&mut self, commit: Commit, under_way: UnderWay) {
        assert!(self.under_way.is_none(), "one commit at a time");
        let tests_space = under_way.tests_space || commit.append.is_some();
        self.under_way = Some(UnderWay { begun_ms: self.now_ms, tests_space, ..under_way });
        self.port.send(Command::Commit(commit));
    }

    /// Makes the journal refuse new changes. Changes in flight continue.
    pub fn stop(&mut self) {
        self.is_stopped = true;
    }

    /// Closes the store cleanly, after the commits in flight. Afterwards the journal can only be dropped.
    ///
    /// # Errors
    /// [`EngineError`] if the store was not closed cleanly, or if a commit in flight has failed.
    pub fn close(&mut self) -> Result<(), EngineError> {
        self.port.close()
    }

    /// Returns the time at which [`Journal::end_turn`] must be called next if no event arrives earlier, in ms.
    #[must_use]
    pub fn due_ms(&self) -> Option<u64> {
        match &self.phase {
            Phase::Ready(upkeep) => {
                let look_ms = self.config.is_shared.then_some(self.look_ms);
                let upkeep_ms = if self.under_way.is_none() && !self.holds_upkeep() { upkeep.due_ms() } else { None };
                // If a batch is held, its commit will show whether the store has space again. So no other test is due
                // at `no_space_until_ms`.
                let batch_ms =
                    self.held.map(|held| held.until_ms).or(self.no_space_until_ms).filter(|_| self.under_way.is_none());
                [look_ms, upkeep_ms, batch_ms].into_iter().flatten().min()
            }
            Phase::Loading(_) | Phase::Failed => None,
        }
    }

    /// Returns statistics of the journal.
    #[must_use]
    pub fn stats(&self) -> Stats {
        let mut stats = Stats {
            is_writable: self.is_writable(),
            applied_version: self.version,
            commit_age_ms: self.commit_age_ms(self.now_ms),
            changes_in_flight: self.batches.len(),
            store: self.store_size,
            store_bytes_max: self.store_bytes_max(),
            snapshots: self.counts.snapshots,
            storage_errors: self.counts.storage_errors,
            ..Stats::default()
        };
        if let Phase::Ready(upkeep) = &self.phase {
            upkeep.fill(&mut stats, &self.config, self.now_ms);
        }
        stats
    }

    /// Returns the changes of holder that this process submitted and that were applied since the last call.
    pub fn take_holder_changes(&mut self) -> Vec<HolderChange> {
        self.batches.take_holder_changes()
    }

    /// Returns statistics of the batches that became durable since the last call. Returns at most the first 1,024
    /// batches.
    pub fn take_commits(&mut self) -> Vec<CommitStats> {
        self.counts.take_commits()
    }
}
