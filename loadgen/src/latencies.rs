//! Histograms of recorded times: latencies of requests, delays of events, and the generator's lateness.
//!
//! The unit of a histogram is 0.1 µs, with three significant digits. The maximum is a day, the longest measured time.
//! Results are in milliseconds.

use crate::figures::count;
use hdrhistogram::Histogram;
use serde_json::{Value, json};

/// A histogram of latencies or of other times.
#[derive(Clone, Debug)]
pub(crate) struct Latencies(Histogram<u64>);

/// A row of a percentile distribution.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Row {
    /// Time within which the share `quantile` of the operations ended, in milliseconds.
    pub(crate) ms: f64,
    /// Share of the operations that ended within `ms`, from 0 to 1.
    pub(crate) quantile: f64,
    /// Number of operations that ended within `ms`.
    pub(crate) count: u64,
}

impl Latencies {
    /// Creates an empty histogram.
    pub(crate) fn new() -> Self {
        Self(Histogram::new_with_bounds(1, UNITS_MAX, 3).expect("bounds and digits are as the crate wants"))
    }

    /// Adds a time in nanoseconds.
    pub(crate) fn record(&mut self, ns: u64) {
        self.0.saturating_record((ns / UNIT_NS).clamp(1, UNITS_MAX));
    }

    /// Returns the percentile distribution, with `rows_per_half` rows for each halving of the distance to 100 %.
    pub(crate) fn distribution(&self, rows_per_half: u32) -> impl Iterator<Item = Row> {
        let mut count = 0;
        self.0.iter_quantiles(rows_per_half).map(move |step| {
            count += step.count_since_last_iteration();
            Row { ms: ms(step.value_iterated_to()), quantile: step.quantile_iterated_to(), count }
        })
    }

    /// Returns the mean and the standard deviation of the times, in milliseconds; zeros if no time is recorded.
    pub(crate) fn ms_mean_and_deviation(&self) -> [f64; 2] {
        if self.is_empty() { [0.0; 2] } else { [self.0.mean(), self.0.stdev()].map(|units| units / UNITS_PER_MS) }
    }

    /// Returns the layout of the histogram: the number of buckets, and the number of sub-buckets in each.
    pub(crate) fn buckets(&self) -> (u8, u32) {
        // The sub-buckets must distinguish 2 × 10^digits values. Their number is rounded up to a power of two.
        (self.0.buckets(), (2 * 10_u32.pow(self.0.sigfig().into())).next_power_of_two())
    }

    /// Adds the times of another histogram.
    pub(crate) fn add(&mut self, other: &Self) {
        self.0.add(&other.0).expect("both have the same bounds");
    }

    /// Forgets all times.
    pub(crate) fn clear(&mut self) {
        self.0.reset();
    }

    /// Returns the number of recorded times.
    pub(crate) fn len(&self) -> u64 {
        self.0.len()
    }

    /// Whether no time is recorded.
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns the 99th percentile of the recorded times, in milliseconds.
    pub(crate) fn ms_p99(&self) -> f64 {
        ms(self.0.value_at_quantile(0.99))
    }

    /// Returns p50, p90, p99, p99.9 and the maximum of the recorded times, in milliseconds.
    pub(crate) fn ms(&self) -> [f64; 5] {
        let at = |quantile| self.0.value_at_quantile(quantile);
        [at(0.5), at(0.9), at(0.99), at(0.999), self.0.max()].map(ms)
    }

    /// Returns p50, p90, p99, p99.9 and the maximum of the recorded times in milliseconds, and their number, as JSON.
    pub(crate) fn json(&self) -> Value {
        let [p50, p90, p99, p999, max] = self.ms();
        json!({ "count": self.len(), "ms_p50": p50, "ms_p90": p90, "ms_p99": p99, "ms_p99_9": p999, "ms_max": max })
    }
}

/// Converts a time in the histogram's unit to milliseconds.
fn ms(units: u64) -> f64 {
    count(units) / UNITS_PER_MS
}

const UNIT_NS: u64 = 100;
const UNITS_PER_MS: f64 = 10_000.0;
/// Longest time that can be recorded, in the histogram's unit: a day. A longer time counts as a day.
const UNITS_MAX: u64 = 24 * 3600 * 10_000_000;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_are_reported_in_milliseconds() {
        let mut latencies = Latencies::new();
        assert!(latencies.is_empty());
        for ms in 1..=100 {
            latencies.record(ms * 1_000_000);
        }
        let near = |value: f64, expected: f64| (value - expected).abs() < expected / 500.0;
        let [p50, .., max] = latencies.ms();
        assert!(near(p50, 50.0) && near(latencies.ms_p99(), 99.0) && near(max, 100.0), "{latencies:?}");
        latencies.record(0);
        latencies.record(u64::MAX);
        assert!(near(latencies.ms()[4], 86_400_000.0));
        assert_eq!(latencies.json()["count"], 102);
    }
}
