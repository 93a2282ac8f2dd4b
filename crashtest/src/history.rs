//! The records of a run: the operations of clients with their times and outcomes, and the events of watchers. Clients
//! and watchers write these records, and the checker reads them.

use std::fmt;

/// A time, in nanoseconds since the start of the run.
pub(crate) type Nanos = u64;

/// The key of a Lease: its namespace, and the number in its name.
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
    /// Each Lease is a lock, which all clients take and renew.
    Locks,
    /// All clients patch, create and delete the Leases.
    Shared,
    /// Each Lease is created once. Deletions of the collection (`deletecollection`) delete all of them.
    Sweep,
}

impl Space {
    /// All namespaces.
    pub(crate) const ALL: [Self; 4] = [Self::Nodes, Self::Locks, Self::Shared, Self::Sweep];

    /// Returns the namespace's name on the server. In `kube-node-lease`, Leases of an ordinary size do not count
    /// towards the server's quota (its limit on the memory of all Leases). So the nodes may have any number of Leases.
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
    /// Returns the key of the Lease with this namespace and name; `None` if this program cannot have created the Lease.
    pub(crate) fn parse(namespace: &str, name: &str) -> Option<Self> {
        let space = Space::ALL.into_iter().find(|space| space.name() == namespace)?;
        let number = name.strip_prefix("lease-")?.parse().ok()?;
        Some(Self { space, number })
    }

    /// Returns the name of the Lease.
    pub(crate) fn name(self) -> String {
        format!("lease-{}", self.number)
    }
}

impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/lease-{}", self.space.name(), self.number)
    }
}

/// A state of a Lease, as a response or an event shows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Seen {
    pub(crate) key: Key,
    /// `metadata.resourceVersion`.
    pub(crate) version: u64,
    /// `metadata.uid`.
    pub(crate) uid: u128,
    /// Number of the operation that wrote the state; `spec.renewTime` encodes this number.
    pub(crate) op: u64,
    /// Number of the client in `spec.holderIdentity`.
    pub(crate) holder: u32,
    /// Hash of the JSON of `metadata` and `spec`.
    pub(crate) hash: u64,
}

/// The request of an operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Action {
    Create(Key),
    /// A PUT whose `metadata` has this uid, and `from` as its resourceVersion.
    Put {
        key: Key,
        uid: u128,
        from: u64,
    },
    /// A merge patch of `spec.renewTime`, without a resourceVersion.
    Patch(Key),
    /// A DELETE with a uid as precondition, and optionally also a resourceVersion.
    Delete {
        key: Key,
        uid: u128,
        from: Option<u64>,
    },
    DeleteCollection(Space),
    Get(Key),
    /// A list of one namespace, or of all namespaces.
    List(Option<Space>),
}

impl Action {
    /// Returns the Lease that the request names; `None` for a list or a deletion of a collection.
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

/// The outcome of an operation, by the response's status.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// 2xx with a Lease in the body.
    Lease(Seen),
    /// 2xx for the deletion of a Lease or of a collection.
    Deleted,
    /// 200 for a list.
    List { version: u64, items: Vec<Seen> },
    /// 404.
    NotFound,
    /// 409.
    Conflict,
    /// Another status that excludes an effect of the request: 429, 503 or 507.
    Refused(u16),
    /// The request may have taken effect: its response was lost or late, or was another error (5xx). A response that no
    /// correct server sends counts too.
    Unknown,
}

/// One operation of a client, with its times and its outcome.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Op {
    pub(crate) id: u64,
    pub(crate) client: u32,
    pub(crate) action: Action,
    /// When the request was sent, in nanoseconds since the start of the run.
    pub(crate) begin: Nanos,
    /// When the response arrived. If the outcome is unknown, the latest time at which the request can have taken
    /// effect: when the server was dead or, in a run with replicas, when no request to etcd was pending.
    pub(crate) end: Nanos,
    pub(crate) outcome: Outcome,
}

impl Op {
    /// The `id` of each list of all Leases that the run makes while no client writes. Such a list ends an epoch, a part
    /// of the run that is checked as a whole.
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

/// An event of a watch, with the time of its arrival.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Event {
    pub(crate) kind: EventKind,
    pub(crate) seen: Seen,
    /// When the watcher received the event.
    pub(crate) at: Nanos,
}

/// A record of a watcher: an event, a list, or a wrong response.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Watched {
    Event(Event),
    /// A list: the watcher's first list, or a list after its watch got 410. In the second case, `gone` is the version
    /// that the watcher had before.
    Listed {
        version: u64,
        gone: Option<u64>,
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
    /// Whether the scope contains the Lease.
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
