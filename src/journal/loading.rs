//! Loads the table (all Leases in memory) from a store, in steps. A process loads the table at startup, for a
//! migration, and again after it has lost track of the store. A store has a base: a snapshot or an empty table. Loading
//! first restores the Leases of the base, and then applies every later entry.
//!
//! The changes in entries are applied like new changes. So the event log, from which watches resume, gets the same
//! events as before the restart.

use super::applied::{Applied, Writers};
use super::chunk::PIECE_BYTES;
use super::config::Config;
use super::error::{damaged, unreadable};
use super::manifest::{Base, Manifest, SnapshotInfo};
use super::port::{Command, Commit, End, Event, Port, StoredManifest};
use super::record::RecordReader;
use super::replay::{Expected, Numbers, Replaying};
use super::retained::{Amount, Retained};
use super::upkeep::Upkeep;
use crate::engine::{EngineError, Entry, Position, SnapshotId};
use crate::resource::ResourceVersion;
use crate::table::Table;
use std::collections::VecDeque;
use tracing::info;

/// The progress of loading a table from a store.
#[derive(Debug)]
pub(super) struct Loading {
    step: Step,
    manifest: Option<Manifest>,
    /// Revision of the manifest in the store.
    revision: u64,
    /// Snapshots that have chunks in the store.
    stored: Vec<SnapshotId>,
    numbers: Numbers,
    applied: Applied,
    retained: Retained,
    /// Number and size of the entries after the newest snapshot.
    since: Amount,
    /// Number of entries that were applied to the table of the base.
    entries: u64,
    /// Whether the last call of [`Loading::advance`] stopped because its budget was used up, so that work remains.
    is_cut: bool,
}

#[derive(Debug)]
enum Step {
    /// The worker is opening the store.
    Opening,
    /// The worker is writing the first manifest.
    Creating,
    /// The worker is reading the chunks of the base snapshot.
    Records(Records),
    /// The worker is reading the entries of the journal.
    Entries(Entries),
}

#[derive(Debug)]
struct Records {
    info: SnapshotInfo,
    /// Number of requested chunks of the snapshot.
    asked: u32,
    /// Number of received chunks of the snapshot.
    taken: u32,
    reader: RecordReader,
    /// Number of restored Leases.
    records: u64,
}

#[derive(Debug, Default)]
struct Entries {
    queue: VecDeque<Entry>,
    replaying: Option<Replaying>,
    has_ended: bool,
}

/// Maximum number of chunks of the base snapshot that are requested in advance.
const CHUNKS_AHEAD: u32 = 2;

impl Loading {
    /// Asks the worker to open the store.
    pub(super) fn begin(port: &mut dyn Port, config: &Config) -> Self {
        port.send(Command::Open);
        Self {
            step: Step::Opening,
            manifest: None,
            revision: 0,
            stored: Vec::new(),
            numbers: Numbers::default(),
            applied: Applied::default(),
            retained: Retained::new(Amount {
                entries: config.limits.truncated_entries_max,
                bytes: config.limits.truncated_bytes_max,
            }),
            since: Amount::default(),
            entries: 0,
            is_cut: false,
        }
    }

    /// Whether there is work to do before the worker's next event.
    pub(super) fn has_work(&self) -> bool {
        self.is_cut
    }

    /// Loads at most about `budget` records of the base snapshot and changes of entries. Subtracts the number of loaded
    /// records and changes from `budget`. Returns whether the table is completely loaded. If not, the next call
    /// continues after the worker's next event, or at once if [`Loading::has_work`].
    ///
    /// # Errors
    /// [`EngineError`] if the store cannot be read, is damaged, or is missing although it must exist.
    pub(super) fn advance(
        &mut self,
        port: &mut dyn Port,
        config: &Config,
        table: &mut Table,
        budget: &mut usize,
    ) -> Result<bool, EngineError> {
        self.is_cut = false;
        loop {
            let is_loaded = match &mut self.step {
                Step::Records(records) => {
                    if records.advance(port, config, table, &mut self.numbers, budget)? {
                        let SnapshotInfo { position, entries, version, chain, writers, .. } = records.info.clone();
                        self.applied = Applied::at(End { position, entries }, version, chain, writers);
                        self.read_entries(port);
                        continue;
                    }
                    false
                }
                Step::Entries(_) => self.advance_entries(port, config, table, budget)?,
                Step::Opening | Step::Creating => match port.next() {
                    Some(event) => {
                        self.on_opened(event, port, config, table)?;
                        continue;
                    }
                    None => return Ok(false),
                },
            };
            self.is_cut = *budget == 0;
            return Ok(is_loaded);
        }
    }

    fn on_opened(
        &mut self,
        event: Event,
        port: &mut dyn Port,
        config: &Config,
        table: &mut Table,
    ) -> Result<(), EngineError> {
        match event {
            Event::Opened { manifest: Some(StoredManifest { bytes, revision }), snapshots, .. } => {
                self.revision = revision;
                let manifest = Manifest::decode(&bytes);
                let manifest = manifest.map_err(|error| unreadable(&config.store, "manifest", error))?;
                self.stored = snapshots;
                match &manifest.base {
                    Base::Empty(version) => {
                        self.begin_empty(table, *version);
                        self.read_entries(port);
                    }
                    Base::Snapshot(info) => {
                        table.start_at(info.version);
                        // The number of Leases in the manifest may be too high. A snapshot has no more Leases than
                        // bytes, so its size limits the reserved memory.
                        self.numbers.reserve(usize::try_from(info.records.min(info.bytes)).unwrap_or(0));
                        self.step = Step::Records(Records::begin(info.clone(), port));
                    }
                }
                self.manifest = Some(manifest);
                Ok(())
            }
            Event::Opened { manifest: None, snapshots, has_entries } => {
                if has_entries || !snapshots.is_empty() {
                    return Err(damaged(&config.store, "manifest", "it is not there, but entries or snapshots are"));
                }
                if config.must_exist {
                    return Err(EngineError::Deleted { store: config.store.clone() });
                }
                let manifest = Manifest::new(config.first_version());
                let put = StoredManifest { bytes: manifest.encode(config.limits.format), revision: 0 };
                port.send(Command::Commit(Commit { manifest: Some(Box::new(put)), ..Commit::default() }));
                self.manifest = Some(manifest);
                self.step = Step::Creating;
                Ok(())
            }
            Event::Committed { revision, .. } => {
                info!(version = config.first_version().0, "new store");
                self.revision = revision;
                self.begin_empty(table, config.first_version());
                self.read_entries(port);
                Ok(())
            }
            // Another replica created the store first.
            Event::Overtaken => {
                port.send(Command::Open);
                self.step = Step::Opening;
                Ok(())
            }
            Event::Reachable(_) => Ok(()),
            other => Err(unexpected(config, other)),
        }
    }

    fn begin_empty(&mut self, table: &mut Table, version: ResourceVersion) {
        table.start_at(version);
        self.applied = Applied::at(End::default(), version, 0, Writers::default());
    }

    fn read_entries(&mut self, port: &mut dyn Port) {
        port.send(Command::ReadEntries);
        self.step = Step::Entries(Entries::default());
    }

    /// Applies entries until `budget` is used up, or until the worker must read the next entries. Returns whether no
    /// entry is left.
    fn advance_entries(
        &mut self,
        port: &mut dyn Port,
        config: &Config,
        table: &mut Table,
        budget: &mut usize,
    ) -> Result<bool, EngineError> {
        let Step::Entries(entries) = &mut self.step else { return Ok(false) };
        let base = match self.manifest.as_ref().map(|manifest| &manifest.base) {
            Some(Base::Snapshot(info)) => info.position,
            Some(Base::Empty(_)) | None => Position::default(),
        };
        let newest =
            self.manifest.as_ref().and_then(Manifest::newest).map_or_else(Position::default, |info| info.position);
        loop {
            if let Some(replaying) = &mut entries.replaying {
                let count = replaying.step(&config.store, table, &mut self.numbers, *budget)?;
                *budget = budget.saturating_sub(count);
                if !replaying.is_done() {
                    return Ok(false);
                }
                if let Some(done) = entries.replaying.take() {
                    done.finish(&config.store, table, &mut self.applied)?;
                    self.entries += 1;
                }
            }
            if *budget == 0 {
                return Ok(false);
            }
            // An entry without changes also takes time, so it counts against the budget.
            *budget -= 1;
            if let Some(entry) = entries.queue.pop_front() {
                self.retained.push(entry.position, entry.payload.len());
                if entry.position > newest {
                    self.since.add(entry.payload.len());
                }
                // Entries that the base already contains are skipped. [`Upkeep`] deletes them later.
                if entry.position > base {
                    let expected = Expected::stored(config.is_shared);
                    let base = table.version();
                    entries.replaying = Replaying::begin(&config.store, entry, &mut self.applied, base, expected)?;
                }
                continue;
            }
            if entries.has_ended {
                return Ok(true);
            }
            match port.next() {
                None => return Ok(false),
                Some(Event::Entries(next)) => {
                    entries.has_ended = next.is_empty();
                    if !entries.has_ended {
                        port.send(Command::ReadEntries);
                    }
                    entries.queue = next.into();
                }
                Some(Event::Reachable(_)) => {}
                Some(other) => return Err(unexpected(config, other)),
            }
        }
    }

    /// Returns the parts that the journal needs once the table is loaded. `now_ms` is the current time, in ms.
    pub(super) fn finish(self, config: &Config, table: &Table, now_ms: u64) -> (Applied, Numbers, Upkeep) {
        let manifest = self.manifest.expect("a table is loaded by a manifest");
        info!(
            leases = table.len(),
            version = table.version().0,
            oldest_version = table.log().floor().0,
            entries = self.entries,
            "journal loaded"
        );
        let put = (manifest, self.revision, now_ms);
        let upkeep = Upkeep::new(config, put, self.retained, self.since, &self.stored);
        (self.applied, self.numbers, upkeep)
    }
}

impl Records {
    fn begin(info: SnapshotInfo, port: &mut dyn Port) -> Self {
        let mut records = Self { info, asked: 0, taken: 0, reader: RecordReader::default(), records: 0 };
        records.ask(port);
        records
    }

    fn ask(&mut self, port: &mut dyn Port) {
        while self.asked < self.info.chunks && self.asked - self.taken < CHUNKS_AHEAD {
            port.send(Command::ReadChunk { snapshot: self.info.id, index: self.asked });
            self.asked += 1;
        }
    }

    /// Loads records until `budget` is used up, or until the worker must read the next chunk. Returns whether no record
    /// is left.
    fn advance(
        &mut self,
        port: &mut dyn Port,
        config: &Config,
        table: &mut Table,
        numbers: &mut Numbers,
        budget: &mut usize,
    ) -> Result<bool, EngineError> {
        let name = format!("snapshot {}", self.info.id.0);
        let wrong = |what: &str| damaged(&config.store, &name, what);
        while *budget > 0 {
            let record = self.reader.next().map_err(|error| unreadable(&config.store, &name, error))?;
            if let Some(record) = record {
                numbers.restore(table, record).map_err(|_| wrong("it has a Lease twice, or one of a later version"))?;
                self.records += 1;
                *budget -= 1;
                continue;
            }
            if self.taken == self.info.chunks {
                if !self.reader.is_empty() || self.records != self.info.records {
                    let (found, expected) = (self.records, self.info.records);
                    return Err(wrong(&format!("it ends after {found} Leases of {expected}")));
                }
                return Ok(true);
            }
            match port.next() {
                None => return Ok(false),
                Some(Event::Piece(piece)) => {
                    self.taken += 1;
                    self.ask(port);
                    debug_assert!(piece.bytes.len() <= PIECE_BYTES, "a piece that is too long");
                    self.reader.push(&piece.bytes);
                }
                Some(Event::Reachable(_)) => {}
                Some(other) => return Err(unexpected(config, other)),
            }
        }
        Ok(false)
    }
}

/// Returns the error for an event that does not answer the last command.
#[cold]
fn unexpected(config: &Config, event: Event) -> EngineError {
    match event {
        Event::Failed(error) => error,
        _ => damaged(&config.store, "worker", "an event that does not answer the command"),
    }
}
