//! The manifest of a store. It names the base (a snapshot or an empty table), from which a process loads its table at
//! startup. It also names a newer complete snapshot, and the snapshot that a writer is taking.
//!
//! In the layout of the manifest, a `number` is a varint (module `wire`):
//!
//! ```text
//!   0    start of a sealed value, kind `M` (module `seal`)
//!   2    u8       0: the base is an empty table; 1: the base is a snapshot
//!        number   version of the empty table, or the snapshot as below
//!        u8       1: a newer snapshot follows, as below; 0: no newer snapshot
//!        number   number of the last claimed snapshot; since format 2
//!        u8       1: the name (u64) of the writer that takes this snapshot follows; 0: none takes it; since format 2
//!        checksum
//! ```
//!
//! A snapshot is described by these numbers:
//!
//! ```text
//!   number of the snapshot, version of the table, position of the last entry in the snapshot, chain (u64; a hash of
//!   all applied entries up to this position and of their results), number of chunks, number of records (Leases),
//!   bytes of the chunks, wall clock when the snapshot was begun in microseconds, number of remembered writers (module
//!   `applied`), for each of them its name (u64) and the sequence and position of its last entry; since format 2 the
//!   position of the last entry of the most recently forgotten writer, and the number of entries from the creation of
//!   the store up to the snapshot's last entry
//! ```
//!
//! Several writers may share a store. Before a writer takes a snapshot, it claims the snapshot's number in the
//! manifest. A commit with a manifest names the revision of the manifest that it replaces. The commit fails if another
//! writer has replaced that manifest meanwhile. So one writer at a time takes a snapshot. If another writer takes over
//! the claim, the first writer cannot finish its snapshot.

use super::applied::{Writer, Writers};
use super::port::End;
use super::seal::{self, Kind, Opened};
use super::wire::{FormError, Reader, put_length, put_signed, put_varint};
use crate::engine::{Position, SnapshotId};
use crate::resource::ResourceVersion;

/// The manifest of a store. It names all valid snapshots in the store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Manifest {
    pub(super) base: Base,
    /// A complete snapshot. It becomes the base when the watch window (the events from which watches can resume) no
    /// longer needs the entries before it.
    pub(super) newer: Option<SnapshotInfo>,
    /// Number of the last claimed snapshot. No other snapshot has this number.
    pub(super) last_claimed: SnapshotId,
    /// Name of the writer that is taking the last claimed snapshot; `None` if no writer is taking it.
    pub(super) taker: Option<u64>,
}

/// The base: what a process loads first at startup.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Base {
    /// An empty table at this version.
    Empty(ResourceVersion),
    /// The Leases of a snapshot.
    Snapshot(SnapshotInfo),
}

/// The description of a complete snapshot.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct SnapshotInfo {
    pub(super) id: SnapshotId,
    /// Version of the table in the snapshot.
    pub(super) version: ResourceVersion,
    /// Position of the last entry in the snapshot.
    pub(super) position: Position,
    /// Number of entries from the creation of the store up to `position`. 0 in a manifest of format 1. Only a store
    /// with several writers needs this number: for barriers, and to find missing entries at startup.
    pub(super) entries: u64,
    /// Hash of all entries up to `position` and of their results.
    pub(super) chain: u64,
    /// Number of chunks of the snapshot.
    pub(super) chunks: u32,
    /// Number of Leases in the snapshot.
    pub(super) records: u64,
    /// Size of the snapshot's chunks, in bytes.
    pub(super) bytes: u64,
    /// Wall-clock time when the snapshot was begun, in microseconds.
    pub(super) begun_us: i64,
    pub(super) writers: Writers,
}

/// Returns the end of the entries that the base of a manifest contains. `sealed` is the manifest as it is stored.
/// Position and number of entries are 0 if the base is an empty table, or if the manifest cannot be read.
pub(crate) fn base_end(sealed: &[u8]) -> End {
    match Manifest::decode(sealed).map(|manifest| manifest.base) {
        Ok(Base::Snapshot(SnapshotInfo { position, entries, .. })) => End { position, entries },
        Ok(Base::Empty(_)) | Err(_) => End::default(),
    }
}

impl Manifest {
    /// Creates the manifest of a new store.
    pub(super) fn new(version: ResourceVersion) -> Self {
        Self { base: Base::Empty(version), newer: None, last_claimed: SnapshotId(0), taker: None }
    }

    /// Returns all snapshots that the manifest names.
    pub(super) fn snapshots(&self) -> impl Iterator<Item = &SnapshotInfo> {
        let base = match &self.base {
            Base::Empty(_) => None,
            Base::Snapshot(info) => Some(info),
        };
        base.into_iter().chain(&self.newer)
    }

    /// Returns the newest snapshot that the manifest names.
    pub(super) fn newest(&self) -> Option<&SnapshotInfo> {
        self.snapshots().last()
    }

    /// Encodes and seals the manifest in a format.
    pub(super) fn encode(&self, format: u8) -> Vec<u8> {
        let mut out = Vec::new();
        seal::begin(Kind::Manifest, format, &mut out);
        match &self.base {
            Base::Empty(version) => {
                out.push(0);
                put_varint(&mut out, version.0);
            }
            Base::Snapshot(info) => {
                out.push(1);
                put_info(&mut out, info);
            }
        }
        out.push(u8::from(self.newer.is_some()));
        if let Some(info) = &self.newer {
            put_info(&mut out, info);
        }
        put_varint(&mut out, self.last_claimed.0);
        out.push(u8::from(self.taker.is_some()));
        out.extend(self.taker.iter().flat_map(|taker| taker.to_le_bytes()));
        seal::seal(&mut out);
        out
    }

    /// Decodes a sealed manifest.
    ///
    /// # Errors
    /// [`FormError`]
    pub(super) fn decode(sealed: &[u8]) -> Result<Self, FormError> {
        let Opened { mut reader, format, .. } = seal::open(Kind::Manifest, sealed)?;
        let base = if read_flag(&mut reader)? {
            Base::Snapshot(read_info(&mut reader, format)?)
        } else {
            Base::Empty(ResourceVersion(reader.varint()?))
        };
        let newer = if read_flag(&mut reader)? { Some(read_info(&mut reader, format)?) } else { None };
        let mut manifest = Self { base, newer, last_claimed: SnapshotId(0), taker: None };
        if format == 1 {
            manifest.last_claimed = manifest.newest().map_or(SnapshotId(0), |info| info.id);
        } else {
            manifest.last_claimed = SnapshotId(reader.varint()?);
            manifest.taker = if read_flag(&mut reader)? { Some(reader.u64()?) } else { None };
        }
        reader.finish()?;
        Ok(manifest)
    }
}

fn put_info(out: &mut Vec<u8>, info: &SnapshotInfo) {
    put_varint(out, info.id.0);
    put_varint(out, info.version.0);
    put_varint(out, info.position.0);
    out.extend_from_slice(&info.chain.to_le_bytes());
    put_varint(out, info.chunks.into());
    put_varint(out, info.records);
    put_varint(out, info.bytes);
    put_signed(out, info.begun_us);
    put_length(out, info.writers.len());
    for (name, writer) in info.writers.iter() {
        out.extend_from_slice(&name.to_le_bytes());
        put_varint(out, writer.sequence);
        put_varint(out, writer.position.0);
    }
    put_varint(out, info.writers.forgotten.0);
    put_varint(out, info.entries);
}

fn read_info(reader: &mut Reader<'_>, format: u8) -> Result<SnapshotInfo, FormError> {
    let id = SnapshotId(reader.varint()?);
    let version = ResourceVersion(reader.varint()?);
    let position = Position(reader.varint()?);
    let (chain, chunks) = (reader.u64()?, reader.narrow()?);
    let (records, bytes, begun_us) = (reader.varint()?, reader.varint()?, reader.signed()?);
    let mut writers = Writers::default();
    for _ in 0..reader.length()? {
        let name = reader.u64()?;
        writers.insert(name, Writer { sequence: reader.varint()?, position: Position(reader.varint()?) });
    }
    let mut entries = 0;
    if format > 1 {
        writers.forgotten = Position(reader.varint()?);
        entries = reader.varint()?;
    }
    Ok(SnapshotInfo { id, version, position, entries, chain, chunks, records, bytes, begun_us, writers })
}

fn read_flag(reader: &mut Reader<'_>) -> Result<bool, FormError> {
    let error = reader.damaged("neither 0 nor 1");
    match reader.u8()? {
        0 => Ok(false),
        1 => Ok(true),
        _ => Err(error),
    }
}
