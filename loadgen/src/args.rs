//! The command line of `loadgen`, without the subcommand `bench`.

use crate::bench::BenchArgs;
use crate::flags::{ServerArgs, ToldArgs, parse_duration, parse_namespace};
use crate::origin::Version;
use clap::{Parser, Subcommand};
use std::time::Duration;

/// Simulates the Leases of a large Kubernetes cluster, and checks the server's answers.
///
/// Each node creates its Lease in kube-node-lease and renews the Lease every period, as a kubelet does. Another client
/// reads each Lease as often. A watcher of all Leases stands for the node-lifecycle controller. Versions must never go
/// back, no update may be lost, and every watcher must see every write once and in order.
///
/// With no arguments: 10,000 nodes for 60 s against a server on this machine with its default flags.
///
/// An interrupt (Ctrl-C) ends the run early with the results so far, which is no error. A second interrupt ends the
/// run at once, without results.
///
/// Exit status 0: all went well. Exit status 1: an error or a violation, nothing was measured, or a file could not be
/// written. Exit status 2: wrong usage, or a file of results cannot be opened.
#[derive(Clone, Debug, Parser)]
#[command(name = "loadgen", version, max_term_width = 120, args_conflicts_with_subcommands = true)]
pub(crate) struct Args {
    /// Another kind of load than the simulated nodes.
    #[command(subcommand)]
    pub(crate) command: Option<Command>,

    /// The address of the server, and the credentials for it.
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

    /// Measured time; the creation of Leases and one period of settling come before it (500ms, 20s, 2m)
    #[arg(long, value_name = "TIME", default_value = "60s", value_parser = parse_duration)]
    pub(crate) duration: Duration,

    /// Connections that the nodes share; watchers have other connections. In a cluster, kube-apiserver forwards the
    /// requests of all kubelets over a few connections [default: 8; with --http1 64]
    #[arg(long, value_name = "COUNT", value_parser = clap::value_parser!(u32).range(1..=100_000))]
    connections: Option<u32>,

    /// Maximum number of requests in flight on one connection, including watches: streams, or with --http1 pipelined
    /// requests. With --max, always this number of requests is in flight. If the server allows fewer streams, requests
    /// wait [default: 32; with --http1 16; with --http1 --max 1]
    #[arg(long, value_name = "COUNT", visible_alias = "pipeline", value_parser = clap::value_parser!(u32).range(1..=10_000))]
    streams: Option<u32>,

    /// Watchers of all Leases. Over HTTP/2 each watcher is a stream, up to --streams on a connection. Nodes use other
    /// connections, so that no answer to a write waits behind the events of the write. Over HTTP/1.1 each watcher has a
    /// connection. With several replicas, each replica has a watcher if there are enough watchers
    #[arg(long, value_name = "COUNT", default_value_t = 1, value_parser = clap::value_parser!(u32).range(0..=10_000))]
    pub(crate) watchers: u32,

    /// Reads (GET of one Lease) for each renewal; 0 is no reads
    #[arg(long, value_name = "RATIO", default_value_t = 1.0, value_parser = parse_ratio)]
    pub(crate) reads: f64,

    /// Sends as fast as the server answers, without a schedule: every connection always has --streams requests in
    /// flight. With --reads 0 the requests are renewals, with --reads 1 a read follows each renewal
    #[arg(long)]
    pub(crate) max: bool,

    /// Outputs of the run, and processes whose processor time is counted.
    #[command(flatten)]
    pub(crate) told: ToldArgs,
}

/// Other kinds of load than the simulated nodes.
#[derive(Clone, Debug, Subcommand)]
pub(crate) enum Command {
    /// One kind of request in closed loop, at the lowest cost for the generator, to measure the server's cost
    Bench(Box<BenchArgs>),
}

impl Args {
    /// Checks the flags against each other. The error is a sentence for the user.
    pub(crate) fn check(&self) -> Result<(), String> {
        let (connections, replicas) = (self.connections(), self.server.replicas());
        if connections < replicas {
            return Err(format!("{connections} connections cannot be spread over {replicas} servers"));
        }
        self.told.check()
    }

    /// Returns the version of HTTP that requests use.
    pub(crate) fn version(&self) -> Version {
        self.server.version()
    }

    /// Returns the number of connections that the nodes share.
    pub(crate) fn connections(&self) -> u32 {
        let connections = match self.version() {
            Version::Http1 => 64,
            Version::Http2 => 8,
        };
        self.connections.unwrap_or(connections).min(self.nodes)
    }

    /// Returns the maximum number of requests in flight on one connection.
    pub(crate) fn streams(&self) -> u32 {
        let streams = match self.version() {
            Version::Http1 if self.max => 1,
            Version::Http1 => 16,
            Version::Http2 => 32,
        };
        self.streams.unwrap_or(streams)
    }

    /// Returns the maximum number of watchers on one connection. The number is low enough that every replica gets a
    /// watcher, if there are enough watchers.
    pub(crate) fn watchers_per_connection(&self) -> u32 {
        match self.version() {
            Version::Http1 => 1,
            Version::Http2 => self.streams().min(self.watchers / self.server.replicas()).max(1),
        }
    }

    /// Returns the number of connections for watchers.
    pub(crate) fn watch_connections(&self) -> u32 {
        self.watchers.div_ceil(self.watchers_per_connection())
    }

    /// Returns the time between two reads of a node's Lease, in nanoseconds; `None` without reads.
    pub(crate) fn read_period_ns(&self) -> Option<u64> {
        let period = Duration::try_from_secs_f64(self.period.as_secs_f64() / self.reads).ok()?;
        u64::try_from(period.as_nanos()).ok().filter(|&ns| ns > 0)
    }
}

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
    fn an_invalid_namespace_is_a_usage_error_in_one_line() {
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
    fn connection_defaults_depend_on_the_http_version() {
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
    fn each_server_needs_at_least_one_connection() {
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
    fn conflicting_or_invalid_flags_are_refused() {
        let parse = |words: &str| Args::try_parse_from(["loadgen"].into_iter().chain(words.split_whitespace()));
        assert!(parse("").is_ok());
        assert!(parse("--server http://127.0.0.1:8080").is_ok());
        for words in ["--server x --kubeconfig y", "--ca x", "--server x --cert y", "--nodes 0", "--reads -1"] {
            assert!(parse(words).is_err(), "{words}");
        }
    }
}
