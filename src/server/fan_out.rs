//! Sends the changes of one turn of the event loop to the watchers.

use super::Server;
use crate::clock::Now;
use crate::limits::{
    CONNECTIONS_PER_TURN, FAN_OUT_BYTES_PER_TURN, FAN_OUT_LOOKS_PER_CLOCK, FAN_OUT_LOOKS_PER_TURN, FAN_OUT_US_PER_TURN,
    WATCHER_MARKS_PER_TURN,
};
use crate::schedule::TimeBudget;
use crate::watch::Fill;

impl Server {
    /// Sends the changes of this turn of the event loop to the watchers of the changed Leases. Also sends further
    /// events to watchers that are behind.
    pub(super) fn fan_out(&mut self, now: Now) {
        self.service.watchers.notify(&self.service.table, WATCHER_MARKS_PER_TURN);
        self.service.watchers.on_timeout(now);
        let bytes_max = self.service.watchers.bytes() + FAN_OUT_BYTES_PER_TURN as u64;
        let looks_max = self.service.watchers.looks() + FAN_OUT_LOOKS_PER_TURN;
        let mut clock_due = self.service.watchers.looks() + FAN_OUT_LOOKS_PER_CLOCK;
        // For a watcher without an open flow-control window, the server examines no event, but this takes time too. So
        // each watcher counts as one examined event.
        let mut taken = 0;
        let mut flushed = 0;
        let mut time = TimeBudget::new(FAN_OUT_US_PER_TURN);
        let mut again = Vec::new();
        while flushed < CONNECTIONS_PER_TURN
            && self.service.watchers.bytes() < bytes_max
            && self.service.watchers.looks() < looks_max
            && let Some((key, owner)) = self.service.watchers.pop_dirty()
        {
            taken += 1;
            let Some(entry) = self.conns.get_mut(owner.connection) else {
                self.service.watchers.remove(key);
                continue;
            };
            let fill = entry.conn.fill_watch(owner.stream, key, &mut self.service, &mut self.pool, now);
            match fill {
                None => self.service.watchers.remove(key),
                Some(Fill::More) if entry.conn.has_room() => again.push(key),
                Some(Fill::More | Fill::Idle) => {}
                Some(Fill::Ended(why)) => {
                    tracing::debug!(?why, "watch ended");
                    self.service.api.metrics.count_watch_end(why);
                    // Later requests on the connection, or its close, have waited for the end of the watch.
                    self.queues.enqueue(&mut entry.place);
                }
            }
            flushed += usize::from(self.queues.enqueue_flush(&mut entry.place));
            let looks = self.service.watchers.looks() + taken;
            if looks >= clock_due {
                clock_due = looks + FAN_OUT_LOOKS_PER_CLOCK;
                if time.check_end() {
                    break;
                }
            }
        }
        for key in again {
            self.service.watchers.mark_dirty(key);
        }
        if !self.service.watchers.has_dirty() {
            self.service.table.mark_delivered();
        }
    }
}
