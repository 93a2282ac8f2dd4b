//! The checker: could a correct server have sent all these responses and events?
//!
//! The checker uses only the guarantees of the Kubernetes API. An acknowledged write exists and has its own
//! resourceVersion. The order of these versions agrees with the order in time. Therefore the versions propose an order
//! of all writes, and the checker only verifies this order. That proves the linearizability of each Lease without a
//! search.
//!
//! ```text
//!   answers, events ──► states by version ──► replay: each state follows from the previous one ──► reads: seen in time
//!                                         └─► watchers: each state of the scope once, in order
//! ```
//!
//! The history is divided into epochs. An epoch ends with a list of all Leases while no client writes. The version of
//! this list is the epoch's boundary. After an epoch, the checker keeps only the last state of each Lease and, for each
//! version, its Lease and a hash of its content.

mod explain;
mod reads;
mod replay;
mod states;
mod watchers;

#[cfg(test)]
mod tests;

use crate::history::{Key, Nanos, Op, Scope, Seen, Watched};
use foldhash::fast::RandomState;
use replay::Point;
use states::State;
use std::collections::{BTreeMap, HashMap, HashSet, VecDeque};

/// A map with a fast hash.
type Map<K, V> = HashMap<K, V, RandomState>;

/// Kind of a violation. The summary of the run shows its name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum Kind {
    /// The effect of a write is missing, although the write was acknowledged, or a response or an event had shown its
    /// effect.
    Lost,
    /// A state or a deletion exists that no client's write explains.
    Invented,
    /// One version has two contents, two Leases or two event types, or a list contains a Lease twice.
    TwoContents,
    /// A write was sent after the effect of another write was seen, but has a lower version. Or a version is assigned
    /// twice.
    VersionOrder,
    /// A read shows an outdated state: before the read began, a response or an event had shown a later state.
    StaleRead,
    /// A write took effect on another state than its precondition requires, such as a POST of an existing Lease.
    Precondition,
    /// A new Lease has the uid of an earlier Lease. Or a change gives a Lease another uid, or changes a deleted Lease.
    OldUid,
    /// The server answered 409, although no state of the Lease conflicts with the request.
    FalseRefusal,
    /// A watcher did not receive an event.
    Missed,
    /// A watcher received an event twice or out of order.
    Twice,
    /// A watch got 410 for a version that is still in the watch window (the last events, which the server must keep).
    Gone,
    /// The server violated the protocol, did not start, did not answer, acknowledged no write, or ended by itself or
    /// with an error status.
    Server,
}

/// Violations by kind: the count, and descriptions of the first ones.
#[derive(Clone, Debug, Default)]
pub(crate) struct Violations {
    kinds: BTreeMap<Kind, (u64, Vec<String>)>,
}

impl Violations {
    /// Adds a violation.
    pub(crate) fn add(&mut self, kind: Kind, text: String) {
        let (count, texts) = self.kinds.entry(kind).or_default();
        *count += 1;
        if texts.len() < TEXTS_MAX {
            texts.push(text);
        }
    }

    /// Adds all violations of `other` to these.
    pub(crate) fn append(&mut self, other: Self) {
        for (kind, (count, texts)) in other.kinds {
            let own = self.kinds.entry(kind).or_default();
            own.0 += count;
            own.1.extend(texts);
        }
    }

    /// Whether there are no violations.
    pub(crate) fn is_empty(&self) -> bool {
        self.kinds.is_empty()
    }

    /// Returns each kind of violation, with its number and the descriptions of the first ones.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (Kind, u64, &[String])> {
        self.kinds.iter().map(|(kind, (count, texts))| (*kind, *count, texts.as_slice()))
    }
}

/// Maximum number of violations of one kind that are described. Later violations mostly follow from the first.
const TEXTS_MAX: usize = 3;

/// The operations of all clients between two lists of all Leases.
#[derive(Debug, Default)]
pub(crate) struct Epoch {
    pub(crate) ops: Vec<Op>,
    /// Version of the list of all Leases that ends the epoch.
    pub(crate) boundary: u64,
    /// The line that the server logged about its store, at its last start before the list that ends the epoch. In a run
    /// with replicas, it is the line of the first running replica. Descriptions of violations quote this line.
    pub(crate) log_line: String,
}

/// The last known state of a Lease.
#[derive(Clone, Copy, Debug)]
struct Current {
    /// The last state. After a deletion, the state before the deletion, with the version of the deletion.
    seen: Seen,
    is_deleted: bool,
    /// When a response or event first showed the Lease after its creation. A deletion of the collection that is sent
    /// later must delete the Lease.
    created_known: Nanos,
}

/// What the checker remembers of a version for the whole run, to compare later responses and events with it.
#[derive(Clone, Copy, Debug)]
struct Fact {
    key: Key,
    hash: u64,
}

/// The checker: the last state of each Lease, the facts about all versions, and the violations found so far.
#[derive(Debug, Default)]
pub(crate) struct Checker {
    table: Map<Key, Current>,
    /// The facts about all states of earlier epochs, by version.
    facts: BTreeMap<u64, Fact>,
    uids: HashSet<u128, RandomState>,
    watchers: Vec<watchers::Cursor>,
    /// Size of the server's event log, in events. A watch that is behind by at most this many events must resume
    /// without 410.
    window: usize,
    boundary: u64,
    /// Latest send time of a checked write, in nanoseconds since the start of the run, and the version of this write.
    latest: (Nanos, u64),
    log_line: String,
    pub(crate) violations: Violations,
    pub(crate) counts: Counts,
}

/// Counts of what the checker has compared.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Counts {
    /// Number of states of Leases, each with its own version.
    pub(crate) states: u64,
    /// Number of operations with an unknown outcome (no answer, or an error 5xx) that took effect.
    pub(crate) unknown_done: u64,
    /// Number of events that were compared with the states.
    pub(crate) events: u64,
    /// Number of 410 responses that were correct: the version was no longer in the server's watch window (its last
    /// events).
    pub(crate) gone_beyond_window: u64,
    /// Number of lists that were compared with the known states.
    pub(crate) lists: u64,
}

impl Checker {
    /// Creates the checker of a run with an empty store and one watcher for each scope. `window` is the number of
    /// events of the server's watch window.
    pub(crate) fn new(scopes: &[Scope], window: u32) -> Self {
        let watchers = scopes.iter().map(|&scope| watchers::Cursor::new(scope)).collect();
        Self { watchers, window: usize::try_from(window).unwrap_or(usize::MAX), ..Self::default() }
    }

    /// Adds new records of a watcher, which the check of the next epoch uses.
    pub(crate) fn watched(&mut self, watcher: usize, entries: impl IntoIterator<Item = Watched>) {
        if let Some(cursor) = self.watchers.get_mut(watcher) {
            cursor.pending.extend(entries);
        }
    }

    /// Checks an epoch. Before the call, all events of all watchers up to the epoch's boundary must have been added.
    pub(crate) fn check(&mut self, epoch: &Epoch) {
        self.log_line.clone_from(&epoch.log_line);
        let mut states = self.gather(epoch);
        let timelines = self.replay(epoch, &mut states);
        self.check_reads(epoch, &timelines);
        self.check_watchers(&states, epoch.boundary);
        let facts = states.iter().map(|State { seen, .. }| (seen.version, Fact { key: seen.key, hash: seen.hash }));
        self.facts.extend(facts);
        self.counts.states += states.len() as u64;
        self.boundary = epoch.boundary;
    }

    fn complain(&mut self, kind: Kind, text: String) {
        let line = &self.log_line;
        let text = if line.is_empty() { text } else { format!("{text}\n    log of the server's start: {line}") };
        self.violations.add(kind, text);
    }
}

/// For each Lease, its states in an epoch, in order. The first state is the last one of the previous epoch.
type Timelines = Map<Key, Vec<Point>>;
/// Records of a watcher that are not checked yet.
type Pending = VecDeque<Watched>;
