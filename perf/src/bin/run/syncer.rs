//! The floor of a durable write: the time until the disk has made a page durable. No server with its data on this disk
//! can acknowledge a write sooner.

use crate::measurement::Told;
use crate::sleeper::told;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt as _;
use std::path::Path;
use std::time::{Duration, Instant};

/// Size of a page, in bytes.
const PAGE_BYTES: usize = 4096;
/// Number of pages in the file. They are written in turn.
const PAGES: u64 = 1024;

/// Writes and syncs pages of a file in `folder` for `duration`, or until `is_over` returns true.
///
/// # Errors
/// If a write or a sync of the file failed.
pub(crate) fn measure(folder: &Path, duration: Duration, is_over: impl Fn() -> bool) -> io::Result<Told> {
    let file = tempfile::tempfile_in(folder)?;
    let mut page = vec![0; PAGE_BYTES];
    for at in 0..PAGES {
        file.write_all_at(&page, at * PAGE_BYTES as u64)?;
    }
    file.sync_all()?;
    let began = Instant::now();
    let mut times_ns = Vec::new();
    while began.elapsed() < duration && !is_over() {
        let at = times_ns.len() as u64;
        // The content of a page changes each time, since a disk need not write a page that did not change.
        page[..8].copy_from_slice(&at.to_le_bytes());
        times_ns.push(sync_one(&file, &page, at % PAGES)?);
    }
    let per_second = times_ns.len() as f64 / began.elapsed().as_secs_f64();
    Ok(told(per_second, duration, times_ns, "write 4 KiB and fdatasync".to_owned()))
}

fn sync_one(file: &File, page: &[u8], at: u64) -> io::Result<u128> {
    let began = Instant::now();
    file.write_all_at(page, at * PAGE_BYTES as u64)?;
    file.sync_data()?;
    Ok(began.elapsed().as_nanos())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sync_measurement_has_a_rate_and_latencies() {
        let folder = tempfile::tempdir().expect("a folder");
        let told = measure(folder.path(), Duration::from_millis(50), || false).expect("a measurement");
        assert!(told.json["requests_per_second"].as_f64().is_some_and(|number| number > 0.0), "{}", told.json);
        let latency = |name: &str| told.json["latency"][name].as_f64().expect("a latency");
        assert!(latency("ms_max") >= latency("ms_p50"), "{}", told.json);
    }
}
