//! Counters: latencies by verb, errors by kind, events, handshakes.
//!
//! A latency starts when the request was *due*. So a delay by the server or the generator shows in all requests it
//! delayed.

use crate::latencies::Latencies;
use coordination_apiserver::cli::one_line;
use coordination_apiserver::http2::ErrorCode;
use std::collections::BTreeMap;

/// The operations that the results distinguish.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Verb {
    /// POST of a node's first Lease.
    Create,
    /// PUT, from the renewal's due time to its acknowledgement, with all tries; also a POST if the Lease was lost.
    Renew,
    /// GET of one Lease.
    Read,
    /// A page of a watcher's list.
    List,
    /// A watch: errors only; its events are counted separately.
    Watch,
    /// A connection with no request in flight: errors only.
    Connection,
}

impl Verb {
    /// Returns the name in the results.
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::Create => "create",
            Self::Renew => "renew",
            Self::Read => "read",
            Self::List => "list",
            Self::Watch => "watch",
            Self::Connection => "connection",
        }
    }
}

/// The kinds of request errors that the results distinguish.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum ErrorKind {
    /// An answer with an unexpected status.
    Status(u16),
    /// The connection ended before the answer.
    Reset,
    /// The server reset the stream with this HTTP/2 error code (RFC 9113 §7).
    Stream(u32),
    /// The server closed the connection with GOAWAY and this code.
    Goaway(u32),
    /// The server refused the request repeatedly without processing it.
    Refused,
    /// No answer in time.
    Timeout,
    /// The answer could not be read.
    Malformed,
    /// The run ended before the request could be sent, or before its answer.
    Unanswered,
}

impl ErrorKind {
    /// Returns the name in the results.
    pub(crate) fn name(self) -> String {
        match self {
            Self::Status(status) => status.to_string(),
            Self::Reset => "reset".to_owned(),
            Self::Stream(code) => format!("RST_STREAM {}", ErrorCode(code)),
            Self::Goaway(code) => format!("GOAWAY {}", ErrorCode(code)),
            Self::Refused => "refused".to_owned(),
            Self::Timeout => "timeout".to_owned(),
            Self::Malformed => "malformed".to_owned(),
            Self::Unanswered => "unanswered".to_owned(),
        }
    }
}

/// All counters of a run.
#[derive(Debug)]
pub(crate) struct Stats {
    /// Latencies of requests due in the measured time; for creation, of all requests.
    latencies: [Latencies; 4],
    /// Requests answered in the measured time, whenever due: the basis of rates and of the server's time for each
    /// request. For creation and lists, all requests.
    answered_by_verb: [u64; 4],
    /// Events received in the measured time.
    pub(crate) events_measured: u64,
    /// Delay from acknowledgement to event, for writes acknowledged in the measured time.
    pub(crate) watch_delay: Latencies,
    /// The generator's own delay: from a request's due time, or its node becoming free, until the loop took it up.
    pub(crate) lateness: Latencies,
    /// Requests due in the measured time whose connection was full.
    pub(crate) crowded: u64,
    /// Errors of the whole run.
    pub(crate) errors: BTreeMap<(Verb, ErrorKind), u64>,
    /// The first errors, one line of text each.
    pub(crate) first_errors: Vec<String>,
    /// Requests answered in the whole run, for the progress bar.
    pub(crate) answered: u64,
    /// Events in the whole run, for the progress bar.
    pub(crate) events: u64,
    /// Connections begun.
    pub(crate) connections: u64,
    /// Broken connections that moved to another server.
    pub(crate) moves: u64,
    /// TLS handshakes, and how many of them resumed a session.
    pub(crate) handshakes: u64,
    pub(crate) handshakes_resumed: u64,
    /// Watches whose version was too old, so that a new list was needed.
    pub(crate) watches_expired: u64,
    /// The measured time, in nanoseconds of the run; requests due in it count.
    pub(crate) window: std::ops::Range<u64>,
}

impl Stats {
    /// Creates counters of zero without a measured time.
    pub(crate) fn new() -> Self {
        Self {
            latencies: std::array::from_fn(|_| Latencies::new()),
            answered_by_verb: [0; 4],
            events_measured: 0,
            watch_delay: Latencies::new(),
            lateness: Latencies::new(),
            crowded: 0,
            errors: BTreeMap::new(),
            first_errors: Vec::new(),
            answered: 0,
            events: 0,
            connections: 0,
            moves: 0,
            handshakes: 0,
            handshakes_resumed: 0,
            watches_expired: 0,
            window: u64::MAX..u64::MAX,
        }
    }

    /// Returns the latencies of a verb; a watch has none.
    pub(crate) fn latency(&self, verb: Verb) -> Option<&Latencies> {
        self.latencies.get(verb as usize)
    }

    /// Counts a request due at `due` that succeeded at `now`.
    pub(crate) fn succeeded(&mut self, verb: Verb, due: u64, now: u64) {
        let always = matches!(verb, Verb::Create | Verb::List);
        if let Some(latencies) = self.latencies.get_mut(verb as usize).filter(|_| always || self.window.contains(&due))
        {
            latencies.record(now.saturating_sub(due));
        }
        if let Some(answered) = self.answered_by_verb.get_mut(verb as usize) {
            *answered += u64::from(always || self.window.contains(&now));
        }
    }

    /// Returns how many requests of a verb were answered in the measured time.
    pub(crate) fn answered_measured(&self, verb: Verb) -> u64 {
        self.answered_by_verb.get(verb as usize).copied().unwrap_or_default()
    }

    /// Counts a request due at `due` when the loop takes it up, with the generator's own delay. A `crowded` connection
    /// makes it wait.
    pub(crate) fn taken_up(&mut self, due: u64, late_ns: u64, crowded: bool) {
        if self.window.contains(&due) {
            self.lateness.record(late_ns);
            self.crowded += u64::from(crowded);
        }
    }

    /// Counts an event received at `now` whose write was acknowledged at `acked_at`. Events after the measured time
    /// count too, since they are the latest.
    pub(crate) fn event(&mut self, acked_at: u64, now: u64) {
        self.events += 1;
        self.events_measured += u64::from(self.window.contains(&now));
        if self.window.contains(&acked_at) {
            self.watch_delay.record(now.saturating_sub(acked_at));
        }
    }

    /// Counts an error; `words` describe it if it is among the first.
    #[cold]
    pub(crate) fn failed(&mut self, verb: Verb, kind: ErrorKind, words: impl FnOnce() -> String) {
        let count = self.errors.entry((verb, kind)).or_default();
        *count += 1;
        if *count <= ALIKE_MAX && self.first_errors.len() < FIRST_MAX {
            self.first_errors.push(one_line(&format!("{} {}: {}", verb.as_str(), kind.name(), words())));
        }
    }

    /// Returns the number of errors of all kinds.
    pub(crate) fn errors_count(&self) -> u64 {
        self.errors.values().sum()
    }
}

/// Most errors reported in words, most violations, and most errors of one kind. When a server fails, all requests in
/// flight fail alike.
pub(crate) const FIRST_MAX: usize = 10;
/// See [`FIRST_MAX`].
pub(crate) const ALIKE_MAX: u64 = 2;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_was_due_in_the_measured_time_counts() {
        let mut stats = Stats::new();
        stats.succeeded(Verb::Renew, 5, 10);
        stats.window = 1_000..2_000;
        for due in [999, 1_000, 1_999, 2_000] {
            stats.succeeded(Verb::Renew, due, due + 5_000_000);
        }
        let renewals = stats.latency(Verb::Renew).expect("has latencies");
        assert_eq!(renewals.len(), 2);
        assert!((4.99..=5.01).contains(&renewals.ms()[4]), "{:?}", renewals.ms());
        stats.succeeded(Verb::Create, 5, 10);
        assert_eq!(stats.latency(Verb::Create).map(Latencies::len), Some(1));
    }

    /// Goal: a server that falls behind is not told to have answered what it answers when the time is over.
    #[test]
    fn a_rate_is_of_what_was_answered_in_the_measured_time() {
        let mut stats = Stats::new();
        stats.window = 1_000..2_000;
        for (due, now) in [(900, 999), (900, 1_000), (1_500, 1_999), (1_500, 2_000), (1_900, 9_000)] {
            stats.succeeded(Verb::Renew, due, now);
            stats.event(due, now);
        }
        assert_eq!((stats.answered_measured(Verb::Renew), stats.events_measured), (2, 2));
        assert_eq!(stats.latency(Verb::Renew).map(Latencies::len), Some(3));
        stats.succeeded(Verb::Create, 5, 10);
        assert_eq!(stats.answered_measured(Verb::Create), 1);
    }

    #[test]
    fn events_count_by_when_their_writes_were_acknowledged() {
        let mut stats = Stats::new();
        stats.window = 1_000..2_000;
        for acked_at in [999, 1_000, 1_999, 2_000] {
            stats.event(acked_at, acked_at + 5_000_000);
        }
        assert_eq!((stats.events, stats.watch_delay.len()), (4, 2));
        assert!((4.99..=5.01).contains(&stats.watch_delay.ms()[4]), "{:?}", stats.watch_delay.ms());
    }

    #[test]
    fn errors_are_counted_by_kind_and_the_first_are_told() {
        let mut stats = Stats::new();
        for _ in 0..20 {
            stats.failed(Verb::Read, ErrorKind::Status(500), || "x".to_owned());
        }
        stats.failed(Verb::Renew, ErrorKind::Reset, || "y".to_owned());
        assert_eq!(stats.errors[&(Verb::Read, ErrorKind::Status(500))], 20);
        assert_eq!(stats.errors_count(), 21);
        assert_eq!(stats.first_errors, ["read 500: x", "read 500: x", "renew reset: y"]);
        (0..20).for_each(|code| stats.failed(Verb::Read, ErrorKind::Status(code), || "z".to_owned()));
        assert_eq!(stats.first_errors.len(), 10);
    }
}
