//! Events that a connection reports to its caller.

use crate::http2::error::{ErrorCode, Initiator};
use crate::http2::head::{RequestHead, ResponseHead};
use crate::http2::stream_id::StreamId;
use crate::http2::streams::StreamKey;

/// Result of [`Connection::recv`](super::Connection::recv).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Received<'i> {
    /// Octets of the input that were consumed: whole frames, or the whole preface.
    pub consumed: usize,
    /// The event; `None` if more input is needed.
    pub event: Option<Event<'i>>,
}

/// An action of the peer. If the stream has ended on both sides, its key is already stale.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event<'i> {
    /// Server: a valid request. Its fields stay in the [`FieldBuf`](crate::hpack::FieldBuf) until the next call of
    /// `recv`.
    Request {
        /// The new stream.
        stream: StreamKey,
        /// Position of the request line in the fields.
        head: RequestHead,
        /// The request has no body.
        end_stream: bool,
    },
    /// Client: a valid response head, possibly informational. Its fields are in the
    /// [`FieldBuf`](crate::hpack::FieldBuf).
    Response {
        /// The stream of the request.
        stream: StreamKey,
        /// Status and length.
        head: ResponseHead,
        /// The response has no body.
        end_stream: bool,
    },
    /// A part of a body; empty only at its end. The windows are refilled even if the caller drops the part. A request
    /// that already has a response reports no data, and its stream's window is not refilled.
    Data {
        /// The stream.
        stream: StreamKey,
        /// The octets, borrowed from the input.
        data: &'i [u8],
        /// The body ends here.
        end_stream: bool,
    },
    /// Trailers at the end of a body, in the [`FieldBuf`](crate::hpack::FieldBuf).
    Trailers {
        /// The stream.
        stream: StreamKey,
    },
    /// The stream ended early. Nothing more can be sent on it.
    Reset {
        /// The stream; its key is stale.
        stream: StreamKey,
        /// The error code.
        code: ErrorCode,
        /// Whether the peer reset it, or we did because of the peer's error.
        by: Initiator,
    },
    /// The peer accepts no more streams on this connection. Our streams above `last_stream_id` are not served.
    Goaway {
        /// The last stream that may be served.
        last_stream_id: StreamId,
        /// The error code.
        code: ErrorCode,
    },
}
