//! HTTP/2 connections: concurrent requests and long responses, each within its flow-control windows. A long response is
//! a watch, or a job: a response made in steps, such as a long list.
//!
//! This module runs a connection in each turn of the event loop, and implements its deadlines and its shutdown.
//! [`receive`] handles the requests, and [`long`] handles requests that take long. [`send`] handles the responses, and
//! [`streams`] stores the state of each stream.

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
use super::{AfterStep, Context, Owner, Served, Service};
use crate::buffer::ByteBuf;
use crate::clock::Now;
use crate::http2::limits::{FIELD_LIST_BYTES_MAX, FRAME_SIZE_MAX, RECV_BUFFER_BYTES_MIN};
use crate::http2::{self, Connection, ErrorCode, StreamKey};
use crate::limits::{
    BODY_MS_MAX, BUFFER_BYTES, HEAD_BYTES_MAX, HEAD_MS_MAX, IDLE_MS_MAX, LINGER_MS_MAX, QUEUED_BYTES_HIGH,
    RECEIVED_BYTES_LOW, WRITE_STALL_MS_MAX,
};
use crate::schedule::{Budget, LongState};
use crate::watch::{Fill, WatchEnd, WatcherKey, Watchers};
use bytes::Bytes;
use std::collections::VecDeque;

/// An HTTP/2 connection.
#[derive(Debug)]
pub struct Http2 {
    connection: Connection,
    /// The request or response in progress on each stream, by the slot of the stream's key.
    streams: Vec<Option<StreamWork>>,
    /// Streams with a runnable job (a response made in steps, such as a list). The first one gets the next step.
    jobs: VecDeque<StreamKey>,
    /// Number of streams with a job, runnable or not.
    jobs_open: usize,
    waiting: WaitingStreams,
    /// Streams whose jobs wait until the journal reports the outcome of changes; some streams may have been reset.
    waiting_jobs: Vec<StreamKey>,
    /// Complete requests to serve, in order; the streams of some may have been reset.
    whole: VecDeque<Whole>,
    /// Complete requests that take long.
    long: Long,
    /// Requests that wait or waited for the rest of their body, each with the arrival time of its head in ms; oldest
    /// first.
    receiving: VecDeque<(u64, StreamKey)>,
    /// Waits of responses for a flow-control window, each with its start in ms; oldest first. The entry of an ended
    /// wait remains until its deadline, or until the queue becomes long.
    stalled: VecDeque<(u64, StreamKey)>,
    /// Bytes of requests that the server has not served yet: header fields and received bodies.
    received_bytes: usize,
    /// Bytes of the requests in `whole` and `long`, which have arrived completely. They are a part of `received_bytes`;
    /// the rest of `received_bytes` is of requests whose body is still arriving.
    complete_bytes: usize,
    /// Bytes of requests that were served once and now wait, for example for the journal: header fields and received
    /// bodies.
    waiting_bytes: usize,
    /// Bytes of responses that wait for the flow-control windows of their streams.
    unsent_bytes: usize,
    body_bytes_max: usize,
}

impl Http2 {
    /// Returns the server's end of a new connection that accepts request bodies of at most `body_bytes_max` bytes.
    #[must_use]
    pub fn new(config: http2::Config, body_bytes_max: usize, output: &mut Vec<u8>) -> Self {
        Self::of(Connection::server(config, output), body_bytes_max)
    }

    /// Returns the server's end of a connection upgraded from HTTP/1.1, and responds to the request that upgraded it.
    pub(super) fn upgraded(upgrade: Upgrade, cx: &mut Context<'_>) -> Self {
        let config = http2::Config::default();
        let (connection, key) = Connection::server_upgraded(config, &upgrade.settings, cx.output);
        let mut http2 = Self::of(connection, body_bytes_max(cx.from.credentials));
        http2.respond(key, upgrade.reply, upgrade.head_only, cx);
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
            complete_bytes: 0,
            waiting_bytes: 0,
            unsent_bytes: 0,
            body_bytes_max,
        }
    }

    /// Serves the requests in `input` while the output has room and `budget` lasts.
    pub fn serve_requests(&mut self, cx: &mut Context<'_>, input: &mut ByteBuf, budget: &mut Budget) -> Served {
        let is_cut_short = self.resume_runnable(budget, cx);
        let mut has_more = loop {
            let is_starved = match self.recv_requests(input, budget, cx) {
                Ok(is_starved) => is_starved,
                Err(error) => {
                    if cx.from.credentials.is_front_proxy() {
                        cx.service.warn_front_proxy_end(&error, cx.now);
                    } else {
                        tracing::debug!(%error, "HTTP/2 connection ends");
                    }
                    cx.service.api.metrics.counts.requests_malformed += 1;
                    return Served::Close;
                }
            };
            if self.connection.is_finished() {
                return Served::Close;
            }
            self.serve_whole(budget, cx);
            if !self.whole.is_empty() || self.has_much_waiting(cx) {
                break true;
            }
            if is_starved || !budget.lasts(cx.output) || cx.service.pace.check_end() {
                break !is_starved && !input.is_empty();
            }
        };
        if !self.long.is_empty() {
            self.long.note_state(if self.whole.is_empty() && self.has_much_waiting(cx) {
                LongState::Full
            } else if has_more || budget.has_more_input {
                LongState::AfterOthers
            } else {
                LongState::Ready
            });
        }
        self.check_invariants();
        self.send_more(cx);
        // Streams that stopped because the output was full have open windows, so no WINDOW_UPDATE will resume them. The
        // result `Busy` makes the event loop call this method again.
        has_more |= self.connection.has_writable() || is_cut_short;
        if self.connection.is_finished() {
            return Served::Close;
        }
        if has_more { Served::Busy } else { Served::Starved }
    }

    /// Returns the state of the queued requests that take long.
    #[must_use]
    pub fn long_state(&self) -> LongState {
        self.long.state()
    }

    /// Whether a job, such as a list, has a step that can run now.
    #[must_use]
    pub fn has_job_step(&self) -> bool {
        !self.jobs.is_empty()
    }

    /// Runs one step of the runnable job that has waited longest.
    pub fn step_job(&mut self, cx: &mut Context<'_>) -> AfterStep {
        let waiting = self.waiting_jobs.len();
        self.step_first_job(cx);
        if self.connection.is_finished() {
            AfterStep::Close
        } else if self.waiting_jobs.len() > waiting {
            AfterStep::Wait
        } else {
            AfterStep::GoOn
        }
    }

    /// Appends the next events of the watch `key` on `stream` to `output`. Returns `None` if this watch is not open.
    pub fn send_events(
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
        let window = self.connection.send_window(stream);
        if !unsent.is_empty() || window == 0 {
            // The stream can send nothing more now. So the watch is parked: it gets no events until the window opens,
            // and the stream is reset if this takes too long.
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
            if !self.make_room_for_unsent(rest.len(), service, output) {
                // The connection may not store the rest, so the watch ends. The client can watch again from the last
                // event that it got.
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

    /// Whether the peer has sent only a part of a frame or of a field block.
    #[must_use]
    pub fn is_within_message(&self, input: &ByteBuf) -> bool {
        !input.is_empty() || self.connection.awaits_continuation()
    }

    /// Returns the earliest deadline, in ms. The deadlines of a partly received frame and of an idle connection count
    /// from `since_ms`. The deadlines of the oldest incomplete request, stalled response and refused body each count
    /// from their own start.
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

    /// Resets the streams past their deadline. Returns whether the connection must close: its own deadline has passed,
    /// or it was closing and its last stream was reset.
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
            // No stream is open, so the second GOAWAY need not wait for the acknowledgement of the PING. If a request
            // is on its way, this GOAWAY tells the peer that the request was not served and can be sent again.
            self.connection.finish_shutdown(output);
        }
    }

    /// Whether no stream is open and no input waits, so that closing the connection loses nothing.
    #[must_use]
    pub fn is_idle(&self, input: &ByteBuf) -> bool {
        self.connection.stream_count() == 0 && input.is_empty()
    }

    /// Drops the requests and responses of all streams.
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
        self.complete_bytes = 0;
        self.waiting_bytes = 0;
        self.unsent_bytes = 0;
    }

    /// Returns the bytes of responses that wait for the flow-control windows of their streams.
    #[must_use]
    pub fn unsent_bytes(&self) -> usize {
        self.unsent_bytes
    }

    /// Returns the bytes of unanswered requests: header fields, also those still encoded, and bodies.
    #[must_use]
    pub fn received_bytes(&self) -> usize {
        self.received_bytes + self.waiting_bytes + self.connection.field_block_octets()
    }

    /// [Releases the memory](crate::api::job::Job::check) of each job in two cases: its deadline has passed, or the
    /// server has revoked its permit (the right to a long response). If the output has no room, or the job waits for
    /// the window of its stream, the job counts as waiting for the peer to read. Then the server may revoke the permit,
    /// and give it to another user.
    pub fn check_jobs(&mut self, now: Now, has_room: bool) {
        for stream in self.streams.iter_mut().flatten() {
            match &mut stream.work {
                Work::Begun(job, _) => job.check(now, !has_room),
                Work::Sending { source: Source::Job(job), stalled_ms, .. } => {
                    job.check(now, !has_room || stalled_ms.is_some());
                }
                Work::Receiving(..) | Work::Sending { .. } | Work::Waiting { .. } => {}
            }
        }
    }

    /// Whether a request or a job waits, for example for the journal.
    #[inline]
    #[must_use]
    pub fn is_waiting(&self) -> bool {
        !self.waiting.is_empty() || !self.waiting_jobs.is_empty()
    }

    /// Whether a job is in progress.
    #[must_use]
    pub fn has_job(&self) -> bool {
        self.jobs_open > 0
    }
}

/// Number of entries that a queue of streams may always have. It may have two more entries for each stream. Before the
/// queue becomes longer, the entries of streams that no longer wait are removed.
const QUEUED_STREAMS_MIN: usize = 64;

// Both protocols have the same limit for the header fields of a request that a client sends directly.
const _: () = assert!(FIELD_LIST_BYTES_MAX == HEAD_BYTES_MAX);
const _: () = assert!(BUFFER_BYTES >= RECV_BUFFER_BYTES_MIN);
// Complete requests are served when more than half of the byte limit is used. One more head or frame must fit in the
// other half.
const _: () = assert!(RECEIVED_BYTES_LOW / 2 >= FIELD_LIST_BYTES_MAX && RECEIVED_BYTES_LOW / 2 >= FRAME_SIZE_MAX);
