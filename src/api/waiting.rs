//! A request that cannot be answered yet: it waits, and then it is answered or served again from its beginning.
//!
//! One mechanism serves all who wait: for the journal to make a change durable, for another change of the same Lease,
//! for this replica to catch up, and for a namespace to become known. A request that is served again is decided by the
//! state of that moment, as `GuaranteedUpdate` does (apiserver `storage/etcd3`).
//!
//! ```text
//!   handle ──► Waiting ──► resume ──► Reply       the change is applied
//!     ▲                       ├─────► Refused     the store had no room, or the wait was too long
//!     └───────────────────────┴─────► Again       another write came first, or the reason to wait is gone
//! ```
//!
//! The cluster tells of a new namespace some milliseconds after it exists, so a client that makes a namespace and at
//! once a Lease in it would get 404. kube-apiserver waits 50 ms for its cache in that case and then asks its storage
//! (apiserver `admission/plugin/namespace/lifecycle`). This server has nobody to ask, so its wait is longer.

use super::answer::Answer;
use super::pending_request::PendingRequest;
use super::storage::Storage;
use super::warnings::Warnings;
use super::{Api, Call, Reply};
use crate::api_error::ApiError;
use crate::clock::Now;
use crate::cluster::Namespaces;
use crate::journal::{Failure, Outcome, Ticket};
use crate::limits::{BARRIER_WAIT_MS_MAX, NAMESPACE_WAIT_MS, VERSION_WAIT_MS_MAX, WRITE_WAIT_MS_MAX};
use crate::metrics::RequestKind;
use crate::permits::Permit;
use crate::resource::ApiVersion;
use compact_str::CompactString;

/// A request that waits. Whoever serves the connection keeps the bytes of the request.
#[derive(Debug)]
pub struct Waiting {
    until: Until,
    of: Waiter,
    /// When the wait is too long, in ms.
    due_ms: u64,
    /// Warnings for the client, beside the answer.
    warnings: Warnings,
    _permit: Option<Permit>,
}

/// What a wait keeps of a request.
#[derive(Clone, Copy, Debug)]
pub(super) struct Waiter {
    pub(super) kind: RequestKind,
    pub(super) version: ApiVersion,
    pub(super) retry: Retry,
}

/// What a request waits for.
#[derive(Debug)]
pub(super) enum Until {
    /// Another change of the same Lease is settled: the one with the ticket of this number.
    KeyIsFree(u64),
    /// The barrier of this number is passed.
    Barrier(u64),
    /// The table has this version.
    VersionIsApplied(u64),
    /// The namespace becomes known.
    NamespaceIsKnown(CompactString),
    /// The request's own change is settled.
    Settled(Ticket, Answer),
}

/// What is known of a request that was served before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Retry {
    /// When the request was served first, in ms.
    pub(super) since_ms: u64,
    /// Number of its changes that were rejected.
    pub(super) rejections: u32,
    /// Whether the table has had all that any replica had acknowledged when the request came.
    pub(super) is_current: bool,
    /// Whether the request has waited for its version, also in vain.
    pub(super) has_awaited_version: bool,
}

/// How a request that waited goes on.
#[derive(Debug)]
pub enum Resumed {
    /// The request is to be served again.
    Again(Retry),
    /// The answer.
    Reply(Reply),
    /// The request is to be refused.
    Refused(Box<Refused>),
    /// The request waits on.
    Waits(Waiting),
}

/// Why a request that waited is refused. [`Api::refuse_waiting`] makes the response.
#[derive(Debug)]
pub struct Refused {
    /// The error.
    pub error: ApiError,
    /// Warnings for the client, beside the error.
    pub(super) warnings: Warnings,
    /// Time since the request was served first, in ms.
    pub(super) waited_ms: u64,
}

/// The event after which a request that waits can go on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WakeUp {
    /// Any change is applied, or the cluster has told of a namespace.
    AnyChange,
    /// The request's own change is settled: the one with the ticket of this number.
    OwnTicket(u64),
    /// Another change is settled: the one with the ticket of this number.
    OtherTicket(u64),
    /// The barrier of this number is passed.
    Barrier(u64),
}

impl Waiting {
    pub(super) fn new(until: Until, of: Waiter, permit: Option<Permit>) -> Self {
        let wait_ms = match &until {
            Until::NamespaceIsKnown(_) => NAMESPACE_WAIT_MS,
            Until::Barrier(_) => BARRIER_WAIT_MS_MAX,
            Until::VersionIsApplied(_) => VERSION_WAIT_MS_MAX,
            Until::KeyIsFree(_) | Until::Settled(..) => WRITE_WAIT_MS_MAX,
        };
        let due_ms = of.retry.since_ms.saturating_add(wait_ms);
        Self { until, of, due_ms, warnings: Warnings::default(), _permit: permit }
    }

    pub(super) fn warn(&mut self, warnings: Warnings) {
        self.warnings = warnings;
    }

    /// The event after which to resume the request.
    #[must_use]
    pub fn wake_up(&self) -> WakeUp {
        match &self.until {
            Until::Settled(ticket, _) => WakeUp::OwnTicket(ticket.number()),
            Until::KeyIsFree(ticket) => WakeUp::OtherTicket(*ticket),
            Until::Barrier(number) => WakeUp::Barrier(*number),
            Until::NamespaceIsKnown(_) | Until::VersionIsApplied(_) => WakeUp::AnyChange,
        }
    }

    /// When the wait is too long, in ms.
    #[must_use]
    pub fn due_ms(&self) -> u64 {
        self.due_ms
    }

    fn is_over(&self, storage: &Storage, namespaces: &Namespaces) -> bool {
        match &self.until {
            Until::KeyIsFree(ticket) => storage.settled() >= *ticket,
            Until::Barrier(number) => storage.has_passed(*number),
            Until::VersionIsApplied(version) => storage.has_applied(*version),
            Until::NamespaceIsKnown(namespace) => !namespaces.is_unknown(namespace),
            Until::Settled(ticket, _) => ticket.is_settled(),
        }
    }
}

impl Waiter {
    #[inline]
    pub(super) fn of(call: &Call<'_>) -> Self {
        Self { kind: call.kind, version: call.version, retry: call.retry }
    }
}

impl Retry {
    /// That of a request which is served first at `ms`.
    pub(super) fn first(ms: u64) -> Self {
        Self { since_ms: ms, rejections: 0, is_current: false, has_awaited_version: false }
    }
}

impl Api {
    /// Goes on with a request that waits, if it can. `takes_gzip` says whether the client takes gzip. Only a long
    /// answer needs it.
    pub fn resume(&mut self, waiting: Waiting, now: Now, takes_gzip: impl FnOnce() -> bool) -> Resumed {
        let is_over = waiting.is_over(&self.storage, &self.namespaces);
        let is_hopeless = matches!(waiting.until, Until::Barrier(_)) && !self.storage.is_reachable();
        if !is_over && !is_hopeless && now.ms < waiting.due_ms {
            return Resumed::Waits(waiting);
        }
        let Waiting { until, of, warnings, .. } = waiting;
        let waited_ms = now.ms.saturating_sub(of.retry.since_ms);
        let replied = match until {
            Until::NamespaceIsKnown(_) => return Resumed::Again(of.retry),
            Until::VersionIsApplied(_) => {
                return Resumed::Again(Retry { has_awaited_version: true, ..of.retry });
            }
            Until::Barrier(_) if is_over => return Resumed::Again(Retry { is_current: true, ..of.retry }),
            Until::Barrier(_) if !self.storage.is_reachable() => Err(ApiError::StoreUnreachable),
            Until::Barrier(_) => Err(ApiError::Timeout),
            Until::KeyIsFree(_) if is_over => return Resumed::Again(of.retry),
            Until::KeyIsFree(_) => Err(ApiError::Timeout),
            Until::Settled(ticket, answer) => match ticket.take() {
                Outcome::Applied(object) if !self.handover.may_acknowledge(&object) => Err(ApiError::Timeout),
                Outcome::Applied(object) => answer.into_reply(&object, now),
                Outcome::Rejected => {
                    // The rejected change came after the request, and the table has all that came before it.
                    return Resumed::Again(Retry { rejections: of.retry.rejections + 1, is_current: true, ..of.retry });
                }
                Outcome::Failed(Failure::NoSpace) => Err(ApiError::InsufficientStorage),
                Outcome::Pending => Err(ApiError::Timeout),
            },
        };
        match replied {
            Ok(mut reply) => {
                reply.warn(warnings);
                if reply.may_be_compressed() && takes_gzip() {
                    reply = self.compress(reply);
                }
                match (reply.status(), &mut reply) {
                    (Some(status), _) => {
                        self.metrics.count_begin(of.kind, of.version, status);
                        self.metrics.count_end(of.kind, of.version, waited_ms);
                    }
                    // A job is counted when its response begins.
                    (None, Reply::Job(job)) => {
                        job.set_request(PendingRequest::since(of.retry.since_ms, of.kind, of.version));
                    }
                    (None, _) => {}
                }
                Resumed::Reply(reply)
            }
            Err(error) => Resumed::Refused(Box::new(Refused { error, warnings, waited_ms })),
        }
    }
}
