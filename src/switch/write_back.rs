//! Writes this server's Leases to built-in storage (kube-apiserver's own storage of Leases) through kube-apiserver, in
//! a rollback without access to the cluster's etcd. Meanwhile the policy, an admission policy of the rollback, keeps
//! all other clients from writing built-in Leases.

use super::clients::{Clients, Server};
use super::lease::Lease;
use super::phase::Claim;
use super::policy::{self, FIELD_MANAGER, Installed};
use super::{NOT_FOUND, RERUN_TIME, SwitchError, failed};
use crate::api::identity::LABEL;
use crate::cluster::told;
use crate::handover::is_lease;
use crate::resource::NODE_LEASE_NAMESPACE;
use futures_util::{StreamExt as _, stream};
use k8s_openapi::jiff::SignedDuration;
use kube::ResourceExt as _;
use kube::api::{DeleteParams, ListParams, PostParams, Preconditions, VersionMatch};
use std::collections::BTreeMap;
use std::time::Duration;
use tokio::time::{sleep, timeout};

/// HTTP status code for a creation in a namespace that is being deleted.
const FORBIDDEN: u16 = 403;
/// Pause between two rounds of writes. A round repeats the writes that failed in the round before.
const RETRY: Duration = Duration::from_millis(250);
/// Maximum number of concurrent writes.
const WRITES_AT_ONCE: usize = 32;

/// Minimum time from the renewal of this server's Lease to that of the built-in Lease, for [`has_newer`]. The policy of
/// a rollback lasts longer than this after the last write here. But a kube-apiserver that starts may write a renewal to
/// built-in storage. The Lease here is then older by one renew interval of the client, which is 10 s for a node.
const NEWER_MIN: SignedDuration = SignedDuration::from_secs(15);

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

/// Makes the built-in Leases equal to `ours`, this server's Leases. Leaves the renewals of nodes to [`write_renewals`].
/// The policy must permit no other client to write built-in Leases. Writes, and repeats failed writes, until only
/// [`RERUN_TIME`] of the policy is left. Returns the number of writes, and the error of a write that kube-apiserver
/// refuses for good, if any.
///
/// # Errors
/// If some Leases could not be written in time, if the cluster has lost the policy, or if another command has requested
/// a phase.
pub(super) async fn write_back(
    clients: &Clients,
    ours: &[Lease],
    policy: &Installed,
    claim: &mut Claim,
) -> Result<(usize, Option<SwitchError>), SwitchError> {
    let (mut written, mut round) = (0, 0);
    loop {
        policy.check_writes()?;
        let planned = plan(clients, ours, policy).await;
        // Each `Replace` and `Delete` names the `resourceVersion` that its Lease has in the list. So if another command
        // begins now, these writes change no later state of a Lease.
        let planned = match claim.check(clients).await {
            Err(lost) if claim.is_lost() => return Err(lost),
            // No replica has answered: the only one may be restarting. So this error ends only this round, and the next
            // round checks again.
            checked => checked.and(planned),
        };
        let (done, unwritten, has_deletions) = match planned {
            Ok(Some(Plan { groups, .. })) => {
                let (done, unwritten) = carry_out_in_time(clients, &groups, round, policy).await;
                let [.., deletions] = &groups;
                (done, unwritten, !deletions.is_empty())
            }
            Ok(None) => return Err(policy::lost()),
            Err(why) => (0, vec![Unwritten { why, is_transient: true }], false),
        };
        written += done;
        round += 1;
        let is_late = policy.left() <= RERUN_TIME;
        match unwritten.into_iter().max_by_key(|write| write.is_transient) {
            Some(Unwritten { why, is_transient: true }) if is_late => return Err(why),
            // The deletions come last. They may have freed the quota that a refused creation needs, so another round
            // follows.
            Some(Unwritten { is_transient, .. }) if !is_late && (is_transient || has_deletions) => sleep(RETRY).await,
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
    // A failed write is ignored: the kubelet has renewed the Lease meanwhile, or will do so within its renew interval.
    Ok(carry_out(clients, &[renewals], 0, || Ok(())).await.0)
}

/// Whether clients have renewed built-in Leases after `ours`, this server's Leases, which have not changed since. This
/// happens if the policy of a killed rollback has ended while the APIService was local.
///
/// # Errors
/// If kube-apiserver does not answer.
pub(super) async fn has_newer(clients: &Clients, ours: &[Lease]) -> Result<bool, SwitchError> {
    let cluster = clients.cluster();
    let theirs = cluster.all_leases().list(&ListParams::default()).await.map_err(|error| cluster.failed(&error))?;
    let ours: BTreeMap<_, _> = ours.iter().map(|lease| (key(lease), lease)).collect();
    Ok(theirs.items.iter().any(|found| ours.get(&key(found)).is_some_and(|lease| is_newer(found, lease))))
}

/// Whether the holder of the Lease `ours` has renewed the built-in Lease `theirs` more than [`NEWER_MIN`] later. Only
/// times of the same holder are compared, since the clocks of clients may differ. The Lease of a node always has the
/// same holder.
fn is_newer(theirs: &Lease, ours: &Lease) -> bool {
    let holder = |lease: &Lease| lease.spec.as_ref()?.holder_identity.clone().filter(|holder| !holder.is_empty());
    let has_same_holder = holder(ours).is_some_and(|of_ours| holder(theirs) == Some(of_ours));
    let times = theirs.renew_time().zip(ours.renew_time());
    has_same_holder && times.is_some_and(|(theirs, ours)| theirs.duration_since(ours) > NEWER_MIN)
}

/// The writes after which the built-in Leases equal this server's Leases.
#[derive(Debug, Default, PartialEq)]
struct Plan {
    /// Groups of writes, in the order in which they are carried out: deletions of Leases that are then created anew,
    /// locks, Leases of nodes, deletions of Leases with finalizers, and all other deletions. Locks come early. So if
    /// time runs out, at least their present holders are written.
    groups: [Vec<Write>; 5],
    /// Renewals of nodes' Leases, which are written after all groups.
    renewals: Vec<Write>,
}

/// Returns the writes of the next round; `None` if the cluster has lost the policy.
async fn plan(clients: &Clients, ours: &[Lease], policy: &Installed) -> Result<Option<Plan>, SwitchError> {
    let plan = compare_with_built_in(clients, ours).await?;
    // If the cluster still has the policy now, after the list, no other client has written since the policy took
    // effect. So the plan overwrites no write of another client.
    Ok(policy.is_kept(clients.cluster()).await?.then_some(plan))
}

async fn compare_with_built_in(clients: &Clients, ours: &[Lease]) -> Result<Plan, SwitchError> {
    let cluster = clients.cluster();
    let theirs = cluster.all_leases().list(&ListParams::default()).await.map_err(|error| cluster.failed(&error))?;
    Ok(compare(ours, theirs.items))
}

/// Carries out groups of writes, one group after the other. Each write happens only if `may_write` permits it.
/// Distributes the writes of a group among the kube-apiservers, and begins with a different one in each `round`.
/// Returns the number of successful writes, and the failed writes.
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

/// Carries out groups of writes like [`carry_out`], until only [`RERUN_TIME`] of the policy is left.
async fn carry_out_in_time(
    clients: &Clients,
    groups: &[Vec<Write>],
    round: usize,
    policy: &Installed,
) -> (usize, Vec<Unwritten>) {
    // The timeout ends requests that a kube-apiserver does not answer. But a timer stands still while this machine is
    // suspended. So each write also checks the time.
    let work = carry_out(clients, groups, round, || policy.check_writes());
    let done = timeout(policy.left().saturating_sub(RERUN_TIME), work).await;
    done.unwrap_or_else(|_| (0, vec![Unwritten { why: policy::ends_soon(), is_transient: true }]))
}

fn compare(ours: &[Lease], theirs: Vec<Lease>) -> Plan {
    let mut theirs: BTreeMap<_, _> = theirs.into_iter().map(|lease| (key(&lease), lease)).collect();
    let [mut outdated, mut locks, mut nodes, mut ending] = <[Vec<Write>; 4]>::default();
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
                outdated.extend(found.map(Write::Delete));
                let metadata = &mut wanted.metadata;
                (metadata.uid, metadata.resource_version, metadata.creation_timestamp) = (None, None, None);
                group.push(Write::Create(wanted));
            }
        }
    }
    let deletions = theirs.into_values().map(Write::Delete).collect();
    Plan { groups: [outdated, locks, nodes, ending, deletions], renewals }
}

fn key(lease: &Lease) -> (Option<String>, Option<String>) {
    (lease.metadata.namespace.clone(), lease.metadata.name.clone())
}

/// Whether a Lease belongs to this server itself: the identity Lease of a replica (its sign of life), or a Lease of the
/// hand-over.
pub(super) fn is_own(lease: &Lease) -> bool {
    let namespace = lease.metadata.namespace.as_deref().unwrap_or_default();
    is_lease(namespace, &lease.name_any()) || lease.labels().get(LABEL.0).is_some_and(|value| value == LABEL.1)
}

/// Whether `after` is a later state of a Lease that differs from `before` only in `renewTime`.
fn is_renewal(before: &Lease, after: &Lease) -> bool {
    let mut renewed = before.clone();
    if let (Some(renewed), Some(after)) = (&mut renewed.spec, &after.spec) {
        renewed.renew_time.clone_from(&after.renew_time);
    }
    before.renew_time() < after.renew_time() && renewed == *after
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
                // A namespace that is being deleted refuses creations for good, and the deletion of a Lease that was
                // not created fails for good. Any other write concerns an existing Lease, and may succeed later.
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
    use crate::switch::block_on;
    use crate::switch::phase::Handover;
    use crate::switch::tests::{missing, serve};
    use serde_json::json;
    use std::slice;
    use std::thread;
    use std::time::Instant;

    fn lease(namespace: &str, name: &str, uid: &str, holder: &str, renewed: u32) -> Lease {
        serde_json::from_value(json!({
            "metadata": {"namespace": namespace, "name": name, "uid": uid, "resourceVersion": renewed.to_string()},
            "spec": {"holderIdentity": holder, "renewTime": format!("2026-01-01T00:00:{renewed:02}.000000Z")},
        }))
        .expect("a Lease")
    }

    const NOTHING: [Vec<Write>; 6] = [const { Vec::new() }; 6];

    /// Returns the groups of writes in their order, and then the renewals.
    fn compared(ours: &[Lease], theirs: Vec<Lease>) -> [Vec<Write>; 6] {
        let Plan { groups: [outdated, locks, nodes, ending, deletions], renewals } = compare(ours, theirs);
        [outdated, locks, nodes, ending, deletions, renewals]
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
        assert_eq!(
            compared(&[node("a", 9)], vec![node("a", 5)]),
            [vec![], vec![], vec![], vec![], vec![], vec![renewal]]
        );
        let written = Write::Replace(at_version(node("b", 9), "5"));
        assert_eq!(
            compared(&[node("b", 9)], vec![node("a", 5)]),
            [vec![], vec![], vec![written], vec![], vec![], vec![]]
        );
    }

    #[test]
    fn only_a_much_later_renewal_of_the_same_holder_is_newer() {
        let node = |holder, renewed| lease(NODE_LEASE_NAMESPACE, "a", "u", holder, renewed);
        assert!(is_newer(&node("a", 40), &node("a", 20)));
        assert!(!is_newer(&node("a", 20), &node("a", 40)), "the Lease from the takeover");
        assert!(!is_newer(&node("a", 30), &node("a", 20)), "a renewal while a kube-apiserver started");
        assert!(!is_newer(&node("b", 40), &node("a", 20)), "the clock of a former holder is ahead");
        assert!(!is_newer(&node("", 40), &node("", 20)), "two clients have released the lock");
    }

    #[test]
    fn locks_are_replaced_created_and_deleted() {
        let (ours, theirs) = (lease("n", "a", "u", "h", 9), lease("n", "a", "u", "h", 5));
        let replaced = Write::Replace(at_version(ours.clone(), "5"));
        assert_eq!(compared(&[ours], vec![theirs.clone()]), [vec![], vec![replaced], vec![], vec![], vec![], vec![]]);

        let recreated = lease("n", "a", "new", "h", 9);
        let [outdated, locks, ..] = compared(slice::from_ref(&recreated), vec![theirs.clone()]);
        assert_eq!(outdated, [Write::Delete(theirs.clone())]);
        let [Write::Create(created)] = &locks[..] else { panic!("{locks:?}") };
        assert_eq!(created.metadata.uid, None);
        let mut present = created.clone();
        present.metadata.uid = Some("of kube-apiserver".to_owned());
        assert_eq!(compared(&[recreated], vec![present]), NOTHING, "a second attempt");

        let deletion = Write::Delete(theirs.clone());
        let last = [vec![], vec![], vec![], vec![], vec![deletion], vec![]];
        assert_eq!(compared(&[], vec![theirs]), last, "deleted at this server");
    }

    #[test]
    fn a_deletion_that_waits_for_finalizers_is_written_back() {
        let built_in = lease("n", "a", "u", "h", 5);
        let mut ours = built_in.clone();
        ours.metadata.finalizers = Some(vec!["example.com/a".to_owned()]);
        let held = ours.clone();
        ours.metadata.deletion_timestamp = serde_json::from_value(json!("2026-01-01T00:00:00Z")).expect("a time");
        let [outdated, locks, nodes, ending, deletions, _] = compared(&[ours.clone()], vec![built_in]);
        assert_eq!((outdated, nodes, deletions), (vec![], vec![], vec![]));
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

    /// Starts a server that is kube-apiserver and replica at once, and returns its URL. The server has no Lease. It has
    /// the policy with the id `policy`, if any. It answers reads, and leaves writes without an answer.
    fn serve_reads(policy: Option<&'static str>) -> String {
        serve(move |request| {
            let path = request.split([' ', '?']).nth(1).unwrap_or_default();
            match policy {
                _ if !request.starts_with("GET ") => loop {
                    thread::park();
                },
                _ if path.ends_with("/leases") => {
                    Some((200, json!({"kind": "LeaseList", "apiVersion": "coordination.k8s.io/v1", "items": []})))
                }
                Some(id) if path.contains("admission") => {
                    let metadata = json!({"name": "p", "annotations": {"coordination-apiserver/id": id}});
                    let spec = json!({"policyName": "coordination-apiserver-switch", "validationActions": ["Deny"]});
                    Some((200, json!({"metadata": metadata, "spec": spec})))
                }
                _ => missing(),
            }
        })
    }

    /// Writes new Leases back at a server that has the policy with the id `present`. The command under test has
    /// installed the policy `7`, of which the time `left` remains. Returns the error of the write.
    fn refusal(present: Option<&'static str>, left: Duration) -> String {
        let url = serve_reads(present);
        let ours: Vec<_> = (0..100).map(|number| lease("n", &number.to_string(), "u", "h", 1)).collect();
        let written = block_on(async {
            let clients = Clients::without_tls(&url, &url);
            let policy = Installed::with_left("7", left);
            write_back(&clients, &ours, &policy, &mut Claim::of(&Handover::default())).await.map(drop)
        });
        written.expect_err("nothing is written").to_string()
    }

    #[test]
    fn a_hung_kube_apiserver_leaves_time_for_another_run() {
        let begun = Instant::now();
        let error = refusal(Some("7"), RERUN_TIME + Duration::from_secs(1));
        assert_eq!(error, "the admission policy ends in less than 35 s");
        assert!(begun.elapsed() < Duration::from_secs(4), "{:?}", begun.elapsed());
    }

    #[test]
    fn nothing_is_written_without_the_policy_of_this_command() {
        for present in [None, Some("8")] {
            let error = refusal(present, RERUN_TIME + Duration::from_secs(10));
            assert!(error.contains("somebody has deleted or replaced the admission policy"), "{error}");
        }
    }
}
