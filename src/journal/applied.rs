//! How far a table has come: the state of the journal beside the table.

use super::entry::Header;
use super::port::End;
use super::seal;
use crate::engine::Position;
use crate::resource::ResourceVersion;
use std::collections::{BTreeMap, VecDeque};

/// What has been applied to a table.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Applied {
    /// Position of the last entry; 0 if there was none.
    pub(super) position: Position,
    /// Number of entries up to there, since the store was made.
    pub(super) entries: u64,
    /// Hash of all that was applied: two tables with the same chain hold the same.
    pub(super) chain: u64,
    pub(super) writers: Writers,
    /// Where the table stood at the last positions, this one included.
    links: VecDeque<Link>,
}

/// Where a table stood after an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Link {
    position: Position,
    /// Number of entries up to there.
    entries: u64,
    version: ResourceVersion,
    chain: u64,
}

/// Positions of which it is known where the table stood.
const LINKS_MAX: usize = 1024;

/// Whether the writer of an entry had applied what this table has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Agreement {
    /// It had, or its entry is older than what is known here.
    Agrees,
    /// It had applied an entry that this table has not had, or the same entries with another result.
    Differs,
}

/// What an entry is to those before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Order {
    /// The next one of its writer.
    Next,
    /// One that has been applied, appended again: it is passed over.
    Duplicate,
    /// One of a writer that is not remembered. It may be a duplicate, so everybody passes over it.
    Stale,
    /// One before it is missing.
    Gap {
        /// The sequence that should be there.
        expected: u64,
    },
}

impl Applied {
    /// What a table has applied that was loaded up to `end`, to `version`.
    pub(super) fn at(end: End, version: ResourceVersion, chain: u64, writers: Writers) -> Self {
        let End { position, entries } = end;
        Self { position, entries, chain, writers, links: [Link { position, entries, version, chain }].into() }
    }

    /// Number of entries up to a position, as far back as that is known. Without an entry at `position`, those before
    /// it.
    pub(super) fn entries_at(&self, position: Position) -> Option<u64> {
        let behind = self.links.partition_point(|link| link.position <= position);
        self.links.get(behind.checked_sub(1)?).map(|link| link.entries)
    }

    /// What an entry is to those that were applied. The answer is the same on every replica, and it alone decides
    /// whether an entry is applied.
    pub(super) fn order(&self, header: &Header) -> Order {
        let last = self.writers.last(header.writer);
        if last.is_none() && header.after < self.writers.forgotten {
            return Order::Stale;
        }
        let expected = last.unwrap_or(0).saturating_add(1);
        match header.sequence {
            sequence if sequence == expected => Order::Next,
            sequence if sequence < expected => Order::Duplicate,
            // The writer was idle for so long that it was forgotten.
            _ if last.is_none() && self.writers.forgotten > Position::default() => Order::Stale,
            _ => Order::Gap { expected },
        }
    }

    /// Whether the writer of an entry had applied what this table has, as far as that is known.
    pub(super) fn agreement(&self, header: &Header) -> Agreement {
        if self.links.front().is_some_and(|oldest| header.after < oldest.position) {
            return Agreement::Agrees;
        }
        match self.links.binary_search_by_key(&header.after, |link| link.position) {
            Ok(at) if (self.links[at].version, self.links[at].chain) == (header.base, header.chain) => {
                Agreement::Agrees
            }
            Ok(_) | Err(_) => Agreement::Differs,
        }
    }

    /// Passes over an entry; the table stays at `version`.
    pub(super) fn skip(&mut self, position: Position, version: ResourceVersion) {
        assert!(position > self.position, "an entry that was applied before");
        self.position = position;
        self.entries += 1;
        if self.links.len() == LINKS_MAX {
            self.links.pop_front();
        }
        self.links.push_back(Link { position, entries: self.entries, version, chain: self.chain });
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
        self.skip(position, version);
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

/// Writers of whom something is remembered. Every table at the same position remembers the same.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Writers {
    by_name: BTreeMap<u64, Writer>,
    /// Position of the last entry of the writer that was forgotten last; 0 if none was.
    pub(super) forgotten: Position,
}

/// Writers of whom something is remembered; those that wrote last.
pub(super) const WRITERS_MAX: usize = 1024;

impl Writers {
    /// Sequence of the last entry of a writer that is remembered.
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

    /// Puts in what was stored.
    pub(super) fn insert(&mut self, name: u64, writer: Writer) {
        self.by_name.insert(name, writer);
    }

    fn advance(&mut self, name: u64, writer: Writer) {
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
