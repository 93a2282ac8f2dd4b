//! One connection: its transport, its buffers, the protocol that it speaks, and when it has waited long enough.

use crate::auth::Credentials;
use crate::buffer::{ByteBuf, Pool};
use crate::clock::Now;
use crate::http2::StreamKey;
use crate::limits::{
    ANONYMOUS_READ_BYTES_PER_TURN, BUFFER_BYTES, HEAD_MS_MAX, LINGER_MS_MAX, QUEUED_BYTES_HIGH, READ_BYTES_PER_TURN,
    WRITE_STALL_BYTES_MIN, WRITE_STALL_MS_MAX,
};
use crate::serve::{AfterStep, Budget, Pace, Peer, Protocol, Served, Service, Turn};
use crate::table::{PrefetchKey, Table};
use crate::tls::config::ALPN_HTTP_2;
use crate::transport::{Output, Transport};
use crate::watch::{Fill, WatcherKey};
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
    /// What went wrong when it was read ahead of its turn.
    read_error: Option<io::Error>,
    /// Open watches that have more to say than there was room for.
    behind: Vec<WatcherKey>,
    /// Milliseconds at which it was accepted, and what its handshake waited for us since: the peer's time began by that
    /// later.
    began_ms: u64,
    /// Milliseconds since when the peer has owed what it owes: a read of our output, or else the rest of a message.
    waiting_since_ms: u64,
    /// Bytes of output that have gone since then.
    gone_bytes: usize,
    /// The socket has not taken all of what was given to it, which with TLS is no longer in the output.
    is_unsent: bool,
    /// Milliseconds since when the next step of its TLS handshake has waited for its turn.
    handshake_queued_ms: Option<u64>,
}

/// How far the connection has come to its end.
///
/// ```text
///   Handshake ──► Open ──► Closing ──► Lingering ──► Closed
///       └───────────┴─────────┴── error, or no patience ──▲
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    /// The TLS handshake goes on.
    Handshake,
    /// Requests come and go.
    Open,
    /// What is queued is sent, then our direction ends.
    Closing,
    /// Our direction has ended. What the peer still sends is read and dropped for a moment: closing on unread bytes
    /// would reset the connection and could destroy what it has not read yet (RFC 9112 §9.6).
    Lingering,
    /// To be dropped at the end of the turn.
    Closed,
}

/// Why serving stopped while there was more to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stopped {
    /// It did not: the peer is to act.
    No,
    /// The others are to have their turn.
    Budget,
    /// The output is full.
    Room,
}

/// What a call left of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Next {
    /// It waits for an event or a timer.
    Wait,
    /// It can go on at once, after the others had their turn.
    Again,
    /// It is over.
    Close,
}

impl Conn {
    /// A connection whose peer has proven nothing yet, and need not if this is cleartext.
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
            read_error: None,
            behind: Vec::new(),
            began_ms: now.ms,
            waiting_since_ms: now.ms,
            gone_bytes: 0,
            is_unsent: false,
            handshake_queued_ms: None,
        }
    }

    /// The socket and its readiness.
    pub(crate) fn transport_mut(&mut self) -> &mut Transport {
        &mut self.transport
    }

    /// Whether the peer is anonymous, as everybody is whose handshake is not over.
    #[must_use]
    pub(crate) fn is_anonymous(&self) -> bool {
        self.credentials.is_anonymous()
    }

    /// Whether it was to speak TLS and its handshake did not come to its end: of one that is over, it has failed,
    /// whoever gave up.
    #[must_use]
    pub(crate) fn is_before_handshake_end(&self) -> bool {
        self.transport.is_tls() && matches!(self.protocol, Protocol::Undecided)
    }

    /// Whether its requests are those of many: then one that is slow is not held against the others.
    #[must_use]
    pub(crate) fn speaks_for_many(&self) -> bool {
        self.credentials.is_front_proxy()
    }

    /// Milliseconds since when an anonymous peer has had its time to show a certificate; `None` while its handshake
    /// waits for us, which is not the peer's time.
    pub(crate) fn anonymous_since_ms(&self) -> Option<u64> {
        match self.phase {
            Phase::Handshake if self.handshake_queued_ms.is_some() => None,
            Phase::Handshake => Some(self.waiting_since_ms),
            _ => Some(self.began_ms),
        }
    }

    /// Whether what it can do next is a step of the TLS handshake, which takes long.
    #[must_use]
    pub(crate) fn is_handshake_step(&self) -> bool {
        self.phase == Phase::Handshake && self.transport.is_readable()
    }

    /// Its step of the handshake is to wait for its turn, which is not the peer's time. Whether the peer's first
    /// message has been answered: what was begun comes first, or the work would be for nothing when its time is over.
    pub(crate) fn await_handshake_turn(&mut self, now: Now) -> bool {
        self.handshake_queued_ms.get_or_insert(now.ms);
        self.transport.has_begun_handshake()
    }

    /// Reads what has come, if [`Conn::on_ready`] would do so first of all, and says what Lease that is about as far as
    /// it can be told.
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
        if self.input.is_empty() && self.read_error.is_none() && self.transport.is_readable() {
            self.read_error = self.receive(pace, pool, now).err();
        }
        self.protocol.prefetch_key(&self.input, table)
    }

    /// Reads what has come and serves what is whole. What that gave waits for [`Conn::flush`].
    pub(crate) fn on_ready(&mut self, connection: Token, service: &mut Service, pool: &mut Pool, now: Now) {
        if let Some(since_ms) = self.handshake_queued_ms.take() {
            let waited_ms = now.ms.saturating_sub(since_ms);
            self.waiting_since_ms += waited_ms;
            self.began_ms += waited_ms;
            if self.transport.is_end_near() && !self.transport.has_begun_handshake() {
                // It has given up while it waited: whatever it sent is not worth the work. Who was answered may have
                // sent a request with its last step, and have no more to send.
                self.phase = Phase::Closed;
                return;
            }
        }
        if let Err(error) = self.read_and_serve(connection, service, pool, now) {
            self.drop_work(service);
            if error.kind() == io::ErrorKind::InvalidData {
                tracing::debug!(%error, peer = ?self.transport.socket_mut().peer_addr().ok(), "TLS that is not accepted");
                // It speaks no TLS that we accept. rustls has an alert that says why, and the peer a moment to read it.
                self.transport.send_alert();
                self.phase = Phase::Lingering;
                self.stopped = Stopped::Budget;
                self.waiting_since_ms = now.ms;
            } else {
                self.phase = Phase::Closed;
            }
        }
        if !matches!(self.phase, Phase::Handshake | Phase::Open) {
            // What has not been served will not be.
            self.input.consume(self.input.len());
        }
        self.input.release(pool);
    }

    /// Sends what is queued, and says how it goes on. To be called after everything that may have queued something.
    pub(crate) fn flush(&mut self, service: &mut Service, pool: &mut Pool, now: Now) -> Next {
        match (self.phase, self.stopped) {
            (Phase::Closed, _) => return Next::Close,
            (Phase::Lingering, Stopped::Budget) => return Next::Again,
            (Phase::Lingering, _) => return Next::Wait,
            (Phase::Handshake | Phase::Open | Phase::Closing, _) => {}
        }
        let queued_bytes = self.output.len();
        let Ok(is_sent) = self.transport.send(&mut self.output) else {
            self.phase = Phase::Closed;
            return Next::Close;
        };
        self.gone_bytes += queued_bytes - self.output.len();
        let was_unsent = std::mem::replace(&mut self.is_unsent, !is_sent);
        let is_all_gone = is_sent && (was_unsent || queued_bytes > 0);
        if is_all_gone || self.gone_bytes >= WRITE_STALL_BYTES_MIN {
            self.begin_waiting(now);
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
                self.waiting_since_ms = now.ms;
                Next::Again
            }
            (Phase::Handshake | Phase::Open, Stopped::Budget) => Next::Again,
            (Phase::Open, Stopped::Room) if self.output.len() < service.room_for(&self.credentials) => Next::Again,
            _ => Next::Wait,
        }
    }

    /// Whether a list or a deletion of a collection can go on.
    #[must_use]
    pub(crate) fn has_job_step(&self) -> bool {
        self.phase == Phase::Open && self.protocol.has_job_step()
    }

    /// One step of a list or of a deletion of a collection, if there is room for it. Another can follow at once if
    /// [there is](Conn::has_job_step) one and [still room](Conn::has_room).
    pub(crate) fn step_job(&mut self, connection: Token, service: &mut Service, pool: &mut Pool, now: Now) {
        if !self.has_room() {
            self.stopped = Stopped::Room;
            return;
        }
        let owed_nothing = !self.is_output_waiting();
        let from = Peer { connection, credentials: &self.credentials };
        let output = self.output.buffer(pool);
        let after = self.protocol.step_job(&mut Turn { service, from, now, output });
        if owed_nothing && self.is_output_waiting() {
            self.begin_waiting(now);
        }
        match after {
            AfterStep::Close => {
                self.phase = Phase::Closing;
                self.drop_work(service);
            }
            // Requests behind it, or the end of the connection, have waited for that.
            AfterStep::GoOn if !self.protocol.has_job_step() => self.stopped = Stopped::Budget,
            AfterStep::GoOn if !self.has_room() => self.stopped = Stopped::Room,
            // The changes wake the connection.
            AfterStep::Wait | AfterStep::GoOn => {}
        }
    }

    /// Appends events to the open watch `key` on `stream`, as far as there is room. `None` if it is not open.
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
        let fill = self.protocol.fill_watch(service, stream, key, now, self.output.buffer(pool))?;
        if owed_nothing && self.is_output_waiting() {
            self.begin_waiting(now);
        }
        if fill == Fill::More && !self.has_room() {
            self.put_behind(key, service);
        }
        Some(fill)
    }

    /// The peer owes something from now on.
    fn begin_waiting(&mut self, now: Now) {
        self.waiting_since_ms = now.ms;
        self.gone_bytes = 0;
    }

    /// Whether something waits for the socket, and so for the peer to read.
    fn is_output_waiting(&self) -> bool {
        self.is_unsent || !self.output.is_empty()
    }

    /// Leaves a watcher alone until there is room again.
    fn put_behind(&mut self, key: WatcherKey, service: &mut Service) {
        service.watchers.park(key);
        self.behind.push(key);
    }

    /// Bytes that wait to be sent, for the socket or for the window of a stream.
    #[must_use]
    pub(crate) fn waiting_bytes(&self) -> usize {
        self.output.len() + self.protocol.unsent_bytes()
    }

    /// Bytes that were received of requests which are not served yet.
    #[must_use]
    pub(crate) fn received_bytes(&self) -> usize {
        self.input.len() + self.protocol.received_bytes()
    }

    /// Whether more events may be queued, or more of a list.
    #[must_use]
    pub(crate) fn has_room(&self) -> bool {
        self.output.len() < QUEUED_BYTES_HIGH
    }

    /// Lets go of what is under way on the connection, which is over.
    pub(crate) fn drop_work(&mut self, service: &mut Service) {
        self.protocol.drop_work(&mut service.watchers);
    }

    /// Lets go of what long responses hold whose time is over.
    pub(crate) fn end_late_jobs(&mut self, now: Now) {
        self.protocol.end_late_jobs(now);
    }

    /// Whether a long response is under way.
    #[must_use]
    pub(crate) fn has_job(&self) -> bool {
        self.protocol.has_job()
    }

    /// The server stops: what is under way is finished, nothing else begun.
    pub(crate) fn on_shutdown(&mut self, service: &mut Service, pool: &mut Pool, now: Now) -> Next {
        match self.phase {
            Phase::Open => {
                let was_idle = self.protocol.is_idle(&self.input);
                self.protocol.on_shutdown(service, self.output.buffer(pool));
                if was_idle {
                    self.phase = Phase::Closing;
                } else {
                    // It closes by itself when what is under way has ended.
                    self.stopped = Stopped::Budget;
                }
            }
            Phase::Handshake | Phase::Lingering => self.phase = Phase::Closed,
            Phase::Closing | Phase::Closed => {}
        }
        self.flush(service, pool, now)
    }

    /// Milliseconds at which the peer has kept us waiting too long; `u64::MAX` if it owes nothing.
    #[must_use]
    pub(crate) fn deadline_ms(&self) -> u64 {
        let patience_ms = match self.phase {
            Phase::Handshake if self.handshake_queued_ms.is_some() => return u64::MAX,
            Phase::Handshake => HEAD_MS_MAX,
            Phase::Lingering => LINGER_MS_MAX,
            Phase::Closed => 0,
            Phase::Closing => WRITE_STALL_MS_MAX,
            Phase::Open if self.is_output_waiting() => WRITE_STALL_MS_MAX,
            Phase::Open => return self.protocol.deadline_ms(&self.input, self.waiting_since_ms),
        };
        self.waiting_since_ms.saturating_add(patience_ms)
    }

    /// [`Conn::deadline_ms`] has come.
    pub(crate) fn on_timeout(&mut self, service: &mut Service, pool: &mut Pool, now: Now) -> Next {
        let is_over = self.phase != Phase::Open
            || self.is_output_waiting()
            || self.protocol.on_timeout(service, now, self.output.buffer(pool));
        if is_over {
            // What the protocol has to say of it goes as far as the socket takes it.
            let _ = self.transport.send(&mut self.output);
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
        let mut budget = Budget::for_turn(service.room_for(&self.credentials));
        let mut read_bytes = 0;
        self.stopped = Stopped::No;
        if let Some(error) = self.read_error.take() {
            return Err(error);
        }
        loop {
            match self.phase {
                Phase::Closing | Phase::Closed => return Ok(()),
                Phase::Lingering => return self.linger(pool),
                Phase::Handshake | Phase::Open => {}
            }
            // What is here comes first: a peer that sends faster than it is served waits in its own kernel.
            if self.phase == Phase::Open
                && self.input.len() >= BUFFER_BYTES
                && self.serve(connection, service, pool, now, &mut budget).is_break()
            {
                return Ok(());
            }
            // While a long response goes out, requests behind it stay with the kernel, and so with the peer.
            let may_read = self.input.len() < BUFFER_BYTES || self.protocol.wants_input();
            if may_read && self.transport.is_readable() {
                read_bytes += self.receive(&mut service.pace, pool, now)?;
                if self.phase == Phase::Handshake && !self.transport.is_handshaking() {
                    self.on_handshake(service, pool, now);
                    service.api.metrics.count_tls_handshake(true);
                }
            }
            if self.phase == Phase::Open && self.serve(connection, service, pool, now, &mut budget).is_break() {
                return Ok(());
            }
            if self.transport.is_eof()
                && self.phase == Phase::Open
                && (self.protocol.is_waiting() || self.protocol.has_job_step())
            {
                // It is looked at again when the answer is there.
                return Ok(());
            }
            // Behind a watch no more is read than a buffer holds, and so the end would not be seen.
            let is_hidden_end = !may_read && self.transport.is_end_near() && self.protocol.is_watching();
            if self.transport.is_eof() || is_hidden_end {
                // All that was asked for whole has been answered; a watch has lost its reader.
                self.phase = if self.phase == Phase::Open { Phase::Closing } else { Phase::Closed };
                self.drop_work(service);
                return Ok(());
            }
            // A handshake has a time of its own, and messages that are bounded.
            let is_open = self.phase == Phase::Open;
            let is_much = is_open && self.is_anonymous() && read_bytes >= ANONYMOUS_READ_BYTES_PER_TURN;
            if is_much {
                service.pace.count_much_read();
            }
            if !self.transport.is_readable() || !may_read {
                return Ok(());
            }
            if is_much || read_bytes >= READ_BYTES_PER_TURN || is_open && service.pace.is_over() {
                self.stopped = Stopped::Budget;
                return Ok(());
            }
        }
    }

    /// Reads once. Gives the number of bytes that came from the socket.
    fn receive(&mut self, pace: &mut Pace, pool: &mut Pool, now: Now) -> io::Result<usize> {
        let was_within = self.protocol.is_within_message(&self.input);
        let read = self.transport.receive(&mut self.input, pool)?;
        pace.count_read(read);
        // While output waits it is the reading of that which the peer owes, whatever it sends.
        if read > 0 && !was_within && !self.is_output_waiting() && self.phase == Phase::Open {
            self.begin_waiting(now);
        }
        Ok(read)
    }

    /// Serves what is in the input. [`ControlFlow::Break`] if that is all for this turn.
    fn serve(
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
        let served = self.protocol.serve(&mut Turn { service, from, now, output }, &mut self.input, budget);
        // A frame that has come whole begins the time of the next one.
        let is_frame_done = matches!(self.protocol, Protocol::Http2(_)) && self.input.len() < input_bytes;
        let is_full = output.len() >= budget.room;
        if owed_nothing && (is_frame_done || !output.is_empty()) {
            self.begin_waiting(now);
        }
        match served {
            Served::Starved | Served::Streaming => return ControlFlow::Continue(()),
            Served::Busy if is_full => self.stopped = Stopped::Room,
            Served::Busy => self.stopped = Stopped::Budget,
            Served::Close => {
                self.phase = Phase::Closing;
                self.drop_work(service);
            }
        }
        ControlFlow::Break(())
    }

    fn on_handshake(&mut self, service: &Service, pool: &mut Pool, now: Now) {
        self.phase = Phase::Open;
        self.waiting_since_ms = now.ms;
        self.credentials.refresh(&service.trust, self.transport.peer_certificates(), now);
        self.protocol = if self.transport.alpn() == Some(ALPN_HTTP_2) {
            Protocol::http2(&self.credentials, now, self.output.buffer(pool))
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
