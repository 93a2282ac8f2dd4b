//! CONTINUATION (RFC 9113 §6.10): the payload is only a part of a field block.

use super::{END_HEADERS, FrameType, StreamId, encode_head_into};

/// Appends a CONTINUATION frame. `is_last` is whether the field block ends with this frame.
pub(in crate::http2) fn encode_continuation_into(
    stream_id: StreamId,
    fragment: &[u8],
    is_last: bool,
    out: &mut Vec<u8>,
) {
    let flags = if is_last { END_HEADERS } else { 0 };
    encode_head_into(fragment.len(), FrameType::Continuation, flags, stream_id, out);
    out.extend_from_slice(fragment);
}
