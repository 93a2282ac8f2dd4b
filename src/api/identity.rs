//! The identity Lease of a replica: who serves the Leases of this cluster, as kube-apiserver says of itself (Kubernetes
//! documentation, "Leases", "API server identity").
//!
//! Each replica has a Lease in `kube-system` and renews it. A replica that stops deletes its Lease. The Leases of
//! replicas that died are deleted by whichever replica finds them expired.

use super::Api;
use crate::clock::Now;
use crate::lease::validation::format::is_dns_subdomain;
use crate::lease::{Lease, LeaseSpec, ObjectMeta, StringMap};
use crate::table::Table;
use crate::table::change::Change;
use crate::table::object::{Object, RenewedTimes};
use crate::table::snapshot::{Range, Snapshot, Stepped};
use crate::timestamp::MicroTime;
use compact_str::{CompactString, format_compact};
use uuid::Uuid;

/// Namespace of identity Leases.
const NAMESPACE: &str = "kube-system";
/// Label that tells identity Leases, and its value.
const LABEL: (&str, &str) = ("apiserver.kubernetes.io/identity", "coordination-apiserver");
/// Label with the name of the replica's host.
const HOST_LABEL: &str = "kubernetes.io/hostname";
/// Time between two renewals, in ms.
const RENEW_MS: u64 = 10_000;
/// Time before another attempt when the journal takes no change, in ms.
const RETRY_MS: u64 = 1_000;
/// Time for which an identity Lease holds without a renewal, in seconds.
const DURATION_S: i32 = 60;
/// Longest wait of a stop for the deletion of the Lease, in ms.
const LEAVE_MS_MAX: u64 = 1_000;
/// Keys that are looked at in one step.
const KEYS_PER_STEP: usize = 4_096;

/// A replica's own Lease.
#[derive(Debug)]
pub struct Identity {
    name: CompactString,
    host: CompactString,
    /// Name, and an id that is new at each start.
    holder: CompactString,
    /// When the Lease is renewed next, in ms.
    due_ms: u64,
    /// Ticket number of the deletion of the Lease, and when the stop no longer waits for it, in ms.
    leaving: Option<(u64, u64)>,
}

impl Identity {
    /// The identity of the replica that serves on `port` of `host`.
    #[must_use]
    pub fn new(host: &str, port: u16, id: Uuid) -> Self {
        let name = format_compact!("coordination-apiserver-{}-{port}", host.to_ascii_lowercase());
        let name =
            if is_dns_subdomain(name.as_bytes()) { name } else { format_compact!("coordination-apiserver-{id}") };
        let holder = format_compact!("{name}_{id}");
        Self { name, host: host.into(), holder, due_ms: 0, leaving: None }
    }

    /// When there is something to do, in ms.
    #[must_use]
    pub fn due_ms(&self) -> u64 {
        self.leaving.map_or(self.due_ms, |(_, end_ms)| end_ms)
    }

    fn lease(&self, uid: Uuid, now: Now) -> Lease {
        let labels: StringMap =
            [(LABEL.0.into(), LABEL.1.into()), (HOST_LABEL.into(), self.host.clone())].into_iter().collect();
        Lease {
            metadata: ObjectMeta {
                name: self.name.clone(),
                namespace: NAMESPACE.into(),
                uid: format_compact!("{uid}"),
                creation_timestamp: Some(now.wall),
                labels,
                ..ObjectMeta::default()
            },
            spec: LeaseSpec {
                holder_identity: Some(self.holder.clone()),
                lease_duration_seconds: Some(DURATION_S),
                renew_time: Some(micros(now)),
                ..LeaseSpec::default()
            },
        }
    }
}

fn micros(now: Now) -> MicroTime {
    MicroTime(now.wall.0.saturating_mul(1_000_000))
}

fn is_identity(lease: &Lease) -> bool {
    lease.metadata.namespace == NAMESPACE && lease.metadata.labels.value(LABEL.0) == Some(LABEL.1)
}

/// Whether an identity Lease has not been renewed for as long as it holds.
fn is_expired(lease: &Lease, now: Now) -> bool {
    let renewed = lease.spec.renew_time.map_or(0, |time| time.0);
    let lasts = i64::from(lease.spec.lease_duration_seconds.unwrap_or(DURATION_S)).saturating_mul(1_000_000);
    renewed.saturating_add(lasts) < micros(now).0
}

/// Whether a table has Leases besides the identities of replicas, which say nothing of who held locks.
#[must_use]
pub fn holds_leases(table: &Table) -> bool {
    table.len() > table.count_in(NAMESPACE) || any_in_namespace(table, |lease| !is_identity(lease))
}

/// Whether some Lease in the namespace of identities is as `is_wanted` says.
fn any_in_namespace(table: &Table, mut is_wanted: impl FnMut(&Lease) -> bool) -> bool {
    let mut is_found = false;
    for_each_in_namespace(table, |object| {
        is_found |= is_wanted(&object.lease());
        !is_found
    });
    is_found
}

fn for_each_in_namespace(table: &Table, mut each: impl FnMut(&Object) -> bool) {
    let mut snapshot = Snapshot::now(table, Range::Namespace(NAMESPACE.into()));
    while snapshot.next(table, KEYS_PER_STEP, &mut each) == Ok(Stepped::More) {}
}

impl Api {
    /// Renews the Lease of this replica when it is due, and deletes those of replicas that died.
    pub fn keep_identity(&mut self, table: &mut Table, now: Now) {
        let uid = match &self.identity {
            Some(identity) if identity.leaving.is_none() && identity.due_ms <= now.ms => self.new_uid(),
            _ => return,
        };
        let Some(identity) = &mut self.identity else { return };
        if self.storage.is_loading() {
            identity.due_ms = now.ms + RETRY_MS;
            return;
        }
        let change = match table.find(NAMESPACE, &identity.name) {
            None => Change::Create(Box::new(identity.lease(uid, now))),
            Some((slot, object)) if object.lease().spec.holder_identity.as_deref() == Some(&*identity.holder) => {
                let times = RenewedTimes { renew_time: micros(now), managed_time: None };
                Change::Renew(table.target(slot), times)
            }
            Some((slot, _)) => Change::Replace(table.target(slot), Box::new(identity.lease(uid, now))),
        };
        let is_taken = self.storage.write(table, change, now.ms).is_ok();
        identity.due_ms = now.ms + if is_taken { RENEW_MS } else { RETRY_MS };
        self.delete_expired_identities(table, now);
    }

    fn delete_expired_identities(&mut self, table: &mut Table, now: Now) {
        let mut expired = Vec::new();
        for_each_in_namespace(table, |object| {
            let lease = object.lease();
            if is_identity(&lease) && is_expired(&lease, now) {
                expired.push(lease.metadata.name.clone());
            }
            true
        });
        for name in expired {
            if let Some((slot, _)) = table.find(NAMESPACE, &name) {
                tracing::info!(lease = %name, "deleting the identity Lease of a replica that is gone");
                // Another replica may be first, or the journal is full: the next look finds what is left.
                _ = self.storage.write(table, Change::Delete(table.target(slot)), now.ms);
            }
        }
    }

    /// Deletes the Lease of this replica, which stops.
    pub fn leave(&mut self, table: &mut Table, now: Now) {
        let Some(identity) = &mut self.identity else { return };
        let Some((slot, object)) = table.find(NAMESPACE, &identity.name) else { return };
        if object.lease().spec.holder_identity.as_deref() == Some(&*identity.holder)
            && let Ok(super::storage::Written::Submitted(ticket)) =
                self.storage.write(table, Change::Delete(table.target(slot)), now.ms)
        {
            identity.leaving = Some((ticket.number(), now.ms + LEAVE_MS_MAX));
        }
    }

    /// Whether the deletion of this replica's Lease is under way.
    #[must_use]
    pub fn is_leaving(&self, now: Now) -> bool {
        let leaving = self.identity.as_ref().and_then(|identity| identity.leaving);
        leaving.is_some_and(|(ticket, end_ms)| self.storage.settled() < ticket && now.ms < end_ms)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::resource::ResourceVersion;
    use crate::timestamp::Time;

    fn at(ms: u64) -> Now {
        Now { ms, wall: Time(1_767_000_000 + i64::try_from(ms / 1000).expect("some seconds")) }
    }

    fn replica(host: &str) -> Api {
        Api { identity: Some(Identity::new(host, 8443, Uuid::new_v4())), ..Api::new() }
    }

    fn names(table: &Table) -> Vec<CompactString> {
        let mut names = Vec::new();
        for_each_in_namespace(table, |object| {
            names.push(object.lease().metadata.name.clone());
            true
        });
        names
    }

    fn renewed(table: &Table, name: &str) -> i64 {
        let (_, object) = table.find(NAMESPACE, name).expect("a Lease");
        object.lease().spec.renew_time.expect("a time").0
    }

    #[test]
    fn replicas_renew_their_leases_and_delete_those_of_dead_ones() {
        let mut table = Table::new(ResourceVersion(1), 100, usize::MAX);
        let (mut one, mut other) = (replica("Node-A.example"), replica("node-b"));
        one.keep_identity(&mut table, at(0));
        other.keep_identity(&mut table, at(0));
        let both = ["coordination-apiserver-node-a.example-8443", "coordination-apiserver-node-b-8443"];
        assert_eq!(names(&table), both);
        assert!(!holds_leases(&table), "a store with identities alone is new");
        let first = renewed(&table, both[0]);
        for ms in (1_000..=60_000).step_by(1_000) {
            one.keep_identity(&mut table, at(ms));
        }
        assert_eq!(renewed(&table, both[0]), first + 60_000_000);
        assert_eq!(table.version(), ResourceVersion(9), "one write in ten seconds");
        one.keep_identity(&mut table, at(70_000));
        assert_eq!(names(&table), both[..1]);
    }

    #[test]
    fn a_replica_that_starts_again_takes_its_lease_over() {
        let mut table = Table::new(ResourceVersion(1), 100, usize::MAX);
        replica("a").keep_identity(&mut table, at(0));
        let mut again = replica("a");
        again.keep_identity(&mut table, at(0));
        assert_eq!(names(&table).len(), 1);
        let (_, object) = table.find(NAMESPACE, "coordination-apiserver-a-8443").expect("a Lease");
        let holder = object.lease().spec.holder_identity.clone();
        assert_eq!(holder, again.identity.as_ref().map(|identity| identity.holder.clone()));
    }

    #[test]
    fn a_host_that_is_no_name_has_an_identity_too() {
        let identity = Identity::new("a_b", 1, Uuid::new_v4());
        assert!(is_dns_subdomain(identity.name.as_bytes()), "{}", identity.name);
    }
}
