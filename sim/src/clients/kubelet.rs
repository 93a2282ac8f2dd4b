//! A kubelet's heartbeat (component-helpers `apimachinery/lease`, `controller.go`). To renew its Lease, the kubelet
//! sends back the last object that it received, with a new `renewTime`. After a conflict or several failed attempts, it
//! reads the Lease again.

use super::{Answer, Client, lease};
use crate::check::history::Key;
use crate::kernel::{MS, SECOND};
use serde_json::{Value, json};

/// Namespace of the nodes' Leases.
pub const NAMESPACE: &str = "kube-node-lease";

/// Maximum number of attempts of one renewal. After a conflict, the next attempt is based on the Lease's new state.
const UPDATES_MAX: usize = 5;

/// Renews the node's Lease periodically until the run ends.
pub async fn run(mut client: Client, index: usize) {
    let key = Key { namespace: NAMESPACE.to_owned(), name: format!("node-{index}") };
    let mut latest: Option<Value> = None;
    while !client.context.is_ending() {
        latest = sync(&mut client, &key, latest).await;
        let period_us = client.context.sim.swarm.renewal_us;
        // The kubelet prolongs its period at random by up to 4 %.
        let wait_us = period_us + client.context.random(|random| random.u64(0..=period_us / 25));
        client.context.sleep(wait_us).await;
    }
}

async fn sync(client: &mut Client, key: &Key, latest: Option<Value>) -> Option<Value> {
    if let Some(latest) = latest
        && let Some(renewed) = retry_update(client, key, latest).await
    {
        return Some(renewed);
    }
    let (lease, is_created) = ensure(client, key).await?;
    if is_created {
        return Some(lease);
    }
    let renewed = retry_update(client, key, lease.clone()).await;
    Some(renewed.unwrap_or(lease))
}

async fn retry_update(client: &mut Client, key: &Key, mut base: Value) -> Option<Value> {
    for _ in 0..UPDATES_MAX {
        let tag = client.context.sim.new_tag();
        let answer = match client.renew(key, &base, tag).await {
            Some(answer) => answer,
            None => {
                base["spec"]["renewTime"] = json!(lease::micro_time(tag));
                client.put(key, &base, tag, "").await
            }
        };
        match answer {
            Answer::Object(lease) => return Some(lease),
            Answer::Refused(409) => base = ensure(client, key).await?.0,
            Answer::Done(_) | Answer::Lost | Answer::Refused(_) if client.context.is_ending() => return None,
            Answer::Done(_) | Answer::Lost | Answer::Refused(_) => {}
        }
    }
    None
}

/// Returns the node's Lease, and whether this call created it. Creates a Lease that does not exist, and repeats failed
/// requests. Returns `None` if the run ends first.
async fn ensure(client: &mut Client, key: &Key) -> Option<(Value, bool)> {
    let mut wait_us = 100 * MS;
    loop {
        match client.get(key).await {
            Answer::Object(lease) => return Some((lease, false)),
            Answer::Refused(404) => {
                let tag = client.context.sim.new_tag();
                let mut lease = lease::new(key, &key.name, tag);
                lease["spec"]["leaseDurationSeconds"] = json!(40);
                if let Answer::Object(lease) = client.create(key, &lease, tag, "").await {
                    return Some((lease, true));
                }
            }
            Answer::Done(_) | Answer::Lost | Answer::Refused(_) => {}
        }
        if client.context.is_ending() {
            return None;
        }
        client.context.sleep(wait_us).await;
        wait_us = (wait_us * 2).min(7 * SECOND);
    }
}
