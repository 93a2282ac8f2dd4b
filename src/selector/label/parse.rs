//! Parses the text of a label selector: its tokens, its grammar and the error messages.
//!
//! The grammar is that of Kubernetes ("Labels and Selectors"), with its special cases. An operator such as `in` is an
//! ordinary value where a value is expected. An empty value is allowed. A NUL right after an operator or a word is
//! skipped. Any other NUL ends the text. All this is as in kube-apiserver. Tokens are slices of the text. The parser
//! takes linear time, except for the sort of each list of values.

use super::{Parsed, Rule};
use crate::api_error::FieldError;
use crate::go::number::parse_int;
use crate::lease::validation::format::{
    is_label_value, is_qualified_name, label_value_complaints, qualified_name_complaints,
};
use std::collections::BTreeSet;

/// The kind of a token, such as a comma or a word.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    ClosedParenthesis,
    Comma,
    DoubleEquals,
    EndOfString,
    Equals,
    GreaterThan,
    Identifier,
    In,
    LessThan,
    Not,
    NotEquals,
    NotIn,
    OpenParenthesis,
}

type Token<'a> = (Kind, &'a str);

/// Splits the text into tokens. Returns [`Kind::EndOfString`] at the end of the text, or at a NUL where a token could
/// begin.
struct Lexer<'a> {
    text: &'a str,
    /// Byte offset of the next token, which is always a character boundary.
    at: usize,
}

impl<'a> Lexer<'a> {
    fn next_token(&mut self) -> Token<'a> {
        let rest = self.text.get(self.at..).unwrap_or_default().trim_start_matches([' ', '\t', '\r', '\n']);
        self.at = self.text.len() - rest.len();
        let mut bytes = rest.bytes();
        let kind = match (bytes.next(), bytes.next()) {
            (None | Some(0), _) => return (Kind::EndOfString, ""),
            (Some(b')'), _) => Kind::ClosedParenthesis,
            (Some(b','), _) => Kind::Comma,
            (Some(b'='), Some(b'=')) => Kind::DoubleEquals,
            (Some(b'='), _) => Kind::Equals,
            (Some(b'>'), _) => Kind::GreaterThan,
            (Some(b'<'), _) => Kind::LessThan,
            (Some(b'!'), Some(b'=')) => Kind::NotEquals,
            (Some(b'!'), _) => Kind::Not,
            (Some(b'('), _) => Kind::OpenParenthesis,
            _ => return self.word(rest),
        };
        let length = if matches!(kind, Kind::DoubleEquals | Kind::NotEquals) { 2 } else { 1 };
        let (symbol, after) = rest.split_at_checked(length).unwrap_or((rest, ""));
        // If a NUL follows an operator directly, the lexer consumes the NUL together with the operator.
        self.at += length + usize::from(after.starts_with('\0'));
        (kind, symbol)
    }

    /// Returns the word at the start of `rest`. The word ends before white space, an operator or a NUL. The lexer also
    /// consumes that NUL.
    fn word(&mut self, rest: &'a str) -> Token<'a> {
        const ENDS: [char; 12] = ['=', '!', '(', ')', ',', '>', '<', ' ', '\t', '\r', '\n', '\0'];
        let (word, after) = rest.split_at_checked(rest.find(ENDS).unwrap_or(rest.len())).unwrap_or((rest, ""));
        self.at += word.len() + usize::from(after.starts_with('\0'));
        match word {
            "in" => (Kind::In, word),
            "notin" => (Kind::NotIn, word),
            _ => (Kind::Identifier, word),
        }
    }
}

/// A recursive-descent parser with one token of lookahead.
struct Parser<'a> {
    lexer: Lexer<'a>,
    next: Token<'a>,
    parsed: Parsed,
}

/// Parses a whole selector. Returns kube-apiserver's message about the first mistake as the error.
pub(super) fn parse(text: &str) -> Result<Parsed, String> {
    Parser::new(text).parse()
}

impl<'a> Parser<'a> {
    fn new(text: &'a str) -> Self {
        let mut lexer = Lexer { text, at: 0 };
        let next = lexer.next_token();
        Self { lexer, next, parsed: Parsed::default() }
    }

    /// Consumes and returns the next token. The token at the end of the text is never consumed.
    fn consume(&mut self) -> Token<'a> {
        let following = if self.next.0 == Kind::EndOfString { self.next } else { self.lexer.next_token() };
        std::mem::replace(&mut self.next, following)
    }

    /// Returns the kind of the next token at a place where a key or a value is expected. There, `in` and `notin` are
    /// ordinary words.
    fn next_kind(&self) -> Kind {
        as_value(self.next).0
    }

    fn parse(mut self) -> Result<Parsed, String> {
        loop {
            match self.next_kind() {
                Kind::Identifier | Kind::Not => {}
                Kind::EndOfString => return Ok(self.parsed),
                _ => return Err(format!("found '{}', expected: !, identifier, or 'end of string'", self.next.1)),
            }
            self.requirement().map_err(|why| format!("unable to parse requirement: {why}"))?;
            match self.consume() {
                (Kind::EndOfString, _) => return Ok(self.parsed),
                (Kind::Comma, _) if matches!(self.next_kind(), Kind::Identifier | Kind::Not) => {}
                (Kind::Comma, _) => return Err(format!("found '{}', expected: identifier after ','", self.next.1)),
                (_, found) => return Err(format!("found '{found}', expected: ',' or 'end of string'")),
            }
        }
    }

    fn requirement(&mut self) -> Result<(), String> {
        let (mut kind, mut key) = as_value(self.consume());
        let negated = kind == Kind::Not;
        if negated {
            (kind, key) = as_value(self.consume());
        }
        if kind != Kind::Identifier {
            return Err(format!("found '{key}', expected: identifier"));
        }
        if !is_qualified_name(key) {
            return Err(invalid("<nil>", key, &qualified_name_complaints(key).join("; ")));
        }
        // After `!key`, only a comma or the end of the text may follow. The caller refuses anything else.
        match self.next_kind() {
            _ if negated => self.parsed.push(key, Rule::DoesNotExist, &[]),
            Kind::EndOfString | Kind::Comma => self.parsed.push(key, Rule::Exists, &[]),
            _ => self.rule(key),
        }
    }

    fn rule(&mut self, key: &str) -> Result<(), String> {
        match self.consume() {
            (Kind::In, _) => self.value_list(key, Rule::In),
            (Kind::NotIn, _) => self.value_list(key, Rule::NotIn),
            (Kind::Equals | Kind::DoubleEquals, _) => self.one_value(key, Rule::In),
            (Kind::NotEquals, _) => self.one_value(key, Rule::NotIn),
            (Kind::GreaterThan, _) => self.one_value(key, Rule::GreaterThan),
            (Kind::LessThan, _) => self.one_value(key, Rule::LessThan),
            (_, found) => Err(format!("found '{found}', expected: in, notin, =, ==, !=, gt, lt")),
        }
    }

    /// Parses a list of values in parentheses, and checks each value.
    fn value_list(&mut self, key: &str, rule: Rule) -> Result<(), String> {
        let values: Vec<&str> = self.values_in_parentheses()?.into_iter().collect();
        check_values(key, &values, false)?;
        self.parsed.push(key, rule, &values)
    }

    /// Parses a single value, and checks it. For `>` and `<`, the value must be a number.
    fn one_value(&mut self, key: &str, rule: Rule) -> Result<(), String> {
        let value = self.value()?;
        check_values(key, &[value], matches!(rule, Rule::GreaterThan | Rule::LessThan))?;
        self.parsed.push(key, rule, &[value])
    }

    fn values_in_parentheses(&mut self) -> Result<BTreeSet<&'a str>, String> {
        let (kind, found) = self.consume();
        if kind != Kind::OpenParenthesis {
            return Err(format!("found '{found}' expected: '('"));
        }
        match self.next_kind() {
            Kind::Identifier | Kind::Comma => self.values(),
            Kind::ClosedParenthesis => {
                self.consume();
                Ok(BTreeSet::from([""]))
            }
            _ => Err(format!("found '{}', expected: ',', ')' or identifier", self.next.1)),
        }
    }

    /// Parses values up to the closing parenthesis, which is consumed too. If the value before or after a comma is
    /// missing, that value is empty.
    fn values(&mut self) -> Result<BTreeSet<&'a str>, String> {
        let mut values = BTreeSet::new();
        loop {
            match as_value(self.consume()) {
                (Kind::Identifier, value) => {
                    values.insert(value);
                    match self.next_kind() {
                        Kind::Comma => continue,
                        Kind::ClosedParenthesis => {}
                        _ => return Err(format!("found '{}', expected: ',' or ')'", self.next.1)),
                    }
                }
                (Kind::Comma, _) => {
                    if values.is_empty() {
                        values.insert("");
                    }
                    match self.next_kind() {
                        Kind::ClosedParenthesis => _ = values.insert(""),
                        Kind::Comma => {
                            values.insert("");
                            continue;
                        }
                        _ => continue,
                    }
                }
                (_, found) => return Err(format!("found '{found}', expected: ',', or identifier")),
            }
            self.consume();
            return Ok(values);
        }
    }

    /// Parses one value. At the end of the text and before a comma, the value is empty.
    fn value(&mut self) -> Result<&'a str, String> {
        if matches!(self.next_kind(), Kind::EndOfString | Kind::Comma) {
            return Ok("");
        }
        match as_value(self.consume()) {
            (Kind::Identifier, value) => Ok(value),
            (_, found) => Err(format!("found '{found}', expected: identifier")),
        }
    }
}

/// Converts the tokens `in` and `notin` to words, for a place where a key or a value is expected.
fn as_value((kind, text): Token<'_>) -> Token<'_> {
    (if matches!(kind, Kind::In | Kind::NotIn) { Kind::Identifier } else { kind }, text)
}

/// Maximum number of complaints about one list of values. kube-apiserver has no such limit, but no user reads more
/// complaints.
const COMPLAINTS_MAX: usize = 64;

/// Checks that all values are valid label values. With `numbers`, also checks that all values are numbers.
fn check_values(key: &str, values: &[&str], numbers: bool) -> Result<(), String> {
    let mut complaints = Vec::new();
    for (i, &value) in values.iter().enumerate() {
        if complaints.len() >= COMPLAINTS_MAX {
            break;
        }
        if numbers && parse_int(value).is_err() {
            let detail = "for 'Gt', 'Lt' operators, the value must be an integer";
            complaints.push(invalid(&format!("values[{i}]"), value, detail));
        }
        if !is_label_value(value) {
            let detail = label_value_complaints(value).join("; ");
            complaints.push(invalid(&format!("values[{i}][{key}]"), value, &detail));
        }
    }
    match complaints.as_slice() {
        [] => Ok(()),
        [one] => Err(one.clone()),
        all => Err(format!("[{}]", all.join(", "))),
    }
}

/// Formats a `field.Error` as one sentence.
#[cold]
fn invalid(field: &str, value: &str, detail: &str) -> String {
    let error = FieldError::invalid(field, value, detail);
    format!("{}: {}", error.field, error.body())
}

#[cfg(test)]
mod tests {
    use super::super::LabelSelector;
    use crate::api_error::ApiError;
    use crate::lease::StringMap;

    fn refusal(text: &str) -> String {
        match LabelSelector::parse(text) {
            Err(ApiError::BadRequest { message }) => message,
            other => panic!("{text}: {other:?}"),
        }
    }

    #[test]
    fn invalid_selectors_get_the_errors_of_kube_apiserver() {
        const NAME: &str = "name part must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')";
        const VALUE: &str = "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character (e.g. 'MyValue',  or 'my_value',  or '12345', regex used for validation is '(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?')";
        const INTEGER: &str = "for 'Gt', 'Lt' operators, the value must be an integer";
        const OPERATORS: &str = "in, notin, =, ==, !=, gt, lt";
        let long = "x".repeat(64);
        for (text, message) in [
            ("=", "found '=', expected: !, identifier, or 'end of string'".to_owned()),
            ("set in a", "unable to parse requirement: found 'a' expected: '('".to_owned()),
            ("a b", format!("unable to parse requirement: found 'b', expected: {OPERATORS}")),
            ("set=a=b", "found '=', expected: ',' or 'end of string'".to_owned()),
            ("!a=b", "found '=', expected: ',' or 'end of string'".to_owned()),
            ("-x=y", format!("unable to parse requirement: <nil>: Invalid value: \"-x\": {NAME}")),
            ("n>x", format!("unable to parse requirement: values[0]: Invalid value: \"x\": {INTEGER}")),
            ("n>", format!("unable to parse requirement: values[0]: Invalid value: \"\": {INTEGER}")),
            (
                &format!("set={long}"),
                format!(
                    "unable to parse requirement: values[0][set]: Invalid value: \"{long}\": must be no more than 63 bytes"
                ),
            ),
            (
                "a in (b_,-,c)",
                format!(
                    "unable to parse requirement: [values[0][a]: Invalid value: \"-\": {VALUE}, values[1][a]: Invalid value: \"b_\": {VALUE}]"
                ),
            ),
            (
                "n<-",
                format!(
                    "unable to parse requirement: [values[0]: Invalid value: \"-\": {INTEGER}, values[0][n]: Invalid value: \"-\": {VALUE}]"
                ),
            ),
            ("a,", "found '', expected: identifier after ','".to_owned()),
            ("a,,b", "found ',', expected: identifier after ','".to_owned()),
            ("!", "unable to parse requirement: found '', expected: identifier".to_owned()),
            ("!!a", "unable to parse requirement: found '!', expected: identifier".to_owned()),
            ("a=(", "unable to parse requirement: found '(', expected: identifier".to_owned()),
            ("a in", "unable to parse requirement: found '' expected: '('".to_owned()),
            ("a in (", "unable to parse requirement: found '', expected: ',', ')' or identifier".to_owned()),
            ("a in (b", "unable to parse requirement: found '', expected: ',' or ')'".to_owned()),
            ("a in (b c)", "unable to parse requirement: found 'c', expected: ',' or ')'".to_owned()),
            ("a in (b,", "unable to parse requirement: found '', expected: ',', or identifier".to_owned()),
            ("a in (=)", "unable to parse requirement: found '=', expected: ',', ')' or identifier".to_owned()),
        ] {
            assert_eq!(refusal(text), message, "{text}");
        }
    }

    #[test]
    fn a_nul_byte_ends_a_token_or_the_selector() {
        let parse = |text| LabelSelector::parse(text).expect("a selector");
        assert_eq!(parse("a=\0b"), parse("a=b"));
        assert_eq!(parse("a\0=b"), parse("a=b"));
        assert_eq!(parse("a \0b"), parse("a"));
        assert_eq!(refusal("a,\0\0=b"), "found '', expected: identifier after ','");
    }

    #[test]
    fn a_list_of_wrong_values_has_a_bounded_answer() {
        let values: Vec<String> = (0..10_000).map(|i| format!("-{i}")).collect();
        assert!(refusal(&format!("a in ({})", values.join(","))).len() < 64 * 1024);
    }

    /// Goal: no text makes the parser panic or run forever. Method: all prefixes of a selector that has many forms, and
    /// random changes of that selector.
    #[test]
    fn no_text_panics() {
        let good = "in in (in,,x, notin), !b,c==,d!=e , example.com/f notin (), g>1,h<2,ü";
        for (end, _) in good.char_indices() {
            _ = LabelSelector::parse(&good[..end]);
        }
        let labels: StringMap = [("a".into(), "1".into())].into_iter().collect();
        const ALPHABET: &[char] =
            &['a', 'i', 'n', '=', '!', '(', ')', ',', '<', '>', ' ', '\t', '\0', 'é', '/', '-', '1'];
        let mut rng = fastrand::Rng::with_seed(2);
        for _ in 0..200_000 {
            let mut text: Vec<char> = if rng.bool() { good.chars().collect() } else { Vec::new() };
            for _ in 0..rng.usize(..10) {
                let at = rng.usize(..=text.len());
                match rng.u8(..3) {
                    0 if at < text.len() => _ = text.remove(at),
                    1 => text.truncate(at),
                    _ => text.insert(at, ALPHABET[rng.usize(..ALPHABET.len())]),
                }
            }
            let text: String = text.into_iter().collect();
            if let Ok(selector) = LabelSelector::parse(&text) {
                _ = selector.matches(&labels);
            }
        }
    }
}
