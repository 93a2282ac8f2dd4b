//! Metrics of requests by kind and status, with kube-apiserver's names and labels (apiserver `endpoints/metrics`). So
//! dashboards and alerts for kube-apiserver work with this server. A turn in this module is one pass of the event loop.

use super::histogram::Histogram;
use super::text::Exposition;
use crate::http::{Method, RequestHead};
use crate::resource::{ApiVersion, GROUP, RESOURCE};
use crate::route::{Probe, Route};
use crate::verb::Verb;

/// The `component` label.
pub(super) const COMPONENT: &str = "apiserver";

const KINDS: usize = RequestKind::OtherPath as usize + 1;

/// Labels of a kind of request.
struct Labels {
    verb: &'static str,
    dry_run: &'static str,
    /// Whether requests of this kind are about Leases.
    is_resource: bool,
    subresource: &'static str,
    scope: &'static str,
}

const fn resource(verb: &'static str, scope: &'static str) -> Labels {
    Labels { verb, dry_run: "", is_resource: true, subresource: "", scope }
}

const fn dry(of: Labels) -> Labels {
    Labels { dry_run: "All", ..of }
}

const fn path(subresource: &'static str) -> Labels {
    Labels { verb: "GET", dry_run: "", is_resource: false, subresource, scope: "" }
}

/// Defines [`RequestKind`], and the labels of each kind in the same order.
macro_rules! request_kinds {
    ($($(#[$doc:meta])* $kind:ident => $labels:expr,)*) => {
        /// The kinds of requests that are counted separately.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum RequestKind {
            $($(#[$doc])* $kind,)*
        }

        /// The labels of each kind of request, in the order of [`RequestKind`].
        static LABELS: [Labels; KINDS] = [$($labels,)*];
    };
}

request_kinds! {
    /// An apply patch.
    Apply => resource("APPLY", "resource"),
    /// An apply patch with `dryRun`.
    ApplyDryRun => dry(resource("APPLY", "resource")),
    /// A deletion of one Lease.
    Delete => resource("DELETE", "resource"),
    /// A deletion of one Lease with `dryRun`.
    DeleteDryRun => dry(resource("DELETE", "resource")),
    /// A collection deletion in a namespace.
    DeleteCollection => resource("DELETECOLLECTION", "namespace"),
    /// A collection deletion in a namespace, with `dryRun`.
    DeleteCollectionDryRun => dry(resource("DELETECOLLECTION", "namespace")),
    /// A read of one Lease.
    Get => resource("GET", "resource"),
    /// A list of one namespace.
    ListNamespace => resource("LIST", "namespace"),
    /// A list of all namespaces.
    ListCluster => resource("LIST", "cluster"),
    /// A patch other than an apply patch.
    Patch => resource("PATCH", "resource"),
    /// A patch other than an apply patch, with `dryRun`.
    PatchDryRun => dry(resource("PATCH", "resource")),
    /// A creation.
    Post => resource("POST", "resource"),
    /// A creation with `dryRun`.
    PostDryRun => dry(resource("POST", "resource")),
    /// An update.
    Put => resource("PUT", "resource"),
    /// An update with `dryRun`.
    PutDryRun => dry(resource("PUT", "resource")),
    /// A watch of one namespace.
    WatchNamespace => resource("WATCH", "namespace"),
    /// A watch of all namespaces.
    WatchCluster => resource("WATCH", "cluster"),
    /// A method that the resource does not support.
    OtherVerb => resource("other", "resource"),
    /// `/healthz`.
    Healthz => path("/healthz"),
    /// `/livez`.
    Livez => path("/livez"),
    /// `/readyz`.
    Readyz => path("/readyz"),
    /// `/metrics`.
    Metrics => path("/metrics"),
    /// `/api`, `/apis` and below.
    Discovery => path("/apis"),
    /// `/openapi`.
    OpenApi => path("/openapi"),
    /// `/version`.
    Version => path("/version"),
    /// Another path.
    OtherPath => Labels { verb: "other", dry_run: "", is_resource: false, subresource: "", scope: "" },
}

impl RequestKind {
    /// Returns the kind of a request. `verb` is the verb of a request for Leases, and `None` for any other path.
    #[must_use]
    pub fn of(route: &Route<'_>, verb: Option<Verb>, head: &RequestHead<'_>) -> Self {
        let Some(verb) = verb else { return Self::of_document(route, head.method) };
        let is_dry = !head.query.is_empty() && head.query.contains("dryRun=All");
        let dry_or = |dry: Self, real: Self| if is_dry { dry } else { real };
        match (route, verb) {
            (Route::Lease { .. }, Verb::Get) => Self::Get,
            (Route::Lease { .. }, Verb::Update) => dry_or(Self::PutDryRun, Self::Put),
            (Route::Lease { .. }, Verb::Patch) if is_apply(head) => dry_or(Self::ApplyDryRun, Self::Apply),
            (Route::Lease { .. }, Verb::Patch) => dry_or(Self::PatchDryRun, Self::Patch),
            (Route::Lease { .. }, Verb::Delete) => dry_or(Self::DeleteDryRun, Self::Delete),
            (Route::Namespace(_), Verb::Watch) => Self::WatchNamespace,
            (Route::Namespace(_), Verb::List) => Self::ListNamespace,
            (Route::Namespace(_), Verb::Create) => dry_or(Self::PostDryRun, Self::Post),
            (Route::Namespace(_), Verb::DeleteCollection) => {
                dry_or(Self::DeleteCollectionDryRun, Self::DeleteCollection)
            }
            (Route::AllNamespaces, Verb::Watch) => Self::WatchCluster,
            (Route::AllNamespaces, Verb::List) => Self::ListCluster,
            (Route::Watch { namespace: Some(_), .. }, _) if head.method == Method::Get => Self::WatchNamespace,
            (Route::Watch { namespace: None, .. }, _) if head.method == Method::Get => Self::WatchCluster,
            _ => Self::OtherVerb,
        }
    }

    fn of_document(route: &Route<'_>, method: Method) -> Self {
        if !matches!(method, Method::Get | Method::Head) {
            return Self::OtherPath;
        }
        match route {
            Route::Health(probe) | Route::HealthCheck { probe, .. } => match probe {
                Probe::Healthz => Self::Healthz,
                Probe::Livez => Self::Livez,
                Probe::Readyz => Self::Readyz,
            },
            Route::Metrics => Self::Metrics,
            Route::ApiGroup | Route::ApiGroups { .. } | Route::ApiResources(_) | Route::Canary | Route::LegacyApi => {
                Self::Discovery
            }
            Route::OpenApiDocument(_) | Route::OpenApiIndex | Route::OpenApiV2 => Self::OpenApi,
            Route::Version => Self::Version,
            _ => Self::OtherPath,
        }
    }

    /// Whether the kind is a watch. The duration of a watch says nothing about the speed of the server, so it is not
    /// counted.
    fn is_watch(self) -> bool {
        matches!(self, Self::WatchCluster | Self::WatchNamespace)
    }
}

/// Whether a patch is an apply patch. A patch in the refused format `apply-patch+cbor` counts too.
fn is_apply(head: &RequestHead<'_>) -> bool {
    head.content_type.is_some_and(|content_type| content_type.starts_with(b"application/apply-patch"))
}

/// Status codes of the API's responses; other codes are counted together. Malformed requests are not counted here.
const STATUSES: [u16; 21] =
    [200, 201, 202, 301, 304, 400, 401, 403, 404, 405, 406, 409, 410, 413, 415, 422, 429, 500, 503, 504, 507];

/// Returns the index of a status in [`STATUSES`], or the length of [`STATUSES`] for any other status.
fn status_index(status: u16) -> usize {
    match status {
        // Nearly all responses have this status.
        200 => 0,
        status => STATUSES.iter().position(|known| *known == status).unwrap_or(STATUSES.len()),
    }
}

/// Bounds of request durations, in µs: six bounds of this server, and then those of kube-apiserver. The six separate a
/// renewal in memory from a renewal on a slow disk.
const BOUNDS_US: [u64; 29] = [
    50, 100, 250, 500, 1_000, 2_500, 5_000, 25_000, 50_000, 100_000, 200_000, 400_000, 600_000, 800_000, 1_000_000,
    1_250_000, 1_500_000, 2_000_000, 3_000_000, 4_000_000, 5_000_000, 6_000_000, 8_000_000, 10_000_000, 15_000_000,
    20_000_000, 30_000_000, 45_000_000, 60_000_000,
];

/// Counts of requests by kind, version and status, and histograms of their durations.
#[derive(Debug)]
pub(super) struct RequestCounts {
    by_status: Box<[[u64; STATUSES.len() + 1]; COUNTED]>,
    /// Numbers of requests in this turn of the event loop. They are counted separately, because the turn's duration is
    /// known only at its end.
    in_turn: [u32; COUNTED],
    /// Bit set of the non-zero counts in `in_turn`.
    kinds_in_turn: u64,
    /// Requests that ended in this turn and may have begun in an earlier turn: their index, and the time between the
    /// two turns in µs.
    ended_in_turn: Vec<(usize, u64)>,
    durations: Box<[Histogram<{ BOUNDS_US.len() }>; COUNTED]>,
}

const _: () = assert!(COUNTED <= u64::BITS as usize);

/// Number of pairs of a kind and a version. Requests without a version count under the first version.
const COUNTED: usize = KINDS * ApiVersion::ALL.len();

/// Returns the index at which a request of this kind and version is counted.
#[inline]
fn index(kind: RequestKind, version: ApiVersion) -> usize {
    kind as usize + KINDS * version as usize
}

impl RequestCounts {
    pub(super) fn new() -> Self {
        Self {
            by_status: Box::new([[0; STATUSES.len() + 1]; COUNTED]),
            in_turn: [0; COUNTED],
            kinds_in_turn: 0,
            ended_in_turn: Vec::new(),
            durations: Box::new([const { Histogram::new(&BOUNDS_US) }; COUNTED]),
        }
    }

    #[inline]
    pub(super) fn count(&mut self, kind: RequestKind, version: ApiVersion, status: u16, waited_ms: u64) {
        let at = self.count_begin(kind, version, status);
        if kind.is_watch() {
            return;
        }
        if waited_ms > 0 {
            self.count_end(kind, version, waited_ms);
        } else {
            self.in_turn[at] += 1;
            self.kinds_in_turn |= 1 << at;
        }
    }

    /// Counts a response that begins, without its duration. Returns the index of the request's kind and version.
    #[inline]
    pub(super) fn count_begin(&mut self, kind: RequestKind, version: ApiVersion, status: u16) -> usize {
        let at = index(kind, version);
        self.by_status[at][status_index(status)] += 1;
        at
    }

    /// Counts a response that ends in this turn. `waited_ms` is the time from the turn that read the request to this
    /// turn.
    pub(super) fn count_end(&mut self, kind: RequestKind, version: ApiVersion, waited_ms: u64) {
        self.ended_in_turn.push((index(kind, version), waited_ms.saturating_mul(1000)));
    }

    /// Ends a turn: for each request that ended in it, counts the turn's duration plus the request's wait since an
    /// earlier turn.
    pub(super) fn end_turn(&mut self, duration_us: u64) {
        for (at, waited_us) in self.ended_in_turn.drain(..) {
            self.durations[at].observe(duration_us.saturating_add(waited_us));
        }
        while self.kinds_in_turn != 0 {
            let at = self.kinds_in_turn.trailing_zeros() as usize;
            self.kinds_in_turn &= self.kinds_in_turn - 1;
            let count = std::mem::take(&mut self.in_turn[at]);
            self.durations[at].observe_many(duration_us, count.into());
        }
    }

    pub(super) fn encode(&self, out: &mut Exposition) {
        const TOTAL: &str = "apiserver_request_total";
        const DURATION: &str = "apiserver_request_duration_seconds";
        out.counter(TOTAL, "Answered requests. A watch or a long list counts when its response begins.");
        for (labels, by_status) in labels().zip(self.by_status.iter()) {
            for (at, count) in by_status.iter().enumerate().filter(|(_, count)| **count > 0) {
                let code = STATUSES.get(at).map_or_else(|| "other".to_owned(), u16::to_string);
                let mut all = labels.to_vec();
                all.push(("code", code.as_str()));
                out.sample(TOTAL, &all, count);
            }
        }
        out.histogram(
            DURATION,
            "Duration of the event loop's turn that answered a request, from wake-up to last write. All requests of a \
             turn count alike. A list, a collection deletion, or a request that waited, counts from the turn in which \
             it arrived to the turn that completed its response. It is left out if its client disconnected before. \
             Watches are left out.",
        );
        for (labels, durations) in labels().zip(self.durations.iter()).filter(|(_, d)| !d.is_empty()) {
            durations.encode(out, DURATION, &labels);
        }
    }
}

/// Returns the labels of all pairs of a version and a kind, in the order of the counts.
fn labels() -> impl Iterator<Item = [(&'static str, &'static str); 8]> {
    ApiVersion::ALL.into_iter().flat_map(|version| LABELS.iter().map(move |labels| labels.pairs(version)))
}

impl Labels {
    fn pairs(&self, version: ApiVersion) -> [(&'static str, &'static str); 8] {
        let of_resource = |label| if self.is_resource { label } else { "" };
        [
            ("verb", self.verb),
            ("dry_run", self.dry_run),
            ("group", of_resource(GROUP)),
            ("version", of_resource(version.name())),
            ("resource", of_resource(RESOURCE)),
            ("subresource", self.subresource),
            ("scope", self.scope),
            ("component", COMPONENT),
        ]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::http::{NoLines, reason_phrase};
    use crate::options::{Query, asks_to_watch};

    fn kind(method: Method, target: &str, content_type: Option<&str>) -> RequestKind {
        let (path, query) = target.split_once('?').unwrap_or((target, ""));
        let bare = RequestHead::bare(method, path, query, &NoLines);
        let head = RequestHead { content_type: content_type.map(str::as_bytes), ..bare };
        let route = Route::of(path);
        let verb = Verb::of(method, &route, || asks_to_watch(&Query::new(query)));
        RequestKind::of(&route, verb, &head)
    }

    const LEASES: &str = "/apis/coordination.k8s.io/v1/namespaces/n/leases";

    #[test]
    fn each_request_kind_has_its_labels() {
        let lease = format!("{LEASES}/a");
        for (kind, labels) in [
            (kind(Method::Get, &lease, None), ("GET", "", "resource")),
            (kind(Method::Put, &lease, None), ("PUT", "", "resource")),
            (kind(Method::Put, &format!("{lease}?dryRun=All"), None), ("PUT", "All", "resource")),
            (kind(Method::Patch, &lease, Some("application/merge-patch+json")), ("PATCH", "", "resource")),
            (kind(Method::Patch, &lease, Some("application/apply-patch+yaml")), ("APPLY", "", "resource")),
            (kind(Method::Delete, &lease, None), ("DELETE", "", "resource")),
            (kind(Method::Post, &lease, None), ("other", "", "resource")),
            (kind(Method::Post, LEASES, None), ("POST", "", "resource")),
            (kind(Method::Delete, LEASES, None), ("DELETECOLLECTION", "", "namespace")),
            (kind(Method::Head, LEASES, None), ("LIST", "", "namespace")),
            (kind(Method::Get, &format!("{LEASES}?allowWatchBookmarks=true"), None), ("LIST", "", "namespace")),
            (kind(Method::Get, &format!("{LEASES}?watch=false"), None), ("LIST", "", "namespace")),
            (kind(Method::Get, &format!("{LEASES}?watch=FALSE"), None), ("LIST", "", "namespace")),
            (kind(Method::Get, &format!("{LEASES}?limit=1&watch"), None), ("WATCH", "", "namespace")),
            (kind(Method::Get, &format!("{LEASES}?watchful=1&%77atch=true"), None), ("WATCH", "", "namespace")),
            (kind(Method::Get, "/apis/coordination.k8s.io/v1/leases", None), ("LIST", "", "cluster")),
            (kind(Method::Get, "/apis/coordination.k8s.io/v1/leases?watch=1", None), ("WATCH", "", "cluster")),
            (kind(Method::Get, "/readyz/ping", None), ("GET", "", "")),
            (kind(Method::Get, "/openapi/v2", None), ("GET", "", "")),
            (kind(Method::Post, "/apis", None), ("other", "", "")),
            (kind(Method::Get, "/nothing", None), ("other", "", "")),
        ] {
            let found = &LABELS[kind as usize];
            assert_eq!((found.verb, found.dry_run, found.scope), labels, "{kind:?}");
        }
        for (path, subresource) in [("/readyz", "/readyz"), ("/metrics", "/metrics"), ("/api", "/apis")] {
            assert_eq!(LABELS[kind(Method::Get, path, None) as usize].subresource, subresource);
        }
    }

    #[test]
    fn a_request_lasts_for_its_turn_and_its_waiting_time() {
        let mut counts = RequestCounts::new();
        counts.count(RequestKind::Put, ApiVersion::V1, 200, 0);
        counts.count(RequestKind::Put, ApiVersion::V1, 409, 0);
        counts.count(RequestKind::WatchCluster, ApiVersion::V1, 200, 0);
        counts.end_turn(6_000);
        counts.count(RequestKind::Put, ApiVersion::V1, 299, 0);
        counts.end_turn(100);
        counts.end_turn(9_000_000);
        // This deletion waited for the journal before the server refused it.
        counts.count(RequestKind::Delete, ApiVersion::V1, 409, 30);
        counts.count_begin(RequestKind::ListCluster, ApiVersion::V1, 200);
        counts.end_turn(100);
        counts.count_end(RequestKind::ListCluster, ApiVersion::V1, 20);
        counts.end_turn(6_000);
        counts.end_turn(9_000_000);
        let mut out = Exposition::new();
        counts.encode(&mut out);
        let text = String::from_utf8(out.finish()).expect("text");
        let resource = "group=\"coordination.k8s.io\",version=\"v1\",resource=\"leases\",subresource=\"\"";
        let put = format!("verb=\"PUT\",dry_run=\"\",{resource},scope=\"resource\",component=\"apiserver\"");
        let list = format!("verb=\"LIST\",dry_run=\"\",{resource},scope=\"cluster\",component=\"apiserver\"");
        let delete = put.replace("PUT", "DELETE");
        for line in [
            format!("apiserver_request_duration_seconds_sum{{{delete}}} 0.0301"),
            format!("apiserver_request_total{{{put},code=\"200\"}} 1"),
            format!("apiserver_request_total{{{put},code=\"409\"}} 1"),
            format!("apiserver_request_total{{{put},code=\"other\"}} 1"),
            format!("apiserver_request_duration_seconds_bucket{{{put},le=\"0.005\"}} 1"),
            format!("apiserver_request_duration_seconds_bucket{{{put},le=\"0.025\"}} 3"),
            format!("apiserver_request_duration_seconds_sum{{{put}}} 0.0121"),
            format!("apiserver_request_duration_seconds_count{{{put}}} 3"),
            format!("apiserver_request_total{{{list},code=\"200\"}} 1"),
            format!("apiserver_request_duration_seconds_sum{{{list}}} 0.026"),
            format!("apiserver_request_duration_seconds_count{{{list}}} 1"),
        ] {
            assert!(text.lines().any(|found| found == line), "{line}\n{text}");
        }
        assert!(text.contains("verb=\"WATCH\"") && !text.contains("seconds_count{verb=\"WATCH\""), "{text}");
    }

    #[test]
    fn every_status_has_its_own_index_and_a_reason_phrase() {
        for (at, status) in STATUSES.into_iter().enumerate() {
            assert_eq!(status_index(status), at);
            assert_ne!(reason_phrase(status), "", "{status}");
        }
        assert_eq!(status_index(999), STATUSES.len());
    }
}
