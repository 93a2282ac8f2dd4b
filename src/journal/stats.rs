//! Statistics of the journal, for metrics.

use super::port::StoreSize;
use crate::resource::ResourceVersion;

/// The state of the journal.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stats {
    /// Whether the table is loaded and the last commit had space.
    pub is_writable: bool,
    /// Version of the last applied change.
    pub applied_version: ResourceVersion,
    /// Changes that are submitted and not settled.
    pub changes_in_flight: usize,
    /// Entries in the store.
    pub journal_entries: u64,
    /// Bytes of the entries in the store.
    pub journal_bytes: u64,
    /// Entries since the newest snapshot, or since the beginning if there is none.
    pub journal_entries_since_snapshot: u64,
    /// Bytes of the entries since the newest snapshot, or since the beginning if there is none.
    pub journal_bytes_since_snapshot: u64,
    /// Snapshots finished since the start.
    pub snapshots: u64,
    /// The newest snapshot in the store, if there is one.
    pub snapshot: Option<SnapshotStats>,
    /// Size of the store, if it reports one.
    pub store: Option<StoreSize>,
    /// Bytes in use above which creations are refused, if there is a limit.
    pub store_bytes_max: Option<u64>,
    /// Commits that found no space, since the start.
    pub storage_errors: u64,
}

/// Statistics of a snapshot.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SnapshotStats {
    /// Age of the snapshot since it was begun, in ms, by the journal's clock.
    pub age_ms: u64,
    /// Time from the beginning of the snapshot until it was durable, in ms.
    pub duration_ms: u64,
    /// Bytes of the snapshot's chunks.
    pub bytes: u64,
    /// Number of Leases in the snapshot.
    pub leases: u64,
}

/// One batch that became durable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CommitStats {
    /// Duration of the commit, in microseconds.
    pub took_us: u64,
    /// Changes in the batch.
    pub changes: usize,
    /// Bytes of the entry.
    pub bytes: usize,
}

/// Maximum number of commits that are kept until they are taken.
const COMMITS_MAX: usize = 1024;

/// Counters.
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
