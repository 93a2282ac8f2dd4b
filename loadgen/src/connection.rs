//! One connection to the server: a non-blocking socket, optional TLS, and buffers for both directions.
//!
//! This module owns the socket, the TLS session, received bytes that are not consumed yet, and bytes to send. It does
//! not know what the bytes mean. The poll is edge-triggered, so the connection stores the readiness of its socket. A
//! readable socket is read until a read returns `WouldBlock`, or fewer bytes than there was room for.

use crate::target::Target;
use mio::net::TcpStream;
use mio::{Interest, Registry, Token};
use rustls::{ClientConnection, HandshakeKind};
use std::io::{self, Read as _, Write as _};

/// A connection, from the first attempt to connect.
#[derive(Debug)]
pub(crate) struct Connection {
    socket: TcpStream,
    tls: Option<Box<ClientConnection>>,
    /// Whether the socket is connected. The TLS handshake may still be in progress.
    connected: bool,
    /// Whether [`Connection::take_handshake`] has returned the kind of the TLS handshake.
    handshake_told: bool,
    readable: bool,
    writable: bool,
    /// Whether the peer has closed its side of the connection. Reading then continues to the end of the stream.
    read_closed: bool,
    /// Received plaintext: `input[start..end]` is not consumed yet; the space after `end` is free.
    input: Vec<u8>,
    start: usize,
    end: usize,
    /// Plaintext to send. The first `sent` bytes of it were sent.
    output: Vec<u8>,
    sent: usize,
}

/// Outcome of [`Connection::receive`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Received {
    /// New input may have arrived, and more may follow.
    Some,
    /// No more input until the socket becomes readable again.
    Nothing,
    /// The peer has closed its side of the connection, and all bytes from it were received.
    Eof,
}

impl Connection {
    /// Begins to connect to the server, and registers the socket under `token`.
    pub(crate) fn open(target: &Target, registry: &Registry, token: Token) -> io::Result<Self> {
        let mut socket = TcpStream::connect(target.address)?;
        // Best effort: the kernel may refuse the option on a socket that is not connected yet.
        _ = socket.set_nodelay(true);
        registry.register(&mut socket, token, Interest::READABLE | Interest::WRITABLE)?;
        let tls = target.new_tls().map_err(io::Error::other)?;
        Ok(Self {
            socket,
            tls,
            connected: false,
            handshake_told: false,
            readable: false,
            writable: false,
            read_closed: false,
            input: vec![0; INPUT_BYTES_MIN],
            start: 0,
            end: 0,
            output: Vec::new(),
            sent: 0,
        })
    }

    /// Deregisters and closes the socket.
    pub(crate) fn close(mut self, registry: &Registry) {
        // Sends the rest of the output if the socket accepts it. After a violation of HTTP/2, the output ends with a
        // GOAWAY that tells the server the reason.
        _ = self.flush();
        if let Some(tls) = &mut self.tls {
            tls.send_close_notify();
            _ = tls.write_tls(&mut self.socket);
        }
        // A failure does no harm: the registration ends when the socket is closed.
        _ = registry.deregister(&mut self.socket);
    }

    /// Records the readiness that the poll reported for the socket.
    pub(crate) fn handle_readiness(&mut self, event: &mio::event::Event) {
        self.readable |= event.is_readable() || event.is_error();
        self.writable |= event.is_writable() || event.is_error();
        self.read_closed |= event.is_read_closed();
    }

    /// Whether the TCP connection is open and the TLS handshake done, so that requests can be sent.
    pub(crate) fn is_ready(&self) -> bool {
        self.connected && self.tls.as_ref().is_none_or(|tls| !tls.is_handshaking())
    }

    /// Returns the kind of the TLS handshake (full or resumed), once after the end of the handshake.
    pub(crate) fn take_handshake(&mut self) -> Option<HandshakeKind> {
        let tls = self.tls.as_ref()?;
        if self.handshake_told || tls.is_handshaking() {
            return None;
        }
        self.handshake_told = true;
        tls.handshake_kind()
    }

    /// Returns the protocol that ALPN chose, after the handshake.
    pub(crate) fn alpn(&self) -> Option<&[u8]> {
        self.tls.as_ref()?.alpn_protocol()
    }

    /// Marks the connection as open, if the socket has become writable. Returns the error if connecting has failed.
    pub(crate) fn advance(&mut self) -> io::Result<()> {
        if !self.connected && self.writable {
            if let Some(error) = self.socket.take_error()? {
                return Err(error);
            }
            match self.socket.peer_addr() {
                Ok(_) => self.connected = true,
                Err(error) if error.kind() == io::ErrorKind::NotConnected => self.writable = false,
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// Reads once from the socket. `scratch` is the buffer for ciphertext.
    pub(crate) fn receive(&mut self, scratch: &mut [u8]) -> io::Result<Received> {
        if !self.connected || !self.readable {
            return Ok(Received::Nothing);
        }
        let (read, room) = if self.tls.is_some() {
            (self.socket.read(scratch), scratch.len())
        } else {
            self.make_room();
            let room = self.input.get_mut(self.end..).unwrap_or_default();
            let len = room.len();
            (self.socket.read(room), len)
        };
        let len = match read {
            Ok(0) => return Ok(Received::Eof),
            Ok(len) => len,
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                self.readable = false;
                return Ok(Received::Nothing);
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => return Ok(Received::Some),
            Err(error) => return Err(error),
        };
        // A read that does not fill its buffer has emptied the socket. Later bytes raise another edge. But if the poll
        // has reported the end of the stream already, no further edge comes, so the socket stays readable.
        self.readable = len == room || self.read_closed;
        if self.tls.is_some() {
            self.decrypt(scratch.get(..len).unwrap_or_default())?;
        } else {
            self.end += len;
        }
        Ok(Received::Some)
    }

    /// Decrypts ciphertext, and appends the plaintext to the input.
    fn decrypt(&mut self, mut ciphertext: &[u8]) -> io::Result<()> {
        while !ciphertext.is_empty() {
            let Some(tls) = &mut self.tls else { return Ok(()) };
            tls.read_tls(&mut ciphertext)?;
            let state = tls.process_new_packets().map_err(|e| io::Error::new(io::ErrorKind::InvalidData, e));
            if state.is_err() {
                // The TLS alert tells the server the reason.
                _ = tls.write_tls(&mut self.socket);
            }
            let mut plaintext_len = state?.plaintext_bytes_to_read();
            while plaintext_len > 0 {
                self.make_room();
                let (Some(tls), Some(room)) = (&mut self.tls, self.input.get_mut(self.end..)) else { break };
                let len = tls.reader().read(room)?;
                self.end += len;
                plaintext_len = plaintext_len.saturating_sub(len.max(1));
            }
        }
        Ok(())
    }

    /// Makes room for more input if the buffer is full: moves the unconsumed bytes to the front or, if they fill the
    /// whole buffer, doubles it.
    fn make_room(&mut self) {
        if self.start == self.end {
            (self.start, self.end) = (0, 0);
        }
        if self.end == self.input.len() && self.start > 0 {
            self.input.copy_within(self.start..self.end, 0);
            (self.start, self.end) = (0, self.end - self.start);
        }
        if self.end == self.input.len() {
            let len = self.input.len() * 2;
            self.input.resize(len, 0);
        }
    }

    /// Returns the received bytes that are not consumed yet.
    pub(crate) fn input(&mut self) -> &mut [u8] {
        self.input.get_mut(self.start..self.end).unwrap_or_default()
    }

    /// Returns the received bytes that are not consumed yet, and the buffer of bytes to send.
    pub(crate) fn split(&mut self) -> (&[u8], &mut Vec<u8>) {
        (self.input.get(self.start..self.end).unwrap_or_default(), &mut self.output)
    }

    /// Drops `len` bytes from the front of the input.
    pub(crate) fn consume(&mut self, len: usize) {
        self.start = (self.start + len).min(self.end);
    }

    /// Returns the buffer of bytes to send.
    pub(crate) fn output(&mut self) -> &mut Vec<u8> {
        &mut self.output
    }

    /// Sends as much as the socket accepts.
    pub(crate) fn flush(&mut self) -> io::Result<()> {
        if !self.connected {
            return Ok(());
        }
        if let Some(tls) = &mut self.tls {
            if !self.output.is_empty() && !tls.is_handshaking() {
                tls.writer().write_all(&self.output)?;
                self.output.clear();
            }
            while self.writable && tls.wants_write() {
                match tls.write_tls(&mut self.socket) {
                    Ok(_) => {}
                    Err(error) if error.kind() == io::ErrorKind::WouldBlock => self.writable = false,
                    Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                    Err(error) => return Err(error),
                }
            }
            return Ok(());
        }
        while self.writable && self.sent < self.output.len() {
            match self.socket.write(self.output.get(self.sent..).unwrap_or_default()) {
                Ok(len) => self.sent += len,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => self.writable = false,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        if self.sent == self.output.len() {
            self.output.clear();
            self.sent = 0;
        }
        Ok(())
    }
}

/// Initial size of the input buffer, in bytes. The buffer has room for several responses. It grows if responses are
/// larger, or arrive faster than they are consumed.
const INPUT_BYTES_MIN: usize = 16 * 1024;
