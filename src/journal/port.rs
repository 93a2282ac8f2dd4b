//! [`Port`]: the event loop's connection to the worker, which reads and writes the store. This module also defines the
//! commands to the worker, the worker's events, and the worker's thread.
//!
//! A port to a store with several writers follows these additional rules:
//!
//! - [`Event::Delivered`], [`Event::Replaced`], [`Event::Reachable`] and [`Event::Size`] come without a command.
//! - The answer to [`Command::FindEnd`] may come before the answer to an earlier commit.
//! - The reads of a startup see the store at one revision. The first of them is [`Command::Open`]. The last one is the
//!   [`Command::ReadEntries`] that finds no further entry.
//! - Delivery begins after these reads. [`Event::Delivered`] begins with the first entry after the revision of the
//!   reads, and [`Event::Replaced`] with the first manifest after that revision.
//! - No entry is skipped. A port that has missed an entry fails with [`EngineError::Lost`].
//! - The answer to a commit with a manifest comes before the delivery of any later manifest.
//! - The port may send a commit to the store several times. One of these attempts may still be in flight when the
//!   answer to the commit arrives. Nevertheless, the commit takes effect only once.

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

/// A command to the worker, which runs commands in order. One [`Event`] answers each command.
#[derive(Debug)]
pub enum Command {
    /// Opens the store: reads the manifest, lists the snapshots, and checks whether entries exist.
    Open,
    /// Reads a piece of a snapshot.
    ReadChunk {
        /// The snapshot that contains the piece.
        snapshot: SnapshotId,
        /// Index of the piece, from 0.
        index: u32,
    },
    /// Reads the next entries of the journal. The first such command after [`Command::Open`] reads the first entries.
    ReadEntries,
    /// Makes all writes durable, or none of them.
    Commit(Commit),
    /// Finds the last entry that any writer has appended. The worker must begin the query of the store after the
    /// command was sent, since an earlier query could miss an entry.
    FindEnd,
}

/// Writes that become durable together, or not at all.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Commit {
    /// Entry to append, with its checksum (module `seal`).
    pub append: Option<Vec<u8>>,
    /// Piece of a snapshot.
    pub piece: Option<Piece>,
    /// Deletions of entries and chunks: [`Write::Truncate`] and [`Write::DropChunks`].
    pub writes: Vec<Write>,
    /// Manifest that replaces the current manifest. A commit with a manifest contains nothing else.
    pub manifest: Option<Box<StoredManifest>>,
}

/// A manifest in a store, with its revision.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StoredManifest {
    /// Bytes of the manifest as they are stored, including the checksum (module `seal`).
    pub bytes: Vec<u8>,
    /// In a manifest that was read, the revision at which it was written (`mod_revision` in etcd). In a commit, the
    /// revision of the manifest to replace, or 0 to create the first manifest. Always 0 in a store with one writer.
    pub revision: u64,
}

/// The end of the journal in a store.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct End {
    /// Position of the last entry; 0 before the first entry.
    pub position: Position,
    /// Number of entries ever appended, including deleted entries.
    pub entries: u64,
}

/// Size of a store, and its quota.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StoreSize {
    /// Size of the database including free pages, in bytes.
    pub bytes: u64,
    /// Size of the pages in use, in bytes.
    pub in_use_bytes: u64,
    /// Size at which the store is full, in bytes; `None` if unknown.
    pub quota_bytes: Option<u64>,
}

/// A piece of a snapshot. It is stored as a chunk, which is compressed and has a checksum.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Piece {
    /// The snapshot that contains the piece.
    pub snapshot: SnapshotId,
    /// Index of the piece in its snapshot, from 0.
    pub index: u32,
    /// Number of the format in which the chunk is written.
    pub format: u8,
    /// Part of the snapshot's stream of records.
    pub bytes: Vec<u8>,
}

/// An event from the worker.
#[derive(Debug)]
pub enum Event {
    /// The store was opened.
    Opened {
        /// The manifest; `None` in a new store.
        manifest: Option<StoredManifest>,
        /// Snapshots that have chunks.
        snapshots: Vec<SnapshotId>,
        /// Whether the store has entries.
        has_entries: bool,
    },
    /// A piece of a snapshot was read.
    Piece(Piece),
    /// The next entries were read; an empty list at the end of the journal.
    Entries(Vec<Entry>),
    /// A commit is durable.
    Committed {
        /// New entries of the journal, in order. A store with several writers sends [`Event::Delivered`] instead.
        entries: Vec<Entry>,
        /// Revision of the new manifest; 0 without a manifest, or in a store with one writer.
        revision: u64,
        /// Size of the chunk made from the commit's piece, in bytes; 0 without a piece.
        chunk_bytes: usize,
        /// Duration of the commit, in microseconds; 0 if not measured.
        took_us: u64,
    },
    /// The manifest of a commit was not written. Another writer had already replaced the manifest whose revision the
    /// commit names.
    Overtaken,
    /// Answer to [`Command::FindEnd`]: the end of the journal.
    End(End),
    /// New entries of all writers, in order. The first delivered entry directly follows the last entry that was read.
    Delivered(Vec<Entry>),
    /// A writer, possibly this process, has written a manifest.
    Replaced(StoredManifest),
    /// Whether the store is reachable. Before the first such event, the store counts as reachable.
    Reachable(bool),
    /// Size of the store, reported from time to time.
    Size(StoreSize),
    /// A command failed. The worker remains usable only if a commit failed and
    /// [`EngineError::leaves_store_usable`] is true.
    Failed(EngineError),
}

/// The event loop's connection to the worker.
pub trait Port: fmt::Debug {
    /// Sends a command. At most [`COMMANDS_MAX`] commands may be in flight. So a queue of this length is never full,
    /// and the event loop does not block.
    fn send(&mut self, command: Command);

    /// Returns the worker's next event, if there is one.
    fn next(&mut self) -> Option<Event>;

    /// Waits until the worker has run its commands and closed the store. Afterwards the port can only be dropped. The
    /// default does nothing: a store in etcd needs no close.
    ///
    /// # Errors
    /// [`EngineError`] if the store was not closed cleanly. Also the error of an earlier command that has made the
    /// store unusable, if [`Port::next`] has not returned this error.
    fn close(&mut self) -> Result<(), EngineError> {
        Ok(())
    }
}

/// Maximum number of commands in flight.
pub const COMMANDS_MAX: usize = 4;

/// A port to a worker on its own thread.
#[derive(Debug)]
pub struct ThreadPort {
    commands: Option<SyncSender<Command>>,
    events: Updates<Event>,
    thread: Option<JoinHandle<Result<(), EngineError>>>,
}

impl ThreadPort {
    /// Starts the thread. `waker` wakes the event loop after each event.
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
            worker.close()
        };
        let thread = thread::Builder::new().name("journal".to_owned()).spawn(run)?;
        Ok(Self { commands: Some(commands), events, thread: Some(thread) })
    }
}

impl Port for ThreadPort {
    fn send(&mut self, command: Command) {
        let sent = self.commands.as_ref().map(|commands| commands.try_send(command));
        assert!(!matches!(sent, Some(Err(TrySendError::Full(_)))), "too many commands in flight");
        // If the thread has ended, the command is dropped. Only a panic ends the thread early. In a release build, the
        // panic also ends the process.
    }

    fn next(&mut self) -> Option<Event> {
        self.events.next()
    }

    fn close(&mut self) -> Result<(), EngineError> {
        self.commands = None;
        let Some(thread) = self.thread.take() else { return Ok(()) };
        let closed = thread.join().unwrap_or_else(|_| {
            tracing::error!("the journal's thread panicked");
            Ok(())
        });
        // A commit may have failed after the event loop's last turn. The engine then had nothing left to close, so
        // `closed` does not contain the failure.
        let failed = std::iter::from_fn(|| self.events.next()).find_map(|event| match event {
            Event::Failed(error) if !error.leaves_store_usable() => Some(error),
            _ => None,
        });
        failed.map_or(closed, Err)
    }
}

impl Drop for ThreadPort {
    /// Closes the store, if nobody has called [`Port::close`]. So the next process can open the store.
    fn drop(&mut self) {
        if let Err(error) = self.close() {
            tracing::error!(%error, "the store is not closed cleanly");
        }
    }
}

/// A port without a thread, for tests and for the migration of a store. The worker runs inside [`Port::send`], which
/// blocks meanwhile.
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
