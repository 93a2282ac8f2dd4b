//! A deliberate loss of acknowledged writes: while the server is down, its store is replaced by an older copy. A run
//! with this loss shows that the checker detects it.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

/// The folder of the server's store, and the place for a copy of this folder.
#[derive(Debug)]
pub(crate) struct Copy {
    data: PathBuf,
    kept: PathBuf,
}

impl Copy {
    /// Stores the paths of the folder and of its copy. Nothing is copied yet.
    pub(crate) fn of(data: &Path, kept: &Path) -> Self {
        Self { data: data.to_owned(), kept: kept.to_owned() }
    }

    /// Copies the folder. No client may write meanwhile: if the server changes its store during the copy, the copy may
    /// be damaged.
    pub(crate) fn keep(&self) {
        // An error needs no handling here. Without a copy the server loses no write, so the test that expects a
        // violation fails.
        _ = copy_files(&self.data, &self.kept);
    }

    /// Overwrites the files of the folder with the files of its copy.
    pub(crate) fn put_back(&self) {
        _ = copy_files(&self.kept, &self.data);
    }
}

fn copy_files(from: &Path, to: &Path) -> io::Result<()> {
    fs::create_dir_all(to)?;
    for entry in fs::read_dir(from)? {
        let entry = entry?;
        fs::copy(entry.path(), to.join(entry.file_name()))?;
    }
    Ok(())
}
