//! Parses request paths into routes. Does not parse query options or bodies.

use crate::resource::{ApiVersion, CANARY_API_VERSION};
use memchr::memchr;
use percent_encoding::percent_decode_str;
use std::borrow::Cow;

/// A health probe (Kubernetes, "API health endpoints").
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Probe {
    /// `/healthz`, the oldest probe, without a defined purpose.
    Healthz,
    /// `/livez`: fails if a restart would help.
    Livez,
    /// `/readyz`: passes if clients may send requests to this server.
    Readyz,
}

impl Probe {
    /// Returns the first segment of the probe's paths.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Healthz => "healthz",
            Self::Livez => "livez",
            Self::Readyz => "readyz",
        }
    }
}

/// A parsed path: its route and its API version.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VersionedRoute<'a> {
    /// Version of the API group `coordination.k8s.io` in which the server reads and returns Leases.
    pub version: ApiVersion,
    /// Route of the path.
    pub route: Route<'a>,
}

impl<'a> VersionedRoute<'a> {
    /// Parses a percent-encoded path.
    #[must_use]
    pub fn of(path: &'a str) -> Self {
        if memchr(b'%', path.as_bytes()).is_none() {
            return Self::of_decoded(path);
        }
        // Like kube-apiserver, the server decodes escapes before it splits the path: `%2F` is a slash.
        match percent_decode_str(path).decode_utf8_lossy() {
            Cow::Borrowed(path) => Self::of_decoded(path),
            Cow::Owned(path) => {
                let VersionedRoute { version, route } = VersionedRoute::of_decoded(&path);
                Self { version, route: route.into_owned() }
            }
        }
    }

    fn of_decoded(path: &'a str) -> Self {
        const GROUP_PREFIX: &str = "/apis/coordination.k8s.io/";
        let version_and_rest = || {
            let path = path.strip_prefix(GROUP_PREFIX)?;
            ApiVersion::ALL.into_iter().find_map(|version| {
                let rest = path.strip_prefix(version.name())?.strip_prefix('/')?;
                Some((version, rest))
            })
        };
        if let Some((version, rest)) = version_and_rest()
            && !rest.is_empty()
        {
            return Self { version, route: Route::of_resource(rest) };
        }
        Self { version: ApiVersion::default(), route: Route::of_document(path) }
    }
}

/// The resource or the document that a path names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Route<'a> {
    /// `/apis`
    ApiGroups {
        /// Whether the path has a trailing slash. In kube-apiserver a different handler serves `/apis/`, and does not
        /// offer aggregated discovery.
        has_slash: bool,
    },
    /// `/apis/coordination.k8s.io`
    ApiGroup,
    /// `/apis/coordination.k8s.io/v1`, and the same path with another served version.
    ApiResources(ApiVersion),
    /// `/apis/canary.coordination-apiserver.io/v1`: an API without resources, for the checks of the command `takeover`.
    Canary,
    /// `/api`: the core group of Kubernetes. This server serves no version of that group.
    LegacyApi,
    /// `/healthz`, `/livez`, `/readyz`: all checks of a probe.
    Health(Probe),
    /// One check, below a probe's path. The response contains the reason for a failure. So clients without a
    /// certificate may not request it.
    HealthCheck {
        /// The probe to which the check belongs.
        probe: Probe,
        /// Name of the check.
        name: Cow<'a, str>,
    },
    /// Leases of one namespace. The name of the namespace may be empty. In a list, an empty name means all namespaces.
    Namespace(Cow<'a, str>),
    /// Leases of all namespaces.
    AllNamespaces,
    /// One Lease.
    Lease {
        /// Namespace of the Lease; may be empty.
        namespace: Cow<'a, str>,
        /// Name of the Lease.
        name: Cow<'a, str>,
    },
    /// `/metrics`
    Metrics,
    /// `/openapi/v2`
    OpenApiV2,
    /// `/openapi/v3`
    OpenApiIndex,
    /// `/openapi/v3/apis/coordination.k8s.io/v1`, and the same path with another served version.
    OpenApiDocument(ApiVersion),
    /// `/version`
    Version,
    /// `/watch/…`: a watch of the Leases that the rest of the path names. Such a path is the deprecated form of
    /// `watch=true`.
    Watch {
        /// Namespace of the Leases; `None` for all namespaces.
        namespace: Option<Cow<'a, str>>,
        /// Name of the Lease; `None` for all Leases.
        name: Option<Cow<'a, str>>,
    },
    /// A path that this server does not serve.
    Unknown,
}

impl<'a> Route<'a> {
    /// Parses a percent-encoded path into its route.
    #[must_use]
    pub fn of(path: &'a str) -> Self {
        VersionedRoute::of(path).route
    }

    /// Whether the route names Leases and not a document.
    #[must_use]
    pub fn is_resource(&self) -> bool {
        matches!(self, Self::AllNamespaces | Self::Lease { .. } | Self::Namespace(_) | Self::Watch { .. })
    }

    /// Whether this route allows HEAD like GET, as in kube-apiserver. kube-apiserver's handlers of the routes below
    /// ignore the method, so HEAD gets the response to a GET. For resources and all other documents, kube-apiserver
    /// registers GET but not HEAD, so HEAD gets 405.
    #[must_use]
    pub fn takes_head(&self) -> bool {
        matches!(
            self,
            Self::ApiGroup
                | Self::ApiGroups { .. }
                | Self::Health(_)
                | Self::HealthCheck { .. }
                | Self::Metrics
                | Self::OpenApiDocument(_)
                | Self::OpenApiIndex
                | Self::OpenApiV2
        )
    }

    /// Whether clients without a certificate may send requests to this route.
    #[must_use]
    pub fn is_public(&self) -> bool {
        matches!(self, Self::Health(_) | Self::Version)
    }

    fn of_document(path: &'a str) -> Self {
        match path {
            "/apis/" => Self::ApiGroups { has_slash: true },
            "/healthz" => Self::Health(Probe::Healthz),
            "/livez" => Self::Health(Probe::Livez),
            "/metrics" => Self::Metrics,
            "/openapi/v2" => Self::OpenApiV2,
            "/openapi/v3" => Self::OpenApiIndex,
            "/readyz" => Self::Health(Probe::Readyz),
            _ => Self::of_discovery(path).or_else(|| Self::of_check(path)).unwrap_or(Self::Unknown),
        }
    }

    /// Returns the route of a discovery document, of an OpenAPI document or of `/version`. Allows a trailing slash, as
    /// kube-apiserver's router does, except in the path of an OpenAPI document.
    fn of_discovery(path: &str) -> Option<Self> {
        let version = |name: &str| ApiVersion::ALL.into_iter().find(|served| served.group_version() == name);
        match path.strip_suffix('/').unwrap_or(path) {
            "/api" => Some(Self::LegacyApi),
            "/apis" => Some(Self::ApiGroups { has_slash: false }),
            "/apis/coordination.k8s.io" => Some(Self::ApiGroup),
            "/version" => Some(Self::Version),
            routed => match path.strip_prefix("/openapi/v3/apis/") {
                Some(name) => version(name).map(Self::OpenApiDocument),
                None => match routed.strip_prefix("/apis/")? {
                    CANARY_API_VERSION => Some(Self::Canary),
                    name => version(name).map(Self::ApiResources),
                },
            },
        }
    }

    fn of_check(path: &'a str) -> Option<Self> {
        let (probe, name) = path.strip_prefix('/')?.split_once('/')?;
        let probe = [Probe::Healthz, Probe::Livez, Probe::Readyz].into_iter().find(|known| known.name() == probe)?;
        Some(Self::HealthCheck { probe, name: Cow::Borrowed(name) })
    }

    fn of_resource(rest: &'a str) -> Self {
        let Some(watched) = rest.strip_prefix("watch/") else { return Self::of_leases(rest) };
        match Self::of_leases(watched) {
            Self::AllNamespaces => Self::Watch { namespace: None, name: None },
            Self::Namespace(namespace) if namespace.is_empty() => Self::Watch { namespace: None, name: None },
            Self::Namespace(namespace) => Self::Watch { namespace: Some(namespace), name: None },
            Self::Lease { namespace, name } => Self::Watch { namespace: Some(namespace), name: Some(name) },
            _ => Self::Unknown,
        }
    }

    fn of_leases(rest: &'a str) -> Self {
        // kube-apiserver's router trims all slashes at the end.
        let rest = rest.trim_end_matches('/');
        if rest == "leases" {
            return Self::AllNamespaces;
        }
        let Some((namespace, rest)) = rest.strip_prefix("namespaces/").and_then(|rest| {
            let end = memchr(b'/', rest.as_bytes())?;
            Some((rest.get(..end)?, rest.get(end + 1..)?))
        }) else {
            return Self::Unknown;
        };
        let namespace = Cow::Borrowed(namespace);
        match rest.strip_prefix("leases/") {
            None if rest == "leases" => Self::Namespace(namespace),
            // Leases have no subresources.
            Some(name) if !name.is_empty() && memchr(b'/', name.as_bytes()).is_none() => {
                Self::Lease { namespace, name: Cow::Borrowed(name) }
            }
            _ => Self::Unknown,
        }
    }

    fn into_owned<'b>(self) -> Route<'b> {
        let owned = |part: Cow<'_, str>| Cow::Owned(part.into_owned());
        match self {
            Self::ApiGroups { has_slash } => Route::ApiGroups { has_slash },
            Self::ApiGroup => Route::ApiGroup,
            Self::ApiResources(version) => Route::ApiResources(version),
            Self::Canary => Route::Canary,
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
            Self::Watch { namespace, name } => Route::Watch { namespace: namespace.map(owned), name: name.map(owned) },
            Self::Unknown => Route::Unknown,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ApiVersion::{V1, V1Beta1};

    #[test]
    fn leases_are_found_in_every_version() {
        for (path, version, route) in [
            ("/apis/coordination.k8s.io/v1/leases", V1, Route::AllNamespaces),
            ("/apis/coordination.k8s.io/v1beta1/leases", V1Beta1, Route::AllNamespaces),
            ("/apis/coordination.k8s.io/v1beta1/namespaces/a/leases", V1Beta1, Route::Namespace("a".into())),
            ("/apis/coordination.k8s.io/v1beta%31/namespaces/%61/leases", V1Beta1, Route::Namespace("a".into())),
            ("/apis/coordination.k8s.io/v1beta1/namespaces/a/leasecandidates", V1Beta1, Route::Unknown),
            ("/apis/coordination.k8s.io/v1beta1", V1, Route::ApiResources(V1Beta1)),
            ("/apis/coordination.k8s.io/v1beta1/", V1, Route::ApiResources(V1Beta1)),
            ("/apis/coordination.k8s.io/v1beta2/leases", V1, Route::Unknown),
            ("/apis/coordination.k8s.io//leases", V1, Route::Unknown),
            ("/apis/canary.coordination-apiserver.io/v1", V1, Route::Canary),
            ("/apis/canary.coordination-apiserver.io/v1/leases", V1, Route::Unknown),
            ("/openapi/v3/apis/coordination.k8s.io/v1beta1", V1, Route::OpenApiDocument(V1Beta1)),
        ] {
            assert_eq!(VersionedRoute::of(path), VersionedRoute { version, route }, "{path}");
        }
    }

    #[test]
    fn paths_map_to_their_routes() {
        let lease = |namespace: &'static str, name: &'static str| Route::Lease {
            namespace: Cow::Borrowed(namespace),
            name: Cow::Borrowed(name),
        };
        for (path, route) in [
            ("/apis/coordination.k8s.io/v1/leases", Route::AllNamespaces),
            ("/apis/coordination.k8s.io/v1/namespaces/a/leases", Route::Namespace("a".into())),
            ("/apis/coordination.k8s.io/v1/namespaces/a/leases/", Route::Namespace("a".into())),
            ("/apis/coordination.k8s.io/v1/namespaces/a/leases/%2F/", Route::Namespace("a".into())),
            ("/apis/coordination.k8s.io/v1/namespaces/a/leases/b//", lease("a", "b")),
            ("/apis/coordination.k8s.io/v1/namespaces/a/leases//b", Route::Unknown),
            ("/apis/coordination.k8s.io/v1/namespaces/a/leases/b", lease("a", "b")),
            ("/apis/coordination.k8s.io/v1/namespaces/a/leases/b%2Dc", lease("a", "b-c")),
            ("/apis/coordination.k8s.io/v1/namespaces/a/leases/b%2Fc", Route::Unknown),
            ("/apis/coordination.k8s.io/v1/namespaces/a/leases/b/status", Route::Unknown),
            ("/apis/coordination.k8s.io/v1/namespaces//leases/b", lease("", "b")),
            ("/apis/coordination.k8s.io/v1/namespaces/a/pods", Route::Unknown),
            ("/apis/coordination.k8s.io/v1/watch/leases", Route::Watch { namespace: None, name: None }),
            (
                "/apis/coordination.k8s.io/v1/watch/namespaces/a/leases/",
                Route::Watch { namespace: Some("a".into()), name: None },
            ),
            (
                "/apis/coordination.k8s.io/v1/watch/namespaces/a/leases/b%2Dc",
                Route::Watch { namespace: Some("a".into()), name: Some("b-c".into()) },
            ),
            ("/apis/coordination.k8s.io/v1/watch/namespaces/a/leases/b/status", Route::Unknown),
            ("/apis/coordination.k8s.io/v1/watch/watch/leases", Route::Unknown),
            ("/apis/coordination.k8s.io/v1/watch/", Route::Unknown),
            ("/apis/coordination.k8s.io/v1/watch", Route::Unknown),
            ("/apis/coordination.k8s.io/v1/", Route::ApiResources(V1)),
            ("/apis/coordination.k8s.io/v1", Route::ApiResources(V1)),
            ("/apis/coordination.k8s.io/v1alpha1", Route::Unknown),
            ("/apis", Route::ApiGroups { has_slash: false }),
            ("/apis/", Route::ApiGroups { has_slash: true }),
            ("/apis%2F", Route::ApiGroups { has_slash: true }),
            ("/version/", Route::Version),
            ("/healthz", Route::Health(Probe::Healthz)),
            ("/livez", Route::Health(Probe::Livez)),
            ("/livez/ping/", Route::HealthCheck { probe: Probe::Livez, name: "ping/".into() }),
            ("/healthz/", Route::HealthCheck { probe: Probe::Healthz, name: "".into() }),
            ("/metrics/", Route::Unknown),
            ("/openapi/v2/", Route::Unknown),
            ("/readyz/shutdown", Route::HealthCheck { probe: Probe::Readyz, name: "shutdown".into() }),
            ("/livez/p%69ng", Route::HealthCheck { probe: Probe::Livez, name: "ping".into() }),
            ("/metrics", Route::Metrics),
            ("/openapi/v2", Route::OpenApiV2),
            ("/openapi/v3", Route::OpenApiIndex),
            ("/openapi/v3/", Route::Unknown),
            ("/openapi/v3/apis/coordination.k8s.io/v1/", Route::Unknown),
            ("/openapi/v3/apis/coordination.k8s.io/v1", Route::OpenApiDocument(V1)),
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
