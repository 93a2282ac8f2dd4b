//! What is counted of the journal, for metrics.

use super::port::StoreSize;
use crate::resource::ResourceVersion;

/// How the journal stands.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stats {
    /// Whether the table is loaded and the last commit had room.
    pub is_writable: bool,
    /// Version of the last change that is applied.
    pub applied_version: ResourceVersion,
    /// Changes submitted and not settled.
    pub changes_in_flight: usize,
    /// Entries in the store.
    pub journal_entries: u64,
    /// Bytes of the entries in the store.
    pub journal_bytes: u64,
    /// Entries since the newest snapshot, or since the beginning if there is none.
    pub journal_entries_since_snapshot: u64,
    /// Bytes of those entries.
    pub journal_bytes_since_snapshot: u64,
    /// Snapshots finished since the start.
    pub snapshots: u64,
    /// The newest snapshot in the store, if there is one.
    pub snapshot: Option<SnapshotStats>,
    /// Size of the store, if that tells.
    pub store: Option<StoreSize>,
    /// Bytes that the store may have in use before creations are refused, if there is a limit.
    pub store_bytes_max: Option<u64>,
    /// Commits that found no room, since the start.
    pub storage_errors: u64,
}

/// What is known of a snapshot.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SnapshotStats {
    /// Milliseconds since the snapshot was begun, by the clock that the journal was given.
    pub age_ms: u64,
    /// Milliseconds from its beginning until it was durable.
    pub duration_ms: u64,
    /// Bytes of its chunks.
    pub bytes: u64,
    /// Leases in it.
    pub leases: u64,
}

/// One batch that became durable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CommitStats {
    /// Microseconds that the commit took.
    pub took_us: u64,
    /// Changes in the batch.
    pub changes: usize,
    /// Bytes of the entry.
    pub bytes: usize,
}

/// Commits that are kept until somebody takes them.
const COMMITS_MAX: usize = 1024;

/// What only counts up.
#[derive(Debug, Default)]
pub(super) struct Counts {
    pub(super) storage_errors: u64,
    commits: Vec<CommitStats>,
}

impl Counts {
    pub(super) fn on_commit(&mut self, commit: CommitStats) {
        if self.commits.len() < COMMITS_MAX {
            self.commits.push(commit);
        }
    }

    pub(super) fn take_commits(&mut self) -> Vec<CommitStats> {
        std::mem::take(&mut self.commits)
    }
}
