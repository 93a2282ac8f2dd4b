//! The figures of a second of a run.

use crate::error_kind::ErrorKind;
use crate::operation::Operation;
use std::time::Duration;

/// A second of a run, or less at the end of a phase.
#[derive(Clone, Debug)]
pub(crate) struct Span {
    /// Start of the span, in nanoseconds of the run.
    pub(crate) since: u64,
    pub(crate) until: u64,
    pub(crate) phase: &'static str,
    pub(crate) is_measured: bool,
    /// A sample for each operation seen so far in this phase or in the one before, in the order of operations.
    pub(crate) samples: Vec<Sample>,
    /// The server's share of a core, if its processes were named or `/metrics` has it.
    pub(crate) server_share: Option<f64>,
    /// The generator's share of a core.
    pub(crate) generator_share: f64,
}

/// Figures of one operation in a span.
#[derive(Clone, Debug)]
pub(crate) struct Sample {
    pub(crate) operation: Operation,
    /// Operations that ended in the span. Their due times do not matter.
    pub(crate) count: u64,
    /// Errors by kind.
    pub(crate) errors: Vec<(ErrorKind, u64)>,
    /// p50, p90, p99, p99.9 and the maximum of the latencies, in milliseconds; `None` without any.
    pub(crate) ms: Option<[f64; 5]>,
}

impl Span {
    /// Returns the length in seconds.
    pub(crate) fn seconds(&self) -> f64 {
        Duration::from_nanos(self.until - self.since).as_secs_f64()
    }

    /// Returns the figures of an operation, if there are any.
    pub(crate) fn sample(&self, operation: Operation) -> Option<&Sample> {
        self.samples.iter().find(|sample| sample.operation == operation)
    }
}
