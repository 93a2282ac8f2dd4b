//! The results of a bench: a table for people, a line of JSON for programs.

use super::accounts::Accounts;
use super::args::BenchArgs;
use super::tally::Tally;
use crate::figures::{count, counted, per, round};
use crate::latencies::Latencies;
use crate::operation::Operation;
use crate::summary::{Outcome, Summary};
use crate::timeline::History;
use crate::usage::memory_words;
use loadgen_account::{Limit, Memory};
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;
use std::fmt::Write as _;

/// A finished bench.
#[derive(Debug)]
pub(crate) struct Report {
    pub(super) args: BenchArgs,
    pub(super) url: String,
    pub(super) tally: Tally,
    pub(super) accounts: Accounts,
    /// Size of a Lease in a request, in bytes.
    pub(super) body_bytes: usize,
    pub(super) interrupted: bool,
    pub(super) history: History,
}

impl Report {
    /// Returns the latencies of the measured operation.
    fn latencies(&self) -> &Latencies {
        &self.tally.recorder.total(self.args.verb.operation()).latencies
    }

    /// Returns the number of errors by kind, over all operations.
    fn errors(&self) -> BTreeMap<String, u64> {
        let mut errors = BTreeMap::new();
        for ((_, kind), number) in self.tally.recorder.errors() {
            *errors.entry(kind.name()).or_default() += number;
        }
        errors
    }
}

impl Outcome for Report {
    fn json_line(&self) -> String {
        let (tally, args, seconds) = (&self.tally, &self.args, self.accounts.window.seconds());
        let recorder = &tally.recorder;
        let (requests, events) = (recorder.requests(), recorder.total(Operation::WatchEvent));
        let [start, before, attached, end] = self.accounts.memory;
        let memory = |memory: Option<Memory>| memory.map(|memory| memory.resident_kib);
        let errors: Map<String, Value> = self.errors().into_iter().map(|(kind, count)| (kind, count.into())).collect();
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
            "burst": args.rate.map(|_| args.burst),
            "watchers": args.watchers,
            "name_watchers": args.name_watchers,
            "other_names": args.other_names,
            "idle": args.idle,
            "body_bytes": self.body_bytes,
            "measured_s": seconds,
            "interrupted": self.interrupted,
            "requests": requests,
            "requests_per_second": per(count(requests), seconds),
            "latency": json_of(self.latencies()),
            "events": events.answered,
            "events_per_second": per(count(events.answered), seconds),
            "event_delay": json_of(&events.latencies),
            "list_bytes": tally.list_bytes,
            "list_items": tally.list_items,
            "server_cpu_us": window.server_us(),
            "server_cpu_share": server_share.map(round),
            "server_cpu_us_per_request": window.server_us().and_then(|us| per(us, count(requests))),
            "server_cpu_us_per_event": window.server_us().and_then(|us| per(us, count(events.answered))),
            "server_memory_kib": {
                "start": memory(start),
                "before_attached": memory(before),
                "attached": memory(attached),
                "end": memory(end),
                "peak": end.map(|memory| memory.peak_kib),
            },
            "generator": {
                "cpu_share": generator_share.map(round),
                "cpu_us_per_request": per(window.generator_us(), count(requests)),
                "lateness": json_of(&recorder.lateness),
                "crowded": recorder.crowded_count(),
            },
            "limit": self.summary().limit().map(Limit::name),
            "errors": errors,
            "violations": tally.violations(),
            "first_errors": tally.first().collect::<Vec<_>>(),
        })
        .to_string()
    }

    fn table(&self) -> String {
        let (tally, args, seconds) = (&self.tally, &self.args, self.accounts.window.seconds());
        let recorder = &tally.recorder;
        let (requests, events) = (recorder.requests(), recorder.total(Operation::WatchEvent));
        let mut out = String::new();
        // Writing to a string does not fail.
        _ = writeln!(
            out,
            "{}: {} of {}, {}, {}, {} with up to {} on each; measured {seconds:.2} s{}",
            self.url,
            args.verb.name(),
            counted(args.leases.into(), "Lease"),
            args.server.version().name(),
            args.media_type().name(),
            counted(args.connections().into(), "connection"),
            in_flight(args),
            if self.interrupted { ", ended early" } else { "" }
        );
        let rows = [("requests", requests, self.latencies()), ("events", events.answered, &events.latencies)];
        for (name, number, latencies) in rows {
            if number > 0 {
                let rate = per(count(number), seconds).unwrap_or_default();
                _ = write!(out, "{name}: {number}, {rate:.0} per second");
                // There may be no latencies although requests were answered or events arrived. The number counts
                // requests that were answered in the measured time. Latencies are those of requests that were due in
                // this time. And only some watchers measure the latency of their events.
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
        // A run that ended before the measured time has no processor time to report.
        let window = &self.accounts.window;
        if let Some(share) = window.server_share() {
            _ = write!(out, "server: {:.1} % of a core", share * 100.0);
            for (what, number) in [("request", requests), ("event", events.answered)] {
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
        if let Some(ms) = recorder.late_ms_p99() {
            _ = writeln!(
                out,
                "generator: 99 % of the requests that found room were sent within {ms:.2} ms after they were due"
            );
        }
        if let Some(words) = recorder.crowded_words() {
            _ = writeln!(out, "{words}");
        }
        _ = writeln!(out, "errors: {}, violations: {}", recorder.errors_count(), tally.violations());
        for words in tally.first() {
            _ = writeln!(out, "  - {words}");
        }
        out
    }

    fn summary(&self) -> Summary<'_> {
        let (args, tally) = (&self.args, &self.tally);
        let seconds = self.accounts.window.seconds();
        let lanes = counted(args.connections().into(), "connection");
        let [broad, narrow] = args.watch_connections();
        let watchers = counted(u64::from(args.watchers) + u64::from(args.name_watchers), "watcher");
        let rate = args.rate.map_or_else(
            || "each request follows the last answer".to_owned(),
            |rate| match args.burst {
                1 => format!("{} a second", counted(rate.into(), "request")),
                burst => format!("{} a second, {burst} at once", counted(rate.into(), "request")),
            },
        );
        let mut facts = vec![
            ("Load", format!("{} of {}; {rate}", args.verb.name(), counted(args.leases.into(), "Lease"))),
            ("Protocol", format!("{}, {}", args.server.version().name(), args.media_type().name())),
            ("Connections", format!("{lanes} with up to {} each", in_flight(args))),
        ];
        if broad + narrow > 0 {
            let lanes = counted(u64::from(broad) + u64::from(narrow), "connection");
            facts.push(("Watchers", format!("{watchers} on {lanes}")));
        }
        if args.idle > 0 {
            facts.push(("Idle", counted(args.idle.into(), "connection")));
        }
        if let Some(memory) = self.accounts.memory.last().copied().flatten() {
            facts.push(("Server's memory", memory_words(memory)));
        }
        let main = args.verb.operation();
        Summary {
            title: format!("bench {} of {}", args.verb.name(), counted(args.leases.into(), "Lease")),
            url: &self.url,
            facts,
            recorder: &tally.recorder,
            rows: vec![(main, seconds), (Operation::WatchEvent, seconds)],
            main,
            window: &self.accounts.window,
            violations: tally.violations(),
            first_violations: &tally.first_violations,
            history: &self.history,
            is_interrupted: self.interrupted,
        }
    }
}

/// Formats the maximum number of requests in flight on each connection. Each Lease has at most one request in flight.
fn in_flight(args: &BenchArgs) -> String {
    counted(args.streams().min(args.leases).into(), "request in flight")
}
