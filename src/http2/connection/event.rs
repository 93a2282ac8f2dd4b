//! What a connection tells its caller.

use crate::http2::error::{ErrorCode, Initiator};
use crate::http2::head::{RequestHead, ResponseHead};
use crate::http2::stream_id::StreamId;
use crate::http2::streams::StreamKey;

/// What [`Connection::recv`](super::Connection::recv) has done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Received<'i> {
    /// Octets of the input that are done with. Whole frames, or the whole preface.
    pub consumed: usize,
    /// What has happened; `None`: nothing more until there is more input.
    pub event: Option<Event<'i>>,
}

/// What the peer has done. Where a stream has ended on both sides its key is stale already.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event<'i> {
    /// Server: a valid request. Its fields are in the [`FieldBuf`](crate::hpack::FieldBuf) until the next call of
    /// `recv`.
    Request {
        /// The new stream.
        stream: StreamKey,
        /// Where in the fields the request line is.
        head: RequestHead,
        /// There is no body.
        end_stream: bool,
    },
    /// Client: a valid response head, which may be an informational one. Its fields are in the
    /// [`FieldBuf`](crate::hpack::FieldBuf).
    Response {
        /// The stream of the request.
        stream: StreamKey,
        /// Status and length.
        head: ResponseHead,
        /// There is no body.
        end_stream: bool,
    },
    /// A part of a body; empty only at its end. The windows are refilled whatever the caller does with it. Of a request
    /// that is answered already there is none, and its window is left as it is.
    Data {
        /// The stream.
        stream: StreamKey,
        /// The octets, in the input.
        data: &'i [u8],
        /// The body ends here.
        end_stream: bool,
    },
    /// The end of a body, with fields, which are in the [`FieldBuf`](crate::hpack::FieldBuf).
    Trailers {
        /// The stream.
        stream: StreamKey,
    },
    /// The stream is over before its time. Nothing more can be sent on it.
    Reset {
        /// The stream; stale.
        stream: StreamKey,
        /// Why.
        code: ErrorCode,
        /// The peer reset it, or we did for something that the peer did.
        by: Initiator,
    },
    /// The peer wants no more streams on this connection. Those of ours above `last_stream_id` are not served.
    Goaway {
        /// The last stream that may be served.
        last_stream_id: StreamId,
        /// Why.
        code: ErrorCode,
    },
}
