//! PRIORITY (RFC 9113 §6.3): deprecated. The server checks such a frame for errors, and otherwise ignores it.

use super::{FrameHead, StreamId, expect_stream};
use crate::http2::error::{FrameError, StreamError};

/// Checks a PRIORITY frame.
pub(in crate::http2) fn check(head: &FrameHead, payload: &[u8]) -> Result<(), FrameError> {
    expect_stream(head)?;
    let Ok(priority) = payload.try_into() else { return Err(StreamError::PrioritySize.into()) };
    if dependency(priority) == head.stream_id {
        return Err(StreamError::SelfDependency.into());
    }
    Ok(())
}

/// Returns the stream dependency of a priority. A priority has five octets. The first four octets contain a flag in the
/// first bit and the stream dependency in the other bits. The fifth octet is the weight.
#[inline]
pub(super) fn dependency(priority: &[u8; 5]) -> StreamId {
    let &[id3, id2, id1, id0, _weight] = priority;
    StreamId::from_wire([id3, id2, id1, id0])
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::http2::error::ConnectionError;
    use crate::http2::frame::FrameType;

    #[test]
    fn size_and_dependency_are_checked() {
        let mut head = FrameHead { length: 5, frame_type: FrameType::Priority, flags: 0, stream_id: StreamId::FIRST };
        assert_eq!(check(&head, &[0, 0, 0, 0, 1]), Ok(()));
        assert_eq!(check(&head, &[0x80, 0, 0, 1, 1]), Err(StreamError::SelfDependency.into()));
        assert_eq!(check(&head, &[0, 0, 0, 0]), Err(StreamError::PrioritySize.into()));
        assert_eq!(check(&head, &[0; 6]), Err(StreamError::PrioritySize.into()));
        head.stream_id = StreamId::CONNECTION;
        assert_eq!(check(&head, &[0, 0, 0, 3, 1]), Err(ConnectionError::StreamId.into()));
    }
}
