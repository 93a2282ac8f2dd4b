//! The object of a BOOKMARK event, the same for all forms of a watch.

use crate::lease::Lease;

/// The annotation that marks the end of the initial events of a watch.
pub const INITIAL_EVENTS_END: &str = "k8s.io/initial-events-end";

/// Returns an empty Lease, with the annotation if `initial_events_end` is set. The caller adds the version up to which
/// the watcher has received all events.
#[must_use]
pub fn bookmark_lease(initial_events_end: bool) -> Lease {
    let mut lease = Lease::default();
    if initial_events_end {
        lease.metadata.annotations.insert(INITIAL_EVENTS_END.into(), "true".into());
    }
    lease
}
