//! How many of what takes much memory or time may be under way at once.

use std::rc::Rc;

/// A counting semaphore for one thread: at most `max` permits are out.
#[derive(Debug)]
pub(crate) struct Permits {
    taken: Rc<()>,
    max: usize,
}

/// One of the permits, given back when it is dropped.
#[derive(Debug)]
pub struct Permit {
    _taken: Rc<()>,
}

impl Permits {
    /// `max` permits, none of them out.
    #[must_use]
    pub(crate) fn new(max: usize) -> Self {
        Self { taken: Rc::default(), max }
    }

    /// One more, unless all are taken.
    #[must_use]
    pub(crate) fn take(&self) -> Option<Permit> {
        // The count has one for the permits themselves.
        (Rc::strong_count(&self.taken) <= self.max).then(|| Permit { _taken: Rc::clone(&self.taken) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_is_done_makes_room() {
        let permits = Permits::new(2);
        let taken = [permits.take(), permits.take()];
        assert!(taken.iter().all(Option::is_some));
        assert!(permits.take().is_none());
        drop(taken);
        assert!(permits.take().is_some());
    }
}
