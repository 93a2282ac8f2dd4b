//! The format of the results files, which perf/run writes and perf/report reads ([`results`]), and the summary of
//! rounds ([`row`]).

#![forbid(unsafe_code)]

pub mod results;
pub mod row;

/// Name of this project's server with storage in memory, in the results.
pub const OURS: &str = "this";

/// Name of this project's server with storage on disk, in the results.
pub const OURS_ON_DISK: &str = "this-disk";

/// Name of this project's server with storage in etcd, in the results.
pub const OURS_OVER_ETCD: &str = "this-etcd";

/// Names of this project's server in the results, one for each storage.
pub const ALL_OURS: [&str; 3] = [OURS, OURS_ON_DISK, OURS_OVER_ETCD];
