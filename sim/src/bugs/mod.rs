//! Deliberate bugs, to check that the simulator finds them. Each bug is inserted from outside: between the journal and
//! its store, between the store and its device, between the network and the server, or in the model of etcd. The
//! server's code contains no deliberate bug.
//!
//! The journal's store, on disk or in etcd, has entries (batches of changes), snapshots in chunks, and one manifest,
//! which names the valid snapshots.

pub mod engine;
pub mod front;
pub mod port;

use crate::device::Device;
use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};

/// A deliberate bug of the server, its store or etcd.
#[expect(missing_docs, reason = "`ALL` describes each bug")]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Bug {
    AnswerBeforeSync,
    CommitLate,
    ConflictAsSuccess,
    DryRunDone,
    EventLost,
    FailedSyncRetried,
    FullDiskIgnored,
    LastEntryForgotten,
    ManifestBeforeChunks,
    SnapshotMissesChange,
    StaleRead,
    TornEndAccepted,
    TruncationTooFar,
    BatchTwice,
    BatchDropped,
    VersionNotCompared,
    WindowNotFilled,
    WrongOrder,
    AnswerBeforeQuorum,
    BarrierSkipped,
    EntryDeliveredTwice,
    ManifestNotCompared,
    TruncationBeyondBase,
    OwnEntryEarly,
    SequenceReused,
    DuplicateApplied,
    GapNotNoticed,
    FirstEntrySkipped,
    SpaceDenied,
}

/// All deliberate bugs: the bug, its name on the command line, and the faulty behaviour.
pub const ALL: &[(Bug, &str, &str)] = &[
    (Bug::AnswerBeforeSync, "answer-before-sync", "a sync returns before anything is durable"),
    (Bug::BatchDropped, "batch-dropped", "a batch is reported as committed, but not stored"),
    (Bug::BatchTwice, "batch-twice", "a batch is stored, and replayed, twice"),
    (Bug::CommitLate, "commit-late", "a batch is answered before it is stored; it is stored with the next one"),
    (Bug::ConflictAsSuccess, "conflict-as-success", "a rejected update is answered as if it were applied"),
    (Bug::DryRunDone, "dry-run-done", "a dry run changes the Lease"),
    (Bug::EventLost, "event-lost", "a watch sometimes omits an event"),
    (Bug::FailedSyncRetried, "failed-sync-retried", "a failed sync is retried, and then succeeds"),
    (Bug::FullDiskIgnored, "full-disk-ignored", "a batch that found no space is reported as committed"),
    (
        Bug::LastEntryForgotten,
        "last-entry-forgotten",
        "a start skips the last entry, and its versions are assigned again",
    ),
    (Bug::ManifestBeforeChunks, "manifest-before-chunks", "a manifest is durable before the chunks that it names"),
    (Bug::SnapshotMissesChange, "snapshot-misses-change", "a snapshot contains an older state of the Leases"),
    (Bug::StaleRead, "stale-read", "a read gets the answer of an earlier read"),
    (Bug::TornEndAccepted, "torn-end-accepted", "the store returns the last entry with its end torn off"),
    (Bug::TruncationTooFar, "truncation-too-far", "a truncation removes entries that no snapshot covers"),
    (Bug::VersionNotCompared, "version-not-compared", "an update is applied whatever version it was made from"),
    (Bug::WindowNotFilled, "window-not-filled", "a watch from an older version starts at the newest"),
    (Bug::WrongOrder, "wrong-order", "two entries are applied in the wrong order at a start"),
    (Bug::AnswerBeforeQuorum, "answer-before-quorum", "etcd acknowledges an entry to its writer, but loses it"),
    (Bug::BarrierSkipped, "barrier-skipped", "a barrier is passed at this replica's position, without a read of etcd"),
    (Bug::EntryDeliveredTwice, "entry-delivered-twice", "the watch delivers an entry again, at the next position"),
    (Bug::ManifestNotCompared, "manifest-not-compared", "a manifest replaces any other one"),
    (
        Bug::TruncationBeyondBase,
        "truncation-beyond-base",
        "a truncation in etcd removes entries that no snapshot covers",
    ),
    (
        Bug::OwnEntryEarly,
        "own-entry-early",
        "a replica applies its entry once etcd has it, before earlier entries of others",
    ),
    (Bug::SequenceReused, "sequence-reused", "a restarted replica reuses the names of its old entries"),
    (Bug::DuplicateApplied, "duplicate-applied", "an entry that arrives a second time is applied again"),
    (Bug::GapNotNoticed, "gap-not-noticed", "an entry that the watch lost is not detected"),
    (Bug::FirstEntrySkipped, "first-entry-skipped", "a start skips the first entry after its snapshot"),
    (Bug::SpaceDenied, "space-denied", "a successful creation is answered as if etcd were full"),
];

/// Positions of the entries that [`Bug::LastEntryForgotten`] hides. They stay hidden at all later starts of the server.
#[derive(Clone, Debug, Default)]
pub struct Memory(Arc<Mutex<BTreeSet<u64>>>);

impl Bug {
    /// Whether the bug is of a replica, of etcd, or of the connection between them. The search for such a bug needs
    /// runs with replicas.
    #[must_use]
    pub fn is_of_etcd(self) -> bool {
        matches!(
            self,
            Self::AnswerBeforeQuorum
                | Self::BarrierSkipped
                | Self::EntryDeliveredTwice
                | Self::ManifestNotCompared
                | Self::TruncationBeyondBase
                | Self::OwnEntryEarly
                | Self::SequenceReused
                | Self::DuplicateApplied
                | Self::GapNotNoticed
                | Self::FirstEntrySkipped
                | Self::SpaceDenied
        )
    }

    /// Returns the bug with this name on the command line.
    #[must_use]
    pub fn named(name: &str) -> Option<Self> {
        ALL.iter().find(|(_, own, _)| *own == name).map(|(bug, ..)| *bug)
    }

    /// Inserts the bug into a device, if it is a bug of the device.
    pub fn prepare(self, device: &Device) {
        device.set_faults(|faults| {
            faults.syncs_lie = self == Self::AnswerBeforeSync;
            faults.retries_syncs = self == Self::FailedSyncRetried;
        });
    }
}
