//! A server that loses what it acknowledged: its store goes back to a copy while it is dead. With it the checker shows
//! that it can fail.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

/// A folder, and where a copy of it is kept.
#[derive(Debug)]
pub(crate) struct Copy {
    data: PathBuf,
    kept: PathBuf,
}

impl Copy {
    /// Nothing is copied yet.
    pub(crate) fn of(data: &Path, kept: &Path) -> Self {
        Self { data: data.to_owned(), kept: kept.to_owned() }
    }

    /// Copies the folder. Nobody writes while this is called.
    pub(crate) fn keep(&self) {
        // A copy that is not made shows as a run without violations, which is a failure then.
        _ = copy_files(&self.data, &self.kept);
    }

    /// Puts the copy in the place of the folder.
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
