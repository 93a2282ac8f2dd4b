//! Formats of names, label keys and label values, with kube-apiserver's messages for violations.
//!
//! A function `*_complaints` returns the reasons why an input does not have the format. Kubernetes defines the formats
//! by regular expressions ("Object Names and IDs", "Labels and Selectors"). This module scans bytes instead, since
//! every allowed character is ASCII.

/// Maximum length of a DNS subdomain (RFC 1123), in bytes.
const SUBDOMAIN_BYTES_MAX: usize = 253;
/// Maximum length of a DNS label, of the name part of a qualified name, and of a label value, in bytes.
const LABEL_BYTES_MAX: usize = 63;

const SUBDOMAIN_MESSAGE: &str = "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must start and end with an alphanumeric character (e.g. 'example.com', regex used for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')";
const LABEL_MESSAGE: &str = "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must start and end with an alphanumeric character (e.g. 'my-name',  or '123-abc', regex used for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?')";
const QUALIFIED_NAME_MESSAGE: &str = "must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')";
const LABEL_VALUE_MESSAGE: &str = "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character (e.g. 'MyValue',  or 'my_value',  or '12345', regex used for validation is '(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?')";

/// Whether `name` is a DNS subdomain (RFC 1123), as the name of a Lease must be.
#[must_use]
pub fn is_dns_subdomain(name: &[u8]) -> bool {
    dns_subdomain_complaints(name).is_empty()
}

/// Returns the reasons why `name` is not a DNS subdomain.
#[must_use]
pub fn dns_subdomain_complaints(name: &[u8]) -> Vec<String> {
    subdomain_complaints(name, too_long)
}

fn subdomain_complaints(name: &[u8], too_long: fn(usize) -> String) -> Vec<String> {
    let mut complaints = Vec::new();
    if name.len() > SUBDOMAIN_BYTES_MAX {
        complaints.push(too_long(SUBDOMAIN_BYTES_MAX));
    }
    if !has_subdomain_form(name) {
        complaints.push(SUBDOMAIN_MESSAGE.to_owned());
    }
    complaints
}

/// Whether `name` is a DNS label (RFC 1123), as the name of a namespace must be.
#[must_use]
pub fn is_dns_label(name: &[u8]) -> bool {
    dns_label_complaints(name).is_empty()
}

/// Returns the reasons why `name` is not a DNS label.
#[must_use]
pub fn dns_label_complaints(name: &[u8]) -> Vec<String> {
    let mut complaints = Vec::new();
    if name.len() > LABEL_BYTES_MAX {
        complaints.push(too_long(LABEL_BYTES_MAX));
    }
    if !has_label_form(name) {
        let only_dots = has_subdomain_form(name);
        complaints.push(if only_dots { "must not contain dots" } else { LABEL_MESSAGE }.to_owned());
    }
    complaints
}

/// Whether `key` is a qualified name, as label keys and finalizers must be.
#[must_use]
pub fn is_qualified_name(key: &str) -> bool {
    qualified_name_complaints(key).is_empty()
}

/// Returns the reasons why `key` is not an annotation key: a qualified name after its conversion to lower case.
#[must_use]
pub fn annotation_key_complaints(key: &str) -> Vec<String> {
    // Go converts one character to one lower-case character. Rust would convert U+0130 to two characters.
    let folded: String =
        key.chars().map(|c| if c == '\u{130}' { 'i' } else { c.to_lowercase().next().unwrap_or(c) }).collect();
    qualified_name_complaints(&folded)
}

/// Returns the reasons why `key` is not a qualified name.
#[must_use]
pub fn qualified_name_complaints(key: &str) -> Vec<String> {
    let mut complaints = Vec::new();
    let name = match key.split_once('/') {
        None => key,
        Some((_, rest)) if rest.contains('/') => {
            complaints.push(format!(
                "a valid label key {QUALIFIED_NAME_MESSAGE} with an optional DNS subdomain prefix and '/' (e.g. 'example.com/MyName')"
            ));
            return complaints;
        }
        Some(("", name)) => {
            complaints.push("prefix part must be non-empty".to_owned());
            name
        }
        Some((prefix, name)) => {
            let of_prefix = subdomain_complaints(prefix.as_bytes(), too_many_bytes);
            complaints.extend(of_prefix.into_iter().map(|complaint| format!("prefix part {complaint}")));
            name
        }
    };
    if name.is_empty() {
        complaints.push("name part must be non-empty".to_owned());
    } else if name.len() > LABEL_BYTES_MAX {
        complaints.push(format!("name part {}", too_many_bytes(LABEL_BYTES_MAX)));
    }
    if !has_name_form(name.as_bytes()) {
        complaints.push(format!("name part {QUALIFIED_NAME_MESSAGE}"));
    }
    complaints
}

/// Whether `value` is a valid label value.
#[must_use]
pub fn is_label_value(value: &str) -> bool {
    label_value_complaints(value).is_empty()
}

/// Returns the reasons why `value` is not a label value.
#[must_use]
pub fn label_value_complaints(value: &str) -> Vec<String> {
    let mut complaints = Vec::new();
    if value.len() > LABEL_BYTES_MAX {
        complaints.push(too_many_bytes(LABEL_BYTES_MAX));
    }
    if !value.is_empty() && !has_name_form(value.as_bytes()) {
        complaints.push(LABEL_VALUE_MESSAGE.to_owned());
    }
    complaints
}

/// Returns the reasons why `name` is not valid as a path segment. With `prefix`, `name` need only be valid as the
/// beginning of a path segment.
#[must_use]
pub fn path_segment_complaints(name: &str, prefix: bool) -> Vec<String> {
    if !prefix && (name == "." || name == "..") {
        return vec![format!("may not be '{name}'")];
    }
    let forbidden = ['/', '%'].into_iter().filter(|&c| name.contains(c));
    forbidden.map(|c| format!("may not contain '{c}'")).collect()
}

/// Returns the message about a name of an object or a namespace that is too long.
fn too_long(characters_max: usize) -> String {
    format!("must be no more than {characters_max} characters")
}

/// Returns the message about a label key (with its prefix) or a label value that is too long.
fn too_many_bytes(bytes_max: usize) -> String {
    format!("must be no more than {bytes_max} bytes")
}

/// Whether `name` is a list of DNS labels joined by dots, of any length.
fn has_subdomain_form(name: &[u8]) -> bool {
    name.split(|&b| b == b'.').all(has_label_form)
}

/// Whether `label` consists of lower-case letters, digits and inner dashes, of any length.
fn has_label_form(label: &[u8]) -> bool {
    let alphanumeric = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit();
    let (Some(&first), Some(&last)) = (label.first(), label.last()) else { return false };
    alphanumeric(first) && alphanumeric(last) && label.iter().all(|&b| alphanumeric(b) || b == b'-')
}

/// Whether `name` has the characters of the name part in a qualified name, of any length.
fn has_name_form(name: &[u8]) -> bool {
    let (Some(&first), Some(&last)) = (name.first(), name.last()) else { return false };
    let inner = |&b: &u8| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_' | b'.');
    first.is_ascii_alphanumeric() && last.is_ascii_alphanumeric() && name.iter().all(inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn formats_accept_what_kubernetes_accepts() {
        for name in ["a", "0", "a-b", "a.b", "a--b", "node-1.example.com", "1.2.3.4"] {
            assert!(is_dns_subdomain(name.as_bytes()), "{name}");
        }
        for name in ["", ".", "a.", ".a", "a..b", "-a", "a-", "a-.b", "A", "a_b", "é"] {
            assert!(!is_dns_subdomain(name.as_bytes()), "{name}");
        }
        for key in ["a", "A_b.c", "example.com/a", "a/b", "1/2"] {
            assert!(is_qualified_name(key), "{key}");
        }
        for key in ["", "/", "a/", "/a", "a/b/c", "Example.com/a", "a b", "_a", "a."] {
            assert!(!is_qualified_name(key), "{key}");
        }
        assert!(annotation_key_complaints("Example.com/A").is_empty());
        assert!(is_label_value("") && is_label_value("a_B.1") && !is_label_value("-a"));
    }

    #[test]
    fn lengths_are_counted_in_bytes_and_have_their_limits() {
        assert!(is_dns_subdomain(&[b'a'; 253]) && !is_dns_subdomain(&[b'a'; 254]));
        assert!(is_dns_label(&[b'a'; 63]) && !is_dns_label(&[b'a'; 64]));
        assert!(is_label_value(&"a".repeat(63)) && !is_label_value(&"a".repeat(64)));
        let long = format!("{}/{}", "p".repeat(253), "n".repeat(63));
        assert!(
            is_qualified_name(&long) && !is_qualified_name(&format!("p{long}")) && !is_qualified_name(&(long + "n"))
        );
    }

    #[test]
    fn every_part_of_a_qualified_name_complains_for_itself() {
        let complaints = qualified_name_complaints(&format!("P/{}", "-".repeat(64)));
        assert_eq!(complaints.len(), 3);
        assert!(complaints[0].starts_with("prefix part a lowercase RFC 1123 subdomain"));
        assert_eq!(complaints[1], "name part must be no more than 63 bytes");
        assert!(complaints[2].starts_with("name part must consist of"));
        assert_eq!(qualified_name_complaints("/a"), ["prefix part must be non-empty"]);
        let long_prefix = format!("{}/a", "p".repeat(254));
        assert_eq!(qualified_name_complaints(&long_prefix), ["prefix part must be no more than 253 bytes"]);
        assert_eq!(dns_subdomain_complaints(&[b'p'; 254]), ["must be no more than 253 characters"]);
        assert!(qualified_name_complaints("a/b/c")[0].starts_with("a valid label key must consist of"));
        assert!(qualified_name_complaints("a/b/c")[0].ends_with("and '/' (e.g. 'example.com/MyName')"));
    }

    #[test]
    fn a_label_with_dots_gets_its_own_message() {
        assert_eq!(dns_label_complaints(b"a.b"), ["must not contain dots"]);
        assert!(dns_label_complaints(b"a_b")[0].starts_with("a lowercase RFC 1123 label must consist of"));
    }

    #[test]
    fn folds_annotation_keys_as_go_does() {
        assert!(annotation_key_complaints("\u{212a}ey").is_empty(), "the Kelvin sign folds to k");
        assert!(annotation_key_complaints("\u{130}d").is_empty(), "the dotted capital I folds to i");
        assert!(!annotation_key_complaints("\u{e9}").is_empty());
    }
}
