//! Paths to what they name. Knows neither options nor bodies.

use percent_encoding::percent_decode_str;
use std::borrow::Cow;

/// What a path names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Route<'a> {
    /// `/apis`
    ApiGroups,
    /// `/apis/coordination.k8s.io`
    ApiGroup,
    /// `/apis/coordination.k8s.io/v1`
    ApiResources,
    /// `/api`: the legacy API has no version here.
    LegacyApi,
    /// `/healthz`, `/livez`, `/readyz` and what is below them.
    Health,
    /// Leases of one namespace.
    Namespace(Cow<'a, str>),
    /// Leases of all namespaces.
    AllNamespaces,
    /// One Lease.
    Lease {
        /// Its namespace.
        namespace: Cow<'a, str>,
        /// Its name.
        name: Cow<'a, str>,
    },
    /// `/openapi/v3`
    OpenApiIndex,
    /// `/openapi/v3/apis/coordination.k8s.io/v1`
    OpenApiDocument,
    /// `/version`
    Version,
    /// Nothing.
    Unknown,
}

impl<'a> Route<'a> {
    /// The route of a percent-encoded path.
    #[must_use]
    pub fn of(path: &'a str) -> Self {
        // Escapes are resolved before the path is cut into segments, as kube-apiserver does it: `%2F` is a slash.
        match percent_decode_str(path).decode_utf8_lossy() {
            Cow::Borrowed(path) => Self::of_decoded(path),
            Cow::Owned(path) => Route::of_decoded(&path).into_owned(),
        }
    }

    /// Whether anybody may ask for it, without a certificate.
    #[must_use]
    pub fn is_public(&self) -> bool {
        matches!(self, Self::Health | Self::Version)
    }

    fn of_decoded(path: &'a str) -> Self {
        const LEASES: &str = "/apis/coordination.k8s.io/v1/";
        if let Some(rest) = path.strip_prefix(LEASES).filter(|rest| !rest.is_empty()) {
            return Self::of_resource(rest);
        }
        match path.strip_suffix('/').unwrap_or(path) {
            "/api" => Self::LegacyApi,
            "/apis" => Self::ApiGroups,
            "/apis/coordination.k8s.io" => Self::ApiGroup,
            "/apis/coordination.k8s.io/v1" => Self::ApiResources,
            "/openapi/v3" => Self::OpenApiIndex,
            "/openapi/v3/apis/coordination.k8s.io/v1" => Self::OpenApiDocument,
            "/version" => Self::Version,
            "/healthz" | "/livez" | "/readyz" => Self::Health,
            _ => Self::Unknown,
        }
    }

    fn of_resource(rest: &'a str) -> Self {
        let mut segments = rest.strip_suffix('/').unwrap_or(rest).split('/');
        let route = match (segments.next(), segments.next(), segments.next(), segments.next()) {
            (Some("leases"), None, None, None) => Self::AllNamespaces,
            (Some("namespaces"), Some(namespace), Some("leases"), None) if !namespace.is_empty() => {
                Self::Namespace(Cow::Borrowed(namespace))
            }
            (Some("namespaces"), Some(namespace), Some("leases"), Some(name))
                if !namespace.is_empty() && !name.is_empty() =>
            {
                Self::Lease { namespace: Cow::Borrowed(namespace), name: Cow::Borrowed(name) }
            }
            _ => return Self::Unknown,
        };
        // Subresources: there are none.
        if segments.next().is_some() { Self::Unknown } else { route }
    }

    fn into_owned<'b>(self) -> Route<'b> {
        let owned = |part: Cow<'_, str>| Cow::Owned(part.into_owned());
        match self {
            Self::ApiGroups => Route::ApiGroups,
            Self::ApiGroup => Route::ApiGroup,
            Self::ApiResources => Route::ApiResources,
            Self::LegacyApi => Route::LegacyApi,
            Self::Health => Route::Health,
            Self::Namespace(namespace) => Route::Namespace(owned(namespace)),
            Self::AllNamespaces => Route::AllNamespaces,
            Self::Lease { namespace, name } => Route::Lease { namespace: owned(namespace), name: owned(name) },
            Self::OpenApiIndex => Route::OpenApiIndex,
            Self::OpenApiDocument => Route::OpenApiDocument,
            Self::Version => Route::Version,
            Self::Unknown => Route::Unknown,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_name_what_they_should() {
        let lease = |namespace: &'static str, name: &'static str| Route::Lease {
            namespace: Cow::Borrowed(namespace),
            name: Cow::Borrowed(name),
        };
        for (path, route) in [
            ("/apis/coordination.k8s.io/v1/leases", Route::AllNamespaces),
            ("/apis/coordination.k8s.io/v1/namespaces/a/leases", Route::Namespace("a".into())),
            ("/apis/coordination.k8s.io/v1/namespaces/a/leases/", Route::Namespace("a".into())),
            ("/apis/coordination.k8s.io/v1/namespaces/a/leases/b", lease("a", "b")),
            ("/apis/coordination.k8s.io/v1/namespaces/a/leases/b%2Dc", lease("a", "b-c")),
            ("/apis/coordination.k8s.io/v1/namespaces/a/leases/b%2Fc", Route::Unknown),
            ("/apis/coordination.k8s.io/v1/namespaces/a/leases/b/status", Route::Unknown),
            ("/apis/coordination.k8s.io/v1/namespaces//leases/b", Route::Unknown),
            ("/apis/coordination.k8s.io/v1/namespaces/a/pods", Route::Unknown),
            ("/apis/coordination.k8s.io/v1/", Route::ApiResources),
            ("/apis/coordination.k8s.io/v1", Route::ApiResources),
            ("/apis/", Route::ApiGroups),
            ("/healthz", Route::Health),
            ("/", Route::Unknown),
            ("", Route::Unknown),
            ("*", Route::Unknown),
            ("/%FF%", Route::Unknown),
        ] {
            assert_eq!(Route::of(path), route, "{path}");
        }
    }
}
