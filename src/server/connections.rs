//! The connections, each in its slot, and the marks by which one stands in a queue once.

use crate::conn::Conn;
use crate::serve::Service;
use mio::Token;
use slab::Slab;
use std::collections::VecDeque;
use std::io;

/// All connections. A token names a slot and which connection in it, so that what is said of one that has gone finds none.
#[derive(Debug, Default)]
pub(super) struct Connections {
    entries: Slab<Entry>,
    generation: u32,
    /// Those of strangers in the order in which they came, and some that have gone or are none any more.
    strangers: VecDeque<Token>,
}

/// A connection in its slot.
#[derive(Debug)]
pub(super) struct Entry {
    token: Token,
    pub(super) conn: Conn,
    /// Milliseconds at which a timer is set for it.
    pub(super) armed_ms: u64,
    /// It stands among those that can go on, in whichever queue.
    is_queued: bool,
    /// It stands among those that may have something to send.
    is_touched: bool,
    /// It stands among those with a job that can go on.
    is_in_jobs: bool,
    /// The last of its requests that was served took a turn's time alone.
    pub(super) is_slow: bool,
    /// Bytes that waited to be sent when they were counted last.
    queued_bytes: usize,
    /// Bytes of requests that were not served yet when they were counted last.
    received_bytes: usize,
}

impl Connections {
    /// How many there are.
    pub(super) fn len(&self) -> usize {
        self.entries.len()
    }

    /// Whether there is none.
    pub(super) fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Takes in the connection that `make` makes, which is told its token.
    pub(super) fn add(&mut self, make: impl FnOnce(Token) -> io::Result<Conn>) -> io::Result<&mut Entry> {
        self.generation = self.generation.wrapping_add(1);
        self.sift_strangers();
        let vacant = self.entries.vacant_entry();
        let token = token_of(vacant.key(), self.generation);
        let conn = make(token)?;
        if conn.is_stranger() {
            self.strangers.push_back(token);
        }
        Ok(vacant.insert(Entry {
            token,
            conn,
            armed_ms: u64::MAX,
            is_queued: false,
            is_touched: false,
            is_in_jobs: false,
            is_slow: false,
            queued_bytes: 0,
            received_bytes: 0,
        }))
    }

    /// The connection of a stranger that has been here longest.
    pub(super) fn oldest_stranger(&mut self) -> Option<Token> {
        while let Some(token) = self.strangers.front().copied() {
            if self.is_stranger(token) {
                return Some(token);
            }
            self.strangers.pop_front();
        }
        None
    }

    fn is_stranger(&mut self, token: Token) -> bool {
        self.get_mut(token).is_some_and(|entry| entry.conn.is_stranger())
    }

    /// Forgets those among the strangers that are none, when there may be as many of them as of all connections. So it takes
    /// a few steps for each connection that comes.
    fn sift_strangers(&mut self) {
        const SLACK: usize = 64;
        if self.strangers.len() < 2 * self.entries.len() + SLACK {
            return;
        }
        let mut strangers = std::mem::take(&mut self.strangers);
        strangers.retain(|token| self.is_stranger(*token));
        self.strangers = strangers;
    }

    /// The connection of this token, if it is still there.
    pub(super) fn get_mut(&mut self, token: Token) -> Option<&mut Entry> {
        self.entries.get_mut(slot_of(token)).filter(|entry| entry.token == token)
    }

    /// Drops the connection of this token.
    pub(super) fn remove(&mut self, token: Token) {
        if self.get_mut(token).is_some() {
            self.entries.remove(slot_of(token));
        }
    }

    /// The tokens of all.
    pub(super) fn tokens(&self) -> Vec<Token> {
        self.entries.iter().map(|(_, entry)| entry.token).collect()
    }
}

impl Entry {
    /// Puts it in the queue of those that can go on, unless it stands there, waits for a step of its handshake, or is slow and
    /// waits for its turn.
    pub(super) fn enqueue(&mut self, queue: &mut Vec<Token>) {
        if !std::mem::replace(&mut self.is_queued, true) {
            queue.push(self.token);
        }
    }

    /// It has been taken from the queue.
    pub(super) fn dequeued(&mut self) {
        self.is_queued = false;
    }

    /// Puts it among those with a list or a deletion that can go on, if it has one and does not stand there.
    pub(super) fn enqueue_job(&mut self, jobs: &mut VecDeque<Token>) {
        if self.conn.has_job_step() && !std::mem::replace(&mut self.is_in_jobs, true) {
            jobs.push_back(self.token);
        }
    }

    /// It has been taken from among those.
    pub(super) fn job_dequeued(&mut self) {
        self.is_in_jobs = false;
    }

    /// Puts it among those that may have something to send, unless it stands there.
    pub(super) fn touch(&mut self, touched: &mut Vec<Token>) {
        if !std::mem::replace(&mut self.is_touched, true) {
            touched.push(self.token);
        }
    }

    /// It is being flushed.
    pub(super) fn untouched(&mut self) {
        self.is_touched = false;
    }

    /// Counts among those of all connections the bytes that wait on this one.
    pub(super) fn count(&mut self, service: &mut Service) {
        recount(&mut service.queued_bytes, &mut self.queued_bytes, self.conn.waiting_bytes());
        recount(&mut service.received_bytes, &mut self.received_bytes, self.conn.received_bytes());
    }

    /// Takes those bytes out of the counts: it is over.
    pub(super) fn uncount(&mut self, service: &mut Service) {
        recount(&mut service.queued_bytes, &mut self.queued_bytes, 0);
        recount(&mut service.received_bytes, &mut self.received_bytes, 0);
    }
}

/// Puts `now` into `total` in the place of what `counted` says was counted before.
fn recount(total: &mut usize, counted: &mut usize, now: usize) {
    let before = std::mem::replace(counted, now);
    *total = total.saturating_sub(before).saturating_add(now);
}

/// A token of a slot and of which connection in it.
fn token_of(slot: usize, generation: u32) -> Token {
    // Slots are below the number of file descriptors, and the top generations would reach the listeners' tokens.
    Token(slot | ((generation as usize & 0x7fff_ffff) << 32))
}

fn slot_of(token: Token) -> usize {
    token.0 & 0xffff_ffff
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::Now;
    use crate::server::LISTENER_TOKENS;
    use crate::timestamp::Time;
    use crate::tls::config::provider;
    use crate::transport::Transport;
    use rustls::ServerConfig;
    use rustls::server::ResolvesServerCertUsingSni;
    use std::net::TcpListener;
    use std::sync::Arc;

    /// Takes in a connection; its token.
    fn add(connections: &mut Connections, listener: &TcpListener) -> Token {
        let make = |_| {
            let socket = mio::net::TcpStream::connect(listener.local_addr()?)?;
            Ok(Conn::new(Transport::cleartext(socket), Now { ms: 0, wall: Time(0) }))
        };
        connections.add(make).expect("a connection").token
    }

    #[test]
    fn a_token_of_one_that_has_gone_finds_nothing_in_its_slot() {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let mut connections = Connections::default();
        let [gone, other] = [(); 2].map(|()| add(&mut connections, &listener));
        connections.remove(gone);
        assert!(connections.get_mut(gone).is_none());
        let present = add(&mut connections, &listener);
        assert_eq!(slot_of(present), slot_of(gone));
        assert!(connections.get_mut(gone).is_none());
        connections.remove(gone);
        assert_eq!(connections.tokens(), [present, other]);
        assert!(connections.get_mut(present).is_some_and(|entry| entry.token == present));
        connections.remove(present);
        connections.remove(other);
        assert!(connections.is_empty());
    }

    #[test]
    fn the_oldest_stranger_is_found_and_those_that_have_gone_are_forgotten() {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let no_certificates = Arc::new(ResolvesServerCertUsingSni::new());
        let tls = ServerConfig::builder_with_provider(provider());
        let tls = tls.with_safe_default_protocol_versions().expect("versions");
        let tls = Arc::new(tls.with_no_client_auth().with_cert_resolver(no_certificates));
        let mut connections = Connections::default();
        let stranger = |connections: &mut Connections| {
            let make = |_| {
                let socket = mio::net::TcpStream::connect(listener.local_addr()?)?;
                Ok(Conn::new(Transport::tls(socket, Arc::clone(&tls))?, Now { ms: 0, wall: Time(0) }))
            };
            connections.add(make).expect("a connection").token
        };
        let known = add(&mut connections, &listener);
        assert_eq!(connections.oldest_stranger(), None, "in the clear nobody is a stranger");
        let [first, second, third] = [(); 3].map(|()| stranger(&mut connections));
        assert_eq!(connections.oldest_stranger(), Some(first));
        connections.remove(second);
        assert_eq!(connections.oldest_stranger(), Some(first));
        connections.remove(first);
        assert_eq!(connections.oldest_stranger(), Some(third));
        for _ in 0..1_000 {
            let gone = stranger(&mut connections);
            connections.remove(gone);
        }
        assert!(connections.strangers.len() < 100, "{}", connections.strangers.len());
        assert_eq!(connections.oldest_stranger(), Some(third));
        connections.remove(third);
        assert_eq!(connections.oldest_stranger(), None);
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
    fn generations_begin_anew_and_never_reach_the_tokens_of_listeners() {
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
