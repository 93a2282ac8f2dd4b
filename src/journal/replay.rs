//! Stored changes to changes of a table: for what another process wrote, or this one before it ended.

use super::applied::{Applied, EntryName, Order, Rejections};
use super::entry::{EntryReader, Origin, StoredChange};
use super::error::{damaged, unreadable};
use super::record::Record;
use crate::engine::{EngineError, Entry, Position};
use crate::resource::ResourceVersion;
use crate::table::change::{Change, Rejected, Target};
use crate::table::{Slot, Table};
use foldhash::fast::FixedState;
use hashbrown::HashMap;

/// Where in a table the Lease of a number is. It is kept for as long as stored changes are applied.
#[derive(Debug, Default)]
pub(super) struct Numbers(HashMap<ResourceVersion, Slot, FixedState>);

impl Numbers {
    pub(super) fn reserve(&mut self, count: usize) {
        self.0.reserve(count);
    }

    /// Puts a stored Lease into a table.
    ///
    /// # Errors
    /// [`Rejected`] if its versions or its name cannot be.
    pub(super) fn restore(&mut self, table: &mut Table, record: Record) -> Result<(), Rejected> {
        let Record { number, version, lease } = record;
        let slot = table.restore(number, version, lease)?;
        if self.0.insert(number, slot).is_some() {
            return Err(Rejected);
        }
        Ok(())
    }

    /// Whether a change was installed; else the table is as before.
    ///
    /// # Errors
    /// What is wrong with a change that nobody can have made.
    fn apply(&mut self, table: &mut Table, change: StoredChange) -> Result<bool, &'static str> {
        match change {
            StoredChange::Create(lease) => {
                let (namespace, name) = (lease.metadata.namespace.clone(), lease.metadata.name.clone());
                let Ok(object) = table.apply(Change::Create(lease)) else { return Ok(false) };
                let (slot, _) = table.find(&namespace, &name).ok_or("a Lease that is not found after its creation")?;
                self.0.insert(object.number(), slot);
                Ok(true)
            }
            StoredChange::Replace(origin, lease) => {
                let Some(target) = self.target(origin) else { return Ok(false) };
                if !table.key(target.slot).is(&lease.metadata.namespace, &lease.metadata.name) {
                    return Err("the replacement of a Lease by one of another name");
                }
                Ok(table.apply(Change::Replace(target, lease)).is_ok())
            }
            StoredChange::Renew(origin, times) => {
                let Some(target) = self.target(origin) else { return Ok(false) };
                Ok(table.apply(Change::Renew(target, times)).is_ok())
            }
            StoredChange::Delete(origin) => {
                let Some(target) = self.target(origin) else { return Ok(false) };
                let is_deleted = table.apply(Change::Delete(target)).is_ok();
                if is_deleted {
                    self.0.remove(&origin.number);
                }
                Ok(is_deleted)
            }
        }
    }

    fn target(&self, Origin { number, from }: Origin) -> Option<Target> {
        self.0.get(&number).map(|slot| Target { slot: *slot, number, from })
    }
}

/// An entry whose changes are applied in steps.
#[derive(Debug)]
pub(super) struct Replaying {
    position: Position,
    reader: EntryReader,
    index: u64,
    rejections: Rejections,
}

impl Replaying {
    /// Begins with an entry that stands behind what `applied` says, at the table's `version`. None if it is passed
    /// over: it was applied before.
    ///
    /// # Errors
    /// [`EngineError`] if it is damaged, or is not the next one of its writer.
    pub(super) fn begin(
        store: &str,
        entry: Entry,
        applied: &mut Applied,
        version: ResourceVersion,
    ) -> Result<Option<Self>, EngineError> {
        let position = entry.position;
        let wrong = |what: &str| damaged(store, &name(position), what);
        if position <= applied.position {
            return Err(wrong(&format!("it comes behind position {}", applied.position.0)));
        }
        let reader = EntryReader::open(entry.payload).map_err(|error| unreadable(store, &name(position), error))?;
        match applied.order(&reader.header) {
            Order::Next => {}
            Order::Duplicate => {
                applied.skip(position);
                return Ok(None);
            }
            Order::Gap { expected } => {
                let sequence = reader.header.sequence;
                return Err(wrong(&format!("it has sequence {sequence} of its writer in the place of {expected}")));
            }
        }
        if !applied.agrees(&reader.header, version) {
            let (after, base) = (reader.header.after.0, reader.header.base);
            let (own_after, chain) =
                (applied.position.0, if reader.header.chain == applied.chain { "" } else { "not " });
            return Err(wrong(&format!(
                "it was made at version {base} after position {after}, and the entries before it lead to version \
                 {version} after position {own_after}; their chains are {chain}equal"
            )));
        }
        Ok(Some(Self { position, reader, index: 0, rejections: Rejections::default() }))
    }

    /// Applies the next changes, as many as `changes_max` says; gives how many. When the last one is, `applied` says
    /// so.
    ///
    /// # Errors
    /// [`EngineError`] if what follows is damaged.
    pub(super) fn step(
        &mut self,
        store: &str,
        table: &mut Table,
        numbers: &mut Numbers,
        changes_max: usize,
    ) -> Result<usize, EngineError> {
        let mut count = 0;
        while count < changes_max {
            let next = self.reader.next().map_err(|error| unreadable(store, &name(self.position), error))?;
            let Some(change) = next else { break };
            let is_installed =
                numbers.apply(table, change).map_err(|what| damaged(store, &name(self.position), what))?;
            if !is_installed {
                self.rejections.push(self.index);
            }
            self.index += 1;
            count += 1;
        }
        Ok(count)
    }

    /// Whether all changes are applied.
    pub(super) fn is_done(&self) -> bool {
        self.reader.remaining() == 0
    }

    /// Ends an entry of which all changes are applied.
    ///
    /// # Errors
    /// [`EngineError`] if there is more in it than it should be.
    pub(super) fn finish(mut self, store: &str, table: &Table, applied: &mut Applied) -> Result<(), EngineError> {
        assert!(self.is_done(), "an entry with changes that are not applied");
        self.reader.next().map_err(|error| unreadable(store, &name(self.position), error))?;
        let installed = self.index - self.rejections.count;
        let base = self.reader.header.base;
        assert_eq!(table.version().0, base.0 + installed, "an entry took the table to a wrong version");
        let entry = EntryName {
            writer: self.reader.header.writer,
            sequence: self.reader.header.sequence,
            checksum: self.reader.checksum,
        };
        applied.advance(self.position, entry, self.rejections, table.version());
        Ok(())
    }
}

/// What an entry is called in messages.
pub(super) fn name(position: Position) -> String {
    format!("entry {}", position.0)
}
