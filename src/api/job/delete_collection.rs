//! How the Leases of a collection are deleted, each for itself.

use super::JobError;
use super::found::Found;
use crate::api::deletion::{Deletion, Fate};
use crate::api_error::ApiError;
use crate::clock::Now;
use crate::form::Form;
use crate::limits::{DELETIONS_PER_STEP, JOB_KEYS_PER_STEP};
use crate::selector::Selector;
use crate::table::Table;
use crate::table::event_log::Room;
use crate::table::object::Object;
use crate::table::snapshot::Stepped;

/// Deletes the next of what `selector` takes, and adds them to what was found.
///
/// # Errors
/// 409 if a precondition does not hold, and those before that Lease are gone; or the log has forgotten what the rest
/// needs.
pub(super) fn delete_next(
    found: &mut Found,
    deletion: &Deletion,
    table: &mut Table,
    selector: &Selector,
    form: Form,
    now: Now,
) -> Result<Stepped, JobError> {
    if found.is_full() {
        return Ok(Stepped::More);
    }
    // Whatever has been written meanwhile, one goes, so that it comes to its end.
    let Room { events, bytes: mut bytes_left } = table.log().room();
    let doomed_max = found.wanted().min(DELETIONS_PER_STEP).min(events).max(1);
    let mut doomed = Vec::new();
    let stepped = found.snapshot.next(table, selector.share_of(JOB_KEYS_PER_STEP), |object| {
        if object.is_selected_by(selector) {
            bytes_left = bytes_left.saturating_sub(object.memory_bytes());
            doomed.push(object.clone());
        }
        doomed.is_empty() || doomed.len() < doomed_max && bytes_left > 0
    })?;
    for object in doomed {
        delete(table, &object, deletion, now).map_err(JobError::Refused)?;
        found.push(object, form);
    }
    Ok(stepped)
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
    match deletion.decide(current, now)? {
        Fate::Gone if !deletion.dry_run => _ = table.remove(slot),
        Fate::Held(marked) if !deletion.dry_run => _ = table.replace(slot, *marked),
        Fate::Gone | Fate::Held(_) | Fate::Unchanged => {}
    }
    Ok(())
}
