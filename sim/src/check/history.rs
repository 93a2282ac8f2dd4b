//! What clients did and saw: all that the checker knows.

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
    /// `spec.renewTime`, which tells the request that wrote the state.
    pub tag: u64,
    /// Hash of `metadata` and `spec`.
    pub hash: u64,
}

/// What a request is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// POST.
    Create,
    /// DELETE.
    Delete,
    /// DELETE of a collection.
    DeleteCollection,
    /// A write that is to change nothing.
    Dry,
    /// GET.
    Get,
    /// PATCH.
    Patch,
    /// PUT.
    Put,
}

/// The state that a write is made from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Base {
    /// None: there must be no Lease.
    Absent,
    /// Whichever there is.
    Any,
    /// That of a version.
    Version(u64),
}

/// What came of a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// These UIDs are gone.
    Deleted(Vec<String>),
    /// A refusal, which changes nothing.
    Refused(u16),
    /// The state that was read or written.
    State(State),
    /// Nobody knows: there was no answer.
    Unknown,
    /// An answer that makes no sense.
    Unreadable,
}

/// A request.
#[derive(Clone, Debug)]
pub struct Op {
    /// Who.
    pub client: TaskId,
    /// What.
    pub kind: Kind,
    /// Of which Lease.
    pub key: Key,
    /// Time of renewal that it writes.
    pub tag: u64,
    /// From which state.
    pub base: Base,
    /// When it was sent, in microseconds.
    pub sent_us: u64,
    /// When it was answered, or given up; the end of time if neither has happened.
    pub done_us: u64,
    /// What came of it.
    pub outcome: Outcome,
}

/// A list.
#[derive(Clone, Debug)]
pub struct List {
    /// Namespace; none for all.
    pub namespace: Option<String>,
    /// Whether it is to be of the newest state.
    pub is_newest: bool,
    /// The version that was asked for exactly.
    pub exact: Option<u64>,
    /// When the first page was asked for, and when the last one came.
    pub sent_us: u64,
    /// When the last page came.
    pub done_us: u64,
    /// Its version.
    pub version: u64,
    /// What is in it.
    pub items: Vec<(Key, State)>,
}

/// What a watcher saw, from a list on and over all its connections.
#[derive(Clone, Debug)]
pub struct Feed {
    /// Who.
    pub client: TaskId,
    /// Namespace; none for all.
    pub namespace: Option<String>,
    /// Version of the list.
    pub start: u64,
    /// Version that it has seen everything up to.
    pub seen: u64,
    /// Events, as they came.
    pub events: Vec<Seen>,
    /// Whether it goes on to the end of the run.
    pub is_open: bool,
}

/// An event of a watch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Seen {
    /// When it came, in microseconds.
    pub at_us: u64,
    /// Of which Lease.
    pub key: Key,
    /// What it says.
    pub kind: SeenKind,
    /// The state; of a deletion the last one with the version of the deletion.
    pub state: State,
}

/// What an event says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SeenKind {
    /// ADDED.
    Added,
    /// DELETED.
    Deleted,
    /// MODIFIED.
    Modified,
}

/// Time in which somebody believed to lead.
#[derive(Clone, Debug)]
pub struct Term {
    /// Which lock.
    pub lock: Key,
    /// Who.
    pub client: TaskId,
    /// From when, in microseconds of true time.
    pub from_us: u64,
    /// Until when.
    pub until_us: u64,
}

/// All of it.
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
    /// When devices were full: from when until when.
    pub full: Vec<(u64, u64)>,
    /// What clients found wrong by themselves.
    pub complaints: Vec<String>,
    /// What did not go on, though all faults were over.
    pub stalls: Vec<String>,
    /// How often what happened that is worth a count.
    pub counts: Counts,
}

/// How often what happened, by name.
pub type Counts = BTreeMap<&'static str, u64>;

impl History {
    /// A request is sent.
    pub fn begin(&mut self, client: TaskId, kind: Kind, key: Key, tag: u64, base: Base, now_us: u64) -> OpId {
        let (sent_us, done_us) = (now_us, u64::MAX);
        self.ops.push(Op { client, kind, key, tag, base, sent_us, done_us, outcome: Outcome::Unknown });
        OpId(self.ops.len() - 1)
    }

    /// A request has its answer. `name` is what the server called the Lease.
    pub fn end(&mut self, id: OpId, outcome: Outcome, name: Option<Key>, now_us: u64) {
        let op = &mut self.ops[id.0];
        op.done_us = if outcome == Outcome::Unknown { u64::MAX } else { now_us };
        op.outcome = outcome;
        if let Some(key) = name {
            op.key = key;
        }
    }
}
