//! HTTP/2 (RFC 9113): every request is a stream, and responses arrive in any order. The API server's own
//! [`Connection`](http2::Connection) implements the protocol. For each stream, this module stores the request's tag and
//! unsent bytes, and the response's status and body so far.

use super::{BODY_BYTES_MAX, Bodies, Broken, Request, Told, Verdict};
use crate::connection::Connection;
use crate::error_kind::ErrorKind;
use crate::origin::{Origin, USER_AGENT, Version};
use coordination_apiserver::hpack::{FieldBuf, FieldName, Indexing};
use coordination_apiserver::http2::{
    self, Config, ErrorCode, Event, Initiator, OpenError, RequestLine, SendField, StreamId, StreamKey,
};

/// The requests in flight on one HTTP/2 connection, and the state of the protocol.
#[derive(Debug)]
pub(crate) struct Http2<T> {
    protocol: http2::Connection,
    bodies: Bodies,
    /// The streams in progress. A stream's key contains its index in this list (its slot). A stream is removed when the
    /// caller learns the outcome of its request, or cancels the request.
    streams: Vec<Option<Stream<T>>>,
    pub(super) in_flight: usize,
    fields: FieldBuf,
    /// Whether the server's limit of concurrent streams (SETTINGS_MAX_CONCURRENT_STREAMS) is reached.
    is_full: bool,
    pub(super) going_away: bool,
}

/// A stream whose request has been sent, at least in part, and whose response is not complete.
#[derive(Debug)]
struct Stream<T> {
    key: StreamKey,
    tag: T,
    /// Status of the response; 0 before the response.
    status: u16,
    /// With [`Bodies::Whole`], the body so far; empty if the body came in one piece.
    body: Vec<u8>,
    /// The part of the request's body that waits for a flow-control window.
    unsent: Vec<u8>,
}

impl<T: Copy> Http2<T> {
    pub(super) fn new(bodies: Bodies, out: &mut Vec<u8>) -> Self {
        Self {
            protocol: http2::Connection::client(CONFIG, out),
            bodies,
            streams: Vec::new(),
            in_flight: 0,
            fields: FieldBuf::new(),
            is_full: false,
            going_away: false,
        }
    }

    pub(super) fn is_ready(&self) -> bool {
        self.protocol.is_open()
    }

    pub(super) fn has_room(&self) -> bool {
        !self.is_full && !self.going_away
    }

    pub(super) fn tags(&self) -> impl Iterator<Item = T> {
        self.streams.iter().flatten().map(|stream| stream.tag)
    }

    pub(super) fn take_in_flight(&mut self) -> Vec<T> {
        self.in_flight = 0;
        self.streams.drain(..).flatten().map(|stream| stream.tag).collect()
    }

    pub(super) fn send(&mut self, origin: &Origin, request: &Request<'_>, tag: T, out: &mut Vec<u8>) -> bool {
        let line = RequestLine {
            method: request.method.as_bytes(),
            scheme: origin.scheme.as_bytes(),
            authority: origin.authority.as_bytes(),
            path: request.target.as_bytes(),
            // Before a node's path is sent again, the paths of all other nodes are sent. They would evict the node's
            // path from the dynamic table of HPACK. So only the name of the field is indexed.
            path_indexing: Indexing::Name,
        };
        let body = request.body.unwrap_or_default();
        let mut length = itoa::Buffer::new();
        let fields = [
            SendField::repeated(ACCEPT, origin.media_type.name().as_bytes()),
            SendField::repeated(AGENT, USER_AGENT.as_bytes()),
            SendField::repeated(CONTENT_TYPE, origin.media_type.name().as_bytes()),
            // Leases differ in length only by the digits of their nodes' names. So `content-length` has few different
            // values, which the dynamic table of HPACK can keep.
            SendField::repeated(CONTENT_LENGTH, length.format(body.len()).as_bytes()),
        ];
        let is_bodiless = request.body.is_none();
        let fields = if is_bodiless { fields.split_at(2).0 } else { &fields };
        let key = match self.protocol.send_request(&line, fields, is_bodiless, out) {
            Ok(key) => key,
            Err(OpenError::Concurrency) => {
                self.is_full = true;
                return false;
            }
            Err(OpenError::GoingAway) => {
                self.going_away = true;
                return false;
            }
        };
        let mut unsent = Vec::new();
        if !is_bodiless && let Ok(sent) = self.protocol.send_data(key, body, true, out) {
            // The copy allocates memory only if a flow-control window is smaller than the body.
            unsent.extend_from_slice(body.get(sent..).unwrap_or_default());
        }
        if self.streams.len() <= key.slot() {
            self.streams.resize_with(key.slot() + 1, || None);
        }
        if let Some(place) = self.streams.get_mut(key.slot()) {
            *place = Some(Stream { key, tag, status: 0, body: Vec::new(), unsent });
            self.in_flight += 1;
        }
        true
    }

    pub(super) fn send_more(&mut self, out: &mut Vec<u8>) {
        while let Some(key) = self.protocol.poll_writable() {
            let Some(Some(stream)) = self.streams.get_mut(key.slot()) else { continue };
            if stream.key == key
                && let Ok(sent) = self.protocol.send_data(key, &stream.unsent, true, out)
            {
                stream.unsent.drain(..sent);
            }
        }
    }

    pub(super) fn cancel(&mut self, is_over: impl Fn(T) -> bool, out: &mut Vec<u8>) -> Vec<T> {
        let mut cancelled = Vec::new();
        for place in &mut self.streams {
            if let Some(stream) = place.take_if(|stream| is_over(stream.tag)) {
                self.in_flight -= 1;
                self.is_full = false;
                self.protocol.reset(stream.key, ErrorCode::CANCEL, out);
                cancelled.push(stream.tag);
            }
        }
        cancelled
    }

    pub(super) fn receive(
        &mut self,
        conn: &mut Connection,
        now: u64,
        mut tell: impl FnMut(T, Told<'_>) -> Verdict,
    ) -> Result<(), Broken> {
        let (input, out) = conn.split();
        let mut consumed = 0;
        let outcome = loop {
            let was_ready = self.is_ready();
            let rest = input.get(consumed..).unwrap_or_default();
            let received = match self.protocol.recv(rest, millis(now), &mut self.fields, out) {
                Ok(received) => received,
                Err(error) if was_ready => {
                    break Err(Broken::malformed(format!("the server violates HTTP/2: {error}")));
                }
                // The HTTP/2 preface is no HTTP/1.1 request, so a server without HTTP/2 has probably answered with an
                // HTTP/1.1 error.
                Err(_) => break Err(Broken::not_spoken(Version::Http2)),
            };
            consumed += received.consumed;
            let Some(event) = received.event else { break Ok(()) };
            if let Err(broken) = self.handle(event, out, &mut tell) {
                break Err(broken);
            }
        };
        conn.consume(consumed);
        outcome
    }

    #[inline]
    fn handle(
        &mut self,
        event: Event<'_>,
        out: &mut Vec<u8>,
        tell: &mut impl FnMut(T, Told<'_>) -> Verdict,
    ) -> Result<(), Broken> {
        match event {
            Event::Response { head, .. } if head.is_informational() => {}
            Event::Response { stream, head, end_stream } => {
                if let Some(stream) = self.stream(stream) {
                    stream.status = head.status;
                }
                if end_stream || self.bodies == Bodies::Streamed {
                    self.handle_body(stream, &[], end_stream, out, tell);
                }
            }
            Event::Data { stream, data, end_stream } => self.handle_body(stream, data, end_stream, out, tell),
            Event::Trailers { stream } => self.handle_body(stream, &[], true, out, tell),
            Event::Reset { stream, code, by } => {
                let Some(stream) = self.take(stream) else { return Ok(()) };
                match by {
                    Initiator::Remote if code == ErrorCode::REFUSED_STREAM => tell(stream.tag, Told::Refused),
                    Initiator::Remote => tell(stream.tag, Told::Lost { kind: ErrorKind::Stream(code.0), why: RESET }),
                    Initiator::Local => {
                        tell(stream.tag, Told::Lost { kind: ErrorKind::Malformed, why: "the response violates HTTP/2" })
                    }
                };
            }
            Event::Goaway { last_stream_id, code: ErrorCode::NO_ERROR } => self.handle_goaway(last_stream_id, tell),
            Event::Goaway { code, .. } => {
                let why = "the server ended the connection".to_owned();
                return Err(Broken { kind: Some(ErrorKind::Goaway(code.0)), why });
            }
            Event::Request { .. } => {}
        }
        Ok(())
    }

    fn handle_body(
        &mut self,
        key: StreamKey,
        data: &[u8],
        end: bool,
        out: &mut Vec<u8>,
        tell: &mut impl FnMut(T, Told<'_>) -> Verdict,
    ) {
        if end {
            let Some(mut stream) = self.take(key) else { return };
            if !stream.unsent.is_empty() {
                // The response ended before the request's body was sent completely (RFC 9113 §8.1).
                self.protocol.reset(key, ErrorCode::CANCEL, out);
            }
            let body = if stream.body.is_empty() {
                data
            } else {
                stream.body.extend_from_slice(data);
                &stream.body
            };
            tell(stream.tag, Told::Answer { status: stream.status, body, end });
            return;
        }
        let bodies = self.bodies;
        let Some(stream) = self.stream(key) else { return };
        let is_wanted = match bodies {
            Bodies::Streamed => {
                tell(stream.tag, Told::Answer { status: stream.status, body: data, end }) == Verdict::GoOn
            }
            Bodies::Whole if stream.body.len() + data.len() > BODY_BYTES_MAX => {
                tell(stream.tag, Told::Lost { kind: ErrorKind::Malformed, why: "an answer that is too large" });
                false
            }
            Bodies::Whole => {
                stream.body.extend_from_slice(data);
                true
            }
        };
        if !is_wanted {
            self.take(key);
            self.protocol.reset(key, ErrorCode::CANCEL, out);
        }
    }

    /// Handles GOAWAY (RFC 9113 §6.8). The server has not processed the streams above `last`, so the caller may send
    /// their requests on another connection. The other streams end on this connection.
    #[cold]
    fn handle_goaway(&mut self, last: StreamId, tell: &mut impl FnMut(T, Told<'_>) -> Verdict) {
        self.going_away = true;
        for place in &mut self.streams {
            if let Some(stream) = place.take_if(|stream| stream.key.id() > last) {
                self.in_flight -= 1;
                tell(stream.tag, Told::Unserved);
            }
        }
    }

    #[inline]
    fn stream(&mut self, key: StreamKey) -> Option<&mut Stream<T>> {
        self.streams.get_mut(key.slot())?.as_mut().filter(|stream| stream.key == key)
    }

    #[inline]
    fn take(&mut self, key: StreamKey) -> Option<Stream<T>> {
        let stream = self.streams.get_mut(key.slot())?.take_if(|stream| stream.key == key)?;
        self.in_flight -= 1;
        self.is_full = false;
        Some(stream)
    }
}

fn millis(now: u64) -> u64 {
    now / 1_000_000
}

/// Flow-control windows as in Go's HTTP/2 client. They are so large that no response and no watch waits for a window.
const CONFIG: Config =
    Config { streams_max: 0, stream_window: 4 << 20, connection_window: 1 << 30, speaks_for_many: false };

const RESET: &str = "stream reset by the server";

const ACCEPT: FieldName<'static> = FieldName::new(b"accept");
const AGENT: FieldName<'static> = FieldName::new(b"user-agent");
const CONTENT_TYPE: FieldName<'static> = FieldName::new(b"content-type");
const CONTENT_LENGTH: FieldName<'static> = FieldName::new(b"content-length");

#[cfg(test)]
mod tests {
    use super::*;
    use crate::origin::MediaType;

    fn send(http: &mut Http2<u32>, method: &'static str, tag: u32, body: Option<&[u8]>) -> Vec<u8> {
        let origin = Origin::new(Version::Http2, true, "127.0.0.1:8443", MediaType::Json);
        let target = format!("/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases/node-{tag}");
        let mut out = Vec::new();
        assert!(http.send(&origin, &Request { method, target: &target, body }, tag, &mut out));
        out
    }

    #[test]
    fn hpack_compresses_a_repeated_head_to_about_its_path() {
        let mut http = Http2::new(Bodies::Whole, &mut Vec::new());
        // A frame head has 9 octets. Method, scheme, authority, accept and user-agent have 1 octet each. The path has 2
        // octets and 50 for its 72 characters in Huffman code. The first request also has the values of authority,
        // accept and user-agent, with 33 octets.
        let get = [1000, 1001].map(|tag| send(&mut http, "GET", tag, None).len());
        assert_eq!(get, [9 + 5 + 52 + 33, 9 + 5 + 52]);
        // A PUT also has content-type and content-length, 1 octet each. Then come the head of the DATA frame, 9 octets,
        // and the body.
        let put = [1100, 1101].map(|tag| send(&mut http, "PUT", tag, Some(&[b' '; 700])).len());
        assert_eq!(put[1], 9 + 7 + 52 + 9 + 700);
        assert_eq!(http.tags().collect::<Vec<_>>(), [1000, 1001, 1100, 1101]);
    }

    #[test]
    fn a_cancelled_request_resets_only_its_own_stream() {
        let mut http = Http2::new(Bodies::Whole, &mut Vec::new());
        for tag in 0..3 {
            send(&mut http, "GET", tag, None);
        }
        let mut out = Vec::new();
        assert_eq!(http.cancel(|tag| tag == 1, &mut out), [1]);
        // RST_STREAM of stream 3 with CANCEL (RFC 9113 §6.4).
        assert_eq!(out, [0, 0, 4, 3, 0, 0, 0, 0, 3, 0, 0, 0, 8]);
        assert_eq!((http.in_flight, http.tags().collect::<Vec<_>>()), (2, vec![0, 2]));
        assert_eq!(http.take_in_flight(), [0, 2]);
        assert_eq!(http.in_flight, 0);
    }
}
