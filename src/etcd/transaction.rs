//! A commit of the journal as one etcd transaction, and the meaning of etcd's answer. A commit may write an entry (a
//! batch of changes), a chunk of a snapshot and the manifest, and may delete old entries and chunks.
//!
//! A transaction may be repeated after an attempt whose outcome is unknown. The transaction requires that the key of
//! its entry does not exist, and that its manifest replaces one specific revision. So if the first attempt took effect,
//! a second attempt has no effect. A transaction with neither an entry nor a manifest puts the same chunk again, or
//! deletes the same keys again, which does no harm.
//!
//! A transaction may also arrive after etcd was restored from a backup. Entries that the writer has applied may then be
//! missing. The transaction could then leave a gap, delete entries that no snapshot contains, or name missing chunks.
//! So a transaction requires that the last entry delivered to its writer exists. A transaction with a chunk or a
//! manifest also requires the chunk that the writer put before. A restored etcd lacks only the last writes. So if it
//! has this chunk, it has all earlier ones.

use super::keys::{FORMAT, Keys};
use super::messages::{
    Compare, Compared, DeleteRangeRequest, KeyValue, PutRequest, RangeRequest, Request, RequestOp, TxnRequest,
    TxnResponse,
};
use crate::engine::{Position, SnapshotId, Write};
use crate::journal::{Commit, Piece, StoredManifest, entry_name, seal_piece};
use std::cmp::Reverse;
use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, VecDeque};
use std::ops::Range;

/// A commit in flight.
#[derive(Debug, Default)]
pub(super) struct Transaction {
    pub(super) request: TxnRequest,
    /// Key and value of the commit's entry; `None` without an entry.
    pub(super) entry: Option<(Vec<u8>, Vec<u8>)>,
    /// The commit's manifest, with the revision that it replaces; `None` without a manifest.
    manifest: Option<StoredManifest>,
    /// Entries that the transaction deletes: pairs of a writer and the sequence of this writer's last deleted entry.
    /// For each pair, the request has a nested transaction.
    pub(super) truncated: Vec<(u64, u64)>,
    /// Size of the commit's chunk, in bytes; 0 without a chunk.
    pub(super) chunk_bytes: usize,
    /// Snapshot and index of the commit's chunk; `None` without a chunk.
    chunk: Option<(SnapshotId, u32)>,
    /// Snapshots whose chunks the commit deletes.
    dropped: Vec<SnapshotId>,
}

/// What this process knows about the store in etcd. If etcd was restored from a backup, some of these entries and
/// chunks may be missing in the store.
#[derive(Debug)]
pub(super) struct Known<'a> {
    /// Entries of the journal that the store may still contain.
    pub(super) entries: &'a Entries,
    /// Position of the last entry that was delivered to this process.
    pub(super) delivered: Position,
    /// Revision of the last known manifest; 0 without a manifest.
    pub(super) manifest_revision: u64,
    /// The chunk of a snapshot that this process last put into etcd. `None` if this process has put a manifest since,
    /// or has deleted chunks of this snapshot.
    pub(super) chunk: Option<PutChunk>,
}

/// A chunk of a snapshot that this process has put into etcd.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct PutChunk {
    pub(super) snapshot: SnapshotId,
    pub(super) index: u32,
    pub(super) revision: u64,
}

/// The meaning of etcd's answer to a transaction.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Done {
    /// The commit is durable.
    Committed {
        /// Revision of the write, of this attempt or of an earlier one.
        revision: u64,
        /// The pairs of [`Transaction::truncated`] whose nested transactions have deleted entries, as the answer shows.
        /// If an earlier attempt wrote the commit, the answer shows no deletion.
        deleted: Vec<(u64, u64)>,
    },
    /// Another writer has replaced the manifest.
    Overtaken,
    /// The key of the commit's entry exists with another value. So another process uses the name of this writer.
    Taken,
    /// A required value is not in etcd: the last delivered entry, the last chunk, or the known manifest. Either etcd
    /// was restored, or this process was paused for so long that other writers have deleted or replaced the value.
    Behind,
}

/// Result of a comparison: equal.
const EQUAL: i32 = 0;
/// Result of a comparison: greater.
const GREATER: i32 = 1;
/// Result of a comparison: less.
const LESS: i32 = 2;
/// Target of a comparison: the `version` of a key, which is its number of writes.
const VERSION: i32 = 0;
/// Target of a comparison: the mod revision of a key, which is the revision of its last write.
const MOD_REVISION: i32 = 2;

impl Transaction {
    /// Creates the transaction of a commit. Returns `None` if the entry is too short to contain its writer and
    /// sequence, or if `writes` has other writes than deletions.
    pub(super) fn of(commit: Commit, keys: &Keys, known: &Known<'_>) -> Option<Self> {
        let Commit { append, piece, writes, manifest } = commit;
        let mut transaction = Self::default();
        transaction.require(known, keys);
        // These writes delete entries and chunks. A restored etcd may have an older manifest, which still needs them.
        // So the transaction requires the known manifest or a later one.
        if let Some(before) = known.manifest_revision.checked_sub(1).filter(|_| !writes.is_empty()) {
            transaction.compare(keys.manifest(), GREATER, before);
        }
        if let Some(payload) = append {
            let (writer, sequence) = entry_name(&payload)?;
            transaction.append(keys.entry(writer, sequence), payload, keys);
        }
        if let Some(piece) = piece {
            let sealed = seal_piece(&piece);
            let Piece { snapshot, index, .. } = piece;
            if let Some(chunk) = known.chunk.filter(|chunk| chunk.snapshot == snapshot) {
                transaction.require_chunk(chunk, keys);
            }
            transaction.chunk_bytes = sealed.len();
            transaction.chunk = Some((snapshot, index));
            if index == 0 {
                // A migration puts its chunks before the manifest. So the first chunk also writes the key `format`.
                // Without it, the chunks of an interrupted migration would look like keys of another product.
                transaction.put(keys.format(), FORMAT.to_vec());
            }
            transaction.put(keys.chunk(snapshot, index), sealed);
        }
        for write in writes {
            match write {
                Write::DropChunks { snapshot, below } => {
                    transaction.dropped.push(snapshot);
                    transaction.delete(keys.chunks_below(snapshot, below));
                }
                Write::Truncate(up_to) => {
                    transaction.truncated = known.entries.up_to(up_to);
                    for (writer, last) in transaction.truncated.clone() {
                        transaction.truncate(keys.entry(writer, 0)..keys.entry(writer, last.saturating_add(1)), up_to);
                    }
                }
                Write::Append(_) | Write::PutChunk { .. } | Write::PutManifest(_) => return None,
            }
        }
        if let Some(manifest) = manifest {
            transaction.replace_manifest(*manifest, known.chunk, keys);
        }
        Some(transaction)
    }

    /// Requires that the last delivered entry exists. If all delivered entries were deleted, requires two other things:
    /// the manifest is the known one, and the key `head`, which every entry's transaction writes, was last written at
    /// or after the position of the last delivered entry.
    fn require(&mut self, known: &Known<'_>, keys: &Keys) {
        match known.entries.last {
            Some((writer, sequence, position)) => self.compare(keys.entry(writer, sequence), EQUAL, position.0),
            None => {
                self.compare(keys.manifest(), EQUAL, known.manifest_revision);
                // The revision of a missing key is 0, so the comparison fails if `head` is missing. Before the first
                // delivered entry, `head` may be missing, so nothing is required of it.
                if let Some(before) = known.delivered.0.checked_sub(1) {
                    self.compare(keys.head(), GREATER, before);
                }
            }
        }
    }

    /// Requires a chunk that this process has put. A second copy of the transaction with the chunk may have put the
    /// chunk again. So the chunk may also have a later revision.
    fn require_chunk(&mut self, PutChunk { snapshot, index, revision }: PutChunk, keys: &Keys) {
        self.compare(keys.chunk(snapshot, index), GREATER, revision.saturating_sub(1));
    }

    fn compare(&mut self, key: Vec<u8>, result: i32, revision: u64) {
        let compared = Some(Compared::ModRevision(revision.cast_signed()));
        self.request.compare.push(Compare { result, target: MOD_REVISION, key, compared, ..Compare::default() });
    }

    fn append(&mut self, key: Vec<u8>, payload: Vec<u8>, keys: &Keys) {
        self.request.compare.push(absent(key.clone()));
        self.request.failure.push(get(key.clone()));
        self.put(key.clone(), payload.clone());
        self.put(keys.head(), Vec::new());
        self.entry = Some((key, payload));
    }

    fn replace_manifest(&mut self, manifest: StoredManifest, chunk: Option<PutChunk>, keys: &Keys) {
        let revision = manifest.revision;
        self.compare(keys.manifest(), EQUAL, revision);
        if let Some(chunk) = chunk {
            self.require_chunk(chunk, keys);
        }
        self.request.failure.push(get(keys.manifest()));
        if revision == 0 {
            self.put(keys.format(), FORMAT.to_vec());
        }
        self.put(keys.manifest(), manifest.bytes.clone());
        self.manifest = Some(manifest);
    }

    fn put(&mut self, key: Vec<u8>, value: Vec<u8>) {
        let request = Some(Request::Put(PutRequest { key, value }));
        self.request.success.push(RequestOp { request });
    }

    fn delete(&mut self, range: Range<Vec<u8>>) {
        self.request.success.push(deletion(range));
    }

    /// Deletes the entries in `range`, unless one of them has a position after `up_to`. That entry is a duplicate: a
    /// late copy of a transaction has created a deleted entry again. etcd's count of all entries (the version of the
    /// key `head`) includes the duplicate. A replica that loads the store compares this count with the entries that it
    /// finds. So the duplicate must stay.
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

    /// Returns the new value of [`Known::chunk`], the chunk that this process last put. `before` is the value before
    /// this commit, and `revision` is the revision of this commit.
    pub(super) fn chunk_after(&self, before: Option<PutChunk>, revision: u64) -> Option<PutChunk> {
        match self.chunk {
            Some((snapshot, index)) => Some(PutChunk { snapshot, index, revision }),
            None => before.filter(|chunk| self.manifest.is_none() && !self.dropped.contains(&chunk.snapshot)),
        }
    }

    /// Interprets etcd's answer to this transaction.
    pub(super) fn done(&self, answer: TxnResponse) -> Done {
        let revision = answer.header.map_or(0, |header| header.revision.cast_unsigned());
        if answer.succeeded {
            let nested = answer.responses.iter().filter_map(|answer| answer.txn.as_ref());
            let of_writers = self.truncated.iter().zip(nested);
            let deleted = of_writers.filter(|(_, nested)| nested.succeeded).map(|(of_writer, _)| *of_writer).collect();
            return Done::Committed { revision, deleted };
        }
        let found = answer.responses.into_iter().next().and_then(|answer| first(answer.range.unwrap_or_default().kvs));
        match (&self.entry, &self.manifest, found) {
            (Some((_, payload)), _, Some(found)) if found.value == *payload => {
                Done::Committed { revision: found.mod_revision.cast_unsigned(), deleted: Vec::new() }
            }
            (Some(_), _, Some(_)) => Done::Taken,
            (None, Some(manifest), found) => {
                let found = found.unwrap_or_default();
                match found.mod_revision.cast_unsigned() {
                    // A manifest may be written again unchanged. Then only the revision shows that this transaction
                    // has failed.
                    revision if revision == manifest.revision => Done::Behind,
                    revision if found.value == manifest.bytes => Done::Committed { revision, deleted: Vec::new() },
                    _ => Done::Overtaken,
                }
            }
            (Some(_), _, None) | (None, None, _) => Done::Behind,
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

/// Returns an operation that reads one key.
pub(super) fn get(key: Vec<u8>) -> RequestOp {
    RequestOp { request: Some(Request::Range(RangeRequest { key, ..RangeRequest::default() })) }
}

/// Returns a transaction without effect, which tests the rights of the client. etcd refuses this transaction unless the
/// client may read and write every key of the store.
pub(super) fn rights(keys: &Keys) -> TxnRequest {
    let compared = Some(Compared::Version(-1));
    let never = Compare { target: VERSION, key: keys.format(), compared, ..Compare::default() };
    TxnRequest { compare: vec![never], success: vec![deletion(keys.all())], failure: vec![get(keys.format())] }
}

/// Returns a transaction that reads the keys `head` and `manifest` at one revision.
pub(super) fn find_end(keys: &Keys) -> TxnRequest {
    let manifest = RangeRequest { key: keys.manifest(), keys_only: true, ..RangeRequest::default() };
    let manifest = RequestOp { request: Some(Request::Range(manifest)) };
    TxnRequest { success: vec![get(keys.head()), manifest], ..TxnRequest::default() }
}

/// Sequences and positions of entries that the store may hold, by writer. For each writer, this record has at least the
/// last entry and the entries after the base (the snapshot that a startup loads).
#[derive(Debug, Default)]
pub(super) struct Entries {
    by_writer: BTreeMap<u64, VecDeque<(u64, Position)>>,
    /// Writer, sequence and position of the last entry; `None` if there is no entry yet, or if it was deleted.
    last: Option<(u64, u64, Position)>,
}

impl Entries {
    /// Adds an entry. The entries of one writer must be added in the order of their sequences.
    pub(super) fn push(&mut self, writer: u64, sequence: u64, position: Position) {
        let entries = self.by_writer.entry(writer).or_default();
        // A late copy of a transaction may have created a deleted entry again. Such a duplicate is not recorded. The
        // truncation that deletes the writer's last recorded entry also deletes the duplicate.
        if entries.back().is_none_or(|(last, _)| *last < sequence) {
            entries.push_back((sequence, position));
        }
        self.last = Some((writer, sequence, position));
    }

    /// Returns for each writer the sequence of its last entry up to and including `position`. Returns at most
    /// [`TRUNCATED_WRITERS_MAX`] writers, those with the most entries first.
    fn up_to(&self, position: Position) -> Vec<(u64, u64)> {
        let found = |(writer, entries): (&u64, &VecDeque<(u64, Position)>)| {
            let count = entries.iter().take_while(|(_, at)| *at <= position).count();
            let (sequence, _) = entries.get(count.checked_sub(1)?)?;
            Some((Reverse(count), *writer, *sequence))
        };
        let mut found: Vec<_> = self.by_writer.iter().filter_map(found).collect();
        found.sort_unstable();
        found.into_iter().take(TRUNCATED_WRITERS_MAX).map(|(_, writer, sequence)| (writer, sequence)).collect()
    }

    /// Removes entries that the store has deleted: for each writer, all entries up to and including a sequence.
    pub(super) fn forget(&mut self, deleted: &[(u64, u64)]) {
        for (writer, last) in deleted {
            let is_deleted = |(sequence, _): &mut (u64, Position)| *sequence <= *last;
            if let Entry::Occupied(mut entries) = self.by_writer.entry(*writer) {
                while entries.get_mut().pop_front_if(is_deleted).is_some() {}
                if entries.get().is_empty() {
                    entries.remove();
                }
            }
        }
    }

    /// Records that the store may have deleted these entries: for each writer, all entries up to and including a
    /// sequence. Transactions then no longer require the last entry, if it is one of these.
    pub(super) fn release_last(&mut self, truncated: &[(u64, u64)]) {
        let is_kept = |(writer, sequence, _): &(u64, u64, Position)| {
            truncated.iter().all(|(of, last)| of != writer || sequence > last)
        };
        self.last = self.last.filter(is_kept);
    }

    /// Removes the entries up to and including the position `base` from this record, since another writer deletes these
    /// entries in the store. Keeps the last one of each writer: a later truncation then also deletes the entries that
    /// the other writer did not delete, for example because it died.
    pub(super) fn thin(&mut self, base: Position) {
        for entries in self.by_writer.values_mut() {
            while entries.get(1).is_some_and(|(_, at)| *at <= base) {
                entries.pop_front();
            }
            entries.shrink_to(2 * entries.len());
        }
    }
}

/// Maximum number of writers whose entries one transaction deletes. Each writer takes one operation, and etcd allows
/// 128 operations (`--max-txn-ops`). The next truncation deletes the entries of the other writers.
const TRUNCATED_WRITERS_MAX: usize = 100;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::etcd::messages::ResponseOp;

    fn transaction(commit: Commit, entries: &Entries) -> Transaction {
        let chunk = Some(PutChunk { snapshot: SnapshotId(2), index: 7, revision: 30 });
        let known = Known { entries, delivered: Position(40), manifest_revision: 20, chunk };
        Transaction::of(commit, &Keys::new("/x"), &known).expect("a commit that etcd can take")
    }

    fn manifest() -> Commit {
        let manifest = StoredManifest { bytes: b"m".to_vec(), revision: 20 };
        Commit { manifest: Some(Box::new(manifest)), ..Commit::default() }
    }

    fn put(snapshot: u64, index: u32) -> Commit {
        let piece = Piece { snapshot: SnapshotId(snapshot), index, format: crate::journal::FORMAT, bytes: Vec::new() };
        Commit { piece: Some(piece), ..Commit::default() }
    }

    #[test]
    fn a_commit_requires_the_last_delivered_entry_in_the_store() {
        let keys = Keys::new("/x");
        let compared = |commit: Commit, entries: &Entries| -> Vec<(Vec<u8>, i32, Option<Compared>)> {
            let Transaction { request, .. } = transaction(commit, entries);
            request.compare.into_iter().map(|compare| (compare.key, compare.result, compare.compared)).collect()
        };
        let at = |revision| Some(Compared::ModRevision(revision));
        let mut entries = Entries::default();
        let truncated = [(keys.manifest(), EQUAL, at(20)), (keys.head(), GREATER, at(39))];
        assert_eq!(compared(Commit::default(), &entries), truncated);
        entries.push(1, 5, Position(40));
        assert_eq!(compared(Commit::default(), &entries), [(keys.entry(1, 5), EQUAL, at(40))]);
        let of_manifest = [
            (keys.entry(1, 5), EQUAL, at(40)),
            (keys.manifest(), EQUAL, at(20)),
            (keys.chunk(SnapshotId(2), 7), GREATER, at(29)),
        ];
        assert_eq!(compared(manifest(), &entries), of_manifest);
        let deletion = Commit { writes: vec![Write::Truncate(Position(39))], ..Commit::default() };
        let of_deletion = [(keys.entry(1, 5), EQUAL, at(40)), (keys.manifest(), GREATER, at(19))];
        assert_eq!(compared(deletion, &entries), of_deletion);
        let of_next_chunk = [(keys.entry(1, 5), EQUAL, at(40)), (keys.chunk(SnapshotId(2), 7), GREATER, at(29))];
        assert_eq!(compared(put(2, 8), &entries), of_next_chunk);
        assert_eq!(compared(put(3, 0), &entries), of_next_chunk[..1], "another snapshot");
        entries.release_last(&[(1, 5)]);
        assert_eq!(compared(Commit::default(), &entries), truncated);
    }

    #[test]
    fn the_last_chunk_is_known_until_a_manifest_or_its_drop() {
        let entries = Entries::default();
        let last = Some(PutChunk { snapshot: SnapshotId(2), index: 7, revision: 30 });
        let after = |commit, revision| transaction(commit, &entries).chunk_after(last, revision);
        let drops = |snapshot| {
            let write = Write::DropChunks { snapshot: SnapshotId(snapshot), below: 9 };
            Commit { writes: vec![write], ..Commit::default() }
        };
        assert_eq!(after(Commit::default(), 31), last);
        assert_eq!((after(drops(1), 31), after(drops(2), 31), after(manifest(), 31)), (last, None, None));
        assert_eq!(after(put(2, 8), 31), Some(PutChunk { snapshot: SnapshotId(2), index: 8, revision: 31 }));
    }

    #[test]
    fn the_stored_manifest_shows_why_a_transaction_failed() {
        let transaction = transaction(manifest(), &Entries::default());
        let done = |value: &[u8], mod_revision| {
            let kvs = vec![KeyValue { value: value.to_vec(), mod_revision, ..KeyValue::default() }];
            let range = Some(super::super::messages::RangeResponse { kvs, ..Default::default() });
            let responses = vec![ResponseOp { range, ..ResponseOp::default() }];
            transaction.done(TxnResponse { succeeded: false, responses, ..TxnResponse::default() })
        };
        assert_eq!(done(b"m", 25), Done::Committed { revision: 25, deleted: Vec::new() });
        assert_eq!(done(b"other", 25), Done::Overtaken);
        assert_eq!(done(b"before", 20), Done::Behind);
        assert_eq!(done(b"m", 20), Done::Behind, "the manifest is unchanged, but not by this transaction");
    }

    #[test]
    fn entries_up_to_a_position_are_deleted_writer_by_writer() {
        let mut entries = Entries::default();
        for (writer, sequence, position) in [(1, 1, 10), (2, 1, 11), (1, 2, 12), (2, 2, 15), (3, 1, 16)] {
            entries.push(writer, sequence, Position(position));
        }
        assert_eq!(entries.up_to(Position(12)), [(1, 2), (2, 1)]);
        entries.forget(&[(1, 2), (2, 1)]);
        assert_eq!(entries.up_to(Position(20)), [(2, 2), (3, 1)]);
        assert_eq!(entries.up_to(Position(14)), []);
    }

    /// Goal: entries that etcd has not deleted in one truncation are deleted in a later one. Method: etcd refuses to
    /// delete the entries of writer 1, because a late copy of its entry 5 has been stored again at position 30. etcd
    /// deletes the entries of writer 2.
    #[test]
    fn entries_are_forgotten_only_if_etcd_has_deleted_them() {
        let mut entries = Entries::default();
        for (writer, sequence, position) in [(1, 6, 10), (2, 1, 11), (1, 5, 30)] {
            entries.push(writer, sequence, Position(position));
        }
        let truncation = Commit { writes: vec![Write::Truncate(Position(20))], ..Commit::default() };
        let transaction = transaction(truncation, &entries);
        assert_eq!(transaction.truncated, [(1, 6), (2, 1)]);
        let nested = |succeeded| {
            let txn = Some(TxnResponse { succeeded, ..TxnResponse::default() });
            ResponseOp { txn, ..ResponseOp::default() }
        };
        let responses = vec![ResponseOp::default(), nested(false), nested(true)];
        let done = transaction.done(TxnResponse { succeeded: true, responses, ..TxnResponse::default() });
        let deleted = vec![(2, 1)];
        assert_eq!(done, Done::Committed { revision: 0, deleted: deleted.clone() });
        entries.forget(&deleted);
        assert_eq!(entries.up_to(Position(40)), [(1, 6)]);
        assert_eq!(entries.last, Some((1, 5, Position(30))));
        entries.release_last(&transaction.truncated);
        assert_eq!(entries.last, None, "another attempt may have deleted it");
    }

    #[test]
    fn one_transaction_deletes_entries_of_a_limited_number_of_writers() {
        let mut entries = Entries::default();
        for writer in 0..150 {
            entries.push(writer, 1, Position(10 + writer));
        }
        entries.push(149, 2, Position(200));
        let first = entries.up_to(Position(200));
        assert_eq!((first.len(), first[0]), (TRUNCATED_WRITERS_MAX, (149, 2)), "the most entries");
        entries.forget(&first);
        assert_eq!(entries.up_to(Position(200)).len(), 50);
    }

    #[test]
    fn entries_that_another_writer_deletes_take_no_memory() {
        let mut entries = Entries::default();
        for sequence in 1..=1_000 {
            entries.push(1, sequence, Position(2 * sequence));
            entries.push(2, sequence, Position(2 * sequence + 1));
        }
        entries.push(3, 1, Position(5_000));
        entries.thin(Position(2_001));
        assert_eq!(entries.by_writer.values().map(VecDeque::len).sum::<usize>(), 3);
        assert!(entries.by_writer.values().all(|of_writer| of_writer.capacity() <= 4));
        assert_eq!(entries.up_to(Position(6_000)), [(1, 1_000), (2, 1_000), (3, 1)]);
        entries.push(1, 1_001, Position(6_001));
        entries.thin(Position(5_500));
        assert_eq!(entries.up_to(Position(5_500)), [(1, 1_000), (2, 1_000), (3, 1)]);
    }
}
