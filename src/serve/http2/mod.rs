//! HTTP/2: many requests at once, and many responses that may be long, each within its windows.
//!
//! Here a connection's turns, deadlines and end; [`receive`] has its requests, [`long`] those among them that the
//! others should not wait for, [`send`] its responses, [`streams`] what is under way on each stream.

mod long;
mod receive;
mod send;
mod streams;
mod waiting;

pub(super) use receive::Spare;

use long::Long;
use receive::Whole;
use streams::{Source, StreamWork, Work, keep_unsent, work_mut};
use waiting::WaitingStreams;

use super::http1::Upgrade;
use super::protocol::body_bytes_max;
use super::{AfterStep, Budget, Owner, Served, Service, Turn};
use crate::buffer::ByteBuf;
use crate::clock::Now;
use crate::http2::limits::{FIELD_LIST_BYTES_MAX, FRAME_SIZE_MAX, RECV_BUFFER_BYTES_MIN};
use crate::http2::{self, Connection, ErrorCode, StreamKey};
use crate::limits::{
    BODY_MS_MAX, BUFFER_BYTES, HEAD_BYTES_MAX, HEAD_MS_MAX, IDLE_MS_MAX, LINGER_MS_MAX, QUEUED_BYTES_HIGH,
    RECEIVED_BYTES_LOW, WRITE_STALL_MS_MAX,
};
use crate::watch::{Fill, WatchEnd, WatcherKey, Watchers};
use bytes::Bytes;
use std::collections::VecDeque;

/// An HTTP/2 connection.
#[derive(Debug)]
pub struct Http2 {
    connection: Connection,
    /// What is under way, by the streams' slots.
    streams: Vec<Option<StreamWork>>,
    /// Streams with a job that can go on.
    jobs: VecDeque<StreamKey>,
    /// Streams with a job, also one that cannot.
    jobs_open: usize,
    waiting: WaitingStreams,
    /// Streams whose jobs wait; some may have been reset.
    waiting_jobs: Vec<StreamKey>,
    /// Requests that are to be served, in their order; some may have been reset.
    whole: VecDeque<Whole>,
    /// Those of them that take long.
    long: Long,
    /// When each request began whose body is awaited, or was when it began; oldest first.
    receiving: VecDeque<(u64, StreamKey)>,
    /// Since when a piece of each response waits for a window, or waited; oldest first.
    stalled: VecDeque<(u64, StreamKey)>,
    /// Bytes of requests that are not served yet: the fields of their heads, and what there is of the bodies.
    received_bytes: usize,
    /// Bytes, likewise, of requests that were served and wait.
    waiting_bytes: usize,
    /// Bytes of responses that wait for the windows of their streams.
    unsent_bytes: usize,
    body_bytes_max: usize,
}

impl Http2 {
    /// The server's end of a new connection, which takes bodies of at most `body_bytes_max`.
    #[must_use]
    pub fn new(config: http2::Config, body_bytes_max: usize, now: Now, output: &mut Vec<u8>) -> Self {
        Self::of(Connection::server(config, now.ms, output), body_bytes_max)
    }

    /// The server's end of a connection that was HTTP/1.1, with the answer to the request that changed it.
    pub(super) fn upgraded(upgrade: Upgrade, turn: &mut Turn<'_>) -> Self {
        let config = http2::Config::default();
        let (connection, key) = Connection::server_upgraded(config, &upgrade.settings, turn.now.ms, turn.output);
        let mut http2 = Self::of(connection, body_bytes_max(turn.from.credentials));
        http2.respond(key, upgrade.reply, upgrade.head_only, turn);
        http2
    }

    fn of(connection: Connection, body_bytes_max: usize) -> Self {
        Self {
            connection,
            streams: Vec::new(),
            jobs: VecDeque::new(),
            jobs_open: 0,
            waiting: WaitingStreams::new(),
            waiting_jobs: Vec::new(),
            whole: VecDeque::new(),
            long: Long::default(),
            receiving: VecDeque::new(),
            stalled: VecDeque::new(),
            received_bytes: 0,
            waiting_bytes: 0,
            unsent_bytes: 0,
            body_bytes_max,
        }
    }

    /// Serves what is in `input` as far as the output has room and `budget` lasts.
    pub fn serve(&mut self, turn: &mut Turn<'_>, input: &mut ByteBuf, budget: &mut Budget) -> Served {
        let is_cut_short = self.resume(budget, turn);
        self.serve_long_due(budget, turn);
        let mut has_more = loop {
            let is_starved = match self.receive(input, budget, turn) {
                Ok(is_starved) => is_starved,
                Err(error) => {
                    // The front proxy's is everybody's.
                    if turn.from.credentials.is_front_proxy() {
                        tracing::warn!(%error, "the front proxy's HTTP/2 connection ends, and all requests and watches on it");
                    } else {
                        tracing::debug!(%error, "HTTP/2 connection ends");
                    }
                    turn.service.api.metrics.count_malformed_request();
                    return Served::Close;
                }
            };
            if self.connection.is_finished() {
                return Served::Close;
            }
            self.serve_whole(budget, turn);
            if !self.whole.is_empty() || self.has_much_waiting(turn) {
                break true;
            }
            if is_starved || !budget.lasts(turn.output) || turn.service.pace.is_over() {
                break !is_starved && !input.is_empty();
            }
        };
        let are_others_done =
            !has_more && !budget.has_more_input || self.whole.is_empty() && self.has_much_waiting(turn);
        if are_others_done && !self.long.is_empty() {
            self.serve_long(budget, turn);
            has_more |= !self.long.is_empty();
        }
        self.check_invariants();
        self.send_more(turn);
        // The windows of those that found no room in the output are open: no frame will come to remind of them.
        has_more |= self.connection.has_writable() || is_cut_short;
        if self.connection.is_finished() {
            return Served::Close;
        }
        if has_more { Served::Busy } else { Served::Starved }
    }

    /// Whether a list or a deletion of a collection can go on.
    #[must_use]
    pub fn has_job_step(&self) -> bool {
        !self.jobs.is_empty()
    }

    /// One step of a list or of a deletion of a collection.
    pub fn step_job(&mut self, turn: &mut Turn<'_>) -> AfterStep {
        let waiting = self.waiting_jobs.len();
        self.step_first_job(turn);
        if self.connection.is_finished() {
            AfterStep::Close
        } else if self.waiting_jobs.len() > waiting {
            AfterStep::Wait
        } else {
            AfterStep::GoOn
        }
    }

    /// Appends events to the watch `key` on `stream`. `None` if it is not open.
    pub fn fill_watch(
        &mut self,
        service: &mut Service,
        stream: StreamKey,
        key: WatcherKey,
        now: Now,
        output: &mut Vec<u8>,
    ) -> Option<Fill> {
        let Work::Sending { unsent, source: source @ Source::Watch(_), stalled_ms, .. } =
            work_mut(&mut self.streams, stream)?
        else {
            return None;
        };
        if !matches!(source, Source::Watch(own) if *own == key) {
            return None;
        }
        let window = self.connection.send_room(stream);
        if !unsent.is_empty() || window == 0 {
            // When its window opens it is filled again; until then it is left alone, for a while.
            self.connection.want_write(stream);
            service.watchers.park(key);
            if stalled_ms.is_none() {
                self.stall(stream, now);
            }
            return Some(Fill::Idle);
        }
        let events = &mut service.scratch.body;
        events.clear();
        let bytes_max = window.min(QUEUED_BYTES_HIGH.saturating_sub(output.len()));
        let fill = service.watchers.fill(key, &service.table, now, events, bytes_max);
        let is_end = matches!(fill, Fill::Ended(_));
        if is_end {
            *source = Source::End;
        }
        if events.is_empty() && !is_end {
            return Some(fill);
        }
        let Ok(sent) = self.connection.send_data(stream, events, is_end, output) else { return None };
        if sent < events.len() {
            let rest = Bytes::copy_from_slice(&events[sent..]);
            if !self.has_room_for(rest.len(), service) {
                // It can be opened again from what its client has got.
                self.connection.reset(stream, ErrorCode::ENHANCE_YOUR_CALM, output);
                self.on_reset(stream, service);
                return Some(Fill::Ended(WatchEnd::Unread));
            }
            self.keep(stream, rest, now);
            if !is_end {
                service.watchers.park(key);
            }
            return Some(if is_end { fill } else { Fill::Idle });
        }
        if is_end {
            self.forget(stream);
        }
        Some(fill)
    }

    /// Whether a request has begun and is not whole.
    #[must_use]
    pub fn is_within_message(&self, input: &ByteBuf) -> bool {
        !input.is_empty() || self.connection.awaits_continuation()
    }

    /// Milliseconds at which somebody has had their time: a peer that began a head since `since_ms`, the oldest
    /// request without its body, the oldest response without a window, whoever was told first that the rest of a body
    /// is not wanted, or a connection without streams.
    #[must_use]
    pub fn deadline_ms(&self, input: &ByteBuf, since_ms: u64) -> u64 {
        let connection_ms = if !self.connection.is_open() || self.is_within_message(input) {
            since_ms.saturating_add(HEAD_MS_MAX)
        } else if self.connection.stream_count() == 0 {
            since_ms.saturating_add(IDLE_MS_MAX)
        } else {
            u64::MAX
        };
        let after = |first: Option<&(u64, StreamKey)>, patience_ms| {
            first.map_or(u64::MAX, |(began_ms, _)| began_ms.saturating_add(patience_ms))
        };
        connection_ms
            .min(after(self.receiving.front(), BODY_MS_MAX))
            .min(after(self.stalled.front(), WRITE_STALL_MS_MAX))
            .min(self.connection.refused_since_ms().map_or(u64::MAX, |since_ms| since_ms.saturating_add(LINGER_MS_MAX)))
    }

    /// Resets the streams that have had their time. Whether it is the connection that has, or that was the last of one
    /// which ends.
    pub fn on_timeout(&mut self, service: &mut Service, now: Now, output: &mut Vec<u8>) -> bool {
        let mut is_about_a_stream = self.reset_refused(service, now, output);
        while let Some((began_ms, key)) = self.receiving.front().copied() {
            if began_ms.saturating_add(BODY_MS_MAX) > now.ms {
                break;
            }
            self.receiving.pop_front();
            is_about_a_stream = true;
            if matches!(work_mut(&mut self.streams, key), Some(Work::Receiving(..))) {
                self.cancel(key, service, output);
            }
        }
        while let Some((since_ms, key)) = self.stalled.front().copied() {
            if since_ms.saturating_add(WRITE_STALL_MS_MAX) > now.ms {
                break;
            }
            self.stalled.pop_front();
            is_about_a_stream = true;
            let is_still = matches!(
                work_mut(&mut self.streams, key),
                Some(Work::Sending { stalled_ms: Some(stalled_ms), .. }) if *stalled_ms == since_ms
            );
            if is_still {
                self.cancel(key, service, output);
            }
        }
        if !is_about_a_stream {
            self.connection.abort(ErrorCode::NO_ERROR, output);
        }
        !is_about_a_stream || self.connection.is_finished()
    }

    /// Tells the peer to open no more streams, and ends watches.
    pub fn on_shutdown(&mut self, service: &mut Service, output: &mut Vec<u8>) {
        self.connection.begin_shutdown(output);
        for at in 0..self.streams.len() {
            let Some(StreamWork { key, work: Work::Sending { unsent, source, .. } }) =
                self.streams.get_mut(at).and_then(Option::as_mut)
            else {
                continue;
            };
            let Source::Watch(watcher) = source else { continue };
            let mut last = unsent.to_vec();
            service.watchers.end_for_shutdown(*watcher, &mut last);
            *source = Source::End;
            let key = *key;
            let sent = self.connection.send_data(key, &last, true, output);
            match sent {
                Ok(sent) if sent < last.len() => {
                    keep_unsent(unsent, Bytes::from(last).slice(sent..), &mut self.unsent_bytes);
                }
                _ => self.forget(key),
            }
        }
        if self.connection.stream_count() == 0 {
            // Nobody waits for anything: the second GOAWAY need not wait for an answer to the first.
            self.connection.finish_shutdown(output);
        }
    }

    /// Whether no stream is open.
    #[must_use]
    pub fn is_idle(&self, input: &ByteBuf) -> bool {
        self.connection.stream_count() == 0 && input.is_empty()
    }

    /// Lets go of what is under way on all streams.
    pub fn drop_work(&mut self, watchers: &mut Watchers<Owner>) {
        for stream in self.streams.drain(..).flatten() {
            if let Work::Sending { source: Source::Watch(key), .. } = stream.work {
                watchers.remove(key);
            }
        }
        self.jobs.clear();
        self.jobs_open = 0;
        self.waiting.clear();
        self.waiting_jobs.clear();
        self.whole.clear();
        self.long.clear();
        self.receiving.clear();
        self.stalled.clear();
        self.received_bytes = 0;
        self.waiting_bytes = 0;
        self.unsent_bytes = 0;
    }

    /// Bytes of responses that wait for the windows of their streams.
    #[must_use]
    pub fn unsent_bytes(&self) -> usize {
        self.unsent_bytes
    }

    /// Bytes of requests that are not answered yet: of heads and of bodies.
    #[must_use]
    pub fn received_bytes(&self) -> usize {
        self.received_bytes + self.waiting_bytes
    }

    /// Lets go of what jobs under way hold whose time is over.
    pub fn end_late_jobs(&mut self, now: Now) {
        for stream in self.streams.iter_mut().flatten() {
            if let Work::Begun(job, _) | Work::Sending { source: Source::Job(job), .. } = &mut stream.work {
                job.on_timeout(now);
            }
        }
    }

    /// Whether a request or a job waits.
    #[inline]
    #[must_use]
    pub fn is_waiting(&self) -> bool {
        !self.waiting.is_empty() || !self.waiting_jobs.is_empty()
    }

    /// Whether a job is under way.
    #[must_use]
    pub fn has_job(&self) -> bool {
        self.jobs_open > 0
    }
}

/// Streams that may stand in a queue for nothing, beside as many as twice those that are open.
const QUEUED_STREAMS_MIN: usize = 64;

// The fields of a head are bounded alike in both protocols.
const _: () = assert!(FIELD_LIST_BYTES_MAX == HEAD_BYTES_MAX);
const _: () = assert!(BUFFER_BYTES >= RECV_BUFFER_BYTES_MIN);
// Whole requests are served when more than half of what may wait is there: one more head or frame must have room.
const _: () = assert!(RECEIVED_BYTES_LOW / 2 >= FIELD_LIST_BYTES_MAX && RECEIVED_BYTES_LOW / 2 >= FRAME_SIZE_MAX);
