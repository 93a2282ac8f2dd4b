//! What is asked for next, and by which lane.
//!
//! Owned here: the rate, the requests' places, how many renewals were asked for. Not owned: connections, Leases,
//! phases; the time is an argument.

use super::answers::Work;
use super::args::{BenchArgs, Verb};
use super::lane::{Ask, Lane, Tag};
use super::pace::Pace;
use super::phase::{Course, Phase};
use super::requests::Requests;
use crate::error_kind::ErrorKind;
use crate::origin::Origin;
use crate::recorder::Recorder;

/// What feeds the lanes.
#[derive(Debug)]
pub(super) struct Feed {
    pace: Option<Pace>,
    requests: Requests,
    epoch_us: u64,
    /// Some lanes were not given all that they could take.
    is_starved: bool,
    /// A request is due by the rate and no lane can take it: it waits for the server, not for the time.
    is_blocked: bool,
    /// Renewals asked for.
    writes: u64,
}

/// What is the same for all that is asked for in one turn of the loop.
#[derive(Clone, Copy, Debug)]
pub(super) struct FeedContext<'t> {
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
            pace: args.rate.map(Pace::new),
            requests: Requests::new(&args.namespace),
            epoch_us,
            is_starved: false,
            is_blocked: false,
            writes: 0,
        }
    }

    /// Path of all Leases of the namespace.
    pub(super) fn collection(&self) -> &str {
        self.requests.collection()
    }

    /// When the next request is due by the rate, if there is one, the load wants it, and it can be sent then.
    pub(super) fn due(&self, course: &Course, recorder: &Recorder) -> Option<u64> {
        self.pace.as_ref().filter(|_| !self.is_blocked && self.is_loaded(course, recorder)).map(Pace::due)
    }

    /// Whether a request that was due before the end of the measured time, by the rate, has not been sent. Those from
    /// before its beginning count too: what was due in it has its turn behind them.
    pub(super) fn is_owed(&self, recorder: &Recorder) -> bool {
        self.pace.as_ref().is_some_and(|pace| recorder.is_over(pace.due()))
    }

    /// The run is over: what is owed has no answer.
    pub(super) fn abandon(&mut self, course: &Course, recorder: &mut Recorder) {
        let Some(pace) = &mut self.pace else { return };
        let mut owed = 0;
        while recorder.is_over(pace.due()) {
            owed += u64::from(recorder.is_measured(pace.due()));
            pace.advance(0);
        }
        if owed > 0 {
            recorder.all_failed(owed, course.verb().operation(), ErrorKind::Unanswered, || {
                format!("{owed} were due and could not be sent")
            });
        }
    }

    /// Whether the load wants another request: it is on, or it is over and one is owed.
    fn is_loaded(&self, course: &Course, recorder: &Recorder) -> bool {
        course.is_loaded() || (course.phase() == Phase::Draining && self.is_owed(recorder))
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

    /// Gives the lanes what they can take: those that were touched, or all if there may be something for the others
    /// too, which it tells.
    pub(super) fn feed(&mut self, lanes: &mut [Lane], touched: &[usize], work: &mut Work, cx: FeedContext<'_>) -> bool {
        if self.pace.is_some() && self.is_loaded(cx.course, &work.tally.recorder) {
            return self.feed_by_rate(lanes, work, cx);
        }
        let all = std::mem::take(&mut self.is_starved);
        if all {
            lanes.iter_mut().enumerate().for_each(|(index, lane)| self.fill(index, lane, work, cx));
        } else {
            for &index in touched {
                if let Some(lane) = lanes.get_mut(index) {
                    self.fill(index, lane, work, cx);
                }
            }
        }
        all
    }

    /// One request for each that is due, to whichever lane can take it; whether there was one.
    fn feed_by_rate(&mut self, lanes: &mut [Lane], work: &mut Work, cx: FeedContext<'_>) -> bool {
        // What comes due while others wait for room would have to wait too.
        let was_blocked = std::mem::take(&mut self.is_blocked);
        let mut is_any = false;
        while let Some(pace) = self.pace.as_ref().filter(|pace| pace.due() <= cx.now) {
            let due = pace.due();
            if !self.is_loaded(cx.course, &work.tally.recorder) {
                break;
            }
            let mut order = pace.lanes(lanes.len());
            let mut takes =
                |&index: &usize| lanes.get_mut(index).is_some_and(|lane| self.ask(index, lane, due, work, cx));
            let Some(index) = order.find(&mut takes) else {
                self.is_blocked = true;
                break;
            };
            is_any = true;
            match was_blocked {
                true => work.tally.recorder.crowded(due),
                false => work.tally.recorder.taken_up(due, cx.now.saturating_sub(due)),
            }
            if let Some(pace) = &mut self.pace {
                pace.advance(index);
            }
        }
        is_any
    }

    /// Gives one lane what it can take.
    fn fill(&mut self, index: usize, lane: &mut Lane, work: &mut Work, cx: FeedContext<'_>) {
        while self.ask(index, lane, cx.now, work, cx) {}
    }

    /// Gives one lane one request, asked for, or due, at `asked`; false if it can take none, or there is none for it.
    fn ask(&mut self, index: usize, lane: &mut Lane, asked: u64, work: &mut Work, cx: FeedContext<'_>) -> bool {
        if !lane.link.has_room() {
            return false;
        }
        let Some((lease, ask)) = self.next(index, lane, work, cx) else { return false };
        self.send(lane, Tag { lease, ask, asked }, work, cx)
    }

    /// What a lane asks for next, if there is something.
    fn next(&mut self, index: usize, lane: &mut Lane, work: &mut Work, cx: FeedContext<'_>) -> Option<(u32, Ask)> {
        if let Some((lease, ask)) = lane.notes.follow.pop() {
            work.leases.begin(lease);
            return Some((lease, ask));
        }
        let course = cx.course;
        let is_loaded = self.is_loaded(course, &work.tally.recorder);
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
                let is_over = work.done() > 0 && course.is_long(cx.now);
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
        if self.writes >= cx.writes_max {
            self.is_starved = true;
            return None;
        }
        // Those that are still under way from the round before are left out.
        let lease = lane.ring.next_taken(|lease| work.leases.begin(lease))?;
        Some((lease, ask))
    }

    /// Writes a request; false if the server takes none now.
    fn send(&mut self, lane: &mut Lane, tag: Tag, work: &mut Work, cx: FeedContext<'_>) -> bool {
        let now_us = self.epoch_us + cx.now / 1_000;
        let request = self.requests.write(tag, &mut work.leases, now_us);
        let sent = lane.link.send(cx.origin, &request, tag);
        if sent {
            self.writes += u64::from(tag.ask == Ask::Put);
        } else {
            work.leases.end(tag.lease);
            lane.notes.follow.push((tag.lease, tag.ask));
        }
        sent
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::args::{Args, Command};
    use crate::origin::{MediaType, Version};
    use clap::Parser as _;

    /// Nobody listens to the lanes, so they have no room.
    #[test]
    fn a_request_that_no_lane_can_take_waits_for_no_time_and_is_unanswered_at_the_end() {
        let words = "loadgen bench renew --rate 100 --leases 5 --connections 2";
        let args = Args::try_parse_from(words.split(' ')).expect("valid");
        let Some(Command::Bench(args)) = args.command else { panic!("no bench") };
        let mut lanes: Vec<Lane> = (0..2).map(|index| Lane::new(index, &args)).collect();
        let (mut feed, mut work, mut course) = (Feed::new(&args, 0), Work::new(&args), Course::new(&args));
        let origin = Origin::new(Version::Http2, false, "127.0.0.1", MediaType::Json);
        course.enter(Phase::Measuring, 0);
        work.tally.recorder.begin(5_000_000);
        assert_eq!(feed.due(&course, &work.tally.recorder), Some(0));
        let cx = FeedContext { origin: &origin, course: &course, writes_max: u64::MAX, now: 25_000_000 };
        assert!(!feed.feed(&mut lanes, &[], &mut work, cx));
        assert_eq!(feed.due(&course, &work.tally.recorder), None);
        work.tally.recorder.end(30_000_000);
        assert!(feed.is_owed(&work.tally.recorder));
        // That of 0 ms was not measured; those of 10 and 20 ms, behind it, were.
        feed.abandon(&course, &mut work.tally.recorder);
        assert_eq!(work.tally.recorder.errors_count(), 2);
        assert!(!feed.is_owed(&work.tally.recorder));
    }
}
