//! JSON patch (RFC 6902), applied as in kube-apiserver.
//!
//! kube-apiserver's library departs from the RFC, and so does this module. `replace` creates a missing member. A
//! missing `value` counts as `null`, and so does a missing member in `copy` and `test`. A negative index counts from
//! the end of the array. Text before the first slash of a path is ignored. Only `test` and `replace` accept the path of
//! the whole document. In one point, this module departs from the library: `test` compares decoded values. So the
//! string `"\u0061"` equals `"a"`, which the library treats as different.

use super::decode::{bad_patch, bad_type, bad_type_words, decode_current, decode_json_for, encode};
use crate::api_error::ApiError;
use crate::go::number::parse_int;
use crate::limits::DOCUMENT_DEPTH_MAX;
use serde_json::{Map, Value};
use std::borrow::Cow;
use std::io;

/// Maximum number of operations in one patch.
const OPERATIONS_MAX: usize = 10_000;
/// Maximum sum of the sizes in JSON of the values that all `copy` operations of a patch add, in bytes: kube-apiserver's
/// `JSONPatchMaxCopyBytes`.
const COPIED_BYTES_MAX: usize = 3 * 1024 * 1024;
/// Maximum number of values that all `copy` operations of a patch may add. Without this limit, a short patch could
/// cause long work. If each operation copies a container into itself, 15 operations add 65,534 values, and each takes
/// up to a microsecond. An ordinary Lease has about twenty values.
const COPIED_VALUES_MAX: usize = 4 * 1024;
/// Maximum number of values that all operations of a patch together may visit (to measure the depth of a value) or
/// shift (in an array). A visit takes 3 to 25 ns. Only repeated moves of large values, and repeated changes near the
/// start of a long array, reach this limit. kube-apiserver has no such limit.
const VISITS_MAX: usize = 512 * 1024;

/// Applies all operations of a JSON patch to an object, or none of them. `is_checked` is false for
/// `fieldValidation=Ignore`. With `is_checked`, all operations are decoded before the first one is applied. Without it,
/// a malformed operation fails only when it is applied.
///
/// # Errors
/// 400 if the patch is not a list of operations. 413 if the patch has too many operations. 422 if an operation cannot
/// be applied.
pub fn apply_json_patch(current: &[u8], patch: &[u8], is_checked: bool) -> Result<Vec<u8>, ApiError> {
    let target = is_checked.then_some("struct field jsonPatchOp.value");
    let bare = |message| ApiError::BadRequest { message };
    let decoded = decode_json_for(patch, target);
    let operations = match decoded.map_err(|words| if is_checked { bad_patch(&words) } else { bare(words) })? {
        Value::Array(operations) => operations,
        Value::Null => Vec::new(),
        other if is_checked => return Err(bad_type(&other, "value of type []handlers.jsonPatchOp")),
        other => return Err(bare(bad_type_words(&other, "value of type jsonpatch.Patch"))),
    };
    if is_checked {
        operations.iter().try_for_each(check_form)?;
    } else if let Some(other) = operations.iter().find(|operation| !operation.is_object() && !operation.is_null()) {
        return Err(bare(bad_type_words(other, "value of type jsonpatch.Operation")));
    }
    if operations.len() > OPERATIONS_MAX {
        return Err(ApiError::TooManyPatchOperations { count: operations.len(), count_max: OPERATIONS_MAX });
    }
    let mut work = Work { document: decode_current(current)?, copied_bytes: 0, copied_values: 0, visits: 0 };
    for operation in operations {
        let Value::Object(operation) = operation else { return Err(ApiError::JsonPatchRejected) };
        work.apply(operation).ok_or(ApiError::JsonPatchRejected)?;
    }
    encode(&work.document)
}

/// Checks that an operation can be decoded. Its meaning is checked only when the operation is applied.
fn check_form(operation: &Value) -> Result<(), ApiError> {
    match operation {
        Value::Null => Ok(()),
        Value::Object(members) => ["op", "path", "from"].into_iter().try_for_each(|name| match members.get(name) {
            None | Some(Value::Null | Value::String(_)) => Ok(()),
            Some(other) => Err(bad_type(other, &format!("struct field jsonPatchOp.{name} of type string"))),
        }),
        other => Err(bad_type(other, "value of type handlers.jsonPatchOp")),
    }
}

/// The document that is being patched, and the work so far. Invariant: the document has at most [`DOCUMENT_DEPTH_MAX`]
/// levels of nesting. So all recursion over the document is limited.
struct Work {
    document: Value,
    copied_bytes: usize,
    copied_values: usize,
    visits: usize,
}

/// The methods return `None` for a failed operation, since the client gets the same error for every failure.
impl Work {
    fn apply(&mut self, mut operation: Map<String, Value>) -> Option<()> {
        let mut text = |name: &str| match operation.remove(name) {
            Some(Value::String(text)) => Some(text),
            _ => None,
        };
        let (op, path, from) = (text("op")?, text("path"), text("from"));
        let value = operation.remove("value");
        // In a `move` without a path, kube-apiserver's library has already removed the value at this point. But the
        // whole patch fails, so that removal has no effect.
        let path = path?;
        match op.as_str() {
            "add" => self.add(&path, value.unwrap_or_default()),
            "copy" => self.copy(&from?, &path),
            "move" => self.relocate(&from?, &path),
            "remove" => self.remove(&path).map(drop),
            "replace" => self.replace(&path, value),
            "test" => self.test(&path, value),
            _ => None,
        }
    }

    fn add(&mut self, path: &str, value: Value) -> Option<()> {
        self.check_depth(path, &value)?;
        let (container, key) = container(&mut self.document, path)?;
        match container {
            Value::Object(members) => _ = members.insert(key.into_owned(), value),
            Value::Array(elements) => {
                let at = if key == "-" { elements.len() } else { index(&key, elements.len() + 1)? };
                count(&mut self.visits, elements.len() - at)?;
                elements.insert(at, value);
            }
            _ => return None,
        }
        Some(())
    }

    fn remove(&mut self, path: &str) -> Option<Value> {
        let (container, key) = container(&mut self.document, path)?;
        match container {
            Value::Object(members) => members.remove(key.as_ref()),
            Value::Array(elements) => {
                let at = index(&key, elements.len())?;
                count(&mut self.visits, elements.len() - at)?;
                Some(elements.remove(at))
            }
            _ => None,
        }
    }

    fn replace(&mut self, path: &str, value: Option<Value>) -> Option<()> {
        if path.is_empty() {
            // Only an object or an array may replace the whole document.
            self.document = value.filter(|value| value.is_object() || value.is_array())?;
            return Some(());
        }
        let value = value.unwrap_or_default();
        self.check_depth(path, &value)?;
        let (container, key) = container(&mut self.document, path)?;
        match container {
            Value::Object(members) => _ = members.insert(key.into_owned(), value),
            Value::Array(elements) => {
                let at = index(&key, elements.len())?;
                *elements.get_mut(at)? = value;
            }
            _ => return None,
        }
        Some(())
    }

    fn relocate(&mut self, from: &str, path: &str) -> Option<()> {
        let value = self.remove(from)?;
        self.add(path, value)
    }

    fn copy(&mut self, from: &str, path: &str) -> Option<()> {
        let value = found(&mut self.document, from)?;
        let mut bytes = ByteCount { bytes: 0, bytes_max: COPIED_BYTES_MAX.checked_sub(self.copied_bytes)? };
        serde_json::to_writer(&mut bytes, value).ok()?;
        self.copied_bytes += bytes.bytes;
        height(value, &mut self.copied_values)?;
        if self.copied_values > COPIED_VALUES_MAX {
            return None;
        }
        let value = value.clone();
        self.add(path, value)
    }

    fn test(&mut self, path: &str, value: Option<Value>) -> Option<()> {
        let equal = if path.is_empty() {
            self.document == value?
        } else {
            *found(&mut self.document, path)? == value.unwrap_or_default()
        };
        equal.then_some(())
    }

    /// Checks that the document has at most [`DOCUMENT_DEPTH_MAX`] levels of nesting with `value` at `path`.
    fn check_depth(&mut self, path: &str, value: &Value) -> Option<()> {
        let above = path.bytes().filter(|&b| b == b'/').count();
        let below = height(value, &mut self.visits)?;
        (above + below <= DOCUMENT_DEPTH_MAX).then_some(())
    }
}

/// Returns the object or array that contains the target of `path`, and the key of the target in it.
fn container<'d, 'p>(document: &'d mut Value, path: &'p str) -> Option<(&'d mut Value, Cow<'p, str>)> {
    let (parents, key) = path.rsplit_once('/')?;
    let container = parents.split('/').skip(1).try_fold(document, |at, token| match at {
        Value::Object(members) => members.get_mut(unescaped(token).as_ref()),
        Value::Array(elements) => {
            let at = index(&unescaped(token), elements.len())?;
            elements.get_mut(at)
        }
        _ => None,
    })?;
    Some((container, unescaped(key)))
}

/// Returns the value at `path`; null for a missing member of an object. Returns `None` if an array element or a parent
/// is missing.
fn found<'d>(document: &'d mut Value, path: &str) -> Option<&'d Value> {
    const NULL: &Value = &Value::Null;
    let (container, key) = container(document, path)?;
    match container {
        Value::Object(members) => Some(members.get(key.as_ref()).unwrap_or(NULL)),
        Value::Array(elements) => elements.get(index(&key, elements.len())?),
        _ => None,
    }
}

/// Returns the index that `key` means in an array of `len` elements; `None` if there is no such element. A negative
/// number counts from the end.
fn index(key: &str, len: usize) -> Option<usize> {
    let at = parse_int(key).ok()?;
    let distance = usize::try_from(at.unsigned_abs()).ok()?;
    let at = if at < 0 { len.checked_sub(distance)? } else { distance };
    (at < len).then_some(at)
}

/// Removes the escapes from a token of a path (RFC 6901 §4).
fn unescaped(token: &str) -> Cow<'_, str> {
    if !token.contains('~') {
        return Cow::Borrowed(token);
    }
    // `~01` means `~1`. So `~1` is replaced before `~0`. Otherwise `~01` would become a slash.
    Cow::Owned(token.replace("~1", "/").replace("~0", "~"))
}

/// Returns the number of levels of arrays and objects in `value`. Counts a visit for each value. The recursion ends,
/// since `value` has at most [`DOCUMENT_DEPTH_MAX`] levels.
fn height(value: &Value, visits: &mut usize) -> Option<usize> {
    count(visits, 1)?;
    let mut highest = |below: &mut dyn Iterator<Item = &Value>| {
        let mut levels = 0;
        for value in below {
            levels = levels.max(height(value, visits)?);
        }
        Some(levels + 1)
    };
    match value {
        Value::Object(members) => highest(&mut members.values()),
        Value::Array(elements) => highest(&mut elements.iter()),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => Some(0),
    }
}

/// Adds `more` to the visits. Returns `None` if the sum exceeds [`VISITS_MAX`].
fn count(visits: &mut usize, more: usize) -> Option<()> {
    *visits += more;
    (*visits <= VISITS_MAX).then_some(())
}

/// A writer that only counts bytes, and fails above a limit.
struct ByteCount {
    bytes: usize,
    bytes_max: usize,
}

impl io::Write for ByteCount {
    fn write(&mut self, chunk: &[u8]) -> io::Result<usize> {
        self.bytes = self.bytes.saturating_add(chunk.len());
        if self.bytes > self.bytes_max { Err(io::ErrorKind::FileTooLarge.into()) } else { Ok(chunk.len()) }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn apply(current: &Value, patch: &Value) -> Result<Value, ApiError> {
        let bytes = apply_json_patch(current.to_string().as_bytes(), patch.to_string().as_bytes(), true)?;
        Ok(serde_json::from_slice(&bytes).expect("JSON"))
    }

    fn patched(current: &Value, patch: &Value) -> Value {
        apply(current, patch).expect("a patch that applies")
    }

    fn is_rejected(current: &Value, patch: &Value) -> bool {
        apply(current, patch) == Err(ApiError::JsonPatchRejected)
    }

    fn lease() -> Value {
        json!({"metadata": {"labels": {"x": "1", "y/z": "2"}, "name": "a"}, "spec": {"holderIdentity": "node-a"}})
    }

    #[test]
    fn a_json_patch_gives_the_result_of_the_trace() {
        let one = patched(
            &lease(),
            &json!([
                {"op": "replace", "path": "/spec/holderIdentity", "value": "b"},
                {"op": "add", "path": "/metadata/annotations", "value": {"k": "v"}}
            ]),
        );
        let two = patched(
            &one,
            &json!([
                {"op": "test", "path": "/spec/holderIdentity", "value": "b"},
                {"op": "remove", "path": "/metadata/labels/y~1z"}
            ]),
        );
        let three = patched(
            &two,
            &json!([
                {"op": "copy", "from": "/spec/holderIdentity", "path": "/metadata/annotations/holder"},
                {"op": "move", "from": "/metadata/annotations/k", "path": "/metadata/annotations/l"}
            ]),
        );
        let expected = json!({
            "metadata": {"labels": {"x": "1"}, "annotations": {"holder": "b", "l": "v"}, "name": "a"},
            "spec": {"holderIdentity": "b"}
        });
        assert_eq!(three, expected);
        assert_eq!(patched(&lease(), &json!([])), lease());
        assert_eq!(patched(&lease(), &Value::Null), lease());
    }

    #[test]
    fn a_patch_that_does_not_apply_is_rejected_as_a_whole() {
        for patch in [
            json!([{"op": "test", "path": "/spec/holderIdentity", "value": "nope"}, {"op": "remove", "path": "/spec"}]),
            json!([{"op": "remove", "path": "/metadata/labels/nothing"}]),
            json!([{"op": "frobnicate", "path": "/spec"}]),
            json!([{"path": "/spec"}]),
            json!([{"op": null, "path": "/spec"}]),
            json!([null]),
            json!([{"op": "remove"}]),
            json!([{"op": "copy", "path": "/spec/x"}]),
            json!([{"op": "add", "path": "/no/such", "value": 1}]),
            json!([{"op": "add", "path": "/metadata/name/x", "value": 1}]),
            json!([{"op": "add", "path": "", "value": {}}]),
            json!([{"op": "remove", "path": ""}]),
            json!([{"op": "move", "from": "/metadata", "path": "/metadata/labels"}]),
            json!([{"op": "move", "from": "/metadata/no", "path": "/metadata/yes"}]),
        ] {
            assert!(is_rejected(&lease(), &patch), "{patch}");
        }
        let status = ApiError::JsonPatchRejected.status();
        assert_eq!((status.code, status.reason), (422, "Invalid"));
        assert_eq!(status.message, "the server rejected our request due to an error in our request");
    }

    #[test]
    fn a_patch_that_is_not_a_list_of_operations_is_refused() {
        for (patch, words) in [
            ("{\"op\":\"remove\",\"path\":\"/spec\"}", "object into Go value of type []handlers.jsonPatchOp"),
            ("\"x\"", "string into Go value of type []handlers.jsonPatchOp"),
            ("[1]", "number into Go value of type handlers.jsonPatchOp"),
            ("[{\"op\":1}]", "number into Go struct field jsonPatchOp.op of type string"),
            ("[{\"op\":\"add\",\"path\":{}}]", "object into Go struct field jsonPatchOp.path of type string"),
            ("[{\"op\":\"move\",\"from\":true}]", "bool into Go struct field jsonPatchOp.from of type string"),
        ] {
            let message = format!("error decoding patch: json: cannot unmarshal {words}");
            assert_eq!(
                apply_json_patch(b"{}", patch.as_bytes(), true),
                Err(ApiError::BadRequest { message }),
                "{patch}"
            );
        }
    }

    #[test]
    fn an_unchecked_invalid_patch_gets_the_error_of_the_library() {
        for (patch, code, words) in [
            ("1e400", 400, "json: cannot unmarshal number into Go value of type jsonpatch.Patch"),
            ("\"x\"", 400, "json: cannot unmarshal string into Go value of type jsonpatch.Patch"),
            ("[1]", 400, "json: cannot unmarshal number into Go value of type jsonpatch.Operation"),
            ("[{\"op\":1}]", 422, "the server rejected our request due to an error in our request"),
        ] {
            let status = apply_json_patch(b"{}", patch.as_bytes(), false).expect_err(patch).status();
            assert_eq!((status.code, status.message.as_str()), (code, words), "{patch}");
        }
    }

    #[test]
    fn operations_are_counted() {
        let patch = |count: usize| json!(vec![json!({"op": "test", "path": "/a", "value": 1}); count]);
        assert_eq!(patched(&json!({"a": 1}), &patch(10_000)), json!({"a": 1}));
        let status = apply(&json!({"a": 1}), &patch(10_001)).expect_err("one too many").status();
        assert_eq!((status.code, status.reason), (413, "RequestEntityTooLarge"));
        assert_eq!(
            status.message,
            "Request entity too large: The allowed maximum operations in a JSON patch is 10000, got 10001"
        );
    }

    #[test]
    fn arrays_take_indexes_from_both_ends() {
        let array = json!({"a": [0, 1, 2]});
        for (op, path, expected) in [
            ("add", "/a/-", json!([0, 1, 2, 9])),
            ("add", "/a/0", json!([9, 0, 1, 2])),
            ("add", "/a/3", json!([0, 1, 2, 9])),
            ("add", "/a/-1", json!([0, 1, 2, 9])),
            ("add", "/a/-4", json!([9, 0, 1, 2])),
            ("replace", "/a/1", json!([0, 9, 2])),
            ("replace", "/a/-1", json!([0, 1, 9])),
            ("remove", "/a/-3", json!([1, 2])),
            ("remove", "/a/02", json!([0, 1])),
        ] {
            let patch = json!([{"op": op, "path": path, "value": 9}]);
            assert_eq!(patched(&array, &patch), json!({"a": expected}), "{op} {path}");
        }
        for (op, path) in [
            ("add", "/a/4"),
            ("add", "/a/-5"),
            ("add", "/a/x"),
            ("replace", "/a/3"),
            ("replace", "/a/-"),
            ("remove", "/a/-4"),
            ("remove", "/a/99999999999999999999"),
            ("test", "/a/-9223372036854775808"),
        ] {
            assert!(is_rejected(&array, &json!([{"op": op, "path": path, "value": 9}])), "{op} {path}");
        }
    }

    #[test]
    fn a_missing_value_is_null_as_in_kube_apiserver() {
        let empty = json!({});
        assert_eq!(patched(&empty, &json!([{"op": "replace", "path": "/a", "value": 1}])), json!({"a": 1}));
        assert_eq!(patched(&empty, &json!([{"op": "add", "path": "/a"}])), json!({"a": null}));
        assert_eq!(patched(&empty, &json!([{"op": "copy", "from": "/a", "path": "/b"}])), json!({"b": null}));
        assert_eq!(patched(&empty, &json!([{"op": "test", "path": "/a", "value": null}])), empty);
        assert!(is_rejected(&json!({"a": 1}), &json!([{"op": "test", "path": "/a", "value": null}])));
        assert!(is_rejected(&json!({"a": 1}), &json!([{"op": "test", "path": "/a"}])));
        assert_eq!(patched(&empty, &json!([{"op": "test", "path": "/a"}])), empty);
    }

    #[test]
    fn a_path_through_null_is_rejected() {
        let through = json!([{"op": "add", "path": "/a", "value": null}, {"op": "add", "path": "/a/b", "value": 1}]);
        assert!(is_rejected(&json!({}), &through));
        assert!(is_rejected(&json!({"a": null}), &json!([{"op": "test", "path": "/a/b", "value": null}])));
    }

    #[test]
    fn the_whole_document_can_be_tested_and_replaced() {
        let document = json!({"a": 1});
        assert_eq!(patched(&document, &json!([{"op": "test", "path": "", "value": {"a": 1}}])), document);
        assert!(is_rejected(&document, &json!([{"op": "test", "path": "", "value": {}}])));
        assert_eq!(patched(&document, &json!([{"op": "replace", "path": "", "value": {"b": 2}}])), json!({"b": 2}));
        for value in [json!(5), Value::Null] {
            assert!(is_rejected(&document, &json!([{"op": "replace", "path": "", "value": value}])), "{value}");
        }
        assert!(is_rejected(&document, &json!([{"op": "replace", "path": ""}])));
        assert!(is_rejected(&document, &json!([{"op": "test", "path": ""}])));
    }

    #[test]
    fn paths_are_unescaped_and_begin_at_the_first_slash() {
        let document = json!({"~1": 1, "/": 2, "": 3});
        assert_eq!(patched(&document, &json!([{"op": "remove", "path": "/~01"}])), json!({"/": 2, "": 3}));
        assert_eq!(patched(&document, &json!([{"op": "remove", "path": "/~1"}])), json!({"~1": 1, "": 3}));
        assert_eq!(patched(&document, &json!([{"op": "remove", "path": "x/"}])), json!({"~1": 1, "/": 2}));
    }

    #[test]
    fn copies_are_bounded() {
        let double = |times: usize| {
            let mut operations = vec![json!({"op": "add", "path": "/a", "value": ["x".repeat(1000)]})];
            operations.extend((0..times).map(|_| json!({"op": "copy", "from": "/a", "path": "/a/-"})));
            Value::Array(operations)
        };
        assert!(apply(&json!({}), &double(10)).is_ok());
        assert!(is_rejected(&json!({}), &double(100)));
    }

    #[test]
    fn copied_values_are_bounded() {
        let copies = |times: usize| {
            let mut operations = vec![json!({"op": "add", "path": "/a", "value": vec![0; COPIED_VALUES_MAX / 2 - 1]})];
            operations.extend((0..times).map(|n| json!({"op": "copy", "from": "/a", "path": format!("/b{n}")})));
            Value::Array(operations)
        };
        assert!(apply(&json!({}), &copies(2)).is_ok());
        assert!(is_rejected(&json!({}), &copies(3)));
    }

    #[test]
    fn doubling_copies_and_repeated_moves_are_bounded() {
        let double = |times: usize| {
            let mut operations = vec![json!({"op": "add", "path": "/x", "value": {"a": {}}})];
            operations.extend((0..times).map(|n| json!({"op": "copy", "from": "/x", "path": format!("/x/{n}")})));
            operations
        };
        // Ten copies add 2,046 values, and twelve copies add 8,190 values.
        assert!(apply(&json!({}), &Value::Array(double(10))).is_ok());
        assert!(is_rejected(&json!({}), &Value::Array(double(12))));
        let moves = |times: usize| {
            let mut operations = double(10);
            for _ in 0..times {
                operations.push(json!({"op": "move", "from": "/x", "path": "/y"}));
                operations.push(json!({"op": "move", "from": "/y", "path": "/x"}));
            }
            Value::Array(operations)
        };
        // Each move visits 2,048 values.
        assert!(apply(&json!({}), &moves(100)).is_ok());
        assert!(is_rejected(&json!({}), &moves(200)));
    }

    #[test]
    fn shifts_are_bounded() {
        let mut operations = vec![json!({"op": "add", "path": "/a", "value": vec![0; 100_000]})];
        operations.extend((0..9_000).map(|_| json!({"op": "add", "path": "/a/0", "value": 0})));
        assert!(is_rejected(&json!({}), &Value::Array(operations)));
    }

    #[test]
    fn depth_is_bounded() {
        // The three operations in the loop move the value at `/p` into a new object, so `/p` becomes `/p/p`.
        let mut operations = vec![json!({"op": "add", "path": "/p", "value": {}})];
        for _ in 0..DOCUMENT_DEPTH_MAX - 2 {
            operations.push(json!({"op": "add", "path": "/q", "value": {}}));
            operations.push(json!({"op": "move", "from": "/p", "path": "/q/p"}));
            operations.push(json!({"op": "move", "from": "/q", "path": "/p"}));
        }
        let deepest = patched(&json!({}), &Value::Array(operations.clone()));
        assert_eq!(height(&deepest, &mut 0), Some(DOCUMENT_DEPTH_MAX));
        operations.push(json!({"op": "add", "path": "/q", "value": {}}));
        operations.push(json!({"op": "move", "from": "/p", "path": "/q/p"}));
        assert!(is_rejected(&json!({}), &Value::Array(operations)));
    }

    /// Goal: no patch causes a panic, or results in a document that cannot be decoded. Method: random operations on a
    /// few paths.
    #[test]
    fn no_patch_panics() {
        const PATHS: &[&str] =
            &["", "/", "/a", "/a/0", "/a/-", "/a/-1", "/b", "/b/c", "/b/c/d", "b", "/a/7", "/b/~0~1"];
        const OPS: &[&str] = &["add", "remove", "replace", "move", "copy", "test", "?"];
        let mut rng = fastrand::Rng::with_seed(6);
        let mut applied = 0;
        for _ in 0..20_000 {
            let mut operations = Vec::new();
            for _ in 0..rng.usize(..6) {
                let value = [json!(1), json!(null), json!([1, {}]), json!({"c": {"d": 1}})][rng.usize(..4)].clone();
                let mut operation = json!({
                    "op": OPS[rng.usize(..OPS.len())],
                    "path": PATHS[rng.usize(..PATHS.len())],
                    "from": PATHS[rng.usize(..PATHS.len())]
                });
                if rng.u8(..8) > 0 {
                    operation["value"] = value;
                }
                operations.push(operation);
            }
            applied += usize::from(apply(&json!({"a": [1, 2], "b": {"c": {}}}), &Value::Array(operations)).is_ok());
        }
        assert!(applied > 1000, "{applied}");
    }
}
