//! The kinds of error in the results, and excerpts for their messages.

use coordination_apiserver::http2::ErrorCode;
use std::borrow::Cow;

/// The kinds of errors in the results, of requests, watches and connections.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum ErrorKind {
    /// A response with an unexpected status.
    Status(u16),
    /// The connection ended before the response did.
    Reset,
    /// The server reset the stream with this HTTP/2 error code (RFC 9113 §7).
    Stream(u32),
    /// The server closed the connection with GOAWAY and this HTTP/2 error code.
    Goaway(u32),
    /// The server refused to process the request: repeatedly or, in a bench, once.
    Refused,
    /// No response within the timeout.
    Timeout,
    /// The response could not be parsed.
    Malformed,
    /// The run ended before the request could be sent, or before its response.
    Unanswered,
}

impl ErrorKind {
    /// Returns the name of this kind of error in the results.
    pub(crate) fn name(self) -> String {
        match self {
            Self::Status(status) => status.to_string(),
            Self::Reset => "reset".to_owned(),
            Self::Stream(code) => format!("RST_STREAM {}", ErrorCode(code)),
            Self::Goaway(code) => format!("GOAWAY {}", ErrorCode(code)),
            Self::Refused => "refused".to_owned(),
            Self::Timeout => "timeout".to_owned(),
            Self::Malformed => "malformed".to_owned(),
            Self::Unanswered => "unanswered".to_owned(),
        }
    }
}

/// Returns the start of a response's body or of an event, for an error message.
pub(crate) fn excerpt(body: &[u8]) -> Cow<'_, str> {
    String::from_utf8_lossy(body.get(..EXCERPT_BYTES_MAX).unwrap_or(body))
}

/// Maximum length of a response's body or of an event in an error message, in bytes.
pub(crate) const EXCERPT_BYTES_MAX: usize = 300;
