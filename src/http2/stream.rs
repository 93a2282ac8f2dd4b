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
//! Idle and closed streams are not kept. An id above the highest seen is idle. Any other id that is not in the store is
//! closed. No stream is ever reserved, since neither side pushes.

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
    /// Octets still to come of a body whose length the peer announced.
    pub(super) body_left: Option<u64>,
    /// Whether the message's head was received; informational heads do not count.
    pub(super) head_received: bool,
    /// Whether the message's head was sent; informational heads do not count.
    pub(super) head_sent: bool,
    /// Whether the request was a HEAD: the response has no body, whatever its `content-length` says.
    pub(super) is_bodiless: bool,
    /// Whether data waits for a window. While both windows are open, the stream is in the ready queue.
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

    /// Counts `octets` of body against the announced length; `end` marks the end of the body. Returns whether they
    /// agree.
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
