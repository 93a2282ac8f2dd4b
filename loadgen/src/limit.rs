//! The process that limited a run, the server or the generator. Simulated nodes, benches and the benchmark runner
//! `perf/run` use the same rule.

/// The process that limited a run. The figures of the run mainly show this process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Limit {
    /// The load generator. With more load, the server would reach higher rates.
    Generator,
    /// The server.
    Server,
}

impl Limit {
    /// Returns the process that limited the run; `None` if neither process is known as the limit. `server_share` is the
    /// processor time of the server's busiest process, and `generator_share` that of the generator, as a share of one
    /// core; `None` if it was not measured. The rule is for processes with one working thread. A process with several
    /// busy threads can have time left at a share of 1. `late_ms_p99` is the 99th percentile of the generator's own
    /// delay of scheduled requests, in milliseconds.
    #[must_use]
    pub fn of(server_share: Option<f64>, generator_share: Option<f64>, late_ms_p99: Option<f64>) -> Option<Self> {
        let is_busy = |share: Option<f64>| share.is_some_and(|share| share >= BUSY_SHARE);
        // If the generator is late, the latencies measure the generator, even if the server was busy too.
        if late_ms_p99.is_some_and(|ms| ms > LATE_MS_MAX) {
            Some(Self::Generator)
        } else if is_busy(server_share) {
            Some(Self::Server)
        } else {
            is_busy(generator_share).then_some(Self::Generator)
        }
    }

    /// Returns the name of this process in the results.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Generator => "generator",
            Self::Server => "server",
        }
    }
}

/// Lowest share of a core at which a process counts as busy, from 0 to 1.
pub const BUSY_SHARE: f64 = 0.95;
/// Highest 99th percentile of the generator's own delay at which the generator is not the limit, in milliseconds.
pub const LATE_MS_MAX: f64 = 10.0;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_busy_or_late_generator_or_a_busy_server_is_the_limit() {
        for (server, generator, late_ms, limit) in [
            (Some(0.5), Some(0.94), Some(9.9), None),
            (Some(0.5), Some(0.95), None, Some(Limit::Generator)),
            (Some(0.95), Some(1.0), Some(9.9), Some(Limit::Server)),
            (Some(0.95), Some(0.2), Some(10.1), Some(Limit::Generator)),
            (None, Some(0.95), None, Some(Limit::Generator)),
            (Some(0.95), None, None, Some(Limit::Server)),
            (None, None, None, None),
        ] {
            assert_eq!(Limit::of(server, generator, late_ms), limit, "{server:?} {generator:?} {late_ms:?}");
        }
    }
}
