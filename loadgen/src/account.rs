//! Processor time and memory of processes, read from Linux's `/proc`. The load generator and the benchmark runner
//! `perf/run` report these figures of the server.
//!
//! Processor time is read from `schedstat`, in nanoseconds. A kernel without `schedstat` has only `stat`, whose clock
//! ticks of 10 ms are too coarse for costs of microseconds. On systems other than Linux, the processor time and the
//! memory of processes are `None`.

use std::fs;

/// Memory of some processes together, in KiB.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Memory {
    /// Present resident memory (`VmRSS`) of the processes, in KiB.
    pub resident_kib: u64,
    /// Highest resident memory so far (`VmHWM`) of the processes, in KiB.
    pub peak_kib: u64,
}

/// Returns the processor time that the present threads of these processes have used so far, in user and kernel mode, in
/// nanoseconds. Returns `None` if the system does not report the processor time, or if a process has ended.
#[must_use]
pub fn cpu_ns(pids: &[u32]) -> Option<u64> {
    pids.iter().map(|&pid| process_cpu_ns(pid)).sum()
}

/// Returns a value that occurs more than once in `values`; `None` if all values differ.
#[must_use]
pub fn repeated<T: Copy + PartialEq>(values: &[T]) -> Option<T> {
    values.iter().zip(1..).find_map(|(value, next)| values[next..].contains(value).then_some(*value))
}

/// Returns the memory of these processes together. A page that several processes share counts for each of them.
#[must_use]
pub fn memory(pids: &[u32]) -> Option<Memory> {
    pids.iter().try_fold(Memory::default(), |sum, pid| {
        let status = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
        Some(Memory {
            resident_kib: sum.resident_kib + kib_of(&status, "VmRSS:")?,
            peak_kib: sum.peak_kib + kib_of(&status, "VmHWM:")?,
        })
    })
}

fn process_cpu_ns(pid: u32) -> Option<u64> {
    let mut sum = 0;
    for task in fs::read_dir(format!("/proc/{pid}/task")).ok()? {
        // A thread may end before its `schedstat` file is read.
        let Ok(text) = fs::read_to_string(task.ok()?.path().join("schedstat")) else { continue };
        sum += text.split_ascii_whitespace().next()?.parse::<u64>().ok()?;
    }
    if sum == 0 { ticks_ns(pid) } else { Some(sum) }
}

/// Returns the processor time from fields 14 and 15 of `stat`, in nanoseconds, for a kernel without `schedstat`.
fn ticks_ns(pid: u32) -> Option<u64> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The second field of `stat` is the program's name in brackets. The name may contain any characters, so the last
    // closing bracket ends it.
    let (_, rest) = stat.rsplit_once(") ")?;
    let mut fields = rest.split_ascii_whitespace().skip(11);
    let user: u64 = fields.next()?.parse().ok()?;
    let system: u64 = fields.next()?.parse().ok()?;
    Some((user + system) * (1_000_000_000 / rustix::param::clock_ticks_per_second()))
}

fn kib_of(status: &str, key: &str) -> Option<u64> {
    let line = status.lines().find_map(|line| line.strip_prefix(key))?;
    line.split_ascii_whitespace().next()?.parse().ok()
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use super::*;

    #[test]
    fn the_cpu_time_and_memory_of_this_process_are_read() {
        let own = [std::process::id()];
        let before = cpu_ns(&own).expect("an account");
        let mut sum = 0_u64;
        while cpu_ns(&own).expect("an account") < before + 20_000_000 {
            sum = (0..100_000).fold(sum, |sum, value| std::hint::black_box(sum ^ value));
        }
        let memory = memory(&own).expect("an account");
        assert!(memory.resident_kib > 0 && memory.resident_kib <= memory.peak_kib, "{memory:?}");
    }

    #[test]
    fn a_missing_process_has_no_cpu_time_and_no_memory() {
        assert_eq!(cpu_ns(&[u32::MAX]), None);
        assert_eq!(memory(&[u32::MAX]), None);
        assert_eq!(cpu_ns(&[]), Some(0));
    }
}
