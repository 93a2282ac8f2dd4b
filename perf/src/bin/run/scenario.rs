//! All scenarios of perf/run, in the order in which they are measured. A floor is a scenario for comparison: it
//! measures a program that does less for a request than this project's server, or no server at all.

use crate::lab::{Placement, Wire};

/// One scenario: what is measured, and under which name.
#[derive(Clone, Debug)]
pub(crate) struct Scenario {
    pub(crate) group: &'static str,
    pub(crate) name: String,
    /// Description of the scenario in one line, for `--list`.
    pub(crate) about: String,
    /// Whether the scenario takes long, so that it runs in the first round only.
    pub(crate) is_once: bool,
    pub(crate) kind: Kind,
}

#[derive(Clone, Debug)]
pub(crate) enum Kind {
    /// A load on the servers that run during the whole run: this project's server with each storage and, if
    /// `with_others` is true, servers of `--against`.
    Shared { wire: Wire, arguments: Vec<String>, unit: &'static str, with_others: bool },
    /// Renewals on the first replica of a server, and the processor time of another replica, which applies them.
    /// Skipped if the server has one replica only.
    Applied { arguments: Vec<String> },
    /// The floor of HTTP/2: nghttpd serves a static file of a Lease's size to h2load.
    Nghttpd { tls: bool },
    /// The floor of HTTP/1.1: perf-floor sends back the body of each request.
    Echo { leases: u32, pace: Pace },
    /// The floor of latency, with neither load nor server: how late a sleeping thread wakes at the request rate of
    /// [`Pace::Open`].
    Sleep,
    /// The floor of durable writes, with neither load nor server: the time until the disk has made a page durable.
    Sync,
    /// Renewals at a fixed rate, on a server started for this scenario. The floor is [`Self::Echo`] at the same rate.
    Paced { leases: u32 },
    /// Creations and renewals of `leases` Leases, and lists for some sizes, on a server started for this scenario.
    Table { leases: u32 },
    /// The latency of renewals while another load sends long requests, on a server started for this scenario with
    /// `leases` Leases.
    Stalls { leases: u32 },
    /// The server's memory for each of `count` idle connections or watchers, on a server started for this scenario.
    Attached { what: &'static str, count: u32, leases: u32 },
    /// Simulated nodes that renew at fixed times, on a server started for this scenario.
    Nodes {
        wire: Wire,
        placement: Placement,
        nodes: u32,
        period: &'static str,
        duration: &'static str,
        reads: bool,
        /// Maximum number of requests in flight on a connection; `None` for the load generator's default.
        streams: Option<u32>,
    },
}

impl Kind {
    /// Whether perf(1) can record the measured server. perf(1) records the first replica while the load generator
    /// (`loadgen`) sends requests to it. [`Self::Applied`] measures another replica. The load of [`Self::Nghttpd`]
    /// comes from h2load. [`Self::Sleep`] and [`Self::Sync`] have no server.
    pub(crate) fn can_be_recorded(&self) -> bool {
        !matches!(self, Self::Applied { .. } | Self::Nghttpd { .. } | Self::Sleep | Self::Sync)
    }
}

/// What decides when a request is sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Pace {
    /// A closed loop: each response causes the next request. Server and load have their own core each.
    Closed,
    /// A fixed rate, which 10,000 nodes and their readers would cause. Server and load share two cores.
    Open,
}

pub(crate) const H2_TLS: Wire = Wire { http1: false, tls: true };
const H1_TLS: Wire = Wire { http1: true, tls: true };
pub(crate) const H1_CLEAR: Wire = Wire { http1: true, tls: false };
/// Number of requests per second with [`Pace::Open`].
pub(crate) const REQUESTS_PER_SECOND: u32 = 2_000;

/// Returns all scenarios, in the order in which they are measured. `is_quick` is `--quick`.
pub(crate) fn all(is_quick: bool) -> Vec<Scenario> {
    let size = |full: u32, quick: u32| if is_quick { quick } else { full };
    let leases = size(10_000, 1_000);
    let mut all = Vec::new();
    let mut add = |group, name: String, about: String, kind| {
        let is_once = matches!(kind, Kind::Nodes { nodes: 1_000_000.., .. });
        all.push(Scenario { group, name, about, is_once, kind });
    };
    for http1 in [false, true] {
        for tls in [true, false] {
            for media in ["json", "protobuf"] {
                // A read runs after renewals in the same format. So the server has already encoded the Leases in this
                // format, and a read copies the encoding.
                for verb in ["renew", "read"] {
                    for (connections, streams) in if http1 { [(64, 1), (1, 1)] } else { [(8, 32), (8, 8)] } {
                        let wire = Wire { http1, tls };
                        let shape = if http1 { connections.to_string() } else { format!("{connections}x{streams}") };
                        let name = format!("{verb}-{media}-{}-{shape}", wire.name());
                        let about = format!(
                            "{verb} as fast as it goes; {connections} connections, {streams} in flight on each"
                        );
                        let mut arguments = bench(verb, leases);
                        arguments.extend(flags(&[("--connections", connections), ("--streams", streams)]));
                        arguments.extend((media == "protobuf").then(|| "--protobuf".to_owned()));
                        let floor = floor_of(&name, leases);
                        add(verb, name, about, Kind::Shared { wire, arguments, unit: "request", with_others: true });
                        if let Some((name, about, kind)) = floor {
                            add("floor", name, about, kind);
                        }
                    }
                }
            }
        }
    }
    for (connections, streams) in [(8, 32), (32, 100)] {
        let shape = format!("json-http2-tls-{connections}x{streams}");
        let mut arguments = bench("renew", leases);
        arguments.extend(flags(&[("--connections", connections), ("--streams", streams)]));
        if streams == 100 {
            let about = "renewals with thousands in flight, for large batches".to_owned();
            let arguments = arguments.clone();
            let kind = Kind::Shared { wire: H2_TLS, arguments, unit: "request", with_others: false };
            add("applied", format!("renew-{shape}"), about, kind);
        }
        let about = "the same renewals at one replica: their cost at another one, which applies them".to_owned();
        add("applied", format!("applied-{shape}"), about, Kind::Applied { arguments });
    }
    // A closed loop with 256 in flight makes a server with memory storage busy all the time. A replica over etcd
    // collects renewals for 30 ms, and then commits them at once. This load is the same for both, as long as each burst
    // is answered before the next one. In the results, `crowded` is then 0.
    let mut arguments = bench("renew", leases);
    arguments.extend(flags(&[("--connections", 8), ("--streams", 32), ("--rate", 6_400), ("--burst", 256)]));
    let about = "256 renewals at once, 25 times a second: the same load with each storage".to_owned();
    let kind = Kind::Shared { wire: H2_TLS, arguments, unit: "request", with_others: false };
    add("applied", "bursts-json-http2-tls-8x32".to_owned(), about, kind);
    for watchers in [1, 10, 100, 1_000].into_iter().filter(|&watchers| watchers <= size(1_000, 10)) {
        let mut arguments = bench("renew", 1_000);
        arguments.extend(flags(&[("--watchers", watchers), ("--lag", 64), ("--connections", 8), ("--streams", 8)]));
        let about = format!("each renewal as an event for {watchers} watchers of all Leases, over HTTP/2 and TLS");
        let kind = Kind::Shared { wire: H2_TLS, arguments, unit: "event", with_others: false };
        add("fan-out", format!("fan-out-{watchers}"), about, kind);
    }
    for (name, about, own) in [
        ("names-0", "renewals without watchers, for comparison", None),
        ("names-other", "the same, with 10,000 watchers, each of one Lease that is not renewed", Some(false)),
        ("names-own", "the same, with 10,000 watchers, each of one renewed Lease", Some(true)),
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
        let about = format!("renewals beside {count} {}, and the memory of each", attached_words(what));
        let kind = Kind::Attached { what, count: *count, leases };
        add("memory", format!("memory-{what}-{count}"), about, kind);
    }
    for leases in [1_000, 10_000, 100_000, 1_000_000].into_iter().filter(|&leases| leases <= size(1_000_000, 10_000)) {
        let about = format!("{leases} Leases on a fresh server: creations, random renewals, lists of all");
        add("table", format!("table-{leases}"), about, Kind::Table { leases });
    }
    let leases = size(1_000_000, 20_000);
    let about = format!("latency of renewals while {leases} Leases are listed or deleted, or 1,000 watchers resume");
    add("stalls", "stalls".to_owned(), about, Kind::Stalls { leases });
    add_nodes(is_quick, &mut add);
    all
}

/// Adds the loads at a fixed rate, which leave the cores mostly idle, their floors, and the load of a million nodes.
fn add_nodes(is_quick: bool, add: &mut impl FnMut(&'static str, String, String, Kind)) {
    let about = format!("{REQUESTS_PER_SECOND} a second, both processes on both cores");
    let leases = if is_quick { 1_000 } else { 10_000 };
    add("nodes", PACED.to_owned(), format!("renewals, {about}"), Kind::Paced { leases });
    let floor = Kind::Echo { leases, pace: Pace::Open };
    add("nodes", PACED_FLOOR.to_owned(), format!("perf-floor: an echo of the same load, {about}"), floor);
    let sleeper = format!("a thread that only sleeps, {REQUESTS_PER_SECOND} times a second");
    add("nodes", "floor-sleep-together".to_owned(), sleeper, Kind::Sleep);
    let about = "the floor of a durable write: pages of 4 KiB written and synced one by one".to_owned();
    add("nodes", "floor-fdatasync".to_owned(), about, Kind::Sync);
    let nodes = leases;
    for (suffix, wire, placement, where_words) in [
        ("", H2_TLS, Placement::Apart, "over HTTP/2 and TLS, each process on its core"),
        ("-together", H2_TLS, Placement::Together, "over HTTP/2 and TLS, both processes on both cores"),
        ("-http1-together", H1_TLS, Placement::Together, "over HTTP/1.1 and TLS, both processes on both cores"),
    ] {
        let kind = Kind::Nodes {
            wire,
            placement,
            nodes,
            period: if is_quick { "1s" } else { "10s" },
            duration: if is_quick { "1s" } else { "20s" },
            reads: true,
            streams: None,
        };
        let about =
            format!("the canonical load, {where_words}: each Lease is renewed and read every 10 s; one watcher of all");
        add("nodes", format!("nodes-{nodes}{suffix}"), about, kind);
    }
    if !is_quick {
        let about = "1,000,000 nodes, 100,000 renewals a second over HTTP/2 and TLS".to_owned();
        let kind = Kind::Nodes {
            wire: H2_TLS,
            placement: Placement::Apart,
            nodes: 1_000_000,
            period: "10s",
            duration: "20s",
            reads: false,
            // The load generator's 8 connections can have 800 requests in flight together. So at 100,000 renewals a
            // second, a renewal may take 8 ms before the generator has to wait.
            streams: Some(100),
        };
        add("nodes", "nodes-1000000".to_owned(), about, kind);
    }
}

/// Returns the floor of a scenario, which is measured after the scenario.
fn floor_of(scenario: &str, leases: u32) -> Option<(String, String, Kind)> {
    let (_, floor, _) = FLOORS.into_iter().find(|(ours, ..)| *ours == scenario)?;
    let (about, kind) = match floor.strip_prefix("floor-nghttpd-") {
        Some(wire) => (
            "nghttpd and h2load: a static file of a Lease's size",
            Kind::Nghttpd { tls: wire.starts_with("http2-tls") },
        ),
        None => ("perf-floor: an echo of the same load", Kind::Echo { leases, pace: Pace::Closed }),
    };
    Some((floor.to_owned(), about.to_owned(), kind))
}

/// The name of a scenario, the name of its floor, and the name of the floor's server.
pub(crate) const FLOORS: [(&str, &str, &str); 4] = [
    ("renew-json-http2-tls-8x32", "floor-nghttpd-http2-tls-8x32", "nghttpd"),
    ("renew-json-http2-clear-8x32", "floor-nghttpd-http2-clear-8x32", "nghttpd"),
    ("renew-json-http1-clear-64", "floor-echo-http1-clear-64", "echo"),
    (PACED, PACED_FLOOR, "echo"),
];
const PACED: &str = "paced-json-http1-clear-64-together";
const PACED_FLOOR: &str = "floor-echo-paced-http1-clear-64-together";

impl Wire {
    fn name(self) -> String {
        format!("{}-{}", if self.http1 { "http1" } else { "http2" }, if self.tls { "tls" } else { "clear" })
    }
}

pub(crate) fn bench(verb: &str, leases: u32) -> Vec<String> {
    ["bench", verb, "--leases", &leases.to_string()].map(str::to_owned).to_vec()
}

pub(crate) fn flags(flags: &[(&str, u32)]) -> Vec<String> {
    flags.iter().flat_map(|(flag, value)| [(*flag).to_owned(), value.to_string()]).collect()
}

fn attached_words(what: &str) -> &'static str {
    if what == "idle" { "idle connections over HTTP/2 and TLS" } else { "watchers of other names" }
}
