//! The format that perf/run writes and perf/report reads ([`results`]), and the summary of rounds ([`row`]).

#![forbid(unsafe_code)]

pub mod results;
pub mod row;

/// Subject of measurements of our server with storage in memory.
pub const OURS: &str = "this";

/// Subject of measurements of our server with storage on disk.
pub const OURS_ON_DISK: &str = "this-disk";

/// Subject of measurements of our server with storage in etcd: several replicas.
pub const OURS_OVER_ETCD: &str = "this-etcd";

/// Subjects of measurements of our server.
pub const ALL_OURS: [&str; 3] = [OURS, OURS_ON_DISK, OURS_OVER_ETCD];
