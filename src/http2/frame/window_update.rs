//! WINDOW_UPDATE (RFC 9113 §6.9).

use super::{FrameHead, FrameType, StreamId, encode_head_into, exactly};
use crate::http2::error::{ConnectionError, FrameError, StreamError};

/// Returns the increment of a WINDOW_UPDATE frame for a stream or for the connection.
#[inline]
pub(in crate::http2) fn parse(head: &FrameHead, payload: &[u8]) -> Result<u32, FrameError> {
    match u32::from_be_bytes(*exactly(payload)?) & (u32::MAX >> 1) {
        0 if head.stream_id == StreamId::CONNECTION => Err(ConnectionError::WindowIncrement.into()),
        0 => Err(StreamError::WindowIncrement.into()),
        increment => Ok(increment),
    }
}

/// Appends a WINDOW_UPDATE frame.
pub(in crate::http2) fn encode_into(stream_id: StreamId, increment: u32, out: &mut Vec<u8>) {
    encode_head_into(4, FrameType::WindowUpdate, 0, stream_id, out);
    out.extend_from_slice(&increment.to_be_bytes());
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::http2::frame::split_first;

    #[test]
    fn a_window_update_round_trips_and_zero_is_refused() {
        let mut out = Vec::new();
        encode_into(StreamId::FIRST, 7, &mut out);
        let (mut head, payload) = split_first(&out).unwrap().unwrap();
        assert_eq!(parse(&head, payload), Ok(7));
        assert_eq!(parse(&head, &[0x80, 0, 0, 7]), Ok(7), "the reserved bit");
        assert_eq!(parse(&head, &[0x80, 0, 0, 0]), Err(StreamError::WindowIncrement.into()));
        assert_eq!(parse(&head, &[0, 0, 7]), Err(ConnectionError::FrameSize.into()));
        head.stream_id = StreamId::CONNECTION;
        assert_eq!(parse(&head, &[0; 4]), Err(ConnectionError::WindowIncrement.into()));
    }
}
