//! The machine and the commit of a run. Without them, the figures of a run mean nothing.

use perf::results::{Commit, Machine};
use std::fs;
use std::process::Command;

/// Returns the commit of the work tree and whether it has changes. Both are `None` without git or a work tree.
pub(crate) fn commit() -> Commit {
    let git = |arguments: &[&str]| {
        let output = Command::new("git").args(arguments).output().ok()?;
        output.status.success().then(|| String::from_utf8_lossy(&output.stdout).trim().to_owned())
    };
    let changed = git(&["status", "--porcelain", "--untracked-files=no"]).map(|text| !text.is_empty());
    Commit { id: git(&["rev-parse", "--short=12", "HEAD"]), changed }
}

/// Returns the cores that this process may use; empty if the system does not report them.
pub(crate) fn cores() -> Vec<u32> {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let list = status.lines().find_map(|line| line.strip_prefix("Cpus_allowed_list:")).unwrap_or_default();
    cores_in(list.trim())
}

/// Parses a list of cores such as `0-3,8`.
fn cores_in(list: &str) -> Vec<u32> {
    let range = |part: &str| {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        Some(first.parse().ok()?..=last.parse().ok()?)
    };
    list.split(',').filter_map(range).flatten().collect()
}

/// Returns the machine's processor, cores, memory and kernel.
pub(crate) fn machine() -> Machine {
    let cpu = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let model = cpu.lines().find_map(|line| line.strip_prefix("model name")?.split_once(": ").map(|(_, name)| name));
    let memory = fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let memory_kib = memory.lines().find_map(|line| line.strip_prefix("MemTotal:")?.split_ascii_whitespace().next());
    let system = rustix::system::uname();
    Machine {
        cpu: model.map(str::to_owned),
        cores: std::thread::available_parallelism().map_or(0, usize::from),
        memory_kib: memory_kib.and_then(|kib| kib.parse().ok()),
        kernel: format!("{} {}", system.sysname().to_string_lossy(), system.release().to_string_lossy()),
        arch: system.machine().to_string_lossy().into_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cores_are_named_one_by_one_or_as_ranges() {
        assert_eq!(cores_in("0-2,8"), [0, 1, 2, 8]);
        assert_eq!(cores_in("5"), [5]);
        assert!(cores_in("").is_empty());
    }
}
