//! The budget of a connection in a turn of the event loop.

use crate::limits::REQUESTS_PER_TURN;

/// The budget of one connection for one turn of the event loop. All connections together also have a [time
/// budget](super::Pace).
#[derive(Debug)]
pub struct Budget {
    /// Number of requests that the connection may still serve.
    pub requests: usize,
    /// Bytes of output at which no further request is served.
    pub output_bytes_max: usize,
    /// Whether the socket may have bytes that are not in the input yet.
    pub has_more_input: bool,
}

impl Budget {
    /// Returns the budget of a connection for a turn, with `output_bytes_max` bytes for the responses.
    #[must_use]
    pub fn for_turn(output_bytes_max: usize) -> Self {
        Self { requests: REQUESTS_PER_TURN, output_bytes_max, has_more_input: false }
    }

    /// Whether the connection may serve another request in this turn. `output` contains the bytes that wait to be sent.
    #[must_use]
    pub fn lasts(&self, output: &[u8]) -> bool {
        self.requests > 0 && output.len() < self.output_bytes_max
    }
}
