//! The Lease object and the rules of the Lease API, as types and pure functions.
//!
//! [`Lease`] is the decoded object. A stored Lease does not contain its `resourceVersion`, which the in-memory table of
//! Leases stores separately. kube-apiserver does the same: the bytes that it stores in etcd do not contain the
//! `resourceVersion`.
//!
//! The crate `k8s-openapi` has types with the same names. This project uses those types where it is a client: in the
//! load generator, in the modules `cluster` and `switch`, and in tests. The server uses the types of this module, for
//! three reasons. Their encoding must equal Go's byte for byte. Errors must have Go's words. And a million Leases must
//! fit in memory.

pub mod managed_fields;
pub mod strategy;
pub mod validation;

use crate::timestamp::{MicroTime, Time};
use compact_str::CompactString;
use managed_fields::ManagedFields;

/// A decoded Lease (`coordination.k8s.io/v1`). In the metadata, an empty string means that the field is absent, as with
/// Go's `omitempty`. In the spec, an empty string is a value, since the fields of the spec are pointers in Go.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Lease {
    /// Standard object metadata.
    pub metadata: ObjectMeta,
    /// State of the lock or heartbeat, which its holder sets.
    pub spec: LeaseSpec,
}

impl Lease {
    /// Returns the approximate memory beyond the struct itself, in bytes: the texts, and the elements of lists and
    /// maps.
    #[must_use]
    pub fn text_bytes(&self) -> usize {
        let (meta, spec) = (&self.metadata, &self.spec);
        let spec: usize = [&spec.holder_identity, &spec.strategy, &spec.preferred_holder]
            .into_iter()
            .flatten()
            .map(CompactString::len)
            .sum();
        let names = [&meta.name, &meta.generate_name, &meta.namespace, &meta.self_link, &meta.uid];
        let names: usize = names.into_iter().map(CompactString::len).sum();
        self.entries_text_bytes() + spec + names + meta.managed_fields.memory_bytes()
    }

    /// Returns the part of [`Lease::text_bytes`] that belongs to labels, annotations, owner references and finalizers.
    #[must_use]
    pub fn entries_text_bytes(&self) -> usize {
        const PAIR_BYTES: usize = 2 * size_of::<CompactString>();
        let meta = &self.metadata;
        let maps = [&meta.labels, &meta.annotations];
        let pairs: usize = maps.iter().flat_map(|map| map.iter()).map(|(k, v)| k.len() + v.len() + PAIR_BYTES).sum();
        let owners: usize = meta
            .owner_references
            .iter()
            .map(|owner| owner.api_version.len() + owner.kind.len() + owner.name.len() + owner.uid.len())
            .map(|text| text + size_of::<OwnerReference>())
            .sum();
        let finalizers: usize = meta.finalizers.iter().map(|name| name.len() + size_of::<CompactString>()).sum();
        pairs + owners + finalizers
    }

    /// Frees spare capacity, which would take much memory: there are many Leases, and they exist for long.
    pub fn shrink_to_fit(&mut self) {
        let meta = &mut self.metadata;
        meta.owner_references.shrink_to_fit();
        meta.finalizers.shrink_to_fit();
        for map in [&mut meta.labels, &mut meta.annotations] {
            map.0.iter_mut().for_each(|pairs| pairs.shrink_to_fit());
        }
    }
}

#[cfg(test)]
impl Lease {
    /// Creates a Lease with a namespace and a name, for tests.
    pub(crate) fn named(namespace: &str, name: &str) -> Self {
        let metadata = ObjectMeta { namespace: namespace.into(), name: name.into(), ..ObjectMeta::default() };
        Self { metadata, ..Self::default() }
    }
}

/// The fields of `metav1.ObjectMeta` that the server stores, in the order of the encoding.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ObjectMeta {
    /// Name of the object, unique in its namespace.
    pub name: CompactString,
    /// Prefix from which the server generated the name.
    pub generate_name: CompactString,
    /// Namespace of the object.
    pub namespace: CompactString,
    /// `selfLink` as the client sent it. It is always empty in a stored object.
    pub self_link: CompactString,
    /// UID of the object, which no other object ever has. The server sets the UID.
    pub uid: CompactString,
    /// In a request, the client's `resourceVersion`, not parsed yet. In a stored object that was copied from built-in
    /// storage (kube-apiserver's own storage of Leases), its `resourceVersion` there. In any other stored object,
    /// empty: the table of Leases stores, apart from the object, the `resourceVersion` that clients see.
    pub resource_version: CompactString,
    /// Generation that the creator of the object sent; 0 if absent. Updates do not increment the generation. A deletion
    /// that finalizers delay increments the generation if it is above 0.
    pub generation: i64,
    /// Time of creation, set by the server.
    pub creation_timestamp: Option<Time>,
    /// Time at which the deletion was requested. The field is set while the object still has finalizers.
    pub deletion_timestamp: Option<Time>,
    /// Grace period of the deletion in seconds; set together with `deletion_timestamp`.
    pub deletion_grace_period_seconds: Option<i64>,
    /// Labels, sorted by key.
    pub labels: StringMap,
    /// Annotations, sorted by key.
    pub annotations: StringMap,
    /// Owners of the object. The garbage collector deletes the object once all its owners are deleted.
    pub owner_references: Vec<OwnerReference>,
    /// Finalizers. The object is deleted once all of them are removed.
    pub finalizers: Vec<CompactString>,
    /// The field managers and the fields that each owns. In a request, this is the list that the client sent.
    pub managed_fields: ManagedFields,
}

/// `coordination.k8s.io/v1 LeaseSpec`. Every field is a pointer in Go.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LeaseSpec {
    /// Identity of the holder.
    pub holder_identity: Option<CompactString>,
    /// Time after the last renewal until another client may acquire the lease, in seconds.
    pub lease_duration_seconds: Option<i32>,
    /// Time at which the current holder acquired the lease.
    pub acquire_time: Option<MicroTime>,
    /// Time of the current holder's last renewal.
    pub renew_time: Option<MicroTime>,
    /// Number of changes of the holder.
    pub lease_transitions: Option<i32>,
    /// Strategy for choosing the holder, in coordinated leader election.
    pub strategy: Option<CompactString>,
    /// Candidate to whom the holder should hand over, in coordinated leader election.
    pub preferred_holder: Option<CompactString>,
}

impl LeaseSpec {
    /// Names of the fields in the API, sorted.
    pub(crate) const FIELDS: [&str; 7] = [
        "acquireTime",
        "holderIdentity",
        "leaseDurationSeconds",
        "leaseTransitions",
        "preferredHolder",
        "renewTime",
        "strategy",
    ];
}

/// `metav1.OwnerReference`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct OwnerReference {
    /// API version of the owner.
    pub api_version: CompactString,
    /// Kind of the owner.
    pub kind: CompactString,
    /// Name of the owner.
    pub name: CompactString,
    /// UID of the owner.
    pub uid: CompactString,
    /// Whether this owner is the managing controller.
    pub controller: Option<bool>,
    /// Whether foreground deletion of the owner waits for this object.
    pub block_owner_deletion: Option<bool>,
}

impl OwnerReference {
    /// Names of the fields in the API, sorted.
    pub(crate) const FIELDS: [&str; 6] = ["apiVersion", "blockOwnerDeletion", "controller", "kind", "name", "uid"];
}

/// A `map[string]string`. The map is sorted by key, as Go's encoder writes maps, and contains no repeated keys.
///
/// Most Leases have empty maps, so an empty map takes only the memory of a pointer.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StringMap(
    #[expect(clippy::box_collection, reason = "nearly all are empty, and then a vector takes three times the room")]
    Option<Box<Vec<Pair>>>,
);

/// A key and its value.
type Pair = (CompactString, CompactString);

impl StringMap {
    /// Returns the value of `key`.
    #[must_use]
    pub fn value(&self, key: &str) -> Option<&str> {
        let at = self.pairs().binary_search_by(|(k, _)| k.as_str().cmp(key)).ok()?;
        Some(self.pairs().get(at)?.1.as_str())
    }

    /// Sets the value of `key`. Replaces an earlier value.
    pub fn insert(&mut self, key: CompactString, value: CompactString) {
        let pairs = self.0.get_or_insert_default();
        // Most callers insert the keys in ascending order, so the key is usually appended.
        if pairs.last().is_none_or(|(last, _)| *last < key) {
            return pairs.push((key, value));
        }
        match pairs.binary_search_by(|(k, _)| k.cmp(&key)) {
            Ok(at) => pairs[at].1 = value,
            Err(at) => pairs.insert(at, (key, value)),
        }
    }

    /// Iterates over all pairs, in the order of their keys.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = (&str, &str)> {
        self.pairs().iter().map(|(k, v)| (k.as_str(), v.as_str()))
    }

    /// Whether the map is empty.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_none()
    }

    /// Returns the number of pairs.
    #[must_use]
    pub fn len(&self) -> usize {
        self.pairs().len()
    }

    fn pairs(&self) -> &[Pair] {
        self.0.as_deref().map_or(&[], Vec::as_slice)
    }
}

impl FromIterator<(CompactString, CompactString)> for StringMap {
    /// Creates a map. As in Go's decoder, the last value of a repeated key counts.
    fn from_iter<I: IntoIterator<Item = (CompactString, CompactString)>>(pairs: I) -> Self {
        let mut map = Self::default();
        for (key, value) in pairs {
            map.insert(key, value);
        }
        map
    }
}
