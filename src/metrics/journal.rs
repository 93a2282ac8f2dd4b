//! Metrics of the journal. Commits are counted when they happen. At a scrape, the other values are read from the
//! journal.

use super::histogram::Histogram;
use super::text::Exposition;
use crate::journal::{CommitStats, Journal, Stats};
use std::time::Duration;

/// Bounds of the durations of commits, in µs: from a fast disk to one that is stuck.
const COMMIT_BOUNDS_US: [u64; 14] =
    [50, 100, 200, 400, 800, 1_600, 3_200, 6_400, 12_800, 25_600, 51_200, 102_400, 1_000_000, 10_000_000];

/// Bounds of the number of changes in a batch.
const BATCH_BOUNDS: [u64; 13] = [1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1_024, 4_096, 16_384];

/// Counts of reloads, commits and batches of the journal since the server's start.
#[derive(Debug)]
pub(super) struct JournalCounts {
    /// Number of reloads of the store.
    reloads: u64,
    /// Number of snapshots of the journals that reloads have replaced. The next field counts their storage errors. Each
    /// new journal counts from 0, so the metrics show the sums of these numbers and those of the present journal.
    snapshots: u64,
    storage_errors: u64,
    durations: Histogram<{ COMMIT_BOUNDS_US.len() }>,
    batches: Histogram<{ BATCH_BOUNDS.len() }>,
}

impl JournalCounts {
    pub(super) const fn new() -> Self {
        Self {
            reloads: 0,
            snapshots: 0,
            storage_errors: 0,
            durations: Histogram::new(&COMMIT_BOUNDS_US),
            batches: Histogram::new(&BATCH_BOUNDS),
        }
    }

    pub(super) fn count_reload(&mut self, replaced: &Journal) {
        let Stats { snapshots, storage_errors, .. } = replaced.stats();
        self.reloads += 1;
        self.snapshots += snapshots;
        self.storage_errors += storage_errors;
    }

    pub(super) fn count_commit(&mut self, commit: CommitStats) {
        self.durations.observe(commit.took_us);
        self.batches.observe(commit.changes as u64);
    }

    /// Writes the counts, and the current values of `journal`.
    pub(super) fn encode(&self, out: &mut Exposition, journal: &Journal) {
        const DURATION: &str = "coordination_journal_commit_duration_seconds";
        const CHANGES: &str = "coordination_journal_commit_changes";
        let stats = journal.stats();
        let seconds = |ms| Duration::from_millis(ms).as_secs_f64();
        out.histogram(DURATION, "Time until a batch of changes was durable.");
        self.durations.encode(out, DURATION, &[]);
        out.histogram(CHANGES, "Changes in a batch.");
        self.batches.encode_counts(out, CHANGES, &[]);
        out.single_gauge(
            "coordination_journal_commit_age_seconds",
            "Time since the start of the commit under way, 0 without one.",
            seconds(stats.commit_age_ms),
        );
        out.single_gauge(
            "coordination_journal_writable",
            "1 if the journal takes changes, 0 while it is loading, has no space, or cannot reach etcd.",
            u8::from(stats.is_writable),
        );
        out.single_gauge(
            "coordination_journal_applied_version",
            "resourceVersion of the last change in the table.",
            stats.applied_version.0,
        );
        out.single_gauge(
            "coordination_journal_changes_in_flight",
            "Submitted changes that are not durable yet.",
            stats.changes_in_flight,
        );
        out.single_gauge("coordination_journal_entries", "Entries in the journal.", stats.journal_entries);
        out.single_gauge("coordination_journal_bytes", "Bytes of the entries in the journal.", stats.journal_bytes);
        out.single_gauge(
            "coordination_journal_since_snapshot_entries",
            "Entries since the newest snapshot.",
            stats.journal_entries_since_snapshot,
        );
        out.single_gauge(
            "coordination_journal_since_snapshot_bytes",
            "Bytes of the entries since the newest snapshot.",
            stats.journal_bytes_since_snapshot,
        );
        if let Some(snapshot) = stats.snapshot {
            out.single_gauge(
                "coordination_journal_snapshot_age_seconds",
                "Time since the start of the newest snapshot.",
                seconds(snapshot.age_ms),
            );
            if let Some(duration_ms) = snapshot.duration_ms {
                out.single_gauge(
                    "coordination_journal_snapshot_duration_seconds",
                    "Duration of the newest snapshot.",
                    seconds(duration_ms),
                );
            }
            out.single_gauge("coordination_journal_snapshot_bytes", "Bytes of the newest snapshot.", snapshot.bytes);
            out.single_gauge("coordination_journal_snapshot_leases", "Leases in the newest snapshot.", snapshot.leases);
        }
        if let Some(store) = stats.store {
            out.single_gauge("coordination_store_bytes", "Bytes of etcd's database, free pages included.", store.bytes);
            out.single_gauge(
                "coordination_store_in_use_bytes",
                "Bytes in use in etcd's database, by this and other products.",
                store.in_use_bytes,
            );
        }
        if let Some(max) = stats.store_bytes_max {
            out.single_gauge(
                "coordination_store_limit_bytes",
                "Bytes in use above which creations of Leases are refused.",
                max,
            );
        }
        out.single_counter(
            "coordination_journal_snapshots_total",
            "Completed snapshots.",
            self.snapshots + stats.snapshots,
        );
        out.single_counter(
            "coordination_journal_storage_errors_total",
            "Commits that failed because the store had no space.",
            self.storage_errors + stats.storage_errors,
        );
        out.single_counter(
            "coordination_journal_reloads_total",
            "Reloads of the store after this replica lost track of it.",
            self.reloads,
        );
    }
}
