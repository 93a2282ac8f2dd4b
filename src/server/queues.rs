//! The queues of runnable connections, and the marks that prevent a connection from being in a queue twice.

use super::connections::{ConnEntry, Connections};
use crate::conn::Conn;
use mio::Token;
use std::collections::VecDeque;

/// Queues of runnable connections. A queue may contain the token of a closed connection. No connection has such a token
/// any more.
#[derive(Debug, Default)]
pub(super) struct Queues {
    /// Connections that can continue without an event. Their requests are served in the next turn of the event loop.
    run: Vec<Token>,
    /// Connections that wait for a step of their TLS handshake. Connections whose handshake has begun come first.
    handshakes: VecDeque<Token>,
    /// Slow connections: runnable connections whose last request alone used up the time budget of a turn.
    slow: VecDeque<Token>,
    /// The slow connection at the end of the run queue.
    slow_next: Option<Token>,
    /// Connections with a runnable list or collection deletion.
    jobs: VecDeque<Token>,
    /// Connections with a request whose processing takes long.
    long: VecDeque<Token>,
    /// Number of turns of the event loop since the last long request, while some connection is in `long`.
    long_turns_waited: u32,
    /// Connections to flush at the end of this turn.
    flush: VecDeque<Token>,
    /// Connections with a long response, runnable or not.
    with_jobs: Vec<Token>,
}

/// Number of turns of the event loop for which long requests wait at most, while other requests are served. Each turn
/// may serve hundreds of other requests.
const LONG_TURNS_WAITED_MAX: u32 = 16;

/// Marks that show which queues a connection is in.
#[derive(Debug, Default)]
pub(super) struct Marks {
    /// Whether the connection is in `run`, `handshakes` or `slow`.
    can_go_on: bool,
    /// Whether the connection is in `jobs`.
    is_in_jobs: bool,
    /// Whether the connection is in `long`.
    is_in_long: bool,
    /// Whether the connection is in `flush`.
    is_in_flush: bool,
    /// Whether the connection is in `with_jobs`, the list of connections with a long response.
    is_with_job: bool,
}

impl Marks {
    /// Notes that the connection is no longer in `run`, `handshakes` or `slow`.
    pub(super) fn leave_run(&mut self) {
        self.can_go_on = false;
    }

    /// Notes that the connection is no longer in `jobs`.
    pub(super) fn leave_jobs(&mut self) {
        self.is_in_jobs = false;
    }

    /// Notes that the connection is no longer in `long`.
    pub(super) fn leave_long(&mut self) {
        self.is_in_long = false;
    }

    /// Notes that the connection is no longer in `flush`.
    pub(super) fn leave_flush(&mut self) {
        self.is_in_flush = false;
    }
}

impl Queues {
    /// Whether a connection is in `run`, `handshakes`, `slow`, `jobs` or `long`. Then the next poll must not block.
    pub(super) fn can_go_on(&self) -> bool {
        let queues = [&self.handshakes, &self.slow, &self.jobs, &self.long];
        !self.run.is_empty() || queues.iter().any(|queue| !queue.is_empty())
    }

    /// Puts a connection in the run queue, unless the connection is already in `run`, `handshakes` or `slow`.
    pub(super) fn enqueue(&mut self, entry: &mut ConnEntry) {
        if !std::mem::replace(&mut entry.marks.can_go_on, true) {
            self.run.push(entry.token());
        }
    }

    /// Takes the run queue, with one slow connection at its end. For each connection, the caller serves it, moves it
    /// to another queue, or puts it back.
    pub(super) fn take_run(&mut self) -> Vec<Token> {
        if self.slow_next.is_none() {
            self.slow_next = self.slow.pop_front();
            self.run.extend(self.slow_next);
        }
        std::mem::take(&mut self.run)
    }

    /// Puts back connections for which the turn had no time. They come before connections that were just served, so
    /// that no connection starves.
    pub(super) fn put_back(&mut self, rest: &[Token]) {
        self.run.extend_from_slice(rest);
    }

    /// Reuses the memory of [`Queues::take_run`]'s result for the next turn.
    pub(super) fn recycle(&mut self, mut run: Vec<Token>) {
        if self.run.is_empty() {
            run.clear();
            self.run = run;
        }
    }

    /// Whether `token` is the one slow connection that may run in this turn of the event loop. Only the first call
    /// returns true.
    pub(super) fn take_slow_turn(&mut self, token: Token) -> bool {
        self.slow_next.take_if(|next| *next == token).is_some()
    }

    /// Moves a connection from the run queue to the queue of slow connections.
    pub(super) fn move_to_slow(&mut self, token: Token) {
        self.slow.push_back(token);
    }

    /// Moves a connection from the run queue to the handshake queue, to the front if its handshake `has_begun`.
    pub(super) fn move_to_handshakes(&mut self, token: Token, has_begun: bool) {
        if has_begun {
            self.handshakes.push_front(token);
        } else {
            self.handshakes.push_back(token);
        }
    }

    /// Whether a connection waits for a step of its handshake.
    pub(super) fn has_handshakes(&self) -> bool {
        !self.handshakes.is_empty()
    }

    /// Removes the next connection that waits for a step of its handshake.
    pub(super) fn pop_handshake(&mut self) -> Option<Token> {
        self.handshakes.pop_front()
    }

    /// Adds the connection to `with_jobs` if it has a long response, and to `jobs` if the long response is runnable.
    pub(super) fn enqueue_job(&mut self, entry: &mut ConnEntry) {
        if entry.conn.has_job() && !std::mem::replace(&mut entry.marks.is_with_job, true) {
            self.with_jobs.push(entry.token());
        }
        if entry.conn.has_job_step() && !std::mem::replace(&mut entry.marks.is_in_jobs, true) {
            self.jobs.push_back(entry.token());
        }
    }

    /// Whether a list or collection deletion is runnable.
    pub(super) fn has_jobs(&self) -> bool {
        !self.jobs.is_empty()
    }

    /// Removes the next connection whose list or collection deletion is runnable.
    pub(super) fn pop_job(&mut self) -> Option<Token> {
        self.jobs.pop_front()
    }

    /// Adds the connection to `long` if it has a request whose processing takes long.
    pub(super) fn enqueue_long(&mut self, entry: &mut ConnEntry) {
        if entry.conn.has_long_request() && !std::mem::replace(&mut entry.marks.is_in_long, true) {
            self.long.push_back(entry.token());
        }
    }

    /// Returns the connection whose long request is the next one.
    pub(super) fn first_long(&self) -> Option<Token> {
        self.long.front().copied()
    }

    /// Removes the connection whose long request may be served in this turn. There is none if `have_others` is true:
    /// other requests, or their responses, would wait for the long request. But after [`LONG_TURNS_WAITED_MAX`] such
    /// turns, a long request is served in any case.
    pub(super) fn pop_long(&mut self, have_others: bool) -> Option<Token> {
        if have_others && self.long_turns_waited < LONG_TURNS_WAITED_MAX {
            self.long_turns_waited += u32::from(!self.long.is_empty());
            return None;
        }
        self.long_turns_waited = 0;
        self.long.pop_front()
    }

    /// Calls `act` for each connection with a long response.
    pub(super) fn for_each_with_job(&mut self, conns: &mut Connections, mut act: impl FnMut(&mut Conn)) {
        self.with_jobs.retain(|token| {
            let Some(entry) = conns.get_mut(*token) else { return false };
            entry.marks.is_with_job = entry.conn.has_job();
            if entry.marks.is_with_job {
                act(&mut entry.conn);
            }
            entry.marks.is_with_job
        });
    }

    /// Returns the number of connections with a long response, as of the last scan.
    pub(super) fn with_jobs(&self) -> usize {
        self.with_jobs.len()
    }

    /// Adds the connection to `flush`, the connections that are flushed at the end of the turn.
    pub(super) fn enqueue_flush(&mut self, entry: &mut ConnEntry) {
        if !std::mem::replace(&mut entry.marks.is_in_flush, true) {
            self.flush.push_back(entry.token());
        }
    }

    /// Removes the next connection to flush.
    pub(super) fn pop_flush(&mut self) -> Option<Token> {
        self.flush.pop_front()
    }
}

#[cfg(test)]
mod tests {
    use super::super::connections::tests::add;
    use super::*;
    use std::net::TcpListener;

    #[test]
    fn who_can_go_on_stands_in_one_queue_once_until_it_is_gone_on_with() {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let (mut connections, mut queues) = (Connections::default(), Queues::default());
        let tokens = [(); 4].map(|()| add(&mut connections, &listener));
        let [first, handshake, slow, rest] = tokens;
        let mut enqueue_all = |queues: &mut Queues| {
            tokens.iter().for_each(|token| queues.enqueue(connections.get_mut(*token).expect("a connection")));
        };
        enqueue_all(&mut queues);
        enqueue_all(&mut queues);
        assert_eq!(queues.take_run(), tokens);
        queues.move_to_handshakes(handshake, false);
        queues.move_to_slow(slow);
        queues.put_back(&[rest]);
        // An event does not add a connection to a queue if the connection is already in a queue.
        enqueue_all(&mut queues);
        assert_eq!(queues.take_run(), [rest, slow], "the slow one is the last");
        assert_eq!((queues.pop_handshake(), queues.pop_handshake()), (Some(handshake), None));
        assert!(!queues.take_slow_turn(first) && queues.take_slow_turn(slow) && !queues.take_slow_turn(slow));
        assert!(!queues.can_go_on());
        connections.get_mut(first).expect("a connection").marks.leave_run();
        queues.enqueue(connections.get_mut(first).expect("a connection"));
        assert!(queues.can_go_on());
        assert_eq!(queues.take_run(), [first]);
    }

    #[test]
    fn of_the_slow_one_at_a_time_has_its_turn() {
        let mut queues = Queues::default();
        let [first, second] = [Token(1), Token(2)];
        queues.move_to_slow(first);
        queues.move_to_slow(second);
        assert_eq!(queues.take_run(), [first]);
        // The turn of the event loop had no time for the first connection.
        queues.put_back(&[first]);
        assert_eq!(queues.take_run(), [first]);
        assert!(queues.take_slow_turn(first));
        assert_eq!(queues.take_run(), [second]);
    }

    #[test]
    fn long_requests_wait_for_others_but_not_for_ever() {
        let mut queues = Queues { long: [Token(1), Token(2), Token(3)].into(), ..Queues::default() };
        assert!(queues.can_go_on());
        assert_eq!(queues.pop_long(false), Some(Token(1)));
        for _ in 0..LONG_TURNS_WAITED_MAX {
            assert_eq!(queues.pop_long(true), None);
        }
        assert_eq!(queues.pop_long(true), Some(Token(2)));
        assert_eq!((queues.pop_long(true), queues.pop_long(false)), (None, Some(Token(3))));
        // Turns without a long request do not count.
        for _ in 0..=LONG_TURNS_WAITED_MAX {
            assert_eq!(queues.pop_long(true), None);
        }
        assert_eq!(queues.long_turns_waited, 0);
    }

    #[test]
    fn a_handshake_that_has_begun_goes_before_the_others() {
        let mut queues = Queues::default();
        for (token, has_begun) in [(Token(1), false), (Token(2), false), (Token(3), true)] {
            queues.move_to_handshakes(token, has_begun);
        }
        let order = [(); 4].map(|()| queues.pop_handshake());
        assert_eq!(order, [Some(Token(3)), Some(Token(1)), Some(Token(2)), None]);
    }

    #[test]
    fn who_is_to_be_flushed_is_flushed_once_and_in_that_order() {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let (mut connections, mut queues) = (Connections::default(), Queues::default());
        let [first, second] = [(); 2].map(|()| add(&mut connections, &listener));
        for token in [first, second, first] {
            queues.enqueue_flush(connections.get_mut(token).expect("a connection"));
        }
        assert_eq!([(); 3].map(|()| queues.pop_flush()), [Some(first), Some(second), None]);
        let entry = connections.get_mut(second).expect("a connection");
        entry.marks.leave_flush();
        queues.enqueue_flush(entry);
        assert_eq!(queues.pop_flush(), Some(second));
    }
}
