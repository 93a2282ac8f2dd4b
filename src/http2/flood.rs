//! Counts frames that cost this side more than they cost the peer. If there are too many of them, the connection fails.
//!
//! Each kind of frame has a token bucket that refills with time. The code computes the refill only when the bucket is
//! empty, so a count is usually one subtraction.

use super::error::{ConnectionError, Flood};
use super::limits::{self, Allowance};

/// The token buckets of one connection, one for each kind of frame.
#[derive(Debug)]
pub(super) struct FloodGuard {
    answers: Bucket,
    empty_frames: Bucket,
    ignored_frames: Bucket,
    resets: Bucket,
    window_updates: Bucket,
}

#[derive(Debug)]
struct Bucket {
    /// Number of occurrences still allowed before the next refill; at most the burst.
    left: u32,
    /// Time of the last refill, in ms of the caller's clock.
    filled_ms: u64,
    allowance: Allowance,
}

impl FloodGuard {
    pub(super) fn new(now_ms: u64) -> Self {
        let bucket = |allowance: Allowance| Bucket { left: allowance.burst, filled_ms: now_ms, allowance };
        Self {
            answers: bucket(limits::ANSWERS),
            empty_frames: bucket(limits::EMPTY_FRAMES),
            ignored_frames: bucket(limits::IGNORED_FRAMES),
            resets: bucket(limits::RESETS),
            window_updates: bucket(limits::WINDOW_UPDATES),
        }
    }

    /// Counts one frame or reset of the kind `flood`. Fails if the allowance of this kind is used up.
    #[inline]
    pub(super) fn count(&mut self, flood: Flood, now_ms: u64) -> Result<(), ConnectionError> {
        let bucket = self.bucket(flood);
        if bucket.left == 0 {
            bucket.refill(now_ms);
        }
        bucket.left = bucket.left.checked_sub(1).ok_or(ConnectionError::Flood(flood))?;
        Ok(())
    }

    /// Adds `more` to the allowance for `flood`, up to the burst.
    #[inline]
    pub(super) fn allow(&mut self, flood: Flood, more: u32) {
        let bucket = self.bucket(flood);
        bucket.left = bucket.left.saturating_add(more).min(bucket.allowance.burst);
    }

    #[inline]
    fn bucket(&mut self, flood: Flood) -> &mut Bucket {
        match flood {
            Flood::Answers => &mut self.answers,
            Flood::EmptyFrames => &mut self.empty_frames,
            Flood::IgnoredFrames => &mut self.ignored_frames,
            Flood::Resets => &mut self.resets,
            Flood::WindowUpdates => &mut self.window_updates,
        }
    }
}

impl Bucket {
    #[cold]
    fn refill(&mut self, now_ms: u64) {
        let elapsed_ms = now_ms.saturating_sub(self.filled_ms);
        let earned = elapsed_ms.saturating_mul(u64::from(self.allowance.per_second)) / 1000;
        self.left = u32::try_from(earned).unwrap_or(u32::MAX).min(self.allowance.burst);
        if self.left > 0 {
            self.filled_ms = now_ms;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_flood_guard_allows_a_burst_and_then_a_rate() {
        let mut guard = FloodGuard::new(5_000);
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
    fn a_steady_rate_below_the_limit_is_never_a_flood() {
        let mut guard = FloodGuard::new(0);
        for second in 0..100_000 {
            for _ in 0..limits::EMPTY_FRAMES.per_second / 2 {
                assert_eq!(guard.count(Flood::EmptyFrames, second * 1000), Ok(()));
            }
        }
    }

    #[test]
    fn allowances_are_capped_at_the_burst() {
        let mut guard = FloodGuard::new(0);
        guard.allow(Flood::WindowUpdates, u32::MAX);
        for _ in 0..limits::WINDOW_UPDATES.burst {
            guard.count(Flood::WindowUpdates, 0).unwrap();
        }
        assert!(guard.count(Flood::WindowUpdates, 0).is_err());
        guard.allow(Flood::WindowUpdates, 1);
        assert!(guard.count(Flood::WindowUpdates, 0).is_ok());
    }
}
