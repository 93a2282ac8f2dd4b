//! The turn of a bench's loop, and its phases.
//!
//! One turn: wait → note readiness → receive on what is ready → ask for more → send → housekeeping. The phases:
//!
//! ```text
//!   Connecting ─▶ Preparing ─▶ Asking ─▶ (Writing) ─▶ Attaching ─▶ Warming ─▶ Measuring ─▶ Draining ─▶ report
//!   connections   each Lease   from      resume: one  watchers,    the load,  the load,    what is under way,
//!   open          is there     where to  renewal each idle ones    uncounted  counted      the last events
//!                              watch
//! ```

use super::args::{BenchArgs, Verb};
use super::lease::{self, Leases};
use super::list::items_in;
use super::ring;
use super::tally::{Account, Report, Tally, record};
use super::watch::{Heard, WatchLane, watch_target};
use crate::http::{Bodies, Broken, Request, Told, Verdict};
use crate::link::{Connect, Link};
use crate::node;
use crate::target::Target;
use crate::wake::Wake;
use mio::{Events, Poll, Token};
use process_account::Memory;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant, SystemTime};

/// A bench under way.
#[derive(Debug)]
pub(crate) struct Bench {
    args: BenchArgs,
    target: Target,
    poll: Poll,
    wake: Wake,
    start: Instant,
    /// Microseconds since the Unix epoch at time 0 of the run.
    epoch_us: u64,
    leases: Leases,
    tally: Tally,
    heard: Heard,
    lanes: Vec<Lane>,
    watch_lanes: Vec<WatchLane>,
    idle: Vec<Link<Tag>>,
    /// Of the idle connections, how many were begun, and how many are ready.
    idle_begun: usize,
    idle_ready: usize,
    phase: Phase,
    phase_since: u64,
    window: [Account; 2],
    memory: [Option<Memory>; 4],
    /// What each connection still has to do this turn.
    runnable: Vec<usize>,
    is_runnable: Vec<bool>,
    /// Some lanes were not given all that they could take.
    is_starved: bool,
    /// With a rate: when the next request is due, and the lane that gets it.
    next_due: f64,
    next_lane: usize,
    /// Renewals asked for.
    writes: u64,
    /// The version from which on is watched.
    watch_from: u64,
    /// Leases that are there, or written, in a phase that goes through all of them once.
    done: u32,
    interrupted: Arc<AtomicBool>,
    next_housekeeping: u64,
    /// When something was received last.
    heard_at: u64,
    scratch: Vec<u8>,
    /// Paths, and the body of a creation.
    collection: String,
    path: String,
    body: Vec<u8>,
}

/// One connection of requests.
#[derive(Debug)]
struct Lane {
    link: Link<Tag>,
    /// How far it has come in its Leases: the next is `first + step(ring) * lanes`.
    ring: u32,
    /// What has to be asked for first.
    follow: Vec<(u32, Ask)>,
    /// The last Lease that was prepared was not there.
    is_fresh: bool,
    /// The end of the last piece of a list, for what is counted in it.
    tail: Vec<u8>,
}

/// What is in flight.
#[derive(Clone, Copy, Debug)]
struct Tag {
    lease: u32,
    ask: Ask,
    /// When it was asked for, or due.
    asked: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Ask {
    /// Is there such a Lease?
    Get,
    Post,
    Put,
    Read,
    /// The version of the table.
    Version,
    List,
    DeleteCollection,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Phase {
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

impl Bench {
    /// A bench that has not begun. Errors are sentences for the user.
    pub(crate) fn new(args: BenchArgs, target: Target, interrupted: Arc<AtomicBool>) -> Result<Self, String> {
        let poll = Poll::new().map_err(|e| format!("cannot make a poll: {e}"))?;
        let bodies = if args.verb.is_bulk() { Bodies::Streamed } else { Bodies::Whole };
        let lane = || Lane {
            link: Link::new(bodies, args.streams() as usize),
            ring: 0,
            follow: Vec::new(),
            is_fresh: false,
            tail: Vec::new(),
        };
        let lanes: Vec<Lane> = std::iter::repeat_with(lane).take(args.connections() as usize).collect();
        let per_lane = args.watch_streams() as usize;
        let first_name = if args.other_names { args.leases } else { 0 };
        let broad: Vec<Option<u32>> = vec![None; args.watchers as usize];
        let narrow: Vec<Option<u32>> = (first_name..first_name + args.name_watchers).map(Some).collect();
        let watch_lanes: Vec<WatchLane> =
            broad.chunks(per_lane).chain(narrow.chunks(per_lane)).map(|names| WatchLane::new(names.to_vec())).collect();
        let idle: Vec<Link<Tag>> =
            std::iter::repeat_with(|| Link::new(Bodies::Whole, 1)).take(args.idle as usize).collect();
        let links_len = lanes.len() + watch_lanes.len() + idle.len();
        let epoch = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).map_err(|e| e.to_string())?;
        let wake = Wake::new(poll.registry(), Token(links_len)).map_err(|e| format!("no timer: {e}"))?;
        let mut leases = Leases::new(args.media_type(), &args.namespace, args.leases);
        if args.verb == Verb::Echo {
            leases.make(args.body_bytes as usize);
        }
        Ok(Self {
            poll,
            wake,
            start: Instant::now(),
            epoch_us: u64::try_from(epoch.as_micros()).map_err(|e| e.to_string())?,
            leases,
            tally: Tally::new(),
            heard: Heard::new(&args.namespace),
            lanes,
            watch_lanes,
            idle,
            idle_begun: 0,
            idle_ready: 0,
            phase: Phase::Connecting,
            phase_since: 0,
            window: [Account::default(); 2],
            memory: [process_account::memory(&args.told.pid).filter(|_| !args.told.pid.is_empty()), None, None, None],
            runnable: Vec::new(),
            is_runnable: vec![false; links_len],
            is_starved: false,
            next_due: 0.0,
            next_lane: 0,
            writes: 0,
            watch_from: 0,
            done: 0,
            interrupted,
            next_housekeeping: 0,
            heard_at: 0,
            scratch: vec![0; SCRATCH_BYTES],
            collection: format!("/apis/coordination.k8s.io/v1/namespaces/{}/leases", args.namespace),
            path: String::new(),
            body: Vec::new(),
            args,
            target,
        })
    }

    /// Runs to the end. Errors are sentences for the user.
    pub(crate) fn run(mut self) -> Result<Report, String> {
        let mut events = Events::with_capacity(1024);
        for index in 0..self.lanes.len() {
            self.open(index, 0)?;
        }
        while self.phase != Phase::Over {
            self.turn(&mut events)?;
        }
        self.check_events();
        Ok(Report {
            interrupted: self.interrupted.load(Ordering::Relaxed),
            url: self.target.url,
            tally: self.tally,
            window: self.window,
            memory: self.memory,
            body_bytes: self.leases.body_len(),
            args: self.args,
        })
    }

    fn turn(&mut self, events: &mut Events) -> Result<(), String> {
        self.wait(events).map_err(|e| format!("poll: {e}"))?;
        for event in events.iter() {
            let Token(index) = event.token();
            if let Some(link) = self.link(index) {
                link.handle_readiness(event);
                self.set_runnable(index);
            }
        }
        let mut runnable = std::mem::take(&mut self.runnable);
        for &index in &runnable {
            if let Some(flag) = self.is_runnable.get_mut(index) {
                *flag = false;
            }
        }
        for &index in &runnable {
            match self.receive(index) {
                Ok(()) => {}
                Err(broken) if broken.kind.is_none() => self.open_again(index)?,
                Err(broken) => return Err(self.words(&broken)),
            }
        }
        self.feed(&runnable).map_err(|broken| self.words(&broken))?;
        runnable.clear();
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

    fn wait(&mut self, events: &mut Events) -> io::Result<()> {
        let now = self.now();
        let mut until = self.next_housekeeping;
        if self.is_loaded() && self.args.rate.is_some() {
            until = until.min(whole_ns(self.next_due));
        }
        if !self.runnable.is_empty() {
            until = now;
        }
        let timeout = self.wake.timeout_until(until.saturating_sub(now))?;
        match self.poll.poll(events, Some(timeout)) {
            Err(error) if error.kind() != io::ErrorKind::Interrupted => Err(error),
            _ => Ok(()),
        }
    }

    /// Receives on one connection, whatever it is for.
    fn receive(&mut self, index: usize) -> Result<(), Broken> {
        let now = self.now();
        self.heard_at = now;
        let (lanes_len, watch_len) = (self.lanes.len(), self.watch_lanes.len());
        let more = if index < lanes_len {
            self.receive_answers(index, now)?
        } else if let Some(lane) = self.watch_lanes.get_mut(index - lanes_len) {
            let more = lane.receive(&self.target.origin, &mut self.scratch, &mut self.heard, now)?;
            self.count_events(now);
            more
        } else if let Some(link) = self.idle.get_mut(index - lanes_len - watch_len) {
            let was_ready = link.is_ready();
            let more = link.receive(&self.target.origin, &mut self.scratch, now, |_, _| Verdict::Cancel)?;
            link.flush(&self.target.origin)?;
            self.idle_ready += usize::from(!was_ready && link.is_ready());
            more
        } else {
            false
        };
        if more {
            self.set_runnable(index);
        }
        Ok(())
    }

    fn receive_answers(&mut self, index: usize, now: u64) -> Result<bool, Broken> {
        let counts = self.phase == Phase::Measuring;
        let window_start = self.window[0].at;
        let (is_once, is_echo) = (self.is_once(), self.args.verb == Verb::Echo);
        let (leases, tally, done) = (&mut self.leases, &mut self.tally, &mut self.done);
        let watch_from = &mut self.watch_from;
        let Some(Lane { link, follow, is_fresh, tail, .. }) = self.lanes.get_mut(index) else { return Ok(false) };
        link.receive(&self.target.origin, &mut self.scratch, now, |tag, told| {
            let Tag { lease: index, ask, asked } = tag;
            let (status, body, end) = match told {
                Told::Answer { status, body, end } => (status, body, end),
                Told::Unserved | Told::Refused => {
                    leases.end(index);
                    *done += 1;
                    tally.failed("refused".to_owned(), || node::name_of(index));
                    return Verdict::GoOn;
                }
                Told::Lost { kind, why } => {
                    leases.end(index);
                    *done += 1;
                    tally.failed(kind.name(), || why.to_owned());
                    return Verdict::GoOn;
                }
            };
            if matches!(ask, Ask::List | Ask::DeleteCollection) && status == 200 {
                tally.list_bytes += body.len() as u64;
                tally.list_items += items_in(tail, body);
            }
            if !end {
                return Verdict::GoOn;
            }
            leases.end(index);
            let outcome = match (ask, status) {
                (Ask::Get, 404) => {
                    *is_fresh = true;
                    follow.push((index, Ask::Post));
                    return Verdict::GoOn;
                }
                // Somebody had created it before.
                (Ask::Post, 409) if !is_once => {
                    *is_fresh = false;
                    follow.push((index, Ask::Get));
                    return Verdict::GoOn;
                }
                (Ask::Get, 200) | (Ask::Post, 201) => leases.learn(index, body),
                (Ask::Put, 200) if is_echo => leases.echoed(index, body),
                (Ask::Put, 200) => leases.written(index, body),
                (Ask::Read, 200) => leases.read(index, body),
                (Ask::List | Ask::DeleteCollection, 200) => Ok(()),
                (Ask::Version, 200) => lease::version_in(body).map(|version| *watch_from = version),
                (Ask::Put, 409) => {
                    // Nobody else writes: what is known of it is learned again.
                    follow.push((index, Ask::Get));
                    tally.failed("409".to_owned(), || node::name_of(index));
                    return Verdict::GoOn;
                }
                _ => {
                    *done += 1;
                    tally
                        .failed(status.to_string(), || String::from_utf8_lossy(body.get(..300).unwrap_or(body)).into());
                    return Verdict::GoOn;
                }
            };
            if let Err(wrong) = outcome {
                tally.violated(format!("{}: {wrong:?} after {ask:?}", node::name_of(index)));
            }
            *done += 1;
            if counts {
                tally.requests += 1;
                if asked >= window_start {
                    record(&mut tally.latency, now.saturating_sub(asked));
                }
            }
            Verdict::GoOn
        })
    }

    fn count_events(&mut self, now: u64) {
        let now_us = self.epoch_us + now / 1_000;
        for renewed in self.heard.renewed.drain(..) {
            if self.phase == Phase::Measuring {
                record(&mut self.tally.event_delay, now_us.saturating_sub(renewed).saturating_mul(1_000));
            }
        }
        if self.phase == Phase::Measuring {
            self.tally.events += self.heard.events;
        }
        self.heard.events = 0;
        for words in self.heard.wrong.drain(..) {
            self.tally.violated(words);
        }
    }

    /// Gives the lanes what they can take, and sends it.
    fn feed(&mut self, touched: &[usize]) -> Result<(), Broken> {
        let now = self.now();
        let by_rate = self.is_loaded() && self.args.rate.is_some();
        let all = by_rate || std::mem::take(&mut self.is_starved);
        if by_rate {
            self.feed_by_rate(now);
        } else if all {
            (0..self.lanes.len()).for_each(|index| self.fill(index, now));
        } else {
            touched.iter().for_each(|&index| self.fill(index, now));
        }
        let origin = &self.target.origin;
        for lane in self.lanes.iter_mut().filter(|_| all) {
            lane.link.flush(origin)?;
        }
        for &index in touched {
            if let Some(lane) = self.lanes.get_mut(index) {
                lane.link.flush(origin)?;
            } else if let Some(lane) = self.watch_lanes.get_mut(index - self.lanes.len()) {
                lane.send(origin, |name| watch_target(&self.collection, name, self.watch_from))?;
            }
        }
        Ok(())
    }

    /// One request for each that is due, to whichever lane has room.
    fn feed_by_rate(&mut self, now: u64) {
        let Some(rate) = self.args.rate else { return };
        let lanes_len = self.lanes.len();
        while whole_ns(self.next_due) <= now {
            let index = (self.next_lane..self.next_lane + lanes_len)
                .map(|index| index % lanes_len)
                .find(|&index| self.lanes.get(index).is_some_and(|lane| lane.link.has_room()));
            let Some(index) = index else { return };
            let due = whole_ns(self.next_due);
            let Some((lease, ask)) = self.next(index) else { return };
            self.send(index, Tag { lease, ask, asked: due }, now);
            if self.phase == Phase::Measuring {
                record(&mut self.tally.lateness, now - due);
            }
            self.next_lane = index + 1;
            self.next_due += 1e9 / f64::from(rate);
        }
    }

    /// Gives one lane what it can take.
    fn fill(&mut self, index: usize, now: u64) {
        while self.lanes.get(index).is_some_and(|lane| lane.link.has_room()) {
            let Some((lease, ask)) = self.next(index) else { return };
            if !self.send(index, Tag { lease, ask, asked: now }, now) {
                return;
            }
        }
    }

    /// What a lane asks for next, if there is something.
    fn next(&mut self, index: usize) -> Option<(u32, Ask)> {
        let is_behind = self.is_loaded() && self.args.lag > 0 && self.is_behind();
        let lanes_len = u32::try_from(self.lanes.len()).ok()?;
        let first = u32::try_from(index).ok()?;
        let ring_len = (self.args.leases - first).div_ceil(lanes_len);
        let lane = self.lanes.get_mut(index)?;
        if let Some((lease, ask)) = lane.follow.pop() {
            self.leases.begin(lease);
            return Some((lease, ask));
        }
        let ask = match (self.phase, self.args.verb) {
            (Phase::Preparing, _) if lane.is_fresh => Ask::Post,
            (Phase::Preparing, _) => Ask::Get,
            (Phase::Asking, _) if index == 0 && lane.ring == 0 => {
                lane.ring = 1;
                return Some((0, Ask::Version));
            }
            (Phase::Measuring, Verb::Create) => Ask::Post,
            (Phase::Writing, _) | (Phase::Warming | Phase::Measuring, Verb::Echo | Verb::Renew) => Ask::Put,
            (Phase::Warming | Phase::Measuring, Verb::Read) => Ask::Read,
            // What is begun is also counted, so nothing is begun when the time is over.
            (Phase::Measuring, Verb::List) => {
                let is_over = self.done > 0 && self.now() >= self.phase_since + nanos(self.args.duration);
                return (!is_over).then_some((0, Ask::List));
            }
            (Phase::Measuring, Verb::DeleteCollection) if lane.ring == 0 => {
                lane.ring = 1;
                return Some((0, Ask::DeleteCollection));
            }
            _ => return None,
        };
        if is_behind {
            self.is_starved = true;
            return None;
        }
        let loaded = matches!(self.phase, Phase::Warming | Phase::Measuring) && self.args.verb != Verb::Create;
        if !loaded {
            let lease = (lane.ring < ring_len).then(|| first + lane.ring * lanes_len)?;
            lane.ring += 1;
            self.leases.begin(lease);
            return Some((lease, ask));
        }
        // Those that are still under way from the round before are left out.
        for _ in 0..ring_len.min(BUSY_MAX) {
            let lease = first + ring::place(lane.ring, ring_len) * lanes_len;
            lane.ring = (lane.ring + 1) % ring_len;
            if self.leases.begin(lease) {
                return Some((lease, ask));
            }
        }
        None
    }

    /// Whether the slowest watcher of all Leases is too many events behind.
    fn is_behind(&self) -> bool {
        let slowest = self.watch_lanes.iter().map(WatchLane::events_min).min().unwrap_or(u64::MAX);
        self.writes.saturating_sub(slowest) >= self.args.lag
    }

    /// Writes a request; false if the server takes none now.
    fn send(&mut self, index: usize, tag: Tag, now: u64) -> bool {
        let now_us = self.epoch_us + now / 1_000;
        self.path.clear();
        self.path.push_str(&self.collection);
        if tag.ask == Ask::Version {
            self.path.push_str("?limit=1");
        } else if !matches!(tag.ask, Ask::Post | Ask::List | Ask::DeleteCollection) {
            self.path.push('/');
            node::push_name(&mut self.path, tag.lease);
        }
        let (method, body) = match tag.ask {
            Ask::Get | Ask::Read | Ask::List | Ask::Version => ("GET", None),
            Ask::DeleteCollection => ("DELETE", None),
            Ask::Put => {
                self.writes += 1;
                ("PUT", Some(self.leases.renewed(tag.lease, now_us)))
            }
            Ask::Post => {
                self.body.clear();
                self.leases.write_new(&mut self.body, &node::name_of(tag.lease), now_us);
                ("POST", Some(self.body.as_slice()))
            }
        };
        let request = Request { method, target: &self.path, body };
        let Some(lane) = self.lanes.get_mut(index) else { return false };
        let sent = lane.link.send(&self.target.origin, &request, tag);
        if !sent {
            self.leases.end(tag.lease);
            lane.follow.push((tag.lease, tag.ask));
        }
        sent
    }

    /// Phases, idle connections, and whether the server is still there.
    fn keep_house(&mut self, now: u64) -> Result<(), String> {
        if matches!(self.phase, Phase::Attaching) {
            while self.idle_begun < self.idle.len() && self.idle_begun - self.idle_ready < IDLE_PENDING_MAX {
                self.open(self.lanes.len() + self.watch_lanes.len() + self.idle_begun, now)?;
                self.idle_begun += 1;
            }
        }
        if now.saturating_sub(self.heard_at.max(self.phase_since)) > SILENCE_NS && self.args.verb != Verb::Nothing {
            return Err(format!("{}: nothing was heard for 60 s, in {:?}", self.target.url, self.phase));
        }
        while let Some(next) = self.next_phase(now) {
            self.enter(next, now)?;
        }
        Ok(())
    }

    /// The next phase, if this one is over.
    fn next_phase(&self, now: u64) -> Option<Phase> {
        let (verb, in_phase) = (self.args.verb, now - self.phase_since);
        let all_done = self.done >= self.args.leases;
        let is_idle = || self.lanes.iter().all(|lane| lane.link.len() == 0);
        let stop = self.interrupted.load(Ordering::Relaxed) && self.phase < Phase::Draining;
        let next = match self.phase {
            _ if stop => Phase::Draining,
            Phase::Connecting if !self.lanes.iter().all(|lane| lane.link.is_ready()) => return None,
            Phase::Connecting if matches!(verb, Verb::Read | Verb::Renew | Verb::Resume) => Phase::Preparing,
            Phase::Connecting if !self.watch_lanes.is_empty() => Phase::Asking,
            Phase::Connecting => Phase::Attaching,
            Phase::Preparing if !all_done => return None,
            Phase::Preparing if !self.watch_lanes.is_empty() => Phase::Asking,
            Phase::Asking if self.done == 0 => return None,
            Phase::Asking if verb == Verb::Resume => Phase::Writing,
            Phase::Preparing | Phase::Asking => Phase::Attaching,
            Phase::Writing if all_done => Phase::Measuring,
            Phase::Attaching
                if self.idle_ready == self.idle.len() && self.watch_lanes.iter().all(WatchLane::is_watching) =>
            {
                if verb.is_endless() { Phase::Warming } else { Phase::Measuring }
            }
            Phase::Warming if in_phase >= nanos(self.args.warm_up) => Phase::Measuring,
            Phase::Measuring => {
                let over = match verb {
                    Verb::Create => all_done,
                    Verb::DeleteCollection => self.done > 0,
                    Verb::List => self.done > 0 && in_phase >= nanos(self.args.duration) && is_idle(),
                    Verb::Resume => {
                        let events = u64::from(self.args.leases);
                        self.watch_lanes.iter().all(|lane| lane.events_min() >= events)
                    }
                    Verb::Echo | Verb::Nothing | Verb::Read | Verb::Renew => in_phase >= nanos(self.args.duration),
                };
                if !over {
                    return None;
                }
                Phase::Draining
            }
            Phase::Draining if in_phase >= DRAIN_NS || (is_idle() && self.missing().is_none()) => Phase::Over,
            Phase::Writing | Phase::Attaching | Phase::Warming | Phase::Draining | Phase::Over => return None,
        };
        Some(next)
    }

    fn enter(&mut self, next: Phase, now: u64) -> Result<(), String> {
        let memory = || process_account::memory(&self.args.told.pid).filter(|_| !self.args.told.pid.is_empty());
        if self.phase == Phase::Attaching {
            self.memory[2] = memory();
        }
        if self.phase == Phase::Measuring {
            self.window[1] = self.account();
            self.memory[3] = memory();
        }
        match next {
            Phase::Attaching => self.memory[1] = memory(),
            Phase::Measuring => self.window[0] = self.account(),
            _ => {}
        }
        if matches!((next, self.args.verb), (Phase::Attaching, _) | (Phase::Measuring, Verb::Resume)) {
            for index in 0..self.watch_lanes.len() {
                self.open(self.lanes.len() + index, now)?;
            }
        }
        if matches!(next, Phase::Preparing | Phase::Asking | Phase::Writing | Phase::Measuring) {
            self.done = 0;
        }
        // A load that goes on is not begun again.
        if (self.phase, next) != (Phase::Warming, Phase::Measuring) {
            self.lanes.iter_mut().for_each(|lane| lane.ring = 0);
            self.next_due = f64::from(u32::try_from(now / 1_000_000).unwrap_or(u32::MAX)) * 1e6;
        }
        self.phase = next;
        self.phase_since = now;
        self.is_starved = true;
        // The lanes are fed in this turn's successor, at once.
        self.set_runnable(0);
        Ok(())
    }

    /// A watcher that has not had as many events as there were writes, in words.
    fn missing(&self) -> Option<String> {
        self.watch_lanes.iter().flat_map(WatchLane::counts).find_map(|(name, events)| {
            let writes = name.map_or_else(|| self.leases.all_writes(), |lease| self.leases.writes(lease));
            (events != writes).then(|| match name {
                None => format!("a watcher of all Leases had {events} events, of {writes} writes"),
                Some(lease) => format!("a watcher of {} had {events} events, of {writes} writes", node::name_of(lease)),
            })
        })
    }

    /// Whether every watcher has seen every write, and every list was complete.
    fn check_events(&mut self) {
        if let Some(words) = self.missing().filter(|_| self.watch_from > 0) {
            self.tally.violated(words);
        }
        let lists = u64::from(self.done);
        let wanted = lists * u64::from(self.args.leases);
        if self.args.verb == Verb::List && !self.args.protobuf && self.tally.list_items != wanted {
            self.tally.violated(format!("{} objects in {lists} lists of {}", self.tally.list_items, self.args.leases));
        }
    }

    fn account(&self) -> Account {
        let pids = &self.args.told.pid;
        let generator = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
        Account {
            server_ns: if pids.is_empty() { None } else { process_account::cpu_ns(pids) },
            generator_ns: nanos(Duration::try_from(generator).unwrap_or_default()),
            at: self.now(),
        }
    }

    /// Whether the load is one without an end.
    fn is_loaded(&self) -> bool {
        matches!(self.phase, Phase::Warming | Phase::Measuring) && self.args.verb.is_endless()
    }

    /// Whether every Lease is asked for once.
    fn is_once(&self) -> bool {
        self.args.verb == Verb::Create
    }

    fn open(&mut self, index: usize, now: u64) -> Result<(), String> {
        let (target, poll) = (self.target.clone(), &self.poll);
        let registry = poll.registry().try_clone().map_err(|e| format!("cannot use the poll: {e}"))?;
        let Some(link) = self.link(index) else { return Ok(()) };
        link.open(&target, &registry, Token(index), now).map_err(|e| format!("cannot reach {}: {e}", target.url))
    }

    /// The server has ended a connection in good order, as it may if nothing is asked for long; a watch is not ended so.
    #[cold]
    fn open_again(&mut self, index: usize) -> Result<(), String> {
        let now = self.now();
        if index >= self.lanes.len() {
            return Err(format!(
                "{}: a watcher's or an idle connection was ended, in {:?}",
                self.target.url, self.phase
            ));
        }
        let registry = self.poll.registry().try_clone().map_err(|e| format!("cannot use the poll: {e}"))?;
        if let Some(link) = self.link(index) {
            link.close(&registry, now);
        }
        self.open(index, now)
    }

    /// The connection with this number: of the lanes, then of the watchers, then the idle ones.
    fn link(&mut self, index: usize) -> Option<&mut dyn Connect> {
        let (lanes_len, watch_len) = (self.lanes.len(), self.watch_lanes.len());
        if let Some(lane) = self.lanes.get_mut(index) {
            Some(&mut lane.link)
        } else if let Some(lane) = self.watch_lanes.get_mut(index - lanes_len) {
            Some(&mut lane.link)
        } else {
            self.idle.get_mut(index - lanes_len - watch_len).map(|link| link as &mut dyn Connect)
        }
    }

    fn set_runnable(&mut self, index: usize) {
        if let Some(flag) = self.is_runnable.get_mut(index)
            && !std::mem::replace(flag, true)
        {
            self.runnable.push(index);
        }
    }

    fn words(&self, broken: &Broken) -> String {
        format!("{}: {}, in {:?}", self.target.url, broken.why, self.phase)
    }

    fn now(&self) -> u64 {
        nanos(self.start.elapsed())
    }
}

fn nanos(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "a time of the run is positive and far below"
)]
fn whole_ns(ns: f64) -> u64 {
    ns as u64
}

/// Between two looks at phases.
const HOUSEKEEPING_NS: u64 = 10_000_000;
/// Idle connections that are being opened at once: a handshake has to be over in time.
const IDLE_PENDING_MAX: usize = 64;
/// Without a byte for so long, the server is taken to be gone.
const SILENCE_NS: u64 = 60_000_000_000;
/// Time for the last answers and events.
const DRAIN_NS: u64 = 5_000_000_000;
/// One read of ciphertext.
const SCRATCH_BYTES: usize = 256 * 1024;
/// Leases under way that are passed over in search of one that is not.
const BUSY_MAX: u32 = 64;
