//! A connection that nodes share: which requests wait for it, which are in flight on it.
//!
//! Owned here: the connection and the order of its requests. Not owned: what they mean, which is the fleet's. HTTP/1.1
//! answers in the order of the requests (RFC 9112 §9.3.2), so an answer belongs to the oldest flight.

use crate::connection::{Connection, Received};
use crate::fleet::{After, Fleet, Flight};
use crate::stats::ErrorKind;
use coordination_apiserver::http1::client::ResponseParser;
use std::collections::VecDeque;
use std::io;

/// One shared connection.
#[derive(Debug)]
pub(crate) struct Lane {
    /// `None` between two attempts.
    pub(crate) conn: Option<Connection>,
    /// When it was begun, or when the next attempt may begin; nanoseconds of the run.
    pub(crate) since: u64,
    /// Attempts in vain since the last answer.
    pub(crate) attempts: u32,
    parser: ResponseParser,
    waiting: VecDeque<Flight>,
    in_flight: VecDeque<Flight>,
    in_flight_max: usize,
}

/// Why a connection is of no more use.
#[derive(Debug)]
pub(crate) struct Broken {
    /// As the results count it.
    pub(crate) kind: ErrorKind,
    /// In words.
    pub(crate) why: String,
}

impl Broken {
    /// From an error of the socket or of TLS.
    pub(crate) fn of_io(error: &io::Error) -> Self {
        Self { kind: ErrorKind::Reset, why: error.to_string() }
    }
}

impl Lane {
    /// A lane with at most so many requests in flight.
    pub(crate) fn new(in_flight_max: usize) -> Self {
        Self {
            conn: None,
            since: 0,
            attempts: 0,
            parser: ResponseParser::new(BODY_BYTES_MAX),
            waiting: VecDeque::new(),
            in_flight: VecDeque::new(),
            in_flight_max,
        }
    }

    /// Whether requests can be sent.
    pub(crate) fn is_ready(&self) -> bool {
        self.conn.as_ref().is_some_and(Connection::is_ready)
    }

    /// Requests that could be added without any having to wait.
    pub(crate) fn room(&self) -> usize {
        self.in_flight_max.saturating_sub(self.in_flight.len() + self.waiting.len())
    }

    /// Whether nothing is under way.
    pub(crate) fn is_idle(&self) -> bool {
        self.in_flight.is_empty() && self.waiting.is_empty()
    }

    /// When the oldest request in flight was written.
    pub(crate) fn oldest_written(&self) -> Option<u64> {
        self.in_flight.front().map(|flight| flight.written)
    }

    /// Adds a request.
    pub(crate) fn push(&mut self, flight: Flight) {
        self.waiting.push_back(flight);
    }

    /// Receives what has come, up to a budget, and hands each answer to the fleet; `done` is told of every flight that is
    /// over. True if the budget ran out before the socket.
    pub(crate) fn receive(
        &mut self,
        fleet: &mut Fleet,
        scratch: &mut [u8],
        now: u64,
        mut done: impl FnMut(Flight),
    ) -> Result<bool, Broken> {
        let Some(conn) = &mut self.conn else { return Ok(false) };
        conn.advance().map_err(|e| Broken::of_io(&e))?;
        for _ in 0..READS_PER_TURN {
            let received = conn.receive(scratch).map_err(|e| Broken::of_io(&e))?;
            if let Some(kind) = conn.take_handshake() {
                fleet.stats.handshakes += 1;
                fleet.stats.handshakes_resumed += u64::from(kind == rustls::HandshakeKind::Resumed);
            }
            if received == Received::Nothing {
                return Ok(false);
            }
            let malformed = |why: String| Broken { kind: ErrorKind::Malformed, why };
            loop {
                let input = conn.input();
                if input.is_empty() {
                    break;
                }
                let answer = self.parser.poll_whole(input, false).map_err(|e| malformed(e.to_string()))?;
                let Some(answer) = answer else { break };
                let flight = self.in_flight.pop_front();
                let flight = flight.ok_or_else(|| malformed("an answer that nobody asked for".to_owned()))?;
                let body = input.get(answer.body).unwrap_or_default();
                match fleet.handle_answer(flight, answer.head.status, body, now) {
                    After::Done => done(flight),
                    After::Follow(following) => self.waiting.push_front(following),
                }
                conn.consume(answer.consumed);
                self.attempts = 0;
                if !answer.head.keep_alive {
                    return Err(Broken { kind: ErrorKind::Reset, why: "the server closes the connection".to_owned() });
                }
            }
            if received == Received::Eof {
                return Err(Broken { kind: ErrorKind::Reset, why: "connection closed by the server".to_owned() });
            }
        }
        Ok(true)
    }

    /// Writes the requests that may be in flight, and sends what the socket takes.
    pub(crate) fn send(&mut self, fleet: &mut Fleet, now: u64) -> Result<(), Broken> {
        let Some(conn) = &mut self.conn else { return Ok(()) };
        if conn.is_ready() {
            while self.in_flight.len() < self.in_flight_max {
                let Some(mut flight) = self.waiting.pop_front() else { break };
                fleet.write_request(&mut flight, now, conn.output());
                self.in_flight.push_back(flight);
            }
        }
        conn.flush().map_err(|e| Broken::of_io(&e))
    }

    /// The connection is gone: what was in flight gets no answer. True if anything was.
    pub(crate) fn drop_flights(
        &mut self,
        fleet: &mut Fleet,
        broken: &Broken,
        now: u64,
        mut done: impl FnMut(Flight),
    ) -> bool {
        let lost = std::mem::take(&mut self.in_flight);
        let any = !lost.is_empty();
        for flight in lost {
            match fleet.handle_loss(flight, broken.kind, &broken.why, now) {
                After::Done => done(flight),
                After::Follow(following) => self.waiting.push_back(following),
            }
        }
        self.parser = ResponseParser::new(BODY_BYTES_MAX);
        any
    }

    /// The run is over: gives up what still waits.
    pub(crate) fn abandon_all(&mut self, fleet: &mut Fleet) {
        for flight in self.in_flight.drain(..).chain(self.waiting.drain(..)) {
            fleet.abandon(flight);
        }
    }
}

/// Reads from one socket before the others have theirs.
const READS_PER_TURN: usize = 16;
/// An answer about one Lease is far smaller.
const BODY_BYTES_MAX: usize = 16 * 1024 * 1024;
