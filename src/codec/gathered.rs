//! Collects the lists and maps of an object's metadata while the decoder reads the body.

use crate::lease::{ObjectMeta, OwnerReference, StringMap};
use crate::limits::METADATA_ENTRIES_MAX;
use compact_str::CompactString;

/// The entries of the lists and maps in an object's metadata. The decoder moves the entries into the metadata at the
/// end of the body. So the decoder sorts the entries only once, even if the body repeats a field such as `labels` many
/// times.
#[derive(Debug, Default)]
pub(super) struct Entries<Text> {
    pub(super) labels: Gathered<(Text, Text)>,
    pub(super) annotations: Gathered<(Text, Text)>,
    pub(super) owners: Gathered<OwnerReference>,
    pub(super) finalizers: Gathered<CompactString>,
}

/// The entries of a list or a map. All entries are counted, but at most [`METADATA_ENTRIES_MAX`] entries are stored,
/// since the server refuses an object with more. Otherwise a body could fill the memory: an empty entry takes three
/// bytes in a body, but a hundred bytes in memory.
#[derive(Debug, Default)]
pub(super) struct Gathered<T> {
    kept: Vec<T>,
    count: usize,
}

impl<Text: Ord + Into<CompactString>> Entries<Text> {
    /// Moves all entries into `meta`. Returns the number of entries, including those whose key is repeated.
    pub(super) fn finish(self, meta: &mut ObjectMeta) -> usize {
        let count = self.labels.count + self.annotations.count + self.owners.count + self.finalizers.count;
        meta.labels = string_map(self.labels.kept);
        meta.annotations = string_map(self.annotations.kept);
        meta.owner_references = self.owners.kept;
        meta.finalizers = self.finalizers.kept;
        count
    }
}

impl<T> Gathered<T> {
    /// Counts the next entry. Stores it unless [`METADATA_ENTRIES_MAX`] entries are stored already.
    pub(super) fn push(&mut self, entry: T) {
        self.push_with(|| entry);
    }

    /// Counts the next entry. `entry` creates the entry, and is called only if the entry is stored.
    pub(super) fn push_with(&mut self, entry: impl FnOnce() -> T) {
        self.count += 1;
        if self.count <= METADATA_ENTRIES_MAX {
            self.kept.push(entry());
        }
    }

    /// Removes all entries, and counts from zero again.
    pub(super) fn clear(&mut self) {
        self.kept.clear();
        self.count = 0;
    }

    /// Returns the stored entries.
    pub(super) fn kept(&self) -> &[T] {
        &self.kept
    }
}

/// Creates a map from pairs of key and value. If a key is repeated, the map has its last value.
fn string_map<Text: Ord + Into<CompactString>>(mut pairs: Vec<(Text, Text)>) -> StringMap {
    if !pairs.is_sorted_by(|a, b| a.0 < b.0) {
        // The sort is stable, so the pairs of one key stay in their order. Then `collect` keeps the last one.
        pairs.sort_by(|a, b| a.0.cmp(&b.0));
    }
    pairs.into_iter().map(|(key, value)| (key.into(), value.into())).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_above_the_limit_are_counted_but_not_created() {
        let mut gathered = Gathered::default();
        for n in 0..METADATA_ENTRIES_MAX + 5 {
            gathered.push_with(|| {
                assert!(n < METADATA_ENTRIES_MAX);
                n
            });
        }
        assert_eq!((gathered.count, gathered.kept.len()), (METADATA_ENTRIES_MAX + 5, METADATA_ENTRIES_MAX));
    }

    #[test]
    fn all_entries_count_and_the_last_of_a_key_stays() {
        let mut entries = Entries::default();
        for pair in [("b", "1"), ("a", "2"), ("b", "3")] {
            entries.labels.push(pair);
        }
        entries.annotations.push(("c", ""));
        entries.finalizers.push("f".into());
        entries.owners.push(OwnerReference::default());
        let mut meta = ObjectMeta::default();
        assert_eq!(entries.finish(&mut meta), 6);
        assert_eq!(meta.labels.iter().collect::<Vec<_>>(), [("a", "2"), ("b", "3")]);
        assert_eq!((meta.annotations.len(), meta.finalizers.len(), meta.owner_references.len()), (1, 1, 1));
    }
}
