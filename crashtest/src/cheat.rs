//! A deliberate loss of acknowledged writes: the server's store is replaced by an older copy while the server is down.
//! It shows that the checker detects a loss.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

/// A folder, and the place of its copy.
#[derive(Debug)]
pub(crate) struct Copy {
    data: PathBuf,
    kept: PathBuf,
}

impl Copy {
    /// Names the folder and the place of its copy. Copies nothing yet.
    pub(crate) fn of(data: &Path, kept: &Path) -> Self {
        Self { data: data.to_owned(), kept: kept.to_owned() }
    }

    /// Copies the folder. No process may write to it meanwhile.
    pub(crate) fn keep(&self) {
        // A failed copy leads to a run without violations, and then the test fails.
        _ = copy_files(&self.data, &self.kept);
    }

    /// Replaces the folder by its copy.
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
