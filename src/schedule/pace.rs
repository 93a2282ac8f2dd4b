//! The time budget of a turn of the event loop for reading and serving requests.

use crate::limits::{READ_BYTES_PER_CLOCK, REQUEST_US_PER_TURN, REQUESTS_PER_CLOCK};
use std::time::{Duration, Instant};

/// The time that the requests of a turn have taken, all connections together. Most requests are plain: they take only
/// microseconds. To read the clock after each of them would cost noticeable time. So the clock is read after several
/// plain requests, and after each request that may have taken longer.
#[derive(Debug, Default)]
pub struct Pace {
    /// Time at which the time budget of the turn is used up; `None` if there is no limit.
    end: Option<Instant>,
    /// Number of plain requests since the last read of the clock; [`REQUESTS_PER_CLOCK`] or more if the clock must be
    /// read again.
    unlooked: u32,
    /// Number of bytes read from sockets since the last read of the clock.
    unlooked_bytes: usize,
    is_over: bool,
    /// Whether the turn has served a request, or has responded to a request of an earlier turn. The responses are sent
    /// at the end of the turn.
    has_answers: bool,
    /// Time of the last read of the clock.
    looked: Option<Instant>,
    /// Whether the connection that is being served is slow; `None` if it has sent neither a request nor many bytes. A
    /// connection is slow if the time between two reads of the clock reached the time budget of a turn. Between two
    /// reads, the server serves one request that is not plain, or several plain requests. A connection is also slow if
    /// it sent many bytes without a request.
    is_slow: Option<bool>,
}

impl Pace {
    /// Begins the time budget of a turn's requests at `moment`.
    pub fn begin_turn(&mut self, moment: Instant) {
        *self = Self { end: Some(moment + TIME), looked: Some(moment), ..Self::default() };
    }

    /// Counts a served request, even if its response is not written yet. `is_plain` is whether the request takes only
    /// microseconds.
    pub fn count(&mut self, is_plain: bool) {
        self.unlooked += if is_plain { 1 } else { REQUESTS_PER_CLOCK };
        self.is_slow.get_or_insert(false);
        self.has_answers = true;
    }

    /// Notes a response to a request of an earlier turn.
    pub fn note_answer(&mut self) {
        self.has_answers = true;
    }

    /// Whether this turn has served requests, or has responded to requests of earlier turns.
    #[must_use]
    pub fn has_answers(&self) -> bool {
        self.has_answers
    }

    /// Counts bytes read from a socket. To decrypt and parse these bytes may take longer than to serve the requests in
    /// them. So the clock is read after every [`READ_BYTES_PER_CLOCK`] bytes too.
    pub fn count_read(&mut self, bytes: usize) {
        self.unlooked_bytes += bytes;
        if self.unlooked_bytes >= READ_BYTES_PER_CLOCK {
            self.unlooked = REQUESTS_PER_CLOCK;
        }
    }

    /// Counts a connection that has failed, or whose peer has closed it. To drop the work of such a connection may take
    /// longer than a request: it may have thousands of watches. So the next check reads the clock.
    pub fn count_end(&mut self) {
        self.unlooked = REQUESTS_PER_CLOCK;
    }

    /// Notes that the connection reached its limit of bytes read in a turn. The connection is slow if these bytes
    /// contained no request.
    pub fn count_much_read(&mut self) {
        self.is_slow.get_or_insert(true);
    }

    /// Reads the clock if a read is due. Returns whether the time budget is used up, so that this turn serves no
    /// further request.
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

    /// Returns whether the requests counted since the last call took a turn's whole time budget between two reads of
    /// the clock. Also returns `true` if [many bytes](Pace::count_much_read) arrived without a request.
    ///
    /// Returns `None` if there were neither requests nor many bytes, and then reads the clock. So the time of other
    /// work, such as reading a body, does not count against the next connection.
    pub fn take_slow(&mut self) -> Option<bool> {
        let is_slow = self.is_slow.take();
        if is_slow.is_none() {
            self.looked = Some(Instant::now());
        }
        is_slow
    }
}

/// Time budget for the requests of a turn.
const TIME: Duration = Duration::from_micros(REQUEST_US_PER_TURN);
