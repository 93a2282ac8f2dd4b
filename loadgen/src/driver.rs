//! The turn of the generator's loop, and the phases of a run.
//!
//! One turn: wait → note readiness → fire what is due → receive → feed → send → housekeeping (timeouts, new connections,
//! phases, progress). The phases:
//!
//! ```text
//!   Connecting ─▶ Creating ─▶ Settling ─▶ Measuring ─▶ Finishing ─▶ Draining ─▶ results
//!   all ready,    each node   the load,   the load,    no more      the watchers
//!   watches on    its Lease   uncounted   counted      load         catch up
//! ```
//!
//! A node's renewals go over one connection, its reads over another, so that a read shows what another connection wrote.

use crate::args::Args;
use crate::fleet::{Fleet, Flight};
use crate::http::Broken;
use crate::lane::Lane;
use crate::link::{Connect, TIMEOUT_NS};
use crate::node::Step;
use crate::progress::Progress;
use crate::schedule::Schedule;
use crate::stats::ErrorKind;
use crate::target::Target;
use crate::wake::Wake;
use crate::watch_lane::WatchLane;
use mio::{Events, Poll, Token};
use process_account::Memory;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant, SystemTime};

/// A run under way.
#[derive(Debug)]
pub(crate) struct Driver {
    args: Args,
    target: Target,
    poll: Poll,
    wake: Wake,
    start: Instant,
    fleet: Fleet,
    lanes: Vec<Lane>,
    watch_lanes: Vec<WatchLane>,
    schedule: Schedule,
    rng: fastrand::Rng,
    phase: Phase,
    phase_since: u64,
    /// For each lane, how far it has come in its nodes: the next is node `lane + ring * lanes`.
    rings: Vec<u32>,
    /// For each lane, with --max, the reads that are owed for the renewals made.
    reads_owed: Vec<f64>,
    /// Nodes whose first renewal has ended.
    started: u32,
    /// What each lane and watch lane still has to do this turn.
    runnable: Vec<usize>,
    is_runnable: Vec<bool>,
    results: Timing,
    cpu_at_window: Duration,
    server_cpu_at_window: Option<Duration>,
    interrupted: Arc<AtomicBool>,
    progress: Progress,
    next_housekeeping: u64,
    /// When the schedule was looked at last.
    last_fire: u64,
    scratch: Vec<u8>,
    fired: Vec<(u32, u64)>,
}

/// The phases of a run, in their order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Phase {
    Connecting,
    Creating,
    Settling,
    Measuring,
    Finishing,
    Draining,
}

/// How long things took.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Timing {
    /// Until every node had its Lease.
    pub(crate) creating: Duration,
    /// What was measured.
    pub(crate) measured: Duration,
    /// The generator's own processor time in it.
    pub(crate) cpu: Duration,
    /// That of the server's processes, if they were named.
    pub(crate) server_cpu: Option<Duration>,
    /// Their memory at the end of it.
    pub(crate) server_memory: Option<Memory>,
    /// The run was ended early.
    pub(crate) interrupted: bool,
}

/// A run that is over.
#[derive(Debug)]
pub(crate) struct Results {
    pub(crate) args: Args,
    pub(crate) url: String,
    pub(crate) timing: Timing,
    pub(crate) fleet: Fleet,
}

impl Driver {
    /// A run that has not begun. Errors are sentences for the user.
    pub(crate) fn new(args: Args, target: Target, interrupted: Arc<AtomicBool>) -> Result<Self, String> {
        let poll = Poll::new().map_err(|e| format!("cannot make a poll: {e}"))?;
        let lanes_len = args.connections() as usize;
        let watchers_len = args.watchers as usize;
        let watch_lanes_len = args.watch_connections() as usize;
        let epoch = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).map_err(|e| e.to_string())?;
        let epoch_us = u64::try_from(epoch.as_micros()).map_err(|e| e.to_string())?;
        let wake = Wake::new(poll.registry(), Token(lanes_len + watch_lanes_len));
        let wake = wake.map_err(|e| format!("no timer: {e}"))?;
        let fleet = Fleet::new(&args.namespace, args.nodes, watchers_len, epoch_us);
        let progress = Progress::new(&args);
        Ok(Self {
            poll,
            wake,
            start: Instant::now(),
            fleet,
            lanes: std::iter::repeat_with(|| Lane::new(args.streams() as usize)).take(lanes_len).collect(),
            watch_lanes: (0..watchers_len)
                .step_by(args.watchers_per_connection() as usize)
                .map(|first| {
                    let after = watchers_len.min(first + args.watchers_per_connection() as usize);
                    WatchLane::new(first..after, &args.namespace)
                })
                .collect(),
            schedule: Schedule::new(args.nodes as usize * 2),
            rng: fastrand::Rng::new(),
            phase: Phase::Connecting,
            phase_since: 0,
            rings: vec![0; lanes_len],
            reads_owed: vec![0.0; lanes_len],
            started: 0,
            runnable: Vec::new(),
            is_runnable: vec![false; lanes_len + watch_lanes_len],
            results: Timing::default(),
            cpu_at_window: Duration::ZERO,
            server_cpu_at_window: None,
            interrupted,
            progress,
            next_housekeeping: 0,
            last_fire: 0,
            scratch: vec![0; SCRATCH_BYTES],
            fired: Vec::new(),
            args,
            target,
        })
    }

    /// Runs to the end. Errors are sentences for the user.
    pub(crate) fn run(mut self) -> Result<Results, String> {
        let mut events = Events::with_capacity(1024);
        while !(self.phase == Phase::Draining && self.drained()) {
            self.turn(&mut events)?;
        }
        self.fleet.checker.finish(&self.fleet.nodes);
        self.progress.finish();
        let now = self.now();
        for lane in &mut self.lanes {
            lane.link.close(self.poll.registry(), now);
        }
        Ok(Results { args: self.args, url: self.target.url, timing: self.results, fleet: self.fleet })
    }

    fn turn(&mut self, events: &mut Events) -> Result<(), String> {
        self.wait(events).map_err(|e| format!("poll: {e}"))?;
        for event in events.iter() {
            let Token(index) = event.token();
            if let Some(link) = link(&mut self.lanes, &mut self.watch_lanes, index) {
                link.handle_readiness(event);
                self.set_runnable(index);
            }
        }
        let now = self.now();
        self.fire(now);
        let mut runnable = std::mem::take(&mut self.runnable);
        // Data before watches, so that an acknowledgement is read before the event of its write if both are there.
        runnable.sort_unstable();
        for &index in &runnable {
            if let Some(flag) = self.is_runnable.get_mut(index) {
                *flag = false;
            }
        }
        for index in runnable.drain(..) {
            if index < self.lanes.len() { self.run_lane(index)? } else { self.run_watch_lane(index)? }
        }
        if self.runnable.is_empty() {
            self.runnable = runnable;
        }
        let now = self.now();
        if now >= self.next_housekeeping {
            self.next_housekeeping = now + HOUSEKEEPING_NS;
            self.keep_house(now)?;
        }
        Ok(())
    }

    /// Waits for readiness, the next due time, or the next housekeeping.
    fn wait(&mut self, events: &mut Events) -> io::Result<()> {
        let now = self.now();
        let until =
            if self.runnable.is_empty() { self.schedule.next_due(self.next_housekeeping.max(now)) } else { now };
        let timeout = self.wake.timeout_until(until.saturating_sub(now))?;
        match self.poll.poll(events, Some(timeout)) {
            Err(error) if error.kind() != io::ErrorKind::Interrupted => Err(error),
            _ => Ok(()),
        }
    }

    /// Hands what is due to the lanes.
    fn fire(&mut self, now: u64) {
        if !matches!(self.phase, Phase::Settling | Phase::Measuring) {
            return;
        }
        let mut fired = std::mem::take(&mut self.fired);
        self.schedule.fire(now, &mut fired);
        for (timer, due) in fired.drain(..) {
            let node = timer / 2;
            let flight =
                if timer % 2 == 0 { self.fleet.begin_renewal(node, due) } else { Some(Fleet::begin_read(node, due)) };
            let Some(flight) = flight else { continue };
            let index = self.lane_of(flight.node, flight.step);
            let Some(lane) = self.lanes.get_mut(index) else { continue };
            // A timer that was armed since the last look, for a time before it, had to wait for the server and not for us.
            self.fleet.stats.taken_up(due, now - due.max(self.last_fire).min(now), lane.room() == 0);
            lane.push(flight);
            self.set_runnable(index);
        }
        self.fired = fired;
        self.last_fire = now;
    }

    /// The lane of a node's writes, or the one after it for reads.
    fn lane_of(&self, node: u32, step: Step) -> usize {
        (node as usize + usize::from(step == Step::Read)) % self.lanes.len()
    }

    /// Receives, feeds and sends on one shared connection.
    fn run_lane(&mut self, index: usize) -> Result<(), String> {
        let now = self.now();
        let Some(lane) = self.lanes.get_mut(index) else { return Ok(()) };
        let (schedule, rng, started) = (&mut self.schedule, &mut self.rng, &mut self.started);
        let rearm = Rearm { phase: self.phase, args: &self.args };
        let done = |flight: Flight| rearm.done(schedule, rng, started, flight);
        let origin = &self.target.origin;
        let outcome = match lane.receive(&mut self.fleet, origin, &mut self.scratch, now, done) {
            Ok(more) => {
                if more {
                    self.set_runnable(index);
                }
                self.feed(index, now);
                let Some(lane) = self.lanes.get_mut(index) else { return Ok(()) };
                lane.send(&mut self.fleet, &self.target.origin, now)
            }
            Err(broken) => Err(broken),
        };
        outcome.or_else(|broken| self.break_lane(index, &broken, now))
    }

    /// Without a schedule, gives a lane as many requests as may be in flight.
    fn feed(&mut self, index: usize, now: u64) {
        let loaded = self.args.max && matches!(self.phase, Phase::Settling | Phase::Measuring);
        if self.phase != Phase::Creating && !loaded {
            return;
        }
        let (Some(lane), Some(ring), Some(reads_owed)) =
            (self.lanes.get_mut(index), self.rings.get_mut(index), self.reads_owed.get_mut(index))
        else {
            return;
        };
        let lanes_len = u32::try_from(self.is_runnable.len() - self.watch_lanes.len()).unwrap_or(u32::MAX);
        let first = u32::try_from(index).unwrap_or(u32::MAX);
        let ring_len = (self.args.nodes - first).div_ceil(lanes_len);
        let mut busy = 0;
        while lane.link.is_ready() && lane.room() > 0 && busy < ring_len {
            if loaded && *ring >= ring_len {
                *ring = 0;
            }
            if *ring >= ring_len {
                return;
            }
            let node = first + *ring * lanes_len;
            if loaded && *reads_owed >= 1.0 {
                *reads_owed -= 1.0;
                lane.push(Fleet::begin_read(node, now));
                continue;
            }
            *ring += 1;
            match self.fleet.begin_renewal(node, now) {
                Some(flight) => {
                    lane.push(flight);
                    *reads_owed += if loaded { self.args.reads } else { 0.0 };
                }
                None => busy += 1,
            }
        }
    }

    /// Receives and sends on a watcher's connection.
    fn run_watch_lane(&mut self, index: usize) -> Result<(), String> {
        let now = self.now();
        let Some(lane) = self.watch_lanes.get_mut(index - self.lanes.len()) else { return Ok(()) };
        let known = self.fleet.checker.acknowledged_max();
        let timeout_seconds = self.rng.u32(300..600);
        let origin = &self.target.origin;
        let outcome = lane.receive(&mut self.fleet, origin, &mut self.scratch, now);
        let outcome = outcome.and_then(|more| lane.send(origin, known, timeout_seconds, now).map(|()| more));
        match outcome {
            Ok(true) => self.set_runnable(index),
            Ok(false) => {}
            Err(broken) => self.break_lane(index, &broken, now)?,
        }
        Ok(())
    }

    /// A connection is of no more use. Before the run has begun that ends it; later there is another attempt.
    #[cold]
    fn break_lane(&mut self, index: usize, broken: &Broken, now: u64) -> Result<(), String> {
        if self.phase == Phase::Connecting && broken.kind.is_some() {
            return Err(format!("cannot reach {}: {}", self.target.url, broken.why));
        }
        let rearm = Rearm { phase: self.phase, args: &self.args };
        let (schedule, rng, started) = (&mut self.schedule, &mut self.rng, &mut self.started);
        let done = |flight: Flight| rearm.done(schedule, rng, started, flight);
        if let Some(lane) = self.lanes.get_mut(index) {
            lane.drop_flights(&mut self.fleet, broken, now, done);
        } else if let Some(lane) = self.watch_lanes.get_mut(index - self.lanes.len()) {
            lane.reset(&mut self.fleet, broken);
        }
        let Some(link) = link(&mut self.lanes, &mut self.watch_lanes, index) else { return Ok(()) };
        link.close(self.poll.registry(), now);
        // The next attempt at once, unless the one before was in vain.
        if link.is_due(now) { self.connect(index, now) } else { Ok(()) }
    }

    /// Timeouts, new connections, phases, progress.
    fn keep_house(&mut self, now: u64) -> Result<(), String> {
        for index in 0..self.is_runnable.len() {
            let rearm = Rearm { phase: self.phase, args: &self.args };
            let (schedule, rng, started) = (&mut self.schedule, &mut self.rng, &mut self.started);
            let done = |flight: Flight| rearm.done(schedule, rng, started, flight);
            // What waits may have been told to wait before it is sent.
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
                self.set_runnable(index);
            }
        }
        self.advance_phase(now);
        self.progress.show(self.phase, now - self.phase_since, self.started, &self.fleet.stats);
        Ok(())
    }

    fn connect(&mut self, index: usize, now: u64) -> Result<(), String> {
        let Some(link) = link(&mut self.lanes, &mut self.watch_lanes, index) else { return Ok(()) };
        self.fleet.stats.connections += 1;
        match link.open(&self.target, self.poll.registry(), Token(index), now) {
            Ok(()) => Ok(()),
            Err(error) => {
                let broken = Broken { kind: Some(ErrorKind::Reset), why: error.to_string() };
                self.break_lane(index, &broken, now)
            }
        }
    }

    /// Goes on to the next phase if this one is over.
    fn advance_phase(&mut self, now: u64) {
        let in_phase = now - self.phase_since;
        let stop = self.interrupted.load(Ordering::Relaxed) && self.phase < Phase::Finishing;
        let next = match self.phase {
            _ if stop => Phase::Finishing,
            Phase::Connecting => {
                let ready = self.lanes.iter().all(|lane| lane.link.is_ready())
                    && self.watch_lanes.iter().all(WatchLane::is_watching);
                if !ready {
                    return;
                }
                Phase::Creating
            }
            Phase::Creating if self.started == self.args.nodes => Phase::Settling,
            Phase::Settling if in_phase >= self.settling_ns() => Phase::Measuring,
            Phase::Measuring if now >= self.fleet.stats.window.end => Phase::Finishing,
            Phase::Finishing if in_phase >= TIMEOUT_NS || self.lanes.iter().all(Lane::is_idle) => Phase::Draining,
            _ => return,
        };
        match (self.phase, next) {
            (Phase::Creating, Phase::Settling) => {
                self.results.creating = Duration::from_nanos(in_phase);
                self.rings.fill(0);
                if !self.args.max {
                    self.arm_all(now);
                }
            }
            (_, Phase::Measuring) => {
                self.fleet.stats.window = now..now + nanos(self.args.duration);
                self.cpu_at_window = cpu_time();
                self.server_cpu_at_window = server_cpu_time(&self.args.told.pid);
            }
            (before, Phase::Finishing) => {
                self.results.interrupted = stop;
                let window = &mut self.fleet.stats.window;
                if before == Phase::Measuring {
                    window.end = window.end.min(now);
                    self.results.measured = Duration::from_nanos(window.end - window.start);
                    self.results.cpu = cpu_time().saturating_sub(self.cpu_at_window);
                    let pids = &self.args.told.pid;
                    self.results.server_cpu = server_cpu_time(pids)
                        .zip(self.server_cpu_at_window)
                        .map(|(now, before)| now.saturating_sub(before));
                    self.results.server_memory = process_account::memory(pids).filter(|_| !pids.is_empty());
                }
            }
            (_, Phase::Draining) => {
                for lane in &mut self.lanes {
                    if lane.abandon_all(&mut self.fleet) {
                        lane.link.close(self.poll.registry(), now);
                    }
                }
            }
            _ => {}
        }
        self.phase = next;
        self.phase_since = now;
        for index in 0..self.is_runnable.len() {
            self.set_runnable(index);
        }
    }

    /// Arms every node's timers, at random within its first period.
    fn arm_all(&mut self, now: u64) {
        let period = nanos(self.args.period);
        for node in 0..self.args.nodes {
            self.schedule.arm(node * 2, now + self.rng.u64(0..period));
            if let Some(period) = self.args.read_period_ns() {
                self.schedule.arm(node * 2 + 1, now + self.rng.u64(0..period));
            }
        }
    }

    /// With a schedule one period, in which every node renews once; without, a while.
    fn settling_ns(&self) -> u64 {
        if self.args.max { SETTLING_MAX_NS.min(nanos(self.args.duration)) } else { nanos(self.args.period) }
    }

    fn drained(&self) -> bool {
        self.fleet.checker.watchers_are_level() || self.now() - self.phase_since >= DRAIN_NS
    }

    fn set_runnable(&mut self, index: usize) {
        if let Some(flag) = self.is_runnable.get_mut(index)
            && !std::mem::replace(flag, true)
        {
            self.runnable.push(index);
        }
    }

    fn now(&self) -> u64 {
        nanos(self.start.elapsed())
    }
}

/// What follows when a flight is over: its timer is armed again, from when it was due.
struct Rearm<'a> {
    phase: Phase,
    args: &'a Args,
}

impl Rearm<'_> {
    fn done(&self, schedule: &mut Schedule, rng: &mut fastrand::Rng, started: &mut u32, flight: Flight) {
        match self.phase {
            Phase::Creating => *started += 1,
            Phase::Settling | Phase::Measuring if !self.args.max => {
                let is_read = flight.step == Step::Read;
                let period = if is_read { self.args.read_period_ns() } else { Some(nanos(self.args.period)) };
                let Some(period) = period else { return };
                let jitter = rng.u64(0..=period / JITTER_FRACTION);
                schedule.arm(flight.node * 2 + u32::from(is_read), flight.due + period + jitter);
            }
            Phase::Connecting | Phase::Settling | Phase::Measuring | Phase::Finishing | Phase::Draining => {}
        }
    }
}

/// The connection of a lane or, after those, of a watch lane.
fn link<'a>(lanes: &'a mut [Lane], watch_lanes: &'a mut [WatchLane], index: usize) -> Option<&'a mut dyn Connect> {
    let lanes_len = lanes.len();
    if let Some(lane) = lanes.get_mut(index) {
        return Some(&mut lane.link);
    }
    watch_lanes.get_mut(index.checked_sub(lanes_len)?).map(|lane| &mut lane.link as &mut dyn Connect)
}

fn nanos(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

/// Processor time that this process has used.
fn cpu_time() -> Duration {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    Duration::try_from(time).unwrap_or_default()
}

/// Processor time that these processes have used, if there are any.
fn server_cpu_time(pids: &[u32]) -> Option<Duration> {
    if pids.is_empty() { None } else { process_account::cpu_ns(pids).map(Duration::from_nanos) }
}

/// Between two looks at timeouts and phases.
const HOUSEKEEPING_NS: u64 = 50_000_000;
/// Time for the watchers to catch up at the end.
const DRAIN_NS: u64 = 5_000_000_000;
/// Time with the load on before the measurement, where there is no period.
const SETTLING_MAX_NS: u64 = 2_000_000_000;
/// A kubelet prolongs its period by up to 0.04 of it.
const JITTER_FRACTION: u64 = 25;
/// One read of ciphertext.
const SCRATCH_BYTES: usize = 256 * 1024;
