//! Values as kube-apiserver shows them in a complaint.
//!
//! A plain string is quoted as Go source ([`go_quoted`](crate::go::quote::go_quoted)). Everything else, a string of a
//! named type or behind a pointer too, goes through Go's `json.Marshal`, which is what these functions write.

use crate::lease::OwnerReference;
use crate::timestamp::Time;
use std::fmt::Write as _;

/// A string as Go's `json.Marshal` writes it, which is how a message shows a value of a named type or behind a pointer.
pub(crate) fn json_quoted(s: &str) -> String {
    let mut out = String::with_capacity(s.len() + 2);
    push_json_quoted(&mut out, s);
    out
}

fn push_json_quoted(out: &mut String, s: &str) {
    out.push('"');
    for c in s.chars() {
        match c {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            '\u{8}' => out.push_str("\\b"),
            '\u{c}' => out.push_str("\\f"),
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            '<' | '>' | '&' | '\u{2028}' | '\u{2029}' | '\0'..='\u{1f}' => _ = write!(out, "\\u{:04x}", u32::from(c)),
            c => out.push(c),
        }
    }
    out.push('"');
}

/// A list of strings as Go's `json.Marshal` writes it.
pub(crate) fn json_strings<S: AsRef<str>>(strings: &[S]) -> String {
    let mut out = String::from("[");
    for s in strings {
        if out.len() > 1 {
            out.push(',');
        }
        push_json_quoted(&mut out, s.as_ref());
    }
    out.push(']');
    out
}

/// An owner as Go's `json.Marshal` writes it.
pub(crate) fn json_owner(owner: &OwnerReference) -> String {
    let mut out = String::new();
    push_json_owner(&mut out, owner);
    out
}

/// A list of owners as Go's `json.Marshal` writes it.
pub(crate) fn json_owners(owners: &[OwnerReference]) -> String {
    let mut out = String::from("[");
    for (i, owner) in owners.iter().enumerate() {
        if i > 0 {
            out.push(',');
        }
        push_json_owner(&mut out, owner);
    }
    out.push(']');
    out
}

fn push_json_owner(out: &mut String, owner: &OwnerReference) {
    out.push_str("{\"apiVersion\":");
    push_json_quoted(out, &owner.api_version);
    for (key, value) in [("kind", &owner.kind), ("name", &owner.name), ("uid", &owner.uid)] {
        _ = write!(out, ",\"{key}\":");
        push_json_quoted(out, value);
    }
    for (key, value) in [("controller", owner.controller), ("blockOwnerDeletion", owner.block_owner_deletion)] {
        if let Some(value) = value {
            _ = write!(out, ",\"{key}\":{value}");
        }
    }
    out.push('}');
}

/// A time as Go's `json.Marshal` writes it; `null` for none.
pub(crate) fn json_time(time: Option<Time>) -> String {
    let Some(at) = time.and_then(|Time(seconds)| time::OffsetDateTime::from_unix_timestamp(seconds).ok()) else {
        return "null".to_owned();
    };
    let (year, month, day) = at.to_calendar_date();
    let (hour, minute, second) = at.to_hms();
    format!("\"{year:04}-{:02}-{day:02}T{hour:02}:{minute:02}:{second:02}Z\"", u8::from(month))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quotes_as_gos_json_encoder_does() {
        assert_eq!(json_quoted("a\"\\<\n\u{1}\u{2028}é\u{7f}"), "\"a\\\"\\\\\\u003c\\n\\u0001\\u2028é\u{7f}\"");
        assert_eq!(json_strings(&["a", "&"]), "[\"a\",\"\\u0026\"]");
        assert_eq!(json_strings::<&str>(&[]), "[]");
    }

    #[test]
    fn writes_times_as_rfc_3339_and_none_as_null() {
        assert_eq!(json_time(Some(Time(978_307_200))), "\"2001-01-01T00:00:00Z\"");
        assert_eq!(json_time(Some(Time(i64::MAX))), "null", "no calendar date has so many seconds");
        assert_eq!(json_time(None), "null");
    }

    #[test]
    fn writes_owners_in_the_order_of_their_fields() {
        let owner = OwnerReference {
            api_version: "v1".into(),
            kind: "Node".into(),
            name: "n".into(),
            uid: "u".into(),
            controller: Some(true),
            block_owner_deletion: Some(false),
        };
        let json =
            r#"{"apiVersion":"v1","kind":"Node","name":"n","uid":"u","controller":true,"blockOwnerDeletion":false}"#;
        assert_eq!(json_owner(&owner), json);
        assert_eq!(json_owners(&[owner.clone(), owner]), format!("[{json},{json}]"));
    }
}
