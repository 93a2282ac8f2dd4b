//! Builds measurements from the results of loads, and the table of all measurements.

use perf::OURS;
use perf::results::{Latency, Measurement};
use perf::row::{Row, rows};
use serde_json::Value;
use std::fmt::Write as _;

/// Builds a measurement from the result of a load, in the form of `loadgen bench`. Its figures are for each event if
/// `unit` is `event`, otherwise for each request.
pub(crate) fn of_bench(group: &str, scenario: &str, subject: &str, unit: &str, told: Told) -> Measurement {
    let Told { json: told, command } = told;
    let is_event = unit == "event";
    let (rate, cpu, latency) = if is_event {
        ("events_per_second", "server_cpu_us_per_event", "event_delay")
    } else {
        ("requests_per_second", "server_cpu_us_per_request", "latency")
    };
    Measurement {
        group: group.to_owned(),
        scenario: scenario.to_owned(),
        subject: subject.to_owned(),
        unit: unit.to_owned(),
        per_second: told[rate].as_f64(),
        cpu_us: told[cpu].as_f64(),
        latency: latency_in(&told[latency]),
        server_cpu_share: told["server_cpu_share"].as_f64(),
        generator_cpu_share: told["generator"]["cpu_share"].as_f64(),
        limit: told["limit"].as_str().unwrap_or("-").to_owned(),
        resident_kib: told["server_memory_kib"]["end"].as_u64(),
        bytes_each: None,
        errors: errors_in(&told),
        command,
        told,
    }
}

/// Returns the latencies in a result of a load.
pub(crate) fn latency_in(told: &Value) -> Latency {
    let ms = |key: &str| told[key].as_f64();
    Latency { ms_p50: ms("ms_p50"), ms_p99: ms("ms_p99"), ms_p99_9: ms("ms_p99_9"), ms_max: ms("ms_max") }
}

/// The result of a load in JSON, and the load's command line.
#[derive(Clone, Debug)]
pub(crate) struct Told {
    pub(crate) json: Value,
    pub(crate) command: String,
}

impl Told {
    /// Parses the standard output of a load; `None` if it is not JSON.
    pub(crate) fn parse(stdout: &[u8], command: String) -> Option<Self> {
        let json = serde_json::from_slice(stdout).ok()?;
        Some(Self { json, command })
    }

    /// Returns descriptions of the first errors and violations, those of the load and those of the load that ran beside
    /// it.
    pub(crate) fn first_words(json: &Value) -> impl Iterator<Item = &str> {
        let lists = [json, &json["beside"]].map(|told| [&told["first_errors"], &told["first_violations"]]);
        lists.into_iter().flatten().filter_map(Value::as_array).flatten().filter_map(Value::as_str)
    }
}

/// Returns the number of errors and violations in the result of a load.
pub(crate) fn errors_in(told: &Value) -> u64 {
    errors_of(told, "") + told["violations"].as_u64().unwrap_or(0)
}

/// Returns the number of errors whose kind begins with `verb`. In results of simulated nodes, the kind of an error
/// begins with the verb, as in `read 500`.
pub(crate) fn errors_of(told: &Value, verb: &str) -> u64 {
    let errors = told["errors"].as_object().into_iter().flatten();
    errors.filter(|(kind, _)| kind.starts_with(verb)).filter_map(|(_, count)| count.as_u64()).sum()
}

/// The measurements of all rounds of a run.
#[derive(Debug, Default)]
pub(crate) struct Table {
    measurements: Vec<Measurement>,
}

impl Table {
    pub(crate) fn push(&mut self, measurement: Measurement) {
        self.measurements.push(measurement);
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.measurements.is_empty()
    }

    /// Returns the number of errors in all measurements.
    pub(crate) fn errors(&self) -> u64 {
        self.measurements.iter().map(|measurement| measurement.errors).sum()
    }

    /// Returns a row for each scenario and server, with medians over the rounds.
    fn rows(&self) -> Vec<Row> {
        rows(&self.measurements.iter().collect::<Vec<_>>())
    }

    /// Compares the processor time for each request of two rows, as medians over the rounds: `ours`, a scenario of this
    /// project's server, and `floor`, a scenario of `subject`. Returns their ratio in words. If different processes
    /// (server or generator) limited the throughput of the two rows, the words name them: a server that is not the
    /// limit is idle at times, and may then need more time for each request.
    pub(crate) fn ratio(&self, ours: &str, (floor, subject): (&str, &str)) -> Option<String> {
        let rows = self.rows();
        let find = |scenario: &str, subject: &str| {
            let row = rows.iter().find(|row| row.scenario == scenario && row.subject == subject)?;
            let [_, cpu_us, _] = row.cpu_us?;
            Some((cpu_us, row.limits.join("/")))
        };
        let (our_us, our_limit) = find(ours, OURS)?;
        let (floor_us, floor_limit) = find(floor, subject).filter(|(us, _)| *us > 0.0)?;
        let limits =
            if our_limit == floor_limit { String::new() } else { format!(" (limits: {our_limit}; {floor_limit})") };
        Some(format!("{ours} in units of {floor}: {:.2}{limits}", our_us / floor_us))
    }

    /// Formats the table of medians over the rounds. Brackets contain minimum and maximum of the rounds. The column
    /// `max` is the maximum of all rounds.
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
        for row in self.rows() {
            let cpu = row.cpu_us.map(|[least, median, most]| format!("{median:.2} [{least:.2}-{most:.2}]"));
            let share =
                |share: Option<f64>| share.map_or_else(|| "-".to_owned(), |share| format!("{:.0}%", share * 100.0));
            _ = writeln!(
                out,
                "{:<30} {:<12} {:>11} {:>22} {:>8} {:>8} {:>8} {:>8} {:>6} {:>5} {:>9} {:>7} {:>8} {:>6}",
                row.scenario,
                row.subject,
                number(row.per_second, 0),
                cpu.map_or_else(|| "-".to_owned(), |text| format!("{text} {}", short(&row.unit))),
                number(row.latency.ms_p50, 3),
                number(row.latency.ms_p99, 3),
                number(row.latency.ms_p99_9, 3),
                number(row.latency.ms_max, 2),
                share(row.server_cpu_share),
                share(row.generator_cpu_share),
                row.limits.join("/"),
                number(row.resident_kib.map(mib), 0),
                number(row.bytes_each, 0),
                row.errors,
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
    use serde_json::json;

    #[test]
    fn the_limit_is_taken_from_the_load_report() {
        let limit = |json: Value| {
            let told = Told { json, command: String::new() };
            of_bench("g", "s", OURS, "request", told).limit
        };
        assert_eq!(limit(json!({ "limit": "generator", "server_cpu_share": 1.0 })), "generator");
        assert_eq!(limit(json!({ "limit": null, "server_cpu_share": 1.0 })), "-");
    }

    #[test]
    fn a_ratio_shows_limits_that_differ() {
        let mut table = Table::default();
        for (scenario, subject, cpu_us, limit) in [
            ("a", OURS, 3.0, "server"),
            ("b", "echo", 2.0, "generator"),
            ("c", OURS, 1.5, "server"),
            ("d", OURS, 0.0, "-"),
        ] {
            let json = json!({ "server_cpu_us_per_request": cpu_us, "limit": limit });
            table.push(of_bench("g", scenario, subject, "request", Told { json, command: String::new() }));
        }
        let ratio = |floor: &str, subject: &str| table.ratio("a", (floor, subject));
        assert_eq!(ratio("b", "echo").as_deref(), Some("a in units of b: 1.50 (limits: server; generator)"));
        assert_eq!(ratio("c", OURS).as_deref(), Some("a in units of c: 2.00"));
        assert_eq!((ratio("d", OURS), ratio("b", "other")), (None, None));
    }

    #[test]
    fn the_greatest_maximum_of_the_rounds_is_shown() {
        let mut table = Table::default();
        for ms_max in [1.0, 77.0, 2.0] {
            let told =
                Told { json: json!({ "latency": { "ms_p50": ms_max, "ms_max": ms_max } }), command: String::new() };
            table.push(of_bench("g", "s", OURS, "request", told));
        }
        let text = table.text();
        assert!(text.contains(" 77.00 ") && text.contains(" 2.000 "), "{text}");
    }

    #[test]
    fn errors_are_counted_by_verb_and_shown_once() {
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
