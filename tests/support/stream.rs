//! A byte stream to the server: cleartext, or TLS.

use super::PATIENCE;
use rustls::pki_types::ServerName;
use rustls::{ClientConfig, ClientConnection, StreamOwned};
use std::io::{self, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::sync::Arc;
use std::time::Duration;

/// Address of a server, and whether to use TLS.
#[derive(Clone)]
pub(crate) struct Endpoint {
    /// Address of the port.
    pub(crate) address: SocketAddr,
    /// Configuration of TLS; `None` for cleartext.
    pub(crate) tls: Option<Arc<ClientConfig>>,
}

/// One blocking connection.
pub(crate) enum Stream {
    /// A socket without TLS.
    Cleartext(TcpStream),
    /// A socket with TLS by rustls.
    Tls(Box<StreamOwned<ClientConnection, TcpStream>>),
}

impl Endpoint {
    /// Returns the endpoint with only this protocol of ALPN.
    pub(crate) fn with_alpn(&self, protocol: &[u8]) -> Self {
        let tls = self.tls.as_deref().map(|config| {
            let mut config = config.clone();
            config.alpn_protocols = vec![protocol.to_vec()];
            Arc::new(config)
        });
        Self { tls, ..self.clone() }
    }

    /// Connects. With TLS the first read or write runs the handshake.
    pub(crate) fn connect(&self) -> io::Result<Stream> {
        let socket = TcpStream::connect_timeout(&self.address, PATIENCE)?;
        socket.set_nodelay(true)?;
        socket.set_read_timeout(Some(PATIENCE))?;
        socket.set_write_timeout(Some(PATIENCE))?;
        let Some(config) = &self.tls else { return Ok(Stream::Cleartext(socket)) };
        let name = ServerName::try_from("localhost").map_err(io::Error::other)?;
        let session = ClientConnection::new(Arc::clone(config), name).map_err(io::Error::other)?;
        Ok(Stream::Tls(Box::new(StreamOwned::new(session, socket))))
    }
}

impl Stream {
    /// Returns the protocol that ALPN has chosen, after the first read or write.
    pub(crate) fn alpn(&self) -> Option<&[u8]> {
        match self {
            Self::Cleartext(_) => None,
            Self::Tls(stream) => stream.conn.alpn_protocol(),
        }
    }

    /// Returns the socket.
    pub(crate) fn socket(&self) -> &TcpStream {
        match self {
            Self::Cleartext(socket) => socket,
            Self::Tls(stream) => &stream.sock,
        }
    }

    /// Sets the timeout of a read; `None` for no limit.
    pub(crate) fn set_read_timeout(&self, patience: Option<Duration>) {
        self.socket().set_read_timeout(patience).expect("a time-out can be set");
    }

    /// Reads once, and appends the bytes to `into`.
    pub(crate) fn read_once(&mut self, into: &mut Vec<u8>) -> io::Result<()> {
        let mut piece = [0; 32 * 1024];
        match self.read(&mut piece)? {
            0 => Err(io::Error::new(io::ErrorKind::UnexpectedEof, "the server closed the connection")),
            count => {
                into.extend_from_slice(&piece[..count]);
                Ok(())
            }
        }
    }

    /// Closes the sending side. Reading remains possible.
    pub(crate) fn finish_sending(&mut self) {
        if let Self::Tls(stream) = self {
            stream.conn.send_close_notify();
            let _peer_may_be_gone = stream.flush();
        }
        let _peer_may_be_gone = self.socket().shutdown(Shutdown::Write);
    }
}

impl Read for Stream {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        match self {
            Self::Cleartext(socket) => socket.read(into),
            Self::Tls(stream) => stream.read(into),
        }
    }
}

impl Write for Stream {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Self::Cleartext(socket) => socket.write(bytes),
            Self::Tls(stream) => stream.write(bytes),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        match self {
            Self::Cleartext(socket) => socket.flush(),
            Self::Tls(stream) => stream.flush(),
        }
    }
}
