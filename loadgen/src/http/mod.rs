//! The client's side of HTTP/1.1 and HTTP/2 on one connection. The caller passes a tag with each request. The outcome
//! of the request is reported with the same tag.
//!
//! This module owns the requests in flight, and gives both versions of HTTP one interface. It uses neither sockets, TLS
//! nor the clock, and does not know the meaning of requests. It reports outcomes for every tag that [`Http::send`]
//! accepted, until the request ends. [`Http::take_in_flight`] returns the tags that remain.

mod http1;
mod http2;

use crate::connection::Connection;
use crate::error_kind::ErrorKind;
use crate::origin::{Origin, Version};
use http1::Http1;
use http2::Http2;

/// One request.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Request<'r> {
    /// Method of the request: `DELETE`, `GET`, `PUT` or `POST`.
    pub(crate) method: &'static str,
    /// Path and query.
    pub(crate) target: &'r str,
    /// The body, in the media type of the [`Origin`]; a GET or a DELETE has none.
    pub(crate) body: Option<&'r [u8]>,
}

/// The form in which the caller receives the bodies of responses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Bodies {
    /// The whole body, in one outcome, once the response is complete.
    Whole,
    /// The status without a body first, then each piece of the body as it arrives.
    Streamed,
}

/// An outcome of a request, or a part of it.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Told<'a> {
    /// A response, or a piece of it.
    Answer {
        /// Status of the response.
        status: u16,
        /// Next piece of the body.
        body: &'a [u8],
        /// Whether this is the last piece of the response.
        end: bool,
    },
    /// The server has not processed the request, because it accepts no more requests on the connection. The request may
    /// be sent again on another connection, whatever its method.
    Unserved,
    /// The server has refused to process the request (REFUSED_STREAM). The request may be sent again after a pause.
    Refused,
    /// The response, or its rest, will not arrive.
    Lost {
        /// Kind of error in the results.
        kind: ErrorKind,
        /// Description of the error.
        why: &'a str,
    },
}

/// The caller's decision whether it needs the rest of a response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// The caller needs the rest of the response, so reading continues.
    GoOn,
    /// The caller does not need the rest of the response. The request is cancelled, and its tag forgotten.
    Cancel,
}

/// The end of a connection, which can no longer be used.
#[derive(Debug)]
pub(crate) struct Broken {
    /// Kind of error in the results. `None` without an error: the server closed the connection as HTTP allows, or the
    /// caller cancelled a response in HTTP/1.1.
    pub(crate) kind: Option<ErrorKind>,
    /// Description of why the connection ended, for the user.
    pub(crate) why: String,
}

/// The requests in flight on one connection, in either version of HTTP.
#[derive(Debug)]
pub(crate) enum Http<T> {
    /// HTTP/1.1.
    Http1(Http1<T>),
    /// HTTP/2.
    Http2(Box<Http2<T>>),
}

impl Broken {
    /// Returns the error for a server that does not speak this version of HTTP.
    pub(crate) fn not_spoken(version: Version) -> Self {
        let (other, flag) = match version {
            Version::Http1 => (Version::Http2, "--http2"),
            Version::Http2 => (Version::Http1, "--http1"),
        };
        let why = format!("the server does not agree to {}; {flag} asks for {}", version.name(), other.name());
        Self { kind: Some(ErrorKind::Malformed), why }
    }

    /// Returns the error for input that violates HTTP.
    fn malformed(why: impl Into<String>) -> Self {
        Self { kind: Some(ErrorKind::Malformed), why: why.into() }
    }

    /// Returns the end of a connection that the server closed as HTTP allows.
    pub(crate) fn over() -> Self {
        Self { kind: None, why: "the server wants no more requests on this connection".to_owned() }
    }
}

impl<T: Copy> Http<T> {
    /// Begins a connection. The bytes that the client sends first are appended to `out`.
    pub(crate) fn new(version: Version, bodies: Bodies, out: &mut Vec<u8>) -> Self {
        match version {
            Version::Http1 => Self::Http1(Http1::new(bodies)),
            Version::Http2 => Self::Http2(Box::new(Http2::new(bodies, out))),
        }
    }

    /// Whether requests may be sent. HTTP/2 waits until the server's SETTINGS have shown that the server speaks HTTP/2.
    /// HTTP/1.1 does not wait: only a response could show the server's version, and a response needs a request.
    pub(crate) fn is_ready(&self) -> bool {
        match self {
            Self::Http1(_) => true,
            Self::Http2(http) => http.is_ready(),
        }
    }

    /// Returns the number of requests in flight.
    pub(crate) fn len(&self) -> usize {
        match self {
            Self::Http1(http) => http.in_flight.len(),
            Self::Http2(http) => http.in_flight,
        }
    }

    /// Whether the server accepts no more requests on this connection.
    pub(crate) fn is_going_away(&self) -> bool {
        match self {
            Self::Http1(http) => http.going_away,
            Self::Http2(http) => http.going_away,
        }
    }

    /// Whether the server may accept another request on this connection now.
    pub(crate) fn has_room(&self) -> bool {
        match self {
            Self::Http1(http) => !http.going_away,
            Self::Http2(http) => http.has_room(),
        }
    }

    /// Appends a request to `out`; false if the server accepts none now.
    pub(crate) fn send(&mut self, origin: &Origin, request: &Request<'_>, tag: T, out: &mut Vec<u8>) -> bool {
        match self {
            Self::Http1(http) => http.send(origin, request, tag, out),
            Self::Http2(http) => http.send(origin, request, tag, out),
        }
    }

    /// Appends to `out` the bytes that waited for a flow-control window and can be sent now.
    pub(crate) fn send_more(&mut self, out: &mut Vec<u8>) {
        match self {
            Self::Http1(_) => {}
            Self::Http2(http) => http.send_more(out),
        }
    }

    /// Parses the input of the connection, and passes every outcome in the input to `tell`.
    pub(crate) fn receive(
        &mut self,
        conn: &mut Connection,
        now: u64,
        tell: impl FnMut(T, Told<'_>) -> Verdict,
    ) -> Result<(), Broken> {
        match self {
            Self::Http1(http) => http.receive(conn, tell),
            Self::Http2(http) => http.receive(conn, now, tell),
        }
    }

    /// Returns why the connection ended, after the server has closed it.
    pub(crate) fn ended(&self) -> Broken {
        match self {
            Self::Http2(http) if !http.is_ready() => Broken::not_spoken(Version::Http2),
            _ if self.is_going_away() && self.len() == 0 => Broken::over(),
            _ => Broken { kind: Some(ErrorKind::Reset), why: "connection closed by the server".to_owned() },
        }
    }

    /// Returns the send time of the oldest request in flight. `asked_at` returns the send time of the request with the
    /// given tag.
    pub(crate) fn oldest(&self, asked_at: impl Fn(T) -> u64) -> Option<u64> {
        match self {
            Self::Http1(http) => http.tags().map(asked_at).min(),
            Self::Http2(http) => http.tags().map(asked_at).min(),
        }
    }

    /// Cancels the requests in flight whose tags satisfy `is_over`, and returns these tags. Returns `None` in
    /// HTTP/1.1, where a request can be cancelled only by closing the connection.
    pub(crate) fn cancel(&mut self, is_over: impl Fn(T) -> bool, out: &mut Vec<u8>) -> Option<Vec<T>> {
        match self {
            Self::Http1(_) => None,
            Self::Http2(http) => Some(http.cancel(is_over, out)),
        }
    }

    /// Removes all requests in flight and returns their tags. The connection must not be used afterwards.
    pub(crate) fn take_in_flight(&mut self) -> Vec<T> {
        match self {
            Self::Http1(http) => http.take_in_flight(),
            Self::Http2(http) => http.take_in_flight(),
        }
    }
}

/// Maximum size of a body that is received whole, in bytes. One Lease is far smaller.
const BODY_BYTES_MAX: usize = 16 * 1024 * 1024;
