//! The decoded fields of one block, in two reusable vectors.

use super::{FIELD_OVERHEAD, NameId};

/// A decoded field list. The caller owns the list and lends it to the decoder. The next block reuses the memory of the
/// list, until [`trim`](Self::trim) frees the memory. So decoding usually allocates nothing.
///
/// ```text
/// octets  :method PUT :path /apis/… accept application/json …
/// spans   [start 0, name 7, value 3] [start 10, name 5, value …] …
/// ```
#[derive(Clone, Debug, Default)]
pub struct FieldBuf {
    /// Names and values, each name directly before its value, in order of arrival.
    octets: Vec<u8>,
    spans: Vec<Span>,
    /// Size of all fields in octets, each with [`FIELD_OVERHEAD`].
    list_size: usize,
}

#[derive(Clone, Copy, Debug)]
struct Span {
    start: usize,
    name_len: usize,
    value_len: usize,
    traits: Traits,
}

/// Properties of a field. The decoder's dynamic table stores the properties with each entry. So the decoder does not
/// examine the octets of the entry again.
#[derive(Clone, Copy, Debug)]
pub(super) struct Traits {
    pub(super) name: NameId,
    /// See [`Field::well_formed`].
    pub(super) well_formed: bool,
}

/// One field of a [`FieldBuf`].
#[derive(Clone, Copy, Debug)]
pub struct Field<'f> {
    /// The name's id, if the name is known.
    pub id: NameId,
    /// The name.
    pub name: &'f [u8],
    /// The value.
    pub value: &'f [u8],
    /// Whether name and value consist only of octets that RFC 9113 §8.2.1 allows. A colon at the start of the name is
    /// also allowed, and so are blanks at the ends of the value.
    pub well_formed: bool,
}

impl FieldBuf {
    /// Creates an empty list.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Removes all fields, but does not free their memory.
    pub fn clear(&mut self) {
        self.octets.clear();
        self.spans.clear();
        self.list_size = 0;
    }

    /// Returns the number of fields.
    #[must_use]
    pub fn len(&self) -> usize {
        self.spans.len()
    }

    /// Whether the list contains no field.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.spans.is_empty()
    }

    /// Returns the `index`-th field, from 0.
    #[inline]
    #[must_use]
    pub fn field(&self, index: usize) -> Option<Field<'_>> {
        self.spans.get(index).and_then(|span| self.resolve(span))
    }

    /// Iterates over all fields, in order of arrival.
    pub fn iter(&self) -> impl Iterator<Item = Field<'_>> {
        self.spans.iter().filter_map(|span| self.resolve(span))
    }

    /// Returns the size that `SETTINGS_MAX_HEADER_LIST_SIZE` limits (RFC 9113 §6.5.2).
    #[must_use]
    pub fn list_size(&self) -> usize {
        self.list_size
    }

    /// Returns the size of the allocated memory, used or not, in bytes.
    #[must_use]
    pub fn memory_bytes(&self) -> usize {
        self.octets.capacity() + self.spans.capacity() * size_of::<Span>()
    }

    /// Frees unused memory, if the allocated memory exceeds `spare_bytes` plus twice the size of the list.
    pub fn trim(&mut self, spare_bytes: usize) {
        // A vector grows by doubling, so it may have twice the needed memory. A span needs no more memory than
        // [`FIELD_OVERHEAD`]. So twice `list_size` is enough for both vectors.
        if self.memory_bytes() > spare_bytes + 2 * self.list_size {
            self.octets.shrink_to_fit();
            self.spans.shrink_to_fit();
        }
    }

    #[inline]
    fn resolve(&self, span: &Span) -> Option<Field<'_>> {
        let both = self.octets.get(span.start..span.start + span.name_len + span.value_len)?;
        let (name, value) = both.split_at_checked(span.name_len)?;
        Some(Field { id: span.traits.name, name, value, well_formed: span.traits.well_formed })
    }

    /// Appends a copy of a field. `name` and `value` are outside this list.
    #[inline]
    pub(super) fn push(&mut self, name: &[u8], value: &[u8], traits: Traits) {
        let start = self.octets.len();
        self.octets.extend_from_slice(name);
        self.octets.extend_from_slice(value);
        self.record(Span { start, name_len: name.len(), value_len: value.len(), traits });
    }

    /// Appends a copy of a field. Its name and value are adjacent in `octets`, outside this list.
    #[inline]
    pub(super) fn push_joined(&mut self, octets: &[u8], name_len: usize, traits: Traits) {
        let start = self.octets.len();
        self.octets.extend_from_slice(octets);
        self.record(Span { start, name_len, value_len: octets.len().saturating_sub(name_len), traits });
    }

    /// Returns the vector to which the decoder appends the octets of an unfinished field. [`commit`](Self::commit)
    /// makes a field of these octets, and [`discard`](Self::discard) removes them.
    #[inline]
    pub(super) fn scratch(&mut self) -> &mut Vec<u8> {
        &mut self.octets
    }

    /// Returns the octets of an unfinished field, beginning at position `start` of the vector.
    #[inline]
    pub(super) fn uncommitted(&self, start: usize) -> &[u8] {
        self.octets.get(start..).unwrap_or_default()
    }

    /// Makes a field from the octets that begin at position `start` of the vector.
    #[inline]
    pub(super) fn commit(&mut self, start: usize, name_len: usize, traits: Traits) {
        let value_len = self.octets.len().saturating_sub(start + name_len);
        self.record(Span { start, name_len, value_len, traits });
    }

    /// Drops the octets of an unfinished field, beginning at position `start` of the vector.
    pub(super) fn discard(&mut self, start: usize) {
        self.octets.truncate(start);
    }

    #[inline]
    fn record(&mut self, span: Span) {
        self.list_size += span.name_len + span.value_len + FIELD_OVERHEAD;
        self.spans.push(span);
    }
}
