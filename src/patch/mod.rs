//! Patches: from the JSON of an object and the body of a PATCH to the JSON of the object as it shall be.
//!
//! JSON patch and merge patch follow the library that kube-apiserver uses (evanphx/json-patch v4) where it departs from
//! its RFC, since clients have come to rely on it. What comes out is not yet a Lease: the caller decodes and validates
//! it.
//!
//! The work is bounded whatever the patch: by its size, by the number of values in it and of operations, by what `copy`
//! adds and `move` carries, and by depth. Go takes 10,000 levels of nesting; here the limit is that of `serde_json`
//! ([`DOCUMENT_DEPTH_MAX`](crate::limits::DOCUMENT_DEPTH_MAX)), and a patch cannot build anything deeper by moving
//! pieces into each other. A Lease has no use for more than six.

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

/// The kinds of patch that the API knows, by media type.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PatchType {
    /// [`APPLY_PATCH`]: server-side apply.
    Apply,
    /// [`JSON_PATCH`]: RFC 6902.
    Json,
    /// [`MERGE_PATCH`]: RFC 7386.
    Merge,
    /// [`STRATEGIC_MERGE_PATCH`]: merging that knows the type.
    StrategicMerge,
}

impl PatchType {
    /// Reads a `Content-Type`. Parameters are passed over; the type itself must be spelled as the API spells it.
    ///
    /// # Errors
    /// [`ApiError::UnsupportedPatchType`] for anything else, also for plain `application/json`;
    /// [`ApiError::UnknownPatchFormat`] if a type of the API is in it, but not as it must be.
    pub fn from_content_type(content_type: &str) -> Result<Self, ApiError> {
        let without_parameters = |text| str::split_once(text, ';').map_or(text, |(media_type, _)| media_type);
        Self::from_media_type(without_parameters(content_type)).ok_or_else(|| {
            // go-restful, the router of kube-apiserver, reads a list of types, with spaces around them.
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
