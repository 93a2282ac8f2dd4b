//! Finds the fields that a write changes, for all writes but server-side apply: compares the old and the new Lease
//! field by field. The module `typed` finds the same fields in two JSON values. This module is faster, since it does
//! not convert the Leases to JSON. A test compares both modules.

use super::SpecFields;
use super::path_element::PathElement;
use super::typed::{Change, Comparison, Parts, group_change};
use crate::lease::{Lease, LeaseSpec, ObjectMeta, OwnerReference, StringMap};
use compact_str::CompactString;
use std::cmp::Ordering;
use std::collections::BTreeMap;

/// Compares `old` with `new`. Ignores `managedFields`, and the `resourceVersion`, which the server stores apart from
/// the Lease.
pub(super) fn compare_leases(old: &Lease, new: &Lease) -> Comparison {
    let mut parts = Parts::default();
    parts.put(PathElement::field("metadata"), Change::None, Some(compare_metadata(&old.metadata, &new.metadata)));
    parts.put(PathElement::field("spec"), Change::None, Some(compare_specs(&old.spec, &new.spec)));
    parts.comparison()
}

/// The fields of the spec that a write removed, modified and added.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct SpecChanges {
    pub(super) removed: SpecFields,
    pub(super) modified: SpecFields,
    pub(super) added: SpecFields,
}

impl SpecChanges {
    #[inline]
    pub(super) fn between(old: &LeaseSpec, new: &LeaseSpec) -> Self {
        let mut changes = Self::default();
        changes.note(SpecFields::ACQUIRE_TIME, old.acquire_time.as_ref(), new.acquire_time.as_ref());
        changes.note(SpecFields::HOLDER_IDENTITY, old.holder_identity.as_ref(), new.holder_identity.as_ref());
        let (seconds, new_seconds) = (&old.lease_duration_seconds, &new.lease_duration_seconds);
        changes.note(SpecFields::LEASE_DURATION_SECONDS, seconds.as_ref(), new_seconds.as_ref());
        changes.note(SpecFields::LEASE_TRANSITIONS, old.lease_transitions.as_ref(), new.lease_transitions.as_ref());
        changes.note(SpecFields::PREFERRED_HOLDER, old.preferred_holder.as_ref(), new.preferred_holder.as_ref());
        changes.note(SpecFields::RENEW_TIME, old.renew_time.as_ref(), new.renew_time.as_ref());
        changes.note(SpecFields::STRATEGY, old.strategy.as_ref(), new.strategy.as_ref());
        changes
    }

    #[inline]
    fn note<T: PartialEq>(&mut self, field: SpecFields, old: Option<&T>, new: Option<&T>) {
        match (old, new) {
            (Some(old), Some(new)) if old != new => self.modified |= field,
            (None, Some(_)) => self.added |= field,
            (Some(_), None) => self.removed |= field,
            _ => {}
        }
    }
}

fn compare_specs(old: &LeaseSpec, new: &LeaseSpec) -> Comparison {
    let changes = SpecChanges::between(old, new);
    Comparison { removed: changes.removed.to_set(), modified: changes.modified.to_set(), added: changes.added.to_set() }
}

fn compare_metadata(old: &ObjectMeta, new: &ObjectMeta) -> Comparison {
    let mut parts = Parts::default();
    let mut maps = |name: &str, old: &StringMap, new: &StringMap| {
        let (change, below) = compare_maps(old, new);
        parts.put(PathElement::field(name), change, Some(below));
    };
    maps("annotations", &old.annotations, &new.annotations);
    maps("labels", &old.labels, &new.labels);
    let (change, below) = compare_groups(&old.finalizers, &new.finalizers, |name| PathElement::text(name));
    parts.put(PathElement::field("finalizers"), change, Some(below));
    let uid = |owner: &OwnerReference| PathElement::uid(&owner.uid);
    let (change, below) = compare_groups(&old.owner_references, &new.owner_references, uid);
    parts.put(PathElement::field("ownerReferences"), change, Some(below));

    let mut texts = |name: &str, old: &CompactString, new: &CompactString| {
        parts.put(PathElement::field(name), change_of(&some_text(old), &some_text(new)), None);
    };
    texts("generateName", &old.generate_name, &new.generate_name);
    texts("name", &old.name, &new.name);
    texts("namespace", &old.namespace, &new.namespace);
    texts("selfLink", &old.self_link, &new.self_link);
    texts("uid", &old.uid, &new.uid);
    let mut put = |name: &str, change: Change| parts.put(PathElement::field(name), change, None);
    put("creationTimestamp", change_of(&old.creation_timestamp, &new.creation_timestamp));
    let (seconds, new_seconds) = (&old.deletion_grace_period_seconds, &new.deletion_grace_period_seconds);
    put("deletionGracePeriodSeconds", change_of(seconds, new_seconds));
    put("deletionTimestamp", change_of(&old.deletion_timestamp, &new.deletion_timestamp));
    let generation = |meta: &ObjectMeta| Some(meta.generation).filter(|generation| *generation != 0);
    put("generation", change_of(&generation(old), &generation(new)));
    parts.comparison()
}

fn some_text(text: &CompactString) -> Option<&CompactString> {
    Some(text).filter(|text| !text.is_empty())
}

fn change_of<T: PartialEq>(old: &Option<T>, new: &Option<T>) -> Change {
    match (old, new) {
        (Some(old), Some(new)) if old != new => Change::Modified,
        (None, Some(_)) => Change::Added,
        (Some(_), None) => Change::Removed,
        _ => Change::None,
    }
}

/// Returns the change of a map or list. An empty map or list counts as absent.
fn change_of_container(was_empty: bool, is_empty: bool) -> Change {
    match (was_empty, is_empty) {
        (true, false) => Change::Added,
        (false, true) => Change::Removed,
        _ => Change::None,
    }
}

fn compare_maps(old: &StringMap, new: &StringMap) -> (Change, Comparison) {
    let mut parts = Parts::default();
    if old != new {
        // Both maps are sorted by key, so one pass finds all differences. A map may have thousands of pairs.
        let (mut old, mut new) = (old.iter().peekable(), new.iter().peekable());
        loop {
            let order = match (old.peek(), new.peek()) {
                (Some((old, _)), Some((new, _))) => old.cmp(new),
                (Some(_), None) => Ordering::Less,
                (None, Some(_)) => Ordering::Greater,
                (None, None) => break,
            };
            let (was, is) = (old.next_if(|_| order.is_le()), new.next_if(|_| order.is_ge()));
            let change = change_of(&was, &is);
            if let (true, Some((key, _))) = (change != Change::None, was.or(is)) {
                parts.put(PathElement::field(key), change, None);
            }
        }
    }
    (change_of_container(old.is_empty(), new.is_empty()), parts.comparison())
}

fn compare_groups<T: PartialEq>(old: &[T], new: &[T], identity: impl Fn(&T) -> PathElement) -> (Change, Comparison) {
    let mut parts = Parts::default();
    if old != new {
        let mut groups: BTreeMap<PathElement, (Vec<&T>, Vec<&T>)> = BTreeMap::new();
        for element in old {
            groups.entry(identity(element)).or_default().0.push(element);
        }
        for element in new {
            groups.entry(identity(element)).or_default().1.push(element);
        }
        for (element, (old, new)) in groups {
            parts.put(element, group_change(old.len(), new.len(), old == new), None);
        }
    }
    (change_of_container(old.is_empty(), new.is_empty()), parts.comparison())
}
