//! The records of a run: operations with their times and outcomes, and the events of watchers. Clients and watchers
//! write them; the checker reads them.

use std::fmt;

/// Time since the run began, in ns.
pub(crate) type Nanos = u64;

/// A Lease: its namespace and the number in its name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct Key {
    pub(crate) space: Space,
    pub(crate) number: u32,
}

/// A namespace. All its Leases serve one purpose.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum Space {
    /// Each Lease belongs to one client, which renews it.
    Nodes,
    /// All clients take and renew the Leases.
    Locks,
    /// All clients patch, create and delete the Leases.
    Shared,
    /// Each Lease is created once. `deletecollection` deletes the Leases.
    Sweep,
}

impl Space {
    /// All namespaces.
    pub(crate) const ALL: [Self; 4] = [Self::Nodes, Self::Locks, Self::Shared, Self::Sweep];

    /// Name of the namespace on the server. The namespace of the nodes has no quota.
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
    /// Returns the Lease of these names, if this program can have created it.
    pub(crate) fn parse(namespace: &str, name: &str) -> Option<Self> {
        let space = Space::ALL.into_iter().find(|space| space.name() == namespace)?;
        let number = name.strip_prefix("lease-")?.parse().ok()?;
        Some(Self { space, number })
    }

    /// Name of the Lease.
    pub(crate) fn name(self) -> String {
        format!("lease-{}", self.number)
    }
}

impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/lease-{}", self.space.name(), self.number)
    }
}

/// A state of a Lease in a response or an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Seen {
    pub(crate) key: Key,
    /// `metadata.resourceVersion`.
    pub(crate) version: u64,
    /// `metadata.uid`.
    pub(crate) uid: u128,
    /// Number of the operation that wrote the state, from `spec.renewTime`.
    pub(crate) op: u64,
    /// Number of the client in `spec.holderIdentity`.
    pub(crate) holder: u32,
    /// Hash of the bytes of `metadata` and `spec`.
    pub(crate) hash: u64,
}

/// Request of a client.
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
    /// A DELETE with a uid as precondition, and optionally a version.
    Delete {
        key: Key,
        uid: u128,
        from: Option<u64>,
    },
    DeleteCollection(Space),
    Get(Key),
    /// A list of one namespace, or of all.
    List(Option<Space>),
}

impl Action {
    /// The Lease that the request names, if any.
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

    /// Whether the request changes Leases.
    pub(crate) fn is_write(self) -> bool {
        !matches!(self, Self::Get(_) | Self::List(_))
    }
}

/// Outcome of an operation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// 2xx with a Lease.
    Lease(Seen),
    /// 2xx for a deletion.
    Deleted,
    /// 200 for a list.
    List { version: u64, items: Vec<Seen> },
    /// 404.
    NotFound,
    /// 409.
    Conflict,
    /// Another status, which says that the request had no effect.
    Refused(u16),
    /// The connection was lost, or the server does not know the outcome.
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
    /// When the response arrived. If the outcome is unknown, when the server was dead.
    pub(crate) end: Nanos,
    pub(crate) outcome: Outcome,
}

impl Op {
    /// Number of every list that ends an epoch.
    pub(crate) const BOUNDARY: u64 = u64::MAX;

    /// Whether the server acknowledged the operation.
    pub(crate) fn is_acknowledged(&self) -> bool {
        matches!(self.outcome, Outcome::Lease(_) | Outcome::Deleted | Outcome::List { .. })
    }
}

/// Type of an event.
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
    /// When the watcher received the event.
    pub(crate) at: Nanos,
}

/// A record of a watcher.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Watched {
    Event(Event),
    /// A list: the first one, or one after 410.
    Listed {
        last: u64,
        version: u64,
        is_gone: bool,
    },
    /// Description of a response that no correct server sends.
    Wrong(String),
}

/// The Leases that a watcher watches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Scope {
    All,
    Space(Space),
    One(Key),
}

impl Scope {
    /// Whether the Lease is in the scope.
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
