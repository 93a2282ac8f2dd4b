//! Reads protobuf messages like Go's generated code. The reader accepts and refuses the same messages as Go, with the
//! same errors, except for two kinds of messages. Only this reader refuses invalid UTF-8 in an object. And only this
//! reader refuses a map entry with a string that extends beyond the entry.
//!
//! The reader skips unknown fields without recursion, even groups. Of a repeated field, the last value counts. A
//! repeated message is merged into the first one. Go does not validate strings, so Go's objects may contain invalid
//! UTF-8. This server's objects contain only valid UTF-8, and two different texts must not become equal. So the reader
//! refuses invalid UTF-8 in an object. The server does not store `kind`, `apiVersion` and `DeleteOptions`. In their
//! text, the reader replaces invalid UTF-8.

use compact_str::CompactString;
use thiserror::Error;

/// The reason why a message is malformed, in Go's words.
#[derive(Clone, Copy, Debug, Error, PartialEq, Eq)]
pub(super) enum WireError {
    #[error("proto: {message}: wiretype end group for non-group")]
    EndOfGroup { message: &'static str },
    #[error("proto: {message}: illegal tag {field} (wire type {tag})")]
    IllegalTag { message: &'static str, field: i32, tag: u64 },
    #[error("proto: illegal wireType {wire_type}")]
    IllegalWireType { wire_type: u8 },
    #[error("proto: integer overflow")]
    IntegerOverflow,
    #[error("proto: negative length found during unmarshaling")]
    NegativeLength,
    // gogo-protobuf does not validate UTF-8. So this message is that of Go's proto3, which does.
    #[error("proto: field {field} contains invalid UTF-8")]
    NotUtf8 { field: &'static str },
    #[error("proto: unexpected end of group")]
    UnexpectedEndOfGroup,
    #[error("unexpected EOF")]
    UnexpectedEof,
    #[error("proto: wrong wireType = {wire_type} for field {field}")]
    WrongWireType { wire_type: u8, field: &'static str },
}

/// Iterates over the fields of one message. After each [`Reader::next`], the caller must call exactly one other method,
/// which reads the value.
pub(super) struct Reader<'b> {
    /// Name of the Go type of the message.
    message: &'static str,
    rest: &'b [u8],
    /// The rest of the message, starting at the key of the current field.
    from_key: &'b [u8],
    wire_type: u8,
}

impl<'b> Reader<'b> {
    pub(super) fn new(message: &'static str, bytes: &'b [u8]) -> Self {
        Self { message, rest: bytes, from_key: bytes, wire_type: 0 }
    }

    /// Returns the number of the next field; `None` at the end of the message.
    #[inline]
    pub(super) fn next(&mut self) -> Result<Option<u32>, WireError> {
        self.from_key = self.rest;
        if let &[key @ 8..0x80, ref rest @ ..] = self.rest
            && key & 7 != END_GROUP
        {
            // The key takes one byte if the number of the field is 1 to 15. Nearly all fields have such a number.
            self.rest = rest;
            self.wire_type = key & 7;
            return Ok(Some(u32::from(key >> 3)));
        }
        self.next_slow()
    }

    #[inline(never)]
    fn next_slow(&mut self) -> Result<Option<u32>, WireError> {
        if self.rest.is_empty() {
            return Ok(None);
        }
        let tag = varint(&mut self.rest)?;
        let [low, ..] = tag.to_le_bytes();
        self.wire_type = low & 7;
        if self.wire_type == END_GROUP {
            return Err(WireError::EndOfGroup { message: self.message });
        }
        // Go uses only the low 32 bits of the field number.
        let [a, b, c, d, ..] = (tag >> 3).to_le_bytes();
        let field = i32::from_le_bytes([a, b, c, d]);
        match u32::try_from(field) {
            Ok(number @ 1..) => Ok(Some(number)),
            _ => Err(WireError::IllegalTag { message: self.message, field, tag }),
        }
    }

    /// Returns the value of the field as bytes. `field` is the name of the field in Go.
    #[inline]
    pub(super) fn bytes(&mut self, field: &'static str) -> Result<&'b [u8], WireError> {
        self.expect(LENGTH, field)?;
        sized(&mut self.rest)
    }

    /// Returns the value of the field as text; an error if the text is not UTF-8.
    #[inline]
    pub(super) fn text(&mut self, field: &'static str) -> Result<CompactString, WireError> {
        utf8(self.bytes(field)?, field)
    }

    /// Returns the value of the field as text, in which invalid UTF-8 is replaced. Use this function only for text that
    /// is not stored.
    #[inline]
    pub(super) fn repaired_text(&mut self, field: &'static str) -> Result<CompactString, WireError> {
        self.bytes(field).map(repaired)
    }

    /// Returns the value of the field as an `int64`.
    #[inline]
    pub(super) fn int64(&mut self, field: &'static str) -> Result<i64, WireError> {
        self.expect(VARINT, field)?;
        varint(&mut self.rest).map(u64::cast_signed)
    }

    /// Returns the value of the field as an `int32`: its low 32 bits.
    #[inline]
    pub(super) fn int32(&mut self, field: &'static str) -> Result<i32, WireError> {
        let [a, b, c, d, ..] = self.int64(field)?.to_le_bytes();
        Ok(i32::from_le_bytes([a, b, c, d]))
    }

    /// Returns the value of the field as a boolean: true for any number but 0.
    #[inline]
    pub(super) fn boolean(&mut self, field: &'static str) -> Result<bool, WireError> {
        self.int64(field).map(|n| n != 0)
    }

    /// Returns the value of the field as an entry of a map. As in Go, the wire types in the entry are not checked.
    ///
    /// Unlike in Go, no string may extend beyond its entry. Otherwise each of many short entries could copy the whole
    /// rest of a large message.
    pub(super) fn entry(&mut self, field: &'static str) -> Result<(CompactString, CompactString), WireError> {
        self.expect(LENGTH, field)?;
        let (mut key, mut value) = (CompactString::default(), CompactString::default());
        let mut rest = sized(&mut self.rest)?;
        while !rest.is_empty() {
            let from_key = rest;
            match varint(&mut rest)? >> 3 & u64::from(u32::MAX) {
                1 => key = utf8(sized(&mut rest)?, field)?,
                2 => value = utf8(sized(&mut rest)?, field)?,
                _ => rest = skipped(from_key)?,
            }
        }
        Ok((key, value))
    }

    /// Skips the current field, which is unknown.
    #[inline(never)]
    pub(super) fn skip(&mut self) -> Result<(), WireError> {
        self.rest = skipped(self.from_key)?;
        Ok(())
    }

    #[inline]
    fn expect(&self, wire_type: u8, field: &'static str) -> Result<(), WireError> {
        if self.wire_type == wire_type {
            Ok(())
        } else {
            Err(WireError::WrongWireType { wire_type: self.wire_type, field })
        }
    }
}

const VARINT: u8 = 0;
const FIXED_64: u8 = 1;
const LENGTH: u8 = 2;
const START_GROUP: u8 = 3;
const END_GROUP: u8 = 4;
const FIXED_32: u8 = 5;

/// Returns the bytes after the first field of `bytes`. Counts nested groups, so that it needs no recursion.
fn skipped(bytes: &[u8]) -> Result<&[u8], WireError> {
    let mut rest = bytes;
    let mut depth = 0usize;
    while !rest.is_empty() {
        let [low, ..] = varint(&mut rest)?.to_le_bytes();
        match low & 7 {
            VARINT => _ = varint(&mut rest)?,
            FIXED_64 => rest = rest.get(8..).ok_or(WireError::UnexpectedEof)?,
            LENGTH => _ = sized(&mut rest)?,
            START_GROUP => depth += 1,
            END_GROUP => depth = depth.checked_sub(1).ok_or(WireError::UnexpectedEndOfGroup)?,
            FIXED_32 => rest = rest.get(4..).ok_or(WireError::UnexpectedEof)?,
            wire_type => return Err(WireError::IllegalWireType { wire_type }),
        }
        if depth == 0 {
            return Ok(rest);
        }
    }
    Err(WireError::UnexpectedEof)
}

/// Removes a varint from the start of `rest`, and returns its value. As in Go, only the lowest bit of a tenth byte
/// counts.
#[inline]
fn varint(rest: &mut &[u8]) -> Result<u64, WireError> {
    if let &[byte @ 0..0x80, ref after @ ..] = *rest {
        *rest = after;
        return Ok(u64::from(byte));
    }
    varint_slow(rest)
}

#[inline(never)]
fn varint_slow(rest: &mut &[u8]) -> Result<u64, WireError> {
    let mut n = 0;
    for shift in (0..u64::BITS).step_by(7) {
        let (&byte, after) = rest.split_first().ok_or(WireError::UnexpectedEof)?;
        *rest = after;
        n |= u64::from(byte & 0x7f) << shift;
        if byte < 0x80 {
            return Ok(n);
        }
    }
    Err(WireError::IntegerOverflow)
}

/// Removes a length, and then that many bytes, from the start of `rest`. Returns these bytes.
#[inline]
fn sized<'b>(rest: &mut &'b [u8]) -> Result<&'b [u8], WireError> {
    let size = varint(rest)?.cast_signed();
    let size = usize::try_from(size).map_err(|_| WireError::NegativeLength)?;
    let (bytes, after) = rest.split_at_checked(size).ok_or(WireError::UnexpectedEof)?;
    *rest = after;
    Ok(bytes)
}

#[inline]
fn utf8(bytes: &[u8], field: &'static str) -> Result<CompactString, WireError> {
    CompactString::from_utf8(bytes).map_err(|_| WireError::NotUtf8 { field })
}

/// Converts bytes to text. Each invalid byte becomes U+FFFD: kube-apiserver shows such bytes in the same way in JSON.
fn repaired(bytes: &[u8]) -> CompactString {
    let mut out = CompactString::with_capacity(bytes.len());
    for chunk in bytes.utf8_chunks() {
        out.push_str(chunk.valid());
        for _ in chunk.invalid() {
            out.push(char::REPLACEMENT_CHARACTER);
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    fn first(bytes: &[u8]) -> Result<Option<u32>, WireError> {
        Reader::new("M", bytes).next()
    }

    #[test]
    fn keys_are_read_as_go_reads_them() {
        assert_eq!(first(b""), Ok(None));
        assert_eq!(first(&[0x0a]), Ok(Some(1)));
        assert_eq!(first(&[0x8a, 0x01]), Ok(Some(17)));
        assert_eq!(first(&[0x8a]), Err(WireError::UnexpectedEof));
        assert_eq!(first(&[0x0c]).expect_err("end group").to_string(), "proto: M: wiretype end group for non-group");
        assert_eq!(first(&[0x02]).expect_err("field 0").to_string(), "proto: M: illegal tag 0 (wire type 2)");
        assert_eq!(
            first(&[0xff, 0xff, 0xff, 0xff, 0x7f]).expect_err("negative").to_string(),
            "proto: M: illegal tag -1 (wire type 34359738367)"
        );
        assert_eq!(first(&[0xff; 11]), Err(WireError::IntegerOverflow));
    }

    #[test]
    fn unknown_fields_are_passed_over_whole() {
        for unknown in [
            &[0xf8, 0x01, 0x80, 0x01][..],
            &[0xf9, 0x01, 1, 2, 3, 4, 5, 6, 7, 8],
            &[0xfa, 0x01, 2, 0xff, 0xff],
            // A group in a group. The inner group contains a string, whose only byte looks like the end of a group.
            &[0xfb, 0x01, 0x0b, 0x12, 1, 0x0c, 0x0c, 0xfc, 0x01],
            &[0xfd, 0x01, 1, 2, 3, 4],
        ] {
            let bytes = [unknown, &[0x08, 5]].concat();
            let mut reader = Reader::new("M", &bytes);
            assert_eq!(reader.next(), Ok(Some(31)));
            reader.skip().expect("known form");
            assert_eq!(reader.next(), Ok(Some(1)));
            assert_eq!(reader.int32("N"), Ok(5));
            assert_eq!(reader.next(), Ok(None));
            for end in 0..unknown.len() {
                assert!(skipped(&unknown[..end]).is_err(), "{unknown:?} {end}");
            }
        }
        assert_eq!(skipped(&[0xfe, 1]), Err(WireError::IllegalWireType { wire_type: 6 }));
        // These 100,000 nested groups have no end. `skipped` counts groups without recursion, so it does not overflow
        // the stack.
        assert_eq!(skipped(&[0x0b; 100_000]), Err(WireError::UnexpectedEof));
    }

    #[test]
    fn values_of_the_wrong_kind_and_size_are_refused() {
        let value = |bytes: &[u8]| {
            let mut reader = Reader::new("M", bytes);
            reader.next().expect("a key");
            reader.bytes("Name").map(<[u8]>::to_vec)
        };
        assert_eq!(value(&[0x0a, 2, 1, 2]), Ok(vec![1, 2]));
        assert_eq!(value(&[0x08, 2]).expect_err("a number").to_string(), "proto: wrong wireType = 0 for field Name");
        assert_eq!(value(&[0x0a, 2, 1]), Err(WireError::UnexpectedEof));
        let negative = [0x0a, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 1];
        assert_eq!(value(&negative), Err(WireError::NegativeLength));
        let int32 = |bytes: &[u8]| {
            let mut reader = Reader::new("M", bytes);
            reader.next().expect("a key");
            reader.int32("N")
        };
        assert_eq!(int32(&[0x08, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 1]), Ok(-1));
        assert_eq!(int32(&[0x08, 0x80, 0x80, 0x80, 0x80, 0x10]), Ok(0));
    }

    #[test]
    fn entries_of_maps_end_where_their_length_says() {
        let entry = |bytes: &[u8]| {
            let mut reader = Reader::new("M", bytes);
            reader.next().expect("a key");
            let entry = reader.entry("Labels");
            entry.map(|(key, value)| (key, value, reader.rest.to_vec()))
        };
        assert_eq!(entry(&[0x5a, 6, 0x0a, 1, b'a', 0x12, 1, b'1', 9]), Ok(("a".into(), "1".into(), vec![9])));
        assert_eq!(entry(&[0x5a, 0]), Ok(("".into(), "".into(), vec![])));
        assert_eq!(entry(&[0x5a, 5, 0x18, 7, 0x0a, 1, b'a']), Ok(("a".into(), "".into(), vec![])));
        assert_eq!(entry(&[0x5a, 4, 0x0d, 2, b'a', b'b']), Ok(("ab".into(), "".into(), vec![])), "another wire type");
        // A string that extends beyond its entry, and a string that extends beyond the message.
        assert_eq!(entry(&[0x5a, 2, 0x0a, 2, b'a', b'b']), Err(WireError::UnexpectedEof));
        assert_eq!(entry(&[0x5a, 2, 0x0a, 3, b'a', b'b']), Err(WireError::UnexpectedEof));
        assert_eq!(entry(&[0x5a, 1, 0x1a, 1, b'a']), Err(WireError::UnexpectedEof));
        assert_eq!(entry(&[0x5a, 9, 0x0a]), Err(WireError::UnexpectedEof));
    }

    #[test]
    fn each_byte_that_is_no_utf8_is_refused_or_replaced() {
        let mut reader = Reader::new("M", &[0x0a, 1, 0xff, 0x5a, 6, 0x0a, 1, b'a', 0x12, 1, 0xfe]);
        assert_eq!(reader.next(), Ok(Some(1)));
        assert_eq!(reader.text("Name").expect_err("no text").to_string(), "proto: field Name contains invalid UTF-8");
        assert_eq!(reader.next(), Ok(Some(11)));
        assert_eq!(reader.entry("Labels"), Err(WireError::NotUtf8 { field: "Labels" }));
        assert_eq!(repaired("héllo".as_bytes()), "héllo");
        assert_eq!(repaired(b"a\xffb\xe2\x80c\xf0\x9f\xa6"), "a\u{fffd}b\u{fffd}\u{fffd}c\u{fffd}\u{fffd}\u{fffd}");
    }
}
