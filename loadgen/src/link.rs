//! A slot for one connection to the server: attempts to connect, requests in flight, and timeouts.
//!
//! This module owns the connection and the state of its HTTP version. The lanes, which use the slots, interpret the
//! responses.

use crate::connection::{Connection, Received};
use crate::error_kind::ErrorKind;
use crate::http::{Bodies, Broken, Http, Request, Told, Verdict};
use crate::origin::Origin;
use crate::stats::Stats;
use crate::target::Target;
use mio::{Registry, Token};
use rustls::{AlertDescription, HandshakeKind};
use std::io;

/// A slot with one connection, or with none until the next attempt to connect.
#[derive(Debug)]
pub(crate) struct Link<T> {
    /// The connection and its HTTP state; `None` between two attempts.
    line: Option<Line<T>>,
    /// When the connection was opened or, between two attempts, when the next attempt may begin. In nanoseconds since
    /// the start of the run.
    since: u64,
    /// Number of connections that were closed since the last response.
    attempts: u32,
    /// When input was last received, or when the connection was opened, in nanoseconds since the start of the run.
    heard: u64,
    bodies: Bodies,
    pub(crate) in_flight_max: usize,
    /// Kind of a finished TLS handshake that is not counted yet.
    handshake: Option<HandshakeKind>,
}

#[derive(Debug)]
struct Line<T> {
    conn: Connection,
    http: Http<T>,
}

/// The operations on a connection that do not depend on the type of its tags, by which a load recognizes its requests.
/// So the driver can use the connections of any load.
pub(crate) trait Connect {
    /// Whether the slot has no connection, and the next attempt to connect may begin.
    fn is_due(&self, now: u64) -> bool;
    /// Begins to connect.
    fn open(&mut self, target: &Target, registry: &Registry, token: Token, now: u64) -> io::Result<()>;
    /// Closes the connection. The pause before the next attempt grows with the number of connections closed since the
    /// last response. The caller must first remove the requests in flight.
    fn close(&mut self, registry: &Registry, now: u64);
    /// Records the readiness that the poll reported for the socket.
    fn handle_readiness(&mut self, event: &mio::event::Event);
    /// Returns when input was last received, or when the connection was opened, in nanoseconds since the start of the
    /// run.
    fn heard_at(&self) -> u64;
}

impl<T: Copy> Connect for Link<T> {
    fn is_due(&self, now: u64) -> bool {
        self.line.is_none() && now >= self.since
    }

    fn open(&mut self, target: &Target, registry: &Registry, token: Token, now: u64) -> io::Result<()> {
        let mut conn = Connection::open(target, registry, token)?;
        let http = Http::new(target.origin.version, self.bodies, conn.output());
        self.line = Some(Line { conn, http });
        (self.since, self.heard) = (now, now);
        Ok(())
    }

    fn close(&mut self, registry: &Registry, now: u64) {
        if let Some(line) = self.line.take() {
            line.conn.close(registry);
        }
        self.since = now + backoff_ns(self.attempts);
        self.attempts += 1;
    }

    fn handle_readiness(&mut self, event: &mio::event::Event) {
        if let Some(line) = &mut self.line {
            line.conn.handle_readiness(event);
        }
    }

    fn heard_at(&self) -> u64 {
        self.heard
    }
}

impl<T: Copy> Link<T> {
    /// Creates a slot without a connection, for at most `in_flight_max` requests in flight.
    pub(crate) fn new(bodies: Bodies, in_flight_max: usize) -> Self {
        Self { line: None, since: 0, attempts: 0, heard: 0, bodies, in_flight_max, handshake: None }
    }

    /// Whether the connection is open, and its TLS and HTTP handshakes are done.
    pub(crate) fn is_ready(&self) -> bool {
        self.line.as_ref().is_some_and(|line| line.conn.is_ready() && line.http.is_ready())
    }

    /// Whether another request can be sent now, within the limits of the generator and of the server.
    pub(crate) fn has_room(&self) -> bool {
        self.is_ready()
            && self.line.as_ref().is_some_and(|line| line.http.len() < self.in_flight_max && line.http.has_room())
    }

    /// Returns the number of requests in flight.
    pub(crate) fn len(&self) -> usize {
        self.line.as_ref().map_or(0, |line| line.http.len())
    }

    /// Whether the server accepts no more requests on this connection.
    pub(crate) fn is_going_away(&self) -> bool {
        self.line.as_ref().is_some_and(|line| line.http.is_going_away())
    }

    /// Removes all requests in flight and returns their tags. The caller must close the connection.
    pub(crate) fn take_in_flight(&mut self) -> Vec<T> {
        self.line.as_mut().map(|line| line.http.take_in_flight()).unwrap_or_default()
    }

    /// Receives input, up to [`READS_PER_TURN`] reads, and passes each outcome to `tell`. Returns true if the limit was
    /// reached before the socket was empty.
    pub(crate) fn receive(
        &mut self,
        origin: &Origin,
        scratch: &mut [u8],
        now: u64,
        mut tell: impl FnMut(T, Told<'_>) -> Verdict,
    ) -> Result<bool, Broken> {
        let Some(Line { conn, http }) = &mut self.line else { return Ok(false) };
        conn.advance().map_err(|e| broken_by(&e, origin))?;
        for _ in 0..READS_PER_TURN {
            let received = conn.receive(scratch).map_err(|e| broken_by(&e, origin))?;
            if let Some(handshake) = conn.take_handshake() {
                self.handshake = Some(handshake);
                // RFC 9113 §3.2: HTTP/2 over TLS requires ALPN. Without ALPN the protocol is HTTP/1.1.
                if conn.alpn().unwrap_or(b"http/1.1") != origin.version.alpn() {
                    return Err(Broken::not_spoken(origin.version));
                }
            }
            if received == Received::Nothing {
                return Ok(false);
            }
            self.heard = now;
            http.receive(conn, now, |tag, told| {
                if matches!(told, Told::Answer { .. }) {
                    self.attempts = 0;
                }
                tell(tag, told)
            })?;
            if received == Received::Eof {
                return Err(http.ended());
            }
        }
        Ok(true)
    }

    /// Counts in `stats` the TLS handshake whose end [`receive`](Self::receive) has seen.
    pub(crate) fn count_handshake(&mut self, stats: &mut Stats) {
        if let Some(handshake) = self.handshake.take() {
            stats.handshakes += 1;
            stats.handshakes_resumed += u64::from(handshake == HandshakeKind::Resumed);
        }
    }

    /// Encodes a request into the output; false if the server accepts no more requests now.
    pub(crate) fn send(&mut self, origin: &Origin, request: &Request<'_>, tag: T) -> bool {
        let Some(Line { conn, http }) = &mut self.line else { return false };
        http.send(origin, request, tag, conn.output())
    }

    /// Sends as much as the socket accepts.
    pub(crate) fn flush(&mut self, origin: &Origin) -> Result<(), Broken> {
        let Some(Line { conn, http }) = &mut self.line else { return Ok(()) };
        http.send_more(conn.output());
        conn.flush().map_err(|e| broken_by(&e, origin))
    }

    /// Cancels the requests whose response is overdue, and returns their tags. `asked_at` returns the send time of the
    /// request with the given tag. In three cases, the connection counts as broken, and no request is cancelled:
    ///
    /// - a response is overdue, and the connection has received no input at all within the timeout;
    /// - the connection was not ready within the timeout;
    /// - a response is overdue in HTTP/1.1, which cannot cancel a single request.
    pub(crate) fn expire(&mut self, now: u64, asked_at: impl Fn(T) -> u64) -> Result<Vec<T>, Broken> {
        let is_ready = self.is_ready();
        let Some(Line { conn, http }) = &mut self.line else { return Ok(Vec::new()) };
        let deadline = now.saturating_sub(TIMEOUT_NS);
        let oldest = if is_ready { http.oldest(&asked_at) } else { Some(self.since) };
        if oldest.is_none_or(|at| at >= deadline) {
            return Ok(Vec::new());
        }
        let cancelled = if is_ready && self.heard >= deadline {
            http.cancel(|tag| asked_at(tag) < deadline, conn.output())
        } else {
            None
        };
        cancelled.ok_or_else(|| Broken { kind: Some(ErrorKind::Timeout), why: TIMED_OUT.to_owned() })
    }
}

/// Describes an error of the socket or of TLS.
fn broken_by(error: &io::Error, origin: &Origin) -> Broken {
    let of_tls = error.get_ref().and_then(|e| e.downcast_ref::<rustls::Error>());
    if of_tls == Some(&rustls::Error::AlertReceived(AlertDescription::NoApplicationProtocol)) {
        return Broken::not_spoken(origin.version);
    }
    Broken { kind: Some(ErrorKind::Reset), why: error.to_string() }
}

/// Returns the pause before the next attempt, in nanoseconds: 0 after no failure, then 10 ms, 20 ms, up to 1 s.
pub(crate) fn backoff_ns(attempts: u32) -> u64 {
    if attempts == 0 { 0 } else { (10_000_000 << (attempts - 1).min(7)).min(1_000_000_000) }
}

/// Timeout for a response, in nanoseconds. The client that a kubelet uses for its Lease has the same timeout by
/// default: `nodeStatusUpdateFrequency`, 10 s.
pub(crate) const TIMEOUT_NS: u64 = 10_000_000_000;
/// Error text of a request that had no response within [`TIMEOUT_NS`].
pub(crate) const TIMED_OUT: &str = "no answer within 10 s";
/// Maximum time after the end of the load for which the run waits for missing events of watchers, in nanoseconds. A
/// bench also waits for the last responses in this time.
pub(crate) const DRAIN_NS: u64 = 5_000_000_000;
/// Size of the buffer for one read of ciphertext, in bytes.
pub(crate) const SCRATCH_BYTES: usize = 256 * 1024;
/// Maximum number of reads from one socket in a turn of the event loop.
const READS_PER_TURN: usize = 16;
