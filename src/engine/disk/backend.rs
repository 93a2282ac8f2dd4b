//! The backend of redb. [`FileBackend`] is the file, and checks at each sync that the file is still at its path.
//! [`Guard`] remembers which operation failed. [`BehindLog`] is the part of the file with redb's database. The file
//! begins with a log of the newest entries, which redb does not know.
//!
//! redb reports failed writes and failed syncs with the same error, and refuses all work after it. But the store can
//! continue after a write that found a full disk. The store cannot continue after a failed sync, since it is unknown
//! which pages are on the disk. So the guard records the failed operation. The guard also keeps the backend open when
//! redb closes it, so that the database can be reopened on the same file.

use std::fs::{self, File, Metadata};
use std::io;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use redb::StorageBackend;

use super::folder;
use super::log::LOG_BYTES;
use crate::engine::EngineError;

const MOVED: &str = "somebody has moved, replaced or deleted this file while the process used it; a moved file still \
                     has the latest changes";

/// The file of a store, as a backend of redb.
pub trait StoreFile: StorageBackend {
    /// Syncs the file and drops its pages from the page cache, so that later reads come from the disk.
    ///
    /// The previous process may have ended because a sync failed. The kernel then marks unwritten pages of the file as
    /// clean, and reads still return them. The next power failure would destroy a store that relies on such pages.
    ///
    /// # Errors
    /// The operating system's error.
    fn read_from_disk(&self) -> io::Result<()>;
}

/// A backend of redb over one open file.
#[derive(Debug)]
pub(super) struct FileBackend {
    file: File,
    path: PathBuf,
    /// Device and inode of the file.
    id: (u64, u64),
}

impl FileBackend {
    /// Creates the backend of the open `file` at `path`.
    ///
    /// # Errors
    /// The system does not tell the device and inode of the file.
    pub(super) fn new(file: File, path: &Path) -> Result<Self, EngineError> {
        let metadata = file.metadata().map_err(|cause| folder::refused("cannot read", path, cause))?;
        Ok(Self { file, path: path.to_owned(), id: id_of(&metadata) })
    }

    /// Checks that the path still leads to the file. Otherwise the next start would open another file, without the
    /// changes in this one. If the path cannot be checked, for example because rights are missing, the check succeeds,
    /// since the file may still be there.
    fn check_path(&self) -> io::Result<()> {
        let is_moved = match fs::metadata(&self.path) {
            Ok(found) => id_of(&found) != self.id,
            Err(cause) => matches!(cause.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory),
        };
        if is_moved { Err(io::Error::other(MOVED)) } else { Ok(()) }
    }
}

/// Returns the device and inode of a file.
fn id_of(metadata: &Metadata) -> (u64, u64) {
    (metadata.dev(), metadata.ino())
}

impl StorageBackend for FileBackend {
    fn len(&self) -> io::Result<u64> {
        Ok(self.file.metadata()?.len())
    }

    fn read(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        self.file.read_exact_at(out, offset)
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        self.file.set_len(len)
    }

    fn sync_data(&self) -> io::Result<()> {
        self.file.sync_data()?;
        self.check_path()
    }

    fn write(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        self.file.write_all_at(data, offset)
    }
}

impl StoreFile for FileBackend {
    fn read_from_disk(&self) -> io::Result<()> {
        self.file.sync_all()?;
        // Other systems have no call that drops the pages of a file. There, later reads may come from the page cache.
        #[cfg(target_os = "linux")]
        rustix::fs::fadvise(&self.file, 0, None, rustix::fs::Advice::DontNeed)?;
        Ok(())
    }
}

/// An operation that a backend refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Operation {
    Read,
    Sync,
    /// A write of bytes, or a change of the file's length.
    Write,
}

/// The failure that stopped the database.
#[derive(Debug)]
pub(super) struct Failure {
    pub(super) operation: Operation,
    kind: io::ErrorKind,
    code: Option<i32>,
    text: String,
}

impl Failure {
    fn new(operation: Operation, cause: &io::Error) -> Self {
        Self { operation, kind: cause.kind(), code: cause.raw_os_error(), text: cause.to_string() }
    }

    /// Whether a write failed because the disk was full or a quota was exhausted. A sync that fails for this reason
    /// does not count, since it may have lost pages.
    pub(super) fn is_no_space(&self) -> bool {
        self.operation == Operation::Write
            && matches!(
                self.kind,
                io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded | io::ErrorKind::FileTooLarge
            )
    }

    /// Returns the operating system's error.
    pub(super) fn into_cause(self) -> io::Error {
        match self.code {
            Some(code) => io::Error::from_raw_os_error(code),
            None => io::Error::new(self.kind, self.text),
        }
    }
}

/// A handle to a backend, through which redb uses the backend. The handle remembers a failed operation. The backend
/// stays open when redb closes the database, so that the database can be opened again.
#[derive(Clone, Debug)]
pub(super) struct Guard {
    backend: Arc<dyn StorageBackend>,
    failure: Arc<Mutex<Option<Failure>>>,
    is_retired: Arc<AtomicBool>,
}

impl Guard {
    pub(super) fn new(backend: Arc<dyn StorageBackend>) -> Self {
        Self { backend, failure: Arc::default(), is_retired: Arc::default() }
    }

    /// Refuses all further operations, so that redb writes and syncs nothing when it closes the database.
    pub(super) fn retire(&self) {
        self.is_retired.store(true, Ordering::Relaxed);
    }

    /// Takes the recorded failure. A later failure replaces an earlier one, but nothing replaces a failed sync, after
    /// which the store cannot continue.
    pub(super) fn take_failure(&self) -> Option<Failure> {
        self.failure.lock().unwrap_or_else(PoisonError::into_inner).take()
    }

    fn noted<T>(&self, operation: Operation, run: impl FnOnce() -> io::Result<T>) -> io::Result<T> {
        if self.is_retired.load(Ordering::Relaxed) {
            return Err(io::Error::other("an earlier operation failed"));
        }
        let result = run();
        if let Err(cause) = &result {
            let mut failure = self.failure.lock().unwrap_or_else(PoisonError::into_inner);
            // A later failure never replaces a failed sync. Otherwise a full disk could hide the failed sync, and the
            // store would continue.
            if failure.as_ref().is_none_or(|earlier| earlier.operation != Operation::Sync) {
                *failure = Some(Failure::new(operation, cause));
            }
        }
        result
    }
}

/// The part of a backend after the log, which contains redb's database.
#[derive(Debug)]
pub(super) struct BehindLog(pub(super) Guard);

impl StorageBackend for BehindLog {
    fn len(&self) -> io::Result<u64> {
        Ok(self.0.len()?.saturating_sub(LOG_BYTES as u64))
    }

    fn read(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        self.0.read(offset + LOG_BYTES as u64, out)
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        self.0.set_len(len + LOG_BYTES as u64)
    }

    fn sync_data(&self) -> io::Result<()> {
        self.0.sync_data()
    }

    fn write(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        self.0.write(offset + LOG_BYTES as u64, data)
    }
}

impl StorageBackend for Guard {
    fn len(&self) -> io::Result<u64> {
        self.noted(Operation::Read, || self.backend.len())
    }

    fn read(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        self.noted(Operation::Read, || self.backend.read(offset, out))
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        self.noted(Operation::Write, || self.backend.set_len(len))
    }

    fn sync_data(&self) -> io::Result<()> {
        self.noted(Operation::Sync, || self.backend.sync_data())
    }

    fn write(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        self.noted(Operation::Write, || self.backend.write(offset, data))
    }
}
