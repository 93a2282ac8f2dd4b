//! [`Discard`]: a queue of states of Leases that are no longer needed. The states are freed a few at a time.
//!
//! A running list may hold a handle to the state of each of a million Leases. If a Lease was changed or deleted since,
//! the list may have the last handle to its old state. Freeing a million states at once takes half a second, and every
//! renewal would wait. So an owner of many states moves the states to a [`Discard`] when the owner is dropped. Each
//! turn of the event loop frees some of the states.

use crate::table::object::{Key, Object};
use std::cell::RefCell;
use std::collections::{BTreeMap, VecDeque};
use std::rc::Rc;

/// States of Leases by key; `None` if no Lease existed.
pub(super) type Changes = BTreeMap<Key, Option<Object>>;

/// Queue of states of Leases to be freed. A clone is another handle to the same queue.
#[derive(Clone, Debug, Default)]
pub struct Discard(Rc<RefCell<Heaps>>);

#[derive(Debug, Default)]
struct Heaps {
    heaps: VecDeque<Heap>,
    /// Number of states of Leases in all heaps.
    len: usize,
}

#[derive(Debug)]
enum Heap {
    States(Pieces<Object>),
    Changes(Changes),
}

impl Discard {
    /// Returns the number of states of Leases that wait to be freed.
    #[must_use]
    pub fn len(&self) -> usize {
        self.0.borrow().len
    }

    /// Whether no state of a Lease waits to be freed.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Frees up to `states_max` states of Leases.
    pub fn step(&self, states_max: usize) {
        let Heaps { heaps, len } = &mut *self.0.borrow_mut();
        for _ in 0..states_max {
            let Some(heap) = heaps.front_mut() else { break };
            let is_empty = match heap {
                Heap::States(pieces) => {
                    pieces.pop_front();
                    pieces.is_empty()
                }
                Heap::Changes(changes) => {
                    changes.pop_first();
                    changes.is_empty()
                }
            };
            *len -= 1;
            if is_empty {
                heaps.pop_front();
            }
        }
    }

    /// Queues the states of an older version that a dropped snapshot had collected from the event log.
    pub(super) fn put_changes(&self, changes: Changes) {
        self.put(changes.len(), Heap::Changes(changes));
    }

    fn put(&self, states: usize, heap: Heap) {
        if states > 0 {
            let heaps = &mut *self.0.borrow_mut();
            heaps.len += states;
            heaps.heaps.push_back(heap);
        }
    }
}

/// A queue of states of Leases. The time of each call does not depend on the length of the queue. Neither does the time
/// to drop the queue.
#[derive(Debug)]
pub struct States {
    pieces: Pieces<Object>,
    len: usize,
    discard: Discard,
}

impl States {
    /// Returns an empty queue. When the queue is dropped, its remaining states of Leases go to `discard`.
    #[must_use]
    pub(super) fn new(discard: Discard) -> Self {
        Self { pieces: Pieces::default(), len: 0, discard }
    }

    /// Returns the number of states of Leases in the queue.
    #[must_use]
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether the queue is empty.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Appends a state.
    pub fn push_back(&mut self, object: Object) {
        self.pieces.push_back(object);
        self.len += 1;
    }

    /// Removes the first state.
    pub fn pop_front(&mut self) -> Option<Object> {
        let first = self.pieces.pop_front()?;
        self.len -= 1;
        Some(first)
    }
}

impl Drop for States {
    fn drop(&mut self) {
        self.discard.put(self.len, Heap::States(std::mem::take(&mut self.pieces)));
    }
}

/// A queue that consists of non-empty pieces. A million states in one piece would take 40 MB. Returning 40 MB to the
/// kernel at once takes milliseconds.
#[derive(Debug)]
pub(super) struct Pieces<T>(VecDeque<VecDeque<T>>);

/// Maximum number of elements in one piece of a queue.
const PIECE_STATES: usize = 1024;

impl<T> Default for Pieces<T> {
    fn default() -> Self {
        Self(VecDeque::new())
    }
}

impl<T> Pieces<T> {
    pub(super) fn push_back(&mut self, state: T) {
        match self.0.back_mut() {
            Some(last) if last.len() < PIECE_STATES => last.push_back(state),
            _ => self.0.push_back(VecDeque::from([state])),
        }
    }

    pub(super) fn pop_front(&mut self) -> Option<T> {
        let piece = self.0.front_mut()?;
        let first = piece.pop_front();
        if piece.is_empty() {
            self.0.pop_front();
        }
        first
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lease::Lease;
    use crate::resource::ResourceVersion;

    fn object(version: usize) -> Object {
        Object::new(Key::new("n", "a"), ResourceVersion(1), ResourceVersion(version as u64), Lease::default())
    }

    #[test]
    fn states_are_returned_in_insertion_order() {
        let discard = Discard::default();
        let mut states = States::new(discard.clone());
        let len = 2 * PIECE_STATES + 1;
        (0..len).for_each(|version| states.push_back(object(version)));
        assert_eq!(states.len(), len);
        for version in 0..len {
            assert_eq!(states.pop_front().map(|state| state.version), Some(ResourceVersion(version as u64)));
        }
        assert!(states.is_empty());
        drop(states);
        assert!(discard.is_empty());
    }

    #[test]
    fn dropped_states_are_freed_in_steps() {
        let discard = Discard::default();
        let one = object(1);
        let mut states = States::new(discard.clone());
        (0..5).for_each(|_| states.push_back(one.clone()));
        let changes = [("a", Some(one.clone())), ("b", None), ("c", Some(one.clone()))];
        let changes: Changes = changes.into_iter().map(|(name, state)| (Key::new("n", name), state)).collect();
        assert_eq!(one.handles(), 8);
        drop(states);
        discard.put_changes(changes);
        assert_eq!((discard.len(), one.handles()), (8, 8));
        discard.step(4);
        assert_eq!((discard.len(), one.handles()), (4, 4));
        discard.step(3);
        assert_eq!((discard.len(), one.handles()), (1, 2));
        discard.step(100);
        assert_eq!((discard.len(), one.handles()), (0, 1));
        assert!(discard.is_empty());
    }
}
