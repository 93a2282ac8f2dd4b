//! The keys of a store in etcd, all below one prefix.
//!
//! ```text
//!   format                               a text that names the product and the format
//!   head                                 empty; written with each entry, so its revision is the last entry's revision
//!   manifest                             the manifest
//!   journal/<writer>/<sequence>          an entry; its revision is its position
//!   chunks/<snapshot>/<index>            a chunk of a snapshot
//! ```
//!
//! `<writer>` is a number that a process chooses anew each time it loads the store. The process also changes the number
//! after an entry that failed or was rejected. `<sequence>` is the number of the entry among those of its writer, from
//! 1. Numbers in keys are hexadecimal with a fixed width, so that keys sort like numbers.

use super::messages::prefix_end;
use crate::engine::SnapshotId;
use std::ops::Range;

/// Value of the key `format`: the product, and the number of the format.
pub(super) const FORMAT: &[u8] = b"coordination-apiserver 1";
/// Beginning of the value of the key `format`, the same in each release.
pub(super) const PRODUCT: &[u8] = b"coordination-apiserver ";

/// The keys of a store below one prefix.
#[derive(Clone, Debug)]
pub(super) struct Keys {
    /// The prefix, with a final `/`.
    prefix: String,
}

impl Keys {
    /// Returns the keys below `prefix`, which may end with a `/`.
    pub(super) fn new(prefix: &str) -> Self {
        Self { prefix: format!("{}/", prefix.trim_end_matches('/')) }
    }

    fn key(&self, rest: &str) -> Vec<u8> {
        format!("{}{rest}", self.prefix).into_bytes()
    }

    pub(super) fn format(&self) -> Vec<u8> {
        self.key("format")
    }

    pub(super) fn head(&self) -> Vec<u8> {
        self.key("head")
    }

    pub(super) fn manifest(&self) -> Vec<u8> {
        self.key("manifest")
    }

    /// Returns the range of all keys below the prefix.
    pub(super) fn all(&self) -> Range<Vec<u8>> {
        range(self.key(""))
    }

    /// Returns the range of all entries of the journal.
    pub(super) fn journal(&self) -> Range<Vec<u8>> {
        range(self.key("journal/"))
    }

    /// Returns the range of the key `head` and of all entries of the journal. No other key is in this range.
    pub(super) fn head_and_journal(&self) -> Range<Vec<u8>> {
        self.head()..self.journal().end
    }

    pub(super) fn entry(&self, writer: u64, sequence: u64) -> Vec<u8> {
        self.key(&format!("journal/{writer:016x}/{sequence:016x}"))
    }

    /// Returns the writer and the sequence that the key of an entry contains.
    pub(super) fn entry_of(&self, key: &[u8]) -> Option<(u64, u64)> {
        let rest = key.strip_prefix(self.prefix.as_bytes())?.strip_prefix(b"journal/")?;
        let (writer, sequence) = std::str::from_utf8(rest).ok()?.split_once('/')?;
        Some((u64::from_str_radix(writer, 16).ok()?, u64::from_str_radix(sequence, 16).ok()?))
    }

    /// Returns the range of the chunks of all snapshots.
    pub(super) fn chunks(&self) -> Range<Vec<u8>> {
        range(self.key("chunks/"))
    }

    pub(super) fn chunk(&self, snapshot: SnapshotId, index: u32) -> Vec<u8> {
        self.key(&format!("chunks/{:016x}/{index:08x}", snapshot.0))
    }

    /// Returns the range of the chunks of `snapshot` with an index below `below`.
    pub(super) fn chunks_below(&self, snapshot: SnapshotId, below: u32) -> Range<Vec<u8>> {
        self.chunk(snapshot, 0)..self.chunk(snapshot, below)
    }

    /// Returns the number of the snapshot that the key of a chunk contains.
    pub(super) fn snapshot_of(&self, key: &[u8]) -> Option<SnapshotId> {
        let rest = key.strip_prefix(self.prefix.as_bytes())?.strip_prefix(b"chunks/")?;
        let (snapshot, _) = std::str::from_utf8(rest).ok()?.split_once('/')?;
        u64::from_str_radix(snapshot, 16).ok().map(SnapshotId)
    }
}

fn range(prefix: Vec<u8>) -> Range<Vec<u8>> {
    let end = prefix_end(&prefix);
    prefix..end
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_of_entries_and_chunks_are_recognized() {
        let keys = Keys::new("/leases/");
        assert_eq!(keys.head(), b"/leases/head");
        assert_eq!(keys.entry_of(&keys.entry(0xabc, 7)), Some((0xabc, 7)));
        assert_eq!(keys.snapshot_of(&keys.chunk(SnapshotId(9), 3)), Some(SnapshotId(9)));
        assert_eq!(keys.entry_of(&keys.head()), None);
        assert_eq!(keys.entry_of(b"/other/journal/1/1"), None);
        assert!(keys.entry(1, 9) < keys.entry(1, 10) && keys.journal().contains(&keys.entry(u64::MAX, 0)));
        assert!(!keys.all().contains(&Keys::new("/leases2").head()));
        let followed = keys.head_and_journal();
        assert!(followed.contains(&keys.head()) && followed.contains(&keys.entry(u64::MAX, u64::MAX)));
        assert!(
            [keys.format(), keys.manifest(), keys.chunk(SnapshotId(1), 1)].iter().all(|key| !followed.contains(key))
        );
    }
}
