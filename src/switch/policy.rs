//! Admission policies of a switch without access to the cluster's etcd (Kubernetes documentation, "Validating Admission
//! Policy").
//!
//! A policy restricts the writes of built-in Leases (the Leases that kube-apiserver itself stores) while the Leases
//! move. Without the policy, one client could acquire a lock in built-in storage, and another client the same lock at
//! this server. kube-apiserver runs no admission for requests that it forwards to this server. So the policy does not
//! restrict writes to this server.
//!
//! The expression of a policy cannot read the clock. So it compares the end of the policy with a time in the request:
//! the `renewTime` that the client has set. The end is a time of kube-apiserver's clock. A client whose clock is ahead
//! by more than [`MARGIN`] may write before the command has stopped relying on the policy.

use super::clients::{Clients, Server};
use super::{ANSWER_MIN, CONFLICT, LOOK_EVERY, NOT_FOUND, RERUN_TIME, SwitchError, failed};
use crate::cluster::told;
use k8s_openapi::api::admissionregistration::v1::{ValidatingAdmissionPolicy, ValidatingAdmissionPolicyBinding};
use k8s_openapi::api::authentication::v1::SelfSubjectReview;
use k8s_openapi::api::core::v1::ConfigMap;
use k8s_openapi::jiff::{SignedDuration, Timestamp};
use k8s_openapi::kube_aggregator::pkg::apis::apiregistration::v1::APIService;
use k8s_openapi::serde::Serialize;
use k8s_openapi::serde::de::DeserializeOwned;
use kube::api::{DeleteParams, ObjectMeta, PostParams, Preconditions};
use kube::{Api, Resource, ResourceExt as _};
use serde_json::json;
use std::fmt::Debug;
use std::time::{Duration, Instant, SystemTime};
use tokio::time::{sleep, timeout};
use uuid::Uuid;

/// Name of the policy of a switch and of its binding. The policy also refuses the creation of a ConfigMap of this name.
/// So a dry run of that creation shows whether a kube-apiserver enforces the policy.
const SWITCH: &str = "coordination-apiserver-switch";
/// Name of the shield and of its binding. The shield is the policy that keeps kube-controller-manager from marking
/// nodes as not ready.
const SHIELD: &str = "coordination-apiserver-shield";
/// Annotation of a policy with the writes that the policy permits ([`Permitted::name`]).
const PERMITTED: &str = "coordination-apiserver/permitted";
/// Annotation of the policy of a switch, and of its binding, with the id of their installation.
const ID: &str = "coordination-apiserver/id";
/// Annotation of a policy with the time at which the policy ends.
pub(super) const END: &str = "coordination-apiserver/end";
/// Annotation of a policy with the APIService as JSON. From the APIService, a later command learns how to reach the
/// replicas.
const API_SERVICE_ANNOTATION: &str = "coordination-apiserver/apiservice";
/// Field manager of the rollback command's writes of built-in Leases.
pub(super) const FIELD_MANAGER: &str = "coordination-apiserver-rollback";
/// Time before the end of a policy at which the command stops relying on the policy.
const MARGIN: Duration = Duration::from_secs(5);
/// Maximum time that the command waits for the kube-apiservers to enforce a policy.
pub(super) const ENFORCED_MAX: Duration = Duration::from_secs(10);
/// Time from the creation of the shield to its end. After a takeover, kube-controller-manager sees no renewals of nodes
/// until its old watch of built-in Leases ends. A watch of client-go ends within 10 minutes, so the shield lasts
/// longer.
const SHIELD_TIME: SignedDuration = SignedDuration::from_mins(11);
/// Time for each node to renew its Lease in built-in storage. A kubelet renews every 10 s.
const NODES_RENEWED: Duration = Duration::from_secs(15);

/// The writes of built-in Leases that a policy permits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Permitted {
    /// Renewals, by every client.
    Renewals,
    /// The writes of this command, and deletions by any client with the same user.
    ThisCommand,
}

impl Permitted {
    /// Returns the word for the annotation [`PERMITTED`].
    fn name(self) -> &'static str {
        match self {
            Self::Renewals => "renewals",
            Self::ThisCommand => "this-command",
        }
    }

    /// Returns the CEL expression for the permitted writes of built-in Leases. `user` is the user of this command.
    fn expression(self, user: &str) -> String {
        match self {
            // Other clients may have the same user, so the expression also compares the field manager. A deletion has
            // no field manager, so it is permitted to any client with this user.
            Self::ThisCommand => format!(
                "request.userInfo.username == {} && \
                 (request.operation == 'DELETE' || request.options.?fieldManager == optional.of('{FIELD_MANAGER}'))",
                json!(user)
            ),
            Self::Renewals => is_renewal(),
        }
    }
}

/// Returns the CEL expression that is true for a renewal: an update that changes only the `renewTime` of a Lease.
pub(super) fn is_renewal() -> String {
    let spec = ["holderIdentity", "leaseDurationSeconds", "acquireTime", "leaseTransitions", "strategy"];
    let spec = spec.into_iter().chain(["preferredHolder"]).map(|field| format!("?spec.?{field}"));
    let metadata = ["labels", "annotations", "ownerReferences", "finalizers", "deletionTimestamp"];
    let metadata = metadata.into_iter().map(|field| format!("metadata.?{field}"));
    let same = spec.chain(metadata).map(|field| format!("object.{field} == oldObject.{field}"));
    format!("request.operation == 'UPDATE' && {}", same.collect::<Vec<_>>().join(" && "))
}

/// The policy of a switch that a command finds in the cluster.
pub(super) struct Found {
    /// The APIService from which a command learns how to reach the replicas.
    pub(super) api_service: Option<APIService>,
    /// Whether a rollback installed the policy.
    pub(super) is_of_rollback: bool,
    id: String,
    end: Option<Timestamp>,
}

/// The policy of a switch that this command has installed.
pub(super) struct Installed {
    id: String,
    /// A time just before the creation of the policy.
    begun: Instant,
    /// The time `begun`, by the wall clock.
    begun_at: SystemTime,
    /// Minimum time from `begun` to the end of the policy.
    time: Duration,
    /// Whether the policy and its binding have replaced those of an earlier command. If not, the cluster had no policy
    /// with effect just before.
    pub(super) is_replacement: bool,
}

impl Installed {
    /// Returns the remaining time in which this command can rely on the policy.
    pub(super) fn left(&self) -> Duration {
        // The monotonic clock stands still while this machine is suspended, but the time of the policy goes on.
        let elapsed = self.begun.elapsed().max(self.begun_at.elapsed().unwrap_or_default());
        self.time.saturating_sub(MARGIN).saturating_sub(elapsed)
    }

    /// Checks that this command can still rely on the policy.
    ///
    /// # Errors
    /// If the policy has ended, or ends within [`MARGIN`].
    pub(super) fn check(&self) -> Result<(), SwitchError> {
        match self.left().is_zero() {
            true => Err(SwitchError("the admission policy has come to its end".to_owned())),
            false => Ok(()),
        }
    }

    /// Checks that this command may write Leases: more than [`RERUN_TIME`] of the policy is left.
    ///
    /// # Errors
    /// If only the time for another run is left.
    pub(super) fn check_writes(&self) -> Result<(), SwitchError> {
        match self.left() > RERUN_TIME {
            true => Ok(()),
            false => Err(ends_soon()),
        }
    }

    /// Whether the cluster still has the policy of this command, and its binding.
    ///
    /// # Errors
    /// If kube-apiserver does not answer.
    pub(super) async fn is_kept(&self, cluster: &Server) -> Result<bool, SwitchError> {
        let found = cluster.objects::<ValidatingAdmissionPolicy>().get_opt(SWITCH).await;
        let found = found.map_err(|error| cluster.failed(&error))?;
        Ok(found.is_some_and(|found| id_of(&found) == self.id) && is_bound(cluster).await?)
    }

    /// Checks that the cluster still has the policy of this command, and that this command can still rely on it.
    ///
    /// # Errors
    /// If the policy is deleted or replaced, has ended, or ends within [`MARGIN`]. Also if kube-apiserver does not
    /// answer.
    pub(super) async fn check_kept(&self, cluster: &Server) -> Result<(), SwitchError> {
        match self.is_kept(cluster).await? {
            // The answer of kube-apiserver may have taken seconds, so the time is checked last.
            true => self.check(),
            false => Err(lost()),
        }
    }

    /// Deletes the policy, unless another command has replaced it.
    ///
    /// # Errors
    /// If kube-apiserver does not delete the policy.
    pub(super) async fn remove(&self, cluster: &Server) -> Result<(), SwitchError> {
        remove(cluster, &self.id).await
    }

    /// Returns a policy with this id, on which a command can rely for the time `left`.
    #[cfg(test)]
    pub(super) fn with_left(id: &str, left: Duration) -> Self {
        let (begun, begun_at) = (Instant::now(), SystemTime::now());
        Self { id: id.to_owned(), begun, begun_at, time: MARGIN + left, is_replacement: false }
    }
}

/// Returns the error of a command whose policy somebody else has deleted or replaced.
pub(super) fn lost() -> SwitchError {
    let why = "somebody has deleted or replaced the admission policy, so other clients may have acquired locks in \
               built-in storage";
    failed(SWITCH, why)
}

/// Returns the error of a command that stops its writes, so that time for another run is left.
pub(super) fn ends_soon() -> SwitchError {
    SwitchError(format!("the admission policy ends in less than {} s", (RERUN_TIME + MARGIN).as_secs()))
}

/// Returns the id of a policy's installation; empty if somebody has removed the annotation.
fn id_of(policy: &ValidatingAdmissionPolicy) -> &str {
    policy.annotations().get(ID).map_or("", String::as_str)
}

/// Whether a binding gives the policy of a switch its effect. Without such a binding, a policy has no effect.
async fn is_bound(cluster: &Server) -> Result<bool, SwitchError> {
    Ok(find_binding(cluster).await?.is_some_and(|found| denies(&found)))
}

/// Reads the binding of the policy of a switch; `None` if the cluster has none.
async fn find_binding(cluster: &Server) -> Result<Option<ValidatingAdmissionPolicyBinding>, SwitchError> {
    let found = cluster.objects::<ValidatingAdmissionPolicyBinding>().get_opt(SWITCH).await;
    found.map_err(|error| cluster.failed(&error))
}

/// Whether a binding makes kube-apiserver deny all requests that the policy of a switch denies.
fn denies(binding: &ValidatingAdmissionPolicyBinding) -> bool {
    let spec = &binding.spec;
    let denies = spec.validation_actions.iter().any(|action| action == "Deny");
    spec.policy_name == SWITCH && denies && spec.match_resources.is_none()
}

impl Found {
    /// Whether a command can rely on the policy for `time` from now on.
    ///
    /// # Errors
    /// If kube-apiserver does not return its time, or does not answer.
    pub(super) async fn lasts(&self, cluster: &Server, time: Duration) -> Result<bool, SwitchError> {
        let wanted = SignedDuration::try_from(MARGIN + time).unwrap_or_default();
        let now = now(cluster).await?;
        Ok(self.end.is_some_and(|end| end.duration_since(now) > wanted) && is_bound(cluster).await?)
    }

    /// Deletes the policy, unless another command has replaced it.
    ///
    /// # Errors
    /// If kube-apiserver does not delete the policy.
    pub(super) async fn remove(&self, cluster: &Server) -> Result<(), SwitchError> {
        remove(cluster, &self.id).await
    }
}

/// Reads the policy of a switch; `None` if the cluster has none.
///
/// # Errors
/// If kube-apiserver does not answer.
pub(super) async fn find(cluster: &Server) -> Result<Option<Found>, SwitchError> {
    let found = cluster.objects::<ValidatingAdmissionPolicy>().get_opt(SWITCH).await;
    Ok(found.map_err(|error| cluster.failed(&error))?.map(|policy| {
        let annotation = |name| policy.annotations().get(name);
        Found {
            api_service: annotation(API_SERVICE_ANNOTATION).and_then(|text| serde_json::from_str(text).ok()),
            is_of_rollback: annotation(PERMITTED).is_some_and(|word| word == Permitted::ThisCommand.name()),
            id: id_of(&policy).to_owned(),
            end: end_of(&policy),
        }
    }))
}

/// Returns the end of a policy, from its annotation.
fn end_of(policy: &ValidatingAdmissionPolicy) -> Option<Timestamp> {
    policy.annotations().get(END).and_then(|text| text.parse().ok())
}

/// Installs the policy of a switch, and waits until every kube-apiserver enforces it. The policy lasts for `time`. The
/// policy contains `api_service`, so that a later command can reach the replicas.
///
/// # Errors
/// If a kube-apiserver does not enforce the policy in time. The policy is not deleted, since it may have replaced an
/// earlier policy that is still needed.
pub(super) async fn install(
    clients: &Clients,
    permitted: Permitted,
    time: Duration,
    api_service: &APIService,
) -> Result<Installed, SwitchError> {
    let cluster = clients.cluster();
    let user = user(cluster).await?;
    let (id, begun, begun_at) = (Uuid::new_v4().to_string(), Instant::now(), SystemTime::now());
    let mut installed = Installed { id, begun, begun_at, time, is_replacement: false };
    // kube-apiserver's time is in whole seconds, rounded down, so the end is a second later.
    let end = now(cluster).await? + SignedDuration::try_from(time + Duration::from_secs(1)).unwrap_or_default();
    let kept = serde_json::to_string(api_service).map_err(|error| failed(SWITCH, error))?;
    let had_policy = put(&cluster.objects(), switch_policy(permitted, &user, end, &installed.id, &kept)).await?;
    let mut binding = binding(SWITCH);
    // The id is new, so the update of an earlier binding changes the `resourceVersion`. Another command then does not
    // delete this binding together with its own policy ([`remove`]).
    binding.annotations_mut().insert(ID.to_owned(), installed.id.clone());
    let had_binding = put(&cluster.objects(), binding).await?;
    installed.is_replacement = had_policy && had_binding;
    let probe = async |apiserver: &Server| probe(apiserver, &installed.id).await;
    let enforced = await_effect(clients, installed.begun, ENFORCED_MAX, probe).await;
    enforced.map_err(|refused| failed("the admission policy has no effect", refused))?;
    Ok(installed)
}

/// Probes one kube-apiserver after another, each until `probe` succeeds. Fails if a probe fails later than `limit`
/// after `begun`. Each probe has at least [`ANSWER_MIN`]. So even if `limit` has passed before this call, each
/// kube-apiserver gets one probe, unless an earlier one has failed.
///
/// # Errors
/// The error of the last probe at the first kube-apiserver that fails.
pub(super) async fn await_effect(
    clients: &Clients,
    begun: Instant,
    limit: Duration,
    probe: impl AsyncFn(&Server) -> Result<(), SwitchError>,
) -> Result<(), SwitchError> {
    for apiserver in clients.apiservers() {
        loop {
            let left = limit.saturating_sub(begun.elapsed()).max(ANSWER_MIN);
            let probed = timeout(left, probe(apiserver)).await.unwrap_or_else(|_| Err(apiserver.silent()));
            let Err(why) = probed else { break };
            if begun.elapsed() > limit {
                return Err(why);
            }
            sleep(LOOK_EVERY).await;
        }
    }
    Ok(())
}

/// Checks in dry runs that kube-apiserver accepts the policy of a switch and the shield.
///
/// # Errors
/// The reason why kube-apiserver refuses the policy or the shield.
pub(super) async fn check(cluster: &Server, permitted: Permitted) -> Result<(), SwitchError> {
    let dry = PostParams { dry_run: true, ..PostParams::default() };
    let user = user(cluster).await?;
    let now = now(cluster).await?;
    for policy in [switch_policy(permitted, &user, now, "", ""), shield_policy(now)] {
        match cluster.objects().create(&dry, &policy).await {
            Ok(_) => {}
            Err(kube::Error::Api(status)) if status.code == CONFLICT => {}
            Err(error) => return Err(failed("ValidatingAdmissionPolicy", told(&error))),
        }
    }
    Ok(())
}

/// Installs the shield: for [`SHIELD_TIME`], kube-controller-manager cannot mark nodes as not ready. Returns the end of
/// that time.
///
/// # Errors
/// If kube-apiserver refuses the shield.
pub(super) async fn install_shield(cluster: &Server) -> Result<Timestamp, SwitchError> {
    let end = now(cluster).await? + SHIELD_TIME;
    put(&cluster.objects(), shield_policy(end)).await?;
    put(&cluster.objects(), binding(SHIELD)).await?;
    Ok(end)
}

/// Deletes the policy of a switch and its binding, if the policy has this id.
async fn remove(cluster: &Server, id: &str) -> Result<(), SwitchError> {
    loop {
        // An installation writes the policy before the binding, so the command reads the policy after the binding. If
        // the policy then still has this id, the binding of a later installation does not meet the preconditions below.
        let binding = find_binding(cluster).await?;
        let found = cluster.objects::<ValidatingAdmissionPolicy>().get_opt(SWITCH).await;
        let found = found.map_err(|error| cluster.failed(&error))?;
        let Some(found) = found.filter(|found| id_of(found) == id) else {
            return Ok(());
        };
        // The policy is deleted last. So if the command is killed, the next command finds the policy, and deletes both.
        // kube-controller-manager may write the status of the policy between the read and the deletion. Then the
        // deletion fails, and the loop repeats it.
        if delete_unchanged(cluster, binding.as_ref()).await? && delete_unchanged(cluster, Some(&found)).await? {
            return Ok(());
        }
    }
}

/// Deletes the policies that a killed command has left behind. Call this function only while no other command runs: a
/// command that has lost its policy fails ([`lost`]).
///
/// # Errors
/// If kube-apiserver does not delete a policy.
pub(super) async fn remove_leftovers(cluster: &Server) -> Result<(), SwitchError> {
    let binding = find_binding(cluster).await?;
    match find(cluster).await? {
        Some(found) => found.remove(cluster).await?,
        // A killed command of an older release, or somebody else, may have deleted only the policy, and not its
        // binding. If the binding has changed, another command has installed its policy meanwhile.
        None => _ = delete_unchanged(cluster, binding.as_ref()).await?,
    }
    remove_shield_late(cluster).await
}

/// Deletes the shield. If the shield has effect, first waits until each node has had time to renew its Lease in
/// built-in storage. Until then, these Leases may be older than the grace period of nodes, so kube-controller-manager
/// could mark the nodes as not ready.
///
/// # Errors
/// If kube-apiserver does not answer, or does not delete the shield.
pub(super) async fn remove_shield_late(cluster: &Server) -> Result<(), SwitchError> {
    let found = cluster.objects::<ValidatingAdmissionPolicy>().get_opt(SHIELD).await;
    if let Some(shield) = found.map_err(|error| cluster.failed(&error))? {
        sleep(time_to_renew(&shield, now(cluster).await?)).await;
    }
    remove_shield(cluster).await
}

/// Returns the time for which the shield must stay after `now`, the time at which clients write built-in Leases again.
fn time_to_renew(shield: &ValidatingAdmissionPolicy, now: Timestamp) -> Duration {
    let has_effect = end_of(shield).is_some_and(|end| now < end);
    if has_effect { NODES_RENEWED } else { Duration::ZERO }
}

/// Deletes the shield at once. Call this function only after the renewals of nodes are in built-in storage.
///
/// # Errors
/// If kube-apiserver does not delete the shield.
pub(super) async fn remove_shield(cluster: &Server) -> Result<(), SwitchError> {
    delete(&cluster.objects::<ValidatingAdmissionPolicyBinding>(), SHIELD, &DeleteParams::default()).await?;
    delete(&cluster.objects::<ValidatingAdmissionPolicy>(), SHIELD, &DeleteParams::default()).await?;
    Ok(())
}

/// Returns the time of kube-apiserver's clock, rounded down to seconds.
pub(super) async fn now(cluster: &Server) -> Result<Timestamp, SwitchError> {
    let metadata = ObjectMeta { generate_name: Some("coordination-apiserver-".to_owned()), ..ObjectMeta::default() };
    let created = create_nothing(cluster, metadata).await.map_err(|error| cluster.failed(&error))?;
    let time = created.metadata.creation_timestamp.map(|time| time.0);
    time.ok_or_else(|| failed(cluster.url(), "no creationTimestamp"))
}

/// Sends the creation of a ConfigMap as a dry run, which creates nothing.
pub(super) async fn create_nothing(apiserver: &Server, metadata: ObjectMeta) -> Result<ConfigMap, kube::Error> {
    let dry = PostParams { dry_run: true, ..PostParams::default() };
    apiserver.config_maps().create(&dry, &ConfigMap { metadata, ..ConfigMap::default() }).await
}

/// Returns the user name of this command, as kube-apiserver authenticates it.
async fn user(cluster: &Server) -> Result<String, SwitchError> {
    let review = cluster.objects().create(&PostParams::default(), &SelfSubjectReview::default()).await;
    let review = review.map_err(|error| failed("SelfSubjectReview", told(&error)))?;
    let user = review.status.and_then(|status| status.user_info).and_then(|user| user.username);
    user.ok_or_else(|| SwitchError("SelfSubjectReview: no user name".to_owned()))
}

/// Checks that a kube-apiserver enforces the policy with this id. The policy must refuse the creation of a ConfigMap.
///
/// # Errors
/// The response that shows that kube-apiserver does not enforce the policy.
async fn probe(apiserver: &Server, id: &str) -> Result<(), SwitchError> {
    match create_nothing(apiserver, ObjectMeta { name: Some(SWITCH.to_owned()), ..ObjectMeta::default() }).await {
        Err(kube::Error::Api(status)) if status.message.contains(id) => Ok(()),
        Ok(_) => Err(failed(apiserver.url(), "a ConfigMap that it forbids could be created")),
        Err(error) => Err(apiserver.failed(&error)),
    }
}

/// Returns the policy of a switch. It refuses each write of a Lease that `permitted` does not permit, unless the
/// `renewTime` in the write is `end` or later. A deletion has no `renewTime`. So the policy refuses deletions until a
/// command or the operator deletes the policy. The policy also refuses the ConfigMap of the [`probe`].
fn switch_policy(
    permitted: Permitted,
    user: &str,
    end: Timestamp,
    id: &str,
    api_service: &str,
) -> ValidatingAdmissionPolicy {
    let is_over = format!(
        "request.operation != 'DELETE' && has(object.spec.renewTime) && \
         timestamp(object.spec.renewTime) >= timestamp('{end}')"
    );
    let expression =
        format!("request.resource.resource == 'leases' && (({}) || ({is_over}))", permitted.expression(user));
    let annotations =
        json!({ID: id, END: end.to_string(), PERMITTED: permitted.name(), API_SERVICE_ANNOTATION: api_service});
    policy(json!({
        "metadata": {"name": SWITCH, "annotations": annotations},
        "spec": {
            "matchConstraints": {"resourceRules": [
                {"apiGroups": ["coordination.k8s.io"], "apiVersions": ["*"], "resources": ["leases"],
                 "operations": ["CREATE", "UPDATE", "DELETE"]},
                {"apiGroups": [""], "apiVersions": ["*"], "resources": ["configmaps"], "resourceNames": [SWITCH],
                 "operations": ["CREATE"]},
            ]},
            "validations": [{
                "expression": expression,
                "reason": "Forbidden",
                "message": format!("Leases are being moved: try again ({id})"),
            }],
        },
    }))
}

/// Returns the shield. It refuses a write of kube-controller-manager in which the condition `Ready` of a node becomes
/// `Unknown` before `end`. A node whose condition is `Unknown` already may stay so.
fn shield_policy(end: Timestamp) -> ValidatingAdmissionPolicy {
    let ready = |object: &str| {
        format!("{object}.?status.?conditions.orValue([]).exists(c, c.type == 'Ready' && c.status == 'Unknown'")
    };
    let expression = format!(
        "!{} && timestamp(c.lastTransitionTime) < timestamp('{end}')) || {})",
        ready("object"),
        ready("oldObject"),
    );
    let users = ["system:serviceaccount:kube-system:node-controller", "system:kube-controller-manager"];
    policy(json!({
        "metadata": {"name": SHIELD, "annotations": {END: end.to_string()}},
        "spec": {
            "matchConstraints": {"resourceRules": [
                {"apiGroups": [""], "apiVersions": ["*"], "resources": ["nodes/status"], "operations": ["UPDATE"]},
            ]},
            "matchConditions": [
                {"name": "node-controller", "expression": format!("request.userInfo.username in {}", json!(users))},
            ],
            "validations": [{
                "expression": expression,
                "reason": "Forbidden",
                "message": "kube-controller-manager has no current Leases of nodes yet",
            }],
        },
    }))
}

fn policy(value: serde_json::Value) -> ValidatingAdmissionPolicy {
    serde_json::from_value(value).expect("the fields of a policy")
}

fn binding(name: &str) -> ValidatingAdmissionPolicyBinding {
    let value = json!({"metadata": {"name": name}, "spec": {"policyName": name, "validationActions": ["Deny"]}});
    serde_json::from_value(value).expect("the fields of a binding")
}

/// Creates an object, or replaces it if it exists. Tries again if another command creates, changes or deletes the
/// object meanwhile. Returns whether the object existed.
pub(super) async fn put<K>(objects: &Api<K>, mut object: K) -> Result<bool, SwitchError>
where
    K: Clone + Debug + DeserializeOwned + Serialize + Resource<DynamicType = ()>,
{
    let name = object.name_any();
    loop {
        let found = objects.get_opt(&name).await.map_err(|error| failed(&name, told(&error)))?;
        let parameters = PostParams::default();
        let existed = found.is_some();
        object.meta_mut().resource_version = found.and_then(|found| found.resource_version());
        let done = if existed {
            objects.replace(&name, &parameters, &object).await
        } else {
            objects.create(&parameters, &object).await
        };
        match done {
            Ok(_) => return Ok(existed),
            Err(kube::Error::Api(status)) if status.code == CONFLICT || (existed && status.code == NOT_FOUND) => {}
            Err(error) => return Err(failed(&name, told(&error))),
        }
    }
}

/// Deletes the object `found`, if any. Returns `false` if the object has changed since it was read.
async fn delete_unchanged<K>(cluster: &Server, found: Option<&K>) -> Result<bool, SwitchError>
where
    K: Clone + Debug + DeserializeOwned + Resource<DynamicType = ()>,
{
    let Some(found) = found else { return Ok(true) };
    let preconditions = Some(Preconditions { uid: found.uid(), resource_version: found.resource_version() });
    let parameters = DeleteParams { preconditions, ..DeleteParams::default() };
    delete(&cluster.objects::<K>(), &found.name_any(), &parameters).await
}

/// Deletes an object. Returns `false` if the object does not meet the preconditions, since it has changed.
pub(super) async fn delete<K>(objects: &Api<K>, name: &str, parameters: &DeleteParams) -> Result<bool, SwitchError>
where
    K: Clone + Debug + DeserializeOwned,
{
    match objects.delete(name, parameters).await {
        Ok(_) => Ok(true),
        Err(kube::Error::Api(status)) if status.code == NOT_FOUND => Ok(true),
        Err(kube::Error::Api(status)) if status.code == CONFLICT => Ok(false),
        Err(error) => Err(failed(name, told(&error))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn writes_stop_while_there_is_time_for_another_run() {
        let left = |left| Installed::with_left("7", left);
        assert!(left(RERUN_TIME + Duration::from_secs(60)).check_writes().is_ok());
        let late = left(RERUN_TIME.saturating_sub(Duration::from_secs(1)));
        assert!(late.check().is_ok(), "the command can still rely on the policy");
        let error = late.check_writes().expect_err("too late").to_string();
        assert_eq!(error, "the admission policy ends in less than 35 s");
    }

    #[test]
    fn only_a_binding_that_denies_has_effect() {
        assert!(denies(&binding(SWITCH)));
        assert!(!denies(&binding(SHIELD)));
        let mut audit = binding(SWITCH);
        audit.spec.validation_actions = vec!["Audit".to_owned()];
        assert!(!denies(&audit));
    }

    #[test]
    fn a_shield_with_effect_stays_until_each_node_has_renewed() {
        let end: Timestamp = "2026-01-02T03:04:05Z".parse().expect("a time");
        let second = SignedDuration::from_secs(1);
        assert_eq!(time_to_renew(&shield_policy(end), end - second), NODES_RENEWED);
        assert_eq!(time_to_renew(&shield_policy(end), end), Duration::ZERO);
    }
}
