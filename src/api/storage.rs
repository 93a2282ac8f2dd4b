//! The storage that changes are written to: only the table, or first the journal and then the table.

use crate::api_error::ApiError;
use crate::journal::{Failure, Journal, Refusal, Ticket};
use crate::table::change::{Change, Rejected};
use crate::table::holder::HolderChange;
use crate::table::object::Object;
use crate::table::{Reserved, Table};

/// The storage of the Leases: memory or a journal.
#[derive(Debug, Default)]
pub enum Storage {
    /// The table alone, in memory. A restart loses all Leases.
    #[default]
    Memory,
    /// A journal. The journal makes each change durable before clients can see the change.
    Journal(Box<Journal>),
}

/// The outcome of the submission of a change.
#[derive(Debug)]
pub(super) enum Written {
    /// The change is applied. The object is the Lease after the change.
    Applied(Object),
    /// The journal has accepted the change, and will make it durable. The ticket identifies the change.
    Submitted(Ticket),
    /// The journal has refused the change: another change of the same Lease is in flight, with this ticket number.
    Busy(u64),
}

impl Storage {
    /// Returns the journal; `None` if the Leases are only in memory.
    #[must_use]
    pub fn journal(&self) -> Option<&Journal> {
        match self {
            Self::Memory => None,
            Self::Journal(journal) => Some(journal),
        }
    }

    /// Returns the journal; `None` if the Leases are only in memory.
    pub fn journal_mut(&mut self) -> Option<&mut Journal> {
        match self {
            Self::Memory => None,
            Self::Journal(journal) => Some(journal),
        }
    }

    /// Whether the journal is still loading the Leases into the table.
    #[inline]
    pub(super) fn is_loading(&self) -> bool {
        self.journal().is_some_and(Journal::is_loading)
    }

    /// Returns the ticket number of the change of this Lease that is in flight in the journal; `None` if none is in
    /// flight.
    #[inline]
    pub(super) fn in_flight(&self, namespace: &str, name: &str) -> Option<u64> {
        self.journal()?.in_flight(namespace, name)
    }

    /// Returns the highest ticket number up to which every change is settled: applied, rejected or failed.
    #[must_use]
    pub fn settled(&self) -> u64 {
        self.journal().map_or(0, Journal::settled)
    }

    /// Whether other processes also write to the store. The table may then be behind the store.
    #[inline]
    pub fn is_shared(&self) -> bool {
        self.journal().is_some_and(Journal::is_shared)
    }

    /// Whether the store is reachable, as far as this process knows.
    pub(super) fn is_reachable(&self) -> bool {
        self.journal().is_none_or(Journal::is_reachable)
    }

    /// Requests a new barrier (a query of the store for its last entry) and returns its number; `None` if the store is
    /// unreachable. Once the barrier is passed, the table has every change that any process had written to the store
    /// before this call.
    pub(super) fn ask_barrier(&mut self) -> Option<u64> {
        self.journal_mut().filter(|journal| journal.is_reachable()).map(Journal::ask_barrier)
    }

    /// Whether the barrier with this number is passed.
    pub(super) fn has_passed(&self, barrier: u64) -> bool {
        self.journal().is_none_or(|journal| journal.passed_barrier() >= barrier)
    }

    /// Returns the time of the last passed barrier, in ms; 0 before the first one. The table has every change that the
    /// store had at this time. If no other process writes to the store, returns `now_ms`.
    pub(super) fn current_ms(&self, now_ms: u64) -> u64 {
        self.journal().map_or(Some(now_ms), |journal| journal.current_ms(now_ms)).unwrap_or_default()
    }

    /// Returns the bytes of the quota that the changes in flight will use: in all namespaces, and in this namespace.
    pub(super) fn reserved(&self, namespace: &str) -> Reserved {
        self.journal().map_or_else(Reserved::default, |journal| journal.reserved(namespace))
    }

    /// Whether the store is within its size limit, so that clients may create Leases.
    pub(super) fn takes_creations(&self) -> bool {
        self.journal().is_none_or(Journal::takes_creations)
    }

    /// Writes a change to the storage.
    ///
    /// # Errors
    /// 429 if too many changes are in flight, or while the journal loads the Leases. 503 if the store is unreachable or
    /// the journal has stopped. 507 if the store has no space.
    #[inline]
    pub(super) fn write(&mut self, table: &mut Table, change: Change, now_ms: u64) -> Result<Written, ApiError> {
        self.write_with(table, change, None, now_ms)
    }

    /// Writes a change to the storage. The journal stores `holder_change` until the change is applied.
    /// [`Journal::take_holder_changes`] then returns `holder_change`.
    ///
    /// # Errors
    /// The errors of [`Storage::write`].
    #[inline]
    pub(super) fn write_with(
        &mut self,
        table: &mut Table,
        change: Change,
        holder_change: Option<Box<HolderChange>>,
        now_ms: u64,
    ) -> Result<Written, ApiError> {
        match self {
            Self::Memory => match table.apply(change) {
                Ok(object) => Ok(Written::Applied(object)),
                // This error cannot occur, since the change was made from the current state of this table.
                Err(Rejected) => Err(unapplied()),
            },
            Self::Journal(journal) => submit_to_journal(journal, table, change, holder_change, now_ms),
        }
    }
}

fn submit_to_journal(
    journal: &mut Journal,
    table: &Table,
    change: Change,
    holder_change: Option<Box<HolderChange>>,
    now_ms: u64,
) -> Result<Written, ApiError> {
    match journal.submit(table, change, holder_change, now_ms) {
        Ok(ticket) => Ok(Written::Submitted(ticket)),
        Err(Refusal::Busy(ticket)) => Ok(Written::Busy(ticket)),
        Err(Refusal::Full) => Err(ApiError::TooManyRequests),
        Err(Refusal::Loading) => Err(ApiError::Loading),
        Err(Refusal::NoSpace) => Err(ApiError::InsufficientStorage),
        Err(Refusal::Unreachable) => Err(ApiError::StoreUnreachable),
        Err(Refusal::Stopped) => Err(ApiError::ServiceUnavailable { message: "the journal has stopped".into() }),
    }
}

/// Returns the error for a change that the journal could not make durable.
#[cold]
pub(super) fn failed(failure: Failure) -> ApiError {
    match failure {
        Failure::NoSpace => ApiError::InsufficientStorage,
        Failure::TooLarge => ApiError::too_large_for_etcd(),
    }
}

/// Returns the error for a change that the table rejected although no other process writes to the store. This cannot
/// happen.
#[cold]
pub(super) fn unapplied() -> ApiError {
    debug_assert!(false, "a change was rejected by the table that it was made from");
    ApiError::overtaken()
}
