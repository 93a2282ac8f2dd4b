//! Stream identifiers (RFC 9113 §5.1.1).

use std::fmt;

/// A stream identifier of 31 bits. 0 is the connection as a whole. The client opens streams with odd ids.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct StreamId(u32);

impl StreamId {
    /// The connection as a whole.
    pub const CONNECTION: Self = Self(0);
    /// The client's first stream. An upgrade from HTTP/1.1 also creates this stream (RFC 9113 §3.1 with RFC 7540
    /// §3.2).
    pub const FIRST: Self = Self(1);
    /// The highest possible stream id.
    pub const MAX: Self = Self(MASK);

    /// Decodes four octets of a frame; the reserved bit is ignored (RFC 9113 §4.1).
    #[must_use]
    pub const fn from_wire(octets: [u8; 4]) -> Self {
        Self(u32::from_be_bytes(octets) & MASK)
    }

    /// Encodes the id for a frame.
    #[must_use]
    pub const fn to_wire(self) -> [u8; 4] {
        self.0.to_be_bytes()
    }

    /// Returns the number.
    #[must_use]
    pub const fn value(self) -> u32 {
        self.0
    }

    /// Whether clients open streams with this id.
    #[must_use]
    pub const fn is_of_client(self) -> bool {
        self.0 % 2 == 1
    }

    /// Returns the next id of a stream that the same side opens; `None` after the last one.
    #[must_use]
    pub fn next(self) -> Option<Self> {
        self.0.checked_add(2).filter(|next| *next <= MASK).map(Self)
    }
}

impl fmt::Display for StreamId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

const MASK: u32 = u32::MAX >> 1;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_reserved_bit_is_ignored_and_the_last_has_no_next() {
        assert_eq!(StreamId::from_wire([0x80, 0, 0, 1]), StreamId::FIRST);
        assert_eq!(StreamId::FIRST.next().map(StreamId::value), Some(3));
        assert_eq!(StreamId::MAX.next(), None);
        assert!(StreamId::MAX.is_of_client());
    }
}
