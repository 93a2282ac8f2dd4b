//! The verbs of the Lease API: a request and its body in, a [`Reply`] out.
//!
//! Owned here: the order in which kube-apiserver checks things, since the first that is wrong is what the client is
//! told. The rules themselves are in `lease`, `options`, `patch` and `selector`; how a reply is framed is `serve`'s.

mod asked_state;
mod delete;
mod deletion;
mod discovery;
mod gzip;
pub mod job;
mod key;
mod negotiate;
mod patch;
mod pending_request;
pub mod postponed;
mod preconditions;
mod read;
mod reclaim;
mod renew;
mod token;
mod warnings;
mod write;

use crate::api_error::ApiError;
use crate::auth::{Caller, Credentials, authorize};
use crate::clock::Now;
use crate::cluster::Namespaces;
use crate::codec::json::Decoder;
use crate::form::{Form, Response, State};
use crate::http::{Method, RequestHead};
use crate::limits::{GZIP_BYTES_MIN, GZIP_JOBS_MAX, JOB_KEYS_PER_STEP, LONG_JOBS_MAX, STATES_DISCARDED_MAX};
use crate::media_type::METRICS;
use crate::metrics::{Metrics, RequestKind};
use crate::options::{Query, asks_to_watch, check_timeout};
use crate::permits::Permits;
use crate::resource::ApiVersion;
use crate::route::{Route, Target};
use crate::table::Table;
use crate::verb::Verb;
use crate::watch::{WatchSpec, WatchStart};
pub use discovery::health;
use gzip::Gzip;
use health::HealthChecks;
use job::Job;
use key::NO_NAMESPACE;
use negotiate::form_of_error;
use pending_request::PendingRequest;
use postponed::Postponed;
pub use reclaim::Reclaim;
use std::fmt;
use warnings::Warnings;

/// What the verbs need between requests: scratch memory and randomness. The Leases are in the [`Table`].
pub struct Api {
    decoder: Decoder,
    rng: fastrand::Rng,
    gzip_permits: Permits,
    long_job_permits: Permits,
    /// Renewals are served as other updates are, for the test that compares.
    #[cfg(test)]
    long_way_only: bool,
    /// Renewals that were not, in JSON and in protobuf.
    #[cfg(test)]
    short_ways: [u64; 2],
    /// Where Leases may be created.
    pub namespaces: Namespaces,
    /// Who may create what was held before the start.
    pub reclaim: Reclaim,
    /// What `/metrics` tells.
    pub metrics: Metrics,
    /// What `/healthz` and its kin tell.
    pub health: HealthChecks,
}

/// A request, and what is known of it besides its body.
#[derive(Debug)]
struct Call<'r> {
    head: &'r RequestHead<'r>,
    /// In which version of the group it speaks of Leases.
    version: ApiVersion,
    query: Query<'r>,
    caller: &'r Caller,
    now: Now,
    /// What the client is told besides the answer.
    warnings: Warnings,
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
    /// None yet: it waits for [`Api::resume`].
    Postponed(Box<Postponed>),
}

impl Reply {
    /// One object.
    ///
    /// # Errors
    /// 406 if the client wants a list.
    fn object(status: u16, state: State<'_>, form: Form, now: Now) -> Result<Self, ApiError> {
        form.representation.check_object().map_err(ApiError::NotAcceptable)?;
        Ok(Self::Response(Response::new(status, form.content_type(), form.object_body(state, now.wall))))
    }

    /// The same, with what else the client is told.
    fn with_warnings(mut self, warnings: Warnings) -> Self {
        match &mut self {
            Self::Response(response) => response.warnings = warnings.into_fields(),
            Self::Postponed(postponed) => postponed.warn(warnings),
            Self::Job(_) | Self::Watch(_) => {}
        }
        self
    }

    /// Whether its body is long enough to be compressed, as far as that is known.
    fn may_be_compressed(&self) -> bool {
        match self {
            Self::Response(response) => response.body.len_max() > GZIP_BYTES_MIN,
            Self::Job(_) => true,
            // Of a creation there is one object to tell of.
            Self::Watch(_) | Self::Postponed(_) => false,
        }
    }

    /// The same, for somebody who takes gzip.
    fn compressed(self, gzip: Gzip) -> Self {
        match self {
            Self::Response(response) => Self::Job(Box::new(Job::body(response).compressed(gzip))),
            Self::Job(job) => Self::Job(Box::new(job.compressed(gzip))),
            other @ (Self::Watch(_) | Self::Postponed(_)) => other,
        }
    }

    /// Status code, as far as it is known.
    fn status(&self) -> Option<u16> {
        match self {
            Self::Response(response) => Some(response.status),
            Self::Job(_) | Self::Postponed(_) => None,
            Self::Watch(_) => Some(200),
        }
    }
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
            gzip_permits: Permits::new(GZIP_JOBS_MAX),
            long_job_permits: Permits::new(LONG_JOBS_MAX),
            #[cfg(test)]
            long_way_only: false,
            #[cfg(test)]
            short_ways: [0; 2],
            namespaces: Namespaces::default(),
            reclaim: Reclaim::new(0),
            metrics: Metrics::new(),
            health: HealthChecks::new(),
        }
    }

    /// Serves one request. `body` is the API's to change.
    pub fn handle(
        &mut self,
        table: &mut Table,
        request: &RequestHead<'_>,
        body: &mut [u8],
        credentials: &Credentials,
        now: Now,
    ) -> Reply {
        let Target { version, route } = Target::of(request.path);
        let verb = verb_of(request, &route);
        let kind = RequestKind::of(&route, verb, request);
        let caller = check_timeout_parameter(request, verb).and_then(|()| credentials.caller(request.fields));
        let reply = caller.map(|caller| {
            let (query, warnings) = (Query::new(request.query), Warnings::default());
            let call = Call { head: request, version, query, caller: &caller, now, warnings };
            let reply = self.dispatch(table, &call, &route, verb, body);
            let reply = reply.unwrap_or_else(|error| Reply::Response(refusal(request, &error)));
            reply.with_warnings(call.warnings)
        });
        let mut reply = reply.unwrap_or_else(|error| Reply::Response(refusal(request, &error)));
        if let Err(error) = self.take_long_job_permit(table, &mut reply) {
            reply = Reply::Response(refusal(request, &error));
        }
        if route.is_resource()
            && reply.may_be_compressed()
            && gzip::is_accepted(request.fields)
            && let Some(permit) = self.gzip_permits.take()
        {
            reply = reply.compressed(Gzip::new(permit));
        }
        match (reply.status(), &mut reply) {
            (Some(status), _) => self.metrics.count_request(kind, version, status),
            // These are counted when their responses begin.
            (None, Reply::Job(job)) => job.set_request(PendingRequest::of(request, kind, version, now)),
            (None, Reply::Postponed(postponed)) => {
                postponed.set_request(PendingRequest::of(request, kind, version, now));
            }
            (None, _) => {}
        }
        reply
    }

    /// Answers a request whose body is not taken, and counts it.
    #[cold]
    pub fn refuse(&mut self, request: &RequestHead<'_>, error: &ApiError) -> Response {
        let Target { version, route } = Target::of(request.path);
        let response = refusal(request, error);
        let kind = RequestKind::of(&route, verb_of(request, &route), request);
        self.metrics.count_request(kind, version, response.status);
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
            Reply::Job(_) | Reply::Postponed(_) | Reply::Response(_) => return Ok(()),
        };
        *place = Some(self.long_job_permits.take().ok_or(ApiError::TooManyRequests)?);
        Ok(())
    }

    /// Sees to it that the caller may do that, and does what route and method say.
    fn dispatch(
        &mut self,
        table: &mut Table,
        call: &Call<'_>,
        route: &Route<'_>,
        verb: Option<Verb>,
        body: &mut [u8],
    ) -> Result<Reply, ApiError> {
        let head = call.head;
        authorize(call.caller, head.method, head.path, route, verb)?;
        match (route, head.method) {
            (Route::Lease { namespace, name }, Method::Get) => read::get(table, call, namespace, name),
            (Route::Lease { namespace, name }, Method::Put) => self.update(table, call, body, namespace, name),
            (Route::Lease { namespace, name }, Method::Patch) => self.patch(table, call, body, namespace, name),
            (Route::Lease { namespace, name }, Method::Delete) => self.delete(table, call, body, namespace, name),
            // A path that leaves the namespace empty asks for all.
            (Route::Namespace(namespace), Method::Get) if !namespace.is_empty() => {
                read::list(table, call, Some(namespace), &mut self.rng)
            }
            (Route::AllNamespaces | Route::Namespace(_), Method::Get) => read::list(table, call, None, &mut self.rng),
            (Route::Watch { namespace, name }, Method::Get) => {
                read::watch_by_path(table, call, namespace.as_deref(), name.as_deref(), &mut self.rng)
            }
            (Route::Namespace(namespace), Method::Post) => self.create(table, call, body, namespace),
            (Route::Namespace(namespace), Method::Delete) if namespace.is_empty() => {
                Err(ApiError::BadRequest { message: NO_NAMESPACE.into() })
            }
            (Route::Namespace(namespace), Method::Delete) => self.delete_collection(table, call, body, namespace),
            (Route::Unknown, _) => Err(ApiError::PathNotFound),
            (Route::Metrics, Method::Get | Method::Head) => {
                let text = self.metrics.encode(table, call.now);
                Ok(Reply::Response(Response::new(200, METRICS, text.into())))
            }
            (route, Method::Get) => discovery::document(route, call, &self.health),
            (route, Method::Head) if route.takes_head() => discovery::document(route, call, &self.health),
            _ => Err(ApiError::MethodNotAllowed),
        }
    }
}
