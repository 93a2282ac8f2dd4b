//! The event loop of a run, and the phases of the run.
//!
//! One turn of the event loop: wait → note readiness → start due requests → receive → fill lanes → send → housekeeping
//! (timeouts, new connections, phases, progress). The phases:
//!
//! ```text
//!   Connecting ─▶ Creating ─▶ Settling ─▶ Measuring ─▶ Finishing ─▶ Draining ─▶ results
//!   all ready,    each node   the load,   the load,    no more      the watchers
//!   watches on    its Lease   uncounted   counted      load         catch up
//! ```
//!
//! In the phase Finishing, requests that were due in the measured time are still sent, however late. Without this
//! phase, a stall at the end of the measured time would hide the requests that it delayed most. A request that cannot
//! be sent before the run ends is an error.
//!
//! With timers, a node's renewals and reads use different connections, so a read shows a write of another connection.
//! With `--max` both use the same connection.

use crate::args::Args;
use crate::error_kind::ErrorKind;
use crate::fleet::{Fleet, Flight};
use crate::http::Broken;
use crate::lane::Lane;
use crate::link::{Connect, DRAIN_NS, SCRATCH_BYTES, TIMEOUT_NS};
use crate::probe::Probes;
use crate::reactor::{Reactor, nanos};
use crate::report::{Results, Timing};
use crate::rota::{Due, Duty, Rota};
use crate::stage::Stage;
use crate::target::Target;
use crate::timeline::Timeline;
use crate::usage::server_memory;
use crate::watch_lane::WatchLane;
use mio::Token;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// A run of the simulated nodes, in progress.
#[derive(Debug)]
pub(crate) struct Driver {
    args: Args,
    /// Servers that the nodes' connections are spread over, at least one.
    targets: Vec<Target>,
    /// For each connection, the index of its server in `targets`: first for the lanes, then for the watch lanes.
    servers: Vec<usize>,
    reactor: Reactor,
    fleet: Fleet,
    rota: Rota,
    lanes: Vec<Lane>,
    watch_lanes: Vec<WatchLane>,
    rng: fastrand::Rng,
    phase: Phase,
    phase_since: u64,
    results: Timing,
    interrupted: Arc<AtomicBool>,
    timeline: Timeline,
    probes: Probes,
    next_housekeeping: u64,
    scratch: Vec<u8>,
}

/// The phases of a run, in order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Phase {
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

impl Driver {
    /// Prepares a run. Errors are sentences for the user.
    pub(crate) fn new(
        args: Args,
        targets: Vec<Target>,
        interrupted: Arc<AtomicBool>,
        mut timeline: Timeline,
    ) -> Result<Self, String> {
        let lanes_len = args.connections() as usize;
        let watchers_len = args.watchers as usize;
        let watch_lanes_len = args.watch_connections() as usize;
        let probes = Probes::new(args.told.probes_len(targets.len()), lanes_len + watch_lanes_len);
        let reactor = Reactor::new(lanes_len + watch_lanes_len + probes.len())?;
        // A node sends writes on one lane and reads on the next lane. With several servers, the next lane has another
        // server.
        let spread = |connections: usize| (0..connections).map(|index| index % targets.len());
        let servers = spread(lanes_len).chain(spread(watch_lanes_len)).collect();
        let mut fleet = Fleet::new(&args.namespace, args.nodes, watchers_len, reactor.epoch_us());
        timeline.begin(&mut fleet.recorder, reactor.epoch_us());
        Ok(Self {
            reactor,
            fleet,
            rota: Rota::new(&args),
            lanes: std::iter::repeat_with(|| Lane::new(args.streams() as usize)).take(lanes_len).collect(),
            watch_lanes: (0..watchers_len)
                .step_by(args.watchers_per_connection() as usize)
                .map(|first| {
                    let after = watchers_len.min(first + args.watchers_per_connection() as usize);
                    WatchLane::new(first..after, &args.namespace)
                })
                .collect(),
            rng: fastrand::Rng::new(),
            phase: Phase::Connecting,
            phase_since: 0,
            results: Timing::default(),
            interrupted,
            timeline,
            probes,
            next_housekeeping: 0,
            scratch: vec![0; SCRATCH_BYTES],
            args,
            targets,
            servers,
        })
    }

    /// Runs all phases. Errors are sentences for the user.
    pub(crate) fn run(mut self) -> Result<Results, String> {
        let mut runnable = Vec::new();
        while !(self.phase == Phase::Draining && self.is_drained()) {
            self.turn(&mut runnable)?;
        }
        self.fleet.checker.finish(&self.fleet.nodes);
        let now = self.reactor.now();
        let history = self.timeline.finish(&mut self.fleet.recorder, now);
        for lane in &mut self.lanes {
            lane.link.close(self.reactor.registry(), now);
        }
        let url = urls(&self.targets);
        Ok(Results { url, args: self.args, timing: self.results, fleet: self.fleet, history })
    }

    fn turn(&mut self, runnable: &mut Vec<usize>) -> Result<(), String> {
        let until = self.rota.next_due(self.next_housekeeping);
        self.reactor.wait(until, |index, event| match link(&mut self.lanes, &mut self.watch_lanes, index) {
            Some(link) => link.handle_readiness(event),
            None => self.probes.handle_readiness(index, event),
        })?;
        self.fire(self.reactor.now());
        self.reactor.take_runnable(runnable);
        // Lanes come before watch lanes. If an acknowledgement and the event of the same write have both arrived, the
        // acknowledgement is read first.
        runnable.sort_unstable();
        for &index in &*runnable {
            if index < self.lanes.len() { self.run_lane(index)? } else { self.run_watch_lane(index)? }
        }
        let now = self.reactor.now();
        // The rate of creations is computed from the length of the phase Creating. So this phase ends as soon as the
        // last node has its Lease.
        let is_created = self.phase == Phase::Creating && self.rota.started() == self.args.nodes;
        if now >= self.next_housekeeping || is_created {
            self.next_housekeeping = now + HOUSEKEEPING_NS;
            self.keep_house(now)?;
        }
        // In the phase Connecting, only lists and watches are sent. An error of these requests means a wrong address or
        // missing rights.
        match self.fleet.recorder.first_errors().first() {
            Some(words) if self.phase == Phase::Connecting => Err(unreachable(&urls(&self.targets), words)),
            _ => Ok(()),
        }
    }

    /// Adds each due request to a lane: a node's writes to one lane, the node's reads to the next lane.
    fn fire(&mut self, now: u64) {
        self.rota.fire(now, |Due { node, duty, due, late_ns }| {
            let index = (node as usize + usize::from(duty == Duty::Read)) % self.lanes.len();
            let flight = begin(&mut self.fleet, node, duty, due);
            let (Some(flight), Some(lane)) = (flight, self.lanes.get_mut(index)) else { return };
            self.fleet.recorder.taken_up(due, late_ns);
            if lane.room() == 0 {
                self.fleet.recorder.crowded(due);
            }
            lane.push(flight);
            self.reactor.set_runnable(index);
        });
    }

    /// Receives responses, adds requests and sends them on one lane.
    fn run_lane(&mut self, index: usize) -> Result<(), String> {
        let now = self.reactor.now();
        let Some(target) = target(&self.targets, &self.servers, index) else { return Ok(()) };
        let (origin, scratch) = (&target.origin, self.scratch.as_mut_slice());
        let Some(lane) = self.lanes.get_mut(index) else { return Ok(()) };
        let outcome = match lane.receive(&mut self.fleet, origin, scratch, now, |flight| self.rota.done(flight)) {
            Ok(more) => {
                if more {
                    self.reactor.set_runnable(index);
                }
                feed(&mut self.rota, &mut self.fleet, lane, index, now);
                lane.send(&mut self.fleet, origin, now)
            }
            Err(broken) => Err(broken),
        };
        outcome.or_else(|broken| self.break_lane(index, &broken, now))
    }

    /// Receives and sends on a watcher's connection.
    fn run_watch_lane(&mut self, index: usize) -> Result<(), String> {
        let now = self.reactor.now();
        let Some(lane) = self.watch_lanes.get_mut(index - self.lanes.len()) else { return Ok(()) };
        let known = self.fleet.checker.acknowledged_max();
        let timeout_seconds = self.rng.u32(300..600);
        let Some(target) = target(&self.targets, &self.servers, index) else { return Ok(()) };
        let origin = &target.origin;
        let outcome = lane.receive(&mut self.fleet, origin, &mut self.scratch, now);
        let outcome = outcome.and_then(|more| lane.send(origin, known, timeout_seconds, now).map(|()| more));
        match outcome {
            Ok(true) => self.reactor.set_runnable(index),
            Ok(false) => {}
            Err(broken) => self.break_lane(index, &broken, now)?,
        }
        Ok(())
    }

    /// Handles a broken connection. In the phase Connecting a broken connection ends the run. In later phases the
    /// generator connects again, to another server if there is one.
    #[cold]
    fn break_lane(&mut self, index: usize, broken: &Broken, now: u64) -> Result<(), String> {
        if self.phase == Phase::Connecting && broken.kind.is_some() {
            let url = target(&self.targets, &self.servers, index).map_or_else(String::new, |target| target.url.clone());
            return Err(unreachable(&url, &broken.why));
        }
        if let Some(lane) = self.lanes.get_mut(index) {
            lane.drop_flights(&mut self.fleet, broken, now, |flight| self.rota.done(flight));
        } else if let Some(lane) = self.watch_lanes.get_mut(index - self.lanes.len()) {
            lane.reset(&mut self.fleet, broken);
        }
        self.move_away(index);
        let Some(link) = link(&mut self.lanes, &mut self.watch_lanes, index) else { return Ok(()) };
        link.close(self.reactor.registry(), now);
        // Retries at once, unless the previous attempt failed.
        if link.is_due(now) { self.connect(index, now) } else { Ok(()) }
    }

    /// Moves a broken connection to a random other server. So the connections of a stopped server spread over all other
    /// servers.
    fn move_away(&mut self, index: usize) {
        let others = self.targets.len() - 1;
        if let Some(server) = self.servers.get_mut(index).filter(|_| others > 0) {
            *server = (*server + 1 + self.rng.usize(..others)) % self.targets.len();
            self.fleet.stats.moves += 1;
        }
    }

    /// Handles timeouts, opens new connections, begins the next phase, and draws the progress line.
    fn keep_house(&mut self, now: u64) -> Result<(), String> {
        for index in 0..self.lanes.len() + self.watch_lanes.len() {
            let done = |flight| self.rota.done(flight);
            // A request may wait for the end of a pause, so its connection becomes runnable.
            let (outcome, waits) = match self.lanes.get_mut(index) {
                Some(lane) => (lane.expire(&mut self.fleet, now, done), lane.has_waiting()),
                None => match self.watch_lanes.get_mut(index - self.lanes.len()) {
                    Some(lane) => (lane.expire(&mut self.fleet, now), true),
                    None => continue,
                },
            };
            if let Err(broken) = outcome {
                self.break_lane(index, &broken, now)?;
            } else if link(&mut self.lanes, &mut self.watch_lanes, index).is_some_and(|link| link.is_due(now)) {
                self.connect(index, now)?;
            } else if waits {
                self.reactor.set_runnable(index);
            }
        }
        if let Some(next) = self.next_phase(now) {
            self.enter(next, now);
        }
        self.probes.run(&self.targets, self.reactor.registry(), &mut self.scratch, now);
        let (stage, violations) = (self.stage(now), self.fleet.checker.count());
        self.timeline.look(&mut self.fleet.recorder, stage, violations, self.probes.share(now), now);
        Ok(())
    }

    /// Returns the stage of the run, for the progress line.
    fn stage(&self, now: u64) -> Stage {
        let (since, settling_ns, measured_ns) = (self.phase_since, self.settling_ns(), nanos(self.args.duration));
        let (part, ends_at) = match self.phase {
            Phase::Creating => (Some((self.rota.started().into(), self.args.nodes.into())), None),
            Phase::Settling => (Some((now - since, settling_ns)), Some(since + settling_ns + measured_ns)),
            Phase::Measuring => (Some((now - since, measured_ns)), Some(since + measured_ns)),
            Phase::Connecting | Phase::Finishing | Phase::Draining => (None, None),
        };
        Stage { name: self.phase.name(), is_measured: self.phase == Phase::Measuring, part, ends_at }
    }

    fn connect(&mut self, index: usize, now: u64) -> Result<(), String> {
        let Some(link) = link(&mut self.lanes, &mut self.watch_lanes, index) else { return Ok(()) };
        let Some(target) = target(&self.targets, &self.servers, index) else { return Ok(()) };
        self.fleet.stats.connections += 1;
        match link.open(target, self.reactor.registry(), Token(index), now) {
            Ok(()) => Ok(()),
            Err(error) => {
                let broken = Broken { kind: Some(ErrorKind::Reset), why: error.to_string() };
                self.break_lane(index, &broken, now)
            }
        }
    }

    /// Returns the next phase, if the present phase is over.
    fn next_phase(&self, now: u64) -> Option<Phase> {
        let in_phase = now - self.phase_since;
        let stop = self.interrupted.load(Ordering::Relaxed) && self.phase < Phase::Finishing;
        let is_ready = || {
            self.lanes.iter().all(|lane| lane.link.is_ready()) && self.watch_lanes.iter().all(WatchLane::is_watching)
        };
        let next = match self.phase {
            _ if stop => Phase::Finishing,
            Phase::Connecting if is_ready() => Phase::Creating,
            Phase::Creating if self.rota.started() == self.args.nodes => Phase::Settling,
            Phase::Settling if in_phase >= self.settling_ns() => Phase::Measuring,
            Phase::Measuring if in_phase >= nanos(self.args.duration) => Phase::Finishing,
            Phase::Finishing if in_phase >= TIMEOUT_NS || self.is_done() => Phase::Draining,
            _ => return None,
        };
        Some(next)
    }

    fn enter(&mut self, next: Phase, now: u64) {
        if self.phase == Phase::Creating {
            self.results.creating = Duration::from_nanos(now - self.phase_since);
        }
        let pids = &self.args.told.pid;
        let exact_now = || self.reactor.now();
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
                // Without a measured time, no due requests remain to be sent.
                self.rota.end(if is_measured { self.fleet.recorder.window().end } else { 0 });
            }
            Phase::Draining => {
                for lane in &mut self.lanes {
                    if lane.abandon_all(&mut self.fleet, |flight| self.rota.done(flight)) {
                        lane.link.close(self.reactor.registry(), now);
                    }
                }
                self.rota.abandon(now, |node, duty, due| {
                    if let Some(flight) = begin(&mut self.fleet, node, duty, due) {
                        self.fleet.abandon(flight);
                    }
                });
            }
        }
        self.phase = next;
        self.phase_since = now;
        self.reactor.set_all_runnable();
    }

    /// Returns the length of the phase Settling, in nanoseconds: one period, in which every node renews once. Without a
    /// schedule (`--max`), the length is fixed.
    fn settling_ns(&self) -> u64 {
        if self.args.max { SETTLING_MAX_NS.min(nanos(self.args.duration)) } else { nanos(self.args.period) }
    }

    /// Whether no request is in flight, and no due request remains to be sent.
    fn is_done(&self) -> bool {
        self.lanes.iter().all(Lane::is_idle) && !self.rota.is_owed()
    }

    fn is_drained(&self) -> bool {
        self.fleet.checker.watchers_are_level() || self.reactor.now() - self.phase_since >= DRAIN_NS
    }
}

/// With `--max`, adds requests to a lane up to its maximum number of requests in flight.
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

/// Returns the request of a node's duty that was due at `due`. Returns `None` if a renewal of the node is in progress.
fn begin(fleet: &mut Fleet, node: u32, duty: Duty, due: u64) -> Option<Flight> {
    match duty {
        Duty::Read => Some(Fleet::begin_read(node, due)),
        Duty::Renew => fleet.begin_renewal(node, due),
    }
}

/// Returns the connection with this index. The watch lanes come after the lanes.
fn link<'a>(lanes: &'a mut [Lane], watch_lanes: &'a mut [WatchLane], index: usize) -> Option<&'a mut dyn Connect> {
    let lanes_len = lanes.len();
    if let Some(lane) = lanes.get_mut(index) {
        return Some(&mut lane.link);
    }
    watch_lanes.get_mut(index.checked_sub(lanes_len)?).map(|lane| &mut lane.link as &mut dyn Connect)
}

/// Returns the server of the connection with this index.
fn target<'a>(targets: &'a [Target], servers: &[usize], index: usize) -> Option<&'a Target> {
    targets.get(*servers.get(index)?)
}

/// Returns the URLs of all servers, separated by commas.
fn urls(targets: &[Target]) -> String {
    targets.iter().map(|target| target.url.as_str()).collect::<Vec<_>>().join(",")
}

/// Returns the message for the user if a run cannot begin.
fn unreachable(url: &str, why: &str) -> String {
    format!("cannot reach {url}: {why}")
}

/// Interval between checks of timeouts and phases, in nanoseconds.
const HOUSEKEEPING_NS: u64 = 50_000_000;
/// Length of the phase Settling with `--max`, in nanoseconds.
const SETTLING_MAX_NS: u64 = 2_000_000_000;
