//! The file as a database of redb: opens and verifies the database, creates its tables, and translates redb's errors.
//! The file begins with the log (module `log`), which has the newest single entries. The database follows the log.

use std::io;

use redb::{
    Builder, Database, ReadTransaction, ReadableDatabase, ReadableTable, ReadableTableMetadata, StorageBackend,
    TableDefinition,
};

use super::backend::{BehindLog, Failure, Guard, Operation};
use super::log::{LOG_BYTES, Log, Origin};
use crate::engine::EngineError;

/// What to do if a store does not exist: create the store, or refuse to open it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Absent {
    Create,
    Refuse,
}

/// The store's file, and the store's name in messages.
#[derive(Debug)]
pub(super) struct Store {
    pub(super) name: String,
    pub(super) guard: Guard,
}

/// The values that are read from the database when the store is opened.
#[derive(Clone, Copy, Debug)]
pub(super) struct Summary {
    /// Position of the next entry.
    pub(super) next: u64,
    /// Number of commits that did more than append entries.
    pub(super) marks: u64,
    log: Origin,
    /// Position of the first entry in the database.
    first: Option<u64>,
    /// Number of entries in the database.
    entries: u64,
}

impl Store {
    /// Opens the database. Reads every page and verifies its checksum.
    pub(super) fn open(&self, absent: Absent) -> Result<Database, EngineError> {
        self.check_header(absent)?;
        let mut builder = Builder::new();
        builder.set_cache_size(CACHE_BYTES).set_check_integrity_on_open(true);
        let database = builder
            .create_with_backend(BehindLog(self.guard.clone()))
            .map_err(|error| self.error("cannot open", error.into()))?;
        if absent == Absent::Create
            && let Err(error) = self.create_tables(&database)
        {
            self.guard.retire();
            return Err(error);
        }
        Ok(database)
    }

    /// Reads the log and derives the position of the next entry.
    ///
    /// Every entry is in the log or in the database, and the positions of all entries have no gaps. So a missing
    /// position means a lost entry.
    pub(super) fn open_log(&self, summary: &Summary) -> Result<(Log, u64), EngineError> {
        let mut region = vec![0; LOG_BYTES];
        self.guard.read(0, &mut region).map_err(|cause| self.refused_io("cannot read", cause))?;
        let log = Log::find(&region, summary.log).map_err(|what| self.damaged(&what))?;
        let (first, last) = (log.records().first(), log.records().last());
        let next = last.map_or(0, |last| last.position.saturating_add(1)).max(summary.next);
        let first = first.map(|record| record.position).into_iter().chain(summary.first).min();
        let count = summary.entries + log.records().len() as u64;
        if first.is_some_and(|first| next - first != count) {
            return Err(self.damaged("entries are missing"));
        }
        Ok((log, next))
    }

    /// Creates the tables, if the database is new.
    fn create_tables(&self, database: &Database) -> Result<(), EngineError> {
        let has_tables = || -> Result<bool, redb::Error> {
            let transaction = database.begin_read()?;
            Ok(transaction.list_tables()?.next().is_some())
        };
        if has_tables().map_err(|error| self.error("cannot read", error))? {
            return Ok(());
        }
        // A damaged database can look new. But a new database comes with a log of zeros. So other bytes in the log show
        // that this database is damaged, and not new.
        let mut log = vec![0; LOG_BYTES];
        self.guard.read(0, &mut log).map_err(|cause| self.refused_io("cannot read", cause))?;
        if log.iter().any(|byte| *byte != 0) {
            return Err(self.damaged("the database is empty, and the log is not"));
        }
        self.write_tables(database).map_err(|error| self.error("cannot create", error))
    }

    /// Creates the tables in one commit. Also fills the log with zeros. They give the log its place on the disk, so
    /// that a full disk cannot prevent later writes to the log.
    fn write_tables(&self, database: &Database) -> Result<(), redb::Error> {
        let transaction = database.begin_write()?;
        self.guard.write(0, &[0; LOG_BYTES])?;
        transaction.open_table(ENTRIES)?;
        transaction.open_table(CHUNKS)?;
        {
            let mut meta = transaction.open_table(META)?;
            meta.insert(FORMAT, FORMAT_NUMBER.to_le_bytes().as_slice())?;
            meta.insert(LOG_SEED, fastrand::u64(..).to_le_bytes().as_slice())?;
        }
        Ok(transaction.commit()?)
    }

    /// Rejects a file that redb would overwrite with a new database. Also rejects a file for which redb's own error
    /// would not name the cause. With [`Absent::Create`], empties a file that an interrupted creation has left.
    fn check_header(&self, absent: Absent) -> Result<(), EngineError> {
        let length = self.guard.len().map_err(|cause| self.refused_io("cannot read", cause))?;
        let (log, length) = (length.min(LOG_BYTES as u64), length.saturating_sub(LOG_BYTES as u64));
        let mut start = [0; MAGIC.len()];
        if log >= MAGIC.len() as u64 {
            self.guard.read(0, &mut start).map_err(|cause| self.refused_io("cannot read", cause))?;
        }
        if start == MAGIC {
            return Err(self.damaged("it has the layout of an early build, which no release reads"));
        }
        if length == 0 {
            // redb would silently create a new database.
            return match (absent, log) {
                (Absent::Create, _) => Ok(()),
                (Absent::Refuse, 0) => Err(self.damaged("the file is empty")),
                (Absent::Refuse, _) => Err(self.damaged("the file is too short")),
            };
        }
        let mut header = [0; HEADER_BYTES];
        let is_whole = length >= HEADER_BYTES as u64;
        let stored = usize::try_from(length).unwrap_or(HEADER_BYTES).min(HEADER_BYTES);
        self.guard
            .read(LOG_BYTES as u64, header.get_mut(..stored).unwrap_or_default())
            .map_err(|cause| self.refused_io("cannot read", cause))?;
        if !is_whole || !header.starts_with(&MAGIC) {
            if absent == Absent::Create && self.is_unfinished(&header, length)? {
                return self.guard.set_len(0).map_err(|cause| self.refused_io("cannot write", cause));
            }
            return Err(self.damaged(if is_whole { "it is no file of redb" } else { "the file is too short" }));
        }
        // The header describes two commits, each with a format version. If both versions are newer, a newer redb wrote
        // the file. If only one is newer, a flipped bit may be the cause. So this counts as damage, which redb reports.
        let [first, second] = VERSIONS.map(|place| header.get(place).copied().unwrap_or_default());
        if first == second && first > REDB_FORMAT {
            let (found, known) = (first.into(), REDB_FORMAT.into());
            return Err(EngineError::NewerFormat { store: format!("{} (a file of redb)", self.name), found, known });
        }
        Ok(())
    }

    /// Whether an interrupted creation has left the file: the magic bytes are missing or incomplete, and all pages
    /// after the first one are zeros. redb writes the magic bytes before it writes anything after the first page.
    fn is_unfinished(&self, header: &[u8], length: u64) -> Result<bool, EngineError> {
        if header.iter().zip(&MAGIC).any(|(found, magic)| *found != 0 && found != magic) {
            return Ok(false);
        }
        let mut page = [0; PAGE_BYTES];
        let mut offset = PAGE_BYTES as u64;
        while offset < length {
            let rest = usize::try_from(length - offset).unwrap_or(PAGE_BYTES).min(PAGE_BYTES);
            let Some(part) = page.get_mut(..rest) else { break };
            self.guard.read(LOG_BYTES as u64 + offset, part).map_err(|cause| self.refused_io("cannot read", cause))?;
            if part.iter().any(|byte| *byte != 0) {
                return Ok(false);
            }
            offset += PAGE_BYTES as u64;
        }
        Ok(true)
    }

    /// Refuses a store in a format that this release cannot read.
    pub(super) fn check_format(&self, format: Option<u64>) -> Result<(), EngineError> {
        match format {
            Some(FORMAT_NUMBER) => Ok(()),
            Some(found) if found > FORMAT_NUMBER => {
                let found = u32::try_from(found).unwrap_or(u32::MAX);
                let known = u32::try_from(FORMAT_NUMBER).unwrap_or(u32::MAX);
                Err(EngineError::NewerFormat { store: self.name.clone(), found, known })
            }
            Some(_) | None => Err(self.damaged("it has no format that a release wrote")),
        }
    }

    /// Translates an error of redb. `what` names the attempted operation.
    pub(super) fn error(&self, what: &str, error: redb::Error) -> EngineError {
        if let Some(failure) = self.guard.take_failure() {
            if failure.is_no_space() {
                return EngineError::NoSpace { store: self.name.clone(), cause: failure.into_cause() };
            }
            return self.refused(failure);
        }
        match error {
            redb::Error::Io(cause) if cause.kind() != io::ErrorKind::InvalidData => self.refused_io(what, cause),
            redb::Error::DatabaseAlreadyOpen => EngineError::Busy { store: self.name.clone(), holder: None },
            redb::Error::PreviousIo | redb::Error::DatabaseClosed => {
                self.refused_io(what, io::Error::other("an earlier operation failed"))
            }
            redb::Error::ValueTooLarge(_) => self.refused_io(what, io::Error::from(io::ErrorKind::InvalidInput)),
            // All other errors mean that the content of the file does not come from redb.
            error => self.damaged(&error.to_string()),
        }
    }

    /// Returns the error for a refused operation of the backend.
    pub(super) fn refused(&self, failure: Failure) -> EngineError {
        let what = match failure.operation {
            Operation::Read => "cannot read",
            Operation::Sync => "cannot sync",
            Operation::Write => "cannot write",
        };
        self.refused_io(what, failure.into_cause())
    }

    /// Returns the error for a damaged store.
    pub(super) fn damaged(&self, what: &str) -> EngineError {
        EngineError::Damaged { place: self.name.clone(), what: what.to_owned() }
    }

    pub(super) fn refused_io(&self, what: &str, cause: io::Error) -> EngineError {
        if cause.kind() == io::ErrorKind::UnexpectedEof {
            return self.damaged("the file is too short");
        }
        EngineError::Io { what: format!("{what} {}", self.name), cause }
    }
}

impl Summary {
    /// Reads the number of the store's format.
    pub(super) fn format(transaction: &ReadTransaction) -> Result<Option<u64>, redb::Error> {
        number(&transaction.open_table(META)?, FORMAT)
    }

    pub(super) fn of(transaction: &ReadTransaction) -> Result<Self, redb::Error> {
        let meta = transaction.open_table(META)?;
        let entries = transaction.open_table(ENTRIES)?;
        let last = entries.last()?.map_or(0, |(position, _)| position.value());
        let marks = number(&meta, MARKS)?.unwrap_or(0);
        let seed = number(&meta, LOG_SEED)?.unwrap_or(0);
        let generation = number(&meta, LOG_GENERATION)?.unwrap_or(0);
        Ok(Self {
            // A commit that only appends entries does not store the next position. A truncation does, since it may
            // delete all entries.
            next: number(&meta, NEXT)?.unwrap_or(1).max(last.saturating_add(1)),
            marks,
            log: Origin { seed, generation, marks },
            first: entries.first()?.map(|(position, _)| position.value()),
            entries: entries.len()?,
        })
    }
}

/// Reads the number under a key of [`META`].
pub(super) fn number(
    meta: &impl ReadableTable<&'static str, &'static [u8]>,
    key: &str,
) -> Result<Option<u64>, redb::Error> {
    Ok(meta.get(key)?.and_then(|bytes| bytes.value().try_into().ok().map(u64::from_le_bytes)))
}

/// Entries by position.
pub(super) const ENTRIES: TableDefinition<'static, u64, &'static [u8]> = TableDefinition::new("entries");
/// Chunks by snapshot and index.
pub(super) const CHUNKS: TableDefinition<'static, (u64, u32), &'static [u8]> = TableDefinition::new("chunks");
/// Single values by name. Numbers are 8 bytes, little-endian.
pub(super) const META: TableDefinition<'static, &'static str, &'static [u8]> = TableDefinition::new("meta");

/// Key of the store's format number.
pub(super) const FORMAT: &str = "format";
/// Key of the manifest.
pub(super) const MANIFEST: &str = "manifest";
/// Key of the number of commits that did more than append entries.
pub(super) const MARKS: &str = "marks";
/// Key of the next entry's position, as of the last commit that did more than append entries.
pub(super) const NEXT: &str = "next";

/// Key of the seed of the log's checksums.
pub(super) const LOG_SEED: &str = "log-seed";
/// Key of the log's generation; 0 if absent.
pub(super) const LOG_GENERATION: &str = "log-generation";

/// Number of the only format that this release reads and writes.
pub(super) const FORMAT_NUMBER: u64 = 2;

/// Size of redb's page cache, in bytes. A commit keeps its new pages in the cache until they are written. At most half
/// of the cache holds such pages.
const CACHE_BYTES: usize = 32 << 20;

/// Size of a page of redb, in bytes.
pub(super) const PAGE_BYTES: usize = 4096;
/// Size of redb's header, in bytes.
const HEADER_BYTES: usize = 320;
/// First bytes of a redb file.
const MAGIC: [u8; 9] = *b"redb\x1a\x0a\xa9\x0d\x0a";
/// Offsets of redb's format version in the header, one for each of the two commits.
const VERSIONS: [usize; 2] = [64, 192];
/// Format version that the linked redb reads and writes.
const REDB_FORMAT: u8 = 3;
