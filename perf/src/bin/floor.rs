//! A minimal HTTP/1.1 server with one mio event loop. Its costs are the floor for a comparison with the API server: the
//! least that such a server costs. It answers every request with the body of the request, and parses only as much as it
//! needs to find the request's end.
//!
//!     perf-floor PORT
//!
//! Listens on 127.0.0.1 and prints a line on standard output when it listens. Each turn of the event loop usually reads
//! and writes once for each ready connection. Buffers are reused. So only the costs of the kernel and of the poll
//! remain.

#![forbid(unsafe_code)]

use mio::net::{TcpListener, TcpStream};
use mio::{Events, Interest, Poll, Token};
use std::io::{self, Read as _, Write as _};
use std::net::{Ipv4Addr, SocketAddr};
use std::process::ExitCode;

fn main() -> ExitCode {
    let port = std::env::args().nth(1).and_then(|port| port.parse().ok());
    let Some(port) = port else {
        _ = writeln!(io::stderr(), "perf-floor: usage: perf-floor PORT");
        return ExitCode::from(2);
    };
    match serve(port) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            _ = writeln!(io::stderr(), "perf-floor: port {port}: {error}");
            ExitCode::FAILURE
        }
    }
}

/// A connection, with input that is not answered yet and output that is not sent yet.
struct Connection {
    socket: TcpStream,
    input: Vec<u8>,
    output: Vec<u8>,
    sent: usize,
}

fn serve(port: u16) -> io::Result<()> {
    let mut poll = Poll::new()?;
    let mut listener = TcpListener::bind(SocketAddr::from((Ipv4Addr::LOCALHOST, port)))?;
    poll.registry().register(&mut listener, LISTENER, Interest::READABLE)?;
    _ = writeln!(io::stdout(), "listening on 127.0.0.1:{port}");
    let mut connections: Vec<Option<Connection>> = Vec::new();
    let mut events = Events::with_capacity(1024);
    let mut scratch = vec![0; SCRATCH_BYTES];
    loop {
        if let Err(error) = poll.poll(&mut events, None)
            && error.kind() != io::ErrorKind::Interrupted
        {
            return Err(error);
        }
        for event in &events {
            if event.token() == LISTENER {
                accept(&listener, &poll, &mut connections)?;
                continue;
            }
            let Some(place) = connections.get_mut(event.token().0) else { continue };
            // A connection is closed after an I/O error or a malformed request.
            if place.as_mut().is_some_and(|connection| connection.turn(&mut scratch).is_err()) {
                *place = None;
            }
        }
    }
}

fn accept(listener: &TcpListener, poll: &Poll, connections: &mut Vec<Option<Connection>>) -> io::Result<()> {
    loop {
        let mut socket = match listener.accept() {
            Ok((socket, _)) => socket,
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(()),
            Err(error) => return Err(error),
        };
        socket.set_nodelay(true)?;
        let free = connections.iter().position(Option::is_none).unwrap_or(connections.len());
        poll.registry().register(&mut socket, Token(free), Interest::READABLE | Interest::WRITABLE)?;
        let connection = Connection { socket, input: Vec::new(), output: Vec::new(), sent: 0 };
        match connections.get_mut(free) {
            Some(place) => *place = Some(connection),
            None => connections.push(Some(connection)),
        }
    }
}

impl Connection {
    fn turn(&mut self, scratch: &mut [u8]) -> io::Result<()> {
        self.flush()?;
        loop {
            match self.socket.read(scratch) {
                Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
                Ok(len) => {
                    self.receive(scratch.get(..len).unwrap_or_default())?;
                    self.flush()?;
                    // A read that does not fill the buffer means that the socket is empty.
                    if len < scratch.len() {
                        return Ok(());
                    }
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(()),
                Err(error) => return Err(error),
            }
        }
    }

    /// Appends a response to each complete request in the input, and stores the rest of the input.
    fn receive(&mut self, read: &[u8]) -> io::Result<()> {
        if self.input.is_empty() {
            let taken = answer(read, &mut self.output)?;
            self.input.extend_from_slice(read.get(taken..).unwrap_or_default());
        } else {
            self.input.extend_from_slice(read);
            let taken = answer(&self.input, &mut self.output)?;
            self.input.drain(..taken);
        }
        Ok(())
    }

    fn flush(&mut self) -> io::Result<()> {
        while let Some(rest) = self.output.get(self.sent..).filter(|rest| !rest.is_empty()) {
            match self.socket.write(rest) {
                Ok(len) => self.sent += len,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(()),
                Err(error) => return Err(error),
            }
        }
        self.output.clear();
        self.sent = 0;
        Ok(())
    }
}

/// Appends a response to every complete request in `input`. Returns the number of bytes of these requests.
fn answer(input: &[u8], output: &mut Vec<u8>) -> io::Result<usize> {
    let mut taken = 0;
    while let Some(rest) = input.get(taken..).filter(|rest| !rest.is_empty()) {
        let Some(head_end) = memchr::memmem::find(rest, b"\r\n\r\n").map(|at| at + 4) else { break };
        let head = rest.get(..head_end).unwrap_or_default();
        let length = length_of(head).ok_or(io::ErrorKind::InvalidData)?;
        let Some(body) = rest.get(head_end..head_end + length) else { break };
        _ = write!(output, "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: {length}\r\n\r\n");
        output.extend_from_slice(body);
        taken += head_end + length;
    }
    Ok(taken)
}

/// Returns the value of `Content-Length`, or 0 if the field is missing. The load generator always spells the name this
/// way.
fn length_of(head: &[u8]) -> Option<usize> {
    let key = b"\r\nContent-Length: ";
    let Some(at) = memchr::memmem::find(head, key) else { return Some(0) };
    let digits = head.get(at + key.len()..)?;
    let digits = digits.get(..memchr::memchr(b'\r', digits)?)?;
    let length = std::str::from_utf8(digits).ok()?.parse().ok()?;
    (length <= BODY_BYTES_MAX).then_some(length)
}

const LISTENER: Token = Token(usize::MAX - 1);
const SCRATCH_BYTES: usize = 64 * 1024;
const BODY_BYTES_MAX: usize = 1 << 20;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn complete_requests_are_answered() {
        let request = b"PUT /x HTTP/1.1\r\nHost: y\r\nContent-Length: 3\r\n\r\nabc";
        let input = [request.as_slice(), request].concat();
        for end in 0..=input.len() {
            let mut output = Vec::new();
            let taken = answer(&input[..end], &mut output).expect("requests");
            assert_eq!(taken, end / request.len() * request.len());
            assert_eq!(memchr::memmem::find_iter(&output, b"\r\n\r\nabc").count(), end / request.len());
        }
        assert!(answer(b"PUT / HTTP/1.1\r\nContent-Length: x\r\n\r\n", &mut Vec::new()).is_err());
    }
}
