//! The admission policy for the first renewals after a rollback (Kubernetes documentation, "Mutating Admission
//! Policy").
//!
//! After a rollback, or the undo of a takeover, clients still have Leases with a `resourceVersion` of this server.
//! kube-apiserver would answer 409 to an update that names this `resourceVersion`. The policy replaces it with the
//! `resourceVersion` of the built-in Lease. It does so only in renewals, which change nothing but the `renewTime` of a
//! Lease. So no update overwrites a change of another client, and no client acquires a lock by an outdated Lease.
//!
//! The expression of a policy cannot read the clock. So it compares the end of the policy with the `renewTime` in the
//! request. After its end, the policy has no effect. The next takeover deletes the policy before it copies Leases.
//! During a takeover, this server may already have the Lease. So built-in storage must refuse a late renewal with a
//! `resourceVersion` of this server.
//!
//! kube-apiserver has version `v1` of the API MutatingAdmissionPolicy since Kubernetes 1.36. Without the policy, the
//! first update of each client gets 409, and the client reads the Lease again.

use super::clients::{Clients, Server};
use super::policy::{END, await_effect, create_nothing, delete, is_renewal, now, put};
use super::{CONFLICT, Report, SwitchError, failed};
use crate::cluster::told;
use crate::handover::NAMESPACE;
use k8s_openapi::api::admissionregistration::v1::{MutatingAdmissionPolicy, MutatingAdmissionPolicyBinding};
use k8s_openapi::jiff::{SignedDuration, Timestamp};
use kube::ResourceExt as _;
use kube::api::{DeleteParams, ObjectMeta, PostParams};
use serde_json::json;
use std::time::{Duration, Instant};
use uuid::Uuid;

/// Name of the policy and of its binding. In a dry run, the policy also adds data to a new ConfigMap of this name. So
/// the dry run shows whether a kube-apiserver applies the policy.
const NAME: &str = "coordination-apiserver-renewals";
/// Key of the data that the policy adds to the ConfigMap of a dry run. The value is the id of the policy.
const ID: &str = "id";
/// Time from the creation of the policy to its end. The time suffices for the slowest undo, of some four minutes, and
/// for a renewal of each node.
const POLICY_TIME: SignedDuration = SignedDuration::from_mins(5);
/// Maximum time that a rollback waits until the kube-apiservers apply the policy. A kube-apiserver looks for new
/// policies every second.
const APPLIED_MAX: Duration = Duration::from_secs(3);
/// Minimum number of digits of a `resourceVersion` of this server, which is a time in microseconds. A revision of etcd
/// has fewer digits.
const VERSION_DIGITS: usize = 16;

/// The policy that this command has created.
pub(super) struct Created {
    id: String,
    begun: Instant,
}

/// Checks in a dry run that kube-apiserver accepts the policy, and reports the result.
pub(super) async fn check(cluster: &Server, report: &mut Report<'_>) {
    let dry = PostParams { dry_run: true, ..PostParams::default() };
    let refusal = match cluster.objects().create(&dry, &policy("", Timestamp::UNIX_EPOCH)).await {
        Ok(_) => None,
        Err(kube::Error::Api(status)) if status.code == CONFLICT => None,
        Err(error) => Some(told(&error)),
    };
    match refusal {
        None => report.line("kube-apiserver accepts the admission policy for renewals in a dry run"),
        Some(why) => report.line(format_args!("{WITHOUT_POLICY}: {NAME}: {why}")),
    }
}

/// Beginning of the output line about a switch without the policy.
const WITHOUT_POLICY: &str = "the first update of each client will get 409, since kube-apiserver has not accepted the admission policy for renewals";

/// Creates the policy, or replaces it, and reports its end. Returns `None` if kube-apiserver refuses the policy.
pub(super) async fn create(cluster: &Server, report: &mut Report<'_>) -> Option<Created> {
    let created = Created { id: Uuid::new_v4().to_string(), begun: Instant::now() };
    match try_create(cluster, &created.id).await {
        Ok(end) => {
            report.line(format_args!(
                "until {end}, the admission policy {NAME} lets clients renew with versions of this server"
            ));
            Some(created)
        }
        Err(error) => {
            report.line(format_args!("{WITHOUT_POLICY}: {error}"));
            None
        }
    }
}

async fn try_create(cluster: &Server, id: &str) -> Result<Timestamp, SwitchError> {
    let end = now(cluster).await? + POLICY_TIME;
    put(&cluster.objects(), policy(id, end)).await?;
    let binding = json!({"metadata": {"name": NAME}, "spec": {"policyName": NAME}});
    let binding: MutatingAdmissionPolicyBinding = serde_json::from_value(binding).expect("the fields of a binding");
    put(&cluster.objects(), binding).await?;
    Ok(end)
}

impl Created {
    /// Waits until every kube-apiserver applies the policy, for [`APPLIED_MAX`] at most. Reports a kube-apiserver that
    /// does not.
    pub(super) async fn await_applied(&self, clients: &Clients, report: &mut Report<'_>) {
        let probe = async |apiserver: &Server| self.probe(apiserver).await;
        if let Err(error) = await_effect(clients, self.begun, APPLIED_MAX, probe).await {
            report.line(format_args!("clients may get 409 for their first update: {error}"));
        }
    }

    /// Checks that a kube-apiserver applies the policy.
    async fn probe(&self, apiserver: &Server) -> Result<(), SwitchError> {
        let metadata = ObjectMeta { name: Some(NAME.to_owned()), ..ObjectMeta::default() };
        let created = create_nothing(apiserver, metadata).await.map_err(|error| apiserver.failed(&error))?;
        match created.data.is_some_and(|data| data.get(ID) == Some(&self.id)) {
            true => Ok(()),
            false => Err(failed(apiserver.url(), format_args!("the policy {NAME} has no effect"))),
        }
    }
}

/// Deletes the policy if it has ended.
///
/// # Errors
/// If kube-apiserver does not answer, or does not delete the policy.
pub(super) async fn remove_ended(cluster: &Server) -> Result<(), SwitchError> {
    // A kube-apiserver without this API answers 404 too, so `found` is `None`.
    let found = cluster.objects::<MutatingAdmissionPolicy>().get_opt(NAME).await;
    let Some(found) = found.map_err(|error| cluster.failed(&error))? else { return Ok(()) };
    let end = found.annotations().get(END).and_then(|text| text.parse::<Timestamp>().ok());
    match end {
        Some(end) if now(cluster).await? < end => Ok(()),
        Some(_) | None => remove(cluster).await,
    }
}

/// Deletes the policy.
///
/// # Errors
/// If kube-apiserver does not delete the policy.
pub(super) async fn remove(cluster: &Server) -> Result<(), SwitchError> {
    delete(&cluster.objects::<MutatingAdmissionPolicyBinding>(), NAME, &DeleteParams::default()).await?;
    delete(&cluster.objects::<MutatingAdmissionPolicy>(), NAME, &DeleteParams::default()).await?;
    Ok(())
}

/// Returns the policy. It applies to renewals with a `resourceVersion` of this server and a `renewTime` before `end`.
fn policy(id: &str, end: Timestamp) -> MutatingAdmissionPolicy {
    let renewed = |object: &str, none: &str| format!("timestamp({object}.?spec.?renewTime.orValue('{none}'))");
    let new = renewed("object", "9999-01-01T00:00:00Z");
    let conditions = [
        ("renewal", is_renewal()),
        ("uid", "object.metadata.?uid == oldObject.metadata.?uid".to_owned()),
        ("version", format!("size(object.metadata.?resourceVersion.orValue('')) >= {VERSION_DIGITS}")),
        ("newer", format!("{new} >= {}", renewed("oldObject", "1970-01-01T00:00:00Z"))),
        ("end", format!("{new} < timestamp('{end}')")),
    ];
    // The probe creates a ConfigMap as a dry run. It meets every condition, so the policy changes it. A creation that
    // stores a ConfigMap is no renewal, so the policy leaves it unchanged.
    let probe = format!(
        "request.resource.resource == 'configmaps' && request.namespace == '{NAMESPACE}' && \
         request.?dryRun.orValue(false)"
    );
    let conditions =
        conditions.map(|(name, expression)| json!({"name": name, "expression": format!("{probe} || ({expression})")}));
    let patch = format!(
        "request.resource.resource == 'configmaps' \
         ? [JSONPatch{{op: 'add', path: '/data', value: {{'{ID}': '{id}'}}}}] \
         : [JSONPatch{{op: 'replace', path: '/metadata/resourceVersion', value: oldObject.metadata.resourceVersion}}]"
    );
    let policy = json!({
        "metadata": {"name": NAME, "annotations": {END: end.to_string()}},
        "spec": {
            // If an expression fails, the client gets 409, as without the policy.
            "failurePolicy": "Ignore",
            "reinvocationPolicy": "Never",
            "matchConstraints": {"resourceRules": [
                {"apiGroups": ["coordination.k8s.io"], "apiVersions": ["*"], "resources": ["leases"],
                 "operations": ["UPDATE"]},
                {"apiGroups": [""], "apiVersions": ["*"], "resources": ["configmaps"], "resourceNames": [NAME],
                 "operations": ["CREATE"]},
            ]},
            "matchConditions": conditions,
            "mutations": [{"patchType": "JSONPatch", "jsonPatch": {"expression": patch}}],
        },
    });
    serde_json::from_value(policy).expect("the fields of a policy")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The type of the policy ignores unknown fields, so a misspelt field would be lost.
    #[test]
    fn no_field_of_the_policy_is_lost() {
        let end: Timestamp = "2026-01-02T03:04:05Z".parse().expect("a time");
        let policy = policy("7", end);
        assert_eq!(policy.annotations().get(END).map(String::as_str), Some("2026-01-02T03:04:05Z"));
        let spec = policy.spec.expect("a spec");
        assert_eq!(
            (spec.failure_policy.as_deref(), spec.reinvocation_policy.as_deref()),
            (Some("Ignore"), Some("Never"))
        );
        let rules = spec.match_constraints.and_then(|constraints| constraints.resource_rules).expect("rules");
        let resources = rules.into_iter().flat_map(|rule| rule.resources.expect("resources"));
        assert_eq!(resources.collect::<Vec<_>>(), ["leases", "configmaps"]);
        let conditions = spec.match_conditions.expect("conditions");
        let names: Vec<_> = conditions.iter().map(|condition| condition.name.as_str()).collect();
        assert_eq!(names, ["renewal", "uid", "version", "newer", "end"]);
        assert!(conditions[4].expression.contains("timestamp('2026-01-02T03:04:05Z')"));
        let patches = spec.mutations.expect("mutations").into_iter().map(|mutation| mutation.json_patch);
        let patches: Vec<_> = patches.map(|patch| patch.and_then(|patch| patch.expression).expect("a patch")).collect();
        assert!(patches.len() == 1 && patches[0].contains("{'id': '7'}"), "{patches:?}");
    }
}
