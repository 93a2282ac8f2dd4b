//! What a page of a list has found, and what the list says of itself when that is all.

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

/// Items of a list, from where on there may be more, and the bytes that they will take as far as that must be known.
#[derive(Debug)]
pub(super) struct Found {
    pub(super) snapshot: Snapshot,
    /// Maximum number of items.
    pub(super) limit: usize,
    items: States,
    pub(super) bytes: usize,
    /// What is behind them, once they are a full page.
    rest: Option<Rest>,
}

/// What is left of a list behind a page.
#[derive(Debug)]
pub(super) struct Rest {
    token: ContinueToken,
    /// Leases of it that have been counted, where nobody knew how many there are.
    counted: usize,
}

impl Found {
    /// Nothing of `snapshot` yet, of which at most `limit` items are wanted, or 0 for all.
    pub(super) fn nothing(snapshot: Snapshot, limit: usize) -> Self {
        let limit = if limit == 0 { usize::MAX } else { limit };
        Self { items: snapshot.no_states(), snapshot, limit, bytes: 0, rest: None }
    }

    /// Items that are still wanted.
    pub(super) fn wanted(&self) -> usize {
        self.limit.saturating_sub(self.items.len())
    }

    /// Whether no more is wanted.
    pub(super) fn is_full(&self) -> bool {
        self.wanted() == 0
    }

    pub(super) fn push(&mut self, object: Object, form: Form) {
        self.bytes += form.list_item_len(&object);
        self.items.push_back(object);
    }

    /// Takes what was found, to send it.
    pub(super) fn take_items(&mut self) -> States {
        std::mem::replace(&mut self.items, self.snapshot.no_states())
    }

    /// Collects the next of what `selector` takes.
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

    /// What the list says of itself, now that its items are found; behind them there are more if `is_page`. `None` if
    /// another step must go on to count those: the token of a page whose version is gone does not know how many are
    /// left.
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
        // With a selector nobody knows how many of them count.
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
            // What could still have come was created later than the version.
            return Ok(Some(OwnedMeta { version, next: String::new(), remaining: None }));
        }
        let remaining = token.remaining().filter(|_| is_told).map(|remaining| remaining as u64);
        Ok(Some(OwnedMeta { version, next: token.encode(), remaining }))
    }
}

/// What a list says of itself, kept until its end: in some forms it stands there.
#[derive(Debug)]
pub(super) struct OwnedMeta {
    version: ResourceVersion,
    next: String,
    remaining: Option<u64>,
}

impl OwnedMeta {
    pub(super) fn borrowed(&self) -> ListMeta<'_> {
        ListMeta { version: Some(self.version), next: &self.next, remaining: self.remaining }
    }
}
