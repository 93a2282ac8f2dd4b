//! The load of a bench, for the event loop of the driver ([`Workload`]). This module connects the other modules of a
//! bench: it opens and serves the connections, and moves the bench from phase to phase.
//!
//! In each turn of the event loop, a bench first receives on all ready connections. Then it adds requests to the lanes
//! (the connections for requests) and sends them.

use super::accounts::Accounts;
use super::answers::Work;
use super::args::{BenchArgs, Verb};
use super::connections::{Connections, Role};
use super::feed::{Feed, FeedContext};
use super::phase::{Course, Phase};
use super::report::Report;
use super::transitions;
use super::watch::{Heard, watch_target};
use crate::driver::{Io, Workload};
use crate::flags::ToldArgs;
use crate::http::{Broken, Verdict};
use crate::link::{Connect, TIMED_OUT, TIMEOUT_NS};
use crate::recorder::Recorder;
use crate::stage::Stage;
use crate::timeline::History;

/// The load of a bench.
#[derive(Debug)]
pub(crate) struct Bench {
    args: BenchArgs,
    connections: Connections,
    course: Course,
    feed: Feed,
    work: Work,
    heard: Heard,
    accounts: Accounts,
    /// When input was last received on any connection, or a connection was opened, in nanoseconds since the start of
    /// the run.
    heard_at: u64,
    is_interrupted: bool,
}

impl Workload for Bench {
    type Args = BenchArgs;
    type Results = Report;

    const HOUSEKEEPING_NS: u64 = 10_000_000;

    fn told(args: &BenchArgs) -> &ToldArgs {
        &args.told
    }

    fn spread(args: &BenchArgs, _servers_len: usize) -> Vec<usize> {
        vec![0; args.all_connections() as usize]
    }

    fn new(args: BenchArgs, epoch_us: u64) -> Self {
        Self {
            connections: Connections::new(&args),
            course: Course::new(&args),
            feed: Feed::new(&args, epoch_us),
            work: Work::new(&args),
            heard: Heard::new(&args.namespace),
            accounts: Accounts::new(&args.told.pid),
            heard_at: 0,
            is_interrupted: false,
            args,
        }
    }

    fn link(&mut self, index: usize) -> Option<&mut dyn Connect> {
        self.connections.link(index)
    }

    fn recorder(&mut self) -> &mut Recorder {
        &mut self.work.tally.recorder
    }

    fn next_due(&self, horizon: u64) -> u64 {
        self.feed.due(&self.course, &self.work.tally.recorder).map_or(horizon, |due| due.min(horizon))
    }

    fn serve(&mut self, io: &mut Io, runnable: &mut [usize]) -> Result<(), String> {
        for &index in &*runnable {
            match self.receive(io, index) {
                Ok(()) => {}
                Err(broken) if broken.kind.is_none() => self.open_again(io, index)?,
                Err(broken) => return Err(self.words(&io.urls(), &broken.why)),
            }
        }
        self.send(io, runnable).map_err(|broken| self.words(&io.urls(), &broken.why))
    }

    fn must_end_phase(&self, now: u64) -> bool {
        transitions::is_measured(&self.course, &self.work, &self.connections, now)
    }

    fn keep_house(&mut self, io: &mut Io, now: u64) -> Result<(), String> {
        if self.course.phase() == Phase::Connecting {
            for index in 0..self.connections.lanes.len() {
                if self.link(index).is_some_and(|link| link.is_due(now)) {
                    self.open(io, index, now)?;
                }
            }
        }
        if self.course.phase() == Phase::Attaching {
            while let Some(index) = self.connections.next_idle() {
                self.open(io, index, now)?;
            }
        }
        if self.is_silent(now) {
            let is_begun = self.course.phase() >= Phase::Attaching;
            let why = if is_begun { "the server sent nothing for 60 s" } else { TIMED_OUT };
            return Err(self.words(&io.urls(), why));
        }
        let stop = io.is_interrupted();
        while let Some(next) = transitions::next(&self.course, &self.work, &self.connections, &self.feed, stop, now) {
            self.enter(io, next, now)?;
        }
        Ok(())
    }

    fn stage(&self, now: u64) -> Stage {
        self.course.stage(self.work.done(), now)
    }

    fn violations(&self) -> u64 {
        self.work.tally.violations()
    }

    fn is_over(&self, _now: u64) -> bool {
        self.course.phase() == Phase::Over
    }

    fn end(&mut self, io: &mut Io) {
        self.is_interrupted = io.is_interrupted();
        for tag in self.connections.take_in_flight() {
            self.work.abandon(tag);
        }
        self.feed.abandon(&self.course, &mut self.work.tally.recorder);
        if let Some(words) = self.connections.missing(&self.work.leases).filter(|_| self.work.watch_from > 0) {
            self.work.tally.violated(words);
        }
        self.work.check_lists(&self.args);
    }

    fn into_results(self, url: String, history: History) -> Report {
        Report {
            interrupted: self.is_interrupted,
            url,
            body_bytes: self.work.leases.body_len(),
            tally: self.work.tally,
            accounts: self.accounts,
            history,
            args: self.args,
        }
    }
}

impl Bench {
    /// Receives on the connection with this number, and handles what arrived.
    fn receive(&mut self, io: &mut Io, index: usize) -> Result<(), Broken> {
        let now = io.reactor.now();
        let (origin, scratch) = io.origin_and_scratch(index);
        let more = match self.connections.role(index) {
            None => false,
            Some(Role::Lane(lane)) => {
                lane.receive(origin, scratch, now, |tag, told, notes| self.work.handle(tag, told, notes, now))?
            }
            Some(Role::Watchers(lane)) => {
                let more = lane.receive(origin, scratch, &mut self.heard, now)?;
                self.heard.count_into(&mut self.work.tally, &self.work.leases, now, io.reactor.epoch_us);
                more
            }
            Some(Role::Idle(link)) => {
                let more = link.receive(origin, scratch, now, |(), _| Verdict::Cancel)?;
                link.flush(origin)?;
                more
            }
        };
        if more {
            io.reactor.set_runnable(index);
        }
        if let Some(link) = self.connections.link(index) {
            self.heard_at = self.heard_at.max(link.heard_at());
        }
        Ok(())
    }

    /// Adds requests to the lanes and sends them. Sends the requests for watches on the connections in `touched`.
    fn send(&mut self, io: &Io, touched: &[usize]) -> Result<(), Broken> {
        let lag = self.args.lag;
        let writes_max = if lag > 0 { self.connections.events_min().saturating_add(lag) } else { u64::MAX };
        let (origin, now) = (&io.target(0).origin, io.reactor.now());
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
                    lane.send(origin, |name| watch_target(self.feed.collection(), name, self.work.watch_from))?;
                }
                Some(Role::Lane(_) | Role::Idle(_)) | None => {}
            }
        }
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

    fn enter(&mut self, io: &mut Io, next: Phase, now: u64) -> Result<(), String> {
        let before = self.course.phase();
        self.accounts.note(before, next, &mut self.work.tally, || io.reactor.now());
        if matches!((next, self.args.verb), (Phase::Attaching, _) | (Phase::Measuring, Verb::Resume)) {
            for index in self.connections.watch_indexes() {
                self.open(io, index, now)?;
            }
        }
        if matches!(next, Phase::Preparing | Phase::Asking | Phase::Writing | Phase::Measuring) {
            self.work.restart();
        }
        // The feed, which chooses the requests, starts anew in each phase, with two exceptions. The load of the warm-up
        // continues in the measured time. After the measured time, requests that were due in it may remain to be sent.
        if (before, next) != (Phase::Warming, Phase::Measuring) && next < Phase::Draining {
            self.feed.restart(&mut self.connections.lanes, now);
        }
        self.course.enter(next, now);
        self.feed.feed_all_next();
        // Requests are added to the lanes in the next turn of the event loop, which begins at once.
        io.reactor.set_runnable(0);
        Ok(())
    }

    fn open(&mut self, io: &Io, index: usize, now: u64) -> Result<(), String> {
        let Some(link) = self.connections.link(index) else { return Ok(()) };
        io.open(link, index, now).map_err(|e| format!("cannot reach {}: {e}", io.urls()))
    }

    /// Reconnects a lane whose connection the server closed as HTTP allows, for example after a pause. The connections
    /// of watchers and the idle connections must not be closed.
    #[cold]
    fn open_again(&mut self, io: &Io, index: usize) -> Result<(), String> {
        let now = io.reactor.now();
        let Some(Role::Lane(lane)) = self.connections.role(index) else {
            return Err(self.words(&io.urls(), "the server closed the connection of a watcher, or an idle connection"));
        };
        lane.link.close(io.reactor.registry(), now);
        self.open(io, index, now)
    }

    /// Describes why the run ends early, with the first error, which is often the cause.
    #[cold]
    fn words(&self, url: &str, why: &str) -> String {
        let first = self.work.tally.first().next().map(|words| format!("; the first error was {words}"));
        format!("{url}: {why}, in {:?}{}", self.course.phase(), first.unwrap_or_default())
    }
}

/// Time without input after which the server counts as gone, in nanoseconds. A list of a million Leases comes in one
/// response, which may take long under load.
const SILENCE_NS: u64 = 60_000_000_000;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::args::tests::parse;
    use crate::error_kind::ErrorKind;
    use crate::operation::Operation;

    #[test]
    fn silence_of_the_server_is_reported_with_the_first_error() {
        for (verb, is_silent) in [("renew", true), ("nothing", false)] {
            let args = parse(&format!("{verb} --server http://127.0.0.1:1 --watchers 1")).expect("valid");
            let mut bench = Bench::new(args, 0);
            bench.course.enter(Phase::Preparing, 0);
            assert!(!bench.is_silent(TIMEOUT_NS) && bench.is_silent(TIMEOUT_NS + 1), "{verb}");
            bench.course.enter(Phase::Attaching, 0);
            assert!(!bench.is_silent(SILENCE_NS) && bench.is_silent(SILENCE_NS + 1), "{verb}");
            bench.course.enter(Phase::Measuring, 0);
            assert_eq!(bench.is_silent(SILENCE_NS + 1), is_silent);
            bench.work.tally.recorder.failed(Operation::Renew, ErrorKind::Status(500), || "x".to_owned());
            let words = bench.words("http://127.0.0.1:1", "why");
            assert_eq!(words, "http://127.0.0.1:1: why, in Measuring; the first error was renew 500: x");
        }
    }
}
