//! Who a caller is, and what it may do when it comes directly.
//!
//! The table holds what keeps a cluster's nodes alive, so a certificate of the right authority is not enough: members
//! of `system:masters` may do everything, a node its own heartbeat (NodeRestriction), anybody else nothing. The words
//! are kube-apiserver's (`endpoints/filters/authorization.go`, `plugin/pkg/admission/noderestriction`).

use crate::api_error::ApiError;
use crate::http::Method;
use crate::lease::{GROUP, RESOURCE};
use crate::route::Route;
use crate::tls::identity::{GROUP_MASTERS, Identity};
use std::rc::Rc;

/// The namespace of the nodes' heartbeats.
const NODE_LEASE_NAMESPACE: &str = "kube-node-lease";
/// Group of all nodes.
const GROUP_NODES: &str = "system:nodes";
/// Prefix of a node's user name.
const NODE_USER_PREFIX: &str = "system:node:";

/// Who sent a request.
#[derive(Clone, Debug)]
pub enum Caller {
    /// Nobody knows; it may ask for health and version.
    Anonymous,
    /// Somebody on the cleartext port, which is on loopback and gives full rights.
    Insecure,
    /// The bearer of a verified certificate.
    User(Rc<Identity>),
}

/// Whether `caller` may do it.
///
/// # Errors
/// [`ApiError::Unauthorized`] for the unknown, [`ApiError::Forbidden`] for the others.
pub fn authorize(caller: &Caller, method: Method, path: &str, route: &Route<'_>, query: &str) -> Result<(), ApiError> {
    let identity = match caller {
        Caller::Insecure => return Ok(()),
        _ if route.is_public() => return Ok(()),
        Caller::Anonymous => return Err(ApiError::Unauthorized),
        Caller::User(identity) => identity,
    };
    if identity.groups.iter().any(|group| group == GROUP_MASTERS) {
        return Ok(());
    }
    let (namespace, name) = match route {
        Route::Lease { namespace, name } => (Some(&**namespace), &**name),
        Route::Namespace(namespace) => (Some(&**namespace), ""),
        Route::AllNamespaces => (None, ""),
        _ => return Err(forbidden_path(identity, method, path)),
    };
    let verb = resource_verb(method, name, query);
    if let Some(node) = node_name(identity)
        && namespace == Some(NODE_LEASE_NAMESPACE)
        // The name of a Lease to be created stands in its body; `authorize_create` looks at it.
        && (name == node || verb == "create")
    {
        return Ok(());
    }
    Err(forbidden(identity, verb, namespace, name))
}

/// Whether `caller` may create a Lease of this name.
///
/// # Errors
/// [`ApiError::Forbidden`].
pub fn authorize_create(caller: &Caller, namespace: &str, name: &str) -> Result<(), ApiError> {
    let Caller::User(identity) = caller else { return Ok(()) };
    match node_name(identity) {
        Some(node) if node != name && !identity.groups.iter().any(|group| group == GROUP_MASTERS) => {
            Err(forbidden(identity, "create", Some(namespace), name))
        }
        _ => Ok(()),
    }
}

/// The node that the caller is, if it is one.
fn node_name(identity: &Identity) -> Option<&str> {
    let is_node = identity.groups.iter().any(|group| group == GROUP_NODES);
    identity.user.strip_prefix(NODE_USER_PREFIX).filter(|_| is_node)
}

/// The verb of a request for a resource (apiserver `endpoints/request/requestinfo.go`).
fn resource_verb(method: Method, name: &str, query: &str) -> &'static str {
    match method {
        Method::Delete if name.is_empty() => "deletecollection",
        Method::Delete => "delete",
        Method::Get | Method::Head if !name.is_empty() => "get",
        Method::Get | Method::Head
            if query.split('&').any(|pair| matches!(pair, "watch" | "watch=true" | "watch=1")) =>
        {
            "watch"
        }
        Method::Get | Method::Head => "list",
        Method::Patch => "patch",
        Method::Post => "create",
        Method::Put => "update",
        Method::Options | Method::Other => "",
    }
}

#[cold]
fn forbidden(identity: &Identity, verb: &str, namespace: Option<&str>, name: &str) -> ApiError {
    let place = match namespace {
        Some(namespace) => format!("in the namespace \"{namespace}\""),
        None => "at the cluster scope".to_owned(),
    };
    let message =
        format!("User \"{}\" cannot {verb} resource \"{RESOURCE}\" in API group \"{GROUP}\" {place}", identity.user);
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
        authorize(caller, method, path, &Route::of(path), "").map_err(|e| e.status().code)
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
    fn a_certificate_alone_opens_nothing() {
        let bob = user("bob", &["dev", "system:authenticated"]);
        for path in [OWN, ELSEWHERE, "/apis", "/metrics"] {
            assert_eq!(ask(&bob, Method::Get, path), Err(403), "{path}");
        }
        let error = authorize(&bob, Method::Put, ELSEWHERE, &Route::of(ELSEWHERE), "").expect_err("forbidden");
        assert_eq!(
            error.status().message,
            "leases.coordination.k8s.io \"n1\" is forbidden: User \"bob\" cannot update resource \"leases\" in API \
             group \"coordination.k8s.io\" in the namespace \"kube-system\""
        );
    }

    #[test]
    fn a_node_has_its_own_lease_and_no_other() {
        let node = user("system:node:n1", &["system:nodes", "system:authenticated"]);
        for method in [Method::Get, Method::Put, Method::Patch, Method::Delete] {
            assert_eq!(ask(&node, method, OWN), Ok(()));
            assert_eq!(ask(&node, method, OTHER), Err(403));
            assert_eq!(ask(&node, method, ELSEWHERE), Err(403));
        }
        assert!(authorize_create(&node, "kube-node-lease", "n1").is_ok());
        assert!(authorize_create(&node, "kube-node-lease", "n2").is_err());
        // The name alone is not enough: the group says that it is a node.
        assert_eq!(ask(&user("system:node:n1", &[]), Method::Get, OWN), Err(403));
    }

    #[test]
    fn masters_may_do_everything() {
        let admin = user("admin", &["system:masters"]);
        for path in [OWN, ELSEWHERE, "/apis", "/metrics"] {
            assert_eq!(ask(&admin, Method::Delete, path), Ok(()), "{path}");
        }
    }
}
