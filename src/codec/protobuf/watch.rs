//! Watch events in protobuf. A length of four bytes, big-endian, precedes each `WatchEvent`. The object of the event is
//! a body with its envelope (apimachinery `util/framer`).

use super::sink::{LONG, Sink};

/// Appends a watch event. `encode` appends the object of the event, as a protobuf body.
pub fn push_watch_event(out: &mut Vec<u8>, event_type: &str, encode: impl FnOnce(&mut Vec<u8>)) {
    let start = out.len();
    out.put(&[0; FRAME_HEAD_BYTES]);
    out.put_bytes(1, event_type.as_bytes());
    out.put_message(2, LONG, |out| out.put_message(1, LONG, encode));
    let size = u32::try_from(out.len() - start - FRAME_HEAD_BYTES).unwrap_or(u32::MAX);
    if let Some(head) = out.get_mut(start..start + FRAME_HEAD_BYTES) {
        head.copy_from_slice(&size.to_be_bytes());
    }
}

const FRAME_HEAD_BYTES: usize = 4;
