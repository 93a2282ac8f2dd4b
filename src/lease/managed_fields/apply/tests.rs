//! Tests with sequences of applies: some sequences are fixed, and some are random.

use super::*;
use crate::codec::json::encode_lease_into;
use crate::lease::managed_fields::update::tests::{by, shown};
use crate::lease::managed_fields::{FieldsV1, ManagedFieldsEntry, Subresource};
use crate::resource::API_VERSION;
use crate::timestamp::MicroTime;
use std::collections::{BTreeMap, BTreeSet};

fn config(metadata: &Value, spec: &Value) -> Value {
    let mut config = json!({"apiVersion": API_VERSION, "kind": KIND, "metadata": metadata, "spec": spec});
    config["metadata"]["name"] = "a".into();
    config
}

fn try_apply(live: Option<&Lease>, config: &Value, writer: &Writer<'_>, force: bool) -> Result<Lease, ApiError> {
    let json_of = |lease: &Lease, version| {
        let mut json = Vec::new();
        encode_lease_into(&mut json, lease, Some(version), true);
        json
    };
    apply(live.map(|live| (live, ResourceVersion(1))), config, writer, force, json_of).map(|mut lease| {
        lease.metadata.uid = "u".into();
        lease.metadata.resource_version = CompactString::default();
        lease
    })
}

fn applied(live: Option<&Lease>, metadata: Value, spec: Value, writer: &Writer<'_>) -> Lease {
    try_apply(live, &config(&metadata, &spec), writer, false).expect("no conflict")
}

fn updated(live: &Lease, manager: &str, change: impl FnOnce(&mut Lease)) -> Lease {
    let mut new = live.clone();
    change(&mut new);
    track(Some(live), &mut new, &by(manager, 50));
    new
}

fn message(result: Result<Lease, ApiError>) -> (u16, String) {
    let status = result.expect_err("a refusal").status();
    (status.code, status.message)
}

#[test]
fn the_first_apply_owns_what_it_names() {
    let lease =
        applied(None, json!({"labels": {"l": "1"}}), json!({"holderIdentity": "x", "strategy": null}), &by("one", 7));
    assert_eq!(
        shown(&lease),
        [r#"one Apply 7 {"f:metadata":{"f:labels":{"f:l":{}}},"f:spec":{"f:holderIdentity":{},"f:strategy":{}}}"#]
    );
    // The second apply omits `strategy`, which was null. So it changes no value, and the time in the entry of the
    // manager stays 7. But the manager no longer owns `strategy`.
    let again = applied(Some(&lease), json!({"labels": {"l": "1"}}), json!({"holderIdentity": "x"}), &by("one", 9));
    assert_eq!(
        shown(&again)[0],
        r#"one Apply 7 {"f:metadata":{"f:labels":{"f:l":{}}},"f:spec":{"f:holderIdentity":{}}}"#
    );
}

#[test]
fn abandoned_fields_go_unless_another_manager_owns_them() {
    let one = by("one", 1);
    let lease = applied(
        None,
        json!({"labels": {"a": "1", "b": "1"}, "finalizers": ["f", "g"]}),
        json!({"leaseTransitions": 1}),
        &one,
    );
    let lease = applied(Some(&lease), json!({"labels": {"b": "1"}, "finalizers": ["g"]}), json!({}), &by("two", 2));
    let lease = updated(&lease, "somebody", |lease| lease.spec.strategy = Some("s".into()));
    let lease = applied(Some(&lease), json!({}), json!({}), &one);
    assert_eq!(lease.metadata.labels.iter().collect::<Vec<_>>(), [("b", "1")]);
    assert_eq!(lease.metadata.finalizers, ["g"]);
    assert_eq!((lease.spec.lease_transitions, lease.spec.strategy.as_deref()), (None, Some("s")));
    // The apply by `two` changed no value, since `one` had already set the label `b` and the finalizer `g`. So the
    // entry of `two` has no time, which `shown` prints as -1. The second apply by `one` omits `b` and `g`. So only
    // `two` still owns them.
    assert_eq!(
        shown(&lease),
        [
            r#"two Apply -1 {"f:metadata":{"f:finalizers":{"v:\"g\"":{}},"f:labels":{"f:b":{}}},"f:spec":{}}"#,
            r#"one Apply 1 {"f:spec":{}}"#,
            r#"somebody Update 50 {"f:spec":{"f:strategy":{}}}"#,
        ]
    );
}

#[test]
fn conflicts_name_every_field_by_manager() {
    let lease = applied(None, json!({"labels": {"a": "1"}}), json!({"holderIdentity": "x"}), &by("one", 1));
    let lease = updated(&lease, "kubelet", |lease| lease.spec.renew_time = Some(MicroTime(0)));
    let spec = json!({"holderIdentity": "y", "renewTime": "2026-01-02T03:04:05.000000Z"});
    let other = config(&json!({"labels": {"a": "2", "b": "1"}}), &spec);
    let refusal = try_apply(Some(&lease), &other, &by("two", 2), false).expect_err("conflicts").status();
    assert_eq!(refusal.code, 409);
    assert_eq!(
        refusal.message,
        "Apply failed with 3 conflicts: conflicts with \"kubelet\" using coordination.k8s.io/v1:\n- .spec.renewTime\nconflicts with \"one\":\n- .metadata.labels.a\n- .spec.holderIdentity"
    );
    let causes = refusal.details.expect("details").causes;
    let fields: Vec<_> = causes.iter().map(|cause| (cause.message.as_str(), cause.field.as_str())).collect();
    assert_eq!(
        fields,
        [
            ("conflict with \"kubelet\" using coordination.k8s.io/v1", ".spec.renewTime"),
            ("conflict with \"one\"", ".metadata.labels.a"),
            ("conflict with \"one\"", ".spec.holderIdentity"),
        ]
    );
    // An applied `null` differs from the current value, so it is a conflict too.
    let null = config(&json!({}), &json!({"holderIdentity": null}));
    let one = "Apply failed with 1 conflict: conflict with \"one\": .spec.holderIdentity".to_owned();
    assert_eq!(message(try_apply(Some(&lease), &null, &by("two", 2), false)), (409, one));
    let forced = try_apply(Some(&lease), &other, &by("two", 2), true).expect("by force");
    assert_eq!(
        shown(&forced),
        [
            r#"two Apply 2 {"f:metadata":{"f:labels":{"f:a":{},"f:b":{}}},"f:spec":{"f:holderIdentity":{},"f:renewTime":{}}}"#
        ]
    );
}

#[test]
fn existing_fields_get_a_before_first_apply_manager() {
    let mut lease = updated(&Lease::default(), "m", |lease| lease.spec.holder_identity = Some("x".into()));
    lease.metadata.uid = "u".into();
    assert!(lease.metadata.managed_fields.is_absent());
    let lease = applied(Some(&lease), json!({"labels": {"l": "1"}}), json!({}), &by("one", 7));
    assert_eq!(
        shown(&lease),
        [
            r#"one Apply 7 {"f:metadata":{"f:labels":{"f:l":{}}},"f:spec":{}}"#,
            r#"before-first-apply Update 7 {"f:spec":{"f:holderIdentity":{}}}"#,
        ]
    );
}

#[test]
fn owner_references_are_keyed_by_uid_and_owned_whole() {
    let owner = |uid: &str, name: &str| json!({"apiVersion": "v1", "kind": "Node", "name": name, "uid": uid});
    let lease = applied(None, json!({"ownerReferences": [owner("1", "a")]}), json!({}), &by("one", 1));
    let lease =
        applied(Some(&lease), json!({"ownerReferences": [owner("2", "b"), owner("1", "a")]}), json!({}), &by("two", 2));
    let uids: Vec<_> = lease.metadata.owner_references.iter().map(|owner| owner.uid.as_str()).collect();
    assert_eq!(uids, ["2", "1"]);
    let other = config(&json!({"ownerReferences": [owner("1", "c")]}), &json!({}));
    let words = "Apply failed with 2 conflicts: conflicts with \"one\":\n- .metadata.ownerReferences[uid=\"1\"]\nconflicts with \"two\":\n- .metadata.ownerReferences[uid=\"1\"]";
    assert_eq!(message(try_apply(Some(&lease), &other, &by("three", 3), false)), (409, words.to_owned()));
}

#[test]
fn bad_configurations_are_refused_in_the_words_of_kube_apiserver() {
    let refused = |config: Value| message(try_apply(None, &config, &by("one", 1), false));
    let typed =
        |what: &str| (500, format!("failed to create typed patch object (/a; {API_VERSION}, Kind=Lease): {what}"));
    let spec = |spec: Value| refused(config(&json!({}), &spec));
    let metadata = |metadata: Value| refused(config(&metadata, &json!({})));
    assert_eq!(spec(json!({"unknown": 1})), typed(".spec.unknown: field not declared in schema"));
    assert_eq!(spec(json!([])), typed(".spec: expected map, got &{[]}"));
    assert_eq!(
        spec(json!({"holderIdentity": 5, "leaseTransitions": "x"})),
        typed(
            "errors:\n  .spec.holderIdentity: expected string, got &value.valueUnstructured{Value:5}\n  .spec.leaseTransitions: expected numeric (int or float), got string"
        )
    );
    assert_eq!(
        metadata(json!({"finalizers": ["a", "a"]})),
        typed(".metadata.finalizers: duplicate entries for key [=\"a\"]")
    );
    assert_eq!(
        metadata(json!({"ownerReferences": [{"uid": "u", "controller": "x"}]})),
        typed(".metadata.ownerReferences[uid=\"u\"].controller: expected boolean, got &{x}")
    );
    assert_eq!(
        metadata(json!({"finalizers": [null]})),
        typed(".metadata.finalizers: element 0: associative list without keys has an element that's an explicit null")
    );
    assert_eq!(
        metadata(json!({"labels": {"a": {}}})),
        typed(".metadata.labels.a: expected string, got &value.valueUnstructured{Value:map[string]interface {}{}}")
    );
    assert_eq!(metadata(json!({"managedFields": []})), (400, "metadata.managedFields must be nil".to_owned()));
    let (code, words) = spec(json!({"renewTime": "x"}));
    assert!(code == 500 && words.starts_with("failed to convert new object (/a; coordination.k8s.io/v1, Kind=Lease) to proper version: unable to convert unstructured object to coordination.k8s.io/v1, Kind=Lease: parsing time"), "{words}");
    for (config, shown) in [
        (json!({}), "/, Kind="),
        (json!(null), "/, Kind="),
        (json!({"apiVersion": "v1", "kind": "Pod"}), "/v1, Kind=Pod"),
        (json!({"apiVersion": "a/b/c", "kind": "Lease"}), "/, Kind="),
        (
            json!({"apiVersion": "coordination.k8s.io/v1beta1", "kind": "Lease"}),
            "coordination.k8s.io/v1beta1, Kind=Lease",
        ),
    ] {
        assert_eq!(refused(config), (400, format!("invalid object type: {shown}")));
    }
}

#[test]
fn kubectl_takes_over_fields_of_client_side_apply() {
    let last = config(&json!({}), &json!({"holderIdentity": "x", "leaseTransitions": 1})).to_string();
    let mut lease = Lease::default();
    lease.metadata.name = "a".into();
    lease.metadata.annotations.insert(LAST_APPLIED.into(), last.as_str().into());
    (lease.spec.holder_identity, lease.spec.lease_transitions) = (Some("x".into()), Some(1));
    track(None, &mut lease, &by("kubectl-client-side-apply", 1));
    lease.metadata.uid = "u".into();
    let wanted = config(&json!({}), &json!({"holderIdentity": "y"}));
    let after = try_apply(Some(&lease), &wanted, &by("kubectl", 2), false).expect("taken over");
    assert_eq!(after.spec.holder_identity.as_deref(), Some("y"));
    assert_eq!(after.metadata.annotations.value(LAST_APPLIED), Some(format!("{wanted}\n").as_str()));
    assert!(try_apply(Some(&lease), &wanted, &by("other", 2), false).is_err());
    // Another manager then changes the field. So the value of the field no longer equals that in the annotation, and
    // `kubectl` does not take the field over.
    let changed = updated(&lease, "controller", |lease| lease.spec.holder_identity = Some("z".into()));
    let words =
        "Apply failed with 1 conflict: conflict with \"controller\" using coordination.k8s.io/v1: .spec.holderIdentity";
    assert_eq!(message(try_apply(Some(&changed), &wanted, &by("kubectl", 2), false)), (409, words.to_owned()));
}

#[test]
fn the_last_applied_annotation_has_only_string_annotations() {
    let mut lease = Lease::default();
    lease.metadata.name = "a".into();
    lease.metadata.annotations.insert(LAST_APPLIED.into(), "{}".into());
    track(None, &mut lease, &by("kubectl-client-side-apply", 1));
    lease.metadata.uid = "u".into();
    for (annotations, kept) in [
        (json!({"c.d/e": null, "x": "1"}), json!({"name": "a", "annotations": {"c.d/e": "", "x": "1"}})),
        (json!({LAST_APPLIED: "{}"}), json!({"name": "a", "annotations": {}})),
        (json!(null), json!({"name": "a"})),
    ] {
        let after = applied(Some(&lease), json!({"annotations": annotations}), json!({}), &by("kubectl", 2));
        let last = config(&kept, &json!({})).to_string();
        assert_eq!(after.metadata.annotations.value(LAST_APPLIED), Some(format!("{last}\n").as_str()));
    }
}

#[test]
fn an_apply_without_changes_does_not_convert_the_lease() {
    let mut lease = applied(None, json!({}), json!({"holderIdentity": "a"}), &by("one", 1));
    lease.spec.acquire_time = crate::timestamp::parse_micro_time("0001-01-01T00:00:00.000000Z").ok();
    assert!(lease.spec.acquire_time.is_some());
    let again = applied(Some(&lease), json!({}), json!({"holderIdentity": "a"}), &by("one", 2));
    assert_eq!(again.spec, lease.spec);
}

#[test]
fn merged_lists_keep_the_order_of_the_configuration() {
    let finalizers = |live: &[&str], over: &[&str]| {
        let lease = applied(None, json!({"finalizers": live}), json!({}), &by("one", 1));
        let lease = applied(Some(&lease), json!({"finalizers": over}), json!({}), &by("two", 2));
        lease.metadata.finalizers.iter().map(ToString::to_string).collect::<Vec<_>>()
    };
    assert_eq!(finalizers(&["a", "b", "c"], &["c", "a"]), ["b", "c", "a"]);
    assert_eq!(finalizers(&["a", "b", "c"], &["b"]), ["a", "b", "c"]);
    assert_eq!(finalizers(&["a", "b"], &["c", "d"]), ["a", "b", "c", "d"]);
    assert_eq!(finalizers(&["a", "b", "c"], &["x", "b", "y"]), ["a", "x", "b", "c", "y"]);
}

/// Goal: an apply merges the sets of all managers' fields in one step. One step for each manager would copy the large
/// set each time, which would take minutes.
#[test]
fn an_apply_merges_the_fields_of_all_managers_at_once() {
    let entry = |manager: &str, fields: String| ManagedFieldsEntry {
        manager: manager.into(),
        operation: Operation::Apply,
        api_version: API_VERSION.into(),
        time: None,
        fields: FieldsV1::from_client(&fields),
        subresource: Subresource::default(),
    };
    let wide: Vec<_> = (0..50_000).map(|n| format!("\"f:{n}\":{{}}")).collect();
    let mut entries = vec![entry("0", format!("{{\"f:spec\":{{{}}}}}", wide.join(",")))];
    entries.extend((1..30_000).map(|n| entry(&n.to_string(), "{\"f:spec\":{\"f:a\":{}}}".to_owned())));
    let mut live = Lease::default();
    live.metadata.managed_fields = ManagedFields::stored(entries);
    let lease = applied(Some(&live), json!({}), json!({"leaseDurationSeconds": 1}), &by("1", 1));
    assert_eq!(lease.metadata.managed_fields.entries().len(), 30_000);
}

type Leaf = (&'static str, &'static str);

const LEAVES: [Leaf; 6] = [
    ("labels", "a"),
    ("labels", "b"),
    ("annotations", "a"),
    ("spec", "holderIdentity"),
    ("spec", "strategy"),
    ("spec", "preferredHolder"),
];

fn path_of((parent, name): Leaf) -> Vec<PathElement> {
    let below: &[&str] = if parent == "spec" { &["spec"] } else { &["metadata", parent] };
    below.iter().chain([&name]).map(|step| PathElement::field(step)).collect()
}

fn value_of(lease: &Lease, (parent, name): Leaf) -> Option<String> {
    let text = match (parent, name) {
        ("labels", _) => lease.metadata.labels.value(name),
        ("annotations", _) => lease.metadata.annotations.value(name),
        (_, "holderIdentity") => lease.spec.holder_identity.as_deref(),
        (_, "strategy") => lease.spec.strategy.as_deref(),
        _ => lease.spec.preferred_holder.as_deref(),
    };
    text.map(str::to_owned)
}

/// A model of field ownership, only for fields without nested fields. For each field, the model contains the value and
/// the owners. An owner is the name of a manager, and whether the manager wrote by apply.
#[derive(Clone, Default)]
struct Model(BTreeMap<Leaf, (String, BTreeSet<(String, bool)>)>);

impl Model {
    /// Applies a configuration to the model. Returns whether the apply has a conflict.
    fn apply(&mut self, manager: &str, config: &BTreeMap<Leaf, String>, force: bool) -> bool {
        let me = (manager.to_owned(), true);
        let is_conflict = config.iter().any(|(leaf, value)| {
            self.0.get(leaf).is_some_and(|(old, owners)| old != value && owners.iter().any(|owner| *owner != me))
        });
        if is_conflict && !force {
            return true;
        }
        for leaf in LEAVES {
            match (config.get(&leaf), self.0.get_mut(&leaf)) {
                (Some(value), Some((old, owners))) => {
                    if old != value {
                        owners.clear();
                        old.clone_from(value);
                    }
                    owners.insert(me.clone());
                }
                (Some(value), None) => {
                    _ = self.0.insert(leaf, (value.clone(), BTreeSet::from([me.clone()])));
                }
                (None, Some((_, owners))) => {
                    if owners.remove(&me) && owners.is_empty() {
                        self.0.remove(&leaf);
                    }
                }
                (None, None) => {}
            }
        }
        false
    }

    fn update(&mut self, manager: &str, new: &BTreeMap<Leaf, String>) {
        for leaf in LEAVES {
            match new.get(&leaf) {
                None => _ = self.0.remove(&leaf),
                Some(value) if self.0.get(&leaf).is_some_and(|(old, _)| old == value) => {}
                Some(value) => {
                    _ = self.0.insert(leaf, (value.clone(), BTreeSet::from([(manager.to_owned(), false)])));
                }
            }
        }
    }
}

/// Compares random sequences of applies and updates by a few managers with the model. One label and one annotation
/// never change, so that their maps are always present: the model does not cover owners of the maps themselves.
#[test]
fn random_histories_follow_the_model() {
    let mut rng = fastrand::Rng::with_seed(21);
    let mut conflicts = 0;
    for _ in 0..400 {
        let mut live = Lease::default();
        live.metadata.labels.insert("kept".into(), String::new().into());
        live.metadata.annotations.insert("kept".into(), String::new().into());
        track(None, &mut live, &by("creator", 0));
        live.metadata.uid = "u".into();
        let mut model = Model::default();
        for now in 1..15 {
            let values: BTreeMap<Leaf, String> = LEAVES
                .into_iter()
                .map(|leaf| (leaf, rng.u8(..3).to_string()))
                .filter(|(_, value)| value != "2")
                .collect();
            let (mut metadata, mut spec) = (json!({}), json!({}));
            for ((parent, name), value) in &values {
                let into = if *parent == "spec" { &mut spec } else { &mut metadata[*parent] };
                into[*name] = value.clone().into();
            }
            let manager = rng.choice(["one", "two", "three"]).expect("one");
            let wanted = config(&metadata, &spec);
            if rng.bool() {
                let force = rng.bool();
                let result = try_apply(Some(&live), &wanted, &by(manager, now), force);
                assert_eq!(result.is_err(), model.apply(manager, &values, force), "{wanted} {:?}", shown(&live));
                match result {
                    Ok(lease) => live = lease,
                    Err(_) => conflicts += 1,
                }
            } else {
                let mut new = lease_from_value(&wanted).expect("a Lease").lease;
                new.metadata.uid = "u".into();
                new.metadata.labels.insert("kept".into(), String::new().into());
                new.metadata.annotations.insert("kept".into(), String::new().into());
                track(Some(&live), &mut new, &by(manager, now));
                model.update(manager, &values);
                live = new;
            }
            let lease = &live;
            for leaf in LEAVES {
                let expected = model.0.get(&leaf);
                assert_eq!(value_of(lease, leaf).as_ref(), expected.map(|(value, _)| value), "{leaf:?}");
                let owners: BTreeSet<_> = lease
                    .metadata
                    .managed_fields
                    .entries()
                    .iter()
                    .filter(|entry| Set::parse(&entry.fields.as_json()).expect("a set").has(&path_of(leaf)))
                    .map(|entry| (entry.manager.to_string(), entry.operation == Operation::Apply))
                    .collect();
                assert_eq!(
                    Some(&owners).filter(|owners| !owners.is_empty()),
                    expected.map(|(_, owners)| owners),
                    "{leaf:?}"
                );
            }
            for entry in lease.metadata.managed_fields.entries() {
                let set = Set::parse(&entry.fields.as_json()).expect("a set");
                assert_eq!(entry.fields, FieldsV1::of(&set));
                assert!(!set.is_empty());
            }
        }
    }
    assert!(conflicts > 200, "{conflicts}");
}
