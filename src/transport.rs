//! One socket, with or without TLS: plaintext in, plaintext out, and what readiness is left.
//!
//! Both directions keep the readiness that mio reported as an edge until the kernel says `WouldBlock`. Bytes held
//! within TLS raise no event, so everything decrypted is handed over in the call that read it.

use crate::buffer::{ByteBuf, Pool};
use crate::limits::READ_BYTES_PER_TURN;
use mio::net::TcpStream;
use rustls::{ServerConfig, ServerConnection};
use rustls_pki_types::CertificateDer;
use std::io::{self, ErrorKind, Read, Write};
use std::sync::Arc;

/// A connected socket.
#[derive(Debug)]
pub(crate) struct Transport {
    socket: TcpStream,
    tls: Option<Box<ServerConnection>>,
    readable: bool,
    writable: bool,
    /// An event said that the peer has closed its direction: there is an end to be read, and no further edge for it.
    is_end_near: bool,
    /// The peer will send no more.
    is_eof: bool,
    /// The first bytes that came where TLS is spoken.
    first: First,
    /// The peer speaks HTTP in the clear where TLS is spoken.
    is_misdirected: bool,
}

/// The bytes with which a connection begins: as many as a record of TLS has before its content.
#[derive(Debug, Default)]
struct First {
    bytes: [u8; 5],
    len: usize,
}

impl First {
    fn push(&mut self, read: &[u8]) {
        let left = &mut self.bytes[self.len..];
        let taken = left.len().min(read.len());
        left[..taken].copy_from_slice(&read[..taken]);
        self.len += taken;
    }

    /// Whether a request in the clear begins so (Go, `net/http/server.go`, `tlsRecordHeaderLooksLikeHTTP`), as far as
    /// it has come: rustls may refuse a record before its head is whole. No record of TLS begins with a letter.
    fn begins_like_http(&self) -> bool {
        let begun = &self.bytes[..self.len];
        !begun.is_empty()
            && [b"GET /", b"HEAD ", b"POST ", b"PUT /", b"OPTIO"].iter().any(|http| http.starts_with(begun))
    }
}

/// Plaintext that is encrypted before the socket has taken what was encrypted before it.
const ENCRYPTED_BYTES_MAX: usize = 64 * 1024;

/// What Go's server says to HTTP in the clear on a port of TLS (`net/http/server.go`, `conn.serve`).
const MISDIRECTED: &[u8] = b"HTTP/1.0 400 Bad Request\r\n\r\nClient sent an HTTP request to an HTTPS server.\n";

/// What a refused or broken TLS session is to the loop: the end of the connection.
fn tls_error(e: rustls::Error) -> io::Error {
    io::Error::new(ErrorKind::InvalidData, e)
}

impl Transport {
    /// Cleartext.
    #[must_use]
    pub(crate) fn cleartext(socket: TcpStream) -> Self {
        // A fresh socket can be written to; whether it can be read, an event will tell.
        Self {
            socket,
            tls: None,
            readable: false,
            writable: true,
            is_end_near: false,
            is_eof: false,
            first: First::default(),
            is_misdirected: false,
        }
    }

    /// TLS, the server's side.
    ///
    /// # Errors
    /// If rustls refuses the configuration.
    pub(crate) fn tls(socket: TcpStream, config: Arc<ServerConfig>) -> io::Result<Self> {
        let mut session = ServerConnection::new(config).map_err(tls_error)?;
        // How much may be queued is the connection's to say: nothing is encrypted before the last has gone.
        session.set_buffer_limit(None);
        Ok(Self { tls: Some(Box::new(session)), ..Self::cleartext(socket) })
    }

    /// The socket, to be registered.
    pub(crate) fn socket_mut(&mut self) -> &mut TcpStream {
        &mut self.socket
    }

    /// Takes note of an event.
    pub(crate) fn on_event(&mut self, event: &mio::event::Event) {
        self.is_end_near |= event.is_read_closed() || event.is_error();
        self.readable |= event.is_readable() || event.is_read_closed() || event.is_error();
        self.writable |= event.is_writable() || event.is_write_closed() || event.is_error();
    }

    /// Whether a read may find something.
    #[must_use]
    pub(crate) fn is_readable(&self) -> bool {
        self.readable && !self.is_eof
    }

    /// Whether the peer will send no more.
    #[must_use]
    pub(crate) fn is_eof(&self) -> bool {
        self.is_eof
    }

    /// Whether the TLS handshake goes on.
    #[must_use]
    pub(crate) fn is_handshaking(&self) -> bool {
        self.tls.as_ref().is_some_and(|tls| tls.is_handshaking())
    }

    /// Whether the peer's first message of the TLS handshake has been answered.
    #[must_use]
    pub(crate) fn has_begun_handshake(&self) -> bool {
        self.tls.as_ref().is_some_and(|tls| tls.protocol_version().is_some())
    }

    /// Whether the peer has closed its direction, perhaps behind bytes that have not been read.
    #[must_use]
    pub(crate) fn is_end_near(&self) -> bool {
        self.is_end_near
    }

    /// Whether this is TLS at all.
    #[must_use]
    pub(crate) fn is_tls(&self) -> bool {
        self.tls.is_some()
    }

    /// The protocol that both sides agreed on (RFC 7301), after the handshake.
    #[must_use]
    pub(crate) fn alpn(&self) -> Option<&[u8]> {
        self.tls.as_ref()?.alpn_protocol()
    }

    /// The certificates that the peer has shown, its own first, after the handshake. Empty if it has none.
    #[must_use]
    pub(crate) fn peer_certificates(&self) -> &[CertificateDer<'static>] {
        self.tls.as_ref().and_then(|tls| tls.peer_certificates()).unwrap_or_default()
    }

    /// Reads once: plaintext is appended to `input`. Gives the number of bytes that came off the socket; 0 when there
    /// are none now, which clears the readiness, or never again, which sets [`Transport::is_eof`].
    ///
    /// # Errors
    /// The socket's or TLS's; the connection is of no use then. An alert that says why has been queued.
    pub(crate) fn receive(&mut self, input: &mut ByteBuf, pool: &mut Pool) -> io::Result<usize> {
        let Some(tls) = &mut self.tls else {
            let spare = input.spare_mut(pool);
            let room = spare.len();
            let read = read_socket(&self.socket, spare, &mut self.readable, &mut self.is_eof)?;
            input.fill(read);
            // A short read has emptied the socket; the next edge tells of more (epoll(7)).
            self.readable &= read == room || self.is_end_near;
            return Ok(read);
        };
        let mut source = SocketReader {
            socket: &self.socket,
            readable: &mut self.readable,
            is_end_near: self.is_end_near,
            is_eof: &mut self.is_eof,
            first: &mut self.first,
        };
        let read = match tls.read_tls(&mut source) {
            Ok(read) => read,
            Err(e) if e.kind() == ErrorKind::WouldBlock => 0,
            Err(e) => return Err(e),
        };
        if read > 0 {
            let state = match tls.process_new_packets() {
                Ok(state) => state,
                Err(error) => {
                    self.is_misdirected = self.first.begins_like_http();
                    return Err(tls_error(error));
                }
            };
            let mut left = state.plaintext_bytes_to_read();
            self.is_eof |= state.peer_has_closed();
            while left > 0 {
                let spare = input.spare_mut(pool);
                let take = spare.len().min(left);
                let got = tls.reader().read(&mut spare[..take])?;
                if got == 0 {
                    break;
                }
                input.fill(got);
                left -= got;
            }
        }
        Ok(read)
    }

    /// Sends what of `output` the socket takes, and removes it. `Ok(true)` if nothing is left to send.
    ///
    /// # Errors
    /// The socket's.
    pub(crate) fn send(&mut self, output: &mut Output) -> io::Result<bool> {
        let Some(tls) = &mut self.tls else {
            while self.writable && !output.is_empty() {
                match write_socket(&self.socket, output.pending(), &mut self.writable)? {
                    0 => break,
                    written => output.consume(written),
                }
            }
            return Ok(output.is_empty());
        };
        loop {
            while tls.wants_write() {
                if !self.writable {
                    return Ok(false);
                }
                let mut sink = SocketWriter { socket: &self.socket, writable: &mut self.writable };
                match tls.write_tls(&mut sink) {
                    Ok(0) => return Err(ErrorKind::WriteZero.into()),
                    Ok(_) => {}
                    Err(e) if e.kind() == ErrorKind::WouldBlock => return Ok(false),
                    Err(e) => return Err(e),
                }
            }
            // Encrypting only what the socket is ready for keeps the plaintext in one place and bounded.
            if output.is_empty() || tls.is_handshaking() {
                return Ok(output.is_empty());
            }
            let pending = output.pending();
            let taken = tls.writer().write(&pending[..pending.len().min(ENCRYPTED_BYTES_MAX)])?;
            output.consume(taken);
        }
    }

    /// Ends our direction: close_notify, then the socket's FIN once that has gone.
    pub(crate) fn close_write(&mut self, output: &mut Output) {
        if let Some(tls) = &mut self.tls {
            tls.send_close_notify();
            // What cannot be sent now need not be: the peer gets FIN or RST in its place.
            let _ = self.send(output);
        }
        let _ = self.socket.shutdown(std::net::Shutdown::Write);
    }

    /// Sends the alert that a failed session has queued, as far as the socket takes it, and ends our direction. A peer
    /// that speaks HTTP gets an answer that it understands.
    pub(crate) fn send_alert(&mut self) {
        if self.is_misdirected {
            let _ = write_socket(&self.socket, MISDIRECTED, &mut self.writable);
        } else if self.tls.is_some() {
            let _ = self.send(&mut Output::default());
        }
        let _ = self.socket.shutdown(std::net::Shutdown::Write);
    }

    /// Reads and drops what the peer still sends (RFC 9112 §9.6), as much as a turn allows. `Ok(true)` at its end.
    ///
    /// # Errors
    /// The socket's.
    pub(crate) fn discard(&mut self, scratch: &mut [u8]) -> io::Result<bool> {
        let mut bytes = 0;
        while self.is_readable() && bytes < READ_BYTES_PER_TURN {
            bytes += read_socket(&self.socket, scratch, &mut self.readable, &mut self.is_eof)?;
        }
        Ok(self.is_eof)
    }
}

/// Plaintext that waits to be sent.
#[derive(Debug, Default)]
pub(crate) struct Output {
    data: Vec<u8>,
    start: usize,
}

impl Output {
    /// Bytes that wait.
    #[must_use]
    pub(crate) fn pending(&self) -> &[u8] {
        &self.data[self.start..]
    }

    /// Number of bytes that wait.
    #[must_use]
    pub(crate) fn len(&self) -> usize {
        self.data.len() - self.start
    }

    /// Whether nothing waits.
    #[must_use]
    pub(crate) fn is_empty(&self) -> bool {
        self.start == self.data.len()
    }

    /// Where to append. Takes memory from `pool` if it has none.
    pub(crate) fn buffer(&mut self, pool: &mut Pool) -> &mut Vec<u8> {
        if self.data.capacity() == 0 {
            self.data = pool.take();
            self.data.clear();
        }
        if self.start > 0 {
            // What was sent in part is rarely much: keeping the rest at the front lets everybody else count from 0.
            self.data.drain(..self.start);
            self.start = 0;
        }
        &mut self.data
    }

    /// Drops the first `bytes`.
    pub(crate) fn consume(&mut self, bytes: usize) {
        assert!(bytes <= self.len(), "consumed more than waits");
        self.start += bytes;
    }

    /// Gives the memory back to `pool` if nothing waits.
    pub(crate) fn release(&mut self, pool: &mut Pool) {
        if self.is_empty() && self.data.capacity() > 0 {
            self.start = 0;
            pool.give(std::mem::take(&mut self.data));
        }
    }
}

/// One read, retried when a signal interrupts it. 0 with the flags telling why.
fn read_socket(mut socket: &TcpStream, into: &mut [u8], readable: &mut bool, is_eof: &mut bool) -> io::Result<usize> {
    loop {
        match socket.read(into) {
            Ok(0) => {
                *is_eof = true;
                return Ok(0);
            }
            Ok(read) => return Ok(read),
            Err(e) if e.kind() == ErrorKind::WouldBlock => {
                *readable = false;
                return Ok(0);
            }
            Err(e) if e.kind() == ErrorKind::Interrupted => {}
            Err(e) => return Err(e),
        }
    }
}

/// One write, retried when a signal interrupts it. 0 when the socket is full.
fn write_socket(mut socket: &TcpStream, bytes: &[u8], writable: &mut bool) -> io::Result<usize> {
    loop {
        match socket.write(bytes) {
            Ok(0) => return Err(ErrorKind::WriteZero.into()),
            Ok(written) => return Ok(written),
            Err(e) if e.kind() == ErrorKind::WouldBlock => {
                *writable = false;
                return Ok(0);
            }
            Err(e) if e.kind() == ErrorKind::Interrupted => {}
            Err(e) => return Err(e),
        }
    }
}

/// The socket as rustls reads it.
struct SocketReader<'a> {
    socket: &'a TcpStream,
    readable: &'a mut bool,
    is_end_near: bool,
    is_eof: &'a mut bool,
    first: &'a mut First,
}

impl Read for SocketReader<'_> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        match read_socket(self.socket, into, self.readable, self.is_eof)? {
            0 if !*self.is_eof => Err(ErrorKind::WouldBlock.into()),
            read => {
                self.first.push(&into[..read]);
                // As in cleartext: a short read saves the one that would find nothing.
                *self.readable &= read == into.len() || self.is_end_near;
                Ok(read)
            }
        }
    }
}

/// The socket as rustls writes it.
struct SocketWriter<'a> {
    socket: &'a TcpStream,
    writable: &'a mut bool,
}

impl Write for SocketWriter<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match write_socket(self.socket, bytes, self.writable)? {
            0 => Err(ErrorKind::WouldBlock.into()),
            written => Ok(written),
        }
    }

    fn write_vectored(&mut self, pieces: &[io::IoSlice<'_>]) -> io::Result<usize> {
        let mut socket = self.socket;
        loop {
            match socket.write_vectored(pieces) {
                Err(e) if e.kind() == ErrorKind::Interrupted => {}
                Err(e) => {
                    *self.writable &= e.kind() != ErrorKind::WouldBlock;
                    return Err(e);
                }
                Ok(written) => return Ok(written),
            }
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
