//! The state of the Leases (the newest, or that at a `resourceVersion`) that a list request asks for, and the error if
//! the server no longer has that state.

use super::token::ContinueToken;
use crate::api_error::ApiError;

/// The state of the Leases that a list requests.
#[derive(Debug, Default)]
pub(super) enum AskedState {
    /// The newest state of the Leases.
    #[default]
    Newest,
    /// The state at the `resourceVersion` in the request.
    Version,
    /// The state that the `continue` token of a page names: the state of the previous page, or the newest state.
    Page(ContinueToken),
}

impl AskedState {
    /// Returns the error for a list whose state the server can no longer restore from the event log (the last changes
    /// of the table). The log may have dropped the changes before the list began, or between two steps of the list.
    #[cold]
    pub(super) fn forgotten(&self) -> ApiError {
        match self {
            // A list of the newest state does not depend on the event log: while the list runs, the table retains the
            // states that later changes replace. So this case does not occur.
            Self::Newest => ApiError::overtaken(),
            Self::Version => {
                let message = "The resourceVersion for the provided list is too old.".into();
                ApiError::Expired { message, next: None }
            }
            Self::Page(token) => too_late(token),
        }
    }
}

/// Returns kube-apiserver's error for a page of a list whose `resourceVersion` has expired. The error contains a new
/// `continue` token. That token continues the list at the same key, in the newest state (apiserver `storage/errors.go`,
/// `inconsistentContinueError`).
#[cold]
pub(super) fn too_late(token: &ContinueToken) -> ApiError {
    let message = "The provided continue parameter is too old to display a consistent list result. You can start a new list without the continue parameter, or use the continue token in this response to retrieve the remainder of the results. Continuing with the provided token results in an inconsistent list - objects that were created, modified, or deleted between the time the first chunk was returned and now may show up in the list.";
    ApiError::Expired { message: message.into(), next: Some(token.without_version().encode()) }
}
