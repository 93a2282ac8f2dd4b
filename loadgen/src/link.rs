//! A slot for one connection: connection attempts, requests in flight, and timeouts.
//!
//! This module owns the connection and its HTTP; the lanes own the meaning of requests.

use crate::connection::{Connection, Received};
use crate::error_kind::ErrorKind;
use crate::http::{Bodies, Broken, Http, Request, Told, Verdict};
use crate::origin::Origin;
use crate::stats::Stats;
use crate::target::Target;
use mio::{Registry, Token};
use rustls::{AlertDescription, HandshakeKind};
use std::io;

/// A slot that holds a connection, or waits for the next attempt.
#[derive(Debug)]
pub(crate) struct Link<T> {
    /// The connection; `None` between two attempts.
    line: Option<Line<T>>,
    /// When the connection was begun, or when the next attempt may begin, in nanoseconds of the run.
    since: u64,
    /// Failed attempts since the last response.
    attempts: u32,
    /// When input was last received, or the connection was begun, in nanoseconds of the run.
    heard: u64,
    bodies: Bodies,
    in_flight_max: usize,
    /// A TLS handshake not counted yet.
    handshake: Option<HandshakeKind>,
}

#[derive(Debug)]
struct Line<T> {
    conn: Connection,
    http: Http<T>,
}

/// The driver's operations on a connection of any kind.
pub(crate) trait Connect {
    /// Whether there is no connection and the next attempt may begin.
    fn is_due(&self, now: u64) -> bool;
    /// Begins to connect.
    fn open(&mut self, target: &Target, registry: &Registry, token: Token, now: u64) -> io::Result<()>;
    /// Ends the connection. The pause before the next attempt grows with the number of failed attempts. The caller must
    /// take the requests in flight first.
    fn close(&mut self, registry: &Registry, now: u64);
    /// Records the readiness that the poll reported.
    fn handle_readiness(&mut self, event: &mio::event::Event);
    /// Returns when input was last received, or the connection was begun.
    fn heard_at(&self) -> u64;
}

impl<T: Copy> Connect for Link<T> {
    fn is_due(&self, now: u64) -> bool {
        self.line.is_none() && now >= self.since
    }

    fn open(&mut self, target: &Target, registry: &Registry, token: Token, now: u64) -> io::Result<()> {
        let mut conn = Connection::open(target, registry, token)?;
        let http = Http::new(target.origin.version, self.bodies, now, conn.output());
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

    /// Whether requests can be sent.
    pub(crate) fn is_ready(&self) -> bool {
        self.line.as_ref().is_some_and(|line| line.conn.is_ready() && line.http.is_ready())
    }

    /// Whether another request can be in flight.
    pub(crate) fn has_room(&self) -> bool {
        self.is_ready()
            && self.line.as_ref().is_some_and(|line| line.http.len() < self.in_flight_max && line.http.has_room())
    }

    /// Returns the number of requests in flight.
    pub(crate) fn len(&self) -> usize {
        self.line.as_ref().map_or(0, |line| line.http.len())
    }

    /// Returns the most requests that may be in flight.
    pub(crate) fn in_flight_max(&self) -> usize {
        self.in_flight_max
    }

    /// Whether the server accepts no more requests on this connection.
    pub(crate) fn is_going_away(&self) -> bool {
        self.line.as_ref().is_some_and(|line| line.http.is_going_away())
    }

    /// Gives up all requests in flight and returns their tags. The connection must be closed.
    pub(crate) fn take_in_flight(&mut self) -> Vec<T> {
        self.line.as_mut().map(|line| line.http.take_in_flight()).unwrap_or_default()
    }

    /// Receives input up to a budget and reports it. Returns true if the budget ran out before the socket.
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

    /// Counts the TLS handshake whose end [`receive`](Self::receive) has seen.
    pub(crate) fn count_handshake(&mut self, stats: &mut Stats) {
        if let Some(handshake) = self.handshake.take() {
            stats.handshakes += 1;
            stats.handshakes_resumed += u64::from(handshake == HandshakeKind::Resumed);
        }
    }

    /// Queues a request for sending; false if the server accepts no more now.
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

    /// Gives up requests whose response is overdue and returns their tags; `asked_at` returns the time at which a
    /// request was sent. A connection without any input in that time is given up as a whole.
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

/// Returns the pause before the next attempt: 0 at first, then 10 ms, 20 ms, up to a second.
pub(crate) fn backoff_ns(attempts: u32) -> u64 {
    if attempts == 0 { 0 } else { (10_000_000 << (attempts - 1).min(7)).min(1_000_000_000) }
}

/// Timeout for a response: that of a kubelet for Leases, its period of 10 s.
pub(crate) const TIMEOUT_NS: u64 = 10_000_000_000;
/// Why a request was given up after [`TIMEOUT_NS`].
pub(crate) const TIMED_OUT: &str = "no answer within 10 s";
/// Time for requests in flight after the end of the load, and for missing events of watchers.
pub(crate) const DRAIN_NS: u64 = 5_000_000_000;
/// Size of one read of ciphertext.
pub(crate) const SCRATCH_BYTES: usize = 256 * 1024;
/// Maximum number of reads from one socket in a turn of the event loop.
const READS_PER_TURN: usize = 16;
