//! Copies the Leases of one store to a new store while no server uses either store.
//!
//! A store on disk is locked, so no server can use it meanwhile. A store in etcd has no lock. So the migration waits
//! until every live replica must have renewed its identity Lease, which shows that the replica is live. The migration
//! fails if the journal then has a new entry.
//!
//! The new store begins with a snapshot of the Leases at the last version of the old store. Versions continue from this
//! version. The journal and the watch window are not copied. So a watch from an older version gets 410.

use super::Journal;
use super::applied::Applied;
use super::config::Config;
use super::error::damaged;
use super::manifest::{Base, Manifest, SnapshotInfo};
use super::port::{Command, Commit, Event, Port, StoredManifest};
use super::taking::Taking;
use crate::engine::{EngineError, SnapshotId, Write};
use crate::resource::ResourceVersion;
use crate::table::Table;

/// A store, its port, and functions that wait for events of the port and for the replicas.
pub struct Place<'p> {
    /// Port to the store.
    pub port: Box<dyn Port>,
    /// Name of the store, and whether other processes write to it.
    pub config: Config,
    /// Waits until the port may have an event.
    pub wait: Box<dyn FnMut() + 'p>,
    /// Waits so long that every live replica of the store must have written to it. Does nothing for a store with one
    /// writer.
    pub await_replicas: Box<dyn FnOnce() + 'p>,
}

/// Result of a migration.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Migrated {
    /// Number of Leases.
    pub leases: u64,
    /// First version of the new store.
    pub version: ResourceVersion,
    /// Size of the compressed snapshot, in bytes.
    pub bytes: u64,
}

/// Maximum number of records and changes that one call of [`Journal::advance`] loads.
const RECORDS_AT_ONCE: usize = 64 * 1024;
/// Number of the new store's first snapshot.
const FIRST_SNAPSHOT: SnapshotId = SnapshotId(1);

/// Copies all Leases from one store to a new store. The old store is not changed. `open_new` opens the new store, after
/// the old store was loaded and no replica was found to write to the old store.
///
/// # Errors
/// [`EngineError`]: the old store is missing, unreadable or in use, or the new store holds data already or cannot be
/// written. A failed attempt leaves no valid new store, so the migration can be repeated. The exception is a last write
/// with an unknown outcome: the sync of the disk failed, or etcd gave no answer or had no space. The error then says
/// that the new store may be complete.
pub fn migrate(
    from: Place<'_>,
    open_new: impl FnOnce() -> Result<Place<'static>, EngineError>,
) -> Result<Migrated, EngineError> {
    // An old store on disk stays locked until the new store is complete, so that no server writes to the old store.
    let mut old = Old::load(from)?;
    let mut to = open_new()?;
    to.prepare()?;
    let wall_us = i64::try_from(to.config.wall_us).unwrap_or(i64::MAX);
    let first = (FIRST_SNAPSHOT, to.config.limits.format);
    let mut taking = Taking::begin(first, &old.table, Applied::default(), 0, wall_us);
    let info = loop {
        if let Some(info) = taking.info() {
            break info;
        }
        if let Some(piece) = taking.piece(&old.table) {
            taking.on_durable(to.commit(Commit { piece: Some(piece), ..Commit::default() })?);
        }
    };
    let SnapshotInfo { records, version, bytes, .. } = info;
    let manifest = Manifest { base: Base::Snapshot(info), last_claimed: FIRST_SNAPSHOT, ..Manifest::new(version) };
    let manifest = StoredManifest { bytes: manifest.encode(to.config.limits.format), revision: 0 };
    // A replica may have started on the old store meanwhile. So the old store is checked once more before the manifest
    // is written. Without the manifest, no server starts on the chunks in the new store.
    old.check_unused()?;
    let written = to.commit(Commit { manifest: Some(Box::new(manifest)), ..Commit::default() });
    let may_be = "the new store may be complete, read it with inspect";
    written.map_err(|error| match error {
        EngineError::Io { what, cause } => EngineError::Io { what: format!("{may_be}: {what}"), cause },
        // etcd executes the transaction that exceeds its quota, and then answers that it has no space (etcd
        // `server/etcdserver/apply`, `quotaApplierV3`). So etcd may have the manifest. A full disk has written nothing.
        EngineError::NoSpace { store, cause } if to.config.is_shared => {
            EngineError::Io { what: format!("{may_be}: {store} has no space"), cause }
        }
        other => other,
    })?;
    Ok(Migrated { leases: records, version, bytes })
}

/// The old store and its Leases. The journal keeps the store open.
struct Old<'p> {
    table: Table,
    journal: Journal,
    wait: Box<dyn FnMut() + 'p>,
}

impl<'p> Old<'p> {
    /// Loads the Leases of a store, and checks that no live replica writes to it.
    fn load(mut from: Place<'p>) -> Result<Self, EngineError> {
        let Opened { has_manifest, has_entries, snapshots } = from.open()?;
        // If only the manifest is missing, the journal reports damage. If all is missing, the journal would create a
        // store. So this function refuses an empty store itself.
        if !has_manifest && !has_entries && snapshots.is_empty() {
            return Err(EngineError::Absent { store: from.config.store });
        }
        let Place { port, config, mut wait, await_replicas } = from;
        // The migration needs no event log, so the log has space for one event only.
        let mut table = Table::new(ResourceVersion(0), 1, usize::MAX);
        let mut journal = Journal::new(port, config, 0);
        while journal.is_loading() {
            journal.advance(&mut table, 0, RECORDS_AT_ONCE)?;
            if journal.is_loading() && !journal.has_work() {
                wait();
            }
        }
        let mut old = Self { table, journal, wait };
        await_replicas();
        old.check_unused()?;
        Ok(old)
    }

    /// Checks that no replica has written to the store since it was loaded.
    fn check_unused(&mut self) -> Result<(), EngineError> {
        let Journal { port, config, applied, .. } = &mut self.journal;
        if !config.is_shared {
            return Ok(());
        }
        port.send(Command::FindEnd);
        loop {
            match port.next() {
                Some(Event::End(end)) if end.position == applied.position => return Ok(()),
                Some(Event::End(_) | Event::Delivered(_)) => {
                    return Err(EngineError::InUseByReplica { store: config.store.clone() });
                }
                Some(Event::Failed(error)) => return Err(error),
                Some(_) => {}
                None => (self.wait)(),
            }
        }
    }
}

struct Opened {
    has_manifest: bool,
    has_entries: bool,
    snapshots: Vec<SnapshotId>,
}

impl Place<'_> {
    fn ask(&mut self, command: Command) -> Result<Event, EngineError> {
        self.port.send(command);
        loop {
            match self.port.next() {
                Some(Event::Failed(error)) => return Err(error),
                Some(Event::Reachable(_) | Event::Size(_)) => {}
                Some(event) => return Ok(event),
                None => (self.wait)(),
            }
        }
    }

    fn open(&mut self) -> Result<Opened, EngineError> {
        match self.ask(Command::Open)? {
            Event::Opened { manifest, snapshots, has_entries } => {
                Ok(Opened { has_manifest: manifest.is_some(), has_entries, snapshots })
            }
            _ => Err(damaged(&self.config.store, "worker", "an event that does not answer the command")),
        }
    }

    /// Checks that the store is new, and deletes the chunks of an interrupted attempt.
    fn prepare(&mut self) -> Result<(), EngineError> {
        let Opened { has_manifest, has_entries, snapshots } = self.open()?;
        if has_manifest || has_entries {
            return Err(EngineError::InUse { store: self.config.store.clone() });
        }
        for snapshot in snapshots {
            let writes = vec![Write::DropChunks { snapshot, below: u32::MAX }];
            self.commit(Commit { writes, ..Commit::default() })?;
        }
        Ok(())
    }

    /// Makes a commit durable. Returns the size of the commit's chunk, in bytes.
    fn commit(&mut self, commit: Commit) -> Result<usize, EngineError> {
        match self.ask(Command::Commit(commit))? {
            Event::Committed { chunk_bytes, .. } => Ok(chunk_bytes),
            Event::Overtaken => Err(EngineError::InUse { store: self.config.store.clone() }),
            _ => Err(damaged(&self.config.store, "worker", "an event that does not answer the command")),
        }
    }
}
