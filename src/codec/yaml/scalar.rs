//! Writes strings in YAML: chooses a style, and encodes the string in that style. The choice is that of go-yaml. The
//! style is plain if a parser would read the plain text as the same string. The style is quoted if a parser would read
//! the plain text as another value.

use super::decode::{Scalar, resolve_plain};
use crate::timestamp::days_in_month;

/// YAML style of a string.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Style {
    Plain,
    SingleQuoted,
    DoubleQuoted,
    Literal,
}

/// Returns the style for a string. `is_key` is true if the string is a key, with a colon after it on the same line.
pub(super) fn style_of(text: &str, is_key: bool) -> Style {
    let found = Analysis::of(text);
    let wanted = if text.contains('\n') {
        Style::Literal
    } else if reads_as_string(text) {
        Style::Plain
    } else {
        Style::DoubleQuoted
    };
    match wanted {
        _ if is_key && found.is_multiline => Style::DoubleQuoted,
        Style::Plain if found.may_be_plain => Style::Plain,
        Style::Plain if found.may_be_single_quoted => Style::SingleQuoted,
        Style::Literal if found.may_be_literal && !is_key => Style::Literal,
        _ => Style::DoubleQuoted,
    }
}

/// The styles that the characters of a string allow.
struct Analysis {
    is_multiline: bool,
    may_be_plain: bool,
    may_be_single_quoted: bool,
    may_be_literal: bool,
}

impl Analysis {
    fn of(text: &str) -> Self {
        if is_common(text) {
            return Self { is_multiline: false, may_be_plain: true, may_be_single_quoted: true, may_be_literal: true };
        }
        let mut has_indicator = text.starts_with("---") || text.starts_with("...");
        let (mut is_multiline, mut has_special) = (false, false);
        let (mut break_space, mut space_break) = (false, false);
        let (mut after_space, mut after_break, mut after_blank) = (false, false, true);
        let mut chars = text.chars().peekable();
        let mut is_first = true;
        while let Some(c) = chars.next() {
            let before_blank = matches!(chars.peek(), None | Some(' ' | '\t'));
            has_indicator |= match c {
                '#' | ',' | '[' | ']' | '{' | '}' | '&' | '*' | '!' | '|' | '>' | '\'' | '"' | '%' | '@' | '`'
                    if is_first =>
                {
                    true
                }
                '?' | '-' if is_first => before_blank,
                ':' => before_blank,
                '#' => after_blank,
                _ => false,
            };
            has_special |= !is_printable(c);
            if c == ' ' {
                break_space |= after_break;
                (after_space, after_break) = (true, false);
            } else if is_break(c) {
                is_multiline = true;
                space_break |= after_space;
                (after_space, after_break) = (false, true);
            } else {
                (after_space, after_break) = (false, false);
            }
            after_blank = matches!(c, ' ' | '\t' | '\0') || is_break(c);
            is_first = false;
        }
        let starts_blank = text.starts_with(|c| c == ' ' || is_break(c));
        let ends_blank = text.ends_with(|c| c == ' ' || is_break(c));
        let unfit = space_break || has_special;
        Self {
            is_multiline,
            may_be_plain: !(starts_blank || ends_blank || break_space || unfit || is_multiline || has_indicator),
            may_be_single_quoted: !(break_space || unfit),
            may_be_literal: !(text.is_empty() || text.ends_with(' ') || unfit),
        }
    }
}

/// Whether a string consists only of letters, digits and harmless punctuation. Nearly all strings do. The characters of
/// such a string allow every style, so they need no analysis. [`reads_as_string`] decides about strings such as `true`.
fn is_common(text: &str) -> bool {
    let bytes = text.as_bytes();
    bytes.first().is_some_and(u8::is_ascii_alphanumeric)
        && bytes.last() != Some(&b':')
        && bytes.iter().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.' | b'/' | b':' | b'_'))
}

/// Whether a character needs no escape in YAML. A carriage return needs an escape, since parsers read a plain one as a
/// line feed.
fn is_printable(c: char) -> bool {
    matches!(c, '\n' | ' '..='~' | '\u{a0}'..='\u{d7ff}' | '\u{e000}'..='\u{fefe}' | '\u{ff00}'..='\u{fffd}')
}

fn is_break(c: char) -> bool {
    matches!(c, '\n' | '\r' | '\u{85}' | '\u{2028}' | '\u{2029}')
}

/// Column after which a line is folded at the next space, in characters.
const COLUMN_FOLD: usize = 80;

/// Appends a string that starts at the column `column`. If the string takes several lines, the lines after the first
/// are indented to the column `indent`. `may_fold` is whether a long line may be folded at a space.
pub(super) fn push_scalar(out: &mut Vec<u8>, text: &str, style: Style, indent: usize, column: usize, may_fold: bool) {
    let mut writer = Writer { out, column, indent };
    match style {
        // A line is folded only at a space. So a text without spaces is appended unchanged.
        Style::Plain if !text.contains(' ') => writer.out.extend_from_slice(text.as_bytes()),
        Style::Plain => writer.push_flow(text, may_fold, false),
        Style::SingleQuoted => {
            writer.push('\'');
            writer.push_flow(text, may_fold, true);
            writer.push('\'');
        }
        Style::DoubleQuoted => writer.push_double_quoted(text, may_fold),
        Style::Literal => writer.push_literal(text),
    }
}

/// Returns the offset at which the last line of `out` starts, and whether that line is empty. `start` is the offset of
/// the last written text, and `line_start` is the start of the line that contains `start`.
pub(super) fn column_after(out: &[u8], start: usize, line_start: usize) -> (usize, bool) {
    let written = out.get(start..).unwrap_or_default();
    match written.iter().rposition(|byte| *byte == b'\n') {
        Some(at) => (start + at + 1, start + at + 1 == out.len()),
        None => (line_start, false),
    }
}

struct Writer<'o> {
    out: &'o mut Vec<u8>,
    /// Column in the current line of the output, in characters.
    column: usize,
    indent: usize,
}

impl Writer<'_> {
    fn push(&mut self, c: char) {
        self.out.extend_from_slice(c.encode_utf8(&mut [0; 4]).as_bytes());
        self.column += 1;
    }

    fn break_line(&mut self) {
        self.out.push(b'\n');
        self.column = 0;
    }

    fn push_indent(&mut self) {
        self.out.resize(self.out.len() + self.indent, b' ');
        self.column = self.indent;
    }

    /// Appends a string in plain or single-quoted style. Of the line breaks, such a string can contain only U+2028 and
    /// U+2029, and only in single-quoted style. A string with a line feed has another style.
    fn push_flow(&mut self, text: &str, may_fold: bool, is_quoted: bool) {
        let (mut after_space, mut after_break) = (false, false);
        let mut chars = text.chars().peekable();
        let mut is_first = true;
        while let Some(c) = chars.next() {
            if c == ' ' {
                let is_inside = !is_quoted || (!is_first && chars.peek().is_some());
                let folds = may_fold && !after_space && self.column > COLUMN_FOLD && is_inside;
                if folds && chars.peek() != Some(&' ') {
                    self.break_line();
                    self.push_indent();
                } else {
                    self.push(c);
                }
                after_space = true;
            } else if is_break(c) {
                self.push_break(c);
                after_break = true;
            } else {
                if after_break {
                    self.push_indent();
                }
                if is_quoted && c == '\'' {
                    self.push(c);
                }
                self.push(c);
                (after_space, after_break) = (false, false);
            }
            is_first = false;
        }
    }

    fn push_break(&mut self, c: char) {
        if c == '\n' {
            self.break_line();
        } else {
            self.push(c);
            self.column = 0;
        }
    }

    fn push_double_quoted(&mut self, text: &str, may_fold: bool) {
        // If a text begins with a byte order mark, go-yaml escapes every character of the text.
        let escapes_all = text.starts_with('\u{feff}');
        self.push('"');
        let mut after_space = false;
        let mut chars = text.chars().peekable();
        let mut is_first = true;
        while let Some(c) = chars.next() {
            if escapes_all || !is_printable(c) || is_break(c) || matches!(c, '"' | '\\') {
                self.push_escape(c);
                after_space = false;
            } else if c == ' ' {
                let is_inside = !is_first && chars.peek().is_some();
                if may_fold && !after_space && self.column > COLUMN_FOLD && is_inside {
                    self.break_line();
                    self.push_indent();
                    if chars.peek() == Some(&' ') {
                        self.push('\\');
                    }
                } else {
                    self.push(c);
                }
                after_space = true;
            } else {
                self.push(c);
                after_space = false;
            }
            is_first = false;
        }
        self.push('"');
    }

    fn push_escape(&mut self, c: char) {
        let short = match c {
            '\0' => '0',
            '\u{7}' => 'a',
            '\u{8}' => 'b',
            '\t' => 't',
            '\n' => 'n',
            '\u{b}' => 'v',
            '\u{c}' => 'f',
            '\r' => 'r',
            '\u{1b}' => 'e',
            '"' => '"',
            '\\' => '\\',
            '\u{85}' => 'N',
            '\u{a0}' => '_',
            '\u{2028}' => 'L',
            '\u{2029}' => 'P',
            c => {
                let n = u32::from(c);
                let (kind, digits) = match n {
                    ..=0xff => (b'x', 2),
                    0x100..=0xffff => (b'u', 4),
                    _ => (b'U', 8),
                };
                self.out.extend([b'\\', kind]);
                let digit = |at| char::from_digit(n >> (4 * at) & 0xf, 16);
                self.out.extend((0..digits).rev().filter_map(digit).map(|digit| digit.to_ascii_uppercase() as u8));
                self.column += 2 + digits;
                return;
            }
        };
        self.push('\\');
        self.push(short);
    }

    fn push_literal(&mut self, text: &str) {
        self.push('|');
        if text.starts_with(|c| c == ' ' || is_break(c)) {
            self.push('2');
        }
        let mut last = text.chars().rev();
        match (last.next().is_some_and(is_break), last.next()) {
            (false, _) => self.push('-'),
            (true, None) => self.push('+'),
            (true, Some(c)) if is_break(c) => self.push('+'),
            (true, Some(_)) => {}
        }
        self.break_line();
        let mut after_break = true;
        for c in text.chars() {
            if is_break(c) {
                self.push_break(c);
                after_break = true;
            } else {
                if after_break {
                    self.push_indent();
                }
                self.push(c);
                after_break = false;
            }
        }
    }
}

// ---- How a parser reads a plain string ----

/// Whether parsers read the plain `text` as a string: go-yaml under YAML 1.1, and also other parsers that read numbers
/// in base 60.
fn reads_as_string(text: &str) -> bool {
    let is_text = match resolve_plain(text) {
        Scalar::Text | Scalar::Merge => true,
        // go-yaml accepts no underscore in a number that begins with a point. So such a text is a string.
        Scalar::Float(_) => text.starts_with('.') && text.contains('_'),
        Scalar::Bool(_) | Scalar::Integer(_) | Scalar::Null | Scalar::Unsigned(_) => false,
    };
    is_text && !is_timestamp(text) && !is_base_60(text)
}

/// Whether a text is a number in base 60, such as `1:30:00`.
fn is_base_60(text: &str) -> bool {
    let rest = text.strip_prefix(['+', '-']).unwrap_or(text);
    let (whole, fraction) = rest.split_once('.').unwrap_or((rest, ""));
    let mut groups = whole.split(':');
    let is_first = |group: &str| {
        group.starts_with(|c: char| c.is_ascii_digit())
            && group.bytes().all(|byte| byte.is_ascii_digit() || byte == b'_')
    };
    let is_next = |group: &str| match group.as_bytes() {
        [digit] => digit.is_ascii_digit(),
        [ten, one] => (b'0'..=b'5').contains(ten) && one.is_ascii_digit(),
        _ => false,
    };
    whole.contains(':')
        && groups.next().is_some_and(is_first)
        && groups.all(is_next)
        && fraction.bytes().all(|byte| byte.is_ascii_digit() || byte == b'_')
}

/// Whether a text is a date, or a date and a time: `2006-1-2`, `2006-1-2 15:4:5.9`, or a form with `T` or `t` and a
/// zone.
fn is_timestamp(text: &str) -> bool {
    let mut rest = text;
    let Some(year) = number(&mut rest, 4, 4) else { return false };
    let Some(month) = after(&mut rest, '-').and_then(|rest| number(rest, 1, 2)) else { return false };
    let Some(day) = after(&mut rest, '-').and_then(|rest| number(rest, 1, 2)) else { return false };
    if !(1..=12).contains(&month) || !(1..=days_in_month(year, month)).contains(&day) {
        return false;
    }
    let Some(separator) = rest.chars().next() else { return true };
    rest = match separator {
        // Go accepts any number of spaces between date and time.
        ' ' => rest.trim_start_matches(' '),
        'T' | 't' => rest.get(1..).unwrap_or_default(),
        _ => return false,
    };
    let time = |rest: &mut &str| {
        let hour = number(rest, 1, 2)?;
        let minute = number(after(rest, ':')?, 1, 2)?;
        let second = number(after(rest, ':')?, 1, 2)?;
        let fraction = rest.strip_prefix(['.', ',']).filter(|rest| rest.starts_with(|c: char| c.is_ascii_digit()));
        if let Some(fraction) = fraction {
            *rest = fraction.trim_start_matches(|c: char| c.is_ascii_digit());
        }
        (hour < 24 && minute < 60 && second < 60).then_some(())
    };
    if time(&mut rest).is_none() {
        return false;
    }
    if separator == ' ' {
        return rest.is_empty();
    }
    if rest == "Z" {
        return true;
    }
    rest = rest.strip_prefix(['+', '-']).unwrap_or("x");
    let zone = |rest: &mut &str| Some((number(rest, 2, 2)?, number(after(rest, ':')?, 2, 2)?));
    zone(&mut rest).is_some_and(|(hours, minutes)| hours <= 24 && minutes <= 60) && rest.is_empty()
}

/// Removes a number from the start of `rest`, and returns it. The number must have `min` to `max` digits.
fn number(rest: &mut &str, min: usize, max: usize) -> Option<i64> {
    let width = rest.bytes().take(max).take_while(u8::is_ascii_digit).count();
    let (digits, after) = rest.split_at_checked(width)?;
    *rest = after;
    if width < min { None } else { digits.parse().ok() }
}

/// Removes the character `c` from the start of `rest`; `None` if `rest` does not start with `c`.
fn after<'r, 't>(rest: &'r mut &'t str, c: char) -> Option<&'r mut &'t str> {
    *rest = rest.strip_prefix(c)?;
    Some(rest)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn scalar(text: &str) -> String {
        let mut out = Vec::new();
        push_scalar(&mut out, text, style_of(text, false), 2, 3, true);
        String::from_utf8(out).expect("UTF-8")
    }

    #[test]
    fn strings_that_look_like_other_types_are_double_quoted() {
        let words = "~ y Yes NO null Off true FALSE 208 -1 +7 0x1F 0o17 017 1_000 1.5 .5 1. 1e5 5e-3 .inf -.Inf .NaN \
                     2026-01-02 2026-1-2 2026-01-02T03:04:05.678901Z 2026-01-02t03:04:05+01:00 1:30 12:30:45.6 \
                     18446744073709551615 0b101 08 18446744073709551616 -9223372036854775809";
        for text in words.split(' ').chain(["", "2026-01-02 03:04:05", "2026-01-02  3:4:5"]) {
            assert_eq!(scalar(text), format!("\"{text}\""), "{text}");
        }
    }

    #[test]
    fn other_strings_are_plain() {
        let words = "yEs nUll truex node-1 1.2.3 5dfea7de-ed50 0x 1e999 2026-13-02 2026-02-30 2026-01-02T03:04:05 \
                     2026-01-02T24:00:00Z 1:60 a:b a#b . - -- f:k k:{\"uid\":\"u\"} v:\"x\" héllo << /healthz \
                     10.0.0.1:443 日本 🦀";
        for text in words.split(' ').chain(["a, b"]) {
            let expected = match text {
                // A dash is an indicator if white space or the end of the text follows it.
                "-" => "'-'".to_owned(),
                // go-yaml escapes characters beyond U+FFFF.
                "🦀" => "\"\\U0001F980\"".to_owned(),
                text => text.to_owned(),
            };
            assert_eq!(scalar(text), expected, "{text}");
        }
    }

    #[test]
    fn strings_with_indicators_are_single_quoted() {
        for text in [
            "#a", "a: b", "a #b", "a:", "{a", "[", "*x", "&x", "!x", "|", ">", "%", "@", "`", "- a", "? a", " a", "a ",
            "---", "...x", ", a",
        ] {
            assert_eq!(scalar(text), format!("'{text}'"), "{text}");
        }
        assert_eq!(scalar("'a'"), "'''a'''");
        assert_eq!(scalar("\"a\""), "'\"a\"'");
    }

    #[test]
    fn strings_with_line_feeds_are_literal() {
        assert_eq!(scalar("a\nb"), "|-\n  a\n  b");
        assert_eq!(scalar("a\n\nb\n"), "|\n  a\n\n  b\n");
        assert_eq!(scalar("a\n\n"), "|+\n  a\n\n");
        assert_eq!(scalar("\n"), "|2+\n\n");
        assert_eq!(scalar(" a\nb"), "|2-\n   a\n  b");
        assert_eq!(scalar("a \nb"), "\"a \\nb\"");
        assert_eq!(scalar("a\tb"), "\"a\\tb\"");
        assert_eq!(scalar("a\u{1}\u{85}\u{feff}"), "\"a\\x01\\N\\uFEFF\"");
    }

    #[test]
    fn long_lines_are_folded_at_spaces() {
        let words = "0123456789 ".repeat(12);
        let words = words.trim_end();
        let folded = scalar(&format!("x{words}"));
        assert_eq!(folded.lines().map(str::len).collect::<Vec<_>>(), [88, 45]);
        assert_eq!(folded.replace("\n  ", " "), format!("x{words}"));
        let quoted = scalar(&format!("#{words}"));
        assert!(quoted.contains("\n  0123456789"), "{quoted}");
    }
}
