//! Admission policies of a switch without access to the cluster's etcd (Kubernetes documentation, "Validating Admission
//! Policy").
//!
//! A policy restricts what clients may do with built-in Leases while the Leases move. Without the policy, one client
//! could acquire a lock in built-in storage, and another client the same lock at this server. kube-apiserver runs no
//! admission for requests that it forwards to this server.
//!
//! Expressions cannot read the clock. So the end of a policy is compared with a time in the request.

use super::clients::{Clients, Server};
use super::{CONFLICT, LOOK_EVERY, NOT_FOUND, SwitchError, failed};
use crate::cluster::told;
use k8s_openapi::api::admissionregistration::v1::{ValidatingAdmissionPolicy, ValidatingAdmissionPolicyBinding};
use k8s_openapi::api::authentication::v1::SelfSubjectReview;
use k8s_openapi::api::core::v1::ConfigMap;
use k8s_openapi::jiff::{SignedDuration, Timestamp};
use k8s_openapi::kube_aggregator::pkg::apis::apiregistration::v1::APIService;
use k8s_openapi::serde::Serialize;
use k8s_openapi::serde::de::DeserializeOwned;
use kube::api::{DeleteParams, ObjectMeta, PostParams};
use kube::{Api, Resource, ResourceExt as _};
use serde_json::json;
use std::fmt::Debug;
use std::time::{Duration, Instant};
use tokio::time::sleep;
use uuid::Uuid;

/// Name of the policy of a switch and of its binding. A ConfigMap of this name, which nobody has, shows whether a
/// kube-apiserver enforces the policy.
const SWITCH: &str = "coordination-apiserver-switch";
/// Name of the shield and of its binding.
const SHIELD: &str = "coordination-apiserver-shield";
/// Annotation of a policy with its end.
const END: &str = "coordination-apiserver/end";
/// Annotation of a policy with the APIService, from which a later command learns how to reach the replicas.
const API_SERVICE_ANNOTATION: &str = "coordination-apiserver/apiservice";
/// Field manager of this command's writes of built-in Leases.
pub(super) const FIELD_MANAGER: &str = "coordination-apiserver-rollback";
/// Longest time that the command waits for the kube-apiservers to enforce a policy.
const ENFORCED_MAX: Duration = Duration::from_secs(10);
/// Time from the creation of the shield to its end. A watch of client-go ends within 10 minutes.
const SHIELD_TIME: SignedDuration = SignedDuration::from_mins(11);

/// Who may write built-in Leases.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Permitted {
    /// Every client may renew Leases.
    Renewals,
    /// Only this command may write.
    ThisCommand,
}

impl Permitted {
    /// Returns the time from the creation of the policy to its end.
    fn time(self) -> SignedDuration {
        match self {
            // Leaders and nodes go on meanwhile. If the command dies, no lock changes its holder in this time.
            Self::Renewals => SignedDuration::from_mins(5),
            // Leaders end after 10 s without a renewal, so at the end no client believes that it holds a lock.
            Self::ThisCommand => SignedDuration::from_secs(30),
        }
    }

    /// Returns the expression for the permitted writes of built-in Leases. `user` is the user of this command.
    fn expression(self, user: &str) -> String {
        match self {
            // Other clients may be of the same user.
            Self::ThisCommand => format!(
                "request.userInfo.username == {} && \
                 (request.operation == 'DELETE' || request.options.?fieldManager == optional.of('{FIELD_MANAGER}'))",
                json!(user)
            ),
            Self::Renewals => {
                let spec = ["holderIdentity", "leaseDurationSeconds", "acquireTime", "leaseTransitions", "strategy"];
                let spec = spec.into_iter().chain(["preferredHolder"]).map(|field| format!("spec.?{field}"));
                let metadata = ["labels", "annotations", "ownerReferences", "finalizers", "deletionTimestamp"];
                let metadata = metadata.into_iter().map(|field| format!("metadata.?{field}"));
                let same = spec.chain(metadata).map(|field| format!("object.{field} == oldObject.{field}"));
                let same = same.collect::<Vec<_>>().join(" && ");
                format!("request.operation == 'UPDATE' && {same}")
            }
        }
    }
}

/// The policy of a switch, as the cluster has it.
pub(super) struct Found {
    /// The APIService by which a command reaches the replicas.
    pub(super) api_service: Option<APIService>,
    end: Option<Timestamp>,
}

impl Found {
    /// Whether the policy still has effect, and has it for some seconds more.
    pub(super) fn is_in_effect(&self) -> bool {
        self.end.is_some_and(|end| end > Timestamp::now() + SignedDuration::from_secs(5))
    }
}

/// Reads the policy of a switch, if the cluster has one.
///
/// # Errors
/// If kube-apiserver does not answer.
pub(super) async fn find(cluster: &Server) -> Result<Option<Found>, SwitchError> {
    let found = cluster.objects::<ValidatingAdmissionPolicy>().get_opt(SWITCH).await;
    Ok(found.map_err(|error| cluster.failed(&error))?.map(|policy| {
        let annotation = |name| policy.annotations().get(name);
        Found {
            api_service: annotation(API_SERVICE_ANNOTATION).and_then(|text| serde_json::from_str(text).ok()),
            end: annotation(END).and_then(|text| text.parse().ok()),
        }
    }))
}

/// Installs the policy of a switch, and waits until every kube-apiserver enforces it. The policy keeps `api_service`,
/// so that a later command can reach the replicas.
///
/// # Errors
/// If a kube-apiserver does not enforce the policy in time.
pub(super) async fn install(
    clients: &Clients,
    permitted: Permitted,
    api_service: &APIService,
) -> Result<(), SwitchError> {
    let (id, user) = (Uuid::new_v4().to_string(), user(clients.cluster()).await?);
    let end = from_now(permitted.time());
    let kept = serde_json::to_string(api_service).map_err(|error| failed(SWITCH, error))?;
    let policy = switch_policy(permitted, &user, end, &id, &kept);
    put_both(clients.cluster(), policy, SWITCH).await?;
    let begun = Instant::now();
    for apiserver in clients.apiservers() {
        while !is_enforced(apiserver, &id).await? {
            if begun.elapsed() > ENFORCED_MAX {
                return Err(failed(apiserver.url(), "the admission policy has no effect"));
            }
            sleep(LOOK_EVERY).await;
        }
    }
    Ok(())
}

/// Checks in a dry run that kube-apiserver takes the policy.
///
/// # Errors
/// The reason why kube-apiserver does not take the policy.
pub(super) async fn check(cluster: &Server, permitted: Permitted) -> Result<(), SwitchError> {
    let dry = PostParams { dry_run: true, ..PostParams::default() };
    let user = user(cluster).await?;
    for policy in [switch_policy(permitted, &user, Timestamp::now(), "", ""), shield_policy(Timestamp::now())] {
        match cluster.objects().create(&dry, &policy).await {
            Ok(_) => {}
            Err(kube::Error::Api(status)) if status.code == CONFLICT => {}
            Err(error) => return Err(failed("ValidatingAdmissionPolicy", told(&error))),
        }
    }
    Ok(())
}

/// Installs the shield: for some minutes kube-controller-manager cannot mark nodes as not ready. Returns the end.
///
/// # Errors
/// If kube-apiserver refuses the policy.
pub(super) async fn install_shield(cluster: &Server) -> Result<Timestamp, SwitchError> {
    let end = from_now(SHIELD_TIME);
    put_both(cluster, shield_policy(end), SHIELD).await?;
    Ok(end)
}

/// Deletes the policy of a switch.
///
/// # Errors
/// If kube-apiserver does not delete the policy.
pub(super) async fn remove(cluster: &Server) -> Result<(), SwitchError> {
    delete_both(cluster, SWITCH).await
}

/// Deletes the shield.
///
/// # Errors
/// If kube-apiserver does not delete the shield.
pub(super) async fn remove_shield(cluster: &Server) -> Result<(), SwitchError> {
    delete_both(cluster, SHIELD).await
}

/// Returns the end of a policy, in whole seconds.
fn from_now(time: SignedDuration) -> Timestamp {
    let end = Timestamp::now() + time;
    Timestamp::from_second(end.as_second()).unwrap_or(end)
}

/// Returns the name of the user of this command.
async fn user(cluster: &Server) -> Result<String, SwitchError> {
    let review = cluster.objects().create(&PostParams::default(), &SelfSubjectReview::default()).await;
    let review = review.map_err(|error| failed("SelfSubjectReview", told(&error)))?;
    let user = review.status.and_then(|status| status.user_info).and_then(|user| user.username);
    user.ok_or_else(|| SwitchError("SelfSubjectReview: no user name".to_owned()))
}

/// Whether a kube-apiserver enforces the policy with this id.
async fn is_enforced(apiserver: &Server, id: &str) -> Result<bool, SwitchError> {
    let metadata = ObjectMeta { name: Some(SWITCH.to_owned()), ..ObjectMeta::default() };
    let probe = ConfigMap { metadata, ..ConfigMap::default() };
    let dry = PostParams { dry_run: true, ..PostParams::default() };
    match apiserver.config_maps().create(&dry, &probe).await {
        Ok(_) => Ok(false),
        Err(kube::Error::Api(status)) if status.message.contains(id) => Ok(true),
        // The policy of an earlier command still has effect.
        Err(kube::Error::Api(status)) if status.message.contains(SWITCH) => Ok(false),
        Err(error) => Err(apiserver.failed(&error)),
    }
}

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
    let annotations = json!({END: end.to_string(), API_SERVICE_ANNOTATION: api_service});
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

fn shield_policy(end: Timestamp) -> ValidatingAdmissionPolicy {
    let ready =
        |object: &str| format!("{object}.status.conditions.exists(c, c.type == 'Ready' && c.status == 'Unknown'");
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

/// Creates or replaces a policy and its binding.
async fn put_both(cluster: &Server, policy: ValidatingAdmissionPolicy, name: &str) -> Result<(), SwitchError> {
    put(&cluster.objects(), policy).await?;
    put(&cluster.objects(), binding(name)).await
}

async fn put<K>(objects: &Api<K>, mut object: K) -> Result<(), SwitchError>
where
    K: Clone + Debug + DeserializeOwned + Serialize + Resource<DynamicType = ()>,
{
    let name = object.name_any();
    loop {
        let found = objects.get_opt(&name).await.map_err(|error| failed(&name, told(&error)))?;
        let parameters = PostParams::default();
        let done = match found {
            None => objects.create(&parameters, &object).await,
            Some(found) => {
                object.meta_mut().resource_version = found.resource_version();
                objects.replace(&name, &parameters, &object).await
            }
        };
        match done {
            Ok(_) => return Ok(()),
            Err(kube::Error::Api(status)) if status.code == CONFLICT => {}
            Err(error) => return Err(failed(&name, told(&error))),
        }
    }
}

/// Deletes a policy and its binding. The binding goes first, since the policy has no effect without it.
async fn delete_both(cluster: &Server, name: &str) -> Result<(), SwitchError> {
    delete(&cluster.objects::<ValidatingAdmissionPolicyBinding>(), name).await?;
    delete(&cluster.objects::<ValidatingAdmissionPolicy>(), name).await
}

async fn delete<K: Clone + Debug + DeserializeOwned>(objects: &Api<K>, name: &str) -> Result<(), SwitchError> {
    match objects.delete(name, &DeleteParams::default()).await {
        Ok(_) => Ok(()),
        Err(kube::Error::Api(status)) if status.code == NOT_FOUND => Ok(()),
        Err(error) => Err(failed(name, told(&error))),
    }
}
