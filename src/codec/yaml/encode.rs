//! Encodes YAML like sigs.k8s.io/yaml: in block style, with keys in natural order. A list is not indented under its
//! key, and long lines are folded at spaces. The module `scalar` encodes the scalars.

use super::scalar::{Style, column_after, push_scalar, style_of};
use serde_json::Value;
use std::cmp::Ordering;

/// Appends a YAML document that ends with a line feed. `json` is JSON that this server has encoded.
pub fn push_yaml(out: &mut Vec<u8>, json: &[u8]) {
    match serde_json::from_slice(json) {
        Ok(value) => {
            let mut emitter = Emitter { out, line_start: 0, is_after_indicator: true };
            emitter.line_start = emitter.out.len();
            emitter.push_node(&value, Place::Root);
            if emitter.column() > 0 {
                out.push(b'\n');
            }
        }
        // This error does not occur, since the server's own JSON can always be parsed. If it did, the output would
        // still be valid, since JSON is also YAML.
        Err(_) => out.extend_from_slice(json),
    }
}

/// The place of a node in the document. `indent` is the indent of the parent node, in columns.
#[derive(Clone, Copy)]
enum Place {
    Root,
    /// The value of a key in a map.
    Value {
        indent: usize,
    },
    /// An element of a list.
    Element {
        indent: usize,
    },
}

struct Emitter<'o> {
    out: &'o mut Vec<u8>,
    /// Offset in the output at which the current line starts.
    line_start: usize,
    /// Whether the current line consists only of spaces, `-`, `?` and `:`. If so, a map or list may begin on this line.
    is_after_indicator: bool,
}

impl Emitter<'_> {
    fn column(&self) -> usize {
        self.out.len() - self.line_start
    }

    /// Moves to the column `indent`. Stays on the current line if that line contains only indicators and is not longer
    /// than `indent`. Otherwise begins a new line.
    fn indent(&mut self, indent: usize) {
        if !self.is_after_indicator || self.column() > indent {
            self.out.push(b'\n');
            self.line_start = self.out.len();
        }
        self.out.resize(self.line_start + indent, b' ');
        self.is_after_indicator = true;
    }

    /// Appends a node. The recursion is limited, since the JSON parser accepts at most 128 levels.
    fn push_node(&mut self, node: &Value, place: Place) {
        match node {
            Value::Object(members) if !members.is_empty() => {
                let indent = match place {
                    Place::Root => 0,
                    Place::Value { indent } | Place::Element { indent } => indent + 2,
                };
                for (key, value) in sorted(members.iter().map(|(key, value)| (key.as_str(), value)).collect()) {
                    self.push_member(key, value, indent);
                }
            }
            Value::Array(elements) if !elements.is_empty() => {
                let indent = match place {
                    Place::Root => 0,
                    // A list under a key is not indented, except after the `: ` of a key that is too long for its line.
                    // A list within a list is indented.
                    Place::Value { indent } if !self.is_after_indicator => indent,
                    Place::Value { indent } | Place::Element { indent } => indent + 2,
                };
                for element in elements {
                    self.indent(indent);
                    self.out.push(b'-');
                    self.push_node(element, Place::Element { indent });
                }
            }
            scalar => {
                let indent = match place {
                    Place::Root => 2,
                    Place::Value { indent } | Place::Element { indent } => indent + 2,
                };
                self.space();
                match scalar {
                    Value::Object(_) => self.push_plain("{}"),
                    Value::Array(_) => self.push_plain("[]"),
                    Value::Null => self.push_plain("null"),
                    Value::Bool(true) => self.push_plain("true"),
                    Value::Bool(false) => self.push_plain("false"),
                    Value::Number(number) => self.push_plain(&number.to_string()),
                    Value::String(text) => self.push_text(text, indent, style_of(text, false), true),
                }
            }
        }
    }

    fn push_member(&mut self, key: &str, value: &Value, indent: usize) {
        self.indent(indent);
        if is_simple_key(key) {
            self.push_text(key, indent + 2, style_of(key, true), false);
            self.out.push(b':');
        } else {
            self.out.push(b'?');
            self.space();
            self.push_text(key, indent + 2, style_of(key, false), true);
            self.indent(indent);
            self.out.push(b':');
        }
        self.push_node(value, Place::Value { indent });
    }

    fn space(&mut self) {
        if !matches!(self.out.last(), None | Some(b' ' | b'\n')) {
            self.out.push(b' ');
        }
    }

    fn push_plain(&mut self, text: &str) {
        self.out.extend_from_slice(text.as_bytes());
        self.is_after_indicator = false;
    }

    fn push_text(&mut self, text: &str, indent: usize, style: Style, may_fold: bool) {
        let start = self.out.len();
        // The column is counted in characters. Each byte begins a character, except a continuation byte of UTF-8.
        let line = self.out.get(self.line_start..).unwrap_or_default();
        let column = line.iter().filter(|byte| *byte & 0xc0 != 0x80).count();
        push_scalar(self.out, text, style, indent, column, may_fold);
        let (line_start, is_empty) = column_after(self.out, start, self.line_start);
        self.line_start = line_start;
        // The output of a string in literal style may end with a line feed. Then the current line is empty.
        self.is_after_indicator = is_empty;
    }
}

/// Whether a key and its colon fit on one line (a simple key in YAML).
fn is_simple_key(key: &str) -> bool {
    const BYTES_MAX: usize = 128;
    key.len() <= BYTES_MAX && !key.contains(['\n', '\r', '\u{85}', '\u{2028}', '\u{2029}'])
}

/// Sorts the members of a map by [`key_order`]. A hostile client can choose keys for which `key_order` is not a total
/// order. The sort of the standard library may then panic. This merge sort always ends, in some order.
fn sorted<V: Copy>(mut members: Vec<(&str, V)>) -> Vec<(&str, V)> {
    let mut width = 1;
    while width < members.len() {
        let mut merged = Vec::with_capacity(members.len());
        for pair in members.chunks(2 * width) {
            let (left, right) = pair.split_at(width.min(pair.len()));
            let (mut left, mut right) = (left.iter().peekable(), right.iter().peekable());
            loop {
                let next = match (left.peek(), right.peek()) {
                    (Some(l), Some(r)) if key_order(l.0, r.0) == Ordering::Greater => right.next(),
                    (Some(_), _) => left.next(),
                    (None, _) => right.next(),
                };
                match next {
                    Some(member) => merged.push(*member),
                    None => break,
                }
            }
        }
        members = merged;
        width *= 2;
    }
    members
}

/// Compares two keys in natural order: letters come after all other characters, and numbers are compared by value.
fn key_order(a: &str, b: &str) -> Ordering {
    let equal = a.bytes().zip(b.bytes()).take_while(|(a, b)| a == b).count();
    // The first different character may begin before the first different byte.
    let at = a.floor_char_boundary(equal);
    let ((before, a), (_, b)) = (a.split_at(at), b.split_at(at));
    let (Some(x), Some(y)) = (a.chars().next(), b.chars().next()) else { return a.len().cmp(&b.len()) };
    match (x.is_alphabetic(), y.is_alphabetic()) {
        (true, true) => return x.cmp(&y),
        (true, false) => return Ordering::Greater,
        (false, true) => return Ordering::Less,
        (false, false) => {}
    }
    // If a digit other than zero comes before a zero in the same number, the zero is no leading zero, but part of the
    // value.
    let inside =
        (x == '0' || y == '0') && before.bytes().rev().take_while(u8::is_ascii_digit).any(|digit| digit != b'0');
    let number = |text: &str| {
        let digits = text.bytes().take_while(u8::is_ascii_digit);
        digits.fold((i64::from(inside), 0usize), |(n, count), digit| {
            (n.wrapping_mul(10).wrapping_add(i64::from(digit - b'0')), count + 1)
        })
    };
    let ((n, n_digits), (m, m_digits)) = (number(a), number(b));
    n.cmp(&m).then(n_digits.cmp(&m_digits)).then(x.cmp(&y))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn yaml(json: &str) -> String {
        let mut out = b"before\n".to_vec();
        push_yaml(&mut out, json.as_bytes());
        String::from_utf8(out.split_off(7)).expect("UTF-8")
    }

    #[test]
    fn a_lease_is_written_as_kubectl_shows_it() {
        assert_eq!(
            yaml(include_str!("../../../tests/wire/lease-full.json")),
            r#"apiVersion: coordination.k8s.io/v1
kind: Lease
metadata:
  annotations:
    empty: ""
    k: v
  creationTimestamp: "2026-11-21T00:02:25Z"
  finalizers:
  - example.com/f
  labels:
    a: "1"
    b: "2"
  managedFields:
  - apiVersion: coordination.k8s.io/v1
    fieldsType: FieldsV1
    fieldsV1:
      f:metadata:
        f:annotations:
          .: {}
          f:empty: {}
          f:k: {}
        f:finalizers:
          .: {}
          v:"example.com/f": {}
        f:labels:
          .: {}
          f:a: {}
          f:b: {}
        f:ownerReferences:
          .: {}
          k:{"uid":"u"}: {}
      f:spec:
        f:acquireTime: {}
        f:holderIdentity: {}
        f:leaseDurationSeconds: {}
        f:leaseTransitions: {}
        f:preferredHolder: {}
        f:renewTime: {}
        f:strategy: {}
    manager: conformance
    operation: Update
    time: "2026-11-21T00:02:25Z"
  name: full
  namespace: c-wire
  ownerReferences:
  - apiVersion: v1
    blockOwnerDeletion: false
    controller: true
    kind: Node
    name: "n"
    uid: u
  resourceVersion: "208"
  uid: 5dfea7de-ed50-4ae2-986c-d87c7cf980f3
spec:
  acquireTime: "2026-01-02T03:04:05.678901Z"
  holderIdentity: me
  leaseDurationSeconds: 40
  leaseTransitions: 0
  preferredHolder: you
  renewTime: "1969-12-31T23:59:58.000001Z"
  strategy: OldestEmulationVersion
"#
        );
    }

    #[test]
    fn lists_and_empty_values_are_laid_out_as_in_go() {
        assert_eq!(
            yaml(r#"{"items":[],"metadata":{},"rows":[{"cells":["a",[1,[2]],{}],"object":null}]}"#),
            "items: []\nmetadata: {}\nrows:\n- cells:\n  - a\n  - - 1\n    - - 2\n  - {}\n  object: null\n"
        );
        assert_eq!(yaml("{}"), "{}\n");
        assert_eq!(yaml("[]"), "[]\n");
        assert_eq!(yaml("{\"a\":\"x\\ny\\n\",\"b\":\" x\\n y\"}"), "a: |\n  x\n  y\nb: |2-\n   x\n   y\n");
        assert_eq!(yaml("broken"), "broken");
    }

    #[test]
    fn long_keys_take_a_line_of_their_own() {
        let key = "k".repeat(129);
        assert_eq!(yaml(&format!(r#"{{"{key}":"v"}}"#)), format!("? {key}\n: v\n"));
        assert_eq!(
            yaml(&format!(r#"{{"a":{{"{key}":{{"b":1,"c":[2]}}}}}}"#)),
            format!("a:\n  ? {key}\n  : b: 1\n    c:\n    - 2\n")
        );
        assert_eq!(yaml(&format!(r#"{{"{key}":[1,2]}}"#)), format!("? {key}\n: - 1\n  - 2\n"));
    }

    fn sorted_keys_of<'k>(keys: &[&'k str]) -> Vec<&'k str> {
        sorted(keys.iter().map(|key| (*key, ())).collect()).into_iter().map(|(key, ())| key).collect()
    }

    #[test]
    fn keys_are_sorted_in_natural_order() {
        for (expected, keys) in [
            (["a1", "a2", "a10", "b"], ["b", "a10", "a2", "a1"]),
            (["-", ".", "1", "a"], ["a", "1", ".", "-"]),
            (["a", "a-b", "a.b", "ab"], ["ab", "a.b", "a-b", "a"]),
        ] {
            assert_eq!(sorted_keys_of(&keys), expected);
        }
        assert_eq!(sorted_keys_of(&["x100", "x20", "x1000"]), ["x20", "x100", "x1000"]);
        assert_eq!(sorted_keys_of(&["x01", "x1", "x001"]), ["x1", "x01", "x001"]);
    }

    #[test]
    fn random_objects_are_encoded_without_a_panic() {
        let mut random = fastrand::Rng::with_seed(7);
        for _ in 0..3_000 {
            let text: String = (0..random.usize(..200))
                .map(|_| *random.choice(b"ab  \n-:#'\"1.{\t").expect("some"))
                .map(char::from)
                .collect();
            let keys: Vec<String> =
                (0..random.usize(..30)).map(|_| (0..random.usize(..6)).map(|_| random.char(..)).collect()).collect();
            let object: serde_json::Map<_, _> = keys.into_iter().map(|key| (key, Value::from(text.as_str()))).collect();
            let written = yaml(&Value::Object(object).to_string());
            assert!(written.ends_with('\n'));
        }
    }
}
