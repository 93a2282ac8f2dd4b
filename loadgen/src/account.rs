//! Resource use of processes, read from the kernel's `/proc`. The load generator and `perf/run` report the server's
//! resource use.
//!
//! `schedstat` counts processor time in nanoseconds, if the kernel has it. `stat` counts clock ticks of 10 ms, too
//! coarse for costs of microseconds over seconds. Systems other than Linux get `None`.

use std::fs;

/// Memory of some processes, in KiB.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Memory {
    /// Present resident memory (`VmRSS`), in KiB.
    pub resident_kib: u64,
    /// Highest resident memory so far (`VmHWM`), in KiB.
    pub peak_kib: u64,
}

/// Returns the processor time of all threads of these processes so far, in user and kernel mode, in nanoseconds. `None`
/// if the system does not report it, or a process has ended.
#[must_use]
pub fn cpu_ns(pids: &[u32]) -> Option<u64> {
    pids.iter().map(|&pid| process_cpu_ns(pid)).sum()
}

/// Returns a process id that occurs more than once: its resource use would count repeatedly.
#[must_use]
pub fn repeated(pids: &[u32]) -> Option<u32> {
    pids.iter().zip(1..).find_map(|(pid, next)| pids[next..].contains(pid).then_some(*pid))
}

/// Returns the memory of these processes. A page that several of them share counts for each.
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
        // A thread may end before its file is read.
        let Ok(text) = fs::read_to_string(task.ok()?.path().join("schedstat")) else { continue };
        sum += text.split_ascii_whitespace().next()?.parse::<u64>().ok()?;
    }
    if sum == 0 { ticks_ns(pid) } else { Some(sum) }
}

/// Reads fields 14 and 15 of `stat`, if the kernel has no `schedstat`.
fn ticks_ns(pid: u32) -> Option<u64> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The second field is a name in brackets, which may hold any characters.
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
    fn counts_what_this_process_uses() {
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
    fn a_process_that_is_not_there_has_no_account() {
        assert_eq!(cpu_ns(&[u32::MAX]), None);
        assert_eq!(memory(&[u32::MAX]), None);
        assert_eq!(cpu_ns(&[]), Some(0));
    }
}
