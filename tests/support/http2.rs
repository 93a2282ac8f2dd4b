//! A blocking HTTP/2 client with many concurrent requests on one connection. It uses the state machine of the library
//! under test (`http2::Connection`).

use super::response::{Response, ResponseHead};
use super::stream::{Endpoint, Stream};
use super::{lease, shown};
use coordination_apiserver::hpack::{FieldBuf, FieldName, Indexing};
use coordination_apiserver::http2::{
    Config, Connection, ErrorCode, Event, OpenError, RequestLine, SendField, StreamId, StreamKey,
};
use serde_json::Value;
use std::collections::HashMap;
use std::io::{self, Write};

/// A request. HTTP/2 requires field names in lower case.
#[derive(Clone, Debug, Default)]
pub(crate) struct Message {
    pub(crate) method: String,
    pub(crate) target: String,
    pub(crate) fields: Vec<(String, String)>,
    pub(crate) body: Vec<u8>,
}

impl Message {
    /// Builds a well-formed request. The body is JSON, or absent if empty.
    pub(crate) fn new(method: &str, target: &str, body: &str) -> Self {
        let message = Self { method: method.into(), target: target.into(), ..Self::default() };
        let message = message.with("user-agent", "test/1.0").with("accept", "application/json");
        if body.is_empty() {
            return message;
        }
        let media_type = if method == "PATCH" { "application/merge-patch+json" } else { "application/json" };
        let message = message.with("content-type", media_type).with("content-length", &body.len().to_string());
        Self { body: body.into(), ..message }
    }

    /// Adds a field.
    pub(crate) fn with(mut self, name: &str, value: &str) -> Self {
        self.fields.push((name.to_owned(), value.to_owned()));
        self
    }
}

/// How a stream ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum End {
    /// By END_STREAM.
    Whole,
    /// By RST_STREAM.
    Reset(ErrorCode),
}

/// The data that arrived on a stream.
#[derive(Debug, Default)]
pub(crate) struct Exchange {
    /// Interim statuses, below 200.
    pub(crate) interim: Vec<u16>,
    pub(crate) head: Option<ResponseHead>,
    pub(crate) body: Vec<u8>,
    pub(crate) end: Option<End>,
}

/// A connection and its streams.
pub(crate) struct Http2Client {
    stream: Stream,
    connection: Connection,
    fields: FieldBuf,
    out: Vec<u8>,
    received: Vec<u8>,
    exchanges: HashMap<StreamKey, Exchange>,
    /// All received GOAWAYs.
    pub(crate) goaways: Vec<(StreamId, ErrorCode)>,
    /// Ended streams, in the order in which they ended.
    pub(crate) ended: Vec<StreamKey>,
}

impl Http2Client {
    /// Connects with prior knowledge in cleartext, or with ALPN over TLS.
    ///
    /// # Panics
    /// If the connection fails.
    #[track_caller]
    pub(crate) fn open(endpoint: &Endpoint) -> Self {
        Self::open_with(endpoint, Config::default())
    }

    /// Does the same as [`Http2Client::open`], with this configuration.
    #[track_caller]
    pub(crate) fn open_with(endpoint: &Endpoint, config: Config) -> Self {
        Self::try_open(endpoint, config).unwrap_or_else(|error| panic!("no HTTP/2 at {}: {error}", endpoint.address))
    }

    /// Connects, or returns the error. The server must speak HTTP/2.
    pub(crate) fn try_open(endpoint: &Endpoint, config: Config) -> io::Result<Self> {
        let mut out = Vec::new();
        let connection = Connection::client(config, &mut out);
        let mut client = Self {
            stream: endpoint.with_alpn(b"h2").connect()?,
            connection,
            fields: FieldBuf::new(),
            out,
            received: Vec::new(),
            exchanges: HashMap::new(),
            goaways: Vec::new(),
            ended: Vec::new(),
        };
        client.flush()?;
        while !client.connection.is_open() {
            client.pump()?;
        }
        if endpoint.tls.is_some() && client.stream.alpn() != Some(b"h2") {
            return Err(io::Error::other(format!("ALPN gave {:?}", client.stream.alpn())));
        }
        Ok(client)
    }

    /// Queues the start of a request without its body, or returns the error. Nothing is written yet.
    pub(crate) fn try_send_head(&mut self, message: &Message, end_stream: bool) -> Result<StreamKey, OpenError> {
        let line = RequestLine {
            method: message.method.as_bytes(),
            scheme: b"http",
            authority: b"localhost",
            path: message.target.as_bytes(),
            path_indexing: Indexing::Value,
        };
        let fields: Vec<_> = send_fields(&message.fields).collect();
        let key = self.connection.send_request(&line, &fields, end_stream, &mut self.out)?;
        self.exchanges.insert(key, Exchange::default());
        Ok(key)
    }

    /// Queues the start of a request without its body. Nothing is written yet.
    ///
    /// # Panics
    /// If no stream can be opened.
    #[track_caller]
    pub(crate) fn queue_head(&mut self, message: &Message, end_stream: bool) -> StreamKey {
        self.try_send_head(message, end_stream).unwrap_or_else(|error| panic!("no stream for {message:?}: {error}"))
    }

    /// Queues a request whose body fits into the windows. Nothing is written yet.
    #[track_caller]
    pub(crate) fn queue(&mut self, message: &Message) -> StreamKey {
        let key = self.queue_head(message, message.body.is_empty());
        if !message.body.is_empty() {
            let sent = self.connection.send_data(key, &message.body, true, &mut self.out);
            assert_eq!(sent, Ok(message.body.len()), "the windows are open for {message:?}");
        }
        key
    }

    /// Sends a request, and waits for windows if necessary.
    #[track_caller]
    pub(crate) fn send(&mut self, message: &Message) -> StreamKey {
        let key = self.queue_head(message, message.body.is_empty());
        if !message.body.is_empty() {
            self.send_data(key, &message.body, true);
        }
        self.flush_or_panic();
        key
    }

    /// Sends a part of a body, and waits for windows if necessary. The rest is dropped if the stream ends meanwhile.
    #[track_caller]
    pub(crate) fn send_data(&mut self, key: StreamKey, data: &[u8], end_stream: bool) {
        let mut rest = data;
        while let Ok(sent) = self.connection.send_data(key, rest, end_stream, &mut self.out) {
            rest = &rest[sent..];
            self.flush_or_panic();
            if rest.is_empty() {
                break;
            }
            self.pump().unwrap_or_else(|error| panic!("no window for the body ({error})"));
        }
    }

    /// Ends a request with trailers.
    #[track_caller]
    pub(crate) fn send_trailers(&mut self, key: StreamKey, fields: &[(String, String)]) {
        let fields: Vec<_> = send_fields(fields).collect();
        self.connection.send_trailers(key, &fields, &mut self.out).expect("the stream is open");
        self.flush_or_panic();
    }

    /// Cancels a request.
    #[track_caller]
    pub(crate) fn reset(&mut self, key: StreamKey) {
        self.connection.reset(key, ErrorCode::CANCEL, &mut self.out);
        self.flush_or_panic();
    }

    /// Sends a request and reads the response. The body is JSON, or absent if empty.
    ///
    /// # Panics
    /// If no complete response arrives.
    #[track_caller]
    pub(crate) fn call(&mut self, method: &str, target: &str, body: &str) -> Response {
        let key = self.send(&Message::new(method, target, body));
        self.recv(key)
    }

    /// Creates Leases with these names, with up to 64 requests in flight. Returns the created Leases in order.
    ///
    /// # Panics
    /// If a creation is refused.
    #[track_caller]
    pub(crate) fn create(&mut self, namespace: &str, names: impl IntoIterator<Item = String>) -> Vec<Value> {
        let target = lease::collection(namespace);
        let messages: Vec<_> =
            names.into_iter().map(|name| Message::new("POST", &target, &lease::new(&name))).collect();
        let mut created = Vec::with_capacity(messages.len());
        for messages in messages.chunks(64) {
            let keys: Vec<_> = messages.iter().map(|message| self.queue(message)).collect();
            created.extend(keys.into_iter().map(|key| self.recv(key).expect_status(201, namespace).json()));
        }
        created
    }

    /// Reads the complete response of a stream.
    ///
    /// # Panics
    /// If none arrives, or if the stream is reset.
    #[track_caller]
    pub(crate) fn recv(&mut self, key: StreamKey) -> Response {
        self.try_recv(key).unwrap_or_else(|error| panic!("no response on {key:?} ({error})"))
    }

    /// Reads the complete response of a stream, or returns the error.
    pub(crate) fn try_recv(&mut self, key: StreamKey) -> io::Result<Response> {
        self.wait(key, |exchange| exchange.end.is_some())?;
        let exchange = self.exchanges.remove(&key).unwrap_or_default();
        match (exchange.head, exchange.end) {
            (Some(head), Some(End::Whole)) => Ok(Response { head, body: exchange.body }),
            (head, end) => Err(io::Error::other(format!("{end:?} after {head:?}, {}", shown(&exchange.body)))),
        }
    }

    /// Waits until the stream ends, and returns all that was received on it.
    ///
    /// # Panics
    /// If the stream stays open.
    #[track_caller]
    pub(crate) fn recv_exchange(&mut self, key: StreamKey) -> Exchange {
        self.wait(key, |exchange| exchange.end.is_some()).unwrap_or_else(|error| panic!("{key:?} is open ({error})"));
        self.exchanges.remove(&key).expect("the stream was opened")
    }

    /// Reads the head of a stream's response. Its content remains to be read.
    pub(crate) fn try_recv_head(&mut self, key: StreamKey) -> io::Result<ResponseHead> {
        self.wait(key, |exchange| exchange.head.is_some() || exchange.end.is_some())?;
        let head = self.exchanges.get(&key).and_then(|exchange| exchange.head.clone());
        head.ok_or_else(|| io::Error::other("the stream was reset"))
    }

    /// Waits for an interim response.
    ///
    /// # Panics
    /// If none arrives.
    #[track_caller]
    pub(crate) fn recv_interim(&mut self, key: StreamKey) -> u16 {
        let waited = self.wait(key, |exchange| !exchange.interim.is_empty() || exchange.end.is_some());
        waited.unwrap_or_else(|error| panic!("no interim response ({error})"));
        self.exchanges
            .get_mut(&key)
            .and_then(|exchange| exchange.interim.pop())
            .expect("an interim response comes first")
    }

    /// Reads the next event of a watch. `None` after the orderly end of its stream.
    pub(crate) fn try_next_event(&mut self, key: StreamKey) -> io::Result<Option<Value>> {
        self.wait(key, |exchange| exchange.end.is_some() || exchange.body.contains(&b'\n'))?;
        let exchange = self.exchanges.get_mut(&key).ok_or_else(|| io::Error::other("no such stream"))?;
        let Some(end) = memchr::memchr(b'\n', &exchange.body) else {
            return match exchange.end {
                Some(End::Whole) if exchange.body.is_empty() => Ok(None),
                end => Err(io::Error::other(format!("{end:?} within an event: {}", shown(&exchange.body)))),
            };
        };
        let line: Vec<u8> = exchange.body.drain(..=end).collect();
        serde_json::from_slice(&line).map(Some).map_err(io::Error::other)
    }

    /// Reads the next event of a watch.
    ///
    /// # Panics
    /// If none arrives.
    #[track_caller]
    pub(crate) fn next_event(&mut self, key: StreamKey) -> Value {
        match self.try_next_event(key) {
            Ok(Some(event)) => event,
            Ok(None) => panic!("the watch has ended; want an event"),
            Err(error) => panic!("the watch broke ({error}); want an event"),
        }
    }

    /// Opens a watch.
    ///
    /// # Panics
    /// If the request is refused.
    #[track_caller]
    pub(crate) fn watch(&mut self, target: &str) -> StreamKey {
        let key = self.send(&Message::new("GET", target, ""));
        let head = self.try_recv_head(key).unwrap_or_else(|error| panic!("no watch at {target} ({error})"));
        assert_eq!(head.status, 200, "a watch at {target}: {head:?}");
        key
    }

    /// Reads until the server has closed the connection.
    ///
    /// # Panics
    /// If the server does not.
    #[track_caller]
    pub(crate) fn recv_close(&mut self) {
        loop {
            match self.pump() {
                Ok(()) => {}
                Err(error) if super::client::is_timeout(&error) => panic!("the connection is still open"),
                Err(_closed) => return,
            }
        }
    }

    /// Writes all queued bytes, and reads until the exchange of a stream fulfils `is_done`.
    fn wait(&mut self, key: StreamKey, is_done: impl Fn(&Exchange) -> bool) -> io::Result<()> {
        self.flush()?;
        while !self.exchanges.get(&key).is_none_or(&is_done) {
            self.pump()?;
        }
        Ok(())
    }

    /// Writes all queued bytes.
    pub(crate) fn flush(&mut self) -> io::Result<()> {
        self.stream.write_all(&self.out)?;
        self.out.clear();
        self.stream.flush()
    }

    #[track_caller]
    fn flush_or_panic(&mut self) {
        self.flush().unwrap_or_else(|error| panic!("not sent: {error}"));
    }

    /// Reads once and processes the data.
    fn pump(&mut self) -> io::Result<()> {
        self.stream.read_once(&mut self.received)?;
        let mut at = 0;
        loop {
            let received = self.connection.recv(&self.received[at..], 0, &mut self.fields, &mut self.out);
            let received = received.map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error.to_string()))?;
            at += received.consumed;
            match received.event {
                Some(event) => on_event(event, &self.fields, &mut self.exchanges, &mut self.ended, &mut self.goaways),
                None => break,
            }
        }
        self.received.drain(..at);
        self.flush()
    }
}

fn on_event(
    event: Event<'_>,
    fields: &FieldBuf,
    exchanges: &mut HashMap<StreamKey, Exchange>,
    ended: &mut Vec<StreamKey>,
    goaways: &mut Vec<(StreamId, ErrorCode)>,
) {
    let (stream, end) = match event {
        Event::Response { stream, head, end_stream } => {
            let exchange = exchanges.entry(stream).or_default();
            if head.status < 200 {
                exchange.interim.push(head.status);
            } else {
                let text = |octets: &[u8]| String::from_utf8_lossy(octets).into_owned();
                let regular = fields.iter().filter(|field| !field.name.starts_with(b":"));
                let fields = regular.map(|field| (text(field.name), text(field.value))).collect();
                exchange.head = Some(ResponseHead { version: "2", status: head.status, fields });
            }
            (stream, end_stream.then_some(End::Whole))
        }
        Event::Data { stream, data, end_stream } => {
            exchanges.entry(stream).or_default().body.extend_from_slice(data);
            (stream, end_stream.then_some(End::Whole))
        }
        Event::Trailers { stream } => (stream, Some(End::Whole)),
        Event::Reset { stream, code, .. } => (stream, Some(End::Reset(code))),
        Event::Goaway { last_stream_id, code } => return goaways.push((last_stream_id, code)),
        Event::Request { .. } => return,
    };
    if let Some(end) = end {
        let exchange = exchanges.entry(stream).or_default();
        // A reset after the complete response means only that the rest of the request is not needed (RFC 9113 §8.1).
        if exchange.end.is_none() {
            exchange.end = Some(end);
            ended.push(stream);
        }
    }
}

fn send_fields(fields: &[(String, String)]) -> impl Iterator<Item = SendField<'_>> {
    fields.iter().map(|(name, value)| SendField::repeated(FieldName::new(name.as_bytes()), value.as_bytes()))
}
