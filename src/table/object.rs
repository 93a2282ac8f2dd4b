//! One state of one Lease, and its encodings, shared by the table, the event log, responses and watchers.

use crate::codec::json::{encode_lease_into, push_json_as};
use crate::codec::protobuf;
use crate::lease::{API_VERSION, ApiVersion, Lease, OwnerReference, ResourceVersion, Time};
use bytes::Bytes;
use compact_str::CompactString;
use std::borrow::Borrow;
use std::cell::OnceCell;
use std::fmt;
use std::rc::Rc;

/// `namespace/name`, the order of lists over all namespaces. etcd's keys end in the same, so that `a-b/x` comes before
/// `a/x` here as there. Neither part can hold a slash.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Key(Rc<str>);

impl Key {
    /// The key of a Lease.
    #[must_use]
    pub fn new(namespace: &str, name: &str) -> Self {
        Self(format!("{namespace}/{name}").into())
    }

    /// Both parts.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Namespace and name.
    #[must_use]
    pub fn parts(&self) -> (&str, &str) {
        self.0.split_once('/').unwrap_or(("", &self.0))
    }

    /// Whether this is the key of `namespace` and `name`, without building one.
    #[must_use]
    pub fn is(&self, namespace: &str, name: &str) -> bool {
        self.0.strip_prefix(namespace).and_then(|rest| rest.strip_prefix('/')) == Some(name)
    }
}

impl Borrow<str> for Key {
    fn borrow(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// A Lease as it stood at one version. Never changes.
#[derive(Debug)]
pub struct Object {
    /// Where it stands.
    pub key: Key,
    /// The change that made it so; in the log of a deletion, the deletion.
    pub version: ResourceVersion,
    /// The object, without a version of its own.
    pub lease: Lease,
    /// JSON with a line feed behind it, made when first asked for.
    json: OnceCell<Bytes>,
    /// Protobuf with its envelope, made when first asked for.
    protobuf: OnceCell<Bytes>,
}

/// Bytes of the encodings that no string accounts for: names of members, times, numbers.
const ENCODED_BYTES: usize = 512;
/// Bytes of a pair of a map besides its text.
const PAIR_BYTES: usize = 2 * size_of::<CompactString>();

/// Bytes of [`Object::json`] before the members that a list item has too: `{"kind":…,"apiVersion":…,`.
const TYPE_META_BYTES: usize = r#"{"kind":"Lease","apiVersion":"coordination.k8s.io/v1","#.len();

impl Object {
    /// A state of the table.
    #[must_use]
    pub fn new(key: Key, version: ResourceVersion, lease: Lease) -> Self {
        Self { key, version, lease, json: OnceCell::new(), protobuf: OnceCell::new() }
    }

    /// The body of a response: the JSON object and a line feed, as kube-apiserver ends it.
    #[must_use]
    pub fn json_body(&self) -> &Bytes {
        self.json.get_or_init(|| {
            let mut out = Vec::new();
            encode_lease_into(&mut out, &self.lease, Some(self.version), true);
            out.push(b'\n');
            out.into()
        })
    }

    /// The body of a response in protobuf.
    #[must_use]
    pub fn protobuf_body(&self) -> &Bytes {
        self.protobuf.get_or_init(|| {
            let mut out = Vec::new();
            protobuf::encode_lease_into(&mut out, &self.lease, Some(self.version), API_VERSION);
            out.into()
        })
    }

    /// The JSON object alone, for a watch event.
    #[must_use]
    pub fn json(&self) -> &[u8] {
        let body = self.json_body();
        &body[..body.len() - 1]
    }

    /// Appends the JSON object alone, as `version` has it: the same but for the end of `apiVersion`.
    pub fn push_json(&self, out: &mut Vec<u8>, version: ApiVersion) {
        push_json_as(out, self.json(), version);
    }

    /// Appends the JSON object without `kind` and `apiVersion`, as a list has its items.
    pub fn push_json_item(&self, out: &mut Vec<u8>) {
        out.push(b'{');
        out.extend_from_slice(&self.json()[TYPE_META_BYTES..]);
    }

    /// Whether finalizers hold an object whose deletion was asked for.
    #[must_use]
    pub fn is_being_deleted(&self) -> bool {
        self.lease.metadata.deletion_timestamp.is_some()
    }

    /// An estimate of the memory it takes, in bytes: what the event log counts. Every string stands once in the object
    /// and once in each of its two encodings, whether or not they are made: the bound is to be on the safe side.
    #[must_use]
    pub fn memory_bytes(&self) -> usize {
        let (meta, spec) = (&self.lease.metadata, &self.lease.spec);
        let maps = [&meta.labels, &meta.annotations];
        let pairs: usize = maps.iter().flat_map(|map| map.iter()).map(|(k, v)| k.len() + v.len() + PAIR_BYTES).sum();
        let owners: usize = meta
            .owner_references
            .iter()
            .map(|owner| owner.api_version.len() + owner.kind.len() + owner.name.len() + owner.uid.len())
            .map(|text| text + size_of::<OwnerReference>())
            .sum();
        let finalizers: usize = meta.finalizers.iter().map(|name| name.len() + size_of::<CompactString>()).sum();
        let spec: usize = [&spec.holder_identity, &spec.strategy, &spec.preferred_holder]
            .into_iter()
            .flatten()
            .map(CompactString::len)
            .sum();
        let names = meta.name.len() + meta.namespace.len() + meta.generate_name.len() + meta.uid.len();
        let text = pairs + owners + finalizers + spec + names + meta.managed_fields.memory_bytes();
        size_of::<Self>() + ENCODED_BYTES + 3 * text
    }

    /// When it was created; the epoch if that is unknown.
    #[must_use]
    pub fn creation_time(&self) -> Time {
        self.lease.metadata.creation_timestamp.unwrap_or(Time(0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_sort_as_etcd_sorts_them() {
        let mut keys = [Key::new("a", "x"), Key::new("a-b", "x"), Key::new("a.b", "x"), Key::new("a", "w")];
        keys.sort();
        let sorted: Vec<_> = keys.iter().map(Key::as_str).collect();
        assert_eq!(sorted, ["a-b/x", "a.b/x", "a/w", "a/x"]);
        assert!(keys[3].is("a", "x"));
        assert!(!keys[3].is("a", ""));
        assert!(!Key::new("ab", "x").is("a", "b/x"));
        assert_eq!(keys[0].parts(), ("a-b", "x"));
    }

    #[test]
    fn a_list_item_is_the_object_without_its_type() {
        let object = Object::new(Key::new("n", "a"), ResourceVersion(7), Lease::default());
        let mut item = Vec::new();
        object.push_json_item(&mut item);
        let whole: serde_json::Value = serde_json::from_slice(object.json()).expect("JSON");
        let mut item: serde_json::Value = serde_json::from_slice(&item).expect("JSON");
        item["kind"] = "Lease".into();
        item["apiVersion"] = "coordination.k8s.io/v1".into();
        assert_eq!(item, whole);
    }
}
