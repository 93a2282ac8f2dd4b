//! `/version`: the Kubernetes version whose Lease API this is, with this project's own behind it.

use super::document::Document;
use crate::build_info::BuildInfo;

/// The document, a `version.Info` of apimachinery.
pub(super) fn version() -> Document {
    Document::new(serde_json::to_vec_pretty(BuildInfo::get()).expect("strings have a JSON form"))
}
