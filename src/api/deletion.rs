//! The effect of a deletion on a single Lease: the verb delete and the verb deletecollection share these rules.

use super::preconditions;
use crate::api_error::ApiError;
use crate::clock::Now;
use crate::codec::{DeleteOptions, Preconditions};
use crate::lease::Lease;
use crate::lease::strategy::{Propagation, deletion_finalizers, marked_for_deletion};
use crate::table::object::Object;
use compact_str::CompactString;

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
        let mut marked = marked_for_deletion(&live, finalizers, now.wall);
        if marked == *live {
            return Ok(Fate::Unchanged);
        }
        // An update with the version of the Lease in built-in storage must not succeed after the deletion.
        marked.metadata.resource_version = CompactString::default();
        Ok(Fate::Held(Box::new(marked)))
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::resource::ResourceVersion;
    use crate::table::Table;

    /// Goal: a deletion makes the version that a Lease had in built-in storage invalid, as an update does. Otherwise an
    /// update with that version could remove the finalizers that the deletion has added.
    #[test]
    fn a_marked_lease_has_no_version_of_built_in_storage() {
        let mut lease = Lease::named("n", "l");
        lease.metadata.resource_version = "42".into();
        let mut table = Table::new(ResourceVersion(1), 10, usize::MAX);
        table.create(lease);
        let (_, object) = table.find("n", "l").expect("the Lease");
        assert!(object.is_at(42));
        let deletion = Deletion { propagation: Propagation::Orphan, preconditions: None, dry_run: false };
        let Ok(Fate::Held(marked)) = deletion.decide(object, Now::default()) else { panic!("no mark") };
        assert_eq!(marked.metadata.resource_version, "");
        assert_eq!(marked.metadata.finalizers, ["orphan"]);
    }
}
