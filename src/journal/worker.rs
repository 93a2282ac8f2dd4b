//! [`Worker`]: the engine's side of the journal. The worker runs the event loop's commands one by one, and may block.
//!
//! The worker also does slow work that needs no table: it compresses chunks and verifies their checksums.

use super::chunk;
use super::error::damaged;
use super::port::{Command, Commit, Event, Piece, StoredManifest};
use crate::engine::{Engine, EngineError, Position, SnapshotId, Write};

/// Runs the event loop's commands on an engine.
#[derive(Debug)]
pub struct Worker {
    engine: Box<dyn Engine>,
    /// Name of the store, for messages.
    store: String,
    /// Position of the last entry that was read.
    read: Position,
}

/// Approximate size of the entries that one command reads, in bytes.
const READ_BYTES_MAX: usize = 1024 * 1024;

impl Worker {
    /// Creates a worker for an engine. `store` is the name of the engine's store.
    #[must_use]
    pub fn new(engine: Box<dyn Engine>, store: &str) -> Self {
        Self { engine, store: store.to_owned(), read: Position::default() }
    }

    /// Runs a command, however long it takes.
    pub fn run(&mut self, command: Command) -> Event {
        let done = match command {
            Command::Open => self.open(),
            Command::ReadChunk { snapshot, index } => self.read_chunk(snapshot, index),
            Command::ReadEntries => self.read_entries(),
            Command::Commit(commit) => self.make_durable(commit),
            Command::FindEnd => Err(damaged(&self.store, "worker", "a store with one writer needs no barrier")),
        };
        done.unwrap_or_else(Event::Failed)
    }

    /// Closes the store cleanly, after the last command.
    ///
    /// # Errors
    /// The error of the engine.
    pub fn close(&mut self) -> Result<(), EngineError> {
        self.engine.close()
    }

    fn open(&mut self) -> Result<Event, EngineError> {
        let manifest = self.engine.manifest()?.map(|bytes| StoredManifest { bytes, revision: 0 });
        let snapshots = self.engine.snapshots()?;
        let has_entries = !self.engine.entries(Position::default(), 1)?.is_empty();
        Ok(Event::Opened { manifest, snapshots, has_entries })
    }

    fn read_chunk(&mut self, snapshot: SnapshotId, index: u32) -> Result<Event, EngineError> {
        let sealed = self.engine.chunk(snapshot, index)?;
        chunk::open_piece(&self.store, snapshot, index, sealed.as_deref()).map(Event::Piece)
    }

    fn read_entries(&mut self) -> Result<Event, EngineError> {
        let entries = self.engine.entries(self.read, READ_BYTES_MAX)?;
        if let Some(last) = entries.last() {
            self.read = last.position;
        }
        Ok(Event::Entries(entries))
    }

    fn make_durable(&mut self, commit: Commit) -> Result<Event, EngineError> {
        let Commit { append, piece, mut writes, manifest } = commit;
        writes.extend(append.map(Write::Append));
        writes.extend(manifest.map(|manifest| Write::PutManifest(manifest.bytes)));
        let mut chunk_bytes = 0;
        if let Some(piece) = piece {
            let bytes = chunk::seal_piece(&piece);
            let Piece { snapshot, index, .. } = piece;
            chunk_bytes = bytes.len();
            writes.push(Write::PutChunk { snapshot, index, bytes });
        }
        let mut entries = Vec::new();
        self.engine.commit(writes, &mut |entry| entries.push(entry))?;
        Ok(Event::Committed { entries, revision: 0, chunk_bytes, took_us: 0 })
    }
}
