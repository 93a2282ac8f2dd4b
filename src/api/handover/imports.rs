//! Imports Leases from built-in storage into the table, after a worker or a copier has read them.

use super::merge::{decode, gone, taken_in};
use super::state::say;
use crate::api::identity::is_own;
use crate::api::storage::{Storage, Written};
use crate::clock::Now;
use crate::codec::json::Decoder;
use crate::handover::{StoredLease, is_lease};
use crate::journal::{Outcome, Ticket};
use crate::table::Table;
use crate::table::change::Change;
use crate::table::object::Object;
use crate::table::snapshot::Range;
use std::collections::{BTreeMap, HashSet};

/// Maximum number of Leases imported in one turn of the event loop.
const TAKEN_IN_PER_TURN: usize = 256;
/// Maximum number of imported changes in flight in the journal.
const SUBMITTED_MAX: usize = 1_024;

/// Time between two reports of the progress of an import, in ms.
const REPORT_MS: u64 = 250;

/// Leases that were read from built-in storage and are not in the table yet.
#[derive(Debug, Default)]
pub(super) struct Imports {
    /// Leases that wait for their import, by key. Each has the state that was read last.
    incoming: BTreeMap<String, Incoming>,
    /// Leases whose imported changes are in flight in the journal: key, imported state, and ticket of the change.
    submitted: Vec<(String, Incoming, Ticket)>,
    /// Leases whose stored values cannot be decoded, by key.
    unreadable: BTreeMap<String, Incoming>,
    /// Number of Leases queued since the queue was last empty.
    queued: usize,
    /// Time of the next report of the progress, in ms; `None` if the queue was empty at the last call of
    /// [`Imports::report`].
    report_ms: Option<u64>,
}

/// The state of a Lease in the last read of built-in storage.
#[derive(Clone, Debug)]
enum Incoming {
    /// The Lease exists.
    Present(StoredLease),
    /// The Lease does not exist, so its import deletes the Lease of the table.
    Gone,
}

impl Imports {
    /// Queues the result of a read for import. If a complete read lacks a Lease of the table, the deletion of that
    /// Lease is queued too.
    pub(super) fn put(&mut self, table: &Table, changed: Vec<StoredLease>, deleted: Vec<String>, is_complete: bool) {
        let left_before = self.left();
        let Self { incoming, unreadable, .. } = self;
        if is_complete {
            let present: HashSet<_> = changed.iter().map(|lease| lease.key.as_str()).collect();
            unreadable.retain(|key, _| present.contains(key.as_str()));
            for object in leases(table).filter(|object| !present.contains(object.key().as_str())) {
                incoming.insert(object.key().as_str().to_owned(), Incoming::Gone);
            }
        }
        let deleted = deleted.into_iter().map(|key| (key, Incoming::Gone));
        let changed = changed.into_iter().map(|lease| (lease.key.clone(), Incoming::Present(lease)));
        for (key, read) in deleted.chain(changed).filter(|(key, _)| !is_own_key(table, key)) {
            unreadable.remove(&key);
            incoming.insert(key, read);
        }
        let queued_before = if left_before == 0 { 0 } else { self.queued };
        self.queued = queued_before + self.left() - left_before;
    }

    /// Returns the number of Leases that are not in the table yet.
    fn left(&self) -> usize {
        self.incoming.len() + self.submitted.len()
    }

    /// Reports the progress of a long import to the command, through the Lease of the hand-over.
    pub(super) fn report(&mut self, table: &mut Table, storage: &mut Storage, now: Now) {
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

    /// Whether the table has every queued Lease. Leases that cannot be decoded do not count.
    pub(super) fn is_empty(&self) -> bool {
        self.incoming.is_empty() && self.submitted.is_empty()
    }

    /// Imports some queued Leases into the table. The journal rejects a change if another write of the Lease came
    /// first. This function then queues the Lease again, unless a later read has queued it.
    pub(super) fn take_in(&mut self, table: &mut Table, storage: &mut Storage, decoder: &mut Decoder, now: Now) {
        let mut retried = Vec::new();
        self.submitted = std::mem::take(&mut self.submitted)
            .into_iter()
            .filter_map(|(key, read, ticket)| {
                if !ticket.is_settled() {
                    return Some((key, read, ticket));
                }
                if !matches!(ticket.take(), Outcome::Applied(_)) {
                    retried.push((key, read));
                }
                None
            })
            .collect();
        for _ in 0..TAKEN_IN_PER_TURN {
            if self.submitted.len() >= SUBMITTED_MAX {
                break;
            }
            let Some((key, read)) = self.incoming.pop_first() else { break };
            let change = match change_of(&key, &read, table, decoder) {
                Ok(Some(change)) => change,
                Ok(None) => continue,
                Err(why) => {
                    tracing::error!(why, "a built-in Lease cannot be read");
                    say(table, storage, None, &why, now);
                    self.unreadable.insert(key, read);
                    continue;
                }
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

    /// Whether Leases wait for their import, so that the next turn has work.
    pub(super) fn is_runnable(&self) -> bool {
        !self.incoming.is_empty()
    }

    /// Whether the value of some Lease cannot be decoded.
    pub(super) fn has_unreadable(&self) -> bool {
        !self.unreadable.is_empty()
    }

    /// Queues the Leases again whose values could not be decoded.
    pub(super) fn retry_unreadable(&mut self) {
        self.incoming.append(&mut self.unreadable);
    }

    /// Discards all queued Leases, apart from those that cannot be decoded. Changes in flight may still be applied.
    pub(super) fn clear(&mut self) {
        self.incoming.clear();
        self.submitted.clear();
    }
}

/// Returns the change that imports a Lease; `None` if the table already has the same content.
///
/// # Errors
/// The reason why the stored value is not a Lease.
fn change_of(key: &str, read: &Incoming, table: &Table, decoder: &mut Decoder) -> Result<Option<Change>, String> {
    match read {
        Incoming::Present(stored) => {
            let lease = decode(stored, decoder)?;
            // Built-in storage never changes this server's own Leases: identity Leases and the Leases of the hand-over.
            Ok(if is_own(&lease.metadata) { None } else { taken_in(table, lease) })
        }
        Incoming::Gone => Ok(gone(table, key)),
    }
}

/// Whether the Lease with this key belongs to this server: an identity Lease or a Lease of the hand-over.
fn is_own_key(table: &Table, key: &str) -> bool {
    let (namespace, name) = key.split_once('/').unwrap_or_default();
    let found = table.find(namespace, name);
    is_lease(namespace, name) || found.is_some_and(|(_, object)| is_own(object.metadata()))
}

/// Returns the Leases of clients: all Leases but identity Leases and the Leases of the hand-over.
pub(super) fn leases(table: &Table) -> impl Iterator<Item = &Object> {
    table.iter(&Range::All).filter(|object| !is_own(object.metadata()))
}
