//! A small blocking HTTP/1.1 client (RFC 9112). It sends any bytes, valid or not, and parses responses strictly.

use super::response::{Response, ResponseHead};
use super::shown;
use super::stream::{Endpoint, Stream};
use std::io::{self, Read, Write};
use std::net::SocketAddr;

/// A connection, with the bytes that have arrived and that the test has not read yet.
pub(crate) struct Client {
    /// The connection. Public, so that tests can misuse it.
    pub(crate) stream: Stream,
    received: Vec<u8>,
    /// Bytes of the last send, as text for failure messages.
    sent: String,
}

/// Maximum number of field lines in a response head.
const FIELDS_MAX: usize = 64;

impl Client {
    /// Connects in cleartext.
    ///
    /// # Panics
    /// If the connection fails.
    #[track_caller]
    pub(crate) fn connect(address: SocketAddr) -> Self {
        Self::open(&Endpoint { address, tls: None })
    }

    /// Connects.
    ///
    /// # Panics
    /// If the connection fails.
    #[track_caller]
    pub(crate) fn open(endpoint: &Endpoint) -> Self {
        Self::try_open(endpoint).unwrap_or_else(|error| panic!("no connection to {}: {error}", endpoint.address))
    }

    /// Connects, or returns the error.
    pub(crate) fn try_open(endpoint: &Endpoint) -> io::Result<Self> {
        Ok(Self { stream: endpoint.connect()?, received: Vec::new(), sent: String::new() })
    }

    /// Sends bytes unchanged.
    ///
    /// # Panics
    /// If the write fails.
    #[track_caller]
    pub(crate) fn send(&mut self, bytes: impl AsRef<[u8]>) {
        let bytes = bytes.as_ref();
        self.try_send(bytes).unwrap_or_else(|error| panic!("not sent ({error}): {}", shown(bytes)));
    }

    /// Sends bytes unchanged, to a peer that may have closed the connection.
    pub(crate) fn try_send(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.sent = shown(bytes);
        self.stream.write_all(bytes)?;
        self.stream.flush()
    }

    /// Sends a request and reads the response. The body is JSON, or absent if empty.
    ///
    /// # Panics
    /// If no complete response arrives.
    #[track_caller]
    pub(crate) fn call(&mut self, method: &str, target: &str, body: &str) -> Response {
        self.send(request(method, target, body));
        self.recv_final(method)
    }

    /// Sends a request with these field lines, each of which ends with CRLF, and reads the response. The body is absent
    /// if empty.
    ///
    /// # Panics
    /// If no complete response arrives.
    #[track_caller]
    pub(crate) fn call_with(&mut self, method: &str, target: &str, lines: &str, body: impl AsRef<[u8]>) -> Response {
        self.send(request_with(method, target, lines, body.as_ref()));
        self.recv_final(method)
    }

    /// Reads the next response, whatever its status.
    ///
    /// # Panics
    /// If none arrives, or a malformed one.
    #[track_caller]
    pub(crate) fn recv(&mut self, method: &str) -> Response {
        self.try_recv(method).unwrap_or_else(|error| {
            panic!("no response ({error}); sent {}\ngot only {}", self.sent, shown(&self.received))
        })
    }

    /// Reads the next final response, and skips interim ones such as `100 Continue`.
    #[track_caller]
    pub(crate) fn recv_final(&mut self, method: &str) -> Response {
        loop {
            let response = self.recv(method);
            if response.status() >= 200 {
                return response;
            }
        }
    }

    /// Reads the next response, or returns the error. `method` decides whether there is content (RFC 9112 §6.3).
    pub(crate) fn try_recv(&mut self, method: &str) -> io::Result<Response> {
        let head = self.try_recv_head()?;
        let mut body = Vec::new();
        let bodiless = method == "HEAD" || head.status < 200 || head.status == 204 || head.status == 304;
        if bodiless {
            return Ok(Response { head, body });
        }
        if head.is_chunked() {
            while let Some(chunk) = self.recv_chunk()? {
                body.extend_from_slice(&chunk);
            }
        } else if let Some(length) = head.field("content-length") {
            let length: usize = length.parse().map_err(|_| invalid(format!("Content-Length: {length}")))?;
            body = self.take(length)?;
        } else {
            self.stream.read_to_end(&mut self.received)?;
            body = std::mem::take(&mut self.received);
        }
        Ok(Response { head, body })
    }

    /// Reads the next response head. Its content remains to be read.
    pub(crate) fn try_recv_head(&mut self) -> io::Result<ResponseHead> {
        let head = self.take_through(b"\r\n\r\n")?;
        let mut fields = [httparse::EMPTY_HEADER; FIELDS_MAX];
        let mut parsed = httparse::Response::new(&mut fields);
        parsed.parse(&head).map_err(|error| invalid(format!("{error} in {}", shown(&head))))?;
        let (Some(minor_version), Some(status)) = (parsed.version, parsed.code) else {
            return Err(invalid(format!("half a head: {}", shown(&head))));
        };
        let fields = parsed
            .headers
            .iter()
            .map(|field| (field.name.to_ascii_lowercase(), String::from_utf8_lossy(field.value).into_owned()));
        let version = if minor_version == 0 { "1.0" } else { "1.1" };
        Ok(ResponseHead { version, status, fields: fields.collect() })
    }

    /// Reads the next chunk's data. `None` after the last chunk (RFC 9112 §7.1).
    pub(crate) fn recv_chunk(&mut self) -> io::Result<Option<Vec<u8>>> {
        let line = self.take_through(b"\r\n")?;
        let size =
            std::str::from_utf8(&line[..line.len() - 2]).ok().and_then(|hex| usize::from_str_radix(hex, 16).ok());
        let size = size.ok_or_else(|| invalid(format!("chunk size {}", shown(&line))))?;
        let mut data = self.take(size + 2)?;
        if !data.ends_with(b"\r\n") {
            return Err(invalid(format!("no CRLF after a chunk: {}", shown(&data))));
        }
        data.truncate(size);
        Ok((size > 0).then_some(data))
    }

    /// Reads all bytes until the connection ends, orderly or not.
    pub(crate) fn recv_rest(&mut self) -> Vec<u8> {
        let mut piece = [0; 4096];
        loop {
            match self.stream.read(&mut piece) {
                Ok(0) => break,
                Ok(count) => self.received.extend_from_slice(&piece[..count]),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) if is_timeout(&error) => {
                    panic!("still open; sent {}\ngot {}", self.sent, shown(&self.received))
                }
                Err(_reset) => break,
            }
        }
        std::mem::take(&mut self.received)
    }

    /// Checks that the server has closed the connection and sent nothing more.
    ///
    /// # Panics
    /// If it has not.
    #[track_caller]
    pub(crate) fn expect_closed(&mut self) {
        let rest = self.recv_rest();
        assert!(rest.is_empty(), "want the connection closed; sent {}\ngot more: {}", self.sent, shown(&rest));
    }

    /// Takes the next `count` bytes.
    pub(crate) fn take(&mut self, count: usize) -> io::Result<Vec<u8>> {
        while self.received.len() < count {
            self.stream.read_once(&mut self.received)?;
        }
        Ok(self.received.drain(..count).collect())
    }

    /// Takes the next bytes up to and including `end`.
    fn take_through(&mut self, end: &[u8]) -> io::Result<Vec<u8>> {
        let mut searched = 0;
        loop {
            if let Some(at) = memchr::memmem::find(&self.received[searched..], end) {
                return Ok(self.received.drain(..searched + at + end.len()).collect());
            }
            searched = self.received.len().saturating_sub(end.len());
            self.stream.read_once(&mut self.received)?;
        }
    }
}

/// Builds a well-formed request. The body is JSON, or absent if empty.
pub(crate) fn request(method: &str, target: &str, body: &str) -> Vec<u8> {
    let content_type = match method {
        _ if body.is_empty() => "",
        "PATCH" => "Content-Type: application/merge-patch+json\r\n",
        _ => "Content-Type: application/json\r\n",
    };
    let lines = format!("User-Agent: test/1.0\r\nAccept: application/json\r\n{content_type}");
    request_with(method, target, &lines, body.as_bytes())
}

/// Builds a request with these field lines, each of which ends with CRLF. The body is absent if empty.
pub(crate) fn request_with(method: &str, target: &str, lines: &str, body: &[u8]) -> Vec<u8> {
    let length = if body.is_empty() { String::new() } else { format!("Content-Length: {}\r\n", body.len()) };
    let head = format!("{method} {target} HTTP/1.1\r\nHost: localhost\r\n{lines}{length}\r\n");
    [head.as_bytes(), body].concat()
}

/// Whether a read timed out.
pub(crate) fn is_timeout(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut)
}

/// Builds the error for a malformed response.
fn invalid(what: String) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, what)
}
