//! The core of the event loop, for simulated nodes and benches: the wait for readiness or for a due time, the clock,
//! and the queue of runnable connections.
//!
//! This module owns the poll, its timer, the start time of the run, and the queue. It knows connections only by their
//! numbers, which are their mio tokens. The poll is edge-triggered. So a connection that has unfinished work must be
//! made runnable; the next wait then returns at once.

use crate::wake::Wake;
use mio::event::Event;
use mio::{Events, Poll, Registry, Token};
use std::io;
use std::time::{Duration, Instant, SystemTime};

/// The poll, its timer, the clock of the run, and the queue of runnable connections.
#[derive(Debug)]
pub(crate) struct Reactor {
    poll: Poll,
    events: Events,
    wake: Wake,
    start: Instant,
    /// Start of the run, in microseconds since the Unix epoch.
    pub(crate) epoch_us: u64,
    queue: Queue,
}

/// The runnable connections. Each is in the queue at most once.
#[derive(Debug)]
struct Queue {
    indexes: Vec<usize>,
    is_in: Vec<bool>,
}

impl Reactor {
    /// Creates the reactor for `connections_len` connections. The clock of the run starts. Errors are sentences for the
    /// user.
    pub(crate) fn new(connections_len: usize) -> Result<Self, String> {
        let poll = Poll::new().map_err(|e| format!("cannot make a poll: {e}"))?;
        let wake = Wake::new(poll.registry(), Token(connections_len)).map_err(|e| format!("no timer: {e}"))?;
        let epoch = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).map_err(|e| e.to_string())?;
        Ok(Self {
            poll,
            events: Events::with_capacity(EVENTS_PER_TURN),
            wake,
            start: Instant::now(),
            epoch_us: u64::try_from(epoch.as_micros()).map_err(|e| e.to_string())?,
            queue: Queue { indexes: Vec::new(), is_in: vec![false; connections_len] },
        })
    }

    /// Returns the time in nanoseconds since the start of the run.
    pub(crate) fn now(&self) -> u64 {
        nanos(self.start.elapsed())
    }

    /// Returns the registry, in which each connection registers with its number as the token.
    pub(crate) fn registry(&self) -> &Registry {
        self.poll.registry()
    }

    /// Waits until a connection is ready, or until the time `until`, in nanoseconds since the start of the run. Returns
    /// at once if a connection is runnable. Each ready connection is passed to `on_ready` and becomes runnable.
    pub(crate) fn wait(&mut self, until: u64, mut on_ready: impl FnMut(usize, &Event)) -> Result<(), String> {
        self.poll(until).map_err(|e| format!("poll: {e}"))?;
        for event in &self.events {
            let Token(index) = event.token();
            // The timer's number follows those of the connections. Its events only end the wait.
            if index < self.queue.is_in.len() {
                on_ready(index, event);
                self.queue.push(index);
            }
        }
        Ok(())
    }

    fn poll(&mut self, until: u64) -> io::Result<()> {
        let wait_ns = if self.queue.indexes.is_empty() { until.saturating_sub(self.now()) } else { 0 };
        let timeout = self.wake.timeout_until(wait_ns)?;
        match self.poll.poll(&mut self.events, Some(timeout)) {
            Err(error) if error.kind() != io::ErrorKind::Interrupted => Err(error),
            _ => Ok(()),
        }
    }

    /// Makes a connection runnable. If the connections of this turn of the event loop were
    /// [taken](Self::take_runnable) before, the connection waits for the next turn.
    pub(crate) fn set_runnable(&mut self, index: usize) {
        self.queue.push(index);
    }

    /// Makes every connection runnable.
    pub(crate) fn set_all_runnable(&mut self) {
        for index in 0..self.queue.is_in.len() {
            self.queue.push(index);
        }
    }

    /// Moves the runnable connections to `turn`, and removes the old content of `turn`. Connections that become
    /// runnable later belong to the next turn of the event loop.
    pub(crate) fn take_runnable(&mut self, turn: &mut Vec<usize>) {
        turn.clear();
        std::mem::swap(&mut self.queue.indexes, turn);
        for &index in &*turn {
            if let Some(is_in) = self.queue.is_in.get_mut(index) {
                *is_in = false;
            }
        }
    }
}

impl Queue {
    fn push(&mut self, index: usize) {
        if let Some(is_in) = self.is_in.get_mut(index)
            && !std::mem::replace(is_in, true)
        {
            self.indexes.push(index);
        }
    }
}

/// Converts a duration to nanoseconds.
pub(crate) fn nanos(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

/// Maximum number of events of one wait. The next wait reports the rest.
const EVENTS_PER_TURN: usize = 1024;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_connection_is_taken_once_per_turn_and_again_in_the_next() {
        let mut reactor = Reactor::new(3).expect("a reactor");
        // The reactor has connections 0 to 2. Number 3 is the timer's, so it does not become runnable.
        [2, 0, 2, 3].into_iter().for_each(|index| reactor.set_runnable(index));
        let mut turn = vec![7];
        reactor.take_runnable(&mut turn);
        assert_eq!(turn, [2, 0]);
        reactor.set_runnable(2);
        reactor.set_all_runnable();
        reactor.take_runnable(&mut turn);
        assert_eq!(turn, [2, 0, 1]);
        reactor.take_runnable(&mut turn);
        assert!(turn.is_empty());
    }

    #[test]
    fn a_wait_ends_at_its_deadline_or_for_a_runnable_connection() {
        let mut reactor = Reactor::new(1).expect("a reactor");
        let until = reactor.now() + 5_000_000;
        let mut turns = 0;
        while reactor.now() < until {
            reactor.wait(until, |index, _| panic!("{index} is ready")).expect("a wait");
            turns += 1;
        }
        // The wait takes one turn of the event loop, or a few turns if the poll returns early.
        assert!(turns <= 5, "{turns} turns in 5 ms");
        let mut turn = Vec::new();
        reactor.take_runnable(&mut turn);
        assert!(turn.is_empty());
        reactor.set_runnable(0);
        let far = reactor.now() + 60_000_000_000;
        reactor.wait(far, |index, _| panic!("{index} is ready")).expect("a wait");
        assert!(reactor.now() < far);
    }
}
