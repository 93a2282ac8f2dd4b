//! The response head that was sent last, and its field block, for reuse. Responses within one second mostly have the
//! same fields, even the same `date`. The encoder would encode each of these fields as an index into the dynamic table.
//! To compare a head with the last head costs a fraction of the look-ups of all fields.

use super::SendField;
use crate::hpack::{Indexing, NameId};

/// A head and its encoded field block. Both are valid while the encoder's table does not change.
#[derive(Debug, Default)]
pub(super) struct HeadMemo {
    status: u16,
    /// Name of each field, and the end of its value in `values`.
    fields: Vec<(NameId, usize)>,
    values: Vec<u8>,
    block: Vec<u8>,
    /// [`Encoder::changes`](crate::hpack::Encoder::changes) when the head was stored.
    changes: u64,
}

/// Length of the longest block that is stored, in octets. Longer blocks belong to heads that do not recur.
const BLOCK_BYTES_MAX: usize = 64;

impl HeadMemo {
    /// If this head equals the stored head and the encoder has not changed since, appends the stored block and returns
    /// true.
    #[inline]
    pub(super) fn replay(&self, status: u16, fields: &[SendField<'_>], changes: u64, out: &mut Vec<u8>) -> bool {
        if status != self.status || changes != self.changes || fields.len() != self.fields.len() {
            return false;
        }
        let mut start = 0;
        for (field, (name, end)) in fields.iter().zip(&self.fields) {
            if field.name.id != *name || self.values.get(start..*end) != Some(field.value) {
                return false;
            }
            start = *end;
        }
        out.extend_from_slice(&self.block);
        true
    }

    /// Stores a head and its block for reuse. The caller checks that the encoding of the head changed nothing in the
    /// encoder. Otherwise the next head would need another block.
    pub(super) fn keep(&mut self, status: u16, fields: &[SendField<'_>], changes: u64, block: &[u8]) {
        // A head is stored only if all its values recur and all its names are known. So no secret value is stored, and
        // an id identifies each name.
        let is_plain = |field: &SendField<'_>| field.indexing == Indexing::Value && field.name.id != NameId::UNKNOWN;
        if block.len() > BLOCK_BYTES_MAX || !fields.iter().all(is_plain) {
            return;
        }
        (self.status, self.changes) = (status, changes);
        self.fields.clear();
        self.values.clear();
        for field in fields {
            self.values.extend_from_slice(field.value);
            self.fields.push((field.name.id, self.values.len()));
        }
        self.block.clear();
        self.block.extend_from_slice(block);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::hpack::{Encoder, FieldName};

    #[test]
    fn a_cached_head_is_replayed_only_for_equal_fields_and_table() {
        let field = |name: &'static [u8], value: &'static [u8]| SendField::repeated(FieldName::new(name), value);
        let fields = [field(b"content-type", b"application/json"), field(b"date", b"today")];
        let mut memo = HeadMemo::default();
        memo.keep(200, &fields, 7, b"block");
        let mut out = Vec::new();
        assert!(memo.replay(200, &fields, 7, &mut out));
        assert_eq!(out, b"block");
        let others = [field(b"content-type", b"application/json"), field(b"date", b"tomorrow")];
        let shifted = [field(b"content-type", b"application/jsonto"), field(b"date", b"day")];
        assert!(!memo.replay(201, &fields, 7, &mut out));
        assert!(!memo.replay(200, &fields, 8, &mut out));
        assert!(!memo.replay(200, &fields[..1], 7, &mut out));
        assert!(!memo.replay(200, &others, 7, &mut out));
        assert!(!memo.replay(200, &shifted, 7, &mut out));
        memo.keep(200, &[field(b"x-unknown", b"1")], 9, b"other");
        assert!(memo.replay(200, &fields, 7, &mut out), "the stored head stays if the new head cannot be stored");
    }

    #[test]
    fn the_change_count_rises_with_each_table_change() {
        let mut encoder = Encoder::new(4096);
        let mut out = Vec::new();
        let mut changes = encoder.changes();
        let mut is_changed = |encoder: &Encoder| std::mem::replace(&mut changes, encoder.changes()) != changes;
        encoder.encode_field(FieldName::new(b"date"), b"today", Indexing::Value, &mut out);
        assert!(is_changed(&encoder));
        encoder.encode_field(FieldName::new(b"date"), b"today", Indexing::Value, &mut out);
        assert!(!is_changed(&encoder));
        encoder.set_peer_table_size(100);
        assert!(is_changed(&encoder));
        encoder.begin_block(&mut out);
        assert!(is_changed(&encoder), "the block announces the table size");
        encoder.begin_block(&mut out);
        assert!(!is_changed(&encoder));
    }
}
