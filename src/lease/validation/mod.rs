//! Validation of a Lease before it is stored. The order and the words of the errors are those of kube-apiserver.
//!
//! The validation consists of pure functions from objects to complaints (errors about single fields). It runs for every
//! create, update and patch by a client, except for a renewal that the server recognizes by a comparison of bytes
//! (`docs/architecture.md`). To be fast, the validation of a valid Lease passes over the metadata only twice. It
//! allocates memory only for the keys of annotations and for `generateName`. Before the validation, the caller sets the
//! fields that only the server sets: `uid`, `creationTimestamp`, the namespace in the path, and a generated name.

pub(crate) mod complaints;
pub mod format;
mod metadata;
mod render;

use super::{Lease, LeaseSpec, ObjectMeta};
use crate::api_error::{FieldError, FieldErrorKind};
use crate::go::json::json_quoted;
use crate::limits::METADATA_ENTRIES_MAX;
use complaints::Complaints;
use format::qualified_name_complaints;
pub(crate) use metadata::{ANNOTATION_BYTES_MAX, FIELD_MANAGER_BYTES_MAX, validate_field_manager};
use metadata::{NameRule, validate_metadata, validate_metadata_update};
pub(crate) use render::push_json_owner;

/// Returns the complaints about the creation of `lease`; empty if the Lease is valid.
///
/// The rules of Leases are checked first. If the Lease meets them, the rules of all resources follow. The latter add
/// only one check: whether `generateName` is valid in a path.
#[must_use]
pub fn validate_create(lease: &Lease) -> Vec<FieldError> {
    let mut complaints = Complaints::default();
    validate_metadata(&lease.metadata, NameRule::DnsSubdomain, &mut complaints);
    validate_spec(&lease.spec, &mut complaints);
    if complaints.all.is_empty() {
        validate_metadata(&lease.metadata, NameRule::PathSegment, &mut complaints);
    }
    complaints.into_distinct()
}

/// Returns the complaints about the update of `old` to `new`; empty if the update is valid.
///
/// `new` contains the `resourceVersion` that the client sent, or that of the patched object.
/// [`prepare_for_update`](super::strategy::prepare_for_update) has already copied the fields of `old` that a client may
/// not change or may omit, such as `uid`.
///
/// The rules of all resources and the rules of Leases both check immutable fields, and repeat rules of a creation. Each
/// complaint is returned once.
#[must_use]
pub fn validate_update(new: &Lease, old: &Lease) -> Vec<FieldError> {
    let mut complaints = Complaints::default();
    validate_metadata(&new.metadata, NameRule::PathSegment, &mut complaints);
    validate_metadata_update(&new.metadata, &old.metadata, &mut complaints);
    validate_spec(&new.spec, &mut complaints);
    complaints.into_distinct()
}

/// Returns the number of metadata entries: labels, annotations, owner references and finalizers.
/// [`METADATA_ENTRIES_MAX`] limits this number.
#[must_use]
pub fn entry_count(meta: &ObjectMeta) -> usize {
    meta.labels.len() + meta.annotations.len() + meta.owner_references.len() + meta.finalizers.len()
}

/// Returns a complaint if the number of metadata entries is too large. Call this function before the checks of the
/// single entries.
#[must_use]
pub fn validate_entry_count(count: usize) -> Vec<FieldError> {
    let kind = FieldErrorKind::TooMany { count, count_max: METADATA_ENTRIES_MAX };
    let complaint = FieldError { field: "metadata".to_owned(), kind };
    Vec::from_iter((count > METADATA_ENTRIES_MAX).then_some(complaint))
}

fn validate_spec(spec: &LeaseSpec, complaints: &mut Complaints) {
    if let Some(seconds) = spec.lease_duration_seconds
        && seconds <= 0
    {
        let detail = "must be greater than 0";
        complaints.push(FieldError::invalid_unquoted("spec.leaseDurationSeconds", seconds, detail));
    }
    if let Some(transitions) = spec.lease_transitions
        && transitions < 0
    {
        let detail = "must be greater than or equal to 0";
        complaints.push(FieldError::invalid_unquoted("spec.leaseTransitions", transitions, detail));
    }
    if let Some(strategy) = &spec.strategy {
        validate_strategy(strategy, complaints);
    }
    let without_strategy = spec.strategy.as_deref().is_none_or(str::is_empty);
    if without_strategy && spec.preferred_holder.as_deref().is_some_and(|holder| !holder.is_empty()) {
        let detail = "may only be specified if `strategy` is defined";
        complaints.push(FieldError::forbidden("spec.preferredHolder", detail));
    }
}

/// Checks a strategy. It must be a strategy that Kubernetes defines, or a custom strategy with a prefix. As in
/// kube-apiserver, the path in the complaint contains the name of the field twice.
fn validate_strategy(strategy: &str, complaints: &mut Complaints) {
    const FIELD: &str = "spec.strategy.strategy";
    const DEFINED: &str = "OldestEmulationVersion";
    if strategy.contains('/') {
        for detail in qualified_name_complaints(strategy) {
            complaints.push(FieldError::invalid_unquoted(FIELD, json_quoted(strategy), detail));
        }
    } else if strategy != DEFINED {
        complaints.push(FieldError::not_supported_unquoted(FIELD, json_quoted(strategy), &[DEFINED]));
    }
}

#[cfg(test)]
mod tests {
    use super::super::{OwnerReference, StringMap};
    use super::*;
    use crate::api_error::{ApiError, InvalidSubject};
    use crate::timestamp::{MicroTime, Time};

    pub(super) const NAME: &str = "name part must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')";

    fn lease() -> Lease {
        let mut lease = Lease::named("ns", "a");
        lease.metadata.uid = "u".into();
        lease.metadata.resource_version = "1".into();
        lease.metadata.creation_timestamp = Some(Time(1));
        lease.spec.holder_identity = Some("h".into());
        lease.spec.lease_duration_seconds = Some(40);
        lease.spec.renew_time = Some(MicroTime(1));
        lease
    }

    fn lease_with(change: impl FnOnce(&mut Lease)) -> Lease {
        let mut lease = lease();
        change(&mut lease);
        lease
    }

    pub(super) fn pairs(pairs: &[(&str, &str)]) -> StringMap {
        pairs.iter().map(|&(key, value)| (key.into(), value.into())).collect()
    }

    pub(super) fn owner(
        api_version: &str,
        kind: &str,
        name: &str,
        uid: &str,
        controller: Option<bool>,
    ) -> OwnerReference {
        OwnerReference {
            api_version: api_version.into(),
            kind: kind.into(),
            name: name.into(),
            uid: uid.into(),
            controller,
            block_owner_deletion: None,
        }
    }

    /// Returns the sentence that a client sees after `is invalid: `, and the number of causes.
    fn told(causes: Vec<FieldError>) -> (String, usize) {
        if causes.is_empty() {
            return (String::new(), 0);
        }
        let count = causes.len();
        let error = ApiError::Invalid { subject: InvalidSubject::Lease, name: "a".into(), causes };
        let message = error.status().message;
        let (_, sentence) = message.split_once(" is invalid: ").expect("an invalid object");
        (sentence.to_owned(), count)
    }

    pub(super) fn create(change: impl FnOnce(&mut Lease)) -> (String, usize) {
        told(validate_create(&lease_with(change)))
    }

    fn update(change: impl FnOnce(&mut Lease)) -> (String, usize) {
        told(validate_update(&lease_with(change), &lease()))
    }

    pub(super) fn one(sentence: impl Into<String>) -> (String, usize) {
        (sentence.into(), 1)
    }

    #[test]
    fn a_valid_lease_is_accepted() {
        let full = lease_with(|l| {
            l.metadata.generate_name = "gen-".into();
            l.metadata.generation = 7;
            l.metadata.labels = pairs(&[("a", ""), ("example.com/b", "B_1")]);
            l.metadata.annotations = pairs(&[("Example.com/B", "any \n thing")]);
            l.metadata.owner_references =
                vec![owner("v1", "Node", "n", "u", Some(true)), owner("a/v1", "B", "c", "d", None)];
            l.metadata.finalizers = vec!["orphan".into(), "example.com/hold".into(), "nope".into()];
            l.spec.strategy = Some("OldestEmulationVersion".into());
            l.spec.preferred_holder = Some("b".into());
            l.spec.lease_transitions = Some(0);
        });
        assert_eq!(validate_create(&full), []);
        assert_eq!(validate_update(&full, &full), []);
        assert_eq!(create(|l| l.spec = LeaseSpec::default()), told(Vec::new()));
        assert_eq!(create(|l| l.spec.strategy = Some("example.com/s".into())), told(Vec::new()));
        assert_eq!(create(|l| l.spec.preferred_holder = Some("".into())), told(Vec::new()));
    }

    #[test]
    fn specs_are_checked_in_the_order_of_kube_apiserver() {
        assert_eq!(
            create(|l| l.spec.lease_duration_seconds = Some(-1)),
            one("spec.leaseDurationSeconds: Invalid value: -1: must be greater than 0")
        );
        let told = create(|l| {
            l.spec.lease_duration_seconds = Some(0);
            l.spec.lease_transitions = Some(-2);
        });
        let expected = "[spec.leaseDurationSeconds: Invalid value: 0: must be greater than 0, spec.leaseTransitions: Invalid value: -2: must be greater than or equal to 0]";
        assert_eq!(told, (expected.to_owned(), 2));
        for strategy in ["x", ""] {
            let expected = format!(
                "spec.strategy.strategy: Unsupported value: \"{strategy}\": supported values: \"OldestEmulationVersion\""
            );
            assert_eq!(create(|l| l.spec.strategy = Some(strategy.into())), one(expected));
        }
        let expected = format!("spec.strategy.strategy: Invalid value: \"a.b/-\": {NAME}");
        assert_eq!(create(|l| l.spec.strategy = Some("a.b/-".into())), one(expected));
        assert_eq!(
            create(|l| l.spec.preferred_holder = Some("b".into())),
            one("spec.preferredHolder: Forbidden: may only be specified if `strategy` is defined")
        );
    }

    #[test]
    fn an_update_reports_each_immutable_field_once() {
        assert_eq!(
            update(|l| l.metadata.uid = "x".into()),
            one("metadata.uid: Invalid value: \"x\": field is immutable")
        );
        assert_eq!(
            update(|l| l.metadata.name = "b".into()),
            one("metadata.name: Invalid value: \"b\": field is immutable")
        );
        assert_eq!(
            update(|l| l.metadata.creation_timestamp = None),
            one("metadata.creationTimestamp: Invalid value: null: field is immutable")
        );
        assert_eq!(
            update(|l| l.metadata.deletion_timestamp = Some(Time(978_307_200))),
            one("metadata.deletionTimestamp: Invalid value: \"2001-01-01T00:00:00Z\": field is immutable")
        );
        assert_eq!(
            update(|l| l.metadata.deletion_grace_period_seconds = Some(5)),
            one("metadata.deletionGracePeriodSeconds: Invalid value: 5: field is immutable")
        );
        assert_eq!(
            update(|l| l.metadata.resource_version = "".into()),
            one("metadata.resourceVersion: Invalid value: \"\": must be specified for an update")
        );
        assert_eq!(update(|l| l.metadata.generation = -1).1, 2, "too small, and decremented");
    }

    #[test]
    fn an_update_reports_spec_and_label_errors_once() {
        assert_eq!(
            update(|l| l.spec.lease_duration_seconds = Some(0)),
            one("spec.leaseDurationSeconds: Invalid value: 0: must be greater than 0")
        );
        let expected = format!("metadata.labels: Invalid value: \"a b\": {NAME}");
        assert_eq!(update(|l| l.metadata.labels = pairs(&[("a b", "")])), one(expected));
        assert_eq!(update(|l| l.metadata.finalizers = vec!["a b".into()]).1, 1);
    }

    #[test]
    fn an_update_does_not_check_the_name_rule_of_leases() {
        let named = lease_with(|l| l.metadata.name = "UPPER".into());
        assert_eq!(validate_update(&named, &named), []);
    }

    #[test]
    fn no_finalizer_is_added_during_deletion() {
        let old = lease_with(|l| {
            l.metadata.deletion_timestamp = Some(Time(5));
            l.metadata.finalizers = vec!["example.com/hold".into(), "example.com/more".into()];
        });
        let mut new = old.clone();
        new.metadata.finalizers = vec!["example.com/hold".into()];
        assert_eq!(validate_update(&new, &old), []);
        new.metadata.finalizers = vec!["example.com/new".into(), "example.com/hold".into(), "example.com/a".into()];
        let expected = "metadata.finalizers: Forbidden: no new finalizers can be added if the object is being deleted, found new finalizers []string{\"example.com/a\", \"example.com/new\"}";
        assert_eq!(told(validate_update(&new, &old)), one(expected));
    }

    #[test]
    fn a_hostile_object_gets_a_bounded_answer() {
        let owners: Vec<_> = (0..20_000).map(|i| owner("v1", "Pod", &i.to_string(), "u", Some(true))).collect();
        let bad = lease_with(|l| l.metadata.owner_references = owners);
        assert_eq!(validate_create(&bad).len(), 1);
        let labels = (0..20_000).map(|i| (format!("-{i}").into(), "".into())).collect();
        let bad = lease_with(|l| l.metadata.labels = labels);
        assert_eq!(validate_update(&bad, &lease()).len(), 256);
    }
}
