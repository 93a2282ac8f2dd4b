//! Watch events on the wire, in JSON: one object a line (Kubernetes API concepts, "Efficient detection of changes").

use crate::api_error::ApiError;
use crate::codec::json::{encode_bookmark_into, encode_lease_into, encode_status_into};
use crate::lease::ResourceVersion;
use crate::selector::Selector;
use crate::table::event_log::Event;
use crate::table::object::Object;

/// Appends what a watcher with `selector` sees of `event`, if anything. To a selector a change can bring an object
/// into view or take it out of it (apiserver `storage/cacher`, `convertToWatchEvent`).
pub(super) fn push_change(out: &mut Vec<u8>, event: &Event, selector: &Selector) {
    let after = !event.deleted && is_selected(selector, &event.after);
    let before = event.before.as_ref().filter(|before| is_selected(selector, before));
    match (before, after) {
        (None, false) => {}
        (None, true) => push_added(out, &event.after),
        (Some(_), true) => push(out, "MODIFIED", event.after.json()),
        (Some(_), false) if event.deleted => push(out, "DELETED", event.after.json()),
        (Some(before), false) => {
            // It left the selection: what the watcher knew of it, at the version of the change.
            open(out, "DELETED");
            encode_lease_into(out, &before.lease, Some(event.version()), true);
            close(out);
        }
    }
}

/// Whether `selector` takes `object`.
pub(crate) fn is_selected(selector: &Selector, object: &Object) -> bool {
    let meta = &object.lease.metadata;
    selector.is_everything() || selector.matches(&meta.namespace, &meta.name, &meta.labels)
}

/// Appends an ADDED event.
pub(super) fn push_added(out: &mut Vec<u8>, object: &Object) {
    push(out, "ADDED", object.json());
}

/// Appends a BOOKMARK event; `initial_events_end` marks the one that ends the initial events.
pub(super) fn push_bookmark(out: &mut Vec<u8>, version: ResourceVersion, initial_events_end: bool) {
    open(out, "BOOKMARK");
    encode_bookmark_into(out, version, initial_events_end);
    close(out);
}

/// Appends an ERROR event.
pub(super) fn push_error(out: &mut Vec<u8>, error: &ApiError) {
    open(out, "ERROR");
    encode_status_into(out, &error.status());
    close(out);
}

fn push(out: &mut Vec<u8>, kind: &str, object: &[u8]) {
    open(out, kind);
    out.extend_from_slice(object);
    close(out);
}

fn open(out: &mut Vec<u8>, kind: &str) {
    out.extend_from_slice(b"{\"type\":\"");
    out.extend_from_slice(kind.as_bytes());
    out.extend_from_slice(b"\",\"object\":");
}

fn close(out: &mut Vec<u8>) {
    out.extend_from_slice(b"}\n");
}
