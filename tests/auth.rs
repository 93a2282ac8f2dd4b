//! Authentication and authorization over TLS: clients, front proxies, and the rights of callers. The certificates are
//! from several authorities.

#![allow(clippy::panic, clippy::unwrap_used, reason = "tests fail by panicking")]

mod support;

use coordination_apiserver::cluster::{NamespaceChange, NamespacePhase};
use coordination_apiserver::limits::{NAMESPACE_WAIT_MS, RECHECKED_PER_TURN, WAITING_FOR_NAMESPACE_MAX};
use coordination_apiserver::server::Config;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};
use support::aggregated::{Aggregated, PROXY};
use support::client::Client;
use support::eventually;
use support::exposition::Exposition;
use support::http2::{Http2Client, Message};
use support::lease::{collection, new, path};
use support::response::Response;
use support::server::TestServer;
use support::stream::{Endpoint, Stream};
use support::tls::{AUTHORITY, Authority, anonymous_client_config};

const MASTERS: &[(&str, &str)] = &[("X-Remote-User", "admin"), ("X-Remote-Group", "system:masters")];

/// Sends a request with `lines`, additional header fields. Returns the final response.
fn call(client: &mut Client, method: &str, target: &str, body: &str, lines: &[(&str, &str)]) -> Response {
    client.send(request(method, target, body, lines));
    client.recv_final(method)
}

fn request(method: &str, target: &str, body: &str, lines: &[(&str, &str)]) -> Vec<u8> {
    let plain = String::from_utf8(support::client::request(method, target, body)).expect("text");
    let (start, rest) = plain.split_once("\r\n").expect("a request line");
    let lines: String = lines.iter().map(|(name, value)| format!("{name}: {value}\r\n")).collect();
    format!("{start}\r\n{lines}{rest}").into_bytes()
}

fn node(name: &str) -> Vec<(&'static str, String)> {
    vec![
        ("X-Remote-User", format!("system:node:{name}")),
        ("X-Remote-Group", "system:nodes".to_owned()),
        ("X-Remote-Group", "system:authenticated".to_owned()),
        ("X-Remote-Extra-Authentication.kubernetes.io%2fCredential-Id", "X509SHA256=00".to_owned()),
    ]
}

fn borrowed<'a>(lines: &'a [(&'static str, String)]) -> Vec<(&'a str, &'a str)> {
    lines.iter().map(|(name, value)| (*name, value.as_str())).collect()
}

#[test]
fn only_the_front_proxy_may_name_users() {
    let aggregated = Aggregated::start();
    let all = collection("default");
    let mut aggregator = aggregated.aggregator();
    call(&mut aggregator, "GET", &all, "", MASTERS).expect_status(200, "as the front proxy");
    // kube-apiserver has already authorized a forwarded request, so this server does not check the user's groups.
    call(&mut aggregator, "GET", &all, "", &[("x-remote-user", "bob")]).expect_status(200, "as bob");
    // A request that names no user is anonymous, even if it names a group.
    call(&mut aggregator, "GET", &all, "", &[]).expect_failure(401, "Unauthorized", "without a user");
    call(&mut aggregator, "GET", &all, "", &MASTERS[1..]).expect_failure(401, "Unauthorized", "a group without a user");
    call(&mut aggregator, "GET", "/healthz", "", &[]).expect_status(200, "health");

    let forgers = [
        ("an admin", AUTHORITY.client_config("admin", &["system:masters"]), 200),
        ("a user", AUTHORITY.client_config("bob", &[]), 403),
        // The right name, but a certificate of the wrong authority: one for clients, not for front proxies.
        ("a namesake", AUTHORITY.client_config(PROXY, &[]), 403),
        ("the wrong name", aggregated.proxies.client_config("somebody", &["system:masters"]), 401),
        ("nobody", anonymous_client_config(), 401),
    ];
    for (who, config, plainly) in forgers {
        let mut client = aggregated.connect(config);
        for lines in [
            MASTERS,
            &MASTERS[..1],
            &MASTERS[1..],
            &[("X-Remote-Uid", "1")],
            &[("x-remote-extra-scopes", "all")],
            &[("X-Remote-User", "")],
        ] {
            for target in [all.as_str(), "/healthz", "/apis"] {
                let got = call(&mut client, "GET", target, "", lines);
                got.expect_failure(401, "Unauthorized", &format!("{lines:?} for {target} as {who}"));
            }
        }
        // The refusals have not ended the connection. `plainly` is the status without forged fields.
        call(&mut client, "GET", &all, "", &[]).expect_status(plainly, who);
        call(&mut client, "GET", "/healthz", "", &[]).expect_status(200, who);
    }
}

/// A client may request an OpenAPI document by a hash that is out of date. A direct client then gets a redirect. A
/// front proxy does not forward redirects to its client. So this server must send the front proxy the document itself.
#[test]
fn an_old_openapi_hash_does_not_redirect_the_front_proxy() {
    const DOCUMENT: &str = "/openapi/v3/apis/coordination.k8s.io/v1";
    let aggregated = Aggregated::start();
    let old = format!("{DOCUMENT}?hash=OLD");
    let mut aggregator = aggregated.aggregator();
    let plain = call(&mut aggregator, "GET", DOCUMENT, "", MASTERS).expect_status(200, DOCUMENT);
    let by_old_hash = call(&mut aggregator, "GET", &old, "", MASTERS).expect_status(200, &old);
    assert_eq!(by_old_hash.body, plain.body);
    assert_eq!(by_old_hash.head.field("cache-control"), Some("no-cache, private"));
    let mut admin = aggregated.connect(AUTHORITY.client_config("admin", &["system:masters"]));
    call(&mut admin, "GET", &old, "", &[]).expect_status(301, "directly");
}

/// If this server sent a 100, kube-apiserver would forward it. kube-apiserver would then change the status of the final
/// response to 200. So the client could take an error for a success.
#[test]
fn the_front_proxy_gets_no_100_continue() {
    let aggregated = Aggregated::start();
    let (target, body) = (collection("default"), new("expected"));
    let sent = request("POST", &target, &body, &[MASTERS, &[("Expect", "100-continue")]].concat());
    let (head, content) = sent.split_at(sent.len() - body.len());
    let mut client = aggregated.aggregator();
    client.send(head);
    call(&mut aggregated.aggregator(), "GET", "/healthz", "", &[]).expect_status(200, "the head has arrived");
    client.send(content);
    client.recv("POST").expect_status(201, "HTTP/1.1");
    let mut client = Http2Client::open(&aggregated.aggregator_endpoint());
    let message = Message { body: Vec::new(), ..Message::new("POST", &target, &body) };
    let message = message.with("x-remote-user", "admin").with("expect", "100-continue");
    let key = client.queue_head(&message, false);
    client.send_data(key, body.as_bytes(), true);
    let exchange = client.recv_exchange(key);
    assert_eq!((exchange.interim, exchange.head.map(|head| head.status)), (vec![], Some(409)), "HTTP/2");
}

/// If a client asks for an upgrade, kube-apiserver answers 503 unless this server's response is 101 or an error. So
/// this server must refuse the request. Otherwise a client could get 503 for a write that has succeeded.
#[test]
fn an_upgrade_through_the_front_proxy_is_refused() {
    let aggregated = Aggregated::start();
    let (target, body) = (collection("default"), new("upgraded"));
    let upgrade = [("Connection", "keep-alive, UPGRADE"), ("Upgrade", "websocket")];
    for (method, target, body) in [("POST", target.as_str(), body.as_str()), ("GET", target.as_str(), "")] {
        let mut aggregator = aggregated.aggregator();
        let got = call(&mut aggregator, method, target, body, &[MASTERS, &upgrade].concat());
        got.expect_failure(400, "BadRequest", method);
        aggregator.expect_closed();
    }
    let mut admin = aggregated.connect(AUTHORITY.client_config("admin", &["system:masters"]));
    call(&mut admin, "GET", &path("default", "upgraded"), "", &[]).expect_status(404, "nothing is created");
    call(&mut admin, "POST", &target, &body, &upgrade).expect_status(201, "a direct client");
}

/// kube-apiserver itself adds `Cache-Control: no-cache, private` to each response, also to those that it forwards. So
/// this server need not send the field to a front proxy.
#[test]
fn the_front_proxy_gets_no_cache_control_that_it_adds_itself() {
    let aggregated = Aggregated::start();
    let cache_control = |endpoint: &Endpoint, message: &Message| {
        let mut client = Http2Client::open(endpoint);
        let key = client.queue(message);
        let head = client.recv_exchange(key).head.expect("a response");
        (head.status, head.field("cache-control").map(str::to_owned))
    };
    let direct = aggregated.endpoint(AUTHORITY.client_config("admin", &["system:masters"]));
    for (target, status) in [(collection("default"), 200), (path("default", "missing"), 404)] {
        let message = Message::new("GET", &target, "");
        assert_eq!(cache_control(&direct, &message), (status, Some("no-cache, private".to_owned())));
        let forwarded = message.with("x-remote-user", "admin");
        assert_eq!(cache_control(&aggregated.aggregator_endpoint(), &forwarded), (status, None));
    }
}

#[test]
fn a_certificate_of_an_unknown_authority_is_refused_in_the_handshake() {
    let aggregated = Aggregated::start();
    let mut foreign = aggregated.connect(Authority::new().client_config("admin", &["system:masters"]));
    let sent = foreign.try_send(&request("GET", "/healthz", "", MASTERS));
    let error = sent.and_then(|()| foreign.try_recv("GET")).expect_err("no answer");
    assert!(error.to_string().contains("alert"), "{error}");
}

#[test]
fn a_node_changes_only_its_own_lease_aggregated_or_directly() {
    let aggregated = Aggregated::start();
    let (n1, n2) = (node("n1"), node("n2"));
    let (n1, n2) = (borrowed(&n1), borrowed(&n2));
    let (own, other) = (path("kube-node-lease", "n1"), path("kube-node-lease", "n2"));
    let leases = collection("kube-node-lease");
    let mut client = aggregated.aggregator();
    // The requests of two nodes come over the one connection of the aggregator.
    call(&mut client, "POST", &leases, &new("n1"), &n1).expect_status(201, "its own");
    let lease = call(&mut client, "POST", &leases, &new("n2"), &n2).expect_status(201, "its own").json().to_string();
    let told = |got: Response, name: &str, why: &str| {
        let got = got.expect_failure(403, "Forbidden", name);
        let message = got.json()["message"].as_str().unwrap_or_default().to_owned();
        assert_eq!(message, format!("leases.coordination.k8s.io {name:?} is forbidden: {why}"));
    };
    let not_own = "can only access node lease with the same name as the requesting node";
    told(call(&mut client, "PUT", &other, &lease, &n1), "n2", not_own);
    told(call(&mut client, "PATCH", &other, "{}", &n1), "n2", not_own);
    told(call(&mut client, "DELETE", &other, "", &n1), "n2", not_own);
    told(call(&mut client, "POST", &leases, &new("n3"), &n1), "n3", not_own);
    told(call(&mut client, "PUT", &path("kube-node-lease", "n3"), &new("n3"), &n1), "n3", not_own);
    told(call(&mut client, "DELETE", &leases, "", &n1), "Unknown", not_own);
    let elsewhere = "can only access leases in the \"kube-node-lease\" system namespace";
    told(call(&mut client, "POST", &collection("default"), &new("n1"), &n1), "n1", elsewhere);
    told(call(&mut client, "DELETE", &path("default", "n1"), "", &n1), "n1", elsewhere);
    // kube-apiserver has authorized the forwarded reads, so this server permits reads of all Leases.
    call(&mut client, "GET", &other, "", &n1).expect_status(200, "another's, to read");
    call(&mut client, "GET", &own, "", &n2).expect_status(200, "another's, to read");
    call(&mut client, "PUT", &other, &lease, &n2).expect_status(200, "its own");
    call(&mut client, "DELETE", &own, "", &n1).expect_status(200, "its own");

    let mut direct = aggregated.connect(AUTHORITY.client_config("system:node:n1", &["system:nodes"]));
    direct.call("POST", &leases, &new("n1")).expect_status(201, "its own, directly");
    direct.call("GET", &own, "").expect_status(200, "its own, directly");
    direct.call("POST", &leases, &new("n4")).expect_failure(403, "Forbidden", "another's, directly");
    for (method, target) in
        [("GET", &other), ("PUT", &other), ("DELETE", &other), ("GET", &leases), ("DELETE", &leases)]
    {
        direct.call(method, target, "").expect_failure(403, "Forbidden", &format!("{method} {target} directly"));
    }
}

#[test]
fn certificates_are_replaced_while_a_connection_is_open() {
    let mut aggregated = Aggregated::start();
    let admin = AUTHORITY.client_config("admin", &["system:masters"]);
    let mut open = aggregated.connect(Arc::clone(&admin));
    open.call("POST", &collection("default"), &new("a")).expect_status(201, "before");
    let shown = |client: &Client| match &client.stream {
        Stream::Tls(stream) => stream.conn.peer_certificates().and_then(|all| all.first()).cloned(),
        Stream::Cleartext(_) => None,
    };
    let before = shown(&open).expect("a certificate");
    aggregated.reload();
    // An invalid file changes nothing: the server keeps its certificate.
    aggregated.write("tls.crt", "no certificate".to_owned());
    eventually("the invalid file is counted", || {
        Exposition::of(open.call("GET", "/metrics", "")).count("coordination_certificate_reload_errors_total", &[]) == 1
    });
    let fresh = || {
        let mut client = aggregated.connect(Arc::clone(&admin));
        client.call("GET", "/apis", "").expect_status(200, "on a new connection");
        shown(&client).expect("a certificate")
    };
    assert_eq!(fresh(), before);
    AUTHORITY.write_serving(aggregated.files.path());
    eventually("new connections see the new certificate", || fresh() != before);
    open.call("GET", &path("default", "a"), "").expect_status(200, "on the connection from before");

    // With another authority for clients, the open connection stays, but its certificate is not accepted.
    let others = Authority::new();
    aggregated.write("ca.crt", others.pem());
    eventually("the other authority counts", || open.call("GET", &path("default", "a"), "").status() == 401);
    open.call("GET", "/healthz", "").expect_status(200, "on the connection from before");
    let mut new = aggregated.connect(others.client_config("admin", &["system:masters"]));
    new.call("GET", &path("default", "a"), "").expect_status(200, "of the other authority");
    // The first authority returns, as when an operator rolls the change back.
    aggregated.write("ca.crt", AUTHORITY.pem());
    eventually("the first authority counts again", || open.call("GET", &path("default", "a"), "").status() == 200);
}

#[test]
fn a_connection_that_became_anonymous_is_evicted_for_a_new_one() {
    let mut aggregated = Aggregated::start_with(Config { max_connections: 1, ..Config::default() });
    aggregated.reload();
    let mut only = aggregated.connect(AUTHORITY.client_config("admin", &["system:masters"]));
    only.call("GET", "/apis", "").expect_status(200, "on the only connection");
    let others = Authority::new();
    aggregated.write("ca.crt", others.pem());
    eventually("its authority is withdrawn", || only.call("GET", "/apis", "").status() == 401);
    let mut new = aggregated.connect(others.client_config("admin", &["system:masters"]));
    new.call("GET", "/apis", "").expect_status(200, "in its place");
    only.expect_closed();
}

/// Goal: the server also notices the withdrawal of an authority on connections that send no further request, such as
/// those of watches. One turn of the event loop rechecks only some connections, so this test opens more.
#[test]
fn watches_of_a_withdrawn_authority_are_evicted_for_new_connections() {
    const WATCHES: usize = RECHECKED_PER_TURN + 2;
    let mut aggregated = Aggregated::start_with(Config { max_connections: WATCHES, ..Config::default() });
    aggregated.reload();
    let endpoint = aggregated.endpoint(AUTHORITY.client_config("admin", &["system:masters"]));
    let mut watches = [(); WATCHES].map(|()| Client::open(&endpoint));
    for watch in &mut watches {
        watch.send(request("GET", &format!("{}?watch=1", collection("default")), "", &[]));
        assert_eq!(watch.try_recv_head().expect("a head").status, 200);
    }
    let others = Authority::new();
    aggregated.write("ca.crt", others.pem());
    let endpoint = aggregated.endpoint(others.client_config("admin", &["system:masters"]));
    let _new = [(); WATCHES].map(|()| {
        let mut new = Client::open(&endpoint);
        new.call("GET", "/apis", "").expect_status(200, "in the place of a watch");
        new
    });
    watches.iter_mut().for_each(Client::expect_closed);
}

/// Goal: the server also notices an expired certificate on a connection that sends no further request, such as that of
/// a watch.
#[test]
fn a_watch_with_an_expired_certificate_is_evicted_for_a_new_connection() {
    let aggregated = Aggregated::start_with(Config { max_connections: 1, ..Config::default() });
    let valid = Duration::from_secs(4);
    let endpoint = aggregated.endpoint(AUTHORITY.short_client_config("admin", &["system:masters"], valid));
    let mut watch = Client::open(&endpoint);
    watch.send(request("GET", &format!("{}?watch=1", collection("default")), "", &[]));
    assert_eq!(watch.try_recv_head().expect("a head").status, 200);
    // The server counts whole seconds, and the certificate is valid until the end of its last second.
    thread::sleep(valid + Duration::from_secs(1));
    let mut new = aggregated.connect(AUTHORITY.client_config("admin", &["system:masters"]));
    new.call("GET", "/apis", "").expect_status(200, "in the place of the watch");
    watch.expect_closed();
}

#[test]
fn a_lease_is_created_only_in_an_active_namespace() {
    let server = TestServer::start();
    let namespaces = server.namespace_sender();
    let mut client = server.client();
    client.call("POST", &collection("gone"), &new("a")).expect_status(201, "before the namespaces are known");
    assert!(namespaces.send(NamespaceChange::All(vec![
        ("here".into(), NamespacePhase::Active),
        ("going".into(), NamespacePhase::Terminating),
    ])));
    eventually("the namespaces are known", || client.call("POST", &collection("gone"), &new("b")).status() == 404);
    for (method, target) in [("POST", collection("gone")), ("PUT", path("gone", "b"))] {
        let got = client.call(method, &target, &new("b")).expect_failure(404, "NotFound", method).json();
        assert_eq!(got["message"], "namespaces \"gone\" not found");
        assert_eq!(got["details"], serde_json::json!({ "name": "gone", "kind": "namespaces" }));
    }
    for (method, target) in [("POST", collection("going")), ("PUT", path("going", "b"))] {
        let got = client.call(method, &target, &new("b")).expect_failure(403, "Forbidden", method).json();
        let details = serde_json::json!({
            "name": "b",
            "group": "coordination.k8s.io",
            "kind": "leases",
            "causes": [{
                "reason": "NamespaceTerminating",
                "message": "namespace going is being terminated",
                "field": "metadata.namespace",
            }],
        });
        assert_eq!(got["details"], details);
    }
    // The owner `n` occurs twice, which causes a warning. The response has the warning only if the namespace is active.
    // There, the Lease gets 422, since it is invalid.
    let owners =
        r#"[{"apiVersion":"v1","kind":"Node","name":"n","uid":null},{"apiVersion":"v1","kind":"Node","name":"n"}]"#;
    let object = r#""apiVersion":"coordination.k8s.io/v1","kind":"Lease""#;
    let applied = format!(r#"{{{object},"metadata":{{"name":"c","ownerReferences":{owners}}}}}"#);
    for (namespace, status, warns) in [("gone", 404, false), ("going", 403, false), ("here", 422, true)] {
        let target = path(namespace, "c") + "?fieldManager=m";
        let lines = "Content-Type: application/apply-patch+yaml\r\n";
        let response = client.call_with("PATCH", &target, lines, &applied).expect_status(status, namespace);
        assert_eq!(response.head.field("warning").is_some(), warns, "{namespace}");
    }
    client.call("POST", &collection("here"), &new("b")).expect_status(201, "in an existing namespace");
    // Leases that exist in a deleted namespace can still be read, changed and deleted.
    let left = client.call("GET", &path("gone", "a"), "").expect_status(200, "an existing Lease").json();
    client.call("PUT", &path("gone", "a"), &left.to_string()).expect_status(200, "an existing Lease");
    let renewed = r#"{"spec":{"renewTime":"2026-01-01T00:00:00.000000Z"}}"#;
    client.call("PATCH", &path("gone", "a"), renewed).expect_status(200, "an existing Lease");
    client.call("DELETE", &path("gone", "a"), "").expect_status(200, "an existing Lease");
}

#[test]
fn a_creation_waits_a_moment_for_its_namespace() {
    let server = TestServer::start();
    let namespaces = server.namespace_sender();
    assert!(namespaces.send(NamespaceChange::All(Vec::new())));
    let mut client = server.client();
    let begun = Instant::now();
    client.call("POST", &collection("never"), &new("a")).expect_failure(404, "NotFound", "one that never comes");
    assert!(begun.elapsed() >= WAIT, "answered after {:?}", begun.elapsed());

    // One creation waits over HTTP/1.1, and three wait over HTTP/2. A later request on another HTTP/2 stream does not
    // wait for them. One of the three is for a namespace that never appears, so it must end last.
    let mut attempt = 0;
    eventually("a namespace appears while creations wait for it", || {
        attempt += 1;
        let late = format!("late-{attempt}");
        let mut streams = Http2Client::open(&server.endpoint());
        let begun = Instant::now();
        client.send(request("POST", &collection(&late), &new("a"), &[]));
        client.send(request("GET", "/version", "", &[]));
        let [never, post, put] =
            [("POST", collection("never"), "b"), ("POST", collection(&late), "b"), ("PUT", path(&late, "c"), "c")]
                .map(|(method, target, name)| streams.queue(&Message::new(method, &target, &new(name))));
        streams.call("GET", "/version", "").expect_status(200, "a stream beside the waiting ones");
        let present = NamespaceChange::Present(late.as_str().into(), NamespacePhase::Active);
        assert!(namespaces.send(present));
        // On a busy machine, the waits may be over before the namespace appears. Such an attempt checks nothing and is
        // repeated.
        let is_in_time = begun.elapsed() < WAIT / 2;
        let answer = client.recv("POST");
        client.recv("GET").expect_status(200, "behind it");
        let [post, put] = [post, put].map(|stream| streams.recv(stream));
        streams.recv(never).expect_failure(404, "NotFound", "one that never comes");
        if is_in_time {
            answer.expect_status(201, "over HTTP/1.1");
            post.expect_status(201, "over HTTP/2");
            put.expect_status(201, "by PUT");
            let ended = &streams.ended;
            assert_eq!(ended.last(), Some(&never), "the namespace wakes the creations that wait for it: {ended:?}");
        }
        is_in_time
    });
}

#[test]
fn a_waiting_creation_is_answered_after_a_half_close() {
    let server = TestServer::start();
    assert!(server.namespace_sender().send(NamespaceChange::All(Vec::new())));
    let mut client = server.client();
    client.send(request("POST", &collection("never"), &new("a"), &[]));
    client.stream.socket().shutdown(std::net::Shutdown::Write).unwrap();
    client.recv("POST").expect_failure(404, "NotFound", "after the end of the requests");
    client.expect_closed();
}

#[test]
fn the_number_of_waiting_creations_is_limited() {
    let server = TestServer::start();
    assert!(server.namespace_sender().send(NamespaceChange::All(Vec::new())));
    let mut client = Http2Client::open(&server.endpoint());
    let message = Message::new("POST", &collection("never"), &new("a"));
    // On a busy machine, the first wait may end before the last request arrives. Then the limit is not reached, and the
    // attempt is repeated.
    eventually("one creation too many is answered while the others wait", || {
        client.ended.clear();
        let streams: Vec<_> = (0..=WAITING_FOR_NAMESPACE_MAX).map(|_| client.queue(&message)).collect();
        let (last, others) = streams.split_last().unwrap();
        for stream in others {
            client.recv(*stream).expect_failure(404, "NotFound", "one that never comes");
        }
        let answer = client.recv(*last);
        answer.status() == 429 && client.ended.first() == Some(last)
    });
    // Answered creations no longer count towards the limit, so a further creation waits again.
    let begun = Instant::now();
    let one = client.queue(&message);
    client.recv(one).expect_failure(404, "NotFound", "one more");
    assert!(begun.elapsed() >= WAIT, "it did not wait: {:?}", begun.elapsed());
}

/// Time for which a creation waits for its namespace.
const WAIT: Duration = Duration::from_millis(NAMESPACE_WAIT_MS);

#[test]
fn an_expired_certificate_is_refused() {
    let aggregated = Aggregated::start();
    let mut late = aggregated.connect(aggregated.proxies.expired_client_config(PROXY));
    let sent = late.try_send(&request("GET", "/apis", "", MASTERS));
    assert!(sent.and_then(|()| late.try_recv("GET")).is_err());
}
