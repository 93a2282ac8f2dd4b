//! What is kept of a request that is not answered at once.

use super::negotiate::form_of_error;
use crate::api_error::ApiError;
use crate::clock::Now;
use crate::form::{Form, Response};
use crate::http::RequestHead;
use crate::metrics::{Metrics, RequestKind};
use crate::options::Query;
use crate::resource::ApiVersion;

/// What a request counts as and since when, and how an error is written.
#[derive(Clone, Copy, Debug)]
pub(super) struct PendingRequest {
    kind: RequestKind,
    version: ApiVersion,
    form_of_error: Form,
    /// Milliseconds at which it was taken in.
    taken_ms: u64,
}

impl PendingRequest {
    /// That of a request which was taken in at `taken_ms`.
    #[inline]
    pub(super) fn of(
        request: &RequestHead<'_>,
        query: &Query<'_>,
        kind: RequestKind,
        version: ApiVersion,
        taken_ms: u64,
    ) -> Self {
        Self { kind, version, form_of_error: form_of_error(request, query), taken_ms }
    }

    /// What it is answered with if it fails.
    pub(super) fn refusal(&self, error: &ApiError) -> Response {
        Response::from_status(&error.status(), self.form_of_error)
    }

    /// Counts it, with the status of its response, which begins.
    pub(super) fn count_begin(&self, metrics: &mut Metrics, status: u16) {
        metrics.count_begin(self.kind, self.version, status);
    }

    /// Counts how long it took: the last of its response has been made.
    pub(super) fn count_end(&self, metrics: &mut Metrics, now: Now) {
        metrics.count_end(self.kind, self.version, now.ms.saturating_sub(self.taken_ms));
    }
}
