//! Between protocol and API: requests out of a connection's input, responses into its output. Holds no rules of its
//! own. Here alone the two sides meet: `conn` hands on what is needed, and `server` says when each goes on.

mod http1;
mod http2;
mod job_steps;
mod pace;
mod protocol;
mod service;
mod waiters;

pub use http1::Http1;
pub use http2::Http2;
pub use pace::Pace;
pub use protocol::Protocol;
pub use service::Service;
pub use waiters::Waiters;

use crate::auth::Credentials;
use crate::clock::Now;
use crate::http2::StreamKey;
use crate::limits::{PREFETCH_TARGET_BYTES_MAX, REQUESTS_PER_TURN};
use crate::route::Route;
use crate::table::{PrefetchKey, Table};
use memchr::memchr;
use mio::Token;
use std::borrow::Cow;

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

/// What a connection is served with in a turn.
#[derive(Debug)]
pub struct Turn<'t> {
    /// What all connections share.
    pub service: &'t mut Service,
    /// Whose requests they are.
    pub from: Peer<'t>,
    /// The time of the turn.
    pub now: Now,
    /// Where responses and events go.
    pub output: &'t mut Vec<u8>,
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

/// How a connection goes on after a step of a job.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AfterStep {
    /// As before.
    GoOn,
    /// Once changes that the job has made are settled.
    Wait,
    /// Not at all: close when the output is sent.
    Close,
}

/// How much one connection may do in one turn, if there is [time](Pace) for it.
#[derive(Debug)]
pub struct Budget {
    /// Requests.
    pub requests: usize,
    /// Bytes of output above which no request is served, see [`Service::room_for`].
    pub room: usize,
    /// Whether requests were served, whose answers wait for the end of the turn.
    pub has_answers: bool,
    /// Whether there is more to be read than the input has.
    pub has_more_input: bool,
    /// Whether serving has begun in this turn.
    pub is_begun: bool,
}

impl Budget {
    /// What each connection gets in a turn, with `room` for the answers.
    #[must_use]
    pub fn for_turn(room: usize) -> Self {
        Self { requests: REQUESTS_PER_TURN, room, has_answers: false, has_more_input: false, is_begun: false }
    }

    /// Whether more may be done, if `output` is what waits to be sent.
    #[must_use]
    pub fn lasts(&self, output: &[u8]) -> bool {
        self.requests > 0 && output.len() < self.room
    }
}

/// Namespace and name of the Lease that a request for `target` is about, if that is plain to see.
fn named_lease(target: &[u8]) -> Option<(Cow<'_, str>, Cow<'_, str>)> {
    let path = &target[..memchr(b'?', target).unwrap_or(target.len())];
    match Route::of(str::from_utf8(path).ok()?) {
        Route::Lease { namespace, name } => Some((namespace, name)),
        _ => None,
    }
}

/// The Lease that a request for `target` is about, if that is plain to see.
fn prefetch_key(target: &[u8], table: &Table) -> Option<PrefetchKey> {
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
        assert!(prefetch_key(&target("n/leases/a"), &table).is_some());
        assert!(prefetch_key(&target("n/leases/a?dryRun=All"), &table).is_some());
        assert!(prefetch_key(&target("n/leases"), &table).is_none());
        assert!(prefetch_key(&target(&format!("n/leases/{long}")), &table).is_none());
        assert!(prefetch_key(&[&target("n/leases/a")[..], b"\xff"].concat(), &table).is_none());
        assert!(prefetch_key(b"", &table).is_none());
    }
}
