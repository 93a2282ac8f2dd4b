//! The time that requests, and what is read of them, have in a turn.

use crate::api::Reply;
use crate::http::Method;
use crate::limits::{PLAIN_REQUEST_BYTES_MAX, READ_BYTES_PER_CLOCK, REQUEST_US_PER_TURN, REQUESTS_PER_CLOCK};
use std::time::{Duration, Instant};

/// How long the requests of a turn have taken, all connections together. Most take microseconds, and to look at the
/// clock for each of them would be felt; it is looked at after some of them, and after each that may have taken longer.
#[derive(Debug, Default)]
pub struct Pace {
    /// Until when they may be served; none if for ever.
    end: Option<Instant>,
    /// Plain requests since the last look at the clock; [`REQUESTS_PER_CLOCK`] or more if one is due.
    unlooked: u32,
    /// Bytes read since then.
    unlooked_bytes: usize,
    is_over: bool,
    /// The last look at the clock.
    looked: Option<Instant>,
    /// Whether between two looks at the clock a turn's time went by, of the requests counted since [`Pace::take_slow`]:
    /// one that is not plain has taken it alone, plain ones some together. Or much was read, and was no request.
    is_slow: Option<bool>,
}

impl Pace {
    /// The requests of a turn begin at this moment.
    pub fn begin(&mut self, moment: Instant) {
        *self = Self { end: Some(moment + TIME), looked: Some(moment), ..Self::default() };
    }

    /// One is served; whether it is [plain](is_plain). Its answer may still have to be written.
    pub(super) fn count(&mut self, is_plain: bool) {
        self.unlooked += if is_plain { 1 } else { REQUESTS_PER_CLOCK };
        self.is_slow.get_or_insert(false);
    }

    /// So many bytes came from a socket. To decrypt and to parse them may take longer than what they ask for, if
    /// anything.
    pub fn count_read(&mut self, bytes: usize) {
        self.unlooked_bytes += bytes;
        if self.unlooked_bytes >= READ_BYTES_PER_CLOCK {
            self.unlooked = REQUESTS_PER_CLOCK;
        }
    }

    /// The connection has sent as much as may be read of it in a turn: it is slow if there was no request among that.
    pub fn count_much_read(&mut self) {
        self.is_slow.get_or_insert(true);
    }

    /// Whether no other is to be served in this turn.
    #[must_use]
    pub fn is_over(&mut self) -> bool {
        if self.unlooked >= REQUESTS_PER_CLOCK {
            (self.unlooked, self.unlooked_bytes) = (0, 0);
            let moment = Instant::now();
            self.is_over = self.end.is_some_and(|end| moment >= end);
            let before = self.looked.replace(moment);
            if before.is_some_and(|before| moment.duration_since(before) >= TIME) {
                self.is_slow = Some(true);
            }
        }
        self.is_over
    }

    /// Whether the requests of a connection, which are those that have been served since the last call, took a turn's
    /// time between two looks at the clock. Or whether [much was read](Pace::count_much_read) and there were none.
    /// `None` if there were none: then what else was done for it, such as to read a body, does not count for the next
    /// one.
    pub fn take_slow(&mut self) -> Option<bool> {
        let is_slow = self.is_slow.take();
        if is_slow.is_none() {
            self.looked = Some(Instant::now());
        }
        is_slow
    }
}

/// What the requests of a turn have.
const TIME: Duration = Duration::from_micros(REQUEST_US_PER_TURN);

/// Whether a request is of those that take microseconds: it reads or replaces one Lease, and both bodies are as short
/// as a Lease's. `body_bytes` are those of the request.
pub(super) fn is_plain(method: Method, body_bytes: usize, reply: &Reply) -> bool {
    match (method, reply) {
        // The answer is about as long as the body.
        (Method::Put, Reply::Response(_) | Reply::Waiting(_)) => body_bytes <= PLAIN_REQUEST_BYTES_MAX,
        (Method::Get, Reply::Response(response)) => body_bytes.max(response.body.len_max()) <= PLAIN_REQUEST_BYTES_MAX,
        _ => false,
    }
}
