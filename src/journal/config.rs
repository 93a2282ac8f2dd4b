//! What a journal is told at its start.

use super::seal::FORMAT;
use crate::resource::ResourceVersion;

/// What a journal is told at its start.
#[derive(Clone, Debug)]
pub struct Config {
    /// Name of the store, for messages.
    pub store: String,
    /// Whether other processes write to the store too.
    pub is_shared: bool,
    /// Wall clock in microseconds at the moment that `now_ms` counts from. Version of the table if the store is new.
    pub wall_us: u64,
    /// How much is done at once.
    pub limits: Limits,
}

/// How much is done at once, and how much may wait.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Format in which values are written. Older releases read no newer one.
    pub format: u8,
    /// Changes of a batch.
    pub batch_changes_max: usize,
    /// Least number of changes in a batch that is held back while more come.
    pub gathered_changes_min: usize,
    /// Longest time for which a batch is held back, in ms.
    pub gather_ms_max: u64,
    /// Longest wait of renewals for more of them, in ms; 0 for none. Any other change goes at once, and they with it.
    pub renewal_wait_ms: u64,
    /// Bytes of an entry with more than one change.
    pub batch_bytes_max: usize,
    /// Changes that wait for a batch.
    pub waiting_changes_max: usize,
    /// Bytes, about, that those changes take in entries.
    pub waiting_bytes_max: usize,
    /// Bytes of entries since the newest snapshot, below which no other is begun.
    pub snapshot_bytes_min: u64,
    /// Bytes of all entries beyond which the journal before the newest snapshot goes, whatever the watch window needs.
    pub journal_bytes_max: u64,
    /// Bytes that the store may have in use before creations are refused; none for [`QUOTA_SHARE`] of its quota.
    pub store_bytes_max: Option<u64>,
    /// Entries that are deleted in one commit, about.
    pub truncated_entries_max: u64,
    /// Chunks that are deleted in one commit.
    pub dropped_chunks_max: u32,
    /// Pause between two pieces of a snapshot, in ms.
    pub piece_pause_ms: u64,
    /// Milliseconds without writes after a commit that found no room.
    pub no_space_ms: u64,
    /// Milliseconds without a new snapshot after a commit of one that found no room.
    pub snapshot_retry_ms: u64,
    /// Time between two looks of a process that shares a store at whether it is behind, in ms.
    pub look_ms: u64,
    /// Time without a passed barrier after which a process counts as behind, in ms.
    pub behind_ms_max: u64,
    /// Time within which the writers of a shared store try to claim a snapshot, each at its own moment, in ms.
    pub claim_spread_ms: u64,
    /// Time after which another writer may take over a claim that its taker has not renewed, in ms.
    pub claim_ms_max: u64,
}

/// Share of a store's quota, in percent, that may be in use before creations are refused.
pub(super) const QUOTA_SHARE: u64 = 80;

impl Config {
    /// For a store of this name with one writer, at this moment.
    #[must_use]
    pub fn new(store: &str, wall_us: u64) -> Self {
        Self { store: store.to_owned(), is_shared: false, wall_us, limits: Limits::default() }
    }

    pub(super) fn first_version(&self) -> ResourceVersion {
        ResourceVersion(self.wall_us)
    }

    /// Wall clock in microseconds.
    pub(super) fn wall_us(&self, now_ms: u64) -> i64 {
        i64::try_from(self.wall_us.saturating_add(now_ms.saturating_mul(1000))).unwrap_or(i64::MAX)
    }
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            format: FORMAT,
            batch_changes_max: 16 * 1024,
            gathered_changes_min: 16,
            gather_ms_max: 4,
            renewal_wait_ms: 0,
            batch_bytes_max: 1024 * 1024,
            waiting_changes_max: 128 * 1024,
            waiting_bytes_max: 64 * 1024 * 1024,
            snapshot_bytes_min: 4 * 1024 * 1024,
            journal_bytes_max: u64::MAX,
            store_bytes_max: None,
            truncated_entries_max: 256,
            dropped_chunks_max: 64,
            piece_pause_ms: 2,
            no_space_ms: 1_000,
            snapshot_retry_ms: 10_000,
            look_ms: 1_000,
            behind_ms_max: 5_000,
            claim_spread_ms: 3_000,
            claim_ms_max: 60_000,
        }
    }
}
