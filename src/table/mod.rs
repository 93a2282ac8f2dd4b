//! The table of Leases in memory. It consists of a slab of the Leases, a hash index and an ordered index of their keys,
//! and the event log. It also stores the `resourceVersion` of the last change. "Version" means `resourceVersion` in
//! this module.
//!
//! [`Table::apply`] applies one change to one Lease. One call increments the version, changes the Lease in the slab,
//! updates the indexes, and appends an [`Event`] to the event log. So no caller can make one of these steps without the
//! others. The module depends on neither requests, sockets nor a clock.
//!
//! Invariants: the slab, both indexes and the counts of the quota describe the same Leases. Each change since the
//! table's first version has incremented the version by one, and has appended exactly one event.

pub mod change;
pub mod copy;
pub mod discard;
pub mod event_log;
mod history;
pub mod holder;
mod key_index;
pub mod object;
mod outlived;
mod prefetch;
pub mod snapshot;
mod usage;

use crate::lease::Lease;
use crate::lease::managed_fields::SharedTexts;
use crate::limits::{METERED_BYTES_MIN, OUTLIVED_BYTES_MAX, OUTLIVED_SWEPT_AT_ONCE};
use crate::resource::ResourceVersion;
pub use prefetch::{PREFETCH_MAX, PrefetchKey};
pub use usage::{NamespaceQuota, QuotaExceeded, Reserved};

use change::{Change, Rejected, Target};
use copy::{Copies, TableCopy};
use discard::Discard;
use event_log::{Event, EventLog};
use history::History;
use key_index::KeyIndex;
use object::{Key, Object, RenewedTimes};
use outlived::Outlived;
use slab::Slab;
use snapshot::Range;
use std::collections::BTreeMap;
use std::ops::Bound;
use usage::Usage;

/// Index of a Lease in the table's slab, valid until the Lease is deleted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Slot(u32);

/// All Leases with their indexes, and the log of their recent changes.
#[derive(Debug)]
pub struct Table {
    entries: Slab<Object>,
    by_key: KeyIndex,
    ordered: BTreeMap<Key, Slot>,
    usage: Usage,
    log: EventLog,
    history: History,
    copies: Copies,
    outlived: Outlived,
    discard: Discard,
    shared_texts: SharedTexts,
}

impl Table {
    /// Returns an empty table at `version`. Its event log holds at most `events_max` events and about `bytes_max`
    /// bytes.
    #[must_use]
    pub fn new(version: ResourceVersion, events_max: usize, bytes_max: usize) -> Self {
        Self {
            entries: Slab::new(),
            by_key: KeyIndex::new(),
            ordered: BTreeMap::new(),
            usage: Usage::new(usize::MAX),
            log: EventLog::new(version, events_max, bytes_max),
            history: History::default(),
            copies: Copies::default(),
            outlived: Outlived::default(),
            discard: Discard::default(),
            shared_texts: SharedTexts::default(),
        }
    }

    /// Sets the quota, in bytes, for the memory of Leases.
    #[must_use]
    pub fn with_quota(self, bytes_max: usize) -> Self {
        Self { usage: Usage::new(bytes_max), ..self }
    }

    /// Returns the version of the last change.
    #[must_use]
    pub fn version(&self) -> ResourceVersion {
        self.log.head()
    }

    /// Returns the event log: the log of recent changes.
    #[must_use]
    pub fn log(&self) -> &EventLog {
        &self.log
    }

    /// Records that all events so far are delivered, which resets [`EventLog::headroom`]. Call this function after
    /// every watcher has received as many events as its connection has space for.
    pub fn mark_delivered(&mut self) {
        self.log.mark_delivered();
    }

    /// Begins a copy of all Leases at the current version, which is read in steps.
    #[must_use]
    pub fn copy(&self) -> TableCopy {
        self.copies.begin(self.version(), self.discard.clone())
    }

    /// Returns the number of states of Leases that wait to be freed, or to be re-examined. Ended lists, watches and
    /// copies had kept these states.
    #[must_use]
    pub fn discarded_len(&self) -> usize {
        self.discard.len() + self.history.released_len()
    }

    /// Frees up to `states_max` states in the discard queue. Also re-examines up to `states_max` old states of Leases
    /// that the history kept for snapshots, and whose snapshots have ended. Frees those that no other snapshot needs.
    pub fn discard_step(&self, states_max: usize) {
        self.discard.step(states_max);
        self.history.step(states_max);
    }

    /// Frees a part of a table that is no longer used: up to `states_max` Leases, as many events, and as many states as
    /// [`Table::discard_step`]. Returns whether nothing is left. After the first call, the table may only be freed and
    /// dropped, since the hash index still refers to the freed Leases.
    pub(crate) fn free_step(&mut self, states_max: usize) -> bool {
        for _ in 0..states_max {
            self.log.drop_oldest();
            if let Some((_, slot)) = self.ordered.pop_first() {
                self.entries.remove(slot.0 as usize);
            }
        }
        self.discard_step(states_max);
        self.is_empty() && self.log.is_empty() && self.discarded_len() == 0
    }

    /// Returns the number of Leases.
    #[must_use]
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Whether the table holds no Lease.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Returns the number of Leases in `namespace`.
    #[must_use]
    pub fn count_in(&self, namespace: &str) -> usize {
        self.usage.count_in(namespace)
    }

    /// Whether any Lease is [large](Object::is_large).
    #[must_use]
    pub fn has_large(&self) -> bool {
        self.usage.large() > 0
    }

    /// Returns the bytes that count towards the quota, and the quota.
    #[must_use]
    pub fn metered_bytes(&self) -> (usize, usize) {
        self.usage.metered()
    }

    /// Re-examines the long Leases (above [`METERED_BYTES_MIN`] bytes of memory) that the table has replaced or
    /// deleted. A Lease that is no longer in memory no longer counts. Stops when running lists no longer hold too many
    /// bytes of these Leases. Also stops if the next [`OUTLIVED_SWEPT_AT_ONCE`] Leases are all still in memory.
    pub fn sweep_outlived(&mut self) {
        while self.has_too_much_outlived() && self.outlived.sweep(OUTLIVED_SWEPT_AT_ONCE) {}
    }

    /// Whether a write must be refused, because running lists still hold too many bytes of long Leases that the table
    /// has replaced or deleted. A write is refused only if `lease` is long, or if it replaces a long Lease in `slot`. A
    /// Lease is long above [`METERED_BYTES_MIN`] bytes of memory. Call [`Table::sweep_outlived`] first.
    #[must_use]
    pub fn must_refuse_long(&self, slot: Option<Slot>, lease: &Lease) -> bool {
        let is_long = |lease: &Lease| Object::memory_bytes_max(lease.text_bytes()) > METERED_BYTES_MIN;
        self.has_too_much_outlived()
            && (is_long(lease) || slot.is_some_and(|slot| is_long(self.object(slot).unrenewed())))
    }

    fn has_too_much_outlived(&self) -> bool {
        self.outlived.bytes() > self.log.bytes() + OUTLIVED_BYTES_MAX
    }

    /// Returns the namespace with the most bytes that count towards the quota. Examines every namespace.
    #[must_use]
    pub fn fullest_namespace(&self) -> NamespaceQuota {
        self.usage.fullest_namespace()
    }

    /// Checks that the quota has space for `lease`. `lease` replaces the Lease in `slot`, or is new. `reserved` bytes
    /// of the quota are reserved for other writes.
    ///
    /// # Errors
    /// [`QuotaExceeded`]. A Lease that does not grow always fits.
    pub fn check_quota(&self, slot: Option<Slot>, lease: &Lease, reserved: Reserved) -> Result<(), QuotaExceeded> {
        self.usage.check_quota(slot.map(|slot| self.object(slot)), lease, reserved)
    }

    /// Returns the Lease of this name, and its slot.
    #[must_use]
    pub fn find(&self, namespace: &str, name: &str) -> Option<(Slot, &Object)> {
        let slot = self.by_key.find(namespace, name, |slot| self.object(slot).key().is(namespace, name))?;
        Some((slot, self.object(slot)))
    }

    /// Returns the current Leases of a range, in the order of their keys. To read a long range in steps, use a
    /// [`Snapshot`](snapshot::Snapshot).
    pub fn iter<'t>(&'t self, range: &Range) -> impl Iterator<Item = &'t Object> + use<'t> {
        let (start, end) = range.bounds();
        let bounds = (Bound::Included(start.as_str()), end.as_ref().map(String::as_str));
        self.ordered.range::<str, _>(bounds).map(|(_, slot)| self.object(*slot))
    }

    /// Returns the current Leases whose keys are not less than `start`, in the order of their keys.
    pub fn iter_from<'t>(&'t self, start: &str) -> impl Iterator<Item = &'t Object> + use<'t> {
        self.ordered.range::<str, _>((Bound::Included(start), Bound::Unbounded)).map(|(_, slot)| self.object(*slot))
    }

    /// Applies a change at the next version, if the table still holds the state that the change was made from. No other
    /// method changes existing Leases.
    ///
    /// # Errors
    /// [`Rejected`]; the table is unchanged.
    #[inline]
    pub fn apply(&mut self, change: Change) -> Result<Object, Rejected> {
        match change {
            Change::Renew(target, times) => Ok(self.renew_in(self.slot_of(target)?, times)),
            Change::Replace(target, lease) => Ok(self.replace_in(self.slot_of(target)?, *lease)),
            Change::Create(lease) => match self.find(&lease.metadata.namespace, &lease.metadata.name) {
                None => Ok(self.add(*lease)),
                Some(_) => Err(Rejected),
            },
            Change::Delete(target) => Ok(self.remove_from(self.slot_of(target)?)),
        }
    }

    /// Sets the version of an empty table, before stored Leases are restored.
    ///
    /// # Panics
    /// If the table holds a Lease, or if its log holds an event.
    pub fn start_at(&mut self, version: ResourceVersion) {
        assert!(self.is_empty(), "a table with Leases already has a version");
        self.log.start_at(version);
    }

    /// Restores a stored Lease into a table without events. `number` is the version of the Lease's creation. `version`
    /// is the version of its last change.
    ///
    /// # Errors
    /// [`Rejected`] if a Lease of this name exists, if the log has an event, or if the versions are impossible, such as
    /// a version above the table's.
    pub fn restore(
        &mut self,
        number: ResourceVersion,
        version: ResourceVersion,
        lease: Lease,
    ) -> Result<Slot, Rejected> {
        let is_possible = self.log.is_empty() && number <= version && version <= self.version();
        if !is_possible || self.find(&lease.metadata.namespace, &lease.metadata.name).is_some() {
            return Err(Rejected);
        }
        let (slot, _) = self.insert(number, version, lease);
        self.check_invariants();
        Ok(slot)
    }

    /// Returns the namespace and name of the Lease that `change` creates, replaces, renews or deletes.
    #[inline]
    #[must_use]
    pub fn names_of<'t>(&'t self, change: &'t Change) -> (&'t str, &'t str) {
        match change {
            Change::Create(lease) | Change::Replace(_, lease) => (&lease.metadata.namespace, &lease.metadata.name),
            Change::Renew(target, _) | Change::Delete(target) => self.object(target.slot).key().parts(),
        }
    }

    /// Returns the current state of the Lease in `slot`, for a change that is made from this state.
    #[must_use]
    #[inline]
    pub fn target(&self, slot: Slot) -> Target {
        let object = self.object(slot);
        Target { slot, number: object.number(), from: object.version }
    }

    /// Returns the key of the Lease in `slot`.
    #[must_use]
    pub fn key(&self, slot: Slot) -> &Key {
        self.object(slot).key()
    }

    /// Returns by how many bytes `change` increases the bytes that count towards the quota.
    #[inline]
    #[must_use]
    pub fn metered_growth(&self, change: &Change) -> usize {
        match change {
            Change::Create(lease) => Usage::growth(None, lease),
            Change::Replace(target, lease) => Usage::growth(self.entries.get(target.slot.0 as usize), lease),
            Change::Renew(..) | Change::Delete(_) => 0,
        }
    }

    /// Returns the slot of the Lease that a change was made from, if the table still holds the same state of the Lease.
    #[inline]
    fn slot_of(&self, target: Target) -> Result<Slot, Rejected> {
        let object = self.entries.get(target.slot.0 as usize).ok_or(Rejected)?;
        // Only one state of one Lease has this version. So the version identifies the Lease too.
        if object.version != target.from {
            return Err(Rejected);
        }
        debug_assert_eq!(object.number(), target.number, "two Leases had one version");
        Ok(target.slot)
    }

    /// Adds a Lease. No Lease of its name exists.
    fn add(&mut self, lease: Lease) -> Object {
        let version = self.next_version();
        let (_, after) = self.insert(version, version, lease);
        self.end_change(None, &after, false);
        after
    }

    /// Inserts a Lease into the slab, the indexes and the counts.
    ///
    /// # Panics
    /// If a Lease of this name exists. A list would otherwise return two Leases with the same name.
    fn insert(&mut self, number: ResourceVersion, version: ResourceVersion, mut lease: Lease) -> (Slot, Object) {
        lease.metadata.managed_fields.share_texts(&mut self.shared_texts);
        let key = Key::new(&lease.metadata.namespace, &lease.metadata.name);
        let after = Object::new(key.clone(), number, version, lease);
        let slot = Slot(u32::try_from(self.entries.insert(after.clone())).expect("memory ends long before 2^32"));
        let taken = self.ordered.insert(key.clone(), slot);
        assert!(taken.is_none(), "created a Lease that is there");
        let (namespace, name) = key.parts();
        self.by_key.insert(namespace, name, slot);
        self.usage.on_create(&after);
        (slot, after)
    }

    /// Replaces the state in `slot` by `lease`, which has the same namespace and name.
    fn replace_in(&mut self, slot: Slot, mut lease: Lease) -> Object {
        lease.metadata.managed_fields.share_texts(&mut self.shared_texts);
        let version = self.next_version();
        let place = &mut self.entries[slot.0 as usize];
        debug_assert!(place.key().is(&lease.metadata.namespace, &lease.metadata.name), "replaced another Lease");
        let after = Object::new(place.key().clone(), place.number(), version, lease);
        let before = std::mem::replace(place, after.clone());
        self.usage.on_replace(&before, &after);
        self.outlived.push(&before);
        self.end_change(Some(before), &after, false);
        after
    }

    /// Replaces the times of the Lease in `slot`.
    #[inline]
    fn renew_in(&mut self, slot: Slot, times: RenewedTimes) -> Object {
        let version = self.next_version();
        let place = &mut self.entries[slot.0 as usize];
        let after = place.renewed(version, times);
        let before = std::mem::replace(place, after.clone());
        self.end_change(Some(before), &after, false);
        after
    }

    /// Removes a Lease. Returns the Lease's last state, with the deletion's version.
    fn remove_from(&mut self, slot: Slot) -> Object {
        let version = self.next_version();
        let before = self.entries.remove(slot.0 as usize);
        self.ordered.remove(before.key().as_str());
        let (namespace, name) = before.key().parts();
        self.by_key.remove(namespace, name, slot);
        self.usage.on_remove(&before);
        self.outlived.push(&before);
        let after = before.at_version(version);
        self.end_change(Some(before), &after, true);
        after
    }

    /// Passes the state before a change to the history, which keeps states for snapshots, and to the running copies.
    /// They store this state if they need it. Appends the event.
    fn end_change(&mut self, before: Option<Object>, after: &Object, deleted: bool) {
        self.history.on_change(after.key(), before.as_ref(), after.version);
        self.copies.on_change(before.as_ref());
        self.log.append(Event::new(before, after.clone(), deleted));
        self.check_invariants();
    }

    fn object(&self, slot: Slot) -> &Object {
        &self.entries[slot.0 as usize]
    }

    fn next_version(&self) -> ResourceVersion {
        ResourceVersion(self.version().0 + 1)
    }

    /// Checks the invariants in a debug build. Checks of the whole table run only while the table is small.
    fn check_invariants(&self) {
        if cfg!(debug_assertions) {
            assert_eq!(self.entries.len(), self.ordered.len(), "slab and ordered index");
            assert_eq!(self.entries.len(), self.by_key.len(), "slab and hash index");
            if self.entries.len() <= 64 {
                self.usage.check_against(&self.entries);
                for (key, slot) in &self.ordered {
                    let (namespace, name) = key.parts();
                    assert_eq!(self.find(namespace, name).map(|(s, _)| s), Some(*slot), "ordered and hash index");
                    assert!(self.object(*slot).version <= self.version(), "an object from the future");
                }
            }
        }
    }
}

#[cfg(test)]
impl Table {
    /// Creates a Lease, for tests.
    pub(crate) fn create(&mut self, lease: Lease) -> Object {
        self.apply(Change::Create(Box::new(lease))).expect("a name that is free")
    }

    /// Replaces the Lease in `slot`, for tests.
    pub(crate) fn replace(&mut self, slot: Slot, lease: Lease) -> Object {
        self.apply(Change::Replace(self.target(slot), Box::new(lease))).expect("the present state")
    }

    /// Creates a Lease or replaces the Lease of the same name, for tests.
    pub(crate) fn put(&mut self, lease: Lease) -> Object {
        match self.find(&lease.metadata.namespace, &lease.metadata.name).map(|(slot, _)| slot) {
            Some(slot) => self.replace(slot, lease),
            None => self.create(lease),
        }
    }

    /// Renews the Lease in `slot`, for tests.
    pub(crate) fn renew(&mut self, slot: Slot, times: RenewedTimes) -> Object {
        self.apply(Change::Renew(self.target(slot), times)).expect("the present state")
    }

    /// Deletes the Lease in `slot`, for tests.
    pub(crate) fn remove(&mut self, slot: Slot) -> Object {
        self.apply(Change::Delete(self.target(slot))).expect("the present state")
    }
}

#[cfg(test)]
mod tests;
