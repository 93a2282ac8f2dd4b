//! What a bench counts, and what it says when it is over.

use super::accounts::Accounts;
use super::args::BenchArgs;
use crate::figures::{count, per, round};
use crate::latencies::Latencies;
use crate::stats::{ALIKE_MAX, FIRST_MAX};
use coordination_apiserver::cli::one_line;
use loadgen_account::{Limit, Memory};
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::ops::Range;

/// What is counted during a run.
#[derive(Debug)]
pub(super) struct Tally {
    /// The measured time, in nanoseconds of the run.
    window: Range<u64>,
    /// Of what was asked for, or due, in the measured time.
    latency: Latencies,
    /// From when a renewal was sent until a watcher had its event; of some watchers, and of what has come since the
    /// measured time began and was sent before it was over.
    event_delay: Latencies,
    /// With a rate, from when a request was due in the measured time until it was sent: the generator's own lateness,
    /// so without those that found no room.
    lateness: Latencies,
    /// Requests that were due in the measured time and found no connection with room, or no Lease free: they waited for
    /// the server, or for the watchers.
    crowded: u64,
    /// Requests answered in the measured time.
    requests: u64,
    /// Events that came in the measured time.
    events: u64,
    /// Bytes of the lists, and objects in them, where they can be counted.
    pub(super) list_bytes: u64,
    pub(super) list_items: u64,
    /// Requests that did not come to what they should.
    errors: BTreeMap<String, u64>,
    /// Promises that were broken.
    violations: u64,
    /// The first errors and violations, in words, each in one line.
    first: Vec<String>,
}

/// A bench that is over.
#[derive(Debug)]
pub(crate) struct Report {
    pub(super) args: BenchArgs,
    pub(super) url: String,
    pub(super) tally: Tally,
    pub(super) accounts: Accounts,
    /// Bytes of a Lease as it is sent.
    pub(super) body_bytes: usize,
    pub(super) interrupted: bool,
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

    /// Requests that did not come to what they should, by kind.
    #[cfg(test)]
    pub(super) fn errors(&self) -> &BTreeMap<String, u64> {
        &self.errors
    }

    /// Within which time 99 % of the requests were sent that found room, with a rate.
    fn late_ms_p99(&self) -> Option<f64> {
        (!self.lateness.is_empty()).then(|| self.lateness.ms_p99())
    }

    /// Neither errors nor violations.
    fn is_fine(&self) -> bool {
        self.errors.is_empty() && self.violations == 0
    }
}

impl Report {
    /// Whether it came to the measured time.
    pub(crate) fn is_measured(&self) -> bool {
        self.accounts.window.seconds() > 0.0
    }

    /// Whether everything went well. Of a run that ended before anything was measured that cannot be said.
    pub(crate) fn is_fine(&self) -> bool {
        self.is_measured() && self.tally.is_fine()
    }

    /// One line of JSON, without its end.
    pub(crate) fn json_line(&self) -> String {
        let (tally, args, seconds) = (&self.tally, &self.args, self.accounts.window.seconds());
        let [start, before, attached, end] = self.accounts.memory;
        let memory = |memory: Option<Memory>| memory.map(|memory| memory.resident_kib);
        let errors: Map<String, Value> =
            tally.errors.iter().map(|(kind, &count)| (kind.clone(), count.into())).collect();
        let window = &self.accounts.window;
        let [server_share, generator_share] = [window.server_share(), window.generator_share()];
        let json_of = |latencies: &Latencies| (!latencies.is_empty()).then(|| latencies.json());
        json!({
            "server": self.url,
            "verb": args.verb.name(),
            "http": args.server.version().name(),
            "media_type": args.media_type().name(),
            "connections": args.connections(),
            "streams": args.streams(),
            "leases": args.leases,
            "rate": args.rate,
            "watchers": args.watchers,
            "name_watchers": args.name_watchers,
            "other_names": args.other_names,
            "idle": args.idle,
            "body_bytes": self.body_bytes,
            "measured_s": seconds,
            "interrupted": self.interrupted,
            "requests": tally.requests,
            "requests_per_second": per(count(tally.requests), seconds),
            "latency": json_of(&tally.latency),
            "events": tally.events,
            "events_per_second": per(count(tally.events), seconds),
            "event_delay": json_of(&tally.event_delay),
            "list_bytes": tally.list_bytes,
            "list_items": tally.list_items,
            "server_cpu_us": window.server_us(),
            "server_cpu_share": server_share.map(round),
            "server_cpu_us_per_request": window.server_us().and_then(|us| per(us, count(tally.requests))),
            "server_cpu_us_per_event": window.server_us().and_then(|us| per(us, count(tally.events))),
            "server_memory_kib": {
                "start": memory(start),
                "before_attached": memory(before),
                "attached": memory(attached),
                "end": memory(end),
                "peak": end.map(|memory| memory.peak_kib),
            },
            "generator": {
                "cpu_share": generator_share.map(round),
                "cpu_us_per_request": per(window.generator_us(), count(tally.requests)),
                "lateness": json_of(&tally.lateness),
                "crowded": tally.crowded,
            },
            "limit": Limit::of(server_share, generator_share, tally.late_ms_p99()).map(Limit::name),
            "errors": errors,
            "violations": tally.violations,
            "first_errors": tally.first,
        })
        .to_string()
    }

    /// The table.
    pub(crate) fn table(&self) -> String {
        let (tally, args, seconds) = (&self.tally, &self.args, self.accounts.window.seconds());
        let mut out = String::new();
        // Writing to a string does not fail.
        _ = writeln!(
            out,
            "{}: {} of {} Leases, {}, {}, {} connections with {} requests in flight on each; measured {seconds:.2} s{}",
            self.url,
            args.verb.name(),
            args.leases,
            args.server.version().name(),
            args.media_type().name(),
            args.connections(),
            args.streams(),
            if self.interrupted { ", ended early" } else { "" }
        );
        let rows = [("requests", tally.requests, &tally.latency), ("events", tally.events, &tally.event_delay)];
        for (name, number, latencies) in rows {
            if number > 0 {
                let rate = per(count(number), seconds).unwrap_or_default();
                _ = write!(out, "{name}: {number}, {rate:.0} per second");
                // What was answered in the measured time may all have been due before it.
                if !latencies.is_empty() {
                    let [p50, _, p99, p999, max] = latencies.ms();
                    _ = write!(out, "; ms: p50 {p50:.3}, p99 {p99:.3}, p99.9 {p999:.3}, max {max:.3}");
                }
                out.push('\n');
            }
        }
        if tally.list_bytes > 0 {
            _ = writeln!(out, "lists: {} bytes, {} objects", tally.list_bytes, tally.list_items);
        }
        // Ended before anything was measured, a run has no shares.
        let window = &self.accounts.window;
        if let Some(share) = window.server_share() {
            _ = write!(out, "server: {:.1} % of a core", share * 100.0);
            for (what, number) in [("request", tally.requests), ("event", tally.events)] {
                if let Some(us) = window.server_us().and_then(|us| per(us, count(number))) {
                    _ = write!(out, ", {us:.2} us for each {what}");
                }
            }
            out.push('\n');
        }
        if let Some(memory) = self.accounts.memory.last().copied().flatten() {
            _ = writeln!(out, "server: {} KiB resident, at most {} KiB", memory.resident_kib, memory.peak_kib);
        }
        if let Some(share) = window.generator_share() {
            _ = writeln!(out, "generator: {:.1} % of a core", share * 100.0);
        }
        if let Some(ms) = tally.late_ms_p99() {
            _ = writeln!(
                out,
                "generator: 99 % of the requests that found room sent within {ms:.2} ms after they were due"
            );
        }
        if tally.crowded > 0 {
            _ = writeln!(
                out,
                "{} requests found no room, and waited: the server, or --connections times --streams, was too little",
                tally.crowded
            );
        }
        let errors: u64 = tally.errors.values().sum();
        _ = writeln!(out, "errors: {errors}, violations: {}", tally.violations);
        for words in &tally.first {
            _ = writeln!(out, "  - {words}");
        }
        out
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
