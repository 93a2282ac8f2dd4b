//! The journal on disk: an embedded store in one file of a data folder.
//!
//! ```text
//!   journal.redb   log: 128 KiB | database of redb
//! ```
//!
//! A commit that only appends one entry is a record of the [log], if the log has space. Any other commit is one
//! transaction of redb. So either all writes of a commit are on the disk, or none. redb keeps three tables: `entries`
//! by position, `chunks` by snapshot and index, and `meta`. Each entry is in the log or in the database. The positions
//! of the stored entries have no gaps. So [`Disk::open`] notices a lost entry.
//!
//! A commit of redb syncs the file once; redb calls this a one-phase commit. redb first writes new pages. It never
//! overwrites pages of the last commit. Then it writes a header that names the new root page, and syncs the file. If
//! the power fails before the sync ends, any part of these writes may be on the disk. This is a torn commit. Each page
//! stores checksums of the pages below it, and the header stores the checksum of the root page. So the next open
//! notices a torn commit. The open then returns to the previous commit, which the header still names. No client got an
//! acknowledgement for the torn commit. A two-phase commit would sync twice. The second sync helps only against an
//! attacker who forges a checksum with the bytes of a value, and cuts the power in the right millisecond.
//!
//! [`Disk::open`] verifies every page and rebuilds the table of free pages, since redb may panic on a damaged page. Two
//! kinds of damage go unnoticed:
//!
//! - After a crash, a damaged page or record of the last commit looks like a page or record that did not reach the
//!   disk. The open drops this commit, as databases drop the torn end of a write-ahead log. After a clean stop, the
//!   open reports such a page. A clean stop moves the log's entries to the database, so no record is left.
//!
//!   The log's last sector may have several records: a sector of 4 KiB has up to about 34 short ones. If this sector is
//!   damaged, the open drops all these records, although their commits were acknowledged. Each append rewrites the
//!   sector. So the disk must keep the earlier records of a sector when a power cut interrupts its write.
//! - A page may change on the disk while the store is open. Only the next open notices the change, since redb keeps
//!   most pages that it needs in memory.

mod backend;
mod commit;
mod folder;
mod log;
mod salvage;
mod store;
#[cfg(test)]
mod tests;
mod walk;

use std::fmt;
use std::fs::File;
use std::io;
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;

pub use redb::StorageBackend;
use redb::{Database, ReadTransaction, ReadableDatabase};

pub use self::backend::StoreFile;
use self::backend::{FileBackend, Guard};
use self::commit::Commit;
use self::log::Log;
pub use self::salvage::{Chunk, Salvage, salvage};
use self::store::{Absent, CHUNKS, ENTRIES, MANIFEST, META, Store, Summary};
use super::{Engine, EngineError, Entry, Position, SnapshotId, Write};

/// A store of the journal in a data folder.
///
/// One process at a time can use the store. After [`EngineError::NoSpace`], the store remains usable. After any other
/// error, it does not.
pub struct Disk {
    store: Store,
    /// The database; `None` after a fatal failure.
    database: Option<Database>,
    /// Position of the next entry. The position never decreases.
    next: u64,
    /// Number of commits in the database that did more than append new entries. A commit that moves the log's entries
    /// to the database counts too. Each such commit stores this number in the database.
    marks: u64,
    log: Log,
    /// Whether the disk was full at the last attempt to move the log's entries to the database. If so, the commit that
    /// tests for free space must move these entries too ([`Disk::must_take_log`]).
    is_log_stuck: bool,
    /// Lock of the folder. Fields are dropped in order, so the lock is released after the database is closed.
    _lock: Option<File>,
}

impl Disk {
    /// Opens the store in `folder`. Creates the folder and the store if they do not exist.
    ///
    /// All pages of the store are read and verified.
    ///
    /// # Errors
    /// - [`EngineError::Busy`]: another process uses the folder.
    /// - [`EngineError::Damaged`]: the file has changed since it was written.
    /// - [`EngineError::NewerFormat`]: a newer release, or one with a newer redb, wrote the file.
    /// - [`EngineError::NoSpace`]: there is no space to create the file.
    /// - [`EngineError::Io`]: the system refused an operation, for example because the folder is read-only.
    pub fn open(folder: &Path) -> Result<Self, EngineError> {
        let lock = folder::claim(folder)?;
        let path = folder.join(FILE);
        let name = path.display().to_string();
        let file = match folder::open(&path)? {
            Some(file) => file,
            None => {
                // The file gets its final name when it is complete. So a file with the final name is never an
                // interrupted creation. If a file with the final name holds no store, the file is damaged.
                let unfinished = folder.join(UNFINISHED);
                let file = folder::create_file(&unfinished)?;
                let clone = file.try_clone().map_err(|cause| folder::refused("cannot open", &unfinished, cause))?;
                Self::attach(Arc::new(FileBackend::new(clone, &unfinished)?), &name, Absent::Create, None)?.close()?;
                folder::publish(&unfinished, &path)?;
                file
            }
        };
        Self::read_and_attach(Arc::new(FileBackend::new(file, &path)?), &name, Absent::Refuse, Some(lock))
    }

    /// Opens the store in a backend. If the backend is empty, creates the store. Messages call the store `name`.
    ///
    /// The caller must ensure that nothing else uses the backend. If a power failure interrupts the creation, the next
    /// open repeats it.
    ///
    /// # Errors
    /// Those of [`Disk::open`], except `Busy`.
    pub fn with_backend(backend: Arc<dyn StoreFile>, name: &str) -> Result<Self, EngineError> {
        Self::read_and_attach(backend, name, Absent::Create, None)
    }

    /// Opens the store from the bytes on the disk. It does not use the page cache, which may contain pages of an
    /// earlier process that never reached the disk.
    fn read_and_attach(
        backend: Arc<dyn StoreFile>,
        name: &str,
        absent: Absent,
        lock: Option<File>,
    ) -> Result<Self, EngineError> {
        backend.read_from_disk().map_err(|cause| folder::refused("cannot sync", Path::new(name), cause))?;
        Self::attach(backend, name, absent, lock)
    }

    fn attach(
        backend: Arc<dyn StorageBackend>,
        name: &str,
        absent: Absent,
        lock: Option<File>,
    ) -> Result<Self, EngineError> {
        let store = Store { name: name.to_owned(), guard: Guard::new(backend) };
        let database = store.open(absent)?;
        let (log, database) = (Log::new(0, 0), Some(database));
        let mut disk = Self { store, database, next: 1, marks: 0, log, is_log_stuck: false, _lock: lock };
        if let Err(error) = disk.load() {
            // A store that cannot be opened must not change. But redb would write pages when the database closes.
            disk.abandon();
            return Err(error);
        }
        Ok(disk)
    }

    /// Checks the format, and reads the log and the next position.
    fn load(&mut self) -> Result<(), EngineError> {
        // A newer format may store everything else differently, so the format is checked first.
        self.store.check_format(self.read(Summary::format)?)?;
        let summary = self.read(Summary::of)?;
        self.marks = summary.marks;
        (self.log, self.next) = self.store.open_log(&summary)?;
        Ok(())
    }

    /// Closes the database. Nothing is written or synced any more.
    fn abandon(&mut self) {
        self.store.guard.retire();
        self.database = None;
    }

    fn database(&self) -> Result<&Database, EngineError> {
        self.database.as_ref().ok_or_else(|| EngineError::Io {
            what: format!("cannot use {}", self.store.name),
            cause: io::Error::other("an earlier operation failed"),
        })
    }

    fn read<T>(&self, read: impl FnOnce(&ReadTransaction) -> Result<T, redb::Error>) -> Result<T, EngineError> {
        let database = self.database()?;
        let result = database.begin_read().map_err(redb::Error::from).and_then(|transaction| read(&transaction));
        result.map_err(|error| self.store.error("cannot read", error))
    }

    /// Appends one entry to the log and makes it durable. Returns false if the log has no space for the entry, or if
    /// the disk is full. A full disk can refuse writes to a log with holes: blocks without a place on the disk, as in a
    /// sparse copy.
    fn append(&mut self, payload: &[u8]) -> Result<bool, EngineError> {
        self.database()?;
        if !self.log.has_space(payload.len()) {
            return Ok(false);
        }
        let Err(cause) = self.log.append(&self.store.guard, self.next, self.marks, payload) else { return Ok(true) };
        let error = self.log_error(cause);
        if !error.leaves_store_usable() {
            return Err(error);
        }
        self.log.erase(&self.store.guard).map_err(|cause| {
            self.abandon();
            self.store.refused_io("cannot erase an incomplete entry of", cause)
        })?;
        Ok(false)
    }

    /// Translates an error of a write or sync of the log. Makes the store unusable, unless the disk was full.
    fn log_error(&mut self, cause: io::Error) -> EngineError {
        let error = self.store.error("cannot write", cause.into());
        if !error.leaves_store_usable() {
            self.abandon();
        }
        error
    }

    /// Whether a commit to the database must also move the log's entries there. That is so if the commit deletes
    /// entries of the log, or if the log is full. A commit that only appends one entry comes to the database only
    /// because the log has no space for it.
    ///
    /// A commit of the unchanged manifest tests whether the disk has space for an entry again. So it moves the log's
    /// entries if the commit of the next entry would have to move them. A new manifest does not, since deletions that
    /// free space may follow it.
    fn must_take_log(&mut self, writes: &[Write]) -> Result<bool, EngineError> {
        let Some(first) = self.log.records().first() else { return Ok(false) };
        let first = first.position;
        match writes {
            [Write::Append(_)] => Ok(true),
            [Write::PutManifest(bytes)] if self.is_log_stuck => Ok(self.manifest()?.as_ref() == Some(bytes)),
            _ => Ok(writes.iter().any(|write| matches!(write, Write::Truncate(last) if first <= last.0))),
        }
    }

    /// Makes writes durable in the database. With `takes_log`, also moves the log's entries there.
    fn commit_to_database(&mut self, writes: &[Write], takes_log: bool) -> Result<(), EngineError> {
        let log = if takes_log { self.log_entries(0..u64::MAX)? } else { Vec::new() };
        let log_generation = takes_log.then(|| self.log.generation() + 1);
        let commit = Commit::of(writes, log_generation, self.next, self.marks);
        if let Err(error) = commit.write(self.database()?, &log, writes) {
            self.is_log_stuck |= takes_log;
            self.recover(error, commit)?;
        }
        self.marks = commit.marks;
        if takes_log {
            self.log.begin_generation();
            self.is_log_stuck = false;
        }
        Ok(())
    }

    /// Reads the log's entries at these positions.
    fn log_entries(&self, positions: Range<u64>) -> Result<Vec<Entry>, EngineError> {
        let entries = self.log.entries(&self.store.guard, positions);
        let entries = entries.map_err(|cause| self.store.refused_io("cannot read", cause))?;
        entries.ok_or_else(|| self.store.damaged("an entry of the log has changed"))
    }

    /// Handles a failed commit. If the disk was full, reopens the database.
    ///
    /// redb refuses all work after a failed write. The new open drops the written part as a torn commit. If all writes
    /// are in the file despite the failure, the open keeps the commit. The commit then counts as done.
    fn recover(&mut self, error: redb::Error, commit: Commit) -> Result<(), EngineError> {
        // redb writes nothing while it closes a database after a failure.
        self.database = None;
        let failure = match self.store.guard.take_failure() {
            Some(failure) if failure.is_no_space() => failure,
            Some(failure) => return Err(self.store.refused(failure)),
            None => return Err(self.store.error("cannot write", error)),
        };
        // On a copy-on-write file system, the open can also find a full disk. It is then unknown whether the writes
        // happened. So the error must not be `NoSpace`, which says that none of them happened.
        self.database = Some(self.store.open(Absent::Refuse).map_err(|error| match error {
            EngineError::NoSpace { store, cause } => {
                EngineError::Io { what: format!("cannot open {store} again on a full disk"), cause }
            }
            other => other,
        })?);
        if self.read(|transaction| commit.is_in(transaction))? {
            return Ok(());
        }
        Err(EngineError::NoSpace { store: self.store.name.clone(), cause: failure.into_cause() })
    }
}

impl Engine for Disk {
    fn manifest(&mut self) -> Result<Option<Vec<u8>>, EngineError> {
        self.read(|transaction| Ok(transaction.open_table(META)?.get(MANIFEST)?.map(|bytes| bytes.value().to_vec())))
    }

    fn chunk(&mut self, snapshot: SnapshotId, index: u32) -> Result<Option<Vec<u8>>, EngineError> {
        self.read(|transaction| {
            let chunk = transaction.open_table(CHUNKS)?.get((snapshot.0, index))?;
            Ok(chunk.map(|bytes| bytes.value().to_vec()))
        })
    }

    fn snapshots(&mut self) -> Result<Vec<SnapshotId>, EngineError> {
        self.read(|transaction| {
            let chunks = transaction.open_table(CHUNKS)?;
            let mut snapshots = Vec::new();
            let mut from = Some(0);
            while let Some(start) = from {
                let Some(first) = chunks.range((start, 0)..)?.next() else { break };
                let (snapshot, _) = first?.0.value();
                snapshots.push(SnapshotId(snapshot));
                from = snapshot.checked_add(1);
            }
            Ok(snapshots)
        })
    }

    fn entries(&mut self, after: Position, bytes_max: usize) -> Result<Vec<Entry>, EngineError> {
        let Some(from) = after.0.checked_add(1) else { return Ok(Vec::new()) };
        let (mut entries, end) = self.read(|transaction| {
            let mut entries = Vec::new();
            let mut bytes_total = 0;
            for entry in transaction.open_table(ENTRIES)?.range(from..)? {
                let (position, payload) = entry?;
                let payload = payload.value();
                if !entries.is_empty() && bytes_total + payload.len() > bytes_max {
                    return Ok((entries, position.value()));
                }
                bytes_total += payload.len();
                entries.push(Entry { position: Position(position.value()), payload: payload.to_vec() });
            }
            Ok((entries, u64::MAX))
        })?;
        // Positions of the log's entries lie between and after the positions of the database's entries.
        entries.append(&mut self.log_entries(from..end)?);
        entries.sort_unstable_by_key(|entry| entry.position);
        let mut bytes_total = 0;
        let fits = |entry: &&Entry| {
            bytes_total += entry.payload.len();
            bytes_total <= bytes_max
        };
        let count = entries.iter().take_while(fits).count();
        entries.truncate(count.max(1));
        Ok(entries)
    }

    fn commit(&mut self, writes: Vec<Write>, deliver: &mut dyn FnMut(Entry)) -> Result<(), EngineError> {
        if writes.is_empty() {
            return Ok(());
        }
        let is_in_log = match &writes[..] {
            [Write::Append(payload)] => self.append(payload)?,
            _ => false,
        };
        if !is_in_log {
            let takes_log = self.must_take_log(&writes)?;
            self.commit_to_database(&writes, takes_log)?;
        }
        for write in writes {
            if let Write::Append(payload) = write {
                let position = Position(self.next);
                self.next += 1;
                deliver(Entry { position, payload });
            }
        }
        Ok(())
    }

    /// Moves the log's entries to the database, whose checksums show any damage to the next open. If the disk is full,
    /// or an entry of the log is damaged, writes an end record to the log instead. Then closes the database.
    fn close(&mut self) -> Result<(), EngineError> {
        // A full disk is no error: the log still has its entries, and the next open reads them from the log.
        let unless_full = |error: EngineError| if error.leaves_store_usable() { Ok(()) } else { Err(error) };
        let mut closed = Ok(());
        if self.database.is_some()
            && !self.log.records().is_empty()
            && let Err(error) = self.commit_to_database(&[], true)
        {
            closed = unless_full(error);
            // Without the end record, a damaged last entry would look like an interrupted write. After a failed sync,
            // the database is closed already, and nothing more is written or synced.
            if self.database.is_some()
                && let Err(cause) = self.log.mark_end(&self.store.guard, self.next, self.marks)
            {
                closed = closed.and_then(|()| unless_full(self.log_error(cause)));
            }
        }
        if let Some(database) = self.database.take()
            && let Err(error) = database.close()
        {
            closed = closed.and_then(|()| unless_full(self.store.error("cannot close", error.into())));
        }
        closed
    }
}

impl Drop for Disk {
    /// Closes the store, if nobody has called [`Engine::close`]. The next open works without a clean stop too.
    fn drop(&mut self) {
        if let Err(error) = self.close() {
            tracing::error!(%error, "the store is not closed cleanly");
        }
    }
}

impl fmt::Debug for Disk {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Disk").field("name", &self.store.name).field("next", &self.next).finish_non_exhaustive()
    }
}

/// File name of the store in its folder.
pub const FILE: &str = "journal.redb";
/// File name of a store that is being created.
const UNFINISHED: &str = "journal.redb.new";
