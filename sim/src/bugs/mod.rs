//! Deliberate bugs, each put in from outside: between the journal and its store, between the store and its device, or
//! between the network and the server. The product has no switch for any of them.

pub mod engine;
pub mod front;
pub mod port;

use crate::device::Device;
use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};

/// A deliberate bug.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Bug {
    /// See [`ALL`], as for all of them.
    AnswerBeforeSync,
    /// A commit is reported, and is written with the next one.
    CommitLate,
    /// A conflict is answered as a success.
    ConflictAsSuccess,
    /// A dry run is done.
    DryRunDone,
    /// An event becomes a bookmark.
    EventLost,
    /// A sync that failed is tried again.
    FailedSyncRetried,
    /// A commit without room is reported as done.
    FullDiskIgnored,
    /// The last entry is forgotten at a start.
    LastEntryForgotten,
    /// The manifest is written before its chunks.
    ManifestBeforeChunks,
    /// A start reads an older state of the snapshot.
    SnapshotMissesChange,
    /// A read gives an older answer.
    StaleRead,
    /// A torn entry is read as if it were whole.
    TornEndAccepted,
    /// A truncation takes everything.
    TruncationTooFar,
    /// A batch is stored twice.
    BatchTwice,
    /// A batch is reported and not stored.
    BatchDropped,
    /// An update is not compared with the newest state.
    VersionNotCompared,
    /// A watch begins at the newest version.
    WindowNotFilled,
    /// Two entries change places at a start.
    WrongOrder,
    /// An entry is acknowledged that etcd does not have.
    AnswerBeforeQuorum,
    /// A barrier finds what was delivered.
    BarrierSkipped,
    /// An entry is delivered twice, at two positions.
    EntryDeliveredTwice,
    /// A manifest takes the place of any.
    ManifestNotCompared,
    /// A truncation takes entries that no snapshot has.
    TruncationBeyondBase,
    /// A replica applies its own entry before those of others that come first.
    OwnEntryEarly,
    /// The name of a writer, and so its sequences, come again at each start.
    SequenceReused,
    /// An entry that takes effect twice is applied twice.
    DuplicateApplied,
    /// An entry that the watch loses is not missed.
    GapNotNoticed,
    /// A start leaves out the first entry behind its snapshot.
    FirstEntrySkipped,
}

/// All of them: name, and what the server does.
pub const ALL: &[(Bug, &str, &str)] = &[
    (Bug::AnswerBeforeSync, "answer-before-sync", "a sync returns before anything is durable"),
    (Bug::BatchDropped, "batch-dropped", "a batch is reported as committed and not stored"),
    (Bug::BatchTwice, "batch-twice", "a batch is stored, and replayed, twice"),
    (Bug::CommitLate, "commit-late", "a batch is answered when the next one is stored, not when it is"),
    (Bug::ConflictAsSuccess, "conflict-as-success", "an update that was rejected is answered as if it were applied"),
    (Bug::DryRunDone, "dry-run-done", "a dry run changes the Lease"),
    (Bug::EventLost, "event-lost", "a watch leaves an event out now and then"),
    (Bug::FailedSyncRetried, "failed-sync-retried", "a sync that failed is tried again, and then succeeds"),
    (Bug::FullDiskIgnored, "full-disk-ignored", "a batch for which there is no room is reported as committed"),
    (
        Bug::LastEntryForgotten,
        "last-entry-forgotten",
        "a start forgets the last entry, and its versions are given out again",
    ),
    (Bug::ManifestBeforeChunks, "manifest-before-chunks", "a manifest is durable before the chunks that it names"),
    (Bug::SnapshotMissesChange, "snapshot-misses-change", "a snapshot holds an older state of the Leases"),
    (Bug::StaleRead, "stale-read", "a read gives the answer of an earlier one"),
    (Bug::TornEndAccepted, "torn-end-accepted", "the store gives the end of the last entry as it was torn"),
    (Bug::TruncationTooFar, "truncation-too-far", "a truncation takes entries that no snapshot has"),
    (Bug::VersionNotCompared, "version-not-compared", "an update is applied whatever state it was made from"),
    (Bug::WindowNotFilled, "window-not-filled", "a watch from an older version begins at the newest"),
    (Bug::WrongOrder, "wrong-order", "two entries are applied in the wrong order at a start"),
    (Bug::AnswerBeforeQuorum, "answer-before-quorum", "etcd acknowledges an entry to its writer and has lost it"),
    (Bug::BarrierSkipped, "barrier-skipped", "a barrier is passed with what this replica has, without a look"),
    (Bug::EntryDeliveredTwice, "entry-delivered-twice", "the watch gives an entry again, at the next position"),
    (Bug::ManifestNotCompared, "manifest-not-compared", "a manifest replaces whichever is there"),
    (Bug::TruncationBeyondBase, "truncation-beyond-base", "a truncation in etcd takes entries that no snapshot has"),
    (Bug::OwnEntryEarly, "own-entry-early", "a replica applies its entry once etcd has it, before entries of others"),
    (Bug::SequenceReused, "sequence-reused", "a replica that starts again writes under the names of its old entries"),
    (Bug::DuplicateApplied, "duplicate-applied", "an entry that arrives late a second time is applied once more"),
    (Bug::GapNotNoticed, "gap-not-noticed", "an entry that the watch loses is missed by nobody"),
    (Bug::FirstEntrySkipped, "first-entry-skipped", "a start leaves out the first entry behind its snapshot"),
];

/// What a bug keeps over the starts of a server.
#[derive(Clone, Debug, Default)]
pub struct Memory(Arc<Mutex<BTreeSet<u64>>>);

impl Bug {
    /// Whether it is a bug of etcd or of the way to it, so that only runs with replicas have it.
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
        )
    }

    /// The bug of this name.
    #[must_use]
    pub fn named(name: &str) -> Option<Self> {
        ALL.iter().find(|(_, own, _)| *own == name).map(|(bug, ..)| *bug)
    }

    /// Puts the bug into a device, if that is its place.
    pub fn prepare(self, device: &Device) {
        device.set_faults(|faults| {
            faults.syncs_lie = self == Self::AnswerBeforeSync;
            faults.retries_syncs = self == Self::FailedSyncRetried;
        });
    }
}
