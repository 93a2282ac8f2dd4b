//! Requests for whole collections that take more than one turn of the event loop: long lists, and deletions that can
//! fail half-way.

#![allow(clippy::panic, clippy::unwrap_used, reason = "tests fail by panicking")]

mod support;

use coordination_apiserver::limits::GZIP_JOBS_MAX;
use coordination_apiserver::server::Config;
use flate2::read::GzDecoder;
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::io::Read;
use std::thread;
use support::client::Client;
use support::eventually;
use support::exposition::Exposition;
use support::http2::{Http2Client, Message};
use support::lease;
use support::response::Response;
use support::server::TestServer;
use support::watch::{Watch, kind};

/// Number of Leases for which a list or a deletion needs more than two steps (`JOB_KEYS_PER_STEP`).
const MANY: usize = 1_300;

fn name(number: usize) -> String {
    format!("lease-{number:05}")
}

/// Creates Leases whose names sort in the order of creation. Returns the responses in order.
fn create_many(server: &TestServer, namespace: &str, count: usize) -> Vec<Value> {
    Http2Client::open(&server.endpoint()).create(namespace, (0..count).map(name))
}

fn names(list: &Value) -> Vec<&str> {
    list["items"].as_array().expect("items").iter().map(lease::name).collect()
}

/// Sends the same request over HTTP/1.1 and HTTP/2. `body` may be empty.
fn both(server: &TestServer, method: &str, target: &str, body: &str) -> [Response; 2] {
    let mut http2 = Http2Client::open(&server.endpoint());
    [server.client().call(method, target, body), http2.call(method, target, body)]
}

fn preconditions(of: &Value) -> String {
    json!({"kind": "DeleteOptions", "apiVersion": "v1", "preconditions": of}).to_string()
}

#[test]
fn a_precondition_must_hold_of_every_lease_of_the_collection() {
    let server = TestServer::start();
    let created = create_many(&server, "n", 4);
    let target = lease::collection("n");
    let uid = |at: usize| created[at]["metadata"]["uid"].as_str().unwrap();

    // The precondition fits only the third Lease. The deletion begins with the first Lease, so nothing is deleted.
    let body = preconditions(&json!({"uid": uid(2)}));
    for refused in both(&server, "DELETE", &target, &body) {
        let refused = refused.expect_failure(409, "Conflict", &body).json();
        let words = format!(
            "Operation cannot be fulfilled on Lease.coordination.k8s.io \"lease-00000\": the UID in the precondition ({}) does not match the UID in record ({}). The object might have been deleted and then recreated",
            uid(2),
            uid(0)
        );
        assert_eq!(refused["message"], words);
        assert_eq!(refused["details"], json!({"name": "lease-00000", "group": "coordination.k8s.io", "kind": "Lease"}));
    }
    assert_eq!(names(&server.client().call("GET", &target, "").json()).len(), 4);

    // These requests accept only a Table. An error is never a Table, so the client gets the error as indented JSON.
    for accept in ["application/json;as=Table;v=v1;g=meta.k8s.io", "application/yaml;as=Table;v=v1;g=meta.k8s.io"] {
        let refused = server.client().call_with("DELETE", &target, &format!("Accept: {accept}\r\n"), &body);
        let refused = refused.expect_failure(409, "Conflict", accept);
        assert_eq!(refused.head.field("content-type"), Some("application/json"), "{accept}");
        assert!(refused.body.starts_with(b"{\n  \"kind\": \"Status\""), "{accept}: {refused}");
    }

    // The precondition fits the first Lease, which is deleted. It does not fit the second one, which ends the request.
    let version = created[0]["metadata"]["resourceVersion"].as_str().unwrap();
    let body = preconditions(&json!({"resourceVersion": version}));
    // A dry run gets the same refusal, and deletes nothing.
    for target in [format!("{target}?dryRun=All"), target.clone()] {
        let body = if target.ends_with("All") {
            json!({"preconditions": {"resourceVersion": version}, "dryRun": ["All"]}).to_string()
        } else {
            body.clone()
        };
        let refused = server.client().call("DELETE", &target, &body).expect_failure(409, "Conflict", &body).json();
        let message = refused["message"].as_str().unwrap();
        assert!(
            message.starts_with("Operation cannot be fulfilled on Lease.coordination.k8s.io \"lease-00001\": the ResourceVersion in the precondition"),
            "{message}"
        );
        let left = server.client().call("GET", &lease::collection("n"), "").json();
        assert_eq!(names(&left).len(), if target.ends_with("All") { 4 } else { 3 });
    }

    // With a selector for one name, the precondition applies only to the Lease of this name.
    let body = preconditions(&json!({"uid": uid(2)}));
    let one = format!("{target}?fieldSelector=metadata.name%3Dlease-00002");
    let deleted = server.client().call("DELETE", &one, &body).expect_status(200, &one).json();
    assert_eq!(names(&deleted), ["lease-00002"]);
}

#[test]
fn a_deletion_of_many_steps_can_still_be_refused() {
    let server = TestServer::start();
    let created = create_many(&server, "n", MANY);
    let (first, last) = (name(0), name(MANY - 1));
    let version = created[0]["metadata"]["resourceVersion"].as_str().unwrap();
    let target = lease::collection("n");
    // Only the last Lease has the label. The deletion examines the Leases before it in several steps. The server sends
    // the head of the response only after these steps, so it can still send an error.
    let label = json!({"metadata": {"labels": {"last": "1"}}}).to_string();
    server.client().call("PATCH", &lease::path("n", &last), &label).expect_status(200, "label");
    let selected = format!("{target}?labelSelector=last%3D1");
    let body = preconditions(&json!({"resourceVersion": version}));
    for refused in both(&server, "DELETE", &selected, &body) {
        let refused = refused.expect_failure(409, "Conflict", &selected).json();
        assert_eq!(refused["details"]["name"], last.as_str());
    }
    let metrics = Exposition::of(server.client().call("GET", "/metrics", ""));
    let refused = ["verb=\"DELETECOLLECTION\"", "code=\"409\""];
    assert_eq!(metrics.count("apiserver_request_total", &refused), 2);

    // One request deletes all Leases except the first one, after dry runs over both protocols. The response lists the
    // deleted Leases.
    let others = format!("{target}?fieldSelector=metadata.name%21%3D{first}");
    let [dry, _] = both(&server, "DELETE", &others, r#"{"dryRun":["All"]}"#);
    assert_eq!(names(&dry.expect_status(200, "dry").json()).len(), MANY - 1);
    let mut client = Http2Client::open(&server.endpoint());
    let deleted = client.call("DELETE", &others, "").expect_status(200, &others).json();
    assert_eq!(names(&deleted).len(), MANY - 1);
    assert_eq!(names(&client.call("GET", &target, "").json()), [first.as_str()]);
}

#[test]
fn a_limited_deletion_continues_with_its_token() {
    let server = TestServer::start();
    create_many(&server, "n", 7);
    let target = lease::collection("n");
    let mut client = server.client();
    let dry =
        client.call("DELETE", &format!("{target}?limit=3"), r#"{"dryRun":["All"]}"#).expect_status(200, "dry").json();
    assert_eq!(names(&dry), ["lease-00000", "lease-00001", "lease-00002"]);
    assert_eq!(dry["metadata"]["remainingItemCount"], 4);
    assert_eq!(names(&client.call("GET", &target, "").json()).len(), 7);

    // The token continues after the Leases that the dry run has shown.
    let token = dry["metadata"]["continue"].as_str().expect("a token");
    let second = format!("{target}?limit=3&continue={token}");
    let deleted = client.call("DELETE", &second, "").expect_status(200, &second).json();
    assert_eq!(names(&deleted), ["lease-00003", "lease-00004", "lease-00005"]);
    assert_eq!(
        names(&client.call("GET", &target, "").json()),
        ["lease-00000", "lease-00001", "lease-00002", "lease-00006"]
    );
    let deleted = client.call("DELETE", &format!("{target}?limit=10"), "").expect_status(200, "the rest").json();
    assert_eq!((names(&deleted).len(), deleted["metadata"].get("continue")), (4, None));
}

/// Goal: watchers receive all events of a deletion, even if the event log cannot keep all of them at once. Method: the
/// deletion of 640 small Leases makes too many events. The deletion of 40 large Leases makes events with too many
/// bytes.
#[test]
fn a_deletion_larger_than_the_event_log_reaches_every_watcher() {
    const WINDOW: usize = 64;
    const WINDOW_BYTES: usize = 512 * 1024;
    // The events of each deletion exceed the event log, but fit into the kernel's socket buffers. The server does not
    // wait for slow watchers: with full buffers, a watcher would fall behind the event log.
    for (count, holder_bytes) in [(WINDOW * 10, 10), (40, 40_000)] {
        let server = TestServer::start_with(Config {
            watch_window_events: WINDOW,
            watch_window_bytes: WINDOW_BYTES,
            ..Config::default()
        });
        let mut client = server.client();
        let target = lease::collection("n");
        let holder = "h".repeat(holder_bytes);
        for number in 0..count {
            let lease = json!({"metadata": {"name": name(number)}, "spec": {"holderIdentity": &holder}});
            client.call("POST", &target, &lease.to_string()).expect_status(201, "created");
        }
        let version =
            client.call("GET", &format!("{target}?limit=1"), "").json()["metadata"]["resourceVersion"].clone();
        let query = format!("?watch=true&resourceVersion={}", version.as_str().unwrap());
        let watches = ["/apis/coordination.k8s.io/v1/leases".to_owned(), target.clone(), target.clone()]
            .map(|target| Watch::open(&server.endpoint(), &format!("{target}{query}")));
        let expected: Vec<_> = (0..count).map(name).collect();
        thread::scope(|scope| {
            for mut watch in watches {
                let expected = &expected;
                scope.spawn(move || {
                    for name in expected {
                        let event = watch.next();
                        assert_eq!((kind(&event), lease::name(&event["object"])), ("DELETED", name.as_str()));
                    }
                });
            }
            let deleted = client.call("DELETE", &target, "").expect_status(200, "all").json();
            assert_eq!(names(&deleted), expected);
        });
        assert!(names(&client.call("GET", &target, "").json()).is_empty());
    }
}

#[test]
fn a_deletion_at_a_version_keeps_leases_created_later() {
    let server = TestServer::start_with(Config { watch_window_events: 16, ..Config::default() });
    let mut client = server.client();
    let target = lease::collection("n");
    let create = |client: &mut Client, name: &str| {
        client.call("POST", &target, &lease::new(name)).expect_status(201, name).json()
    };
    let version = |object: &Value| object["metadata"]["resourceVersion"].as_str().unwrap().to_owned();
    let first = version(&create(&mut client, "a"));
    let second = version(&create(&mut client, "b"));
    let last = version(&create(&mut client, "c"));
    let mut delete = |query: &str| client.call("DELETE", &format!("{target}?{query}"), r#"{"dryRun":["All"]}"#);
    for (query, deleted) in [
        (format!("resourceVersion={first}"), &["a"][..]),
        (format!("resourceVersion={first}&limit=5"), &["a"]),
        (format!("resourceVersion={second}&resourceVersionMatch=Exact"), &["a", "b"]),
        (format!("resourceVersion={first}&resourceVersionMatch=NotOlderThan"), &["a", "b", "c"]),
        (format!("resourceVersion={first}&fieldSelector=metadata.name%3Dc"), &["c"]),
        // A list without pages (`limit=-1`) is at the given version or a later one, here at the current version.
        (format!("resourceVersion={first}&limit=-1"), &["a", "b", "c"]),
        ("resourceVersion=0".to_owned(), &["a", "b", "c"]),
    ] {
        let list = delete(&query).expect_status(200, &query).json();
        assert_eq!(names(&list), deleted, "{query}");
        let is_of_a_version = deleted.len() < 3 && !query.contains("fieldSelector");
        let shown = if query.contains(&second) { &second } else { &first };
        assert_eq!(version(&list), *if is_of_a_version { shown } else { &last }, "{query}");
        assert_eq!(list["metadata"].get("continue"), None, "{query}");
    }
    // Without a body, `resourceVersion` would also be a precondition for each Lease. So the body is an empty
    // DeleteOptions.
    let (query, body) = (format!("{target}?resourceVersion={second}"), r#"{"kind":"DeleteOptions","apiVersion":"v1"}"#);
    assert_eq!(names(&client.call("DELETE", &query, body).expect_status(200, &query).json()), ["a", "b"]);
    assert_eq!(names(&client.call("GET", &target, "").json()), ["c"]);

    // The event log keeps only 16 changes, and 17 more follow. The version `second` is now too old, so nothing is
    // deleted.
    (0..17).for_each(|number| drop(create(&mut client, &name(number))));
    let refused = client.call("DELETE", &query, body).expect_failure(410, "Expired", &query).json();
    assert_eq!(refused["message"], "The resourceVersion for the provided list is too old.");
    assert_eq!(names(&client.call("GET", &target, "").json()).len(), 18);
}

#[test]
fn a_deletion_leaves_a_later_lease_of_the_same_name() {
    let server = TestServer::start();
    let (target, path) = (lease::collection("n"), lease::path("n", &name(0)));
    let version = lease::version(&create_many(&server, "n", 1)[0]);
    let mut client = server.client();
    client.call("DELETE", &path, "").expect_status(200, "the first");
    let again = client.call("POST", &target, &lease::new(&name(0))).expect_status(201, "the first again").json();
    let query = format!("{target}?resourceVersion={version}");
    let deleted =
        client.call("DELETE", &query, r#"{"kind":"DeleteOptions","apiVersion":"v1"}"#).expect_status(200, &query);
    assert_eq!(names(&deleted.json()), [name(0)]);
    assert_eq!(client.call("GET", &path, "").expect_status(200, "the current Lease").json(), again);
}

#[test]
fn a_long_list_is_complete_in_every_format() {
    let server = TestServer::start();
    create_many(&server, "n", MANY);
    let all: BTreeSet<String> = (0..MANY).map(name).collect();
    let target = lease::collection("n");
    for query in ["", "?limit=1200"] {
        let target = format!("{target}{query}");
        let get = |accept: &str| get(&server, &target, accept, "identity");
        let count = if query.is_empty() { MANY } else { 1_200 };
        let [plain, _] = get("application/json");
        assert_eq!(names(&plain.json()).len(), count);
        for pretty in get("application/json;pretty=1") {
            assert!(pretty.body.starts_with(b"{\n  \"kind\": \"LeaseList\""), "{pretty}");
            let items = pretty.json();
            assert!(names(&items).len() == count && names(&items).iter().all(|name| all.contains(*name)));
        }
        for yaml in get("application/yaml") {
            assert!(yaml.body.starts_with(b"apiVersion: coordination.k8s.io/v1\nitems:\n- metadata:"), "{yaml}");
            let text = std::str::from_utf8(&yaml.body).unwrap();
            assert_eq!(text.lines().filter(|line| line.starts_with("    name: lease-")).count(), count);
        }
        for protobuf in get("application/vnd.kubernetes.protobuf") {
            assert!(protobuf.body.starts_with(b"k8s\0"), "{protobuf}");
            let found = memchr::memmem::find_iter(&protobuf.body, b"lease-0").count();
            assert_eq!(found, count);
        }
    }
}

/// Sends a GET over HTTP/1.1 and HTTP/2, with these values of `Accept` and `Accept-Encoding`.
fn get(server: &TestServer, target: &str, accept: &str, accept_encoding: &str) -> [Response; 2] {
    let lines = format!("Accept: {accept}\r\nAccept-Encoding: {accept_encoding}\r\n");
    let http1 = server.client().call_with("GET", target, &lines, "");
    let mut http2 = Http2Client::open(&server.endpoint());
    let message = Message { method: "GET".into(), target: target.to_owned(), ..Message::default() }
        .with("accept", accept)
        .with("accept-encoding", accept_encoding);
    let key = http2.send(&message);
    [http1.expect_status(200, target), http2.recv(key).expect_status(200, target)]
}

/// The field line of a client that accepts gzip.
const GZIP: &str = "Accept-Encoding: gzip\r\n";

/// Returns the decoded body. The response must have the content coding gzip.
#[track_caller]
fn unpacked(response: &Response) -> Vec<u8> {
    assert_eq!(response.head.field("content-encoding"), Some("gzip"), "{:?}", response.head);
    assert_eq!(response.head.field("vary"), Some("Accept-Encoding"), "{:?}", response.head);
    let mut body = Vec::new();
    let mut decoder = GzDecoder::new(response.body.as_slice());
    decoder.read_to_end(&mut body).expect("gzip");
    assert!(decoder.into_inner().is_empty(), "no data after the body");
    body
}

/// Removes the parts of a body that change over time: the ages in the rows of a Table. Other bodies stay unchanged.
fn ageless(body: &[u8]) -> Vec<u8> {
    let Ok(mut table) = serde_json::from_slice::<Value>(body) else { return body.to_vec() };
    let rows = table.get_mut("rows").and_then(Value::as_array_mut);
    for row in rows.into_iter().flatten() {
        row["cells"][2] = Value::Null;
    }
    table.to_string().into_bytes()
}

#[test]
fn long_lists_are_compressed_on_request() {
    const LEASES: usize = 10_000;
    let server = TestServer::start();
    create_many(&server, "n", LEASES);
    let target = lease::collection("n");
    const TABLE: &str = "application/json;as=Table;v=v1;g=meta.k8s.io";
    for (query, accept) in [
        ("", "application/json"),
        ("?limit=4000", "application/json"),
        ("", "application/vnd.kubernetes.protobuf"),
        ("", "application/yaml"),
        ("?limit=2000", "application/yaml"),
        ("", TABLE),
        ("", "application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io"),
    ] {
        let target = format!("{target}{query}");
        let plain = get(&server, &target, accept, "identity");
        let packed = get(&server, &target, accept, "deflate, gzip");
        for (plain, packed) in plain.iter().zip(&packed) {
            assert_eq!((plain.head.field("content-encoding"), plain.head.field("vary")), (None, None));
            assert!(ageless(&unpacked(packed)) == ageless(&plain.body), "{target} {accept}");
            assert!(packed.body.len() * 3 < plain.body.len(), "{} of {}", packed.body.len(), plain.body.len());
            assert_eq!(packed.head.field("content-type"), plain.head.field("content-type"));
        }
    }
    // The server makes the list in steps. Each chunk of the response has the output of at most one step.
    let mut client = server.client();
    client.send(format!("GET {target} HTTP/1.1\r\nHost: localhost\r\nAccept-Encoding: gzip\r\n\r\n"));
    assert!(client.try_recv_head().unwrap().is_chunked());
    let mut chunks = Vec::new();
    while let Some(chunk) = client.recv_chunk().unwrap() {
        chunks.push(chunk.len());
    }
    assert!(chunks.len() > 20 && chunks.iter().all(|bytes| *bytes <= 64 * 1024), "{chunks:?}");
    // The response to a deletion lists the deleted Leases. It is compressed too.
    let lines = format!("{GZIP}Content-Type: application/json\r\n");
    let deleted = client.call_with("DELETE", &target, &lines, r#"{"dryRun":["All"]}"#);
    let deleted: Value = serde_json::from_slice(&unpacked(&deleted)).unwrap();
    assert_eq!(names(&deleted).len(), LEASES);
}

#[test]
fn short_or_unrequested_answers_are_not_compressed() {
    let server = TestServer::start();
    create_many(&server, "n", 200);
    let mut client = server.client();
    let text = "text ".repeat(40_000);
    let body = json!({"metadata": {"name": "large", "annotations": {"a": text}}}).to_string();
    client.call("POST", &lease::collection("large"), &body).expect_status(201, "large");
    let list = lease::collection("n");
    let large = lease::path("large", "large");
    let bytes = |target: &str| get(&server, target, "application/json", "identity")[0].body.len();
    assert!(bytes(&large) > 128 * 1024 && bytes(&list) > 64 * 1024 && bytes(&list) < 128 * 1024, "{}", bytes(&list));
    for (target, accept_encoding, is_packed) in [
        (&large, "gzip", true),
        (&large, "br,gzip", true),
        (&large, "gzip;q=0", false),
        (&large, "gzip;q=0.5", false),
        (&large, "identity", false),
        (&large, "*", false),
        (&list, "gzip", false),
    ] {
        let plain = get(&server, target, "application/json", "identity");
        for (got, plain) in get(&server, target, "application/json", accept_encoding).iter().zip(&plain) {
            if is_packed {
                assert!(unpacked(got) == plain.body && got.body.len() < 16 * 1024, "{target} {accept_encoding}");
            } else {
                assert_eq!(got.head.field("content-encoding"), None, "{target} {accept_encoding}");
                assert_eq!(got.head.field("content-length"), Some(got.body.len().to_string().as_str()));
                assert!(got.body == plain.body, "{target} {accept_encoding}");
            }
        }
    }
    // The response to a PATCH is compressed too, also if it is an error. An error keeps its status.
    let lines = format!("{GZIP}Content-Type: application/merge-patch+json\r\n");
    let mut patch = |body: &str, status: u16| -> Value {
        let patched = client.call_with("PATCH", &large, &lines, body).expect_status(status, body);
        serde_json::from_slice(&unpacked(&patched)).unwrap()
    };
    assert_eq!(patch(r#"{"spec":{"leaseTransitions":1}}"#, 200)["spec"]["leaseTransitions"], 1);
    let refused = patch(r#"{"spec":5}"#, 422);
    assert_eq!((&refused["kind"], &refused["code"]), (&json!("Status"), &json!(422)));
    // Watches and OpenAPI documents are not compressed.
    assert_eq!(client.call_with("GET", "/openapi/v2", GZIP, "").head.field("content-encoding"), None);
    let watch = format!("{}?watch=true&timeoutSeconds=1", lease::collection("large"));
    let events = client.call_with("GET", &watch, GZIP, "");
    assert!(events.head.field("content-encoding").is_none() && events.body.starts_with(b"{\"type\":\"ADDED\""));
}

#[test]
fn the_number_of_concurrent_compressions_is_limited() {
    let server = TestServer::start();
    create_many(&server, "n", 500);
    let target = lease::collection("n");
    let is_packed = || {
        let [http1, _] = get(&server, &target, "application/json", "gzip");
        let is_packed = http1.head.field("content-encoding").is_some();
        let body = if is_packed { unpacked(&http1) } else { http1.body };
        assert_eq!(names(&serde_json::from_slice(&body).unwrap()).len(), 500);
        is_packed
    };
    assert!(is_packed());
    // This client reads nothing. Its lists wait for flow-control windows, and keep their compressors.
    let mut idle = Http2Client::open(&server.endpoint());
    let mut ask = |lists: usize| {
        for _ in 0..lists {
            idle.queue(&Message::new("GET", &target, "").with("accept-encoding", "gzip"));
        }
        idle.flush().unwrap();
    };
    ask(GZIP_JOBS_MAX + 40);
    eventually("others get it plain", || {
        let is_plain = !is_packed();
        if !is_plain {
            // The list that `is_packed` requested may have taken the compressor from a list of the idle client. So the
            // idle client requests another list.
            ask(1);
        }
        is_plain
    });
    drop(idle);
    eventually("others get it compressed again", is_packed);
}
