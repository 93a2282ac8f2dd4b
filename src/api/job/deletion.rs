//! How the Leases of a collection are deleted, each for itself.

use super::JobError;
use super::found::Found;
use crate::api::preconditions::Preconditions;
use crate::api_error::ApiError;
use crate::clock::Now;
use crate::form::Form;
use crate::lease::strategy::{Propagation, deletion_finalizers, marked_for_deletion};
use crate::limits::{DELETIONS_PER_STEP, JOB_KEYS_PER_STEP};
use crate::selector::Selector;
use crate::table::Table;
use crate::table::event_log::Room;
use crate::table::object::Object;
use crate::watch::is_selected;

/// How the Leases of a collection are to be deleted.
#[derive(Clone, Debug)]
pub struct Deletion {
    /// What becomes of their dependents.
    pub propagation: Propagation,
    /// What must hold of each. The first of which it does not ends the deletion; those before it are gone.
    pub preconditions: Preconditions,
    /// Whether nothing is to be deleted really.
    pub dry_run: bool,
}

impl Deletion {
    /// Deletes the next of what `selector` takes, and adds them to what was found; whether there may be more.
    ///
    /// # Errors
    /// 409 if a precondition does not hold; or the log has forgotten what the rest needs.
    pub(super) fn step(
        &self,
        found: &mut Found,
        table: &mut Table,
        selector: &Selector,
        form: Form,
        now: Now,
    ) -> Result<bool, JobError> {
        if found.is_full() {
            return Ok(true);
        }
        // Whatever has been written meanwhile, one goes, so that it comes to its end.
        let Room { events, bytes: mut bytes_left } = table.log().room();
        let doomed_max = found.wanted().min(DELETIONS_PER_STEP).min(events).max(1);
        let mut doomed = Vec::new();
        let more = found.snapshot.next(table, selector.share_of(JOB_KEYS_PER_STEP), |object| {
            if is_selected(selector, object) {
                bytes_left = bytes_left.saturating_sub(object.memory_bytes());
                doomed.push(object.clone());
            }
            doomed.is_empty() || doomed.len() < doomed_max && bytes_left > 0
        })?;
        for object in doomed {
            delete(table, &object, self, now).map_err(JobError::Refused)?;
            // At once: the next deletion may be one event more than the log keeps.
            found.snapshot.absorb(table)?;
            found.push(object, form);
        }
        Ok(more)
    }
}

/// Deletes the Lease that `object` was, unless another has taken its name since, or marks it if finalizers hold it.
///
/// # Errors
/// 409 if a precondition does not hold.
fn delete(table: &mut Table, object: &Object, deletion: &Deletion, now: Now) -> Result<(), ApiError> {
    let (namespace, name) = object.key().parts();
    let Some((slot, current)) = table.find(namespace, name) else { return Ok(()) };
    if current.metadata().uid != object.metadata().uid {
        return Ok(());
    }
    deletion.preconditions.check(current)?;
    if deletion.dry_run {
        return Ok(());
    }
    let finalizers = deletion_finalizers(&current.metadata().finalizers, deletion.propagation);
    if finalizers.is_empty() {
        table.remove(slot);
        return Ok(());
    }
    let live = current.lease();
    let marked = marked_for_deletion(&live, finalizers, now.wall);
    if marked != *live {
        table.replace(slot, marked);
    }
    Ok(())
}
