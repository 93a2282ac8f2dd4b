//! The server without sockets: connections in memory, served in the order of the event loop, with minimal clients. The
//! counts are therefore the server's work on a request, without TLS and the kernel.
//!
//! `perf/instructions/check` counts instructions: it runs this crate's binary under valgrind. The tests count
//! allocations, and `src/bin/memory.rs` counts bytes.

pub mod client;
pub mod memory;
pub mod scenario;
pub mod world;
