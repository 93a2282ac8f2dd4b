//! JSON merge patch (RFC 7386), applied as in kube-apiserver.

use super::decode::{bad_type, decode_current, decode_json_for, decode_patch, encode};
use crate::api_error::ApiError;
use serde_json::{Map, Value};

/// Applies a merge patch to an object. A member of the patch replaces the member of the object with the same name.
/// `null` removes the member, and two objects are merged. `is_checked` is false for `fieldValidation=Ignore`. In this
/// case, a patch that is a list replaces the whole object.
///
/// # Errors
/// 400 if the patch is neither a JSON object nor such a list.
pub fn apply_merge_patch(current: &[u8], patch: &[u8], is_checked: bool) -> Result<Vec<u8>, ApiError> {
    let invalid = || ApiError::BadRequest { message: "Invalid JSON Patch".to_owned() };
    let decoded = if is_checked { decode_patch(patch) } else { decode_json_for(patch, None).map_err(|_| invalid()) };
    let patch = match decoded? {
        Value::Object(patch) => patch,
        Value::Null => return Err(invalid()),
        Value::Array(mut elements) if !is_checked => {
            elements.iter_mut().for_each(prune_nulls);
            return encode(&Value::Array(elements));
        }
        _ if !is_checked => return Err(invalid()),
        other => return Err(bad_type(&other, "value of type map[string]interface {}")),
    };
    let mut document = decode_current(current)?;
    if let Value::Object(members) = &mut document {
        merge(members, patch);
    }
    encode(&document)
}

/// Merges a patch into an object. The recursion is limited, since the decoder limits the depth of the patch.
fn merge(document: &mut Map<String, Value>, patch: Map<String, Value>) {
    for (key, mut value) in patch {
        match (document.get_mut(&key), value) {
            (_, Value::Null) => _ = document.remove(&key),
            (Some(Value::Object(members)), Value::Object(patch)) => merge(members, patch),
            // If the value replaces an object, null members in the value remain. In any other new value, null members
            // are removed, even from objects within an array. RFC 7386 would retain null members within an array.
            (Some(found @ Value::Object(_)), other) => *found = other,
            (_, other) => {
                value = other;
                prune_nulls(&mut value);
                document.insert(key, value);
            }
        }
    }
}

/// Removes null members at any depth, even from objects within arrays. Null elements of arrays remain.
pub(super) fn prune_nulls(value: &mut Value) {
    match value {
        Value::Object(members) => {
            members.retain(|_, member| !member.is_null());
            members.values_mut().for_each(prune_nulls);
        }
        Value::Array(elements) => elements.iter_mut().for_each(prune_nulls),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn patched(current: &Value, patch: &Value) -> Value {
        let bytes =
            apply_merge_patch(current.to_string().as_bytes(), patch.to_string().as_bytes(), true).expect("a patch");
        serde_json::from_slice(&bytes).expect("JSON")
    }

    fn refusal(patch: &str) -> (u16, String) {
        let status = apply_merge_patch(b"{}", patch.as_bytes(), true).expect_err(patch).status();
        assert_eq!(status.reason, "BadRequest");
        (status.code, status.message)
    }

    #[test]
    fn a_merge_patch_gives_the_result_of_the_trace() {
        let current = json!({"metadata": {"labels": {"x": "1", "y": "2"}}, "spec": {"holderIdentity": "a", "leaseDurationSeconds": 40}});
        let patch = json!({"metadata": {"labels": {"x": null, "z": "3"}}, "spec": {"holderIdentity": "b"}});
        let expected = json!({"metadata": {"labels": {"y": "2", "z": "3"}}, "spec": {"holderIdentity": "b", "leaseDurationSeconds": 40}});
        assert_eq!(patched(&current, &patch), expected);
        assert_eq!(patched(&current, &json!({"spec": null})), json!({"metadata": current["metadata"]}));
        assert_eq!(patched(&current, &json!({})), current);
    }

    #[test]
    fn nulls_are_removed_from_new_objects() {
        let current = json!({"o": {"k": 1}, "a": [1], "n": null});
        assert_eq!(patched(&json!({}), &json!({"o": {"k": null, "l": {"m": null}}})), json!({"o": {"l": {}}}));
        assert_eq!(patched(&current, &json!({"a": [null, {"k": null}]}))["a"], json!([null, {}]));
        assert_eq!(patched(&current, &json!({"o": [{"k": null}]}))["o"], json!([{"k": null}]));
        assert_eq!(patched(&current, &json!({"n": {"k": null}}))["n"], json!({}));
        assert_eq!(patched(&current, &json!({"a": {"k": null}}))["a"], json!({}));
    }

    #[test]
    fn the_last_of_a_repeated_key_counts() {
        assert_eq!(apply_merge_patch(b"{}", b"{\"a\":1,\"a\":2}", true), Ok(b"{\"a\":2}".to_vec()));
    }

    #[test]
    fn an_unchecked_list_replaces_the_whole_document() {
        assert_eq!(apply_merge_patch(b"{}", b"[null,{\"a\":null}]", false), Ok(b"[null,{}]".to_vec()));
        for patch in ["null", "5"] {
            let status = apply_merge_patch(b"{}", patch.as_bytes(), false).expect_err(patch).status();
            assert_eq!((status.code, status.message.as_str()), (400, "Invalid JSON Patch"), "{patch}");
        }
    }

    #[test]
    fn a_patch_that_is_not_an_object_is_refused() {
        let message =
            "error decoding patch: json: cannot unmarshal array into Go value of type map[string]interface {}";
        assert_eq!(refusal("[]"), (400, message.to_owned()));
        assert_eq!(refusal("null"), (400, "Invalid JSON Patch".to_owned()));
        for (patch, word) in [("1", "number"), ("\"\"", "string"), ("true", "bool")] {
            assert_eq!(refusal(patch), (400, message.replace("array", word)));
        }
    }
}
