//! The phases of a bench, and the time and progress of the present phase.
//!
//! Most benches skip some of these phases. In the bench `resume`, Measuring follows Writing, and the watchers resume in
//! Measuring.
//!
//! ```text
//!   Connecting ─▶ Preparing ─▶ Asking ─▶ (Writing) ─▶ Attaching ─▶ Warming ─▶ Measuring ─▶ Draining ─▶ report
//!   connections   each Lease   version   resume: one  watchers,    the load,  the load,    requests in flight,
//!   open          exists       to watch  renewal each idle ones    uncounted  counted      the last events
//!                              from
//! ```

use super::args::{BenchArgs, Verb};
use crate::reactor::nanos;
use crate::stage::Stage;

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

/// The present phase of a bench, and the lengths of the timed phases.
#[derive(Debug)]
pub(super) struct Course {
    pub(super) verb: Verb,
    pub(super) leases: u32,
    warm_up_ns: u64,
    duration_ns: u64,
    phase: Phase,
    /// When the phase began, in nanoseconds since the start of the run.
    since: u64,
}

impl Phase {
    fn name(self) -> &'static str {
        match self {
            Self::Connecting => "connecting",
            Self::Preparing => "preparing",
            Self::Asking => "asking",
            Self::Writing => "writing",
            Self::Attaching => "attaching",
            Self::Warming => "warming",
            Self::Measuring => "measuring",
            Self::Draining | Self::Over => "draining",
        }
    }
}

impl Course {
    /// Creates the course of a bench, in its first phase.
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

    /// Returns the present phase.
    pub(super) fn phase(&self) -> Phase {
        self.phase
    }

    /// Returns when the phase began, in nanoseconds since the start of the run.
    pub(super) fn since(&self) -> u64 {
        self.since
    }

    /// Whether the phase has lasted for the warm-up time.
    pub(super) fn is_warm(&self, now: u64) -> bool {
        now - self.since >= self.warm_up_ns
    }

    /// Returns the stage of the run, for the progress line. `done` is the number of finished requests of this phase.
    pub(super) fn stage(&self, done: u32, now: u64) -> Stage {
        let (elapsed_ns, leases) = (now - self.since, Some((done.into(), self.leases.into())));
        let is_timed = self.verb.is_endless() || matches!(self.verb, Verb::List | Verb::Nothing);
        let (part, ends_at) = match (self.phase, self.verb) {
            (Phase::Preparing | Phase::Writing, _) | (Phase::Measuring, Verb::Create) => (leases, None),
            (Phase::Warming, _) => {
                (Some((elapsed_ns, self.warm_up_ns)), Some(self.since + self.warm_up_ns + self.duration_ns))
            }
            (Phase::Measuring, _) if is_timed => {
                (Some((elapsed_ns, self.duration_ns)), Some(self.since + self.duration_ns))
            }
            _ => (None, None),
        };
        Stage { name: self.phase.name(), is_measured: self.phase == Phase::Measuring, part, ends_at }
    }

    /// Begins the phase `next`.
    pub(super) fn enter(&mut self, next: Phase, now: u64) {
        self.phase = next;
        self.since = now;
    }

    /// Whether the load runs: the phase is Warming or Measuring, and the bench repeats its requests until the measured
    /// time ends.
    pub(super) fn is_loaded(&self) -> bool {
        matches!(self.phase, Phase::Warming | Phase::Measuring) && self.verb.is_endless()
    }

    /// Whether the phase has lasted for the time to be measured (`--duration`).
    pub(super) fn is_long(&self, now: u64) -> bool {
        now - self.since >= self.duration_ns
    }
}
