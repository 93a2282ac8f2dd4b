//! The command line of `loadgen bench`.

use crate::flags::{ServerArgs, ToldArgs, parse_duration, parse_namespace};
use crate::operation::Operation;
use crate::origin::{MediaType, Version};
use clap::ValueEnum;
use std::time::Duration;

/// One kind of request in closed loop.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct BenchArgs {
    /// Kind of request
    #[arg(value_enum)]
    pub(crate) verb: Verb,

    /// The address of the server, and the credentials for it.
    #[command(flatten)]
    pub(crate) server: ServerArgs,

    /// Outputs of the run, and the server processes whose processor time is reported.
    #[command(flatten)]
    pub(crate) told: ToldArgs,

    /// Namespace of the Leases
    #[arg(long, value_name = "NAME", default_value = "kube-node-lease", value_parser = parse_namespace)]
    pub(crate) namespace: String,

    /// Speaks Kubernetes' protobuf instead of JSON
    #[arg(long, conflicts_with_all = ["watchers", "name_watchers"])]
    pub(crate) protobuf: bool,

    /// Number of Leases. For the benches read, renew and resume, missing Leases are created first. The bench create
    /// needs a namespace without Leases. The benches list and delete-collection expect this number of Leases
    #[arg(long, value_name = "COUNT", default_value_t = 10_000, value_parser = clap::value_parser!(u32).range(1..=10_000_000))]
    pub(crate) leases: u32,

    /// Connections for requests [default: 8; with --http1 64; for list and delete-collection 1]
    #[arg(long, value_name = "COUNT", value_parser = clap::value_parser!(u32).range(1..=10_000))]
    connections: Option<u32>,

    /// Requests in flight on each connection: streams, or with --http1 pipelined requests [default: 32; with --http1 1;
    /// for list and delete-collection always 1]
    #[arg(long, value_name = "COUNT", value_parser = clap::value_parser!(u32).range(1..=4_000))]
    streams: Option<u32>,

    /// Size of the body of an echo request, in bytes [default: 803, the size of a Lease in JSON]
    #[arg(long, value_name = "COUNT", value_parser = clap::value_parser!(u32).range(400..=1_000_000))]
    body_bytes: Option<u32>,

    /// Requests per second, for the benches echo, read and renew. A latency starts when the request was due [default:
    /// as many as the server takes]
    #[arg(long, value_name = "COUNT", value_parser = clap::value_parser!(u32).range(1..=10_000_000))]
    pub(crate) rate: Option<u32>,

    /// Number of requests that are due at once, for --rate: the requests come in bursts of this size
    #[arg(long, value_name = "COUNT", default_value = "1", requires = "rate")]
    #[arg(value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    pub(crate) burst: u32,

    /// Time under load before the measurement (500ms, 20s, 2m)
    #[arg(long, value_name = "TIME", default_value = "1s", value_parser = parse_duration)]
    pub(crate) warm_up: Duration,

    /// Measured time (500ms, 20s, 2m). The benches create, delete-collection and resume take the time that they need;
    /// list is repeated during this time, but at least once
    #[arg(long, value_name = "TIME", default_value = "3s", value_parser = parse_duration)]
    pub(crate) duration: Duration,

    /// Watchers of all Leases, for the benches nothing, read, renew and resume
    #[arg(long, value_name = "COUNT", default_value_t = 0, value_parser = clap::value_parser!(u32).range(0..=100_000))]
    pub(crate) watchers: u32,

    /// Maximum number of events by which the slowest watcher may be behind the renewals. Renewals then wait for this
    /// watcher; 0 is no limit
    #[arg(long, value_name = "COUNT", default_value_t = 0)]
    pub(crate) lag: u64,

    /// Watchers of one Lease each, at most as many as --leases
    #[arg(long, value_name = "COUNT", default_value_t = 0, value_parser = clap::value_parser!(u32).range(0..=1_000_000))]
    pub(crate) name_watchers: u32,

    /// The watchers of --name-watchers watch Leases that are not renewed, so there may be more watchers than --leases
    #[arg(long, requires = "name_watchers")]
    pub(crate) other_names: bool,

    /// Watchers on one connection [default: 32; with --http1 1]
    #[arg(long, value_name = "COUNT", conflicts_with = "http1", value_parser = clap::value_parser!(u32).range(1..=4_000))]
    watch_streams: Option<u32>,

    /// Connections that stay idle all the time, besides the others
    #[arg(long, value_name = "COUNT", default_value_t = 0, value_parser = clap::value_parser!(u32).range(0..=1_000_000))]
    pub(crate) idle: u32,
}

/// The kind of request of a bench.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Verb {
    /// PUT of a Lease with a new renewTime, one Lease after the other
    Renew,
    /// GET of one Lease after the other
    Read,
    /// POST of every Lease; none of them may exist
    Create,
    /// GET of all Leases in one answer
    List,
    /// DELETE of all Leases of the namespace
    DeleteCollection,
    /// One renewal of every Lease; then all watchers resume at once from the version before these renewals
    Resume,
    /// PUT to a server that only sends the body back: a lower bound for the cost of the other kinds
    Echo,
    /// No requests, to measure idle connections and watchers
    Nothing,
}

impl Verb {
    /// Returns the name of this kind of request on the command line.
    pub(crate) fn name(self) -> String {
        self.to_possible_value().map_or_else(String::new, |value| value.get_name().to_owned())
    }

    /// Returns the operation under which the results count this kind of request.
    pub(crate) fn operation(self) -> Operation {
        match self {
            Self::Renew | Self::Resume => Operation::Renew,
            Self::Read | Self::Nothing => Operation::Read,
            Self::Create => Operation::Create,
            Self::List => Operation::List,
            Self::DeleteCollection => Operation::DeleteCollection,
            Self::Echo => Operation::Echo,
        }
    }

    /// Whether requests continue until the end of the measured time, after a warm-up.
    pub(crate) fn is_endless(self) -> bool {
        matches!(self, Self::Echo | Self::Read | Self::Renew)
    }

    /// Whether one request concerns all Leases.
    pub(crate) fn is_bulk(self) -> bool {
        matches!(self, Self::DeleteCollection | Self::List)
    }
}

impl BenchArgs {
    /// Returns the media type of all request and response bodies.
    pub(crate) fn media_type(&self) -> MediaType {
        if self.protobuf { MediaType::Protobuf } else { MediaType::Json }
    }

    /// Checks the flags against each other. The error is a sentence for the user.
    pub(crate) fn check(&self) -> Result<(), String> {
        let (verb, name) = (self.verb, self.verb.name());
        let has_watchers = self.watchers > 0 || self.name_watchers > 0;
        let refused = if self.body_bytes.is_some() && verb != Verb::Echo {
            "has no --body-bytes: only echo has, since the others send Leases or no body"
        } else if self.protobuf && verb == Verb::Echo {
            "has no --protobuf: the server sends back each body as it is"
        } else if self.watch_streams.is_some() && !has_watchers {
            "needs --watchers or --name-watchers for --watch-streams"
        } else if self.rate.is_some() && !verb.is_endless() {
            "has no --rate: only echo, read and renew send requests at a rate"
        } else if has_watchers && !matches!(verb, Verb::Nothing | Verb::Read | Verb::Renew | Verb::Resume) {
            "has no watchers: only the benches nothing, read, renew and resume have"
        } else if self.watchers == 0 && verb == Verb::Resume {
            "needs --watchers: it measures how watchers resume"
        } else if self.idle > 0 && verb == Verb::Resume {
            "has no --idle: it measures watches that resume, and no idle connections"
        } else if self.lag > 0 && (self.watchers == 0 || verb != Verb::Renew) {
            "has no --lag: only renewals with --watchers wait for slow watchers"
        } else if self.name_watchers > self.leases && !self.other_names {
            "has fewer --leases than --name-watchers, which needs --other-names"
        } else if verb.is_bulk() && self.streams.is_some_and(|streams| streams > 1) {
            "has no --streams: each connection has one request in flight"
        } else if verb == Verb::DeleteCollection && self.connections.is_some_and(|connections| connections > 1) {
            "has no --connections: it sends one request only"
        } else {
            return Ok(());
        };
        Err(format!("bench {name} {refused}"))
    }

    /// Returns the size of the body of an echo, in bytes.
    pub(crate) fn body_bytes(&self) -> u32 {
        self.body_bytes.unwrap_or(803)
    }

    /// Returns the number of connections for requests.
    pub(crate) fn connections(&self) -> u32 {
        let connections = match self.server.version() {
            _ if self.verb.is_bulk() => 1,
            Version::Http1 => 64,
            Version::Http2 => 8,
        };
        self.connections.unwrap_or(connections).min(self.leases)
    }

    /// Returns the number of requests in flight on each connection.
    pub(crate) fn streams(&self) -> u32 {
        let streams = match self.server.version() {
            // The objects in a list are counted piece by piece. So the pieces of two lists must not mix on one
            // connection.
            _ if self.verb.is_bulk() => return 1,
            Version::Http1 => 1,
            Version::Http2 => 32,
        };
        self.streams.unwrap_or(streams)
    }

    /// Returns the number of watchers on each connection.
    pub(crate) fn watch_streams(&self) -> u32 {
        match self.server.version() {
            Version::Http1 => 1,
            Version::Http2 => self.watch_streams.unwrap_or(32),
        }
    }

    /// Returns two numbers of connections: for watchers of all Leases, and for watchers of one Lease each.
    pub(crate) fn watch_connections(&self) -> [u32; 2] {
        [self.watchers, self.name_watchers].map(|watchers| watchers.div_ceil(self.watch_streams()))
    }

    /// Returns the number of connections for requests, watchers and idling.
    pub(crate) fn all_connections(&self) -> u32 {
        self.connections() + self.watch_connections().iter().sum::<u32>() + self.idle
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::args::{Args, Command};
    use clap::Parser as _;

    /// Parses the words after `loadgen bench`, without [`BenchArgs::check`].
    pub(crate) fn parse(words: &str) -> Result<BenchArgs, String> {
        let words = ["loadgen", "bench"].into_iter().chain(words.split_whitespace());
        match Args::try_parse_from(words).map_err(|e| e.to_string())?.command {
            Some(Command::Bench(args)) => Ok(*args),
            None => panic!("no bench"),
        }
    }

    fn verb(words: &str) -> Result<String, String> {
        let args = parse(words)?;
        args.check().map(|()| args.verb.name())
    }

    #[test]
    fn flags_without_effect_on_the_verb_are_refused() {
        for words in [
            "create --watchers 1",
            "create --rate 5",
            "delete-collection --connections 2",
            "delete-collection --name-watchers 1",
            "delete-collection --streams 2",
            "echo --protobuf",
            "echo --watchers 1",
            "list --http1 --watchers 1",
            "list --rate 5",
            "list --streams 2",
            "nothing --rate 5",
            "read --lag 5 --watchers 1",
            "read --watch-streams 5",
            "renew --body-bytes 500",
            "renew --lag 5",
            "renew --name-watchers 3 --leases 2",
            "renew --other-names",
            "resume",
            "resume --name-watchers 1",
            "resume --watchers 1 --idle 5",
            "resume --rate 5 --watchers 1",
        ] {
            let told = verb(words).expect_err(words);
            assert!(told.starts_with("bench ") || words.ends_with("--other-names"), "{words}: {told}");
        }
        for words in [
            "create --connections 2 --streams 3",
            "echo --rate 5 --body-bytes 500",
            "list --connections 2",
            "nothing --watchers 1 --idle 5",
            "read --rate 5 --watchers 1",
            "renew --lag 5 --watchers 1",
            "renew --name-watchers 2 --leases 2",
            "renew --name-watchers 3 --leases 2 --other-names",
            "resume --watchers 1 --name-watchers 1",
        ] {
            assert_eq!(verb(words), Ok(words.split(' ').next().expect("a verb").to_owned()));
        }
    }
}
