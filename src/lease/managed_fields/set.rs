//! Sets of fields, as trees of [`PathElement`]s. A node of the tree may be a member of the set, the parent of members,
//! or both (structured-merge-diff, `fieldpath.Set`). `fieldsV1` is the JSON form of a set.
//!
//! Invariant: the members and the children of a node are sorted, without repeats. A set that is parsed from JSON, or
//! computed from a Lease or from such sets, has at most [`DEPTH_MAX`] levels. So the recursion over a set is limited.

use super::path_element::{PathElement, Unread};
use serde::de::{DeserializeSeed, Deserializer, Error, IgnoredAny, MapAccess, Visitor};
use std::borrow::Cow;
use std::cmp::Ordering;
use std::fmt;

/// Maximum number of levels in a set from a client. The fields of a Lease need four levels.
const DEPTH_MAX: usize = 32;

/// A set of fields.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Set {
    /// Fields at this level that belong to the set.
    members: Vec<PathElement>,
    /// Fields at this level whose nested fields belong to the set, each with the set of these nested fields. None of
    /// these nested sets is empty.
    children: Vec<(PathElement, Set)>,
}

impl Set {
    pub(crate) fn is_empty(&self) -> bool {
        self.members.is_empty() && self.children.iter().all(|(_, child)| child.is_empty())
    }

    pub(crate) fn members(&self) -> &[PathElement] {
        &self.members
    }

    pub(crate) fn has_member(&self, element: &PathElement) -> bool {
        self.members.binary_search(element).is_ok()
    }

    pub(crate) fn has(&self, path: &[PathElement]) -> bool {
        let Some((last, parents)) = path.split_last() else { return false };
        let mut set = self;
        for parent in parents {
            let Some(child) = set.child(parent) else { return false };
            set = child;
        }
        set.has_member(last)
    }

    pub(crate) fn child(&self, element: &PathElement) -> Option<&Self> {
        let at = self.children.binary_search_by(|(own, _)| own.cmp(element)).ok()?;
        Some(&self.children.get(at)?.1)
    }

    /// Adds a field at this level to the set.
    pub(crate) fn insert_member(&mut self, element: PathElement) {
        if let Err(at) = self.members.binary_search(&element) {
            self.members.insert(at, element);
        }
    }

    /// Creates a set from its members and children in any order. The last of repeated children counts. Sorts each list
    /// once: single insertions would take quadratic time if a client chose the order.
    pub(crate) fn from_parts(mut members: Vec<PathElement>, mut children: Vec<(PathElement, Self)>) -> Self {
        if !members.is_sorted_by(|a, b| a < b) {
            members.sort();
            members.dedup();
        }
        children.retain(|(_, child)| !child.is_empty());
        if !children.is_sorted_by(|a, b| a.0 < b.0) {
            children.reverse();
            children.sort_by(by_element);
            children.dedup_by(|later, earlier| later.0 == earlier.0);
        }
        Self { members, children }
    }

    /// Returns the fields that are in this set or in `other`.
    pub(crate) fn union(&self, other: &Self) -> Self {
        let members = zipped(&self.members, &other.members, Ord::cmp).filter_map(|(a, b)| a.or(b).cloned()).collect();
        let children = zipped(&self.children, &other.children, by_element).filter_map(|pair| match pair {
            (Some(a), Some(b)) => Some((a.0.clone(), a.1.union(&b.1))),
            (one, None) | (None, one) => one.cloned(),
        });
        Self { members, children: children.collect() }
    }

    /// Returns the fields that are in any of `sets`. Of equal path elements with different texts, such as `v:1` and
    /// `v:1.0`, the result has the first one. Merges all sets at once: one merge after another would copy a large set
    /// for each of many small sets.
    pub(super) fn union_of(sets: &[&Self]) -> Self {
        // Both sorts are stable, so the first of equal elements stays first. They are fast on lists that consist of
        // sorted parts.
        let mut members: Vec<_> = sets.iter().flat_map(|set| &set.members).collect();
        members.sort();
        members.dedup();
        let mut children: Vec<_> = sets.iter().flat_map(|set| &set.children).collect();
        children.sort_by(|a, b| by_element(a, b));
        let joined = |same: &[&(PathElement, Self)]| {
            let (element, only) = same.first()?;
            let below = match same {
                [_] => only.clone(),
                all => Self::union_of(&all.iter().map(|(_, child)| child).collect::<Vec<_>>()),
            };
            Some((element.clone(), below))
        };
        Self {
            members: members.into_iter().cloned().collect(),
            children: children.chunk_by(|a, b| a.0 == b.0).filter_map(joined).collect(),
        }
    }

    /// Returns the fields that are in this set and in `other`.
    pub(crate) fn intersection(&self, other: &Self) -> Self {
        let members = self.members.iter().filter(|member| other.has_member(member)).cloned().collect();
        let children = self.children.iter().filter_map(|(element, child)| {
            let both = child.intersection(other.child(element)?);
            (!both.is_empty()).then(|| (element.clone(), both))
        });
        Self { members, children: children.collect() }
    }

    /// Returns the fields that are in this set but not in `other`. Removes neither the parents nor the nested fields of
    /// a field in `other`.
    pub(crate) fn difference(&self, other: &Self) -> Self {
        let members = self.members.iter().filter(|member| !other.has_member(member)).cloned().collect();
        let children = self.children.iter().filter_map(|(element, child)| {
            let rest = match other.child(element) {
                Some(theirs) => child.difference(theirs),
                None => child.clone(),
            };
            (!rest.is_empty()).then(|| (element.clone(), rest))
        });
        Self { members, children: children.collect() }
    }

    /// If fields nested in `element` are in the set, replaces these fields by `element` itself.
    pub(super) fn collapse(&mut self, element: &PathElement) {
        if let Ok(at) = self.children.binary_search_by(|(own, _)| own.cmp(element)) {
            self.children.remove(at);
            self.insert_member(element.clone());
        }
    }

    pub(super) fn child_mut(&mut self, element: &PathElement) -> Option<&mut Self> {
        let at = self.children.binary_search_by(|(own, _)| own.cmp(element)).ok()?;
        Some(&mut self.children.get_mut(at)?.1)
    }

    pub(crate) fn children(&self) -> impl Iterator<Item = (&PathElement, &Self)> {
        self.children.iter().map(|(element, child)| (element, child))
    }

    /// Calls `each` with the path of every field in the set, a parent before its nested fields.
    pub(crate) fn for_each(&self, each: &mut dyn FnMut(&[PathElement])) {
        self.for_each_below(&mut Vec::new(), each);
    }

    fn for_each_below(&self, path: &mut Vec<PathElement>, each: &mut dyn FnMut(&[PathElement])) {
        for member in &self.members {
            path.push(member.clone());
            each(path);
            path.pop();
        }
        for (element, child) in &self.children {
            path.push(element.clone());
            child.for_each_below(path, each);
            path.pop();
        }
    }

    /// Appends the set in the form of `fieldsV1`.
    pub(crate) fn push_json(&self, out: &mut Vec<u8>) {
        out.push(b'{');
        self.push_contents(out);
        out.push(b'}');
    }

    fn push_contents(&self, out: &mut Vec<u8>) {
        let mut first = true;
        for (member, child) in zipped(&self.members, &self.children, |member, (element, _)| member.cmp(element)) {
            if !std::mem::take(&mut first) {
                out.push(b',');
            }
            if let Some(element) = member.or_else(|| child.map(|(element, _)| element)) {
                element.push_json(out);
            }
            out.extend_from_slice(b":{");
            if let Some((_, child)) = child {
                if member.is_some() {
                    out.extend_from_slice(b"\".\":{},");
                }
                child.push_contents(out);
            }
            out.push(b'}');
        }
    }

    /// Parses `fieldsV1`; `None` if the text is malformed or has too many levels.
    pub(crate) fn parse(json: &str) -> Option<Self> {
        let mut deserializer = serde_json::Deserializer::from_str(json);
        let node = NodeSeed { depth: 0 }.deserialize(&mut deserializer).ok()?;
        deserializer.end().ok()?;
        Some(node.below)
    }
}

fn by_element(a: &(PathElement, Set), b: &(PathElement, Set)) -> Ordering {
    a.0.cmp(&b.0)
}

/// Iterates over two sorted slices in parallel, and pairs their equal elements. An element without an equal one comes
/// alone.
fn zipped<'s, A, B>(
    mut a: &'s [A],
    mut b: &'s [B],
    compare: impl Fn(&A, &B) -> Ordering,
) -> impl Iterator<Item = (Option<&'s A>, Option<&'s B>)> {
    std::iter::from_fn(move || {
        let order = match (a.first(), b.first()) {
            (None, None) => return None,
            (Some(_), None) => Ordering::Less,
            (None, Some(_)) => Ordering::Greater,
            (Some(x), Some(y)) => compare(x, y),
        };
        let x = if order.is_le() { a.split_off_first() } else { None };
        let y = if order.is_ge() { b.split_off_first() } else { None };
        Some((x, y))
    })
}

/// The parsed value of one key in `fieldsV1`.
struct Node {
    below: Set,
    /// Whether the key itself is a field in the set. This is so if its value has the member `.`, or no children.
    is_member: bool,
}

struct NodeSeed {
    depth: usize,
}

impl<'de> DeserializeSeed<'de> for NodeSeed {
    type Value = Node;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Node, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for NodeSeed {
    type Value = Node;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object or null")
    }

    fn visit_unit<E>(self) -> Result<Node, E> {
        Ok(Node { below: Set::default(), is_member: true })
    }

    fn visit_map<A: MapAccess<'de>>(self, mut entries: A) -> Result<Node, A::Error> {
        if self.depth > DEPTH_MAX {
            return Err(A::Error::custom("too deep"));
        }
        let (mut members, mut children, mut is_member) = (Vec::new(), Vec::new(), false);
        let mut is_leaf = true;
        while let Some(key) = entries.next_key::<Cow<'de, str>>()? {
            if key == "." {
                is_member = true;
                entries.next_value::<IgnoredAny>()?;
                continue;
            }
            match PathElement::parse(&key) {
                Ok(element) => {
                    let node = entries.next_value_seed(NodeSeed { depth: self.depth + 1 })?;
                    is_leaf = false;
                    if node.is_member {
                        members.push(element.clone());
                    }
                    children.push((element, node.below));
                }
                Err(Unread::UnknownKind) => _ = entries.next_value::<IgnoredAny>()?,
                Err(Unread::Malformed) => return Err(A::Error::custom("malformed")),
            }
        }
        Ok(Node { below: Set::from_parts(members, children), is_member: is_member || is_leaf })
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use std::collections::BTreeSet;

    pub(crate) fn text(set: &Set) -> String {
        let mut out = Vec::new();
        set.push_json(&mut out);
        String::from_utf8(out).expect("UTF-8")
    }

    /// Adds the field at `path` to `set`. An empty path adds nothing, since such a path leads to the whole object,
    /// which is not a field.
    pub(crate) fn insert(set: &mut Set, path: &[PathElement]) {
        let Some((last, parents)) = path.split_last() else { return };
        let mut set = set;
        for parent in parents {
            let at = match set.children.binary_search_by(|(own, _)| own.cmp(parent)) {
                Ok(at) => at,
                Err(at) => {
                    set.children.insert(at, (parent.clone(), Set::default()));
                    at
                }
            };
            set = &mut set.children[at].1;
        }
        set.insert_member(last.clone());
    }

    pub(crate) fn paths(set: &Set) -> BTreeSet<Vec<PathElement>> {
        let mut all = BTreeSet::new();
        set.for_each(&mut |path| assert!(all.insert(path.to_vec())));
        all
    }

    fn random_set(rng: &mut fastrand::Rng) -> Set {
        let mut set = Set::default();
        for _ in 0..rng.usize(..12) {
            let path: Vec<_> =
                (0..rng.usize(1..4)).map(|_| PathElement::field(rng.choice(["a", "b", "c"]).expect("one"))).collect();
            insert(&mut set, &path);
        }
        set
    }

    #[test]
    fn a_union_of_many_sets_equals_repeated_unions() {
        let mut rng = fastrand::Rng::with_seed(7);
        for _ in 0..2_000 {
            let sets: Vec<_> = (0..rng.usize(..6)).map(|_| random_set(&mut rng)).collect();
            let one_by_one = sets.iter().fold(Set::default(), |union, set| union.union(set));
            assert_eq!(Set::union_of(&sets.iter().collect::<Vec<_>>()), one_by_one);
        }
        // Of equal path elements, the union contains the first one, in its original spelling.
        let sets = [r#"{"v:1":{}}"#, r#"{"v:1.0":{"f:a":{}}}"#, r#"{"v:1":{"f:b":{}}}"#].map(Set::parse);
        let union = Set::union_of(&sets.iter().flatten().collect::<Vec<_>>());
        assert_eq!(text(&union), r#"{"v:1":{".":{},"f:a":{},"f:b":{}}}"#);
    }

    #[test]
    fn numbers_that_are_the_same_as_floats_can_be_sorted() {
        let mut rng = fastrand::Rng::with_seed(11);
        for _ in 0..50 {
            let number = |rng: &mut fastrand::Rng| {
                let number = (1_i64 << 62) + rng.i64(..1_000);
                if rng.u8(..3) == 0 { format!("\"v:{number}.0\":{{}}") } else { format!("\"v:{number}\":{{}}") }
            };
            let sets: Vec<_> = (0..50)
                .map(|_| {
                    let members: Vec<_> = (0..40).map(|_| number(&mut rng)).collect();
                    Set::parse(&format!("{{{}}}", members.join(","))).expect("a set")
                })
                .collect();
            let union = Set::union_of(&sets.iter().collect::<Vec<_>>());
            assert!(union.members().is_sorted() && union.members().len() > 400);
        }
    }

    #[test]
    fn the_json_form_matches_kube_apiserver() {
        for json in [
            "{}",
            r#"{"f:metadata":{"f:annotations":{".":{},"f:empty":{},"f:k":{}},"f:finalizers":{".":{},"v:\"example.com/f\"":{}},"f:ownerReferences":{".":{},"k:{\"uid\":\"u\"}":{}}},"f:spec":{"f:renewTime":{}}}"#,
        ] {
            assert_eq!(text(&Set::parse(json).expect(json)), json);
        }
        for (json, rewritten) in [
            (r#" {"f:b":{},"f:a":null,"x:later":1} "#, r#"{"f:a":{},"f:b":{}}"#),
            (r#"{"f:a":{"f:b":{}},"f:a":{}}"#, r#"{"f:a":{".":{},"f:b":{}}}"#),
            (r#"{"f:a":{"x:y":{}}}"#, r#"{"f:a":{}}"#),
            (r#"{".":{}}"#, "{}"),
            ("null", "{}"),
        ] {
            assert_eq!(text(&Set::parse(json).expect(json)), rewritten, "{json}");
        }
        for json in ["", "1", "[]", "{", r#"{"f:a":1}"#, r#"{"f":{}}"#, r#"{"k:1":{}}"#, "{} {}"] {
            assert_eq!(Set::parse(json), None, "{json}");
        }
        let nested = |depth: usize| format!("{}{}{}", r#"{"f:a":"#.repeat(depth), "{}", "}".repeat(depth));
        assert!(Set::parse(&nested(DEPTH_MAX)).is_some());
        assert_eq!(Set::parse(&nested(DEPTH_MAX + 1)), None);
        assert_eq!(Set::parse(&nested(100_000)), None);
    }

    /// Compares the functions on trees with the corresponding functions on sets of whole paths.
    #[test]
    fn set_operations_match_those_on_flat_sets_of_paths() {
        let mut rng = fastrand::Rng::with_seed(5);
        for _ in 0..5_000 {
            let (a, b) = (random_set(&mut rng), random_set(&mut rng));
            let (flat_a, flat_b) = (paths(&a), paths(&b));
            assert_eq!(paths(&a.union(&b)), &flat_a | &flat_b);
            assert_eq!(paths(&a.intersection(&b)), &flat_a & &flat_b);
            assert_eq!(paths(&a.difference(&b)), &flat_a - &flat_b);
            assert_eq!(a.is_empty(), flat_a.is_empty());
            assert_eq!(Set::parse(&text(&a)).as_ref(), Some(&a));
            for path in &flat_b {
                assert_eq!(a.has(path), flat_a.contains(path));
            }
        }
    }
}
