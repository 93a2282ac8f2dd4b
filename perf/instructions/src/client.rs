//! The clients of the measured server, which runs in this process. Their nodes renew Leases as kubelets do: with the
//! object in the last response and a new `renewTime`. A request is encoded once, and only its changing bytes are
//! overwritten later. So the server does almost all of the counted work.

use crate::world::World;
use coordination_apiserver::hpack::{Encoder, FieldName, Indexing};
use memchr::memmem;

/// HTTP version of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Version {
    /// HTTP/1.1
    Http1,
    /// HTTP/2, by prior knowledge.
    Http2,
}

/// Format in which a node sends and receives its Lease.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// `application/json`
    Json,
    /// `application/vnd.kubernetes.protobuf`
    Protobuf,
}

impl Format {
    fn media_type(self) -> &'static str {
        match self {
            Self::Json => "application/json",
            Self::Protobuf => "application/vnd.kubernetes.protobuf",
        }
    }
}

/// A client of the measured server, with one connection.
#[derive(Debug)]
pub struct Client {
    version: Version,
    connection: usize,
    encoder: Encoder,
    /// Identifier of the HTTP/2 stream that the next request opens.
    stream: u32,
}

/// One request, or several requests that are sent together. The same value can be sent repeatedly.
#[derive(Debug)]
pub struct Request {
    bytes: Vec<u8>,
    /// HTTP/2 only: offset of the stream identifier in each frame, in bytes, and the index of the frame's request.
    streams_at: Vec<(usize, u32)>,
    /// Number of requests in `bytes`.
    count: u32,
    /// Offset of the last request's body in `bytes`; the length of `bytes` if this request has no body.
    body_at: usize,
}

impl Request {
    /// Joins the bytes of several requests, so that they are sent together.
    #[must_use]
    pub fn join(requests: &[Self]) -> Self {
        let mut joined = Self { bytes: Vec::new(), streams_at: Vec::new(), count: 0, body_at: 0 };
        for request in requests {
            let (start, first) = (joined.bytes.len(), joined.count);
            joined.bytes.extend_from_slice(&request.bytes);
            joined.streams_at.extend(request.streams_at.iter().map(|(at, nth)| (start + at, first + nth)));
            joined.count += request.count;
            joined.body_at = start + request.body_at;
        }
        joined
    }
}

impl Client {
    /// Opens a connection to the server of `world`.
    #[must_use]
    pub fn connect(world: &mut World, version: Version) -> Self {
        let connection = world.connect();
        if version == Version::Http2 {
            // The HTTP/2 preface, SETTINGS with large windows for streams, and WINDOW_UPDATE for the window of the
            // connection.
            let mut hello = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".to_vec();
            hello.extend_from_slice(&[0, 0, 6, 4, 0, 0, 0, 0, 0, 0, 4, 0x7f, 0xff, 0xff, 0xff]);
            hello.extend_from_slice(&[0, 0, 4, 8, 0, 0, 0, 0, 0, 0x7f, 0, 0, 0]);
            world.receive(connection, &hello);
        }
        Self { version, connection, encoder: Encoder::new(4096), stream: 1 }
    }

    /// Builds a request. In HTTP/2 the HPACK dynamic table contains all its fields except the path, as on a connection
    /// in use. If it does not contain them yet, this method first sends another request with the same fields.
    #[must_use]
    pub fn request(&mut self, world: &mut World, method: &str, target: &str, format: Format, body: &[u8]) -> Request {
        if self.version == Version::Http2 {
            let mut first = self.encoded(method, "/version", format, body);
            if self.encoded(method, "/version", format, body).bytes != first.bytes {
                self.send(world, &mut first);
            }
        }
        self.encoded(method, target, format, body)
    }

    fn encoded(&mut self, method: &str, target: &str, format: Format, body: &[u8]) -> Request {
        let (media_type, agent) = (format.media_type(), "kubelet/v1.34.1 (linux/amd64) kubernetes/93248f9");
        let length = body.len().to_string();
        let mut bytes = Vec::new();
        let mut streams_at = Vec::new();
        if self.version == Version::Http1 {
            let mut head = format!(
                "{method} {target} HTTP/1.1\r\nHost: 127.0.0.1:6443\r\nUser-Agent: {agent}\r\nAccept: {media_type}\r\n"
            );
            if !body.is_empty() {
                head.push_str(&format!("Content-Type: {media_type}\r\nContent-Length: {length}\r\n"));
            }
            bytes.extend_from_slice(head.as_bytes());
            bytes.extend_from_slice(b"\r\n");
            bytes.extend_from_slice(body);
        } else {
            let mut block = Vec::new();
            self.encoder.begin_block(&mut block);
            let fields = [
                (":method", method, Indexing::Value),
                (":scheme", "https", Indexing::Value),
                // The path has many values, so it is not added to the dynamic table. kube-apiserver's proxy does not
                // add most paths either.
                (":path", target, Indexing::Name),
                (":authority", "127.0.0.1:6443", Indexing::Value),
                ("accept", media_type, Indexing::Value),
                ("user-agent", agent, Indexing::Value),
                ("content-type", media_type, Indexing::Value),
                ("content-length", &length, Indexing::Value),
            ];
            let count = if body.is_empty() { fields.len() - 2 } else { fields.len() };
            for (name, value, indexing) in &fields[..count] {
                self.encoder.encode_field(FieldName::new(name.as_bytes()), value.as_bytes(), *indexing, &mut block);
            }
            let flags = if body.is_empty() { END_HEADERS | END_STREAM } else { END_HEADERS };
            push_frame(&mut bytes, &mut streams_at, HEADERS, flags, &block);
            if !body.is_empty() {
                push_frame(&mut bytes, &mut streams_at, DATA, END_STREAM, body);
            }
        }
        let body_at = bytes.len() - body.len();
        Request { bytes, streams_at, count: 1, body_at }
    }

    /// Sends a request to the server and returns the bytes of the response.
    pub fn send<'w>(&mut self, world: &'w mut World, request: &mut Request) -> &'w [u8] {
        for (at, nth) in &request.streams_at {
            request.bytes[*at..at + 4].copy_from_slice(&(self.stream + 2 * nth).to_be_bytes());
        }
        self.stream += 2 * request.count;
        world.receive(self.connection, &request.bytes)
    }

    /// Returns the body of the only response in `response`.
    #[must_use]
    pub fn body_of<'r>(&self, response: &'r [u8]) -> &'r [u8] {
        if self.version == Version::Http1 {
            let head_end = memmem::find(response, b"\r\n\r\n").map_or(0, |at| at + 4);
            return &response[head_end..];
        }
        let mut rest = response;
        while let [a, b, c, kind, _, _, _, _, _, after @ ..] = rest {
            let length = (usize::from(*a) << 16) | (usize::from(*b) << 8) | usize::from(*c);
            if *kind == DATA {
                return &after[..length];
            }
            rest = &after[length..];
        }
        &[]
    }
}

const DATA: u8 = 0;
const HEADERS: u8 = 1;
const END_STREAM: u8 = 1;
const END_HEADERS: u8 = 4;

fn push_frame(out: &mut Vec<u8>, streams_at: &mut Vec<(usize, u32)>, kind: u8, flags: u8, payload: &[u8]) {
    let length = u32::try_from(payload.len()).unwrap_or(u32::MAX).to_be_bytes();
    out.extend_from_slice(&length[1..]);
    out.extend_from_slice(&[kind, flags]);
    streams_at.push((out.len(), 0));
    out.extend_from_slice(&[0; 4]);
    out.extend_from_slice(payload);
}

/// A node: its Lease, and the request that renews it.
#[derive(Debug)]
pub struct Node {
    format: Format,
    renewal: Request,
    /// Offset of the changing part of `renewTime` in the body, in bytes.
    renew_at: usize,
    /// Number of renewals sent. It determines the next `renewTime`, so each renewal changes the Lease.
    count: u32,
}

/// Path of the Leases of all nodes.
pub const LEASES: &str = "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases";

/// Returns the path of the Lease of node `number`.
#[must_use]
pub fn target_of(number: usize) -> String {
    format!("{LEASES}/{}", name_of(number))
}

fn name_of(number: usize) -> String {
    format!("ip-10-{:03}-{:03}-{:03}.internal", (number >> 16) & 255, (number >> 8) & 255, number & 255)
}

impl Node {
    /// Creates the Lease of node `number`, as the node's kubelet does.
    ///
    /// # Panics
    /// If the response is not a Lease.
    #[must_use]
    pub fn create(world: &mut World, client: &mut Client, number: usize, format: Format) -> Self {
        let name = name_of(number);
        let lease = format!(
            r#"{{"kind":"Lease","apiVersion":"coordination.k8s.io/v1","metadata":{{"name":"{name}","namespace":"kube-node-lease","ownerReferences":[{{"apiVersion":"v1","kind":"Node","name":"{name}","uid":"5dfea7de-ed50-4ae2-986c-{number:012x}"}}]}},"spec":{{"holderIdentity":"{name}","leaseDurationSeconds":40,"renewTime":"2026-11-21T00:02:25.500000Z"}}}}"#
        );
        let mut creation = client.request(world, "POST", LEASES, Format::Json, lease.as_bytes());
        client.send(world, &mut creation);
        let mut get = client.request(world, "GET", &target_of(number), format, &[]);
        let answer = client.send(world, &mut get);
        let body = client.body_of(answer).to_vec();
        let renew_at = match format {
            // The six digits of the microseconds, which follow the seconds.
            Format::Json => memmem::rfind(&body, b"\"renewTime\":\"").map(|at| at + 33),
            // The nanoseconds, a varint of five bytes: 500,000,000.
            Format::Protobuf => memmem::rfind(&body, &[0x10, 0x80, 0xca, 0xb5, 0xee, 0x01]).map(|at| at + 1),
        };
        let renew_at = renew_at.expect("an answer with a Lease");
        let renewal = client.request(world, "PUT", &target_of(number), format, &body);
        Self { format, renewal, renew_at, count: 0 }
    }

    /// Renews the node's Lease, and stores the object in the response for the next renewal.
    pub fn renew(&mut self, world: &mut World, client: &mut Client) {
        self.count += 1;
        let place = &mut self.renewal.bytes[self.renewal.body_at + self.renew_at..];
        match self.format {
            Format::Json => {
                let mut micros = 500_000 + self.count % 400_000;
                for digit in place[..6].iter_mut().rev() {
                    let [ones, ..] = (micros % 10).to_le_bytes();
                    *digit = b'0' + ones;
                    micros /= 10;
                }
            }
            Format::Protobuf => {
                let mut nanos = 500_000_000 + self.count % 400_000 * 1000;
                for byte in &mut place[..5] {
                    let [low, ..] = nanos.to_le_bytes();
                    *byte = low | 0x80;
                    nanos >>= 7;
                }
                place[4] &= 0x7f;
            }
        }
        let answer = client.send(world, &mut self.renewal);
        let own = &mut self.renewal.bytes[self.renewal.body_at..];
        // A response ends with its body. All bodies have the same length, since the numbers that change in them keep
        // their lengths.
        let (_, body) = answer.split_at(answer.len() - own.len());
        own.copy_from_slice(body);
    }
}
