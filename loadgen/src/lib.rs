//! The library of the load generator, which `perf/run` uses too. [`account`] measures the processor time and memory of
//! server and generator. [`limit`] decides which of the two limited a run. All other modules in this folder belong to
//! the binary.

#![forbid(unsafe_code)]

mod account;
mod limit;

pub use account::{Memory, cpu_ns, memory, repeated};
pub use limit::{BUSY_SHARE, LATE_MS_MAX, Limit};
