//! The load of simulated nodes, and the phases of its run.
//!
//! ```text
//!   Connecting ─▶ Creating ─▶ Settling ─▶ Measuring ─▶ Finishing ─▶ Draining ─▶ results
//!   all ready,    each node   the load,   the load,    no more      the watchers
//!   watches on    its Lease   uncounted   counted      load         catch up
//! ```
//!
//! In the phase Finishing, requests that were due in the measured time are still sent, however late. Without this
//! phase, a stall at the end of the measured time would hide the requests that it delayed most. A request that cannot
//! be sent before the phase ends, after 10 s at most, is an error.
//!
//! Without `--max`, a node's renewals and reads use different connections, if there are at least two. So a read shows
//! whether the server makes the writes of one connection visible to other connections. With `--max`, renewals and reads
//! of a node use the same connection.

use crate::args::Args;
use crate::driver::{Io, Workload};
use crate::error_kind::ErrorKind;
use crate::flags::ToldArgs;
use crate::fleet::{Fleet, Flight};
use crate::http::Broken;
use crate::lane::Lane;
use crate::link::{Connect, DRAIN_NS, TIMEOUT_NS};
use crate::reactor::nanos;
use crate::recorder::Recorder;
use crate::report::{Results, Timing};
use crate::rota::{Due, Duty, Rota};
use crate::stage::Stage;
use crate::timeline::History;
use crate::usage::server_memory;
use crate::watch_lane::WatchLane;
use std::time::Duration;

/// The simulated nodes, their connections and the watchers.
#[derive(Debug)]
pub(crate) struct Simulation {
    args: Args,
    fleet: Fleet,
    rota: Rota,
    /// Connections of the nodes. They are numbered from 0; the numbers of the watchers' connections follow.
    lanes: Vec<Lane>,
    /// Connections of the watchers.
    watch_lanes: Vec<WatchLane>,
    rng: fastrand::Rng,
    phase: Phase,
    /// Start of the present phase, in nanoseconds since the start of the run.
    phase_since: u64,
    results: Timing,
}

/// The phases of a run, in order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Phase {
    Connecting,
    Creating,
    Settling,
    Measuring,
    Finishing,
    Draining,
}

impl Phase {
    fn name(self) -> &'static str {
        match self {
            Self::Connecting => "connecting",
            Self::Creating => "creating",
            Self::Settling => "settling",
            Self::Measuring => "measuring",
            Self::Finishing => "finishing",
            Self::Draining => "draining",
        }
    }
}

impl Workload for Simulation {
    type Args = Args;
    type Results = Results;

    const HOUSEKEEPING_NS: u64 = 50_000_000;

    fn told(args: &Args) -> &ToldArgs {
        &args.told
    }

    fn spread(args: &Args, servers_len: usize) -> Vec<usize> {
        // Without `--max`, a node sends writes on one lane (a connection) and reads on the next lane. With several
        // servers, these two lanes mostly have different servers. So a read shows whether its server has the writes of
        // another server.
        let spread = |connections: u32| (0..connections as usize).map(|index| index % servers_len);
        spread(args.connections()).chain(spread(args.watch_connections())).collect()
    }

    fn new(args: Args, epoch_us: u64) -> Self {
        let watchers_len = args.watchers as usize;
        let per_lane = args.watchers_per_connection() as usize;
        let watch_lane = |first: usize| WatchLane::new(first..watchers_len.min(first + per_lane), &args.namespace);
        let new_lane = || Lane::new(args.streams() as usize);
        Self {
            fleet: Fleet::new(&args.namespace, args.nodes, watchers_len, epoch_us),
            rota: Rota::new(&args),
            lanes: std::iter::repeat_with(new_lane).take(args.connections() as usize).collect(),
            watch_lanes: (0..watchers_len).step_by(per_lane).map(watch_lane).collect(),
            rng: fastrand::Rng::new(),
            phase: Phase::Connecting,
            phase_since: 0,
            results: Timing::default(),
            args,
        }
    }

    fn link(&mut self, index: usize) -> Option<&mut dyn Connect> {
        let lanes_len = self.lanes.len();
        if let Some(lane) = self.lanes.get_mut(index) {
            return Some(&mut lane.link);
        }
        self.watch_lanes.get_mut(index.checked_sub(lanes_len)?).map(|lane| &mut lane.link as &mut dyn Connect)
    }

    fn recorder(&mut self) -> &mut Recorder {
        &mut self.fleet.recorder
    }

    fn next_due(&self, horizon: u64) -> u64 {
        self.rota.next_due(horizon)
    }

    /// Adds each due request to a lane: a node's writes to one lane, the node's reads to the next lane.
    fn fire(&mut self, io: &mut Io) {
        self.rota.fire(io.reactor.now(), |Due { node, duty, due, late_ns }| {
            let index = (node as usize + usize::from(duty == Duty::Read)) % self.lanes.len();
            let flight = begin(&mut self.fleet, node, duty, due);
            let (Some(flight), Some(lane)) = (flight, self.lanes.get_mut(index)) else { return };
            self.fleet.recorder.taken_up(due, late_ns);
            if lane.room() == 0 {
                self.fleet.recorder.crowded(due);
            }
            lane.push(flight);
            io.reactor.set_runnable(index);
        });
    }

    fn serve(&mut self, io: &mut Io, runnable: &mut [usize]) -> Result<(), String> {
        // Lanes have lower numbers than watch lanes. So if the acknowledgement and the event of one write have both
        // arrived, the acknowledgement is read first. The latency of the event starts at the acknowledgement.
        runnable.sort_unstable();
        for &index in &*runnable {
            if index < self.lanes.len() { self.run_lane(io, index)? } else { self.run_watch_lane(io, index)? }
        }
        // In the phase Connecting, only lists and watches are sent. An error of these requests means a wrong address or
        // missing rights, so the first error ends the run.
        match self.fleet.recorder.first_errors().first() {
            Some(words) if self.phase == Phase::Connecting => Err(unreachable(&io.urls(), words)),
            _ => Ok(()),
        }
    }

    /// The rate of creations is computed from the length of the phase Creating. So this phase ends as soon as every
    /// node has created or found its Lease, or has given up.
    fn must_end_phase(&self, _now: u64) -> bool {
        self.phase == Phase::Creating && self.rota.started == self.args.nodes
    }

    fn keep_house(&mut self, io: &mut Io, now: u64) -> Result<(), String> {
        for index in 0..self.lanes.len() + self.watch_lanes.len() {
            let done = |flight| self.rota.done(flight);
            // A request may wait for the end of a pause, which is no event of the poll. So each connection with waiting
            // requests becomes runnable.
            let (outcome, waits) = match self.lanes.get_mut(index) {
                Some(lane) => (lane.expire(&mut self.fleet, now, done), lane.has_waiting()),
                None => match self.watch_lanes.get_mut(index - self.lanes.len()) {
                    Some(lane) => (lane.expire(&mut self.fleet, now), true),
                    None => continue,
                },
            };
            if let Err(broken) = outcome {
                self.break_lane(io, index, &broken, now)?;
            } else if self.link(index).is_some_and(|link| link.is_due(now)) {
                self.connect(io, index, now)?;
            } else if waits {
                io.reactor.set_runnable(index);
            }
        }
        if let Some(next) = self.next_phase(io, now) {
            self.enter(next, io, now);
        }
        Ok(())
    }

    fn stage(&self, now: u64) -> Stage {
        let (since, settling_ns, measured_ns) = (self.phase_since, self.settling_ns(), nanos(self.args.duration));
        let (part, ends_at) = match self.phase {
            Phase::Creating => (Some((self.rota.started.into(), self.args.nodes.into())), None),
            Phase::Settling => (Some((now - since, settling_ns)), Some(since + settling_ns + measured_ns)),
            Phase::Measuring => (Some((now - since, measured_ns)), Some(since + measured_ns)),
            Phase::Connecting | Phase::Finishing | Phase::Draining => (None, None),
        };
        Stage { name: self.phase.name(), is_measured: self.phase == Phase::Measuring, part, ends_at }
    }

    fn violations(&self) -> u64 {
        self.fleet.checker.count()
    }

    fn is_over(&self, now: u64) -> bool {
        self.phase == Phase::Draining && (self.fleet.checker.watchers_are_level() || now - self.phase_since >= DRAIN_NS)
    }

    fn end(&mut self, io: &mut Io) {
        self.fleet.checker.finish(&self.fleet.nodes);
        let now = io.reactor.now();
        for lane in &mut self.lanes {
            lane.link.close(io.reactor.registry(), now);
        }
    }

    fn into_results(self, url: String, history: History) -> Results {
        Results { url, args: self.args, timing: self.results, fleet: self.fleet, history }
    }
}

impl Simulation {
    /// Receives responses, adds requests and sends them on one lane.
    fn run_lane(&mut self, io: &mut Io, index: usize) -> Result<(), String> {
        let now = io.reactor.now();
        let Some(lane) = self.lanes.get_mut(index) else { return Ok(()) };
        let (origin, scratch) = io.origin_and_scratch(index);
        let outcome = match lane.receive(&mut self.fleet, origin, scratch, now, |flight| self.rota.done(flight)) {
            Ok(more) => {
                feed(&mut self.rota, &mut self.fleet, lane, index, now);
                lane.send(&mut self.fleet, origin, now).map(|()| more)
            }
            Err(broken) => Err(broken),
        };
        self.conclude(io, index, outcome, now)
    }

    /// Receives and sends on a watcher's connection.
    fn run_watch_lane(&mut self, io: &mut Io, index: usize) -> Result<(), String> {
        let now = io.reactor.now();
        let Some(lane) = self.watch_lanes.get_mut(index - self.lanes.len()) else { return Ok(()) };
        let known = self.fleet.checker.acknowledged_max;
        let timeout_seconds = self.rng.u32(300..600);
        let (origin, scratch) = io.origin_and_scratch(index);
        let outcome = lane.receive(&mut self.fleet, origin, scratch, now);
        let outcome = outcome.and_then(|more| lane.send(origin, known, timeout_seconds, now).map(|()| more));
        self.conclude(io, index, outcome, now)
    }

    /// Ends the work on a connection in this turn of the event loop. `outcome` says whether input may be left in the
    /// socket, or why the connection is broken.
    fn conclude(&mut self, io: &mut Io, index: usize, outcome: Result<bool, Broken>, now: u64) -> Result<(), String> {
        match outcome {
            Ok(true) => io.reactor.set_runnable(index),
            Ok(false) => {}
            Err(broken) => self.break_lane(io, index, &broken, now)?,
        }
        Ok(())
    }

    /// Handles a broken connection. In the phase Connecting, an error of a connection ends the run: the address may be
    /// wrong. In all other cases the generator connects again, to another server if there is one.
    #[cold]
    fn break_lane(&mut self, io: &mut Io, index: usize, broken: &Broken, now: u64) -> Result<(), String> {
        if self.phase == Phase::Connecting && broken.kind.is_some() {
            return Err(unreachable(&io.target(index).url, &broken.why));
        }
        if let Some(lane) = self.lanes.get_mut(index) {
            lane.drop_flights(&mut self.fleet, broken, now, |flight| self.rota.done(flight));
        } else if let Some(lane) = self.watch_lanes.get_mut(index - self.lanes.len()) {
            lane.reset(&mut self.fleet, broken);
        }
        self.fleet.stats.moves += u64::from(io.move_away(index, &mut self.rng));
        let Some(link) = self.link(index) else { return Ok(()) };
        link.close(io.reactor.registry(), now);
        // The next attempt is due at once if this connection has received a response, or was the first attempt.
        // Otherwise a pause comes first.
        if link.is_due(now) { self.connect(io, index, now) } else { Ok(()) }
    }

    fn connect(&mut self, io: &mut Io, index: usize, now: u64) -> Result<(), String> {
        let Some(link) = self.link(index) else { return Ok(()) };
        let opened = io.open(link, index, now);
        self.fleet.stats.connections += 1;
        match opened {
            Ok(()) => Ok(()),
            Err(error) => {
                let broken = Broken { kind: Some(ErrorKind::Reset), why: error.to_string() };
                self.break_lane(io, index, &broken, now)
            }
        }
    }

    /// Returns the next phase, if the present phase is over.
    fn next_phase(&self, io: &Io, now: u64) -> Option<Phase> {
        let in_phase = now - self.phase_since;
        let stop = io.is_interrupted() && self.phase < Phase::Finishing;
        let is_ready = || {
            self.lanes.iter().all(|lane| lane.link.is_ready()) && self.watch_lanes.iter().all(WatchLane::is_watching)
        };
        let next = match self.phase {
            _ if stop => Phase::Finishing,
            Phase::Connecting if is_ready() => Phase::Creating,
            Phase::Creating if self.rota.started == self.args.nodes => Phase::Settling,
            Phase::Settling if in_phase >= self.settling_ns() => Phase::Measuring,
            Phase::Measuring if in_phase >= nanos(self.args.duration) => Phase::Finishing,
            Phase::Finishing if in_phase >= TIMEOUT_NS || self.is_done() => Phase::Draining,
            _ => return None,
        };
        Some(next)
    }

    fn enter(&mut self, next: Phase, io: &mut Io, now: u64) {
        if self.phase == Phase::Creating {
            self.results.creating = Duration::from_nanos(now - self.phase_since);
        }
        let pids = &self.args.told.pid;
        let exact_now = || io.reactor.now();
        match next {
            Phase::Connecting => {}
            Phase::Creating => self.rota.begin_once(),
            Phase::Settling => {
                self.fleet.is_creating = false;
                self.rota.begin_load(now);
            }
            Phase::Measuring => {
                self.fleet.recorder.begin(self.results.window.begin(pids, exact_now));
            }
            Phase::Finishing => {
                let is_measured = self.phase == Phase::Measuring;
                self.results.interrupted = !is_measured || now - self.phase_since < nanos(self.args.duration);
                if is_measured {
                    self.fleet.recorder.end(self.results.window.end(pids, exact_now));
                    self.results.server_memory = server_memory(pids);
                }
                // If the user ended the run before its measured time, requests that are due need not be sent any more.
                // So the load ends at time 0, before every due time.
                self.rota.end(if is_measured { self.fleet.recorder.window().end } else { 0 });
            }
            Phase::Draining => {
                for lane in &mut self.lanes {
                    if lane.abandon_all(&mut self.fleet, |flight| self.rota.done(flight)) {
                        lane.link.close(io.reactor.registry(), now);
                    }
                }
                self.rota.abandon(now, |node, duty, due| {
                    if let Some(flight) = begin(&mut self.fleet, node, duty, due) {
                        self.fleet.abandon(flight, false);
                    }
                });
            }
        }
        self.phase = next;
        self.phase_since = now;
        io.reactor.set_all_runnable();
    }

    /// Returns the length of the phase Settling, in nanoseconds: one period, in which every node renews once. With
    /// `--max` there are no periods, and the length is 2 s, or the measured time if that is shorter.
    fn settling_ns(&self) -> u64 {
        if self.args.max { SETTLING_MAX_NS.min(nanos(self.args.duration)) } else { nanos(self.args.period) }
    }

    /// Whether no request is in flight, and no due request remains to be sent.
    fn is_done(&self) -> bool {
        self.lanes.iter().all(Lane::is_idle) && !self.rota.is_owed()
    }
}

/// Adds requests to a lane until it has its maximum number of requests in flight. Without `--max`, adds requests only
/// in the phase Creating. In later phases, timers then decide when requests are due. With `--max` there are no timers.
fn feed(rota: &mut Rota, fleet: &mut Fleet, lane: &mut Lane, index: usize, now: u64) {
    let round_len = rota.round_len(index);
    let mut busy = 0;
    while lane.link.is_ready() && lane.room() > 0 && busy < round_len {
        match rota.next(index) {
            None => return,
            Some((node, duty)) => match begin(fleet, node, duty, now) {
                Some(flight) => {
                    lane.push(flight);
                    if duty == Duty::Renew {
                        rota.renewed(index);
                    }
                }
                None => busy += 1,
            },
        }
    }
}

/// Returns the request for a node's duty (a renewal or a read) that was due at `due`. Returns `None` for a renewal if
/// another renewal of the node is in progress.
fn begin(fleet: &mut Fleet, node: u32, duty: Duty, due: u64) -> Option<Flight> {
    match duty {
        Duty::Read => Some(Fleet::begin_read(node, due)),
        Duty::Renew => fleet.begin_renewal(node, due),
    }
}

/// Returns the message for the user if a run cannot begin.
fn unreachable(url: &str, why: &str) -> String {
    format!("cannot reach {url}: {why}")
}

/// Maximum length of the phase Settling with `--max`, in nanoseconds.
const SETTLING_MAX_NS: u64 = 2_000_000_000;
