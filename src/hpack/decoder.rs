//! Decodes a field block into fields (RFC 7541 §3 and §6).

use super::dynamic_table::DynamicTable;
use super::field_buf::Traits;
use super::{FIELD_OVERHEAD, FieldBuf, NameId, huffman, integer, static_table};
use thiserror::Error;

/// The decoder of one direction of a connection.
#[derive(Debug)]
pub struct Decoder {
    table: DynamicTable<Traits>,
    /// Maximum size of the dynamic table that our SETTINGS allow, in octets. The peer's size updates may not exceed
    /// this size.
    table_size_limit: usize,
    limits: DecoderLimits,
}

/// Limits of a decoded field list. Sizes are as defined in RFC 9113 §6.5.2.
#[derive(Clone, Copy, Debug)]
pub struct DecoderLimits {
    /// Size of a field list above which further fields are decoded, but not stored in the list. Decoding them keeps the
    /// dynamic table the same on both sides.
    pub list_size_max: usize,
    /// Size of a field list above which decoding fails. Input that expands so much is an attack.
    pub list_size_abort: usize,
}

/// Outcome of decoding a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Decoded {
    /// All fields are present.
    Whole,
    /// The list exceeded `list_size_max`, so only its first fields are present. The dynamic table is correct.
    Oversized,
}

/// Why a field block cannot be decoded. All are connection errors, since the dynamic tables of the two sides then
/// differ.
#[derive(Clone, Copy, Debug, Error, PartialEq, Eq)]
pub enum DecodeError {
    /// A Huffman string contains EOS (RFC 7541 §5.2).
    #[error("EOS inside a Huffman string")]
    HuffmanEos,
    /// A Huffman string ends with wrong padding or within a code (RFC 7541 §5.2).
    #[error("a Huffman string with a wrong end")]
    HuffmanPadding,
    /// An index refers to no entry (RFC 7541 §2.3.3).
    #[error("an index that points at nothing")]
    Index,
    /// An integer exceeds any meaningful value (RFC 7541 §5.1).
    #[error("an integer that is too large")]
    IntegerOverflow,
    /// The list exceeds `list_size_abort`.
    #[error("a field list that is far too large")]
    ListSize,
    /// A size update exceeds the allowed size (RFC 7541 §6.3).
    #[error("a dynamic table size above what was allowed")]
    TableSize,
    /// A size update follows a field (RFC 7541 §4.2).
    #[error("a dynamic table size update after a field")]
    TableSizeLate,
    /// The block ends within a representation.
    #[error("a field block that ends too early")]
    Truncated,
}

impl Decoder {
    /// Creates a decoder for a peer that was allowed a dynamic table of `table_size_limit` octets.
    #[must_use]
    pub fn new(table_size_limit: usize, limits: DecoderLimits) -> Self {
        Self { table: DynamicTable::new(table_size_limit), table_size_limit, limits }
    }

    /// Decodes one whole field block into `fields`, which is cleared first.
    ///
    /// # Errors
    /// The connection must end after an error.
    pub fn decode(&mut self, block: &[u8], fields: &mut FieldBuf) -> Result<Decoded, DecodeError> {
        fields.clear();
        let mut list = List { fields, size: 0, limits: self.limits };
        let mut rest = self.decode_size_updates(block)?;
        while let Some((&first, after)) = rest.split_first() {
            rest = if first & 0x80 != 0 {
                let (index, after) = integer::decode(first, 0x7f, after)?;
                self.decode_indexed(index, &mut list)?;
                after
            } else if first & 0xc0 == 0x40 {
                self.decode_literal(first, 0x3f, after, &mut list)?
            } else if first & 0xe0 == 0 {
                // "Without indexing" and "never indexed" are the same to an endpoint that forwards nothing.
                self.decode_literal(first, 0x0f, after, &mut list)?
            } else {
                return Err(DecodeError::TableSizeLate);
            };
        }
        Ok(if list.size > self.limits.list_size_max { Decoded::Oversized } else { Decoded::Whole })
    }

    /// Applies the size updates at the start of a block (RFC 7541 §4.2).
    fn decode_size_updates<'b>(&mut self, block: &'b [u8]) -> Result<&'b [u8], DecodeError> {
        let mut rest = block;
        while let Some((&first, after)) = rest.split_first()
            && first & 0xe0 == 0x20
        {
            let (size_max, after) = integer::decode(first, 0x1f, after)?;
            if size_max > self.table_size_limit {
                return Err(DecodeError::TableSize);
            }
            self.table.set_size_max(size_max);
            rest = after;
        }
        Ok(rest)
    }

    #[inline]
    fn decode_indexed(&self, index: usize, list: &mut List<'_>) -> Result<(), DecodeError> {
        if let Some((name, value)) = static_table::entry(index) {
            if list.count_field(name.len() + value.len())? {
                list.fields.push(name, value, Traits { name: static_table::name_id(index), well_formed: true });
            }
            return Ok(());
        }
        let age = index.checked_sub(static_table::LEN + 1).ok_or(DecodeError::Index)?;
        let entry = self.table.entry(age).ok_or(DecodeError::Index)?;
        if list.count_field(entry.octets.len())? {
            list.fields.push_joined(entry.octets, entry.name_len, entry.note);
        }
        Ok(())
    }

    /// Decodes a literal; a `prefix_max` of 0x3f means incremental indexing (RFC 7541 §6.2). The octets are decoded
    /// directly into the list. They are removed if the list with this field exceeds `list_size_max`.
    fn decode_literal<'b>(
        &mut self,
        first: u8,
        prefix_max: u8,
        after: &'b [u8],
        list: &mut List<'_>,
    ) -> Result<&'b [u8], DecodeError> {
        let (index, rest) = integer::decode(first, prefix_max, after)?;
        let start = list.fields.scratch().len();
        let (name, name_well_formed, rest) = self.decode_name(index, rest, list.fields.scratch())?;
        let name_len = list.fields.uncommitted(start).len();
        let rest = self.decode_string(rest, list.fields.scratch())?;
        let octets = list.fields.uncommitted(start);
        let (name_octets, value) = octets.split_at_checked(name_len).unwrap_or_default();
        let traits = Traits { name, well_formed: name_well_formed && is_value_well_formed(value) };
        if prefix_max == 0x3f {
            self.table.insert(name_octets, value, traits);
        }
        let size = octets.len();
        if list.count_field(size)? {
            list.fields.commit(start, name_len, traits);
        } else {
            list.fields.discard(start);
        }
        Ok(rest)
    }

    /// Appends the name of a literal to `out`: the name of the entry at `index`, or the string that follows if `index`
    /// is 0. Returns the id of the name, whether the name is well-formed, and the octets after the name.
    fn decode_name<'b>(
        &self,
        index: usize,
        rest: &'b [u8],
        out: &mut Vec<u8>,
    ) -> Result<(NameId, bool, &'b [u8]), DecodeError> {
        if index == 0 {
            let start = out.len();
            let rest = self.decode_string(rest, out)?;
            let name = out.get(start..).unwrap_or_default();
            let id = NameId::of(name);
            return Ok((id, id != NameId::UNKNOWN || is_name_well_formed(name), rest));
        }
        if let Some((name, _)) = static_table::entry(index) {
            out.extend_from_slice(name);
            return Ok((static_table::name_id(index), true, rest));
        }
        let age = index.checked_sub(static_table::LEN + 1).ok_or(DecodeError::Index)?;
        let entry = self.table.entry(age).ok_or(DecodeError::Index)?;
        let name = entry.octets.get(..entry.name_len).unwrap_or_default();
        out.extend_from_slice(name);
        // If the entry is ill-formed, the cause may be its value, not its name.
        let well_formed = entry.note.well_formed || entry.note.name != NameId::UNKNOWN || is_name_well_formed(name);
        Ok((entry.note.name, well_formed, rest))
    }

    /// Decodes the string at the front of `rest` (RFC 7541 §5.2) and appends it to `out`. Returns the octets after the
    /// string. A Huffman string that is too long for the list and for the table is appended undecoded, since its
    /// decoding would take milliseconds. Such a string enters neither of the two, so only its length matters.
    fn decode_string<'b>(&self, rest: &'b [u8], out: &mut Vec<u8>) -> Result<&'b [u8], DecodeError> {
        let (&first, rest) = rest.split_first().ok_or(DecodeError::Truncated)?;
        let (len, rest) = integer::decode(first, 0x7f, rest)?;
        let (octets, rest) = rest.split_at_checked(len).ok_or(DecodeError::Truncated)?;
        // No code is longer than 30 bits. So a long string decodes to more than a quarter of its octets.
        if first & 0x80 == 0 || octets.len() / 4 > self.limits.list_size_max.max(self.table_size_limit) {
            out.extend_from_slice(octets);
        } else {
            huffman::decode_into(octets, out)?;
        }
        Ok(rest)
    }

    #[cfg(test)]
    pub(super) fn table_entries(&self) -> Vec<(Vec<u8>, Vec<u8>)> {
        (0..self.table.len())
            .filter_map(|age| self.table.entry(age))
            .map(|entry| (entry.octets[..entry.name_len].to_vec(), entry.octets[entry.name_len..].to_vec()))
            .collect()
    }

    #[cfg(test)]
    pub(super) fn table_size(&self) -> usize {
        self.table.size()
    }
}

/// The field list that is being decoded, and its limits.
struct List<'f> {
    fields: &'f mut FieldBuf,
    /// Size of all fields decoded so far, stored or not.
    size: usize,
    limits: DecoderLimits,
}

impl List<'_> {
    /// Counts a field of `octets`. Returns whether to store the field in the list.
    #[inline]
    fn count_field(&mut self, octets: usize) -> Result<bool, DecodeError> {
        self.size += octets + FIELD_OVERHEAD;
        if self.size <= self.limits.list_size_max {
            Ok(true)
        } else if self.size <= self.limits.list_size_abort {
            Ok(false)
        } else {
            Err(DecodeError::ListSize)
        }
    }
}

/// Whether a name is a token in lower case (RFC 9113 §8.2.1); the colon of a pseudo-header field may come first.
fn is_name_well_formed(name: &[u8]) -> bool {
    let token = name.strip_prefix(b":").unwrap_or(name);
    !token.is_empty() && token.iter().all(|&octet| NAME_OCTETS[usize::from(octet)])
}

/// Whether a value contains no NUL, CR or LF (RFC 9113 §8.2.1). The RFC also forbids a space or tab at either end. Go's
/// clients send such values, and Go's servers accept them. If we reset the stream, a Go proxy would retry its client's
/// request for ever.
fn is_value_well_formed(value: &[u8]) -> bool {
    memchr::memchr3(0, b'\r', b'\n', value).is_none()
}

/// `tchar` (RFC 9110 §5.6.2) without upper case.
static NAME_OCTETS: [bool; 256] = {
    let allowed = b"!#$%&'*+-.^_`|~0123456789abcdefghijklmnopqrstuvwxyz";
    let mut table = [false; 256];
    let mut at = 0;
    while at < allowed.len() {
        table[allowed[at] as usize] = true;
        at += 1;
    }
    table
};

#[cfg(test)]
mod tests {
    use super::*;

    const LIMITS: DecoderLimits = DecoderLimits { list_size_max: 1000, list_size_abort: 4000 };

    fn decode(block: &[u8]) -> Result<Decoded, DecodeError> {
        Decoder::new(4096, LIMITS).decode(block, &mut FieldBuf::new())
    }

    #[test]
    fn an_invalid_index_or_a_cut_block_is_refused() {
        assert_eq!(decode(&[0x80]), Err(DecodeError::Index));
        assert_eq!(decode(&[0x80 | 62]), Err(DecodeError::Index));
        assert_eq!(decode(&[0xff, 0xff, 0xff, 0xff, 0x0f]), Err(DecodeError::Index));
        assert_eq!(decode(&[0x7f, 0x10, 0x01, b'v']), Err(DecodeError::Index));
        assert_eq!(decode(&[0x40]), Err(DecodeError::Truncated));
        assert_eq!(decode(&[0x40, 0x02, b'a']), Err(DecodeError::Truncated));
        assert_eq!(decode(&[0x40, 0x01, b'a']), Err(DecodeError::Truncated));
        assert_eq!(decode(&[0x40, 0x01, b'a', 0x7f, 0xff, 0xff, 0xff, 0x7f]), Err(DecodeError::Truncated));
    }

    #[test]
    fn size_updates_come_first_and_stay_below_the_limit() {
        assert_eq!(decode(&[0x20, 0x3f, 0xe1, 0x1f, 0x82]), Ok(Decoded::Whole), "0, then 4096");
        assert_eq!(decode(&[0x3f, 0xe2, 0x1f]), Err(DecodeError::TableSize), "4097");
        assert_eq!(decode(&[0x82, 0x20]), Err(DecodeError::TableSizeLate));
    }

    #[test]
    fn an_oversized_list_keeps_the_table_in_step() {
        let mut decoder = Decoder::new(4096, LIMITS);
        let mut fields = FieldBuf::new();
        let mut block = vec![0x82];
        for name in b'a'..=b'p' {
            block.extend_from_slice(&[0x40, 1, name, 30]);
            block.extend_from_slice(&[b'v'; 30]);
        }
        assert_eq!(decoder.decode(&block, &mut fields), Ok(Decoded::Oversized));
        assert!(fields.list_size() <= 1000);
        assert_eq!(decoder.table_entries().len(), 16);
        assert_eq!(decoder.decode(&[0x80 | 62], &mut fields), Ok(Decoded::Whole));
        assert_eq!(fields.field(0).map(|field| field.name), Some(&b"p"[..]));
    }

    #[test]
    fn a_huffman_string_too_long_for_list_and_table_is_not_decoded() {
        let limits = DecoderLimits { list_size_max: 1000, list_size_abort: 1 << 20 };
        let mut decoder = Decoder::new(4096, limits);
        let mut fields = FieldBuf::new();
        // A string of zeros, which are codes of five bits. Its last bits are wrong padding.
        let zeros = |len: [u8; 3], octets: usize| [&[0x40, 1, b'b'][..], &len, &vec![0_u8; octets]].concat();
        assert_eq!(decoder.decode(&[0x40, 1, b'a', 1, b'v'], &mut fields), Ok(Decoded::Whole));
        assert_eq!(decoder.decode(&zeros([0xff, 0x85, 0x7f], 16_388), &mut fields), Ok(Decoded::Oversized));
        assert!(decoder.table_entries().is_empty(), "an entry that is too large empties the table");
        assert_eq!(decoder.decode(&[0x82, 0x40, 1, b'a', 1, b'v', 0x80 | 62], &mut fields), Ok(Decoded::Whole));
        assert_eq!(fields.len(), 3);
        let shorter = zeros([0xff, 0x84, 0x7f], 16_387);
        assert_eq!(decoder.decode(&shorter, &mut fields), Err(DecodeError::HuffmanPadding));
    }

    #[test]
    fn a_header_bomb_is_refused() {
        // One large entry, then one octet for each copy of it.
        let mut block = vec![0x40, 1, b'a', 0x7f, 0xf4, 0x06];
        block.extend_from_slice(&[b'v'; 1011 - 128]);
        block[4] = 0xf4; // 127 + 0x74 + 6 * 128 = 1011
        block.extend_from_slice(&[b'v'; 128]);
        block.extend_from_slice(&[0x80 | 62; 10]);
        assert_eq!(decode(&block), Err(DecodeError::ListSize));
    }

    #[test]
    fn ill_formed_fields_are_marked_even_from_the_table() {
        let mut decoder = Decoder::new(4096, LIMITS);
        let mut fields = FieldBuf::new();
        for (name, value, well_formed) in [
            (&b"x-a"[..], &b"v"[..], true),
            (b"X-a", b"v", false),
            (b"x a", b"v", false),
            (b"", b"v", false),
            (b":", b"v", false),
            (b":x", b"v", true),
            (b"x:", b"v", false),
            (b"x", b" v", true),
            (b"x", b"v\t", true),
            (b"x", b"a\nb", false),
            (b"x", b"a\0b", false),
            (b"x", b"a b\tc\x80", true),
            (b"x", b"", true),
        ] {
            let mut block = vec![0x40, u8::try_from(name.len()).unwrap()];
            block.extend_from_slice(name);
            block.push(u8::try_from(value.len()).unwrap());
            block.extend_from_slice(value);
            for block in [&block[..], &[0x80 | 62][..]] {
                assert_eq!(decoder.decode(block, &mut fields), Ok(Decoded::Whole));
                let field = fields.field(0).unwrap();
                assert_eq!((field.name, field.value, field.well_formed), (name, value, well_formed));
            }
            // An ill-formed value does not make the name ill-formed.
            assert_eq!(decoder.decode(&[0x0f, 62 - 15, 1, b'w'], &mut fields), Ok(Decoded::Whole));
            assert_eq!(fields.field(0).unwrap().well_formed, is_name_well_formed(name));
        }
    }
}
