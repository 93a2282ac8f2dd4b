//! Writes files atomically, and locks folders between processes.

use std::fs::{self, DirBuilder, File, OpenOptions, TryLockError};
use std::io::{self, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _, PermissionsExt as _};
use std::path::Path;

/// File mode of certificates: everybody may read them.
pub(super) const MODE_PUBLIC: u32 = 0o644;
/// File mode of keys, and of files that contain a key: only the owner may read them.
pub(super) const MODE_SECRET: u32 = 0o600;
/// File mode of the certificate folder: only the owner may access it.
const MODE_FOLDER: u32 = 0o700;

/// Creates a folder and its parents if they are missing. The mode of an existing folder does not change.
pub(super) fn make_folder(dir: &Path) -> io::Result<()> {
    DirBuilder::new().recursive(true).mode(MODE_FOLDER).create(dir)
}

/// Waits until no other process has the lock of the folder, and locks it. Only the holder of the lock may change the
/// folder. The lock ends when the returned file is dropped. Each process has the lock only for milliseconds. If a
/// process dies, the kernel releases its lock.
pub(super) fn lock_folder(dir: &Path) -> io::Result<File> {
    let file = open_lock(&dir.join(".lock"))?;
    file.lock()?;
    Ok(file)
}

/// Claims the exclusive right to the file whose lock file is `lock`. The right ends when the returned file is dropped
/// or the process ends. Returns `None` if any process, even this one, has already claimed the file.
pub(super) fn try_claim(lock: &Path) -> io::Result<Option<File>> {
    let file = open_lock(lock)?;
    match file.try_lock() {
        Ok(()) => Ok(Some(file)),
        Err(TryLockError::WouldBlock) => Ok(None),
        Err(TryLockError::Error(error)) => Err(error),
    }
}

fn open_lock(path: &Path) -> io::Result<File> {
    OpenOptions::new().create(true).truncate(false).write(true).mode(MODE_SECRET).open(path)
}

/// Writes a file in one atomic step. So no reader sees an incomplete file, not even after a crash. The file is durable
/// when the function returns. The caller must have the lock of [`lock_folder`].
pub(super) fn write_whole(path: &Path, bytes: &[u8], mode: u32) -> io::Result<()> {
    let mut name = std::ffi::OsString::from(".");
    name.push(path.file_name().unwrap_or_default());
    name.push(".tmp");
    let temporary = path.with_file_name(name);
    // A process that died may have left its temporary file. No other process writes the file now, since the caller has
    // the lock. The file is removed, so that `create_new` creates it with the right mode.
    match fs::remove_file(&temporary) {
        Err(e) if e.kind() != io::ErrorKind::NotFound => return Err(e),
        _ => {}
    }
    let write = || {
        let mut file = OpenOptions::new().create_new(true).write(true).mode(mode).open(&temporary)?;
        file.write_all(bytes)?;
        file.sync_all()?;
        fs::rename(&temporary, path)?;
        // Only a sync of the folder makes the file's name durable. Without this sync, a power failure could keep a
        // certificate and lose its key, which was written before.
        let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
        match File::open(folder.unwrap_or_else(|| Path::new("."))).and_then(|folder| folder.sync_all()) {
            // Some network file systems cannot sync a folder.
            Err(e) if matches!(e.kind(), io::ErrorKind::InvalidInput | io::ErrorKind::Unsupported) => Ok(()),
            synced => synced,
        }
    };
    let written = write();
    if written.is_err() {
        _ = fs::remove_file(&temporary);
    }
    written
}

/// Whether other users than the owner may access the file.
pub(super) fn is_open_to_others(path: &Path) -> io::Result<bool> {
    Ok(fs::metadata(path)?.permissions().mode() & 0o077 != 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_replaced_with_its_mode_and_nothing_is_left_over() {
        let dir = tempfile::tempdir().expect("a folder");
        let path = dir.path().join("a.key");
        fs::write(dir.path().join(".a.key.tmp"), "left by a crash").expect("written");
        for content in ["first", "second"] {
            write_whole(&path, content.as_bytes(), MODE_SECRET).expect("written");
            assert_eq!(fs::read_to_string(&path).expect("read"), content);
            assert!(!is_open_to_others(&path).expect("metadata"));
        }
        assert_eq!(fs::read_dir(dir.path()).expect("a folder").count(), 1);
    }

    #[test]
    fn a_write_that_fails_leaves_the_old_file() {
        let dir = tempfile::tempdir().expect("a folder");
        let path = dir.path().join("taken");
        fs::create_dir(&path).expect("a folder in the way");
        assert!(write_whole(&path, b"new", MODE_PUBLIC).is_err());
        assert_eq!(fs::read_dir(dir.path()).expect("a folder").count(), 1);
    }
}
