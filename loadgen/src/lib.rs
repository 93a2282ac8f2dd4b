//! The part of the load generator that it shares with `perf/run`. [`account`] measures the processor time and memory of
//! server and generator. [`limit`] says which of the two was the limit. All other modules in this folder belong to the
//! binary.

#![forbid(unsafe_code)]

mod account;
mod limit;

pub use account::{Memory, cpu_ns, memory, repeated};
pub use limit::{BUSY_SHARE, LATE_MS_MAX, Limit};
