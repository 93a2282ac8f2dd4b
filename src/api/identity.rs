//! The identity Lease of a replica. Like the identity Lease of a kube-apiserver, it shows that a replica serves
//! (Kubernetes documentation, "Leases", "API server identity").
//!
//! Each ready replica has an identity Lease in `kube-system` and renews it. When a replica stops, it deletes its own
//! identity Lease. Any replica deletes the expired identity Leases of replicas that died.
//!
//! A hand-over moves Leases from or to kube-apiserver's own storage, in phases. Each replica confirms the current phase
//! in its identity Lease. The first replica by name copies the Leases.
//!
//! An identity Lease may contain the address and the node of its replica. The Service routes to the addresses of the
//! live replicas (`cluster::endpoints`).
//!
//! A replica decides by its own clock whether another replica is alive, as in client-go's leader election. An identity
//! Lease has expired if the observing replica saw no renewal for the duration of the Lease. So the clocks of two hosts
//! may differ.
//!
//! A ready replica's table may be a few seconds behind the store, and lack renewals. So the replica compares the end of
//! the duration with the time of the last passed barrier, and not with the present time. The table has every renewal
//! that the store had at the time of that barrier. If no barrier is passed for 5 s (`journal::Limits::behind_ms_max`),
//! the replica is not ready, and treats no other replica as dead.

use super::Api;
use super::storage::{Storage, Written};
use crate::api_error::ApiError;
use crate::auth::{Caller, check_master};
use crate::clock::Now;
use crate::cluster::ReplicaEndpoint;
use crate::handover::{self, ASKED};
use crate::lease::validation::format::is_dns_subdomain;
use crate::lease::{Lease, LeaseSpec, ObjectMeta, StringMap};
use crate::route::Probe;
use crate::table::Table;
use crate::table::change::Change;
use crate::table::object::{Object, RenewedTimes};
use crate::table::snapshot::Range;
use crate::timestamp::{MicroTime, Time};
use compact_str::{CompactString, format_compact};
use std::collections::BTreeMap;
use uuid::Uuid;

/// Namespace of identity Leases.
const NAMESPACE: &str = "kube-system";
/// Label of identity Leases, and the value of this label.
pub(crate) const LABEL: (&str, &str) = ("apiserver.kubernetes.io/identity", "coordination-apiserver");
/// Label with the name of the replica's host.
pub(crate) const HOST_LABEL: &str = "kubernetes.io/hostname";
/// Annotation with the address and port of the replica.
const ENDPOINT_ANNOTATION: &str = "coordination-apiserver/endpoint";
/// Annotation with the name of the replica's node.
const NODE_ANNOTATION: &str = "coordination-apiserver/node";
/// Interval at which a replica renews its identity Lease, in ms.
const RENEW_MS: u64 = 1_000;
/// Interval at which a replica reads the identity Leases, in ms.
const LOOK_MS: u64 = 500;
/// Interval at which a replica reads the identity Leases in two cases, in ms: while the replicas follow different
/// phases of a hand-over, and while it is unclear whether an identity Lease has expired.
const SOON_LOOK_MS: u64 = 50;
/// Time from a change that the journal refused to the next attempt, in ms.
const RETRY_MS: u64 = 1_000;
/// Interval at which a replica that is not ready checks its readiness, in ms.
const READY_LOOK_MS: u64 = 100;
/// Duration of an identity Lease, in seconds.
///
/// The duration must be short. After a replica dies, its identity Lease expires only after this time. Until then,
/// kube-proxy may still route requests of the kube-apiserver on the same node to the dead replica. kube-proxy prefers
/// the replica on its own node. If the dead replica was copying Leases in a hand-over, all clients wait until then.
/// Leaders that use client-go resign after 10 s without a renewal, so the wait must be shorter.
///
/// The duration must also be long enough: a pause of etcd must not look like the death of a replica. A replica asks
/// etcd at least once a second. If a request gets no answer for 2 s, the replica treats etcd as unreachable
/// (`etcd::state`). So no replica is ready once etcd has paused for 4 s. A replica that is not ready treats no other
/// replica as dead.
const DURATION_S: i32 = 6;
/// Maximum time that a shutdown waits for the deletion of this replica's identity Lease, in ms.
const LEAVE_MS_MAX: u64 = 1_000;

/// First part of the name of each identity Lease.
const NAME_PREFIX: &str = "coordination-apiserver-";

/// The identity of this replica, and the identity Leases of all replicas as this replica last saw them.
#[derive(Debug)]
pub struct ReplicaIdentity {
    name: CompactString,
    host: CompactString,
    /// Holder of the identity Lease: the name of that Lease and an id. Each start of the process creates a new id.
    holder: CompactString,
    /// Endpoint in the identity Lease; `None` if the Lease contains none.
    endpoint: Option<ReplicaEndpoint>,
    /// Time of the next renewal of the identity Lease, in ms.
    renew_ms: u64,
    /// Time of the next read of the identity Leases, in ms.
    look_ms: u64,
    /// The deletion of this replica's identity Lease during the shutdown.
    leaving: Option<Leaving>,
    /// Identity Leases of all replicas by name, as this replica last saw them.
    seen: BTreeMap<CompactString, Seen>,
    /// Whether an identity Lease in `seen` may have expired since the last passed barrier.
    is_unclear: bool,
    /// Id of the request for the hand-over phase that this replica follows. The commands `takeover` and `rollback` make
    /// such requests.
    keeps_to: Option<CompactString>,
}

/// The deletion of this replica's identity Lease during the shutdown.
#[derive(Clone, Copy, Debug)]
struct Leaving {
    /// Number by which the journal identifies the deletion; `None` before the journal has accepted the deletion, and 0
    /// if there is nothing to wait for.
    ticket: Option<u64>,
    /// Time at which the wait for the deletion ends, in ms.
    end_ms: u64,
}

/// An identity Lease, as this replica last saw it.
#[derive(Clone, Debug)]
struct Seen {
    renew_time: Option<MicroTime>,
    /// Time at which this replica first saw `renew_time`, in ms.
    since_ms: u64,
    /// Whether the Lease has expired: at the time of the last passed barrier, the duration of the Lease was over, and
    /// the store had no newer renewal.
    is_expired: bool,
    endpoint: Option<ReplicaEndpoint>,
    /// Id of the request for the hand-over phase that the replica of this Lease follows. The commands `takeover` and
    /// `rollback` make such requests.
    keeps_to: Option<CompactString>,
}

impl ReplicaIdentity {
    /// Creates the identity of the replica that listens on `port` of `host`. The identity Lease contains `endpoint`, if
    /// set.
    #[must_use]
    pub fn new(host: &str, port: u16, endpoint: Option<ReplicaEndpoint>, id: Uuid) -> Self {
        let name = format_compact!("{NAME_PREFIX}{}-{port}", host.to_ascii_lowercase());
        let name = if is_dns_subdomain(name.as_bytes()) { name } else { format_compact!("{NAME_PREFIX}{id}") };
        let holder = format_compact!("{name}_{id}");
        Self {
            name,
            host: host.into(),
            holder,
            endpoint,
            renew_ms: 0,
            look_ms: 0,
            leaving: None,
            seen: BTreeMap::new(),
            is_unclear: false,
            keeps_to: None,
        }
    }

    /// Returns the time of the next renewal or read of identity Leases, in ms. During a shutdown, returns the time at
    /// which the wait for the deletion of this replica's identity Lease ends.
    #[must_use]
    pub fn due_ms(&self) -> u64 {
        self.leaving.map_or_else(|| self.renew_ms.min(self.look_ms), |leaving| leaving.end_ms)
    }

    /// Returns the endpoints in the identity Leases of the live replicas, sorted. This replica counts as live even
    /// before the table has its identity Lease. Returns no endpoints while it is unclear which replicas are alive:
    /// another replica may already have removed the endpoint of a dead one, and this replica must not restore it.
    fn endpoints(&self) -> Vec<ReplicaEndpoint> {
        if self.is_unclear {
            return Vec::new();
        }
        let mut endpoints = self.other_endpoints();
        endpoints.extend(self.endpoint.clone());
        endpoints.sort_unstable();
        endpoints.dedup();
        endpoints
    }

    /// Returns the endpoints in the identity Leases of the other live replicas, sorted.
    #[must_use]
    pub fn other_endpoints(&self) -> Vec<ReplicaEndpoint> {
        let mut endpoints: Vec<_> = self.live_others().filter_map(|(_, seen)| seen.endpoint.clone()).collect();
        endpoints.sort_unstable();
        endpoints.dedup();
        endpoints
    }

    /// Returns the unexpired identity Leases of the other replicas, by name.
    fn live_others(&self) -> impl Iterator<Item = (&CompactString, &Seen)> {
        self.seen.iter().filter(move |(name, seen)| **name != self.name && !seen.is_expired)
    }

    /// Whether the table has the identity Lease of another replica, expired or not.
    #[must_use]
    pub fn has_others(&self, table: &Table) -> bool {
        identities(table).any(|object| object.metadata().name != self.name)
    }

    /// Reads all identity Leases from the table. Returns the names of the expired ones, without that of this replica.
    ///
    /// If a Lease may have expired since the last passed barrier, asks for another barrier. After that barrier, the
    /// next read shows whether the Lease has expired.
    fn read_leases(&mut self, table: &Table, storage: &mut Storage, now: Now) -> Vec<CompactString> {
        let current_ms = storage.current_ms(now.ms);
        let (mut seen, mut is_unclear) = (BTreeMap::new(), false);
        for object in identities(table) {
            let metadata = object.metadata();
            let renew_time = object.renew_time();
            let since_ms = match self.seen.get(&metadata.name) {
                Some(before) if before.renew_time == renew_time => before.since_ms,
                _ => now.ms,
            };
            let seconds = object.unrenewed().spec.lease_duration_seconds.unwrap_or(DURATION_S);
            let end_ms = since_ms + u64::try_from(seconds.clamp(0, DURATION_S)).unwrap_or_default() * 1_000;
            let is_expired = end_ms < current_ms;
            is_unclear |= !is_expired && end_ms < now.ms;
            let endpoint = endpoint_in(&metadata.annotations);
            let keeps_to = metadata.annotations.value(ASKED).map(CompactString::from);
            seen.insert(metadata.name.clone(), Seen { renew_time, since_ms, is_expired, endpoint, keeps_to });
        }
        // While the barrier is late, further queries would only add to the load of the store.
        if is_unclear && !self.is_unclear {
            _ = storage.ask_barrier();
        }
        let is_agreed = seen.values().all(|seen: &Seen| seen.keeps_to == self.keeps_to);
        (self.seen, self.is_unclear) = (seen, is_unclear);
        self.look_ms = now.ms + if is_agreed && !is_unclear { LOOK_MS } else { SOON_LOOK_MS };
        self.seen
            .iter()
            .filter(|(name, seen)| seen.is_expired && **name != self.name)
            .map(|(name, _)| name.clone())
            .collect()
    }

    /// Makes this replica follow the hand-over phase whose request has the id `asked`. The next renewal of the identity
    /// Lease confirms that phase, and is due at once.
    pub(super) fn confirm(&mut self, asked: Option<&CompactString>) {
        if self.keeps_to.as_ref() != asked {
            self.keeps_to = asked.cloned();
            (self.renew_ms, self.look_ms) = (0, 0);
        }
    }

    /// Whether this replica and all other live replicas confirm the phase whose request has the id `asked`. The result
    /// is false until this replica has read its own identity Lease from the table.
    pub(super) fn all_confirm(&self, table: &Table, asked: &str) -> bool {
        let is_own = table
            .find(NAMESPACE, &self.name)
            .is_some_and(|(_, object)| object.metadata().annotations.value(ASKED) == Some(asked) && self.holds(object));
        self.is_seen() && is_own && self.live_others().all(|(_, seen)| seen.keeps_to.as_deref() == Some(asked))
    }

    /// Whether this replica's identity Lease is the first by name in the table.
    ///
    /// The first replica copies Leases in a hand-over. The identity Lease of a dead replica counts until another
    /// replica deletes it. So in the journal, this deletion comes before every copy by the next first replica. A
    /// replica that only paused may still believe that it is the first. Before it copies again, it catches up with the
    /// journal and finds the deletion. So it stops copying.
    pub(super) fn is_first_in(&self, table: &Table) -> bool {
        let mut identities = identities(table);
        let first = identities.by_ref().min_by_key(|object| &object.metadata().name);
        first.is_some_and(|object| object.metadata().name == self.name && self.holds(object))
    }

    /// Whether this replica is the first live replica by name. The result is false until this replica has read its own
    /// identity Lease from the table.
    pub(super) fn is_first(&self) -> bool {
        self.is_seen() && self.live_others().all(|(name, _)| *name > self.name)
    }

    /// Whether this replica has read its own identity Lease from the table since it became ready. Otherwise `seen` may
    /// lack other replicas.
    fn is_seen(&self) -> bool {
        self.seen.contains_key(&self.name)
    }

    /// Whether this process is the holder of an identity Lease. The result is false if an earlier process of the same
    /// replica wrote the Lease.
    fn holds(&self, object: &Object) -> bool {
        object.unrenewed().spec.holder_identity.as_deref() == Some(&*self.holder)
    }

    /// Whether this replica's identity Lease, `object`, has the right label and endpoint, and confirms the phase that
    /// this replica follows.
    fn is_shown_by(&self, object: &Object) -> bool {
        is_identity(object.metadata()) && object.metadata().annotations == self.annotations()
    }

    fn labels(&self) -> StringMap {
        [(LABEL.0.into(), LABEL.1.into()), (HOST_LABEL.into(), self.host.clone())].into_iter().collect()
    }

    fn annotations(&self) -> StringMap {
        let endpoint = self.endpoint.iter();
        let address =
            endpoint.clone().map(|endpoint| (ENDPOINT_ANNOTATION.into(), format_compact!("{}", endpoint.address)));
        let node = endpoint.filter_map(|endpoint| Some((NODE_ANNOTATION.into(), endpoint.node.clone()?)));
        let keeps_to = self.keeps_to.iter().map(|asked| (ASKED.into(), asked.clone()));
        address.chain(node).chain(keeps_to).collect()
    }

    fn lease(&self, uid: Uuid, now: Now) -> Lease {
        let (labels, annotations) = (self.labels(), self.annotations());
        Lease {
            metadata: ObjectMeta {
                name: self.name.clone(),
                namespace: NAMESPACE.into(),
                uid: format_compact!("{uid}"),
                creation_timestamp: Some(now.wall),
                labels,
                annotations,
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

/// Returns the time by the wall clock as a `MicroTime`, in whole seconds.
pub(super) fn micros(now: Now) -> MicroTime {
    MicroTime(now.wall.0.saturating_mul(1_000_000))
}

/// Checks that `caller` may make a change. The identity Leases decide which addresses the Service routes to, and how a
/// hand-over proceeds. So the right to write Leases in their namespace is not enough to write an identity Lease.
///
/// # Errors
/// [`ApiError::Forbidden`] if the Lease is an identity Lease before or after the change, and `caller` is no
/// administrator (`system:masters`).
pub(super) fn check_change(table: &Table, change: &Change, caller: &Caller) -> Result<(), ApiError> {
    let (namespace, name) = table.names_of(change);
    if namespace != NAMESPACE {
        return Ok(());
    }
    let is_before = table.find(namespace, name).is_some_and(|(_, object)| is_identity(object.metadata()));
    let is_after = match change {
        Change::Create(lease) | Change::Replace(_, lease) => is_identity(&lease.metadata),
        Change::Renew(..) | Change::Delete(_) => false,
    };
    if is_before || is_after { check_master(caller, name, "the identity Lease of a replica") } else { Ok(()) }
}

/// Returns the endpoint that the annotations of an identity Lease name.
fn endpoint_in(annotations: &StringMap) -> Option<ReplicaEndpoint> {
    let address = annotations.value(ENDPOINT_ANNOTATION)?.parse().ok()?;
    let node = annotations.value(NODE_ANNOTATION).filter(|node| is_dns_subdomain(node.as_bytes()));
    Some(ReplicaEndpoint { address, node: node.map(CompactString::from) })
}

fn is_identity(metadata: &ObjectMeta) -> bool {
    metadata.namespace == NAMESPACE && metadata.labels.value(LABEL.0) == Some(LABEL.1)
}

/// Whether a Lease belongs to this server: an identity Lease, or a Lease that stores the state of the hand-over.
/// kube-apiserver's own storage never has such a Lease.
pub(super) fn is_own(metadata: &ObjectMeta) -> bool {
    is_identity(metadata) || handover::is_lease(&metadata.namespace, &metadata.name)
}

/// Whether a table has Leases of clients, so that its store was in use before. This server's own Leases do not count,
/// since even a new store gets them.
#[must_use]
pub fn holds_leases(table: &Table) -> bool {
    table.len() > table.count_in(NAMESPACE) || leases(table).any(|object| !is_own(object.metadata()))
}

/// Whether a table has a Lease of a client with a `creationTimestamp` of `since` or earlier.
#[must_use]
pub fn holds_leases_since(table: &Table, since: Time) -> bool {
    let mut of_clients = table.iter(&Range::All).map(Object::metadata).filter(|metadata| !is_own(metadata));
    of_clients.any(|metadata| metadata.creation_timestamp.is_some_and(|created| created <= since))
}

/// Returns the number of Leases of clients: all Leases but this server's own. Examines only `kube-system`, since this
/// server's own Leases are there.
pub(super) fn client_leases(table: &Table) -> usize {
    table.len() - leases(table).filter(|object| is_own(object.metadata())).count()
}

/// Returns all Leases in the namespace of the identity Leases, `kube-system`.
fn leases(table: &Table) -> impl Iterator<Item = &Object> {
    table.iter(&Range::Namespace(NAMESPACE.into()))
}

/// Returns all identity Leases. Reads only Leases whose names begin with [`NAME_PREFIX`]: the namespace may have many
/// other Leases, and a replica reads the identity Leases several times a second.
fn identities(table: &Table) -> impl Iterator<Item = &Object> {
    let start = format!("{NAMESPACE}/{NAME_PREFIX}");
    let from_start = table.iter_from(&start);
    let of_replicas = from_start.take_while(move |object| object.key().as_str().starts_with(start.as_str()));
    of_replicas.filter(|object| is_identity(object.metadata()))
}

impl Api {
    /// Renews this replica's identity Lease when due, reads the identity Leases of the other replicas, and deletes the
    /// expired ones. A replica that is not ready does none of this, for two reasons. First, an identity Lease means
    /// that its replica serves the cluster. Second, a table that is behind the store does not show which replicas have
    /// died.
    ///
    /// Returns the endpoints of the live replicas if this call read the identity Leases, and `None` otherwise. The
    /// endpoints are empty while this replica does not know which replicas are alive.
    pub fn keep_identity(&mut self, table: &mut Table, now: Now) -> Option<Vec<ReplicaEndpoint>> {
        if self.identity.as_ref().is_some_and(|identity| identity.leaving.is_some()) {
            self.leave(table, now);
        }
        let uid = match &self.identity {
            Some(identity) if identity.leaving.is_none() && identity.due_ms() <= now.ms => self.new_uid(),
            _ => return None,
        };
        let identity = self.identity.as_mut()?;
        if !self.health.is_passing(Probe::Readyz) {
            (identity.renew_ms, identity.look_ms) = (now.ms + READY_LOOK_MS, now.ms + READY_LOOK_MS);
            // While this replica was not ready, it saw no renewals of the other replicas. So the recorded times of
            // renewals are outdated.
            identity.seen.clear();
            return Some(Vec::new());
        }
        if identity.renew_ms <= now.ms {
            let change = match table.find(NAMESPACE, &identity.name) {
                None => Change::Create(Box::new(identity.lease(uid, now))),
                Some((slot, object)) if identity.holds(object) && identity.is_shown_by(object) => {
                    let times = RenewedTimes { renew_time: micros(now), managed_time: None };
                    Change::Renew(table.target(slot), times)
                }
                Some((slot, object)) if identity.holds(object) => {
                    let mut lease = object.lease().into_owned();
                    lease.metadata.labels = identity.labels();
                    lease.metadata.annotations = identity.annotations();
                    lease.spec.renew_time = Some(micros(now));
                    Change::Replace(table.target(slot), Box::new(lease))
                }
                Some((slot, _)) => Change::Replace(table.target(slot), Box::new(identity.lease(uid, now))),
            };
            identity.renew_ms = now.ms
                + match self.storage.write(table, change, now.ms) {
                    // The journal has not applied the last renewal yet. The next attempt comes soon, since it may have
                    // to confirm a phase of a hand-over.
                    Ok(Written::Busy(_)) => SOON_LOOK_MS,
                    Ok(Written::Applied(_) | Written::Submitted(_)) => RENEW_MS,
                    Err(_) => RETRY_MS,
                };
        }
        for name in identity.read_leases(table, &mut self.storage, now) {
            if let Some((slot, _)) = table.find(NAMESPACE, &name) {
                tracing::info!(lease = %name, "deleting the identity Lease of a replica that is gone");
                // This deletion may fail: another replica may delete the Lease first, or the journal may be full. The
                // next read finds the identity Leases that remain.
                _ = self.storage.write(table, Change::Delete(table.target(slot)), now.ms);
            }
        }
        Some(identity.endpoints())
    }

    /// Deletes this replica's identity Lease at shutdown. While a renewal of that Lease is in flight, the journal
    /// refuses the deletion. [`Api::keep_identity`] then calls this function again.
    pub fn leave(&mut self, table: &mut Table, now: Now) {
        let Some(identity) = &mut self.identity else { return };
        let own = table.find(NAMESPACE, &identity.name).filter(|(_, object)| identity.holds(object));
        let own = own.map(|(slot, _)| table.target(slot));
        let is_in_flight = self.storage.in_flight(NAMESPACE, &identity.name).is_some();
        let leaving = identity.leaving.get_or_insert(Leaving { ticket: None, end_ms: now.ms + LEAVE_MS_MAX });
        if now.ms >= leaving.end_ms {
            // The wait for the deletion is over. With the deadline `u64::MAX`, no further turn of the event loop is
            // due.
            *leaving = Leaving { ticket: Some(0), end_ms: u64::MAX };
        }
        if leaving.ticket.is_some() {
            return;
        }
        let deleted = own.map(|target| self.storage.write(table, Change::Delete(target), now.ms));
        leaving.ticket = match deleted {
            Some(Ok(Written::Submitted(ticket))) => Some(ticket.number()),
            Some(Ok(Written::Busy(_)) | Err(_)) => None,
            // The creation of the Lease is in flight. A later call of this function deletes the Lease.
            None if is_in_flight => None,
            // There is nothing to wait for.
            Some(Ok(Written::Applied(_))) | None => Some(0),
        };
    }

    /// Whether the shutdown still waits for the deletion of this replica's identity Lease.
    #[must_use]
    pub fn is_leaving(&self, now: Now) -> bool {
        let leaving = self.identity.as_ref().and_then(|identity| identity.leaving);
        leaving.is_some_and(|leaving| {
            let is_pending = leaving.ticket.is_none_or(|ticket| self.storage.settled() < ticket);
            is_pending && now.ms < leaving.end_ms
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::journal::Limits;
    use crate::journal::testing::SharedStore;
    use crate::resource::ResourceVersion;
    use crate::tls::identity::Identity;
    use std::rc::Rc;

    fn at(ms: u64) -> Now {
        Now { ms, wall: Time(1_767_000_000 + i64::try_from(ms / 1000).expect("some seconds")) }
    }

    fn replica(host: &str) -> Api {
        replica_at(host, None)
    }

    fn replica_at(host: &str, endpoint: Option<&str>) -> Api {
        let endpoint = endpoint
            .map(|text| ReplicaEndpoint { address: text.parse().expect("an address"), node: Some(host.into()) });
        Api { identity: Some(ReplicaIdentity::new(host, 8443, endpoint, Uuid::new_v4())), ..Api::new() }
    }

    /// Returns the endpoints that a replica sees at the time `ms`.
    fn looked(api: &mut Api, table: &mut Table, ms: u64) -> Vec<String> {
        let endpoints = api.keep_identity(table, at(ms)).expect("a look");
        endpoints.iter().map(|endpoint| endpoint.address.to_string()).collect()
    }

    fn names(table: &Table) -> Vec<CompactString> {
        leases(table).map(|object| object.metadata().name.clone()).collect()
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
        assert_eq!(client_leases(&table), 0);
        let first = renewed(&table, both[0]);
        for ms in (500..=6_000).step_by(500) {
            one.keep_identity(&mut table, at(ms));
        }
        assert_eq!(renewed(&table, both[0]), first + 6_000_000);
        assert_eq!(table.version(), ResourceVersion(9), "one write a second");
        assert_eq!(names(&table), both);
        // The first replica read the other replica's only renewal at 500 ms. So that Lease has expired after 6,500 ms.
        one.keep_identity(&mut table, at(7_000));
        assert_eq!(names(&table), both[..1]);
    }

    #[test]
    fn identities_are_found_among_other_leases() {
        let mut table = Table::new(ResourceVersion(1), 100, usize::MAX);
        for name in ["a", "coordination-apiserver", "coordination-apiserver-handover", "z"] {
            table.create(Lease::named(NAMESPACE, name));
        }
        for host in ["b", "a"] {
            replica(host).keep_identity(&mut table, at(0));
        }
        let found: Vec<_> = identities(&table).map(|object| object.metadata().name.clone()).collect();
        assert_eq!(found, ["coordination-apiserver-a-8443", "coordination-apiserver-b-8443"]);
        assert_eq!(names(&table).len(), 6);
    }

    #[test]
    fn only_administrators_write_identity_leases() {
        let mut table = Table::new(ResourceVersion(1), 100, usize::MAX);
        let mut api = replica("a");
        api.keep_identity(&mut table, at(0));
        let name = "coordination-apiserver-a-8443";
        let lease = |labels: &StringMap, namespace: &str, name: &str| {
            let mut lease = Box::new(Lease::named(namespace, name));
            lease.metadata.labels = labels.clone();
            lease
        };
        let (labels, none) = (api.identity.as_ref().expect("an identity").labels(), StringMap::default());
        let (slot, _) = table.find(NAMESPACE, name).expect("a Lease");
        let times = RenewedTimes { renew_time: MicroTime(1), managed_time: None };
        let of = |group: &str| Caller::Proxied(Rc::new(Identity { user: "u".into(), groups: vec![group.into()] }));
        let (admin, other) = (of("system:masters"), of("system:nodes"));
        let target = table.target(slot);
        let replacement = lease(&none, NAMESPACE, name);
        for change in [Change::Delete(target), Change::Renew(target, times), Change::Replace(target, replacement)] {
            assert!(check_change(&table, &change, &admin).is_ok());
            assert!(matches!(check_change(&table, &change, &other), Err(ApiError::Forbidden { .. })));
        }
        let created = |labels: &StringMap, namespace: &str| {
            check_change(&table, &Change::Create(lease(labels, namespace, "x")), &other).is_ok()
        };
        assert!(!created(&labels, NAMESPACE) && created(&none, NAMESPACE) && created(&labels, "default"));
    }

    #[test]
    fn a_replica_restores_its_lease() {
        let mut table = Table::new(ResourceVersion(1), 100, usize::MAX);
        let mut one = replica_at("a", Some("10.0.0.1:8443"));
        one.keep_identity(&mut table, at(0));
        let (slot, object) = table.find(NAMESPACE, "coordination-apiserver-a-8443").expect("a Lease");
        let mut lease = object.lease().into_owned();
        (lease.metadata.labels, lease.metadata.annotations) = (StringMap::default(), StringMap::default());
        table.apply(Change::Replace(table.target(slot), Box::new(lease))).expect("the current version");
        one.keep_identity(&mut table, at(1_000));
        let (_, object) = table.find(NAMESPACE, "coordination-apiserver-a-8443").expect("a Lease");
        assert!(is_identity(object.metadata()) && endpoint_in(&object.metadata().annotations).is_some());
    }

    #[test]
    fn a_restarted_replica_takes_over_its_lease() {
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
    fn the_clocks_of_two_hosts_may_differ() {
        let mut table = Table::new(ResourceVersion(1), 100, usize::MAX);
        let (mut one, mut other) = (replica("a"), replica("b"));
        let an_hour_behind = |ms| Now { wall: Time(at(ms).wall.0 - 3_600), ..at(ms) };
        for ms in (0..=60_000).step_by(500) {
            other.keep_identity(&mut table, an_hour_behind(ms));
            one.keep_identity(&mut table, at(ms));
            assert_eq!(names(&table).len(), 2, "{ms}");
        }
    }

    #[test]
    fn the_endpoints_list_only_live_replicas() {
        let mut table = Table::new(ResourceVersion(1), 100, usize::MAX);
        let (a, b, c) = ("10.0.0.1:8443", "10.0.0.2:8443", "[fd00::3]:8443");
        let mut one = replica_at("a", Some(a));
        let mut two = replica_at("b", Some(b));
        let mut three = replica_at("c", Some(c));
        assert_eq!(looked(&mut one, &mut table, 0), [a], "it sees itself at once");
        assert_eq!(looked(&mut two, &mut table, 0), [a, b]);
        assert_eq!(looked(&mut three, &mut table, 0), [a, b, c]);
        assert_eq!(looked(&mut one, &mut table, 500), [a, b, c]);
        // The second replica restarts with another address; the third dies.
        let mut two = replica_at("b", Some("10.0.0.9:8443"));
        two.keep_identity(&mut table, at(1_000));
        assert_eq!(looked(&mut one, &mut table, 1_000), [a, "10.0.0.9:8443", c]);
        for ms in (1_500..=6_500).step_by(500) {
            two.keep_identity(&mut table, at(ms));
            assert_eq!(looked(&mut one, &mut table, ms), [a, "10.0.0.9:8443", c], "{ms}");
        }
        assert_eq!(looked(&mut one, &mut table, 7_000), [a, "10.0.0.9:8443"], "seen since 500");
        // The second replica stops, and disappears from the endpoints.
        two.keep_identity(&mut table, at(7_000));
        let others = two.identity.as_ref().expect("an identity").other_endpoints();
        assert_eq!(others, [ReplicaEndpoint { address: a.parse().expect("an address"), node: Some("a".into()) }]);
        two.leave(&mut table, at(7_000));
        assert_eq!(looked(&mut one, &mut table, 7_500), [a]);
    }

    #[test]
    fn a_replica_that_becomes_ready_again_keeps_other_endpoints() {
        let mut table = Table::new(ResourceVersion(1), 100, usize::MAX);
        let (mut one, mut other) = (replica_at("a", Some("10.0.0.1:1")), replica_at("b", Some("10.0.0.2:1")));
        let check = one.health.register("journal", &[Probe::Readyz], "not yet read");
        assert_eq!(looked(&mut one, &mut table, 0), [""; 0]);
        assert_eq!(names(&table), [""; 0], "a Lease says that its replica serves");
        one.health.set(check, Ok(()));
        other.keep_identity(&mut table, at(1_000));
        assert_eq!(looked(&mut one, &mut table, 1_000).len(), 2);
        one.health.set(check, Err("this replica is behind".into()));
        for ms in (1_500..=60_000).step_by(500) {
            assert!(one.keep_identity(&mut table, at(ms)).is_none_or(|endpoints| endpoints.is_empty()));
        }
        one.health.set(check, Ok(()));
        assert_eq!(looked(&mut one, &mut table, 61_000).len(), 2);
    }

    /// Goal: a ready replica whose table lacks the newest renewals treats no live replica as dead. It treats a dead
    /// replica as dead a moment after the duration of the Lease. While it is unclear whether a replica is dead, it
    /// leaves the EndpointSlices unchanged. Method: the replica `b` renews late, and then dies. The watch of the
    /// replica `a` delivers the late renewal 3.5 s after the write.
    #[test]
    fn a_replica_that_is_behind_treats_no_live_replica_as_dead() {
        let store = SharedStore::default();
        let open = |writer, host, endpoint| {
            let (journal, table) = store.load(writer, Limits::default());
            (Api { storage: Storage::Journal(Box::new(journal)), ..replica_at(host, Some(endpoint)) }, table)
        };
        let mut replicas = [open(1, "a", "10.0.0.1:1"), open(2, "b", "10.0.0.2:1")];
        let turn = |(api, table): &mut (Api, Table), ms| {
            api.storage.journal_mut().expect("a journal").advance(table, ms, 100).expect("a store");
            let published = api.keep_identity(table, at(ms)).map(|endpoints| endpoints.len());
            let journal = api.storage.journal_mut().expect("a journal");
            journal.end_turn(table, ms);
            let others = api.identity.as_ref().expect("an identity").other_endpoints().len();
            (journal.is_current(ms), others, published)
        };
        for ms in (0..=16_000).step_by(100) {
            store.deliver_nothing((5_600..9_000).contains(&ms));
            let (is_current, others, published) = turn(&mut replicas[0], ms);
            // The first replica sees the renewals of `b` at 1,500 and at 9,000 ms. A Lease expires 6 s later.
            if (500..=15_000).contains(&ms) {
                assert_eq!((is_current, others), (true, 1), "{ms}");
            }
            if (8_000..9_000).contains(&ms) {
                assert_eq!(published, Some(0), "{ms}");
            }
            if ms <= 1_000 || ms == 5_500 {
                turn(&mut replicas[1], ms);
            }
        }
        let (one, table) = &replicas[0];
        assert!(one.identity.as_ref().expect("an identity").other_endpoints().is_empty());
        assert_eq!(names(table), ["coordination-apiserver-a-8443"]);
    }

    #[test]
    fn replicas_confirm_a_phase_and_elect_one_as_first() {
        let mut table = Table::new(ResourceVersion(1), 100, usize::MAX);
        let mut replicas = [replica("a"), replica("b")];
        let mut keep = |replicas: &mut [Api], ms| {
            replicas.iter_mut().for_each(|replica| _ = replica.keep_identity(&mut table, at(ms)));
            let confirmed = |replica: &Api| {
                let identity = replica.identity.as_ref().expect("an identity");
                (identity.all_confirm(&table, "one"), identity.is_first())
            };
            replicas.iter().map(confirmed).collect::<Vec<_>>()
        };
        assert_eq!(keep(&mut replicas, 0), [(false, true), (false, false)]);
        replicas[0].identity.as_mut().expect("an identity").confirm(Some(&"one".into()));
        assert_eq!(keep(&mut replicas, 1_000), [(false, true), (false, false)], "the other takes writes");
        replicas[1].identity.as_mut().expect("an identity").confirm(Some(&"one".into()));
        assert_eq!(keep(&mut replicas, 1_500), [(false, true), (true, false)], "the first has not seen it yet");
        assert_eq!(keep(&mut replicas, 1_600), [(true, true), (true, false)]);
        // The first replica dies. The other replica waits until the Lease of the first has expired.
        let other = &mut replicas[1..];
        assert_eq!(keep(other, 7_000), [(true, false)]);
        assert_eq!(keep(other, 7_500), [(true, true)]);
        replicas[1].identity.as_mut().expect("an identity").confirm(Some(&"two".into()));
        assert_eq!(keep(&mut replicas[1..], 9_000), [(false, true)]);
    }

    #[test]
    fn a_replica_that_becomes_ready_again_reads_the_leases_before_it_confirms() {
        let mut table = Table::new(ResourceVersion(1), 100, usize::MAX);
        let (mut one, mut other) = (replica("a"), replica("b"));
        let check = one.health.register("journal", &[Probe::Readyz], "not yet read");
        let confirm = |api: &mut Api| api.identity.as_mut().expect("an identity").confirm(Some(&"one".into()));
        let all_confirm =
            |api: &Api, table: &Table| api.identity.as_ref().expect("an identity").all_confirm(table, "one");
        one.health.set(check, Ok(()));
        confirm(&mut one);
        other.keep_identity(&mut table, at(0));
        one.keep_identity(&mut table, at(0));
        assert!(!all_confirm(&one, &table), "the other replica has not confirmed");
        one.health.set(check, Err("this replica is behind".into()));
        one.keep_identity(&mut table, at(500));
        one.health.set(check, Ok(()));
        assert!(!all_confirm(&one, &table), "the Leases are not read yet");
        confirm(&mut other);
        other.keep_identity(&mut table, at(600));
        one.keep_identity(&mut table, at(600));
        assert!(all_confirm(&one, &table));
    }

    #[test]
    fn an_invalid_host_name_still_gives_a_valid_lease_name() {
        let identity = ReplicaIdentity::new("a_b", 1, None, Uuid::new_v4());
        assert!(is_dns_subdomain(identity.name.as_bytes()), "{}", identity.name);
    }

    #[test]
    fn a_dead_replica_stays_first_until_its_lease_is_deleted() {
        let mut table = Table::new(ResourceVersion(1), 100, usize::MAX);
        let (mut one, mut other) = (replica("a"), replica("b"));
        let is_first = |api: &Api, table: &Table| api.identity.as_ref().expect("an identity").is_first_in(table);
        other.keep_identity(&mut table, at(0));
        assert_eq!([is_first(&one, &table), is_first(&other, &table)], [false, true]);
        one.keep_identity(&mut table, at(0));
        assert_eq!([is_first(&one, &table), is_first(&other, &table)], [true, false], "at once");
        for ms in (1_000..=6_000).step_by(500) {
            other.keep_identity(&mut table, at(ms));
            assert!(!is_first(&other, &table), "{ms}");
        }
        other.keep_identity(&mut table, at(7_500));
        assert_eq!([is_first(&one, &table), is_first(&other, &table)], [false, true], "deleted");
        // The new process of replica `a` is not first yet, since it has not renewed the Lease of the former process.
        let mut again = replica("a");
        one.keep_identity(&mut table, at(12_000));
        assert_eq!([is_first(&again, &table), is_first(&one, &table)], [false, true]);
        again.keep_identity(&mut table, at(12_000));
        assert_eq!([is_first(&again, &table), is_first(&one, &table)], [true, false]);
    }
}
