//! One blocking HTTP/1.1 connection to the server, for requests or for one watch.

use coordination_apiserver::http1::client::{Piece, ResponseError, ResponseParser};
use std::io::{self, Read as _, Write as _};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::time::Duration;

/// A connection to a server. It cannot be used after an error.
#[derive(Debug)]
pub(crate) struct Connection {
    stream: TcpStream,
    parser: ResponseParser,
    buf: Vec<u8>,
}

/// The status and the body of a response.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) body: Vec<u8>,
}

/// The next part of a response that arrives in parts.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Chunk {
    Status(u16),
    /// Bytes of the body, which were appended to the caller's buffer.
    Body,
    End,
}

impl Connection {
    /// Connects to this port of 127.0.0.1. A read fails if the peer is silent for `patience`.
    pub(crate) fn open(port: u16, patience: Duration) -> io::Result<Self> {
        let stream = TcpStream::connect_timeout(&SocketAddr::from((Ipv4Addr::LOCALHOST, port)), patience)?;
        if stream.local_addr()? == stream.peer_addr()? {
            // On a port without a listener, TCP can connect a socket to itself.
            return Err(io::ErrorKind::ConnectionRefused.into());
        }
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(patience))?;
        Ok(Self { stream, parser: ResponseParser::new(usize::MAX), buf: Vec::new() })
    }

    /// Sends a request. An empty `media_type` means no body.
    pub(crate) fn send(&mut self, method: &str, path: &str, media_type: &str, body: &str) -> io::Result<()> {
        let mut text = format!("{method} {path} HTTP/1.1\r\nHost: localhost\r\nAccept: application/json\r\n");
        if !media_type.is_empty() {
            text += &format!("Content-Type: {media_type}\r\nContent-Length: {}\r\n", body.len());
        }
        text += "\r\n";
        text += body;
        self.stream.write_all(text.as_bytes())
    }

    /// Sends a request and waits for the response. The `bool` tells whether the connection can be used again.
    pub(crate) fn ask(&mut self, method: &str, path: &str, media_type: &str, body: &str) -> io::Result<(Answer, bool)> {
        self.send(method, path, media_type, body)?;
        loop {
            match self.parser.poll_whole(&mut self.buf, false).map_err(malformed)? {
                Some(whole) => {
                    let body = self.buf.get(whole.body).unwrap_or_default().to_vec();
                    self.buf.drain(..whole.consumed);
                    return Ok((Answer { status: whole.head.status, body }, whole.head.keep_alive));
                }
                None => self.fill()?,
            }
        }
    }

    /// Receives the next part of a watch's response, and appends its bytes to `body`.
    pub(crate) fn next_chunk(&mut self, body: &mut Vec<u8>) -> io::Result<Chunk> {
        loop {
            let (piece, consumed) = self.parser.poll_piece(&mut self.buf, false).map_err(malformed)?;
            let chunk = match piece {
                Some(Piece::Head(head)) => Some(Chunk::Status(head.status)),
                Some(Piece::Body(range)) => {
                    body.extend_from_slice(self.buf.get(range).unwrap_or_default());
                    Some(Chunk::Body)
                }
                Some(Piece::End) => Some(Chunk::End),
                None => None,
            };
            self.buf.drain(..consumed);
            match chunk {
                Some(chunk) => return Ok(chunk),
                None if consumed == 0 => self.fill()?,
                None => {}
            }
        }
    }

    fn fill(&mut self) -> io::Result<()> {
        let mut read = [0; READ_BYTES];
        match self.stream.read(&mut read)? {
            0 => Err(io::ErrorKind::UnexpectedEof.into()),
            count => {
                self.buf.extend_from_slice(read.get(..count).unwrap_or_default());
                Ok(())
            }
        }
    }
}

fn malformed(why: ResponseError) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, why)
}

/// Whether the server sent bytes that are not a response. A lost connection has another error.
pub(crate) fn is_malformed(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::InvalidData
}

/// Whether the server sent nothing for as long as the connection waits (its `patience`).
pub(crate) fn is_timeout(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut)
}

/// Maximum number of bytes of one read.
const READ_BYTES: usize = 64 * 1024;

#[cfg(test)]
pub(crate) mod tests {
    use std::io::{Read as _, Write as _};
    use std::net::{Ipv4Addr, TcpListener};
    use std::thread::{self, JoinHandle};

    /// Starts a server that reads a request on each connection, sends the next of these responses, and closes the
    /// connection. Returns its port, and its thread, which ends after the last response.
    pub(crate) fn serve(responses: Vec<Vec<u8>>) -> (u16, JoinHandle<()>) {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a port");
        let port = listener.local_addr().expect("an address").port();
        let server = thread::spawn(move || {
            for response in responses {
                let (mut stream, _) = listener.accept().expect("a connection");
                assert!(stream.read(&mut [0; 4096]).expect("a request") > 0);
                stream.write_all(&response).expect("a response");
            }
        });
        (port, server)
    }
}
