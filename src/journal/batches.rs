//! Changes in flight: the waiting changes, the batch that the worker makes durable in the store, and the batch that is
//! being applied to the table. A change is settled when its outcome is known; it is then no longer in flight. A writer
//! is a process that appends batches to the store, as entries. Its name is a number.
//!
//! ```text
//!   queue_change ─► waiting ─► sent ─► applying ─► settled
//!                          seal   durable
//! ```
//!
//! Invariants: `keys` contains the hash of the Lease's key for every change in flight. Each change has a ticket, by
//! which its request learns the outcome. Tickets are settled in the order of their numbers.

use super::applied::{Applied, EntryName, Rejections};
use super::config::Limits;
use super::entry::{EntryWriter, Header};
use super::replay::Numbers;
use super::reservations::Reservations;
use super::ticket::{Failure, Outcome, Settle, Ticket, Tickets};
use crate::engine::Position;
use crate::resource::ResourceVersion;
use crate::table::change::Change;
use crate::table::holder::HolderChange;
use crate::table::{PREFETCH_MAX, Reserved, Table};
use crate::timestamp::MicroTime;
use foldhash::fast::FixedState;
use hashbrown::HashTable;
use std::collections::VecDeque;
use std::hash::{BuildHasher, Hasher};

/// A change in flight.
#[derive(Debug)]
struct Submitted {
    change: Change,
    holder_change: Option<Box<HolderChange>>,
    ticket: Settle,
    /// Hash of the Lease's namespace and name.
    key: u64,
    /// Bytes of the quota `--lease-quota-bytes` that are reserved for the change.
    reserved: usize,
}

impl Submitted {
    /// Returns an estimate of the bytes that the change and its holder change take until the change is applied.
    fn waiting_bytes(&self) -> usize {
        estimate(&self.change) + self.holder_change.as_ref().map_or(0, |change| change.memory_bytes())
    }
}

/// All changes in flight.
#[derive(Debug, Default)]
pub(super) struct Batches {
    writer: u64,
    /// The writer's name in its last batch that failed or was rejected. The failed batch may still become an entry of
    /// the store. So no later batch may have this name.
    failed_writer: Option<u64>,
    /// Sequence number of this writer's last durable batch.
    sequence: u64,
    waiting: VecDeque<Submitted>,
    /// Estimated size of the waiting changes, in bytes.
    waiting_bytes: usize,
    /// Number of waiting changes that are not renewals.
    waiting_others: usize,
    sent: Option<Sent>,
    applying: Option<Applying>,
    /// An empty queue of changes, reused to avoid allocations.
    spare: VecDeque<Submitted>,
    tickets: Tickets,
    /// For each change in flight, the hash of the Lease's key, and the change's ticket number.
    keys: HashTable<(u64, u64)>,
    hasher: FixedState,
    /// Number of the last ticket that was made.
    submitted: u64,
    /// Number of the last settled ticket.
    settled: u64,
    reservations: Reservations,
    /// Changes of holder that were applied, but that [`Batches::take_holder_changes`] has not returned yet.
    holder_changes: Vec<HolderChange>,
}

/// A batch that was sent to the worker, which makes it durable.
#[derive(Debug)]
struct Sent {
    entry: EntryName,
    header: Header,
    changes: VecDeque<Submitted>,
}

/// A durable batch whose changes are being applied to the table.
#[derive(Debug)]
struct Applying {
    entry: EntryName,
    position: Position,
    changes: VecDeque<Submitted>,
    /// Index in the batch of the next change to apply.
    index: u64,
    rejections: Rejections,
    /// Version of the table before the batch was applied.
    base: ResourceVersion,
}

/// A batch that is encoded as an entry and ready to send to the worker.
#[derive(Debug)]
pub(super) struct Sealed {
    pub(super) payload: Vec<u8>,
    pub(super) changes: usize,
}

/// Estimated bytes of a renewal or a deletion in an entry.
const SHORT_CHANGE_BYTES: usize = 24;

impl Batches {
    /// Creates an empty set of changes in flight, for a writer that has not written yet.
    pub(super) fn new(writer: u64) -> Self {
        Self { writer, hasher: FixedState::with_seed(writer), ..Self::default() }
    }

    pub(super) fn writer(&self) -> u64 {
        self.writer
    }

    /// Changes this writer's name if `applied` remembers a writer of the same name, or if a batch under this name has
    /// failed. The next batch has sequence 1. If `applied` remembers the name, an entry with this name and sequence 1
    /// was applied before. Without another name, every process would skip the next batch as a duplicate.
    pub(super) fn rename(&mut self, applied: &Applied) {
        assert!(self.sent.is_none(), "a writer changes its name while a batch is sent");
        self.sequence = 0;
        while applied.writers.contains(self.writer) || self.failed_writer == Some(self.writer) {
            self.writer = self.writer.wrapping_add(1);
        }
    }

    /// Whether the queue of waiting changes is full.
    pub(super) fn is_full(&self, limits: &Limits) -> bool {
        self.waiting.len() >= limits.waiting_changes_max || self.waiting_bytes >= limits.waiting_bytes_max
    }

    /// Returns the number of changes in flight.
    pub(super) fn len(&self) -> usize {
        usize::try_from(self.submitted - self.settled).unwrap_or(usize::MAX)
    }

    /// Whether a new batch can be made: changes wait, and the worker has no other batch.
    pub(super) fn can_seal(&self) -> bool {
        self.sent.is_none() && !self.waiting.is_empty()
    }

    /// Whether the first waiting change alone exceeds `batch_bytes_max`. The next batch then consists of this change.
    pub(super) fn begins_large(&self, limits: &Limits) -> bool {
        self.waiting.front().is_some_and(|first| estimate(&first.change) > limits.batch_bytes_max)
    }

    /// Whether all waiting changes are renewals.
    pub(super) fn only_renewals_wait(&self) -> bool {
        self.waiting_others == 0
    }

    /// Returns the number of changes that wait for a batch.
    pub(super) fn waiting_len(&self) -> usize {
        self.waiting.len()
    }

    pub(super) fn is_applying(&self) -> bool {
        self.applying.is_some()
    }

    /// Returns the number of the last settled ticket.
    pub(super) fn settled(&self) -> u64 {
        self.settled
    }

    /// Returns the bytes of the quota `--lease-quota-bytes` that are reserved for changes in flight, in all namespaces
    /// and in `namespace`.
    pub(super) fn reserved(&self, namespace: &str) -> Reserved {
        self.reservations.of(namespace)
    }

    /// Returns the ticket number of the change of this Lease that is in flight. After a hash collision (probability
    /// 2^-64), returns the ticket number of another Lease's change.
    #[inline]
    pub(super) fn in_flight(&self, namespace: &str, name: &str) -> Option<u64> {
        if self.keys.is_empty() {
            return None;
        }
        self.ticket_of(self.hash(namespace, name))
    }

    #[inline]
    fn ticket_of(&self, key: u64) -> Option<u64> {
        self.keys.find(key, |(other, _)| *other == key).map(|(_, ticket)| *ticket)
    }

    #[inline]
    fn hash(&self, namespace: &str, name: &str) -> u64 {
        let mut state = self.hasher.build_hasher();
        state.write(namespace.as_bytes());
        state.write_u8(b'/');
        state.write(name.as_bytes());
        state.finish()
    }

    /// Adds a change, unless another change of the same Lease is in flight. The table would reject the second change.
    ///
    /// # Errors
    /// The ticket number of the change that is in flight.
    #[inline]
    pub(super) fn queue_change(
        &mut self,
        table: &Table,
        change: Change,
        holder_change: Option<Box<HolderChange>>,
    ) -> Result<Ticket, u64> {
        let (namespace, name) = table.names_of(&change);
        let key = self.hash(namespace, name);
        if let Some(ticket) = self.ticket_of(key) {
            return Err(ticket);
        }
        self.submitted += 1;
        self.keys.insert_unique(key, (key, self.submitted), |(key, _)| *key);
        let reserved = table.metered_growth(&change);
        self.reservations.add(&change, reserved);
        self.waiting_others += usize::from(!is_renewal(&change));
        let (ticket, settle) = self.tickets.make(self.submitted);
        let submitted = Submitted { change, holder_change, ticket: settle, key, reserved };
        self.waiting_bytes += submitted.waiting_bytes();
        self.waiting.push_back(submitted);
        Ok(ticket)
    }

    /// Makes a batch of as many waiting changes as a batch may contain. Returns `None` if no batch can be made now.
    pub(super) fn seal(&mut self, applied: &Applied, version: ResourceVersion, limits: &Limits) -> Option<Sealed> {
        assert!(self.applying.is_none(), "a batch is made from a state between two entries");
        // The batch that was sent last may be durable already, but not delivered yet. Until it is delivered, no other
        // batch can be made.
        if !self.can_seal() {
            return None;
        }
        let header = Header {
            writer: self.writer,
            sequence: self.sequence + 1,
            after: applied.position,
            base: version,
            chain: applied.chain,
            time: self.first_renew_time(),
        };
        let mut entry = EntryWriter::new(header, limits.format);
        let candidates = self.waiting.iter().take(limits.batch_changes_max);
        let count = candidates.take_while(|one| entry.try_push(&one.change, limits.batch_bytes_max)).count();
        let mut changes = std::mem::take(&mut self.spare);
        if count == self.waiting.len() {
            std::mem::swap(&mut changes, &mut self.waiting);
            (self.waiting_bytes, self.waiting_others) = (0, 0);
        } else {
            changes.extend(self.waiting.drain(..count));
            self.waiting_bytes = self.waiting.iter().map(Submitted::waiting_bytes).sum();
            self.waiting_others = self.waiting.iter().filter(|one| !is_renewal(&one.change)).count();
        }
        let (payload, checksum) = entry.finish();
        let entry = EntryName { writer: self.writer, sequence: header.sequence, checksum };
        self.sent = Some(Sent { entry, header, changes });
        Some(Sealed { payload, changes: count })
    }

    /// Returns the `renewTime` of the first waiting renewal, or 0 without one. An entry stores times relative to this
    /// time, so that they are short.
    fn first_renew_time(&self) -> MicroTime {
        let times = self.waiting.iter().find_map(|one| match &one.change {
            Change::Renew(_, times) => Some(times.renew_time),
            _ => None,
        });
        times.unwrap_or(MicroTime(0))
    }

    /// Returns the header of the sent batch, if `name` is the name of its entry.
    pub(super) fn sent_header(&self, name: EntryName) -> Option<Header> {
        self.sent.as_ref().filter(|sent| sent.entry == name).map(|sent| sent.header)
    }

    /// Starts to apply the sent batch, which is now durable. The table is at version `base`.
    pub(super) fn begin_applying(&mut self, position: Position, base: ResourceVersion) {
        assert!(self.applying.is_none(), "one batch at a time is applied");
        let Some(Sent { entry, header, changes }) = self.sent.take() else { return };
        self.sequence = header.sequence;
        self.applying = Some(Applying { entry, position, changes, index: 0, rejections: Rejections::default(), base });
    }

    /// Applies up to `changes_max` changes of the durable batch. Returns the number of handled changes. Updates
    /// `numbers`, which maps the number of a Lease (the version of its creation) to the Lease's slot in the table.
    /// `numbers` is `None` in a store with one writer.
    pub(super) fn apply_batch(
        &mut self,
        table: &mut Table,
        applied: &mut Applied,
        mut numbers: Option<&mut Numbers>,
        changes_max: usize,
    ) -> usize {
        let Some(applying) = &mut self.applying else { return 0 };
        let mut count = 0;
        while count < changes_max {
            if count.is_multiple_of(PREFETCH_MAX) {
                let next = applying.changes.iter().take(PREFETCH_MAX);
                table.prefetch_targets(next.filter_map(|one| one.change.target()));
            }
            let Some(Submitted { change, holder_change, ticket, key, reserved }) = applying.changes.pop_front() else {
                break;
            };
            self.reservations.release(&change, reserved);
            let result = match &mut numbers {
                None => table.apply(change),
                Some(numbers) => numbers.apply(table, change),
            };
            let outcome = match result {
                Ok(object) => {
                    self.holder_changes.extend(holder_change.map(|change| *change));
                    Outcome::Applied(object)
                }
                Err(_) => {
                    applying.rejections.push(applying.index);
                    Outcome::Rejected
                }
            };
            applying.index += 1;
            count += 1;
            remove_key(&mut self.keys, key);
            self.settled += 1;
            ticket.settle(outcome);
        }
        if applying.changes.is_empty() {
            let done = self.applying.take().expect("a batch that is being applied");
            let installed = done.index - done.rejections.count;
            assert_eq!(table.version().0, done.base.0 + installed, "a batch took the table to a wrong version");
            applied.record(done.position, done.entry, done.rejections, table.version());
            self.spare = done.changes;
        }
        self.check_invariants();
        count
    }

    /// Returns the changes of holder that were applied since the last call.
    pub(super) fn take_holder_changes(&mut self) -> Vec<HolderChange> {
        std::mem::take(&mut self.holder_changes)
    }

    /// Fails the changes of the sent batch and all waiting changes. The store had no space for the sent batch, so the
    /// waiting changes would fail too.
    ///
    /// If the batch was sent more than once, an earlier attempt may still take effect. So the writer changes its name.
    /// Then no later batch has the writer and sequence of the failed batch.
    pub(super) fn fail(&mut self, failure: Failure, applied: &Applied) {
        let waiting = std::mem::take(&mut self.waiting);
        (self.waiting_bytes, self.waiting_others) = (0, 0);
        self.settle_sent(applied, waiting, || Outcome::Failed(failure));
    }

    /// Fails the changes of the sent batch, but not the waiting changes: the store refused only the sent batch.
    ///
    /// The writer changes its name, since an earlier attempt of the batch may still take effect ([`Batches::fail`]).
    pub(super) fn fail_sent(&mut self, failure: Failure, applied: &Applied) {
        self.settle_sent(applied, VecDeque::new(), || Outcome::Failed(failure));
    }

    /// Rejects all changes of the sent batch, since every process skips the entry of this batch.
    pub(super) fn reject(&mut self, applied: &Applied) {
        self.settle_sent(applied, VecDeque::new(), || Outcome::Rejected);
    }

    fn settle_sent(&mut self, applied: &Applied, others: VecDeque<Submitted>, outcome: impl Fn() -> Outcome) {
        let sent = self.sent.take();
        self.failed_writer = sent.as_ref().map(|sent| sent.entry.writer);
        for one in sent.into_iter().flat_map(|sent| sent.changes).chain(others) {
            remove_key(&mut self.keys, one.key);
            self.reservations.release(&one.change, one.reserved);
            self.settled += 1;
            one.ticket.settle(outcome());
        }
        self.rename(applied);
        self.check_invariants();
    }

    fn check_invariants(&self) {
        assert!(self.settled <= self.submitted, "more outcomes than changes");
        debug_assert_eq!(self.keys.len(), self.len(), "keys in flight");
        if self.len() == 0 {
            assert!(
                self.keys.is_empty() && self.reservations.is_empty(),
                "keys or reservations are left without a change in flight"
            );
        }
    }
}

#[inline]
fn remove_key(keys: &mut HashTable<(u64, u64)>, key: u64) {
    let found = keys.find_entry(key, |(other, _)| *other == key);
    found.expect("the key of a change in flight").remove();
}

fn is_renewal(change: &Change) -> bool {
    matches!(change, Change::Renew(..))
}

/// Estimates the bytes of a change in an entry.
fn estimate(change: &Change) -> usize {
    match change {
        Change::Create(lease) | Change::Replace(_, lease) => SHORT_CHANGE_BYTES + lease.text_bytes(),
        Change::Renew(..) | Change::Delete(_) => SHORT_CHANGE_BYTES,
    }
}
