//! The configuration of a journal.

use super::seal::FORMAT;
use crate::resource::ResourceVersion;

/// The configuration of a journal.
#[derive(Clone, Debug)]
pub struct Config {
    /// Name of the store, for messages.
    pub store: String,
    /// Whether other processes write to the store too.
    pub is_shared: bool,
    /// Whether a missing store is an error, because this process has loaded the store before.
    pub must_exist: bool,
    /// Wall-clock time at which the event loop's clock `now_ms` was 0, in microseconds. In a new store, it is also the
    /// first version (`resourceVersion`) of the table.
    pub wall_us: u64,
    /// Limits of the sizes and times of the journal.
    pub limits: Limits,
}

/// Limits of the sizes and times of a journal.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Number of the format in which values (entries, chunks and manifests) are written. Older releases cannot read a
    /// newer format.
    pub format: u8,
    /// Maximum number of changes in a batch.
    pub batch_changes_max: usize,
    /// Minimum number of changes in a batch that is held back, and in the batch before it. The held batch waits for the
    /// next changes of the earlier batch's clients.
    pub gathered_changes_min: usize,
    /// Maximum time for which a batch of `gathered_changes_min` changes or more is held back, in ms.
    pub gather_ms_max: u64,
    /// Maximum time that renewals wait for more renewals, in ms; 0 to send them at once. Any other change ends this
    /// wait, and is sent together with the waiting renewals.
    pub renewal_wait_ms: u64,
    /// Maximum size of an entry with more than one change, in bytes.
    pub batch_bytes_max: usize,
    /// Maximum number of changes that may wait for a batch.
    pub waiting_changes_max: usize,
    /// Approximate maximum size of the waiting changes, in bytes.
    pub waiting_bytes_max: usize,
    /// Minimum size of the entries after the newest snapshot at which the next snapshot may begin, in bytes. If the
    /// newest snapshot is larger, its size is the minimum. In any case, the minimum is at most half of
    /// `journal_bytes_max`.
    pub snapshot_bytes_min: u64,
    /// Size of all entries above which the entries before the newest snapshot are deleted, in bytes. They are deleted
    /// even if the event log in memory still has their changes. Watches can resume from these changes until a restart,
    /// but not afterwards.
    pub journal_bytes_max: u64,
    /// Maximum size of the store's pages in use, in bytes; `None` for [`QUOTA_SHARE`] percent of the store's quota.
    /// Above the maximum, the server refuses to create Leases.
    pub store_bytes_max: Option<u64>,
    /// Approximate maximum number of entries that one commit deletes.
    pub truncated_entries_max: u64,
    /// Approximate maximum size of the entries that one commit deletes, in bytes.
    pub truncated_bytes_max: u64,
    /// Maximum number of chunks that one commit deletes. If the number of a snapshot's chunks is unknown, one commit
    /// deletes all of them. The number is known for a snapshot that this journal has begun, and for a replaced base.
    pub dropped_chunks_max: u32,
    /// Minimum pause after a commit with a piece of a snapshot or a deletion, in ms.
    pub upkeep_pause_ms_min: u64,
    /// Maximum pause after a commit with a piece of a snapshot or a deletion, in ms.
    pub upkeep_pause_ms_max: u64,
    /// Pause of writes after a commit for which the store had no space, in ms.
    pub no_space_ms: u64,
    /// Age of a commit from which the journal counts as stuck, in ms.
    pub stuck_ms_min: u64,
    /// Pause of snapshots after the store has refused a piece of a snapshot, in ms.
    pub snapshot_retry_ms: u64,
    /// Interval at which a process that shares a store checks whether its table is current, in ms.
    pub look_ms: u64,
    /// Time without a passed barrier after which a process's table no longer counts as current, in ms. A passed barrier
    /// shows that the table has every entry of the store.
    pub behind_ms_max: u64,
    /// Time over which the writers of a shared store spread their attempts to replace the manifest, in ms. A writer
    /// that will take a snapshot first claims it in the manifest. Without the spread, several writers would often claim
    /// the same snapshot at once.
    pub claim_spread_ms: u64,
    /// Time since a writer claimed a snapshot, or last renewed the claim, after which another writer may take over the
    /// claim, in ms.
    pub claim_ms_max: u64,
}

/// Share of the store's quota above which the server refuses to create Leases, in percent.
pub(super) const QUOTA_SHARE: u64 = 80;

/// Pause after a commit with a piece of a snapshot or a deletion, in multiples of the duration of the commit. If the
/// processor or the store is busy, commits take longer, and so do the pauses, up to `upkeep_pause_ms_max`.
const PAUSE_FACTOR: u64 = 4;

impl Config {
    /// Creates the configuration of a store with one writer.
    #[must_use]
    pub fn new(store: &str, wall_us: u64) -> Self {
        Self { store: store.to_owned(), is_shared: false, must_exist: false, wall_us, limits: Limits::default() }
    }

    pub(super) fn first_version(&self) -> ResourceVersion {
        ResourceVersion(self.wall_us)
    }

    /// Returns the wall-clock time at `now_ms`, in microseconds.
    pub(super) fn wall_us(&self, now_ms: u64) -> i64 {
        i64::try_from(self.wall_us.saturating_add(now_ms.saturating_mul(1000))).unwrap_or(i64::MAX)
    }
}

impl Limits {
    /// Returns the pause after a commit with a piece of a snapshot or a deletion, in ms. `took_us` is the duration of
    /// the commit, in microseconds.
    pub(super) fn upkeep_pause_ms(&self, took_us: u64) -> u64 {
        (took_us.saturating_mul(PAUSE_FACTOR) / 1_000).clamp(self.upkeep_pause_ms_min, self.upkeep_pause_ms_max)
    }
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            format: FORMAT,
            batch_changes_max: 16 * 1024,
            gathered_changes_min: 16,
            gather_ms_max: 2,
            renewal_wait_ms: 0,
            batch_bytes_max: 1024 * 1024,
            waiting_changes_max: 128 * 1024,
            waiting_bytes_max: 64 * 1024 * 1024,
            snapshot_bytes_min: 4 * 1024 * 1024,
            journal_bytes_max: u64::MAX,
            store_bytes_max: None,
            truncated_entries_max: 256,
            truncated_bytes_max: 1024 * 1024,
            dropped_chunks_max: 64,
            upkeep_pause_ms_min: 2,
            upkeep_pause_ms_max: 10,
            no_space_ms: 1_000,
            stuck_ms_min: 10_000,
            snapshot_retry_ms: 10_000,
            look_ms: 1_000,
            behind_ms_max: 5_000,
            claim_spread_ms: 3_000,
            claim_ms_max: 60_000,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pause_of_upkeep_follows_the_duration_of_the_commit() {
        let pause_ms = |took_us| Limits::default().upkeep_pause_ms(took_us);
        assert_eq!([0, 400, 1_500, 2_400, 1_000_000, u64::MAX].map(pause_ms), [2, 2, 6, 9, 10, 10]);
    }
}
