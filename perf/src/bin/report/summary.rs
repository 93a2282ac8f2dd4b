//! A file of results, summed up: one row for each scenario and server, medians over the rounds.

use perf::OURS;
use perf::results::{Context, Line, Machine, Measurement};
use perf::row::{Row, rows};

/// What a file of results comes to.
#[derive(Debug)]
pub(crate) struct Summary {
    pub(crate) rows: Vec<Row>,
    /// What each run said of itself, in their order: a file may hold several, of several commits.
    runs: Vec<Context>,
}

impl Summary {
    /// From the lines of a file.
    pub(crate) fn of(text: &str) -> Result<Self, String> {
        let lines = text.lines().zip(1..).filter(|(line, _)| !line.is_empty());
        let lines = lines.map(|(line, number)| serde_json::from_str(line).map_err(|e| format!("line {number}: {e}")));
        let lines: Vec<Line> = lines.collect::<Result<_, String>>()?;
        let runs = distinct(lines.iter().map(|line| line.context.clone()));
        if runs.is_empty() {
            return Err("there is nothing in it".to_owned());
        }
        if runs.iter().any(|run| run.quick) {
            return Err("it holds figures of --quick, which say nothing".to_owned());
        }
        let measurements: Vec<&Measurement> = lines.iter().map(|line| &line.measurement).collect();
        Ok(Self { rows: rows(&measurements), runs })
    }

    /// On what it was measured, and how.
    pub(crate) fn context_words(&self) -> String {
        let machines = distinct(self.runs.iter().map(|run| machine_words(&run.machine)));
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
            let changed = if run.commit.changed { " with changes" } else { "" };
            let command = format!("perf/run {}", run.run);
            format!("`{}` of commit {}{changed}", command.trim_end(), run.commit.id.as_deref().unwrap_or("unknown"))
        });
        words.collect::<Vec<_>>().join(" and ")
    }
}

fn machine_words(Machine { cpu, cores, memory_kib, kernel, .. }: &Machine) -> String {
    let memory = memory_kib.map_or(0, |kib| kib / 1024 / 1024);
    format!("{}, {cores} cores, {memory} GiB, {kernel}", cpu.as_deref().unwrap_or("unknown processor"))
}

/// When the run of the last line began, in seconds since 1970 UTC; none if there is no line, or that is of `--quick`.
pub(crate) fn began_at(text: &str) -> Result<Option<i64>, serde_json::Error> {
    let last = text.lines().rfind(|line| !line.trim().is_empty());
    let line: Option<Line> = last.map(serde_json::from_str).transpose()?;
    Ok(line.filter(|line| !line.context.quick).map(|line| line.context.at))
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

/// Scenario, and the server if it is another one.
pub(crate) fn label(row: &Row) -> String {
    if row.subject == OURS || row.group == "floor" {
        row.scenario.clone()
    } else {
        format!("{} ({})", row.scenario, row.subject)
    }
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
            let machine =
                json!({ "cpu": "x", "cores": 2, "memory_kib": 3 << 20, "kernel": "Linux 6", "arch": "x86_64" });
            let commit = json!({ "id": commit, "changed": changed });
            let context = json!({ "at": 1, "run": run, "commit": commit, "machine": machine, "quick": false });
            json!({
                "round": 0, "context": context, "group": "g", "scenario": scenario, "subject": OURS, "unit": "request",
                "limit": "-", "errors": 0, "command": "", "told": {},
            })
            .to_string()
        };
        let of = |lines: &[String]| Summary::of(&lines.join("\n")).expect("results");
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
        assert!(Summary::of("").is_err());
        let quick = line("a", "--quick --name x", "abc", false).replace(r#""quick":false"#, r#""quick":true"#);
        assert!(Summary::of(&[line("a", "", "abc", false), quick].join("\n")).is_err());
    }
}
