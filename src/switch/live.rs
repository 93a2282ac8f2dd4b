//! Waits until each replica is known to be live or dead.
//!
//! A replica that has just died still counts as live until its identity Lease has expired. It may be the replica that
//! copies Leases. If clients cannot write meanwhile, they wait in vain for a dead replica.

use super::clients::Clients;
use super::{LOOK_EVERY, Report, SwitchError, failed};
use crate::api::identity::LABEL;
use k8s_openapi::api::coordination::v1::{Lease, LeaseSpec};
use k8s_openapi::jiff::{SignedDuration, Timestamp};
use kube::ResourceExt as _;
use kube::api::ListParams;
use std::collections::BTreeMap;
use std::time::{Duration, Instant};
use tokio::time::{sleep, timeout};

/// Maximum time until each identity Lease is renewed or has expired. A live replica renews its Lease each second.
/// A dead replica's Lease expires after 6 s.
const LIVE_MAX: Duration = Duration::from_secs(10);
/// Maximum time until a replica returns the identity Leases. Then the command asks the next replica.
const LIST_MAX: Duration = Duration::from_secs(1);

/// Waits until the identity Lease of each replica has been renewed, or has expired.
///
/// # Errors
/// If no replica responds, or if an identity Lease is neither renewed nor expired in [`LIVE_MAX`].
pub(super) async fn await_live(clients: &Clients, report: &mut Report<'_>) -> Result<(), SwitchError> {
    let begun = Instant::now();
    let first = renewals(&identities(clients).await?);
    loop {
        sleep(LOOK_EVERY).await;
        let unknown = match identities(clients).await {
            Ok(leases) => unknown(&leases, &first, Timestamp::now()),
            // A single server may restart meanwhile.
            Err(error) if begun.elapsed() > LIVE_MAX => return Err(error),
            Err(_) => continue,
        };
        match unknown {
            None => {
                report.line("every replica has renewed its identity Lease, or is gone");
                return Ok(());
            }
            Some(name) if begun.elapsed() > LIVE_MAX => {
                return Err(failed(&format!("identity Lease {name}"), "neither renewed nor expired"));
            }
            Some(_) => {}
        }
    }
}

/// Returns the `renewTime` of each identity Lease, by the name of the Lease.
fn renewals(leases: &[Lease]) -> BTreeMap<String, Option<Timestamp>> {
    leases.iter().map(|lease| (lease.name_any(), renewed(lease))).collect()
}

/// Returns the name of an identity Lease that has neither expired nor been renewed since `first`.
fn unknown(leases: &[Lease], first: &BTreeMap<String, Option<Timestamp>>, now: Timestamp) -> Option<String> {
    let is_unknown = |lease: &&Lease| first.get(&lease.name_any()) == Some(&renewed(lease)) && !is_expired(lease, now);
    leases.iter().find(is_unknown).map(kube::ResourceExt::name_any)
}

fn renewed(lease: &Lease) -> Option<Timestamp> {
    Some(lease.spec.as_ref()?.renew_time.as_ref()?.0)
}

fn is_expired(lease: &Lease, now: Timestamp) -> bool {
    match &lease.spec {
        Some(LeaseSpec { renew_time: Some(renewed), lease_duration_seconds: Some(seconds), .. }) => {
            now.duration_since(renewed.0) > SignedDuration::from_secs((*seconds).into())
        }
        _ => true,
    }
}

/// Returns the identity Leases of the replicas, from the first replica that responds.
async fn identities(clients: &Clients) -> Result<Vec<Lease>, SwitchError> {
    let of_replicas = ListParams::default().labels(&format!("{}={}", LABEL.0, LABEL.1));
    clients
        .first_answer(async |replica| {
            let leases = replica.leases();
            let found = timeout(LIST_MAX, leases.list(&of_replicas)).await.map_err(|_| replica.silent())?;
            Ok(found.map_err(|error| replica.failed(&error))?.items)
        })
        .await
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn identity(name: &str, second: u32) -> Lease {
        let renewed = format!("2026-01-01T00:00:{second:02}.000000Z");
        serde_json::from_value(json!({
            "metadata": {"name": name},
            "spec": {"leaseDurationSeconds": 6, "renewTime": renewed},
        }))
        .expect("a Lease")
    }

    #[test]
    fn a_replica_is_unknown_until_it_renews_or_expires() {
        let at = |second: u32| format!("2026-01-01T00:00:{second:02}Z").parse().expect("a time");
        let first = renewals(&[identity("a", 1), identity("b", 1)]);
        assert_eq!(unknown(&[identity("a", 1), identity("b", 2)], &first, at(2)).as_deref(), Some("a"));
        assert_eq!(unknown(&[identity("a", 2), identity("b", 2)], &first, at(2)), None);
        assert_eq!(unknown(&[identity("a", 1), identity("b", 2)], &first, at(7)).as_deref(), Some("a"));
        assert_eq!(unknown(&[identity("a", 1), identity("b", 2)], &first, at(8)), None);
        assert_eq!(
            unknown(&[identity("b", 2), identity("c", 2)], &first, at(2)),
            None,
            "the dead replica's is deleted"
        );
    }
}
