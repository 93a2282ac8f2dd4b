//! What is asked for next, and by which lane.
//!
//! Owned here: the rate, the requests' places, how many renewals were asked for. Not owned: connections, Leases, phases; the
//! time is an argument.

use super::answers::Work;
use super::args::{BenchArgs, Verb};
use super::lane::{Ask, Lane, Tag};
use super::pace::Pace;
use super::phase::{Course, Phase};
use super::requests::Requests;
use super::tally::Tally;
use crate::http::Origin;
use crate::stats::ErrorKind;

/// What feeds the lanes.
#[derive(Debug)]
pub(super) struct Feed {
    pace: Option<Pace>,
    requests: Requests,
    epoch_us: u64,
    /// Some lanes were not given all that they could take.
    is_starved: bool,
    /// Renewals asked for.
    writes: u64,
}

/// What is the same for all that is asked for in one turn of the loop.
#[derive(Clone, Copy, Debug)]
pub(super) struct Turn<'t> {
    pub(super) origin: &'t Origin,
    pub(super) course: &'t Course,
    /// With so many renewals asked for, the load waits for the watchers.
    pub(super) writes_max: u64,
    pub(super) now: u64,
}

impl Feed {
    /// Nothing was asked for yet. `epoch_us` is time 0 of the run, in microseconds since the Unix epoch.
    pub(super) fn new(args: &BenchArgs, epoch_us: u64) -> Self {
        Self {
            // Other verbs come once for each Lease, or one after the other.
            pace: args.rate.filter(|_| args.verb.is_endless()).map(Pace::new),
            requests: Requests::new(&args.namespace),
            epoch_us,
            is_starved: false,
            writes: 0,
        }
    }

    /// Path of all Leases of the namespace.
    pub(super) fn collection(&self) -> &str {
        self.requests.collection()
    }

    /// When the next request is due by the rate, if there is one and the load wants it.
    pub(super) fn due(&self, course: &Course, tally: &Tally) -> Option<u64> {
        self.pace.as_ref().filter(|_| self.is_loaded(course, tally)).map(Pace::due)
    }

    /// Whether a request that was due before the end of the measured time, by the rate, has not been sent. Those from before
    /// its beginning count too: what was due in it has its turn behind them.
    pub(super) fn is_owed(&self, tally: &Tally) -> bool {
        self.pace.as_ref().is_some_and(|pace| tally.is_over(pace.due()))
    }

    /// The run is over: what is owed has no answer.
    pub(super) fn abandon(&mut self, tally: &mut Tally) {
        let Some(pace) = &mut self.pace else { return };
        let mut owed = 0;
        while tally.is_over(pace.due()) {
            owed += u64::from(tally.is_measured(pace.due()));
            pace.advance(0);
        }
        if owed > 0 {
            tally.all_failed(owed, ErrorKind::Unanswered.name(), || format!("{owed} were due and could not be sent"));
        }
    }

    /// Whether the load wants another request: it is on, or it is over and one is owed.
    fn is_loaded(&self, course: &Course, tally: &Tally) -> bool {
        course.is_loaded() || (course.phase() == Phase::Draining && self.is_owed(tally))
    }

    /// There is something else to ask for: the next time all lanes get of it.
    pub(super) fn feed_all_next(&mut self) {
        self.is_starved = true;
    }

    /// What is asked for begins at the front, and the rate with it.
    pub(super) fn restart(&mut self, lanes: &mut [Lane], now: u64) {
        lanes.iter_mut().for_each(|lane| lane.ring.restart());
        if let Some(pace) = &mut self.pace {
            pace.begin(now);
        }
    }

    /// Gives the lanes what they can take: those that were touched, or all if there may be something for the others too,
    /// which it tells.
    pub(super) fn feed(&mut self, lanes: &mut [Lane], touched: &[usize], work: &mut Work, turn: Turn<'_>) -> bool {
        if self.pace.is_some() && self.is_loaded(turn.course, &work.tally) {
            self.feed_by_rate(lanes, work, turn);
            return true;
        }
        let all = std::mem::take(&mut self.is_starved);
        if all {
            lanes.iter_mut().enumerate().for_each(|(index, lane)| self.fill(index, lane, work, turn));
        } else {
            for &index in touched {
                if let Some(lane) = lanes.get_mut(index) {
                    self.fill(index, lane, work, turn);
                }
            }
        }
        all
    }

    /// One request for each that is due, to whichever lane has room.
    fn feed_by_rate(&mut self, lanes: &mut [Lane], work: &mut Work, turn: Turn<'_>) {
        while let Some(pace) = self.pace.as_ref().filter(|pace| pace.due() <= turn.now) {
            let due = pace.due();
            if !self.is_loaded(turn.course, &work.tally) {
                return;
            }
            let has_room = |&index: &usize| lanes.get(index).is_some_and(|lane| lane.link.has_room());
            let Some(index) = pace.lanes(lanes.len()).find(has_room) else { return };
            let Some(lane) = lanes.get_mut(index) else { return };
            let Some((lease, ask)) = self.next(index, lane, work, turn) else { return };
            if !self.send(lane, Tag { lease, ask, asked: due }, work, turn) {
                return;
            }
            work.tally.sent(due, turn.now);
            if let Some(pace) = &mut self.pace {
                pace.advance(index);
            }
        }
    }

    /// Gives one lane what it can take.
    fn fill(&mut self, index: usize, lane: &mut Lane, work: &mut Work, turn: Turn<'_>) {
        while lane.link.has_room() {
            let Some((lease, ask)) = self.next(index, lane, work, turn) else { return };
            if !self.send(lane, Tag { lease, ask, asked: turn.now }, work, turn) {
                return;
            }
        }
    }

    /// What a lane asks for next, if there is something.
    fn next(&mut self, index: usize, lane: &mut Lane, work: &mut Work, turn: Turn<'_>) -> Option<(u32, Ask)> {
        if let Some((lease, ask)) = lane.notes.follow.pop() {
            work.leases.begin(lease);
            return Some((lease, ask));
        }
        let course = turn.course;
        let is_loaded = self.is_loaded(course, &work.tally);
        let ask = match (course.phase(), course.verb()) {
            (Phase::Preparing, _) if lane.notes.is_fresh => Ask::Post,
            (Phase::Preparing, _) => Ask::Get,
            (Phase::Asking, _) => return (index == 0 && lane.ring.take_first_turn()).then_some((0, Ask::Version)),
            (Phase::Writing, _) => Ask::Put,
            (_, Verb::Echo | Verb::Renew) if is_loaded => Ask::Put,
            (_, Verb::Read) if is_loaded => Ask::Read,
            (Phase::Measuring, Verb::Create) => Ask::Post,
            // What is begun is also counted, so nothing is begun when the time is over.
            (Phase::Measuring, Verb::List) => {
                let is_over = work.done() > 0 && course.is_long(turn.now);
                return (!is_over).then_some((0, Ask::List));
            }
            (Phase::Measuring, Verb::DeleteCollection) => {
                return lane.ring.take_first_turn().then_some((0, Ask::DeleteCollection));
            }
            _ => return None,
        };
        if !is_loaded {
            let lease = lane.ring.next_once()?;
            work.leases.begin(lease);
            return Some((lease, ask));
        }
        if self.writes >= turn.writes_max {
            self.is_starved = true;
            return None;
        }
        // Those that are still under way from the round before are left out.
        let lease = lane.ring.next_taken(|lease| work.leases.begin(lease))?;
        Some((lease, ask))
    }

    /// Writes a request; false if the server takes none now.
    fn send(&mut self, lane: &mut Lane, tag: Tag, work: &mut Work, turn: Turn<'_>) -> bool {
        let now_us = self.epoch_us + turn.now / 1_000;
        let request = self.requests.write(tag, &mut work.leases, now_us);
        let sent = lane.link.send(turn.origin, &request, tag);
        if sent {
            self.writes += u64::from(tag.ask == Ask::Put);
        } else {
            work.leases.end(tag.lease);
            lane.notes.follow.push((tag.lease, tag.ask));
        }
        sent
    }
}
