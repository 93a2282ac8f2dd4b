//! The connections of the fake server over HTTP/2. The API server's own HTTP/2 code implements the protocol.

use super::{Cursor, Fake, Fault, Reply, Stream, read_more};
use coordination_apiserver::hpack::FieldBuf;
use coordination_apiserver::http2::{Config, Connection, Event, StreamKey};
use std::collections::HashMap;

/// An HTTP/2 connection of the fake server, in progress.
struct Session<'f> {
    fake: &'f Fake,
    connection: Connection,
    out: Vec<u8>,
    /// Method, target and partial body of each incomplete request.
    requests: HashMap<StreamKey, (String, String, Vec<u8>)>,
    /// For each stream, response bytes that wait for a flow-control window, and whether the stream ends after them.
    unsent: HashMap<StreamKey, (Vec<u8>, bool)>,
    watches: HashMap<StreamKey, Cursor>,
}

/// Serves one connection until its end. `input` is what the caller has already read.
pub(super) fn serve(fake: &Fake, stream: &mut dyn Stream, mut input: Vec<u8>) {
    let config = if fake.fault == Fault::IsNarrow {
        Config { streams_max: 2, stream_window: 300, connection_window: 65_535, ..Config::default() }
    } else {
        Config::default()
    };
    let mut out = Vec::new();
    let connection = Connection::server(config, &mut out);
    let (requests, unsent, watches) = (HashMap::new(), HashMap::new(), HashMap::new());
    let mut session = Session { fake, connection, out, requests, unsent, watches };
    let mut fields = FieldBuf::new();
    loop {
        let goes_on = session.receive(&mut input, &mut fields);
        session.send_events();
        session.send_more();
        let sent = stream.write_all(&session.out).and_then(|()| stream.flush());
        session.out.clear();
        if !goes_on || session.connection.is_finished() || sent.is_err() || !read_more(stream, &mut input) {
            return;
        }
    }
}

impl Session<'_> {
    /// Parses requests from `input` and answers them; false if the connection must be closed.
    fn receive(&mut self, input: &mut Vec<u8>, fields: &mut FieldBuf) -> bool {
        let mut consumed = 0;
        while let Ok(received) = self.connection.recv(&input[consumed..], 0, fields, &mut self.out) {
            consumed += received.consumed;
            let (stream, end) = match received.event {
                None => {
                    input.drain(..consumed);
                    return true;
                }
                Some(Event::Request { stream, head, end_stream }) => {
                    let text = |octets: &[u8]| String::from_utf8(octets.to_vec()).expect("ASCII");
                    let (method, target) = (text(head.method(fields)), text(head.path(fields)));
                    self.requests.insert(stream, (method, target, Vec::new()));
                    (stream, end_stream)
                }
                Some(Event::Data { stream, data, end_stream }) => {
                    self.requests.get_mut(&stream).expect("a request").2.extend_from_slice(data);
                    (stream, end_stream)
                }
                Some(Event::Reset { stream, .. }) => {
                    self.watches.remove(&stream);
                    self.unsent.remove(&stream);
                    continue;
                }
                Some(other) => panic!("{other:?}"),
            };
            if end {
                let (method, target, body) = self.requests.remove(&stream).expect("a request");
                if !self.answer(stream, &method, &target, std::str::from_utf8(&body).expect("ASCII")) {
                    return false;
                }
            }
        }
        panic!("the generator broke the protocol");
    }

    /// Sends the response to a request; false if the connection must be closed.
    fn answer(&mut self, stream: StreamKey, method: &str, target: &str, body: &str) -> bool {
        if let Some(cursor) = self.fake.begin_watch(target) {
            self.connection.send_head(stream, 200, &[], false, &mut self.out).expect("open");
            self.watches.insert(stream, cursor);
            return true;
        }
        match self.fake.reply(method, target, body) {
            Reply::Answer(status, body) => self.send(stream, status, body),
            Reply::Last(status, body) => {
                self.connection.begin_shutdown(&mut self.out);
                self.send(stream, status, body);
            }
            Reply::Reset(code) => self.connection.reset(stream, code, &mut self.out),
            Reply::Abort(code) => self.connection.abort(code, &mut self.out),
            Reply::Nothing => {}
            Reply::Close => return false,
        }
        true
    }

    fn send(&mut self, stream: StreamKey, status: u16, body: String) {
        self.connection.send_head(stream, status, &[], false, &mut self.out).expect("open");
        self.offer(stream, body.into_bytes(), true);
    }

    fn offer(&mut self, stream: StreamKey, mut data: Vec<u8>, end: bool) {
        let Ok(sent) = self.connection.send_data(stream, &data, end, &mut self.out) else { return };
        data.drain(..sent);
        if !data.is_empty() {
            self.unsent.insert(stream, (data, end));
        }
    }

    fn send_events(&mut self) {
        let fake = self.fake;
        let mut batches = Vec::new();
        self.watches.retain(|&stream, cursor| {
            if self.unsent.contains_key(&stream) {
                return true;
            }
            let batch = fake.watch(cursor);
            let goes_on = !batch.end;
            batches.push((stream, batch));
            goes_on
        });
        for (stream, batch) in batches {
            if batch.end || !batch.events.is_empty() {
                self.offer(stream, batch.events.concat().into_bytes(), batch.end);
            }
        }
    }

    fn send_more(&mut self) {
        while let Some(stream) = self.connection.poll_writable() {
            if let Some((data, end)) = self.unsent.remove(&stream) {
                self.offer(stream, data, end);
            }
        }
    }
}
