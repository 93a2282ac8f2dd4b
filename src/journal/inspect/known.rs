//! [`Known`]: the keys and versions of the Leases, without the rest of the Leases. They show which Lease a change
//! affects, and whether the change was applied.

use crate::journal::entry::{Origin, StoredChange};
use crate::journal::record::Record;
use crate::resource::ResourceVersion;
use std::collections::HashMap;

/// Namespace and name of a Lease.
pub(super) type Key = (Box<str>, Box<str>);

/// The known Leases. `leases` has the key and the current version of each Lease, by the version of its creation. `keys`
/// has the version of the creation, by the key.
#[derive(Debug, Default)]
pub(super) struct Known {
    leases: HashMap<ResourceVersion, (Key, ResourceVersion)>,
    keys: HashMap<Key, ResourceVersion>,
}

impl Known {
    /// Returns the number of Leases.
    pub(super) fn len(&self) -> usize {
        self.leases.len()
    }

    /// Inserts a Lease of a snapshot.
    pub(super) fn restore(&mut self, record: &Record) {
        let meta = &record.lease.metadata;
        self.insert((meta.namespace.as_str().into(), meta.name.as_str().into()), record.number, record.version);
    }

    fn insert(&mut self, key: Key, number: ResourceVersion, version: ResourceVersion) {
        self.keys.insert(key.clone(), number);
        self.leases.insert(number, (key, version));
    }

    /// Returns the Lease that a change affects.
    pub(super) fn key_of(&self, change: &StoredChange) -> Option<Key> {
        match change {
            StoredChange::Create(lease) | StoredChange::Replace(_, lease) => {
                Some((lease.metadata.namespace.as_str().into(), lease.metadata.name.as_str().into()))
            }
            StoredChange::Renew(origin, _) | StoredChange::Delete(origin) => {
                self.leases.get(&origin.number).map(|(key, _)| key.clone())
            }
        }
    }

    /// Applies a change, and returns whether the change counts as applied. An applied change leads to version `next`.
    /// If `is_exact` is false, damage may have hidden earlier changes, so every change counts as applied.
    pub(super) fn apply(&mut self, change: &StoredChange, next: ResourceVersion, is_exact: bool) -> bool {
        let (origin, key) = (change.origin(), self.key_of(change));
        let is_as_before = match origin {
            None => key.as_ref().is_none_or(|key| !self.keys.contains_key(key)),
            Some(Origin { number, from }) => self.leases.get(&number).is_some_and(|(_, version)| *version == from),
        };
        if is_exact && !is_as_before {
            return false;
        }
        match (change, origin, key) {
            (StoredChange::Delete(_), Some(origin), key) => {
                self.leases.remove(&origin.number);
                key.and_then(|key| self.keys.remove(&key));
            }
            (_, Some(origin), Some(key)) => self.insert(key, origin.number, next),
            (_, None, Some(key)) => {
                if let Some(number) = self.keys.get(&key) {
                    self.leases.remove(number);
                }
                self.insert(key, next, next);
            }
            (_, _, None) => {}
        }
        true
    }
}
