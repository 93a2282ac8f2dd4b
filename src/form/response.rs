//! Responses of the API: their bodies, and responses to errors.

use super::Form;
use crate::api_error::{ApiError, Status};
use crate::codec::Format;
use crate::http;
use crate::table::object::Object;
use bytes::Bytes;

/// A response of the API.
pub type Response = http::Response<Body>;

impl Response {
    /// Returns the response to an error: its `Status` in JSON.
    #[cold]
    #[must_use]
    pub fn from_error(error: &ApiError) -> Self {
        Self::from_status(&error.status(), Form::default())
    }

    /// Returns the response to an error: `status` in the form `form`.
    #[cold]
    #[must_use]
    pub fn from_status(status: &Status, form: Form) -> Self {
        let retry_after_seconds = status.details.as_ref().map_or(0, |details| details.retry_after_seconds);
        Self { retry_after_seconds, ..Self::new(status.code, form.content_type(), form.status_body(status)) }
    }
}

/// The body of a response.
#[derive(Clone, Debug)]
pub enum Body {
    /// Bytes that are complete.
    Bytes(Bytes),
    /// A stored Lease, in JSON or protobuf. The server encodes the Lease only when it sends the response.
    Lease(Object, Format),
}

impl Body {
    /// Returns the bytes of the body. Writes the bytes of a Lease to `scratch` first.
    #[must_use]
    pub fn bytes<'a>(&'a self, scratch: &'a mut Vec<u8>) -> &'a [u8] {
        match self {
            Self::Bytes(bytes) => bytes,
            Self::Lease(object, format) => {
                scratch.clear();
                object.push_body(scratch, *format);
                scratch
            }
        }
    }

    /// Returns the bytes of the body from the offset `start` on, as an owned value. `bytes` must be the result of
    /// [`Body::bytes`].
    #[must_use]
    pub fn rest(&self, bytes: &[u8], start: usize) -> Bytes {
        match self {
            Self::Bytes(bytes) => bytes.slice(start.min(bytes.len())..),
            Self::Lease(..) => Bytes::copy_from_slice(bytes.get(start..).unwrap_or_default()),
        }
    }

    /// Returns the bytes of the body as an owned value.
    #[must_use]
    pub fn into_bytes(self) -> Bytes {
        match self {
            Self::Bytes(bytes) => bytes,
            Self::Lease(object, format) => {
                let mut bytes = Vec::new();
                object.push_body(&mut bytes, format);
                bytes.into()
            }
        }
    }

    /// Returns an upper bound of the body's length in bytes, without writing the body.
    #[must_use]
    pub fn len_max(&self) -> usize {
        match self {
            Self::Bytes(bytes) => bytes.len(),
            Self::Lease(object, format) => object.body_bytes_max(*format),
        }
    }
}

impl Default for Body {
    fn default() -> Self {
        Self::Bytes(Bytes::new())
    }
}

impl From<Bytes> for Body {
    fn from(bytes: Bytes) -> Self {
        Self::Bytes(bytes)
    }
}

impl From<&'static str> for Body {
    fn from(text: &'static str) -> Self {
        Self::Bytes(Bytes::from_static(text.as_bytes()))
    }
}

impl From<String> for Body {
    fn from(text: String) -> Self {
        text.into_bytes().into()
    }
}

impl From<Vec<u8>> for Body {
    fn from(bytes: Vec<u8>) -> Self {
        Self::Bytes(bytes.into())
    }
}
