//! A second of a run, summed up.

use crate::error_kind::ErrorKind;
use crate::operation::Operation;
use std::time::Duration;

/// A second of a run, or less at the end of a phase.
#[derive(Clone, Debug)]
pub(crate) struct Span {
    /// Nanoseconds of the run.
    pub(crate) since: u64,
    pub(crate) until: u64,
    pub(crate) phase: &'static str,
    pub(crate) is_measured: bool,
    /// One for each operation seen so far in this phase or in the one before, in their order.
    pub(crate) samples: Vec<Sample>,
    /// The server's share of a core, if its processes were named, or if it has told.
    pub(crate) server_share: Option<f64>,
    /// The generator's share of a core.
    pub(crate) generator_share: f64,
}

/// What one operation came to in a span.
#[derive(Clone, Debug)]
pub(crate) struct Sample {
    pub(crate) operation: Operation,
    /// Operations that were over in the span, whenever due.
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

    /// Returns what an operation came to.
    pub(crate) fn sample(&self, operation: Operation) -> Option<&Sample> {
        self.samples.iter().find(|sample| sample.operation == operation)
    }
}
