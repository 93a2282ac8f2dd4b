//! HTTP/2 (RFC 9113), server and client, as a state machine over slices: no sockets, no clock, no allocation in steady
//! state.
//!
//! [`Connection`] is the whole of it: bytes in, [`Event`]s out, frames appended to a buffer of the caller. The parts:
//!
//! | module | its one job |
//! |---|---|
//! | `frame` | one frame, bytes ↔ values |
//! | `head` | what makes a message malformed |
//! | `stream`, `streams` | one stream's state; all of them, by id and in the order of their turn to write |
//! | `flow_control` | windows |
//! | `flood`, [`limits`] | what a peer may not do too often, or too large |
//! | `connection` | frames → events, messages → frames |
//! | [`error`] | what the peer did wrong → the code that it is told |

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

/// What a client sends before its first frame (RFC 9113 §3.4).
pub const PREFACE: &[u8; 24] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
