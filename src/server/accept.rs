//! Accepts connections up to the connection limit. At the limit, evicts an anonymous peer's connection for a new
//! connection. A TLS peer is anonymous if it has no certificate, or one that gives it no rights.

use super::Server;
use crate::clock::Now;
use crate::conn::Conn;
use crate::limits::{ACCEPT_PAUSE_MS, ACCEPTS_PER_TURN, ANONYMOUS_MS_MIN};
use crate::listener::{Accepted, Listener};
use crate::transport::Transport;
use mio::Interest;

impl Server {
    pub(super) fn accept(&mut self, now: Now) {
        // The cleartext listener, the last one in the list, comes first. Peers of the public TLS listener must not keep
        // out clients on this host.
        for at in (0..self.listeners.len()).rev() {
            for nth in 0..ACCEPTS_PER_TURN {
                self.close_dead(now);
                if nth == 0 && self.is_full() && self.listeners[at].is_readable() {
                    self.tell_full(now);
                }
                if self.stop_ms.is_some() || self.place_ms().is_none_or(|place_ms| now.ms < place_ms) {
                    break;
                }
                let Some(listener) = self.listeners.get_mut(at) else { break };
                match listener.accept(now.ms) {
                    Accepted::Connection(transport) => {
                        self.make_place();
                        self.add(transport, now);
                    }
                    Accepted::Nothing => break,
                    Accepted::Exhausted(error) => {
                        self.service.api.metrics.counts.accept_errors += 1;
                        if self.exhausted_warning.count(now).is_some() {
                            tracing::warn!(%error, pause_ms = ACCEPT_PAUSE_MS, "cannot accept a connection");
                        }
                        break;
                    }
                }
            }
        }
    }

    /// Logs, at most once per interval, that the connection limit is reached.
    fn tell_full(&mut self, now: Now) {
        if self.full_warning.count(now).is_some() {
            let connections = self.open_connections();
            let what = if self.conns.oldest_anonymous().is_some() {
                "each new connection evicts the oldest one of a peer without rights, once that one is 0.5 s old"
            } else {
                "all peers have rights, so new connections wait"
            };
            tracing::warn!(connections, "the connection limit is reached: {what}");
        }
    }

    /// Returns the time at which the next waiting connection can be accepted, in ms; `None` if no connection waits, or
    /// if the server can evict no connection yet.
    pub(super) fn accept_ms(&mut self) -> Option<u64> {
        let due_ms = self.listeners.iter().filter_map(Listener::due_ms).min()?;
        Some(due_ms.max(self.place_ms()?))
    }

    /// Returns the time at which the server may accept one more connection, in ms. This is 0 below the connection
    /// limit. At the limit, it is the time at which the oldest anonymous peer may be evicted. It is `None` if no peer
    /// is anonymous, or if the handshake of the oldest anonymous peer waits for this server. Each anonymous peer first
    /// gets [`ANONYMOUS_MS_MIN`] to show a certificate. Otherwise new peers would evict each other before any handshake
    /// completes. The time for which a handshake waits for this server does not count.
    fn place_ms(&mut self) -> Option<u64> {
        if !self.is_full() {
            return Some(0);
        }
        let oldest = self.conns.oldest_anonymous()?;
        Some(self.conns.get_mut(oldest)?.conn.anonymous_since_ms()? + ANONYMOUS_MS_MIN)
    }

    /// At the connection limit, closes connections that nobody uses any more: those from before a reload of the store,
    /// and those whose peer is gone. They wait for a turn with enough time to close them. Until then, they must not
    /// cost another peer its connection.
    fn close_dead(&mut self, now: Now) {
        while self.is_full() {
            let metrics = &mut self.service.api.metrics;
            if self.former.as_mut().is_some_and(|former| former.close_connection(metrics)) {
                continue;
            }
            let is_dead = |token| self.conns.get_mut(token).is_none_or(|entry| entry.conn.is_abandoned());
            let Some(token) = self.queues.pop_ending_if(is_dead) else { return };
            self.end_connection(token, now);
        }
    }

    /// Evicts the connection of the oldest anonymous peer if the connection limit is reached. Otherwise any peer could
    /// keep all other peers out with idle connections.
    fn make_place(&mut self) {
        if !self.is_full() {
            return;
        }
        if let Some(token) = self.conns.oldest_anonymous() {
            self.service.api.metrics.counts.connections_evicted += 1;
            self.close(token);
        }
    }

    fn add(&mut self, mut transport: Transport, now: Now) {
        let registry = self.poll.registry();
        let added = self.conns.add(|token| {
            registry.register(transport.socket_mut(), token, Interest::READABLE | Interest::WRITABLE)?;
            Ok(Conn::new(transport, now))
        });
        match added {
            Ok(entry) => self.queues.enqueue(&mut entry.place),
            Err(error) => {
                self.service.api.metrics.counts.accept_errors += 1;
                if self.exhausted_warning.count(now).is_some() {
                    tracing::warn!(%error, "cannot register a connection");
                }
                return;
            }
        }
        self.service.api.metrics.counts.connections_accepted += 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::server::Config;
    use mio::Events;
    use std::net::{Ipv4Addr, SocketAddr, TcpStream};
    use std::time::Duration;

    /// Waits for events of the poll, and passes them to the listeners and connections of `server`.
    fn receive(server: &mut Server) {
        let mut events = Events::with_capacity(8);
        server.poll_events(&mut events, Some(Duration::from_secs(10))).expect("a poll");
        for event in &events {
            server.dispatch_event(event);
        }
    }

    /// Goal: at the connection limit, the server closes a dead connection to make place for a new one. Peers in
    /// cleartext are not anonymous, so the server cannot evict a connection of theirs instead.
    #[test]
    fn at_the_limit_a_dead_connection_makes_place_for_a_new_one() {
        for is_former in [false, true] {
            let insecure = Some(SocketAddr::from((Ipv4Addr::LOCALHOST, 0)));
            let config = Config { insecure, max_connections: 1, ..Config::default() };
            let mut server = Server::bind(config).expect("a server");
            let address = server.insecure_addr().expect("an address");
            let now = server.clock.now();
            let accept = |server: &mut Server| {
                let peer = TcpStream::connect(address).expect("a connection");
                receive(server);
                server.accept(now);
                peer
            };
            let first = accept(&mut server);
            let token = server.conns.places_mut().next().expect("an accepted connection").token();
            let second = accept(&mut server);
            assert!(server.conns.get_mut(token).is_some(), "a new connection waits while the first one is alive");
            if is_former {
                server.load_again().expect("a new table");
            } else {
                drop(first);
                for _ in 0..8 {
                    if !server.queues.has_ending() {
                        receive(&mut server);
                        server.run_connection(token, now);
                    }
                }
                assert!(server.queues.has_ending(), "the connection is known to be dead");
            }
            server.accept(now);
            assert!(server.conns.get_mut(token).is_none(), "the first connection is closed");
            assert_eq!(server.open_connections(), 1, "the second one is accepted");
            drop(second);
        }
    }
}
