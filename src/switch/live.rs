//! Waits until each replica is known to be live or dead.
//!
//! Each replica renews an identity Lease as its sign of life. A replica that has just died still counts as live until
//! the other replicas have deleted its identity Lease. The dead replica may be the one that copies Leases. So a command
//! waits for that deletion before it stops the writes of clients. Otherwise clients could not write during the wait.
//!
//! A replica that is cut off from its store is neither. The other replicas count it as dead, but it still serves
//! watches and old states of Leases. It never learns of the rollback, so it does not end its watches. So a rollback
//! fails before it stops writes, if it finds such a replica.

use super::clients::Clients;
use super::lease::Lease;
use super::{LOOK_EVERY, Report, SwitchError};
use crate::api::identity::{HOST_LABEL, LABEL};
use crate::handover::ASKED;
use k8s_openapi::jiff::Timestamp;
use kube::ResourceExt as _;
use kube::api::ListParams;
use std::collections::BTreeMap;
use std::time::{Duration, Instant};
use tokio::time::sleep;

/// Maximum time of the wait. A live replica renews its identity Lease each second. The other replicas delete the
/// identity Lease of a dead replica after 6 to 7 s. Also the maximum time for which the command waits until a starting
/// replica has read its store.
pub(super) const LIVE_MAX: Duration = Duration::from_secs(10);

/// The identity Leases as they were when the wait began: the `renewTime` of each, by its name.
type Renewals = BTreeMap<String, Option<Timestamp>>;

/// Waits until each replica is known to be live or dead, for [`LIVE_MAX`] at most.
///
/// # Errors
/// If no replica responds, or if a replica responds without access to its store.
pub(super) async fn await_live(clients: &Clients, report: &mut Report<'_>) -> Result<(), SwitchError> {
    await_renewals(clients, report).await?;
    // A replica that lost access to its store just before the wait has noticed this by now.
    await_stores(clients, LIVE_MAX).await
}

/// Waits until each replica that responds has access to its store, for `limit` at most. A replica that does not respond
/// counts as dead.
///
/// # Errors
/// If a replica responds without access to its store. The error names the replica.
pub(super) async fn await_stores(clients: &Clients, limit: Duration) -> Result<(), SwitchError> {
    let begun = Instant::now();
    for replica in clients.replicas() {
        while let Err(why) = replica.check_store().await {
            if begun.elapsed() > limit {
                return Err(SwitchError(format!(
                    "replica {why}. It would not learn of the rollback: stop it, or restore its access to its store"
                )));
            }
            sleep(LOOK_EVERY).await;
        }
    }
    Ok(())
}

/// Waits until the identity Lease of each replica has been renewed or deleted, for [`LIVE_MAX`] at most. The wait
/// compares no clocks, since the command may run on any machine.
///
/// # Errors
/// If no replica responds.
async fn await_renewals(clients: &Clients, report: &mut Report<'_>) -> Result<(), SwitchError> {
    let begun = Instant::now();
    let first: Renewals =
        identities(clients).await?.iter().map(|lease| (lease.name_any(), lease.renew_time())).collect();
    loop {
        sleep(LOOK_EVERY).await;
        let is_late = begun.elapsed() > LIVE_MAX;
        match identities(clients).await {
            Ok(leases) => match unknown(&leases, &first) {
                None => {
                    report.line("every replica has renewed its identity Lease, or is gone");
                    return Ok(());
                }
                Some(name) if is_late => {
                    report.line(format_args!("the identity Lease {name} is neither renewed nor deleted"));
                    return Ok(());
                }
                Some(_) => {}
            },
            Err(error) if is_late => return Err(error),
            // The only replica may be restarting. So the command asks again.
            Err(_) => {}
        }
    }
}

/// Describes the replicas that have not confirmed the command's request with the id `asked`. A replica confirms a
/// request by writing the request's id to its own identity Lease. Returns `None` if every replica has confirmed the
/// request, or if no replica responds.
pub(super) async fn unconfirmed(clients: &Clients, asked: &str) -> Option<String> {
    // Any known state of these Leases suffices. During a copy, a list of the newest state waits for the replica that
    // copies, which may hang.
    let leases = listed(clients, ListParams::default().match_any()).await.ok()?;
    let is_unconfirmed = |lease: &&Lease| lease.annotations().get(ASKED).map(String::as_str) != Some(asked);
    let replica = |lease: &Lease| {
        let host = lease.labels().get(HOST_LABEL).map_or("of an unknown name", String::as_str);
        format!("{} on host {host}", lease.name_any())
    };
    let replicas: Vec<_> = leases.iter().filter(is_unconfirmed).map(replica).collect();
    (!replicas.is_empty()).then(|| {
        let names = replicas.join(", ");
        format!("not confirmed by replica {names}: it may run an older release or hang; upgrade, restart or stop it")
    })
}

/// Returns the name of an identity Lease that has not been renewed since `first`; `None` if each one has been renewed
/// or deleted.
fn unknown(leases: &[Lease], first: &Renewals) -> Option<String> {
    let is_unknown = |lease: &&Lease| first.get(&lease.name_any()) == Some(&lease.renew_time());
    leases.iter().find(is_unknown).map(kube::ResourceExt::name_any)
}

/// Returns the identity Leases of the replicas, from the first replica that responds.
async fn identities(clients: &Clients) -> Result<Vec<Lease>, SwitchError> {
    listed(clients, ListParams::default()).await
}

/// Lists the identity Leases of the replicas with these parameters, at the first replica that responds.
async fn listed(clients: &Clients, parameters: ListParams) -> Result<Vec<Lease>, SwitchError> {
    let of_replicas = parameters.labels(&format!("{}={}", LABEL.0, LABEL.1));
    let found = clients.first_answer(async |replica| replica.read(replica.leases().list(&of_replicas)).await).await?;
    Ok(found.items)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn identity(name: &str, second: u32) -> Lease {
        let renewed = format!("2026-01-01T00:00:{second:02}.000000Z");
        serde_json::from_value(json!({
            "metadata": {"name": name},
            "spec": {"renewTime": renewed},
        }))
        .expect("a Lease")
    }

    #[test]
    fn a_replica_is_unknown_until_its_lease_is_renewed_or_deleted() {
        let first = [identity("a", 1), identity("b", 1)].map(|lease| (lease.name_any(), lease.renew_time()));
        let unknown = |leases: &[Lease]| unknown(leases, &first.clone().into());
        assert_eq!(unknown(&[identity("a", 1), identity("b", 2)]).as_deref(), Some("a"));
        assert_eq!(unknown(&[identity("a", 2), identity("b", 2)]), None);
        assert_eq!(unknown(&[identity("b", 2), identity("c", 2)]), None, "the Lease of the dead replica is deleted");
    }
}
