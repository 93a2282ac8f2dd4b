//! Collects all states of an epoch from responses, lists and events. Every observation of a version must show the same
//! content.

use super::{Checker, Epoch, Kind, Map, explain};
use crate::history::{Action, EventKind, Nanos, Op, Outcome, Seen, Watched};
use std::collections::hash_map::Entry;

/// A state of a Lease, and when it was first seen.
#[derive(Clone, Copy, Debug)]
pub(super) struct State {
    pub(super) seen: Seen,
    /// Type of the event that the state causes; `None` if only reads have shown the state.
    pub(super) kind: Option<EventKind>,
    /// When a response or event first showed the state.
    pub(super) known: Nanos,
}

/// Where a state was seen: in which response or event, and when.
struct Source<'a> {
    name: &'a dyn Fn() -> String,
    kind: Option<EventKind>,
    at: Nanos,
}

impl Checker {
    /// Collects the states of the epoch, in the order of their versions. If a response shows a state of an earlier
    /// epoch, the state is compared with what the checker has kept of its version (`Fact`).
    pub(super) fn gather(&mut self, epoch: &Epoch) -> Vec<State> {
        let mut states = Map::<u64, State>::default();
        for op in &epoch.ops {
            match &op.outcome {
                Outcome::Lease(seen) => {
                    let kind = match op.action {
                        Action::Create(_) => Some(EventKind::Added),
                        Action::Put { .. } | Action::Patch(_) => Some(EventKind::Modified),
                        _ => None,
                    };
                    self.note(&mut states, *seen, &Source { name: &|| explain::op(op), kind, at: op.end });
                    self.check_answer(op, seen);
                }
                Outcome::List { items, .. } => {
                    for seen in items {
                        self.note(&mut states, *seen, &Source { name: &|| explain::op(op), kind: None, at: op.end });
                    }
                }
                _ => {}
            }
        }
        let watchers = std::mem::take(&mut self.watchers);
        for cursor in &watchers {
            for entry in &cursor.pending {
                let Watched::Event(event) = entry else { continue };
                if event.seen.version > epoch.boundary {
                    break;
                }
                if event.seen.version <= self.boundary {
                    // Earlier epochs contain all versions up to `self.boundary`, so this event is repeated or late.
                    // [`Checker::check_watchers`] reports it.
                    continue;
                }
                let name = || format!("the watcher of {}, at {}", cursor.scope, explain::at(event.at));
                self.note(&mut states, event.seen, &Source { name: &name, kind: Some(event.kind), at: event.at });
            }
        }
        self.watchers = watchers;
        let mut states: Vec<_> = states.into_values().collect();
        states.sort_unstable_by_key(|state| state.seen.version);
        states
    }

    /// Checks that a response shows the Lease that the request names and, after a write, the state that the write made.
    fn check_answer(&mut self, op: &Op, seen: &Seen) {
        let is_own = match op.action {
            Action::Create(key) | Action::Put { key, .. } => {
                (seen.key, seen.op, seen.holder) == (key, op.id, op.client)
            }
            Action::Patch(key) => (seen.key, seen.op) == (key, op.id),
            _ => op.action.key() == Some(seen.key),
        };
        if !is_own {
            self.complain(Kind::Invented, format!("{}: the answer is {}", explain::op(op), explain::state(seen)));
        }
    }

    fn note(&mut self, states: &mut Map<u64, State>, seen: Seen, source: &Source<'_>) {
        if seen.version <= self.boundary {
            let fact = self.facts.get(&seen.version);
            let is_same = fact.is_some_and(|fact| (fact.key, fact.hash) == (seen.key, seen.hash));
            let (kind, found) = match (fact, source.kind) {
                (Some(_), None) if is_same => return,
                (Some(_), None) => (Kind::TwoContents, "the version had another content earlier"),
                (Some(_), Some(_)) => (Kind::VersionOrder, "the version was assigned earlier"),
                (None, _) => (Kind::Invented, "the version is new, but higher ones are known"),
            };
            self.complain(kind, format!("{}: {}; {found}", (source.name)(), explain::state(&seen)));
            return;
        }
        match states.entry(seen.version) {
            Entry::Vacant(entry) => {
                entry.insert(State { seen, kind: source.kind, known: source.at });
            }
            Entry::Occupied(mut entry) => {
                let state = entry.get_mut();
                let same_kind = state.kind.is_none() || source.kind.is_none() || state.kind == source.kind;
                if state.seen != seen || !same_kind {
                    let (one, other) = (explain::state(&state.seen), explain::state(&seen));
                    let (first, second) = (state.kind, source.kind);
                    let text = format!(
                        "version {} has two contents: {one}, {first:?}, and {other}, {second:?}, by {}",
                        seen.version,
                        (source.name)()
                    );
                    self.complain(Kind::TwoContents, text);
                    return;
                }
                state.kind = state.kind.or(source.kind);
                state.known = state.known.min(source.at);
            }
        }
    }
}
