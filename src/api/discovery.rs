//! Documents that never change: what the server serves, of which version it is, and whether it is well.
//!
//! Kubernetes, "API discovery". kubectl asks for these before it does anything.

use super::Reply;
use crate::api_error::ApiError;
use crate::http::{ContentType, Response};
use crate::route::Route;
use bytes::Bytes;

/// Served at `/openapi/v3/apis/coordination.k8s.io/v1`; kubectl learns from it that the server validates fields.
const OPENAPI_V3: &str = include_str!("openapi-v3.json");

const OPENAPI_V3_INDEX: &str = r#"{"paths":{"apis/coordination.k8s.io/v1":{"serverRelativeURL":"/openapi/v3/apis/coordination.k8s.io/v1"}}}
"#;

const API_VERSIONS: &str = r#"{"kind":"APIVersions","versions":[],"serverAddressByClientCIDRs":[]}
"#;

const API_GROUP_LIST: &str = r#"{"kind":"APIGroupList","apiVersion":"v1","groups":[{"name":"coordination.k8s.io","versions":[{"groupVersion":"coordination.k8s.io/v1","version":"v1"}],"preferredVersion":{"groupVersion":"coordination.k8s.io/v1","version":"v1"}}]}
"#;

const API_GROUP: &str = r#"{"kind":"APIGroup","apiVersion":"v1","name":"coordination.k8s.io","versions":[{"groupVersion":"coordination.k8s.io/v1","version":"v1"}],"preferredVersion":{"groupVersion":"coordination.k8s.io/v1","version":"v1"}}
"#;

/// `storageVersionHash` is that of the built-in API: the stored object is the same.
const API_RESOURCE_LIST: &str = r#"{"kind":"APIResourceList","apiVersion":"v1","groupVersion":"coordination.k8s.io/v1","resources":[{"name":"leases","singularName":"lease","namespaced":true,"kind":"Lease","verbs":["create","delete","deletecollection","get","list","patch","update","watch"],"storageVersionHash":"gqkMMb/YqFM="}]}
"#;

/// The Kubernetes version whose Lease API this is, with this project's own version behind it.
const VERSION: &str = concat!(
    r#"{"major":"1","minor":"34","gitVersion":"v1.34.4+coordination-apiserver-"#,
    env!("CARGO_PKG_VERSION"),
    r#"","gitCommit":"","gitTreeState":"clean","buildDate":"1970-01-01T00:00:00Z","goVersion":"","compiler":"rustc","platform":"linux/amd64"}
"#
);

/// The document at a route that is no Lease.
pub(super) fn document(route: &Route<'_>) -> Result<Reply, ApiError> {
    let json = |text: &'static str| (ContentType::Json, text);
    let (content_type, text) = match route {
        Route::ApiGroups => json(API_GROUP_LIST),
        Route::ApiGroup => json(API_GROUP),
        Route::ApiResources => json(API_RESOURCE_LIST),
        Route::LegacyApi => json(API_VERSIONS),
        Route::OpenApiIndex => json(OPENAPI_V3_INDEX),
        Route::OpenApiDocument => json(OPENAPI_V3),
        Route::Version => json(VERSION),
        // A loop that answers is well: there is nothing else that could fail.
        Route::Health => (ContentType::Text, "ok"),
        Route::AllNamespaces | Route::Lease { .. } | Route::Namespace(_) | Route::Unknown => {
            return Err(ApiError::PathNotFound);
        }
    };
    Ok(Reply::Response(Response::new(200, content_type, Bytes::from_static(text.as_bytes()))))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_document_is_json() {
        for text in [OPENAPI_V3, OPENAPI_V3_INDEX, API_VERSIONS, API_GROUP_LIST, API_GROUP, API_RESOURCE_LIST, VERSION]
        {
            let parsed: Result<serde_json::Value, _> = serde_json::from_str(text);
            assert!(parsed.is_ok(), "{text}");
        }
    }
}
