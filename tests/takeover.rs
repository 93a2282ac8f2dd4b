//! The command `takeover --without-etcd`, with one fault in a run, and then a run without faults. Built-in storage is
//! kube-apiserver's own storage of Leases. The APIService is local if it names no Service, so that kube-apiserver
//! serves the Leases in built-in storage.
//!
//! Goal: whichever request fails, and whenever the command is killed, the next run completes the takeover. No write of
//! a client is lost. At no time can two clients acquire one lock, one in built-in storage and the other at the replica.
//! Method: the replica is a real server, and copies the Leases of a simulated kube-apiserver. This kube-apiserver
//! notices late that the APIService has changed. The round `without-etcd` of `tests/e2e` runs the command with a real
//! kube-apiserver.

#![allow(clippy::panic, clippy::unwrap_used, reason = "tests fail by panicking")]

mod support;

use coordination_apiserver::cli::{SwitchArgs, TakeoverArgs};
use coordination_apiserver::switch::takeover;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::thread;
use support::eventually;
use support::handover::{EARLY, HANDOVER, LATE, NAMESPACE};
use support::lease::{collection, path};
use support::server::TestServer;
use support::switch::{
    ALL_LEASES, API_SERVICE, BINDING, Cluster, Fault, LEASES, NODES, POLICY, Plan, Request, acquire, count_faults,
    holders, is_late, lock, run, run_without_fault, serve, write_api_service, write_kubeconfig,
};

/// Path of the admission policy for renewals, which the undo of a takeover creates.
const RENEWALS: &str =
    "/apis/admissionregistration.k8s.io/v1/mutatingadmissionpolicies/coordination-apiserver-renewals";

/// The run with the fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Faulty {
    /// A takeover.
    TakeOver,
    /// A dry run.
    DryRun,
    /// A takeover after another takeover, which was killed when it had replaced the APIService. The second takeover
    /// first undoes the killed one. The fault is in the undo.
    Undo,
}

/// Starts a cluster before its takeover. Each built-in Lease has the holder `former`. Returns the URL of the simulated
/// servers too.
fn start(plan: Plan) -> (TestServer, Arc<Mutex<Cluster>>, String) {
    let mut server = TestServer::start();
    let mut cluster = Cluster::new(server.endpoint(), plan, write_as_client, can_acquire_at_replica);
    cluster.make_local();
    cluster.switches_late = true;
    for (namespace, name) in [(NAMESPACE, "changed"), (NAMESPACE, "deleted"), (NAMESPACE, "recreated"), (NODES, "node")]
    {
        let (status, answer) = cluster.ask_storage("POST", &collection(namespace), &lease(namespace, name));
        assert_eq!(status, 200, "{answer}");
    }
    let cluster = Arc::new(Mutex::new(cluster));
    let url = serve(&cluster);
    let (kubeconfig, _folder) = write_kubeconfig(&format!("{url}/copy/apiserver"));
    server.follow_built_in(&kubeconfig);
    (server, cluster, url)
}

fn lease(namespace: &str, name: &str) -> String {
    let spec = json!({"holderIdentity": "former", "leaseDurationSeconds": 15, "renewTime": EARLY});
    json!({"metadata": {"namespace": namespace, "name": name}, "spec": spec}).to_string()
}

/// Writes Leases as clients of kube-apiserver: just before the command installs the admission policy, and just before
/// it replaces the APIService. An earlier run may have left a policy that forbids the first writes.
fn write_as_client(cluster: &mut Cluster, request: &Request) {
    if request.body.contains("coordination-apiserver/permitted") && !request.target.contains("dryRun") {
        let [created, recreated] = ["created", "recreated"].map(|name| lease(NAMESPACE, name));
        for (method, target, body) in [
            ("POST", collection(NAMESPACE), created.as_str()),
            ("DELETE", path(NAMESPACE, "deleted"), ""),
            ("DELETE", path(NAMESPACE, "recreated"), ""),
            ("POST", collection(NAMESPACE), recreated.as_str()),
        ] {
            cluster.ask_apiserver(method, &target, body);
        }
    }
    if is_registration(request) {
        let (status, _) = cluster.ask_apiserver("POST", &collection(NAMESPACE), &lease(NAMESPACE, "late"));
        assert_eq!(status, 403, "the policy permits only renewals");
        let node = path(NODES, "node");
        let (_, mut renewed) = cluster.ask_apiserver("GET", &node, "");
        renewed["spec"]["renewTime"] = LATE.into();
        let (status, answer) = cluster.ask_apiserver("PUT", &node, &renewed.to_string());
        assert_eq!(status, 200, "the policy permits renewals: {answer}");
        eventually("a copy of the renewal", || cluster.ask_replica("GET", &node, "").1["spec"]["renewTime"] == LATE);
    }
}

/// Whether a request makes the APIService name the Service of the replica.
fn is_registration(request: &Request) -> bool {
    let service: Value = serde_json::from_str(&request.body).unwrap_or_default();
    let is_replacement = request.method == "PUT" && request.target.starts_with(API_SERVICE);
    is_replacement && !request.target.contains("dryRun") && !service["spec"]["service"].is_null()
}

/// Whether a client of the replica can acquire a lock there.
fn can_acquire_at_replica(cluster: &Cluster) -> bool {
    acquire("rival", |method, target, body| cluster.ask_replica(method, target, body)) == 200
}

fn take_over(cluster: &Mutex<Cluster>, url: &str, name: &str, dry_run: bool) -> Result<(), String> {
    let (apiservice, _folder) = write_api_service();
    run(cluster, url, name, move |cluster, say| {
        let cluster = SwitchArgs { dry_run, ..cluster };
        takeover(&TakeoverArgs { cluster, apiservice, shield: false }, say)
    })
}

/// Runs the command with a fault of one request. Then a client tries to acquire a Lease. Then the command runs again.
/// Returns whether the fault occurred: the first run may have fewer than `number` requests that can have it.
fn take_over_twice(faulty: Faulty, fault: Fault, number: usize) -> bool {
    let plan = Plan { run: "first", fault, number, can_fail: |_, _| true };
    let (_server, cluster, url) = match faulty {
        Faulty::TakeOver | Faulty::DryRun => start(plan),
        Faulty::Undo => {
            let can_fail = |_: &Cluster, request: &Request| is_registration(request);
            let started = start(Plan { run: "killed", fault: Fault::Killed, number: 1, can_fail });
            let (_, cluster, url) = &started;
            eventually("a killed takeover", || take_over(cluster, url, "killed", false) == Err("killed".to_owned()));
            // The undo creates the policy for renewals before its other writes to kube-apiserver. The takeover deletes
            // this policy after the undo.
            lock(cluster).replan(Plan { can_fail: |cluster, _| cluster.objects.contains_key(RENEWALS), ..plan });
            started
        }
    };
    let api_service = lock(&cluster).objects[API_SERVICE].clone();
    let first = take_over(&cluster, &url, "first", faulty == Faulty::DryRun);
    if is_late(&first) {
        return take_over_twice(faulty, fault, number);
    }
    let status = acquire("third", |method, target, body| lock(&cluster).ask_apiserver(method, target, body));
    if faulty == Faulty::DryRun {
        let cluster = lock(&cluster);
        assert_eq!(cluster.objects[API_SERVICE], api_service, "{fault:?} {number}: {first:?}");
        assert!([POLICY, BINDING].iter().all(|path| !cluster.objects.contains_key(*path)), "{fault:?} {number}");
        assert_ne!(cluster.step_of_handover(), "serving", "{fault:?} {number}: {first:?}");
        assert_eq!(status, 200, "clients can write after a dry run: {fault:?} {number}: {first:?}");
    }
    let second = run_without_fault(|| take_over(&cluster, &url, "second", false));

    let cluster = lock(&cluster);
    let step = cluster.step.as_deref();
    let what = format!("{faulty:?} {fault:?} {number} at {step:?}: {first:?}, a client gets {status}, {second:?}");
    assert_eq!(second, Ok(()), "{what}");
    assert!(!cluster.is_local(), "{what}");
    assert_eq!(cluster.step_of_handover(), "serving", "{what}");
    assert!(!cluster.was_open, "two clients could acquire one lock: {what}");
    let is_left = |path: &&String| *path != API_SERVICE && !path.starts_with(LEASES);
    assert_eq!(cluster.objects.keys().filter(is_left).collect::<Vec<_>>(), [""; 0], "{what}");

    let holder = if status == 200 { "third" } else { "former" };
    let expected =
        BTreeMap::from([("changed", holder), ("created", "former"), ("node", "former"), ("recreated", "former")]);
    let (_, list) = cluster.ask_replica("GET", ALL_LEASES, "");
    let mut ours = holders(list["items"].as_array().into_iter().flatten());
    ours.remove(HANDOVER);
    assert_eq!(ours, expected, "{what}");
    for (path, lease) in cluster.leases() {
        let (_, copy) = cluster.ask_replica("GET", path, "");
        assert_eq!(copy["metadata"]["uid"], lease["metadata"]["uid"], "{path}: {what}");
    }
    let (_, node) = cluster.ask_replica("GET", &path(NODES, "node"), "");
    assert_eq!(node["spec"]["renewTime"], LATE, "the last renewal in built-in storage: {what}");
    if faulty == Faulty::TakeOver && matches!(fault, Fault::Refused | Fault::Unanswered) {
        assert_eq!(status, 200, "clients can write after the first run: {what}");
    }
    step.is_some()
}

/// Makes takeovers with each of these faults: at the first request that can have it, at the second one, and so on. The
/// number beside a fault is the minimum number of requests that can have it. If there are fewer, the simulation has
/// ended the takeover too early.
fn check(faulty: Faulty, faults: &[(Fault, usize)]) {
    thread::scope(|scope| {
        for &(fault, faults_min) in faults {
            scope.spawn(move || {
                let faults = count_faults(|number| take_over_twice(faulty, fault, number));
                assert!(faults >= faults_min, "{fault:?}: {faults}");
            });
        }
    });
}

#[test]
fn a_takeover_with_a_fault_is_completed_by_the_next() {
    let faults = [(Fault::Refused, 45), (Fault::Unanswered, 12), (Fault::Killed, 12), (Fault::MadeLocal, 15)];
    check(Faulty::TakeOver, &faults);
}

#[test]
fn an_undo_with_a_fault_is_completed_by_the_next_takeover() {
    check(Faulty::Undo, &[(Fault::Unanswered, 8), (Fault::Killed, 8)]);
}

#[test]
fn a_dry_run_with_a_fault_changes_nothing() {
    check(Faulty::DryRun, &[(Fault::Refused, 20), (Fault::Unanswered, 5), (Fault::Killed, 5)]);
}
