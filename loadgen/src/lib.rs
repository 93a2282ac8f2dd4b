//! The part of the load generator shared with `perf/run`: [`account`] measures the machine's use by server and
//! generator, [`limit`] tells which of them was the limit. All other modules in this folder belong to the binary.

#![forbid(unsafe_code)]

mod account;
mod limit;

pub use account::{Memory, cpu_ns, memory, repeated};
pub use limit::{BUSY_SHARE, LATE_MS_MAX, Limit};
