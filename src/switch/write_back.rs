//! Writes this server's Leases to built-in storage through kube-apiserver.

use super::clients::{Clients, Server};
use super::policy::FIELD_MANAGER;
use super::{CONFLICT, NOT_FOUND, SwitchError, failed};
use crate::api::identity::is_identity_label;
use crate::cluster::told;
use crate::handover::is_lease;
use crate::resource::NODE_LEASE_NAMESPACE;
use futures_util::{StreamExt as _, stream};
use k8s_openapi::api::coordination::v1::Lease;
use kube::ResourceExt as _;
use kube::api::{DeleteParams, ListParams, PostParams, Preconditions, VersionMatch};
use std::collections::BTreeMap;

/// Number of concurrent writes.
const WRITES_AT_ONCE: usize = 32;

/// A write that makes a built-in Lease equal to this server's Lease.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Write {
    /// Creates the Lease.
    Create(Lease),
    /// Replaces the Lease.
    Replace(Lease),
    /// Replaces the Lease, unless a client has changed it meanwhile.
    Renew(Lease),
    /// Deletes the Lease with this UID.
    Delete { namespace: String, name: String, uid: Option<String> },
}

/// Lists the Leases of a replica, at `version` or later.
///
/// # Errors
/// If the replica does not answer.
pub(super) async fn list(replica: &Server, version: &str) -> Result<Vec<Lease>, SwitchError> {
    let parameters = ListParams::default().at(version).matching(VersionMatch::NotOlderThan);
    let found = replica.all_leases().list(&parameters).await.map_err(|error| replica.failed(&error))?;
    Ok(found.items)
}

/// What must be written so that the built-in Leases equal this server's Leases.
#[derive(Debug, Default, PartialEq)]
pub(super) struct Plan {
    /// Writes that clients must wait for, in groups: deletions, locks, Leases of nodes.
    pub(super) writes: Vec<Vec<Write>>,
    /// Renewals of nodes. A kubelet may renew first.
    pub(super) renewals: Vec<Vec<Write>>,
}

/// Compares this server's Leases, `ours`, with the built-in Leases.
///
/// # Errors
/// If kube-apiserver does not answer.
pub(super) async fn plan(clients: &Clients, ours: Vec<Lease>) -> Result<Plan, SwitchError> {
    let cluster = clients.cluster();
    let theirs = cluster.all_leases().list(&ListParams::default()).await.map_err(|error| cluster.failed(&error))?;
    Ok(compare(ours, theirs.items))
}

/// Carries out groups of writes, one group after the other. Returns how many Leases were written.
///
/// # Errors
/// The first Lease that was not written, and the reason. All other Leases are written.
pub(super) async fn carry_out(clients: &Clients, groups: &[Vec<Write>]) -> Result<usize, SwitchError> {
    let mut done = Vec::new();
    // A Lease with another UID is deleted before it is created.
    for group in groups {
        let apiservers = clients.apiservers().iter().cycle();
        let group = stream::iter(group.iter().zip(apiservers)).map(|(write, apiserver)| write.carry_out(apiserver));
        done.extend(group.buffer_unordered(WRITES_AT_ONCE).collect::<Vec<_>>().await);
    }
    let written = done.len();
    done.into_iter().collect::<Result<(), _>>().map(|()| written)
}

fn compare(ours: Vec<Lease>, theirs: Vec<Lease>) -> Plan {
    let mut theirs: BTreeMap<_, _> = theirs.into_iter().map(|lease| (key(&lease), lease)).collect();
    let (mut deletions, mut locks, mut nodes, mut renewals) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
    for mut lease in ours.into_iter().filter(|lease| !is_own(lease)) {
        let is_of_node = lease.metadata.namespace.as_deref() == Some(NODE_LEASE_NAMESPACE);
        let group = if is_of_node { &mut nodes } else { &mut locks };
        match theirs.remove(&key(&lease)) {
            Some(found) if found.metadata.uid == lease.metadata.uid => {
                lease.metadata.resource_version.clone_from(&found.metadata.resource_version);
                if is_of_node && found != lease && is_renewal(&found, &lease) {
                    renewals.push(Write::Renew(lease));
                } else if found != lease {
                    group.push(Write::Replace(lease));
                }
            }
            found => {
                deletions.extend(found.map(|found| deletion(&found)));
                let metadata = &mut lease.metadata;
                (metadata.uid, metadata.resource_version, metadata.creation_timestamp) = (None, None, None);
                group.push(Write::Create(lease));
            }
        }
    }
    deletions.extend(theirs.values().map(deletion));
    Plan { writes: vec![deletions, locks, nodes], renewals: vec![renewals] }
}

fn key(lease: &Lease) -> (Option<String>, Option<String>) {
    (lease.metadata.namespace.clone(), lease.metadata.name.clone())
}

fn deletion(lease: &Lease) -> Write {
    let metadata = &lease.metadata;
    Write::Delete {
        namespace: metadata.namespace.clone().unwrap_or_default(),
        name: lease.name_any(),
        uid: metadata.uid.clone(),
    }
}

/// Whether a Lease belongs to this server.
fn is_own(lease: &Lease) -> bool {
    let namespace = lease.metadata.namespace.as_deref().unwrap_or_default();
    is_lease(namespace, &lease.name_any()) || lease.labels().iter().any(|(key, value)| is_identity_label(key, value))
}

/// Whether two states of a Lease differ at most in `renewTime` and field managers.
fn is_renewal(before: &Lease, after: &Lease) -> bool {
    let mut renewed = before.clone();
    renewed.metadata.managed_fields.clone_from(&after.metadata.managed_fields);
    if let (Some(renewed), Some(after)) = (&mut renewed.spec, &after.spec) {
        renewed.renew_time.clone_from(&after.renew_time);
    }
    renewed == *after
}

impl Write {
    async fn carry_out(&self, apiserver: &Server) -> Result<(), SwitchError> {
        let parameters = PostParams { field_manager: Some(FIELD_MANAGER.to_owned()), ..PostParams::default() };
        let (namespace, name) = match self {
            Self::Create(lease) | Self::Replace(lease) | Self::Renew(lease) => {
                (lease.metadata.namespace.as_deref().unwrap_or_default(), lease.name_any())
            }
            Self::Delete { namespace, name, .. } => (namespace.as_str(), name.clone()),
        };
        let leases = apiserver.leases_in(namespace);
        let done = match self {
            Self::Create(lease) => leases.create(&parameters, lease).await.map(drop),
            Self::Replace(lease) | Self::Renew(lease) => leases.replace(&name, &parameters, lease).await.map(drop),
            Self::Delete { uid, .. } => {
                let preconditions = Some(Preconditions { uid: uid.clone(), resource_version: None });
                leases.delete(&name, &DeleteParams { preconditions, ..DeleteParams::default() }).await.map(drop)
            }
        };
        match (self, done) {
            (Self::Delete { .. }, Err(kube::Error::Api(status))) if status.code == NOT_FOUND => Ok(()),
            (Self::Renew(_), Err(kube::Error::Api(status))) if [CONFLICT, NOT_FOUND].contains(&status.code) => Ok(()),
            (_, done) => done.map_err(|error| failed(&format!("{namespace}/{name}"), told(&error))),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn lease(namespace: &str, name: &str, uid: &str, holder: &str, renewed: u32) -> Lease {
        serde_json::from_value(json!({
            "metadata": {"namespace": namespace, "name": name, "uid": uid, "resourceVersion": renewed.to_string()},
            "spec": {"holderIdentity": holder, "renewTime": format!("2026-01-01T00:00:{renewed:02}.000000Z")},
        }))
        .expect("a Lease")
    }

    /// Returns the deletions, the writes of locks, the writes of nodes' Leases, and the renewals.
    fn compared(ours: Vec<Lease>, theirs: Vec<Lease>) -> [Vec<Write>; 4] {
        let Plan { writes, renewals } = compare(ours, theirs);
        writes.into_iter().chain(renewals).collect::<Vec<_>>().try_into().expect("four groups")
    }

    fn at_version(mut lease: Lease, version: &str) -> Lease {
        lease.metadata.resource_version = Some(version.to_owned());
        lease
    }

    #[test]
    fn clients_do_not_wait_for_the_renewals_of_nodes() {
        let node = |holder, renewed| lease(NODE_LEASE_NAMESPACE, "a", "u", holder, renewed);
        assert_eq!(compared(vec![node("a", 5)], vec![node("a", 5)]), [vec![], vec![], vec![], vec![]]);
        let renewal = Write::Renew(at_version(node("a", 9), "5"));
        assert_eq!(compared(vec![node("a", 9)], vec![node("a", 5)]), [vec![], vec![], vec![], vec![renewal]]);
        let written = Write::Replace(at_version(node("b", 9), "5"));
        assert_eq!(compared(vec![node("b", 9)], vec![node("a", 5)]), [vec![], vec![], vec![written], vec![]]);
    }

    #[test]
    fn locks_are_replaced_created_and_deleted() {
        let (ours, theirs) = (lease("n", "a", "u", "h", 9), lease("n", "a", "u", "h", 5));
        let replaced = Write::Replace(at_version(ours.clone(), "5"));
        assert_eq!(compared(vec![ours], vec![theirs]), [vec![], vec![replaced], vec![], vec![]]);

        let [deletions, locks, ..] = compared(vec![lease("n", "a", "new", "h", 9)], vec![lease("n", "a", "u", "h", 5)]);
        assert_eq!(deletions, [Write::Delete { namespace: "n".into(), name: "a".into(), uid: Some("u".into()) }]);
        assert!(matches!(&locks[..], [Write::Create(lease)] if lease.metadata.uid.is_none()), "{locks:?}");

        let [deletions, locks, ..] = compared(vec![], vec![lease("n", "a", "u", "h", 5)]);
        assert_eq!((deletions.len(), locks.len()), (1, 0), "deleted at this server");
    }

    #[test]
    fn leases_of_this_server_are_not_written() {
        let mut identity = lease("kube-system", "r", "u", "h", 9);
        identity.metadata.labels =
            Some([("apiserver.kubernetes.io/identity".to_owned(), "coordination-apiserver".to_owned())].into());
        let handover = lease("kube-system", crate::handover::NAME, "u", "h", 9);
        assert_eq!(compared(vec![identity, handover], vec![]), [vec![], vec![], vec![], vec![]]);
    }
}
