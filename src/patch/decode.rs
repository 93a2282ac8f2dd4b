//! Decodes the bytes of a patch to a JSON value. For invalid input, the messages are Go's. The error about a patch that
//! is not JSON takes precedence over all other errors; [`is_json`] tells whether this error applies.

use crate::api_error::ApiError;
use crate::codec::json::{Repaired, repaired};
use crate::go::print::json_type;
use serde_json::Value;

/// Whether Go accepts a patch as JSON. Go accepts more than `serde_json`: also invalid UTF-8, numbers of any size, and
/// 10,000 levels of nesting.
#[cold]
#[must_use]
pub fn is_json(patch: &[u8]) -> bool {
    repaired(patch).is_ok()
}

/// Decodes the body of a patch to a JSON value.
///
/// Bytes that are not UTF-8 become U+FFFD, as in Go.
///
/// # Errors
/// 400 if the patch is not JSON, or has too many levels of nesting.
pub(super) fn decode_patch(patch: &[u8]) -> Result<Value, ApiError> {
    decode_json(patch).map_err(|words| bad_patch(&words))
}

/// Decodes the body of a patch like [`decode_patch`], but returns Go's message as the error.
///
/// # Errors
/// Go's message if the patch is not JSON, or has too many levels of nesting.
pub(super) fn decode_json(patch: &[u8]) -> Result<Value, String> {
    decode_json_for(patch, Some("value"))
}

/// Decodes the body of a patch. `target` is the Go type into which Go would decode the numbers in the patch. The error
/// about a number that does not fit contains `target`. Without `target`, numbers may have any size.
///
/// # Errors
/// Go's message if the patch is not JSON, or has too many levels of nesting.
pub(super) fn decode_json_for(patch: &[u8], target: Option<&str>) -> Result<Value, String> {
    let mut value = match serde_json::from_slice(patch) {
        Ok(value) => value,
        Err(_) => decode_repaired(patch, target)?,
    };
    unsign_zeros(&mut value);
    Ok(value)
}

/// Decodes a text that `serde_json` refuses. Go accepts it if the reason of the refusal is invalid UTF-8 or an unpaired
/// surrogate. Without `target`, Go also accepts a number that does not fit into a `float64`.
#[cold]
fn decode_repaired(patch: &[u8], target: Option<&str>) -> Result<Value, String> {
    let Repaired { json, huge_number } = repaired(patch)?;
    if let (Some(number), Some(target)) = (huge_number, target) {
        return Err(format!("json: cannot unmarshal number {number} into Go {target} of type float64"));
    }
    serde_json::from_slice(&json).map_err(|error| {
        let words = error.to_string();
        if words.starts_with("recursion limit exceeded") { "exceeded max depth".to_owned() } else { words }
    })
}

/// Converts `-0` to the integer 0, as Go does. `serde_json` decodes `-0` to a float. The recursion is limited, since
/// the decoder limits the depth of the value.
fn unsign_zeros(value: &mut Value) {
    match value {
        Value::Number(n) if n.is_f64() && n.as_f64() == Some(0.0) && n.as_f64().is_some_and(f64::is_sign_negative) => {
            *value = 0.into();
        }
        Value::Array(elements) => elements.iter_mut().for_each(unsign_zeros),
        Value::Object(members) => members.values_mut().for_each(unsign_zeros),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

/// Decodes the JSON of the object that a patch changes, which this server has encoded.
///
/// # Errors
/// 500 if the bytes are not JSON, which cannot happen.
pub(super) fn decode_current(current: &[u8]) -> Result<Value, ApiError> {
    serde_json::from_slice(current).map_err(|error| internal(&error))
}

/// Encodes the result of a patch as JSON.
///
/// # Errors
/// 500 if the value cannot be encoded, which cannot happen.
pub(super) fn encode(patched: &Value) -> Result<Vec<u8>, ApiError> {
    serde_json::to_vec(patched).map_err(|error| internal(&error))
}

/// Returns the error 400 for a patch that cannot be decoded.
#[cold]
pub(super) fn bad_patch(why: &str) -> ApiError {
    ApiError::BadRequest { message: format!("error decoding patch: {why}") }
}

/// Returns the error 400 for a patch with a value that cannot be decoded into the Go type `target`.
#[cold]
pub(super) fn bad_type(value: &Value, target: &str) -> ApiError {
    bad_patch(&bad_type_words(value, target))
}

/// Returns Go's message for a value that cannot be decoded into the Go type `target`.
pub(super) fn bad_type_words(value: &Value, target: &str) -> String {
    format!("json: cannot unmarshal {} into Go {target}", json_type(value))
}

#[cold]
fn internal(error: &serde_json::Error) -> ApiError {
    ApiError::Unclassified { message: error.to_string() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::limits::DOCUMENT_DEPTH_MAX;

    #[test]
    fn json_is_recognized_as_in_go() {
        let nested = |depth: usize| "[".repeat(depth) + &"]".repeat(depth);
        for patch in [b"{}".as_slice(), b" null\n", b"\"\xff\"", br#""\ud83d""#, b"1e400", nested(10_000).as_bytes()] {
            assert!(is_json(patch), "{}", patch.escape_ascii());
        }
        for patch in [b"".as_slice(), b"{", b"x", b"{} {", b"[1,]", b"{a:1}", b"[01]", nested(10_001).as_bytes()] {
            assert!(!is_json(patch), "{}", patch.escape_ascii());
        }
    }

    #[test]
    fn depth_has_its_limit() {
        let nested = |depth: usize| "[".repeat(depth) + &"]".repeat(depth);
        assert!(decode_patch(nested(DOCUMENT_DEPTH_MAX).as_bytes()).is_ok());
        for depth in [DOCUMENT_DEPTH_MAX + 1, 1_000_000] {
            let refusal = decode_patch(nested(depth).as_bytes()).expect_err("too deep").status();
            assert_eq!(refusal.code, 400);
            assert!(refusal.message.ends_with("exceeded max depth"), "{depth}: {}", refusal.message);
        }
    }

    #[test]
    fn input_that_only_go_accepts_is_accepted() {
        assert_eq!(decode_json(br#""\ud83d""#), Ok(Value::String("\u{fffd}".to_owned())));
        assert_eq!(decode_json(b"[-0,-0.5]"), Ok(serde_json::json!([0, -0.5])));
        let words = "json: cannot unmarshal number 1e400 into Go value of type float64";
        assert_eq!(decode_json(b"{\"a\":1e400}"), Err(words.to_owned()));
    }

    #[test]
    fn bytes_that_are_no_text_are_replaced() {
        assert_eq!(decode_patch(b"\"\xff\""), Ok(Value::String("\u{fffd}".to_owned())));
    }
}
