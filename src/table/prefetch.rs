//! Prefetching: brings several Leases that will soon be needed into the processor's caches at once.
//!
//! With many Leases, a Lease is rarely in a cache. A look-up goes from the index to the slab, the object and the
//! encoding. Each of these steps must read memory before the next address is known. With a million Leases, a renewal
//! spends half of its time waiting for memory. A prefetch makes one step for several Leases before it makes the next
//! step. So the processor waits for all of these Leases at once. A prefetch does the same for the events that a full
//! event log will drop. It affects only the caches, so a wrong or needless prefetch does no harm.

use super::change::Target;
use super::key_index::KeyHash;
use super::object::Object;
use super::{Slot, Table};
use std::hint::black_box;

/// The hashed key of a Lease that a request will need, if the Lease exists.
#[derive(Clone, Copy, Debug)]
pub struct PrefetchKey(KeyHash);

/// Maximum number of Leases to prefetch together. The processor cannot have more memory reads in flight.
pub const PREFETCH_MAX: usize = 16;

impl Table {
    /// Returns the key of this name, for [`Table::prefetch`].
    #[must_use]
    pub fn prefetch_key(&self, namespace: &str, name: &str) -> PrefetchKey {
        PrefetchKey(self.by_key.hash(namespace, name))
    }

    /// Brings the first [`PREFETCH_MAX`] of these Leases into the processor's caches. If the event log is full, each
    /// renewal drops the oldest event of the log. So this function also prefetches the oldest events, one for each of
    /// these Leases.
    pub fn prefetch(&self, keys: impl IntoIterator<Item = PrefetchKey>) {
        // All hashes are computed before the first look-up, since computing a hash takes long. So the look-ups follow
        // each other closely, and the processor waits for their memory at once.
        let mut hashes = [const { None }; PREFETCH_MAX];
        hashes.iter_mut().zip(keys).for_each(|(hash, PrefetchKey(key))| *hash = Some(key));
        let slots = hashes.map(|hash| self.by_key.find_by_hash(hash?));
        self.prefetch_slots(slots, |object| object.touch() + object.touch_encoding());
    }

    /// Brings the Leases that changes will renew, replace or delete into the processor's caches: those of the first
    /// [`PREFETCH_MAX`] targets. Leaves out their encodings, which [`Table::apply`] does not read. Prefetches events as
    /// [`Table::prefetch`] does.
    pub fn prefetch_targets(&self, targets: impl Iterator<Item = Target>) {
        let mut slots = [None; PREFETCH_MAX];
        slots.iter_mut().zip(targets).for_each(|(slot, target)| *slot = Some(target.slot));
        self.prefetch_slots(slots, Object::touch);
    }

    fn prefetch_slots(&self, slots: [Option<Slot>; PREFETCH_MAX], touch: impl Fn(&Object) -> usize) {
        // A slot may be empty, since the Lease of a target may have been deleted. `get` skips such a slot.
        let objects = || slots.iter().flatten().filter_map(|slot| self.entries.get(slot.0 as usize));
        black_box(objects().map(|object| object.version.0).fold(0, u64::wrapping_add));
        black_box(objects().map(touch).fold(0, usize::wrapping_add));
        black_box(self.log.touch_oldest(slots.iter().flatten().count()));
    }
}
