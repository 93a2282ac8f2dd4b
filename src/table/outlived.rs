//! Long Leases that the table has lost and somebody may still hold: the event log, or lists under way.
//!
//! What the log holds is bounded, and a list needs one state of each Lease. But lists of as many versions need as many
//! states of it, so that who rewrites a long one beside lists that nobody reads could fill the memory before these have
//! taken too long. Of short ones there cannot come as much in that time, and they are not looked at.

use crate::limits::METERED_BYTES_MIN;
use crate::table::object::{Object, Trace};
use std::collections::VecDeque;

/// Traces of them, which keep none of them in memory.
#[derive(Debug, Default)]
pub(super) struct Outlived {
    /// In no order, since those that are looked at and still held go to the back.
    traces: VecDeque<(Trace, usize)>,
    /// Sum of what those have taken, in bytes.
    bytes: usize,
}

impl Outlived {
    /// The table has lost `object`, and no renewal of it is left there. Looks at two of the others, so that there are
    /// not many more than are held.
    pub(super) fn push(&mut self, object: &Object) {
        let bytes = object.memory_bytes();
        if bytes <= METERED_BYTES_MIN {
            return;
        }
        self.traces.push_back((object.trace(), bytes));
        self.bytes += bytes;
        self.look(2);
    }

    /// Forgets those of the next `states_max` that nobody holds.
    pub(super) fn look(&mut self, states_max: usize) {
        for _ in 0..states_max.min(self.traces.len()) {
            let Some((trace, bytes)) = self.traces.pop_front() else { return };
            if trace.is_held() {
                self.traces.push_back((trace, bytes));
            } else {
                self.bytes -= bytes;
            }
        }
    }

    /// An estimate of the memory that they take, in bytes; more than that if not all have been looked at since they
    /// were let go of.
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
        outlived.look(100);
        assert_eq!(outlived.bytes(), 3 * each);
        // As many again, each let go of at once: they do not heap up.
        for _ in 0..100 {
            outlived.push(&object(100_000));
            assert!(outlived.bytes() <= 6 * each, "{} of {each} each", outlived.bytes());
        }
        drop(kept);
        outlived.look(100);
        assert_eq!((outlived.bytes(), outlived.traces.len()), (0, 0));
    }
}
