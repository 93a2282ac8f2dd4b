//! Paths to what they name. Knows neither options nor bodies.

use percent_encoding::percent_decode_str;
use std::borrow::Cow;

/// A version of the group.
#[derive(Debug, PartialEq, Eq)]
pub struct GroupVersion {
    /// Its name: `v1`.
    pub version: &'static str,
    /// Group and version, as `apiVersion` has them.
    pub group_version: &'static str,
}

/// The versions that discovery tells of, the preferred one first. Their documents are made from this table.
pub static VERSIONS: [GroupVersion; 1] = [GroupVersion { version: "v1", group_version: "coordination.k8s.io/v1" }];

/// What a health check is asked for (Kubernetes, "API health endpoints").
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Probe {
    /// `/healthz`, the oldest, which does not say what it is for.
    Healthz,
    /// `/livez`: whether it would help to start the process anew.
    Livez,
    /// `/readyz`: whether requests should come here.
    Readyz,
}

impl Probe {
    /// The first segment of its paths.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Healthz => "healthz",
            Self::Livez => "livez",
            Self::Readyz => "readyz",
        }
    }
}

/// What a path names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Route<'a> {
    /// `/apis`
    ApiGroups,
    /// `/apis/coordination.k8s.io`
    ApiGroup,
    /// `/apis/coordination.k8s.io/v1`
    ApiResources(&'static GroupVersion),
    /// `/api`: the legacy API has no version here.
    LegacyApi,
    /// `/healthz`, `/livez`, `/readyz`: all checks.
    Health(Probe),
    /// One check, below one of those. It says why it fails, so it is not for everybody.
    HealthCheck {
        /// Below which.
        probe: Probe,
        /// The check's name.
        name: Cow<'a, str>,
    },
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
    /// `/metrics`
    Metrics,
    /// `/openapi/v2`
    OpenApiV2,
    /// `/openapi/v3`
    OpenApiIndex,
    /// `/openapi/v3/apis/coordination.k8s.io/v1`
    OpenApiDocument(&'static GroupVersion),
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
        matches!(self, Self::Health(_) | Self::Version)
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
            "/healthz" => Self::Health(Probe::Healthz),
            "/livez" => Self::Health(Probe::Livez),
            "/metrics" => Self::Metrics,
            "/openapi/v2" => Self::OpenApiV2,
            "/openapi/v3" => Self::OpenApiIndex,
            "/readyz" => Self::Health(Probe::Readyz),
            "/version" => Self::Version,
            path => Self::of_versioned(path).or_else(|| Self::of_check(path)).unwrap_or(Self::Unknown),
        }
    }

    /// Documents of one version.
    fn of_versioned(path: &str) -> Option<Self> {
        let version = |name: &str| VERSIONS.iter().find(|served| served.group_version == name);
        match path.strip_prefix("/openapi/v3/apis/") {
            Some(name) => version(name).map(Self::OpenApiDocument),
            None => version(path.strip_prefix("/apis/")?).map(Self::ApiResources),
        }
    }

    fn of_check(path: &'a str) -> Option<Self> {
        let (probe, name) = path.strip_prefix('/')?.split_once('/')?;
        let probe = [Probe::Healthz, Probe::Livez, Probe::Readyz].into_iter().find(|known| known.name() == probe)?;
        Some(Self::HealthCheck { probe, name: Cow::Borrowed(name) })
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
            Self::ApiResources(version) => Route::ApiResources(version),
            Self::LegacyApi => Route::LegacyApi,
            Self::Health(probe) => Route::Health(probe),
            Self::HealthCheck { probe, name } => Route::HealthCheck { probe, name: owned(name) },
            Self::Namespace(namespace) => Route::Namespace(owned(namespace)),
            Self::AllNamespaces => Route::AllNamespaces,
            Self::Lease { namespace, name } => Route::Lease { namespace: owned(namespace), name: owned(name) },
            Self::Metrics => Route::Metrics,
            Self::OpenApiV2 => Route::OpenApiV2,
            Self::OpenApiIndex => Route::OpenApiIndex,
            Self::OpenApiDocument(version) => Route::OpenApiDocument(version),
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
            ("/apis/coordination.k8s.io/v1/", Route::ApiResources(&VERSIONS[0])),
            ("/apis/coordination.k8s.io/v1", Route::ApiResources(&VERSIONS[0])),
            ("/apis/coordination.k8s.io/v1alpha1", Route::Unknown),
            ("/apis/", Route::ApiGroups),
            ("/healthz", Route::Health(Probe::Healthz)),
            ("/livez/", Route::Health(Probe::Livez)),
            ("/readyz/shutdown", Route::HealthCheck { probe: Probe::Readyz, name: "shutdown".into() }),
            ("/livez/p%69ng", Route::HealthCheck { probe: Probe::Livez, name: "ping".into() }),
            ("/metrics", Route::Metrics),
            ("/openapi/v2", Route::OpenApiV2),
            ("/openapi/v3/", Route::OpenApiIndex),
            ("/openapi/v3/apis/coordination.k8s.io/v1", Route::OpenApiDocument(&VERSIONS[0])),
            ("/openapi/v3/apis/coordination.k8s.io", Route::Unknown),
            ("/", Route::Unknown),
            ("", Route::Unknown),
            ("*", Route::Unknown),
            ("/%FF%", Route::Unknown),
        ] {
            assert_eq!(Route::of(path), route, "{path}");
        }
    }
}
