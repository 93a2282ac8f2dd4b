//! Byte buffers: [`ByteBuf`] stores a connection's received bytes, and [`Pool`] lends memory for buffers. Idle
//! connections own no buffer memory.

use crate::limits::{BUFFER_BYTES, BUFFERS_POOLED_MAX};

/// Received bytes that are not consumed yet: the "waiting bytes".
///
/// ```text
///   data: | consumed | filled | spare |
///         0        start     end    data.len()
/// ```
///
/// Invariant: `start <= end <= data.len()`. The limits after [`ByteBuf::release`]: an empty buffer owns no memory. A
/// buffer with waiting bytes owns at most [`POOLED_BYTES_MAX`] bytes or four times its waiting bytes, whichever is
/// more.
#[derive(Debug, Default)]
pub struct ByteBuf {
    data: Vec<u8>,
    start: usize,
    end: usize,
}

impl ByteBuf {
    /// Returns the waiting bytes.
    #[must_use]
    pub fn filled(&self) -> &[u8] {
        &self.data[self.start..self.end]
    }

    /// Returns the waiting bytes, for decoding in place.
    pub fn filled_mut(&mut self) -> &mut [u8] {
        &mut self.data[self.start..self.end]
    }

    /// Returns the number of waiting bytes.
    #[must_use]
    pub fn len(&self) -> usize {
        self.end - self.start
    }

    /// Whether no byte is waiting.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.start == self.end
    }

    /// Drops the first `bytes` waiting bytes.
    pub fn consume(&mut self, bytes: usize) {
        assert!(bytes <= self.len(), "consumed more than was received");
        self.start += bytes;
        if self.start == self.end {
            self.start = 0;
            self.end = 0;
        }
    }

    /// Returns spare memory for 1 to [`BUFFER_BYTES`] bytes. Takes memory from `pool` or doubles the buffer if needed.
    /// The upper bound keeps one read from going far beyond the end of a long message.
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

    /// Marks the first `bytes` of the spare memory as filled.
    pub fn fill(&mut self, bytes: usize) {
        assert!(bytes <= self.data.len() - self.end, "filled more than there was room for");
        self.end += bytes;
    }

    /// Appends `bytes` to the waiting bytes. Takes memory from `pool` if needed.
    pub fn append(&mut self, mut bytes: &[u8], pool: &mut Pool) {
        while !bytes.is_empty() {
            let spare = self.spare_mut(pool);
            let (now, later) = bytes.split_at(bytes.len().min(spare.len()));
            spare[..now.len()].copy_from_slice(now);
            self.fill(now.len());
            bytes = later;
        }
    }

    /// Removes the `gap` bytes that begin `at` bytes after the first waiting byte. Moves the bytes behind them forward.
    pub fn remove(&mut self, at: usize, gap: usize) {
        let from = self.start + at;
        assert!(from + gap <= self.end, "removed more than was received");
        self.data.copy_within(from + gap..self.end, from);
        self.end -= gap;
    }

    /// Returns the memory to `pool` if no byte waits. If few bytes wait in a large buffer, moves them to a smaller
    /// buffer. The large buffer would otherwise stay as long as these bytes wait, for example until a watch ends.
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

/// Maximum length of a buffer that a pool takes back, in bytes.
const POOLED_BYTES_MAX: usize = 4 * BUFFER_BYTES;

/// A pool of buffers of [`BUFFER_BYTES`] bytes, or up to [`POOLED_BYTES_MAX`] bytes if they have grown. An idle
/// connection owns no buffer, so a hundred thousand idle connections cost no buffer memory.
#[derive(Debug, Default)]
pub struct Pool {
    /// Buffers without content, to append output to.
    idle: Vec<Vec<u8>>,
    /// Buffers with at least [`BUFFER_BYTES`] bytes of old content, which input overwrites. To zero a buffer for each
    /// read would cost more than to serve a request.
    filled: Vec<Vec<u8>>,
}

impl Pool {
    /// Lends an empty buffer.
    pub fn take(&mut self) -> Vec<u8> {
        self.idle.pop().unwrap_or_else(|| Vec::with_capacity(BUFFER_BYTES))
    }

    /// Lends a buffer of [`BUFFER_BYTES`] or more with unspecified content.
    pub fn take_filled(&mut self) -> Vec<u8> {
        self.filled.pop().unwrap_or_else(|| vec![0; BUFFER_BYTES])
    }

    /// Takes a buffer back, unless it is too large or the pool is full.
    pub fn give(&mut self, mut buffer: Vec<u8>) {
        buffer.clear();
        if (BUFFER_BYTES..=POOLED_BYTES_MAX).contains(&buffer.capacity()) && self.idle.len() < BUFFERS_POOLED_MAX {
            self.idle.push(buffer);
        }
    }

    /// Takes a buffer back without changing its length.
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
    fn unread_bytes_survive_growth_and_compaction() {
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
    fn bytes_in_the_middle_can_be_removed() {
        let mut pool = Pool::default();
        let mut buf = ByteBuf::default();
        buf.append(b"abcdef", &mut pool);
        buf.consume(1);
        buf.remove(1, 2);
        assert_eq!(buf.filled(), b"bef");
    }

    #[test]
    fn a_buffer_shrinks_when_most_of_a_long_message_is_consumed() {
        let mut pool = Pool::default();
        for left in [1, BUFFER_BYTES, BUFFER_BYTES + 1, 400_000, 2_000_000] {
            let mut buf = ByteBuf::default();
            while buf.len() < 3_000_000 {
                let spare = buf.spare_mut(&mut pool);
                let room = spare.len();
                assert!(room <= BUFFER_BYTES, "a read does not go far beyond the end of a message");
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
    fn an_empty_buffer_returns_its_memory_to_the_pool() {
        let mut pool = Pool::default();
        let mut buf = ByteBuf::default();
        buf.spare_mut(&mut pool);
        buf.release(&mut pool);
        assert_eq!(pool.filled.len(), 1);
        assert!(!buf.spare_mut(&mut pool).is_empty());
        assert_eq!(pool.filled.len(), 0);
    }
}
