//! The verbs of the Lease API: a request and its body in, a [`Reply`] out.
//!
//! Owned here: the order in which kube-apiserver checks things, since the first that is wrong is what the client is
//! told. The rules themselves are in `lease`, `options`, `patch` and `selector`; how a reply is framed is `serve`'s.

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
use crate::form::{Form, Response, State};
use crate::http::{Method, RequestHead};
use crate::journal::Journal;
use crate::limits::{
    GZIP_BYTES_MIN, GZIP_JOBS_MAX, JOB_KEYS_PER_STEP, LONG_JOBS_MAX, STATES_DISCARDED_MAX, WAITING_FOR_KEY_MAX,
    WAITING_FOR_NAMESPACE_MAX, WAITING_TO_CATCH_UP_MAX, WRITE_ATTEMPTS_MAX,
};
use crate::media_type::METRICS;
use crate::metrics::{Metrics, RequestKind};
use crate::options::{Query, asks_to_watch, check_timeout};
use crate::permits::Permits;
use crate::resource::ApiVersion;
use crate::route::{Route, Target};
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
use identity::Identity;
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

/// What the verbs need between requests: scratch memory and randomness. The Leases are in the [`Table`].
pub struct Api {
    decoder: Decoder,
    rng: fastrand::Rng,
    /// Whether UIDs are made of `rng` too, so that all of a simulation follows from its seed.
    has_seed: bool,
    gzip_permits: Permits,
    long_job_permits: Permits,
    key_permits: Permits,
    freshness_permits: Permits,
    namespace_permits: Permits,
    /// Renewals are served as other updates are, for the test that compares.
    #[cfg(test)]
    long_way_only: bool,
    /// Renewals that were not, in JSON and in protobuf.
    #[cfg(test)]
    short_ways: [u64; 2],
    /// What keeps the Leases.
    pub storage: Storage,
    /// Where Leases may be created.
    pub namespaces: Namespaces,
    /// The Lease by which this replica says that it serves; none with one server.
    pub identity: Option<Identity>,
    /// The hand-over of Leases from and to built-in storage.
    pub handover: Handover,
    /// Who may create what was held before the start.
    pub reclaim: Reclaim,
    holder_log: HolderLog,
    /// What `/metrics` tells.
    pub metrics: Metrics,
    /// What `/healthz` and its kin tell.
    pub health: HealthChecks,
}

/// A request, and what is known of it besides its body.
#[derive(Debug)]
struct Call<'r> {
    head: &'r RequestHead<'r>,
    kind: RequestKind,
    /// In which version of the group it speaks of Leases.
    version: ApiVersion,
    query: Query<'r>,
    caller: &'r Caller,
    now: Now,
    retry: Retry,
    /// What the client is told besides the answer.
    warnings: Warnings,
}

/// What the rules make of a request.
#[derive(Debug)]
enum Verdict {
    /// An answer, which changes nothing.
    Reply(Box<Reply>),
    /// A wait, after which the request is served again.
    Wait(Until),
    /// A change, and the answer once the table has it.
    Write(Change, Answer),
}

impl Verdict {
    /// A response that is at hand.
    fn response(response: Response) -> Self {
        Self::Reply(Box::new(Reply::Response(response)))
    }
}

/// The answer to a request.
#[derive(Debug)]
pub enum Reply {
    /// One that is at hand.
    Response(Response),
    /// One that is made in steps: a list, that of a deletion of a collection, or one that is compressed.
    Job(Box<Job>),
    /// A stream of events.
    Watch(Box<WatchSpec>),
    /// None yet: the request waits for [`Api::resume`].
    Waiting(Waiting),
}

impl Reply {
    /// One object.
    ///
    /// # Errors
    /// 406 if the client wants a list.
    #[inline]
    fn object(status: u16, state: State<'_>, form: Form, now: Now) -> Result<Self, ApiError> {
        object_response(status, state, form, now).map(Self::Response)
    }

    /// Adds `Warning` fields. Most requests have none.
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

    /// Whether its body is long enough to be compressed, as far as that is known.
    fn may_be_compressed(&self) -> bool {
        match self {
            Self::Response(response) => response.body.len_max() > GZIP_BYTES_MIN,
            Self::Job(_) => true,
            Self::Waiting(_) | Self::Watch(_) => false,
        }
    }

    /// The same, for somebody who takes gzip.
    fn compressed(self, gzip: Gzip) -> Self {
        match self {
            Self::Response(response) => Self::Job(Box::new(Job::body(response).compressed(gzip))),
            Self::Job(job) => Self::Job(Box::new(job.compressed(gzip))),
            other @ (Self::Waiting(_) | Self::Watch(_)) => other,
        }
    }

    /// Status code, as far as it is known.
    fn status(&self) -> Option<u16> {
        match self {
            Self::Response(response) => Some(response.status),
            Self::Job(_) | Self::Waiting(_) => None,
            Self::Watch(_) => Some(200),
        }
    }
}

/// A response that shows one object.
///
/// # Errors
/// 406 if the client wants a list.
#[inline]
fn object_response(status: u16, state: State<'_>, form: Form, now: Now) -> Result<Response, ApiError> {
    form.representation.check_object().map_err(ApiError::NotAcceptable)?;
    Ok(Response::new(status, form.content_type(), form.object_body(state, now.wall)))
}

/// Checks the `timeout` of all that is no watch.
fn check_timeout_parameter(request: &RequestHead<'_>, verb: Option<Verb>) -> Result<(), ApiError> {
    let query = Query::new(request.query);
    if query.is_empty() || verb == Some(Verb::Watch) { Ok(()) } else { check_timeout(&query) }
}

/// What a request wants of the Leases that `route` names.
fn verb_of(request: &RequestHead<'_>, route: &Route<'_>) -> Option<Verb> {
    Verb::of(request.method, route, || asks_to_watch(&Query::new(request.query)))
}

/// What a request that fails is answered with.
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
    /// An API that has served nothing.
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
            holder_log: HolderLog::default(),
            metrics: Metrics::new(),
            health: HealthChecks::new(),
        }
    }

    /// The same, whose names and UIDs follow from `seed`: for simulations, since others could guess them.
    #[must_use]
    pub fn with_seed(self, seed: u64) -> Self {
        Self { rng: fastrand::Rng::with_seed(seed), has_seed: true, ..self }
    }

    /// A UID that no other object has.
    fn new_uid(&mut self) -> Uuid {
        if self.has_seed {
            uuid::Builder::from_random_bytes(self.rng.u128(..).to_le_bytes()).into_uuid()
        } else {
            Uuid::new_v4()
        }
    }

    /// Serves one request. `retry` is that of a request that waited and is served [again](waiting::Resumed::Again).
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
        let Target { version, route } = Target::of(request.path);
        let verb = verb_of(request, &route);
        let kind = RequestKind::of(&route, verb, request);
        let caller = check_timeout_parameter(request, verb).and_then(|()| credentials.caller(request.fields));
        let reply = caller.map(|caller| {
            let (query, warnings) = (Query::new(request.query), Warnings::default());
            let call = Call { head: request, kind, version, query, caller: &caller, now, retry, warnings };
            let reply = self.dispatch(table, &call, &route, verb, body);
            let mut reply = reply.unwrap_or_else(|error| Reply::Response(refusal(request, &error)));
            reply.warn(call.warnings);
            reply
        });
        let mut reply = reply.unwrap_or_else(|error| Reply::Response(refusal(request, &error)));
        if let Err(error) = self.take_long_job_permit(table, &mut reply) {
            reply = Reply::Response(refusal(request, &error));
        }
        if route.is_resource() && reply.may_be_compressed() && gzip::is_accepted(request.fields) {
            reply = self.compress(reply);
        }
        match (reply.status(), &mut reply) {
            (Some(status), _) => {
                self.metrics.count_request(kind, version, status, now.ms.saturating_sub(retry.since_ms));
            }
            // These are counted when their responses begin.
            (None, Reply::Job(job)) => {
                let query = Query::new(request.query);
                job.set_request(PendingRequest::of(request, &query, kind, version, retry.since_ms));
            }
            (None, _) => {}
        }
        reply
    }

    /// Does what the rules say.
    ///
    /// # Errors
    /// [`ApiError`] if a change is not taken, if its answer is not to be had, or if too many requests wait.
    #[inline]
    fn conclude(&mut self, table: &mut Table, call: &Call<'_>, verdict: Verdict) -> Result<Reply, ApiError> {
        match verdict {
            Verdict::Write(change, answer) => match self.write(table, change, call)? {
                Written::Applied(object) => answer.into_reply(&object, call.now),
                Written::Busy(ticket) => self.wait(call, Until::KeyIsFree(ticket)),
                // The journal bounds how many there are.
                Written::Submitted(ticket) => {
                    let is_shared = self.storage.is_shared();
                    Ok(Reply::Waiting(Waiting::new(Until::Settled(ticket, answer), call, None, is_shared)))
                }
            },
            Verdict::Reply(reply) => Ok(*reply),
            Verdict::Wait(until) => self.wait(call, until),
        }
    }

    /// Takes a client's change, if the hand-over lets it.
    ///
    /// # Errors
    /// As those of [`Storage::write`], and 429 during a hand-over.
    #[inline]
    fn write(&mut self, table: &mut Table, change: Change, call: &Call<'_>) -> Result<Written, ApiError> {
        self.handover.admit(table, &change)?;
        let author = || (user_name(call.caller), call.head.user_agent.unwrap_or_default());
        let holder_change = HolderChange::of(table, &change, author);
        // Without a journal the change is applied at once.
        let told = if self.storage.journal().is_none() { holder_change.clone() } else { None };
        let written = self.storage.write_with(table, change, holder_change, call.now.ms)?;
        if let Some(told) = told {
            self.tell_holder_change(&told, call.now);
        }
        Ok(written)
    }

    /// Counts and logs the changes of holder that the journal has applied.
    pub fn tell_holder_changes(&mut self, now: Now) {
        let changes = self.storage.journal_mut().map(Journal::take_holder_changes).unwrap_or_default();
        changes.iter().for_each(|change| self.tell_holder_change(change, now));
    }

    #[cold]
    fn tell_holder_change(&mut self, change: &HolderChange, now: Now) {
        self.metrics.count_holder_change(&change.namespace);
        self.holder_log.log(change, now.ms);
    }

    /// Lets a request wait.
    ///
    /// # Errors
    /// 429 if too many wait already.
    #[cold]
    fn wait(&self, call: &Call<'_>, until: Until) -> Result<Reply, ApiError> {
        let permits = match &until {
            Until::NamespaceIsKnown(_) => &self.namespace_permits,
            Until::KeyIsFree(_) | Until::Settled(..) => &self.key_permits,
            Until::Barrier(_) | Until::VersionIsApplied(_) => &self.freshness_permits,
        };
        let permit = permits.take().ok_or(ApiError::TooManyRequests)?;
        Ok(Reply::Waiting(Waiting::new(until, call, Some(permit), self.storage.is_shared())))
    }

    /// Compresses a long reply for a client that takes gzip, unless too many are compressed already.
    fn compress(&self, reply: Reply) -> Reply {
        match self.gzip_permits.take() {
            Some(permit) => reply.compressed(Gzip::new(permit)),
            None => reply,
        }
    }

    /// Answers a request whose body is not taken, and counts it.
    #[cold]
    pub fn refuse(&mut self, request: &RequestHead<'_>, error: &ApiError) -> Response {
        let Target { version, route } = Target::of(request.path);
        let response = refusal(request, error);
        let kind = RequestKind::of(&route, verb_of(request, &route), request);
        self.metrics.count_request(kind, version, response.status, 0);
        response
    }

    /// Takes a permit for `reply` if that is a list or a watch of which there may not be many at once.
    ///
    /// # Errors
    /// 429 if too many are under way.
    fn take_long_job_permit(&self, table: &Table, reply: &mut Reply) -> Result<(), ApiError> {
        // What those that were given up held is still there.
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
        *place = Some(self.long_job_permits.take().ok_or(ApiError::TooManyRequests)?);
        Ok(())
    }

    /// Sees to it that the caller may do that, and that this table is recent enough to decide it.
    #[inline]
    fn dispatch(
        &mut self,
        table: &mut Table,
        call: &Call<'_>,
        route: &Route<'_>,
        verb: Option<Verb>,
        body: &[u8],
    ) -> Result<Reply, ApiError> {
        let head = call.head;
        authorize(call.caller, head.method, head.path, route, verb)?;
        if !route.is_resource() {
            return self.decide(table, call, route, body);
        }
        if self.storage.is_loading() {
            return Err(ApiError::Loading);
        }
        self.handover.admit_read(call, verb)?;
        if self.storage.is_shared() || names_version(call) {
            return self.decide_when_fresh(table, call, route, body);
        }
        self.decide(table, call, route, body)
    }

    /// Does what route and method say, by the table as it is.
    #[inline]
    fn decide(
        &mut self,
        table: &mut Table,
        call: &Call<'_>,
        route: &Route<'_>,
        body: &[u8],
    ) -> Result<Reply, ApiError> {
        let head = call.head;
        let verdict = match (route, head.method) {
            (Route::Lease { namespace, name }, Method::Get) => return read::get(table, call, namespace, name),
            (Route::Lease { namespace, name }, Method::Put | Method::Patch | Method::Delete) => {
                match self.hold_back(call, namespace, name)? {
                    Some(until) => Verdict::Wait(until),
                    None if head.method == Method::Put => self.update(table, call, body, namespace, name)?,
                    None if head.method == Method::Patch => self.patch(table, call, body, namespace, name)?,
                    None => self.delete(table, call, body, namespace, name)?,
                }
            }
            (Route::Namespace(namespace), Method::Post) => self.create(table, call, body, namespace)?,
            (route, _) => return self.dispatch_reading(table, call, route, body),
        };
        self.conclude(table, call, verdict)
    }

    /// What a write of a Lease must wait for or end with before the rules look at it: another change of the same Lease
    /// is under way, or other writers came first too often.
    ///
    /// # Errors
    /// 409 after [`WRITE_ATTEMPTS_MAX`] changes were rejected.
    #[inline]
    fn hold_back(&self, call: &Call<'_>, namespace: &str, name: &str) -> Result<Option<Until>, ApiError> {
        if call.retry.rejections >= WRITE_ATTEMPTS_MAX {
            return Err(ApiError::Conflict { name: name.to_owned() });
        }
        Ok(self.storage.in_flight(namespace, name).map(Until::KeyIsFree))
    }

    /// Does what changes no single Lease.
    fn dispatch_reading(
        &mut self,
        table: &Table,
        call: &Call<'_>,
        route: &Route<'_>,
        body: &[u8],
    ) -> Result<Reply, ApiError> {
        match (route, call.head.method) {
            // A path that leaves the namespace empty asks for all.
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
            (Route::Namespace(namespace), Method::Delete) => self.delete_collection(table, call, body, namespace),
            (Route::Unknown, _) => Err(ApiError::PathNotFound),
            (Route::Metrics, Method::Get | Method::Head) => {
                let (journal, holds_writes) = (self.storage.journal(), self.handover.holds_writes());
                let text = self.metrics.encode(table, journal, holds_writes, call.now);
                Ok(Reply::Response(Response::new(200, METRICS, text.into())))
            }
            (route, Method::Get) => discovery::document(route, call, &self.health),
            (route, Method::Head) if route.takes_head() => discovery::document(route, call, &self.health),
            _ => Err(ApiError::MethodNotAllowed),
        }
    }
}
