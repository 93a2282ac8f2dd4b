//! RST_STREAM (RFC 9113 §6.4).

use super::{FrameHead, FrameType, StreamId, encode_head_into, exactly, expect_stream};
use crate::http2::error::{ConnectionError, ErrorCode};

/// Returns the error code of an RST_STREAM frame.
pub(in crate::http2) fn parse(head: &FrameHead, payload: &[u8]) -> Result<ErrorCode, ConnectionError> {
    expect_stream(head)?;
    Ok(ErrorCode(u32::from_be_bytes(*exactly(payload)?)))
}

/// Appends an RST_STREAM frame.
pub(in crate::http2) fn encode_into(stream_id: StreamId, code: ErrorCode, out: &mut Vec<u8>) {
    encode_head_into(4, FrameType::RstStream, 0, stream_id, out);
    out.extend_from_slice(&code.0.to_be_bytes());
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::http2::frame::split_first;

    #[test]
    fn an_rst_stream_frame_round_trips_and_has_four_octets() {
        let mut out = Vec::new();
        encode_into(StreamId::FIRST, ErrorCode::CANCEL, &mut out);
        let (head, payload) = split_first(&out).unwrap().unwrap();
        assert_eq!(parse(&head, payload), Ok(ErrorCode::CANCEL));
        assert_eq!(parse(&head, &[0; 3]), Err(ConnectionError::FrameSize));
        assert_eq!(parse(&head, &[0; 5]), Err(ConnectionError::FrameSize));
    }
}
