//! Metrics of the process, under the names that all Prometheus clients use. They are read from `/proc` at a scrape.
//! Such reads do not block, because `/proc` is not on a disk. Values that the system does not provide are left out.

use super::text::Exposition;
use crate::timestamp::Time;
use rustix::process::{Resource, getrlimit};
use std::fs;

/// Writes all metrics of the process. `started` is the wall-clock time of the process's start. `open_fds` is the number
/// of open file descriptors, if known.
pub(super) fn encode(out: &mut Exposition, started: Time, open_fds: Option<u64>) {
    if let Some(seconds) = fs::read_to_string("/proc/self/stat").ok().as_deref().and_then(cpu_seconds) {
        out.single_counter("process_cpu_seconds_total", "User and system processor time, in seconds.", seconds);
    }
    if let Ok(status) = fs::read_to_string("/proc/self/status") {
        for (field, name, help) in [
            ("VmRSS", "process_resident_memory_bytes", "Resident memory, in bytes."),
            ("VmSize", "process_virtual_memory_bytes", "Virtual memory, in bytes."),
        ] {
            if let Some(bytes) = memory_bytes(&status, field) {
                out.single_gauge(name, help, bytes);
            }
        }
    }
    if let Some(count) = open_fds {
        out.single_gauge("process_open_fds", "Open file descriptors.", count);
    }
    if let Some(limit) = getrlimit(Resource::Nofile).current {
        out.single_gauge("process_max_fds", "Maximum number of open file descriptors.", limit);
    }
    let help = "Start of the process, in seconds since 1970.";
    out.single_gauge("process_start_time_seconds", help, started.0);
}

/// Ticks per second in the times of `/proc`, whatever the kernel's own tick rate (`USER_HZ`, proc_pid_stat(5)).
const TICKS_PER_SECOND: f64 = 100.0;

/// Returns the CPU time of the process in seconds, from the content of `/proc/self/stat`. It is the sum of `utime` and
/// `stime`, fields 14 and 15. The second field is a name in brackets, which may contain any character. So fields are
/// counted from the closing bracket of the name.
fn cpu_seconds(stat: &str) -> Option<f64> {
    let (_, fields) = stat.rsplit_once(')')?;
    let mut fields = fields.split_ascii_whitespace().skip(11);
    let mut ticks = || fields.next()?.parse::<f64>().ok();
    Some((ticks()? + ticks()?) / TICKS_PER_SECOND)
}

/// Returns a size in bytes from the line `Name:  123 kB` of `/proc/self/status`.
fn memory_bytes(status: &str, name: &str) -> Option<u64> {
    let line = status.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'))?;
    line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok()?.checked_mul(1024)
}

/// Counts the open file descriptors.
#[derive(Debug, Default)]
pub(super) struct OpenFds {
    /// Number of descriptors that are not connections, as of the last count of the folder's entries.
    others: Option<u64>,
}

/// Number of connections up to which the entries of `/proc/self/fd` are counted. A longer count would delay requests.
const COUNTED_CONNECTIONS_MAX: u64 = 1024;

impl OpenFds {
    /// Returns the number of open file descriptors. Since Linux 6.2 this is the size of the folder `/proc/self/fd`. On
    /// older kernels the size is 0, and the entries of the folder must be counted.
    pub(super) fn count(&mut self, connections: u64) -> Option<u64> {
        const FDS: &str = "/proc/self/fd";
        match fs::metadata(FDS).ok()?.len() {
            0 => self.count_entries(connections, || u64::try_from(fs::read_dir(FDS).ok()?.count()).ok()),
            count => Some(count),
        }
    }

    /// Counts the folder's entries with `count`, but only while there are few connections, or if there was no count
    /// yet. Otherwise adds the connections to the other descriptors of the last count. To count the entries of 19,000
    /// connections takes 20 ms, and every request would wait.
    fn count_entries(&mut self, connections: u64, count: impl FnOnce() -> Option<u64>) -> Option<u64> {
        match self.others {
            Some(others) if connections > COUNTED_CONNECTIONS_MAX => Some(others + connections),
            Some(_) | None => {
                let entries = count()?;
                self.others = Some(entries.saturating_sub(connections));
                Some(entries)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn proc_stat_and_status_are_parsed() {
        let stat = "42 (a) b (c)) S 1 2 3 4 5 6 7 8 9 10 250 50 0 0 20 0 1 0 100 1000 10";
        assert_eq!(cpu_seconds(stat), Some(3.0));
        assert_eq!(cpu_seconds("42 (a) S 1"), None);
        let status = "Name:\tVmRSS\nVmSize:\t    2048 kB\nVmRSS:\t       1 kB\n";
        assert_eq!((memory_bytes(status, "VmRSS"), memory_bytes(status, "VmSize")), (Some(1024), Some(2_097_152)));
        assert_eq!(memory_bytes(status, "Vm"), None);
    }

    #[test]
    fn the_entries_of_many_connections_are_not_counted_again() {
        let mut fds = OpenFds::default();
        let (few, many) = (COUNTED_CONNECTIONS_MAX, 50_000);
        assert_eq!(fds.count_entries(many, || None), None);
        assert_eq!(fds.count_entries(many, || Some(many + 9)), Some(many + 9), "the first count");
        assert_eq!(fds.count_entries(many + 1, || panic!("a count")), Some(many + 10));
        assert_eq!(fds.count_entries(few, || Some(few + 20)), Some(few + 20));
        assert_eq!(fds.count_entries(many, || panic!("a count")), Some(many + 20));
    }

    #[test]
    #[cfg(target_os = "linux")]
    fn process_metrics_are_exported() {
        let mut out = Exposition::new();
        encode(&mut out, Time(7), OpenFds::default().count(0));
        let text = String::from_utf8(out.finish()).expect("text");
        for name in
            ["cpu_seconds_total", "resident_memory_bytes", "virtual_memory_bytes", "open_fds", "start_time_seconds"]
        {
            assert!(text.lines().any(|line| line.starts_with(&format!("process_{name} "))), "{name}: {text}");
        }
    }
}
