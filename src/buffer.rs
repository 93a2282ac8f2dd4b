//! Byte buffers that idle connections do not hold: [`ByteBuf`] is one connection's input, [`Pool`] lends the memory.

use crate::limits::{BUFFER_BYTES, BUFFERS_POOLED_MAX};

/// Received bytes that have not been consumed.
///
/// ```text
///   data: | consumed | filled | spare |
///         0        start     end    data.len()
/// ```
///
/// Invariant: `start <= end <= data.len()`. After [`ByteBuf::release`] an empty buffer owns no memory, and one that is
/// not owns [`POOLED_BYTES_MAX`] or four times what waits.
#[derive(Debug, Default)]
pub struct ByteBuf {
    data: Vec<u8>,
    start: usize,
    end: usize,
}

impl ByteBuf {
    /// Bytes that wait to be consumed.
    #[must_use]
    pub fn filled(&self) -> &[u8] {
        &self.data[self.start..self.end]
    }

    /// The same, to be decoded in place.
    pub fn filled_mut(&mut self) -> &mut [u8] {
        &mut self.data[self.start..self.end]
    }

    /// Number of bytes that wait.
    #[must_use]
    pub fn len(&self) -> usize {
        self.end - self.start
    }

    /// Whether no byte waits.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.start == self.end
    }

    /// Drops the first `bytes` that wait.
    pub fn consume(&mut self, bytes: usize) {
        assert!(bytes <= self.len(), "consumed more than was received");
        self.start += bytes;
        if self.start == self.end {
            self.start = 0;
            self.end = 0;
        }
    }

    /// Room for at least one byte, taking memory from `pool` or growing by doubling. Never more than [`BUFFER_BYTES`],
    /// so that behind the end of a long message no more comes with it.
    pub fn spare_mut(&mut self, pool: &mut Pool) -> &mut [u8] {
        if self.data.is_empty() {
            self.data = pool.take_filled();
        }
        if self.end == self.data.len() {
            if self.start > 0 && self.start >= self.data.len() / 2 {
                self.data.copy_within(self.start..self.end, 0);
                self.end -= self.start;
                self.start = 0;
            } else {
                let len = self.data.len() * 2;
                self.data.resize(len, 0);
            }
        }
        let end = self.data.len().min(self.end + BUFFER_BYTES);
        &mut self.data[self.end..end]
    }

    /// Counts `bytes` of the spare room as filled.
    pub fn fill(&mut self, bytes: usize) {
        assert!(bytes <= self.data.len() - self.end, "filled more than there was room for");
        self.end += bytes;
    }

    /// Removes `gap` bytes at `at` (from the first that waits), closing up behind them.
    pub fn remove(&mut self, at: usize, gap: usize) {
        let from = self.start + at;
        assert!(from + gap <= self.end, "removed more than was received");
        self.data.copy_within(from + gap..self.end, from);
        self.end -= gap;
    }

    /// Gives the memory back to `pool` if nothing waits. What a long message has left is moved out of its memory, which
    /// would stay for as long as that waits: behind a watch, until the watch ends.
    pub fn release(&mut self, pool: &mut Pool) {
        if self.is_empty() && !self.data.is_empty() {
            pool.give_filled(std::mem::take(&mut self.data));
        } else if self.data.len() > POOLED_BYTES_MAX && self.len() <= self.data.len() / 4 {
            let mut data = pool.take_filled();
            if data.len() < self.len() {
                data.resize(self.len().next_power_of_two(), 0);
            }
            data[..self.len()].copy_from_slice(self.filled());
            *self = Self { data, start: 0, end: self.len() };
        }
    }
}

/// Bytes of the longest buffer that a pool takes back.
const POOLED_BYTES_MAX: usize = 4 * BUFFER_BYTES;

/// Buffers of [`BUFFER_BYTES`] to lend, or of up to [`POOLED_BYTES_MAX`] that have grown. A connection that waits holds
/// none, so a hundred thousand idle ones cost no buffer memory.
#[derive(Debug, Default)]
pub struct Pool {
    /// Empty ones, to be appended to.
    idle: Vec<Vec<u8>>,
    /// Ones of full length, to be read into: to fill one with zeros each time costs more than a request.
    filled: Vec<Vec<u8>>,
}

impl Pool {
    /// An empty buffer.
    pub fn take(&mut self) -> Vec<u8> {
        self.idle.pop().unwrap_or_else(|| Vec::with_capacity(BUFFER_BYTES))
    }

    /// A buffer of [`BUFFER_BYTES`] or more; its content is of no meaning.
    pub fn take_filled(&mut self) -> Vec<u8> {
        self.filled.pop().unwrap_or_else(|| vec![0; BUFFER_BYTES])
    }

    /// Takes a buffer back, unless it has grown or there are enough.
    pub fn give(&mut self, mut buffer: Vec<u8>) {
        buffer.clear();
        if (BUFFER_BYTES..=POOLED_BYTES_MAX).contains(&buffer.capacity()) && self.idle.len() < BUFFERS_POOLED_MAX {
            self.idle.push(buffer);
        }
    }

    /// Takes a buffer back that is to keep its length.
    pub fn give_filled(&mut self, buffer: Vec<u8>) {
        if (BUFFER_BYTES..=POOLED_BYTES_MAX).contains(&buffer.len()) && self.filled.len() < BUFFERS_POOLED_MAX {
            self.filled.push(buffer);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keeps_what_waits_through_growth_and_compaction() {
        let mut pool = Pool::default();
        let mut buf = ByteBuf::default();
        let mut sent: u8 = 0;
        let mut seen: u8 = 0;
        for round in 0..200_usize {
            let spare = buf.spare_mut(&mut pool);
            let take = spare.len().min(1 + round * 97);
            for byte in &mut spare[..take] {
                *byte = sent;
                sent = sent.wrapping_add(1);
            }
            buf.fill(take);
            let eat = if round % 3 == 0 { buf.len() } else { buf.len() / 2 };
            for byte in &buf.filled()[..eat] {
                assert_eq!(*byte, seen);
                seen = seen.wrapping_add(1);
            }
            buf.consume(eat);
        }
    }

    #[test]
    fn removes_a_gap() {
        let mut pool = Pool::default();
        let mut buf = ByteBuf::default();
        buf.spare_mut(&mut pool)[..6].copy_from_slice(b"abcdef");
        buf.fill(6);
        buf.consume(1);
        buf.remove(1, 2);
        assert_eq!(buf.filled(), b"bef");
    }

    #[test]
    fn what_a_long_message_has_left_does_not_keep_its_memory() {
        let mut pool = Pool::default();
        for left in [1, BUFFER_BYTES, BUFFER_BYTES + 1, 400_000, 2_000_000] {
            let mut buf = ByteBuf::default();
            while buf.len() < 3_000_000 {
                let spare = buf.spare_mut(&mut pool);
                let room = spare.len();
                assert!(room <= BUFFER_BYTES, "no more comes with the end of a message");
                spare.fill(7);
                buf.fill(room);
                buf.release(&mut pool);
            }
            buf.consume(buf.len() - left);
            buf.release(&mut pool);
            assert_eq!(buf.filled(), vec![7; left]);
            assert!(buf.data.len() <= POOLED_BYTES_MAX.max(4 * left), "{left}: {}", buf.data.len());
        }
    }

    #[test]
    fn an_empty_buffer_gives_its_memory_back_and_takes_it_again() {
        let mut pool = Pool::default();
        let mut buf = ByteBuf::default();
        buf.spare_mut(&mut pool);
        buf.release(&mut pool);
        assert_eq!(pool.filled.len(), 1);
        assert!(!buf.spare_mut(&mut pool).is_empty());
        assert_eq!(pool.filled.len(), 0);
    }
}
