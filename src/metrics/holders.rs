//! Counts of Leases by namespace and by state of the holder.
//!
//! A count examines the whole table, and a million Leases must not stall the event loop. So a count runs in steps, in
//! different turns of the event loop. A scrape of `/metrics` begins a count and runs its first step, unless a count is
//! in progress. In a small table, the first step counts all Leases, and the scrape returns the new count. Otherwise the
//! scrape returns the last complete count, if any, and the new count continues.

use crate::clock::Now;
use crate::lease::LeaseSpec;
use crate::resource::CLUSTER_NAMESPACES;
use crate::table::Table;
use crate::table::snapshot::{Range, Snapshot, Stepped};
use crate::timestamp::{MicroTime, Time};
use compact_str::CompactString;
use std::collections::BTreeMap;

/// Number of Leases examined in one step. A step takes some tenths of a millisecond if no Lease is in the processor's
/// caches.
const KEYS_PER_STEP: usize = 2048;

/// Interval between two steps of a count, in ms. The count of a million Leases takes five seconds, and a fiftieth of
/// the event loop's time.
const STEP_INTERVAL_MS: u64 = 10;

/// The last complete count of the Leases, and the count in progress.
#[derive(Debug, Default)]
pub(super) struct HolderScan {
    known: Option<Known>,
    pass: Option<Pass>,
}

/// A complete count of all Leases in the table.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Known {
    pub(super) leases: ByNamespace<HolderCounts>,
    /// Time at which the count was complete. The count may or may not include changes made during the count.
    pub(super) at: Time,
}

/// Counts of Leases by state of the holder.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct HolderCounts {
    /// Leases whose holder has renewed in time or need not renew.
    pub(super) held: u64,
    /// Leases whose holder has not renewed in time.
    pub(super) expired: u64,
    /// Leases without a holder.
    pub(super) unheld: u64,
}

/// Counts by namespace, separate for a bounded number of namespaces. All other namespaces share one count.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct ByNamespace<T> {
    counts: BTreeMap<CompactString, T>,
    /// Number of namespaces with a separate count, without [`CLUSTER_NAMESPACES`].
    own: usize,
}

impl<T: Default> ByNamespace<T> {
    /// Returns the count of a namespace.
    pub(super) fn of(&mut self, namespace: &str) -> &mut T {
        let has_count = self.counts.contains_key(namespace) || CLUSTER_NAMESPACES.contains(&namespace);
        let is_new = !has_count && self.own < NAMESPACES_MAX;
        self.own += usize::from(is_new);
        let label = if has_count || is_new { namespace } else { OTHER_NAMESPACES };
        self.counts.entry(CompactString::from(label)).or_default()
    }

    /// Returns each namespace with its count, in order.
    pub(super) fn iter(&self) -> impl Iterator<Item = (&str, &T)> {
        self.counts.iter().map(|(namespace, count)| (namespace.as_str(), count))
    }
}

/// Maximum number of namespaces with a separate count, in addition to [`CLUSTER_NAMESPACES`]. Each namespace takes
/// several metric samples.
const NAMESPACES_MAX: usize = 50;
/// Label value that stands for all namespaces without a separate count. No namespace can have this name.
const OTHER_NAMESPACES: &str = "(others)";

/// A count in progress.
#[derive(Debug)]
struct Pass {
    /// Lower bound of the keys of the Leases that are not counted yet.
    start: String,
    leases: ByNamespace<HolderCounts>,
    /// Time of the next step, in ms.
    due_ms: u64,
}

impl HolderScan {
    /// Returns the last complete count, if there is one.
    pub(super) fn known(&self) -> Option<&Known> {
        self.known.as_ref()
    }

    /// Begins a count and runs its first step, unless a count is in progress. Each scrape calls this function.
    pub(super) fn on_asked(&mut self, table: &Table, now: Now) {
        if self.pass.is_none() {
            self.pass = Some(Pass { start: String::new(), leases: ByNamespace::default(), due_ms: now.ms });
            self.step(table, now);
        }
    }

    /// Runs the next step of the count, if the step is due.
    pub(super) fn step(&mut self, table: &Table, now: Now) {
        let Some(pass) = self.pass.as_mut().filter(|pass| pass.due_ms <= now.ms) else { return };
        let left = Snapshot::now(table, Range::All).from_key(&pass.start, None);
        let more = left.is_some_and(|mut left| {
            let stepped = left.next(table, KEYS_PER_STEP, |object| {
                let (spec, counts) = (&object.unrenewed().spec, pass.leases.of(&object.metadata().namespace));
                *match spec.holder_identity.as_deref() {
                    None | Some("") => &mut counts.unheld,
                    Some(_) if is_expired(object.renew_time(), spec, now.wall) => &mut counts.expired,
                    Some(_) => &mut counts.held,
                } += 1;
                true
            });
            left.start().clone_into(&mut pass.start);
            // A snapshot of the current `resourceVersion` needs no event log. So the snapshot cannot be too old, and
            // `stepped` is never an error.
            stepped == Ok(Stepped::More)
        });
        pass.due_ms = now.ms + STEP_INTERVAL_MS;
        if !more {
            self.known = self.pass.take().map(|pass| Known { leases: pass.leases, at: now.wall });
        }
    }

    /// Returns the time of the next step, in ms.
    pub(super) fn due_ms(&self) -> Option<u64> {
        self.pass.as_ref().map(|pass| pass.due_ms)
    }
}

/// Whether the holder of a Lease has not renewed it in time. A Lease without renewTime or duration does not expire.
fn is_expired(renewed: Option<MicroTime>, spec: &LeaseSpec, now: Time) -> bool {
    let (Some(renewed), Some(seconds)) = (renewed, spec.lease_duration_seconds) else { return false };
    renewed.0.saturating_add(i64::from(seconds).saturating_mul(1_000_000)) < now.0.saturating_mul(1_000_000)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lease::Lease;
    use crate::resource::ResourceVersion;

    fn spec(renewed: Option<i64>, seconds: Option<i32>) -> LeaseSpec {
        let renew_time = renewed.map(|seconds| MicroTime(seconds * 1_000_000));
        let holder_identity = Some("h".into());
        LeaseSpec { holder_identity, renew_time, lease_duration_seconds: seconds, ..LeaseSpec::default() }
    }

    #[test]
    fn a_lease_expires_when_its_duration_is_over() {
        let is_expired = |spec: &LeaseSpec, now| is_expired(spec.renew_time, spec, now);
        assert!(is_expired(&spec(Some(100), Some(40)), Time(141)));
        assert!(!is_expired(&spec(Some(100), Some(40)), Time(140)));
        assert!(!is_expired(&spec(None, Some(40)), Time(1000)));
        assert!(!is_expired(&spec(Some(100), None), Time(1000)));
        assert!(!is_expired(&spec(Some(i64::MAX / 1_000_000), Some(i32::MAX)), Time(i64::MAX)));
    }

    fn table(leases: usize) -> Table {
        let mut table = Table::new(ResourceVersion(0), 10, usize::MAX);
        for at in 0..leases {
            let mut lease =
                Lease { spec: spec(Some(100), Some(if at % 3 == 0 { 10 } else { 1000 })), ..Lease::default() };
            // An empty holder, as client-go writes it when it releases a lock.
            lease.spec.holder_identity = if at % 5 == 1 { Some("".into()) } else { lease.spec.holder_identity };
            lease.metadata.namespace = "n".into();
            lease.metadata.name = format!("l{at}").into();
            table.create(lease);
        }
        table
    }

    #[test]
    fn a_small_table_is_counted_at_once() {
        let mut scan = HolderScan::default();
        let now = Now { ms: 5, wall: Time(200) };
        scan.on_asked(&table(30), now);
        let known = scan.known().expect("it is complete");
        let counts = HolderCounts { held: 16, expired: 8, unheld: 6 };
        assert_eq!((known.leases.iter().collect::<Vec<_>>(), known.at), (vec![("n", &counts)], Time(200)));
        assert_eq!(scan.due_ms(), None);
    }

    #[test]
    fn namespaces_above_the_limit_share_a_count() {
        let mut counts = ByNamespace::<u64>::default();
        let further = (0..NAMESPACES_MAX + 10).map(|at| format!("n{at:03}"));
        // One of the cluster's namespaces is counted before the other namespaces, and one after them. Both have a
        // separate count in spite of the limit.
        let [first, last] = CLUSTER_NAMESPACES.map(str::to_owned);
        for namespace in [first].into_iter().chain(further).chain([last]) {
            *counts.of(&namespace) += 1;
            *counts.of("n007") += 1;
        }
        assert_eq!(counts.iter().count(), NAMESPACES_MAX + 1 + CLUSTER_NAMESPACES.len());
        let of = |namespace: &str| counts.iter().find(|(name, _)| *name == namespace).map(|(_, count)| *count);
        assert_eq!((of(OTHER_NAMESPACES), of("kube-system"), of("n007")), (Some(10), Some(1), Some(63)));
    }

    #[test]
    fn a_large_table_is_counted_in_steps() {
        let mut table = table(3 * KEYS_PER_STEP);
        let mut scan = HolderScan::default();
        let mut now = Now { ms: 5, wall: Time(200) };
        scan.on_asked(&table, now);
        assert_eq!((scan.known(), scan.due_ms()), (None, Some(5 + STEP_INTERVAL_MS)));
        scan.step(&table, now);
        scan.on_asked(&table, now);
        assert_eq!(scan.due_ms(), Some(5 + STEP_INTERVAL_MS), "it is neither early nor begun anew");
        let mut steps = 1;
        while let Some(due_ms) = scan.due_ms() {
            // Changes during the count, and events that the log drops, do not stop the count.
            let (slot, object) = table.find("n", "l0").expect("it is there");
            let lease = object.lease().into_owned();
            for _ in 0..20 {
                table.replace(slot, lease.clone());
            }
            now = Now { ms: due_ms, wall: Time(200) };
            scan.step(&table, now);
            steps += 1;
        }
        assert!((3..=4).contains(&steps), "{steps}");
        let known = scan.known().expect("it is complete");
        let leases: u64 = known.leases.iter().map(|(_, counts)| counts.held + counts.expired + counts.unheld).sum();
        assert_eq!(leases, 3 * KEYS_PER_STEP as u64);
    }
}
