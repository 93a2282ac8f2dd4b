//! The object of a BOOKMARK event, for any form.

use crate::lease::Lease;

/// The annotation that marks the end of the initial events of a watch.
pub const INITIAL_EVENTS_END: &str = "k8s.io/initial-events-end";

/// Returns an empty Lease with, if wanted, the annotation. The caller adds the version up to which the watcher has seen
/// all.
#[must_use]
pub fn bookmark_lease(initial_events_end: bool) -> Lease {
    let mut lease = Lease::default();
    if initial_events_end {
        lease.metadata.annotations.insert(INITIAL_EVENTS_END.into(), "true".into());
    }
    lease
}
