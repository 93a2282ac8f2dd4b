//! Caps on concurrent expensive work, with a share for each user.
//!
//! One user holds at most a quarter of the permits, and a quarter is for the cluster's own users. So no single user can
//! have everybody else refused, nor can many of them together stop the cluster's components. Some users may be refused
//! while others hold permits for responses that nobody reads. Then the one that was unread longest is revoked, if its
//! user holds more than the refused one.

use foldhash::fast::RandomState;
use hashbrown::HashMap;
use slab::Slab;
use std::cell::RefCell;
use std::hash::BuildHasher;
use std::rc::Rc;

/// Who asks for a permit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Requester<'a> {
    /// A user of the cluster itself, for whom a part of the permits is reserved.
    Cluster(&'a str),
    /// A peer without a name, which has all rights: neither share nor reserve bounds it.
    Unnamed,
    /// Any other user.
    User(&'a str),
}

/// A counting semaphore for one thread.
#[derive(Debug)]
pub(crate) struct Permits {
    pool: Rc<RefCell<Pool>>,
}

/// A permit, returned when it is dropped.
#[derive(Debug)]
pub struct Permit {
    pool: Rc<RefCell<Pool>>,
    slot: usize,
    serial: u64,
}

#[derive(Debug)]
struct Pool {
    max: usize,
    held: Slab<Held>,
    /// Permits of each user, by the hash of the name. Two users with one hash share a share.
    by_user: HashMap<u64, usize, RandomState>,
    /// Serial number of the last permit.
    serial: u64,
    /// Held permits that may be revoked.
    revocable: usize,
    /// Permits revoked since the start.
    revoked: u64,
}

#[derive(Debug)]
struct Held {
    user: u64,
    serial: u64,
    /// Checks at which the peer had not read what it was sent.
    unread_checks: u32,
}

impl Permits {
    /// Returns a semaphore with `max` free permits.
    #[must_use]
    pub(crate) fn new(max: usize) -> Self {
        let pool = Pool { max, held: Slab::new(), by_user: HashMap::default(), serial: 0, revocable: 0, revoked: 0 };
        Self { pool: Rc::new(RefCell::new(pool)) }
    }

    /// Takes a permit, unless the requester's share or all that it may use is taken.
    #[must_use]
    pub(crate) fn take(&self, requester: Requester<'_>) -> Option<Permit> {
        let (slot, serial) = self.pool.borrow_mut().take(requester)?;
        Some(Permit { pool: Rc::clone(&self.pool), slot, serial })
    }

    /// Number of permits that are taken.
    #[must_use]
    pub(crate) fn taken(&self) -> usize {
        self.pool.borrow().held.len()
    }

    /// Number of permits revoked since the start.
    #[must_use]
    pub(crate) fn revoked(&self) -> u64 {
        self.pool.borrow().revoked
    }
}

impl Permit {
    /// Notes whether the peer has left its response unread. Returns whether the permit is still held, and not revoked.
    /// Call it at intervals of a second or more.
    #[must_use]
    pub(crate) fn note_reading(&self, is_unread: bool) -> bool {
        let mut pool = self.pool.borrow_mut();
        let Pool { held, revocable, .. } = &mut *pool;
        let Some(held) = held.get_mut(self.slot).filter(|held| held.serial == self.serial) else { return false };
        if is_unread {
            held.unread_checks = held.unread_checks.saturating_add(1);
            *revocable += usize::from(held.unread_checks == UNREAD_CHECKS_MIN);
        }
        true
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
            let unread = self.unread_longest(own)?;
            self.remove(unread);
            self.revoked += 1;
        }
        self.serial += 1;
        *self.by_user.entry(user).or_insert(0) += 1;
        let slot = self.held.insert(Held { user, serial: self.serial, unread_checks: 0 });
        Some((slot, self.serial))
    }

    /// Number of permits that `user` holds.
    fn count(&self, user: u64) -> usize {
        self.by_user.get(&user).copied().unwrap_or(0)
    }

    /// Returns the slot of the permit that was unread longest, among those of users that hold more than `own`.
    fn unread_longest(&self, own: usize) -> Option<usize> {
        if self.revocable == 0 {
            return None;
        }
        let is_revocable = |held: &Held| held.unread_checks >= UNREAD_CHECKS_MIN && self.count(held.user) > own;
        let revocable = self.held.iter().filter(|(_, held)| is_revocable(held));
        revocable.max_by_key(|(_, held)| held.unread_checks).map(|(slot, _)| slot)
    }

    fn remove(&mut self, slot: usize) {
        let held = self.held.remove(slot);
        self.revocable -= usize::from(held.unread_checks >= UNREAD_CHECKS_MIN);
        if let Some(count) = self.by_user.get_mut(&held.user) {
            *count -= 1;
            if *count == 0 {
                self.by_user.remove(&held.user);
            }
        }
    }
}

/// Divisor of all permits: the share of one user, and the part that is reserved for the cluster's own users.
const SHARE: usize = 4;

/// Checks at which a response must be unread before its permit may be revoked. The first may come at once.
const UNREAD_CHECKS_MIN: u32 = 2;

#[cfg(test)]
mod tests {
    use super::*;
    use Requester::{Cluster, Unnamed, User};

    fn take_all(permits: &Permits, requester: Requester<'_>) -> Vec<Permit> {
        std::iter::from_fn(|| permits.take(requester)).collect()
    }

    #[test]
    fn who_is_done_makes_room() {
        let permits = Permits::new(2);
        let taken = [permits.take(Unnamed), permits.take(Unnamed)];
        assert!(taken.iter().all(Option::is_some));
        assert!(permits.take(Unnamed).is_none());
        drop(taken);
        assert!(permits.take(Unnamed).is_some());
    }

    #[test]
    fn one_user_has_a_share_and_all_of_them_leave_some_to_the_cluster() {
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
    fn the_longest_unread_is_revoked_for_a_user_who_holds_less() {
        let permits = Permits::new(4);
        let taken = ["a", "b", "c"].map(|name| permits.take(User(name)).expect("a share"));
        assert!(permits.take(User("d")).is_none(), "all are read");
        for _ in 0..UNREAD_CHECKS_MIN - 1 {
            assert!(taken[1].note_reading(true) && taken[2].note_reading(true));
        }
        assert!(permits.take(User("d")).is_none(), "none is unread for long");
        assert!(
            taken[2].note_reading(true)
                && taken[1].note_reading(true)
                && taken[1].note_reading(true)
                && taken[0].note_reading(false)
        );
        assert!(permits.take(User("a")).is_none(), "it has its share");
        let fourth = permits.take(User("d")).expect("that of b");
        assert!(taken[0].note_reading(true) && !taken[1].note_reading(true) && taken[2].note_reading(true));
        assert_eq!((permits.taken(), permits.revoked()), (3, 1));
        let b = permits.take(User("b")).expect("that of c");
        assert!(!taken[2].note_reading(false));
        drop(taken);
        assert_eq!(permits.taken(), 2, "what was revoked is not returned again");
        drop((b, fourth));
        assert_eq!(permits.taken(), 0);
    }
}
