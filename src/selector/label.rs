//! Label selectors: `app=web, tier in (a, b), !old, size>3`.
//!
//! The grammar is that of Kubernetes ("Labels and Selectors") with its corners: an operator word is a value where a
//! value is expected, an empty value is a value, and a NUL ends the text. The tokens are slices of the text; parsing
//! takes time in proportion to it, but for the sorting of a value list.

use crate::api_error::{ApiError, FieldError};
use crate::go::number::parse_int;
use crate::lease::StringMap;
use crate::lease::validation::format::{
    is_label_value, is_qualified_name, label_value_complaints, qualified_name_complaints,
};
use std::cmp::Ordering;
use std::collections::BTreeSet;

/// Requirements that must all hold. A watch keeps them for as long as it lasts, and a request has room for ten thousand: so
/// they take little more than their text.
///
/// ```text
///   text:          app web,worker size 3 old          without the blanks
///   requirements:  In 3+10, GreaterThan 4+1, DoesNotExist 3+0
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LabelSelector {
    /// Of each requirement the key, then the values with commas between them, which stand in no value.
    text: Box<str>,
    requirements: Box<[Requirement]>,
}

/// What must hold of one key. It stands in the text behind those of the requirements before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Requirement {
    rule: Rule,
    /// Bytes.
    key_len: u16,
    /// Bytes.
    values_len: u16,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Rule {
    DoesNotExist,
    Exists,
    /// Than its one value, a number.
    GreaterThan,
    /// One of its values, which are sorted and never none.
    In,
    /// Than its one value, a number.
    LessThan,
    /// None of its values, which are sorted and never none.
    NotIn,
}

impl LabelSelector {
    /// Reads a selector; the empty text selects everything.
    ///
    /// # Errors
    /// [`ApiError::BadRequest`] with kube-apiserver's words for what is wrong first.
    pub fn parse(text: &str) -> Result<Self, ApiError> {
        let parsed = Parser::new(text).parse().map_err(|message| ApiError::BadRequest { message })?;
        Ok(Self { text: parsed.text.into(), requirements: parsed.requirements.into() })
    }

    /// Whether something with these labels is selected.
    #[must_use]
    pub fn matches(&self, labels: &StringMap) -> bool {
        let mut rest = &*self.text;
        self.requirements.iter().all(|requirement| {
            let (key, values);
            (key, rest) = rest.split_at_checked(requirement.key_len.into()).unwrap_or_default();
            (values, rest) = rest.split_at_checked(requirement.values_len.into()).unwrap_or_default();
            requirement.rule.matches(values, labels.value(key))
        })
    }

    /// How many requirements one look may have to check.
    #[must_use]
    pub fn terms(&self) -> usize {
        self.requirements.len()
    }

    /// Whether anything at all is selected.
    #[must_use]
    pub fn is_everything(&self) -> bool {
        self.requirements.is_empty()
    }
}

impl Rule {
    /// Whether the rule with `values` holds for the value of its key, if there is one.
    fn matches(self, values: &str, value: Option<&str>) -> bool {
        let compared = |value| Some(parse_int(value).ok()?.cmp(&parse_int(values).ok()?));
        match (self, value) {
            (Self::DoesNotExist | Self::NotIn, None) | (Self::Exists, Some(_)) => true,
            (Self::Exists | Self::GreaterThan | Self::In | Self::LessThan, None) | (Self::DoesNotExist, Some(_)) => {
                false
            }
            (Self::In, Some(value)) => is_among(values, value),
            (Self::NotIn, Some(value)) => !is_among(values, value),
            (Self::GreaterThan, Some(value)) => compared(value) == Some(Ordering::Greater),
            (Self::LessThan, Some(value)) => compared(value) == Some(Ordering::Less),
        }
    }
}

/// Whether `value` is one of `values`, which are sorted and have commas between them. They may be thousands.
fn is_among(values: &str, value: &str) -> bool {
    let (mut rest, value) = (values.as_bytes(), value.as_bytes());
    loop {
        let (before, after) = rest.split_at(rest.len() / 2);
        let start = before.iter().rposition(|byte| *byte == b',').map_or(0, |comma| comma + 1);
        let end = after.iter().position(|byte| *byte == b',').map_or(rest.len(), |comma| before.len() + comma);
        let further = match value.cmp(rest.get(start..end).unwrap_or_default()) {
            Ordering::Equal => return true,
            Ordering::Less => start.checked_sub(1).and_then(|comma| rest.get(..comma)),
            Ordering::Greater => rest.get(end + 1..),
        };
        match further {
            Some(further) => rest = further,
            None => return false,
        }
    }
}

/// What a token is; its text stands beside it.
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

/// Cuts the text into tokens. At the end, and at a NUL where a token could begin, it gives [`Kind::EndOfString`].
struct Lexer<'a> {
    text: &'a str,
    /// Where the next token begins; always at the border of a character.
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
        // A NUL right after an operator is read with it.
        self.at += length + usize::from(after.starts_with('\0'));
        (kind, symbol)
    }

    /// A word up to white space, an operator or a NUL, which is read with it.
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

/// Recursive descent over the tokens, one looked ahead.
struct Parser<'a> {
    lexer: Lexer<'a>,
    next: Token<'a>,
    parsed: Parsed,
}

/// A [`LabelSelector`] that grows.
#[derive(Default)]
struct Parsed {
    text: String,
    requirements: Vec<Requirement>,
}

impl Parsed {
    /// Adds what must hold of `key`.
    fn push(&mut self, key: &str, rule: Rule, values: &[&str]) -> Result<(), String> {
        self.text.push_str(key);
        let values_start = self.text.len();
        for (at, value) in values.iter().enumerate() {
            if at > 0 {
                self.text.push(',');
            }
            self.text.push_str(value);
        }
        // Longer ones come in no request.
        let len = |bytes: usize| u16::try_from(bytes).map_err(|_| "too long".to_owned());
        let (key_len, values_len) = (len(key.len())?, len(self.text.len() - values_start)?);
        self.requirements.push(Requirement { rule, key_len, values_len });
        Ok(())
    }
}

impl<'a> Parser<'a> {
    fn new(text: &'a str) -> Self {
        let mut lexer = Lexer { text, at: 0 };
        let next = lexer.next_token();
        Self { lexer, next, parsed: Parsed::default() }
    }

    /// Takes the next token; past the end it is the end again.
    fn consume(&mut self) -> Token<'a> {
        let following = if self.next.0 == Kind::EndOfString { self.next } else { self.lexer.next_token() };
        std::mem::replace(&mut self.next, following)
    }

    /// The kind of the next token where a key or value is expected: there `in` and `notin` are words like others.
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
        // After `!key` no operator is looked for; what follows the key is the caller's to refuse.
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

    /// A value list, checked.
    fn value_list(&mut self, key: &str, rule: Rule) -> Result<(), String> {
        let values: Vec<&str> = self.values_in_parentheses()?.into_iter().collect();
        check_values(key, &values, false)?;
        self.parsed.push(key, rule, &values)
    }

    /// A single value, checked; of a bound a number.
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

    /// Values up to and with the closing parenthesis. Between, before and after commas a missing value is the empty one.
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
                            // The second comma is read with the first, so `(,,)` is an error and `(,,a)` is not.
                            self.consume();
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

    /// One value, which is empty at the end and before a comma.
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

/// The token where a key or value is expected.
fn as_value((kind, text): Token<'_>) -> Token<'_> {
    (if matches!(kind, Kind::In | Kind::NotIn) { Kind::Identifier } else { kind }, text)
}

/// Most complaints about one value list. kube-apiserver has no bound; nobody reads on.
const COMPLAINTS_MAX: usize = 64;

/// Refuses values that no label can have, each for itself, and with `numbers` those that are none.
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

/// `field.Error` as one sentence.
#[cold]
fn invalid(field: &str, value: &str, detail: &str) -> String {
    let error = FieldError::invalid(field, value, detail);
    format!("{}: {}", error.field, error.body())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn labels(pairs: &[(&str, &str)]) -> StringMap {
        pairs.iter().map(|&(key, value)| (key.into(), value.into())).collect()
    }

    fn matches(text: &str, pairs: &[(&str, &str)]) -> bool {
        LabelSelector::parse(text).expect(text).matches(&labels(pairs))
    }

    fn refusal(text: &str) -> String {
        match LabelSelector::parse(text) {
            Err(ApiError::BadRequest { message }) => message,
            other => panic!("{text}: {other:?}"),
        }
    }

    /// The selectors of the conformance trace, and of its six Leases those that they select.
    #[test]
    fn selects_as_kube_apiserver_does() {
        let leases: Vec<(&str, Vec<(&str, &str)>)> = vec![
            ("a1", vec![("n", "1"), ("set", "a")]),
            ("a2", vec![("n", "2"), ("set", "a")]),
            ("b1", vec![("n", "1"), ("only", "b"), ("set", "b")]),
            ("b2", vec![("n", "2"), ("only", "b"), ("set", "b")]),
            ("c1", vec![("n", "1"), ("set", "c")]),
            ("c2", vec![("n", "2"), ("set", "c")]),
        ];
        for (text, expected) in [
            ("", "a1 a2 b1 b2 c1 c2"),
            ("set=a", "a1 a2"),
            ("set==a", "a1 a2"),
            ("set!=a", "b1 b2 c1 c2"),
            ("set in (a,b)", "a1 a2 b1 b2"),
            ("set notin (a,b)", "c1 c2"),
            ("only", "b1 b2"),
            ("!only", "a1 a2 c1 c2"),
            ("set=a,n=1", "a1"),
            ("n>1", "a2 b2 c2"),
            ("n<2", "a1 b1 c1"),
            ("set in (a),n notin (1)", "a2"),
            ("missing=", ""),
            ("set=zz", ""),
            ("set in ()", ""),
            (" set\t=\r\n a , ! only ", "a1 a2"),
        ] {
            let selected: Vec<_> =
                leases.iter().filter(|(_, pairs)| matches(text, pairs)).map(|(name, _)| *name).collect();
            assert_eq!(selected.join(" "), expected, "{text}");
        }
    }

    #[test]
    fn a_missing_key_is_not_equal_to_anything() {
        assert!(matches("a!=b", &[]) && matches("a notin (b)", &[]) && matches("!a", &[]));
        assert!(!matches("a=", &[]) && !matches("a in (b,)", &[]) && !matches("a", &[]));
        assert!(!matches("a>1", &[]) && !matches("a<1", &[]));
    }

    #[test]
    fn an_empty_value_is_a_value() {
        assert!(
            matches("a=", &[("a", "")]) && matches("a in (,b)", &[("a", "")]) && matches("a in (b,)", &[("a", "")])
        );
        assert!(
            matches("a in (b,,c)", &[("a", "")])
                && matches("a in (b,,c)", &[("a", "c")])
                && matches("a in ()", &[("a", "")])
        );
        assert!(!matches("a!=", &[("a", "")]) && !matches("a notin ()", &[("a", "")]));
        assert!(matches("a=,b=1", &[("a", ""), ("b", "1")]));
    }

    #[test]
    fn operator_words_are_names_where_names_are_expected() {
        assert!(matches("in in (in, notin)", &[("in", "notin")]));
        assert!(matches("notin", &[("notin", "")]));
        assert!(matches("a=in", &[("a", "in")]));
    }

    #[test]
    fn bounds_compare_numbers_and_skip_what_is_none() {
        assert!(matches("a>09", &[("a", "10")]) && !matches("a>9", &[("a", "x")]) && !matches("a<9", &[("a", "")]));
        assert!(!matches("a>9223372036854775806", &[("a", "9223372036854775808")]));
    }

    #[test]
    fn refuses_in_the_words_of_kube_apiserver() {
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
                    "unable to parse requirement: values[0][set]: Invalid value: \"{long}\": must be no more than 63 characters"
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
            ("a in (,,)", "unable to parse requirement: found ')', expected: ',', or identifier".to_owned()),
            ("a in (=)", "unable to parse requirement: found '=', expected: ',', ')' or identifier".to_owned()),
        ] {
            assert_eq!(refusal(text), message, "{text}");
        }
    }

    /// Values stand in one text; of a random choice of them each is found in it, and no other.
    #[test]
    fn a_value_is_found_among_many() {
        let mut rng = fastrand::Rng::with_seed(5);
        let pool: Vec<String> = [""].iter().map(ToString::to_string).chain((0..300).map(|i| i.to_string())).collect();
        for _ in 0..300 {
            let bound = rng.usize(1..=pool.len());
            let mut chosen: BTreeSet<&str> =
                pool.iter().filter(|_| rng.usize(..pool.len()) < bound).map(|v| &**v).collect();
            if chosen.is_empty() {
                chosen.insert("7");
            }
            let text = chosen.iter().copied().collect::<Vec<_>>().join(",");
            let (among, not) = (format!("a in ({text})"), format!("a notin ({text})"));
            let parse = |text: &str| LabelSelector::parse(text).expect(text);
            let (among, not) = (parse(&among), parse(&not));
            for value in &pool {
                let labels = labels(&[("a", value)]);
                assert_eq!(among.matches(&labels), chosen.contains(&**value), "{value:?} in {text}");
                assert_ne!(not.matches(&labels), among.matches(&labels), "{value:?} in {text}");
            }
        }
    }

    /// A watch keeps its selector: what that holds is not to be many times what was sent.
    #[test]
    fn a_selector_takes_little_more_than_its_text() {
        let values = (0..2000).map(|value| value.to_string()).collect::<Vec<_>>().join(",");
        for (text, times) in [
            ("!a,".repeat(10_000) + "b", 3),
            ("a>1,".repeat(8_000) + "b", 3),
            ("a=b,".repeat(8_000) + "b", 3),
            ("node-role.kubernetes.io/worker,".repeat(1_000) + "b", 2),
            (format!("a in ({values})"), 1),
        ] {
            let selector = LabelSelector::parse(&text).expect("a selector");
            let bytes = size_of_val(&*selector.text) + size_of_val(&*selector.requirements);
            assert!(bytes <= times * text.len(), "{bytes} bytes of {} for {}…", text.len(), &text[..10]);
        }
    }

    #[test]
    fn a_nul_ends_a_token_and_where_one_could_begin_the_text() {
        assert!(matches("a=\0b", &[("a", "b")]));
        assert!(matches("a\0=b", &[("a", "b")]));
        assert_eq!(refusal("a,\0\0=b"), "found '', expected: identifier after ','");
        assert!(matches("a \0b", &[("a", "")]));
    }

    #[test]
    fn a_list_of_wrong_values_has_a_bounded_answer() {
        let values: Vec<String> = (0..10_000).map(|i| format!("-{i}")).collect();
        assert!(refusal(&format!("a in ({})", values.join(","))).len() < 64 * 1024);
    }

    /// Goal: no text makes the parser panic or run on. Method: every prefix of a rich selector, and random changes.
    #[test]
    fn no_text_panics() {
        let good = "in in (in,,x, notin), !b,c==,d!=e , example.com/f notin (), g>1,h<2,ü";
        for (end, _) in good.char_indices() {
            _ = LabelSelector::parse(&good[..end]);
        }
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
                _ = selector.matches(&labels(&[("a", "1")]));
            }
        }
    }

    /// Goal: parsing and matching agree with the definition. Method: random requirements, written as text and answered
    /// by a naive reading of the API's documentation, over random label sets.
    #[test]
    fn agrees_with_a_naive_matcher() {
        const KEYS: &[&str] = &["a", "b", "c"];
        const VALUES: &[&str] = &["", "1", "2", "x"];
        let mut rng = fastrand::Rng::with_seed(4);
        for _ in 0..50_000 {
            let mut pairs = Vec::new();
            for key in KEYS {
                if rng.bool() {
                    pairs.push((*key, VALUES[rng.usize(..VALUES.len())]));
                }
            }
            let mut texts = Vec::new();
            let mut expected = true;
            for _ in 0..rng.usize(..4) {
                let key = KEYS[rng.usize(..KEYS.len())];
                let value = pairs.iter().find(|(k, _)| *k == key).map(|(_, v)| *v);
                let of = VALUES[rng.usize(..VALUES.len())];
                let list: Vec<_> = (0..=rng.usize(..3)).map(|_| VALUES[rng.usize(..VALUES.len())]).collect();
                let number = rng.i64(0..3);
                let number_of = |v: Option<&str>| v.and_then(|v| v.parse::<i64>().ok());
                let (text, holds) = match rng.u8(..9) {
                    0 => (format!("{key}={of}"), value == Some(of)),
                    1 => (format!("{key} == {of}"), value == Some(of)),
                    2 => (format!("{key}!={of}"), value != Some(of)),
                    3 => (key.to_owned(), value.is_some()),
                    4 => (format!("!{key}"), value.is_none()),
                    5 => (format!("{key}>{number}"), number_of(value).is_some_and(|v| v > number)),
                    6 => (format!("{key}<{number}"), number_of(value).is_some_and(|v| v < number)),
                    // Three empty values in a row are an error of their own.
                    7 if !list.join(",").contains(",,") && list.join(",") != "," => {
                        (format!("{key} in ({})", list.join(",")), value.is_some_and(|v| list.contains(&v)))
                    }
                    8 if !list.join(",").contains(",,") && list.join(",") != "," => {
                        (format!("{key} notin ({})", list.join(",")), value.is_none_or(|v| !list.contains(&v)))
                    }
                    _ => continue,
                };
                texts.push(text);
                expected &= holds;
            }
            let text = texts.join(",");
            assert_eq!(matches(&text, &pairs), expected, "{text} on {pairs:?}");
        }
    }
}
