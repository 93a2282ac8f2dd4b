//! docs/monitoring.md names all metrics of the server, and no others. manifests/monitoring uses only these metrics.

#![allow(clippy::panic, clippy::unwrap_used, reason = "tests fail by panicking")]

mod support;

use coordination_apiserver::server::{Config, StorageConfig};
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use support::server::TestServer;
use support::sources::{root, rust_files};

/// Returns names and types of the metrics in the table of docs/monitoring.md.
fn documented() -> BTreeMap<String, String> {
    let page = read("docs/monitoring.md");
    let (_, table) = page.split_once("| Metric | Type |").expect("a table of metrics");
    let row = |line: &str| {
        let mut cells = line.split(" | ");
        let name = cells.next()?.strip_prefix("| `")?.strip_suffix('`')?;
        Some((name.to_owned(), cells.next()?.to_owned()))
    };
    table.lines().filter_map(row).collect()
}

fn read(path: &str) -> String {
    fs::read_to_string(root().join(path)).expect("a file of the repository")
}

/// Returns the metrics of the server that a text names, without the suffixes of histogram series.
fn metrics_in(text: &str) -> BTreeSet<String> {
    let words = text.split(|c: char| !(c.is_ascii_alphanumeric() || c == '_'));
    let is_metric = |word: &&str| {
        ["apiserver_", "coordination_", "kubernetes_", "process_"].iter().any(|prefix| word.starts_with(prefix))
    };
    let family = |word: &str| {
        let ends = ["_bucket", "_sum", "_count"];
        ends.iter().find_map(|end| word.strip_suffix(end)).unwrap_or(word).to_owned()
    };
    words.filter(is_metric).map(family).collect()
}

#[test]
fn every_metric_of_a_server_is_documented_with_its_type() {
    let folder = tempfile::tempdir().expect("a folder");
    let storage = StorageConfig::Disk(folder.path().join("data"));
    let server = TestServer::start_secure_with(Config { storage, ..Config::default() });
    let answer = server.client().call("GET", "/metrics", "").expect_status(200, "/metrics");
    let text = String::from_utf8(answer.body).expect("UTF-8");
    let documented = documented();
    let types = text.lines().filter_map(|line| line.strip_prefix("# TYPE ")?.split_once(' '));
    let mut count = 0;
    for (name, kind) in types {
        assert_eq!(documented.get(name).map(String::as_str), Some(kind), "{name}");
        count += 1;
    }
    assert!(count > 40, "{count} metrics are too few: {text}");
}

#[test]
fn leases_and_changes_of_holder_are_counted_by_namespace() {
    let server = TestServer::start();
    let mut client = server.client();
    let mut call = |method, target: &str, body: &str, status| {
        let answer = client.call(method, target, body).expect_status(status, target);
        String::from_utf8(answer.body).expect("UTF-8")
    };
    let leases = "/apis/coordination.k8s.io/v1/namespaces/default/leases";
    let lease = |holder: &str, duration: i32| {
        let spec = format!(
            r#"{{"holderIdentity":"{holder}","leaseDurationSeconds":{duration},"renewTime":"2020-01-01T00:00:00.000000Z"}}"#
        );
        format!(
            r#"{{"kind":"Lease","apiVersion":"coordination.k8s.io/v1","metadata":{{"name":"{holder}"}},"spec":{spec}}}"#
        )
    };
    call("POST", leases, &lease("a", 10), 201);
    call("POST", leases, &lease("b", i32::MAX), 201);
    call("POST", leases, &lease("c", 10), 201);
    let of = |name: &str| format!("{leases}/{name}");
    // Lease `a` gets three writes: the first keeps the holder, the second changes it, and the third releases the Lease.
    // Lease `c` is deleted. Together with the three creations, six writes change a holder.
    let merge = r#"{"spec":{"leaseTransitions":1}}"#;
    for patch in [merge, r#"{"spec":{"holderIdentity":"other"}}"#, r#"{"spec":{"holderIdentity":""}}"#] {
        call("PATCH", &of("a"), patch, 200);
    }
    call("DELETE", &of("c"), "", 200);
    let text = call("GET", "/metrics", "", 200);
    for (series, value) in [
        ("coordination_lease_holder_changes_total{namespace=\"default\"}", 6),
        ("coordination_namespace_leases{namespace=\"default\",state=\"held\"}", 1),
        ("coordination_namespace_leases{namespace=\"default\",state=\"expired\"}", 0),
        ("coordination_namespace_leases{namespace=\"default\",state=\"unheld\"}", 1),
    ] {
        assert!(text.contains(&format!("\n{series} {value}\n")), "{series} {value}\n{text}");
    }
}

#[test]
fn every_documented_metric_is_in_the_sources() {
    let files = rust_files(&root().join("src/metrics")).into_iter();
    let sources: String = files.map(|file| fs::read_to_string(file).expect("a source")).collect();
    for name in documented().keys() {
        assert!(sources.contains(&format!("\"{name}\"")), "{name}");
    }
}

#[test]
fn alerts_and_dashboard_use_documented_metrics() {
    let documented = documented();
    for file in ["prometheusrule.yaml", "alerts_test.yaml", "dashboard.json"] {
        let used = metrics_in(&read(&format!("manifests/monitoring/{file}")));
        assert!(used.len() > 10, "{file}: {used:?}");
        for name in used {
            assert!(documented.contains_key(&name), "{file}: {name}");
        }
    }
    let rules = read("manifests/monitoring/prometheusrule.yaml");
    let page = read("docs/monitoring.md");
    for alert in rules.lines().filter_map(|line| line.trim().strip_prefix("- alert: CoordinationApiserver")) {
        assert!(page.contains(&format!("| `{alert}` |")), "{alert}");
    }
}
