//! [`Protocol`] forwards the operations of a connection to its protocol, HTTP/1.1 or HTTP/2.

use super::{AfterStep, Context, Http1, Http2, Owner, Served, Service};
use crate::auth::Credentials;
use crate::buffer::ByteBuf;
use crate::clock::Now;
use crate::http2::limits::STREAMS_MAX;
use crate::http2::{Config, PREFACE, StreamKey};
use crate::limits::{ANONYMOUS_BODY_BYTES_MAX, ANONYMOUS_STREAMS_MAX, BODY_BYTES_MAX, HEAD_MS_MAX};
use crate::schedule::{Budget, LongState};
use crate::table::{PrefetchKey, Table};
use crate::watch::{Fill, WatcherKey, Watchers};

/// The protocol of a connection.
#[derive(Debug)]
pub enum Protocol {
    /// A cleartext connection whose first bytes have not arrived. These bytes show the protocol: HTTP/2 with prior
    /// knowledge begins with the preface (RFC 9113 §3.3).
    Undecided,
    /// HTTP/1.1.
    Http1(Box<Http1>),
    /// HTTP/2.
    Http2(Box<Http2>),
}

impl Protocol {
    /// Returns HTTP/1.1 for a peer with these credentials.
    #[must_use]
    pub fn http1(credentials: &Credentials) -> Self {
        Self::Http1(Box::new(Http1::new(body_bytes_max(credentials))))
    }

    /// Returns HTTP/2 for a peer with these credentials. Appends the server's first frames to `output`.
    #[must_use]
    pub fn http2(credentials: &Credentials, output: &mut Vec<u8>) -> Self {
        let config = Config {
            streams_max: if credentials.is_anonymous() { ANONYMOUS_STREAMS_MAX } else { STREAMS_MAX },
            speaks_for_many: credentials.is_front_proxy(),
            ..Config::default()
        };
        Self::Http2(Box::new(Http2::new(config, body_bytes_max(credentials), output)))
    }

    /// Serves the requests in `input` until the output is full or `budget` is used up. A job (a response made in steps,
    /// such as a list) is only accepted here; [`Protocol::step_job`] runs each step of the job, also the first. In
    /// HTTP/2, a request whose processing takes long is only queued here, for [`Protocol::serve_long_request`].
    pub fn serve_requests(&mut self, cx: &mut Context<'_>, input: &mut ByteBuf, budget: &mut Budget) -> Served {
        loop {
            match self {
                Self::Undecided => {
                    let begun = &input.filled()[..input.len().min(PREFACE.len())];
                    if begun.is_empty() || (begun.len() < SNIFFED_BYTES && PREFACE.starts_with(begun)) {
                        return Served::Starved;
                    }
                    *self = if PREFACE.starts_with(begun) {
                        Self::http2(cx.from.credentials, cx.output)
                    } else {
                        Self::http1(cx.from.credentials)
                    };
                }
                Self::Http2(http2) => return http2.serve_requests(cx, input, budget),
                Self::Http1(http1) => {
                    let served = http1.serve_requests(cx, input, budget);
                    match http1.take_upgrade() {
                        None => return served,
                        Some(upgrade) => {
                            *self = Self::Http2(Box::new(Http2::upgraded(upgrade, cx)));
                        }
                    }
                }
            }
        }
    }

    /// Returns the state of the queued long requests. Only HTTP/2 has a queue for requests whose processing takes long.
    #[must_use]
    pub fn long_state(&self) -> LongState {
        if let Self::Http2(http2) = self { http2.long_state() } else { LongState::Gone }
    }

    /// Whether a request whose processing takes long is queued.
    #[must_use]
    pub fn has_long_request(&self) -> bool {
        self.long_state() != LongState::Gone
    }

    /// Serves the first queued request whose processing takes long.
    pub fn serve_long_request(&mut self, cx: &mut Context<'_>) -> AfterStep {
        if let Self::Http2(http2) = self { http2.serve_long_request(cx) } else { AfterStep::GoOn }
    }

    /// Whether a job, such as a list, is runnable.
    #[must_use]
    pub fn has_job_step(&self) -> bool {
        match self {
            Self::Undecided => false,
            Self::Http1(http1) => http1.has_job_step(),
            Self::Http2(http2) => http2.has_job_step(),
        }
    }

    /// Runs one step of a job. Only one, because all steps of a job together may take as long as many requests.
    pub fn step_job(&mut self, cx: &mut Context<'_>) -> AfterStep {
        match self {
            Self::Undecided => AfterStep::GoOn,
            Self::Http1(http1) => http1.step_job(cx),
            Self::Http2(http2) => http2.step_job(cx),
        }
    }

    /// Appends the next events of the watch `key` on `stream` to `output`. Returns `None` if this watch is not open.
    pub fn send_events(
        &mut self,
        service: &mut Service,
        stream: Option<StreamKey>,
        key: WatcherKey,
        now: Now,
        output: &mut Vec<u8>,
    ) -> Option<Fill> {
        match (self, stream) {
            (Self::Http1(http1), None) => http1.send_events(service, key, now, output),
            (Self::Http2(http2), Some(stream)) => http2.send_events(service, stream, key, now, output),
            _ => None,
        }
    }

    /// Whether a watch is open, so that further input is not useful. Always false in HTTP/2, where other streams may
    /// send requests.
    #[must_use]
    pub fn is_watching(&self) -> bool {
        matches!(self, Self::Http1(http1) if http1.is_watching())
    }

    /// Returns the bytes of responses that wait for the flow-control windows of HTTP/2 streams.
    #[must_use]
    pub fn unsent_bytes(&self) -> usize {
        if let Self::Http2(http2) = self { http2.unsent_bytes() } else { 0 }
    }

    /// Returns the bytes of unanswered requests, without the bytes in the input.
    #[must_use]
    pub fn received_bytes(&self) -> usize {
        if let Self::Http2(http2) = self { http2.received_bytes() } else { 0 }
    }

    /// Whether more input is useful now. If not, the caller does not read, and TCP flow control stops the peer.
    #[must_use]
    pub fn wants_input(&self) -> bool {
        !matches!(self, Self::Http1(http1) if http1.is_streaming())
    }

    /// Returns the key with which the table prefetches the Lease of the next request in `input`. An HTTP/2 connection
    /// returns `None`, since it decodes each head only once, when it reads the request. It prefetches the Leases of its
    /// complete requests itself.
    #[must_use]
    pub fn next_prefetch_key(&self, input: &ByteBuf, table: &Table) -> Option<PrefetchKey> {
        if let Self::Http1(http1) = self { http1.next_prefetch_key(input, table) } else { None }
    }

    /// Whether [`Protocol::next_prefetch_key`] may return the key of a Lease to read into the processor's caches, once
    /// there is input.
    #[must_use]
    pub fn can_prefetch(&self) -> bool {
        matches!(self, Self::Http1(http1) if !http1.is_streaming())
    }

    /// Whether the peer has sent only a part of a request; in HTTP/2, only a part of a frame or of a field block.
    #[must_use]
    pub fn is_within_message(&self, input: &ByteBuf) -> bool {
        match self {
            Self::Undecided => !input.is_empty(),
            Self::Http1(http1) => http1.is_within_message(input),
            Self::Http2(http2) => http2.is_within_message(input),
        }
    }

    /// Returns the earliest deadline, in ms. The server has waited for the next input since `since_ms`. With
    /// `u64::MAX`, it does not wait for input, so only deadlines with a start of their own apply: those of bodies, and
    /// of the streams of HTTP/2.
    #[must_use]
    pub fn deadline_ms(&self, input: &ByteBuf, since_ms: u64) -> u64 {
        match self {
            Self::Undecided => since_ms.saturating_add(HEAD_MS_MAX),
            Self::Http1(http1) => http1.deadline_ms(input, since_ms),
            Self::Http2(http2) => http2.deadline_ms(input, since_ms),
        }
    }

    /// Handles a deadline of the connection or of its streams that has passed. Returns whether the connection must
    /// close.
    pub fn on_timeout(&mut self, service: &mut Service, now: Now, output: &mut Vec<u8>) -> bool {
        if let Self::Http2(http2) = self { http2.on_timeout(service, now, output) } else { true }
    }

    /// Prepares the connection for the stop of the server: refuses new requests from now on, and ends watches.
    pub fn on_shutdown(&mut self, service: &mut Service, output: &mut Vec<u8>) {
        match self {
            Self::Undecided => {}
            Self::Http1(http1) => http1.on_shutdown(service, output),
            Self::Http2(http2) => http2.on_shutdown(service, output),
        }
    }

    /// Whether no request or response is in progress, so that closing the connection loses nothing.
    #[must_use]
    pub fn is_idle(&self, input: &ByteBuf) -> bool {
        match self {
            // Bytes too few to determine the protocol are not a request yet.
            Self::Undecided => true,
            Self::Http1(http1) => http1.is_idle(input),
            Self::Http2(http2) => http2.is_idle(input),
        }
    }

    /// Drops all requests and responses in progress, because the connection closes.
    pub fn drop_work(&mut self, watchers: &mut Watchers<Owner>) {
        match self {
            Self::Undecided => {}
            Self::Http1(http1) => http1.drop_work(watchers),
            Self::Http2(http2) => http2.drop_work(watchers),
        }
    }

    /// [Releases the memory](crate::api::job::Job::check) of each job in two cases: its deadline has passed, or the
    /// server has revoked its permit (the right to a long response). If the output has no room, or if an HTTP/2 job
    /// waits for the window of its stream, the job counts as waiting for the peer to read. Then the server may revoke
    /// its permit, and give the permit to another user.
    pub fn check_jobs(&mut self, now: Now, has_room: bool) {
        match self {
            Self::Undecided => {}
            Self::Http1(http1) => http1.check_job(now, has_room),
            Self::Http2(http2) => http2.check_jobs(now, has_room),
        }
    }

    /// Whether a request or a job waits, for example for the journal.
    #[must_use]
    pub fn is_waiting(&self) -> bool {
        match self {
            Self::Undecided => false,
            Self::Http1(http1) => http1.is_waiting(),
            Self::Http2(http2) => http2.is_waiting(),
        }
    }

    /// Whether a job, such as a list, is in progress.
    #[must_use]
    pub fn has_job(&self) -> bool {
        match self {
            Self::Undecided => false,
            Self::Http1(http1) => http1.has_job(),
            Self::Http2(http2) => http2.has_job(),
        }
    }
}

/// Number of bytes that distinguish the preface from every method. The preface begins with `PRI `.
const SNIFFED_BYTES: usize = 4;

/// Returns the maximum length of a request body from this peer, in bytes. An anonymous peer has no certificate, or one
/// that gives it no rights. It may only read health and version, so its limit is low.
pub(super) fn body_bytes_max(credentials: &Credentials) -> usize {
    if credentials.is_anonymous() { ANONYMOUS_BODY_BYTES_MAX } else { BODY_BYTES_MAX }
}
