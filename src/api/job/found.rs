//! The items found for one page of a list, and the metadata of that list.

use crate::api::token::ContinueToken;
use crate::codec::list_meta::ListMeta;
use crate::form::Form;
use crate::limits::{COLLECTED_BYTES_PER_STEP, JOB_KEYS_PER_STEP};
use crate::resource::ResourceVersion;
use crate::selector::Selector;
use crate::table::Table;
use crate::table::discard::States;
use crate::table::object::Object;
use crate::table::snapshot::{Forgotten, Snapshot, Stepped};

/// The items found so far for a page, and the snapshot in which the search for more continues.
#[derive(Debug)]
pub(super) struct Found {
    pub(super) snapshot: Snapshot,
    /// Maximum number of items on the page.
    pub(super) limit: usize,
    items: States,
    /// Sum of [`Form::list_item_len`] of all items, in bytes.
    pub(super) bytes: usize,
    /// What follows this page in the list; `None` until all items of the page are found.
    rest: Option<Rest>,
}

/// The rest of a list after a page.
#[derive(Debug)]
pub(super) struct Rest {
    token: ContinueToken,
    /// Number of Leases after the page that are counted so far. Unused if `token` already contains the number of
    /// remaining items.
    counted: usize,
}

impl Found {
    /// Creates an empty page of `snapshot` for at most `limit` items; 0 means no limit.
    pub(super) fn nothing(snapshot: Snapshot, limit: usize) -> Self {
        let limit = if limit == 0 { usize::MAX } else { limit };
        Self { items: snapshot.no_states(), snapshot, limit, bytes: 0, rest: None }
    }

    /// Returns the number of items that still fit on the page.
    pub(super) fn wanted(&self) -> usize {
        self.limit.saturating_sub(self.items.len())
    }

    /// Whether the page has as many items as its limit allows.
    pub(super) fn is_full(&self) -> bool {
        self.wanted() == 0
    }

    /// Adds an item to the page.
    pub(super) fn push(&mut self, object: Object, form: Form) {
        self.bytes += form.list_item_len(&object);
        self.items.push_back(object);
    }

    /// Removes and returns the items, so that the job can send them.
    pub(super) fn take_items(&mut self) -> States {
        std::mem::replace(&mut self.items, self.snapshot.no_states())
    }

    /// Adds the next items that `selector` matches to the page, as many as one step may collect.
    pub(super) fn collect(&mut self, table: &Table, selector: &Selector, form: Form) -> Result<Stepped, Forgotten> {
        if self.is_full() {
            return Ok(Stepped::More);
        }
        let Self { snapshot, limit, items, bytes, .. } = self;
        let bytes_max = *bytes + COLLECTED_BYTES_PER_STEP;
        snapshot.next(table, selector.share_of(JOB_KEYS_PER_STEP), |object| {
            if object.is_selected_by(selector) {
                *bytes += form.list_item_len(object);
                items.push_back(object.clone());
            }
            items.len() < *limit && *bytes < bytes_max
        })
    }

    /// Returns the metadata of the list, once all items of the page are found. `is_page` is true if another page may
    /// follow. Returns `None` if another step must continue to count the Leases after the page. The job counts them
    /// only if the request's `continue` token lacks the number of remaining items in this range. With a selector, the
    /// job never counts them. Without a token, the snapshot knows the number.
    pub(super) fn meta(
        &mut self,
        table: &Table,
        is_page: bool,
        selector: &Selector,
    ) -> Result<Option<OwnedMeta>, Forgotten> {
        let Self { snapshot, rest, .. } = self;
        let version = snapshot.version();
        if !is_page {
            return Ok(Some(OwnedMeta { version, next: String::new(), remaining: None }));
        }
        let Rest { token, counted } =
            rest.get_or_insert_with(|| Rest { token: ContinueToken::after(snapshot), counted: 0 });
        // With a selector, the server does not know how many of the remaining Leases match.
        let is_told = selector.is_everything();
        if is_told && token.remaining().is_none() {
            let count = |_: &Object| {
                *counted += 1;
                true
            };
            if snapshot.next(table, JOB_KEYS_PER_STEP, count)? == Stepped::More {
                return Ok(None);
            }
            token.set_remaining(*counted);
        }
        if token.remaining() == Some(0) {
            // Every Lease after this page was created after the `resourceVersion` of the list, so the list is complete.
            return Ok(Some(OwnedMeta { version, next: String::new(), remaining: None }));
        }
        let remaining = token.remaining().filter(|_| is_told).map(|remaining| remaining as u64);
        Ok(Some(OwnedMeta { version, next: token.encode(), remaining }))
    }
}

/// The metadata of a list. The job stores them until the end of the list, since in some forms they follow the items.
#[derive(Debug)]
pub(super) struct OwnedMeta {
    version: ResourceVersion,
    next: String,
    remaining: Option<u64>,
}

impl OwnedMeta {
    /// Returns the metadata for encoding. `shard` is the value of `shardInfo.selector`.
    pub(super) fn borrowed<'a>(&'a self, shard: &'a str) -> ListMeta<'a> {
        ListMeta { version: Some(self.version), next: &self.next, remaining: self.remaining, shard }
    }
}
