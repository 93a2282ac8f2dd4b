//! Kinds of faults in a run with several replicas.

use clap::ValueEnum;
use std::fmt;

/// A temporary fault of a replica, of etcd, or of the connections between them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, ValueEnum)]
pub(crate) enum Fault {
    /// A replica gets SIGKILL.
    ReplicaKilled,
    /// A replica receives SIGSTOP and, up to 20 s later, SIGCONT.
    ReplicaPaused,
    /// A replica gets SIGTERM.
    ReplicaStopped,
    /// A member of etcd gets SIGKILL.
    MemberKilled,
    /// The leader of etcd gets SIGKILL.
    LeaderKilled,
    /// The leader of etcd receives SIGSTOP and, up to 5 s later, SIGCONT.
    LeaderPaused,
    /// Two members of etcd receive SIGKILL. With three members, etcd then has no quorum.
    QuorumLost,
    /// The connections between a replica and etcd are cut.
    ConnectionsCut,
    /// The connections between a replica and etcd are slow.
    ConnectionsDelayed,
    /// Bytes from a replica to etcd are dropped.
    RequestsSwallowed,
    /// Bytes from etcd to a replica are dropped.
    AnswersSwallowed,
    /// The revisions of etcd are compacted.
    Compacted,
}

impl Fault {
    /// Draws the kind of the next fault at random.
    pub(crate) fn draw(rng: &mut fastrand::Rng) -> Self {
        let all = Self::value_variants();
        all[rng.usize(..all.len())]
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.to_possible_value().map_or(Ok(()), |name| f.write_str(name.get_name()))
    }
}
