//! Deliberate bugs in the store: a wrapper around the engine, which is the code that stores the journal's entries and
//! snapshots. The journal's worker calls the wrapper instead of the engine.

use super::{Bug, Memory};
use coordination_apiserver::engine::{Engine, EngineError, Entry, Position, SnapshotId, Write};
use fastrand::Rng;
use std::sync::PoisonError;

/// Wraps an engine so that it has a deliberate bug.
#[must_use]
pub fn wrap(engine: impl Engine + 'static, bug: Option<Bug>, memory: &Memory, seed: u64) -> Box<dyn Engine> {
    let Some(bug) = bug else { return Box::new(engine) };
    Box::new(Buggy {
        engine,
        bug,
        random: Rng::with_seed(seed),
        memory: memory.clone(),
        last: 0,
        shift: 0,
        withheld: Vec::new(),
        commits: 0,
        is_read: false,
    })
}

#[derive(Debug)]
struct Buggy<E> {
    engine: E,
    bug: Bug,
    random: Rng,
    memory: Memory,
    /// Position of the last entry, as the journal sees it.
    last: u64,
    /// Difference between the positions that the journal sees and those in the engine, which lacks dropped entries.
    shift: u64,
    /// Writes that the bug holds back, to store them with a later commit.
    withheld: Vec<Write>,
    commits: u64,
    /// Whether [`Engine::entries`] was called before in this start.
    is_read: bool,
}

/// One in this many commits is dropped, with [`Bug::BatchDropped`].
const DROPPED_ONE_IN: u8 = 20;
/// Interval, in commits, at which the withheld chunks are stored, with [`Bug::ManifestBeforeChunks`].
const WITHHELD_COMMITS: u64 = 40;

impl<E: Engine> Buggy<E> {
    /// Delivers all entries of a commit to the journal as if they were stored.
    fn pretend(&mut self, writes: Vec<Write>, deliver: &mut dyn FnMut(Entry)) {
        for write in writes {
            if let Write::Append(payload) = write {
                self.last += 1;
                deliver(Entry { position: Position(self.last), payload });
            }
        }
    }

    fn store(&mut self, writes: Vec<Write>, deliver: &mut dyn FnMut(Entry)) -> Result<(), EngineError> {
        let (last, shift) = (&mut self.last, self.shift);
        self.engine.commit(writes, &mut |entry| {
            *last = entry.position.0 + shift;
            deliver(Entry { position: Position(*last), ..entry });
        })
    }
}

fn only_appends(writes: &[Write]) -> bool {
    writes.iter().all(|write| matches!(write, Write::Append(_)))
}

impl<E: Engine> Engine for Buggy<E> {
    fn manifest(&mut self) -> Result<Option<Vec<u8>>, EngineError> {
        self.engine.manifest()
    }

    fn chunk(&mut self, snapshot: SnapshotId, index: u32) -> Result<Option<Vec<u8>>, EngineError> {
        self.engine.chunk(snapshot, index)
    }

    fn snapshots(&mut self) -> Result<Vec<SnapshotId>, EngineError> {
        self.engine.snapshots()
    }

    fn entries(&mut self, after: Position, bytes_max: usize) -> Result<Vec<Entry>, EngineError> {
        let mut entries = self.engine.entries(after, bytes_max)?;
        self.last = self.last.max(entries.last().map_or(0, |entry| entry.position.0));
        // The first call of a start only checks whether the store has entries. So the bugs change only later calls.
        if !std::mem::replace(&mut self.is_read, true) {
            return Ok(entries);
        }
        let count = entries.len();
        match self.bug {
            Bug::WrongOrder if count >= 2 => {
                let (one, other) = entries.split_at_mut(count - 1);
                std::mem::swap(&mut one[count - 2].payload, &mut other[0].payload);
            }
            Bug::TornEndAccepted if count > 0 && self.random.bool() => {
                let last = &mut entries[count - 1].payload;
                last.truncate(last.len() - 1);
            }
            Bug::LastEntryForgotten => {
                let mut hidden = self.memory.0.lock().unwrap_or_else(PoisonError::into_inner);
                if let Some(last) = entries.last().filter(|_| self.random.bool()) {
                    hidden.insert(last.position.0);
                }
                entries.retain(|entry| !hidden.contains(&entry.position.0));
            }
            _ => {}
        }
        Ok(entries)
    }

    fn commit(&mut self, mut writes: Vec<Write>, deliver: &mut dyn FnMut(Entry)) -> Result<(), EngineError> {
        self.commits += 1;
        match self.bug {
            Bug::BatchDropped if only_appends(&writes) && self.random.u8(..DROPPED_ONE_IN) == 0 => {
                self.shift += writes.len() as u64;
                self.pretend(writes, deliver);
                return Ok(());
            }
            Bug::BatchTwice => {
                let again: Vec<_> = writes.iter().filter(|write| matches!(write, Write::Append(_))).cloned().collect();
                writes.extend(again);
            }
            Bug::CommitLate if only_appends(&writes) => {
                let before = std::mem::replace(&mut self.withheld, writes.clone());
                self.pretend(writes, deliver);
                return if before.is_empty() { Ok(()) } else { self.engine.commit(before, &mut drop) };
            }
            Bug::CommitLate => {
                let before = std::mem::take(&mut self.withheld);
                if !before.is_empty() {
                    self.engine.commit(before, &mut drop)?;
                }
            }
            Bug::FullDiskIgnored => {
                return match self.engine.commit(writes.clone(), &mut drop) {
                    Ok(()) | Err(EngineError::NoSpace { .. }) => {
                        self.pretend(writes, deliver);
                        Ok(())
                    }
                    Err(error) => Err(error),
                };
            }
            Bug::ManifestBeforeChunks => {
                let (chunks, others): (Vec<_>, Vec<_>) =
                    writes.into_iter().partition(|write| matches!(write, Write::PutChunk { .. }));
                writes = others;
                if self.commits.is_multiple_of(WITHHELD_COMMITS) {
                    writes.append(&mut self.withheld);
                }
                self.withheld.extend(chunks);
            }
            Bug::TruncationTooFar => {
                for write in &mut writes {
                    if let Write::Truncate(position) = write {
                        position.0 = self.last;
                    }
                }
            }
            _ => {}
        }
        self.store(writes, deliver)
    }
}
