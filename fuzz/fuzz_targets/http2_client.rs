//! Fuzzes the client's end of an HTTP/2 connection with some open requests. The result does not depend on how the input
//! is cut into pieces.
#![no_main]

use coordination_apiserver::hpack::{FieldBuf, Indexing};
use coordination_apiserver::http2::{Config, Connection, ConnectionError, RequestLine};
use coordination_apiserver_fuzz::Cuts;
use libfuzzer_sys::fuzz_target;

/// Events of the connection, its output, and the error that ended it.
type Outcome = (Vec<String>, Vec<u8>, Option<ConnectionError>);

fn feed<'i>(pieces: impl Iterator<Item = &'i [u8]>) -> Outcome {
    let mut out = Vec::new();
    let mut connection = Connection::client(Config::default(), &mut out);
    for (method, end_stream) in [(&b"GET"[..], true), (b"HEAD", true), (b"PUT", false), (b"GET", true)] {
        let line = RequestLine {
            method,
            scheme: b"https",
            authority: b"localhost",
            path: b"/apis",
            path_indexing: Indexing::Value,
        };
        connection.send_request(&line, &[], end_stream, &mut out).expect("a new connection has room");
    }
    let (mut pending, mut fields, mut seen) = (Vec::new(), FieldBuf::new(), Vec::new());
    for piece in pieces {
        pending.extend_from_slice(piece);
        let mut at = 0;
        loop {
            match connection.recv(&pending[at..], 0, &mut fields, &mut out) {
                Ok(received) => {
                    at += received.consumed;
                    match received.event {
                        Some(event) => seen.push(format!("{event:?}")),
                        None => break,
                    }
                }
                Err(error) => return (seen, out, Some(error)),
            }
        }
        pending.drain(..at);
    }
    (seen, out, None)
}

fuzz_target!(|data: &[u8]| {
    let Some((input, cuts)) = Cuts::of(data) else { return };
    assert_eq!(feed(std::iter::once(input)), feed(cuts));
});
