//! A FIFO queue of streams, each named by its slot in the slab. The queue is a linked list in an array beside the slab.
//! So an entry needs no allocation, and any slot can be removed from the middle.

/// The queue. It contains each slot at most once.
#[derive(Debug)]
pub(super) struct Queue {
    /// Link of each slot, indexed by slot.
    links: Vec<Link>,
    first: u32,
    last: u32,
}

#[derive(Clone, Copy, Debug)]
struct Link {
    previous: u32,
    next: u32,
    queued: bool,
}

/// Stands for "no slot".
const NONE: u32 = u32::MAX;

const UNLINKED: Link = Link { previous: NONE, next: NONE, queued: false };

impl Default for Queue {
    fn default() -> Self {
        Self { links: Vec::new(), first: NONE, last: NONE }
    }
}

impl Queue {
    /// Whether the queue is empty.
    pub(super) fn is_empty(&self) -> bool {
        self.first == NONE
    }

    /// Appends `slot`, unless it is in the queue.
    pub(super) fn push(&mut self, slot: u32) {
        let at = index(slot);
        if self.links.len() <= at {
            self.links.resize(at + 1, UNLINKED);
        }
        let last = self.last;
        match self.links.get_mut(at) {
            Some(link) if !link.queued => *link = Link { previous: last, next: NONE, queued: true },
            _ => return,
        }
        match self.links.get_mut(index(last)) {
            Some(link) => link.next = slot,
            None => self.first = slot,
        }
        self.last = slot;
    }

    /// Removes and returns the first slot.
    pub(super) fn pop(&mut self) -> Option<u32> {
        let slot = self.first;
        (slot != NONE).then(|| {
            self.remove(slot);
            slot
        })
    }

    /// Removes `slot`, if it is in the queue.
    pub(super) fn remove(&mut self, slot: u32) {
        let Some(link) = self.links.get_mut(index(slot)).filter(|link| link.queued) else { return };
        let Link { previous, next, .. } = std::mem::replace(link, UNLINKED);
        match self.links.get_mut(index(previous)) {
            Some(link) => link.next = next,
            None => self.first = next,
        }
        match self.links.get_mut(index(next)) {
            Some(link) => link.previous = previous,
            None => self.last = previous,
        }
    }

    /// Whether `slot` is in the queue.
    #[cfg(any(test, debug_assertions))]
    pub(super) fn contains(&self, slot: u32) -> bool {
        self.links.get(index(slot)).is_some_and(|link| link.queued)
    }

    /// Iterates over the slots in the queue, in order.
    #[cfg(any(test, debug_assertions))]
    pub(super) fn iter(&self) -> impl Iterator<Item = u32> {
        let link = |slot: u32| self.links.get(index(slot));
        std::iter::successors(Some(self.first), move |slot| link(*slot).map(|link| link.next))
            .take_while(|slot| *slot != NONE)
    }
}

/// Converts a slot to an index; [`NONE`] is beyond any array.
#[inline]
fn index(slot: u32) -> usize {
    usize::try_from(slot).unwrap_or(usize::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_queue_is_first_in_first_out_and_removes_any_slot() {
        let mut queue = Queue::default();
        assert_eq!(queue.pop(), None);
        for slot in [3, 1, 4, 1, 5] {
            queue.push(slot);
        }
        assert_eq!(queue.iter().collect::<Vec<_>>(), [3, 1, 4, 5]);
        queue.remove(4);
        queue.remove(4);
        queue.remove(99);
        assert_eq!(queue.iter().collect::<Vec<_>>(), [3, 1, 5]);
        queue.remove(3);
        queue.remove(5);
        queue.push(3);
        assert_eq!(std::iter::from_fn(|| queue.pop()).collect::<Vec<_>>(), [1, 3]);
        queue.push(7);
        assert_eq!(queue.iter().collect::<Vec<_>>(), [7]);
    }
}
