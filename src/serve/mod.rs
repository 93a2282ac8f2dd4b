//! Between protocol and API: requests out of a connection's input, responses into its output. Holds no rules of its
//! own. Here alone the two sides meet: `conn` hands on what is needed, and `server` says when each goes on.

mod http1;
mod http2;
mod job;
mod pace;

pub use http1::Http1;
pub use http2::Http2;
pub use pace::Pace;

use crate::api::postponed::Postponed;
use crate::api::{Api, Reply};
use crate::auth::Credentials;
use crate::buffer::ByteBuf;
use crate::clock::{HttpDate, Now};
use crate::hpack::FieldBuf;
use crate::http::RequestHead;
use crate::http2::limits::STREAMS_MAX;
use crate::http2::{Config, PREFACE, StreamKey};
use crate::limits::{
    ANONYMOUS_BODY_BYTES_MAX, ANONYMOUS_STREAMS_MAX, BODY_BYTES_MAX, CONNECTION_BODIES_MAX, HEAD_MS_MAX,
    LOOK_AHEAD_BYTES_MAX, POSTPONED_MAX, QUEUED_BYTES_HIGH, QUEUED_BYTES_LOW, QUEUED_BYTES_TOTAL_HIGH,
    RECEIVED_BYTES_LOW, RECEIVED_BYTES_TOTAL_HIGH, REQUESTS_PER_TURN,
};
use crate::permits::Permits;
use crate::route::Route;
use crate::table::{Table, Wanted};
use crate::tls::trust::Trust;
use crate::watch::{Fill, WatcherKey, Watchers};
use mio::Token;
use pace::is_plain;
use std::collections::VecDeque;
use std::sync::Arc;

/// To whom a watcher belongs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Owner {
    /// The connection.
    pub connection: Token,
    /// The stream, in HTTP/2.
    pub stream: Option<StreamKey>,
}

/// Who is at the other end of a connection.
#[derive(Clone, Copy, Debug)]
pub struct Peer<'a> {
    /// The connection, to which watches will belong.
    pub connection: Token,
    /// What it has proven, and so whose requests they are.
    pub credentials: &'a Credentials,
}

/// What all connections share.
#[derive(Debug)]
pub struct Service {
    /// The API.
    pub api: Api,
    /// All Leases.
    pub table: Table,
    /// All watchers.
    pub watchers: Watchers<Owner>,
    /// Who is believed.
    pub trust: Arc<Trust>,
    /// Requests that wait for a change in the cluster: when each has waited long enough, and on which connection it is.
    /// Those that have been answered, or whose connections have gone, stay until then.
    pub postponed: VecDeque<(u64, Token)>,
    /// Of requests that wait.
    postponing: Permits,
    /// Bytes that wait, on all connections, until a window opens or a socket takes them.
    pub queued_bytes: usize,
    /// The time that the requests of this turn have.
    pub pace: Pace,
    /// Bytes received, on all connections, of requests that are not served yet.
    pub received_bytes: usize,
    /// For response heads.
    pub date: HttpDate,
    /// Scratch memory.
    pub scratch: Scratch,
}

impl Service {
    /// The API over `table`, of which nobody has heard yet.
    #[must_use]
    pub fn new(api: Api, table: Table, trust: Arc<Trust>) -> Self {
        let watchers = Watchers::new(table.version());
        Self {
            api,
            table,
            watchers,
            trust,
            postponed: VecDeque::new(),
            postponing: Permits::new(POSTPONED_MAX),
            queued_bytes: 0,
            pace: Pace::default(),
            received_bytes: 0,
            date: HttpDate::default(),
            scratch: Scratch::default(),
        }
    }

    /// Bytes of output that may wait for a peer like this, above which no request of it is served until it has read some.
    /// Events and lists under way have [`QUEUED_BYTES_HIGH`]: they would be behind for ever if requests came first.
    #[must_use]
    pub fn room_for(&self, credentials: &Credentials) -> usize {
        if credentials.is_nobody() || self.is_crowded() { QUEUED_BYTES_LOW } else { QUEUED_BYTES_HIGH }
    }

    /// Bytes of requests that are not served yet which a connection of a peer like this may hold; what would pass it is
    /// refused. A front proxy's has everybody's requests, and there are few of those.
    fn received_room_for(&self, credentials: &Credentials) -> usize {
        let is_scarce = self.received_bytes >= RECEIVED_BYTES_TOTAL_HIGH && !credentials.is_front_proxy();
        if credentials.is_nobody() || is_scarce { RECEIVED_BYTES_LOW } else { BODY_BYTES_MAX * CONNECTION_BODIES_MAX }
    }

    /// Whether so much waits on all connections that none is to get much more.
    fn is_crowded(&self) -> bool {
        self.queued_bytes >= QUEUED_BYTES_TOTAL_HIGH
    }

    /// Has the API serve a request, in the time of this turn.
    fn handle(&mut self, request: &RequestHead<'_>, body: &mut [u8], from: Peer<'_>, now: Now) -> Reply {
        let body_bytes = body.len();
        let reply = self.api.handle(&mut self.table, request, body, from.credentials, now);
        self.pace.count(is_plain(request.method, body_bytes, &reply));
        reply
    }

    /// Takes note that a request on `connection` waits; answers it if too many do already.
    fn postpone(
        &mut self,
        mut postponed: Box<Postponed>,
        connection: Token,
        now: Now,
    ) -> Result<Box<Postponed>, Reply> {
        let Some(permit) = self.postponing.take() else {
            return Err(self.api.settle(&mut self.table, *postponed, now));
        };
        postponed.hold(permit);
        self.postponed.push_back((postponed.due_ms(), connection));
        Ok(postponed)
    }
}

/// Memory that every connection uses and none keeps.
#[derive(Debug, Default)]
pub struct Scratch {
    /// Where an HTTP/2 head is decoded.
    fields: FieldBuf,
    /// For HTTP/2 requests that are not served yet.
    spare: http2::Spare,
    /// A Lease, events or a piece of a list on the way into a response.
    body: Vec<u8>,
}

/// What serving leaves to be done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Served {
    /// More input is needed.
    Starved,
    /// There is more to do, now or when the output has room.
    Busy,
    /// A response is under way behind which requests wait: events come by [`Protocol::fill_watch`], a list goes on by
    /// [`Protocol::step_job`].
    Streaming,
    /// Close when the output is sent.
    Close,
}

/// How much one connection may do in one turn, if there is [time](Pace) for it.
#[derive(Debug)]
pub struct Budget {
    /// Requests.
    pub requests: usize,
    /// Bytes of output above which no request is served, see [`Service::room_for`].
    pub room: usize,
}

impl Budget {
    /// What each connection gets in a turn, with `room` for the answers.
    #[must_use]
    pub fn for_turn(room: usize) -> Self {
        Self { requests: REQUESTS_PER_TURN, room }
    }

    /// Whether more may be done, if `output` is what waits to be sent.
    #[must_use]
    pub fn lasts(&self, output: &[u8]) -> bool {
        self.requests > 0 && output.len() < self.room
    }
}

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
            streams_max: if credentials.is_nobody() { ANONYMOUS_STREAMS_MAX } else { STREAMS_MAX },
            speaks_for_many: credentials.is_front_proxy(),
            ..Config::default()
        };
        Self::Http2(Box::new(Http2::new(config, body_bytes_max(credentials), now, output)))
    }

    /// Serves what is in `input` as far as `output` has room and `budget` lasts. Lists and deletions of a collection are
    /// begun by [`Protocol::step_job`].
    pub fn serve(
        &mut self,
        service: &mut Service,
        from: Peer<'_>,
        now: Now,
        input: &mut ByteBuf,
        output: &mut Vec<u8>,
        budget: &mut Budget,
    ) -> Served {
        loop {
            match self {
                Self::Undecided => {
                    let begun = &input.filled()[..input.len().min(PREFACE.len())];
                    if begun.is_empty() || (begun.len() < SNIFFED_BYTES && PREFACE.starts_with(begun)) {
                        return Served::Starved;
                    }
                    *self = if PREFACE.starts_with(begun) {
                        Self::http2(from.credentials, now, output)
                    } else {
                        Self::http1(from.credentials)
                    };
                }
                Self::Http2(http2) => return http2.serve(service, from, now, input, output, budget),
                Self::Http1(http1) => {
                    let served = http1.serve(service, from, now, input, output, budget);
                    match http1.take_upgrade() {
                        None => return served,
                        Some(upgrade) => {
                            *self = Self::Http2(Box::new(Http2::upgraded(upgrade, service, from, now, output)));
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
            Self::Http1(http1) => http1.has_job(),
            Self::Http2(http2) => http2.has_job_step(),
        }
    }

    /// One step of such a one, which is the work of many requests. Whether the connection is over by it.
    pub fn step_job(&mut self, service: &mut Service, from: Peer<'_>, now: Now, output: &mut Vec<u8>) -> bool {
        match self {
            Self::Undecided => false,
            Self::Http1(http1) => http1.step_job(service, now, output),
            Self::Http2(http2) => http2.step_job(service, from, now, output),
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

    /// Bytes of requests that are not served yet, beside what is still in the input.
    #[must_use]
    pub fn received_bytes(&self) -> usize {
        match self {
            Self::Undecided | Self::Http1(_) => 0,
            Self::Http2(http2) => http2.received_bytes(),
        }
    }

    /// Whether bytes behind what is being served are of use now. If not they stay with the kernel, and so with the peer.
    #[must_use]
    pub fn wants_input(&self) -> bool {
        match self {
            Self::Undecided | Self::Http2(_) => true,
            Self::Http1(http1) => !http1.is_streaming(),
        }
    }

    /// The Lease that the next request in `input` is about, if that can be told without serving it: in HTTP/2 it cannot, since
    /// each head is decoded once and in its place. There the requests of one connection are looked at together.
    #[must_use]
    pub fn wanted(&self, input: &ByteBuf, table: &Table) -> Option<Wanted> {
        match self {
            Self::Http1(http1) => http1.wanted(input, table),
            Self::Undecided | Self::Http2(_) => None,
        }
    }

    /// Whether [`Protocol::wanted`] may be of use when there is input.
    #[must_use]
    pub fn can_look_ahead(&self) -> bool {
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

    /// Takes no request that has not begun, ends watches with 410.
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
            Self::Undecided => input.is_empty(),
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

    /// Keeps what long responses under way need, before the log forgets it.
    pub fn absorb(&mut self, table: &Table, now: Now) {
        match self {
            Self::Undecided => {}
            Self::Http1(http1) => http1.absorb(table, now),
            Self::Http2(http2) => http2.absorb(table, now),
        }
    }

    /// Whether a request waits for a change in the cluster.
    #[must_use]
    pub fn is_postponed(&self) -> bool {
        match self {
            Self::Undecided => false,
            Self::Http1(http1) => http1.is_postponed(),
            Self::Http2(http2) => http2.is_postponed(),
        }
    }

    /// Whether a long response is under way that [`Protocol::absorb`] is for.
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

/// The Lease that a request for `target` is about, if that is plain to see.
fn wanted(target: &[u8], table: &Table) -> Option<Wanted> {
    if target.len() > LOOK_AHEAD_BYTES_MAX {
        return None;
    }
    let path = str::from_utf8(target).ok()?.split('?').next()?;
    match Route::of(path) {
        Route::Lease { namespace, name } => Some(table.wanted(&namespace, &name)),
        _ => None,
    }
}

/// How much body is taken from a caller. One without a certificate is refused whatever it sends.
fn body_bytes_max(credentials: &Credentials) -> usize {
    if credentials.is_nobody() { ANONYMOUS_BODY_BYTES_MAX } else { BODY_BYTES_MAX }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::resource::ResourceVersion;

    #[test]
    fn only_the_plain_path_of_a_lease_is_looked_at_ahead() {
        let table = Table::new(ResourceVersion(1), 16, 1 << 16);
        let target = |rest: &str| format!("/apis/coordination.k8s.io/v1/namespaces/{rest}").into_bytes();
        let long = "a".repeat(LOOK_AHEAD_BYTES_MAX);
        assert!(wanted(&target("n/leases/a"), &table).is_some());
        assert!(wanted(&target("n/leases/a?dryRun=All"), &table).is_some());
        assert!(wanted(&target("n/leases"), &table).is_none());
        assert!(wanted(&target(&format!("n/leases/{long}")), &table).is_none());
        assert!(wanted(&[&target("n/leases/a")[..], b"\xff"].concat(), &table).is_none());
        assert!(wanted(b"", &table).is_none());
    }
}
