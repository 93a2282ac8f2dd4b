//! The network between a replica and etcd. Each connection goes through a proxy that can cut the connection, delay it,
//! or drop the bytes of one direction.

use std::collections::BTreeMap;
use std::io::{self, Read as _, Write as _};
use std::net::{Ipv4Addr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::Duration;

/// The network from one replica to all members of etcd, with its faults.
#[derive(Clone, Debug)]
pub(crate) struct Network(Arc<Shared>);

#[derive(Debug, Default)]
struct Shared {
    /// Delay of each piece of data, in milliseconds.
    delay_ms: AtomicU64,
    /// Whether bytes from the replica to etcd are dropped.
    swallows_requests: AtomicBool,
    /// Whether bytes from etcd to the replica are dropped.
    swallows_answers: AtomicBool,
    /// Number that the next socket gets in `open`.
    next: AtomicU64,
    /// The sockets of all open connections, by number. Each connection has two: one to the replica and one to etcd.
    open: Mutex<BTreeMap<u64, TcpStream>>,
}

impl Network {
    /// Creates a network without faults.
    pub(crate) fn new() -> Self {
        Self(Arc::default())
    }

    /// Opens a port of 127.0.0.1 that forwards to `target`. The forwarding thread runs until crashtest exits.
    pub(crate) fn lead_to(&self, target: u16) -> io::Result<u16> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
        let port = listener.local_addr()?.port();
        let shared = self.0.clone();
        thread::spawn(move || {
            for client in listener.incoming().flatten() {
                // A dead member refuses the connection. Then `client` is dropped, which closes it.
                if let Ok(server) = TcpStream::connect(SocketAddr::from((Ipv4Addr::LOCALHOST, target))) {
                    _ = shared.connect(&client, &server);
                }
            }
        });
        Ok(port)
    }

    /// Sets the faults of the network: the delay in milliseconds, and whether requests and responses are dropped.
    pub(crate) fn set(&self, delay_ms: u64, swallows_requests: bool, swallows_answers: bool) {
        self.0.delay_ms.store(delay_ms, Ordering::Relaxed);
        self.0.swallows_requests.store(swallows_requests, Ordering::Relaxed);
        self.0.swallows_answers.store(swallows_answers, Ordering::Relaxed);
    }

    /// Cuts all connections.
    pub(crate) fn cut(&self) {
        for stream in std::mem::take(&mut *self.0.lock()).into_values() {
            // The other end may have closed the connection.
            _ = stream.shutdown(Shutdown::Both);
        }
    }

    /// Ends all network faults. Cuts the connections if bytes may have been dropped, since TLS cannot continue after a
    /// gap.
    pub(crate) fn heal(&self) {
        let was_hurt =
            self.0.swallows_requests.load(Ordering::Relaxed) || self.0.swallows_answers.load(Ordering::Relaxed);
        self.set(0, false, false);
        if was_hurt {
            self.cut();
        }
    }
}

impl Shared {
    fn lock(&self) -> std::sync::MutexGuard<'_, BTreeMap<u64, TcpStream>> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn connect(self: &Arc<Self>, client: &TcpStream, server: &TcpStream) -> io::Result<()> {
        for (from, to, is_request) in [(client, server, true), (server, client, false)] {
            from.set_nodelay(true)?;
            let (from, to) = (from.try_clone()?, to.try_clone()?);
            let number = self.next.fetch_add(1, Ordering::Relaxed);
            self.lock().insert(number, from.try_clone()?);
            let shared = self.clone();
            thread::spawn(move || {
                shared.copy(from, to, is_request);
                shared.lock().remove(&number);
            });
        }
        Ok(())
    }

    fn copy(&self, mut from: TcpStream, mut to: TcpStream, is_request: bool) {
        let mut piece = vec![0; 64 * 1024];
        let swallows = if is_request { &self.swallows_requests } else { &self.swallows_answers };
        while let Ok(count @ 1..) = from.read(&mut piece) {
            let delay_ms = self.delay_ms.load(Ordering::Relaxed);
            if delay_ms > 0 {
                thread::sleep(Duration::from_millis(delay_ms));
            }
            if !swallows.load(Ordering::Relaxed) && to.write_all(piece.get(..count).unwrap_or_default()).is_err() {
                break;
            }
        }
        _ = to.shutdown(Shutdown::Both);
        _ = from.shutdown(Shutdown::Both);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Instant;

    #[test]
    fn a_connection_that_has_ended_keeps_no_socket_open() {
        let target = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a port");
        let network = Network::new();
        let port = network.lead_to(target.local_addr().expect("an address").port()).expect("a port");
        let mut client = TcpStream::connect((Ipv4Addr::LOCALHOST, port)).expect("a connection");
        client.write_all(b"x").expect("a request");
        let (mut server, _) = target.accept().expect("a connection");
        server.read_exact(&mut [0]).expect("a request");
        server.write_all(b"y").expect("a response");
        client.read_exact(&mut [0]).expect("a response");
        assert_eq!(network.0.lock().len(), 2);
        drop(client);
        let begun = Instant::now();
        while !network.0.lock().is_empty() {
            assert!(begun.elapsed() < Duration::from_secs(10), "{network:?}");
            thread::sleep(Duration::from_millis(1));
        }
    }
}
