//! How far a table has come: the state of the journal beside the table.

use super::entry::Header;
use super::seal;
use crate::engine::Position;
use crate::resource::ResourceVersion;
use std::collections::BTreeMap;

/// What has been applied to a table.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Applied {
    /// Position of the last entry; 0 if there was none.
    pub(super) position: Position,
    /// Hash of all that was applied: two tables with the same chain hold the same.
    pub(super) chain: u64,
    pub(super) writers: Writers,
}

/// What an entry is to those before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Order {
    /// The next one of its writer.
    Next,
    /// One that has been applied, appended again: it is passed over.
    Duplicate,
    /// One before it is missing.
    Gap {
        /// The sequence that should be there.
        expected: u64,
    },
}

impl Applied {
    /// What an entry is to those that were applied.
    pub(super) fn order(&self, header: &Header) -> Order {
        let expected = self.writers.last(header.writer).saturating_add(1);
        match header.sequence {
            sequence if sequence == expected => Order::Next,
            sequence if sequence < expected => Order::Duplicate,
            _ => Order::Gap { expected },
        }
    }

    /// Whether the writer of the next entry had applied the same as this table, which stands at `version`.
    pub(super) fn agrees(&self, header: &Header, version: ResourceVersion) -> bool {
        (header.after, header.base, header.chain) == (self.position, version, self.chain)
    }

    /// Passes over an entry.
    pub(super) fn skip(&mut self, position: Position) {
        assert!(position > self.position, "an entry that was applied before");
        self.position = position;
    }

    /// Takes in that all changes of an entry were applied or rejected, which took the table to `version`.
    pub(super) fn advance(
        &mut self,
        position: Position,
        entry: EntryName,
        rejections: Rejections,
        version: ResourceVersion,
    ) {
        let Rejections { count, indexes } = rejections;
        let mut link = [0; 40];
        let numbers = [self.chain, entry.checksum, version.0, count, indexes];
        for (place, number) in link.chunks_exact_mut(8).zip(numbers) {
            place.copy_from_slice(&number.to_le_bytes());
        }
        self.chain = seal::hash(&link);
        self.writers.advance(entry.writer, Writer { sequence: entry.sequence, position });
        self.skip(position);
    }
}

/// An entry, told from all others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct EntryName {
    pub(super) writer: u64,
    pub(super) sequence: u64,
    pub(super) checksum: u64,
}

/// Which changes of an entry were rejected.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Rejections {
    /// Number of them.
    pub(super) count: u64,
    /// Hash of their indexes.
    indexes: u64,
}

impl Rejections {
    /// Adds the change at `index`.
    pub(super) fn push(&mut self, index: u64) {
        self.count += 1;
        // An odd number: no index is lost.
        self.indexes = (self.indexes.rotate_left(5) ^ index.wrapping_add(1)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    }
}

/// The last entry of a writer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Writer {
    pub(super) sequence: u64,
    pub(super) position: Position,
}

/// All writers of whom something is remembered, by name.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Writers(BTreeMap<u64, Writer>);

/// Writers of whom something is remembered; those that wrote last.
pub(super) const WRITERS_MAX: usize = 1024;

impl Writers {
    /// Sequence of a writer's last entry; 0 if there is none.
    pub(super) fn last(&self, name: u64) -> u64 {
        self.0.get(&name).map_or(0, |writer| writer.sequence)
    }

    pub(super) fn contains(&self, name: u64) -> bool {
        self.0.contains_key(&name)
    }

    pub(super) fn len(&self) -> usize {
        self.0.len()
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (u64, Writer)> {
        self.0.iter().map(|(name, writer)| (*name, *writer))
    }

    /// Puts in what was stored.
    pub(super) fn insert(&mut self, name: u64, writer: Writer) {
        self.0.insert(name, writer);
    }

    fn advance(&mut self, name: u64, writer: Writer) {
        let last = self.0.insert(name, writer);
        debug_assert_eq!(last.map_or(0, |last| last.sequence) + 1, writer.sequence, "not the next entry of its writer");
        if self.0.len() > WRITERS_MAX {
            let oldest = self.0.iter().min_by_key(|(_, writer)| writer.position).map(|(name, _)| *name);
            oldest.and_then(|name| self.0.remove(&name));
        }
    }

    /// Forgets those whose entries are all gone from the store, but for `own`.
    pub(super) fn forget_up_to(&mut self, position: Position, own: u64) {
        self.0.retain(|name, writer| writer.position > position || *name == own);
    }
}
