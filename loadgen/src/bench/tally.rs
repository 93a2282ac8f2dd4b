//! The counts of a bench: latencies, errors, violations, and the sizes of lists.

use crate::operation::Operation;
use crate::recorder::{FIRST_MAX, Recorder};
use coordination_apiserver::cli::one_line;

/// The latencies, errors and violations of a bench.
#[derive(Debug)]
pub(super) struct Tally {
    /// Latencies, counts and errors of all operations.
    pub(super) recorder: Recorder,
    /// Size of all lists in bytes, and number of objects in them. In protobuf the objects are not counted.
    pub(super) list_bytes: u64,
    pub(super) list_items: u64,
    /// Number of violations.
    violations: u64,
    /// Descriptions of the first violations, one line of text each.
    pub(super) first_violations: Vec<String>,
}

impl Tally {
    /// Creates a tally with counts of 0, before the measured time.
    pub(super) fn new() -> Self {
        let recorder = Recorder::new(&[]);
        Self { recorder, list_bytes: 0, list_items: 0, violations: 0, first_violations: Vec::new() }
    }

    /// Counts events that arrived at `now`. `delays_ns` returns the delay of each event whose renewal has a known send
    /// time. A delay belongs to the measured time if the renewal was sent before the end of the measured time, and the
    /// event arrived after its beginning.
    pub(super) fn heard(&mut self, events: u64, delays_ns: impl Iterator<Item = u64>, now: u64) {
        self.recorder.count(Operation::WatchEvent, events, now);
        let window = self.recorder.window();
        for delay_ns in delays_ns {
            let is_measured = now >= window.start && now.saturating_sub(delay_ns) < window.end;
            self.recorder.latency(Operation::WatchEvent, delay_ns, is_measured);
        }
    }

    /// Counts a violation. `words` describe it if it is among the first.
    #[cold]
    pub(super) fn violated(&mut self, words: String) {
        self.violations += 1;
        if self.first_violations.len() < FIRST_MAX {
            self.first_violations.push(one_line(&words));
        }
    }

    /// Returns the number of violations.
    pub(super) fn violations(&self) -> u64 {
        self.violations
    }

    /// Returns descriptions of the first errors and violations.
    pub(super) fn first(&self) -> impl Iterator<Item = &str> {
        self.recorder.first_errors().iter().chain(&self.first_violations).map(String::as_str)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_late_event_of_a_measured_renewal_counts_in_the_latencies() {
        let mut tally = Tally::new();
        let heard = |tally: &mut Tally, sent: u64, now: u64| tally.heard(1, [now - sent].into_iter(), now);
        heard(&mut tally, 10, 20);
        tally.recorder.begin(1_000);
        heard(&mut tally, 10, 999);
        heard(&mut tally, 10, 1_000);
        tally.recorder.end(2_000);
        heard(&mut tally, 1_999, 5_000_000);
        heard(&mut tally, 2_000, 5_000_000);
        let events = tally.recorder.total(Operation::WatchEvent);
        assert_eq!((events.answered, events.latencies.len()), (1, 2));
        assert!((4.99..=5.01).contains(&events.latencies.ms()[4]), "{:?}", events.latencies.ms());
    }
}
