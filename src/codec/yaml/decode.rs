//! Decodes YAML to JSON values, as kube-apiserver does for a YAML body. A plain scalar has the type that it has in
//! go-yaml v2 under YAML 1.1: `yes` is true, `017` is 15. Dates are text, and keys become strings.
//!
//! [`YAML_BYTES_MAX`] limits the length of a text, and [`YAML_NODES_MAX`] the number of its nodes.
//! [`DOCUMENT_DEPTH_MAX`] limits the nesting, and [`ALIASED_BYTES_MAX`] the values that aliases repeat.

use super::text;
use crate::codec::json::repaired;
use crate::go::quote::go_quoted;
use crate::limits::{BODY_BYTES_MAX, DOCUMENT_DEPTH_MAX, YAML_BYTES_MAX, YAML_NODES_MAX};
use granit_parser::{Event, Parser, ScalarStyle};
use serde_json::{Map, Number, Value};
use std::collections::{HashMap, HashSet};
use std::mem::{Discriminant, discriminant};

/// Maximum sum of the sizes of all values that aliases repeat in one document, in bytes. The function [`size`] computes
/// the size of a value.
const ALIASED_BYTES_MAX: usize = BODY_BYTES_MAX;
/// Size of a value without its texts and elements, as counted for [`ALIASED_BYTES_MAX`], in bytes. A value takes less
/// memory. But each repetition takes time, and a short text may repeat many values. With this size, aliases repeat at
/// most 12,288 values.
const ALIASED_VALUE_BYTES: usize = 256;
/// Maximum number of messages in [`Document::duplicates`].
const DUPLICATES_MAX: usize = 100;

/// A decoded YAML document.
#[derive(Clone, Debug, PartialEq)]
pub struct Document {
    /// Value of the document; null if the text contains no document.
    pub value: Value,
    /// The message `line 3: key "name" already set in map` for each repeated key, up to `DUPLICATES_MAX`. The last
    /// value of a repeated key counts.
    pub duplicates: Vec<String>,
}

/// The reason why a text cannot be decoded.
#[derive(Clone, Debug, PartialEq)]
pub enum DecodeError {
    /// The text is invalid. The string is go-yaml's message.
    Malformed(String),
    /// The text has more bytes than [`YAML_BYTES_MAX`].
    TooLong,
    /// The text has more nodes than [`YAML_NODES_MAX`].
    TooManyNodes,
}

impl From<String> for DecodeError {
    fn from(words: String) -> Self {
        Self::Malformed(words)
    }
}

/// Decodes the first document of a text.
///
/// # Errors
/// The reason why the text cannot be decoded.
pub fn decode(text: &[u8]) -> Result<Document, DecodeError> {
    if text.len() > YAML_BYTES_MAX {
        return Err(DecodeError::TooLong);
    }
    text::check_characters(text).map_err(|words| format!("yaml: {words}"))?;
    let is_json = || repaired(text).err().is_none_or(|words| words.ends_with("after top-level value"));
    if text.trim_ascii_start().starts_with(b"{") && is_json() {
        check_json(text)?;
    }
    text::check_start(text)?;
    let text = text::with_yaml_breaks(&String::from_utf8_lossy(text)).into_owned();
    let options =
        granit_parser::options! { flow_nesting_limit: DOCUMENT_DEPTH_MAX, block_nesting_limit: DOCUMENT_DEPTH_MAX };
    let mut builder = Builder::default();
    let mut nodes = 0;
    for event in Parser::new_from_str_with_options(&text, options) {
        let (event, span) = event.map_err(|error| format!("yaml: {error}"))?;
        if let Event::Scalar(..) | Event::SequenceStart(..) | Event::MappingStart(..) | Event::Alias(..) = event {
            nodes += 1;
            if nodes > YAML_NODES_MAX {
                return Err(DecodeError::TooManyNodes);
            }
        }
        if let (Event::Scalar(_, ScalarStyle::DoubleQuoted, ..), Some(part)) = (&event, span.byte_range()) {
            text::check_escapes(text.as_bytes(), part).map_err(|words| format!("yaml: {words}"))?;
        }
        if builder.accept(event, span.start.line())? {
            break;
        }
    }
    Ok(Document { value: builder.root.unwrap_or_default(), duplicates: builder.duplicates })
}

/// Checks that go-yaml would accept a JSON text too.
///
/// # Errors
/// The message of [`decode`] about a text that go-yaml refuses.
pub fn check_json(json: &[u8]) -> Result<(), String> {
    let checked = text::check_characters(json).map_err(str::to_owned);
    checked.and_then(|()| text::check_escapes(json, 0..json.len())).map_err(|words| format!("yaml: {words}"))
}

/// A list or a map whose elements or members are being decoded.
enum Open {
    List { elements: Vec<Value>, anchor: usize },
    Map { members: Map<String, Value>, own: HashSet<OwnKey>, key: Option<Key>, anchor: usize },
}

/// A key that the map itself contains, stored to find repeated keys. A key that is merged from another map is not an
/// own key. Keys of different types are different, even if their text is the same, such as `1` and `"1"`.
type OwnKey = (Discriminant<Value>, String);

/// A key of a map whose value is not decoded yet.
enum Key {
    Own(OwnKey),
    /// The key `<<`. Its value is another map, whose members are merged into the map with this key.
    Merge,
}

#[derive(Default)]
struct Builder {
    open: Vec<Open>,
    root: Option<Value>,
    /// The values that have anchors, and their sizes in bytes.
    anchors: HashMap<usize, (Value, usize)>,
    aliased_bytes: usize,
    duplicates: Vec<String>,
}

impl Builder {
    /// Handles the next event of the YAML parser. Returns whether that event ends the document.
    fn accept(&mut self, event: Event<'_>, line: usize) -> Result<bool, String> {
        match event {
            Event::Scalar(text, style, anchor, tag) => {
                let tag = tag.as_ref().map(ToString::to_string);
                let scalar = resolve(&text, style, tag.as_deref())?;
                if scalar == Scalar::Merge && self.takes_key() {
                    self.set_key(Key::Merge);
                    return Ok(false);
                }
                let value = scalar.into_value(&text)?;
                self.remember(anchor, &value)?;
                self.put(value, line)?;
            }
            Event::SequenceStart(_, anchor, _) => self.open(Open::List { elements: Vec::new(), anchor })?,
            Event::MappingStart(_, anchor, _) => {
                self.open(Open::Map { members: Map::new(), own: HashSet::new(), key: None, anchor })?;
            }
            Event::SequenceEnd | Event::MappingEnd => {
                let (value, anchor) = match self.open.pop() {
                    Some(Open::List { elements, anchor }) => (Value::Array(elements), anchor),
                    Some(Open::Map { members, anchor, .. }) => (Value::Object(members), anchor),
                    None => return Err("yaml: unbalanced document".to_owned()),
                };
                self.remember(anchor, &value)?;
                self.put(value, line)?;
            }
            Event::Alias(anchor) => {
                let (value, size) = self.anchors.get(&anchor).ok_or("yaml: anchor contains itself or is unknown")?;
                count_aliased(&mut self.aliased_bytes, *size)?;
                let value = value.clone();
                self.put(value, line)?;
            }
            Event::DocumentEnd => return Ok(true),
            _ => {}
        }
        Ok(false)
    }

    fn open(&mut self, collection: Open) -> Result<(), String> {
        if self.open.len() >= DOCUMENT_DEPTH_MAX {
            return Err("yaml: exceeded max depth".to_owned());
        }
        if self.takes_key() {
            return Err("yaml: invalid map key".to_owned());
        }
        self.open.push(collection);
        Ok(())
    }

    fn takes_key(&self) -> bool {
        matches!(self.open.last(), Some(Open::Map { key: None, .. }))
    }

    fn set_key(&mut self, next: Key) {
        if let Some(Open::Map { key, .. }) = self.open.last_mut() {
            *key = Some(next);
        }
    }

    /// Stores a copy of a node that has an anchor, for the aliases of that node. Nodes with anchors may be nested, so
    /// each stored copy counts like an alias.
    fn remember(&mut self, anchor: usize, value: &Value) -> Result<(), String> {
        if anchor == 0 {
            return Ok(());
        }
        let size = size(value);
        count_aliased(&mut self.aliased_bytes, size)?;
        self.anchors.insert(anchor, (value.clone(), size));
        Ok(())
    }

    /// Adds a complete value to the list or map that contains it.
    fn put(&mut self, value: Value, line: usize) -> Result<(), String> {
        match self.open.last_mut() {
            None => self.root = Some(value),
            Some(Open::List { elements, .. }) => elements.push(value),
            Some(Open::Map { members, own, key, .. }) => match key.take() {
                None => *key = Some(Key::Own((discriminant(&value), key_name(value)?))),
                Some(Key::Merge) => merge(members, value)?,
                Some(Key::Own(found)) => {
                    let name = found.1.clone();
                    let is_text = found.0 == discriminant(&Value::String(String::new()));
                    if !own.insert(found) && self.duplicates.len() < DUPLICATES_MAX {
                        let quoted = is_text.then(|| go_quoted(&name));
                        let shown = quoted.as_deref().unwrap_or(&name);
                        self.duplicates.push(format!("line {line}: key {shown} already set in map"));
                    }
                    members.insert(name, value);
                }
            },
        }
        Ok(())
    }
}

/// Adds `size` to the sizes of all values that aliases repeat. Call this function before the value is copied, so that
/// the copies never take more than the limit.
fn count_aliased(aliased_bytes: &mut usize, size: usize) -> Result<(), String> {
    *aliased_bytes = aliased_bytes.saturating_add(size);
    if *aliased_bytes > ALIASED_BYTES_MAX {
        return Err("yaml: document contains excessive aliasing".to_owned());
    }
    Ok(())
}

/// Returns the size of a value, in bytes: its texts, and a constant for each value and key. The recursion is limited,
/// since the depth of a document is limited.
fn size(value: &Value) -> usize {
    let below: usize = match value {
        Value::Array(elements) => elements.iter().map(size).sum(),
        Value::Object(members) => {
            members.iter().map(|(key, value)| size_of::<String>() + key.len() + size(value)).sum()
        }
        Value::String(text) => text.len(),
        Value::Bool(_) | Value::Null | Value::Number(_) => 0,
    };
    ALIASED_VALUE_BYTES + below
}

fn key_name(key: Value) -> Result<String, String> {
    match key {
        Value::String(name) => Ok(name),
        Value::Null => Err("unsupported map key of type: %!s(<nil>), key: <nil>".to_owned()),
        Value::Array(_) | Value::Object(_) => Err("yaml: invalid map key".to_owned()),
        scalar => Ok(scalar.to_string()),
    }
}

fn merge(members: &mut Map<String, Value>, from: Value) -> Result<(), String> {
    const WANTED: &str = "yaml: map merge requires map or sequence of maps as the value";
    match from {
        Value::Object(from) => members.extend(from),
        Value::Array(maps) => {
            // If several maps are merged, a member of an earlier map takes precedence over a later one. So the last map
            // is merged first.
            for map in maps.into_iter().rev() {
                let Value::Object(from) = map else { return Err(WANTED.to_owned()) };
                members.extend(from);
            }
        }
        _ => return Err(WANTED.to_owned()),
    }
    Ok(())
}

/// The type of a scalar. For a boolean or a number, also the value.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Scalar {
    Bool(bool),
    Float(f64),
    Integer(i64),
    Merge,
    Null,
    Text,
    Unsigned(u64),
}

impl Scalar {
    fn into_value(self, text: &str) -> Result<Value, String> {
        Ok(match self {
            Self::Bool(b) => Value::Bool(b),
            Self::Float(n) => float_value(n)?,
            Self::Integer(n) => n.into(),
            Self::Merge | Self::Text => Value::String(text.to_owned()),
            Self::Null => Value::Null,
            Self::Unsigned(n) => n.into(),
        })
    }
}

/// Converts a float as kube-apiserver does when it converts YAML to JSON. A whole number whose magnitude is below
/// 9.0e18 becomes an integer.
fn float_value(n: f64) -> Result<Value, String> {
    let number = Number::from_f64(n).ok_or_else(|| {
        let name = if n.is_nan() {
            "NaN"
        } else if n > 0.0 {
            "+Inf"
        } else {
            "-Inf"
        };
        format!("json: unsupported value: {name}")
    })?;
    const WHOLE_MAX: f64 = 9.0e18;
    #[expect(clippy::cast_possible_truncation, reason = "whole and in range")]
    let whole = (n.fract() == 0.0 && n.abs() < WHOLE_MAX).then_some(n as i64);
    Ok(whole.map_or(Value::Number(number), Value::from))
}

/// Converts whole floats to integers in a value that was decoded from JSON, since [`decode`] does the same in YAML.
pub fn normalize_numbers(value: &mut Value) {
    match value {
        Value::Number(n) if n.is_f64() => {
            if let Some(whole) = n.as_f64().and_then(|n| float_value(n).ok()) {
                *value = whole;
            }
        }
        Value::Array(elements) => elements.iter_mut().for_each(normalize_numbers),
        Value::Object(members) => members.values_mut().for_each(normalize_numbers),
        _ => {}
    }
}

/// Returns the type of a scalar. A standard YAML tag determines the type, even of a quoted scalar. With any other tag,
/// the scalar is text. A scalar with `!!timestamp` becomes text without a check.
fn resolve(text: &str, style: ScalarStyle, tag: Option<&str>) -> Result<Scalar, String> {
    let Some(tag) = tag else {
        return Ok(if style == ScalarStyle::Plain { resolve_plain(text) } else { Scalar::Text });
    };
    let name = tag.strip_prefix("tag:yaml.org,2002:").or_else(|| tag.strip_prefix("!!")).unwrap_or_default();
    if name == "binary" {
        return Err("yaml: !!binary value is not supported".to_owned());
    }
    if name == "merge" && text == "<<" {
        return Ok(Scalar::Merge);
    }
    if !matches!(name, "bool" | "float" | "int" | "null") {
        return Ok(Scalar::Text);
    }
    let scalar = resolve_plain(text);
    let found = match scalar {
        Scalar::Bool(_) => "bool",
        Scalar::Integer(_) | Scalar::Unsigned(_) if name == "float" => "float",
        Scalar::Integer(_) | Scalar::Unsigned(_) => "int",
        Scalar::Float(_) => "float",
        Scalar::Merge => "merge",
        Scalar::Null => "null",
        Scalar::Text => "str",
    };
    if found == name {
        return Ok(scalar);
    }
    Err(format!("yaml: cannot decode !!{found} `{text}` as a !!{name}"))
}

/// Returns the type of a plain scalar, as go-yaml v2 determines it.
pub(super) fn resolve_plain(text: &str) -> Scalar {
    match text {
        "" | "~" | "null" | "Null" | "NULL" => return Scalar::Null,
        "<<" => return Scalar::Merge,
        "y" | "Y" | "yes" | "Yes" | "YES" | "true" | "True" | "TRUE" | "on" | "On" | "ON" => return Scalar::Bool(true),
        "n" | "N" | "no" | "No" | "NO" | "false" | "False" | "FALSE" | "off" | "Off" | "OFF" => {
            return Scalar::Bool(false);
        }
        ".nan" | ".NaN" | ".NAN" => return Scalar::Float(f64::NAN),
        ".inf" | ".Inf" | ".INF" | "+.inf" | "+.Inf" | "+.INF" => return Scalar::Float(f64::INFINITY),
        "-.inf" | "-.Inf" | "-.INF" => return Scalar::Float(f64::NEG_INFINITY),
        _ => {}
    }
    if !text.starts_with(['+', '-', '.', '0', '1', '2', '3', '4', '5', '6', '7', '8', '9']) {
        return Scalar::Text;
    }
    // Dates are text, and no number looks like a date. So dates need no code here.
    let plain = text.replace('_', "");
    if let Some(integer) = go_integer(&plain) {
        return integer;
    }
    // A number that does not fit into a float is text.
    if is_yaml_float(&plain)
        && let Ok(n) = plain.parse::<f64>()
        && n.is_finite()
    {
        return Scalar::Float(n);
    }
    Scalar::Text
}

/// Parses an integer like Go's `strconv.ParseInt(text, 0, 64)` or `ParseUint`: a sign, a prefix for the base, and
/// digits.
fn go_integer(text: &str) -> Option<Scalar> {
    let (negative, digits) = match text.strip_prefix(['+', '-']) {
        Some(digits) => (text.starts_with('-'), digits),
        None => (false, text),
    };
    let lower = digits.to_ascii_lowercase();
    let (radix, digits) = if let Some(hex) = lower.strip_prefix("0x") {
        (16, hex)
    } else if let Some(binary) = lower.strip_prefix("0b") {
        (2, binary)
    } else if let Some(octal) = lower.strip_prefix("0o") {
        (8, octal)
    } else if lower.len() > 1 && lower.starts_with('0') {
        (8, &lower[1..])
    } else {
        (10, lower.as_str())
    };
    if digits.starts_with(['+', '-']) {
        return None;
    }
    let magnitude = i128::from(u64::from_str_radix(digits, radix).ok()?);
    let n = if negative { -magnitude } else { magnitude };
    match (i64::try_from(n), u64::try_from(n)) {
        (Ok(n), _) => Some(Scalar::Integer(n)),
        (_, Ok(n)) if !text.starts_with('+') => Some(Scalar::Unsigned(n)),
        _ => None,
    }
}

/// Whether `text` matches `[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?`.
fn is_yaml_float(text: &str) -> bool {
    let text = text.strip_prefix(['+', '-']).unwrap_or(text);
    let digits = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    let (mantissa, exponent) = match text.split_once(['e', 'E']) {
        Some((mantissa, exponent)) => (mantissa, Some(exponent.strip_prefix(['+', '-']).unwrap_or(exponent))),
        None => (text, None),
    };
    let mantissa_fits = match mantissa.split_once('.') {
        None => digits(mantissa),
        Some(("", fraction)) => digits(fraction),
        Some((whole, fraction)) => digits(whole) && (fraction.is_empty() || digits(fraction)),
    };
    mantissa_fits && exponent.is_none_or(digits)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn value(text: &str) -> Value {
        decode(text.as_bytes()).expect(text).value
    }

    #[test]
    fn a_lease_is_read() {
        let text = "apiVersion: coordination.k8s.io/v1\nkind: Lease\nmetadata:\n  name: a # the name\n  labels: {x: \"1\", 'y': '2'}\n  finalizers:\n  - f\nspec:\n  renewTime: 2026-01-02T03:04:05.000000Z\n  leaseTransitions: 3\n  preferredHolder:\n---\nother: document\n";
        let expected = json!({
            "apiVersion": "coordination.k8s.io/v1", "kind": "Lease",
            "metadata": {"name": "a", "labels": {"x": "1", "y": "2"}, "finalizers": ["f"]},
            "spec": {"renewTime": "2026-01-02T03:04:05.000000Z", "leaseTransitions": 3, "preferredHolder": null},
        });
        assert_eq!(value(text), expected);
        assert_eq!(value(&expected.to_string()), expected);
        assert!(decode(b"...\n").is_err());
        for nothing in ["", "# nothing", "---\n", "null", "~"] {
            assert_eq!(value(nothing), Value::Null, "{nothing:?}");
        }
    }

    #[test]
    fn plain_scalars_have_the_types_of_yaml_1_1() {
        for (text, expected) in [
            ("yes", json!(true)),
            ("Off", json!(false)),
            ("n", json!(false)),
            ("NULL", json!(null)),
            ("0x1F", json!(31)),
            ("017", json!(15)),
            ("0o17", json!(15)),
            ("0b11", json!(3)),
            ("-1_000", json!(-1000)),
            ("+7", json!(7)),
            ("18446744073709551615", json!(18_446_744_073_709_551_615_u64)),
            ("1.5", json!(1.5)),
            ("40.0", json!(40)),
            ("1e3", json!(1000)),
            (".5", json!(0.5)),
            ("08", json!(8)),
            ("09:30", json!("09:30")),
            ("2026-01-02", json!("2026-01-02")),
            ("1.2.3", json!("1.2.3")),
            ("0x", json!("0x")),
            ("-", json!([null])),
            ("\"yes\"", json!("yes")),
            ("'1'", json!("1")),
            ("!!str 1", json!("1")),
            ("!!int '1'", json!(1)),
            ("!!float 2", json!(2)),
            ("!!null ''", json!(null)),
            ("!!bool \"on\"", json!(true)),
            ("!odd 1", json!("1")),
            ("!!timestamp 2026-01-02", json!("2026-01-02")),
            ("{!!merge <<: {a: 1}, !!str <<: 2}", json!({"a": 1, "<<": 2})),
            ("nonsense", json!("nonsense")),
            ("{yes: 1, 2: 3, 1.5: 4}", json!({"true": 1, "2": 3, "1.5": 4})),
        ] {
            assert_eq!(value(text), expected, "{text}");
        }
        for text in [
            ".nan",
            "-.inf",
            "? [a]\n: b",
            "? {a: b}\n: c",
            "~: x",
            "!!binary aGk=",
            "!!int abc",
            "!!int 1.5",
            "!!bool 1",
            "!!null 1",
        ] {
            assert!(decode(text.as_bytes()).is_err(), "{text}");
        }
    }

    #[test]
    fn a_repeated_key_is_reported_and_the_last_counts() {
        let document = decode(b"a: 1\nb:\n  c: 1\n  c: 2\na: 3\n").expect("YAML");
        assert_eq!(document.value, json!({"a": 3, "b": {"c": 2}}));
        let of_two_types = decode(b"{1: a, '1': b, true: c, 'true': d}").expect("YAML");
        assert_eq!(of_two_types.duplicates, Vec::<String>::new());
        assert_eq!(decode(b"{16: a, 0x10: b}").expect("YAML").duplicates, ["line 1: key 16 already set in map"]);
        assert_eq!(
            document.duplicates,
            ["line 4: key \"c\" already set in map", "line 5: key \"a\" already set in map"]
        );
    }

    #[test]
    fn json_only_escapes_are_refused_everywhere() {
        for text in [r#"a: "\/""#, r#"{"\/": 1}"#, "é: 'x'\nb: [\"\\ud83d\\ude00\"]"] {
            assert!(matches!(decode(text.as_bytes()), Err(DecodeError::Malformed(_))), "{text}");
        }
        assert_eq!(value(r#"é: ['\/', \/, "\\/"] # \/"#), json!({"é": ["\\/", "\\/", "\\/"]}));
        let words = "yaml: line 2: found unknown escape character".to_owned();
        assert_eq!(decode(b"a: 1\nb: \"\\/\""), Err(DecodeError::Malformed(words)));
    }

    #[test]
    fn aliases_are_followed_within_bounds() {
        assert_eq!(
            value("a: &x {k: 1}\nb: *x\nc:\n  <<: *x\n  l: 2\n"),
            json!({"a": {"k": 1}, "b": {"k": 1}, "c": {"k": 1, "l": 2}})
        );
        assert!(decode(b"a: &x [*x]").is_err());
        assert!(decode(b"a: *x").is_err());
        let mut bomb = "a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n".to_owned();
        for level in 1..12 {
            let last = format!("*a{}, ", level - 1).repeat(10);
            bomb += &format!("a{level}: &a{level} [{}]\n", last.trim_end_matches(", "));
        }
        let excessive = Err(DecodeError::Malformed("yaml: document contains excessive aliasing".to_owned()));
        assert_eq!(decode(bomb.as_bytes()), excessive);
        // Each element of `b` but the last repeats the list `a` of a hundred texts, so it repeats 101 values.
        let lists = |count: usize| format!("a: &a [{}x]\nb: [{}x]\n", "x, ".repeat(99), "*a, ".repeat(count));
        assert!(decode(lists(100).as_bytes()).is_ok());
        assert_eq!(decode(lists(130).as_bytes()), excessive);
        // Each document repeats a few long nodes by aliases: as elements, by merging, as keys, and in values that have
        // anchors.
        let long = "a".repeat(100_000);
        for repeated in ["*a", "{<<: *b}", "{*a : 1}", "&c [*a]"] {
            let document = |count: usize| {
                let elements = vec![repeated; count].join(", ");
                decode(format!("a: &a {long}\nb: &b {{k: *a}}\nc: [{elements}]\n").as_bytes())
            };
            assert!(document(10).is_ok(), "{repeated}");
            // An element `&c [*a]` counts twice: once for its alias, and once for the stored copy of the list with the
            // anchor.
            let many = if repeated.starts_with('&') { 20 } else { 40 };
            assert_eq!(document(many), excessive, "{repeated}");
        }
    }

    #[test]
    fn a_too_long_document_is_refused() {
        let text = |length: usize| format!("a: {}", "b".repeat(length - 3));
        assert!(decode(text(YAML_BYTES_MAX).as_bytes()).is_ok());
        assert_eq!(decode(text(YAML_BYTES_MAX + 1).as_bytes()), Err(DecodeError::TooLong));
    }

    #[test]
    fn a_document_with_too_many_nodes_is_refused() {
        let list = |count: usize| format!("[{}]", "1,".repeat(count));
        assert!(decode(list(YAML_NODES_MAX - 1).as_bytes()).is_ok());
        assert_eq!(decode(list(YAML_NODES_MAX).as_bytes()), Err(DecodeError::TooManyNodes));
    }

    #[test]
    fn depth_has_its_limit() {
        assert!(decode("[".repeat(100).as_bytes()).is_err());
        assert!(decode(format!("{}{}", "[".repeat(100), "]".repeat(100)).as_bytes()).is_ok());
        for depth in [DOCUMENT_DEPTH_MAX + 1, 100_000] {
            assert!(decode(format!("{}{}", "[".repeat(depth), "]".repeat(depth)).as_bytes()).is_err());
            assert!(decode("- ".repeat(depth).as_bytes()).is_err());
        }
    }

    #[test]
    fn decoding_of_random_bytes_ends() {
        let mut rng = fastrand::Rng::with_seed(9);
        for _ in 0..5_000 {
            let text: Vec<u8> =
                (0..rng.usize(..60)).map(|_| *rng.choice(b"ab:-? \n[]{},&*!#|>'\"\\<~0.\t%@`").expect("one")).collect();
            let _ = decode(&text);
        }
    }
}
