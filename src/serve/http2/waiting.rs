//! The streams with waiting requests. A "ticket" numbers each change given to the journal. A change is "settled" when
//! the journal reports its outcome.

use crate::api::waiting::{Waiting, WakeUp};
use crate::http2::StreamKey;
use std::collections::VecDeque;

/// Streams with waiting requests. Some may have been reset.
#[derive(Debug)]
pub(super) struct WaitingStreams {
    /// Streams that wait for their own change, with the number of its ticket, in ascending order.
    own: VecDeque<(u64, StreamKey)>,
    /// Streams that wait for an event other than their own change, and streams whose deadline may have passed.
    other: Vec<StreamKey>,
    /// Lower bound of the deadlines of `own`, in ms.
    own_due_ms_min: u64,
}

impl WaitingStreams {
    /// Returns an empty set.
    pub(super) fn new() -> Self {
        Self { own: VecDeque::new(), other: Vec::new(), own_due_ms_min: u64::MAX }
    }

    /// Adds a stream with a waiting request.
    pub(super) fn add(&mut self, key: StreamKey, waiting: &Waiting) {
        match waiting.wake_up() {
            WakeUp::OwnTicket(number) => {
                debug_assert!(self.own.back().is_none_or(|(last, _)| *last < number), "tickets in order");
                self.own.push_back((number, key));
                self.own_due_ms_min = self.own_due_ms_min.min(waiting.due_ms());
            }
            WakeUp::AnyChange | WakeUp::Barrier(_) | WakeUp::OtherTicket(_) | WakeUp::Version(_) => {
                self.add_other(key);
            }
        }
    }

    /// Adds a stream that waits for an event other than its own change.
    pub(super) fn add_other(&mut self, key: StreamKey) {
        self.other.push(key);
    }

    pub(super) fn is_empty(&self) -> bool {
        self.own.is_empty() && self.other.is_empty()
    }

    pub(super) fn clear(&mut self) {
        *self = Self::new();
    }

    /// Whether any stream's own change is settled. `settled` is the number of the last settled ticket.
    pub(super) fn has_settled(&self, settled: u64) -> bool {
        self.own.front().is_some_and(|(number, _)| *number <= settled)
    }

    /// Returns the streams whose own change is settled. `settled` is the number of the last settled ticket.
    pub(super) fn settled(&self, settled: u64) -> impl Iterator<Item = StreamKey> {
        self.own.iter().take_while(move |(number, _)| *number <= settled).map(|(_, key)| *key)
    }

    /// Removes and returns the first stream whose own change is settled. `settled` is the number of the last settled
    /// ticket.
    pub(super) fn pop_settled(&mut self, settled: u64) -> Option<StreamKey> {
        self.own.pop_front_if(|(number, _)| *number <= settled).map(|(_, key)| key)
    }

    /// Removes and returns the streams whose requests the caller must check one by one: those in `other`. If a deadline
    /// in `own` may have passed, returns the streams of `own` too. This is rare: nearly all changes are settled long
    /// before their deadline.
    pub(super) fn take_other(&mut self, now_ms: u64) -> Vec<StreamKey> {
        if now_ms >= self.own_due_ms_min {
            self.other.extend(self.own.drain(..).map(|(_, key)| key));
            self.own_due_ms_min = u64::MAX;
        }
        std::mem::take(&mut self.other)
    }

    /// Puts back the streams that [`WaitingStreams::take_other`] removed and that still wait. No other stream may have
    /// been added to `other` since.
    pub(super) fn put_back(&mut self, keys: Vec<StreamKey>) {
        assert!(self.other.is_empty(), "no request is served while others are resumed");
        self.other = keys;
    }
}
