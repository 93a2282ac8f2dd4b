//! `metav1.ListMeta`, the metadata of a list in any form.

use crate::go::json::push_string;
use crate::resource::ResourceVersion;

/// The metadata of a list, or of a Table.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ListMeta<'a> {
    /// `resourceVersion` of the list; `None` in a Table of an object that is not stored, such as the result of a dry
    /// run of a creation.
    pub version: Option<ResourceVersion>,
    /// `continue` token of the next page; empty on the last page.
    pub next: &'a str,
    /// `remainingItemCount`, if known.
    pub remaining: Option<u64>,
    /// `shardInfo.selector`; empty if the list is not restricted to a shard.
    pub shard: &'a str,
}

impl ListMeta<'_> {
    /// Returns the metadata of a list without further pages, at the `resourceVersion` `version`.
    #[must_use]
    pub fn at(version: ResourceVersion) -> Self {
        Self { version: Some(version), ..Self::default() }
    }

    /// Appends the metadata as a JSON object.
    pub fn push_json(&self, out: &mut Vec<u8>) {
        let mut separator = b'{';
        let mut key = |out: &mut Vec<u8>, key: &[u8]| {
            out.push(std::mem::replace(&mut separator, b','));
            out.extend_from_slice(key);
        };
        if let Some(version) = self.version {
            key(out, b"\"resourceVersion\":\"");
            out.extend_from_slice(itoa::Buffer::new().format(version.0).as_bytes());
            out.push(b'"');
        }
        if !self.next.is_empty() {
            key(out, b"\"continue\":");
            push_string(out, self.next);
        }
        if let Some(remaining) = self.remaining {
            key(out, b"\"remainingItemCount\":");
            out.extend_from_slice(itoa::Buffer::new().format(remaining).as_bytes());
        }
        if !self.shard.is_empty() {
            key(out, b"\"shardInfo\":{\"selector\":");
            push_string(out, self.shard);
            out.push(b'}');
        }
        if separator == b'{' {
            out.push(b'{');
        }
        out.push(b'}');
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::codec::text;

    #[test]
    fn absent_parts_are_left_out() {
        for (meta, json) in [
            (ListMeta::default(), "{}"),
            (ListMeta::at(ResourceVersion(7)), r#"{"resourceVersion":"7"}"#),
            (ListMeta { remaining: Some(0), ..ListMeta::default() }, r#"{"remainingItemCount":0}"#),
            (ListMeta { shard: "s'", ..ListMeta::default() }, r#"{"shardInfo":{"selector":"s'"}}"#),
            (
                ListMeta { next: "t", remaining: Some(2), ..ListMeta::at(ResourceVersion(7)) },
                r#"{"resourceVersion":"7","continue":"t","remainingItemCount":2}"#,
            ),
        ] {
            assert_eq!(text(|out| meta.push_json(out)), json);
        }
    }
}
