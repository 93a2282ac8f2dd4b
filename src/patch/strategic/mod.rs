//! Strategic merge patch: a merge patch that also merges lists of a Lease (apimachinery `util/strategicpatch`).
//!
//! The patch merges two lists: `finalizers`, a list of strings, and `ownerReferences`, a list of objects that `uid`
//! identifies. Any other list in the patch replaces the list of the Lease. A patch may contain directives: `$patch`
//! (`replace` or `delete`) in an object or an element, `$retainKeys`, `$deleteFromPrimitiveList/…` and
//! `$setElementOrder/…`.

use super::decode::{bad_type_words, decode_current, decode_json};
use super::merge_patch::prune_nulls;
use crate::api_error::ApiError;
use crate::go::print::{self, go_text, go_value};
use crate::go::quote::go_quoted;
use crate::lease::{LeaseSpec, OwnerReference};
use serde_json::{Map, Value};
use std::collections::{HashMap, HashSet};

type Object = Map<String, Value>;

/// Decodes the body of a strategic merge patch, which must be null or an object.
///
/// # Errors
/// 400 if the body is any other value, or is not JSON.
pub fn decode_strategic_merge_patch(patch: &[u8]) -> Result<Value, ApiError> {
    let patch = decode_json(patch).map_err(|message| ApiError::BadRequest { message })?;
    if patch.is_null() || patch.is_object() {
        return Ok(patch);
    }
    Err(ApiError::BadRequest { message: bad_type_words(&patch, "value of type map[string]interface {}") })
}

/// Applies a strategic merge patch to a Lease. Returns the resulting object.
///
/// # Errors
/// 400 for a malformed directive. 422 for a list of lists. 500 for any other error, such as an unknown field.
pub fn apply_strategic_merge_patch(current: &[u8], patch: Value) -> Result<Value, ApiError> {
    let members = match patch {
        Value::Object(members) => members,
        _ => Object::new(),
    };
    let Value::Object(document) = decode_current(current)? else {
        return Err(internal("the stored Lease is not a JSON object"));
    };
    merge_objects(document, members, Schema::Lease).map(Value::Object)
}

const DIRECTIVE: &str = "$patch";
const RETAIN_KEYS: &str = "$retainKeys";
const DELETE_FROM_PRIMITIVE_LIST: &str = "$deleteFromPrimitiveList";
const SET_ELEMENT_ORDER: &str = "$setElementOrder";

/// The Go types of the objects that a patch can change in part.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Schema {
    Lease,
    LeaseSpec,
    ObjectMeta,
    OwnerReference,
    StringMap,
    /// A type without members, which a patch can only replace.
    Scalar,
}

/// The way in which a patch changes a field.
struct Field {
    schema: Schema,
    is_list: bool,
    /// Whether the elements in the patch are merged into the list of the object.
    merges: bool,
    /// Name of the member that identifies an element of the list; empty if the elements are not objects.
    merge_key: &'static str,
}

impl Schema {
    fn field(self, name: &str) -> Result<Field, ApiError> {
        let plain = |schema| Field { schema, is_list: false, merges: false, merge_key: "" };
        let list = |schema, merges, merge_key| Field { schema, is_list: true, merges, merge_key };
        let scalars: (&str, &[&str]) = match (self, name) {
            (Self::Lease, "metadata") => return Ok(plain(Self::ObjectMeta)),
            (Self::Lease, "spec") => return Ok(plain(Self::LeaseSpec)),
            (Self::ObjectMeta, "labels" | "annotations") => return Ok(plain(Self::StringMap)),
            (Self::ObjectMeta, "finalizers") => return Ok(list(Self::Scalar, true, "")),
            (Self::ObjectMeta, "ownerReferences") => return Ok(list(Self::OwnerReference, true, "uid")),
            (Self::ObjectMeta, "managedFields") => return Ok(list(Self::Scalar, false, "")),
            (Self::StringMap, _) => return Ok(plain(Self::Scalar)),
            (Self::Scalar, _) => {
                return Err(internal("merging an object in json but data type is not struct, instead is: string"));
            }
            (Self::Lease, _) => ("Lease", &["apiVersion", "kind"]),
            (Self::LeaseSpec, _) => ("LeaseSpec", &LeaseSpec::FIELDS),
            (Self::ObjectMeta, _) => ("ObjectMeta", METADATA_SCALARS),
            (Self::OwnerReference, _) => ("OwnerReference", &OwnerReference::FIELDS),
        };
        if scalars.1.contains(&name) {
            return Ok(plain(Self::Scalar));
        }
        let words = format!("unable to find api field in struct {} for the json field {}", scalars.0, go_quoted(name));
        Err(internal(&words))
    }

    fn list_field(self, name: &str) -> Result<Field, ApiError> {
        let field = self.field(name)?;
        if field.is_list {
            return Ok(field);
        }
        let kind = if self == Self::StringMap { "map" } else { "struct" };
        Err(internal(&format!("expected slice or array type, but got: {kind}")))
    }
}

const METADATA_SCALARS: &[&str] = &[
    "creationTimestamp",
    "deletionGracePeriodSeconds",
    "deletionTimestamp",
    "generateName",
    "generation",
    "name",
    "namespace",
    "resourceVersion",
    "selfLink",
    "uid",
];

/// Merges a patch into an object. The recursion is limited, since the decoder limits the depth of the patch.
fn merge_objects(mut original: Object, mut patch: Object, schema: Schema) -> Result<Object, ApiError> {
    if let Some(directive) = patch.get(DIRECTIVE) {
        return match directive.as_str() {
            Some("replace") => {
                patch.remove(DIRECTIVE);
                Ok(patch)
            }
            Some("delete") => Ok(Object::new()),
            _ => Err(unknown_directive(&directive.clone(), &Value::Object(patch))),
        };
    }
    retain_keys(&mut original, &mut patch)?;
    set_element_orders(&mut original, &mut patch, schema)?;
    for (key, mut value) in patch {
        let (key, deletes) = if key.starts_with(DELETE_FROM_PRIMITIVE_LIST) {
            (listed_key(&key, DELETE_FROM_PRIMITIVE_LIST, "invalid patch format of primitive list")?.to_owned(), true)
        } else {
            (key, false)
        };
        if value.is_null() {
            original.remove(&key);
            continue;
        }
        let merged = match (original.get_mut(&key).map(Value::take), value) {
            (Some(Value::Object(own)), Value::Object(theirs)) => {
                let field = schema.field(&key)?;
                Some(Value::Object(merge_objects(own, theirs, field.schema)?))
            }
            (Some(Value::Array(own)), Value::Array(theirs)) => {
                let field = schema.list_field(&key)?;
                let elements =
                    if field.merges || deletes { merge_lists(own, theirs, &field, deletes)? } else { theirs };
                Some(Value::Array(elements))
            }
            // The object or the patch has no list here, so there is nothing to delete.
            (own, _) if deletes => own,
            (_, new) => {
                value = new;
                prune_nulls(&mut value);
                without_directives(value)
            }
        };
        match merged {
            Some(merged) => _ = original.insert(key, merged),
            None => _ = original.remove(&key),
        }
    }
    Ok(original)
}

/// Removes from `original` the members that `$retainKeys` in the patch does not name. `$retainKeys` must name all
/// members that the patch sets.
fn retain_keys(original: &mut Object, patch: &mut Object) -> Result<(), ApiError> {
    const MALFORMED: &str = "invalid patch format of retainKeys";
    let Some(keys) = patch.remove(RETAIN_KEYS) else { return Ok(()) };
    let Value::Array(keys) = keys else { return Err(bad_request(MALFORMED)) };
    let keys: HashSet<&str> = keys.iter().filter_map(Value::as_str).collect();
    let is_free = |(key, value): (&String, &Value)| {
        value.is_null()
            || key.starts_with(DELETE_FROM_PRIMITIVE_LIST)
            || key.starts_with(SET_ELEMENT_ORDER)
            || keys.contains(key.as_str())
    };
    if !patch.iter().all(is_free) {
        return Err(bad_request(MALFORMED));
    }
    original.retain(|key, _| keys.contains(key.as_str()));
    Ok(())
}

/// Merges into `original` each list for which the patch contains `$setElementOrder`, and sorts it by that directive.
/// Removes these lists from the patch.
fn set_element_orders(original: &mut Object, patch: &mut Object, schema: Schema) -> Result<(), ApiError> {
    const MALFORMED: &str = "invalid patch format of setElementOrder list";
    let directives: Vec<String> = patch.keys().filter(|key| key.starts_with(SET_ELEMENT_ORDER)).cloned().collect();
    for directive in directives {
        let order = patch.remove(&directive).unwrap_or_default();
        let order = elements(order)?;
        let key = listed_key(&directive, SET_ELEMENT_ORDER, MALFORMED)?;
        let own = original.remove(key).map(elements).transpose()?;
        let theirs = patch.remove(key).map(elements).transpose()?;
        let field = schema.list_field(key)?;
        check_element_order(theirs.as_deref().unwrap_or_default(), &order, field.merge_key)?;
        let own_elements = own.as_deref().unwrap_or_default();
        let live = places_after_deletions(own_elements, theirs.as_deref().unwrap_or_default(), field.merge_key)?;
        let has_theirs = theirs.as_ref().is_some_and(|theirs| !theirs.is_empty());
        let merged = match (own, theirs) {
            (None, None) => continue,
            (Some(own), None) => own,
            (None, Some(theirs)) => theirs.into_iter().filter_map(without_directives).collect(),
            (Some(own), Some(theirs)) if field.merges => merge_lists(own, theirs, &field, false)?,
            (Some(_), Some(theirs)) => theirs,
        };
        if live.is_empty() && !has_theirs {
            return Err(internal("no elements in any of the given slices"));
        }
        let merged = in_order(merged, &places(&order, field.merge_key)?, &live, field.merge_key)?;
        original.insert(key.to_owned(), Value::Array(merged));
    }
    Ok(())
}

/// Checks that the elements in the patch have the order that `$setElementOrder` demands.
fn check_element_order(patch: &[Value], order: &[Value], merge_key: &str) -> Result<(), ApiError> {
    if patch.is_empty() || order.is_empty() {
        return Ok(());
    }
    let mut wanted = patch.iter().filter(|element| !has_directive(element, "delete")).peekable();
    // The identity of an element may be long. So the loop computes it once for each element, and not for each entry of
    // the order.
    let mut known = None;
    for place in order {
        // Like kube-apiserver, this loop skips directives other than `delete` only until the end of the order.
        while wanted.next_if(|element| element.get(DIRECTIVE).is_some()).is_some() {}
        let Some(next) = wanted.peek() else { break };
        let next = match &mut known {
            Some(next) => next,
            None => known.insert(identity(next, merge_key)?),
        };
        if *next == identity(place, merge_key)? {
            wanted.next();
            known = None;
        }
    }
    if wanted.peek().is_none() {
        return Ok(());
    }
    let shown = |list: &[Value]| go_value(&Value::Array(list.to_vec()));
    Err(internal(&format!(
        "The order in patch list:\n{}\n doesn't match {SET_ELEMENT_ORDER} list:\n{}\n",
        shown(patch),
        shown(order)
    )))
}

fn merge_lists(mut own: Vec<Value>, theirs: Vec<Value>, field: &Field, deletes: bool) -> Result<Vec<Value>, ApiError> {
    if own.is_empty() && theirs.is_empty() {
        return Ok(own);
    }
    if !is_of_one_type(&own, &theirs)? {
        let shown = |list: &[Value]| go_value(&Value::Array(list.to_vec()));
        return Err(internal(&format!("list element types are not identical: [{} {}]", shown(&own), shown(&theirs))));
    }
    if !own.first().or_else(|| theirs.first()).is_some_and(Value::is_object) {
        if deletes {
            let gone: HashSet<String> = theirs.iter().map(Value::to_string).collect();
            own.retain(|element| !gone.contains(&element.to_string()));
            return Ok(own);
        }
        let mut seen = HashSet::new();
        let both = own.iter().chain(&theirs).filter(|element| seen.insert(element.to_string())).cloned().collect();
        return in_order(both, &places(&theirs, "")?, &places(&own, "")?, "");
    }
    let key = field.merge_key;
    if key.is_empty() {
        return Err(internal("cannot merge lists without merge key for struct"));
    }
    let mut patch = Vec::with_capacity(theirs.len());
    let mut replaces = false;
    let mut gone = HashSet::new();
    for element in theirs {
        match element.get(DIRECTIVE) {
            None => patch.push(element),
            Some(directive) => match directive.as_str() {
                Some("delete") => _ = gone.insert(identity(&element, key)?),
                Some("replace") => replaces = true,
                Some("merge") => return Err(internal("merging lists cannot yet be specified in the patch")),
                _ => return Err(unknown_directive(directive, &element)),
            },
        }
    }
    if replaces {
        (own, patch) = (patch, Vec::new());
    } else {
        own.retain(|element| !element.get(key).is_some_and(|value| gone.contains(&value.to_string())));
    }
    let live = places(&own, key)?;
    let mut added = Places::new();
    let mut order = Places::with_capacity(patch.len());
    for (at, element) in patch.into_iter().enumerate() {
        let id = identity(&element, key)?;
        let found = live.get(&id).or_else(|| added.get(&id)).copied();
        let place = found.and_then(|at| own.get_mut(at)).map(|place| (place.take(), place));
        order.entry(id.clone()).or_insert(at);
        match (place, element) {
            (Some((Value::Object(members), place)), Value::Object(theirs)) => {
                *place = Value::Object(merge_objects(members, theirs, field.schema)?);
            }
            (_, element) => {
                added.insert(id, own.len());
                own.push(element);
            }
        }
    }
    in_order(own, &order, &live, key)
}

/// The index of each element in a list, by the [`identity`] of the element. Of equal elements, the first index counts.
type Places = HashMap<String, usize>;

fn places(list: &[Value], key: &str) -> Result<Places, ApiError> {
    let mut places = Places::with_capacity(list.len());
    for (at, element) in list.iter().enumerate() {
        places.entry(identity(element, key)?).or_insert(at);
    }
    Ok(places)
}

/// Returns the places of elements in the object's list, by which kube-apiserver sorts the merged list. In
/// kube-apiserver, a deletion moves the later elements of the object's list forward, and new elements take the places
/// at its end (apimachinery `strategicpatch`, `deleteMatchingEntries`).
fn places_after_deletions(own: &[Value], theirs: &[Value], key: &str) -> Result<Places, ApiError> {
    let live = places(own, key)?;
    let known = |element: &Value| identity(element, key).ok();
    let gone: HashSet<String> =
        theirs.iter().filter(|element| has_directive(element, "delete")).filter_map(known).collect();
    if gone.is_empty() || theirs.iter().any(|element| has_directive(element, "replace")) {
        return Ok(live);
    }
    let left = own.iter().filter_map(known).filter(|id| !gone.contains(id));
    let sent = theirs.iter().filter(|element| element.get(DIRECTIVE).is_none()).filter_map(known);
    let mut moved = Places::with_capacity(own.len());
    for id in left.chain(sent) {
        let at = moved.len();
        if at == own.len() {
            break;
        }
        moved.entry(id).or_insert(at);
    }
    Ok(moved)
}

/// Whether the `$patch` of an element is `directive`.
fn has_directive(element: &Value, directive: &str) -> bool {
    element.get(DIRECTIVE).and_then(Value::as_str) == Some(directive)
}

/// Sorts `merged`. Elements that are in `order` get that order. The other elements are placed between them, in the
/// order of `live`, the object's list before the patch.
fn in_order(merged: Vec<Value>, order: &Places, live: &Places, key: &str) -> Result<Vec<Value>, ApiError> {
    let (mut named, mut others) = (Vec::new(), Vec::new());
    for element in merged {
        let id = identity(&element, key)?;
        let live_place = live.get(&id).copied();
        match order.get(&id) {
            Some(at) => named.push((*at, live_place, element)),
            None => others.push((live_place, element)),
        }
    }
    named.sort_by_key(|(at, ..)| *at);
    let others = others_in_order(others);
    let mut sorted = Vec::with_capacity(named.len() + others.len());
    let named = named.into_iter().map(|(_, live_place, element)| (live_place, element));
    let (mut named, mut others) = (named.peekable(), others.into_iter().peekable());
    loop {
        let other_first = match (others.peek(), named.peek()) {
            (Some((Some(other), _)), Some((Some(name), _))) => other < name,
            (Some(_), None) => true,
            _ => false,
        };
        match if other_first { others.next() } else { named.next() } {
            Some((_, element)) => sorted.push(element),
            None => return Ok(sorted),
        }
    }
}

/// Maximum number of elements for which Go's stable sort is an insertion sort.
const INSERTION_SORT_MAX: usize = 20;

/// Sorts elements by their index in the object's list before the patch. An element without an index is new. Such
/// elements occur here only if `$setElementOrder` is empty. By kube-apiserver's comparison, each of two such elements
/// comes before the other, so the result depends on Go's sort algorithm. For lists that Go sorts by insertion, this
/// function returns the same as Go.
fn others_in_order<T>(mut others: Vec<(Option<usize>, T)>) -> Vec<(Option<usize>, T)> {
    if others.len() > INSERTION_SORT_MAX {
        others.sort_by_key(|(place, _)| place.unwrap_or(usize::MAX));
        return others;
    }
    let mut sorted: Vec<(Option<usize>, T)> = Vec::with_capacity(others.len());
    for other in others {
        let stays_before = |(place, _): &(Option<usize>, T)| place.is_some() && *place <= other.0;
        let at = sorted.iter().rposition(stays_before).map_or(0, |last| last + 1);
        sorted.insert(at, other);
    }
    sorted
}

/// Returns the text that identifies an element in its list: the member `key` of the element, or the whole element if
/// `key` is empty.
fn identity(element: &Value, key: &str) -> Result<String, ApiError> {
    if key.is_empty() {
        return Ok(element.to_string());
    }
    let Value::Object(members) = element else {
        return Err(internal(&format!("expected a map[string]interface {{}}, but received a {}", go_type(element))));
    };
    let value = members
        .get(key)
        .ok_or_else(|| internal(&format!("map: {} does not contain declared merge key: {key}", go_value(element))))?;
    Ok(value.to_string())
}

/// Whether all elements of both lists have the same Go type. Returns an error for a list of lists.
fn is_of_one_type(own: &[Value], theirs: &[Value]) -> Result<bool, ApiError> {
    let mut elements = own.iter().chain(theirs);
    let Some(first) = elements.next() else { return Ok(true) };
    if first.is_array() {
        return Err(ApiError::JsonPatchRejected);
    }
    let go_type_of_first = go_type(first);
    Ok(elements.all(|element| go_type(element) == go_type_of_first))
}

/// Returns a value of the patch without its directives, for a place where the object has no value to merge with.
/// Returns `None` for an object that contains `$patch`.
fn without_directives(value: Value) -> Option<Value> {
    match value {
        Value::Object(members) if members.contains_key(DIRECTIVE) => None,
        Value::Object(members) => {
            let kept = members.into_iter().filter_map(|(key, member)| Some((key, without_directives(member)?)));
            Some(Value::Object(kept.collect()))
        }
        Value::Array(elements) => Some(Value::Array(elements.into_iter().filter_map(without_directives).collect())),
        scalar => Some(scalar),
    }
}

/// Returns the name of the list in the key of a directive, such as `$setElementOrder/finalizers`.
fn listed_key<'k>(key: &'k str, prefix: &str, malformed: &str) -> Result<&'k str, ApiError> {
    match key.split_once('/') {
        Some((directive, name)) if directive == prefix => Ok(name),
        _ => Err(bad_request(malformed)),
    }
}

fn elements(value: Value) -> Result<Vec<Value>, ApiError> {
    match value {
        Value::Array(elements) => Ok(elements),
        other => Err(internal(&format!("expected a []interface {{}}, but received a {}", go_type(&other)))),
    }
}

/// Formats the type of a value like Go's `%s`. `null` is decoded to a nil, which has no type.
fn go_type(value: &Value) -> &'static str {
    if value.is_null() { "%!s(<nil>)" } else { print::go_type(value) }
}

#[cold]
fn unknown_directive(directive: &Value, patch: &Value) -> ApiError {
    internal(&format!("unknown patch type: {} in map: {}", go_text(directive), go_value(patch)))
}

#[cold]
fn bad_request(words: &str) -> ApiError {
    ApiError::BadRequest { message: words.to_owned() }
}

#[cold]
fn internal(words: &str) -> ApiError {
    ApiError::Unclassified { message: words.to_owned() }
}

#[cfg(test)]
mod tests;
