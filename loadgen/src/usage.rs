//! Processor time of the generator and of the server, and memory of the server.

use crate::figures::count;
use crate::reactor::nanos;
use loadgen_account::Memory;
use std::time::Duration;

/// Processor time that generator and server have used since their start, in nanoseconds.
#[derive(Clone, Debug, Default)]
pub(crate) struct Usage {
    generator_ns: u64,
    /// Processor time of each of the server's processes; `None` if `--pid` does not name the processes, or a process
    /// has ended.
    server_ns: Option<Vec<u64>>,
}

impl Usage {
    /// Reads the processor time that this process and the server's processes have used so far.
    pub(crate) fn now(server_pids: &[u32]) -> Self {
        let generator = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
        Self {
            server_ns: if server_pids.is_empty() {
                None
            } else {
                server_pids.iter().map(|&pid| loadgen_account::cpu_ns(&[pid])).collect()
            },
            generator_ns: nanos(Duration::try_from(generator).unwrap_or_default()),
        }
    }

    /// Returns the processor time that the generator has used since `before`.
    pub(crate) fn generator_since(&self, before: &Self) -> Duration {
        Duration::from_nanos(self.generator_ns.saturating_sub(before.generator_ns))
    }

    /// Returns the processor time that the server has used since `before`; `None` if it is not known.
    pub(crate) fn server_since(&self, before: &Self) -> Option<Duration> {
        Some(self.processes_since(before)?.sum())
    }

    /// Returns the processor time that each of the server's processes has used since `before`; `None` if it is not
    /// known.
    fn processes_since(&self, before: &Self) -> Option<impl Iterator<Item = Duration>> {
        let processes = self.server_ns.as_ref()?.iter().zip(before.server_ns.as_ref()?);
        Some(processes.map(|(now, before)| Duration::from_nanos(now.saturating_sub(*before))))
    }
}

/// The measured time, and the processor time used in it.
#[derive(Debug, Default)]
pub(crate) struct Window {
    /// Start and end of the measured time in nanoseconds since the start of the run, each with the processor time used
    /// until then.
    from: (u64, Usage),
    to: (u64, Usage),
}

impl Window {
    /// Begins the measured time, and returns its start in nanoseconds since the start of the run. The clock is read
    /// last, so that the measured time does not include the reading of the processor time.
    pub(crate) fn begin(&mut self, server_pids: &[u32], now: impl Fn() -> u64) -> u64 {
        let usage = Usage::now(server_pids);
        self.from = (now(), usage);
        self.to = self.from.clone();
        self.from.0
    }

    /// Ends the measured time, and returns its end in nanoseconds since the start of the run.
    pub(crate) fn end(&mut self, server_pids: &[u32], now: impl Fn() -> u64) -> u64 {
        let usage = Usage::now(server_pids);
        self.to = (now(), usage);
        self.to.0
    }

    /// Returns the length of the measured time in seconds; 0 before its end.
    pub(crate) fn seconds(&self) -> f64 {
        Duration::from_nanos(self.to.0 - self.from.0).as_secs_f64()
    }

    /// Returns the generator's processor time in the measured time, in microseconds.
    pub(crate) fn generator_us(&self) -> f64 {
        self.to.1.generator_since(&self.from.1).as_secs_f64() * 1e6
    }

    /// Returns the server's processor time in the measured time, in microseconds; `None` if it is not known.
    pub(crate) fn server_us(&self) -> Option<f64> {
        Some(self.to.1.server_since(&self.from.1)?.as_secs_f64() * 1e6)
    }

    /// Returns the generator's processor time in the measured time, as a share of a core; `None` if nothing was
    /// measured.
    pub(crate) fn generator_share(&self) -> Option<f64> {
        self.share(self.generator_us())
    }

    /// Returns the server's processor time in the measured time, as a share of a core. Returns `None` without `--pid`,
    /// if a process of the server has ended, or if nothing was measured.
    pub(crate) fn server_share(&self) -> Option<f64> {
        self.share(self.server_us()?)
    }

    /// Returns the processor time of the server's busiest process in the measured time, as a share of a core. Returns
    /// `None` without `--pid`, if a process of the server has ended, or if nothing was measured.
    pub(crate) fn busiest_server_share(&self) -> Option<f64> {
        self.share(self.to.1.processes_since(&self.from.1)?.max()?.as_secs_f64() * 1e6)
    }

    /// Whether the server's processor time is from the kernel: `--pid` names the server's processes, and they ran at
    /// the start of the measured time.
    pub(crate) fn has_server(&self) -> bool {
        self.from.1.server_ns.is_some()
    }

    fn share(&self, us: f64) -> Option<f64> {
        let seconds = self.seconds();
        (seconds > 0.0).then(|| us / 1e6 / seconds)
    }
}

/// Formats the memory of processes for people.
pub(crate) fn memory_words(memory: Memory) -> String {
    let mib = |kib: u64| count(kib) / 1_024.0;
    format!("{:.1} MiB resident, {:.1} MiB at most", mib(memory.resident_kib), mib(memory.peak_kib))
}

/// Returns the memory of the server's processes; `None` if `--pid` does not name them, or if one has ended.
pub(crate) fn server_memory(pids: &[u32]) -> Option<Memory> {
    if pids.is_empty() { None } else { loadgen_account::memory(pids) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cpu_shares_are_relative_to_the_elapsed_time() {
        let usage = |generator_ns, server_ns| Usage { generator_ns, server_ns };
        let from = (1_000, usage(5_000, Some(vec![7_000, 0])));
        let to = (2_000_001_000, usage(1_000_005_000, Some(vec![500_007_000, 1_000_000_000])));
        let window = Window { from: from.clone(), to };
        assert_eq!((window.seconds(), window.generator_us()), (2.0, 1e6));
        assert_eq!((window.generator_share(), window.server_share()), (Some(0.5), Some(0.75)));
        assert_eq!(window.busiest_server_share(), Some(0.5));
        let window = Window { from: from.clone(), to: from };
        assert_eq!((window.seconds(), window.generator_share(), window.server_share()), (0.0, None, None));
        let without = Window { from: (0, usage(0, None)), to: (1_000, usage(0, None)) };
        assert_eq!((without.server_us(), without.server_share(), without.busiest_server_share()), (None, None, None));
    }
}
