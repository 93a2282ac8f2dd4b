//! One measurement, as a line of JSON and as a row of the table.

use crate::spread::spread;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::fmt::Write as _;

/// What one scenario measured in one round, of one server.
#[derive(Clone, Debug)]
pub(crate) struct Measurement {
    pub(crate) group: &'static str,
    pub(crate) scenario: String,
    /// Which server.
    pub(crate) subject: String,
    /// What is counted: `request`, `event`, `Lease`, `list`, `turn`.
    pub(crate) unit: &'static str,
    pub(crate) per_second: Option<f64>,
    /// Processor time of the server for each, in microseconds.
    pub(crate) cpu_us: Option<f64>,
    /// Milliseconds: p50, p99, p99.9, the maximum.
    pub(crate) latency_ms: [Option<f64>; 4],
    /// Shares of a core.
    pub(crate) server_share: Option<f64>,
    pub(crate) generator_share: Option<f64>,
    pub(crate) resident_kib: Option<u64>,
    /// What each of what the scenario is about takes of the server's memory: a Lease, an idle connection, a watcher.
    pub(crate) bytes_each: Option<f64>,
    /// Errors and violations.
    pub(crate) errors: u64,
    pub(crate) command: String,
    /// What the load said.
    pub(crate) told: Value,
}

impl Measurement {
    /// From what `loadgen bench` says, per request or per event.
    pub(crate) fn of_bench(group: &'static str, scenario: &str, subject: &str, unit: &'static str, told: Told) -> Self {
        let Told { json: told, command } = told;
        let is_event = unit == "event";
        let (rate, cpu, latency) = if is_event {
            ("events_per_second", "server_cpu_us_per_event", "event_delay")
        } else {
            ("requests_per_second", "server_cpu_us_per_request", "latency")
        };
        Self {
            group,
            scenario: scenario.to_owned(),
            subject: subject.to_owned(),
            unit,
            per_second: told[rate].as_f64(),
            cpu_us: told[cpu].as_f64(),
            latency_ms: ["ms_p50", "ms_p99", "ms_p99_9", "ms_max"].map(|key| told[latency][key].as_f64()),
            server_share: told["server_cpu_share"].as_f64(),
            generator_share: told["generator"]["cpu_share"].as_f64(),
            resident_kib: told["server_memory_kib"]["end"].as_u64(),
            bytes_each: None,
            errors: errors_in(&told),
            command,
            told,
        }
    }

    /// What was in the way of more, as the load says.
    pub(crate) fn limit(&self) -> &str {
        self.told["limit"].as_str().unwrap_or("-")
    }

    /// A line of JSON, without its end.
    pub(crate) fn json_line(&self, context: &Value, round: u32) -> String {
        let [p50, p99, p999, max] = self.latency_ms;
        json!({
            "group": self.group,
            "scenario": self.scenario,
            "subject": self.subject,
            "round": round,
            "unit": self.unit,
            "per_second": self.per_second,
            "cpu_us": self.cpu_us,
            "ms_p50": p50,
            "ms_p99": p99,
            "ms_p99_9": p999,
            "ms_max": max,
            "server_cpu_share": self.server_share,
            "generator_cpu_share": self.generator_share,
            "limit": self.limit(),
            "resident_kib": self.resident_kib,
            "bytes_each": self.bytes_each,
            "errors": self.errors,
            "command": self.command,
            "context": context,
            "told": self.told,
        })
        .to_string()
    }
}

/// What a load printed, and how it was called.
#[derive(Clone, Debug)]
pub(crate) struct Told {
    pub(crate) json: Value,
    pub(crate) command: String,
}

impl Told {
    /// The first of what went wrong, in words, in the load and in what was done beside it.
    pub(crate) fn first_words(json: &Value) -> impl Iterator<Item = &str> {
        let lists = [json, &json["beside"]].map(|told| [&told["first_errors"], &told["first_violations"]]);
        lists.into_iter().flatten().filter_map(Value::as_array).flatten().filter_map(Value::as_str)
    }
}

/// Errors and violations that a load tells of.
pub(crate) fn errors_in(told: &Value) -> u64 {
    errors_of(told, "") + told["violations"].as_u64().unwrap_or(0)
}

/// Errors whose kind begins with this: what simulated nodes tell begins with the verb.
pub(crate) fn errors_of(told: &Value, verb: &str) -> u64 {
    let errors = told["errors"].as_object().into_iter().flatten();
    errors.filter(|(kind, _)| kind.starts_with(verb)).filter_map(|(_, count)| count.as_u64()).sum()
}

/// The measurements of a run, by scenario in the order in which they came first, and server.
#[derive(Debug, Default)]
pub(crate) struct Table {
    rows: Vec<(String, String)>,
    measurements: BTreeMap<(String, String), Vec<Measurement>>,
}

impl Table {
    pub(crate) fn push(&mut self, measurement: Measurement) {
        let key = (measurement.scenario.clone(), measurement.subject.clone());
        if !self.rows.contains(&key) {
            self.rows.push(key.clone());
        }
        self.measurements.entry(key).or_default().push(measurement);
    }

    /// Measurements that had errors.
    pub(crate) fn errors(&self) -> u64 {
        self.measurements.values().flatten().map(|measurement| measurement.errors).sum()
    }

    /// The median over the rounds of what the server used for each.
    fn cpu_us(&self, scenario: &str, subject: &str) -> Option<f64> {
        let key = (scenario.to_owned(), subject.to_owned());
        spread(self.measurements.get(&key)?.iter().map(|m| m.cpu_us)).map(|[_, median, _]| median)
    }

    /// `scenario` of ours in processor time of another server's.
    pub(crate) fn ratio(&self, ours: (&str, &str), theirs: (&str, &str)) -> Option<f64> {
        let theirs = self.cpu_us(theirs.0, theirs.1).filter(|&us| us > 0.0)?;
        Some(self.cpu_us(ours.0, ours.1)? / theirs)
    }

    /// The table for people: medians, in brackets the least and the most of the rounds; of the maxima the greatest.
    pub(crate) fn text(&self) -> String {
        let mut out = String::new();
        _ = writeln!(
            out,
            "{:<30} {:<12} {:>11} {:>22} {:>8} {:>8} {:>8} {:>8} {:>6} {:>5} {:>9} {:>7} {:>8} {:>6}",
            "",
            "server",
            "per second",
            "server us for each",
            "p50 ms",
            "p99 ms",
            "p99.9",
            "max",
            "server",
            "load",
            "limit",
            "MiB",
            "bytes",
            "errors"
        );
        for key in &self.rows {
            let Some(rounds) = self.measurements.get(key) else { continue };
            let Some(first) = rounds.first() else { continue };
            let median =
                |of: fn(&Measurement) -> Option<f64>| spread(rounds.iter().map(of)).map(|[_, median, _]| median);
            let cpu = spread(rounds.iter().map(|m| m.cpu_us));
            let cpu = cpu.map(|[least, median, most]| format!("{median:.2} [{least:.2}-{most:.2}]"));
            let share =
                |share: Option<f64>| share.map_or_else(|| "-".to_owned(), |share| format!("{:.0}%", share * 100.0));
            let mut limits: Vec<&str> = rounds.iter().map(Measurement::limit).collect();
            limits.sort_unstable();
            limits.dedup();
            _ = writeln!(
                out,
                "{:<30} {:<12} {:>11} {:>22} {:>8} {:>8} {:>8} {:>8} {:>6} {:>5} {:>9} {:>7} {:>8} {:>6}",
                first.scenario,
                first.subject,
                number(median(|m| m.per_second), 0),
                cpu.map_or_else(|| "-".to_owned(), |text| format!("{text} {}", short(first.unit))),
                number(median(|m| m.latency_ms[0]), 3),
                number(median(|m| m.latency_ms[1]), 3),
                number(median(|m| m.latency_ms[2]), 3),
                number(spread(rounds.iter().map(|m| m.latency_ms[3])).map(|[_, _, most]| most), 2),
                share(median(|m| m.server_share)),
                share(median(|m| m.generator_share)),
                limits.join("/"),
                number(rounds.iter().filter_map(|m| m.resident_kib).max().map(mib), 0),
                number(median(|m| m.bytes_each), 0),
                rounds.iter().map(|m| m.errors).sum::<u64>(),
            );
        }
        out
    }
}

fn number(value: Option<f64>, digits: usize) -> String {
    value.map_or_else(|| "-".to_owned(), |value| format!("{value:.digits$}"))
}

fn short(unit: &str) -> &str {
    unit.get(..3).unwrap_or(unit)
}

#[expect(clippy::cast_precision_loss, reason = "memory of a machine")]
fn mib(kib: u64) -> f64 {
    kib as f64 / 1024.0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_limit_is_what_the_load_says() {
        let limit = |json: Value| {
            let told = Told { json, command: String::new() };
            Measurement::of_bench("g", "s", "this", "request", told).limit().to_owned()
        };
        assert_eq!(limit(json!({ "limit": "generator", "server_cpu_share": 1.0 })), "generator");
        assert_eq!(limit(json!({ "limit": null, "server_cpu_share": 1.0 })), "-");
    }

    #[test]
    fn of_the_maxima_of_the_rounds_the_greatest_is_shown() {
        let mut table = Table::default();
        for ms_max in [1.0, 77.0, 2.0] {
            let told =
                Told { json: json!({ "latency": { "ms_p50": ms_max, "ms_max": ms_max } }), command: String::new() };
            table.push(Measurement::of_bench("g", "s", "this", "request", told));
        }
        let text = table.text();
        assert!(text.contains(" 77.00 ") && text.contains(" 2.000 "), "{text}");
    }

    #[test]
    fn errors_are_counted_by_verb_and_told_once() {
        let told = json!({
            "errors": { "read 500": 2, "renew reset": 3, "read timeout": 4 },
            "violations": 5,
            "first_errors": ["a"],
            "first_violations": ["b"],
            "beside": { "errors": { "500": 1 }, "first_errors": ["c"] },
        });
        assert_eq!((errors_in(&told), errors_of(&told, "read"), errors_in(&told["beside"])), (14, 6, 1));
        assert_eq!(errors_in(&json!({})), 0);
        assert_eq!(Told::first_words(&told).collect::<Vec<_>>(), ["a", "b", "c"]);
    }
}
