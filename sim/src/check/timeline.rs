//! The timeline: all resourceVersions that clients have seen, in order, with bounds for the time of each write.

use super::history::{History, Key, Kind, Op, Outcome, SeenKind, State};
use std::collections::{BTreeMap, BTreeSet};

/// One resourceVersion, with the state that it names.
#[derive(Clone, Debug)]
pub(super) struct Entry {
    pub(super) version: u64,
    pub(super) key: Key,
    /// State of the Lease at this version; for a deletion, the state before the deletion.
    pub(super) state: State,
    pub(super) is_deleted: bool,
    /// Time at which a client first saw the version, in microseconds since the start of the run. The write happened
    /// before this time.
    pub(super) known_us: u64,
    /// Send time of the earliest request that can have caused the version, in microseconds since the start of the run.
    /// The write happened after this time.
    pub(super) sent_us: u64,
}

/// All resourceVersions that clients have seen.
#[derive(Debug, Default)]
pub(super) struct Timeline {
    /// One entry for each version, in the order of the versions.
    pub(super) entries: Vec<Entry>,
    /// For each Lease, the indexes of its entries.
    pub(super) chains: BTreeMap<Key, Vec<usize>>,
    /// Ranges of versions, each from (exclusive) and to (inclusive), of which a watcher of all namespaces has seen
    /// every event.
    covered: Vec<(u64, u64)>,
}

impl Timeline {
    /// Builds the timeline of a history. Adds contradictions between observations to `complaints`.
    pub(super) fn of(history: &History, by_tag: &BTreeMap<u64, &Op>, complaints: &mut Vec<String>) -> Self {
        let mut found: BTreeMap<u64, Entry> = BTreeMap::new();
        let mut see = |key: &Key, state: &State, is_deleted: bool, at_us: u64| {
            let entry = found.entry(state.version).or_insert_with(|| Entry {
                version: state.version,
                key: key.clone(),
                state: state.clone(),
                is_deleted,
                known_us: at_us,
                sent_us: 0,
            });
            entry.known_us = entry.known_us.min(at_us);
            if (&entry.key, &entry.state, entry.is_deleted) != (key, state, is_deleted) {
                complaints.push(format!(
                    "version {} has two states: {}, and {}",
                    state.version,
                    shown(&entry.key, &entry.state, entry.is_deleted),
                    shown(key, state, is_deleted)
                ));
            }
        };
        for op in &history.ops {
            if let (Outcome::State(state), true) = (&op.outcome, op.kind != Kind::Dry) {
                see(&op.key, state, false, op.done_us);
            }
        }
        for list in &history.lists {
            list.items.iter().for_each(|(key, state)| see(key, state, false, list.done_us));
        }
        for feed in &history.feeds {
            for seen in &feed.events {
                see(&seen.key, &seen.state, seen.kind == SeenKind::Deleted, seen.at_us);
            }
        }
        let mut timeline = Self { entries: found.into_values().collect(), ..Self::default() };
        for (index, entry) in timeline.entries.iter().enumerate() {
            timeline.chains.entry(entry.key.clone()).or_default().push(index);
        }
        let whole = history.feeds.iter().filter(|feed| feed.namespace.is_none());
        timeline.covered = whole.map(|feed| (feed.start, feed.seen)).collect();
        timeline.merge();
        timeline.set_sent(history, by_tag, complaints);
        timeline
    }

    fn merge(&mut self) {
        self.covered.sort_unstable();
        let mut merged: Vec<(u64, u64)> = Vec::new();
        for (start, end) in std::mem::take(&mut self.covered) {
            match merged.last_mut() {
                Some((_, last)) if start <= *last => *last = end.max(*last),
                _ => merged.push((start, end)),
            }
        }
        self.covered = merged;
    }

    /// Sets `sent_us` of each version: the send time of the earliest request that can have caused it. For a deletion,
    /// also lowers `known_us` if the response to the deleting request arrived before the first event.
    fn set_sent(&mut self, history: &History, by_tag: &BTreeMap<u64, &Op>, complaints: &mut Vec<String>) {
        let deletions: Vec<&Op> = history
            .ops
            .iter()
            .filter(|op| matches!(op.kind, Kind::Delete | Kind::DeleteCollection))
            .filter(|op| !matches!(op.outcome, Outcome::Refused(_)) || op.kind == Kind::DeleteCollection)
            .collect();
        for entry in &mut self.entries {
            if !entry.is_deleted {
                entry.sent_us = by_tag.get(&entry.state.tag).map_or(0, |op| op.sent_us);
                continue;
            }
            let is_of = |op: &&&Op| {
                op.key == entry.key || op.kind == Kind::DeleteCollection && op.key.namespace == entry.key.namespace
            };
            match deletions.iter().filter(is_of).map(|op| op.sent_us).min() {
                Some(sent_us) => entry.sent_us = sent_us,
                None => {
                    complaints.push(format!("no client deleted {} at version {}", named(&entry.key), entry.version));
                }
            }
            for op in deletions.iter().filter(is_of) {
                if let Outcome::Deleted(uids) = &op.outcome
                    && uids.contains(&entry.state.uid)
                {
                    entry.known_us = entry.known_us.min(op.done_us);
                }
            }
        }
    }

    /// Whether the timeline contains every version after `start`, up to `end`.
    pub(super) fn is_covered(&self, start: u64, end: u64) -> bool {
        start >= end || self.covered.iter().any(|(from, to)| *from <= start && end <= *to)
    }

    /// Returns the entries of a Lease in the order of their versions.
    pub(super) fn chain(&self, key: &Key) -> impl DoubleEndedIterator<Item = &Entry> + Clone {
        let indexes = self.chains.get(key).map(Vec::as_slice).unwrap_or_default();
        indexes.iter().map(|index| &self.entries[*index])
    }

    /// Returns the newest resourceVersion that any client has seen.
    pub(super) fn last_version(&self) -> u64 {
        self.entries.last().map_or(0, |entry| entry.version)
    }

    /// Returns the UIDs of all Leases whose deletion a watcher has seen.
    pub(super) fn deleted_uids(&self) -> BTreeSet<&str> {
        self.entries.iter().filter(|entry| entry.is_deleted).map(|entry| entry.state.uid.as_str()).collect()
    }
}

/// Returns the name of a Lease for a complaint.
pub(super) fn named(key: &Key) -> String {
    format!("{}/{}", key.namespace, key.name)
}

fn shown(key: &Key, state: &State, is_deleted: bool) -> String {
    let what = if is_deleted { "deleted" } else { "written" };
    format!("{} {what} by request {} with hash {:x}", named(key), state.tag % 1_000_000_000_000, state.hash % 65_536)
}
