//! The server without sockets: connections in memory, run as the loop runs them, with minimal clients. So the counts
//! are the server's work on a request, without TLS and the kernel.
//!
//! `perf/instructions/check` counts instructions: it runs this crate's binary under valgrind. The tests count
//! allocations, and `src/bin/memory.rs` counts bytes.

pub mod client;
pub mod memory;
pub mod scenario;
pub mod world;
