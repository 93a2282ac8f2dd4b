//! A snapshot of the table that is being taken: read in steps on the loop, handed over in pieces.

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

/// A snapshot under way.
#[derive(Debug)]
pub(super) struct Taking {
    id: SnapshotId,
    /// Format of its chunks.
    format: u8,
    copy: TableCopy,
    applied: Applied,
    /// Records that are not handed over yet.
    records: Vec<u8>,
    record_count: u64,
    /// Whether all Leases have been read.
    is_read: bool,
    /// Pieces that were handed over.
    pieces: u32,
    /// Bytes of their chunks.
    bytes: u64,
    pub(super) begun_ms: u64,
    begun_us: i64,
    /// Entries since it was begun.
    pub(super) since: Amount,
}

impl Taking {
    /// Begins with the table as it stands, which `applied` tells of.
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

    /// Number of pieces that were handed over.
    pub(super) fn pieces(&self) -> u32 {
        self.pieces
    }

    /// Whether there is more to do before a piece is handed over: Leases to be read, or the manifest to be written.
    pub(super) fn has_work(&self) -> bool {
        self.is_short() || self.is_complete()
    }

    /// Whether all pieces were handed over.
    fn is_complete(&self) -> bool {
        self.is_read && self.records.is_empty()
    }

    /// Whether Leases must be read before there is a piece.
    fn is_short(&self) -> bool {
        !self.is_read && self.records.len() < PIECE_BYTES
    }

    /// Reads some Leases.
    fn step(&mut self, table: &Table) {
        let Self { copy, records, record_count, .. } = self;
        let stepped = copy.next(table, JOB_KEYS_PER_STEP, |object| {
            put_record(records, object);
            *record_count += 1;
            records.len() < PIECE_BYTES
        });
        self.is_read = stepped == Stepped::Done;
    }

    /// Reads some Leases if that is needed. Gives the next piece, if there are records enough for one, or no more than
    /// the last.
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

    /// Takes in that a piece is durable.
    pub(super) fn on_durable(&mut self, chunk_bytes: usize) {
        self.bytes += chunk_bytes as u64;
    }

    /// What the manifest says of it, once all pieces were handed over.
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
