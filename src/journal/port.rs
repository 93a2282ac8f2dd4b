//! What the loop and the worker say to each other, and the thread on which the worker runs.
//!
//! A port to a store with several writers keeps to more rules:
//!
//! - [`Event::Delivered`], [`Event::Replaced`], [`Event::Reachable`] and [`Event::Size`] come without a command.
//! - [`Command::FindEnd`] may be answered before a commit that was sent earlier.
//! - All that is read from [`Command::Open`] to the end of the entries is one state of the store.
//! - The first entry and the first manifest that are delivered are those right behind that state. They come after the
//!   end of the entries.
//! - No entry is left out. A port that has missed one fails with [`EngineError::Lost`].
//! - The answer to a commit with a manifest comes before any manifest that was put later.
//! - The attempt of a commit that outlived the answer may take effect later, but only once.

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

/// What the worker is to do. Commands are done in their order; each is followed by one [`Event`].
#[derive(Debug)]
pub enum Command {
    /// Reads the manifest, and finds out what is there beside it.
    Open,
    /// Reads a piece of a snapshot.
    ReadChunk {
        /// Snapshot that the piece belongs to.
        snapshot: SnapshotId,
        /// Index of the piece, from 0.
        index: u32,
    },
    /// Reads the next entries of the journal, from its beginning on.
    ReadEntries,
    /// Makes writes durable, all of them or none.
    Commit(Commit),
    /// Finds the last entry that any writer has appended. The look must begin after the command.
    FindEnd,
}

/// What becomes durable together.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Commit {
    /// Sealed entry.
    pub append: Option<Vec<u8>>,
    /// Piece of a snapshot.
    pub piece: Option<Piece>,
    /// What else there is to write.
    pub writes: Vec<Write>,
    /// Manifest that is to take the place of one. It goes alone.
    pub manifest: Option<Box<StoredManifest>>,
}

/// A manifest in a store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoredManifest {
    /// Sealed bytes.
    pub bytes: Vec<u8>,
    /// Of a manifest that was read, its revision. Of one that is to be put, the revision of the one that it replaces, 0
    /// if there is none. A store with one writer has 0 for all.
    pub revision: u64,
}

/// The end of a journal.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct End {
    /// Position of the last entry; 0 if there is none.
    pub position: Position,
    /// Number of entries that were ever appended, those that are deleted by now included.
    pub entries: u64,
}

/// Size of a store that has a quota.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StoreSize {
    /// Bytes of the database, free pages included.
    pub bytes: u64,
    /// Bytes of the pages in use.
    pub in_use_bytes: u64,
    /// Bytes at which the store is full; none if it does not tell.
    pub quota_bytes: Option<u64>,
}

/// A piece of a snapshot, before it is compressed and sealed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Piece {
    /// Snapshot that it belongs to.
    pub snapshot: SnapshotId,
    /// Index in the snapshot, from 0.
    pub index: u32,
    /// Format in which the chunk is written, or was read.
    pub format: u8,
    /// Part of the stream of records.
    pub bytes: Vec<u8>,
}

/// What the worker says.
#[derive(Debug)]
pub enum Event {
    /// The store is open.
    Opened {
        /// The manifest; none in a new store.
        manifest: Option<StoredManifest>,
        /// Snapshots of which there are chunks.
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
        /// Entries that the journal gained, in order. A store with several writers delivers them by themselves.
        entries: Vec<Entry>,
        /// Revision of the manifest that was put; 0 if none was, or if there is one writer.
        revision: u64,
        /// Bytes of the chunk that became of the piece.
        chunk_bytes: usize,
        /// Microseconds that the commit took; 0 if nobody measured it.
        took_us: u64,
    },
    /// A manifest was not put, because another writer had replaced the one that it was for.
    Overtaken,
    /// The last entry of the journal.
    End(End),
    /// Entries that the journal gained, of all writers, in order. The first follows the last one that was read.
    Delivered(Vec<Entry>),
    /// A manifest was put, by any writer.
    Replaced(StoredManifest),
    /// Whether the store can be reached. It can when the port is made.
    Reachable(bool),
    /// The size of the store, now and then.
    Size(StoreSize),
    /// A command failed. After [`EngineError::NoSpace`] of a commit the worker can be used further, else not.
    Failed(EngineError),
}

/// The loop's end of the way to the worker and back.
pub trait Port: fmt::Debug {
    /// Hands over a command. Never blocks: no more than [`COMMANDS_MAX`] are under way.
    fn send(&mut self, command: Command);

    /// The next thing that the worker says, if it has said something.
    fn next(&mut self) -> Option<Event>;
}

/// Commands that are under way at one time, at the most.
pub const COMMANDS_MAX: usize = 4;

/// A worker on a thread of its own.
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
    /// What the system says if it gives no thread.
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
        // A thread that has ended panicked, and with it the process.
    }

    fn next(&mut self) -> Option<Event> {
        self.events.next()
    }
}

impl Drop for ThreadPort {
    /// Waits until the worker has done what is under way and has closed the store, so that the next process finds it
    /// closed.
    fn drop(&mut self) {
        self.commands = None;
        if let Some(thread) = self.thread.take()
            && thread.join().is_err()
        {
            tracing::error!("the journal's thread panicked");
        }
    }
}

/// A worker that runs when it is given a command: for tests.
#[derive(Debug)]
pub struct CallPort {
    worker: Worker,
    events: VecDeque<Event>,
}

impl CallPort {
    /// Calls `worker`.
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
