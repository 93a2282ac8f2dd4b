//! Writes this server's Leases to built-in storage (kube-apiserver's own storage of Leases) through kube-apiserver.

use super::clients::{Clients, Server};
use super::phase::Claim;
use super::policy::{FIELD_MANAGER, Installed};
use super::{NOT_FOUND, RERUN_TIME, SwitchError, failed};
use crate::api::identity::LABEL;
use crate::cluster::told;
use crate::handover::is_lease;
use crate::resource::NODE_LEASE_NAMESPACE;
use futures_util::{StreamExt as _, stream};
use k8s_openapi::api::coordination::v1::Lease;
use kube::ResourceExt as _;
use kube::api::{DeleteParams, ListParams, PostParams, Preconditions, VersionMatch};
use std::collections::BTreeMap;
use std::time::Duration;
use tokio::time::sleep;

/// HTTP status code for a creation in a namespace that is being deleted.
const FORBIDDEN: u16 = 403;
/// Pause between two rounds of writes. A round repeats the writes that failed in the round before.
const RETRY: Duration = Duration::from_millis(250);
/// Maximum number of concurrent writes.
const WRITES_AT_ONCE: usize = 32;

/// A write of a built-in Lease, after which the built-in Lease equals this server's Lease.
#[derive(Clone, Debug, PartialEq)]
enum Write {
    /// Creates the built-in Lease.
    Create(Lease),
    /// Replaces the built-in Lease.
    Replace(Lease),
    /// Removes the finalizers of the built-in Lease, if it has any, and deletes the Lease.
    Delete(Lease),
    /// Deletes a built-in Lease with finalizers, so that kube-apiserver sets its `deletionTimestamp`.
    BeginDeletion(Lease),
}

/// A write that kube-apiserver has refused or not answered.
struct Unwritten {
    why: SwitchError,
    /// Whether the same write may succeed if it is repeated later.
    is_transient: bool,
}

/// Lists the Leases of a replica, at the `resourceVersion` `version` or later.
///
/// # Errors
/// If the replica does not respond.
pub(super) async fn list(replica: &Server, version: &str) -> Result<Vec<Lease>, SwitchError> {
    let parameters = ListParams::default().at(version).matching(VersionMatch::NotOlderThan);
    let found = replica.all_leases().list(&parameters).await.map_err(|error| replica.failed(&error))?;
    Ok(found.items)
}

/// Makes the built-in Leases equal to `ours`, this server's Leases, apart from renewals of nodes. The policy must
/// permit no other client to write built-in Leases. Repeats failed writes until only [`RERUN_TIME`] of the policy is
/// left. Returns the number of writes, and the error of a creation that kube-apiserver refuses for good, if any.
///
/// # Errors
/// If some Leases could not be written in time, or if another command has requested a phase.
pub(super) async fn write_back(
    clients: &Clients,
    ours: &[Lease],
    policy: &Installed,
    claim: &mut Claim,
) -> Result<(usize, Option<SwitchError>), SwitchError> {
    let (mut written, mut round) = (0, 0);
    loop {
        policy.check()?;
        let compared = compare_with_built_in(clients, ours).await;
        // Each `Replace` and `Delete` contains the `resourceVersion` of the list. So if another command begins now,
        // these writes change no later state of a Lease.
        claim.check(clients).await?;
        let (done, unwritten) = match compared {
            Ok(Plan { groups, .. }) => carry_out(clients, &groups, round, || policy.check()).await,
            Err(why) => (0, vec![Unwritten { why, is_transient: true }]),
        };
        written += done;
        round += 1;
        match unwritten.into_iter().max_by_key(|write| write.is_transient) {
            Some(Unwritten { why, is_transient: true }) if policy.left() < RERUN_TIME => return Err(why),
            Some(Unwritten { is_transient: true, .. }) => sleep(RETRY).await,
            refused => return Ok((written, refused.map(|write| write.why))),
        }
    }
}

/// Writes the renewals of nodes' Leases, while kubelets renew the Leases too. Returns the number of writes.
///
/// # Errors
/// If kube-apiserver does not list the Leases.
pub(super) async fn write_renewals(clients: &Clients, ours: &[Lease]) -> Result<usize, SwitchError> {
    let Plan { renewals, .. } = compare_with_built_in(clients, ours).await?;
    // If the write of a renewal fails, the kubelet has renewed the Lease meanwhile, or will renew it within its renew
    // interval.
    Ok(carry_out(clients, &[renewals], 0, || Ok(())).await.0)
}

/// The writes after which the built-in Leases equal this server's Leases.
#[derive(Debug, Default, PartialEq)]
struct Plan {
    /// Groups of writes in their order: deletions, locks, Leases of nodes, and deletions of Leases with finalizers.
    groups: [Vec<Write>; 4],
    /// Renewals of nodes' Leases, which are written after all groups.
    renewals: Vec<Write>,
}

async fn compare_with_built_in(clients: &Clients, ours: &[Lease]) -> Result<Plan, SwitchError> {
    let cluster = clients.cluster();
    let theirs = cluster.all_leases().list(&ListParams::default()).await.map_err(|error| cluster.failed(&error))?;
    Ok(compare(ours, theirs.items))
}

/// Carries out groups of writes, one group after the other. Each write happens only if `may_write` permits it. In
/// another `round`, each write goes to another kube-apiserver. Returns the number of successful writes, and the failed
/// writes.
async fn carry_out(
    clients: &Clients,
    groups: &[Vec<Write>],
    round: usize,
    may_write: impl Fn() -> Result<(), SwitchError>,
) -> (usize, Vec<Unwritten>) {
    let (mut written, mut unwritten) = (0, Vec::new());
    for group in groups {
        let apiservers = clients.apiservers().iter().cycle().skip(round);
        let writes = stream::iter(group.iter().zip(apiservers)).map(|(write, apiserver)| async {
            may_write().map_err(|why| Unwritten { why, is_transient: true })?;
            write.carry_out(apiserver).await
        });
        for done in writes.buffer_unordered(WRITES_AT_ONCE).collect::<Vec<_>>().await {
            match done {
                Ok(()) => written += 1,
                Err(why) => unwritten.push(why),
            }
        }
    }
    (written, unwritten)
}

fn compare(ours: &[Lease], theirs: Vec<Lease>) -> Plan {
    let mut theirs: BTreeMap<_, _> = theirs.into_iter().map(|lease| (key(&lease), lease)).collect();
    let [mut deletions, mut locks, mut nodes, mut ending] = <[Vec<Write>; 4]>::default();
    let mut renewals = Vec::new();
    for lease in ours.iter().filter(|lease| !is_own(lease)) {
        let mut wanted = lease.clone();
        let is_of_node = wanted.metadata.namespace.as_deref() == Some(NODE_LEASE_NAMESPACE);
        let group = if is_of_node { &mut nodes } else { &mut locks };
        let found = theirs.remove(&key(&wanted));
        // Only a deletion sets `deletionTimestamp` and `deletionGracePeriodSeconds`. So a creation or an update must
        // not contain these fields.
        let is_ending = wanted.metadata.deletion_timestamp.take().is_some();
        wanted.metadata.deletion_grace_period_seconds = None;
        let found_ending = found.as_ref().is_some_and(|found| found.metadata.deletion_timestamp.is_some());
        let is_kept = found.as_ref().is_some_and(|found| found.metadata.uid == wanted.metadata.uid);
        if is_ending && !(is_kept && found_ending) {
            ending.push(Write::BeginDeletion(wanted.clone()));
        }
        match found {
            Some(mut found) if found.metadata.uid == wanted.metadata.uid => {
                wanted.metadata.resource_version.clone_from(&found.metadata.resource_version);
                found.metadata.deletion_timestamp = None;
                found.metadata.deletion_grace_period_seconds = None;
                // kube-apiserver itself maintains `managedFields`, so they are not compared.
                found.metadata.managed_fields.clone_from(&wanted.metadata.managed_fields);
                if is_of_node && is_renewal(&found, &wanted) {
                    renewals.push(Write::Replace(wanted));
                } else if found != wanted {
                    group.push(Write::Replace(wanted));
                }
            }
            // An earlier attempt has created the Lease, and kube-apiserver has given it another UID. So nothing remains
            // to write.
            Some(found) if is_same(&found, &wanted) && (is_ending || !found_ending) => {}
            found => {
                deletions.extend(found.map(Write::Delete));
                let metadata = &mut wanted.metadata;
                (metadata.uid, metadata.resource_version, metadata.creation_timestamp) = (None, None, None);
                group.push(Write::Create(wanted));
            }
        }
    }
    deletions.extend(theirs.into_values().map(Write::Delete));
    Plan { groups: [deletions, locks, nodes, ending], renewals }
}

fn key(lease: &Lease) -> (Option<String>, Option<String>) {
    (lease.metadata.namespace.clone(), lease.metadata.name.clone())
}

/// Whether a Lease belongs to this server: an identity Lease or a Lease of the hand-over.
pub(super) fn is_own(lease: &Lease) -> bool {
    let namespace = lease.metadata.namespace.as_deref().unwrap_or_default();
    is_lease(namespace, &lease.name_any()) || lease.labels().get(LABEL.0).is_some_and(|value| value == LABEL.1)
}

/// Whether `after` is a later state of a Lease that differs from `before` only in `renewTime`.
fn is_renewal(before: &Lease, after: &Lease) -> bool {
    let time = |lease: &Lease| lease.spec.as_ref().and_then(|spec| spec.renew_time.as_ref().map(|time| time.0));
    let mut renewed = before.clone();
    if let (Some(renewed), Some(after)) = (&mut renewed.spec, &after.spec) {
        renewed.renew_time.clone_from(&after.renew_time);
    }
    time(before) < time(after) && renewed == *after
}

/// Whether two Leases are equal, apart from the fields that kube-apiserver sets when it creates a Lease.
fn is_same(found: &Lease, wanted: &Lease) -> bool {
    let (found_metadata, wanted_metadata) = (&found.metadata, &wanted.metadata);
    found.spec == wanted.spec
        && found_metadata.labels == wanted_metadata.labels
        && found_metadata.annotations == wanted_metadata.annotations
        && found_metadata.owner_references == wanted_metadata.owner_references
        && found_metadata.finalizers == wanted_metadata.finalizers
}

impl Write {
    async fn carry_out(&self, apiserver: &Server) -> Result<(), Unwritten> {
        let (Self::Create(lease) | Self::Replace(lease) | Self::Delete(lease) | Self::BeginDeletion(lease)) = self;
        let (namespace, name) = (lease.metadata.namespace.as_deref().unwrap_or_default(), lease.name_any());
        let parameters = PostParams { field_manager: Some(FIELD_MANAGER.to_owned()), ..PostParams::default() };
        let leases = apiserver.leases_in(namespace);
        let done = match self {
            Self::Create(_) => leases.create(&parameters, lease).await.map(drop),
            Self::Replace(_) => leases.replace(&name, &parameters, lease).await.map(drop),
            Self::Delete(_) => {
                let mut free = lease.clone();
                free.metadata.finalizers = None;
                let freed = match lease.finalizers().is_empty() {
                    true => Ok(lease.resource_version()),
                    false => leases.replace(&name, &parameters, &free).await.map(|lease| lease.resource_version()),
                };
                match freed {
                    Ok(resource_version) => {
                        // A late deletion must not delete a Lease that was changed or created again meanwhile.
                        let preconditions = Some(Preconditions { uid: lease.uid(), resource_version });
                        let parameters = DeleteParams { preconditions, ..DeleteParams::default() };
                        leases.delete(&name, &parameters).await.map(drop)
                    }
                    Err(error) => Err(error),
                }
            }
            Self::BeginDeletion(_) => match leases.get(&name).await {
                // An earlier write of the finalizers has failed. Without finalizers, a deletion would remove the Lease
                // at once. So the deletion waits for a later round, which repeats the failed write.
                Ok(found) if found.finalizers().is_empty() && !lease.finalizers().is_empty() => {
                    let why = SwitchError(format!("{namespace}/{name}: the finalizers are not written yet"));
                    return Err(Unwritten { why, is_transient: true });
                }
                Ok(found) => {
                    let preconditions =
                        Some(Preconditions { uid: found.uid(), resource_version: found.resource_version() });
                    let parameters = DeleteParams { preconditions, ..DeleteParams::default() };
                    leases.delete(&name, &parameters).await.map(drop)
                }
                Err(error) => Err(error),
            },
        };
        match (self, done) {
            (Self::Delete(_), Err(kube::Error::Api(status))) if status.code == NOT_FOUND => Ok(()),
            (_, done) => done.map_err(|error| Unwritten {
                // A namespace that is being deleted refuses creations for good. Any other write concerns an existing
                // Lease, and may succeed later.
                is_transient: match (self, &error) {
                    (Self::Create(_) | Self::BeginDeletion(_), kube::Error::Api(status)) => {
                        ![FORBIDDEN, NOT_FOUND].contains(&status.code)
                    }
                    _ => true,
                },
                why: failed(&format!("{namespace}/{name}"), told(&error)),
            }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;
    use std::slice;

    fn lease(namespace: &str, name: &str, uid: &str, holder: &str, renewed: u32) -> Lease {
        serde_json::from_value(json!({
            "metadata": {"namespace": namespace, "name": name, "uid": uid, "resourceVersion": renewed.to_string()},
            "spec": {"holderIdentity": holder, "renewTime": format!("2026-01-01T00:00:{renewed:02}.000000Z")},
        }))
        .expect("a Lease")
    }

    const NOTHING: [Vec<Write>; 5] = [const { Vec::new() }; 5];

    /// Returns the deletions, the writes of locks and of nodes' Leases, the deletions of Leases with finalizers, and
    /// the renewals.
    fn compared(ours: &[Lease], theirs: Vec<Lease>) -> [Vec<Write>; 5] {
        let Plan { groups: [deletions, locks, nodes, ending], renewals } = compare(ours, theirs);
        [deletions, locks, nodes, ending, renewals]
    }

    fn at_version(mut lease: Lease, version: &str) -> Lease {
        lease.metadata.resource_version = Some(version.to_owned());
        lease
    }

    #[test]
    fn node_renewals_are_written_back_last() {
        let node = |holder, renewed| lease(NODE_LEASE_NAMESPACE, "a", "u", holder, renewed);
        assert_eq!(compared(&[node("a", 5)], vec![node("a", 5)]), NOTHING);
        let renewal = Write::Replace(at_version(node("a", 9), "5"));
        assert_eq!(compared(&[node("a", 9)], vec![node("a", 5)]), [vec![], vec![], vec![], vec![], vec![renewal]]);
        let written = Write::Replace(at_version(node("b", 9), "5"));
        assert_eq!(compared(&[node("b", 9)], vec![node("a", 5)]), [vec![], vec![], vec![written], vec![], vec![]]);
    }

    #[test]
    fn locks_are_replaced_created_and_deleted() {
        let (ours, theirs) = (lease("n", "a", "u", "h", 9), lease("n", "a", "u", "h", 5));
        let replaced = Write::Replace(at_version(ours.clone(), "5"));
        assert_eq!(compared(&[ours], vec![theirs.clone()]), [vec![], vec![replaced], vec![], vec![], vec![]]);

        let recreated = lease("n", "a", "new", "h", 9);
        let [deletions, locks, ..] = compared(slice::from_ref(&recreated), vec![theirs.clone()]);
        assert_eq!(deletions, [Write::Delete(theirs.clone())]);
        let [Write::Create(created)] = &locks[..] else { panic!("{locks:?}") };
        assert_eq!(created.metadata.uid, None);
        let mut present = created.clone();
        present.metadata.uid = Some("of kube-apiserver".to_owned());
        assert_eq!(compared(&[recreated], vec![present]), NOTHING, "a second attempt");

        let [deletions, locks, ..] = compared(&[], vec![theirs]);
        assert_eq!((deletions.len(), locks.len()), (1, 0), "deleted at this server");
    }

    #[test]
    fn a_deletion_that_waits_for_finalizers_is_written_back() {
        let built_in = lease("n", "a", "u", "h", 5);
        let mut ours = built_in.clone();
        ours.metadata.finalizers = Some(vec!["example.com/a".to_owned()]);
        let held = ours.clone();
        ours.metadata.deletion_timestamp = serde_json::from_value(json!("2026-01-01T00:00:00Z")).expect("a time");
        let [deletions, locks, nodes, ending, _] = compared(&[ours.clone()], vec![built_in]);
        assert_eq!((deletions, nodes), (vec![], vec![]));
        assert_eq!(locks, [Write::Replace(held.clone())]);
        assert_eq!(ending, [Write::BeginDeletion(held)]);
        assert_eq!(compared(&[ours.clone()], vec![ours]), NOTHING, "a second attempt");
    }

    #[test]
    fn leases_of_this_server_are_not_written() {
        let mut identity = lease("kube-system", "r", "u", "h", 9);
        identity.metadata.labels = Some([(LABEL.0.to_owned(), LABEL.1.to_owned())].into());
        let handover = lease("kube-system", crate::handover::NAME, "u", "h", 9);
        assert_eq!(compared(&[identity, handover], vec![]), NOTHING);
    }
}
