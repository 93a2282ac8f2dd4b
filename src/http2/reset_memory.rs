//! Remembers the streams that we reset. The peer may have sent frames on such a stream before it read the reset. These
//! frames are no error (RFC 9113 §5.1).

use super::limits::RESET_MEMORY;
use super::stream_id::StreamId;

/// The last [`RESET_MEMORY`] streams that we reset, and the highest id of the forgotten ones. Frames on any closed
/// stream up to this id are ignored. So a few errors of the peer go unnoticed, but no correct frame counts as an
/// error.
#[derive(Debug, Default)]
pub(super) struct ResetMemory {
    recent: [StreamId; RESET_MEMORY],
    /// Index at which the next id is stored.
    next: usize,
    /// Highest stream id that was forgotten.
    forgotten: StreamId,
}

impl ResetMemory {
    pub(super) fn insert(&mut self, id: StreamId) {
        if let Some(place) = self.recent.get_mut(self.next) {
            self.forgotten = self.forgotten.max(*place);
            *place = id;
        }
        self.next = (self.next + 1) % RESET_MEMORY;
    }

    /// Whether frames on `id` must be ignored.
    pub(super) fn covers(&self, id: StreamId) -> bool {
        id <= self.forgotten || self.recent.contains(&id)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn id(value: u32) -> StreamId {
        StreamId::from_wire(value.to_be_bytes())
    }

    #[test]
    fn recent_resets_are_exact_and_older_ones_approximate() {
        let mut memory = ResetMemory::default();
        for value in 1..=32 {
            memory.insert(id(10 * value));
        }
        assert!(memory.covers(id(10)) && memory.covers(id(320)));
        assert!(!memory.covers(id(15)) && !memory.covers(id(5)));
        memory.insert(id(1001));
        assert!(memory.covers(id(10)) && memory.covers(id(1001)) && memory.covers(id(5)));
        assert!(!memory.covers(id(15)));
    }
}
