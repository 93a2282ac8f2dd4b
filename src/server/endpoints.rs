//! The addresses of the replicas. When they change, this module publishes the new addresses as the endpoints of the
//! Service. A stopping replica removes its address before its listeners close.

use crate::cluster::{EndpointsSender, ReplicaEndpoint};
use crate::updates::{UpdateSender, Updates};

/// Longest time for which a stopping replica waits until its address is removed from the Service, in ms.
const LEAVE_MS_MAX: u64 = 3_000;
/// Time from the removal of the address until the listeners close, in ms. kube-apiserver and kube-proxy first have to
/// see the removal in a watch. kube-proxy changes its rules at most once a second (`--iptables-min-sync-period`).
const SETTLE_MS: u64 = 1_500;

/// Publishes the endpoints of the Service, and removes this replica from them when the replica stops.
#[derive(Debug)]
pub(super) struct Endpoints {
    /// Sender of the endpoints to the publishing thread; `None` if this server does not publish endpoints.
    sender: Option<EndpointsSender>,
    /// Reports of the publishing thread: the generation (sequence number) of each published list of endpoints.
    published: Updates<u64>,
    published_sender: UpdateSender<u64>,
    leaving: Option<Leaving>,
}

/// A stop in progress, while the listeners are open.
#[derive(Debug)]
struct Leaving {
    /// Generation (sequence number) of the first list of endpoints without this replica. `None` once that list is
    /// published, or if this replica stays in the Service.
    awaited: Option<u64>,
    /// Time at which the listeners close, in ms.
    end_ms: u64,
}

impl Endpoints {
    pub(super) fn new(
        sender: Option<EndpointsSender>,
        (published_sender, published): (UpdateSender<u64>, Updates<u64>),
    ) -> Self {
        Self { sender, published, published_sender, leaving: None }
    }

    /// Returns the sender with which the publishing thread reports the generation (sequence number) of each published
    /// list of endpoints.
    pub(super) fn published_sender(&self) -> UpdateSender<u64> {
        self.published_sender.clone()
    }

    /// Publishes these endpoints. An empty list leaves the EndpointSlices of the Service unchanged.
    pub(super) fn set(&self, endpoints: Vec<ReplicaEndpoint>) {
        if let Some(sender) = &self.sender {
            sender.set(endpoints);
        }
    }

    /// Begins to remove this replica from the Service. `others` are the endpoints of the other replicas. If there are
    /// none, the Service keeps this replica's endpoint, because a restarted replica may soon serve there again.
    pub(super) fn leave(&mut self, others: Vec<ReplicaEndpoint>, now_ms: u64) {
        let has_others = !others.is_empty();
        let generation = self.sender.as_ref().map(|sender| sender.set(others));
        let awaited = generation.filter(|_| has_others);
        let end_ms = if awaited.is_some() { now_ms + LEAVE_MS_MAX } else { now_ms };
        self.leaving = Some(Leaving { awaited, end_ms });
    }

    /// Whether [`Endpoints::leave`] was called.
    pub(super) fn is_leaving(&self) -> bool {
        self.leaving.is_some()
    }

    /// Takes the reports of the publishing thread. When the Service no longer has this replica's endpoint, the
    /// listeners close [`SETTLE_MS`] later.
    pub(super) fn take_published(&mut self, now_ms: u64) {
        while let Some(published) = self.published.next() {
            if let Some(leaving) = &mut self.leaving
                && leaving.awaited.is_some_and(|awaited| awaited <= published)
            {
                tracing::info!("the Service no longer has the endpoint of this replica");
                *leaving = Leaving { awaited: None, end_ms: leaving.end_ms.min(now_ms + SETTLE_MS) };
            }
        }
    }

    /// Whether the listeners of a stopping server may close.
    pub(super) fn has_left(&self, now_ms: u64) -> bool {
        self.leaving.as_ref().is_some_and(|leaving| leaving.end_ms <= now_ms)
    }

    /// Returns the time at which the listeners of a stopping server close, in ms.
    pub(super) fn due_ms(&self) -> Option<u64> {
        self.leaving.as_ref().map(|leaving| leaving.end_ms)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cluster::endpoints;
    use crate::updates;
    use mio::{Poll, Token, Waker};
    use std::sync::Arc;

    fn replica_endpoints(texts: &[&str]) -> Vec<ReplicaEndpoint> {
        let endpoint = |text: &&str| ReplicaEndpoint { address: text.parse().expect("an address"), node: None };
        texts.iter().map(endpoint).collect()
    }

    fn kept(sender: Option<EndpointsSender>) -> (Endpoints, Poll) {
        let poll = Poll::new().expect("a poll");
        let waker = Arc::new(Waker::new(poll.registry(), Token(0)).expect("a waker"));
        (Endpoints::new(sender, updates::queue(waker)), poll)
    }

    #[test]
    fn listeners_close_after_the_service_update_or_a_timeout() {
        let (both, others) = (replica_endpoints(&["10.0.0.1:1", "10.0.0.2:1"]), replica_endpoints(&["10.0.0.2:1"]));
        for is_published in [true, false] {
            let (sender, _receiver) = endpoints();
            let (mut kept, _poll) = kept(Some(sender));
            // The first list of endpoints, too, contains only the other replica. But the publication of the first list
            // must not count for the stop.
            for (generation, endpoints) in [&others, &both].into_iter().enumerate() {
                kept.set(endpoints.clone());
                assert!(kept.published_sender().send(generation as u64 + 1));
            }
            kept.leave(others.clone(), 1_000);
            kept.take_published(1_000);
            assert!(!kept.has_left(1_100), "the Service still leads here");
            let mut end_ms = 1_000 + LEAVE_MS_MAX;
            if is_published {
                assert!(kept.published_sender().send(3));
                kept.take_published(1_200);
                end_ms = 1_200 + SETTLE_MS;
            }
            assert_eq!(kept.due_ms(), Some(end_ms));
            assert!(!kept.has_left(end_ms - 1));
            assert!(kept.has_left(end_ms));
        }
    }

    #[test]
    fn a_sole_replica_or_one_without_a_service_stops_at_once() {
        let (sender, _receiver) = endpoints();
        for (sender, others) in [(Some(sender), &[][..]), (None, &["10.0.0.2:1"])] {
            let (mut kept, _poll) = kept(sender);
            assert!(!kept.has_left(7));
            kept.leave(replica_endpoints(others), 7);
            assert!(kept.has_left(7));
        }
    }
}
