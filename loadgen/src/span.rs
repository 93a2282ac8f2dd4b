//! The figures of one second of a run.

use crate::error_kind::ErrorKind;
use crate::operation::Operation;
use std::time::Duration;

/// A time span of one second in a run. A span is shorter at the end of a phase.
#[derive(Clone, Debug)]
pub(crate) struct Span {
    /// Start and end of the span, in nanoseconds since the start of the run.
    pub(crate) since: u64,
    pub(crate) until: u64,
    pub(crate) phase: &'static str,
    pub(crate) is_measured: bool,
    /// Figures of each operation that has occurred in this phase or in the previous one, in the order of
    /// [`Operation::ALL`].
    pub(crate) samples: Vec<Sample>,
    /// The server's processor time as a share of a core; `None` if neither `--pid` nor `--metrics` makes it known.
    pub(crate) server_share: Option<f64>,
    /// The generator's processor time as a share of a core.
    pub(crate) generator_share: f64,
}

/// Figures of one operation in a span.
#[derive(Clone, Debug)]
pub(crate) struct Sample {
    pub(crate) operation: Operation,
    /// Number of operations that succeeded in the span, whenever they were due.
    pub(crate) count: u64,
    /// Number of errors of the operation, by kind.
    pub(crate) errors: Vec<(ErrorKind, u64)>,
    /// p50, p90, p99, p99.9 and the maximum of the latencies in the span, in milliseconds; `None` without latencies.
    pub(crate) ms: Option<[f64; 5]>,
}

impl Span {
    /// Returns the length of the span, in seconds.
    pub(crate) fn seconds(&self) -> f64 {
        Duration::from_nanos(self.until - self.since).as_secs_f64()
    }

    /// Returns the figures of an operation in this span; `None` if the operation has no sample.
    pub(crate) fn sample(&self, operation: Operation) -> Option<&Sample> {
        self.samples.iter().find(|sample| sample.operation == operation)
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// Returns a second of the measured time. `since` is in nanoseconds.
    pub(crate) fn second(since: u64, samples: Vec<Sample>) -> Span {
        Span {
            since,
            until: since + 1_000_000_000,
            phase: "measuring",
            is_measured: true,
            samples,
            server_share: None,
            generator_share: 0.5,
        }
    }
}
