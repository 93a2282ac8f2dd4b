//! A hash index from the namespace and name of a Lease to its slot. The index never grows as a whole.
//!
//! A single hash table that grows would move a million entries at once, and stop the event loop meanwhile. So the index
//! consists of [`Shards`]: many small hash tables, each of which grows separately.

use super::Slot;
use crate::shards::Shards;
use foldhash::fast::RandomState;
use hashbrown::HashTable;
use std::hash::{BuildHasher, Hasher};

/// Slots by namespace and name. The index stores only hashes of the names, since the Leases in the slots contain the
/// names.
#[derive(Debug)]
pub(super) struct KeyIndex {
    /// The shards. Each slot is stored with its hash, so that a shard can grow without reading the Leases.
    shards: Shards<HashTable<(KeyHash, Slot)>>,
    len: usize,
    hasher: RandomState,
}

/// Hash of a namespace and a name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct KeyHash(u32);

impl KeyHash {
    /// Hashes the parts of a key, without building the key.
    fn of(hasher: &RandomState, namespace: &str, name: &str) -> Self {
        let mut state = hasher.build_hasher();
        state.write(namespace.as_bytes());
        state.write_u8(b'/');
        state.write(name.as_bytes());
        let [a, b, c, d, ..] = state.finish().to_le_bytes();
        Self(u32::from_le_bytes([a, b, c, d]))
    }

    /// Returns the hash as the 64 bits that [`Shards`] and a [`HashTable`] need.
    fn bits(self) -> u64 {
        u64::from(self.0) << 32 | u64::from(self.0)
    }
}

impl KeyIndex {
    pub(super) fn new() -> Self {
        Self { shards: Shards::default(), len: 0, hasher: RandomState::default() }
    }

    pub(super) fn len(&self) -> usize {
        self.len
    }

    pub(super) fn hash(&self, namespace: &str, name: &str) -> KeyHash {
        KeyHash::of(&self.hasher, namespace, name)
    }

    /// Returns the slot of a key with this hash. Several keys may have the same hash, so the slot may be another key's.
    #[inline]
    pub(super) fn find_by_hash(&self, hash: KeyHash) -> Option<Slot> {
        self.shards.of(hash.bits()).find(hash.bits(), |(known, _)| *known == hash).map(|(_, slot)| *slot)
    }

    /// Returns the slot of this key. `is_it` returns whether a slot holds this key, since other keys may have the same
    /// hash.
    #[inline]
    pub(super) fn find(&self, namespace: &str, name: &str, is_it: impl Fn(Slot) -> bool) -> Option<Slot> {
        let hash = self.hash(namespace, name);
        let shard = self.shards.of(hash.bits());
        let (_, slot) = shard.find(hash.bits(), |(known, slot)| *known == hash && is_it(*slot))?;
        Some(*slot)
    }

    /// Adds a key that is not in the index.
    pub(super) fn insert(&mut self, namespace: &str, name: &str, slot: Slot) {
        let hash = self.hash(namespace, name);
        self.shards.of_mut(hash.bits()).insert_unique(hash.bits(), (hash, slot), |(hash, _)| hash.bits());
        self.len += 1;
    }

    /// Removes the key of `slot`.
    pub(super) fn remove(&mut self, namespace: &str, name: &str, slot: Slot) {
        let hash = self.hash(namespace, name);
        if let Ok(entry) = self.shards.of_mut(hash.bits()).find_entry(hash.bits(), |(_, other)| *other == slot) {
            entry.remove();
            self.len -= 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::shards::SHARDS;

    #[test]
    fn keys_are_found_in_their_slots_and_spread_over_the_tables() {
        let mut index = KeyIndex::new();
        let names: Vec<_> = (0..100 * SHARDS).map(|number| format!("node-{number}")).collect();
        for (at, name) in (0..).zip(&names) {
            index.insert("n", name, Slot(at));
        }
        assert_eq!(index.len(), names.len());
        for (at, name) in (0..).zip(&names) {
            assert_eq!(index.find("n", name, |slot| slot == Slot(at)), Some(Slot(at)));
            assert_eq!(index.find("n", name, |_| false), None);
            // The look-up finds another key's slot only if both keys have the same hash.
            let found = index.find_by_hash(index.hash("n", name)).map(|slot| &names[slot.0 as usize]);
            assert_eq!(found.map(|found| index.hash("n", found)), Some(index.hash("n", name)));
            assert_eq!(index.find("other", name, |slot| slot == Slot(at)), None);
        }
        // Each shard has about a hundred slots. A number outside these bounds would be seven standard deviations away.
        assert!(index.shards.iter().all(|shard| (30..170).contains(&shard.len())));
        for (at, name) in (0..).zip(&names).skip(1) {
            index.remove("n", name, Slot(at));
            assert_eq!(index.find("n", name, |slot| slot == Slot(at)), None);
        }
        assert_eq!((index.len(), index.find("n", "node-0", |_| true)), (1, Some(Slot(0))));
    }
}
