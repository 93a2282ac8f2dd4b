//! Label selectors: `app=web, tier in (a, b), !old, size>3`.
//!
//! This module stores a selector in memory, and matches it against labels. The module `parse` parses the text of a
//! selector.

mod parse;

use crate::api_error::ApiError;
use crate::go::number::parse_int;
use crate::lease::StringMap;
use std::cmp::Ordering;

/// A label selector: a list of requirements. An object is selected if its labels meet all requirements. A watch holds
/// its selector for as long as the watch lasts, and a request can have ten thousand requirements. So the selector
/// stores little more than its text: the keys and values of all requirements. In addition, it stores the rule of each
/// requirement, and the lengths of its key and values.
///
/// ```text
///   text:          app web,worker size 3 old          without the blanks
///   requirements:  In 3+10, GreaterThan 4+1, DoesNotExist 3+0          length of the key + length of the values
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LabelSelector {
    /// For each requirement: its key, and then its values separated by commas. No value contains a comma.
    text: Box<str>,
    requirements: Box<[Requirement]>,
}

/// A requirement on the label with one key. The text of the requirement follows the texts of the previous requirements
/// in `LabelSelector::text`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Requirement {
    rule: Rule,
    /// Length of the key, in bytes.
    key_len: u16,
    /// Length of the values with the commas between them, in bytes.
    values_len: u16,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Rule {
    DoesNotExist,
    Exists,
    /// The value of the label is a number greater than the only value of the requirement.
    GreaterThan,
    /// The value of the label is one of the requirement's values. There is at least one value, and the values are
    /// sorted.
    In,
    /// The value of the label is a number less than the only value of the requirement.
    LessThan,
    /// The label is absent, or its value is none of the requirement's values. There is at least one value, and the
    /// values are sorted.
    NotIn,
}

impl LabelSelector {
    /// Parses the text of a selector. An empty text selects every object.
    ///
    /// # Errors
    /// [`ApiError::BadRequest`] with kube-apiserver's message for the first mistake.
    pub fn parse(text: &str) -> Result<Self, ApiError> {
        let parsed = parse::parse(text).map_err(|message| ApiError::BadRequest { message })?;
        Ok(Self { text: parsed.text.into(), requirements: parsed.requirements.into() })
    }

    /// Whether the selector selects an object with these labels.
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

    /// Returns the number of requirements: the most checks for one object.
    #[must_use]
    pub fn terms(&self) -> usize {
        self.requirements.len()
    }

    /// Whether the selector selects every object.
    #[must_use]
    pub fn is_everything(&self) -> bool {
        self.requirements.is_empty()
    }
}

impl Rule {
    /// Whether a label meets the rule. `values` are the values of the requirement. `value` is the value of the label;
    /// `None` if the label is absent.
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

/// Whether `value` is one of `values`, which are sorted and separated by commas. The search is binary, since there may
/// be thousands of values.
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

/// A [`LabelSelector`] while it is being parsed.
#[derive(Default)]
struct Parsed {
    text: String,
    requirements: Vec<Requirement>,
}

impl Parsed {
    /// Adds a requirement on `key`.
    fn push(&mut self, key: &str, rule: Rule, values: &[&str]) -> Result<(), String> {
        self.text.push_str(key);
        let values_start = self.text.len();
        for (at, value) in values.iter().enumerate() {
            if at > 0 {
                self.text.push(',');
            }
            self.text.push_str(value);
        }
        // The lengths fit in 16 bits, since path and query of a request have at most 32 KiB (`TARGET_BYTES_MAX`).
        let len = |bytes: usize| u16::try_from(bytes).map_err(|_| "too long".to_owned());
        let (key_len, values_len) = (len(key.len())?, len(self.text.len() - values_start)?);
        self.requirements.push(Requirement { rule, key_len, values_len });
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    fn labels(pairs: &[(&str, &str)]) -> StringMap {
        pairs.iter().map(|&(key, value)| (key.into(), value.into())).collect()
    }

    fn matches(text: &str, pairs: &[(&str, &str)]) -> bool {
        LabelSelector::parse(text).expect(text).matches(&labels(pairs))
    }

    /// The Leases and most selectors are those of the conformance trace, a recording of kube-apiserver's responses.
    /// Each selector has the names of the Leases that it selects.
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
                && matches("a in (,,)", &[("a", "")])
                && matches("a in (b,,)", &[("a", "")])
        );
        assert!(!matches("a!=", &[("a", "")]) && !matches("a notin ()", &[("a", "")]));
        assert!(matches("a=,b=1", &[("a", ""), ("b", "1")]));
    }

    #[test]
    fn in_and_notin_may_be_keys_and_values() {
        assert!(matches("in in (in, notin)", &[("in", "notin")]));
        assert!(matches("notin", &[("notin", "")]));
        assert!(matches("a=in", &[("a", "in")]));
    }

    #[test]
    fn gt_and_lt_compare_integers_and_skip_other_values() {
        assert!(matches("a>09", &[("a", "10")]) && !matches("a>9", &[("a", "x")]) && !matches("a<9", &[("a", "")]));
        assert!(!matches("a>9223372036854775806", &[("a", "9223372036854775808")]));
    }

    /// Goal: the binary search finds exactly the values of a list. Method: match each of 301 values against random
    /// lists.
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

    /// A watch holds its selector for as long as the watch lasts. So the memory of a selector must not be many times
    /// its text.
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

    /// Goal: parser and matcher agree with the definition of label selectors. Method: write random requirements as
    /// text, and match random label sets. A naive matcher that follows the API's documentation gives the expected
    /// results.
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
                    // This test leaves out the list `,`, and lists with two commas in a row, which
                    // `an_empty_value_is_a_value` covers.
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
