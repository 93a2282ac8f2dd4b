//! A listening socket: connections out of it until `WouldBlock`, and a rest when the process has no descriptor left.

use crate::limits::ACCEPT_PAUSE_MS;
use crate::transport::Transport;
use mio::net::TcpListener;
use mio::{Interest, Registry, Token};
use rustls::ServerConfig;
use socket2::{Domain, Protocol, SockRef, Socket, TcpKeepalive, Type};
use std::io::{self, ErrorKind};
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

/// Connections that the kernel holds for us; it takes no more than its own `somaxconn`.
const BACKLOG: i32 = 4096;

/// How the kernel asks a silent peer whether it is there.
fn keepalive() -> TcpKeepalive {
    TcpKeepalive::new().with_time(Duration::from_secs(60)).with_interval(Duration::from_secs(15)).with_retries(4)
}

/// A listening socket, with or without TLS.
#[derive(Debug)]
pub(crate) struct Listener {
    socket: TcpListener,
    local_addr: SocketAddr,
    tls: Option<Arc<ServerConfig>>,
    readable: bool,
    /// Milliseconds until which it rests.
    resume_ms: Option<u64>,
}

/// What an accept gave.
#[derive(Debug)]
pub(crate) enum Accepted {
    /// A connection.
    Connection(Transport),
    /// None now.
    Nothing,
    /// The process or the system is out of descriptors or memory. No edge will tell when that is over, and trying on
    /// would spin, so the listener rests.
    Exhausted(io::Error),
}

impl Listener {
    /// Listens on `addr`.
    ///
    /// # Errors
    /// The system's.
    pub(crate) fn bind(addr: SocketAddr, tls: Option<Arc<ServerConfig>>) -> io::Result<Self> {
        let socket = Socket::new(Domain::for_address(addr), Type::STREAM, Some(Protocol::TCP))?;
        // A restart must not wait for connections of the last run to time out.
        socket.set_reuse_address(true)?;
        socket.set_nonblocking(true)?;
        socket.bind(&addr.into())?;
        socket.listen(BACKLOG)?;
        let socket = TcpListener::from_std(socket.into());
        let local_addr = socket.local_addr()?;
        Ok(Self { socket, local_addr, tls, readable: false, resume_ms: None })
    }

    /// Serves the handshakes that begin from now on with another configuration, if it serves TLS at all.
    pub(crate) fn set_tls(&mut self, config: &Arc<ServerConfig>) {
        if let Some(own) = &mut self.tls {
            *own = Arc::clone(config);
        }
    }

    /// Where it listens, with the port that the system chose if none was named.
    #[must_use]
    pub(crate) fn local_addr(&self) -> SocketAddr {
        self.local_addr
    }

    /// Whether it serves TLS.
    #[must_use]
    pub(crate) fn is_tls(&self) -> bool {
        self.tls.is_some()
    }

    /// Registers it.
    ///
    /// # Errors
    /// The system's.
    pub(crate) fn register(&mut self, registry: &Registry, token: Token) -> io::Result<()> {
        registry.register(&mut self.socket, token, Interest::READABLE)
    }

    /// Takes note that there may be connections.
    pub(crate) fn on_readable(&mut self) {
        self.readable = true;
    }

    /// Whether there may be connections that can be accepted at once.
    #[must_use]
    pub(crate) fn is_readable(&self) -> bool {
        self.readable && self.resume_ms.is_none()
    }

    /// Milliseconds at which it is to be tried again.
    #[must_use]
    pub(crate) fn resume_ms(&self) -> Option<u64> {
        self.resume_ms
    }

    /// The next connection, ready to be registered.
    pub(crate) fn accept(&mut self, now_ms: u64) -> Accepted {
        match self.resume_ms {
            Some(resume_ms) if now_ms < resume_ms => return Accepted::Nothing,
            Some(_) => {
                self.resume_ms = None;
                self.readable = true;
            }
            None => {}
        }
        while self.readable {
            match self.socket.accept() {
                Ok((socket, _)) => {
                    // Responses are written whole; holding one back for the acknowledgement of the last costs 40 ms.
                    let _ = socket.set_nodelay(true);
                    // A peer that is gone without a word is noticed in some minutes, also behind a quiet watch.
                    let _ = SockRef::from(&socket).set_tcp_keepalive(&keepalive());
                    let transport = match &self.tls {
                        None => Ok(Transport::cleartext(socket)),
                        Some(config) => Transport::tls(socket, Arc::clone(config)),
                    };
                    match transport {
                        Ok(transport) => return Accepted::Connection(transport),
                        Err(error) => tracing::warn!(%error, "cannot begin a TLS session"),
                    }
                }
                Err(e) if e.kind() == ErrorKind::WouldBlock => self.readable = false,
                // The peer has gone again, or a signal came (accept(2)).
                Err(e) if matches!(e.kind(), ErrorKind::Interrupted | ErrorKind::ConnectionAborted) => {}
                Err(e) => {
                    self.resume_ms = Some(now_ms + ACCEPT_PAUSE_MS);
                    return Accepted::Exhausted(e);
                }
            }
        }
        Accepted::Nothing
    }
}
