//! Lost states: a change removed them from the table, and snapshots still need them. Each is kept once for all
//! snapshots.
//!
//! Each snapshot has a hold on its version and keys. A hold needs a removed state of one of its keys if the state
//! existed at its version. If a hold needs a removed state, the state is kept and charged to the newest such hold. So
//! the cost of a change does not depend on the number of running lists. When the hold ends, the state is charged to the
//! next older hold that needs it, or is freed. This happens in steps, like all freeing after a list
//! ([`discard`](crate::table::discard)).
//!
//! ```text
//!   versions        1    2    3    4    5    6    7
//!   states of a     a1 ────── a3 ──────────── a6          a1 was lost at 3, a3 at 6
//!   holds                H         H    H
//!   kept            a1 for the first hold, a3 charged to the last
//! ```

use crate::limits::HOLDS_LOOKED_AT;
use crate::resource::ResourceVersion;
use crate::table::discard::Pieces;
use crate::table::object::{Key, Object};
use std::cell::RefCell;
use std::collections::{BTreeMap, VecDeque};
use std::ops::Bound;
use std::rc::Rc;

/// The lost states. A clone is another handle to the same history.
#[derive(Clone, Debug, Default)]
pub(super) struct History(Rc<RefCell<Inner>>);

/// The lost states, and the holds that need them.
#[derive(Debug, Default)]
pub(super) struct Inner {
    /// The kept states. Each is charged to one hold, which may have ended.
    lost: Lost,
    holds: BTreeMap<HoldId, Held>,
    /// Number of holds ever made.
    numbered: u64,
    /// Losses charged to ended holds, while other holds remained.
    released: VecDeque<Pieces<Loss>>,
    /// Kept states and their losses from each time when the last hold ended. No snapshot needs them.
    unneeded: VecDeque<(Lost, VecDeque<Pieces<Loss>>)>,
    /// Number of losses in `released` and `unneeded`.
    released_len: usize,
}

/// The state of a key at a version, if this source has it. The outer `None` means that another source has the state.
/// The inner `None` means that no Lease existed.
pub(super) type Stood<'t> = Option<Option<&'t Object>>;

/// Each state by the change that removed it; `None` where no Lease existed.
type Lost = BTreeMap<Loss, Option<Object>>;

/// A change of the state at a key. Ordered by key, then by version.
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

/// Keeps states of one version that the table loses, in a range of keys, until the hold is dropped.
#[derive(Debug)]
pub(super) struct Hold {
    history: History,
    id: HoldId,
}

impl History {
    /// Begins to keep the states between `start` and `end` that changes after `version`, the current version, remove.
    pub(super) fn hold(&self, version: ResourceVersion, start: &str, end: &Bound<String>) -> Hold {
        let inner = &mut *self.0.borrow_mut();
        inner.numbered += 1;
        let id = HoldId { version, number: inner.numbered };
        let held = Held { start: start.to_owned(), end: end.clone(), losses: Pieces::default(), losses_len: 0 };
        inner.holds.insert(id, held);
        Hold { history: self.clone(), id }
    }

    /// Keeps the state that a change removes at `key`, if a hold needs it. Must be called for each change, in order.
    pub(super) fn on_change(&self, key: &Key, before: Option<&Object>, at: ResourceVersion) {
        let inner = &mut *self.0.borrow_mut();
        if inner.holds.is_empty() {
            return;
        }
        let Some(id) = inner.holder(key, since(before), at) else { return };
        // The Lease may have existed at the hold's version, and been deleted since.
        if before.is_none() && inner.loss_after(key, id.version) {
            return;
        }
        let loss = Loss { key: key.clone(), at };
        inner.lost.insert(loss.clone(), before.cloned());
        inner.charge(id, loss);
    }

    /// Number of states to re-examine, because the hold that needed them has ended.
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

    /// Number of kept states.
    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.0.borrow().lost.len()
    }
}

/// Returns the first version of a state. Returns 0 for the absence of a Lease, whose first version is unknown.
fn since(state: Option<&Object>) -> ResourceVersion {
    state.map_or(ResourceVersion(0), |object| object.version)
}

impl Inner {
    /// The newest hold that needs the state at `key` and whose version is from `since` on and before `until`. Checks
    /// the keys of a few holds only, so that the cost of a change does not grow with their number. If none of these
    /// holds has the key, returns the next hold unchecked.
    fn holder(&self, key: &Key, since: ResourceVersion, until: ResourceVersion) -> Option<HoldId> {
        let range = HoldId { version: since, number: 0 }..HoldId { version: until, number: 0 };
        let mut holds = self.holds.range(range).rev();
        let looked_at = holds.by_ref().take(HOLDS_LOOKED_AT).find(|(_, held)| held.wants(key));
        looked_at.or_else(|| holds.next()).map(|(id, _)| *id)
    }

    /// Whether the history keeps a state at `key` that a change after `version` removed.
    fn loss_after(&self, key: &Key, version: ResourceVersion) -> bool {
        let bound = |at| Bound::Excluded(Loss { key: key.clone(), at });
        self.lost.range((bound(version), bound(ResourceVersion(u64::MAX)))).next().is_some()
    }

    /// Takes the next loss that was charged to an ended hold. Also frees one state of `unneeded`, if one is left.
    fn pop_released(&mut self) -> Option<Loss> {
        let accounts = match self.unneeded.front_mut() {
            Some((lost, accounts)) => {
                // The states come in the order of keys, so no search is needed.
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

    /// The keys within the bounds that have lost states, in order. Each comes with its state at `version`, if that
    /// state was lost after `version`. Keys without such a state are included, so that the reader can count its work.
    pub(super) fn changes(
        &self,
        (start, end): (Bound<&str>, Bound<&str>),
        version: ResourceVersion,
    ) -> impl Iterator<Item = (&Key, Stood<'_>)> {
        let loss = |key, at| Loss { key: Key::from_text(key), at: ResourceVersion(at) };
        // No loss is at version 0 or at the maximum.
        let end = match end {
            Bound::Included(key) => Bound::Included(loss(key, u64::MAX)),
            Bound::Excluded(key) => Bound::Excluded(loss(key, 0)),
            Bound::Unbounded => Bound::Unbounded,
        };
        let mut losses = self.lost.range((start.map(|key| loss(key, 0)), end)).peekable();
        std::iter::from_fn(move || {
            let (Loss { key, at }, before) = losses.next()?;
            // The first loss after `version` is that of the state at `version`.
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
    /// The version whose states the hold keeps.
    pub(super) fn version(&self) -> ResourceVersion {
        self.id.version
    }

    /// Releases the keys before `start`.
    pub(super) fn advance(&self, start: &str) {
        if let Some(held) = self.history.0.borrow_mut().holds.get_mut(&self.id) {
            start.clone_into(&mut held.start);
        }
    }

    /// The kept states. While they are borrowed, no hold may begin, advance or end, and the table must not change.
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
