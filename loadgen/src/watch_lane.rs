//! A watcher's own connection.
//!
//! Owned here: the connection and where its one request stands. Not owned: what is asked for and what the answers mean,
//! which is the watcher's, and the checks, which are the fleet's.

use crate::connection::{Connection, Received};
use crate::fleet::Fleet;
use crate::lane::Broken;
use crate::stats::{ErrorKind, Verb};
use crate::watcher::{Page, WatchError, Watcher};
use coordination_apiserver::http1::client::{Piece, Request, ResponseParser, write_request_into};

/// One watcher and its connection.
#[derive(Debug)]
pub(crate) struct WatchLane {
    /// `None` between two attempts.
    pub(crate) conn: Option<Connection>,
    /// When it was begun, or when the next attempt may begin; nanoseconds of the run.
    pub(crate) since: u64,
    /// Attempts in vain since the last answer.
    pub(crate) attempts: u32,
    /// A watch has been accepted.
    pub(crate) watching: bool,
    index: usize,
    watcher: Watcher,
    parser: ResponseParser,
    progress: Progress,
    /// Body of an answer that is no watch.
    body: Vec<u8>,
}

/// Where the request stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Progress {
    /// None is under way; the next may be sent from this time on.
    Idle { not_before: u64 },
    /// Sent at this time.
    Asked { at: u64 },
    /// In the answer's body.
    Answered { at: u64, status: u16 },
}

impl WatchLane {
    /// The watcher of this index.
    pub(crate) fn new(index: usize, namespace: &str) -> Self {
        Self {
            conn: None,
            since: 0,
            attempts: 0,
            watching: false,
            index,
            watcher: Watcher::new(namespace),
            parser: ResponseParser::new(usize::MAX),
            progress: Progress::Idle { not_before: 0 },
            body: Vec::new(),
        }
    }

    /// When the request was sent that has no answer yet.
    pub(crate) fn unanswered_since(&self) -> Option<u64> {
        match self.progress {
            Progress::Asked { at } => Some(at),
            Progress::Idle { .. } | Progress::Answered { .. } => None,
        }
    }

    /// Receives what has come, up to a budget. True if the budget ran out before the socket.
    pub(crate) fn receive(&mut self, fleet: &mut Fleet, scratch: &mut [u8], now: u64) -> Result<bool, Broken> {
        if let Some(conn) = &mut self.conn {
            conn.advance().map_err(|e| Broken::of_io(&e))?;
        }
        for _ in 0..READS_PER_TURN {
            let Some(conn) = &mut self.conn else { return Ok(false) };
            let received = conn.receive(scratch).map_err(|e| Broken::of_io(&e))?;
            if let Some(kind) = conn.take_handshake() {
                fleet.stats.handshakes += 1;
                fleet.stats.handshakes_resumed += u64::from(kind == rustls::HandshakeKind::Resumed);
            }
            if received == Received::Nothing {
                return Ok(false);
            }
            self.handle_input(fleet, now)?;
            if received == Received::Eof {
                return Err(Broken { kind: ErrorKind::Reset, why: "connection closed by the server".to_owned() });
            }
        }
        Ok(true)
    }

    /// Reads what was received, piece by piece.
    fn handle_input(&mut self, fleet: &mut Fleet, now: u64) -> Result<(), Broken> {
        let malformed = |why: String| Broken { kind: ErrorKind::Malformed, why };
        loop {
            let Some(conn) = &mut self.conn else { return Ok(()) };
            let (piece, consumed) =
                self.parser.poll_piece(conn.input(), false).map_err(|e| malformed(e.to_string()))?;
            match piece {
                None => {
                    conn.consume(consumed);
                    return Ok(());
                }
                Some(Piece::Head(head)) => {
                    let Progress::Asked { at } = self.progress else {
                        return Err(malformed("an answer that nobody asked for".to_owned()));
                    };
                    self.progress = Progress::Answered { at, status: head.status };
                    self.watching = self.watcher.is_watching() && head.status == 200;
                    self.attempts = 0;
                    self.body.clear();
                }
                Some(Piece::Body(place)) => {
                    let payload = conn.input().get(place).unwrap_or_default();
                    if self.watching {
                        let (index, watcher) = (self.index, &mut self.watcher);
                        let result = watcher.handle_events(payload, |event| fleet.handle_event(index, &event, now));
                        if let Err(error) = result {
                            return self.handle_watch_error(fleet, &error);
                        }
                    } else if self.body.len() + payload.len() > BODY_BYTES_MAX {
                        return Err(malformed("a page that is too large".to_owned()));
                    } else {
                        self.body.extend_from_slice(payload);
                    }
                }
                Some(Piece::End) => self.handle_end(fleet, now)?,
            }
            if let Some(conn) = &mut self.conn {
                conn.consume(consumed);
            }
        }
    }

    /// The answer is complete.
    fn handle_end(&mut self, fleet: &mut Fleet, now: u64) -> Result<(), Broken> {
        let Progress::Answered { at, status } = self.progress else { return Ok(()) };
        let mut not_before = now;
        if status == 410 {
            self.watcher.handle_expired();
        } else if status != 200 {
            let verb = if self.watcher.is_watching() { Verb::Watch } else { Verb::List };
            let words = String::from_utf8_lossy(&self.body);
            fleet.stats.failed(verb, ErrorKind::Status(status), || words.chars().take(300).collect());
            not_before = now + PAUSE_NS;
        } else if !self.watcher.is_watching() {
            fleet.stats.succeeded(Verb::List, at, now);
            match self.watcher.handle_page(&self.body) {
                Some(Page::More) => {}
                Some(Page::Complete { version, known }) => {
                    fleet.handle_list(self.index, version, known, self.watcher.listed());
                }
                None => return Err(Broken { kind: ErrorKind::Malformed, why: "a list that is none".to_owned() }),
            }
        }
        self.watching = false;
        self.progress = Progress::Idle { not_before };
        Ok(())
    }

    /// The watch cannot go on; the connection cannot either, as its stream has not ended.
    fn handle_watch_error(&mut self, fleet: &mut Fleet, error: &WatchError) -> Result<(), Broken> {
        match error {
            WatchError::Status(410) => self.watcher.handle_expired(),
            WatchError::Status(status) => {
                fleet.stats.failed(Verb::Watch, ErrorKind::Status(*status), || "an ERROR event".to_owned());
            }
            WatchError::Malformed => {
                return Err(Broken { kind: ErrorKind::Malformed, why: "an event that is none".to_owned() });
            }
        }
        fleet.stats.watches_expired += 1;
        Err(Broken { kind: ErrorKind::Status(410), why: String::new() })
    }

    /// Asks for what is next, and sends what the socket takes. `timeout_seconds` bounds a watch.
    pub(crate) fn send(&mut self, host: &str, known: u64, timeout_seconds: u32, now: u64) -> Result<(), Broken> {
        let Some(conn) = &mut self.conn else { return Ok(()) };
        if let Progress::Idle { not_before } = self.progress
            && conn.is_ready()
            && now >= not_before
        {
            let target = self.watcher.next_target(known, timeout_seconds);
            let fields =
                [("User-Agent", concat!("loadgen/", env!("CARGO_PKG_VERSION"))), ("Accept", "application/json")];
            write_request_into(
                conn.output(),
                &Request { method: "GET", target: &target, host, fields: &fields, body: None },
            );
            self.progress = Progress::Asked { at: now };
        }
        conn.flush().map_err(|e| Broken::of_io(&e))
    }

    /// The connection is gone; the next one goes on from the last version seen.
    pub(crate) fn reset(&mut self) {
        self.watching = false;
        self.parser = ResponseParser::new(usize::MAX);
        self.progress = Progress::Idle { not_before: 0 };
    }
}

/// Reads from one socket before the others have theirs.
const READS_PER_TURN: usize = 16;
/// A page has 500 Leases.
const BODY_BYTES_MAX: usize = 256 * 1024 * 1024;
/// After a refusal, until the next attempt.
const PAUSE_NS: u64 = 1_000_000_000;
