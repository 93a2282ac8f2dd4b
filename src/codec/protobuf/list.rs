//! Lists in protobuf. In the envelope, the length of the whole list comes before the list. So the caller first sums the
//! sizes of all items.
//!
//! ```text
//! let items_len = items.map(lease_len).sum();             // or raw_item_len of encoded bodies
//! let head = ListHead { form, meta, items_len };
//! head.push(out);
//! for each item: push_lease_item(out, …);                 // or push_raw_item
//! head.push_tail(out);
//! ```

use super::encode::{put_lease, put_partial};
use super::envelope::{TAIL, put_head};
use super::meta::put_list_meta;
use super::sink::{Count, LONG, SHORT, Sink, WireType, length, varint_width};
use crate::codec::list_meta::ListMeta;
use crate::codec::partial::LIST_KIND as PARTIAL_LIST_KIND;
use crate::lease::{Lease, ObjectMeta};
use crate::resource::{LIST_KIND, MetaVersion, ResourceVersion};

/// The kinds of lists.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ListForm<'a> {
    /// A `LeaseList`.
    Leases {
        /// `apiVersion` of the list: `coordination.k8s.io/v1`, or an older version.
        api_version: &'a str,
    },
    /// A `PartialObjectMetadataList` of this version of `meta.k8s.io`.
    Partial(MetaVersion),
}

impl ListForm<'_> {
    /// Returns `apiVersion` and `kind` of the list.
    fn type_meta(&self) -> (&str, &str) {
        match self {
            Self::Leases { api_version } => (api_version, LIST_KIND),
            Self::Partial(version) => (version.api_version(), PARTIAL_LIST_KIND),
        }
    }

    /// Whether the encoding has `items` before `metadata`.
    fn items_first(&self) -> bool {
        // Fields are encoded in the order of their numbers. `meta.k8s.io/v1beta1` swaps two numbers of `v1`: `items`
        // has number 1, and `metadata` has number 2.
        matches!(self, Self::Partial(MetaVersion::V1Beta1))
    }

    fn items_field(&self) -> u8 {
        if self.items_first() { 1 } else { 2 }
    }
}

/// A list without its items. It encodes the parts of the list before and after the items.
#[derive(Clone, Copy, Debug)]
pub struct ListHead<'a> {
    /// Kind of the list.
    pub form: ListForm<'a>,
    /// Metadata of the list.
    pub meta: ListMeta<'a>,
    /// Sum of the sizes of all items, in bytes. [`lease_len`], [`partial_len`] and [`raw_item_len`] return these sizes.
    pub items_len: usize,
}

impl ListHead<'_> {
    /// Appends the part of the list before its items.
    pub fn push(&self, out: &mut Vec<u8>) {
        let (api_version, kind) = self.form.type_meta();
        put_head(out, api_version, kind);
        let mut meta = Count::default();
        self.put_meta(&mut meta);
        out.put_key(2, WireType::Length);
        out.put_varint(length(meta.0 + self.items_len));
        if !self.form.items_first() {
            self.put_meta(out);
        }
    }

    /// Appends the part of the list after its items.
    pub fn push_tail(&self, out: &mut Vec<u8>) {
        if self.form.items_first() {
            self.put_meta(out);
        }
        out.put(TAIL);
    }

    fn put_meta<S: Sink>(&self, out: &mut S) {
        let field = if self.form.items_first() { 2 } else { 1 };
        out.put_message(field, SHORT, |out| put_list_meta(out, &self.meta));
    }
}

/// Returns the size of a Lease as an item of a list, in bytes.
#[must_use]
pub fn lease_len(lease: &Lease, version: ResourceVersion) -> usize {
    let mut count = Count::default();
    count.put_message(2, LONG, |count| put_lease(count, lease, Some(version)));
    count.0
}

/// Returns an upper bound of [`lease_len`], computed from the lengths of the texts in the Lease.
///
/// Why this is an upper bound:
///
/// - The encoding contains each text once.
/// - The fields that occur once take less than 512 bytes without their texts. Before each text there are a tag and a
///   length, which take at most six bytes together.
/// - For the elements of lists and maps, tags and lengths take fewer bytes than the elements take in memory.
///   [`Lease::text_bytes`] counts that memory.
/// - In an entry of `managedFields`, `text_bytes` does not count short names. These names and the other fields of the
///   entry take fewer bytes than twice the memory of the entry.
#[must_use]
pub fn lease_len_max(lease: &Lease) -> usize {
    512 + 3 * lease.text_bytes()
}

/// Returns the size of a Lease's metadata as an item of a list, in bytes.
#[must_use]
pub fn partial_len(meta: &ObjectMeta, version: ResourceVersion) -> usize {
    let mut count = Count::default();
    count.put_message(2, LONG, |count| put_partial(count, meta, Some(version)));
    count.0
}

/// Appends a Lease as an item of a list.
pub fn push_lease_item(out: &mut Vec<u8>, lease: &Lease, version: ResourceVersion) {
    out.put_message(2, LONG, |out| put_lease(out, lease, Some(version)));
}

/// Appends a Lease's metadata as an item of a list.
pub fn push_partial_item(out: &mut Vec<u8>, meta: &ObjectMeta, version: ResourceVersion, form: ListForm<'_>) {
    out.put_message(form.items_field(), LONG, |out| put_partial(out, meta, Some(version)));
}

/// Returns the size of an item of a list, in bytes. `message` is the encoded message of the item (see
/// [`super::raw_message`]).
#[must_use]
pub fn raw_item_len(message: &[u8]) -> usize {
    1 + varint_width(length(message.len())) + message.len()
}

/// Appends a Lease as an item of a list. `message` is the encoded message of the Lease.
pub fn push_raw_item(out: &mut Vec<u8>, message: &[u8]) {
    out.put_bytes(2, message);
}
