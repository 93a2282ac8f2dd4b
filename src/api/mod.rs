//! The verbs of the Lease API: a request and its body in, a [`Reply`] out.
//!
//! Owned here: the order in which kube-apiserver checks things, since the first that is wrong is what the client is
//! told. The rules themselves are in `lease`, `options`, `patch` and `selector`; how a reply is framed is `serve`'s.

mod delete;
mod discovery;
pub mod job;
mod negotiate;
mod read;
mod token;
mod write;

use crate::api_error::ApiError;
use crate::auth::{Caller, authorize};
use crate::clock::Now;
use crate::codec::json::Decoder;
use crate::http::{ContentType, Method, RequestHead, Response};
use crate::options::Query;
use crate::route::Route;
use crate::table::Table;
use crate::table::object::Object;
use crate::watch::WatchSpec;
use job::Job;
use std::fmt;

/// What the verbs need between requests: scratch memory and randomness. The Leases are in the [`Table`].
pub struct Api {
    decoder: Decoder,
    rng: fastrand::Rng,
}

/// A request, and what is known of it besides its body.
#[derive(Debug)]
struct Call<'r> {
    head: &'r RequestHead<'r>,
    query: Query<'r>,
    caller: &'r Caller,
    now: Now,
}

/// The answer to a request.
#[derive(Debug)]
pub enum Reply {
    /// One that is at hand.
    Response(Response),
    /// A list, made in steps.
    Job(Box<Job>),
    /// A stream of events.
    Watch(Box<WatchSpec>),
}

impl Reply {
    /// One object, encoded as often as it changes and not as often as it is read.
    fn object(status: u16, object: &Object) -> Self {
        Self::Response(Response::new(status, ContentType::Json, object.json_body().clone()))
    }
}

impl fmt::Debug for Api {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Api").finish_non_exhaustive()
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
        Self { decoder: Decoder::new(), rng: fastrand::Rng::new() }
    }

    /// Serves one request. `body` is the API's to change.
    pub fn handle(
        &mut self,
        table: &mut Table,
        request: &RequestHead<'_>,
        body: &mut [u8],
        caller: &Caller,
        now: Now,
    ) -> Reply {
        let call = Call { head: request, query: Query::new(request.query), caller, now };
        self.route(table, &call, body).unwrap_or_else(|error| Reply::Response(Response::from_error(&error)))
    }

    fn route(&mut self, table: &mut Table, call: &Call<'_>, body: &mut [u8]) -> Result<Reply, ApiError> {
        let head = call.head;
        let route = Route::of(head.path);
        authorize(call.caller, head.method, head.path, &route, head.query)?;
        match (&route, head.method) {
            (Route::Lease { namespace, name }, Method::Get | Method::Head) => read::get(table, call, namespace, name),
            (Route::Lease { namespace, name }, Method::Put) => self.update(table, call, body, namespace, name),
            (Route::Lease { namespace, name }, Method::Patch) => self.patch(table, call, body, namespace, name),
            (Route::Lease { namespace, name }, Method::Delete) => self.delete(table, call, body, namespace, name),
            (Route::Namespace(namespace), Method::Get | Method::Head) => {
                read::list(table, call, Some(namespace), &mut self.rng)
            }
            (Route::AllNamespaces, Method::Get | Method::Head) => read::list(table, call, None, &mut self.rng),
            (Route::Namespace(namespace), Method::Post) => self.create(table, call, body, namespace),
            (Route::Namespace(namespace), Method::Delete) => self.delete_collection(table, call, body, namespace),
            (Route::Unknown, _) => Err(ApiError::PathNotFound),
            (route, Method::Get | Method::Head) => discovery::document(route),
            _ => Err(ApiError::MethodNotAllowed),
        }
    }
}
