//! Replays stored changes to a table. Another process made these changes, or an earlier process with the same store.

use super::applied::{Applied, EntryName, Order, Rejections};
use super::entry::{EntryReader, Header, Origin, StoredChange};
use super::error::{damaged, lost, unreadable};
use super::record::Record;
use crate::engine::{EngineError, Entry, Position};
use crate::resource::ResourceVersion;
use crate::shards::{SHARDS, Shards};
use crate::table::change::{Change, Rejected, Target};
use crate::table::object::Object;
use crate::table::{PREFETCH_MAX, Slot, Table};
use foldhash::fast::FixedState;
use hashbrown::HashMap;
use tracing::warn;

/// The slot (index in the table) of each Lease, by the Lease's number, which is the version of its creation. The slots
/// are kept up to date while changes are applied.
#[derive(Debug, Default)]
pub(super) struct Numbers(Shards<HashMap<ResourceVersion, Slot, FixedState>>);

/// Returns a hash of a number, which selects the number's shard.
fn hash_of(number: ResourceVersion) -> u64 {
    number.0.wrapping_mul(0x9e37_79b9_7f4a_7c15)
}

impl Numbers {
    pub(super) fn reserve(&mut self, count: usize) {
        self.0.iter_mut().for_each(|shard| shard.reserve(count / SHARDS));
    }

    /// Inserts a stored Lease into a table.
    ///
    /// # Errors
    /// [`Rejected`] if no Lease in this table can have these versions, or if another Lease has the same name or number.
    pub(super) fn restore(&mut self, table: &mut Table, record: Record) -> Result<(), Rejected> {
        let Record { number, version, lease } = record;
        let slot = table.restore(number, version, lease)?;
        if self.0.of_mut(hash_of(number)).insert(number, slot).is_some() {
            return Err(Rejected);
        }
        Ok(())
    }

    /// Applies a change as [`Table::apply`] does, and updates the slots.
    ///
    /// # Errors
    /// [`Rejected`]
    pub(super) fn apply(&mut self, table: &mut Table, change: Change) -> Result<Object, Rejected> {
        match change {
            Change::Create(lease) => {
                let (namespace, name) = (lease.metadata.namespace.clone(), lease.metadata.name.clone());
                let object = table.apply(Change::Create(lease))?;
                let (slot, _) = table.find(&namespace, &name).expect("a Lease that was just created");
                self.0.of_mut(hash_of(object.number())).insert(object.number(), slot);
                Ok(object)
            }
            Change::Delete(target) => {
                let object = table.apply(Change::Delete(target))?;
                self.0.of_mut(hash_of(target.number)).remove(&target.number);
                Ok(object)
            }
            change @ (Change::Replace(..) | Change::Renew(..)) => table.apply(change),
        }
    }

    /// Applies a stored change. Returns whether the change was applied; a rejected change leaves the table unchanged.
    ///
    /// # Errors
    /// The reason why no writer can have made the change.
    fn apply_stored(&mut self, table: &mut Table, change: StoredChange) -> Result<bool, &'static str> {
        match change {
            StoredChange::Create(lease) => Ok(self.apply(table, Change::Create(lease)).is_ok()),
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
                Ok(self.apply(table, Change::Delete(target)).is_ok())
            }
        }
    }

    /// Brings the Leases of the first [`PREFETCH_MAX`] changes into the processor's caches.
    fn prefetch(&self, table: &Table, changes: &[Option<StoredChange>]) {
        table.prefetch_targets(changes.iter().flatten().filter_map(|change| self.target(change.origin()?)));
    }

    fn target(&self, Origin { number, from }: Origin) -> Option<Target> {
        self.0.of(hash_of(number)).get(&number).map(|slot| Target { slot: *slot, number, from })
    }
}

/// An entry that is applied to the table in steps.
#[derive(Debug)]
pub(super) struct Replaying {
    position: Position,
    reader: EntryReader,
    index: u64,
    rejections: Rejections,
    /// Version of the table before the entry.
    base: ResourceVersion,
}

/// How an entry has reached this process, and whether its store has one writer or several. This decides how the process
/// reacts if the entry contradicts earlier entries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Expected {
    /// The store has one writer at a time. When a writer wrote an entry, it had applied every earlier entry. So a
    /// contradiction is damage.
    OneWriter,
    /// The store has several writers, and the entry was read at startup. Loading the store again would read the same
    /// entry. So an entry from a different table is applied, with a warning.
    Stored,
    /// The store has several writers, and the entry was delivered after the table was loaded. Loading the store again
    /// can correct the table. So a contradiction is [`EngineError::Lost`], which makes the process load the store
    /// again.
    Delivered,
}

impl Expected {
    /// Returns the variant for entries that are read at startup. `is_shared` says whether the store has several
    /// writers.
    pub(super) fn stored(is_shared: bool) -> Self {
        if is_shared { Self::Stored } else { Self::OneWriter }
    }
}

/// Returns whether the entry at `position` must be applied; if not, the caller skips it. This depends only on the
/// entry's header and the earlier entries, so every replica decides alike.
///
/// # Errors
/// [`EngineError`] if an earlier entry is missing, or if the writer's table differs from this table, which is at
/// `version`. For [`Expected::Stored`], a different table causes only a warning.
pub(super) fn judge(
    store: &str,
    position: Position,
    header: &Header,
    applied: &Applied,
    version: ResourceVersion,
    expected: Expected,
) -> Result<bool, EngineError> {
    let wrong = |what: &str| match expected {
        Expected::OneWriter | Expected::Stored => damaged(store, &name(position), what),
        Expected::Delivered => lost(store, &format!("{}: {what}", name(position))),
    };
    if position <= applied.position {
        return Err(wrong(&format!("position {} was applied before it", applied.position.0)));
    }
    match applied.order(header) {
        Order::Next => {}
        Order::Duplicate => return Ok(false),
        Order::Gap { expected } => {
            let sequence = header.sequence;
            return Err(wrong(&format!("it has sequence {sequence} of its writer instead of {expected}")));
        }
    }
    let is_last = header.after == applied.position;
    if applied.agrees(header) && (is_last || expected != Expected::OneWriter) {
        return Ok(true);
    }
    let chain = if header.chain == applied.chain { "" } else { "not " };
    let what = format!(
        "it was made at version {} after position {}, and the entries before it lead to version {version} after \
         position {}; their chains are {chain}equal",
        header.base, header.after.0, applied.position.0
    );
    match expected {
        Expected::OneWriter | Expected::Delivered => Err(wrong(&what)),
        // The store is authoritative, so the writer's table was wrong. The writer notices this when its own entry is
        // delivered to it.
        Expected::Stored => {
            warn!(position = position.0, "an entry was written from a different table: {what}");
            Ok(true)
        }
    }
}

impl Replaying {
    /// Begins to apply an entry. If the entry is skipped, records it in `applied` and returns `None`.
    ///
    /// # Errors
    /// [`EngineError`] if the entry is damaged, and the errors of [`judge`].
    pub(super) fn begin(
        store: &str,
        entry: Entry,
        applied: &mut Applied,
        base: ResourceVersion,
        expected: Expected,
    ) -> Result<Option<Self>, EngineError> {
        let position = entry.position;
        let reader = EntryReader::open(entry.payload).map_err(|error| unreadable(store, &name(position), error))?;
        if !judge(store, position, &reader.header, applied, base, expected)? {
            applied.skip(position, base);
            return Ok(None);
        }
        Ok(Some(Self { position, reader, index: 0, rejections: Rejections::default(), base }))
    }

    /// Applies up to `changes_max` of the entry's next changes. Returns the number of handled changes.
    ///
    /// # Errors
    /// [`EngineError`] if the next bytes are damaged.
    pub(super) fn step(
        &mut self,
        store: &str,
        table: &mut Table,
        numbers: &mut Numbers,
        changes_max: usize,
    ) -> Result<usize, EngineError> {
        let mut count = 0;
        let mut group = [const { None }; PREFETCH_MAX];
        while count < changes_max {
            let group = &mut group[..PREFETCH_MAX.min(changes_max - count)];
            for next in &mut *group {
                *next = self.reader.next().map_err(|error| unreadable(store, &name(self.position), error))?;
            }
            if group.iter().all(Option::is_none) {
                break;
            }
            numbers.prefetch(table, group);
            for change in group.iter_mut().filter_map(Option::take) {
                let is_installed =
                    numbers.apply_stored(table, change).map_err(|what| damaged(store, &name(self.position), what))?;
                if !is_installed {
                    self.rejections.push(self.index);
                }
                self.index += 1;
                count += 1;
            }
        }
        Ok(count)
    }

    /// Whether all changes of the entry were applied or rejected.
    pub(super) fn is_done(&self) -> bool {
        self.reader.remaining() == 0
    }

    /// Ends an entry after its last change, and records the entry in `applied`.
    ///
    /// # Errors
    /// [`EngineError`] if bytes follow the last change.
    pub(super) fn finish(mut self, store: &str, table: &Table, applied: &mut Applied) -> Result<(), EngineError> {
        assert!(self.is_done(), "an entry with changes that are not applied");
        self.reader.next().map_err(|error| unreadable(store, &name(self.position), error))?;
        let installed = self.index - self.rejections.count;
        assert_eq!(table.version().0, self.base.0 + installed, "an entry took the table to a wrong version");
        let entry = EntryName {
            writer: self.reader.header.writer,
            sequence: self.reader.header.sequence,
            checksum: self.reader.checksum,
        };
        applied.record(self.position, entry, self.rejections, table.version());
        Ok(())
    }
}

/// Returns the name of an entry in messages.
pub(super) fn name(position: Position) -> String {
    format!("entry {}", position.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_spread_over_the_shards() {
        for step in [1, 2, 3, 256, 1_000] {
            let mut counts = Shards::<usize>::default();
            for at in 0..100 * SHARDS as u64 {
                *counts.of_mut(hash_of(ResourceVersion(1_795_977_510_070_377 + at * step))) += 1;
            }
            assert!(counts.iter().all(|count| (50..200).contains(count)), "step {step}: {counts:?}");
        }
    }
}
