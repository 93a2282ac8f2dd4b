//! [`TableCopy`]: a copy of all Leases at one version. The copy is read in steps, while the table changes. It returns
//! the Leases in no particular order.
//!
//! The copy walks the table by key. If a Lease that the walk has not reached changes, its previous state is queued in
//! `overtaken`. The copy returns the queued state, and the walk skips the newer state. So a change costs one queued
//! state, however many Leases exist. A list needs the order of keys, so it uses a [`Snapshot`].
//!
//! ```text
//!   table now:   a  b  c' d  e'        c was at version 5, the copy is of version 7, c' is at version 8
//!                      ^ start         a and b are returned
//!   overtaken:   c  e
//! ```
//!
//! [`Snapshot`]: crate::table::snapshot::Snapshot

use crate::resource::ResourceVersion;
use crate::table::Table;
use crate::table::discard::{Discard, States};
use crate::table::object::{Key, Object};
use crate::table::snapshot::Stepped;
use std::cell::RefCell;
use std::ops::Bound;
use std::rc::{Rc, Weak};

/// The running copies of a table. Copies that ended since the last change may still be included.
#[derive(Debug, Default)]
pub(super) struct Copies(RefCell<Vec<Weak<RefCell<Progress>>>>);

/// The progress of a copy of the table.
#[derive(Debug)]
struct Progress {
    version: ResourceVersion,
    /// Lower bound of the keys of the table that the copy has not reached; `None` once it has reached the end.
    start: Option<String>,
    /// States of Leases that a change replaced or removed before the copy reached their keys. The copy has not returned
    /// these states yet.
    overtaken: States,
}

/// A running copy of the table.
#[derive(Debug)]
pub struct TableCopy(Rc<RefCell<Progress>>);

impl Copies {
    /// Begins a copy of the table at `version`, the current version. When the copy is dropped, the queued states go to
    /// `discard`.
    pub(super) fn begin(&self, version: ResourceVersion, discard: Discard) -> TableCopy {
        let progress = Progress { version, start: Some(String::new()), overtaken: States::new(discard) };
        let progress = Rc::new(RefCell::new(progress));
        self.0.borrow_mut().push(Rc::downgrade(&progress));
        TableCopy(progress)
    }

    /// Queues `before`, the state that a change replaced or removed, in the copies that need this state. Must be called
    /// for each change.
    #[inline]
    pub(super) fn on_change(&mut self, before: Option<&Object>) {
        let copies = self.0.get_mut();
        if !copies.is_empty()
            && let Some(before) = before
        {
            copies.retain(|copy| copy.upgrade().inspect(|progress| progress.borrow_mut().on_change(before)).is_some());
        }
    }
}

impl Progress {
    fn on_change(&mut self, before: &Object) {
        let is_ahead = self.start.as_ref().is_some_and(|start| start.as_str() <= before.key().as_str());
        if is_ahead && before.version <= self.version {
            self.overtaken.push_back(before.clone());
        }
    }
}

impl TableCopy {
    /// Returns the version of the copy.
    #[must_use]
    pub fn version(&self) -> ResourceVersion {
        self.0.borrow().version
    }

    /// Passes the next states of Leases to `each`. Stops when `each` returns `false`, or after `states_max` examined
    /// states. Returns [`Stepped::Done`] if no state is left.
    pub fn next(&mut self, table: &Table, states_max: usize, mut each: impl FnMut(&Object) -> bool) -> Stepped {
        let Progress { version, start, overtaken } = &mut *self.0.borrow_mut();
        let mut looked_at = 0;
        let mut is_wanted = true;
        while is_wanted
            && looked_at < states_max
            && let Some(state) = overtaken.pop_front()
        {
            looked_at += 1;
            is_wanted = each(&state);
        }
        if let Some(from) = start {
            let mut keys = table.ordered.range::<str, _>((Bound::Included(from.as_str()), Bound::Unbounded)).peekable();
            let mut last: Option<&Key> = None;
            while is_wanted
                && looked_at < states_max
                && let Some((key, slot)) = keys.next()
            {
                let state = table.object(*slot);
                looked_at += 1;
                last = Some(key);
                is_wanted = state.version > *version || each(state);
            }
            if keys.peek().is_none() {
                *start = None;
            } else if let Some(last) = last {
                from.clear();
                from.push_str(last.as_str());
                from.push('\0');
            }
        }
        if start.is_none() && overtaken.is_empty() { Stepped::Done } else { Stepped::More }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lease::Lease;
    use crate::table::change::Change;
    use std::collections::BTreeMap;

    const NAMES: u64 = 20;

    fn lease(name: u64, holder: u64) -> Lease {
        let mut lease = Lease::named("n", &format!("l{name:02}"));
        lease.spec.holder_identity = Some(holder.to_string().into());
        lease
    }

    /// Version of each Lease, by key.
    type States = BTreeMap<String, ResourceVersion>;

    fn state(object: &Object) -> (String, ResourceVersion) {
        (object.key().as_str().to_owned(), object.version)
    }

    fn change_at_random(table: &mut Table, random: &mut fastrand::Rng) {
        let lease = lease(random.u64(..NAMES), random.u64(..));
        match table.find("n", &lease.metadata.name).map(|(slot, _)| table.target(slot)) {
            None => _ = table.apply(Change::Create(Box::new(lease))),
            Some(target) if random.u8(..4) == 0 => _ = table.apply(Change::Delete(target)),
            Some(target) => _ = table.apply(Change::Replace(target, Box::new(lease))),
        }
    }

    /// A copy, the states that it must return, and the states that it has returned.
    struct Running {
        copy: TableCopy,
        expected: States,
        given: States,
    }

    impl Running {
        /// Runs one step. Returns whether the copy is complete. A complete copy must have returned the expected states.
        /// The step ends early after `wanted` states.
        fn step(&mut self, table: &Table, states_max: usize, mut wanted: u8) -> bool {
            let Self { copy, expected, given } = self;
            let stepped = copy.next(table, states_max, |object| {
                let (key, version) = state(object);
                assert_eq!(given.insert(key, version), None, "{:?} twice", object.key());
                wanted = wanted.saturating_sub(1);
                wanted > 0
            });
            if stepped == Stepped::Done {
                assert_eq!(given, expected);
            }
            stepped == Stepped::Done
        }
    }

    /// Goal: each copy returns every Lease as of the copy's version once, whatever changes between the steps.
    #[test]
    fn a_copy_returns_each_state_of_its_version_once() {
        for seed in 0..500 {
            let mut random = fastrand::Rng::with_seed(seed);
            let mut table = Table::new(ResourceVersion(10), 4, usize::MAX);
            let mut copies: Vec<Running> = Vec::new();
            for _ in 0..200 {
                match random.u8(..10) {
                    0 if copies.len() < 3 => {
                        let states = table.ordered.values().map(|slot| table.object(*slot));
                        let expected = states.map(state).collect();
                        copies.push(Running { copy: table.copy(), expected, given: States::new() });
                    }
                    2..5 if !copies.is_empty() => {
                        let at = random.usize(..copies.len());
                        if copies[at].step(&table, random.usize(1..8), random.u8(..5)) {
                            drop(copies.swap_remove(at));
                        }
                    }
                    _ => change_at_random(&mut table, &mut random),
                }
            }
            for running in &mut copies {
                let is_done = (0..NAMES).any(|_| running.step(&table, 8, u8::MAX));
                assert!(is_done, "seed {seed}: a copy without an end");
            }
            copies.clear();
            (0..50).for_each(|_| change_at_random(&mut table, &mut random));
            assert!(table.copies.0.borrow().is_empty(), "a copy that has ended is told of changes");
        }
    }

    #[test]
    fn a_dropped_copy_frees_its_states_in_steps() {
        let mut table = Table::new(ResourceVersion(10), 4, usize::MAX);
        let change = |table: &mut Table, name| {
            let target = table.find("n", &format!("l{name:02}")).map(|(slot, _)| table.target(slot));
            let lease = Box::new(lease(name, table.version().0));
            let change = match target {
                None => Change::Create(lease),
                Some(target) => Change::Replace(target, lease),
            };
            table.apply(change).expect("the present state");
        };
        (0..NAMES).for_each(|name| change(&mut table, name));
        let copy = table.copy();
        (0..NAMES).for_each(|name| change(&mut table, name));
        assert_eq!(table.discarded_len(), 0);
        drop(copy);
        assert_eq!(table.discarded_len(), 20);
    }
}
