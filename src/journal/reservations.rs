//! Bytes of the quota `--lease-quota-bytes` that are reserved for changes in flight. The table counts the bytes of a
//! change only once it has applied the change. Without the reservations, changes that are in flight together could
//! exceed the quota.

use crate::table::Reserved;
use crate::table::change::Change;
use foldhash::fast::RandomState;
use hashbrown::HashMap;

/// Reserved bytes: in total, and in each namespace that has reserved bytes.
#[derive(Debug, Default)]
pub(super) struct Reservations {
    bytes: usize,
    by_namespace: HashMap<String, usize, RandomState>,
}

impl Reservations {
    /// Whether nothing is reserved.
    pub(super) fn is_empty(&self) -> bool {
        self.bytes == 0 && self.by_namespace.is_empty()
    }

    /// Returns the reserved bytes in all namespaces, and in `namespace`.
    pub(super) fn of(&self, namespace: &str) -> Reserved {
        Reserved { bytes: self.bytes, in_namespace: self.by_namespace.get(namespace).copied().unwrap_or(0) }
    }

    /// Reserves `bytes` for a change. Most changes are renewals, for which `bytes` is 0.
    #[inline]
    pub(super) fn add(&mut self, change: &Change, bytes: usize) {
        if bytes > 0
            && let Some(namespace) = namespace_of(change)
        {
            self.bytes += bytes;
            *self.by_namespace.entry_ref(namespace).or_insert(0) += bytes;
        }
    }

    /// Releases the bytes that were reserved for a change.
    #[inline]
    pub(super) fn release(&mut self, change: &Change, bytes: usize) {
        if bytes > 0
            && let Some(namespace) = namespace_of(change)
            && let Some(reserved) = self.by_namespace.get_mut(namespace)
        {
            self.bytes -= bytes;
            *reserved -= bytes;
            if *reserved == 0 {
                self.by_namespace.remove(namespace);
            }
        }
    }
}

/// Returns the namespace of a change that may need bytes of the quota.
fn namespace_of(change: &Change) -> Option<&str> {
    match change {
        Change::Create(lease) | Change::Replace(_, lease) => Some(&lease.metadata.namespace),
        Change::Renew(..) | Change::Delete(_) => None,
    }
}
