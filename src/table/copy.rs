//! All Leases of the table at one version, read in steps while the table goes on changing, and in no particular order.
//!
//! A copy walks the Leases by key. A change of a Lease ahead of the walk hands the state before to the copy, and the
//! copy gives that state out instead. So a change costs one more queued state, however many Leases there are. The walk
//! passes over states of later versions. A list must be in order, and is a [`Snapshot`].
//!
//! ```text
//!   table now:   a  b  c' d  e'        c was at version 5, the copy is of version 7, c' is at version 8
//!                   ^ start            d is the next
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
use std::rc::Rc;

/// The copies of a table that are under way. A clone is another handle of the same.
#[derive(Clone, Debug, Default)]
pub(super) struct Copies(Rc<RefCell<Vec<Rc<RefCell<Progress>>>>>);

/// How far a copy has come.
#[derive(Debug)]
struct Progress {
    version: ResourceVersion,
    /// First key that the walk has not come to; none when the walk is done.
    start: Option<String>,
    /// States that changed before the walk came to them, and are not given out.
    overtaken: States,
}

/// A copy under way.
#[derive(Debug)]
pub struct TableCopy {
    copies: Copies,
    progress: Rc<RefCell<Progress>>,
}

impl Copies {
    /// Begins a copy of the table at `version`, the present one. What the copy holds ends in `discard`.
    pub(super) fn begin(&self, version: ResourceVersion, discard: Discard) -> TableCopy {
        let progress = Progress { version, start: Some(String::new()), overtaken: States::new(discard) };
        let progress = Rc::new(RefCell::new(progress));
        self.0.borrow_mut().push(Rc::clone(&progress));
        TableCopy { copies: self.clone(), progress }
    }

    /// A change has taken `before` away. To be called for each change.
    #[inline]
    pub(super) fn on_change(&self, before: Option<&Object>) {
        let copies = self.0.borrow();
        if !copies.is_empty()
            && let Some(before) = before
        {
            copies.iter().for_each(|progress| progress.borrow_mut().on_change(before));
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
    /// The version of all that comes out.
    #[must_use]
    pub fn version(&self) -> ResourceVersion {
        self.progress.borrow().version
    }

    /// Gives the next states to `each`, which says whether to go on after each. Looks at no more than `states_max`
    /// states. [`Stepped::Done`] if there are no more.
    pub fn next(&mut self, table: &Table, states_max: usize, mut each: impl FnMut(&Object) -> bool) -> Stepped {
        let Progress { version, start, overtaken } = &mut *self.progress.borrow_mut();
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

impl Drop for TableCopy {
    fn drop(&mut self) {
        self.copies.0.borrow_mut().retain(|progress| !Rc::ptr_eq(progress, &self.progress));
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
        let mut lease = Lease::default();
        lease.metadata.namespace = "n".into();
        lease.metadata.name = format!("l{name:02}").into();
        lease.spec.holder_identity = Some(holder.to_string().into());
        lease
    }

    /// Versions of states, by key.
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

    /// Goal: whatever changes between the steps, each copy gives out the states of its version, and each of them once.
    #[test]
    fn a_copy_gives_out_the_states_of_its_version_once() {
        for seed in 0..500 {
            let mut random = fastrand::Rng::with_seed(seed);
            let mut table = Table::new(ResourceVersion(10), 4, usize::MAX);
            let mut copies: Vec<(TableCopy, States, States)> = Vec::new();
            for _ in 0..200 {
                match random.u8(..10) {
                    0 if copies.len() < 3 => {
                        let states = table.ordered.values().map(|slot| table.object(*slot));
                        copies.push((table.copy(), states.map(state).collect(), States::new()));
                    }
                    1 if !copies.is_empty() => drop(copies.swap_remove(random.usize(..copies.len()))),
                    2..5 if !copies.is_empty() => {
                        let at = random.usize(..copies.len());
                        let (copy, expected, given) = &mut copies[at];
                        let mut wanted = random.u8(..5);
                        let stepped = copy.next(&table, random.usize(1..8), |object| {
                            let (key, version) = state(object);
                            assert_eq!(given.insert(key, version), None, "seed {seed}: {:?} twice", object.key());
                            wanted = wanted.saturating_sub(1);
                            wanted > 0
                        });
                        if stepped == Stepped::Done {
                            assert_eq!(given, expected, "seed {seed}");
                            drop(copies.swap_remove(at));
                        }
                    }
                    _ => change_at_random(&mut table, &mut random),
                }
            }
            copies.clear();
            assert!(table.copies.0.borrow().is_empty(), "a copy that has ended is told of changes");
        }
    }
}
