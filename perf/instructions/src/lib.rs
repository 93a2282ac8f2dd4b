//! Counts the instructions and allocations of the server without sockets: its connections are in memory, and are served
//! in the same order as in the event loop. The clients do as little as possible. So the counts show the server's work
//! on a request. They include neither TLS nor the kernel.
//!
//! `perf/instructions/check` counts instructions: it runs the binary of this crate under valgrind. The tests count
//! allocations, and `src/bin/memory.rs` counts allocated bytes.

pub mod client;
pub mod memory;
pub mod scenario;
pub mod world;
