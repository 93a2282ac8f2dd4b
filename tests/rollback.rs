//! The command `rollback --without-etcd`, with one fault in its first run, and then a second run without faults.
//! Built-in storage is kube-apiserver's own storage of Leases. The APIService is local if it names no Service, so that
//! kube-apiserver serves the Leases in built-in storage.
//!
//! Goal: whichever request fails, and whenever the command is killed, the second run completes the rollback. No write
//! of a client is lost. Method: the replica is a real server. kube-apiserver is simulated, since a real one does not
//! fail at a chosen request. The round `without-etcd` of `tests/e2e` runs the command with a real kube-apiserver.

#![allow(clippy::panic, clippy::unwrap_used, reason = "tests fail by panicking")]

mod support;

use coordination_apiserver::cli::{RollbackArgs, SwitchArgs};
use coordination_apiserver::switch::rollback;
use serde_json::json;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use support::handover::{EARLY, HANDOVER, LATE, NAMESPACE};
use support::lease::{collection, path};
use support::server::TestServer;
use support::switch::{
    API_SERVICE, BINDING, Cluster, Fault, NODES, POLICY, Plan, Request, acquire, count_faults, is_late, lock, run,
    run_without_fault, serve, write_api_service,
};

/// Minimum number of requests of a rollback that can have a fault. If there are fewer, the simulation has ended the
/// rollback too early.
const FAULTS_MIN: usize = 18;

/// Beginning of the error of a rollback that can no longer write the Leases.
const TOO_LATE: &str = "it is too late for a rollback";

/// Starts a cluster as it is after a takeover. The number of the request with the fault is `number`. Each Lease of the
/// replica has the holder `ours`. Built-in storage has the Leases from before the takeover, with the holder `former`.
fn start(fault: Fault, number: usize) -> (TestServer, Arc<Mutex<Cluster>>) {
    let server = TestServer::start();
    let plan = Plan { run: "first", fault, number, can_fail: |_, _| true };
    let mut cluster = Cluster::new(server.endpoint(), plan, |_, _| {}, is_outdated);
    for name in ["changed", "created", "recreated"] {
        add_lease(&mut cluster, NAMESPACE, name);
    }
    add_lease(&mut cluster, NODES, "node");
    cluster.objects.remove(&path(NAMESPACE, "created"));
    let recreated = cluster.objects.get_mut(&path(NAMESPACE, "recreated")).expect("a Lease");
    recreated["metadata"]["uid"] = "old".into();
    let mut deleted = recreated.clone();
    deleted["metadata"]["name"] = "deleted".into();
    cluster.objects.insert(path(NAMESPACE, "deleted"), deleted);
    let annotations = json!({
        "coordination-apiserver/phase": "serve", "coordination-apiserver/step": "serving",
        "coordination-apiserver/asked": "takeover",
    });
    let metadata = json!({"name": HANDOVER, "annotations": annotations});
    let handover = json!({"metadata": metadata, "spec": {"renewTime": LATE}}).to_string();
    let (status, answer) = cluster.ask_replica("POST", &collection("kube-system"), &handover);
    assert_eq!(status, 201, "{answer}");
    (server, Arc::new(Mutex::new(cluster)))
}

/// Creates a Lease at the replica, and adds an earlier state of the Lease to built-in storage.
fn add_lease(cluster: &mut Cluster, namespace: &str, name: &str) {
    let spec = json!({"holderIdentity": "ours", "leaseDurationSeconds": 15, "renewTime": LATE});
    let lease = json!({"metadata": {"name": name}, "spec": spec});
    let (status, mut lease) = cluster.ask_replica("POST", &collection(namespace), &lease.to_string());
    assert_eq!(status, 201, "{lease}");
    lease["metadata"]["resourceVersion"] = "1".into();
    lease["spec"]["renewTime"] = EARLY.into();
    // Nobody else acquires the Lease of a node, so its holder stays.
    if namespace != NODES {
        lease["spec"]["holderIdentity"] = "former".into();
    }
    cluster.objects.insert(path(namespace, name), lease);
}

/// Whether built-in storage lacks a Lease of the replica, or has a former holder.
fn is_outdated(cluster: &Cluster) -> bool {
    let holders = cluster.holders();
    !holders.contains_key("created") || holders.values().any(|holder| *holder == "former")
}

fn roll_back(cluster: &Mutex<Cluster>, url: &str, name: &str) -> Result<(), String> {
    run(cluster, url, name, |cluster, say| rollback(&RollbackArgs { cluster, apiservice: None }, say))
}

/// Runs the command with the flag `--apiservice`.
fn roll_back_with_file(cluster: &Mutex<Cluster>, url: &str, name: &str, dry_run: bool) -> Result<(), String> {
    let (apiservice, _folder) = write_api_service();
    run(cluster, url, name, move |cluster, say| {
        let cluster = SwitchArgs { dry_run, ..cluster };
        rollback(&RollbackArgs { cluster, apiservice: Some(apiservice) }, say)
    })
}

/// Runs the command with a fault of one request. With [`Fault::Delayed`], an earlier run is killed, and its request to
/// make the APIService local is delayed until the end of the first run. The first run then has a refused request. After
/// the first run, a client tries to acquire a Lease. Then the command runs again. Returns whether the fault of the
/// first run occurred: this run may have fewer than `number` requests that can have the fault.
fn roll_back_twice(fault: Fault, number: usize) -> bool {
    let (_server, cluster) = start(fault, number);
    let url = serve(&cluster);
    if fault == Fault::Delayed {
        let can_fail = |_: &Cluster, request: &Request| request.target.starts_with(API_SERVICE);
        lock(&cluster).replan(Plan { run: "earlier", fault, number: 1, can_fail });
        assert_eq!(roll_back(&cluster, &url, "earlier"), Err("killed".to_owned()));
        lock(&cluster).replan(Plan { run: "first", fault: Fault::Refused, number, can_fail: |_, _| true });
    }
    let first = roll_back(&cluster, &url, "first");
    if is_late(&first) {
        return roll_back_twice(fault, number);
    }
    if fault == Fault::Delayed {
        lock(&cluster).carry_out_delayed();
    }
    let status = acquire("third", |method, target, body| lock(&cluster).ask_apiserver(method, target, body));
    // With the file, the run asks the replicas even if the policy is deleted already.
    let second = run_without_fault(|| roll_back_with_file(&cluster, &url, "second", false));

    let cluster = lock(&cluster);
    let step = cluster.step.as_deref();
    let what = format!("{fault:?} {number} at {step:?}: {first:?}, a client gets {status}, {second:?}");
    assert_eq!(second, Ok(()), "{what}");
    let holder = if status == 200 { "third" } else { "ours" };
    let expected = BTreeMap::from([("changed", holder), ("created", "ours"), ("node", "ours"), ("recreated", "ours")]);
    assert_eq!(cluster.holders(), expected, "{what}");
    assert!(cluster.is_local(), "{what}");
    assert!([POLICY, BINDING].iter().all(|path| !cluster.objects.contains_key(*path)), "{what}");
    assert!(!cluster.was_open, "clients could write outdated Leases: {what}");
    assert_eq!(cluster.step_of_handover(), "not-ours", "the replicas are told: {what}");
    if matches!(fault, Fault::Refused | Fault::Unanswered) {
        match step {
            // From this step on, nobody can write until the rollback is complete. So the command repeats a failed
            // request.
            Some("released") => assert_eq!(first, Ok(()), "{what}"),
            Some("" | "serving" | "held") => assert_eq!(status, 200, "clients can write after the first run: {what}"),
            Some(_) | None => {}
        }
    }
    step.is_some()
}

/// Makes rollbacks with the fault at the first request that can have it, at the second one, and so on.
fn check(fault: Fault) {
    let faults = count_faults(|number| roll_back_twice(fault, number));
    assert!(faults >= FAULTS_MIN, "{faults}");
}

#[test]
fn a_rollback_with_a_refused_request_is_completed_by_the_next() {
    check(Fault::Refused);
}

#[test]
fn a_rollback_with_an_unanswered_write_is_completed_by_the_next() {
    check(Fault::Unanswered);
}

#[test]
fn a_killed_rollback_is_completed_by_the_next() {
    check(Fault::Killed);
}

#[test]
fn a_delayed_request_of_a_killed_rollback_exposes_no_outdated_lease() {
    check(Fault::Delayed);
}

#[test]
fn a_rollback_that_fails_beside_a_local_api_service_is_completed_by_the_next() {
    check(Fault::MadeLocal);
}

/// The reason why a rollback cannot be completed.
#[derive(Clone, Copy, Debug)]
enum Loss {
    /// The policy has ended.
    Ended,
    /// Somebody has deleted the policy.
    Deleted,
    /// The policy is of a takeover.
    OfTakeover,
    /// The replica has lost the Lease of the hand-over.
    Handover,
}

/// Goal: the second run, and a dry run before it, do not report success if the Leases can no longer be written. After
/// the second run, kube-apiserver serves the built-in Leases, even if a tool registers the Service during that run.
#[test]
fn a_rollback_that_cannot_be_completed_is_too_late() {
    for loss in [Loss::Ended, Loss::Deleted, Loss::OfTakeover, Loss::Handover] {
        roll_back_after(loss, |_, _| {});
    }
    roll_back_after(Loss::Ended, |cluster, request| {
        if request.target.contains(HANDOVER) && request.method != "GET" && request.body.contains("not-ours") {
            cluster.register();
        }
    });
}

/// Makes a rollback that somebody interrupts, and then two further runs after the `loss`. Calls `before_request` before
/// each request of the second run.
fn roll_back_after(loss: Loss, before_request: fn(&mut Cluster, &Request)) {
    // The fault can occur once the policy has effect. The first request after that checks the effect. The second
    // request, which has the fault, begins the phase `hold`.
    let (_server, cluster) = start(Fault::MadeLocal, 2);
    let url = serve(&cluster);
    let first = roll_back(&cluster, &url, "first");
    if is_late(&first) {
        return roll_back_after(loss, before_request);
    }
    let first = first.expect_err("incomplete");
    assert!(first.contains("the rollback is incomplete: run it again at once"), "{first}");
    let mut changed = lock(&cluster);
    assert_eq!(changed.step_of_handover(), "serving");
    let annotations = &mut changed.objects.get_mut(POLICY).expect("the policy stays")["metadata"]["annotations"];
    match loss {
        Loss::Ended => annotations["coordination-apiserver/end"] = "2020-01-01T00:00:00Z".into(),
        Loss::OfTakeover => annotations["coordination-apiserver/permitted"] = "renewals".into(),
        Loss::Deleted => changed.objects.retain(|path, _| path != POLICY && path != BINDING),
        Loss::Handover => {
            let (status, answer) = changed.ask_replica("DELETE", &path("kube-system", HANDOVER), "");
            assert_eq!(status, 200, "{answer}");
        }
    }
    drop(changed);
    let state = || {
        let cluster = lock(&cluster);
        (cluster.objects.clone(), cluster.step_of_handover())
    };
    let before = state();
    let dry = run_without_fault(|| roll_back_with_file(&cluster, &url, "dry", true)).expect_err("too late");
    assert!(dry.contains(TOO_LATE), "{loss:?}: {dry}");
    assert_eq!(state(), before, "{loss:?}: a dry run changes nothing");
    lock(&cluster).before_request = before_request;
    let second = roll_back_with_file(&cluster, &url, "second", false);
    if is_late(&second) {
        return roll_back_after(loss, before_request);
    }
    let second = second.expect_err("too late");
    assert!(second.contains(TOO_LATE), "{loss:?}: {second}");
    assert_eq!(lock(&cluster).step_of_handover(), "not-ours", "{loss:?}: the replicas are told");
    assert!(lock(&cluster).is_local() && !lock(&cluster).has_policy(), "{loss:?}");
}

/// Goal: a rollback does not delete the binding of another command. Method: the other command installs its policy and
/// binding just before the rollback reads its own binding, or just before the rollback deletes its own binding.
#[test]
fn a_rollback_keeps_the_policy_that_another_command_installs() {
    roll_back_beside_another(|cluster, request| {
        let reads_binding = request.method == "GET" && request.target.starts_with(BINDING);
        // The rollback deletes its policy after this step.
        if reads_binding && cluster.step_of_handover() == "not-ours" {
            install_another(cluster);
        }
    });
    roll_back_beside_another(|cluster, request| {
        if request.method == "DELETE" && request.target.starts_with(BINDING) {
            install_another(cluster);
        }
    });
}

/// Replaces the policy and its binding, as another command does.
fn install_another(cluster: &mut Cluster) {
    let id = cluster.objects[POLICY]["metadata"]["annotations"]["coordination-apiserver/id"].clone();
    for path in [POLICY, BINDING] {
        let installed = cluster.objects[path].to_string().replace(id.as_str().expect("an id"), "another");
        let (status, answer) = cluster.ask_storage("PUT", path, &installed);
        assert_eq!(status, 200, "{answer}");
    }
}

/// Makes a rollback during which `before_request` installs the policy of another command.
fn roll_back_beside_another(before_request: fn(&mut Cluster, &Request)) {
    let (_server, cluster) = start(Fault::Refused, 0);
    lock(&cluster).before_request = before_request;
    let url = serve(&cluster);
    let ended = roll_back(&cluster, &url, "first");
    if is_late(&ended) {
        return roll_back_beside_another(before_request);
    }
    assert_eq!(ended, Ok(()));
    let cluster = lock(&cluster);
    assert_eq!(cluster.objects[POLICY]["metadata"]["annotations"]["coordination-apiserver/id"], "another");
    assert!(cluster.has_policy(), "the policy of the other command has its binding");
}

/// Goal: a rollback overwrites no newer built-in Leases, and no lock gets a second holder, whichever request fails. An
/// earlier rollback was killed when the APIService was local, and its policy has ended. In built-in storage, a client
/// has acquired a lock, and a node has renewed its Lease. Then a tool has registered the Service again.
#[test]
fn a_rollback_after_writes_of_clients_to_built_in_storage_is_too_late() {
    let faults = count_faults(roll_back_too_late);
    assert!(faults >= FAULTS_MIN, "{faults}");
}

/// Makes a rollback that is too late, with a fault at the request `number`, and then another rollback. Returns whether
/// the fault occurred.
fn roll_back_too_late(number: usize) -> bool {
    let (_server, cluster) = start(Fault::Refused, number);
    let url = serve(&cluster);
    let mut changed = lock(&cluster);
    let handover = path("kube-system", HANDOVER);
    let (_, mut lease) = changed.ask_replica("GET", &handover, "");
    lease["metadata"]["annotations"]["coordination-apiserver/phase"] = "hold".into();
    lease["metadata"]["annotations"]["coordination-apiserver/step"] = "released".into();
    let (status, answer) = changed.ask_replica("PUT", &handover, &lease.to_string());
    assert_eq!(status, 200, "{answer}");
    let service = changed.objects.get_mut(API_SERVICE).expect("the APIService");
    service["metadata"]["annotations"] = json!({"coordination-apiserver/write": "rollback"});
    let lock_of_client = changed.objects.get_mut(&path(NAMESPACE, "changed")).expect("a Lease");
    lock_of_client["spec"]["holderIdentity"] = "third".into();
    let node = changed.objects.get_mut(&path(NODES, "node")).expect("a Lease");
    node["spec"]["renewTime"] = "2026-01-01T00:01:00.000000Z".into();
    drop(changed);
    let first = roll_back(&cluster, &url, "first");
    if is_late(&first) {
        return roll_back_too_late(number);
    }
    let cut = lock(&cluster);
    let what = format!("request {number} at {:?}: {first:?}", cut.step);
    assert_ne!(cut.step_of_handover(), "serving", "the client keeps its lock: {what}");
    let mark = &cut.objects[API_SERVICE]["metadata"]["annotations"]["coordination-apiserver/taken-over"];
    assert!(mark.is_null(), "no later run may conclude that the takeover registered the Service: {what}");
    drop(cut);
    let runs = [first, run_without_fault(|| roll_back(&cluster, &url, "second"))];
    let is_too_late = |run: &Result<(), String>| run.as_ref().is_err_and(|error| error.contains(TOO_LATE));
    assert!(runs.iter().any(is_too_late), "{what}, {:?}", runs[1]);
    let cluster = lock(&cluster);
    assert_eq!(cluster.holders().get("changed"), Some(&"third"), "the client keeps its lock: {what}");
    assert_eq!(cluster.step_of_handover(), "not-ours", "the replicas are told: {what}");
    assert!(cluster.is_local() && !cluster.has_policy(), "{what}");
    cluster.step.is_some()
}
