//! The changes of `managedFields` by a create, an update, or a patch other than an apply.

use super::compare::{SpecChanges, compare_leases};
use super::managers::{Managers, normalized, without_system_fields};
use super::{ManagedFields, ManagedFieldsEntry, Operation, SpecFields};
use crate::lease::{Lease, ObjectMeta};
use crate::resource::API_VERSION;
use crate::timestamp::Time;
use std::rc::Rc;

/// The writer of a Lease and the time of the write.
#[derive(Clone, Copy, Debug)]
pub struct Writer<'w> {
    /// Name of the field manager; empty if the writer has none.
    pub manager: &'w str,
    /// API version in the path of the request.
    pub api_version: &'w str,
    /// Time of the write.
    pub now: Time,
}

impl Writer<'_> {
    /// Returns the name under which the writer owns fields.
    pub(super) fn name(&self) -> &str {
        if self.manager.is_empty() { super::UNKNOWN } else { self.manager }
    }
}

/// Sets the `managedFields` of `new`, which replaces `live`. Without `live`, `new` is a creation. Before this call,
/// `new` contains the list that the client sent: the list to continue from, or a request to remove all entries.
pub fn track(live: Option<&Lease>, new: &mut Lease, writer: &Writer<'_>) {
    let sent = std::mem::take(&mut new.metadata.managed_fields);
    let stored = live.map_or(&ManagedFields::ABSENT, |live| &live.metadata.managed_fields);
    let (list, is_normal) = list_in_effect(sent, stored);
    new.metadata.managed_fields = match live {
        // Without entries, the fields of the object are not tracked. Only a server-side apply begins to track the
        // fields of an existing object.
        Some(_) if list.entries().is_empty() => ManagedFields::ABSENT,
        Some(live) if is_normal => {
            renewed(live, new, &list, writer).unwrap_or_else(|| recomputed(live, new, &list, writer))
        }
        Some(live) => recomputed(live, new, &list, writer),
        None => recomputed(&Lease::default(), new, &list, writer),
    };
}

/// Returns the list that a write continues from: the client's list if it is valid, otherwise the list of the stored
/// object. Also returns whether the returned list has the form of a stored list.
fn list_in_effect(sent: ManagedFields, stored: &ManagedFields) -> (ManagedFields, bool) {
    let Some(sent) = &sent.0 else { return (stored.clone(), true) };
    if sent.is_empty() {
        return (ManagedFields::ABSENT, true);
    }
    let (known, mut same_times) = (stored.entries(), true);
    let is_known = sent.len() == known.len()
        && sent.iter().zip(known).all(|(sent, known)| {
            same_times &= sent.time == known.time;
            sent.is_same_but_for_time(known)
        });
    if is_known && same_times {
        return (stored.clone(), true);
    }
    match normalized(sent, known) {
        Some(entries) => (ManagedFields::new(entries), false),
        None => (stored.clone(), true),
    }
}

/// Returns the list after a renewal. Here, a renewal is a write that changes nothing, or only the values of spec fields
/// that the writer alone owns. Returns `None` for any other write, or if the fields of an entry are not known.
#[inline]
fn renewed(live: &Lease, new: &Lease, list: &ManagedFields, writer: &Writer<'_>) -> Option<ManagedFields> {
    if !is_same_metadata(&live.metadata, &new.metadata) {
        return None;
    }
    let changes = SpecChanges::between(&live.spec, &new.spec);
    if !changes.added.is_empty() || !changes.removed.is_empty() {
        return None;
    }
    if changes.modified.is_empty() {
        return Some(list.clone());
    }
    let mut own = None;
    for (at, entry) in list.entries().iter().enumerate() {
        let spec = entry.fields.spec?;
        if is_own(entry, writer) && spec.contains(changes.modified) {
            own = Some(at);
        } else if spec.intersects(changes.modified) {
            return None;
        }
    }
    let own = own?;
    if list.entries().get(own)?.time == Some(writer.now) {
        return Some(list.clone());
    }
    let mut entries: Rc<[ManagedFieldsEntry]> = Rc::from(list.entries());
    let unshared = Rc::get_mut(&mut entries)?;
    unshared.get_mut(own)?.time = Some(writer.now);
    if unshared.len() > 1 {
        unshared.sort_by(ManagedFieldsEntry::list_order);
    }
    Some(ManagedFields(Some(entries)))
}

/// Returns the time that [`track`] would set in the last entry of `list`, for a renewal: a write in `v1` that changes
/// only `renewTime`. Returns `Some(None)` if `list` has no entries, and `None` if [`track`] might change more than this
/// time. `last_time` is the current time of the last entry. The time in `list` may be older, since the table stores the
/// times of a renewal apart from the list. `is_writer` returns whether the writer has a given manager name.
#[inline]
pub fn time_after_renewal(
    list: &ManagedFields,
    last_time: Option<Time>,
    is_writer: impl Fn(&str) -> bool,
    now: Time,
) -> Option<Option<Time>> {
    // Without entries, the fields of the object are not tracked, and an update does not begin to track them.
    let Some((last, others)) = list.entries().split_last() else { return Some(None) };
    let is_last_alone = last.operation == Operation::Update
        && last.api_version == API_VERSION
        && last.subresource.is_empty()
        && last.fields.spec?.contains(SpecFields::RENEW_TIME)
        && others.iter().all(|other| other.fields.spec.is_some_and(|spec| !spec.intersects(SpecFields::RENEW_TIME)));
    // The entries are sorted by time. If the new time were earlier than the current time of the last entry, another
    // entry might become the last one.
    let stays_last = others.is_empty() || last_time? <= now;
    (is_last_alone && last_time.is_some() && stays_last && is_writer(&last.manager)).then_some(Some(now))
}

fn is_own(entry: &ManagedFieldsEntry, writer: &Writer<'_>) -> bool {
    entry.operation == Operation::Update
        && entry.manager == writer.name()
        && entry.api_version == writer.api_version
        && entry.subresource.is_empty()
}

/// Returns the list after any write. The writer owns the fields that it has changed, and no manager owns the removed
/// fields.
fn recomputed(live: &Lease, new: &Lease, list: &ManagedFields, writer: &Writer<'_>) -> ManagedFields {
    // Like kube-apiserver, retains the list of the stored object if the new list cannot be parsed.
    let Ok(mut managers) = Managers::read(list) else { return live.metadata.managed_fields.clone() };
    let comparison = compare_leases(live, new);
    managers.take_away(&comparison, None);
    managers.drop_empty();
    let own = without_system_fields(&comparison.modified.union(&comparison.added));
    if !own.is_empty() {
        managers.give(writer.name(), writer.api_version, own, writer.now);
    }
    managers.cap_updaters();
    managers.into_list()
}

/// Whether the metadata of two objects is equal, apart from `resourceVersion` and `managedFields`.
#[inline]
fn is_same_metadata(a: &ObjectMeta, b: &ObjectMeta) -> bool {
    a.name == b.name
        && a.generate_name == b.generate_name
        && a.namespace == b.namespace
        && a.self_link == b.self_link
        && a.uid == b.uid
        && a.generation == b.generation
        && a.creation_timestamp == b.creation_timestamp
        && a.deletion_timestamp == b.deletion_timestamp
        && a.deletion_grace_period_seconds == b.deletion_grace_period_seconds
        && a.labels == b.labels
        && a.annotations == b.annotations
        && a.owner_references == b.owner_references
        && a.finalizers == b.finalizers
}

/// If `live` and `new` differ only in the times of `managedFields`, sets the times of `live` in `new`. So a write that
/// changes only these times changes nothing.
pub fn settle_times(live: &Lease, new: &mut Lease) {
    let (known, own) = (&live.metadata.managed_fields, &new.metadata.managed_fields);
    let same_owners = known.entries().len() == own.entries().len()
        && known.entries().iter().zip(own.entries()).all(|(known, own)| known.is_same_but_for_time(own));
    if same_owners && live.spec == new.spec && is_same_metadata(&live.metadata, &new.metadata) {
        new.metadata.managed_fields = known.clone();
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::super::FieldsV1;
    use super::*;
    use crate::lease::{LeaseSpec, OwnerReference};
    use crate::timestamp::MicroTime;

    pub(crate) fn by(manager: &str, now: i64) -> Writer<'_> {
        Writer { manager, api_version: API_VERSION, now: Time(now) }
    }

    pub(crate) fn shown(lease: &Lease) -> Vec<String> {
        let entries = lease.metadata.managed_fields.entries().iter();
        entries
            .map(|e| {
                let time = e.time.map_or(-1, |time| time.0);
                format!("{} {} {time} {}", e.manager, e.operation.as_str(), e.fields.as_json())
            })
            .collect()
    }

    fn kubelet_lease() -> Lease {
        let owner = OwnerReference {
            api_version: "v1".into(),
            kind: "Node".into(),
            name: "n".into(),
            uid: "u".into(),
            ..OwnerReference::default()
        };
        let mut lease = Lease::named("kube-node-lease", "n");
        lease.metadata.owner_references = vec![owner];
        lease.spec.holder_identity = Some("n".into());
        lease.spec.lease_duration_seconds = Some(40);
        lease.spec.renew_time = Some(MicroTime(1));
        track(None, &mut lease, &by("kubelet", 100));
        lease.metadata.uid = "own".into();
        lease
    }

    const KUBELET: &str = r#"{"f:metadata":{"f:ownerReferences":{".":{},"k:{\"uid\":\"u\"}":{}}},"f:spec":{"f:holderIdentity":{},"f:leaseDurationSeconds":{},"f:renewTime":{}}}"#;

    #[test]
    fn a_creation_owns_what_it_sets() {
        assert_eq!(shown(&kubelet_lease()), [format!("kubelet Update 100 {KUBELET}")]);
        let mut bare = Lease::default();
        track(None, &mut bare, &by("m", 1));
        assert!(bare.metadata.managed_fields.is_absent());
    }

    #[test]
    fn a_renewal_changes_the_time_and_shares_the_fields() {
        let live = kubelet_lease();
        let mut new = live.clone();
        new.spec.renew_time = Some(MicroTime(2));
        track(Some(&live), &mut new, &by("kubelet", 110));
        assert_eq!(shown(&new), [format!("kubelet Update 110 {KUBELET}")]);
        let fields = |lease: &Lease| lease.metadata.managed_fields.entries()[0].fields.clone();
        assert!(fields(&live).is_shared_with(&fields(&new)));
        // A renewal within the same second changes nothing in the list.
        let before = new.clone();
        new.spec.renew_time = Some(MicroTime(3));
        track(Some(&before), &mut new, &by("kubelet", 110));
        assert_eq!(new.metadata.managed_fields.entries().as_ptr(), before.metadata.managed_fields.entries().as_ptr());
    }

    #[test]
    fn an_update_that_changes_nothing_keeps_the_time() {
        let live = kubelet_lease();
        let mut new = live.clone();
        track(Some(&live), &mut new, &by("somebody", 200));
        assert_eq!(new, live);
        // The time does not change even if the client sends other times in its update.
        let mut entries = live.metadata.managed_fields.entries().to_vec();
        entries[0].time = Some(Time(7));
        new.metadata.managed_fields = ManagedFields::new(entries);
        track(Some(&live), &mut new, &by("somebody", 200));
        assert_ne!(new, live);
        settle_times(&live, &mut new);
        assert_eq!(new, live);
    }

    #[test]
    fn changed_fields_pass_to_the_writer() {
        let live = kubelet_lease();
        let mut new = live.clone();
        new.spec.holder_identity = Some("other".into());
        new.metadata.labels.insert("l".into(), "1".into());
        track(Some(&live), &mut new, &by("", 110));
        assert_eq!(
            shown(&new),
            [
                r#"kubelet Update 100 {"f:metadata":{"f:ownerReferences":{".":{},"k:{\"uid\":\"u\"}":{}}},"f:spec":{"f:leaseDurationSeconds":{},"f:renewTime":{}}}"#,
                r#"unknown Update 110 {"f:metadata":{"f:labels":{".":{},"f:l":{}}},"f:spec":{"f:holderIdentity":{}}}"#,
            ]
        );
        let last = new.clone();
        new.spec = LeaseSpec::default();
        new.metadata.owner_references.clear();
        track(Some(&last), &mut new, &by("eraser", 120));
        assert_eq!(shown(&new), [r#"unknown Update 110 {"f:metadata":{"f:labels":{".":{},"f:l":{}}}}"#]);
    }

    #[test]
    fn an_empty_list_ends_the_tracking_of_managed_fields() {
        let live = kubelet_lease();
        let mut new = live.clone();
        new.metadata.managed_fields = ManagedFields::reset();
        new.spec.lease_transitions = Some(1);
        track(Some(&live), &mut new, &by("eraser", 110));
        assert!(new.metadata.managed_fields.is_absent());
        let last = new.clone();
        new.spec.lease_transitions = Some(2);
        track(Some(&last), &mut new, &by("m", 120));
        assert!(new.metadata.managed_fields.is_absent());
    }

    #[test]
    fn a_client_may_edit_the_list_and_a_bad_edit_is_passed_over() {
        let live = kubelet_lease();
        let edited = |json: &str, api_version: &str| {
            let mut entries = live.metadata.managed_fields.entries().to_vec();
            entries[0].fields = FieldsV1::from_client(json);
            entries[0].api_version = api_version.into();
            let mut new = live.clone();
            new.metadata.managed_fields = ManagedFields::new(entries);
            track(Some(&live), &mut new, &by("m", 110));
            shown(&new)
        };
        let own = [r#"kubelet Update 100 {"f:made":{"f:up":{}},"f:spec":{"f:renewTime":{}}}"#];
        assert_eq!(edited(r#"{"f:spec":{"f:renewTime":{}},"f:made":{"f:up":{}}}"#, API_VERSION), own);
        assert_eq!(edited("[]", API_VERSION), [format!("kubelet Update 100 {KUBELET}")]);
        let none: [&str; 0] = [];
        assert_eq!(edited("{}", API_VERSION), none);
        assert_eq!(edited(r#"{"f:spec":{}}"#, "apps/v1"), none);
        assert_eq!(edited(r#"{"f:spec":{}}"#, "a/b/c"), [format!("kubelet Update 100 {KUBELET}")]);
    }

    fn random_lease(rng: &mut fastrand::Rng) -> Lease {
        let mut pick = |of: u8| rng.u8(..of);
        let mut meta = ObjectMeta { name: "n".into(), uid: "u".into(), ..ObjectMeta::default() };
        for key in ["a", "b", "c"] {
            if pick(3) == 0 {
                meta.labels.insert(key.into(), pick(2).to_string().into());
            }
            if pick(4) == 0 {
                meta.annotations.insert(key.into(), pick(2).to_string().into());
            }
            if pick(4) == 0 {
                meta.finalizers.push(key.into());
            }
            for _ in 0..pick(3).saturating_sub(1) + u8::from(pick(8) == 0) {
                let name = pick(2).to_string().into();
                meta.owner_references.push(OwnerReference { uid: key.into(), name, ..OwnerReference::default() });
            }
        }
        if pick(8) == 0 {
            meta.finalizers.push("a".into());
        }
        meta.generation = i64::from(pick(2));
        let mut spec = LeaseSpec::default();
        let mut number = || Some(i32::from(pick(3))).filter(|n| *n > 0);
        (spec.lease_duration_seconds, spec.lease_transitions) = (number(), number());
        spec.renew_time = number().map(|n| MicroTime(n.into()));
        spec.acquire_time = number().map(|n| MicroTime(n.into()));
        let mut text = || number().map(|n| n.to_string().into());
        (spec.holder_identity, spec.strategy, spec.preferred_holder) = (text(), text(), text());
        Lease { metadata: meta, spec }
    }

    /// Runs random sequences of writes by several writers. Compares the fast path (`renewed`) with the general path
    /// (`recomputed`), and the comparison of Leases with the comparison of their JSON.
    #[test]
    fn the_fast_path_and_the_general_path_give_the_same() {
        use super::super::schema::LEASE;
        use super::super::typed::compare;
        let json = |lease: &Lease| {
            let mut out = Vec::new();
            let mut lease = lease.clone();
            lease.metadata.managed_fields = ManagedFields::ABSENT;
            crate::codec::json::encode_lease_into(&mut out, &lease, None, true);
            serde_json::from_slice::<serde_json::Value>(&out).expect("JSON")
        };
        let mut rng = fastrand::Rng::with_seed(11);
        let mut short_cuts = 0;
        for _ in 0..300 {
            let mut live = random_lease(&mut rng);
            track(None, &mut live, &by("creator", 1));
            for now in 2..20 {
                let mut new = if rng.bool() { random_lease(&mut rng) } else { live.clone() };
                if rng.bool() {
                    new.metadata.managed_fields = live.metadata.managed_fields.clone();
                }
                for spec_field in [&mut new.spec.renew_time, &mut new.spec.acquire_time] {
                    if rng.u8(..3) == 0 {
                        *spec_field = Some(MicroTime(now));
                    }
                }
                assert_eq!(compare(Some(&json(&live)), Some(&json(&new)), LEASE).1, compare_leases(&live, &new));
                let writer = by(rng.choice(["creator", "other", "third"]).expect("one"), now / 3);
                let list = live.metadata.managed_fields.clone();
                if let Some(renewed) = renewed(&live, &new, &list, &writer) {
                    assert_eq!(renewed, recomputed(&live, &new, &list, &writer));
                    short_cuts += 1;
                }
                track(Some(&live), &mut new, &writer);
                for entry in new.metadata.managed_fields.entries() {
                    let set = super::super::set::Set::parse(&entry.fields.as_json()).expect("a set");
                    assert_eq!(entry.fields, FieldsV1::of(&set), "the form is normal");
                    assert_eq!(entry.fields.spec, FieldsV1::of(&set).spec);
                }
                live = new;
            }
        }
        assert!(short_cuts > 100, "{short_cuts}");
    }

    /// Compares updates with a model that stores the owners of each single field. The manager that last changed a field
    /// owns the field. Managers that owned the field before no longer own it.
    #[test]
    fn the_last_manager_to_change_a_field_owns_it() {
        use super::super::set::Set;
        use super::super::set::tests::paths;
        use std::collections::{BTreeMap, BTreeSet};
        let mut rng = fastrand::Rng::with_seed(12);
        for _ in 0..200 {
            let mut live = Lease::default();
            let mut owners: BTreeMap<Vec<super::super::path_element::PathElement>, String> = BTreeMap::new();
            for now in 0..12 {
                let mut new = random_lease(&mut rng);
                let name = rng.choice(["a", "b", "c"]).expect("one");
                let changes = compare_leases(&live, &new);
                for path in paths(&changes.removed) {
                    owners.remove(&path);
                }
                for path in paths(&without_system_fields(&changes.modified.union(&changes.added))) {
                    owners.insert(path, name.to_owned());
                }
                let is_tracked = now == 0 || !live.metadata.managed_fields.is_absent();
                track(Some(&live).filter(|_| now > 0), &mut new, &by(name, now));
                if !is_tracked {
                    break;
                }
                let mut found: BTreeMap<_, BTreeSet<String>> = BTreeMap::new();
                for entry in new.metadata.managed_fields.entries() {
                    for path in paths(&Set::parse(&entry.fields.as_json()).expect("a set")) {
                        found.entry(path).or_default().insert(entry.manager.to_string());
                    }
                }
                let expected: BTreeMap<_, BTreeSet<String>> =
                    owners.iter().map(|(path, name)| (path.clone(), BTreeSet::from([name.clone()]))).collect();
                assert_eq!(found, expected);
                live = new;
            }
        }
    }
}
