//! The canary: an APIService of another API group, which the command `takeover` creates for a moment. A kube-apiserver
//! that forwards requests for the canary can forward requests for Leases too. So the command finds a fault of the
//! Service, the network, the certificates or the front proxy before it touches the APIService of Leases.

use super::clients::{Clients, Server};
use super::{CONFLICT, NOT_FOUND, Report, SwitchError, failed};
use crate::cluster::told;
use crate::resource::{CANARY_API_VERSION, CANARY_GROUP, VERSION};
use k8s_openapi::kube_aggregator::pkg::apis::apiregistration::v1::APIService;
use kube::api::{DeleteParams, ObjectMeta, PostParams};
use std::time::{Duration, Instant};
use tokio::time::sleep;

/// Name of the canary's APIService.
const NAME: &str = "v1.canary.coordination-apiserver.io";
/// Maximum time until every kube-apiserver forwards requests for the canary. kube-apiserver must first find the Service
/// available.
const REACHED_MAX: Duration = Duration::from_secs(10);
/// Time between two requests for the canary.
const ASK_EVERY: Duration = Duration::from_millis(100);
/// Priorities of the canary's group and version. They do not matter, since no client uses the group.
const PRIORITY: i32 = 1;

/// Checks that every kube-apiserver reaches this server through the Service of `wanted`, the APIService of the
/// takeover.
///
/// # Errors
/// If a kube-apiserver does not reach this server. The error has the reason.
pub(super) async fn check(clients: &Clients, wanted: &APIService, report: &mut Report<'_>) -> Result<(), SwitchError> {
    create(clients.cluster(), &canary_of(wanted)).await?;
    let checked = await_reached(clients, report).await;
    remove(clients.cluster()).await?;
    checked
}

/// Deletes the canary, if it exists.
///
/// # Errors
/// If kube-apiserver does not delete the canary.
pub(super) async fn remove(cluster: &Server) -> Result<(), SwitchError> {
    match cluster.api_services().delete(NAME, &DeleteParams::default()).await {
        Ok(_) => Ok(()),
        Err(kube::Error::Api(status)) if status.code == NOT_FOUND => Ok(()),
        Err(error) => Err(failed(NAME, told(&error))),
    }
}

/// Returns the canary for the Service of an APIService.
fn canary_of(wanted: &APIService) -> APIService {
    let mut spec = wanted.spec.clone().unwrap_or_default();
    spec.group = Some(CANARY_GROUP.to_owned());
    spec.version = Some(VERSION.to_owned());
    (spec.group_priority_minimum, spec.version_priority) = (PRIORITY, PRIORITY);
    APIService {
        metadata: ObjectMeta { name: Some(NAME.to_owned()), ..ObjectMeta::default() },
        spec: Some(spec),
        status: None,
    }
}

async fn create(cluster: &Server, canary: &APIService) -> Result<(), SwitchError> {
    let services = cluster.api_services();
    let mut created = services.create(&PostParams::default(), canary).await;
    if matches!(&created, Err(kube::Error::Api(status)) if status.code == CONFLICT) {
        remove(cluster).await?;
        created = services.create(&PostParams::default(), canary).await;
    }
    created.map(drop).map_err(|error| failed(NAME, told(&error)))
}

async fn await_reached(clients: &Clients, report: &mut Report<'_>) -> Result<(), SwitchError> {
    let begun = Instant::now();
    for apiserver in clients.apiservers() {
        while let Err(error) = is_reached(apiserver).await {
            if begun.elapsed() > REACHED_MAX {
                return Err(unreached(clients.cluster(), apiserver, error).await);
            }
            sleep(ASK_EVERY).await;
        }
        report.line(format_args!("kube-apiserver {} reaches the replicas through the Service", apiserver.url()));
    }
    Ok(())
}

/// Asks a kube-apiserver for the API of the canary.
///
/// # Errors
/// If the response is not the response of this server.
async fn is_reached(apiserver: &Server) -> Result<(), SwitchError> {
    let text = apiserver.get(&format!("/apis/{CANARY_API_VERSION}")).await?;
    let resources: serde_json::Value = serde_json::from_str(&text).unwrap_or_default();
    match resources["groupVersion"] == CANARY_API_VERSION {
        true => Ok(()),
        false => Err(failed(apiserver.url(), "the response is of another server")),
    }
}

/// Returns the error for a kube-apiserver that does not reach this server. The status of the canary has the reason.
async fn unreached(cluster: &Server, apiserver: &Server, error: SwitchError) -> SwitchError {
    let canary = cluster.api_services().get(NAME).await.ok();
    let conditions = canary.and_then(|canary| canary.status?.conditions).unwrap_or_default();
    let failing = conditions.into_iter().find(|condition| condition.status != "True");
    let why = failing.and_then(|condition| condition.message).unwrap_or_else(|| error.to_string());
    failed(&format!("kube-apiserver {} does not reach the replicas through the Service", apiserver.url()), why)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn the_canary_keeps_the_service_and_changes_the_group() {
        let wanted: APIService = serde_json::from_value(json!({
            "metadata": {"name": "v1.coordination.k8s.io", "labels": {"a": "b"}},
            "spec": {
                "group": "coordination.k8s.io", "version": "v1", "groupPriorityMinimum": 16500, "versionPriority": 15,
                "service": {"name": "s", "namespace": "n", "port": 443}, "caBundle": "Y2E=",
            },
        }))
        .expect("an APIService");
        let canary = canary_of(&wanted);
        let (before, after) = (wanted.spec.expect("a spec"), canary.spec.expect("a spec"));
        assert_eq!(canary.metadata.name.as_deref(), Some("v1.canary.coordination-apiserver.io"));
        assert_eq!((after.group.as_deref(), after.version.as_deref()), (Some(CANARY_GROUP), Some("v1")));
        assert_eq!(format!("{CANARY_GROUP}/{VERSION}"), CANARY_API_VERSION);
        assert_eq!((after.service, after.ca_bundle), (before.service, before.ca_bundle));
        assert_eq!(canary.metadata.labels, None);
    }
}
