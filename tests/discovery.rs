//! Discovery, OpenAPI, version, health and metrics, as clients request them.

#![allow(clippy::panic, clippy::unwrap_used, reason = "tests fail by panicking")]

mod support;

use serde_json::json;
use std::sync::LazyLock;
use support::client::Client;
use support::exposition::{Exposition, parse};
use support::response::Response;
use support::server::TestServer;
use support::watch::Watch;
use support::{eventually, lease};

static SERVER: LazyLock<TestServer> = LazyLock::new(TestServer::start);

/// Sends a GET with additional field lines.
fn get(target: &str, fields: &str) -> Response {
    get_on(&mut SERVER.client(), target, fields)
}

fn get_on(client: &mut Client, target: &str, fields: &str) -> Response {
    client.call_with("GET", target, fields, "")
}

fn text(response: &Response) -> &str {
    std::str::from_utf8(&response.body).unwrap()
}

const V2: &str = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList";
const V2BETA1: &str = "application/json;g=apidiscovery.k8s.io;v=v2beta1;as=APIGroupDiscoveryList";
const VERBS: [&str; 8] = ["create", "delete", "deletecollection", "get", "list", "patch", "update", "watch"];

#[test]
fn discovery_documents_of_all_levels_are_served() {
    let version = |name: &str| json!({"groupVersion": format!("coordination.k8s.io/{name}"), "version": name});
    let versions = [version("v1"), version("v1beta1")];
    let group = json!({"name": "coordination.k8s.io", "versions": versions, "preferredVersion": version("v1")});
    for accept in ["", "Accept: application/json\r\n", "Accept: */*\r\n"] {
        let groups = get("/apis", accept).expect_status(200, accept);
        assert_eq!(groups.head.field("content-type"), Some("application/json"));
        assert_eq!(groups.json(), json!({"kind": "APIGroupList", "apiVersion": "v1", "groups": [group]}));
    }
    let mut alone = group;
    alone["kind"] = "APIGroup".into();
    alone["apiVersion"] = "v1".into();
    assert_eq!(get("/apis/coordination.k8s.io", "").json(), alone);
    for (path, group_version) in [
        ("/apis/coordination.k8s.io/v1", "coordination.k8s.io/v1"),
        ("/apis/coordination.k8s.io/v1/", "coordination.k8s.io/v1"),
        ("/apis/coordination.k8s.io/v1beta1", "coordination.k8s.io/v1beta1"),
    ] {
        let resource = json!({
            "name": "leases", "singularName": "lease", "namespaced": true, "kind": "Lease", "verbs": VERBS,
            "storageVersionHash": "gqkMMb/YqFM=",
        });
        let list = json!({
            "kind": "APIResourceList", "apiVersion": "v1", "groupVersion": group_version,
            "resources": [resource],
        });
        assert_eq!(get(path, "").expect_status(200, path).json(), list);
    }
    const CANARY: &str = "/apis/canary.coordination-apiserver.io/v1";
    let list = json!({
        "kind": "APIResourceList", "apiVersion": "v1", "groupVersion": "canary.coordination-apiserver.io/v1",
        "resources": [],
    });
    assert_eq!(get(CANARY, "").expect_status(200, CANARY).json(), list);
    let legacy = get("/api", "").json();
    assert_eq!((&legacy["kind"], &legacy["versions"]), (&json!("APIVersions"), &json!([])));
    for path in ["/apis/coordination.k8s.io/v1beta2", "/apis/apps", "/apis/coordination.k8s.io/v1/leasecandidates"] {
        get(path, "").expect_failure(404, "NotFound", path);
    }
    SERVER.client().call("POST", "/apis", "{}").expect_failure(405, "MethodNotAllowed", "POST /apis");
    get("/apis", "Accept: text/html\r\n").expect_failure(406, "NotAcceptable", "text/html");
}

#[test]
fn discovery_is_served_in_every_format() {
    const PATH: &str = "/apis/coordination.k8s.io/v1";
    let protobuf = get(PATH, "Accept: application/vnd.kubernetes.protobuf\r\n").expect_status(200, PATH);
    assert_eq!(protobuf.head.field("content-type"), Some("application/vnd.kubernetes.protobuf"));
    assert_eq!(protobuf.body, include_bytes!("wire/discovery-legacy-version.pb"));
    let yaml = get(PATH, "Accept: application/yaml\r\n").expect_status(200, PATH);
    assert_eq!(yaml.head.field("content-type"), Some("application/yaml"));
    assert!(yaml.body.starts_with(b"apiVersion: v1\ngroupVersion: coordination.k8s.io/v1\nkind: APIResourceList\n"));
    for (target, fields) in [(PATH, "User-Agent: curl/8\r\n"), ("/apis/coordination.k8s.io/v1?pretty=1", "")] {
        let pretty = get(target, fields).expect_status(200, target);
        assert!(pretty.body.starts_with(b"{\n  \"kind\": \"APIResourceList\",\n"), "{target}");
    }
    let accept = V2.replace("json", "vnd.kubernetes.protobuf");
    let aggregated = get("/apis", &format!("Accept: {accept}\r\n")).expect_status(200, &accept);
    assert_eq!(aggregated.head.field("content-type"), Some(accept.as_str()));
    assert!(aggregated.body.starts_with(b"k8s\0"));
    // A list of resources has no aggregated form: only lists of groups have one. No discovery document has a Table
    // form.
    for accept in [V2, "application/json;as=Table;g=meta.k8s.io;v=v1"] {
        let fields = format!("Accept: {accept}\r\n");
        let status = get(PATH, &fields).expect_failure(406, "NotAcceptable", accept).json();
        let words = status["message"].as_str().unwrap_or_default();
        assert!(words.starts_with("only the following media types are accepted: "), "{words}");
    }
}

#[test]
fn aggregated_discovery_is_served_in_both_versions() {
    for (accept, version, content_type) in [
        (V2.to_owned(), "v2", V2),
        (V2BETA1.to_owned(), "v2beta1", V2BETA1),
        // The values of `Accept` that kube-apiserver's aggregator and client-go send.
        (format!("{V2},{V2BETA1}"), "v2", V2),
        (format!("{V2},{V2BETA1},application/json"), "v2", V2),
    ] {
        let fields = format!("Accept: {accept}\r\n");
        let apis = get("/apis", &fields).expect_status(200, &accept);
        assert_eq!(apis.head.field("content-type"), Some(content_type));
        assert_eq!(apis.head.field("vary"), Some("Accept"));
        assert_eq!(apis.head.field("cache-control"), Some("public"));
        let resource = json!({
            "resource": "leases", "responseKind": {"group": "", "version": "", "kind": "Lease"},
            "scope": "Namespaced", "singularResource": "lease", "verbs": VERBS,
        });
        let versions =
            ["v1", "v1beta1"].map(|name| json!({"version": name, "resources": [resource], "freshness": "Current"}));
        let list = json!({
            "kind": "APIGroupDiscoveryList", "apiVersion": format!("apidiscovery.k8s.io/{version}"), "metadata": {},
            "items": [{"metadata": {"name": "coordination.k8s.io"}, "versions": versions}],
        });
        assert_eq!(apis.json(), list);
        let api = get("/api", &fields).expect_status(200, &accept);
        assert_eq!(api.head.field("content-type"), Some(content_type));
        assert_eq!(api.json()["items"], json!([]));
    }
    // With a trailing slash, `/apis` gives only the list of groups, not the aggregated form.
    for path in ["/apis/", "/apis%2F"] {
        get(path, &format!("Accept: {V2}\r\n")).expect_status(406, "aggregated alone");
    }
    let groups = get("/apis/", &format!("Accept: {V2},application/json\r\n")).expect_status(200, "or the groups");
    assert_eq!(groups.json()["kind"], "APIGroupList");
}

/// Checks that a client gets 304 if it requests a document that it already has (`If-None-Match`). Another request must
/// then succeed on the same connection.
#[track_caller]
fn expect_known(target: &str, accept: &str) {
    let mut client = SERVER.client();
    let first = get_on(&mut client, target, accept).expect_status(200, target);
    let tag = first.head.field("etag").expect("an entity tag").to_owned();
    assert!(tag.len() == 130 && tag.starts_with('"') && tag.ends_with('"'), "{tag}");
    let known = get_on(&mut client, target, &format!("{accept}If-None-Match: {tag}\r\n")).expect_status(304, target);
    assert_eq!(known.head.field("etag"), Some(tag.as_str()));
    assert_eq!((known.head.field("content-length"), known.head.field("content-type")), (None, None));
    let other = get_on(&mut client, target, &format!("{accept}If-None-Match: \"0\"\r\n")).expect_status(200, target);
    assert_eq!(other.body, first.body);
}

#[test]
fn a_matching_etag_is_answered_with_304() {
    expect_known("/apis", &format!("Accept: {V2}\r\n"));
    expect_known("/apis", &format!("Accept: {V2BETA1}\r\n"));
    expect_known("/api", &format!("Accept: {V2}\r\n"));
    expect_known("/openapi/v2", "Accept: application/json\r\n");
    expect_known("/openapi/v3", "");
    expect_known("/openapi/v3/apis/coordination.k8s.io/v1", "");
}

#[test]
fn openapi_v3_is_found_by_its_index_and_may_be_cached() {
    const PATH: &str = "/openapi/v3/apis/coordination.k8s.io/v1";
    // The index of the OpenAPI documents, `/openapi/v3`, ignores `Accept`. Its Content-Type is not JSON, though its
    // content is.
    for accept in ["", "Accept: application/yaml\r\n", "Accept: text/plain\r\n"] {
        let index = get("/openapi/v3", accept).expect_status(200, accept);
        assert_eq!(index.head.field("content-type"), Some("text/plain; charset=utf-8"));
    }
    let index = get("/openapi/v3", "").expect_status(200, "/openapi/v3").json();
    let url = index["paths"]["apis/coordination.k8s.io/v1"]["serverRelativeURL"].as_str().expect("a URL").to_owned();
    assert!(url.starts_with(&format!("{PATH}?hash=")), "{url}");
    let hashed = get(&url, "").expect_status(200, &url);
    assert_eq!(hashed.head.field("cache-control"), Some("public, immutable"));
    assert_eq!(hashed.head.field("vary"), Some("Accept"));
    assert!(hashed.head.field("expires").is_some_and(|date| date.ends_with(" GMT")));
    let plain = get(PATH, "").expect_status(200, PATH);
    assert_eq!((plain.head.field("cache-control"), plain.head.field("expires")), (Some("no-cache, private"), None));
    assert_eq!(plain.body, hashed.body);
    let moved = get(&format!("{PATH}?hash=OLD"), "").expect_status(301, "an old hash");
    assert_eq!(moved.head.field("location"), Some(url.as_str()));
    get(PATH, "Accept: application/com.github.proto-openapi.spec.v3.v1.0+protobuf\r\n").expect_failure(
        406,
        "NotAcceptable",
        "protobuf",
    );
    let document = plain.json();
    let renew_time =
        &document["components"]["schemas"]["io.k8s.api.coordination.v1.LeaseSpec"]["properties"]["renewTime"];
    assert_eq!(renew_time["allOf"][0]["$ref"], "#/components/schemas/io.k8s.apimachinery.pkg.apis.meta.v1.MicroTime");
    // In the OpenAPI document, the members of an object have a default. The items of an array and the values of a map
    // have none.
    let member = |kind: &str, name: &str| {
        document["components"]["schemas"][format!("io.k8s.apimachinery.pkg.apis.meta.v1.{kind}")]["properties"][name]
            .clone()
    };
    assert_eq!(member("ObjectMeta", "finalizers")["items"], json!({"type": "string"}));
    assert_eq!(member("ObjectMeta", "labels")["additionalProperties"], json!({"type": "string"}));
    let owner = "#/components/schemas/io.k8s.apimachinery.pkg.apis.meta.v1.OwnerReference";
    assert_eq!(member("ObjectMeta", "ownerReferences")["items"], json!({"$ref": owner}));
    assert_eq!(member("OwnerReference", "uid")["default"], "");
    assert_eq!(member("ShardInfo", "selector")["default"], "");
    for (path, method) in [("leases", "get"), ("namespaces/{namespace}/leases", "delete"), ("watch/leases", "get")] {
        let operation = &document["paths"][format!("/apis/coordination.k8s.io/v1/{path}")][method];
        let parameters = operation["parameters"].as_array().expect("parameters");
        assert!(parameters.iter().any(|parameter| parameter["name"] == "shardSelector"), "{method} {path}");
    }
}

#[test]
fn openapi_v2_is_served_for_the_aggregator() {
    let document = get("/openapi/v2", "Accept: application/json\r\n").expect_status(200, "/openapi/v2").json();
    assert_eq!(document["swagger"], "2.0");
    let lease = &document["definitions"]["io.k8s.api.coordination.v1.Lease"];
    let kind = json!([{"group": "coordination.k8s.io", "kind": "Lease", "version": "v1"}]);
    assert_eq!(lease["x-kubernetes-group-version-kind"], kind);
    let put = &document["paths"]["/apis/coordination.k8s.io/v1/namespaces/{namespace}/leases/{name}"]["put"];
    assert_eq!(put["operationId"], "replaceCoordinationV1NamespacedLease");
    let older = &document["definitions"]["io.k8s.api.coordination.v1beta1.Lease"];
    assert_eq!(older["x-kubernetes-group-version-kind"][0]["version"], "v1beta1");
    let list = &document["paths"]["/apis/coordination.k8s.io/v1beta1/leases"]["get"];
    assert_eq!(list["operationId"], "listCoordinationV1beta1LeaseForAllNamespaces");
    let options = document["definitions"]["io.k8s.apimachinery.pkg.apis.meta.v1.DeleteOptions"].clone();
    let versions = options["x-kubernetes-group-version-kind"].as_array().unwrap();
    let versions: Vec<_> = versions.iter().map(|kind| (kind["group"].as_str(), kind["version"].as_str())).collect();
    let group = Some("coordination.k8s.io");
    assert_eq!(versions, [(Some(""), Some("v1")), (group, Some("v1")), (group, Some("v1beta1"))]);
}

#[test]
fn the_version_is_that_of_kubernetes_with_our_suffix() {
    for accept in ["application/yaml", "application/vnd.kubernetes.protobuf", "text/html", "application/*"] {
        get("/version", &format!("Accept: {accept}\r\n")).expect_status(406, accept);
    }
    let refused = get("/version", "Accept: text/html\r\n").json();
    assert_eq!(refused["message"], "406: Not Acceptable\n\nAvailable representations: application/json");
    assert_eq!(refused["details"], json!({}));
    for accept in ["", "text/html, application/json;q=0.1", "*/*", "application/json;as=Table;v=v1;g=meta.k8s.io"] {
        get("/version", &format!("Accept: {accept}\r\n")).expect_status(200, accept);
    }
    let response = get("/version", "").expect_status(200, "/version");
    assert_eq!(response.head.field("content-type"), Some("application/json"));
    let version = response.json();
    let names: Vec<_> = version.as_object().unwrap().keys().map(String::as_str).collect();
    let all = "buildDate compiler emulationMajor emulationMinor gitCommit gitTreeState gitVersion goVersion major \
               minCompatibilityMajor minCompatibilityMinor minor platform";
    assert_eq!(names.join(" "), all);
    assert!(version["gitVersion"].as_str().unwrap().starts_with("v1.37.2+coordination-apiserver-"), "{version}");
}

/// Returns the text without the check of the journal. Only servers with a journal have this check. The environment
/// variable `TEST_STORAGE` selects the servers' storage.
fn without_journal(response: &Response) -> String {
    text(response).replace("[+]journal ok\n", "")
}

#[test]
fn health_endpoints_answer_like_kube_apiserver() {
    for (target, status, want) in [
        ("/healthz", 200, "ok"),
        ("/livez", 200, "ok"),
        ("/readyz", 200, "ok"),
        ("/livez/ping", 200, "ok"),
        ("/readyz/shutdown", 200, "ok"),
        ("/livez?verbose", 200, "[+]ping ok\nlivez check passed\n"),
        ("/healthz?verbose=1", 200, "[+]ping ok\nhealthz check passed\n"),
        ("/readyz?verbose", 200, "[+]ping ok\n[+]shutdown ok\nreadyz check passed\n"),
        (
            "/readyz?verbose&exclude=shutdown&exclude=nothing",
            200,
            "[+]ping ok\n[+]shutdown excluded: ok\nwarn: some health checks cannot be excluded: no matches for \
             \"nothing\"\nreadyz check passed\n",
        ),
    ] {
        let response = get(target, "").expect_status(status, target);
        assert_eq!(without_journal(&response), want, "{target}");
        assert_eq!(response.head.field("content-type"), Some("text/plain; charset=utf-8"));
    }
    get("/livez/shutdown", "").expect_failure(404, "NotFound", "a check that is not one of this probe");
    let head = SERVER.client().call("HEAD", "/readyz?verbose", "").expect_status(200, "HEAD");
    let length = get("/readyz?verbose", "").body.len().to_string();
    assert_eq!(head.head.field("content-length"), Some(length.as_str()));
}

#[test]
fn a_server_that_stops_is_not_ready() {
    let server = TestServer::start();
    let mut client = server.client();
    // The client has sent the first half of a request when the stop begins. The server still responds to such a
    // request.
    client.send("GET /readyz HTTP/1.1\r\n");
    get_on(&mut server.client(), "/readyz", "").expect_status(200, "before");
    server.shutdown_handle().shutdown();
    eventually("the listener is closed", || Client::try_open(&server.endpoint()).is_err());
    client.send("Host: localhost\r\n\r\n");
    let response = client.recv_final("GET").expect_status(503, "/readyz");
    assert_eq!(without_journal(&response), "[+]ping ok\n[-]shutdown failed: reason withheld\nreadyz check failed\n");
    client.expect_closed();
    server.join().unwrap();
}

/// Requests the metrics and parses them strictly.
#[track_caller]
fn scrape(client: &mut Client) -> Exposition {
    Exposition::of(get_on(client, "/metrics", ""))
}

#[test]
fn metrics_count_requests_events_and_leases() {
    let server = TestServer::start();
    let mut client = server.client();
    let before = scrape(&mut client);
    assert_eq!(before.sum("apiserver_request_total", &["resource=\"leases\""]), 0.0);

    let collection = lease::collection("m");
    for name in ["a", "b", "c"] {
        let spec = if name == "c" {
            json!({})
        } else {
            json!({"holderIdentity": name, "renewTime": "2020-01-01T00:00:00.000000Z", "leaseDurationSeconds": 40})
        };
        let body = json!({"metadata": {"name": name}, "spec": spec}).to_string();
        client.call("POST", &collection, &body).expect_status(201, &body);
    }
    client.call("GET", &format!("{collection}/a"), "").expect_status(200, "a");
    client.call("GET", &format!("{collection}/z"), "").expect_status(404, "z");
    client.call("PUT", &format!("{collection}/a?dryRun=All"), "{").expect_status(400, "{");
    client.call("GET", &collection, "").expect_status(200, "a list");
    client
        .call("GET", &format!("{collection}?watch=true&resourceVersion=1&timeoutSeconds=1"), "")
        .expect_status(200, "too old");

    let options = "watch=true&sendInitialEvents=true&allowWatchBookmarks=true&resourceVersionMatch=NotOlderThan";
    let mut watch = Watch::open(&server.endpoint(), &format!("{collection}?{options}"));
    // The watch sends three objects, and then a bookmark.
    (0..4).for_each(|_| drop(watch.next()));

    let after = scrape(&mut client);
    let leases = "group=\"coordination.k8s.io\",version=\"v1\",resource=\"leases\",subresource=\"\"";
    let total = |verb: &str, dry_run: &str, scope: &str, code: u16| {
        after.value(&format!(
            "apiserver_request_total{{verb=\"{verb}\",dry_run=\"{dry_run}\",{leases},scope=\"{scope}\",component=\"apiserver\",code=\"{code}\"}}"
        ))
    };
    assert_eq!(total("POST", "", "resource", 201), 3.0);
    assert_eq!(total("GET", "", "resource", 200), 1.0);
    assert_eq!(total("GET", "", "resource", 404), 1.0);
    assert_eq!(total("PUT", "All", "resource", 400), 1.0);
    assert_eq!(total("LIST", "", "namespace", 200), 1.0);
    assert_eq!(total("WATCH", "", "namespace", 200), 2.0);
    assert_eq!(after.sum("apiserver_request_total", &["subresource=\"/metrics\"", "code=\"200\""]), 1.0);
    assert_eq!(after.sum("apiserver_request_duration_seconds_count", &["verb=\"POST\""]), 3.0);
    assert_eq!(after.sum("apiserver_longrunning_requests", &["verb=\"WATCH\""]), 1.0);
    assert_eq!(after.sum("apiserver_watch_events_total", &["resource=\"leases\""]), 5.0, "4 and an ERROR");
    for (series, value) in [
        ("coordination_leases", 3.0),
        ("coordination_leases_expired", 2.0),
        ("coordination_connections", 2.0),
        ("coordination_connections_accepted_total", 2.0),
        ("coordination_queued_bytes", 0.0),
        ("coordination_received_bytes", 0.0),
        ("coordination_watches_started_total", 2.0),
        ("coordination_watches_ended_total{reason=\"expired\"}", 1.0),
        ("coordination_watches_ended_total{reason=\"closed\"}", 0.0),
        ("coordination_event_log_events", 3.0),
        ("apiserver_storage_objects{resource=\"leases.coordination.k8s.io\"}", 3.0),
        ("apiserver_resource_objects{group=\"coordination.k8s.io\",resource=\"leases\"}", 3.0),
    ] {
        assert_eq!(after.value(series), value, "{series}");
    }
    let log = |part: &str| after.value(&format!("coordination_event_log_{part}"));
    assert_eq!(log("head") - log("floor"), 3.0);
    assert!(after.value("coordination_turn_duration_seconds_count") > 5.0);
    assert!(after.value("process_start_time_seconds") > 1.6e9);
    if cfg!(target_os = "linux") {
        assert!(after.value("process_resident_memory_bytes") > 1e6);
        assert!(after.value("process_open_fds") >= 5.0 && after.value("process_max_fds") >= 5.0);
        assert!(after.value("process_cpu_seconds_total") >= 0.0);
    }

    drop(watch);
    eventually("the watch is closed", || {
        scrape(&mut client).value("coordination_watches_ended_total{reason=\"closed\"}") == 1.0
    });
}

#[test]
fn the_metrics_grammar_check_is_strict() {
    const GOOD: &str = "# HELP a_total A.\n# TYPE a_total counter\na_total{x=\"1\\n\"} 1\n";
    assert!(parse(GOOD).is_ok());
    for (from, to) in [
        ("1\n", "1"),
        ("# HELP", "#HELP"),
        ("# HELP a_total A.\n", ""),
        ("counter", "summary"),
        (" 1\n", "  1\n"),
        (" 1\n", " 1 \n"),
        (" 1\n", " one\n"),
        (" 1\n", " -1\n"),
        ("{x", "{,x"),
        ("\"}", "\",}"),
        ("\\n", "\\x"),
        ("a_total{", "b_total{"),
        ("x=", "1x="),
        (" 1\n", " 1\na_total{x=\"1\\n\"} 2\n"),
        (" 1\n", " 1\n\n"),
    ] {
        let bad = GOOD.replacen(from, to, 1);
        let bad = if from == "1\n" { GOOD.trim_end().to_owned() } else { bad };
        assert!(parse(&bad).is_err(), "{bad}");
    }
}
