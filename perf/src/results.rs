//! A line of a file in perf/results, as JSON: one measurement, and what it was taken on.

use serde::{Deserialize, Serialize};
use serde_json::Value;

/// One line.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Line {
    /// Which round of the run it is of, from 0.
    pub round: u32,
    /// The run that it is of.
    pub context: Context,
    /// What one scenario measured in that round.
    #[serde(flatten)]
    pub measurement: Measurement,
}

/// What one scenario measured in one round, of one server.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Measurement {
    /// Group of the scenario: `renew`, `read`, `floor`, ...
    pub group: String,
    /// Name of the scenario, or of a part of it.
    pub scenario: String,
    /// Which server: [`crate::OURS`], or its name.
    pub subject: String,
    /// What is counted: `request`, `event`, `Lease`, `list`, `turn`.
    pub unit: String,
    /// How many of `unit` a second.
    pub per_second: Option<f64>,
    /// Processor time of the server for each `unit`, in microseconds.
    pub cpu_us: Option<f64>,
    /// How long each took: a request from when it was asked for, or due, an event from when its renewal was sent.
    #[serde(flatten)]
    pub latency: Latency,
    /// The server's share of a core, from 0 to 1.
    pub server_cpu_share: Option<f64>,
    /// The load generator's share of a core, from 0 to 1.
    pub generator_cpu_share: Option<f64>,
    /// What was in the way of more, as the load says: `server` or `generator`; `-` if neither was.
    pub limit: String,
    /// Resident memory of the server at the end, in KiB.
    pub resident_kib: Option<u64>,
    /// Bytes of the server's memory for each Lease, idle connection or watcher, whichever the scenario is about.
    pub bytes_each: Option<f64>,
    /// How many errors and violations there were.
    pub errors: u64,
    /// Command line of the load.
    pub command: String,
    /// What the load printed, as JSON.
    pub told: Value,
}

/// Times in milliseconds; none where there was nothing to measure, or no telling.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Latency {
    /// Half of them took no longer.
    pub ms_p50: Option<f64>,
    /// 99 of 100 took no longer.
    pub ms_p99: Option<f64>,
    /// 999 of 1,000 took no longer.
    pub ms_p99_9: Option<f64>,
    /// The longest.
    pub ms_max: Option<f64>,
}

/// A run: without this its figures say nothing.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Context {
    /// When the run began, in seconds since 1970 UTC.
    pub at: i64,
    /// Of the work tree, which is what was measured unless another server was named.
    pub commit: Commit,
    /// On what it was measured.
    pub machine: Machine,
    /// The cores of the server and of the load, if the run said so.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cores: Option<[u32; 2]>,
    /// The arguments of perf/run.
    pub run: String,
    /// Whether it was one of `--quick`.
    pub quick: bool,
}

/// The state of a work tree.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Commit {
    /// The first 12 or more digits of its hash; none where git did not tell.
    pub id: Option<String>,
    /// Whether files under version control had changes; none where git did not tell.
    pub changed: Option<bool>,
}

/// Processor, cores, memory and kernel.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Machine {
    /// Name of the processor's model; none where the system does not tell.
    pub cpu: Option<String>,
    /// Number of cores that the program could use.
    pub cores: usize,
    /// Memory of the machine, in KiB.
    pub memory_kib: Option<u64>,
    /// Name and release of the kernel.
    pub kernel: String,
    /// Architecture, as `uname -m` has it.
    pub arch: String,
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::path::Path;

    #[test]
    fn the_results_that_are_kept_can_be_read_and_are_written_as_they_were() {
        let mut folders = vec![Path::new(env!("CARGO_MANIFEST_DIR")).join("results")];
        let mut lines = 0;
        while let Some(folder) = folders.pop() {
            for path in fs::read_dir(folder).expect("results").flatten().map(|entry| entry.path()) {
                if path.is_dir() {
                    folders.push(path);
                } else if path.extension().is_some_and(|extension| extension == "jsonl") {
                    lines += assert_round_trip(&path);
                }
            }
        }
        assert!(lines > 0);
    }

    /// How many lines the file has, each of which must be written as it was read.
    fn assert_round_trip(file: &Path) -> usize {
        let text = fs::read_to_string(file).expect("a file of results");
        for before in text.lines() {
            let line: Line = serde_json::from_str(before).unwrap_or_else(|e| panic!("{}: {e}", file.display()));
            let now = serde_json::to_string(&line).expect("a line");
            let [before, now] = [before, &now].map(|text| serde_json::from_str::<Value>(text).expect("JSON"));
            assert_eq!(before, now, "{}", file.display());
        }
        text.lines().count()
    }
}
