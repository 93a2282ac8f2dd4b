//! Leases that will soon be asked for, looked at together.
//!
//! A Lease among many is in no cache, and each step to it (index, slab, object, encoding) must wait for the memory before
//! it says where the next one goes. For one request after the other these waits add up, among a million Leases to half of a
//! renewal. Here the first steps are made for several Leases before the next one is made for any, so that the processor
//! waits for many at a time; and likewise for the events that a full log will let go. Nothing comes of it but that the
//! caches have what is needed next: if it is wrong, or superfluous, no harm is done.

use super::key_index::KeyHash;
use super::object::Object;
use super::{Slot, Table};
use std::hint::black_box;

/// A Lease that will be asked for, if it exists.
#[derive(Clone, Copy, Debug)]
pub struct Wanted(KeyHash);

/// Leases looked at together: more than the processor can wait for at once are of no use.
pub const WANTED_MAX: usize = 16;

impl Table {
    /// The Lease of this name, for [`Table::look_ahead`].
    #[must_use]
    pub fn wanted(&self, namespace: &str, name: &str) -> Wanted {
        Wanted(self.by_key.hash(namespace, name))
    }

    /// Looks at the first [`WANTED_MAX`] of these, and at as many events as the log would let go if all were renewed.
    pub fn look_ahead(&self, wanted: impl IntoIterator<Item = Wanted>) {
        // All of them before the first look: what says what is wanted takes long.
        let mut hashes = [const { None }; WANTED_MAX];
        hashes.iter_mut().zip(wanted).for_each(|(hash, Wanted(wanted))| *hash = Some(wanted));
        let slots = hashes.map(|hash| self.by_key.guess(hash?));
        let objects = || slots.iter().flatten().map(|slot: &Slot| self.object(*slot));
        black_box(objects().map(|object| object.version.0).fold(0, u64::wrapping_add));
        black_box(objects().map(Object::look_at).fold(0, usize::wrapping_add));
        black_box(self.log.look_at_oldest(hashes.iter().flatten().count()));
    }
}
