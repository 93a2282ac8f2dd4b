//! Patches: from the JSON of an object and the body of a PATCH to the JSON of the object as it shall be.
//!
//! JSON patch and merge patch follow the library that kube-apiserver uses (evanphx/json-patch v4) where it departs from
//! its RFC, since clients have come to rely on it. What comes out is not yet a Lease: the caller decodes and validates it.
//!
//! The work is bounded whatever the patch: by its size, by the number of operations, by what `copy` adds and `move`
//! carries, and by depth. Go takes 10,000 levels of nesting; here the limit is that of `serde_json`, 127, and a patch
//! cannot build anything deeper by moving pieces into each other. A Lease has no use for more than six.

mod decode;
mod json_patch;
mod merge_patch;
mod strategic;

pub use json_patch::apply_json_patch;
pub use merge_patch::apply_merge_patch;
pub use strategic::{StrategicMerge, apply_strategic_merge_patch};

use crate::api_error::ApiError;

/// Most levels of arrays and objects within each other, the outermost counted: what `serde_json` reads.
const DEPTH_MAX: usize = 127;

/// The kinds of patch that the API knows, by media type.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PatchType {
    /// `application/apply-patch+yaml`: server-side apply.
    Apply,
    /// `application/json-patch+json`: RFC 6902.
    Json,
    /// `application/merge-patch+json`: RFC 7386.
    Merge,
    /// `application/strategic-merge-patch+json`: merging that knows the type.
    StrategicMerge,
}

impl PatchType {
    /// Reads a `Content-Type`. Parameters are passed over; the type itself must be spelled as the API spells it.
    ///
    /// # Errors
    /// [`ApiError::UnsupportedPatchType`] for anything else, also for plain `application/json`.
    pub fn from_content_type(content_type: &str) -> Result<Self, ApiError> {
        let media_type = content_type.split_once(';').map_or(content_type, |(media_type, _)| media_type);
        match media_type {
            "application/apply-patch+yaml" => Ok(Self::Apply),
            "application/json-patch+json" => Ok(Self::Json),
            "application/merge-patch+json" => Ok(Self::Merge),
            "application/strategic-merge-patch+json" => Ok(Self::StrategicMerge),
            _ => Err(ApiError::UnsupportedPatchType),
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
    }
}
