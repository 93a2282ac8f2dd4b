//! What a page of a list has found, and what the list says of itself when that is all.

use crate::api::token::ContinueToken;
use crate::codec::list_meta::ListMeta;
use crate::form::Form;
use crate::lease::ResourceVersion;
use crate::limits::JOB_KEYS_PER_STEP;
use crate::selector::Selector;
use crate::table::Table;
use crate::table::discard::States;
use crate::table::object::Object;
use crate::table::snapshot::{Forgotten, Snapshot};

/// Items of a list, and the bytes that they will take as far as that must be known.
#[derive(Debug)]
pub(super) struct Found {
    pub(super) items: States,
    pub(super) bytes: usize,
    /// What is behind them, once they are a full page.
    pub(super) rest: Option<Rest>,
}

/// What is left of a list behind a page.
#[derive(Debug)]
pub(super) struct Rest {
    token: ContinueToken,
    /// Leases of it that have been counted, where nobody knew how many there are.
    counted: usize,
}

impl Found {
    /// Nothing of `snapshot` yet.
    pub(super) fn nothing(snapshot: &Snapshot) -> Self {
        Self { items: snapshot.no_states(), bytes: 0, rest: None }
    }

    pub(super) fn push(&mut self, object: Object, form: Form) {
        self.bytes += form.list_item_len(&object);
        self.items.push_back(object);
    }

    /// What the list says of itself, now that its items are found; behind them there are more if `is_page`. `None` if
    /// another step must go on to count those: the token of a page whose version is gone does not know how many are left.
    pub(super) fn meta(
        &mut self,
        snapshot: &mut Snapshot,
        table: &Table,
        is_page: bool,
        selector: &Selector,
    ) -> Result<Option<OwnedMeta>, Forgotten> {
        let version = snapshot.version();
        if !is_page {
            return Ok(Some(OwnedMeta { version, next: String::new(), remaining: None }));
        }
        let Rest { token, counted } =
            self.rest.get_or_insert_with(|| Rest { token: ContinueToken::after(snapshot), counted: 0 });
        // With a selector nobody knows how many of them count.
        let is_told = selector.is_everything();
        if is_told && token.remaining().is_none() {
            let count = |_: &Object| {
                *counted += 1;
                true
            };
            if snapshot.next(table, JOB_KEYS_PER_STEP, count)? {
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
