//! What requests are served with, on whichever connection.

use super::http2::Spare;
use super::pace::{Pace, is_plain};
use super::waiters::Waiters;
use super::{Owner, Peer};
use crate::api::handover::given_back;
use crate::api::job::Job;
use crate::api::waiting::{Resumed, Retry, Waiting, WakeUp};
use crate::api::{Api, Reply, Storage};
use crate::api_error::ApiError;
use crate::auth::Credentials;
use crate::clock::{HttpDate, Now};
use crate::engine::EngineError;
use crate::form::Response;
use crate::hpack::FieldBuf;
use crate::http::{Method, RequestHead};
use crate::journal::Advanced;
use crate::limits::{
    BODY_BYTES_MAX, CONNECTION_BODIES_MAX, QUEUED_BYTES_HIGH, QUEUED_BYTES_LOW, QUEUED_BYTES_TOTAL_HIGH,
    RECEIVED_BYTES_LOW, RECEIVED_BYTES_TOTAL_HIGH,
};
use crate::table::Table;
use crate::tls::trust::Trust;
use crate::watch::Watchers;
use mio::Token;
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
    /// Connections with requests that wait.
    pub waiters: Waiters,
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
            waiters: Waiters::default(),
            queued_bytes: 0,
            pace: Pace::default(),
            received_bytes: 0,
            date: HttpDate::default(),
            scratch: Scratch::default(),
        }
    }

    /// Forgets all Leases, for `table` in their place. No connection may be open.
    pub fn begin_again(&mut self, table: Table) {
        self.api.storage = Storage::Memory;
        self.watchers = Watchers::new(table.version());
        self.waiters = Waiters::default();
        self.table = table;
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

    /// Takes in what the journal says: applies the changes that are durable, and gives the connections with requests
    /// that can go on to `wake`. A journal that is being loaded takes in about `records_max` records. Whether this call
    /// has loaded the last of them.
    ///
    /// # Errors
    /// The journal cannot go on, and nothing more may be served.
    pub fn advance_journal(
        &mut self,
        now: Now,
        records_max: usize,
        mut wake: impl FnMut(Token),
    ) -> Result<bool, EngineError> {
        let Self { api, table, waiters, .. } = self;
        let Some(journal) = api.storage.journal_mut() else { return Ok(false) };
        let Advanced { settled, has_applied, has_ended_barriers, has_loaded } =
            journal.advance(table, now.ms, records_max)?;
        for commit in journal.take_commits() {
            api.metrics.count_commit(commit);
        }
        api.handover.look(table);
        if settled > 0 {
            waiters.wake_settled(journal.settled(), &mut wake);
        }
        if has_applied {
            waiters.wake_any(&mut wake);
        }
        if has_ended_barriers {
            let passed = if journal.is_reachable() { journal.passed_barrier() } else { u64::MAX };
            waiters.wake_passed(passed, wake);
        }
        api.tell_holder_changes(now);
        Ok(has_loaded)
    }

    /// Sends the journal the changes of this turn, if it is not busy with those of one before.
    pub fn send_changes(&mut self, now: Now) {
        if let Some(journal) = self.api.storage.journal_mut() {
            journal.end_turn(&self.table, now.ms);
        }
    }

    /// Takes in the phase of the hand-over of Leases, and does this replica's work in it.
    pub fn hand_over(&mut self, now: Now) {
        if self.api.hand_over(&mut self.table, now) {
            self.watchers.end_all(&given_back());
        }
    }

    /// Has the API serve a request, in the time of this turn.
    pub(super) fn handle(
        &mut self,
        request: &RequestHead<'_>,
        body: &[u8],
        retry: Option<Retry>,
        from: Peer<'_>,
        now: Now,
    ) -> Reply {
        let (api, table, credentials) = (&mut self.api, &mut self.table, from.credentials);
        let reply = api.handle(table, request, body, retry, credentials, now);
        self.pace.count(is_plain(request.method, body.len(), &reply));
        if let Reply::Waiting(waiting) = &reply {
            self.note_waiting(waiting, from.connection);
        }
        reply
    }

    /// Goes on with a request that waits, if it can.
    pub(super) fn resume(&mut self, waiting: Waiting, connection: Token, now: Now) -> Resumed {
        let resumed = self.api.resume(waiting, now);
        match &resumed {
            // One that waits for its own change stays noted until that is settled.
            Resumed::Waits(waiting) if waiting.wake_up() == WakeUp::AnyChange => {
                self.note_waiting(waiting, connection);
            }
            Resumed::Again(_) | Resumed::Reply(_) | Resumed::Waits(_) => {}
        }
        resumed
    }

    /// Notes that a job on `connection` waits for changes that it has made.
    pub(super) fn note_waiting_job(&mut self, job: &Job, connection: Token, now: Now) {
        self.waiters.add(WakeUp::AnyChange, job.late_ms(now), connection);
    }

    fn note_waiting(&mut self, waiting: &Waiting, connection: Token) {
        self.waiters.add(waiting.wake_up(), waiting.due_ms(), connection);
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
