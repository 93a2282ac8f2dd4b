//! Prefetching: Leases that will soon be asked for are brought to the caches together.
//!
//! A Lease among many is in no cache, and each step to it (index, slab, object, encoding) must wait for the memory
//! before it says where the next one goes. For one request after the other these waits add up, among a million Leases
//! to half of a renewal. Here the first steps are made for several Leases before the next one is made for any, so that
//! the processor waits for many at a time; and likewise for the events that a full log will let go. Nothing comes of it
//! but that the caches have what is needed next: if it is wrong, or superfluous, no harm is done.

use super::change::Target;
use super::key_index::KeyHash;
use super::object::Object;
use super::{Slot, Table};
use std::hint::black_box;

/// A Lease that will be asked for, if it exists: its key, hashed.
#[derive(Clone, Copy, Debug)]
pub struct PrefetchKey(KeyHash);

/// Leases prefetched together: more than the processor can wait for at once are of no use.
pub const PREFETCH_MAX: usize = 16;

impl Table {
    /// The Lease of this name, for [`Table::prefetch`].
    #[must_use]
    pub fn prefetch_key(&self, namespace: &str, name: &str) -> PrefetchKey {
        PrefetchKey(self.by_key.hash(namespace, name))
    }

    /// Brings to the caches the first [`PREFETCH_MAX`] of these, and as many events as the log would let go if all were
    /// renewed.
    pub fn prefetch(&self, keys: impl IntoIterator<Item = PrefetchKey>) {
        // All of them before the first is touched: to give a key takes long.
        let mut hashes = [const { None }; PREFETCH_MAX];
        hashes.iter_mut().zip(keys).for_each(|(hash, PrefetchKey(key))| *hash = Some(key));
        let slots = hashes.map(|hash| self.by_key.find_by_hash(hash?));
        let objects = || slots.iter().flatten().map(|slot: &Slot| self.object(*slot));
        black_box(objects().map(|object| object.version.0).fold(0, u64::wrapping_add));
        black_box(objects().map(Object::touch).fold(0, usize::wrapping_add));
        black_box(self.log.touch_oldest(hashes.iter().flatten().count()));
    }

    /// Brings to the caches the states in the slots of the first [`PREFETCH_MAX`] targets. Answers need them too.
    pub fn prefetch_targets(&self, targets: impl Iterator<Item = Target>) {
        let objects = targets.take(PREFETCH_MAX).filter_map(|target| self.entries.get(target.slot.0 as usize));
        black_box(objects.map(Object::touch).fold(0, usize::wrapping_add));
    }
}
