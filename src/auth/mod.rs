//! Authentication of callers, and authorization of their requests.
//!
//! kube-apiserver authorizes the requests that it forwards as a front proxy, but runs no admission for them. So for
//! forwarded requests, this module checks [NodeRestriction](node). It also checks that only members of `system:masters`
//! write the Leases that control this server. For direct callers, this module is stricter than kube-apiserver. The
//! Leases keep a cluster's nodes alive, so a certificate of the client CA does not suffice. Members of `system:masters`
//! may do everything. A node may use its own heartbeat, the Lease with the node's name in `kube-node-lease`. Members of
//! `system:monitoring` may read the metrics, as RBAC allows in every cluster. Any other direct caller has no rights.
//! The error messages are those of kube-apiserver (`endpoints/filters/authorization.go`,
//! `plugin/pkg/admission/noderestriction`).

mod credentials;
mod node;
mod request_header;

pub use credentials::Credentials;

use crate::api_error::ApiError;
use crate::handover;
use crate::http::Method;
use crate::resource::{GROUP, NODE_LEASE_NAMESPACE, RESOURCE};
use crate::route::Route;
use crate::schedule::Requester;
use crate::tls::identity::{GROUP_MASTERS, Identity, USER_ANONYMOUS};
use crate::verb::Verb;
use node::{ONLY_OWN_NAME, node_name, only_namespace};
use std::rc::Rc;

/// The sender of a request, as far as the server has authenticated the sender.
#[derive(Clone, Debug)]
pub enum Caller {
    /// A caller without a proven identity, who may read only health and version.
    Anonymous,
    /// A caller on the cleartext port. This port is on loopback and grants full rights.
    Insecure,
    /// The user that the front proxy named. kube-apiserver has already authorized the request.
    Proxied(Rc<Identity>),
    /// The user in the verified certificate of the peer.
    User(Rc<Identity>),
}

impl Caller {
    /// Returns the name under which this caller's requests take permits. A permit is the right to one of a limited
    /// number of concurrent tasks. A single user may take only a part of the permits.
    #[must_use]
    pub fn requester(&self) -> Requester<'_> {
        match self {
            Self::Anonymous => Requester::User(USER_ANONYMOUS),
            Self::Insecure => Requester::Unnamed,
            Self::Proxied(identity) | Self::User(identity) if is_of_cluster(identity) => {
                Requester::Cluster(&identity.user)
            }
            Self::Proxied(identity) | Self::User(identity) => Requester::User(&identity.user),
        }
    }
}

/// Whether a user belongs to the cluster itself: a component, a node, a service account of `kube-system`, or a member
/// of `system:masters`. Service accounts of other namespaces may belong to any user of the cluster.
fn is_of_cluster(identity: &Identity) -> bool {
    let component = |rest: &str| match rest.strip_prefix("serviceaccount:") {
        Some(account) => account.starts_with("kube-system:"),
        None => identity.user != USER_ANONYMOUS,
    };
    identity.user.strip_prefix("system:").is_some_and(component) || identity.is_in(GROUP_MASTERS)
}

/// Group that may read `/metrics` in every cluster, by the ClusterRole of the same name
/// (`plugin/pkg/auth/authorizer/rbac/bootstrappolicy`).
const GROUP_MONITORING: &str = "system:monitoring";

/// Checks that `caller` may send a request with `method` to `path`. `route` is the route of `path`. `verb` is the verb
/// of a request for Leases, or `None` for any other request.
///
/// # Errors
/// [`ApiError::Unauthorized`] for anonymous callers. For other callers [`ApiError::Forbidden`], or
/// [`ApiError::ForbiddenPath`] if the route does not name Leases. The Lease of the hand-over, which has the state of a
/// takeover or rollback, controls who may write Leases. A write of that Lease by a caller without the right gets
/// [`ApiError::Forbidden`], even if the caller is anonymous.
pub fn authorize(
    caller: &Caller,
    method: Method,
    path: &str,
    route: &Route<'_>,
    verb: Option<Verb>,
) -> Result<(), ApiError> {
    authorize_handover(caller, route, verb)?;
    let identity = match caller {
        Caller::Insecure => return Ok(()),
        Caller::Proxied(identity) => return node::admit_change(identity, verb, route),
        _ if route.is_public() => return Ok(()),
        Caller::Anonymous => return Err(ApiError::Unauthorized),
        Caller::User(identity) => identity,
    };
    if identity.is_in(GROUP_MASTERS) {
        return node::admit_change(identity, verb, route);
    }
    let (verb, namespace, name) = match (route, verb) {
        (Route::Metrics, _) if method == Method::Get && identity.is_in(GROUP_MONITORING) => return Ok(()),
        (Route::Lease { namespace, name }, Some(verb)) => (verb, Some(&**namespace), &**name),
        (Route::Namespace(namespace), Some(verb)) => (verb, Some(&**namespace), ""),
        (Route::AllNamespaces, Some(verb)) => (verb, None, ""),
        (Route::Watch { namespace, name }, Some(verb)) => {
            (verb, namespace.as_deref(), name.as_deref().unwrap_or_default())
        }
        _ => return Err(forbidden_path(identity, method, path)),
    };
    let why = match node_name(identity) {
        Some(node) => match node_refusal(node, verb, namespace, name) {
            None => return Ok(()),
            Some(why) => format!(": {why}"),
        },
        None => String::new(),
    };
    Err(forbidden(identity, verb, namespace, name, &why))
}

/// Whether a direct caller has more rights than an anonymous caller, by the rules of [`authorize`].
fn has_rights(identity: &Identity) -> bool {
    identity.is_in(GROUP_MASTERS) || identity.is_in(GROUP_MONITORING) || node_name(identity).is_some()
}

/// Checks that `caller` may write the hand-over Lease, if the request would write that Lease. The hand-over Lease has
/// the state of a takeover or rollback, and decides who may write Leases in the whole cluster. So the right to write
/// Leases in its namespace does not suffice.
///
/// # Errors
/// [`ApiError::Forbidden`] for a caller without that right.
fn authorize_handover(caller: &Caller, route: &Route<'_>, verb: Option<Verb>) -> Result<(), ApiError> {
    let Route::Lease { namespace, name } = route else { return Ok(()) };
    let is_write = matches!(verb, Some(Verb::Delete | Verb::Patch | Verb::Update));
    if !is_write || !handover::is_lease(namespace, name) {
        return Ok(());
    }
    check_master(caller, name, "the Lease of the hand-over")
}

/// Checks that `caller` may write a Lease that controls this server. `what` describes the Lease.
///
/// # Errors
/// [`ApiError::Forbidden`] unless the caller is a member of `system:masters`, or uses the insecure port.
pub(crate) fn check_master(caller: &Caller, name: &str, what: &str) -> Result<(), ApiError> {
    match caller {
        Caller::Insecure => Ok(()),
        Caller::Proxied(identity) | Caller::User(identity) if identity.is_in(GROUP_MASTERS) => Ok(()),
        Caller::Anonymous | Caller::Proxied(_) | Caller::User(_) => {
            let message = format!("only members of {GROUP_MASTERS} may write {what}");
            Err(ApiError::Forbidden { name: name.to_owned(), message })
        }
    }
}

/// Checks that `caller` may create a Lease `name`. If `name` is empty, the server will generate the name from the
/// prefix `generate_name`.
///
/// # Errors
/// [`ApiError::Forbidden`] for a caller without that right.
pub fn authorize_create(caller: &Caller, namespace: &str, name: &str, generate_name: &str) -> Result<(), ApiError> {
    let route = Route::Lease { namespace: namespace.into(), name: name.into() };
    authorize_handover(caller, &route, Some(Verb::Update))?;
    match caller {
        Caller::Anonymous | Caller::Insecure => Ok(()),
        Caller::Proxied(identity) | Caller::User(identity) => {
            node::admit_create(identity, namespace, name, generate_name)
        }
    }
}

/// Returns the reason why a node that connects directly may not send a request (`plugin/pkg/auth/authorizer/node`,
/// `authorizeLease`); `None` if the node may. The name of a new Lease is in the body of the request, so
/// [`authorize_create`] checks that name.
fn node_refusal(node: &str, verb: Verb, namespace: Option<&str>, name: &str) -> Option<String> {
    if !matches!(verb, Verb::Create | Verb::Delete | Verb::Get | Verb::Patch | Verb::Update) {
        return Some("can only get, create, update, patch, or delete a node lease".to_owned());
    }
    if namespace != Some(NODE_LEASE_NAMESPACE) {
        return Some(only_namespace());
    }
    (verb != Verb::Create && (name != node || node.is_empty())).then(|| ONLY_OWN_NAME.to_owned())
}

#[cold]
fn forbidden(identity: &Identity, verb: Verb, namespace: Option<&str>, name: &str, why: &str) -> ApiError {
    let place = match namespace {
        Some(namespace) => format!("in the namespace \"{namespace}\""),
        None => "at the cluster scope".to_owned(),
    };
    let verb = verb.name();
    let message = format!(
        "User \"{}\" cannot {verb} resource \"{RESOURCE}\" in API group \"{GROUP}\" {place}{why}",
        identity.user
    );
    ApiError::Forbidden { name: name.to_owned(), message }
}

#[cold]
fn forbidden_path(identity: &Identity, method: Method, path: &str) -> ApiError {
    let verb = match method {
        Method::Delete => "delete",
        Method::Get => "get",
        Method::Head => "head",
        Method::Options => "options",
        Method::Patch => "patch",
        Method::Post => "post",
        Method::Put => "put",
        Method::Other => "",
    };
    ApiError::ForbiddenPath { user: identity.user.clone(), verb, path: path.to_owned() }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn user(user: &str, groups: &[&str]) -> Caller {
        let groups = groups.iter().map(|group| (*group).to_owned()).collect();
        Caller::User(Rc::new(Identity { user: user.into(), groups }))
    }

    fn ask(caller: &Caller, method: Method, path: &str) -> Result<(), u16> {
        authorized(caller, method, path, false).map_err(|e| e.status().code)
    }

    fn authorized(caller: &Caller, method: Method, path: &str, asks_to_watch: bool) -> Result<(), ApiError> {
        let route = Route::of(path);
        authorize(caller, method, path, &route, Verb::of(method, &route, || asks_to_watch))
    }

    const OWN: &str = "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases/n1";
    const OTHER: &str = "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases/n2";
    const ELSEWHERE: &str = "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases/n1";

    #[test]
    fn without_a_certificate_only_health_and_version_are_open() {
        for path in ["/healthz", "/livez", "/readyz", "/version"] {
            assert_eq!(ask(&Caller::Anonymous, Method::Get, path), Ok(()));
        }
        for path in [OWN, "/apis", "/metrics", "/openapi/v3", "/"] {
            assert_eq!(ask(&Caller::Anonymous, Method::Get, path), Err(401), "{path}");
        }
    }

    #[test]
    fn a_certificate_without_a_privileged_group_gets_403() {
        let bob = user("bob", &["dev", "system:authenticated"]);
        for path in [OWN, ELSEWHERE, "/apis", "/metrics"] {
            assert_eq!(ask(&bob, Method::Get, path), Err(403), "{path}");
        }
        let error = authorized(&bob, Method::Put, ELSEWHERE, false).expect_err("forbidden");
        assert_eq!(
            error.status().message,
            "leases.coordination.k8s.io \"n1\" is forbidden: User \"bob\" cannot update resource \"leases\" in API \
             group \"coordination.k8s.io\" in the namespace \"kube-system\""
        );
    }

    #[test]
    fn only_masters_change_the_handover_lease() {
        let path = "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases/coordination-apiserver-handover";
        let of = |groups: &[&str]| {
            let identity = Identity { user: "u".into(), groups: groups.iter().map(|group| (*group).into()).collect() };
            Rc::new(identity)
        };
        let created = |caller: &Caller| authorize_create(caller, handover::NAMESPACE, handover::NAME, "");
        for master in [Caller::Proxied(of(&[GROUP_MASTERS])), Caller::User(of(&[GROUP_MASTERS])), Caller::Insecure] {
            for method in [Method::Get, Method::Put, Method::Patch, Method::Delete] {
                assert_eq!(ask(&master, method, path), Ok(()));
            }
            assert!(created(&master).is_ok());
        }
        let other = Caller::Proxied(of(&["system:authenticated"]));
        assert_eq!(ask(&other, Method::Get, path), Ok(()), "kube-apiserver has authorized it");
        for method in [Method::Put, Method::Patch, Method::Delete] {
            assert_eq!(ask(&other, method, path), Err(403));
        }
        assert!(created(&other).is_err());
        assert!(authorize_create(&other, "default", handover::NAME, "").is_ok(), "another Lease of that name");
    }

    #[test]
    fn a_node_has_its_own_lease_and_no_other() {
        let node = user("system:node:n1", &["system:nodes", "system:authenticated"]);
        for method in [Method::Get, Method::Put, Method::Patch, Method::Delete] {
            assert_eq!(ask(&node, method, OWN), Ok(()));
            assert_eq!(ask(&node, method, OTHER), Err(403));
            assert_eq!(ask(&node, method, ELSEWHERE), Err(403));
        }
        assert!(authorize_create(&node, "kube-node-lease", "n1", "").is_ok());
        assert!(authorize_create(&node, "kube-node-lease", "n2", "").is_err());
        assert!(authorize_create(&node, "kube-node-lease", "", "n1").is_err());
        // The user name does not suffice to make a user a node: the user must also be in the group `system:nodes`.
        assert_eq!(ask(&user("system:node:n1", &[]), Method::Get, OWN), Err(403));
    }

    #[test]
    fn the_monitoring_group_reads_only_metrics() {
        let prometheus = user("prometheus", &["system:monitoring", "system:authenticated"]);
        assert_eq!(ask(&prometheus, Method::Get, "/metrics"), Ok(()));
        assert_eq!(ask(&prometheus, Method::Post, "/metrics"), Err(403));
        for path in [OWN, ELSEWHERE, "/apis"] {
            assert_eq!(ask(&prometheus, Method::Get, path), Err(403), "{path}");
        }
    }

    #[test]
    fn only_cluster_components_use_the_permit_reserve() {
        for (name, groups, is_of_cluster) in [
            ("system:kube-controller-manager", &[][..], true),
            ("system:node:n1", &["system:nodes"], true),
            ("system:serviceaccount:kube-system:endpointslice-controller", &[], true),
            ("system:serviceaccount:default:kube-system:a", &[], false),
            ("system:serviceaccount:kube-system-2:a", &[], false),
            ("system:anonymous", &[], false),
            ("bob", &["dev"], false),
            ("alice", &["system:masters"], true),
        ] {
            let caller = user(name, groups);
            let expected = if is_of_cluster { Requester::Cluster(name) } else { Requester::User(name) };
            assert_eq!(caller.requester(), expected);
        }
        assert_eq!(Caller::Insecure.requester(), Requester::Unnamed);
    }

    #[test]
    fn masters_may_do_everything() {
        let admin = user("admin", &["system:masters"]);
        for path in [OWN, ELSEWHERE, "/apis", "/metrics"] {
            assert_eq!(ask(&admin, Method::Delete, path), Ok(()), "{path}");
        }
    }

    #[test]
    fn a_refused_node_gets_the_reason() {
        let node = user("system:node:n1", &["system:nodes"]);
        let why = |method, path: &str| {
            let refused = authorized(&node, method, path, false).expect_err("forbidden");
            refused.status().message
        };
        assert!(
            why(Method::Put, OTHER)
                .ends_with("\"kube-node-lease\": can only access node lease with the same name as the requesting node")
        );
        assert!(
            why(Method::Get, ELSEWHERE)
                .ends_with("\"kube-system\": can only access leases in the \"kube-node-lease\" system namespace")
        );
        let watched = OWN.replace("v1/", "v1/watch/");
        assert!(why(Method::Get, &watched).contains(
            "cannot watch resource \"leases\" in API group \"coordination.k8s.io\" in the namespace \"kube-node-lease\""
        ));
        let all = "/apis/coordination.k8s.io/v1/leases";
        assert!(
            why(Method::Get, all)
                .ends_with("at the cluster scope: can only get, create, update, patch, or delete a node lease")
        );
        for (asks_to_watch, verb) in [(false, "list"), (true, "watch")] {
            let refused = authorized(&node, Method::Get, all, asks_to_watch).expect_err("forbidden");
            assert!(refused.status().message.contains(&format!("cannot {verb} resource")), "{verb}");
        }
    }

    #[test]
    fn proxied_users_are_authorized_but_nodes_stay_restricted() {
        let proxied = |name: &str, groups: &[&str]| match user(name, groups) {
            Caller::User(identity) => Caller::Proxied(identity),
            other => other,
        };
        let bob = proxied("bob", &[]);
        for path in [OWN, ELSEWHERE, "/apis", "/metrics"] {
            assert_eq!(ask(&bob, Method::Delete, path), Ok(()), "{path}");
        }
        assert!(authorize_create(&bob, "default", "a", "").is_ok());
        let node = proxied("system:node:n1", &["system:nodes"]);
        assert_eq!(ask(&node, Method::Put, OWN), Ok(()));
        assert_eq!(ask(&node, Method::Get, OTHER), Ok(()));
        assert_eq!(ask(&node, Method::Put, OTHER), Err(403));
        assert_eq!(ask(&node, Method::Delete, ELSEWHERE), Err(403));
        assert!(authorize_create(&node, "kube-node-lease", "n2", "").is_err());
    }
}
