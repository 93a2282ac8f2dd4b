//! Deletes the Leases of a collection, one after another, in the steps of a job.

use super::JobError;
use super::found::Found;
use crate::api::deletion::{Deletion, Fate};
use crate::api::identity::is_own;
use crate::api::storage::{Storage, Written, failed};
use crate::api_error::ApiError;
use crate::clock::Now;
use crate::form::Form;
use crate::journal::{Outcome, Ticket};
use crate::limits::{DELETIONS_PER_STEP, JOB_KEYS_PER_STEP};
use crate::selector::Selector;
use crate::table::Table;
use crate::table::change::Change;
use crate::table::event_log::Headroom;
use crate::table::object::Object;
use crate::table::snapshot::Stepped;
use std::collections::VecDeque;

/// The progress of the deletion of a collection.
#[derive(Debug)]
pub(super) struct CollectionDeletion {
    deletion: Deletion,
    /// Leases that the job has found and not yet added to the deleted Leases of the response, in the order of the list.
    doomed: VecDeque<Doomed>,
    /// Error that ends the deletion of the collection. The job reports the error once no change is in flight.
    refused: Option<JobError>,
}

/// A Lease that the job deletes.
#[derive(Debug)]
struct Doomed {
    object: Object,
    state: DoomedState,
}

#[derive(Debug)]
enum DoomedState {
    /// Another request's change of the Lease is in flight, with this ticket number.
    Busy(u64),
    /// The Lease is deleted, or has a `deletionTimestamp`, or the deletion leaves it unchanged.
    Done,
    /// No deletion of the Lease is in flight. The next step deletes the Lease, or tries again.
    Found,
    /// The deletion of the Lease is in flight in the journal, with this ticket.
    Submitted(Ticket),
}

impl CollectionDeletion {
    /// Creates a deletion that has not begun.
    pub(super) fn new(deletion: Deletion) -> Self {
        Self { deletion, doomed: VecDeque::new(), refused: None }
    }

    /// Whether the next step must wait for changes in flight: deletions of this job, or other writes of the same
    /// Leases.
    pub(super) fn is_waiting(&self) -> bool {
        !self.doomed.is_empty()
    }

    /// Deletes the next Leases that `selector` matches, and adds the deleted Leases to `found`. With a journal, all
    /// deletions of one step are in flight together. The next step waits for these deletions.
    ///
    /// # Errors
    /// 409 if a precondition fails for a Lease. The errors of [`Storage::write`], or the error of a deletion that the
    /// journal could not make durable. [`JobError::Forgotten`] if the event log no longer has the states of the
    /// remaining Leases. In each case, other Leases of the collection may already be deleted.
    pub(super) fn step(
        &mut self,
        found: &mut Found,
        table: &mut Table,
        storage: &mut Storage,
        selector: &Selector,
        form: Form,
        now: Now,
    ) -> Result<Stepped, JobError> {
        let mut stepped = Stepped::More;
        if self.doomed.is_empty() {
            if found.is_full() {
                return Ok(Stepped::More);
            }
            stepped = self.find(found, table, selector)?;
        }
        for doomed in &mut self.doomed {
            let is_refused = self.refused.is_some();
            if let Err(error) = doomed.advance(&self.deletion, table, storage, is_refused, now) {
                doomed.state = DoomedState::Found;
                self.refused.get_or_insert(error);
            }
        }
        if self.refused.is_some() {
            // Keeps only deletions that are in flight or done, since a deletion in flight cannot be cancelled.
            self.doomed.retain(|doomed| matches!(doomed.state, DoomedState::Submitted(_) | DoomedState::Done));
        }
        while let Some(first) = self.doomed.pop_front_if(|doomed| matches!(doomed.state, DoomedState::Done)) {
            found.push(first.object, form);
        }
        match self.refused.take_if(|_| self.doomed.is_empty()) {
            Some(error) => Err(error),
            None => Ok(if self.doomed.is_empty() { stepped } else { Stepped::More }),
        }
    }

    /// Finds the next Leases to delete, as many as one step may delete.
    fn find(&mut self, found: &mut Found, table: &Table, selector: &Selector) -> Result<Stepped, JobError> {
        // The headroom is the number and bytes of events that long work may still add to the event log, before watchers
        // have received the earlier events. A step deletes one Lease even without headroom, so the deletion of the
        // collection always ends.
        let Headroom { events, bytes: mut bytes_left } = table.log().headroom();
        let doomed_max = found.wanted().min(DELETIONS_PER_STEP).min(events).max(1);
        let doomed = &mut self.doomed;
        let stepped = found.snapshot.next(table, selector.share_of(JOB_KEYS_PER_STEP), |object| {
            // A deletion of a collection never deletes the Leases of this server itself.
            if object.is_selected_by(selector) && !is_own(object.metadata()) {
                bytes_left = bytes_left.saturating_sub(object.memory_bytes());
                doomed.push_back(Doomed { object: object.clone(), state: DoomedState::Found });
            }
            doomed.is_empty() || doomed.len() < doomed_max && bytes_left > 0
        })?;
        Ok(stepped)
    }
}

impl Doomed {
    /// Continues the deletion of this Lease as far as possible without a wait. If `is_refused`, the deletion of another
    /// Lease has failed, and this function submits no new change to the journal.
    ///
    /// # Errors
    /// 409 if a precondition fails. Otherwise the errors of [`Storage::write`], or the error of a deletion that the
    /// journal could not make durable.
    fn advance(
        &mut self,
        deletion: &Deletion,
        table: &mut Table,
        storage: &mut Storage,
        is_refused: bool,
        now: Now,
    ) -> Result<(), JobError> {
        match &self.state {
            DoomedState::Submitted(ticket) => match ticket.take() {
                Outcome::Applied(_) => self.state = DoomedState::Done,
                Outcome::Failed(failure) => return Err(JobError::Refused(failed(failure))),
                Outcome::Pending => {}
                // Another write of this Lease came first, so the deletion must be decided again.
                Outcome::Rejected => self.state = DoomedState::Found,
            },
            DoomedState::Busy(ticket) if storage.settled() >= *ticket => self.state = DoomedState::Found,
            DoomedState::Busy(_) | DoomedState::Done | DoomedState::Found => {}
        }
        if !is_refused && matches!(self.state, DoomedState::Found) {
            self.state = delete(table, storage, &self.object, deletion, now).map_err(JobError::Refused)?;
        }
        Ok(())
    }
}

/// Deletes the Lease `object`, or sets its `deletionTimestamp` if the Lease has finalizers. Leaves a newer Lease of the
/// same name unchanged.
///
/// # Errors
/// 409 if a precondition fails. Otherwise the errors of [`Storage::write`].
fn delete(
    table: &mut Table,
    storage: &mut Storage,
    object: &Object,
    deletion: &Deletion,
    now: Now,
) -> Result<DoomedState, ApiError> {
    let (namespace, name) = object.key().parts();
    let Some((slot, current)) = table.find(namespace, name) else { return Ok(DoomedState::Done) };
    if current.metadata().uid != object.metadata().uid {
        return Ok(DoomedState::Done);
    }
    let fate = deletion.decide(current, now)?;
    let target = table.target(slot);
    let change = match fate {
        Fate::Gone if !deletion.dry_run => Change::Delete(target),
        Fate::Held(marked) if !deletion.dry_run => Change::Replace(target, marked),
        Fate::Gone | Fate::Held(_) | Fate::Unchanged => return Ok(DoomedState::Done),
    };
    Ok(match storage.write(table, change, now.ms)? {
        Written::Applied(_) => DoomedState::Done,
        Written::Busy(ticket) => DoomedState::Busy(ticket),
        Written::Submitted(ticket) => DoomedState::Submitted(ticket),
    })
}
