//! HTTP/2 (RFC 9113), server and client, as a state machine over slices: no sockets, no clock, and usually no memory
//! allocation.
//!
//! [`Connection`] is the entry point. It reads received bytes, returns [`Event`]s, and appends frames to the caller's
//! buffer. The modules:
//!
//! | module | its one job |
//! |---|---|
//! | `frame` | one frame, bytes ↔ values |
//! | `head` | rules of malformed messages |
//! | `stream`, `streams` | one stream's state; all streams, by id and in write order |
//! | `flow_control` | windows |
//! | `flood`, [`limits`] | limits on the peer's rate and sizes |
//! | `connection` | frames → events, messages → frames |
//! | [`error`] | the peer's errors → the error code sent |

mod client;
mod connection;
pub mod error;
mod flood;
mod flow_control;
mod frame;
mod head;
pub mod limits;
mod reset_memory;
mod settings;
mod stream;
mod stream_id;
mod streams;
#[cfg(test)]
mod tests;

pub use client::{OpenError, RequestLine};
pub use connection::{Connection, Event, Received, SendField};
pub use error::{ConnectionError, ErrorCode, Initiator, StreamGone};
pub use head::{RequestHead, ResponseHead};
pub use settings::{Config, UpgradeSettings};
pub use stream_id::StreamId;
pub use streams::StreamKey;

/// The connection preface, which a client sends before its first frame (RFC 9113 §3.4).
pub const PREFACE: &[u8; 24] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
