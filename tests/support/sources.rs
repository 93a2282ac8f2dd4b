//! Files of the repository.

use std::fs;
use std::path::{Path, PathBuf};

/// Returns the folder of the repository.
pub(crate) fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// Returns all Rust files below a folder.
///
/// # Panics
/// If a folder cannot be read.
pub(crate) fn rust_files(folder: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).expect("a folder").map(|entry| entry.expect("an entry").path());
    entries
        .flat_map(|path| match path.is_dir() {
            true => rust_files(&path),
            false => Vec::from_iter(path.extension().is_some_and(|end| end == "rs").then_some(path)),
        })
        .collect()
}
