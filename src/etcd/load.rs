//! Reads the whole store at one revision, at startup: the manifest, the base, and the entries of the journal. The base
//! is the snapshot of all Leases that the manifest names, or an empty table in a new store.

use super::client::{Client, Failure};
use super::config::Config;
use super::keys::{FORMAT, Keys, PRODUCT};
use super::messages::{KeyValue, RangeRequest};
use super::pages::pages;
use super::state::SharedState;
use crate::engine::{EngineError, Entry, Position, SnapshotId};
use crate::journal::{End, Event, StoredManifest, base_end, open_piece};
use std::collections::VecDeque;
use std::io;
use std::ops::Range;

/// The progress of reading the store in etcd.
#[derive(Debug, Default)]
pub(super) struct Load {
    revision: i64,
    /// End of the entries that the base contains.
    base: End,
    /// Entries of the journal that are not passed to the event loop yet; `None` before the entries are read.
    entries: Option<VecDeque<Entry>>,
}

/// Maximum number of keys per range request. An entry of one large change has up to 1.5 MiB. So a page of entries has
/// less than 100 MiB.
const PAGE_KEYS: i64 = 64;
/// Approximate size of the entries per event, in bytes.
const PIECE_BYTES: usize = 1024 * 1024;

impl Load {
    /// Selects the newest revision for all reads. Reads the manifest, and lists the snapshots in the store.
    pub(super) async fn open(&mut self, state: &SharedState) -> Result<Event, Failure> {
        let SharedState { client, keys, .. } = state;
        self.entries = None;
        let found = client.range(one(keys.manifest(), 0)).await?;
        self.revision = found.header.map_or(0, |header| header.revision);
        let manifest = found
            .kvs
            .into_iter()
            .next()
            .map(|kv| StoredManifest { bytes: kv.value, revision: kv.mod_revision.cast_unsigned() });
        state.note_manifest(manifest.as_ref().map_or(0, |manifest| manifest.revision));
        let base = manifest.as_ref().map_or_else(End::default, |manifest| base_end(&manifest.bytes));
        state.note_base(base);
        self.base = base;
        let head = client.range(one(keys.head(), self.revision)).await?.kvs.into_iter().next().unwrap_or_default();
        let end = End { position: position(&head), entries: head.version.cast_unsigned() };
        state.delivered.set(end.position);
        state.numbered.set(end.entries);
        let snapshots = snapshots(client, keys, self.revision).await?;
        let entries = RangeRequest { keys_only: true, limit: 1, ..all(keys.journal(), self.revision) };
        let stored = client.range(entries).await?.count.cast_unsigned();
        // The transaction of an entry also writes `head`. So `head` is behind the base or the stored entries only if
        // somebody has copied the keys from another etcd.
        if base.position > end.position || base.entries.max(stored) > end.entries {
            return Ok(Event::Failed(unusable(client.config(), COPIED)));
        }
        Ok(Event::Opened { manifest, snapshots, has_entries: stored > 0 })
    }

    pub(super) async fn chunk(&self, state: &SharedState, snapshot: SnapshotId, index: u32) -> Result<Event, Failure> {
        let SharedState { client, keys, .. } = state;
        let found = client.range(one(keys.chunk(snapshot, index), self.revision)).await?.kvs.into_iter().next();
        let sealed = found.as_ref().map(|kv| kv.value.as_slice());
        Ok(open_piece(&client.config().store(), snapshot, index, sealed).map_or_else(Event::Failed, Event::Piece))
    }

    /// Returns the next entries of the journal, in order; an empty list at the end.
    pub(super) async fn entries(&mut self, state: &SharedState) -> Result<Event, Failure> {
        if self.entries.is_none() {
            let entries = self.read(state).await?;
            // `head` counts all entries, so it shows whether one is missing. Without this check, the replica might
            // notice the gap only after the next new entry. Until then, it would answer reads at `resourceVersion` 0
            // without the changes of the missing entry.
            let positions = entries.iter().map(|entry| entry.position);
            if let Err(damaged) = check_count(state.client.config(), self.base, positions, state.numbered.get()) {
                return Ok(Event::Failed(damaged));
            }
            self.entries = Some(entries);
        }
        let queue = self.entries.get_or_insert_default();
        let mut piece = Vec::new();
        let mut bytes = 0;
        while bytes < PIECE_BYTES
            && let Some(entry) = queue.pop_front()
        {
            bytes += entry.payload.len();
            piece.push(entry);
        }
        Ok(Event::Entries(piece))
    }

    /// Returns the revision of etcd at which the store is read.
    pub(super) fn revision(&self) -> u64 {
        self.revision.cast_unsigned()
    }

    async fn read(&self, state: &SharedState) -> Result<VecDeque<Entry>, Failure> {
        let SharedState { client, keys, .. } = state;
        let kvs = journal(client, keys, self.revision).await?;
        let mut entries = state.entries.borrow_mut();
        *entries = super::transaction::Entries::default();
        for kv in &kvs {
            if let Some((writer, sequence)) = keys.entry_of(&kv.key) {
                entries.push(writer, sequence, position(kv));
            }
        }
        Ok(kvs.into_iter().map(entry).collect())
    }
}

/// Lists the snapshots that have chunks in the store at `revision`.
pub(super) async fn snapshots(client: &Client, keys: &Keys, revision: i64) -> Result<Vec<SnapshotId>, Failure> {
    let chunks = RangeRequest { keys_only: true, limit: PAGE_KEYS, ..all(keys.chunks(), revision) };
    let (kvs, _) = pages(client, chunks, || Ok(())).await?;
    let mut snapshots: Vec<_> = kvs.iter().filter_map(|kv| keys.snapshot_of(&kv.key)).collect();
    snapshots.dedup();
    Ok(snapshots)
}

/// Reads the entries of the journal at `revision`, as etcd returns them, in the order of their positions. [`entry`]
/// converts one of them.
pub(super) async fn journal(client: &Client, keys: &Keys, revision: i64) -> Result<Vec<KeyValue>, Failure> {
    let entries = RangeRequest { limit: PAGE_KEYS, ..all(keys.journal(), revision) };
    let (mut kvs, _) = pages(client, entries, || Ok(())).await?;
    kvs.sort_unstable_by_key(|kv| kv.mod_revision);
    Ok(kvs)
}

/// Converts a key of the journal and its value, as etcd returns them, to an entry.
pub(super) fn entry(kv: KeyValue) -> Entry {
    Entry { position: position(&kv), payload: kv.value }
}

/// Returns the position of an entry, which is the revision of the only write of the entry's key. For the key `head`,
/// returns the position of the last entry.
pub(super) fn position(kv: &KeyValue) -> Position {
    Position(kv.mod_revision.cast_unsigned())
}

pub(super) fn one(key: Vec<u8>, revision: i64) -> RangeRequest {
    RangeRequest { key, revision, ..RangeRequest::default() }
}

fn all(Range { start, end }: Range<Vec<u8>>, revision: i64) -> RangeRequest {
    RangeRequest { key: start, range_end: end, revision, ..RangeRequest::default() }
}

/// Checks that no entry of the journal is missing. `positions` has the positions of the entries in etcd, and `all` is
/// the number of entries ever written, as the key `head` counts them. `base` is the end of the entries that the base
/// contains. Entries up to this end may have been deleted.
///
/// # Errors
/// The number of entries is wrong.
pub(super) fn check_count(
    config: &Config,
    base: End,
    positions: impl Iterator<Item = Position>,
    all: u64,
) -> Result<(), EngineError> {
    let found = base.entries + positions.filter(|position| *position > base.position).count() as u64;
    if found == all {
        return Ok(());
    }
    let what = format!("it has {found} entries of {all}");
    Err(EngineError::Damaged { place: format!("{}: journal", config.store()), what })
}

const FOREIGN: &str = "the prefix holds keys of another product; use another --etcd-prefix";
const COPIED: &str = "the revisions of the keys do not fit together, as after a copy of the keys from another etcd; \
                      delete the keys, and restore a snapshot of that etcd instead, or run migrate-storage from that \
                      etcd to a data folder and from the folder to this etcd";

/// Returns the error for keys that this release cannot use.
fn unusable(config: &Config, what: &str) -> EngineError {
    EngineError::Io { what: config.store(), cause: io::Error::other(what) }
}

/// Checks that the keys below the prefix belong to this product.
///
/// # Errors
/// The keys belong to another product or release, or cannot be read.
pub(super) async fn check_format(client: &Client, keys: &Keys) -> Result<(), EngineError> {
    let config = client.config();
    let failed = |failure: Failure| failure.into_error(config);
    let answer = client.range(one(keys.format(), 0)).await.map_err(failed)?;
    let revision = answer.header.map_or(0, |header| header.revision);
    let format = answer.kvs.into_iter().next();
    match format {
        Some(kv) if kv.value == FORMAT => Ok(()),
        // The error suggests no other prefix: there, this replica would serve a second set of Leases.
        Some(kv) if kv.value.starts_with(PRODUCT) => {
            Err(unusable(config, "another release wrote the store in another format; run the release that wrote it"))
        }
        Some(_) => Err(unusable(config, FOREIGN)),
        None => {
            // Both reads use one revision, since another replica may create the store between the reads.
            let any = RangeRequest { keys_only: true, limit: 1, ..all(keys.all(), revision) };
            match client.range(any).await.map_err(failed)?.kvs.is_empty() {
                true => Ok(()),
                false => Err(unusable(config, FOREIGN)),
            }
        }
    }
}
