//! Checks that go-yaml makes on a text before it parses the structure: for invalid characters, and for unknown escapes.
//! The error messages are go-yaml's. Also rewrites a text with line breaks that only YAML 1.1 has, for this server's
//! parser.

use std::borrow::Cow;
use std::ops::Range;

/// Checks the characters of a text, as libyaml does (YAML 1.1 §5.1), with one difference: this function refuses U+0085.
/// That character is a line break in libyaml, but a letter in this server's parser.
///
/// # Errors
/// libyaml's message about the first invalid character.
pub(super) fn check_characters(text: &[u8]) -> Result<(), &'static str> {
    let mut rest = text;
    while let Some(&octet) = rest.first() {
        let (width, mut value) = match octet {
            0x00..=0x7f => (1, u32::from(octet)),
            0xc0..=0xdf => (2, u32::from(octet & 0x1f)),
            0xe0..=0xef => (3, u32::from(octet & 0x0f)),
            0xf0..=0xf7 => (4, u32::from(octet & 0x07)),
            0x80..=0xbf | 0xf8.. => return Err("invalid leading UTF-8 octet"),
        };
        let Some((character, after)) = rest.split_at_checked(width) else {
            return Err("incomplete UTF-8 octet sequence");
        };
        for octet in &character[1..] {
            if octet & 0xc0 != 0x80 {
                return Err("invalid trailing UTF-8 octet");
            }
            value = value << 6 | u32::from(octet & 0x3f);
        }
        let least = [0, 0, 0x80, 0x800, 0x1_0000][width];
        match value {
            _ if value < least => return Err("invalid length of a UTF-8 sequence"),
            0xd800..=0xdfff | 0x11_0000.. => return Err("invalid Unicode character"),
            0x09 | 0x0a | 0x0d | 0x20..=0x7e | 0xa0..=0xfffd | 0x1_0000.. => {}
            _ => return Err("control characters are not allowed"),
        }
        rest = after;
    }
    Ok(())
}

/// Checks that a text does not begin with `...`, the mark that ends a document. For libyaml, a text that begins with
/// this mark is a document without content, which is an error.
///
/// # Errors
/// libyaml's message. The message contains the number of the line, counted from 0, unless the line is the first one.
pub(super) fn check_start(text: &[u8]) -> Result<(), String> {
    let is_passed = |line: &[u8]| matches!(line.trim_ascii_start(), [] | [b'#', ..]);
    let text = text.strip_prefix(b"\xef\xbb\xbf").unwrap_or(text);
    let first = text.split(|byte| *byte == b'\n').enumerate().find(|(_, line)| !is_passed(line));
    match first {
        Some((at, [b'.', b'.', b'.'] | [b'.', b'.', b'.', b' ' | b'\t' | b'\r', ..])) => Err(match at {
            0 => "yaml: did not find expected node content".to_owned(),
            _ => format!("yaml: line {at}: did not find expected node content"),
        }),
        _ => Ok(()),
    }
}

/// Removes blanks around U+2028 and U+2029. In YAML 1.1, these two characters are line breaks, and a scalar does not
/// include the blanks around a line break. This server's parser implements YAML 1.2, where the two characters are
/// letters.
pub(super) fn with_yaml_breaks(text: &str) -> Cow<'_, str> {
    const BREAKS: [char; 2] = ['\u{2028}', '\u{2029}'];
    if !text.contains(BREAKS) {
        return Cow::Borrowed(text);
    }
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some((at, found)) = rest.char_indices().find(|(_, c)| BREAKS.contains(c)) {
        let (before, after) = rest.split_at(at);
        out.push_str(before.trim_end_matches([' ', '\t']));
        out.push(found);
        rest = after.get(found.len_utf8()..).unwrap_or_default().trim_start_matches([' ', '\t']);
    }
    out.push_str(rest);
    Cow::Owned(out)
}

/// Checks the escapes in the range `part` of `text`. In this range, backslashes may occur only in double-quoted
/// strings. go-yaml refuses `\/` and every escaped surrogate, even in a pair.
///
/// # Errors
/// go-yaml's message about the first invalid escape. The message contains the line number, unless the line is the first
/// one.
pub(super) fn check_escapes(text: &[u8], part: Range<usize>) -> Result<(), String> {
    let mut rest = text.get(part.clone()).unwrap_or_default();
    while let Some(at) = rest.iter().position(|byte| *byte == b'\\') {
        let escape = rest.get(at + 1..).unwrap_or_default();
        let what = match escape {
            [b'/', ..] => "found unknown escape character",
            [b'u', b'd' | b'D', b'8'..=b'9' | b'a'..=b'f' | b'A'..=b'F', ..] => {
                "found invalid Unicode character escape code"
            }
            _ => {
                rest = escape.get(1..).unwrap_or_default();
                continue;
            }
        };
        let before = text.get(..part.end - escape.len()).unwrap_or_default();
        let breaks = String::from_utf8_lossy(before).matches(['\n', '\u{2028}', '\u{2029}']).count();
        return Err(match breaks {
            0 => what.to_owned(),
            lines => format!("line {}: {what}", lines + 1),
        });
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn characters_that_yaml_does_not_have_are_refused() {
        assert_eq!(check_characters("a\t\r\n ~\u{a0}é\u{fffd}😀\u{2028}".as_bytes()), Ok(()));
        for (text, words) in [
            (&b"\xff"[..], "invalid leading UTF-8 octet"),
            (b"a\xbf", "invalid leading UTF-8 octet"),
            (b"\xc3", "incomplete UTF-8 octet sequence"),
            (b"\xc3a", "invalid trailing UTF-8 octet"),
            (b"\xc0\x80", "invalid length of a UTF-8 sequence"),
            (b"\xed\xa0\x80", "invalid Unicode character"),
            (b"\xf7\xbf\xbf\xbf", "invalid Unicode character"),
            (b"\x7f", "control characters are not allowed"),
            ("\u{85}".as_bytes(), "control characters are not allowed"),
            (b"\0", "control characters are not allowed"),
            ("\u{ffff}".as_bytes(), "control characters are not allowed"),
        ] {
            assert_eq!(check_characters(text), Err(words), "{text:?}");
        }
    }

    #[test]
    fn a_document_end_marker_at_the_start_is_refused() {
        for text in ["", "---\n...", " ...", "....", "...x", "a\n...", "# ...\na", "{}\n...\n"] {
            assert_eq!(check_start(text.as_bytes()), Ok(()), "{text:?}");
        }
        for text in ["...", "...\n{}", "... # c", "...\t", "...\r\n", "\u{feff}..."] {
            let words = Err("yaml: did not find expected node content".to_owned());
            assert_eq!(check_start(text.as_bytes()), words, "{text:?}");
        }
        let words = Err("yaml: line 3: did not find expected node content".to_owned());
        assert_eq!(check_start(b"#a\n  #b\n\n...\n"), words);
    }

    #[test]
    fn blanks_around_unicode_line_breaks_are_removed() {
        assert_eq!(with_yaml_breaks("a b"), "a b");
        assert_eq!(with_yaml_breaks("a \u{2028}\t b \u{2029} "), "a\u{2028}b\u{2029}");
    }

    #[test]
    fn escapes_that_yaml_does_not_have_are_refused() {
        let check = |text: &[u8]| check_escapes(text, 0..text.len());
        assert_eq!(check(br#"{"a":"\\/\"\n\u00e9\\ud83d"}"#), Ok(()));
        assert_eq!(check(br#"{"a":"\/"}"#), Err("found unknown escape character".to_owned()));
        let words = "line 3: found invalid Unicode character escape code";
        assert_eq!(check(b"{\n\n\"a\":\"\\ud83d\\ude00\"}"), Err(words.to_owned()));
        let text = br#"["\/", "\\", '\/']"#;
        assert_eq!(check_escapes(text, 7..11), Ok(()));
        assert!(check_escapes(text, 1..5).is_err());
    }
}
