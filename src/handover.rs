//! The hand-over of Leases between built-in storage (kube-apiserver's own storage of Leases) and this server. Defines
//! the phases of the hand-over, and the Lease that stores the current phase.
//!
//! This Lease is in this server's own store. So every replica sees the same phase at the same `resourceVersion`, even
//! after a restart. The commands `takeover` and `rollback` write the phase that they request. One replica, the active
//! one, copies the Leases and writes the step that it has reached. A second Lease stores the progress of the active
//! replica while clients use both storages. The active replica writes the second Lease many times a second. These
//! writes do not conflict with those of a command, since the second Lease is separate.
//!
//! The following lines show the phases and steps of each command. The phases are `import`, `serve`, `undo` and
//! `freeze`. The words after a phase are its steps, in order.
//!
//! ```text
//!   takeover   import ─► imported ─► serve ─► serving             APIService names the Service after `imported`
//!   undo       undo   ─► written back                             cancels an incomplete takeover
//!   rollback   freeze ─► written back ─► not ours                 APIService is local after `written back`
//! ```
//!
//! Without access to the cluster's etcd, the replicas cannot write to built-in storage. Then the command restricts
//! changes of built-in Leases by an admission policy. For a takeover, the command requests the phases `copy` and
//! `serve`. For a rollback, or to cancel a takeover, it requests the phase `hold`:
//!
//! ```text
//!   takeover   copy   ─► imported ─► serve, serving               APIService names the Service after `imported`
//!   rollback   hold   ─► held     ─► released ─► not ours         APIService is local after `released`
//! ```

use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;

/// Namespace of the two Leases of the hand-over, [`NAME`] and [`PROGRESS_NAME`].
pub const NAMESPACE: &str = "kube-system";
/// Name of the Lease that stores the phase and the step of the hand-over.
pub const NAME: &str = "coordination-apiserver-handover";
/// Annotation with the current [`Phase`] of the hand-over.
pub const PHASE: &str = "coordination-apiserver/phase";
/// Annotation with the [`Step`] that the current phase has reached.
pub const STEP: &str = "coordination-apiserver/step";
/// Annotation with the id of the command's request for the phase. Each request has a new id.
pub const ASKED: &str = "coordination-apiserver/asked";
/// Annotation with the UID of the APIService that names this server's Service. Absent until a replica has served with
/// this APIService. After that, replicas write to built-in storage only while the APIService has this UID. An
/// APIService with another UID was created after a deletion. In between, clients may have written to built-in storage.
pub const API_SERVICE_UID: &str = "coordination-apiserver/apiservice-uid";
/// Annotation with a message from the active replica to the command.
pub const MESSAGE: &str = "coordination-apiserver/message";
/// Name of the second Lease of the hand-over, which stores the progress of the active replica.
pub const PROGRESS_NAME: &str = "coordination-apiserver-handover-progress";
/// Annotation of the Lease [`PROGRESS_NAME`] with the number of the last round. In a round, the active replica imports
/// the changes of built-in storage into this server's store, and then writes this server's renewals to built-in
/// storage.
pub const ROUND: &str = "coordination-apiserver/round";
/// Annotation of the Lease [`PROGRESS_NAME`] with the `resourceVersion` up to which this server's writes are in
/// built-in storage.
pub const WRITTEN: &str = "coordination-apiserver/written";

/// Prefix of a stored value that kube-apiserver has encrypted at rest.
pub const ENCRYPTED: &[u8] = b"k8s:enc:";

/// Whether this namespace and name belong to a Lease of the hand-over.
#[must_use]
pub fn is_lease(namespace: &str, name: &str) -> bool {
    namespace == NAMESPACE && (name == NAME || name == PROGRESS_NAME)
}

/// A phase of the hand-over, which a command requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    /// This server copies Leases from built-in storage, which clients of kube-apiserver still change. Clients of this
    /// server may only renew Leases.
    Import,
    /// Every kube-apiserver forwards requests for Leases to this server, which serves them after its last import.
    Serve,
    /// A takeover is cancelled. This server copies the renewals that it has accepted to built-in storage, and accepts
    /// no further writes.
    Undo,
    /// The active replica copies this server's Leases back to built-in storage. This server accepts no writes from
    /// clients.
    Freeze,
    /// This server copies Leases from built-in storage through kube-apiserver. Clients of this server may only renew
    /// Leases. Once the command's admission policy has effect, clients of built-in storage may only renew Leases too.
    Copy,
    /// The command copies this server's Leases back through kube-apiserver. This server accepts no writes from clients.
    Hold,
}

/// The step that the active replica, or the command, has reached in a [`Phase`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// Every built-in Lease is imported, and the active replica continues to import changes of built-in Leases.
    Imported,
    /// No more writes of clients can reach built-in storage, and every earlier write there is imported. This server
    /// accepts all writes.
    Serving,
    /// Every replica has stopped accepting writes of clients, and the table has every earlier write.
    Held,
    /// kube-apiserver may serve built-in Leases from now on. The command writes this server's Leases to built-in
    /// storage.
    Released,
    /// Built-in storage has this server's writes: all Leases after `freeze`, and the renewals after `undo`.
    WrittenBack,
    /// The APIService names no Service, has named none at some time in this phase, or was deleted. Then kube-apiserver
    /// serves built-in Leases, or has served them. This server must not write to built-in storage, which may have newer
    /// Leases.
    NotOurs,
}

impl Phase {
    const ALL: [Self; 6] = [Self::Import, Self::Serve, Self::Undo, Self::Freeze, Self::Copy, Self::Hold];

    /// Returns the word for the phase in its annotation.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Import => "import",
            Self::Serve => "serve",
            Self::Undo => "undo",
            Self::Freeze => "freeze",
            Self::Copy => "copy",
            Self::Hold => "hold",
        }
    }
}

impl Step {
    const ALL: [Self; 6] =
        [Self::Imported, Self::Serving, Self::Held, Self::Released, Self::WrittenBack, Self::NotOurs];

    /// Returns the word for the step in its annotation.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Imported => "imported",
            Self::Serving => "serving",
            Self::Held => "held",
            Self::Released => "released",
            Self::WrittenBack => "written-back",
            Self::NotOurs => "not-ours",
        }
    }
}

/// A Lease in built-in storage.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoredLease {
    /// Revision of the last write of the Lease in etcd, which is the `resourceVersion` of the Lease.
    pub revision: u64,
    /// The Lease, encoded as kube-apiserver stores it in etcd, or as JSON.
    pub value: Vec<u8>,
}

/// Leases that were read from built-in storage. The key is `namespace/name`. The value is `None` for a Lease that was
/// deleted since the previous read.
pub type ReadLeases = BTreeMap<String, Option<StoredLease>>;

/// A word in an annotation that is no phase or step of this release.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Unknown;

impl FromStr for Phase {
    type Err = Unknown;

    fn from_str(word: &str) -> Result<Self, Unknown> {
        Self::ALL.into_iter().find(|phase| phase.name() == word).ok_or(Unknown)
    }
}

impl FromStr for Step {
    type Err = Unknown;

    fn from_str(word: &str) -> Result<Self, Unknown> {
        Self::ALL.into_iter().find(|step| step.name() == word).ok_or(Unknown)
    }
}

impl fmt::Display for Phase {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn phases_and_steps_round_trip_as_text() {
        for phase in Phase::ALL {
            assert_eq!(phase.to_string().parse(), Ok(phase));
        }
        for step in Step::ALL {
            assert_eq!(step.to_string().parse(), Ok(step));
        }
        assert_eq!("thaw".parse::<Phase>(), Err(Unknown));
    }
}
