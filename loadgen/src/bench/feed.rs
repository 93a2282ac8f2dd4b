//! The choice of the next request of a bench, and of the lane (a connection for requests) that sends it.
//!
//! This module owns the request rate, the buffers for requests, and the number of renewals sent. It uses neither
//! connections, Leases nor phases, except as arguments. The time is an argument too.

use super::answers::Work;
use super::args::{BenchArgs, Verb};
use super::lane::{Ask, Lane, Tag};
use super::pace::Pace;
use super::phase::{Course, Phase};
use super::requests::Requests;
use crate::error_kind::ErrorKind;
use crate::origin::Origin;
use crate::recorder::Recorder;

/// Chooses the requests that the lanes send.
#[derive(Debug)]
pub(super) struct Feed {
    pace: Option<Pace>,
    requests: Requests,
    epoch_us: u64,
    /// Whether a lane with room may have got no request. If so, the next call of [`feed`](Self::feed) tries all lanes.
    is_starved: bool,
    /// Whether a request is due and no lane has room for it. Such a request waits for responses of the server, not for
    /// a time.
    is_blocked: bool,
    /// Number of renewals sent; in the bench `echo`, of its PUTs.
    writes: u64,
}

/// Arguments that are the same for all requests of one turn of the event loop.
#[derive(Clone, Copy, Debug)]
pub(super) struct FeedContext<'t> {
    pub(super) origin: &'t Origin,
    pub(super) course: &'t Course,
    /// Maximum number of renewals that were sent and have not failed. At this number, renewals wait until the slowest
    /// watcher has received more events (`--lag`).
    pub(super) writes_max: u64,
    pub(super) now: u64,
}

impl Feed {
    /// Creates a feed that has sent no request. `epoch_us` is the start of the run, in microseconds since the Unix
    /// epoch.
    pub(super) fn new(args: &BenchArgs, epoch_us: u64) -> Self {
        Self {
            pace: args.rate.map(|rate| Pace::new(rate, args.burst)),
            requests: Requests::new(&args.namespace),
            epoch_us,
            is_starved: false,
            is_blocked: false,
            writes: 0,
        }
    }

    /// Returns the path of all Leases of the namespace.
    pub(super) fn collection(&self) -> &str {
        &self.requests.collection
    }

    /// Returns the due time of the next request at the `--rate`, in nanoseconds since the start of the run. Returns
    /// `None` if the bench has no rate, in a phase that sends no load, and while no lane has room.
    pub(super) fn due(&self, course: &Course, recorder: &Recorder) -> Option<u64> {
        self.pace.as_ref().filter(|_| !self.is_blocked && self.is_loaded(course, recorder)).map(Pace::due)
    }

    /// Whether a request that was due before the end of the measured time has not been sent. Requests due before the
    /// measured time count too, since they must be sent first: requests are sent in the order of their due times.
    pub(super) fn is_owed(&self, recorder: &Recorder) -> bool {
        self.pace.as_ref().is_some_and(|pace| recorder.is_due_before_end(pace.due()))
    }

    /// Ends the run: counts as errors the requests that were due in the measured time and were not sent.
    pub(super) fn abandon(&mut self, course: &Course, recorder: &mut Recorder) {
        let Some(pace) = &mut self.pace else { return };
        let mut owed = 0;
        while recorder.is_due_before_end(pace.due()) {
            owed += u64::from(recorder.is_measured(pace.due()));
            pace.advance(0);
        }
        if owed > 0 {
            recorder.all_failed(owed, course.verb.operation(), ErrorKind::Unanswered, || {
                format!("{owed} were due and could not be sent")
            });
        }
    }

    /// Whether another request of the load may be sent: while the load runs, or afterwards if a request that was due is
    /// not sent yet.
    fn is_loaded(&self, course: &Course, recorder: &Recorder) -> bool {
        course.is_loaded() || (course.phase() == Phase::Draining && self.is_owed(recorder))
    }

    /// Makes the next call of [`feed`](Self::feed) fill all lanes, since another kind of request is sent from now on.
    pub(super) fn feed_all_next(&mut self) {
        self.is_starved = true;
    }

    /// Restarts each lane's round over its Leases. With a rate, the first request becomes due at `now`.
    pub(super) fn restart(&mut self, lanes: &mut [Lane], now: u64) {
        lanes.iter_mut().for_each(|lane| lane.ring.restart());
        if let Some(pace) = &mut self.pace {
            pace.begin(now);
        }
    }

    /// Adds requests to the lanes in `touched`, or to all lanes if others may have room too. Returns whether lanes that
    /// are not in `touched` may have new requests, so that the caller must flush all lanes.
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

    /// Adds each due request to the first lane with room. Returns whether a request was added.
    fn feed_by_rate(&mut self, lanes: &mut [Lane], work: &mut Work, cx: FeedContext<'_>) -> bool {
        // If an earlier request waited for room on a lane, the requests due after it have waited for room too. Their
        // delay is the server's, not the generator's.
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

    /// Adds requests to a lane until the lane has no room, or there is no further request for it.
    fn fill(&mut self, index: usize, lane: &mut Lane, work: &mut Work, cx: FeedContext<'_>) {
        while self.ask(index, lane, cx.now, work, cx) {}
    }

    /// Adds one request to a lane. `asked` is the due time of the request or, without a rate, the present time. Returns
    /// false if the lane has no room, or if there is no request for the lane.
    fn ask(&mut self, index: usize, lane: &mut Lane, asked: u64, work: &mut Work, cx: FeedContext<'_>) -> bool {
        if !lane.link.has_room() {
            return false;
        }
        let Some((lease, ask)) = self.next(index, lane, work, cx) else { return false };
        self.send(lane, Tag { lease, ask, asked }, work, cx)
    }

    /// Returns the next request for a lane: the index of a Lease, and the kind of request. `None` if there is no
    /// request.
    fn next(&mut self, index: usize, lane: &mut Lane, work: &mut Work, cx: FeedContext<'_>) -> Option<(u32, Ask)> {
        if let Some((lease, ask)) = lane.notes.follow.pop() {
            work.leases.begin(lease);
            return Some((lease, ask));
        }
        let course = cx.course;
        let is_loaded = self.is_loaded(course, &work.tally.recorder);
        let ask = match (course.phase(), course.verb) {
            (Phase::Preparing, _) if lane.notes.is_fresh => Ask::Post,
            (Phase::Preparing, _) => Ask::Get,
            (Phase::Asking, _) => return (index == 0 && lane.ring.take_first_turn()).then_some((0, Ask::Version)),
            (Phase::Writing, _) => Ask::Put,
            (_, Verb::Echo | Verb::Renew) if is_loaded => Ask::Put,
            (_, Verb::Read) if is_loaded => Ask::Read,
            (Phase::Measuring, Verb::Create) => Ask::Post,
            // Every list that has begun is awaited and counted. So no list begins after the measured time.
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
        if self.writes.saturating_sub(work.failed_writes) >= cx.writes_max {
            self.is_starved = true;
            return None;
        }
        // A Lease is skipped if its request of the previous round is still in flight.
        let lease = lane.ring.next_taken(|lease| work.leases.begin(lease))?;
        Some((lease, ask))
    }

    /// Encodes a request on a lane. Returns false if the server accepts no more requests now. In this case, the request
    /// goes to the notes of the lane, which sends it later. Until then, the Lease stays busy, and no other request for
    /// it is chosen, since [`Requests::write`] has already changed its `renewTime`.
    fn send(&mut self, lane: &mut Lane, tag: Tag, work: &mut Work, cx: FeedContext<'_>) -> bool {
        let now_us = self.epoch_us + cx.now / 1_000;
        let request = self.requests.write(tag, &mut work.leases, now_us);
        let sent = lane.link.send(cx.origin, &request, tag);
        if sent {
            self.writes += u64::from(tag.ask == Ask::Put);
        } else {
            lane.notes.follow.push((tag.lease, tag.ask));
        }
        sent
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::args::tests::parse;
    use crate::http::Told;
    use crate::origin::{MediaType, Version};

    fn bench(flags: &str) -> BenchArgs {
        parse(&format!("renew {flags}")).expect("valid")
    }

    /// Due requests that no lane could send count as errors. In this test, the lanes have no connections, so they have
    /// no room.
    #[test]
    fn a_request_without_a_free_lane_is_unanswered_at_the_end() {
        let args = bench("--rate 100 --leases 5 --connections 2");
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
        // The request due at 0 ms is before the measured time. Those due at 10 and 20 ms are in it.
        feed.abandon(&course, &mut work.tally.recorder);
        assert_eq!(work.tally.recorder.errors_count(), 2);
        assert!(!feed.is_owed(&work.tally.recorder));
    }

    /// A request that was encoded and not sent comes before all other requests for its Lease. In this test, the lane
    /// has no connection, so it sends nothing.
    #[test]
    fn a_lease_stays_busy_while_its_request_cannot_be_sent() {
        let args = bench("--leases 1 --connections 1");
        let (mut feed, mut work, course) = (Feed::new(&args, 0), Work::new(&args), Course::new(&args));
        let mut lane = Lane::new(0, &args);
        let origin = Origin::new(Version::Http2, false, "127.0.0.1", MediaType::Json);
        let cx = FeedContext { origin: &origin, course: &course, writes_max: u64::MAX, now: 0 };
        assert!(work.leases.begin(0));
        assert!(!feed.send(&mut lane, Tag { lease: 0, ask: Ask::Put, asked: 0 }, &mut work, cx));
        assert!(!work.leases.begin(0));
        assert_eq!(feed.next(0, &mut lane, &mut work, cx), Some((0, Ask::Put)));
    }

    #[test]
    fn a_failed_renewal_makes_room_for_another() {
        let args = bench("--leases 2 --connections 1");
        let (mut feed, mut work, mut course) = (Feed::new(&args, 0), Work::new(&args), Course::new(&args));
        let mut lane = Lane::new(0, &args);
        let origin = Origin::new(Version::Http2, false, "127.0.0.1", MediaType::Json);
        course.enter(Phase::Measuring, 0);
        let cx = FeedContext { origin: &origin, course: &course, writes_max: 1, now: 0 };
        let failed = Told::Answer { status: 429, body: b"", end: true };
        for (outcome, tries) in [(failed, 1), (Told::Refused, 2)] {
            feed.writes = tries;
            assert_eq!(feed.next(0, &mut lane, &mut work, cx), None);
            work.handle(Tag { lease: 0, ask: Ask::Put, asked: 0 }, outcome, &mut lane.notes, 0);
            assert!(feed.next(0, &mut lane, &mut work, cx).is_some());
        }
    }
}
