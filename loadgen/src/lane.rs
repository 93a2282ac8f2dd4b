//! A lane: one connection that several nodes share, its waiting requests, and its requests in flight.
//!
//! This module owns the connection and its requests. The fleet, which owns all nodes, builds the requests and
//! interprets the responses.

use crate::error_kind::ErrorKind;
use crate::fleet::{Fleet, Flight};
use crate::http::{Bodies, Broken, Told, Verdict};
use crate::link::{Link, TIMED_OUT, backoff_ns};
use crate::operation::Operation;
use crate::origin::Origin;
use std::collections::VecDeque;

/// One shared connection.
#[derive(Debug)]
pub(crate) struct Lane {
    pub(crate) link: Link<Flight>,
    waiting: VecDeque<Flight>,
    /// Time before which the lane sends no request, in nanoseconds since the start of the run. If the server refuses a
    /// request, the lane pauses until this time.
    not_before: u64,
}

impl Lane {
    /// Creates a lane with at most `in_flight_max` requests in flight.
    pub(crate) fn new(in_flight_max: usize) -> Self {
        Self { link: Link::new(Bodies::Whole, in_flight_max), waiting: VecDeque::new(), not_before: 0 }
    }

    /// Returns how many more requests can be added before one must wait.
    pub(crate) fn room(&self) -> usize {
        self.link.in_flight_max.saturating_sub(self.link.len() + self.waiting.len())
    }

    /// Whether no request is waiting or in flight.
    pub(crate) fn is_idle(&self) -> bool {
        self.link.len() == 0 && self.waiting.is_empty()
    }

    /// Whether requests wait: for room on the connection, or for the end of a pause.
    pub(crate) fn has_waiting(&self) -> bool {
        !self.waiting.is_empty()
    }

    /// Adds a request.
    pub(crate) fn push(&mut self, flight: Flight) {
        self.waiting.push_back(flight);
    }

    /// Receives input, up to the maximum number of reads in a turn of the event loop, and passes each response to the
    /// fleet. Each finished flight is passed to `done`. Returns true if this maximum was reached before the socket was
    /// empty.
    pub(crate) fn receive(
        &mut self,
        fleet: &mut Fleet,
        origin: &Origin,
        scratch: &mut [u8],
        now: u64,
        mut done: impl FnMut(Flight),
    ) -> Result<bool, Broken> {
        let (waiting, not_before) = (&mut self.waiting, &mut self.not_before);
        let mut unserved = 0;
        let outcome = self.link.receive(origin, scratch, now, |flight, told| {
            let after = match told {
                Told::Answer { status, body, .. } => fleet.handle_answer(flight, status, body, now),
                Told::Unserved => {
                    // Requests that the server did not process are sent before the waiting requests, in their old
                    // order.
                    waiting.insert(unserved, flight);
                    unserved += 1;
                    return Verdict::GoOn;
                }
                Told::Refused => {
                    *not_before = (*not_before).max(now + backoff_ns(flight.refusals.into()));
                    fleet.handle_refusal(flight, now)
                }
                Told::Lost { kind, why } => fleet.handle_loss(flight, kind, why, now),
            };
            match after {
                None => done(flight),
                Some(following) => waiting.push_front(following),
            }
            Verdict::GoOn
        });
        self.link.count_handshake(&mut fleet.stats);
        outcome
    }

    /// Sends waiting requests, as many as the connection's limits and the socket allow.
    pub(crate) fn send(&mut self, fleet: &mut Fleet, origin: &Origin, now: u64) -> Result<(), Broken> {
        while now >= self.not_before && self.link.has_room() {
            let Some(mut flight) = self.waiting.pop_front() else { break };
            let Some(request) = fleet.request_of(&mut flight, now) else { continue };
            if !self.link.send(origin, &request, flight) {
                self.waiting.push_front(flight);
                break;
            }
        }
        self.link.flush(origin)?;
        if self.link.is_going_away() && self.link.len() == 0 { Err(Broken::over()) } else { Ok(()) }
    }

    /// Cancels requests whose response is overdue.
    pub(crate) fn expire(&mut self, fleet: &mut Fleet, now: u64, done: impl FnMut(Flight)) -> Result<(), Broken> {
        let expired = self.link.expire(now, |flight| flight.written)?;
        self.lose(fleet, expired, ErrorKind::Timeout, TIMED_OUT, now, done);
        Ok(())
    }

    /// Handles a broken connection: the requests in flight get no response, so they count as errors. A renewal is tried
    /// again up to a limit.
    pub(crate) fn drop_flights(&mut self, fleet: &mut Fleet, broken: &Broken, now: u64, done: impl FnMut(Flight)) {
        let lost = self.link.take_in_flight();
        match broken.kind {
            // A server may close a connection that has no request in flight, so this is no error.
            None | Some(ErrorKind::Reset) if lost.is_empty() => {}
            Some(kind) if lost.is_empty() => fleet.recorder.failed(Operation::Connection, kind, || broken.why.clone()),
            kind => self.lose(fleet, lost, kind.unwrap_or(ErrorKind::Reset), &broken.why, now, done),
        }
    }

    fn lose(
        &mut self,
        fleet: &mut Fleet,
        lost: Vec<Flight>,
        kind: ErrorKind,
        why: &str,
        now: u64,
        mut done: impl FnMut(Flight),
    ) {
        for flight in lost {
            match fleet.handle_loss(flight, kind, why, now) {
                None => done(flight),
                Some(following) => self.waiting.push_back(following),
            }
        }
    }

    /// Ends the run: drops all requests, and passes each flight to `done`. Returns true if some requests were in
    /// flight. The caller then closes the connection, since their responses may still arrive.
    pub(crate) fn abandon_all(&mut self, fleet: &mut Fleet, mut done: impl FnMut(Flight)) -> bool {
        let in_flight = self.link.take_in_flight();
        let any = !in_flight.is_empty();
        let sent = in_flight.into_iter().map(|flight| (flight, true));
        for (flight, is_sent) in sent.chain(self.waiting.drain(..).map(|flight| (flight, false))) {
            fleet.abandon(flight, is_sent);
            done(flight);
        }
        any
    }
}
