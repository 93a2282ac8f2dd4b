//! Requests that take long, apart from the others of their connection.
//!
//! On a front proxy's connection are everybody's requests. Some of them take a thousand times as long as a renewal: a small
//! patch of a Lease of a megabyte does. In the order of their arrival fifty of those would hold up all renewals for seconds.
//! So they wait in a queue of their own, of which one is served at a time, and the others wait for one of them at most.
//!
//! Whether a request takes long is told from the sizes of its body and of the Lease that it names, at which nobody has to look
//! while no Lease is large.

use super::Http2;
use super::receive::Whole;
use crate::limits::LARGE_LEASE_BYTES_MIN;
use crate::serve::{Budget, Turn, named_lease};
use crate::table::Table;
use std::collections::VecDeque;

/// Those of one connection.
#[derive(Debug, Default)]
pub(super) struct Long {
    /// In the order of their arrival; some may have been reset.
    queue: VecDeque<Whole>,
    /// One was served, and of the others none since then.
    are_others_next: bool,
}

impl Long {
    /// Takes a request that takes long; gives back one that does not.
    #[inline]
    pub(super) fn sort_out(&mut self, whole: Whole, table: &Table) -> Option<Whole> {
        if !is_long(&whole, table) {
            return Some(whole);
        }
        self.queue.push_back(whole);
        None
    }

    /// Whether none waits.
    pub(super) fn is_empty(&self) -> bool {
        self.queue.is_empty()
    }

    /// One of the others was served.
    pub(super) fn on_other_served(&mut self) {
        self.are_others_next = false;
    }

    /// Those that wait.
    pub(super) fn iter(&self) -> impl Iterator<Item = &Whole> {
        self.queue.iter()
    }

    /// Forgets those that wait.
    pub(super) fn clear(&mut self) {
        self.queue.clear();
    }
}

impl Http2 {
    /// Serves the first one if others were served since the last. To be called before the others: if they leave no time in any
    /// turn, they and the long ones take turns.
    pub(super) fn serve_long_before_others(&mut self, budget: &mut Budget, turn: &mut Turn<'_>) {
        if !self.long.are_others_next {
            self.serve_first_long(budget, turn);
        }
    }

    /// Serves the first one if there are no others.
    pub(super) fn serve_long_after_others(&mut self, budget: &mut Budget, turn: &mut Turn<'_>) {
        if self.whole.is_empty() {
            self.serve_first_long(budget, turn);
        }
    }

    /// Not in a turn in which others were served: their answers would wait.
    fn serve_first_long(&mut self, budget: &mut Budget, turn: &mut Turn<'_>) {
        if turn.output.len() < budget.room
            && !budget.has_answers
            && !turn.service.pace.is_over()
            && let Some(first) = self.long.queue.pop_front()
        {
            self.serve_one(first, turn);
            budget.has_answers = true;
            self.long.are_others_next = true;
        }
    }
}

#[inline]
fn is_long(whole: &Whole, table: &Table) -> bool {
    let (target, body_bytes) = whole.target_and_body_bytes();
    body_bytes >= LARGE_LEASE_BYTES_MIN || table.has_large() && is_about_large(target, table)
}

#[cold]
fn is_about_large(target: &[u8], table: &Table) -> bool {
    let found = named_lease(target).and_then(|(namespace, name)| table.find(&namespace, &name));
    found.is_some_and(|(_, object)| object.is_large())
}
