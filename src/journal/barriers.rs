//! Barriers: how a process learns that it has applied all that any process had appended before.
//!
//! A barrier looks for the last entry in the store, and is passed when the table has that entry. One look at a time is
//! under way. Whoever asks meanwhile shares the next one, since a look that began earlier may miss a newer entry.

use crate::engine::Position;
use std::collections::VecDeque;

/// The barriers of a process, each with the next number, from 1.
#[derive(Debug, Default)]
pub(super) struct Barriers {
    /// Number of the last barrier that somebody has asked for.
    asked: u64,
    /// Number of the last barrier whose look has begun.
    begun: u64,
    is_looking: bool,
    /// Barriers whose look has ended, and the entry that each found; by number.
    found: VecDeque<(u64, Position)>,
    /// Number of the last barrier that is passed.
    passed: u64,
}

impl Barriers {
    /// Number of a barrier that begins after this call.
    pub(super) fn ask(&mut self) -> u64 {
        self.asked = self.begun + 1;
        self.asked
    }

    /// Whether a look is to begin now. Then it has.
    pub(super) fn begin(&mut self) -> bool {
        let is_due = self.has_work();
        if is_due {
            self.begun = self.asked;
            self.is_looking = true;
        }
        is_due
    }

    /// Whether a look is to begin.
    pub(super) fn has_work(&self) -> bool {
        !self.is_looking && self.asked > self.begun
    }

    /// Takes in what the look has found.
    pub(super) fn on_end(&mut self, end: Position) {
        assert!(self.is_looking, "an end that nobody looked for");
        self.is_looking = false;
        self.found.push_back((self.begun, end));
    }

    /// Takes in that the table has all entries up to `position`.
    pub(super) fn on_applied(&mut self, position: Position) {
        while let Some((number, _)) = self.found.pop_front_if(|(_, end)| *end <= position) {
            self.passed = number;
        }
    }

    /// Number of the last barrier that is passed.
    pub(super) fn passed(&self) -> u64 {
        self.passed
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_barrier_that_is_asked_for_during_a_look_has_a_look_of_its_own() {
        let mut barriers = Barriers::default();
        assert!(!barriers.begin());
        assert_eq!([barriers.ask(), barriers.ask()], [1, 1], "those of one turn share a barrier");
        assert!(barriers.begin());
        assert_eq!(barriers.ask(), 2);
        assert!(!barriers.begin(), "one look at a time");
        barriers.on_end(Position(5));
        barriers.on_applied(Position(4));
        assert_eq!(barriers.passed(), 0);
        assert!(barriers.begin());
        barriers.on_end(Position(6));
        barriers.on_applied(Position(5));
        assert_eq!(barriers.passed(), 1);
        barriers.on_applied(Position(6));
        assert_eq!((barriers.passed(), barriers.begin()), (2, false));
    }
}
