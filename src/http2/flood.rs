//! Counts frames that cost this side more than they cost the peer. If there are too many of them, the connection fails.
//!
//! Each kind of frame has a token bucket that refills with time. A bucket stores the time at which it is full again,
//! and not its level. So a refill needs no code.

use super::error::{ConnectionError, Flood};
use super::limits::{self, Allowance};

/// The token buckets of one connection, one for each kind of frame.
#[derive(Debug)]
pub(super) struct FloodGuard {
    /// For each [`Flood`], the time at which its bucket is full again if nothing more is counted. The time is in units
    /// of [`Allowance::time`]. A past time means that the bucket is full.
    full_at: [u64; Flood::WindowUpdates as usize + 1],
}

impl FloodGuard {
    /// Creates full buckets.
    pub(super) fn new() -> Self {
        Self { full_at: Default::default() }
    }

    /// Counts one frame or reset of the kind `flood`. Fails if the allowance of this kind is used up.
    #[inline]
    pub(super) fn count(&mut self, flood: Flood, now_ms: u64) -> Result<(), ConnectionError> {
        let allowance = allowance_of(flood);
        let now = allowance.time(now_ms);
        let full_at = self.full_at[flood as usize].max(now).saturating_add(TOKEN_TIME);
        if full_at > now.saturating_add(time_of(allowance.burst)) {
            return Err(ConnectionError::Flood(flood));
        }
        self.full_at[flood as usize] = full_at;
        Ok(())
    }

    /// Adds `more` to the allowance for `flood`, up to the burst.
    #[inline]
    pub(super) fn allow(&mut self, flood: Flood, more: u32) {
        let full_at = &mut self.full_at[flood as usize];
        *full_at = full_at.saturating_sub(time_of(more));
    }
}

#[inline]
fn allowance_of(flood: Flood) -> Allowance {
    match flood {
        Flood::Answers => limits::ANSWERS,
        Flood::EmptyFrames => limits::EMPTY_FRAMES,
        Flood::IgnoredFrames => limits::IGNORED_FRAMES,
        Flood::Resets => limits::RESETS,
        Flood::WindowUpdates => limits::WINDOW_UPDATES,
    }
}

impl Allowance {
    /// Converts a time in ms to a number of units. One unit is the `per_second`th part of a millisecond.
    fn time(self, now_ms: u64) -> u64 {
        now_ms.saturating_mul(u64::from(self.per_second))
    }
}

/// Time in which a bucket earns one token, in units of [`Allowance::time`]. One second has `per_second` times as many
/// units, so it earns `per_second` tokens.
const TOKEN_TIME: u64 = 1000;

/// Returns the time in which a bucket earns this number of tokens, in units of [`Allowance::time`].
fn time_of(tokens: u32) -> u64 {
    u64::from(tokens) * TOKEN_TIME
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_flood_guard_allows_a_burst_and_then_a_rate() {
        let mut guard = FloodGuard::new();
        for _ in 0..limits::ANSWERS.burst {
            assert_eq!(guard.count(Flood::Answers, 5_000), Ok(()));
        }
        assert_eq!(guard.count(Flood::Answers, 5_000), Err(ConnectionError::Flood(Flood::Answers)));
        assert_eq!(
            guard.count(Flood::Answers, 4_000),
            Err(ConnectionError::Flood(Flood::Answers)),
            "a clock that went back"
        );
        for _ in 0..limits::ANSWERS.per_second {
            assert_eq!(guard.count(Flood::Answers, 6_000), Ok(()));
        }
        assert!(guard.count(Flood::Answers, 6_000).is_err());
        assert_eq!(guard.count(Flood::Resets, 5_000), Ok(()), "each kind for itself");
    }

    #[test]
    fn after_a_pause_one_burst_is_allowed_at_once() {
        let mut guard = FloodGuard::new();
        for pause_ms in [60_000, 120_000] {
            for _ in 0..limits::RESETS.burst {
                assert_eq!(guard.count(Flood::Resets, pause_ms), Ok(()));
            }
            assert!(guard.count(Flood::Resets, pause_ms).is_err());
        }
    }

    #[test]
    fn the_steady_rate_of_the_limit_is_never_a_flood() {
        let mut guard = FloodGuard::new();
        for second in 0..100_000 {
            for n in 0..u64::from(limits::EMPTY_FRAMES.per_second) {
                let now_ms = second * 1000 + n * 1000 / u64::from(limits::EMPTY_FRAMES.per_second);
                assert_eq!(guard.count(Flood::EmptyFrames, now_ms), Ok(()));
            }
        }
    }

    #[test]
    fn allowances_are_capped_at_the_burst() {
        let mut guard = FloodGuard::new();
        guard.allow(Flood::WindowUpdates, u32::MAX);
        for _ in 0..limits::WINDOW_UPDATES.burst {
            guard.count(Flood::WindowUpdates, 0).unwrap();
        }
        assert!(guard.count(Flood::WindowUpdates, 0).is_err());
        guard.allow(Flood::WindowUpdates, 1);
        assert!(guard.count(Flood::WindowUpdates, 0).is_ok());
    }
}
