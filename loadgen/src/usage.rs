//! What generator and server use of the machine, at the ends of what is measured.

use crate::reactor::nanos;
use process_account::Memory;
use std::time::Duration;

/// Processor time that was used until some time of the run, in nanoseconds.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Usage {
    generator_ns: u64,
    /// `None` if the server's processes were not named, or are gone.
    server_ns: Option<u64>,
}

impl Usage {
    /// Until now, by this process and by the server's.
    pub(crate) fn now(server_pids: &[u32]) -> Self {
        let generator = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
        Self {
            server_ns: if server_pids.is_empty() { None } else { process_account::cpu_ns(server_pids) },
            generator_ns: nanos(Duration::try_from(generator).unwrap_or_default()),
        }
    }

    /// The generator's own since then.
    pub(crate) fn generator_since(&self, before: &Self) -> Duration {
        Duration::from_nanos(self.generator_ns.saturating_sub(before.generator_ns))
    }

    /// The server's since then.
    pub(crate) fn server_since(&self, before: &Self) -> Option<Duration> {
        Some(Duration::from_nanos(self.server_ns?.saturating_sub(before.server_ns?)))
    }
}

/// Memory of the server's processes, if they were named.
pub(crate) fn server_memory(pids: &[u32]) -> Option<Memory> {
    if pids.is_empty() { None } else { process_account::memory(pids) }
}
