//! A simulated block device for redb: one file with a page cache, the durable bytes, and faults.
//!
//! ```text
//!   write ─► cache ── sync ─► durable
//!              └─ after a power cut, any part of the unsynced changes is left
//! ```

mod image;

pub use image::PowerCut;

use clap::ValueEnum;
use coordination_apiserver::engine::disk::{StorageBackend, StoreFile};
use fastrand::Rng;
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Size of a block, in bytes. The device allocates whole blocks.
pub const BLOCK_BYTES: usize = 4096;

/// A device with one file. Clones of the value share the device.
#[derive(Clone, Debug, Default)]
pub struct Device(Arc<Mutex<State>>);

/// A change of the file that no sync has made durable yet.
#[derive(Clone, Debug)]
pub enum Unsynced {
    /// New length of the file, in bytes.
    Length(usize),
    /// A write: its offset in the file, and its bytes.
    Bytes(usize, Vec<u8>),
}

#[derive(Debug, Default)]
struct State {
    /// Content of the file that reads return: the page cache.
    cache: Vec<u8>,
    /// Content of the file after a power cut that no unsynced change survives.
    durable: Vec<u8>,
    unsynced: Vec<Unsynced>,
    /// For each block, whether it is allocated.
    blocks: Vec<bool>,
    faults: Faults,
    /// Number of the server's start that may use the device. Earlier starts get errors.
    epoch: u64,
}

/// The faults of a device: those to come, those of a deliberate bug, and those that have occurred.
#[derive(Clone, Debug, Default)]
pub struct Faults {
    /// Number of writes and syncs before the one in which the power fails. That write or sync is executed only in part.
    pub crash_in: Option<u64>,
    /// Number of operations of one kind before the operation that fails, and the kind.
    pub error_in: Option<(u64, Operation)>,
    /// Whether the device is full, so that no block can be allocated.
    pub is_full: bool,
    /// Whether syncs do nothing: a deliberate bug.
    pub syncs_lie: bool,
    /// State of the page cache after a failed sync.
    pub failed_syncs: FailedSyncs,
    /// Whether a failed sync is retried, and the retry reports success although it makes nothing durable: a deliberate
    /// bug.
    pub retries_syncs: bool,
    /// Whether the power has failed during an operation of this start.
    pub has_crashed: bool,
    /// Whether an operation of this start has failed.
    pub has_failed: bool,
    /// Whether an allocation of this start has failed because the device was full.
    pub was_full: bool,
}

/// State of the page cache after a failed sync.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum FailedSyncs {
    /// The pages stay dirty, so a later sync makes them durable.
    #[default]
    Kept,
    /// The pages are marked clean, as on Linux: reads see them, but a power cut loses them. The device ignores the
    /// order to drop the page cache ([`StoreFile::read_from_disk`]). Some seeds fail, since a server that starts again
    /// relies on such pages.
    Forgotten,
    /// The pages are marked clean, as with `Forgotten`. The next start of the server drops them from the page cache.
    #[value(name = "cold")]
    ForgottenAndCold,
}

/// A kind of operation of the device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operation {
    /// A read.
    Read,
    /// A sync, which makes all writes before it durable.
    Sync,
    /// A write.
    Write,
}

/// The access of one start of a server to the device. Once this start has ended, reads, writes and syncs through this
/// value fail.
#[derive(Debug)]
pub struct Backend {
    device: Device,
    epoch: u64,
}

impl Device {
    /// Gives the device to the next start of a server. Earlier starts can no longer use it.
    #[must_use]
    pub fn attach(&self) -> Backend {
        let mut state = self.state();
        state.epoch += 1;
        // Faults to come remain, so that they can occur while the server recovers.
        let faults = &mut state.faults;
        (faults.has_crashed, faults.has_failed, faults.was_full) = (false, false, false);
        Backend { device: self.clone(), epoch: state.epoch }
    }

    /// Takes the device from the server, whose process has ended.
    pub fn detach(&self) {
        self.state().epoch += 1;
    }

    /// Changes the faults.
    pub fn set_faults<T>(&self, change: impl FnOnce(&mut Faults) -> T) -> T {
        change(&mut self.state().faults)
    }

    /// Cuts the power. `how` decides which of the unsynced changes survive.
    pub fn cut_power(&self, random: &mut Rng, how: PowerCut) {
        let state = &mut *self.state();
        let image = image::image(random, how, &state.durable, &state.unsynced);
        state.unsynced.clear();
        state.durable.clone_from(&image);
        state.cache = image;
        state.blocks.resize(state.cache.len().div_ceil(BLOCK_BYTES), true);
    }

    /// Returns a copy of the device without faults. In the copy, the whole page cache is durable.
    #[must_use]
    pub fn copy(&self) -> Self {
        let state = self.state();
        Self(Arc::new(Mutex::new(State {
            cache: state.cache.clone(),
            durable: state.cache.clone(),
            blocks: vec![true; state.cache.len().div_ceil(BLOCK_BYTES)],
            ..State::default()
        })))
    }

    /// Replaces the file by the file of `copy`. All its bytes are allocated and durable.
    pub fn restore(&self, copy: &Self) {
        let bytes = copy.state().cache.clone();
        let state = &mut *self.state();
        state.blocks = vec![true; bytes.len().div_ceil(BLOCK_BYTES)];
        state.unsynced.clear();
        state.durable.clone_from(&bytes);
        state.cache = bytes;
    }

    /// Returns the length of the file, in bytes.
    #[must_use]
    pub fn file_bytes(&self) -> usize {
        self.state().cache.len()
    }

    /// Flips one bit of the file, in the page cache and in the durable bytes.
    pub fn flip(&self, byte: usize, bit: u8) {
        let state = &mut *self.state();
        for bytes in [&mut state.cache, &mut state.durable] {
            if let Some(byte) = bytes.get_mut(byte) {
                *byte ^= 1 << (bit % 8);
            }
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Unsynced {
    /// Applies the change to `bytes`.
    fn apply(&self, bytes: &mut Vec<u8>) {
        match self {
            Self::Length(length) => bytes.resize(*length, 0),
            Self::Bytes(offset, data) => {
                // The file may end before the end of the write, because a new length of the file did not survive.
                if bytes.len() < offset + data.len() {
                    bytes.resize(offset + data.len(), 0);
                }
                bytes[*offset..offset + data.len()].copy_from_slice(data);
            }
        }
    }
}

impl State {
    /// Begins an operation. Returns whether the power fails during the operation.
    ///
    /// # Errors
    /// If the operation fails, the power has failed, or the device belongs to a later start.
    fn begin(&mut self, epoch: u64, operation: Operation) -> io::Result<bool> {
        if epoch != self.epoch || self.faults.has_crashed {
            return Err(io::Error::other("the process has ended"));
        }
        if let Some((left, kind)) = &mut self.faults.error_in
            && *kind == operation
        {
            if *left == 0 {
                self.faults.error_in = None;
                self.faults.has_failed = true;
                return Err(io::Error::from_raw_os_error(EIO));
            }
            *left -= 1;
        }
        if operation != Operation::Read
            && let Some(left) = &mut self.faults.crash_in
        {
            if *left == 0 {
                (self.faults.crash_in, self.faults.has_crashed) = (None, true);
                return Ok(true);
            }
            *left -= 1;
        }
        Ok(false)
    }

    /// Allocates the blocks of the bytes from `start` to `end`.
    ///
    /// # Errors
    /// If the device is full and a block is not allocated.
    fn allocate(&mut self, start: usize, end: usize) -> io::Result<()> {
        let (first, last) = (start / BLOCK_BYTES, end.div_ceil(BLOCK_BYTES));
        if self.blocks.len() < last {
            self.blocks.resize(last, false);
        }
        let blocks = &mut self.blocks[first..last];
        if self.faults.is_full && blocks.contains(&false) {
            self.faults.was_full = true;
            return Err(io::Error::from_raw_os_error(ENOSPC));
        }
        blocks.fill(true);
        Ok(())
    }

    fn change(&mut self, change: Unsynced) {
        change.apply(&mut self.cache);
        self.unsynced.push(change);
    }
}

const EIO: i32 = 5;
const ENOSPC: i32 = 28;

fn gone() -> io::Error {
    io::Error::other("the power has failed")
}

fn place(offset: u64) -> usize {
    usize::try_from(offset).expect("a simulated file is small")
}

impl StorageBackend for Backend {
    fn len(&self) -> io::Result<u64> {
        Ok(self.device.file_bytes() as u64)
    }

    fn read(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        let mut state = self.device.state();
        state.begin(self.epoch, Operation::Read)?;
        let start = place(offset);
        let bytes = state.cache.get(start..start + out.len()).ok_or(io::ErrorKind::UnexpectedEof)?;
        out.copy_from_slice(bytes);
        Ok(())
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        let mut state = self.device.state();
        let is_crash = state.begin(self.epoch, Operation::Write)?;
        let len = place(len);
        state.change(Unsynced::Length(len));
        // The blocks after the new end of the file are freed.
        state.blocks.truncate(len.div_ceil(BLOCK_BYTES));
        if is_crash { Err(gone()) } else { Ok(()) }
    }

    fn sync_data(&self) -> io::Result<()> {
        let state = &mut *self.device.state();
        let is_crash = match state.begin(self.epoch, Operation::Sync) {
            Ok(is_crash) => is_crash,
            Err(_) if state.faults.retries_syncs && state.faults.has_failed => {
                // The retry of a failed sync finds no dirty page: as on Linux, the kernel marked all pages clean at the
                // failure. So the retry succeeds and stores nothing.
                state.unsynced.clear();
                return Ok(());
            }
            Err(error) => {
                if state.faults.failed_syncs != FailedSyncs::Kept && state.faults.has_failed {
                    state.unsynced.clear();
                }
                return Err(error);
            }
        };
        if is_crash {
            return Err(gone());
        }
        if !state.faults.syncs_lie {
            for change in state.unsynced.drain(..) {
                change.apply(&mut state.durable);
            }
        }
        Ok(())
    }

    fn write(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        let state = &mut *self.device.state();
        let is_crash = state.begin(self.epoch, Operation::Write)?;
        let start = place(offset);
        state.allocate(start, start + data.len())?;
        state.change(Unsynced::Bytes(start, data.to_vec()));
        if is_crash { Err(gone()) } else { Ok(()) }
    }
}

impl StoreFile for Backend {
    fn read_from_disk(&self) -> io::Result<()> {
        self.sync_data()?;
        let state = &mut *self.device.state();
        if state.faults.failed_syncs != FailedSyncs::Forgotten {
            state.cache.clone_from(&state.durable);
            // With [`Faults::syncs_lie`], the sync above has left dirty pages. The page cache keeps dirty pages.
            state.unsynced.iter().for_each(|change| change.apply(&mut state.cache));
        }
        Ok(())
    }
}
