//! The command line of `loadgen bench`.

use crate::args::{ServerArgs, ToldArgs, parse_duration};
use crate::http::{MediaType, Version};
use clap::ValueEnum;
use std::time::Duration;

/// One kind of request in closed loop.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct BenchArgs {
    /// What is asked for
    #[arg(value_enum)]
    pub(crate) verb: Verb,

    /// The server.
    #[command(flatten)]
    pub(crate) server: ServerArgs,

    /// What is printed, and whose processor time is counted.
    #[command(flatten)]
    pub(crate) told: ToldArgs,

    /// Namespace of the Leases
    #[arg(long, value_name = "NAME", default_value = "kube-node-lease")]
    pub(crate) namespace: String,

    /// Speaks Kubernetes' protobuf instead of JSON
    #[arg(long, conflicts_with_all = ["watchers", "name_watchers"])]
    pub(crate) protobuf: bool,

    /// Leases: those that are not there are created first
    #[arg(long, value_name = "COUNT", default_value_t = 10_000, value_parser = clap::value_parser!(u32).range(1..=10_000_000))]
    pub(crate) leases: u32,

    /// Connections of the requests [default: 8; with --http1 64; of list and delete-collection 1]
    #[arg(long, value_name = "COUNT", value_parser = clap::value_parser!(u32).range(1..=10_000))]
    connections: Option<u32>,

    /// Requests in flight on one connection: streams, or with --http1 pipelined [default: 32; with --http1 1; of list and
    /// delete-collection 1]
    #[arg(long, value_name = "COUNT", value_parser = clap::value_parser!(u32).range(1..=4_000))]
    streams: Option<u32>,

    /// Bytes of the body with echo
    #[arg(long, value_name = "COUNT", default_value_t = 700, value_parser = clap::value_parser!(u32).range(400..=1_000_000))]
    pub(crate) body_bytes: u32,

    /// Requests per second, counted from when they were due [default: as many as it takes]
    #[arg(long, value_name = "COUNT", value_parser = clap::value_parser!(u32).range(1..=10_000_000))]
    pub(crate) rate: Option<u32>,

    /// Time with the load on before the measurement (500ms, 20s, 2m)
    #[arg(long, value_name = "TIME", default_value = "1s", value_parser = parse_duration)]
    pub(crate) warm_up: Duration,

    /// Time that is measured (500ms, 20s, 2m). A creation of the Leases, a deletion or a resumption takes as long as it
    /// takes; a list is repeated for so long, and comes once at least
    #[arg(long, value_name = "TIME", default_value = "3s", value_parser = parse_duration)]
    pub(crate) duration: Duration,

    /// Watchers of all Leases
    #[arg(long, value_name = "COUNT", default_value_t = 0, value_parser = clap::value_parser!(u32).range(0..=100_000))]
    pub(crate) watchers: u32,

    /// Events that the slowest watcher may be behind the renewals, which wait for it; 0 is any number
    #[arg(long, value_name = "COUNT", default_value_t = 0)]
    pub(crate) lag: u64,

    /// Watchers of one Lease each
    #[arg(long, value_name = "COUNT", default_value_t = 0, value_parser = clap::value_parser!(u32).range(0..=1_000_000))]
    pub(crate) name_watchers: u32,

    /// The watchers of one Lease each are of others than are renewed
    #[arg(long)]
    pub(crate) other_names: bool,

    /// Watchers on one connection [default: 32; with --http1 1]
    #[arg(long, value_name = "COUNT", value_parser = clap::value_parser!(u32).range(1..=4_000))]
    watch_streams: Option<u32>,

    /// Connections that are idle all the time, beside the others
    #[arg(long, value_name = "COUNT", default_value_t = 0, value_parser = clap::value_parser!(u32).range(0..=1_000_000))]
    pub(crate) idle: u32,
}

/// What is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Verb {
    /// PUT of a Lease with a new renewTime, one Lease after the other
    Renew,
    /// GET of one Lease after the other
    Read,
    /// POST of every Lease; none of them may be there
    Create,
    /// GET of all Leases in one answer
    List,
    /// DELETE of all Leases of the namespace
    DeleteCollection,
    /// One renewal of every Lease, and then all watchers at once, from the version before
    Resume,
    /// PUT to a server that answers with what it got, and no more: the floor below all others
    Echo,
    /// Nothing: for what idle connections and watchers take
    Nothing,
}

impl Verb {
    /// As the command line has it.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Renew => "renew",
            Self::Read => "read",
            Self::Create => "create",
            Self::List => "list",
            Self::DeleteCollection => "delete-collection",
            Self::Resume => "resume",
            Self::Echo => "echo",
            Self::Nothing => "nothing",
        }
    }

    /// Whether the requests go on for as long as is wanted, after some that warm up.
    pub(crate) fn is_endless(self) -> bool {
        matches!(self, Self::Echo | Self::Read | Self::Renew)
    }

    /// Whether one request is about all Leases.
    pub(crate) fn is_bulk(self) -> bool {
        matches!(self, Self::DeleteCollection | Self::List)
    }
}

impl BenchArgs {
    /// The media type of all bodies.
    pub(crate) fn media_type(&self) -> MediaType {
        if self.protobuf { MediaType::Protobuf } else { MediaType::Json }
    }

    /// Connections of the requests.
    pub(crate) fn connections(&self) -> u32 {
        let connections = match self.server.version() {
            _ if self.verb.is_bulk() => 1,
            Version::Http1 => 64,
            Version::Http2 => 8,
        };
        self.connections.unwrap_or(connections).min(self.leases)
    }

    /// Requests in flight on one of them.
    pub(crate) fn streams(&self) -> u32 {
        let streams = match self.server.version() {
            _ if self.verb.is_bulk() => 1,
            Version::Http1 => 1,
            Version::Http2 => 32,
        };
        self.streams.unwrap_or(streams)
    }

    /// Watchers on one connection.
    pub(crate) fn watch_streams(&self) -> u32 {
        match self.server.version() {
            Version::Http1 => 1,
            Version::Http2 => self.watch_streams.unwrap_or(32),
        }
    }

    /// Connections of the watchers of all Leases, and of those of one.
    pub(crate) fn watch_connections(&self) -> [u32; 2] {
        [self.watchers, self.name_watchers].map(|watchers| watchers.div_ceil(self.watch_streams()))
    }
}
