//! The table of Leases: slab, indexes, resourceVersion and event log.
//!
//! Owned here: the only state that matters. Taking the next version, changing the table and appending the event are
//! one call that cannot be half done. Nothing here knows requests, sockets or the clock.
//!
//! Invariant: slab, hash index, ordered index and counts speak of the same Leases; every version after the first has
//! exactly one event.

pub mod discard;
pub mod event_log;
mod history;
mod key_index;
pub mod object;
mod outlived;
mod prefetch;
pub mod snapshot;
mod usage;

use crate::lease::Lease;
use crate::lease::managed_fields::SharedTexts;
use crate::limits::{METERED_BYTES_MIN, OUTLIVED_BYTES_MAX, OUTLIVED_LOOKED_AT};
use crate::resource::ResourceVersion;
pub use prefetch::{PREFETCH_MAX, PrefetchKey};
pub use usage::QuotaExceeded;

use discard::Discard;
use event_log::{Event, EventLog};
use history::History;
use key_index::KeyIndex;
use object::{Key, Object, RenewedTimes};
use outlived::Outlived;
use slab::Slab;
use std::collections::BTreeMap;
use usage::Usage;

/// A place in the slab. Good until the Lease in it is deleted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Slot(u32);

/// All Leases, and how they came to be so.
#[derive(Debug)]
pub struct Table {
    entries: Slab<Object>,
    by_key: KeyIndex,
    ordered: BTreeMap<Key, Slot>,
    usage: Usage,
    log: EventLog,
    history: History,
    outlived: Outlived,
    discard: Discard,
    shared_texts: SharedTexts,
}

impl Table {
    /// An empty table at `version`, with a log of at most `events_max` events and about `bytes_max` bytes.
    #[must_use]
    pub fn new(version: ResourceVersion, events_max: usize, bytes_max: usize) -> Self {
        Self {
            entries: Slab::new(),
            by_key: KeyIndex::new(),
            ordered: BTreeMap::new(),
            usage: Usage::new(usize::MAX),
            log: EventLog::new(version, events_max, bytes_max),
            history: History::default(),
            outlived: Outlived::default(),
            discard: Discard::default(),
            shared_texts: SharedTexts::default(),
        }
    }

    /// The same, with a quota of so many bytes for what Leases may take outside
    /// [`CLUSTER_NAMESPACES`](crate::resource::CLUSTER_NAMESPACES).
    #[must_use]
    pub fn with_quota(self, bytes_max: usize) -> Self {
        Self { usage: Usage::new(bytes_max), ..self }
    }

    /// Version of the last change.
    #[must_use]
    pub fn version(&self) -> ResourceVersion {
        self.log.head()
    }

    /// The last changes.
    #[must_use]
    pub fn log(&self) -> &EventLog {
        &self.log
    }

    /// To be called when the log's events have been delivered to all who follow it, as far as they take them: gives
    /// [`EventLog::room`] anew.
    pub fn mark_delivered(&mut self) {
        self.log.mark_delivered();
    }

    /// States that were kept for lists and watches, and are to be let go of.
    #[must_use]
    pub fn discarded_len(&self) -> usize {
        self.discard.len() + self.history.released_len()
    }

    /// Lets go of `states_max` of them, or of all if there are fewer.
    pub fn discard_step(&self, states_max: usize) {
        self.discard.step(states_max);
        self.history.step(states_max);
    }

    /// Number of Leases.
    #[must_use]
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Whether there is no Lease.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Number of Leases in `namespace`.
    #[must_use]
    pub fn count_in(&self, namespace: &str) -> usize {
        self.usage.count_in(namespace)
    }

    /// Whether one of the Leases is [large](Object::is_large).
    #[must_use]
    pub fn has_large(&self) -> bool {
        self.usage.large() > 0
    }

    /// Bytes that count towards the quota, and how many may.
    #[must_use]
    pub fn metered_bytes(&self) -> (usize, usize) {
        self.usage.metered()
    }

    /// Whether lists under way hold so much of what the table has lost that it should lose no more, nor get what it
    /// could lose: `lease`, which is to be in `slot` or to be created, or what it replaces, is long. Looks at some of
    /// that again.
    pub fn is_outlived(&mut self, slot: Option<Slot>, lease: &Lease) -> bool {
        let bytes_max = self.log.bytes() + OUTLIVED_BYTES_MAX;
        if self.outlived.bytes() <= bytes_max {
            return false;
        }
        self.outlived.look(OUTLIVED_LOOKED_AT);
        let is_long = |lease: &Lease| Object::memory_bytes_max(lease.text_bytes()) > METERED_BYTES_MIN;
        self.outlived.bytes() > bytes_max
            && (is_long(lease) || slot.is_some_and(|slot| is_long(self.object(slot).unrenewed())))
    }

    /// Whether the quota lets `lease` take the place of what is in `slot`, or a new one.
    ///
    /// # Errors
    /// [`QuotaExceeded`]. What is there may always stay as long as it is.
    pub fn admit(&self, slot: Option<Slot>, lease: &Lease) -> Result<(), QuotaExceeded> {
        self.usage.admit(slot.map(|slot| self.object(slot)), lease)
    }

    /// The Lease of this name, and its place.
    #[must_use]
    pub fn find(&self, namespace: &str, name: &str) -> Option<(Slot, &Object)> {
        let slot = self.by_key.find(namespace, name, |slot| self.object(slot).key().is(namespace, name))?;
        Some((slot, self.object(slot)))
    }

    /// Adds a Lease that is not there.
    ///
    /// # Panics
    /// If it is there: two objects of one name would be handed out.
    pub fn create(&mut self, mut lease: Lease) -> Object {
        lease.metadata.managed_fields.share_texts(&mut self.shared_texts);
        let key = Key::new(&lease.metadata.namespace, &lease.metadata.name);
        let after = Object::new(key.clone(), self.next_version(), lease);
        let slot = Slot(u32::try_from(self.entries.insert(after.clone())).expect("memory ends long before 2^32"));
        let taken = self.ordered.insert(key.clone(), slot);
        assert!(taken.is_none(), "created a Lease that is there");
        let (namespace, name) = key.parts();
        self.by_key.insert(namespace, name, slot);
        self.usage.on_create(&after);
        self.end_change(None, &after, false);
        after
    }

    /// Puts `lease` in the place of what is in `slot`, which has the same namespace and name.
    pub fn replace(&mut self, slot: Slot, mut lease: Lease) -> Object {
        lease.metadata.managed_fields.share_texts(&mut self.shared_texts);
        let version = self.next_version();
        let place = &mut self.entries[slot.0 as usize];
        debug_assert!(place.key().is(&lease.metadata.namespace, &lease.metadata.name), "replaced another Lease");
        let after = Object::new(place.key().clone(), version, lease);
        let before = std::mem::replace(place, after.clone());
        self.usage.on_replace(&before, &after);
        self.outlived.push(&before);
        self.end_change(Some(before), &after, false);
        after
    }

    /// Puts in the place of what is in `slot` the same with other times.
    pub fn renew(&mut self, slot: Slot, times: RenewedTimes) -> Object {
        let version = self.next_version();
        let place = &mut self.entries[slot.0 as usize];
        let after = place.renewed(version, times);
        let before = std::mem::replace(place, after.clone());
        self.end_change(Some(before), &after, false);
        after
    }

    /// Takes a Lease away; gives its last state with the deletion's version.
    pub fn remove(&mut self, slot: Slot) -> Object {
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

    /// Keeps what a change took away, for those who need it, and appends the event.
    fn end_change(&mut self, before: Option<Object>, after: &Object, deleted: bool) {
        self.history.on_change(after.key(), before.as_ref(), after.version);
        self.log.append(Event::new(before, after.clone(), deleted));
        self.check_invariants();
    }

    fn history(&self) -> &History {
        &self.history
    }

    fn discard(&self) -> &Discard {
        &self.discard
    }

    /// What is in `slot`.
    fn object(&self, slot: Slot) -> &Object {
        &self.entries[slot.0 as usize]
    }

    fn next_version(&self) -> ResourceVersion {
        ResourceVersion(self.version().0 + 1)
    }

    /// Counts must match after every change. What costs the whole table is checked while it is small.
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
mod tests;
