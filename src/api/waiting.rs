//! Waiting requests. After the wait, the server responds to the request or serves it again from its beginning.
//!
//! All waits share one mechanism. A request waits:
//!
//! - for the journal to make its own change durable, or for another change of the same Lease;
//! - for this replica's table to catch up with the store, or to reach a requested `resourceVersion`;
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
    /// Permit to wait. A request that waits for its own change has a permit only if the server decided the change
    /// during a takeover.
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

    /// Brings the encoding of the Lease in the response into the processor's caches, if the request's own change is
    /// applied. The result has no meaning.
    #[inline]
    #[must_use]
    pub fn touch(&self) -> usize {
        if let Until::Settled(ticket, _) = &self.until { ticket.touch() } else { 0 }
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
    /// or for another request's change also resumes, with an error, once the store is unreachable.
    pub fn resume(&mut self, table: &Table, waiting: Waiting, now: Now) -> Resumed {
        let is_met = waiting.is_met(self, table);
        let is_hopeless =
            matches!(waiting.until, Until::Barrier(_) | Until::KeyIsFree(_)) && !self.storage.is_reachable();
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
            Until::RoundIsComplete(_) if is_met => return Resumed::Again(Retry { has_awaited_round: true, ..retry }),
            Until::KeyIsFree(_) if is_met => return Resumed::Again(retry),
            Until::Barrier(_) | Until::KeyIsFree(_) if is_hopeless => Err(ApiError::StoreUnreachable),
            Until::Barrier(_) | Until::RoundIsComplete(_) | Until::KeyIsFree(_) => Err(ApiError::Timeout),
            Until::Settled(ticket, answer) => match ticket.take() {
                Outcome::Applied(object) if !self.handover.may_acknowledge(&object) => Err(ApiError::Timeout),
                // The server decided the change during a takeover, or a takeover is in progress now. So an import may
                // already have replaced the change in the table, since another client holds the lock in built-in
                // storage. `check_renewed` finds this out before the answer.
                Outcome::Applied(object) if permit.is_some() || self.handover.follows_built_in() => {
                    let until = Until::BuiltInHas(object, answer);
                    let waiting =
                        Waiting { until, request, retry, due_ms, needs_request, takes_gzip, warnings, permit };
                    return self.resume(table, waiting, now);
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

#[cfg(test)]
mod tests {
    use super::super::Storage;
    use super::super::storage::Written;
    use super::*;
    use crate::auth::Credentials;
    use crate::handover::{NAME, NAMESPACE, PHASE, PROGRESS_NAME, Phase, STEP, Step, WRITTEN};
    use crate::http::{Method, NoLines, RequestHead};
    use crate::journal::Limits;
    use crate::journal::testing::SharedStore;
    use crate::lease::Lease;
    use crate::table::change::Change;
    use crate::timestamp::Time;
    use compact_str::format_compact;

    const NOW: Now = Now { ms: 0, wall: Time(1_767_000_000) };

    /// Runs turns until the journal has applied all changes.
    fn settle(api: &mut Api, table: &mut Table) {
        for _ in 0..10 {
            let journal = api.storage.journal_mut().expect("a journal");
            journal.advance(table, NOW.ms, 100).expect("a store");
            journal.end_turn(table, NOW.ms);
        }
    }

    /// Returns the Lease `n/a` with this holder.
    fn held_by(holder: &str) -> Lease {
        let mut lease = Lease::named("n", "a");
        lease.spec.holder_identity = Some(holder.into());
        lease
    }

    /// Returns the Lease of the hand-over in the phase `serve`.
    fn of_handover(step: Option<Step>) -> Lease {
        let mut lease = Lease::named(NAMESPACE, NAME);
        lease.metadata.annotations.insert(PHASE.into(), Phase::Serve.name().into());
        if let Some(step) = step {
            lease.metadata.annotations.insert(STEP.into(), step.name().into());
        }
        lease
    }

    /// Renews a lock during a takeover, at a replica that has fallen behind. In one turn, the replica then applies the
    /// renewal, the import of another holder if `is_replaced`, and the change that ends the wait. If `is_serving`, this
    /// change completes the takeover (the step `serving`). Otherwise it says that built-in storage has the renewal.
    /// Returns the status of the response.
    fn status_of_renewal(is_replaced: bool, is_serving: bool) -> Option<u16> {
        let (journal, mut table) = SharedStore::default().load(1, Limits::default());
        let mut api = Api::new();
        api.storage = Storage::Journal(Box::new(journal));
        for lease in [of_handover(None), held_by("h")] {
            let written = api.storage.write(&mut table, Change::Create(Box::new(lease)), NOW.ms);
            assert!(matches!(written, Ok(Written::Submitted(_))), "{written:?}");
        }
        settle(&mut api, &mut table);
        api.handover.read_state(&table);

        let (_, before) = table.find("n", "a").expect("a Lease");
        let meta = format!(r#"{{"name":"a","resourceVersion":"{}"}}"#, before.version);
        let spec = r#"{"holderIdentity":"h","renewTime":"2026-01-01T00:00:09.000000Z"}"#;
        let body = format!(r#"{{"metadata":{meta},"spec":{spec}}}"#);
        let path = "/apis/coordination.k8s.io/v1/namespaces/n/leases/a";
        let head = RequestHead::bare(Method::Put, path, "", &NoLines);
        let reply = api.handle(&mut table, &head, body.as_bytes(), None, &Credentials::insecure(), NOW);
        let Reply::Waiting(waiting) = reply else { panic!("{reply:?}") };
        settle(&mut api, &mut table);

        let (slot, renewed) = table.find("n", "a").expect("a Lease");
        let renewed_at = renewed.version;
        assert!(renewed.renew_time().is_some(), "the journal has applied the renewal");
        if is_replaced {
            let mut imported = held_by("other");
            imported.metadata.resource_version = "42".into();
            table.replace(slot, imported);
        }
        if is_serving {
            let (slot, _) = table.find(NAMESPACE, NAME).expect("the Lease of the hand-over");
            table.replace(slot, of_handover(Some(Step::Serving)));
        } else {
            let mut progress = Lease::named(NAMESPACE, PROGRESS_NAME);
            progress.metadata.annotations.insert(WRITTEN.into(), format_compact!("{renewed_at}"));
            table.create(progress);
        }
        api.handover.read_state(&table);
        match api.resume(&table, waiting, NOW) {
            Resumed::Reply(reply) => reply.status(),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn a_renewal_that_an_import_has_replaced_is_not_acknowledged() {
        for is_serving in [false, true] {
            assert_eq!(status_of_renewal(false, is_serving), Some(200));
            assert_eq!(status_of_renewal(true, is_serving), Some(409), "is_serving: {is_serving}");
        }
    }
}
