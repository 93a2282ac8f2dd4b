//! Kinds of faults in a run with several replicas.

use clap::ValueEnum;
use std::fmt;

/// A temporary fault.
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
    /// Bytes from a replica to etcd are dropped.
    RequestsSwallowed,
    /// Bytes from etcd to a replica are dropped.
    AnswersSwallowed,
    /// The history of etcd is compacted.
    Compacted,
}

impl Fault {
    /// Draws a random fault.
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
