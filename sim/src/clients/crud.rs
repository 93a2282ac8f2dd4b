//! A client that sends all kinds of requests for a few Leases, which other clients write too.

use super::{Answer, Client, lease, version_of};
use crate::check::history::Key;
use serde_json::{Value, json};
use std::collections::BTreeMap;

/// Namespace of the Leases that all crud clients use.
pub const NAMESPACE: &str = "mixed";

/// Sends random requests at random times until the run ends.
pub async fn run(mut client: Client) {
    let mut known: BTreeMap<String, Value> = BTreeMap::new();
    loop {
        let gap_us = client.context.sim.swarm.crud_gap_us;
        let wait_us = client.context.random(|random| random.u64(0..gap_us));
        client.context.sleep(wait_us).await;
        if client.context.is_ending() {
            return;
        }
        let names = client.context.sim.swarm.crud_names;
        let (name, choice) =
            client.context.random(|random| (format!("m-{}", random.usize(0..names)), random.u8(0..100)));
        let key = Key { namespace: NAMESPACE.to_owned(), name };
        let answer = step(&mut client, &key, choice, known.get(&key.name)).await;
        match answer {
            Answer::Object(value) => {
                if let Some(key) = lease::key(&value).filter(|_| version_of(&value).is_some()) {
                    known.insert(key.name, value);
                }
            }
            Answer::Refused(404) => {
                known.remove(&key.name);
            }
            Answer::Done(_) | Answer::Refused(_) | Answer::Lost => {}
        }
    }
}

async fn step(client: &mut Client, key: &Key, choice: u8, known: Option<&Value>) -> Answer {
    let tag = client.context.sim.new_tag();
    let holder = client.context.name.clone();
    let dry = if client.context.random(|random| random.u8(..8)) == 0 { "?dryRun=All" } else { "" };
    match choice {
        0..15 => client.create(key, &with_text(client, lease::new(key, &holder, tag)), tag, dry).await,
        15..18 => {
            // The server chooses the name, so the request names no known Lease.
            let mut value = lease::new(key, &holder, tag);
            value["metadata"] = json!({"generateName": "g-", "namespace": key.namespace});
            let unnamed = Key { namespace: key.namespace.clone(), name: String::new() };
            client.create(&unnamed, &value, tag, dry).await
        }
        18..45 => {
            let mut value = known.cloned().unwrap_or_else(|| lease::new(key, &holder, tag));
            value["spec"]["renewTime"] = json!(lease::micro_time(tag));
            value["spec"]["holderIdentity"] = json!(holder);
            let value = if choice < 25 { with_text(client, value) } else { value };
            client.put(key, &value, tag, dry).await
        }
        45..60 => {
            let patch = json!({"spec": {"renewTime": lease::micro_time(tag)}, "metadata": {"labels": {"by": holder}}});
            client.patch(key, &patch, tag, dry).await
        }
        60..65 => {
            // A PUT without a resourceVersion creates a missing Lease. For an existing Lease, the server answers 422.
            let value = lease::new(key, &holder, tag);
            client.put(key, &value, tag, dry).await
        }
        65..75 => client.delete(key, dry).await,
        75..76 => client.delete_collection(&key.namespace).await,
        _ => client.get(key).await,
    }
}

/// Adds a long annotation to a Lease, if the run uses long annotations.
fn with_text(client: &Client, mut value: Value) -> Value {
    let bytes = client.context.sim.swarm.text_bytes;
    if bytes > 0 {
        let text: String = client.context.random(|random| (0..bytes).map(|_| random.alphanumeric()).collect());
        value["metadata"]["annotations"] = json!({"text": text});
    }
    value
}
