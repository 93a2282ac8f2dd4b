//! Bytes to JSON values, and Go's words for bytes that are none.

use crate::api_error::{ApiError, go_quoted};
use serde_json::Value;

/// The value that a patch's body is.
///
/// Bytes that are not UTF-8 become U+FFFD, as in Go.
///
/// # Errors
/// 400 if it is no JSON or too deep.
pub(super) fn decode_patch(patch: &[u8]) -> Result<Value, ApiError> {
    decode_json(patch).map_err(|words| bad_patch(&words))
}

/// The value that a patch's body is.
///
/// # Errors
/// Go's bare words if it is no JSON or too deep.
pub(super) fn decode_json(patch: &[u8]) -> Result<Value, String> {
    let text = String::from_utf8_lossy(patch);
    serde_json::from_str(&text).map_err(|error| syntax_words(&text, &error))
}

/// The value of the object to patch, which this server has written itself.
///
/// # Errors
/// 500 if it is no JSON, which cannot be.
pub(super) fn decode_current(current: &[u8]) -> Result<Value, ApiError> {
    serde_json::from_slice(current).map_err(|error| internal(&error))
}

/// The bytes of a patched value.
///
/// # Errors
/// 500 if it cannot be written, which cannot be.
pub(super) fn encode(patched: &Value) -> Result<Vec<u8>, ApiError> {
    serde_json::to_vec(patched).map_err(|error| internal(&error))
}

/// 400 for a patch that does not decode.
#[cold]
pub(super) fn bad_patch(why: &str) -> ApiError {
    ApiError::BadRequest { message: format!("error decoding patch: {why}") }
}

/// Go's words for a value that it cannot put in `target`.
pub(super) fn bad_type_words(value: &Value, target: &str) -> String {
    format!("json: cannot unmarshal {} into Go {target}", type_word(value))
}

/// What Go calls the type of a value that it cannot put somewhere.
pub(super) fn type_word(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "bool",
        Value::Number(_) => "number",
        Value::String(_) => "string",
        Value::Array(_) => "array",
        Value::Object(_) => "object",
    }
}

#[cold]
fn internal(error: &serde_json::Error) -> ApiError {
    ApiError::Unclassified { message: error.to_string() }
}

/// A syntax error as Go's scanner tells it: the character, and what it was looking for.
fn syntax_words(text: &str, error: &serde_json::Error) -> String {
    let serde_words = error.to_string();
    if error.is_eof() {
        return "unexpected end of JSON input".to_owned();
    }
    if serde_words.starts_with("recursion limit exceeded") {
        return "exceeded max depth".to_owned();
    }
    let line = text.split('\n').nth(error.line().saturating_sub(1)).unwrap_or_default();
    let Some(&byte) = line.as_bytes().get(error.column().saturating_sub(1)) else {
        return "unexpected end of JSON input".to_owned();
    };
    // Go's scanner sees bytes and shows each as the character of that number.
    let character = match byte {
        b'\'' => "'\\''".to_owned(),
        b'"' => "'\"'".to_owned(),
        byte => {
            let quoted = go_quoted(&char::from(byte).to_string());
            format!("'{}'", quoted.trim_matches('"'))
        }
    };
    let contexts = [
        ("trailing characters", "after top-level value"),
        ("expected `,` or `}`", "after object key:value pair"),
        ("expected `,` or `]`", "after array element"),
        ("expected `:`", "after object key"),
        ("key must be a string", "looking for beginning of object key string"),
        ("control character", "in string literal"),
        ("invalid escape", "in string escape code"),
        ("invalid number", "in numeric literal"),
    ];
    let context = contexts.iter().find(|(start, _)| serde_words.starts_with(start)).map(|(_, context)| *context);
    let context = match context {
        Some(context) => context,
        None if serde_words.starts_with("trailing comma") && byte == b'}' => {
            "looking for beginning of object key string"
        }
        None => "looking for beginning of value",
    };
    format!("invalid character {character} {context}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tells_syntax_errors_in_gos_words() {
        for (patch, words) in [
            ("", "unexpected end of JSON input"),
            ("{", "unexpected end of JSON input"),
            ("x", "invalid character 'x' looking for beginning of value"),
            ("'", "invalid character '\\'' looking for beginning of value"),
            ("{} {", "invalid character '{' after top-level value"),
            ("{\"a\":1 \"b\"", "invalid character '\"' after object key:value pair"),
            ("[1 2]", "invalid character '2' after array element"),
            ("{\"a\" 1}", "invalid character '1' after object key"),
            ("{a:1}", "invalid character 'a' looking for beginning of object key string"),
            ("{\"a\":1,}", "invalid character '}' looking for beginning of object key string"),
            ("[1,]", "invalid character ']' looking for beginning of value"),
            ("\n\n [\n,]", "invalid character ',' looking for beginning of value"),
        ] {
            let message = format!("error decoding patch: {words}");
            assert_eq!(decode_patch(patch.as_bytes()), Err(ApiError::BadRequest { message }), "{patch}");
        }
    }

    #[test]
    fn depth_has_its_limit() {
        let nested = |depth: usize| "[".repeat(depth) + &"]".repeat(depth);
        assert!(decode_patch(nested(super::super::DEPTH_MAX).as_bytes()).is_ok());
        let message = "error decoding patch: exceeded max depth".to_owned();
        for depth in [super::super::DEPTH_MAX + 1, 1_000_000] {
            assert_eq!(
                decode_patch(nested(depth).as_bytes()),
                Err(ApiError::BadRequest { message: message.clone() }),
                "{depth}"
            );
        }
    }

    #[test]
    fn bytes_that_are_no_text_are_replaced() {
        assert_eq!(decode_patch(b"\"\xff\""), Ok(Value::String("\u{fffd}".to_owned())));
    }
}
