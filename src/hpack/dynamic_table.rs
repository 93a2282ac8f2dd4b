//! The dynamic table (RFC 7541 §2.3.2 and §4): first in, first out, with a limited size.
//!
//! All octets are in one vector, the arena, with the oldest entry first. So an insertion copies name and value without
//! allocation, and an eviction only advances `head`. Invariant: entries are adjacent and in order. The oldest entry
//! begins at `head`, and the newest entry ends at the arena's end.
//!
//! ```text
//!  arena  |-- evicted --|-- oldest --|-- … --|-- newest --|
//!         0            head                            arena.len()
//! ```
//! Once more than half of the arena is evicted, the remaining entries move to the start of the arena. This moves at
//! most as many octets as were evicted since the last move. So the average cost of an insertion stays constant.

use super::FIELD_OVERHEAD;
use std::collections::VecDeque;

/// The dynamic table. `T` is the note that the encoder or decoder stores with each entry.
#[derive(Debug)]
pub(super) struct DynamicTable<T> {
    arena: Vec<u8>,
    /// Index in the arena of the oldest entry's first octet.
    head: usize,
    /// Entries, oldest first.
    entries: VecDeque<Entry<T>>,
    /// Size of the table as in RFC 7541 §4.1, in octets; never above `size_max`.
    size: usize,
    size_max: usize,
}

#[derive(Clone, Copy, Debug)]
struct Entry<T> {
    /// Index in the arena of the entry's first octet.
    start: usize,
    name_len: usize,
    value_len: usize,
    note: T,
}

/// An entry returned by [`DynamicTable::entry`].
#[derive(Clone, Copy, Debug)]
pub(super) struct EntryRef<'t, T> {
    /// The name, directly followed by the value.
    pub(super) octets: &'t [u8],
    pub(super) name_len: usize,
    pub(super) note: T,
}

impl<T: Copy> DynamicTable<T> {
    pub(super) fn new(size_max: usize) -> Self {
        Self { arena: Vec::new(), head: 0, entries: VecDeque::new(), size: 0, size_max }
    }

    /// Returns the number of entries.
    #[cfg(any(test, debug_assertions))]
    pub(super) fn len(&self) -> usize {
        self.entries.len()
    }

    #[cfg(test)]
    pub(super) fn size(&self) -> usize {
        self.size
    }

    pub(super) fn size_max(&self) -> usize {
        self.size_max
    }

    /// Sets the size limit and evicts the entries above it (RFC 7541 §4.3).
    pub(super) fn set_size_max(&mut self, size_max: usize) {
        self.size_max = size_max;
        self.evict_to(size_max);
        self.check_invariants();
    }

    /// Returns the entry of age `age`. The newest entry has age 0.
    #[inline]
    pub(super) fn entry(&self, age: usize) -> Option<EntryRef<'_, T>> {
        let at = self.entries.len().checked_sub(age + 1)?;
        let entry = self.entries.get(at)?;
        let octets = self.arena.get(entry.start..entry.start + entry.name_len + entry.value_len)?;
        Some(EntryRef { octets, name_len: entry.name_len, note: entry.note })
    }

    /// Iterates over the notes of all entries, newest first.
    #[inline]
    pub(super) fn notes(&self) -> impl Iterator<Item = &T> {
        self.entries.iter().rev().map(|entry| &entry.note)
    }

    /// Evicts entries until the new entry fits, and inserts the new entry. An entry larger than the table only empties
    /// the table (RFC 7541 §4.4). Returns whether the entry was inserted.
    pub(super) fn insert(&mut self, name: &[u8], value: &[u8], note: T) -> bool {
        let entry_size = name.len() + value.len() + FIELD_OVERHEAD;
        let Some(rest_max) = self.size_max.checked_sub(entry_size) else {
            self.evict_to(0);
            return false;
        };
        self.evict_to(rest_max);
        if self.head > self.arena.len() - self.head {
            self.move_to_begin();
        }
        self.entries.push_back(Entry { start: self.arena.len(), name_len: name.len(), value_len: value.len(), note });
        self.arena.extend_from_slice(name);
        self.arena.extend_from_slice(value);
        self.size += entry_size;
        self.check_invariants();
        true
    }

    fn evict_to(&mut self, size_max: usize) {
        while self.size > size_max
            && let Some(entry) = self.entries.pop_front()
        {
            let octets = entry.name_len + entry.value_len;
            self.head += octets;
            self.size -= octets + FIELD_OVERHEAD;
        }
    }

    fn move_to_begin(&mut self) {
        let live = self.arena.len() - self.head;
        self.arena.copy_within(self.head.., 0);
        self.arena.truncate(live);
        for entry in &mut self.entries {
            entry.start -= self.head;
        }
        self.head = 0;
    }

    fn check_invariants(&self) {
        #[cfg(debug_assertions)]
        {
            let mut end = self.head;
            let mut size = 0;
            for entry in &self.entries {
                assert_eq!(entry.start, end, "entries are adjacent");
                end += entry.name_len + entry.value_len;
                size += entry.name_len + entry.value_len + FIELD_OVERHEAD;
            }
            assert_eq!(end, self.arena.len());
            assert_eq!(size, self.size);
            assert!(self.size <= self.size_max);
            assert!(self.len() <= self.size_max / FIELD_OVERHEAD);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_oldest_entry_is_evicted_first_and_the_newest_is_entry_0() {
        let mut table = DynamicTable::new(3 * 34);
        for value in b"abcde" {
            assert!(table.insert(b"n", &[*value], *value));
        }
        assert_eq!(table.len(), 3);
        assert_eq!(table.notes().copied().collect::<Vec<_>>(), b"edc");
        let newest = table.entry(0).unwrap();
        assert_eq!((newest.octets, newest.name_len, newest.note), (&b"ne"[..], 1, b'e'));
        assert_eq!(table.entry(2).unwrap().octets, b"nc");
        assert!(table.entry(3).is_none());
        assert!(table.entry(usize::MAX - 1).is_none());
    }

    #[test]
    fn an_entry_larger_than_the_table_empties_it() {
        let mut table = DynamicTable::new(100);
        assert!(table.insert(b"a", b"b", ()));
        assert!(!table.insert(b"a", &[0; 68], ()));
        assert_eq!((table.len(), table.size()), (0, 0));
        assert!(table.insert(b"a", &[0; 67], ()));
    }

    #[test]
    fn a_smaller_bound_evicts() {
        let mut table = DynamicTable::new(4096);
        for _ in 0..10 {
            table.insert(b"name", b"value", ());
        }
        table.set_size_max(100);
        assert_eq!((table.len(), table.size()), (2, 82));
        table.set_size_max(0);
        assert_eq!(table.len(), 0);
        assert!(!table.insert(b"", b"", ()));
    }

    #[test]
    fn the_arena_stays_small_under_churn() {
        let mut table = DynamicTable::new(4096);
        for round in 0..100_000_usize {
            table.insert(b"some-name", &[b'v'; 100][..round % 100], round);
            assert_eq!(table.entry(0).unwrap().note, round);
        }
        assert!(table.arena.capacity() <= 4 * 4096, "{}", table.arena.capacity());
    }
}
