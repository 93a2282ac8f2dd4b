//! The measurements of a run, for simulated nodes and benches: latencies and counts by operation, errors by kind, and
//! the generator's own lateness.
//!
//! This module owns the start and the end of the measured time, and two sets of counts: of the measured time, and of
//! the current second. It knows neither the clock nor the meaning of requests. A latency starts when the request was
//! *due*. A delay by the server or by the generator therefore shows in the latencies of all requests that it delayed.

use crate::error_kind::ErrorKind;
use crate::figures::counted;
use crate::latencies::Latencies;
use crate::operation::Operation;
use coordination_apiserver::cli::one_line;
use std::collections::BTreeMap;
use std::ops::Range;

/// The latencies, counts and errors of a run.
#[derive(Debug)]
pub(crate) struct Recorder {
    /// The measured time, in nanoseconds since the start of the run; empty before it begins.
    window: Range<u64>,
    /// Operations that count outside of the measured time too, such as the creation of Leases before it.
    always: &'static [Operation],
    /// Counts and latencies of the measured time, by operation.
    totals: [Count; Operation::ALL.len()],
    /// The generator's own delay: from a request's due time until the event loop processes the request. The wait for
    /// room on a connection is not part of this delay.
    pub(crate) lateness: Latencies,
    /// Number of requests due in the measured time that had to wait for room on a connection.
    crowded: u64,
    /// Number of errors of the whole run, by operation and kind.
    errors: BTreeMap<(Operation, ErrorKind), u64>,
    /// The first errors, one line of text each.
    first_errors: Vec<String>,
    /// Counts of the current second; `None` if no output shows figures of single seconds.
    second: Option<Second>,
}

/// Count and latencies of one kind of operation in some time: the measured time or a second.
#[derive(Debug)]
pub(crate) struct Count {
    /// Number of operations that succeeded in this time.
    pub(crate) answered: u64,
    /// Latencies. The count of the measured time has those of the operations due in it. The count of a second has those
    /// of the operations that succeeded in it. In a bench, only some watchers measure the latency of their events.
    pub(crate) latencies: Latencies,
}

/// Counts of one second of the run.
#[derive(Debug)]
pub(crate) struct Second {
    /// Counts of operations that ended in this second, by operation. Their due times do not matter.
    pub(crate) counts: [Count; Operation::ALL.len()],
    /// Number of errors, by operation and kind.
    pub(crate) errors: BTreeMap<(Operation, ErrorKind), u64>,
}

impl Count {
    fn new() -> Self {
        Self { answered: 0, latencies: Latencies::new() }
    }

    fn clear(&mut self) {
        if self.answered > 0 || !self.latencies.is_empty() {
            self.answered = 0;
            self.latencies.clear();
        }
    }
}

impl Second {
    fn new() -> Self {
        Self { counts: std::array::from_fn(|_| Count::new()), errors: BTreeMap::new() }
    }

    /// Sets all counts to 0, for the next second.
    pub(crate) fn clear(&mut self) {
        self.counts.iter_mut().for_each(Count::clear);
        self.errors.clear();
    }
}

impl Recorder {
    /// Creates a recorder whose counts are 0, and whose measured time has not begun. The operations in `always` also
    /// count outside of the measured time.
    pub(crate) fn new(always: &'static [Operation]) -> Self {
        Self {
            window: u64::MAX..u64::MAX,
            always,
            totals: std::array::from_fn(|_| Count::new()),
            lateness: Latencies::new(),
            crowded: 0,
            errors: BTreeMap::new(),
            first_errors: Vec::new(),
            second: None,
        }
    }

    /// Begins to count each second of the run, in addition to the measured time.
    pub(crate) fn count_seconds(&mut self) {
        self.second = Some(Second::new());
    }

    /// Returns the counts of the current second; `None` if seconds are not counted separately.
    pub(crate) fn second(&mut self) -> Option<&mut Second> {
        self.second.as_mut()
    }

    /// Begins the measured time at `since`.
    pub(crate) fn begin(&mut self, since: u64) {
        self.window = since..u64::MAX;
    }

    /// Ends the measured time at `until`.
    pub(crate) fn end(&mut self, until: u64) {
        self.window.end = until;
    }

    /// Returns the begin and end of the measured time. Until the measured time ends, its end is `u64::MAX`.
    pub(crate) fn window(&self) -> Range<u64> {
        self.window.clone()
    }

    /// Whether the time `at` is in the measured time.
    pub(crate) fn is_measured(&self, at: u64) -> bool {
        self.window.contains(&at)
    }

    /// Whether the end of the measured time is known, and `due` is before that end.
    pub(crate) fn is_due_before_end(&self, due: u64) -> bool {
        self.window.end < u64::MAX && due < self.window.end
    }

    /// Counts a request due at `due` that succeeded at `now`. Rates count the requests that were answered in the
    /// measured time. Latencies are those of the requests that were due in the measured time, even if the response came
    /// after it: such late responses are the slowest.
    pub(crate) fn answered(&mut self, operation: Operation, due: u64, now: u64) {
        self.count(operation, 1, now);
        self.latency(operation, now.saturating_sub(due), self.is_measured(due));
    }

    /// Counts `number` operations that ended at `now`. Their latencies are recorded separately.
    pub(crate) fn count(&mut self, operation: Operation, number: u64, now: u64) {
        let is_measured = self.is_measured(now);
        self.counts_of(operation, is_measured).for_each(|count| count.answered += number);
    }

    /// Records a latency, in nanoseconds. `is_measured` is true if the latency belongs to the measured time.
    pub(crate) fn latency(&mut self, operation: Operation, ns: u64, is_measured: bool) {
        self.counts_of(operation, is_measured).for_each(|count| count.latencies.record(ns));
    }

    /// Returns the counts to which a result of the operation is added: those of the current second, and the totals if
    /// the result belongs to them.
    fn counts_of(&mut self, operation: Operation, is_measured: bool) -> impl Iterator<Item = &mut Count> {
        let is_in_total = is_measured || self.always.contains(&operation);
        let total = self.totals.get_mut(operation as usize).filter(|_| is_in_total);
        let second = self.second.as_mut().and_then(|second| second.counts.get_mut(operation as usize));
        total.into_iter().chain(second)
    }

    /// Records that the event loop processes a request due at `due`. `late_ns` is the generator's own delay of the
    /// request, in nanoseconds.
    pub(crate) fn taken_up(&mut self, due: u64, late_ns: u64) {
        if self.is_measured(due) {
            self.lateness.record(late_ns);
        }
    }

    /// Counts a request due at `due` that has to wait for room on a connection.
    pub(crate) fn crowded(&mut self, due: u64) {
        self.crowded += u64::from(self.is_measured(due));
    }

    /// Counts an error. If the error is among the first, `words` returns its description.
    #[cold]
    pub(crate) fn failed(&mut self, operation: Operation, kind: ErrorKind, words: impl FnOnce() -> String) {
        self.all_failed(1, operation, kind, words);
    }

    /// Counts `number` errors of one kind.
    #[cold]
    pub(crate) fn all_failed(
        &mut self,
        number: u64,
        operation: Operation,
        kind: ErrorKind,
        words: impl FnOnce() -> String,
    ) {
        let total = self.errors.entry((operation, kind)).or_default();
        if *total < ALIKE_MAX && self.first_errors.len() < FIRST_MAX {
            self.first_errors.push(one_line(&format!("{} {}: {}", operation.name(), kind.name(), words())));
        }
        *total += number;
        if let Some(second) = &mut self.second {
            *second.errors.entry((operation, kind)).or_default() += number;
        }
    }

    /// Returns the totals of an operation over the measured time. The latencies are of requests that were due in the
    /// measured time. The count is of requests that were answered in it.
    pub(crate) fn total(&self, operation: Operation) -> &Count {
        // Every operation has its place in the array.
        &self.totals[operation as usize]
    }

    /// Returns the number of requests that were answered in the measured time. Operations that count outside of the
    /// measured time too are left out.
    pub(crate) fn requests(&self) -> u64 {
        let measured = |kind: &Operation| kind.is_request() && !self.always.contains(kind);
        Operation::ALL.into_iter().filter(measured).map(|kind| self.total(kind).answered).sum()
    }

    /// Returns the 99th percentile of the generator's own delay of requests, in milliseconds. Returns `None` if no
    /// delay was recorded, for example without a schedule, as with `--max`.
    pub(crate) fn late_ms_p99(&self) -> Option<f64> {
        (!self.lateness.is_empty()).then(|| self.lateness.ms_p99())
    }

    /// Returns the number of requests that had to wait for room on a connection.
    pub(crate) fn crowded_count(&self) -> u64 {
        self.crowded
    }

    /// Returns a clause about the requests that had to wait for room on a connection; `None` if there are none.
    pub(crate) fn crowded_words(&self) -> Option<String> {
        let waited = "waited for room: the server was too slow, or --connections or --streams too low";
        (self.crowded > 0).then(|| format!("{} {waited}", counted(self.crowded, "request")))
    }

    /// Returns the number of errors of the whole run, by operation and kind.
    pub(crate) fn errors(&self) -> &BTreeMap<(Operation, ErrorKind), u64> {
        &self.errors
    }

    /// Returns the number of errors of all kinds.
    pub(crate) fn errors_count(&self) -> u64 {
        self.errors.values().sum()
    }

    /// Returns the descriptions of the first errors.
    pub(crate) fn first_errors(&self) -> &[String] {
        &self.first_errors
    }
}

/// Maximum number of errors that are described in words. The same maximum applies separately to violations.
pub(crate) const FIRST_MAX: usize = 10;
/// Maximum number of errors of one operation and one kind that are described. Without this limit, a failure of the
/// server, which fails every request in flight, would leave no room for other errors.
const ALIKE_MAX: u64 = 2;

#[cfg(test)]
mod tests {
    use super::*;

    fn recorder() -> Recorder {
        Recorder::new(&[Operation::Create])
    }

    #[test]
    fn only_requests_due_in_the_measured_time_have_a_latency() {
        let mut recorder = recorder();
        recorder.answered(Operation::Renew, 5, 10);
        recorder.begin(1_000);
        recorder.end(2_000);
        for due in [999, 1_000, 1_999, 2_000] {
            recorder.answered(Operation::Renew, due, due + 5_000_000);
        }
        let latencies = &recorder.total(Operation::Renew).latencies;
        assert_eq!(latencies.len(), 2);
        assert!((4.99..=5.01).contains(&latencies.ms()[4]), "{:?}", latencies.ms());
        recorder.answered(Operation::Create, 5, 10);
        assert_eq!(recorder.total(Operation::Create).latencies.len(), 1);
    }

    /// Responses of a slow server that arrive after the measured time must not count in the rate.
    #[test]
    fn the_rate_counts_responses_within_the_measured_time() {
        let mut recorder = recorder();
        recorder.begin(1_000);
        recorder.end(2_000);
        for (due, now) in [(900, 999), (900, 1_000), (1_500, 1_999), (1_500, 2_000), (1_900, 9_000)] {
            recorder.answered(Operation::Renew, due, now);
        }
        recorder.answered(Operation::Create, 5, 10);
        let renewals = recorder.total(Operation::Renew);
        assert_eq!((renewals.answered, renewals.latencies.len()), (2, 3));
        assert_eq!((recorder.total(Operation::Create).answered, recorder.requests()), (1, 2));
    }

    #[test]
    fn seconds_count_results_even_outside_the_measured_time() {
        let mut recorder = recorder();
        assert!(recorder.second().is_none());
        recorder.count_seconds();
        recorder.answered(Operation::Renew, 5, 10);
        recorder.failed(Operation::Read, ErrorKind::Timeout, || "x".to_owned());
        let second = recorder.second().expect("it is counted");
        let renewals = &second.counts[Operation::Renew as usize];
        assert_eq!((renewals.answered, renewals.latencies.len()), (1, 1));
        assert_eq!(second.errors[&(Operation::Read, ErrorKind::Timeout)], 1);
        second.clear();
        assert!(second.counts.iter().all(|count| count.answered == 0 && count.latencies.is_empty()));
        assert_eq!((second.errors.len(), recorder.errors_count()), (0, 1));
    }

    #[test]
    fn errors_are_counted_by_kind_and_the_first_are_listed() {
        let mut recorder = recorder();
        for _ in 0..20 {
            recorder.failed(Operation::Read, ErrorKind::Status(500), || "x".to_owned());
        }
        recorder.failed(Operation::Renew, ErrorKind::Reset, || "y".to_owned());
        assert_eq!(recorder.errors()[&(Operation::Read, ErrorKind::Status(500))], 20);
        assert_eq!(recorder.errors_count(), 21);
        assert_eq!(recorder.first_errors(), ["read 500: x", "read 500: x", "renew reset: y"]);
        (0..20).for_each(|code| recorder.failed(Operation::Read, ErrorKind::Status(code), || "z".to_owned()));
        assert_eq!(recorder.first_errors().len(), 10);
    }
}
