//! [`Permits`] limits how much expensive work, such as long responses, runs concurrently. It limits the work in total
//! and for each user.
//!
//! One user holds at most a quarter of the permits. Another quarter is reserved for the cluster's own users. So a
//! single user cannot take the permits of everybody else, and many users together cannot stop the cluster's components.
//!
//! If a user finds no free permit, the server may revoke a permit whose response nobody reads. Among the users with
//! such unread responses, it finds the user with the most permits. If this user holds more permits than the requester,
//! this user loses the permit whose response was unread for longest. A slow response that makes progress keeps its
//! permit.

use foldhash::fast::RandomState;
use hashbrown::HashMap;
use slab::Slab;
use std::cell::{Cell, RefCell};
use std::hash::BuildHasher;
use std::rc::Rc;

/// The requester of a permit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Requester<'a> {
    /// A user of the cluster itself, for whom a part of the permits is reserved.
    Cluster(&'a str),
    /// No user in particular: neither a user's share nor the reserved part limits this requester. A cleartext peer
    /// requests permits this way, since it has all rights and no name. So do compressions, which need no shares.
    Unnamed,
    /// Any other user.
    User(&'a str),
}

/// A counting semaphore for one thread, which gives out permits.
#[derive(Debug)]
pub(crate) struct Permits {
    pool: Rc<RefCell<Pool>>,
}

/// A permit: the right to one of a limited number of concurrent tasks, such as long responses. When this value is
/// dropped, the permit is free again.
#[derive(Debug)]
pub struct Permit {
    pool: Rc<RefCell<Pool>>,
    slot: usize,
    serial: u64,
    /// Whether the response has progressed since the last check.
    has_progressed: Cell<bool>,
}

#[derive(Debug)]
struct Pool {
    max: usize,
    held: Slab<Held>,
    /// Number of permits that each user holds, by the hash of the user's name. Two users with the same hash have one
    /// share together.
    by_user: HashMap<u64, usize, RandomState>,
    /// Serial number of the last permit taken.
    serial: u64,
    /// Number of held permits that may be revoked.
    revocable: usize,
    /// Number of permits revoked since the start.
    revoked: u64,
}

#[derive(Debug)]
struct Held {
    user: u64,
    serial: u64,
    /// Number of checks since the last progress that found the response waiting for its peer.
    unread_checks: u32,
}

impl Permits {
    /// Returns a semaphore with `max` free permits.
    #[must_use]
    pub(crate) fn new(max: usize) -> Self {
        let pool = Pool { max, held: Slab::new(), by_user: HashMap::default(), serial: 0, revocable: 0, revoked: 0 };
        Self { pool: Rc::new(RefCell::new(pool)) }
    }

    /// Takes a permit. Returns `None` if the requester holds its whole share. Also returns `None` if every permit that
    /// the requester may use is taken, and none may be revoked for it.
    #[must_use]
    pub(crate) fn take(&self, requester: Requester<'_>) -> Option<Permit> {
        let (slot, serial) = self.pool.borrow_mut().take(requester)?;
        Some(Permit { pool: Rc::clone(&self.pool), slot, serial, has_progressed: Cell::new(false) })
    }

    /// Returns the number of permits that are taken.
    #[must_use]
    pub(crate) fn taken(&self) -> usize {
        self.pool.borrow().held.len()
    }

    /// Returns the number of permits revoked since the start.
    #[must_use]
    pub(crate) fn revoked(&self) -> u64 {
        self.pool.borrow().revoked
    }
}

impl Permit {
    /// Records that the response has progressed: its peer has read some of it, so that more can be queued.
    pub(crate) fn note_progress(&self) {
        self.has_progressed.set(true);
    }

    /// Checks whether the peer reads the response. `is_blocked` is whether the response waits for its peer. Returns
    /// whether the permit is still held, that is, not revoked. Call this function at intervals of a second or more.
    #[must_use]
    pub(crate) fn check_reading(&self, is_blocked: bool) -> bool {
        let mut pool = self.pool.borrow_mut();
        let Pool { held, revocable, .. } = &mut *pool;
        let Some(held) = held.get_mut(self.slot).filter(|held| held.serial == self.serial) else { return false };
        let was_revocable = held.is_revocable();
        if self.has_progressed.take() {
            held.unread_checks = 0;
        } else if is_blocked {
            held.unread_checks = held.unread_checks.saturating_add(1);
        }
        *revocable = *revocable - usize::from(was_revocable) + usize::from(held.is_revocable());
        true
    }
}

impl Held {
    fn is_revocable(&self) -> bool {
        self.unread_checks >= UNREAD_CHECKS_MIN
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        let mut pool = self.pool.borrow_mut();
        if pool.held.get(self.slot).is_some_and(|held| held.serial == self.serial) {
            pool.remove(self.slot);
        }
    }
}

impl Pool {
    fn take(&mut self, requester: Requester<'_>) -> Option<(usize, u64)> {
        let part = (self.max / SHARE).max(1);
        let (name, share, room) = match requester {
            Requester::Cluster(name) => (name, part, self.max),
            Requester::Unnamed => ("", self.max, self.max),
            Requester::User(name) => (name, part, self.max - self.max / SHARE),
        };
        let user = self.by_user.hasher().hash_one(name);
        let own = self.count(user);
        if own >= share {
            return None;
        }
        if self.held.len() >= room {
            let unread = self.unread_of_most(own)?;
            self.remove(unread);
            self.revoked += 1;
        }
        self.serial += 1;
        *self.by_user.entry(user).or_insert(0) += 1;
        let slot = self.held.insert(Held { user, serial: self.serial, unread_checks: 0 });
        Some((slot, self.serial))
    }

    /// Returns the number of permits that `user` holds.
    fn count(&self, user: u64) -> usize {
        self.by_user.get(&user).copied().unwrap_or(0)
    }

    /// Finds the user with the most permits, among the users with an unread response. If this user holds more than
    /// `own` permits, returns the slot of the permit whose response was unread for longest.
    fn unread_of_most(&self, own: usize) -> Option<usize> {
        if self.revocable == 0 {
            return None;
        }
        let revocable = self.held.iter().filter(|(_, held)| held.is_revocable() && self.count(held.user) > own);
        revocable.max_by_key(|(_, held)| (self.count(held.user), held.unread_checks)).map(|(slot, _)| slot)
    }

    fn remove(&mut self, slot: usize) {
        let held = self.held.remove(slot);
        self.revocable -= usize::from(held.is_revocable());
        if let Some(count) = self.by_user.get_mut(&held.user) {
            *count -= 1;
            if *count == 0 {
                self.by_user.remove(&held.user);
            }
        }
    }
}

/// Divisor of the number of all permits. The quotient is the share of each user. It is also the part that is reserved
/// for the cluster's own users.
const SHARE: usize = 4;

/// Number of checks that must find a response unread before its permit may be revoked. The first check may come right
/// after the last progress, so one check is not enough.
const UNREAD_CHECKS_MIN: u32 = 2;

#[cfg(test)]
mod tests {
    use super::*;
    use Requester::{Cluster, Unnamed, User};

    fn take_all(permits: &Permits, requester: Requester<'_>) -> Vec<Permit> {
        std::iter::from_fn(|| permits.take(requester)).collect()
    }

    #[test]
    fn a_returned_permit_can_be_taken_again() {
        let permits = Permits::new(2);
        let taken = [permits.take(Unnamed), permits.take(Unnamed)];
        assert!(taken.iter().all(Option::is_some));
        assert!(permits.take(Unnamed).is_none());
        drop(taken);
        assert!(permits.take(Unnamed).is_some());
    }

    #[test]
    fn a_user_has_a_share_and_the_cluster_has_a_reserve() {
        let permits = Permits::new(16);
        let taken: Vec<_> = ["a", "b", "c", "d"].map(|name| take_all(&permits, User(name))).into();
        assert_eq!(taken.iter().map(Vec::len).collect::<Vec<_>>(), [4, 4, 4, 0]);
        let of_cluster = take_all(&permits, Cluster("system:a"));
        assert_eq!((of_cluster.len(), permits.taken()), (4, 16));
        drop(taken);
        assert_eq!(take_all(&permits, Cluster("system:a")).len(), 0, "a user of the cluster has a share too");
        assert_eq!(take_all(&permits, Unnamed).len(), 12);
        drop(of_cluster);
        assert_eq!(permits.taken(), 0);
    }

    #[test]
    fn the_longest_unread_permit_is_revoked_for_a_smaller_user() {
        let permits = Permits::new(4);
        let taken = ["a", "b", "c"].map(|name| permits.take(User(name)).expect("a share"));
        assert!(permits.take(User("d")).is_none(), "all are read");
        for _ in 0..UNREAD_CHECKS_MIN - 1 {
            assert!(taken[1].check_reading(true) && taken[2].check_reading(true));
        }
        assert!(permits.take(User("d")).is_none(), "none is unread for long");
        assert!(
            taken[2].check_reading(true)
                && taken[1].check_reading(true)
                && taken[1].check_reading(true)
                && taken[0].check_reading(false)
        );
        assert!(permits.take(User("a")).is_none(), "it has its share");
        let fourth = permits.take(User("d")).expect("that of b");
        assert!(taken[0].check_reading(true) && !taken[1].check_reading(true) && taken[2].check_reading(true));
        assert_eq!((permits.taken(), permits.revoked()), (3, 1));
        let b = permits.take(User("b")).expect("that of c");
        assert!(!taken[2].check_reading(false));
        drop(taken);
        assert_eq!(permits.taken(), 2, "a revoked permit is not returned again");
        drop((b, fourth));
        assert_eq!(permits.taken(), 0);
    }

    #[test]
    fn a_slow_reader_keeps_its_permit() {
        let permits = Permits::new(4);
        let taken = ["a", "b", "c"].map(|name| permits.take(User(name)).expect("a share"));
        for _ in 0..10 {
            taken.iter().for_each(Permit::note_progress);
            // Each check finds the response blocked, but its peer has made room before every second check.
            assert!(taken.iter().all(|permit| permit.check_reading(true)));
            assert!(taken.iter().all(|permit| permit.check_reading(true)));
            assert!(permits.take(User("d")).is_none());
        }
        assert!(taken[0].check_reading(true), "unread at two checks in a row");
        drop(permits.take(User("d")).expect("that of a"));
        assert_eq!(permits.revoked(), 1);
        drop(taken);
        assert_eq!((permits.taken(), permits.pool.borrow().revocable), (0, 0));
    }

    #[test]
    fn the_user_with_most_permits_loses_one() {
        let permits = Permits::new(12);
        let of_one = permits.take(User("a")).expect("a share");
        let of_other = take_all(&permits, User("b"));
        let rest: Vec<_> = ["c", "d", "e"].map(|name| take_all(&permits, User(name))).into();
        (0..9).for_each(|_| assert!(of_one.check_reading(true)));
        (0..UNREAD_CHECKS_MIN).for_each(|_| assert!(of_other.iter().all(|permit| permit.check_reading(true))));
        let taken = permits.take(User("f")).expect("one of b");
        assert!(of_one.check_reading(true) && !of_other.iter().all(|permit| permit.check_reading(true)));
        drop((taken, rest));
    }
}
