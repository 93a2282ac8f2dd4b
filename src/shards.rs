//! [`Shards`]: many small hash tables instead of a large one.
//!
//! A growing hash table moves all its entries at once. With a million entries, this takes 17 to 26 ms, and every
//! request would wait. So the hash of a key selects one of many small tables (shards). Each shard grows separately,
//! within some tens of microseconds.

/// Hash tables of type `T`, one of which a hash selects.
#[derive(Debug)]
pub(crate) struct Shards<T>(Box<[T]>);

/// Number of shards.
pub(crate) const SHARDS: usize = 256;

impl<T: Default> Default for Shards<T> {
    fn default() -> Self {
        Self((0..SHARDS).map(|_| T::default()).collect())
    }
}

impl<T> Shards<T> {
    /// Returns the shard for a hash.
    #[inline]
    pub(crate) fn of(&self, hash: u64) -> &T {
        &self.0[index_of(hash)]
    }

    /// Returns the shard for a hash.
    #[inline]
    pub(crate) fn of_mut(&mut self, hash: u64) -> &mut T {
        &mut self.0[index_of(hash)]
    }

    /// Returns all shards.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &T> {
        self.0.iter()
    }

    /// Returns all shards.
    pub(crate) fn iter_mut(&mut self) -> impl Iterator<Item = &mut T> {
        self.0.iter_mut()
    }
}

/// Returns the index of the shard for a hash. The index depends on bits of the hash that the shard's own table hardly
/// uses. A table uses the lowest bits and the highest seven bits.
#[inline]
fn index_of(hash: u64) -> usize {
    usize::try_from(hash >> 49).unwrap_or_default() % SHARDS
}

#[cfg(test)]
mod tests {
    use super::*;
    use foldhash::fast::RandomState;
    use std::hash::BuildHasher as _;

    #[test]
    fn hashes_spread_over_the_shards() {
        let hasher = RandomState::default();
        let mut shards = Shards::<Vec<u64>>::default();
        for number in 0..100 * SHARDS as u64 {
            let hash = hasher.hash_one(number);
            shards.of_mut(hash).push(number);
            assert_eq!(shards.of(hash).last(), Some(&number));
        }
        // The expected length of a shard is 100, with a standard deviation of 10. A good hash almost never produces a
        // length outside these bounds, which are seven standard deviations from 100.
        assert!(shards.iter().all(|shard| (30..170).contains(&shard.len())));
        shards.iter_mut().for_each(Vec::clear);
        assert!(shards.iter().all(Vec::is_empty));
    }
}
