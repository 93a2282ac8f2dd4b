//! The object of a BOOKMARK event, in whatever form it is to be written.

use crate::lease::Lease;

/// The annotation that marks the end of the initial events of a watch.
pub const INITIAL_EVENTS_END: &str = "k8s.io/initial-events-end";

/// A Lease that is empty but for the mark; the version, up to which the watcher has seen everything, goes beside it.
#[must_use]
pub fn bookmark_lease(initial_events_end: bool) -> Lease {
    let mut lease = Lease::default();
    if initial_events_end {
        lease.metadata.annotations.insert(INITIAL_EVENTS_END.into(), "true".into());
    }
    lease
}
