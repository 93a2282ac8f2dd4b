//! The part of the load generator that the benchmark runner `perf/run` uses too. [`account`] measures the processor
//! time and the memory of processes, such as the server's. [`limit`] decides whether the server or the generator
//! limited the results of a run. All other modules in this folder belong to the binary `loadgen`.

#![forbid(unsafe_code)]

mod account;
mod limit;

pub use account::{Memory, cpu_ns, memory, repeated};
pub use limit::{BUSY_SHARE, LATE_MS_MAX, Limit};
