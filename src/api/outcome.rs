//! What is kept of a request that is not answered at once.

use super::negotiate::form_of_error;
use crate::api_error::ApiError;
use crate::form::Form;
use crate::http::{RequestHead, Response};
use crate::lease::ApiVersion;
use crate::metrics::{Metrics, RequestKind};
use crate::options::Query;

/// What a request counts as, and how an error is written.
#[derive(Clone, Copy, Debug)]
pub(super) struct Outcome {
    kind: RequestKind,
    version: ApiVersion,
    form_of_error: Form,
}

impl Outcome {
    pub(super) fn of(request: &RequestHead<'_>, kind: RequestKind, version: ApiVersion) -> Self {
        Self { kind, version, form_of_error: form_of_error(request, &Query::new(request.query)) }
    }

    /// What it is answered with if it fails.
    pub(super) fn refusal(&self, error: &ApiError) -> Response {
        Response::from_status(&error.status(), self.form_of_error)
    }

    /// Counts it, with the status of its answer.
    pub(super) fn count(&self, metrics: &mut Metrics, status: u16) {
        metrics.count_request(self.kind, self.version, status);
    }
}
