//! HTTP/1.1 over a socket (RFC 9112, RFC 9110): connections, framing, expectations, and refusals.
//!
//! `http1_refusals.rs` has the refusals of ambiguous and of too large requests.

#![allow(clippy::panic, clippy::unwrap_used, reason = "tests fail by panicking")]

mod support;

use std::fmt::Write as _;
use std::io::Write as _;
use std::sync::LazyLock;
use std::thread;
use std::time::Duration;
use support::client::{Client, request};
use support::server::TestServer;
use support::{eventually, lease};

static SERVER: LazyLock<TestServer> = LazyLock::new(TestServer::start);

/// Builds a request that creates a Lease with a chunked body. `chunks` is the encoded body.
fn chunked_creation(namespace: &str, chunks: &str) -> String {
    let target = lease::collection(namespace);
    format!(
        "POST {target} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n{chunks}"
    )
}

/// Encodes `body` in chunks of `size` bytes.
fn chunks(body: &str, size: usize) -> String {
    let mut coded = String::new();
    for chunk in body.as_bytes().chunks(size) {
        _ = write!(coded, "{:x}\r\n{}\r\n", chunk.len(), std::str::from_utf8(chunk).unwrap());
    }
    coded + "0\r\n\r\n"
}

/// Returns the names of the Leases in a namespace.
fn names(namespace: &str) -> Vec<String> {
    let target = lease::collection(namespace);
    let list = SERVER.client().call("GET", &target, "").expect_status(200, &target).json();
    list["items"].as_array().unwrap().iter().map(|item| lease::name(item).to_owned()).collect()
}

#[test]
fn a_connection_serves_many_requests_one_after_another() {
    let mut client = SERVER.client();
    for number in 0..50 {
        let name = format!("a-{number}");
        let created = client.call("POST", &lease::collection("keep-alive"), &lease::new(&name));
        assert_eq!(lease::name(&created.expect_status(201, &name).json()), name);
        let read = client.call("GET", &lease::path("keep-alive", &name), "");
        assert_eq!(lease::name(&read.expect_status(200, &name).json()), name);
    }
}

#[test]
fn pipelined_requests_are_answered_in_order() {
    const NAMESPACE: &str = "pipelined";
    let (mut sent, mut want) = (Vec::new(), Vec::new());
    let mut push = |method, target: &str, body: &str, status: u16, name: &str| {
        sent.extend(request(method, target, body));
        want.push((method, status, name.to_owned()));
    };
    for round in 0..20 {
        let name = format!("a-{round}");
        let path = lease::path(NAMESPACE, &name);
        let patch = r#"{"spec":{"leaseTransitions":7}}"#;
        match round % 4 {
            0 => push("POST", &lease::collection(NAMESPACE), &lease::new(&name), 201, &name),
            1 => push("POST", &lease::collection(NAMESPACE), "{", 400, ""),
            2 => push("GET", &lease::path(NAMESPACE, "nobody"), "", 404, ""),
            _ => push("HEAD", "/healthz", "", 200, ""),
        }
        let there = round % 4 == 0;
        push("GET", &path, "", if there { 200 } else { 404 }, if there { &name } else { "" });
        push("PATCH", &path, patch, if there { 200 } else { 404 }, if there { &name } else { "" });
        push("DELETE", &path, "", if there { 200 } else { 404 }, "");
        push("GET", &path, "", 404, "");
    }
    assert_eq!(want.len(), 100);
    let mut client = SERVER.client();
    client.send(&sent);
    for (number, (method, status, name)) in want.iter().enumerate() {
        let got = client.recv(method).expect_status(*status, &format!("request {number} of the pipeline, {method}"));
        if !name.is_empty() {
            assert_eq!(lease::name(&got.json()), name, "request {number} of the pipeline");
        }
    }
}

#[test]
fn a_pipeline_longer_than_every_buffer_is_served_as_fast_as_it_is_read() {
    const REQUESTS: usize = 3_000;
    let name = "long";
    let target = lease::path("pipelined-long", name);
    SERVER.client().call("POST", &lease::collection("pipelined-long"), &lease::new(name)).expect_status(201, name);
    let mut client = SERVER.client();
    let support::stream::Stream::Cleartext(socket) = &client.stream else { panic!("the connection is in cleartext") };
    let mut writer = socket.try_clone().unwrap();
    let sent = request("GET", &target, "").repeat(REQUESTS);
    let writing = thread::spawn(move || writer.write_all(&sent));
    // In this pause the client reads nothing, so the responses can fill all buffers between server and client.
    thread::sleep(Duration::from_millis(200));
    for number in 0..REQUESTS {
        let got = client.recv("GET").expect_status(200, &format!("request {number} of {REQUESTS}"));
        assert_eq!(lease::name(&got.json()), name);
    }
    writing.join().unwrap().unwrap();
}

#[test]
fn requests_may_come_one_byte_at_a_time() {
    let namespace = "byte-by-byte";
    let body = lease::new("a");
    let mut sent = request("POST", &lease::collection(namespace), &body);
    sent.extend(chunked_creation(namespace, &chunks(&lease::new("b"), 100)).into_bytes());
    sent.extend(request("GET", &lease::path(namespace, "a"), ""));
    let mut client = SERVER.client();
    for byte in sent {
        client.send([byte]);
    }
    for (method, status, name) in [("POST", 201, "a"), ("POST", 201, "b"), ("GET", 200, "a")] {
        assert_eq!(lease::name(&client.recv(method).expect_status(status, name).json()), name);
    }
}

#[test]
fn chunked_bodies_may_be_cut_anywhere() {
    let namespace = "chunked";
    let mut client = SERVER.client();
    for size in [1, 2, 3, 7, 64, 10_000] {
        let name = format!("by-{size}");
        client.send(chunked_creation(namespace, &chunks(&lease::new(&name), size)));
        let got = client.recv("POST").expect_status(201, &format!("chunks of {size} bytes"));
        assert_eq!(lease::name(&got.json()), name);
    }
    // RFC 9112 §7.1.1, §7.1.2: extensions and trailers may be ignored, but are valid.
    let body = lease::new("extended");
    let coded = format!("{:05X};a=b;c=\"d e\"\r\n{body}\r\n000;x\r\nX-Trailer: 1\r\n\r\n", body.len());
    client.send(chunked_creation(namespace, &coded));
    client.recv("POST").expect_status(201, "chunk extensions and a trailer");
    client.call("GET", "/healthz", "").expect_status(200, "a request after the trailer");
}

#[test]
fn an_empty_line_before_a_request_is_ignored() {
    // RFC 9112 §2.2: a server should ignore at least one CRLF before the request line.
    let mut client = SERVER.client();
    client.send("\r\nGET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n");
    client.recv("GET").expect_status(200, "CRLF, then a request");
}

#[test]
fn a_body_is_requested_with_100_continue() {
    let (namespace, body) = ("continue", lease::new("a"));
    let head = format!(
        "POST {} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nExpect: 100-continue\r\nContent-Length: {}\r\n\r\n",
        lease::collection(namespace),
        body.len()
    );
    let mut client = SERVER.client();
    client.send(&head);
    let interim = client.recv("POST").expect_status(100, &head);
    assert!(interim.head.field("content-length").is_none(), "{interim}");
    client.send(&body);
    client.recv("POST").expect_status(201, "the body, after 100");
    client.call("GET", "/healthz", "").expect_status(200, "a request after it");
}

#[test]
fn a_body_sent_without_waiting_for_100_continue_is_accepted() {
    // RFC 9110 §10.1.1: a client need not wait, and a server need not answer 100 for a body that it already has.
    let lines = "Content-Type: application/json\r\nExpect: 100-Continue\r\n";
    let created = SERVER.client().call_with("POST", &lease::collection("continue-unasked"), lines, lease::new("a"));
    created.expect_status(201, lines);
}

#[test]
fn an_http_1_0_client_gets_no_100_continue() {
    // RFC 9110 §10.1.1: the expectation is ignored, and no interim response is sent (§15.2).
    let body = lease::new("a");
    let head = format!(
        "POST {} HTTP/1.0\r\nContent-Type: application/json\r\nExpect: 100-continue\r\nContent-Length: {}\r\n\r\n",
        lease::collection("continue-1-0"),
        body.len()
    );
    let mut client = SERVER.client();
    client.send(&head);
    client.send(&body);
    client.recv("POST").expect_status(201, &head);
}

#[test]
fn an_unknown_expectation_is_answered_with_417() {
    let lines = "Expect: a-miracle\r\n";
    SERVER.client().call_with("GET", "/healthz", lines, "").expect_status(417, lines);
}

#[test]
fn head_has_the_fields_of_get_and_no_content() {
    let mut client = SERVER.client();
    for target in ["/healthz", "/readyz?verbose", "/openapi/v3", "/nothing"] {
        let got = client.call("HEAD", target, "");
        let get = client.call("GET", target, "");
        assert_eq!(got.status(), get.status(), "HEAD and GET {target}");
        for name in ["content-length", "content-type"] {
            assert_eq!(got.head.field(name), get.head.field(name), "{name} of HEAD and GET {target}");
        }
    }
}

#[test]
fn kube_apiservers_resources_do_not_accept_head() {
    let mut client = SERVER.client();
    let collection = lease::collection("head");
    for target in [
        &lease::path("head", "nobody"),
        &collection,
        &format!("{collection}?watch=true"),
        "/apis/coordination.k8s.io/v1/watch/leases",
        "/apis/coordination.k8s.io/v1",
        "/api",
        "/version",
    ] {
        let got = client.call("HEAD", target, "").expect_status(405, target);
        assert_eq!(got.head.field("content-type"), Some("application/json"), "{target}");
        assert!(got.head.field("content-length").is_some_and(|length| length != "0"), "{target}");
    }
}

#[test]
fn an_http_1_0_connection_ends_with_the_response() {
    for fields in ["", "Connection: keep-alive\r\n"] {
        let mut client = SERVER.client();
        client.send(format!("GET /healthz HTTP/1.0\r\n{fields}\r\n"));
        let got = client.recv("GET").expect_status(200, "HTTP/1.0 without Host");
        assert!(!got.head.is_chunked() && got.head.connection_is("close"), "{got}");
        client.expect_closed();
    }
}

#[test]
fn an_http_1_0_client_gets_a_watch_without_chunks() {
    // RFC 9112 §6.1: HTTP/1.0 has no transfer codings, so the end of the connection ends the content.
    let namespace = "watch-1-0";
    SERVER.client().call("POST", &lease::collection(namespace), &lease::new("a")).expect_status(201, "a");
    let mut client = SERVER.client();
    let sent = format!("GET {}?watch=true&timeoutSeconds=1 HTTP/1.0\r\n\r\n", lease::collection(namespace));
    client.send(&sent);
    let got = client.recv("GET").expect_status(200, &sent);
    assert!(got.head.field("transfer-encoding").is_none(), "sent {sent}\ngot {got}");
    let event: serde_json::Value = serde_json::from_slice(&got.body).unwrap_or_else(|_| panic!("one event: {got}"));
    assert_eq!(event["type"], "ADDED", "{got}");
}

#[test]
fn requests_after_connection_close_are_not_processed() {
    let namespace = "close";
    for option in ["close", "Close", "keep-alive, close"] {
        let mut client = SERVER.client();
        let mut sent = format!("GET /healthz HTTP/1.1\r\nHost: localhost\r\nConnection: {option}\r\n\r\n").into_bytes();
        for number in 0..200 {
            let name = format!("a-{number}");
            sent.extend(request("POST", &lease::collection(namespace), &lease::new(&name)));
        }
        // The server may close the connection before it has read all bytes.
        let _hung_up = client.try_send(&sent);
        let got = client.recv("GET").expect_status(200, option);
        assert!(got.head.connection_is("close"), "sent Connection: {option}\ngot {got}");
        client.expect_closed();
    }
    assert_eq!(names(namespace), [""; 0], "created after Connection: close");
}

#[test]
fn a_target_may_be_absolute() {
    let mut client = SERVER.client();
    client.send("GET http://localhost/healthz HTTP/1.1\r\nHost: localhost\r\n\r\n");
    client.recv("GET").expect_status(200, "an absolute target");
    let target = lease::collection("absolute");
    client.send(format!("GET https://example.com:8443{target}?limit=1 HTTP/1.1\r\nHost: other\r\n\r\n"));
    let list = client.recv("GET").expect_status(200, "an absolute target with a query").json();
    assert_eq!(list["kind"], "LeaseList");
}

#[test]
fn missing_objects_and_wrong_methods_are_answered_with_a_status() {
    let mut client = SERVER.client();
    for target in ["/nothing", "/apis/coordination.k8s.io/v1/nothing", "/apis/coordination.k8s.io/v1/namespaces/x/pods"]
    {
        client.call("GET", target, "").expect_failure(404, "NotFound", target);
    }
    for method in ["BREW", "TRACE", "get"] {
        let target = lease::path("methods", "a");
        let sent = format!("{method} {target}");
        client.call(method, &target, "").expect_failure(405, "MethodNotAllowed", &sent);
    }
    client.call("GET", "/healthz", "").expect_status(200, "a request after them");
}

#[test]
fn an_incomplete_request_body_creates_nothing() {
    let namespace = "disappeared";
    let whole = request("POST", &lease::collection(namespace), &lease::new("a"));
    let cut = [whole.len() - 1, whole.len() - 40, 60, 10, 1];
    for length in cut {
        SERVER.client().send(&whole[..length]);
    }
    let coded = chunked_creation(namespace, &chunks(&lease::new("b"), 16));
    SERVER.client().send(&coded[..coded.len() - 2]);
    SERVER.client().call("GET", "/healthz", "").expect_status(200, "a request after them");
    assert_eq!(names(namespace), [""; 0], "created from half a request");
}

#[test]
fn a_client_that_has_finished_sending_is_still_answered() {
    let namespace = "half-closed";
    let mut client = SERVER.client();
    let mut sent = request("POST", &lease::collection(namespace), &lease::new("a"));
    sent.extend(request("GET", &lease::collection(namespace), ""));
    sent.extend(request("GET", &lease::path(namespace, "a"), ""));
    client.send(&sent);
    client.stream.finish_sending();
    client.recv("POST").expect_status(201, "a creation, then the end");
    client.recv("GET").expect_status(200, "a list, then the end");
    client.recv("GET").expect_status(200, "a read, then the end");
    client.expect_closed();
}

#[test]
fn clients_that_vanish_with_a_reset_do_no_harm() {
    for _ in 0..100 {
        let client = SERVER.client();
        // A close with a linger time of zero makes the kernel send RST, here with unread responses in flight.
        let mut socket = client.stream.socket();
        socket.write_all(&request("GET", "/version", "").repeat(5)).unwrap();
        socket2::SockRef::from(socket).set_linger(Some(Duration::ZERO)).unwrap();
    }
    eventually("the server answers", || SERVER.client().call("GET", "/healthz", "").status() == 200);
}

#[test]
fn a_list_longer_than_every_buffer_is_complete() {
    const LEASES: usize = 3_000;
    let namespace = "long-list";
    let mut client = SERVER.client();
    for batch in 0..LEASES / 100 {
        let names = (0..100).map(|number| format!("lease-{:05}", batch * 100 + number));
        let sent: Vec<u8> =
            names.flat_map(|name| request("POST", &lease::collection(namespace), &lease::new(&name))).collect();
        client.send(sent);
        for _ in 0..100 {
            client.recv("POST").expect_status(201, "a creation of many");
        }
    }
    let found = names(namespace);
    assert_eq!(found.len(), LEASES);
    assert!(found.is_sorted(), "a list is ordered by name");
    // The client sends requests for two lists and one more request in one write. The server sends a list in pieces,
    // which must not mix with the next response.
    let list = request("GET", &lease::collection(namespace), "");
    client.send([list.clone(), list, request("GET", "/healthz", "")].concat());
    for _ in 0..2 {
        let got = client.recv("GET").expect_status(200, "a long list").json();
        assert_eq!(got["items"].as_array().map(Vec::len), Some(LEASES));
    }
    client.recv("GET").expect_status(200, "a request after two long lists");
}

#[test]
fn a_list_that_is_abandoned_halfway_does_no_harm() {
    let namespace = "given-up";
    let mut client = SERVER.client();
    for number in 0..500 {
        let name = format!("lease-{number:05}");
        client.call("POST", &lease::collection(namespace), &lease::new(&name)).expect_status(201, &name);
    }
    for _ in 0..20 {
        let mut leaver: Client = SERVER.client();
        leaver.send(request("GET", &lease::collection(namespace), "").repeat(10));
        leaver.try_recv_head().expect("the list begins");
    }
    SERVER.client().call("GET", "/healthz", "").expect_status(200, "a request after them");
}
