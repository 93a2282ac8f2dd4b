//! `PartialObjectMetadata` and `PartialObjectMetadataList` in JSON. They contain only the metadata of the objects, for
//! clients that cache names and labels (Kubernetes API concepts, "Metadata-only fetches"). `codec::protobuf` encodes
//! them as protobuf.
//!
//! The metadata equals the metadata in the JSON of the Lease byte for byte. So this module copies it from that JSON.

use super::list_meta::ListMeta;
use crate::resource::MetaVersion;
use memchr::memmem;

/// `kind` of an object that contains only metadata.
pub const KIND: &str = "PartialObjectMetadata";
/// `kind` of a list of objects that contain only metadata.
pub const LIST_KIND: &str = "PartialObjectMetadataList";

/// Appends a `PartialObjectMetadata` with the metadata of a Lease. `lease` is the JSON of the Lease, with or without
/// `kind` and `apiVersion`. `of` is the version of `meta.k8s.io`.
pub fn push_partial(out: &mut Vec<u8>, lease: &[u8], of: MetaVersion) {
    out.reserve(lease.len() + 96);
    push_type_meta(out, KIND, of);
    // The first match of `METADATA` is the metadata, since only `kind` and `apiVersion` can come before it. The last
    // match of `SPEC` is the spec: no later member is called `spec`, and in a string each quote has a backslash before
    // it.
    let metadata = memmem::find(lease, METADATA).and_then(|at| lease.get(at..)).unwrap_or_default();
    let end = memmem::rfind(metadata, SPEC).unwrap_or(metadata.len());
    out.extend_from_slice(metadata.get(..end).unwrap_or_default());
    out.push(b'}');
}

/// Appends the part of a list before its items. The caller calls [`push_item_start`] before each item.
pub fn push_list_head(out: &mut Vec<u8>, meta: &ListMeta<'_>, of: MetaVersion) {
    push_type_meta(out, LIST_KIND, of);
    out.extend_from_slice(b"\"metadata\":");
    meta.push_json(out);
    out.extend_from_slice(b",\"items\":");
}

/// Appends the bracket or comma before an item. `is_first` is true if the item is the first.
pub fn push_item_start(out: &mut Vec<u8>, is_first: bool) {
    out.push(if is_first { b'[' } else { b',' });
}

/// Appends the end of a list. As in kube-apiserver, the items of an empty list are `null`.
pub fn push_list_close(out: &mut Vec<u8>, is_empty: bool) {
    out.extend_from_slice(if is_empty { b"null}" } else { b"]}" });
}

fn push_type_meta(out: &mut Vec<u8>, kind: &str, of: MetaVersion) {
    for part in ["{\"kind\":\"", kind, "\",\"apiVersion\":\"", of.api_version(), "\","] {
        out.extend_from_slice(part.as_bytes());
    }
}

const METADATA: &[u8] = b"\"metadata\":{";
const SPEC: &[u8] = b",\"spec\":{";

#[cfg(test)]
mod tests {
    use super::*;
    use crate::codec::json::encode_lease_into;
    use crate::codec::text;
    use crate::lease::Lease;
    use crate::resource::ResourceVersion;

    const WHOLE: &str = include_str!("../../tests/wire/lease-full.json");
    const PARTIAL: &str = include_str!("../../tests/wire/partial-full.json");
    const LIST: &str = include_str!("../../tests/wire/list.json");
    const PARTIAL_LIST: &str = include_str!("../../tests/wire/partial-list.json");

    #[test]
    fn the_metadata_is_cut_out_of_the_lease() {
        assert_eq!(text(|out| push_partial(out, WHOLE.trim_end().as_bytes(), MetaVersion::V1)), PARTIAL.trim_end());
        let older = PARTIAL.trim_end().replace("meta.k8s.io/v1", "meta.k8s.io/v1beta1");
        assert_eq!(text(|out| push_partial(out, WHOLE.trim_end().as_bytes(), MetaVersion::V1Beta1)), older);
    }

    #[test]
    fn strings_that_look_like_members_do_not_end_the_metadata() {
        let mut lease = Lease::default();
        lease.metadata.name = "n".into();
        lease.metadata.annotations.insert("spec".into(), "\",\"spec\":{\"metadata\":{".into());
        lease.spec.holder_identity = Some(",\"spec\":{".into());
        let whole = text(|out| encode_lease_into(out, &lease, Some(ResourceVersion(7)), true));
        let partial = text(|out| push_partial(out, whole.as_bytes(), MetaVersion::V1));
        let value: serde_json::Value = serde_json::from_str(&partial).expect(&partial);
        assert_eq!(value["metadata"]["annotations"]["spec"], "\",\"spec\":{\"metadata\":{");
        assert_eq!(value["metadata"]["resourceVersion"], "7");
        assert_eq!(value.as_object().map(serde_json::Map::len), Some(3));
    }

    #[test]
    fn lists_match_kube_apiserver() {
        let (_, items) = LIST.trim_end().split_once("\"items\":[").expect("a list");
        let items = items.strip_suffix("]}").expect("a list").split_inclusive("}},").collect::<Vec<_>>();
        let items = [items[0].trim_end_matches(','), &items[1..].concat()];
        let list = text(|out| {
            push_list_head(out, &ListMeta::at(ResourceVersion(209)), MetaVersion::V1);
            for (index, item) in items.iter().enumerate() {
                push_item_start(out, index == 0);
                push_partial(out, item.as_bytes(), MetaVersion::V1);
            }
            push_list_close(out, false);
        });
        assert_eq!(list, PARTIAL_LIST.trim_end());
        let empty = text(|out| {
            push_list_head(out, &ListMeta::default(), MetaVersion::V1);
            push_list_close(out, true);
        });
        assert_eq!(
            empty,
            r#"{"kind":"PartialObjectMetadataList","apiVersion":"meta.k8s.io/v1","metadata":{},"items":null}"#
        );
    }
}
