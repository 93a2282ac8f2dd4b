//! A connection for watchers. In HTTP/2 one connection serves several watchers, with a stream for each request. In
//! HTTP/1.1 it serves one watcher.
//!
//! This module owns the connection, and the progress of the one request that each watcher has. [`Watcher`] chooses the
//! requests and parses the responses. The fleet, which owns all nodes, passes events and lists to the checks.

use crate::error_kind::{ErrorKind, excerpt};
use crate::fleet::{Fleet, REFUSALS_MAX};
use crate::http::{Bodies, Broken, Request, Told, Verdict};
use crate::link::{Link, TIMED_OUT, backoff_ns};
use crate::operation::Operation;
use crate::origin::Origin;
use crate::watcher::{Page, WatchError, Watcher};
use std::ops::Range;

/// Some watchers and the connection that they share.
#[derive(Debug)]
pub(crate) struct WatchLane {
    /// The connection. The tag of a request is the watcher's place in `seats`.
    pub(crate) link: Link<usize>,
    seats: Vec<Seat>,
}

/// One watcher and the progress of its request.
#[derive(Debug)]
struct Seat {
    /// Number of the watcher among all watchers.
    index: usize,
    watcher: Watcher,
    progress: Progress,
    /// Body so far of a response other than a watch: a page of a list, or an error.
    body: Vec<u8>,
    /// Number of times that the server has refused to process the request.
    refusals: u8,
}

/// The progress of a watcher's request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Progress {
    /// No request is in flight; the next may be sent at `not_before`, in nanoseconds since the start of the run.
    Idle { not_before: u64 },
    /// The request was sent at this time, in nanoseconds since the start of the run. No response has arrived.
    Asked { at: u64 },
    /// The head of the response has arrived. The request was sent at `at`, in nanoseconds since the start of the run.
    Answered { at: u64, status: u16 },
    /// A watch has been accepted.
    Watching,
}

impl Progress {
    /// Returns when the request was sent, while its response is incomplete. Returns `None` for an accepted watch, which
    /// has no deadline.
    fn waited_for_since(self) -> Option<u64> {
        match self {
            Self::Asked { at } | Self::Answered { at, .. } => Some(at),
            Self::Idle { .. } | Self::Watching => None,
        }
    }
}

impl WatchLane {
    /// Creates the watchers with these numbers.
    pub(crate) fn new(indexes: Range<usize>, namespace: &str) -> Self {
        let seats: Vec<Seat> = indexes.map(|index| Seat::new(index, namespace)).collect();
        Self { link: Link::new(Bodies::Streamed, seats.len()), seats }
    }

    /// Whether the server has accepted the watches of all watchers.
    pub(crate) fn is_watching(&self) -> bool {
        self.seats.iter().all(|seat| seat.progress == Progress::Watching)
    }

    /// Receives input, up to the maximum number of reads in a turn of the event loop. Returns true if this maximum was
    /// reached before the socket was empty.
    pub(crate) fn receive(
        &mut self,
        fleet: &mut Fleet,
        origin: &Origin,
        scratch: &mut [u8],
        now: u64,
    ) -> Result<bool, Broken> {
        let seats = &mut self.seats;
        let outcome = self.link.receive(origin, scratch, now, |place, told| {
            seats.get_mut(place).map_or(Verdict::Cancel, |seat| seat.handle(told, fleet, now))
        });
        self.link.count_handshake(&mut fleet.stats);
        outcome
    }

    /// Sends the next request of each idle watcher. `known` is the highest version that any acknowledgement has shown.
    /// `timeout_seconds` is the `timeoutSeconds` of a watch.
    pub(crate) fn send(&mut self, origin: &Origin, known: u64, timeout_seconds: u32, now: u64) -> Result<(), Broken> {
        for (place, seat) in self.seats.iter_mut().enumerate() {
            if let Progress::Idle { not_before } = seat.progress
                && now >= not_before
                && self.link.has_room()
            {
                let target = seat.watcher.next_target(known, timeout_seconds);
                let request = Request { method: "GET", target: &target, body: None };
                if self.link.send(origin, &request, place) {
                    seat.progress = Progress::Asked { at: now };
                }
            }
        }
        self.link.flush(origin)?;
        // After GOAWAY or `Connection: close`, the connection is closed once no response to a list or a new watch is
        // awaited. It is not kept open for accepted watches, which may last long: they resume on another connection.
        let is_waited_for = |seat: &Seat| seat.progress.waited_for_since().is_some();
        if self.link.is_going_away() && !self.seats.iter().any(is_waited_for) { Err(Broken::over()) } else { Ok(()) }
    }

    /// Cancels requests whose response is overdue.
    pub(crate) fn expire(&mut self, fleet: &mut Fleet, now: u64) -> Result<(), Broken> {
        let seats = &mut self.seats;
        let asked_at =
            |place: usize| seats.get(place).and_then(|seat| seat.progress.waited_for_since()).unwrap_or(u64::MAX);
        for place in self.link.expire(now, asked_at)? {
            if let Some(seat) = seats.get_mut(place) {
                seat.handle(Told::Lost { kind: ErrorKind::Timeout, why: TIMED_OUT }, fleet, now);
            }
        }
        Ok(())
    }

    /// Handles a broken connection. On the next connection, each watch resumes from the last version that the watcher
    /// saw.
    pub(crate) fn reset(&mut self, fleet: &mut Fleet, broken: &Broken) {
        let lost = self.link.take_in_flight();
        if let Some(kind) = broken.kind {
            for _ in 0..lost.len().max(1) {
                fleet.recorder.failed(Operation::Watch, kind, || broken.why.clone());
            }
        }
        for place in lost {
            if let Some(seat) = self.seats.get_mut(place) {
                seat.progress = Progress::Idle { not_before: 0 };
            }
        }
    }
}

impl Seat {
    fn new(index: usize, namespace: &str) -> Self {
        let progress = Progress::Idle { not_before: 0 };
        Self { index, watcher: Watcher::new(namespace), progress, body: Vec::new(), refusals: 0 }
    }

    /// Handles a piece of the response to the watcher's request, or the reason why the response or its rest does not
    /// come.
    fn handle(&mut self, told: Told<'_>, fleet: &mut Fleet, now: u64) -> Verdict {
        match told {
            Told::Answer { status, body, end } => return self.handle_answer(status, body, end, fleet, now),
            Told::Unserved => self.progress = Progress::Idle { not_before: now },
            Told::Refused if self.refusals < REFUSALS_MAX => {
                self.progress = Progress::Idle { not_before: now + backoff_ns(self.refusals.into()) };
                self.refusals += 1;
            }
            Told::Refused => self.fail(fleet, ErrorKind::Refused, "the server refused the stream repeatedly", now),
            Told::Lost { kind, why } => self.fail(fleet, kind, why, now),
        }
        Verdict::Cancel
    }

    fn handle_answer(&mut self, status: u16, body: &[u8], end: bool, fleet: &mut Fleet, now: u64) -> Verdict {
        if let Progress::Asked { at } = self.progress {
            let is_watch = self.watcher.is_watching() && status == 200;
            self.progress = if is_watch { Progress::Watching } else { Progress::Answered { at, status } };
            self.refusals = 0;
            self.body.clear();
        }
        if self.progress == Progress::Watching {
            let index = self.index;
            let outcome = self.watcher.handle_events(body, |event| fleet.handle_event(index, &event, now));
            if let Err(error) = outcome {
                self.handle_watch_error(fleet, &error, now);
                return Verdict::Cancel;
            }
        } else if self.body.len() + body.len() > BODY_BYTES_MAX {
            self.fail(fleet, ErrorKind::Malformed, "the page of a list is too large", now);
            return Verdict::Cancel;
        } else {
            self.body.extend_from_slice(body);
        }
        if end {
            self.handle_end(fleet, now);
        }
        Verdict::GoOn
    }

    /// Handles the end of a response: a page of a list, an error response, or the end of an accepted watch, which is
    /// then resumed.
    fn handle_end(&mut self, fleet: &mut Fleet, now: u64) {
        let answered = std::mem::replace(&mut self.progress, Progress::Idle { not_before: now });
        let Progress::Answered { at, status } = answered else { return };
        match status {
            410 => {
                fleet.stats.watches_expired += u64::from(self.watcher.is_watching());
                self.watcher.handle_expired();
            }
            200 => match self.watcher.handle_page(&self.body) {
                Some(page) => {
                    fleet.recorder.answered(Operation::List, at, now);
                    if let Page::Complete { version, known } = page {
                        fleet.handle_list(self.index, version, known, &self.watcher.listed);
                    }
                }
                None => self.fail(fleet, ErrorKind::Malformed, "the response is no list of Leases", now),
            },
            _ => {
                let words = excerpt(&self.body).into_owned();
                self.fail(fleet, ErrorKind::Status(status), &words, now);
            }
        }
    }

    /// Handles an event that ends a watch: an ERROR event, or input that is no event.
    fn handle_watch_error(&mut self, fleet: &mut Fleet, error: &WatchError, now: u64) {
        match error {
            WatchError::Status(410) => {
                fleet.stats.watches_expired += 1;
                self.watcher.handle_expired();
                self.progress = Progress::Idle { not_before: now };
            }
            WatchError::Status(status) => self.fail(fleet, ErrorKind::Status(*status), "an ERROR event", now),
            WatchError::Malformed => self.fail(fleet, ErrorKind::Malformed, "the input is no event of a watch", now),
        }
    }

    /// Counts an error of the watcher. Its next request is sent after a pause.
    #[cold]
    fn fail(&mut self, fleet: &mut Fleet, kind: ErrorKind, why: &str, now: u64) {
        let operation = if self.watcher.is_watching() { Operation::Watch } else { Operation::List };
        fleet.recorder.failed(operation, kind, || why.to_owned());
        self.progress = Progress::Idle { not_before: now + PAUSE_NS };
    }
}

/// Maximum size of the body of one page of a list, in bytes. A page contains 500 Leases.
const BODY_BYTES_MAX: usize = 256 * 1024 * 1024;
/// Time from a failure to the next attempt, in nanoseconds.
const PAUSE_NS: u64 = 1_000_000_000;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stalled_list_page_times_out_like_an_unanswered_request() {
        assert_eq!(Progress::Asked { at: 5 }.waited_for_since(), Some(5));
        assert_eq!(Progress::Answered { at: 5, status: 200 }.waited_for_since(), Some(5));
        assert_eq!(Progress::Watching.waited_for_since(), None);
        assert_eq!(Progress::Idle { not_before: 5 }.waited_for_since(), None);
    }
}
