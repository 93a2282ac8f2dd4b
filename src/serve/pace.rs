//! The time budget of a turn of the event loop for reading and serving requests.

use crate::api::Reply;
use crate::http::Method;
use crate::limits::{PLAIN_REQUEST_BYTES_MAX, READ_BYTES_PER_CLOCK, REQUEST_US_PER_TURN, REQUESTS_PER_CLOCK};
use std::time::{Duration, Instant};

/// Time that a turn's requests have taken, all connections together. Most take microseconds, and reading the clock for
/// each would be noticeable. The clock is read after several plain requests, and after each that may have taken longer.
#[derive(Debug, Default)]
pub struct Pace {
    /// End of the budget; `None` is no end.
    end: Option<Instant>,
    /// Plain requests since the last read of the clock; [`REQUESTS_PER_CLOCK`] or more if the clock must be read again.
    unlooked: u32,
    /// Bytes read from sockets since the last read of the clock.
    unlooked_bytes: usize,
    is_over: bool,
    /// When the clock was read last.
    looked: Option<Instant>,
    /// Whether the requests since [`Pace::take_slow`] used up a turn's time between two reads of the clock. That is one
    /// request that is not plain, or several plain requests. Also `true` if much was read without a request.
    is_slow: Option<bool>,
}

impl Pace {
    /// Begins the time of a turn's requests at `moment`.
    pub fn begin_turn(&mut self, moment: Instant) {
        *self = Self { end: Some(moment + TIME), looked: Some(moment), ..Self::default() };
    }

    /// Counts a served request, which may be [plain](is_plain). Its response may still have to be written.
    pub(super) fn count(&mut self, is_plain: bool) {
        self.unlooked += if is_plain { 1 } else { REQUESTS_PER_CLOCK };
        self.is_slow.get_or_insert(false);
    }

    /// Counts bytes from a socket. Decrypting and parsing them may take longer than serving the requests in them.
    pub fn count_read(&mut self, bytes: usize) {
        self.unlooked_bytes += bytes;
        if self.unlooked_bytes >= READ_BYTES_PER_CLOCK {
            self.unlooked = REQUESTS_PER_CLOCK;
        }
    }

    /// Notes that the connection reached its read limit of a turn: it is slow if those bytes had no request.
    pub fn count_much_read(&mut self) {
        self.is_slow.get_or_insert(true);
    }

    /// Reads the clock if a read is due. Returns whether the time is over, so that this turn serves no further request.
    #[must_use]
    pub fn check_end(&mut self) -> bool {
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

    /// Returns whether the requests counted since the last call used up a turn's time between two reads of the clock.
    /// Also `true` if [much was read](Pace::count_much_read) without a request. `None` if there were no requests: then
    /// other work, such as reading a body, does not count for the next connection.
    pub fn take_slow(&mut self) -> Option<bool> {
        let is_slow = self.is_slow.take();
        if is_slow.is_none() {
            self.looked = Some(Instant::now());
        }
        is_slow
    }
}

/// Time for the requests of a turn.
const TIME: Duration = Duration::from_micros(REQUEST_US_PER_TURN);

/// Whether a request takes only microseconds: it reads or replaces one Lease, and both bodies are as short as an
/// ordinary Lease. `body_bytes` is the length of the request's body.
pub(super) fn is_plain(method: Method, body_bytes: usize, reply: &Reply) -> bool {
    match (method, reply) {
        // The response is about as long as the body.
        (Method::Put, Reply::Response(_) | Reply::Waiting(_)) => body_bytes <= PLAIN_REQUEST_BYTES_MAX,
        (Method::Get, Reply::Response(response)) => body_bytes.max(response.body.len_max()) <= PLAIN_REQUEST_BYTES_MAX,
        _ => false,
    }
}
