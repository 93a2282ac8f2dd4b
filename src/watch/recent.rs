//! A cache of the bytes of recent events. So an event for a hundred watchers is encoded once.

use crate::codec::Format;
use crate::limits::{RECENT_EVENT_BYTES_MAX, RECENT_EVENTS};
use crate::resource::ResourceVersion;

/// The bytes of recent events, in slots. The version of an event selects its slot. A later event replaces an earlier
/// event in the same slot.
#[derive(Debug, Default)]
pub(super) struct Recent {
    slots: Vec<(Option<EventKey>, Vec<u8>)>,
}

/// The key of a cached event. Only events in a plain encoding (`Form::as_encoded`) are cached: without indentation, and
/// with whole Leases in `v1`. Such events have equal bytes if their keys are equal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct EventKey {
    /// Version of the change.
    pub(super) version: ResourceVersion,
    /// The `type` of the watch event.
    pub(super) kind: &'static str,
    /// JSON or protobuf.
    pub(super) format: Format,
}

impl Recent {
    /// Appends the bytes of `event` to `out`. If the bytes are not cached, calls `write` to append them. Then caches
    /// them, unless they are long or the slot has a newer event.
    pub(super) fn push_cached(&mut self, out: &mut Vec<u8>, event: EventKey, write: impl FnOnce(&mut Vec<u8>)) {
        if self.slots.is_empty() {
            self.slots.resize_with(RECENT_EVENTS, Default::default);
        }
        let at = usize::try_from(event.version.0).unwrap_or_default() % RECENT_EVENTS;
        let Some((known, bytes)) = self.slots.get_mut(at) else { return write(out) };
        if *known == Some(event) {
            out.extend_from_slice(bytes);
            return;
        }
        let start = out.len();
        write(out);
        let written = out.get(start..).unwrap_or_default();
        // An older event is for a watcher that is catching up. Other watchers rarely need this event, so it does not
        // replace a newer event.
        let is_newest = known.is_none_or(|known| known.version <= event.version);
        if is_newest && written.len() <= RECENT_EVENT_BYTES_MAX {
            bytes.clear();
            bytes.extend_from_slice(written);
            *known = Some(event);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn recent_events_are_encoded_once_per_kind_and_format() {
        let mut recent = Recent::default();
        let mut push = |version: u64, kind, format, text: &str| {
            let (mut out, mut is_written) = (b"before".to_vec(), false);
            recent.push_cached(&mut out, EventKey { version: ResourceVersion(version), kind, format }, |out| {
                is_written = true;
                out.extend_from_slice(text.as_bytes());
            });
            (String::from_utf8(out).expect("text"), is_written)
        };
        let far = 5 + RECENT_EVENTS as u64;
        let long = "x".repeat(RECENT_EVENT_BYTES_MAX + 1);
        for (version, kind, format, text, is_new) in [
            (5, "ADDED", Format::Json, "five", true),
            (5, "ADDED", Format::Json, "five", false),
            (6, "ADDED", Format::Json, "six", true),
            (5, "MODIFIED", Format::Json, "five, to another selector", true),
            (5, "ADDED", Format::Json, "five", true),
            (5, "ADDED", Format::Protobuf, "five in protobuf", true),
            (far, "ADDED", Format::Protobuf, "in its place", true),
            (5, "ADDED", Format::Protobuf, "five in protobuf", true),
            (far, "ADDED", Format::Protobuf, "in its place", false),
            (7, "ADDED", Format::Json, &long, true),
            (7, "ADDED", Format::Json, &long, true),
            (6, "ADDED", Format::Json, "six", false),
        ] {
            assert_eq!(push(version, kind, format, text), (format!("before{text}"), is_new), "{version} {kind}");
        }
    }
}
