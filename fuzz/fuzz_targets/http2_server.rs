//! Fuzzes the server's end of an HTTP/2 connection. The result does not depend on how the input is cut into pieces. The
//! output consists of whole frames, and each received frame causes only a few of them.
#![no_main]

use coordination_apiserver::hpack::{FieldBuf, FieldName};
use coordination_apiserver::http2::{Config, Connection, ConnectionError, ErrorCode, Event, SendField, StreamKey};
use coordination_apiserver_fuzz::Cuts;
use libfuzzer_sys::fuzz_target;
use std::collections::HashMap;

/// The server's end of a connection, and a caller that answers each request or resets its stream.
struct Server {
    connection: Connection,
    fields: FieldBuf,
    out: Vec<u8>,
    seen: Vec<String>,
    /// For each response that waits for a flow-control window, the number of bytes sent so far.
    unsent: HashMap<StreamKey, usize>,
}

const BODY: &[u8] = &[b'x'; 3000];

impl Server {
    fn new() -> Self {
        let mut out = Vec::new();
        let connection = Connection::server(Config { streams_max: 20, ..Config::default() }, &mut out);
        Self { connection, fields: FieldBuf::new(), out, seen: Vec::new(), unsent: HashMap::new() }
    }

    /// Passes `input` to the connection at `now_ms`. Returns the number of consumed bytes.
    fn recv(&mut self, input: &[u8], now_ms: u64) -> Result<usize, ConnectionError> {
        let mut at = 0;
        loop {
            let received = self.connection.recv(&input[at..], now_ms, &mut self.fields, &mut self.out)?;
            at += received.consumed;
            let Some(event) = received.event else { return Ok(at) };
            self.seen.push(format!("{event:?}"));
            match event {
                Event::Request { stream, end_stream: true, .. }
                | Event::Data { stream, end_stream: true, .. }
                | Event::Trailers { stream } => self.respond(stream),
                Event::Reset { stream, .. } => _ = self.unsent.remove(&stream),
                _ => {}
            }
        }
    }

    fn respond(&mut self, stream: StreamKey) {
        let field = SendField::repeated(FieldName::new(b"content-type"), b"application/json");
        if stream.slot() % 4 == 3 {
            return self.connection.reset(stream, ErrorCode::CANCEL, &mut self.out);
        }
        if self.connection.send_head(stream, 200, &[field], false, &mut self.out).is_ok() {
            let sent = self.connection.send_data(stream, BODY, true, &mut self.out).expect("the stream is open");
            if sent < BODY.len() {
                self.unsent.insert(stream, sent);
            }
        }
    }

    fn send_more(&mut self) {
        while let Some(stream) = self.connection.poll_writable() {
            let sent = self.unsent.remove(&stream).expect("only streams with unsent bytes are named");
            let now =
                self.connection.send_data(stream, &BODY[sent..], true, &mut self.out).expect("the stream is open");
            assert!(now > 0, "a named stream has a window");
            if sent + now < BODY.len() {
                self.unsent.insert(stream, sent + now);
            }
        }
    }
}

/// Passes these pieces of input to a new server. Returns the server, and the error if one ended the connection.
fn served<'i>(pieces: impl Iterator<Item = &'i [u8]>) -> (Server, Option<ConnectionError>) {
    let (mut server, mut pending) = (Server::new(), Vec::new());
    for piece in pieces {
        pending.extend_from_slice(piece);
        match server.recv(&pending, 0) {
            Ok(consumed) => _ = pending.drain(..consumed),
            Err(error) => return (server, Some(error)),
        }
    }
    (server, None)
}

/// Returns the number of frames in `out`. All frames must be complete.
fn count_frames(out: &[u8]) -> usize {
    let mut rest = out;
    let mut frames = 0;
    while let Some((head, after)) = rest.split_first_chunk::<9>() {
        let length = u32::from_be_bytes([0, head[0], head[1], head[2]]) as usize;
        assert!(length <= 16_384);
        rest = after.get(length..).expect("only whole frames are sent");
        frames += 1;
    }
    assert!(rest.is_empty());
    frames
}

fuzz_target!(|data: &[u8]| {
    let Some((input, mut cuts)) = Cuts::of(data) else { return };
    let (whole, whole_error) = served(std::iter::once(input));
    let (cut, cut_error) = served(cuts.clone());
    count_frames(&whole.out);
    assert_eq!(whole.seen, cut.seen);
    assert_eq!(whole.out, cut.out);
    // The connection detects an error in a frame's head without waiting for the frame's payload. So the whole input and
    // the pieces give the same error.
    assert_eq!(whole_error, cut_error);

    // The third server is used as in production: time passes, waiting responses continue when their windows open, and a
    // shutdown may begin.
    let mut live = Server::new();
    let (mut pending, mut now_ms) = (Vec::new(), 0);
    while let Some(piece) = cuts.next() {
        let number = cuts.number();
        now_ms += u64::from(number % 100);
        pending.extend_from_slice(piece);
        let Ok(consumed) = live.recv(&pending, now_ms) else { break };
        pending.drain(..consumed);
        live.send_more();
        if number % 64 == 0 {
            live.connection.begin_shutdown(&mut live.out);
        }
        if live.connection.is_finished() {
            break;
        }
    }
    let frames_in = input.len() / 9 + 1;
    assert!(count_frames(&live.out) <= 8 + 4 * frames_in + 4 * live.seen.len(), "many frames for few");
});
