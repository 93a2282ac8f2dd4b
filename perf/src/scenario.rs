//! What is measured, and how.

use crate::lab::{Lab, OURS, Server, Stop, Wire, parse};
use crate::measurement::{Measurement, Told};
use serde_json::Value;
use std::thread::sleep;
use std::time::Duration;

/// One scenario: its name, and what to do.
#[derive(Clone, Debug)]
pub(crate) struct Scenario {
    pub(crate) group: &'static str,
    pub(crate) name: String,
    /// What it is, in a line.
    pub(crate) about: String,
    /// It takes long, and comes once however many rounds there are.
    pub(crate) is_once: bool,
    kind: Kind,
}

#[derive(Clone, Debug)]
enum Kind {
    /// A load on the server that all of these share, and on those of others.
    Shared {
        wire: Wire,
        arguments: Vec<String>,
        unit: &'static str,
        with_others: bool,
    },
    Nghttpd {
        tls: bool,
    },
    Echo {
        leases: u32,
    },
    /// A fresh server with so many Leases: creation, renewals, list.
    Table {
        leases: u32,
    },
    /// A fresh server with a million Leases, and a renewal's latency while long work is done on it.
    Stalls {
        leases: u32,
    },
    /// What idle connections and watchers take, on a fresh server.
    Attached {
        what: &'static str,
        count: u32,
        leases: u32,
    },
    /// Simulated nodes on a schedule, on a fresh server.
    Nodes {
        nodes: u32,
        period: &'static str,
        duration: &'static str,
        reads: bool,
    },
}

const H2_TLS: Wire = Wire { http1: false, tls: true };
const H1_CLEAR: Wire = Wire { http1: true, tls: false };
/// What a Lease takes on the wire, until one was seen.
const BODY_BYTES: usize = 700;

/// All scenarios, in their order.
pub(crate) fn all(is_quick: bool) -> Vec<Scenario> {
    let size = |full: u32, quick: u32| if is_quick { quick } else { full };
    let leases = size(10_000, 1_000);
    let mut all = Vec::new();
    let mut add = |group, name: String, about: String, kind| {
        all.push(Scenario { group, name, about, is_once: matches!(kind, Kind::Nodes { .. }), kind });
    };
    for verb in ["renew", "read"] {
        for http1 in [false, true] {
            for tls in [true, false] {
                for protobuf in [false, true] {
                    for (connections, streams) in if http1 { [(64, 1), (1, 1)] } else { [(8, 32), (8, 8)] } {
                        let wire = Wire { http1, tls };
                        let media = if protobuf { "protobuf" } else { "json" };
                        let shape = if http1 { connections.to_string() } else { format!("{connections}x{streams}") };
                        let name = format!("{verb}-{media}-{}-{shape}", wire.name());
                        let about = format!(
                            "{verb} as fast as it goes; {connections} connections, {streams} in flight on each"
                        );
                        let mut arguments = bench(verb, leases);
                        arguments.extend(flags(&[("--connections", connections), ("--streams", streams)]));
                        if protobuf {
                            arguments.push("--protobuf".to_owned());
                        }
                        let group = if verb == "renew" { "renew" } else { "read" };
                        let floor = floor_of(&name, leases);
                        add(group, name, about, Kind::Shared { wire, arguments, unit: "request", with_others: true });
                        if let Some((name, about, kind)) = floor {
                            add("floor", name, about, kind);
                        }
                    }
                }
            }
        }
    }
    for watchers in [1, 10, 100, 1_000].into_iter().filter(|&watchers| watchers <= size(1_000, 10)) {
        let mut arguments = bench("renew", 1_000);
        arguments.extend(flags(&[("--watchers", watchers), ("--lag", 64), ("--connections", 8), ("--streams", 8)]));
        let about = format!("every renewal as an event to {watchers} watchers of all Leases, over HTTP/2 and TLS");
        let kind = Kind::Shared { wire: H2_TLS, arguments, unit: "event", with_others: false };
        add("fan-out", format!("fan-out-{watchers}"), about, kind);
    }
    for (name, about, own) in [
        ("names-0", "renewals with no watcher, for the two below", None),
        ("names-other", "the same, with 10,000 watchers of one other Lease each", Some(false)),
        ("names-own", "the same, with 10,000 watchers of one Lease each, all of them renewed", Some(true)),
    ] {
        let mut arguments = bench("renew", leases);
        if let Some(own) = own {
            arguments.extend(flags(&[("--name-watchers", size(10_000, 500)), ("--watch-streams", 1_000)]));
            arguments.extend((!own).then(|| "--other-names".to_owned()));
        }
        let kind = Kind::Shared { wire: H2_TLS, arguments, unit: "request", with_others: false };
        add("fan-out", name.to_owned(), about.to_owned(), kind);
    }
    let attached =
        [("idle", 1_000), ("idle", 10_000), ("watchers", 1_000), ("watchers", 10_000), ("watchers", 100_000)];
    for (what, count) in if is_quick { &[("idle", 100), ("watchers", 500)][..] } else { &attached } {
        let about = format!("renewals beside {count} {}, and what one takes of memory", attached_words(what));
        let kind = Kind::Attached { what, count: *count, leases };
        add("memory", format!("memory-{what}-{count}"), about, kind);
    }
    for leases in [1_000, 10_000, 100_000, 1_000_000].into_iter().filter(|&leases| leases <= size(1_000_000, 10_000)) {
        let about = format!("{leases} Leases on a fresh server: creating them, renewing them at random, listing all");
        add("table", format!("table-{leases}"), about, Kind::Table { leases });
    }
    let leases = size(1_000_000, 20_000);
    let about = format!("a renewal's latency while {leases} Leases are listed, deleted, and 1,000 watchers resume");
    add("stalls", "stalls".to_owned(), about, Kind::Stalls { leases });
    let nodes = Kind::Nodes {
        nodes: size(10_000, 1_000),
        period: if is_quick { "1s" } else { "10s" },
        duration: if is_quick { "1s" } else { "30s" },
        reads: true,
    };
    let about = "the canonical load: each node renews every 10 s, its Lease is read as often, one watcher of all";
    add("nodes", format!("nodes-{}", size(10_000, 1_000)), about.to_owned(), nodes);
    if !is_quick {
        let about = "1,000,000 nodes, 100,000 renewals a second over HTTP/2 and TLS".to_owned();
        let kind = Kind::Nodes { nodes: 1_000_000, period: "10s", duration: "20s", reads: false };
        add("nodes", "nodes-1000000".to_owned(), about, kind);
    }
    all
}

/// The floor below a scenario, which comes right behind it.
fn floor_of(scenario: &str, leases: u32) -> Option<(String, String, Kind)> {
    let (_, floor, _) = FLOORS.into_iter().find(|(ours, ..)| *ours == scenario)?;
    let (about, kind) = match floor.strip_prefix("floor-nghttpd-") {
        Some(wire) => (
            "nghttpd and h2load: a static file of a Lease's size",
            Kind::Nghttpd { tls: wire.starts_with("http2-tls") },
        ),
        None => ("perf-floor: the same load, given back", Kind::Echo { leases }),
    };
    Some((floor.to_owned(), about.to_owned(), kind))
}

/// A scenario, the floor below it, and whose that is.
pub(crate) const FLOORS: [(&str, &str, &str); 3] = [
    ("renew-json-http2-tls-8x32", "floor-nghttpd-http2-tls-8x32", "nghttpd"),
    ("renew-json-http2-clear-8x32", "floor-nghttpd-http2-clear-8x32", "nghttpd"),
    ("renew-json-http1-clear-64", "floor-echo-http1-clear-64", "echo"),
];

impl Wire {
    fn name(self) -> String {
        format!("{}-{}", if self.http1 { "http1" } else { "http2" }, if self.tls { "tls" } else { "clear" })
    }
}

fn bench(verb: &str, leases: u32) -> Vec<String> {
    ["bench", verb, "--leases", &leases.to_string()].map(str::to_owned).to_vec()
}

fn flags(flags: &[(&str, u32)]) -> Vec<String> {
    flags.iter().flat_map(|(flag, value)| [(*flag).to_owned(), value.to_string()]).collect()
}

fn attached_words(what: &str) -> &'static str {
    if what == "idle" { "idle connections over HTTP/2 and TLS" } else { "watchers of other names" }
}

/// The servers that last for the whole run, and what was learned of them.
#[derive(Debug)]
pub(crate) struct Bench<'l> {
    lab: &'l Lab,
    shared: Server,
    others: Vec<Server>,
    /// Of a Lease in JSON, as the shared server writes it.
    body_bytes: usize,
}

impl<'l> Bench<'l> {
    pub(crate) fn new(lab: &'l Lab, others: Vec<Server>) -> Result<Self, String> {
        Ok(Self { lab, shared: lab.start_server()?, others, body_bytes: BODY_BYTES })
    }

    /// Does one scenario once. `tell` takes each measurement.
    pub(crate) fn run(&mut self, scenario: &Scenario, mut tell: impl FnMut(Measurement)) -> Result<(), Stop> {
        let Scenario { group, name, .. } = scenario;
        match &scenario.kind {
            Kind::Shared { wire, arguments, unit, with_others } => {
                let others = self.others.iter().filter(|_| *with_others);
                for server in std::iter::once(&self.shared).chain(others) {
                    let Some(told) = self.lab.load(server, *wire, &self.timed(arguments)) else { continue };
                    let told = told?;
                    if server.name == OURS && !arguments.iter().any(|argument| argument == "--protobuf") {
                        let bytes = told.json["body_bytes"].as_u64().and_then(|bytes| usize::try_from(bytes).ok());
                        self.body_bytes = bytes.unwrap_or(self.body_bytes);
                    }
                    tell(Measurement::of_bench(group, name, &server.name, unit, told));
                }
            }
            Kind::Nghttpd { tls } => {
                let (nghttpd, url) = self.lab.start_nghttpd(*tls, self.body_bytes)?;
                let told = self.lab.h2load(&nghttpd, &url, 32)?;
                tell(Measurement::of_bench(group, name, "nghttpd", "request", told));
            }
            Kind::Echo { leases } => {
                let echo = self.lab.start_floor()?;
                let mut arguments = bench("echo", *leases);
                arguments.extend(["--body-bytes".to_owned(), self.body_bytes.to_string()]);
                let told = self.lab.load(&echo, H1_CLEAR, &self.timed(&arguments)).ok_or("echo")??;
                tell(Measurement::of_bench(group, name, "echo", "request", told));
            }
            Kind::Table { leases } => self.table(group, *leases, &mut tell)?,
            Kind::Stalls { leases } => self.stalls(group, *leases, &mut tell)?,
            Kind::Attached { what, count, leases } => {
                let server = self.lab.start_server()?;
                let flag = if *what == "idle" { "--idle" } else { "--name-watchers" };
                let mut arguments = bench("renew", *leases);
                arguments.extend(flags(&[(flag, *count)]));
                if *what == "watchers" {
                    arguments.extend(flags(&[("--watch-streams", 1_000)]));
                    arguments.push("--other-names".to_owned());
                }
                let told = self.lab.load(&server, H2_TLS, &self.timed(&arguments)).ok_or("no TLS")??;
                let memory = told.json["server_memory_kib"].clone();
                let taken = memory["attached"].as_f64().zip(memory["before_attached"].as_f64());
                let bytes_each = taken.map(|(with, without)| (with - without) * 1024.0 / f64::from(*count));
                let measured = Measurement::of_bench(group, name, OURS, "request", told);
                tell(Measurement { bytes_each, ..measured });
            }
            Kind::Nodes { nodes, period, duration, reads } => {
                let server = self.lab.start_server()?;
                let mut arguments: Vec<String> = flags(&[("--nodes", *nodes), ("--watchers", u32::from(*reads))]);
                arguments.extend(["--period", period, "--duration", duration].map(str::to_owned));
                arguments.extend(flags(&[("--reads", u32::from(*reads))]));
                let told = self.lab.load(&server, H2_TLS, &arguments).ok_or("no TLS")??;
                tell(of_nodes(group, name.clone(), "renew", &told));
                if *reads {
                    tell(of_nodes(group, format!("{name}-read"), "read", &told));
                }
            }
        }
        Ok(())
    }

    /// With the times of this run.
    fn timed(&self, arguments: &[String]) -> Vec<String> {
        let times = ["--warm-up", &self.lab.warm_up, "--duration", &self.lab.duration].map(str::to_owned);
        arguments.iter().cloned().chain(times).collect()
    }

    fn table(&self, group: &'static str, leases: u32, tell: &mut impl FnMut(Measurement)) -> Result<(), Stop> {
        let server = self.lab.start_server()?;
        let load = |arguments: Vec<String>| {
            self.lab.load(&server, H2_TLS, &arguments).unwrap_or_else(|| Err("no TLS".to_owned()))
        };
        let told = load(bench("create", leases))?;
        let memory = told.json["server_memory_kib"].clone();
        let taken = memory["end"].as_f64().zip(memory["start"].as_f64());
        let bytes_each = taken.map(|(with, without)| (with - without) * 1024.0 / f64::from(leases));
        let created = Measurement::of_bench(group, &format!("create-{leases}"), OURS, "Lease", told);
        tell(Measurement { bytes_each, ..created });
        let told = load(self.timed(&bench("renew", leases)))?;
        tell(Measurement::of_bench(group, &format!("renew-of-{leases}"), OURS, "request", told));
        // The events of the renewals are in the log: what a Lease and its share of that take together.
        if leases == 10_000 || leases == 1_000_000 {
            let mut arguments = bench("list", leases);
            arguments.extend(["--duration", "1s"].map(str::to_owned));
            let told = load(arguments)?;
            tell(Measurement::of_bench(group, &format!("list-{leases}"), OURS, "list", told));
        }
        Ok(())
    }

    fn stalls(&self, group: &'static str, leases: u32, tell: &mut impl FnMut(Measurement)) -> Result<(), Stop> {
        let server = self.lab.start_server()?;
        self.lab.load(&server, H2_TLS, &bench("create", leases)).ok_or("no TLS")??;
        let mut resume = bench("resume", 1_000);
        resume.extend(
            ["--namespace", "resumed", "--watchers", if self.lab.is_quick { "50" } else { "1000" }].map(str::to_owned),
        );
        for (name, work) in [
            ("alone", None),
            ("list", Some(bench("list", leases))),
            ("resume", Some(resume)),
            ("delete", Some(bench("delete-collection", leases))),
        ] {
            let mut probe = bench("renew", 100);
            probe.extend(flags(&[("--connections", 1), ("--streams", 1), ("--rate", 500)]));
            probe.extend(["--namespace", "probe", "--warm-up", "200ms", "--duration", "10m"].map(str::to_owned));
            let (process, command) = self.lab.start_load(&server, H2_TLS, &probe)?;
            sleep(Duration::from_millis(600));
            let before = self.lab.turns(&server)?;
            let work = match work {
                None => {
                    sleep(Duration::from_secs(if self.lab.is_quick { 1 } else { 3 }));
                    None
                }
                Some(mut arguments) => {
                    arguments.extend(["--duration", "100ms"].map(str::to_owned));
                    Some(self.lab.load_aside(&server, H2_TLS, &arguments).ok_or("no TLS")??)
                }
            };
            let turns_ms = self.lab.turns(&server)?.since(&before);
            sleep(Duration::from_millis(100));
            let stdout = process.interrupt()?;
            let mut told = parse(stdout.as_bytes(), command).ok_or("the probe said nothing")?;
            if let (Some(work), Some(object)) = (work, told.json.as_object_mut()) {
                object.insert("beside".to_owned(), work.json);
            }
            let mut measured = Measurement::of_bench(group, &format!("stall-{name}"), OURS, "request", told);
            // The server does something else beside: its time is not the renewals'.
            if name != "alone" {
                measured.cpu_us = None;
                let beside = &measured.told["beside"];
                measured.errors += beside["violations"].as_u64().unwrap_or(0)
                    + beside["errors"].as_object().map_or(0, |errors| errors.values().filter_map(Value::as_u64).sum());
            }
            let scenario = format!("turns-{name}");
            let turns = Measurement {
                scenario,
                unit: "turn",
                per_second: None,
                cpu_us: None,
                latency_ms: turns_ms,
                // One of more than a second has no figure, and must not look as if there were nothing.
                errors: u64::from(turns_ms[3].is_some_and(f64::is_infinite)),
                ..measured.clone()
            };
            tell(measured);
            tell(turns);
        }
        Ok(())
    }
}

/// From what the simulated nodes say of one verb.
fn of_nodes(group: &'static str, scenario: String, verb: &str, told: &Told) -> Measurement {
    let row = &told.json["verbs"][verb];
    let measured = Measurement::of_bench(group, &scenario, OURS, "request", told.clone());
    Measurement {
        per_second: row["per_second"].as_f64(),
        latency_ms: ["ms_p50", "ms_p99", "ms_p99_9", "ms_max"].map(|key| row[key].as_f64()),
        ..measured
    }
}
