//! The state that a list requests, and the error if that state is no longer available.

use super::token::ContinueToken;
use crate::api_error::ApiError;

/// The state that a list requests.
#[derive(Debug, Default)]
pub(super) enum AskedState {
    /// The newest state.
    #[default]
    Newest,
    /// The state at one resourceVersion.
    Version,
    /// The state that the previous page showed.
    Page(ContinueToken),
}

impl AskedState {
    /// Returns the error for a state that the event log no longer has, at the start of a list or during it.
    #[cold]
    pub(super) fn forgotten(&self) -> ApiError {
        match self {
            // The retained states of this list do not come from the log.
            Self::Newest => ApiError::overtaken(),
            Self::Version => {
                let message = "The resourceVersion for the provided list is too old.".into();
                ApiError::Expired { message, next: None }
            }
            Self::Page(token) => too_late(token),
        }
    }
}

/// Returns kube-apiserver's error for a page whose version has expired. Its token continues the list at the same key
/// in the newest state (apiserver `storage/errors.go`, `inconsistentContinueError`).
#[cold]
pub(super) fn too_late(token: &ContinueToken) -> ApiError {
    let message = "The provided continue parameter is too old to display a consistent list result. You can start a new list without the continue parameter, or use the continue token in this response to retrieve the remainder of the results. Continuing with the provided token results in an inconsistent list - objects that were created, modified, or deleted between the time the first chunk was returned and now may show up in the list.";
    ApiError::Expired { message: message.into(), next: Some(token.without_version().encode()) }
}
