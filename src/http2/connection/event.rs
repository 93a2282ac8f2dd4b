//! Events that a connection reports to its caller.

use crate::http2::error::{ErrorCode, Initiator};
use crate::http2::head::{RequestHead, ResponseHead};
use crate::http2::stream_id::StreamId;
use crate::http2::streams::StreamKey;

/// Result of [`Connection::recv`](super::Connection::recv).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Received<'i> {
    /// Number of octets of the input that were consumed: whole frames, or the whole preface.
    pub consumed: usize,
    /// The event; `None` if more input is needed.
    pub event: Option<Event<'i>>,
}

/// An action of the peer. The key of a stream is valid until both sides have ended the stream, and no later stream gets
/// the same key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event<'i> {
    /// Server: a valid request. Its fields stay in the [`FieldBuf`](crate::hpack::FieldBuf) until the next call of
    /// `recv`.
    Request {
        /// The new stream.
        stream: StreamKey,
        /// Positions of the pseudo-header fields in the field list.
        head: RequestHead,
        /// Whether the request has no body.
        end_stream: bool,
    },
    /// Client: a valid response head, possibly informational. Its fields are in the
    /// [`FieldBuf`](crate::hpack::FieldBuf).
    Response {
        /// The stream of the request.
        stream: StreamKey,
        /// Status and content length.
        head: ResponseHead,
        /// Whether the response has no body.
        end_stream: bool,
    },
    /// A part of a body; empty only at the end of the body. The windows are refilled even if the caller drops the part.
    /// Once a server has sent the head of the response, no `Data` event reports the request's body any more, and the
    /// stream's window is not refilled.
    Data {
        /// The stream.
        stream: StreamKey,
        /// The octets of the part, borrowed from the input.
        data: &'i [u8],
        /// Whether this is the last part of the body.
        end_stream: bool,
    },
    /// Trailers at the end of a body, in the [`FieldBuf`](crate::hpack::FieldBuf).
    Trailers {
        /// The stream.
        stream: StreamKey,
    },
    /// The stream ended early. Nothing more can be sent on it.
    Reset {
        /// The stream. No stream has this key any more.
        stream: StreamKey,
        /// The error code.
        code: ErrorCode,
        /// Who reset the stream: the peer, or this side because of an error of the peer.
        by: Initiator,
    },
    /// The peer accepts no more streams on this connection. The peer does not serve our streams above
    /// `last_stream_id`.
    Goaway {
        /// The last stream that may be served.
        last_stream_id: StreamId,
        /// The error code.
        code: ErrorCode,
    },
}
