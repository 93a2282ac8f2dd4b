//! The format that perf/run writes and perf/report reads ([`results`]), and the summary of rounds ([`row`]).

#![forbid(unsafe_code)]

pub mod results;
pub mod row;

/// Name in the results of our server with storage in memory.
pub const OURS: &str = "this";

/// Name in the results of our server with storage on disk.
pub const OURS_ON_DISK: &str = "this-disk";

/// Name in the results of our server with storage in etcd, shared by several replicas.
pub const OURS_OVER_ETCD: &str = "this-etcd";

/// Names in the results of our server, one for each storage.
pub const ALL_OURS: [&str; 3] = [OURS, OURS_ON_DISK, OURS_OVER_ETCD];
