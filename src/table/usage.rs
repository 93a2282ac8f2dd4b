//! The number of Leases in each namespace, and the memory that counts towards the quota.
//!
//! Without a quota, a client with write access to one namespace could fill the memory that all Leases share. The OOM
//! killer would then end the process. In [`CLUSTER_NAMESPACES`], such as `kube-node-lease`, a Lease of ordinary size
//! does not count. So nodes can join and renew, however much memory the other namespaces hold.
//!
//! One namespace may hold at most half of the quota that the other namespaces leave free. So when a namespace reaches
//! its limit, the same amount of quota is still free for other namespaces. Even if a few namespaces have reached their
//! limits, a namespace with few Leases has space for more.

use crate::lease::Lease;
use crate::limits::METERED_BYTES_MIN;
use crate::resource::CLUSTER_NAMESPACES;
use crate::table::object::Object;
use foldhash::fast::RandomState;
use hashbrown::HashMap;
use slab::Slab;

/// Number and memory of all Leases in a table.
#[derive(Debug)]
pub(super) struct Usage {
    /// Number and memory of the Leases in each namespace that has Leases.
    namespaces: HashMap<String, NamespaceUsage, RandomState>,
    /// Number of large Leases.
    large: usize,
    /// Bytes of all Leases that count towards the quota, and the quota in bytes.
    metered_bytes: usize,
    metered_bytes_max: usize,
}

/// Number and memory of the Leases in one namespace.
#[derive(Clone, Copy, Debug, Default)]
struct NamespaceUsage {
    leases: usize,
    metered_bytes: usize,
}

/// Bytes of the quota that are reserved for writes in flight.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Reserved {
    /// Reserved bytes in all namespaces together.
    pub bytes: usize,
    /// Reserved bytes in the namespace of the write that is checked.
    pub in_namespace: usize,
}

/// Usage of the quota by one namespace.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NamespaceQuota {
    /// The namespace.
    pub namespace: String,
    /// Bytes of the namespace's Leases that count towards the quota.
    pub used: usize,
    /// Maximum of `used`, as long as the usage of the other namespaces does not change.
    pub limited: usize,
}

/// The rejection of a write that needs more of the quota than is left.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QuotaExceeded {
    /// Additional bytes that the write needs.
    pub requested: usize,
    /// Bytes in the namespace that count towards the quota now, with the bytes that are reserved for changes in flight.
    pub used: usize,
    /// Maximum of the bytes in the namespace that count towards the quota.
    pub limited: usize,
}

impl Usage {
    /// Returns the usage of an empty table with a quota of `metered_bytes_max` bytes.
    pub(super) fn new(metered_bytes_max: usize) -> Self {
        Self { namespaces: HashMap::default(), large: 0, metered_bytes: 0, metered_bytes_max }
    }

    pub(super) fn on_create(&mut self, object: &Object) {
        self.namespaces.entry_ref(object.key().parts().0).or_default().leases += 1;
        self.add(object);
    }

    pub(super) fn on_replace(&mut self, before: &Object, after: &Object) {
        self.subtract(before);
        self.add(after);
    }

    pub(super) fn on_remove(&mut self, object: &Object) {
        self.subtract(object);
        let namespace = object.key().parts().0;
        if let Some(usage) = self.namespaces.get_mut(namespace) {
            usage.leases -= 1;
            if usage.leases == 0 {
                self.namespaces.remove(namespace);
            }
        }
    }

    fn add(&mut self, object: &Object) {
        let bytes = metered_bytes(object.unrenewed());
        self.large += usize::from(object.is_large());
        self.metered_bytes += bytes;
        if bytes > 0
            && let Some(usage) = self.namespaces.get_mut(object.key().parts().0)
        {
            usage.metered_bytes += bytes;
        }
    }

    fn subtract(&mut self, object: &Object) {
        let bytes = metered_bytes(object.unrenewed());
        self.large -= usize::from(object.is_large());
        self.metered_bytes -= bytes;
        if bytes > 0
            && let Some(usage) = self.namespaces.get_mut(object.key().parts().0)
        {
            usage.metered_bytes -= bytes;
        }
    }

    /// Returns the number of Leases in `namespace`.
    pub(super) fn count_in(&self, namespace: &str) -> usize {
        self.of(namespace).leases
    }

    fn of(&self, namespace: &str) -> NamespaceUsage {
        self.namespaces.get(namespace).copied().unwrap_or_default()
    }

    /// Returns the number of [large](Object::is_large) Leases in all namespaces.
    pub(super) fn large(&self) -> usize {
        self.large
    }

    /// Returns the bytes that count towards the quota, and the quota.
    pub(super) fn metered(&self) -> (usize, usize) {
        (self.metered_bytes, self.metered_bytes_max)
    }

    /// Returns the namespace with the most bytes that count towards the quota.
    pub(super) fn fullest_namespace(&self) -> NamespaceQuota {
        let largest = self.namespaces.iter().max_by_key(|(_, usage)| usage.metered_bytes);
        let (namespace, used) = largest.map_or(("", 0), |(name, usage)| (name.as_str(), usage.metered_bytes));
        NamespaceQuota { namespace: namespace.to_owned(), used, limited: self.limit_of(used, self.metered_bytes) }
    }

    /// Returns the limit of a namespace that holds `in_namespace` of all `used` bytes. The limit is half of the quota
    /// that the other namespaces leave free.
    fn limit_of(&self, in_namespace: usize, used: usize) -> usize {
        self.metered_bytes_max.saturating_sub(used.saturating_sub(in_namespace)) / 2
    }

    /// Checks that `after` may replace `before`. A Lease that does not grow always fits. So no holder loses its Lease
    /// because other clients have many Leases.
    pub(super) fn check_quota(
        &self,
        before: Option<&Object>,
        after: &Lease,
        reserved: Reserved,
    ) -> Result<(), QuotaExceeded> {
        let requested = Self::growth(before, after);
        let used = self.of(&after.metadata.namespace).metered_bytes.saturating_add(reserved.in_namespace);
        let limited = self.limit_of(used, self.metered_bytes.saturating_add(reserved.bytes));
        if requested > 0 && requested > limited.saturating_sub(used) {
            return Err(QuotaExceeded { requested, used, limited });
        }
        Ok(())
    }

    /// Returns the additional bytes that count towards the quota once `after` has replaced `before`; 0 if there are
    /// fewer bytes.
    pub(super) fn growth(before: Option<&Object>, after: &Lease) -> usize {
        metered_bytes(after).saturating_sub(before.map_or(0, |object| metered_bytes(object.unrenewed())))
    }

    /// Checks the counts against `objects`, which are all objects of the table. Allocates no memory, so that tests may
    /// count allocations.
    pub(super) fn check_against(&self, objects: &Slab<Object>) {
        let all = || objects.iter().map(|(_, object)| object);
        let of_all = |part: fn(&NamespaceUsage) -> usize| self.namespaces.values().map(part).sum::<usize>();
        assert_eq!(all().count(), of_all(|usage| usage.leases), "slab and counts");
        assert_eq!(self.metered_bytes, of_all(|usage| usage.metered_bytes), "quota and namespaces");
        assert!(!self.namespaces.values().any(|usage| usage.leases == 0), "a namespace without Leases is counted");
        assert_eq!(all().filter(|object| object.is_large()).count(), self.large, "large ones");
        assert_eq!(all().map(|object| metered_bytes(object.unrenewed())).sum::<usize>(), self.metered_bytes, "quota");
    }
}

/// Returns the bytes that a Lease counts towards the quota: the maximum memory that it may take. Entries (labels,
/// annotations, finalizers and owners) count in full. The rest of a Lease counts for at least [`METERED_BYTES_MIN`]. So
/// a change to a holder with a longer name rarely needs more quota. In [`CLUSTER_NAMESPACES`], the entries and the rest
/// each count only for the bytes above this minimum.
fn metered_bytes(lease: &Lease) -> usize {
    let text_bytes = lease.text_bytes();
    let without_entries = Object::memory_bytes_max(text_bytes - lease.entries_text_bytes());
    let entries = Object::memory_bytes_max(text_bytes) - without_entries;
    if CLUSTER_NAMESPACES.contains(&lease.metadata.namespace.as_str()) {
        entries.saturating_sub(METERED_BYTES_MIN) + without_entries.saturating_sub(METERED_BYTES_MIN)
    } else {
        entries + without_entries.max(METERED_BYTES_MIN)
    }
}
