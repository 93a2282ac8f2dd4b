//! Long Leases that the table no longer holds, and that the event log or running lists may still hold.
//!
//! The event log's memory is bounded, and one list needs one state of each Lease. But lists at many versions need many
//! states of one Lease. So a client could start lists without reading them, and rewrite a long Lease meanwhile. It
//! could fill the memory before the deadlines of the lists. Short Leases cannot take as much memory in that time, and
//! are not tracked.

use crate::limits::METERED_BYTES_MIN;
use crate::table::object::{Object, Trace};
use std::collections::VecDeque;

/// Traces of these Leases. A trace keeps no Lease in memory.
#[derive(Debug, Default)]
pub(super) struct Outlived {
    /// Traces, each with the memory of its Lease in bytes. A trace moves to the back if its Lease is still held at a
    /// check.
    traces: VecDeque<(Trace, usize)>,
    /// Sum of these bytes.
    bytes: usize,
}

impl Outlived {
    /// Adds `object`, which the table no longer holds, nor any renewal of it. Checks two traces, so that the number of
    /// traces stays near that of the Leases still held.
    pub(super) fn push(&mut self, object: &Object) {
        let bytes = object.memory_bytes();
        if bytes <= METERED_BYTES_MIN {
            return;
        }
        self.traces.push_back((object.trace(), bytes));
        self.bytes += bytes;
        self.sweep(2);
    }

    /// Checks the next `states_max` traces, and drops those whose Lease is not held.
    pub(super) fn sweep(&mut self, states_max: usize) {
        for _ in 0..states_max.min(self.traces.len()) {
            let Some((trace, bytes)) = self.traces.pop_front() else { return };
            if trace.is_held() {
                self.traces.push_back((trace, bytes));
            } else {
                self.bytes -= bytes;
            }
        }
    }

    /// Estimate of the memory that the traced Leases take, in bytes. Leases freed since their last check still count.
    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lease::Lease;
    use crate::resource::ResourceVersion;
    use crate::table::object::Key;

    fn object(holder_bytes: usize) -> Object {
        let mut lease = Lease::default();
        lease.spec.holder_identity = Some("h".repeat(holder_bytes).into());
        let object = Object::new(Key::new("n", "a"), ResourceVersion(1), ResourceVersion(1), lease);
        object.push_body(&mut Vec::new(), crate::codec::Format::Json);
        object
    }

    #[test]
    fn what_is_long_counts_as_long_as_it_is_held() {
        let mut outlived = Outlived::default();
        outlived.push(&object(100));
        assert_eq!(outlived.bytes(), 0, "a short one");
        let held: Vec<_> = (0..10).map(|_| object(100_000)).collect();
        for object in &held {
            outlived.push(object);
        }
        let each = held[0].memory_bytes();
        assert_eq!(outlived.bytes(), 10 * each);
        let kept: Vec<_> = held.into_iter().take(3).collect();
        outlived.sweep(100);
        assert_eq!(outlived.bytes(), 3 * each);
        // A hundred more Leases, each freed at once. They must not add up.
        for _ in 0..100 {
            outlived.push(&object(100_000));
            assert!(outlived.bytes() <= 6 * each, "{} of {each} each", outlived.bytes());
        }
        drop(kept);
        outlived.sweep(100);
        assert_eq!((outlived.bytes(), outlived.traces.len()), (0, 0));
    }
}
