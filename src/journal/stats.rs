//! Statistics of the journal, for metrics.

use super::port::StoreSize;
use crate::resource::ResourceVersion;

/// Statistics of the whole journal.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stats {
    /// Whether the journal can make changes durable at present.
    pub is_writable: bool,
    /// Version of the table after the last applied change.
    pub applied_version: ResourceVersion,
    /// Age of the commit that the worker is executing, in ms; 0 without one.
    pub commit_age_ms: u64,
    /// Number of changes that were submitted and have no outcome yet.
    pub changes_in_flight: usize,
    /// Number of entries in the store.
    pub journal_entries: u64,
    /// Bytes of the entries in the store.
    pub journal_bytes: u64,
    /// Number of entries after the newest snapshot. Without a snapshot, the number of all entries.
    pub journal_entries_since_snapshot: u64,
    /// Bytes of the entries after the newest snapshot. Without a snapshot, the bytes of all entries.
    pub journal_bytes_since_snapshot: u64,
    /// Number of snapshots that this process has finished since it last began to load the store.
    pub snapshots: u64,
    /// The newest snapshot in the store; `None` without a snapshot.
    pub snapshot: Option<SnapshotStats>,
    /// Size of the store, if the store reports it.
    pub store: Option<StoreSize>,
    /// Maximum size of the store's pages in use, in bytes; `None` without a maximum. Above the maximum, the server
    /// refuses to create Leases.
    pub store_bytes_max: Option<u64>,
    /// Number of commits for which the store had no space, since this process last began to load the store.
    pub storage_errors: u64,
}

/// Statistics of a snapshot.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SnapshotStats {
    /// Time since the snapshot was begun, in ms.
    pub age_ms: u64,
    /// Time from the snapshot's beginning until its durable end, in ms; `None` if this process has not taken the
    /// snapshot.
    pub duration_ms: Option<u64>,
    /// Bytes of the snapshot's chunks.
    pub bytes: u64,
    /// Number of Leases in the snapshot.
    pub leases: u64,
}

/// Statistics of one batch that became durable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CommitStats {
    /// Duration of the commit, in microseconds.
    pub took_us: u64,
    /// Number of changes in the batch.
    pub changes: usize,
    /// Size of the batch's entry, in bytes.
    pub bytes: usize,
}

/// Maximum number of commits whose statistics are stored until [`Counts::take_commits`]. The statistics of further
/// commits are dropped.
const COMMITS_MAX: usize = 1024;

/// Counters since this process last began to load the store, and the commits that [`Counts::take_commits`] has not
/// returned yet.
#[derive(Debug, Default)]
pub(super) struct Counts {
    pub(super) snapshots: u64,
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
