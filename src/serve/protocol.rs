//! What a connection does in whichever protocol it speaks.

use super::{AfterStep, Budget, Http1, Http2, Owner, Served, Service, Turn};
use crate::auth::Credentials;
use crate::buffer::ByteBuf;
use crate::clock::Now;
use crate::http2::limits::STREAMS_MAX;
use crate::http2::{Config, PREFACE, StreamKey};
use crate::limits::{ANONYMOUS_BODY_BYTES_MAX, ANONYMOUS_STREAMS_MAX, BODY_BYTES_MAX, HEAD_MS_MAX};
use crate::table::{PrefetchKey, Table};
use crate::watch::{Fill, WatcherKey, Watchers};

/// The protocol that a connection speaks.
#[derive(Debug)]
pub enum Protocol {
    /// Cleartext, of which the first bytes tell: HTTP/2 with prior knowledge begins with its preface (RFC 9113 §3.3).
    Undecided,
    /// HTTP/1.1.
    Http1(Http1),
    /// HTTP/2.
    Http2(Box<Http2>),
}

impl Protocol {
    /// HTTP/1.1 for a caller of this kind.
    #[must_use]
    pub fn http1(credentials: &Credentials) -> Self {
        Self::Http1(Http1::new(body_bytes_max(credentials)))
    }

    /// HTTP/2, whose first frame goes to `output`.
    #[must_use]
    pub fn http2(credentials: &Credentials, now: Now, output: &mut Vec<u8>) -> Self {
        let config = Config {
            streams_max: if credentials.is_anonymous() { ANONYMOUS_STREAMS_MAX } else { STREAMS_MAX },
            speaks_for_many: credentials.is_front_proxy(),
            ..Config::default()
        };
        Self::Http2(Box::new(Http2::new(config, body_bytes_max(credentials), now, output)))
    }

    /// Serves what is in `input` as far as the output has room and `budget` lasts. Lists and deletions of a collection
    /// are begun by [`Protocol::step_job`].
    pub fn serve(&mut self, turn: &mut Turn<'_>, input: &mut ByteBuf, budget: &mut Budget) -> Served {
        loop {
            match self {
                Self::Undecided => {
                    let begun = &input.filled()[..input.len().min(PREFACE.len())];
                    if begun.is_empty() || (begun.len() < SNIFFED_BYTES && PREFACE.starts_with(begun)) {
                        return Served::Starved;
                    }
                    *self = if PREFACE.starts_with(begun) {
                        Self::http2(turn.from.credentials, turn.now, turn.output)
                    } else {
                        Self::http1(turn.from.credentials)
                    };
                }
                Self::Http2(http2) => return http2.serve(turn, input, budget),
                Self::Http1(http1) => {
                    let served = http1.serve(turn, input, budget);
                    match http1.take_upgrade() {
                        None => return served,
                        Some(upgrade) => {
                            *self = Self::Http2(Box::new(Http2::upgraded(upgrade, turn)));
                        }
                    }
                }
            }
        }
    }

    /// Whether a list or a deletion of a collection can go on.
    #[must_use]
    pub fn has_job_step(&self) -> bool {
        match self {
            Self::Undecided => false,
            Self::Http1(http1) => http1.has_job_step(),
            Self::Http2(http2) => http2.has_job_step(),
        }
    }

    /// One step of a list or of a deletion of a collection, which is the work of many requests.
    pub fn step_job(&mut self, turn: &mut Turn<'_>) -> AfterStep {
        match self {
            Self::Undecided => AfterStep::GoOn,
            Self::Http1(http1) => http1.step_job(turn),
            Self::Http2(http2) => http2.step_job(turn),
        }
    }

    /// Appends events to the open watch `key` on `stream`. `None` if it is not open.
    pub fn fill_watch(
        &mut self,
        service: &mut Service,
        stream: Option<StreamKey>,
        key: WatcherKey,
        now: Now,
        output: &mut Vec<u8>,
    ) -> Option<Fill> {
        match (self, stream) {
            (Self::Http1(http1), None) => http1.fill_watch(service, key, now, output),
            (Self::Http2(http2), Some(stream)) => http2.fill_watch(service, stream, key, now, output),
            _ => None,
        }
    }

    /// Whether a watch is under way behind which no input is of use; in HTTP/2 there always is some.
    #[must_use]
    pub fn is_watching(&self) -> bool {
        match self {
            Self::Undecided | Self::Http2(_) => false,
            Self::Http1(http1) => http1.is_watching(),
        }
    }

    /// Bytes of responses that wait for something else than the socket: the windows of HTTP/2 streams.
    #[must_use]
    pub fn unsent_bytes(&self) -> usize {
        match self {
            Self::Undecided | Self::Http1(_) => 0,
            Self::Http2(http2) => http2.unsent_bytes(),
        }
    }

    /// Bytes of requests that are not answered yet, beside what is still in the input.
    #[must_use]
    pub fn received_bytes(&self) -> usize {
        match self {
            Self::Undecided | Self::Http1(_) => 0,
            Self::Http2(http2) => http2.received_bytes(),
        }
    }

    /// Whether bytes behind what is being served are of use now. If not they stay with the kernel, and so with the
    /// peer.
    #[must_use]
    pub fn wants_input(&self) -> bool {
        match self {
            Self::Undecided | Self::Http2(_) => true,
            Self::Http1(http1) => !http1.is_streaming(),
        }
    }

    /// The Lease that the next request in `input` is about, if that can be told without serving it: in HTTP/2 it
    /// cannot, since each head is decoded once and in its place. There the Leases of one connection's requests are
    /// prefetched.
    #[must_use]
    pub fn prefetch_key(&self, input: &ByteBuf, table: &Table) -> Option<PrefetchKey> {
        match self {
            Self::Http1(http1) => http1.prefetch_key(input, table),
            Self::Undecided | Self::Http2(_) => None,
        }
    }

    /// Whether [`Protocol::prefetch_key`] may be of use when there is input.
    #[must_use]
    pub fn can_prefetch(&self) -> bool {
        matches!(self, Self::Http1(http1) if !http1.is_streaming())
    }

    /// Whether a request has begun and is not whole.
    #[must_use]
    pub fn is_within_message(&self, input: &ByteBuf) -> bool {
        match self {
            Self::Undecided => !input.is_empty(),
            Self::Http1(http1) => http1.is_within_message(input),
            Self::Http2(http2) => http2.is_within_message(input),
        }
    }

    /// Milliseconds at which the peer, which has owed us something since `since_ms`, has kept us waiting too long.
    #[must_use]
    pub fn deadline_ms(&self, input: &ByteBuf, since_ms: u64) -> u64 {
        match self {
            Self::Undecided => since_ms.saturating_add(HEAD_MS_MAX),
            Self::Http1(http1) => http1.deadline_ms(input, since_ms),
            Self::Http2(http2) => http2.deadline_ms(input, since_ms),
        }
    }

    /// The deadline has come. Whether the connection is over.
    pub fn on_timeout(&mut self, service: &mut Service, now: Now, output: &mut Vec<u8>) -> bool {
        match self {
            Self::Undecided | Self::Http1(_) => true,
            Self::Http2(http2) => http2.on_timeout(service, now, output),
        }
    }

    /// Takes no request that has not begun, and ends watches.
    pub fn on_shutdown(&mut self, service: &mut Service, output: &mut Vec<u8>) {
        match self {
            Self::Undecided => {}
            Self::Http1(http1) => http1.on_shutdown(service, output),
            Self::Http2(http2) => http2.on_shutdown(service, output),
        }
    }

    /// Whether nothing is under way, so that the connection can end without anybody losing something.
    #[must_use]
    pub fn is_idle(&self, input: &ByteBuf) -> bool {
        match self {
            // A few bytes that tell no protocol yet are no request.
            Self::Undecided => true,
            Self::Http1(http1) => http1.is_idle(input),
            Self::Http2(http2) => http2.is_idle(input),
        }
    }

    /// Lets go of all that is under way: nobody will have it any more.
    pub fn drop_work(&mut self, watchers: &mut Watchers<Owner>) {
        match self {
            Self::Undecided => {}
            Self::Http1(http1) => http1.drop_work(watchers),
            Self::Http2(http2) => http2.drop_work(watchers),
        }
    }

    /// Lets go of what long responses hold whose time is over.
    pub fn end_late_jobs(&mut self, now: Now) {
        match self {
            Self::Undecided => {}
            Self::Http1(http1) => http1.end_late_job(now),
            Self::Http2(http2) => http2.end_late_jobs(now),
        }
    }

    /// Whether a request or a job waits.
    #[must_use]
    pub fn is_waiting(&self) -> bool {
        match self {
            Self::Undecided => false,
            Self::Http1(http1) => http1.is_waiting(),
            Self::Http2(http2) => http2.is_waiting(),
        }
    }

    /// Whether a long response is under way.
    #[must_use]
    pub fn has_job(&self) -> bool {
        match self {
            Self::Undecided => false,
            Self::Http1(http1) => http1.has_job(),
            Self::Http2(http2) => http2.has_job(),
        }
    }
}

/// Bytes that tell the preface from every method: `PRI `.
const SNIFFED_BYTES: usize = 4;

/// How much body is taken from a caller. One without a certificate is refused whatever it sends.
pub(super) fn body_bytes_max(credentials: &Credentials) -> usize {
    if credentials.is_anonymous() { ANONYMOUS_BODY_BYTES_MAX } else { BODY_BYTES_MAX }
}
