//! Budgets of a turn of the event loop. [`Budget`] limits the work for one connection, and [`TimeBudget`] limits the
//! time for one kind of work.

use crate::limits::REQUESTS_PER_TURN;
use std::time::{Duration, Instant};

/// The budget of one connection for one turn of the event loop. All connections together also have a [time
/// budget](super::Pace).
#[derive(Debug)]
pub struct Budget {
    /// Number of requests of the connection that the server may still serve.
    pub requests: usize,
    /// Bytes of output at which no further request is served.
    pub output_bytes_max: usize,
    /// Whether the socket may have bytes that are not in the input yet.
    pub has_more_input: bool,
}

impl Budget {
    /// Returns the budget of a connection for a turn, with `output_bytes_max` bytes for the responses.
    #[must_use]
    pub fn for_turn(output_bytes_max: usize) -> Self {
        Self { requests: REQUESTS_PER_TURN, output_bytes_max, has_more_input: false }
    }

    /// Whether the connection may serve another request in this turn. `output` contains the bytes that wait to be sent.
    #[must_use]
    pub fn lasts(&self, output: &[u8]) -> bool {
        self.requests > 0 && output.len() < self.output_bytes_max
    }
}

/// The time that a turn may spend on one kind of work. The time begins at the first check of the budget. So a turn
/// without this kind of work does not read the clock.
#[derive(Debug)]
pub(crate) struct TimeBudget {
    time: Duration,
    end: Option<Instant>,
}

impl TimeBudget {
    /// Returns a budget of `us` µs.
    pub(crate) fn new(us: u64) -> Self {
        Self { time: Duration::from_micros(us), end: None }
    }

    /// Reads the clock. Returns whether the time is used up.
    pub(crate) fn check_end(&mut self) -> bool {
        let moment = Instant::now();
        moment >= *self.end.get_or_insert(moment + self.time)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_budget_begins_at_its_first_check() {
        let mut an_hour = TimeBudget::new(3_600_000_000);
        assert_eq!(an_hour.end, None);
        assert!(!an_hour.check_end());
        let end = an_hour.end;
        assert!(end.is_some() && !an_hour.check_end() && an_hour.end == end);
        assert!(TimeBudget::new(0).check_end());
    }
}
