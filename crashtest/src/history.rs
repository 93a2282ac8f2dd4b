//! What is recorded of a run: operations with their times and outcomes, and the events of watchers. Clients and
//! watchers write it, the checker reads it.

use std::fmt;

/// Time since the run began, in ns.
pub(crate) type Nanos = u64;

/// A Lease: the namespace and the number in its name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct Key {
    pub(crate) space: Space,
    pub(crate) number: u32,
}

/// A namespace. Each has Leases of one use.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum Space {
    /// Each Lease has one client, which renews it.
    Nodes,
    /// All clients want them.
    Locks,
    /// All clients patch, create and delete them.
    Shared,
    /// Each Lease is created once. `deletecollection` deletes them.
    Sweep,
}

impl Space {
    /// All of them.
    pub(crate) const ALL: [Self; 4] = [Self::Nodes, Self::Locks, Self::Shared, Self::Sweep];

    /// Its name for the server. That of the nodes has no quota.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Nodes => "kube-node-lease",
            Self::Locks => "locks",
            Self::Shared => "shared",
            Self::Sweep => "sweep",
        }
    }
}

impl Key {
    /// The Lease of these names, if a client of this program can have created it.
    pub(crate) fn parse(namespace: &str, name: &str) -> Option<Self> {
        let space = Space::ALL.into_iter().find(|space| space.name() == namespace)?;
        let number = name.strip_prefix("lease-")?.parse().ok()?;
        Some(Self { space, number })
    }

    /// Its name within the namespace.
    pub(crate) fn name(self) -> String {
        format!("lease-{}", self.number)
    }
}

impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/lease-{}", self.space.name(), self.number)
    }
}

/// A state of a Lease, as an answer or an event has it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Seen {
    pub(crate) key: Key,
    /// `metadata.resourceVersion`.
    pub(crate) version: u64,
    /// `metadata.uid`.
    pub(crate) uid: u128,
    /// Number of the operation that wrote the state; `spec.renewTime` has it.
    pub(crate) op: u64,
    /// Number of the client in `spec.holderIdentity`.
    pub(crate) holder: u32,
    /// Hash of `metadata` and `spec`, byte for byte.
    pub(crate) hash: u64,
}

/// What a client asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Action {
    Create(Key),
    /// A PUT with `metadata.resourceVersion`.
    Put {
        key: Key,
        from: u64,
    },
    /// A merge patch of `spec.renewTime`, without a version.
    Patch(Key),
    /// A DELETE with the precondition of a uid, and perhaps of a version.
    Delete {
        key: Key,
        uid: u128,
        from: Option<u64>,
    },
    DeleteCollection(Space),
    Get(Key),
    /// Of one namespace, or of all.
    List(Option<Space>),
}

impl Action {
    /// The Lease, if it is about one.
    pub(crate) fn key(self) -> Option<Key> {
        match self {
            Self::Create(key)
            | Self::Put { key, .. }
            | Self::Patch(key)
            | Self::Delete { key, .. }
            | Self::Get(key) => Some(key),
            Self::DeleteCollection(_) | Self::List(_) => None,
        }
    }

    /// Whether it changes Leases.
    pub(crate) fn is_write(self) -> bool {
        !matches!(self, Self::Get(_) | Self::List(_))
    }
}

/// What became of an operation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// 2xx with a Lease in the body.
    Lease(Seen),
    /// 2xx of a deletion.
    Deleted,
    /// 200 of a list.
    List { version: u64, items: Vec<Seen> },
    /// 404.
    NotFound,
    /// 409.
    Conflict,
    /// Another status that says that nothing was done.
    Refused(u16),
    /// The connection died, or the server does not know.
    Unknown,
}

/// An operation that has ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Op {
    pub(crate) id: u64,
    pub(crate) client: u32,
    pub(crate) action: Action,
    /// When the request was sent.
    pub(crate) begin: Nanos,
    /// When the answer was there. Of an unknown outcome, when the server was dead.
    pub(crate) end: Nanos,
    pub(crate) outcome: Outcome,
}

impl Op {
    /// Number of the lists that end epochs.
    pub(crate) const BOUNDARY: u64 = u64::MAX;

    /// Whether the server said that it was done.
    pub(crate) fn is_acknowledged(&self) -> bool {
        matches!(self.outcome, Outcome::Lease(_) | Outcome::Deleted | Outcome::List { .. })
    }
}

/// The type of an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum EventKind {
    Added,
    Modified,
    Deleted,
}

/// An event of a watch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Event {
    pub(crate) kind: EventKind,
    pub(crate) seen: Seen,
    /// When the watcher had it.
    pub(crate) at: Nanos,
}

/// What a watcher records.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Watched {
    Event(Event),
    /// A list in place of events: at the begin, and after 410.
    Listed {
        last: u64,
        version: u64,
        is_gone: bool,
    },
    /// Something that no server may send.
    Wrong(String),
}

/// The Leases that a watcher is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Scope {
    All,
    Space(Space),
    One(Key),
}

impl Scope {
    /// Whether the Lease is in it.
    pub(crate) fn has(self, key: Key) -> bool {
        match self {
            Self::All => true,
            Self::Space(space) => key.space == space,
            Self::One(one) => key == one,
        }
    }
}

impl fmt::Display for Scope {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::All => f.write_str("all namespaces"),
            Self::Space(space) => f.write_str(space.name()),
            Self::One(key) => key.fmt(f),
        }
    }
}
