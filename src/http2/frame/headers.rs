//! HEADERS (RFC 9113 §6.2).

use super::continuation::encode_continuation_into;
use super::{
    END_HEADERS, END_STREAM, FrameHead, FrameType, HEAD_BYTES, PRIORITY, StreamId, encode_head_into, expect_stream,
    length_to_wire, priority, strip_padding,
};
use crate::http2::error::ConnectionError;
use crate::http2::limits::FRAME_SIZE_MAX;

/// A HEADERS frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::http2) struct Headers<'p> {
    /// The field block, or its first part if `end_headers` is not set.
    pub(in crate::http2) fragment: &'p [u8],
    pub(in crate::http2) end_headers: bool,
    pub(in crate::http2) end_stream: bool,
    /// Whether the frame's priority makes the stream depend on itself. The priority is otherwise ignored.
    pub(in crate::http2) self_dependent: bool,
}

impl<'p> Headers<'p> {
    #[inline]
    pub(in crate::http2) fn parse(head: &FrameHead, payload: &'p [u8]) -> Result<Self, ConnectionError> {
        expect_stream(head)?;
        let mut fragment = strip_padding(head, payload)?;
        let mut self_dependent = false;
        if head.has(PRIORITY) {
            let (priority, rest) = fragment.split_first_chunk().ok_or(ConnectionError::FrameSize)?;
            self_dependent = priority::dependency(priority) == head.stream_id;
            fragment = rest;
        }
        let (end_headers, end_stream) = (head.has(END_HEADERS), head.has(END_STREAM));
        Ok(Self { fragment, end_headers, end_stream, self_dependent })
    }
}

/// Begins a HEADERS frame at the end of `out`. The caller then appends the field block. Returns the frame's position
/// in `out`, for [`finish_headers`].
#[inline]
pub(in crate::http2) fn begin_headers_into(stream_id: StreamId, end_stream: bool, out: &mut Vec<u8>) -> usize {
    let start = out.len();
    let flags = if end_stream { END_HEADERS | END_STREAM } else { END_HEADERS };
    encode_head_into(0, FrameType::Headers, flags, stream_id, out);
    start
}

/// Completes the HEADERS frame that begins at position `start` of `out`. Called after the field block is complete.
#[inline]
pub(in crate::http2) fn finish_headers(stream_id: StreamId, start: usize, out: &mut Vec<u8>) {
    let length = out.len() - start - HEAD_BYTES;
    if length > FRAME_SIZE_MAX {
        split_headers(stream_id, start, out);
    } else if let Some(octets) = out.get_mut(start..start + 3) {
        octets.copy_from_slice(&length_to_wire(length));
    }
}

/// Moves the part of the field block that exceeds one frame into CONTINUATION frames.
#[cold]
fn split_headers(stream_id: StreamId, start: usize, out: &mut Vec<u8>) {
    let rest = out.split_off(start + HEAD_BYTES + FRAME_SIZE_MAX);
    if let Some([len2, len1, len0, _, flags, ..]) = out.get_mut(start..) {
        [*len2, *len1, *len0] = length_to_wire(FRAME_SIZE_MAX);
        *flags &= !END_HEADERS;
    }
    let mut fragments = rest.chunks(FRAME_SIZE_MAX).peekable();
    while let Some(fragment) = fragments.next() {
        encode_continuation_into(stream_id, fragment, fragments.peek().is_none(), out);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::http2::frame::{PADDED, split_first};

    #[test]
    fn padding_and_priority_are_taken_off() {
        let flags = PADDED | PRIORITY | END_HEADERS;
        let head = FrameHead { length: 0, frame_type: FrameType::Headers, flags, stream_id: StreamId::FIRST };
        let parsed = Headers::parse(&head, &[2, 0x80, 0, 0, 3, 16, 0x82, 0, 0]).unwrap();
        assert_eq!(parsed.fragment, [0x82]);
        assert!(parsed.end_headers && !parsed.end_stream && !parsed.self_dependent);
        assert!(Headers::parse(&head, &[0, 0x80, 0, 0, 1, 16]).unwrap().self_dependent);
        assert_eq!(Headers::parse(&head, &[7, 0x80, 0, 0, 3, 16, 0]), Err(ConnectionError::Padding));
        assert_eq!(Headers::parse(&head, &[2, 0x80, 0, 0, 3, 16, 0]), Err(ConnectionError::FrameSize));
        assert_eq!(Headers::parse(&head, &[0, 0x80, 0, 0, 3]), Err(ConnectionError::FrameSize));
    }

    #[test]
    fn a_large_block_is_split() {
        for length in [0, 1, FRAME_SIZE_MAX, FRAME_SIZE_MAX + 1, 3 * FRAME_SIZE_MAX, 3 * FRAME_SIZE_MAX + 5] {
            let block: Vec<u8> = b"0123456".iter().copied().cycle().take(length).collect();
            let mut out = b"before".to_vec();
            let start = begin_headers_into(StreamId::FIRST, true, &mut out);
            out.extend_from_slice(&block);
            finish_headers(StreamId::FIRST, start, &mut out);
            let mut rest = &out[6..];
            let mut joined = Vec::new();
            let mut ended = false;
            while let Some((head, payload)) = split_first(rest).unwrap() {
                assert!(!ended);
                let first = joined.is_empty() && head.frame_type == FrameType::Headers;
                assert!(first || head.frame_type == FrameType::Continuation);
                assert_eq!(first, head.has(END_STREAM));
                joined.extend_from_slice(payload);
                ended = head.has(END_HEADERS);
                rest = &rest[HEAD_BYTES + payload.len()..];
            }
            assert!(ended && rest.is_empty());
            assert_eq!(joined, block);
        }
    }
}
