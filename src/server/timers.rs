//! Handles deadlines. Each connection has one active timer, which fires at its deadline or before. The server also
//! checks all long responses at intervals. A long response may hold a permit, the right to one of a limited number of
//! such responses.

use super::Server;
use crate::clock::Now;
use crate::limits::{END_US_PER_TURN, JOBS_CHECK_MS};
use crate::schedule::{Mark, TimeBudget};
use mio::Token;
use std::cmp::Reverse;

impl Server {
    pub(super) fn arm_timer(&mut self, token: Token) {
        let Some(entry) = self.conns.get_mut(token) else { return };
        let deadline_ms = entry.conn.deadline_ms();
        // An earlier timer needs no change: when it fires, the server arms a new timer for the later deadline. So most
        // changes of a deadline set no timer.
        if deadline_ms < entry.armed_ms {
            entry.armed_ms = deadline_ms;
            self.timers.push(Reverse((deadline_ms, token)));
        }
    }

    /// Whether a timer is due. It may be outdated: its connection may be closed, or may have an earlier timer.
    pub(super) fn has_due_timer(&self, now_ms: u64) -> bool {
        self.timers.peek().is_some_and(|Reverse((due_ms, _))| *due_ms <= now_ms)
    }

    /// Handles due timers, until the time budget is used up. After a pause of the process, many timers are due at once.
    pub(super) fn on_timeout(&mut self, now: Now) {
        let mut time = TimeBudget::new(END_US_PER_TURN);
        while self.has_due_timer(now.ms)
            && let Some(Reverse((due_ms, token))) = self.timers.pop()
        {
            self.on_timer(due_ms, token, now);
            if time.check_end() {
                break;
            }
        }
    }

    /// Handles a due timer, unless it is outdated: its connection is closed, or has an earlier timer.
    fn on_timer(&mut self, due_ms: u64, token: Token, now: Now) {
        let Some(entry) = self.conns.get_mut(token).filter(|entry| entry.armed_ms == due_ms) else { return };
        entry.armed_ms = u64::MAX;
        if entry.conn.deadline_ms() <= now.ms {
            let next = entry.conn.on_timeout(&mut self.service, &mut self.pool, now);
            self.close_or_enqueue(token, next);
        } else {
            self.arm_timer(token);
        }
    }

    /// Frees the memory of long responses that are past their deadline, or whose permit the server has revoked and
    /// given to another user. Notes which long responses the peer does not read, so that their permits may be revoked.
    pub(super) fn check_jobs(&mut self, now: Now) {
        if now.ms >= self.jobs_check_ms {
            self.jobs_check_ms = now.ms + JOBS_CHECK_MS;
            self.queues.retain_with_jobs(|token| {
                let Some(entry) = self.conns.get_mut(token) else { return false };
                let has_job = entry.conn.has_job();
                if has_job {
                    entry.conn.check_jobs(now);
                } else {
                    entry.place.unmark(Mark::WithJobs);
                }
                has_job
            });
            self.service.watchers.check_long();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::server::Config;
    use std::time::Duration;

    #[test]
    fn a_turn_drops_only_some_of_many_outdated_timers() {
        const TIMERS: usize = 200_000;
        let mut server = Server::bind(Config::default()).expect("a server");
        server.timers.extend((0..TIMERS).map(|slot| Reverse((0, Token(slot)))));
        let now = server.clock.now();
        server.on_timeout(now);
        assert!(!server.timers.is_empty(), "one turn has dropped all timers");
        assert_eq!(server.timeout(), Some(Duration::ZERO), "the next turn begins at once");
    }
}
