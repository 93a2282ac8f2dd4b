//! The document of `/version`: the Kubernetes version whose Lease API this server implements, and the version of this
//! project.

use super::document::Document;
use crate::build_info::BuildInfo;

/// Returns the document of `/version`. The document is a `version.Info` of apimachinery.
pub(super) fn version() -> Document {
    Document::new(serde_json::to_vec_pretty(BuildInfo::get()).expect("strings have a JSON form"))
}
