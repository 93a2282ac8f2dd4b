//! Connections with waiting requests, by the event that wakes them. A change of a Lease is "settled" when the journal
//! reports its outcome. A "ticket" numbers each such change.

use crate::api::waiting::WakeUp;
use crate::limits::WAIT_LOOK_MS;
use mio::Token;
use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet, VecDeque};

/// Connections with waiting requests. Some of the connections may be closed.
#[derive(Debug, Default)]
pub struct Waiters {
    /// Connections with a request that waits until its own change is settled, with the number of the change's ticket,
    /// in ascending order.
    own: VecDeque<(u64, Waiter)>,
    /// Connections that wait until another request's change of the same Lease is settled, by its ticket number.
    other: BTreeMap<u64, Group>,
    /// Connections with a request that waits for a barrier. Once the barrier is passed, the table has every entry that
    /// the store had when the request asked for the barrier. The key is the barrier's number and the connection. The
    /// value is the first deadline of the connection's requests that wait for this barrier, in ms.
    barriers: BTreeMap<(u64, Token), u64>,
    /// Connections with a request that waits until the table has reached a `resourceVersion`.
    versions: Versions,
    /// Connections with a request that waits until any Lease or Namespace changes.
    any: Group,
    /// Lower bound of all deadlines, in ms. `None` if the last scan found no deadline, and no waiter was added since.
    due_ms_min: Option<u64>,
    /// Earliest time of the next scan of the deadlines, in ms.
    look_ms: u64,
}

/// A connection with a waiting request.
#[derive(Clone, Copy, Debug)]
struct Waiter {
    connection: Token,
    /// First deadline of the connection's requests that wait for this event, in ms.
    due_ms: u64,
}

impl Waiters {
    /// Notes that a request on `connection` waits.
    pub(super) fn add(&mut self, wake_up: WakeUp, due_ms: u64, connection: Token) {
        self.due_ms_min = Some(self.due_ms_min.map_or(due_ms, |first| first.min(due_ms)));
        let waiter = Waiter { connection, due_ms };
        match wake_up {
            WakeUp::OwnTicket(number) => {
                debug_assert!(self.own.back().is_none_or(|(last, _)| *last < number), "tickets in order");
                self.own.push_back((number, waiter));
            }
            WakeUp::OtherTicket(number) => self.other.entry(number).or_default().add(waiter),
            WakeUp::Barrier(number) => {
                let first_ms = self.barriers.entry((number, connection)).or_insert(due_ms);
                *first_ms = due_ms.min(*first_ms);
            }
            WakeUp::Version(version) => self.versions.add(version, waiter),
            WakeUp::AnyChange => self.any.add(waiter),
        }
    }

    /// Wakes the connections whose requests wait for changes with a ticket of at most `settled`, and those whose
    /// requests wait until any Lease or Namespace changes.
    pub fn wake_settled(&mut self, settled: u64, mut wake: impl FnMut(Token)) {
        while let Some((_, waiter)) = self.own.pop_front_if(|(number, _)| *number <= settled) {
            wake(waiter.connection);
        }
        while let Some(first) = self.other.first_entry()
            && *first.key() <= settled
        {
            first.remove().drain().for_each(&mut wake);
        }
        self.wake_any(wake);
    }

    /// Wakes the connections whose requests wait for a barrier of the journal with a number of at most `passed`.
    pub fn wake_passed(&mut self, passed: u64, mut wake: impl FnMut(Token)) {
        while let Some(first) = self.barriers.first_entry()
            && first.key().0 <= passed
        {
            wake(first.remove_entry().0.1);
        }
    }

    /// Wakes the connections whose requests wait in vain while the store is unreachable: for a barrier, or for another
    /// request's change.
    pub fn wake_unreachable(&mut self, mut wake: impl FnMut(Token)) {
        self.wake_passed(u64::MAX, &mut wake);
        while let Some((_, mut group)) = self.other.pop_first() {
            group.drain().for_each(&mut wake);
        }
    }

    /// Wakes the connections whose requests wait for a `resourceVersion` of at most `applied`.
    pub fn wake_applied(&mut self, applied: u64, mut wake: impl FnMut(Token)) {
        while let Some(connection) = self.versions.pop(applied) {
            wake(connection);
        }
    }

    /// Wakes the connections whose requests wait until any Lease or Namespace changes.
    pub fn wake_any(&mut self, wake: impl FnMut(Token)) {
        self.any.drain().for_each(wake);
    }

    /// Wakes the connections with a request past its deadline.
    pub fn wake_late(&mut self, now_ms: u64, mut wake: impl FnMut(Token)) {
        if self.due_ms().is_none_or(|due_ms| now_ms < due_ms) {
            return;
        }
        self.look_ms = now_ms + WAIT_LOOK_MS;
        let mut due_ms_min: Option<u64> = None;
        let mut is_late = |waiter: &Waiter| {
            if waiter.due_ms > now_ms {
                due_ms_min = Some(due_ms_min.map_or(waiter.due_ms, |first| first.min(waiter.due_ms)));
                return false;
            }
            wake(waiter.connection);
            true
        };
        // A late waiter in `own` stays there, without a deadline, because the journal may still report the outcome of
        // its change.
        for (_, waiter) in &mut self.own {
            if waiter.due_ms != NEVER_MS && is_late(waiter) {
                waiter.due_ms = NEVER_MS;
            }
        }
        self.other.retain(|_, group| {
            group.retain(|waiter| !is_late(waiter));
            group.len() > 0
        });
        self.versions.retain(|waiter| !is_late(waiter));
        self.any.retain(|waiter| !is_late(waiter));
        self.barriers.retain(|(_, connection), due_ms| !is_late(&Waiter { connection: *connection, due_ms: *due_ms }));
        self.due_ms_min = due_ms_min;
    }

    /// Returns the time at which [`Waiters::wake_late`] has work next, in ms; `None` if there is no deadline.
    #[must_use]
    pub fn due_ms(&self) -> Option<u64> {
        self.due_ms_min.filter(|_| !self.is_empty()).map(|due_ms| due_ms.max(self.look_ms))
    }

    /// Returns the number of waiters. Each request that waits for its own change counts once. For each other event,
    /// each connection that waits for it counts once. A connection that waits for several versions also counts once.
    #[must_use]
    pub fn len(&self) -> usize {
        let others = self.other.values().map(Group::len).sum::<usize>() + self.barriers.len();
        self.own.len() + others + self.versions.len() + self.any.len()
    }

    /// Whether no request waits.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.own.is_empty()
            && self.other.is_empty()
            && self.barriers.is_empty()
            && self.versions.len() + self.any.len() == 0
    }
}

/// Connections that wait for one event, each at most once. Otherwise a client that opens and resets streams could fill
/// the memory.
#[derive(Debug, Default)]
struct Group {
    /// The connections in the order of arrival.
    order: Vec<Token>,
    /// First deadline of each connection's requests, in ms.
    due_ms: BTreeMap<Token, u64>,
}

impl Group {
    fn add(&mut self, waiter: Waiter) {
        match self.due_ms.entry(waiter.connection) {
            Entry::Occupied(mut first_ms) => *first_ms.get_mut() = waiter.due_ms.min(*first_ms.get()),
            Entry::Vacant(place) => {
                place.insert(waiter.due_ms);
                self.order.push(waiter.connection);
            }
        }
    }

    /// Removes and returns all connections.
    fn drain(&mut self) -> impl Iterator<Item = Token> {
        self.due_ms.clear();
        self.order.drain(..)
    }

    fn retain(&mut self, mut keeps: impl FnMut(&Waiter) -> bool) {
        let Self { order, due_ms } = self;
        order.retain(|connection| {
            let waiter = due_ms.get(connection).map(|due_ms| Waiter { connection: *connection, due_ms: *due_ms });
            let is_kept = waiter.is_some_and(|waiter| keeps(&waiter));
            if !is_kept {
                due_ms.remove(connection);
            }
            is_kept
        });
    }

    fn len(&self) -> usize {
        self.order.len()
    }
}

/// Connections that wait for a version of the table. Each connection has one place: that of the lowest version for
/// which its requests wait. A woken connection resumes all its requests, and those that still wait are added again.
#[derive(Debug, Default)]
struct Versions {
    /// The connections in the order of their lowest version.
    order: BTreeSet<(u64, Token)>,
    /// Lowest version of each connection, and the first deadline of its requests, in ms.
    places: BTreeMap<Token, (u64, u64)>,
}

impl Versions {
    fn add(&mut self, version: u64, Waiter { connection, due_ms }: Waiter) {
        let (lowest, first_ms) = self.places.entry(connection).or_insert((version, due_ms));
        *first_ms = due_ms.min(*first_ms);
        if version < *lowest {
            self.order.remove(&(*lowest, connection));
            *lowest = version;
        }
        self.order.insert((*lowest, connection));
    }

    /// Removes and returns the first connection whose lowest version is at most `applied`.
    fn pop(&mut self, applied: u64) -> Option<Token> {
        let first = *self.order.first().filter(|(lowest, _)| *lowest <= applied)?;
        self.order.remove(&first);
        self.places.remove(&first.1);
        Some(first.1)
    }

    fn retain(&mut self, mut keeps: impl FnMut(&Waiter) -> bool) {
        let Self { order, places } = self;
        places.retain(|connection, (lowest, due_ms)| {
            let is_kept = keeps(&Waiter { connection: *connection, due_ms: *due_ms });
            if !is_kept {
                order.remove(&(*lowest, *connection));
            }
            is_kept
        });
    }

    fn len(&self) -> usize {
        self.places.len()
    }
}

/// Marks a waiter in `own` whose deadline has passed, so that it has no deadline any more.
const NEVER_MS: u64 = u64::MAX;

#[cfg(test)]
mod tests {
    use super::*;

    fn woken(wake: impl FnOnce(&mut dyn FnMut(Token))) -> Vec<usize> {
        let mut tokens = Vec::new();
        wake(&mut |token: Token| tokens.push(token.0));
        tokens
    }

    #[test]
    fn a_waiting_connection_is_woken_once_by_its_event() {
        let mut waiters = Waiters::default();
        for (number, token) in [(1, 1), (2, 2), (3, 3)] {
            waiters.add(WakeUp::OwnTicket(number), 100, Token(token));
        }
        waiters.add(WakeUp::AnyChange, 100, Token(9));
        assert_eq!(woken(|wake| waiters.wake_settled(2, wake)), [1, 2, 9]);
        assert_eq!(woken(|wake| waiters.wake_settled(2, wake)), [] as [usize; 0]);
        assert_eq!((waiters.len(), woken(|wake| waiters.wake_any(wake)).len()), (1, 0));
        assert_eq!(woken(|wake| waiters.wake_settled(3, wake)), [3]);
        assert!(waiters.is_empty() && waiters.due_ms().is_none());
    }

    #[test]
    fn connections_waiting_for_one_change_wake_in_order() {
        let mut waiters = Waiters::default();
        for (number, token) in [(2, 7), (2, 3), (1, 5), (2, 7), (2, 4)] {
            waiters.add(WakeUp::OtherTicket(number), 100, Token(token));
        }
        assert_eq!(waiters.len(), 4, "a connection has one place");
        assert_eq!(woken(|wake| waiters.wake_settled(1, wake)), [5]);
        assert_eq!(woken(|wake| waiters.wake_settled(2, wake)), [7, 3, 4]);
        assert!(waiters.is_empty());
    }

    #[test]
    fn an_unreachable_store_wakes_those_that_wait_for_barriers_and_other_changes() {
        let mut waiters = Waiters::default();
        let wake_ups = [WakeUp::OwnTicket(1), WakeUp::OtherTicket(2), WakeUp::Barrier(3), WakeUp::Version(4)];
        for (token, wake_up) in wake_ups.into_iter().enumerate() {
            waiters.add(wake_up, 100, Token(token));
        }
        assert_eq!(woken(|wake| waiters.wake_unreachable(wake)), [2, 1]);
        assert_eq!(waiters.len(), 2, "the outcome of an own change is unknown");
    }

    #[test]
    fn a_version_wakes_only_the_connections_that_wait_for_it() {
        let mut waiters = Waiters::default();
        for (version, token) in [(7, 1), (9, 2), (5, 3), (9, 4), (8, 1), (6, 4)] {
            waiters.add(WakeUp::Version(version), 100, Token(token));
        }
        assert_eq!(waiters.len(), 4, "a connection has one place");
        assert_eq!(woken(|wake| waiters.wake_settled(9, wake)), [] as [usize; 0]);
        assert_eq!(woken(|wake| waiters.wake_any(wake)), [] as [usize; 0]);
        assert_eq!(woken(|wake| waiters.wake_applied(4, wake)), [] as [usize; 0]);
        assert_eq!(woken(|wake| waiters.wake_applied(6, wake)), [3, 4]);
        // Connection 4 was woken for version 6. Its request for version 9 still waits, so it is added again.
        waiters.add(WakeUp::Version(9), 50, Token(4));
        assert_eq!(woken(|wake| waiters.wake_applied(8, wake)), [1]);
        assert_eq!(woken(|wake| waiters.wake_late(60, wake)), [4]);
        assert_eq!(woken(|wake| waiters.wake_applied(9, wake)), [2]);
        assert!(waiters.is_empty() && waiters.due_ms().is_none());
    }

    #[test]
    fn an_earlier_deadline_applies_to_the_place_of_a_connection() {
        for wake_up in [WakeUp::Version(1), WakeUp::AnyChange, WakeUp::OtherTicket(1)] {
            let mut waiters = Waiters::default();
            for due_ms in [100, 50, 900] {
                waiters.add(wake_up, due_ms, Token(1));
            }
            assert_eq!(waiters.len(), 1, "{wake_up:?}");
            assert_eq!(woken(|wake| waiters.wake_late(60, wake)), [1], "{wake_up:?}");
            assert!(waiters.is_empty(), "{wake_up:?}");
        }
    }

    #[test]
    fn deadlines_are_checked_at_most_once_per_interval() {
        let mut waiters = Waiters::default();
        waiters.add(WakeUp::OwnTicket(1), 100, Token(1));
        waiters.add(WakeUp::AnyChange, 50, Token(2));
        waiters.add(WakeUp::OtherTicket(1), 70, Token(3));
        assert_eq!(waiters.due_ms(), Some(50));
        assert_eq!(woken(|wake| waiters.wake_late(49, wake)), [] as [usize; 0]);
        assert_eq!(woken(|wake| waiters.wake_late(60, wake)), [2]);
        assert_eq!(waiters.due_ms(), Some(60 + WAIT_LOOK_MS), "the next check comes after an interval");
        assert_eq!(woken(|wake| waiters.wake_late(60 + WAIT_LOOK_MS, wake)), [1, 3]);
        assert_eq!(waiters.due_ms(), None);
        // The outcome of the change comes after the deadline, and wakes the connection once more.
        assert_eq!(woken(|wake| waiters.wake_settled(1, wake)), [1]);
    }

    #[test]
    fn an_earlier_deadline_added_later_wakes_in_time() {
        let mut waiters = Waiters::default();
        waiters.add(WakeUp::OwnTicket(1), 900, Token(1));
        // A request that is served again keeps its first deadline. So a later ticket may have an earlier deadline.
        waiters.add(WakeUp::OwnTicket(2), 100, Token(2));
        assert_eq!(waiters.due_ms(), Some(100));
        assert_eq!(woken(|wake| waiters.wake_late(100, wake)), [2]);
        assert_eq!(woken(|wake| waiters.wake_late(900, wake)), [1]);
    }
}
