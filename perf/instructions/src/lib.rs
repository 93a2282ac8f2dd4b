//! The server without its sockets: connections in memory, driven as the loop drives them, by clients that do no more
//! than they must. What is measured here is therefore the server's work on a request, apart from TLS and the kernel.
//!
//! Instructions are counted by `perf/instructions/check`, which runs the binary of this crate under valgrind;
//! allocations by its tests; bytes by `src/bin/memory.rs`.

pub mod client;
pub mod memory;
pub mod scenario;
pub mod world;
