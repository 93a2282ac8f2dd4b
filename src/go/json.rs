//! Encodes JSON strings as Go's `encoding/json` does. Go also escapes `<`, `>`, `&`, U+2028 and U+2029, so that the
//! text is safe in HTML and JavaScript.

/// Maximum length of the escape of one byte, in bytes, such as `\u003c`.
pub(crate) const ESCAPED_BYTES_MAX: usize = 6;

/// Appends `text` as a JSON string, with quotes and escapes.
#[inline]
pub(crate) fn push_string(out: &mut Vec<u8>, text: &str) {
    let bytes = text.as_bytes();
    out.push(b'"');
    if bytes.iter().all(|&b| PLAIN[usize::from(b)]) {
        out.extend_from_slice(bytes);
    } else {
        push_escaped(out, bytes);
    }
    out.push(b'"');
}

/// Returns `text` as a JSON string, with quotes and escapes. kube-apiserver's messages show a string in this form if
/// its Go type is a named type or a pointer.
pub(crate) fn json_quoted(text: &str) -> String {
    let mut out = Vec::with_capacity(text.len() + 2);
    push_string(&mut out, text);
    into_text(out)
}

/// Formats a list of strings as JSON.
pub(crate) fn json_strings<S: AsRef<str>>(strings: &[S]) -> String {
    let mut out = vec![b'['];
    for (index, text) in strings.iter().enumerate() {
        if index > 0 {
            out.push(b',');
        }
        push_string(&mut out, text.as_ref());
    }
    out.push(b']');
    into_text(out)
}

/// Converts JSON bytes to text. This cannot fail, since all functions that append strings, times and numbers append
/// valid UTF-8.
pub(crate) fn into_text(json: Vec<u8>) -> String {
    String::from_utf8(json).expect("encoded JSON is valid UTF-8")
}

/// Appends `bytes` with escapes where necessary. Copies all bytes between two escapes together.
#[inline(never)]
fn push_escaped(out: &mut Vec<u8>, bytes: &[u8]) {
    let mut rest = bytes;
    while let Some(at) = rest.iter().position(|&b| !PLAIN[usize::from(b)]) {
        let (run, special) = rest.split_at(at);
        out.extend_from_slice(run);
        let used = match *special {
            // U+2028 and U+2029 end a line in JavaScript. Other characters with the same first byte need no escape.
            [0xe2, 0x80, last @ (0xa8 | 0xa9), ..] => {
                out.extend_from_slice(if last == 0xa8 { b"\\u2028" } else { b"\\u2029" });
                3
            }
            [0xe2, ..] => {
                out.push(0xe2);
                1
            }
            [byte, ..] => {
                push_escape(out, byte);
                1
            }
            [] => return,
        };
        rest = special.get(used..).unwrap_or_default();
    }
    out.extend_from_slice(rest);
}

fn push_escape(out: &mut Vec<u8>, byte: u8) {
    let short = match byte {
        b'"' | b'\\' => byte,
        0x08 => b'b',
        0x0c => b'f',
        b'\n' => b'n',
        b'\r' => b'r',
        b'\t' => b't',
        _ => {
            const HEX: &[u8; 16] = b"0123456789abcdef";
            out.extend_from_slice(b"\\u00");
            out.extend_from_slice(&[HEX[usize::from(byte >> 4)], HEX[usize::from(byte & 0xf)]]);
            return;
        }
    };
    out.extend_from_slice(&[b'\\', short]);
}

/// For each byte, whether it needs no escape. The value is `false` for the first byte of U+2028 and U+2029, which other
/// characters share. [`push_escaped`] then examines the whole character.
static PLAIN: [bool; 256] = {
    let mut plain = [true; 256];
    let mut byte = 0;
    while byte < 0x20 {
        plain[byte] = false;
        byte += 1;
    }
    plain[b'"' as usize] = false;
    plain[b'\\' as usize] = false;
    plain[b'<' as usize] = false;
    plain[b'>' as usize] = false;
    plain[b'&' as usize] = false;
    plain[0xe2] = false;
    plain
};

#[cfg(test)]
mod tests {
    use super::*;

    fn string(text: &str) -> String {
        let mut out = Vec::new();
        push_string(&mut out, text);
        String::from_utf8(out).expect("UTF-8")
    }

    #[test]
    fn plain_text_is_copied() {
        for text in ["", "node-1", "héllo", "日本", "€", "\u{7f}", "🦀"] {
            assert_eq!(string(text), format!("\"{text}\""));
        }
    }

    #[test]
    fn escapes_match_go() {
        assert_eq!(string("a\"\\/b"), r#""a\"\\/b""#);
        assert_eq!(string("\u{8}\u{c}\n\r\t"), r#""\b\f\n\r\t""#);
        assert_eq!(string("\0\u{1}\u{b}\u{1f}"), r#""\u0000\u0001\u000b\u001f""#);
        assert_eq!(string("<a>&</a>"), r#""\u003ca\u003e\u0026\u003c/a\u003e""#);
        assert_eq!(string("a\u{2028}b\u{2029}c\u{2027}d"), "\"a\\u2028b\\u2029c\u{2027}d\"");
    }

    #[test]
    fn texts_are_quoted_alone_and_in_lists() {
        assert_eq!(json_quoted("a\"<é"), "\"a\\\"\\u003cé\"");
        assert_eq!(json_strings(&["a", "&"]), "[\"a\",\"\\u0026\"]");
        assert_eq!(json_strings::<&str>(&[]), "[]");
    }

    #[test]
    fn a_quoted_string_round_trips() {
        let mut random = fastrand::Rng::with_seed(2);
        for _ in 0..5_000 {
            let text: String = (0..random.usize(..40)).map(|_| random.char(..)).collect();
            assert_eq!(serde_json::from_str::<String>(&string(&text)).expect("JSON"), text);
            let text: String = (0..random.usize(..40)).map(|_| random.char('\0'..='\u{7f}')).collect();
            assert_eq!(serde_json::from_str::<String>(&string(&text)).expect("JSON"), text);
        }
    }
}
