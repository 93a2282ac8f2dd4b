//! The history of a run: all requests of the clients and all that they observed. The checker knows nothing else.

use crate::kernel::TaskId;
use std::collections::BTreeMap;

/// Number of a request in the history, in the order of sending.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct OpId(pub usize);

/// Namespace and name of a Lease.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Key {
    /// Namespace.
    pub namespace: String,
    /// Name; empty for a collection.
    pub name: String,
}

/// One state of a Lease, as a server showed it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct State {
    /// `metadata.resourceVersion`.
    pub version: u64,
    /// `metadata.uid`.
    pub uid: String,
    /// `spec.renewTime`, which identifies the write that made the state.
    pub tag: u64,
    /// Hash of the JSON of `metadata` and `spec`.
    pub hash: u64,
}

/// The kind of a request for a Lease or for a collection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// POST.
    Create,
    /// DELETE.
    Delete,
    /// DELETE of a collection.
    DeleteCollection,
    /// A write with `dryRun`.
    Dry,
    /// GET.
    Get,
    /// PATCH.
    Patch,
    /// PUT.
    Put,
}

/// The state of the Lease that a write expects.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Base {
    /// The request creates the Lease, so the Lease must not exist.
    Absent,
    /// Any state, since the write names no version.
    Any,
    /// The state at this resourceVersion.
    Version(u64),
}

/// The outcome of a request, as the client knows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// UIDs of the deleted Leases.
    Deleted(Vec<String>),
    /// Status code of a refusal. A refused request changed nothing.
    Refused(u16),
    /// The state of the Lease that was read or written.
    State(State),
    /// The request may have taken effect: it got no response, or a response that leaves this open, such as 504.
    Unknown,
    /// A response that the client cannot decode.
    Unreadable,
}

/// A request for a single Lease or a deletion of a collection.
#[derive(Clone, Debug)]
pub struct Op {
    /// Kind of the request.
    pub kind: Kind,
    /// Lease that the request names, or the Lease of the response if the server chose the name.
    pub key: Key,
    /// `renewTime` that the request writes; 0 if it writes none.
    pub tag: u64,
    /// Precondition of the request: the state that the Lease must have before it.
    pub base: Base,
    /// Time at which the request was sent, in microseconds since the start of the run.
    pub sent_us: u64,
    /// Time at which the response arrived, in microseconds since the start of the run. `u64::MAX` if the outcome is
    /// unknown.
    pub done_us: u64,
    /// Result of the request.
    pub outcome: Outcome,
}

/// A list of Leases that a client received.
#[derive(Clone, Debug)]
pub struct List {
    /// Namespace of the list; `None` for all namespaces.
    pub namespace: Option<String>,
    /// Whether the list must show the newest state at the time of its request.
    pub is_newest: bool,
    /// Version that the request named with `resourceVersionMatch=Exact`.
    pub exact: Option<u64>,
    /// Time at which the first page was requested, in microseconds since the start of the run.
    pub sent_us: u64,
    /// Time at which the last page arrived, in microseconds since the start of the run.
    pub done_us: u64,
    /// resourceVersion of the list.
    pub version: u64,
    /// Leases of the list.
    pub items: Vec<(Key, State)>,
}

/// Events that a watcher saw since one list, over all its connections.
#[derive(Clone, Debug)]
pub struct Feed {
    /// Client that watches.
    pub client: TaskId,
    /// Namespace of the watch; `None` for all namespaces.
    pub namespace: Option<String>,
    /// resourceVersion of the list, at which the watch starts.
    pub start: u64,
    /// resourceVersion up to which the watcher has seen all events.
    pub seen: u64,
    /// Events in the order of arrival.
    pub events: Vec<Seen>,
    /// Whether the watch lasts until the end of the run. If not, the watcher listed again.
    pub is_open: bool,
}

/// An event of a watch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Seen {
    /// Time at which the event arrived, in microseconds since the start of the run.
    pub at_us: u64,
    /// Lease of the event.
    pub key: Key,
    /// Kind of the event.
    pub kind: SeenKind,
    /// State of the Lease. For a deletion, the last state, with the resourceVersion of the deletion.
    pub state: State,
}

/// Kind of an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SeenKind {
    /// ADDED.
    Added,
    /// DELETED.
    Deleted,
    /// MODIFIED.
    Modified,
}

/// A period in which a candidate of a leader election believed that it was the leader.
#[derive(Clone, Debug)]
pub struct Term {
    /// The Lease that is the lock of the election.
    pub lock: Key,
    /// Client that believed that it was the leader.
    pub client: TaskId,
    /// Start of the period, in microseconds since the start of the run.
    pub from_us: u64,
    /// End of the period, in microseconds since the start of the run.
    pub until_us: u64,
}

/// The history of a run.
#[derive(Debug, Default)]
pub struct History {
    /// Requests for single Leases, and deletions of collections.
    pub ops: Vec<Op>,
    /// All lists that clients received completely.
    pub lists: Vec<List>,
    /// All watches, with the events that they delivered.
    pub feeds: Vec<Feed>,
    /// All periods in which a candidate believed that it was the leader.
    pub terms: Vec<Term>,
    /// Periods in which a disk was full, or etcd had exceeded its quota: start and end, in microseconds of the run.
    pub full: Vec<(u64, u64)>,
    /// Faults of the server that the clients detected, as text.
    pub complaints: Vec<String>,
    /// Failures of the final check, as text: no write or no list succeeded after all faults had ended.
    pub stalls: Vec<String>,
    /// Counts of notable events, such as kills, for the statistics at the end.
    pub counts: Counts,
}

/// Counts of notable events, by name.
pub type Counts = BTreeMap<&'static str, u64>;

impl History {
    /// Records that a request was sent.
    pub fn begin(&mut self, kind: Kind, key: Key, tag: u64, base: Base, now_us: u64) -> OpId {
        let (sent_us, done_us) = (now_us, u64::MAX);
        self.ops.push(Op { kind, key, tag, base, sent_us, done_us, outcome: Outcome::Unknown });
        OpId(self.ops.len() - 1)
    }

    /// Records the outcome of a request. `name` is the key of the Lease in the response, if there is one.
    pub fn end(&mut self, id: OpId, outcome: Outcome, name: Option<Key>, now_us: u64) {
        let op = &mut self.ops[id.0];
        op.done_us = if outcome == Outcome::Unknown { u64::MAX } else { now_us };
        op.outcome = outcome;
        if let Some(key) = name {
            op.key = key;
        }
    }

    /// Returns the requests that write a `renewTime`, by the `renewTime` that they write.
    #[must_use]
    pub fn by_tag(&self) -> BTreeMap<u64, &Op> {
        self.ops.iter().filter(|op| op.tag > 0).map(|op| (op.tag, op)).collect()
    }
}
