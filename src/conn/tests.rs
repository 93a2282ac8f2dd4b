//! Tests a connection over a real socket, with a clock that the test moves.

use super::*;
use crate::api::{Api, Storage};
use crate::cluster::NamespaceChange;
use crate::handover;
use crate::journal::testing::Store;
use crate::journal::{self, CallPort, Journal, Worker};
use crate::lease::Lease;
use crate::limits::{
    BODY_MS_MAX, NAMESPACE_WAIT_MS, QUEUED_BYTES_LOW, QUEUED_BYTES_TOTAL_HIGH, RECEIVED_BYTES_LOW,
    RECEIVED_BYTES_TOTAL_HIGH, WRITE_WAIT_MS_MAX,
};
use crate::resource::ResourceVersion;
use crate::schedule::{Mark, Place, Queues};
use crate::table::Table;
use crate::timestamp::Time;
use crate::tls::config::provider;
use crate::tls::trust::Trust;
use mio::{Events, Interest, Poll};
use rustls::ServerConfig;
use rustls::server::ResolvesServerCertUsingSni;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// A connection, the peer's end of it, and a clock that the test moves.
struct World {
    poll: Poll,
    listener: TcpListener,
    conn: Conn,
    peer: TcpStream,
    service: Service,
    pool: Pool,
    now: Now,
    /// Queues of connections, as the event loop has them. The tests use only the queue of connections with a long
    /// request: one whose processing takes long.
    queues: Queues,
    place: Place,
}

impl World {
    /// Returns a world with a cleartext connection.
    fn new() -> Self {
        Self::with_transport(Transport::cleartext)
    }

    /// Returns a world with a TLS connection whose peer has sent nothing.
    fn with_tls() -> Self {
        let config = ServerConfig::builder_with_provider(provider());
        let config = config.with_safe_default_protocol_versions().expect("versions");
        let no_certificates = Arc::new(ResolvesServerCertUsingSni::new());
        let config = Arc::new(config.with_no_client_auth().with_cert_resolver(no_certificates));
        Self::with_transport(|socket| Transport::tls(socket, config).expect("a configuration"))
    }

    fn with_transport(make: impl FnOnce(mio::net::TcpStream) -> Transport) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let peer = TcpStream::connect(listener.local_addr().expect("an address")).expect("connects");
        let (socket, _) = listener.accept().expect("accepts");
        socket.set_nonblocking(true).expect("a socket");
        peer.set_nonblocking(true).expect("a socket");
        peer.set_nodelay(true).expect("a socket");
        let poll = Poll::new().expect("a poll");
        let mut transport = make(mio::net::TcpStream::from_std(socket));
        let interest = Interest::READABLE | Interest::WRITABLE;
        poll.registry().register(transport.socket_mut(), Token(0), interest).expect("registers");
        let now = Now { ms: 1_000_000, wall: Time(1_767_000_000) };
        let table = Table::new(ResourceVersion(1), 16, 1 << 16);
        let service = Service::new(Api::new(), table, Arc::new(Trust::none()));
        let (conn, pool) = (Conn::new(transport, now), Pool::default());
        Self { poll, listener, conn, peer, service, pool, now, queues: Queues::default(), place: Place::new(Token(0)) }
    }

    /// Returns a world that stores Leases in a journal.
    fn with_journal() -> Self {
        let mut world = Self::new();
        let worker = Worker::new(Box::new(Store::default()), "memory");
        let mut journal = Journal::new(Box::new(CallPort::new(worker)), journal::Config::new("memory", 1), 1);
        while journal.is_loading() {
            journal.advance(&mut world.service.table, world.now.ms, 100).expect("a new store");
        }
        world.service.api.storage = Storage::Journal(Box::new(journal));
        world
    }

    /// Makes the journal report the outcome of all changes. Returns how often the connection was woken.
    fn settle(&mut self) -> u32 {
        // The first call may hold the batch back to collect more changes.
        self.service.send_changes(self.now);
        self.service.send_changes(self.now);
        let mut woken = 0;
        self.service.advance_journal(self.now, usize::MAX, |_| woken += 1).expect("a store without faults");
        woken
    }

    fn wait(&mut self) {
        let mut events = Events::with_capacity(8);
        self.poll.poll(&mut events, Some(Duration::from_millis(10))).expect("polls");
        events.iter().for_each(|event| self.conn.transport_mut().note_readiness(event));
    }

    fn read_ahead(&mut self) -> bool {
        self.wait();
        self.conn.read_ahead(&self.service.table, &mut self.service.pace, &mut self.pool, self.now).is_some()
    }

    /// Begins HTTP/2 with the protocol's initial settings.
    fn begin_http2(&mut self) {
        self.peer.write_all(crate::http2::PREFACE).expect("room in the kernel");
        self.peer.write_all(&[0, 0, 0, 4, 0, 0, 0, 0, 0]).expect("room");
    }

    /// Sends what `requests` returns, again and again, and reads nothing until output waits for the peer to read.
    fn ask_until_output_waits(&mut self, mut requests: impl FnMut() -> Vec<u8>) {
        while !self.conn.is_output_waiting() {
            self.peer.write_all(&requests()).expect("room in the kernel");
            self.turn();
        }
    }

    /// Returns the output of several turns of the event loop.
    fn answers(&mut self) -> String {
        String::from_utf8_lossy(&self.output_of(4)).into_owned()
    }

    /// Returns the output of this number of turns of the event loop.
    fn output_of(&mut self, turns: usize) -> Vec<u8> {
        let (mut bytes, mut piece) = (Vec::new(), vec![0; 1 << 20]);
        for _ in 0..turns {
            self.turn();
            let read = self.peer.read(&mut piece).unwrap_or(0);
            bytes.extend_from_slice(&piece[..read]);
        }
        bytes
    }

    fn turn(&mut self) {
        self.wait();
        self.conn.on_ready(Token(0), &mut self.service, &mut self.pool, self.now);
        if self.conn.long_state() != LongState::Gone {
            self.queues.enqueue_long(&mut self.place);
        }
        let state_of = |_| self.conn.long_state();
        if self.queues.has_long() && self.queues.pop_long(self.service.pace.has_answers(), state_of).is_some() {
            self.place.unmark(Mark::Long);
            self.conn.serve_long_request(Token(0), &mut self.service, &mut self.pool, self.now);
        }
        self.conn.flush(&mut self.service, &mut self.pool, self.now);
    }

    /// Sends requests without reading, until the server has so much output that it reads no more requests.
    fn ask_and_read_nothing(&mut self) {
        let requests = b"GET /version HTTP/1.1\r\nHost: h\r\n\r\n".repeat(500);
        let mut rest = &requests[..];
        // Sends whole requests, so that the next bytes begin a new request.
        let bytes_max = self.service.output_bytes_max(&self.conn.credentials);
        while self.conn.waiting_bytes() < bytes_max || rest.len() < requests.len() {
            let written = self.peer.write(rest).unwrap_or(0);
            rest = &rest[written..];
            if rest.is_empty() {
                rest = &requests;
            }
            self.turn();
        }
    }
}

#[test]
fn sending_does_not_extend_the_deadline_of_a_slow_reader() {
    let mut world = World::new();
    world.ask_and_read_nothing();
    let deadline_ms = world.conn.deadline_ms();
    assert!(deadline_ms <= world.now.ms + WRITE_STALL_MS_MAX);
    world.now.ms += WRITE_STALL_MS_MAX / 2;
    // The peer sends bytes, but no request: an empty line before a request is skipped (RFC 9112 §2.2).
    world.peer.write_all(b"\r\n").expect("room in the kernel");
    world.turn();
    assert_eq!(world.conn.deadline_ms(), deadline_ms);
    // Reading the output extends the deadline.
    let mut drain = vec![0; 1 << 20];
    while world.conn.waiting_bytes() >= QUEUED_BYTES_HIGH {
        let _ = world.peer.read(&mut drain);
        world.turn();
    }
    assert_eq!(world.conn.owed_since_ms, world.now.ms);
}

#[test]
fn queue_time_of_a_handshake_does_not_count_for_the_peer() {
    let mut world = World::with_tls();
    let since_ms = world.conn.anonymous_since_ms().expect("not queued");
    let deadline_ms = world.conn.deadline_ms();
    world.conn.note_queued_handshake(world.now);
    assert_eq!((world.conn.anonymous_since_ms(), world.conn.deadline_ms()), (None, u64::MAX));
    world.now.ms += 2_000;
    world.turn();
    assert_eq!(world.conn.anonymous_since_ms(), Some(since_ms + 2_000));
    assert_eq!(world.conn.deadline_ms(), deadline_ms + 2_000);
    assert_eq!((world.conn.phase, world.conn.began_ms), (Phase::Handshake, since_ms + 2_000));
    // A peer that gave up while its handshake was queued costs no further work.
    world.peer.shutdown(std::net::Shutdown::Write).expect("an open socket");
    world.conn.note_queued_handshake(world.now);
    world.turn();
    assert_eq!(world.conn.phase, Phase::Closed);
}

/// Returns a GET of `/version` on an HTTP/2 stream.
fn get_version(stream: u32) -> Vec<u8> {
    let block = b"\x82\x86\x01\x01h\x04\x08/version";
    let head = [0, 0, u8::try_from(block.len()).expect("short"), 1, 0x05];
    [&head[..], &stream.to_be_bytes(), block].concat()
}

/// WINDOW_UPDATE that opens the window of an HTTP/2 connection for all responses of a test.
const WIDE_WINDOW: [u8; 13] = [0, 0, 4, 8, 0, 0, 0, 0, 0, 0x7f, 0, 0, 0];

/// Goal: a peer with waiting output has no more time for the body of a request than other peers. In HTTP/2, only the
/// stream of the request ends.
#[test]
fn an_http2_stream_with_a_late_body_ends_while_output_waits() {
    let mut world = World::new();
    world.begin_http2();
    world.peer.write_all(&WIDE_WINDOW).expect("room in the kernel");
    let creation = create_lease(1);
    let head_bytes = 9 + usize::from(creation[2]);
    world.peer.write_all(&creation[..head_bytes]).expect("room in the kernel");
    world.turn();
    let began_ms = world.now.ms;
    world.now.ms += 10_000;
    let mut streams = (3..).step_by(2);
    world.ask_until_output_waits(|| streams.by_ref().take(20).flat_map(get_version).collect());
    assert_eq!(world.conn.deadline_ms(), began_ms + BODY_MS_MAX);
    let on_timeout =
        |world: &mut World| world.conn.on_timeout(&mut world.service, &mut world.pool, world.now) == Next::Close;
    world.now.ms = began_ms + BODY_MS_MAX;
    assert!(!on_timeout(&mut world), "only the stream is reset");
    assert_eq!((world.conn.phase, world.conn.protocol.received_bytes()), (Phase::Open, 0));
    assert_eq!(world.conn.deadline_ms(), began_ms + 10_000 + WRITE_STALL_MS_MAX);
    world.now.ms += 10_000;
    assert!(on_timeout(&mut world), "the peer has not read the output");
}

#[test]
fn a_late_http1_body_ends_the_connection_while_output_waits() {
    let mut world = World::new();
    world.ask_until_output_waits(|| b"GET /version HTTP/1.1\r\nHost: h\r\n\r\n".repeat(20));
    world.peer.write_all(&unfinished(10)).expect("room in the kernel");
    world.turn();
    let began_ms = world.now.ms;
    world.now.ms += BODY_MS_MAX / 2;
    // Restarts the deadline for reading output, as if the peer had read enough of it.
    world.conn.note_owed(world.now);
    assert_eq!(world.conn.deadline_ms(), began_ms + BODY_MS_MAX);
    world.now.ms = began_ms + BODY_MS_MAX;
    assert_eq!(world.conn.on_timeout(&mut world.service, &mut world.pool, world.now), Next::Wait);
    assert_eq!(world.conn.phase, Phase::Closing, "the peer may still read the earlier responses");
}

#[test]
fn waiting_requests_are_answered_without_further_input() {
    let mut world = World::new();
    world.begin_http2();
    world.peer.write_all(&WIDE_WINDOW).expect("room in the kernel");
    let (mut asked, mut rest) = (0, Vec::new());
    while world.conn.waiting_bytes() < QUEUED_BYTES_HIGH || !rest.is_empty() {
        if rest.is_empty() && world.conn.waiting_bytes() < QUEUED_BYTES_HIGH {
            rest = (asked..asked + 100).flat_map(|n| get_version(2 * n + 1)).collect();
            asked += 100;
        }
        let written = world.peer.write(&rest).unwrap_or(0);
        rest.drain(..written);
        world.turn();
    }
    world.peer.shutdown(std::net::Shutdown::Write).expect("an open socket");
    let (mut answers, mut piece) = (Vec::new(), vec![0; 1 << 20]);
    for _ in 0..10_000 {
        world.turn();
        match world.peer.read(&mut piece) {
            Ok(0) => break,
            Ok(read) => answers.extend_from_slice(&piece[..read]),
            Err(_) => {}
        }
    }
    assert_eq!(answered(&answers).len(), asked as usize);
    assert_ne!(world.conn.phase, Phase::Open);
}

/// Returns a POST of a Lease on an HTTP/2 stream.
fn create_lease(stream: u32) -> Vec<u8> {
    create_padded_lease(stream, 0)
}

/// Returns a POST of a Lease on an HTTP/2 stream, with `padding` bytes of white space after the object.
fn create_padded_lease(stream: u32, padding: usize) -> Vec<u8> {
    let path = "/apis/coordination.k8s.io/v1/namespaces/n/leases";
    let body = format!(r#"{{"metadata":{{"name":"lease-{stream}"}}}}{}"#, " ".repeat(padding));
    // POST, http, and :path and :authority as literals (RFC 7541 §6.2.2 and appendix A).
    let block =
        [b"\x83\x86\x04", &[u8::try_from(path.len()).expect("short")][..], path.as_bytes(), b"\x01\x01h"].concat();
    let frame = |frame_type, flags, payload: &[u8]| {
        let [_, length @ ..] = u32::try_from(payload.len()).expect("short").to_be_bytes();
        [&length[..], &[frame_type, flags], &stream.to_be_bytes(), payload].concat()
    };
    [frame(1, 0x04, &block), frame(0, 0x01, body.as_bytes())].concat()
}

/// Goal: all writes of one batch get their responses. The output has room for only some of the responses at once, and
/// the peer sends no further frame that would trigger the rest.
#[test]
fn settled_writes_are_answered_without_further_input() {
    const WRITES: u32 = 100;
    let mut world = World::with_journal();
    // All connections together have so much queued output that this connection gets little room.
    world.service.queued_bytes = QUEUED_BYTES_TOTAL_HIGH;
    world.begin_http2();
    for n in 0..WRITES {
        world.peer.write_all(&create_lease(2 * n + 1)).expect("room in the kernel");
    }
    while world.service.waiters.len() < WRITES as usize {
        world.turn();
    }
    assert_eq!((world.settle(), world.service.waiters.len()), (WRITES, 0));
    while {
        world.conn.on_ready(Token(0), &mut world.service, &mut world.pool, world.now);
        world.conn.flush(&mut world.service, &mut world.pool, world.now) == Next::Again
    } {}
    let mut answers = vec![0; 1 << 20];
    let read = world.peer.read(&mut answers).expect("answers");
    assert!(read > QUEUED_BYTES_LOW, "all of it had room: {read}");
    assert_eq!(answered(&answers[..read]).len(), WRITES as usize);
}

#[test]
fn small_requests_find_room_beside_large_ones_that_wait() {
    const LARGE: usize = 16_000;
    let mut world = World::with_journal();
    // All connections together hold so many received bytes that this connection may hold few.
    world.service.received_bytes = RECEIVED_BYTES_TOTAL_HIGH;
    world.begin_http2();
    let mut answers = Vec::new();
    let mut send = |world: &mut World, stream, padding| {
        let (mut rest, mut piece) = (&create_padded_lease(stream, padding)[..], [0; 4096]);
        for _ in 0..4 {
            if let Ok(written) = world.peer.write(rest) {
                rest = &rest[written..];
            }
            world.turn();
            let read = world.peer.read(&mut piece).unwrap_or(0);
            answers.extend_from_slice(&piece[..read]);
        }
        assert!(rest.is_empty());
        (world.service.waiters.len(), answered(&answers).len())
    };
    let waiting = RECEIVED_BYTES_LOW / LARGE - 1;
    for (n, stream) in (1..=waiting).zip((1..).step_by(2)) {
        assert_eq!(send(&mut world, stream, LARGE), (n, 0), "large request {n}");
    }
    assert_eq!(send(&mut world, 1001, LARGE), (waiting, 1), "the next one is refused");
    assert_eq!(send(&mut world, 1003, 0), (waiting + 1, 1), "a small one waits with the others");
    assert_eq!(world.settle() as usize, waiting + 1);
}

/// Goal: each of many writes that do not become durable in time gets its 504. This includes writes on a connection on
/// which other writes got their responses meanwhile.
#[test]
fn writes_that_are_not_durable_in_time_are_answered_on_every_stream() {
    let mut world = World::with_journal();
    world.begin_http2();
    // Numbers of Lease responses and of 504 errors since the last call.
    let answers = |world: &mut World| {
        let text = world.answers();
        (text.matches(r#""kind":"Lease""#).count(), text.matches(r#""code":504"#).count())
    };
    world.peer.write_all(&create_lease(1)).expect("room");
    assert_eq!(answers(&mut world), (0, 0));
    assert_eq!(world.settle(), 1);
    assert_eq!(answers(&mut world), (1, 0));
    let first_ms = world.now.ms;
    for stream in [3, 5] {
        world.peer.write_all(&create_lease(stream)).expect("room");
        assert_eq!(answers(&mut world), (0, 0));
        world.now.ms += 1_000;
    }
    world.now.ms = first_ms + WRITE_WAIT_MS_MAX;
    assert_eq!(answers(&mut world), (0, 1), "the first is late");
    world.peer.write_all(&create_lease(7)).expect("room");
    assert_eq!(answers(&mut world), (0, 0));
    world.now.ms += 1_000;
    assert_eq!(answers(&mut world), (0, 1), "the second is late");
    world.now.ms += WRITE_WAIT_MS_MAX - 1_000;
    assert_eq!(answers(&mut world), (0, 1), "the third is late");
    // The late requests have got their responses. Their changes are still in flight.
    world.peer.write_all(&create_lease(9)).expect("room");
    assert_eq!(answers(&mut world), (0, 0));
    world.settle();
    assert_eq!(answers(&mut world), (1, 0));
    assert_eq!(world.service.table.len(), 5);
}

/// Goal: a reset of a stream does not stop the write that the stream has requested, and the next stream gets only its
/// own response.
#[test]
fn a_stream_that_is_reset_while_it_waits_gets_no_answer() {
    let mut world = World::with_journal();
    world.begin_http2();
    let reset = [0, 0, 4, 3, 0, 0, 0, 0, 1, 0, 0, 0, 8];
    for (sent, waiting) in [(create_lease(1), 1), ([&reset[..], &create_lease(3)].concat(), 2)] {
        world.peer.write_all(&sent).expect("room");
        while world.service.waiters.len() < waiting {
            world.turn();
        }
    }
    world.settle();
    let text = world.answers();
    assert_eq!((text.matches("\"name\":\"lease-1\"").count(), text.matches("\"name\":\"lease-3\"").count()), (0, 1));
    assert_eq!(world.service.table.len(), 2);
}

#[test]
fn a_collection_deletion_awaiting_the_journal_takes_no_turns() {
    let mut world = World::with_journal();
    let target = "/apis/coordination.k8s.io/v1/namespaces/n/leases";
    let body = r#"{"metadata":{"name":"a"}}"#;
    let creation = format!("POST {target} HTTP/1.1\r\nHost: h\r\nContent-Length: {}\r\n\r\n{body}", body.len());
    world.peer.write_all(creation.as_bytes()).expect("room in the kernel");
    while world.service.waiters.is_empty() {
        world.turn();
    }
    assert_eq!(world.settle(), 1);
    world.turn();
    world.peer.write_all(format!("DELETE {target} HTTP/1.1\r\nHost: h\r\n\r\n").as_bytes()).expect("room");
    let step = |world: &mut World| {
        while world.conn.has_job_step() {
            world.conn.step_job(Token(0), &mut world.service, &mut world.pool, world.now);
        }
        world.conn.flush(&mut world.service, &mut world.pool, world.now)
    };
    while world.service.waiters.is_empty() {
        world.turn();
        assert_eq!(step(&mut world), Next::Wait);
    }
    assert_eq!(world.service.table.len(), 1);
    assert_eq!(world.settle(), 1);
    assert_eq!(world.service.table.len(), 0);
    world.turn();
    step(&mut world);
    assert!(!world.conn.protocol.is_waiting());
}

/// Goal: the freeze, a phase of a rollback, cuts off running lists, and the client recognizes that its list is
/// incomplete.
#[test]
fn a_list_that_a_freeze_cuts_off_has_no_last_chunk() {
    let mut world = World::new();
    for number in 0..2_000 {
        world.service.table.create(Lease::named("n", &number.to_string()));
    }
    let request = b"GET /apis/coordination.k8s.io/v1/leases HTTP/1.1\r\nHost: h\r\n\r\n";
    world.peer.write_all(request).expect("room in the kernel");
    while !world.conn.has_job_step() {
        world.turn();
    }
    let step = |world: &mut World| {
        world.conn.step_job(Token(0), &mut world.service, &mut world.pool, world.now);
    };
    step(&mut world);
    assert!(world.conn.has_job_step(), "the list is longer than one step");
    let mut phase = Lease::named(handover::NAMESPACE, handover::NAME);
    phase.metadata.annotations.insert(handover::PHASE.into(), handover::Phase::Freeze.name().into());
    world.service.table.create(phase);
    world.service.hand_over(world.now, |_| {});
    step(&mut world);
    let text = world.answers();
    assert!(text.starts_with("HTTP/1.1 200 OK\r\n"), "{text}");
    assert!(!text.ends_with("0\r\n\r\n"), "the list seems complete");
    assert_ne!(world.conn.phase, Phase::Open);
}

/// Returns the types of the frames in `bytes`.
fn types(mut bytes: &[u8]) -> Vec<u8> {
    let mut types = Vec::new();
    while let [a, b, c, frame_type, _, _, _, _, _, behind @ ..] = bytes {
        types.push(*frame_type);
        bytes = &behind[u32::from_be_bytes([0, *a, *b, *c]) as usize..];
    }
    types
}

#[test]
fn a_refused_request_is_reset_after_its_response_is_sent() {
    let (data, headers, rst_stream) = (0, 1, 3);
    let mut world = World::new();
    let received = |world: &mut World| {
        let mut bytes = vec![0; 1 << 16];
        let read = (0..20).find_map(|_| {
            world.turn();
            world.peer.read(&mut bytes).ok()
        });
        bytes.truncate(read.unwrap_or(0));
        bytes
    };
    world.peer.write_all(crate::http2::PREFACE).expect("room in the kernel");
    // SETTINGS with an initial window of 0 for streams.
    world.peer.write_all(&[0, 0, 6, 4, 0, 0, 0, 0, 0, 0, 4, 0, 0, 0, 0]).expect("room");
    let block = b"\x83\x86\x01\x01h\x04\x08/version\x0f\x0d\x0899999999";
    let head = [0, 0, u8::try_from(block.len()).expect("short"), headers, 0x04, 0, 0, 0, 1];
    world.peer.write_all(&[&head[..], block].concat()).expect("room");
    let answer = received(&mut world);
    assert!(types(&answer).contains(&headers) && !types(&answer).contains(&data), "{:?}", types(&answer));
    // Sends more than half of the stream's window. The server must not extend the window, since it drops this body.
    let body = [&[0, 0x40, 0, data, 0, 0, 0, 0, 1][..], &[b' '; 0x4000]].concat();
    for _ in 0..40 {
        world.peer.write_all(&body).expect("room in the kernel");
        world.turn();
    }
    let mut updates = received(&mut world);
    while let [0, 0, 4, 8, 0, stream @ .., _, _, _, _] = &updates[..updates.len().min(13)] {
        assert_eq!(stream, [0; 4], "the window of the stream stays as it is");
        updates.drain(..13);
    }
    assert_eq!(updates, b"");
    world.now.ms += LINGER_MS_MAX;
    assert_eq!(world.conn.on_timeout(&mut world.service, &mut world.pool, world.now), Next::Wait);
    assert_eq!(types(&received(&mut world)), [0; 0], "the answer still waits for a window");
    world.peer.write_all(&[0, 0, 4, 8, 0, 0, 0, 0, 1, 0, 1, 0, 0]).expect("room");
    assert_eq!(types(&received(&mut world)), [data]);
    world.now.ms += LINGER_MS_MAX;
    assert_eq!(world.conn.on_timeout(&mut world.service, &mut world.pool, world.now), Next::Wait);
    assert_eq!(types(&received(&mut world)), [rst_stream]);
}

#[test]
fn prefetched_requests_are_served_and_a_read_error_is_kept() {
    let mut world = World::new();
    let request = b"GET /apis/coordination.k8s.io/v1/namespaces/n/leases/a?pretty=1 HTTP/1.1\r\nHost: h\r\n\r\n";
    // The first request determines the protocol.
    world.peer.write_all(request).expect("room in the kernel");
    world.turn();
    world.peer.write_all(request).expect("room in the kernel");
    assert!(world.read_ahead(), "the path names a Lease");
    world.peer.write_all(&request[..20]).expect("room in the kernel");
    world.turn();
    assert!(!world.read_ahead(), "the request is incomplete");
    world.peer.write_all(&request[20..]).expect("room in the kernel");
    world.turn();
    let mut answers = vec![0; 1 << 16];
    let read = world.peer.read(&mut answers).expect("answers");
    let answers = String::from_utf8_lossy(&answers[..read]);
    assert_eq!(answers.matches("HTTP/1.1 404").count(), 3, "{answers}");
    // The peer closes its socket without reading the response. A close with unread bytes resets the connection.
    world.peer.write_all(b"GET /version HTTP/1.1\r\nHost: h\r\n\r\n").expect("room in the kernel");
    world.turn();
    world.peer = TcpStream::connect(world.listener.local_addr().expect("an address")).expect("connects");
    // The kernel reports the reset once, and then only the end of the connection. The second read-ahead must not
    // replace the stored error.
    assert!(!world.read_ahead() && !world.read_ahead());
    world.conn.on_ready(Token(0), &mut world.service, &mut world.pool, world.now);
    assert_eq!(world.conn.phase, Phase::Closed);
    assert_eq!(world.conn.flush(&mut world.service, &mut world.pool, world.now), Next::Close);
}

#[test]
fn bytes_read_ahead_count_towards_the_limit_of_an_anonymous_peer() {
    let mut world = World::new();
    // The first request determines the protocol.
    world.peer.write_all(b"GET /version HTTP/1.1\r\nHost: h\r\n\r\n").expect("room in the kernel");
    world.turn();
    world.conn.credentials = Credentials::unproven();
    // A request line that does not end within one read.
    let sent = [&b"GET /"[..], &[b'a'; BUFFER_BYTES + ANONYMOUS_READ_BYTES_PER_TURN]].concat();
    world.peer.write_all(&sent).expect("room in the kernel");
    world.read_ahead();
    let ahead_bytes = world.conn.received_bytes();
    assert!((ANONYMOUS_READ_BYTES_PER_TURN..sent.len()).contains(&ahead_bytes), "{ahead_bytes}");
    world.conn.on_ready(Token(0), &mut world.service, &mut world.pool, world.now);
    assert_eq!(world.conn.received_bytes(), ahead_bytes, "this turn has read enough");
    assert_eq!(world.conn.flush(&mut world.service, &mut world.pool, world.now), Next::Again);
    world.turn();
    assert_eq!(world.conn.received_bytes(), sent.len());
}

#[test]
fn a_connection_is_abandoned_if_its_peer_has_closed_and_awaits_no_output() {
    for request in ["", "GET /version HTTP/1.1\r\nHost: a\r\n\r\n"] {
        let mut world = World::new();
        world.peer.write_all(request.as_bytes()).expect("room in the kernel");
        world.peer.shutdown(std::net::Shutdown::Write).expect("an open socket");
        assert!(!world.conn.is_abandoned());
        for _ in 0..4 {
            world.wait();
            world.conn.on_ready(Token(0), &mut world.service, &mut world.pool, world.now);
        }
        assert_eq!(world.conn.phase, Phase::Closing);
        assert_eq!(world.conn.is_abandoned(), request.is_empty());
        assert_eq!(world.conn.flush(&mut world.service, &mut world.pool, world.now), Next::Close);
        assert!(world.conn.is_abandoned());
    }
}

#[test]
fn a_watch_ends_when_its_peer_closes_despite_later_requests() {
    for behind in [1, 3_000] {
        let mut world = World::new();
        let target = "/apis/coordination.k8s.io/v1/leases?watch=true&resourceVersion=1";
        world.peer.write_all(format!("GET {target} HTTP/1.1\r\nHost: h\r\n\r\n").as_bytes()).expect("room");
        world.turn();
        assert_eq!(world.service.watchers.len(), 1);
        let requests = b"GET /version HTTP/1.1\r\nHost: h\r\n\r\n".repeat(behind);
        world.peer.write_all(&requests).expect("room in the kernel");
        world.turn();
        assert_eq!(world.service.watchers.len(), 1);
        world.peer.shutdown(std::net::Shutdown::Write).expect("an open socket");
        world.turn();
        assert_eq!(world.service.watchers.len(), 0, "{behind}");
    }
}

#[test]
fn a_creation_awaiting_its_namespace_survives_a_half_close() {
    for behind in [1, 3_000] {
        let mut world = World::new();
        world.service.api.namespaces.apply(NamespaceChange::All(Vec::new()));
        let body = r#"{"metadata":{"name":"a"}}"#;
        let target = "/apis/coordination.k8s.io/v1/namespaces/n/leases";
        let creation = format!("POST {target} HTTP/1.1\r\nHost: h\r\nContent-Length: {}\r\n\r\n{body}", body.len());
        let requests = b"GET /version HTTP/1.1\r\nHost: h\r\n\r\n".repeat(behind);
        world.peer.write_all(&[creation.as_bytes(), &requests].concat()).expect("room in the kernel");
        world.turn();
        assert!(world.conn.protocol.is_waiting());
        world.peer.shutdown(std::net::Shutdown::Write).expect("an open socket");
        world.turn();
        assert!(world.conn.protocol.is_waiting(), "{behind}");
        world.now.ms += NAMESPACE_WAIT_MS;
        let answered = memchr::memmem::find_iter(&world.output_of(100), b"HTTP/1.1 ").count();
        assert_eq!(answered, 1 + behind);
    }
}

#[test]
fn many_queued_bytes_reduce_the_output_of_each_connection() {
    let mut world = World::new();
    assert_eq!(world.service.output_bytes_max(&world.conn.credentials), QUEUED_BYTES_HIGH);
    assert_eq!(world.service.output_bytes_max(&Credentials::unproven()), QUEUED_BYTES_LOW);
    world.service.queued_bytes = QUEUED_BYTES_TOTAL_HIGH;
    world.ask_and_read_nothing();
    assert!(world.conn.waiting_bytes() < QUEUED_BYTES_LOW + BUFFER_BYTES, "{}", world.conn.waiting_bytes());
    // Once all connections together have less queued output, this connection has room again when an event arrives.
    world.service.queued_bytes = 0;
    world.turn();
    world.turn();
    assert!(world.conn.waiting_bytes() > 2 * QUEUED_BYTES_LOW + BUFFER_BYTES, "{}", world.conn.waiting_bytes());
}

#[test]
fn requests_beyond_the_turns_time_wait_for_the_next_turn() {
    let mut world = World::new();
    let long_ago = Instant::now().checked_sub(Duration::from_secs(1)).expect("a clock that has run");
    world.peer.write_all(&b"OPTIONS /apis HTTP/1.1\r\nHost: h\r\n\r\n".repeat(3)).expect("room in the kernel");
    let mut answers = vec![0; 1 << 16];
    for turn in 0..3 {
        world.service.pace.begin_turn(long_ago);
        world.wait();
        world.conn.on_ready(Token(0), &mut world.service, &mut world.pool, world.now);
        let next = world.conn.flush(&mut world.service, &mut world.pool, world.now);
        assert_eq!(next, Next::Again);
        let read = world.peer.read(&mut answers).expect("an answer");
        assert_eq!(memchr::memmem::find_iter(&answers[..read], b"HTTP/1.1 ").count(), 1, "turn {turn}");
    }
}

/// Returns a request with an incomplete body: the head, and `body_bytes` bytes of the body.
fn unfinished(body_bytes: usize) -> Vec<u8> {
    let head =
        b"POST /apis/coordination.k8s.io/v1/namespaces/a/leases HTTP/1.1\r\nHost: h\r\nContent-Length: 3000000\r\n\r\n";
    [&head[..], &vec![b' '; body_bytes]].concat()
}

#[test]
fn a_turn_without_time_reads_at_most_one_buffer() {
    let mut world = World::new();
    let sent = unfinished(4 * BUFFER_BYTES);
    world.peer.write_all(&sent).expect("room in the kernel");
    let long_ago = Instant::now().checked_sub(Duration::from_secs(1)).expect("a clock that has run");
    for turn in 1..=3 {
        world.service.pace.begin_turn(long_ago);
        world.wait();
        world.conn.on_ready(Token(0), &mut world.service, &mut world.pool, world.now);
        assert_eq!(world.conn.flush(&mut world.service, &mut world.pool, world.now), Next::Again);
        assert!((1..=turn * BUFFER_BYTES).contains(&world.conn.received_bytes()), "turn {turn}");
    }
    world.service.pace.begin_turn(Instant::now() + Duration::from_secs(60));
    world.turn();
    assert_eq!(world.conn.received_bytes(), sent.len());
}

#[test]
fn an_anonymous_peer_with_a_long_request_is_slow() {
    for is_anonymous in [false, true] {
        let mut world = World::new();
        if is_anonymous {
            world.conn.credentials = Credentials::unproven();
        }
        // The request line does not end within the bytes that a turn reads from an anonymous peer.
        world
            .peer
            .write_all(&[&b"GET /"[..], &[b'a'; ANONYMOUS_READ_BYTES_PER_TURN]].concat())
            .expect("room in the kernel");
        world.wait();
        world.conn.on_ready(Token(0), &mut world.service, &mut world.pool, world.now);
        assert_eq!(world.service.pace.take_slow(), is_anonymous.then_some(true));
        // An anonymous peer with many complete requests is not slow.
        let mut world = World::new();
        world.conn.credentials = Credentials::unproven();
        let requests = b"GET /version HTTP/1.1\r\nHost: h\r\n\r\n".repeat(ANONYMOUS_READ_BYTES_PER_TURN / 32);
        world.peer.write_all(&requests).expect("room in the kernel");
        world.wait();
        world.conn.on_ready(Token(0), &mut world.service, &mut world.pool, world.now);
        assert_eq!(world.service.pace.take_slow(), Some(false));
    }
}

/// Returns an HTTP/2 patch of a Lease in `ns`. The patch takes long: the server encodes the whole Lease and decodes the
/// patched Lease before it finds the patch's error.
fn patch(stream: u32, name: &str) -> Vec<u8> {
    let path = format!("/apis/coordination.k8s.io/v1/namespaces/ns/leases/{name}");
    let mut block = b"\x02\x05PATCH\x86\x01\x01h\x04".to_vec();
    block.extend([u8::try_from(path.len()).expect("short")].iter().chain(path.as_bytes()));
    block.extend_from_slice(b"\x0f\x10\x1capplication/merge-patch+json");
    let frame = |frame_type: u8, flags: u8, payload: &[u8]| {
        let head = [0, 0, u8::try_from(payload.len()).expect("short"), frame_type, flags];
        [&head[..], &stream.to_be_bytes(), payload].concat()
    };
    [frame(1, 4, &block), frame(0, 1, br#"{"spec":{"renewTime":"x"}}"#)].concat()
}

/// Returns the streams of the HEADERS frames in `bytes`.
fn answered(mut bytes: &[u8]) -> Vec<u32> {
    let mut streams = Vec::new();
    while let [a, b, c, frame_type, _, e, f, g, h, behind @ ..] = bytes {
        if *frame_type == 1 {
            streams.push(u32::from_be_bytes([*e, *f, *g, *h]));
        }
        bytes = &behind[u32::from_be_bytes([0, *a, *b, *c]) as usize..];
    }
    streams
}

#[test]
fn long_requests_wait_for_the_others_of_their_connection() {
    let mut world = World::new();
    let mut lease = Lease::named("ns", "large");
    lease.spec.holder_identity = Some("\u{1}".repeat(1 << 20).into());
    world.service.table.create(lease);
    world.begin_http2();
    let mut exchange = |requests: &[u8], begun: fn() -> Instant| {
        world.peer.write_all(requests).expect("room in the kernel");
        let mut received = Vec::new();
        for _ in 0..40 {
            world.service.pace.begin_turn(begun());
            world.turn();
            let mut bytes = vec![0; 1 << 16];
            let read = world.peer.read(&mut bytes).unwrap_or(0);
            received.extend_from_slice(&bytes[..read]);
        }
        answered(&received)
    };
    let large = |streams: &[u32]| streams.iter().flat_map(|stream| patch(*stream, "large")).collect::<Vec<_>>();
    let requests = [large(&[1, 3]), get_version(5), large(&[7]), get_version(9)].concat();
    assert_eq!(exchange(&requests, Instant::now), [5, 9, 1, 3, 7]);
    // Other requests that use up the time of every turn do not block long requests for ever.
    let others: Vec<_> = (19..59).step_by(2).flat_map(|stream| patch(stream, "missing")).collect();
    let long_ago = || Instant::now().checked_sub(Duration::from_secs(1)).expect("a clock that has run");
    let order: Vec<_> = (19..53).step_by(2).chain([15, 53, 55, 57, 17]).collect();
    assert_eq!(exchange(&[large(&[15, 17]), others].concat(), long_ago), order);
    // After the reset of streams, the server keeps nothing about them.
    let reset = |stream: u32| [&[0, 0, 4, 3, 0][..], &stream.to_be_bytes(), &[0, 0, 0, 8]].concat();
    let streams: Vec<_> = (59..459).step_by(2).collect();
    let resets: Vec<_> = streams.iter().flat_map(|stream| reset(*stream)).collect();
    let requests = [large(&streams), resets, large(&[459]), get_version(461)].concat();
    assert_eq!(exchange(&requests, Instant::now), [461, 459]);
    assert_eq!(world.conn.received_bytes(), 0);
}
