//! The peer's errors, and the error code sent for each (RFC 9113 §5.4 and §7).
//!
//! A [`ConnectionError`] ends the connection with GOAWAY, a [`StreamError`] ends one stream with RST_STREAM. The
//! variants name the peer's error. Only the `code` methods map errors to error codes.

use crate::hpack::DecodeError;
use std::fmt;
use thiserror::Error;

/// An error code (RFC 9113 §7). An unknown code has no meaning, but its value must be preserved.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct ErrorCode(pub u32);

impl ErrorCode {
    /// No error: a graceful shutdown.
    pub const NO_ERROR: Self = Self(0x0);
    /// An error without a more specific code.
    pub const PROTOCOL_ERROR: Self = Self(0x1);
    /// An internal error of the implementation.
    pub const INTERNAL_ERROR: Self = Self(0x2);
    /// A flow-control window was exceeded or overflowed.
    pub const FLOW_CONTROL_ERROR: Self = Self(0x3);
    /// SETTINGS were not acknowledged in time.
    pub const SETTINGS_TIMEOUT: Self = Self(0x4);
    /// A frame on a stream that is half-closed or closed.
    pub const STREAM_CLOSED: Self = Self(0x5);
    /// A frame of an invalid size.
    pub const FRAME_SIZE_ERROR: Self = Self(0x6);
    /// The stream was not processed and can be retried.
    pub const REFUSED_STREAM: Self = Self(0x7);
    /// The stream is no longer wanted.
    pub const CANCEL: Self = Self(0x8);
    /// The field compression states of the two sides differ.
    pub const COMPRESSION_ERROR: Self = Self(0x9);
    /// The connection for a CONNECT request was reset.
    pub const CONNECT_ERROR: Self = Self(0xa);
    /// The peer's behaviour might be an attack.
    pub const ENHANCE_YOUR_CALM: Self = Self(0xb);
    /// The transport is not secure enough.
    pub const INADEQUATE_SECURITY: Self = Self(0xc);
    /// HTTP/1.1 is required.
    pub const HTTP_1_1_REQUIRED: Self = Self(0xd);

    /// Returns the code's name in the IANA registry.
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

/// The side that ended a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Initiator {
    /// Our side, because of a peer's error.
    Local,
    /// The peer.
    Remote,
}

/// Why the connection ends: an error of the peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ConnectionError {
    /// The field block cannot be decoded.
    Compression(DecodeError),
    /// More CONTINUATION frames than any field block needs.
    ContinuationFlood,
    /// A CONTINUATION frame without an incomplete field block.
    ContinuationUnexpected,
    /// More frames of one kind than the [`Allowance`](super::limits::Allowance) of this kind.
    Flood(Flood),
    /// A field block above its size limit.
    FieldBlockSize,
    /// A frame other than CONTINUATION within a field block.
    FieldBlockInterrupted,
    /// The first frame was not SETTINGS.
    FirstFrameNotSettings,
    /// A frame whose size is wrong for its type or above our maximum.
    FrameSize,
    /// More DATA than the connection's window allowed.
    FlowControl,
    /// Padding longer than the frame.
    Padding,
    /// An invalid connection preface.
    Preface,
    /// A PRIORITY frame that makes an idle stream depend on itself.
    PrioritySelfDependency,
    /// PUSH_PROMISE. A client may not send it, and our SETTINGS forbid servers to send it.
    PushPromise,
    /// A SETTINGS frame with a value that is not allowed.
    SettingValue,
    /// An initial window size above 2^31 - 1.
    SettingWindow,
    /// HEADERS on a closed stream.
    StreamClosed,
    /// A frame for a stream on stream 0, or a frame for the connection on another stream.
    StreamId,
    /// A frame on an idle stream, or on a stream that the peer may not open.
    StreamIdle,
    /// WINDOW_UPDATE of zero for the connection.
    WindowIncrement,
    /// The connection's window grew above 2^31 - 1, or SETTINGS made a stream's window grow above this size.
    WindowOverflow,
}

impl ConnectionError {
    /// Returns the code for GOAWAY.
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

/// Kinds of frames or resets whose number an [`Allowance`](super::limits::Allowance) limits. The constants of the same
/// names in [`limits`](super::limits) explain the kinds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Flood {
    /// PING and SETTINGS, which we must acknowledge, and GOAWAY.
    Answers,
    /// DATA without data.
    EmptyFrames,
    /// Frames without effect.
    IgnoredFrames,
    /// Streams that are opened and reset.
    Resets,
    /// WINDOW_UPDATE. This kind must stay the last one: `FloodGuard` derives the number of its buckets from it.
    WindowUpdates,
}

/// Why a stream ends early: an error of the peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StreamError {
    /// A stream above the maximum number of open streams ([`Config::streams_max`](super::Config::streams_max)).
    Concurrency,
    /// Trailers or a response head above the field list limit.
    FieldListSize,
    /// More DATA than the stream's window allowed.
    FlowControl,
    /// A malformed message (RFC 9113 §8.1.1).
    Malformed(Malformed),
    /// A PRIORITY frame whose payload is not five octets long.
    PrioritySize,
    /// A stream that depends on itself.
    SelfDependency,
    /// A frame after END_STREAM.
    StreamClosed,
    /// WINDOW_UPDATE of zero.
    WindowIncrement,
    /// The stream's window grew above 2^31 - 1.
    WindowOverflow,
}

impl StreamError {
    /// Returns the code for RST_STREAM.
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

/// Why a message is malformed (RFC 9113 §8.1.1 to §8.3).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Malformed {
    /// `:authority` with user information, or different from `host`.
    Authority,
    /// A field that belongs to an HTTP/1.1 connection (RFC 9113 §8.2.2).
    ConnectionField,
    /// A `content-length` that is no number, has two values, or differs from the body's length.
    ContentLength,
    /// Octets not allowed in a name or a value (RFC 9113 §8.2.1).
    FieldOctets,
    /// A method that is no token.
    Method,
    /// An invalid path.
    Path,
    /// A pseudo-header field that is missing, empty, repeated, unknown or not allowed here.
    Pseudo,
    /// A pseudo-header field after a regular one.
    PseudoOrder,
    /// A status that is not three digits.
    Status,
    /// A second field block that does not end the stream.
    TrailersWithoutEnd,
}

impl Malformed {
    /// Whether the message is invalid in every HTTP version. Then the peer may be a proxy that only forwarded an error
    /// of its client. A 400 response tells that client about the error (RFC 9113 §8.1.1). After a reset, proxies
    /// written in Go would retry on new connections for ever.
    pub(super) fn is_of_the_client(self) -> bool {
        matches!(self, Self::Authority | Self::Method | Self::Path)
    }
}

/// Error of a call for a closed stream: the stream was reset, or both sides have ended it. The caller can drop unsent
/// data.
#[derive(Clone, Copy, Debug, Error, PartialEq, Eq)]
#[error("the stream is closed")]
pub struct StreamGone;

/// The errors of handling one frame.
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
