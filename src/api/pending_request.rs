//! The data of a request whose response is not sent immediately.

use super::negotiate::form_of_error;
use crate::api_error::ApiError;
use crate::clock::Now;
use crate::form::{Form, Response};
use crate::http::RequestHead;
use crate::metrics::{Metrics, RequestKind};
use crate::options::Query;
use crate::resource::ApiVersion;

/// The data by which a request is counted in the metrics, and the form of an error response to the request.
#[derive(Clone, Copy, Debug)]
pub(super) struct PendingRequest {
    kind: RequestKind,
    version: ApiVersion,
    form_of_error: Form,
    /// Arrival of the request, in ms.
    taken_ms: u64,
}

impl PendingRequest {
    /// Records the data of a request that arrived at `taken_ms`.
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

    /// Returns the response for a request that failed with `error`.
    pub(super) fn refusal(&self, error: &ApiError) -> Response {
        Response::from_status(&error.status(), self.form_of_error)
    }

    /// Counts the request with its status in the metrics. Call this function at the start of the response.
    pub(super) fn count_begin(&self, metrics: &mut Metrics, status: u16) {
        metrics.count_begin(self.kind, self.version, status);
    }

    /// Counts the duration of the request in the metrics. Call this function at the end of the response.
    pub(super) fn count_end(&self, metrics: &mut Metrics, now: Now) {
        metrics.count_end(self.kind, self.version, now.ms.saturating_sub(self.taken_ms));
    }
}
