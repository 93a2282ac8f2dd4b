//! Symbols for values that differ from server to server.
//!
//! ```text
//! ${uid:N} ${name:N} ${continue:N}   equal symbols have equal values, and different ones different values
//! ${rv:N}                            an object's resourceVersion; a greater N is a greater number
//! ${listrv:N}                        a list's or a bookmark's resourceVersion; a list's is not below any earlier ${rv}
//! ${time}                            any RFC 3339 time in whole seconds
//! ${age}                             a Table's age cell: 5s, 3m12s
//! ```

use serde_json::Value;
use std::collections::BTreeMap;
use std::fmt;

/// Kind of a symbol.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Kind {
    /// A continue token.
    Continue,
    /// The resourceVersion of a list or a bookmark.
    ListVersion,
    /// A generated name.
    Name,
    /// A UID.
    Uid,
    /// The resourceVersion of an object.
    Version,
}

/// A numbered symbol.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Symbol {
    /// Kind of the symbol.
    pub(crate) kind: Kind,
    /// Number within the kind.
    pub(crate) number: u32,
}

impl Symbol {
    /// Parses `text` if it is exactly one symbol.
    pub(crate) fn parse(text: &str) -> Option<Self> {
        let (kind, number) = text.strip_prefix("${")?.strip_suffix('}')?.split_once(':')?;
        let kind = match kind {
            "continue" => Kind::Continue,
            "listrv" => Kind::ListVersion,
            "name" => Kind::Name,
            "uid" => Kind::Uid,
            "rv" => Kind::Version,
            _ => return None,
        };
        Some(Self { kind, number: number.parse().ok()? })
    }
}

impl fmt::Display for Symbol {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kind = match self.kind {
            Kind::Continue => "continue",
            Kind::ListVersion => "listrv",
            Kind::Name => "name",
            Kind::Uid => "uid",
            Kind::Version => "rv",
        };
        write!(f, "${{{kind}:{}}}", self.number)
    }
}

/// The symbols so far, with their values in this replay.
#[derive(Debug, Default)]
pub(crate) struct Bindings(BTreeMap<Symbol, String>);

/// Place of a value in a trace. It decides whether a list's version may be older than known versions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Place {
    /// The response to a request, which shows the current versions.
    Answer,
    /// The events of a stream, which are read later than they arrived.
    Events,
}

impl Bindings {
    /// Binds `symbol` to the value `got`, or checks its earlier value.
    ///
    /// # Errors
    /// The contradiction, in a line.
    pub(crate) fn bind(&mut self, symbol: Symbol, got: &str, place: Place) -> Result<(), String> {
        if let Some(value) = self.0.get(&symbol) {
            return if value == got { Ok(()) } else { Err(format!("{symbol} was {value}, now {got}")) };
        }
        match symbol.kind {
            Kind::Version | Kind::ListVersion => self.check_order(symbol, got, place)?,
            Kind::Continue | Kind::Name | Kind::Uid => {
                if let Some((other, _)) = self.0.iter().find(|(_, value)| *value == got) {
                    return Err(format!("{symbol} repeats {other}: {got}"));
                }
            }
        }
        self.0.insert(symbol, got.to_owned());
        Ok(())
    }

    /// Checks a version against the versions of objects that are bound so far. An object's version must be above those
    /// whose symbols have lower numbers, and below the others. The version of a list in a response must not be below
    /// any of them.
    fn check_order(&self, symbol: Symbol, got: &str, place: Place) -> Result<(), String> {
        let version: u64 = got.parse().map_err(|_| format!("{got:?} is not a resourceVersion"))?;
        for (other, value) in self.0.iter().filter(|(other, _)| other.kind == Kind::Version) {
            let known: u64 = value.parse().expect("only numbers are bound to versions");
            let in_order = if symbol.kind == Kind::Version {
                (other.number < symbol.number) == (known < version) && known != version
            } else {
                place == Place::Events || known <= version
            };
            if !in_order {
                return Err(format!("{symbol}={got} is out of order with {other}={value}"));
            }
        }
        Ok(())
    }

    /// Replaces the symbols in `text` by their values. Symbols without a value stay.
    pub(crate) fn fill(&self, text: &str) -> String {
        let mut filled = String::with_capacity(text.len());
        let mut rest = text;
        while let Some(start) = rest.find("${") {
            let (before, from_symbol) = rest.split_at(start);
            filled.push_str(before);
            let length = from_symbol.find('}').map_or(from_symbol.len(), |end| end + 1);
            let (symbol, after) = from_symbol.split_at(length);
            let value = Symbol::parse(symbol).and_then(|symbol| self.0.get(&symbol));
            filled.push_str(value.map_or(symbol, String::as_str));
            rest = after;
        }
        filled.push_str(rest);
        filled
    }

    /// Replaces the symbols in all strings of `value`, keys included.
    pub(crate) fn fill_value(&self, value: &Value) -> Value {
        match value {
            Value::String(text) => Value::String(self.fill(text)),
            Value::Array(items) => items.iter().map(|item| self.fill_value(item)).collect(),
            Value::Object(members) => {
                members.iter().map(|(key, member)| (self.fill(key), self.fill_value(member))).collect()
            }
            Value::Null | Value::Bool(_) | Value::Number(_) => value.clone(),
        }
    }
}

/// Whether `text` is `YYYY-MM-DDTHH:MM:SSZ`.
pub(crate) fn is_time(text: &str) -> bool {
    const SHAPE: &[u8] = b"0000-00-00T00:00:00Z";
    text.len() == SHAPE.len()
        && text
            .bytes()
            .zip(SHAPE)
            .all(|(byte, shape)| if *shape == b'0' { byte.is_ascii_digit() } else { byte == *shape })
}

/// Whether `text` is a duration in kubectl's form: numbers with units.
pub(crate) fn is_age(text: &str) -> bool {
    let parts: Vec<&str> = text.split_inclusive(|c: char| !c.is_ascii_digit()).collect();
    !parts.is_empty() && parts.iter().all(|part| part.len() > 1 && part.ends_with(['s', 'm', 'h', 'd', 'y']))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bound(pairs: &[(&str, &str)]) -> Bindings {
        let mut bindings = Bindings::default();
        for (symbol, value) in pairs {
            bindings.bind(Symbol::parse(symbol).unwrap(), value, Place::Answer).unwrap();
        }
        bindings
    }

    fn refusal(pairs: &[(&str, &str)], symbol: &str, value: &str, place: Place) -> Option<String> {
        bound(pairs).bind(Symbol::parse(symbol).unwrap(), value, place).err()
    }

    #[test]
    fn symbols_print_as_they_are_parsed() {
        for text in ["${uid:1}", "${name:12}", "${continue:3}", "${rv:4}", "${listrv:5}"] {
            assert_eq!(Symbol::parse(text).unwrap().to_string(), text);
        }
        for text in ["${time}", "${age:1}", "a ${uid:1}", "${uid:}", "${uid:1", ""] {
            assert_eq!(Symbol::parse(text), None, "{text}");
        }
    }

    #[test]
    fn a_symbol_has_one_value() {
        assert_eq!(refusal(&[("${uid:1}", "a")], "${uid:1}", "a", Place::Answer), None);
        assert!(refusal(&[("${uid:1}", "a")], "${uid:1}", "b", Place::Answer).unwrap().contains("was a, now b"));
    }

    #[test]
    fn different_symbols_have_different_values() {
        for (one, other) in [("${uid:1}", "${uid:2}"), ("${continue:1}", "${continue:2}"), ("${name:1}", "${uid:1}")] {
            assert!(refusal(&[(one, "a")], other, "a", Place::Answer).unwrap().contains("repeats"), "{one} {other}");
        }
    }

    #[test]
    fn versions_increase_with_their_symbol_numbers() {
        let known = [("${rv:2}", "200")];
        assert_eq!(refusal(&known, "${rv:3}", "201", Place::Answer), None);
        assert_eq!(refusal(&known, "${rv:1}", "199", Place::Answer), None);
        for (symbol, value) in [("${rv:3}", "199"), ("${rv:3}", "200"), ("${rv:1}", "201"), ("${rv:1}", "200")] {
            let refused = refusal(&known, symbol, value, Place::Answer).unwrap();
            assert!(refused.contains("out of order"), "{symbol}={value}: {refused}");
        }
        assert!(refusal(&known, "${rv:3}", "x", Place::Answer).unwrap().contains("is not a resourceVersion"));
    }

    #[test]
    fn a_list_is_not_older_than_known_versions_but_a_late_bookmark_may_be() {
        let known = [("${rv:1}", "100")];
        assert_eq!(refusal(&known, "${listrv:1}", "100", Place::Answer), None);
        assert!(refusal(&known, "${listrv:1}", "99", Place::Answer).unwrap().contains("out of order"));
        assert_eq!(refusal(&known, "${listrv:1}", "99", Place::Events), None);
        // Lists of the same state have the same version.
        assert_eq!(refusal(&[("${listrv:1}", "100")], "${listrv:2}", "100", Place::Answer), None);
    }

    #[test]
    fn known_symbols_are_replaced_anywhere_in_a_value() {
        let bindings = bound(&[("${uid:1}", "u"), ("${rv:1}", "7")]);
        let filled =
            bindings.fill_value(&serde_json::json!({"a${uid:1}": ["${rv:1}${rv:2} (${rv:1})", 1, "${", null]}));
        assert_eq!(filled, serde_json::json!({"au": ["7${rv:2} (7)", 1, "${", null]}));
    }

    #[test]
    fn times_and_ages_are_recognized() {
        assert!(is_time("2026-01-02T03:04:05Z"));
        for text in ["2026-01-02T03:04:05.1Z", "2026-01-02 03:04:05Z", "", "2026-01-02T03:04:05"] {
            assert!(!is_time(text), "{text}");
        }
        assert!(is_age("5s") && is_age("3m12s"));
        for text in ["", "s", "5", "5s3", "5x", "<unknown>"] {
            assert!(!is_age(text), "{text}");
        }
    }
}
