//! Serves the requests of an HTTP/1.1 connection, one after the other. A response may take several turns of the event
//! loop: a watch, or a job (a response made in steps, such as a long list). Later requests wait until this response
//! ends.

use super::job_steps::{self, Begun};
use super::{AfterStep, Context, Owner, Served, Service};
use crate::api::Reply;
use crate::api::job::{Job, JobError};
use crate::api::waiting::{Resumed, Retry, Waiting};
use crate::api_error::ApiError;
use crate::buffer::ByteBuf;
use crate::clock::Now;
use crate::form::{Body, Response};
use crate::http::RequestHead;
use crate::http1::chunked::LAST_CHUNK;
use crate::http1::request::{Bytes, Persistence, RequestError, RequestParser, Step};
use crate::http1::response::{CONTINUE, Length, OpenChunk, push_head};
use crate::http2::UpgradeSettings;
use crate::limits::{BODY_MS_MAX, HEAD_MS_MAX, IDLE_MS_MAX, LIST_WHOLE_BYTES_MAX, QUEUED_BYTES_HIGH};
use crate::media_type::TEXT;
use crate::schedule::Budget;
use crate::table::snapshot::Stepped;
use crate::table::{PrefetchKey, Table};
use crate::watch::{Fill, WatcherKey, Watchers};
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;

/// An HTTP/1.1 connection and its response in progress.
#[derive(Debug)]
pub struct Http1 {
    parser: RequestParser,
    in_progress: InProgress,
    /// Start of the wait for the rest of a body, in ms; `None` if the server waits for no body.
    body_since_ms: Option<u64>,
    /// Whether the current request is the last one that the connection serves.
    is_last: bool,
    /// Whether the server is stopping. If so, the connection still serves only a request that has begun to arrive.
    is_draining: bool,
}

/// A response that takes more than one turn of the event loop.
#[derive(Debug, Default)]
enum InProgress {
    #[default]
    Nothing,
    /// A job, such as a list, whose response head is not sent yet.
    Begun(Box<Job>, Persistence),
    /// A job, such as a list, whose response head is sent. Its next steps append the rest of the body.
    Job(Box<Job>, BodyFraming),
    /// An open watch.
    Watch(WatcherKey, BodyFraming),
    /// A request that waits for an event, such as the outcome of its write. Its bytes stay in the input, since the
    /// server may have to serve it again.
    Waiting(Box<Waiting>, Persistence),
    /// A request that has waited and is to be served again, with the state that earlier attempts left.
    Again(Retry),
    /// The connection and the response continue in HTTP/2.
    Upgrade(Box<Upgrade>),
}

/// A request to upgrade to HTTP/2 (RFC 7540 §3.2).
#[derive(Debug)]
pub(super) struct Upgrade {
    /// The client's HTTP/2 settings, from the field `HTTP2-Settings`.
    pub(super) settings: UpgradeSettings,
    /// The response to the request, sent on the first stream.
    pub(super) reply: Reply,
    /// Whether the method was HEAD.
    pub(super) head_only: bool,
}

/// Framing of the body of a long response, and whether the connection stays open after the response.
#[derive(Clone, Copy, Debug)]
struct BodyFraming {
    chunks: bool,
    keep_alive: bool,
}

impl Http1 {
    /// Returns a connection that accepts request bodies of at most `body_bytes_max` bytes.
    #[must_use]
    pub fn new(body_bytes_max: usize) -> Self {
        Self {
            parser: RequestParser::new(body_bytes_max),
            in_progress: InProgress::Nothing,
            body_since_ms: None,
            is_last: false,
            is_draining: false,
        }
    }

    /// Serves the requests in `input` until the output is full or `budget` is used up.
    pub fn serve_requests(&mut self, cx: &mut Context<'_>, input: &mut ByteBuf, budget: &mut Budget) -> Served {
        loop {
            if cx.output.len() >= budget.output_bytes_max {
                return Served::Busy;
            }
            self.resume_runnable(cx, input);
            match self.in_progress {
                InProgress::Again(_) | InProgress::Nothing => {}
                InProgress::Waiting(..) => return Served::Starved,
                InProgress::Begun(..) | InProgress::Job(..) | InProgress::Watch(..) => return Served::Streaming,
                InProgress::Upgrade(_) => return Served::Busy,
            }
            let retry = match self.in_progress {
                InProgress::Again(retry) => Some(retry),
                _ => None,
            };
            let is_over = self.is_last || self.is_draining && !self.parser.is_within_message(input);
            if is_over && retry.is_none() {
                return Served::Close;
            }
            if budget.requests == 0 || cx.service.pace.check_end() {
                return Served::Busy;
            }
            budget.requests -= 1;
            let (is_last, is_draining) = (&mut self.is_last, self.is_draining);
            let step = self.parser.next_or_keep(input, |request, body, after| {
                let is_refused = cx.from.credentials.is_front_proxy() && is_forwarded_upgrade(request);
                *is_last |= !after.keep_alive || is_draining || is_refused;
                let after = Persistence { keep_alive: !*is_last, ..after };
                let reply = if is_refused {
                    Reply::Response(cx.service.refuse(Some(request), &no_upgrade()).0)
                } else {
                    cx.service.call_api(request, body, retry, cx.from, cx.now)
                };
                // Upgrades only in cleartext: over TLS, ALPN has already decided (RFC 9113 §3.1). A connection that
                // closes after this response is not upgraded.
                if after.wants_h2c
                    && !matches!(reply, Reply::Waiting(_))
                    && cx.from.credentials.is_insecure()
                    && !*is_last
                    && let Some(settings) = http2_settings(request)
                {
                    cx.output.extend_from_slice(SWITCHING_PROTOCOLS);
                    let upgrade = Upgrade { settings, reply, head_only: after.head_only };
                    return (InProgress::Upgrade(Box::new(upgrade)), Bytes::Consume);
                }
                let in_progress = respond(reply, after, cx);
                let is_kept = matches!(in_progress, InProgress::Waiting(..));
                (in_progress, if is_kept { Bytes::Keep } else { Bytes::Consume })
            });
            match step {
                Ok(Step::Served(result)) => {
                    self.in_progress = result;
                    self.body_since_ms = None;
                }
                Ok(Step::Incomplete { send_continue, .. }) => {
                    if self.parser.is_body_awaited() {
                        self.body_since_ms.get_or_insert(cx.now.ms);
                    }
                    if input.len() > cx.service.received_bytes_max(cx.from.credentials) {
                        return self.refuse_body(&ApiError::TooManyRequests, input, cx);
                    }
                    // A front proxy (kube-apiserver) sends the body without waiting for a 100 (Continue). It would
                    // forward a 100 to its own client, and then change the status of the final response to 200.
                    if send_continue && !cx.from.credentials.is_front_proxy() {
                        cx.output.extend_from_slice(CONTINUE);
                    }
                    return Served::Starved;
                }
                // This is the only parser error after which the request head is readable. So the refusal can have the
                // form that the client asked for.
                Err(RequestError::BodyTooLarge) => {
                    let error = ApiError::RequestEntityTooLarge { bytes_max: self.parser.body_bytes_max() };
                    return self.refuse_body(&error, input, cx);
                }
                Err(error) => {
                    cx.service.api.metrics.counts.requests_malformed += 1;
                    if error != RequestError::NotHttp {
                        refuse(&refusal_of(error), false, cx);
                    }
                    self.is_last = true;
                    return Served::Close;
                }
            }
        }
    }

    /// Refuses the first request in `input` without reading the rest of its body, and closes the connection.
    #[cold]
    fn refuse_body(&mut self, error: &ApiError, input: &ByteBuf, cx: &mut Context<'_>) -> Served {
        let (response, head_only) = cx.service.refuse(self.parser.refused_head(input).as_ref(), error);
        refuse(&response, head_only, cx);
        self.is_last = true;
        Served::Close
    }

    /// Resumes the request or job in progress, if the event for which it waits has come.
    #[inline]
    fn resume_runnable(&mut self, cx: &mut Context<'_>, input: &mut ByteBuf) {
        if !matches!(self.in_progress, InProgress::Nothing) {
            self.resume_waiting(cx, input);
        }
    }

    #[inline(never)]
    fn resume_waiting(&mut self, cx: &mut Context<'_>, input: &mut ByteBuf) {
        match &mut self.in_progress {
            InProgress::Waiting(..) => {}
            InProgress::Begun(job, _) => return job.end_waiting(),
            _ => return,
        }
        let InProgress::Waiting(waiting, after) = std::mem::take(&mut self.in_progress) else { return };
        self.in_progress = match cx.service.resume_request(*waiting, cx.from.connection, cx.now) {
            Resumed::Again(retry) => InProgress::Again(retry),
            Resumed::Reply(reply) => {
                self.parser.consume_kept(input);
                respond(reply, after, cx)
            }
            Resumed::Waits(waiting) => InProgress::Waiting(Box::new(waiting), after),
        };
    }

    /// Runs one step of the job in progress, such as a list. Returns how the connection continues.
    pub fn step_job(&mut self, cx: &mut Context<'_>) -> AfterStep {
        match std::mem::take(&mut self.in_progress) {
            InProgress::Begun(job, after) => {
                self.in_progress = begin_job(job, after, cx);
                if self.is_waiting() {
                    return AfterStep::Wait;
                }
                if after.keep_alive || self.is_streaming() { AfterStep::GoOn } else { AfterStep::Close }
            }
            InProgress::Job(mut job, framing) => match continue_job(&mut job, framing, cx) {
                Ok(Stepped::More) => {
                    self.in_progress = InProgress::Job(job, framing);
                    AfterStep::GoOn
                }
                Ok(Stepped::Done) if framing.keep_alive => AfterStep::GoOn,
                Ok(Stepped::Done) => AfterStep::Close,
                // The body cannot be completed. The server closes the connection before the end of the body, so that
                // the peer detects an incomplete body.
                Err(_) => AfterStep::Close,
            },
            other => {
                self.in_progress = other;
                AfterStep::GoOn
            }
        }
    }

    /// Appends the next events of the watch `key` to `output`. Returns `None` if this watch is not open.
    pub fn send_events(
        &mut self,
        service: &mut Service,
        key: WatcherKey,
        now: Now,
        output: &mut Vec<u8>,
    ) -> Option<Fill> {
        let InProgress::Watch(own, framing) = self.in_progress else { return None };
        if own != key {
            return None;
        }
        let chunk = framing.chunks.then(|| OpenChunk::begin(output));
        let fill = service.watchers.fill(key, &service.table, now, output, QUEUED_BYTES_HIGH + OpenChunk::HEAD_BYTES);
        if let Some(chunk) = chunk {
            chunk.end(output);
        }
        if let Fill::Ended(_) = fill {
            self.end_body(framing, output);
        }
        Some(fill)
    }

    /// Removes and returns the pending upgrade to HTTP/2.
    pub(super) fn take_upgrade(&mut self) -> Option<Upgrade> {
        match std::mem::take(&mut self.in_progress) {
            InProgress::Upgrade(upgrade) => Some(*upgrade),
            other => {
                self.in_progress = other;
                None
            }
        }
    }

    /// Returns the key with which the table prefetches the Lease of the next request into the processor's caches.
    /// Returns `None` if the path of this request does not name a Lease.
    #[must_use]
    pub fn next_prefetch_key(&self, input: &ByteBuf, table: &Table) -> Option<PrefetchKey> {
        super::prefetch_key_of(self.parser.peek_target(input)?, table)
    }

    /// Drops the response in progress, because the connection closes.
    pub fn drop_work(&mut self, watchers: &mut Watchers<Owner>) {
        if let InProgress::Watch(key, _) = std::mem::take(&mut self.in_progress) {
            watchers.remove(key);
        }
    }

    /// Whether a watch is open.
    #[must_use]
    pub fn is_watching(&self) -> bool {
        matches!(self.in_progress, InProgress::Watch(..))
    }

    /// Whether a response is in progress, so that later requests must wait.
    #[must_use]
    pub fn is_streaming(&self) -> bool {
        !matches!(self.in_progress, InProgress::Nothing)
    }

    /// Prepares the connection for the stop of the server: ends an open watch. From now on, the connection serves only
    /// the current request, or a request that has begun to arrive, and then closes.
    pub fn on_shutdown(&mut self, service: &mut Service, output: &mut Vec<u8>) {
        self.is_draining = true;
        if let InProgress::Begun(_, after) | InProgress::Waiting(_, after) = &mut self.in_progress {
            after.keep_alive = false;
            self.is_last = true;
        }
        if let InProgress::Watch(key, framing) = self.in_progress {
            let chunk = framing.chunks.then(|| OpenChunk::begin(output));
            service.watchers.end_for_shutdown(key, output);
            if let Some(chunk) = chunk {
                chunk.end(output);
            }
            self.end_body(BodyFraming { keep_alive: false, ..framing }, output);
        }
    }

    /// Whether no request or response is in progress, so that closing the connection loses nothing.
    #[must_use]
    pub fn is_idle(&self, input: &ByteBuf) -> bool {
        matches!(self.in_progress, InProgress::Nothing) && !self.parser.is_within_message(input)
    }

    /// Whether the peer has sent only a part of a request.
    #[must_use]
    pub fn is_within_message(&self, input: &ByteBuf) -> bool {
        matches!(self.in_progress, InProgress::Nothing) && self.parser.is_within_message(input)
    }

    /// Returns the deadline for the next input, in ms. The deadlines of a partly received head and of an idle
    /// connection count from `since_ms`. The deadline of a body counts from its own start.
    #[must_use]
    pub fn deadline_ms(&self, input: &ByteBuf, since_ms: u64) -> u64 {
        if self.is_streaming() {
            return u64::MAX;
        }
        let (since_ms, patience_ms) = match self.body_since_ms {
            Some(body_since_ms) => (body_since_ms, BODY_MS_MAX),
            None if self.parser.is_within_message(input) => (since_ms, HEAD_MS_MAX),
            None => (since_ms, IDLE_MS_MAX),
        };
        since_ms.saturating_add(patience_ms)
    }

    /// [Releases the memory](Job::check) of the job in progress in two cases: its deadline has passed, or the server
    /// has revoked its permit (the right to a long response). If the output has no room, the job counts as waiting for
    /// the peer to read. Then the server may revoke the permit, and give it to another user.
    pub fn check_job(&mut self, now: Now, has_room: bool) {
        if let InProgress::Begun(job, _) | InProgress::Job(job, _) = &mut self.in_progress {
            job.check(now, !has_room);
        }
    }

    /// Whether the current request or its job waits for an event, such as the outcome of a write.
    #[must_use]
    pub fn is_waiting(&self) -> bool {
        match &self.in_progress {
            InProgress::Waiting(..) => true,
            InProgress::Begun(job, _) => job.is_waiting(),
            _ => false,
        }
    }

    /// Whether a job, such as a list, is in progress and its next step can run now.
    #[must_use]
    pub fn has_job_step(&self) -> bool {
        self.has_job() && !self.is_waiting()
    }

    /// Whether a job (a response made in steps, such as a list) is in progress.
    #[must_use]
    pub fn has_job(&self) -> bool {
        matches!(self.in_progress, InProgress::Begun(..) | InProgress::Job(..))
    }

    fn end_body(&mut self, framing: BodyFraming, output: &mut Vec<u8>) {
        if framing.chunks {
            output.extend_from_slice(LAST_CHUNK);
        }
        self.is_last |= !framing.keep_alive;
        self.in_progress = InProgress::Nothing;
    }
}

/// The response that accepts the upgrade to HTTP/2. HTTP/2 frames follow it.
const SWITCHING_PROTOCOLS: &[u8] = b"HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: h2c\r\n\r\n";

/// Returns the settings of the client's `HTTP2-Settings` field. An upgrade must have exactly one such field (RFC 7540
/// §3.2.1). An upgrade with invalid settings is ignored, because a request that is already served can no longer be
/// refused.
fn http2_settings(request: &RequestHead<'_>) -> Option<UpgradeSettings> {
    let mut settings = None;
    let mut lines = 0;
    request.fields.for_each(&mut |name, value| {
        if name.eq_ignore_ascii_case(b"http2-settings") {
            lines += 1;
            settings = URL_SAFE_NO_PAD.decode(value.trim_ascii_end()).ok().and_then(UpgradeSettings::parse);
        }
    });
    settings.filter(|_| lines == 1)
}

/// Whether a front proxy (kube-apiserver) forwards the request as an upgrade (apimachinery `util/httpstream`,
/// `IsUpgradeRequest`). If the response is neither 101 nor an error, kube-apiserver answers 503, as if the request had
/// failed. So the server must refuse such a request before a write takes effect.
fn is_forwarded_upgrade(request: &RequestHead<'_>) -> bool {
    let mut found = false;
    request.fields.for_each(&mut |name, value| {
        found |= name.eq_ignore_ascii_case(b"connection")
            && value.windows(b"upgrade".len()).any(|word| word.eq_ignore_ascii_case(b"upgrade"));
    });
    found
}

/// Returns the error for a request that a front proxy forwards as an upgrade.
#[cold]
fn no_upgrade() -> ApiError {
    ApiError::BadRequest { message: "the server does not upgrade connections of a front proxy".into() }
}

/// Writes a whole response, or the head of a watch's response. Writes nothing for a job or a waiting request. Returns
/// the work that remains for later turns.
fn respond(reply: Reply, after: Persistence, cx: &mut Context<'_>) -> InProgress {
    match reply {
        Reply::Response(response) => {
            push_response(&response, after, cx);
            InProgress::Nothing
        }
        Reply::Job(job) => InProgress::Begun(job, after),
        Reply::Waiting(waiting) => InProgress::Waiting(Box::new(waiting), after),
        Reply::Watch(spec) => {
            let head = Response::new(200, spec.form.stream_content_type(), Body::default());
            let framing = push_head_without_length(&head, after, cx);
            if after.head_only {
                return InProgress::Nothing;
            }
            let owner = Owner { connection: cx.from.connection, stream: None };
            cx.service.api.metrics.count_watch();
            InProgress::Watch(cx.service.watchers.add(owner, *spec, cx.now), framing)
        }
    }
}

/// Runs a step of a job, such as a list, whose response head is not sent yet. Returns the work that remains for later
/// turns.
fn begin_job(mut job: Box<Job>, after: Persistence, cx: &mut Context<'_>) -> InProgress {
    let (head, body) = match job_steps::begin(&mut job, cx.service, cx.now, LIST_WHOLE_BYTES_MAX) {
        Begun::Nothing => {
            if job.is_waiting() {
                cx.service.note_waiting_job(&job, cx.from.connection, cx.now);
            }
            return InProgress::Begun(job, after);
        }
        Begun::Whole(response) => {
            push_response(&response, after, cx);
            return InProgress::Nothing;
        }
        Begun::Part(head, body) => (head, body),
    };
    let framing = push_head_without_length(&head, after, cx);
    if after.head_only {
        return InProgress::Nothing;
    }
    let chunk = framing.chunks.then(|| OpenChunk::begin(cx.output));
    cx.output.extend_from_slice(&body);
    if let Some(chunk) = chunk {
        chunk.end(cx.output);
    }
    InProgress::Job(job, framing)
}

/// Writes the head of a response of unknown length.
fn push_head_without_length(head: &Response, after: Persistence, cx: &mut Context<'_>) -> BodyFraming {
    let length = if after.chunks { Length::Chunked } else { Length::UntilClose };
    let framing = BodyFraming { chunks: after.chunks, keep_alive: after.keep_alive && after.chunks };
    push_head(cx.output, head, length, framing.keep_alive, cx.service.date.as_bytes());
    framing
}

/// Runs a step of a job whose response head is sent.
///
/// # Errors
/// The body cannot be completed.
fn continue_job(job: &mut Job, framing: BodyFraming, cx: &mut Context<'_>) -> Result<Stepped, JobError> {
    let chunk = framing.chunks.then(|| OpenChunk::begin(cx.output));
    let bytes_max = QUEUED_BYTES_HIGH + OpenChunk::HEAD_BYTES;
    let stepped = job_steps::go_on(job, cx.service, cx.now, cx.output, bytes_max);
    if let Some(chunk) = chunk {
        chunk.end(cx.output);
    }
    if let Ok(Stepped::Done) = stepped
        && framing.chunks
    {
        cx.output.extend_from_slice(LAST_CHUNK);
    }
    stepped
}

fn push_response(response: &Response, after: Persistence, cx: &mut Context<'_>) {
    let Context { service, output, .. } = cx;
    let body = response.body.bytes(&mut service.scratch.body);
    push_head(output, response, Length::Known(body.len()), after.keep_alive, service.date.as_bytes());
    if !after.head_only {
        output.extend_from_slice(body);
    }
}

/// Returns the response that refuses input without a valid request.
#[cold]
fn refusal_of(error: RequestError) -> Response {
    let status = error.status();
    let text = format!("{status} {}: {}\n", crate::http::reason_phrase(status), error.detail());
    Response::new(status, TEXT, text.into())
}

/// Writes a response after which the connection closes.
#[cold]
fn refuse(response: &Response, head_only: bool, cx: &mut Context<'_>) {
    let after = Persistence { keep_alive: false, chunks: true, head_only, wants_h2c: false };
    push_response(response, after, cx);
}
