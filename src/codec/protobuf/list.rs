//! Lists in protobuf. The envelope's length stands before the first item, so the sizes of all items must be known when
//! the list begins: they are counted first, then sent.
//!
//! ```text
//! let items_len = items.map(lease_len).sum();             // or raw_item_len of bodies that are encoded already
//! ListHead { form, meta, items_len }.push(out);
//! for each item: push_lease_item(out, …);                 // or push_raw_item
//! ListHead::push_tail(out);
//! ```

use super::encode::{put_lease, put_partial};
use super::envelope::{TAIL, put_head};
use super::meta::put_list_meta;
use super::sink::{Count, LONG, SHORT, Sink, WireType, length, varint_width};
use crate::codec::list_meta::ListMeta;
use crate::codec::partial::LIST_KIND as PARTIAL_LIST_KIND;
use crate::lease::{Lease, ObjectMeta};
use crate::resource::{LIST_KIND, MetaVersion, ResourceVersion};

/// The kinds of list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ListForm<'a> {
    /// `LeaseList` of this `apiVersion`.
    Leases {
        /// `coordination.k8s.io/v1`, or an older version.
        api_version: &'a str,
    },
    /// `PartialObjectMetadataList`.
    Partial(MetaVersion),
}

impl ListForm<'_> {
    /// `apiVersion` and `kind`.
    fn type_meta(&self) -> (&str, &str) {
        match self {
            Self::Leases { api_version } => (api_version, LIST_KIND),
            Self::Partial(version) => (version.api_version(), PARTIAL_LIST_KIND),
        }
    }

    /// The field numbers of `items` and `metadata`, in the order in which they are written.
    fn items_first(&self) -> bool {
        // meta.k8s.io/v1beta1 has the two the other way round.
        matches!(self, Self::Partial(MetaVersion::V1Beta1))
    }

    fn items_field(&self) -> u8 {
        if self.items_first() { 1 } else { 2 }
    }
}

/// What a list says before its items.
#[derive(Clone, Copy, Debug)]
pub struct ListHead<'a> {
    /// Its kind.
    pub form: ListForm<'a>,
    /// Its metadata.
    pub meta: ListMeta<'a>,
    /// Sum of the sizes of all items that follow, as the `*_len` functions tell them.
    pub items_len: usize,
}

impl ListHead<'_> {
    /// Appends all that stands before the items.
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

    /// Appends all that stands behind the items.
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

/// Size of a Lease as an item of a list.
#[must_use]
pub fn lease_len(lease: &Lease, version: ResourceVersion) -> usize {
    let mut count = Count::default();
    count.put_message(2, LONG, |count| put_lease(count, lease, Some(version)));
    count.0
}

/// Bytes that [`lease_len`] does not pass, by a look at the texts of the Lease alone.
///
/// Each text stands there once, as long as it is, and the fields that there are once need less than 512 bytes. What
/// stands before a text is a tag and a length, of six bytes at the most; for the elements of lists and maps the memory
/// around their texts, which [`Lease::text_bytes`] counts, is more than these. The names in an entry of
/// `managedFields`, which it does not count if they are short, and the entry's other fields are less than twice the
/// memory of the entry.
#[must_use]
pub fn lease_len_max(lease: &Lease) -> usize {
    512 + 3 * lease.text_bytes()
}

/// Size of the metadata of a Lease as an item of a list.
#[must_use]
pub fn partial_len(meta: &ObjectMeta, version: ResourceVersion) -> usize {
    let mut count = Count::default();
    count.put_message(2, LONG, |count| put_partial(count, meta, Some(version)));
    count.0
}

/// Appends a Lease as an item.
pub fn push_lease_item(out: &mut Vec<u8>, lease: &Lease, version: ResourceVersion) {
    out.put_message(2, LONG, |out| put_lease(out, lease, Some(version)));
}

/// Appends the metadata of a Lease as an item.
pub fn push_partial_item(out: &mut Vec<u8>, meta: &ObjectMeta, version: ResourceVersion, form: ListForm<'_>) {
    out.put_message(form.items_field(), LONG, |out| put_partial(out, meta, Some(version)));
}

/// Size of an item whose message is encoded already (see [`super::raw_message`]).
#[must_use]
pub fn raw_item_len(message: &[u8]) -> usize {
    1 + varint_width(length(message.len())) + message.len()
}

/// Appends a Lease as an item, from its message.
pub fn push_raw_item(out: &mut Vec<u8>, message: &[u8]) {
    out.put_bytes(2, message);
}
