//! What perf/run writes and perf/report reads: [`results`], and what the rounds of them come to, [`row`].

#![forbid(unsafe_code)]

pub mod results;
pub mod row;

/// The subject of what is measured on the server of this workspace with its Leases in memory.
pub const OURS: &str = "this";

/// The same, with its Leases on disk.
pub const OURS_ON_DISK: &str = "this-disk";

/// The same, with its Leases in an etcd: several replicas.
pub const OURS_OVER_ETCD: &str = "this-etcd";

/// All of these.
pub const ALL_OURS: [&str; 3] = [OURS, OURS_ON_DISK, OURS_OVER_ETCD];
