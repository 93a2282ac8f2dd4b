//! Refusals of HTTP/1.1: requests that two readers could read differently (RFC 9112 §11.2, request smuggling), and
//! requests that are too large or too slow. After a refusal the server closes the connection, and serves no later
//! request on it.

#![allow(clippy::panic, clippy::unwrap_used, reason = "tests fail by panicking")]

mod support;

use coordination_apiserver::limits::{
    BODY_BYTES_MAX, HEAD_BYTES_MAX, HEAD_FIELDS_MAX, HEAD_MS_MAX, RECEIVED_BYTES_LOW, RECEIVED_BYTES_TOTAL_HIGH,
    TARGET_BYTES_MAX, YAML_BYTES_MAX, YAML_NODES_MAX,
};
use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::LazyLock;
use std::thread;
use std::time::{Duration, Instant};
use support::client::{Client, request};
use support::exposition::Exposition;
use support::response::Response;
use support::server::TestServer;
use support::{lease, shown};

static SERVER: LazyLock<TestServer> = LazyLock::new(TestServer::start);

/// Sends `sent` and then a creation. Expects one refusal with one of `statuses`, a closed connection, and no Lease in
/// `namespace`.
#[track_caller]
fn refused(namespace: &str, what: &str, sent: &[u8], statuses: &[u16]) -> Response {
    let mut client = SERVER.client();
    let behind = request("POST", &lease::collection(namespace), &lease::new("behind"));
    // The server may refuse and close the connection before it has read all bytes.
    let _hung_up = client.try_send(&[sent, &behind].concat());
    let got =
        client.try_recv("GET").unwrap_or_else(|error| panic!("{what}: no answer ({error}); sent {}", shown(sent)));
    let message = format!("{what}: want one of {statuses:?} and Connection: close\nsent {}\ngot {got}", shown(sent));
    assert!(statuses.contains(&got.status()) && got.head.connection_is("close"), "{message}");
    if got.head.field("content-type") == Some("application/json") {
        let status = got.json();
        assert_eq!((&status["kind"], &status["code"]), (&"Status".into(), &got.status().into()), "{message}");
    }
    client.expect_closed();
    let target = lease::collection(namespace);
    let list = SERVER.client().call("GET", &target, "").expect_status(200, &target).json();
    assert_eq!(list["items"], serde_json::json!([]), "{what}: created by a refused request; sent {}", shown(sent));
    got
}

#[test]
fn ambiguous_framing_is_refused() {
    let namespace = "framing";
    let target = lease::collection(namespace);
    let smuggled = String::from_utf8(request("POST", &target, &lease::new("smuggled"))).unwrap();
    let length = smuggled.len();
    let cases = [
        ("length and chunks", format!("Content-Length: {length}\r\nTransfer-Encoding: chunked\r\n")),
        ("chunks and length", format!("Transfer-Encoding: chunked\r\nContent-Length: {length}\r\n")),
        ("two lengths", format!("Content-Length: {length}\r\nContent-Length: 0\r\n")),
        ("two lengths in one field", format!("Content-Length: 0, {length}\r\n")),
        ("identity", "Transfer-Encoding: identity\r\n".to_owned()),
        ("chunks and identity", "Transfer-Encoding: chunked, identity\r\n".to_owned()),
        ("chunks not last", "Transfer-Encoding: chunked, gzip\r\n".to_owned()),
        ("chunks twice", "Transfer-Encoding: chunked, chunked\r\n".to_owned()),
        ("chunks twice in two fields", "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n".to_owned()),
        ("quoted chunks", "Transfer-Encoding: \"chunked\"\r\n".to_owned()),
        ("something like chunks", "Transfer-Encoding: xchunked\r\n".to_owned()),
        ("chunks after a vertical tab", "Transfer-Encoding: \x0bchunked\r\n".to_owned()),
        ("chunks with a parameter", "Transfer-Encoding: chunked;q=0.5\r\n".to_owned()),
        ("an empty coding", "Transfer-Encoding:\r\n".to_owned()),
        ("a negative length", "Content-Length: -1\r\n".to_owned()),
        ("a length with a plus", "Content-Length: +5\r\n".to_owned()),
        ("a length in hexadecimal", "Content-Length: 0x10\r\n".to_owned()),
        ("a length with a point", "Content-Length: 5.0\r\n".to_owned()),
        ("a length with a space", "Content-Length: 1 0\r\n".to_owned()),
        ("an empty length", "Content-Length:\r\n".to_owned()),
        ("a length over 2^64", "Content-Length: 18446744073709551621\r\n".to_owned()),
        ("a space before the colon", format!("Content-Length : {length}\r\n")),
        ("a space before the name", format!(" Content-Length: {length}\r\n")),
        ("a folded line", format!("X-Folded: a\r\n Content-Length: {length}\r\n")),
        ("a folded value", "Transfer-Encoding:\r\n chunked\r\n".to_owned()),
        ("a bare LF", format!("X-A: b\nContent-Length: {length}\r\n")),
        ("a bare CR", format!("X-A: b\rContent-Length: {length}\r\n")),
        ("a NUL in a value", "X-A: b\0c\r\n".to_owned()),
        ("a NUL in a name", "X-\0A: b\r\n".to_owned()),
        ("no colon", "X-A\r\n".to_owned()),
        ("no name", ": b\r\n".to_owned()),
    ];
    for (what, fields) in cases {
        let sent = format!("POST {target} HTTP/1.1\r\nHost: localhost\r\n{fields}\r\n{smuggled}");
        // RFC 9112 §6.1: an unknown coding may be answered with 501.
        let statuses: &[u16] = if fields.starts_with("Transfer-Encoding") { &[400, 501] } else { &[400] };
        let statuses = if what == "a length over 2^64" { &[400, 413] } else { statuses };
        refused(namespace, what, sent.as_bytes(), statuses);
    }
}

#[test]
fn broken_chunks_are_refused() {
    let namespace = "chunks";
    let head = format!(
        "POST {} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n",
        lease::collection(namespace)
    );
    let (body, length) = (lease::new("chunked"), lease::new("chunked").len());
    let cases = [
        ("a negative size", format!("-{length:x}\r\n{body}\r\n0\r\n\r\n")),
        ("a size with a plus", format!("+{length:x}\r\n{body}\r\n0\r\n\r\n")),
        ("a size with a prefix", format!("0x{length:x}\r\n{body}\r\n0\r\n\r\n")),
        ("a size after a space", format!(" {length:x}\r\n{body}\r\n0\r\n\r\n")),
        ("no size", format!("\r\n{body}\r\n0\r\n\r\n")),
        ("an LF after the size", format!("{length:x}\n{body}\r\n0\r\n\r\n")),
        ("a CR after the size", format!("{length:x}\r{body}\r\n0\r\n\r\n")),
        ("an LF after the data", format!("{length:x}\r\n{body}\n0\r\n\r\n")),
        ("data longer than its size", format!("{:x}\r\n{body}\r\n0\r\n\r\n", length - 1)),
        ("an LF at the end", format!("{length:x}\r\n{body}\r\n0\n\n")),
        ("an LF in an extension", format!("{length:x};a\nb\r\n{body}\r\n0\r\n\r\n")),
        ("a NUL in a trailer", format!("{length:x}\r\n{body}\r\n0\r\nX-A: \0\r\n\r\n")),
    ];
    for (what, chunks) in cases {
        refused(namespace, what, format!("{head}{chunks}").as_bytes(), &[400]);
    }
    for size in ["FFFFFFFFFFFFFFFF", "10000000000000000", "fffffffffffffffffffffffffffffffff"] {
        refused(namespace, "a huge size", format!("{head}{size}\r\n{body}").as_bytes(), &[400, 413]);
    }
}

#[test]
fn broken_request_lines_are_refused() {
    let namespace = "lines";
    let target = lease::collection(namespace);
    let cases: [(&str, Vec<u8>); 9] = [
        ("no target", b"GET HTTP/1.1\r\nHost: localhost\r\n\r\n".to_vec()),
        ("two spaces", format!("GET  {target} HTTP/1.1\r\nHost: localhost\r\n\r\n").into_bytes()),
        ("a space in the target, so a version", b"GET /a b HTTP/1.1\r\nHost: localhost\r\n\r\n".to_vec()),
        ("an LF after the line", format!("GET {target} HTTP/1.1\nHost: localhost\r\n\r\n").into_bytes()),
        ("only LFs", format!("GET {target} HTTP/1.1\nHost: localhost\n\n").into_bytes()),
        ("a version that is none", format!("GET {target} HTTP/x.1\r\nHost: localhost\r\n\r\n").into_bytes()),
        ("a version to come", format!("GET {target} HTTP/3.0\r\nHost: localhost\r\n\r\n").into_bytes()),
        ("a NUL in the target", b"GET /\0 HTTP/1.1\r\nHost: localhost\r\n\r\n".to_vec()),
        ("a target that is not a path", b"GET healthz HTTP/1.1\r\nHost: localhost\r\n\r\n".to_vec()),
    ];
    for (what, sent) in cases {
        let statuses: &[u16] = if what.contains("a version") { &[400, 505] } else { &[400] };
        refused(namespace, what, &sent, statuses);
    }
}

/// The first line of an HTTP/1.1 request ends with the name of the protocol. Input without this name is from no
/// HTTP/1.1 client, so a response is useless. An HTTP/2 client with a broken preface (RFC 9113 §3.4) would even read
/// the response as a frame.
#[test]
fn input_that_is_not_http_is_closed_without_an_answer() {
    for sent in [
        &b"\x01\x02\x03 nonsense\r\n\r\n"[..],
        b"\x16\x03\x01\x02\x00\x01\0\0\0\0\r\n\r\n",
        b"hello world\r\n\r\n",
        b"GET /healthz\r\nHost: localhost\r\n\r\n",
        b"INVALID CONNECTION PREFACE\r\n\r\n",
    ] {
        let mut client = SERVER.client();
        client.send(sent);
        let got = client.recv_rest();
        assert!(got.is_empty(), "sent {}\ngot {}", shown(sent), shown(&got));
    }
}

#[test]
fn a_request_has_exactly_one_host() {
    let namespace = "hosts";
    let line = format!("GET {} HTTP/1.1\r\n", lease::collection(namespace));
    for (what, fields) in [
        ("no Host", ""),
        ("Host twice", "Host: localhost\r\nHost: localhost\r\n"),
        ("two Hosts", "Host: localhost\r\nX-A: b\r\nhost: example.com\r\n"),
        ("a Host with a space", "Host: local host\r\n"),
    ] {
        refused(namespace, what, format!("{line}{fields}\r\n").as_bytes(), &[400]);
    }
    let mut client = SERVER.client();
    client.send(format!("{line}Host:\r\n\r\n"));
    // RFC 9112 §3.2: Host is empty if the target has no authority.
    client.recv("GET").expect_status(200, "an empty Host");
}

#[test]
fn a_head_over_its_limits_is_refused() {
    let namespace = "heads";
    let target = lease::collection(namespace);
    let long_value = format!("X-Long: {}\r\n", "a".repeat(HEAD_BYTES_MAX));
    let sent = format!("GET {target} HTTP/1.1\r\nHost: localhost\r\n{long_value}\r\n");
    refused(namespace, "a long field", sent.as_bytes(), &[431]);

    let many = "X-Many: a\r\n".repeat(HEAD_FIELDS_MAX + 1);
    let sent = format!("GET {target} HTTP/1.1\r\nHost: localhost\r\n{many}\r\n");
    refused(namespace, "many fields", sent.as_bytes(), &[431]);

    let long_target = format!("{target}?labelSelector={}", "a".repeat(TARGET_BYTES_MAX));
    let sent = format!("GET {long_target} HTTP/1.1\r\nHost: localhost\r\n\r\n");
    refused(namespace, "a long target", sent.as_bytes(), &[414, 431]);
}

#[test]
fn a_head_that_does_not_end_is_refused_when_it_is_too_long() {
    // The head never ends, so only a limit can cause a response.
    for (what, piece) in [("a value", "a"), ("fields", "X-Many: a\r\n")] {
        let mut client = SERVER.client();
        client.send("GET /healthz HTTP/1.1\r\nHost: localhost\r\nX-Long: ");
        let _hung_up = client.try_send(piece.repeat(2 * HEAD_BYTES_MAX / piece.len()).as_bytes());
        client.recv("GET").expect_status(431, &format!("{what} without an end"));
        client.expect_closed();
    }
    let mut client = SERVER.client();
    let _hung_up = client.try_send(&[b"GET /", "a".repeat(2 * HEAD_BYTES_MAX).as_bytes()].concat());
    let got = client.recv("GET");
    assert!([414, 431].contains(&got.status()), "a target without an end: {got}");
    client.expect_closed();
}

#[test]
fn a_head_just_within_its_limits_is_served() {
    let mut client = SERVER.client();
    let line = "GET /healthz HTTP/1.1\r\nHost: localhost\r\n";
    let value = "a".repeat(HEAD_BYTES_MAX - line.len() - "X-Long: \r\n\r\n".len());
    client.send(format!("{line}X-Long: {value}\r\n\r\n"));
    client.recv("GET").expect_status(200, "a head of the largest size");
    client.send(format!("{line}{}\r\n", "X-Many: a\r\n".repeat(HEAD_FIELDS_MAX - 1)));
    client.recv("GET").expect_status(200, "a head of the most fields");
    client.send(format!("GET /healthz?{} HTTP/1.1\r\nHost: localhost\r\n\r\n", "a".repeat(TARGET_BYTES_MAX - 9)));
    client.recv("GET").expect_status(200, "the longest target");
}

/// Builds the body of a creation: a Lease, padded with blanks to `length` bytes.
fn padded_creation(name: &str, length: usize) -> String {
    let body = lease::new(name);
    let padding = length - body.len();
    format!("{body}{}", " ".repeat(padding))
}

#[test]
fn a_body_of_the_maximum_size_is_accepted() {
    let target = lease::collection("largest");
    let body = padded_creation("by-length", BODY_BYTES_MAX);
    SERVER.client().call("POST", &target, &body).expect_status(201, "3 MiB by length");
    let body = padded_creation("by-chunks", BODY_BYTES_MAX);
    let mut client = SERVER.client();
    client.send(format!(
        "POST {target} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n"
    ));
    for chunk in body.as_bytes().chunks(100_000) {
        client.send([format!("{:x}\r\n", chunk.len()).as_bytes(), chunk, b"\r\n"].concat());
    }
    client.send("0\r\n\r\n");
    client.recv("POST").expect_status(201, "3 MiB by chunks");
}

#[test]
fn a_body_too_large_by_its_length_is_refused_at_once() {
    let target = lease::collection("too-large");
    for (length, lines) in [(BODY_BYTES_MAX + 1, ""), (1 << 40, ""), (BODY_BYTES_MAX + 1, "Expect: 100-continue\r\n")] {
        let head = format!(
            "POST {target} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n{lines}Content-Length: {length}\r\n\r\n"
        );
        let mut client = SERVER.client();
        // No byte of the body is sent, so the response cannot wait for it. Nor does the server request the body with
        // 100 Continue.
        client.send(&head);
        client.recv("POST").expect_failure(413, "RequestEntityTooLarge", &head);
        client.expect_closed();
    }
}

#[test]
fn a_body_in_yaml_has_its_own_limit() {
    let send = |method: &str, target: &str, media_type: &str, body: &str| {
        SERVER.client().call_with(method, target, &format!("Content-Type: {media_type}\r\n"), body)
    };
    let padded = |length: usize| padded_creation("yaml", length);
    let (collection, path) = (lease::collection("yaml"), lease::path("yaml", "yaml") + "?fieldManager=m&force=true");
    send("POST", &collection, "application/yaml", &padded(YAML_BYTES_MAX)).expect_status(201, "YAML");
    let refused = send("POST", &collection, "application/yaml", &padded(YAML_BYTES_MAX + 1));
    let refused = refused.expect_failure(413, "RequestEntityTooLarge", "YAML").json();
    assert_eq!(refused["message"], format!("Request entity too large: limit is {YAML_BYTES_MAX}"));
    let many = format!("[{}]", "1,".repeat(YAML_NODES_MAX));
    let refused = send("POST", &collection, "application/yaml", &many);
    let refused = refused.expect_failure(413, "RequestEntityTooLarge", "YAML of many nodes").json();
    assert!(refused["message"].as_str().unwrap().ends_with(&format!("in YAML is {YAML_NODES_MAX}")), "{refused}");
    // An applied configuration may be JSON, whatever its media type says. The server parses it as JSON, so the larger
    // limit for JSON holds.
    send("PATCH", &path, "application/apply-patch+yaml", &padded(BODY_BYTES_MAX)).expect_status(200, "JSON");
}

#[test]
fn a_chunked_body_is_refused_once_it_is_too_large() {
    let target = lease::collection("too-large-chunks");
    let mut client = SERVER.client();
    let head = format!(
        "POST {target} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n"
    );
    client.send(&head);
    let chunk = [b"10000\r\n".as_slice(), &[b' '; 0x1_0000], b"\r\n"].concat();
    for _ in 0..=BODY_BYTES_MAX / 0x1_0000 {
        // The server may close the connection before it has read all bytes.
        let _hung_up = client.try_send(&chunk);
    }
    client.recv("POST").expect_failure(413, "RequestEntityTooLarge", &head);
    client.expect_closed();
}

/// A response to HEAD has no content, even if it is a refusal (RFC 9110 §9.3.2).
#[test]
fn a_refused_head_request_gets_no_response_body() {
    let mut client = SERVER.client();
    client.send("HEAD /version HTTP/1.1\r\nHost: localhost\r\nContent-Length: 8000000\r\n\r\n");
    assert_eq!(client.recv("HEAD").status(), 413);
    client.expect_closed();
}

#[test]
fn a_refusal_can_be_read_by_a_client_that_keeps_sending() {
    // RFC 9112 §9.6: a reset, caused by data that the server has not read, could destroy the response. So the server
    // reads on for some time after a refusal.
    let target = lease::collection("goes-on");
    let head = format!("POST {target} HTTP/1.1\r\nHost: localhost\r\nContent-Length: 8000000\r\n\r\n");
    for _ in 0..10 {
        let mut client = SERVER.client();
        client.send(&head);
        let _hung_up = client.try_send(&vec![b' '; 1_000_000]);
        client.recv("POST").expect_failure(413, "RequestEntityTooLarge", &head);
    }
}

#[test]
fn a_path_with_a_broken_escape_is_refused() {
    for path in ["/apis/coordination.k8s.io/v1/namespaces/%zz/leases", "/healthz%", "/%2?verbose"] {
        refused("escapes", path, format!("GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n").as_bytes(), &[400]);
    }
}

#[test]
fn cleartext_http_on_the_tls_port_gets_an_explanation() {
    let server = TestServer::start_secure();
    let answer = |pieces: &[&[u8]]| {
        let mut socket = TcpStream::connect(server.secure_address()).unwrap();
        socket.set_nodelay(true).unwrap();
        socket.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
        for piece in pieces {
            socket.write_all(piece).unwrap();
            thread::sleep(Duration::from_millis(50));
        }
        let mut answer = Vec::new();
        socket.read_to_end(&mut answer).unwrap();
        answer
    };
    let expected = "HTTP/1.0 400 Bad Request\r\n\r\nClient sent an HTTP request to an HTTPS server.\n";
    let rest = b" /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n";
    for pieces in
        [&[&[b"GET", &rest[..]].concat()[..]][..], &[b"GE", b"T", rest], &[b"PUT", b" ", b"/ HTTP/1.1\r\n\r\n"]]
    {
        assert_eq!(String::from_utf8_lossy(&answer(pieces)), expected, "{pieces:?}");
    }
    assert_eq!(answer(&[b"what is this\r\n\r\n"]).first(), Some(&21), "an alert of TLS");
}

/// Many clients begin to send bodies, whose bytes together reach the limit for all connections. Then the server refuses
/// long bodies and accepts short ones, until some of the unfinished bodies end.
#[test]
fn long_bodies_are_refused_while_too_many_bytes_wait() {
    let server = TestServer::start();
    let target = lease::collection("crowd");
    let begun = |sent: usize| {
        let mut client = server.client();
        client.send(format!("POST {target} HTTP/1.1\r\nHost: localhost\r\nContent-Length: {BODY_BYTES_MAX}\r\n\r\n"));
        let _refused = client.try_send(&vec![b' '; sent]);
        client
    };
    let gauge =
        || Exposition::of(server.client().call("GET", "/metrics", "")).count("coordination_received_bytes", &[]);
    let await_gauge = |is_met: &dyn Fn(usize) -> bool| {
        let is_in_time = (0..400).any(|_| {
            thread::sleep(Duration::from_millis(25));
            is_met(gauge())
        });
        assert!(is_in_time, "{}", gauge());
    };
    let mut long: Vec<_> = (0..RECEIVED_BYTES_TOTAL_HIGH / BODY_BYTES_MAX).map(|_| begun(BODY_BYTES_MAX - 1)).collect();
    await_gauge(&|bytes| bytes >= long.len() * (BODY_BYTES_MAX - 1));
    let rest = RECEIVED_BYTES_TOTAL_HIGH % BODY_BYTES_MAX + BODY_BYTES_MAX / 10;
    let others: Vec<_> = (0..rest / (RECEIVED_BYTES_LOW / 2)).map(|_| begun(RECEIVED_BYTES_LOW / 2)).collect();
    await_gauge(&|bytes| bytes >= RECEIVED_BYTES_TOTAL_HIGH);
    let mut refused = begun(RECEIVED_BYTES_LOW + 1);
    refused.recv("POST").expect_failure(429, "TooManyRequests", "one more long body");
    refused.expect_closed();
    server.client().call("POST", &target, &lease::new("small")).expect_status(201, "a Lease");
    long[0].send(" ");
    long[0].recv("POST").expect_failure(429, "TooManyRequests", "one that was begun before");
    drop((long, others));
    await_gauge(&|bytes| bytes == 0);
    let mut taken = begun(BODY_BYTES_MAX - 1);
    taken.send(" ");
    taken.recv("POST").expect_status(400, "the body is read again");
    let mut refused = server.client();
    let length = BODY_BYTES_MAX + 1;
    refused.send(format!("POST {target} HTTP/1.1\r\nHost: localhost\r\nContent-Length: {length}\r\n\r\n"));
    refused.recv("POST").expect_failure(413, "RequestEntityTooLarge", "a body too large");
    let metrics = Exposition::of(server.client().call("GET", "/metrics", ""));
    for (code, count) in [(413, 1), (429, 2)] {
        let counted = metrics.count("apiserver_request_total", &["verb=\"POST\"", &format!("code=\"{code}\"")]);
        assert_eq!(counted, count, "{code}");
    }
}

#[test]
fn a_slow_request_head_closes_the_connection() {
    let limit = Duration::from_millis(HEAD_MS_MAX);
    let mut halves: Vec<Client> = ["G", "GET /healthz HTTP/1.1\r\n", "GET /healthz HTTP/1.1\r\nHost: local"]
        .into_iter()
        .map(|half| {
            let mut client = SERVER.client();
            client.send(half);
            client
        })
        .collect();
    let begun = Instant::now();
    for client in &mut halves {
        client.stream.set_read_timeout(Some(limit * 2));
        let rest = client.recv_rest();
        assert!(rest.is_empty(), "want nothing, got {}", shown(&rest));
        let waited = begun.elapsed();
        assert!(waited > limit / 2, "a slow head is given {limit:?}, not {waited:?}");
    }
}
