//! Media types that the server refuses: the reasons for 406, and the lists of supported types in the messages of 406
//! and 415.

use std::fmt;

/// The reason why the server can generate no form of the response that the client accepts. Each reason has
/// kube-apiserver's message for 406.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unacceptable {
    /// The client wants the metadata of one object, but the result is a list.
    List,
    /// The client wants a list of metadata, but the result is one object.
    NotAList,
    /// The router found no acceptable media type for the path.
    Route {
        /// Whether the path allows a watch. The message then also lists the media types of a watch.
        streaming: bool,
    },
    /// The router found no acceptable media type for a path that serves only JSON.
    JsonRoute,
    /// The client accepts no media type in which a watch can be sent.
    Stream,
    /// The client names each available media type only with parameters that the server does not support.
    Transform,
}

impl Unacceptable {
    /// Whether the `Status` contains an empty `details` object, as in errors of kube-apiserver's router.
    #[must_use]
    pub fn has_details(self) -> bool {
        matches!(self, Self::JsonRoute | Self::Route { .. })
    }
}

impl fmt::Display for Unacceptable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::List => f.write_str(
                "you requested PartialObjectMetadata, but the requested object is a list (*coordination.LeaseList)",
            ),
            Self::NotAList => f.write_str(
                "you requested PartialObjectMetadataList, but the requested object is not a list (*coordination.Lease)",
            ),
            Self::Route { streaming: false } => {
                write!(f, "406: Not Acceptable\n\nAvailable representations: {MEDIA_TYPES}")
            }
            Self::Route { streaming: true } => {
                write!(f, "406: Not Acceptable\n\nAvailable representations: {MEDIA_TYPES}, {STREAM_MEDIA_TYPES}")
            }
            Self::JsonRoute => f.write_str("406: Not Acceptable\n\nAvailable representations: application/json"),
            Self::Stream => write!(f, "only the following media types are accepted: {STREAM_MEDIA_TYPES}"),
            Self::Transform => write!(f, "only the following media types are accepted: {MEDIA_TYPES}"),
        }
    }
}

/// Media types of request bodies and of responses, in kube-apiserver's order.
pub(super) const MEDIA_TYPES: &str = "application/json, application/yaml, application/vnd.kubernetes.protobuf";
/// Media types of patches, in kube-apiserver's order.
pub(super) const PATCH_TYPES: [&str; 4] = [JSON_PATCH, MERGE_PATCH, STRATEGIC_MERGE_PATCH, APPLY_PATCH];
const STREAM_MEDIA_TYPES: &str = "application/json;stream=watch, application/vnd.kubernetes.protobuf;stream=watch";

/// Media type of the body of a server-side apply.
pub const APPLY_PATCH: &str = "application/apply-patch+yaml";
/// Media type of a JSON patch (RFC 6902).
pub const JSON_PATCH: &str = "application/json-patch+json";
/// Media type of a merge patch (RFC 7386).
pub const MERGE_PATCH: &str = "application/merge-patch+json";
/// Media type of a strategic merge patch. The rules of such a patch depend on the kind of the object.
pub const STRATEGIC_MERGE_PATCH: &str = "application/strategic-merge-patch+json";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn not_acceptable_messages_match_kube_apiserver() {
        for (why, words) in [
            (
                Unacceptable::Route { streaming: true },
                "406: Not Acceptable\n\nAvailable representations: application/json, application/yaml, application/vnd.kubernetes.protobuf, application/json;stream=watch, application/vnd.kubernetes.protobuf;stream=watch",
            ),
            (
                Unacceptable::Transform,
                "only the following media types are accepted: application/json, application/yaml, application/vnd.kubernetes.protobuf",
            ),
            (
                Unacceptable::List,
                "you requested PartialObjectMetadata, but the requested object is a list (*coordination.LeaseList)",
            ),
            (
                Unacceptable::NotAList,
                "you requested PartialObjectMetadataList, but the requested object is not a list (*coordination.Lease)",
            ),
        ] {
            assert_eq!(why.to_string(), words);
        }
    }
}
