//! What limited a run: one rule, for both kinds of load and for `perf/run`.

/// What a run came up against, whose time the figures tell more of than of the other's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Limit {
    /// The load generator: what it says of the server is too bad.
    Generator,
    /// The server.
    Server,
}

impl Limit {
    /// Returns the limit; `None` if both had time left. Server and generator each have one working thread, and the
    /// shares are those of a core, as far as they are known. `late_ms_p99` is the delay within which the generator sent
    /// 99 % of the scheduled requests, without those that the server held up.
    #[must_use]
    pub fn of(server_share: Option<f64>, generator_share: Option<f64>, late_ms_p99: Option<f64>) -> Option<Self> {
        let is_busy = |share: Option<f64>| share.is_some_and(|share| share >= BUSY_SHARE);
        // One that is not punctual has measured itself, whatever the server did meanwhile.
        if late_ms_p99.is_some_and(|ms| ms > LATE_MS_MAX) {
            Some(Self::Generator)
        } else if is_busy(server_share) {
            Some(Self::Server)
        } else {
            is_busy(generator_share).then_some(Self::Generator)
        }
    }

    /// As results name it.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Generator => "generator",
            Self::Server => "server",
        }
    }
}

/// A process with this share of a core has no time left.
pub const BUSY_SHARE: f64 = 0.95;
/// Requests that the loop takes up later than this after they were due are late by the generator's fault.
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
