//! The schema of a Lease for server-side apply. The schema tells which fields are scalars, which fields have nested
//! fields, and what identifies the elements of a list. It agrees with the API's OpenAPI document and the extensions
//! `x-kubernetes-list-type` and `x-kubernetes-map-type` there.

use super::path_element::PathElement;
use super::set::Set;
use serde_json::Value;

/// The type of a field.
#[derive(Clone, Copy, Debug)]
pub(super) enum Type {
    Bool,
    Number,
    String,
    /// A value of any of the types above. Times have this type, and are checked in the conversion to a Lease.
    Scalar,
    Map(&'static MapType),
    List(&'static ListType),
}

/// The type of an object with declared fields, or of a map.
#[derive(Debug)]
pub(super) struct MapType {
    /// Declared fields by name, in any order.
    fields: &'static [(&'static str, Type)],
    /// Type of the members that are not declared. With `None`, only declared members are allowed.
    element: Option<Type>,
    /// Whether a manager owns the object as a whole, and not its members.
    pub(super) atomic: bool,
}

/// The type of a list.
#[derive(Debug)]
pub(super) struct ListType {
    pub(super) element: Type,
    pub(super) identity: Identity,
}

/// What identifies an element of a list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Identity {
    /// Nothing identifies an element, so a manager owns the list as a whole.
    Atomic,
    /// The value of an element identifies the element.
    Value,
    /// The member `uid` of an element identifies the element. A missing `uid` counts as an empty string.
    Uid,
}

impl MapType {
    /// Whether the schema declares the field `name`.
    pub(super) fn is_field(&self, name: &str) -> bool {
        self.fields.iter().any(|(own, _)| *own == name)
    }

    /// Returns the type of the member `name`; `None` if the schema forbids such a member.
    pub(super) fn at(&self, name: &str) -> Option<Type> {
        self.fields.iter().find(|(own, _)| *own == name).map(|(_, of)| *of).or(self.element)
    }
}

impl ListType {
    /// Returns the path element that leads to the list element `element`.
    ///
    /// # Errors
    /// The reason why no path element leads to `element`, in the words of structured-merge-diff.
    pub(super) fn path_element(&self, element: &Value) -> Result<PathElement, &'static str> {
        match (self.identity, element) {
            (Identity::Uid, Value::Null) => Err("associative list with keys may not have a null element"),
            (Identity::Uid, Value::Object(members)) => {
                let uid = members.get("uid").cloned().unwrap_or_else(|| Value::String(String::new()));
                Ok(PathElement::Key(vec![("uid".to_owned(), uid)]))
            }
            (Identity::Uid, _) => Err("associative list with keys may not have non-map elements"),
            (_, Value::Object(_)) => Err("associative list without keys has an element that's a map type"),
            (_, Value::Array(_)) => Err("not supported: associative list with lists as elements"),
            (_, Value::Null) => Err("associative list without keys has an element that's an explicit null"),
            (_, scalar) => Ok(PathElement::Value(scalar.clone())),
        }
    }
}

/// The type of a Lease.
pub(super) const LEASE: Type = Type::Map(&MapType {
    fields: &[
        ("apiVersion", Type::String),
        ("kind", Type::String),
        ("metadata", Type::Map(&MapType { fields: &METADATA_FIELDS, element: None, atomic: false })),
        ("spec", Type::Map(&MapType { fields: SPEC_FIELDS, element: None, atomic: false })),
    ],
    element: None,
    atomic: false,
});

const SPEC_FIELDS: &[(&str, Type)] = &[
    ("acquireTime", Type::Scalar),
    ("holderIdentity", Type::String),
    ("leaseDurationSeconds", Type::Number),
    ("leaseTransitions", Type::Number),
    ("preferredHolder", Type::String),
    ("renewTime", Type::Scalar),
    ("strategy", Type::String),
];

/// Names and types of all fields of the metadata.
pub(super) const METADATA_FIELDS: [(&str, Type); 15] = [
    ("annotations", STRING_MAP),
    ("creationTimestamp", Type::Scalar),
    ("deletionGracePeriodSeconds", Type::Number),
    ("deletionTimestamp", Type::Scalar),
    ("finalizers", Type::List(&ListType { element: Type::String, identity: Identity::Value })),
    ("generateName", Type::String),
    ("generation", Type::Number),
    ("labels", STRING_MAP),
    ("managedFields", Type::List(&ListType { element: MANAGED_FIELDS_ENTRY, identity: Identity::Atomic })),
    ("name", Type::String),
    ("namespace", Type::String),
    ("ownerReferences", Type::List(&ListType { element: OWNER_REFERENCE, identity: Identity::Uid })),
    ("resourceVersion", Type::String),
    ("selfLink", Type::String),
    ("uid", Type::String),
];

const STRING_MAP: Type = Type::Map(&MapType { fields: &[], element: Some(Type::String), atomic: false });

const OWNER_REFERENCE: Type = Type::Map(&MapType {
    fields: &[
        ("apiVersion", Type::String),
        ("blockOwnerDeletion", Type::Bool),
        ("controller", Type::Bool),
        ("kind", Type::String),
        ("name", Type::String),
        ("uid", Type::String),
    ],
    element: None,
    atomic: true,
});

/// The type of a `managedFields` entry. An applied configuration may not contain entries, so the schema declares no
/// fields of an entry.
const MANAGED_FIELDS_ENTRY: Type = Type::Map(&MapType { fields: &[], element: None, atomic: true });

/// Adapts a set from a client to this schema. If a manager can own a field only as a whole, replaces nested fields in
/// the set by the field.
pub(super) fn reconcile(set: &mut Set) {
    let Some(metadata) = set.child_mut(&PathElement::field("metadata")) else { return };
    metadata.collapse(&PathElement::field("managedFields"));
    if let Some(owners) = metadata.child_mut(&PathElement::field("ownerReferences")) {
        let elements: Vec<_> = owners.children().map(|(element, _)| element.clone()).collect();
        if !elements.is_empty() {
            let members = owners.members().iter().cloned().chain(elements).collect();
            *owners = Set::from_parts(members, Vec::new());
        }
    }
}

/// Returns `set` with additional members: each declared field whose nested fields are in `set`.
pub(super) fn with_named_fields(set: &Set, of: Option<Type>) -> Set {
    let mut members = set.members().to_vec();
    let mut children = Vec::new();
    for (element, child) in set.children() {
        let mut of_child = None;
        match (element, of) {
            (PathElement::Field(name), Some(Type::Map(map))) => {
                of_child = map.at(name);
                if map.is_field(name) {
                    members.push(element.clone());
                }
            }
            (PathElement::Key(_), Some(Type::List(list))) => of_child = Some(list.element),
            _ => {}
        }
        children.push((element.clone(), with_named_fields(child, of_child)));
    }
    Set::from_parts(members, children)
}

#[cfg(test)]
mod tests {
    use super::super::set::tests::text;
    use super::*;

    #[test]
    fn fields_of_an_owner_reference_become_the_whole_owner() {
        let mut set = Set::parse(
            r#"{"f:metadata":{"f:managedFields":{"f:x":{}},"f:ownerReferences":{"k:{\"uid\":\"u\"}":{".":{},"f:name":{}},"k:{\"uid\":\"v\"}":{"f:uid":{}}}},"f:unknown":{"f:x":{}}}"#,
        )
        .expect("a set");
        reconcile(&mut set);
        assert_eq!(
            text(&set),
            r#"{"f:metadata":{"f:managedFields":{},"f:ownerReferences":{"k:{\"uid\":\"u\"}":{},"k:{\"uid\":\"v\"}":{}}},"f:unknown":{"f:x":{}}}"#
        );
    }

    #[test]
    fn declared_parent_fields_are_added_to_the_set() {
        let set =
            Set::parse(r#"{"f:metadata":{"f:labels":{"f:a":{}}},"f:spec":{"f:strategy":{}},"f:other":{"f:x":{}}}"#);
        assert_eq!(
            text(&with_named_fields(&set.expect("a set"), Some(LEASE))),
            r#"{"f:metadata":{".":{},"f:labels":{".":{},"f:a":{}}},"f:other":{"f:x":{}},"f:spec":{".":{},"f:strategy":{}}}"#
        );
    }
}
