//! Reimplements Go's JSON scanner, for the bodies that simd-json refuses.
//!
//! Most of these bodies are invalid JSON, and need Go's error message. The other bodies are valid for Go: Go accepts
//! numbers of any size, and decodes invalid UTF-8 and unpaired surrogates as U+FFFD. For such a body, the scanner
//! writes an equivalent copy that simd-json accepts. Such bodies are rare, so speed does not matter.
//!
//! The client determines the nesting depth. So the scanner stores the open brackets in a list, and does not recurse.

use crate::go::quote::go_quoted;

/// Go's limit on the nesting depth.
pub(super) const DEPTH_MAX: usize = 10_000;
/// Maximum length, in bytes, of a number with a fraction and without an exponent that the scanner copies unchanged.
/// Such a number certainly fits into a `float64`.
const SMALL_FRACTION_BYTES_MAX: usize = 300;

/// A copy of a JSON text that Go accepts, rewritten so that other parsers accept it too.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Repaired {
    /// The rewritten copy of the text.
    pub json: Vec<u8>,
    /// The first number in the text that does not fit into a `float64`.
    pub huge_number: Option<String>,
}

/// Returns a copy of `text` that both simd-json and `serde_json` can parse.
///
/// # Errors
/// Go's message about a syntax error.
#[cold]
pub fn repaired(text: &[u8]) -> Result<Repaired, String> {
    let mut scanner = Scanner { text, at: 0, out: Vec::with_capacity(text.len()), huge_number: None };
    scanner.scan()?;
    Ok(Repaired { json: scanner.out, huge_number: scanner.huge_number })
}

/// Returns the first number at `path` in the JSON `text` for which `fits` returns false, as the client wrote it. `path`
/// consists of names separated by dots. If an object repeats a name, all its members with this name are searched.
#[cold]
pub(super) fn first_unfit_number<'t>(text: &'t [u8], path: &str, fits: impl Fn(&str) -> bool) -> Option<&'t str> {
    let mut values = vec![text];
    for name in path.split('.') {
        values = values.into_iter().flat_map(|value| members(value, name)).collect();
    }
    values.into_iter().filter_map(number).find(|number| !fits(number))
}

/// Returns the number at the start of `text`; `None` if `text` starts with another value.
fn number(text: &[u8]) -> Option<&str> {
    let text = text.trim_ascii_start();
    let is_of_number = |byte: &&u8| byte.is_ascii_digit() || matches!(byte, b'+' | b'-' | b'.' | b'e' | b'E');
    let length = text.iter().take_while(is_of_number).count();
    std::str::from_utf8(text.get(..length)?).ok().filter(|number| !number.is_empty())
}

/// Searches the object at the start of `text` for its members `name`. Returns the text after the colon of each one.
/// Returns nothing if `text` starts with another value.
fn members<'t>(text: &'t [u8], name: &str) -> Vec<&'t [u8]> {
    let (mut depth, mut at) = (0usize, 0usize);
    let (mut string, mut found) = (&text[..0], Vec::new());
    if !text.trim_ascii_start().starts_with(b"{") {
        return found;
    }
    while let Some(byte) = text.get(at) {
        at += 1;
        match byte {
            b'"' => {
                let start = at - 1;
                while let Some(byte) = text.get(at).filter(|byte| **byte != b'"') {
                    at += if *byte == b'\\' { 2 } else { 1 };
                }
                at += 1;
                string = text.get(start..at).unwrap_or_default();
            }
            b'{' | b'[' => depth += 1,
            b'}' | b']' if depth <= 1 => break,
            b'}' | b']' => depth -= 1,
            // The client may have written the name with escapes.
            b':' if depth == 1 && serde_json::from_slice::<String>(string).is_ok_and(|key| key == name) => {
                found.extend(text.get(at..));
            }
            _ => {}
        }
    }
    found
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Open {
    Array,
    Object,
}

struct Scanner<'a> {
    text: &'a [u8],
    /// Index of the next byte that the scanner reads.
    at: usize,
    out: Vec<u8>,
    huge_number: Option<String>,
}

impl Scanner<'_> {
    fn scan(&mut self) -> Result<(), String> {
        let mut open: Vec<Open> = Vec::new();
        loop {
            // A value starts here. After an opening bracket, the next value follows, unless the closing bracket follows
            // immediately.
            let opened = match self.next_significant() {
                Some(b'{') => Some(Open::Object),
                Some(b'[') => Some(Open::Array),
                _ => None,
            };
            let mut ended = true;
            if let Some(bracket) = opened {
                if open.len() == DEPTH_MAX {
                    return Err(self.unexpected("exceeded max depth"));
                }
                self.copy(1);
                let closing = if bracket == Open::Object { b'}' } else { b']' };
                if self.next_significant() == Some(closing) {
                    self.copy(1);
                } else {
                    open.push(bracket);
                    if bracket == Open::Object {
                        self.key()?;
                    }
                    ended = false;
                }
            } else {
                self.scalar()?;
            }
            // A value ends here. The loop scans all closing brackets until another value follows.
            while ended {
                let next = self.next_significant();
                match (open.last(), next) {
                    (None, None) => return Ok(()),
                    (None, Some(_)) => return Err(self.unexpected("after top-level value")),
                    (Some(Open::Object), Some(b'}')) | (Some(Open::Array), Some(b']')) => {
                        self.copy(1);
                        open.pop();
                    }
                    (Some(bracket), Some(b',')) => {
                        self.copy(1);
                        if *bracket == Open::Object {
                            self.key()?;
                        }
                        ended = false;
                    }
                    (Some(Open::Object), _) => return Err(self.unexpected("after object key:value pair")),
                    (Some(Open::Array), _) => return Err(self.unexpected("after array element")),
                }
            }
        }
    }

    /// Scans a key and its colon.
    fn key(&mut self) -> Result<(), String> {
        if self.next_significant() != Some(b'"') {
            return Err(self.unexpected("looking for beginning of object key string"));
        }
        self.string()?;
        if self.next_significant() != Some(b':') {
            return Err(self.unexpected("after object key"));
        }
        self.copy(1);
        Ok(())
    }

    fn scalar(&mut self) -> Result<(), String> {
        match self.peek() {
            Some(b'"') => self.string(),
            Some(b'-' | b'0'..=b'9') => self.number(),
            Some(b't') => self.literal("true"),
            Some(b'f') => self.literal("false"),
            Some(b'n') => self.literal("null"),
            _ => Err(self.unexpected("looking for beginning of value")),
        }
    }

    fn literal(&mut self, literal: &str) -> Result<(), String> {
        for expected in literal.chars() {
            if self.peek().map(char::from) != Some(expected) {
                return Err(self.unexpected_in_token(&format!("in literal {literal} (expecting '{expected}')")));
            }
            self.copy(1);
        }
        Ok(())
    }

    fn number(&mut self) -> Result<(), String> {
        let start = self.at;
        self.skip_if(|b| b == b'-');
        if !self.skip_if(|b| b == b'0') {
            self.digits("in numeric literal")?;
        }
        let is_fraction = self.skip_if(|b| b == b'.');
        if is_fraction {
            self.digits("after decimal point in numeric literal")?;
        }
        let is_power = self.skip_if(|b| matches!(b, b'e' | b'E'));
        if is_power {
            self.skip_if(|b| matches!(b, b'+' | b'-'));
            self.digits("in exponent of numeric literal")?;
        }
        let literal = self.text.get(start..self.at).and_then(|n| std::str::from_utf8(n).ok()).unwrap_or("0");
        let is_small_fraction = is_fraction && !is_power && literal.len() <= SMALL_FRACTION_BYTES_MAX;
        if is_small_fraction || literal.parse::<i64>().is_ok() || literal.parse::<u64>().is_ok() {
            self.out.extend_from_slice(literal.as_bytes());
        } else {
            // A number beyond 1e300 becomes 1e300. No field of the API accepts such a number, so only an error message
            // can show the difference.
            let n = literal.parse::<f64>().unwrap_or(0.5);
            if n.is_infinite() {
                self.huge_number.get_or_insert_with(|| literal.to_owned());
            }
            let n = n.clamp(-1e300, 1e300);
            self.out.extend_from_slice(format!("{n:e}").as_bytes());
        }
        Ok(())
    }

    /// Scans one or more digits.
    fn digits(&mut self, context: &str) -> Result<(), String> {
        if !self.skip_if(|b| b.is_ascii_digit()) {
            return Err(self.unexpected_in_token(context));
        }
        while self.skip_if(|b| b.is_ascii_digit()) {}
        Ok(())
    }

    fn string(&mut self) -> Result<(), String> {
        self.copy(1);
        loop {
            match self.peek() {
                Some(b'"') => {
                    self.copy(1);
                    return Ok(());
                }
                Some(b'\\') => self.escape()?,
                Some(0x20..=0x7f) => self.copy(1),
                Some(0x80..) => self.character(),
                Some(_) | None => return Err(self.unexpected("in string literal")),
            }
        }
    }

    fn escape(&mut self) -> Result<(), String> {
        match self.peek_at(1) {
            Some(b'b' | b'f' | b'n' | b'r' | b't' | b'\\' | b'/' | b'"') => self.copy(2),
            Some(b'u') => {
                let unit = self.code_unit()?;
                match unit {
                    0xd800..=0xdbff if self.low_surrogate_follows() => self.copy(12),
                    0xd800..=0xdfff => {
                        self.at += 6;
                        self.out.extend_from_slice(b"\\ufffd");
                    }
                    _ => self.copy(6),
                }
            }
            _ => {
                self.at += 1;
                return Err(self.unexpected_in_token("in string escape code"));
            }
        }
        Ok(())
    }

    /// Returns the code unit of the `\u` escape that starts here.
    fn code_unit(&mut self) -> Result<u32, String> {
        let mut unit = 0;
        for offset in 2..6 {
            let Some(digit) = self.peek_at(offset).and_then(|b| char::from(b).to_digit(16)) else {
                self.at += offset;
                return Err(self.unexpected_in_token("in \\u hexadecimal character escape"));
            };
            unit = unit * 16 + digit;
        }
        Ok(unit)
    }

    /// Whether a low surrogate follows the `\u` escape that starts here.
    fn low_surrogate_follows(&self) -> bool {
        let Some(&[b'\\', b'u', b'd' | b'D', second, third, fourth]) = self.text.get(self.at + 6..self.at + 12) else {
            return false;
        };
        matches!(second, b'c'..=b'f' | b'C'..=b'F') && third.is_ascii_hexdigit() && fourth.is_ascii_hexdigit()
    }

    /// Copies one non-ASCII character, or replaces one byte of invalid UTF-8.
    fn character(&mut self) {
        let width = (2..=4).find(|&width| {
            self.text.get(self.at..self.at + width).is_some_and(|bytes| std::str::from_utf8(bytes).is_ok())
        });
        if let Some(width) = width {
            self.copy(width);
        } else {
            self.at += 1;
            self.out.extend_from_slice("\u{fffd}".as_bytes());
        }
    }

    fn peek(&self) -> Option<u8> {
        self.peek_at(0)
    }

    fn peek_at(&self, offset: usize) -> Option<u8> {
        self.text.get(self.at + offset).copied()
    }

    /// Skips white space and returns the next byte.
    fn next_significant(&mut self) -> Option<u8> {
        while self.skip_if(|b| matches!(b, b' ' | b'\t' | b'\r' | b'\n')) {}
        self.peek()
    }

    fn skip_if(&mut self, wanted: impl Fn(u8) -> bool) -> bool {
        let found = self.peek().is_some_and(wanted);
        self.at += usize::from(found);
        found
    }

    fn copy(&mut self, count: usize) {
        let end = self.at + count;
        self.out.extend_from_slice(self.text.get(self.at..end).unwrap_or_default());
        self.at = end;
    }

    /// Returns Go's message about the next byte inside a number, an escape or a literal. At the end of the text, the
    /// message names a space. Go scans an extra space to test whether the text may end there.
    fn unexpected_in_token(&self, context: &str) -> String {
        Self::unexpected_byte(self.peek().unwrap_or(b' '), context)
    }

    /// Returns Go's message about the next byte, or about the unexpected end of the text.
    fn unexpected(&self, context: &str) -> String {
        match self.peek() {
            None => "unexpected end of JSON input".to_owned(),
            Some(byte) => Self::unexpected_byte(byte, context),
        }
    }

    fn unexpected_byte(byte: u8, context: &str) -> String {
        let shown = match byte {
            b'\'' => "\\'".to_owned(),
            b'"' => "\"".to_owned(),
            // Go prints the byte as a Latin-1 character.
            byte => go_quoted(char::from(byte).encode_utf8(&mut [0; 2])).trim_matches('"').to_owned(),
        };
        format!("invalid character '{shown}' {context}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn repair(text: &[u8]) -> Result<String, String> {
        repaired(text).map(|out| String::from_utf8(out.json).expect("UTF-8"))
    }

    #[test]
    fn the_first_unfit_number_is_found_as_it_is_written() {
        let number_at = |text: &'static [u8], path: &str| first_unfit_number(text, path, |_| false);
        let text = br#"{"a":{"b":1},"x\\":[{"a":{"b":2}}],"a" : {"c":"}\"b\":9", "b" :	1E+2 ,"d":{"b":3}}, "b":4}"#;
        assert_eq!(first_unfit_number(text, "a.b", |number| number.parse::<i32>().is_ok()), Some("1E+2"));
        assert_eq!((number_at(text, "a.b"), number_at(text, "b")), (Some("1"), Some("4")));
        assert_eq!(number_at(br#" {"a":5,"c":{"b":6},"\u0061":{"b":7}}"#, "a.b"), Some("7"));
        for path in ["c", "a.c", "a.e", "x"] {
            assert_eq!(number_at(text, path), None, "{path}");
        }
        for end in 0..text.len() {
            _ = number_at(&text[..end], "a.b");
        }
    }

    #[test]
    fn a_number_too_large_for_a_float_is_reported() {
        let repaired = repaired(b"[1e10,-1e999,1e998]").expect("JSON for Go");
        assert_eq!(repaired.huge_number.as_deref(), Some("-1e999"));
    }

    #[test]
    fn valid_json_is_copied_without_white_space() {
        for (text, out) in [
            (
                r#" { "a" : [ 1 , -2.5 , true , false , null , "x" ] , "b" : { } , "c" : [ ] } "#,
                r#"{"a":[1,-2.5,true,false,null,"x"],"b":{},"c":[]}"#,
            ),
            ("18446744073709551615", "18446744073709551615"),
            (r#""\ud83d\ude00\u00e9\n""#, r#""\ud83d\ude00\u00e9\n""#),
        ] {
            assert_eq!(repair(text.as_bytes()).as_deref(), Ok(out));
        }
    }

    #[test]
    fn input_that_only_go_accepts_is_replaced() {
        assert_eq!(repair(b"\"a\xffb\xe2\x82c\xe2\x82\xac\"").as_deref(), Ok("\"a\u{fffd}b\u{fffd}\u{fffd}c€\""));
        assert_eq!(
            repair(br#""\ud800\u0041\udc00\ud800\ud83d\ude00""#).as_deref(),
            Ok(r#""\ufffd\u0041\ufffd\ufffd\ud83d\ude00""#)
        );
        assert_eq!(repair(b"99999999999999999999").as_deref(), Ok("1e20"));
        assert_eq!(repair(b"-1e999").as_deref(), Ok("-1e300"));
    }

    #[test]
    fn invalid_json_gets_the_errors_of_go() {
        for (text, words) in [
            ("", "unexpected end of JSON input"),
            ("{", "unexpected end of JSON input"),
            ("\"a", "unexpected end of JSON input"),
            ("{} trailing", "invalid character 't' after top-level value"),
            ("x: y", "invalid character 'x' looking for beginning of value"),
            ("{a", "invalid character 'a' looking for beginning of object key string"),
            ("{\"a\",", "invalid character ',' after object key"),
            ("{\"a\":1]", "invalid character ']' after object key:value pair"),
            ("[1}", "invalid character '}' after array element"),
            ("[1,]", "invalid character ']' looking for beginning of value"),
            ("{\"a\":1,}", "invalid character '}' looking for beginning of object key string"),
            ("-x", "invalid character 'x' in numeric literal"),
            ("01", "invalid character '1' after top-level value"),
            ("1.x", "invalid character 'x' after decimal point in numeric literal"),
            ("1ex", "invalid character 'x' in exponent of numeric literal"),
            ("trux", "invalid character 'x' in literal true (expecting 'e')"),
            ("nil", "invalid character 'i' in literal null (expecting 'u')"),
            ("\"\n\"", "invalid character '\\n' in string literal"),
            ("\"\\x\"", "invalid character 'x' in string escape code"),
            ("\"\\u00g0\"", "invalid character 'g' in \\u hexadecimal character escape"),
            ("'", "invalid character '\\'' looking for beginning of value"),
            ("[\"a\"\"", "invalid character '\"' after array element"),
            ("tru", "invalid character ' ' in literal true (expecting 'e')"),
            ("-", "invalid character ' ' in numeric literal"),
            ("1.", "invalid character ' ' after decimal point in numeric literal"),
            ("\"\\", "invalid character ' ' in string escape code"),
            ("\"\\u0", "invalid character ' ' in \\u hexadecimal character escape"),
            ("é", "invalid character 'Ã' looking for beginning of value"),
        ] {
            assert_eq!(repair(text.as_bytes()), Err(words.to_owned()), "{text}");
        }
    }

    #[test]
    fn nesting_has_the_limit_of_go() {
        let nested = |depth| [vec![b'['; depth], vec![b']'; depth]].concat();
        assert!(repaired(&nested(DEPTH_MAX)).is_ok());
        assert_eq!(repair(&nested(DEPTH_MAX + 1)), Err("invalid character '[' exceeded max depth".into()));
    }
}
