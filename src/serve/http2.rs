//! HTTP/2: many requests at once, and many responses that may be long, each within its windows.
//!
//! What a stream still has to send waits here, never more than one piece of it: a list goes on and a watch is filled
//! only when the piece before has gone. So a stream that does not read holds nobody else up, and costs little; of whole
//! bodies no more waits than [`UNSENT_BYTES_MAX`].

use super::http1::Upgrade;
use super::{Budget, Owner, Peer, Served, Service};
use crate::api::Reply;
use crate::api::job::Job;
use crate::api::postponed::Postponed;
use crate::api_error::ApiError;
use crate::buffer::ByteBuf;
use crate::clock::Now;
use crate::hpack::{FieldBuf, FieldName, NameId};
use crate::http::{Body, FieldLines, Method, RequestHead, Response};
use crate::http2::{self, Connection, ErrorCode, Event, SendField, StreamGone, StreamKey};
use crate::limits::{
    BODY_MS_MAX, CONNECTION_BODIES_MAX, HEAD_MS_MAX, IDLE_MS_MAX, JOB_STEPS_PER_TURN, LIST_WHOLE_BYTES_MAX,
    QUEUED_BYTES_HIGH, UNSENT_BYTES_COUNTED, UNSENT_BYTES_MAX, WRITE_STALL_MS_MAX,
};
use crate::table::Table;
use crate::watch::{Fill, WatcherKey, Watchers};
use bytes::{Buf, Bytes};
use std::collections::VecDeque;

/// An HTTP/2 connection.
#[derive(Debug)]
pub struct Http2 {
    connection: Connection,
    /// What is under way, by the streams' slots.
    streams: Vec<Option<Stream>>,
    /// Streams with a job that can go on.
    jobs: VecDeque<StreamKey>,
    /// Streams with a job, also one that cannot.
    jobs_open: usize,
    /// Streams whose requests wait for a change in the cluster.
    postponed: Vec<StreamKey>,
    /// When each request began whose body is awaited, or was when it began; oldest first.
    receiving: VecDeque<(u64, StreamKey)>,
    /// When each response last could not go on for want of a window, or could not then; oldest first.
    stalled: VecDeque<(u64, StreamKey)>,
    /// Bytes of requests whose bodies are not whole: the fields of their heads, and what there is of the bodies.
    received_bytes: usize,
    body_bytes_max: usize,
    /// Bytes that `received_bytes` may reach before the connection ends.
    received_bytes_max: usize,
}

/// What serving a connection needs of everything else.
struct Turn<'t> {
    service: &'t mut Service,
    from: Peer<'t>,
    now: Now,
    output: &'t mut Vec<u8>,
}

/// A stream on which something is under way.
#[derive(Debug)]
struct Stream {
    key: StreamKey,
    work: Work,
}

#[derive(Debug)]
enum Work {
    /// The request waits for a change in the cluster; whether it is a HEAD.
    Postponed(Box<Postponed>, bool),
    /// The head is here; the body is awaited.
    Receiving(http2::RequestHead, Box<Receiving>),
    /// The request is worked on; the response has no head yet.
    Begun(Box<Job>),
    /// The head of the response is out.
    Sending {
        /// The piece that has not gone.
        unsent: Bytes,
        /// Where more comes from.
        source: Source,
        /// Milliseconds since when it waits for a window; none if it does not.
        stalled_ms: Option<u64>,
    },
}

/// What there is of a request whose body is awaited.
#[derive(Debug, Default)]
pub(super) struct Receiving {
    fields: FieldBuf,
    body: Vec<u8>,
}

/// Memory of requests that have been answered, for those that come: of all connections, a few.
#[derive(Debug, Default)]
pub(super) struct Spare(#[expect(clippy::vec_box, reason = "the boxes are what is used again")] Vec<Box<Receiving>>);

impl Spare {
    fn take(&mut self) -> Box<Receiving> {
        self.0.pop().unwrap_or_default()
    }

    fn give(&mut self, mut receiving: Box<Receiving>) {
        if self.0.len() < SPARE_MAX && receiving.body.capacity() <= SPARE_BODY_BYTES_MAX {
            receiving.body.clear();
            self.0.push(receiving);
        }
    }
}

/// As many as one turn can serve of two connections.
const SPARE_MAX: usize = 256;
/// Larger bodies are rare.
const SPARE_BODY_BYTES_MAX: usize = 8 * 1024;

/// Where the rest of a response comes from.
#[derive(Debug)]
enum Source {
    /// There is none: what is unsent is the end.
    End,
    /// A list, or a deletion of a collection.
    Job(Box<Job>),
    /// Events.
    Watch(WatcherKey),
}

impl Http2 {
    /// The server's end of a new connection, which takes bodies of at most `body_bytes_max` on at most `streams_max`
    /// streams at once.
    #[must_use]
    pub fn new(body_bytes_max: usize, streams_max: u32, now: Now, output: &mut Vec<u8>) -> Self {
        let config = http2::Config { streams_max, ..http2::Config::default() };
        Self::of(Connection::server(config, now.ms, output), body_bytes_max)
    }

    /// The server's end of a connection that was HTTP/1.1, with the answer to the request that changed it. `None` if the
    /// client's settings are no good.
    pub(super) fn upgraded(
        upgrade: Upgrade,
        service: &mut Service,
        from: Peer<'_>,
        now: Now,
        output: &mut Vec<u8>,
    ) -> Option<Self> {
        let config = http2::Config::default();
        let (connection, key) = Connection::server_upgraded(config, &upgrade.settings, now.ms, output).ok()?;
        let mut http2 = Self::of(connection, super::body_bytes_max(from.credentials));
        http2.respond(key, upgrade.reply, upgrade.head_only, &mut Turn { service, from, now, output });
        Some(http2)
    }

    fn of(connection: Connection, body_bytes_max: usize) -> Self {
        Self {
            connection,
            streams: Vec::new(),
            jobs: VecDeque::new(),
            jobs_open: 0,
            postponed: Vec::new(),
            receiving: VecDeque::new(),
            stalled: VecDeque::new(),
            received_bytes: 0,
            body_bytes_max,
            received_bytes_max: body_bytes_max.saturating_mul(CONNECTION_BODIES_MAX),
        }
    }

    /// Serves what is in `input` as far as `output` has room and `budget` lasts.
    pub fn serve(
        &mut self,
        service: &mut Service,
        from: Peer<'_>,
        now: Now,
        input: &mut ByteBuf,
        output: &mut Vec<u8>,
        budget: &mut Budget,
    ) -> Served {
        let mut has_more = false;
        let turn = &mut Turn { service, from, now, output };
        self.resume(turn);
        loop {
            if turn.output.len() >= QUEUED_BYTES_HIGH {
                return Served::Busy;
            }
            if budget.requests == 0 {
                has_more = !input.is_empty();
                break;
            }
            let fields = &mut turn.service.scratch.fields;
            let received = match self.connection.recv(input.filled(), now.ms, fields, turn.output) {
                Ok(received) => received,
                Err(error) => {
                    tracing::debug!(%error, "HTTP/2 connection ends");
                    turn.service.api.metrics.count_malformed_request();
                    self.remove_watchers(&mut turn.service.watchers);
                    self.streams.clear();
                    return Served::Close;
                }
            };
            let is_last = received.event.is_none();
            if let Some(event) = received.event {
                self.on_event(event, turn, budget);
            }
            input.consume(received.consumed);
            if is_last {
                break;
            }
        }
        self.send_more(turn);
        if turn.output.len() >= QUEUED_BYTES_HIGH {
            return Served::Busy;
        }
        has_more |= self.step_jobs(turn);
        if self.connection.is_finished() {
            return Served::Close;
        }
        if has_more { Served::Busy } else { Served::Starved }
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
        let Work::Sending { unsent, source: source @ Source::Watch(_), stalled_ms } =
            work_mut(&mut self.streams, stream)?
        else {
            return None;
        };
        if !matches!(source, Source::Watch(own) if *own == key) {
            return None;
        }
        let room = self.connection.send_room(stream);
        if !unsent.is_empty() || room == 0 {
            // When its window opens it is filled again; until then it is left alone, for a while.
            self.connection.want_write(stream);
            service.watchers.park(key);
            if stalled_ms.is_none() {
                *stalled_ms = Some(now.ms);
                self.queue_stalled(stream, now);
            }
            return Some(Fill::Idle);
        }
        let events = &mut service.scratch.body;
        events.clear();
        let bytes_max = room.min(QUEUED_BYTES_HIGH.saturating_sub(output.len()));
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
            *unsent = Bytes::copy_from_slice(&events[sent..]);
            *stalled_ms = Some(now.ms);
            self.queue_stalled(stream, now);
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
    /// request without its body, the oldest response without a window, or a connection without streams.
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
    }

    /// Resets the streams that have had their time. Whether it is the connection that has.
    pub fn on_timeout(&mut self, service: &mut Service, now: Now, output: &mut Vec<u8>) -> bool {
        let mut is_about_a_stream = false;
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
        !is_about_a_stream
    }

    /// Tells the peer to open no more streams, and ends watches with 410.
    pub fn on_shutdown(&mut self, service: &mut Service, output: &mut Vec<u8>) {
        self.connection.begin_shutdown(output);
        for at in 0..self.streams.len() {
            let Some(Stream { key, work: Work::Sending { unsent, source, .. } }) =
                self.streams.get_mut(at).and_then(Option::as_mut)
            else {
                continue;
            };
            let Source::Watch(watcher) = source else { continue };
            let mut last = Vec::from(std::mem::take(unsent));
            service.watchers.end_for_shutdown(*watcher, &mut last);
            *source = Source::End;
            let key = *key;
            let sent = self.connection.send_data(key, &last, true, output);
            match sent {
                Ok(sent) if sent < last.len() => *unsent = Bytes::from(last).slice(sent..),
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

    /// Takes out the watchers of all streams.
    pub fn remove_watchers(&mut self, watchers: &mut Watchers<Owner>) {
        for stream in self.streams.iter().flatten() {
            if let Work::Sending { source: Source::Watch(key), .. } = stream.work {
                watchers.remove(key);
            }
        }
    }

    /// Keeps what jobs under way need, before the log forgets it.
    pub fn absorb(&mut self, table: &Table) {
        for stream in self.streams.iter_mut().flatten() {
            if let Work::Begun(job) | Work::Sending { source: Source::Job(job), .. } = &mut stream.work {
                job.absorb(table);
            }
        }
    }

    /// Whether a request waits for a change in the cluster.
    #[must_use]
    pub fn is_postponed(&self) -> bool {
        !self.postponed.is_empty()
    }

    /// Whether a job is under way.
    #[must_use]
    pub fn has_job(&self) -> bool {
        self.jobs_open > 0
    }

    fn on_event(&mut self, event: Event<'_>, turn: &mut Turn<'_>, budget: &mut Budget) {
        match event {
            Event::Request { stream, head, end_stream } => {
                budget.requests -= 1;
                if end_stream {
                    let fields = std::mem::take(&mut turn.service.scratch.fields);
                    self.dispatch(stream, &fields, head, &mut [], turn);
                    turn.service.scratch.fields = fields;
                } else {
                    self.on_head(stream, head, turn);
                }
            }
            Event::Data { stream, data, end_stream } => self.on_data(stream, data, end_stream, turn),
            Event::Trailers { stream } => self.on_data(stream, &[], true, turn),
            Event::Reset { stream, .. } => self.on_reset(stream, turn.service),
            // The streams that are open go on; and we send no PING whose answer would matter.
            Event::Goaway { .. } | Event::Pong { .. } => {}
            Event::Response { .. } => debug_assert!(false, "only a client gets responses"),
        }
    }

    /// A head whose body follows.
    fn on_head(&mut self, key: StreamKey, head: http2::RequestHead, turn: &mut Turn<'_>) {
        let is_too_large = head
            .content_length
            .is_some_and(|bytes| usize::try_from(bytes).is_ok_and(|bytes| bytes > self.body_bytes_max));
        if is_too_large {
            return self.refuse_body(key, turn);
        }
        let fields = &turn.service.scratch.fields;
        if fields.iter().any(|field| field.id == NameId::EXPECT && field.value.eq_ignore_ascii_case(b"100-continue")) {
            let _ = self.connection.send_head(key, 100, &[], false, turn.output);
        }
        // Heads count too: a few bytes on the wire can name a long list out of the dynamic table.
        self.received_bytes += fields.list_size();
        if self.received_bytes > self.received_bytes_max {
            self.connection.abort(ErrorCode::ENHANCE_YOUR_CALM, turn.output);
        }
        let mut receiving = turn.service.scratch.spare.take();
        std::mem::swap(&mut receiving.fields, &mut turn.service.scratch.fields);
        self.put(key, Work::Receiving(head, receiving));
        self.queue_receiving(key, turn.now);
    }

    fn on_data(&mut self, key: StreamKey, data: &[u8], end_stream: bool, turn: &mut Turn<'_>) {
        // Data on a stream that was answered early is of no use any more.
        let Some(Work::Receiving(_, receiving)) = work_mut(&mut self.streams, key) else { return };
        if receiving.body.len() + data.len() > self.body_bytes_max {
            self.take_receiving(key);
            return self.refuse_body(key, turn);
        }
        if self.received_bytes + data.len() > self.received_bytes_max {
            self.connection.abort(ErrorCode::ENHANCE_YOUR_CALM, turn.output);
            return;
        }
        receiving.body.extend_from_slice(data);
        self.received_bytes += data.len();
        if end_stream && let Some((head, mut receiving)) = self.take_receiving(key) {
            let Receiving { fields, body } = &mut *receiving;
            self.dispatch(key, fields, head, body, turn);
            turn.service.scratch.spare.give(receiving);
        }
    }

    /// The peer wants no answer, or did wrong on the stream.
    fn on_reset(&mut self, key: StreamKey, service: &mut Service) {
        if self.take_receiving(key).is_some() {
            return;
        }
        if let Some(Work::Sending { source: Source::Watch(watcher), .. }) = work_mut(&mut self.streams, key) {
            service.watchers.remove(*watcher);
        }
        self.forget(key);
    }

    /// Serves a request that is whole.
    fn dispatch(
        &mut self,
        key: StreamKey,
        fields: &FieldBuf,
        head: http2::RequestHead,
        body: &mut [u8],
        turn: &mut Turn<'_>,
    ) {
        let lines = Lines { fields, head };
        let Ok(target) = std::str::from_utf8(head.path(fields)) else {
            let error = ApiError::BadRequest { message: "the request target is not UTF-8".into() };
            let reply = Reply::Response(Response::from_error(&error));
            return self.respond(key, reply, false, turn);
        };
        let (path, query) = target.split_once('?').unwrap_or((target, ""));
        let mut request = RequestHead {
            method: Method::from_bytes(head.method(fields)),
            path,
            query,
            accept: None,
            content_type: None,
            user_agent: None,
            fields: &lines,
        };
        for field in head.regular_fields(fields) {
            match field.id {
                NameId::ACCEPT => _ = request.accept.get_or_insert(field.value),
                NameId::CONTENT_TYPE => _ = request.content_type.get_or_insert(field.value),
                NameId::USER_AGENT => _ = request.user_agent.get_or_insert(field.value),
                _ => {}
            }
        }
        let head_only = request.method == Method::Head;
        let reply = turn.service.api.handle(&mut turn.service.table, &request, body, turn.from.credentials, turn.now);
        self.respond(key, reply, head_only, turn);
    }

    /// Goes on with requests that were postponed.
    fn resume(&mut self, turn: &mut Turn<'_>) {
        for key in std::mem::take(&mut self.postponed) {
            let Some(stream) = self.streams.get_mut(key.slot()).and_then(|place| place.take_if(|s| s.key == key))
            else {
                continue;
            };
            let Work::Postponed(postponed, head_only) = stream.work else {
                self.put(key, stream.work);
                continue;
            };
            match turn.service.api.resume(&mut turn.service.table, postponed, turn.now) {
                Ok(reply) => self.respond(key, reply, head_only, turn),
                Err(postponed) => {
                    self.put(key, Work::Postponed(postponed, head_only));
                    self.postponed.push(key);
                }
            }
        }
    }

    /// Sends a response, or what of it can be sent now.
    fn respond(&mut self, key: StreamKey, reply: Reply, head_only: bool, turn: &mut Turn<'_>) {
        // The stream may be gone by now; then there is nobody to tell.
        let _ = match reply {
            Reply::Response(response) => self.send_response(key, &response, head_only, turn),
            Reply::Job(job) => self.start_job(key, job, head_only, turn),
            Reply::Postponed(postponed) => match turn.service.postpone(postponed, turn.from.connection, turn.now) {
                Ok(postponed) => {
                    self.put(key, Work::Postponed(postponed, head_only));
                    self.postponed.push(key);
                    Ok(())
                }
                Err(reply) => return self.respond(key, reply, head_only, turn),
            },
            Reply::Watch(spec) => {
                let response = Response::new(200, spec.form.stream_content_type(), Body::default());
                let sent = self.send_head(key, &response, None, head_only, turn);
                if sent.is_ok() && !head_only {
                    let owner = Owner { connection: turn.from.connection, stream: Some(key) };
                    turn.service.api.metrics.count_watch();
                    let watcher = turn.service.watchers.add(owner, *spec, turn.now);
                    self.put_sending(key, Bytes::new(), Source::Watch(watcher));
                }
                sent
            }
        };
    }

    fn send_response(
        &mut self,
        key: StreamKey,
        response: &Response,
        head_only: bool,
        turn: &mut Turn<'_>,
    ) -> Result<(), StreamGone> {
        let mut scratch = std::mem::take(&mut turn.service.scratch.body);
        let body = response.body.bytes(&mut scratch);
        let sent = self.send_whole(key, response, body, head_only, turn);
        if let Ok(sent) = sent
            && sent < body.len()
        {
            self.put_unsent(key, response.body.rest(body, sent), turn);
        }
        turn.service.scratch.body = scratch;
        sent.map(|_| ())
    }

    /// Keeps what the windows do not let through yet, unless too much is kept already.
    fn put_unsent(&mut self, key: StreamKey, rest: Bytes, turn: &mut Turn<'_>) {
        if rest.len() >= UNSENT_BYTES_COUNTED {
            let unsent = |stream: &Stream| match &stream.work {
                Work::Sending { unsent, .. } => unsent.len(),
                Work::Begun(_) | Work::Receiving(..) | Work::Postponed(..) => 0,
            };
            let unsent_bytes: usize = self.streams.iter().flatten().map(unsent).sum();
            if unsent_bytes + rest.len() > UNSENT_BYTES_MAX {
                self.connection.reset(key, ErrorCode::ENHANCE_YOUR_CALM, turn.output);
                return;
            }
        }
        self.put_sending(key, rest, Source::End);
        self.stall(key, turn.now);
    }

    /// Sends head and body, as far as the windows are open. Gives the bytes of the body that went out.
    fn send_whole(
        &mut self,
        key: StreamKey,
        response: &Response,
        body: &[u8],
        head_only: bool,
        turn: &mut Turn<'_>,
    ) -> Result<usize, StreamGone> {
        let is_end = head_only || body.is_empty();
        self.send_head(key, response, Some(body.len()), is_end, turn)?;
        if is_end { Ok(body.len()) } else { self.connection.send_data(key, body, true, turn.output) }
    }

    fn start_job(
        &mut self,
        key: StreamKey,
        mut job: Box<Job>,
        head_only: bool,
        turn: &mut Turn<'_>,
    ) -> Result<(), StreamGone> {
        let mut body = Vec::new();
        // No more than the windows let through, or a client that opens none would have much kept for it.
        let bytes_max = self.connection.send_room(key).clamp(PIECE_BYTES_MIN, LIST_WHOLE_BYTES_MAX);
        let stepped = job.step(&mut turn.service.table, turn.now, &mut body, bytes_max);
        let is_whole = !matches!(stepped, Ok(false));
        let response = match stepped {
            Ok(false) if !job.has_head() => {
                self.put(key, Work::Begun(job));
                self.jobs_open += 1;
                self.jobs.push_back(key);
                return Ok(());
            }
            Ok(false) => job.head(),
            Ok(true) => Response { body: std::mem::take(&mut body).into(), ..job.head() },
            Err(error) => job.refusal(error),
        };
        let (kind, version) = job.counts_as();
        turn.service.api.metrics.count_request(kind, version, response.status);
        if is_whole {
            return self.send_response(key, &response, head_only, turn);
        }
        self.send_head(key, &response, None, head_only, turn)?;
        if !head_only {
            if !body.is_empty() {
                let sent = self.connection.send_data(key, &body, false, turn.output)?;
                body.drain(..sent);
            }
            let is_stalled = !body.is_empty();
            self.put_sending(key, body.into(), Source::Job(job));
            self.jobs_open += 1;
            if is_stalled {
                self.stall(key, turn.now);
            } else {
                self.jobs.push_back(key);
            }
        }
        Ok(())
    }

    fn send_head(
        &mut self,
        key: StreamKey,
        response: &Response,
        length: Option<usize>,
        is_end: bool,
        turn: &mut Turn<'_>,
    ) -> Result<(), StreamGone> {
        let content_type = SendField::repeated(CONTENT_TYPE, response.content_type.as_str().as_bytes());
        let cache_control = SendField::repeated(CACHE_CONTROL, response.cache_control.as_bytes());
        let date = SendField::repeated(DATE, turn.service.date.as_bytes());
        let mut buffer = itoa::Buffer::new();
        let length = length.map(|length| SendField::repeated(CONTENT_LENGTH, buffer.format(length).as_bytes()));
        if response.has_plain_head() {
            let fields = [cache_control, content_type, date];
            return match length {
                None => self.connection.send_head(key, response.status, &fields, is_end, turn.output),
                Some(length) => {
                    let [cache_control, content_type, date] = fields;
                    let fields = [cache_control, content_type, date, length];
                    self.connection.send_head(key, response.status, &fields, is_end, turn.output)
                }
            };
        }
        let warnings: Vec<_> =
            response.warnings.iter().map(|warning| warning.replace(|c: char| c.is_ascii_control(), "")).collect();
        let retry_after = response.retry_after_seconds.to_string();
        let mut fields = vec![cache_control, date];
        if response.has_content_fields() {
            fields.push(content_type);
            fields.extend(length);
        }
        let further = response.fields.iter();
        fields
            .extend(further.map(|(name, value)| SendField::varying(FieldName::new(name.as_bytes()), value.as_bytes())));
        fields.extend(warnings.iter().map(|warning| SendField::varying(WARNING, warning.as_bytes())));
        if response.retry_after_seconds != 0 {
            fields.push(SendField::varying(RETRY_AFTER, retry_after.as_bytes()));
        }
        self.connection.send_head(key, response.status, &fields, is_end, turn.output)
    }

    /// Answers a body that is longer than is taken; the rest of it is not wanted (RFC 9113 §8.1).
    #[cold]
    fn refuse_body(&mut self, key: StreamKey, turn: &mut Turn<'_>) {
        let error = ApiError::RequestEntityTooLarge { bytes_max: self.body_bytes_max };
        let response = Response::from_error(&error);
        let mut scratch = Vec::new();
        let _ = self.send_whole(key, &response, response.body.bytes(&mut scratch), false, turn);
        self.connection.reset(key, ErrorCode::NO_ERROR, turn.output);
    }

    /// Sends what waited for windows that are open now.
    fn send_more(&mut self, turn: &mut Turn<'_>) {
        while turn.output.len() < QUEUED_BYTES_HIGH
            && let Some(key) = self.connection.poll_writable()
        {
            let Some(Work::Sending { unsent, source, stalled_ms }) = work_mut(&mut self.streams, key) else { continue };
            *stalled_ms = None;
            if !unsent.is_empty() {
                let is_end = matches!(source, Source::End);
                let Ok(sent) = self.connection.send_data(key, unsent, is_end, turn.output) else {
                    self.on_reset(key, turn.service);
                    continue;
                };
                unsent.advance(sent);
                if !unsent.is_empty() {
                    self.stall(key, turn.now);
                    continue;
                }
            }
            match source {
                Source::End => self.forget(key),
                Source::Job(_) => self.jobs.push_back(key),
                Source::Watch(watcher) => turn.service.watchers.unpark(*watcher),
            }
        }
    }

    /// One step of each job that can go on. Whether there are more.
    fn step_jobs(&mut self, turn: &mut Turn<'_>) -> bool {
        for _ in 0..self.jobs.len().min(JOB_STEPS_PER_TURN) {
            if turn.output.len() >= QUEUED_BYTES_HIGH {
                break;
            }
            let Some(key) = self.jobs.pop_front() else { break };
            if let Some(job) = self.take_begun(key) {
                // The stream may be gone by now; then there is nobody to tell.
                let _ = self.start_job(key, job, false, turn);
                continue;
            }
            let Some(Work::Sending { unsent, source: source @ Source::Job(_), .. }) = work_mut(&mut self.streams, key)
            else {
                continue;
            };
            let Source::Job(job) = source else { continue };
            let room = self.connection.send_room(key);
            if room == 0 {
                self.connection.want_write(key);
                self.stall(key, turn.now);
                continue;
            }
            let piece = &mut turn.service.scratch.body;
            piece.clear();
            let Ok(is_done) = job.step(&mut turn.service.table, turn.now, piece, room.min(QUEUED_BYTES_HIGH)) else {
                // The body cannot be finished; a reset is the way to say so.
                self.cancel(key, turn.service, turn.output);
                continue;
            };
            if is_done {
                *source = Source::End;
                self.jobs_open -= 1;
            } else if piece.is_empty() {
                self.jobs.push_back(key);
                continue;
            }
            let Ok(sent) = self.connection.send_data(key, piece, is_done, turn.output) else {
                self.on_reset(key, turn.service);
                continue;
            };
            if sent < piece.len() {
                *unsent = Bytes::copy_from_slice(&piece[sent..]);
                self.stall(key, turn.now);
            } else if is_done {
                self.forget(key);
            } else {
                self.jobs.push_back(key);
            }
        }
        !self.jobs.is_empty()
    }

    /// Takes note that a response waits for a window from now on.
    fn stall(&mut self, key: StreamKey, now: Now) {
        if let Some(Work::Sending { stalled_ms, .. }) = work_mut(&mut self.streams, key) {
            *stalled_ms = Some(now.ms);
            self.queue_stalled(key, now);
        }
    }

    /// A stream whose window is opened an octet at a time stands in the queue each time that it stalls anew; those that
    /// stand for nothing any more are swept out before they are many.
    fn queue_stalled(&mut self, key: StreamKey, now: Now) {
        if self.stalled.len() >= QUEUED_STREAMS_MIN + 2 * self.streams.len() {
            let streams = &mut self.streams;
            self.stalled.retain(|(since_ms, key)| {
                let work = work_mut(streams, *key);
                matches!(work, Some(Work::Sending { stalled_ms: Some(stalled_ms), .. }) if stalled_ms == since_ms)
            });
        }
        self.stalled.push_back((now.ms, key));
    }

    /// The same for requests that are whole while the first in line is not.
    fn queue_receiving(&mut self, key: StreamKey, now: Now) {
        if self.receiving.len() >= QUEUED_STREAMS_MIN + 2 * self.streams.len() {
            let streams = &mut self.streams;
            self.receiving.retain(|(_, key)| matches!(work_mut(streams, *key), Some(Work::Receiving(..))));
        }
        self.receiving.push_back((now.ms, key));
    }

    /// Resets a stream that has had its time, or whose response cannot be finished.
    fn cancel(&mut self, key: StreamKey, service: &mut Service, output: &mut Vec<u8>) {
        self.connection.reset(key, ErrorCode::CANCEL, output);
        self.on_reset(key, service);
    }

    fn put_sending(&mut self, key: StreamKey, unsent: Bytes, source: Source) {
        self.put(key, Work::Sending { unsent, source, stalled_ms: None });
    }

    fn put(&mut self, key: StreamKey, work: Work) {
        if self.streams.len() <= key.slot() {
            self.streams.resize_with(key.slot() + 1, || None);
        }
        self.streams[key.slot()] = Some(Stream { key, work });
    }

    /// Takes a request that is whole, or of no interest any more, from its stream.
    fn take_receiving(&mut self, key: StreamKey) -> Option<(http2::RequestHead, Box<Receiving>)> {
        if !matches!(work_mut(&mut self.streams, key), Some(Work::Receiving(..))) {
            return None;
        }
        let Some(Stream { work: Work::Receiving(head, receiving), .. }) = self.streams.get_mut(key.slot())?.take()
        else {
            return None;
        };
        self.received_bytes -= receiving.body.len() + receiving.fields.list_size();
        // Whoever is first in line and done is not waited for.
        while let Some((_, first)) = self.receiving.front()
            && !matches!(self.streams.get(first.slot()), Some(Some(Stream { key, work: Work::Receiving(..) })) if key == first)
        {
            self.receiving.pop_front();
        }
        Some((head, receiving))
    }

    /// Takes a job whose response has no head from its stream.
    fn take_begun(&mut self, key: StreamKey) -> Option<Box<Job>> {
        if !matches!(work_mut(&mut self.streams, key), Some(Work::Begun(_))) {
            return None;
        }
        let Some(Stream { work: Work::Begun(job), .. }) = self.streams.get_mut(key.slot())?.take() else {
            return None;
        };
        self.jobs_open -= 1;
        Some(job)
    }

    fn forget(&mut self, key: StreamKey) {
        if let Some(place) = self.streams.get_mut(key.slot())
            && place.as_ref().is_some_and(|stream| stream.key == key)
            && let Some(Stream { work: Work::Begun(_) | Work::Sending { source: Source::Job(_), .. }, .. }) =
                place.take()
        {
            self.jobs_open -= 1;
        }
    }
}

/// What is under way on a stream.
fn work_mut(streams: &mut [Option<Stream>], key: StreamKey) -> Option<&mut Work> {
    let stream = streams.get_mut(key.slot())?.as_mut()?;
    (stream.key == key).then_some(&mut stream.work)
}

/// The regular fields of a head, for those that look at all of them.
struct Lines<'f> {
    fields: &'f FieldBuf,
    head: http2::RequestHead,
}

impl FieldLines for Lines<'_> {
    fn for_each(&self, each: &mut dyn FnMut(&[u8], &[u8])) {
        for field in self.head.regular_fields(self.fields) {
            each(field.name, field.value);
        }
    }
}

/// Streams that may stand in a queue for nothing, beside as many as twice those that are open.
const QUEUED_STREAMS_MIN: usize = 64;

/// Bytes of a list that are made however small the window is.
const PIECE_BYTES_MIN: usize = 16 * 1024;

const CACHE_CONTROL: FieldName<'static> = FieldName::new(b"cache-control");
const CONTENT_LENGTH: FieldName<'static> = FieldName::new(b"content-length");
const CONTENT_TYPE: FieldName<'static> = FieldName::new(b"content-type");
const DATE: FieldName<'static> = FieldName::new(b"date");
const RETRY_AFTER: FieldName<'static> = FieldName::new(b"retry-after");
const WARNING: FieldName<'static> = FieldName::new(b"warning");
