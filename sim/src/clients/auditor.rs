//! The auditor: a client that checks at the end of a run that the server works again, and lists all Leases.

use super::http::{Http, WINDOW};
use super::{Answer, Client, lease, lister};
use crate::check::history::Key;
use crate::kernel::{MS, SECOND};

/// Namespace of the Lease that the auditor writes.
pub const NAMESPACE: &str = "audit";

/// Waits until `at_us`, creates a Lease, and lists all Leases. Repeats the creation until it succeeds or `until_us` has
/// passed. A 409 counts as a success: an earlier attempt has created the Lease.
pub async fn run(mut client: Client, at_us: u64, until_us: u64) {
    client.context.sleep(at_us).await;
    let key = Key { namespace: NAMESPACE.to_owned(), name: "last".to_owned() };
    let mut is_written = false;
    while !is_written && client.context.now_us() < until_us {
        let tag = client.context.sim.new_tag();
        let answer = client.create(&key, &lease::new(&key, "auditor", tag), tag, "").await;
        is_written = matches!(answer, Answer::Object(_) | Answer::Refused(409));
        if !is_written {
            client.context.sleep(200 * MS).await;
        }
    }
    if !is_written {
        complain(&client, "no write succeeds after all faults have ended");
    }
    let mut http = Http::new(WINDOW);
    while client.context.now_us() < until_us + SECOND {
        if let Some(list) = lister::list(&client.context, &mut http, None, 0).await {
            client.context.sim.history.borrow_mut().lists.push(list);
            return;
        }
        client.context.sleep(200 * MS).await;
    }
    complain(&client, "no list succeeds after all faults have ended");
}

fn complain(client: &Client, what: &str) {
    client.context.sim.history.borrow_mut().stalls.push(what.to_owned());
}
