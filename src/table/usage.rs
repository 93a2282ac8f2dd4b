//! Leases of each namespace, and the memory that counts towards the quota.
//!
//! Without a quota, a client that may write in one namespace could fill the memory that all Leases share. The system
//! would then kill the process. Leases of [`CLUSTER_NAMESPACES`] do not count: a cluster must be able to renew, and new
//! nodes to join, however much the others hold.

use crate::lease::Lease;
use crate::limits::METERED_BYTES_MIN;
use crate::resource::CLUSTER_NAMESPACES;
use crate::table::object::Object;
use foldhash::fast::RandomState;
use hashbrown::HashMap;
use slab::Slab;

/// Usage of all Leases of a table.
#[derive(Debug)]
pub(super) struct Usage {
    /// Leases in each namespace, without namespaces that have none.
    counts: HashMap<String, usize, RandomState>,
    /// Number of large Leases.
    large: usize,
    /// Bytes that count towards the quota, and the quota.
    metered_bytes: usize,
    metered_bytes_max: usize,
}

/// A write needs more than the quota leaves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QuotaExceeded {
    /// Additional bytes that the write needs.
    pub requested: usize,
    /// Bytes that count now, including promised ones.
    pub used: usize,
    /// The quota, in bytes.
    pub limited: usize,
}

impl Usage {
    /// Returns the usage of an empty table with a quota of `metered_bytes_max` bytes.
    pub(super) fn new(metered_bytes_max: usize) -> Self {
        Self { counts: HashMap::default(), large: 0, metered_bytes: 0, metered_bytes_max }
    }

    pub(super) fn on_create(&mut self, object: &Object) {
        *self.counts.entry_ref(object.key().parts().0).or_insert(0) += 1;
        self.add(object);
    }

    pub(super) fn on_replace(&mut self, before: &Object, after: &Object) {
        self.subtract(before);
        self.add(after);
    }

    pub(super) fn on_remove(&mut self, object: &Object) {
        let namespace = object.key().parts().0;
        if let Some(count) = self.counts.get_mut(namespace) {
            *count -= 1;
            if *count == 0 {
                self.counts.remove(namespace);
            }
        }
        self.subtract(object);
    }

    fn add(&mut self, object: &Object) {
        self.large += usize::from(object.is_large());
        self.metered_bytes += metered_bytes(object.unrenewed());
    }

    fn subtract(&mut self, object: &Object) {
        self.large -= usize::from(object.is_large());
        self.metered_bytes -= metered_bytes(object.unrenewed());
    }

    /// Number of Leases in `namespace`.
    pub(super) fn count_in(&self, namespace: &str) -> usize {
        self.counts.get(namespace).copied().unwrap_or(0)
    }

    /// Number of [large](Object::is_large) Leases in all namespaces.
    pub(super) fn large(&self) -> usize {
        self.large
    }

    /// Bytes that count towards the quota, and the quota.
    pub(super) fn metered(&self) -> (usize, usize) {
        (self.metered_bytes, self.metered_bytes_max)
    }

    /// Checks that `after` may replace `before`. A Lease that does not grow always fits: no holder may lose it
    /// because others have many.
    pub(super) fn check_quota(
        &self,
        before: Option<&Object>,
        after: &Lease,
        reserved: usize,
    ) -> Result<(), QuotaExceeded> {
        let requested = Self::growth(before, after);
        let (used, limited) = self.metered();
        let used = used.saturating_add(reserved);
        if requested > limited.saturating_sub(used) {
            return Err(QuotaExceeded { requested, used, limited });
        }
        Ok(())
    }

    /// Bytes by which `after` counts for more than `before`.
    pub(super) fn growth(before: Option<&Object>, after: &Lease) -> usize {
        metered_bytes(after).saturating_sub(before.map_or(0, |object| metered_bytes(object.unrenewed())))
    }

    /// Checks the counts against `objects`, all of the table. Allocates nothing, so that tests may count allocations.
    pub(super) fn check_against(&self, objects: &Slab<Object>) {
        let all = || objects.iter().map(|(_, object)| object);
        assert_eq!(all().count(), self.counts.values().sum::<usize>(), "slab and counts");
        assert!(!self.counts.values().any(|n| *n == 0), "a namespace without Leases is counted");
        assert_eq!(all().filter(|object| object.is_large()).count(), self.large, "large ones");
        assert_eq!(all().map(|object| metered_bytes(object.unrenewed())).sum::<usize>(), self.metered_bytes, "quota");
    }
}

/// Bytes for which a Lease counts: the most it may come to take. A short Lease counts for a minimum, beside its labels
/// and the like, so that a holder with a longer name needs no more.
fn metered_bytes(lease: &Lease) -> usize {
    if CLUSTER_NAMESPACES.contains(&lease.metadata.namespace.as_str()) {
        return 0;
    }
    let (text_bytes, entries) = (lease.text_bytes(), lease.entries_text_bytes());
    let without_entries = Object::memory_bytes_max(text_bytes - entries);
    Object::memory_bytes_max(text_bytes) + METERED_BYTES_MIN.saturating_sub(without_entries)
}
