//! The phases of a bench, and which is next.
//!
//! ```text
//!   Connecting ─▶ Preparing ─▶ Asking ─▶ (Writing) ─▶ Attaching ─▶ Warming ─▶ Measuring ─▶ Draining ─▶ report
//!   connections   each Lease   from      resume: one  watchers,    the load,  the load,    what is under way,
//!   open          is there     where to  renewal each idle ones    uncounted  counted      the last events
//!                              watch
//! ```

use super::answers::Work;
use super::args::{BenchArgs, Verb};
use super::connections::Connections;
use super::feed::Feed;
use crate::link::DRAIN_NS;
use crate::reactor::nanos;

/// The phases, in their order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Phase {
    Connecting,
    Preparing,
    Asking,
    Writing,
    Attaching,
    Warming,
    Measuring,
    Draining,
    Over,
}

/// Where a bench stands.
#[derive(Debug)]
pub(super) struct Course {
    verb: Verb,
    leases: u32,
    warm_up_ns: u64,
    duration_ns: u64,
    phase: Phase,
    /// When the phase began, in nanoseconds of the run.
    since: u64,
}

impl Course {
    /// At its beginning.
    pub(super) fn new(args: &BenchArgs) -> Self {
        Self {
            verb: args.verb,
            leases: args.leases,
            warm_up_ns: nanos(args.warm_up),
            duration_ns: nanos(args.duration),
            phase: Phase::Connecting,
            since: 0,
        }
    }

    /// What is asked for.
    pub(super) fn verb(&self) -> Verb {
        self.verb
    }

    /// The present phase.
    pub(super) fn phase(&self) -> Phase {
        self.phase
    }

    /// When it began, in nanoseconds of the run.
    pub(super) fn since(&self) -> u64 {
        self.since
    }

    /// Goes over to a phase.
    pub(super) fn enter(&mut self, next: Phase, now: u64) {
        self.phase = next;
        self.since = now;
    }

    /// Whether the load is on, and is one without an end.
    pub(super) fn is_loaded(&self) -> bool {
        matches!(self.phase, Phase::Warming | Phase::Measuring) && self.verb.is_endless()
    }

    /// Whether the phase has lasted as long as is measured.
    pub(super) fn is_long(&self, now: u64) -> bool {
        now - self.since >= self.duration_ns
    }

    /// The next phase, if this one is over; `stop` ends it before its time.
    pub(super) fn next(
        &self,
        work: &Work,
        connections: &Connections,
        feed: &Feed,
        stop: bool,
        now: u64,
    ) -> Option<Phase> {
        let verb = self.verb;
        let all_done = work.done() >= self.leases;
        let next = match self.phase {
            _ if stop && self.phase < Phase::Draining => Phase::Draining,
            Phase::Connecting if !connections.are_lanes_ready() => return None,
            Phase::Connecting if matches!(verb, Verb::Read | Verb::Renew | Verb::Resume) => Phase::Preparing,
            Phase::Connecting if connections.has_watchers() => Phase::Asking,
            Phase::Connecting => Phase::Attaching,
            Phase::Preparing if !all_done => return None,
            Phase::Preparing if connections.has_watchers() => Phase::Asking,
            Phase::Asking if work.done() == 0 => return None,
            Phase::Asking if verb == Verb::Resume => Phase::Writing,
            Phase::Preparing | Phase::Asking => Phase::Attaching,
            Phase::Writing if all_done => Phase::Measuring,
            Phase::Attaching if !connections.are_attached() => return None,
            Phase::Attaching if verb.is_endless() => Phase::Warming,
            Phase::Attaching => Phase::Measuring,
            Phase::Warming if now - self.since >= self.warm_up_ns => Phase::Measuring,
            Phase::Measuring if self.is_measured(work, connections, now) => Phase::Draining,
            Phase::Draining if now - self.since >= DRAIN_NS => Phase::Over,
            Phase::Draining if !connections.are_lanes_idle() || feed.is_owed(&work.tally) => return None,
            Phase::Draining if connections.missing(&work.leases).is_none() => Phase::Over,
            Phase::Writing | Phase::Warming | Phase::Measuring | Phase::Draining | Phase::Over => return None,
        };
        Some(next)
    }

    /// Whether what is being measured is over.
    pub(super) fn is_measured(&self, work: &Work, connections: &Connections, now: u64) -> bool {
        self.phase == Phase::Measuring
            && match self.verb {
                Verb::Create => work.done() >= self.leases,
                Verb::DeleteCollection => work.done() > 0,
                Verb::List => work.done() > 0 && self.is_long(now) && connections.are_lanes_idle(),
                // A renewal that failed has no event.
                Verb::Resume => connections.events_min() >= work.leases.all_writes(),
                Verb::Echo | Verb::Nothing | Verb::Read | Verb::Renew => self.is_long(now),
            }
    }
}
