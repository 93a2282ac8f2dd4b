//! The hand-over of Leases between kube-apiserver's built-in storage and this server. Defines the phases of the
//! hand-over, and the Lease that stores the current phase.
//!
//! This Lease is in this server's own store. So every replica sees the same phase at the same `resourceVersion`, even
//! after a restart. The `takeover` and `rollback` commands write the phase. The active replica writes the step that it
//! has reached. A second Lease holds the replica's progress while clients use both sides. The second Lease changes many
//! times a second. It is separate so that these writes do not conflict with the write of a command.
//!
//! ```text
//!   takeover   import ─► imported ─► serve ─► serving             APIService names the Service after `imported`
//!   undo       undo   ─► written back                             cancels an incomplete takeover
//!   rollback   freeze ─► written back                             then the APIService names no Service again
//! ```
//!
//! Without access to the cluster's etcd, the replicas cannot write to built-in storage. Then a command keeps clients
//! from changing built-in Leases, and has other phases:
//!
//! ```text
//!   takeover   copy   ─► imported ─► serve, serving               APIService names the Service after `imported`
//!   rollback   hold   ─► held     ─► released ─► not ours         APIService is local after `released`
//! ```

use std::fmt;
use std::str::FromStr;

/// Namespace of the Lease.
pub const NAMESPACE: &str = "kube-system";
/// Name of the Lease.
pub const NAME: &str = "coordination-apiserver-handover";
/// Annotation with the [`Phase`].
pub const PHASE: &str = "coordination-apiserver/phase";
/// Annotation with the [`Step`].
pub const STEP: &str = "coordination-apiserver/step";
/// Annotation with an id that is new for each request of a phase.
pub const ASKED: &str = "coordination-apiserver/asked";
/// Annotation with a message of the active replica.
pub const MESSAGE: &str = "coordination-apiserver/message";
/// Name of the Lease with the progress.
pub const PROGRESS_NAME: &str = "coordination-apiserver-handover-progress";
/// Annotation with the number of reads of built-in storage whose changes are in this server's store.
pub const ROUND: &str = "coordination-apiserver/round";
/// Annotation with the `resourceVersion` up to which this server's writes are in built-in storage.
pub const WRITTEN: &str = "coordination-apiserver/written";

/// Whether this namespace and name are those of a Lease of the hand-over.
#[must_use]
pub fn is_lease(namespace: &str, name: &str) -> bool {
    namespace == NAMESPACE && (name == NAME || name == PROGRESS_NAME)
}

/// A phase that a command requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    /// This server copies Leases from built-in storage, which keeps changing. Clients of this server may only renew
    /// Leases.
    Import,
    /// Every kube-apiserver forwards Leases to this server.
    Serve,
    /// A takeover is cancelled. This server copies the writes that it accepted to built-in storage, and accepts no more
    /// writes.
    Undo,
    /// This server copies its Leases back to built-in storage, and accepts no writes from clients.
    Freeze,
    /// This server copies Leases from built-in storage through kube-apiserver. Clients may only renew Leases, at this
    /// server and in built-in storage.
    Copy,
    /// The command copies this server's Leases back through kube-apiserver. This server accepts no writes from clients.
    Hold,
}

/// The progress of a replica in a [`Phase`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// Every built-in Lease is imported, and later changes of built-in Leases are imported too.
    Imported,
    /// No more writes can reach built-in storage, and every write is imported.
    Serving,
    /// Every replica has stopped accepting writes, and every write is applied.
    Held,
    /// kube-apiserver may serve Leases of its own from now on, which the command writes.
    Released,
    /// Built-in storage has the same Leases as this server.
    WrittenBack,
    /// The APIService names no Service. This server must not write to built-in storage, which may hold newer Leases.
    NotOurs,
}

impl Phase {
    const ALL: [Self; 6] = [Self::Import, Self::Serve, Self::Undo, Self::Freeze, Self::Copy, Self::Hold];

    /// Returns the word in the annotation.
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

    /// Returns the word in the annotation.
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
    /// `namespace/name`
    pub key: String,
    /// Revision of the last write, which is the `resourceVersion` of the Lease.
    pub revision: u64,
    /// The object: encoded as kube-apiserver stores it in etcd, or as JSON.
    pub value: Vec<u8>,
}

/// A word that is not a phase or step of this release.
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
    fn every_word_is_read_again() {
        for phase in Phase::ALL {
            assert_eq!(phase.to_string().parse(), Ok(phase));
        }
        for step in Step::ALL {
            assert_eq!(step.to_string().parse(), Ok(step));
        }
        assert_eq!("thaw".parse::<Phase>(), Err(Unknown));
    }
}
