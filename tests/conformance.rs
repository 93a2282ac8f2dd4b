//! Conformance with a real kube-apiserver: replays the recorded responses in `tests/conformance/`. Each trace is
//! replayed over the cleartext port and over TLS with a client certificate, in HTTP/1.1 and in HTTP/2.
//!
//! The traces were recorded from Kubernetes 1.37.2 with default feature gates. Those in `1.34` are from 1.34.4 with
//! `CoordinatedLeaderElection` and `v1beta1` on, and show responses that 1.37.2 does not give.
//!
//! `support/trace/` describes the format. Each replay has its own server. On a shared server, other replays would raise
//! the version, and some traces show that the version stays the same without writes.

#![allow(clippy::panic, clippy::unwrap_used, reason = "tests fail by panicking")]

mod support;
#[path = "support/trace/mod.rs"]
mod trace;

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, SystemTime};
use support::server::TestServer;
use support::stream::Endpoint;
use trace::format::Trace;
use trace::replay::{Protocol, Replayer};

/// Steps of traces to which this server responds differently, with the reason. `docs/compatibility.md` lists them. If
/// this server responds to such a step as recorded, the test of the trace fails until somebody removes the step here.
const OTHERWISE: &[(&str, &[usize], &str)] = &[
    ("bad-spec", &[22, 24, 25, 26, 28, 29, 30, 31, 32], "strategy and preferredHolder are kept, as with the gate on"),
    ("discovery", &[1], "v1beta1 is served"),
];

/// Declares the traces, and one test for each.
macro_rules! traces {
    ($($test:ident: $name:literal,)*) => {
        const TRACES: &[&str] = &[$($name),*];
        $(
            #[test]
            fn $test() {
                check($name);
            }
        )*
    };
}

traces! {
    bad_bodies: "bad-bodies",
    bad_metadata: "bad-metadata",
    bad_names: "bad-names",
    bad_spec: "bad-spec",
    bad_spec_of_1_34: "1.34/bad-spec",
    cas: "cas",
    create_rules: "create-rules",
    crud: "crud",
    delete_collection: "delete-collection",
    delete_options: "delete-options",
    discovery: "discovery",
    discovery_of_1_34: "1.34/discovery",
    dry_run: "dry-run",
    field_selectors: "field-selectors",
    field_validation: "field-validation",
    finalizers: "finalizers",
    generate_name: "generate-name",
    heartbeat: "heartbeat",
    json_patch: "json-patch",
    label_selectors: "label-selectors",
    list_versions: "list-versions",
    managed_fields: "managed-fields",
    media_types: "media-types",
    merge_patch: "merge-patch",
    methods: "methods",
    no_op_update: "no-op-update",
    owned_metadata: "owned-metadata",
    pages: "pages",
    pages_snapshot: "pages-snapshot",
    partial_metadata: "partial-metadata",
    server_side_apply: "server-side-apply",
    strategic_merge_patch: "strategic-merge-patch",
    tables: "tables",
    times: "times",
    watch: "watch",
    watch_as: "watch-as",
    watch_bad_options: "watch-bad-options",
    watch_history: "watch-history",
    watch_initial: "watch-initial",
    watch_list: "watch-list",
    watch_name: "watch-name",
    watch_selector: "watch-selector",
}

/// Replays a trace in all four ways at the same time, since the trace of a watch mostly waits.
fn check(name: &str) {
    const WAYS: [(&str, bool, Protocol); 4] = [
        ("HTTP/1.1 in the clear", false, Protocol::Http1),
        ("HTTP/1.1 over TLS", true, Protocol::Http1),
        ("HTTP/2 in the clear", false, Protocol::Http2),
        ("HTTP/2 over TLS", true, Protocol::Http2),
    ];
    let outcomes = thread::scope(|scope| {
        let replays = WAYS.map(|(way, is_secure, protocol)| {
            let replay = scope.spawn(move || {
                let server = if is_secure { TestServer::start_secure() } else { TestServer::start() };
                let endpoint = if is_secure { server.secure_endpoint() } else { server.endpoint() };
                await_fresh_second();
                replay(name, endpoint, protocol)
            });
            (way, replay)
        });
        replays.map(|(way, replay)| (way, replay.join().unwrap_or_else(|_| Err("the replayer panicked".to_owned()))))
    });
    for (way, outcome) in outcomes {
        if let Err(why) = outcome {
            panic!("{way}: {why}");
        }
    }
}

/// Waits for the start of a second, unless a second has just started. The server sorts `managedFields` by the times of
/// its entries, in whole seconds. All entries of a trace were recorded within one second. A replay across two seconds
/// might have another order.
fn await_fresh_second() {
    let past = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default().subsec_millis();
    if past > 300 {
        thread::sleep(Duration::from_millis(u64::from(1_001 - past)));
    }
}

fn replay(name: &str, endpoint: Endpoint, protocol: Protocol) -> Result<(), String> {
    let path = folder().join(format!("{name}.json"));
    let text = fs::read(&path).map_err(|error| format!("{name}.json: {error}"))?;
    let trace: Trace = serde_json::from_slice(&text).map_err(|error| format!("{name}.json: {error}"))?;
    let otherwise = OTHERWISE.iter().find(|(trace, ..)| *trace == name).map_or(&[][..], |(_, steps, _)| *steps);
    Replayer::new(endpoint, protocol).run(&trace, otherwise)
}

fn folder() -> PathBuf {
    [env!("CARGO_MANIFEST_DIR"), "tests", "conformance"].iter().collect()
}

/// Returns the traces in a folder, as [`TRACES`] names them.
fn traces_in(folder: &Path, prefix: &str) -> Vec<String> {
    let files = fs::read_dir(folder).expect("a folder").map(|entry| entry.expect("an entry").path());
    let traces = files.filter(|path| path.extension().is_some_and(|end| end == "json"));
    traces.filter_map(|path| Some(format!("{prefix}{}", path.file_stem()?.to_string_lossy()))).collect()
}

#[test]
fn every_trace_in_the_folder_is_named_once() {
    let older = traces_in(&folder().join("1.34"), "1.34/");
    let in_folder: BTreeSet<String> = traces_in(&folder(), "").into_iter().chain(older).collect();
    let named: BTreeSet<String> = TRACES.iter().map(|name| (*name).to_owned()).collect();
    assert_eq!(named, in_folder, "the traces! list and the files");
    assert_eq!(named.len(), TRACES.len(), "a trace is named twice");
    for (name, ..) in OTHERWISE {
        assert!(TRACES.contains(name), "OTHERWISE names {name}, which is not a trace");
    }
}

#[test]
fn every_trace_parses_and_has_the_name_of_its_file() {
    for name in TRACES {
        let text = fs::read(folder().join(format!("{name}.json"))).expect("a file");
        let trace: Trace = serde_json::from_slice(&text).unwrap_or_else(|error| panic!("{name}.json: {error}"));
        assert_eq!(Some(trace.name.as_str()), name.rsplit('/').next());
    }
}
