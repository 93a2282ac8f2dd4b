//! A listening socket: accepts connections until `WouldBlock`, and pauses when the process has no descriptor left.

use crate::limits::ACCEPT_PAUSE_MS;
use crate::transport::Transport;
use mio::net::TcpListener;
use mio::{Interest, Registry, Token};
use rustls::ServerConfig;
use socket2::{Domain, Protocol, SockRef, Socket, TcpKeepalive, Type};
use std::io::{self, ErrorKind};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

/// Length of the accept queue. The kernel caps this length at `net.core.somaxconn`.
const BACKLOG: i32 = 4096;

/// Returns the TCP keepalive settings, which detect silent peers.
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
    /// End of the listener's pause, in ms; `None` if the listener is not paused.
    resume_ms: Option<u64>,
}

/// Result of an accept.
#[derive(Debug)]
pub(crate) enum Accepted {
    /// A connection.
    Connection(Transport),
    /// No connection is waiting.
    Nothing,
    /// The process or the system is out of descriptors or memory. No edge-triggered event reports the end of the
    /// shortage, and immediate retries would be a busy loop. So the listener pauses.
    Exhausted(io::Error),
}

impl Listener {
    /// Listens on `addr`. 0.0.0.0 and :: mean every address of both families, as in Go. Without IPv6, 0.0.0.0 means
    /// every IPv4 address.
    ///
    /// # Errors
    /// The error of the system.
    pub(crate) fn bind(addr: SocketAddr, tls: Option<Arc<ServerConfig>>) -> io::Result<Self> {
        let socket = if addr.ip() == IpAddr::V4(Ipv4Addr::UNSPECIFIED) {
            match bound(SocketAddr::from((Ipv6Addr::UNSPECIFIED, addr.port()))) {
                Err(e) if e.kind() != ErrorKind::AddrInUse => bound(addr),
                every_address => every_address,
            }
        } else {
            bound(addr)
        }?;
        socket.listen(BACKLOG)?;
        let socket = TcpListener::from_std(socket.into());
        let local_addr = SocketAddr::new(addr.ip(), socket.local_addr()?.port());
        Ok(Self { socket, local_addr, tls, readable: false, resume_ms: None })
    }

    /// Uses `config` for new handshakes, if the listener serves TLS.
    pub(crate) fn set_tls(&mut self, config: &Arc<ServerConfig>) {
        if let Some(own) = &mut self.tls {
            *own = Arc::clone(config);
        }
    }

    /// Returns the bound address. The system chose its port if the configured port is 0.
    #[must_use]
    pub(crate) fn local_addr(&self) -> SocketAddr {
        self.local_addr
    }

    /// Whether the listener serves TLS.
    #[must_use]
    pub(crate) fn is_tls(&self) -> bool {
        self.tls.is_some()
    }

    /// Registers the listening socket with the poll.
    ///
    /// # Errors
    /// The error of the system.
    pub(crate) fn register(&mut self, registry: &Registry, token: Token) -> io::Result<()> {
        registry.register(&mut self.socket, token, Interest::READABLE)
    }

    /// Notes that connections may be waiting in the accept queue.
    pub(crate) fn on_readable(&mut self) {
        self.readable = true;
    }

    /// Whether connections may be waiting and no pause is in effect.
    #[must_use]
    pub(crate) fn is_readable(&self) -> bool {
        self.readable && self.resume_ms.is_none()
    }

    /// Returns the time of the next accept, in ms. This is 0 if a connection may be waiting, and `None` if an event
    /// will report the next connection.
    #[must_use]
    pub(crate) fn due_ms(&self) -> Option<u64> {
        self.resume_ms.or_else(|| self.readable.then_some(0))
    }

    /// Accepts the next connection, ready to be registered.
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
                    // Each response is written in one call. Nagle's algorithm would hold a response back until the
                    // peer acknowledges the previous response, often for 40 ms.
                    let _ = socket.set_nodelay(true);
                    // Keepalive detects within minutes that a peer has vanished silently, even on a watch without
                    // events.
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
                // The peer has already disconnected, or a signal interrupted the call (accept(2)).
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

/// Creates a socket bound to `addr`. A socket bound to :: accepts IPv4 connections too.
fn bound(addr: SocketAddr) -> io::Result<Socket> {
    let socket = Socket::new(Domain::for_address(addr), Type::STREAM, Some(Protocol::TCP))?;
    if addr.ip() == IpAddr::V6(Ipv6Addr::UNSPECIFIED) {
        socket.set_only_v6(false)?;
    }
    // A restart must not wait for the previous process's connections to time out.
    socket.set_reuse_address(true)?;
    socket.set_nonblocking(true)?;
    socket.bind(&addr.into())?;
    Ok(socket)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::TcpStream;

    #[test]
    fn an_unspecified_address_accepts_ipv4_and_ipv6() {
        let has_ipv6 = std::net::TcpListener::bind((Ipv6Addr::LOCALHOST, 0)).is_ok();
        for every in [IpAddr::V4(Ipv4Addr::UNSPECIFIED), IpAddr::V6(Ipv6Addr::UNSPECIFIED)] {
            if every.is_ipv6() && !has_ipv6 {
                continue;
            }
            let listener = Listener::bind(SocketAddr::new(every, 0), None).expect("a port");
            assert_eq!(listener.local_addr().ip(), every);
            let reaches = |ip: IpAddr| TcpStream::connect((ip, listener.local_addr().port())).is_ok();
            assert!(reaches(Ipv4Addr::LOCALHOST.into()), "{every}");
            assert_eq!(reaches(Ipv6Addr::LOCALHOST.into()), has_ipv6, "{every}");
        }
    }

    #[test]
    fn an_ipv4_address_excludes_ipv6_and_a_busy_port_is_refused() {
        let listener = Listener::bind(SocketAddr::from((Ipv4Addr::LOCALHOST, 0)), None).expect("a port");
        let port = listener.local_addr().port();
        assert!(TcpStream::connect((Ipv6Addr::LOCALHOST, port)).is_err());
        let error = Listener::bind(SocketAddr::from((Ipv4Addr::UNSPECIFIED, port)), None).expect_err("it is taken");
        assert_eq!(error.kind(), ErrorKind::AddrInUse);
    }
}
