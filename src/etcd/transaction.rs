//! A commit as one transaction of etcd, and what its answer means.
//!
//! A transaction may be sent again after an attempt whose outcome is unknown. The key of an entry must not exist, and a
//! manifest replaces one revision only, so the second attempt does nothing if the first one was done.

use super::keys::{FORMAT, Keys};
use super::messages::{
    Compare, Compared, DeleteRangeRequest, KeyValue, PutRequest, RangeRequest, Request, RequestOp, TxnRequest,
    TxnResponse,
};
use crate::engine::{Position, Write};
use crate::journal::{Commit, Piece, StoredManifest, entry_name, seal_piece};
use std::collections::{BTreeMap, VecDeque};
use std::ops::Range;

/// A commit on its way.
#[derive(Debug)]
pub(super) struct Transaction {
    pub(super) request: TxnRequest,
    /// Key and value of the entry, if there is one.
    pub(super) entry: Option<(Vec<u8>, Vec<u8>)>,
    /// The manifest, if there is one.
    manifest: Option<Vec<u8>>,
    /// Position up to which entries are deleted; 0 if none are.
    pub(super) truncated: Position,
    /// Bytes of the chunk.
    pub(super) chunk_bytes: usize,
}

/// What an answer means.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Done {
    /// The commit is durable. The revision is that of its manifest, if it has one.
    Committed {
        /// Revision of the manifest; 0 if there is none.
        revision: u64,
    },
    /// Another writer had replaced the manifest.
    Overtaken,
    /// The key of the entry holds something else.
    Taken,
}

/// Result of a comparison: less than what is named.
const LESS: i32 = 2;
/// Target of a comparison: the number of writes of a key.
const VERSION: i32 = 0;
/// Target of a comparison: the revision of the last write of a key.
const MOD_REVISION: i32 = 2;

impl Transaction {
    /// The transaction of a commit, whose entry has a name. `entries` are those that the store may hold.
    pub(super) fn of(commit: Commit, keys: &Keys, entries: &Entries) -> Option<Self> {
        let Commit { append, piece, writes, manifest } = commit;
        let mut transaction = Self {
            request: TxnRequest::default(),
            entry: None,
            manifest: None,
            truncated: Position::default(),
            chunk_bytes: 0,
        };
        if let Some(payload) = append {
            let (writer, sequence) = entry_name(&payload)?;
            transaction.append(keys.entry(writer, sequence), payload, keys);
        }
        if let Some(piece) = piece {
            let sealed = seal_piece(&piece);
            let Piece { snapshot, index, .. } = piece;
            transaction.chunk_bytes = sealed.len();
            if index == 0 {
                // A migration stores its chunks before there is a manifest.
                transaction.put(keys.format(), FORMAT.to_vec());
            }
            transaction.put(keys.chunk(snapshot, index), sealed);
        }
        for write in writes {
            match write {
                Write::DropChunks { snapshot, below } => transaction.delete(keys.chunks_below(snapshot, below)),
                Write::Truncate(up_to) => {
                    transaction.truncated = up_to;
                    for (writer, last) in entries.up_to(up_to) {
                        transaction.truncate(keys.entry(writer, 0)..keys.entry(writer, last.saturating_add(1)), up_to);
                    }
                }
                Write::Append(_) | Write::PutChunk { .. } | Write::PutManifest(_) => return None,
            }
        }
        if let Some(manifest) = manifest {
            transaction.replace_manifest(*manifest, keys);
        }
        Some(transaction)
    }

    fn append(&mut self, key: Vec<u8>, payload: Vec<u8>, keys: &Keys) {
        self.request.compare.push(absent(key.clone()));
        self.request.failure.push(get(key.clone()));
        self.put(key.clone(), payload.clone());
        self.put(keys.head(), Vec::new());
        self.entry = Some((key, payload));
    }

    fn replace_manifest(&mut self, StoredManifest { bytes, revision }: StoredManifest, keys: &Keys) {
        let compared = Some(Compared::ModRevision(revision.cast_signed()));
        self.request.compare.push(Compare {
            target: MOD_REVISION,
            key: keys.manifest(),
            compared,
            ..Compare::default()
        });
        self.request.failure.push(get(keys.manifest()));
        if revision == 0 {
            self.put(keys.format(), FORMAT.to_vec());
        }
        self.put(keys.manifest(), bytes.clone());
        self.manifest = Some(bytes);
    }

    fn put(&mut self, key: Vec<u8>, value: Vec<u8>) {
        let request = Some(Request::Put(PutRequest { key, value }));
        self.request.success.push(RequestOp { request });
    }

    fn delete(&mut self, range: Range<Vec<u8>>) {
        self.request.success.push(deletion(range));
    }

    /// Deletes entries, unless one among them stands behind `up_to`: a duplicate that came late. Who loads the store
    /// counts every entry behind its base.
    fn truncate(&mut self, range: Range<Vec<u8>>, up_to: Position) {
        let all_before = Compare {
            result: LESS,
            target: MOD_REVISION,
            key: range.start.clone(),
            range_end: range.end.clone(),
            compared: Some(Compared::ModRevision(up_to.0.saturating_add(1).cast_signed())),
        };
        let request = TxnRequest { compare: vec![all_before], success: vec![deletion(range)], failure: Vec::new() };
        self.request.success.push(RequestOp { request: Some(Request::Txn(request)) });
    }

    /// What an answer means.
    pub(super) fn done(&self, answer: TxnResponse) -> Done {
        let revision = answer.header.map_or(0, |header| header.revision.cast_unsigned());
        if answer.succeeded {
            return Done::Committed { revision: if self.manifest.is_some() { revision } else { 0 } };
        }
        let mut found = answer.responses.into_iter().map(|answer| first(answer.range.unwrap_or_default().kvs));
        if let Some((_, payload)) = &self.entry {
            let found = found.next().flatten();
            // None: deleted since the comparison, which cannot be in one transaction.
            return match found {
                Some(found) if found.value == *payload => Done::Committed { revision: 0 },
                _ => Done::Taken,
            };
        }
        match found.next().flatten() {
            Some(found) if Some(&found.value) == self.manifest.as_ref() => {
                Done::Committed { revision: found.mod_revision.cast_unsigned() }
            }
            _ => Done::Overtaken,
        }
    }
}

fn first(mut kvs: Vec<KeyValue>) -> Option<KeyValue> {
    (!kvs.is_empty()).then(|| kvs.swap_remove(0))
}

fn absent(key: Vec<u8>) -> Compare {
    Compare { target: VERSION, key, compared: Some(Compared::Version(0)), ..Compare::default() }
}

fn deletion(range: Range<Vec<u8>>) -> RequestOp {
    let request = DeleteRangeRequest { key: range.start, range_end: range.end };
    RequestOp { request: Some(Request::DeleteRange(request)) }
}

/// A read of one key.
pub(super) fn get(key: Vec<u8>) -> RequestOp {
    RequestOp { request: Some(Request::Range(RangeRequest { key, ..RangeRequest::default() })) }
}

/// A transaction that has no effect, and needs the right to read and write every key of the store.
pub(super) fn rights(keys: &Keys) -> TxnRequest {
    let compared = Some(Compared::Version(-1));
    let never = Compare { target: VERSION, key: keys.format(), compared, ..Compare::default() };
    TxnRequest { compare: vec![never], success: vec![deletion(keys.all())], failure: vec![get(keys.format())] }
}

/// The end of the journal and the manifest, read at one revision.
pub(super) fn look(keys: &Keys) -> TxnRequest {
    let manifest = RangeRequest { key: keys.manifest(), keys_only: true, ..RangeRequest::default() };
    let manifest = RequestOp { request: Some(Request::Range(manifest)) };
    TxnRequest { success: vec![get(keys.head()), manifest], ..TxnRequest::default() }
}

/// Sequences and positions of the entries that the store may hold, by writer.
#[derive(Debug, Default)]
pub(super) struct Entries(BTreeMap<u64, VecDeque<(u64, Position)>>);

impl Entries {
    /// Adds an entry. Entries of one writer come in the order of their sequences.
    pub(super) fn push(&mut self, writer: u64, sequence: u64, position: Position) {
        let entries = self.0.entry(writer).or_default();
        // A late duplicate of a deleted entry: it goes with the next one.
        if entries.back().is_none_or(|(last, _)| *last < sequence) {
            entries.push_back((sequence, position));
        }
    }

    /// The last sequence of each writer that stands at `position` or before.
    fn up_to(&self, position: Position) -> Vec<(u64, u64)> {
        let last = |entries: &VecDeque<(u64, Position)>| {
            entries.iter().take_while(|(_, at)| *at <= position).last().map(|(sequence, _)| *sequence)
        };
        self.0.iter().filter_map(|(writer, entries)| Some((*writer, last(entries)?))).collect()
    }

    /// Takes in that all entries up to `position` are deleted.
    pub(super) fn forget(&mut self, position: Position) {
        for entries in self.0.values_mut() {
            while entries.pop_front_if(|(_, at)| *at <= position).is_some() {}
        }
        self.0.retain(|_, entries| !entries.is_empty());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_up_to_a_position_are_deleted_writer_by_writer() {
        let mut entries = Entries::default();
        for (writer, sequence, position) in [(1, 1, 10), (2, 1, 11), (1, 2, 12), (2, 2, 15), (3, 1, 16)] {
            entries.push(writer, sequence, Position(position));
        }
        assert_eq!(entries.up_to(Position(12)), [(1, 2), (2, 1)]);
        entries.forget(Position(12));
        assert_eq!(entries.up_to(Position(20)), [(2, 2), (3, 1)]);
        assert_eq!(entries.up_to(Position(14)), []);
    }
}
