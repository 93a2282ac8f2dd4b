//! The object of a BOOKMARK event. The server encodes this object in the form of the watch, such as JSON or a Table.

use crate::lease::Lease;

/// The annotation of a bookmark that marks the end of a watch's initial events.
pub const INITIAL_EVENTS_END: &str = "k8s.io/initial-events-end";

/// Returns an empty Lease for a bookmark. If `initial_events_end` is set, the Lease has the annotation
/// [`INITIAL_EVENTS_END`]. The caller adds the `resourceVersion` up to which the watcher has received all events.
#[must_use]
pub fn bookmark_lease(initial_events_end: bool) -> Lease {
    let mut lease = Lease::default();
    if initial_events_end {
        lease.metadata.annotations.insert(INITIAL_EVENTS_END.into(), "true".into());
    }
    lease
}
