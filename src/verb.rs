//! The verb of a request for Leases.

use crate::http::Method;
use crate::route::Route;

/// The verb of a request for a resource, as in Kubernetes' authorization, metrics and audit (apiserver
/// `endpoints/request/requestinfo.go`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verb {
    /// POST.
    Create,
    /// DELETE of one Lease.
    Delete,
    /// DELETE without a name.
    DeleteCollection,
    /// GET or HEAD of one Lease.
    Get,
    /// GET or HEAD without a name.
    List,
    /// PATCH.
    Patch,
    /// PUT.
    Update,
    /// GET or HEAD without a name if the query asks for a watch, and any method below `/watch/`.
    Watch,
    /// Any other method.
    Unknown,
}

impl Verb {
    /// Returns the verb of a request whose path names a resource; `None` for any other path. `asks_to_watch` returns
    /// whether the query asks for a watch. The function calls `asks_to_watch` only for a GET or HEAD without a name,
    /// since a search of the query takes time.
    pub fn of(method: Method, route: &Route<'_>, asks_to_watch: impl FnOnce() -> bool) -> Option<Self> {
        if !route.is_resource() {
            return None;
        }
        let has_name = matches!(route, Route::Lease { .. });
        Some(match method {
            _ if matches!(route, Route::Watch { .. }) => Self::Watch,
            Method::Delete if has_name => Self::Delete,
            Method::Delete => Self::DeleteCollection,
            Method::Get | Method::Head if has_name => Self::Get,
            Method::Get | Method::Head => {
                if asks_to_watch() {
                    Self::Watch
                } else {
                    Self::List
                }
            }
            Method::Patch => Self::Patch,
            Method::Post => Self::Create,
            Method::Put => Self::Update,
            Method::Options | Method::Other => Self::Unknown,
        })
    }

    /// Returns the name of the verb in RBAC rules and in refusals.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Create => "create",
            Self::Delete => "delete",
            Self::DeleteCollection => "deletecollection",
            Self::Get => "get",
            Self::List => "list",
            Self::Patch => "patch",
            Self::Update => "update",
            Self::Watch => "watch",
            Self::Unknown => "",
        }
    }

    /// Whether the verb changes the object or the collection that the path names. The result is false for create, since
    /// the path of a creation does not name the new object. The name is in the body.
    #[must_use]
    pub fn changes(self) -> bool {
        matches!(self, Self::Delete | Self::DeleteCollection | Self::Patch | Self::Update)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_verb_follows_from_method_path_and_query() {
        const LEASES: &str = "/apis/coordination.k8s.io/v1/namespaces/n/leases";
        const ALL: &str = "/apis/coordination.k8s.io/v1/leases";
        const WATCHED: &str = "/apis/coordination.k8s.io/v1/watch/namespaces/n/leases/a";
        let lease = format!("{LEASES}/a");
        for (method, path, asks_to_watch, verb) in [
            (Method::Get, &*lease, false, Some("get")),
            (Method::Get, &lease, true, Some("get")),
            (Method::Head, &lease, false, Some("get")),
            (Method::Put, &lease, false, Some("update")),
            (Method::Patch, &lease, false, Some("patch")),
            (Method::Delete, &lease, false, Some("delete")),
            (Method::Options, &lease, false, Some("")),
            (Method::Get, LEASES, false, Some("list")),
            (Method::Get, LEASES, true, Some("watch")),
            (Method::Head, ALL, true, Some("watch")),
            (Method::Get, ALL, false, Some("list")),
            (Method::Post, LEASES, true, Some("create")),
            (Method::Delete, LEASES, true, Some("deletecollection")),
            (Method::Get, WATCHED, false, Some("watch")),
            (Method::Delete, WATCHED, false, Some("watch")),
            (Method::Get, "/metrics", true, None),
            (Method::Get, "/nothing", false, None),
        ] {
            let found = Verb::of(method, &Route::of(path), || asks_to_watch).map(Verb::name);
            assert_eq!(found, verb, "{method:?} {path} {asks_to_watch}");
        }
    }
}
