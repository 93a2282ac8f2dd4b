//! Deadlines, order and limits of the requests on one HTTP/2 connection. The connection is in memory, and the test
//! moves its clock, since real deadlines are too long.

#![allow(clippy::panic, clippy::unwrap_used, reason = "tests fail by panicking")]

mod support;

use coordination_apiserver::api::Api;
use coordination_apiserver::auth::Credentials;
use coordination_apiserver::buffer::{ByteBuf, Pool};
use coordination_apiserver::clock::Now;
use coordination_apiserver::http2::limits::FRAME_SIZE_MAX;
use coordination_apiserver::lease::Lease;
use coordination_apiserver::limits::{
    BODY_BYTES_MAX, BODY_MS_MAX, CONNECTION_BODIES_MAX, HEAD_MS_MAX, IDLE_MS_MAX, LINGER_MS_MAX,
    PLAIN_REQUEST_BYTES_MAX, QUEUED_BYTES_HIGH, QUEUED_BYTES_LOW, QUEUED_BYTES_TOTAL_HIGH, RECEIVED_BYTES_TOTAL_HIGH,
    WRITE_STALL_BYTES_MIN, WRITE_STALL_MS_MAX,
};
use coordination_apiserver::resource::ResourceVersion;
use coordination_apiserver::schedule::{Budget, LongState};
use coordination_apiserver::serve::{Context, Peer, Protocol, Service};
use coordination_apiserver::table::Table;
use coordination_apiserver::table::change::Change;
use coordination_apiserver::timestamp::Time;
use coordination_apiserver::tls::trust::Trust;
use mio::Token;
use std::sync::Arc;
use std::time::{Duration, Instant};
use support::frames::{
    DATA, END_HEADERS, END_STREAM, GOAWAY, HEADERS, INITIAL_WINDOW_SIZE, PREFACE, RST_STREAM, WINDOW_UPDATE, cancel,
    frame, get, hello, post, request, request_block, watch, window_update,
};
use support::lease;

/// A connection without a socket. The test moves the connection's clock.
struct InMemory {
    service: Service,
    protocol: Protocol,
    credentials: Credentials,
    input: ByteBuf,
    pool: Pool,
    now: Now,
    /// Number of output bytes above which the connection serves no further request.
    room: usize,
    /// Number of steps of lists that run after the requests are served.
    job_steps: usize,
}

impl InMemory {
    fn new() -> Self {
        Self::of(Credentials::insecure())
    }

    fn of(credentials: Credentials) -> Self {
        let service = Service::new(Api::new(), Table::new(ResourceVersion(1), 16, 1 << 16), Arc::new(Trust::none()));
        let now = Now { ms: 1_000_000, wall: Time(1_767_000_000) };
        let protocol = Protocol::http2(&credentials, &mut Vec::new());
        let (input, pool) = (ByteBuf::default(), Pool::default());
        Self { service, protocol, credentials, input, pool, now, room: QUEUED_BYTES_HIGH, job_steps: 8 }
    }

    /// Passes octets to the server, and returns its output.
    fn recv(&mut self, octets: &[u8]) -> Vec<u8> {
        self.input.append(octets, &mut self.pool);
        let mut out = Vec::new();
        let from = Peer { connection: Token(0), credentials: &self.credentials };
        let mut budget = Budget::for_turn(self.room);
        let cx = &mut Context { service: &mut self.service, from, now: self.now, output: &mut out };
        self.protocol.serve_requests(cx, &mut self.input, &mut budget);
        let is_only_long = self.protocol.long_state() == LongState::Ready && !cx.service.pace.has_answers();
        if is_only_long || self.protocol.long_state() == LongState::Full {
            self.protocol.serve_long_request(cx);
        }
        for _ in 0..self.job_steps {
            if !self.protocol.has_job_step() {
                break;
            }
            self.protocol.step_job(cx);
        }
        out
    }

    /// Returns the time until the server's deadline for a peer that is silent from now on, in ms.
    fn patience_ms(&self) -> u64 {
        self.protocol.deadline_ms(&self.input, self.now.ms) - self.now.ms
    }

    /// Advances the clock to the deadline. Returns the server's output, and whether it closes the connection.
    fn wait_out(&mut self) -> (Vec<u8>, bool) {
        self.now.ms += self.patience_ms();
        let mut out = Vec::new();
        let is_over = self.protocol.on_timeout(&mut self.service, self.now, &mut out);
        (out, is_over)
    }
}

/// Returns the types and the streams of these frames.
fn heads(mut octets: &[u8]) -> Vec<(u8, u32)> {
    let mut heads = Vec::new();
    while let [a, b, c, frame_type, _, d, e, f, g, rest @ ..] = octets {
        heads.push((*frame_type, u32::from_be_bytes([*d, *e, *f, *g])));
        octets = &rest[u32::from_be_bytes([0, *a, *b, *c]) as usize..];
    }
    heads
}

/// A connection is full if its complete requests take more than half of the bytes that it may hold. On a full
/// connection, long requests need not wait for short ones. Incomplete bodies must not make a connection full. So the
/// short request here is answered before the two long patches.
#[test]
fn incomplete_bodies_beside_long_requests() {
    let mut connection = InMemory::new();
    connection.recv(&hello(&[]));
    let last = u32::try_from(CONNECTION_BODIES_MAX).unwrap() + 5;
    for id in (3..last).step_by(2) {
        connection.recv(&post(id));
        for _ in 2..BODY_BYTES_MAX / 16_384 {
            connection.recv(&frame(DATA, 0, id, &[b' '; 16_384]));
        }
    }
    let bytes = connection.protocol.received_bytes();
    assert!(bytes > BODY_BYTES_MAX * CONNECTION_BODIES_MAX / 2, "{bytes} bytes");
    let mut large = Lease::default();
    (large.metadata.namespace, large.metadata.name) = ("n".into(), "large".into());
    large.spec.holder_identity = Some("x".repeat(1 << 20).into());
    connection.service.table.apply(Change::Create(Box::new(large))).expect("a new name");
    let patch = |id: u32| {
        let fields = [("content-type", "application/merge-patch+json")];
        let head = request(id, "PATCH", &lease::path("n", "large"), &fields, false);
        [head, frame(DATA, END_STREAM, id, br#"{"metadata":{"labels":{"a":"b"}}}"#)].concat()
    };
    connection.service.pace.begin_turn(Instant::now() + Duration::from_secs(60));
    let out = connection.recv(&[patch(last), patch(last + 2), get(last + 4, "/healthz")].concat());
    let answered: Vec<_> = heads(&out).into_iter().filter(|(kind, _)| *kind == HEADERS).collect();
    assert_eq!(answered, [(HEADERS, last + 4)]);
}

/// The server takes milliseconds for a long body, for example to parse 16 KiB of YAML. So a request with such a body
/// waits for the other requests of its connection.
#[test]
fn long_bodies_wait_for_the_other_requests_of_their_connection() {
    let answered = |out: &[u8]| {
        heads(out).into_iter().filter(|(kind, _)| *kind == HEADERS).map(|(_, stream)| stream).collect::<Vec<_>>()
    };
    let mut connection = InMemory::new();
    connection.recv(&hello(&[]));
    let long = lease::new("long").replace("node-a", &"x".repeat(PLAIN_REQUEST_BYTES_MAX));
    let (first, rest) = long.as_bytes().split_at(FRAME_SIZE_MAX);
    let long = [post(1), frame(DATA, 0, 1, first), frame(DATA, END_STREAM, 1, rest)].concat();
    let short = [post(3), frame(DATA, END_STREAM, 3, lease::new("short").as_bytes())].concat();
    connection.service.pace.begin_turn(Instant::now() + Duration::from_secs(60));
    let out = connection.recv(&[long, short, get(5, "/healthz")].concat());
    assert_eq!(answered(&out), [3, 5]);
    connection.service.pace.begin_turn(Instant::now() + Duration::from_secs(60));
    assert_eq!(answered(&connection.recv(&[])), [1]);
}

#[test]
fn a_slow_body_resets_only_its_stream() {
    let mut connection = InMemory::new();
    connection.recv(&[hello(&[]), post(1), frame(DATA, 0, 1, b"{")].concat());
    assert_eq!(connection.patience_ms(), BODY_MS_MAX);
    // A single octet of the body does not extend the deadline.
    connection.now.ms += BODY_MS_MAX / 2;
    connection.recv(&frame(DATA, 0, 1, b" "));
    assert_eq!(connection.patience_ms(), BODY_MS_MAX / 2);
    assert_eq!(connection.wait_out(), (cancel(1), false));
    let out = connection.recv(&get(3, "/healthz"));
    assert!(out.ends_with(&frame(DATA, END_STREAM, 3, b"ok")), "the connection continues: {out:?}");
}

#[test]
fn a_slow_reader_resets_only_its_stream() {
    let mut connection = InMemory::new();
    connection.recv(&[hello(&[(INITIAL_WINDOW_SIZE, 0)]), get(1, "/version")].concat());
    assert_eq!(connection.patience_ms(), WRITE_STALL_MS_MAX);
    assert_eq!(connection.wait_out(), (cancel(1), false));
    // The window of the next stream is too small for its response.
    connection.recv(&[get(3, "/version"), window_update(3, 5)].concat());
    assert_eq!(connection.patience_ms(), WRITE_STALL_MS_MAX);
    // A single octet of window does not extend the deadline.
    connection.now.ms += WRITE_STALL_MS_MAX / 2;
    connection.recv(&window_update(3, 1));
    assert_eq!(connection.patience_ms(), WRITE_STALL_MS_MAX / 2);
    assert_eq!(connection.wait_out(), (cancel(3), false));
}

/// The reader opens its window for [`WRITE_STALL_BYTES_MIN`] in each [`WRITE_STALL_MS_MAX`], the least that the server
/// accepts. It is never reset, however long it takes.
#[test]
fn slow_readers_that_continue_to_read_are_not_ended() {
    let mut connection = InMemory::new();
    connection.recv(&[hello(&[(INITIAL_WINDOW_SIZE, 0)]), get(1, "/openapi/v2")].concat());
    let window = u32::try_from(WRITE_STALL_BYTES_MIN / 2).unwrap();
    for step in 0..7 {
        connection.now.ms += WRITE_STALL_MS_MAX / 2 - 1;
        if connection.protocol.deadline_ms(&connection.input, connection.now.ms) <= connection.now.ms {
            let mut out = Vec::new();
            assert!(!connection.protocol.on_timeout(&mut connection.service, connection.now, &mut out));
            assert_eq!(out, b"", "in step {step}");
        }
        let out = connection.recv(&window_update(1, window));
        assert_eq!(out.len(), 9 + WRITE_STALL_BYTES_MIN / 2, "in step {step}");
    }
}

/// A list costs as much as many other requests. So the server makes no list while it serves the requests of a
/// connection. It makes each list afterwards, in a separate step.
#[test]
fn many_lists_are_made_in_separate_steps() {
    let answers = |out: &[u8]| heads(out).iter().filter(|(frame_type, _)| *frame_type == HEADERS).count();
    let mut connection = InMemory::new();
    connection.job_steps = 0;
    let lists = (0..10).flat_map(|n| get(2 * n + 1, &lease::collection("n")));
    assert_eq!(answers(&connection.recv(&[hello(&[]), lists.collect()].concat())), 0);
    connection.job_steps = 2;
    for _ in 0..5 {
        assert_eq!(answers(&connection.recv(&[])), 2);
    }
    assert!(connection.recv(&[]).is_empty());
}

/// A few requests that arrive together are decoded before the first of them is served. So a reset that arrives with its
/// request still prevents the service of the request.
#[test]
fn a_request_that_is_reset_before_it_is_served_changes_nothing() {
    let mut connection = InMemory::new();
    let create = |id, name| [post(id), frame(DATA, END_STREAM, id, lease::new(name).as_bytes())].concat();
    let out = connection.recv(&[hello(&[]), create(1, "a"), create(3, "b"), cancel(1)].concat());
    assert_eq!(heads(&out).last(), Some(&(DATA, 3)));
    let find = |connection: &InMemory, name| connection.service.table.find("n", name).is_some();
    assert_eq!((find(&connection, "a"), find(&connection, "b")), (false, true));
    connection.recv(&create(5, "a"));
    assert!(find(&connection, "a"));
    // Stream 9 uses the slot of stream 7, which is reset. The reset must not affect stream 9.
    let out = connection.recv(&[create(7, "c"), cancel(7), create(9, "d")].concat());
    assert_eq!(heads(&out), [(HEADERS, 9), (DATA, 9)]);
    assert_eq!((find(&connection, "c"), find(&connection, "d")), (false, true));
}

/// The output has room for one response at a time, so the other requests wait. The client may reset a waiting request.
/// The deadline for request bodies does not end a waiting request.
#[test]
fn requests_wait_for_room_for_their_answers() {
    let mut connection = InMemory::new();
    connection.recv(&hello(&[]));
    connection.room = 1;
    let asked: Vec<u8> = [1, 3, 5, 7].into_iter().flat_map(|id| get(id, "/healthz")).collect();
    assert_eq!(heads(&connection.recv(&asked)), [(HEADERS, 1), (DATA, 1)]);
    assert_eq!(heads(&connection.recv(&cancel(5))), [(HEADERS, 3), (DATA, 3)]);
    assert_eq!(connection.patience_ms(), u64::MAX - connection.now.ms, "the server waits for nothing");
    assert_eq!(heads(&connection.recv(&[])), [(HEADERS, 7), (DATA, 7)]);
    assert!(connection.recv(&[]).is_empty());
    assert_eq!(connection.patience_ms(), IDLE_MS_MAX);
}

/// Requests are served while the time budget of the turn of the event loop lasts. At least one is served.
#[test]
fn requests_beyond_the_time_budget_wait_for_the_next_turn() {
    let mut connection = InMemory::new();
    connection.recv(&hello(&[]));
    // A plain request reads or replaces one Lease. The server reads the clock after every eight plain requests, and
    // after any other request, such as OPTIONS. Here the time budget of each turn is used up when the turn begins. So
    // each turn serves one OPTIONS request, reads the clock and stops.
    let asked: Vec<u8> = (0..4).flat_map(|n| request(2 * n + 1, "OPTIONS", "/apis", &[], true)).collect();
    let long_ago = Instant::now().checked_sub(Duration::from_secs(1)).unwrap();
    let mut answered = Vec::new();
    for turn in 0..4 {
        connection.service.pace.begin_turn(long_ago);
        let out = connection.recv(if turn == 0 { &asked } else { &[] });
        answered.push(heads(&out).iter().filter(|(frame_type, _)| *frame_type == HEADERS).count());
    }
    assert_eq!(answered, [1; 4]);
}

/// Each head has a few octets that refer 14 times to a long field of the dynamic table. So the 40 heads of one read,
/// decoded, have more bytes than may wait on the connection of an anonymous peer. The server must serve some of the
/// requests before it decodes the next heads.
#[test]
fn large_heads_of_an_anonymous_peer_are_served_before_they_exceed_the_limit() {
    let mut connection = InMemory::of(Credentials::unproven());
    let entry = [&[0x40, 1, b'a', 0x7f, 0xa1, 0x1e][..], &[b'v'; 4000]].concat();
    let head = |id, fields: &[u8]| {
        let block = [&request_block("GET", "/healthz", &[]), fields].concat();
        frame(HEADERS, END_HEADERS | END_STREAM, id, &block)
    };
    connection.recv(&[hello(&[]), head(1, &entry)].concat());
    let asked: Vec<u8> = (1..=40).flat_map(|n| head(2 * n + 1, &[0x80 | 62; 14])).collect();
    let body_follows = request(83, "POST", "/healthz", &[], false);
    let out = heads(&connection.recv(&[asked, body_follows].concat()));
    assert_eq!(out.iter().filter(|(frame_type, _)| *frame_type == HEADERS).count(), 40, "{out:?}");
    // The heads of the 40 served requests no longer count towards the limit. So the last request may have a body.
    let out = heads(&connection.recv(&frame(DATA, END_STREAM, 83, b"{}")));
    assert_eq!(out.first(), Some(&(HEADERS, 83)), "{out:?}");
}

/// A request without a body is served at once. Bytes that wait for other requests do not count against it.
#[test]
fn a_request_without_a_body_is_served_beside_waiting_bodies() {
    let mut connection = InMemory::of(Credentials::unproven());
    connection.recv(&hello(&[]));
    for n in 0..9 {
        connection.recv(&[post(2 * n + 1), frame(DATA, 0, 2 * n + 1, &[b' '; 16_384])].concat());
    }
    let value = "v".repeat(15_500);
    let out = connection.recv(&request(19, "GET", "/healthz", &[("a", &value)], true));
    assert_eq!(heads(&out).first(), Some(&(HEADERS, 19)));
    let out = connection.recv(&request(21, "POST", "/healthz", &[("a", &value)], false));
    let out = heads(&out);
    let [(HEADERS, refused), (DATA, of_body)] = out[..] else {
        panic!("expected the refusal of another body: {out:?}")
    };
    assert!(refused < 19 && of_body == refused, "{out:?}");
}

/// One of a front proxy's many clients uploads as many bytes as may wait on the connection. The server refuses its
/// largest body, and serves the other clients' requests.
#[test]
fn the_largest_waiting_body_is_refused_when_another_arrives() {
    let mut connection = InMemory::new();
    connection.recv(&[hello(&[]), watch(1)].concat());
    let last = 2 * u32::try_from(CONNECTION_BODIES_MAX).unwrap() + 5;
    let mut out = Vec::new();
    for id in (3..last).step_by(2) {
        out.extend(connection.recv(&post(id)));
        for _ in 1..BODY_BYTES_MAX / 16_384 {
            out.extend(connection.recv(&frame(DATA, 0, id, &[b' '; 16_384])));
        }
    }
    let ended =
        |out: &[u8]| heads(out).into_iter().filter(|(kind, id)| *kind == DATA && (3..last).contains(id)).count();
    assert_eq!(ended(&out), 1, "one of eleven");
    assert!(!heads(&out).contains(&(GOAWAY, 0)));
    assert!(String::from_utf8_lossy(&out).contains("please try again later"));
    // A small body is accepted, however few further bytes may wait on the connection.
    let out = connection.recv(&[post(last), frame(DATA, END_STREAM, last, lease::new("a").as_bytes())].concat());
    assert_eq!((heads(&out).last(), ended(&out)), (Some(&(DATA, last)), 0), "{:?}", heads(&out));
    assert!(connection.service.table.find("n", "a").is_some());
    assert_eq!(connection.service.watchers.len(), 1, "the watch is open");
}

/// While unserved requests on all connections together have too many bytes, each connection may hold only
/// `RECEIVED_BYTES_LOW` bytes of them. (This does not apply to a front proxy.) Of a connection's bodies, the server
/// refuses the largest ones first.
#[test]
fn long_bodies_are_refused_while_too_many_bytes_wait_on_all_connections() {
    let mut connection = InMemory::new();
    connection.recv(&hello(&[]));
    let pieces = |id: u32, count: usize| {
        let pieces = (0..count).map(|_| frame(DATA, 0, id, &[b' '; 16_384]));
        std::iter::once(post(id)).chain(pieces).collect::<Vec<_>>()
    };
    let mut out = Vec::new();
    for octets in [pieces(1, 100), pieces(3, 20), pieces(5, 4)].concat() {
        out.extend(connection.recv(&octets));
    }
    assert!(!heads(&out).iter().any(|(frame_type, _)| *frame_type == DATA));
    connection.service.received_bytes = RECEIVED_BYTES_TOTAL_HIGH;
    let out = connection.recv(&[post(7), frame(DATA, END_STREAM, 7, lease::new("a").as_bytes())].concat());
    let ended = |out: &[u8], id| heads(out).contains(&(DATA, id));
    assert_eq!([1, 3, 5].map(|id| ended(&out, id)), [true, true, false]);
    assert!(String::from_utf8_lossy(&out).contains("please try again later"));
    assert!(connection.service.table.find("n", "a").is_some());
    let mut out = Vec::new();
    for octets in pieces(9, 10) {
        out.extend(connection.recv(&octets));
    }
    assert_eq!([5, 9].map(|id| ended(&out, id)), [false, true]);
}

/// While the output of all connections together has too many bytes, only [`QUEUED_BYTES_LOW`] bytes of each connection
/// may wait for flow-control windows. (This does not apply to a front proxy.) The server resets the longest unread
/// responses first.
#[test]
fn long_unread_responses_are_reset_while_too_many_bytes_wait_on_all_connections() {
    let mut connection = InMemory::new();
    connection.recv(&hello(&[(INITIAL_WINDOW_SIZE, 0)]));
    for (id, name, bytes) in [(1, "long", QUEUED_BYTES_LOW / 2), (3, "short", 1024)] {
        let body = lease::new(name).replace("node-a", &"x".repeat(bytes));
        connection.recv(&[post(id), frame(DATA, END_STREAM, id, body.as_bytes())].concat());
    }
    for id in (5..405).step_by(2) {
        connection.recv(&get(id, &lease::path("n", "long")));
    }
    assert!(connection.protocol.unsent_bytes() > 201 * QUEUED_BYTES_LOW / 2);
    connection.service.queued_bytes = QUEUED_BYTES_TOTAL_HIGH;
    let out = connection.recv(&get(405, &lease::path("n", "short")));
    let resets: Vec<u32> =
        heads(&out).into_iter().filter(|(frame_type, _)| *frame_type == RST_STREAM).map(|(_, id)| id).collect();
    assert_eq!(resets.len(), 200, "one of the 201 long responses is kept");
    assert!(resets.iter().all(|id| *id != 3 && *id != 405), "the short ones are kept: {resets:?}");
    assert!(heads(&out).contains(&(HEADERS, 405)));
    assert!(connection.protocol.unsent_bytes() <= QUEUED_BYTES_LOW);
}

/// A client that reads the response and the reset together may drop the response, as libcurl does. So after a refusal,
/// the server waits before it resets the stream.
#[test]
fn an_answer_to_a_body_that_is_refused_can_be_read_before_the_reset() {
    let piece = |id| frame(DATA, 0, id, &[b' '; 16_384]);
    let too_long = (BODY_BYTES_MAX + 1).to_string();
    let announced = |id| request(id, "POST", &lease::collection("n"), &[("content-length", &too_long)], false);
    let many = [request_block("POST", "/", &[]), vec![0x80 | 16; 2000]].concat();
    let mut connection = InMemory::new();
    connection.recv(&hello(&[]));
    for (id, status, frames) in [
        (1, 413, vec![announced(1)]),
        (3, 413, std::iter::once(post(3)).chain((0..=BODY_BYTES_MAX / 16_384).map(|_| piece(3))).collect()),
        (5, 431, vec![frame(HEADERS, END_HEADERS, 5, &many)]),
    ] {
        let out: Vec<u8> = frames.iter().flat_map(|octets| connection.recv(octets)).collect();
        let mut answer = heads(&out);
        answer.retain(|(frame_type, _)| *frame_type != WINDOW_UPDATE);
        let expected = if status == 413 { vec![(HEADERS, id), (DATA, id)] } else { vec![(HEADERS, id)] };
        assert_eq!(answer, expected, "no reset with a {status}");
        // The client still sends data that was in flight at the refusal. The server drops this data: at most one
        // window, since it does not open the stream's window again.
        let out: Vec<u8> = (0..20).flat_map(|_| connection.recv(&piece(id))).collect();
        assert!(heads(&out).iter().all(|head| *head == (WINDOW_UPDATE, 0)), "{status}: {:?}", heads(&out));
        assert_eq!(connection.protocol.received_bytes(), 0);
        assert_eq!(connection.patience_ms(), LINGER_MS_MAX);
        assert_eq!(connection.wait_out(), (frame(RST_STREAM, 0, id, &[0; 4]), false));
        assert_eq!(connection.patience_ms(), IDLE_MS_MAX);
    }
    let out = connection.recv(&get(7, "/metrics"));
    let text = String::from_utf8_lossy(&out);
    assert!(text.lines().any(|line| line.contains("verb=\"POST\"") && line.ends_with("code=\"413\"} 2")), "{text}");
}

#[test]
fn slow_heads_and_idle_connections_end_the_connection() {
    let goaway = |last: u32| frame(GOAWAY, 0, 0, &[last.to_be_bytes(), [0; 4]].concat());
    let mut connection = InMemory::new();
    connection.recv(&PREFACE[..10]);
    assert_eq!(connection.patience_ms(), HEAD_MS_MAX);
    assert_eq!(connection.wait_out(), (goaway(0), true));
    let mut connection = InMemory::new();
    connection.recv(&[hello(&[]), frame(HEADERS, 0, 1, &request_block("GET", "/", &[]))].concat());
    assert_eq!(connection.patience_ms(), HEAD_MS_MAX);
    assert!(connection.wait_out().1);
    let mut connection = InMemory::new();
    connection.recv(&[hello(&[]), get(1, "/healthz")].concat());
    assert_eq!(connection.patience_ms(), IDLE_MS_MAX);
    assert_eq!(connection.wait_out(), (goaway(1), true));
}
