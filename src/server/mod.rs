//! The reactor: the only owner of `Poll`, of the connections and of the turn.
//!
//! docs/architecture.md, "The turn", says in which order `Server::turn` does what, and why.
//!
//! All that arrives together is answered together, and watchers get a turn's events in one write. mio reports edges:
//! what a budget leaves undone stands in the queue for its kind of work, and the next wait does not wait. Long work has its
//! time, so that however much there is of it, a turn ends soon and its answers go out.

mod connections;
mod start;

pub use start::{Config, ServerError};

use crate::api::health::CheckId;
use crate::buffer::Pool;
use crate::clock::{Clock, Now, thread_cpu_micros};
use crate::cluster::NamespaceChange;
use crate::conn::{Conn, Next};
use crate::limits::{
    ACCEPT_PAUSE_MS, ACCEPTS_PER_TURN, DISCARD_US_PER_TURN, EVENTS_PER_TURN, FAN_OUT_BYTES_PER_TURN,
    FAN_OUT_LOOKS_PER_CLOCK, FAN_OUT_LOOKS_PER_TURN, FAN_OUT_US_PER_TURN, FULL_TOLD_AGAIN_MS, HANDSHAKE_US_PER_TURN,
    JOB_US_PER_TURN, SHUTDOWN_MS_MAX, STATES_DISCARDED_PER_STEP,
};
use crate::listener::{Accepted, Listener};
use crate::metrics::TurnEnd;
use crate::serve::Service;
use crate::table::WANTED_MAX;
use crate::tls::config::Secure;
use crate::tls::reload::Reload;
use crate::transport::Transport;
use crate::updates::{UpdateSender, Updates};
use crate::watch::Fill;
use connections::Connections;
use mio::event::Event;
use mio::{Events, Interest, Poll, Token, Waker};
use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// Ends a server from another thread.
#[derive(Clone, Debug)]
pub struct ShutdownHandle {
    asked: Arc<AtomicBool>,
    waker: Arc<Waker>,
}

impl ShutdownHandle {
    /// Asks for an orderly stop: no new connection, what is in flight is finished, watches end. Returns at once.
    pub fn shutdown(&self) {
        self.asked.store(true, Ordering::Release);
        // If the loop cannot be woken it is over already.
        let _ = self.waker.wake();
    }
}

/// A server that listens.
#[derive(Debug)]
pub struct Server {
    poll: Poll,
    listeners: Vec<Listener>,
    conns: Connections,
    max_connections: usize,
    /// Milliseconds from which on it is said again that there are so many.
    full_told_again_ms: u64,
    service: Service,
    pool: Pool,
    clock: Clock,
    /// Connections that can go on without an event.
    run_queue: Vec<Token>,
    /// Connections whose next step in the TLS handshake can be taken, those first that have taken one. They are marked as
    /// those in the run queue are.
    handshakes: VecDeque<Token>,
    /// Connections that can go on and whose last request took a turn's time alone. They are marked as those in the run queue
    /// are.
    slow: VecDeque<Token>,
    /// The one of those that stands in the run queue.
    slow_next: Option<Token>,
    /// Connections with a list or a deletion of a collection that can go on.
    jobs: VecDeque<Token>,
    /// Connections that may have something to send at the end of this turn.
    touched: Vec<Token>,
    /// Connections with a long response under way.
    with_jobs: Vec<Token>,
    timers: BinaryHeap<Reverse<(u64, Token)>>,
    shutdown: ShutdownHandle,
    reloads: Updates<Reload>,
    reload_sender: UpdateSender<Reload>,
    namespace_changes: Updates<NamespaceChange>,
    namespace_sender: UpdateSender<NamespaceChange>,
    awaited: Awaited,
    /// Milliseconds at which the stop is no longer orderly.
    stop_ms: Option<u64>,
}

/// Checks of `/readyz` that wait for what only the cluster knows.
#[derive(Debug)]
struct Awaited {
    request_header: Option<CheckId>,
    namespaces: Option<CheckId>,
}

/// Tokens from here up are listeners; the waker is the last.
const LISTENER_TOKENS: usize = usize::MAX - 16;
const WAKER_TOKEN: Token = Token(usize::MAX);

impl Server {
    /// Where TLS is served.
    #[must_use]
    pub fn secure_addr(&self) -> Option<SocketAddr> {
        self.listeners.iter().find(|listener| listener.is_tls()).map(Listener::local_addr)
    }

    /// Where cleartext is served.
    #[must_use]
    pub fn insecure_addr(&self) -> Option<SocketAddr> {
        self.listeners.iter().find(|listener| !listener.is_tls()).map(Listener::local_addr)
    }

    /// Something to end it with.
    #[must_use]
    pub fn shutdown_handle(&self) -> ShutdownHandle {
        self.shutdown.clone()
    }

    /// Something to hand it other certificates and authorities.
    #[must_use]
    pub fn reload_sender(&self) -> UpdateSender<Reload> {
        self.reload_sender.clone()
    }

    /// Something to hand it other namespaces.
    #[must_use]
    pub fn namespace_sender(&self) -> UpdateSender<NamespaceChange> {
        self.namespace_sender.clone()
    }

    /// Serves until [`ShutdownHandle::shutdown`], and then until nothing is under way, for some seconds at the most.
    ///
    /// # Errors
    /// The poll's, of which none is expected.
    pub fn run(mut self) -> io::Result<()> {
        let mut events = Events::with_capacity(EVENTS_PER_TURN);
        while !self.is_over() {
            self.turn(&mut events)?;
        }
        Ok(())
    }

    /// One turn of the loop; docs/architecture.md draws its order.
    fn turn(&mut self, events: &mut Events) -> io::Result<()> {
        let timeout = self.timeout();
        match self.poll.poll(events, timeout) {
            Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
            other => other?,
        }
        let woken = Instant::now();
        // Only then, since asking for it costs more than all that is counted.
        let goes_on = timeout == Some(Duration::ZERO);
        let cpu_us_before = goes_on.then(thread_cpu_micros);
        let now = self.clock.now();
        self.service.date.update(now.wall);
        self.take_reloads();
        self.take_namespace_changes();
        while let Some((_, token)) = self.service.postponed.pop_front_if(|(due_ms, _)| *due_ms <= now.ms) {
            if let Some(entry) = self.conns.get_mut(token) {
                entry.enqueue(&mut self.run_queue);
            }
        }
        if self.stop_ms.is_none() && self.shutdown.asked.load(Ordering::Acquire) {
            self.begin_shutdown(now);
        }
        let mut ready = std::mem::take(&mut self.run_queue);
        for event in &*events {
            self.on_event(event, &mut ready);
        }
        self.accept(now, &mut ready);
        if self.slow_next.is_none() {
            self.slow_next = self.slow.pop_front();
            ready.extend(self.slow_next);
        }
        self.service.pace.begin(Instant::now());
        self.serve_ready(&ready, now);
        ready.clear();
        self.take_handshake_steps(now);
        self.take_job_steps(now);
        if self.run_queue.is_empty() {
            // The memory serves the next turn.
            self.run_queue = ready;
        }
        self.fan_out(now);
        self.flush(now);
        self.on_timeout(now);
        self.discard();
        self.service.api.metrics.step(&self.service.table, now);
        self.service.api.metrics.end_turn(TurnEnd {
            duration_us: u64::try_from(woken.elapsed().as_micros()).unwrap_or(u64::MAX),
            cpu_us: cpu_us_before.map(|before| thread_cpu_micros().saturating_sub(before)),
            connections: self.conns.len(),
            watchers: self.service.watchers.len(),
            watch_events: self.service.watchers.events(),
            connections_with_jobs: self.with_jobs.len(),
            queued_bytes: self.service.queued_bytes,
            received_bytes: self.service.received_bytes,
        });
        Ok(())
    }

    /// Goes on with each of these connections, while there is time for requests.
    fn serve_ready(&mut self, ready: &[Token], now: Now) {
        let mut rest = ready;
        while !rest.is_empty() && !self.service.pace.is_over() {
            let (group, behind) = rest.split_at(rest.len().min(WANTED_MAX));
            self.look_ahead(group, now);
            rest = behind;
            for (at, token) in group.iter().enumerate() {
                let is_slow_next = self.slow_next.take_if(|next| next == token).is_some();
                match self.conns.get_mut(*token) {
                    Some(entry) if entry.is_slow && !is_slow_next => self.slow.push_back(*token),
                    Some(entry) if entry.conn.is_handshake_step() => {
                        if entry.conn.await_handshake_turn(now) {
                            self.handshakes.push_front(*token);
                        } else {
                            self.handshakes.push_back(*token);
                        }
                    }
                    _ => self.on_ready(*token, now),
                }
                let is_over = self.service.pace.is_over();
                if let (Some(is_slow), Some(entry)) = (self.service.pace.take_slow(), self.conns.get_mut(*token)) {
                    entry.is_slow = is_slow;
                }
                if is_over {
                    // Before those that have had their turn, so that nobody waits for ever.
                    self.run_queue.extend_from_slice(&group[at + 1..]);
                    break;
                }
            }
        }
        self.run_queue.extend_from_slice(rest);
    }

    /// Brings to the caches what the requests that have come on these connections are about.
    fn look_ahead(&mut self, group: &[Token], now: Now) {
        if group.len() < 2 {
            return;
        }
        let Self { conns, pool, service, .. } = self;
        let wanted = |token: &Token| conns.get_mut(*token)?.conn.look_ahead(&service.table, pool, now);
        service.table.look_ahead(group.iter().filter_map(wanted));
    }

    /// Goes on with some of the handshakes that wait.
    fn take_handshake_steps(&mut self, now: Now) {
        if self.handshakes.is_empty() {
            return;
        }
        let end = Instant::now() + Duration::from_micros(HANDSHAKE_US_PER_TURN);
        while let Some(token) = self.handshakes.pop_front() {
            self.on_ready(token, now);
            if Instant::now() >= end {
                break;
            }
        }
    }

    /// Goes on with some of the lists and deletions of a collection that are under way.
    fn take_job_steps(&mut self, now: Now) {
        if self.jobs.is_empty() {
            return;
        }
        let end = Instant::now() + Duration::from_micros(JOB_US_PER_TURN);
        while let Some(token) = self.jobs.pop_front() {
            let Some(entry) = self.conns.get_mut(token) else { continue };
            entry.job_dequeued();
            if entry.conn.has_job_step() {
                if entry.conn.step_job(token, &mut self.service, &mut self.pool, now) {
                    entry.enqueue_job(&mut self.jobs);
                }
                entry.touch(&mut self.touched);
            }
            if Instant::now() >= end || self.service.table.log().room().is_used_up() {
                break;
            }
        }
    }

    /// Takes in what the certificates' thread has found out.
    fn take_reloads(&mut self) {
        while let Some(reload) = self.reloads.next() {
            match reload {
                Reload::Done(Secure { config, trust, serving_last }) => {
                    self.service.api.metrics.set_serving_last(serving_last);
                    self.listeners.iter_mut().for_each(|listener| listener.set_tls(&config));
                    if let Some(check) = self.awaited.request_header
                        && trust.is_complete()
                    {
                        self.service.api.health.set(check, Ok(()));
                    }
                    self.service.trust = trust;
                }
                Reload::Failed => self.service.api.metrics.count_reload_failure(),
            }
        }
    }

    /// Takes in what the cluster has told of its namespaces.
    fn take_namespace_changes(&mut self) {
        while let Some(change) = self.namespace_changes.next() {
            self.service.api.namespaces.apply(change);
            for (_, token) in &self.service.postponed {
                if let Some(entry) = self.conns.get_mut(*token) {
                    entry.enqueue(&mut self.run_queue);
                }
            }
            if let Some(check) = self.awaited.namespaces
                && !self.service.api.namespaces.is_awaited()
            {
                self.service.api.health.set(check, Ok(()));
            }
        }
    }

    /// How long to wait: not at all while something can go on, else until the next timer.
    fn timeout(&mut self) -> Option<Duration> {
        let may_accept = self.has_place();
        let can_accept = may_accept && self.listeners.iter().any(Listener::is_readable);
        let queues = [&self.handshakes, &self.slow, &self.jobs];
        let can_go_on = !self.run_queue.is_empty() || queues.iter().any(|queue| !queue.is_empty());
        let can_discard = !self.service.table.discard().is_empty();
        if can_accept || can_go_on || can_discard || self.service.watchers.has_dirty() {
            return Some(Duration::ZERO);
        }
        let now_ms = self.clock.now().ms;
        let connection_ms = self.timers.peek().map(|Reverse((due_ms, _))| *due_ms);
        let accept_ms = self.listeners.iter().filter_map(Listener::resume_ms).min().filter(|_| may_accept);
        let (watchers_ms, metrics_ms) = (self.service.watchers.due_ms(), self.service.api.metrics.due_ms());
        let postponed_ms = self.service.postponed.front().map(|(due_ms, _)| *due_ms);
        let due_ms = [connection_ms, watchers_ms, metrics_ms, accept_ms, postponed_ms, self.stop_ms];
        let due_ms = due_ms.into_iter().flatten().min()?;
        // One more, so that a timer is due when it wakes the loop and not a fraction of a millisecond before.
        Some(Duration::from_millis(due_ms.saturating_sub(now_ms) + 1))
    }

    fn on_event(&mut self, event: &Event, ready: &mut Vec<Token>) {
        let token = event.token();
        if token == WAKER_TOKEN {
            return;
        }
        if token.0 >= LISTENER_TOKENS {
            if let Some(listener) = self.listeners.get_mut(token.0 - LISTENER_TOKENS) {
                listener.on_readable();
            }
            return;
        }
        // A stale token: the connection closed in this batch or before.
        let Some(entry) = self.conns.get_mut(token) else { return };
        entry.conn.transport_mut().on_event(event);
        entry.enqueue(ready);
    }

    fn accept(&mut self, now: Now, ready: &mut Vec<Token>) {
        for at in 0..self.listeners.len() {
            if self.conns.len() >= self.max_connections && self.listeners[at].is_readable() {
                self.tell_full(now);
            }
            for _ in 0..ACCEPTS_PER_TURN {
                if self.stop_ms.is_some() || !self.has_place() {
                    break;
                }
                let Some(listener) = self.listeners.get_mut(at) else { break };
                match listener.accept(now.ms) {
                    Accepted::Connection(transport) => {
                        self.make_place();
                        self.add(transport, now, ready);
                    }
                    Accepted::Nothing => break,
                    Accepted::Exhausted(error) => {
                        self.service.api.metrics.count_accept_error();
                        tracing::warn!(%error, pause_ms = ACCEPT_PAUSE_MS, "cannot accept a connection");
                        break;
                    }
                }
            }
        }
    }

    /// Says, now and then, that there are as many connections as there may be.
    fn tell_full(&mut self, now: Now) {
        if now.ms >= self.full_told_again_ms {
            self.full_told_again_ms = now.ms + FULL_TOLD_AGAIN_MS;
            let connections = self.conns.len();
            let what = if self.conns.oldest_stranger().is_some() {
                "the oldest without a certificate ends for each new one"
            } else {
                "all have a certificate, so new ones wait"
            };
            tracing::warn!(connections, "as many connections as there may be: {what}");
        }
    }

    /// Whether another connection can be taken.
    fn has_place(&mut self) -> bool {
        self.conns.len() < self.max_connections || self.conns.oldest_stranger().is_some()
    }

    /// Ends the connection of the stranger that has been here longest if all places are taken. Else anybody who reaches the
    /// port could keep everybody else out with connections that do nothing.
    fn make_place(&mut self) {
        if self.conns.len() < self.max_connections {
            return;
        }
        if let Some(token) = self.conns.oldest_stranger() {
            self.service.api.metrics.count_evicted_connection();
            self.close(token);
        }
    }

    fn add(&mut self, mut transport: Transport, now: Now, ready: &mut Vec<Token>) {
        let registry = self.poll.registry();
        let added = self.conns.add(|token| {
            registry.register(transport.socket_mut(), token, Interest::READABLE | Interest::WRITABLE)?;
            Ok(Conn::new(transport, now))
        });
        match added {
            Ok(entry) => entry.enqueue(ready),
            Err(error) => {
                tracing::warn!(%error, "cannot register a connection");
                return;
            }
        }
        self.service.api.metrics.count_connection();
    }

    fn on_ready(&mut self, token: Token, now: Now) {
        let Some(entry) = self.conns.get_mut(token) else { return };
        entry.dequeued();
        let had_job = entry.conn.has_job();
        entry.conn.on_ready(token, &mut self.service, &mut self.pool, now);
        // The next ones are to know, and not only when all have been served.
        entry.count(&mut self.service);
        if !had_job && entry.conn.has_job() {
            self.with_jobs.push(token);
        }
        entry.enqueue_job(&mut self.jobs);
        entry.touch(&mut self.touched);
    }

    /// Lets go of some of what abandoned lists held.
    fn discard(&mut self) {
        let discard = self.service.table.discard();
        if discard.is_empty() {
            return;
        }
        let end = Instant::now() + Duration::from_micros(DISCARD_US_PER_TURN);
        while !discard.is_empty() && Instant::now() < end {
            discard.step(STATES_DISCARDED_PER_STEP);
        }
    }

    /// Brings the turn's changes to whom they are for.
    fn fan_out(&mut self, now: Now) {
        self.service.watchers.notify(&self.service.table);
        let (conns, service) = (&mut self.conns, &self.service);
        self.with_jobs.retain(|token| match conns.get_mut(*token) {
            Some(entry) if entry.conn.has_job() => {
                entry.conn.absorb(service, now);
                true
            }
            _ => false,
        });
        self.service.watchers.on_timeout(now);
        let bytes_max = self.service.watchers.bytes() + FAN_OUT_BYTES_PER_TURN as u64;
        let looks_max = self.service.watchers.looks() + FAN_OUT_LOOKS_PER_TURN;
        let mut clock_due = self.service.watchers.looks() + FAN_OUT_LOOKS_PER_CLOCK;
        let mut end = None;
        let mut again = Vec::new();
        while self.service.watchers.bytes() < bytes_max
            && self.service.watchers.looks() < looks_max
            && let Some((key, owner)) = self.service.watchers.pop_dirty()
        {
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
                    // Requests behind the watch, or the end of the connection, have waited for that.
                    entry.enqueue(&mut self.run_queue);
                }
            }
            entry.touch(&mut self.touched);
            if self.service.watchers.looks() >= clock_due {
                clock_due = self.service.watchers.looks() + FAN_OUT_LOOKS_PER_CLOCK;
                let moment = Instant::now();
                if moment >= *end.get_or_insert(moment + Duration::from_micros(FAN_OUT_US_PER_TURN)) {
                    break;
                }
            }
        }
        for key in again {
            self.service.watchers.mark_dirty(key);
        }
        if !self.service.watchers.has_dirty() {
            self.service.table.mark_told();
        }
    }

    fn flush(&mut self, now: Now) {
        let mut touched = std::mem::take(&mut self.touched);
        for token in touched.drain(..) {
            let Some(entry) = self.conns.get_mut(token) else { continue };
            entry.untouched();
            let next = entry.conn.flush(&mut self.service, &mut self.pool, now);
            self.go_on(token, next);
        }
        self.touched = touched;
    }

    /// Does what a connection's state asks for.
    fn go_on(&mut self, token: Token, next: Next) {
        let Some(entry) = self.conns.get_mut(token) else { return };
        entry.count(&mut self.service);
        match next {
            Next::Close => self.close(token),
            Next::Again => entry.enqueue(&mut self.run_queue),
            Next::Wait => {}
        }
        self.arm_timer(token);
    }

    fn close(&mut self, token: Token) {
        let Some(entry) = self.conns.get_mut(token) else { return };
        entry.conn.drop_work(&mut self.service);
        entry.uncount(&mut self.service);
        // Closing the descriptor takes it out of the poll; an event of this batch that still comes has a stale token.
        self.conns.remove(token);
    }

    fn arm_timer(&mut self, token: Token) {
        let Some(entry) = self.conns.get_mut(token) else { return };
        let deadline_ms = entry.conn.deadline_ms();
        // An earlier timer finds the later deadline when it fires, so most changes set none.
        if deadline_ms < entry.armed_ms {
            entry.armed_ms = deadline_ms;
            self.timers.push(Reverse((deadline_ms, token)));
        }
    }

    fn on_timeout(&mut self, now: Now) {
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
                self.go_on(token, next);
            } else {
                self.arm_timer(token);
            }
        }
    }

    fn begin_shutdown(&mut self, now: Now) {
        tracing::info!(connections = self.conns.len(), "stopping");
        self.service.api.health.begin_shutdown();
        self.service.watchers.begin_shutdown();
        self.stop_ms = Some(now.ms + SHUTDOWN_MS_MAX);
        self.listeners.clear();
        for token in self.conns.tokens() {
            let Some(entry) = self.conns.get_mut(token) else { continue };
            let next = entry.conn.on_shutdown(&mut self.service, &mut self.pool, now);
            self.go_on(token, next);
        }
    }

    fn is_over(&self) -> bool {
        self.stop_ms.is_some_and(|stop_ms| self.conns.is_empty() || self.clock.now().ms >= stop_ms)
    }
}
