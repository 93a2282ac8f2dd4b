//! The kinds of fault of a run with several replicas.

use clap::ValueEnum;

/// A fault: something is wrong for a time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
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

/// All of them, as the summary names them.
pub(crate) const FAULTS: [(Fault, &str); 12] = [
    (Fault::ReplicaKilled, "replicas killed"),
    (Fault::ReplicaPaused, "replicas paused"),
    (Fault::ReplicaStopped, "replicas stopped"),
    (Fault::MemberKilled, "members of etcd killed"),
    (Fault::LeaderKilled, "leaders of etcd killed"),
    (Fault::LeaderPaused, "leaders of etcd paused"),
    (Fault::QuorumLost, "quorum lost"),
    (Fault::ConnectionsCut, "connections cut"),
    (Fault::ConnectionsDelayed, "connections delayed"),
    (Fault::RequestsSwallowed, "requests swallowed"),
    (Fault::AnswersSwallowed, "answers swallowed"),
    (Fault::Compacted, "compactions"),
];
