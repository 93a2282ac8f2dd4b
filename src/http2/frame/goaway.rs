//! GOAWAY (RFC 9113 §6.8).

use super::{FrameHead, FrameType, StreamId, encode_head_into, expect_connection};
use crate::http2::error::{ConnectionError, ErrorCode};

/// A GOAWAY frame; its debug data is dropped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::http2) struct Goaway {
    pub(in crate::http2) last_stream_id: StreamId,
    pub(in crate::http2) code: ErrorCode,
}

impl Goaway {
    pub(in crate::http2) fn parse(head: &FrameHead, payload: &[u8]) -> Result<Self, ConnectionError> {
        expect_connection(head)?;
        let (last_stream_id, rest) = payload.split_first_chunk().ok_or(ConnectionError::FrameSize)?;
        let (code, _debug_data) = rest.split_first_chunk().ok_or(ConnectionError::FrameSize)?;
        Ok(Self { last_stream_id: StreamId::from_wire(*last_stream_id), code: ErrorCode(u32::from_be_bytes(*code)) })
    }

    pub(in crate::http2) fn encode_into(self, out: &mut Vec<u8>) {
        encode_head_into(8, FrameType::Goaway, 0, StreamId::CONNECTION, out);
        out.extend_from_slice(&self.last_stream_id.to_wire());
        out.extend_from_slice(&self.code.0.to_be_bytes());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::http2::frame::split_first;

    #[test]
    fn a_goaway_frame_round_trips_and_may_have_debug_data() {
        let goaway = Goaway { last_stream_id: StreamId::MAX, code: ErrorCode::ENHANCE_YOUR_CALM };
        let mut out = Vec::new();
        goaway.encode_into(&mut out);
        let (head, payload) = split_first(&out).unwrap().unwrap();
        assert_eq!(Goaway::parse(&head, payload), Ok(goaway));
        assert_eq!(Goaway::parse(&head, &[payload, b"why"].concat()), Ok(goaway));
        assert_eq!(Goaway::parse(&head, &payload[1..]), Err(ConnectionError::FrameSize));
    }
}
