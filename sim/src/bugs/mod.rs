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
use clap::ValueEnum;
use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};

/// A deliberate bug of the server, its store or etcd. The doc comment of a variant is its faulty behaviour.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Bug {
    /// A sync returns before anything is durable.
    AnswerBeforeSync,
    /// A batch is reported as committed, but not stored.
    BatchDropped,
    /// A batch is stored, and replayed, twice.
    BatchTwice,
    /// A batch is answered before it is stored; it is stored with the next one.
    CommitLate,
    /// A rejected update is answered as if it were applied.
    ConflictAsSuccess,
    /// A dry run changes the Lease.
    DryRunDone,
    /// A watch sometimes omits an event.
    EventLost,
    /// A failed sync is retried, and then succeeds.
    FailedSyncRetried,
    /// A batch that found no space is reported as committed.
    FullDiskIgnored,
    /// A start skips the last entry, and its versions are assigned again.
    LastEntryForgotten,
    /// A manifest is durable before the chunks that it names.
    ManifestBeforeChunks,
    /// A snapshot contains an older state of the Leases.
    SnapshotMissesChange,
    /// A read gets the answer of an earlier read.
    StaleRead,
    /// The store returns the last entry with its end torn off.
    TornEndAccepted,
    /// A truncation removes entries that no snapshot covers.
    TruncationTooFar,
    /// An update is applied whatever version it was made from.
    VersionNotCompared,
    /// A watch from an older version starts at the newest.
    WindowNotFilled,
    /// Two entries are applied in the wrong order at a start.
    WrongOrder,
    /// etcd acknowledges an entry to its writer, but loses it.
    AnswerBeforeQuorum,
    /// A barrier is passed at this replica's position, without a read of etcd.
    BarrierSkipped,
    /// The watch delivers an entry again, at the next position.
    EntryDeliveredTwice,
    /// A manifest replaces any other one.
    ManifestNotCompared,
    /// A truncation in etcd removes entries that no snapshot covers.
    TruncationBeyondBase,
    /// A replica applies its entry once etcd has it, before earlier entries of others.
    OwnEntryEarly,
    /// A restarted replica reuses the names of its old entries.
    SequenceReused,
    /// An entry that arrives a second time is applied again.
    DuplicateApplied,
    /// An entry that the watch lost is not detected.
    GapNotNoticed,
    /// A start skips the first entry after its snapshot.
    FirstEntrySkipped,
    /// A successful creation is answered as if etcd were full.
    SpaceDenied,
}

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

    /// Inserts the bug into a device, if it is a bug of the device.
    pub fn prepare(self, device: &Device) {
        device.set_faults(|faults| {
            faults.syncs_lie = self == Self::AnswerBeforeSync;
            faults.retries_syncs = self == Self::FailedSyncRetried;
        });
    }
}
