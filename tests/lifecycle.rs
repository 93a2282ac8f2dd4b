//! Start, limits and stop of the server, and admission of connections.

#![allow(clippy::panic, clippy::unwrap_used, reason = "tests fail by panicking")]

mod support;

use coordination_apiserver::limits::{ANONYMOUS_BODY_BYTES_MAX, SHUTDOWN_MS_MAX};
use coordination_apiserver::server::Config;
use rustls::pki_types::ServerName;
use rustls::{ClientConnection, StreamOwned};
use std::io::{Read as _, Write as _};
use std::net::{Shutdown, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, LazyLock};
use std::thread;
use std::time::{Duration, Instant};
use support::client::{Client, is_timeout, request};
use support::exposition::Exposition;
use support::frames::{self, Frames};
use support::process::Process;
use support::server::{TestServer, is_durable};
use support::stream::Endpoint;
use support::tls::{AUTHORITY, anonymous_client_config};
use support::watch::{Watch, expect_expired, kind};
use support::{eventually, lease, shown};

static SECURE: LazyLock<TestServer> = LazyLock::new(TestServer::start_secure);

/// Maximum duration of an orderly stop.
const STOP_MAX: Duration = Duration::from_secs(5);

/// Checks the end of a watch when the server stops. With durable Leases the watch needs no event, since the client
/// resumes. Otherwise it ends with 410, since no later server knows the version.
#[track_caller]
fn expect_end_of_stop(events: &[serde_json::Value], is_durable: bool) {
    match events {
        [] if is_durable => {}
        [event] if !is_durable => expect_expired(event),
        other => panic!("durable: {is_durable}: {other:?}"),
    }
}

#[test]
fn a_stop_finishes_what_is_in_flight_and_ends_watches_in_order() {
    let namespace = "stop";
    let target = lease::collection(namespace);
    let server = TestServer::start();
    let endpoint = server.endpoint();
    server.client().call("POST", &target, &lease::new("before")).expect_status(201, "before");
    let mut watch = Watch::open(&endpoint, &format!("{target}?watch=true"));
    assert_eq!(kind(&watch.next()), "ADDED");
    let mut idle = server.client();
    idle.call("GET", "/healthz", "").expect_status(200, "an idle connection");
    let creation = request("POST", &target, &lease::new("in-flight"));
    let (first, second) = creation.split_at(creation.len() - 10);
    let mut in_flight = server.client();
    in_flight.send(first);
    // A round trip on another connection shows that the server has read the first half of the request.
    server.client().call("GET", "/healthz", "").expect_status(200, "a round trip");

    let begun = Instant::now();
    server.shutdown_handle().shutdown();
    eventually("the port is closed", || Client::try_open(&endpoint).is_err());
    in_flight.send(second);
    let got = in_flight.recv("POST").expect_status(201, "the second half of a request, after the stop began");
    assert!(got.head.connection_is("close"), "the last response on a connection says so: {got}");
    in_flight.expect_closed();
    expect_end_of_stop(&watch.rest(), is_durable());
    idle.expect_closed();
    server.join().expect("the server ends well");
    assert!(begun.elapsed() < STOP_MAX, "stopped after {:?}", begun.elapsed());
}

#[test]
fn a_request_that_has_arrived_when_the_server_stops_is_answered() {
    for _ in 0..5 {
        let mut server = Process::start(&["--storage=memory"], 256);
        let mut client = Client::open(server.endpoint());
        client.call("GET", "/healthz", "").expect_status(200, "an idle connection");
        // The server is paused (SIGSTOP), so it gets the request and the signal together when it continues.
        server.signal("STOP");
        client.send(request("POST", &lease::collection("stop"), &lease::new("a")));
        server.signal("TERM");
        server.signal("CONT");
        client.recv("POST").expect_status(201, "a request from before the stop");
        assert!(server.wait().success());
    }
}

#[test]
fn a_watch_that_is_opened_while_the_server_stops_must_list_again() {
    let target = format!("{}?watch=true", lease::collection("late"));
    let server = TestServer::start();
    let opening = request("GET", &target, "");
    let (first, second) = opening.split_at(opening.len() - 2);
    let mut half = server.client();
    half.send(first);
    // An open stream keeps its connection open. Streams that the client opens before it reads GOAWAY are served.
    let mut frames = Frames::open(&server.endpoint());
    frames.send(frames::request(1, "POST", &lease::collection("late"), &[], false));
    frames.round_trip();
    server.client().call("GET", "/healthz", "").expect_status(200, "a round trip");

    let begun = Instant::now();
    server.shutdown_handle().shutdown();
    let announced = std::iter::repeat_with(|| frames.recv()).find(|frame| frame.frame_type == frames::GOAWAY);
    assert_eq!(announced.and_then(|frame| frame.code()), Some(0));
    half.send(second);
    let mut watch = Watch::try_recv(half, &target).expect("the stream begins");
    expect_end_of_stop(&watch.rest(), is_durable());
    watch.client.expect_closed();
    frames.send(frames::request(3, "GET", &target, &[], true));
    let events: Vec<u8> = frames
        .recv_to_end_of(3)
        .into_iter()
        .filter(|frame| frame.frame_type == frames::DATA)
        .flat_map(|frame| frame.payload)
        .collect();
    let events: Vec<_> =
        serde_json::Deserializer::from_slice(&events).into_iter().map(|event| event.unwrap()).collect();
    expect_end_of_stop(&events, is_durable());
    // Now the server has nothing left to wait for.
    drop(frames);
    server.join().expect("the server ends well");
    assert!(begun.elapsed() < STOP_MAX, "stopped after {:?}", begun.elapsed());
}

/// Goal: a stop ends every connection in order, although the server needs several turns of its event loop to end so
/// many.
#[test]
fn a_stop_ends_each_of_many_connections_in_order() {
    let target = format!("{}?watch=true", lease::collection("many"));
    let server = TestServer::start();
    let mut watches: Vec<_> = (0..100).map(|_| Watch::open(&server.endpoint(), &target)).collect();
    let mut idle: Vec<_> = (0..100).map(|_| server.client()).collect();
    for client in &mut idle {
        client.call("GET", "/healthz", "").expect_status(200, "an idle connection");
    }
    let begun = Instant::now();
    server.shutdown_handle().shutdown();
    for watch in &mut watches {
        expect_end_of_stop(&watch.rest(), is_durable());
    }
    for client in &mut idle {
        client.expect_closed();
    }
    // After `SHUTDOWN_MS_MAX`, a stop closes even connections that it has forgotten. So the test requires an earlier
    // end.
    assert!(begun.elapsed() < Duration::from_millis(SHUTDOWN_MS_MAX), "closed after {:?}", begun.elapsed());
    server.join().expect("the server ends well");
}

#[test]
fn a_stop_has_a_time_limit() {
    let server = TestServer::start_secure();
    let mut half = server.client();
    half.send("POST /apis/coordination.k8s.io/v1/namespaces/x/leases HTTP/1.1\r\nHost: localhost\r\nContent-Length: 10\r\n\r\n");
    let mut handshake = Client::connect(server.secure_address());
    handshake.send([0x16, 0x03, 0x01]);
    server.client().call("GET", "/healthz", "").expect_status(200, "a round trip");
    let begun = Instant::now();
    server.shutdown_handle().shutdown();
    server.join().expect("the server ends well");
    assert!(begun.elapsed() < STOP_MAX, "stopped after {:?}", begun.elapsed());
}

/// Goal: after the start of a stop, no connection switches to HTTP/2. Such a connection would get no GOAWAY, and the
/// server would wait for it.
#[test]
fn a_stop_is_quick_for_connections_without_a_protocol_yet() {
    let server = TestServer::start();
    let mut upgrading = server.client();
    upgrading
        .send("GET /version HTTP/1.1\r\nHost: localhost\r\nConnection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\n");
    let mut undecided = server.client();
    undecided.send("PR");
    server.client().call("GET", "/healthz", "").expect_status(200, "a round trip");
    let begun = Instant::now();
    server.shutdown_handle().shutdown();
    undecided.expect_closed();
    upgrading.send("HTTP2-Settings: AAMAAABkAAQAAP__\r\n\r\n");
    upgrading.recv("GET").expect_status(200, "the request that had begun, and no HTTP/2");
    upgrading.expect_closed();
    server.join().expect("the server ends well");
    assert!(begun.elapsed() < Duration::from_millis(SHUTDOWN_MS_MAX), "stopped after {:?}", begun.elapsed());
}

#[test]
fn watches_over_tls_end_with_the_last_chunk_and_a_close_notify() {
    let server = TestServer::start_secure();
    let mut watch = Watch::open(&server.secure_endpoint(), &format!("{}?watch=true", lease::collection("stop-tls")));
    server.shutdown_handle().shutdown();
    expect_end_of_stop(&watch.rest(), is_durable());
    // rustls reports an end without close_notify as an error (RFC 8446 §6.1).
    let mut rest = Vec::new();
    std::io::Read::read_to_end(&mut watch.client.stream, &mut rest).expect("close_notify before the end");
    assert!(rest.is_empty(), "{}", shown(&rest));
    server.join().expect("the server ends well");
}

#[test]
fn only_health_and_version_are_served_without_a_certificate() {
    let anonymous = Endpoint { address: SECURE.secure_address(), tls: Some(anonymous_client_config()) };
    let mut client = Client::open(&anonymous);
    for target in ["/healthz", "/livez", "/livez?verbose", "/readyz", "/version"] {
        client.call("GET", target, "").expect_status(200, target);
    }
    let mut admin = Client::open(&SECURE.secure_endpoint());
    for target in ["/metrics", "/livez/ping", "/readyz/shutdown", "/apis", "/openapi/v2", "/openapi/v3"] {
        admin.call("GET", target, "").expect_status(200, target);
        client.call("GET", target, "").expect_failure(401, "Unauthorized", target);
    }
    let collection = lease::collection("anonymous");
    for (method, target, body) in [
        ("GET", collection.as_str(), String::new()),
        ("GET", "/apis/coordination.k8s.io/v1/leases?watch=true", String::new()),
        ("GET", "/apis/coordination.k8s.io/v1", String::new()),
        ("POST", collection.as_str(), lease::new("a")),
        ("DELETE", collection.as_str(), String::new()),
    ] {
        let sent = format!("{method} {target} without a certificate");
        client.call(method, target, &body).expect_failure(401, "Unauthorized", &sent);
    }
    // Only the front proxy may set fields that name a user. From any other peer they are an attack.
    let forged = "X-Remote-User: admin\r\nX-Remote-Group: system:masters\r\n";
    let refused = client.call_with("GET", &collection, forged, "");
    refused.expect_failure(401, "Unauthorized", "X-Remote-User without a certificate");
    let list = admin.call("GET", &collection, "");
    assert_eq!(list.expect_status(200, "the admin's list").json()["items"], serde_json::json!([]));
}

#[test]
fn invalid_tls_input_closes_only_its_connection() {
    let mut admin = Client::open(&SECURE.secure_endpoint());
    for noise in
        [b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n".as_slice(), &[0xff; 100], &[0x16, 3, 1, 0xff, 0xff]]
    {
        let mut client = Client::connect(SECURE.secure_address());
        client.send(noise);
        client.stream.finish_sending();
        let got = client.recv_rest();
        assert!(!got.starts_with(b"HTTP/1.1 200"), "sent {}\ngot {}", shown(noise), shown(&got));
        admin.call("GET", "/healthz", "").expect_status(200, "another connection");
    }
}

#[test]
fn tls_records_may_split_requests_anywhere() {
    // Records of one byte each, which the socket delivers in arbitrary pieces.
    let mut client = Client::open(&SECURE.secure_endpoint());
    for byte in request("POST", &lease::collection("tls-cut"), &lease::new("a")) {
        client.send([byte]);
    }
    client.recv("POST").expect_status(201, "one byte a record");
    // Many requests in one record, and many records in one write.
    let reads = request("GET", &lease::path("tls-cut", "a"), "").repeat(500);
    client.send(&reads);
    for number in 0..500 {
        client.recv("GET").expect_status(200, &format!("request {number} of a pipeline over TLS"));
    }
}

#[test]
fn connections_above_the_limit_wait_or_are_refused_until_others_close() {
    const CONNECTIONS_MAX: usize = 3;
    let server = TestServer::start_with(Config { max_connections: CONNECTIONS_MAX, ..Config::default() });
    let mut full: Vec<Client> = (0..CONNECTIONS_MAX)
        .map(|number| {
            let mut client = server.client();
            client.call("GET", "/healthz", "").expect_status(200, &format!("connection {number}"));
            client
        })
        .collect();
    let mut above = server.client();
    above.stream.set_read_timeout(Some(Duration::from_millis(300)));
    let answer = above.try_send(&request("GET", "/healthz", "")).and_then(|()| above.try_recv("GET"));
    match answer {
        Ok(got) => assert_eq!(got.status(), 503, "connection {} of {CONNECTIONS_MAX}: {got}", CONNECTIONS_MAX + 1),
        Err(error) if is_timeout(&error) => {}
        Err(_refused) => {}
    }
    for client in &mut full {
        client.call("GET", "/healthz", "").expect_status(200, "one of the first, while the server is full");
    }
    full.pop();
    drop(above);
    eventually("a slot is free after a connection has closed", || {
        let mut client = server.client();
        client.stream.set_read_timeout(Some(Duration::from_millis(300)));
        let answer = client.try_send(&request("GET", "/healthz", "")).and_then(|()| client.try_recv("GET"));
        answer.is_ok_and(|got| got.status() == 200)
    });
}

#[test]
fn the_body_limit_of_an_anonymous_peer_is_in_the_error() {
    let anonymous = Endpoint { address: SECURE.secure_address(), tls: Some(anonymous_client_config()) };
    let body = " ".repeat(ANONYMOUS_BODY_BYTES_MAX + 1);
    let refused = Client::open(&anonymous).call("POST", &lease::collection("anonymous"), &body);
    let refused = refused.expect_failure(413, "RequestEntityTooLarge", "a long body of an anonymous peer");
    let message = refused.json()["message"].to_string();
    assert!(message.contains(&format!("limit is {ANONYMOUS_BODY_BYTES_MAX}")), "{message}");
}

#[test]
fn anonymous_peers_cannot_keep_others_out() {
    const CONNECTIONS_MAX: usize = 8;
    let server = TestServer::start_secure_with(Config { max_connections: CONNECTIONS_MAX, ..Config::default() });
    let mut first = Client::open(&server.secure_endpoint());
    first.call("GET", "/livez", "").expect_status(200, "with a certificate, before all others");
    let endpoint = Endpoint { address: server.secure_address(), tls: Some(anonymous_client_config()) };
    let mut anonymous: Vec<Client> = Vec::new();
    for number in 0..2 * CONNECTIONS_MAX {
        // Every second peer sends nothing, not even a TLS handshake.
        if number % 2 == 0 {
            anonymous.push(Client::connect(server.secure_address()));
        } else {
            let mut client = Client::open(&endpoint);
            client.call("GET", "/livez", "").expect_status(200, &format!("without a certificate {number}"));
            anonymous.push(client);
        }
    }
    let mut others: Vec<Client> = Vec::new();
    for number in 1..CONNECTIONS_MAX {
        let mut other = Client::open(&server.secure_endpoint());
        other.call("GET", "/livez", "").expect_status(200, &format!("certificate {number}"));
        others.push(other);
    }
    anonymous.iter_mut().for_each(Client::expect_closed);
    // Connections with a certificate keep their slots, and now all slots are taken.
    let mut above = Client::connect(server.secure_address());
    above.stream.set_read_timeout(Some(Duration::from_millis(300)));
    let answer = above.try_send(b"noise instead of TLS").and_then(|()| above.try_recv_head().map(drop));
    assert!(answer.is_err_and(|error| is_timeout(&error)), "the connection is not accepted");
    for client in others.iter_mut().chain([&mut first]) {
        client.call("GET", "/livez", "").expect_status(200, "with a certificate, still connected");
    }
}

#[test]
fn an_incomplete_handshake_is_counted_whichever_side_ended_it() {
    let server = TestServer::start_secure_with(Config::default());
    drop(Client::connect(server.secure_address()));
    let mut noise = Client::connect(server.secure_address());
    noise.send(b"noise instead of TLS");
    let mut client = Client::open(&server.secure_endpoint());
    let mut count = |name: &str| Exposition::of(client.call("GET", "/metrics", "")).count(name, &[]);
    eventually("both are counted", || count("apiserver_tls_handshake_errors_total") == 2);
    assert_eq!(count("coordination_tls_handshakes_total"), 1);
}

/// Before its handshake is complete, a peer with a certificate looks anonymous too. A new connection at the limit must
/// not evict it.
#[test]
fn new_connections_at_the_limit_do_not_end_each_others_handshakes() {
    const CONNECTIONS_MAX: usize = 8;
    let server = TestServer::start_secure_with(Config { max_connections: CONNECTIONS_MAX, ..Config::default() });
    let all_but_one: Vec<Client> = (1..CONNECTIONS_MAX)
        .map(|_| {
            let mut client = Client::open(&server.secure_endpoint());
            client.call("GET", "/livez", "").expect_status(200, "with a certificate");
            client
        })
        .collect();
    thread::scope(|scope| {
        for _ in 0..2 * CONNECTIONS_MAX {
            scope.spawn(|| {
                let mut client = Client::open(&server.secure_endpoint());
                client.call("GET", "/livez", "").expect_status(200, "one after the other in the last slot");
            });
        }
    });
    let evicted = Exposition::of(Client::open(&server.secure_endpoint()).call("GET", "/metrics", ""));
    assert_eq!(evicted.count("coordination_connections_evicted_total", &[]), 0);
    drop(all_but_one);
}

#[test]
fn closed_connections_leave_no_state() {
    // Far more connections than slots, so that a slot that is not freed would be noticed.
    const CONNECTIONS: usize = 2_000;
    let server = TestServer::start_with(Config { max_connections: 64, ..Config::default() });
    let target = lease::collection("come-and-go");
    for number in 0..CONNECTIONS {
        let mut client = server.client();
        match number % 4 {
            0 => {}
            1 => client.send("GET /heal"),
            2 => client.call("GET", "/healthz", "").expect_status(200, "a short visit").head.fields.clear(),
            _ => client.send(request("GET", &format!("{target}?watch=true"), "")),
        }
    }
    let mut kept: Vec<Client> = Vec::new();
    eventually("all the slots are free again", || {
        kept.clear();
        kept.extend((0..60).map(|_| server.client()));
        kept.iter_mut().all(|client| {
            client.stream.set_read_timeout(Some(Duration::from_millis(500)));
            let answer = client.try_send(&request("GET", "/healthz", "")).and_then(|()| client.try_recv("GET"));
            answer.is_ok_and(|got| got.status() == 200)
        })
    });
}

#[test]
fn two_servers_do_not_share_a_port() {
    let server = TestServer::start();
    let taken = Config { insecure: Some(server.endpoint().address), secure: None, ..Config::default() };
    assert!(coordination_apiserver::server::Server::bind(taken).is_err(), "bound a port that is taken");
}

#[test]
fn each_connection_has_the_user_of_its_certificate() {
    let [one, other] = ["one", "other"].map(|user| AUTHORITY.client_config(user, &["system:masters"]));
    for config in [&one, &other, &one, &other] {
        let endpoint = Endpoint { address: SECURE.secure_address(), tls: Some(Arc::clone(config)) };
        let mut client = Client::open(&endpoint);
        client.call("GET", &lease::collection("identities"), "").expect_status(200, "a client with a certificate");
    }
    let anonymous = Endpoint { address: SECURE.secure_address(), tls: Some(anonymous_client_config()) };
    let target = lease::collection("identities");
    Client::open(&anonymous).call("GET", &target, "").expect_failure(401, "Unauthorized", "after the others");
}

#[test]
fn sigterm_and_sigint_end_the_process_with_status_0() {
    for (signal, storage, is_durable) in [("TERM", "disk", true), ("INT", "disk", true), ("TERM", "memory", false)] {
        let mut process = Process::start(&["--storage", storage], 1024);
        let mut idle = Client::open(process.endpoint());
        idle.call("GET", "/healthz", "").expect_status(200, "an idle connection");
        let mut watch = Watch::open(process.endpoint(), &format!("{}?watch=true", lease::collection("signal")));
        let begun = Instant::now();
        process.signal(signal);
        expect_end_of_stop(&watch.rest(), is_durable);
        idle.expect_closed();
        let status = process.wait();
        assert_eq!(status.code(), Some(0), "SIG{signal}: {status}");
        assert!(begun.elapsed() < STOP_MAX, "SIG{signal}: ended after {:?}", begun.elapsed());
    }
}

/// Handshakes have their own time budget, so they continue when requests use up theirs.
#[test]
fn a_long_handshake_completes_while_requests_use_up_each_turn() {
    let namespace = "each-turn";
    let mut other = SECURE.client();
    let large = lease::new("large").replace("node-a", &"\\u0001".repeat(1 << 18));
    other.call("POST", &lease::collection(namespace), &large).expect_status(201, "a large Lease");
    let is_over = Arc::new(AtomicBool::new(false));
    let slow = {
        let is_over = Arc::clone(&is_over);
        thread::spawn(move || {
            while !is_over.load(Ordering::Relaxed) {
                other
                    .call("GET", &lease::path(namespace, "large"), "")
                    .expect_status(200, "a request that uses up a turn");
            }
        })
    };
    let config = AUTHORITY.client_config(&"u".repeat(12_000), &["system:masters"]);
    for _ in 0..5 {
        let endpoint = Endpoint { address: SECURE.secure_address(), tls: Some(Arc::clone(&config)) };
        Client::open(&endpoint).call("GET", &lease::collection("none"), "").expect_status(200, "a member");
    }
    is_over.store(true, Ordering::Relaxed);
    slow.join().unwrap();
}

/// Goal: the server answers a client that sends three things together: its last handshake message, the request, and the
/// end of its side. `openssl s_client` does so with a request on its standard input.
#[test]
fn a_half_close_with_the_last_handshake_message_is_answered() {
    for _ in 0..20 {
        let name = ServerName::try_from("localhost").unwrap();
        let mut tls = ClientConnection::new(anonymous_client_config(), name).unwrap();
        let mut socket = TcpStream::connect(SECURE.secure_address()).unwrap();
        while tls.is_handshaking() {
            while tls.wants_write() {
                tls.write_tls(&mut socket).unwrap();
            }
            tls.read_tls(&mut socket).unwrap();
            tls.process_new_packets().unwrap();
        }
        tls.writer().write_all(b"GET /livez HTTP/1.1\r\nHost: h\r\n\r\n").unwrap();
        tls.send_close_notify();
        let mut last = Vec::new();
        while tls.wants_write() {
            tls.write_tls(&mut last).unwrap();
        }
        socket.write_all(&last).unwrap();
        socket.shutdown(Shutdown::Write).unwrap();
        let mut answer = Vec::new();
        _ = StreamOwned::new(tls, socket).read_to_end(&mut answer);
        assert!(answer.starts_with(b"HTTP/1.1 200 OK\r\n"), "{}", shown(&answer));
    }
}

/// SIGHUP makes other daemons reload their configuration. Here it must not end the process and lose Leases.
#[test]
fn sighup_changes_nothing() {
    let process = Process::start(&[], 1024);
    let mut client = Client::open(process.endpoint());
    client.call("GET", "/healthz", "").expect_status(200, "before");
    for _ in 0..3 {
        process.signal("HUP");
        thread::sleep(Duration::from_millis(50));
        client.call("GET", "/healthz", "").expect_status(200, "on the same connection");
    }
}

#[test]
fn a_pipe_that_breaks_does_not_kill_the_process() {
    let process = Process::start(&[], 1024);
    for _ in 0..20 {
        let client = Client::open(process.endpoint());
        let mut socket = client.stream.socket();
        socket.write_all(&request("GET", "/version", "").repeat(100)).unwrap();
        socket.shutdown(Shutdown::Both).unwrap();
    }
    eventually("the process answers", || process.answers());
}

/// Returns the number of failed accepts in the metrics.
fn accept_errors(client: &mut Client) -> usize {
    Exposition::of(client.call("GET", "/metrics", "")).count("coordination_accept_errors_total", &[])
}

#[test]
fn the_server_does_not_spin_with_a_full_file_table() {
    const FILES_MAX: u32 = 48;
    let process = Process::start(&[], 1024);
    // The process does not notice the new limit. So it tries to accept as many connections as its limit at the start
    // allowed.
    process.limit_files(FILES_MAX);
    // The kernel completes all TCP handshakes, but the process can accept only some of the connections.
    let mut clients: Vec<Client> = (0..FILES_MAX * 2).map(|_| Client::open(process.endpoint())).collect();
    clients[0].call("GET", "/healthz", "").expect_status(200, "a connection that was accepted");
    let mut last = clients.pop().unwrap();
    last.stream.set_read_timeout(Some(Duration::from_millis(300)));
    let answer = last.try_send(&request("GET", "/healthz", "")).and_then(|()| last.try_recv("GET"));
    assert!(answer.is_err(), "the file table is not full: {answer:?}");
    assert_ne!(accept_errors(&mut clients[0]), 0);
    let share = process.cpu_share_over(Duration::from_secs(1));
    assert!(share < 0.2, "with a full file table the process uses {:.0} % of a core", share * 100.0);
    clients[0].call("GET", "/healthz", "").expect_status(200, "a connection, while the file table is full");
    drop(clients);
    drop(last);
    eventually("the process answers", || process.answers());
}

#[test]
fn fewer_files_mean_fewer_connections_and_no_full_file_table() {
    let process = Process::start(&["--max-connections", "1000"], 48);
    let mut clients: Vec<Client> = (0..96).map(|_| Client::open(process.endpoint())).collect();
    clients[0].call("GET", "/healthz", "").expect_status(200, "a connection that was accepted");
    let mut last = clients.pop().unwrap();
    last.stream.set_read_timeout(Some(Duration::from_millis(300)));
    let answer = last.try_send(&request("GET", "/healthz", "")).and_then(|()| last.try_recv("GET"));
    assert!(answer.is_err(), "all are accepted: {answer:?}");
    assert_eq!(accept_errors(&mut clients[0]), 0);
}

#[test]
fn a_full_server_does_not_spin() {
    let process = Process::start(&["--max-connections", "4"], 1024);
    let clients: Vec<Client> = (0..32).map(|_| Client::open(process.endpoint())).collect();
    let share = process.cpu_share_over(Duration::from_secs(1));
    assert!(share < 0.2, "with all connections taken the process uses {:.0} % of a core", share * 100.0);
    drop(clients);
    eventually("the process answers", || process.answers());
}
