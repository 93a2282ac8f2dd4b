//! What becomes of a Lease that is deleted, alone or with others of its collection.

use super::preconditions;
use crate::api_error::ApiError;
use crate::clock::Now;
use crate::codec::{DeleteOptions, Preconditions};
use crate::lease::Lease;
use crate::lease::strategy::{Propagation, deletion_finalizers, marked_for_deletion};
use crate::table::object::Object;

/// How Leases are to be deleted.
#[derive(Clone, Debug)]
pub struct Deletion {
    /// What becomes of their dependents.
    pub propagation: Propagation,
    /// What must hold of each, if anything.
    pub preconditions: Option<Preconditions>,
    /// Whether nothing is to be deleted really.
    pub dry_run: bool,
}

/// What a deletion makes of a Lease.
#[derive(Debug)]
pub(super) enum Fate {
    /// It goes.
    Gone,
    /// Finalizers hold it, and this is how it stays: marked.
    Held(Box<Lease>),
    /// Finalizers hold it, and it was marked before.
    Unchanged,
}

impl Deletion {
    /// The one that `options` ask for.
    pub(super) fn of(options: &DeleteOptions) -> Self {
        Self {
            propagation: propagation(options),
            preconditions: options.preconditions.clone(),
            dry_run: !options.dry_run.is_empty(),
        }
    }

    /// What becomes of `current`.
    ///
    /// # Errors
    /// 409 if a precondition does not hold.
    pub(super) fn decide(&self, current: &Object, now: Now) -> Result<Fate, ApiError> {
        if let Some(preconditions) = &self.preconditions {
            preconditions::check(preconditions, current)?;
        }
        let finalizers = deletion_finalizers(&current.metadata().finalizers, self.propagation);
        if finalizers.is_empty() {
            return Ok(Fate::Gone);
        }
        let live = current.lease();
        let marked = marked_for_deletion(&live, finalizers, now.wall);
        Ok(if marked == *live { Fate::Unchanged } else { Fate::Held(Box::new(marked)) })
    }
}

/// What the options ask for the dependents; `orphanDependents` is the older way to say it.
fn propagation(options: &DeleteOptions) -> Propagation {
    match (options.orphan_dependents, options.propagation_policy.as_deref()) {
        (Some(true), _) | (None, Some("Orphan")) => Propagation::Orphan,
        (Some(false), _) | (None, Some("Background")) => Propagation::Background,
        (None, Some("Foreground")) => Propagation::Foreground,
        (None, _) => Propagation::Unspecified,
    }
}
