//! HTTP/2 by hand (RFC 9113 §4 and §6): tests write frames octet by octet, valid or not, and read the server's frames.

use super::stream::{Endpoint, Stream};
use super::{lease, shown};
use coordination_apiserver::hpack::{Decoder, DecoderLimits, FieldBuf};
use std::io::{self, Write};
use std::thread::{self, JoinHandle};

pub(crate) const DATA: u8 = 0;
pub(crate) const HEADERS: u8 = 1;
pub(crate) const PRIORITY: u8 = 2;
pub(crate) const RST_STREAM: u8 = 3;
pub(crate) const SETTINGS: u8 = 4;
pub(crate) const PING: u8 = 6;
pub(crate) const GOAWAY: u8 = 7;
pub(crate) const WINDOW_UPDATE: u8 = 8;
pub(crate) const CONTINUATION: u8 = 9;

pub(crate) const END_STREAM: u8 = 0x1;
pub(crate) const ACK: u8 = 0x1;
pub(crate) const END_HEADERS: u8 = 0x4;

/// `SETTINGS_INITIAL_WINDOW_SIZE`.
pub(crate) const INITIAL_WINDOW_SIZE: u16 = 4;

/// The client's connection preface.
pub(crate) const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

/// Encodes a frame.
pub(crate) fn frame(frame_type: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let length = u32::try_from(payload.len()).expect("the payload is short").to_be_bytes();
    [&length[1..], &[frame_type, flags], &stream.to_be_bytes(), payload].concat()
}

/// Encodes SETTINGS with these values.
pub(crate) fn settings(values: &[(u16, u32)]) -> Vec<u8> {
    let payload: Vec<u8> =
        values.iter().flat_map(|(id, value)| [&id.to_be_bytes()[..], &value.to_be_bytes()].concat()).collect();
    frame(SETTINGS, 0, 0, &payload)
}

/// Encodes WINDOW_UPDATE.
pub(crate) fn window_update(stream: u32, increment: u32) -> Vec<u8> {
    frame(WINDOW_UPDATE, 0, stream, &increment.to_be_bytes())
}

/// Encodes RST_STREAM with the code CANCEL.
pub(crate) fn cancel(stream: u32) -> Vec<u8> {
    frame(RST_STREAM, 0, stream, &8_u32.to_be_bytes())
}

/// Encodes what a client sends first: the preface, SETTINGS with these values, and an ACK of the server's SETTINGS.
pub(crate) fn hello(values: &[(u16, u32)]) -> Vec<u8> {
    [PREFACE, &settings(values), &frame(SETTINGS, ACK, 0, &[])].concat()
}

/// Encodes a GET request.
pub(crate) fn get(stream: u32, path: &str) -> Vec<u8> {
    request(stream, "GET", path, &[], true)
}

/// Encodes a request to watch the Leases of the namespace `n`. The watch lasts until the client ends it.
pub(crate) fn watch(stream: u32) -> Vec<u8> {
    get(stream, &format!("{}?watch=true", lease::collection("n")))
}

/// Encodes a creation of a Lease in the namespace `n`, up to its body.
pub(crate) fn post(stream: u32) -> Vec<u8> {
    request(stream, "POST", &lease::collection("n"), &[("content-type", "application/json")], false)
}

/// Encodes HEADERS of a request, in one frame.
pub(crate) fn request(stream: u32, method: &str, path: &str, more: &[(&str, &str)], end_stream: bool) -> Vec<u8> {
    let block = request_block(method, path, more);
    frame(HEADERS, END_HEADERS | if end_stream { END_STREAM } else { 0 }, stream, &block)
}

/// Encodes the field block of a request, as literals that do not use the dynamic table.
pub(crate) fn request_block(method: &str, path: &str, more: &[(&str, &str)]) -> Vec<u8> {
    let pseudo = [(":method", method), (":scheme", "http"), (":path", path), (":authority", "localhost")];
    pseudo.iter().chain(more).flat_map(|(name, value)| literal(name, value)).collect()
}

/// Encodes a literal field with a literal name, without indexing (RFC 7541 §6.2.2).
pub(crate) fn literal(name: &str, value: &str) -> Vec<u8> {
    [&[0][..], &string(name), &string(value)].concat()
}

/// Encodes a string literal without Huffman coding (RFC 7541 §5.2).
fn string(text: &str) -> Vec<u8> {
    let mut out = Vec::new();
    let mut rest = text.len();
    if rest < 127 {
        out.extend(u8::try_from(rest));
    } else {
        out.push(127);
        rest -= 127;
        while rest >= 128 {
            out.extend(u8::try_from(rest % 128 + 128));
            rest /= 128;
        }
        out.extend(u8::try_from(rest));
    }
    out.extend_from_slice(text.as_bytes());
    out
}

/// A frame from the server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Frame {
    pub(crate) frame_type: u8,
    pub(crate) flags: u8,
    pub(crate) stream: u32,
    pub(crate) payload: Vec<u8>,
}

impl Frame {
    /// Whether the frame ends its stream.
    pub(crate) fn ends_stream(&self) -> bool {
        matches!(self.frame_type, DATA | HEADERS) && self.flags & END_STREAM != 0
    }

    /// Returns the code of RST_STREAM or GOAWAY.
    pub(crate) fn code(&self) -> Option<u32> {
        let at = match self.frame_type {
            RST_STREAM => 0,
            GOAWAY => 4,
            _ => return None,
        };
        self.payload.get(at..at + 4).and_then(|code| code.try_into().ok()).map(u32::from_be_bytes)
    }
}

/// A connection on which the test writes and reads frames.
pub(crate) struct Frames {
    /// The connection. Public, so that tests can misuse it.
    pub(crate) stream: Stream,
    received: Vec<u8>,
    decoder: Decoder,
}

impl Frames {
    /// Connects with prior knowledge or ALPN, and sends [`hello`] with empty SETTINGS.
    ///
    /// # Panics
    /// If the connection fails.
    #[track_caller]
    pub(crate) fn open(endpoint: &Endpoint) -> Self {
        Self::open_with(endpoint, &[])
    }

    /// Does the same as [`Frames::open`], with these settings.
    #[track_caller]
    pub(crate) fn open_with(endpoint: &Endpoint, values: &[(u16, u32)]) -> Self {
        let mut frames = Self::connect(endpoint);
        frames.send(hello(values));
        frames
    }

    /// Connects, but sends nothing.
    #[track_caller]
    pub(crate) fn connect(endpoint: &Endpoint) -> Self {
        let stream = endpoint.with_alpn(b"h2").connect();
        let stream = stream.unwrap_or_else(|error| panic!("no connection to {}: {error}", endpoint.address));
        let limits = DecoderLimits { list_size_max: 1 << 20, list_size_abort: 1 << 20 };
        Self { stream, received: Vec::new(), decoder: Decoder::new(4096, limits) }
    }

    /// Sends octets unchanged.
    ///
    /// # Panics
    /// If the write fails.
    #[track_caller]
    pub(crate) fn send(&mut self, octets: impl AsRef<[u8]>) {
        let octets = octets.as_ref();
        self.try_send(octets).unwrap_or_else(|error| panic!("not sent ({error}): {}", shown(octets)));
    }

    /// Sends octets unchanged, to a peer that may have closed the connection.
    pub(crate) fn try_send(&mut self, octets: &[u8]) -> io::Result<()> {
        self.stream.write_all(octets)?;
        self.stream.flush()
    }

    /// Sends octets in cleartext from another thread, so that the test can read meanwhile. Errors are ignored, since
    /// the server may close the connection.
    ///
    /// # Panics
    /// If the connection uses TLS.
    pub(crate) fn send_aside(&self, octets: Vec<u8>) -> JoinHandle<()> {
        let Stream::Cleartext(socket) = &self.stream else { panic!("TLS has one user") };
        let mut socket = socket.try_clone().expect("a socket can be cloned");
        thread::spawn(move || _ = socket.write_all(&octets))
    }

    /// Reads octets of HTTP/1.1, which precede an upgrade to HTTP/2, up to and including `end`.
    #[track_caller]
    pub(crate) fn recv_through(&mut self, end: &[u8]) -> Vec<u8> {
        loop {
            if let Some(at) = memchr::memmem::find(&self.received, end) {
                return self.received.drain(..at + end.len()).collect();
            }
            self.stream
                .read_once(&mut self.received)
                .unwrap_or_else(|error| panic!("{error}; got only {}", shown(&self.received)));
        }
    }

    /// Reads the next frame, or returns the error.
    pub(crate) fn try_recv(&mut self) -> io::Result<Frame> {
        loop {
            if let Some((head, rest)) = self.received.split_first_chunk::<9>() {
                let length = usize::from(head[0]) << 16 | usize::from(head[1]) << 8 | usize::from(head[2]);
                if let Some(payload) = rest.get(..length) {
                    let stream = u32::from_be_bytes([head[5], head[6], head[7], head[8]]);
                    let frame = Frame { frame_type: head[3], flags: head[4], stream, payload: payload.to_vec() };
                    self.received.drain(..9 + length);
                    return Ok(frame);
                }
            }
            self.stream.read_once(&mut self.received)?;
        }
    }

    /// Reads the next frame.
    ///
    /// # Panics
    /// If none arrives.
    #[track_caller]
    pub(crate) fn recv(&mut self) -> Frame {
        self.try_recv().unwrap_or_else(|error| panic!("no frame ({error}); got {}", shown(&self.received)))
    }

    /// Reads frames up to the first one that is wanted, and drops the others. An unwanted GOAWAY fails the test.
    #[track_caller]
    pub(crate) fn recv_until(&mut self, is_wanted: impl Fn(&Frame) -> bool) -> Frame {
        loop {
            let frame = self.recv();
            if is_wanted(&frame) {
                return frame;
            }
            assert_ne!(frame.frame_type, GOAWAY, "{frame:?}");
        }
    }

    /// Reads all frames, also of other streams, until this stream ends.
    #[track_caller]
    pub(crate) fn recv_to_end_of(&mut self, stream: u32) -> Vec<Frame> {
        let mut frames = Vec::new();
        loop {
            let frame = self.recv();
            assert_ne!(frame.frame_type, GOAWAY, "{frame:?} after {frames:?}");
            let is_last = frame.stream == stream && (frame.ends_stream() || frame.frame_type == RST_STREAM);
            frames.push(frame);
            if is_last {
                return frames;
            }
        }
    }

    /// Decodes the status of a response's HEADERS. All HEADERS must be decoded in order, since they share a dynamic
    /// table.
    #[track_caller]
    pub(crate) fn status_of(&mut self, headers: &Frame) -> u16 {
        self.fields_of(headers)
            .iter()
            .find(|(name, _)| name == ":status")
            .and_then(|(_, value)| value.parse().ok())
            .unwrap_or_else(|| panic!("no status: {headers:?}"))
    }

    /// Decodes the fields of HEADERS.
    #[track_caller]
    pub(crate) fn fields_of(&mut self, headers: &Frame) -> Vec<(String, String)> {
        assert!(headers.frame_type == HEADERS && headers.flags & END_HEADERS != 0, "{headers:?}");
        let mut fields = FieldBuf::new();
        self.decoder.decode(&headers.payload, &mut fields).unwrap_or_else(|error| panic!("{error}: {headers:?}"));
        let text = |octets: &[u8]| String::from_utf8_lossy(octets).into_owned();
        fields.iter().map(|field| (text(field.name), text(field.value))).collect()
    }

    /// Makes a round trip: afterwards the server has read everything that was sent before.
    ///
    /// # Panics
    /// If no response arrives.
    #[track_caller]
    pub(crate) fn round_trip(&mut self) {
        self.send(frame(PING, 0, 0, b"all seen"));
        self.recv_until(|frame| frame.frame_type == PING && frame.flags & ACK != 0);
    }

    /// Reads until the connection ends. Returns the code of the last frame, which must be GOAWAY.
    ///
    /// # Panics
    /// If the last frame is not GOAWAY, or if the connection stays open.
    #[track_caller]
    pub(crate) fn recv_goaway(&mut self) -> u32 {
        let mut last = None;
        loop {
            match self.try_recv() {
                Ok(frame) => last = Some(frame),
                Err(error) if super::client::is_timeout(&error) => panic!("still open; the last was {last:?}"),
                Err(_closed) => break,
            }
        }
        let code = last.as_ref().filter(|frame| frame.frame_type == GOAWAY).and_then(Frame::code);
        code.unwrap_or_else(|| panic!("no GOAWAY at the end but {last:?}"))
    }
}
