//! The query component of a request's URL, decoded like Go's `url.ParseQuery`.

use std::borrow::Cow;

/// The undecoded query component of a URL, without the `?`. [`Query::pairs`] and [`Query::value`] decode the query at
/// each call. The decoding allocates memory only for a name or value that contains `%` or `+`.
#[derive(Clone, Copy, Debug, Default)]
pub struct Query<'a> {
    raw: &'a str,
}

impl<'a> Query<'a> {
    /// Creates a query from the part of a URL between `?` and `#`.
    #[must_use]
    pub fn new(raw: &'a str) -> Self {
        Self { raw }
    }

    /// Whether the query component is empty, so that no parameter is present.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.raw.is_empty()
    }

    /// Returns the name and the value of each parameter, decoded, in the order of the URL. Omits a parameter that
    /// contains a `;` or a malformed percent-encoding. Invalid UTF-8 becomes U+FFFD.
    pub fn pairs(&self) -> impl Iterator<Item = (Cow<'a, str>, Cow<'a, str>)> + use<'a> {
        self.raw.split('&').filter(|pair| !pair.is_empty() && !pair.contains(';')).filter_map(|pair| {
            let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
            Some((decoded(name)?, decoded(value)?))
        })
    }

    /// Returns the value of the first parameter `name`; `None` if the query has no such parameter.
    #[must_use]
    pub fn value(&self, name: &str) -> Option<Cow<'a, str>> {
        self.pairs().find(|(found, _)| found == name).map(|(_, value)| value)
    }
}

/// Decodes each `+` to a space, and each `%` with two hexadecimal digits to a byte. Returns `None` if the digits are
/// missing.
fn decoded(text: &str) -> Option<Cow<'_, str>> {
    if !text.bytes().any(|b| b == b'%' || b == b'+') {
        return Some(Cow::Borrowed(text));
    }
    let mut out = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((&first, after)) = rest.split_first() {
        rest = after;
        match first {
            b'+' => out.push(b' '),
            b'%' => {
                let &[high, low, ref after @ ..] = after else { return None };
                out.push(hex_digit(high)? << 4 | hex_digit(low)?);
                rest = after;
            }
            byte => out.push(byte),
        }
    }
    let text = String::from_utf8(out).unwrap_or_else(|bad| String::from_utf8_lossy(bad.as_bytes()).into_owned());
    Some(Cow::Owned(text))
}

fn hex_digit(byte: u8) -> Option<u8> {
    char::from(byte).to_digit(16).and_then(|digit| u8::try_from(digit).ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pairs(raw: &str) -> Vec<(String, String)> {
        Query::new(raw).pairs().map(|(name, value)| (name.into_owned(), value.into_owned())).collect()
    }

    fn pair(name: &str, value: &str) -> (String, String) {
        (name.to_owned(), value.to_owned())
    }

    #[test]
    fn pairs_come_decoded_and_in_order() {
        assert_eq!(
            pairs("a=1&b=x+y&c=%2F%e2%82%ac&a=2"),
            [pair("a", "1"), pair("b", "x y"), pair("c", "/€"), pair("a", "2")]
        );
        assert_eq!(pairs("a&b=&=c&d==e"), [pair("a", ""), pair("b", ""), pair("", "c"), pair("d", "=e")]);
        assert_eq!(pairs("%61=%3D%26"), [pair("a", "=&")]);
        assert!(pairs("").is_empty() && pairs("&&").is_empty());
    }

    #[test]
    fn broken_pairs_are_dropped_alone() {
        assert_eq!(pairs("a=%&b=%2&c=%zz&d=1;e=2&%g0=1&f=1"), [pair("f", "1")]);
    }

    #[test]
    fn bytes_that_are_no_text_are_replaced() {
        assert_eq!(pairs("a=%ff"), [pair("a", "\u{fffd}")]);
    }

    #[test]
    fn the_first_value_is_found() {
        let query = Query::new("a=1&b=2&a=3");
        assert_eq!(query.value("a").as_deref(), Some("1"));
        assert_eq!(query.value("c"), None);
        assert!(!query.is_empty() && Query::default().is_empty());
    }

    #[test]
    fn plain_text_is_borrowed() {
        assert!(
            Query::new("watch=true")
                .pairs()
                .all(|(name, value)| { matches!((name, value), (Cow::Borrowed(_), Cow::Borrowed(_))) })
        );
    }

    #[test]
    fn no_text_panics() {
        const ALPHABET: &[char] = &['a', '=', '&', '%', '2', 'f', '+', ';', 'é'];
        let mut rng = fastrand::Rng::with_seed(5);
        for _ in 0..100_000 {
            let text: String = (0..rng.usize(..12)).map(|_| ALPHABET[rng.usize(..ALPHABET.len())]).collect();
            _ = pairs(&text);
        }
    }
}
