//! Takes a snapshot of the table for the store. The event loop reads the Leases in steps, and encodes each as a record.
//! It sends the records to the worker in pieces of up to 64 KiB.

use super::applied::Applied;
use super::chunk::PIECE_BYTES;
use super::manifest::SnapshotInfo;
use super::port::Piece;
use super::record::put_record;
use super::retained::Amount;
use crate::engine::SnapshotId;
use crate::limits::JOB_KEYS_PER_STEP;
use crate::table::Table;
use crate::table::copy::TableCopy;
use crate::table::snapshot::Stepped;

/// A snapshot that is being taken.
#[derive(Debug)]
pub(super) struct Taking {
    id: SnapshotId,
    /// Format of the snapshot's chunks.
    format: u8,
    copy: TableCopy,
    applied: Applied,
    /// Encoded records that [`Taking::piece`] has not returned yet.
    records: Vec<u8>,
    record_count: u64,
    /// Whether all Leases have been read.
    is_read: bool,
    /// Number of pieces of the snapshot that [`Taking::piece`] has returned.
    pieces: u32,
    /// Size of the snapshot's durable chunks, in bytes.
    bytes: u64,
    pub(super) begun_ms: u64,
    begun_us: i64,
    /// Number and size of the entries that the journal has appended since the snapshot was begun.
    pub(super) since: Amount,
}

impl Taking {
    /// Begins a snapshot of the table at its current version. `applied` is the progress of the table in the journal.
    pub(super) fn begin(
        (id, format): (SnapshotId, u8),
        table: &Table,
        applied: Applied,
        begun_ms: u64,
        begun_us: i64,
    ) -> Self {
        Self {
            id,
            format,
            copy: table.copy(),
            applied,
            records: Vec::new(),
            record_count: 0,
            is_read: false,
            pieces: 0,
            bytes: 0,
            begun_ms,
            begun_us,
            since: Amount::default(),
        }
    }

    pub(super) fn id(&self) -> SnapshotId {
        self.id
    }

    /// Returns the number of pieces of the snapshot that [`Taking::piece`] has returned.
    pub(super) fn pieces(&self) -> u32 {
        self.pieces
    }

    /// Whether the event loop has work for the snapshot: it must read Leases for the next piece, or write the manifest.
    pub(super) fn has_work(&self) -> bool {
        self.is_short() || self.is_complete()
    }

    /// Whether all pieces of the snapshot were returned.
    fn is_complete(&self) -> bool {
        self.is_read && self.records.is_empty()
    }

    /// Whether more Leases must be read to complete the next piece.
    fn is_short(&self) -> bool {
        !self.is_read && self.records.len() < PIECE_BYTES
    }

    /// Appends the records of some Leases to `records`.
    fn step(&mut self, table: &Table) {
        let Self { copy, records, record_count, .. } = self;
        let stepped = copy.next(table, JOB_KEYS_PER_STEP, |object| {
            put_record(records, object);
            *record_count += 1;
            records.len() < PIECE_BYTES
        });
        self.is_read = stepped == Stepped::Done;
    }

    /// Reads some Leases if needed. Returns the next piece if the piece is full, or if it is the last piece.
    pub(super) fn piece(&mut self, table: &Table) -> Option<Piece> {
        if self.is_short() {
            self.step(table);
        }
        if self.is_short() || self.records.is_empty() {
            return None;
        }
        let bytes = self.records.drain(..self.records.len().min(PIECE_BYTES)).collect();
        let index = self.pieces;
        self.pieces += 1;
        Some(Piece { snapshot: self.id, index, format: self.format, bytes })
    }

    /// Adds the size of a chunk that became durable.
    pub(super) fn on_durable(&mut self, chunk_bytes: usize) {
        self.bytes += chunk_bytes as u64;
    }

    /// Returns the snapshot's description for the manifest, once all pieces were returned.
    pub(super) fn info(&self) -> Option<SnapshotInfo> {
        self.is_complete().then(|| SnapshotInfo {
            id: self.id,
            version: self.copy.version(),
            position: self.applied.position,
            entries: self.applied.entries,
            chain: self.applied.chain,
            chunks: self.pieces,
            records: self.record_count,
            bytes: self.bytes,
            begun_us: self.begun_us,
            writers: self.applied.writers.clone(),
        })
    }
}
