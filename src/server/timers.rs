//! Deadlines. Each connection has one active timer, which fires at its deadline or before. Long responses are scanned
//! at intervals.

use super::Server;
use crate::clock::Now;
use crate::limits::{END_US_PER_TURN, JOBS_CHECK_MS};
use crate::schedule::TimeBudget;
use mio::Token;
use std::cmp::Reverse;

impl Server {
    pub(super) fn arm_timer(&mut self, token: Token) {
        let Some(entry) = self.conns.get_mut(token) else { return };
        let deadline_ms = entry.conn.deadline_ms();
        // An earlier timer needs no change: when it fires, the server sees the later deadline. So most changes of a
        // deadline set no timer.
        if deadline_ms < entry.armed_ms {
            entry.armed_ms = deadline_ms;
            self.timers.push(Reverse((deadline_ms, token)));
        }
    }

    /// Handles deadlines that have passed, until the time budget is used up.
    pub(super) fn on_timeout(&mut self, now: Now) {
        let mut time = TimeBudget::new(END_US_PER_TURN);
        while let Some(Reverse((due_ms, token))) = self.timers.peek().copied() {
            if due_ms > now.ms {
                break;
            }
            self.timers.pop();
            let Some(entry) = self.conns.get_mut(token) else { continue };
            if entry.armed_ms != due_ms {
                continue;
            }
            entry.armed_ms = u64::MAX;
            if entry.conn.deadline_ms() <= now.ms {
                let next = entry.conn.on_timeout(&mut self.service, &mut self.pool, now);
                self.close_or_enqueue(token, next);
                if time.check_end() {
                    break;
                }
            } else {
                self.arm_timer(token);
            }
        }
    }

    /// Frees the memory of long responses that are past their deadline, or whose permit was revoked for another user.
    /// Notes which long responses the peer does not read, so that their permits may be revoked.
    pub(super) fn check_jobs(&mut self, now: Now) {
        if now.ms >= self.jobs_check_ms {
            self.jobs_check_ms = now.ms + JOBS_CHECK_MS;
            self.queues.retain_with_jobs(|token| {
                let Some(entry) = self.conns.get_mut(token) else { return false };
                let has_job = entry.conn.has_job();
                if has_job {
                    entry.conn.check_jobs(now);
                } else {
                    entry.place.leave_with_jobs();
                }
                has_job
            });
            self.service.watchers.check_long();
        }
    }
}
