//! Writes responses in the form that the client has negotiated. A response contains an object, a list or an event. Its
//! form is JSON, YAML or protobuf, and the whole object, partial metadata or a Table. See Kubernetes API concepts,
//! "Metadata-only fetches" and "Receiving resources as Tables".
//!
//! The common forms are plain encodings: the whole object in JSON or protobuf. The server stores one of these encodings
//! in the [`Object`] of each Lease, and generates all other forms on demand.

mod response;

use crate::api_error::Status;
use crate::codec::Format;
use crate::codec::bookmark::bookmark_lease;
use crate::codec::json;
use crate::codec::list_meta::ListMeta;
use crate::codec::partial;
use crate::codec::protobuf;
use crate::codec::table::{IncludeObject, TableForm, push_row, push_table_close, push_table_head, push_table_of_one};
use crate::codec::yaml::push_yaml;
use crate::lease::Lease;
use crate::media_type::{Representation, Transform};
use crate::resource::{ApiVersion, LIST_KIND, ResourceVersion};
use crate::selector::Selector;
use crate::table::object::Object;
use crate::timestamp::Time;
pub use response::{Body, Response};
use std::borrow::Cow;

/// The form of a response.
#[derive(Clone, Copy, Debug, Default)]
pub struct Form {
    /// Format and transformation of the response, as negotiated with the client.
    pub representation: Representation,
    /// What each row of a Table contains besides its cells.
    pub include: IncludeObject,
    /// API version in which the response shows Leases. Partial metadata and Tables have a version of `meta.k8s.io`
    /// instead.
    pub version: ApiVersion,
}

/// A Lease for a response: a stored Lease, or a separate value.
#[derive(Clone, Copy, Debug)]
pub enum LeaseState<'a> {
    /// A Lease in the server's table of stored Leases.
    Stored(&'a Object),
    /// A value that is not stored: the result of a dry run, the empty Lease of a bookmark, or a Lease before it stopped
    /// matching a selector. The second value is the `resourceVersion` to show; `None` shows none, as in the dry run of
    /// a creation.
    Loose(&'a Lease, Option<ResourceVersion>),
}

impl LeaseState<'_> {
    fn lease(&self) -> Cow<'_, Lease> {
        match self {
            Self::Stored(object) => object.lease(),
            Self::Loose(lease, _) => Cow::Borrowed(lease),
        }
    }

    /// Returns the Lease without a copy. Its `renewTime` and its times in `managedFields` may be outdated, since an
    /// [`Object`] stores the times of a renewal apart from the Lease.
    fn unrenewed(&self) -> &Lease {
        match self {
            Self::Stored(object) => object.unrenewed(),
            Self::Loose(lease, _) => lease,
        }
    }

    fn version(&self) -> Option<ResourceVersion> {
        match self {
            Self::Stored(object) => Some(object.version),
            Self::Loose(_, version) => *version,
        }
    }

    /// Calls `with` with the Lease as a JSON object.
    fn with_json<R>(&self, with: impl FnOnce(&[u8]) -> R) -> R {
        match self {
            Self::Stored(object) => {
                let mut json = Vec::with_capacity(object.body_bytes(Format::Json));
                object.push_json(&mut json, ApiVersion::V1);
                with(&json)
            }
            Self::Loose(lease, version) => {
                let mut json = Vec::with_capacity(512);
                json::encode_lease_into(&mut json, lease, *version, true);
                with(&json)
            }
        }
    }
}

impl Form {
    /// Returns the body of a response that contains one object.
    #[must_use]
    pub fn object_body(self, state: LeaseState<'_>, now: Time) -> Body {
        if let LeaseState::Stored(object) = state
            && let Some(format) = self.as_encoded()
        {
            return Body::Lease(object.clone(), format);
        }
        let mut out = Vec::with_capacity(1024);
        self.push_object(&mut out, state, now, true);
        self.finished(out).into()
    }

    /// Returns the format if the form is a plain encoding: the whole object in `v1`, as JSON without indentation or as
    /// protobuf. The server can then copy the stored encoding.
    #[inline]
    #[must_use]
    pub fn as_encoded(self) -> Option<Format> {
        let Representation { format, pretty, transform } = self.representation;
        let is_encoding = !pretty && transform == Transform::None && format != Format::Yaml;
        (is_encoding && self.version == ApiVersion::V1).then_some(format)
    }

    /// Returns the body of a response that contains a `Status`.
    #[must_use]
    pub fn status_body(self, status: &Status) -> Body {
        let mut out = Vec::with_capacity(512);
        if self.representation.format == Format::Protobuf {
            protobuf::encode_status_into(&mut out, status);
        } else {
            json::encode_status_into(&mut out, status);
        }
        self.finished(out).into()
    }

    /// Returns the form of a `Status` for the same client. A `Status` is never transformed to a Table or to partial
    /// metadata.
    #[must_use]
    pub fn for_status(self) -> Self {
        Self { representation: self.representation.for_status(), ..self }
    }

    /// Returns the form of a stream of watch events for the same client. Such a stream is never indented.
    #[must_use]
    pub fn for_watch(self) -> Self {
        Self { representation: Representation { pretty: false, ..self.representation }, ..self }
    }

    /// Whether the form is only for lists. A watch in such a form ends at its first event, since an event has one
    /// object.
    #[must_use]
    pub fn is_of_lists(self) -> bool {
        matches!(self.representation.transform, Transform::PartialList(_))
    }

    /// Returns the `Content-Type` of a response that is no stream of events.
    #[must_use]
    pub fn content_type(self) -> &'static str {
        self.representation.content_type(false)
    }

    /// Returns the `Content-Type` of a stream of events.
    #[must_use]
    pub fn stream_content_type(self) -> &'static str {
        self.representation.content_type(true)
    }

    /// Whether a list must be complete before its first byte is sent. This is so in protobuf, where lengths precede the
    /// content.
    #[must_use]
    pub fn needs_whole_list(self) -> bool {
        self.representation.format == Format::Protobuf
    }

    /// Returns `shardInfo.selector` of a list in this form; empty if the list has none. Tables and partial metadata
    /// have no `shardInfo`, since kube-apiserver omits it when it transforms a list.
    #[must_use]
    pub fn shard_of(self, selector: &Selector) -> &str {
        match (self.representation.transform, &selector.shard) {
            (Transform::None, Some(shard)) => shard.as_str(),
            (Transform::None | Transform::Partial(_) | Transform::PartialList(_) | Transform::Table(_), _) => "",
        }
    }

    /// Appends the part of a list before its items. `items_len` is the sum of [`Form::list_item_len`] of all items, in
    /// bytes. The sum is used only if [`Form::needs_whole_list`] is true.
    pub fn push_list_head(self, out: &mut Vec<u8>, meta: &ListMeta<'_>, items_len: usize) {
        if let Some(form) = self.protobuf_list() {
            protobuf::ListHead { form, meta: *meta, items_len }.push(out);
            return;
        }
        if self.representation.format == Format::Yaml {
            let (yaml, items_at) = self.empty_list_yaml(meta);
            out.extend_from_slice(&yaml[..items_at]);
            return;
        }
        self.push_list_head_json(out, meta);
    }

    fn push_list_head_json(self, out: &mut Vec<u8>, meta: &ListMeta<'_>) {
        match self.representation.transform {
            Transform::Table(version) => push_table_head(out, meta, true, version),
            Transform::Partial(version) | Transform::PartialList(version) => {
                partial::push_list_head(out, meta, version);
            }
            Transform::None => {
                let api_version = self.version.group_version();
                for part in ["{\"kind\":\"", LIST_KIND, "\",\"apiVersion\":\"", api_version, "\",\"metadata\":"] {
                    out.extend_from_slice(part.as_bytes());
                }
                meta.push_json(out);
                out.extend_from_slice(b",\"items\":[");
            }
        }
    }

    /// Returns the number of bytes that [`Form::push_list_item`] will append, if the form needs this number in advance;
    /// otherwise 0.
    #[must_use]
    pub fn list_item_len(self, object: &Object) -> usize {
        match (self.representation.format, self.representation.transform) {
            (Format::Protobuf, Transform::None) if object.is_encoded_in(Format::Protobuf) => {
                with_message(object, protobuf::raw_item_len)
            }
            (Format::Protobuf, Transform::None) => protobuf::lease_len(&object.lease(), object.version),
            (Format::Protobuf, _) => protobuf::partial_len(&object.lease().metadata, object.version),
            (Format::Json | Format::Yaml, _) => 0,
        }
    }

    /// Appends an item of a list.
    pub fn push_list_item(self, out: &mut Vec<u8>, object: &Object, is_first: bool, now: Time) {
        if let Some(form) = self.protobuf_list() {
            match self.representation.transform {
                Transform::None if object.is_encoded_in(Format::Protobuf) => {
                    with_message(object, |message| protobuf::push_raw_item(out, message));
                }
                Transform::None => protobuf::push_lease_item(out, &object.lease(), object.version),
                _ => protobuf::push_partial_item(out, &object.lease().metadata, object.version, form),
            }
            return;
        }
        if self.representation.format == Format::Yaml {
            if is_first {
                out.push(b'\n');
            }
            // In YAML, the items of a list under a key are not indented. So the items have the same text as a whole
            // document that is a list.
            let mut json = vec![b'['];
            self.push_item_json(&mut json, object, now);
            json.push(b']');
            push_yaml(out, &json);
            return;
        }
        match self.representation.transform {
            Transform::Partial(_) | Transform::PartialList(_) => partial::push_item_start(out, is_first),
            Transform::None | Transform::Table(_) if is_first => {}
            Transform::None | Transform::Table(_) => out.push(b','),
        }
        self.push_item_json(out, object, now);
    }

    fn push_item_json(self, out: &mut Vec<u8>, object: &Object, now: Time) {
        match self.representation.transform {
            Transform::Table(version) => {
                let form = TableForm { now, include: self.include, version };
                self.with_row_json(LeaseState::Stored(object), |json| push_row(out, object.unrenewed(), json, form));
            }
            Transform::Partial(version) | Transform::PartialList(version) => {
                LeaseState::Stored(object).with_json(|json| partial::push_partial(out, json, version));
            }
            Transform::None => object.push_json_item(out),
        }
    }

    /// Appends the part of a list after its items. `meta` must be the same as in the call of [`Form::push_list_head`].
    pub fn push_list_close(self, out: &mut Vec<u8>, meta: &ListMeta<'_>, is_empty: bool) {
        if let Some(form) = self.protobuf_list() {
            protobuf::ListHead { form, meta: *meta, items_len: 0 }.push_tail(out);
            return;
        }
        if self.representation.format == Format::Yaml {
            let (yaml, items_at) = self.empty_list_yaml(meta);
            let rest = yaml.get(items_at..).unwrap_or_default();
            let behind_items = memchr::memchr(b'\n', rest).map_or(rest.len(), |at| at + 1);
            out.extend_from_slice(if is_empty { rest } else { &rest[behind_items..] });
            return;
        }
        self.push_list_close_json(out, is_empty);
        out.push(b'\n');
    }

    fn push_list_close_json(self, out: &mut Vec<u8>, is_empty: bool) {
        match self.representation.transform {
            Transform::Table(_) => push_table_close(out),
            Transform::Partial(_) | Transform::PartialList(_) => partial::push_list_close(out, is_empty),
            Transform::None => out.extend_from_slice(b"]}"),
        }
    }

    /// Returns an empty list in YAML, and the offset after the key `items` or `rows`. The caller inserts the items
    /// there. The keys of the list are sorted, so some keys come after the items.
    fn empty_list_yaml(self, meta: &ListMeta<'_>) -> (Vec<u8>, usize) {
        let key: &[u8] = match self.representation.transform {
            Transform::Table(_) => b"\nrows:",
            Transform::None | Transform::Partial(_) | Transform::PartialList(_) => b"\nitems:",
        };
        let (mut json, mut yaml) = (Vec::new(), Vec::new());
        self.push_list_head_json(&mut json, meta);
        self.push_list_close_json(&mut json, true);
        push_yaml(&mut yaml, &json);
        let items_at = memchr::memmem::find(&yaml, key).map_or(yaml.len(), |at| at + key.len());
        (yaml, items_at)
    }

    /// Appends an event of a watch. `columns` is true if a Table contains its column definitions, as only the first
    /// Table of a watch does.
    pub fn push_event(self, out: &mut Vec<u8>, kind: &str, state: LeaseState<'_>, columns: bool, now: Time) {
        if self.representation.format == Format::Protobuf {
            protobuf::push_watch_event(out, kind, |out| match state {
                LeaseState::Stored(object) if self.as_encoded().is_some() => object.push_body(out, Format::Protobuf),
                _ => self.push_object(out, state, now, columns),
            });
            return;
        }
        open_event(out, kind);
        match (self.representation.transform, state) {
            (Transform::None, LeaseState::Stored(object)) => object.push_json(out, self.version),
            _ => self.push_object(out, state, now, columns),
        }
        out.extend_from_slice(b"}\n");
    }

    /// Appends a BOOKMARK event. `initial_events_end` is true if the bookmark marks the end of the initial events.
    pub fn push_bookmark(self, out: &mut Vec<u8>, version: ResourceVersion, initial_events_end: bool, columns: bool) {
        let lease = bookmark_lease(initial_events_end);
        self.push_event(out, "BOOKMARK", LeaseState::Loose(&lease, Some(version)), columns, Time(0));
    }

    /// Appends an ERROR event.
    pub fn push_error(self, out: &mut Vec<u8>, status: &Status) {
        if self.representation.format == Format::Protobuf {
            protobuf::push_watch_event(out, "ERROR", |out| protobuf::encode_status_into(out, status));
            return;
        }
        open_event(out, "ERROR");
        json::encode_status_into(out, status);
        out.extend_from_slice(b"}\n");
    }

    /// Appends one object, without the line feed that ends a body.
    fn push_object(self, out: &mut Vec<u8>, state: LeaseState<'_>, now: Time, columns: bool) {
        let version = state.version();
        match (self.representation.format, self.representation.transform) {
            (Format::Protobuf, Transform::Partial(of) | Transform::PartialList(of)) => {
                protobuf::encode_partial_into(out, &state.lease().metadata, version, of);
            }
            (Format::Protobuf, _) => {
                protobuf::encode_lease_into(out, &state.lease(), version, self.version.group_version());
            }
            (Format::Json | Format::Yaml, Transform::None) => {
                state.with_json(|json| json::push_json_as(out, json, self.version));
            }
            (Format::Json | Format::Yaml, Transform::Partial(of) | Transform::PartialList(of)) => {
                state.with_json(|json| partial::push_partial(out, json, of));
            }
            (Format::Json | Format::Yaml, Transform::Table(of)) => {
                let meta = ListMeta { version, ..ListMeta::default() };
                let form = TableForm { now, include: self.include, version: of };
                let lease = state.unrenewed();
                self.with_row_json(state, |json| push_table_of_one(out, &meta, columns, lease, json, form));
            }
        }
    }

    /// Calls `with` with the JSON object for a row of a Table. If the row contains the whole object, that object has
    /// this form's API version.
    fn with_row_json(self, state: LeaseState<'_>, with: impl FnOnce(&[u8])) {
        state.with_json(|json| match (self.include, self.version) {
            (IncludeObject::Object, ApiVersion::V1Beta1) => {
                let mut converted = Vec::with_capacity(json.len() + 16);
                json::push_json_as(&mut converted, json, self.version);
                with(&converted);
            }
            _ => with(json),
        });
    }

    /// Returns the kind of the protobuf list in this form; `None` if the form is not protobuf.
    fn protobuf_list(self) -> Option<protobuf::ListForm<'static>> {
        match (self.representation.format, self.representation.transform) {
            (Format::Json | Format::Yaml, _) => None,
            (Format::Protobuf, Transform::Partial(of) | Transform::PartialList(of)) => {
                Some(protobuf::ListForm::Partial(of))
            }
            (Format::Protobuf, Transform::None | Transform::Table(_)) => {
                Some(protobuf::ListForm::Leases { api_version: self.version.group_version() })
            }
        }
    }

    /// Completes a response body from complete JSON or protobuf: indents it, converts it to YAML, or adds the final
    /// line feed.
    fn finished(self, mut body: Vec<u8>) -> Vec<u8> {
        match (self.representation.format, self.representation.pretty) {
            (Format::Protobuf, _) => body,
            (Format::Json, false) => {
                body.push(b'\n');
                body
            }
            (Format::Json, true) => {
                let mut pretty = Vec::with_capacity(2 * body.len());
                json::push_pretty(&mut pretty, &body);
                pretty
            }
            (Format::Yaml, _) => {
                let mut yaml = Vec::with_capacity(2 * body.len());
                push_yaml(&mut yaml, &body);
                yaml
            }
        }
    }
}

/// Calls `with` with the protobuf message of `object`, without Kubernetes' envelope (the prefix `k8s\0` and the message
/// `Unknown`).
fn with_message<R>(object: &Object, with: impl FnOnce(&[u8]) -> R) -> R {
    let mut body = Vec::with_capacity(object.body_bytes(Format::Protobuf) + 8);
    object.push_body(&mut body, Format::Protobuf);
    with(protobuf::raw_message(&body))
}

fn open_event(out: &mut Vec<u8>, kind: &str) {
    out.extend_from_slice(b"{\"type\":\"");
    out.extend_from_slice(kind.as_bytes());
    out.extend_from_slice(b"\",\"object\":");
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::resource::MetaVersion;
    use crate::table::object::Key;

    fn object() -> Object {
        let mut lease = Lease::named("n", "a");
        lease.spec.holder_identity = Some("h".into());
        Object::new(Key::new("n", "a"), ResourceVersion(1), ResourceVersion(7), lease)
    }

    fn all_forms() -> Vec<Form> {
        let mut forms = Vec::new();
        for format in [Format::Json, Format::Yaml, Format::Protobuf] {
            for transform in [
                Transform::None,
                Transform::Partial(MetaVersion::V1),
                Transform::PartialList(MetaVersion::V1Beta1),
                Transform::Table(MetaVersion::V1),
            ] {
                for pretty in [false, true] {
                    let representation = Representation { format, pretty: pretty && format == Format::Json, transform };
                    for version in ApiVersion::ALL {
                        for include in [IncludeObject::Metadata, IncludeObject::Object] {
                            forms.push(Form { representation, include, version });
                        }
                    }
                }
            }
        }
        forms
    }

    #[test]
    fn content_types_match_kube_apiserver() {
        for (format, whole, stream) in [
            (Format::Json, "application/json", "application/json"),
            (
                Format::Protobuf,
                "application/vnd.kubernetes.protobuf",
                "application/vnd.kubernetes.protobuf;stream=watch",
            ),
            // Watches are never in YAML, so the second type is never sent.
            (Format::Yaml, "application/yaml", "application/yaml"),
        ] {
            for form in all_forms().into_iter().filter(|form| form.representation.format == format) {
                let told = [form.content_type(), form.stream_content_type()];
                assert_eq!(told, [whole, stream], "{form:?}");
            }
        }
    }

    #[test]
    fn stored_and_loose_objects_are_encoded_the_same() {
        let object = object();
        for form in all_forms() {
            let stored = form.object_body(LeaseState::Stored(&object), Time(0)).into_bytes();
            let loose =
                form.object_body(LeaseState::Loose(object.unrenewed(), Some(object.version)), Time(0)).into_bytes();
            assert_eq!(stored, loose, "{form:?}");
            let mut events = [Vec::new(), Vec::new()];
            form.push_event(&mut events[0], "ADDED", LeaseState::Stored(&object), true, Time(0));
            form.push_event(
                &mut events[1],
                "ADDED",
                LeaseState::Loose(object.unrenewed(), Some(object.version)),
                true,
                Time(0),
            );
            assert_eq!(events[0], events[1], "{form:?}");
        }
    }

    #[test]
    fn a_yaml_list_made_item_by_item_equals_the_converted_json() {
        let mut folded = object().unrenewed().clone();
        folded.metadata.name = "b".into();
        folded.spec.holder_identity = Some(["a", &"long words ".repeat(30), "\n\n"].concat().into());
        let objects =
            [object(), Object::new(Key::new("n", "b"), ResourceVersion(1), ResourceVersion(8), folded), object()];
        let metas = [
            ListMeta::at(ResourceVersion(9)),
            ListMeta { next: "rows: []", remaining: Some(7), ..ListMeta::default() },
        ];
        for yaml in all_forms().into_iter().filter(|form| form.representation.format == Format::Yaml) {
            let json = Form { representation: Representation { format: Format::Json, ..yaml.representation }, ..yaml };
            for (count, meta) in [(0, metas[0]), (1, metas[1]), (3, metas[0])] {
                let list = |form: Form| {
                    let mut out = Vec::new();
                    form.push_list_head(&mut out, &meta, 0);
                    for (at, object) in objects.iter().take(count).enumerate() {
                        form.push_list_item(&mut out, object, at == 0, Time(0));
                    }
                    form.push_list_close(&mut out, &meta, count == 0);
                    out
                };
                let mut whole = Vec::new();
                push_yaml(&mut whole, &list(json));
                assert_eq!(String::from_utf8_lossy(&list(yaml)), String::from_utf8_lossy(&whole), "{yaml:?}");
            }
        }
    }

    #[test]
    fn the_announced_length_of_a_list_item_is_exact() {
        for template in [Format::Json, Format::Protobuf] {
            let object = object();
            // This first encoding determines the format of the encoding that the object stores (its template).
            object.push_body(&mut Vec::new(), template);
            for form in all_forms().into_iter().filter(|form| form.representation.format == Format::Protobuf) {
                let mut item = Vec::new();
                form.push_list_item(&mut item, &object, true, Time(0));
                if !matches!(form.representation.transform, Transform::Table(_)) {
                    assert_eq!(item.len(), form.list_item_len(&object), "{template:?} {form:?}");
                }
            }
        }
    }
}
