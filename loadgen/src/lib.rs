//! What the load generator shares with `perf/run`: what server and generator use of the machine, [`account`], and which
//! of them was the limit by that, [`limit`]. All other modules in this folder are the binary's.

#![forbid(unsafe_code)]

mod account;
mod limit;

pub use account::{Memory, cpu_ns, memory, repeated};
pub use limit::{BUSY_SHARE, LATE_MS_MAX, Limit};
