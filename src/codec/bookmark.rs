//! The object of a BOOKMARK event. It is the same for all forms of a watch.

use crate::lease::Lease;

/// The annotation that marks the end of the initial events of a watch.
pub const INITIAL_EVENTS_END: &str = "k8s.io/initial-events-end";

/// Returns an empty Lease. If `initial_events_end` is set, the Lease has the annotation. The caller adds the
/// `resourceVersion` up to which the watcher has received all events.
#[must_use]
pub fn bookmark_lease(initial_events_end: bool) -> Lease {
    let mut lease = Lease::default();
    if initial_events_end {
        lease.metadata.annotations.insert(INITIAL_EVENTS_END.into(), "true".into());
    }
    lease
}
