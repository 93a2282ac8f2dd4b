//! Checks of watchers: each watcher receives every state of its scope once and in order, across all restarts of the
//! server. The watcher's list stands for the states before it; so does a new list after a 410.

use super::states::State;
use super::{Checker, Kind, Pending, explain};
use crate::history::{Scope, Watched};

/// A watcher's records that are not checked yet, and how far the checks have come.
#[derive(Debug)]
pub(super) struct Cursor {
    pub(super) scope: Scope,
    pub(super) pending: Pending,
    /// Version up to which the watcher has received all events; `None` before the first list.
    last: Option<u64>,
}

impl Cursor {
    pub(super) fn new(scope: Scope) -> Self {
        Self { scope, pending: Pending::new(), last: None }
    }
}

impl Checker {
    /// Compares the records of all watchers with the states of the epoch, up to the epoch's boundary.
    pub(super) fn check_watchers(&mut self, states: &[State], boundary: u64) {
        let mut watchers = std::mem::take(&mut self.watchers);
        for (number, cursor) in watchers.iter_mut().enumerate() {
            self.check_watcher(number, cursor, states, boundary);
        }
        self.watchers = watchers;
    }

    fn check_watcher(&mut self, number: usize, cursor: &mut Cursor, states: &[State], boundary: u64) {
        let name = format!("watcher {number} of {}", cursor.scope);
        let mut due = states.iter().filter(|state| cursor.scope.has(state.seen.key)).peekable();
        while let Some(entry) = cursor.pending.front() {
            match entry {
                Watched::Event(event) => {
                    let seen = event.seen;
                    if seen.version > boundary {
                        break;
                    }
                    let last = cursor.last.unwrap_or(0);
                    if seen.version <= last {
                        let text = format!("{name}: {} after version {last}", explain::state(&seen));
                        self.complain(Kind::Twice, text);
                    }
                    if !cursor.scope.has(seen.key) {
                        self.complain(Kind::Invented, format!("{name}: {} is not in its scope", explain::state(&seen)));
                    }
                    while let Some(state) = due.next_if(|state| state.seen.version < seen.version) {
                        self.complain_missed(&name, state, last, seen.version);
                    }
                    due.next_if(|state| state.seen.version == seen.version);
                    self.counts.events += 1;
                    cursor.last = Some(last.max(seen.version));
                }
                &Watched::Listed { version, gone } => {
                    if version > boundary {
                        // The list was made in the next epoch, so its record waits for that epoch. The list also shows
                        // the states of this epoch that the watcher got no event of. So none of them counts as missed.
                        return;
                    }
                    if let Some(last) = gone {
                        self.check_gone(&name, last, version, states);
                    }
                    while due.next_if(|state| state.seen.version <= version).is_some() {}
                    cursor.last = Some(version);
                }
                Watched::Wrong(text) => {
                    let text = format!("{name}: {text}");
                    self.complain(Kind::Server, text);
                }
            }
            cursor.pending.pop_front();
        }
        let last = cursor.last.unwrap_or(0);
        for state in due {
            self.complain_missed(&name, state, last, boundary);
        }
        cursor.last = cursor.last.map(|last| last.max(boundary));
    }

    fn complain_missed(&mut self, name: &str, state: &State, last: u64, next: u64) {
        if state.seen.version <= last {
            return;
        }
        let text = format!(
            "{name}: {} was {:?} and known at {}, but the watcher went from version {last} to {next}",
            explain::state(&state.seen),
            state.kind,
            explain::at(state.known)
        );
        self.complain(Kind::Missed, text);
    }

    /// Checks that the server sent 410 only for a version that was no longer in its watch window: at least one event
    /// more than the window holds must have followed the version.
    fn check_gone(&mut self, name: &str, last: u64, version: u64, states: &[State]) {
        let present = states.iter().map(|state| state.seen.version).filter(|other| *other > last);
        let versions = self.facts.range(last + 1..).map(|(other, _)| *other).chain(present);
        let events = versions.take_while(|other| *other <= version).count();
        if events > self.window {
            self.counts.gone_beyond_window += 1;
        } else {
            let text = format!("{name}: 410 for version {last}, only {events} events before version {version}");
            self.complain(Kind::Gone, text);
        }
    }
}
