//! The effect of a deletion on a single Lease: the verb delete and the verb deletecollection share these rules.

use super::preconditions;
use crate::api_error::ApiError;
use crate::clock::Now;
use crate::codec::{DeleteOptions, Preconditions};
use crate::lease::Lease;
use crate::lease::strategy::{Propagation, deletion_finalizers, marked_for_deletion};
use crate::table::object::Object;

/// The options of a deletion, as the request sets them.
#[derive(Clone, Debug)]
pub struct Deletion {
    /// What happens to the dependents of the Lease: `propagationPolicy` in the request.
    pub propagation: Propagation,
    /// Preconditions that each deleted Lease must meet; `None` if the request contains none.
    pub preconditions: Option<Preconditions>,
    /// Whether the deletion is a dry run.
    pub dry_run: bool,
}

/// The effect of a deletion on a Lease.
#[derive(Debug)]
pub(super) enum Fate {
    /// The Lease is deleted.
    Gone,
    /// The Lease has finalizers. It is not deleted, but gets a `deletionTimestamp`.
    Held(Box<Lease>),
    /// The Lease has finalizers and already had a `deletionTimestamp`. The deletion changes nothing.
    Unchanged,
}

impl Deletion {
    /// Creates a deletion from the `DeleteOptions` of a request.
    pub(super) fn of(options: &DeleteOptions) -> Self {
        Self {
            propagation: propagation(options),
            preconditions: options.preconditions.clone(),
            dry_run: !options.dry_run.is_empty(),
        }
    }

    /// Decides the effect of the deletion on the Lease `current`.
    ///
    /// # Errors
    /// 409 if a precondition fails. Also 409 if the deletion has a precondition on the `resourceVersion` and removes
    /// the last finalizers: kube-apiserver refuses each such deletion.
    pub(super) fn decide(&self, current: &Object, now: Now) -> Result<Fate, ApiError> {
        if let Some(preconditions) = &self.preconditions {
            preconditions::check(preconditions, current)?;
        }
        let present = &current.metadata().finalizers;
        let finalizers = deletion_finalizers(present, self.propagation);
        if finalizers.is_empty() {
            let has_version = self.preconditions.as_ref().is_some_and(|given| given.resource_version.is_some());
            if has_version && !present.is_empty() && !self.dry_run {
                let (namespace, name) = current.key().parts();
                let (namespace, name) = (namespace.to_owned(), name.to_owned());
                return Err(ApiError::VersionPreconditionEmptied { namespace, name, version: current.version });
            }
            return Ok(Fate::Gone);
        }
        let live = current.lease();
        let marked = marked_for_deletion(&live, finalizers, now.wall);
        Ok(if marked == *live { Fate::Unchanged } else { Fate::Held(Box::new(marked)) })
    }
}

/// Returns what happens to the dependents of the Lease. `orphanDependents` is the deprecated form of
/// `propagationPolicy`.
fn propagation(options: &DeleteOptions) -> Propagation {
    match (options.orphan_dependents, options.propagation_policy.as_deref()) {
        (Some(true), _) | (None, Some("Orphan")) => Propagation::Orphan,
        (Some(false), _) | (None, Some("Background")) => Propagation::Background,
        (None, Some("Foreground")) => Propagation::Foreground,
        (None, _) => Propagation::Unspecified,
    }
}
