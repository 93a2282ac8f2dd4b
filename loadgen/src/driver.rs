//! The event loop of a run, for any [`Workload`]. A workload decides what its connections send, checks the responses,
//! and has its own phases.
//!
//! One turn of the event loop: wait → note readiness → start due requests → receive and send → housekeeping (timeouts,
//! new connections, phases, progress).

use crate::flags::ToldArgs;
use crate::link::{Connect, SCRATCH_BYTES};
use crate::origin::Origin;
use crate::probe::Probes;
use crate::reactor::Reactor;
use crate::recorder::Recorder;
use crate::stage::Stage;
use crate::summary::Outcome;
use crate::target::Target;
use crate::timeline::{History, Timeline};
use mio::Token;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// A kind of load. Its connections are numbered from 0. Errors are sentences for the user, and end the run.
pub(crate) trait Workload: Sized {
    /// The flags of this kind of load.
    type Args;
    /// The results of a finished run.
    type Results: Outcome;

    /// Interval of housekeeping, in nanoseconds.
    const HOUSEKEEPING_NS: u64;

    /// Returns the flags about the outputs of the run.
    fn told(args: &Self::Args) -> &ToldArgs;

    /// Returns the server of each connection, as an index below `servers_len`.
    fn spread(args: &Self::Args, servers_len: usize) -> Vec<usize>;

    /// Creates the load, without open connections. `epoch_us` is the start of the run, in microseconds since the Unix
    /// epoch.
    fn new(args: Self::Args, epoch_us: u64) -> Self;

    /// Returns the connection with this number, open or not; `None` if the load has no such connection.
    fn link(&mut self, index: usize) -> Option<&mut dyn Connect>;

    /// Returns the latencies and errors of the run.
    fn recorder(&mut self) -> &mut Recorder;

    /// Returns the due time of the next request, or `horizon` if no request is due before it. Both are in nanoseconds
    /// since the start of the run.
    fn next_due(&self, horizon: u64) -> u64;

    /// Starts the requests that are due. A load whose [`serve`](Self::serve) starts them needs no own implementation.
    fn fire(&mut self, _io: &mut Io) {}

    /// Receives and sends on the connections in `runnable`.
    fn serve(&mut self, io: &mut Io, runnable: &mut [usize]) -> Result<(), String>;

    /// Whether the present phase must end now. The driver then does the housekeeping at once, so that the length of the
    /// phase is exact.
    fn must_end_phase(&self, now: u64) -> bool;

    /// Handles timeouts, opens new connections, and begins the next phase if the present phase is over.
    fn keep_house(&mut self, io: &mut Io, now: u64) -> Result<(), String>;

    /// Returns the stage of the run, for the progress line.
    fn stage(&self, now: u64) -> Stage;

    /// Returns the number of violations so far.
    fn violations(&self) -> u64;

    /// Whether the run has ended.
    fn is_over(&self, now: u64) -> bool;

    /// Makes the last checks of the run. Counts requests that still have no response as errors.
    fn end(&mut self, io: &mut Io);

    /// Returns the results. `url` names all servers.
    fn into_results(self, url: String, history: History) -> Self::Results;
}

/// The event queue, the servers and the buffer that a workload needs for its connections.
#[derive(Debug)]
pub(crate) struct Io {
    pub(crate) reactor: Reactor,
    /// Servers, at least one.
    targets: Vec<Target>,
    /// For each connection, the index of its server in `targets`.
    servers: Vec<usize>,
    /// Buffer for one read from a socket. All connections share this buffer.
    scratch: Vec<u8>,
    /// Whether the user wants the run to end.
    interrupted: Arc<AtomicBool>,
}

impl Io {
    /// Whether the user wants the run to end.
    pub(crate) fn is_interrupted(&self) -> bool {
        self.interrupted.load(Ordering::Relaxed)
    }

    fn server(&self, index: usize) -> usize {
        self.servers.get(index).copied().unwrap_or_default()
    }

    /// Returns the server of the connection with this number.
    pub(crate) fn target(&self, index: usize) -> &Target {
        &self.targets[self.server(index)]
    }

    /// Returns what all requests to the connection's server have in common, and a buffer for the connection's input.
    pub(crate) fn origin_and_scratch(&mut self, index: usize) -> (&Origin, &mut [u8]) {
        let server = self.server(index);
        (&self.targets[server].origin, &mut self.scratch)
    }

    /// Begins to open the connection with this number.
    pub(crate) fn open(&self, link: &mut dyn Connect, index: usize, now: u64) -> io::Result<()> {
        link.open(self.target(index), self.reactor.registry(), Token(index), now)
    }

    /// Assigns a random other server to a connection, for its next attempt to connect. So the connections of a stopped
    /// server spread over all other servers. Returns false if there is no other server.
    pub(crate) fn move_away(&mut self, index: usize, rng: &mut fastrand::Rng) -> bool {
        let others = self.targets.len() - 1;
        let Some(server) = self.servers.get_mut(index).filter(|_| others > 0) else { return false };
        *server = (*server + 1 + rng.usize(..others)) % self.targets.len();
        true
    }

    /// Returns the URLs of all servers, separated by commas.
    pub(crate) fn urls(&self) -> String {
        self.targets.iter().map(|target| target.url.as_str()).collect::<Vec<_>>().join(",")
    }
}

/// A run in progress.
#[derive(Debug)]
pub(crate) struct Driver<W> {
    io: Io,
    load: W,
    timeline: Timeline,
    probes: Probes,
    /// When the next housekeeping is due, in nanoseconds since the start of the run.
    next_housekeeping: u64,
}

impl<W: Workload> Driver<W> {
    /// Prepares a run.
    ///
    /// # Errors
    /// The system provides no poll or no timer. The error is a sentence for the user.
    pub(crate) fn new(
        args: W::Args,
        targets: Vec<Target>,
        interrupted: Arc<AtomicBool>,
        mut timeline: Timeline,
    ) -> Result<Self, String> {
        let servers = W::spread(&args, targets.len());
        let probes = Probes::new(W::told(&args).probes_len(targets.len()), servers.len());
        let reactor = Reactor::new(servers.len() + probes.len())?;
        let mut load = W::new(args, reactor.epoch_us);
        timeline.begin(load.recorder(), reactor.epoch_us);
        let io = Io { reactor, targets, servers, scratch: vec![0; SCRATCH_BYTES], interrupted };
        Ok(Self { io, load, timeline, probes, next_housekeeping: 0 })
    }

    /// Runs all phases.
    ///
    /// # Errors
    /// The load cannot continue. The error is a sentence for the user.
    pub(crate) fn run(mut self) -> Result<W::Results, String> {
        let mut runnable = Vec::new();
        while !self.load.is_over(self.io.reactor.now()) {
            self.turn(&mut runnable)?;
        }
        self.load.end(&mut self.io);
        let history = self.timeline.finish(self.load.recorder(), self.io.reactor.now());
        Ok(self.load.into_results(self.io.urls(), history))
    }

    fn turn(&mut self, runnable: &mut Vec<usize>) -> Result<(), String> {
        let until = self.load.next_due(self.next_housekeeping);
        self.io.reactor.wait(until, |index, event| match self.load.link(index) {
            Some(link) => link.handle_readiness(event),
            None => self.probes.handle_readiness(index, event),
        })?;
        self.load.fire(&mut self.io);
        self.io.reactor.take_runnable(runnable);
        self.load.serve(&mut self.io, runnable)?;
        let now = self.io.reactor.now();
        if now >= self.next_housekeeping || self.load.must_end_phase(now) {
            self.next_housekeeping = now + W::HOUSEKEEPING_NS;
            self.load.keep_house(&mut self.io, now)?;
            let Io { reactor, targets, scratch, .. } = &mut self.io;
            self.probes.run(targets, reactor.registry(), scratch, now);
            let (stage, violations) = (self.load.stage(now), self.load.violations());
            self.timeline.look(self.load.recorder(), stage, violations, self.probes.share(now), now);
        }
        Ok(())
    }
}
