//! The results of a run of the simulated nodes: a table for people, and a line of JSON for programs.

use crate::args::Args;
use crate::figures::{count, counted, counted_ratio, grouped, per, round};
use crate::fleet::Fleet;
use crate::operation::Operation;
use crate::recorder::{Count, Recorder};
use crate::summary::{Outcome, Summary};
use crate::timeline::History;
use crate::usage::{Window, memory_words};
use loadgen_account::{BUSY_SHARE, LATE_MS_MAX, Limit, Memory};
use serde_json::{Map, Value, json};
use std::fmt::Write as _;
use std::time::Duration;

/// The lengths of the phases of a run, and the server's resource use.
#[derive(Debug, Default)]
pub(crate) struct Timing {
    /// Length of the phase in which the nodes create or find their Leases. The phase ends when each node has its Lease
    /// or has given up, or when the user ends the run.
    pub(crate) creating: Duration,
    /// The measured time, and the processor time used in it.
    pub(crate) window: Window,
    /// Memory of the server's processes at the end of the measured time; `None` if `--pid` does not name the processes.
    pub(crate) server_memory: Option<Memory>,
    /// Whether the run was ended early.
    pub(crate) interrupted: bool,
}

/// A finished run of the simulated nodes, with all that the results need.
#[derive(Debug)]
pub(crate) struct Results {
    pub(crate) args: Args,
    pub(crate) url: String,
    pub(crate) timing: Timing,
    pub(crate) fleet: Fleet,
    pub(crate) history: History,
}

impl Results {
    fn push_head(&self, out: &mut String) -> std::fmt::Result {
        let (args, timing, fleet) = (&self.args, &self.timing, &self.fleet);
        let (nodes, reads) = (counted(args.nodes.into(), "node"), counted_ratio(args.reads, "read"));
        writeln!(out, "{}: {nodes}, {}; {reads} for each renewal", self.url, self.load_words())?;
        writeln!(
            out,
            "{}: {} with up to {} on each; {} on {} more",
            args.version().name(),
            counted(args.connections().into(), "connection"),
            counted(args.streams().into(), "request in flight"),
            counted(args.watchers.into(), "watcher"),
            args.watch_connections()
        )?;
        write!(
            out,
            "{} created, {} found, in {:.1} s",
            counted(fleet.created.into(), "Lease"),
            grouped(fleet.adopted.into()),
            timing.creating.as_secs_f64()
        )?;
        if fleet.created_later > 0 {
            write!(out, ", {} created later", fleet.created_later)?;
        }
        writeln!(
            out,
            "; then measured {:.1} s{}",
            timing.window.seconds(),
            if timing.interrupted { ", ended early" } else { "" }
        )
    }

    /// Describes whether the generator limited the results, with the figures of the generator. Returns `None` if
    /// nothing was measured.
    fn generator_words(&self) -> Option<String> {
        let share = self.timing.window.generator_share()?;
        let is_limit = self.summary().limit() == Some(Limit::Generator);
        let verdict = if is_limit { "it WAS the limit" } else { "it was not the limit" };
        let lateness = self.recorder().late_ms_p99().map_or_else(String::new, |late_ms| {
            format!(", 99 % of the requests taken up within {late_ms:.2} ms (bound: {LATE_MS_MAX} ms)")
        });
        let (percent, bound) = (share * 100.0, BUSY_SHARE * 100.0);
        Some(format!("Generator: {percent:.0} % of a core (bound: {bound:.0} %){lateness}: {verdict}."))
    }

    /// Returns the server's processor time for each answered renewal or read, in microseconds. This time includes the
    /// delivery of events to watchers.
    fn server_cpu_us_per_request(&self) -> Option<f64> {
        let requests = [Operation::Renew, Operation::Read].map(|kind| self.recorder().total(kind).answered);
        per(self.timing.window.server_us()?, count(requests.iter().sum()))
    }

    /// Describes the load.
    fn load_words(&self) -> String {
        if self.args.max {
            "renewing as fast as it goes".to_owned()
        } else {
            format!("each renewing every {:?}", self.args.period)
        }
    }

    /// Returns the operations in the results. Each has the length of the time over which its rate is computed, in
    /// seconds. With a length of 0, the results show no rate.
    fn rows(&self) -> [(Operation, f64); 5] {
        let measured = self.timing.window.seconds();
        [
            (Operation::Create, self.timing.creating.as_secs_f64()),
            (Operation::Renew, measured),
            (Operation::Read, measured),
            (Operation::List, 0.0),
            (Operation::WatchEvent, measured),
        ]
    }

    fn recorder(&self) -> &Recorder {
        &self.fleet.recorder
    }
}

impl Outcome for Results {
    fn table(&self) -> String {
        let Fleet { recorder, stats, checker, .. } = &self.fleet;
        let timing = &self.timing;
        let mut out = String::new();
        // Writing to a string cannot fail.
        _ = self.push_head(&mut out);
        _ = writeln!(
            out,
            "\n{:<12} {:>11} {:>11} {:>9} {:>9} {:>9} {:>9} {:>9}",
            "", "count", "per second", "p50 ms", "p90 ms", "p99 ms", "p99.9 ms", "max ms"
        );
        for (operation, seconds) in self.rows() {
            push_row(&mut out, &operation.name().replace('_', " "), recorder.total(operation), seconds);
        }
        _ = writeln!(
            out,
            "\nA latency starts when the request was due; for an event, when its write was acknowledged. Latencies\n\
             are of requests due in the measured time, without failed requests. Rates are of requests answered in the\n\
             measured time.\n\
             Connections begun: {}, moved to another server: {}; TLS handshakes: {}, of which {} resumed. Watches that had\n\
             expired: {}.",
            stats.connections, stats.moves, stats.handshakes, stats.handshakes_resumed, stats.watches_expired
        );
        if let Some(words) = self.generator_words() {
            _ = writeln!(out, "{words}");
        }
        if let Some(share) = timing.window.server_share() {
            _ = writeln!(
                out,
                "Server: {:.1} % of a core, {:.2} us for each request.",
                share * 100.0,
                self.server_cpu_us_per_request().unwrap_or_default()
            );
        }
        if let Some(memory) = timing.server_memory {
            _ = writeln!(out, "Server: {} KiB resident, at most {} KiB.", memory.resident_kib, memory.peak_kib);
        }
        if let Some(words) = recorder.crowded_words() {
            _ = writeln!(out, "{words}.");
        }
        _ = writeln!(out, "\nerrors: {}", recorder.errors_count());
        for ((operation, kind), count) in recorder.errors() {
            _ = writeln!(out, "  {:<10} {:<24} {count:>9}", operation.name(), kind.name());
        }
        for words in recorder.first_errors() {
            _ = writeln!(out, "  - {words}");
        }
        _ = writeln!(out, "violations: {}", checker.count());
        for words in checker.first() {
            _ = writeln!(out, "  - {words}");
        }
        out
    }

    fn json_line(&self) -> String {
        let Fleet { recorder, stats, checker, .. } = &self.fleet;
        let (timing, args) = (&self.timing, &self.args);
        let verbs: Map<String, Value> = self
            .rows()
            .into_iter()
            .map(|(operation, seconds)| (operation.name().to_owned(), json_of(recorder.total(operation), seconds)))
            .collect();
        let errors: Map<String, Value> = recorder
            .errors()
            .iter()
            .map(|((operation, kind), count)| (format!("{} {}", operation.name(), kind.name()), json!(count)))
            .collect();
        json!({
            "server": self.url,
            "nodes": args.nodes,
            "period_s": args.period.as_secs_f64(),
            "http": args.version().name(),
            "connections": args.connections(),
            "streams": args.streams(),
            "watchers": args.watchers,
            "watch_connections": args.watch_connections(),
            "reads": args.reads,
            "max": args.max,
            "measured_s": timing.window.seconds(),
            "interrupted": timing.interrupted,
            "created_later": self.fleet.created_later,
            "verbs": verbs,
            "connections_begun": stats.connections,
            "connections_moved": stats.moves,
            "tls_handshakes": stats.handshakes,
            "tls_handshakes_resumed": stats.handshakes_resumed,
            "watches_expired": stats.watches_expired,
            "generator": {
                "cpu_share": timing.window.generator_share().map(round),
                "lateness_ms_p99": self.recorder().late_ms_p99(),
                "crowded": recorder.crowded_count(),
            },
            "limit": self.summary().limit().map(Limit::name),
            "server_cpu_share": timing.window.server_share().map(round),
            "server_cpu_us_per_request": self.server_cpu_us_per_request(),
            "server_memory_kib": timing.server_memory.map(|memory| json!({
                "end": memory.resident_kib,
                "peak": memory.peak_kib,
            })),
            "errors": errors,
            "first_errors": recorder.first_errors(),
            "violations": checker.count(),
            "first_violations": checker.first(),
        })
        .to_string()
    }

    fn summary(&self) -> Summary<'_> {
        let Fleet { recorder, stats, checker, created, adopted, .. } = &self.fleet;
        let (args, timing) = (&self.args, &self.timing);
        let lanes = counted(args.connections().into(), "connection");
        let watchers = counted(args.watchers.into(), "watcher");
        let mut facts = vec![
            ("Load", format!("{}; {} for each renewal", self.load_words(), counted_ratio(args.reads, "read"))),
            ("Protocol", args.version().name().to_owned()),
            ("Connections", format!("{lanes} with up to {} each", counted(args.streams().into(), "request in flight"))),
            ("Watchers", format!("{watchers} on {}", counted(args.watch_connections().into(), "connection"))),
            (
                "Leases",
                format!(
                    "{} created, {} found, in {:.1} s",
                    grouped((*created).into()),
                    grouped((*adopted).into()),
                    timing.creating.as_secs_f64()
                ),
            ),
            (
                "TLS",
                format!("{}, {} resumed", counted(stats.handshakes, "handshake"), grouped(stats.handshakes_resumed)),
            ),
        ];
        if let Some(memory) = timing.server_memory {
            facts.push(("Server's memory", memory_words(memory)));
        }
        Summary {
            title: format!("{}, {}", counted(args.nodes.into(), "node"), self.load_words()),
            url: &self.url,
            facts,
            recorder,
            rows: self.rows().to_vec(),
            main: Operation::Renew,
            window: &timing.window,
            violations: checker.count(),
            first_violations: checker.first(),
            history: &self.history,
            is_interrupted: timing.interrupted,
        }
    }
}

fn push_row(out: &mut String, name: &str, Count { answered, latencies }: &Count, seconds: f64) {
    let rate = per(count(*answered), seconds).map_or_else(|| "-".to_owned(), |rate| format!("{rate:.1}"));
    _ = write!(out, "{name:<12} {:>11} {rate:>11}", latencies.len());
    for ms in latencies.ms() {
        _ = if latencies.is_empty() { write!(out, " {:>9}", "-") } else { write!(out, " {ms:>9.2}") };
    }
    out.push('\n');
}

fn json_of(Count { answered, latencies }: &Count, seconds: f64) -> Value {
    let mut value = latencies.json();
    value["per_second"] = json!(per(count(*answered), seconds));
    value
}
