//! [`Engine`]: the trait of a journal's store. A store holds entries, chunks of snapshots and one manifest. It makes
//! all writes of a commit durable together.
//!
//! An engine does not depend on Leases. It stores bytes that the journal has sealed with a checksum. [`disk::Disk`] is
//! the engine of a server whose store is on disk. [`disk::Salvage`] and `etcd::EtcdReader` only read, for the
//! inspection of a store. The simulator wraps an engine to inject deliberate bugs. A server whose store is in etcd uses
//! no engine; see the module `etcd`.

pub mod disk;

use std::fmt;
use std::io;
use thiserror::Error;

/// Position of an entry in the order of the journal. Positions are greater than 0 and increase, possibly with gaps. No
/// position is used twice, even after a restart. The journal never deletes the last entry. So the engine can give the
/// next entry a position after the last one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Position(pub u64);

/// Number of a snapshot, unique in its store.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SnapshotId(pub u64);

/// One entry of the journal: a batch of changes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// Position in the journal.
    pub position: Position,
    /// Bytes that the journal has sealed with a checksum.
    pub payload: Vec<u8>,
}

/// One write of a commit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Write {
    /// Appends an entry at the next position.
    Append(Vec<u8>),
    /// Deletes all entries up to and including this position.
    Truncate(Position),
    /// Stores a chunk of a snapshot.
    PutChunk {
        /// Snapshot of the chunk.
        snapshot: SnapshotId,
        /// Index of the chunk in its snapshot, from 0.
        index: u32,
        /// Bytes that the journal has sealed with a checksum.
        bytes: Vec<u8>,
    },
    /// Deletes the chunks of a snapshot with an index below `below`. Some of them may be deleted already.
    DropChunks {
        /// Snapshot of the chunks.
        snapshot: SnapshotId,
        /// Index of the first chunk that stays.
        below: u32,
    },
    /// Replaces the manifest. The journal also writes the unchanged manifest, to test whether a full store has space
    /// again. So after a refused entry, this write must fail while the store has no space for a small entry.
    PutManifest(Vec<u8>),
}

/// Returns the first entries after `after` from a slice sorted by position. Returns about `bytes_max` bytes of entries,
/// but at least one entry if any exists.
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
    /// Reads the manifest; `None` if the store is new.
    ///
    /// # Errors
    /// [`EngineError`] if the manifest cannot be read.
    fn manifest(&mut self) -> Result<Option<Vec<u8>>, EngineError>;

    /// Reads a chunk of a snapshot; `None` if no chunk of this index exists.
    ///
    /// # Errors
    /// [`EngineError`] if the chunk cannot be read.
    fn chunk(&mut self, snapshot: SnapshotId, index: u32) -> Result<Option<Vec<u8>>, EngineError>;

    /// Lists the snapshots that have chunks, whether or not the manifest names them.
    ///
    /// # Errors
    /// [`EngineError`] if the chunks cannot be read.
    fn snapshots(&mut self) -> Result<Vec<SnapshotId>, EngineError>;

    /// Reads the first entries after the position `after`, in order. Returns about `bytes_max` bytes of entries, but at
    /// least one entry if any exists.
    ///
    /// # Errors
    /// [`EngineError`] if the entries cannot be read.
    fn entries(&mut self, after: Position, bytes_max: usize) -> Result<Vec<Entry>, EngineError>;

    /// Makes all of `writes` durable, or none of them. Passes each new entry of the journal to `deliver`, in order.
    /// Once this function has succeeded, no crash of the process or the machine loses the writes.
    ///
    /// # Errors
    /// [`EngineError::NoSpace`]: none of the writes happened, and the engine remains usable. After any other error, the
    /// engine must not be used again. The next open shows whether the writes happened.
    fn commit(&mut self, writes: Vec<Write>, deliver: &mut dyn FnMut(Entry)) -> Result<(), EngineError>;

    /// Closes the store cleanly. Afterwards the engine can only be dropped.
    ///
    /// # Errors
    /// [`EngineError`] if a write or a sync of the clean stop failed. A full disk is no error.
    fn close(&mut self) -> Result<(), EngineError> {
        Ok(())
    }
}

/// The reason why a store of the journal cannot be used.
#[derive(Debug, Error)]
pub enum EngineError {
    /// The store must exist, but no server has created it.
    #[error("{store} holds no store; check --data-dir, or --etcd-servers and --etcd-prefix")]
    Absent {
        /// Name of the store.
        store: String,
    },
    /// Another process uses the store.
    #[error(
        "{store} is in use by {}; only one server can use a data folder",
        .holder.map_or_else(|| "another process".to_owned(), |pid| format!("process {pid}"))
    )]
    Busy {
        /// Name of the store.
        store: String,
        /// Process id of the other process, if known.
        holder: Option<u32>,
    },
    /// A value in the store is missing, or its bytes are not those that were written.
    #[error(
        "{place} is damaged: {what}; `coordination-apiserver inspect` shows what is left; to start with a new store, \
         move the data folder away, or delete the prefix in etcd"
    )]
    Damaged {
        /// Name of the store, and of the damaged place in it.
        place: String,
        /// Description of the damage.
        what: String,
    },
    /// The store was deleted while this process used it. This process creates no new store, since a new store could
    /// repeat resourceVersions that clients know.
    #[error("{store} was deleted while this server used it; a restart creates a new store")]
    Deleted {
        /// Name of the store.
        store: String,
    },
    /// The operating system refused an operation.
    #[error("{what}: {cause}")]
    Io {
        /// The operation and its file.
        what: String,
        /// The operating system's error.
        #[source]
        cause: io::Error,
    },
    /// The store must be new, but holds data.
    #[error("{store} holds Leases already; only a new store can be filled")]
    InUse {
        /// Name of the store.
        store: String,
    },
    /// A replica wrote to the store that a migration copies. The copy would lack this write.
    #[error("{store} is in use by a replica, which has just written to it; stop all replicas first")]
    InUseByReplica {
        /// Name of the store.
        store: String,
    },
    /// A store with several writers contradicts what this process knows about the store. The store is intact, and the
    /// process must load it again.
    #[error("{store} must be loaded again: {what}")]
    Lost {
        /// Name of the store.
        store: String,
        /// Description of the contradiction.
        what: String,
    },
    /// A newer release wrote the store.
    #[error("{store} has format {found}, and this release reads formats up to {known}; run the release that wrote it")]
    NewerFormat {
        /// Name of the store.
        store: String,
        /// Number of the store's format.
        found: u32,
        /// Number of the newest format that this release reads.
        known: u32,
    },
    /// The disk is full, or a quota is exhausted.
    #[error("{store} has no space: {cause}")]
    NoSpace {
        /// Name of the store.
        store: String,
        /// The error of the operating system or of etcd.
        #[source]
        cause: io::Error,
    },
    /// A commit is larger than the store allows. The client of etcd may send copies of a commit to several members. So
    /// another member may have carried out the commit, although one has refused it.
    #[error("{store} refuses a large commit: {cause}")]
    TooLarge {
        /// Name of the store.
        store: String,
        /// The store's error.
        #[source]
        cause: io::Error,
    },
}

impl EngineError {
    /// Whether the store remains usable after the error, because it only refused one commit.
    #[must_use]
    pub fn leaves_store_usable(&self) -> bool {
        matches!(self, Self::NoSpace { .. } | Self::TooLarge { .. })
    }
}
