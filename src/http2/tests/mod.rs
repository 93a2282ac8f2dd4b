//! Tests a server's connection with bytes as a peer would send them.

mod attacks;
mod messages;
mod pair;
mod robustness;

use super::frame::{FrameHead, HEAD_BYTES, split_first};
use super::{Config, Connection, ConnectionError, ErrorCode, Event, Initiator, PREFACE, StreamId, StreamKey};
use crate::hpack::{Encoder, FieldBuf, FieldName, Indexing};

pub(super) const DATA: u8 = 0;
pub(super) const HEADERS: u8 = 1;
pub(super) const PRIORITY: u8 = 2;
pub(super) const RST_STREAM: u8 = 3;
pub(super) const SETTINGS: u8 = 4;
pub(super) const PUSH_PROMISE: u8 = 5;
pub(super) const PING: u8 = 6;
pub(super) const GOAWAY: u8 = 7;
pub(super) const WINDOW_UPDATE: u8 = 8;
pub(super) const CONTINUATION: u8 = 9;

pub(super) const END_STREAM: u8 = 0x1;
pub(super) const ACK: u8 = 0x1;
pub(super) const END_HEADERS: u8 = 0x4;

/// Field block of `GET / http` without an authority. It consists only of indexes of the static table.
pub(super) const GET: &[u8] = &[0x82, 0x84, 0x86];
/// Field block of `POST / http`.
pub(super) const POST: &[u8] = &[0x83, 0x84, 0x86];

/// An event with its own copy of the data.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Got {
    Request { stream: StreamKey, fields: Vec<(String, String)>, end_stream: bool },
    Response { stream: StreamKey, status: u16, end_stream: bool },
    Data { stream: StreamKey, data: Vec<u8>, end_stream: bool },
    Trailers { stream: StreamKey, fields: Vec<(String, String)> },
    Reset { stream: StreamKey, code: ErrorCode, by: Initiator },
    Goaway { last_stream_id: StreamId, code: ErrorCode },
}

impl Got {
    fn of(event: Event<'_>, fields: &FieldBuf) -> Self {
        let text = |octets: &[u8]| String::from_utf8_lossy(octets).into_owned();
        let owned = || fields.iter().map(|field| (text(field.name), text(field.value))).collect();
        match event {
            Event::Request { stream, end_stream, .. } => Self::Request { stream, fields: owned(), end_stream },
            Event::Response { stream, head, end_stream } => Self::Response { stream, status: head.status, end_stream },
            Event::Data { stream, data, end_stream } => Self::Data { stream, data: data.to_vec(), end_stream },
            Event::Trailers { stream } => Self::Trailers { stream, fields: owned() },
            Event::Reset { stream, code, by } => Self::Reset { stream, code, by },
            Event::Goaway { last_stream_id, code } => Self::Goaway { last_stream_id, code },
        }
    }

    pub(super) fn stream(&self) -> StreamKey {
        match self {
            Self::Request { stream, .. }
            | Self::Response { stream, .. }
            | Self::Data { stream, .. }
            | Self::Trailers { stream, .. }
            | Self::Reset { stream, .. } => *stream,
            Self::Goaway { .. } => panic!("{self:?} has no stream"),
        }
    }
}

/// One end of a connection, with the buffers of its caller.
pub(super) struct End {
    pub(super) connection: Connection,
    pub(super) now_ms: u64,
    pub(super) out: Vec<u8>,
    fields: FieldBuf,
    /// Input that is not consumed yet.
    input: Vec<u8>,
}

impl End {
    pub(super) fn new(connection: Connection, out: Vec<u8>) -> Self {
        Self { connection, now_ms: 0, out, fields: FieldBuf::new(), input: Vec::new() }
    }

    /// Creates a server that has received nothing.
    pub(super) fn server(config: Config) -> Self {
        let mut out = Vec::new();
        Self::new(Connection::server(config, &mut out), out)
    }

    /// Creates a server after the handshake, and drops its output so far.
    pub(super) fn open_server() -> Self {
        let mut end = Self::server(Config::default());
        let hello = [&PREFACE[..], &frame(SETTINGS, 0, 0, &[]), &frame(SETTINGS, ACK, 0, &[])].concat();
        assert_eq!(end.recv(&hello), Ok(vec![]));
        end.out.clear();
        end
    }

    /// Returns all events of `input`, which follows any unconsumed input.
    pub(super) fn recv(&mut self, input: &[u8]) -> Result<Vec<Got>, ConnectionError> {
        self.input.extend_from_slice(input);
        let mut got = Vec::new();
        let mut at = 0;
        loop {
            let received = self.connection.recv(&self.input[at..], self.now_ms, &mut self.fields, &mut self.out)?;
            at += received.consumed;
            match received.event {
                Some(event) => got.push(Got::of(event, &self.fields)),
                None => break,
            }
        }
        self.input.drain(..at);
        Ok(got)
    }

    /// Returns the stream of the only request in `input`.
    pub(super) fn recv_request(&mut self, input: &[u8]) -> StreamKey {
        let got = self.recv(input).unwrap();
        assert!(matches!(got[..], [Got::Request { .. }]), "{got:?}");
        got[0].stream()
    }

    /// Takes the frames in the output.
    pub(super) fn take_frames(&mut self) -> Vec<Sent> {
        let mut frames = Vec::new();
        let mut rest = &self.out[..];
        while let Some((head, payload)) = split_first(rest).unwrap() {
            frames.push(Sent { head, payload: payload.to_vec() });
            rest = &rest[HEAD_BYTES + head.length..];
        }
        assert!(rest.is_empty(), "only whole frames are sent");
        self.out.clear();
        frames
    }

    /// Returns the code of the last GOAWAY in the output.
    pub(super) fn goaway_code(&mut self) -> Option<ErrorCode> {
        let sent = self.take_frames().pop()?;
        let is_goaway = sent.bytes()[3] == GOAWAY;
        is_goaway.then(|| ErrorCode(u32::from_be_bytes(sent.payload[4..8].try_into().unwrap())))
    }
}

/// A frame in the output.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Sent {
    pub(super) head: FrameHead,
    pub(super) payload: Vec<u8>,
}

impl Sent {
    pub(super) fn bytes(&self) -> Vec<u8> {
        let mut out = Vec::new();
        super::frame::encode_head_into(
            self.head.length,
            self.head.frame_type,
            self.head.flags,
            self.head.stream_id,
            &mut out,
        );
        out.extend_from_slice(&self.payload);
        out
    }
}

pub(super) fn frame(frame_type: u8, flags: u8, id: u32, payload: &[u8]) -> Vec<u8> {
    let length = u32::try_from(payload.len()).unwrap().to_be_bytes();
    [&length[1..], &[frame_type, flags], &id.to_be_bytes(), payload].concat()
}

/// Encodes HEADERS with a whole field block.
pub(super) fn headers(flags: u8, id: u32, block: &[u8]) -> Vec<u8> {
    frame(HEADERS, flags | END_HEADERS, id, block)
}

/// Encodes a field block without the dynamic table.
pub(super) fn block(lines: &[(&str, &str)]) -> Vec<u8> {
    let mut out = Vec::new();
    for (name, value) in lines {
        Encoder::new(0).encode_field(FieldName::new(name.as_bytes()), value.as_bytes(), Indexing::Never, &mut out);
    }
    out
}

pub(super) fn window_update(id: u32, increment: u32) -> Vec<u8> {
    frame(WINDOW_UPDATE, 0, id, &increment.to_be_bytes())
}

pub(super) fn setting(id: u16, value: u32) -> Vec<u8> {
    frame(SETTINGS, 0, 0, &[&id.to_be_bytes()[..], &value.to_be_bytes()].concat())
}
