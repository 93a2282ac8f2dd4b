//! What a peer can do wrong, and the code that it is told (RFC 9113 §5.4 and §7).
//!
//! A [`ConnectionError`] ends the connection with GOAWAY, a [`StreamError`] ends one stream with RST_STREAM. Variants
//! name what the peer did; `code` of each is the one place that turns it into what the peer sees.

use crate::hpack::DecodeError;
use std::fmt;

/// An error code (RFC 9113 §7). Unknown codes have no meaning but must be carried.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct ErrorCode(pub u32);

impl ErrorCode {
    /// No error: a graceful end.
    pub const NO_ERROR: Self = Self(0x0);
    /// Something that has no code of its own.
    pub const PROTOCOL_ERROR: Self = Self(0x1);
    /// A fault of the implementation itself.
    pub const INTERNAL_ERROR: Self = Self(0x2);
    /// A flow-control window was exceeded or overflowed.
    pub const FLOW_CONTROL_ERROR: Self = Self(0x3);
    /// SETTINGS were not acknowledged in time.
    pub const SETTINGS_TIMEOUT: Self = Self(0x4);
    /// A frame on a stream that is half-closed or closed.
    pub const STREAM_CLOSED: Self = Self(0x5);
    /// A frame of a wrong size.
    pub const FRAME_SIZE_ERROR: Self = Self(0x6);
    /// The stream was not processed at all and may be tried again.
    pub const REFUSED_STREAM: Self = Self(0x7);
    /// The stream is no longer wanted.
    pub const CANCEL: Self = Self(0x8);
    /// The field compression is out of step.
    pub const COMPRESSION_ERROR: Self = Self(0x9);
    /// The connection of a CONNECT was reset.
    pub const CONNECT_ERROR: Self = Self(0xa);
    /// The peer behaves in a way that might be an attack.
    pub const ENHANCE_YOUR_CALM: Self = Self(0xb);
    /// The transport is not secure enough.
    pub const INADEQUATE_SECURITY: Self = Self(0xc);
    /// HTTP/1.1 has to be used.
    pub const HTTP_1_1_REQUIRED: Self = Self(0xd);

    /// The name in the registry.
    #[must_use]
    pub fn name(self) -> Option<&'static str> {
        Some(match self {
            Self::NO_ERROR => "NO_ERROR",
            Self::PROTOCOL_ERROR => "PROTOCOL_ERROR",
            Self::INTERNAL_ERROR => "INTERNAL_ERROR",
            Self::FLOW_CONTROL_ERROR => "FLOW_CONTROL_ERROR",
            Self::SETTINGS_TIMEOUT => "SETTINGS_TIMEOUT",
            Self::STREAM_CLOSED => "STREAM_CLOSED",
            Self::FRAME_SIZE_ERROR => "FRAME_SIZE_ERROR",
            Self::REFUSED_STREAM => "REFUSED_STREAM",
            Self::CANCEL => "CANCEL",
            Self::COMPRESSION_ERROR => "COMPRESSION_ERROR",
            Self::CONNECT_ERROR => "CONNECT_ERROR",
            Self::ENHANCE_YOUR_CALM => "ENHANCE_YOUR_CALM",
            Self::INADEQUATE_SECURITY => "INADEQUATE_SECURITY",
            Self::HTTP_1_1_REQUIRED => "HTTP_1_1_REQUIRED",
            _ => return None,
        })
    }
}

impl fmt::Display for ErrorCode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.name() {
            Some(name) => f.write_str(name),
            None => write!(f, "{:#x}", self.0),
        }
    }
}

impl fmt::Debug for ErrorCode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// Who ended a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Initiator {
    /// We did, for something that the peer did.
    Local,
    /// The peer did.
    Remote,
}

/// Why the connection ends. The peer did it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ConnectionError {
    /// The field block cannot be decoded.
    Compression(DecodeError),
    /// More CONTINUATION frames than any field block needs.
    ContinuationFlood,
    /// A CONTINUATION frame that continues nothing.
    ContinuationUnexpected,
    /// More of a kind of frame than its allowance.
    Flood(Flood),
    /// A field block above its limit.
    FieldBlockSize,
    /// Something else in the middle of a field block.
    FieldBlockInterrupted,
    /// The first frame was not SETTINGS.
    FirstFrameNotSettings,
    /// A frame of another size than its type has, or larger than we take.
    FrameSize,
    /// More DATA than the connection's window allowed.
    FlowControl,
    /// Padding that is longer than the frame.
    Padding,
    /// Not the client's connection preface.
    Preface,
    /// A PRIORITY frame that makes an idle stream depend on itself.
    PrioritySelfDependency,
    /// PUSH_PROMISE, which a client may not send and a server may not send to us.
    PushPromise,
    /// A value that this setting cannot have.
    SettingValue,
    /// An initial window size above 2^31 - 1.
    SettingWindow,
    /// HEADERS on a stream that is over.
    StreamClosed,
    /// A frame on the connection that belongs to a stream, or the other way round.
    StreamId,
    /// A frame on a stream that nobody opened, or that the peer may not open.
    StreamIdle,
    /// WINDOW_UPDATE of zero for the connection.
    WindowIncrement,
    /// The connection's window, or a stream's by SETTINGS, grew above 2^31 - 1.
    WindowOverflow,
}

impl ConnectionError {
    /// The code for GOAWAY.
    #[must_use]
    pub fn code(self) -> ErrorCode {
        match self {
            Self::Compression(DecodeError::ListSize)
            | Self::ContinuationFlood
            | Self::Flood(_)
            | Self::FieldBlockSize => ErrorCode::ENHANCE_YOUR_CALM,
            Self::Compression(_) => ErrorCode::COMPRESSION_ERROR,
            Self::FrameSize => ErrorCode::FRAME_SIZE_ERROR,
            Self::FlowControl | Self::SettingWindow | Self::WindowOverflow => ErrorCode::FLOW_CONTROL_ERROR,
            Self::StreamClosed => ErrorCode::STREAM_CLOSED,
            Self::ContinuationUnexpected
            | Self::FieldBlockInterrupted
            | Self::FirstFrameNotSettings
            | Self::Padding
            | Self::Preface
            | Self::PrioritySelfDependency
            | Self::PushPromise
            | Self::SettingValue
            | Self::StreamId
            | Self::StreamIdle
            | Self::WindowIncrement => ErrorCode::PROTOCOL_ERROR,
        }
    }
}

impl fmt::Display for ConnectionError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Compression(error) => write!(f, "{}: {error}", self.code()),
            _ => write!(f, "{}: {self:?}", self.code()),
        }
    }
}

impl std::error::Error for ConnectionError {}

/// What is limited by an allowance; see the constants of the same names in [`limits`](super::limits).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Flood {
    /// PING and SETTINGS.
    Answers,
    /// DATA without data.
    EmptyFrames,
    /// Frames that mean nothing.
    IgnoredFrames,
    /// Streams that are opened and reset.
    Resets,
    /// WINDOW_UPDATE.
    WindowUpdates,
}

/// Why a stream ends before its time. The peer did it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StreamError {
    /// A stream after [`STREAMS_MAX`](super::limits::STREAMS_MAX) others.
    Concurrency,
    /// Trailers, or a response head, above the limit for field lists.
    FieldListSize,
    /// More DATA than the stream's window allowed.
    FlowControl,
    /// A message that is malformed (RFC 9113 §8.1.1).
    Malformed(Malformed),
    /// A PRIORITY frame of another size than five.
    PrioritySize,
    /// A stream that depends on itself.
    SelfDependency,
    /// A frame after END_STREAM.
    StreamClosed,
    /// WINDOW_UPDATE of zero.
    WindowIncrement,
    /// The window grew above 2^31 - 1.
    WindowOverflow,
}

impl StreamError {
    /// The code for RST_STREAM.
    #[must_use]
    pub fn code(self) -> ErrorCode {
        match self {
            Self::Concurrency => ErrorCode::REFUSED_STREAM,
            Self::FieldListSize => ErrorCode::ENHANCE_YOUR_CALM,
            Self::FlowControl | Self::WindowOverflow => ErrorCode::FLOW_CONTROL_ERROR,
            Self::Malformed(_) | Self::SelfDependency | Self::WindowIncrement => ErrorCode::PROTOCOL_ERROR,
            Self::PrioritySize => ErrorCode::FRAME_SIZE_ERROR,
            Self::StreamClosed => ErrorCode::STREAM_CLOSED,
        }
    }
}

/// How a message can be malformed (RFC 9113 §8.1.1 to §8.3).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Malformed {
    /// `:authority` that names a user, or another host than `host` does.
    Authority,
    /// A field that belongs to one connection of HTTP/1.1 (RFC 9113 §8.2.2).
    ConnectionField,
    /// A `content-length` that is no number, is two numbers, or is not the length of the body.
    ContentLength,
    /// Characters that a name or a value may not have (RFC 9113 §8.2.1).
    FieldOctets,
    /// A method that is no token.
    Method,
    /// A path that is none.
    Path,
    /// A pseudo-header field that is missing or empty, stands twice, is unknown or does not belong here.
    Pseudo,
    /// A pseudo-header field after a regular one.
    PseudoOrder,
    /// A status that is not three digits.
    Status,
    /// A second field block that does not end the stream.
    TrailersWithoutEnd,
}

impl Malformed {
    /// Whether this is wrong in any version of HTTP, so that a proxy may have passed on what its client wrote. The
    /// answer 400 tells that client (RFC 9113 §8.1.1); after a reset Go's proxies try again on new connections, for
    /// ever.
    pub(super) fn is_of_the_client(self) -> bool {
        matches!(self, Self::Authority | Self::Method | Self::Path)
    }
}

/// The stream that a key names is over: it was reset, or both sides have ended it. What was to be sent can be dropped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StreamGone;

impl fmt::Display for StreamGone {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the stream is over")
    }
}

impl std::error::Error for StreamGone {}

/// What the handling of one frame can end with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FrameError {
    Connection(ConnectionError),
    Stream(StreamError),
}

impl From<ConnectionError> for FrameError {
    fn from(error: ConnectionError) -> Self {
        Self::Connection(error)
    }
}

impl From<StreamError> for FrameError {
    fn from(error: StreamError) -> Self {
        Self::Stream(error)
    }
}
