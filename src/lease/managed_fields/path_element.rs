//! One step of a path to a field: `f:metadata`, `k:{"uid":"…"}`, `v:"…"`, `i:0` (structured-merge-diff, `fieldpath`).

use crate::go::json::push_string;
use crate::go::quote::go_quoted;
use compact_str::CompactString;
use serde_json::{Number, Value};
use std::cmp::Ordering;
use std::fmt;

/// A step of a path, from an object or a list to one of its parts. The order of the variants is their order in
/// `fieldsV1`.
#[derive(Clone, Debug)]
pub(crate) enum PathElement {
    /// A member of an object.
    Field(CompactString),
    /// The list element whose members with these names have these values, such as the owner with this `uid`.
    Key(Vec<(String, Value)>),
    /// The element of a list that equals this value. Such a list is a set.
    Value(Value),
    /// The element of a list at this index.
    Index(i64),
}

/// The reason why a step cannot be parsed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Unread {
    /// The kind of the step is unknown. A later version of Kubernetes may define this kind, so the caller skips the
    /// step.
    UnknownKind,
    /// The step is malformed.
    Malformed,
}

impl PathElement {
    pub(crate) fn field(name: &str) -> Self {
        Self::Field(CompactString::new(name))
    }

    /// Creates the step to the element of `ownerReferences` with this UID.
    pub(crate) fn uid(uid: &str) -> Self {
        Self::Key(vec![("uid".to_owned(), Value::String(uid.to_owned()))])
    }

    /// Creates the step to the element `text` of a set of strings.
    pub(crate) fn text(text: &str) -> Self {
        Self::Value(Value::String(text.to_owned()))
    }

    /// Parses a step from its text in `fieldsV1`.
    pub(super) fn parse(text: &str) -> Result<Self, Unread> {
        let (kind, content) = match text.as_bytes() {
            [kind, b':', ..] => (*kind, text.get(2..).ok_or(Unread::Malformed)?),
            _ => return Err(Unread::Malformed),
        };
        match kind {
            b'f' => Ok(Self::field(content)),
            b'v' => serde_json::from_str(content).map(Self::Value).map_err(|_| Unread::Malformed),
            b'k' => match serde_json::from_str(content) {
                // serde_json has already sorted the members by name.
                Ok(Value::Object(members)) => Ok(Self::Key(members.into_iter().collect())),
                _ => Err(Unread::Malformed),
            },
            b'i' => content.parse().map(Self::Index).map_err(|_| Unread::Malformed),
            _ => Err(Unread::UnknownKind),
        }
    }

    /// Appends the text of the step in `fieldsV1`, as a quoted JSON string.
    pub(super) fn push_json(&self, out: &mut Vec<u8>) {
        match self {
            Self::Field(name) => {
                let start = out.len();
                push_string(out, name);
                out.splice(start..=start, *b"\"f:");
            }
            Self::Key(members) => {
                let mut inner = b"k:{".to_vec();
                for (at, (name, value)) in members.iter().enumerate() {
                    if at > 0 {
                        inner.push(b',');
                    }
                    push_string(&mut inner, name);
                    inner.push(b':');
                    push_value(&mut inner, value);
                }
                inner.push(b'}');
                push_string(out, &String::from_utf8_lossy(&inner));
            }
            Self::Value(value) => {
                let mut inner = b"v:".to_vec();
                push_value(&mut inner, value);
                push_string(out, &String::from_utf8_lossy(&inner));
            }
            Self::Index(index) => {
                out.extend_from_slice(b"\"i:");
                out.extend_from_slice(itoa::Buffer::new().format(*index).as_bytes());
                out.push(b'"');
            }
        }
    }

    fn rank(&self) -> u8 {
        match self {
            Self::Field(_) => 0,
            Self::Key(_) => 1,
            Self::Value(_) => 2,
            Self::Index(_) => 3,
        }
    }
}

impl Ord for PathElement {
    fn cmp(&self, other: &Self) -> Ordering {
        match (self, other) {
            (Self::Field(a), Self::Field(b)) => a.cmp(b),
            (Self::Key(a), Self::Key(b)) => compare_members(a.iter(), b.iter()),
            (Self::Value(a), Self::Value(b)) => compare_values(a, b),
            (Self::Index(a), Self::Index(b)) => a.cmp(b),
            _ => self.rank().cmp(&other.rank()),
        }
    }
}

impl PartialOrd for PathElement {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for PathElement {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl Eq for PathElement {}

/// Formats a step as messages show it: `.spec`, `[uid="…"]`, `[="…"]`, `[0]`.
impl fmt::Display for PathElement {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Field(name) => write!(f, ".{name}"),
            Self::Key(members) => {
                f.write_str("[")?;
                for (at, (name, value)) in members.iter().enumerate() {
                    let comma = if at > 0 { "," } else { "" };
                    write!(f, "{comma}{name}={}", shown(value))?;
                }
                f.write_str("]")
            }
            Self::Value(value) => write!(f, "[={}]", shown(value)),
            Self::Index(index) => write!(f, "[{index}]"),
        }
    }
}

fn shown(value: &Value) -> String {
    match value {
        Value::String(text) => go_quoted(text),
        other => other.to_string(),
    }
}

fn push_value(out: &mut Vec<u8>, value: &Value) {
    match value {
        Value::String(text) => push_string(out, text),
        other => out.extend_from_slice(other.to_string().as_bytes()),
    }
}

/// Compares two values in the order of structured-merge-diff: numbers, strings, booleans, lists, maps, null.
fn compare_values(a: &Value, b: &Value) -> Ordering {
    match (a, b) {
        (Value::Number(a), Value::Number(b)) => compare_numbers(a, b),
        (Value::String(a), Value::String(b)) => a.cmp(b),
        (Value::Bool(a), Value::Bool(b)) => a.cmp(b),
        (Value::Array(a), Value::Array(b)) => {
            let unequal = a.iter().zip(b).map(|(a, b)| compare_values(a, b)).find(|order| order.is_ne());
            unequal.unwrap_or_else(|| a.len().cmp(&b.len()))
        }
        (Value::Object(a), Value::Object(b)) => compare_members(a.iter(), b.iter()),
        _ => value_rank(a).cmp(&value_rank(b)),
    }
}

fn compare_members<'v, N: Ord + 'v>(
    mut a: impl Iterator<Item = impl Into<Member<'v, N>>>,
    mut b: impl Iterator<Item = impl Into<Member<'v, N>>>,
) -> Ordering {
    loop {
        let (a, b) = match (a.next(), b.next()) {
            (None, None) => return Ordering::Equal,
            (None, Some(_)) => return Ordering::Less,
            (Some(_), None) => return Ordering::Greater,
            (Some(a), Some(b)) => (a.into(), b.into()),
        };
        let order = a.0.cmp(b.0).then_with(|| compare_values(a.1, b.1));
        if order.is_ne() {
            return order;
        }
    }
}

/// A name and a value, from a map or from a list of pairs.
struct Member<'v, N>(&'v N, &'v Value);

impl<'v, N> From<&'v (N, Value)> for Member<'v, N> {
    fn from((name, value): &'v (N, Value)) -> Self {
        Self(name, value)
    }
}

impl<'v, N> From<(&'v N, &'v Value)> for Member<'v, N> {
    fn from((name, value): (&'v N, &'v Value)) -> Self {
        Self(name, value)
    }
}

/// Compares two numbers exactly: an `i64` by its value, and any other number as the nearest `f64`. To compare an
/// integer with a float, Go converts the integer to a float. So two different integers may equal the same float. Go's
/// comparison is therefore not an order, and Rust's sort could panic with it.
fn compare_numbers(a: &Number, b: &Number) -> Ordering {
    let float = |n: &Number| n.as_f64().unwrap_or(f64::INFINITY);
    match (a.as_i64(), b.as_i64()) {
        (Some(a), Some(b)) => a.cmp(&b),
        (Some(a), None) => compare_with_float(a, float(b)),
        (None, Some(b)) => compare_with_float(b, float(a)).reverse(),
        // JSON has no NaN, so two floats are always comparable.
        (None, None) => float(a).partial_cmp(&float(b)).unwrap_or(Ordering::Equal),
    }
}

/// Compares an integer with a float, without a conversion of the integer.
fn compare_with_float(integer: i64, float: f64) -> Ordering {
    if float >= TWO_TO_63 {
        return Ordering::Less;
    }
    if float < -TWO_TO_63 {
        return Ordering::Greater;
    }
    #[expect(clippy::cast_possible_truncation, reason = "it is between the bounds of i64")]
    let whole = float.trunc() as i64;
    integer.cmp(&whole).then_with(|| 0.0.partial_cmp(&float.fract()).unwrap_or(Ordering::Equal))
}

const TWO_TO_63: f64 = 9_223_372_036_854_775_808.0;

fn value_rank(value: &Value) -> u8 {
    match value {
        Value::Number(_) => 0,
        Value::String(_) => 1,
        Value::Bool(_) => 2,
        Value::Array(_) => 3,
        Value::Object(_) => 4,
        Value::Null => 5,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rewritten(text: &str) -> String {
        let mut out = Vec::new();
        PathElement::parse(text).expect(text).push_json(&mut out);
        String::from_utf8(out).expect("UTF-8")
    }

    #[test]
    fn every_kind_is_read_and_written() {
        for text in ["f:", "f:metadata", "f:a.b/c", r#"v:"example.com/f""#, "v:1", "v:true", "i:0", "i:-7"] {
            assert_eq!(rewritten(text), serde_json::to_string(text).expect("JSON"), "{text}");
        }
        assert_eq!(rewritten(r#"k:{"uid":"u","a":1}"#), r#""k:{\"a\":1,\"uid\":\"u\"}""#);
        assert_eq!(PathElement::parse("x:later"), Err(Unread::UnknownKind));
        for text in ["", ".", "f", "fx", "v:", "v:{", "k:1", "k:", "i:x", "é:"] {
            assert_eq!(PathElement::parse(text), Err(Unread::Malformed), "{text}");
        }
    }

    #[test]
    fn steps_have_the_order_of_structured_merge_diff() {
        let sorted = r#"f:a f:b k:{} k:{"a":1} k:{"a":1,"b":1} k:{"a":2} k:{"b":1} v:-1 v:1.5 v:2 v:"1"
            v:"a" v:false v:true v:[1] v:[1,2] v:[2] v:{} v:null i:1 i:2"#;
        let sorted: Vec<_> = sorted.split_whitespace().collect();
        let parsed: Vec<_> = sorted.iter().map(|text| PathElement::parse(text).expect(text)).collect();
        for (at, a) in parsed.iter().enumerate() {
            for (bt, b) in parsed.iter().enumerate() {
                assert_eq!(a.cmp(b), at.cmp(&bt), "{} {}", sorted[at], sorted[bt]);
            }
        }
        assert_eq!(PathElement::parse("v:1"), PathElement::parse("v:1.0"));
    }

    /// Goal: the comparison of any numbers is antisymmetric and transitive. A sort by any other comparison may panic.
    #[test]
    fn numbers_of_all_kinds_have_one_order() {
        let mut texts: Vec<String> =
            ["0.0", "-0.0", "0.5", "-0.5", "1.0", "1.5", "-1.0", "1e300", "-1e300", "1e19"].map(str::to_owned).into();
        for base in [0, 1 << 53, -(1 << 53), 1 << 62, -(1 << 62), i64::MAX - 3, i64::MIN + 3] {
            texts.extend((-3..=3).map(|more| (base + more).to_string()));
            texts.extend((-3..=3).map(|more| format!("{}.0", base + more)));
        }
        texts.extend((0..3).map(|more| (u64::MAX / 2 + 2 - more).to_string()));
        let steps: Vec<_> = texts.iter().map(|text| PathElement::parse(&format!("v:{text}")).expect(text)).collect();
        for a in &steps {
            for b in &steps {
                assert_eq!(a.cmp(b), b.cmp(a).reverse(), "{a} {b}");
                for c in &steps {
                    assert!(a > b || b > c || a <= c, "{a} {b} {c}");
                }
            }
        }
        for (a, b) in [("v:1", "v:1.0"), ("v:0", "v:-0.0"), ("v:9007199254740992", "v:9007199254740992.0")] {
            assert_eq!(PathElement::parse(a), PathElement::parse(b));
        }
        let step = |text| PathElement::parse(text).expect(text);
        assert!(step("v:9007199254740993") > step("v:9007199254740992.0"));
    }

    #[test]
    fn path_elements_are_shown_as_in_kubectl() {
        assert_eq!(PathElement::field("spec").to_string(), ".spec");
        assert_eq!(PathElement::uid("u\"").to_string(), "[uid=\"u\\\"\"]");
        assert_eq!(PathElement::text("f").to_string(), "[=\"f\"]");
        assert_eq!(PathElement::Index(3).to_string(), "[3]");
    }
}
