//! Formats values for complaints, as kube-apiserver does.
//!
//! kube-apiserver quotes a plain string as in Go source code ([`go_quoted`](crate::go::quote::go_quoted)). It formats
//! any other value by Go's `json.Marshal`, even a string of a named type or behind a pointer. The functions of this
//! module format such other values.

use crate::go::json::{into_text, push_string};
use crate::lease::OwnerReference;
use crate::timestamp::{Time, is_zero_time, push_time};

/// Formats an owner reference like Go's `json.Marshal`.
pub(crate) fn json_owner(owner: &OwnerReference) -> String {
    let mut out = Vec::new();
    push_json_owner(&mut out, owner);
    into_text(out)
}

/// Formats a list of owner references like Go's `json.Marshal`.
pub(crate) fn json_owners(owners: &[OwnerReference]) -> String {
    let mut out = vec![b'['];
    for (index, owner) in owners.iter().enumerate() {
        if index > 0 {
            out.push(b',');
        }
        push_json_owner(&mut out, owner);
    }
    out.push(b']');
    into_text(out)
}

/// Appends an owner reference like Go's `json.Marshal`. The first four fields are always present, since they have no
/// `omitempty`.
pub(crate) fn push_json_owner(out: &mut Vec<u8>, owner: &OwnerReference) {
    out.extend_from_slice(b"{\"apiVersion\":");
    push_string(out, &owner.api_version);
    for (key, value) in [(",\"kind\":", &owner.kind), (",\"name\":", &owner.name), (",\"uid\":", &owner.uid)] {
        out.extend_from_slice(key.as_bytes());
        push_string(out, value);
    }
    for (key, value) in
        [(",\"controller\":", owner.controller), (",\"blockOwnerDeletion\":", owner.block_owner_deletion)]
    {
        if let Some(value) = value {
            out.extend_from_slice(key.as_bytes());
            out.extend_from_slice(if value { b"true" } else { b"false" });
        }
    }
    out.push(b'}');
}

/// Formats a time like Go's `json.Marshal`. An absent time and Go's zero time are `null`.
pub(crate) fn json_time(time: Option<Time>) -> String {
    let Some(time) = time.filter(|time| !is_zero_time(*time)) else { return "null".to_owned() };
    let mut out = vec![b'"'];
    push_time(&mut out, time);
    out.push(b'"');
    into_text(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn writes_times_as_rfc_3339_and_none_as_null() {
        for (seconds, text) in [
            (978_307_200, "\"2001-01-01T00:00:00Z\""),
            // A client can send the first of these two times as `9999-12-31T23:59:59-01:00`, and the second one in
            // protobuf.
            (253_402_304_399, "\"10000-01-01T00:59:59Z\""),
            (300_000_000_000, "\"11476-08-15T05:20:00Z\""),
            (-62_135_596_800, "null"),
        ] {
            assert_eq!(json_time(Some(Time(seconds))), text);
        }
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
