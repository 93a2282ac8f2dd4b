//! Requests that take long, apart from the others of their connection.
//!
//! On a front proxy's connection are everybody's requests. Some of them take a thousand times as long as a renewal: a
//! small patch of a Lease of a megabyte does. In the order of their arrival fifty of those would hold up all renewals
//! for seconds. So they wait in a queue of their own, of which one is served at a time, and the others wait for one of
//! them at most.
//!
//! Whether a request takes long is told from the sizes of its body and of the Lease that it names, at which nobody has
//! to look while no Lease is large.

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
    /// Turns of the connection in which others were before them, since one was served.
    turns_waited: u32,
    /// Streams that were reset since those that stand here for nothing were swept out.
    resets: usize,
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
    /// Begins the connection's turn: serves the first one if it has waited for the others long enough.
    #[inline]
    pub(super) fn serve_long_due(&mut self, budget: &mut Budget, turn: &mut Turn<'_>) {
        if std::mem::replace(&mut budget.is_begun, true) || self.long.is_empty() {
            return;
        }
        if self.long.turns_waited >= TURNS_WAITED_MAX {
            self.serve_long(budget, turn);
        }
        self.long.turns_waited = self.long.turns_waited.saturating_add(1);
    }

    /// Serves the first one. Not in a turn in which others were served: their answers would wait.
    pub(super) fn serve_long(&mut self, budget: &mut Budget, turn: &mut Turn<'_>) {
        while turn.output.len() < budget.room
            && !budget.has_answers
            && !turn.service.pace.is_over()
            && let Some(first) = self.long.queue.pop_front()
        {
            // One that was reset takes no time.
            budget.has_answers = self.serve_one(first, turn);
            self.long.turns_waited = 0;
        }
    }

    /// A stream was reset. What stands in the queue for nothing is swept out before it is much: who resets could fill
    /// it.
    pub(super) fn sweep_long(&mut self) {
        self.long.resets += usize::from(!self.long.is_empty());
        if self.long.resets <= RESETS_MIN + self.long.queue.len() / 2 {
            return;
        }
        self.long.resets = 0;
        let Self { connection, received_bytes, .. } = self;
        self.long.queue.retain(|whole| {
            let is_open = connection.has_stream(whole.key());
            if !is_open {
                *received_bytes -= whole.received_bytes();
            }
            is_open
        });
    }
}

/// Turns of which a long request lets others have all, while there are others: each may hold a hundred of them.
const TURNS_WAITED_MAX: u32 = 16;

/// Streams that may be reset, beside half as many as wait, before the queue is gone over.
const RESETS_MIN: usize = 16;

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
