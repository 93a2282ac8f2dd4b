//! [`Service`]: the state that all connections share to serve requests. It consists of the API, the Leases, the
//! watchers, and buffers.

use super::http2::Spare;
use super::waiters::Waiters;
use super::{Owner, Peer};
use crate::api::handover::given_back;
use crate::api::job::Job;
use crate::api::waiting::{Resumed, Retry, Waiting, WakeUp};
use crate::api::{Api, Reply, Storage};
use crate::api_error::ApiError;
use crate::auth::Credentials;
use crate::clock::{HttpDate, Now, RareWarning};
use crate::engine::EngineError;
use crate::form::Response;
use crate::hpack::FieldBuf;
use crate::http::{Method, RequestHead};
use crate::http2::ConnectionError;
use crate::journal::Advanced;
use crate::limits::{
    BODY_BYTES_MAX, CONNECTION_BODIES_MAX, PLAIN_REQUEST_BYTES_MAX, QUEUED_BYTES_HIGH, QUEUED_BYTES_LOW,
    QUEUED_BYTES_TOTAL_HIGH, RECEIVED_BYTES_LOW, RECEIVED_BYTES_TOTAL_HIGH,
};
use crate::resource::ResourceVersion;
use crate::schedule::Pace;
use crate::table::Table;
use crate::tls::trust::Trust;
use crate::watch::Watchers;
use mio::Token;
use std::sync::Arc;

/// The state that all connections share.
#[derive(Debug)]
pub struct Service {
    /// The API.
    pub api: Api,
    /// All Leases.
    pub table: Table,
    /// All watchers.
    pub watchers: Watchers<Owner>,
    /// Client CAs and front-proxy CAs.
    pub trust: Arc<Trust>,
    /// Connections with requests that wait.
    pub waiters: Waiters,
    /// Bytes of output that wait for a flow-control window or a socket, on all connections.
    pub queued_bytes: usize,
    /// Time budget of the requests of this turn.
    pub pace: Pace,
    /// Received bytes of unserved requests on all connections.
    pub received_bytes: usize,
    /// Warning that a front proxy's connection has failed.
    front_proxy_warning: RareWarning,
    /// The table's `resourceVersion` when [`Service::hand_over`] last woke the requests that wait for any change.
    woken_at: ResourceVersion,
    /// Date for response heads.
    pub date: HttpDate,
    /// Shared scratch buffers.
    pub scratch: Scratch,
}

impl Service {
    /// Returns a service for `table`, without watchers.
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
            front_proxy_warning: RareWarning::default(),
            woken_at: ResourceVersion::default(),
            date: HttpDate::default(),
            scratch: Scratch::default(),
        }
    }

    /// Replaces all Leases by `table`, and drops the journal, so that the caller can open a new one. Counts the reload.
    /// Returns the former Leases and watchers. No connection may be open, apart from those that the caller has taken
    /// out of service.
    pub fn begin_again(&mut self, table: Table) -> (Table, Watchers<Owner>) {
        if let Some(journal) = std::mem::replace(&mut self.api.storage, Storage::Memory).journal() {
            self.api.metrics.count_reload(journal);
        }
        self.waiters = Waiters::default();
        (self.queued_bytes, self.received_bytes) = (0, 0);
        let watchers = std::mem::replace(&mut self.watchers, Watchers::new(table.version()));
        (std::mem::replace(&mut self.table, table), watchers)
    }

    /// Returns the bytes of queued output at which the server serves no further request until the peer has read some of
    /// them. Open watches and lists use the limit [`QUEUED_BYTES_HIGH`] instead, which may be higher. So they still
    /// progress when responses to other requests fill the output up to the lower limit.
    #[must_use]
    pub fn output_bytes_max(&self, credentials: &Credentials) -> usize {
        if credentials.is_anonymous() || self.is_crowded() { QUEUED_BYTES_LOW } else { QUEUED_BYTES_HIGH }
    }

    /// Returns the maximum bytes of unserved requests on a peer's connection. Further bytes are refused. The limit for
    /// a front proxy is never lowered, because its few connections carry the requests of all its clients.
    pub(super) fn received_bytes_max(&self, credentials: &Credentials) -> usize {
        let is_scarce = self.received_bytes >= RECEIVED_BYTES_TOTAL_HIGH && !credentials.is_front_proxy();
        if credentials.is_anonymous() || is_scarce {
            RECEIVED_BYTES_LOW
        } else {
            BODY_BYTES_MAX * CONNECTION_BODIES_MAX
        }
    }

    /// Whether the output that waits on all connections together has reached [`QUEUED_BYTES_TOTAL_HIGH`]. If so, each
    /// connection may queue only [`QUEUED_BYTES_LOW`] bytes.
    pub(super) fn is_crowded(&self) -> bool {
        self.queued_bytes >= QUEUED_BYTES_TOTAL_HIGH
    }

    /// Advances the journal: applies durable changes, and passes connections with runnable requests to `wake`. A
    /// journal that is loading applies about `records_max` records. Returns whether this call loaded the last record.
    ///
    /// # Errors
    /// The journal has failed, and nothing more may be served.
    pub fn advance_journal(
        &mut self,
        now: Now,
        records_max: usize,
        mut wake: impl FnMut(Token),
    ) -> Result<bool, EngineError> {
        let Self { api, table, waiters, .. } = self;
        let Some(journal) = api.storage.journal_mut() else { return Ok(false) };
        let Advanced { settled, has_applied, has_passed_barriers, has_loaded } =
            journal.advance(table, now.ms, records_max)?;
        for commit in journal.take_commits() {
            api.metrics.count_commit(commit);
        }
        if has_loaded {
            api.handover.begin_again();
        }
        api.handover.read_state(table);
        if settled > 0 {
            waiters.wake_settled(journal.settled(), &mut wake);
        }
        if has_applied {
            waiters.wake_applied(journal.version().0, &mut wake);
            waiters.wake_any(&mut wake);
        }
        if !journal.is_reachable() {
            waiters.wake_unreachable(wake);
        } else if has_passed_barriers {
            waiters.wake_passed(journal.passed_barrier(), wake);
        }
        api.tell_holder_changes(now);
        Ok(has_loaded)
    }

    /// Ends the turn of the journal. The journal gives the changes of this turn to its thread, or keeps them back. It
    /// keeps them back while the thread still writes the previous batch, or to wait for more changes.
    pub fn send_changes(&mut self, now: Now) {
        if let Some(journal) = self.api.storage.journal_mut() {
            journal.end_turn(&self.table, now.ms);
        }
    }

    /// Continues this replica's work for the current phase of the hand-over, which is the move of Leases from or to
    /// kube-apiserver's own storage. Passes connections with runnable requests to `wake`.
    pub fn hand_over(&mut self, now: Now, mut wake: impl FnMut(Token)) {
        let held_writes = self.api.handover.holds_writes();
        if self.api.hand_over(&mut self.table, now) {
            self.watchers.end_all(&given_back());
        }
        // Some requests wait for a change of the table. With a journal, the journal reports each change, and so wakes
        // them. With `--storage memory` there is no journal, so this function wakes the requests.
        self.waiters.wake_applied(self.table.version().0, &mut wake);
        let holds_writes = held_writes || self.api.handover.holds_writes();
        if holds_writes && self.table.version() != self.woken_at {
            self.woken_at = self.table.version();
            self.waiters.wake_any(wake);
        }
    }

    /// Logs, at intervals, that data from a front proxy was invalid, so that its connection ends. The operator should
    /// know, because such a connection carries the requests of many clients.
    #[cold]
    pub(super) fn warn_front_proxy_end(&mut self, error: &ConnectionError, now: Now) {
        let Some(unlogged) = self.front_proxy_warning.count(now) else { return };
        tracing::warn!(
            %error,
            unlogged,
            "the front proxy's HTTP/2 connection ends, and all requests and watches on it"
        );
    }

    /// Passes a request to the API, and counts the request in [`Service::pace`].
    pub(super) fn call_api(
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

    /// Resumes a waiting request, if it is runnable.
    pub(super) fn resume_request(&mut self, waiting: Waiting, connection: Token, now: Now) -> Resumed {
        let resumed = self.api.resume(&self.table, waiting, now);
        match &resumed {
            // A request that waits for its own change stays in `waiters` until the journal reports the outcome of the
            // change. The other waiting requests of a connection share entries: one entry for each event, and one for
            // all versions. An entry has the first deadline of its requests, and is removed when its event comes or
            // this deadline passes. So each request that still waits is added again.
            Resumed::Waits(waiting) if !matches!(waiting.wake_up(), WakeUp::OwnTicket(_)) => {
                self.note_waiting(waiting, connection);
            }
            Resumed::Reply(_) => self.pace.note_answer(),
            Resumed::Again(_) | Resumed::Waits(_) => {}
        }
        resumed
    }

    /// Adds a job (a response made in steps) on `connection` to [`Service::waiters`]. The job waits for the journal to
    /// report the outcome of the job's changes.
    pub(super) fn note_waiting_job(&mut self, job: &Job, connection: Token, now: Now) {
        self.waiters.add(WakeUp::AnyChange, job.late_ms(now), connection);
    }

    fn note_waiting(&mut self, waiting: &Waiting, connection: Token) {
        self.waiters.add(waiting.wake_up(), waiting.due_ms(), connection);
    }

    /// Refuses a request without reading the rest of its body, and counts the request in [`Service::pace`]. `request`
    /// is `None` if the head is unreadable. Returns the response and whether the method is HEAD.
    pub(super) fn refuse(&mut self, request: Option<&RequestHead<'_>>, error: &ApiError) -> (Response, bool) {
        self.pace.count(true);
        match request {
            Some(request) => (self.api.refuse(request, error), request.method == Method::Head),
            None => (Response::from_error(error), false),
        }
    }
}

/// Scratch buffers that all connections use, one after the other.
#[derive(Debug, Default)]
pub struct Scratch {
    /// The decoded HTTP/2 head.
    pub(super) fields: FieldBuf,
    /// Spare memory for unserved HTTP/2 requests.
    pub(super) spare: Spare,
    /// A Lease, events, or a piece of a list, encoded for a response.
    pub(super) body: Vec<u8>,
}

/// Whether a request is plain, so that it takes only microseconds. A plain request reads or replaces one Lease, and
/// the bodies of request and response are as short as an ordinary Lease. `body_bytes` is the length of the request's
/// body.
fn is_plain(method: Method, body_bytes: usize, reply: &Reply) -> bool {
    match (method, reply) {
        // The response to a PUT is about as long as the body of the request.
        (Method::Put, Reply::Response(_) | Reply::Waiting(_)) => body_bytes <= PLAIN_REQUEST_BYTES_MAX,
        (Method::Get, Reply::Response(response)) => body_bytes.max(response.body.len_max()) <= PLAIN_REQUEST_BYTES_MAX,
        _ => false,
    }
}
