//! How far a table (all Leases in memory) has applied the journal: the last applied entry, and the writers of the
//! applied entries. A writer is a process that appends entries.

use super::entry::Header;
use super::port::End;
use super::seal;
use crate::engine::Position;
use crate::resource::ResourceVersion;
use std::collections::{BTreeMap, VecDeque};

/// The progress of a table in the journal: the entries that it has applied.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Applied {
    /// Position of the last entry that was applied or skipped; 0 before the first entry.
    pub(super) position: Position,
    /// Number of entries from the creation of the store up to `position`.
    pub(super) entries: u64,
    /// Hash of all applied entries and of their results: which changes were rejected, and the table's version. Two
    /// tables with the same chain have the same content.
    pub(super) chain: u64,
    pub(super) writers: Writers,
    /// The [`Link`] at each recent position, including the current position.
    links: VecDeque<Link>,
}

/// The version and chain of a table after one entry. Together they identify the content of the table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Link {
    position: Position,
    /// Number of entries up to `position`.
    entries: u64,
    version: ResourceVersion,
    chain: u64,
}

/// Maximum number of [`Link`]s that a table remembers.
const LINKS_MAX: usize = 1024;

/// The relation of an entry to the entries before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Order {
    /// The entry directly follows the last entry of its writer.
    Next,
    /// An entry that was applied before. A late copy of its write has put the entry into the store again. The entry is
    /// skipped. Every entry of a forgotten writer has this class too, since the entry may be a late copy.
    Duplicate,
    /// An earlier entry of the writer is missing.
    Gap {
        /// Sequence number that the writer's next entry must have.
        expected: u64,
    },
}

impl Applied {
    /// Creates the progress of a table that was loaded up to `end`. The table is at `version`.
    pub(super) fn at(end: End, version: ResourceVersion, chain: u64, writers: Writers) -> Self {
        let End { position, entries } = end;
        Self { position, entries, chain, writers, links: [Link { position, entries, version, chain }].into() }
    }

    /// Returns the number of entries up to and including `position`. Returns `None` if every remembered [`Link`] has a
    /// later position.
    pub(super) fn entries_at(&self, position: Position) -> Option<u64> {
        let behind = self.links.partition_point(|link| link.position <= position);
        self.links.get(behind.checked_sub(1)?).map(|link| link.entries)
    }

    /// Returns the order of an entry relative to the entries before it. Every replica finds the same order. Only an
    /// entry that is next is applied.
    pub(super) fn order(&self, header: &Header) -> Order {
        let last = self.writers.last(header.writer);
        if last.is_none() && header.after < self.writers.forgotten {
            return Order::Duplicate;
        }
        let expected = last.unwrap_or(0).saturating_add(1);
        match header.sequence {
            sequence if sequence == expected => Order::Next,
            sequence if sequence < expected => Order::Duplicate,
            // The writer is not remembered, and this entry is not its first one. Other writers were forgotten before,
            // so this writer counts as forgotten too, and not as a writer whose first entries are missing.
            _ if last.is_none() && self.writers.forgotten > Position::default() => Order::Duplicate,
            _ => Order::Gap { expected },
        }
    }

    /// Whether the table of an entry's writer was equal to this table, as both were at the position `header.after`. If
    /// not, the writer had applied an entry that this table has not applied, or the same entries with another result.
    ///
    /// The tables also count as equal if that position is older than every remembered [`Link`].
    pub(super) fn agrees(&self, header: &Header) -> bool {
        self.links.front().is_some_and(|oldest| header.after < oldest.position)
            || self
                .links
                .binary_search_by_key(&header.after, |link| link.position)
                .is_ok_and(|at| (self.links[at].version, self.links[at].chain) == (header.base, header.chain))
    }

    /// Records that an entry was skipped. The table stays at `version`.
    pub(super) fn skip(&mut self, position: Position, version: ResourceVersion) {
        assert!(position > self.position, "an entry that was applied before");
        self.position = position;
        self.entries += 1;
        if self.links.len() == LINKS_MAX {
            self.links.pop_front();
        }
        self.links.push_back(Link { position, entries: self.entries, version, chain: self.chain });
    }

    /// Records that all changes of an entry were applied or rejected. The table is now at `version`.
    pub(super) fn record(
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
        self.writers.note_last(entry.writer, Writer { sequence: entry.sequence, position });
        self.skip(position, version);
    }
}

/// The writer, sequence and checksum of an entry. Together they identify the entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct EntryName {
    pub(super) writer: u64,
    pub(super) sequence: u64,
    pub(super) checksum: u64,
}

/// The rejected changes of an entry.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Rejections {
    /// Number of rejected changes.
    pub(super) count: u64,
    /// Hash of the indexes of the rejected changes.
    indexes: u64,
}

impl Rejections {
    /// Adds the rejected change at `index`.
    pub(super) fn push(&mut self, index: u64) {
        self.count += 1;
        // The multiplier is odd, so the multiplication loses no information.
        self.indexes = (self.indexes.rotate_left(5) ^ index.wrapping_add(1)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    }
}

/// Sequence number and position of a writer's last applied entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Writer {
    pub(super) sequence: u64,
    pub(super) position: Position,
}

/// The writers that a table remembers, to recognize duplicates of their entries. All tables at the same position
/// remember the same writers.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Writers {
    by_name: BTreeMap<u64, Writer>,
    /// Position of the last entry of the writer that was forgotten most recently; 0 if no writer was forgotten. The
    /// writer whose last entry is oldest is forgotten first.
    pub(super) forgotten: Position,
}

/// Maximum number of remembered writers. The writers with the most recent entries are remembered.
pub(super) const WRITERS_MAX: usize = 1024;

impl Writers {
    /// Returns the sequence of a writer's last entry, if the writer is remembered.
    fn last(&self, name: u64) -> Option<u64> {
        self.by_name.get(&name).map(|writer| writer.sequence)
    }

    pub(super) fn contains(&self, name: u64) -> bool {
        self.by_name.contains_key(&name)
    }

    pub(super) fn len(&self) -> usize {
        self.by_name.len()
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (u64, Writer)> {
        self.by_name.iter().map(|(name, writer)| (*name, *writer))
    }

    /// Adds a writer that was read from the store.
    pub(super) fn insert(&mut self, name: u64, writer: Writer) {
        self.by_name.insert(name, writer);
    }

    fn note_last(&mut self, name: u64, writer: Writer) {
        let last = self.by_name.insert(name, writer);
        assert_eq!(last.map_or(0, |last| last.sequence) + 1, writer.sequence, "not the next entry of its writer");
        if self.by_name.len() > WRITERS_MAX
            && let Some((oldest, Writer { position, .. })) = self.iter().min_by_key(|(_, writer)| writer.position)
        {
            self.by_name.remove(&oldest);
            self.forgotten = position;
        }
    }
}
