//! A line of a results file in perf/results, as JSON: one measurement and the context of its run.

use serde::{Deserialize, Serialize};
use serde_json::Value;

/// One line of a results file.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Line {
    /// Number of the round in its run, from 0.
    pub round: u32,
    /// Context of the run.
    pub context: Context,
    /// The measurement of one scenario.
    #[serde(flatten)]
    pub measurement: Measurement,
}

/// Measurement of one scenario and server in one round.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Measurement {
    /// Name of the group that the scenario belongs to: `renew`, `read`, `floor`, ...
    pub group: String,
    /// Name of the scenario, or of one of the measurements of a scenario.
    pub scenario: String,
    /// The measured server: one of [`crate::ALL_OURS`], or the name of another server.
    pub subject: String,
    /// The unit that is counted: `request`, `event`, `Lease`, `list` or `turn` (of the event loop).
    pub unit: String,
    /// Number of units per second, of the unit in `unit`.
    pub per_second: Option<f64>,
    /// Processor time of the server for each unit, in microseconds.
    pub cpu_us: Option<f64>,
    /// Latency. For a request it starts when the request is sent or due. For an event it starts when the event's
    /// renewal is sent.
    #[serde(flatten)]
    pub latency: Latency,
    /// Processor time of the server as a share of a core. It exceeds 1 if the server uses more than one core.
    pub server_cpu_share: Option<f64>,
    /// Processor time of the load generator as a share of a core, from 0 to 1.
    pub generator_cpu_share: Option<f64>,
    /// What limited the throughput, as the load generator reports it: `server`, `generator`, or `-` if neither.
    pub limit: String,
    /// Resident memory of the server at the end of the measurement, in KiB.
    pub resident_kib: Option<u64>,
    /// Memory of the server for each Lease, idle connection or watcher, depending on the scenario, in bytes.
    pub bytes_each: Option<f64>,
    /// Number of errors and violations that the load generator reports.
    pub errors: u64,
    /// Command line of the load generator.
    pub command: String,
    /// Result of the load in JSON, as the load generator printed it.
    pub told: Value,
}

/// Latencies in milliseconds; `None` if there is no value.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Latency {
    /// Median of the latencies.
    pub ms_p50: Option<f64>,
    /// 99th percentile of the latencies.
    pub ms_p99: Option<f64>,
    /// 99.9th percentile of the latencies.
    pub ms_p99_9: Option<f64>,
    /// Maximum of the latencies.
    pub ms_max: Option<f64>,
}

/// Context of a run, on which the figures of the run depend.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Context {
    /// When the run began, in seconds since 1970 UTC.
    pub at: i64,
    /// Commit of the work tree. The measured server was built from it, unless `--server` named another program.
    pub commit: Commit,
    /// The machine on which the run took place.
    pub machine: Machine,
    /// Numbers of the cores of the server and of the load; `None` in older files.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cores: Option<[u32; 2]>,
    /// Command line of perf/run, without the program.
    pub run: String,
    /// Whether the run had `--quick`.
    pub quick: bool,
}

/// The commit of a work tree, and whether the work tree differs from it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Commit {
    /// First 12 or more digits of the commit's hash; `None` without git.
    pub id: Option<String>,
    /// Whether tracked files had changes; `None` without git.
    pub changed: Option<bool>,
}

/// The machine of a run: processor, cores, memory and kernel.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Machine {
    /// Model of the processor; `None` if the system does not report it.
    pub cpu: Option<String>,
    /// Number of cores that perf/run could use.
    pub cores: usize,
    /// Memory of the machine, in KiB.
    pub memory_kib: Option<u64>,
    /// Name and release of the kernel.
    pub kernel: String,
    /// Architecture, as `uname -m` prints it.
    pub arch: String,
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::path::Path;

    #[test]
    fn kept_results_parse_and_are_written_unchanged() {
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

    /// Checks that each line, parsed and written again, is unchanged. Returns the number of lines.
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
