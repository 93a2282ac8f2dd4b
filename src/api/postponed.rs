//! A creation in a namespace that is not known: it waits a moment for the namespace to become known.
//!
//! What the cluster tells of its namespaces is some milliseconds old, so that a client that makes a namespace and at
//! once a Lease in it would be told that there is none. kube-apiserver waits 50 ms for its cache in that case, and then
//! asks its storage (apiserver `admission/plugin/namespace/lifecycle`); here nobody can be asked, so the wait is
//! longer.

use super::pending_request::PendingRequest;
use super::warnings::Warnings;
use super::write::{Write, WriteKind};
use super::{Api, Reply};
use crate::api_error::ApiError;
use crate::clock::Now;
use crate::form::{Form, Response};
use crate::lease::Lease;
use crate::limits::NAMESPACE_WAIT_MS;
use crate::options::WriteOptions;
use crate::permits::Permit;
use crate::table::Table;

/// A request that has been checked, up to the question whether its namespace exists.
#[derive(Debug)]
pub struct Postponed {
    lease: Lease,
    options: WriteOptions,
    form: Form,
    kind: WriteKind,
    answer_refused: Option<ApiError>,
    /// What the client is told besides.
    warnings: Warnings,
    /// Known once it is on its way out of the API.
    request: Option<PendingRequest>,
    due_ms: u64,
    /// None until somebody has let it wait.
    permit: Option<Permit>,
}

impl Postponed {
    pub(super) fn new(lease: Lease, write: &Write<'_>) -> Self {
        let due_ms = write.now.ms.saturating_add(NAMESPACE_WAIT_MS);
        Self {
            lease,
            options: write.options.clone(),
            form: write.form,
            kind: write.kind,
            answer_refused: write.answer_refused.clone(),
            warnings: Warnings::default(),
            request: None,
            due_ms,
            permit: None,
        }
    }

    /// Keeps a permit for as long as it waits.
    pub fn hold(&mut self, permit: Permit) {
        self.permit = Some(permit);
    }

    pub(super) fn warn(&mut self, warnings: Warnings) {
        self.warnings = warnings;
    }

    pub(super) fn set_request(&mut self, request: PendingRequest) {
        self.request = Some(request);
    }

    /// Milliseconds at which it waits no longer.
    #[must_use]
    pub fn due_ms(&self) -> u64 {
        self.due_ms
    }
}

impl Api {
    /// Goes on with a request that was postponed, if its namespace is known by now or its time is over; gives it back
    /// if it must wait on.
    ///
    /// # Errors
    /// The request, which waits.
    pub fn resume(&mut self, table: &mut Table, postponed: Box<Postponed>, now: Now) -> Result<Reply, Box<Postponed>> {
        let is_due = now.ms >= postponed.due_ms;
        if !is_due && self.namespaces.is_unknown(&postponed.lease.metadata.namespace) {
            return Err(postponed);
        }
        Ok(self.settle(table, *postponed, now))
    }

    /// Answers a request that was postponed, by what is known now.
    pub fn settle(&mut self, table: &mut Table, postponed: Postponed, now: Now) -> Reply {
        let Postponed { lease, options, form, kind, answer_refused, warnings, request, .. } = postponed;
        let write = Write { now, kind, options: &options, form, may_wait: false, warnings: &warnings, answer_refused };
        let reply = self.insert(table, lease, &write).unwrap_or_else(|error| {
            let refusal = request.map_or_else(|| Response::from_error(&error), |request| request.refusal(&error));
            Reply::Response(refusal)
        });
        let reply = reply.with_warnings(warnings);
        if let (Some(request), Some(status)) = (request, reply.status()) {
            request.count_begin(&mut self.metrics, status);
            request.count_end(&mut self.metrics, now);
        }
        reply
    }
}
