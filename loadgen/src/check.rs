//! The invariants of the API that a server must keep, checked against all responses and events of the server.
//!
//! - No object's resourceVersion goes back, from one response or one event to the next.
//! - No write is lost: every later response and event shows the acknowledged write, or a later write of the node. No
//!   other client writes the Lease.
//! - A renewal changes only an object's times and its version.
//! - Every watcher sees every write exactly once, in version order.
//!
//! This module stores the violations and, for each watcher and Lease, the last version and the number of writes that
//! the watcher has seen. Callers pass the state of the nodes. The versions of a watcher's events must strictly grow, so
//! the checks find a repeated event. The checks also compare a watcher's number of events of each Lease with the number
//! of writes. So they find a missing event.

use crate::node::{Form, Node, name_of};
use crate::object::Fields;
use crate::recorder::FIRST_MAX;
use crate::watcher::Kind;
use std::cmp::Ordering;
use std::collections::HashSet;
use std::fmt;

/// A violation of an invariant. `node` is the index of the node that owns the Lease. `watcher` is the watcher's number.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Violation {
    /// A write was refused with a conflict (409), though no other client writes the Lease. `version` is the Lease's
    /// version in the last response to a renewal; 0 is none.
    Conflict { node: u32, version: u64 },
    /// An acknowledged Lease is missing: the server answered 404. `version` is the Lease's version in the last
    /// response to a renewal.
    Gone { node: u32, version: u64 },
    /// A watcher's list shows `version` of a Lease (0 is none). It should show the later version `acknowledged`, since
    /// that version was acknowledged and is not above the version of the list.
    ListedStale { watcher: usize, node: u32, version: u64, acknowledged: u64 },
    /// The version of a watcher's list is below `seen`. `seen` is the watcher's last version, or the highest version
    /// acknowledged before the list's request.
    ListWentBack { watcher: usize, version: u64, seen: u64 },
    /// A watcher's events are not in version order; if `version` equals `seen`, an event was repeated.
    OutOfOrder { watcher: usize, node: Option<u32>, version: u64, seen: u64 },
    /// A watcher did not receive the event of an acknowledged write. `seen` is the version of the Lease that the
    /// watcher saw before; 0 is none.
    MissedEvent { watcher: usize, node: u32, version: u64, seen: u64 },
    /// A watcher received the event of a Lease's last write, but fewer or more events than there were writes.
    EventCount { watcher: usize, node: u32, events: u32, writes: u32 },
    /// The event of a renewal says that the Lease was created or deleted, or a creation's event says MODIFIED.
    WrongKind { watcher: usize, node: u32, version: u64, kind: Kind },
    /// The Lease in an event differs from the Lease that the node sent.
    EventDiffers { watcher: usize, node: u32, version: u64 },
    /// The Lease in a response differs from the Lease that the node sent.
    NotWhatWasSent { node: u32, version: u64 },
    /// A read shows a lower version than `known`, or the response to a write shows no higher version. `known` is the
    /// highest version that the node knew when it sent the request.
    WentBack { node: u32, version: u64, known: u64 },
    /// A response or an event shows a version that the node did not write. `acknowledged` is the version of the node's
    /// last acknowledged write.
    UnknownWrite { node: u32, version: u64, acknowledged: u64 },
}

/// A Lease as a response or an event shows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Shown {
    pub(crate) fields: Fields,
    /// The template (a text that many Leases share) that the rest of the object fits, or [`Form::Whole`] if it fits
    /// none.
    pub(crate) form: Form,
}

impl Shown {
    /// Whether this object is the result of a renewal of `before` with this `renewTime`. The first PUT after the node's
    /// POST or GET may also change other parts of the Lease, such as `managedFields`.
    fn is_renewed(&self, before: &Node, renewed: u64) -> bool {
        let Fields { uid, owner_uid, created, .. } = before.object;
        let is_same_object = !before.has_lease() || self.fields.uid == uid;
        let is_same_rest = (self.form, self.fields.owner_uid, self.fields.created) == (before.form, owner_uid, created);
        self.fields.renewed == renewed && is_same_object && (is_same_rest || !before.settled)
    }

    /// Whether this object equals the last acknowledged object of the node.
    fn is_object_of(&self, node: &Node) -> bool {
        (self.fields, self.form) == (node.object, node.form)
    }

    /// Whether the node's Lease can have, or can have had, these fields. The node stores only its last acknowledged
    /// object, and the `renewTime` that it has sent since. So an older version counts as possible, whatever its fields.
    fn can_be_of(&self, node: &Node) -> bool {
        match self.fields.version.cmp(&node.object.version) {
            Ordering::Less => true,
            Ordering::Equal => self.is_object_of(node),
            Ordering::Greater => !node.busy || self.is_renewed(node, node.sent_renewed),
        }
    }
}

/// The versions and events that one watcher has received.
#[derive(Debug)]
struct Watched {
    /// Highest version that the watcher has received: in its last list, or in a later event or bookmark.
    last: u64,
    /// For each node's Lease, the events that the watcher has received.
    leases: Vec<Seen>,
}

/// The events of one Lease that one watcher has received.
#[derive(Clone, Copy, Debug, Default)]
struct Seen {
    /// Version of the last event of the Lease, or of the Lease in the watcher's list.
    version: u64,
    /// Number of writes of the Lease that the watcher has seen, in its list or as events; [`UNCOUNTED`] if unknown.
    writes: u32,
}

/// Marks an unknown number of writes of a Lease. After a watcher's list, the number is unknown in three cases:
///
/// - The list is older than the last acknowledged write. It does not show the state that this write replaced either
///   ([`Node::base`]).
/// - The list is not older than the last acknowledged write, but does not show it. This is a violation.
/// - The list shows the Lease before the node knows whether its own POST created the Lease.
const UNCOUNTED: u32 = u32::MAX;

/// The violations found, and the state of the checks.
#[derive(Debug)]
pub(crate) struct Checker {
    watched: Vec<Watched>,
    /// Number of violations.
    count: u64,
    /// Descriptions of the first violations.
    first: Vec<String>,
    /// Watchers and nodes for which a missing event was reported. Each such pair is reported only once.
    reported: HashSet<(usize, u32)>,
    /// Highest version in any acknowledgement of a write.
    pub(crate) acknowledged_max: u64,
}

impl Checker {
    /// Creates the checks for `watchers_len` watchers and `nodes_len` nodes, before any event.
    pub(crate) fn new(watchers_len: usize, nodes_len: usize) -> Self {
        let watched = || Watched { last: 0, leases: vec![Seen::default(); nodes_len] };
        Self {
            watched: std::iter::repeat_with(watched).take(watchers_len).collect(),
            count: 0,
            first: Vec::new(),
            reported: HashSet::new(),
            acknowledged_max: 0,
        }
    }

    /// Returns the number of violations.
    pub(crate) fn count(&self) -> u64 {
        self.count
    }

    /// Returns descriptions of the first violations.
    pub(crate) fn first(&self) -> &[String] {
        &self.first
    }

    /// Whether every watcher has received the events of all acknowledged writes.
    pub(crate) fn watchers_are_level(&self) -> bool {
        self.watched.iter().all(|watched| watched.last >= self.acknowledged_max)
    }

    /// Checks the acknowledgement of a write. `before` is the node before the write, and `answer` the object in the
    /// response. `known` is the highest version of the object that the node knew when it sent the request.
    pub(crate) fn written(&mut self, node: u32, before: &Node, answer: &Shown, known: u64) {
        let version = answer.fields.version;
        self.acknowledged_max = self.acknowledged_max.max(version);
        if version <= known.max(before.object.version) {
            self.report(Violation::WentBack { node, version, known: known.max(before.object.version) });
        }
        if !answer.is_renewed(before, before.sent_renewed) {
            self.report(Violation::NotWhatWasSent { node, version });
        }
    }

    /// Checks the response to a GET of one Lease. `answer` is the object in the response. `known` is the highest
    /// version of the object that the node knew when it sent the request.
    pub(crate) fn read(&mut self, node: u32, now: &Node, answer: &Shown, known: u64) {
        let version = answer.fields.version;
        if version < known {
            self.report(Violation::WentBack { node, version, known });
        }
        if !now.foreign && now.has_lease() && !answer.can_be_of(now) {
            self.report(Violation::NotWhatWasSent { node, version });
        }
        if now.has_lease() && version > now.object.version && !now.busy && !now.uncertain && !now.foreign {
            let acknowledged = now.object.version;
            self.report(Violation::UnknownWrite { node, version, acknowledged });
        }
    }

    /// Checks an event of a watcher. `lease` is the node, and the object in the event; `None` if no node owns the
    /// Lease.
    pub(crate) fn event(
        &mut self,
        watcher: usize,
        kind: Kind,
        version: u64,
        lease: Option<(u32, &Node, Option<Shown>)>,
    ) {
        let Some(watched) = self.watched.get_mut(watcher) else { return };
        let last = watched.last;
        watched.last = last.max(version);
        if version <= last {
            let node = lease.map(|(node, ..)| node);
            self.report(Violation::OutOfOrder { watcher, node, version, seen: last });
            return;
        }
        let Some((index, node, shown)) = lease else { return };
        let Some(seen) = watched.leases.get_mut(index as usize) else { return };
        let before = std::mem::replace(&mut seen.version, version);
        let is_counted = seen.writes != UNCOUNTED;
        seen.writes += u32::from(is_counted);
        if node.foreign {
            return;
        }
        // Version of the previous write of the Lease, as far back as the node remembers. The event of that write must
        // have come before this event.
        let due_before = if version > node.object.version {
            node.object.version
        } else if version == node.object.version {
            node.base
        } else {
            0
        };
        if is_counted && before < due_before && self.reported.insert((watcher, index)) {
            self.report(Violation::MissedEvent { watcher, node: index, version: due_before, seen: before });
        }
        if kind == Kind::Deleted || (kind == Kind::Added) != (before == 0) {
            self.report(Violation::WrongKind { watcher, node: index, version, kind });
        }
        if shown.is_some_and(|shown| !shown.can_be_of(node)) {
            self.report(Violation::EventDiffers { watcher, node: index, version });
        }
    }

    /// Checks a bookmark: the server has sent all events up to `version`.
    pub(crate) fn bookmark(&mut self, watcher: usize, version: u64) {
        let Some(watched) = self.watched.get_mut(watcher) else { return };
        let last = watched.last;
        watched.last = last.max(version);
        if version < last {
            self.report(Violation::OutOfOrder { watcher, node: None, version, seen: last });
        }
    }

    /// Checks a watcher's complete list: the version of the list, and the nodes' Leases in the list. `known` is the
    /// highest version that any acknowledgement had shown when the list was requested.
    pub(crate) fn listed(
        &mut self,
        watcher: usize,
        list_version: u64,
        known: u64,
        leases: &[(u32, u64)],
        nodes: &[Node],
    ) {
        let Some(watched) = self.watched.get_mut(watcher) else { return };
        let seen = watched.last.max(known);
        watched.last = list_version;
        watched.leases.fill(Seen { version: 0, writes: 0 });
        for &(node, version) in leases {
            if let Some(lease) = watched.leases.get_mut(node as usize) {
                lease.version = version;
            }
        }
        let mut stale = Vec::new();
        for ((index, lease), node) in (0_u32..).zip(&mut watched.leases).zip(nodes) {
            lease.writes = if !node.has_lease() {
                // Only a later response shows whether the node created this Lease or found it. Until then the number of
                // the node's writes is unknown.
                let is_unknown = lease.version > 0 && (node.busy || node.uncertain);
                if is_unknown { UNCOUNTED } else { 0 }
            } else if lease.version == node.object.version {
                node.writes
            } else if lease.version > node.object.version {
                // The list shows the write in flight. Its acknowledgement has not arrived yet.
                node.writes + 1
            } else if node.object.version <= list_version {
                stale.push((index, lease.version, node.object.version));
                UNCOUNTED
            } else if lease.version == node.base {
                node.writes.saturating_sub(1)
            } else {
                UNCOUNTED
            };
        }
        if list_version < seen {
            self.report(Violation::ListWentBack { watcher, version: list_version, seen });
        }
        for (node, version, acknowledged) in stale {
            self.report(Violation::ListedStale { watcher, node, version, acknowledged });
        }
    }

    /// Checks, at the end of the run, that the watchers have received the events of all writes. The caller has waited
    /// for late events.
    pub(crate) fn finish(&mut self, nodes: &[Node]) {
        let mut found = Vec::new();
        for (watcher, watched) in self.watched.iter().enumerate() {
            for ((index, node), seen) in (0_u32..).zip(nodes).zip(&watched.leases) {
                let exempt = node.uncertain || node.foreign || self.reported.contains(&(watcher, index));
                if exempt || !node.has_lease() {
                    continue;
                }
                if seen.version < node.object.version {
                    let version = node.object.version;
                    found.push(Violation::MissedEvent { watcher, node: index, version, seen: seen.version });
                } else if seen.version > node.object.version {
                    let acknowledged = node.object.version;
                    found.push(Violation::UnknownWrite { node: index, version: seen.version, acknowledged });
                } else if seen.writes != UNCOUNTED && seen.writes != node.writes {
                    let (events, writes) = (seen.writes, node.writes);
                    found.push(Violation::EventCount { watcher, node: index, events, writes });
                }
            }
        }
        for violation in found {
            self.report(violation);
        }
    }

    /// Counts a violation, and describes it in words if it is one of the first.
    #[cold]
    pub(crate) fn report(&mut self, violation: Violation) {
        self.count += 1;
        if self.first.len() < FIRST_MAX {
            self.first.push(violation.to_string());
        }
    }
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Conflict { node, version } => {
                let name = name_of(*node);
                write!(f, "{name}: conflict at version {version}, though nobody else writes")
            }
            Self::Gone { node, version } => {
                write!(f, "{}: not found, though version {version} was acknowledged", name_of(*node))
            }
            Self::ListedStale { watcher, node, version, acknowledged } => write!(
                f,
                "{}: list of watcher {watcher} shows version {version}, though {acknowledged} was acknowledged",
                name_of(*node)
            ),
            Self::ListWentBack { watcher, version, seen } => {
                write!(f, "list of watcher {watcher} has version {version}, though {seen} was seen before")
            }
            Self::OutOfOrder { watcher, node, version, seen } => {
                let name = node.map_or_else(|| "bookmark or other object".to_owned(), name_of);
                write!(f, "{name}: watcher {watcher} got version {version} after {seen}")
            }
            Self::MissedEvent { watcher, node, version, seen } => write!(
                f,
                "{}: watcher {watcher} got no event of version {version}, which was acknowledged; it saw {seen} before",
                name_of(*node)
            ),
            Self::EventCount { watcher, node, events, writes } => {
                write!(f, "{}: watcher {watcher} got {events} events for {writes} writes", name_of(*node))
            }
            Self::WrongKind { watcher, node, version, kind } => {
                let kind = format!("{kind:?}").to_uppercase();
                write!(f, "{}: watcher {watcher} got {kind} at version {version}: a wrong event type", name_of(*node))
            }
            Self::EventDiffers { watcher, node, version } => {
                write!(
                    f,
                    "{}: watcher {watcher} got version {version} with other content than was sent",
                    name_of(*node)
                )
            }
            Self::NotWhatWasSent { node, version } => {
                write!(f, "{}: version {version} does not hold what was sent", name_of(*node))
            }
            Self::WentBack { node, version, known } => {
                write!(f, "{}: version {version} in an answer, though {known} was known before", name_of(*node))
            }
            Self::UnknownWrite { node, version, acknowledged } => write!(
                f,
                "{}: version {version} was written by nobody; {acknowledged} was acknowledged last",
                name_of(*node)
            ),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn node(base: u64, version: u64, writes: u32) -> Node {
        Node {
            object: Fields { version, renewed: version, ..Fields::default() },
            base,
            writes,
            sent_renewed: version,
            ..Node::default()
        }
    }

    /// Passes an event to the checks, without the object in the event.
    fn event(checker: &mut Checker, version: u64, lease: Option<(u32, &Node)>) {
        let kind = match lease {
            Some((index, _)) if checker.watched[0].leases[index as usize].version == 0 => Kind::Added,
            _ => Kind::Modified,
        };
        checker.event(0, kind, version, lease.map(|(index, node)| (index, node, None)));
    }

    fn checker() -> Checker {
        Checker::new(1, 2)
    }

    #[test]
    fn events_received_once_and_in_order_cause_no_violation() {
        let mut checker = checker();
        checker.listed(0, 5, 5, &[], &[Node::default(), Node::default()]);
        event(&mut checker, 6, Some((0, &node(0, 6, 1))));
        event(&mut checker, 7, Some((1, &Node::default()))); // before its acknowledgement
        event(&mut checker, 8, Some((0, &node(6, 8, 2))));
        event(&mut checker, 9, None);
        checker.bookmark(0, 9);
        checker.finish(&[node(6, 8, 2), node(0, 7, 1)]);
        assert_eq!(checker.first(), [""; 0]);
    }

    #[test]
    fn a_repeated_event_or_an_old_bookmark_is_a_violation() {
        let mut checker = checker();
        event(&mut checker, 6, Some((0, &node(0, 6, 1))));
        event(&mut checker, 6, Some((0, &node(0, 6, 1))));
        checker.bookmark(0, 3);
        assert_eq!(checker.count(), 2);
        assert_eq!(checker.first()[0], "node-0: watcher 0 got version 6 after 6");
    }

    #[test]
    fn a_dropped_event_is_detected_at_the_next_event_or_at_the_end() {
        let mut checker = checker();
        event(&mut checker, 6, Some((0, &node(0, 6, 1))));
        event(&mut checker, 8, Some((0, &node(7, 8, 3))));
        assert_eq!(checker.count(), 1, "version 7 was dropped");
        checker.finish(&[node(7, 8, 3), node(0, 9, 1)]);
        assert_eq!(checker.count(), 2, "version 9 of the other never came");
    }

    #[test]
    fn the_event_count_detects_a_dropped_event_of_a_slow_watcher() {
        let mut checker = checker();
        let ahead = node(20, 21, 4);
        for version in [6, 20, 21] {
            event(&mut checker, version, Some((0, &ahead)));
        }
        assert_eq!(checker.count(), 0);
        checker.finish(&[ahead, Node::default()]);
        assert_eq!(checker.first(), ["node-0: watcher 0 got 3 events for 4 writes"]);
    }

    #[test]
    fn a_new_list_replaces_the_events_before_it() {
        let mut checker = checker();
        let nodes = [node(6, 9, 3), node(4, 12, 2)];
        checker.listed(0, 10, 9, &[(0, 9), (1, 4)], &nodes);
        event(&mut checker, 12, Some((1, &nodes[1])));
        checker.finish(&nodes);
        assert_eq!(checker.first(), [""; 0]);
        checker.listed(0, 11, 12, &[(0, 6)], &nodes);
        assert_eq!(checker.count(), 2, "{:?}", checker.first());
    }

    #[test]
    fn a_list_may_show_a_creation_before_its_acknowledgement() {
        for creating in [Node { busy: true, ..Node::default() }, Node { uncertain: true, ..Node::default() }] {
            let mut checker = checker();
            checker.listed(0, 7, 5, &[(0, 7)], &[creating, Node::default()]);
            event(&mut checker, 8, Some((0, &node(0, 7, 1))));
            checker.finish(&[node(7, 8, 2), Node::default()]);
            assert_eq!(checker.first(), [""; 0]);
        }
    }

    #[test]
    fn a_response_must_have_a_new_version_and_the_sent_content() {
        let mut checker = checker();
        let before = node(3, 5, 2);
        let shown =
            |version, renewed| Shown { fields: Fields { version, renewed, ..Fields::default() }, form: before.form };
        checker.written(0, &before, &shown(6, 5), 5);
        assert_eq!(checker.count(), 0);
        checker.written(0, &before, &shown(5, 5), 5);
        checker.written(0, &before, &shown(6, 4), 5);
        checker.read(0, &before, &shown(4, 0), 5);
        checker.read(0, &before, &shown(5, 9), 5);
        checker.read(0, &before, &shown(7, 0), 5);
        assert_eq!(checker.count(), 5);
    }

    #[test]
    fn a_renewal_of_a_settled_lease_may_change_only_times() {
        let at_stage = |settled| Node { settled, busy: true, ..node(3, 5, 2) };
        let (first, settled) = (at_stage(false), at_stage(true));
        let as_sent = Fields { version: 6, renewed: 5, ..Fields::default() };
        let others = [
            Shown { fields: as_sent, form: Form::Template(3) },
            Shown { fields: Fields { owner_uid: 1, ..as_sent }, form: first.form },
            Shown { fields: Fields { created: 1, ..as_sent }, form: first.form },
        ];
        for other in others {
            for (before, violations) in [(&first, 0), (&settled, 1)] {
                let mut checker = checker();
                checker.written(0, before, &other, 5);
                assert_eq!(checker.count(), violations, "{other:?}");
                checker.read(0, before, &other, 5);
                assert_eq!(checker.count(), 2 * violations, "{other:?}");
                checker.event(0, Kind::Added, 6, Some((0, before, Some(other))));
                assert_eq!(checker.count(), 3 * violations + 1, "and one that was missed: {:?}", checker.first());
            }
        }
    }

    #[test]
    fn an_event_must_match_the_acknowledged_or_pending_write() {
        let lease = node(0, 6, 1);
        let shown = |renewed| Shown { fields: Fields { version: 6, renewed, ..Fields::default() }, form: lease.form };
        for (kind, renewed, words) in [
            (Kind::Added, 6, None),
            (Kind::Added, 7, Some("with other content than was sent")),
            (Kind::Modified, 6, Some("got MODIFIED")),
            (Kind::Deleted, 6, Some("got DELETED")),
        ] {
            let mut checker = checker();
            checker.event(0, kind, 6, Some((0, &lease, Some(shown(renewed)))));
            assert_eq!(checker.count(), words.into_iter().len() as u64, "{kind:?} {renewed}");
            assert!(checker.first().iter().all(|first| first.contains(words.unwrap_or_default())), "{checker:?}");
        }
        // An event with a higher version than the last acknowledged write must show the `renewTime` of the write in
        // flight.
        let lease = Node { busy: true, sent_renewed: 8, ..node(0, 5, 1) };
        for (renewed, count) in [(8, 0), (5, 1)] {
            let mut checker = checker();
            checker.listed(0, 5, 5, &[(0, 5)], &[lease.clone(), Node::default()]);
            checker.event(0, Kind::Modified, 6, Some((0, &lease, Some(shown(renewed)))));
            assert_eq!(checker.count(), count, "{:?}", checker.first());
        }
    }
}
