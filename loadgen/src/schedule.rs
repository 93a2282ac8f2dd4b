//! A timing wheel for the timers of all nodes. In a heap of a million timers, an operation would have a cache miss at
//! each of 20 levels. In the wheel it has one cache miss.
//!
//! This module owns the due time of every timer. It knows neither the clock nor the meaning of a timer. Times are
//! nanoseconds since the start of the run.
//!
//! ```text
//!   slots   | . | . | 7 | . | 2 | ...          a slot is 2^18 ns of time, modulo the wheel
//!                     |       |
//!   next              5       -                a list through `next`, in no order
//!   due       due[7], due[5], due[2]           exact, and may be a later round of the wheel
//! ```

/// Timers, identified by their numbers. A timer is either armed with one due time, or not armed.
#[derive(Debug)]
pub(crate) struct Schedule {
    /// First timer of each slot's list, or [`NONE`].
    slots: Vec<u32>,
    /// For each timer, the next timer in the list of the same slot, or [`NONE`].
    next: Vec<u32>,
    /// Due time of each armed timer, in nanoseconds since the start of the run.
    due: Vec<u64>,
    /// Number of the first slot that may have a due timer. Slots are counted from the start of the run, not modulo the
    /// wheel's size.
    cursor: u64,
}

impl Schedule {
    /// Creates a schedule for timers `0..timers_len`, none armed.
    pub(crate) fn new(timers_len: usize) -> Self {
        Self { slots: vec![NONE; SLOTS], next: vec![NONE; timers_len], due: vec![0; timers_len], cursor: 0 }
    }

    /// Arms `timer`, which must not be armed. If `due` is in the past, the timer is due at once.
    pub(crate) fn arm(&mut self, timer: u32, due: u64) {
        let slot = slot_index((due >> SLOT_NS_LOG2).max(self.cursor));
        let at = index(timer);
        self.due[at] = due;
        self.next[at] = self.slots[slot];
        self.slots[slot] = timer;
    }

    /// Disarms the timers that are due at `now`, and appends each to `fired`, with its due time.
    pub(crate) fn fire(&mut self, now: u64, fired: &mut Vec<(u32, u64)>) {
        let last = now >> SLOT_NS_LOG2;
        // One round of the wheel visits every timer. So after a stall longer than one round, the loop begins one round
        // before `last`.
        let first = self.cursor.max((last + 1).saturating_sub(SLOTS as u64));
        for slot in first..=last {
            let slot = slot_index(slot);
            let mut timer = std::mem::replace(&mut self.slots[slot], NONE);
            while timer != NONE {
                let at = index(timer);
                let following = self.next[at];
                if self.due[at] <= now {
                    fired.push((timer, self.due[at]));
                } else {
                    self.next[at] = self.slots[slot];
                    self.slots[slot] = timer;
                }
                timer = following;
            }
        }
        self.cursor = self.cursor.max(last);
    }

    /// Returns the earliest due time of a timer, or `horizon` if no timer is due before it. The search visits every
    /// slot up to `horizon`, so `horizon` must be near.
    pub(crate) fn next_due(&self, horizon: u64) -> u64 {
        for slot in self.cursor..=(horizon >> SLOT_NS_LOG2) {
            let mut earliest = horizon;
            let mut timer = self.slots[slot_index(slot)];
            while timer != NONE {
                earliest = earliest.min(self.due[index(timer)]);
                timer = self.next[index(timer)];
            }
            if earliest < horizon {
                return earliest;
            }
        }
        horizon
    }
}

/// Width of a slot in nanoseconds, as a power of two: 2^18 ns are 262 µs. So a slot's list is short even if 200,000
/// timers a second are due.
const SLOT_NS_LOG2: u32 = 18;
/// Number of slots. One round of the wheel is 17 s, which is longer than a kubelet's renewal period. So with this
/// period, no timer waits for more than one round.
const SLOTS: usize = 1 << 16;
/// Marks the end of a list of timers.
const NONE: u32 = u32::MAX;

fn slot_index(slot: u64) -> usize {
    // The remainder is less than `SLOTS`, so it fits into a `usize`.
    usize::try_from(slot % SLOTS as u64).unwrap_or(0)
}

fn index(timer: u32) -> usize {
    timer as usize
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;

    /// Arms and fires timers at random over several rounds of the wheel. The result must equal that of an ordered map.
    #[test]
    fn the_timer_wheel_fires_like_an_ordered_map() {
        let mut rng = fastrand::Rng::with_seed(1);
        let mut schedule = Schedule::new(500);
        let mut model: BTreeMap<u32, u64> = BTreeMap::new();
        let mut now = 0;
        for timer in 0..500 {
            let due = rng.u64(0..40_000_000_000);
            schedule.arm(timer, due);
            model.insert(timer, due);
        }
        for _ in 0..3_000 {
            let earliest = model.values().copied().min().unwrap_or(u64::MAX);
            let horizon = now + 50_000_000;
            assert_eq!(schedule.next_due(horizon), earliest.min(horizon));
            now += if rng.u8(..) == 0 { 30_000_000_000 } else { rng.u64(0..40_000_000) };
            let mut fired = Vec::new();
            schedule.fire(now, &mut fired);
            fired.sort_unstable();
            let expected: Vec<_> = model.iter().map(|(&t, &d)| (t, d)).filter(|&(_, due)| due <= now).collect();
            assert_eq!(fired, expected);
            for (timer, due) in fired {
                let due = due + rng.u64(0..25_000_000_000);
                schedule.arm(timer, due);
                model.insert(timer, due);
            }
        }
    }
}
