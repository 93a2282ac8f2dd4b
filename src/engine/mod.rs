//! What a store of the journal can do: hold entries, snapshot chunks and one manifest, and make a group of writes
//! durable.
//!
//! An engine knows no Leases: it stores bytes that the modules above seal with a checksum. The disk engine is one
//! implementation; the simulator has another that injects faults. An engine over etcd fits the same trait: an entry is
//! a key whose `mod_revision` is the position, and [`Engine::commit`] delivers the entries of other replicas too.

pub mod disk;

use std::fmt;
use std::io;

/// Place of an entry in the order of the journal. Positions grow; they may have gaps. The first is above 0. No position
/// is given out twice, also not after a restart: the journal leaves the last entry in the store, so that the engine can
/// count on from there.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Position(pub u64);

/// Number of a snapshot, new for each one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SnapshotId(pub u64);

/// One entry of the journal.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// Place in the order.
    pub position: Position,
    /// Sealed bytes, as they were appended.
    pub payload: Vec<u8>,
}

/// One write of a commit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Write {
    /// Appends an entry at the next position.
    Append(Vec<u8>),
    /// Deletes all entries up to this position, the entry at it included.
    Truncate(Position),
    /// Stores a chunk of a snapshot.
    PutChunk {
        /// Snapshot that the chunk belongs to.
        snapshot: SnapshotId,
        /// Index of the chunk in its snapshot, from 0.
        index: u32,
        /// Sealed bytes.
        bytes: Vec<u8>,
    },
    /// Deletes the chunks of a snapshot whose index is lower than `below`. Those that are gone already are none.
    DropChunks {
        /// Snapshot that the chunks belong to.
        snapshot: SnapshotId,
        /// Index of the first chunk that stays.
        below: u32,
    },
    /// Replaces the manifest.
    PutManifest(Vec<u8>),
}

/// The first entries after `after` of those that are sorted by position: about `bytes_max` bytes of them, and at least
/// one if there is one.
#[must_use]
pub fn entries_after(sorted: &[Entry], after: Position, bytes_max: usize) -> Vec<Entry> {
    let from = sorted.partition_point(|entry| entry.position <= after);
    let mut bytes = 0;
    let fits = |entry: &&Entry| {
        let is_first = bytes == 0;
        bytes += entry.payload.len();
        is_first || bytes <= bytes_max
    };
    sorted[from..].iter().take_while(fits).cloned().collect()
}

/// A store of the journal.
pub trait Engine: fmt::Debug + Send {
    /// The manifest; `None` if the store is new.
    ///
    /// # Errors
    /// [`EngineError`] if it cannot be read.
    fn manifest(&mut self) -> Result<Option<Vec<u8>>, EngineError>;

    /// A chunk of a snapshot; `None` if there is none of this index.
    ///
    /// # Errors
    /// [`EngineError`] if it cannot be read.
    fn chunk(&mut self, snapshot: SnapshotId, index: u32) -> Result<Option<Vec<u8>>, EngineError>;

    /// Snapshots of which there are chunks, whether or not the manifest names them.
    ///
    /// # Errors
    /// [`EngineError`] if they cannot be read.
    fn snapshots(&mut self) -> Result<Vec<SnapshotId>, EngineError>;

    /// Entries after `after`, in order: about `bytes_max` bytes of them, and at least one if there is one.
    ///
    /// # Errors
    /// [`EngineError`] if they cannot be read.
    fn entries(&mut self, after: Position, bytes_max: usize) -> Result<Vec<Entry>, EngineError>;

    /// Makes `writes` durable, all of them or none, and gives each entry that the journal gained to `deliver`, in
    /// order. When it returns, a crash of the process or of the machine loses none of them.
    ///
    /// # Errors
    /// [`EngineError::NoSpace`]: none of the writes happened, and the engine can be used again. After any other error
    /// it must not be used again; whether the writes happened is known after the next start.
    fn commit(&mut self, writes: Vec<Write>, deliver: &mut dyn FnMut(Entry)) -> Result<(), EngineError>;
}

/// Why a store of the journal cannot be used.
#[derive(Debug)]
pub enum EngineError {
    /// Another process uses the store.
    Busy {
        /// The store.
        store: String,
        /// Process id of the holder, if it is known.
        holder: Option<u32>,
    },
    /// The store holds something that was never written to it.
    Damaged {
        /// The store, and the place in it.
        place: String,
        /// What is wrong.
        what: String,
    },
    /// The system refused an operation.
    Io {
        /// What was tried, and on which file.
        what: String,
        /// What the system said.
        cause: io::Error,
    },
    /// The store is not new.
    InUse {
        /// The store.
        store: String,
    },
    /// The process no longer follows a store with several writers, and must load it again. The store is whole.
    Lost {
        /// The store.
        store: String,
        /// What has shown it.
        what: String,
    },
    /// A later release wrote the store.
    NewerFormat {
        /// The store.
        store: String,
        /// Number of its format.
        found: u32,
        /// Number of the newest format that this release reads.
        known: u32,
    },
    /// The disk is full, or a quota is reached.
    NoSpace {
        /// The store.
        store: String,
        /// What the system said.
        cause: io::Error,
    },
}

impl EngineError {
    /// Whether the store can be used further: there was no room.
    #[must_use]
    pub fn is_no_space(&self) -> bool {
        matches!(self, Self::NoSpace { .. })
    }
}

impl fmt::Display for EngineError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Busy { store, holder: Some(pid) } => {
                write!(f, "{store} is in use by process {pid}; only one server can use a data folder")
            }
            Self::Busy { store, holder: None } => {
                write!(f, "{store} is in use by another process; only one server can use a data folder")
            }
            Self::Damaged { place, what } => write!(
                f,
                "{place} is damaged: {what}; `coordination-apiserver inspect` shows what is left; to start with a new \
                 store, move the data folder away, or delete the prefix in etcd"
            ),
            Self::InUse { store } => write!(f, "{store} holds Leases already; only a new store can be filled"),
            Self::Io { what, cause } => write!(f, "{what}: {cause}"),
            Self::Lost { store, what } => write!(f, "{store} must be loaded again: {what}"),
            Self::NewerFormat { store, found, known } => write!(
                f,
                "{store} has format {found}, and this release reads formats up to {known}; run the release that wrote it"
            ),
            Self::NoSpace { store, cause } => write!(f, "{store} has no room: {cause}"),
        }
    }
}

impl std::error::Error for EngineError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Io { cause, .. } | Self::NoSpace { cause, .. } => Some(cause),
            Self::Busy { .. }
            | Self::Damaged { .. }
            | Self::InUse { .. }
            | Self::Lost { .. }
            | Self::NewerFormat { .. } => None,
        }
    }
}
