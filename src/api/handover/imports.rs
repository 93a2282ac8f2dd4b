//! Imports Leases from built-in storage (kube-apiserver's own storage of Leases) into the table. [`super::worker`]
//! reads these Leases from etcd; without access to etcd, [`super::copier`] reads them through kube-apiserver.

use super::merge::{decode, gone, taken_in};
use super::state::{say, say_refused};
use crate::api::identity::is_own;
use crate::api::storage::{Storage, Written};
use crate::clock::Now;
use crate::codec::json::Decoder;
use crate::handover::{ReadLeases, StoredLease, is_lease};
use crate::journal::{Failure, Outcome, Ticket};
use crate::table::Table;
use crate::table::change::Change;
use std::collections::BTreeMap;

/// Maximum number of Leases imported in one turn of the event loop.
const TAKEN_IN_PER_TURN: usize = 256;
/// Maximum number of imported changes in flight in the journal, unless the store accepts only smaller batches.
const SUBMITTED_MAX: usize = 1_024;

/// Time between two reports of the progress of an import, in ms.
const REPORT_MS: u64 = 250;

/// Leases that were read from built-in storage and are not in the table yet.
#[derive(Debug, Default)]
pub(super) struct Imports {
    /// Leases that wait for their import. Each has the state that was read last.
    incoming: ReadLeases,
    /// Key from which [`Imports::take_in`] continues to compare the table with the last complete read (a read of all
    /// built-in Leases); `None` if no comparison is in progress. A Lease that the read lacks is deleted from the table.
    unmatched: Option<String>,
    /// Leases whose imported changes are in flight in the journal: key, imported state, and ticket of the change.
    submitted: Vec<(String, Option<StoredLease>, Ticket)>,
    /// Maximum length of `submitted` after the store has refused a batch of several Leases as too large; `None` before.
    /// It is `None` again once a Lease has failed alone, and when a new phase begins.
    submitted_max: Option<usize>,
    /// Leases that cannot be imported: their values cannot be decoded, or are too large for this server's store. Each
    /// has the state that was read last, and the reason.
    refused: BTreeMap<String, (Option<StoredLease>, String)>,
    /// Whether the table keeps an older state of a Lease that cannot be imported. Otherwise the Lease is deleted from
    /// the table.
    keeps_older: bool,
    /// Number of Leases that reads have queued, for the report of the progress. A complete read restarts the count, and
    /// so does any read when nothing is left to import.
    queued: usize,
    /// Time of the next report of the progress, in ms; `None` if the queue was empty at the last call of
    /// [`Imports::report`].
    report_ms: Option<u64>,
}

impl Imports {
    /// Creates the imports of the copier. If a Lease cannot be imported, the table keeps the Lease's older state. This
    /// state has the present holder, since an admission policy permits only renewals in built-in storage. If the table
    /// deleted the Lease, another client could acquire the lock.
    pub(super) fn of_copier() -> Self {
        Self { keeps_older: true, ..Self::default() }
    }

    /// Queues the result of a read for import. A complete read replaces all earlier reads. [`Imports::take_in`] deletes
    /// each Lease of the table that the complete read lacks. A read may have a million Leases. So this function
    /// iterates over the read only if it must: other Leases are queued or in flight, and the read is not complete.
    pub(super) fn put(&mut self, mut read: ReadLeases, is_complete: bool) {
        if is_complete {
            self.unmatched = Some(String::new());
            self.refused.clear();
            // A Lease whose creation is in flight is not in the table yet, so a comparison with the table would miss
            // it. If the read lacks the Lease too, the Lease must be deleted after its creation.
            for (key, ..) in &self.submitted {
                read.entry(key.clone()).or_insert(None);
            }
        }
        if is_complete || self.is_empty() {
            (self.queued, self.incoming) = (read.len(), read);
        } else {
            let before = self.incoming.len();
            self.incoming.extend(read);
            self.queued += self.incoming.len() - before;
        }
    }

    /// Returns the number of Leases that are not in the table yet.
    fn left(&self) -> usize {
        self.incoming.len() + self.submitted.len()
    }

    /// Reports to the command `takeover` why a Lease cannot be imported: writes the reason to the Lease of the
    /// hand-over, and removes the step `imported` there. If every Lease can be imported, and `shows_progress` is true,
    /// reports the progress of a long import.
    pub(super) fn report(&mut self, shows_progress: bool, table: &mut Table, storage: &mut Storage, now: Now) {
        if let Some(why) = self.refusal() {
            say_refused(table, storage, why, now);
            return;
        }
        if !shows_progress {
            return;
        }
        let left = self.left();
        self.report_ms = match self.report_ms {
            _ if left == 0 => None,
            Some(report_ms) if report_ms > now.ms => return,
            Some(_) => {
                let message = format!("{} of {} Leases are here", self.queued.saturating_sub(left), self.queued);
                say(table, storage, None, &message, now);
                Some(now.ms + REPORT_MS)
            }
            None => Some(now.ms + REPORT_MS),
        };
    }

    /// Whether the table has every queued Lease. Leases that cannot be imported do not count.
    pub(super) fn is_empty(&self) -> bool {
        !self.is_runnable() && self.submitted.is_empty()
    }

    /// Imports some queued Leases into the table. Handles failures as follows:
    ///
    /// - The journal rejects a change, since another write of the Lease came first, or the store has no space. This
    ///   function queues the Lease again, unless a later read has queued it.
    /// - A Lease cannot be imported. This function sets it aside, and deletes it from the table unless `keeps_older`.
    /// - The store refuses a batch of several Leases as too large. This function queues them again, and then submits
    ///   fewer Leases at a time, until a Lease fails alone. Only such a Lease counts as too large.
    pub(super) fn take_in(&mut self, table: &mut Table, storage: &mut Storage, decoder: &mut Decoder, now: Now) {
        let mut too_large = Vec::new();
        for (key, read, ticket) in std::mem::take(&mut self.submitted) {
            if !ticket.is_settled() {
                self.submitted.push((key, read, ticket));
                continue;
            }
            match ticket.take() {
                Outcome::Applied(_) => {}
                Outcome::Failed(Failure::TooLarge) => too_large.push((key, read)),
                // This earlier state is queued only if the queue has no later state of the Lease. The loop below takes
                // states from the queue, so this code must come first. Otherwise the earlier state could be imported
                // after the later one.
                Outcome::Rejected | Outcome::Failed(Failure::NoSpace) | Outcome::Pending => {
                    self.incoming.entry(key).or_insert(read);
                }
            }
        }
        let is_alone = too_large.len() == 1;
        match too_large.len() {
            0 => {}
            // The Lease that is too large is found. The store may accept the other Leases in large batches again.
            1 => self.submitted_max = None,
            several => self.submitted_max = Some(self.submitted_max.unwrap_or(SUBMITTED_MAX).min(several / 2)),
        }
        let submitted_max = self.submitted_max.unwrap_or(SUBMITTED_MAX);
        for (key, read) in too_large {
            // A deletion is never too large itself: its batch in the journal also had a long Lease that a client wrote.
            if is_alone && read.is_some() {
                let why = format!("{key} is too large for the store of this server");
                self.refuse(key.clone(), read.clone(), why);
            }
            self.incoming.entry(key).or_insert(read);
        }
        let mut retried = Vec::new();
        for _ in 0..TAKEN_IN_PER_TURN {
            if self.submitted.len() >= submitted_max {
                break;
            }
            let Some((key, read)) = self.next(table) else { break };
            // Another client may now hold a Lease that cannot be imported. But clients here could still renew the
            // Lease's older state. So this state is deleted from the table, unless `keeps_older`.
            let is_refused = self.refused.get(&key).is_some_and(|(refused, _)| *refused == read);
            let change = match change_of(&key, read.as_ref().filter(|_| !is_refused), table, decoder) {
                Ok(_) if is_refused && self.keeps_older => None,
                Ok(change) if is_refused => change,
                Ok(change) => {
                    self.refused.remove(&key);
                    change
                }
                Err(why) => {
                    self.refuse(key.clone(), read.clone(), why);
                    if self.keeps_older { None } else { gone(table, &key) }
                }
            };
            let change = match change {
                Some(change) => change,
                // A change of this Lease is in flight in the journal, and the table does not have it yet. So the Lease
                // is compared again after this change.
                None if is_in_flight(storage, &key) => {
                    retried.push((key, read));
                    continue;
                }
                None => continue,
            };
            match storage.write(table, change, now.ms) {
                Ok(Written::Applied(_)) => {}
                Ok(Written::Submitted(ticket)) => self.submitted.push((key, read, ticket)),
                Ok(Written::Busy(_)) => retried.push((key, read)),
                Err(_) => {
                    retried.push((key, read));
                    break;
                }
            }
        }
        for (key, read) in retried {
            self.incoming.entry(key).or_insert(read);
        }
    }

    /// Sets aside a Lease that cannot be imported. [`Imports::report`] reports the reason `why`.
    fn refuse(&mut self, key: String, read: Option<StoredLease>, why: String) {
        tracing::error!(why, "a built-in Lease cannot be imported");
        self.refused.insert(key, (read, why));
    }

    /// Removes and returns the next Lease to import, in the order of the keys: a queued Lease, or a Lease of the table
    /// that the last complete read lacks.
    fn next(&mut self, table: &Table) -> Option<(String, Option<StoredLease>)> {
        let queued = self.incoming.first_key_value().map(|(key, _)| key.as_str());
        let unmatched = self.unmatched.as_deref().and_then(|start| table.iter_from(start).next());
        let unmatched = unmatched.map(|object| object.key().as_str());
        let next = match unmatched.filter(|key| queued.is_none_or(|queued| *key < queued)) {
            Some(key) => Some((key.to_owned(), None)),
            None => self.incoming.pop_first(),
        };
        // A Lease that was queued again may have a key before `start`. The start must not move back, since the Leases
        // before it have already been compared.
        self.unmatched = match (self.unmatched.take(), &next) {
            (Some(start), Some((key, _))) => Some(start.max(format!("{key}\0"))),
            (None, _) | (_, None) => None,
        };
        next
    }

    /// Whether Leases wait for their import, so that the next turn has work.
    pub(super) fn is_runnable(&self) -> bool {
        !self.incoming.is_empty() || self.unmatched.is_some()
    }

    /// Returns the reason why some Lease cannot be imported; `None` if there is no such Lease.
    pub(super) fn refusal(&self) -> Option<&str> {
        self.refused.values().next().map(|(_, why)| why.as_str())
    }

    /// Returns the number of Leases that cannot be imported.
    pub(super) fn refused_leases(&self) -> usize {
        self.refused.len()
    }

    /// Queues again the Leases that could not be imported, unless a later read has queued them. Also allows large
    /// batches again: the Lease that made them too large may have been deleted before it was found.
    pub(super) fn retry_refused(&mut self) {
        self.submitted_max = None;
        for (key, (read, _)) in std::mem::take(&mut self.refused) {
            self.incoming.entry(key).or_insert(read);
        }
    }

    /// Discards all queued Leases, and those that cannot be imported. Changes in flight may still be applied.
    pub(super) fn clear(&mut self) {
        self.incoming.clear();
        self.refused.clear();
        self.unmatched = None;
        self.submitted.clear();
    }
}

/// Returns the change that imports a Lease; `None` if the table already has the same content. An import never changes
/// this server's own Leases: the identity Leases of replicas, and the Leases that store the state of the hand-over.
///
/// # Errors
/// The reason why the stored value is not a Lease.
fn change_of(
    key: &str,
    read: Option<&StoredLease>,
    table: &Table,
    decoder: &mut Decoder,
) -> Result<Option<Change>, String> {
    if is_own_key(table, key) {
        return Ok(None);
    }
    let Some(stored) = read else { return Ok(gone(table, key)) };
    let lease = decode(key, stored, decoder)?;
    Ok(if is_own(&lease.metadata) { None } else { taken_in(table, lease) })
}

/// Whether a change of the Lease with this key is in flight in the journal.
fn is_in_flight(storage: &Storage, key: &str) -> bool {
    let (namespace, name) = key.split_once('/').unwrap_or_default();
    storage.in_flight(namespace, name).is_some()
}

/// Whether the Lease with this key belongs to this server: the identity Lease of a replica, or a Lease that stores the
/// state of the hand-over.
fn is_own_key(table: &Table, key: &str) -> bool {
    let (namespace, name) = key.split_once('/').unwrap_or_default();
    let found = table.find(namespace, name);
    is_lease(namespace, name) || found.is_some_and(|(_, object)| is_own(object.metadata()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::codec::protobuf::encode_lease_into;
    use crate::handover::{MESSAGE, NAME, NAMESPACE};
    use crate::journal::Limits;
    use crate::journal::testing::SharedStore;
    use crate::lease::Lease;
    use crate::resource::{API_VERSION, ResourceVersion};
    use crate::timestamp::Time;
    use std::collections::BTreeSet;

    /// Makes a Lease in the form in which the worker reads it from built-in storage. Returns the Lease with its key.
    fn read(namespace: &str, name: &str) -> (String, Option<StoredLease>) {
        as_read(&Lease::named(namespace, name))
    }

    fn as_read(lease: &Lease) -> (String, Option<StoredLease>) {
        let mut value = Vec::new();
        encode_lease_into(&mut value, lease, None, API_VERSION);
        let meta = &lease.metadata;
        (format!("{}/{}", meta.namespace, meta.name), Some(StoredLease { revision: 42, value }))
    }

    /// Runs one turn. Returns the number of changes of the table.
    fn take_in(imports: &mut Imports, table: &mut Table) -> u64 {
        let before = table.version().0;
        let now = Now { ms: 0, wall: Time(0) };
        imports.take_in(table, &mut Storage::Memory, &mut Decoder::new(), now);
        table.version().0 - before
    }

    /// Goal: after a complete read and the changes that follow, the table has the Leases of built-in storage and the
    /// server's own. Method: random Leases in the table, in the read, and in the changes between the turns.
    #[test]
    fn a_complete_read_replaces_the_leases_of_the_table_in_steps() {
        const NAMES: usize = 4 * TAKEN_IN_PER_TURN;
        for seed in 0..20 {
            let mut random = fastrand::Rng::with_seed(seed);
            let mut table = Table::new(ResourceVersion(1 << 50), 100, usize::MAX);
            table.create(Lease::named(NAMESPACE, NAME));
            let mut expected = BTreeSet::from([format!("{NAMESPACE}/{NAME}")]);
            let mut all = ReadLeases::new();
            for number in 0..NAMES {
                let name = format!("l{number:04}");
                if random.bool() {
                    table.create(Lease::named("n", &name));
                }
                if random.bool() {
                    expected.insert(format!("n/{name}"));
                    all.extend([read("n", &name)]);
                }
            }
            let mut imports = Imports::default();
            imports.put(all, true);
            let mut turns = 0;
            while !imports.is_empty() {
                let changes = take_in(&mut imports, &mut table);
                assert!(changes <= TAKEN_IN_PER_TURN as u64, "seed {seed}: {changes} changes in one turn");
                turns += 1;
                assert!(turns < 20, "seed {seed}: an import without an end");
                if turns < 4 {
                    let (key, mut present) = read("n", &format!("l{:04}", random.usize(..NAMES)));
                    if random.bool() {
                        expected.insert(key.clone());
                    } else {
                        expected.remove(&key);
                        present = None;
                    }
                    imports.put(ReadLeases::from([(key, present)]), false);
                }
            }
            let keys: BTreeSet<_> = table.iter_from("").map(|object| object.key().as_str().to_owned()).collect();
            assert_eq!(keys, expected, "seed {seed}");
        }
    }

    /// A Lease is deleted in built-in storage while its creation is in flight in this server's journal. Goal: the Lease
    /// is later deleted from the table too. Method: an incremental read shows the deletion, or a complete read lacks
    /// the Lease.
    #[test]
    fn a_deletion_is_carried_out_after_the_creation_in_flight() {
        for is_complete in [false, true] {
            let (journal, mut table) = SharedStore::default().load(1, Limits::default());
            let mut storage = Storage::Journal(Box::new(journal));
            let (mut imports, now) = (Imports::default(), Now { ms: 0, wall: Time(0) });
            let (key, created) = read("n", "a");
            imports.put(ReadLeases::from([(key.clone(), created)]), false);
            imports.take_in(&mut table, &mut storage, &mut Decoder::new(), now);
            assert!(is_in_flight(&storage, &key) && table.find("n", "a").is_none());
            let gone = if is_complete { ReadLeases::new() } else { ReadLeases::from([(key, None)]) };
            imports.put(gone, is_complete);
            let mut has_existed = false;
            for _ in 0..30 {
                imports.take_in(&mut table, &mut storage, &mut Decoder::new(), now);
                let journal = storage.journal_mut().expect("a journal");
                journal.advance(&mut table, now.ms, 100).expect("a store");
                journal.end_turn(&table, now.ms);
                has_existed |= table.find("n", "a").is_some();
            }
            assert!(imports.is_empty() && has_existed);
            assert!(table.find("n", "a").is_none(), "is_complete: {is_complete}");
        }
    }

    /// Goal: a Lease that is too large for the store is reported and not submitted again. The others are imported, even
    /// if the journal makes larger batches than the store accepts.
    #[test]
    fn a_lease_that_is_too_large_for_the_store_is_reported() {
        for batch_bytes_max in [1_000, 100_000] {
            let store = SharedStore::default();
            store.refuse_batches_above(2_000);
            let (journal, mut table) = store.load(1, Limits { batch_bytes_max, ..Limits::default() });
            let mut storage = Storage::Journal(Box::new(journal));
            let of_handover = Change::Create(Box::new(Lease::named(NAMESPACE, NAME)));
            storage.write(&mut table, of_handover, 0).expect("a change in flight");
            let older = Change::Create(Box::new(Lease::named("n", "b")));
            storage.write(&mut table, older, 0).expect("a change in flight");
            let mut large = Lease::named("n", "b");
            large.spec.holder_identity = Some("h".repeat(5_000).into());
            let small: Vec<_> = (0..80).map(|number| format!("c{number}")).chain(["a".to_owned()]).collect();
            let leases = small.iter().map(|name| read("n", name)).chain([as_read(&large)]);
            let mut leases: Option<ReadLeases> = Some(leases.collect());
            let mut imports = Imports::default();
            for turn in 0..400 {
                // Time passes, since the journal holds some batches back.
                let now = Now { ms: 3 * turn, wall: Time(0) };
                imports.take_in(&mut table, &mut storage, &mut Decoder::new(), now);
                imports.report(true, &mut table, &mut storage, now);
                let journal = storage.journal_mut().expect("a journal");
                journal.advance(&mut table, now.ms, 100).expect("a store");
                journal.end_turn(&table, now.ms);
                // The import begins once the table has the Lease of the hand-over. So no batch contains both the
                // creation of that Lease and imported Leases.
                if table.find(NAMESPACE, NAME).is_some()
                    && let Some(leases) = leases.take()
                {
                    imports.put(leases, false);
                }
            }
            assert!(imports.is_empty(), "{imports:?}");
            assert!(small.iter().all(|name| table.find("n", name).is_some()), "{batch_bytes_max}: {imports:?}");
            assert!(table.find("n", "b").is_none(), "its older state is deleted");
            let (_, of_handover) = table.find(NAMESPACE, NAME).expect("the Lease of the hand-over");
            let message = of_handover.metadata().annotations.value(MESSAGE);
            assert_eq!(message, Some("n/b is too large for the store of this server"));
            let is_large = imports.submitted_max.is_none_or(|submitted_max| submitted_max > 1);
            assert!(is_large, "after the large Lease, the others are imported in larger batches: {imports:?}");
            imports.retry_refused();
            assert_eq!(imports.submitted_max, None, "the next phase begins with large batches");
        }
    }

    #[test]
    fn a_read_changes_no_lease_of_this_server() {
        let mut table = Table::new(ResourceVersion(1 << 50), 100, usize::MAX);
        table.create(Lease::named(NAMESPACE, NAME));
        let mut imports = Imports::default();
        for read in [ReadLeases::new(), ReadLeases::from([read(NAMESPACE, NAME)])] {
            for is_complete in [true, false] {
                imports.put(read.clone(), is_complete);
                assert_eq!(take_in(&mut imports, &mut table), 0);
                assert!(imports.is_empty());
            }
        }
    }

    #[test]
    fn the_copier_keeps_the_older_state_of_a_lease_that_cannot_be_decoded() {
        let mut table = Table::new(ResourceVersion(1 << 50), 100, usize::MAX);
        table.create(Lease::named("n", "a"));
        let mut imports = Imports::of_copier();
        let unreadable = Some(StoredLease { revision: 41, value: b"{".to_vec() });
        imports.put(ReadLeases::from([("n/a".to_owned(), unreadable)]), true);
        assert_eq!(take_in(&mut imports, &mut table), 0);
        assert!(imports.is_empty() && imports.refusal().is_some());
        assert!(table.find("n", "a").is_some(), "the holder of the lock stays");
    }

    #[test]
    fn a_later_read_replaces_a_lease_that_cannot_be_decoded() {
        let mut table = Table::new(ResourceVersion(1 << 50), 100, usize::MAX);
        let (key, readable) = read("n", "a");
        let unreadable = || Some(StoredLease { revision: 41, value: b"k8s:enc:x".to_vec() });
        let mut imports = Imports::default();
        for (later, is_complete) in [(readable, false), (None, false), (None, true)] {
            imports.put(ReadLeases::from([(key.clone(), unreadable())]), false);
            take_in(&mut imports, &mut table);
            assert!(imports.is_empty() && imports.refusal().is_some());
            assert!(table.find("n", "a").is_none(), "its older state is deleted");
            let is_present = later.is_some();
            imports.put(ReadLeases::from([(key.clone(), later)]), is_complete);
            // A new phase begins.
            imports.retry_refused();
            take_in(&mut imports, &mut table);
            assert!(imports.is_empty() && imports.refusal().is_none());
            assert_eq!(table.find("n", "a").is_some(), is_present);
        }
    }
}
