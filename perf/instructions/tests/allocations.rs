//! In the steady state nothing is allocated: not for a renewal, in either format and either version of HTTP, not for a
//! read, not for an event that is delivered. And a Lease takes the memory that is promised.

use perf_instructions::memory;
use perf_instructions::scenario::SCENARIOS;
use stats_alloc::{INSTRUMENTED_SYSTEM, Region, StatsAlloc};
use std::alloc::System;
use std::io::Write;

#[global_allocator]
static ALLOCATOR: &StatsAlloc<System> = &INSTRUMENTED_SYSTEM;

/// Operations of which none may allocate.
const OPERATIONS: usize = 3_000;

/// Bytes that a Lease of a kubelet may take, all told.
const LEASE_BYTES_MAX: usize = 2_048;

fn main() {
    for (name, ready) in SCENARIOS {
        let mut operation = ready();
        let region = Region::new(ALLOCATOR);
        (0..OPERATIONS).for_each(|_| operation());
        let change = region.change();
        let count = change.allocations + change.reallocations;
        assert_eq!(count, 0, "{name}: {count} allocations in {OPERATIONS} operations");
        say(&format!("{name}: no allocation in {OPERATIONS} operations"));
    }
    let live = || {
        let stats = ALLOCATOR.stats();
        stats.bytes_allocated - stats.bytes_deallocated
    };
    for (name, bytes) in memory::of_leases(10_000, &live) {
        say(&format!("{name}: {bytes} bytes"));
        assert!(bytes <= LEASE_BYTES_MAX, "{name}: {bytes} bytes");
    }
}

fn say(line: &str) {
    // If nobody reads it there is nobody to tell.
    let _ = writeln!(std::io::stdout(), "{line}");
}
