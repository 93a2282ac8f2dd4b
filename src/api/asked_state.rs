//! What a list was asked to show, and the answer where that is gone.

use super::token::ContinueToken;
use crate::api_error::ApiError;

/// Which state of the table a list was asked to show, and so what to say when that is gone.
#[derive(Debug, Default)]
pub(super) enum AskedState {
    /// How things stand.
    #[default]
    Newest,
    /// That of one version.
    Version,
    /// That of the page before.
    Page(ContinueToken),
}

impl AskedState {
    /// The log has forgotten it: before a list of it was asked for, or before that had taken in what came after it.
    #[cold]
    pub(super) fn forgotten(&self) -> ApiError {
        match self {
            // What is kept of it does not come out of the log.
            Self::Newest => ApiError::overtaken(),
            Self::Version => {
                let message = "The resourceVersion for the provided list is too old.".into();
                ApiError::Expired { message, next: None }
            }
            Self::Page(token) => too_late(token),
        }
    }
}

/// kube-apiserver's words for a page that comes too late, and a token with which the rest can be had all the same
/// (apiserver `storage/errors.go`, `inconsistentContinueError`).
#[cold]
pub(super) fn too_late(token: &ContinueToken) -> ApiError {
    let message = "The provided continue parameter is too old to display a consistent list result. You can start a new list without the continue parameter, or use the continue token in this response to retrieve the remainder of the results. Continuing with the provided token results in an inconsistent list - objects that were created, modified, or deleted between the time the first chunk was returned and now may show up in the list.";
    ApiError::Expired { message: message.into(), next: Some(token.without_version().encode()) }
}
