//! The kinds of fault of a run with several replicas.

use clap::ValueEnum;
use std::fmt;

/// A fault: something is wrong for a time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, ValueEnum)]
pub(crate) enum Fault {
    /// A replica gets SIGKILL.
    ReplicaKilled,
    /// A replica gets SIGSTOP for up to 20 s.
    ReplicaPaused,
    /// A replica gets SIGTERM.
    ReplicaStopped,
    /// A member of etcd gets SIGKILL.
    MemberKilled,
    /// The leader of etcd gets SIGKILL.
    LeaderKilled,
    /// The leader of etcd gets SIGSTOP for up to 5 s.
    LeaderPaused,
    /// Two members of etcd get SIGKILL.
    QuorumLost,
    /// The connections between a replica and etcd break.
    ConnectionsCut,
    /// The connections between a replica and etcd are slow.
    ConnectionsDelayed,
    /// The bytes from a replica to etcd get lost.
    RequestsSwallowed,
    /// The bytes from etcd to a replica get lost.
    AnswersSwallowed,
    /// The history of etcd is compacted.
    Compacted,
}

impl Fault {
    /// One of all, at random.
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
