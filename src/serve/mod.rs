//! Connects the protocols (HTTP/1.1, HTTP/2) and the API. Parses requests in a connection's input, passes them to the
//! API, and writes responses to the connection's output. Contains no rules of the API. Only this module depends on both
//! the protocols and the API. `conn` passes input and output to this module, and `server` decides when each connection
//! continues.

mod http1;
mod http2;
mod job_steps;
mod protocol;
mod service;
mod waiters;

pub use http1::Http1;
pub use http2::Http2;
pub use protocol::Protocol;
pub use service::Service;
pub use waiters::Waiters;

use crate::auth::Credentials;
use crate::clock::Now;
use crate::http2::StreamKey;
use crate::limits::PREFETCH_TARGET_BYTES_MAX;
use crate::route::Route;
use crate::table::{PrefetchKey, Table};
use memchr::memchr;
use mio::Token;
use std::borrow::Cow;

/// The connection and stream that own a watcher.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Owner {
    /// The connection.
    pub connection: Token,
    /// The HTTP/2 stream; `None` in HTTP/1.1.
    pub stream: Option<StreamKey>,
}

/// The peer of a connection.
#[derive(Clone, Copy, Debug)]
pub struct Peer<'a> {
    /// The connection. It will own the watches that the requests open.
    pub connection: Token,
    /// The peer's credentials, by which its requests are authorized.
    pub credentials: &'a Credentials,
}

/// Context for serving a connection in a turn of the event loop.
#[derive(Debug)]
pub struct Context<'t> {
    /// The state that all connections share.
    pub service: &'t mut Service,
    /// The peer that sent the requests.
    pub from: Peer<'t>,
    /// The time of the turn.
    pub now: Now,
    /// Buffer for responses and events.
    pub output: &'t mut Vec<u8>,
}

/// How a connection continues after serving.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Served {
    /// More input is needed.
    Starved,
    /// There is more work, now or once the output has room.
    Busy,
    /// A response is in progress, and later requests wait. [`Protocol::send_events`] continues a watch, and
    /// [`Protocol::step_job`] continues a job, such as a list.
    Streaming,
    /// Close the connection once the output is sent.
    Close,
}

/// How a connection continues after a step of a job, or after a long request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AfterStep {
    /// Continue as before.
    GoOn,
    /// Wait until the journal reports the outcome of the job's changes.
    Wait,
    /// Close the connection once the output is sent.
    Close,
}

/// Returns the namespace and name of the Lease that `target` names. Returns `None` if the path of `target` is not the
/// path of one Lease.
fn named_lease(target: &[u8]) -> Option<(Cow<'_, str>, Cow<'_, str>)> {
    let path = &target[..memchr(b'?', target).unwrap_or(target.len())];
    match Route::of(str::from_utf8(path).ok()?) {
        Route::Lease { namespace, name } => Some((namespace, name)),
        _ => None,
    }
}

/// Returns the key for prefetching the Lease that `target` names. Returns `None` for a long target, or if its path is
/// not the path of one Lease.
fn prefetch_key_of(target: &[u8], table: &Table) -> Option<PrefetchKey> {
    if target.len() > PREFETCH_TARGET_BYTES_MAX {
        return None;
    }
    named_lease(target).map(|(namespace, name)| table.prefetch_key(&namespace, &name))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::resource::ResourceVersion;

    #[test]
    fn only_the_plain_path_of_a_lease_is_prefetched() {
        let table = Table::new(ResourceVersion(1), 16, 1 << 16);
        let target = |rest: &str| format!("/apis/coordination.k8s.io/v1/namespaces/{rest}").into_bytes();
        let long = "a".repeat(PREFETCH_TARGET_BYTES_MAX);
        assert!(prefetch_key_of(&target("n/leases/a"), &table).is_some());
        assert!(prefetch_key_of(&target("n/leases/a?dryRun=All"), &table).is_some());
        assert!(prefetch_key_of(&target("n/leases"), &table).is_none());
        assert!(prefetch_key_of(&target(&format!("n/leases/{long}")), &table).is_none());
        assert!(prefetch_key_of(&[&target("n/leases/a")[..], b"\xff"].concat(), &table).is_none());
        assert!(prefetch_key_of(b"", &table).is_none());
    }
}
