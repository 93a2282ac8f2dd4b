//! Replays the states of an epoch in the order of their versions. Each state needs a write that made it. It must follow
//! from the Lease's previous state, and fit the order in time. Each list is compared with the replayed states at the
//! list's version.

use super::states::State;
use super::{Checker, Current, Epoch, Kind, Map, Timelines, explain};
use crate::history::{Action, EventKind, Key, Nanos, Op, Outcome, Seen, Space};
use foldhash::fast::RandomState;
use std::collections::HashSet;

/// A state of one Lease at one version, for the checks of reads.
#[derive(Clone, Copy, Debug)]
pub(super) struct Point {
    pub(super) version: u64,
    pub(super) uid: u128,
    pub(super) is_present: bool,
    /// When the write that made this state was sent.
    pub(super) begin: Nanos,
    /// When a response or event first showed this state of the Lease, or a later one.
    pub(super) known: Nanos,
}

/// The writes of an epoch that can have taken effect. To find the write behind a state, the replay looks up POST, PUT
/// and PATCH by number, and deletions by Lease.
struct Writers<'a> {
    by_id: Map<u64, &'a Op>,
    /// Numbers of the writes whose effect the replay has found.
    used: HashSet<u64, RandomState>,
    deletions: Map<(Key, u128), Vec<&'a Op>>,
    collections: Vec<&'a Op>,
}

impl<'a> Writers<'a> {
    fn of(ops: &'a [Op]) -> Self {
        let mut by_id = Map::default();
        let mut deletions = Map::<_, Vec<_>>::default();
        let mut collections = Vec::new();
        for op in ops.iter().filter(|op| op.is_acknowledged() || op.outcome == Outcome::Unknown) {
            match op.action {
                Action::Create(_) | Action::Put { .. } | Action::Patch(_) => {
                    by_id.insert(op.id, op);
                }
                Action::Delete { key, uid, .. } => deletions.entry((key, uid)).or_default().push(op),
                Action::DeleteCollection(_) => collections.push(op),
                Action::Get(_) | Action::List(_) => {}
            }
        }
        Self { by_id, used: HashSet::default(), deletions, collections }
    }
}

impl Checker {
    /// Replays the states of the epoch, and checks each state and each list. Returns the states of each Lease.
    pub(super) fn replay(&mut self, epoch: &Epoch, states: &mut [State]) -> Timelines {
        let mut writers = Writers::of(&epoch.ops);
        let mut timelines = Timelines::default();
        for op in &epoch.ops {
            if let Some(key) = op.action.key() {
                timelines.entry(key).or_insert_with(|| vec![self.first_point(key)]);
            }
        }
        let mut lists: Vec<_> = epoch.ops.iter().filter(|op| matches!(op.outcome, Outcome::List { .. })).collect();
        lists.sort_by_key(|op| list_version(op));
        let mut lists = lists.into_iter().peekable();
        for state in &mut *states {
            while let Some(list) = lists.next_if(|op| list_version(op) < state.seen.version) {
                self.check_list(list, epoch);
            }
            let begin = self.follow(state, &mut writers);
            let first = self.first_point(state.seen.key);
            self.apply(state);
            if state.known < self.latest.0 {
                let (begin, version) = self.latest;
                let text = format!(
                    "{} was known at {}, but the lower version {version} was written by a request that was sent at {}",
                    explain::state(&state.seen),
                    explain::at(state.known),
                    explain::at(begin)
                );
                self.complain(Kind::VersionOrder, text);
            }
            self.latest = self.latest.max((begin, state.seen.version));
            timelines.entry(state.seen.key).or_insert_with(|| vec![first]).push(Point {
                version: state.seen.version,
                uid: state.seen.uid,
                is_present: state.kind != Some(EventKind::Deleted),
                begin,
                known: state.known,
            });
        }
        for list in lists {
            self.check_list(list, epoch);
        }
        self.check_deletions(epoch, &writers);
        for points in timelines.values_mut() {
            let mut known = Nanos::MAX;
            for point in points.iter_mut().rev() {
                known = known.min(point.known);
                point.known = known;
            }
        }
        timelines
    }

    fn first_point(&self, key: Key) -> Point {
        let current = self.table.get(&key);
        Point {
            version: current.map_or(0, |current| current.seen.version),
            uid: current.map_or(0, |current| current.seen.uid),
            is_present: current.is_some_and(|current| !current.is_deleted),
            begin: 0,
            known: 0,
        }
    }

    /// Checks that a state follows from the previous state of its Lease. Returns when the write that made the state was
    /// sent.
    fn follow(&mut self, state: &mut State, writers: &mut Writers<'_>) -> Nanos {
        let seen = state.seen;
        let before = self.table.get(&seen.key).copied().filter(|current| !current.is_deleted);
        let writer = writers.by_id.get(&seen.op).copied();
        if state.kind.is_none() {
            let is_creation = writer.is_some_and(|op| matches!(op.action, Action::Create(_)));
            state.kind = Some(if is_creation { EventKind::Added } else { EventKind::Modified });
        }
        let told = explain::state(&seen);
        match (state.kind, before) {
            (Some(EventKind::Added), None) => {
                let is_new = self.uids.insert(seen.uid);
                if !is_new {
                    self.complain(Kind::OldUid, format!("{told}: created with a uid that was used before"));
                }
            }
            (Some(EventKind::Added), Some(before)) => {
                let text = format!("{told}: created, but {} existed", explain::state(&before.seen));
                self.complain(Kind::Precondition, text);
            }
            (_, None) => {
                self.complain(Kind::OldUid, format!("{told}: it changes a Lease that was deleted or never existed"));
            }
            (_, Some(before)) if before.seen.uid != seen.uid => {
                self.complain(
                    Kind::OldUid,
                    format!("{told}: the uid differs from that of {}", explain::state(&before.seen)),
                );
            }
            _ => {}
        }
        if state.kind == Some(EventKind::Deleted) {
            return self.follow_deletion(state, before.map(|before| before.seen.version), writers);
        }
        let Some(op) = writer.filter(|op| op.action.key() == Some(seen.key)) else {
            self.complain(Kind::Invented, format!("{told}: no client wrote it, or the write was refused"));
            return 0;
        };
        if let Outcome::Lease(acknowledged) = &op.outcome
            && acknowledged.version != seen.version
        {
            self.complain(Kind::Invented, format!("{told}: {}", explain::op(op)));
        }
        if !writers.used.insert(op.id) {
            self.complain(Kind::Invented, format!("{told}: the operation took effect twice; {}", explain::op(op)));
        }
        self.counts.unknown_done += u64::from(op.outcome == Outcome::Unknown);
        let holder = match op.action {
            Action::Patch(_) => before.map_or(seen.holder, |before| before.seen.holder),
            _ => op.client,
        };
        if holder != seen.holder {
            let text = format!("{told}: the holder must be client-{holder}; {}", explain::op(op));
            self.complain(Kind::Invented, text);
        }
        if let (Action::Put { from, .. }, Some(before)) = (op.action, before)
            && before.seen.version != from
        {
            let text = format!("{}: but the version before was {}", explain::op(op), before.seen.version);
            self.complain(Kind::Precondition, text);
        }
        self.check_sent(state, op);
        op.begin
    }

    /// Checks that the request that made a state was sent before the state was seen.
    fn check_sent(&mut self, state: &State, op: &Op) {
        if state.known < op.begin {
            let told = explain::state(&state.seen);
            self.complain(Kind::Invented, format!("{told}: seen before its request was sent; {}", explain::op(op)));
        }
    }

    fn follow_deletion(&mut self, state: &mut State, before: Option<u64>, writers: &mut Writers<'_>) -> Nanos {
        let seen = state.seen;
        let deletions = writers.deletions.get(&(seen.key, seen.uid)).map_or(&[][..], Vec::as_slice);
        let mut acknowledged = deletions.iter().filter(|op| op.is_acknowledged());
        if let Some(op) = acknowledged.next() {
            if let Some(other) = acknowledged.next() {
                let text = format!("one Lease was deleted twice: {}; {}", explain::op(op), explain::op(other));
                self.complain(Kind::Precondition, text);
            }
            if matches!(op.action, Action::Delete { from: Some(from), .. } if before.is_some_and(|v| v != from)) {
                let text = format!("{}: but the version before was {before:?}", explain::op(op));
                self.complain(Kind::Precondition, text);
            }
            self.check_sent(state, op);
            writers.used.insert(op.id);
            state.known = state.known.min(op.end);
            return op.begin;
        }
        let fits = |op: &&Op| {
            let is_of = match op.action {
                Action::Delete { from, .. } => from.is_none() || from == before,
                Action::DeleteCollection(space) => space == seen.key.space,
                _ => false,
            };
            is_of && op.begin <= state.known
        };
        let candidates = deletions.iter().chain(&writers.collections).copied().filter(fits);
        let Some(begin) = candidates.map(|op| op.begin).min() else {
            self.complain(Kind::Invented, format!("{} was deleted without a request", explain::state(&seen)));
            return 0;
        };
        self.counts.unknown_done += u64::from(seen.key.space != Space::Sweep);
        begin
    }

    fn apply(&mut self, state: &State) {
        let seen = state.seen;
        let is_deleted = state.kind == Some(EventKind::Deleted);
        let current = self.table.entry(seen.key).or_insert(Current { seen, is_deleted, created_known: state.known });
        if state.kind == Some(EventKind::Added) {
            current.created_known = state.known;
        }
        (current.seen, current.is_deleted) = (seen, is_deleted);
    }

    /// Checks that each acknowledged deletion took effect.
    fn check_deletions(&mut self, epoch: &Epoch, writers: &Writers<'_>) {
        for op in epoch.ops.iter().filter(|op| op.outcome == Outcome::Deleted) {
            match op.action {
                Action::Delete { .. } if !writers.used.contains(&op.id) => {
                    self.complain(Kind::Lost, format!("{}: no watcher has seen the deletion", explain::op(op)));
                }
                Action::DeleteCollection(space) => {
                    let is_left = |current: &&Current| {
                        current.seen.key.space == space && !current.is_deleted && current.created_known < op.begin
                    };
                    if let Some(left) = self.table.values().find(is_left) {
                        let text = format!("{}: {} still exists", explain::op(op), explain::state(&left.seen));
                        self.complain(Kind::Lost, text);
                    }
                }
                _ => {}
            }
        }
    }

    /// Compares a list with the replayed states at the list's version. If the list that ends the epoch differs, it
    /// replaces the replayed states. So later epochs do not report the same difference again.
    fn check_list(&mut self, op: &Op, epoch: &Epoch) {
        let (Action::List(space), Outcome::List { version, items }) = (op.action, &op.outcome) else { return };
        self.counts.lists += 1;
        let mut complaints = Vec::new();
        let mut listed = HashSet::<Key, RandomState>::default();
        for seen in items {
            if !listed.insert(seen.key) {
                complaints.push((Kind::TwoContents, format!("{} is listed twice", seen.key)));
            }
            match self.table.get(&seen.key) {
                Some(current) if !current.is_deleted && current.seen == *seen => {}
                Some(current) if current.seen.version > seen.version => {
                    let now = explain::state(&current.seen);
                    let what = if current.is_deleted { "deleted" } else { "acknowledged or watched" };
                    complaints.push((Kind::Lost, format!("found {}, but {now} was {what}", explain::state(seen))));
                }
                _ => complaints.push((Kind::Invented, format!("found {}", explain::state(seen)))),
            }
        }
        for current in self.table.values().filter(|current| !current.is_deleted) {
            let key = current.seen.key;
            if space.is_none_or(|space| space == key.space) && !listed.contains(&key) {
                complaints.push((Kind::Lost, format!("not found: {}", explain::state(&current.seen))));
            }
        }
        let is_boundary = *version == epoch.boundary && space.is_none();
        if is_boundary && !complaints.is_empty() {
            let as_listed = |seen: &Seen| Current { seen: *seen, is_deleted: false, created_known: op.end };
            self.table = items.iter().map(|seen| (seen.key, as_listed(seen))).collect();
            self.uids.extend(items.iter().map(|seen| seen.uid));
        }
        for (kind, text) in complaints {
            self.complain(kind, format!("{}: {text}", explain::op(op)));
        }
    }
}

fn list_version(op: &Op) -> u64 {
    if let Outcome::List { version, .. } = op.outcome { version } else { 0 }
}
