//! Commands that work on a store without a server. `inspect` prints the content of a store. `migrate-storage` copies
//! its Leases to another store, while no server uses either store.

use crate::clock::wall_micros;
use crate::engine::disk::{Disk, FILE, salvage};
use crate::engine::{Engine, EngineError};
use crate::etcd::{self, EtcdPort, EtcdReader};
use crate::journal::inspect::{Inspection, Summary};
use crate::journal::migration::{Migrated, Place, migrate};
use crate::journal::{CallPort, Config, Port, Worker};
use mio::{Events, Poll, Token, Waker};
use std::fmt;
use std::fs;
use std::io::{self, Write};
use std::path::PathBuf;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

/// A durable store of Leases.
#[derive(Clone, Debug)]
pub enum Store {
    /// A data folder.
    Disk(PathBuf),
    /// A prefix of keys in etcd.
    Etcd(etcd::Config),
}

/// Maximum wait for an event of the etcd thread. After the wait, the command checks the event queue again.
const WAIT_MAX: Duration = Duration::from_secs(1);
/// Time in which every live replica writes to its store. A replica renews its identity Lease every second, and counts
/// as dead after six seconds without a renewal.
const REPLICA_WRITES_WITHIN: Duration = Duration::from_secs(6);
/// Time without an answer of etcd after which a command fails. It is longer than etcd needs to elect a leader.
const PATIENCE: Duration = Duration::from_secs(20);

impl fmt::Display for Store {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Disk(folder) => folder.display().fmt(f),
            Self::Etcd(config) => config.store().fmt(f),
        }
    }
}

impl Store {
    /// Prints a summary of the store to `out`. With `changes`, prints the changes in the store's journal instead, one
    /// JSON object a line. Reads a damaged store as far as possible, and lists the damage in the returned summary.
    ///
    /// # Errors
    /// [`EngineError`] if the store cannot be read at all. A write error of `out` ends the output, and is returned
    /// beside the summary.
    pub fn inspect(&self, changes: bool, out: &mut dyn Write) -> Result<(Summary, io::Result<()>), EngineError> {
        let mut complaints = Vec::new();
        let mut engine: Box<dyn Engine> = match self {
            Self::Disk(folder) => {
                let mut salvage = salvage(&folder.join(FILE))?;
                complaints = std::mem::take(&mut salvage.complaints);
                Box::new(salvage)
            }
            Self::Etcd(config) => Box::new(EtcdReader::open(with_patience(config))?),
        };
        let mut inspection = Inspection::begin(&mut *engine, matches!(self, Self::Etcd(_)));
        let mut printed = Ok(());
        if changes {
            printed = inspection.by_ref().try_for_each(|line| writeln!(out, "{line}"));
        }
        let mut summary = inspection.finish();
        summary.complaints.splice(0..0, complaints);
        if !changes {
            printed = write!(out, "{}", summary.report(self));
        }
        Ok((summary, printed.and_then(|()| out.flush())))
    }

    /// Copies all Leases to another store, which must be new. The content of this store stays the same.
    ///
    /// # Errors
    /// The errors of [`migrate`].
    pub fn migrate_to(&self, other: &Self) -> Result<Migrated, EngineError> {
        migrate(self.place(Absent::Refuse)?, || other.place(Absent::Create))
    }

    /// Opens the store for a migration.
    fn place(&self, absent: Absent) -> Result<Place<'static>, EngineError> {
        let config = Config::new(&self.to_string(), wall_micros());
        match self {
            Self::Disk(folder) => {
                if absent == Absent::Refuse {
                    let file = folder.join(FILE);
                    let failed = |cause| EngineError::Io { what: format!("cannot read {}", file.display()), cause };
                    fs::metadata(&file).map_err(failed)?;
                }
                let worker = Worker::new(Box::new(Disk::open(folder)?), &config.store);
                let port: Box<dyn Port> = Box::new(CallPort::new(worker));
                Ok(Place { port, config, wait: Box::new(|| ()), await_replicas: Box::new(|| ()) })
            }
            Self::Etcd(etcd) => {
                let etcd = with_patience(etcd);
                EtcdPort::check(&etcd)?;
                let refused = |cause| EngineError::Io { what: "cannot wait for a thread".to_owned(), cause };
                let mut poll = Poll::new().map_err(refused)?;
                let waker = Arc::new(Waker::new(poll.registry(), Token(0)).map_err(refused)?);
                let mut events = Events::with_capacity(1);
                let port: Box<dyn Port> = Box::new(EtcdPort::start(etcd, waker)?);
                // The error of a wait is ignored, since the command checks the event queue after every wait.
                let wait = move || _ = poll.poll(&mut events, Some(WAIT_MAX));
                let await_replicas = || thread::sleep(REPLICA_WRITES_WITHIN);
                let config = Config { is_shared: true, ..config };
                Ok(Place { port, config, wait: Box::new(wait), await_replicas: Box::new(await_replicas) })
            }
        }
    }
}

/// Returns the configuration with a limit for the wait for an answer of etcd.
fn with_patience(config: &etcd::Config) -> etcd::Config {
    etcd::Config { patience: Some(PATIENCE), ..config.clone() }
}

/// What [`Store::place`] does if a data folder holds no store: let [`Disk::open`] create the store, or fail. A store in
/// etcd needs no such choice, since [`migrate`] checks the manifest before it writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Absent {
    Create,
    Refuse,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_commands_report_a_missing_store_in_the_same_words() {
        let dir = tempfile::tempdir().expect("a folder");
        let [missing, new] = ["missing", "new"].map(|name| Store::Disk(dir.path().join(name)));
        let inspected = missing.inspect(false, &mut Vec::<u8>::new()).expect_err("no store").to_string();
        assert!(inspected.contains("No such file or directory"), "{inspected}");
        assert_eq!(missing.migrate_to(&new).expect_err("no store").to_string(), inspected);
    }

    #[test]
    fn a_migration_from_an_unused_store_creates_no_other_store() {
        let dir = tempfile::tempdir().expect("a folder");
        let [unused, new] = ["unused", "new"].map(|name| dir.path().join(name));
        drop(Disk::open(&unused).expect("a store"));
        let refused = Store::Disk(unused).migrate_to(&Store::Disk(new.clone())).expect_err("no Leases").to_string();
        assert!(refused.contains("check --data-dir"), "{refused}");
        assert!(!new.exists(), "the new folder is not created");
    }
}
