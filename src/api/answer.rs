//! The answer to a write, decided with the write and given when the table has it.

use super::Reply;
use crate::api_error::ApiError;
use crate::clock::Now;
use crate::form::{Form, Response, State};
use crate::table::object::Object;

/// What a write is answered with once it is applied.
#[derive(Debug)]
pub(super) enum Answer {
    /// The state that the write led to.
    Applied {
        /// Status code.
        status: u16,
        /// How the state is written.
        form: Form,
    },
    /// A response that does not depend on the state that the write led to.
    Prepared(Box<Response>),
    /// An error: the client wants an answer that cannot be given. The write happens all the same.
    Refused(Box<ApiError>),
}

impl Answer {
    /// The state that the write led to, unless `refused` says why it cannot be shown.
    #[inline]
    pub(super) fn applied(status: u16, form: Form, refused: Result<(), ApiError>) -> Self {
        match refused {
            Ok(()) => Self::Applied { status, form },
            Err(error) => Self::Refused(Box::new(error)),
        }
    }

    /// A response that is known already, or why there is none.
    pub(super) fn prepared(response: Result<Response, ApiError>) -> Self {
        match response {
            Ok(response) => Self::Prepared(Box::new(response)),
            Err(error) => Self::Refused(Box::new(error)),
        }
    }

    /// The reply, once the write has led to `applied`.
    ///
    /// # Errors
    /// What is wrong with the answer that the client wants.
    #[inline]
    pub(super) fn into_reply(self, applied: &Object, now: Now) -> Result<Reply, ApiError> {
        match self {
            Self::Applied { status, form } => Reply::object(status, State::Stored(applied), form, now),
            Self::Prepared(response) => Ok(Reply::Response(*response)),
            Self::Refused(error) => Err(*error),
        }
    }
}
