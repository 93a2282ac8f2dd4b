//! The connections, stored by slot. A separate list names the connections of anonymous peers: TLS peers without a
//! certificate, or with one that gives no rights.

use crate::clock::Now;
use crate::conn::Conn;
use crate::metrics::Metrics;
use crate::schedule::Place;
use crate::serve::{Owner, Service};
use crate::timestamp::Time;
use crate::watch::Watchers;
use mio::Token;
use slab::Slab;
use std::collections::VecDeque;
use std::io;

/// All connections. A mio token contains the connection's slot and generation. So no connection has the token of a
/// closed connection, even if a new connection uses the same slot.
#[derive(Debug, Default)]
pub(super) struct Connections {
    entries: Slab<ConnEntry>,
    /// Generation of the newest connection. Each new connection gets the next number.
    generation: u32,
    /// Connections of anonymous peers, oldest first. Some may be closed or no longer anonymous.
    anonymous: VecDeque<Token>,
    /// Earliest noted time at which a peer's certificate expires; `None` if no time is noted. [`Connections::recheck`]
    /// notes the time when a connection runs. [`Connections::take_expiry`] forgets the time once it has passed. The
    /// connection may be closed by then.
    first_expiry: Option<Time>,
}

/// A connection, and the event loop's state of this connection.
#[derive(Debug)]
pub(super) struct ConnEntry {
    pub(super) conn: Conn,
    /// Time at which the connection's timer fires, in ms.
    pub(super) armed_ms: u64,
    /// Place in the queues of the event loop.
    pub(super) place: Place,
    /// Whether the connection is slow, by the last result of [`Pace::take_slow`](crate::schedule::Pace::take_slow). The
    /// last requests of a slow connection alone took all the time that a turn may spend on requests. Or an anonymous
    /// peer sent many bytes without a request. A front proxy's connection never counts as slow.
    pub(super) is_slow: bool,
    /// Bytes waiting to be sent on this connection, when last counted.
    queued_bytes: usize,
    /// Bytes of unserved requests on this connection, when last counted.
    received_bytes: usize,
    /// Whether the connection's token is in `Connections::anonymous`.
    is_listed: bool,
}

impl Connections {
    /// Returns the number of connections.
    pub(super) fn len(&self) -> usize {
        self.entries.len()
    }

    /// Whether there are no connections.
    pub(super) fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Adds a connection. `make` creates it for the token that it will have.
    pub(super) fn add(&mut self, make: impl FnOnce(Token) -> io::Result<Conn>) -> io::Result<&mut ConnEntry> {
        self.generation = self.generation.wrapping_add(1);
        self.sift_anonymous();
        let vacant = self.entries.vacant_entry();
        let token = token_of(vacant.key(), self.generation);
        let conn = make(token)?;
        let is_listed = conn.is_anonymous();
        if is_listed {
            self.anonymous.push_back(token);
        }
        Ok(vacant.insert(ConnEntry {
            conn,
            armed_ms: u64::MAX,
            place: Place::new(token),
            is_slow: false,
            queued_bytes: 0,
            received_bytes: 0,
            is_listed,
        }))
    }

    /// Lists the connection as one of an anonymous peer, if the peer has become anonymous. The peer's certificate may
    /// have expired, or its CA may no longer be trusted. Otherwise notes when the peer's certificate expires.
    pub(super) fn recheck(&mut self, token: Token, now: Now) {
        let Some(entry) = self.get_mut(token) else { return };
        let (is_anonymous, until) = (entry.conn.is_anonymous(), entry.conn.proven_until());
        if is_anonymous && !std::mem::replace(&mut entry.is_listed, true) {
            self.anonymous.push_back(token);
        }
        let until = until.filter(|until| !is_anonymous && now.wall < *until);
        self.first_expiry = self.first_expiry.into_iter().chain(until).min();
    }

    /// Returns the time at which the certificate of a peer may next expire, in ms of the monotonic clock. Returns
    /// `None` if no expiry is noted.
    pub(super) fn expiry_ms(&self, now: Now) -> Option<u64> {
        let left_seconds = self.first_expiry?.0.saturating_sub(now.wall.0).max(0).unsigned_abs();
        Some(now.ms.saturating_add(left_seconds.saturating_mul(1_000)))
    }

    /// Whether the certificate of a peer may have expired. If so, forgets the time of expiry. The caller must then run
    /// all connections, so that [`Connections::recheck`] notes the times again.
    pub(super) fn take_expiry(&mut self, now: Now) -> bool {
        self.first_expiry.take_if(|first| *first <= now.wall).is_some()
    }

    /// Returns the oldest connection of an anonymous peer.
    pub(super) fn oldest_anonymous(&mut self) -> Option<Token> {
        while let Some(token) = self.anonymous.front().copied() {
            if self.stays_listed(token) {
                return Some(token);
            }
            self.anonymous.pop_front();
        }
        None
    }

    /// Whether `token` still belongs to an anonymous peer. If not, the caller must remove `token` from `anonymous`.
    fn stays_listed(&mut self, token: Token) -> bool {
        let Some(entry) = self.get_mut(token) else { return false };
        entry.is_listed = entry.conn.is_anonymous();
        entry.is_listed
    }

    /// Removes closed and no longer anonymous connections from `anonymous`, but only once this list is long. So the
    /// cost is a few steps for each new connection on average.
    fn sift_anonymous(&mut self) {
        const SLACK: usize = 64;
        if self.anonymous.len() < 2 * self.entries.len() + SLACK {
            return;
        }
        let mut anonymous = std::mem::take(&mut self.anonymous);
        anonymous.retain(|token| self.stays_listed(*token));
        self.anonymous = anonymous;
    }

    /// Returns the connection of this token, if it still exists.
    pub(super) fn get_mut(&mut self, token: Token) -> Option<&mut ConnEntry> {
        self.entries.get_mut(slot_of(token)).filter(|entry| entry.place.token() == token)
    }

    /// Removes the connection of this token.
    pub(super) fn remove(&mut self, token: Token) {
        if self.get_mut(token).is_some() {
            self.entries.remove(slot_of(token));
        }
    }

    /// Returns the places of all connections in the queues of the event loop.
    pub(super) fn places_mut(&mut self) -> impl Iterator<Item = &mut Place> {
        self.entries.iter_mut().map(|(_, entry)| &mut entry.place)
    }

    /// Returns the place of the next connection, in the order of the slots from `slot` on; `None` after the last one.
    /// Sets `slot` to the slot after this connection.
    pub(super) fn next_place(&mut self, slot: &mut usize) -> Option<&mut Place> {
        while *slot < self.entries.capacity() {
            let at = *slot;
            *slot += 1;
            if self.entries.contains(at) {
                return self.entries.get_mut(at).map(|entry| &mut entry.place);
            }
        }
        None
    }

    /// Removes all connections at once, and returns them. Their tokens belong to no connection any more.
    pub(super) fn take_all(&mut self) -> slab::IntoIter<ConnEntry> {
        self.anonymous.clear();
        std::mem::take(&mut self.entries).into_iter()
    }
}

impl ConnEntry {
    /// Updates the server's totals of queued output and of unserved requests with the bytes of this connection.
    pub(super) fn count(&mut self, service: &mut Service) {
        recount(&mut service.queued_bytes, &mut self.queued_bytes, self.conn.waiting_bytes());
        recount(&mut service.received_bytes, &mut self.received_bytes, self.conn.received_bytes());
    }

    /// Drops the connection's work, and counts an incomplete TLS handshake. Called when the connection is closed.
    pub(super) fn end(&mut self, watchers: &mut Watchers<Owner>, metrics: &mut Metrics) {
        self.conn.drop_work(watchers);
        if self.conn.is_before_handshake_end() {
            metrics.counts.handshake_errors += 1;
        }
    }

    /// Removes the connection's bytes from the server's totals. Called when the connection is closed.
    pub(super) fn uncount(&mut self, service: &mut Service) {
        recount(&mut service.queued_bytes, &mut self.queued_bytes, 0);
        recount(&mut service.received_bytes, &mut self.received_bytes, 0);
    }
}

/// Updates `total`: subtracts the amount that was `counted` before, adds `now`, and stores `now` in `counted`.
fn recount(total: &mut usize, counted: &mut usize, now: usize) {
    let before = std::mem::replace(counted, now);
    *total = total.saturating_sub(before).saturating_add(now);
}

/// Returns the token of a slot and a generation.
fn token_of(slot: usize, generation: u32) -> Token {
    // A slot fits in 32 bits: it is less than the number of file descriptors. The generation has only 31 bits, so that
    // no token equals a listener's token.
    Token(slot | ((generation as usize & 0x7fff_ffff) << 32))
}

fn slot_of(token: Token) -> usize {
    token.0 & 0xffff_ffff
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use crate::server::LISTENER_TOKENS;
    use crate::tls::config::provider;
    use crate::transport::Transport;
    use rustls::ServerConfig;
    use rustls::server::ResolvesServerCertUsingSni;
    use std::net::TcpListener;
    use std::sync::Arc;

    /// Adds a connection and returns its token.
    pub(in crate::server) fn add(connections: &mut Connections, listener: &TcpListener) -> Token {
        let make = |_| {
            let socket = mio::net::TcpStream::connect(listener.local_addr()?)?;
            Ok(Conn::new(Transport::cleartext(socket), Now { ms: 0, wall: Time(0) }))
        };
        connections.add(make).expect("a connection").place.token()
    }

    #[test]
    fn a_token_of_a_closed_connection_finds_nothing() {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let mut connections = Connections::default();
        let [gone, other] = [(); 2].map(|()| add(&mut connections, &listener));
        connections.remove(gone);
        assert!(connections.get_mut(gone).is_none());
        let present = add(&mut connections, &listener);
        assert_eq!(slot_of(present), slot_of(gone));
        assert!(connections.get_mut(gone).is_none());
        connections.remove(gone);
        assert_eq!(connections.places_mut().map(|place| place.token()).collect::<Vec<_>>(), [present, other]);
        let mut slot = 0;
        let next = std::iter::from_fn(|| connections.next_place(&mut slot).map(|place| place.token()));
        assert_eq!(next.collect::<Vec<_>>(), [present, other]);
        assert!(connections.get_mut(present).is_some_and(|entry| entry.place.token() == present));
        connections.remove(present);
        connections.remove(other);
        assert!(connections.is_empty());
    }

    #[test]
    fn a_cleartext_peer_has_no_expiry() {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let mut connections = Connections::default();
        let token = add(&mut connections, &listener);
        connections.recheck(token, Now { ms: 0, wall: Time(0) });
        assert_eq!(connections.first_expiry, None);
    }

    #[test]
    fn the_first_expiry_has_a_time_of_the_monotonic_clock() {
        let at = |wall| Now { ms: 500, wall: Time(wall) };
        let mut connections = Connections::default();
        assert_eq!(connections.expiry_ms(at(0)), None);
        connections.first_expiry = Some(Time(12));
        assert_eq!(connections.expiry_ms(at(10)), Some(2_500));
        assert_eq!(connections.expiry_ms(at(13)), Some(500), "expired already");
        assert!(!connections.take_expiry(at(11)) && connections.take_expiry(at(12)));
        assert_eq!(connections.expiry_ms(at(12)), None);
    }

    #[test]
    fn the_oldest_open_anonymous_connection_is_found() {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let no_certificates = Arc::new(ResolvesServerCertUsingSni::new());
        let tls = ServerConfig::builder_with_provider(provider());
        let tls = tls.with_safe_default_protocol_versions().expect("versions");
        let tls = Arc::new(tls.with_no_client_auth().with_cert_resolver(no_certificates));
        let mut connections = Connections::default();
        let anonymous = |connections: &mut Connections| {
            let make = |_| {
                let socket = mio::net::TcpStream::connect(listener.local_addr()?)?;
                Ok(Conn::new(Transport::tls(socket, Arc::clone(&tls))?, Now { ms: 0, wall: Time(0) }))
            };
            connections.add(make).expect("a connection").place.token()
        };
        let known = add(&mut connections, &listener);
        assert_eq!(connections.oldest_anonymous(), None, "a cleartext peer is not anonymous");
        let [first, second, third] = [(); 3].map(|()| anonymous(&mut connections));
        assert_eq!(connections.oldest_anonymous(), Some(first));
        connections.remove(second);
        assert_eq!(connections.oldest_anonymous(), Some(first));
        connections.remove(first);
        assert_eq!(connections.oldest_anonymous(), Some(third));
        for _ in 0..1_000 {
            let gone = anonymous(&mut connections);
            connections.remove(gone);
        }
        assert!(connections.anonymous.len() < 100, "{}", connections.anonymous.len());
        assert_eq!(connections.oldest_anonymous(), Some(third));
        connections.remove(third);
        assert_eq!(connections.oldest_anonymous(), None);
        assert!(connections.get_mut(known).is_some());
    }

    #[test]
    fn a_connection_that_cannot_be_made_takes_no_slot() {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let mut connections = Connections::default();
        assert!(connections.add(|_| Err(io::ErrorKind::OutOfMemory.into())).is_err());
        assert!(connections.is_empty());
        assert_eq!(slot_of(add(&mut connections, &listener)), 0);
    }

    #[test]
    fn generations_wrap_and_stay_below_listener_tokens() {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        for before in [0x7fff_fffd, u32::MAX - 2] {
            let mut connections = Connections { generation: before, ..Connections::default() };
            let mut gone: Vec<Token> = Vec::new();
            for _ in 0..4 {
                let token = add(&mut connections, &listener);
                assert!(token.0 < LISTENER_TOKENS && slot_of(token) == 0, "{token:?}");
                assert!(gone.iter().all(|&gone| connections.get_mut(gone).is_none()), "{token:?} after {gone:?}");
                connections.remove(token);
                gone.push(token);
            }
        }
        assert!(token_of(u32::MAX as usize, u32::MAX).0 < LISTENER_TOKENS, "not even in the highest slot");
    }
}
