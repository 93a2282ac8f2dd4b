//! PING (RFC 9113 §6.7).

use super::{ACK, FrameHead, FrameType, StreamId, encode_head_into, exactly, expect_connection};
use crate::http2::error::ConnectionError;

/// A PING frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::http2) struct Ping {
    pub(in crate::http2) payload: [u8; 8],
    pub(in crate::http2) ack: bool,
}

impl Ping {
    pub(in crate::http2) fn parse(head: &FrameHead, payload: &[u8]) -> Result<Self, ConnectionError> {
        expect_connection(head)?;
        Ok(Self { payload: *exactly(payload)?, ack: head.has(ACK) })
    }

    pub(in crate::http2) fn encode_into(self, out: &mut Vec<u8>) {
        let flags = if self.ack { ACK } else { 0 };
        encode_head_into(self.payload.len(), FrameType::Ping, flags, StreamId::CONNECTION, out);
        out.extend_from_slice(&self.payload);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::http2::frame::split_first;

    #[test]
    fn a_ping_frame_round_trips_and_has_eight_octets() {
        let ping = Ping { payload: *b"01234567", ack: true };
        let mut out = Vec::new();
        ping.encode_into(&mut out);
        let (mut head, payload) = split_first(&out).unwrap().unwrap();
        assert_eq!(Ping::parse(&head, payload), Ok(ping));
        assert_eq!(Ping::parse(&head, &payload[1..]), Err(ConnectionError::FrameSize));
        head.stream_id = StreamId::FIRST;
        assert_eq!(Ping::parse(&head, payload), Err(ConnectionError::StreamId));
    }
}
