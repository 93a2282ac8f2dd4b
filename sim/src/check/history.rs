//! The history: all requests and observations of the clients. The checker knows nothing else.

use crate::kernel::TaskId;
use std::collections::BTreeMap;

/// Number of a request in the history.
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
    /// `spec.renewTime`, which identifies the write.
    pub tag: u64,
    /// Hash of `metadata` and `spec`.
    pub hash: u64,
}

/// Kind of a request.
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

/// The state that a write expects.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Base {
    /// No Lease.
    Absent,
    /// Any state.
    Any,
    /// The state at a version.
    Version(u64),
}

/// Result of a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// UIDs of the deleted Leases.
    Deleted(Vec<String>),
    /// Status code of a refusal. The request changed nothing.
    Refused(u16),
    /// The state that was read or written.
    State(State),
    /// No response: the request may have taken effect.
    Unknown,
    /// A response that the client cannot decode.
    Unreadable,
}

/// A request.
#[derive(Clone, Debug)]
pub struct Op {
    /// Client that sent the request.
    pub client: TaskId,
    /// Kind of the request.
    pub kind: Kind,
    /// Lease that the request names.
    pub key: Key,
    /// `renewTime` that the request writes.
    pub tag: u64,
    /// State that the request expects.
    pub base: Base,
    /// When the request was sent, in microseconds.
    pub sent_us: u64,
    /// When the request was answered or abandoned, in microseconds; `u64::MAX` before.
    pub done_us: u64,
    /// Result of the request.
    pub outcome: Outcome,
}

/// A list.
#[derive(Clone, Debug)]
pub struct List {
    /// Namespace; `None` for all.
    pub namespace: Option<String>,
    /// Whether the list must show the newest state.
    pub is_newest: bool,
    /// Version that the request named with `resourceVersionMatch=Exact`.
    pub exact: Option<u64>,
    /// When the first page was requested, in microseconds.
    pub sent_us: u64,
    /// When the last page arrived, in microseconds.
    pub done_us: u64,
    /// Version of the list.
    pub version: u64,
    /// Leases of the list.
    pub items: Vec<(Key, State)>,
}

/// Events that a watcher saw since one list, over all its connections.
#[derive(Clone, Debug)]
pub struct Feed {
    /// Client that watches.
    pub client: TaskId,
    /// Namespace; `None` for all.
    pub namespace: Option<String>,
    /// Version of the list.
    pub start: u64,
    /// Version up to which the watcher has seen all events.
    pub seen: u64,
    /// Events in the order of arrival.
    pub events: Vec<Seen>,
    /// Whether the watch lasts until the end of the run.
    pub is_open: bool,
}

/// An event of a watch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Seen {
    /// When the event arrived, in microseconds.
    pub at_us: u64,
    /// Lease of the event.
    pub key: Key,
    /// Kind of the event.
    pub kind: SeenKind,
    /// State of the Lease; for a deletion, the last state with the version of the deletion.
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

/// Period in which a candidate believed that it was the leader.
#[derive(Clone, Debug)]
pub struct Term {
    /// Lease of the lock.
    pub lock: Key,
    /// The candidate.
    pub client: TaskId,
    /// Start of the period, in microseconds of true time.
    pub from_us: u64,
    /// End of the period, in microseconds of true time.
    pub until_us: u64,
}

/// The history of a run.
#[derive(Debug, Default)]
pub struct History {
    /// Requests for single Leases, and deletions of collections.
    pub ops: Vec<Op>,
    /// Lists.
    pub lists: Vec<List>,
    /// Watches.
    pub feeds: Vec<Feed>,
    /// Leaders.
    pub terms: Vec<Term>,
    /// Start and end of each period in which a device was full, in microseconds.
    pub full: Vec<(u64, u64)>,
    /// Faults that clients found themselves.
    pub complaints: Vec<String>,
    /// Clients and replicas that did not continue after all faults had ended.
    pub stalls: Vec<String>,
    /// Counts of notable events.
    pub counts: Counts,
}

/// Counts by name.
pub type Counts = BTreeMap<&'static str, u64>;

impl History {
    /// Records that a request was sent.
    pub fn begin(&mut self, client: TaskId, kind: Kind, key: Key, tag: u64, base: Base, now_us: u64) -> OpId {
        let (sent_us, done_us) = (now_us, u64::MAX);
        self.ops.push(Op { client, kind, key, tag, base, sent_us, done_us, outcome: Outcome::Unknown });
        OpId(self.ops.len() - 1)
    }

    /// Records the response of a request. `name` is the name that the server gave the Lease.
    pub fn end(&mut self, id: OpId, outcome: Outcome, name: Option<Key>, now_us: u64) {
        let op = &mut self.ops[id.0];
        op.done_us = if outcome == Outcome::Unknown { u64::MAX } else { now_us };
        op.outcome = outcome;
        if let Some(key) = name {
            op.key = key;
        }
    }
}
