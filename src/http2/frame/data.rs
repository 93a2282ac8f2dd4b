//! DATA (RFC 9113 §6.1).

use super::{END_STREAM, FrameHead, FrameType, StreamId, encode_head_into, expect_stream, strip_padding};
use crate::http2::error::ConnectionError;

/// A DATA frame. Flow control counts its whole payload, including padding.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::http2) struct Data<'p> {
    pub(in crate::http2) data: &'p [u8],
    pub(in crate::http2) end_stream: bool,
}

impl<'p> Data<'p> {
    #[inline]
    pub(in crate::http2) fn parse(head: &FrameHead, payload: &'p [u8]) -> Result<Self, ConnectionError> {
        expect_stream(head)?;
        Ok(Self { data: strip_padding(head, payload)?, end_stream: head.has(END_STREAM) })
    }
}

/// Appends the head of a DATA frame. The caller must append `length` octets of data.
#[inline]
pub(in crate::http2) fn encode_data_head_into(stream_id: StreamId, length: usize, end_stream: bool, out: &mut Vec<u8>) {
    encode_head_into(length, FrameType::Data, if end_stream { END_STREAM } else { 0 }, stream_id, out);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::http2::frame::split_first;

    #[test]
    fn a_data_frame_round_trips() {
        let mut out = Vec::new();
        encode_data_head_into(StreamId::FIRST, 2, true, &mut out);
        out.extend_from_slice(b"ab");
        let (head, payload) = split_first(&out).unwrap().unwrap();
        assert_eq!(Data::parse(&head, payload), Ok(Data { data: b"ab", end_stream: true }));
    }

    #[test]
    fn a_data_frame_on_stream_0_is_refused() {
        let head = FrameHead { length: 0, frame_type: FrameType::Data, flags: 0, stream_id: StreamId::CONNECTION };
        assert_eq!(Data::parse(&head, &[]), Err(ConnectionError::StreamId));
    }
}
