//! Formats JSON values as Go's `fmt` prints them in messages. The depth of the output and the number of its elements
//! are limited. A string is never cut.

use crate::go::quote::go_quoted;
use serde_json::{Number, Value};
use std::fmt::Write as _;

/// Returns Go's name for the type of a JSON value.
pub(crate) fn go_type(value: &Value) -> &'static str {
    match value {
        Value::Null => "<nil>",
        Value::Bool(_) => "bool",
        Value::Number(n) if n.is_i64() => "int64",
        Value::Number(_) => "float64",
        Value::String(_) => "string",
        Value::Array(_) => "[]interface {}",
        Value::Object(_) => "map[string]interface {}",
    }
}

/// Returns the word of Go's `encoding/json` for the type of a JSON value.
pub(crate) fn json_type(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "bool",
        Value::Number(_) => "number",
        Value::String(_) => "string",
        Value::Array(_) => "array",
        Value::Object(_) => "object",
    }
}

/// Maximum number of nested levels of a value that a message shows.
const SHOWN_DEPTH_MAX: usize = 16;
/// Length of the output, in bytes, after which no further elements are appended.
const SHOWN_BYTES_MAX: usize = 4096;

/// Formats a value like Go's `%v`.
pub(crate) fn go_value(value: &Value) -> String {
    let push_scalar = |out: &mut String, scalar: &Value| match scalar {
        Value::String(text) => out.push_str(text),
        Value::Null => out.push_str("<nil>"),
        Value::Number(n) => push_number(out, n),
        other => _ = write!(out, "{other}"),
    };
    printed(value, &push_scalar, false)
}

/// Formats a value like Go's `%s`.
pub(crate) fn go_text(value: &Value) -> String {
    if value.is_null() {
        return "%!s(<nil>)".to_owned();
    }
    let push_scalar = |out: &mut String, scalar: &Value| match scalar {
        Value::String(text) => out.push_str(text),
        Value::Null => out.push_str("<nil>"),
        other => _ = write!(out, "%!s({}={})", go_type(other), go_value(other)),
    };
    printed(value, &push_scalar, false)
}

/// Formats a value like Go's `%#v`.
pub(crate) fn go_syntax(value: &Value) -> String {
    let push_scalar = |out: &mut String, scalar: &Value| match scalar {
        Value::String(text) => out.push_str(&go_quoted(text)),
        Value::Null => out.push_str("interface {}(nil)"),
        Value::Number(n) => push_number(out, n),
        other => _ = write!(out, "{other}"),
    };
    printed(value, &push_scalar, true)
}

fn printed(value: &Value, push_scalar: &dyn Fn(&mut String, &Value), syntax: bool) -> String {
    let mut out = String::new();
    push_go(&mut out, value, 0, push_scalar, syntax);
    out
}

/// Appends a number. Floats, and integers beyond `int64`, are formatted like `%v` of a `float64`: with the fewest
/// digits that identify the number. Numbers below 1e-04 and from 1e+06 on have an exponent.
fn push_number(out: &mut String, n: &Number) {
    let Some(float) = n.as_f64().filter(|_| n.as_i64().is_none()) else {
        _ = write!(out, "{n}");
        return;
    };
    let scientific = format!("{float:e}");
    let Some((mantissa, exponent)) = scientific.split_once('e') else { return out.push_str(&scientific) };
    let exponent: i32 = exponent.parse().unwrap_or_default();
    if float == 0.0 || (-4..6).contains(&exponent) {
        _ = write!(out, "{float}");
    } else {
        let sign = if exponent < 0 { '-' } else { '+' };
        _ = write!(out, "{mantissa}e{sign}{:02}", exponent.abs());
    }
}

fn push_go(out: &mut String, value: &Value, depth: usize, push_scalar: &dyn Fn(&mut String, &Value), syntax: bool) {
    if depth > SHOWN_DEPTH_MAX || out.len() > SHOWN_BYTES_MAX {
        return out.push_str("...");
    }
    let elements: Box<dyn Iterator<Item = (Option<&String>, &Value)> + '_> = match value {
        Value::Array(elements) => Box::new(elements.iter().map(|element| (None, element))),
        Value::Object(members) => Box::new(members.iter().map(|(name, member)| (Some(name), member))),
        _ => return push_scalar(out, value),
    };
    let (open, close, space) = match (value.is_array(), syntax) {
        (true, false) => ("[", ']', " "),
        (true, true) => ("[]interface {}{", '}', ", "),
        (false, false) => ("map[", ']', " "),
        (false, true) => ("map[string]interface {}{", '}', ", "),
    };
    out.push_str(open);
    for (index, (name, element)) in elements.enumerate() {
        if out.len() > SHOWN_BYTES_MAX {
            out.push_str("...");
            break;
        }
        if index > 0 {
            out.push_str(space);
        }
        if let Some(name) = name {
            if syntax {
                out.push_str(&go_quoted(name));
            } else {
                out.push_str(name);
            }
            out.push(':');
        }
        push_go(out, element, depth + 1, push_scalar, syntax);
    }
    out.push(close);
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn values_look_as_go_prints_them() {
        let value = json!({"b": [1, "x", null, true], "a": {}});
        assert_eq!(go_value(&value), "map[a:map[] b:[1 x <nil> true]]");
        assert_eq!(go_text(&value), "map[a:map[] b:[%!s(int64=1) x <nil> %!s(bool=true)]]");
        assert_eq!(go_text(&json!(null)), "%!s(<nil>)");
        assert_eq!(
            go_syntax(&value),
            r#"map[string]interface {}{"a":map[string]interface {}{}, "b":[]interface {}{1, "x", interface {}(nil), true}}"#
        );
        let mut deep = json!(1);
        for _ in 0..100 {
            deep = json!([deep]);
        }
        assert!(go_value(&deep).ends_with("]]]") && go_value(&deep).contains("..."));
        assert!(go_value(&json!(vec!["x"; 100_000])).len() < 2 * SHOWN_BYTES_MAX * 4);
    }
}
