//! Writes protobuf messages, or counts their bytes. The same code does both, since it calls the trait [`Sink`].
//!
//! The output must equal the output of gogo-protobuf: fields in ascending order, and the shortest encoding of each
//! length. For a nested message, the writer reserves the usual width of the message's length, and writes the message
//! behind it. If the length needs another width, the writer moves the message. So a nested message needs no temporary
//! buffer.

/// The destination of a message: a buffer, or a counter of bytes.
pub(super) trait Sink: Sized {
    /// Appends raw bytes.
    fn put(&mut self, bytes: &[u8]);

    /// Appends the key of a field. The number of the field must be below 16, so that the key takes one byte.
    fn put_key(&mut self, field: u8, wire_type: WireType);

    /// Appends a varint.
    fn put_varint(&mut self, n: u64);

    /// Appends the length of the output of `fill`, then that output. `width` is the expected width of the length, in
    /// bytes.
    fn put_sized(&mut self, width: usize, fill: impl FnOnce(&mut Self));

    /// Appends a nested message, which `fill` appends. `width` is the expected width of its length, in bytes.
    #[inline]
    fn put_message(&mut self, field: u8, width: usize, fill: impl FnOnce(&mut Self)) {
        self.put_key(field, WireType::Length);
        self.put_sized(width, fill);
    }

    /// Appends a field with a string or bytes, even if they are empty. gogo-protobuf does this for fields that are not
    /// pointers in Go.
    #[inline]
    fn put_bytes(&mut self, field: u8, bytes: &[u8]) {
        self.put_key(field, WireType::Length);
        self.put_varint(length(bytes.len()));
        self.put(bytes);
    }

    /// Appends a field with a string that is a pointer in Go, if the string is present.
    #[inline]
    fn put_optional(&mut self, field: u8, text: Option<&str>) {
        if let Some(text) = text {
            self.put_bytes(field, text.as_bytes());
        }
    }

    /// Appends a field with an integer of any type. A negative integer takes ten bytes.
    #[inline]
    fn put_integer(&mut self, field: u8, n: i64) {
        self.put_key(field, WireType::Varint);
        self.put_varint(n.cast_unsigned());
    }
}

/// Wire type of a field.
#[derive(Clone, Copy)]
pub(super) enum WireType {
    Varint = 0,
    Length = 2,
}

/// Expected width of the length of a message with a few short strings, in bytes.
pub(super) const SHORT: usize = 1;
/// Expected width of the length of a message with a whole Lease or its metadata, in bytes.
pub(super) const LONG: usize = 2;

impl Sink for Vec<u8> {
    #[inline]
    fn put(&mut self, bytes: &[u8]) {
        self.extend_from_slice(bytes);
    }

    #[inline]
    fn put_key(&mut self, field: u8, wire_type: WireType) {
        self.push(field << 3 | wire_type as u8);
    }

    #[inline]
    fn put_varint(&mut self, n: u64) {
        match u8::try_from(n) {
            Ok(byte @ 0..0x80) => self.push(byte),
            _ => {
                let (bytes, width) = varint(n);
                self.extend_from_slice(bytes.get(..width).unwrap_or_default());
            }
        }
    }

    #[inline]
    fn put_bytes(&mut self, field: u8, bytes: &[u8]) {
        match u8::try_from(bytes.len()) {
            Ok(size @ 0..0x80) => self.extend_from_slice(&[field << 3 | WireType::Length as u8, size]),
            _ => {
                self.put_key(field, WireType::Length);
                self.put_varint(length(bytes.len()));
            }
        }
        self.extend_from_slice(bytes);
    }

    #[inline]
    fn put_sized(&mut self, width: usize, fill: impl FnOnce(&mut Self)) {
        let start = self.len();
        self.extend_from_slice(PLACEHOLDER.get(..width).unwrap_or_default());
        let body = self.len();
        fill(self);
        let (bytes, found) = varint(length(self.len() - body));
        let bytes = bytes.get(..found).unwrap_or_default();
        if let Some(place) = self.get_mut(start..body)
            && place.len() == bytes.len()
        {
            place.copy_from_slice(bytes);
        } else {
            self.splice(start..body, bytes.iter().copied());
        }
    }
}

/// Counts the bytes of a message, without storing them.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Count(pub(super) usize);

impl Sink for Count {
    #[inline]
    fn put(&mut self, bytes: &[u8]) {
        self.0 += bytes.len();
    }

    #[inline]
    fn put_key(&mut self, _field: u8, _wire_type: WireType) {
        self.0 += 1;
    }

    #[inline]
    fn put_varint(&mut self, n: u64) {
        self.0 += varint_width(n);
    }

    #[inline]
    fn put_sized(&mut self, _width: usize, fill: impl FnOnce(&mut Self)) {
        let mut body = Self::default();
        fill(&mut body);
        self.0 += varint_width(length(body.0)) + body.0;
    }
}

/// Encodes a number as a varint. Returns the bytes of the varint, and its width in bytes.
#[inline]
pub(super) fn varint(mut n: u64) -> ([u8; 10], usize) {
    let mut bytes = [0; 10];
    let mut width = 0;
    for byte in &mut bytes {
        let [low, ..] = n.to_le_bytes();
        width += 1;
        n >>= 7;
        if n == 0 {
            *byte = low;
            break;
        }
        *byte = low | 0x80;
    }
    (bytes, width)
}

/// Returns the width of a number as a varint, in bytes.
#[inline]
pub(super) fn varint_width(n: u64) -> usize {
    let bits = 64 - (n | 1).leading_zeros();
    usize::try_from(bits.div_ceil(7)).unwrap_or(10)
}

/// Converts a length to the argument of [`Sink::put_varint`].
#[inline]
pub(super) fn length(n: usize) -> u64 {
    u64::try_from(n).unwrap_or(u64::MAX)
}

/// Bytes that reserve the place of a length until the length is known.
const PLACEHOLDER: &[u8] = &[0; 10];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn varints_are_shortest() {
        for (n, bytes) in [
            (0, &[0][..]),
            (1, &[1]),
            (0x7f, &[0x7f]),
            (0x80, &[0x80, 1]),
            (300, &[0xac, 2]),
            (0x3fff, &[0xff, 0x7f]),
            (0x4000, &[0x80, 0x80, 1]),
            (u64::MAX, &[0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 1]),
        ] {
            let mut out = Vec::new();
            out.put_varint(n);
            assert_eq!(out, bytes, "{n}");
            assert_eq!(varint_width(n), bytes.len(), "{n}");
        }
    }

    #[test]
    fn a_length_of_unexpected_width_shifts_the_message() {
        for width in 0..4 {
            for size in [0, 1, 127, 128, 16_383, 16_384] {
                let body = vec![7; size];
                let mut out = b"before".to_vec();
                out.put_sized(width, |out| out.put(&body));
                let mut expected = b"before".to_vec();
                expected.put_varint(length(size));
                expected.put(&body);
                assert_eq!(out, expected, "{width} {size}");
                let mut count = Count::default();
                count.put_sized(width, |count| count.put(&body));
                assert_eq!(count.0, expected.len() - 6);
            }
        }
    }
}
