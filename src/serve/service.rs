//! What requests are served with, on whichever connection.

use super::http2::Spare;
use super::pace::{Pace, is_plain};
use super::{Owner, Peer};
use crate::api::postponed::Postponed;
use crate::api::{Api, Reply};
use crate::api_error::ApiError;
use crate::auth::Credentials;
use crate::clock::{HttpDate, Now};
use crate::form::Response;
use crate::hpack::FieldBuf;
use crate::http::{Method, RequestHead};
use crate::limits::{
    BODY_BYTES_MAX, CONNECTION_BODIES_MAX, POSTPONED_MAX, QUEUED_BYTES_HIGH, QUEUED_BYTES_LOW, QUEUED_BYTES_TOTAL_HIGH,
    RECEIVED_BYTES_LOW, RECEIVED_BYTES_TOTAL_HIGH,
};
use crate::permits::Permits;
use crate::table::Table;
use crate::tls::trust::Trust;
use crate::watch::Watchers;
use mio::Token;
use std::collections::VecDeque;
use std::sync::Arc;

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

    /// Bytes of output that may wait for a peer like this, above which no request of it is served until it has read
    /// some. Events and lists under way have [`QUEUED_BYTES_HIGH`]: they would be behind for ever if requests came
    /// first.
    #[must_use]
    pub fn room_for(&self, credentials: &Credentials) -> usize {
        if credentials.is_anonymous() || self.is_crowded() { QUEUED_BYTES_LOW } else { QUEUED_BYTES_HIGH }
    }

    /// Bytes of requests that are not served yet which a connection of a peer like this may hold; what would pass it is
    /// refused. A front proxy's has everybody's requests, and there are few of those.
    pub(super) fn received_room_for(&self, credentials: &Credentials) -> usize {
        let is_scarce = self.received_bytes >= RECEIVED_BYTES_TOTAL_HIGH && !credentials.is_front_proxy();
        if credentials.is_anonymous() || is_scarce {
            RECEIVED_BYTES_LOW
        } else {
            BODY_BYTES_MAX * CONNECTION_BODIES_MAX
        }
    }

    /// Whether so much waits on all connections that none is to get much more.
    pub(super) fn is_crowded(&self) -> bool {
        self.queued_bytes >= QUEUED_BYTES_TOTAL_HIGH
    }

    /// Has the API serve a request, in the time of this turn.
    pub(super) fn handle(&mut self, request: &RequestHead<'_>, body: &mut [u8], from: Peer<'_>, now: Now) -> Reply {
        let body_bytes = body.len();
        let reply = self.api.handle(&mut self.table, request, body, from.credentials, now);
        self.pace.count(is_plain(request.method, body_bytes, &reply));
        reply
    }

    /// Has the API refuse a request whose body is not taken, in the time of this turn; `None` if its head cannot be
    /// read. With the answer, whether it is one to a HEAD.
    pub(super) fn refuse(&mut self, request: Option<&RequestHead<'_>>, error: &ApiError) -> (Response, bool) {
        self.pace.count(true);
        match request {
            Some(request) => (self.api.refuse(request, error), request.method == Method::Head),
            None => (Response::from_error(error), false),
        }
    }

    /// Takes note that a request on `connection` waits; answers it if too many do already.
    pub(super) fn postpone(
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
    pub(super) fields: FieldBuf,
    /// For HTTP/2 requests that are not served yet.
    pub(super) spare: Spare,
    /// A Lease, events or a piece of a list on the way into a response.
    pub(super) body: Vec<u8>,
}
