//! One stream (RFC 9113 §5.1).
//!
//! ```text
//!          HEADERS              we end              peer ends
//!  (idle) ────────► Open ────────────► HalfClosedLocal ────────► (closed)
//!    │               │                                              ▲  ▲
//!    │               │ peer ends                 we end             │  │
//!    │               └───────────────► HalfClosedRemote ────────────┘  │
//!    │ HEADERS with END_STREAM            ▲                            │
//!    └────────────────────────────────────┘      RST_STREAM from any ──┘
//! ```
//! The store keeps neither idle nor closed streams. A stream whose id is above the highest seen id is idle. Any other
//! stream that is not in the store is closed. No stream is ever in a reserved state, since neither side pushes.

use super::flow_control::{RecvWindow, SendWindow};
use super::stream_id::StreamId;

/// The state of a stream that is neither idle nor closed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum StreamState {
    /// Both sides may send.
    Open,
    /// We have ended our side.
    HalfClosedLocal,
    /// The peer has ended its side.
    HalfClosedRemote,
}

/// A stream that is open on at least one side.
#[derive(Debug)]
pub(super) struct Stream {
    pub(super) id: StreamId,
    pub(super) state: StreamState,
    pub(super) send_window: SendWindow,
    pub(super) recv_window: RecvWindow,
    /// Number of octets still to come of the body; `None` if the peer has not announced the body's length.
    pub(super) body_left: Option<u64>,
    /// Whether the head of the peer's message was received. Informational heads do not count.
    pub(super) head_received: bool,
    /// Whether the head of our message was sent. Informational heads do not count.
    pub(super) head_sent: bool,
    /// Whether the method was HEAD, so that the response has no body, whatever its `content-length` says.
    pub(super) is_bodiless: bool,
    /// Whether data waits for a flow-control window. Such a stream is in the write queue while its own window is open,
    /// since it then waits only for the connection's window.
    pub(super) wants_write: bool,
}

impl Stream {
    pub(super) fn new(id: StreamId, state: StreamState, send_window: SendWindow, recv_window: RecvWindow) -> Self {
        Self {
            id,
            state,
            send_window,
            recv_window,
            body_left: None,
            head_received: false,
            head_sent: false,
            is_bodiless: false,
            wants_write: false,
        }
    }

    /// Counts `octets` of the body. `end` is whether the body ends after these octets. Returns whether the body so far
    /// agrees with the announced length.
    #[inline]
    pub(super) fn take_body(&mut self, octets: usize, end: bool) -> bool {
        let Some(left) = self.body_left else { return true };
        match left.checked_sub(u64::try_from(octets).unwrap_or(u64::MAX)) {
            Some(left) => {
                self.body_left = Some(left);
                !end || left == 0
            }
            None => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_body_must_have_the_length_that_was_announced() {
        let mut stream = Stream::new(StreamId::FIRST, StreamState::Open, SendWindow::new(0), RecvWindow::new(0, 0));
        assert!(stream.take_body(5, true), "nothing announced");
        stream.body_left = Some(5);
        assert!(stream.take_body(3, false));
        assert!(!stream.take_body(1, true));
        assert!(stream.take_body(1, true));
        assert!(!stream.take_body(1, false));
    }
}
