//! Frames (RFC 9113 §4 and §6): parsing payloads and appending frames, one file for each type. This module does not
//! depend on the state of a stream or connection.

pub(super) mod continuation;
pub(super) mod data;
pub(super) mod goaway;
pub(super) mod headers;
pub(super) mod ping;
pub(super) mod priority;
pub(super) mod rst_stream;
pub(super) mod settings;
pub(super) mod window_update;

use super::error::ConnectionError;
use super::limits::FRAME_SIZE_MAX;
use super::stream_id::StreamId;

/// Size of a frame head, in octets.
pub(super) const HEAD_BYTES: usize = 9;

/// Flag END_STREAM of DATA and HEADERS.
pub(super) const END_STREAM: u8 = 0x1;
/// Flag ACK of SETTINGS and PING.
pub(super) const ACK: u8 = 0x1;
/// Flag END_HEADERS of HEADERS and CONTINUATION.
pub(super) const END_HEADERS: u8 = 0x4;
/// Flag PADDED of DATA and HEADERS.
pub(super) const PADDED: u8 = 0x8;
/// Flag PRIORITY of HEADERS.
pub(super) const PRIORITY: u8 = 0x20;

/// The head of a frame.
///
/// ```text
///  +-----------------------------------------------+
///  |                 Length (24)                   |
///  +---------------+---------------+---------------+
///  |   Type (8)    |   Flags (8)   |
///  +-+-------------+---------------+-------------------------------+
///  |R|                 Stream Identifier (31)                      |
///  +=+=============================================================+
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct FrameHead {
    /// Length of the payload, in octets.
    pub(super) length: usize,
    pub(super) frame_type: FrameType,
    /// Flags; undefined flags are ignored.
    pub(super) flags: u8,
    pub(super) stream_id: StreamId,
}

/// The type of a frame (RFC 9113 §6): its value is the octet on the wire.
#[repr(u8)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum FrameType {
    Data = 0,
    Headers = 1,
    Priority = 2,
    RstStream = 3,
    Settings = 4,
    PushPromise = 5,
    Ping = 6,
    Goaway = 7,
    WindowUpdate = 8,
    Continuation = 9,
    /// A type that is not defined here. Such frames are ignored (RFC 9113 §5.5).
    Unknown = 0xff,
}

impl FrameHead {
    #[inline]
    pub(super) fn parse(octets: &[u8; HEAD_BYTES]) -> Self {
        let &[len2, len1, len0, frame_type, flags, id3, id2, id1, id0] = octets;
        Self {
            length: usize::from(len2) << 16 | usize::from(len1) << 8 | usize::from(len0),
            frame_type: FrameType::from_wire(frame_type),
            flags,
            stream_id: StreamId::from_wire([id3, id2, id1, id0]),
        }
    }

    #[inline]
    pub(super) fn has(&self, flag: u8) -> bool {
        self.flags & flag != 0
    }
}

impl FrameType {
    #[inline]
    fn from_wire(octet: u8) -> Self {
        match octet {
            0 => Self::Data,
            1 => Self::Headers,
            2 => Self::Priority,
            3 => Self::RstStream,
            4 => Self::Settings,
            5 => Self::PushPromise,
            6 => Self::Ping,
            7 => Self::Goaway,
            8 => Self::WindowUpdate,
            9 => Self::Continuation,
            _ => Self::Unknown,
        }
    }
}

/// Returns the head and the payload of the first frame of `input`; `None` if the frame is incomplete. A frame that is
/// too large is refused as soon as its head is complete.
#[inline]
pub(super) fn split_first(input: &[u8]) -> Result<Option<(FrameHead, &[u8])>, ConnectionError> {
    let Some((octets, rest)) = input.split_first_chunk::<HEAD_BYTES>() else { return Ok(None) };
    let head = FrameHead::parse(octets);
    if head.length > FRAME_SIZE_MAX {
        return Err(ConnectionError::FrameSize);
    }
    Ok(rest.get(..head.length).map(|payload| (head, payload)))
}

/// Appends the head of a frame.
#[inline]
pub(super) fn encode_head_into(
    length: usize,
    frame_type: FrameType,
    flags: u8,
    stream_id: StreamId,
    out: &mut Vec<u8>,
) {
    debug_assert!(length <= FRAME_SIZE_MAX, "every peer accepts a frame of this size");
    let [id3, id2, id1, id0] = stream_id.to_wire();
    let [len2, len1, len0] = length_to_wire(length);
    out.extend_from_slice(&[len2, len1, len0, frame_type as u8, flags, id3, id2, id1, id0]);
}

/// Encodes a payload length for the head of a frame.
#[inline]
pub(super) fn length_to_wire(length: usize) -> [u8; 3] {
    let [low, middle, high, ..] = length.to_le_bytes();
    [high, middle, low]
}

/// Returns the payload without its padding (RFC 9113 §6.1).
#[inline]
fn strip_padding<'p>(head: &FrameHead, payload: &'p [u8]) -> Result<&'p [u8], ConnectionError> {
    if !head.has(PADDED) {
        return Ok(payload);
    }
    let (&padding, rest) = payload.split_first().ok_or(ConnectionError::FrameSize)?;
    let len = rest.len().checked_sub(usize::from(padding)).ok_or(ConnectionError::Padding)?;
    Ok(rest.get(..len).unwrap_or_default())
}

/// Checks that the payload has exactly `N` octets.
#[inline]
fn exactly<const N: usize>(payload: &[u8]) -> Result<&[u8; N], ConnectionError> {
    payload.try_into().map_err(|_| ConnectionError::FrameSize)
}

/// Checks that the frame is on stream 0, the connection as a whole.
#[inline]
fn expect_connection(head: &FrameHead) -> Result<(), ConnectionError> {
    if head.stream_id == StreamId::CONNECTION { Ok(()) } else { Err(ConnectionError::StreamId) }
}

/// Checks that the frame is not on stream 0.
#[inline]
fn expect_stream(head: &FrameHead) -> Result<(), ConnectionError> {
    if head.stream_id == StreamId::CONNECTION { Err(ConnectionError::StreamId) } else { Ok(()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_frame_head_round_trips() {
        for octet in 0..=9 {
            let frame_type = FrameType::from_wire(octet);
            assert_eq!(frame_type as u8, octet);
            let mut out = Vec::new();
            encode_head_into(0x3210, frame_type, 0x25, StreamId::MAX, &mut out);
            out.resize(HEAD_BYTES + 0x3210, 0);
            let (head, payload) = split_first(&out).unwrap().unwrap();
            assert_eq!(head, FrameHead { length: 0x3210, frame_type, flags: 0x25, stream_id: StreamId::MAX });
            assert_eq!(payload.len(), 0x3210);
        }
        assert_eq!(FrameType::from_wire(10), FrameType::Unknown);
    }

    #[test]
    fn a_cut_frame_is_incomplete_and_a_too_large_one_is_refused() {
        let frame = [0, 0, 2, 6, 0, 0, 0, 0, 0, 1, 2];
        for end in 0..frame.len() {
            assert_eq!(split_first(&frame[..end]), Ok(None));
        }
        assert!(split_first(&frame).unwrap().is_some());
        assert_eq!(split_first(&[0, 0x40, 1, 0, 0, 0, 0, 0, 1]), Err(ConnectionError::FrameSize));
        assert_eq!(split_first(&[0, 0x40, 0, 0, 0, 0, 0, 0, 1]), Ok(None));
    }

    #[test]
    fn padding_longer_than_the_frame_is_refused() {
        let head = FrameHead { length: 0, frame_type: FrameType::Data, flags: PADDED, stream_id: StreamId::FIRST };
        assert_eq!(strip_padding(&head, &[]), Err(ConnectionError::FrameSize));
        assert_eq!(strip_padding(&head, &[1]), Err(ConnectionError::Padding));
        assert_eq!(strip_padding(&head, &[1, 7]), Ok(&[][..]));
        assert_eq!(strip_padding(&head, &[1, 7, 0]), Ok(&[7][..]));
    }
}
