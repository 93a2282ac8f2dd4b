//! One socket, with or without TLS: reads and writes plaintext, and remembers the socket's readiness.
//!
//! mio reports readiness once, as an edge. So the transport remembers the readiness of each direction until a system
//! call returns `WouldBlock`. No event reports decrypted bytes inside the TLS session. So a read returns all bytes that
//! it has decrypted.

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
    /// Whether an event has reported that the peer closed its direction. If so, the server may not have read EOF yet,
    /// and no further event will report EOF.
    is_end_near: bool,
    /// Whether the peer will send no more bytes.
    is_eof: bool,
    /// The first bytes that the peer sent on a TLS connection. They show whether the peer speaks cleartext HTTP.
    first: First,
    /// Whether the peer speaks cleartext HTTP on a TLS port.
    is_misdirected: bool,
}

/// The first bytes of a connection, as many as a TLS record header has.
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

    /// Whether these bytes are the beginning of a cleartext request (Go, `net/http/server.go`,
    /// `tlsRecordHeaderLooksLikeHTTP`). Compares only the bytes received so far, since rustls may refuse a record
    /// before its five-byte header is complete. Even one byte suffices, since no TLS record begins with a letter.
    fn begins_like_http(&self) -> bool {
        let begun = &self.bytes[..self.len];
        !begun.is_empty()
            && [b"GET /", b"HEAD ", b"POST ", b"PUT /", b"OPTIO"].iter().any(|http| http.starts_with(begun))
    }
}

/// Maximum bytes of plaintext encrypted at once. No more plaintext is encrypted until the socket has taken the
/// encrypted bytes.
const ENCRYPTED_BYTES_MAX: usize = 64 * 1024;

/// Response of Go's server to cleartext HTTP on a TLS port (`net/http/server.go`, `conn.serve`).
const MISDIRECTED: &[u8] = b"HTTP/1.0 400 Bad Request\r\n\r\nClient sent an HTTP request to an HTTPS server.\n";

/// Converts an error of TLS, which ends the connection.
fn tls_error(e: rustls::Error) -> io::Error {
    io::Error::new(ErrorKind::InvalidData, e)
}

impl Transport {
    /// Returns a cleartext transport.
    #[must_use]
    pub(crate) fn cleartext(socket: TcpStream) -> Self {
        // A fresh socket is writable; an event reports when it is readable.
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

    /// Returns a TLS transport in which this program is the TLS server.
    ///
    /// # Errors
    /// If rustls refuses the configuration.
    pub(crate) fn tls(socket: TcpStream, config: Arc<ServerConfig>) -> io::Result<Self> {
        let mut session = ServerConnection::new(config).map_err(tls_error)?;
        // The buffers of rustls need no limit of their own. The transport encrypts nothing until the previous encrypted
        // bytes are sent, and the connection bounds its output.
        session.set_buffer_limit(None);
        Ok(Self { tls: Some(Box::new(session)), ..Self::cleartext(socket) })
    }

    /// Returns the socket, so that the caller can register it.
    pub(crate) fn socket_mut(&mut self) -> &mut TcpStream {
        &mut self.socket
    }

    /// Notes the readiness that an event reports.
    pub(crate) fn note_readiness(&mut self, event: &mio::event::Event) {
        self.is_end_near |= event.is_read_closed() || event.is_error();
        self.readable |= event.is_readable() || event.is_read_closed() || event.is_error();
        self.writable |= event.is_writable() || event.is_write_closed() || event.is_error();
    }

    /// Whether a read may return bytes or EOF.
    #[must_use]
    pub(crate) fn is_readable(&self) -> bool {
        self.readable && !self.is_eof
    }

    /// Whether the peer will send no more bytes.
    #[must_use]
    pub(crate) fn is_eof(&self) -> bool {
        self.is_eof
    }

    /// Whether the TLS handshake is in progress.
    #[must_use]
    pub(crate) fn is_handshaking(&self) -> bool {
        self.tls.as_ref().is_some_and(|tls| tls.is_handshaking())
    }

    /// Whether the server has processed the ClientHello of the TLS handshake.
    #[must_use]
    pub(crate) fn has_begun_handshake(&self) -> bool {
        self.tls.as_ref().is_some_and(|tls| tls.protocol_version().is_some())
    }

    /// Whether the peer has closed its direction. Unread bytes may still come before EOF.
    #[must_use]
    pub(crate) fn is_end_near(&self) -> bool {
        self.is_end_near
    }

    /// Whether this is a TLS transport.
    #[must_use]
    pub(crate) fn is_tls(&self) -> bool {
        self.tls.is_some()
    }

    /// Returns the negotiated protocol (RFC 7301), after the handshake.
    #[must_use]
    pub(crate) fn alpn(&self) -> Option<&[u8]> {
        self.tls.as_ref()?.alpn_protocol()
    }

    /// Returns the peer's certificate chain after the handshake, the peer's own certificate first. Empty if the peer
    /// sent no certificate.
    #[must_use]
    pub(crate) fn peer_certificates(&self) -> &[CertificateDer<'static>] {
        self.tls.as_ref().and_then(|tls| tls.peer_certificates()).unwrap_or_default()
    }

    /// Reads once and appends plaintext to `input`. Returns the number of bytes read from the socket. 0 means
    /// `WouldBlock`, which clears the readiness, or EOF, which sets [`Transport::is_eof`].
    ///
    /// # Errors
    /// An error of the socket or of TLS. The connection is then useless. After an error of TLS, rustls has queued an
    /// alert with the reason.
    pub(crate) fn read(&mut self, input: &mut ByteBuf, pool: &mut Pool) -> io::Result<usize> {
        let Some(tls) = &mut self.tls else {
            let spare = input.spare_mut(pool);
            let room = spare.len();
            let read = read_socket(&self.socket, spare, &mut self.readable, &mut self.is_eof)?;
            input.fill(read);
            // A short read has emptied the socket; the next event reports further bytes (epoll(7)). But no event
            // reports EOF again, so the server reads on if EOF is near.
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

    /// Sends as much of `output` as the socket takes, and removes the sent bytes. Returns `Ok(true)` if nothing is
    /// left to send.
    ///
    /// # Errors
    /// An error of the socket.
    pub(crate) fn write(&mut self, output: &mut Output) -> io::Result<bool> {
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
            // Plaintext is encrypted only when the previous encrypted bytes are sent. So most plaintext stays in
            // `output`, whose size is bounded.
            if output.is_empty() || tls.is_handshaking() {
                return Ok(output.is_empty());
            }
            let pending = output.pending();
            let taken = tls.writer().write(&pending[..pending.len().min(ENCRYPTED_BYTES_MAX)])?;
            output.consume(taken);
        }
    }

    /// Closes the server's direction: sends close_notify, then FIN.
    pub(crate) fn close_write(&mut self, output: &mut Output) {
        if let Some(tls) = &mut self.tls {
            tls.send_close_notify();
            // A close_notify that the socket does not take now is dropped. The peer then sees only FIN or RST.
            let _ = self.write(output);
        }
        let _ = self.socket.shutdown(std::net::Shutdown::Write);
    }

    /// Sends as much of the alert of a failed TLS session as the socket takes, and closes the server's direction. A
    /// peer that speaks cleartext HTTP gets an HTTP response instead of the alert.
    pub(crate) fn send_alert(&mut self) {
        if self.is_misdirected {
            let _ = write_socket(&self.socket, MISDIRECTED, &mut self.writable);
        } else if self.tls.is_some() {
            let _ = self.write(&mut Output::default());
        }
        let _ = self.socket.shutdown(std::net::Shutdown::Write);
    }

    /// Reads and drops the peer's input, as much as one turn of the event loop allows. Returns `Ok(true)` at EOF.
    /// Closing the socket with unread input would send RST, and the peer could lose the last response (RFC 9112 §9.6).
    ///
    /// # Errors
    /// An error of the socket.
    pub(crate) fn discard(&mut self, scratch: &mut [u8]) -> io::Result<bool> {
        let mut bytes = 0;
        while self.is_readable() && bytes < READ_BYTES_PER_TURN {
            bytes += read_socket(&self.socket, scratch, &mut self.readable, &mut self.is_eof)?;
        }
        Ok(self.is_eof)
    }
}

/// Plaintext that the connection has queued for sending.
#[derive(Debug, Default)]
pub(crate) struct Output {
    data: Vec<u8>,
    start: usize,
}

impl Output {
    /// Returns the plaintext that is not sent yet.
    #[must_use]
    pub(crate) fn pending(&self) -> &[u8] {
        &self.data[self.start..]
    }

    /// Returns the number of bytes of plaintext that are not sent yet.
    #[must_use]
    pub(crate) fn len(&self) -> usize {
        self.data.len() - self.start
    }

    /// Whether all plaintext is sent.
    #[must_use]
    pub(crate) fn is_empty(&self) -> bool {
        self.start == self.data.len()
    }

    /// Returns the buffer to append to. Takes memory from `pool` if the output owns no buffer.
    pub(crate) fn buffer(&mut self, pool: &mut Pool) -> &mut Vec<u8> {
        if self.data.capacity() == 0 {
            self.data = pool.take();
            self.data.clear();
        }
        if self.start > 0 {
            // Moves the unsent bytes to the front, so that the buffer contains only unsent bytes. This rarely takes
            // long, since a partly sent output is rarely large.
            self.data.drain(..self.start);
            self.start = 0;
        }
        &mut self.data
    }

    /// Removes the first `bytes` bytes of the unsent plaintext.
    pub(crate) fn consume(&mut self, bytes: usize) {
        assert!(bytes <= self.len(), "consumed more than waits");
        self.start += bytes;
    }

    /// Returns the memory of the buffer to `pool` if all plaintext is sent.
    pub(crate) fn release(&mut self, pool: &mut Pool) {
        if self.is_empty() && self.data.capacity() > 0 {
            self.start = 0;
            pool.give(std::mem::take(&mut self.data));
        }
    }
}

/// Reads once, and again if a signal interrupts the read. Returns 0 at `WouldBlock`, which clears `readable`, or at
/// EOF, which sets `is_eof`.
fn read_socket(mut socket: &TcpStream, into: &mut [u8], readable: &mut bool, is_eof: &mut bool) -> io::Result<usize> {
    transfer(readable, || socket.read(into).inspect(|read| *is_eof |= *read == 0))
}

/// Writes once, and again if a signal interrupts the write. Returns 0 if the socket's buffer is full.
fn write_socket(mut socket: &TcpStream, bytes: &[u8], writable: &mut bool) -> io::Result<usize> {
    transfer(writable, || match socket.write(bytes)? {
        0 => Err(ErrorKind::WriteZero.into()),
        written => Ok(written),
    })
}

/// Calls `once`, and again if a signal interrupts the call. Returns 0 at `WouldBlock`, which clears `is_ready`.
fn transfer(is_ready: &mut bool, mut once: impl FnMut() -> io::Result<usize>) -> io::Result<usize> {
    loop {
        match once() {
            Err(e) if e.kind() == ErrorKind::WouldBlock => {
                *is_ready = false;
                return Ok(0);
            }
            Err(e) if e.kind() == ErrorKind::Interrupted => {}
            done => return done,
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
                // A short read has emptied the socket, as in cleartext, so the socket is no longer readable. But if EOF
                // is near, the server must read on, since no event reports EOF again.
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
