//! Tickets: handles by which the submitter of a change learns the outcome of the change. A ticket is settled when the
//! outcome is known.

use crate::table::object::Object;
use std::cell::Cell;
use std::collections::VecDeque;
use std::fmt;
use std::rc::Rc;

/// A handle to one submitted change. If the handle is dropped, the change still takes place.
#[derive(Debug)]
pub struct Ticket(Rc<Shared>);

struct Shared {
    number: u64,
    outcome: Cell<Outcome>,
    /// Whether [`Tickets::kept`] contains this ticket too, to reuse its memory.
    is_kept: bool,
}

/// Makes tickets, and reuses the memory of old tickets.
#[derive(Debug, Default)]
pub(super) struct Tickets {
    /// Tickets whose memory is reused when nobody holds them any more. Roughly oldest first: if the first ticket is
    /// still in use, it moves to the back.
    kept: VecDeque<Rc<Shared>>,
}

/// The outcome of a change.
#[derive(Clone, Debug)]
pub enum Outcome {
    /// The outcome is not known yet, or was already taken.
    Pending,
    /// The change is durable and applied to the table. Contains the new state of the Lease. For a deletion, contains
    /// the last state, but with the version of the deletion.
    Applied(Object),
    /// The change had no effect. Usually another write has changed the Lease first, and the table has the state after
    /// this other write. In rare cases, every process skips the whole batch, for example because it has forgotten the
    /// batch's writer.
    Rejected,
    /// The store refused the change's batch. In etcd, an earlier attempt of the batch may still take effect.
    Failed(Failure),
}

/// The reason why a change failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Failure {
    /// The store had no space.
    NoSpace,
    /// The change is larger than the store allows.
    TooLarge,
}

/// The reason why the journal does not accept a change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// Another change of the same Lease is in flight. Contains the ticket number of this other change.
    Busy(u64),
    /// Too many changes are waiting.
    Full,
    /// The table is not loaded yet.
    Loading,
    /// The store had no space for a recent commit.
    NoSpace,
    /// The store is unreachable at present.
    Unreachable,
    /// The journal accepts no more changes, because it was stopped or its store failed.
    Stopped,
}

impl fmt::Debug for Shared {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Shared").field("number", &self.number).finish_non_exhaustive()
    }
}

impl Ticket {
    /// Returns the number of the change. Changes are numbered in the order of submission.
    #[must_use]
    pub fn number(&self) -> u64 {
        self.0.number
    }

    /// Whether the outcome is known and not yet taken.
    #[must_use]
    pub fn is_settled(&self) -> bool {
        self.read(|outcome| !matches!(outcome, Outcome::Pending))
    }

    /// Brings the encoding of the Lease in the outcome into the processor's caches, if the change is applied. The
    /// result has no meaning.
    #[inline]
    #[must_use]
    pub fn touch(&self) -> usize {
        self.read(|outcome| if let Outcome::Applied(object) = outcome { object.touch_encoding() } else { 0 })
    }

    #[inline]
    fn read<T>(&self, read: impl FnOnce(&Outcome) -> T) -> T {
        let outcome = self.0.outcome.replace(Outcome::Pending);
        let result = read(&outcome);
        self.0.outcome.set(outcome);
        result
    }

    /// Takes the outcome. Returns [`Outcome::Pending`] before the change is settled, and after the outcome was taken.
    #[must_use]
    pub fn take(&self) -> Outcome {
        self.0.outcome.replace(Outcome::Pending)
    }
}

impl Drop for Ticket {
    fn drop(&mut self) {
        // `Tickets::kept` may contain this ticket for long. An outcome that nobody has taken would hold a Lease in
        // memory.
        self.0.outcome.set(Outcome::Pending);
    }
}

impl Tickets {
    /// Creates a ticket, and the handle that settles it.
    pub(super) fn make(&mut self, number: u64) -> (Ticket, Settle) {
        let shared = Shared { number, outcome: Cell::new(Outcome::Pending), is_kept: true };
        // Submitters drop tickets roughly in order. If the oldest ticket is still in use, it moves to the back of the
        // queue. The new ticket then gets memory of its own.
        let mut oldest = self.kept.pop_front();
        let shared = match oldest.as_mut().and_then(Rc::get_mut) {
            Some(place) => {
                *place = shared;
                oldest.take().expect("the oldest ticket")
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

/// The handle that settles a ticket.
#[derive(Debug)]
pub(super) struct Settle(Rc<Shared>);

impl Settle {
    /// Sets the outcome if the ticket still exists.
    #[inline]
    pub(super) fn settle(self, outcome: Outcome) {
        debug_assert!(matches!(self.0.outcome.replace(Outcome::Pending), Outcome::Pending), "settled twice");
        if Rc::strong_count(&self.0) > 1 + usize::from(self.0.is_kept) {
            self.0.outcome.set(outcome);
        }
    }
}

/// Maximum number of tickets in `Tickets::kept`. These tickets take less than 1 MB. Under an ordinary load, fewer
/// changes are in flight.
const KEPT_MAX: usize = 8 * 1024;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_dropped_ticket_holds_no_outcome() {
        let mut tickets = Tickets::default();
        let (ticket, settle) = tickets.make(1);
        settle.settle(Outcome::Failed(Failure::NoSpace));
        assert!(ticket.is_settled());
        drop(ticket);
        let kept = tickets.kept.front().expect("the memory of the ticket");
        assert!(matches!(kept.outcome.replace(Outcome::Pending), Outcome::Pending));
    }

    #[test]
    fn reading_an_outcome_keeps_it() {
        let mut tickets = Tickets::default();
        let (ticket, settle) = tickets.make(1);
        settle.settle(Outcome::Failed(Failure::NoSpace));
        assert_eq!(ticket.touch(), 0);
        assert!(ticket.is_settled());
        assert!(matches!(ticket.take(), Outcome::Failed(Failure::NoSpace)));
    }
}
