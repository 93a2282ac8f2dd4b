//! Field selectors, which select Leases by the two fields that objects of every namespaced resource have:
//! `metadata.name` and `metadata.namespace`.
//!
//! kube-apiserver first parses the syntax of a field selector, then validates the other options of the request, and
//! last checks the fields of the selector. This module has two steps too: [`FieldTerms`] is the result of the first. So
//! if a request has several mistakes, this server reports the same mistake as kube-apiserver.

use crate::api_error::ApiError;
use crate::go::quote::go_quoted;
use compact_str::CompactString;
use std::borrow::Cow;

/// A field selector: a list of terms. A Lease is selected if all terms match it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FieldSelector {
    /// Terms of the selector, sorted by their text as in kube-apiserver.
    terms: Box<[FieldTerm]>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct FieldTerm {
    field: Field,
    /// Whether the field must equal the value. Otherwise the field must differ from the value.
    equal: bool,
    value: CompactString,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Field {
    Name,
    Namespace,
}

impl FieldSelector {
    /// Parses a selector such as `metadata.name=a,metadata.namespace!=b`. `==` means the same as `=`. In a value, `\`
    /// escapes `,`, `=` and `\`.
    ///
    /// # Errors
    /// [`ApiError::BadRequest`] for a malformed term and for an unknown field.
    pub fn parse(text: &str) -> Result<Self, ApiError> {
        FieldTerms::parse(text)?.into_selector()
    }

    /// Whether the selector selects a Lease with this namespace and name.
    #[must_use]
    pub fn matches(&self, namespace: &str, name: &str) -> bool {
        self.terms.iter().all(|term| {
            let found = match term.field {
                Field::Name => name,
                Field::Namespace => namespace,
            };
            (term.value == found) == term.equal
        })
    }

    /// Returns the number of terms: the most comparisons for one Lease.
    #[must_use]
    pub fn terms(&self) -> usize {
        self.terms.len()
    }

    /// Whether the selector selects every Lease.
    #[must_use]
    pub fn is_everything(&self) -> bool {
        self.terms.is_empty()
    }

    /// Returns the name that all selected Leases have; `None` if they may have different names. If the path or the
    /// selector also requires a namespace, the caller looks up this one Lease and searches no others.
    #[must_use]
    pub fn required_name(&self) -> Option<&str> {
        self.required(Field::Name)
    }

    /// Returns the namespace that all selected Leases have; `None` if they may have different namespaces.
    #[must_use]
    pub fn required_namespace(&self) -> Option<&str> {
        self.required(Field::Namespace)
    }

    fn required(&self, field: Field) -> Option<&str> {
        self.terms.iter().find(|term| term.field == field && term.equal).map(|term| term.value.as_str())
    }
}

/// The terms of a field selector with correct syntax. The names of the fields are not checked yet.
#[derive(Debug)]
pub struct FieldTerms<'a> {
    /// For each term: the name of the field, whether the field must equal the value, and the unescaped value.
    terms: Vec<(&'a str, bool, Cow<'a, str>)>,
}

impl<'a> FieldTerms<'a> {
    /// Splits the text of a selector into terms.
    ///
    /// # Errors
    /// [`ApiError::BadRequest`] for a term without an operator, and for an invalid escape. If several terms have
    /// errors, the error is about the term whose text sorts first.
    pub fn parse(text: &'a str) -> Result<Self, ApiError> {
        let mut parts = split_terms(text);
        parts.sort_unstable();
        let mut terms = Vec::with_capacity(parts.len());
        for part in parts {
            if part.is_empty() {
                continue;
            }
            let Some((field, equal, value)) = split_term(part) else {
                return Err(bad_request(format!("invalid selector: '{text}'; can't understand '{part}'")));
            };
            let value = unescaped(value)?;
            // A term with an empty field and an empty value selects every Lease, so it is omitted.
            if !(field.is_empty() && value.is_empty()) {
                terms.push((field, equal, value));
            }
        }
        Ok(Self { terms })
    }

    /// Checks the fields of the terms, and converts the terms to a selector.
    ///
    /// # Errors
    /// [`ApiError::BadRequest`] for a field other than `metadata.name` and `metadata.namespace`.
    pub fn into_selector(self) -> Result<FieldSelector, ApiError> {
        let term = |(field, equal, value): (&str, bool, Cow<'_, str>)| {
            let field = match field {
                "metadata.name" => Field::Name,
                "metadata.namespace" => Field::Namespace,
                unknown => {
                    return Err(bad_request(format!(
                        "{} is not a known field selector: only \"metadata.name\", \"metadata.namespace\"",
                        go_quoted(unknown)
                    )));
                }
            };
            Ok(FieldTerm { field, equal, value: CompactString::from(value) })
        };
        let terms = self.terms.into_iter().map(term).collect::<Result<_, _>>()?;
        Ok(FieldSelector { terms })
    }
}

/// Splits the text of a selector at each comma, except a comma after a backslash.
fn split_terms(text: &str) -> Vec<&str> {
    let mut escaped = false;
    let at_comma = |c: char| {
        let splits = c == ',' && !escaped;
        escaped = c == '\\' && !escaped;
        splits
    };
    text.split(at_comma).collect()
}

/// Splits a term at its first operator. Returns the field, whether the field must equal the value, and the value.
fn split_term(term: &str) -> Option<(&str, bool, &str)> {
    let at = term
        .bytes()
        .zip(term.bytes().skip(1).chain([0]))
        .position(|(b, next)| b == b'=' || (b == b'!' && next == b'='))?;
    let (field, rest) = term.split_at(at);
    let equal = !rest.starts_with('!');
    let value = rest.strip_prefix("!=").or_else(|| rest.strip_prefix("==")).or_else(|| rest.strip_prefix('='))?;
    Some((field, equal, value))
}

/// Removes the escapes from `value`.
fn unescaped(value: &str) -> Result<Cow<'_, str>, ApiError> {
    if !value.contains(['\\', ',', '=']) {
        return Ok(Cow::Borrowed(value));
    }
    let mut out = String::with_capacity(value.len());
    let mut chars = value.chars();
    while let Some(c) = chars.next() {
        match c {
            '\\' => match chars.next() {
                Some(c @ ('\\' | ',' | '=')) => out.push(c),
                Some(c) => return Err(bad_escape(&format!("\\{c}"))),
                None => return Err(bad_escape("\\")),
            },
            // Like Go, prints the unescaped character as a number.
            ',' | '=' => {
                let message = format!("invalid field selector: unescaped character in value: {}", u32::from(c));
                return Err(bad_request(message));
            }
            c => out.push(c),
        }
    }
    Ok(Cow::Owned(out))
}

#[cold]
fn bad_escape(sequence: &str) -> ApiError {
    bad_request(format!("invalid field selector: invalid escape sequence: {sequence}"))
}

#[cold]
fn bad_request(message: String) -> ApiError {
    ApiError::BadRequest { message }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refusal(text: &str) -> String {
        match FieldSelector::parse(text) {
            Err(ApiError::BadRequest { message }) => message,
            other => panic!("{text}: {other:?}"),
        }
    }

    fn matches(text: &str, namespace: &str, name: &str) -> bool {
        FieldSelector::parse(text).expect(text).matches(namespace, name)
    }

    #[test]
    fn terms_without_key_and_value_select_everything() {
        for text in ["=", "==", "!=", "=,!=", ","] {
            assert!(FieldSelector::parse(text).expect(text).is_everything(), "{text}");
        }
        assert!(FieldSelector::parse("=a").is_err());
    }

    #[test]
    fn selects_by_name_and_namespace() {
        assert!(matches("metadata.name=b1", "ns", "b1") && !matches("metadata.name=b1", "ns", "b2"));
        assert!(matches("metadata.name==b1", "ns", "b1") && !matches("metadata.name==b1", "ns", "b2"));
        assert!(matches("metadata.name!=b1", "ns", "b2") && !matches("metadata.name!=b1", "ns", "b1"));
        assert!(matches("metadata.namespace=ns", "ns", "a") && !matches("metadata.namespace=ns", "other", "a"));
        assert!(matches("metadata.name=b1,metadata.namespace=ns", "ns", "b1"));
        assert!(!matches("metadata.name=b1,metadata.namespace=ns", "other", "b1"));
        assert!(!matches("metadata.name=", "ns", "b1"));
        assert!(!matches("metadata.name=a,metadata.name=b", "ns", "a"));
    }

    #[test]
    fn empty_terms_select_everything() {
        for text in ["", ",", ",,,"] {
            assert!(FieldSelector::parse(text).expect(text).is_everything(), "{text}");
        }
    }

    #[test]
    fn exact_terms_are_required_and_others_are_not() {
        let selector = FieldSelector::parse("metadata.namespace=ns,metadata.name!=x").expect("a selector");
        assert_eq!((selector.required_namespace(), selector.required_name()), (Some("ns"), None));
        let selector = FieldSelector::parse("metadata.name=b,metadata.name=a").expect("a selector");
        assert_eq!(selector.required_name(), Some("a"), "terms are kept in the order of their text");
        assert!(!selector.is_everything());
    }

    #[test]
    fn invalid_selectors_get_the_errors_of_kube_apiserver() {
        let unknown = |field| {
            format!("\"{field}\" is not a known field selector: only \"metadata.name\", \"metadata.namespace\"")
        };
        assert_eq!(refusal("spec.holderIdentity=node-a"), unknown("spec.holderIdentity"));
        assert_eq!(refusal("metadata.uid=x"), unknown("metadata.uid"));
        assert_eq!(refusal("spec.x=1"), unknown("spec.x"));
        assert_eq!(refusal("=x"), unknown(""));
        assert_eq!(refusal("nonsense"), "invalid selector: 'nonsense'; can't understand 'nonsense'");
        assert_eq!(refusal("b,metadata.name=x,a"), "invalid selector: 'b,metadata.name=x,a'; can't understand 'a'");
        assert_eq!(refusal("a!b"), "invalid selector: 'a!b'; can't understand 'a!b'");
    }

    #[test]
    fn a_syntax_error_is_reported_before_an_unknown_field() {
        assert_eq!(refusal("a.b=c,nonsense"), "invalid selector: 'a.b=c,nonsense'; can't understand 'nonsense'");
    }

    #[test]
    fn values_are_unescaped() {
        assert!(matches(r"metadata.name=a\,b\=c\\d", "", r"a,b=c\d"));
        assert!(matches(r"metadata.name=\,,metadata.namespace=\\", r"\", ","));
        assert_eq!(refusal(r"metadata.name=\a"), r"invalid field selector: invalid escape sequence: \a");
        assert_eq!(refusal(r"metadata.name=a\"), r"invalid field selector: invalid escape sequence: \");
        assert_eq!(refusal("metadata.name=a=b"), "invalid field selector: unescaped character in value: 61");
        assert_eq!(refusal("metadata.name===b"), "invalid field selector: unescaped character in value: 61");
    }

    #[test]
    fn no_text_panics() {
        let good = r"metadata.name!=a\,b,metadata.namespace==ünï\\,metadata.name=c";
        for (end, _) in good.char_indices() {
            _ = FieldSelector::parse(&good[..end]);
        }
        const ALPHABET: &[char] = &['m', '=', '!', ',', '\\', 'é', '\0', '.'];
        let mut rng = fastrand::Rng::with_seed(3);
        for _ in 0..100_000 {
            let mut text: Vec<char> = if rng.bool() { good.chars().collect() } else { Vec::new() };
            for _ in 0..rng.usize(..8) {
                let at = rng.usize(..=text.len());
                text.insert(at, ALPHABET[rng.usize(..ALPHABET.len())]);
            }
            let text: String = text.into_iter().collect();
            if let Ok(selector) = FieldSelector::parse(&text) {
                _ = selector.matches("ns", "n");
            }
        }
    }
}
