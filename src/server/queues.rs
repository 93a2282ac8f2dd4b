//! The queues in which connections wait for the loop, and the marks by which each stands in one of its kind once.

use super::connections::{Connections, Entry};
use crate::conn::Conn;
use mio::Token;
use std::collections::VecDeque;

/// Who is to be gone on with. A connection that has gone may still stand in a queue, where its token finds nothing.
#[derive(Debug, Default)]
pub(super) struct Queues {
    /// Those that can go on without an event; of each turn, what is served.
    run: Vec<Token>,
    /// Those whose next step in the TLS handshake can be taken, those first that have taken one.
    handshakes: VecDeque<Token>,
    /// Those that can go on and whose last request took a turn's time alone.
    slow: VecDeque<Token>,
    /// The one of those that was put behind all others that can go on.
    slow_next: Option<Token>,
    /// Those with a list or a deletion of a collection that can go on.
    jobs: VecDeque<Token>,
    /// Those that may have something to send at the end of this turn.
    touched: VecDeque<Token>,
    /// Those with a long response under way, whether or not it can go on.
    with_jobs: Vec<Token>,
}

/// In which of the queues a connection stands.
#[derive(Debug, Default)]
pub(super) struct Marks {
    /// In one of the run queue, the handshakes and the slow.
    can_go_on: bool,
    /// Among those whose list or deletion can go on.
    is_in_jobs: bool,
    /// Among those that may have something to send.
    is_touched: bool,
    /// Among those with a long response under way.
    is_with_job: bool,
}

impl Marks {
    /// The connection is gone on with, out of whichever of the run queue, the handshakes and the slow.
    pub(super) fn leave_run(&mut self) {
        self.can_go_on = false;
    }

    /// The next step of its list or deletion is taken.
    pub(super) fn leave_jobs(&mut self) {
        self.is_in_jobs = false;
    }

    /// It is flushed.
    pub(super) fn leave_touched(&mut self) {
        self.is_touched = false;
    }
}

impl Queues {
    /// Whether anybody can go on at once.
    pub(super) fn can_go_on(&self) -> bool {
        let queues = [&self.handshakes, &self.slow, &self.jobs];
        !self.run.is_empty() || queues.iter().any(|queue| !queue.is_empty())
    }

    /// The connection can go on: puts it in the run queue, unless it stands there, waits for a step of its handshake,
    /// or is slow and waits for its turn.
    pub(super) fn enqueue(&mut self, entry: &mut Entry) {
        if !std::mem::replace(&mut entry.marks.can_go_on, true) {
            self.run.push(entry.token());
        }
    }

    /// Takes the run queue, with one of the slow behind all others. Each of these is to leave it, to wait elsewhere, or
    /// to be put back.
    pub(super) fn take_run(&mut self) -> Vec<Token> {
        if self.slow_next.is_none() {
            self.slow_next = self.slow.pop_front();
            self.run.extend(self.slow_next);
        }
        std::mem::take(&mut self.run)
    }

    /// Puts those back for the next turn for which there was no time, before those who have had their turn, so that
    /// nobody waits for ever.
    pub(super) fn put_back(&mut self, rest: &[Token]) {
        self.run.extend_from_slice(rest);
    }

    /// Uses the memory of what [`Queues::take_run`] gave for the next turn.
    pub(super) fn recycle(&mut self, mut run: Vec<Token>) {
        if self.run.is_empty() {
            run.clear();
            self.run = run;
        }
    }

    /// Whether this is the one of the slow whose turn it is; it is only asked once.
    pub(super) fn take_slow_turn(&mut self, token: Token) -> bool {
        self.slow_next.take_if(|next| *next == token).is_some()
    }

    /// Puts a connection out of the run queue among the slow.
    pub(super) fn await_slow_turn(&mut self, token: Token) {
        self.slow.push_back(token);
    }

    /// Puts a connection out of the run queue among those that wait for a step of their handshake; before the others if
    /// it `has_begun`.
    pub(super) fn await_handshake_turn(&mut self, token: Token, has_begun: bool) {
        if has_begun {
            self.handshakes.push_front(token);
        } else {
            self.handshakes.push_back(token);
        }
    }

    /// Whether somebody waits for a step of its handshake.
    pub(super) fn has_handshakes(&self) -> bool {
        !self.handshakes.is_empty()
    }

    /// The next whose handshake is to go on.
    pub(super) fn pop_handshake(&mut self) -> Option<Token> {
        self.handshakes.pop_front()
    }

    /// Puts the connection among those with a long response under way if it has one, and among those whose list or
    /// deletion can go on if it can.
    pub(super) fn enqueue_job(&mut self, entry: &mut Entry) {
        if entry.conn.has_job() && !std::mem::replace(&mut entry.marks.is_with_job, true) {
            self.with_jobs.push(entry.token());
        }
        if entry.conn.has_job_step() && !std::mem::replace(&mut entry.marks.is_in_jobs, true) {
            self.jobs.push_back(entry.token());
        }
    }

    /// Whether a list or a deletion can go on.
    pub(super) fn has_jobs(&self) -> bool {
        !self.jobs.is_empty()
    }

    /// The next whose list or deletion is to go on.
    pub(super) fn pop_job(&mut self) -> Option<Token> {
        self.jobs.pop_front()
    }

    /// Does this to each connection with a long response under way.
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

    /// How many connections had a long response under way at the last look.
    pub(super) fn with_jobs(&self) -> usize {
        self.with_jobs.len()
    }

    /// The connection may have something to send: puts it among those that are flushed at the end of the turn.
    pub(super) fn touch(&mut self, entry: &mut Entry) {
        if !std::mem::replace(&mut entry.marks.is_touched, true) {
            self.touched.push_back(entry.token());
        }
    }

    /// The next that is to be flushed.
    pub(super) fn pop_touched(&mut self) -> Option<Token> {
        self.touched.pop_front()
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
        queues.await_handshake_turn(handshake, false);
        queues.await_slow_turn(slow);
        queues.put_back(&[rest]);
        // Wherever they wait, an event puts none of them in the run queue again.
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
        queues.await_slow_turn(first);
        queues.await_slow_turn(second);
        assert_eq!(queues.take_run(), [first]);
        // There was no time for it.
        queues.put_back(&[first]);
        assert_eq!(queues.take_run(), [first]);
        assert!(queues.take_slow_turn(first));
        assert_eq!(queues.take_run(), [second]);
    }

    #[test]
    fn a_handshake_that_has_begun_goes_before_the_others() {
        let mut queues = Queues::default();
        for (token, has_begun) in [(Token(1), false), (Token(2), false), (Token(3), true)] {
            queues.await_handshake_turn(token, has_begun);
        }
        let order = [(); 4].map(|()| queues.pop_handshake());
        assert_eq!(order, [Some(Token(3)), Some(Token(1)), Some(Token(2)), None]);
    }

    #[test]
    fn who_is_touched_is_flushed_once_and_in_that_order() {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let (mut connections, mut queues) = (Connections::default(), Queues::default());
        let [first, second] = [(); 2].map(|()| add(&mut connections, &listener));
        for token in [first, second, first] {
            queues.touch(connections.get_mut(token).expect("a connection"));
        }
        assert_eq!([(); 3].map(|()| queues.pop_touched()), [Some(first), Some(second), None]);
        let entry = connections.get_mut(second).expect("a connection");
        entry.marks.leave_touched();
        queues.touch(entry);
        assert_eq!(queues.pop_touched(), Some(second));
    }
}
