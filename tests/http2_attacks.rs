//! Known attacks on HTTP/2, as handwritten frames to a real server. Each must end with the right error code. Another
//! connection is served during and after the attack, which costs the server little time and memory.

#![allow(clippy::panic, clippy::unwrap_used, reason = "tests fail by panicking")]

mod support;

use coordination_apiserver::http2::{ErrorCode, limits as http2_limits};
use coordination_apiserver::limits::{
    BODY_BYTES_MAX, CONNECTION_BODIES_MAX, JOB_KEYS_PER_STEP, LONG_JOBS_MAX, QUEUED_BYTES_HIGH,
    QUEUED_BYTES_TOTAL_HIGH, UNSENT_BYTES_MAX,
};
use coordination_apiserver::table::PREFETCH_MAX;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};
use support::aggregated::Aggregated;
use support::frames::{
    ACK, CONTINUATION, DATA, END_HEADERS, END_STREAM, Frames, GOAWAY, HEADERS, INITIAL_WINDOW_SIZE, PING, PRIORITY,
    RST_STREAM, SETTINGS, cancel, frame, get, literal, post, request, request_block, settings, watch, window_update,
};
use support::http2::Http2Client;
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

/// Starts a server as a process, with these Leases in the namespace `n`: the name of each, and the length of its
/// holder's name in bytes. Also returns a client of the server.
fn start(leases: &[(&str, usize)]) -> (Process, Http2Client) {
    let process = Process::start(&[], 1024);
    let mut client = Http2Client::open(process.endpoint());
    for (name, bytes) in leases {
        let lease = lease::new(name).replace("node-a", &"x".repeat(*bytes));
        client.call("POST", &lease::collection("n"), &lease).expect_status(201, "before the attack");
    }
    (process, client)
}

/// Starts a server, and runs `attack` on one connection while another client sends requests. Checks that the attack
/// cost little processor time, and less than `memory_bytes_max` bytes of memory.
#[track_caller]
fn withstand(memory_bytes_max: usize, attack: impl FnOnce(&mut Frames)) {
    let (process, _) = start(&[("a", 1), ("b", 1)]);
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
    // Any peer other than a front proxy sends only its own requests, so such a head ends its connection.
    let mut frames = Frames::open(&aggregated.endpoint(AUTHORITY.client_config("admin", &["system:masters"])));
    frames.send(in_continuations(1, &heads[0]));
    assert_eq!(frames.recv_goaway(), CALM);
}

/// kube-apiserver forwards each group of a user to this server as a header field. If the fields exceed the limit that
/// this server has announced, kube-apiserver answers the user with 503. So the announced limit must be high.
#[test]
fn a_user_of_the_front_proxy_may_have_many_groups() {
    let aggregated = Aggregated::start();
    let mut frames = Frames::open(&aggregated.aggregator_endpoint());
    let announced = frames.recv_until(|frame| frame.frame_type == SETTINGS).payload;
    let list_size = [&6_u16.to_be_bytes()[..], &262_144_u32.to_be_bytes()].concat();
    assert!(announced.chunks(6).any(|setting| setting == list_size), "{announced:?}");
    for (stream, groups, status) in [(1, 3_000, 200), (3, 4_000, 431)] {
        let groups = (0..groups).flat_map(|n| literal("x-remote-group", &format!("8a7d1f02-5c11-4a55-9d3e-{n:012}")));
        let mut block = request_block("GET", &lease::collection("n"), &[("x-remote-user", "alice")]);
        block.extend(groups);
        frames.send(in_continuations(stream, &block));
        let head = frames.recv_until(|frame| frame.frame_type == HEADERS);
        assert_eq!((head.stream, frames.status_of(&head)), (stream, status));
    }
}

/// The server stores the head of a waiting request. So long heads count against the limit on waiting requests, although
/// a read has no body. The limit leaves room for the writes of other clients.
#[test]
fn waiting_reads_with_long_heads_are_limited() {
    let aggregated = Aggregated::start();
    let target = format!("{}?resourceVersion=9999999999999999", lease::collection("n"));
    let request = request_block("GET", &target, &[("x-remote-user", "alice")]);
    // The field enters the dynamic table, and 61 octets refer to it. So the decoded field list has 62 fields of 4,033
    // octets each (RFC 9113 §6.5.2 adds 32 to name and value).
    let mut field = literal("a", &"v".repeat(4_000));
    field[0] = 0x40;
    let block = [&request[..], &field, &[0x80 | 62; 61]].concat();
    // This head has only 15 long fields, so a direct client could send it too. Long heads may use at most a quarter of
    // the bytes that waiting requests of one connection may have. Without this limit, 600 such requests would use up
    // all these bytes.
    let shorter = [&request[..], &field, &[0x80 | 62; 14]].concat();
    let fit = u32::try_from(BODY_BYTES_MAX * CONNECTION_BODIES_MAX / 4 / (62 * 4_033)).unwrap();
    let mut frames = Frames::open(&aggregated.aggregator_endpoint());
    let requests = (0..fit + 5).flat_map(|n| frame(HEADERS, END_HEADERS | END_STREAM, 2 * n + 1, &block));
    frames.send(requests.collect::<Vec<_>>());
    // The first response is that to a refused request: the waiting requests get theirs later.
    let head = frames.recv_until(|frame| frame.frame_type == HEADERS);
    assert_eq!(frames.status_of(&head), 429);
    assert!((2 * fit - 10..2 * fit + 5).contains(&head.stream), "{head:?}, {fit} fit");
    let next = 2 * (fit + 5) + 1;
    let requests = (0..600).flat_map(|n| frame(HEADERS, END_HEADERS | END_STREAM, next + 2 * n, &shorter));
    frames.send(requests.collect::<Vec<_>>());
    let stream = next + 2 * 600;
    let write = request_block("POST", &lease::collection("n"), &[("x-remote-user", "alice")]);
    let body = frame(DATA, END_STREAM, stream, lease::new("a").as_bytes());
    frames.send([frame(HEADERS, END_HEADERS, stream, &write), body].concat());
    // The head of each response is decoded, since later heads refer to its fields.
    let (mut at, mut status) = (0, 0);
    while at != stream {
        let head = frames.recv_until(|frame| frame.frame_type == HEADERS);
        (at, status) = (head.stream, frames.status_of(&head));
    }
    assert_eq!(status, 201, "a write beside them");
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

/// A client announces bodies that are too long, so the server refuses the requests. The client also cancels each
/// request. The server ends the connection because of the many resets, and keeps no memory for the refused bodies.
#[test]
fn bodies_that_are_refused_and_cancelled() {
    let too_long = (BODY_BYTES_MAX + 1).to_string();
    flood(CALM, 3 * http2_limits::RESETS.burst, |n| {
        let head = request(2 * n + 1, "POST", &lease::collection("n"), &[("content-length", &too_long)], false);
        [head, cancel(2 * n + 1)].concat()
    });
}

#[test]
fn long_answers_behind_closed_windows() {
    let (process, mut client) = start(&[]);
    client.create("n", (0..1000).map(|n| format!("lease-{n:04}")));
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
    let (process, mut client) = start(&[("long", 1 << 20)]);
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
    let (process, _) = start(&[("long", 1 << 20), ("short", 600_000)]);
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
        let (process, mut client) = start(leases);
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
    let (process, mut client) = start(&[("long", 1 << 18)]);
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
    let (process, _) = start(&[("long", QUEUED_BYTES_HIGH / 2)]);
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

/// The attacker leaves as many long lists unread as the server permits. A list is long if it has more Leases than one
/// step examines. The server refuses further long work with 429, and still serves short requests.
#[test]
fn long_lists_behind_closed_windows() {
    let (process, mut client) = start(&[]);
    client.create("n", (0..=JOB_KEYS_PER_STEP).map(|n| format!("a{n}")));
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
