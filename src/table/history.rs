//! What the table has lost of the versions that snapshots are of, kept once for all of them.
//!
//! A state that a change takes away is of use to those who read a version at which it stood. Each change tells of one,
//! and it is kept if there is such a reader: that costs the same however many lists are under way. It is on the account
//! of the newest of them. When that ends it goes to the next older one that has a use for it, or is let go of; in
//! steps, as all that a list has held ([`discard`](crate::table::discard)).
//!
//! ```text
//!   versions        1    2    3    4    5    6    7
//!   states of a     a1 ────── a3 ──────────── a6          a1 was lost at 3, a3 at 6
//!   holds                H         H    H
//!   kept            a1 for the first hold, a3 on the account of the last
//! ```

use crate::limits::HOLDS_LOOKED_AT;
use crate::resource::ResourceVersion;
use crate::table::discard::Pieces;
use crate::table::object::{Key, Object};
use std::cell::RefCell;
use std::collections::{BTreeMap, VecDeque};
use std::ops::Bound;
use std::rc::Rc;

/// What stood before the present. A clone is another handle of the same.
#[derive(Clone, Debug, Default)]
pub(super) struct History(Rc<RefCell<Inner>>);

/// States that were lost, and who needs them.
#[derive(Debug, Default)]
pub(super) struct Inner {
    /// What is kept. Each is on one account, of a hold or of one that has ended.
    lost: Lost,
    holds: BTreeMap<HoldId, Held>,
    /// Holds that there have been.
    numbered: u64,
    /// Accounts of holds that have ended, while there were others.
    released: VecDeque<Pieces<Loss>>,
    /// What was kept when the last of all holds ended, and the accounts: nobody needs it.
    unneeded: VecDeque<(Lost, VecDeque<Pieces<Loss>>)>,
    /// Losses on the accounts in `released` and `unneeded`.
    released_len: usize,
}

/// What stood at a key at some version, or that nothing did; `None` if it is another's to say.
pub(super) type Stood<'t> = Option<Option<&'t Object>>;

/// What stood at a key until a version; none where nothing did.
type Lost = BTreeMap<Loss, Option<Object>>;

/// Where a change took something away. The order is that of keys, then of versions.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Loss {
    key: Key,
    /// Version of the change.
    at: ResourceVersion,
}

/// Its place in the order of versions, and its own among those of one version.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct HoldId {
    version: ResourceVersion,
    number: u64,
}

/// What a hold is about, and what is kept on its account.
#[derive(Debug)]
struct Held {
    start: String,
    end: Bound<String>,
    losses: Pieces<Loss>,
    losses_len: usize,
}

/// Keeps what the table loses of one version, in a range of keys, until it is dropped.
#[derive(Debug)]
pub(super) struct Hold {
    history: History,
    id: HoldId,
}

impl History {
    /// Keeps what changes after `version`, which is the present one, take away between `start` and `end`.
    pub(super) fn hold(&self, version: ResourceVersion, start: &str, end: &Bound<String>) -> Hold {
        let inner = &mut *self.0.borrow_mut();
        inner.numbered += 1;
        let id = HoldId { version, number: inner.numbered };
        let held = Held { start: start.to_owned(), end: end.clone(), losses: Pieces::default(), losses_len: 0 };
        inner.holds.insert(id, held);
        Hold { history: self.clone(), id }
    }

    /// A change takes away what stood at `key`: keeps it if somebody needs it. Each change must be told, in order.
    pub(super) fn on_change(&self, key: &Key, before: Option<&Object>, at: ResourceVersion) {
        let inner = &mut *self.0.borrow_mut();
        if inner.holds.is_empty() {
            return;
        }
        let Some(id) = inner.holder(key, since(before), at) else { return };
        // That nothing was there may have been so for less long than the hold.
        if before.is_none() && inner.loss_after(key, id.version) {
            return;
        }
        let loss = Loss { key: key.clone(), at };
        inner.lost.insert(loss.clone(), before.cloned());
        inner.charge(id, loss);
    }

    /// States that are to be looked at again, since who needed them has gone.
    pub(super) fn released_len(&self) -> usize {
        self.0.borrow().released_len
    }

    /// Looks at `states_max` of them again, and lets go of those that nobody else needs.
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

    /// States that are kept.
    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.0.borrow().lost.len()
    }
}

/// The first version of a state. How long nothing was at a key nobody knows.
fn since(state: Option<&Object>) -> ResourceVersion {
    state.map_or(ResourceVersion(0), |object| object.version)
}

impl Inner {
    /// The newest hold of a version from `since` on and before `until` that has a use for what was at `key`. With many
    /// of other keys it may be one that has not: a change is not to cost more with more of them.
    fn holder(&self, key: &Key, since: ResourceVersion, until: ResourceVersion) -> Option<HoldId> {
        let range = HoldId { version: since, number: 0 }..HoldId { version: until, number: 0 };
        let mut holds = self.holds.range(range).rev();
        let looked_at = holds.by_ref().take(HOLDS_LOOKED_AT).find(|(_, held)| held.wants(key));
        looked_at.or_else(|| holds.next()).map(|(id, _)| *id)
    }

    /// Whether it is kept what a change after `version` took away at `key`.
    fn loss_after(&self, key: &Key, version: ResourceVersion) -> bool {
        let bound = |at| Bound::Excluded(Loss { key: key.clone(), at });
        self.lost.range((bound(version), bound(ResourceVersion(u64::MAX)))).next().is_some()
    }

    /// Takes the next loss from the accounts of holds that have ended. What nobody needs is let go of.
    fn pop_released(&mut self) -> Option<Loss> {
        let accounts = match self.unneeded.front_mut() {
            Some((lost, accounts)) => {
                // In the order of the keys it need not be searched for.
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

    /// The keys within `bounds` where something was lost, in their order: with what stood there at `version`, if that
    /// was lost since. Those where it was not are given too, so that whoever reads can tell how much was looked at.
    pub(super) fn changes(
        &self,
        (start, end): (Bound<&str>, Bound<&str>),
        version: ResourceVersion,
    ) -> impl Iterator<Item = (&Key, Stood<'_>)> {
        let loss = |key, at| Loss { key: Key::from_text(key), at: ResourceVersion(at) };
        // No loss is at version 0, nor at the last.
        let end = match end {
            Bound::Included(key) => Bound::Included(loss(key, u64::MAX)),
            Bound::Excluded(key) => Bound::Excluded(loss(key, 0)),
            Bound::Unbounded => Bound::Unbounded,
        };
        let mut losses = self.lost.range((start.map(|key| loss(key, 0)), end)).peekable();
        std::iter::from_fn(move || {
            let (Loss { key, at }, before) = losses.next()?;
            // The first that was lost after that version: what was lost later came later.
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
    /// The version whose states it keeps.
    pub(super) fn version(&self) -> ResourceVersion {
        self.id.version
    }

    /// Of keys before `start` no more is needed.
    pub(super) fn advance(&self, start: &str) {
        if let Some(held) = self.history.0.borrow_mut().holds.get_mut(&self.id) {
            start.clone_into(&mut held.start);
        }
    }

    /// What is kept. While that is looked at no hold may begin, move or end, nor the table change.
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
