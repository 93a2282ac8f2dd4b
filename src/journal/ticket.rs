//! What becomes of a change that was submitted, and who asks for that.

use crate::table::object::Object;
use std::cell::Cell;
use std::collections::VecDeque;
use std::fmt;
use std::rc::Rc;

/// A handle on one change that was submitted. When it is dropped the change goes on.
#[derive(Debug)]
pub struct Ticket(Rc<Shared>);

struct Shared {
    number: u64,
    outcome: Cell<Outcome>,
    /// Whether a [`Tickets`] keeps it.
    is_kept: bool,
}

/// Makes tickets, out of the memory of those that are done with.
#[derive(Debug, Default)]
pub(super) struct Tickets {
    /// The last tickets, oldest first.
    kept: VecDeque<Rc<Shared>>,
}

/// What has become of a change.
#[derive(Clone, Debug)]
pub enum Outcome {
    /// The change is neither durable nor lost yet.
    Pending,
    /// The change is durable and in the table. Of a deletion, the last state with the version of the deletion.
    Applied(Object),
    /// Another write came first. The table is as that left it.
    Rejected,
    /// The change did not happen.
    Failed(Failure),
}

/// Why a change did not happen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Failure {
    /// The store had no room.
    NoSpace,
}

/// Why a change is not taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// A change of the same Lease is in flight: the one with the ticket of this number.
    Busy(u64),
    /// Too many changes wait.
    Full,
    /// The table is not loaded yet.
    Loading,
    /// The store had no room a moment ago.
    NoSpace,
    /// The store cannot be reached at present.
    Unreachable,
    /// The journal takes no more changes, because it was stopped or its store failed.
    Stopped,
}

impl fmt::Debug for Shared {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Shared").field("number", &self.number).finish_non_exhaustive()
    }
}

impl Ticket {
    /// Number of the change; each one that is submitted has the next.
    #[must_use]
    pub fn number(&self) -> u64 {
        self.0.number
    }

    /// Whether there is an outcome to take.
    #[must_use]
    pub fn is_settled(&self) -> bool {
        let outcome = self.0.outcome.replace(Outcome::Pending);
        let is_settled = !matches!(outcome, Outcome::Pending);
        self.0.outcome.set(outcome);
        is_settled
    }

    /// Takes the outcome out. It is pending for as long as there is none, and after it has been taken.
    #[must_use]
    pub fn take(&self) -> Outcome {
        self.0.outcome.replace(Outcome::Pending)
    }
}

impl Tickets {
    /// A ticket, and the end at which it is settled.
    pub(super) fn make(&mut self, number: u64) -> (Ticket, Settle) {
        let shared = Shared { number, outcome: Cell::new(Outcome::Pending), is_kept: true };
        // Tickets are done with about in their order. One that lasts longer goes to the end.
        let mut oldest = self.kept.pop_front();
        let shared = match oldest.as_mut().and_then(Rc::get_mut) {
            Some(place) => {
                *place = shared;
                oldest.take().expect("it has a place")
            }
            None => Rc::new(Shared { is_kept: self.kept.len() + 1 < KEPT_MAX, ..shared }),
        };
        self.kept.extend(oldest);
        if shared.is_kept {
            self.kept.push_back(Rc::clone(&shared));
        }
        (Ticket(Rc::clone(&shared)), Settle(shared))
    }
}

/// The end of a ticket at which the outcome comes in.
#[derive(Debug)]
pub(super) struct Settle(Rc<Shared>);

impl Settle {
    /// Tells the outcome to whoever still asks.
    #[inline]
    pub(super) fn settle(self, outcome: Outcome) {
        debug_assert!(matches!(self.0.outcome.replace(Outcome::Pending), Outcome::Pending), "settled twice");
        if Rc::strong_count(&self.0) > 1 + usize::from(self.0.is_kept) {
            self.0.outcome.set(outcome);
        }
    }
}

/// Tickets whose memory is kept.
const KEPT_MAX: usize = 1024;
