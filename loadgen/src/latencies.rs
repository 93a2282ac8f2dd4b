//! Recorded times: latencies, delays of events, lateness.
//!
//! The unit is a tenth of a microsecond, with three significant digits. The maximum is a day, the longest possible run.
//! Results are in milliseconds.

use crate::figures::count;
use hdrhistogram::Histogram;
use serde_json::{Value, json};

/// A histogram of times.
#[derive(Clone, Debug)]
pub(crate) struct Latencies(Histogram<u64>);

impl Latencies {
    /// Creates an empty histogram.
    pub(crate) fn new() -> Self {
        Self(Histogram::new_with_bounds(1, UNITS_MAX, 3).expect("bounds and digits are as the crate wants"))
    }

    /// Adds a time in nanoseconds.
    pub(crate) fn record(&mut self, ns: u64) {
        self.0.saturating_record((ns / UNIT_NS).clamp(1, UNITS_MAX));
    }

    /// Returns the number of recorded times.
    pub(crate) fn len(&self) -> u64 {
        self.0.len()
    }

    /// Whether no time is recorded.
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns the 99th percentile, in milliseconds.
    pub(crate) fn ms_p99(&self) -> f64 {
        ms(self.0.value_at_quantile(0.99))
    }

    /// Returns p50, p90, p99, p99.9 and the maximum, in milliseconds.
    pub(crate) fn ms(&self) -> [f64; 5] {
        let at = |quantile| self.0.value_at_quantile(quantile);
        [at(0.5), at(0.9), at(0.99), at(0.999), self.0.max()].map(ms)
    }

    /// Returns the same as JSON, with the number of times.
    pub(crate) fn json(&self) -> Value {
        let [p50, p90, p99, p999, max] = self.ms();
        json!({ "count": self.len(), "ms_p50": p50, "ms_p90": p90, "ms_p99": p99, "ms_p99_9": p999, "ms_max": max })
    }
}

/// Converts units to milliseconds.
fn ms(units: u64) -> f64 {
    count(units) / 10_000.0
}

const UNIT_NS: u64 = 100;
/// Longest time recorded exactly: a day.
const UNITS_MAX: u64 = 24 * 3600 * 10_000_000;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_told_in_milliseconds() {
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
