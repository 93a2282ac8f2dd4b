//! A file of results, summed up: one row for each scenario and server, medians over the rounds.

use crate::spread::spread;
use serde_json::Value;

/// A file of results.
#[derive(Debug)]
pub(crate) struct Results {
    pub(crate) rows: Vec<Row>,
    /// What each run said of itself, in their order: a file may hold several, of several commits.
    runs: Vec<Value>,
}

/// One scenario of one server.
#[derive(Debug)]
pub(crate) struct Row {
    pub(crate) group: String,
    pub(crate) scenario: String,
    pub(crate) subject: String,
    pub(crate) unit: String,
    pub(crate) limit: String,
    pub(crate) per_second: Option<f64>,
    /// The least, the median and the most.
    pub(crate) cpu_us: Option<[f64; 3]>,
    /// p50, p99, p99.9 and the maximum; of the maxima the greatest.
    pub(crate) ms: [Option<f64>; 4],
    pub(crate) server_share: Option<f64>,
    pub(crate) generator_share: Option<f64>,
    pub(crate) bytes_each: Option<f64>,
    pub(crate) errors: u64,
}

impl Results {
    /// From the lines of a file.
    pub(crate) fn of(text: &str) -> Result<Self, String> {
        let lines: Result<Vec<Value>, _> =
            text.lines().filter(|line| !line.is_empty()).map(serde_json::from_str).collect();
        let lines = lines.map_err(|e| e.to_string())?;
        let runs = distinct(lines.iter().map(|line| line["context"].clone()));
        if runs.is_empty() {
            return Err("there is nothing in it".to_owned());
        }
        let keys = distinct(lines.iter().map(|line| (string(&line["scenario"]), string(&line["subject"]))));
        let row = |key: &(String, String)| {
            let is_same = |line: &&Value| line["scenario"] == key.0 && line["subject"] == key.1;
            Row::of(&lines.iter().filter(is_same).collect::<Vec<_>>())
        };
        Ok(Self { rows: keys.iter().filter_map(row).collect(), runs })
    }

    /// On what it was measured, and how.
    pub(crate) fn context_words(&self) -> String {
        let machines = distinct(self.runs.iter().map(|run| machine_words(&run["machine"])));
        let together = if self.rows.iter().any(|row| row.scenario.contains(TOGETHER)) {
            format!(", but both on both cores in the rows named `{TOGETHER}`")
        } else {
            String::new()
        };
        format!(
            "{}; the server on one core, the load on another{together}. Medians over the rounds, in brackets the least and \
             the most.",
            machines.join(" and ")
        )
    }

    /// The commands that wrote it, and of which commits.
    pub(crate) fn run_words(&self) -> String {
        let words = self.runs.iter().map(|run| {
            let changed = if run["commit"]["changed"] == true { " with changes" } else { "" };
            let command = ["perf/run", run["run"].as_str().unwrap_or_default()].join(" ");
            format!("`{}` of commit {}{changed}", command.trim_end(), string(&run["commit"]["id"]))
        });
        words.collect::<Vec<_>>().join(" and ")
    }
}

fn machine_words(machine: &Value) -> String {
    let memory = machine["memory_kib"].as_u64().map_or(0, |kib| kib / 1024 / 1024);
    let (cpu, cores, kernel) = (string(&machine["cpu"]), &machine["cores"], string(&machine["kernel"]));
    format!("{cpu}, {cores} cores, {memory} GiB, {kernel}")
}

/// Each value once, in the order in which they come first.
fn distinct<T: PartialEq>(values: impl Iterator<Item = T>) -> Vec<T> {
    values.fold(Vec::new(), |mut all, value| {
        if !all.contains(&value) {
            all.push(value);
        }
        all
    })
}

impl Row {
    fn of(lines: &[&Value]) -> Option<Self> {
        let first = lines.first()?;
        let rounds = |key: &str| spread(lines.iter().map(|line| line[key].as_f64()));
        let middle = |key: &str| rounds(key).map(|[_, median, _]| median);
        let mut limits: Vec<String> = lines.iter().map(|line| string(&line["limit"])).collect();
        limits.sort_unstable();
        limits.dedup();
        Some(Self {
            group: string(&first["group"]),
            scenario: string(&first["scenario"]),
            subject: string(&first["subject"]),
            unit: string(&first["unit"]),
            limit: limits.join(", "),
            per_second: middle("per_second"),
            cpu_us: rounds("cpu_us"),
            ms: [middle("ms_p50"), middle("ms_p99"), middle("ms_p99_9"), rounds("ms_max").map(|[_, _, most]| most)],
            server_share: middle("server_cpu_share"),
            generator_share: middle("generator_cpu_share"),
            bytes_each: middle("bytes_each"),
            errors: lines.iter().filter_map(|line| line["errors"].as_u64()).sum(),
        })
    }

    /// Scenario, and the server if it is another one.
    pub(crate) fn label(&self) -> String {
        if self.subject == super::OURS || self.group == "floor" {
            self.scenario.clone()
        } else {
            format!("{} ({})", self.scenario, self.subject)
        }
    }
}

fn string(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}

/// In the names of scenarios in which no process has a core of its own.
const TOGETHER: &str = "-together";

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn each_run_is_named_with_its_commit_and_the_machine_once() {
        let line = |scenario: &str, run: &str, commit: &str, changed: bool| {
            let machine = json!({ "cpu": "x", "cores": 2, "memory_kib": 3 << 20, "kernel": "Linux 6" });
            let commit = json!({ "id": commit, "changed": changed });
            let context = json!({ "run": run, "commit": commit, "machine": machine });
            json!({ "scenario": scenario, "subject": "this", "context": context }).to_string()
        };
        let of = |lines: &[String]| Results::of(&lines.join("\n")).expect("results");
        let one = of(&[line("a", "", "abc", false), line("a", "", "abc", false)]);
        assert_eq!(one.run_words(), "`perf/run` of commit abc");
        let words = "x, 2 cores, 3 GiB, Linux 6; the server on one core, the load on another. Medians";
        assert!(one.context_words().starts_with(words), "{}", one.context_words());
        let two = of(&[line("a", "--name x", "abc", false), line("b-together", "--name x b", "def", true)]);
        assert_eq!(
            two.run_words(),
            "`perf/run --name x` of commit abc and `perf/run --name x b` of commit def with changes"
        );
        let words = "on another, but both on both cores in the rows named `-together`. Medians";
        assert!(two.context_words().contains(words), "{}", two.context_words());
        assert!(Results::of("").is_err());
    }
}
