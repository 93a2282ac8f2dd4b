//! How many Leases each namespace has, and what those take of the memory that count towards the quota.
//!
//! Whoever may create Leases in one namespace, or make them longer, could otherwise fill the memory that everybody's
//! are in, and the system would end the process. Leases of [`CLUSTER_NAMESPACES`] do not count: a cluster must be able
//! to renew, and new nodes to join, however much the others have.

use crate::lease::Lease;
use crate::limits::METERED_BYTES_MIN;
use crate::resource::CLUSTER_NAMESPACES;
use crate::table::object::Object;
use foldhash::fast::RandomState;
use hashbrown::HashMap;
use slab::Slab;

/// Of all Leases of a table.
#[derive(Debug)]
pub(super) struct Usage {
    /// Leases in each namespace; no namespace stands here with none.
    counts: HashMap<String, usize, RandomState>,
    /// How many are large.
    large: usize,
    /// What those that count may take, in bytes.
    metered_bytes: usize,
    metered_bytes_max: usize,
}

/// A write would take more than the quota leaves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QuotaExceeded {
    /// By how many bytes more than now.
    pub requested: usize,
    /// Bytes of all that count now.
    pub used: usize,
    /// Bytes that they may have.
    pub limited: usize,
}

impl Usage {
    /// Of an empty table, whose Leases may take `metered_bytes_max` as far as they count.
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

    /// Leases in `namespace`.
    pub(super) fn count_in(&self, namespace: &str) -> usize {
        self.counts.get(namespace).copied().unwrap_or(0)
    }

    /// Leases in all namespaces that are [large](Object::is_large).
    pub(super) fn large(&self) -> usize {
        self.large
    }

    /// Bytes of those that count, and how many they may be.
    pub(super) fn metered(&self) -> (usize, usize) {
        (self.metered_bytes, self.metered_bytes_max)
    }

    /// Whether `after` may take the place of `before`. What needs no more than that may always: nobody who holds a
    /// Lease is to lose it because others have many.
    pub(super) fn admit(&self, before: Option<&Object>, after: &Lease, reserved: usize) -> Result<(), QuotaExceeded> {
        let requested = Self::growth(before, after);
        let (used, limited) = self.metered();
        let used = used.saturating_add(reserved);
        if requested > limited.saturating_sub(used) {
            return Err(QuotaExceeded { requested, used, limited });
        }
        Ok(())
    }

    /// Bytes that `after` counts for beyond those of `before`.
    pub(super) fn growth(before: Option<&Object>, after: &Lease) -> usize {
        metered_bytes(after).saturating_sub(before.map_or(0, |object| metered_bytes(object.unrenewed())))
    }

    /// Checks that it speaks of `objects`, which are all there are. Allocates nothing, so that tests may count that.
    pub(super) fn check_against(&self, objects: &Slab<Object>) {
        let all = || objects.iter().map(|(_, object)| object);
        assert_eq!(all().count(), self.counts.values().sum::<usize>(), "slab and counts");
        assert!(!self.counts.values().any(|n| *n == 0), "a namespace without Leases is counted");
        assert_eq!(all().filter(|object| object.is_large()).count(), self.large, "large ones");
        assert_eq!(all().map(|object| metered_bytes(object.unrenewed())).sum::<usize>(), self.metered_bytes, "quota");
    }
}

/// Bytes for which a Lease counts: what it may come to take. A short one counts for as much as a somewhat longer one,
/// whatever labels and the like it has beside, so that another holder with a longer name needs no more.
fn metered_bytes(lease: &Lease) -> usize {
    if CLUSTER_NAMESPACES.contains(&lease.metadata.namespace.as_str()) {
        return 0;
    }
    let (text_bytes, entries) = (lease.text_bytes(), lease.entries_text_bytes());
    let without_entries = Object::memory_bytes_max(text_bytes - entries);
    Object::memory_bytes_max(text_bytes) + METERED_BYTES_MIN.saturating_sub(without_entries)
}
