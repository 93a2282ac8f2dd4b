//! A file of results, summed up: one row for each scenario and server, medians over the rounds.

use serde_json::Value;

/// A file of results.
#[derive(Debug)]
pub(crate) struct Results {
    pub(crate) rows: Vec<Row>,
    /// The arguments of the run that was first.
    pub(crate) run: String,
    context: Value,
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
        let context = lines.first().ok_or("there is nothing in it")?["context"].clone();
        let mut keys: Vec<(String, String)> = Vec::new();
        for line in &lines {
            let key = (string(&line["scenario"]), string(&line["subject"]));
            if !keys.contains(&key) {
                keys.push(key);
            }
        }
        let row = |key: &(String, String)| {
            let is_same = |line: &&Value| line["scenario"] == key.0 && line["subject"] == key.1;
            Row::of(&lines.iter().filter(is_same).collect::<Vec<_>>())
        };
        Ok(Self { rows: keys.iter().filter_map(row).collect(), run: string(&context["run"]), context })
    }

    /// On what it was measured.
    pub(crate) fn context_words(&self) -> String {
        let (commit, machine) = (&self.context["commit"], &self.context["machine"]);
        let changed = if commit["changed"] == true { " with changes" } else { "" };
        let memory = machine["memory_kib"].as_u64().map_or(0, |kib| kib / 1024 / 1024);
        format!(
            "Commit {}{changed}, {}, {} cores, {memory} GiB, {}; the server on one core, the load on another. Medians over the \
             rounds, in brackets the least and the most.",
            string(&commit["id"]),
            string(&machine["cpu"]),
            machine["cores"],
            string(&machine["kernel"])
        )
    }
}

impl Row {
    fn of(lines: &[&Value]) -> Option<Self> {
        let first = lines.first()?;
        let middle = |key: &str| spread(lines, key).map(|[_, median, _]| median);
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
            cpu_us: spread(lines, "cpu_us"),
            ms: [
                middle("ms_p50"),
                middle("ms_p99"),
                middle("ms_p99_9"),
                spread(lines, "ms_max").map(|[_, _, most]| most),
            ],
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

/// The least, the median and the most of what is there.
fn spread(lines: &[&Value], key: &str) -> Option<[f64; 3]> {
    let mut values: Vec<f64> = lines.iter().filter_map(|line| line[key].as_f64()).collect();
    values.sort_unstable_by(f64::total_cmp);
    let (first, last, upper) = (*values.first()?, *values.last()?, *values.get(values.len() / 2)?);
    let lower = *values.get((values.len() - 1) / 2)?;
    Some([first, f64::midpoint(lower, upper), last])
}
