//! [`Object`]: one state of one Lease, that is, the Lease at one version. The table, the event log, responses and
//! watchers share each `Object` and its encoding.
//!
//! Nearly all writes are renewals. A renewal changes only two times of the Lease. So a state consists of these two
//! times and a [`Base`]. States that differ only by renewals share one base. The base also holds a template: an
//! encoding of the Lease, with the positions of the values that a renewal changes. The body of a response is made from
//! the template when a client needs it. So a renewal writes a few words of memory instead of a body that perhaps no
//! client reads.

use crate::codec::Format;
use crate::codec::json::push_type_meta;
use crate::codec::template::{Template, encode_into};
use crate::codec::values::Values;
use crate::go::json::ESCAPED_BYTES_MAX;
use crate::lease::managed_fields::ManagedFieldsEntry;
use crate::lease::{Lease, ObjectMeta};
use crate::limits::LARGE_LEASE_BYTES_MIN;
use crate::resource::{ApiVersion, ResourceVersion};
use crate::selector::Selector;
use crate::timestamp::{MicroTime, Time};
use compact_str::CompactString;
use memchr::memchr;
use std::borrow::{Borrow, Cow};
use std::cell::OnceCell;
use std::fmt;
use std::rc::{Rc, Weak};

/// The key of a Lease, `namespace/name`. Lists are in the order of the keys. kube-apiserver's keys in etcd end in the
/// same text, so its lists have the same order: `a-b/x` precedes `a/x`. Neither the namespace nor the name can contain
/// a slash.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Key(Rc<str>);

impl Key {
    /// Returns the key of a Lease.
    #[must_use]
    pub fn new(namespace: &str, name: &str) -> Self {
        Self(format!("{namespace}/{name}").into())
    }

    /// Creates a key from any text, for use as the bound of a range of keys.
    #[must_use]
    pub(super) fn from_text(text: &str) -> Self {
        Self(text.into())
    }

    /// Returns the whole key, `namespace/name`.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Returns the namespace and the name.
    #[must_use]
    pub fn parts(&self) -> (&str, &str) {
        match memchr(b'/', self.0.as_bytes()) {
            Some(at) => (&self.0[..at], &self.0[at + 1..]),
            None => ("", &self.0),
        }
    }

    /// Whether this is the key of the Lease `name` in `namespace`. Allocates no memory.
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

/// A state of a Lease: the Lease at one version. The state is immutable. A clone is another handle to the same state.
#[derive(Clone, Debug)]
pub struct Object {
    /// Version of the change that made this state. The last state of a deleted Lease has the version of the deletion.
    pub version: ResourceVersion,
    base: Rc<Base>,
    /// Times of the last renewal, which replace the times in `base`; `None` without a renewal.
    renewed: Option<RenewedTimes>,
}

/// A weak reference to the base of a state: the part that the state shares with its renewals. It shows whether an
/// [`Object`] with this base is still in memory.
#[derive(Debug)]
pub(super) struct Trace(Weak<Base>);

impl Trace {
    pub(super) fn is_held(&self) -> bool {
        self.0.strong_count() > 0
    }
}

/// The common part of a Lease's states that differ only by renewals.
#[derive(Debug)]
struct Base {
    key: Key,
    /// Version of the Lease's creation.
    number: ResourceVersion,
    /// The Lease in the first of the states that share this base. Its `resourceVersion` field is not the version in
    /// this table, but the version in kube-apiserver's built-in storage, if the Lease was copied from there
    /// ([`Object::built_in_version`]).
    lease: Lease,
    /// Template of the encoding, in the format that was needed first. This is usually the format of the create or
    /// update that made the base, and renewals use the same format. A response in another format is encoded without a
    /// template. Otherwise, one list in that other format would make each Lease keep a second template in memory.
    template: OnceCell<Template>,
}

/// The values that a renewal changes in a Lease.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RenewedTimes {
    /// The value of `spec.renewTime`.
    pub renew_time: MicroTime,
    /// The time of the last entry of `managedFields`; `None` if there are no entries.
    pub managed_time: Option<Time>,
}

/// Maximum length of a Lease's JSON encoding without the Lease's strings, in bytes. JSON is the longest encoding.
const ENCODED_BYTES: usize = 1024;
/// Maximum difference in length between the encodings of two states that differ only by renewals, in bytes.
const TIMES_BYTES: usize = 16;

/// Length of the start of a JSON object, `{"kind":…,"apiVersion":…,`, in bytes. List items omit this part.
const TYPE_META_BYTES: usize = r#"{"kind":"Lease","apiVersion":"coordination.k8s.io/v1","#.len();

impl Object {
    /// Returns the state of a Lease at `version`. `number` is the version of the Lease's creation.
    #[must_use]
    pub fn new(key: Key, number: ResourceVersion, version: ResourceVersion, mut lease: Lease) -> Self {
        lease.shrink_to_fit();
        let base = Rc::new(Base { key, number, lease, template: OnceCell::new() });
        Self { version, base, renewed: None }
    }

    /// Returns this state with another version. The last state of a deleted Lease gets the version of the deletion.
    pub(super) fn at_version(&self, version: ResourceVersion) -> Self {
        Self { version, ..self.clone() }
    }

    /// Returns the state of the Lease after a renewal at `version` that sets `times`.
    pub(super) fn renewed(&self, version: ResourceVersion, times: RenewedTimes) -> Self {
        debug_assert!(
            times.managed_time.is_some() || self.metadata().managed_fields.entries().is_empty(),
            "a renewal of a Lease with managedFields must set the time of their last entry"
        );
        Self { version, base: Rc::clone(&self.base), renewed: Some(times) }
    }

    /// Whether this state and `other`, a state of the same Lease, differ only by renewals. Such states share one
    /// [`Base`].
    pub(crate) fn is_renewal_of(&self, other: &Self) -> bool {
        Rc::ptr_eq(&self.base, &other.base)
    }

    pub(super) fn trace(&self) -> Trace {
        Trace(Rc::downgrade(&self.base))
    }

    /// Returns the number of handles to the base. All states that share the base have handles to it.
    pub(super) fn handles(&self) -> usize {
        Rc::strong_count(&self.base)
    }

    /// Brings the memory of the Lease into the processor's caches, except its encoding. The result has no meaning.
    #[inline]
    pub(super) fn touch(&self) -> usize {
        let Base { key, lease, .. } = &*self.base;
        let key = usize::from(*key.as_str().as_bytes().first().unwrap_or(&0));
        let renew_time = usize::from(lease.spec.renew_time.is_some());
        key + renew_time + lease.metadata.managed_fields.entries().last().map_or(0, ManagedFieldsEntry::touch)
    }

    /// Brings the encoding of the Lease into the processor's caches. Responses and watch events copy it, and an update
    /// is compared with it. The result has no meaning.
    #[inline]
    #[must_use]
    pub fn touch_encoding(&self) -> usize {
        self.base.template.get().map_or(0, Template::touch)
    }

    /// Returns the key of the Lease.
    #[must_use]
    pub fn key(&self) -> &Key {
        &self.base.key
    }

    /// Returns the number of the Lease: the version of its creation. No other Lease has this number.
    #[must_use]
    pub fn number(&self) -> ResourceVersion {
        self.base.number
    }

    /// Returns the Lease in this state. Its `resourceVersion` field is not the version in the table, but that in
    /// kube-apiserver's built-in storage, or empty. If the Lease was renewed, the call clones it. To read values that
    /// no renewal changes, use [`Object::unrenewed`].
    #[must_use]
    pub fn lease(&self) -> Cow<'_, Lease> {
        let Some(times) = self.renewed else { return Cow::Borrowed(&self.base.lease) };
        let mut lease = self.base.lease.clone();
        lease.spec.renew_time = Some(times.renew_time);
        if let Some(time) = times.managed_time {
            lease.metadata.managed_fields.set_last_time(time);
        }
        lease.metadata.resource_version = CompactString::default();
        Cow::Owned(lease)
    }

    /// Returns the Lease without its renewals. Its `renewTime` and the time of its last entry of `managedFields` may be
    /// outdated: see [`Object::renew_time`] and [`Object::managed_time`]. Its `resourceVersion` is the version in
    /// built-in storage before any renewal here: see [`Object::built_in_version`].
    #[must_use]
    pub fn unrenewed(&self) -> &Lease {
        &self.base.lease
    }

    /// Returns the metadata of [`Object::unrenewed`]. The time of the last entry of `managedFields` and the
    /// `resourceVersion` may be outdated.
    #[must_use]
    pub fn metadata(&self) -> &ObjectMeta {
        &self.base.lease.metadata
    }

    /// Whether `selector` matches this state.
    #[must_use]
    pub fn is_selected_by(&self, selector: &Selector) -> bool {
        selector.is_everything() || selector.matches(self.metadata())
    }

    /// Returns the version of this state in kube-apiserver's built-in storage, if the state was copied from there.
    /// Returns `None` for any other state, such as the state after a write at this server.
    #[must_use]
    pub fn built_in_version(&self) -> Option<u64> {
        self.built_in_version_text().parse().ok()
    }

    /// Returns the version in built-in storage as text; empty if the state has no such version.
    pub(crate) fn built_in_version_text(&self) -> &str {
        if self.renewed.is_some() { "" } else { &self.metadata().resource_version }
    }

    /// Whether `version` is the version of this state, in this table or in built-in storage.
    #[must_use]
    pub fn is_at(&self, version: u64) -> bool {
        version == self.version.0 || self.built_in_version() == Some(version)
    }

    /// Returns the `spec.renewTime` of this state.
    #[must_use]
    pub fn renew_time(&self) -> Option<MicroTime> {
        self.renewed.map_or(self.base.lease.spec.renew_time, |times| Some(times.renew_time))
    }

    /// Returns the time of the last entry of `managedFields`, if the entry exists and has a time.
    #[must_use]
    pub fn managed_time(&self) -> Option<Time> {
        let of_base = || self.base.lease.metadata.managed_fields.entries().last()?.time;
        self.renewed.map_or_else(of_base, |times| times.managed_time)
    }

    /// Returns the `renewTime` in the update `body`, if the update is a renewal: the rest of `body` equals this state's
    /// encoding in `format`. The time may equal the time in the state. Returns `None` for any other update, and if the
    /// template has another format, or `is_renewable` returns false. `is_renewable` returns whether the Lease is valid
    /// whatever its `renewTime`. It is called at most once for all states that share this state's base.
    #[inline]
    pub fn renew_time_in(
        &self,
        format: Format,
        body: &[u8],
        is_renewable: impl FnOnce(&Lease) -> bool,
    ) -> Option<MicroTime> {
        // A Lease that was restored from a store has no template yet. In this case, the call of `template` builds one.
        let template = Some(self.template(format)).filter(|template| template.format() == format)?;
        template.match_body(&self.values(), body, || is_renewable(&self.base.lease))
    }

    /// Appends the body of a response in JSON or protobuf.
    #[inline]
    pub fn push_body(&self, out: &mut Vec<u8>, format: Format) {
        self.push_from(out, format, 0);
    }

    /// Returns the approximate number of bytes that [`Object::push_body`] appends. If the state's encoded template has
    /// another format, the real number may be a few times higher.
    #[must_use]
    pub fn body_bytes(&self, format: Format) -> usize {
        self.template(format).len_hint()
    }

    /// Whether the template is in `format`; creates the template in this format if there is none. With such a template,
    /// a response in this format is a copy of the template, and nothing is encoded.
    #[must_use]
    pub fn is_encoded_in(&self, format: Format) -> bool {
        self.template(format).format() == format
    }

    /// Returns an upper bound of the bytes that [`Object::push_body`] appends. If the state's encoded template has this
    /// format, the bound is a few bytes too high. Otherwise, the bound is several times too high.
    #[must_use]
    pub fn body_bytes_max(&self, format: Format) -> usize {
        let template = self.template(format);
        if template.format() == format {
            template.len_hint() + TIMES_BYTES
        } else {
            encoded_bytes_max(self.base.lease.text_bytes())
        }
    }

    /// Appends the JSON object without a line feed, with the `apiVersion` of `version`.
    pub fn push_json(&self, out: &mut Vec<u8>, version: ApiVersion) {
        let from = push_type_meta(out, version);
        self.push_from(out, Format::Json, from);
        // Removes the line feed.
        out.pop();
    }

    /// Appends the JSON object without `kind` and `apiVersion`, as in the items of a list.
    pub fn push_json_item(&self, out: &mut Vec<u8>) {
        out.push(b'{');
        self.push_from(out, Format::Json, TYPE_META_BYTES);
        out.pop();
    }

    /// Appends the encoding of the state in `format`, without its first `from` bytes.
    #[inline]
    fn push_from(&self, out: &mut Vec<u8>, format: Format, from: usize) {
        let template = self.template(format);
        if template.format() != format || !template.push(out, from, &self.values()) {
            self.push_anew(out, format, from);
        }
    }

    /// Appends the encoding without the template. Used if the template has another format. Also used if a version or
    /// time is longer or shorter than in the template.
    #[inline(never)]
    fn push_anew(&self, out: &mut Vec<u8>, format: Format, from: usize) {
        let start = out.len();
        encode_into(out, format, &self.lease(), self.version);
        if from > 0 {
            out.drain(start..start + from);
        }
    }

    #[inline]
    fn template(&self, format: Format) -> &Template {
        self.base.template.get_or_init(|| {
            // YAML is converted from JSON, so YAML uses the template of JSON.
            let format = if format == Format::Yaml { Format::Json } else { format };
            Template::new(format, &self.lease(), self.values())
        })
    }

    #[inline]
    fn values(&self) -> Values {
        let (version, renew_time, managed_time) = (self.version, self.renew_time(), self.managed_time());
        Values { version, renew_time, managed_time }
    }

    /// Whether a client has requested the deletion of the Lease, and finalizers still prevent the deletion.
    #[must_use]
    pub fn is_being_deleted(&self) -> bool {
        self.metadata().deletion_timestamp.is_some()
    }

    /// Whether the Lease is so large that requests for it take long. A renewal does not change the result.
    #[must_use]
    pub fn is_large(&self) -> bool {
        self.base.lease.text_bytes() >= LARGE_LEASE_BYTES_MIN
    }

    /// Estimates the maximum memory of a Lease with `text_bytes` of text, in bytes. The estimate includes the longest
    /// possible encoding.
    pub(super) fn memory_bytes_max(text_bytes: usize) -> usize {
        size_of::<Base>() + text_bytes + encoded_bytes_max(text_bytes)
    }

    /// Does the same as [`Object::memory_bytes`], but encodes the object first if needed. So the estimate does not
    /// depend on earlier reads of the object.
    pub(super) fn encoded_memory_bytes(&self) -> usize {
        self.template(Format::Json);
        self.memory_bytes()
    }

    /// Estimates the memory that the object and its renewals share, in bytes. Before the object is encoded, the
    /// estimate includes its longest possible encoding.
    #[must_use]
    pub fn memory_bytes(&self) -> usize {
        let Base { lease, template, .. } = &*self.base;
        let text_bytes = lease.text_bytes();
        let encoded_bytes = template.get().map_or_else(|| encoded_bytes_max(text_bytes), Template::len_hint);
        size_of::<Base>() + text_bytes + encoded_bytes
    }
}

/// Maximum length of an encoding of a Lease with `text_bytes` of text, in bytes.
fn encoded_bytes_max(text_bytes: usize) -> usize {
    ENCODED_BYTES + ESCAPED_BYTES_MAX * text_bytes
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::codec::json::Decoder;
    use crate::lease::OwnerReference;

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

    /// Goal: the estimate covers a state's text and encoding, whatever the text is, before and after the encoding is
    /// made. The event log limits its memory by this estimate.
    #[test]
    fn the_memory_of_a_state_covers_its_text_and_encoding() {
        const TEXT_BYTES: usize = 100_000;
        for (text, format, encoded_bytes) in [
            ("a", Format::Json, TEXT_BYTES),
            ("<", Format::Json, 6 * TEXT_BYTES),
            ("\u{1}", Format::Json, 6 * TEXT_BYTES),
            ("<", Format::Protobuf, TEXT_BYTES),
        ] {
            let mut lease = Lease::default();
            lease.spec.holder_identity = Some(text.repeat(TEXT_BYTES).into());
            let object = Object::new(Key::new("n", "a"), ResourceVersion(1), ResourceVersion(7), lease);
            let before = object.memory_bytes();
            object.push_body(&mut Vec::new(), format);
            let exact = TEXT_BYTES + encoded_bytes;
            let estimate = object.memory_bytes();
            assert!((exact..exact + 1000).contains(&estimate), "{text:?} in {format:?}: {estimate}, not {exact}");
            assert!(before >= exact, "{text:?} in {format:?}: {before} while it may still be encoded");
        }
    }

    #[test]
    fn no_encoding_exceeds_its_estimated_length() {
        let full = r#"{"metadata":{"name":"n","generateName":"<","namespace":"s","uid":"u","generation":9223372036854775807,
            "creationTimestamp":"2026-01-02T03:04:05Z","deletionTimestamp":"2026-01-02T03:04:05Z",
            "deletionGracePeriodSeconds":9223372036854775807,"labels":{"a":"<"},"annotations":{"b":"<"},"finalizers":["<"],
            "ownerReferences":[{"apiVersion":"<","kind":"","name":"","uid":"","controller":true,"blockOwnerDeletion":false}],
            "managedFields":[{"manager":"<","operation":"Update","apiVersion":"v","time":"2026-01-02T03:04:05Z",
            "fieldsType":"FieldsV1","fieldsV1":{"f:spec":{}}}]},
            "spec":{"holderIdentity":"<","leaseDurationSeconds":2147483647,"acquireTime":"2026-01-02T03:04:05.678901Z",
            "renewTime":"2026-01-02T03:04:05.678901Z","leaseTransitions":2147483647,"strategy":"<","preferredHolder":"<"}}"#;
        let decoded = Decoder::new().decode_lease(full.as_bytes(), ApiVersion::V1).expect("a Lease");
        let mut owned = Lease::default();
        let owner = OwnerReference {
            name: "<".into(),
            controller: Some(false),
            block_owner_deletion: Some(false),
            ..OwnerReference::default()
        };
        owned.metadata.owner_references = vec![owner; 2000];
        for lease in [decoded.lease, Lease::default(), owned] {
            for at_hand in [Format::Json, Format::Protobuf] {
                let object =
                    Object::new(Key::new("s", "n"), ResourceVersion(1), ResourceVersion(u64::MAX), lease.clone());
                let unencoded = object.memory_bytes();
                for format in [at_hand, Format::Json, Format::Protobuf] {
                    let mut body = Vec::new();
                    object.push_body(&mut body, format);
                    assert!(body.len() <= object.body_bytes_max(format), "{format:?}, {at_hand:?} is at hand");
                    assert!(body.len() <= unencoded - lease.text_bytes() - size_of::<Base>(), "{format:?}");
                }
            }
        }
    }

    #[test]
    fn a_list_item_is_the_object_without_its_type() {
        let object = Object::new(Key::new("n", "a"), ResourceVersion(1), ResourceVersion(7), Lease::default());
        let mut item = Vec::new();
        object.push_json_item(&mut item);
        let mut whole = Vec::new();
        object.push_json(&mut whole, ApiVersion::V1);
        let whole: serde_json::Value = serde_json::from_slice(&whole).expect("JSON");
        let mut item: serde_json::Value = serde_json::from_slice(&item).expect("JSON");
        item["kind"] = "Lease".into();
        item["apiVersion"] = "coordination.k8s.io/v1".into();
        assert_eq!(item, whole);
    }
}
