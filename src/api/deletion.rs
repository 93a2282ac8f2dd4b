//! The effect of a deletion on a Lease: of that Lease alone, or of its collection.

use super::preconditions;
use crate::api_error::ApiError;
use crate::clock::Now;
use crate::codec::{DeleteOptions, Preconditions};
use crate::lease::Lease;
use crate::lease::strategy::{Propagation, deletion_finalizers, marked_for_deletion};
use crate::table::object::Object;

/// The options of a deletion.
#[derive(Clone, Debug)]
pub struct Deletion {
    /// Treatment of dependents.
    pub propagation: Propagation,
    /// Preconditions that each Lease must meet; `None` without preconditions.
    pub preconditions: Option<Preconditions>,
    /// Whether the deletion is a dry run.
    pub dry_run: bool,
}

/// The effect of a deletion on a Lease.
#[derive(Debug)]
pub(super) enum Fate {
    /// The Lease is deleted.
    Gone,
    /// Finalizers hold the Lease, which is now marked for deletion.
    Held(Box<Lease>),
    /// Finalizers hold the Lease, which was already marked for deletion.
    Unchanged,
}

impl Deletion {
    /// Creates the deletion that `options` describe.
    pub(super) fn of(options: &DeleteOptions) -> Self {
        Self {
            propagation: propagation(options),
            preconditions: options.preconditions.clone(),
            dry_run: !options.dry_run.is_empty(),
        }
    }

    /// Decides the effect on `current`.
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

/// Returns the treatment of dependents; `orphanDependents` is the older option.
fn propagation(options: &DeleteOptions) -> Propagation {
    match (options.orphan_dependents, options.propagation_policy.as_deref()) {
        (Some(true), _) | (None, Some("Orphan")) => Propagation::Orphan,
        (Some(false), _) | (None, Some("Background")) => Propagation::Background,
        (None, Some("Foreground")) => Propagation::Foreground,
        (None, _) => Propagation::Unspecified,
    }
}
