//! Checks before a takeover that change nothing: the clocks of the servers, the rights of the user, the shortest lock,
//! and the copies of the Leases.

use super::clients::{Clients, Server};
use super::lease::Lease;
use super::write_back::is_own;
use super::{CONFLICT, LOOK_EVERY, Report, SwitchError, failed};
use crate::handover::{NAME, NAMESPACE};
use crate::resource::NODE_LEASE_NAMESPACE;
use k8s_openapi::api::coordination::v1;
use k8s_openapi::jiff::Timestamp;
use kube::api::{ListParams, ObjectMeta, PostParams};
use std::time::{Duration, Instant};
use tokio::time::sleep;

/// Maximum difference between the clocks of two servers. It includes the resolution of the field `Date`, one second.
const CLOCKS_DIFFER_MAX: Duration = Duration::from_secs(4);
/// Number of Leases of each kube-apiserver that [`check_copies`] compares with their copies.
const COMPARED: u32 = 500;
/// Maximum time until the replicas have a copy of each compared Lease. After the death of the replica that copies the
/// Leases, the next replica begins to copy after 5 to 7 s.
pub(super) const COPIED_MAX: Duration = Duration::from_secs(10);

/// Checks that the clocks of all kube-apiservers and replicas agree.
///
/// # Errors
/// If a server does not respond, or if two clocks differ by more than [`CLOCKS_DIFFER_MAX`].
pub(super) async fn check_clocks(clients: &Clients, report: &mut Report<'_>) -> Result<(), SwitchError> {
    let mut clocks = Vec::new();
    for server in clients.apiservers().iter().chain(clients.replicas()) {
        let asked = Timestamp::now();
        let date = server.date().await?;
        let ahead_ms = date.as_millisecond() - asked.as_millisecond();
        clocks.push((ahead_ms, server.url()));
    }
    let (Some(first), Some(last)) = (clocks.iter().min(), clocks.iter().max()) else { return Ok(()) };
    let differ = Duration::from_millis(last.0.abs_diff(first.0));
    if differ > CLOCKS_DIFFER_MAX {
        let why = format!("the clock of {} is {} s ahead of the clock of {}", last.1, differ.as_secs(), first.1);
        return Err(SwitchError(why));
    }
    report.line(format_args!("the clocks of all servers agree within {} s", differ.as_secs() + 1));
    Ok(())
}

/// Checks that the user may write the Lease of the hand-over at each replica. By writes to this Lease, the command
/// tells the replicas what to do.
///
/// # Errors
/// If a replica refuses the write.
pub(super) async fn check_rights(clients: &Clients) -> Result<(), SwitchError> {
    let dry = PostParams { dry_run: true, ..PostParams::default() };
    let lease = Lease::from(v1::Lease {
        metadata: ObjectMeta {
            name: Some(NAME.to_owned()),
            namespace: Some(NAMESPACE.to_owned()),
            ..ObjectMeta::default()
        },
        spec: None,
    });
    for replica in clients.replicas() {
        let leases = replica.leases();
        let done = match leases.get_opt(NAME).await.map_err(|error| replica.failed(&error))? {
            Some(found) => leases.replace(NAME, &dry, &found).await,
            None => leases.create(&dry, &lease).await,
        };
        match done {
            Ok(_) => {}
            // A replica or another command has written the Lease since the read. A conflict still shows that the user
            // may write.
            Err(kube::Error::Api(status)) if status.code == CONFLICT => {}
            Err(error) => return Err(replica.failed(&error)),
        }
    }
    Ok(())
}

/// Reports the lock with the shortest `leaseDurationSeconds`. A lock is a Lease that has a holder, and is not the
/// heartbeat of a node. A rollback stops writes for a moment. If a lock is shorter than that moment, its holder may
/// lose the lock.
///
/// # Errors
/// If kube-apiserver does not return the Leases.
pub(super) async fn report_shortest_lock(cluster: &Server, report: &mut Report<'_>) -> Result<(), SwitchError> {
    let not_of_nodes = format!("metadata.namespace!={NODE_LEASE_NAMESPACE}");
    let parameters = ListParams::default().match_any().fields(&not_of_nodes);
    let found = cluster.all_leases().list(&parameters).await.map_err(|error| cluster.failed(&error))?;
    let shortest = found.items.iter().filter_map(duration_of_lock).min();
    report.line(match shortest {
        Some((seconds, namespace, name)) => format!("the shortest lock is {namespace}/{name} with {seconds} s"),
        None => "there are no locks".to_owned(),
    });
    Ok(())
}

/// Returns the duration of a lock in seconds, its namespace and its name; `None` if the Lease has no holder or no
/// duration.
fn duration_of_lock(lease: &Lease) -> Option<(i32, &str, &str)> {
    let spec = lease.spec.as_ref()?;
    spec.holder_identity.as_deref().filter(|holder| !holder.is_empty())?;
    let (namespace, name) = (lease.metadata.namespace.as_deref()?, lease.metadata.name.as_deref()?);
    Some((spec.lease_duration_seconds?, namespace, name))
}

/// Waits until the replicas have copies of the Leases that each kube-apiserver serves. The wait takes at most `limit`
/// for each kube-apiserver. By its flag `--etcd-servers-overrides`, kube-apiserver may store Leases in another etcd
/// than the one from which the replicas copy. Then the replicas have copied no Leases, or outdated ones.
///
/// # Errors
/// If the replicas lack a Lease, or have an older state of it. Also if a kube-apiserver or all replicas do not respond.
pub(super) async fn check_copies(clients: &Clients, limit: Duration) -> Result<(), SwitchError> {
    for apiserver in clients.apiservers() {
        let begun = Instant::now();
        while let Err(why) = compare(clients, apiserver).await {
            if begun.elapsed() > limit {
                return Err(why);
            }
            sleep(LOOK_EVERY).await;
        }
    }
    Ok(())
}

/// Compares the first Leases of a kube-apiserver with their copies at a replica.
///
/// # Errors
/// If a copy is missing or too old, or if a server does not respond.
async fn compare(clients: &Clients, apiserver: &Server) -> Result<(), SwitchError> {
    let served = first_page(apiserver, COMPARED).await?;
    // A replica's page also contains this server's own Leases, so it must be longer.
    let copies = clients.first_answer(async |replica| first_page(replica, 2 * COMPARED).await).await?;
    let is_copied = |lease: &Lease| copies.iter().any(|copy| is_copy(copy, lease));
    for lease in served.iter().filter(|lease| !is_own(lease) && !is_copied(lease)) {
        // A client may have changed or deleted the Lease since the first read. So the command reads the Lease at both
        // servers again.
        let Some(present) = present_at(apiserver, lease).await? else { continue };
        let copy = clients.first_answer(async |replica| present_at(replica, lease).await).await?;
        if !copy.is_some_and(|copy| is_copy(&copy, &present)) {
            let (namespace, name) = key(lease);
            return Err(SwitchError(format!(
                "the replicas have no current copy of the Lease {namespace}/{name} of {}: the etcd of \
                 --cluster-etcd-servers does not hold kube-apiserver's Leases (see its --etcd-servers-overrides); run \
                 the command with --without-etcd",
                apiserver.url(),
            )));
        }
    }
    Ok(())
}

/// Returns the first `limit` Leases of a server.
async fn first_page(server: &Server, limit: u32) -> Result<Vec<Lease>, SwitchError> {
    let page = server.all_leases().list(&ListParams::default().limit(limit)).await;
    Ok(page.map_err(|error| server.failed(&error))?.items)
}

/// Returns the present state of a Lease at a server; `None` if the server does not have the Lease.
async fn present_at(server: &Server, lease: &Lease) -> Result<Option<Lease>, SwitchError> {
    let (namespace, name) = key(lease);
    server.leases_in(namespace).get_opt(name).await.map_err(|error| server.failed(&error))
}

fn key(lease: &Lease) -> (&str, &str) {
    let metadata = &lease.metadata;
    (metadata.namespace.as_deref().unwrap_or_default(), metadata.name.as_deref().unwrap_or_default())
}

/// Whether `copy` is a copy of the Lease `served`, in the same state or a later one.
fn is_copy(copy: &Lease, served: &Lease) -> bool {
    key(copy) == key(served) && copy.metadata.uid == served.metadata.uid && copy.renew_time() >= served.renew_time()
}

/// Parses the date of a response (RFC 9110, section 5.6.7).
///
/// # Errors
/// If the text is no date.
pub(super) fn parse_date(text: &str) -> Result<Timestamp, SwitchError> {
    k8s_openapi::jiff::fmt::rfc2822::DateTimeParser::new()
        .parse_timestamp(text)
        .map_err(|error| failed(&format!("Date: {text}"), error))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn lease(spec: serde_json::Value) -> Lease {
        serde_json::from_value(json!({"metadata": {"namespace": "a", "name": "b"}, "spec": spec})).expect("a Lease")
    }

    #[test]
    fn only_a_held_lease_with_a_duration_is_a_lock() {
        let duration = |spec| duration_of_lock(&lease(spec)).map(|(seconds, ..)| seconds);
        assert_eq!(duration(json!({"holderIdentity": "x", "leaseDurationSeconds": 15})), Some(15));
        assert_eq!(duration(json!({"holderIdentity": "", "leaseDurationSeconds": 15})), None);
        assert_eq!(duration(json!({"leaseDurationSeconds": 15})), None);
        assert_eq!(duration(json!({"holderIdentity": "x"})), None);
    }

    #[test]
    fn the_date_of_a_response_is_read() {
        let date = parse_date("Sun, 06 Nov 1994 08:49:37 GMT").expect("a date");
        assert_eq!(date.as_second(), 784_111_777);
        assert!(parse_date("yesterday").is_err());
    }
}
