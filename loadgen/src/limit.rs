//! The process that limits a run: one rule for simulated nodes, for benches and for `perf/run`.

/// The process that limited a run. The figures of the run mainly show this process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Limit {
    /// The load generator. Under more load the server would reach better figures.
    Generator,
    /// The server.
    Server,
}

impl Limit {
    /// Returns the limit; `None` if both processes had time left. Server and generator each have one working thread. A
    /// share is a share of a core; `None` if it was not measured. `late_ms_p99` is the 99th percentile of the
    /// generator's own delay of scheduled requests, in milliseconds.
    #[must_use]
    pub fn of(server_share: Option<f64>, generator_share: Option<f64>, late_ms_p99: Option<f64>) -> Option<Self> {
        let is_busy = |share: Option<f64>| share.is_some_and(|share| share >= BUSY_SHARE);
        // A late generator measures itself, even if the server was busy too.
        if late_ms_p99.is_some_and(|ms| ms > LATE_MS_MAX) {
            Some(Self::Generator)
        } else if is_busy(server_share) {
            Some(Self::Server)
        } else {
            is_busy(generator_share).then_some(Self::Generator)
        }
    }

    /// Returns the name in the results.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Generator => "generator",
            Self::Server => "server",
        }
    }
}

/// Share of a core above which a process counts as busy.
pub const BUSY_SHARE: f64 = 0.95;
/// Maximum 99th percentile of the delay at which the generator is not the limit, in milliseconds.
pub const LATE_MS_MAX: f64 = 10.0;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_is_late_or_has_no_time_left_was_the_limit() {
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
