//! The client's side of HTTP over one connection, in either version: requests go out with a tag of the caller's; their
//! outcomes come in with the same tag.
//!
//! This module owns the requests in flight, and gives both versions one interface. It knows neither the socket, TLS,
//! the clock nor the meaning of requests. Every tag that [`Http::send`] accepted is reported until its end, or returned
//! by [`Http::take_in_flight`].

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
    /// `DELETE`, `GET`, `PUT`, `POST`.
    pub(crate) method: &'static str,
    /// Path and query.
    pub(crate) target: &'r str,
    /// The body, in the origin's media type; a GET has none.
    pub(crate) body: Option<&'r [u8]>,
}

/// How the caller wants the bodies of answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Bodies {
    /// Once for each answer, when it is complete.
    Whole,
    /// In pieces: first the head without a body, then each piece as it comes.
    Streamed,
}

/// The outcome of a request.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Told<'a> {
    /// There is an answer.
    Answer {
        /// Its status.
        status: u16,
        /// The next piece of its body.
        body: &'a [u8],
        /// There is no more of it.
        end: bool,
    },
    /// The server has not looked at it, since the connection takes no more. It may be sent again whatever it asks for.
    Unserved,
    /// The server has not looked at it though it might have. It may be sent again after a while.
    Refused,
    /// There is no answer, or no more of it.
    Lost {
        /// As the results count it.
        kind: ErrorKind,
        /// In words.
        why: &'a str,
    },
}

/// Whether the rest of an answer is wanted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// It is.
    GoOn,
    /// It is not: the tag is forgotten.
    Cancel,
}

/// Why a connection is of no more use.
#[derive(Debug)]
pub(crate) struct Broken {
    /// As the results count it; `None` if nothing went wrong.
    pub(crate) kind: Option<ErrorKind>,
    /// In words.
    pub(crate) why: String,
}

/// What is in flight on one connection.
#[derive(Debug)]
pub(crate) enum Http<T> {
    /// HTTP/1.1.
    Http1(Http1<T>),
    /// HTTP/2.
    Http2(Box<Http2<T>>),
}

impl Broken {
    /// The server does not speak this version.
    pub(crate) fn not_spoken(version: Version) -> Self {
        let (other, flag) = match version {
            Version::Http1 => (Version::Http2, "--http2"),
            Version::Http2 => (Version::Http1, "--http1"),
        };
        let why = format!("the server does not agree to {}; {flag} asks for {}", version.name(), other.name());
        Self { kind: Some(ErrorKind::Malformed), why }
    }

    /// The peer has sent what HTTP does not allow.
    fn malformed(why: impl Into<String>) -> Self {
        Self { kind: Some(ErrorKind::Malformed), why: why.into() }
    }

    /// The connection has served its time, in good order.
    pub(crate) fn over() -> Self {
        Self { kind: None, why: "the server wants no more requests on this connection".to_owned() }
    }
}

impl<T: Copy> Http<T> {
    /// The beginning of a connection; what has to be said first is appended to `out`.
    pub(crate) fn new(version: Version, bodies: Bodies, now: u64, out: &mut Vec<u8>) -> Self {
        match version {
            Version::Http1 => Self::Http1(Http1::new(bodies)),
            Version::Http2 => Self::Http2(Box::new(Http2::new(bodies, now, out))),
        }
    }

    /// Whether the server has shown that it speaks this version, as far as it does unasked.
    pub(crate) fn is_ready(&self) -> bool {
        match self {
            Self::Http1(_) => true,
            Self::Http2(http) => http.is_ready(),
        }
    }

    /// Requests that are in flight.
    pub(crate) fn len(&self) -> usize {
        match self {
            Self::Http1(http) => http.len(),
            Self::Http2(http) => http.len(),
        }
    }

    /// Whether the server wants no more requests on this connection.
    pub(crate) fn is_going_away(&self) -> bool {
        match self {
            Self::Http1(http) => http.is_going_away(),
            Self::Http2(http) => http.is_going_away(),
        }
    }

    /// Whether the server is not known to refuse one more request.
    pub(crate) fn has_room(&self) -> bool {
        match self {
            Self::Http1(http) => !http.is_going_away(),
            Self::Http2(http) => http.has_room(),
        }
    }

    /// Appends a request to `out`; false if the server does not take it now.
    pub(crate) fn send(&mut self, origin: &Origin, request: &Request<'_>, tag: T, out: &mut Vec<u8>) -> bool {
        match self {
            Self::Http1(http) => http.send(origin, request, tag, out),
            Self::Http2(http) => http.send(origin, request, tag, out),
        }
    }

    /// Appends what was held back and can be sent now.
    pub(crate) fn send_more(&mut self, out: &mut Vec<u8>) {
        match self {
            Self::Http1(_) => {}
            Self::Http2(http) => http.send_more(out),
        }
    }

    /// Takes the input of the connection, and tells of everything in it.
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

    /// The input has ended.
    pub(crate) fn ended(&self) -> Broken {
        match self {
            Self::Http2(http) if !http.is_ready() => Broken::not_spoken(Version::Http2),
            _ if self.is_going_away() && self.len() == 0 => Broken::over(),
            _ => Broken { kind: Some(ErrorKind::Reset), why: "connection closed by the server".to_owned() },
        }
    }

    /// The earliest of the times at which `asked_at` says that the requests in flight were sent.
    pub(crate) fn oldest(&self, asked_at: impl Fn(T) -> u64) -> Option<u64> {
        match self {
            Self::Http1(http) => http.tags().map(asked_at).min(),
            Self::Http2(http) => http.tags().map(asked_at).min(),
        }
    }

    /// Gives up those requests in flight that `is_over` names, and gives their tags; `None` if this version cannot do
    /// that but by closing the connection.
    pub(crate) fn cancel(&mut self, is_over: impl Fn(T) -> bool, out: &mut Vec<u8>) -> Option<Vec<T>> {
        match self {
            Self::Http1(_) => None,
            Self::Http2(http) => Some(http.cancel(is_over, out)),
        }
    }

    /// Gives up everything in flight. The connection is of no more use.
    pub(crate) fn take_in_flight(&mut self) -> Vec<T> {
        match self {
            Self::Http1(http) => http.take_in_flight(),
            Self::Http2(http) => http.take_in_flight(),
        }
    }
}

/// The body of an answer that is wanted whole: one Lease is far smaller.
const BODY_BYTES_MAX: usize = 16 * 1024 * 1024;
