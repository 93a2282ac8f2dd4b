//! A simulated block device under redb: a page cache, what is durable, and the faults of both.
//!
//! ```text
//!   write ─► cache ── sync ─► durable
//!              └─ a power cut leaves any part of what was not synced
//! ```

mod image;

pub use image::PowerCut;

use coordination_apiserver::engine::disk::StorageBackend;
use fastrand::Rng;
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Bytes that get room on the device together.
pub const BLOCK_BYTES: usize = 4096;

/// A device. Its clones are the same device.
#[derive(Clone, Debug, Default)]
pub struct Device(Arc<Mutex<State>>);

/// A change of the file that is not durable.
#[derive(Clone, Debug)]
pub enum Unsynced {
    /// Length of the file.
    Length(usize),
    /// Bytes at a place.
    Bytes(usize, Vec<u8>),
}

#[derive(Debug, Default)]
struct State {
    /// What reads see.
    cache: Vec<u8>,
    durable: Vec<u8>,
    unsynced: Vec<Unsynced>,
    /// Blocks that have room.
    blocks: Vec<bool>,
    faults: Faults,
    /// Start of the server that may use the device.
    epoch: u64,
    /// Operations of this start.
    operations: u64,
    syncs: u64,
}

/// What goes wrong.
#[derive(Clone, Debug, Default)]
pub struct Faults {
    /// Operations until the power fails; the operation itself is done in part.
    pub crash_in: Option<u64>,
    /// Operations until one fails, and which kind of operation.
    pub error_in: Option<(u64, Operation)>,
    /// No block gets room.
    pub is_full: bool,
    /// The bug: syncs do nothing.
    pub syncs_lie: bool,
    /// What becomes of the page cache when a sync fails.
    pub failed_syncs: FailedSyncs,
    /// The bug: a sync that failed is tried again, and succeeds for what was written since.
    pub retries_syncs: bool,
    /// Whether the power has failed in an operation.
    pub has_crashed: bool,
    /// Whether an operation has failed.
    pub has_failed: bool,
    /// Whether a block got no room.
    pub was_full: bool,
}

/// What becomes of the page cache when a sync fails.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum FailedSyncs {
    /// The pages stay dirty, and a later sync writes them.
    #[default]
    Kept,
    /// The pages count as clean, as on Linux: reads see them, and a power cut takes them.
    Forgotten,
    /// The same, and a start drops the page cache before it reads, as `posix_fadvise` does.
    ForgottenAndCold,
}

/// A kind of operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operation {
    /// Of bytes.
    Read,
    /// Of all that was written.
    Sync,
    /// Of bytes.
    Write,
}

/// What one start of a server has of the device. After the next start it is dead.
#[derive(Debug)]
pub struct Backend {
    device: Device,
    epoch: u64,
}

impl Device {
    /// The device for the next start of a server; no earlier one can use it any more.
    #[must_use]
    pub fn attach(&self) -> Backend {
        let mut state = self.state();
        state.epoch += 1;
        state.operations = 0;
        // What is to come stays, so that it can come while the server recovers.
        let faults = &mut state.faults;
        (faults.has_crashed, faults.has_failed, faults.was_full) = (false, false, false);
        if state.faults.failed_syncs == FailedSyncs::ForgottenAndCold {
            let state = &mut *state;
            for change in state.unsynced.drain(..) {
                change.apply(&mut state.durable);
            }
            state.cache.clone_from(&state.durable);
        }
        Backend { device: self.clone(), epoch: state.epoch }
    }

    /// Takes the device from the server that has it: the process is gone.
    pub fn detach(&self) {
        self.state().epoch += 1;
    }

    /// Changes what goes wrong.
    pub fn set_faults<T>(&self, change: impl FnOnce(&mut Faults) -> T) -> T {
        change(&mut self.state().faults)
    }

    /// The power fails: of what was not synced any part is left.
    pub fn cut_power(&self, random: &mut Rng, how: PowerCut) {
        let state = &mut *self.state();
        let image = image::image(random, how, &state.durable, &state.unsynced);
        state.unsynced.clear();
        state.durable.clone_from(&image);
        state.cache = image;
        state.blocks.resize(state.cache.len().div_ceil(BLOCK_BYTES), true);
    }

    /// A copy of what a start would find now.
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

    /// Puts a copy of the file in its place. The bytes have room, and are durable.
    pub fn restore(&self, copy: &Self) {
        let bytes = copy.state().cache.clone();
        let state = &mut *self.state();
        state.blocks = vec![true; bytes.len().div_ceil(BLOCK_BYTES)];
        state.unsynced.clear();
        state.durable.clone_from(&bytes);
        state.cache = bytes;
    }

    /// Bytes of the file.
    #[must_use]
    pub fn len(&self) -> usize {
        self.state().cache.len()
    }

    /// Whether there is no file.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Flips a bit.
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
    /// Does the change to `bytes`.
    fn apply(&self, bytes: &mut Vec<u8>) {
        match self {
            Self::Length(length) => bytes.resize(*length, 0),
            Self::Bytes(offset, data) => {
                // Bytes behind the end were written to a length that did not survive.
                if bytes.len() < offset + data.len() {
                    bytes.resize(offset + data.len(), 0);
                }
                bytes[*offset..offset + data.len()].copy_from_slice(data);
            }
        }
    }
}

impl State {
    /// Counts an operation. Whether the power fails in it.
    ///
    /// # Errors
    /// The operation fails.
    fn begin(&mut self, epoch: u64, operation: Operation) -> io::Result<bool> {
        if epoch != self.epoch || self.faults.has_crashed {
            return Err(io::Error::other("the process is gone"));
        }
        self.operations += 1;
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

    /// Gives room to the blocks of these bytes.
    ///
    /// # Errors
    /// The device is full.
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
        Ok(self.device.len() as u64)
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
        // What is cut off gives its room back.
        state.blocks.truncate(len.div_ceil(BLOCK_BYTES));
        if is_crash { Err(gone()) } else { Ok(()) }
    }

    fn sync_data(&self) -> io::Result<()> {
        let state = &mut *self.device.state();
        let is_crash = match state.begin(self.epoch, Operation::Sync) {
            Ok(is_crash) => is_crash,
            Err(_) if state.faults.retries_syncs && state.faults.has_failed => {
                // The kernel has marked the pages clean.
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
        state.syncs += 1;
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
