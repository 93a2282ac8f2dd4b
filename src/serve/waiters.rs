//! The connections whose requests wait, and the event after which each is looked at again.

use crate::api::waiting::WakeUp;
use crate::limits::WAIT_LOOK_MS;
use mio::Token;
use std::collections::{BTreeMap, VecDeque};

/// Connections with requests that wait. Some of the connections may be gone.
#[derive(Debug, Default)]
pub struct Waiters {
    /// Those that wait for their own change: its number, and the deadline in ms. Numbers never go back.
    by_ticket: VecDeque<(u64, u64, Token)>,
    /// Those that wait for any change, with the first of their deadlines in ms.
    others: BTreeMap<Token, u64>,
    /// When deadlines may be looked at again, in ms.
    look_ms: u64,
}

impl Waiters {
    /// Notes that a request on `connection` waits.
    pub(super) fn add(&mut self, wake_up: WakeUp, due_ms: u64, connection: Token) {
        match wake_up {
            WakeUp::Ticket(number) => {
                debug_assert!(self.by_ticket.back().is_none_or(|(last, ..)| *last < number), "tickets in order");
                self.by_ticket.push_back((number, due_ms, connection));
            }
            WakeUp::AnyChange => {
                self.others.entry(connection).and_modify(|first| *first = due_ms.min(*first)).or_insert(due_ms);
            }
        }
    }

    /// Gives the connections whose requests can go on since all changes up to `settled` are.
    pub fn wake_settled(&mut self, settled: u64, mut wake: impl FnMut(Token)) {
        while let Some((_, _, connection)) = self.by_ticket.pop_front_if(|(number, ..)| *number <= settled) {
            wake(connection);
        }
        self.wake_others(wake);
    }

    /// Gives the connections whose requests wait for any change.
    pub fn wake_others(&mut self, wake: impl FnMut(Token)) {
        std::mem::take(&mut self.others).into_keys().for_each(wake);
    }

    /// Gives the connections with a request whose deadline has passed.
    pub fn wake_late(&mut self, now_ms: u64, mut wake: impl FnMut(Token)) {
        if self.due_ms().is_none_or(|due_ms| now_ms < due_ms) {
            return;
        }
        self.look_ms = now_ms + WAIT_LOOK_MS;
        // Those that are late stay until their change is settled.
        self.by_ticket
            .iter()
            .filter(|(_, due_ms, _)| *due_ms <= now_ms)
            .for_each(|(_, _, connection)| wake(*connection));
        self.others.retain(|connection, due_ms| {
            let is_late = *due_ms <= now_ms;
            if is_late {
                wake(*connection);
            }
            !is_late
        });
    }

    /// When to call [`Waiters::wake_late`], in ms.
    #[must_use]
    pub fn due_ms(&self) -> Option<u64> {
        let by_ticket = self.by_ticket.front().map(|(_, due_ms, _)| *due_ms);
        let due_ms = by_ticket.into_iter().chain(self.others.values().copied()).min()?;
        Some(due_ms.max(self.look_ms))
    }

    /// Number of requests that wait for their change, and of connections that wait for any.
    #[must_use]
    pub fn len(&self) -> usize {
        self.by_ticket.len() + self.others.len()
    }

    /// Whether no request waits.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn woken(wake: impl FnOnce(&mut dyn FnMut(Token))) -> Vec<usize> {
        let mut tokens = Vec::new();
        wake(&mut |token: Token| tokens.push(token.0));
        tokens
    }

    #[test]
    fn those_that_wait_are_woken_by_their_event_once() {
        let mut waiters = Waiters::default();
        for (number, token) in [(1, 1), (2, 2), (3, 3)] {
            waiters.add(WakeUp::Ticket(number), 100, Token(token));
        }
        waiters.add(WakeUp::AnyChange, 100, Token(9));
        assert_eq!(woken(|wake| waiters.wake_settled(2, wake)), [1, 2, 9]);
        assert_eq!(woken(|wake| waiters.wake_settled(2, wake)), [] as [usize; 0]);
        assert_eq!((waiters.len(), woken(|wake| waiters.wake_others(wake)).len()), (1, 0));
        assert_eq!(woken(|wake| waiters.wake_settled(3, wake)), [3]);
        assert!(waiters.is_empty() && waiters.due_ms().is_none());
    }

    #[test]
    fn a_deadline_wakes_once_in_a_while() {
        let mut waiters = Waiters::default();
        waiters.add(WakeUp::Ticket(1), 100, Token(1));
        waiters.add(WakeUp::AnyChange, 50, Token(2));
        waiters.add(WakeUp::AnyChange, 70, Token(3));
        assert_eq!(waiters.due_ms(), Some(50));
        assert_eq!(woken(|wake| waiters.wake_late(49, wake)), [] as [usize; 0]);
        assert_eq!(woken(|wake| waiters.wake_late(60, wake)), [2]);
        assert_eq!(waiters.due_ms(), Some(60 + WAIT_LOOK_MS), "not for each of them");
        assert_eq!(woken(|wake| waiters.wake_late(60 + WAIT_LOOK_MS, wake)), [1, 3]);
        // The change is still under way, and may yet be settled.
        assert_eq!(woken(|wake| waiters.wake_settled(1, wake)), [1]);
    }
}
