//! `shardSelector`: lists, watches and deletions of a collection, restricted to one shard of the Leases (KEP-5866).
//! Goal: clients that divide the ring of hashes among them see every Lease and every change exactly once. This must
//! hold together with any other query parameters. Without the feature gate, the server ignores `shardSelector`.

#![allow(clippy::panic, clippy::unwrap_used, reason = "a failing test speaks by panicking")]

mod support;

use coordination_apiserver::features::FeatureGates;
use coordination_apiserver::server::Config;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::sync::LazyLock;
use support::client::Client;
use support::eventually;
use support::exposition::Exposition;
use support::lease;
use support::response::Response;
use support::server::TestServer;
use support::watch::{Watch, kind};

const ALL: &str = "/apis/coordination.k8s.io/v1/leases";
const UID: &str = "object.metadata.uid";
const NAMESPACE: &str = "object.metadata.namespace";

static SERVER: LazyLock<TestServer> = LazyLock::new(start);

fn start() -> TestServer {
    TestServer::start_with(Config { features: FeatureGates { sharded_list_and_watch: true }, ..Config::default() })
}

/// Returns the bounds of shard `index` of `count` shards. All shards have about the same size.
fn bounds(index: u128, count: u128) -> (u128, u128) {
    let size = (1 << 64) / count;
    (size * index, if index + 1 == count { 1 << 64 } else { size * (index + 1) })
}

fn selector(field: &str, index: u128, count: u128) -> String {
    let (start, end) = bounds(index, count);
    format!("shardRange({field}, '0x{start:016x}', '0x{end:016x}')")
}

/// Returns the index of the shard, of `count` shards, for objects with `value` in the selector's field. The test
/// computes the hash (FNV-1a) itself.
fn shard_of(value: &str, count: u128) -> usize {
    let mut hash: u128 = 14_695_981_039_346_656_037;
    for byte in value.bytes() {
        hash = (hash ^ u128::from(byte)) * 1_099_511_628_211 % (1 << 64);
    }
    let is_in = |index: &u128| (bounds(*index, count).0..bounds(*index, count).1).contains(&hash);
    usize::try_from((0..count).find(is_in).expect("a ring has every hash")).unwrap()
}

/// Adds a parameter whose value needs encoding to a target.
fn with(target: &str, name: &str, value: &str) -> String {
    let separator = if target.contains('?') { '&' } else { '?' };
    let mut target = format!("{target}{separator}{name}=");
    for byte in value.bytes() {
        if byte.is_ascii_alphanumeric() {
            target.push(char::from(byte));
        } else {
            write!(target, "%{byte:02x}").unwrap();
        }
    }
    target
}

fn sharded(target: &str, selector: &str) -> String {
    with(target, "shardSelector", selector)
}

/// Creates Leases with these numbers in their names, and returns them.
fn create(client: &mut Client, namespace: &str, numbers: std::ops::Range<usize>) -> Vec<Value> {
    let create = |number| {
        let created = client.call("POST", &lease::collection(namespace), &lease::new(&format!("n{number:03}")));
        created.expect_status(201, namespace).json()
    };
    numbers.map(create).collect()
}

fn get(target: &str) -> Value {
    SERVER.client().call("GET", target, "").expect_status(200, target).json()
}

fn uid(object: &Value) -> &str {
    object["metadata"]["uid"].as_str().expect("a UID")
}

fn items(list: &Value) -> &[Value] {
    list["items"].as_array().expect("items")
}

#[test]
fn lists_of_all_shards_have_every_lease_once() {
    let created = create(&mut SERVER.client(), "listed", 0..100);
    for count in [1, 2, 3, 64, 100] {
        let mut found = BTreeMap::new();
        for index in 0..count {
            let selector = selector(UID, index, count);
            let list = get(&sharded(&lease::collection("listed"), &selector));
            assert_eq!(list["metadata"]["shardInfo"], json!({"selector": selector}));
            for item in items(&list) {
                assert_eq!(shard_of(uid(item), count) as u128, index, "{item}");
                assert_eq!(found.insert(uid(item).to_owned(), item.clone()), None, "{index} of {count}");
            }
        }
        assert_eq!(found.len(), created.len());
        for lease in &created {
            assert_eq!(lease::item(lease), found[uid(lease)]);
        }
    }
    assert_eq!(get(&lease::collection("listed"))["metadata"]["shardInfo"], Value::Null);
    assert_eq!(get(&sharded(&lease::collection("listed"), ""))["metadata"]["shardInfo"], Value::Null);
}

#[test]
fn a_namespace_is_in_one_shard_as_a_whole() {
    let server = start();
    let namespaces: Vec<_> = (0..30).map(|number| format!("ns-{number}")).collect();
    for namespace in &namespaces {
        create(&mut server.client(), namespace, 0..2);
    }
    let mut found = 0;
    for index in 0..3 {
        let target = sharded(ALL, &selector(NAMESPACE, index, 3));
        let list = server.client().call("GET", &target, "").expect_status(200, &target).json();
        for item in items(&list) {
            assert_eq!(shard_of(item["metadata"]["namespace"].as_str().unwrap(), 3) as u128, index, "{item}");
        }
        found += items(&list).len();
    }
    assert_eq!(found, 2 * namespaces.len());
}

/// Goal: each change is in exactly one of the watches whose shards divide the ring of hashes. A watch that resumes
/// shows the rest. Method: three sets of watches divide the ring, two by UID and one by namespace. A watch without a
/// shard selector shows the expected events.
#[test]
fn watches_of_all_shards_see_every_change_once() {
    let server = start();
    let mut client = server.client();
    create(&mut client, "watched-a", 0..10);
    let target = lease::collection("watched-a");
    let first = lease::version(&client.call("GET", &target, "").json());
    let open = |from: u64, selector: &str| {
        let target = format!("{ALL}?watch=true&resourceVersion={from}");
        Watch::open(&server.endpoint(), &sharded(&target, selector))
    };
    let rings: [(&str, u128); 3] = [(UID, 64), (UID, 3), (NAMESPACE, 2)];
    let mut watches: Vec<Vec<Watch>> = Vec::new();
    for (field, count) in rings {
        watches.push((0..count).map(|index| open(first, &selector(field, index, count))).collect());
    }
    let mut whole = Watch::open(&server.endpoint(), &format!("{ALL}?watch=true&resourceVersion={first}"));

    let mut changes = 0;
    for namespace in ["watched-a", "watched-b"] {
        let created = create(&mut client, namespace, 10..40);
        for lease in &created {
            let path = lease::path(namespace, lease::name(lease));
            client.call("PATCH", &path, r#"{"spec":{"leaseTransitions":1}}"#).expect_status(200, &path);
            changes += 2;
        }
        for lease in &created[..10] {
            let path = lease::path(namespace, lease::name(lease));
            client.call("DELETE", &path, "").expect_status(200, &path);
            changes += 1;
        }
    }
    let events: Vec<_> = (0..changes).map(|_| whole.next()).collect();
    let middle = lease::version(&events[changes / 2]["object"]);
    for ((field, count), watches) in rings.into_iter().zip(&mut watches) {
        for (index, watch) in watches.iter_mut().enumerate() {
            let is_in = |event: &&Value| {
                let meta = &event["object"]["metadata"];
                let value = if field == UID { &meta["uid"] } else { &meta["namespace"] };
                shard_of(value.as_str().unwrap(), count) == index
            };
            let expected: Vec<_> = events.iter().filter(is_in).collect();
            for event in &expected {
                assert_eq!(&watch.next(), *event, "{field}, {index} of {count}");
            }
            let mut resumed = open(middle, &selector(field, index as u128, count));
            for event in expected.iter().filter(|event| lease::version(&event["object"]) > middle) {
                assert_eq!(&resumed.next(), *event, "{field}, {index} of {count}, resumed");
            }
        }
    }
    // No watch has a further event. To show this, the test creates one more Lease. In each set of watches, its creation
    // must be the next event of the watch that selects it.
    let last = create(&mut client, "watched-a", 90..91).remove(0);
    for ((field, count), watches) in rings.into_iter().zip(&mut watches) {
        let value = if field == UID { uid(&last) } else { "watched-a" };
        let event = watches[shard_of(value, count)].next();
        assert_eq!((kind(&event), &event["object"]), ("ADDED", &last));
    }
}

#[test]
fn initial_events_of_a_shard_end_with_a_bookmark() {
    let mut client = SERVER.client();
    let created = create(&mut client, "streamed", 0..20);
    let collection = lease::collection("streamed");
    for index in 0..2 {
        let options = "watch=true&allowWatchBookmarks=true&sendInitialEvents=true\
                       &resourceVersionMatch=NotOlderThan&timeoutSeconds=1";
        let target = sharded(&format!("{collection}?{options}"), &selector(UID, index, 2));
        let mut watch = Watch::open(&SERVER.endpoint(), &target);
        for lease in created.iter().filter(|lease| shard_of(uid(lease), 2) as u128 == index) {
            let event = watch.next();
            assert_eq!((kind(&event), &event["object"]), ("ADDED", lease));
        }
        let bookmark = watch.next();
        assert_eq!(kind(&bookmark), "BOOKMARK");
        assert_eq!(bookmark["object"]["metadata"]["annotations"]["k8s.io/initial-events-end"], "true");
        // The watch ends after a second, and a bookmark comes before its end. Bookmarks concern no object, so the watch
        // of each shard gets one.
        assert_eq!(kind(&watch.next()), "BOOKMARK");
        assert_eq!(watch.try_next().expect("an end"), None);
    }
}

#[test]
fn a_newly_selected_lease_is_added_only_in_its_shard() {
    let mut client = SERVER.client();
    let created = create(&mut client, "labelled", 0..1).remove(0);
    let collection = lease::collection("labelled");
    let version = lease::version(&created);
    let watch = |index| {
        let target = format!("{collection}?watch=true&resourceVersion={version}&labelSelector=l");
        Watch::open(&SERVER.endpoint(), &sharded(&target, &selector(UID, index, 2)))
    };
    let mut watches = [watch(0), watch(1)];
    let own = shard_of(uid(&created), 2);
    let mut others = (1..100).map(|number| create(&mut client, "labelled", number..number + 1).remove(0));
    let other = others.find(|lease| shard_of(uid(lease), 2) != own).expect("a Lease of the other shard");
    for (lease, label) in [(&created, json!("1")), (&created, Value::Null), (&other, json!("1"))] {
        let path = lease::path("labelled", lease::name(lease));
        let patch = json!({"metadata": {"labels": {"l": label}}}).to_string();
        client.call("PATCH", &path, &patch).expect_status(200, &patch);
    }
    assert_eq!([watches[own].next(), watches[own].next()].each_ref().map(kind), ["ADDED", "DELETED"]);
    // No other event has come to the watch of the other shard: its first event is the last change.
    let event = watches[1 - own].next();
    assert_eq!((kind(&event), lease::name(&event["object"])), ("ADDED", lease::name(&other)));
}

/// Returns the number of open watches with a shard selector, from the metrics.
fn watches_of_shards(server: &TestServer) -> f64 {
    let metrics = Exposition::of(server.client().call("GET", "/metrics", ""));
    metrics.value(r#"apiserver_watch_shards_total{group="coordination.k8s.io",resource="leases"}"#)
}

#[test]
fn a_metric_counts_the_open_watches_of_shards() {
    let server = start();
    let count = || watches_of_shards(&server);
    let watching = format!("{ALL}?watch=true");
    let open = |target: &str| Watch::open(&server.endpoint(), target);
    let _whole = open(&watching);
    server.client().call("GET", &sharded(ALL, &selector(UID, 0, 2)), "").expect_status(200, "a list of a shard");
    server.client().call("GET", &sharded(&watching, "f()"), "").expect_status(500, "a bad selector");
    assert_eq!(count(), 0.0);
    let first = open(&sharded(&watching, &selector(UID, 0, 2)));
    assert_eq!(count(), 1.0);
    let second = open(&sharded(&watching, &selector(NAMESPACE, 1, 2)));
    let third = open(&sharded(&watching, &selector(UID, 0, 2)));
    assert_eq!(count(), 3.0);
    drop(second);
    eventually("a watch has ended", || count() == 2.0);
    drop((first, third));
    eventually("all watches of shards have ended", || count() == 0.0);
}

#[test]
fn pages_name_the_shard_and_omit_the_remaining_item_count() {
    let created = create(&mut SERVER.client(), "paged", 0..30);
    let selector = selector(UID, 1, 2);
    let first = sharded(&format!("{}?limit=4", lease::collection("paged")), &selector);
    let (mut target, mut found) = (first.clone(), Vec::new());
    loop {
        let page = get(&target);
        let meta = &page["metadata"];
        assert_eq!((&meta["shardInfo"]["selector"], &meta["remainingItemCount"]), (&json!(selector), &Value::Null));
        found.extend(items(&page).iter().cloned());
        match meta["continue"].as_str() {
            Some(token) => target = with(&first, "continue", token),
            None => break,
        }
    }
    let expected: Vec<_> = created.iter().filter(|lease| shard_of(uid(lease), 2) == 1).map(lease::item).collect();
    assert_eq!(found, expected);
}

#[test]
fn a_collection_deletion_deletes_only_the_selected_shard() {
    let created = create(&mut SERVER.client(), "deleted", 0..20);
    let selector = selector(UID, 0, 2);
    let target = sharded(&lease::collection("deleted"), &selector);
    let deleted = SERVER.client().call("DELETE", &target, "").expect_status(200, &target).json();
    assert_eq!(deleted["metadata"]["shardInfo"]["selector"], selector);
    let in_shard = |index| created.iter().filter(move |lease| shard_of(uid(lease), 2) == index);
    assert_eq!(items(&deleted).len(), in_shard(0).count());
    let left = get(&lease::collection("deleted"));
    assert_eq!(items(&left), in_shard(1).map(lease::item).collect::<Vec<_>>());
}

#[test]
fn only_lists_of_full_leases_include_shard_info() {
    create(&mut SERVER.client(), "formed", 0..3);
    let selector = selector(UID, 0, 1);
    let info = json!({"selector": selector});
    let target = sharded(&lease::collection("formed"), &selector);
    let body = |target: &str, accept: &str| {
        let lines = format!("Accept: {accept}\r\n");
        SERVER.client().call_with("GET", target, &lines, "").expect_status(200, accept).body
    };
    let parsed = |target: &str, accept: &str| serde_json::from_slice::<Value>(&body(target, accept)).expect("JSON");
    let list = parsed(&target, "application/json");
    assert_eq!(list["metadata"], json!({"resourceVersion": list["metadata"]["resourceVersion"], "shardInfo": info}));
    let beta = target.replace("/v1/", "/v1beta1/");
    assert_eq!(parsed(&beta, "application/json")["metadata"]["shardInfo"], info);
    for (form, rows) in [("Table", "rows"), ("PartialObjectMetadataList", "items")] {
        let list = parsed(&target, &format!("application/json;as={form};v=v1;g=meta.k8s.io"));
        assert_eq!((&list["metadata"]["shardInfo"], list[rows].as_array().unwrap().len()), (&Value::Null, 3));
    }
    let yaml = String::from_utf8(body(&target, "application/yaml")).expect("text");
    assert!(yaml.contains(&format!("  shardInfo:\n    selector: {selector}\n")), "{yaml}");
    // ListMeta: shardInfo is field 5, and its selector is field 1.
    let length = u8::try_from(selector.len()).expect("one byte");
    let field = [&[5 << 3 | 2, length + 2, 1 << 3 | 2, length], selector.as_bytes()].concat();
    let has_field = |body: Vec<u8>| memchr::memmem::find(&body, &field).is_some();
    assert!(has_field(body(&target, "application/vnd.kubernetes.protobuf")));
    let partial = "application/vnd.kubernetes.protobuf;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io";
    assert!(!has_field(body(&target, partial)));
}

#[test]
fn a_bad_selector_is_500_after_the_other_options_and_before_the_version() {
    let collection = lease::collection("refused");
    let refusal = |method: &str, target: &str| {
        let response: Response = SERVER.client().call(method, target, "");
        (response.head.status, response.json())
    };
    let message = "invalid shard selector: unsupported function \"f\"; only shardRange() and || are allowed";
    let expected = json!({
        "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure", "message": message, "code": 500,
    });
    for (method, query) in [
        ("GET", ""),
        ("GET", "?watch=true"),
        ("GET", "?resourceVersion=x"),
        ("GET", "?watch=true&resourceVersion=x"),
        ("GET", "?continue=x"),
        ("DELETE", ""),
    ] {
        let target = sharded(&format!("{collection}{query}"), "f()");
        assert_eq!(refusal(method, &target), (500, expected.clone()), "{method} {target}");
    }
    for (query, code) in [("?labelSelector=%3d", 400), ("?limit=x", 400), ("?resourceVersionMatch=Exact", 422)] {
        assert_eq!(refusal("GET", &sharded(&format!("{collection}{query}"), "f()")).0, code, "{query}");
    }
    let by_path = "/apis/coordination.k8s.io/v1/watch/namespaces/refused/leases";
    assert_eq!(refusal("GET", &sharded(by_path, "f()")).0, 500);
    let other_name = format!("{by_path}/a?fieldSelector=metadata.name%3db");
    assert_eq!(refusal("GET", &sharded(&other_name, "f()")).0, 400);
    assert_eq!(
        refusal("GET", &sharded(&collection, "  ")).1["message"].as_str().unwrap().split(';').next(),
        Some("invalid shard selector: empty shard selector is not allowed")
    );
}

#[test]
fn without_the_feature_gate_the_shard_selector_is_ignored() {
    let server = TestServer::start();
    let mut client = server.client();
    let created = create(&mut client, "off", 0..20);
    let collection = lease::collection("off");
    for selector in ["f()", "  ", &selector(UID, 0, 2)] {
        let list = client.call("GET", &sharded(&collection, selector), "").expect_status(200, selector).json();
        assert_eq!((items(&list).len(), &list["metadata"]["shardInfo"]), (created.len(), &Value::Null));
        let target = sharded(&format!("{collection}?watch=true&timeoutSeconds=1"), selector);
        let mut watch = Watch::open(&server.endpoint(), &target);
        created.iter().for_each(|lease| assert_eq!(&watch.next()["object"], lease));
        assert_eq!(watches_of_shards(&server), 0.0);
    }
    let page = client.call("GET", &sharded(&format!("{collection}?limit=5"), "f()"), "").json();
    assert_eq!(page["metadata"]["remainingItemCount"], 15);
    let deleted = client.call("DELETE", &sharded(&collection, "f()"), "").expect_status(200, "a deletion").json();
    assert_eq!(items(&deleted).len(), created.len());
}
