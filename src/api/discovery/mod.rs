//! Discovery: documents that describe the API, its schema, and the version and health of the server.
//!
//! kubectl, controllers and kube-apiserver's aggregator read these documents first (Kubernetes, "API discovery"). The
//! server creates all of them once, at startup, except the health reports.

mod document;
mod groups;
pub mod health;
mod openapi;
mod version;

use super::negotiate::is_pretty;
use super::{Call, Reply};
use crate::api_error::{ApiError, Unacceptable};
use crate::auth::Caller;
use crate::clock::HttpDate;
use crate::codec::Format;
use crate::form::Response;
use crate::http::CacheControl;
use crate::media_type::{
    DiscoveryForm, DiscoveryVersion, TEXT, check_json_route, negotiate_discovery, negotiate_routed_discovery,
    takes_json,
};
use crate::resource::ApiVersion;
use crate::route::Route;
use crate::timestamp::Time;
use document::{Discovery, Document};
use health::HealthChecks;
use std::sync::LazyLock;

/// The documents that do not change while the process runs.
static DOCUMENTS: LazyLock<Documents> = LazyLock::new(Documents::new);

#[derive(Debug)]
struct Documents {
    legacy_versions: Discovery,
    group_list: Discovery,
    group: Discovery,
    canary: Discovery,
    version: Document,
    aggregated: Aggregated,
    aggregated_legacy: Aggregated,
    openapi_v2: Document,
    openapi_v3_index: Document,
    /// Documents of each API version, in the order of [`ApiVersion::ALL`].
    of_versions: [OfVersion; ApiVersion::ALL.len()],
}

/// An aggregated discovery document in both versions of `apidiscovery.k8s.io`.
#[derive(Debug)]
struct Aggregated {
    v2: Discovery,
    v2beta1: Discovery,
}

impl Aggregated {
    fn new(make: fn(&str) -> Discovery) -> Self {
        Self { v2: make("apidiscovery.k8s.io/v2"), v2beta1: make("apidiscovery.k8s.io/v2beta1") }
    }
}

#[derive(Debug)]
struct OfVersion {
    resource_list: Discovery,
    openapi_v3: Document,
}

impl Documents {
    fn new() -> Self {
        let of_versions = ApiVersion::ALL.map(|version| OfVersion {
            resource_list: groups::resource_list(version),
            openapi_v3: Document::new(openapi::v3(version).to_string()),
        });
        let hashes = of_versions.iter().map(|of_version| of_version.openapi_v3.hash.as_str());
        let hashes: Vec<_> = ApiVersion::ALL.into_iter().zip(hashes).collect();
        Self {
            legacy_versions: groups::legacy_versions(),
            group_list: groups::group_list(),
            group: groups::group(),
            canary: groups::canary(),
            version: version::version(),
            aggregated: Aggregated::new(groups::aggregated),
            aggregated_legacy: Aggregated::new(groups::aggregated_legacy),
            openapi_v2: Document::new(openapi::v2().to_string()),
            openapi_v3_index: Document::new(openapi::v3_index(&hashes).to_string()),
            of_versions,
        }
    }

    fn of_version(&self, version: ApiVersion) -> Result<&OfVersion, ApiError> {
        let at = ApiVersion::ALL.iter().position(|served| *served == version);
        at.and_then(|at| self.of_versions.get(at)).ok_or(ApiError::PathNotFound)
    }
}

/// Creates the documents at startup, so that no request waits for them.
pub(super) fn prepare() {
    LazyLock::force(&DOCUMENTS);
}

/// Returns the document of a discovery, OpenAPI, version or health route.
pub(super) fn document(route: &Route<'_>, call: &Call<'_>, health: &HealthChecks) -> Result<Reply, ApiError> {
    let documents = &*DOCUMENTS;
    match route {
        Route::Health(probe) => Ok(Reply::Response(health.report(*probe, &call.query))),
        Route::HealthCheck { probe, name } => {
            health.report_one(*probe, name).map(Reply::Response).ok_or(ApiError::PathNotFound)
        }
        Route::Version => {
            check_json_route(call.head.accept).map_err(ApiError::NotAcceptable)?;
            Ok(documents.version.plain(Format::Json.media_type()))
        }
        Route::LegacyApi => {
            let form = pretty(negotiate_routed_discovery(call.head.accept, true), call)?;
            Ok(groups_or(&documents.legacy_versions, &documents.aggregated_legacy, form, call))
        }
        Route::ApiGroups { has_slash } => {
            let form = pretty(negotiate_discovery(call.head.accept, !has_slash), call)?;
            Ok(groups_or(&documents.group_list, &documents.aggregated, form, call))
        }
        Route::ApiGroup => Ok(documents.group.plain(pretty(negotiate_discovery(call.head.accept, false), call)?)),
        Route::ApiResources(version) => {
            let form = pretty(negotiate_routed_discovery(call.head.accept, false), call)?;
            Ok(documents.of_version(*version)?.resource_list.plain(form))
        }
        Route::Canary => {
            let form = pretty(negotiate_routed_discovery(call.head.accept, false), call)?;
            Ok(documents.canary.plain(form))
        }
        Route::OpenApiV2 => {
            check_json(call)?;
            Ok(Reply::Response(documents.openapi_v2.validated(call.head, Format::Json.media_type())))
        }
        // In kube-apiserver, this route ignores `Accept` and sets no `Content-Type` (kube-openapi `handler3`). Go's
        // HTTP server then derives `Content-Type` from the body, and sends the media type of plain text.
        Route::OpenApiIndex => Ok(Reply::Response(documents.openapi_v3_index.validated(call.head, TEXT))),
        Route::OpenApiDocument(version) => {
            let document = &documents.of_version(*version)?.openapi_v3;
            check_json(call)?;
            Ok(Reply::Response(openapi_v3(document, *version, call)))
        }
        Route::AllNamespaces
        | Route::Lease { .. }
        | Route::Metrics
        | Route::Namespace(_)
        | Route::Unknown
        | Route::Watch { .. } => Err(ApiError::PathNotFound),
    }
}

/// Returns the negotiated form of a discovery document. An interactive client, such as a browser, gets indented JSON.
fn pretty(found: Result<DiscoveryForm, Unacceptable>, call: &Call<'_>) -> Result<DiscoveryForm, ApiError> {
    let form = found.map_err(ApiError::NotAcceptable)?;
    Ok(DiscoveryForm { pretty: form.pretty || is_pretty(call.head, &call.query), ..form })
}

/// Returns the list of API groups or the aggregated document, whichever `Accept` selects. `form` is the negotiated
/// form.
fn groups_or(list: &Discovery, aggregated: &Aggregated, form: DiscoveryForm, call: &Call<'_>) -> Reply {
    let Some(version) = form.aggregated else { return list.plain(form) };
    let document = match version {
        DiscoveryVersion::V2 => &aggregated.v2,
        DiscoveryVersion::V2Beta1 => &aggregated.v2beta1,
    };
    let response = document.validated(call.head, form);
    Reply::Response(Response { cache_control: CacheControl::Public, ..response })
}

fn check_json(call: &Call<'_>) -> Result<(), ApiError> {
    let refused = ApiError::NotAcceptable(Unacceptable::Route { streaming: false });
    if takes_json(call.head.accept) { Ok(()) } else { Err(refused) }
}

/// Returns the OpenAPI 3.0 document of one API version. A URL with the correct hash always returns the same bytes, so
/// a client may cache the response.
///
/// A request with another hash is redirected to the URL with the correct hash (kube-openapi `handler3`). For some
/// seconds after a takeover or rollback, kube-apiserver's index still has the hash of the document that was served
/// before. kube-apiserver does not forward a redirect to the client. So a client behind kube-apiserver gets the
/// document instead of a redirect.
fn openapi_v3(document: &Document, version: ApiVersion, call: &Call<'_>) -> Response {
    const YEAR_SECONDS: i64 = 365 * 24 * 60 * 60;
    let hash = call.query.value("hash").unwrap_or_default();
    if hash.is_empty() || hash != document.hash && matches!(call.caller, Caller::Proxied(_)) {
        return document.validated(call.head, Format::Json.media_type());
    }
    if hash != document.hash {
        let mut moved = Response::new(301, TEXT, "Moved Permanently\n".into());
        moved.fields.push(("location", openapi::url(version, &document.hash)));
        return moved;
    }
    let mut response = document.validated(call.head, Format::Json.media_type());
    response.cache_control = CacheControl::PublicImmutable;
    let mut expires = HttpDate::default();
    expires.update(Time(call.now.wall.0.saturating_add(YEAR_SECONDS)));
    response.fields.push(("expires", String::from_utf8_lossy(expires.as_bytes()).into_owned()));
    response
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::codec::Format;
    use memchr::memmem;

    #[test]
    fn every_document_is_json() {
        let documents = &*DOCUMENTS;
        let of_versions = documents.of_versions.iter().map(|of| &of.openapi_v3);
        let others = [&documents.version, &documents.openapi_v2, &documents.openapi_v3_index];
        for document in of_versions.chain(others) {
            let parsed: Result<serde_json::Value, _> = serde_json::from_slice(&document.body);
            assert!(parsed.is_ok_and(|value| value.is_object()), "{:?}", document.body);
        }
    }

    #[test]
    fn discovery_has_the_same_content_in_every_format() {
        let documents = &*DOCUMENTS;
        let of_versions = documents.of_versions.iter().map(|of| &of.resource_list);
        let others = [
            &documents.legacy_versions,
            &documents.group_list,
            &documents.group,
            &documents.aggregated.v2,
            &documents.aggregated.v2beta1,
            &documents.aggregated_legacy.v2,
            &documents.aggregated_legacy.v2beta1,
        ];
        for document in of_versions.chain(others) {
            let body = |format, pretty| document.body(DiscoveryForm { format, pretty, aggregated: None });
            let json: serde_json::Value = serde_json::from_slice(body(Format::Json, false)).expect("JSON");
            let pretty: serde_json::Value = serde_json::from_slice(body(Format::Json, true)).expect("JSON");
            let yaml = crate::codec::yaml::decode(body(Format::Yaml, false)).expect("YAML").value;
            assert!(json.is_object());
            assert_eq!(pretty, json);
            assert_eq!(serde_json::to_value(yaml).expect("JSON"), json);
            let protobuf = body(Format::Protobuf, false);
            each_text(&json, &mut |text| {
                assert!(memmem::find(protobuf, text.as_bytes()).is_some(), "{text} in {json}");
            });
        }
    }

    fn each_text(value: &serde_json::Value, each: &mut impl FnMut(&str)) {
        match value {
            serde_json::Value::String(text) => each(text),
            serde_json::Value::Array(items) => items.iter().for_each(|item| each_text(item, each)),
            serde_json::Value::Object(members) => members.values().for_each(|member| each_text(member, each)),
            _ => {}
        }
    }

    #[test]
    fn the_index_leads_to_the_documents() {
        let documents = &*DOCUMENTS;
        let index: serde_json::Value = serde_json::from_slice(&documents.openapi_v3_index.body).expect("JSON");
        for (version, of_version) in ApiVersion::ALL.into_iter().zip(&documents.of_versions) {
            let url = &index["paths"][format!("apis/{}", version.group_version())]["serverRelativeURL"];
            let (path, query) = url.as_str().and_then(|url| url.split_once('?')).expect("a query");
            assert_eq!(Route::of(path), Route::OpenApiDocument(version));
            assert_eq!(query, format!("hash={}", of_version.openapi_v3.hash));
        }
    }
}
