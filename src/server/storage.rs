//! The server's storage: opens the journal that the configuration names, and loads it again when needed.

use super::former::Former;
use super::{Server, StorageConfig};
use crate::api::Storage;
use crate::clock::wall_micros;
use crate::engine::EngineError;
use crate::engine::disk::Disk;
use crate::etcd::EtcdPort;
use crate::journal::{CHUNK_BYTES_MAX, Config, Journal, Limits, Port, ThreadPort, Worker};
use crate::resource::ResourceVersion;
use crate::table::Table;
use mio::Waker;
use std::sync::Arc;

/// Limits of the table of Leases.
#[derive(Clone, Copy, Debug)]
pub(super) struct TableLimits {
    /// Maximum number of events in the event log, the log of the last changes.
    pub(super) window_events: usize,
    /// Maximum size of the events in the event log, in bytes.
    pub(super) window_bytes: usize,
    /// Maximum total size of the Leases, in bytes.
    pub(super) quota_bytes: usize,
}

impl TableLimits {
    /// Returns an empty table whose `resourceVersion` is `version`.
    pub(super) fn table(self, version: ResourceVersion) -> Table {
        Table::new(version, self.window_events, self.window_bytes).with_quota(self.quota_bytes)
    }
}

/// Checks that the storage of `config` can be used, as far as this is possible without a waker. May take some seconds.
///
/// # Errors
/// [`EngineError`]
pub(super) fn check(config: &StorageConfig) -> Result<(), EngineError> {
    match config {
        StorageConfig::Etcd(etcd) => EtcdPort::check(etcd),
        StorageConfig::Disk(_) | StorageConfig::Memory => Ok(()),
    }
}

/// Opens the storage of `config`. The journal writes in format version `format`, and wakes the event loop with `waker`.
/// `now_ms` is the event loop's time. With `must_exist`, loading fails if there is no store.
///
/// # Errors
/// [`EngineError`]
pub(super) fn open(
    config: &StorageConfig,
    format: u8,
    waker: &Arc<Waker>,
    now_ms: u64,
    must_exist: bool,
) -> Result<Storage, EngineError> {
    let begin_us = wall_micros().saturating_sub(now_ms.saturating_mul(1000));
    let waker = Arc::clone(waker);
    let (port, mut config): (Box<dyn Port>, _) = match config {
        StorageConfig::Memory => return Ok(Storage::Memory),
        StorageConfig::Disk(folder) => {
            let store = folder.display().to_string();
            let worker = Worker::new(Box::new(Disk::open(folder)?), &store);
            let port = ThreadPort::start(worker, waker)
                .map_err(|cause| EngineError::Io { what: "cannot start a thread".to_owned(), cause })?;
            (Box::new(port), Config::new(&store, begin_us))
        }
        StorageConfig::Etcd(etcd) => {
            let limits = Limits {
                batch_bytes_max: ETCD_BATCH_BYTES_MAX,
                renewal_wait_ms: ETCD_RENEWAL_WAIT_MS,
                journal_bytes_max: etcd.journal_bytes_max,
                store_bytes_max: etcd.store_bytes_max,
                ..Limits::default()
            };
            let config = Config { is_shared: true, limits, ..Config::new(&etcd.store(), begin_us) };
            (Box::new(EtcdPort::start(etcd.clone(), waker)?), config)
        }
    };
    config.must_exist = must_exist;
    config.limits.format = format;
    Ok(Storage::Journal(Box::new(Journal::new(port, config, fastrand::u64(..)))))
}

/// Longest time for which a batch of renewals waits for more renewals, in ms. With this wait, three replicas together
/// make about 100 etcd transactions a second.
const ETCD_RENEWAL_WAIT_MS: u64 = 30;
/// Maximum bytes of a batch of several changes that is one entry in etcd. An entry and a chunk of a snapshot together
/// are then below 1.5 MiB, etcd's limit of a request.
const ETCD_BATCH_BYTES_MAX: usize = 768 * 1024;
const _: () = assert!(ETCD_BATCH_BYTES_MAX + CHUNK_BYTES_MAX < 1_500 * 1024);

impl Server {
    /// Loads all Leases again, after the server has lost track of the store.
    ///
    /// Serves none of the present connections any more, so that no client sees a change that other replicas do not
    /// have. The next turns close these connections. Clients continue with another replica, or with this replica once
    /// it has loaded. Their watches resume if the loaded event log reaches back far enough.
    ///
    /// # Errors
    /// The store cannot be opened.
    pub(super) fn load_again(&mut self) -> Result<(), EngineError> {
        if let Some(check) = self.awaited.journal {
            self.service.api.health.set(check, Err("the journal is being read".into()));
        }
        // The old journal is dropped first, which cancels the pending work of its thread.
        let (table, watchers) = self.service.begin_again(self.table_limits.table(ResourceVersion(0)));
        debug_assert!(self.former.is_none(), "the next reload begins after the last one has ended");
        self.former = Some(Former { connections: self.conns.take_all(), watchers, table });
        let (waker, now) = (&self.shutdown.waker, self.clock.now());
        self.service.api.storage = open(&self.storage, self.journal_format, waker, now.ms, self.has_loaded)?;
        Ok(())
    }
}
