//! The checker: could one correct table of Leases have given all these responses and events?
//!
//! The checker uses only the guarantees of the Kubernetes API. An acknowledged write exists and has its own version.
//! The order of versions agrees with the order in time. Versions therefore propose an order of all writes, and the
//! checker only verifies this order. That proves linearizability of each Lease without a search.
//!
//! ```text
//!   answers, events ──► states by version ──► replay: each state follows from the previous one ──► reads: seen in time
//!                                         └─► watchers: each state of the scope once, in order
//! ```
//!
//! The history is divided into epochs. An epoch ends with a list of all Leases while no client writes. The list's
//! version is the boundary. After an epoch the checker keeps only the table, and one fact for each version.

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
use std::collections::{BTreeMap, HashMap, HashSet, VecDeque};

/// A map with a fast hash.
type Map<K, V> = HashMap<K, V, RandomState>;

/// Kind of a violation, as a name for tests and counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum Kind {
    /// An acknowledged write is missing.
    Lost,
    /// A state exists that no client wrote.
    Invented,
    /// One version has two contents, two Leases or two event types.
    TwoContents,
    /// A version is lower than an earlier one.
    VersionOrder,
    /// A read misses a write that was acknowledged before it began.
    StaleRead,
    /// A write replaced another version than its precondition names.
    Precondition,
    /// A new Lease has the uid of an earlier Lease.
    OldUid,
    /// The server refused a request without a reason.
    FalseRefusal,
    /// A watcher missed an event.
    Missed,
    /// A watcher received an event twice or out of order.
    Twice,
    /// A watch got 410 for a version in the watch window.
    Gone,
    /// The server violated the protocol or did not start.
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

    /// Returns each kind with its count and the descriptions of the first ones.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (Kind, u64, &[String])> {
        self.kinds.iter().map(|(kind, (count, texts))| (*kind, *count, texts.as_slice()))
    }
}

/// Number of violations of a kind that are described. Later ones mostly follow from the first.
const TEXTS_MAX: usize = 3;

/// Operations between two lists of all Leases.
#[derive(Debug, Default)]
pub(crate) struct Epoch {
    pub(crate) ops: Vec<Op>,
    /// Version of the list of all Leases, the epoch's last operation.
    pub(crate) boundary: u64,
    /// Log line of the server's last start before the list of all Leases.
    pub(crate) log_line: String,
}

/// Latest state of a Lease.
#[derive(Clone, Copy, Debug)]
struct Current {
    /// Last state; for a deletion, with the deletion's version.
    seen: Seen,
    is_deleted: bool,
    /// When the state that created the Lease was first seen.
    created_known: Nanos,
}

/// The facts about a version, kept for the whole run.
#[derive(Clone, Copy, Debug)]
struct Fact {
    key: Key,
    hash: u64,
}

/// The checker: see the module.
#[derive(Debug, Default)]
pub(crate) struct Checker {
    table: Map<Key, Current>,
    facts: Map<u64, Fact>,
    /// All versions, in ascending order.
    versions: Vec<u64>,
    uids: HashSet<u128, RandomState>,
    watchers: Vec<watchers::Cursor>,
    /// Number of events within which a watch must resume without 410.
    window: usize,
    boundary: u64,
    /// When the write that began last was sent, with its version.
    latest: (Nanos, u64),
    log_line: String,
    pub(crate) violations: Violations,
    pub(crate) counts: Counts,
}

/// Counts of the checker.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Counts {
    /// Number of states, each with its own version.
    pub(crate) states: u64,
    /// Number of operations with an unknown outcome that took effect.
    pub(crate) unknown_done: u64,
    /// Number of events that were compared.
    pub(crate) events: u64,
    /// Number of responses 410 for versions beyond the watch window.
    pub(crate) gone_beyond_window: u64,
    /// Number of lists that were compared with the table.
    pub(crate) lists: u64,
}

impl Checker {
    /// Creates the checker of an empty store, for these watchers and a server that keeps `window` events.
    pub(crate) fn new(scopes: &[Scope], window: u32) -> Self {
        let watchers = scopes.iter().map(|&scope| watchers::Cursor::new(scope)).collect();
        Self { watchers, window: usize::try_from(window).unwrap_or(usize::MAX), ..Self::default() }
    }

    /// Adds the new records of a watcher.
    pub(crate) fn watched(&mut self, watcher: usize, entries: impl IntoIterator<Item = Watched>) {
        if let Some(cursor) = self.watchers.get_mut(watcher) {
            cursor.pending.extend(entries);
        }
    }

    /// Checks an epoch. All events of all watchers up to its boundary must have been added.
    pub(crate) fn check(&mut self, epoch: &Epoch) {
        self.log_line.clone_from(&epoch.log_line);
        let mut states = self.gather(epoch);
        let timelines = self.replay(epoch, &mut states);
        self.check_reads(epoch, &timelines);
        self.check_watchers(&states, epoch.boundary);
        for state in &states {
            self.facts.insert(state.seen.version, Fact { key: state.seen.key, hash: state.seen.hash });
            self.versions.push(state.seen.version);
        }
        self.counts.states += states.len() as u64;
        self.boundary = epoch.boundary;
    }

    fn complain(&mut self, kind: Kind, text: String) {
        let line = &self.log_line;
        let text = if line.is_empty() { text } else { format!("{text}\n    log of the server's start: {line}") };
        self.violations.add(kind, text);
    }
}

/// States of each Lease in an epoch, in order. The first state is from the previous epoch.
type Timelines = Map<Key, Vec<Point>>;
/// Records of a watcher that belong to later epochs.
type Pending = VecDeque<Watched>;
