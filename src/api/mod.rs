//! The verbs of the Lease API. They convert a request and its body to a [`Reply`].
//!
//! This module decides the order of kube-apiserver's checks, since the client sees only the first failure. The rules of
//! the API are in `lease`, `options`, `patch` and `selector`. The module `serve` sends the replies.

mod answer;
mod asked_state;
mod delete;
mod deletion;
mod discovery;
mod freshness;
mod gzip;
pub mod handover;
mod holder_log;
pub mod identity;
pub mod job;
mod key;
mod negotiate;
mod patch;
mod pending_request;
mod preconditions;
mod read;
mod reclaim;
mod renew;
mod storage;
mod token;
pub mod waiting;
mod warnings;
mod write;

use crate::api_error::ApiError;
use crate::auth::{Caller, Credentials, authorize};
use crate::clock::Now;
use crate::cluster::Namespaces;
use crate::codec::json::Decoder;
use crate::features::FeatureGates;
use crate::form::{Form, LeaseState, Response};
use crate::http::{Method, RequestHead};
use crate::journal::Journal;
use crate::limits::{
    GZIP_BYTES_MIN, GZIP_JOBS_MAX, JOB_KEYS_PER_STEP, LONG_JOBS_MAX, STATES_DISCARDED_MAX, WAITING_FOR_KEY_MAX,
    WAITING_FOR_NAMESPACE_MAX, WAITING_TO_CATCH_UP_MAX, WRITE_ATTEMPTS_MAX,
};
use crate::media_type::METRICS;
use crate::metrics::{Metrics, RequestKind};
use crate::options::{Query, asks_to_watch, check_timeout};
use crate::resource::ApiVersion;
use crate::route::{Route, VersionedRoute};
use crate::schedule::{Permit, Permits, Requester};
use crate::table::Table;
use crate::table::change::Change;
use crate::table::holder::HolderChange;
use crate::verb::Verb;
use crate::watch::{WatchSpec, WatchStart};
use answer::Answer;
pub use discovery::health;
use freshness::names_version;
use gzip::Gzip;
use handover::Handover;
use health::HealthChecks;
use holder_log::{HolderLog, user_name};
use identity::ReplicaIdentity;
use job::Job;
use key::NO_NAMESPACE;
use negotiate::form_of_error;
use pending_request::PendingRequest;
pub use reclaim::Reclaim;
use std::fmt;
pub use storage::Storage;
use storage::Written;
use uuid::Uuid;
use waiting::{Retry, Until, Waiting};
use warnings::Warnings;

/// The state of the API between requests, apart from the Leases: these are in the [`Table`].
pub struct Api {
    decoder: Decoder,
    rng: fastrand::Rng,
    /// Whether the server generates not only names but also UIDs from `rng`. In a simulation this is true, so that the
    /// simulation depends only on its seed.
    has_seed: bool,
    /// Permits for compressed responses. They limit how many responses the server compresses at the same time.
    gzip_permits: Permits,
    /// Permits of the long responses: lists, deletions of a collection, and watches with initial events.
    long_job_permits: Permits,
    /// Permits of the requests that wait for another change of the same Lease.
    key_permits: Permits,
    /// Permits of the requests that wait until the table, or kube-apiserver's own storage of Leases, has the changes
    /// that they need.
    freshness_permits: Permits,
    /// Permits of the creations that wait for their namespace.
    namespace_permits: Permits,
    /// Whether renewals skip the fast path. Only the test that compares the fast path with the general path sets this
    /// field.
    #[cfg(test)]
    long_way_only: bool,
    /// Number of renewals that took the fast path, in JSON and in protobuf.
    #[cfg(test)]
    short_ways: [u64; 2],
    /// Storage of the Leases: memory or a journal.
    pub storage: Storage,
    /// Namespaces of the cluster, in which clients may create Leases.
    pub namespaces: Namespaces,
    /// Identity Lease of this replica; `None` if the server does not share its store with other replicas.
    pub identity: Option<ReplicaIdentity>,
    /// Hand-over of Leases between kube-apiserver's own storage and this server.
    pub handover: Handover,
    /// Reservations of locks for the clients that held them before this server started.
    pub reclaim: Reclaim,
    /// Feature gates.
    pub features: FeatureGates,
    holder_log: HolderLog,
    /// Metrics that the server serves at `/metrics`.
    pub metrics: Metrics,
    /// Health checks that the server serves at `/healthz`, `/livez` and `/readyz`.
    pub health: HealthChecks,
}

/// A request whose caller is known.
#[derive(Debug)]
struct Call<'r> {
    head: &'r RequestHead<'r>,
    body: &'r [u8],
    /// Kind of the request in the metrics.
    kind: RequestKind,
    /// API version in the path of the request.
    version: ApiVersion,
    query: Query<'r>,
    caller: &'r Caller,
    features: FeatureGates,
    now: Now,
    /// What the request has already waited for; nothing at its first attempt.
    retry: Retry,
    /// Warnings for the client, which the response contains as header fields.
    warnings: Warnings,
}

/// The server's decision about a request.
#[derive(Debug)]
enum Verdict {
    /// A reply, since the request changes no Lease.
    Reply(Box<Reply>),
    /// The request must wait until this condition is met. The server then decides the request again.
    Wait(Until),
    /// A change, and the response to send once the change is applied.
    Write(Change, Answer),
}

impl Verdict {
    /// Creates a verdict with an immediate response.
    fn response(response: Response) -> Self {
        Self::Reply(Box::new(Reply::Response(response)))
    }
}

/// The reply to a request.
#[derive(Debug)]
pub enum Reply {
    /// An immediate response.
    Response(Response),
    /// A response that the server generates in steps: a list, a deletion of a collection, or a compressed body.
    Job(Box<Job>),
    /// A stream of watch events.
    Watch(Box<WatchSpec>),
    /// No response yet: the request waits for a condition. The connection calls [`Api::resume`] when the condition may
    /// be met.
    Waiting(Waiting),
}

impl Reply {
    /// Replies with one Lease.
    ///
    /// # Errors
    /// 406 if the client accepts only a list.
    #[inline]
    fn object(status: u16, state: LeaseState<'_>, form: Form, now: Now) -> Result<Self, ApiError> {
        object_response(status, state, form, now).map(Self::Response)
    }

    /// Adds the `Warning` header fields. Most requests have no warnings, so the addition itself is in a separate cold
    /// function.
    #[inline]
    fn warn(&mut self, warnings: Warnings) {
        if !warnings.is_empty() {
            self.add_warnings(warnings);
        }
    }

    #[cold]
    fn add_warnings(&mut self, warnings: Warnings) {
        match self {
            Self::Response(response) => response.warnings = warnings.into_fields(),
            Self::Waiting(waiting) => waiting.warn(warnings),
            Self::Job(_) | Self::Watch(_) => {}
        }
    }

    /// Whether the body may be long enough for compression.
    fn may_be_compressed(&self) -> bool {
        match self {
            Self::Response(response) => response.body.len_max() > GZIP_BYTES_MIN,
            Self::Job(_) => true,
            Self::Waiting(_) | Self::Watch(_) => false,
        }
    }

    /// Converts the reply to a job that compresses the body.
    fn compressed(self, gzip: Gzip) -> Self {
        match self {
            Self::Response(response) => Self::Job(Box::new(Job::body(response).compressed(gzip))),
            Self::Job(job) => Self::Job(Box::new(job.compressed(gzip))),
            other @ (Self::Waiting(_) | Self::Watch(_)) => other,
        }
    }

    /// Returns the status code; `None` for a job or a waiting request, whose status is not decided yet.
    fn status(&self) -> Option<u16> {
        match self {
            Self::Response(response) => Some(response.status),
            Self::Job(_) | Self::Waiting(_) => None,
            Self::Watch(_) => Some(200),
        }
    }
}

/// Returns a response whose body is one Lease.
///
/// # Errors
/// 406 if the client accepts only a list.
#[inline]
fn object_response(status: u16, state: LeaseState<'_>, form: Form, now: Now) -> Result<Response, ApiError> {
    form.representation.check_object().map_err(ApiError::NotAcceptable)?;
    Ok(Response::new(status, form.content_type(), form.object_body(state, now.wall)))
}

/// Checks the `timeout` parameter of a request. A watch does not use this parameter.
fn check_timeout_parameter(request: &RequestHead<'_>, verb: Option<Verb>) -> Result<(), ApiError> {
    let query = Query::new(request.query);
    if query.is_empty() || verb == Some(Verb::Watch) { Ok(()) } else { check_timeout(&query) }
}

/// Returns the verb of a request for `route`.
fn verb_of(request: &RequestHead<'_>, route: &Route<'_>) -> Option<Verb> {
    Verb::of(request.method, route, || asks_to_watch(&Query::new(request.query)))
}

/// Returns the error response to a request that fails with `error`.
#[cold]
fn refusal(request: &RequestHead<'_>, error: &ApiError) -> Response {
    let form = form_of_error(request, &Query::new(request.query));
    Response::from_status(&error.status(), form)
}

impl fmt::Debug for Api {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Api").field("health", &self.health).finish_non_exhaustive()
    }
}

impl Default for Api {
    fn default() -> Self {
        Self::new()
    }
}

impl Api {
    /// Creates an API whose Leases are only in memory.
    #[must_use]
    pub fn new() -> Self {
        discovery::prepare();
        Self {
            decoder: Decoder::new(),
            rng: fastrand::Rng::new(),
            has_seed: false,
            gzip_permits: Permits::new(GZIP_JOBS_MAX),
            long_job_permits: Permits::new(LONG_JOBS_MAX),
            key_permits: Permits::new(WAITING_FOR_KEY_MAX),
            freshness_permits: Permits::new(WAITING_TO_CATCH_UP_MAX),
            namespace_permits: Permits::new(WAITING_FOR_NAMESPACE_MAX),
            #[cfg(test)]
            long_way_only: false,
            #[cfg(test)]
            short_ways: [0; 2],
            storage: Storage::default(),
            namespaces: Namespaces::default(),
            identity: None,
            handover: Handover::default(),
            reclaim: Reclaim::new(0),
            features: FeatureGates::default(),
            holder_log: HolderLog::default(),
            metrics: Metrics::new(),
            health: HealthChecks::new(),
        }
    }

    /// Generates the names and UIDs of Leases from `seed`. Use this function only for simulations, since a client could
    /// guess such names and UIDs.
    #[must_use]
    pub fn with_seed(self, seed: u64) -> Self {
        Self { rng: fastrand::Rng::with_seed(seed), has_seed: true, ..self }
    }

    /// Returns a new random UID for a Lease.
    fn new_uid(&mut self) -> Uuid {
        if self.has_seed {
            uuid::Builder::from_random_bytes(self.rng.u128(..).to_le_bytes()).into_uuid()
        } else {
            Uuid::new_v4()
        }
    }

    /// Serves one request. `retry` is set if the request has waited and must be [served
    /// again](waiting::Resumed::Again).
    pub fn handle(
        &mut self,
        table: &mut Table,
        request: &RequestHead<'_>,
        body: &[u8],
        retry: Option<Retry>,
        credentials: &Credentials,
        now: Now,
    ) -> Reply {
        let retry = retry.unwrap_or_else(|| Retry::first(now.ms));
        let VersionedRoute { version, route } = VersionedRoute::of(request.path);
        let verb = verb_of(request, &route);
        let kind = RequestKind::of(&route, verb, request);
        let caller = check_timeout_parameter(request, verb).and_then(|()| credentials.caller(request.fields));
        let mut reply = match &caller {
            Ok(caller) => {
                let (query, warnings, features) = (Query::new(request.query), Warnings::default(), self.features);
                let call = Call { head: request, body, kind, version, query, caller, features, now, retry, warnings };
                let reply = self.check_and_decide(table, &call, &route, verb);
                let mut reply = reply.unwrap_or_else(|error| Reply::Response(refusal(request, &error)));
                if let Err(error) = self.take_long_job_permit(table, &mut reply, caller) {
                    reply = Reply::Response(refusal(request, &error));
                }
                reply.warn(call.warnings);
                reply
            }
            Err(error) => Reply::Response(refusal(request, error)),
        };
        if route.is_resource() && reply.may_be_compressed() && gzip::is_accepted(request.accept_encoding) {
            reply = self.compress(reply);
        }
        match (reply.status(), &mut reply) {
            (Some(status), _) => {
                self.metrics.count_request(kind, version, status, now.ms.saturating_sub(retry.since_ms));
            }
            // A job and a waiting request are counted in the metrics when their responses begin.
            (None, Reply::Job(job)) => {
                let query = Query::new(request.query);
                job.set_request(PendingRequest::of(request, &query, kind, version, retry.since_ms));
                job.note_freezes(self.handover.freezes());
            }
            (None, _) => {}
        }
        reply
    }

    /// Returns the number of long responses in progress: lists, deletions of a collection, and watches with initial
    /// events.
    #[must_use]
    pub fn long_responses(&self) -> usize {
        self.long_job_permits.taken()
    }

    /// Returns the number of long responses that the server ended early, because another user needed their permit.
    #[must_use]
    pub fn long_responses_revoked(&self) -> u64 {
        self.long_job_permits.revoked()
    }

    /// Carries out a verdict: returns the reply, makes the request wait, or writes the change.
    ///
    /// # Errors
    /// [`ApiError`] if the server refuses the change or the form of its response, or if too many requests wait.
    #[inline]
    fn carry_out(&mut self, table: &mut Table, call: &Call<'_>, verdict: Verdict) -> Result<Reply, ApiError> {
        match verdict {
            Verdict::Write(change, answer) => {
                // During a takeover, a write also waits until kube-apiserver's own storage has its change, so it needs
                // a permit. Any other write waits only for the journal, which limits the changes in flight.
                let permit = match self.handover.follows_built_in() {
                    true => Some(self.take_freshness_permit(call)?),
                    false => None,
                };
                let until = match self.write_for_client(table, change, call)? {
                    Written::Applied(object) if !self.handover.has_written(&object) => {
                        Until::BuiltInHas(object, answer)
                    }
                    Written::Applied(object) => return answer.into_reply(&object, call.now),
                    Written::Busy(ticket) => return self.reply_waiting(call, Until::KeyIsFree(ticket)),
                    Written::Submitted(ticket) => Until::Settled(ticket, answer),
                };
                Ok(Reply::Waiting(Waiting::new(until, call, permit, self.storage.is_shared())))
            }
            Verdict::Reply(reply) => Ok(*reply),
            Verdict::Wait(until) => self.reply_waiting(call, until),
        }
    }

    /// Writes a client's change, unless the hand-over (the move of Leases from or to kube-apiserver's own storage)
    /// forbids the change.
    ///
    /// # Errors
    /// Those of [`Storage::write`]. 403 if the change concerns the identity Lease of a replica, and the caller is no
    /// administrator. 429 if the hand-over forbids the change.
    #[inline]
    fn write_for_client(&mut self, table: &mut Table, change: Change, call: &Call<'_>) -> Result<Written, ApiError> {
        if self.identity.is_some() {
            identity::check_change(table, &change, call.caller)?;
        }
        self.handover.check_change(table, &change)?;
        let author = || (user_name(call.caller), call.head.user_agent.unwrap_or_default());
        let holder_change = HolderChange::of(table, &change, author);
        if self.storage.journal().is_some() {
            return self.storage.write_with(table, change, holder_change, call.now.ms);
        }
        let written = self.storage.write(table, change, call.now.ms)?;
        if let Some(holder_change) = holder_change {
            self.tell_holder_change(&holder_change, call.now);
        }
        Ok(written)
    }

    /// Counts and logs the changes of holders that the journal has applied.
    pub fn tell_holder_changes(&mut self, now: Now) {
        let changes = self.storage.journal_mut().map(Journal::take_holder_changes).unwrap_or_default();
        changes.iter().for_each(|change| self.tell_holder_change(change, now));
    }

    #[cold]
    fn tell_holder_change(&mut self, change: &HolderChange, now: Now) {
        self.metrics.count_holder_change(&change.namespace);
        self.holder_log.log(change, now.ms);
    }

    /// Takes a permit to wait until this replica's table, or kube-apiserver's own storage, has the changes that a
    /// request needs.
    ///
    /// # Errors
    /// 429 if too many requests are waiting already.
    #[cold]
    fn take_freshness_permit(&self, call: &Call<'_>) -> Result<Permit, ApiError> {
        self.freshness_permits.take(call.caller.requester()).ok_or(ApiError::TooManyRequests)
    }

    /// Returns the reply for a request that must wait.
    ///
    /// # Errors
    /// 429 if too many requests are waiting already.
    #[cold]
    fn reply_waiting(&self, call: &Call<'_>, until: Until) -> Result<Reply, ApiError> {
        let permits = match &until {
            Until::NamespaceIsKnown(_) => &self.namespace_permits,
            Until::KeyIsFree(_) | Until::Settled(..) => &self.key_permits,
            Until::Barrier(_) | Until::VersionIsApplied(_) | Until::RoundIsComplete(_) | Until::BuiltInHas(..) => {
                &self.freshness_permits
            }
        };
        let permit = permits.take(call.caller.requester()).ok_or(ApiError::TooManyRequests)?;
        Ok(Reply::Waiting(Waiting::new(until, call, Some(permit), self.storage.is_shared())))
    }

    /// Compresses a reply if its body is long. Without a free permit for a compression, returns the reply uncompressed.
    fn compress(&self, reply: Reply) -> Reply {
        // Without a permit, the reply is uncompressed, but still correct. So no user needs a reserved share of these
        // permits.
        match self.gzip_permits.take(Requester::Unnamed) {
            Some(permit) => reply.compressed(Gzip::new(permit)),
            None => reply,
        }
    }

    /// Returns the error response to a request whose body the server refuses, and counts the request in the metrics.
    #[cold]
    pub fn refuse(&mut self, request: &RequestHead<'_>, error: &ApiError) -> Response {
        let VersionedRoute { version, route } = VersionedRoute::of(request.path);
        let response = refusal(request, error);
        let kind = RequestKind::of(&route, verb_of(request, &route), request);
        self.metrics.count_request(kind, version, response.status, 0);
        response
    }

    /// Takes a permit for `reply` if it is a long list, a long deletion of a collection, or a watch with many initial
    /// events.
    ///
    /// # Errors
    /// 429 if too many long responses are in progress, for this caller or for all callers. 429 also if `reply` would
    /// hold states of Leases while too many old states wait to be freed. Old states are left over from lists and
    /// watches that have ended.
    fn take_long_job_permit(&self, table: &Table, reply: &mut Reply, caller: &Caller) -> Result<(), ApiError> {
        // Whether too many states of Leases, left over from lists and watches that have ended, wait to be freed.
        let is_crowded = table.discarded_len() > STATES_DISCARDED_MAX;
        let place = match reply {
            Reply::Job(job) if is_crowded && (job.holds_states() || job.is_long()) => {
                return Err(ApiError::TooManyRequests);
            }
            Reply::Job(job) if job.is_long() => job.permit_mut(),
            Reply::Watch(spec) => match &mut spec.start {
                WatchStart::Initial { .. } if is_crowded => return Err(ApiError::TooManyRequests),
                WatchStart::Initial { snapshot, permit, .. }
                    if snapshot.is_long(usize::MAX, spec.selector.share_of(JOB_KEYS_PER_STEP)) =>
                {
                    permit
                }
                WatchStart::After(_) | WatchStart::Initial { .. } | WatchStart::Refused(_) => return Ok(()),
            },
            Reply::Job(_) | Reply::Response(_) | Reply::Waiting(_) => return Ok(()),
        };
        *place = Some(self.long_job_permits.take(caller.requester()).ok_or(ApiError::TooManyRequests)?);
        Ok(())
    }

    /// Checks that the caller is authorized, and that the table is recent enough for the request. Then decides the
    /// request.
    #[inline]
    fn check_and_decide(
        &mut self,
        table: &mut Table,
        call: &Call<'_>,
        route: &Route<'_>,
        verb: Option<Verb>,
    ) -> Result<Reply, ApiError> {
        let head = call.head;
        authorize(call.caller, head.method, head.path, route, verb)?;
        if !route.is_resource() {
            return self.decide(table, call, route);
        }
        if self.storage.is_loading() {
            return Err(ApiError::Loading);
        }
        match self.handover.check_list_or_watch(call, verb) {
            Err(expired @ ApiError::Expired { .. }) if verb == Some(Verb::Watch) => {
                return self.refuse_watch(table, call, route, expired);
            }
            checked => checked?,
        }
        if names_version(call) || self.may_be_behind() {
            return self.decide_when_fresh(table, call, route);
        }
        self.decide(table, call, route)
    }

    /// Replies to a watch from an expired `resourceVersion`. As in kube-apiserver, the watch begins, and ends with an
    /// ERROR event. client-go's `RetryWatcher` gives up a version only after such an event. If the watch got the status
    /// 410, `RetryWatcher` would repeat the watch from the same version. After a rollback, kube-apiserver would get
    /// that watch. There the version never expires, since it is far above kube-apiserver's versions. So the watch would
    /// show no events.
    ///
    /// # Errors
    /// [`ApiError`] if the options of the watch are invalid. `expired` if the request is no watch.
    #[cold]
    fn refuse_watch(
        &mut self,
        table: &mut Table,
        call: &Call<'_>,
        route: &Route<'_>,
        expired: ApiError,
    ) -> Result<Reply, ApiError> {
        match self.decide(table, call, route)? {
            Reply::Watch(mut spec) => {
                spec.start = WatchStart::Refused(Box::new(expired));
                Ok(Reply::Watch(spec))
            }
            Reply::Job(_) | Reply::Response(_) | Reply::Waiting(_) => Err(expired),
        }
    }

    /// Decides a request from the current table. Then carries out the verdict.
    #[inline]
    fn decide(&mut self, table: &mut Table, call: &Call<'_>, route: &Route<'_>) -> Result<Reply, ApiError> {
        let head = call.head;
        let verdict = match (route, head.method) {
            (Route::Lease { namespace, name }, Method::Get) => return read::get(table, call, namespace, name),
            (Route::Lease { namespace, name }, Method::Put | Method::Patch | Method::Delete) => {
                match self.until_key_is_free(call, namespace, name)? {
                    Some(until) => Verdict::Wait(until),
                    None if head.method == Method::Put => self.decide_update(table, call, namespace, name)?,
                    None if head.method == Method::Patch => self.decide_patch(table, call, namespace, name)?,
                    None => self.decide_delete(table, call, namespace, name)?,
                }
            }
            (Route::Namespace(namespace), Method::Post) => self.decide_create(table, call, namespace)?,
            (route, _) => return self.reply_directly(table, call, route),
        };
        self.carry_out(table, call, verdict)
    }

    /// Returns the condition that a write must wait for while another change of the same Lease is in flight in the
    /// journal; `None` if none is in flight.
    ///
    /// # Errors
    /// 409 if the journal has already rejected [`WRITE_ATTEMPTS_MAX`] changes of this request. 503 if another change is
    /// in flight and the store is unreachable, so that its outcome may come late.
    #[inline]
    fn until_key_is_free(&self, call: &Call<'_>, namespace: &str, name: &str) -> Result<Option<Until>, ApiError> {
        if call.retry.rejections >= WRITE_ATTEMPTS_MAX {
            return Err(ApiError::Conflict { name: name.to_owned() });
        }
        match self.storage.in_flight(namespace, name) {
            Some(_) if !self.storage.is_reachable() => Err(ApiError::StoreUnreachable),
            in_flight => Ok(in_flight.map(Until::KeyIsFree)),
        }
    }

    /// Replies to a request that is not a read or a write of one Lease, such as a list, a watch or a deletion of a
    /// collection. Such a request needs no verdict.
    fn reply_directly(&mut self, table: &Table, call: &Call<'_>, route: &Route<'_>) -> Result<Reply, ApiError> {
        match (route, call.head.method) {
            // An empty namespace in the path means all namespaces.
            (Route::Namespace(namespace), Method::Get) if !namespace.is_empty() => {
                read::list(table, call, Some(namespace), &mut self.rng)
            }
            (Route::AllNamespaces | Route::Namespace(_), Method::Get) => read::list(table, call, None, &mut self.rng),
            (Route::Watch { namespace, name }, Method::Get) => {
                read::watch_by_path(table, call, namespace.as_deref(), name.as_deref(), &mut self.rng)
            }
            (Route::Namespace(namespace), Method::Delete) if namespace.is_empty() => {
                Err(ApiError::BadRequest { message: NO_NAMESPACE.into() })
            }
            (Route::Namespace(namespace), Method::Delete) => self.delete_collection(table, call, namespace),
            (Route::Unknown, _) => Err(ApiError::PathNotFound),
            (Route::Metrics, Method::Get | Method::Head) => {
                let (journal, handover) = (self.storage.journal(), self.handover.stats());
                let text = self.metrics.encode(table, journal, handover, self.health.results(), call.now);
                Ok(Reply::Response(Response::new(200, METRICS, text.into())))
            }
            (route, Method::Get) => discovery::document(route, call, &self.health),
            (route, Method::Head) if route.takes_head() => discovery::document(route, call, &self.health),
            _ => Err(ApiError::MethodNotAllowed),
        }
    }
}
