//! The event loop of a bench.
//!
//! One turn of the event loop: wait → note readiness → receive on ready connections → fill lanes → send → housekeeping
//! (idle connections, a silent server, phases).

use super::accounts::Accounts;
use super::answers::Work;
use super::args::{BenchArgs, Verb};
use super::connections::{Connections, Role};
use super::feed::{Feed, FeedContext};
use super::phase::{Course, Phase};
use super::report::Report;
use super::transitions;
use super::watch::{Heard, watch_target};
use crate::http::{Broken, Verdict};
use crate::link::{Connect as _, SCRATCH_BYTES, TIMED_OUT, TIMEOUT_NS};
use crate::probe::Probes;
use crate::reactor::Reactor;
use crate::target::Target;
use crate::timeline::Timeline;
use mio::Token;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// A bench, with all that its event loop needs.
#[derive(Debug)]
pub(crate) struct Bench {
    args: BenchArgs,
    target: Target,
    reactor: Reactor,
    connections: Connections,
    course: Course,
    feed: Feed,
    work: Work,
    heard: Heard,
    accounts: Accounts,
    interrupted: Arc<AtomicBool>,
    timeline: Timeline,
    probes: Probes,
    next_housekeeping: u64,
    /// When input was last received on any connection, or a connection was opened, in nanoseconds since the start of
    /// the run.
    heard_at: u64,
    scratch: Vec<u8>,
}

impl Bench {
    /// Prepares a bench. Errors are sentences for the user.
    pub(crate) fn new(
        args: BenchArgs,
        target: Target,
        interrupted: Arc<AtomicBool>,
        mut timeline: Timeline,
    ) -> Result<Self, String> {
        let accounts = Accounts::new(&args.told.pid);
        let connections = Connections::new(&args);
        let mut work = Work::new(&args);
        let probes = Probes::new(args.told.probes_len(1), connections.len());
        let reactor = Reactor::new(connections.len() + probes.len())?;
        timeline.begin(&mut work.tally.recorder, reactor.epoch_us());
        Ok(Self {
            connections,
            course: Course::new(&args),
            feed: Feed::new(&args, reactor.epoch_us()),
            work,
            heard: Heard::new(&args.namespace),
            accounts,
            interrupted,
            timeline,
            probes,
            next_housekeeping: 0,
            heard_at: 0,
            scratch: vec![0; SCRATCH_BYTES],
            reactor,
            args,
            target,
        })
    }

    /// Runs all phases of the bench. Errors are sentences for the user.
    pub(crate) fn run(mut self) -> Result<Report, String> {
        for index in 0..self.connections.lanes.len() {
            self.open(index, 0)?;
        }
        let mut runnable = Vec::new();
        while self.course.phase() != Phase::Over {
            self.turn(&mut runnable)?;
        }
        for tag in self.connections.take_in_flight() {
            self.work.abandon(tag);
        }
        self.feed.abandon(&self.course, &mut self.work.tally.recorder);
        if let Some(words) = self.connections.missing(&self.work.leases).filter(|_| self.work.watch_from() > 0) {
            self.work.tally.violated(words);
        }
        self.work.check_lists(&self.args);
        let now = self.reactor.now();
        let history = self.timeline.finish(&mut self.work.tally.recorder, now);
        Ok(Report {
            interrupted: self.interrupted.load(Ordering::Relaxed),
            url: self.target.url,
            body_bytes: self.work.leases.body_len(),
            tally: self.work.tally,
            accounts: self.accounts,
            history,
            args: self.args,
        })
    }

    fn turn(&mut self, runnable: &mut Vec<usize>) -> Result<(), String> {
        let due = self.feed.due(&self.course, &self.work.tally.recorder).unwrap_or(u64::MAX);
        self.reactor.wait(due.min(self.next_housekeeping), |index, event| match self.connections.link(index) {
            Some(link) => link.handle_readiness(event),
            None => self.probes.handle_readiness(index, event),
        })?;
        self.reactor.take_runnable(runnable);
        for &index in &*runnable {
            match self.receive(index) {
                Ok(()) => {}
                Err(broken) if broken.kind.is_none() => self.open_again(index)?,
                Err(broken) => return Err(self.words(&broken.why)),
            }
        }
        self.send(runnable).map_err(|broken| self.words(&broken.why))?;
        let now = self.reactor.now();
        // If the work of the phase Measuring is finished, the phase ends now, so that the measured time is exact.
        if now >= self.next_housekeeping || transitions::is_measured(&self.course, &self.work, &self.connections, now) {
            self.next_housekeeping = now + HOUSEKEEPING_NS;
            self.keep_house(now)?;
        }
        Ok(())
    }

    /// Receives on the connection with this number, and handles what arrived.
    fn receive(&mut self, index: usize) -> Result<(), Broken> {
        let now = self.reactor.now();
        let (origin, scratch) = (&self.target.origin, self.scratch.as_mut_slice());
        let more = match self.connections.role(index) {
            None => false,
            Some(Role::Lane(lane)) => {
                lane.receive(origin, scratch, now, |tag, told, notes| self.work.handle(tag, told, notes, now))?
            }
            Some(Role::Watchers(lane)) => {
                let more = lane.receive(origin, scratch, &mut self.heard, now)?;
                self.heard.count_into(&mut self.work.tally, &self.work.leases, now, self.reactor.epoch_us());
                more
            }
            Some(Role::Idle(link)) => {
                let more = link.receive(origin, scratch, now, |(), _| Verdict::Cancel)?;
                link.flush(origin)?;
                more
            }
        };
        if more {
            self.reactor.set_runnable(index);
        }
        if let Some(link) = self.connections.link(index) {
            self.heard_at = self.heard_at.max(link.heard_at());
        }
        Ok(())
    }

    /// Adds requests to the lanes and sends them. Sends the requests for watches on the connections in `touched`.
    fn send(&mut self, touched: &[usize]) -> Result<(), Broken> {
        let lag = self.args.lag;
        let writes_max = if lag > 0 { self.connections.events_min().saturating_add(lag) } else { u64::MAX };
        let (origin, now) = (&self.target.origin, self.reactor.now());
        let cx = FeedContext { origin, course: &self.course, writes_max, now };
        let are_all_fed = self.feed.feed(&mut self.connections.lanes, touched, &mut self.work, cx);
        if are_all_fed {
            for lane in &mut self.connections.lanes {
                lane.link.flush(origin)?;
            }
        }
        for &index in touched {
            match self.connections.role(index) {
                Some(Role::Lane(lane)) if !are_all_fed => lane.link.flush(origin)?,
                Some(Role::Watchers(lane)) => {
                    lane.send(origin, |name| watch_target(self.feed.collection(), name, self.work.watch_from()))?;
                }
                Some(Role::Lane(_) | Role::Idle(_)) | None => {}
            }
        }
        Ok(())
    }

    /// Opens idle connections, checks that the server still responds, and begins the next phase if the present phase is
    /// over.
    fn keep_house(&mut self, now: u64) -> Result<(), String> {
        if self.course.phase() == Phase::Attaching {
            while let Some(index) = self.connections.next_idle() {
                self.open(index, now)?;
            }
        }
        if self.is_silent(now) {
            let is_begun = self.course.phase() >= Phase::Attaching;
            return Err(self.words(if is_begun { "nothing was heard for 60 s" } else { TIMED_OUT }));
        }
        let stop = self.interrupted.load(Ordering::Relaxed);
        while let Some(next) = transitions::next(&self.course, &self.work, &self.connections, &self.feed, stop, now) {
            self.enter(next, now)?;
        }
        let (stage, violations) = (self.course.stage(self.work.done(), now), self.work.tally.violations());
        let targets = std::slice::from_ref(&self.target);
        self.probes.run(targets, self.reactor.registry(), &mut self.scratch, now);
        self.timeline.look(&mut self.work.tally.recorder, stage, violations, self.probes.share(now), now);
        Ok(())
    }

    /// Whether the server has sent nothing on any connection for too long.
    fn is_silent(&self, now: u64) -> bool {
        // The `nothing` bench expects no input while it measures.
        let is_quiet = self.args.verb == Verb::Nothing && self.course.phase() == Phase::Measuring;
        // In the phases before Attaching all requests are short, so their responses must arrive soon.
        let silence_ns = if self.course.phase() < Phase::Attaching { TIMEOUT_NS } else { SILENCE_NS };
        !is_quiet && now.saturating_sub(self.heard_at.max(self.course.since())) > silence_ns
    }

    fn enter(&mut self, next: Phase, now: u64) -> Result<(), String> {
        let before = self.course.phase();
        self.accounts.note(before, next, &mut self.work.tally, || self.reactor.now());
        if matches!((next, self.args.verb), (Phase::Attaching, _) | (Phase::Measuring, Verb::Resume)) {
            for index in self.connections.watch_indexes() {
                self.open(index, now)?;
            }
        }
        if matches!(next, Phase::Preparing | Phase::Asking | Phase::Writing | Phase::Measuring) {
            self.work.restart();
        }
        // The load of the warm-up continues in the measured time, without a new start. After the measured time,
        // requests that were due in it may remain to be sent.
        if (before, next) != (Phase::Warming, Phase::Measuring) && next < Phase::Draining {
            self.feed.restart(&mut self.connections.lanes, now);
        }
        self.course.enter(next, now);
        self.feed.feed_all_next();
        // Requests are added to the lanes in the next turn of the event loop, which begins at once.
        self.reactor.set_runnable(0);
        Ok(())
    }

    fn open(&mut self, index: usize, now: u64) -> Result<(), String> {
        let Some(link) = self.connections.link(index) else { return Ok(()) };
        link.open(&self.target, self.reactor.registry(), Token(index), now)
            .map_err(|e| format!("cannot reach {}: {e}", self.target.url))
    }

    /// Reconnects a lane whose connection the server closed as HTTP allows, for example after a pause. The connections
    /// of watchers and the idle connections must not be closed.
    #[cold]
    fn open_again(&mut self, index: usize) -> Result<(), String> {
        let now = self.reactor.now();
        let Some(Role::Lane(lane)) = self.connections.role(index) else {
            return Err(self.words("a watcher's or an idle connection was ended"));
        };
        lane.link.close(self.reactor.registry(), now);
        self.open(index, now)
    }

    /// Describes why the run ends early, with the first error, which is often the cause.
    #[cold]
    fn words(&self, why: &str) -> String {
        let first = self.work.tally.first().next().map(|words| format!("; the first error was {words}"));
        format!("{}: {why}, in {:?}{}", self.target.url, self.course.phase(), first.unwrap_or_default())
    }
}

/// Interval between two checks of the phase's end, in nanoseconds.
const HOUSEKEEPING_NS: u64 = 10_000_000;
/// Time without input after which the server counts as gone, in nanoseconds. A list of a million Leases comes in one
/// response, which may take long under load.
const SILENCE_NS: u64 = 60_000_000_000;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::args::{Args, Command};
    use crate::error_kind::ErrorKind;
    use crate::operation::Operation;
    use clap::Parser as _;

    #[test]
    fn silence_of_the_server_is_reported_with_the_first_error() {
        for (verb, is_silent) in [("renew", true), ("nothing", false)] {
            let words = ["loadgen", "bench", verb, "--server", "http://127.0.0.1:1", "--watchers", "1"];
            let Some(Command::Bench(args)) = Args::try_parse_from(words).expect("valid").command else { panic!() };
            let target = Target::only_of_args(&args.server, args.media_type()).expect("a target");
            let mut bench = Bench::new(*args, target, Arc::default(), Timeline::off()).expect("a bench");
            bench.course.enter(Phase::Preparing, 0);
            assert!(!bench.is_silent(TIMEOUT_NS) && bench.is_silent(TIMEOUT_NS + 1), "{verb}");
            bench.course.enter(Phase::Attaching, 0);
            assert!(!bench.is_silent(SILENCE_NS) && bench.is_silent(SILENCE_NS + 1), "{verb}");
            bench.course.enter(Phase::Measuring, 0);
            assert_eq!(bench.is_silent(SILENCE_NS + 1), is_silent);
            bench.work.tally.recorder.failed(Operation::Renew, ErrorKind::Status(500), || "x".to_owned());
            assert_eq!(bench.words("why"), "http://127.0.0.1:1: why, in Measuring; the first error was renew 500: x");
        }
    }
}
