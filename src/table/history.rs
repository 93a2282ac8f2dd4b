//! [`History`] keeps lost states of Leases for snapshots. A state is lost when a change replaces or removes it in the
//! table. A snapshot, by which a list reads the Leases of one version in steps, may still need a lost state. The
//! history keeps a lost state once for all snapshots that need it.
//!
//! Each snapshot has a hold: a version and a range of keys. A hold needs a lost state if the state has one of the
//! hold's keys and existed at the hold's version. A lost state is charged to the newest hold that needs it. No other
//! hold records the state, so the cost of a change does not depend on the number of running lists. When this hold ends,
//! the state is charged to the next older hold that needs it. If no hold needs it, the state is freed. The states of an
//! ended hold are re-examined in steps, like all freeing after a list ([`discard`](crate::table::discard)).
//!
//! ```text
//!   versions        1    2    3    4    5    6    7
//!   states of a     a1 ────── a3 ──────────── a6          a1 was lost at 3, a3 at 6
//!   holds                H         H    H
//!   kept            a1, charged to the first hold; a3, charged to the last hold
//! ```

use crate::limits::HOLDS_LOOKED_AT;
use crate::resource::ResourceVersion;
use crate::table::discard::Pieces;
use crate::table::object::{Key, Object};
use std::cell::RefCell;
use std::collections::{BTreeMap, VecDeque};
use std::ops::Bound;
use std::rc::Rc;

/// The history: the lost states of Leases that snapshots still need. A clone is another handle to the same history.
#[derive(Clone, Debug, Default)]
pub(super) struct History(Rc<RefCell<Inner>>);

/// The lost states, and the holds that need them.
#[derive(Debug, Default)]
pub(super) struct Inner {
    /// Lost states that are kept for holds. Each state is charged to one hold, which may have ended.
    lost: Lost,
    holds: BTreeMap<HoldId, Held>,
    /// Number of holds ever made.
    numbered: u64,
    /// Losses to re-examine. Each of them was charged to a hold that ended while other holds remained.
    released: VecDeque<Pieces<Loss>>,
    /// Lost states that no hold needs any more, with the losses that are still queued for them. When the last hold
    /// ends, one item is added.
    unneeded: VecDeque<(Lost, VecDeque<Pieces<Loss>>)>,
    /// Number of losses in `released` and `unneeded`.
    released_len: usize,
}

/// The state of a Lease at a snapshot's version, as far as one source knows the state. Sources are the table, the
/// history and the event log. The outer `None` means that this source does not know the state. The inner `None` means
/// that no Lease existed at that version.
pub(super) type Stood<'t> = Option<Option<&'t Object>>;

/// Lost states, by their loss. The state is `None` if no Lease existed before the change.
type Lost = BTreeMap<Loss, Option<Object>>;

/// A loss: a change that replaced or removed the state at a key. Ordered by key, then by version.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Loss {
    key: Key,
    /// Version of the change.
    at: ResourceVersion,
}

/// Identity of a hold. Ordered by version, then by number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct HoldId {
    version: ResourceVersion,
    number: u64,
}

/// The keys of a hold, and the losses charged to it.
#[derive(Debug)]
struct Held {
    start: String,
    end: Bound<String>,
    losses: Pieces<Loss>,
    losses_len: usize,
}

/// A hold on one version and a range of keys. Until the hold is dropped, the history keeps the states of this version
/// that the table loses in this range.
#[derive(Debug)]
pub(super) struct Hold {
    history: History,
    id: HoldId,
}

impl History {
    /// Begins a hold on the keys between `start` and `end` at `version`, which is the current version.
    pub(super) fn hold(&self, version: ResourceVersion, start: &str, end: &Bound<String>) -> Hold {
        let inner = &mut *self.0.borrow_mut();
        inner.numbered += 1;
        let id = HoldId { version, number: inner.numbered };
        let held = Held { start: start.to_owned(), end: end.clone(), losses: Pieces::default(), losses_len: 0 };
        inner.holds.insert(id, held);
        Hold { history: self.clone(), id }
    }

    /// Stores `before` if a hold needs this state. A change at version `at` has replaced or removed `before`, the state
    /// at `key`. Must be called for each change, in order.
    pub(super) fn on_change(&self, key: &Key, before: Option<&Object>, at: ResourceVersion) {
        let inner = &mut *self.0.borrow_mut();
        if inner.holds.is_empty() {
            return;
        }
        let Some(id) = inner.holder(key, since(before), at) else { return };
        // The change created a Lease. A Lease of the same name may have existed at the hold's version, and have been
        // deleted later. In this case, the history has already stored the state at the hold's version.
        if before.is_none() && inner.loss_after(key, id.version) {
            return;
        }
        let loss = Loss { key: key.clone(), at };
        inner.lost.insert(loss.clone(), before.cloned());
        inner.charge(id, loss);
    }

    /// Returns the number of lost states to re-examine, because the hold that they were charged to has ended.
    pub(super) fn released_len(&self) -> usize {
        self.0.borrow().released_len
    }

    /// Re-examines up to `states_max` states of ended holds, and frees those that no hold needs.
    pub(super) fn step(&self, states_max: usize) {
        let inner = &mut *self.0.borrow_mut();
        for _ in 0..states_max {
            let Some(loss) = inner.pop_released() else { break };
            let Some(before) = inner.lost.get(&loss) else { continue };
            match inner.holder(&loss.key, since(before.as_ref()), loss.at) {
                Some(id) => inner.charge(id, loss),
                None => _ = inner.lost.remove(&loss),
            }
        }
    }

    /// Returns the number of lost states that the history stores.
    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.0.borrow().lost.len()
    }
}

/// Returns the first version of a state. Returns 0 if no Lease existed, since the first version without the Lease is
/// unknown.
fn since(state: Option<&Object>) -> ResourceVersion {
    state.map_or(ResourceVersion(0), |object| object.version)
}

impl Inner {
    /// Returns the newest hold on `key` with a version from `since` on and before `until`. Checks only the keys of the
    /// newest [`HOLDS_LOOKED_AT`] holds, so that the cost of a change does not grow with the number of holds. If none
    /// of these holds includes `key`, returns the next older hold without a check of its keys. The history may then
    /// keep a state that this hold does not need.
    fn holder(&self, key: &Key, since: ResourceVersion, until: ResourceVersion) -> Option<HoldId> {
        let range = HoldId { version: since, number: 0 }..HoldId { version: until, number: 0 };
        let mut holds = self.holds.range(range).rev();
        let looked_at = holds.by_ref().take(HOLDS_LOOKED_AT).find(|(_, held)| held.wants(key));
        looked_at.or_else(|| holds.next()).map(|(id, _)| *id)
    }

    /// Whether the history keeps a state at `key` that a change after `version` replaced or removed.
    fn loss_after(&self, key: &Key, version: ResourceVersion) -> bool {
        let bound = |at| Bound::Excluded(Loss { key: key.clone(), at });
        self.lost.range((bound(version), bound(ResourceVersion(u64::MAX)))).next().is_some()
    }

    /// Removes and returns the next loss that was charged to an ended hold. Also frees one state in `unneeded`, if a
    /// state is left there.
    fn pop_released(&mut self) -> Option<Loss> {
        let accounts = match self.unneeded.front_mut() {
            Some((lost, accounts)) => {
                // Frees the first state by key, whether or not it belongs to the removed loss. All of these states are
                // freed in the end, so no search is needed.
                lost.pop_first();
                accounts
            }
            None => &mut self.released,
        };
        let account = accounts.front_mut()?;
        let loss = account.pop_front();
        if account.is_empty() {
            accounts.pop_front();
        }
        if accounts.is_empty() {
            self.unneeded.pop_front();
        }
        self.released_len -= 1;
        loss
    }

    fn charge(&mut self, id: HoldId, loss: Loss) {
        if let Some(held) = self.holds.get_mut(&id) {
            held.losses.push_back(loss);
            held.losses_len += 1;
        }
    }

    /// Returns the keys within the bounds that have lost states, in order. Returns each key with its state at
    /// `version`, if this state was lost after `version`. Includes keys without such a state, so that the caller can
    /// count the examined keys.
    pub(super) fn changes(
        &self,
        (start, end): (Bound<&str>, Bound<&str>),
        version: ResourceVersion,
    ) -> impl Iterator<Item = (&Key, Stood<'_>)> {
        let loss = |key, at| Loss { key: Key::from_text(key), at: ResourceVersion(at) };
        // No loss has version 0 or the maximum version. So these versions bound the losses of a key.
        let end = match end {
            Bound::Included(key) => Bound::Included(loss(key, u64::MAX)),
            Bound::Excluded(key) => Bound::Excluded(loss(key, 0)),
            Bound::Unbounded => Bound::Unbounded,
        };
        let mut losses = self.lost.range((start.map(|key| loss(key, 0)), end)).peekable();
        std::iter::from_fn(move || {
            let (Loss { key, at }, before) = losses.next()?;
            // The first loss after `version` is the loss of the state at `version`.
            let mut stood = (*at > version).then_some(before.as_ref());
            while let Some((Loss { at, .. }, before)) = losses.next_if(|(loss, _)| loss.key == *key) {
                stood = stood.or_else(|| (*at > version).then_some(before.as_ref()));
            }
            Some((key, stood))
        })
    }
}

impl Held {
    fn wants(&self, key: &Key) -> bool {
        let key = key.as_str();
        self.start.as_str() <= key
            && match &self.end {
                Bound::Included(end) => key <= end.as_str(),
                Bound::Excluded(end) => key < end.as_str(),
                Bound::Unbounded => true,
            }
    }
}

impl Hold {
    /// Returns the version of the table whose states of Leases the hold needs.
    pub(super) fn version(&self) -> ResourceVersion {
        self.id.version
    }

    /// Reduces the hold to the keys from `start` on, since the snapshot has read the keys before.
    pub(super) fn advance(&self, start: &str) {
        if let Some(held) = self.history.0.borrow_mut().holds.get_mut(&self.id) {
            start.clone_into(&mut held.start);
        }
    }

    /// Borrows the history. Meanwhile, no hold may begin, advance or end, and the table must not change.
    pub(super) fn history(&self) -> std::cell::Ref<'_, Inner> {
        self.history.0.borrow()
    }
}

impl Drop for Hold {
    fn drop(&mut self) {
        let inner = &mut *self.history.0.borrow_mut();
        if let Some(held) = inner.holds.remove(&self.id)
            && held.losses_len > 0
        {
            inner.released_len += held.losses_len;
            inner.released.push_back(held.losses);
        }
        if inner.holds.is_empty() && !inner.lost.is_empty() {
            inner.unneeded.push_back((std::mem::take(&mut inner.lost), std::mem::take(&mut inner.released)));
        }
    }
}
