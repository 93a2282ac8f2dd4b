//! Where a server keeps its Leases: the journal that its configuration asks for, and how it is loaded again.

use super::{Server, StorageConfig};
use crate::api::Storage;
use crate::clock::wall_micros;
use crate::engine::EngineError;
use crate::engine::disk::Disk;
use crate::journal::{self, Journal, ThreadPort, Worker};
use crate::resource::ResourceVersion;
use crate::table::Table;
use mio::Waker;
use std::sync::Arc;

/// Bounds of a table.
#[derive(Clone, Copy, Debug)]
pub(super) struct TableLimits {
    /// Events that the log keeps.
    pub(super) window_events: usize,
    /// Bytes of those events.
    pub(super) window_bytes: usize,
    /// Bytes of Leases that count towards the quota.
    pub(super) quota_bytes: usize,
}

impl TableLimits {
    /// A table without a Lease, at a version.
    pub(super) fn table(self, version: ResourceVersion) -> Table {
        Table::new(version, self.window_events, self.window_bytes).with_quota(self.quota_bytes)
    }
}

/// Opens what `config` names. `now_ms` is the time by the loop's clock. `waker` wakes the loop for the journal.
///
/// # Errors
/// [`EngineError`]
pub(super) fn open(config: &StorageConfig, waker: &Arc<Waker>, now_ms: u64) -> Result<Storage, EngineError> {
    let StorageConfig::Disk(folder) = config else { return Ok(Storage::Memory) };
    let store = folder.display().to_string();
    let worker = Worker::new(Box::new(Disk::open(folder)?), &store);
    let port = ThreadPort::start(worker, Arc::clone(waker))
        .map_err(|cause| EngineError::Io { what: "cannot start a thread".to_owned(), cause })?;
    let begin_us = wall_micros().saturating_sub(now_ms.saturating_mul(1000));
    let config = journal::Config::new(&store, begin_us);
    Ok(Storage::Journal(Box::new(Journal::new(Box::new(port), config, fastrand::u64(..)))))
}

impl Server {
    /// Loads all Leases again after this process has lost track of the store.
    ///
    /// All connections end, so that no client sees a state that others do not have. Clients go on with another replica,
    /// or with this one when it has loaded. Their watches resume if the loaded log reaches back far enough.
    ///
    /// # Errors
    /// The store cannot be opened.
    pub(super) fn load_again(&mut self) -> Result<(), EngineError> {
        for token in self.conns.tokens() {
            self.close(token);
        }
        // The old port ends first, with what its thread had under way.
        self.service.begin_again(self.table_limits.table(ResourceVersion(0)));
        self.service.api.storage = open(&self.storage, &self.shutdown.waker, self.clock.now().ms)?;
        Ok(())
    }
}
