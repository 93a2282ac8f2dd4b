//! The command line.

use crate::bench::BenchArgs;
use crate::origin::Version;
use clap::{Parser, Subcommand, ValueEnum};
use coordination_apiserver::lease::validation::format::is_dns_label;
use std::path::PathBuf;
use std::time::Duration;

/// Simulates the Leases of a large Kubernetes cluster, and checks what the server answers.
///
/// Each node creates its Lease in kube-node-lease, then renews it every period as a kubelet does, and somebody reads it
/// as often; a watcher of all Leases is what the node-lifecycle controller is. Versions must never go back, no update
/// may be lost, every watcher must see every write once and in order.
///
/// With no arguments: 10,000 nodes for 60 s against the local server as it starts with no flags.
/// Exit status: 0 all went well; 1 an error or a violation, or nothing was measured; 2 wrong usage.
/// Interrupted, it ends early with the results of what it has measured, and that alone is no error; a second time, at
/// once.
#[derive(Clone, Debug, Parser)]
#[command(name = "loadgen", version, max_term_width = 120, args_conflicts_with_subcommands = true)]
pub(crate) struct Args {
    /// Another kind of load.
    #[command(subcommand)]
    pub(crate) command: Option<Command>,

    /// The server.
    #[command(flatten)]
    pub(crate) server: ServerArgs,

    /// Namespace of the Leases
    #[arg(long, value_name = "NAME", default_value = "kube-node-lease", value_parser = parse_namespace)]
    pub(crate) namespace: String,

    /// Simulated nodes; each holds one Lease
    #[arg(long, value_name = "COUNT", default_value_t = 10_000, value_parser = clap::value_parser!(u32).range(1..=10_000_000))]
    pub(crate) nodes: u32,

    /// Time between two renewals of a node, prolonged at random by up to 4 % as a kubelet does (500ms, 20s, 2m)
    #[arg(long, value_name = "TIME", default_value = "10s", value_parser = parse_duration)]
    pub(crate) period: Duration,

    /// Time that is measured; creation and one period of settling come before it (500ms, 20s, 2m)
    #[arg(long, value_name = "TIME", default_value = "60s", value_parser = parse_duration)]
    pub(crate) duration: Duration,

    /// Connections that the nodes share, those of the watchers apart. A real kubelet has one of its own, and
    /// kube-apiserver puts all of them on a few [default: 8; with --http1 64]
    #[arg(long, value_name = "COUNT", value_parser = clap::value_parser!(u32).range(1..=100_000))]
    connections: Option<u32>,

    /// Requests in flight on one connection at most, watches among them: streams, or with --http1 pipelined requests.
    /// With --max always so many. The server may allow fewer streams; then the others wait [default: 32; with --http1
    /// 16; with --http1 --max 1]
    #[arg(long, value_name = "COUNT", visible_alias = "pipeline", value_parser = clap::value_parser!(u32).range(1..=10_000))]
    streams: Option<u32>,

    /// Watchers of all Leases. Over HTTP/2 they are streams on connections of their own, --streams on each, or else an
    /// acknowledgement could wait behind the events of its write; over HTTP/1.1 each has a connection. Of several
    /// replicas each has a watcher if there are as many
    #[arg(long, value_name = "COUNT", default_value_t = 1, value_parser = clap::value_parser!(u32).range(0..=10_000))]
    pub(crate) watchers: u32,

    /// Reads (GET of one Lease) for each renewal; 0 is none
    #[arg(long, value_name = "RATIO", default_value_t = 1.0, value_parser = parse_ratio)]
    pub(crate) reads: f64,

    /// As fast as it goes: no schedule, every connection always has --streams requests in flight; with --reads 0 only
    /// renewals, with 1 a read after each
    #[arg(long)]
    pub(crate) max: bool,

    /// Appends the results to this file as one line of JSON
    #[arg(long, value_name = "FILE")]
    pub(crate) out: Option<PathBuf>,

    /// What is printed, and whose processor time is counted.
    #[command(flatten)]
    pub(crate) told: ToldArgs,

    /// No progress bar; there is none either if standard error is no terminal
    #[arg(long, short)]
    pub(crate) quiet: bool,
}

/// Other kinds of load than the simulated nodes.
#[derive(Clone, Debug, Subcommand)]
pub(crate) enum Command {
    /// One kind of request in closed loop, as cheaply for the generator as it can be: to measure the server's cost
    Bench(Box<BenchArgs>),
}

/// Where the server is and how it is spoken to.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct ServerArgs {
    /// Kubeconfig whose current context names the server and the client certificate [default: the admin.kubeconfig that
    /// coordination-apiserver makes in its default --cert-dir]
    #[arg(long, value_name = "FILE", conflicts_with_all = ["server", "ca", "cert", "key"])]
    pub(crate) kubeconfig: Option<PathBuf>,

    /// URL of the server, in place of a kubeconfig; http:// for the cleartext port. Of replicas, the URLs of all:
    /// connections are spread over them, and one that breaks moves to another replica
    #[arg(long, value_name = "URL", value_delimiter = ',')]
    pub(crate) server: Vec<String>,

    /// Certificate authorities of the server, PEM; needed with --server https://
    #[arg(long, value_name = "FILE", requires = "server")]
    pub(crate) ca: Option<PathBuf>,

    /// Client certificate, PEM
    #[arg(long, value_name = "FILE", requires_all = ["server", "key"])]
    pub(crate) cert: Option<PathBuf>,

    /// Key of the client certificate, PEM
    #[arg(long, value_name = "FILE", requires = "cert")]
    pub(crate) key: Option<PathBuf>,

    /// Speaks HTTP/2, as kube-apiserver and client-go do: over TLS as ALPN h2, in the clear by prior knowledge. This is
    /// the default
    #[arg(long, conflicts_with = "http1")]
    pub(crate) http2: bool,

    /// Speaks HTTP/1.1
    #[arg(long)]
    pub(crate) http1: bool,
}

/// What is printed, and whose processor time is counted.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct ToldArgs {
    /// What is printed when the run is over: a table for people, or one line of JSON
    #[arg(long, value_name = "FORM", value_enum, default_value_t = Output::Table)]
    pub(crate) output: Output,

    /// Processes of the server on this machine, whose processor time in the measured time and whose memory are reported
    #[arg(long, value_name = "PID", value_delimiter = ',')]
    pub(crate) pid: Vec<u32>,
}

impl ToldArgs {
    /// Whether there is an account of the processes; why not, in a sentence.
    pub(crate) fn check(&self) -> Result<(), String> {
        if let Some(pid) = loadgen_account::repeated(&self.pid) {
            return Err(format!("--pid {pid} is named twice, and its time would count twice"));
        }
        match self.pid.iter().find(|&&pid| loadgen_account::cpu_ns(&[pid]).is_none()) {
            Some(pid) => Err(format!("--pid {pid}: there is no such process, or no account of it")),
            None => Ok(()),
        }
    }
}

/// The form of the results on standard output.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Output {
    /// One line of JSON.
    Json,
    /// A table.
    Table,
}

impl ServerArgs {
    /// The version of HTTP that is spoken.
    pub(crate) fn version(&self) -> Version {
        if self.http1 { Version::Http1 } else { Version::Http2 }
    }

    /// Servers that share the load.
    fn replicas(&self) -> u32 {
        u32::try_from(self.server.len().max(1)).unwrap_or(u32::MAX)
    }
}

impl Args {
    /// What makes no sense together, in a sentence for the user.
    pub(crate) fn check(&self) -> Result<(), String> {
        let (connections, replicas) = (self.connections(), self.server.replicas());
        if connections < replicas {
            return Err(format!("{connections} connections cannot be spread over {replicas} servers"));
        }
        self.told.check()
    }

    /// The version of HTTP that is spoken.
    pub(crate) fn version(&self) -> Version {
        self.server.version()
    }

    /// Connections that the nodes share.
    pub(crate) fn connections(&self) -> u32 {
        let connections = match self.version() {
            Version::Http1 => 64,
            Version::Http2 => 8,
        };
        self.connections.unwrap_or(connections).min(self.nodes)
    }

    /// Requests in flight on one of them at most.
    pub(crate) fn streams(&self) -> u32 {
        let streams = match self.version() {
            Version::Http1 if self.max => 1,
            Version::Http1 => 16,
            Version::Http2 => 32,
        };
        self.streams.unwrap_or(streams)
    }

    /// Watchers on one connection at most: so few that every replica has one if there are as many watchers.
    pub(crate) fn watchers_per_connection(&self) -> u32 {
        match self.version() {
            Version::Http1 => 1,
            Version::Http2 => self.streams().min(self.watchers / self.server.replicas()).max(1),
        }
    }

    /// Connections of watchers.
    pub(crate) fn watch_connections(&self) -> u32 {
        self.watchers.div_ceil(self.watchers_per_connection())
    }

    /// Time between two reads of a node's Lease, in nanoseconds; `None` if there are none.
    pub(crate) fn read_period_ns(&self) -> Option<u64> {
        let period = Duration::try_from_secs_f64(self.period.as_secs_f64() / self.reads).ok()?;
        u64::try_from(period.as_nanos()).ok().filter(|&ns| ns > 0)
    }
}

/// A duration with its unit: `500ms`, `20s`, `2m`, `1.5h`.
pub(crate) fn parse_duration(text: &str) -> Result<Duration, String> {
    let bad = || "a time is a number and a unit, as in 500ms, 20s, 2m".to_owned();
    let unit_at = text.find(|c: char| c.is_ascii_alphabetic()).ok_or_else(bad)?;
    let (number, unit) = text.split_at(unit_at);
    let number: f64 = number.parse().map_err(|_| bad())?;
    let seconds = match unit {
        "ms" => number / 1_000.0,
        "s" => number,
        "m" => number * 60.0,
        "h" => number * 3_600.0,
        _ => return Err(bad()),
    };
    if !(0.001..=MAX_SECONDS).contains(&seconds) {
        return Err("a time is at least 1ms and at most 24h".to_owned());
    }
    Duration::try_from_secs_f64(seconds).map_err(|_| bad())
}

/// A namespace by the server's rule. It stands in the target of requests as it is.
pub(crate) fn parse_namespace(text: &str) -> Result<String, String> {
    if is_dns_label(text.as_bytes()) {
        Ok(text.to_owned())
    } else {
        Err("a namespace is at most 63 of a-z, 0-9 and '-', the first and last no '-'".to_owned())
    }
}

/// The longest time that can be asked for: a day.
const MAX_SECONDS: f64 = 86_400.0;

fn parse_ratio(text: &str) -> Result<f64, String> {
    let ratio: f64 = text.parse().map_err(|_| "a ratio is a number, as in 0, 0.5, 1".to_owned())?;
    if (0.0..=1_000.0).contains(&ratio) { Ok(ratio) } else { Err("a ratio is from 0 to 1000".to_owned()) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn the_definition_is_consistent() {
        Args::command().debug_assert();
    }

    #[test]
    fn durations_have_a_unit() {
        assert_eq!(parse_duration("500ms"), Ok(Duration::from_millis(500)));
        assert_eq!(parse_duration("1.5s"), Ok(Duration::from_millis(1_500)));
        assert_eq!(parse_duration("2m"), Ok(Duration::from_secs(120)));
        for text in ["", "10", "s", "-1s", "0s", "1d", "1e99h", "NaNs", "infs"] {
            assert!(parse_duration(text).is_err(), "{text}");
        }
    }

    #[test]
    fn a_namespace_that_no_request_can_name_is_wrong_usage_in_one_line() {
        let long = "a".repeat(64);
        for verb in [&["loadgen"][..], &["loadgen", "bench", "renew"]] {
            let parse = |namespace: &str| {
                let flag = format!("--namespace={namespace}");
                Args::try_parse_from(verb.iter().copied().chain([flag.as_str()]))
            };
            assert!(parse("a-0").is_ok() && parse(&long[1..]).is_ok());
            for namespace in ["", "a/b", "x y", "a HTTP/1.1\r\nX: y", "a\n", "A", "-a", long.as_str()] {
                let error = parse(namespace).expect_err(namespace);
                let told = coordination_apiserver::cli::wrong_usage(&error);
                assert!(error.use_stderr() && told.contains("'--namespace <NAME>'"), "{told}");
                assert!(!told.contains(char::is_control), "{told}");
            }
        }
    }

    #[test]
    fn defaults_follow_the_version() {
        let shape = |words: &str| {
            let args = Args::try_parse_from(["loadgen"].into_iter().chain(words.split_whitespace())).expect("valid");
            (args.connections(), args.streams(), args.watch_connections())
        };
        assert_eq!(shape(""), (8, 32, 1));
        assert_eq!(shape("--http2 --max --watchers 33 --nodes 5"), (5, 32, 2));
        assert_eq!(shape("--http1 --watchers 33"), (64, 16, 33));
        assert_eq!(shape("--http1 --max --watchers 0"), (64, 1, 0));
        assert_eq!(shape("--http1 --max --pipeline 4 --connections 2"), (2, 4, 1));
        let replicas = "--server http://x:1,http://y:1,http://z:1";
        assert_eq!(shape(replicas), (8, 32, 1));
        assert_eq!(shape(&format!("{replicas} --watchers 3")), (8, 32, 3));
        assert_eq!(shape(&format!("{replicas} --watchers 64 --streams 100")), (8, 100, 4));
        assert!(Args::try_parse_from(["loadgen", "--http1", "--http2"]).is_err());
    }

    #[test]
    fn every_replica_has_a_connection() {
        let check = |words: &str| {
            let words = format!("loadgen --server http://x:1 --server http://y:1 {words}");
            Args::try_parse_from(words.split_whitespace()).expect("valid").check()
        };
        assert_eq!(check("--connections 2"), Ok(()));
        for words in ["--connections 1", "--nodes 1"] {
            assert!(check(words).expect_err(words).contains("over 2 servers"), "{words}");
        }
    }

    #[test]
    fn a_process_counts_once_and_must_be_there() {
        let own = std::process::id();
        let check = |pid: Vec<u32>| ToldArgs { output: Output::Json, pid }.check();
        assert_eq!(check(vec![own]), Ok(()));
        assert!(check(vec![own, 4_000_000_000]).expect_err("none").contains("no such process"));
        assert!(check(vec![own, own]).expect_err("twice").contains("twice"));
    }

    #[test]
    fn a_server_in_place_of_a_kubeconfig() {
        let parse = |words: &str| Args::try_parse_from(["loadgen"].into_iter().chain(words.split_whitespace()));
        assert!(parse("").is_ok());
        assert!(parse("--server http://127.0.0.1:8080").is_ok());
        for words in ["--server x --kubeconfig y", "--ca x", "--server x --cert y", "--nodes 0", "--reads -1"] {
            assert!(parse(words).is_err(), "{words}");
        }
    }
}
