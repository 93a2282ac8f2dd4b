//! The event loop: the only owner of `Poll` and of the connections.
//!
//! `Server::turn` runs one turn of the event loop, in the order of docs/architecture.md, "The turn".
//!
//! Responses to requests that arrive together are sent together. A watcher gets all events of a turn in one write.
//! Each kind of long work has a budget per turn: a limit of time or bytes. So a turn ends soon, and its responses are
//! sent. Work that exceeds its budget stays in a queue, and the next poll does not block. The queues are needed
//! because mio reports readiness only once, as an edge.

mod accept;
mod connections;
mod endpoints;
mod fan_out;
mod former;
mod start;
mod storage;
mod timers;

pub use start::{Config, ServerError, StorageConfig};

use crate::api::Reclaim;
use crate::api::health::CheckId;
use crate::api::identity::{self, ReplicaIdentity};
use crate::buffer::Pool;
use crate::clock::{Clock, Now, RareWarning, thread_cpu_micros};
use crate::cluster::{BuiltInRequests, NamespaceChange, ReplicaEndpoint, built_in};
use crate::conn::Next;
use crate::engine::EngineError;
use crate::journal::Journal;
use crate::limits::{
    CHANGES_APPLIED_PER_TURN, CONNECTIONS_PER_TURN, DISCARD_US_PER_TURN, END_US_PER_TURN, EVENTS_PER_TURN,
    HANDSHAKE_US_PER_TURN, JOB_US_PER_TURN, MOVE_AFTER_MS, MOVE_EVERY_MS, RECHECKED_PER_TURN, RECORDS_LOADED_PER_TURN,
    SHUTDOWN_MS_MAX, STATES_DISCARDED_PER_STEP,
};
use crate::listener::Listener;
use crate::metrics::TurnEnd;
use crate::route::Probe;
use crate::schedule::{LongState, Mark, Queues, TimeBudget};
use crate::serve::Service;
use crate::table::PREFETCH_MAX;
use crate::tls::config::Secure;
use crate::tls::reload::Reload;
use crate::updates::{UpdateSender, Updates};
use crate::watch::StopKind;
use connections::{ConnEntry, Connections};
use endpoints::Endpoints;
use former::Former;
use mio::event::Event;
use mio::{Events, Poll, Token, Waker};
use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use storage::TableLimits;
use thiserror::Error;
use uuid::Uuid;

/// Stops a server from another thread.
#[derive(Clone, Debug)]
pub struct ShutdownHandle {
    asked: Arc<AtomicBool>,
    waker: Arc<Waker>,
}

impl ShutdownHandle {
    /// Asks for an orderly stop: the server takes no new connections, finishes the requests in flight, and ends
    /// watches. Returns at once.
    pub fn shutdown(&self) {
        self.asked.store(true, Ordering::Release);
        // If the event loop cannot be woken, it has already ended.
        let _ = self.waker.wake();
    }
}

/// A server whose listeners are open.
#[derive(Debug)]
pub struct Server {
    poll: Poll,
    listeners: Vec<Listener>,
    conns: Connections,
    /// Connections, watchers and Leases from before a reload of the store, until later turns have closed and freed
    /// them.
    former: Option<Former>,
    /// Slot of the next connection to run so that the server verifies its peer again; `None` if all have run.
    recheck_slot: Option<usize>,
    max_connections: usize,
    /// Warning that the connection limit is reached.
    full_warning: RareWarning,
    /// Warning that a connection could not be accepted or registered.
    exhausted_warning: RareWarning,
    service: Service,
    pool: Pool,
    clock: Clock,
    queues: Queues,
    timers: BinaryHeap<Reverse<(u64, Token)>>,
    /// Time of the next check of long responses: of their deadlines, and of whether their peers read them. In ms.
    jobs_check_ms: u64,
    shutdown: ShutdownHandle,
    reloads: Updates<Reload>,
    reload_sender: UpdateSender<Reload>,
    namespace_changes: Updates<NamespaceChange>,
    namespace_sender: UpdateSender<NamespaceChange>,
    endpoints: Endpoints,
    awaited: Awaited,
    storage: StorageConfig,
    /// Whether this process has loaded the store once.
    has_loaded: bool,
    /// Number of times that this process has lost track of the store since it was last [current](Server::is_current).
    losses: u32,
    /// Version of the format in which the store is written.
    journal_format: u8,
    table_limits: TableLimits,
    /// Deadline of the orderly stop, in ms.
    stop_ms: Option<u64>,
    /// Time at which the server next closes all connections, so that clients go to other replicas, in ms; `None` while
    /// the table is [current](Server::is_current).
    move_ms: Option<u64>,
    stop_kind: StopKind,
}

/// The `/readyz` checks that wait for a result of another thread; `None` for a check that this server does not need.
#[derive(Debug)]
struct Awaited {
    request_header: Option<CheckId>,
    namespaces: Option<CheckId>,
    journal: Option<CheckId>,
}

/// Why a server cannot continue.
#[derive(Debug, Error)]
pub enum RunError {
    /// The server cannot read, write or close the journal.
    #[error("the journal cannot go on: {0}")]
    Journal(#[source] EngineError),
    /// The poll failed. This is not expected to happen.
    #[error("the event loop failed: {0}")]
    Poll(#[source] io::Error),
}

/// Puts a connection in the run queue, if the connection still exists.
fn enqueue(conns: &mut Connections, queues: &mut Queues, token: Token) {
    if let Some(entry) = conns.get_mut(token) {
        queues.enqueue(&mut entry.place);
    }
}

/// Puts a connection in the queues of its long work: runnable jobs, and requests whose processing takes long.
fn enqueue_work(queues: &mut Queues, entry: &mut ConnEntry) {
    let ConnEntry { conn, place, .. } = entry;
    if conn.has_job() {
        queues.note_with_job(place);
    }
    if conn.has_job_step() {
        queues.enqueue_job(place);
    }
    if conn.long_state() != LongState::Gone {
        queues.enqueue_long(place);
    }
}

/// Maximum number of reloads of the store in a row, without the server becoming [current](Server::is_current) in
/// between. If the server then loses track of the store again, the process ends, and its supervisor starts it again
/// after a pause.
const RELOADS_MAX: u32 = 5;

/// First token of the listeners. The last token is the waker's.
const LISTENER_TOKENS: usize = usize::MAX - 16;
const WAKER_TOKEN: Token = Token(usize::MAX);

impl Server {
    /// Returns the address that serves TLS.
    #[must_use]
    pub fn secure_addr(&self) -> Option<SocketAddr> {
        self.listeners.iter().find(|listener| listener.is_tls()).map(Listener::local_addr)
    }

    /// Returns the address that serves cleartext HTTP.
    #[must_use]
    pub fn insecure_addr(&self) -> Option<SocketAddr> {
        self.listeners.iter().find(|listener| !listener.is_tls()).map(Listener::local_addr)
    }

    /// Returns a handle that stops this server.
    #[must_use]
    pub fn shutdown_handle(&self) -> ShutdownHandle {
        self.shutdown.clone()
    }

    /// Makes this server create and renew an identity Lease, if other servers share its store. The identity Lease shows
    /// the other servers that this server is live. `host` is the machine's name. If `endpoint` is given, this Lease
    /// also names `endpoint` as the address at which clients reach this server.
    pub fn announce(&mut self, host: &str, endpoint: Option<ReplicaEndpoint>) {
        let port = self.secure_addr().or_else(|| self.insecure_addr()).map_or(0, |addr| addr.port());
        if self.service.api.storage.is_shared() {
            self.service.api.identity = Some(ReplicaIdentity::new(host, port, endpoint, Uuid::new_v4()));
        }
    }

    /// Returns the sender with which another thread passes new certificates and CAs to the event loop.
    #[must_use]
    pub fn reload_sender(&self) -> UpdateSender<Reload> {
        self.reload_sender.clone()
    }

    /// Returns the sender with which the publishing thread reports the generation (sequence number) of each list of
    /// endpoints that it has published.
    #[must_use]
    pub fn published_sender(&self) -> UpdateSender<u64> {
        self.endpoints.published_sender()
    }

    /// Returns the sender with which another thread reports namespace changes to the event loop.
    #[must_use]
    pub fn namespace_sender(&self) -> UpdateSender<NamespaceChange> {
        self.namespace_sender.clone()
    }

    /// Returns the receiver of the requests to the thread that watches built-in Leases (those that kube-apiserver
    /// itself stores). From now on, this replica can copy these Leases through kube-apiserver.
    pub fn follow_built_in(&mut self) -> BuiltInRequests {
        let (changes, requests) = built_in(Arc::clone(&self.shutdown.waker));
        self.service.api.handover.copy_from(changes);
        requests
    }

    /// Runs the event loop until all Leases are loaded and current (have every acknowledged change), or the server is
    /// stopped. Returns whether the Leases are loaded and current. While the Leases are being loaded, the server
    /// refuses requests for Leases, and clients retry.
    ///
    /// # Errors
    /// [`RunError`]: the journal cannot be read.
    pub fn load(&mut self) -> Result<bool, RunError> {
        self.turn_until(Self::is_current)
    }

    /// Runs the loop until `/readyz` passes or the server is stopped. Returns whether `/readyz` passes.
    ///
    /// # Errors
    /// [`RunError`]: the journal cannot be read.
    pub fn await_ready(&mut self) -> Result<bool, RunError> {
        self.turn_until(|server| server.service.api.health.is_passing(Probe::Readyz))
    }

    fn turn_until(&mut self, is_done: impl Fn(&Self) -> bool) -> Result<bool, RunError> {
        let mut events = Events::with_capacity(EVENTS_PER_TURN);
        while !is_done(self) && !self.is_over() {
            self.turn(&mut events)?;
        }
        Ok(is_done(self))
    }

    /// Whether the table is loaded, and recently contained every change that any replica had acknowledged.
    fn is_current(&self) -> bool {
        let now_ms = self.clock.now().ms;
        self.service.api.storage.journal().is_none_or(|journal| !journal.is_loading() && journal.is_current(now_ms))
    }

    /// Serves until [`ShutdownHandle::shutdown`] is called. Then finishes the requests in flight, for a few seconds at
    /// most, and closes the store.
    ///
    /// # Errors
    /// [`RunError`]: the server has stopped serving. If there is a journal, it contains all acknowledged writes.
    pub fn run(mut self) -> Result<(), RunError> {
        let mut events = Events::with_capacity(EVENTS_PER_TURN);
        while !self.is_over() {
            self.turn(&mut events)?;
        }
        // The close of the store can take long on a slow disk. No client waits for it.
        drop(self.conns.take_all());
        self.service.api.storage.journal_mut().map_or(Ok(()), Journal::close).map_err(RunError::Journal)
    }

    /// Waits for events, for at most `timeout`. A signal ends the wait without events.
    fn poll_events(&mut self, events: &mut Events, timeout: Option<Duration>) -> Result<(), RunError> {
        match self.poll.poll(events, timeout) {
            Err(e) if e.kind() == io::ErrorKind::Interrupted => {
                events.clear();
                Ok(())
            }
            other => other.map_err(RunError::Poll),
        }
    }

    /// Runs one turn of the loop; docs/architecture.md shows its order.
    fn turn(&mut self, events: &mut Events) -> Result<(), RunError> {
        let timeout = self.timeout();
        self.poll_events(events, timeout)?;
        let woken = Instant::now();
        // Reads the CPU time only in turns that continue work, because a read costs more than all other measurements of
        // a turn.
        let goes_on = timeout == Some(Duration::ZERO);
        let cpu_us_before = goes_on.then(thread_cpu_micros);
        let now = self.clock.now();
        self.service.date.update(now.wall);
        self.take_reloads();
        self.recheck_connections(now);
        self.take_namespace_changes();
        self.endpoints.take_published(now.ms);
        self.end_former();
        // The new table is loaded only after the former one is freed, so that the memory need not hold both.
        if self.former.is_none() {
            self.take_durable(now)?;
        }
        self.move_clients(now);
        self.service.waiters.wake_late(now.ms, |token| enqueue(&mut self.conns, &mut self.queues, token));
        for event in &*events {
            self.dispatch_event(event);
        }
        if self.stop_ms.is_none() && self.shutdown.asked.load(Ordering::Acquire) {
            self.stop(events, now)?;
        }
        self.accept(now);
        self.service.pace.begin_turn(Instant::now());
        self.run_connections(now);
        self.take_handshake_steps(now);
        self.take_job_steps(now);
        self.serve_long_request(now);
        let Service { api, table, .. } = &mut self.service;
        if let Some(endpoints) = api.keep_identity(table, now)
            && !self.endpoints.is_leaving()
        {
            self.endpoints.set(endpoints);
        }
        self.service.hand_over(now, |token| enqueue(&mut self.conns, &mut self.queues, token));
        // The journal's thread gets the turn's changes before the responses are sent. So the journal's thread writes
        // while this thread sends the responses.
        self.service.send_changes(now);
        self.fan_out(now);
        self.flush_connections(now);
        self.end_connections(now);
        self.on_timeout(now);
        self.check_jobs(now);
        self.discard();
        self.service.api.metrics.step(&self.service.table, now);
        self.service.api.metrics.end_turn(TurnEnd {
            duration_us: u64::try_from(woken.elapsed().as_micros()).unwrap_or(u64::MAX),
            cpu_us: cpu_us_before.map(|before| thread_cpu_micros().saturating_sub(before)),
            connections: self.open_connections(),
            watchers: self.service.watchers.len(),
            sharded_watchers: self.service.watchers.sharded(),
            watch_events: self.service.watchers.events(),
            connections_with_jobs: self.queues.with_jobs(),
            long_responses: self.service.api.long_responses(),
            long_responses_revoked: self.service.api.long_responses_revoked(),
            queued_bytes: self.service.queued_bytes,
            received_bytes: self.service.received_bytes,
            waiting_requests: self.service.waiters.len(),
        });
        Ok(())
    }

    /// Lets the connections of the run queue run once each, as long as the turn has time for requests. Stops after
    /// about [`CONNECTIONS_PER_TURN`] connections.
    fn run_connections(&mut self, now: Now) {
        let ready = self.queues.take_run();
        let mut rest = &ready[..];
        let mut runs = 0;
        while !rest.is_empty() && runs < CONNECTIONS_PER_TURN && !self.service.pace.check_end() {
            let (group, behind) = rest.split_at(rest.len().min(PREFETCH_MAX));
            self.prefetch_next(group, now);
            rest = behind;
            for (at, token) in group.iter().enumerate() {
                let is_slow_turn = self.queues.take_slow_turn(*token);
                match self.conns.get_mut(*token) {
                    Some(entry) if entry.is_slow && !is_slow_turn => self.queues.move_to_slow(*token),
                    Some(entry) if entry.conn.is_handshake_step() => {
                        self.queues.move_to_handshakes(*token, entry.conn.note_queued_handshake(now));
                    }
                    _ => {
                        runs += 1;
                        self.run_connection(*token, now);
                    }
                }
                let is_over = self.service.pace.check_end();
                if let (Some(is_slow), Some(entry)) = (self.service.pace.take_slow(), self.conns.get_mut(*token)) {
                    entry.is_slow = is_slow && !entry.conn.speaks_for_many();
                }
                if is_over {
                    self.queues.put_back(&group[at + 1..]);
                    break;
                }
            }
        }
        self.queues.put_back(rest);
        self.queues.recycle(ready);
    }

    /// Prefetches, into the processor's caches, the Leases that the next requests of these connections name.
    fn prefetch_next(&mut self, group: &[Token], now: Now) {
        if group.len() < 2 {
            return;
        }
        let Self { conns, pool, service, .. } = self;
        let Service { table, pace, .. } = service;
        let key = |token: &Token| {
            let entry = if pace.check_end() { None } else { conns.get_mut(*token) };
            entry?.conn.read_ahead(table, pace, pool, now)
        };
        table.prefetch(group.iter().filter_map(key));
    }

    /// Runs steps of waiting TLS handshakes, until the time budget of handshakes is used up.
    fn take_handshake_steps(&mut self, now: Now) {
        if !self.queues.has_handshakes() {
            return;
        }
        let end = Instant::now() + Duration::from_micros(HANDSHAKE_US_PER_TURN);
        while let Some(token) = self.queues.pop_handshake() {
            self.run_connection(token, now);
            if Instant::now() >= end {
                break;
            }
        }
    }

    /// Runs steps of jobs, such as lists, until their time budget is used up.
    fn take_job_steps(&mut self, now: Now) {
        if !self.queues.has_jobs() {
            return;
        }
        let end = Instant::now() + Duration::from_micros(JOB_US_PER_TURN);
        while let Some(token) = self.queues.pop_job() {
            let Some(entry) = self.conns.get_mut(token) else { continue };
            entry.place.unmark(Mark::Jobs);
            if entry.conn.has_job_step() {
                entry.conn.step_job(token, &mut self.service, &mut self.pool, now);
                if entry.conn.has_room() {
                    enqueue_work(&mut self.queues, entry);
                }
                self.queues.enqueue_flush(&mut entry.place);
            }
            if Instant::now() >= end || self.service.table.log().headroom().is_used_up() {
                break;
            }
        }
    }

    /// Serves one request whose processing takes long, if [`Queues::pop_long`] chooses one. Usually it chooses none if
    /// responses of this turn would wait for the long request.
    fn serve_long_request(&mut self, now: Now) {
        if !self.queues.has_long() {
            return;
        }
        let conns = &mut self.conns;
        let state_of = |token| {
            conns.get_mut(token).map_or(LongState::Gone, |entry| {
                let state = entry.conn.long_state();
                if state == LongState::Gone {
                    entry.place.unmark(Mark::Long);
                }
                state
            })
        };
        let Some(token) = self.queues.pop_long(self.service.pace.has_answers(), state_of) else { return };
        let Some(entry) = self.conns.get_mut(token) else { return };
        entry.place.unmark(Mark::Long);
        // If the output has no room, the connection returns to the queue when the peer has read.
        if entry.conn.serve_long_request(token, &mut self.service, &mut self.pool, now) {
            enqueue_work(&mut self.queues, entry);
        }
        self.queues.enqueue_flush(&mut entry.place);
        self.conns.recheck(token, now);
    }

    /// Applies new certificates and CAs, and counts failed reloads. After a reload, all connections run, so that the
    /// server verifies their peers again ([`Server::recheck_connections`]).
    fn take_reloads(&mut self) {
        while let Some(reload) = self.reloads.next() {
            match reload {
                Reload::Done(Secure { config, trust, serving_last }) => {
                    self.service.api.metrics.serving_last = serving_last;
                    self.listeners.iter_mut().for_each(|listener| listener.set_tls(&config));
                    if let Some(check) = self.awaited.request_header
                        && trust.is_complete()
                    {
                        self.service.api.health.set(check, Ok(()));
                    }
                    self.service.trust = trust;
                    self.recheck_slot = Some(0);
                }
                Reload::Failed => self.service.api.metrics.counts.reload_failures += 1,
                Reload::Expiries(lasts) => self.service.api.metrics.certs_last = lasts,
            }
        }
    }

    /// Makes the server verify the peers of all connections again: enqueues some connections in each turn, until each
    /// has run. Such a round begins after a reload of certificates or CAs. At the connection limit, it also begins when
    /// the certificate of a peer has expired. The peer of a watch sends no request. So only this round makes the peer
    /// anonymous, if its certificate is no longer valid.
    fn recheck_connections(&mut self, now: Now) {
        // Below the limit, the server evicts nobody, so the round would be useless work. A round of many connections
        // can last for seconds. If each expiry began it anew, it would not reach the last slots.
        let may_begin = self.recheck_slot.is_none() && self.is_full();
        if may_begin && self.conns.take_expiry(now) {
            self.recheck_slot = Some(0);
        }
        let Some(slot) = &mut self.recheck_slot else { return };
        for _ in 0..RECHECKED_PER_TURN {
            let Some(place) = self.conns.next_place(slot) else {
                self.recheck_slot = None;
                return;
            };
            self.queues.enqueue(place);
        }
    }

    /// Applies the namespace changes that the cluster reported.
    fn take_namespace_changes(&mut self) {
        while let Some(change) = self.namespace_changes.next() {
            self.service.api.namespaces.apply(change);
            self.service.waiters.wake_any(|token| enqueue(&mut self.conns, &mut self.queues, token));
            if let Some(check) = self.awaited.namespaces
                && !self.service.api.namespaces.is_awaited()
            {
                self.service.api.health.set(check, Ok(()));
            }
        }
    }

    /// Applies records that the journal has loaded or made durable, and wakes the requests that wait for them.
    ///
    /// # Errors
    /// The journal has failed.
    fn take_durable(&mut self, now: Now) -> Result<(), RunError> {
        let Self { service, conns, queues, awaited, .. } = self;
        let wake = |token| enqueue(conns, queues, token);
        let is_loading = service.api.storage.journal().is_some_and(Journal::is_loading);
        let records_max = if is_loading { RECORDS_LOADED_PER_TURN } else { CHANGES_APPLIED_PER_TURN };
        let has_loaded = match service.advance_journal(now, records_max, wake) {
            Ok(has_loaded) => has_loaded,
            Err(error @ EngineError::Lost { .. }) if self.losses < RELOADS_MAX => {
                tracing::error!(%error, "loading all Leases again");
                self.losses += 1;
                return self.load_again().map_err(RunError::Journal);
            }
            Err(error) => return Err(RunError::Journal(error)),
        };
        let is_first_load = has_loaded && !self.has_loaded;
        self.has_loaded |= has_loaded;
        let Service { api, table, .. } = service;
        // Only the first load shows whether the store of a single server was in use before this process started. A
        // shared store may come into use at any time: another replica gets the first request after a switch by hand.
        // Until the first load is complete, the table lacks Leases, perhaps the only old one.
        let may_come_into_use = self.has_loaded && (is_first_load || api.storage.is_shared());
        if api.reclaim.is_awaited() && may_come_into_use && identity::holds_leases(table) {
            let is_old = identity::holds_leases_since(table, api.reclaim.began_before(now.wall));
            if is_first_load && is_old {
                // Each former holder has had the time to create its lock again. So the store has every lock (a Lease
                // with a holder), and the server need not reserve missing locks.
                api.reclaim = Reclaim::new(0);
            } else {
                // The store came into use only recently, so former holders of missing locks may still act as leaders.
                // From the first request after a switch by hand, locks are reserved for these holders for a time. This
                // server may have been started or restarted in this time.
                api.reclaim.begin(now.ms);
            }
        }
        if let (Some(check), Some(journal)) = (awaited.journal, api.storage.journal()) {
            let (is_stuck, is_current) = (journal.is_stuck(now.ms), journal.is_current(now.ms));
            let health = match (journal.is_loading(), journal.is_writable(), is_stuck, is_current) {
                (true, ..) => Err("the journal is being read".into()),
                (false, false, ..) => Err("the journal cannot be written".into()),
                (false, true, true, _) => Err("a commit of the journal does not end".into()),
                (false, true, false, false) => Err("this replica is behind".into()),
                (false, true, false, true) => Ok(()),
            };
            api.health.set(check, health);
        }
        if self.losses > 0 && self.is_current() {
            self.losses = 0;
        }
        Ok(())
    }

    /// Closes all connections if this replica has been cut off from etcd for a time, and there are other replicas.
    /// Clients then connect to another replica and resume their watches there. Otherwise kube-apiserver would keep its
    /// connection to this replica, since the connection itself works. If no replica reaches etcd, clients connect to
    /// this replica again and resume their watches.
    fn move_clients(&mut self, now: Now) {
        if !self.has_loaded || self.stop_ms.is_some() || self.is_current() {
            self.move_ms = None;
            return;
        }
        let due_ms = *self.move_ms.get_or_insert(now.ms + MOVE_AFTER_MS);
        if now.ms < due_ms {
            return;
        }
        self.move_ms = Some(now.ms + MOVE_EVERY_MS);
        let Service { api, table, .. } = &self.service;
        if !api.identity.as_ref().is_some_and(|identity| identity.has_others(table)) {
            return;
        }
        tracing::warn!(connections = self.conns.len(), "cut off from etcd: clients are sent to other replicas");
        self.end_all(now);
    }

    /// Ends all connections: the first ones now, and the rest at the ends of this turn and of the next ones.
    fn end_all(&mut self, now: Now) {
        for place in self.conns.places_mut() {
            self.queues.enqueue_ending(place);
        }
        self.end_connections(now);
    }

    /// Lets connections that must end finish their requests in progress, end their watches, and close, until the time
    /// budget is used up.
    fn end_connections(&mut self, now: Now) {
        let mut time = TimeBudget::new(END_US_PER_TURN);
        while let Some(token) = self.queues.pop_ending() {
            self.end_connection(token, now);
            if self.queues.has_ending() && time.check_end() {
                break;
            }
        }
    }

    /// Lets one connection end. The caller has removed it from the queue `ending`.
    fn end_connection(&mut self, token: Token, now: Now) {
        let Some(entry) = self.conns.get_mut(token) else { return };
        entry.place.unmark(Mark::Ending);
        let next = entry.conn.on_shutdown(&mut self.service, &mut self.pool, now);
        self.close_or_enqueue(token, next);
    }

    /// Returns the timeout of the next poll: zero while work is queued, else the time until the next timer.
    fn timeout(&mut self) -> Option<Duration> {
        let accept_ms = self.accept_ms();
        let can_accept = accept_ms == Some(0);
        let can_discard = self.service.table.discarded_len() > 0;
        let has_changes = self.service.api.storage.journal().is_some_and(Journal::has_work);
        let has_work = self.queues.can_go_on() || self.former.is_some() || self.service.watchers.has_dirty();
        if can_accept || has_work || can_discard || has_changes || self.recheck_slot.is_some() {
            return Some(Duration::ZERO);
        }
        let now = self.clock.now();
        if self.has_due_timer(now.ms) {
            return Some(Duration::ZERO);
        }
        // At the connection limit, a new connection waits in the kernel. Once a peer's certificate has expired, the
        // server can evict that peer in favour of the new connection. So the poll must end at the next expiry.
        let expiry_ms = if self.is_full() { self.conns.expiry_ms(now) } else { None };
        let connection_ms = self.timers.peek().map(|Reverse((due_ms, _))| *due_ms);
        let (bookmarks_ms, metrics_ms) = (self.service.watchers.due_ms(), self.service.api.metrics.due_ms());
        let waiters_ms = self.service.waiters.due_ms();
        let journal_ms = self.service.api.storage.journal().and_then(Journal::due_ms);
        let has_long = self.queues.with_jobs() > 0 || self.service.watchers.has_long();
        let jobs_ms = has_long.then_some(self.jobs_check_ms);
        let identity_ms = self.service.api.identity.as_ref().map(ReplicaIdentity::due_ms);
        let due_ms = [
            self.service.api.handover.due_ms(),
            identity_ms,
            connection_ms,
            bookmarks_ms,
            metrics_ms,
            accept_ms,
            waiters_ms,
            journal_ms,
            jobs_ms,
            self.stop_ms,
            self.move_ms,
            expiry_ms,
            self.stop_ms.is_none().then(|| self.endpoints.due_ms()).flatten(),
        ];
        let due_ms = due_ms.into_iter().flatten().min()?;
        // Plus 1 ms, so that the loop does not wake a fraction of a millisecond before the timer is due.
        Some(Duration::from_millis(due_ms.saturating_sub(now.ms) + 1))
    }

    /// Passes an event of the poll to its listener or connection.
    fn dispatch_event(&mut self, event: &Event) {
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
        // If the connection was closed earlier, no connection has this token any more.
        let Some(entry) = self.conns.get_mut(token) else { return };
        entry.conn.transport_mut().note_readiness(event);
        self.queues.enqueue(&mut entry.place);
    }

    /// Lets a runnable connection read, serve requests or continue its TLS handshake.
    fn run_connection(&mut self, token: Token, now: Now) {
        let Some(entry) = self.conns.get_mut(token) else { return };
        entry.place.unmark(Mark::Run);
        entry.conn.on_ready(token, &mut self.service, &mut self.pool, now);
        // Counts the bytes now, so that the connections served next see the current totals.
        entry.count(&mut self.service);
        enqueue_work(&mut self.queues, entry);
        if entry.conn.is_abandoned() {
            // Responses to other connections come first, since thousands of peers may be gone at once.
            self.service.pace.count_end();
            self.queues.enqueue_ending(&mut entry.place);
        } else {
            self.queues.enqueue_flush(&mut entry.place);
        }
        self.conns.recheck(token, now);
    }

    /// Frees some states of Leases that nobody needs any more. They are left over from lists, watches and copies that
    /// have ended.
    fn discard(&mut self) {
        let table = &self.service.table;
        if table.discarded_len() == 0 {
            return;
        }
        let end = Instant::now() + Duration::from_micros(DISCARD_US_PER_TURN);
        while table.discarded_len() > 0 && Instant::now() < end {
            table.discard_step(STATES_DISCARDED_PER_STEP);
        }
    }

    /// Sends the output of the connections in the flush queue.
    fn flush_connections(&mut self, now: Now) {
        while let Some(token) = self.queues.pop_flush() {
            let Some(entry) = self.conns.get_mut(token) else { continue };
            entry.place.unmark(Mark::Flush);
            let next = entry.conn.flush(&mut self.service, &mut self.pool, now);
            self.close_or_enqueue(token, next);
        }
    }

    /// Closes a connection, puts it in the run queue, or leaves it waiting, depending on `next`.
    fn close_or_enqueue(&mut self, token: Token, next: Next) {
        let Some(entry) = self.conns.get_mut(token) else { return };
        entry.count(&mut self.service);
        match next {
            Next::Close => self.close(token),
            Next::Again => self.queues.enqueue(&mut entry.place),
            Next::Wait => {}
        }
        self.arm_timer(token);
    }

    fn close(&mut self, token: Token) {
        let Some(entry) = self.conns.get_mut(token) else { return };
        entry.end(&mut self.service.watchers, &mut self.service.api.metrics);
        entry.uncount(&mut self.service);
        // Closing the descriptor removes it from the poll. Later events of the same poll may still have this token,
        // which no connection has any more.
        self.conns.remove(token);
    }

    /// Removes this server from the endpoints of the Service. Once this is done, begins the shutdown. Each turn calls
    /// this method until the shutdown has begun.
    fn stop(&mut self, events: &mut Events, now: Now) -> Result<(), RunError> {
        if !self.endpoints.is_leaving() {
            let Service { api, table, .. } = &mut self.service;
            api.health.begin_shutdown();
            api.leave(table, now);
            let others = api.identity.as_ref().map_or_else(Vec::new, ReplicaIdentity::other_endpoints);
            self.endpoints.leave(others, now.ms);
        }
        if self.endpoints.has_left(now.ms) {
            // The shutdown closes idle connections. A connection whose request has arrived by now is not idle, so the
            // server polls once more.
            self.poll_events(events, Some(Duration::ZERO))?;
            for event in &*events {
                self.dispatch_event(event);
            }
            // This poll may have consumed a wake-up whose update this turn has not taken yet. So the waker makes the
            // next turn begin at once.
            let _ = self.shutdown.waker.wake();
            self.begin_shutdown(now);
        }
        Ok(())
    }

    fn begin_shutdown(&mut self, now: Now) {
        tracing::info!(connections = self.conns.len(), "stopping");
        self.service.watchers.begin_shutdown(self.stop_kind);
        self.stop_ms = Some(now.ms + SHUTDOWN_MS_MAX);
        self.listeners.clear();
        self.end_all(now);
    }

    fn is_over(&self) -> bool {
        let now = self.clock.now();
        let is_idle = || self.conns.is_empty() && !self.service.api.is_leaving(now);
        self.stop_ms.is_some_and(|stop_ms| now.ms >= stop_ms && !self.queues.has_ending() || is_idle())
    }
}
