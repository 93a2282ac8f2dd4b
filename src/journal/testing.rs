//! Stores in memory, for tests: an engine for one writer that can run out of space, and a port to a store with several
//! writers.

use super::chunk;
use super::manifest::Manifest;
use super::port::{Command, Commit, End, Event, Piece, Port, StoredManifest};
use super::{Config, Journal, Limits};
use crate::engine::{Engine, EngineError, Entry, Position, SnapshotId, Write};
use crate::resource::ResourceVersion;
use crate::table::Table;
use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::io;
use std::rc::Rc;
use std::sync::{Arc, Mutex, MutexGuard};

/// The content of a store.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Stored {
    pub(crate) manifest: Option<Vec<u8>>,
    pub(crate) chunks: BTreeMap<(SnapshotId, u32), Vec<u8>>,
    pub(crate) entries: BTreeMap<Position, Vec<u8>>,
}

/// A store with one writer. It outlives the engines that use it. A clone is another handle to the same store.
#[derive(Clone, Debug, Default)]
pub(crate) struct Store(Arc<Mutex<State>>);

#[derive(Debug, Default)]
struct State {
    stored: Stored,
    /// Content of the store after each commit, if it is recorded.
    history: Option<Vec<Stored>>,
    commits: Vec<Vec<Write>>,
    /// Number of further commits for which the store has no space. Commits that only delete do not count.
    no_space: u32,
    /// Whether the store has no space for commits with a chunk.
    no_space_for_chunks: bool,
    /// Whether every commit fails.
    is_broken: bool,
}

impl Store {
    pub(crate) fn of(stored: Stored) -> Self {
        let store = Self::default();
        store.state().stored = stored;
        store
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().expect("no test panics with the lock")
    }

    pub(crate) fn stored(&self) -> Stored {
        self.state().stored.clone()
    }

    pub(crate) fn change(&self, change: impl FnOnce(&mut Stored)) {
        change(&mut self.state().stored);
    }

    pub(crate) fn keep_history(&self) {
        self.state().history = Some(Vec::new());
    }

    pub(crate) fn history(&self) -> Vec<Stored> {
        self.state().history.clone().expect("history is kept")
    }

    pub(crate) fn commits(&self) -> Vec<Vec<Write>> {
        self.state().commits.clone()
    }

    pub(crate) fn commit_count(&self) -> usize {
        self.state().commits.len()
    }

    /// Makes the store have no space for the next `commits` commits that put a value.
    pub(crate) fn fill(&self, commits: u32) {
        self.state().no_space = commits;
    }

    pub(crate) fn fill_for_chunks(&self, is_full: bool) {
        self.state().no_space_for_chunks = is_full;
    }

    pub(crate) fn break_down(&self) {
        self.state().is_broken = true;
    }
}

impl Engine for Store {
    fn manifest(&mut self) -> Result<Option<Vec<u8>>, EngineError> {
        Ok(self.state().stored.manifest.clone())
    }

    fn chunk(&mut self, snapshot: SnapshotId, index: u32) -> Result<Option<Vec<u8>>, EngineError> {
        Ok(self.state().stored.chunks.get(&(snapshot, index)).cloned())
    }

    fn snapshots(&mut self) -> Result<Vec<SnapshotId>, EngineError> {
        let mut ids: Vec<_> = self.state().stored.chunks.keys().map(|(id, _)| *id).collect();
        ids.dedup();
        Ok(ids)
    }

    fn entries(&mut self, after: Position, bytes_max: usize) -> Result<Vec<Entry>, EngineError> {
        let mut bytes = 0;
        let state = self.state();
        let behind = state.stored.entries.range(Position(after.0 + 1)..);
        let wanted = behind.take_while(|(_, payload)| {
            let is_wanted = bytes < bytes_max;
            bytes += payload.len();
            is_wanted
        });
        Ok(wanted.map(|(position, payload)| Entry { position: *position, payload: payload.clone() }).collect())
    }

    fn commit(&mut self, writes: Vec<Write>, deliver: &mut dyn FnMut(Entry)) -> Result<(), EngineError> {
        let mut state = self.state();
        if state.is_broken {
            return Err(EngineError::Io { what: "sync".to_owned(), cause: io::Error::other("EIO") });
        }
        let has_chunk = writes.iter().any(|write| matches!(write, Write::PutChunk { .. }));
        let puts = !writes.iter().all(|write| matches!(write, Write::Truncate(_) | Write::DropChunks { .. }));
        if puts && state.no_space > 0 || has_chunk && state.no_space_for_chunks {
            state.no_space = state.no_space.saturating_sub(1);
            return Err(EngineError::NoSpace { store: "memory".to_owned(), cause: io::Error::other("ENOSPC") });
        }
        state.commits.push(writes.clone());
        let Stored { manifest, chunks, entries } = &mut state.stored;
        for write in writes {
            match write {
                Write::Append(payload) => {
                    let position = Position(entries.last_key_value().map_or(0, |(last, _)| last.0) + 1);
                    entries.insert(position, payload.clone());
                    deliver(Entry { position, payload });
                }
                Write::Truncate(up_to) => entries.retain(|position, _| *position > up_to),
                Write::PutChunk { snapshot, index, bytes } => {
                    assert!(bytes.len() <= super::CHUNK_BYTES_MAX);
                    chunks.insert((snapshot, index), bytes);
                }
                Write::DropChunks { snapshot, below } => {
                    chunks.retain(|(id, index), _| *id != snapshot || *index >= below);
                }
                Write::PutManifest(bytes) => *manifest = Some(bytes),
            }
        }
        let stored = state.stored.clone();
        state.history.iter_mut().for_each(|history| history.push(stored.clone()));
        Ok(())
    }
}

/// A store with several writers. A clone is another handle to the same store.
#[derive(Clone, Debug, Default)]
pub(crate) struct SharedStore(Rc<RefCell<Shared>>);

#[derive(Debug, Default)]
struct Shared {
    stored: Stored,
    /// Every entry that was ever appended to the store.
    appended: Vec<Entry>,
    /// Positions of entries that are never delivered.
    lost: BTreeSet<Position>,
    /// Every manifest that was written. The revision of each is its index plus 1.
    manifests: Vec<Vec<u8>>,
    /// Number of further batches for which the store has no space.
    no_space: u32,
    /// The last batch for which the store had no space.
    refused: Option<Vec<u8>>,
    /// Maximum size of a batch, in bytes; `None` without a maximum.
    batch_bytes_max: Option<usize>,
    /// Whether [`Command::FindEnd`] gets no answer.
    is_mute: bool,
    /// Whether the ports deliver no entries and no manifests.
    is_silent: bool,
}

/// A process's port to a [`SharedStore`].
#[derive(Debug)]
pub(crate) struct SharedPort {
    store: SharedStore,
    answers: VecDeque<Event>,
    /// Indexes in `appended` and `manifests` of the next entry and the next manifest to deliver; `None` before
    /// [`Command::Open`].
    delivered: Option<(usize, usize)>,
    /// Content of the store at [`Command::Open`].
    opened: Stored,
    /// Whether all entries in `opened` were read.
    is_read: bool,
}

impl SharedStore {
    /// Starts a journal over this store, with the name `writer`, and loads the Leases of the store into a new table.
    pub(crate) fn load(&self, writer: u64, limits: Limits) -> (Journal, Table) {
        let config = Config { is_shared: true, limits, ..Config::new("shared", 1_000) };
        let mut journal = Journal::new(Box::new(SharedPort::new(self)), config, writer);
        let mut table = Table::new(ResourceVersion(1), 100, usize::MAX);
        while journal.is_loading() {
            journal.advance(&mut table, 0, 100).expect("a store");
        }
        (journal, table)
    }

    fn append(&self, payload: Vec<u8>) {
        let mut shared = self.0.borrow_mut();
        let position = Position(shared.appended.last().map_or(0, |last| last.position.0) + 1);
        shared.stored.entries.insert(position, payload.clone());
        shared.appended.push(Entry { position, payload });
    }

    /// Appends the entry at `position` again, at a new position. In etcd this happens if a repeated request arrives
    /// after the first entry was truncated.
    pub(crate) fn append_again(&self, position: Position) {
        let again = self.0.borrow().appended.iter().find(|entry| entry.position == position).cloned();
        self.append(again.expect("an entry").payload);
    }

    /// Makes the store have no space for the next `batches` batches.
    pub(crate) fn fill(&self, batches: u32) {
        self.0.borrow_mut().no_space = batches;
    }

    /// Makes the store refuse every batch of more than `batch_bytes_max` bytes, as etcd does.
    pub(crate) fn refuse_batches_above(&self, batch_bytes_max: usize) {
        self.0.borrow_mut().batch_bytes_max = Some(batch_bytes_max);
    }

    /// Appends the last batch for which the store had no space, as if an earlier attempt to append this batch had taken
    /// effect.
    pub(crate) fn append_refused(&self) {
        let payload = self.0.borrow_mut().refused.take();
        self.append(payload.expect("a batch without room"));
    }

    /// Makes the ports skip an entry that they have not delivered yet.
    pub(crate) fn lose(&self, position: Position) {
        self.0.borrow_mut().lost.insert(position);
    }

    pub(crate) fn change_last(&self, change: impl FnOnce(&mut Vec<u8>)) {
        let mut shared = self.0.borrow_mut();
        let last = shared.appended.last_mut().expect("an entry");
        change(&mut last.payload);
        let Entry { position, payload } = last.clone();
        shared.stored.entries.insert(position, payload);
    }

    /// Stops answering [`Command::FindEnd`].
    pub(crate) fn answer_no_looks(&self) {
        self.0.borrow_mut().is_mute = true;
    }

    /// Stops the delivery of entries and manifests if `is_silent` is true. Otherwise resumes the delivery.
    pub(crate) fn deliver_nothing(&self, is_silent: bool) {
        self.0.borrow_mut().is_silent = is_silent;
    }

    /// Returns the number of snapshots that writers have claimed. A claim in the manifest says which writer takes the
    /// next snapshot.
    pub(crate) fn claims(&self) -> u64 {
        let shared = self.0.borrow();
        let newest = shared.manifests.last().expect("a manifest");
        Manifest::decode(newest).expect("a manifest").last_claimed.0
    }

    pub(crate) fn first_position(&self) -> Position {
        *self.0.borrow().stored.entries.first_key_value().expect("an entry").0
    }
}

impl SharedPort {
    pub(crate) fn new(store: &SharedStore) -> Self {
        let (store, opened) = (store.clone(), Stored::default());
        Self { store, answers: VecDeque::new(), delivered: None, opened, is_read: false }
    }

    fn open(&mut self) -> Event {
        let shared = self.store.0.borrow();
        self.opened = shared.stored.clone();
        let revision = shared.manifests.len() as u64;
        let manifest = shared.manifests.last().map(|bytes| StoredManifest { bytes: bytes.clone(), revision });
        let mut snapshots: Vec<_> = self.opened.chunks.keys().map(|(id, _)| *id).collect();
        snapshots.dedup();
        // The delivery begins after the content that was opened.
        self.delivered = Some((shared.appended.len(), shared.manifests.len()));
        Event::Opened { manifest, snapshots, has_entries: !self.opened.entries.is_empty() }
    }

    fn read_entries(&mut self) -> Event {
        let entries = std::mem::take(&mut self.opened.entries);
        self.is_read = entries.is_empty();
        Event::Entries(entries.into_iter().map(|(position, payload)| Entry { position, payload }).collect())
    }

    fn commit(&self, commit: Commit) -> Event {
        let Commit { append, piece, writes, manifest } = commit;
        let mut shared = self.store.0.borrow_mut();
        let batch_bytes = append.as_ref().map_or(0, Vec::len);
        if shared.batch_bytes_max.is_some_and(|bytes_max| batch_bytes > bytes_max) {
            let cause = io::Error::other("etcdserver: request is too large");
            return Event::Failed(EngineError::TooLarge { store: "shared".to_owned(), cause });
        }
        let mut committed = 0;
        if let Some(StoredManifest { bytes, revision }) = manifest.map(|manifest| *manifest) {
            if revision != shared.manifests.len() as u64 {
                return Event::Overtaken;
            }
            shared.manifests.push(bytes.clone());
            shared.stored.manifest = Some(bytes);
            committed = shared.manifests.len() as u64;
        }
        if append.is_some() && shared.no_space > 0 {
            shared.no_space -= 1;
            shared.refused = append;
            let cause = io::Error::other("mvcc: database space exceeded");
            return Event::Failed(EngineError::NoSpace { store: "shared".to_owned(), cause });
        }
        let mut chunk_bytes = 0;
        if let Some(Piece { snapshot, index, format, bytes }) = piece {
            let bytes = chunk::encode(snapshot, index, format, &bytes);
            chunk_bytes = bytes.len();
            shared.stored.chunks.insert((snapshot, index), bytes);
        }
        for write in writes {
            match write {
                Write::Truncate(up_to) => shared.stored.entries.retain(|position, _| *position > up_to),
                Write::DropChunks { snapshot, below } => {
                    shared.stored.chunks.retain(|(id, index), _| *id != snapshot || *index >= below);
                }
                other => panic!("{other:?}"),
            }
        }
        drop(shared);
        if let Some(payload) = append {
            self.store.append(payload);
        }
        Event::Committed { entries: Vec::new(), revision: committed, chunk_bytes, took_us: 0 }
    }
}

impl Port for SharedPort {
    fn send(&mut self, command: Command) {
        let answer = match command {
            Command::Open => self.open(),
            Command::ReadChunk { snapshot, index } => {
                let sealed = self.opened.chunks.get(&(snapshot, index)).expect("a chunk that the manifest names");
                Event::Piece(chunk::decode(sealed).expect("a chunk"))
            }
            Command::ReadEntries => self.read_entries(),
            Command::Commit(commit) => self.commit(commit),
            Command::FindEnd => {
                let shared = self.store.0.borrow();
                if shared.is_mute {
                    return;
                }
                let position = shared.appended.last().map_or(Position(0), |last| last.position);
                Event::End(End { position, entries: shared.appended.len() as u64 })
            }
        };
        self.answers.push_back(answer);
    }

    fn next(&mut self) -> Option<Event> {
        if let Some(answer) = self.answers.pop_front() {
            return Some(answer);
        }
        let (entries, manifests) = self.delivered.as_mut().filter(|_| self.is_read)?;
        let shared = self.store.0.borrow();
        if shared.is_silent {
            return None;
        }
        if let Some(bytes) = shared.manifests.get(*manifests) {
            *manifests += 1;
            return Some(Event::Replaced(StoredManifest { bytes: bytes.clone(), revision: *manifests as u64 }));
        }
        let next = shared.appended.get(*entries)?.clone();
        *entries += 1;
        Some(Event::Delivered(if shared.lost.contains(&next.position) { Vec::new() } else { vec![next] }))
    }
}
