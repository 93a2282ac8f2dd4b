//! The response to a write. The server decides this response together with the write, and sends the response once the
//! write is applied.

use super::Reply;
use crate::api_error::ApiError;
use crate::clock::Now;
use crate::form::{Form, LeaseState, Response};
use crate::table::object::Object;

/// The response to an applied write.
#[derive(Debug)]
pub(super) enum Answer {
    /// The Lease after the write.
    Applied {
        /// HTTP status code of the response.
        status: u16,
        /// Form of the response body, which shows the Lease after the write.
        form: Form,
    },
    /// A complete response, such as the `Status` of a deletion. The response does not show the Lease after the write.
    Prepared(Box<Response>),
    /// An error about the requested form of the response. kube-apiserver finds this error only after the write. So this
    /// server applies the write too, and then sends the error.
    Refused(Box<ApiError>),
}

impl Answer {
    /// Creates a response that shows the Lease after the write. If `refused` is an error, creates the response to that
    /// error instead.
    #[inline]
    pub(super) fn applied(status: u16, form: Form, refused: Result<(), ApiError>) -> Self {
        match refused {
            Ok(()) => Self::Applied { status, form },
            Err(error) => Self::Refused(Box::new(error)),
        }
    }

    /// Creates an answer from a complete response, or from the error in `response`.
    pub(super) fn prepared(response: Result<Response, ApiError>) -> Self {
        match response {
            Ok(response) => Self::Prepared(Box::new(response)),
            Err(error) => Self::Refused(Box::new(error)),
        }
    }

    /// Returns the reply to a write. `applied` is the Lease after the write.
    ///
    /// # Errors
    /// The error in [`Answer::Refused`], or an error about the form of the response body.
    #[inline]
    pub(super) fn into_reply(self, applied: &Object, now: Now) -> Result<Reply, ApiError> {
        match self {
            Self::Applied { status, form } => Reply::object(status, LeaseState::Stored(applied), form, now),
            Self::Prepared(response) => Ok(Reply::Response(*response)),
            Self::Refused(error) => Err(*error),
        }
    }
}
