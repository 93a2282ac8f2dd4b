//! A backend in memory for tests. It fails on demand, and remembers unsynced changes. Its bytes begin with the log,
//! which has the newest single entries. The database of redb follows the log.

use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::engine::disk::log::LOG_BYTES;
use crate::engine::disk::{StorageBackend, StoreFile};

/// A backend whose clones share their state.
#[derive(Clone, Debug, Default)]
pub(super) struct Fake(Arc<Mutex<State>>);

#[derive(Debug, Default)]
struct State {
    /// Content that reads return.
    bytes: Vec<u8>,
    /// What the disk may hold if the power fails now.
    now: Cut,
    /// What the disk could have held if the power had failed before each of the earlier syncs.
    earlier: Vec<Cut>,
    syncs: u64,
    faults: Faults,
}

#[derive(Debug, Default)]
struct Faults {
    /// Number of further writes that succeed, and the error of the writes after them.
    write: Option<(u64, io::ErrorKind)>,
    /// Number of bytes of the first failing write that take effect nevertheless.
    done_bytes: usize,
    /// Error of all writes to the log.
    log: Option<io::ErrorKind>,
    sync: Option<io::ErrorKind>,
    failed: bool,
}

/// A moment at which the power may fail.
#[derive(Clone, Debug, Default)]
pub(super) struct Cut {
    /// Content that is certainly on the disk.
    pub(super) synced: Vec<u8>,
    /// Later changes in order. Any part of them may be on the disk.
    pub(super) unsynced: Vec<Change>,
}

/// A change of the file.
#[derive(Clone, Debug)]
pub(super) enum Change {
    Length(u64),
    Bytes(u64, Vec<u8>),
}

impl Change {
    /// Applies the change to `bytes`.
    pub(super) fn apply(&self, bytes: &mut Vec<u8>) {
        match self {
            Self::Length(length) => bytes.resize(usize::try_from(*length).expect("tests are small"), 0),
            Self::Bytes(offset, data) => {
                let offset = usize::try_from(*offset).expect("tests are small");
                // The bytes may be after the end, if the power failure lost a change of the length.
                if bytes.len() < offset + data.len() {
                    bytes.resize(offset + data.len(), 0);
                }
                bytes[offset..offset + data.len()].copy_from_slice(data);
            }
        }
    }
}

impl Fake {
    pub(super) fn new(bytes: Vec<u8>) -> Self {
        Self(Arc::new(Mutex::new(State {
            now: Cut { synced: bytes.clone(), ..Cut::default() },
            bytes,
            ..State::default()
        })))
    }

    pub(super) fn bytes(&self) -> Vec<u8> {
        self.state().bytes.clone()
    }

    /// Returns what the disk may hold if the power fails now.
    pub(super) fn cut(&self) -> Cut {
        self.state().now.clone()
    }

    /// Returns what the disk could have held if the power had failed just before a sync: one value for each sync since
    /// the last call.
    pub(super) fn take_earlier_cuts(&self) -> Vec<Cut> {
        std::mem::take(&mut self.state().earlier)
    }

    pub(super) fn poke(&self, offset: usize, byte: u8) {
        self.state().bytes[offset] = byte;
    }

    pub(super) fn syncs(&self) -> u64 {
        self.state().syncs
    }

    /// Makes the writes after the next `allowed` fail. After the first failure, writes to the log and to the database's
    /// header succeed, since their places on the disk are already allocated.
    pub(super) fn fail_write(&self, allowed: u64, kind: io::ErrorKind) {
        self.state().faults = Faults { write: Some((allowed, kind)), ..Faults::default() };
    }

    /// Does the same as [`Fake::fail_write`], but the first failing write takes effect despite its error.
    pub(super) fn fail_after_write(&self, allowed: u64, kind: io::ErrorKind) {
        self.fail_in_write(allowed, kind, usize::MAX);
    }

    /// Does the same as [`Fake::fail_write`], but the first `done_bytes` bytes of the first failing write take effect.
    pub(super) fn fail_in_write(&self, allowed: u64, kind: io::ErrorKind, done_bytes: usize) {
        self.state().faults = Faults { write: Some((allowed, kind)), done_bytes, ..Faults::default() };
    }

    /// Makes all writes to the log fail too. On a full disk, a log with holes fails like this. Holes are blocks without
    /// a place on the disk.
    pub(super) fn fail_log(&self, kind: io::ErrorKind) {
        self.state().faults.log = Some(kind);
    }

    pub(super) fn fail_sync(&self, kind: io::ErrorKind) {
        self.state().faults = Faults { sync: Some(kind), ..Faults::default() };
    }

    pub(super) fn has_failed(&self) -> bool {
        self.state().faults.failed
    }

    /// Ends all faults. A test calls this function only after the disk engine has handled the failure. On a full disk,
    /// the engine erases the failed record in the log, or reopens the database. Both write only to places at which
    /// writes still succeed ([`Fake::fail_write`]).
    pub(super) fn heal(&self) {
        self.state().faults = Faults::default();
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn change(&self, mut change: Change) -> io::Result<()> {
        let mut state = self.state();
        let mut result = Ok(());
        if let Change::Bytes(offset, _) = &change
            && let Some(kind) = state.faults.log
            && *offset < LOG_BYTES as u64
        {
            state.faults.failed = true;
            return Err(io::Error::from(kind));
        }
        if let Some((allowed, kind)) = &mut state.faults.write {
            let (kind, is_allowed) = (*kind, *allowed > 0);
            *allowed = allowed.saturating_sub(1);
            let is_in_place = matches!(change, Change::Bytes(offset, _) if offset <= LOG_BYTES as u64);
            let is_spared = state.faults.failed && is_in_place;
            if !is_allowed && !is_spared {
                let done_bytes = if state.faults.failed { 0 } else { state.faults.done_bytes };
                state.faults.failed = true;
                result = Err(io::Error::from(kind));
                if done_bytes == 0 {
                    return result;
                }
                if let Change::Bytes(_, data) = &mut change {
                    data.truncate(done_bytes);
                }
            }
        }
        let state = &mut *state;
        change.apply(&mut state.bytes);
        state.now.unsynced.push(change);
        result
    }
}

impl StorageBackend for Fake {
    fn len(&self) -> io::Result<u64> {
        Ok(self.state().bytes.len() as u64)
    }

    fn read(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        let state = self.state();
        let start = usize::try_from(offset).map_err(|_| io::ErrorKind::UnexpectedEof)?;
        let end = start.checked_add(out.len()).ok_or(io::ErrorKind::UnexpectedEof)?;
        out.copy_from_slice(state.bytes.get(start..end).ok_or(io::ErrorKind::UnexpectedEof)?);
        Ok(())
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        // A smaller file needs no space, so this change succeeds on a full disk too.
        if len <= self.state().bytes.len() as u64 {
            let mut state = self.state();
            let change = Change::Length(len);
            change.apply(&mut state.bytes);
            state.now.unsynced.push(change);
            return Ok(());
        }
        self.change(Change::Length(len))
    }

    fn sync_data(&self) -> io::Result<()> {
        let mut state = self.state();
        state.syncs += 1;
        if let Some(kind) = state.faults.sync {
            state.faults.failed = true;
            return Err(io::Error::from(kind));
        }
        let synced = state.bytes.clone();
        let cut = std::mem::replace(&mut state.now, Cut { synced, unsynced: Vec::new() });
        state.earlier.push(cut);
        Ok(())
    }

    fn write(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        self.change(Change::Bytes(offset, data.to_vec()))
    }
}

impl StoreFile for Fake {
    fn read_from_disk(&self) -> io::Result<()> {
        self.sync_data()
    }
}
