//! The summary of a results file: one row for each scenario and server, with medians over the rounds.

use perf::OURS;
use perf::results::{Context, Line, Machine, Measurement};
use perf::row::{Row, rows};
use std::collections::HashMap;

/// Summary of a results file.
#[derive(Debug)]
pub(crate) struct Summary {
    pub(crate) rows: Vec<Row>,
    /// Context of each run in the file, in the order of the file. A file may contain runs of different scenarios.
    runs: Vec<Context>,
}

impl Summary {
    /// Summarizes the lines of a results file.
    pub(crate) fn of(text: &str) -> Result<Self, String> {
        let lines = text.lines().zip(1..).filter(|(line, _)| !line.is_empty());
        let lines = lines.map(|(line, number)| serde_json::from_str(line).map_err(|e| format!("line {number}: {e}")));
        let lines: Vec<Line> = lines.collect::<Result<_, String>>()?;
        let runs = distinct(lines.iter().map(|line| line.context.clone()));
        if runs.is_empty() {
            return Err("the file has no results".to_owned());
        }
        if runs.iter().any(|run| run.quick) {
            return Err("the file has figures of --quick, which mean nothing".to_owned());
        }
        check_one_tree(&runs)?;
        check_rounds(&lines)?;
        let measurements: Vec<&Measurement> = lines.iter().map(|line| &line.measurement).collect();
        Ok(Self { rows: rows(&measurements), runs })
    }

    /// Describes the machine of the runs, the cores of server and load, and the figures in the table.
    pub(crate) fn context_words(&self) -> String {
        let machine = self.runs.first().map(|run| machine_words(&run.machine)).unwrap_or_default();
        let apart = match self.runs.first().and_then(|run| run.cores) {
            Some([server, load]) if server == load => "server and load on one core",
            _ => "the server on one core, the load on another",
        };
        let together = if self.rows.iter().any(|row| row.scenario.contains(TOGETHER)) {
            format!(", but both share both cores in the rows named `{TOGETHER}`")
        } else {
            String::new()
        };
        format!("{machine}; {apart}{together}. Medians over the rounds, with minimum and maximum in brackets.")
    }

    /// Lists the commands of the runs, each with the commit of its work tree.
    pub(crate) fn run_words(&self) -> String {
        let words = self.runs.iter().map(|run| {
            let changed = if run.commit.changed == Some(true) { " with changes" } else { "" };
            let command = format!("perf/run {}", run.run);
            format!("`{}` of commit {}{changed}", command.trim_end(), run.commit.id.as_deref().unwrap_or("unknown"))
        });
        words.collect::<Vec<_>>().join(" and ")
    }
}

/// Checks that all runs have the same commit, machine and cores. Otherwise one table would mix figures of different
/// origins.
fn check_one_tree(runs: &[Context]) -> Result<(), String> {
    let Some((first, others)) = runs.split_first() else { return Ok(()) };
    let is_alike =
        |run: &&Context| run.commit == first.commit && run.machine == first.machine && run.cores == first.cores;
    match others.iter().find(|other| !is_alike(other)) {
        Some(other) => {
            Err(format!("the runs {:?} and {:?} are of different commits, machines or cores", first.run, other.run))
        }
        None => Ok(()),
    }
}

/// Checks that all rounds of one scenario on one server belong to the same run, and that no round occurs twice.
/// Otherwise the median would cover rounds of different runs.
fn check_rounds(lines: &[Line]) -> Result<(), String> {
    let mut seen: HashMap<(&str, &str), Vec<&Line>> = HashMap::new();
    for line in lines {
        let Measurement { scenario, subject, .. } = &line.measurement;
        let rounds = seen.entry((scenario, subject)).or_default();
        if rounds.iter().any(|other| other.round == line.round || other.context != line.context) {
            return Err(format!("{scenario} of {subject} is of more than one run"));
        }
        rounds.push(line);
    }
    Ok(())
}

fn machine_words(Machine { cpu, cores, memory_kib, kernel, .. }: &Machine) -> String {
    let memory = memory_kib.map_or(0, |kib| kib / 1024 / 1024);
    format!("{}, {cores} cores, {memory} GiB, {kernel}", cpu.as_deref().unwrap_or("unknown processor"))
}

/// Returns the distinct values, in the order of their first occurrence.
fn distinct<T: PartialEq>(values: impl Iterator<Item = T>) -> Vec<T> {
    values.fold(Vec::new(), |mut all, value| {
        if !all.contains(&value) {
            all.push(value);
        }
        all
    })
}

/// Returns the label of a row: the name of the scenario. The name of a server other than [`OURS`] is added, except in
/// the group `floor`, whose scenarios have the server in their names.
pub(crate) fn label(row: &Row) -> String {
    if row.subject == OURS || row.group == "floor" {
        row.scenario.clone()
    } else {
        format!("{} ({})", row.scenario, row.subject)
    }
}

/// Part of the names of scenarios in which server and load share the cores.
const TOGETHER: &str = "-together";

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn line(scenario: &str, round: u32, run: &str, commit: &str) -> String {
        let machine = json!({ "cpu": "x", "cores": 2, "memory_kib": 3 << 20, "kernel": "Linux 6", "arch": "x86_64" });
        let commit = json!({ "id": commit, "changed": commit == "def" });
        let context = json!({ "at": 1, "run": run, "commit": commit, "machine": machine, "quick": false });
        json!({
            "round": round, "context": context, "group": "g", "scenario": scenario, "subject": OURS, "unit": "request",
            "limit": "-", "errors": 0, "command": "", "told": {},
        })
        .to_string()
    }

    fn of(lines: &[String]) -> Result<Summary, String> {
        Summary::of(&lines.join("\n"))
    }

    #[test]
    fn each_run_is_named_with_its_commit_and_the_machine_once() {
        let one = of(&[line("a", 0, "", "abc"), line("a", 1, "", "abc")]).expect("results");
        assert_eq!(one.run_words(), "`perf/run` of commit abc");
        let words = "x, 2 cores, 3 GiB, Linux 6; the server on one core, the load on another. Medians";
        assert!(one.context_words().starts_with(words), "{}", one.context_words());
        let two = of(&[line("a", 0, "--name x", "def"), line("b-together", 0, "--name x b", "def")]).expect("results");
        assert_eq!(
            two.run_words(),
            "`perf/run --name x` of commit def with changes and `perf/run --name x b` of commit def with changes"
        );
        let words = "on another, but both share both cores in the rows named `-together`. Medians";
        assert!(two.context_words().contains(words), "{}", two.context_words());
    }

    #[test]
    fn empty_results_and_quick_runs_are_refused() {
        assert!(of(&[]).is_err());
        let quick = line("a", 0, "--quick --name x", "abc").replace(r#""quick":false"#, r#""quick":true"#);
        assert!(of(&[line("a", 0, "", "abc"), quick]).is_err());
    }

    #[test]
    fn results_of_several_commits_or_mixed_runs_are_refused() {
        for (lines, words) in [
            ([line("a", 0, "x", "abc"), line("b", 0, "y", "def")], "different commits"),
            ([line("a", 0, "x", "abc"), line("a", 1, "y", "abc")], "a of this is of more than one run"),
            ([line("a", 0, "x", "abc"), line("a", 0, "x", "abc")], "a of this is of more than one run"),
        ] {
            let told = of(&lines).expect_err(words);
            assert!(told.contains(words), "{told}");
        }
    }
}
