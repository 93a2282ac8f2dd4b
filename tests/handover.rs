//! The hand-over of Leases between this server and built-in storage in a real etcd. If this machine has no etcd, the
//! tests of this file check nothing, or fail if `REQUIRE_ETCD` is set.
//!
//! Goal: no write is lost during the hand-over, and no lock has two holders. Method: each test writes to etcd as
//! kube-apiserver would, and to the Lease of the hand-over as the commands would.

#![allow(clippy::panic, clippy::unwrap_used, reason = "tests fail by panicking")]

mod support;

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use serde_json::{Value, json};
use std::cmp::Reverse;
use std::env;
use std::fs;
use std::io;
use std::path::Path;
use std::process::Command;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;
use std::time::{Duration, Instant};
use support::client::{Client, request};
use support::etcd::Etcd;
use support::eventually;
use support::lease::{collection, path};
use support::process::Process;
use support::stream::Endpoint;
use support::watch::{Watch, expect_expired, kind};

const FILES_MAX: u32 = 1024;
const NAMESPACE: &str = "default";
const HANDOVER: &str = "coordination-apiserver-handover";
const API_SERVICE: &str = "/registry/apiregistration.k8s.io/apiservices/v1.coordination.k8s.io";

/// A server beside the etcd of a kube-apiserver.
struct Rig {
    etcd: Etcd,
    server: Process,
    /// Number of phases that the test has requested.
    asked: AtomicU32,
}

impl Rig {
    /// Starts an etcd, and a server with this storage beside it. Returns `None` if this machine has no etcd.
    fn start(storage: &str) -> Option<Self> {
        let etcd = Etcd::start(&[])?;
        let server = start_server(&etcd, storage);
        Some(Self { etcd, server, asked: AtomicU32::new(0) })
    }

    fn client(&self) -> Client {
        Client::open(self.server.endpoint())
    }

    /// Sends a request. Returns the status and the body.
    fn call(&self, method: &str, path: &str, body: &str) -> (u16, Value) {
        call(&self.server, method, path, body)
    }

    /// Writes a Lease as JSON to built-in storage. Returns its `resourceVersion` there.
    fn put_built_in(&self, name: &str, holder: &str, renew_time: &str) -> u64 {
        self.etcd.put(&key(name), built_in_lease(name, holder, renew_time).as_bytes())
    }

    /// Returns the value of a Lease in built-in storage.
    fn built_in(&self, name: &str) -> Option<String> {
        let key = BASE64_STANDARD.encode(key(name));
        let answer = self.etcd.call("kv/range", &format!(r#"{{"key":"{key}"}}"#)).expect("an answer");
        let answer: Value = serde_json::from_str(&answer).expect("JSON");
        let value = BASE64_STANDARD.decode(answer["kvs"][0]["value"].as_str()?).expect("base64");
        Some(String::from_utf8_lossy(&value).into_owned())
    }

    /// Returns the revision of a Lease's last write in built-in storage.
    fn built_in_revision(&self, name: &str) -> u64 {
        let key = BASE64_STANDARD.encode(key(name));
        let answer = self.etcd.call("kv/range", &format!(r#"{{"key":"{key}"}}"#)).expect("an answer");
        let answer: Value = serde_json::from_str(&answer).expect("JSON");
        answer["kvs"][0]["mod_revision"].as_str().expect("a revision").parse().expect("a number")
    }

    /// Gives a Lease of built-in storage to `holder` if its last write there still has `revision`. Returns whether it
    /// did.
    fn acquire_built_in(&self, name: &str, holder: &str, revision: u64) -> bool {
        let [key, value] = [key(name), built_in_lease(name, holder, LATER)].map(|text| BASE64_STANDARD.encode(text));
        let transaction = json!({
            "compare": [{"key": key, "target": "MOD", "mod_revision": revision.to_string()}],
            "success": [{"request_put": {"key": key, "value": value}}],
        });
        let answer = self.etcd.call("kv/txn", &transaction.to_string()).expect("an answer");
        serde_json::from_str::<Value>(&answer).expect("JSON")["succeeded"] == true
    }

    fn delete_built_in(&self, name: &str) {
        self.delete(&key(name));
    }

    /// Deletes a key of kube-apiserver's etcd.
    fn delete(&self, key: &str) {
        let key = BASE64_STANDARD.encode(key);
        self.etcd.call("kv/deleterange", &format!(r#"{{"key":"{key}"}}"#)).expect("an answer");
    }

    /// Replaces the APIService of the group. With `is_ours` it names this server's Service, so kube-apiserver forwards
    /// requests for Leases to this server. Otherwise kube-apiserver serves Leases from built-in storage.
    fn register(&self, is_ours: bool) {
        let service = if is_ours { json!({"name": "coordination-apiserver"}) } else { Value::Null };
        self.etcd.put(API_SERVICE, json!({"spec": {"service": service}}).to_string().as_bytes());
    }

    /// Requests a phase of the hand-over, and waits until the server has reached `step` of the phase.
    fn reach(&self, phase: &str, step: &str) {
        self.ask_for(phase);
        eventually(step, || self.step() == step);
    }

    fn ask_for(&self, phase: &str) {
        self.ask_with(phase, None);
    }

    fn ask_with(&self, phase: &str, step: Option<&str>) {
        let mut lease = json!({
            "metadata": {"name": HANDOVER, "annotations": {
                "coordination-apiserver/phase": phase,
                "coordination-apiserver/asked": self.asked.fetch_add(1, Ordering::Relaxed).to_string(),
            }},
            "spec": {"renewTime": "2099-01-01T00:00:00.000000Z"},
        });
        if let Some(step) = step {
            lease["metadata"]["annotations"]["coordination-apiserver/step"] = step.into();
        }
        let path = path("kube-system", HANDOVER);
        eventually(phase, || {
            let (status, found) = self.call("GET", &path, "");
            let (status, answer) = match status {
                404 => self.call("POST", &collection("kube-system"), &lease.to_string()),
                _ => {
                    lease["metadata"]["resourceVersion"] = found["metadata"]["resourceVersion"].clone();
                    self.call("PUT", &path, &lease.to_string())
                }
            };
            // The server also writes the Lease of the hand-over, so the test's update may get 409. Then it is repeated.
            assert!([200, 201, 409].contains(&status), "{answer}");
            status != 409
        });
    }

    fn annotation(&self, name: &str) -> String {
        let (_, lease) = self.call("GET", &path("kube-system", HANDOVER), "");
        let text = lease["metadata"]["annotations"][format!("coordination-apiserver/{name}")].as_str();
        text.unwrap_or_default().to_owned()
    }

    fn step(&self) -> String {
        self.annotation("step")
    }

    fn lease(&self, name: &str) -> Value {
        let (status, lease) = self.call("GET", &path(NAMESPACE, name), "");
        assert_eq!(status, 200, "{lease}");
        lease
    }

    fn holder(&self, name: &str) -> String {
        self.lease(name)["spec"]["holderIdentity"].as_str().unwrap_or_default().to_owned()
    }

    /// Sends an update that names `version` of the Lease: the state `lease` with the changed spec. Returns the status.
    fn update(&self, mut lease: Value, version: &str, change: impl FnOnce(&mut Value)) -> u16 {
        let name = lease["metadata"]["name"].as_str().expect("a name").to_owned();
        lease["metadata"]["resourceVersion"] = version.into();
        change(&mut lease["spec"]);
        self.call("PUT", &path(NAMESPACE, &name), &lease.to_string()).0
    }
}

fn start_server(etcd: &Etcd, storage: &str) -> Process {
    let url = etcd.url();
    let mut flags = vec![format!("--storage={storage}"), format!("--cluster-etcd-servers={url}")];
    if storage == "etcd" {
        flags.push(format!("--etcd-servers={url}"));
    }
    Process::start(&flags.iter().map(String::as_str).collect::<Vec<_>>(), FILES_MAX)
}

/// Sends a request to a server. Returns the status and the body.
fn call(server: &Process, method: &str, path: &str, body: &str) -> (u16, Value) {
    try_call(server.endpoint(), method, path, body).expect("an answer")
}

/// Sends a request to a server that may die. Returns the status and the body.
fn try_call(endpoint: &Endpoint, method: &str, path: &str, body: &str) -> io::Result<(u16, Value)> {
    let mut client = Client::try_open(endpoint)?;
    client.try_send(&request(method, path, body))?;
    let answer = client.try_recv(method)?;
    let text = String::from_utf8_lossy(&answer.body).into_owned();
    Ok((answer.status(), serde_json::from_str(&text).unwrap_or(Value::String(text))))
}

fn key(name: &str) -> String {
    format!("/registry/leases/{NAMESPACE}/{name}")
}

/// Returns a Lease as JSON, the format in which older kube-apiservers store it.
fn built_in_lease(name: &str, holder: &str, renew_time: &str) -> String {
    let lease = json!({
        "kind": "Lease", "apiVersion": "coordination.k8s.io/v1",
        "metadata": {"name": name, "namespace": NAMESPACE, "uid": format!("uid-of-{name}"),
            "creationTimestamp": "2026-01-01T00:00:00Z", "labels": {"a": "b"}},
        "spec": {"holderIdentity": holder, "leaseDurationSeconds": 15, "renewTime": renew_time},
    });
    lease.to_string()
}

fn new(name: &str) -> String {
    json!({"metadata": {"name": name}, "spec": {"holderIdentity": "new"}}).to_string()
}

const EARLY: &str = "2026-01-01T00:00:01.000000Z";
const LATE: &str = "2026-01-01T00:00:09.000000Z";
const LATER: &str = "2026-01-01T00:00:20.000000Z";

fn renew(spec: &mut Value) {
    spec["renewTime"] = LATE.into();
}

fn acquire(spec: &mut Value) {
    spec["holderIdentity"] = "other".into();
}

#[test]
fn copied_leases_keep_uids_and_accept_the_built_in_version_once() {
    for storage in ["memory", "disk", "etcd"] {
        let Some(mut rig) = Rig::start(storage) else { return };
        let version = rig.put_built_in("a", "h", EARLY);
        let other_version = rig.put_built_in("b", "h", EARLY);
        rig.reach("import", "imported");
        let lease = rig.lease("a");
        assert_eq!(lease["metadata"]["uid"], "uid-of-a");
        assert_eq!(lease["metadata"]["creationTimestamp"], "2026-01-01T00:00:00Z");
        assert_eq!(lease["metadata"]["labels"], json!({"a": "b"}));
        if storage == "disk" {
            rig.server.kill();
            rig.server.restart();
        }
        let delete = json!({"preconditions": {"resourceVersion": other_version.to_string()}}).to_string();
        let path_of_b = path(NAMESPACE, "b");
        rig.register(true);
        assert_eq!(rig.call("DELETE", &path_of_b, &delete).0, 429, "the precondition holds, and deletions wait");
        assert_eq!(rig.update(lease.clone(), &version.to_string(), renew), 200, "{storage}");
        // The first renewal has changed the Lease. Only the copied state may be updated with its version of built-in
        // storage, so a second update with this version is refused.
        assert_eq!(rig.update(lease, &version.to_string(), |spec| spec["renewTime"] = LATER.into()), 409);
        rig.reach("serve", "serving");
        assert_eq!(rig.update(rig.lease("a"), &version.to_string(), renew), 409, "{storage}");
        assert_eq!(rig.call("DELETE", &path_of_b, &delete).0, 200, "{storage}");
    }
}

/// Goal: during a takeover, a client with an outdated version of built-in storage reads the Lease again, and a renewal
/// with a version that the server has not imported yet succeeds.
#[test]
fn versions_of_built_in_storage_are_compared_with_its_present_state() {
    for storage in ["memory", "disk", "etcd"] {
        let Some(rig) = Rig::start(storage) else { return };
        let outdated = rig.put_built_in("a", "h", EARLY);
        rig.reach("import", "imported");
        rig.register(true);
        rig.put_built_in("a", "h", "2026-01-01T00:00:05.000000Z");
        let lease = rig.lease("a");
        assert_eq!(rig.update(lease.clone(), &outdated.to_string(), renew), 409, "{storage}");
        let newest = rig.put_built_in("a", "h", "2026-01-01T00:00:06.000000Z");
        assert_eq!(rig.update(lease, &newest.to_string(), renew), 200, "{storage}");
    }
}

#[test]
fn until_no_request_reaches_built_in_storage_clients_may_only_renew() {
    let Some(rig) = Rig::start("disk") else { return };
    rig.put_built_in("a", "h", EARLY);
    rig.reach("import", "imported");
    rig.register(true);
    let lease = rig.lease("a");
    assert_eq!(rig.update(lease.clone(), &version_of(&lease), acquire), 429);
    assert_eq!(
        rig.update(lease.clone(), &version_of(&lease), |spec| spec["holderIdentity"] = "".into()),
        429,
        "release"
    );
    assert_eq!(rig.call("POST", &collection(NAMESPACE), &new("b")).0, 429);
    assert_eq!(rig.call("PUT", &path(NAMESPACE, "b"), &new("b")).0, 429, "a creation by PUT");
    assert_eq!(rig.call("DELETE", &path(NAMESPACE, "a"), "").0, 429);
    assert_eq!(rig.call("DELETE", &collection(NAMESPACE), "").0, 429);
    let answer = rig.client().call("POST", &collection(NAMESPACE), &new("b"));
    assert_eq!(answer.head.field("retry-after"), Some("1"));
    assert_eq!(rig.update(lease.clone(), &version_of(&lease), renew), 200);

    // Meanwhile, other clients write to built-in storage: an older renewal, a creation, an acquisition and a deletion.
    // The server must follow them.
    rig.put_built_in("a", "h", "2026-01-01T00:00:05.000000Z");
    rig.put_built_in("c", "h", EARLY);
    assert_eq!(rig.call("GET", &path(NAMESPACE, "c"), "").0, 200);
    assert_eq!(rig.lease("a")["spec"]["renewTime"], LATE, "the later renewal holds");
    rig.put_built_in("a", "acquired there", LATER);
    rig.delete_built_in("c");
    assert_eq!(rig.call("GET", &path(NAMESPACE, "c"), "").0, 404);
    assert_eq!(rig.holder("a"), "acquired there");

    // A write to built-in storage just before the phase `serve`. The last round of copying may not have read it, so the
    // server must read built-in storage once more.
    rig.put_built_in("late", "h", EARLY);
    rig.reach("serve", "serving");
    assert_eq!(rig.holder("late"), "h");
    assert_eq!(rig.call("POST", &collection(NAMESPACE), &new("b")).0, 201);
    let lease = rig.lease("a");
    assert_eq!(rig.update(lease.clone(), &version_of(&lease), acquire), 200);
}

#[test]
fn a_read_during_a_takeover_shows_the_state_of_built_in_storage() {
    for storage in ["memory", "disk", "etcd"] {
        let Some(rig) = Rig::start(storage) else { return };
        rig.put_built_in("a", "h", EARLY);
        rig.reach("import", "imported");
        for number in 0..20 {
            let (name, holder) = (format!("l{number}"), format!("holder {number}"));
            let version = rig.put_built_in("a", &holder, LATE);
            assert_eq!(rig.holder("a"), holder, "{storage}");
            rig.put_built_in(&name, "h", EARLY);
            let items = |query: &str| {
                let (_, list) = rig.call("GET", &format!("{}?{query}", collection(NAMESPACE)), "");
                list["items"].as_array().expect("a list").len()
            };
            assert_eq!(items(""), 2, "{storage}");
            assert_eq!(items(&format!("resourceVersion={version}")), 2, "{storage}: not older than this version");
            rig.delete_built_in(&name);
            assert_eq!(rig.call("GET", &path(NAMESPACE, &name), "").0, 404, "{storage}");
        }
    }
}

/// Goal: the holder's renewal at this server and another client's acquisition in built-in storage never both succeed.
/// Method: both start from the same state, at nearly the same time.
#[test]
fn a_renewal_and_a_built_in_acquisition_exclude_each_other() {
    for storage in ["memory", "disk", "etcd"] {
        let Some(rig) = Rig::start(storage) else { return };
        rig.reach("import", "imported");
        rig.register(true);
        let (mut renewals, mut acquisitions) = (0, 0);
        for number in 0..16 {
            let name = format!("lock{number}");
            let version = rig.put_built_in(&name, "h", EARLY);
            let lease = rig.lease(&name);
            // The server answers the renewal after the next round of copying, which may take 0.1 s or more. So the
            // delays of the acquisitions, from 0 to 0.6 s, cover the time before and after the answer.
            let (ahead_ms, delay_ms) = (number % 3, number * 40);
            let (status, is_acquired) = thread::scope(|scope| {
                let acquisition = scope.spawn(|| {
                    thread::sleep(Duration::from_millis(delay_ms));
                    rig.acquire_built_in(&name, "other", version)
                });
                thread::sleep(Duration::from_millis(ahead_ms));
                let status = rig.update(lease, &version.to_string(), renew);
                (status, acquisition.join().expect("no panic"))
            });
            assert_eq!(status == 200, !is_acquired, "{storage} {number}: {status}");
            assert!([200, 409, 429].contains(&status), "{storage} {number}: {status}");
            let holder = if is_acquired { "other" } else { "h" };
            assert_eq!(rig.holder(&name), holder, "{storage} {number}");
            assert!(rig.built_in(&name).expect("a Lease").contains(holder), "{storage} {number}");
            if is_acquired { acquisitions += 1 } else { renewals += 1 }
        }
        assert!(renewals > 0 && acquisitions > 0, "{storage}: {renewals} and {acquisitions}");
    }
}

#[test]
fn every_replica_agrees_with_built_in_storage() {
    let Some(rig) = Rig::start("etcd") else { return };
    let other = start_server(&rig.etcd, "etcd");
    rig.put_built_in("a", "h", EARLY);
    rig.reach("import", "imported");
    rig.register(true);
    // Only one of the two replicas copies, but both must agree with built-in storage.
    for (number, server) in [&rig.server, &other].repeat(5).into_iter().enumerate() {
        let holder = format!("holder {number}");
        let revision = rig.put_built_in("a", &holder, EARLY);
        let (status, mut lease) = call(server, "GET", &path(NAMESPACE, "a"), "");
        assert_eq!((status, &lease["spec"]["holderIdentity"]), (200, &json!(holder)));
        lease["spec"]["renewTime"] = LATE.into();
        assert_eq!(call(server, "PUT", &path(NAMESPACE, "a"), &lease.to_string()).0, 200);
        assert!(rig.built_in_revision("a") > revision, "built-in storage has the renewal");
    }
}

/// Returns the end of a replica's name: its port. It orders replicas of one host, and the first one copies Leases.
fn name_end(server: &Process) -> String {
    server.secure_address().port().to_string()
}

/// Returns the number of ready replicas, which is the number of identity Leases.
fn replicas(rig: &Rig) -> usize {
    let selector = "labelSelector=apiserver.kubernetes.io/identity%3Dcoordination-apiserver";
    let (status, list) = rig.call("GET", &format!("{}?{selector}&resourceVersion=0", collection("kube-system")), "");
    assert_eq!(status, 200, "{list}");
    list["items"].as_array().map_or(0, Vec::len)
}

/// Renews the Lease `a` at `rig.server`, the replica that survives, until a renewal succeeds. Returns the time that
/// this took.
fn renew_until_acknowledged(rig: &Rig) -> Duration {
    let begun = Instant::now();
    eventually("a renewal", || {
        let (status, mut lease) = rig.call("GET", &path(NAMESPACE, "a"), "");
        if status != 200 {
            assert!([429, 503, 504].contains(&status), "{lease}");
            return false;
        }
        lease["spec"]["renewTime"] = format!("2026-01-03T00:00:00.{:06}Z", fastrand::u32(..1_000_000)).into();
        let (status, answer) = rig.call("PUT", &path(NAMESPACE, "a"), &lease.to_string());
        assert!([200, 409, 429, 503, 504].contains(&status), "{answer}");
        status == 200
    });
    begun.elapsed()
}

/// Goal: a leader keeps its lock when the replica that copies dies. client-go gives up the lock after 10 s without a
/// successful renewal.
#[test]
fn renewals_resume_soon_after_the_copying_replica_dies() {
    let Some(mut rig) = Rig::start("etcd") else { return };
    let mut first = start_server(&rig.etcd, "etcd");
    if name_end(&rig.server) < name_end(&first) {
        std::mem::swap(&mut rig.server, &mut first);
    }
    rig.put_built_in("a", "h", EARLY);
    eventually("two replicas", || replicas(&rig) == 2);
    rig.reach("import", "imported");
    rig.register(true);
    renew_until_acknowledged(&rig);
    first.kill();
    let waited = renew_until_acknowledged(&rig);
    assert!(waited < Duration::from_secs(10), "{waited:?}");
    assert_eq!(replicas(&rig), 1);
    rig.reach("serve", "serving");
}

/// A lock that clients acquire in built-in storage and renew at this server.
#[derive(Default)]
struct Lock {
    name: String,
    /// Number of completed acquisitions in built-in storage. This number is the holder's name.
    acquisitions: AtomicU32,
    /// Renewals that succeeded at this server, each with its beginning and end.
    renewals: Mutex<Vec<(Instant, Instant)>>,
}

impl Lock {
    /// Acquires the lock in built-in storage at random times. A renewal between the read and the write must prevent the
    /// write.
    fn acquire_until(&self, end: Instant, rig: &Rig) {
        while Instant::now() < end {
            thread::sleep(Duration::from_millis(fastrand::u64(..400)));
            let (revision, read) = (rig.built_in_revision(&self.name), Instant::now());
            thread::sleep(Duration::from_millis(fastrand::u64(..60)));
            let (next, begun) = (self.acquisitions.load(Ordering::SeqCst) + 1, Instant::now());
            if rig.acquire_built_in(&self.name, &next.to_string(), revision) {
                let renewals = self.renewals.lock().unwrap();
                let ignored = renewals.iter().find(|(from, to)| read < *from && *to < begun);
                assert_eq!(ignored, None, "{}: holder {next} ignored a renewal", self.name);
                drop(renewals);
                self.acquisitions.store(next, Ordering::SeqCst);
            }
        }
    }

    /// Reads and renews the lock at the replica `endpoint`. The read must show the last completed acquisition or a
    /// later one. Returns the last status.
    fn renew_at(&self, endpoint: &Endpoint, micros: u32) -> io::Result<u16> {
        let before = self.acquisitions.load(Ordering::SeqCst);
        let path = path(NAMESPACE, &self.name);
        let (status, mut lease) = try_call(endpoint, "GET", &path, "")?;
        if status != 200 {
            return Ok(status);
        }
        let holder: u32 = lease["spec"]["holderIdentity"].as_str().expect("a holder").parse().expect("a number");
        assert!(holder >= before, "{}: holder {holder} was read after acquisition {before}", self.name);
        lease["spec"]["renewTime"] = format!("2026-01-02T00:00:00.{micros:06}Z").into();
        let (before, begun) = (self.acquisitions.load(Ordering::SeqCst), Instant::now());
        let (status, _) = try_call(endpoint, "PUT", &path, &lease.to_string())?;
        if status == 200 {
            assert!(holder >= before, "{}: holder {holder} renewed after acquisition {before}", self.name);
            self.renewals.lock().unwrap().push((begun, Instant::now()));
        }
        Ok(status)
    }
}

/// Goal: a renewal excludes an acquisition, and a read is current, on every replica. Method: clients write to both
/// sides at random, while replicas are paused, or killed and started again at once. Some pauses of the replica that
/// copies outlast its identity Lease. `HANDOVER_SECONDS` is the length of a longer run.
#[test]
fn renewals_exclude_acquisitions_while_replicas_die() {
    let Some(mut rig) = Rig::start("etcd") else { return };
    let mut others = [start_server(&rig.etcd, "etcd"), start_server(&rig.etcd, "etcd")];
    // The replica that copies is the first by name, and the name ends with the port. So `others[1]` copies. The test
    // pauses and kills only `others`.
    others.sort_by_key(|other| Reverse(name_end(other)));
    if name_end(&rig.server) < name_end(&others[1]) {
        std::mem::swap(&mut rig.server, &mut others[1]);
    }
    let locks: Vec<_> = (0..4).map(|number| Lock { name: format!("lock{number}"), ..Lock::default() }).collect();
    locks.iter().for_each(|lock| _ = rig.put_built_in(&lock.name, "0", EARLY));
    rig.reach("import", "imported");
    rig.register(true);
    let endpoints = [&rig.server, &others[0], &others[1]].map(|server| server.endpoint().clone());
    let seconds = env::var("HANDOVER_SECONDS").map_or(14, |text| text.parse().expect("a number of seconds"));
    let end = Instant::now() + Duration::from_secs(seconds);
    let renewed = AtomicU32::new(0);
    thread::scope(|scope| {
        for lock in &locks {
            scope.spawn(|| lock.acquire_until(end, &rig));
        }
        for _ in 0..8 {
            scope.spawn(|| {
                while Instant::now() < end {
                    let (lock, endpoint) = (fastrand::usize(..locks.len()), fastrand::usize(..endpoints.len()));
                    match locks[lock].renew_at(&endpoints[endpoint], fastrand::u32(..1_000_000)) {
                        Ok(200) => _ = renewed.fetch_add(1, Ordering::Relaxed),
                        // A replica that has just started refuses requests until it has loaded.
                        Ok(status) => assert!([409, 429, 503, 504].contains(&status), "{status}"),
                        Err(_) => thread::sleep(Duration::from_millis(50)),
                    }
                }
            });
        }
        for number in (0..).take_while(|_| Instant::now() < end) {
            let other = &mut others[number % 2];
            thread::sleep(Duration::from_millis(fastrand::u64(500..1_000)));
            let is_long = number % 4 == 3;
            if !is_long && fastrand::bool() {
                other.kill();
                other.restart();
            } else {
                other.signal("STOP");
                thread::sleep(Duration::from_millis(if is_long { 7_000 } else { fastrand::u64(..500) }));
                other.signal("CONT");
            }
        }
    });
    let acquired: u32 = locks.iter().map(|lock| lock.acquisitions.load(Ordering::Relaxed)).sum();
    let renewed = renewed.into_inner();
    assert!(acquired > 10 && renewed > 5, "{acquired} acquisitions and {renewed} renewals");
}

/// Goal: a server that starts again during the copying overwrites no acquisition that it has not read.
#[test]
fn a_built_in_acquisition_during_a_restart_is_kept() {
    let Some(mut rig) = Rig::start("disk") else { return };
    let version = rig.put_built_in("a", "h", EARLY);
    rig.reach("import", "imported");
    rig.register(true);
    assert_eq!(rig.update(rig.lease("a"), &version.to_string(), renew), 200);
    rig.server.kill();
    let acquired = rig.put_built_in("a", "acquired there", LATER);
    rig.server.restart();
    assert_eq!(rig.holder("a"), "acquired there");
    assert_eq!(rig.built_in_revision("a"), acquired);
}

#[test]
fn old_watches_are_fed_until_kube_apiserver_is_registered_again() {
    let Some(rig) = Rig::start("memory") else { return };
    let version = rig.put_built_in("a", "h", EARLY);
    rig.reach("import", "imported");
    rig.register(true);
    rig.reach("serve", "serving");
    let lease = rig.lease("a");
    assert_eq!(rig.update(lease, &version.to_string(), acquire), 200);
    assert_eq!(rig.call("POST", &collection(NAMESPACE), &new("b")).0, 201);
    let has = |name: &str, text: &str| rig.built_in(name).is_some_and(|value| value.contains(text));
    eventually("the acquisition is fed", || has("a", "other"));
    eventually("the creation is fed", || has("b", "new"));
    assert!(has("b", "k8s\0"), "in kube-apiserver's format");
    assert_eq!(rig.call("DELETE", &path(NAMESPACE, "b"), "").0, 200);
    eventually("the deletion is fed", || rig.built_in("b").is_none());

    // A stray write to built-in storage, which now belongs to this server, is overwritten.
    rig.put_built_in("a", "stray", LATER);
    assert_eq!(
        rig.update(rig.lease("a"), &version_of(&rig.lease("a")), |spec| spec["holderIdentity"] = "third".into()),
        200
    );
    eventually("it is written again", || has("a", "third"));

    // An operator registers kube-apiserver again by hand, and built-in storage belongs to kube-apiserver again.
    rig.register(false);
    rig.put_built_in("a", "its own", LATER);
    let (status, _) = rig.call("POST", &collection(NAMESPACE), &new("c"));
    assert!([201, 429].contains(&status), "{status}: the server may have noticed already");
    eventually("the end of the feed", || rig.step() == "not-ours");
    assert!(has("a", "its own"), "the server no longer writes");
    assert_eq!(rig.built_in("c"), None);
}

/// Goal: the clients of a quiet cluster hear of a rollback by hand. Method: the server has nothing to write when the
/// APIService changes.
#[test]
fn a_rollback_by_hand_ends_watches_in_a_quiet_cluster() {
    for is_deleted in [false, true] {
        let Some(rig) = Rig::start("memory") else { return };
        rig.put_built_in("a", "h", EARLY);
        rig.reach("import", "imported");
        rig.register(true);
        rig.reach("serve", "serving");
        let mut watch = Watch::open(rig.server.endpoint(), &format!("{}?watch=1", collection(NAMESPACE)));
        // Longer than the interval at which the server writes due changes to built-in storage.
        thread::sleep(Duration::from_millis(600));
        if is_deleted {
            rig.delete(API_SERVICE);
        } else {
            rig.register(false);
        }
        expect_end(&mut watch);
        assert_eq!(rig.step(), "not-ours");
        assert_eq!(rig.call("POST", &collection(NAMESPACE), &new("b")).0, 429);
    }
}

/// Reads a watch until its end, an ERROR event with 410.
fn expect_end(watch: &mut Watch) {
    let mut event = watch.next();
    while kind(&event) != "ERROR" {
        event = watch.next();
    }
    expect_expired(&event);
}

/// Opens a watch from a version.
fn watch_from(rig: &Rig, version: &str) -> Watch {
    let target = format!("{}?watch=1&resourceVersion={version}", collection(NAMESPACE));
    Watch::open(rig.server.endpoint(), &target)
}

fn version_of(lease: &Value) -> String {
    lease["metadata"]["resourceVersion"].as_str().expect("a version").to_owned()
}

#[test]
fn a_rollback_writes_everything_back_and_sends_clients_to_built_in_storage() {
    let Some(mut rig) = Rig::start("disk") else { return };
    for name in ["a", "b", "c"] {
        rig.put_built_in(name, "h", EARLY);
    }
    rig.reach("import", "imported");
    rig.register(true);
    rig.reach("serve", "serving");
    let mut watch = Watch::open(rig.server.endpoint(), &format!("{}?watch=1", collection(NAMESPACE)));
    let lease = rig.lease("a");
    assert_eq!(rig.update(lease, &version_of(&rig.lease("a")), renew), 200);
    assert_eq!(rig.call("DELETE", &path(NAMESPACE, "c"), "").0, 200);
    rig.reach("freeze", "written-back");
    assert!(rig.built_in("a").expect("a Lease").contains("uid-of-a"));
    assert_eq!(rig.built_in("c"), None);

    expect_end(&mut watch);
    let path_of_a = path(NAMESPACE, "a");
    assert_eq!(rig.call("GET", &path_of_a, "").0, 429, "kube-apiserver may have changed it");
    let (status, lease) = rig.call("GET", &format!("{path_of_a}?resourceVersion=0"), "");
    assert_eq!(status, 200, "any state will do");
    let version = version_of(&lease);
    assert_eq!(rig.update(lease, &version, |spec| spec["renewTime"] = LATER.into()), 429, "renewals wait too");
    let list = |query: &str| rig.call("GET", &format!("{}?{query}", collection(NAMESPACE)), "").0;
    assert_eq!(list(&format!("resourceVersion={version}")), 410);
    expect_expired(&watch_from(&rig, &version).next());
    assert_eq!(list(""), 429);
    assert_eq!(list("resourceVersion=0"), 429);
    assert_eq!(list("resourceVersion=42"), 429, "a version of built-in storage");

    // The freeze survives a restart. It lasts until the next takeover, which imports built-in storage as it is then.
    rig.server.kill();
    rig.server.restart();
    assert_eq!(rig.call("POST", &collection(NAMESPACE), &new("d")).0, 429);
    rig.register(false);
    rig.delete_built_in("b");
    rig.put_built_in("a", "acquired there", LATER);
    rig.reach("import", "imported");
    assert_eq!(rig.holder("a"), "acquired there");
    assert_eq!(rig.call("GET", &path(NAMESPACE, "b"), "").0, 404);
}

#[test]
fn a_deletion_just_before_a_crash_reaches_built_in_storage() {
    let Some(mut rig) = Rig::start("disk") else { return };
    rig.put_built_in("a", "h", EARLY);
    rig.put_built_in("b", "h", EARLY);
    rig.reach("import", "imported");
    rig.register(true);
    rig.reach("serve", "serving");
    assert_eq!(rig.call("DELETE", &path(NAMESPACE, "a"), "").0, 200);
    rig.server.kill();
    rig.server.restart();
    eventually("the deletion", || rig.built_in("a").is_none());
    assert!(rig.built_in("b").is_some());
}

/// An operator restores the etcd of kube-apiserver from a backup: etcd starts again with an older copy of its data.
#[test]
fn a_restored_built_in_storage_gets_the_changes_since_the_backup_again() {
    let Some(mut rig) = Rig::start("disk") else { return };
    rig.put_built_in("a", "h", EARLY);
    rig.put_built_in("b", "h", EARLY);
    rig.reach("import", "imported");
    rig.register(true);
    rig.reach("serve", "serving");
    let backup = |data: &Path| data.with_extension("backup");
    rig.etcd.restart_after(|data| {
        let copied = Command::new("cp").arg("-r").arg(data).arg(backup(data)).status();
        assert!(copied.is_ok_and(|status| status.success()), "the data folder can be copied");
    });
    assert_eq!(rig.update(rig.lease("a"), &version_of(&rig.lease("a")), acquire), 200);
    assert_eq!(rig.call("DELETE", &path(NAMESPACE, "b"), "").0, 200);
    let is_fed = |rig: &Rig| rig.built_in("a").is_some_and(|a| a.contains("other")) && rig.built_in("b").is_none();
    eventually("the changes are fed", || is_fed(&rig));

    rig.etcd.restart_after(|data| {
        fs::remove_dir_all(data).expect("the data folder can be removed");
        fs::rename(backup(data), data).expect("the backup can be restored");
    });
    assert!(!is_fed(&rig), "the backup has the former holder");
    // The worker learns of the restore with its next write.
    assert_eq!(rig.call("POST", &collection(NAMESPACE), &new("c")).0, 201);
    eventually("the changes are fed again", || is_fed(&rig));
}

#[test]
fn outdated_leases_are_not_written_after_a_rollback() {
    let Some(mut rig) = Rig::start("disk") else { return };
    rig.put_built_in("a", "h", EARLY);
    rig.reach("import", "imported");
    rig.register(true);
    rig.reach("serve", "serving");
    rig.reach("freeze", "written-back");
    rig.register(false);
    eventually("the end of the rollback", || rig.step() == "not-ours");
    let metrics = rig.call("GET", "/metrics", "").1;
    for (series, why) in [
        ("coordination_handover_holds_writes 0", "no command holds writes back"),
        ("coordination_handover_serves 0", "kube-apiserver serves the Leases"),
    ] {
        assert!(metrics.as_str().is_some_and(|text| text.contains(&format!("\n{series}\n"))), "{why}");
    }
    rig.put_built_in("a", "acquired there", LATER);
    rig.put_built_in("b", "created there", LATER);

    // Somebody applies an old manifest of the APIService, which names this server again, and the server starts anew.
    // Its Leases are outdated, so it must not write them to built-in storage.
    rig.server.kill();
    rig.register(true);
    rig.server.restart();
    thread::sleep(Duration::from_secs(2));
    assert!(rig.built_in("a").expect("a Lease").contains("acquired there"));
    assert!(rig.built_in("b").is_some(), "a Lease that this server does not know");
    assert_eq!(rig.step(), "not-ours");
}

#[test]
fn an_undone_takeover_keeps_the_writes_of_both_sides() {
    let Some(rig) = Rig::start("disk") else { return };
    let version = rig.put_built_in("a", "h", EARLY);
    rig.put_built_in("b", "h", EARLY);
    rig.reach("import", "imported");
    rig.register(true);
    assert_eq!(rig.update(rig.lease("a"), &version.to_string(), renew), 200);
    rig.put_built_in("b", "acquired there", LATER);
    rig.etcd.signal("STOP");
    rig.ask_for("undo");
    assert_eq!(rig.call("GET", &path(NAMESPACE, "a"), "").0, 429, "kube-apiserver may change it");
    rig.etcd.signal("CONT");
    eventually("written-back", || rig.step() == "written-back");
    assert!(rig.built_in("b").expect("a Lease").contains("acquired there"));
    // The renewal was written to built-in storage: the next import finds the same time there.
    rig.register(false);
    rig.reach("import", "imported");
    assert_eq!(rig.lease("a")["spec"]["renewTime"], LATE);
    assert_eq!(rig.holder("b"), "acquired there");
}

/// Goal: the result of a command to etcd, sent in an earlier phase, does not count for the current phase. Method: etcd
/// is paused after the server has sent such a command, and continues in the next phase.
#[test]
fn a_write_of_an_earlier_phase_does_not_count_as_written_back() {
    for storage in ["memory", "disk"] {
        let Some(rig) = Rig::start(storage) else { return };
        rig.put_built_in("a", "h", EARLY);
        rig.reach("import", "imported");
        rig.register(true);
        rig.reach("serve", "serving");
        rig.etcd.signal("STOP");
        assert_eq!(rig.call("POST", &collection(NAMESPACE), &new("fed")).0, 201);
        // Longer than the interval at which the server writes due changes to built-in storage. So its command contains
        // `fed`, and not `later`.
        thread::sleep(Duration::from_millis(400));
        assert_eq!(rig.call("POST", &collection(NAMESPACE), &new("later")).0, 201);
        rig.ask_for("freeze");
        rig.etcd.signal("CONT");
        eventually("written-back", || rig.step() == "written-back");
        for name in ["fed", "later"] {
            assert!(rig.built_in(name).is_some_and(|value| value.contains("new")), "{storage}: {name}");
        }
    }
}

/// Goal: the server copies renewals to built-in storage, for old watches, during the switch of the kube-apiservers. It
/// also does so if it serves again after a rollback was abandoned.
#[test]
fn renewals_are_fed_during_a_switch_and_after_an_abandoned_freeze() {
    let Some(rig) = Rig::start("disk") else { return };
    rig.put_built_in("a", "h", EARLY);
    rig.reach("import", "imported");
    rig.register(true);
    let fed = |time: &str| {
        let before = rig.built_in_revision("a");
        let lease = rig.lease("a");
        assert_eq!(rig.update(lease, &version_of(&rig.lease("a")), |spec| spec["renewTime"] = time.into()), 200);
        eventually("the renewal is fed", || rig.built_in_revision("a") > before);
    };
    fed(LATE);
    rig.reach("serve", "serving");
    rig.reach("freeze", "written-back");
    rig.ask_with("serve", Some("serving"));
    eventually("clients may write", || rig.call("POST", &collection(NAMESPACE), &new("b")).0 == 201);
    fed(LATER);
}

#[test]
fn a_second_import_replaces_the_leases_with_built_in_storage() {
    let Some(rig) = Rig::start("disk") else { return };
    rig.put_built_in("a", "h", EARLY);
    rig.put_built_in("b", "h", EARLY);
    rig.reach("import", "imported");
    rig.register(true);
    rig.reach("serve", "serving");
    // An operator registers kube-apiserver again by hand, and its clients undo a creation and a deletion of this
    // server. The next import must replace this server's Leases by the content of built-in storage.
    assert_eq!(rig.call("POST", &collection(NAMESPACE), &new("ghost")).0, 201);
    assert_eq!(rig.call("DELETE", &path(NAMESPACE, "b"), "").0, 200);
    eventually("the feed", || rig.built_in("ghost").is_some() && rig.built_in("b").is_none());
    rig.register(false);
    rig.delete_built_in("ghost");
    rig.put_built_in("b", "h", EARLY);
    rig.reach("import", "imported");
    assert_eq!(rig.call("GET", &path(NAMESPACE, "ghost"), "").0, 404);
    assert_eq!(rig.holder("b"), "h");
}

#[test]
fn a_forged_handover_lease_in_built_in_storage_is_ignored() {
    let Some(rig) = Rig::start("disk") else { return };
    let forged = json!({
        "kind": "Lease", "apiVersion": "coordination.k8s.io/v1",
        "metadata": {"name": HANDOVER, "namespace": "kube-system", "uid": "forged", "annotations": {
            "coordination-apiserver/phase": "serve", "coordination-apiserver/step": "serving",
        }},
    });
    rig.etcd.put(&format!("/registry/leases/kube-system/{HANDOVER}"), forged.to_string().as_bytes());
    rig.put_built_in("a", "h", EARLY);
    rig.reach("import", "imported");
    assert_eq!(rig.call("POST", &collection(NAMESPACE), &new("b")).0, 429);
}

#[test]
fn without_our_api_service_nothing_is_written() {
    let Some(rig) = Rig::start("memory") else { return };
    rig.register(false);
    rig.put_built_in("a", "h", EARLY);
    rig.ask_for("freeze");
    rig.reach("freeze", "not-ours");
    assert!(rig.built_in("a").expect("a Lease").contains("\"h\""), "an empty server has not deleted it");
}

#[test]
fn a_lease_that_cannot_be_read_is_reported() {
    let Some(rig) = Rig::start("memory") else { return };
    rig.etcd.put(&key("a"), b"k8s:enc:aescbc:v1:key:x");
    rig.ask_for("import");
    eventually("the reason", || rig.annotation("message").contains("default/a is encrypted at rest"));
    assert_eq!(rig.step(), "");
    // The command cancels the takeover. The unreadable Lease is deleted before the next takeover.
    rig.ask_with("undo", Some("not-ours"));
    thread::sleep(Duration::from_secs(1));
    rig.delete_built_in("a");
    rig.reach("import", "imported");
}

#[test]
fn without_etcd_clients_may_only_renew_until_every_kube_apiserver_has_switched() {
    let Some(rig) = Rig::start("disk") else { return };
    assert_eq!(rig.call("POST", &collection(NAMESPACE), &new("a")).0, 201);
    rig.ask_with("copy", Some("imported"));
    let update = |change: fn(&mut Value)| {
        let lease = rig.lease("a");
        let version = version_of(&lease);
        rig.update(lease, &version, change)
    };
    assert_eq!(update(renew), 200);
    assert_eq!(update(acquire), 429);
    assert_eq!(rig.call("DELETE", &path(NAMESPACE, "a"), "").0, 429);
    assert_eq!(rig.call("POST", &collection(NAMESPACE), &new("b")).0, 429);
    let version = version_of(&rig.lease("a"));
    for query in ["", "resourceVersion=0", "watch=1", &format!("watch=1&resourceVersion={version}")] {
        let (status, _) = rig.call("GET", &format!("{}?{query}", collection(NAMESPACE)), "");
        assert_eq!(status, 429, "a watch from a version of this server must not reach built-in storage: {query}");
    }
    rig.register(true);
    rig.ask_with("serve", Some("serving"));
    assert_eq!(update(acquire), 200);
    assert_eq!(rig.call("GET", &collection(NAMESPACE), "").0, 200);
    rig.put_built_in("of-another-time", "h", EARLY);
    assert_eq!(rig.call("GET", &path(NAMESPACE, "of-another-time"), "").0, 404, "nothing is imported");
}

#[test]
fn during_a_rollback_without_etcd_only_the_command_may_list() {
    let Some(rig) = Rig::start("disk") else { return };
    assert_eq!(rig.call("POST", &collection(NAMESPACE), &new("a")).0, 201);
    let mut watch = Watch::open(rig.server.endpoint(), &format!("{}?watch=1", collection(NAMESPACE)));
    rig.ask_with("hold", Some("held"));
    expect_end(&mut watch);
    let lease = rig.lease("a");
    let version = version_of(&lease);
    assert_eq!(rig.update(lease, &version, renew), 429);
    assert_eq!(rig.call("POST", &collection(NAMESPACE), &new("b")).0, 429);
    let list = || {
        let at = version_of(&rig.call("GET", &path("kube-system", HANDOVER), "").1);
        let query = format!("resourceVersion={at}&resourceVersionMatch=NotOlderThan");
        rig.call("GET", &format!("{}?{query}", collection(NAMESPACE)), "")
    };
    assert_eq!(list().1["items"][0]["metadata"]["name"], "a");
    rig.ask_with("hold", Some("released"));
    assert_eq!(rig.call("GET", &path(NAMESPACE, "a"), "").0, 429, "kube-apiserver may have changed it");
    assert_eq!(list().1["items"][0]["metadata"]["name"], "a", "a command that is run again");
    expect_expired(&watch_from(&rig, &version).next());
}
