//! One connection: its transport, buffers, protocol and deadlines.

use crate::auth::Credentials;
use crate::buffer::{ByteBuf, Pool};
use crate::clock::Now;
use crate::http2::StreamKey;
use crate::limits::{
    ANONYMOUS_READ_BYTES_PER_TURN, BUFFER_BYTES, HEAD_MS_MAX, LINGER_MS_MAX, QUEUED_BYTES_HIGH, READ_BYTES_PER_TURN,
    WRITE_STALL_BYTES_MIN, WRITE_STALL_MS_MAX,
};
use crate::schedule::{Budget, LongState, Pace};
use crate::serve::{AfterStep, Context, Owner, Peer, Protocol, Served, Service};
use crate::table::{PrefetchKey, Table};
use crate::timestamp::Time;
use crate::tls::config::ALPN_HTTP_2;
use crate::transport::{Output, Transport};
use crate::watch::{Fill, WatcherKey, Watchers};
use mio::Token;
use std::io;
use std::ops::ControlFlow;

/// A connection, from accept to close.
#[derive(Debug)]
pub(crate) struct Conn {
    transport: Transport,
    credentials: Credentials,
    protocol: Protocol,
    input: ByteBuf,
    output: Output,
    phase: Phase,
    stopped: Stopped,
    /// Outcome of [`Conn::read_ahead`], stored until the connection is served: the number of bytes from the socket, or
    /// the error.
    ahead: io::Result<usize>,
    /// Open watches that wait for room in the output, since it had no room for their further events.
    behind: Vec<WatcherKey>,
    /// Start of the peer's time to show a certificate, in ms. This is the time of the accept, plus the time for which
    /// the handshake waited for this server.
    began_ms: u64,
    /// Start of the wait for the peer, in ms, from which the peer's deadline counts. While output waits, the peer must
    /// read output before the deadline. Otherwise the peer must send the rest of a message, or its next message.
    owed_since_ms: u64,
    /// Bytes of output sent since `owed_since_ms`.
    gone_bytes: usize,
    /// Whether the socket has not taken all output. With TLS, the unsent rest is inside rustls, not in `output`.
    is_unsent: bool,
    /// Time at which the next step of the TLS handshake was queued, in ms; `None` if no step is queued.
    handshake_queued_ms: Option<u64>,
}

/// Phases of a connection.
///
/// ```text
///   Handshake ──► Open ──► Closing ──► Lingering ──► Closed
///       └───────────┴─────────┴── error, or timeout ──────▲
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    /// The TLS handshake is in progress.
    Handshake,
    /// Requests are served.
    Open,
    /// The server sends the queued output, and then closes its direction.
    Closing,
    /// The server's direction is closed. The server reads and drops the peer's input for a moment. Closing a socket
    /// with unread bytes would reset the connection, and the peer could lose output that it has not read (RFC 9112
    /// §9.6).
    Lingering,
    /// The connection is dropped at the end of this turn of the event loop, or of one of the next turns.
    Closed,
}

/// Whether serving stopped while there was more to do, and why.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stopped {
    /// There is nothing more to do before the next event or timer.
    No,
    /// The budget is used up; other connections come first.
    Budget,
    /// The output is full.
    Room,
}

/// How a connection continues after a call of its methods.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Next {
    /// The connection waits for an event or a timer.
    Wait,
    /// The connection can continue without an event, after the other connections.
    Again,
    /// The connection must be closed.
    Close,
}

impl Conn {
    /// Returns a new connection. A TLS peer is anonymous until it shows a certificate. A cleartext peer needs no
    /// certificate.
    #[must_use]
    pub(crate) fn new(transport: Transport, now: Now) -> Self {
        let (credentials, phase) = if transport.is_tls() {
            (Credentials::unproven(), Phase::Handshake)
        } else {
            (Credentials::insecure(), Phase::Open)
        };
        Self {
            transport,
            credentials,
            protocol: Protocol::Undecided,
            input: ByteBuf::default(),
            output: Output::default(),
            phase,
            stopped: Stopped::No,
            ahead: Ok(0),
            behind: Vec::new(),
            began_ms: now.ms,
            owed_since_ms: now.ms,
            gone_bytes: 0,
            is_unsent: false,
            handshake_queued_ms: None,
        }
    }

    /// Returns the socket and its readiness.
    pub(crate) fn transport_mut(&mut self) -> &mut Transport {
        &mut self.transport
    }

    /// Whether the peer is anonymous. Every TLS peer is anonymous until its handshake is complete.
    #[must_use]
    pub(crate) fn is_anonymous(&self) -> bool {
        self.credentials.is_anonymous()
    }

    /// Returns the time at which the peer's certificates must be evaluated again; `None` in cleartext, and before their
    /// first evaluation.
    #[must_use]
    pub(crate) fn proven_until(&self) -> Option<Time> {
        self.credentials.proven_until()
    }

    /// Whether the connection uses TLS and its handshake is not complete. If the connection closes now, the handshake
    /// has failed, whichever side gave up.
    #[must_use]
    pub(crate) fn is_before_handshake_end(&self) -> bool {
        self.transport.is_tls() && matches!(self.protocol, Protocol::Undecided)
    }

    /// Whether the connection is a front proxy's, and carries the requests of many clients. The event loop serves slow
    /// connections after all others. So a slow request of one client must not mark this connection as slow.
    #[must_use]
    pub(crate) fn speaks_for_many(&self) -> bool {
        self.credentials.is_front_proxy()
    }

    /// Returns the start of an anonymous peer's time to show a certificate, in ms. `None` while the handshake waits
    /// for this server. Such a wait does not count against the peer.
    pub(crate) fn anonymous_since_ms(&self) -> Option<u64> {
        match self.phase {
            Phase::Handshake if self.handshake_queued_ms.is_some() => None,
            Phase::Handshake => Some(self.owed_since_ms),
            _ => Some(self.began_ms),
        }
    }

    /// Whether the connection's next work is a step of the TLS handshake, which takes long.
    #[must_use]
    pub(crate) fn is_handshake_step(&self) -> bool {
        self.phase == Phase::Handshake && self.transport.is_readable()
    }

    /// Notes that the next step of the handshake is queued. The time in the queue does not count against the peer.
    /// Returns whether the server has already processed the ClientHello. The caller queues such a handshake before
    /// others, since the work on the ClientHello would be lost if the peer gave up.
    pub(crate) fn note_queued_handshake(&mut self, now: Now) -> bool {
        self.handshake_queued_ms.get_or_insert(now.ms);
        self.transport.has_begun_handshake()
    }

    /// Reads from the socket, if [`Conn::on_ready`] would begin with a read. Returns the key with which the table
    /// prefetches the Lease of the next request, if that Lease is known. So the caller can bring the Leases of several
    /// connections into the processor's caches together, before it serves the connections.
    pub(crate) fn read_ahead(
        &mut self,
        table: &Table,
        pace: &mut Pace,
        pool: &mut Pool,
        now: Now,
    ) -> Option<PrefetchKey> {
        if self.phase != Phase::Open || !self.protocol.can_prefetch() {
            return None;
        }
        if let Ok(before_bytes) = self.ahead
            && self.input.is_empty()
            && self.transport.is_readable()
        {
            self.ahead = self.read_once(pace, pool, now).map(|read| before_bytes + read);
        }
        self.protocol.next_prefetch_key(&self.input, table)
    }

    /// Reads from the socket and serves complete requests. The output waits for [`Conn::flush`].
    pub(crate) fn on_ready(&mut self, connection: Token, service: &mut Service, pool: &mut Pool, now: Now) {
        if let Some(since_ms) = self.handshake_queued_ms.take() {
            let waited_ms = now.ms.saturating_sub(since_ms);
            self.owed_since_ms += waited_ms;
            self.began_ms += waited_ms;
            if self.transport.is_end_near() && !self.transport.has_begun_handshake() {
                // The peer closed its direction before the server processed the ClientHello, so the handshake is not
                // worth the work. Later, a closed direction need not mean that the peer gave up: it may have sent its
                // last handshake message and a whole request.
                self.phase = Phase::Closed;
                return;
            }
        }
        if let Err(error) = self.read_and_serve(connection, service, pool, now) {
            self.drop_work(&mut service.watchers);
            if error.kind() == io::ErrorKind::InvalidData {
                tracing::debug!(%error, peer = ?self.transport.socket_mut().peer_addr().ok(), "the TLS session failed");
                // The peer's TLS is not acceptable. rustls has queued an alert with the reason. The connection lingers
                // for a moment, so that the peer can read the alert.
                self.transport.send_alert();
                self.phase = Phase::Lingering;
                self.stopped = Stopped::Budget;
                self.owed_since_ms = now.ms;
            } else {
                self.phase = Phase::Closed;
            }
        }
        if !matches!(self.phase, Phase::Handshake | Phase::Open) {
            // Drops unserved requests.
            self.input.consume(self.input.len());
        }
        self.input.release(pool);
    }

    /// Sends the queued output and returns how the connection continues. Call `flush` after every method that may have
    /// queued output.
    pub(crate) fn flush(&mut self, service: &mut Service, pool: &mut Pool, now: Now) -> Next {
        match (self.phase, self.stopped) {
            (Phase::Closed, _) => return Next::Close,
            (Phase::Lingering, Stopped::Budget) => return Next::Again,
            (Phase::Lingering, _) => return Next::Wait,
            (Phase::Handshake | Phase::Open | Phase::Closing, _) => {}
        }
        let queued_bytes = self.output.len();
        let Ok(is_sent) = self.transport.write(&mut self.output) else {
            self.phase = Phase::Closed;
            return Next::Close;
        };
        self.gone_bytes += queued_bytes - self.output.len();
        let was_unsent = std::mem::replace(&mut self.is_unsent, !is_sent);
        let is_all_gone = is_sent && (was_unsent || queued_bytes > 0);
        if is_all_gone || self.gone_bytes >= WRITE_STALL_BYTES_MIN {
            self.note_owed(now);
        }
        self.output.release(pool);
        if self.has_room() {
            for key in self.behind.drain(..) {
                service.watchers.unpark(key);
            }
        }
        match (self.phase, self.stopped) {
            (Phase::Closing, _) if is_sent => {
                self.transport.close_write(&mut self.output);
                if self.transport.is_eof() {
                    self.phase = Phase::Closed;
                    return Next::Close;
                }
                self.phase = Phase::Lingering;
                self.owed_since_ms = now.ms;
                Next::Again
            }
            (Phase::Handshake | Phase::Open, Stopped::Budget) => Next::Again,
            (Phase::Open, Stopped::Room) if self.output.len() < service.output_bytes_max(&self.credentials) => {
                Next::Again
            }
            _ => Next::Wait,
        }
    }

    /// Whether a job (a response made in steps, such as a list) has a step that can run now.
    #[must_use]
    pub(crate) fn has_job_step(&self) -> bool {
        self.phase == Phase::Open && self.protocol.has_job_step()
    }

    /// Returns the state of the connection's queue of long requests: those whose processing takes long.
    #[must_use]
    pub(crate) fn long_state(&self) -> LongState {
        if self.phase == Phase::Open { self.protocol.long_state() } else { LongState::Gone }
    }

    /// Serves one queued long request, if the output has room. The connection then continues with its other work.
    /// Returns true if the output had room and the connection is still open.
    pub(crate) fn serve_long_request(
        &mut self,
        connection: Token,
        service: &mut Service,
        pool: &mut Pool,
        now: Now,
    ) -> bool {
        self.credentials.refresh(&service.trust, self.transport.peer_certificates(), now);
        let bytes_max = service.output_bytes_max(&self.credentials);
        let after = self.step(bytes_max, connection, service, pool, now, Protocol::serve_long_request);
        if after.is_some() {
            self.stopped = Stopped::Budget;
        }
        after.is_some()
    }

    /// Runs one step of a job, if the output has room. The next step can follow at once if [a step is
    /// runnable](Conn::has_job_step) and the output [still has room](Conn::has_room).
    pub(crate) fn step_job(&mut self, connection: Token, service: &mut Service, pool: &mut Pool, now: Now) {
        match self.step(QUEUED_BYTES_HIGH, connection, service, pool, now, Protocol::step_job) {
            // The job has ended. The connection's later requests, or its close, have waited for this end. So the
            // connection must run again, as after an exhausted budget.
            Some(AfterStep::GoOn) if !self.protocol.has_job_step() => self.stopped = Stopped::Budget,
            Some(AfterStep::GoOn) if !self.has_room() => self.stopped = Stopped::Room,
            // After `Wait`, the connection is woken when the journal reports the outcome of the job's changes.
            Some(AfterStep::Wait | AfterStep::GoOn | AfterStep::Close) | None => {}
        }
    }

    /// Runs a step of the protocol, if the output has fewer than `bytes_max` bytes. Returns `None` if the step did not
    /// run, or if the connection closes.
    fn step(
        &mut self,
        bytes_max: usize,
        connection: Token,
        service: &mut Service,
        pool: &mut Pool,
        now: Now,
        step: impl FnOnce(&mut Protocol, &mut Context<'_>) -> AfterStep,
    ) -> Option<AfterStep> {
        if self.output.len() >= bytes_max {
            self.stopped = Stopped::Room;
            return None;
        }
        let owed_nothing = !self.is_output_waiting();
        let from = Peer { connection, credentials: &self.credentials };
        let output = self.output.buffer(pool);
        let after = step(&mut self.protocol, &mut Context { service, from, now, output });
        if owed_nothing && self.is_output_waiting() {
            self.note_owed(now);
        }
        if after == AfterStep::Close {
            self.phase = Phase::Closing;
            self.drop_work(&mut service.watchers);
            return None;
        }
        Some(after)
    }

    /// Appends events of the open watch `key` to the output, as far as the output has room. Over HTTP/2, the events
    /// belong to `stream`. Returns `None` if the watch is not open.
    pub(crate) fn fill_watch(
        &mut self,
        stream: Option<StreamKey>,
        key: WatcherKey,
        service: &mut Service,
        pool: &mut Pool,
        now: Now,
    ) -> Option<Fill> {
        if !self.has_room() {
            self.put_behind(key, service);
            return Some(Fill::Idle);
        }
        let owed_nothing = !self.is_output_waiting();
        let fill = self.protocol.send_events(service, stream, key, now, self.output.buffer(pool))?;
        if owed_nothing && self.is_output_waiting() {
            self.note_owed(now);
        }
        if fill == Fill::More && !self.has_room() {
            self.put_behind(key, service);
        }
        Some(fill)
    }

    /// Restarts the peer's deadline at `now`.
    fn note_owed(&mut self, now: Now) {
        self.owed_since_ms = now.ms;
        self.gone_bytes = 0;
    }

    /// Whether output waits for the socket, and thus for the peer to read.
    fn is_output_waiting(&self) -> bool {
        self.is_unsent || !self.output.is_empty()
    }

    /// Parks a watcher: it gets no more events until the output has room again.
    fn put_behind(&mut self, key: WatcherKey, service: &mut Service) {
        service.watchers.park(key);
        self.behind.push(key);
    }

    /// Returns the bytes of output that wait for the socket or for the flow-control window of a stream.
    #[must_use]
    pub(crate) fn waiting_bytes(&self) -> usize {
        self.output.len() + self.protocol.unsent_bytes()
    }

    /// Returns the received bytes that belong to unserved requests.
    #[must_use]
    pub(crate) fn received_bytes(&self) -> usize {
        self.input.len() + self.protocol.received_bytes()
    }

    /// Whether the output has room for more events, or for more of a list.
    #[must_use]
    pub(crate) fn has_room(&self) -> bool {
        self.output.len() < QUEUED_BYTES_HIGH
    }

    /// Drops all work in progress, because the connection closes.
    pub(crate) fn drop_work(&mut self, watchers: &mut Watchers<Owner>) {
        self.protocol.drop_work(watchers);
    }

    /// Whether only the close of the connection is left to do: the connection has failed, or its peer has closed it and
    /// awaits no output.
    #[must_use]
    pub(crate) fn is_abandoned(&self) -> bool {
        match self.phase {
            Phase::Closed => true,
            Phase::Closing => self.transport.is_eof() && !self.is_output_waiting(),
            Phase::Handshake | Phase::Open | Phase::Lingering => false,
        }
    }

    /// [Checks](crate::api::job::Job::check) the jobs in progress, such as lists. A job frees its memory if its
    /// deadline has passed, or if another client has got its permit. A permit is the right to one of a limited number
    /// of concurrent jobs.
    pub(crate) fn check_jobs(&mut self, now: Now) {
        let has_room = self.has_room();
        self.protocol.check_jobs(now, has_room);
    }

    /// Whether a job, such as a list, is in progress.
    #[must_use]
    pub(crate) fn has_job(&self) -> bool {
        self.protocol.has_job()
    }

    /// Ends the connection, because the server stops or sends its clients to other replicas. On an open connection,
    /// requests in progress finish, and no other request begins. A connection that is already closing still sends its
    /// queued output. In any other phase, the connection closes at once.
    pub(crate) fn on_shutdown(&mut self, service: &mut Service, pool: &mut Pool, now: Now) -> Next {
        match self.phase {
            Phase::Open => {
                // A request may have arrived that is not read yet. So an HTTP/1.1 connection with unread bytes is not
                // idle. Over HTTP/2, GOAWAY tells the client to send such a request again.
                let may_have_request = matches!(self.protocol, Protocol::Http1(_)) && self.transport.is_readable();
                let was_idle = self.protocol.is_idle(&self.input) && !may_have_request;
                self.protocol.on_shutdown(service, self.output.buffer(pool));
                if was_idle {
                    self.phase = Phase::Closing;
                } else {
                    // The connection closes once its work in progress has ended.
                    self.stopped = Stopped::Budget;
                }
            }
            Phase::Handshake | Phase::Lingering => self.phase = Phase::Closed,
            Phase::Closing | Phase::Closed => {}
        }
        self.flush(service, pool, now)
    }

    /// Returns the peer's deadline, in ms; `u64::MAX` if the peer has no deadline.
    #[must_use]
    pub(crate) fn deadline_ms(&self) -> u64 {
        let patience_ms = match self.phase {
            Phase::Handshake if self.handshake_queued_ms.is_some() => return u64::MAX,
            Phase::Handshake => HEAD_MS_MAX,
            Phase::Lingering => LINGER_MS_MAX,
            Phase::Closed => 0,
            Phase::Closing => WRITE_STALL_MS_MAX,
            // While output waits, the peer owes no further message. But a slow reader has no more time than other peers
            // for the rest of a body, or to open the window of a stream.
            Phase::Open if self.is_output_waiting() => {
                return self.output_deadline_ms().min(self.protocol.deadline_ms(&self.input, u64::MAX));
            }
            Phase::Open => return self.protocol.deadline_ms(&self.input, self.owed_since_ms),
        };
        self.owed_since_ms.saturating_add(patience_ms)
    }

    /// Returns the deadline by which the peer must read waiting output, in ms.
    fn output_deadline_ms(&self) -> u64 {
        self.owed_since_ms.saturating_add(WRITE_STALL_MS_MAX)
    }

    /// Handles a deadline of the peer ([`Conn::deadline_ms`]) that has passed: ends the late HTTP/2 streams, or the
    /// whole connection.
    pub(crate) fn on_timeout(&mut self, service: &mut Service, pool: &mut Pool, now: Now) -> Next {
        let had_output = self.is_output_waiting();
        let is_stalled = self.phase != Phase::Open || had_output && self.output_deadline_ms() <= now.ms;
        let is_over = is_stalled || self.protocol.on_timeout(service, now, self.output.buffer(pool));
        if !had_output && self.is_output_waiting() {
            self.note_owed(now);
        }
        if is_over && had_output && !is_stalled {
            // The peer still has time to read the earlier responses.
            self.phase = Phase::Closing;
            self.drop_work(&mut service.watchers);
        } else if is_over {
            // Sends as much of the protocol's last frames as the socket takes.
            let _ = self.transport.write(&mut self.output);
            self.phase = Phase::Closed;
        }
        self.flush(service, pool, now)
    }

    fn read_and_serve(
        &mut self,
        connection: Token,
        service: &mut Service,
        pool: &mut Pool,
        now: Now,
    ) -> io::Result<()> {
        let mut budget = Budget::for_turn(service.output_bytes_max(&self.credentials));
        self.stopped = Stopped::No;
        let mut read_bytes = std::mem::replace(&mut self.ahead, Ok(0))?;
        loop {
            match self.phase {
                Phase::Closing | Phase::Closed => return Ok(()),
                Phase::Lingering => return self.linger(pool),
                Phase::Handshake | Phase::Open => {}
            }
            // The server reads no more until it has served the received input. So TCP flow control slows down a peer
            // that sends too fast.
            if self.phase == Phase::Open
                && self.input.len() >= BUFFER_BYTES
                && self.serve_input(connection, service, pool, now, &mut budget).is_break()
            {
                return Ok(());
            }
            // While an HTTP/1.1 response is in progress, the server reads at most about one buffer of later requests.
            // So TCP flow control stops a peer that sends more.
            let may_read = self.input.len() < BUFFER_BYTES || self.protocol.wants_input();
            if may_read && self.transport.is_readable() && read_bytes < self.read_bytes_max() {
                read_bytes += self.read_once(&mut service.pace, pool, now)?;
                if self.phase == Phase::Handshake && !self.transport.is_handshaking() {
                    self.on_handshake(service, pool, now);
                    service.api.metrics.counts.handshakes += 1;
                }
            }
            if self.phase == Phase::Open && self.serve_input(connection, service, pool, now, &mut budget).is_break() {
                return Ok(());
            }
            if self.transport.is_eof()
                && self.phase == Phase::Open
                && (self.protocol.is_waiting() || self.protocol.has_job_step() || self.protocol.has_long_request())
            {
                // The connection checks for EOF again after the response.
                return Ok(());
            }
            // During a watch at most one buffer of input is read, so EOF could stay unseen behind unread input. The
            // event that reports the peer's close then counts as EOF.
            let is_hidden_end = !may_read && self.transport.is_end_near() && self.protocol.is_watching();
            if self.transport.is_eof() || is_hidden_end {
                // All complete requests have their responses. If a watch is open, nobody reads it any more.
                self.phase = if self.phase == Phase::Open { Phase::Closing } else { Phase::Closed };
                self.drop_work(&mut service.watchers);
                return Ok(());
            }
            let is_open = self.phase == Phase::Open;
            let is_much = read_bytes >= self.read_bytes_max();
            if is_much && is_open && self.is_anonymous() {
                service.pace.count_much_read();
            }
            if !self.transport.is_readable() || !may_read {
                return Ok(());
            }
            if is_much || is_open && service.pace.check_end() {
                self.stopped = Stopped::Budget;
                return Ok(());
            }
        }
    }

    /// Returns the number of bytes after which this turn of the event loop reads no more from the connection. The
    /// number is smaller for anonymous peers, but only after the TLS handshake: during the handshake every peer is
    /// still anonymous. Two other limits apply to handshakes: a time budget in each turn, and a maximum size of their
    /// messages.
    fn read_bytes_max(&self) -> usize {
        let is_low = self.phase == Phase::Open && self.is_anonymous();
        if is_low { ANONYMOUS_READ_BYTES_PER_TURN } else { READ_BYTES_PER_TURN }
    }

    /// Reads once. Returns the number of bytes from the socket.
    fn read_once(&mut self, pace: &mut Pace, pool: &mut Pool, now: Now) -> io::Result<usize> {
        let was_within = self.protocol.is_within_message(&self.input);
        let read = self.transport.read(&mut self.input, pool)?;
        pace.count_read(read);
        // While output waits, the deadline is for reading the output, whatever the peer sends.
        if read > 0 && !was_within && !self.is_output_waiting() && self.phase == Phase::Open {
            self.note_owed(now);
        }
        Ok(read)
    }

    /// Serves complete requests in the input. Returns [`ControlFlow::Break`] if the connection has no more to do in
    /// this turn.
    fn serve_input(
        &mut self,
        connection: Token,
        service: &mut Service,
        pool: &mut Pool,
        now: Now,
        budget: &mut Budget,
    ) -> ControlFlow<()> {
        self.credentials.refresh(&service.trust, self.transport.peer_certificates(), now);
        let owed_nothing = !self.is_output_waiting();
        budget.has_more_input = self.transport.is_readable();
        let output = self.output.buffer(pool);
        let input_bytes = self.input.len();
        let from = Peer { connection, credentials: &self.credentials };
        let served = self.protocol.serve_requests(&mut Context { service, from, now, output }, &mut self.input, budget);
        // The peer has a limited time to send the rest of a frame, and to read output. A complete frame restarts this
        // time, and so does the first output.
        let is_frame_done = matches!(self.protocol, Protocol::Http2(_)) && self.input.len() < input_bytes;
        let is_full = output.len() >= budget.output_bytes_max;
        if owed_nothing && (is_frame_done || !output.is_empty()) {
            self.note_owed(now);
        }
        match served {
            Served::Starved | Served::Streaming => return ControlFlow::Continue(()),
            Served::Busy if is_full => self.stopped = Stopped::Room,
            Served::Busy => self.stopped = Stopped::Budget,
            Served::Close => {
                self.phase = Phase::Closing;
                self.drop_work(&mut service.watchers);
            }
        }
        ControlFlow::Break(())
    }

    fn on_handshake(&mut self, service: &Service, pool: &mut Pool, now: Now) {
        self.phase = Phase::Open;
        self.owed_since_ms = now.ms;
        self.credentials.refresh(&service.trust, self.transport.peer_certificates(), now);
        self.protocol = if self.transport.alpn() == Some(ALPN_HTTP_2) {
            Protocol::http2(&self.credentials, self.output.buffer(pool))
        } else {
            Protocol::http1(&self.credentials)
        };
    }

    fn linger(&mut self, pool: &mut Pool) -> io::Result<()> {
        let mut scratch = pool.take_filled();
        let is_over = self.transport.discard(&mut scratch);
        pool.give_filled(scratch);
        if self.transport.is_readable() {
            self.stopped = Stopped::Budget;
        }
        if is_over? {
            self.phase = Phase::Closed;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
