//! Known attacks on HTTP/2, as handwritten frames. Each must end with the right error code. Most go to a real server:
//! another connection is served during and after the attack, which costs the server little time and memory. Attacks
//! that would take long go to a connection in memory, whose clock the test moves.

#![allow(clippy::panic, clippy::unwrap_used, reason = "tests fail by panicking")]

mod support;

use coordination_apiserver::api::Api;
use coordination_apiserver::auth::Credentials;
use coordination_apiserver::buffer::{ByteBuf, Pool};
use coordination_apiserver::clock::Now;
use coordination_apiserver::http2::{ErrorCode, limits as http2_limits};
use coordination_apiserver::lease::Lease;
use coordination_apiserver::limits::{
    BODY_BYTES_MAX, BODY_MS_MAX, CONNECTION_BODIES_MAX, HEAD_MS_MAX, IDLE_MS_MAX, JOB_KEYS_PER_STEP, LINGER_MS_MAX,
    LONG_JOBS_MAX, PLAIN_REQUEST_BYTES_MAX, QUEUED_BYTES_HIGH, QUEUED_BYTES_LOW, QUEUED_BYTES_TOTAL_HIGH,
    RECEIVED_BYTES_TOTAL_HIGH, UNSENT_BYTES_MAX, WRITE_STALL_BYTES_MIN, WRITE_STALL_MS_MAX,
};
use coordination_apiserver::resource::ResourceVersion;
use coordination_apiserver::schedule::{Budget, LongState};
use coordination_apiserver::serve::{Context, Peer, Protocol, Service};
use coordination_apiserver::table::change::Change;
use coordination_apiserver::table::{PREFETCH_MAX, Table};
use coordination_apiserver::timestamp::Time;
use coordination_apiserver::tls::trust::Trust;
use mio::Token;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};
use support::aggregated::Aggregated;
use support::frames::{
    ACK, CONTINUATION, DATA, END_HEADERS, END_STREAM, Frames, GOAWAY, HEADERS, INITIAL_WINDOW_SIZE, PING, PREFACE,
    PRIORITY, RST_STREAM, SETTINGS, WINDOW_UPDATE, cancel, frame, literal, request, request_block, settings,
    window_update,
};
use support::http2::{Http2Client, Message};
use support::lease;
use support::process::Process;
use support::tls::AUTHORITY;

const CALM: u32 = ErrorCode::ENHANCE_YOUR_CALM.0;
const FLOW_CONTROL: u32 = ErrorCode::FLOW_CONTROL_ERROR.0;

/// Processor seconds that an attack may cost, including the requests of the other client. The limit is generous, since
/// tests are built without optimization.
const CPU_SECONDS_MAX: f64 = 3.0;

/// Bytes of memory that an attack may cost, except for attacks on memory.
const MEMORY_BYTES_MAX: usize = 24 << 20;

/// Starts a server as a process, with two Leases to list.
fn start() -> Process {
    let process = Process::start(&[], 1024);
    let mut client = Http2Client::open(process.endpoint());
    for name in ["a", "b"] {
        client.call("POST", &lease::collection("n"), &lease::new(name)).expect_status(201, "before the attack");
    }
    process
}

/// Starts a server, and runs `attack` on one connection while another client sends requests. Checks that the attack
/// cost little processor time, and less than `memory_bytes_max` bytes of memory.
#[track_caller]
fn withstand(memory_bytes_max: usize, attack: impl FnOnce(&mut Frames)) {
    let process = start();
    let (cpu_seconds, memory_bytes) = (process.cpu_seconds(), process.memory_peak_bytes());
    let is_over = AtomicBool::new(false);
    thread::scope(|scope| {
        let witness = scope.spawn(|| {
            let mut client = Http2Client::open(process.endpoint());
            let mut answers = 0;
            while !is_over.load(Ordering::Acquire) || answers < 2 {
                client.call("GET", "/healthz", "").expect_status(200, "another connection during an attack");
                answers += 1;
                thread::sleep(Duration::from_millis(5));
            }
        });
        let attacked = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            attack(&mut Frames::open(process.endpoint()));
        }));
        is_over.store(true, Ordering::Release);
        witness.join().expect("another connection is served during an attack");
        attacked.unwrap_or_else(|panic| std::panic::resume_unwind(panic));
    });
    assert!(process.answers(), "a new connection after the attack");
    let cpu_seconds = process.cpu_seconds() - cpu_seconds;
    assert!(cpu_seconds < CPU_SECONDS_MAX, "{cpu_seconds} s of processor time");
    let memory_bytes = process.memory_peak_bytes().saturating_sub(memory_bytes);
    assert!(memory_bytes < memory_bytes_max, "{} KiB of memory", memory_bytes / 1024);
}

/// Sends `attack(n)` for n = 0, 1, … `count` times. The connection must end with a GOAWAY of this code.
#[track_caller]
fn flood(code: u32, count: u32, attack: impl Fn(u32) -> Vec<u8>) {
    flood_after(&[], code, count, attack);
}

/// Sends `before`, and then does the same as [`flood`].
#[track_caller]
fn flood_after(before: &[u8], code: u32, count: u32, attack: impl Fn(u32) -> Vec<u8>) {
    withstand(MEMORY_BYTES_MAX, |frames| {
        frames.send(before);
        let sender = frames.send_aside((0..count).flat_map(attack).collect());
        assert_eq!(frames.recv_goaway(), code);
        sender.join().unwrap();
    });
}

fn get(stream: u32, path: &str) -> Vec<u8> {
    request(stream, "GET", path, &[], true)
}

/// Builds a request that lasts until the attacker ends it.
fn watch(stream: u32) -> Vec<u8> {
    get(stream, &format!("{}?watch=true", lease::collection("n")))
}

fn post(stream: u32) -> Vec<u8> {
    request(stream, "POST", &lease::collection("n"), &[("content-type", "application/json")], false)
}

#[test]
fn rapid_reset() {
    // CVE-2023-44487
    flood(CALM, 3 * http2_limits::RESETS.burst, |n| {
        [get(2 * n + 1, &lease::collection("n")), cancel(2 * n + 1)].concat()
    });
}

/// Builds a request for a watch and, with `end`, octets that end an earlier watch. The earlier watch is so many
/// requests back that the server has certainly opened it. The server decodes up to [`PREFETCH_MAX`] requests before it
/// serves the first of them.
fn watch_and_end(n: u32, end: impl Fn(u32) -> Vec<u8>) -> Vec<u8> {
    let ended = n.checked_sub(2 * u32::try_from(PREFETCH_MAX).unwrap()).map(|n| end(2 * n + 1));
    [watch(2 * n + 1), ended.unwrap_or_default()].concat()
}

#[test]
fn rapid_reset_of_watches() {
    flood(CALM, 3 * http2_limits::RESETS.burst, |n| [watch(2 * n + 1), cancel(2 * n + 1)].concat());
    flood(CALM, 3 * http2_limits::RESETS.burst, |n| watch_and_end(n, cancel));
}

#[test]
fn made_you_reset() {
    // CVE-2025-8671: the attacker makes the server send resets, in every possible way.
    let means: [fn(u32) -> Vec<u8>; 5] = [
        |id| window_update(id, 0),
        |id| window_update(id, u32::MAX >> 1),
        |id| frame(DATA, 0, id, b"after the end"),
        |id| frame(HEADERS, END_HEADERS | END_STREAM, id, &[]),
        |id| frame(PRIORITY, 0, id, &[0; 4]),
    ];
    for means in means {
        flood(CALM, 3 * http2_limits::RESETS.burst, |n| watch_and_end(n, means));
    }
}

#[test]
fn continuation_flood() {
    let head = frame(HEADERS, END_STREAM, 1, &request_block("GET", "/", &[]));
    flood_after(&head, CALM, 10_000, |_| frame(CONTINUATION, 0, 1, &[]));
    flood_after(&head, CALM, 100, |_| frame(CONTINUATION, 0, 1, &[0x90; 16_384]));
}

/// Builds a request without a body, whose field block takes several frames.
fn in_continuations(stream: u32, block: &[u8]) -> Vec<u8> {
    let fragments = block.chunks(http2_limits::FRAME_SIZE_MAX);
    let last = fragments.len() - 1;
    let frames = fragments.enumerate().flat_map(|(at, fragment)| {
        let end = if at == last { END_HEADERS } else { 0 };
        let (frame_type, flags) = if at == 0 { (HEADERS, END_STREAM | end) } else { (CONTINUATION, end) };
        frame(frame_type, flags, stream, fragment)
    });
    frames.collect()
}

/// kube-apiserver accepts heads of 1 MiB, and makes some of them longer. On a new connection, it forwards such a head
/// before it has read the limit of this server. The requests of other clients on the connection must succeed.
#[test]
fn long_heads_on_a_new_connection_of_a_front_proxy() {
    let aggregated = Aggregated::start();
    let user = ("x-remote-user", "alice");
    let block = |path: &str, fields: &[u8]| [&request_block("GET", path, &[user])[..], fields].concat();
    let field = |bytes: usize| literal("x-long", &"v".repeat(bytes));
    // Each of the short fields takes one octet, which refers to an entry of the dynamic table.
    let short_fields = [&[0x40, 1, b'a', 0][..], &[0x80_u8 | 62].repeat(350_000)].concat();
    let heads = [
        block("/", &field(66_000)),
        block("/", &field(1_024_000)),
        block("/", &short_fields),
        block(&format!("/{}", "%FF".repeat(1_000_000)), &[]),
    ];
    let create = |stream: u32| {
        let fields = [("content-type", "application/json"), user];
        let head = request(stream, "POST", &lease::collection("n"), &fields, false);
        let body = lease::new(&format!("lease-{stream}"));
        [head, frame(DATA, END_STREAM, stream, body.as_bytes())].concat()
    };
    let mut frames = Frames::open(&aggregated.aggregator_endpoint());
    let (mut stream, mut expected) = (1, BTreeMap::new());
    for head in &heads {
        frames.send([create(stream), in_continuations(stream + 2, head), create(stream + 4)].concat());
        expected.extend([(stream, 201), (stream + 2, 431), (stream + 4, 201)]);
        stream += 6;
    }
    let mut statuses = BTreeMap::new();
    while statuses.len() < expected.len() {
        let head = frames.recv_until(|frame| frame.frame_type == HEADERS);
        let status = frames.status_of(&head);
        statuses.insert(head.stream, status);
    }
    assert_eq!(statuses, expected);
    // Any other peer sends only its own requests. Such a head ends its connection.
    let mut frames = Frames::open(&aggregated.endpoint(AUTHORITY.client_config("admin", &["system:masters"])));
    frames.send(in_continuations(1, &heads[0]));
    assert_eq!(frames.recv_goaway(), CALM);
}

#[test]
fn settings_flood() {
    flood(CALM, 20_000, |n| settings(&[(INITIAL_WINDOW_SIZE, n % 2 * 65_535)]));
    flood(CALM, 20_000, |_| frame(SETTINGS, ACK, 0, &[]));
}

#[test]
fn ping_flood() {
    flood(CALM, 20_000, |_| frame(PING, 0, 0, b"01234567"));
    flood(CALM, 20_000, |_| frame(PING, ACK, 0, b"01234567"));
}

#[test]
fn empty_data_flood() {
    flood_after(&post(1), CALM, 20_000, |_| frame(DATA, 0, 1, &[]));
    // A flood of DATA frames that contain nothing but padding. The flag 0x8 is PADDED.
    flood_after(&post(1), CALM, 2_000, |_| frame(DATA, 0x8, 1, &[&[255][..], &[0; 255]].concat()));
}

#[test]
fn priority_and_unknown_frame_flood() {
    flood(CALM, 20_000, |_| frame(PRIORITY, 0, 1, &[0, 0, 0, 3, 1]));
    flood(CALM, 20_000, |_| frame(0xbe, 0, 0, b"?"));
}

#[test]
fn header_bombs() {
    // One entry of some 4,000 octets in the dynamic table, then one octet for each reference to it (CVE-2016-6581).
    let entry = [&[0x40, 1, b'a', 0x7f, 0xa1, 0x1e][..], &[b'v'; 4000]].concat();
    let bomb = [request_block("GET", "/", &[]), entry, vec![0x80 | 62; 10_000]].concat();
    flood(CALM, 1, |_| frame(HEADERS, END_HEADERS | END_STREAM, 1, &bomb));
    // A flood of long field lists. The server answers each with 431, until it ends the connection.
    let many = [request_block("GET", "/", &[]), vec![0x80 | 16; 2000]].concat();
    flood(CALM, 4 * http2_limits::RESETS.burst, |n| frame(HEADERS, END_HEADERS | END_STREAM, 2 * n + 1, &many));
}

#[test]
fn windows_that_overflow() {
    flood(FLOW_CONTROL, 1, |_| window_update(0, u32::MAX >> 1));
    flood(FLOW_CONTROL, 1, |_| settings(&[(INITIAL_WINDOW_SIZE, 1 << 31)]));
    let widened = [watch(1), window_update(1, 1 << 20)].concat();
    flood_after(&widened, FLOW_CONTROL, 1, |_| settings(&[(INITIAL_WINDOW_SIZE, u32::MAX >> 1)]));
    withstand(MEMORY_BYTES_MAX, |frames| {
        frames.send([watch(1), window_update(1, u32::MAX >> 1)].concat());
        let reset = frames.recv_until(|frame| frame.frame_type == RST_STREAM);
        assert_eq!(
            (reset.stream, reset.code()),
            (1, Some(FLOW_CONTROL)),
            "an overflow of a stream's window ends the stream"
        );
        frames.round_trip();
    });
}

#[test]
fn window_update_flood() {
    flood(CALM, 20_000, |_| window_update(0, 1));
    flood_after(&watch(1), CALM, 20_000, |_| window_update(1, 1));
}

#[test]
fn streams_above_the_limit() {
    flood(CALM, http2_limits::STREAMS_MAX + 2 * http2_limits::RESETS.burst, |n| watch(2 * n + 1));
}

#[test]
fn incomplete_bodies_on_every_stream() {
    let piece = [b' '; 16_384];
    let memory_bytes_max = CONNECTION_BODIES_MAX * BODY_BYTES_MAX * 2 + MEMORY_BYTES_MAX;
    withstand(memory_bytes_max, |frames| {
        let bodies =
            (0..http2_limits::STREAMS_MAX).flat_map(|n| [post(2 * n + 1), frame(DATA, 0, 2 * n + 1, &piece)].concat());
        let sender = frames.send_aside(bodies.chain(frame(PING, 0, 0, &[0; 8])).collect());
        frames.recv_until(|frame| frame.frame_type == PING);
        sender.join().unwrap();
    });
}

/// The server decodes a long head into a buffer, and refuses the head. The next request, whose body is incomplete, must
/// not keep this long buffer.
#[test]
fn long_heads_before_incomplete_bodies() {
    let entry = [&[0x40, 1, b'a', 0x7f, 0xa1, 0x1e][..], &[b'v'; 4000]].concat();
    let head = |n, fields: &[u8]| {
        let block = [&request_block("GET", "/", &[]), fields].concat();
        frame(HEADERS, END_HEADERS | END_STREAM, 4 * n + 3, &block)
    };
    let count = http2_limits::STREAMS_MAX - 10;
    withstand(MEMORY_BYTES_MAX, |frames| {
        frames
            .send([frame(HEADERS, END_HEADERS, 1, &[&request_block("POST", "/", &[])[..], &entry].concat())].concat());
        for n in 0..count {
            frames.send([head(n, &[0x80 | 62; 17]), post(4 * n + 5)].concat());
        }
        frames.round_trip();
    });
}

#[test]
fn long_answers_behind_closed_windows() {
    let process = Process::start(&[], 1024);
    let mut client = Http2Client::open(process.endpoint());
    let creations: Vec<_> = (0..1000)
        .map(|n| client.send(&Message::new("POST", &lease::collection("n"), &lease::new(&format!("lease-{n:04}")))))
        .collect();
    for creation in creations {
        client.recv(creation).expect_status(201, "before the attack");
    }
    let (cpu_seconds, memory_bytes) = (process.cpu_seconds(), process.memory_peak_bytes());
    let mut frames = Frames::open_with(process.endpoint(), &[(INITIAL_WINDOW_SIZE, 0)]);
    let asked = (0..http2_limits::STREAMS_MAX).flat_map(|n| get(2 * n + 1, &lease::collection("n"))).collect();
    let sender = frames.send_aside(asked);
    let begun = Instant::now();
    let mut heads = 0;
    while heads < http2_limits::STREAMS_MAX {
        match frames.try_recv() {
            Ok(got) if got.frame_type == HEADERS => heads += 1,
            Ok(got) if got.frame_type == GOAWAY => {
                assert_eq!(got.code(), Some(CALM));
                break;
            }
            Ok(_) => {}
            Err(error) => panic!("{error} after {heads} heads"),
        }
    }
    sender.join().unwrap();
    client.call("GET", "/healthz", "").expect_status(200, "another connection");
    let (cpu_seconds, elapsed) = (process.cpu_seconds() - cpu_seconds, begun.elapsed());
    assert!(cpu_seconds < 2.0 * CPU_SECONDS_MAX, "{cpu_seconds} s of processor time in {elapsed:?}");
    let memory_bytes = process.memory_peak_bytes().saturating_sub(memory_bytes);
    // The server prepares only a small piece of each list in advance.
    let pieces_bytes_max = 16 * 1024 * http2_limits::STREAMS_MAX as usize;
    assert!(memory_bytes < pieces_bytes_max + 2 * MEMORY_BYTES_MAX, "{} KiB of memory", memory_bytes / 1024);
}

#[test]
fn long_leases_behind_closed_windows() {
    let process = Process::start(&[], 1024);
    let mut client = Http2Client::open(process.endpoint());
    let long = lease::new("long").replace("node-a", &"x".repeat(1 << 20));
    client.call("POST", &lease::collection("n"), &long).expect_status(201, "before the attack");
    let memory_bytes = process.memory_peak_bytes();
    let mut frames = Frames::open_with(process.endpoint(), &[(INITIAL_WINDOW_SIZE, 0)]);
    let asked = 200;
    frames.send((0..asked).flat_map(|n| get(2 * n + 1, &lease::path("n", "long"))).collect::<Vec<_>>());
    let (mut heads, mut resets) = (0, 0);
    while heads < asked {
        let got = frames.recv();
        heads += u32::from(got.frame_type == HEADERS);
        if got.frame_type == RST_STREAM {
            assert_eq!(got.code(), Some(CALM));
            resets += 1;
        }
    }
    client.call("GET", "/healthz", "").expect_status(200, "another connection");
    let kept_max = u32::try_from(UNSENT_BYTES_MAX >> 20).unwrap();
    assert!(resets >= asked - kept_max - 1, "{resets} of {asked} streams were reset");
    let memory_bytes = process.memory_peak_bytes().saturating_sub(memory_bytes);
    assert!(memory_bytes < UNSENT_BYTES_MAX + MEMORY_BYTES_MAX, "{} KiB of memory", memory_bytes / 1024);
}

/// One client of a front proxy does not read its long responses. They must not take the room of other clients'
/// responses on the same connection. So the server resets the longest of these responses first.
#[test]
fn the_longest_unread_response_is_reset_for_a_shorter_one() {
    let process = Process::start(&[], 1024);
    let mut client = Http2Client::open(process.endpoint());
    for (name, bytes) in [("long", 1 << 20), ("short", 600_000)] {
        let lease = lease::new(name).replace("node-a", &"x".repeat(bytes));
        client.call("POST", &lease::collection("n"), &lease).expect_status(201, "before the attack");
    }
    let mut frames = Frames::open_with(process.endpoint(), &[(INITIAL_WINDOW_SIZE, 0)]);
    let long = u32::try_from(UNSENT_BYTES_MAX >> 20).unwrap() - 1;
    let asked = long + 4;
    let name = |n: u32| if n < long { "long" } else { "short" };
    frames.send((0..asked).flat_map(|n| get(2 * n + 1, &lease::path("n", name(n)))).collect::<Vec<_>>());
    let (mut heads, mut resets) = (0, Vec::new());
    while heads < asked {
        let got = frames.recv();
        heads += u32::from(got.frame_type == HEADERS);
        if got.frame_type == RST_STREAM {
            resets.push(got.stream);
        }
    }
    assert!(!resets.is_empty() && resets.iter().all(|stream| *stream < 2 * long), "{resets:?}");
}

/// A connection is full if its complete requests take half of its bytes. On a full connection, long requests need not
/// wait for short ones. Incomplete bodies must not make a connection full: the short request is answered before the two
/// long patches.
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

/// YAML of 16 KiB takes milliseconds, for example. So a request with such a body waits for the other requests of its
/// connection.
#[test]
fn long_bodies_wait_for_the_other_requests_of_their_connection() {
    let answered = |out: &[u8]| {
        heads(out).into_iter().filter(|(kind, _)| *kind == HEADERS).map(|(_, stream)| stream).collect::<Vec<_>>()
    };
    let mut connection = InMemory::new();
    connection.recv(&hello(&[]));
    let long = lease::new("long").replace("node-a", &"x".repeat(PLAIN_REQUEST_BYTES_MAX));
    let (first, rest) = long.as_bytes().split_at(http2_limits::FRAME_SIZE_MAX);
    let long = [post(1), frame(DATA, 0, 1, first), frame(DATA, END_STREAM, 1, rest)].concat();
    let short = [post(3), frame(DATA, END_STREAM, 3, lease::new("short").as_bytes())].concat();
    connection.service.pace.begin_turn(Instant::now() + Duration::from_secs(60));
    let out = connection.recv(&[long, short, get(5, "/healthz")].concat());
    assert_eq!(answered(&out), [3, 5]);
    connection.service.pace.begin_turn(Instant::now() + Duration::from_secs(60));
    assert_eq!(answered(&connection.recv(&[])), [1]);
}

/// The limit [`UNSENT_BYTES_MAX`] on responses that wait for windows also holds for watch events and for later pieces
/// of lists.
#[test]
fn long_events_and_list_pieces_behind_small_windows() {
    let watch = |target: &str| format!("{target}?watch=true&resourceVersion=0");
    for (what, leases, window, wider, target) in [
        ("events", &[("long", 1 << 20)][..], 1, 0, watch(&lease::collection("n"))),
        // The first window lets only the beginning of each list through. The wider window then lets the first Lease
        // through, and a little of the long one.
        ("lists", &[("a", 5_000), ("long", 1 << 20)], 100, 7_000, lease::collection("n")),
    ] {
        let process = Process::start(&[], 1024);
        let mut client = Http2Client::open(process.endpoint());
        for (name, length) in leases {
            let long = lease::new(name).replace("node-a", &"x".repeat(*length));
            client.call("POST", &lease::collection("n"), &long).expect_status(201, "before the attack");
        }
        let memory_bytes = process.memory_peak_bytes();
        let mut frames = Frames::open_with(process.endpoint(), &[(INITIAL_WINDOW_SIZE, window)]);
        let asked = 100;
        for n in 0..asked {
            frames.send(get(2 * n + 1, &target));
        }
        if wider > 0 {
            // The first piece of each list has arrived.
            for _ in 0..asked {
                frames.recv_until(|frame| frame.frame_type == DATA);
            }
            let windows = (0..asked).flat_map(|n| window_update(2 * n + 1, wider));
            frames.send(window_update(0, 1 << 28).into_iter().chain(windows).collect::<Vec<_>>());
        }
        let kept_max = u32::try_from(UNSENT_BYTES_MAX >> 20).unwrap();
        for _ in kept_max..asked {
            let reset = frames.recv_until(|frame| frame.frame_type == RST_STREAM);
            assert_eq!(reset.code(), Some(CALM), "{what}");
        }
        client.call("GET", "/healthz", "").expect_status(200, "another connection");
        let memory_bytes = process.memory_peak_bytes().saturating_sub(memory_bytes);
        assert!(memory_bytes < UNSENT_BYTES_MAX + 2 * MEMORY_BYTES_MAX, "{what}: {} KiB", memory_bytes / 1024);
    }
}

/// The limit [`QUEUED_BYTES_TOTAL_HIGH`] on the output of all connections together also counts the bytes that wait for
/// flow-control windows.
#[test]
fn long_leases_behind_closed_windows_of_many_connections() {
    let process = Process::start(&[], 1024);
    let mut client = Http2Client::open(process.endpoint());
    let long = lease::new("long").replace("node-a", &"x".repeat(1 << 18));
    client.call("POST", &lease::collection("n"), &long).expect_status(201, "before the attack");
    let memory_bytes = process.memory_peak_bytes();
    let asked = 120;
    let mut connections = Vec::new();
    for _ in 0..3 * QUEUED_BYTES_TOTAL_HIGH / UNSENT_BYTES_MAX {
        let mut frames = Frames::open_with(process.endpoint(), &[(INITIAL_WINDOW_SIZE, 0)]);
        frames.send((0..asked).flat_map(|n| get(2 * n + 1, &lease::path("n", "long"))).collect::<Vec<_>>());
        connections.push(frames);
    }
    for frames in &mut connections {
        for _ in 0..asked {
            frames.recv_until(|frame| frame.frame_type == HEADERS);
        }
    }
    client.call("GET", "/healthz", "").expect_status(200, "another connection");
    let memory_bytes = process.memory_peak_bytes().saturating_sub(memory_bytes);
    let memory_bytes_max = QUEUED_BYTES_TOTAL_HIGH + UNSENT_BYTES_MAX + 2 * MEMORY_BYTES_MAX;
    assert!(memory_bytes < memory_bytes_max, "{} KiB of memory", memory_bytes / 1024);
}

/// The windows open at once for more bytes than the output may hold. No later frame triggers the remaining writes, so
/// the server must continue by itself.
#[test]
fn windows_that_open_all_at_once() {
    let process = Process::start(&[], 1024);
    let mut client = Http2Client::open(process.endpoint());
    let long = lease::new("long").replace("node-a", &"x".repeat(QUEUED_BYTES_HIGH / 2));
    client.call("POST", &lease::collection("n"), &long).expect_status(201, "before");
    let mut frames = Frames::open_with(process.endpoint(), &[(INITIAL_WINDOW_SIZE, 0)]);
    let asked = 20;
    frames.send((0..asked).flat_map(|n| get(2 * n + 1, &lease::path("n", "long"))).collect::<Vec<_>>());
    for _ in 0..asked {
        frames.recv_until(|frame| frame.frame_type == HEADERS);
    }
    frames.send([window_update(0, 1 << 28), settings(&[(INITIAL_WINDOW_SIZE, 1 << 24)])].concat());
    for _ in 0..asked {
        frames.recv_until(|frame| frame.frame_type == DATA && frame.flags & END_STREAM != 0);
    }
}

/// As many unread lists as the server permits, each of more Leases than one step examines. The server refuses further
/// long work with 429, and still serves short requests.
#[test]
fn long_lists_behind_closed_windows() {
    let process = Process::start(&[], 1024);
    let mut client = Http2Client::open(process.endpoint());
    for n in 0..=JOB_KEYS_PER_STEP {
        client.call("POST", &lease::collection("n"), &lease::new(&format!("a{n}"))).expect_status(201, "before");
    }
    let mut frames = Frames::open_with(process.endpoint(), &[(INITIAL_WINDOW_SIZE, 0)]);
    let asked = u32::try_from(LONG_JOBS_MAX).unwrap();
    frames.send((0..asked).flat_map(|n| get(2 * n + 1, &lease::collection("n"))).collect::<Vec<_>>());
    let mut heads = 0;
    while heads < asked {
        heads += u32::from(frames.recv().frame_type == HEADERS);
    }
    let target = lease::collection("n");
    let refused = client.call("GET", &target, "").expect_failure(429, "TooManyRequests", "one list more");
    assert_eq!(refused.head.field("retry-after"), Some("1"));
    let informer = "?watch=true&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true";
    client.call("GET", &format!("{target}{informer}"), "").expect_failure(429, "TooManyRequests", "a long watch");
    client
        .call("GET", &format!("{target}?watch=true&resourceVersion=1&timeoutSeconds=1"), "")
        .expect_status(200, "a watch that begins with nothing");
    client.call("DELETE", &target, "").expect_failure(429, "TooManyRequests", "a long deletion");
    // {"v":"meta.k8s.io/v1","rv":-1,"start":"n/","remaining":0}: a forged token says that nothing remains.
    let forged = "?continue=eyJ2IjoibWV0YS5rOHMuaW8vdjEiLCJydiI6LTEsInN0YXJ0Ijoibi8iLCJyZW1haW5pbmciOjB9";
    client.call("GET", &format!("{target}{forged}"), "").expect_failure(429, "TooManyRequests", "a forged token");
    client.call("GET", &format!("{target}?limit=5"), "").expect_status(200, "a page");
    client.call("DELETE", &format!("{target}?limit=5&dryRun=All"), "").expect_status(200, "a short deletion");
    client.call("GET", &lease::path("n", "a0"), "").expect_status(200, "all else");
    drop(frames);
    let is_over = (0..100).any(|_| {
        thread::sleep(Duration::from_millis(20));
        client.call("GET", &target, "").head.status == 200
    });
    assert!(is_over, "a closed connection frees its lists");
}

/// A connection without a socket. The test moves the connection's clock, since real deadlines are too long.
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
        let protocol = Protocol::http2(&credentials, now, &mut Vec::new());
        let (input, pool) = (ByteBuf::default(), Pool::default());
        Self { service, protocol, credentials, input, pool, now, room: QUEUED_BYTES_HIGH, job_steps: 8 }
    }

    /// Passes octets to the server, and returns its output.
    fn recv(&mut self, octets: &[u8]) -> Vec<u8> {
        let spare = self.input.spare_mut(&mut self.pool);
        spare[..octets.len()].copy_from_slice(octets);
        self.input.fill(octets.len());
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

fn hello(values: &[(u16, u32)]) -> Vec<u8> {
    [PREFACE, &settings(values), &frame(SETTINGS, ACK, 0, &[])].concat()
}

#[test]
fn a_slow_body_resets_only_its_stream() {
    let mut connection = InMemory::new();
    connection.recv(&[hello(&[]), post(1), frame(DATA, 0, 1, b"{")].concat());
    assert_eq!(connection.patience_ms(), BODY_MS_MAX);
    // A single octet does not extend the deadline.
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
    // A single octet does not extend the deadline.
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

/// A list costs as much as many other requests. So the pass that serves a connection's requests makes no list. Each
/// list is made after the pass, in a step of its own.
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

/// Requests that arrive together are all decoded before the first of them is served. So a reset behind them still
/// prevents the service of a request.
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
/// The deadline for request bodies does not end it.
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
    // The server reads the clock after every eight plain requests, each of which reads or replaces one Lease, and after
    // any other request, such as OPTIONS. The time budget of each turn here is used up when the turn begins. So each
    // turn serves one OPTIONS request, reads the clock and stops.
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
/// decoded, have more bytes than may wait on the connection of an anonymous peer.
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
    // Served heads no longer count towards the limit when the body of the last request must wait.
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
    // A small body is accepted, however little room there is.
    let out = connection.recv(&[post(last), frame(DATA, END_STREAM, last, lease::new("a").as_bytes())].concat());
    assert_eq!((heads(&out).last(), ended(&out)), (Some(&(DATA, last)), 0), "{:?}", heads(&out));
    assert!(connection.service.table.find("n", "a").is_some());
    assert_eq!(connection.service.watchers.len(), 1, "the watch is open");
}

/// While unserved requests on all connections have too many bytes, each connection may hold only `RECEIVED_BYTES_LOW`.
/// The server refuses its largest bodies first.
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

/// While the output of all connections has too many bytes, each connection may keep only [`QUEUED_BYTES_LOW`] for its
/// flow-control windows. The server resets the longest unread responses first.
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

/// A client requests what is refused, and cancels each request. The server ends the connection because of the many
/// resets, and keeps no memory for the refused bodies.
#[test]
fn bodies_that_are_refused_and_cancelled() {
    let too_long = (BODY_BYTES_MAX + 1).to_string();
    flood(CALM, 3 * http2_limits::RESETS.burst, |n| {
        let head = request(2 * n + 1, "POST", &lease::collection("n"), &[("content-length", &too_long)], false);
        [head, cancel(2 * n + 1)].concat()
    });
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
