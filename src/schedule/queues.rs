//! The queues of runnable connections, and the marks that prevent a connection from being in a queue twice. A
//! connection is runnable if the server can continue it without a new readiness event.

use mio::Token;
use std::collections::VecDeque;

/// Queues of runnable connections. A queue may contain the token of a closed connection. No other connection gets this
/// token, so the caller finds no connection and skips the token.
#[derive(Debug, Default)]
pub(crate) struct Queues {
    /// Connections that can continue without an event. Their requests are served in the next turn of the event loop.
    run: Vec<Token>,
    /// Connections that wait for a step of their TLS handshake. Connections whose handshake has begun come first.
    handshakes: VecDeque<Token>,
    /// Slow connections that are runnable. [`Pace`](super::Pace) decides which connections are slow.
    slow: VecDeque<Token>,
    /// The slow connection at the end of the run queue: the only slow connection that may run in the turn.
    slow_next: Option<Token>,
    /// Connections with a runnable job: a response made in steps, such as a long list.
    jobs: VecDeque<Token>,
    /// Connections with a request whose processing takes long.
    long: VecDeque<Token>,
    /// Number of turns of the event loop that have passed over the first connection in `long`.
    long_turns_waited: usize,
    /// Connections to flush at the end of this turn.
    flush: VecDeque<Token>,
    /// Connections to end, in this turn or a later one. The peer is gone, or the server ends all connections.
    ending: VecDeque<Token>,
    /// Connections with a job, runnable or not.
    with_jobs: Vec<Token>,
}

/// Number of turns of the event loop after which a long request is served, although other requests wait. Before that,
/// each turn may serve hundreds of other requests. If several connections have long requests, this number is divided by
/// the number of these connections.
const LONG_TURNS_WAITED_MAX: usize = 16;
/// Maximum number of connections that a turn examines to find the next long request.
const LONG_EXAMINED_MAX: usize = 16;

/// State of a connection in `long`, the queue of connections with a request whose processing takes long.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LongState {
    /// The connection is closed, or has no long request any more.
    Gone,
    /// Other requests have arrived on the connection, which the server serves first.
    AfterOthers,
    /// Only long requests wait on the connection.
    Ready,
    /// The complete requests on the connection have so many bytes that the server reads no others from it.
    Full,
}

/// A mark of a connection, which shows that the connection is in a queue. Each mark is one bit.
#[derive(Clone, Copy, Debug)]
#[repr(u8)]
pub(crate) enum Mark {
    /// The connection is in `run`, `handshakes` or `slow`.
    Run = 1,
    /// The connection is in `jobs`.
    Jobs = 1 << 1,
    /// The connection is in `long`.
    Long = 1 << 2,
    /// The connection is in `flush`.
    Flush = 1 << 3,
    /// The connection is in `ending`.
    Ending = 1 << 4,
    /// The connection is in `with_jobs`, the list of connections with a job.
    WithJobs = 1 << 5,
}

/// Place of a connection in the queues: its token, and marks that show which queues it is in.
#[derive(Debug)]
pub(crate) struct Place {
    token: Token,
    /// The bits of the connection's [`Mark`]s.
    marks: u8,
}

impl Place {
    /// Returns the place of a new connection, which is in no queue.
    pub(crate) fn new(token: Token) -> Self {
        Self { token, marks: 0 }
    }

    /// Returns the token of the connection.
    pub(crate) fn token(&self) -> Token {
        self.token
    }

    /// Sets a mark. Returns whether the connection did not have the mark before.
    fn mark(&mut self, mark: Mark) -> bool {
        let is_new = self.marks & mark as u8 == 0;
        self.marks |= mark as u8;
        is_new
    }

    /// Removes a mark. The caller has taken the connection from the mark's queue.
    pub(crate) fn unmark(&mut self, mark: Mark) {
        self.marks &= !(mark as u8);
    }
}

impl Queues {
    /// Whether a connection is in `run`, `handshakes`, `slow`, `jobs`, `long` or `ending`. If so, the next poll must
    /// not block.
    pub(crate) fn can_go_on(&self) -> bool {
        let queues = [&self.handshakes, &self.slow, &self.jobs, &self.long, &self.ending];
        !self.run.is_empty() || queues.iter().any(|queue| !queue.is_empty())
    }

    /// Puts a connection in the run queue, unless the connection is already in `run`, `handshakes` or `slow`.
    pub(crate) fn enqueue(&mut self, place: &mut Place) {
        if place.mark(Mark::Run) {
            self.run.push(place.token);
        }
    }

    /// Takes the run queue, with one slow connection at its end. For each connection, the caller serves it, moves it
    /// to another queue, or puts it back.
    pub(crate) fn take_run(&mut self) -> Vec<Token> {
        if self.slow_next.is_none() {
            self.slow_next = self.slow.pop_front();
            self.run.extend(self.slow_next);
        }
        std::mem::take(&mut self.run)
    }

    /// Puts back connections for which the turn had no time. They come before connections that were just served, so
    /// that no connection starves.
    pub(crate) fn put_back(&mut self, rest: &[Token]) {
        self.run.extend_from_slice(rest);
    }

    /// Reuses the memory of [`Queues::take_run`]'s result for the next turn.
    pub(crate) fn recycle(&mut self, mut run: Vec<Token>) {
        if self.run.is_empty() {
            run.clear();
            self.run = run;
        }
    }

    /// Whether `token` is the one slow connection that may run in this turn of the event loop. Only the first call
    /// returns true.
    pub(crate) fn take_slow_turn(&mut self, token: Token) -> bool {
        self.slow_next.take_if(|next| *next == token).is_some()
    }

    /// Puts a connection that the caller has taken from the run queue into the queue of slow connections.
    pub(crate) fn move_to_slow(&mut self, token: Token) {
        self.slow.push_back(token);
    }

    /// Puts a connection that the caller has taken from the run queue into the handshake queue: at the front if its
    /// handshake `has_begun`, otherwise at the end.
    pub(crate) fn move_to_handshakes(&mut self, token: Token, has_begun: bool) {
        if has_begun {
            self.handshakes.push_front(token);
        } else {
            self.handshakes.push_back(token);
        }
    }

    /// Whether a connection waits for a step of its handshake.
    pub(crate) fn has_handshakes(&self) -> bool {
        !self.handshakes.is_empty()
    }

    /// Removes and returns the next connection that waits for a step of its handshake.
    pub(crate) fn pop_handshake(&mut self) -> Option<Token> {
        self.handshakes.pop_front()
    }

    /// Adds a connection with a runnable job to `jobs`.
    pub(crate) fn enqueue_job(&mut self, place: &mut Place) {
        if place.mark(Mark::Jobs) {
            self.jobs.push_back(place.token);
        }
    }

    /// Adds a connection with a job to `with_jobs`.
    pub(crate) fn note_with_job(&mut self, place: &mut Place) {
        if place.mark(Mark::WithJobs) {
            self.with_jobs.push(place.token);
        }
    }

    /// Whether a connection has a runnable job.
    pub(crate) fn has_jobs(&self) -> bool {
        !self.jobs.is_empty()
    }

    /// Removes and returns the next connection with a runnable job.
    pub(crate) fn pop_job(&mut self) -> Option<Token> {
        self.jobs.pop_front()
    }

    /// Adds a connection with a request whose processing takes long to `long`.
    pub(crate) fn enqueue_long(&mut self, place: &mut Place) {
        if place.mark(Mark::Long) {
            self.long.push_back(place.token);
        }
    }

    /// Whether a connection has a request whose processing takes long.
    pub(crate) fn has_long(&self) -> bool {
        !self.long.is_empty()
    }

    /// Removes and returns the connection whose long request is served in this turn, if there is one. `state_of`
    /// returns the state of a connection. `has_answers` is whether the turn has served other requests, whose responses
    /// would wait for the long request. In such a turn, a long request is served only if its connection is full or the
    /// long request is due. A long request is due once enough turns have passed over the first connection:
    /// [`LONG_TURNS_WAITED_MAX`], divided by the number of connections in `long`.
    pub(crate) fn pop_long(
        &mut self,
        has_answers: bool,
        mut state_of: impl FnMut(Token) -> LongState,
    ) -> Option<Token> {
        let is_due = self.long_turns_waited * self.long.len() >= LONG_TURNS_WAITED_MAX;
        let mut passed_over = 0;
        for _ in 0..self.long.len().min(LONG_EXAMINED_MAX) {
            let token = self.long.pop_front()?;
            let is_next = match state_of(token) {
                LongState::Gone => continue,
                LongState::Full => true,
                LongState::Ready => is_due || !has_answers,
                LongState::AfterOthers => is_due,
            };
            if is_next {
                // Connections that were passed over stay in front, so that the first one becomes due.
                self.long.rotate_right(passed_over);
                self.long_turns_waited = if passed_over > 0 { self.long_turns_waited + 1 } else { 0 };
                return Some(token);
            }
            passed_over += 1;
            self.long.push_back(token);
        }
        self.long_turns_waited += 1;
        None
    }

    /// Removes the connections from `with_jobs` for which `has_job` returns false.
    pub(crate) fn retain_with_jobs(&mut self, mut has_job: impl FnMut(Token) -> bool) {
        self.with_jobs.retain(|token| has_job(*token));
    }

    /// Returns the number of connections in `with_jobs`. Connections whose job has ended count until the next
    /// [`Queues::retain_with_jobs`].
    pub(crate) fn with_jobs(&self) -> usize {
        self.with_jobs.len()
    }

    /// Adds the connection to `flush`, the connections that are flushed at the end of the turn. Returns whether the
    /// connection was not in `flush` before.
    pub(crate) fn enqueue_flush(&mut self, place: &mut Place) -> bool {
        let is_new = place.mark(Mark::Flush);
        if is_new {
            self.flush.push_back(place.token);
        }
        is_new
    }

    /// Removes and returns the next connection to flush.
    pub(crate) fn pop_flush(&mut self) -> Option<Token> {
        self.flush.pop_front()
    }

    /// Adds the connection to `ending`, unless it is there already.
    pub(crate) fn enqueue_ending(&mut self, place: &mut Place) {
        if place.mark(Mark::Ending) {
            self.ending.push_back(place.token);
        }
    }

    /// Whether a connection is in `ending`.
    pub(crate) fn has_ending(&self) -> bool {
        !self.ending.is_empty()
    }

    /// Removes and returns the next connection to end.
    pub(crate) fn pop_ending(&mut self) -> Option<Token> {
        self.ending.pop_front()
    }

    /// Removes and returns the next connection to end, if `is_wanted` returns true for it.
    pub(crate) fn pop_ending_if(&mut self, is_wanted: impl FnOnce(Token) -> bool) -> Option<Token> {
        self.ending.pop_front_if(|token| is_wanted(*token))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_connection_is_in_the_run_queue_once() {
        let mut queues = Queues::default();
        let tokens = [1, 2, 3, 4].map(Token);
        let [first, handshake, slow, rest] = tokens;
        let mut places = tokens.map(Place::new);
        let mut enqueue_all = |queues: &mut Queues| places.iter_mut().for_each(|place| queues.enqueue(place));
        enqueue_all(&mut queues);
        enqueue_all(&mut queues);
        assert_eq!(queues.take_run(), tokens);
        queues.move_to_handshakes(handshake, false);
        queues.move_to_slow(slow);
        queues.put_back(&[rest]);
        // An event adds no connection a second time, since each is still marked as queued.
        enqueue_all(&mut queues);
        assert_eq!(queues.take_run(), [rest, slow], "the slow one is the last");
        assert_eq!((queues.pop_handshake(), queues.pop_handshake()), (Some(handshake), None));
        assert!(!queues.take_slow_turn(first) && queues.take_slow_turn(slow) && !queues.take_slow_turn(slow));
        assert!(!queues.can_go_on());
        places[0].unmark(Mark::Run);
        queues.enqueue(&mut places[0]);
        assert!(queues.can_go_on());
        assert_eq!(queues.take_run(), [first]);
    }

    #[test]
    fn one_slow_connection_runs_per_turn() {
        let mut queues = Queues::default();
        let [first, second] = [Token(1), Token(2)];
        queues.move_to_slow(first);
        queues.move_to_slow(second);
        assert_eq!(queues.take_run(), [first]);
        // The turn had no time for the first slow connection, so it stays the only one that may run.
        queues.put_back(&[first]);
        assert_eq!(queues.take_run(), [first]);
        assert!(queues.take_slow_turn(first));
        assert_eq!(queues.take_run(), [second]);
    }

    #[test]
    fn long_requests_wait_a_bounded_number_of_turns() {
        let ready = |_| LongState::Ready;
        let mut queues = Queues { long: [Token(1), Token(2)].into(), ..Queues::default() };
        assert!(queues.can_go_on());
        assert_eq!(queues.pop_long(false, ready), Some(Token(1)));
        for _ in 0..LONG_TURNS_WAITED_MAX {
            assert_eq!(queues.pop_long(true, ready), None);
        }
        assert_eq!(queues.pop_long(true, ready), Some(Token(2)));
        // The more connections wait, the more often a long request is due.
        queues.long = (0..16).map(Token).collect();
        assert_eq!(queues.pop_long(true, ready), None);
        assert!(queues.pop_long(true, ready).is_some());
    }

    #[test]
    fn closed_or_waiting_connections_do_not_delay_long_requests() {
        let state_of = |token| [LongState::Gone, LongState::AfterOthers, LongState::Ready, LongState::Full][token];
        let mut queues = Queues { long: [0, 1, 2].map(Token).into(), ..Queues::default() };
        assert_eq!(queues.pop_long(false, |token| state_of(token.0)), Some(Token(2)));
        assert_eq!(queues.long, [Token(1)]);
        // A full connection is next even in a turn with answers, since it can serve no other request before.
        queues.long.push_back(Token(3));
        assert_eq!(queues.pop_long(true, |token| state_of(token.0)), Some(Token(3)));
        // The two turns above have passed over the first connection.
        for _ in 2..LONG_TURNS_WAITED_MAX {
            assert_eq!(queues.pop_long(false, |token| state_of(token.0)), None);
        }
        assert_eq!(queues.pop_long(false, |token| state_of(token.0)), Some(Token(1)));
    }

    #[test]
    fn a_full_connection_does_not_starve_the_long_requests_of_others() {
        let state_of = |token| if token == Token(1) { LongState::Ready } else { LongState::Full };
        for full in 1..4 {
            let mut queues = Queues { long: (1..=1 + full).map(Token).collect(), ..Queues::default() };
            let turns = (1..100).find(|_| {
                let next = queues.pop_long(true, state_of).expect("a full connection is always next");
                queues.long.push_back(next);
                next == Token(1)
            });
            assert_eq!(turns, Some(LONG_TURNS_WAITED_MAX.div_ceil(1 + full) + 1), "{full} full connections");
        }
    }

    #[test]
    fn a_handshake_in_progress_goes_first() {
        let mut queues = Queues::default();
        for (token, has_begun) in [(Token(1), false), (Token(2), false), (Token(3), true)] {
            queues.move_to_handshakes(token, has_begun);
        }
        let order = [(); 4].map(|()| queues.pop_handshake());
        assert_eq!(order, [Some(Token(3)), Some(Token(1)), Some(Token(2)), None]);
    }

    #[test]
    fn connections_are_flushed_once_and_in_order() {
        let mut queues = Queues::default();
        let [mut first, mut second] = [1, 2].map(|token| Place::new(Token(token)));
        assert!(queues.enqueue_flush(&mut first) && queues.enqueue_flush(&mut second));
        assert!(!queues.enqueue_flush(&mut first));
        assert_eq!([(); 3].map(|()| queues.pop_flush()), [Some(Token(1)), Some(Token(2)), None]);
        second.unmark(Mark::Flush);
        queues.enqueue_flush(&mut second);
        assert_eq!(queues.pop_flush(), Some(Token(2)));
    }

    #[test]
    fn connections_end_once_and_the_poll_does_not_block_before() {
        let mut queues = Queues::default();
        let mut places = [1, 2, 3].map(|token| Place::new(Token(token)));
        for place in &mut places {
            queues.enqueue_ending(place);
            queues.enqueue_ending(place);
        }
        for token in 1..=3 {
            assert!(queues.has_ending() && queues.can_go_on());
            assert_eq!(queues.pop_ending(), Some(Token(token)));
        }
        assert!(!queues.has_ending() && !queues.can_go_on());
        places[0].unmark(Mark::Ending);
        queues.enqueue_ending(&mut places[0]);
        assert_eq!((queues.pop_ending(), queues.pop_ending()), (Some(Token(1)), None));
    }
}
