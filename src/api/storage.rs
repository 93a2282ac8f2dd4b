//! Where writes go: into the table at once, or through the journal first.

use crate::api_error::ApiError;
use crate::journal::{Journal, Refusal, Ticket};
use crate::table::Table;
use crate::table::change::{Change, Rejected};
use crate::table::holder::HolderChange;
use crate::table::object::Object;

/// What keeps the Leases.
#[derive(Debug, Default)]
pub enum Storage {
    /// The table alone. A restart loses all Leases.
    #[default]
    Memory,
    /// A journal, which has each change before anybody can see it.
    Journal(Box<Journal>),
}

/// How far a change has come.
#[derive(Debug)]
pub(super) enum Written {
    /// The table has it, as this state.
    Applied(Object),
    /// The journal is to make it durable.
    Submitted(Ticket),
    /// Another change of the same Lease is under way, with the ticket of this number; the change was not taken.
    Busy(u64),
}

impl Storage {
    /// The journal, if there is one.
    #[must_use]
    pub fn journal(&self) -> Option<&Journal> {
        match self {
            Self::Memory => None,
            Self::Journal(journal) => Some(journal),
        }
    }

    /// The journal, if there is one.
    pub fn journal_mut(&mut self) -> Option<&mut Journal> {
        match self {
            Self::Memory => None,
            Self::Journal(journal) => Some(journal),
        }
    }

    /// Whether the table does not hold all Leases yet.
    #[inline]
    pub(super) fn is_loading(&self) -> bool {
        self.journal().is_some_and(Journal::is_loading)
    }

    /// Number of the ticket of the change of this Lease that is under way.
    #[inline]
    pub(super) fn in_flight(&self, namespace: &str, name: &str) -> Option<u64> {
        self.journal()?.in_flight(namespace, name)
    }

    /// Number of the last ticket that is settled.
    #[must_use]
    pub fn settled(&self) -> u64 {
        self.journal().map_or(0, Journal::settled)
    }

    /// Whether other processes write to the store too, so that the table may be behind.
    #[inline]
    pub fn is_shared(&self) -> bool {
        self.journal().is_some_and(Journal::is_shared)
    }

    /// Whether the store can be reached, as far as this process knows.
    pub(super) fn is_reachable(&self) -> bool {
        self.journal().is_none_or(Journal::is_reachable)
    }

    /// Number of a barrier for a request that has come; none if the store cannot be reached.
    pub(super) fn ask_barrier(&mut self) -> Option<u64> {
        self.journal_mut().filter(|journal| journal.is_reachable()).map(Journal::ask_barrier)
    }

    /// Whether a barrier is passed.
    pub(super) fn has_passed(&self, barrier: u64) -> bool {
        self.journal().is_none_or(|journal| journal.passed_barrier() >= barrier)
    }

    /// Whether the journal has brought the table to a version.
    pub(super) fn has_applied(&self, version: u64) -> bool {
        self.journal().is_some_and(|journal| journal.version().0 >= version)
    }

    /// Bytes that changes under way will add to what counts towards the quota.
    pub(super) fn reserved_bytes(&self) -> usize {
        self.journal().map_or(0, Journal::reserved_bytes)
    }

    /// Whether there is room for more Leases.
    pub(super) fn takes_creations(&self) -> bool {
        self.journal().is_none_or(Journal::takes_creations)
    }

    /// Takes a change.
    ///
    /// # Errors
    /// 429 if too many changes are under way, 507 if the store has no room.
    #[inline]
    pub(super) fn write(&mut self, table: &mut Table, change: Change, now_ms: u64) -> Result<Written, ApiError> {
        self.write_with(table, change, None, now_ms)
    }

    /// Takes a change. A journal keeps `holder_change` until the change is applied
    /// ([`Journal::take_holder_changes`]).
    ///
    /// # Errors
    /// As those of [`Storage::write`].
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
                // The change was made from this very table.
                Err(Rejected) => Err(unapplied()),
            },
            Self::Journal(journal) => submit(journal, table, change, holder_change, now_ms),
        }
    }
}

fn submit(
    journal: &mut Journal,
    table: &Table,
    change: Change,
    holder_change: Option<Box<HolderChange>>,
    now_ms: u64,
) -> Result<Written, ApiError> {
    match journal.submit_with(table, change, holder_change, now_ms) {
        Ok(ticket) => Ok(Written::Submitted(ticket)),
        Err(Refusal::Busy(ticket)) => Ok(Written::Busy(ticket)),
        Err(Refusal::Full) => Err(ApiError::TooManyRequests),
        Err(Refusal::Loading) => Err(ApiError::Loading),
        Err(Refusal::NoSpace) => Err(ApiError::InsufficientStorage),
        Err(Refusal::Unreachable) => Err(ApiError::StoreUnreachable),
        Err(Refusal::Stopped) => Err(ApiError::ServiceUnavailable { message: "the journal has stopped".into() }),
    }
}

#[cold]
pub(super) fn unapplied() -> ApiError {
    debug_assert!(false, "a change was rejected by the table that it was made from");
    ApiError::overtaken()
}
