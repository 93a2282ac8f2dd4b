//! Accepts connections up to the connection limit. At the limit, evicts an anonymous peer's connection for a new
//! connection.

use super::Server;
use crate::clock::Now;
use crate::conn::Conn;
use crate::limits::{ACCEPT_PAUSE_MS, ACCEPTS_PER_TURN, ANONYMOUS_MS_MIN, TOLD_AGAIN_MS};
use crate::listener::{Accepted, Listener};
use crate::transport::Transport;
use mio::Interest;

impl Server {
    pub(super) fn accept(&mut self, now: Now) {
        // The cleartext listener, the last one in the list, comes first. Peers of the public TLS listener must not keep
        // out clients on this host.
        for at in (0..self.listeners.len()).rev() {
            if self.open_connections() >= self.max_connections && self.listeners[at].is_readable() {
                self.tell_full(now);
            }
            for _ in 0..ACCEPTS_PER_TURN {
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
                        self.service.api.metrics.count_accept_error();
                        tracing::warn!(%error, pause_ms = ACCEPT_PAUSE_MS, "cannot accept a connection");
                        break;
                    }
                }
            }
        }
    }

    /// Logs, at most once per interval, that the connection limit is reached.
    fn tell_full(&mut self, now: Now) {
        if now.ms >= self.full_told_again_ms {
            self.full_told_again_ms = now.ms + TOLD_AGAIN_MS;
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
        if self.open_connections() < self.max_connections {
            return Some(0);
        }
        let oldest = self.conns.oldest_anonymous()?;
        Some(self.conns.get_mut(oldest)?.conn.anonymous_since_ms()? + ANONYMOUS_MS_MIN)
    }

    /// Evicts the connection of the oldest anonymous peer if the connection limit is reached. Otherwise any peer could
    /// keep all other peers out with idle connections.
    fn make_place(&mut self) {
        if self.open_connections() < self.max_connections {
            return;
        }
        if let Some(token) = self.conns.oldest_anonymous() {
            self.service.api.metrics.count_evicted_connection();
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
                tracing::warn!(%error, "cannot register a connection");
                return;
            }
        }
        self.service.api.metrics.count_connection();
    }
}
