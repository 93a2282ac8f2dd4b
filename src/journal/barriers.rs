//! Barriers. With a barrier, a process ensures that its table (all Leases in memory) has every entry that any process
//! had appended before a request arrived.
//!
//! For a barrier, the process asks the store for its last entry, and for the number of entries up to this entry. The
//! table passes the barrier when it has applied all these entries. One query runs at a time. Requests that arrive
//! during a query share the next query, since the running query may miss a newer entry.

use super::applied::Applied;
use super::port::End;
use std::collections::VecDeque;

/// The barriers of a process, numbered from 1.
#[derive(Debug, Default)]
pub(super) struct Barriers {
    /// Number of the last requested barrier.
    asked: u64,
    /// Number of the last barrier whose query has begun.
    begun: u64,
    /// Time at which the last query began, in ms.
    begun_ms: u64,
    /// Whether a query is running.
    is_looking: bool,
    /// Barriers whose query has ended, in the order of their numbers. The second value is the time at which the query
    /// began, in ms. The third value is the end of the journal that the query found.
    found: VecDeque<(u64, u64, End)>,
    /// Number of the last passed barrier.
    passed: u64,
    /// Time at which the query of the last passed barrier began, in ms; `None` before the first one.
    passed_ms: Option<u64>,
}

impl Barriers {
    /// Requests a barrier. Returns the number of the barrier. The barrier's query begins after this call.
    pub(super) fn ask(&mut self) -> u64 {
        self.asked = self.begun + 1;
        self.asked
    }

    /// Starts a query if a query is due. Returns whether a query was started.
    pub(super) fn begin_query(&mut self, now_ms: u64) -> bool {
        let is_due = self.has_work();
        if is_due {
            (self.begun, self.begun_ms) = (self.asked, now_ms);
            self.is_looking = true;
        }
        is_due
    }

    /// Whether a query is due.
    pub(super) fn has_work(&self) -> bool {
        !self.is_looking && self.asked > self.begun
    }

    /// Handles the result of the query.
    pub(super) fn on_end(&mut self, end: End) {
        assert!(self.is_looking, "an answer without a query");
        self.is_looking = false;
        self.found.push_back((self.begun, self.begun_ms, end));
    }

    /// Passes the barriers that the table has reached.
    ///
    /// # Errors
    /// The table lacks an entry at or before the end that a query found.
    pub(super) fn on_applied(&mut self, applied: &Applied) -> Result<(), String> {
        let is_reached = |(.., end): &mut (u64, u64, End)| end.position <= applied.position;
        while let Some((number, begun_ms, end)) = self.found.pop_front_if(is_reached) {
            match applied.entries_at(end.position) {
                Some(entries) if entries != end.entries => {
                    let (position, all) = (end.position.0, end.entries);
                    return Err(format!("up to position {position}, this process has {entries} entries of {all}"));
                }
                Some(_) | None => (self.passed, self.passed_ms) = (number, Some(begun_ms)),
            }
        }
        Ok(())
    }

    /// Returns the number of the last passed barrier.
    pub(super) fn passed(&self) -> u64 {
        self.passed
    }

    /// Returns the time at which the query of the last passed barrier began, in ms. When the table passed the barrier,
    /// it had every entry that existed at this time. Later entries may be missing: after a pause of the process, even a
    /// barrier that was passed just now shows an old state.
    pub(super) fn passed_ms(&self) -> Option<u64> {
        self.passed_ms
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    use crate::engine::Position;
    use crate::journal::applied::Writers;
    use crate::resource::ResourceVersion;

    /// Returns the progress of a table after `entries` entries at consecutive positions.
    fn applied(entries: u64) -> Applied {
        let mut applied = Applied::at(End::default(), ResourceVersion(1), 0, Writers::default());
        for position in 1..=entries {
            applied.skip(Position(position), ResourceVersion(1));
        }
        applied
    }

    fn end(entries: u64) -> End {
        End { position: Position(entries), entries }
    }

    #[test]
    fn a_barrier_requested_during_a_query_gets_its_own_query() {
        let mut barriers = Barriers::default();
        assert!(!barriers.begin_query(0));
        assert_eq!([barriers.ask(), barriers.ask()], [1, 1], "those of one turn share a barrier");
        assert!(barriers.begin_query(10));
        assert_eq!(barriers.ask(), 2);
        assert!(!barriers.begin_query(20), "one look at a time");
        barriers.on_end(end(5));
        barriers.on_applied(&applied(4)).expect("nothing is missing");
        assert_eq!((barriers.passed(), barriers.passed_ms()), (0, None));
        assert!(barriers.begin_query(30));
        barriers.on_end(end(6));
        barriers.on_applied(&applied(5)).expect("nothing is missing");
        assert_eq!((barriers.passed(), barriers.passed_ms()), (1, Some(10)), "its query began at 10");
        barriers.on_applied(&applied(9)).expect("nothing is missing");
        assert_eq!((barriers.passed(), barriers.passed_ms(), barriers.begin_query(40)), (2, Some(30), false));
    }

    #[test]
    fn a_missing_entry_is_detected_despite_later_entries() {
        for missing in 1..=3 {
            let mut applied = Applied::at(End::default(), ResourceVersion(1), 0, Writers::default());
            for position in (1..=4).filter(|position| *position != missing) {
                applied.skip(Position(position), ResourceVersion(1));
            }
            let mut barriers = Barriers::default();
            barriers.ask();
            assert!(barriers.begin_query(0));
            barriers.on_end(end(3));
            let told = barriers.on_applied(&applied).expect_err("an entry is missing");
            assert!(told.contains("2 entries of 3"), "{missing}: {told}");
        }
    }
}
