//! A fixed rate of requests: the due time of the next request, and the lane (a connection) that sends it.

/// A fixed rate of requests, which are spread over all lanes in turn.
#[derive(Debug)]
pub(super) struct Pace {
    /// Time between two bursts, in nanoseconds.
    interval_ns: f64,
    /// Number of requests in a burst, which are all due at once.
    burst: u32,
    /// Number of requests of the present burst that are not sent yet.
    left: u32,
    next_due: f64,
    next_lane: usize,
}

impl Pace {
    /// Creates a pace of `rate` requests a second, in bursts of `burst` requests.
    pub(super) fn new(rate: u32, burst: u32) -> Self {
        let interval_ns = 1e9 * f64::from(burst) / f64::from(rate);
        Self { interval_ns, burst, left: burst, next_due: 0.0, next_lane: 0 }
    }

    /// Makes the first burst due at `now`, rounded down to a millisecond.
    pub(super) fn begin(&mut self, now: u64) {
        self.left = self.burst;
        self.next_due = f64::from(u32::try_from(now / 1_000_000).unwrap_or(u32::MAX)) * 1e6;
    }

    /// Returns when the next request is due, in nanoseconds since the start of the run.
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "a time of the run is positive and far below"
    )]
    pub(super) fn due(&self) -> u64 {
        self.next_due as u64
    }

    /// Returns the indexes of the lanes, in the order in which they may take the next request. `len` is the number of
    /// lanes.
    pub(super) fn lanes(&self, len: usize) -> impl Iterator<Item = usize> + use<> {
        (self.next_lane..self.next_lane + len).map(move |lane| lane % len)
    }

    /// Records that this lane sends the request, and advances the due time to the next request.
    pub(super) fn advance(&mut self, lane: usize) {
        self.next_lane = lane + 1;
        self.left -= 1;
        if self.left == 0 {
            self.left = self.burst;
            self.next_due += self.interval_ns;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_are_due_at_the_rate_and_rotate_over_the_lanes() {
        let mut pace = Pace::new(400, 1);
        pace.begin(7_654_321);
        let mut taken = Vec::new();
        while pace.due() < 1_007_000_000 {
            // The second of three lanes has no room.
            let lane = pace.lanes(3).find(|&lane| lane != 1).expect("another lane");
            taken.push((pace.due(), lane));
            pace.advance(lane);
        }
        assert_eq!(taken.len(), 400);
        assert_eq!(taken[..3], [(7_000_000, 0), (9_500_000, 2), (12_000_000, 0)]);
    }

    #[test]
    fn the_requests_of_a_burst_are_due_at_once() {
        let mut pace = Pace::new(400, 4);
        pace.begin(7_000_000);
        let due: Vec<_> = (0..9)
            .map(|request| {
                let due = pace.due();
                pace.advance(request);
                due / 1_000_000
            })
            .collect();
        assert_eq!(due, [7, 7, 7, 7, 17, 17, 17, 17, 27]);
    }
}
