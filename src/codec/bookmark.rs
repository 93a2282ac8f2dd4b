//! The object of a BOOKMARK event, for any form.

use crate::lease::Lease;

/// The annotation that marks the end of the initial events of a watch.
pub const INITIAL_EVENTS_END: &str = "k8s.io/initial-events-end";

/// Returns an empty Lease, with the annotation if `initial_events_end` is set. The caller adds the version of the
/// bookmark: the watcher has seen all events up to it.
#[must_use]
pub fn bookmark_lease(initial_events_end: bool) -> Lease {
    let mut lease = Lease::default();
    if initial_events_end {
        lease.metadata.annotations.insert(INITIAL_EVENTS_END.into(), "true".into());
    }
    lease
}
