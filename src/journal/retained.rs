//! The number and size of the entries in the store, counted in segments. A segment has consecutive entries, limited in
//! number and size. A truncation (the deletion of the oldest entries) deletes one segment, so its work is limited.

use crate::engine::Position;
use std::collections::VecDeque;

/// A number of entries, and the size of these entries in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Amount {
    pub(super) entries: u64,
    pub(super) bytes: u64,
}

impl Amount {
    pub(super) fn add(&mut self, bytes: usize) {
        self.entries += 1;
        self.bytes += bytes as u64;
    }
}

/// The number and size of the entries in the store, by segment.
#[derive(Debug)]
pub(super) struct Retained {
    segments: VecDeque<Segment>,
    total: Amount,
    segment_max: Amount,
}

/// A segment: consecutive entries that one truncation deletes together.
#[derive(Debug)]
struct Segment {
    /// Position of the segment's last entry.
    last: Position,
    amount: Amount,
}

impl Retained {
    /// Creates a count of no entries. A segment is complete as soon as it reaches either limit in `segment_max`.
    pub(super) fn new(segment_max: Amount) -> Self {
        Self { segments: VecDeque::new(), total: Amount::default(), segment_max }
    }

    pub(super) fn total(&self) -> Amount {
        self.total
    }

    /// Counts the next entry of the store.
    pub(super) fn push(&mut self, position: Position, bytes: usize) {
        self.total.add(bytes);
        match self.segments.back_mut() {
            Some(back)
                if back.amount.entries < self.segment_max.entries && back.amount.bytes < self.segment_max.bytes =>
            {
                assert!(position > back.last, "entries out of order");
                back.last = position;
                back.amount.add(bytes);
            }
            _ => {
                let mut amount = Amount::default();
                amount.add(bytes);
                self.segments.push_back(Segment { last: position, amount });
            }
        }
    }

    /// Returns the position up to which the next truncation deletes entries; `None` if no segment can be deleted. All
    /// entries up to `unwanted` are unneeded. The last segment stays, so that the engine knows the last position.
    pub(super) fn truncation(&self, unwanted: Position) -> Option<Position> {
        let first = self.segments.front()?;
        (first.last <= unwanted && self.segments.len() > 1).then_some(first.last)
    }

    /// Returns the number and size of the entries after a position, rounded up to whole segments.
    pub(super) fn since(&self, position: Position) -> Amount {
        let mut since = Amount::default();
        for segment in self.segments.iter().filter(|segment| segment.last > position) {
            since.entries += segment.amount.entries;
            since.bytes += segment.amount.bytes;
        }
        since
    }

    /// Stops counting the entries that another writer deletes: all segments for which [`Retained::truncation`] would
    /// return a position.
    pub(super) fn forget(&mut self, unwanted: Position) {
        while let Some(up_to) = self.truncation(unwanted) {
            self.on_truncated(up_to);
        }
    }

    /// Stops counting the segments up to `up_to`, which were deleted.
    pub(super) fn on_truncated(&mut self, up_to: Position) {
        while let Some(segment) = self.segments.pop_front_if(|segment| segment.last <= up_to) {
            self.total.entries -= segment.amount.entries;
            self.total.bytes -= segment.amount.bytes;
        }
        assert!(!self.segments.is_empty(), "the last entry was deleted");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_segment_is_limited_in_number_and_size() {
        let mut retained = Retained::new(Amount { entries: 3, bytes: 100 });
        for (position, bytes) in [10, 10, 10, 60, 60, 500, 10].into_iter().enumerate() {
            retained.push(Position(position as u64 + 1), bytes);
        }
        let mut ends = Vec::new();
        while let Some(up_to) = retained.truncation(Position(7)) {
            ends.push(up_to.0);
            retained.on_truncated(up_to);
        }
        assert_eq!(ends, [3, 5, 6], "three entries, two of 60 bytes, and a large one; the last segment stays");
        assert_eq!(retained.total(), Amount { entries: 1, bytes: 10 });
    }
}
