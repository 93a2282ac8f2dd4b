//! Builds the watch event that a watcher sees for a change.

use super::recent::{EventKey, Recent};
use crate::clock::Now;
use crate::form::{Form, LeaseState};
use crate::selector::Selector;
use crate::table::event_log::Event;

/// Appends `event` as a watcher with `selector` sees it. Returns whether the watcher sees `event` at all. If a change
/// makes an object match the selector, the watcher sees ADDED; if the object no longer matches, DELETED (apiserver
/// `storage/cacher`, `convertToWatchEvent`). `recent` caches events that were written for other watchers; `None` if
/// other watchers rarely get the same event.
pub(super) fn push_change(
    out: &mut Vec<u8>,
    event: &Event,
    selector: &Selector,
    form: Form,
    columns: bool,
    now: Now,
    recent: Option<&mut Recent>,
) -> bool {
    let takes_after = event.after.is_selected_by(selector);
    let after = !event.deleted && takes_after;
    let before = event.before.as_ref().filter(|before| {
        // A renewal changes no field that a selector examines.
        if before.is_renewal_of(&event.after) { takes_after } else { before.is_selected_by(selector) }
    });
    let known;
    let (kind, state) = match (before, after) {
        (None, false) => return false,
        (None, true) => ("ADDED", LeaseState::Stored(&event.after)),
        (Some(_), true) => ("MODIFIED", LeaseState::Stored(&event.after)),
        (Some(_), false) if event.deleted => ("DELETED", LeaseState::Stored(&event.after)),
        // After the change, the object no longer matches the selector. The watcher gets the object as before the
        // change, but with the version of the change.
        (Some(before), false) => {
            known = before.lease();
            ("DELETED", LeaseState::Loose(&known, Some(event.version())))
        }
    };
    match (recent, form.as_encoded(), state) {
        (Some(recent), Some(format), LeaseState::Stored(_)) => {
            let event = EventKey { version: event.version(), kind, format };
            recent.push_cached(out, event, |out| form.push_event(out, kind, state, columns, now.wall));
        }
        _ => form.push_event(out, kind, state, columns, now.wall),
    }
    true
}
