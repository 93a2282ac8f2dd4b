//! The checker: is what was answered and watched the history of one honest table?
//!
//! It knows nothing of the server but the promises of the Kubernetes API: a write that is acknowledged is there, has a
//! version of its own, and versions have the order of time. The versions are so a proposed order of all writes, and the
//! checker has only to verify it (linearizability per Lease, without a search):
//!
//! ```text
//!   answers, events ──► states by version ──► replay: each follows from the one before ──► reads: seen in time
//!                                         └─► watchers: each state in scope, once, in order
//! ```
//!
//! It works in epochs. An epoch ends with a list of everything while nobody writes: its version is the boundary. After
//! an epoch only the table, and one fact for each version, are kept.

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

/// What is wrong, as a name for tests and for counting.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum Kind {
    /// An acknowledged state is not there.
    Lost,
    /// A state is there that nobody can have written.
    Invented,
    /// Two contents, two Leases or two types of one version.
    TwoContents,
    /// A version is lower than one that was given before.
    VersionOrder,
    /// A read does not see what was acknowledged before it began.
    StaleRead,
    /// A write took another version than the one that was its precondition.
    Precondition,
    /// A uid that was there before.
    OldUid,
    /// A refusal without a reason.
    FalseRefusal,
    /// A watcher missed an event.
    Missed,
    /// A watcher had an event twice, or out of order.
    Twice,
    /// 410 for a version in the window.
    Gone,
    /// The server broke the protocol or did not start.
    Server,
}

/// What no honest server does: how often, and the first ones of each kind in words.
#[derive(Clone, Debug, Default)]
pub(crate) struct Violations {
    kinds: BTreeMap<Kind, (u64, Vec<String>)>,
}

impl Violations {
    /// Adds one.
    pub(crate) fn add(&mut self, kind: Kind, text: String) {
        let (count, texts) = self.kinds.entry(kind).or_default();
        *count += 1;
        if texts.len() < TEXTS_MAX {
            texts.push(text);
        }
    }

    /// Adds all of another.
    pub(crate) fn append(&mut self, other: Self) {
        for (kind, (count, texts)) in other.kinds {
            let own = self.kinds.entry(kind).or_default();
            own.0 += count;
            own.1.extend(texts);
        }
    }

    /// Whether there is none.
    pub(crate) fn is_empty(&self) -> bool {
        self.kinds.is_empty()
    }

    /// Of each kind, how many there are, and the first ones.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (Kind, u64, &[String])> {
        self.kinds.iter().map(|(kind, (count, texts))| (*kind, *count, texts.as_slice()))
    }
}

/// So many of a kind are kept in words: those after the first ones mostly follow from them.
const TEXTS_MAX: usize = 3;

/// What happened between two lists of everything.
#[derive(Debug, Default)]
pub(crate) struct Epoch {
    pub(crate) ops: Vec<Op>,
    /// Version of the list at the end, which is the last of the operations.
    pub(crate) boundary: u64,
    /// What the server said at the start before that list.
    pub(crate) log_line: String,
}

/// The state of a Lease after the last one that was looked at.
#[derive(Clone, Copy, Debug)]
struct Current {
    /// Of a deletion: the last state, with the deletion's version.
    seen: Seen,
    is_deleted: bool,
    /// When somebody knew first of the creation.
    created_known: Nanos,
}

/// What is kept of a version for ever.
#[derive(Clone, Copy, Debug)]
struct Fact {
    key: Key,
    hash: u64,
}

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct Checker {
    table: Map<Key, Current>,
    facts: Map<u64, Fact>,
    /// All versions, in order.
    versions: Vec<u64>,
    uids: HashSet<u128, RandomState>,
    watchers: Vec<watchers::Cursor>,
    /// Events from which a watch must resume without 410.
    window: usize,
    boundary: u64,
    /// The latest begin of a write so far, with its version.
    latest: (Nanos, u64),
    log_line: String,
    pub(crate) violations: Violations,
    pub(crate) counts: Counts,
}

/// What the checker has counted.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Counts {
    /// States, each of a version of its own.
    pub(crate) states: u64,
    /// Unknown operations that were done.
    pub(crate) unknown_done: u64,
    /// Events of watchers that were compared.
    pub(crate) events: u64,
    /// 410 for a version that the window had lost.
    pub(crate) gone_beyond_window: u64,
    /// Comparisons of a list with the table.
    pub(crate) lists: u64,
}

impl Checker {
    /// A checker of a store that is empty, with these watchers, of a server that keeps `window` events.
    pub(crate) fn new(scopes: &[Scope], window: u32) -> Self {
        let watchers = scopes.iter().map(|&scope| watchers::Cursor::new(scope)).collect();
        Self { watchers, window: usize::try_from(window).unwrap_or(usize::MAX), ..Self::default() }
    }

    /// Takes in what a watcher has recorded since the last time.
    pub(crate) fn watched(&mut self, watcher: usize, entries: impl IntoIterator<Item = Watched>) {
        if let Some(cursor) = self.watchers.get_mut(watcher) {
            cursor.pending.extend(entries);
        }
    }

    /// Checks an epoch, of which all watchers have given all events.
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
        let text = if line.is_empty() { text } else { format!("{text}\n    the server at its start: {line}") };
        self.violations.add(kind, text);
    }
}

/// The states of one Lease in an epoch, in order. The first one is from before.
type Timelines = Map<Key, Vec<Point>>;
/// Entries of a watcher that wait for their epoch.
type Pending = VecDeque<Watched>;
