//! Parses the header fields `Accept` and `Content-Type`, with the grammar of the Go libraries that kube-apiserver uses,
//! `goautoneg` and `mime`.

/// A media range of an `Accept` field.
#[derive(Clone, Copy, Debug)]
pub(super) struct Range<'a> {
    pub(super) main_type: &'a [u8],
    pub(super) subtype: &'a [u8],
    quality: f32,
    parameters: &'a [u8],
}

impl<'a> Range<'a> {
    /// Parses one media range; `None` if the range is malformed.
    fn parse(text: &'a [u8]) -> Option<Self> {
        let (media_type, parameters) = split(trimmed(text), b';');
        let (main_type, rest) = split(media_type, b'/');
        let main_type = trimmed(main_type);
        let subtype = match (main_type, split(rest, b'/')) {
            (b"*", (b"", b"")) if rest.is_empty() => b"*",
            (_, (subtype, b"")) if !rest.is_empty() => trimmed(subtype),
            _ => return None,
        };
        let mut range = Self { main_type, subtype, quality: 1.0, parameters };
        for (name, value) in pairs(parameters) {
            if name == b"q" {
                // As in Go, a quality that is not a number counts as 0. So does a number with a blank before it.
                let number = std::str::from_utf8(value).ok().and_then(|text| text.parse().ok());
                range.quality = number.unwrap_or(0.0);
            }
        }
        Some(range)
    }

    /// Returns the names and values of the range's parameters, except the quality.
    pub(super) fn parameters(&self) -> impl Iterator<Item = (&'a [u8], &'a [u8])> + use<'a> {
        pairs(self.parameters).filter(|(name, _)| name != b"q").map(|(name, value)| (name, trimmed(value)))
    }

    /// Whether this range is preferred to `other`. This relation is not an order: of two ranges, each may be preferred
    /// to the other. For example, `*/*` has a higher quality than `a/b;q=0.5`, but `a/b;q=0.5` is more specific.
    fn is_before(&self, other: &Self) -> bool {
        self.quality > other.quality
            || (self.main_type != b"*" && other.main_type == b"*")
            || (self.subtype != b"*" && other.subtype == b"*")
    }
}

/// Returns the ranges of an `Accept` field, with the most preferred range first.
pub(super) fn ranges(accept: &[u8]) -> Vec<Range<'_>> {
    let mut ranges: Vec<_> = accept.split(|byte| *byte == b',').filter_map(Range::parse).collect();
    if ranges.len() <= INSERTION_SORT_MAX {
        // Go sorts up to [`INSERTION_SORT_MAX`] ranges by insertion. The preference is not an order, so the sorting
        // algorithm decides the result.
        for end in 1..ranges.len() {
            for at in (1..=end).rev() {
                match ranges.get(at - 1..=at) {
                    Some([before, this]) if this.is_before(before) => ranges.swap(at - 1, at),
                    _ => break,
                }
            }
        }
    } else {
        // No real client sends this many ranges. So the result need not be Go's, but the sort must not take long.
        ranges.sort_by(|a, b| b.quality.total_cmp(&a.quality));
    }
    ranges
}

/// Maximum number of elements that Go's `sort.Sort` sorts by insertion.
const INSERTION_SORT_MAX: usize = 12;

/// Returns the names and values of the parameters, which are separated by semicolons. Omits a parameter without a value
/// or with two values.
fn pairs(parameters: &[u8]) -> impl Iterator<Item = (&[u8], &[u8])> {
    parameters.split(|byte| *byte == b';').filter_map(|parameter| {
        let (name, rest) = split(parameter, b'=');
        let (value, more) = split(rest, b'=');
        (!rest.is_empty() && more.is_empty()).then(|| (trimmed(name), value))
    })
}

/// Splits a text at the first `separator`. The second part is empty without a `separator`.
fn split(text: &[u8], separator: u8) -> (&[u8], &[u8]) {
    let mut parts = text.splitn(2, |byte| *byte == separator);
    (parts.next().unwrap_or_default(), parts.next().unwrap_or_default())
}

/// Removes spaces at both ends of a text, but no other white space.
pub(super) fn trimmed(text: &[u8]) -> &[u8] {
    let start = text.iter().position(|byte| *byte != b' ').unwrap_or(text.len());
    let end = text.iter().rposition(|byte| *byte != b' ').map_or(start, |at| at + 1);
    text.get(start..end).unwrap_or_default()
}

/// Whether the parameters of a `Content-Type` are well-formed: each value is a token or a quoted string, and no name
/// has two different values (RFC 9110 §5.6.6).
pub(super) fn are_parameters(text: &[u8]) -> bool {
    let mut seen: Vec<(Vec<u8>, Vec<u8>)> = Vec::new();
    let mut rest = text.trim_ascii_start();
    while !rest.is_empty() {
        let Some(after) = rest.strip_prefix(b";") else { return false };
        let (name, after) = token(after.trim_ascii_start());
        if name.is_empty() {
            // A semicolon after the last parameter is allowed.
            return after.is_empty();
        }
        let Some(after) = after.trim_ascii_start().strip_prefix(b"=") else { return false };
        let Some((value, after)) = value(after.trim_ascii_start()) else { return false };
        let name = name.to_ascii_lowercase();
        if seen.len() >= PARAMETERS_MAX || seen.iter().any(|(known, other)| *known == name && *other != value) {
            return false;
        }
        seen.push((name, value));
        rest = after.trim_ascii_start();
    }
    true
}

/// Maximum number of parameters of a `Content-Type`. No real client sends more than two.
const PARAMETERS_MAX: usize = 32;

/// Characters that cannot be part of a token.
const SPECIALS: &[u8] = b"()<>@,;:\\\"/[]?=";

fn token(text: &[u8]) -> (&[u8], &[u8]) {
    let is_token = |byte: &u8| byte.is_ascii_graphic() && !SPECIALS.contains(byte);
    let end = text.iter().position(|byte| !is_token(byte)).unwrap_or(text.len());
    text.split_at_checked(end).unwrap_or((text, &[]))
}

/// Parses a token or a quoted string at the start of `text`. Returns the token or the content of the string, and the
/// rest of `text`. Returns `None` if `text` begins with neither.
fn value(text: &[u8]) -> Option<(Vec<u8>, &[u8])> {
    let Some(quoted) = text.strip_prefix(b"\"") else {
        let (value, after) = token(text);
        return (!value.is_empty()).then(|| (value.to_vec(), after));
    };
    let mut value = Vec::new();
    let mut bytes = quoted.iter().enumerate();
    while let Some((at, byte)) = bytes.next() {
        match byte {
            // A backslash stands for itself if the next character needs no escape.
            b'\\' => match quoted.get(at + 1) {
                Some(next) if SPECIALS.contains(next) => {
                    value.extend(bytes.next().map(|(_, next)| *next));
                }
                _ => value.push(b'\\'),
            },
            b'"' => return Some((value, quoted.get(at + 1..)?)),
            b'\r' | b'\n' => return None,
            byte => value.push(*byte),
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    fn order(accept: &str) -> Vec<String> {
        let text = |range: &Range<'_>| {
            format!("{}/{}", String::from_utf8_lossy(range.main_type), String::from_utf8_lossy(range.subtype))
        };
        ranges(accept.as_bytes()).iter().map(text).collect()
    }

    #[test]
    fn ranges_are_sorted_by_quality_and_by_how_specific_they_are() {
        assert_eq!(order("a/a;q=0.5,b/b"), ["b/b", "a/a"]);
        assert_eq!(order("a/a , b/b"), ["a/a", "b/b"]);
        assert_eq!(order("*/*,a/*,a/a"), ["a/a", "a/*", "*/*"]);
        // A quality that is not a number counts as 0. Even a very small number is higher than 0.
        assert_eq!(order("a/a;q=x,b/b;q= 1,c/c;q=1e-9"), ["c/c", "a/a", "b/b"]);
        assert_eq!(order("*,a,a/b/c,,a/"), ["*/*"]);
    }

    #[test]
    fn parameters_are_pairs() {
        let ranges = ranges(b"a/a; as = Table ;x;y=;z=1=2;q=0.3; v=v1");
        let range = ranges.first().expect("a range");
        let found: Vec<_> = range.parameters().collect();
        assert_eq!(found, [(&b"as"[..], &b"Table"[..]), (b"v", b"v1")]);
        assert!((range.quality - 0.3).abs() < f32::EPSILON);
    }
}
