//! Patches: functions from the JSON of an object and the body of a PATCH to the JSON of the resulting object.
//!
//! JSON patch and merge patch behave like kube-apiserver's library (evanphx/json-patch v4), since clients rely on it.
//! This applies even where the library departs from the RFCs. The caller decodes and validates the resulting JSON.
//!
//! The size and the depth of a patch, and the numbers of its values and operations, are limited. So are the data that
//! `copy` adds and `move` moves. Go accepts 10,000 levels of nesting. This server accepts as many levels as
//! `serde_json` ([`DOCUMENT_DEPTH_MAX`](crate::limits::DOCUMENT_DEPTH_MAX)). A patch cannot exceed that depth by moving
//! values into each other. A Lease needs at most six levels.

mod decode;
mod json_patch;
mod merge_patch;
mod strategic;
mod values;

pub use decode::is_json;
pub use json_patch::apply_json_patch;
pub use merge_patch::apply_merge_patch;
pub use strategic::{apply_strategic_merge_patch, decode_strategic_merge_patch};
pub use values::check_values;

use crate::api_error::{APPLY_PATCH, ApiError, JSON_PATCH, MERGE_PATCH, STRATEGIC_MERGE_PATCH};

/// The types of patch that the API supports, each with its media type.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PatchType {
    /// [`APPLY_PATCH`]: server-side apply.
    Apply,
    /// [`JSON_PATCH`]: RFC 6902.
    Json,
    /// [`MERGE_PATCH`]: RFC 7386.
    Merge,
    /// [`STRATEGIC_MERGE_PATCH`]: a merge patch whose rules depend on the type of the object.
    StrategicMerge,
}

impl PatchType {
    /// Parses the `Content-Type` of a patch. Ignores parameters. The media type must be spelled as in the API.
    ///
    /// # Errors
    /// [`ApiError::UnknownPatchFormat`] if kube-apiserver's router accepts the value, but its handler does not, such as
    /// a list of media types with one of the API. [`ApiError::UnsupportedPatchType`] for any other media type, even
    /// `application/json`.
    pub fn from_content_type(content_type: &str) -> Result<Self, ApiError> {
        let without_parameters = |text| str::split_once(text, ';').map_or(text, |(media_type, _)| media_type);
        Self::from_media_type(without_parameters(content_type)).ok_or_else(|| {
            // kube-apiserver's router, go-restful, accepts a list of media types with spaces around them.
            let of_router = |text| Self::from_media_type(without_parameters(text).trim_matches(' '));
            if content_type.split(',').any(|text| of_router(text).is_some()) {
                ApiError::UnknownPatchFormat
            } else {
                ApiError::UnsupportedPatchType
            }
        })
    }

    fn from_media_type(media_type: &str) -> Option<Self> {
        match media_type {
            APPLY_PATCH => Some(Self::Apply),
            JSON_PATCH => Some(Self::Json),
            MERGE_PATCH => Some(Self::Merge),
            STRATEGIC_MERGE_PATCH => Some(Self::StrategicMerge),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn knows_four_media_types() {
        let read = PatchType::from_content_type;
        assert_eq!(read("application/json-patch+json"), Ok(PatchType::Json));
        assert_eq!(read("application/merge-patch+json; charset=utf-8"), Ok(PatchType::Merge));
        assert_eq!(read("application/strategic-merge-patch+json"), Ok(PatchType::StrategicMerge));
        assert_eq!(read("application/apply-patch+yaml"), Ok(PatchType::Apply));
        for other in ["", ";", "application/json", "application/yaml", "Application/Merge-Patch+JSON"] {
            assert_eq!(read(other), Err(ApiError::UnsupportedPatchType), "{other}");
        }
        for other in [
            "application/merge-patch+json ;x",
            "application/merge-patch+json, text/plain",
            "text/plain, application/json-patch+json;x",
        ] {
            assert_eq!(read(other), Err(ApiError::UnknownPatchFormat), "{other}");
        }
        let status = ApiError::UnknownPatchFormat.status();
        let words = "the body of the request was in an unknown format - accepted media types include: application/json-patch+json, application/merge-patch+json, application/strategic-merge-patch+json, application/apply-patch+yaml";
        assert_eq!((status.code, &*status.message), (415, words));
    }
}
