//! The server allocates no memory in the steady state: not for a renewal, a read or the delivery of an event. This
//! holds for JSON and protobuf, and for HTTP/1.1 and HTTP/2. A Lease takes no more memory than documented.

use perf_instructions::memory;
use perf_instructions::scenario::SCENARIOS;
use stats_alloc::{INSTRUMENTED_SYSTEM, Region, StatsAlloc};
use std::alloc::System;
use std::io::Write;

#[global_allocator]
static ALLOCATOR: &StatsAlloc<System> = &INSTRUMENTED_SYSTEM;

/// Number of operations of each scenario, none of which may allocate.
const OPERATIONS: usize = 3_000;

/// Maximum memory of a kubelet's Lease, with its indexes, in bytes.
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
    // A closed output is not an error.
    let _ = writeln!(std::io::stdout(), "{line}");
}
