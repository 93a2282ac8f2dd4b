//! A line of a file in perf/results, as JSON: one measurement, and what it was taken on.

use serde::{Deserialize, Serialize};
use serde_json::Value;

/// One line.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Line {
    /// Of the run, from 0.
    pub round: u32,
    /// Of the run.
    pub context: Context,
    /// What came of it.
    #[serde(flatten)]
    pub measurement: Measurement,
}

/// What one scenario measured in one round, of one server.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Measurement {
    /// Of the scenario.
    pub group: String,
    /// Its name, or that of a part of it.
    pub scenario: String,
    /// Which server: [`crate::OURS`], or its name.
    pub subject: String,
    /// What is counted: `request`, `event`, `Lease`, `list`, `turn`.
    pub unit: String,
    /// How many of them.
    pub per_second: Option<f64>,
    /// Processor time of the server for each, in microseconds.
    pub cpu_us: Option<f64>,
    /// How long each took.
    #[serde(flatten)]
    pub latency: Latency,
    /// The server's share of a core.
    pub server_cpu_share: Option<f64>,
    /// The load's.
    pub generator_cpu_share: Option<f64>,
    /// What was in the way of more, as the load says; `-` if nothing was.
    pub limit: String,
    /// Memory of the server at the end.
    pub resident_kib: Option<u64>,
    /// What each of what the scenario is about takes of the server's memory: a Lease, an idle connection, a watcher.
    pub bytes_each: Option<f64>,
    /// Errors and violations.
    pub errors: u64,
    /// What was run.
    pub command: String,
    /// What that said.
    pub told: Value,
}

/// In milliseconds; none where there was nothing, or no telling.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Latency {
    /// What half of them did not pass.
    pub ms_p50: Option<f64>,
    /// What 99 of 100 did not.
    pub ms_p99: Option<f64>,
    /// What 999 of 1,000 did not.
    pub ms_p99_9: Option<f64>,
    /// The longest.
    pub ms_max: Option<f64>,
}

/// A run: without this its figures say nothing.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Context {
    /// When it began, in seconds since 1970.
    pub at: i64,
    /// What was measured, unless another server was named.
    pub commit: Commit,
    /// On what.
    pub machine: Machine,
    /// The arguments of perf/run.
    pub run: String,
    /// Whether it was one of `--quick`.
    pub quick: bool,
}

/// The state of a work tree.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Commit {
    /// The beginning of its hash.
    pub id: Option<String>,
    /// Whether the tree had changes.
    pub changed: bool,
}

/// Processor, cores, memory and kernel.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Machine {
    /// The model's name.
    pub cpu: Option<String>,
    /// Those that could be used.
    pub cores: usize,
    /// All of it.
    pub memory_kib: Option<u64>,
    /// Its name and release.
    pub kernel: String,
    /// As `uname -m` has it.
    pub arch: String,
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::path::Path;

    #[test]
    fn the_results_that_are_kept_can_be_read_and_are_written_as_they_were() {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("results");
        let mut lines = 0;
        for folder in [folder.clone(), folder.join("against"), folder.join("guided")] {
            for file in fs::read_dir(folder).expect("results").flatten().map(|entry| entry.path()) {
                if file.extension().is_none_or(|extension| extension != "jsonl") {
                    continue;
                }
                for text in fs::read_to_string(&file).expect("a file of results").lines() {
                    let line: Line = serde_json::from_str(text).unwrap_or_else(|e| panic!("{}: {e}", file.display()));
                    let [before, now] =
                        [Ok(text.to_owned()), serde_json::to_string(&line)].map(|text| text.expect("a line"));
                    let [before, now] = [before, now].map(|text| serde_json::from_str::<Value>(&text).expect("JSON"));
                    assert_eq!(before, now, "{}", file.display());
                    lines += 1;
                }
            }
        }
        assert!(lines > 0);
    }
}
