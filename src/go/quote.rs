//! Quotes texts for messages, as Go does.

use crate::limits::STATUS_TEXT_BYTES_MAX;
use std::fmt::Write as _;

/// Quotes a string like Go's `strconv.Quote`.
#[must_use]
pub(crate) fn go_quoted(s: &str) -> String {
    let mut out = String::with_capacity(s.len() + 2);
    out.push('"');
    for c in s.chars() {
        match c {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            '\u{7}' => out.push_str("\\a"),
            '\u{8}' => out.push_str("\\b"),
            '\u{c}' => out.push_str("\\f"),
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            '\u{b}' => out.push_str("\\v"),
            c if (c as u32) < 0x20 || c == '\u{7f}' => _ = write!(out, "\\x{:02x}", c as u32),
            c if is_unprintable(c) && (c as u32) < 0x1_0000 => _ = write!(out, "\\u{:04x}", c as u32),
            c if is_unprintable(c) => _ = write!(out, "\\U{:08x}", c as u32),
            c => out.push(c),
        }
    }
    out.push('"');
    out
}

/// Quotes a text like the errors of Go's `time` package. In contrast to `strconv.Quote`, control characters and
/// non-ASCII bytes are in hexadecimal, and DEL is unchanged. The output is cut soon after the maximum length of a text
/// in a `Status`.
pub(crate) fn go_quoted_ascii(text: &[u8]) -> String {
    let mut out = String::with_capacity(text.len().min(STATUS_TEXT_BYTES_MAX) + 5);
    out.push('"');
    for &byte in text {
        if out.len() > STATUS_TEXT_BYTES_MAX {
            return out;
        }
        match byte {
            b'"' | b'\\' => {
                out.push('\\');
                out.push(char::from(byte));
            }
            b' '..=0x7f => out.push(char::from(byte)),
            _ => {
                out.push_str("\\x");
                out.extend([byte >> 4, byte & 0xf].into_iter().filter_map(|digit| char::from_digit(digit.into(), 16)));
            }
        }
    }
    out.push('"');
    out
}

/// Whether Go's `unicode.IsPrint` is false for a character: for a control, a separator, a format character or a
/// character for private use. The result decides how a text is quoted, and whether the name of a field manager is
/// refused. In Go, `IsPrint` is also false for characters that are not assigned in Go's version of Unicode. This
/// function has no table of those. It returns false for those outside its ranges.
pub(crate) fn is_unprintable(c: char) -> bool {
    c.is_control()
        || (c.is_whitespace() && c != ' ')
        || matches!(u32::from(c), 0xad | 0x600..=0x605 | 0x61c | 0x6dd | 0x70f | 0x890..=0x891 | 0x8e2 | 0x180e)
        || matches!(u32::from(c), 0x200b..=0x200f | 0x2028..=0x202e | 0x2060..=0x206f | 0xe000..=0xf8ff | 0xfeff)
        || matches!(u32::from(c), 0xfff0..=0xfffb | 0x1_10bd | 0x1_10cd | 0x1_3430..=0x1_343f | 0x1_bca0..=0x1_bca3)
        || matches!(u32::from(c), 0x1_d173..=0x1_d17a | 0xe_0001 | 0xe_0020..=0xe_007f | 0xf_0000..)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn strings_are_quoted_as_in_go() {
        assert_eq!(go_quoted("a\"\\\n\u{1}\u{2028}é\u{7f}"), "\"a\\\"\\\\\\n\\x01\\u2028é\\x7f\"");
        assert_eq!(go_quoted_ascii("a\"\\\n\u{7f}é".as_bytes()), "\"a\\\"\\\\\\x0a\u{7f}\\xc3\\xa9\"");
        let long = go_quoted_ascii("é".repeat(1 << 20).as_bytes());
        assert!((STATUS_TEXT_BYTES_MAX..STATUS_TEXT_BYTES_MAX + 5).contains(&long.len()) && long.ends_with("\\xa9"));
    }
}
