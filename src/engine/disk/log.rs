//! The log: a region of fixed size before the database in the file. Commits that only append one entry go to the log.
//!
//! Even a small commit of redb writes about ten pages, and takes over a hundred microseconds of processor time. But
//! most commits append one short entry. In the log, such a commit is one write and one sync. When the log is full, one
//! commit of redb moves all entries of the log to the database and begins the next generation. The records of the
//! previous generation are then invalid, and new records overwrite them.
//!
//! ```text
//! record   checksum, position, generation, marks: u64; length of the payload: u32; kind: 4 bytes; payload;
//!          zeros up to the next multiple of 8 bytes
//! ```
//!
//! Numbers are little-endian. The checksum is XXH3 of the rest of the record, without padding. Its seed is a random
//! number of the store, so no client can write a payload that contains a valid record. `marks` is the number of commits
//! in the database that did more than append entries. A database that stores a lower number has lost a commit.
//!
//! Records follow each other from the start of the log. One commit is in flight at a time. So a power failure can leave
//! only the last record incomplete (torn), if the disk keeps the other bytes of a sector that it was writing. A valid
//! record after an invalid one shows that the disk has damaged the log. A clean stop moves the log's entries to the
//! database. If the disk is full or an entry is damaged, the stop writes an end record to the log instead. A valid end
//! record after a damaged last entry shows the damage to the next open.

use std::io;
use std::ops::Range;

use redb::StorageBackend;
use twox_hash::XxHash3_64;

use super::backend::Guard;
use crate::engine::{Entry, Position};

/// The log of a store.
#[derive(Debug)]
pub(super) struct Log {
    /// Seed of the checksums of the records.
    seed: u64,
    /// Number of the current generation.
    generation: u64,
    records: Vec<Record>,
    /// Offset of the end of the last record, in bytes.
    end: usize,
    /// Buffer for encoding a record, reused to avoid allocations.
    buffer: Vec<u8>,
}

/// A record of the current generation.
#[derive(Debug)]
pub(super) struct Record {
    /// Position of the entry.
    pub(super) position: u64,
    /// Byte range of the record in the log, without the record's padding.
    place: Range<usize>,
}

/// What the database stores about the log.
#[derive(Clone, Copy, Debug)]
pub(super) struct Origin {
    /// Seed of the checksums.
    pub(super) seed: u64,
    /// Number of the generation.
    pub(super) generation: u64,
    /// Number of commits in the database that did more than append entries.
    pub(super) marks: u64,
}

/// A valid record of any generation.
#[derive(Debug)]
struct Found<'a> {
    position: u64,
    generation: u64,
    marks: u64,
    is_end: bool,
    payload: &'a [u8],
}

impl Log {
    /// Creates a log without records.
    pub(super) fn new(seed: u64, generation: u64) -> Self {
        Self { seed, generation, records: Vec::new(), end: 0, buffer: Vec::new() }
    }

    /// Parses the records of the current generation in `region`, the bytes of the log.
    ///
    /// # Errors
    /// The log is damaged. The text describes the damage.
    pub(super) fn find(region: &[u8], origin: Origin) -> Result<Self, String> {
        let Origin { seed, generation, marks } = origin;
        let mut log = Self::new(seed, generation);
        let present = |offset| record_at(region, offset, seed).filter(|found| found.generation == generation);
        let mut end = 0;
        while let Some(found) = present(log.end) {
            if found.marks > marks {
                return Err(OLDER.to_owned());
            }
            if found.is_end {
                end = padded(log.end + HEADER_BYTES);
                break;
            }
            let record =
                Record { position: found.position, place: log.end..log.end + HEADER_BYTES + found.payload.len() };
            if log.records.last().is_some_and(|last| last.position >= record.position) {
                return Err(format!("the log goes back to position {}", record.position));
            }
            log.end = padded(record.place.end);
            log.records.push(record);
        }
        let behind = (end.max(log.end)..region.len()).step_by(ALIGNMENT);
        let mut behind = behind.filter_map(|offset| record_at(region, offset, seed));
        match behind.find(|found| found.generation >= generation) {
            Some(found) if found.generation > generation => Err(OLDER.to_owned()),
            Some(found) => Err(format!("a record of the log before position {} is not valid", found.position)),
            None => Ok(log),
        }
    }

    /// Returns the payloads of the valid records in `generation` and later generations, with their positions. The log
    /// may be damaged.
    pub(super) fn salvage(region: &[u8], seed: u64, generation: u64) -> impl Iterator<Item = (u64, &[u8])> {
        let offsets = (0..region.len()).step_by(ALIGNMENT);
        let found = offsets.filter_map(move |offset| record_at(region, offset, seed));
        let entries = found.filter(move |found| found.generation >= generation && !found.is_end);
        entries.map(|found| (found.position, found.payload))
    }

    /// Returns the records, ordered by position.
    pub(super) fn records(&self) -> &[Record] {
        &self.records
    }

    /// Returns the number of the generation.
    pub(super) fn generation(&self) -> u64 {
        self.generation
    }

    /// Whether the log has space for an entry with a payload of this size.
    pub(super) fn has_space(&self, payload_bytes: usize) -> bool {
        payload_bytes <= LOG_BYTES && padded(self.end + HEADER_BYTES + payload_bytes) <= LOG_BYTES
    }

    /// Appends an entry and makes it durable. The log must have space for the entry. After an error, the entry may be
    /// in the log until [`Log::erase`].
    ///
    /// # Errors
    /// The backend has failed.
    pub(super) fn append(&mut self, backend: &Guard, position: u64, marks: u64, payload: &[u8]) -> io::Result<()> {
        assert!(self.records.last().is_none_or(|last| last.position < position), "a position was given out twice");
        let place = self.end..self.end + HEADER_BYTES + payload.len();
        self.write(backend, position, marks, ENTRY, payload)?;
        self.end = padded(place.end);
        self.records.push(Record { position, place });
        Ok(())
    }

    /// Writes an end record and makes it durable, if the log has space. The next entry overwrites the end record.
    ///
    /// # Errors
    /// The backend has failed.
    pub(super) fn mark_end(&mut self, backend: &Guard, position: u64, marks: u64) -> io::Result<()> {
        if self.has_space(0) { self.write(backend, position, marks, END, &[]) } else { Ok(()) }
    }

    /// Writes a record after the last record, and makes it durable.
    fn write(&mut self, backend: &Guard, position: u64, marks: u64, kind: [u8; 4], payload: &[u8]) -> io::Result<()> {
        assert!(self.has_space(payload.len()), "a record behind the end of the log");
        let record = &mut self.buffer;
        record.clear();
        record.extend_from_slice(&[0; 8]);
        record.extend_from_slice(&position.to_le_bytes());
        record.extend_from_slice(&self.generation.to_le_bytes());
        record.extend_from_slice(&marks.to_le_bytes());
        record.extend_from_slice(&u32::try_from(payload.len()).unwrap_or(u32::MAX).to_le_bytes());
        record.extend_from_slice(&kind);
        record.extend_from_slice(payload);
        let checksum = XxHash3_64::oneshot_with_seed(self.seed, &record[8..]);
        record[..8].copy_from_slice(&checksum.to_le_bytes());
        record.resize(padded(record.len()), 0);
        backend.write(self.end as u64, record)?;
        backend.sync_data()
    }

    /// Invalidates the record of an append that failed because the disk was full: overwrites the record's checksum with
    /// zeros, and makes the zeros durable. Without them, the record could be valid if the disk has taken all of it. A
    /// power cut could also complete the record with bytes of the next append.
    ///
    /// # Errors
    /// The backend has failed. The log may then contain the record.
    pub(super) fn erase(&self, backend: &Guard) -> io::Result<()> {
        let mut found = [0; 8];
        backend.read(self.end as u64, &mut found)?;
        // A record without its checksum is never valid, so it needs no zeros. Zeros could even fail: the file may have
        // a hole (a block without a place on the disk) where the checksum belongs, and a full disk cannot fill a hole.
        if !self.buffer.starts_with(&found) {
            return Ok(());
        }
        backend.write(self.end as u64, &[0; 8])?;
        backend.sync_data()
    }

    /// Reads the entries at `positions` from the log in one read. Returns `None` if a record has changed since it was
    /// written.
    ///
    /// # Errors
    /// The backend has failed.
    pub(super) fn entries(&self, backend: &Guard, positions: Range<u64>) -> io::Result<Option<Vec<Entry>>> {
        let [from, to] =
            [positions.start, positions.end].map(|at| self.records.partition_point(|record| record.position < at));
        let records = self.records.get(from..to).unwrap_or_default();
        let (Some(first), Some(last)) = (records.first(), records.last()) else { return Ok(Some(Vec::new())) };
        let start = first.place.start;
        let mut bytes = vec![0; last.place.end - start];
        backend.read(start as u64, &mut bytes)?;
        let entry = |record: &Record| {
            let found = record_at(&bytes, record.place.start - start, self.seed)?;
            let is_it = (found.position, found.generation) == (record.position, self.generation);
            is_it.then(|| Entry { position: Position(record.position), payload: found.payload.to_vec() })
        };
        Ok(records.iter().map(entry).collect())
    }

    /// Begins the next generation. A commit of redb must have stored all records, and the number of the next
    /// generation.
    pub(super) fn begin_generation(&mut self) {
        self.generation += 1;
        self.records.clear();
        self.end = 0;
    }
}

/// Returns the record at an offset, if it is valid.
fn record_at(region: &[u8], offset: usize, seed: u64) -> Option<Found<'_>> {
    let (header, rest) = region.get(offset..)?.split_at_checked(HEADER_BYTES)?;
    let is_end = header[36..] == END;
    if !is_end && header[36..] != ENTRY {
        return None;
    }
    let number = |at: usize| header[at..].first_chunk().map(|bytes| u64::from_le_bytes(*bytes));
    let payload_bytes = header[32..].first_chunk().map(|bytes| u32::from_le_bytes(*bytes))?;
    let payload = rest.get(..usize::try_from(payload_bytes).ok()?)?;
    let sealed = &region[offset + 8..offset + HEADER_BYTES + payload.len()];
    let is_valid = number(0)? == XxHash3_64::oneshot_with_seed(seed, sealed);
    let (position, generation, marks) = (number(8)?, number(16)?, number(24)?);
    is_valid.then_some(Found { position, generation, marks, is_end, payload })
}

fn padded(bytes: usize) -> usize {
    bytes.next_multiple_of(ALIGNMENT)
}

/// Size of the log, which is the first part of the file, in bytes. At this size, a commit that moves the entries of a
/// full log to the database takes only some milliseconds longer than another commit.
pub(super) const LOG_BYTES: usize = 128 * 1024;

/// Size of a record's header, in bytes.
const HEADER_BYTES: usize = 40;

/// Alignment of records, in bytes.
const ALIGNMENT: usize = 8;

/// Kind of a record that holds an entry.
const ENTRY: [u8; 4] = *b"LEAS";
/// Kind of the end record.
const END: [u8; 4] = *b"LEND";

const OLDER: &str = "the database is older than the log";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_log_record_is_found_only_with_its_seed_and_generation() {
        let mut region = vec![0; 256];
        let mut log = Log::new(7, 1);
        let backend = Guard::new(std::sync::Arc::new(redb::backends::InMemoryBackend::new()));
        backend.set_len(256).expect("memory");
        log.append(&backend, 3, 5, b"payload").expect("memory");
        backend.read(0, &mut region).expect("memory");
        let find = |seed, generation, marks| {
            Log::find(&region, Origin { seed, generation, marks }).map(|log| log.records().len())
        };
        assert_eq!(find(7, 1, 5), Ok(1));
        assert_eq!(find(7, 1, 6), Ok(1), "the database has gone on");
        assert_eq!(find(7, 2, 5), Ok(0), "a generation that is over");
        assert_eq!(find(8, 1, 5), Ok(0), "another store");
        assert_eq!(find(7, 0, 5), Err(OLDER.to_owned()), "a generation that the database does not know");
        assert_eq!(find(7, 1, 4), Err(OLDER.to_owned()), "a commit that the database does not know");
    }

    #[test]
    fn a_log_is_full_when_the_next_record_would_pass_its_end() {
        let log = Log::new(7, 1);
        assert!(log.has_space(LOG_BYTES - HEADER_BYTES));
        assert!(!log.has_space(LOG_BYTES - HEADER_BYTES + 1) && !log.has_space(usize::MAX));
    }
}
