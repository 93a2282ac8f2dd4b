//! Sends responses, whole or in pieces, as far as the flow-control windows are open.
//!
//! A stream has at most one unsent piece of its response. The next piece of a watch, or of a job (a response made in
//! steps, such as a list), is made only after this piece is sent. So a stream whose client does not read costs little
//! memory and delays no other stream. The unsent pieces of all streams of a connection have at most
//! [`UNSENT_BYTES_MAX`] bytes.

use super::streams::{Source, Work, keep_unsent, work_mut};
use super::{Http2, QUEUED_STREAMS_MIN};
use crate::api::Reply;
use crate::api::job::Job;
use crate::clock::Now;
use crate::form::{Body, Response};
use crate::hpack::FieldName;
use crate::http::CacheControl;
use crate::http2::{ErrorCode, SendField, StreamGone, StreamKey};
use crate::limits::{
    LIST_WHOLE_BYTES_MAX, QUEUED_BYTES_HIGH, QUEUED_BYTES_LOW, UNSENT_BYTES_MAX, WRITE_STALL_BYTES_MIN,
};
use crate::serve::job_steps::{self, Begun};
use crate::serve::{Context, Owner, Service};
use crate::table::snapshot::Stepped;
use bytes::{Buf, Bytes};

impl Http2 {
    /// Sends a response, as far as the windows are open.
    pub(super) fn respond(&mut self, key: StreamKey, reply: Reply, head_only: bool, cx: &mut Context<'_>) {
        // The stream may be closed by now; then no client reads the response.
        let _ = match reply {
            Reply::Response(response) => self.send_response(key, &response, head_only, cx),
            Reply::Job(job) => {
                self.put_begun(key, job, head_only);
                Ok(())
            }
            Reply::Waiting(_) => {
                debug_assert!(false, "a request that waits stays with its stream");
                Ok(())
            }
            Reply::Watch(spec) => {
                let response = Response::new(200, spec.form.stream_content_type(), Body::default());
                let sent = self.send_response_head(key, &response, None, head_only, cx);
                if sent.is_ok() && !head_only {
                    let owner = Owner { connection: cx.from.connection, stream: Some(key) };
                    cx.service.api.metrics.count_watch();
                    let watcher = cx.service.watchers.add(owner, *spec, cx.now);
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
        cx: &mut Context<'_>,
    ) -> Result<(), StreamGone> {
        let mut scratch = std::mem::take(&mut cx.service.scratch.body);
        let body = response.body.bytes(&mut scratch);
        let sent = self.send_whole(key, response, body, head_only, cx);
        if let Ok(sent) = sent
            && sent < body.len()
        {
            self.put_unsent(key, response.body.rest(body, sent), cx);
        }
        cx.service.scratch.body = scratch;
        sent.map(|_| ())
    }

    /// Stores the unsent rest of a response until the flow-control windows open. Resets the stream if the connection
    /// already stores too many unsent bytes.
    fn put_unsent(&mut self, key: StreamKey, rest: Bytes, cx: &mut Context<'_>) {
        if !self.reset_if_unread(key, rest.len(), cx) {
            self.put_sending(key, rest, Source::End);
            self.stall(key, cx.now);
        }
    }

    /// Resets the stream if `bytes` more of unsent responses would exceed the limit of the connection. Returns whether
    /// the stream was reset.
    fn reset_if_unread(&mut self, key: StreamKey, bytes: usize, cx: &mut Context<'_>) -> bool {
        let is_unread = !self.make_room_for_unsent(bytes, cx.service, cx.output);
        if is_unread {
            self.connection.reset(key, ErrorCode::ENHANCE_YOUR_CALM, cx.output);
        }
        is_unread
    }

    /// Makes room for `bytes` more of unsent responses: resets streams with more than `bytes` unsent bytes, the largest
    /// first. A front proxy's connection carries the responses of all its clients, so the clients that read must not
    /// lose theirs. Returns false if there is still no room when no such stream is left.
    pub(super) fn make_room_for_unsent(&mut self, bytes: usize, service: &mut Service, output: &mut Vec<u8>) -> bool {
        if self.may_keep_unsent(bytes, service) {
            return true;
        }
        let mut larger = self.largest_first(|stream| match &stream.work {
            Work::Sending { unsent, .. } if unsent.len() > bytes => Some(unsent.len()),
            _ => None,
        });
        while !self.may_keep_unsent(bytes, service) {
            let Some((_, key)) = larger.pop() else { return false };
            self.connection.reset(key, ErrorCode::ENHANCE_YOUR_CALM, output);
            self.on_reset(key, service);
        }
        true
    }

    /// Whether this connection may keep `bytes` more of unsent responses. The limit for a front proxy is never lowered,
    /// because its few connections carry the responses of all its clients.
    fn may_keep_unsent(&self, bytes: usize, service: &Service) -> bool {
        let is_scarce = service.is_crowded() && !self.connection.speaks_for_many();
        let bytes_max = if is_scarce { QUEUED_BYTES_LOW } else { UNSENT_BYTES_MAX };
        bytes == 0 || self.unsent_bytes + bytes <= bytes_max
    }

    /// Sends head and body, as far as the windows are open. Returns the number of body bytes sent.
    fn send_whole(
        &mut self,
        key: StreamKey,
        response: &Response,
        body: &[u8],
        head_only: bool,
        cx: &mut Context<'_>,
    ) -> Result<usize, StreamGone> {
        let is_end = head_only || body.is_empty();
        self.send_response_head(key, response, Some(body.len()), is_end, cx)?;
        if is_end { Ok(body.len()) } else { self.connection.send_data(key, body, true, cx.output) }
    }

    fn start_job(
        &mut self,
        key: StreamKey,
        mut job: Box<Job>,
        head_only: bool,
        cx: &mut Context<'_>,
    ) -> Result<(), StreamGone> {
        // The first step makes at most as many bytes as the windows allow, or [`PIECE_BYTES_MIN`] bytes if the windows
        // allow fewer. So a client with closed windows makes the server store few bytes.
        let bytes_max = self.connection.send_window(key).clamp(PIECE_BYTES_MIN, LIST_WHOLE_BYTES_MAX);
        let (head, mut body) = match job_steps::begin(&mut job, cx.service, cx.now, bytes_max) {
            Begun::Nothing => {
                if job.is_waiting() {
                    cx.service.note_waiting_job(&job, cx.from.connection, cx.now);
                }
                self.put_begun(key, job, head_only);
                return Ok(());
            }
            Begun::Whole(response) => return self.send_response(key, &response, head_only, cx),
            Begun::Part(head, body) => (head, body),
        };
        self.send_response_head(key, &head, None, head_only, cx)?;
        if !head_only {
            if !body.is_empty() {
                let sent = self.connection.send_data(key, &body, false, cx.output)?;
                body.drain(..sent);
            }
            let is_stalled = !body.is_empty();
            if self.reset_if_unread(key, body.len(), cx) {
                return Ok(());
            }
            self.put_sending(key, body.into(), Source::Job(job));
            self.jobs_open += 1;
            if is_stalled {
                self.stall(key, cx.now);
            } else {
                self.jobs.push_back(key);
            }
        }
        Ok(())
    }

    pub(super) fn send_response_head(
        &mut self,
        key: StreamKey,
        response: &Response,
        length: Option<usize>,
        is_end: bool,
        cx: &mut Context<'_>,
    ) -> Result<(), StreamGone> {
        let content_type = SendField::repeated(CONTENT_TYPE, response.content_type.as_bytes());
        let cache_control = SendField::repeated(CACHE_CONTROL, response.cache_control.as_str().as_bytes());
        let date = SendField::repeated(DATE, cx.service.date.as_bytes());
        let mut buffer = itoa::Buffer::new();
        let length = length.map(|length| SendField::repeated(CONTENT_LENGTH, buffer.format(length).as_bytes()));
        // A front proxy (kube-apiserver) itself adds this `Cache-Control` to every response, also to those that it
        // forwards. So this server leaves the field out.
        let is_added = self.connection.speaks_for_many() && response.cache_control == CacheControl::NoCache;
        let skipped = usize::from(is_added);
        if response.has_plain_head() {
            return match length {
                None => {
                    let fields = [cache_control, content_type, date];
                    self.connection.send_head(key, response.status, &fields[skipped..], is_end, cx.output)
                }
                Some(length) => {
                    let fields = [cache_control, content_type, date, length];
                    self.connection.send_head(key, response.status, &fields[skipped..], is_end, cx.output)
                }
            };
        }
        let warnings: Vec<_> =
            response.warnings.iter().map(|warning| warning.replace(|c: char| c.is_ascii_control(), "")).collect();
        let retry_after = response.retry_after_seconds.to_string();
        let mut fields = [cache_control, date][skipped..].to_vec();
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
        self.connection.send_head(key, response.status, &fields, is_end, cx.output)
    }

    /// Sends unsent pieces of streams whose windows have opened.
    pub(super) fn send_more(&mut self, cx: &mut Context<'_>) {
        while cx.output.len() < QUEUED_BYTES_HIGH
            && let Some(key) = self.connection.poll_writable()
        {
            let Some(Work::Sending { unsent, source, stalled_ms, gone_bytes }) = work_mut(&mut self.streams, key)
            else {
                continue;
            };
            if !unsent.is_empty() {
                let is_end = matches!(source, Source::End);
                let Ok(sent) = self.connection.send_data(key, unsent, is_end, cx.output) else {
                    self.on_reset(key, cx.service);
                    continue;
                };
                unsent.advance(sent);
                self.unsent_bytes -= sent;
                *gone_bytes += sent;
                if !unsent.is_empty() {
                    // The deadline moves only after enough sent octets. Otherwise a peer that reads a few octets at a
                    // time could hold a response almost forever.
                    if *gone_bytes >= WRITE_STALL_BYTES_MIN {
                        self.stall(key, cx.now);
                    }
                    continue;
                }
            }
            *stalled_ms = None;
            match source {
                Source::End => self.forget(key),
                Source::Job(_) => self.jobs.push_back(key),
                Source::Watch(watcher) => cx.service.watchers.unpark(*watcher),
            }
        }
    }

    /// Runs a step of the runnable job that has waited longest.
    pub(super) fn step_first_job(&mut self, cx: &mut Context<'_>) {
        // A job whose stream was reset takes no time, so the next job gets the step.
        while let Some(key) = self.jobs.pop_front() {
            if self.step_job_of(key, cx) {
                break;
            }
        }
    }

    /// Runs a step of the job on a stream. Returns false if the stream has no job any more.
    fn step_job_of(&mut self, key: StreamKey, cx: &mut Context<'_>) -> bool {
        if let Some((job, head_only)) = self.take_begun(key) {
            // The stream may be closed by now; then no client reads the response.
            let _ = self.start_job(key, job, head_only, cx);
            return true;
        }
        let Some(Work::Sending { source: Source::Job(job), .. }) = work_mut(&mut self.streams, key) else {
            return false;
        };
        let window = self.connection.send_window(key);
        if window == 0 {
            self.connection.want_write(key);
            self.stall(key, cx.now);
            return true;
        }
        let mut piece = std::mem::take(&mut cx.service.scratch.body);
        piece.clear();
        let stepped = job_steps::go_on(job, cx.service, cx.now, &mut piece, window.min(QUEUED_BYTES_HIGH));
        match stepped {
            Ok(stepped) => self.send_piece(key, &piece, stepped == Stepped::Done, cx),
            // The body cannot be completed. The reset of the stream shows this to the peer.
            Err(_) => self.cancel(key, cx.service, cx.output),
        }
        cx.service.scratch.body = piece;
        true
    }

    /// Sends the piece that a step of a job has made, as far as the windows are open.
    fn send_piece(&mut self, key: StreamKey, piece: &[u8], is_done: bool, cx: &mut Context<'_>) {
        if is_done {
            if let Some(Work::Sending { source, .. }) = work_mut(&mut self.streams, key) {
                *source = Source::End;
                self.jobs_open -= 1;
            }
        } else if piece.is_empty() {
            return self.jobs.push_back(key);
        }
        let Ok(sent) = self.connection.send_data(key, piece, is_done, cx.output) else {
            return self.on_reset(key, cx.service);
        };
        if sent < piece.len() {
            let rest = Bytes::copy_from_slice(&piece[sent..]);
            if self.reset_if_unread(key, rest.len(), cx) {
                return self.on_reset(key, cx.service);
            }
            self.keep(key, rest, cx.now);
        } else if is_done {
            self.forget(key);
        } else {
            self.jobs.push_back(key);
        }
    }

    /// Stores the unsent rest of a piece until the flow-control windows open.
    pub(super) fn keep(&mut self, key: StreamKey, rest: Bytes, now: Now) {
        if let Some(Work::Sending { unsent, .. }) = work_mut(&mut self.streams, key) {
            keep_unsent(unsent, rest, &mut self.unsent_bytes);
            self.stall(key, now);
        }
    }

    /// Notes that a response begins to wait for a flow-control window now.
    pub(super) fn stall(&mut self, key: StreamKey, now: Now) {
        if let Some(Work::Sending { stalled_ms, gone_bytes, .. }) = work_mut(&mut self.streams, key) {
            (*stalled_ms, *gone_bytes) = (Some(now.ms), 0);
            self.queue_stalled(key, now);
        }
    }

    /// Queues a stream whose response waits for a flow-control window, once for each wait. Before the queue becomes
    /// long, removes the entries of ended waits.
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
}

/// Number of bytes of a list that the first step may make even if the flow-control window is smaller. Several pieces of
/// this size fit below [`QUEUED_BYTES_LOW`].
const PIECE_BYTES_MIN: usize = 4 * 1024;

const CACHE_CONTROL: FieldName<'static> = FieldName::new(b"cache-control");
const CONTENT_LENGTH: FieldName<'static> = FieldName::new(b"content-length");
const CONTENT_TYPE: FieldName<'static> = FieldName::new(b"content-type");
const DATE: FieldName<'static> = FieldName::new(b"date");
const RETRY_AFTER: FieldName<'static> = FieldName::new(b"retry-after");
const WARNING: FieldName<'static> = FieldName::new(b"warning");
