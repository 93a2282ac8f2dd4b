//! Commands and events between the event loop and the worker, and the worker's thread.
//!
//! A port to a store with several writers follows more rules:
//!
//! - [`Event::Delivered`], [`Event::Replaced`], [`Event::Reachable`] and [`Event::Size`] come without a command.
//! - [`Command::FindEnd`] may be answered before an earlier commit.
//! - Everything read from [`Command::Open`] to the end of the entries is one state of the store.
//! - The first delivered entry and manifest directly follow that state. They come after the end of the entries.
//! - No entry is skipped. A port that has missed one fails with [`EngineError::Lost`].
//! - The answer to a commit with a manifest comes before any later manifest.
//! - An attempt of a commit that is still in flight at the answer may take effect later, but only once.

use super::worker::Worker;
use crate::engine::{EngineError, Entry, Position, SnapshotId, Write};
use crate::updates::{self, Updates};
use mio::Waker;
use std::collections::VecDeque;
use std::fmt;
use std::io;
use std::sync::Arc;
use std::sync::mpsc::{SyncSender, TrySendError, sync_channel};
use std::thread::{self, JoinHandle};
use std::time::Instant;

/// Commands to the worker, which runs them in order. Each is answered by one [`Event`].
#[derive(Debug)]
pub enum Command {
    /// Reads the manifest, and lists the other stored values.
    Open,
    /// Reads a piece of a snapshot.
    ReadChunk {
        /// Snapshot of the piece.
        snapshot: SnapshotId,
        /// Index of the piece, from 0.
        index: u32,
    },
    /// Reads the next entries of the journal, starting with the first.
    ReadEntries,
    /// Makes writes durable, all of them or none.
    Commit(Commit),
    /// Finds the last entry that any writer has appended. The query must begin after the command was sent.
    FindEnd,
}

/// Writes that become durable together.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Commit {
    /// Sealed entry.
    pub append: Option<Vec<u8>>,
    /// Piece of a snapshot.
    pub piece: Option<Piece>,
    /// Other writes.
    pub writes: Vec<Write>,
    /// Manifest that replaces the current one. It is committed alone.
    pub manifest: Option<Box<StoredManifest>>,
}

/// A manifest in a store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoredManifest {
    /// Sealed bytes.
    pub bytes: Vec<u8>,
    /// Revision of a manifest that was read. In a commit, the revision of the manifest that it replaces, 0 if there is
    /// none. Always 0 in a store with one writer.
    pub revision: u64,
}

/// The end of a journal.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct End {
    /// Position of the last entry; 0 if there is none.
    pub position: Position,
    /// Number of entries ever appended, including deleted ones.
    pub entries: u64,
}

/// Size of a store that has a quota.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StoreSize {
    /// Bytes of the database, free pages included.
    pub bytes: u64,
    /// Bytes of the pages in use.
    pub in_use_bytes: u64,
    /// Bytes at which the store is full; none if unknown.
    pub quota_bytes: Option<u64>,
}

/// A piece of a snapshot, before it is compressed and sealed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Piece {
    /// Snapshot of the piece.
    pub snapshot: SnapshotId,
    /// Index in the snapshot, from 0.
    pub index: u32,
    /// Format of the chunk.
    pub format: u8,
    /// Part of the record stream.
    pub bytes: Vec<u8>,
}

/// Events from the worker.
#[derive(Debug)]
pub enum Event {
    /// The store is open.
    Opened {
        /// The manifest; none in a new store.
        manifest: Option<StoredManifest>,
        /// Snapshots that have chunks.
        snapshots: Vec<SnapshotId>,
        /// Whether there are entries.
        has_entries: bool,
    },
    /// A piece of a snapshot was read.
    Piece(Piece),
    /// The next entries were read; none at the end of the journal.
    Entries(Vec<Entry>),
    /// A commit is durable.
    Committed {
        /// New entries of the journal, in order. A store with several writers delivers them separately.
        entries: Vec<Entry>,
        /// Revision of the new manifest; 0 without one, or with one writer.
        revision: u64,
        /// Size of the piece's chunk, in bytes.
        chunk_bytes: usize,
        /// Duration of the commit, in microseconds; 0 if not measured.
        took_us: u64,
    },
    /// The manifest was not written, because another writer had already replaced its predecessor.
    Overtaken,
    /// The last entry of the journal.
    End(End),
    /// New entries of all writers, in order. The first follows the last entry that was read.
    Delivered(Vec<Entry>),
    /// A writer has written a manifest.
    Replaced(StoredManifest),
    /// Whether the store is reachable. It is when the port is created.
    Reachable(bool),
    /// Size of the store, reported from time to time.
    Size(StoreSize),
    /// A command failed. The worker remains usable only after [`EngineError::NoSpace`] of a commit.
    Failed(EngineError),
}

/// The event loop's connection to the worker.
pub trait Port: fmt::Debug {
    /// Sends a command. Never blocks: at most [`COMMANDS_MAX`] are under way.
    fn send(&mut self, command: Command);

    /// Returns the worker's next event, if there is one.
    fn next(&mut self) -> Option<Event>;
}

/// Maximum number of commands under way at one time.
pub const COMMANDS_MAX: usize = 4;

/// A worker on its own thread.
#[derive(Debug)]
pub struct ThreadPort {
    commands: Option<SyncSender<Command>>,
    events: Updates<Event>,
    thread: Option<JoinHandle<()>>,
}

impl ThreadPort {
    /// Starts the thread. `waker` wakes the loop after each event.
    ///
    /// # Errors
    /// The system's error if the thread cannot start.
    pub fn start(mut worker: Worker, waker: Arc<Waker>) -> io::Result<Self> {
        let (commands, received) = sync_channel(COMMANDS_MAX);
        let (sender, events) = updates::queue(waker);
        let run = move || {
            for command in received {
                let begun = Instant::now();
                let mut event = worker.run(command);
                if let Event::Committed { took_us, .. } = &mut event {
                    *took_us = u64::try_from(begun.elapsed().as_micros()).unwrap_or(u64::MAX);
                }
                if !sender.send(event) {
                    break;
                }
            }
        };
        let thread = thread::Builder::new().name("journal".to_owned()).spawn(run)?;
        Ok(Self { commands: Some(commands), events, thread: Some(thread) })
    }
}

impl Port for ThreadPort {
    fn send(&mut self, command: Command) {
        let sent = self.commands.as_ref().map(|commands| commands.try_send(command));
        assert!(!matches!(sent, Some(Err(TrySendError::Full(_)))), "more commands than may be under way");
        // A thread that has ended has panicked, which ends the process too.
    }

    fn next(&mut self) -> Option<Event> {
        self.events.next()
    }
}

impl Drop for ThreadPort {
    /// Waits until the worker has finished its command and closed the store, so that the next process finds it closed.
    fn drop(&mut self) {
        self.commands = None;
        if let Some(thread) = self.thread.take()
            && thread.join().is_err()
        {
            tracing::error!("the journal's thread panicked");
        }
    }
}

/// A worker that runs inside [`Port::send`], for tests.
#[derive(Debug)]
pub struct CallPort {
    worker: Worker,
    events: VecDeque<Event>,
}

impl CallPort {
    /// Creates a port that calls `worker`.
    #[must_use]
    pub fn new(worker: Worker) -> Self {
        Self { worker, events: VecDeque::new() }
    }
}

impl Port for CallPort {
    fn send(&mut self, command: Command) {
        let event = self.worker.run(command);
        self.events.push_back(event);
    }

    fn next(&mut self) -> Option<Event> {
        self.events.pop_front()
    }
}
