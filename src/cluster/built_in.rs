//! Follows the built-in Leases (the Leases that kube-apiserver itself stores) through kube-apiserver, for a takeover
//! without access to the cluster's etcd. The cluster thread, which sends all requests to kube-apiserver, lists and
//! watches these Leases, and passes each event to the event loop.
//!
//! A watch that begins before kube-apiserver forwards Leases to this server reads built-in storage until the watch
//! ends. kube-apiserver forwards a later list or watch to this server. Such a list or watch counts as failed, since it
//! returns no built-in Leases.

use super::Followed;
use super::follow::{Seen, list_and_watch, told};
use super::lease::BuiltInLease;
use crate::handover::{ReadLeases, StoredLease};
use crate::resource::BUILT_IN_VERSIONS_END;
use crate::updates::{self, UpdateSender, Updates};
use futures_util::future::{Either, select};
use kube::{Api, Client};
use mio::Waker;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::watch::{self, Receiver, Sender};
use tokio::time::sleep;

/// Time from a failure of a list or watch to the next attempt.
const RETRY: Duration = Duration::from_millis(250);

/// An event from the list or the watch of built-in Leases.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum BuiltInChange {
    /// All built-in Leases, from a list.
    All(ReadLeases),
    /// The key of a built-in Lease that was created, changed or deleted, and its new state; `None` after a deletion.
    Changed(String, Option<StoredLease>),
    /// A list or a watch has failed for this reason. The next event is a list, or another failure.
    Failed(String),
}

/// The event loop's end of the channel to the cluster thread, for built-in Leases.
#[derive(Debug)]
pub struct BuiltInChanges {
    /// Number of runs so far. A run is a list and the watch that follows it.
    runs: u64,
    /// The run in which the cluster thread must follow the built-in Leases; `None` if it must follow none.
    wanted: Sender<Option<u64>>,
    events: Updates<(u64, BuiltInChange)>,
}

/// The cluster thread's end of the channel to the event loop, for built-in Leases.
#[derive(Debug)]
pub struct BuiltInRequests {
    wanted: Receiver<Option<u64>>,
    events: UpdateSender<(u64, BuiltInChange)>,
}

/// Creates the two ends of the channel between the event loop and the cluster thread. Events wake the event loop with
/// `waker`.
#[must_use]
pub fn built_in(waker: Arc<Waker>) -> (BuiltInChanges, BuiltInRequests) {
    let (asked, wanted) = watch::channel(None);
    let (sender, events) = updates::queue(waker);
    (BuiltInChanges { runs: 0, wanted: asked, events }, BuiltInRequests { wanted, events: sender })
}

impl BuiltInChanges {
    /// Begins a new run: a list of all built-in Leases, and then a watch. Ends the run before it.
    pub fn begin(&mut self) {
        self.runs += 1;
        self.wanted.send_replace(Some(self.runs));
    }

    /// Ends the current run, if there is one.
    pub fn end(&self) {
        self.wanted.send_if_modified(|run| run.take().is_some());
    }

    /// Removes and returns the next event of the current run. Discards events of earlier runs.
    pub fn next(&self) -> Option<BuiltInChange> {
        let wanted = *self.wanted.borrow();
        std::iter::from_fn(|| self.events.next()).find(|(run, _)| Some(*run) == wanted).map(|(_, change)| change)
    }
}

/// Follows the built-in Leases while the event loop wants a run. Returns when the event loop has dropped its end of the
/// channel.
pub(super) async fn follow_built_in(client: Client, BuiltInRequests { mut wanted, events }: BuiltInRequests) {
    let api: Api<BuiltInLease> = Api::all(client);
    loop {
        let run = *wanted.borrow_and_update();
        let following = async {
            let Some(run) = run else { return std::future::pending().await };
            if let Err(why) = follow_run(&api, |change| events.send((run, change))).await {
                _ = events.send((run, BuiltInChange::Failed(why)));
            }
            sleep(RETRY).await;
        };
        if let Either::Right((Err(_), _)) = select(pin!(following), pin!(wanted.changed())).await {
            return;
        }
    }
}

/// Passes all built-in Leases and then every change to `send`, until a failure or until `send` returns false.
///
/// # Errors
/// The reason for the failure of the list or the watch.
async fn follow_run(api: &Api<BuiltInLease>, send: impl Fn(BuiltInChange) -> bool) -> Result<(), String> {
    let (mut refused, followed) = (None, Followed::built_in());
    let ended = list_and_watch(api, None, &followed, |seen| {
        let change = match seen {
            Seen::All(leases) => leases.iter().map(stored).collect::<Result<_, _>>().map(BuiltInChange::All),
            Seen::Present(lease) => stored(&lease).map(|(key, lease)| BuiltInChange::Changed(key, lease)),
            Seen::Gone(lease) => Ok(BuiltInChange::Changed(key(&lease), None)),
        };
        match change {
            Ok(change) => send(change),
            Err(why) => {
                refused = Some(why);
                false
            }
        }
    });
    let ended = ended.await.map(drop).map_err(|error| told(&error));
    refused.map_or(ended, Err)
}

fn key(lease: &BuiltInLease) -> String {
    let metadata = &lease.metadata;
    format!("{}/{}", metadata.namespace.as_deref().unwrap_or_default(), metadata.name.as_deref().unwrap_or_default())
}

/// Converts a Lease of kube-apiserver to an entry of [`ReadLeases`].
///
/// # Errors
/// The Lease is not from built-in storage, or has no valid `resourceVersion`.
fn stored(lease: &BuiltInLease) -> Result<(String, Option<StoredLease>), String> {
    let key = key(lease);
    let version = lease.metadata.resource_version.as_deref().unwrap_or_default();
    let revision = version.parse().map_err(|_| format!("{key} has the resourceVersion {version:?}"))?;
    // Once kube-apiserver forwards Leases to this server, this server answers the list. This list contains at least the
    // Lease that controls the hand-over. The `resourceVersion` of that Lease comes from this server, so it is too large
    // for a built-in Lease.
    if revision >= BUILT_IN_VERSIONS_END {
        return Err("kube-apiserver already forwards Leases to this server".to_owned());
    }
    let value = serde_json::to_vec(lease).map_err(|error| format!("{key}: {error}"))?;
    Ok((key, Some(StoredLease { revision, value })))
}

#[cfg(test)]
mod tests {
    use super::*;
    use mio::Poll;
    use serde_json::json;

    fn lease(name: &str, version: &str) -> BuiltInLease {
        let metadata = json!({"namespace": "n", "name": name, "resourceVersion": version});
        serde_json::from_value(json!({"metadata": metadata})).expect("a Lease")
    }

    #[test]
    fn a_lease_without_a_built_in_version_is_refused() {
        let read = stored(&lease("a", "42")).map(|(key, lease)| (key, lease.map(|lease| lease.revision)));
        assert_eq!(read, Ok(("n/a".to_owned(), Some(42))));
        let ours = BUILT_IN_VERSIONS_END.to_string();
        for version in [ours.as_str(), "", "-1"] {
            assert!(stored(&lease("a", version)).is_err(), "{version}");
        }
    }

    #[test]
    fn events_of_an_earlier_run_are_dropped() {
        let poll = Poll::new().expect("a poll");
        let waker = Waker::new(poll.registry(), mio::Token(0)).expect("a waker");
        let (mut changes, requests) = built_in(Arc::new(waker));
        let send = |change| requests.events.send((requests.wanted.borrow().expect("a run"), change));
        let gone = |key: &str| BuiltInChange::Changed(key.to_owned(), None);
        changes.begin();
        assert!(send(gone("n/a")));
        changes.begin();
        assert!(send(gone("n/b")));
        assert_eq!(changes.next(), Some(gone("n/b")));
        assert!(send(gone("n/c")));
        changes.end();
        assert_eq!(changes.next(), None);
        assert_eq!(*requests.wanted.borrow(), None);
    }
}
