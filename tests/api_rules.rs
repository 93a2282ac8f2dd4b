//! Rules of the Lease API that no trace in `tests/conformance` covers: kube-apiserver's responses, and the order of its
//! checks. Random requests to a kube-apiserver revealed these rules (`tests/e2e/differential`).

#![allow(clippy::panic, clippy::unwrap_used, reason = "tests fail by panicking")]

mod support;

use base64::Engine as _;
use base64::prelude::BASE64_URL_SAFE_NO_PAD;
use coordination_apiserver::limits::{
    METADATA_ENTRIES_MAX, OBJECT_BYTES_MAX, OBJECT_BYTES_SENT_MAX, VERSION_WAIT_MS_MAX,
};
use serde_json::{Value, json};
use std::sync::LazyLock;
use std::thread;
use std::time::{Duration, Instant};
use support::client::request;
use support::lease;
use support::response::Response;
use support::server::TestServer;
use support::watch::{Watch, expect_expired};

static SERVER: LazyLock<TestServer> = LazyLock::new(TestServer::start);

fn call(method: &str, target: &str, body: &str) -> Response {
    SERVER.client().call(method, target, body)
}

/// Sends a request with `fields`, additional header lines that each end with CRLF. Returns the response.
fn send(method: &str, target: &str, fields: &str, body: &str) -> Response {
    SERVER.client().call_with(method, target, fields, body)
}

fn message(response: &Response) -> String {
    response.json()["message"].as_str().unwrap().to_owned()
}

#[test]
fn warnings_are_sent_with_errors_too() {
    let body = r#"{"metadata":{"name":"a"},"spec":{"colour":1,"leaseDurationSeconds":0}}"#;
    let refused = call("POST", &lease::collection("warned"), body).expect_status(422, body);
    assert_eq!(refused.head.field("warning"), Some(r#"299 - "unknown field \"spec.colour\"""#));
}

#[test]
fn creations_by_every_verb_drop_the_deletion_fields() {
    let path = lease::path("marked", "a");
    let marks = r#""deletionTimestamp":"2020-01-02T03:04:05Z","deletionGracePeriodSeconds":5,"selfLink":"/x""#;
    let body = format!(
        r#"{{"apiVersion":"coordination.k8s.io/v1","kind":"Lease","metadata":{{"name":"a",{marks}}},"spec":{{}}}}"#
    );
    let apply = "Content-Type: application/apply-patch+yaml\r\n";
    for (method, target, fields) in [
        ("POST", lease::collection("marked"), ""),
        ("PUT", path.clone(), ""),
        ("PATCH", format!("{path}?fieldManager=m"), apply),
    ] {
        let dry_run = format!("{target}{}dryRun=All", if target.contains('?') { '&' } else { '?' });
        for target in [dry_run, target] {
            let made = send(method, &target, fields, &body).expect_status(201, method).json();
            for mark in ["deletionTimestamp", "deletionGracePeriodSeconds", "selfLink"] {
                assert_eq!(made["metadata"][mark], Value::Null, "{method} {target}");
            }
        }
        call("PUT", &path, &call("GET", &path, "").json().to_string()).expect_status(200, "it stays");
        call("DELETE", &path, "").expect_status(200, method);
    }
}

#[test]
fn a_deletion_that_removes_the_last_finalizers_follows_kube_apiserver() {
    let path = lease::path("orphaned", "a");
    call("POST", &lease::collection("orphaned"), &lease::new("a")).expect_status(201, "POST");
    let old = call("DELETE", &format!("{path}?orphanDependents=true"), "").expect_status(200, "orphan");
    assert_eq!(old.json()["metadata"]["finalizers"], json!(["orphan"]));
    let shown =
        call("DELETE", &format!("{path}?propagationPolicy=Background&dryRun=All"), "").expect_status(200, "dry");
    assert_eq!((shown.json()["kind"].as_str(), &shown.json()["metadata"]), (Some("Lease"), &json!({})));
    // If a deletion removes the last finalizers and has a precondition on the version, kube-apiserver refuses the
    // deletion. It does so even if the precondition names the current version.
    let version = old.json()["metadata"]["resourceVersion"].as_str().unwrap().to_owned();
    let options = json!({"propagationPolicy": "Background", "preconditions": {"resourceVersion": version}}).to_string();
    let refused = call("DELETE", &path, &options).expect_failure(409, "Conflict", &options);
    let words = format!("ResourceVersion in precondition: , ResourceVersion in object meta: {version}");
    assert!(message(&refused).ends_with(&words), "{}", message(&refused));
    let by_uid = json!({"uid": old.json()["metadata"]["uid"]});
    let options = json!({"propagationPolicy": "Background", "preconditions": by_uid}).to_string();
    call("DELETE", &path, &options).expect_status(200, &options);
    let held = r#"{"metadata":{"name":"b","finalizers":["example.com/f"]}}"#;
    call("POST", &lease::collection("orphaned"), held).expect_status(201, held);
    let path = lease::path("orphaned", "b");
    call("DELETE", &format!("{path}?orphanDependents=false"), "").expect_status(202, "the Lease still exists");
}

#[test]
fn an_unsafe_deletion_deletes_no_lease_that_decodes() {
    const OPTION: &str = "ignoreStoreReadErrorWithClusterBreakingPotential";
    let (collection, path) = (lease::collection("corrupt"), lease::path("corrupt", "a"));
    call("POST", &collection, &lease::new("a")).expect_status(201, "POST");
    let is_decodable = "Operation cannot be fulfilled on leases.coordination.k8s.io \"a\": StorageError: invalid object, \
        Code: 4, Key: /registry/leases/corrupt/a, ResourceVersion: 0, AdditionalErrorMsg: unsafe deletion is not allowed \
        because the object is decodable from storage";
    for (query, body) in [
        (format!("?{OPTION}=true"), json!(null)),
        (String::new(), json!({OPTION: true})),
        (String::new(), json!({OPTION: true, "dryRun": ["All"]})),
    ] {
        let body = if body.is_null() { String::new() } else { body.to_string() };
        let refused = call("DELETE", &format!("{path}{query}"), &body).expect_status(409, &body);
        assert_eq!(message(&refused), is_decodable);
    }
    let absent = format!("{}?{OPTION}=true", lease::path("corrupt", "b"));
    call("DELETE", &absent, "").expect_status(404, &absent);

    for (name, value) in [
        ("propagationPolicy", json!("Background")),
        ("orphanDependents", json!(true)),
        ("gracePeriodSeconds", json!(0)),
        ("preconditions", json!({})),
    ] {
        let body = json!({OPTION: true, name: value}).to_string();
        let refused = call("DELETE", &path, &body).expect_status(422, &body);
        let words = format!(
            "DeleteOptions.meta.k8s.io \"\" is invalid: {OPTION}: Invalid value: true: cannot be set together with .{name}"
        );
        assert_eq!(message(&refused), words);
    }
    let refused = call("DELETE", &collection, &json!({OPTION: true}).to_string()).expect_status(422, "the collection");
    let words = format!(
        "DeleteOptions.meta.k8s.io \"\" is invalid: {OPTION}: Invalid value: true: is not allowed with DELETECOLLECTION, \
         try again after removing the option"
    );
    assert_eq!(message(&refused), words);
    call("GET", &path, "").expect_status(200, "the Lease still exists");
    call("DELETE", &path, &json!({OPTION: false}).to_string()).expect_status(200, "the option is false");
}

#[test]
fn an_invalid_lease_name_is_refused_with_400() {
    for name in ["%2e%2e", ".", "%25"] {
        let refused = call("GET", &lease::path("named", name), "").expect_status(400, name);
        assert!(message(&refused).starts_with("Name parameter invalid: "), "{refused}");
    }
    for (query, words) in
        [("resourceVersion=x", "Name parameter invalid: \".\": may not be '.'"), ("export=1", "the export parameter")]
    {
        let refused = call("GET", &format!("{}?{query}", lease::path("named", ".")), "").expect_status(400, query);
        assert!(message(&refused).starts_with(words), "{refused}");
    }
    for (method, target, status, words) in [
        ("DELETE", lease::collection(""), 400, "Namespace parameter required."),
        ("GET", lease::path("", "a"), 400, "Namespace parameter required."),
        (
            "POST",
            lease::collection(""),
            422,
            "Lease.coordination.k8s.io \"a\" is invalid: metadata.namespace: Required value",
        ),
    ] {
        let body = if method == "POST" { lease::new("a") } else { String::new() };
        assert_eq!(message(&call(method, &target, &body).expect_status(status, &target)), words);
    }
    call("GET", &lease::collection(""), "").expect_status(200, "all namespaces");
}

#[test]
fn a_timeout_that_is_not_a_duration_is_refused_first_except_for_a_watch() {
    for target in ["/healthz", "/no/such/path", &lease::collection("timed")] {
        let refused = call("GET", &format!("{target}?timeout=x"), "").expect_status(400, target);
        let words = "invalid timeout specified in the request URL - time: invalid duration \"x\"";
        assert_eq!(message(&refused), words);
    }
    Watch::open(&SERVER.endpoint(), &format!("{}?watch=1&timeout=x", lease::collection("timed")));
    let by_path = "/apis/coordination.k8s.io/v1/watch/namespaces/timed/leases?timeout=x";
    Watch::open(&SERVER.endpoint(), by_path);
    call("POST", by_path, "").expect_status(405, "paths below /watch/ are watches");
    for (query, status) in [("watch=1&timeout=x", 405), ("timeout=x", 400)] {
        call("HEAD", &format!("{}?{query}", lease::collection("timed")), "").expect_status(status, query);
    }
}

#[test]
fn options_of_a_list_are_checked_in_order() {
    let collection = lease::collection("ordered");
    let bad = "Accept: application/json;as=Bad;v=v1;g=meta.k8s.io\r\n";
    for (query, fields, status) in [
        ("resourceVersionMatch=Exact", "Accept: text/html\r\n", 406),
        ("resourceVersionMatch=Exact", bad, 406),
        ("resourceVersionMatch=Exact", "", 422),
        ("fieldSelector=spec.x=1", bad, 406),
        ("fieldSelector=spec.x=1", "", 400),
        ("limit=x", bad, 406),
        ("limit=x&resourceVersionMatch=Exact", "", 400),
    ] {
        for target in [&collection, "/apis/coordination.k8s.io/v1/watch/namespaces/ordered/leases"] {
            let target = format!("{target}?{query}");
            send("GET", &target, fields, "").expect_status(status, &target);
        }
    }
    call("GET", &format!("{collection}?fieldSelector=%3D"), "").expect_status(200, "an empty selector");
    let refused = call("GET", &format!("{collection}?continue=x&resourceVersion=y"), "").expect_status(400, "continue");
    assert!(message(&refused).contains("illegal base64 data at input byte 0"), "{refused}");
}

#[test]
fn an_invalid_include_object_is_refused_after_the_write() {
    let table = "Content-Type: application/json\r\nAccept: application/json;as=Table;v=v1;g=meta.k8s.io\r\n";
    let target = format!("{}?includeObject=Nonsense", lease::collection("rows"));
    send("POST", &target, table, &lease::new("a")).expect_status(400, "POST");
    // The server has refused the POST, but only after it had created the Lease: it checks `includeObject` last. So this
    // PUT is an update, which needs a resourceVersion.
    let yaml = "Content-Type: application/yaml\r\n";
    send("PUT", &lease::path("rows", "a"), yaml, "{metadata: {name: a}}").expect_status(422, "PUT without a version");
    call("GET", &lease::path("rows", "a"), "").expect_status(200, "the Lease was created");
}

#[test]
fn a_list_of_one_name_has_no_pages() {
    let collection = lease::collection("single");
    let first = call("POST", &collection, &lease::new("a")).expect_status(201, "POST").json();
    call("PATCH", &lease::path("single", "a"), r#"{"spec":{"holderIdentity":"b"}}"#).expect_status(200, "PATCH");
    let version = lease::version(&first);
    let holder = |query: &str| {
        let list =
            call("GET", &format!("{collection}?{query}&resourceVersion={version}"), "").expect_status(200, query);
        list.json()["items"][0]["spec"]["holderIdentity"].as_str().unwrap().to_owned()
    };
    assert_eq!(holder("limit=1"), "node-a");
    assert_eq!(holder("limit=1&fieldSelector=metadata.name%3Da"), "b");
    assert_eq!(holder("resourceVersionMatch=Exact&fieldSelector=metadata.name%3Da"), "node-a");
    // No Lease can have any of these names. So the list is empty, but its version is the requested one.
    for name in ["a/b", "..", "a%25b", ""] {
        let target = format!("{collection}?limit=1&fieldSelector=metadata.name%3D{name}&resourceVersion={version}");
        let list = call("GET", &target, "").expect_status(200, name).json();
        assert_eq!((&list["items"], lease::version(&list)), (&json!([]), version), "{name}");
    }
    call("POST", &collection, &lease::new("b")).expect_status(201, "POST");
    let page = call("GET", &format!("{collection}?limit=1"), "").expect_status(200, "a page").json();
    let token = page["metadata"]["continue"].as_str().unwrap();
    let rest = call("GET", &format!("{collection}?continue={token}&limit=1&resourceVersion=0"), "");
    assert_eq!(rest.expect_status(200, "no limit").json()["metadata"]["continue"], Value::Null);
    let rest = call("GET", &format!("{collection}?continue={token}&fieldSelector=metadata.name%3Da"), "");
    assert_eq!(rest.expect_status(200, "the rest, by name").json()["items"], json!([]));
}

/// After a rollback, clients continue their lists at kube-apiserver, with tokens of this server. kube-apiserver puts
/// the namespace of the request before the name in a token. So this server's tokens must omit the namespace.
#[test]
fn a_continue_token_of_one_namespace_omits_the_namespace() {
    for namespace in ["token-one", "token-two"] {
        for name in ["a", "b", "c"] {
            call("POST", &lease::collection(namespace), &lease::new(name)).expect_status(201, name);
        }
    }
    let list = |namespace: &str, query: &str| call("GET", &format!("{}?{query}", lease::collection(namespace)), "");
    let page = list("token-one", "limit=1").expect_status(200, "a page").json();
    let token = page["metadata"]["continue"].as_str().unwrap();
    let content: Value = serde_json::from_slice(&BASE64_URL_SAFE_NO_PAD.decode(token).unwrap()).unwrap();
    assert_eq!(content["start"], "a\0");

    // Earlier releases of this server put the namespace into the token. Such a token is still valid, but only in its
    // namespace.
    let with_namespace = json!({ "v": content["v"], "rv": content["rv"], "start": "token-one/a\0" });
    let with_namespace = BASE64_URL_SAFE_NO_PAD.encode(with_namespace.to_string());
    for (namespace, token) in [("token-one", token), ("token-one", with_namespace.as_str()), ("token-two", token)] {
        let rest = list(namespace, &format!("continue={token}")).expect_status(200, namespace).json();
        let names: Vec<_> = rest["items"].as_array().unwrap().iter().map(lease::name).collect();
        assert_eq!(names, ["b", "c"], "{namespace} {token}");
    }
    list("token-two", &format!("continue={with_namespace}")).expect_status(400, "a place in another namespace");
}

#[test]
fn a_watch_from_a_future_version_begins_and_ends_with_an_error() {
    let target = lease::collection("to-come");
    let options = "watch=1&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&resourceVersion=9000000000000000";
    let events = Watch::open(&SERVER.endpoint(), &format!("{target}?{options}")).rest();
    let [event] = events.as_slice() else { panic!("{events:?}") };
    assert_eq!((&event["type"], &event["object"]["code"]), (&json!("ERROR"), &json!(504)));

    // With storage in memory, versions begin with the clock's time at the start. So a client may have a version from an
    // earlier server whose clock was ahead. A watch from this version would receive no events. So the client gets 410
    // and must list again.
    let created = call("POST", &target, &lease::new("a")).expect_status(201, "POST").json();
    // The version must be far ahead, since other tests also write to this server, which increases its version.
    let ahead = lease::version(&created) + 1_000_000;
    for options in ["", "&allowWatchBookmarks=true", "&sendInitialEvents=false&resourceVersionMatch=NotOlderThan"] {
        for (version, selector) in [(ahead, ""), (u64::MAX, ""), (ahead, "&fieldSelector=metadata.name%3Da")] {
            let target = format!("{target}?watch=1&resourceVersion={version}{options}{selector}");
            let events = Watch::open(&SERVER.endpoint(), &target).rest();
            let [event] = events.as_slice() else { panic!("{target}: {events:?}") };
            expect_expired(event);
        }
    }
}

#[test]
fn a_read_of_a_future_version_waits_only_until_the_table_has_it() {
    // The test has its own server. On a shared server, writes of other tests would raise the version that the read
    // waits for.
    let server = TestServer::start();
    let (mut reader, mut writer) = (server.client(), server.client());
    let target = lease::collection("awaited");
    let created = writer.call("POST", &target, &lease::new("a")).expect_status(201, "POST").json();
    let next = lease::version(&created) + 1;
    let begun = Instant::now();
    reader.send(request("GET", &format!("{target}?resourceVersion={next}"), ""));
    // In this pause the read arrives at the server, before the write that it waits for.
    thread::sleep(Duration::from_millis(200));
    writer.call("POST", &target, &lease::new("b")).expect_status(201, "POST");
    let list = reader.recv("GET").expect_status(200, "a list").json();
    assert!(lease::version(&list) >= next, "{list}");
    assert!(begun.elapsed() < Duration::from_millis(VERSION_WAIT_MS_MAX), "it waited {:?}", begun.elapsed());
}

#[test]
fn zero_is_not_an_exact_version_in_any_spelling() {
    let target = lease::collection("zero");
    let created = call("POST", &target, &lease::new("a")).expect_status(201, "POST").json();
    let query = "resourceVersion=00&resourceVersionMatch=Exact";
    for limit in ["", "&limit=5"] {
        let list = call("GET", &format!("{target}?{query}{limit}"), "").expect_status(200, limit).json();
        assert_eq!(list["items"].as_array().map(Vec::len), Some(1));
        assert!(lease::version(&list) >= lease::version(&created));
    }
    let refused = call("DELETE", &format!("{target}?{query}"), "");
    refused.expect_failure(409, "Conflict", "without a body the version is a precondition as well");
    let options = r#"{"kind":"DeleteOptions","apiVersion":"v1"}"#;
    let deleted = call("DELETE", &format!("{target}?{query}"), options).expect_status(200, query).json();
    assert_eq!(deleted["items"].as_array().map(Vec::len), Some(1));
}

#[test]
fn patches_are_parsed_as_in_go() {
    let path = lease::path("patched", "a");
    call("POST", &lease::collection("patched"), &lease::new("a")).expect_status(201, "POST");
    let half = r#"{"spec":{"holderIdentity":"\ud83d"}}"#;
    let patched = call("PATCH", &path, half).expect_status(200, half).json();
    assert_eq!(patched["spec"]["holderIdentity"], "\u{fffd}");
    let zero = r#"{"spec":{"leaseTransitions":-0}}"#;
    call("PATCH", &path, zero).expect_status(200, zero);
    let huge = r#"{"spec":{"leaseTransitions":1e400}}"#;
    let words = "error decoding patch: json: cannot unmarshal number 1e400 into Go value of type float64";
    assert_eq!(message(&call("PATCH", &path, huge).expect_status(400, huge)), words);
    let versionless = r#"{"apiVersion":null}"#;
    assert!(message(&call("PATCH", &path, versionless).expect_status(400, versionless)).contains("undeterminable"));
    let json_patch = "Content-Type: application/json-patch+json\r\n";
    let ops = r#"[{"op":5}]"#;
    send("PATCH", &path, json_patch, ops).expect_status(400, ops);
    send("PATCH", &format!("{path}?fieldValidation=Ignore"), json_patch, ops).expect_status(422, ops);
}

#[test]
fn a_patch_that_is_not_json_is_refused_before_other_checks() {
    let invalid = "invalid JSON patch";
    let (absent, unnamed) = (lease::path("malformed", "absent"), lease::path("malformed", "a%25b"));
    for media_type in ["merge-patch", "strategic-merge-patch", "json-patch"] {
        let fields = format!("Content-Type: application/{media_type}+json\r\n");
        for target in [&absent, &unnamed, &format!("{absent}?fieldValidation=Ignore")] {
            for body in ["", "{", "[1,]", "x"] {
                let refused = send("PATCH", target, &fields, body).expect_failure(400, "BadRequest", body);
                assert_eq!(message(&refused), invalid, "{media_type} {target}");
            }
        }
        let json = send("PATCH", &absent, &fields, "7").expect_status(404, "JSON of another kind");
        assert_eq!(message(&json), "leases.coordination.k8s.io \"absent\" not found");
    }
}

#[test]
fn the_name_is_checked_between_apply_encoding_and_decoding() {
    let apply = "Content-Type: application/apply-patch+yaml\r\n";
    let (named, unnamed) = (lease::path("malformed", "a"), lease::path("malformed", "a%25b"));
    let name = "Name parameter invalid: \"a%b\": may not contain '%'";
    let no_map = "error decoding patch: error unmarshaling JSON: while decoding JSON: json: cannot unmarshal array into Go value of type map[string]interface {}";
    for (body, words, of_unnamed) in [
        ("a: [", "error encoding patch: yaml: ", None),
        ("[1,,]", "error encoding patch: yaml: ", None),
        (" {\"a\":", "error decoding patch: error converting YAML to JSON: yaml: ", Some(name)),
        ("[]", no_map, Some(name)),
    ] {
        for (path, words) in [(&named, words), (&unnamed, of_unnamed.unwrap_or(words))] {
            let target = format!("{path}?fieldManager=m");
            let refused = send("PATCH", &target, apply, body).expect_failure(400, "BadRequest", body);
            assert!(message(&refused).starts_with(words), "{body}: {}", message(&refused));
        }
    }
}

#[test]
fn errors_quote_numbers_as_they_were_written() {
    let body = r#"{"metadata":{"name":"a"},"spec":{"leaseDurationSeconds":1E+1}}"#;
    let refused = call("POST", &lease::collection("numbers"), body).expect_status(400, body);
    assert!(message(&refused).contains("cannot unmarshal number 1E+1 into"), "{refused}");
}

#[test]
fn a_lease_too_large_for_etcd_is_not_stored() {
    let (collection, path) = (lease::collection("large"), lease::path("large", "a"));
    let lease = |name: &str, bytes: usize| lease::new(name).replace("node-a", &"x".repeat(bytes));
    const UNSENT: &str = "rpc error: code = ResourceExhausted desc = trying to send message larger than max (";
    // Maximum length of everything in the test's Lease but the name of the holder, in bytes.
    const OTHER_BYTES: usize = 1024;
    let too_long = |response: Response, words: &str| {
        let status = response.expect_status(500, words).json();
        assert!(status["message"].as_str().unwrap().starts_with(words), "{status}");
        assert_eq!((&status["reason"], &status["details"]), (&Value::Null, &Value::Null));
    };
    for (bytes, words) in [(OBJECT_BYTES_MAX, "etcdserver: request is too large"), (OBJECT_BYTES_SENT_MAX, UNSENT)] {
        let body = lease("a", bytes);
        too_long(call("POST", &collection, &body), words);
        too_long(call("PUT", &path, &body), words);
        call("POST", &format!("{collection}?dryRun=All"), &body).expect_status(201, "a dry run has no limit");
    }
    call("GET", &path, "").expect_status(404, "nothing was stored");
    call("POST", &collection, &lease("a", OBJECT_BYTES_MAX - OTHER_BYTES)).expect_status(201, "the longest");
    let before = call("GET", &path, "").json();

    let holder = format!(r#"{{"spec":{{"holderIdentity":"{}"}}}}"#, "y".repeat(OBJECT_BYTES_MAX));
    for media_type in ["application/merge-patch+json", "application/strategic-merge-patch+json"] {
        let fields = format!("Content-Type: {media_type}\r\n");
        too_long(send("PATCH", &path, &fields, &holder), "etcdserver: request is too large");
    }
    assert_eq!(call("GET", &path, "").json(), before);
}

/// Returns eight owner references, whose UIDs have `bytes` bytes in total. The `managedFields` entry of their manager
/// repeats the UIDs, so it has about as many bytes.
fn owners(bytes: usize) -> Vec<Value> {
    let uid = "u".repeat(bytes / 8);
    (0..8).map(|n| json!({"apiVersion": "v1", "kind": "Pod", "name": "a", "uid": format!("{n}{uid}")})).collect()
}

#[test]
fn managers_cannot_make_a_lease_grow_without_bound() {
    let config = json!({
        "apiVersion": "coordination.k8s.io/v1", "kind": "Lease",
        "metadata": {"name": "a", "ownerReferences": owners(OBJECT_BYTES_MAX / 20 * 8)},
    });
    let apply = |manager: usize| {
        let target = format!("{}?fieldManager=m{manager}", lease::path("grown", "a"));
        send("PATCH", &target, "Content-Type: application/apply-patch+yaml\r\n", &config.to_string())
    };
    apply(0).expect_status(201, "the first");
    let refused = apply(1).expect_status(500, "the second");
    assert_eq!(message(&refused), "etcdserver: request is too large");
    assert_eq!(call("GET", &lease::path("grown", "a"), "").json()["metadata"]["managedFields"][1], Value::Null);
}

#[test]
fn a_lease_whose_managers_make_it_too_long_is_stored_without_them() {
    let (collection, path) = (lease::collection("managed"), lease::path("managed", "a"));
    let owners = owners(OBJECT_BYTES_MAX / 20 * 12);
    let mut body = json!({
        "apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": {"name": "a", "ownerReferences": owners},
    });
    let apply = |body: &Value| {
        let target = format!("{path}?fieldManager=m");
        send("PATCH", &target, "Content-Type: application/apply-patch+yaml\r\n", &body.to_string())
    };
    apply(&body).expect_status(500, "apply");
    let shown =
        call("POST", &format!("{collection}?dryRun=All"), &body.to_string()).expect_status(201, "dry run").json();
    let managers = &shown["metadata"]["managedFields"];
    assert_eq!(managers.as_array().unwrap().len(), 1);

    let created = call("POST", &collection, &body.to_string()).expect_status(201, "POST").json();
    assert_eq!(
        (&created["metadata"]["managedFields"], &created["metadata"]["ownerReferences"]),
        (&Value::Null, &json!(owners))
    );
    apply(&body).expect_status(500, "apply");
    let merge = "Content-Type: application/merge-patch+json\r\n";
    let claim = json!({"metadata": {"managedFields": managers}, "spec": {"holderIdentity": "b"}}).to_string();
    let patched = send("PATCH", &path, merge, &claim).expect_status(200, "PATCH").json();
    assert_eq!(
        (&patched["metadata"]["managedFields"], &patched["spec"]["holderIdentity"]),
        (&Value::Null, &json!("b"))
    );

    // With these `managedFields`, the Lease would be too long, so the server drops them. Without them, the update
    // equals the stored Lease and changes nothing.
    body = patched.clone();
    body["metadata"]["managedFields"] = managers.clone();
    assert_eq!(call("PUT", &path, &body.to_string()).expect_status(200, "PUT").json(), patched);
}

#[test]
fn entries_are_counted_before_they_are_validated() {
    let count = METADATA_ENTRIES_MAX + 1;
    let map: Value = (0..count).map(|n| (format!("-{n}-"), json!("1"))).collect::<serde_json::Map<_, _>>().into();
    let names: Value = (0..count).map(|n| json!(format!("-{n}-"))).collect();
    let half: Value = (0..=count / 2).map(|n| json!(format!("-{n}-"))).collect();
    let owners: Value = (0..count).map(|n| json!({"uid": n.to_string()})).collect();
    let created = call("POST", &lease::collection("many"), &lease::new("a")).expect_status(201, "POST").json();
    let half_map: Value =
        (0..count / 2).map(|n| (format!("-{n}-"), json!("1"))).collect::<serde_json::Map<_, _>>().into();
    for fields in [
        json!({"annotations": map}),
        json!({"finalizers": names}),
        json!({"labels": map}),
        json!({"ownerReferences": owners}),
        // Labels and finalizers are each within the limit, but together they exceed it.
        json!({"labels": half_map, "finalizers": half}),
    ] {
        let mut metadata = created["metadata"].clone();
        let mut applied = json!({"name": "a"});
        for (field, value) in fields.as_object().expect("fields") {
            metadata[field] = value.clone();
            applied[field] = value.clone();
        }
        let whole = json!({"metadata": metadata}).to_string();
        let patch = json!({"metadata": fields}).to_string();
        let path = lease::path("many", "a");
        let config = json!({"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": applied});
        for refused in [
            send("PATCH", &format!("{path}?fieldManager=m"), APPLY, &config.to_string()),
            call("POST", &lease::collection("many"), &whole),
            call("PUT", &path, &whole),
            send("PATCH", &path, MERGE, &patch),
            send("PATCH", &path, STRATEGIC_MERGE, &patch),
        ] {
            expect_too_many_entries(refused, count);
        }
    }
    let labels: Value = (0..count - 1).map(|n| (n.to_string(), json!("1"))).collect::<serde_json::Map<_, _>>().into();
    let body = json!({"metadata": {"name": "b", "labels": labels}}).to_string();
    call("POST", &lease::collection("many"), &body).expect_status(201, "the maximum");
    // The stored Lease has the maximum number of labels. These labels count together with the annotation that a patch
    // or an applied configuration adds.
    let path = lease::path("many", "b");
    let patch = json!({"metadata": {"annotations": {"a": "1"}}}).to_string();
    let config = json!({
        "apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": {"name": "b", "annotations": {"a": "1"}},
    });
    for refused in [
        send("PATCH", &format!("{path}?fieldManager=m"), APPLY, &config.to_string()),
        send("PATCH", &path, MERGE, &patch),
        send("PATCH", &path, STRATEGIC_MERGE, &patch),
    ] {
        expect_too_many_entries(refused, count);
    }
}

const APPLY: &str = "Content-Type: application/apply-patch+yaml\r\n";
const MERGE: &str = "Content-Type: application/merge-patch+json\r\n";
const STRATEGIC_MERGE: &str = "Content-Type: application/strategic-merge-patch+json\r\n";

fn expect_too_many_entries(refused: Response, count: usize) {
    let causes = refused.expect_failure(422, "Invalid", "entries").json()["details"]["causes"].clone();
    let words = format!("Too many: {count}: must have at most {METADATA_ENTRIES_MAX} items");
    assert_eq!(causes, json!([{"reason": "FieldValueTooMany", "message": words, "field": "metadata"}]));
}
