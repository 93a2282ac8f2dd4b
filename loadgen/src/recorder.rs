//! What a run measures, for every kind of load: latencies and counts by operation, errors by kind, and the generator's
//! own lateness.
//!
//! This module owns the measured time and the two spans that are counted: the measured time, and the second under way.
//! It knows neither the clock nor the meaning of requests. A latency starts when the request was *due*. So a delay by
//! the server or the generator shows in all requests it delayed.

use crate::error_kind::ErrorKind;
use crate::latencies::Latencies;
use crate::operation::Operation;
use coordination_apiserver::cli::one_line;
use std::collections::BTreeMap;
use std::ops::Range;

/// The counts of a run.
#[derive(Debug)]
pub(crate) struct Recorder {
    /// The measured time, in nanoseconds of the run; empty before it begins.
    window: Range<u64>,
    /// Operations that count whenever they happen.
    always: &'static [Operation],
    /// By operation.
    totals: [Count; Operation::ALL.len()],
    /// The generator's own delay: from a request's due time until it was taken up, if it had room.
    lateness: Latencies,
    /// Requests due in the measured time that found no room.
    crowded: u64,
    /// Errors of the whole run.
    errors: BTreeMap<(Operation, ErrorKind), u64>,
    /// The first errors, one line of text each.
    first_errors: Vec<String>,
    /// The second under way; `None` if nobody wants to know.
    second: Option<Second>,
}

/// What one kind of operation came to in a span of time.
#[derive(Debug)]
pub(crate) struct Count {
    /// Operations that were over in it.
    pub(crate) answered: u64,
    /// Latencies; of watch events in a bench, those of a part.
    pub(crate) latencies: Latencies,
}

/// What happened in a second.
#[derive(Debug)]
pub(crate) struct Second {
    /// By operation: what was over in this second, whenever due.
    pub(crate) counts: [Count; Operation::ALL.len()],
    /// Errors.
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

    /// Begins the next second.
    pub(crate) fn clear(&mut self) {
        self.counts.iter_mut().for_each(Count::clear);
        self.errors.clear();
    }
}

impl Recorder {
    /// Creates counts of zero without a measured time. The operations in `always` count outside of it too.
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

    /// Counts the second under way too, from now on.
    pub(crate) fn count_seconds(&mut self) {
        self.second = Some(Second::new());
    }

    /// Returns the second under way, if it is counted.
    pub(crate) fn second(&mut self) -> Option<&mut Second> {
        self.second.as_mut()
    }

    /// The measured time begins.
    pub(crate) fn begin(&mut self, since: u64) {
        self.window = since..u64::MAX;
    }

    /// The measured time ends.
    pub(crate) fn end(&mut self, until: u64) {
        self.window.end = until;
    }

    /// Returns the measured time; until it ends, its end is `u64::MAX`.
    pub(crate) fn window(&self) -> Range<u64> {
        self.window.clone()
    }

    /// Whether this time of the run is in the measured time.
    pub(crate) fn is_measured(&self, at: u64) -> bool {
        self.window.contains(&at)
    }

    /// Whether the measured time is over and `at` was before its end.
    pub(crate) fn is_over(&self, at: u64) -> bool {
        self.window.end < u64::MAX && at < self.window.end
    }

    /// Counts a request due at `due` that succeeded at `now`. A rate is of what was answered in the measured time. A
    /// latency is of what was due in it, since the latest answers are the longest.
    pub(crate) fn answered(&mut self, operation: Operation, due: u64, now: u64) {
        self.count(operation, 1, now);
        self.latency(operation, now.saturating_sub(due), self.is_measured(due));
    }

    /// Counts operations that were over at `now`; their latencies are recorded apart.
    pub(crate) fn count(&mut self, operation: Operation, number: u64, now: u64) {
        let counts = self.is_measured(now) || self.always.contains(&operation);
        if let Some(total) = self.totals.get_mut(operation as usize).filter(|_| counts) {
            total.answered += number;
        }
        if let Some(second) = &mut self.second
            && let Some(count) = second.counts.get_mut(operation as usize)
        {
            count.answered += number;
        }
    }

    /// Records a latency, in nanoseconds. `is_measured` says whether the operation was due in the measured time.
    pub(crate) fn latency(&mut self, operation: Operation, ns: u64, is_measured: bool) {
        let counts = is_measured || self.always.contains(&operation);
        if let Some(total) = self.totals.get_mut(operation as usize).filter(|_| counts) {
            total.latencies.record(ns);
        }
        if let Some(second) = &mut self.second
            && let Some(count) = second.counts.get_mut(operation as usize)
        {
            count.latencies.record(ns);
        }
    }

    /// Counts a request due at `due` when it is taken up, `late_ns` later by the generator's fault.
    pub(crate) fn taken_up(&mut self, due: u64, late_ns: u64) {
        if self.is_measured(due) {
            self.lateness.record(late_ns);
        }
    }

    /// Counts a request due at `due` that waits for room.
    pub(crate) fn crowded(&mut self, due: u64) {
        self.crowded += u64::from(self.is_measured(due));
    }

    /// Counts an error; `words` describe it if it is among the first.
    #[cold]
    pub(crate) fn failed(&mut self, operation: Operation, kind: ErrorKind, words: impl FnOnce() -> String) {
        self.all_failed(1, operation, kind, words);
    }

    /// Counts so many errors that are alike.
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

    /// Returns what an operation came to: latencies of what was due, and the number of what was answered, in the
    /// measured time.
    pub(crate) fn total(&self, operation: Operation) -> &Count {
        // Every operation has its place in the array.
        &self.totals[operation as usize]
    }

    /// Returns the requests of all kinds that were answered in the measured time, without those that count outside of
    /// it.
    pub(crate) fn requests(&self) -> u64 {
        let measured = |kind: &Operation| kind.is_request() && !self.always.contains(kind);
        Operation::ALL.into_iter().filter(measured).map(|kind| self.total(kind).answered).sum()
    }

    /// Returns the generator's own delays.
    pub(crate) fn lateness(&self) -> &Latencies {
        &self.lateness
    }

    /// Returns within which time 99 % of the requests that had room were taken up, in milliseconds; `None` without a
    /// schedule.
    pub(crate) fn late_ms_p99(&self) -> Option<f64> {
        (!self.lateness.is_empty()).then(|| self.lateness.ms_p99())
    }

    /// Returns how many requests found no room.
    pub(crate) fn crowded_count(&self) -> u64 {
        self.crowded
    }

    /// Returns the errors of the whole run.
    pub(crate) fn errors(&self) -> &BTreeMap<(Operation, ErrorKind), u64> {
        &self.errors
    }

    /// Returns the number of errors of all kinds.
    pub(crate) fn errors_count(&self) -> u64 {
        self.errors.values().sum()
    }

    /// Returns the first errors, in words.
    pub(crate) fn first_errors(&self) -> &[String] {
        &self.first_errors
    }
}

/// Most errors reported in words, most violations, and most errors of one kind. When a server fails, all requests in
/// flight fail alike.
pub(crate) const FIRST_MAX: usize = 10;
/// See [`FIRST_MAX`].
const ALIKE_MAX: u64 = 2;

#[cfg(test)]
mod tests {
    use super::*;

    fn recorder() -> Recorder {
        Recorder::new(&[Operation::Create])
    }

    #[test]
    fn only_what_was_due_in_the_measured_time_has_a_latency() {
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

    /// Goal: a server that falls behind does not count answers that it gives when the time is over.
    #[test]
    fn a_rate_is_of_what_was_answered_in_the_measured_time() {
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
    fn a_second_has_what_was_over_in_it_measured_or_not() {
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
    fn errors_are_counted_by_kind_and_the_first_are_told() {
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
