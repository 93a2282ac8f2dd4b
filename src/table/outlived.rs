//! [`Outlived`] counts the memory of long Leases that the table has replaced or deleted, and that the event log or
//! running lists may still hold. Above a limit, the server refuses writes of long Leases. A Lease is long if it takes
//! more than [`METERED_BYTES_MIN`] bytes of memory.
//!
//! The memory of the event log is limited, and one list needs one state of each Lease. But lists at many versions need
//! many states of one Lease. So a client could start lists without reading their responses, and rewrite a long Lease
//! meanwhile. The client could fill the memory before the lists reach their deadlines. Short Leases cannot fill the
//! memory within that time, so they are not tracked.

use crate::limits::METERED_BYTES_MIN;
use crate::table::object::{Object, Trace};
use std::collections::VecDeque;

/// Traces of the long Leases that the table has replaced or deleted. A trace is a weak reference, so it keeps no Lease
/// in memory.
#[derive(Debug, Default)]
pub(super) struct Outlived {
    /// Traces, each with the estimated memory of its Lease in bytes. A check drops a trace whose Lease is no longer in
    /// memory, and moves any other trace to the back.
    traces: VecDeque<(Trace, usize)>,
    /// Sum of the bytes in `traces`.
    bytes: usize,
}

impl Outlived {
    /// Adds a trace of `object`, if `object` is long. The caller has removed `object` from the table, and the table has
    /// no renewal of `object`, which would share its memory. Also checks two traces, so that the number of traces stays
    /// near the number of Leases that are still in memory.
    pub(super) fn push(&mut self, object: &Object) {
        if object.memory_bytes() <= METERED_BYTES_MIN {
            return;
        }
        // Encodes the object first, as the event log does for its own sum of bytes, since the table compares the two
        // sums. Without an encoding, the estimate would be much larger.
        let bytes = object.encoded_memory_bytes();
        self.traces.push_back((object.trace(), bytes));
        self.bytes += bytes;
        self.sweep(2);
    }

    /// Checks the next `states_max` traces, and drops each trace whose Lease is no longer in memory. Returns whether a
    /// trace was dropped.
    pub(super) fn sweep(&mut self, states_max: usize) -> bool {
        let traces_before = self.traces.len();
        for _ in 0..states_max.min(traces_before) {
            let Some((trace, bytes)) = self.traces.pop_front() else { break };
            if trace.is_held() {
                self.traces.push_back((trace, bytes));
            } else {
                self.bytes -= bytes;
            }
        }
        self.traces.len() < traces_before
    }

    /// Returns the estimated memory of the traced Leases, in bytes. A Lease that was freed after its last check still
    /// counts.
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
        Object::new(Key::new("n", "a"), ResourceVersion(1), ResourceVersion(1), lease)
    }

    #[test]
    fn large_states_count_while_they_are_held() {
        let mut outlived = Outlived::default();
        outlived.push(&object(100));
        assert_eq!(outlived.bytes(), 0, "a short one");
        let held: Vec<_> = (0..10).map(|_| object(100_000)).collect();
        for object in &held {
            outlived.push(object);
        }
        let each = held[0].memory_bytes();
        assert!((200_000..250_000).contains(&each), "the text and its encoding: {each}");
        assert_eq!(outlived.bytes(), 10 * each);
        let kept: Vec<_> = held.into_iter().take(3).collect();
        assert!(outlived.sweep(100));
        assert_eq!(outlived.bytes(), 3 * each);
        assert!(!outlived.sweep(100), "all are held");
        // Adds a hundred more Leases and frees each one at once. Each `push` checks two traces, so the bytes of the
        // freed Leases do not add up.
        for _ in 0..100 {
            outlived.push(&object(100_000));
            assert!(outlived.bytes() <= 6 * each, "{} of {each} each", outlived.bytes());
        }
        drop(kept);
        while outlived.sweep(1) {}
        assert_eq!((outlived.bytes(), outlived.traces.len()), (0, 0));
    }
}
