//! Creates, locks and syncs the data folder. A synced folder does not lose the name of a file in a power failure.

use std::fs::{DirBuilder, File, OpenOptions, TryLockError};
use std::io::{self, Read, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use crate::engine::EngineError;

/// Creates `folder` and its missing parents, and takes the lock of `folder`.
///
/// The lock is held until the returned file is dropped or the process ends.
pub(super) fn claim(folder: &Path) -> Result<File, EngineError> {
    create(folder)?;
    let path = folder.join(LOCK);
    let mut file = open_or_create(&path).map_err(|cause| refused("cannot open", &path, cause))?;
    if !try_lock(&file, &path)? {
        return Err(EngineError::Busy { store: folder.display().to_string(), holder: holder(&mut file) });
    }
    // An earlier process may have ended after it created a file and before it synced the folder. So the folder is
    // synced again.
    sync(folder)?;
    // Operators can read the process id. An error is ignored, so that a full disk does not prevent startup.
    let _ = file.set_len(0).and_then(|()| writeln!(file, "{}", std::process::id()));
    Ok(file)
}

/// Opens the store's file for reading and writing, and locks it. Returns `None` if the file does not exist. This lock
/// still protects the store if somebody deletes the folder's lock file.
pub(super) fn open(path: &Path) -> Result<Option<File>, EngineError> {
    let file = match OpenOptions::new().read(true).write(true).open(path) {
        Ok(file) => file,
        Err(cause) if cause.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(cause) => return Err(refused("cannot open", path, cause)),
    };
    lock_store(&file, path)?;
    Ok(Some(file))
}

/// Takes the lock of a file, unless another process holds it. Returns whether the lock was taken.
fn try_lock(file: &File, path: &Path) -> Result<bool, EngineError> {
    match file.try_lock() {
        Ok(()) => Ok(true),
        Err(TryLockError::WouldBlock) => Ok(false),
        Err(TryLockError::Error(cause)) => Err(refused("cannot lock", path, cause)),
    }
}

fn lock_store(file: &File, path: &Path) -> Result<(), EngineError> {
    if try_lock(file, path)? {
        return Ok(());
    }
    Err(EngineError::Busy { store: path.display().to_string(), holder: None })
}

/// Opens a file for reading and writing. Creates it if it does not exist, and does not change its content if it does.
fn open_or_create(path: &Path) -> io::Result<File> {
    OpenOptions::new().read(true).write(true).create(true).truncate(false).mode(FILE_MODE).open(path)
}

/// Creates an empty file. If an interrupted creation left the file, empties it.
pub(super) fn create_file(path: &Path) -> Result<File, EngineError> {
    let file = open_or_create(path).map_err(|cause| refused("cannot create", path, cause))?;
    // The file is emptied only under its lock, since another process may be using it.
    lock_store(&file, path)?;
    file.set_len(0).map_err(|cause| refused("cannot create", path, cause))?;
    Ok(file)
}

/// Renames a finished file to its final name, and makes the name durable.
pub(super) fn publish(unfinished: &Path, path: &Path) -> Result<(), EngineError> {
    std::fs::rename(unfinished, path).map_err(|cause| refused("cannot create", path, cause))?;
    path.parent().map_or(Ok(()), sync)
}

/// Returns an [`EngineError::Io`] that names the operation and the file.
pub(super) fn refused(what: &str, path: &Path, cause: io::Error) -> EngineError {
    EngineError::Io { what: format!("{what} {}", path.display()), cause }
}

fn create(folder: &Path) -> Result<(), EngineError> {
    let missing: Vec<PathBuf> = folder.ancestors().take_while(|path| !path.exists()).map(PathBuf::from).collect();
    DirBuilder::new()
        .recursive(true)
        .mode(FOLDER_MODE)
        .create(folder)
        .map_err(|cause| refused("cannot create", folder, cause))?;
    // A new folder is an entry in its parent folder. Only a sync of the parent makes this entry durable.
    missing.iter().filter_map(|path| path.parent()).try_for_each(sync)
}

fn sync(folder: &Path) -> Result<(), EngineError> {
    let folder = if folder.as_os_str().is_empty() { Path::new(".") } else { folder };
    File::open(folder).and_then(|file| file.sync_all()).map_err(|cause| refused("cannot sync", folder, cause))
}

fn holder(lock: &mut File) -> Option<u32> {
    let mut text = String::new();
    // A process id is shorter than 32 bytes. But the file may hold any number of bytes.
    lock.take(32).read_to_string(&mut text).ok()?;
    text.trim().parse().ok()
}

/// Name of the lock file.
const LOCK: &str = "lock";
/// Modes of the folder and of its files. Only the owner has access, since the names of Lease holders are private.
const FOLDER_MODE: u32 = 0o700;
const FILE_MODE: u32 = 0o600;
