//! SETTINGS (RFC 9113 §6.5).

use super::{ACK, FrameHead, FrameType, StreamId, encode_head_into, expect_connection};
use crate::http2::error::ConnectionError;

/// Identifier and value of a setting.
pub(in crate::http2) type Setting = (u16, u32);

pub(in crate::http2) const HEADER_TABLE_SIZE: u16 = 0x1;
pub(in crate::http2) const ENABLE_PUSH: u16 = 0x2;
pub(in crate::http2) const MAX_CONCURRENT_STREAMS: u16 = 0x3;
pub(in crate::http2) const INITIAL_WINDOW_SIZE: u16 = 0x4;
pub(in crate::http2) const MAX_FRAME_SIZE: u16 = 0x5;
pub(in crate::http2) const MAX_HEADER_LIST_SIZE: u16 = 0x6;

/// A SETTINGS frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::http2) enum SettingsFrame<'p> {
    Ack,
    /// The settings, of six octets each; [`iter`] decodes them.
    Values(&'p [u8]),
}

impl<'p> SettingsFrame<'p> {
    pub(in crate::http2) fn parse(head: &FrameHead, payload: &'p [u8]) -> Result<Self, ConnectionError> {
        expect_connection(head)?;
        match head.has(ACK) {
            true if payload.is_empty() => Ok(Self::Ack),
            false if payload.len().is_multiple_of(SETTING_BYTES) => Ok(Self::Values(payload)),
            _ => Err(ConnectionError::FrameSize),
        }
    }
}

/// Iterates over the settings of a payload, in order. An incomplete setting at the end is dropped.
pub(in crate::http2) fn iter(payload: &[u8]) -> impl Iterator<Item = Setting> {
    let (settings, _) = payload.as_chunks::<SETTING_BYTES>();
    settings
        .iter()
        .map(|&[id1, id0, v3, v2, v1, v0]| (u16::from_be_bytes([id1, id0]), u32::from_be_bytes([v3, v2, v1, v0])))
}

/// Appends a SETTINGS frame.
pub(in crate::http2) fn encode_into(settings: &[Setting], out: &mut Vec<u8>) {
    encode_head_into(settings.len() * SETTING_BYTES, FrameType::Settings, 0, StreamId::CONNECTION, out);
    for (id, value) in settings {
        out.extend_from_slice(&id.to_be_bytes());
        out.extend_from_slice(&value.to_be_bytes());
    }
}

/// Appends an acknowledgement of SETTINGS.
pub(in crate::http2) fn encode_ack_into(out: &mut Vec<u8>) {
    encode_head_into(0, FrameType::Settings, ACK, StreamId::CONNECTION, out);
}

pub(in crate::http2) const SETTING_BYTES: usize = 6;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::http2::frame::split_first;

    #[test]
    fn a_settings_frame_round_trips() {
        let settings = [(INITIAL_WINDOW_SIZE, 70_000), (0xabcd, u32::MAX)];
        let mut out = Vec::new();
        encode_into(&settings, &mut out);
        let (head, payload) = split_first(&out).unwrap().unwrap();
        assert_eq!(SettingsFrame::parse(&head, payload), Ok(SettingsFrame::Values(payload)));
        assert_eq!(iter(payload).collect::<Vec<_>>(), settings);
        assert_eq!(SettingsFrame::parse(&head, &payload[1..]), Err(ConnectionError::FrameSize));
    }

    #[test]
    fn an_acknowledgement_is_empty() {
        let mut out = Vec::new();
        encode_ack_into(&mut out);
        let (mut head, _) = split_first(&out).unwrap().unwrap();
        assert_eq!(SettingsFrame::parse(&head, &[]), Ok(SettingsFrame::Ack));
        assert_eq!(SettingsFrame::parse(&head, &[0; 6]), Err(ConnectionError::FrameSize));
        head.stream_id = StreamId::FIRST;
        assert_eq!(SettingsFrame::parse(&head, &[]), Err(ConnectionError::StreamId));
    }
}
