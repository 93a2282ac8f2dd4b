//! Prints the memory that each Lease, each idle connection and each watcher takes, in bytes requested from the
//! allocator. The number of Leases is 1,000,000, or the argument. Sockets, TLS and the allocator's overhead are not
//! included.

use perf_instructions::memory;
use stats_alloc::{INSTRUMENTED_SYSTEM, StatsAlloc};
use std::alloc::System;
use std::io::Write;

#[global_allocator]
static ALLOCATOR: &StatsAlloc<System> = &INSTRUMENTED_SYSTEM;

fn main() -> std::io::Result<()> {
    let leases = std::env::args().nth(1).and_then(|number| number.parse().ok()).unwrap_or(1_000_000);
    let live = || {
        let stats = ALLOCATOR.stats();
        stats.bytes_allocated - stats.bytes_deallocated
    };
    let mut measured = memory::of_leases(leases, &live);
    measured.extend(memory::of_connections(1_000, &live));
    measured.extend(memory::of_watchers(1_000, &live));
    for (name, bytes) in measured {
        writeln!(std::io::stdout(), "{name:40} {bytes:>7} bytes")?;
    }
    Ok(())
}
