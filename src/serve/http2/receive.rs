//! Receives requests: collects heads and bodies until a request is complete, and passes it to the API.
//!
//! A few complete requests are queued before the first of them is served. So the server can prefetch the Leases of all
//! of them into the processor's caches (`table::prefetch`). A queued request is not served if its stream is reset or
//! its connection fails.

use super::streams::{Source, StreamWork, Work, work_mut};
use super::{Http2, QUEUED_STREAMS_MIN};
use crate::api::Reply;
use crate::api::waiting::{Resumed, Retry, Waiting};
use crate::api_error::ApiError;
use crate::buffer::ByteBuf;
use crate::clock::Now;
use crate::form::Response;
use crate::hpack::{FieldBuf, NameId};
use crate::http::{FieldLines, Method, RequestHead, split_query};
use crate::http2::limits::{FIELD_LIST_BYTES_MAX, STREAMS_MAX};
use crate::http2::{self, ConnectionError, ErrorCode, Event, StreamKey};
use crate::limits::{BODY_BYTES_MAX, CONNECTION_BODIES_MAX, LINGER_MS_MAX};
use crate::schedule::Budget;
use crate::serve::{self, Context, Service};
use crate::table::PREFETCH_MAX;
use std::hint::black_box;

/// The received part of a request that is not served yet.
#[derive(Debug, Default)]
pub(super) struct Unserved {
    fields: FieldBuf,
    body: Vec<u8>,
}

impl Unserved {
    /// Returns the size of the request, as [`Http2::received_bytes`] counts it.
    pub(super) fn bytes(&self) -> usize {
        self.fields.list_size() + self.body.len()
    }
}

/// The head and body of a waiting request that the server may have to serve again.
#[derive(Debug)]
pub(super) struct Kept {
    head: http2::RequestHead,
    unserved: Box<Unserved>,
}

impl Kept {
    fn is_head(&self) -> bool {
        Method::from_bytes(self.head.method(&self.unserved.fields)) == Method::Head
    }
}

/// Memory of answered requests: head fields and bodies. New requests of all connections reuse this memory.
#[derive(Debug, Default)]
pub(in crate::serve) struct Spare(
    #[expect(clippy::vec_box, reason = "the boxes are what is used again")] Vec<Box<Unserved>>,
);

impl Spare {
    fn take(&mut self) -> Box<Unserved> {
        self.0.pop().unwrap_or_default()
    }

    fn give(&mut self, mut unserved: Box<Unserved>) {
        if self.0.len() < SPARE_MAX && unserved.body.capacity() <= SPARE_BODY_BYTES_MAX {
            unserved.body.clear();
            if unserved.fields.memory_bytes() > SPARE_FIELDS_BYTES_MAX {
                unserved.fields = FieldBuf::new();
            }
            self.0.push(unserved);
        }
    }
}

/// Maximum number of spare buffers. Few are needed: a complete request soon returns its buffer, and only a request that
/// waits for its body uses a buffer for long.
const SPARE_MAX: usize = 256;
/// Maximum size of a body buffer that is kept for reuse, in bytes; larger bodies are rare.
const SPARE_BODY_BYTES_MAX: usize = 8 * 1024;
/// Maximum size of a field list that is kept for reuse, in bytes; longer lists are rare.
const SPARE_FIELDS_BYTES_MAX: usize = 8 * 1024;
/// Maximum size of an ordinary head, in bytes. A front proxy's request with a longer head and no body may wait only
/// within a quarter of the connection's byte limit (`may_wait_with`). Even if this quarter is used up, and each stream
/// has an ordinary head, bytes remain for writes.
const PLAIN_HEAD_BYTES_MAX: usize = 4 * 1024;
const _: () = assert!(
    STREAMS_MAX as usize * PLAIN_HEAD_BYTES_MAX + BODY_BYTES_MAX * CONNECTION_BODIES_MAX / 4
        < BODY_BYTES_MAX * CONNECTION_BODIES_MAX
);

/// A complete request to serve.
#[derive(Debug)]
pub(super) struct Whole {
    key: StreamKey,
    head: http2::RequestHead,
    unserved: Box<Unserved>,
    /// State that earlier attempts to serve the request left for the next attempt; `None` at the first attempt.
    retry: Option<Retry>,
}

impl Whole {
    /// Returns the stream of the request.
    pub(super) fn key(&self) -> StreamKey {
        self.key
    }

    /// Returns the size of the request, as [`Http2::received_bytes`] counts it.
    pub(super) fn received_bytes(&self) -> usize {
        self.unserved.bytes()
    }

    /// Returns the target of the request and the length of its body.
    pub(super) fn target_and_body_bytes(&self) -> (&[u8], usize) {
        (self.head.path(&self.unserved.fields), self.unserved.body.len())
    }
}

impl Http2 {
    /// Reads frames until enough requests are complete to serve together, or until `budget` is used up. Returns
    /// whether more input is needed.
    pub(super) fn recv_requests(
        &mut self,
        input: &mut ByteBuf,
        budget: &mut Budget,
        cx: &mut Context<'_>,
    ) -> Result<bool, ConnectionError> {
        while budget.lasts(cx.output) && !self.has_enough(cx) {
            let fields = &mut cx.service.scratch.fields;
            let received = self.connection.recv(input.filled(), cx.now.ms, fields, cx.output)?;
            let is_starved = received.event.is_none();
            if let Some(event) = received.event {
                budget.requests -= usize::from(matches!(event, Event::Request { .. }));
                self.recv_event(event, cx);
            }
            input.consume(received.consumed);
            if is_starved {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Whether to serve the complete requests before reading more: there are as many as the table prefetches together,
    /// or they have many bytes.
    fn has_enough(&self, cx: &Context<'_>) -> bool {
        self.whole.len() >= PREFETCH_MAX || self.has_much_waiting(cx)
    }

    /// Whether the complete requests have so many bytes that no further requests are read. Incomplete requests do not
    /// count: at the limit, the largest of them is refused.
    pub(super) fn has_much_waiting(&self, cx: &Context<'_>) -> bool {
        self.complete_bytes > cx.service.received_bytes_max(cx.from.credentials) / 2
    }

    /// Queues a complete request.
    fn push_whole(&mut self, whole: Whole) {
        self.complete_bytes += whole.received_bytes();
        self.whole.push_back(whole);
    }

    /// Handles one event of the HTTP/2 connection.
    fn recv_event(&mut self, event: Event<'_>, cx: &mut Context<'_>) {
        match event {
            Event::Request { stream, head, end_stream } => self.on_head(stream, head, end_stream, cx),
            Event::Data { stream, data, end_stream } => self.on_data(stream, data, end_stream, cx),
            Event::Trailers { stream } => self.on_data(stream, &[], true, cx),
            Event::Reset { stream, .. } => self.on_reset(stream, cx.service),
            // After its GOAWAY, the peer opens no more streams. Open streams continue.
            Event::Goaway { .. } => {}
            Event::Response { .. } => debug_assert!(false, "only a client gets responses"),
        }
    }

    fn on_head(&mut self, key: StreamKey, head: http2::RequestHead, end_stream: bool, cx: &mut Context<'_>) {
        if head.content_length.is_some_and(|bytes| bytes > self.body_bytes_max as u64) {
            let fields = std::mem::take(&mut cx.service.scratch.fields);
            self.refuse(key, head, &fields, &self.too_large(), cx);
            cx.service.scratch.fields = fields;
            return;
        }
        let fields = &cx.service.scratch.fields;
        let is_continue = |value: &[u8]| value.eq_ignore_ascii_case(b"100-continue");
        // A front proxy (kube-apiserver) sends the body without waiting for a 100 (Continue). It would forward a 100 to
        // its own client, and then change the status of the final response to 200.
        let is_asked = !end_stream && !cx.from.credentials.is_front_proxy();
        if is_asked && fields.iter().any(|field| field.id == NameId::EXPECT && is_continue(field.value)) {
            let _ = self.connection.send_head(key, 100, &[], false, cx.output);
        }
        // Header fields count too: a few bytes on the wire can stand for a long field list from HPACK's dynamic table.
        self.received_bytes += fields.list_size();
        let mut unserved = cx.service.scratch.spare.take();
        std::mem::swap(&mut unserved.fields, &mut cx.service.scratch.fields);
        // There may be many anonymous peers, so their requests keep no spare memory.
        let is_anonymous = cx.from.credentials.is_anonymous();
        unserved.fields.trim(if is_anonymous { 0 } else { SPARE_FIELDS_BYTES_MAX });
        if end_stream {
            self.push_whole(Whole { key, head, unserved, retry: None });
        } else {
            self.put(key, Work::Receiving(head, unserved));
            self.queue_receiving(key, cx.now);
            self.refuse_largest_over_limit(key, 0, cx);
        }
    }

    fn on_data(&mut self, key: StreamKey, data: &[u8], end_stream: bool, cx: &mut Context<'_>) {
        // The server may have responded before the whole request arrived, for example to refuse it. Further data on the
        // stream is then useless.
        let Some(Work::Receiving(_, unserved)) = work_mut(&mut self.streams, key) else { return };
        if unserved.body.len() + data.len() > self.body_bytes_max {
            return self.refuse_body(key, &self.too_large(), cx);
        }
        self.refuse_largest_over_limit(key, data.len(), cx);
        let Some(Work::Receiving(_, unserved)) = work_mut(&mut self.streams, key) else { return };
        unserved.body.extend_from_slice(data);
        self.received_bytes += data.len();
        if end_stream && let Some((head, unserved)) = self.take_receiving(key) {
            self.push_whole(Whole { key, head, unserved, retry: None });
        }
    }

    /// Drops the request or response of a stream that was reset, by the peer or by this server.
    pub(super) fn on_reset(&mut self, key: StreamKey, service: &mut Service) {
        if let Some(Work::Sending { source: Source::Watch(watcher), .. }) = work_mut(&mut self.streams, key) {
            service.watchers.remove(*watcher);
        }
        self.forget(key);
        self.sweep_long();
    }

    /// Serves the complete requests until the output is full or the time budget is used up.
    pub(super) fn serve_whole(&mut self, budget: &Budget, cx: &mut Context<'_>) {
        let bytes_max = budget.output_bytes_max;
        if cx.output.len() < bytes_max && !cx.from.credentials.is_anonymous() {
            self.prefetch_whole(cx);
        }
        while cx.output.len() < bytes_max
            && !cx.service.pace.check_end()
            && let Some(whole) = self.whole.pop_front()
        {
            // The server refuses nearly every request of an anonymous peer, in microseconds. So none of them is long.
            let whole = match cx.from.credentials.is_anonymous() {
                true => Some(whole),
                false => self.long.sort_out(whole, &cx.service.table),
            };
            if let Some(whole) = whole {
                self.serve_one(whole, cx);
            }
        }
    }

    /// Serves a complete request. Returns false if the stream was reset, so that there was nothing to serve.
    pub(super) fn serve_one(&mut self, whole: Whole, cx: &mut Context<'_>) -> bool {
        self.complete_bytes -= whole.received_bytes();
        let Whole { key, head, unserved, retry } = whole;
        let is_open = self.connection.has_stream(key);
        if is_open {
            let Unserved { fields, body, .. } = &*unserved;
            if let Some(waiting) = self.call_and_respond(key, fields, head, body, retry, cx) {
                self.waiting.add(key, &waiting);
                let bytes = unserved.bytes();
                self.received_bytes -= bytes;
                self.waiting_bytes += bytes;
                let kept = if waiting.needs_request() {
                    Some(Box::new(Kept { head, unserved }))
                } else {
                    cx.service.scratch.spare.give(unserved);
                    None
                };
                self.put(key, Work::Waiting { waiting, bytes, kept });
                return true;
            }
        }
        self.give_back(unserved, cx);
        is_open
    }

    /// Subtracts a served request from `received_bytes`, and makes its memory available for other requests.
    #[inline]
    fn give_back(&mut self, unserved: Box<Unserved>, cx: &mut Context<'_>) {
        self.received_bytes -= unserved.bytes();
        cx.service.scratch.spare.give(unserved);
    }

    /// Prefetches the Leases of the complete requests.
    fn prefetch_whole(&self, cx: &Context<'_>) {
        if self.whole.len() < 2 {
            return;
        }
        let table = &cx.service.table;
        let key = |Whole { head, unserved, .. }: &Whole| serve::prefetch_key_of(head.path(&unserved.fields), table);
        table.prefetch(self.whole.iter().filter_map(key));
    }

    /// Checks, in debug builds, the counts of received, waiting and unsent bytes against the streams. With many streams
    /// the check is skipped, because tests would take minutes.
    pub(super) fn check_invariants(&self) {
        if cfg!(debug_assertions) && self.streams.len() < 200 {
            let receiving = self.streams.iter().flatten().map(|stream| match &stream.work {
                Work::Receiving(_, unserved) => unserved.bytes(),
                _ => 0,
            });
            let complete = self.whole.iter().chain(self.long.iter()).map(|whole| whole.unserved.bytes());
            assert_eq!(complete.sum::<usize>(), self.complete_bytes, "bytes of complete requests");
            let unserved_bytes = receiving.sum::<usize>() + self.complete_bytes;
            assert_eq!(unserved_bytes, self.received_bytes, "bytes that are not served");
            let waiting = self.streams.iter().flatten().map(|stream| match &stream.work {
                Work::Waiting { bytes, .. } => *bytes,
                _ => 0,
            });
            assert_eq!(waiting.sum::<usize>(), self.waiting_bytes, "bytes of requests that wait");
            let unsent = self.streams.iter().flatten().map(|stream| match &stream.work {
                Work::Sending { unsent, .. } => unsent.len(),
                _ => 0,
            });
            assert_eq!(unsent.sum::<usize>(), self.unsent_bytes, "bytes that wait for windows");
        }
    }

    /// Passes a request to the API, and responds unless the request waits.
    fn call_and_respond(
        &mut self,
        key: StreamKey,
        fields: &FieldBuf,
        head: http2::RequestHead,
        body: &[u8],
        retry: Option<Retry>,
        cx: &mut Context<'_>,
    ) -> Option<Waiting> {
        let lines = Lines { fields, head };
        let Some(request) = lines.request() else {
            let error = ApiError::BadRequest { message: "the request target is not UTF-8".into() };
            let reply = Reply::Response(Response::from_error(&error));
            self.respond(key, reply, false, cx);
            return None;
        };
        if !self.may_wait_with(fields.list_size(), body.len(), cx) {
            let (response, head_only) = cx.service.refuse(Some(&request), &ApiError::TooManyRequests);
            self.respond(key, Reply::Response(response), head_only, cx);
            return None;
        }
        let reply = cx.service.call_api(&request, body, retry, cx.from, cx.now);
        if let Reply::Waiting(waiting) = reply {
            return Some(waiting);
        }
        self.respond(key, reply, request.method == Method::Head, cx);
        None
    }

    /// Whether a request with `head_bytes` and `body_bytes` may wait, if the API makes it wait. A request may wait only
    /// if the connection's limit of waiting bytes leaves room for twice its size. So beside a large request, small ones
    /// can still wait.
    ///
    /// In a request with a body, the head counts only if it is longer than a direct client may send. A request without
    /// a body is mostly a read, and may always wait, with one exception: such requests of a front proxy with long heads
    /// may use only a quarter of the bytes. Otherwise some hundred reads that wait for a future `resourceVersion`, for
    /// seconds, would displace the writes of other clients.
    fn may_wait_with(&self, head_bytes: usize, body_bytes: usize, cx: &Context<'_>) -> bool {
        let bytes_max = cx.service.received_bytes_max(cx.from.credentials);
        let (bytes, bytes_max) = match body_bytes {
            0 if head_bytes <= PLAIN_HEAD_BYTES_MAX || !cx.from.credentials.is_front_proxy() => return true,
            0 => (head_bytes, bytes_max / 4),
            _ if head_bytes > FIELD_LIST_BYTES_MAX => (head_bytes + body_bytes, bytes_max),
            _ => (body_bytes, bytes_max),
        };
        self.waiting_bytes + 2 * bytes <= bytes_max
    }

    /// Resumes the runnable requests and jobs. Returns whether the output became full before all of them were resumed.
    /// No event reports the remaining requests and jobs again. So the caller must call this method again once the
    /// output has room.
    #[inline]
    pub(super) fn resume_runnable(&mut self, budget: &Budget, cx: &mut Context<'_>) -> bool {
        self.is_waiting() && self.resume_all(budget, cx)
    }

    #[inline(never)]
    fn resume_all(&mut self, budget: &Budget, cx: &mut Context<'_>) -> bool {
        self.jobs.extend(self.waiting_jobs.drain(..));
        let settled = cx.service.api.storage.settled();
        let mut count: usize = 0;
        while cx.output.len() < budget.output_bytes_max {
            if count.is_multiple_of(PREFETCH_MAX) {
                self.prefetch_settled(settled);
            }
            count += 1;
            let Some(key) = self.waiting.pop_settled(settled) else { break };
            // During a takeover, a request waits longer than until the journal reports the outcome of its change: until
            // kube-apiserver's own storage has the change too.
            if self.resume_one(key, cx) {
                self.waiting.add_other(key);
            }
        }
        let mut is_cut_short = self.waiting.has_settled(settled);
        let mut other = self.waiting.take_other(cx.now.ms);
        other.retain(|key| {
            is_cut_short |= cx.output.len() >= budget.output_bytes_max;
            is_cut_short || self.resume_one(*key, cx)
        });
        self.waiting.put_back(other);
        is_cut_short
    }

    /// Brings the encodings of the Leases in the next responses into the processor's caches, as `table::prefetch` does.
    /// The journal has prefetched these Leases without their encodings.
    fn prefetch_settled(&self, settled: u64) {
        let next = self.waiting.settled(settled).take(PREFETCH_MAX);
        let touch = |key: StreamKey| match self.streams.get(key.slot())? {
            Some(StreamWork { work: Work::Waiting { waiting, .. }, .. }) => Some(waiting.touch()),
            _ => None,
        };
        black_box(next.filter_map(touch).fold(0, usize::wrapping_add));
    }

    /// Resumes a waiting request, if it is runnable. Returns whether it still waits.
    fn resume_one(&mut self, key: StreamKey, cx: &mut Context<'_>) -> bool {
        let is_own = |stream: &mut StreamWork| stream.key == key && matches!(stream.work, Work::Waiting { .. });
        let stream = self.streams.get_mut(key.slot()).and_then(|place| place.take_if(is_own));
        let Some(StreamWork { work: Work::Waiting { waiting, bytes, kept }, .. }) = stream else { return false };
        match cx.service.resume_request(waiting, cx.from.connection, cx.now) {
            Resumed::Waits(waiting) => {
                self.put(key, Work::Waiting { waiting, bytes, kept });
                return true;
            }
            Resumed::Again(retry) => {
                let Kept { head, unserved } = *kept.expect("a request that is served again is kept");
                self.waiting_bytes -= bytes;
                self.received_bytes += bytes;
                self.push_whole(Whole { key, head, unserved, retry: Some(retry) });
                return false;
            }
            Resumed::Reply(reply) => {
                // A waiting request that is not kept is a write, and so its method is not HEAD.
                let head_only = kept.as_ref().is_some_and(|kept| kept.is_head());
                self.respond(key, reply, head_only, cx);
            }
        }
        self.waiting_bytes -= bytes;
        if let Some(kept) = kept {
            cx.service.scratch.spare.give(kept.unserved);
        }
        false
    }

    /// Refuses the largest incomplete request, again and again, while `more` bytes for stream `key` would exceed the
    /// limit of received bytes. A front proxy's connection carries the requests of all its clients. So the large
    /// requests are refused, not the small ones.
    fn refuse_largest_over_limit(&mut self, key: StreamKey, more: usize, cx: &mut Context<'_>) {
        let bytes_max = cx.service.received_bytes_max(cx.from.credentials);
        if self.received_bytes + more <= bytes_max {
            return;
        }
        let mut incomplete = self.largest_first(|stream| match &stream.work {
            Work::Receiving(_, unserved) => Some(unserved.bytes() + if stream.key == key { more } else { 0 }),
            _ => None,
        });
        // Complete requests need not be refused: they are served before the limit is reached.
        while self.received_bytes + more > bytes_max
            && let Some((_, largest)) = incomplete.pop()
        {
            self.refuse_body(largest, &ApiError::TooManyRequests, cx);
            if largest == key {
                return;
            }
        }
    }

    fn too_large(&self) -> ApiError {
        ApiError::RequestEntityTooLarge { bytes_max: self.body_bytes_max }
    }

    /// Refuses a request whose body is incomplete. The server does not read the rest of the body.
    #[cold]
    fn refuse_body(&mut self, key: StreamKey, error: &ApiError, cx: &mut Context<'_>) {
        let Some((head, unserved)) = self.take_receiving(key) else { return };
        self.received_bytes -= unserved.bytes();
        self.refuse(key, head, &unserved.fields, error, cx);
        cx.service.scratch.spare.give(unserved);
    }

    /// Refuses a request with this head without reading the rest of its body (RFC 9113 §8.1). The stream is reset
    /// [later](Http2::reset_refused), so that the peer reads the response first.
    fn refuse(
        &mut self,
        key: StreamKey,
        head: http2::RequestHead,
        fields: &FieldBuf,
        error: &ApiError,
        cx: &mut Context<'_>,
    ) {
        let lines = Lines { fields, head };
        let (response, head_only) = cx.service.refuse(lines.request().as_ref(), error);
        self.respond(key, Reply::Response(response), head_only, cx);
        self.connection.refuse_rest(key, cx.now.ms);
    }

    /// Resets each refused stream once the peer has had time to read the response. Returns whether this time was over
    /// for any stream.
    pub(super) fn reset_refused(&mut self, service: &mut Service, now: Now, output: &mut Vec<u8>) -> bool {
        let mut is_any = false;
        while let Some(until_ms) = now.ms.checked_sub(LINGER_MS_MAX)
            && let Some(key) = self.connection.pop_refused(until_ms)
        {
            is_any = true;
            if matches!(work_mut(&mut self.streams, key), Some(Work::Sending { .. })) {
                // The response still waits for a flow-control window, and this wait has its own deadline. So the reset
                // is tried again later.
                self.connection.refuse_rest(key, now.ms);
                continue;
            }
            self.connection.reset(key, ErrorCode::NO_ERROR, output);
            self.on_reset(key, service);
        }
        is_any
    }

    /// Queues a request that waits for its body. Before the queue becomes long, removes the entries of requests that no
    /// longer wait.
    fn queue_receiving(&mut self, key: StreamKey, now: Now) {
        if self.receiving.len() >= QUEUED_STREAMS_MIN + 2 * self.streams.len() {
            let streams = &mut self.streams;
            self.receiving.retain(|(_, key)| matches!(work_mut(streams, *key), Some(Work::Receiving(..))));
        }
        self.receiving.push_back((now.ms, key));
    }

    /// Removes and returns the stream's request, if it waits for its body.
    fn take_receiving(&mut self, key: StreamKey) -> Option<(http2::RequestHead, Box<Unserved>)> {
        let place = self.streams.get_mut(key.slot())?;
        let stream = place.take_if(|s| s.key == key && matches!(s.work, Work::Receiving(..)))?;
        let Work::Receiving(head, unserved) = stream.work else { return None };
        self.skip_received();
        Some((head, unserved))
    }

    /// Removes requests at the front of the queue that no longer wait for their body.
    pub(super) fn skip_received(&mut self) {
        while let Some((_, first)) = self.receiving.front()
            && !matches!(work_mut(&mut self.streams, *first), Some(Work::Receiving(..)))
        {
            self.receiving.pop_front();
        }
    }
}

/// The fields of a head without the pseudo-header fields, for code that reads all of them.
struct Lines<'f> {
    fields: &'f FieldBuf,
    head: http2::RequestHead,
}

impl Lines<'_> {
    /// Returns the head of the request; `None` if its target is not UTF-8.
    fn request(&self) -> Option<RequestHead<'_>> {
        let Self { fields, head } = self;
        let target = std::str::from_utf8(head.path(fields)).ok()?;
        let (path, query) = split_query(target);
        let mut request = RequestHead::bare(Method::from_bytes(head.method(fields)), path, query, self);
        for field in head.regular_fields(fields) {
            match field.id {
                NameId::ACCEPT => _ = request.accept.get_or_insert(field.value),
                NameId::ACCEPT_ENCODING => _ = request.accept_encoding.get_or_insert(field.value),
                NameId::CONTENT_TYPE => _ = request.content_type.get_or_insert(field.value),
                NameId::USER_AGENT => _ = request.user_agent.get_or_insert(field.value),
                _ => {}
            }
        }
        Some(request)
    }
}

impl FieldLines for Lines<'_> {
    fn for_each(&self, each: &mut dyn FnMut(&[u8], &[u8])) {
        for field in self.head.regular_fields(self.fields) {
            each(field.name, field.value);
        }
    }
}
