//! The summary of a measurement over all rounds: a row in the tables of perf/run and perf/report.

use crate::results::{Latency, Measurement};

/// Summary of all rounds of one scenario on one server.
#[derive(Clone, Debug)]
pub struct Row {
    /// Name of the group that the scenario belongs to: `renew`, `read`, `floor`, ...
    pub group: String,
    /// Name of the scenario, or of one of the measurements of a scenario.
    pub scenario: String,
    /// The measured server: one of [`crate::ALL_OURS`], or the name of another server.
    pub subject: String,
    /// The unit that is counted: `request`, `event`, `Lease`, `list` or `turn` (of the event loop).
    pub unit: String,
    /// Number of rounds that measured the scenario.
    pub rounds: usize,
    /// What limited the rounds, each value once: `-`, `generator`, `server`.
    pub limits: Vec<String>,
    /// Number of units per second, of the unit in `unit`: median of the rounds.
    pub per_second: Option<f64>,
    /// Processor time of the server for each unit, in microseconds: minimum, median and maximum of the rounds.
    pub cpu_us: Option<[f64; 3]>,
    /// Latencies in milliseconds: medians of the rounds. `ms_max` is the maximum of the rounds.
    pub latency: Latency,
    /// Processor time of the server as a share of a core, above 1 if it uses several cores: median of the rounds.
    pub server_cpu_share: Option<f64>,
    /// Processor time of the load generator as a share of a core, from 0 to 1: median of the rounds.
    pub generator_cpu_share: Option<f64>,
    /// Resident memory of the server at the end of a round, in KiB: maximum of the rounds.
    pub resident_kib: Option<u64>,
    /// Memory of the server for each Lease, idle connection or watcher, in bytes: median of the rounds.
    pub bytes_each: Option<f64>,
    /// Number of errors and violations in all rounds.
    pub errors: u64,
}

/// Returns one row for each scenario and server, in the order of their first measurements.
pub fn rows(measurements: &[&Measurement]) -> Vec<Row> {
    let mut all: Vec<Vec<&Measurement>> = Vec::new();
    for &measurement in measurements {
        let Measurement { scenario, subject, .. } = measurement;
        let is_of_it = |first: &Measurement| (&first.scenario, &first.subject) == (scenario, subject);
        match all.iter_mut().find(|rounds| rounds.first().is_some_and(|first| is_of_it(first))) {
            Some(rounds) => rounds.push(measurement),
            None => all.push(vec![measurement]),
        }
    }
    all.iter().filter_map(|rounds| Row::of(rounds)).collect()
}

impl Row {
    /// Summarizes the rounds' measurements of one scenario on one server; `None` if there are none.
    fn of(rounds: &[&Measurement]) -> Option<Self> {
        let first = rounds.first()?;
        let all = |of: fn(&Measurement) -> Option<f64>| spread(rounds.iter().map(|round| of(round)));
        let median = |of| all(of).map(|[_, median, _]| median);
        let mut limits: Vec<String> = rounds.iter().map(|round| round.limit.clone()).collect();
        limits.sort_unstable();
        limits.dedup();
        Some(Self {
            group: first.group.clone(),
            scenario: first.scenario.clone(),
            subject: first.subject.clone(),
            unit: first.unit.clone(),
            rounds: rounds.len(),
            limits,
            per_second: median(|round| round.per_second),
            cpu_us: all(|round| round.cpu_us),
            latency: Latency {
                ms_p50: median(|round| round.latency.ms_p50),
                ms_p99: median(|round| round.latency.ms_p99),
                ms_p99_9: median(|round| round.latency.ms_p99_9),
                ms_max: all(|round| round.latency.ms_max).map(|[_, _, most]| most),
            },
            server_cpu_share: median(|round| round.server_cpu_share),
            generator_cpu_share: median(|round| round.generator_cpu_share),
            resident_kib: rounds.iter().filter_map(|round| round.resident_kib).max(),
            bytes_each: median(|round| round.bytes_each),
            errors: rounds.iter().map(|round| round.errors).sum(),
        })
    }
}

/// Returns minimum, median and maximum of the present values.
fn spread(values: impl Iterator<Item = Option<f64>>) -> Option<[f64; 3]> {
    let mut values: Vec<f64> = values.flatten().collect();
    values.sort_unstable_by(f64::total_cmp);
    let (first, last, upper) = (*values.first()?, *values.last()?, *values.get(values.len() / 2)?);
    let lower = *values.get((values.len() - 1) / 2)?;
    Some([first, f64::midpoint(lower, upper), last])
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn each_scenario_of_each_server_is_one_row() {
        let of = |scenario: &str, subject: &str, per_second: f64| -> Measurement {
            let json = json!({
                "group": "g", "scenario": scenario, "subject": subject, "unit": "request", "per_second": per_second,
                "limit": "-", "errors": 0, "command": "", "told": {},
            });
            serde_json::from_value(json).expect("a measurement")
        };
        let measurements = [of("b", "x", 1.0), of("a", "x", 5.0), of("b", "y", 7.0), of("b", "x", 3.0)];
        let rows = rows(&measurements.iter().collect::<Vec<_>>());
        let told: Vec<_> = rows.iter().map(|row| (&*row.scenario, &*row.subject, row.rounds, row.per_second)).collect();
        assert_eq!(told, [("b", "x", 2, Some(2.0)), ("a", "x", 1, Some(5.0)), ("b", "y", 1, Some(7.0))]);
    }

    #[test]
    fn the_spread_of_rounds_is_minimum_median_and_maximum() {
        let of = |values: &[f64]| spread(values.iter().copied().map(Some));
        assert_eq!(of(&[]), None);
        assert_eq!(of(&[3.0]), Some([3.0, 3.0, 3.0]));
        assert_eq!(of(&[3.0, 1.0]), Some([1.0, 2.0, 3.0]));
        assert_eq!(of(&[9.0, 1.0, 2.0]), Some([1.0, 2.0, 9.0]));
        assert_eq!(spread([None, Some(1.0)].into_iter()), Some([1.0, 1.0, 1.0]));
    }
}
