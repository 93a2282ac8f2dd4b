//! NodeRestriction: a node may write its own heartbeat (the Lease with the node's name in `kube-node-lease`) and no
//! other Lease.
//!
//! kube-apiserver runs no admission for requests that its aggregator forwards. So this module applies the rules of the
//! admission plugin NodeRestriction to all requests of nodes, forwarded or direct
//! (`plugin/pkg/admission/noderestriction`, `pkg/auth/nodeidentifier`). Admission does not restrict reads.

use crate::api_error::ApiError;
use crate::go::quote::go_quoted;
use crate::resource::NODE_LEASE_NAMESPACE;
use crate::route::Route;
use crate::tls::identity::Identity;
use crate::verb::Verb;

/// Group of all nodes.
const GROUP_NODES: &str = "system:nodes";
/// Prefix of a node's user name.
const NODE_USER_PREFIX: &str = "system:node:";

/// Returns the name of the node if the user is a node. The name is empty if the user name consists only of the prefix.
pub(super) fn node_name(identity: &Identity) -> Option<&str> {
    let name = identity.user.strip_prefix(NODE_USER_PREFIX)?;
    identity.is_in(GROUP_NODES).then_some(name)
}

/// Checks that the user may change the Lease that the path of the request names. Refuses only users that are nodes.
pub(super) fn admit_change(identity: &Identity, verb: Option<Verb>, route: &Route<'_>) -> Result<(), ApiError> {
    let is_change = verb.is_some_and(Verb::changes);
    match route {
        Route::Lease { namespace, name } if is_change => admit(identity, namespace, name, name),
        // NodeRestriction refuses every deletecollection, since such a request names no Lease.
        Route::Namespace(namespace) if is_change => admit(identity, namespace, "", UNKNOWN),
        _ => Ok(()),
    }
}

/// Checks that the user may create a Lease `name`. Refuses only users that are nodes. If `name` is empty, the error
/// shows `generate_name`.
pub(super) fn admit_create(
    identity: &Identity,
    namespace: &str,
    name: &str,
    generate_name: &str,
) -> Result<(), ApiError> {
    let shown = [name, generate_name].into_iter().find(|name| !name.is_empty()).unwrap_or(UNKNOWN);
    admit(identity, namespace, name, shown)
}

fn admit(identity: &Identity, namespace: &str, name: &str, shown: &str) -> Result<(), ApiError> {
    let Some(node) = node_name(identity) else { return Ok(()) };
    if node == name && !node.is_empty() && namespace == NODE_LEASE_NAMESPACE {
        return Ok(());
    }
    Err(refusal(identity, node, namespace, shown))
}

#[cold]
fn refusal(identity: &Identity, node: &str, namespace: &str, shown: &str) -> ApiError {
    let message = if node.is_empty() {
        format!("could not determine node from user {}", go_quoted(&identity.user))
    } else if namespace != NODE_LEASE_NAMESPACE {
        only_namespace()
    } else {
        ONLY_OWN_NAME.to_owned()
    };
    ApiError::Forbidden { name: shown.to_owned(), message }
}

/// Returns the message of admission and of the node authorizer for a Lease outside the namespace of heartbeats.
pub(super) fn only_namespace() -> String {
    format!("can only access leases in the \"{NODE_LEASE_NAMESPACE}\" system namespace")
}

/// Message of admission and of the node authorizer about a Lease whose name is not the name of the node.
pub(super) const ONLY_OWN_NAME: &str = "can only access node lease with the same name as the requesting node";

/// The name that admission messages use for an object without a name (apiserver `admission/errors.go`).
const UNKNOWN: &str = "Unknown";

#[cfg(test)]
mod tests {
    use super::*;

    fn identity(user: &str, groups: &[&str]) -> Identity {
        let groups = groups.iter().map(|group| (*group).to_owned()).collect();
        Identity { user: user.into(), groups }
    }

    fn path(namespace: &str, name: &str) -> String {
        format!("/apis/coordination.k8s.io/v1/namespaces/{namespace}/leases/{name}")
    }

    #[test]
    fn a_node_is_recognized_by_name_and_group() {
        assert_eq!(node_name(&identity("system:node:n1", &["a", "system:nodes"])), Some("n1"));
        assert_eq!(node_name(&identity("system:node:", &["system:nodes"])), Some(""));
        assert_eq!(node_name(&identity("system:node:n1", &["system:authenticated"])), None);
        assert_eq!(node_name(&identity("n1", &["system:nodes"])), None);
    }

    #[test]
    fn a_node_changes_its_own_lease_and_reads_all() {
        let node = identity("system:node:n1", &["system:nodes", "system:masters"]);
        let admitted = |verb, namespace: &str, name: &str| {
            let path = path(namespace, name);
            admit_change(&node, Some(verb), &Route::of(&path)).map_err(|e| e.status().message)
        };
        for verb in [Verb::Update, Verb::Patch, Verb::Delete] {
            assert_eq!(admitted(verb, "kube-node-lease", "n1"), Ok(()));
            assert_eq!(
                admitted(verb, "kube-node-lease", "n2").expect_err("another's"),
                "leases.coordination.k8s.io \"n2\" is forbidden: can only access node lease with the same name as the requesting node"
            );
            assert_eq!(
                admitted(verb, "default", "n1").expect_err("elsewhere"),
                "leases.coordination.k8s.io \"n1\" is forbidden: can only access leases in the \"kube-node-lease\" system namespace"
            );
        }
        assert_eq!(admitted(Verb::Get, "default", "n2"), Ok(()));
        assert!(
            admitted(Verb::DeleteCollection, "kube-node-lease", "").expect_err("a collection").contains("\"Unknown\"")
        );
    }

    #[test]
    fn a_node_creation_is_checked_by_the_name_in_the_body() {
        let node = identity("system:node:n1", &["system:nodes"]);
        assert!(admit_create(&node, "kube-node-lease", "n1", "").is_ok());
        let refused = |namespace, name, generate_name| {
            admit_create(&node, namespace, name, generate_name).expect_err("refused").status().message
        };
        assert!(refused("kube-node-lease", "n2", "").contains("\"n2\" is forbidden: can only access node lease"));
        assert!(refused("kube-node-lease", "", "n").contains("\"n\" is forbidden"));
        assert!(refused("kube-node-lease", "", "").contains("\"Unknown\" is forbidden"));
        assert!(refused("default", "n1", "").contains("\"n1\" is forbidden: can only access leases in the"));
    }

    #[test]
    fn a_nameless_node_is_refused_and_other_users_are_not_checked() {
        let nameless = identity("system:node:", &["system:nodes"]);
        let error = admit_create(&nameless, "kube-node-lease", "", "").expect_err("refused");
        assert!(error.status().message.ends_with("could not determine node from user \"system:node:\""));
        assert!(admit_create(&identity("system:node:n1", &[]), "default", "x", "").is_ok());
    }
}
