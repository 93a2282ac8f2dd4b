//! HTTP/2 over a socket: concurrent streams, windows, ends of streams and connections, and negotiation.

#![allow(clippy::panic, clippy::unwrap_used, reason = "tests fail by panicking")]

mod support;

use coordination_apiserver::http2::{Config, ErrorCode};
use coordination_apiserver::limits::BODY_BYTES_MAX;
use std::collections::BTreeSet;
use std::sync::LazyLock;
use std::time::{Duration, Instant};
use support::client::Client;
use support::exposition::Exposition;
use support::frames::{
    DATA, END_HEADERS, END_STREAM, Frames, GOAWAY, HEADERS, INITIAL_WINDOW_SIZE, PREFACE, RST_STREAM, cancel, frame,
    get, hello, request, request_block, settings, window_update,
};
use support::http2::{End, Http2Client, Message};
use support::server::{TestServer, is_durable};
use support::stream::Endpoint;
use support::watch::{expect_expired, kind};
use support::{eventually, lease, shown};

static SERVER: LazyLock<TestServer> = LazyLock::new(TestServer::start_secure);

/// Maximum duration of an orderly stop.
const STOP_MAX: Duration = Duration::from_secs(5);

/// Creates `count` Leases, named `lease-0000` and so on.
fn create(client: &mut Http2Client, namespace: &str, count: usize) {
    client.create(namespace, (0..count).map(|number| format!("lease-{number:04}")));
}

/// Returns the number of open watches in the server's metrics.
fn open_watches(client: &mut Http2Client) -> usize {
    Exposition::of(client.call("GET", "/metrics", "")).count("apiserver_longrunning_requests", &[])
}

#[test]
fn two_hundred_concurrent_streams_are_served() {
    for (way, endpoint) in [("clear", SERVER.endpoint()), ("tls", SERVER.secure_endpoint())] {
        let namespace = format!("many-{way}");
        let mut client = Http2Client::open(&endpoint);
        create(&mut client, &namespace, 200);
        let watches: Vec<_> = (0..200)
            .map(|number| {
                let target = lease::path(&namespace, &format!("lease-{number:04}"));
                client.queue(&Message::new(
                    "GET",
                    &format!(
                        "{}?watch=true&fieldSelector=metadata.name%3Dlease-{number:04}",
                        lease::collection(&namespace)
                    ),
                    "",
                ));
                client.queue(&Message::new("GET", &target, ""))
            })
            .collect();
        for (number, key) in watches.into_iter().enumerate() {
            let got = client.recv(key).expect_status(200, "a GET among watches");
            assert_eq!(lease::name(&got.json()), format!("lease-{number:04}"));
        }
    }
}

#[test]
fn responses_to_one_write_are_sent_in_the_order_of_completion() {
    // The test has its own server. On a shared server, connections of other tests could use up the time of several
    // turns of the event loop. Then some short requests would be served after the list.
    let server = TestServer::start_secure();
    let mut client = Http2Client::open(&server.endpoint());
    create(&mut client, "order", 2000);
    let target = lease::collection("order");
    let list = client.queue(&Message::new("GET", &target, ""));
    let short: Vec<_> = (0..50).map(|_| client.queue(&Message::new("GET", "/healthz", ""))).collect();
    let items = client.recv(list).json()["items"].as_array().unwrap().len();
    assert_eq!(items, 2000);
    let ended: Vec<_> = client.ended.iter().rev().take(51).rev().copied().collect();
    assert_eq!(ended[..50], short[..], "requests that are done first are answered first, in the order of the requests");
    assert_eq!(ended[50], list, "the long list comes last");
}

/// In one write, the client sends more requests than the server decodes before it serves the first of them. Each
/// response depends on the previous requests: a read after a creation must find the Lease.
#[test]
fn requests_of_one_write_are_served_in_their_order() {
    let mut client = Http2Client::open(&SERVER.endpoint());
    let (collection, path, body) = (lease::collection("sequence"), lease::path("sequence", "a"), lease::new("a"));
    let messages = [
        (201, Message::new("POST", &collection, &body)),
        (200, Message::new("GET", &path, "")),
        (409, Message::new("POST", &collection, &body)),
        (200, Message::new("DELETE", &path, "")),
        (404, Message::new("GET", &path, "")),
    ];
    // A read does not wait for a write of the same Lease that is not durable yet. So with durable storage, the test
    // sends each request after the previous response.
    let together = if is_durable() { 1 } else { 50 };
    let messages: Vec<_> = (0..10).flat_map(|_| &messages).collect();
    for (at, group) in messages.chunks(together).enumerate() {
        let asked: Vec<_> = group.iter().map(|(status, message)| (*status, client.queue(message))).collect();
        for (status, key) in asked {
            client.recv(key).expect_status(status, &format!("group {at}"));
        }
    }
}

#[test]
fn a_long_list_and_a_watch_go_through_a_small_window() {
    create(&mut Http2Client::open(&SERVER.endpoint()), "small-window", 2000);
    for endpoint in [SERVER.endpoint(), SERVER.secure_endpoint()] {
        let mut client = Http2Client::open_with(&endpoint, Config { stream_window: 4096, ..Config::default() });
        let target = lease::collection("small-window");
        let watch = client.watch(&format!("{target}?watch=true&resourceVersion=0"));
        let list = client.send(&Message::new("GET", &target, ""));
        let listed = client.recv(list).json();
        let listed: BTreeSet<_> =
            listed["items"].as_array().unwrap().iter().map(|item| lease::name(item).to_owned()).collect();
        assert_eq!(listed.len(), 2000);
        let mut watched = BTreeSet::new();
        for _ in 0..2000 {
            let event = client.next_event(watch);
            assert_eq!(kind(&event), "ADDED");
            watched.insert(lease::name(&event["object"]).to_owned());
        }
        assert_eq!(watched, listed);
    }
}

#[test]
fn the_flow_control_window_is_respected_to_the_octet() {
    let mut frames = Frames::open_with(&SERVER.endpoint(), &[(INITIAL_WINDOW_SIZE, 10)]);
    frames.send(get(1, "/version"));
    let first = frames.recv_until(|frame| frame.frame_type == DATA);
    assert_eq!((first.payload.len(), first.ends_stream()), (10, false));
    frames.round_trip();
    // The stream's window is used up. Because of the smaller initial window (4 instead of 10), it becomes -6 (RFC 9113
    // §6.9.2). Two WINDOW_UPDATEs add 7 octets, so it becomes 1.
    frames.send([settings(&[(INITIAL_WINDOW_SIZE, 4)]), window_update(1, 3), window_update(1, 4)].concat());
    assert_eq!(frames.recv_until(|frame| frame.frame_type == DATA).payload.len(), 1);
    frames.send(settings(&[(INITIAL_WINDOW_SIZE, 100_000)]));
    let rest = frames.recv_to_end_of(1);
    assert!(rest.last().unwrap().ends_stream(), "{rest:?}");
}

#[test]
fn a_watcher_that_does_not_read_does_not_delay_others() {
    let target = lease::collection("deaf");
    let watch = format!("{target}?watch=true");
    let mut frames = Frames::open_with(&SERVER.endpoint(), &[(INITIAL_WINDOW_SIZE, 0)]);
    frames.send([get(1, &watch), get(3, &watch)].concat());
    frames.send([window_update(0, 1 << 20), window_update(3, 1 << 20)].concat());
    frames.round_trip();
    let mut other = Http2Client::open(&SERVER.endpoint());
    let beside = other.watch(&watch);
    create(&mut other, "deaf", 100);
    for _ in 0..100 {
        other.next_event(beside);
    }
    let lines = |frames: &mut Frames, stream: u32| {
        let mut lines = 0;
        while lines < 100 {
            let got = frames.recv_until(|frame| frame.frame_type == DATA);
            assert_eq!(got.stream, stream, "only streams with a window get data");
            lines += memchr::memchr_iter(b'\n', &got.payload).count();
        }
        assert_eq!(lines, 100);
    };
    lines(&mut frames, 3);
    frames.round_trip();
    frames.send(window_update(1, 1 << 20));
    lines(&mut frames, 1);
}

#[test]
fn a_reset_ends_just_that_watch() {
    let server = TestServer::start();
    let target = lease::collection("reset");
    let mut client = Http2Client::open(&server.endpoint());
    let watches: Vec<_> = (0..3).map(|_| client.watch(&format!("{target}?watch=true"))).collect();
    let mut other = Http2Client::open(&server.endpoint());
    eventually("three watches are open", || open_watches(&mut other) == 3);
    client.reset(watches[1]);
    eventually("two watches are open", || open_watches(&mut other) == 2);
    create(&mut other, "reset", 1);
    for key in [watches[0], watches[2]] {
        assert_eq!(kind(&client.next_event(key)), "ADDED");
    }
    client.call("GET", "/healthz", "").expect_status(200, "after a reset");
    drop(client);
    eventually("no watch is open", || open_watches(&mut other) == 0);
}

#[test]
fn a_body_may_end_with_trailers() {
    let mut client = Http2Client::open(&SERVER.endpoint());
    let body = lease::new("with-trailers");
    let message = Message::new("POST", &lease::collection("trailers"), "").with("content-type", "application/json");
    let key = client.queue_head(&message, false);
    client.send_data(key, body.as_bytes(), false);
    client.send_trailers(key, &[("x-checksum".to_owned(), "1".to_owned())]);
    client.recv(key).expect_status(201, "a body with trailers");
}

#[test]
fn head_has_the_length_and_no_body() {
    let mut client = Http2Client::open(&SERVER.endpoint());
    let target = "/openapi/v3";
    let get = client.call("GET", target, "").expect_status(200, "GET");
    let head = client.call("HEAD", target, "").expect_status(200, "HEAD");
    assert_eq!(head.body, b"");
    assert_eq!(head.head.field("content-length"), Some(get.body.len().to_string().as_str()));
    let refused = client.call("HEAD", &format!("{}?watch=true", lease::collection("head")), "");
    assert_eq!((refused.status(), refused.body.len()), (405, 0), "no resource takes HEAD");
}

#[test]
fn a_request_that_expects_100_continue_gets_it_before_the_body() {
    let mut client = Http2Client::open(&SERVER.endpoint());
    let body = lease::new("continued");
    let message = Message { body: Vec::new(), ..Message::new("POST", &lease::collection("continue"), &body) };
    let key = client.queue_head(&message.with("expect", "100-continue"), false);
    assert_eq!(client.recv_interim(key), 100);
    client.send_data(key, body.as_bytes(), true);
    client.recv(key).expect_status(201, "after 100");
}

#[test]
fn a_body_too_large_is_refused_and_the_connection_stays_open() {
    for is_announced in [true, false] {
        let mut client = Http2Client::open(&SERVER.endpoint());
        let body = vec![b' '; BODY_BYTES_MAX + 1];
        let mut message =
            Message::new("POST", &lease::collection("large"), "").with("content-type", "application/json");
        if is_announced {
            message = message.with("content-length", &body.len().to_string());
        }
        let key = client.queue_head(&message, false);
        client.send_data(key, &body, true);
        client.recv(key).expect_failure(413, "RequestEntityTooLarge", "a body above the limit");
        client.call("GET", "/healthz", "").expect_status(200, "after a refused body");
        let largest = format!("{}{}", lease::new("largest"), " ".repeat(BODY_BYTES_MAX));
        let key = client.send(&Message::new("POST", &lease::collection("large"), &largest[..BODY_BYTES_MAX]));
        let got = client.recv(key);
        assert!(matches!(got.status(), 201 | 409), "the largest body: {got}");
    }
}

#[test]
fn a_content_length_mismatch_is_a_stream_error() {
    let mut client = Http2Client::open(&SERVER.endpoint());
    let body = lease::new("length");
    for length in [body.len() - 1, body.len() + 1] {
        let message =
            Message::new("POST", &lease::collection("length"), "").with("content-length", &length.to_string());
        let key = client.queue_head(&message, false);
        client.send_data(key, body.as_bytes(), true);
        assert_eq!(client.recv_exchange(key).end, Some(End::Reset(ErrorCode::PROTOCOL_ERROR)), "{length}");
    }
    client.call("GET", &lease::path("length", "length"), "").expect_failure(404, "NotFound", "the refused Lease");
}

#[test]
fn a_stop_finishes_streams_ends_watches_and_sends_goaway() {
    for is_secure in [false, true] {
        let server = if is_secure { TestServer::start_secure() } else { TestServer::start() };
        let endpoint = if is_secure { server.secure_endpoint() } else { server.endpoint() };
        let target = lease::collection("stop");
        let mut idle = Http2Client::open(&endpoint);
        idle.call("GET", "/healthz", "").expect_status(200, "before the stop");
        let mut client = Http2Client::open(&endpoint);
        let watch = client.watch(&format!("{target}?watch=true"));
        let body = lease::new("in-flight");
        let (first, second) = body.split_at(body.len() / 2);
        let message = Message { body: Vec::new(), ..Message::new("POST", &target, &body) };
        let in_flight = client.queue_head(&message, false);
        client.send_data(in_flight, first.as_bytes(), false);
        client.call("GET", "/healthz", "").expect_status(200, "a round trip: the server has seen the half");

        let begun = Instant::now();
        server.shutdown_handle().shutdown();
        eventually("the port is closed", || Client::try_open(&endpoint).is_err());
        client.send_data(in_flight, second.as_bytes(), true);
        client.recv(in_flight).expect_status(201, "the second half of a request, after the stop began");
        let watched = client.recv_exchange(watch);
        assert_eq!(watched.end, Some(End::Whole), "a watch ends in order");
        if is_durable() {
            assert!(watched.body.is_empty(), "the client resumes");
        } else {
            expect_expired(&serde_json::from_slice(&watched.body).expect("one event"));
        }
        client.recv_close();
        let goaways: Vec<_> = client.goaways.iter().map(|(last, code)| (last.value(), *code)).collect();
        assert_eq!(goaways.first(), Some(&((1 << 31) - 1, ErrorCode::NO_ERROR)), "{goaways:?}");
        assert_eq!(goaways.last(), Some(&(in_flight.id().value() + 2, ErrorCode::NO_ERROR)), "{goaways:?}");
        idle.recv_close();
        assert!(idle.goaways.iter().all(|(_, code)| *code == ErrorCode::NO_ERROR), "{:?}", idle.goaways);
        assert!(!idle.goaways.is_empty(), "an idle connection gets GOAWAY too");
        server.join().expect("the server ends well");
        assert!(begun.elapsed() < STOP_MAX, "stopped after {:?}", begun.elapsed());
    }
}

#[test]
fn a_stop_does_not_wait_for_clients_that_do_not_read() {
    let server = TestServer::start();
    let mut frames = Frames::open_with(&server.endpoint(), &[(INITIAL_WINDOW_SIZE, 0)]);
    let half = request(3, "POST", &lease::collection("stop"), &[], false);
    frames.send([get(1, "/version"), half].concat());
    frames.round_trip();
    let begun = Instant::now();
    server.shutdown_handle().shutdown();
    server.join().expect("the server ends well");
    assert!(begun.elapsed() < STOP_MAX, "stopped after {:?}", begun.elapsed());
}

/// Requests an upgrade from HTTP/1.1 to HTTP/2.
fn upgrade(endpoint: &Endpoint, method: &str, target: &str) -> Frames {
    let mut frames = Frames::connect(endpoint);
    frames.send(format!(
        "{method} {target} HTTP/1.1\r\nHost: localhost\r\nConnection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAMAAABkAAQAAP__\r\n\r\n"
    ));
    let switched = frames.recv_through(b"\r\n\r\n");
    assert!(switched.starts_with(b"HTTP/1.1 101 "), "{}", shown(&switched));
    frames.send(hello(&[]));
    frames
}

#[test]
fn an_upgraded_request_is_answered_on_the_first_stream() {
    for (method, has_body) in [("GET", true), ("HEAD", false)] {
        let mut frames = upgrade(&SERVER.endpoint(), method, "/healthz");
        let answer = frames.recv_to_end_of(1);
        let head = answer.iter().find(|frame| frame.frame_type == HEADERS).unwrap();
        assert_eq!(frames.status_of(head), 200);
        assert_eq!(answer.iter().any(|frame| frame.frame_type == DATA), has_body, "{method}: {answer:?}");
        frames.send(get(3, "/healthz"));
        assert!(frames.recv_to_end_of(3).last().unwrap().ends_stream());
    }
}

#[test]
fn a_watch_may_be_the_request_that_upgrades() {
    let target = lease::collection("upgraded-watch");
    let mut frames = upgrade(&SERVER.endpoint(), "GET", &format!("{target}?watch=true"));
    let head = frames.recv_until(|frame| frame.frame_type == HEADERS);
    assert_eq!((head.stream, frames.status_of(&head)), (1, 200));
    let body = lease::new("seen");
    frames.send(request(3, "POST", &target, &[("content-type", "application/json")], false));
    frames.send(frame(DATA, END_STREAM, 3, body.as_bytes()));
    let event = frames.recv_until(|frame| frame.frame_type == DATA && frame.stream == 1);
    assert!(event.payload.starts_with(br#"{"type":"ADDED""#), "{}", shown(&event.payload));
    frames.send(cancel(1));
    frames.round_trip();
}

#[test]
fn requests_that_cannot_be_upgraded_are_answered_in_http_1_1() {
    // None of these requests makes the server switch to HTTP/2. Over TLS only ALPN decides (RFC 9113 §3.1). In
    // cleartext HTTP2-Settings must occur exactly once (RFC 7540 §3.2.1).
    let ask = |settings: &str| {
        format!(
            "GET /healthz HTTP/1.1\r\nHost: localhost\r\nConnection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\n{settings}\r\n"
        )
    };
    let good = "HTTP2-Settings: AAMAAABk\r\n";
    let cases = [
        (SERVER.secure_endpoint(), ask(good)),
        (SERVER.endpoint(), ask("")),
        (SERVER.endpoint(), ask(&good.repeat(2))),
        (SERVER.endpoint(), ask("HTTP2-Settings: *\r\n")),
        // The first payload sets SETTINGS_ENABLE_PUSH to 2, which is no valid value. The second one has only half a
        // setting.
        (SERVER.endpoint(), ask("HTTP2-Settings: AAIAAAAC\r\n")),
        (SERVER.endpoint(), ask("HTTP2-Settings: AAIA\r\n")),
    ];
    for (endpoint, sent) in cases {
        let mut client = Client::open(&endpoint);
        client.send(&sent);
        let got = client.recv("GET").expect_status(200, &sent);
        assert_eq!(got.head.version, "1.1");
        client.call("GET", "/healthz", "").expect_status(200, "the connection stays in HTTP/1.1");
    }
}

#[test]
fn prior_knowledge_is_recognized_octet_by_octet() {
    let mut frames = Frames::connect(&SERVER.endpoint());
    let all = [PREFACE, &settings(&[]), &get(1, "/healthz")].concat();
    for octet in all {
        frames.send([octet]);
    }
    let answer = frames.recv_to_end_of(1);
    let head = answer.iter().find(|frame| frame.frame_type == HEADERS).unwrap();
    assert_eq!(frames.status_of(head), 200);
}

#[test]
fn an_incorrect_preface_is_answered_with_505() {
    let mut frames = Frames::connect(&SERVER.endpoint());
    frames.send(b"PRI * HTTP/2.0\r\n\r\nXX\r\n\r\n");
    let mut rest = Vec::new();
    _ = std::io::Read::read_to_end(&mut frames.stream, &mut rest);
    assert!(rest.starts_with(b"HTTP/1.1 505 "), "{}", shown(&rest));
}

#[test]
fn a_field_list_that_is_too_large_is_answered_431() {
    let mut frames = Frames::open(&SERVER.endpoint());
    // `accept-encoding: gzip, deflate` from the static table, two thousand times: a short block, but a field list above
    // the limit.
    let block = [request_block("GET", "/healthz", &[]), vec![0x80 | 16; 2000]].concat();
    frames.send(frame(HEADERS, END_HEADERS | END_STREAM, 1, &block));
    let head = frames.recv_until(|frame| frame.frame_type == HEADERS);
    assert_eq!((frames.status_of(&head), head.ends_stream()), (431, true));
    frames.send(get(3, "/healthz"));
    let head = frames.recv_until(|frame| frame.frame_type == HEADERS);
    assert_eq!(frames.status_of(&head), 200, "the connection lives");
}

/// Go's clients and proxies forward some malformed input unchecked. After a reset they would retry on new connections
/// without end. So the server must answer such input.
#[test]
fn malformed_input_that_proxies_forward_is_answered() {
    let mut frames = Frames::open(&SERVER.endpoint());
    for (stream, method, path, more, status) in [
        (1, "GET", "/healthz", &[("x-a", " b\t")][..], 200),
        (3, "G_T", "/healthz", &[], 405),
        (5, "G T", "/healthz", &[], 400),
        (7, "GET", "/healthz?a b", &[], 400),
        (9, "GET", "healthz", &[], 400),
    ] {
        for (stream, is_whole) in [(2 * stream - 1, true), (2 * stream + 1, false)] {
            frames.send(request(stream, method, path, more, is_whole));
            if is_whole || status == 400 {
                let head = frames.recv_until(|frame| [HEADERS, RST_STREAM].contains(&frame.frame_type));
                assert_eq!((head.stream, head.frame_type), (stream, HEADERS), "{method} {path}");
                assert_eq!(frames.status_of(&head), status, "{method} {path}");
            }
        }
    }
}

#[test]
fn a_field_block_may_come_in_continuations_over_tls() {
    let mut frames = Frames::open(&SERVER.secure_endpoint());
    let block = request_block("GET", "/healthz", &[("x-long", &"v".repeat(20_000))]);
    let (first, rest) = block.split_at(7);
    let (second, third) = rest.split_at(16_000);
    frames.send(frame(HEADERS, END_STREAM, 1, first));
    frames.send([frame(9, 0, 1, second), frame(9, END_HEADERS, 1, third)].concat());
    let head = frames.recv_until(|frame| frame.frame_type == HEADERS);
    assert_eq!(frames.status_of(&head), 200);
}

#[test]
fn a_request_is_answered_after_the_client_sends_goaway() {
    let mut frames = Frames::open(&SERVER.endpoint());
    frames.send([get(1, "/healthz"), frame(GOAWAY, 0, 0, &[0; 8])].concat());
    assert!(frames.recv_to_end_of(1).last().unwrap().ends_stream());
}
