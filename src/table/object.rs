//! One state of one Lease, and its encodings, shared by the table, the event log, responses and watchers.
//!
//! Nearly all states are renewals: of what the Lease was before only two times change. So a state is a [`Base`], which
//! all those share between which nothing else changes, and the two times.

use crate::codec::json::{encode_lease_into, push_json_as};
use crate::codec::protobuf;
use crate::codec::renewal::{Marked, Marks};
use crate::lease::{
    API_VERSION, ApiVersion, Lease, LeaseSpec, MicroTime, ObjectMeta, OwnerReference, ResourceVersion, Time,
};
use crate::media_type::Format;
use compact_str::CompactString;
use std::borrow::{Borrow, Cow};
use std::cell::{Cell, OnceCell};
use std::fmt;
use std::ops::Deref;
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
    /// The change that made it so; in the log of a deletion, the deletion.
    pub version: ResourceVersion,
    base: Rc<Base>,
    /// What it has in place of the times of its base.
    renewed: Option<RenewedTimes>,
    /// JSON with a line feed behind it, made when first asked for.
    json: OnceCell<Vec<u8>>,
    /// Protobuf with its envelope, made when first asked for.
    protobuf: OnceCell<Vec<u8>>,
}

/// What states have in common that are renewals of one.
#[derive(Debug)]
struct Base {
    key: Key,
    /// The first of the states, without a version of its own.
    lease: Lease,
    /// See [`Object::memory_bytes`].
    memory_bytes: usize,
    /// Of the encoding that was renewed last; none within if there is nothing to mark.
    marks: Cell<Option<(Format, Option<Marks>)>>,
}

/// What a renewal changes of a Lease.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RenewedTimes {
    /// `spec.renewTime`
    pub renew_time: MicroTime,
    /// The time of the last entry of `managedFields`; none if there is no entry.
    pub managed_time: Option<Time>,
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
    pub fn new(key: Key, version: ResourceVersion, mut lease: Lease) -> Self {
        lease.shrink_to_fit();
        let memory_bytes = memory_bytes(&lease);
        let base = Rc::new(Base { key, lease, memory_bytes, marks: Cell::default() });
        Self { version, base, renewed: None, json: OnceCell::new(), protobuf: OnceCell::new() }
    }

    /// The same Lease at another version: the last state of one that was deleted.
    pub(super) fn at_version(&self, version: ResourceVersion) -> Self {
        let base = Rc::clone(&self.base);
        Self { version, base, renewed: self.renewed, json: OnceCell::new(), protobuf: OnceCell::new() }
    }

    /// The state after a renewal, with its encoding in `format`.
    pub(super) fn renewed(
        &self,
        version: ResourceVersion,
        times: RenewedTimes,
        format: Format,
        encoding: Vec<u8>,
    ) -> Self {
        let mut renewed = Self { renewed: Some(times), ..self.at_version(version) };
        match format {
            Format::Protobuf => renewed.protobuf = encoding.into(),
            Format::Json | Format::Yaml => renewed.json = encoding.into(),
        }
        renewed
    }

    /// Where it stands.
    #[must_use]
    pub fn key(&self) -> &Key {
        &self.base.key
    }

    /// The object, without a version of its own. Copied if it was renewed; for what no renewal changes see
    /// [`Object::unrenewed`].
    #[must_use]
    pub fn lease(&self) -> Cow<'_, Lease> {
        let Some(times) = self.renewed else { return Cow::Borrowed(&self.base.lease) };
        let mut lease = self.base.lease.clone();
        lease.spec.renew_time = Some(times.renew_time);
        if let Some(time) = times.managed_time {
            lease.metadata.managed_fields.set_last_time(time);
        }
        Cow::Owned(lease)
    }

    /// The object but for `renewTime` and the times of `managedFields`, which may be older ones.
    #[must_use]
    pub fn unrenewed(&self) -> &Lease {
        &self.base.lease
    }

    /// Its metadata but for the times of `managedFields`, which may be older ones.
    #[must_use]
    pub fn metadata(&self) -> &ObjectMeta {
        &self.base.lease.metadata
    }

    /// `spec.renewTime`
    #[must_use]
    pub fn renew_time(&self) -> Option<MicroTime> {
        self.renewed.map_or(self.base.lease.spec.renew_time, |times| Some(times.renew_time))
    }

    /// The time of the last entry of `managedFields`, if there is one and it has one.
    #[must_use]
    pub fn managed_time(&self) -> Option<Time> {
        let of_base = || self.base.lease.metadata.managed_fields.entries().last()?.time;
        self.renewed.map_or_else(of_base, |times| times.managed_time)
    }

    /// The `renewTime` in `body`, of this `format`, if all else in it is as this state was last written in that format;
    /// it may be the same time. `is_renewable` is asked once for all states that are renewals of one.
    #[inline]
    pub fn renewed_by(
        &self,
        format: Format,
        body: &[u8],
        is_renewable: impl FnOnce(&Lease) -> bool,
    ) -> Option<MicroTime> {
        let stored = self.encoding(format)?;
        self.marks(format, stored, is_renewable)?.renewed(stored, body)
    }

    #[inline]
    fn marks(&self, format: Format, stored: &[u8], is_renewable: impl FnOnce(&Lease) -> bool) -> Option<Marks> {
        match self.base.marks.get() {
            Some((of, marks)) if of == format => marks,
            _ => {
                let marks = self.find_marks(format, stored).filter(|_| is_renewable(&self.base.lease));
                self.base.marks.set(Some((format, marks)));
                marks
            }
        }
    }

    #[cold]
    fn find_marks(&self, format: Format, stored: &[u8]) -> Option<Marks> {
        let marked =
            Marked { version: self.version, renew_time: self.renew_time()?, managed_time: self.managed_time() };
        Marks::of(format, stored, &marked)
    }

    /// Appends the encoding of the renewed Lease to `out`, which is empty. `false` if it cannot be made of `body`, which
    /// must be one of which [`Object::renewed_by`] has told the time.
    pub(super) fn encode_renewed(
        &self,
        out: &mut Vec<u8>,
        format: Format,
        body: &[u8],
        version: ResourceVersion,
        managed_time: Option<Time>,
    ) -> bool {
        let Some((of, Some(marks))) = self.base.marks.get() else { return false };
        of == format && marks.encode(out, body, version, managed_time)
    }

    /// The encoding in a format, if it has been made.
    #[inline]
    fn encoding(&self, format: Format) -> Option<&[u8]> {
        match format {
            Format::Json => self.json.get().map(Vec::as_slice),
            Format::Protobuf => self.protobuf.get().map(Vec::as_slice),
            Format::Yaml => None,
        }
    }

    /// The memory of its encodings, to be used for others.
    pub(super) fn take_buffers(&mut self) -> [Option<Vec<u8>>; 2] {
        [self.json.take(), self.protobuf.take()]
    }

    /// The body of a response: the JSON object and a line feed, as kube-apiserver ends it.
    #[must_use]
    pub fn json_body(&self) -> &[u8] {
        self.json.get_or_init(|| {
            let mut out = Vec::new();
            encode_lease_into(&mut out, &self.lease(), Some(self.version), true);
            out.push(b'\n');
            out
        })
    }

    /// The body of a response in protobuf.
    #[must_use]
    pub fn protobuf_body(&self) -> &[u8] {
        self.protobuf.get_or_init(|| {
            let mut out = Vec::new();
            protobuf::encode_lease_into(&mut out, &self.lease(), Some(self.version), API_VERSION);
            // It lives as long as this state.
            out.shrink_to_fit();
            out
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
        self.metadata().deletion_timestamp.is_some()
    }

    /// An estimate of the memory it takes, in bytes: what the event log counts. Every string stands once in the object
    /// and once in each of its two encodings, whether or not they are made or the object is shared: the bound is to be
    /// on the safe side.
    #[must_use]
    pub fn memory_bytes(&self) -> usize {
        self.base.memory_bytes
    }

    /// When it was created; the epoch if that is unknown.
    #[must_use]
    pub fn creation_time(&self) -> Time {
        self.metadata().creation_timestamp.unwrap_or(Time(0))
    }
}

fn memory_bytes(lease: &Lease) -> usize {
    let (meta, spec): (&ObjectMeta, &LeaseSpec) = (&lease.metadata, &lease.spec);
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
    size_of::<Object>() + size_of::<Base>() + ENCODED_BYTES + 3 * text
}

/// An encoding of an object, shared with all who have the object.
#[derive(Clone, Debug)]
pub struct Encoding {
    object: Rc<Object>,
    is_protobuf: bool,
}

impl Encoding {
    /// The JSON body of `object`.
    #[must_use]
    pub fn json(object: &Rc<Object>) -> Self {
        Self { object: Rc::clone(object), is_protobuf: false }
    }

    /// The protobuf body of `object`.
    #[must_use]
    pub fn protobuf(object: &Rc<Object>) -> Self {
        Self { object: Rc::clone(object), is_protobuf: true }
    }
}

impl Deref for Encoding {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        if self.is_protobuf { self.object.protobuf_body() } else { self.object.json_body() }
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
