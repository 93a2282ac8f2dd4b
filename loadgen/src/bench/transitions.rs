//! Decides when each phase of a bench ends, and which phase follows.

use super::answers::Work;
use super::args::Verb;
use super::connections::Connections;
use super::feed::Feed;
use super::phase::{Course, Phase};
use crate::link::DRAIN_NS;

/// Returns the next phase, if the present phase is over. If `stop` is true, every phase before Draining is over at
/// once, and Draining follows.
pub(super) fn next(
    course: &Course,
    work: &Work,
    connections: &Connections,
    feed: &Feed,
    stop: bool,
    now: u64,
) -> Option<Phase> {
    let (verb, phase) = (course.verb, course.phase());
    let all_done = work.done() >= course.leases;
    let next = match phase {
        _ if stop && phase < Phase::Draining => Phase::Draining,
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
        Phase::Warming if course.is_warm(now) => Phase::Measuring,
        Phase::Measuring if is_measured(course, work, connections, now) => Phase::Draining,
        Phase::Draining if now - course.since() >= DRAIN_NS => Phase::Over,
        Phase::Draining if !connections.are_lanes_idle() || feed.is_owed(&work.tally.recorder) => return None,
        Phase::Draining if connections.missing(&work.leases).is_none() => Phase::Over,
        Phase::Writing | Phase::Warming | Phase::Measuring | Phase::Draining | Phase::Over => return None,
    };
    Some(next)
}

/// Whether the phase Measuring is over. The verb decides what ends the phase: its work is done, or the measured time is
/// over, or, for lists, both.
pub(super) fn is_measured(course: &Course, work: &Work, connections: &Connections, now: u64) -> bool {
    course.phase() == Phase::Measuring
        && match course.verb {
            Verb::Create => work.done() >= course.leases,
            Verb::DeleteCollection => work.done() > 0,
            Verb::List => work.done() > 0 && course.is_long(now) && connections.are_lanes_idle(),
            // A failed renewal causes no event, so only acknowledged renewals are expected.
            Verb::Resume => connections.events_min() >= work.leases.all_writes,
            Verb::Echo | Verb::Nothing | Verb::Read | Verb::Renew => course.is_long(now),
        }
}
