//! Reads the intact parts of a store's file for an operator. The file may be damaged.

use std::io;
use std::path::Path;
use std::sync::Arc;

use redb::backends::InMemoryBackend;
use redb::{ReadTransaction, ReadableTable, StorageBackend};

use super::store::{Absent, CHUNKS, MANIFEST, META};
use super::walk::walk;
use super::{Disk, folder};
use crate::engine::{Engine, EngineError, Entry, Position, SnapshotId, Write, entries_after};

/// The readable content of a store.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Salvage {
    /// The manifest, if a readable manifest exists.
    pub manifest: Option<Vec<u8>>,
    /// Chunks, ordered by snapshot and index.
    pub chunks: Vec<Chunk>,
    /// Entries of the journal, in the order of their positions.
    pub entries: Vec<Entry>,
    /// Descriptions of the damage. Empty if the file is intact.
    ///
    /// If the file is damaged, the other fields may hold outdated bytes, or bytes that were never written. The
    /// journal's checksum in each entry, each chunk and the manifest reveals bytes that were never written.
    pub complaints: Vec<String>,
}

/// A chunk of a snapshot.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Chunk {
    /// Snapshot of the chunk.
    pub snapshot: SnapshotId,
    /// Index of the chunk in its snapshot, from 0.
    pub index: u32,
    /// Bytes that the journal has sealed with a checksum.
    pub bytes: Vec<u8>,
}

/// Reads as much as possible of `file`, which is a store's file or a copy of it.
///
/// Changes neither the file nor its folder, and takes no lock. While it runs, the function stores up to three copies of
/// the file's content in memory.
///
/// A file that a server is writing to can look damaged.
///
/// # Errors
/// [`EngineError::Io`] if the file cannot be read, and [`EngineError::NewerFormat`] if a newer release wrote it.
pub fn salvage(file: &Path) -> Result<Salvage, EngineError> {
    // redb repairs the file that it opens. So redb gets a copy.
    let bytes = std::fs::read(file).map_err(|cause| folder::refused("cannot read", file, cause))?;
    let copy = copy(&bytes).map_err(|cause| folder::refused("cannot copy", file, cause))?;
    match Disk::attach(Arc::new(copy), &file.display().to_string(), Absent::Refuse, None) {
        Ok(mut disk) => {
            let entries = disk.entries(Position::default(), usize::MAX)?;
            Ok(Salvage { entries, ..disk.read(Salvage::of)? })
        }
        Err(EngineError::Damaged { what, .. }) => {
            let mut salvage = walk(&bytes);
            salvage.complaints.insert(0, what);
            Ok(salvage)
        }
        Err(error) => Err(error),
    }
}

impl Salvage {
    /// Reads the manifest and the chunks of a store, but not its entries.
    fn of(transaction: &ReadTransaction) -> Result<Self, redb::Error> {
        let manifest = transaction.open_table(META)?.get(MANIFEST)?.map(|bytes| bytes.value().to_vec());
        let mut salvage = Self { manifest, ..Self::default() };
        for chunk in transaction.open_table(CHUNKS)?.iter()? {
            let (key, bytes) = chunk?;
            let (snapshot, index) = key.value();
            salvage.chunks.push(Chunk { snapshot: SnapshotId(snapshot), index, bytes: bytes.value().to_vec() });
        }
        Ok(salvage)
    }
}

fn copy(bytes: &[u8]) -> io::Result<InMemoryBackend> {
    let copy = InMemoryBackend::new();
    copy.set_len(bytes.len() as u64)?;
    copy.write(0, bytes)?;
    Ok(copy)
}

/// Lets the journal's inspection read the salvaged content like a store.
impl Engine for Salvage {
    fn manifest(&mut self) -> Result<Option<Vec<u8>>, EngineError> {
        Ok(self.manifest.clone())
    }

    fn chunk(&mut self, snapshot: SnapshotId, index: u32) -> Result<Option<Vec<u8>>, EngineError> {
        let found = self.chunks.binary_search_by_key(&(snapshot, index), |chunk| (chunk.snapshot, chunk.index));
        Ok(found.ok().map(|at| self.chunks[at].bytes.clone()))
    }

    fn snapshots(&mut self) -> Result<Vec<SnapshotId>, EngineError> {
        let mut snapshots: Vec<_> = self.chunks.iter().map(|chunk| chunk.snapshot).collect();
        snapshots.dedup();
        Ok(snapshots)
    }

    fn entries(&mut self, after: Position, bytes_max: usize) -> Result<Vec<Entry>, EngineError> {
        Ok(entries_after(&self.entries, after, bytes_max))
    }

    fn commit(&mut self, _: Vec<Write>, _: &mut dyn FnMut(Entry)) -> Result<(), EngineError> {
        let cause = io::ErrorKind::ReadOnlyFilesystem.into();
        Err(EngineError::Io { what: "cannot write to what was read of a store".into(), cause })
    }
}
