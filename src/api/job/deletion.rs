//! How the Leases of a collection are deleted, each for itself.

use crate::api::preconditions::Preconditions;
use crate::api_error::ApiError;
use crate::clock::Now;
use crate::lease::strategy::{Propagation, deletion_finalizers, marked_for_deletion};
use crate::table::Table;
use crate::table::object::Object;

/// How the Leases of a collection are to be deleted.
#[derive(Clone, Debug)]
pub struct Deletion {
    /// What becomes of their dependents.
    pub propagation: Propagation,
    /// What must hold of each. The first of which it does not ends the deletion; those before it are gone.
    pub preconditions: Preconditions,
    /// Whether nothing is to be deleted really.
    pub dry_run: bool,
    /// The most that are deleted; 0 is all.
    pub limit: usize,
}

/// Deletes the Lease that `object` was, unless another has taken its name since, or marks it if finalizers hold it.
///
/// # Errors
/// 409 if a precondition does not hold.
pub(super) fn delete(table: &mut Table, object: &Object, deletion: &Deletion, now: Now) -> Result<(), ApiError> {
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
