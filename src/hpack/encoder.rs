//! Encodes fields into a field block (RFC 7541 §6).

use super::dynamic_table::DynamicTable;
use super::name::hash;
use super::{FIELD_OVERHEAD, FieldName, NameId, TABLE_SIZE_DEFAULT, huffman, integer, static_table};

/// The encoder of one direction of a connection.
///
/// To encode a block, call [`begin_block`](Self::begin_block) and then encode each field. The calls append to a buffer
/// of the caller.
#[derive(Debug)]
pub struct Encoder {
    table: DynamicTable<Hashes>,
    /// Upper limit of the dynamic table's size, in octets, even if the peer allows more.
    table_size_cap: usize,
    size_update: Option<SizeUpdate>,
    changes: u64,
}

/// How much of a field the encoder may put in the dynamic table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Indexing {
    /// The value recurs. Name and value enter the table, so the next such field takes one or two octets.
    Value,
    /// The value differs each time. Only the name is worth an entry.
    Name,
    /// The value is a secret. It enters no table, neither here nor at a proxy (RFC 7541 §7.1.3).
    Never,
}

/// Hashes that the table stores with each entry, so that a search compares only the octets of likely matches.
#[derive(Clone, Copy, Debug)]
struct Hashes {
    name: u32,
    /// Hash of name and value.
    field: u32,
}

/// Table size changes not yet signalled to the peer (RFC 7541 §4.2).
#[derive(Clone, Copy, Debug)]
struct SizeUpdate {
    /// Smallest size since the last signalled size.
    lowest: usize,
    last: usize,
}

/// Result of a search in the dynamic table, with the age of the found entry.
enum Found {
    Field(usize),
    Name(usize),
    Nothing,
}

impl Encoder {
    /// Creates an encoder with the protocol's default table size. The table size follows the peer's SETTINGS, up to
    /// `table_size_cap`.
    #[must_use]
    pub fn new(table_size_cap: usize) -> Self {
        let mut encoder =
            Self { table: DynamicTable::new(TABLE_SIZE_DEFAULT), table_size_cap, size_update: None, changes: 0 };
        if table_size_cap < TABLE_SIZE_DEFAULT {
            encoder.set_peer_table_size(TABLE_SIZE_DEFAULT);
        }
        encoder
    }

    /// Applies the peer's `SETTINGS_HEADER_TABLE_SIZE`, from the next field block on.
    pub fn set_peer_table_size(&mut self, size_max: usize) {
        let size_max = size_max.min(self.table_size_cap);
        if size_max == self.table.size_max() {
            return;
        }
        self.changes += 1;
        self.table.set_size_max(size_max);
        let lowest = self.size_update.map_or(size_max, |update| update.lowest.min(size_max));
        self.size_update = Some(SizeUpdate { lowest, last: size_max });
    }

    /// Returns a counter that grows whenever the table changes, and whenever a block signals a new table size. While
    /// the counter is unchanged, equal fields give equal blocks.
    #[inline]
    #[must_use]
    pub fn changes(&self) -> u64 {
        self.changes
    }

    /// Begins a field block: signals a change of the table size, if the peer does not know it yet.
    #[inline]
    pub fn begin_block(&mut self, out: &mut Vec<u8>) {
        if let Some(update) = self.size_update.take() {
            self.changes += 1;
            if update.lowest < update.last {
                integer::encode_into(0x20, 0x1f, update.lowest, out);
            }
            integer::encode_into(0x20, 0x1f, update.last, out);
        }
    }

    /// Appends `:status`; `status` has three digits.
    #[inline]
    pub fn encode_status(&mut self, status: u16, out: &mut Vec<u8>) {
        match status {
            200 => out.push(0x80 | 8),
            204 => out.push(0x80 | 9),
            206 => out.push(0x80 | 10),
            304 => out.push(0x80 | 11),
            400 => out.push(0x80 | 12),
            404 => out.push(0x80 | 13),
            500 => out.push(0x80 | 14),
            _ => self.encode_field(STATUS, &status_digits(status), Indexing::Value, out),
        }
    }

    /// Appends one field.
    #[inline]
    pub fn encode_field(&mut self, name: FieldName<'_>, value: &[u8], indexing: Indexing, out: &mut Vec<u8>) {
        match indexing {
            Indexing::Value => self.encode_indexed(name, value, out),
            Indexing::Name => match self.name_index(name) {
                0 => self.encode_and_insert(name, 0, value, out),
                index => encode_literal(0x00, 0x0f, name, index, value, out),
            },
            Indexing::Never => encode_literal(0x10, 0x0f, name, self.name_index(name), value, out),
        }
    }

    fn encode_indexed(&mut self, name: FieldName<'_>, value: &[u8], out: &mut Vec<u8>) {
        if let Some(index) = static_table::find(name.id, value) {
            integer::encode_into(0x80, 0x7f, index, out);
            return;
        }
        let name_index = match self.find(name, hash(name.hash, value), value) {
            Found::Field(age) => {
                integer::encode_into(0x80, 0x7f, dynamic_index(age), out);
                return;
            }
            Found::Name(age) => name.id.static_index().unwrap_or_else(|| dynamic_index(age)),
            Found::Nothing => name.id.static_index().unwrap_or(0),
        };
        self.encode_and_insert(name, name_index, value, out);
    }

    /// Encodes a literal with incremental indexing. If the new entry would take more than half of the table, encodes
    /// the literal without indexing. Such an entry could evict most other entries.
    fn encode_and_insert(&mut self, name: FieldName<'_>, name_index: usize, value: &[u8], out: &mut Vec<u8>) {
        if name.octets().len() + value.len() + FIELD_OVERHEAD > self.table.size_max() / 2 {
            encode_literal(0x00, 0x0f, name, name_index, value, out);
            return;
        }
        encode_literal(0x40, 0x3f, name, name_index, value, out);
        let hashes = Hashes { name: name.hash, field: hash(name.hash, value) };
        self.changes += 1;
        self.table.insert(name.octets(), value, hashes);
    }

    /// Returns the index of an entry with this name; 0 if there is no such entry.
    #[inline]
    fn name_index(&self, name: FieldName<'_>) -> usize {
        if let Some(index) = name.id.static_index() {
            return index;
        }
        let same_name = |(age, hashes): &(usize, &Hashes)| hashes.name == name.hash && self.has_name(*age, name);
        self.table.notes().enumerate().find(same_name).map_or(0, |(age, _)| dynamic_index(age))
    }

    fn find(&self, name: FieldName<'_>, field_hash: u32, value: &[u8]) -> Found {
        let mut found = Found::Nothing;
        for (age, hashes) in self.table.notes().enumerate() {
            if hashes.field == field_hash
                && self.has_name(age, name)
                && self.table.entry(age).and_then(|entry| entry.octets.get(entry.name_len..)) == Some(value)
            {
                return Found::Field(age);
            }
            if hashes.name == name.hash && matches!(found, Found::Nothing) && self.has_name(age, name) {
                found = Found::Name(age);
            }
        }
        found
    }

    fn has_name(&self, age: usize, name: FieldName<'_>) -> bool {
        self.table.entry(age).and_then(|entry| entry.octets.get(..entry.name_len)) == Some(name.octets())
    }
}

/// Encodes a literal (RFC 7541 §6.2). `pattern` and `prefix_max` determine its kind: with incremental indexing, without
/// indexing, or never indexed.
fn encode_literal(
    pattern: u8,
    prefix_max: u8,
    name: FieldName<'_>,
    name_index: usize,
    value: &[u8],
    out: &mut Vec<u8>,
) {
    integer::encode_into(pattern, prefix_max, name_index, out);
    if name_index == 0 {
        encode_string(name.octets(), out);
    }
    encode_string(value, out);
}

/// Encodes a string, with Huffman where that is shorter (RFC 7541 §5.2).
fn encode_string(octets: &[u8], out: &mut Vec<u8>) {
    let huffman_len = huffman::encoded_len(octets);
    if huffman_len < octets.len() {
        integer::encode_into(0x80, 0x7f, huffman_len, out);
        huffman::encode_into(octets, out);
    } else {
        integer::encode_into(0x00, 0x7f, octets.len(), out);
        out.extend_from_slice(octets);
    }
}

fn dynamic_index(age: usize) -> usize {
    static_table::LEN + 1 + age
}

fn status_digits(status: u16) -> [u8; 3] {
    let digit = |number: u16| b'0' + (number % 10) as u8;
    [digit(status / 100), digit(status / 10), digit(status)]
}

const STATUS: FieldName<'static> = FieldName::new(b":status");
const _: () = assert!(matches!(STATUS.id, NameId::STATUS));

#[cfg(test)]
mod tests {
    use super::*;
    use crate::hpack::{Decoder, DecoderLimits, FieldBuf};

    const LIMITS: DecoderLimits = DecoderLimits { list_size_max: 1 << 20, list_size_abort: 1 << 20 };
    const CONTENT_TYPE: FieldName<'static> = FieldName::new(b"content-type");
    const CONTENT_LENGTH: FieldName<'static> = FieldName::new(b"content-length");
    const AUDIT_ID: FieldName<'static> = FieldName::new(b"audit-id");

    fn response(encoder: &mut Encoder, audit_id: &[u8]) -> Vec<u8> {
        let mut out = Vec::new();
        encoder.begin_block(&mut out);
        encoder.encode_status(200, &mut out);
        encoder.encode_field(CONTENT_TYPE, b"application/json", Indexing::Value, &mut out);
        encoder.encode_field(CONTENT_LENGTH, b"704", Indexing::Name, &mut out);
        encoder.encode_field(AUDIT_ID, audit_id, Indexing::Name, &mut out);
        out
    }

    #[test]
    fn a_repeated_head_is_a_few_octets() {
        let mut encoder = Encoder::new(4096);
        assert!(response(&mut encoder, b"0").len() > 20);
        // Octets: status 1, content-type 1, content-length 2 + 1 + 3, audit-id 2 + 1 + 1. The three numbers are the
        // index of the name, the length of the value, and the value (Huffman is no shorter).
        assert_eq!(response(&mut encoder, b"1").len(), 12);
        assert_eq!(response(&mut encoder, b"2").len(), 12);
    }

    #[test]
    fn changes_of_the_peers_table_size_are_announced_once() {
        let mut encoder = Encoder::new(4096);
        response(&mut encoder, b"0");
        encoder.set_peer_table_size(65_536);
        assert_eq!(response(&mut encoder, b"1").len(), 12, "our cap: nothing to announce");
        encoder.set_peer_table_size(0);
        let block = response(&mut encoder, b"1");
        assert_eq!(block[..2], [0x20, 0x88]);
        assert_eq!(response(&mut encoder, b"1")[0], 0x88, "announced once");
        encoder.set_peer_table_size(100);
        encoder.set_peer_table_size(4096);
        let block = response(&mut encoder, b"1");
        // The sizes 100 and 4096 follow the prefix 31: 0x45 is 100 - 31, and 0xe1 0x1f is 4096 - 31.
        assert_eq!(block[..6], [0x3f, 0x45, 0x3f, 0xe1, 0x1f, 0x88]);
        assert_eq!(Encoder::new(0).size_update.map(|update| update.last), Some(0));
    }

    #[test]
    fn a_secret_is_never_indexed() {
        let mut encoder = Encoder::new(4096);
        for _ in 0..2 {
            let mut out = Vec::new();
            encoder.encode_field(FieldName::new(b"authorization"), b"~~~", Indexing::Never, &mut out);
            assert_eq!(out, [0x1f, 23 - 15, 3, b'~', b'~', b'~']);
        }
        assert_eq!(encoder.table.len(), 0);
    }

    #[test]
    fn a_field_that_would_push_out_the_rest_is_not_indexed() {
        let mut encoder = Encoder::new(4096);
        response(&mut encoder, b"0");
        let mut out = Vec::new();
        encoder.encode_field(FieldName::new(b"x-large"), &[b'v'; 3000], Indexing::Value, &mut out);
        assert_eq!(out[0], 0x00);
        assert_eq!(response(&mut encoder, b"1").len(), 12);
    }

    #[test]
    fn every_status_round_trips() {
        let mut encoder = Encoder::new(4096);
        let mut decoder = Decoder::new(4096, LIMITS);
        let mut fields = FieldBuf::new();
        for status in 100..=999_u16 {
            let mut out = Vec::new();
            encoder.begin_block(&mut out);
            encoder.encode_status(status, &mut out);
            decoder.decode(&out, &mut fields).unwrap();
            assert_eq!(fields.field(0).unwrap().value, status.to_string().as_bytes());
        }
    }
}
