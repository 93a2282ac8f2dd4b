//! Waiting requests. After the wait, the server responds to the request or serves it again from its beginning.
//!
//! All waits share one mechanism. A request waits:
//!
//! - for the journal to make its own change durable, or for another change of the same Lease;
//! - for this replica's table to catch up with the store;
//! - for built-in storage (kube-apiserver's own storage of Leases), during a takeover;
//! - for a namespace that the cluster has not reported to this server yet.
//!
//! When a request is served again, the server decides it by the current state of the Leases, like `GuaranteedUpdate`
//! (apiserver `storage/etcd3`).
//!
//! ```text
//!   handle ──► Waiting ──► resume ──► Reply       the change is applied, or the request is refused
//!     ▲                       │
//!     └───────────────────────┴─────► Again       another write came first, or the reason to wait is gone
//! ```
//!
//! The cluster reports a new namespace to this server some milliseconds after the creation of the namespace. A client
//! may create a namespace and then at once a Lease in it. Without a wait, the client would get 404. If kube-apiserver's
//! cache lacks a namespace, kube-apiserver waits 50 ms and then reads its storage (apiserver
//! `admission/plugin/namespace/lifecycle`). This server does not store namespaces, so it waits longer than
//! kube-apiserver.

use super::answer::Answer;
use super::gzip;
use super::pending_request::PendingRequest;
use super::storage::{failed, unapplied};
use super::warnings::Warnings;
use super::{Api, Call, Reply};
use crate::api_error::ApiError;
use crate::clock::Now;
use crate::journal::{Outcome, Ticket};
use crate::limits::{BARRIER_WAIT_MS_MAX, NAMESPACE_WAIT_MS, VERSION_WAIT_MS_MAX, WRITE_WAIT_MS_MAX};
use crate::schedule::Permit;
use crate::table::Table;
use crate::table::object::Object;
use compact_str::CompactString;

/// A waiting request. While [`Waiting::needs_request`] is true, the connection stores the bytes of the request.
#[derive(Debug)]
pub struct Waiting {
    until: Until,
    request: PendingRequest,
    retry: Retry,
    /// Deadline of the request's wait, in ms.
    due_ms: u64,
    /// Whether the server may have to serve the request again, and so needs its bytes.
    needs_request: bool,
    /// Whether the client accepts gzip, if the request waits for its own change; otherwise false. After any other wait,
    /// the server serves the request again or sends a short error.
    takes_gzip: bool,
    /// Warnings for the client, in the response.
    warnings: Warnings,
    permit: Option<Permit>,
}

/// The condition that a waiting request waits for.
#[derive(Debug)]
pub(super) enum Until {
    /// No other change of the same Lease is in flight. The number is the ticket number of the change that is in flight
    /// now.
    KeyIsFree(u64),
    /// The barrier with this number is passed: the table has every change that the store had when the request asked for
    /// the barrier.
    Barrier(u64),
    /// The table has reached this `resourceVersion`.
    VersionIsApplied(u64),
    /// The cluster has reported the namespace to this server.
    NamespaceIsKnown(CompactString),
    /// The table has the changes that the copy round with this number imported from built-in storage, during a
    /// takeover.
    RoundIsComplete(u64),
    /// The request's own change is applied, rejected or failed.
    Settled(Ticket, Answer),
    /// Built-in storage has the request's own change, which is already applied to the table. The object is the Lease
    /// after the change.
    BuiltInHas(Object, Answer),
}

/// What a request has already waited for and done before it is served again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Retry {
    /// Time at which the request was first served, in ms.
    pub(super) since_ms: u64,
    /// Number of this request's changes that the journal rejected.
    pub(super) rejections: u32,
    /// Whether the table has every write that any replica had acknowledged before the request arrived.
    pub(super) has_passed_barrier: bool,
    /// Whether the table has every change that built-in storage had before the request arrived.
    pub(super) has_awaited_round: bool,
    /// Whether the request has waited for its `resourceVersion`. The wait may have ended before the table had that
    /// version.
    pub(super) has_awaited_version: bool,
}

/// The outcome of [`Api::resume`].
#[derive(Debug)]
pub enum Resumed {
    /// The server must serve the request again. The caller has stored the bytes of the request, since
    /// [`Waiting::needs_request`] was true.
    Again(Retry),
    /// The reply, which may be an error.
    Reply(Reply),
    /// The request must wait longer.
    Waits(Waiting),
}

/// The event after which the caller resumes a waiting request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WakeUp {
    /// The table has applied any change of a Lease, or this server's watch of Namespaces at kube-apiserver has reported
    /// a change.
    AnyChange,
    /// The request's own change, with this ticket number, is applied, rejected or failed.
    OwnTicket(u64),
    /// Another request's change, with this ticket number, is applied, rejected or failed.
    OtherTicket(u64),
    /// The barrier with this number is passed, so the table has every change that the store had when the request asked
    /// for it.
    Barrier(u64),
    /// The table has reached this `resourceVersion`.
    Version(u64),
}

impl Waiting {
    /// Makes a request wait until `until` is met. `is_shared` is true if other processes write to the store.
    #[inline]
    pub(super) fn new(until: Until, call: &Call<'_>, permit: Option<Permit>, is_shared: bool) -> Self {
        let wait_ms = match &until {
            Until::NamespaceIsKnown(_) => NAMESPACE_WAIT_MS,
            Until::Barrier(_) | Until::RoundIsComplete(_) => BARRIER_WAIT_MS_MAX,
            Until::VersionIsApplied(_) => VERSION_WAIT_MS_MAX,
            Until::KeyIsFree(_) | Until::Settled(..) | Until::BuiltInHas(..) => WRITE_WAIT_MS_MAX,
        };
        let is_settling = matches!(until, Until::Settled(..) | Until::BuiltInHas(..));
        Self {
            until,
            request: PendingRequest::of(call.head, &call.query, call.kind, call.version, call.retry.since_ms),
            retry: call.retry,
            due_ms: call.retry.since_ms.saturating_add(wait_ms),
            // Once a change is in flight, only its rejection makes the server serve the request again. The journal
            // rejects a change only if another process has written the Lease, since this process has at most one change
            // of a Lease in flight.
            needs_request: is_shared || !is_settling,
            takes_gzip: is_settling && gzip::is_accepted(call.head.accept_encoding),
            warnings: Warnings::default(),
            permit,
        }
    }

    /// Whether the connection must store the bytes of the request, because the server may have to serve the request
    /// again.
    #[must_use]
    pub fn needs_request(&self) -> bool {
        self.needs_request
    }

    pub(super) fn warn(&mut self, warnings: Warnings) {
        self.warnings = warnings;
    }

    /// Returns the event after which the caller must resume the request.
    #[must_use]
    pub fn wake_up(&self) -> WakeUp {
        match &self.until {
            Until::Settled(ticket, _) => WakeUp::OwnTicket(ticket.number()),
            Until::KeyIsFree(ticket) => WakeUp::OtherTicket(*ticket),
            Until::Barrier(number) => WakeUp::Barrier(*number),
            Until::VersionIsApplied(version) => WakeUp::Version(*version),
            Until::NamespaceIsKnown(_) | Until::RoundIsComplete(_) | Until::BuiltInHas(..) => WakeUp::AnyChange,
        }
    }

    /// Returns the deadline of the wait, in ms.
    #[must_use]
    pub fn due_ms(&self) -> u64 {
        self.due_ms
    }

    /// Whether the condition of the wait is met.
    fn is_met(&self, api: &Api, table: &Table) -> bool {
        let Api { storage, namespaces, handover, .. } = api;
        match &self.until {
            Until::KeyIsFree(ticket) => storage.settled() >= *ticket,
            Until::Barrier(number) => storage.has_passed(*number),
            Until::VersionIsApplied(version) => table.version().0 >= *version,
            Until::NamespaceIsKnown(namespace) => !namespaces.is_unknown(namespace),
            Until::RoundIsComplete(round) => handover.has_completed(*round),
            Until::Settled(ticket, _) => ticket.is_settled(),
            Until::BuiltInHas(applied, _) => handover.has_written(applied),
        }
    }
}

impl Retry {
    /// Creates the value for a request that the server serves for the first time, at `ms`: it has waited for nothing
    /// yet.
    pub(super) fn first(ms: u64) -> Self {
        Self {
            since_ms: ms,
            rejections: 0,
            has_passed_barrier: false,
            has_awaited_round: false,
            has_awaited_version: false,
        }
    }
}

impl Api {
    /// Resumes a waiting request if its condition is met or its deadline has passed. A request that waits for a barrier
    /// also resumes, with an error, once the store is unreachable.
    pub fn resume(&mut self, table: &Table, waiting: Waiting, now: Now) -> Resumed {
        let is_met = waiting.is_met(self, table);
        let is_hopeless = matches!(waiting.until, Until::Barrier(_)) && !self.storage.is_reachable();
        if !is_met && !is_hopeless && now.ms < waiting.due_ms {
            return Resumed::Waits(waiting);
        }
        let Waiting { until, request, retry, due_ms, needs_request, takes_gzip, warnings, permit } = waiting;
        let replied = match until {
            Until::NamespaceIsKnown(_) => return Resumed::Again(retry),
            Until::VersionIsApplied(_) => {
                return Resumed::Again(Retry { has_awaited_version: true, ..retry });
            }
            Until::Barrier(_) if is_met => return Resumed::Again(Retry { has_passed_barrier: true, ..retry }),
            Until::Barrier(_) if !self.storage.is_reachable() => Err(ApiError::StoreUnreachable),
            Until::RoundIsComplete(_) if is_met => return Resumed::Again(Retry { has_awaited_round: true, ..retry }),
            Until::Barrier(_) | Until::RoundIsComplete(_) => Err(ApiError::Timeout),
            Until::KeyIsFree(_) if is_met => return Resumed::Again(retry),
            Until::KeyIsFree(_) => Err(ApiError::Timeout),
            Until::Settled(ticket, answer) => match ticket.take() {
                Outcome::Applied(object) if !self.handover.may_acknowledge(&object) => Err(ApiError::Timeout),
                Outcome::Applied(object) if !self.handover.has_written(&object) => {
                    let until = Until::BuiltInHas(object, answer);
                    let waiting =
                        Waiting { until, request, retry, due_ms, needs_request, takes_gzip, warnings, permit };
                    return Resumed::Waits(waiting);
                }
                Outcome::Applied(object) => answer.into_reply(&object, now),
                Outcome::Rejected if needs_request => {
                    // The server made the rejected change after the request arrived. The table now has every change
                    // that came before the rejected one. So the request needs no barrier any more.
                    let rejections = retry.rejections + 1;
                    return Resumed::Again(Retry { rejections, has_passed_barrier: true, ..retry });
                }
                Outcome::Failed(failure) => Err(failed(failure)),
                Outcome::Pending => Err(ApiError::Timeout),
                Outcome::Rejected => Err(unapplied()),
            },
            Until::BuiltInHas(applied, answer) if is_met => {
                self.handover.check_renewed(table, &applied).and_then(|()| answer.into_reply(&applied, now))
            }
            Until::BuiltInHas(..) => Err(ApiError::Timeout),
        };
        let mut reply = replied.unwrap_or_else(|error| Reply::Response(request.refusal(&error)));
        reply.warn(warnings);
        if takes_gzip && reply.may_be_compressed() {
            reply = self.compress(reply);
        }
        match (reply.status(), &mut reply) {
            (Some(status), _) => {
                request.count_begin(&mut self.metrics, status);
                request.count_end(&mut self.metrics, now);
            }
            // A job is counted in the metrics when its response begins.
            (None, Reply::Job(job)) => job.set_request(request),
            (None, _) => {}
        }
        Resumed::Reply(reply)
    }
}
