//! Caps on concurrent expensive work.

use std::rc::Rc;

/// A counting semaphore for one thread, with at most `max` permits taken.
#[derive(Debug)]
pub(crate) struct Permits {
    taken: Rc<()>,
    max: usize,
}

/// A permit, returned when it is dropped.
#[derive(Debug)]
pub struct Permit {
    _taken: Rc<()>,
}

impl Permits {
    /// Returns a semaphore with `max` free permits.
    #[must_use]
    pub(crate) fn new(max: usize) -> Self {
        Self { taken: Rc::default(), max }
    }

    /// Takes a permit, unless all are taken.
    #[must_use]
    pub(crate) fn take(&self) -> Option<Permit> {
        // The count includes the semaphore itself.
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
