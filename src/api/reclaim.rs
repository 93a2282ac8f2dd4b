//! Reserves each lock for its former holder after this server starts, until that holder's Lease would have expired.
//!
//! The table of a new server is empty, so every lock looks free to competing clients. But the former holder of a lock
//! may be alive, and acts as the leader until one of its renewals fails. If another client acquired the lock in that
//! time, there would be two leaders. So for the duration of a lock (`leaseDurationSeconds`), only its former holder may
//! acquire the lock: create the Lease, or become the holder of a Lease without a holder. A lease server that has lost
//! its grants waits in the same way (Gray and Cheriton, "Leases", 1989). In NFSv4 this wait is the grace period, in
//! which clients can only reclaim locks (RFC 8881 §8.4.2.1).
//!
//! The server recognizes a former holder by its renewal (client-go `leaderelection`, from Kubernetes 1.30 on). The
//! renewal is an update of the Lease that contains the former UID of the Lease. The update fails, since no Lease has
//! this UID any more. But the UID shows that the client knew the Lease, so the client may now acquire the lock.
//! Competing clients do not send that UID.

use crate::api_error::ApiError;
use crate::lease::Lease;
use crate::limits::CLAIMS_MAX;
use crate::resource::{CLUSTER_NAMESPACES, NODE_LEASE_NAMESPACE};
use crate::timestamp::Time;
use std::collections::HashSet;
use std::hash::{BuildHasher, RandomState};
use tracing::info;

/// Decides which clients may acquire a lock. A lock is a Lease that has a holder and is not a node's Lease.
#[derive(Debug)]
pub struct Reclaim {
    /// Maximum duration of a reservation, in ms.
    period_ms: u64,
    phase: Phase,
    hasher: RandomState,
}

#[derive(Debug)]
enum Phase {
    /// No client has requested a lock yet. If the store has no Leases of clients, the period of reservations begins
    /// with the first request for a lock, and not when the server starts. The reason: until a switch by hand, holders
    /// still renew their Leases at kube-apiserver.
    Awaited,
    /// Since `began_ms`, only a holder with a claim may acquire a lock. A claim is a hash of a Lease and its holder.
    Open { began_ms: u64, claims: HashSet<u64> },
    /// No lock is reserved. Either the period is over, so all locks that clients held before it have expired, or the
    /// server needs no reservations.
    Over,
}

impl Reclaim {
    /// Creates the rules of reservations. The period of reservations lasts `seconds`; 0 means no reservations.
    #[must_use]
    pub fn new(seconds: u32) -> Self {
        let phase = if seconds == 0 { Phase::Over } else { Phase::Awaited };
        Self { period_ms: u64::from(seconds) * 1000, phase, hasher: RandomState::new() }
    }

    /// Records a client's claim to a lock. The client tried to renew `lease` with a UID that no Lease has.
    pub(super) fn claim(&mut self, lease: &Lease, now_ms: u64) {
        let Some(holder) = contested_by(lease) else { return };
        self.advance(now_ms);
        let Phase::Open { claims, .. } = &mut self.phase else { return };
        // The number of claims is limited, except in the cluster's own namespaces. Without the exception, other users
        // could use up the limit, and leaders of the cluster would lose their locks.
        if claims.len() < CLAIMS_MAX || CLUSTER_NAMESPACES.contains(&lease.metadata.namespace.as_str()) {
            claims.insert(claim_of(&self.hasher, lease, holder));
        }
    }

    /// Records that a client requests to acquire `lease`. The first such request for a lock begins the period of
    /// reservations.
    pub(super) fn note_request(&mut self, lease: &Lease, now_ms: u64) {
        if contested_by(lease).is_some() {
            self.advance(now_ms);
        }
    }

    /// Checks that a client may acquire the lock `lease`: it is not reserved for a former holder, or the client has
    /// claimed it.
    ///
    /// # Errors
    /// [`ApiError::Unclaimed`] while the lock may belong to another holder.
    pub(super) fn check_reservation(&self, lease: &Lease, now_ms: u64) -> Result<(), ApiError> {
        let Some(holder) = contested_by(lease) else { return Ok(()) };
        let (began_ms, is_claimed) = match &self.phase {
            Phase::Awaited => (now_ms, false),
            Phase::Open { began_ms, claims } => (*began_ms, claims.contains(&claim_of(&self.hasher, lease, holder))),
            Phase::Over => return Ok(()),
        };
        // The reservation lasts for the lock's duration. A competing client also waits this long for a renewal before
        // it takes the lock over. All clients of a lock use the same duration.
        let lasts_ms = lease.spec.lease_duration_seconds.and_then(|seconds| u64::try_from(seconds).ok());
        let lasts_ms = lasts_ms.map_or(self.period_ms, |seconds| self.period_ms.min(seconds.saturating_mul(1000)));
        let left_ms = began_ms.saturating_add(lasts_ms).saturating_sub(now_ms);
        if left_ms == 0 || is_claimed {
            return Ok(());
        }
        let retry_after_seconds = u32::try_from(left_ms.div_ceil(1000)).unwrap_or(u32::MAX);
        Err(ApiError::Unclaimed { name: lease.metadata.name.to_string(), retry_after_seconds })
    }

    /// Whether no client has requested a lock yet, so that the period of reservations has not begun.
    #[must_use]
    pub fn is_awaited(&self) -> bool {
        matches!(self.phase, Phase::Awaited)
    }

    /// Returns the time that is one period of reservations and one second before `now`. If a client created a Lease at
    /// this time or earlier, the store needs no reservations.
    #[must_use]
    pub fn began_before(&self, now: Time) -> Time {
        // A `creationTimestamp` is in whole seconds, rounded down. So the Lease may be a second younger.
        Time(now.0 - 1 - (self.period_ms / 1000).cast_signed())
    }

    /// Begins the period of reservations, unless it has already begun.
    pub fn begin(&mut self, now_ms: u64) {
        if self.is_awaited() {
            self.advance(now_ms);
        }
    }

    /// Begins the period of reservations if it has not begun. Ends the period when its time is over.
    fn advance(&mut self, now_ms: u64) {
        match &self.phase {
            Phase::Awaited => {
                info!(
                    seconds = self.period_ms / 1000,
                    "each missing lock is reserved for its former holder, for this time at most"
                );
                self.phase = Phase::Open { began_ms: now_ms, claims: HashSet::new() };
            }
            Phase::Open { began_ms, .. } if now_ms.saturating_sub(*began_ms) >= self.period_ms => {
                self.phase = Phase::Over;
            }
            Phase::Open { .. } | Phase::Over => {}
        }
    }
}

fn claim_of(hasher: &RandomState, lease: &Lease, holder: &str) -> u64 {
    hasher.hash_one((&*lease.metadata.namespace, &*lease.metadata.name, holder))
}

/// Whether `lease` is a lock.
pub(super) fn is_lock(lease: &Lease) -> bool {
    contested_by(lease).is_some()
}

/// Returns the holder of a lock; `None` for any other Lease. A node's Lease is not a lock, since only the node uses
/// it.
fn contested_by(lease: &Lease) -> Option<&str> {
    let holder = lease.spec.holder_identity.as_deref().filter(|holder| !holder.is_empty())?;
    (lease.metadata.namespace != NODE_LEASE_NAMESPACE).then_some(holder)
}

#[cfg(test)]
mod tests {
    use super::*;

    const PERIOD_MS: u64 = 60_000;

    fn lock(name: &str, holder: &str, seconds: Option<i32>) -> Lease {
        let mut lease = Lease::named("n", name);
        lease.spec.holder_identity = Some(holder.into());
        lease.spec.lease_duration_seconds = seconds;
        lease
    }

    fn wait_of(reclaim: &mut Reclaim, lease: &Lease, now_ms: u64) -> Option<u32> {
        reclaim.note_request(lease, now_ms);
        match reclaim.check_reservation(lease, now_ms) {
            Ok(()) => None,
            Err(ApiError::Unclaimed { retry_after_seconds, .. }) => Some(retry_after_seconds),
            Err(other) => panic!("{other:?}"),
        }
    }

    #[test]
    fn a_lock_is_reserved_for_its_holder_for_its_lease_duration() {
        let mut reclaim = Reclaim::new(60);
        // The first request for a lock comes some time after the start of the server.
        let began = 1_000_000;
        let (holder, other) = (lock("a", "holder", Some(15)), lock("a", "other", Some(15)));
        assert_eq!(wait_of(&mut reclaim, &other, began), Some(15));
        assert_eq!(wait_of(&mut reclaim, &holder, began + 1), Some(15), "anybody can say that name");
        reclaim.claim(&holder, began + 2);
        assert_eq!(wait_of(&mut reclaim, &holder, began + 3), None);
        assert_eq!(wait_of(&mut reclaim, &lock("b", "holder", Some(15)), began + 3), Some(15), "another lock");
        assert_eq!(wait_of(&mut reclaim, &other, began + 14_001), Some(1));
        assert_eq!(wait_of(&mut reclaim, &other, began + 15_000), None);
    }

    #[test]
    fn a_dry_run_does_not_begin_the_period() {
        let mut reclaim = Reclaim::new(60);
        let lease = lock("a", "h", Some(15));
        let refused = reclaim.check_reservation(&lease, 7);
        assert!(matches!(refused, Err(ApiError::Unclaimed { retry_after_seconds: 15, .. })), "{refused:?}");
        assert_eq!(wait_of(&mut reclaim, &lease, 7 + PERIOD_MS), Some(15));
        assert!(reclaim.check_reservation(&lease, 7 + PERIOD_MS + 15_000).is_ok());
    }

    #[test]
    fn the_reclaim_period_caps_the_lease_duration() {
        for seconds in [Some(3600), Some(i32::MAX), None, Some(-1)] {
            let mut reclaim = Reclaim::new(60);
            let lease = lock("a", "h", seconds);
            assert_eq!(wait_of(&mut reclaim, &lease, 7), Some(60), "{seconds:?}");
            assert_eq!(wait_of(&mut reclaim, &lease, 7 + PERIOD_MS - 1), Some(1), "{seconds:?}");
            assert_eq!(wait_of(&mut reclaim, &lease, 7 + PERIOD_MS), None, "{seconds:?}");
            assert!(matches!(reclaim.phase, Phase::Over));
        }
        assert_eq!(wait_of(&mut Reclaim::new(0), &lock("a", "h", None), 7), None);
    }

    #[test]
    fn node_leases_and_unheld_leases_are_not_reserved() {
        let mut reclaim = Reclaim::new(60);
        let mut of_node = lock("node", "node", Some(40));
        of_node.metadata.namespace = NODE_LEASE_NAMESPACE.into();
        let mut unheld = lock("a", "", Some(15));
        assert_eq!(wait_of(&mut reclaim, &of_node, 7), None);
        assert_eq!(wait_of(&mut reclaim, &unheld, 7), None);
        unheld.spec.holder_identity = None;
        assert_eq!(wait_of(&mut reclaim, &unheld, 7), None);
        assert!(matches!(reclaim.phase, Phase::Awaited), "no lock was asked for");
    }

    #[test]
    fn claims_are_bounded_except_in_cluster_namespaces() {
        let mut reclaim = Reclaim::new(60);
        for index in 0..=CLAIMS_MAX {
            reclaim.claim(&lock(&index.to_string(), "h", None), 7);
        }
        assert_eq!(wait_of(&mut reclaim, &lock("0", "h", None), 8), None);
        assert_eq!(wait_of(&mut reclaim, &lock(&CLAIMS_MAX.to_string(), "h", None), 8), Some(60));
        let mut of_cluster = lock("a", "h", None);
        of_cluster.metadata.namespace = "kube-system".into();
        reclaim.claim(&of_cluster, 8);
        assert_eq!(wait_of(&mut reclaim, &of_cluster, 9), None);
    }
}
