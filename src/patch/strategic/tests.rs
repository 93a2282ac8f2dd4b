//! Tests of every directive and every error, and of random patches.

use super::*;
use serde_json::json;

fn merged(current: &Value, patch: &[u8]) -> Result<Value, ApiError> {
    apply_strategic_merge_patch(current.to_string().as_bytes(), decode_strategic_merge_patch(patch)?)
}

fn patched(current: &Value, patch: &Value) -> Value {
    merged(current, patch.to_string().as_bytes()).expect("a patch")
}

fn metadata(current: &Value, patch: &Value) -> Value {
    patched(&json!({"metadata": current}), &json!({"metadata": patch}))["metadata"].clone()
}

fn refusal(current: &Value, patch: &str) -> (u16, String) {
    let status = merged(current, patch.as_bytes()).expect_err(patch).status();
    (status.code, status.message)
}

#[test]
fn new_list_elements_are_merged_in_front() {
    let owners = json!({"ownerReferences": [{"uid": "1", "name": "a"}], "finalizers": ["f", "g"]});
    let patch = json!({"ownerReferences": [{"uid": "2"}, {"uid": "1", "kind": "Node"}], "finalizers": ["h", "g"]});
    let expected = json!({
        "ownerReferences": [{"uid": "2"}, {"uid": "1", "name": "a", "kind": "Node"}],
        "finalizers": ["h", "f", "g"],
    });
    assert_eq!(metadata(&owners, &patch), expected);
    assert_eq!(
        metadata(&json!({"managedFields": [{"manager": "a"}]}), &json!({"managedFields": [{}]}))["managedFields"],
        json!([{}])
    );
}

#[test]
fn directives_of_lists() {
    let current = json!({"ownerReferences": [{"uid": "1"}, {"uid": "2"}, {"uid": "3"}], "finalizers": ["a", "b", "c"]});
    let owners = |patch: Value| metadata(&current, &json!({"ownerReferences": patch}))["ownerReferences"].clone();
    assert_eq!(owners(json!([{"$patch": "delete", "uid": "2"}])), json!([{"uid": "1"}, {"uid": "3"}]));
    assert_eq!(owners(json!([{"$patch": "replace"}, {"uid": "9"}])), json!([{"uid": "9"}]));
    assert_eq!(owners(json!(null)), Value::Null);
    let gone = metadata(&current, &json!({"$deleteFromPrimitiveList/finalizers": ["b", "x"]}));
    assert_eq!(gone["finalizers"], json!(["a", "c"]));
    let gone = metadata(&json!({}), &json!({"$deleteFromPrimitiveList/finalizers": ["b"]}));
    assert_eq!(gone, json!({}));
    let ordered = metadata(
        &current,
        &json!({"$setElementOrder/finalizers": ["c", "d", "a"], "finalizers": ["d"], "$setElementOrder/ownerReferences": [{"uid": "3"}, {"uid": "1"}]}),
    );
    assert_eq!(ordered["finalizers"], json!(["b", "c", "d", "a"]));
    assert_eq!(ordered["ownerReferences"], json!([{"uid": "2"}, {"uid": "3"}, {"uid": "1"}]));
}

/// Goal: elements that a patch with an empty `$setElementOrder` adds get the same places as in kube-apiserver. The
/// patch adds finalizers to the list `live`. Each letter is a finalizer. The expected lists are those of
/// kube-apiserver.
#[test]
fn new_elements_beside_an_empty_order() {
    let list = |letters: &str| letters.chars().map(String::from).collect::<Vec<_>>();
    for (live, patch, expected) in [
        ("", "de", "ed"),
        ("a", "d", "ad"),
        ("a", "ad", "da"),
        ("ab", "ad", "dab"),
        ("ab", "de", "abed"),
        ("abc", "cd", "dabc"),
    ] {
        let merged = metadata(
            &json!({"finalizers": list(live)}),
            &json!({"$setElementOrder/finalizers": [], "finalizers": list(patch)}),
        );
        assert_eq!(merged["finalizers"], json!(list(expected)), "{live} {patch}");
    }
}

/// Goal: if a patch deletes elements of a list and adds others, the merged list has the same order as in
/// kube-apiserver. The patch deletes some owners of the list `live`, sends others, and demands an order. Each digit is
/// the UID of an owner. The expected lists are those of kube-apiserver.
#[test]
fn new_owners_beside_deleted_owners() {
    let owners = |uids: &str| uids.chars().map(|uid| json!({"uid": uid.to_string()})).collect::<Vec<_>>();
    for (live, deleted, sent, order, expected) in [
        ("519", "51", "8", "8", "98"),
        ("17", "1", "384", "3854", "7384"),
        ("3198", "83", "7645", "7645", "197645"),
        ("69387", "397", "695", "6945", "6895"),
        ("941865", "854", "2", "2", "9162"),
    ] {
        let mut patch = owners(sent);
        patch.extend(deleted.chars().map(|uid| json!({"$patch": "delete", "uid": uid.to_string()})));
        let merged = metadata(
            &json!({"ownerReferences": owners(live)}),
            &json!({"$setElementOrder/ownerReferences": owners(order), "ownerReferences": patch}),
        );
        assert_eq!(merged["ownerReferences"], json!(owners(expected)), "{live} {deleted} {sent}");
    }
}

/// As in kube-apiserver, a `$patch` other than `delete` must not come after the last element of the order.
#[test]
fn a_directive_after_the_end_of_the_order_is_refused() {
    let current = json!({"metadata": {"ownerReferences": [{"uid": "1"}]}});
    let patch = |elements: Value| {
        let order = json!([{"uid": "3"}]);
        json!({"metadata": {"ownerReferences": elements, "$setElementOrder/ownerReferences": order}})
    };
    let accepted = patch(json!([{"$patch": "replace"}, {"uid": "3"}, {"$patch": "delete", "uid": "1"}]));
    assert_eq!(patched(&current, &accepted)["metadata"]["ownerReferences"], json!([{"uid": "3"}]));
    let refused = patch(json!([{"uid": "3"}, {"$patch": "replace"}])).to_string();
    let message = "The order in patch list:\n[map[uid:3] map[$patch:replace]]\n \
                   doesn't match $setElementOrder list:\n[map[uid:3]]\n";
    assert_eq!(refusal(&current, &refused), (500, message.to_owned()));
}

#[test]
fn directives_of_objects() {
    let current =
        json!({"metadata": {"labels": {"a": "1", "b": "2"}}, "spec": {"holderIdentity": "a", "leaseTransitions": 1}});
    assert_eq!(
        patched(&current, &json!({"spec": {"$patch": "replace", "strategy": "s"}}))["spec"],
        json!({"strategy": "s"})
    );
    assert_eq!(patched(&current, &json!({"spec": {"$patch": "delete"}}))["spec"], json!({}));
    let kept = json!({"metadata": {"labels": {"$retainKeys": ["a", "c"], "c": "3", "x": null}}});
    assert_eq!(patched(&current, &kept)["metadata"]["labels"], json!({"a": "1", "c": "3"}));
    // If the object has no value that the patch could be merged with, a directive has no effect.
    let annotations =
        metadata(&json!({}), &json!({"annotations": {"$patch": "replace", "k": "v"}, "labels": {"l": null}}));
    assert_eq!(annotations, json!({"labels": {}}));
    assert_eq!(patched(&current, &json!(null)), current);
    assert_eq!(patched(&current, &json!({"metadata": {"labels": "x"}}))["metadata"]["labels"], json!("x"));
}

#[test]
fn refusals_match_kube_apiserver() {
    let current = json!({"metadata": {"finalizers": ["f"], "ownerReferences": [{"uid": "1"}]}, "spec": {}});
    for (patch, code, message) in [
        (r#"{"spec":{"$patch":"nonsense"}}"#, 500, "unknown patch type: nonsense in map: map[$patch:nonsense]"),
        (r#"{"spec":{"$patch":1}}"#, 500, "unknown patch type: %!s(int64=1) in map: map[$patch:1]"),
        (r#"{"spec":{"$patch":{"a":1}}}"#, 500, "unknown patch type: map[a:%!s(int64=1)] in map: map[$patch:map[a:1]]"),
        ("[]", 400, "json: cannot unmarshal array into Go value of type map[string]interface {}"),
        (r#"{"spec":{"$retainKeys":1}}"#, 400, "invalid patch format of retainKeys"),
        (r#"{"spec":{"$retainKeys":["a"],"b":1}}"#, 400, "invalid patch format of retainKeys"),
        (r#"{"metadata":{"$deleteFromPrimitiveList":[]}}"#, 400, "invalid patch format of primitive list"),
        (r#"{"metadata":{"$setElementOrder":[]}}"#, 400, "invalid patch format of setElementOrder list"),
        (
            r#"{"metadata":{"ownerReferences":[{"name":"n"}]}}"#,
            500,
            "map: map[name:n] does not contain declared merge key: uid",
        ),
        (
            r#"{"metadata":{"ownerReferences":[{"$patch":"merge"}]}}"#,
            500,
            "merging lists cannot yet be specified in the patch",
        ),
        (r#"{"metadata":{"finalizers":[1]}}"#, 500, "list element types are not identical: [[f] [1]]"),
        (
            r#"{"metadata":{"$setElementOrder/colours":["a"]}}"#,
            500,
            "unable to find api field in struct ObjectMeta for the json field \"colours\"",
        ),
    ] {
        assert_eq!(refusal(&current, patch), (code, message.to_owned()), "{patch}");
    }
    assert_eq!(refusal(&json!({"metadata": {"finalizers": []}}), r#"{"metadata":{"finalizers":[[]]}}"#).0, 422);
}

/// Goal: the long element is not compared with each entry of the order, which would take minutes.
#[test]
fn a_long_element_is_ordered_in_linear_time() {
    let (long, places) = ("\n".repeat(1_000_000), vec!["a"; 20_000]);
    let patch = json!({"metadata": {"finalizers": [long], "$setElementOrder/finalizers": places}});
    let (code, message) = refusal(&json!({"metadata": {"name": "a"}}), &patch.to_string());
    assert!(code == 500 && message.starts_with("The order in patch list:\n["), "{code}");
}

/// Goal: a patch of random pieces gives a result or an error, and never causes a panic.
#[test]
fn random_patches_give_a_result_or_an_error() {
    let pieces = json!([
        null, 1, "delete", "replace", [], {}, ["a"], [["a"]], [{"uid": "1"}], [{"$patch": "delete", "uid": "1"}],
        [null], [1, "a"], [{"uid": null}],
    ]);
    let pieces = pieces.as_array().expect("an array");
    let keys: Vec<_> = "$patch $retainKeys $deleteFromPrimitiveList/finalizers $deleteFromPrimitiveList/x \
                        $setElementOrder/finalizers $setElementOrder/ownerReferences finalizers ownerReferences labels \
                        annotations name managedFields"
        .split(' ')
        .collect();
    let current = json!({"metadata": {"finalizers": ["a", "b"], "ownerReferences": [{"uid": "1"}, {"uid": "2"}], "labels": {"a": "1"}}});
    let mut rng = fastrand::Rng::with_seed(3);
    for _ in 0..20_000 {
        let patch: Object = (0..rng.usize(..5))
            .map(|_| ((*rng.choice(&keys).expect("one")).to_owned(), rng.choice(pieces).expect("one").clone()))
            .collect();
        let _ = merged(&current, json!({"metadata": patch}).to_string().as_bytes());
    }
}
