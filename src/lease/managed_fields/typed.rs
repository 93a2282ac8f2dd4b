//! Validates, compares and merges JSON values of a known type, such as a Lease (structured-merge-diff, `typed`). The
//! functions recurse at most as deep as the type, even if the value is nested more deeply.

use super::path_element::PathElement;
use super::schema::{Identity, ListType, MapType, Type};
use super::set::Set;
use crate::go::print::{go_syntax, go_type, go_value};
use serde_json::{Map, Value};
use std::collections::BTreeMap;

/// Maximum number of errors that are reported for one value.
const ERRORS_MAX: usize = 100;

/// Validates a value, and adds each error to `errors`. `path` is the path of the value for the error messages. In a
/// map, the validation stops at the first undeclared field.
pub(super) fn validate(value: &Value, of: Type, path: &str, errors: &mut Vec<String>) {
    if errors.len() >= ERRORS_MAX || value.is_null() {
        return;
    }
    let mut complain = |path: &str, what: String| {
        let colon = if path.is_empty() { "" } else { ": " };
        errors.push(format!("{path}{colon}{what}"));
    };
    match (of, value) {
        (Type::Bool | Type::Scalar, Value::Bool(_))
        | (Type::Number | Type::Scalar, Value::Number(_))
        | (Type::String | Type::Scalar, Value::String(_)) => {}
        (Type::Scalar, other) => complain(path, format!("expected any scalar, got &{{{}}}", go_value(other))),
        (Type::Bool, other) => complain(path, format!("expected boolean, got &{{{}}}", go_value(other))),
        (Type::Number, other) => complain(path, format!("expected numeric (int or float), got {}", go_type(other))),
        (Type::String, other) => {
            complain(path, format!("expected string, got &value.valueUnstructured{{Value:{}}}", go_syntax(other)));
        }
        (Type::Map(map), Value::Object(members)) => {
            for (name, member) in members {
                let path = format!("{path}.{name}");
                match map.at(name) {
                    Some(of) => validate(member, of, &path, errors),
                    None => return errors.push(format!("{path}: field not declared in schema")),
                }
            }
        }
        (Type::Map(_), other) => complain(path, format!("expected map, got &{{{}}}", go_value(other))),
        (Type::List(list), Value::Array(elements)) => validate_elements(elements, list, path, errors),
        (Type::List(_), other) => complain(path, format!("expected list, got &{{{}}}", go_value(other))),
    }
}

fn validate_elements(elements: &[Value], list: &ListType, path: &str, errors: &mut Vec<String>) {
    let mut seen = std::collections::BTreeSet::new();
    for (index, element) in elements.iter().enumerate() {
        let step = if list.identity == Identity::Atomic {
            PathElement::Index(i64::try_from(index).unwrap_or(i64::MAX))
        } else {
            match list.path_element(element) {
                Ok(step) => step,
                Err(why) => return errors.push(format!("{path}: element {index}: {why}")),
            }
        };
        let path_of_element = format!("{path}{step}");
        if !seen.insert(step.clone()) && errors.len() < ERRORS_MAX {
            errors.push(format!("{path}: duplicate entries for key {step}"));
        }
        validate(element, list.element, &path_of_element, errors);
    }
}

/// Returns the set of the fields that a value contains.
pub(super) fn field_set(value: &Value, of: Type) -> Set {
    match (of, value) {
        (Type::Map(map), Value::Object(members)) if !map.atomic => {
            let (mut own, mut children) = (Vec::new(), Vec::new());
            for (name, member) in members {
                let element = PathElement::field(name);
                let Some(of) = map.at(name) else { continue };
                let is_empty = member.is_null() || member.as_object().is_some_and(Map::is_empty);
                if is_empty || is_leaf(member, of) || !map.is_field(name) {
                    own.push(element.clone());
                }
                children.push((element, field_set(member, of)));
            }
            Set::from_parts(own, children)
        }
        (Type::List(list), Value::Array(elements)) if list.identity != Identity::Atomic => {
            // In this schema, list elements have no nested fields. Repeated list elements count as one field.
            let own = elements.iter().filter_map(|element| list.path_element(element).ok()).collect();
            Set::from_parts(own, Vec::new())
        }
        _ => Set::default(),
    }
}

/// Whether a manager owns this value as a whole.
fn is_leaf(value: &Value, of: Type) -> bool {
    match of {
        Type::Bool | Type::Number | Type::String | Type::Scalar => true,
        Type::Map(map) => map.atomic,
        Type::List(list) => list.identity == Identity::Atomic || value.is_null(),
    }
}

/// The differences between an old and a new value of one type.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Comparison {
    /// Fields that only the old value contains.
    pub(super) removed: Set,
    /// Fields that both values contain, with different content.
    pub(super) modified: Set,
    /// Fields that only the new value contains.
    pub(super) added: Set,
}

/// Compares two values of one type, at least one of which is present. Returns the change of the field itself, and the
/// changes of its nested fields.
pub(super) fn compare(old: Option<&Value>, new: Option<&Value>, of: Type) -> (Change, Comparison) {
    let change = match (old, new) {
        (None, _) => Change::Added,
        (_, None) => Change::Removed,
        (Some(old), Some(new)) if old == new => Change::None,
        _ => Change::Modified,
    };
    match of {
        Type::Map(map) if !map.atomic => {
            let (old_members, new_members) = (members_of(old), members_of(new));
            if is_nothing(old_members.map(Map::len)) && is_nothing(new_members.map(Map::len)) {
                return (change, Comparison::default());
            }
            (change.of_parent(), compare_members(old_members, new_members, map))
        }
        Type::List(list) if list.identity != Identity::Atomic => {
            let (old_elements, new_elements) = (elements_of(old), elements_of(new));
            if old_elements.is_empty() && new_elements.is_empty() {
                return (change, Comparison::default());
            }
            (change.of_parent(), compare_elements(old_elements, new_elements, list))
        }
        _ => (change, Comparison::default()),
    }
}

/// The change of one field.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Change {
    None,
    Added,
    Modified,
    Removed,
    /// One list element has become several elements with the same identity, or several have become one. The element
    /// counts as both removed and added.
    Replaced,
}

impl Change {
    /// Returns the change of a field that has nested fields. Such a field can itself be added or removed. A
    /// modification counts only for the nested fields.
    fn of_parent(self) -> Self {
        if self == Self::Modified { Self::None } else { self }
    }
}

fn compare_members(old: Option<&Map<String, Value>>, new: Option<&Map<String, Value>>, map: &MapType) -> Comparison {
    let empty = Map::new();
    let (old, new) = (old.unwrap_or(&empty), new.unwrap_or(&empty));
    let mut parts = Parts::default();
    for name in old.keys().chain(new.keys().filter(|name| !old.contains_key(*name))) {
        let Some(of) = map.at(name) else { continue };
        let (change, below) = compare(old.get(name), new.get(name), of);
        parts.put(PathElement::field(name), change, Some(below));
    }
    parts.comparison()
}

/// Compares the elements of two lists, grouped by identity. If an identity occurs once in each list, both elements are
/// compared. Several elements with one identity count as one field, which is changed if any of these elements is
/// changed.
fn compare_elements(old: &[Value], new: &[Value], list: &ListType) -> Comparison {
    let mut groups: BTreeMap<PathElement, (Vec<&Value>, Vec<&Value>)> = BTreeMap::new();
    for element in old {
        if let Ok(step) = list.path_element(element) {
            groups.entry(step).or_default().0.push(element);
        }
    }
    for element in new {
        if let Ok(step) = list.path_element(element) {
            groups.entry(step).or_default().1.push(element);
        }
    }
    let mut parts = Parts::default();
    for (step, (old, new)) in groups {
        parts.put(step, group_change(old.len(), new.len(), old == new), None);
    }
    parts.comparison()
}

/// Returns the change of the elements with one identity. `old` and `new` are the numbers of such elements in the old
/// and in the new list. `equal` is true if the elements in both lists are equal.
pub(super) fn group_change(old: usize, new: usize, equal: bool) -> Change {
    match (old, new) {
        (0, _) => Change::Added,
        (_, 0) => Change::Removed,
        (1, 1) if equal => Change::None,
        (1, 1) => Change::Modified,
        (1, _) | (_, 1) => Change::Replaced,
        _ if equal => Change::None,
        _ => Change::Modified,
    }
}

/// The three sets of a [`Comparison`] while the comparison is in progress.
#[derive(Default)]
pub(super) struct Parts {
    removed: (Vec<PathElement>, Vec<(PathElement, Set)>),
    modified: (Vec<PathElement>, Vec<(PathElement, Set)>),
    added: (Vec<PathElement>, Vec<(PathElement, Set)>),
}

impl Parts {
    pub(super) fn put(&mut self, element: PathElement, change: Change, below: Option<Comparison>) {
        if let Some(below) = below {
            for (part, set) in [
                (&mut self.removed, below.removed),
                (&mut self.modified, below.modified),
                (&mut self.added, below.added),
            ] {
                if !set.is_empty() {
                    part.1.push((element.clone(), set));
                }
            }
        }
        match change {
            Change::None => {}
            Change::Added => self.added.0.push(element),
            Change::Modified => self.modified.0.push(element),
            Change::Removed => self.removed.0.push(element),
            Change::Replaced => {
                self.removed.0.push(element.clone());
                self.added.0.push(element);
            }
        }
    }

    pub(super) fn comparison(self) -> Comparison {
        Comparison {
            removed: Set::from_parts(self.removed.0, self.removed.1),
            modified: Set::from_parts(self.modified.0, self.modified.1),
            added: Set::from_parts(self.added.0, self.added.1),
        }
    }
}

/// Merges the applied configuration `config` into the value `live` of the object. Merges maps, and lists whose elements
/// have identities. Any other value in `config` replaces the value in `live`. The merge removes nothing, and `null`
/// counts as a value.
pub(super) fn merge(live: Option<&Value>, config: Option<&Value>, of: Type) -> Option<Value> {
    let kept = || config.or(live).cloned();
    match of {
        Type::Map(map) if !map.atomic => {
            let (live, over) = (members_of(live), members_of(config));
            if is_nothing(live.map(Map::len)) && is_nothing(over.map(Map::len)) {
                return kept();
            }
            let empty = Map::new();
            let (live, over) = (live.unwrap_or(&empty), over.unwrap_or(&empty));
            let names = live.keys().chain(over.keys().filter(|name| !live.contains_key(*name)));
            let members: Map<_, _> = names
                .filter_map(|name| Some((name.clone(), merge(live.get(name), over.get(name), map.at(name)?)?)))
                .collect();
            (!members.is_empty()).then_some(Value::Object(members))
        }
        Type::List(list) if list.identity != Identity::Atomic => {
            let (live, over) = (elements_of(live), elements_of(config));
            if live.is_empty() && over.is_empty() {
                return kept();
            }
            let elements = merge_elements(live, over, list);
            (!elements.is_empty()).then_some(Value::Array(elements))
        }
        _ => kept(),
    }
}

/// Merges the list `over` of the configuration into the list `live` of the object. The order of the elements of `over`
/// does not change. Elements that are only in `live` are placed between them, in the order of `live`.
fn merge_elements(live: &[Value], over: &[Value], list: &ListType) -> Vec<Value> {
    let steps = |elements: &[Value]| -> Vec<_> { elements.iter().map(|e| list.path_element(e).ok()).collect() };
    let (live_steps, over_steps) = (steps(live), steps(over));
    let in_live: BTreeMap<_, ()> = live_steps.iter().map(|step| (step, ())).collect();
    let in_over: BTreeMap<_, usize> = over_steps.iter().enumerate().map(|(at, step)| (step, at)).collect();
    // Elements of `over` that are also in `live`, in the order of `over`.
    let mut shared = over_steps.iter().filter(|step| in_live.contains_key(step));
    let mut next_shared = shared.next();
    let mut merged = vec![false; over.len()];
    let mut out = Vec::with_capacity(live.len().max(over.len()));
    let (mut l, mut o) = (0, 0);
    while l < live.len() || o < over.len() {
        if let (Some(step), Some(wanted)) = (live_steps.get(l), over_steps.get(o)) {
            if step == wanted {
                out.extend(over.get(o).cloned());
                merged[o] = true;
                (l, o) = (l + 1, o + 1);
                next_shared = shared.next();
                continue;
            }
            if in_over.contains_key(step) && next_shared.is_some_and(|next| next != step) {
                // The loop adds this element of `live` later, at its place in `over`.
                l += 1;
                continue;
            }
        }
        if let Some(step) = live_steps.get(l) {
            match in_over.get(step) {
                None => {
                    out.extend(live.get(l).cloned());
                    l += 1;
                    continue;
                }
                // The loop has already added this element of `live`.
                Some(at) if merged[*at] => l += 1,
                Some(_) => {}
            }
        }
        if let Some(step) = over_steps.get(o) {
            out.extend(over.get(o).cloned());
            merged[o] = true;
            o += 1;
            if next_shared == Some(step) {
                next_shared = shared.next();
            }
        }
    }
    out
}

/// Returns `value` without the fields in `gone`. A map or list that becomes empty is replaced by `null`.
pub(super) fn remove(value: &Value, gone: &Set, of: Type) -> Value {
    match (of, value) {
        (Type::Bool | Type::Number | Type::String | Type::Scalar, scalar) => scalar.clone(),
        (Type::Map(map), Value::Object(members)) if !map.atomic => {
            let mut left = Map::new();
            for (name, member) in members {
                let element = PathElement::field(name);
                let Some(of) = map.at(name) else { continue };
                if !gone.has_member(&element) {
                    let below = gone.child(&element).map(|below| remove(member, below, of));
                    left.insert(name.clone(), below.unwrap_or_else(|| member.clone()));
                }
            }
            if left.is_empty() { Value::Null } else { Value::Object(left) }
        }
        (Type::List(list), Value::Array(elements)) if list.identity != Identity::Atomic => {
            let stays = |element: &&Value| !list.path_element(element).is_ok_and(|step| gone.has_member(&step));
            let left: Vec<_> = elements.iter().filter(stays).cloned().collect();
            if left.is_empty() { Value::Null } else { Value::Array(left) }
        }
        _ => Value::Null,
    }
}

fn members_of(value: Option<&Value>) -> Option<&Map<String, Value>> {
    value.and_then(Value::as_object)
}

fn elements_of(value: Option<&Value>) -> &[Value] {
    value.and_then(Value::as_array).map_or(&[], Vec::as_slice)
}

fn is_nothing(len: Option<usize>) -> bool {
    len.is_none_or(|len| len == 0)
}
