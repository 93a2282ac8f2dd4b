//! Binary encoding of numbers and texts. Reading never panics. It returns a value, or an error with the offset of the
//! damage.
//!
//! A number is a varint in base 128, lowest seven bits first. A signed number is zigzag-encoded first, so that small
//! negative numbers are short too. Numbers of fixed width are little-endian.

use compact_str::CompactString;
use thiserror::Error;

/// The reason why bytes cannot be decoded.
#[derive(Clone, Copy, Debug, Error, PartialEq, Eq)]
pub(super) enum FormError {
    /// No release has written such bytes.
    #[error("{what} at byte {offset}")]
    Damaged {
        /// Offset of the damage, in bytes.
        offset: usize,
        /// The kind of damage.
        what: &'static str,
    },
    /// A newer release wrote the bytes.
    #[error("it has format {found}, which this release cannot read")]
    Newer {
        /// Number of the format of the bytes.
        found: u32,
    },
}

/// Appends an unsigned number.
#[inline]
pub(super) fn put_varint(out: &mut Vec<u8>, mut n: u64) {
    while n >= 0x80 {
        let [low, ..] = n.to_le_bytes();
        out.push(low | 0x80);
        n >>= 7;
    }
    let [low, ..] = n.to_le_bytes();
    out.push(low);
}

/// Appends a signed number.
#[inline]
pub(super) fn put_signed(out: &mut Vec<u8>, n: i64) {
    put_varint(out, ((n << 1) ^ (n >> 63)).cast_unsigned());
}

/// Appends a length.
#[inline]
pub(super) fn put_length(out: &mut Vec<u8>, length: usize) {
    put_varint(out, length as u64);
}

/// Appends the length of a text, and then the text.
#[inline]
pub(super) fn put_text(out: &mut Vec<u8>, text: &str) {
    put_length(out, text.len());
    out.extend_from_slice(text.as_bytes());
}

/// Reads values from bytes, one by one.
#[derive(Clone, Debug)]
pub(super) struct Reader<'b> {
    bytes: &'b [u8],
    at: usize,
}

impl<'b> Reader<'b> {
    /// Creates a reader that starts at `at`.
    pub(super) fn new(bytes: &'b [u8], at: usize) -> Self {
        Self { bytes, at: at.min(bytes.len()) }
    }

    /// Returns the offset of the next unread byte.
    pub(super) fn offset(&self) -> usize {
        self.at
    }

    /// Returns the number of unread bytes.
    pub(super) fn remaining(&self) -> usize {
        self.bytes.len() - self.at
    }

    /// Returns an error at the current offset.
    pub(super) fn damaged(&self, what: &'static str) -> FormError {
        FormError::Damaged { offset: self.at, what }
    }

    /// Reads the next `count` bytes.
    pub(super) fn take(&mut self, count: usize) -> Result<&'b [u8], FormError> {
        let taken = self.at.checked_add(count).and_then(|end| self.bytes.get(self.at..end));
        let taken = taken.ok_or_else(|| self.damaged("an early end"))?;
        self.at += count;
        Ok(taken)
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], FormError> {
        let end = self.damaged("an early end");
        self.take(N)?.try_into().map_err(|_| end)
    }

    pub(super) fn u8(&mut self) -> Result<u8, FormError> {
        let [byte] = self.array()?;
        Ok(byte)
    }

    pub(super) fn u32(&mut self) -> Result<u32, FormError> {
        self.array().map(u32::from_le_bytes)
    }

    pub(super) fn u64(&mut self) -> Result<u64, FormError> {
        self.array().map(u64::from_le_bytes)
    }

    pub(super) fn i64(&mut self) -> Result<i64, FormError> {
        self.array().map(i64::from_le_bytes)
    }

    #[inline]
    pub(super) fn varint(&mut self) -> Result<u64, FormError> {
        let mut n = 0;
        for index in 0..VARINT_BYTES_MAX {
            let Some(&byte) = self.bytes.get(self.at) else { return Err(self.damaged("an early end")) };
            let bits = u64::from(byte & 0x7f);
            if index == VARINT_BYTES_MAX - 1 && byte > 1 {
                return Err(self.damaged("a number of more than 64 bits"));
            }
            self.at += 1;
            n |= bits << (7 * index);
            if byte < 0x80 {
                break;
            }
        }
        Ok(n)
    }

    #[inline]
    pub(super) fn signed(&mut self) -> Result<i64, FormError> {
        let n = self.varint()?;
        Ok((n >> 1).cast_signed() ^ -(n & 1).cast_signed())
    }

    /// Reads a varint that must fit into 32 bits.
    pub(super) fn narrow(&mut self) -> Result<u32, FormError> {
        let error = self.damaged("a number of more than 32 bits");
        u32::try_from(self.varint()?).map_err(|_| error)
    }

    /// Reads a signed varint that must fit into 32 bits.
    pub(super) fn narrow_signed(&mut self) -> Result<i32, FormError> {
        let error = self.damaged("a number of more than 32 bits");
        i32::try_from(self.signed()?).map_err(|_| error)
    }

    /// Reads a length, or a count of items. Refuses a value greater than the number of unread bytes, since each item
    /// takes at least one byte.
    pub(super) fn length(&mut self) -> Result<usize, FormError> {
        let error = self.damaged("a length beyond the end");
        let length = usize::try_from(self.varint()?).map_err(|_| error)?;
        if length > self.remaining() { Err(error) } else { Ok(length) }
    }

    /// Reads a length, and then as many bytes.
    pub(super) fn sized(&mut self) -> Result<&'b [u8], FormError> {
        let length = self.length()?;
        self.take(length)
    }

    /// Reads a length, and then a text of this length.
    pub(super) fn str(&mut self) -> Result<&'b str, FormError> {
        let error = self.damaged("a text that is no UTF-8");
        std::str::from_utf8(self.sized()?).map_err(|_| error)
    }

    pub(super) fn text(&mut self) -> Result<CompactString, FormError> {
        self.str().map(CompactString::from)
    }

    /// Checks that all bytes have been read.
    pub(super) fn finish(&self) -> Result<(), FormError> {
        if self.remaining() == 0 { Ok(()) } else { Err(self.damaged("more bytes than expected")) }
    }
}

/// Length of the longest varint, in bytes.
const VARINT_BYTES_MAX: usize = 10;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_round_trip_and_small_ones_are_short() {
        for (n, length) in [(0, 1), (127, 1), (128, 2), (1 << 34, 5), (u64::MAX, 10)] {
            let mut bytes = Vec::new();
            put_varint(&mut bytes, n);
            assert_eq!(bytes.len(), length, "{n}");
            assert_eq!(Reader::new(&bytes, 0).varint(), Ok(n));
        }
        for (n, length) in [(0, 1), (-1, 1), (63, 1), (-64, 1), (64, 2), (i64::MAX, 10), (i64::MIN, 10)] {
            let mut bytes = Vec::new();
            put_signed(&mut bytes, n);
            assert_eq!(bytes.len(), length, "{n}");
            let mut reader = Reader::new(&bytes, 0);
            assert_eq!(reader.signed(), Ok(n));
            assert_eq!(reader.finish(), Ok(()));
        }
    }

    #[test]
    fn invalid_values_are_refused_with_their_offset() {
        fn damaged<T>(offset: usize, what: &'static str) -> Result<T, FormError> {
            Err(FormError::Damaged { offset, what })
        }
        assert_eq!(Reader::new(&[0x80], 0).varint(), damaged(1, "an early end"));
        assert_eq!(Reader::new(&[0xff; 10], 0).varint(), damaged(9, "a number of more than 64 bits"));
        assert_eq!(Reader::new(&[9, b'a'], 0).str(), damaged(0, "a length beyond the end"));
        assert_eq!(Reader::new(&[1, 0xff], 0).str(), damaged(0, "a text that is no UTF-8"));
        assert_eq!(Reader::new(&[0; 7], 0).u64().map(|_| ()), damaged(0, "an early end"));
        assert_eq!(Reader::new(&[0; 7], 9).finish(), Ok(()));
        assert_eq!(Reader::new(&[0; 7], 6).finish(), damaged(6, "more bytes than expected"));
    }
}
