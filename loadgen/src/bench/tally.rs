//! What a bench counts.

use crate::latencies::Latencies;
use crate::stats::{ALIKE_MAX, FIRST_MAX};
use coordination_apiserver::cli::one_line;
use std::collections::BTreeMap;
use std::ops::Range;

/// What is counted during a run.
#[derive(Debug)]
pub(super) struct Tally {
    /// The measured time, in nanoseconds of the run.
    window: Range<u64>,
    /// Of what was asked for, or due, in the measured time.
    pub(super) latency: Latencies,
    /// From when a renewal was sent until a watcher had its event; of some watchers, and of what has come since the
    /// measured time began and was sent before it was over.
    pub(super) event_delay: Latencies,
    /// With a rate, from when a request was due in the measured time until it was sent: the generator's own lateness,
    /// so without those that found no room.
    pub(super) lateness: Latencies,
    /// Requests that were due in the measured time and found no connection with room, or no Lease free: they waited for
    /// the server, or for the watchers.
    pub(super) crowded: u64,
    /// Requests answered in the measured time.
    pub(super) requests: u64,
    /// Events that came in the measured time.
    pub(super) events: u64,
    /// Bytes of the lists, and objects in them, where they can be counted.
    pub(super) list_bytes: u64,
    pub(super) list_items: u64,
    /// Requests that did not come to what they should.
    pub(super) errors: BTreeMap<String, u64>,
    /// Promises that were broken.
    pub(super) violations: u64,
    /// The first errors and violations, in words, each in one line.
    pub(super) first: Vec<String>,
}

impl Tally {
    pub(super) fn new() -> Self {
        Self {
            window: u64::MAX..u64::MAX,
            latency: Latencies::new(),
            event_delay: Latencies::new(),
            lateness: Latencies::new(),
            crowded: 0,
            requests: 0,
            events: 0,
            list_bytes: 0,
            list_items: 0,
            errors: BTreeMap::new(),
            violations: 0,
            first: Vec::new(),
        }
    }

    /// The measured time began then.
    pub(super) fn begin(&mut self, since: u64) {
        self.window = since..u64::MAX;
    }

    /// It was over then.
    pub(super) fn end(&mut self, until: u64) {
        self.window.end = until;
    }

    /// Whether this time of the run is in the measured one.
    pub(super) fn is_measured(&self, at: u64) -> bool {
        self.window.contains(&at)
    }

    /// Whether the measured time is over and this was before its end.
    pub(super) fn is_over(&self, at: u64) -> bool {
        self.window.end < u64::MAX && at < self.window.end
    }

    /// A request that was asked for, or due, at `asked` has been answered at `now`. What is answered too late for the
    /// rate counts among the latencies all the same: those are the longest.
    pub(super) fn answered(&mut self, asked: u64, now: u64) {
        if self.is_measured(now) {
            self.requests += 1;
        }
        if self.is_measured(asked) {
            self.latency.record(now.saturating_sub(asked));
        }
    }

    /// A request that was due then is sent at `now`; it had to wait for room if it was `crowded`.
    pub(super) fn sent(&mut self, due: u64, now: u64, crowded: bool) {
        if !self.is_measured(due) {
            return;
        }
        if crowded {
            self.crowded += 1;
        } else {
            self.lateness.record(now.saturating_sub(due));
        }
    }

    /// So many events have come at `now`; of some is known how long it took from the renewal. What comes too late for
    /// the rate counts among the delays all the same, as answers do.
    pub(super) fn heard(&mut self, events: u64, delays_ns: impl Iterator<Item = u64>, now: u64) {
        if self.is_measured(now) {
            self.events += events;
        }
        let Range { start, end } = self.window;
        delays_ns
            .filter(|delay_ns| now >= start && now.saturating_sub(*delay_ns) < end)
            .for_each(|delay_ns| self.event_delay.record(delay_ns));
    }

    /// A request did not come to what it should.
    #[cold]
    pub(super) fn failed(&mut self, kind: String, words: impl FnOnce() -> String) {
        self.all_failed(1, kind, words);
    }

    /// So many requests did not, all of them alike.
    #[cold]
    pub(super) fn all_failed(&mut self, count: u64, kind: String, words: impl FnOnce() -> String) {
        let before = self.errors.get(&kind).copied().unwrap_or_default();
        if before < ALIKE_MAX && self.first.len() < FIRST_MAX {
            self.first.push(one_line(&format!("{kind}: {}", words())));
        }
        *self.errors.entry(kind).or_default() += count;
    }

    /// A promise was broken.
    #[cold]
    pub(super) fn violated(&mut self, words: String) {
        self.violations += 1;
        if self.first.len() < FIRST_MAX {
            self.first.push(one_line(&words));
        }
    }

    /// The first error or violation, in words.
    pub(super) fn first_words(&self) -> Option<&str> {
        self.first.first().map(String::as_str)
    }

    /// Within which time 99 % of the requests were sent that found room, with a rate.
    pub(super) fn late_ms_p99(&self) -> Option<f64> {
        (!self.lateness.is_empty()).then(|| self.lateness.ms_p99())
    }

    /// Neither errors nor violations.
    pub(super) fn is_fine(&self) -> bool {
        self.errors.is_empty() && self.violations == 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn latency_is_of_what_was_asked_for_in_the_measured_time_and_the_rate_of_what_was_answered_in_it() {
        let mut tally = Tally::new();
        tally.answered(10, 20);
        tally.begin(1_000);
        tally.answered(999, 1_000);
        tally.answered(1_000, 1_500);
        tally.end(2_000);
        tally.answered(1_999, 5_000_000);
        tally.answered(2_000, 5_000_000);
        assert_eq!((tally.requests, tally.latency.len()), (2, 2));
        assert!((4.99..=5.01).contains(&tally.latency.ms()[4]), "{:?}", tally.latency.ms());
    }

    #[test]
    fn an_event_that_comes_late_is_delayed_if_its_renewal_was_sent_in_the_measured_time() {
        let mut tally = Tally::new();
        let heard = |tally: &mut Tally, sent: u64, now: u64| tally.heard(1, [now - sent].into_iter(), now);
        heard(&mut tally, 10, 20);
        tally.begin(1_000);
        heard(&mut tally, 10, 999);
        heard(&mut tally, 10, 1_000);
        tally.end(2_000);
        heard(&mut tally, 1_999, 5_000_000);
        heard(&mut tally, 2_000, 5_000_000);
        assert_eq!((tally.events, tally.event_delay.len()), (1, 2));
        assert!((4.99..=5.01).contains(&tally.event_delay.ms()[4]), "{:?}", tally.event_delay.ms());
    }
}
