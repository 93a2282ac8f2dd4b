//! Limits the number of values in a patch, since each decoded value takes time and memory.

use crate::api_error::ApiError;
use crate::limits::PATCH_VALUES_MAX;
use memchr::memchr2;

/// Checks the number of values in a patch before the patch is decoded.
///
/// # Errors
/// 413 if the patch has more than [`PATCH_VALUES_MAX`] values.
pub fn check_values(patch: &[u8]) -> Result<(), ApiError> {
    if patch.len() <= PATCH_VALUES_MAX {
        return Ok(());
    }
    let count = values_max(patch);
    if count <= PATCH_VALUES_MAX { Ok(()) } else { Err(ApiError::TooManyValues { count_max: PATCH_VALUES_MAX }) }
}

/// Returns an upper bound of the number of values in `json`: one for each comma and each opening bracket, plus one.
fn values_max(json: &[u8]) -> usize {
    let (mut count, mut rest) = (1, json);
    while let Some((byte, behind)) = rest.split_first() {
        rest = behind;
        match byte {
            b',' | b'[' | b'{' => count += 1,
            b'"' => rest = behind_text(rest),
            _ => {}
        }
    }
    count
}

/// Returns the bytes after the quote that ends a JSON string. Returns no bytes if there is no such quote.
fn behind_text(mut text: &[u8]) -> &[u8] {
    while let Some(at) = memchr2(b'"', b'\\', text) {
        let escaped_len = if text.get(at) == Some(&b'\\') { 1 } else { 0 };
        text = text.get(at + 1 + escaped_len..).unwrap_or_default();
        if escaped_len == 0 {
            return text;
        }
    }
    &[]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_counted_outside_of_texts() {
        for (json, count) in [
            ("", 1),
            ("0", 1),
            ("[0,1]", 3),
            ("{\"a\":[{}],\"b\":0}", 5),
            ("[\",[{\",\"\\\",\\\\\",0]", 4),
            ("[\",", 2),
            ("[\"\\", 2),
        ] {
            assert_eq!(values_max(json.as_bytes()), count, "{json}");
        }
    }

    #[test]
    fn a_patch_with_too_many_values_is_refused() {
        let patch = |count: usize| format!("[\"{}\"{}]", ",".repeat(PATCH_VALUES_MAX), ",0".repeat(count - 2));
        assert_eq!(check_values(patch(PATCH_VALUES_MAX).as_bytes()), Ok(()));
        let refused = check_values(patch(PATCH_VALUES_MAX + 1).as_bytes());
        assert_eq!(refused, Err(ApiError::TooManyValues { count_max: PATCH_VALUES_MAX }));
    }
}
