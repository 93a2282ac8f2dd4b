//! An engine in memory, for tests: it can lose what was not committed, and have no room.

use crate::engine::{Engine, EngineError, Entry, Position, SnapshotId, Write};
use std::collections::BTreeMap;
use std::io;
use std::sync::{Arc, Mutex, MutexGuard};

/// What a store holds.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Stored {
    pub(crate) manifest: Option<Vec<u8>>,
    pub(crate) chunks: BTreeMap<(SnapshotId, u32), Vec<u8>>,
    pub(crate) entries: BTreeMap<Position, Vec<u8>>,
}

/// A store that outlives its engines. A clone is another handle of the same.
#[derive(Clone, Debug, Default)]
pub(crate) struct Store(Arc<Mutex<State>>);

#[derive(Debug, Default)]
struct State {
    stored: Stored,
    /// What was stored after each commit, if that is wanted.
    history: Option<Vec<Stored>>,
    commits: Vec<Vec<Write>>,
    /// Commits that find no room from now on.
    no_space: u32,
    /// Whether a commit with a chunk finds no room.
    no_space_for_chunks: bool,
    /// Whether the next commit fails for good.
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

    /// The next commits find no room.
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
        if state.no_space > 0 || has_chunk && state.no_space_for_chunks {
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
