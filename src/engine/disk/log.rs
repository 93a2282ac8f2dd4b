//! The log: a part of fixed size before the database, for commits of one entry.
//!
//! A commit of redb writes some ten pages and takes over a hundred microseconds of processor time, however little it
//! holds. Most commits are one short entry. In the log such a commit is one write and one sync. When an entry finds no
//! room, one commit of redb takes in all entries of the log, and begins its next generation. From that moment the
//! records of the generation before are void, and new ones overwrite them.
//!
//! ```text
//! record   checksum: u64, position: u64, generation: u64, payload bytes: u32, MAGIC: u32, payload, zeros up to 8
//! ```
//!
//! Numbers are little-endian. The checksum is XXH3 of the record behind it, up to the payload's end. Its seed is a
//! random number of the store, so no client can write a payload that holds a valid record.
//!
//! Records follow each other from the start of the log. One commit at a time is under way, so only the last record can
//! be torn. A valid record behind one that is not valid shows that the disk has damaged the log.

use std::io;
use std::ops::Range;

use redb::StorageBackend;
use twox_hash::XxHash3_64;

use super::backend::Guard;

/// The log of a store, as far as it is in use.
#[derive(Debug)]
pub(super) struct Log {
    /// Seed of the checksums.
    seed: u64,
    /// Number of the generation; each one has the next.
    generation: u64,
    records: Vec<Record>,
    /// Offset behind the last record, in bytes.
    end: usize,
    /// An encoded record, kept for its memory.
    buffer: Vec<u8>,
}

/// A record of the present generation.
#[derive(Clone, Debug)]
pub(super) struct Record {
    /// Position of the entry.
    pub(super) position: u64,
    /// Place of the record without its padding, in bytes.
    place: Range<usize>,
}

/// A valid record of any generation.
#[derive(Debug)]
struct Found<'a> {
    position: u64,
    generation: u64,
    payload: &'a [u8],
}

impl Log {
    /// A log without a record.
    pub(super) fn new(seed: u64, generation: u64) -> Self {
        Self { seed, generation, records: Vec::new(), end: 0, buffer: Vec::new() }
    }

    /// The log that `region` holds. `seed` and `generation` are those of the database.
    ///
    /// # Errors
    /// What is damaged.
    pub(super) fn find(region: &[u8], seed: u64, generation: u64) -> Result<Self, String> {
        let mut log = Self::new(seed, generation);
        while let Some(found) = record_at(region, log.end, seed).filter(|found| found.generation == generation) {
            let record =
                Record { position: found.position, place: log.end..log.end + HEADER_BYTES + found.payload.len() };
            if log.records.last().is_some_and(|last| last.position >= record.position) {
                return Err(format!("the log goes back to position {}", record.position));
            }
            log.end = padded(record.place.end);
            log.records.push(record);
        }
        let mut behind =
            (log.end..region.len()).step_by(ALIGNMENT).filter_map(|offset| record_at(region, offset, seed));
        match behind.find(|found| found.generation >= generation) {
            Some(found) if found.generation > generation => Err("the database is older than the log".to_owned()),
            Some(found) => Err(format!("a record of the log before position {} is not valid", found.position)),
            None => Ok(log),
        }
    }

    /// All payloads of a generation in a log that may be damaged, by position.
    pub(super) fn salvage(region: &[u8], seed: u64, generation: u64) -> impl Iterator<Item = (u64, &[u8])> {
        let offsets = (0..region.len()).step_by(ALIGNMENT);
        let found = offsets.filter_map(move |offset| record_at(region, offset, seed));
        found.filter(move |found| found.generation >= generation).map(|found| (found.position, found.payload))
    }

    /// The records, by position.
    pub(super) fn records(&self) -> &[Record] {
        &self.records
    }

    /// Number of the generation.
    pub(super) fn generation(&self) -> u64 {
        self.generation
    }

    /// Whether an entry of so many bytes finds room.
    pub(super) fn has_room(&self, payload_bytes: usize) -> bool {
        payload_bytes <= LOG_BYTES && padded(self.end + HEADER_BYTES + payload_bytes) <= LOG_BYTES
    }

    /// Makes an entry durable that finds room. After an error nothing is known of it but what [`Log::erase`] does.
    ///
    /// # Errors
    /// What the backend says.
    pub(super) fn append(&mut self, backend: &Guard, position: u64, payload: &[u8]) -> io::Result<()> {
        assert!(self.has_room(payload.len()), "a record behind the end of the log");
        assert!(self.records.last().is_none_or(|last| last.position < position), "a position was given out twice");
        let record = &mut self.buffer;
        record.clear();
        record.extend_from_slice(&[0; 8]);
        record.extend_from_slice(&position.to_le_bytes());
        record.extend_from_slice(&self.generation.to_le_bytes());
        record.extend_from_slice(&u32::try_from(payload.len()).unwrap_or(u32::MAX).to_le_bytes());
        record.extend_from_slice(&MAGIC);
        record.extend_from_slice(payload);
        let checksum = XxHash3_64::oneshot_with_seed(self.seed, &record[8..]);
        record[..8].copy_from_slice(&checksum.to_le_bytes());
        let place = self.end..self.end + record.len();
        record.resize(padded(record.len()), 0);
        backend.write(self.end as u64, record)?;
        backend.sync_data()?;
        self.end += record.len();
        self.records.push(Record { position, place });
        Ok(())
    }

    /// Takes back an append whose write failed: nothing of it is there when this call returns.
    ///
    /// # Errors
    /// What the backend says.
    pub(super) fn erase(&mut self, backend: &Guard) -> io::Result<()> {
        self.buffer.fill(0);
        backend.write(self.end as u64, &self.buffer)?;
        backend.sync_data()
    }

    /// The payload of a record; `None` if it is not what was written.
    ///
    /// # Errors
    /// What the backend says.
    pub(super) fn payload(&self, backend: &Guard, record: &Record) -> io::Result<Option<Vec<u8>>> {
        let mut bytes = vec![0; record.place.len()];
        backend.read(record.place.start as u64, &mut bytes)?;
        let found = record_at(&bytes, 0, self.seed);
        let is_whole =
            found.is_some_and(|found| (found.position, found.generation) == (record.position, self.generation));
        Ok(is_whole.then(|| bytes.split_off(HEADER_BYTES)))
    }

    /// Begins the next generation, after a commit of redb has taken in all records and the number of the generation.
    pub(super) fn begin_generation(&mut self) {
        self.generation += 1;
        self.records.clear();
        self.end = 0;
    }
}

/// The record that begins at an offset, if it is valid.
fn record_at(region: &[u8], offset: usize, seed: u64) -> Option<Found<'_>> {
    let (header, rest) = region.get(offset..)?.split_at_checked(HEADER_BYTES)?;
    if header[28..] != MAGIC {
        return None;
    }
    let number = |at: usize| header[at..].first_chunk().map(|bytes| u64::from_le_bytes(*bytes));
    let payload_bytes = header[24..].first_chunk().map(|bytes| u32::from_le_bytes(*bytes))?;
    let payload = rest.get(..usize::try_from(payload_bytes).ok()?)?;
    let sealed = &region[offset + 8..offset + HEADER_BYTES + payload.len()];
    let is_valid = number(0)? == XxHash3_64::oneshot_with_seed(seed, sealed);
    is_valid.then_some(Found { position: number(8)?, generation: number(16)?, payload })
}

fn padded(bytes: usize) -> usize {
    bytes.next_multiple_of(ALIGNMENT)
}

/// Bytes of the log, from the start of the file. To take in a full one holds a commit up by some milliseconds.
pub(super) const LOG_BYTES: usize = 128 * 1024;

/// Bytes of a record before its payload.
const HEADER_BYTES: usize = 32;

/// Records begin at multiples of so many bytes.
const ALIGNMENT: usize = 8;

const MAGIC: [u8; 4] = *b"LEAS";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_is_found_by_its_seed_alone() {
        let mut region = vec![0; 256];
        let mut log = Log::new(7, 1);
        log.buffer.clear();
        let backend = Guard::new(std::sync::Arc::new(redb::backends::InMemoryBackend::new()));
        backend.set_len(256).expect("memory");
        log.append(&backend, 3, b"payload").expect("memory");
        backend.read(0, &mut region).expect("memory");
        assert_eq!(Log::find(&region, 7, 1).map(|log| log.records().len()), Ok(1));
        assert_eq!(Log::find(&region, 7, 2).map(|log| log.records().len()), Ok(0), "a generation that is over");
        assert_eq!(Log::find(&region, 8, 1).map(|log| log.records().len()), Ok(0));
        assert!(Log::find(&region, 7, 0).is_err(), "a generation that the database does not know");
    }

    #[test]
    fn a_log_is_full_when_the_next_record_would_pass_its_end() {
        let log = Log::new(7, 1);
        assert!(log.has_room(LOG_BYTES - HEADER_BYTES));
        assert!(!log.has_room(LOG_BYTES - HEADER_BYTES + 1) && !log.has_room(usize::MAX));
    }
}
