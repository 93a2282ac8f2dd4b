//! The command `rollback --without-etcd`, with one fault in its first run, and then a second run without faults.
//! Built-in storage is kube-apiserver's own storage of Leases. The APIService is local if it names no Service, so that
//! kube-apiserver serves the Leases in built-in storage.
//!
//! Goal: whichever request fails, and whenever the command is killed, the second run completes the rollback. No write
//! of a client is lost. Method: the replica is a real server. kube-apiserver is simulated, since a real one does not
//! fail at a chosen request. The round `without-etcd` of `tests/e2e` runs the command with a real kube-apiserver.
//!
//! The command runs in this process, and makes the process ignore SIGHUP, SIGINT and SIGTERM.

#![allow(clippy::panic, clippy::unwrap_used, reason = "tests fail by panicking")]

mod support;

use coordination_apiserver::cli::{RollbackArgs, SwitchArgs};
use coordination_apiserver::switch::rollback;
use k8s_openapi::jiff::Timestamp;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::fs;
use std::io::{self, BufRead as _, BufReader, Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Mutex, MutexGuard};
use std::thread;
use support::eventually;
use support::handover::{EARLY, HANDOVER, LATE, NAMESPACE, try_call};
use support::lease::{collection, path};
use support::server::TestServer;
use support::stream::Endpoint;

/// Number of rollbacks that run at the same time. They mostly sleep.
const AT_ONCE: usize = 8;
/// Minimum number of requests of a rollback that can have a fault. If there are fewer, the simulation has ended the
/// rollback too early.
const FAULTS_MIN: usize = 18;
/// Namespace of the Leases of nodes.
const NODES: &str = "kube-node-lease";

// Paths at kube-apiserver.
const API_SERVICE: &str = "/apis/apiregistration.k8s.io/v1/apiservices/v1.coordination.k8s.io";
const POLICY: &str = "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicies/coordination-apiserver-switch";
const BINDING: &str =
    "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicybindings/coordination-apiserver-switch";
const CONFIG_MAP: &str = "/api/v1/namespaces/kube-system/configmaps/coordination-apiserver-switch";
const LEASES: &str = "/apis/coordination.k8s.io/v1/";
const ALL_LEASES: &str = "/apis/coordination.k8s.io/v1/leases";

/// HTTP status and body of a response.
type Answer = (u16, Value);

/// A fault in the first run of the command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fault {
    /// The server answers a request with 500, and does not carry it out.
    Refused,
    /// The server carries out a write, and closes the connection without an answer.
    Unanswered,
    /// The server carries out a write. Then the command is killed.
    Killed,
    /// While the admission policy has effect, somebody makes the APIService local. The server refuses the request that
    /// the command sends next.
    MadeLocal,
    /// An earlier run was killed just after its request to make the APIService local. In the first run, the server
    /// refuses a request. Only after the first run, the server carries out the request of the earlier run.
    Delayed,
}

/// A request of the command.
struct Request {
    /// Name of the run: `earlier`, `first` or `second`.
    run: String,
    /// Whether the command sends the request to the replica. Otherwise it sends it to kube-apiserver.
    is_to_replica: bool,
    method: String,
    target: String,
    body: String,
}

/// A simulated kube-apiserver and a real replica, after a takeover. Each Lease of the replica has the holder `ours`.
/// Built-in storage has the Leases from before the takeover, with the holder `former`.
struct Cluster {
    replica: Endpoint,
    /// Objects in the storage of kube-apiserver, by their paths.
    objects: BTreeMap<String, Value>,
    /// Last `resourceVersion` in the storage of kube-apiserver.
    version: u64,
    fault: Fault,
    /// Number of the request with the fault, among the requests that can have it. Begins at 1.
    number: usize,
    /// Number of requests so far that could have the fault.
    counted: usize,
    /// Step of the hand-over just before the fault; `None` if no request had the fault.
    step: Option<String>,
    /// Names of the killed runs.
    killed: Vec<String>,
    /// Body of the request that [`Fault::Delayed`] delays.
    delayed: Option<String>,
    /// Whether clients could write outdated built-in Leases at some time.
    was_open: bool,
}

impl Cluster {
    fn new(replica: Endpoint, fault: Fault, number: usize) -> Self {
        let spec = json!({
            "group": "coordination.k8s.io", "version": "v1", "groupPriorityMinimum": 16500, "versionPriority": 15,
            "caBundle": "Y2E=", "service": {"name": "coordination-apiserver", "namespace": "kube-system"},
        });
        let annotations = json!({"coordination-apiserver/taken-over": "true"});
        let metadata = json!({
            "name": "v1.coordination.k8s.io", "uid": "u", "resourceVersion": "1", "annotations": annotations,
        });
        let api_service = json!({
            "kind": "APIService", "apiVersion": "apiregistration.k8s.io/v1", "metadata": metadata, "spec": spec,
        });
        let mut cluster = Self {
            replica,
            objects: [(API_SERVICE.to_owned(), api_service)].into(),
            version: 1,
            fault,
            number,
            counted: 0,
            step: None,
            killed: Vec::new(),
            delayed: None,
            was_open: false,
        };
        for name in ["changed", "created", "recreated"] {
            cluster.add_lease(NAMESPACE, name);
        }
        cluster.add_lease(NODES, "node");
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
        cluster
    }

    /// Creates a Lease at the replica, and adds an earlier state of the Lease to built-in storage.
    fn add_lease(&mut self, namespace: &str, name: &str) {
        let spec = json!({"holderIdentity": "ours", "leaseDurationSeconds": 15, "renewTime": LATE});
        let lease = json!({"metadata": {"name": name}, "spec": spec});
        let (status, mut lease) = self.ask_replica("POST", &collection(namespace), &lease.to_string());
        assert_eq!(status, 201, "{lease}");
        lease["metadata"]["resourceVersion"] = "1".into();
        lease["spec"]["renewTime"] = EARLY.into();
        // Nobody else acquires the Lease of a node, so its holder stays.
        if namespace != NODES {
            lease["spec"]["holderIdentity"] = "former".into();
        }
        self.objects.insert(path(namespace, name), lease);
    }

    /// Answers a request of the command. Returns `None` if the connection ends without an answer.
    fn answer(&mut self, request: &Request) -> Option<Answer> {
        let Request { method, target, body, .. } = request;
        if request.run == "earlier" && method == "PUT" && target.split('?').next() == Some(API_SERVICE) {
            self.delayed = Some(body.clone());
            self.killed.push(request.run.clone());
            return None;
        }
        let can_fail = request.run == "first" && self.can_fail(method, target);
        self.counted += usize::from(can_fail);
        let fails = can_fail && self.counted == self.number;
        if fails {
            self.step = Some(self.step_of_handover());
            if self.fault == Fault::MadeLocal {
                self.make_local();
            }
            if matches!(self.fault, Fault::Refused | Fault::MadeLocal | Fault::Delayed) {
                return Some(failure(500, "a fault"));
            }
        }
        let answer = match request.is_to_replica {
            true => self.ask_replica(method, target, body),
            false => self.ask_apiserver(method, target, body),
        };
        if fails && self.fault == Fault::Killed {
            self.killed.push(request.run.clone());
        }
        (!fails).then_some(answer)
    }

    fn can_fail(&self, method: &str, target: &str) -> bool {
        match self.fault {
            Fault::Refused | Fault::Delayed => true,
            // Some requests change nothing in the cluster. For them, a lost answer has the same effect as a refusal. A
            // kill has the same effect as a kill after the last write.
            Fault::Unanswered | Fault::Killed => method != "GET" && !target.contains("dryRun"),
            Fault::MadeLocal => self.has_policy(),
        }
    }

    fn ask_replica(&self, method: &str, target: &str, body: &str) -> Answer {
        try_call(&self.replica, method, target, body).expect("an answer")
    }

    /// Answers a request to kube-apiserver, which forwards requests for Leases unless the APIService is local.
    fn ask_apiserver(&mut self, method: &str, target: &str, body: &str) -> Answer {
        let is_of_leases = target.starts_with(LEASES);
        if is_of_leases && !self.is_local() {
            return self.ask_replica(method, target, body);
        }
        let is_permitted = match method {
            // The simulated policy permits every deletion, since only the command deletes Leases in these tests.
            "GET" | "DELETE" => true,
            _ => target.contains("fieldManager=coordination-apiserver-rollback"),
        };
        if is_of_leases && !is_permitted && self.has_policy() {
            return failure(403, "the admission policy forbids it");
        }
        let answer = self.ask_storage(method, target, body);
        let holders = self.holders();
        let is_outdated = !holders.contains_key("created") || holders.values().any(|holder| *holder == "former");
        self.was_open |= is_outdated && self.is_local() && !self.has_policy();
        answer
    }

    /// Reads or writes an object in the storage of kube-apiserver.
    fn ask_storage(&mut self, method: &str, target: &str, body: &str) -> Answer {
        let (path, query) = target.split_once('?').unwrap_or((target, ""));
        let mut object: Value = serde_json::from_str(body).unwrap_or_default();
        let path = match method {
            "POST" => format!("{path}/{}", object["metadata"]["name"].as_str().unwrap_or_default()),
            _ => path.to_owned(),
        };
        let found = self.objects.get(&path).cloned();
        let expected = if method == "DELETE" { &object["preconditions"] } else { &object["metadata"] };
        let is_changed = ["uid", "resourceVersion"].into_iter().any(|field| {
            let present = found.as_ref().map(|found| &found["metadata"][field]);
            !expected[field].is_null() && present.is_some_and(|present| *present != expected[field])
        });
        match (method, found) {
            ("GET", _) if path == ALL_LEASES => {
                let items: Vec<_> = self.leases().map(|(_, lease)| lease).collect();
                let (kind, version) = ("LeaseList", "coordination.k8s.io/v1");
                (200, json!({"kind": kind, "apiVersion": version, "metadata": {}, "items": items}))
            }
            ("GET", Some(found)) => (200, found),
            ("POST", _) if path.contains("/selfsubjectreviews/") => {
                (201, json!({"metadata": {}, "status": {"userInfo": {"username": "admin"}}}))
            }
            ("POST", _) if path == CONFIG_MAP && self.has_policy() => {
                let message = &self.objects[POLICY]["spec"]["validations"][0]["message"];
                failure(403, message.as_str().unwrap_or_default())
            }
            ("POST", Some(_)) => failure(409, "it exists"),
            ("GET" | "PUT" | "DELETE", None) => failure(404, "it does not exist"),
            ("PUT" | "DELETE", Some(_)) if is_changed => failure(409, "it has changed"),
            ("DELETE", Some(_)) => {
                self.objects.remove(&path);
                (200, json!({"kind": "Status", "apiVersion": "v1", "status": "Success"}))
            }
            // As at kube-apiserver, a write that changes nothing keeps the `resourceVersion`.
            ("PUT", Some(found)) if found == object => (200, found),
            (_, found) => {
                self.version += 1;
                let version = self.version.to_string();
                let old = found.map(|mut found| found["metadata"].take());
                let metadata = &mut object["metadata"];
                metadata["uid"] = old.as_ref().map_or_else(|| json!(version), |old| old["uid"].clone());
                metadata["creationTimestamp"] =
                    old.map_or_else(|| json!(Timestamp::now().to_string()), |old| old["creationTimestamp"].clone());
                metadata["resourceVersion"] = version.into();
                if !query.contains("dryRun") {
                    self.objects.insert(path, object.clone());
                }
                (200, object)
            }
        }
    }

    fn has_policy(&self) -> bool {
        [POLICY, BINDING].iter().all(|path| self.objects.contains_key(*path))
    }

    fn is_local(&self) -> bool {
        self.objects[API_SERVICE]["spec"]["service"].is_null()
    }

    fn make_local(&mut self) {
        self.version += 1;
        let service = self.objects.get_mut(API_SERVICE).expect("the APIService");
        service["spec"]["service"] = Value::Null;
        service["metadata"]["resourceVersion"] = self.version.to_string().into();
    }

    /// Returns the built-in Leases and their paths.
    fn leases(&self) -> impl Iterator<Item = (&String, &Value)> {
        self.objects.iter().filter(|(path, _)| path.starts_with(LEASES))
    }

    /// Returns the holder of each built-in Lease, by the name of the Lease.
    fn holders(&self) -> BTreeMap<&str, &str> {
        let holders = self.leases().map(|(path, lease)| {
            let name = path.rsplit('/').next().unwrap_or_default();
            (name, lease["spec"]["holderIdentity"].as_str().unwrap_or_default())
        });
        holders.collect()
    }

    fn step_of_handover(&self) -> String {
        let (_, lease) = self.ask_replica("GET", &path("kube-system", HANDOVER), "");
        lease["metadata"]["annotations"]["coordination-apiserver/step"].as_str().unwrap_or_default().to_owned()
    }

    /// Acquires the Lease `changed` as a client of kube-apiserver. Returns the status of the first refusal, or 200.
    fn acquire(&mut self) -> u16 {
        let path = path(NAMESPACE, "changed");
        let (status, mut lease) = self.ask_apiserver("GET", &path, "");
        if status != 200 {
            return status;
        }
        lease["spec"]["holderIdentity"] = "third".into();
        self.ask_apiserver("PUT", &path, &lease.to_string()).0
    }
}

fn failure(code: u16, message: &str) -> Answer {
    let reason = if code == 404 { "NotFound" } else { "" };
    let body = json!({
        "kind": "Status", "apiVersion": "v1", "status": "Failure", "message": message, "reason": reason, "code": code,
    });
    (code, body)
}

fn lock(cluster: &Mutex<Cluster>) -> MutexGuard<'_, Cluster> {
    cluster.lock().expect("no thread has panicked")
}

/// Starts the servers of the cluster on one port, and returns their URL. The first segment of a request's path names
/// the run of the command. The second segment names the server, `apiserver` or `replica`.
fn serve(cluster: &Arc<Mutex<Cluster>>) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let url = format!("http://{}", listener.local_addr().expect("bound"));
    let cluster = Arc::clone(cluster);
    thread::spawn(move || {
        for socket in listener.incoming() {
            let (socket, cluster) = (socket.expect("a connection"), Arc::clone(&cluster));
            thread::spawn(move || serve_one(socket, &cluster));
        }
    });
    url
}

/// Answers the one request of a connection.
fn serve_one(socket: TcpStream, cluster: &Mutex<Cluster>) -> io::Result<()> {
    let mut socket = BufReader::new(socket);
    let (mut line, mut body_len) = (String::new(), 0);
    socket.read_line(&mut line)?;
    loop {
        let mut field = String::new();
        socket.read_line(&mut field)?;
        let field = field.trim_end().to_ascii_lowercase();
        if field.is_empty() {
            break;
        }
        if let Some(value) = field.strip_prefix("content-length:") {
            body_len = value.trim().parse().expect("a length");
        }
    }
    let mut body = vec![0; body_len];
    socket.read_exact(&mut body)?;
    let words: Vec<_> = line.split(' ').collect();
    let [method, url, _] = words[..] else { return Ok(()) };
    let parts: Vec<_> = url.splitn(4, '/').collect();
    let [_, run, server, target] = parts[..] else { return Ok(()) };
    let request = Request {
        run: run.to_owned(),
        is_to_replica: server == "replica",
        method: method.to_owned(),
        target: format!("/{target}"),
        body: String::from_utf8_lossy(&body).into_owned(),
    };
    let mut cluster = lock(cluster);
    if cluster.killed.contains(&request.run) {
        drop(cluster);
        // The command is not really killed: its thread goes on. Here the thread waits until its own timeout, so that it
        // uses little of the processor.
        return socket.read_to_end(&mut Vec::new()).map(drop);
    }
    let answer = cluster.answer(&request);
    drop(cluster);
    let Some((status, body)) = answer else { return Ok(()) };
    let body = body.to_string();
    let head = format!("HTTP/1.1 {status} -\r\nContent-Length: {}\r\nConnection: close\r\n\r\n", body.len());
    socket.get_mut().write_all(format!("{head}{body}").as_bytes())
}

/// Runs the command until it ends or is killed. An error has the lines that the command has printed, and its error.
fn roll_back(cluster: &Mutex<Cluster>, url: &str, run: &str) -> Result<(), String> {
    let folder = tempfile::tempdir().expect("a folder");
    let kubeconfig = folder.path().join("kubeconfig");
    let apiserver = format!("{url}/{run}/apiserver");
    let text = format!(
        "{{clusters: [{{name: c, cluster: {{server: '{apiserver}', certificate-authority-data: Y2E=}}}}], \
         users: [{{name: u, user: {{}}}}], contexts: [{{name: c, context: {{cluster: c, user: u}}}}], \
         current-context: c}}"
    );
    fs::write(&kubeconfig, text).expect("written");
    let switch = SwitchArgs {
        kubeconfig,
        endpoints: vec![format!("{url}/{run}/replica")],
        kube_apiservers: vec![apiserver],
        without_etcd: true,
        dry_run: false,
    };
    let command = thread::spawn(move || {
        let mut lines = String::new();
        let mut say = |line: &str| lines.extend([line, "\n"]);
        let done = rollback(&RollbackArgs { cluster: switch, apiservice: None }, &mut say);
        done.map_err(|error| format!("{lines}{error}"))
    });
    let is_killed = || lock(cluster).killed.iter().any(|killed| killed == run);
    eventually("the end of the command", || command.is_finished() || is_killed());
    if command.is_finished() { command.join().expect("no panic") } else { Err("killed".to_owned()) }
}

/// Runs the command with a fault of one request. Then a client tries to acquire a Lease. Then the command runs again.
/// Returns whether the fault occurred: the first run may have fewer than `number` requests that can have it.
fn roll_back_twice(fault: Fault, number: usize) -> bool {
    let server = TestServer::start();
    let cluster = Arc::new(Mutex::new(Cluster::new(server.endpoint(), fault, number)));
    let url = serve(&cluster);
    if fault == Fault::Delayed {
        assert_eq!(roll_back(&cluster, &url, "earlier"), Err("killed".to_owned()));
    }
    let first = roll_back(&cluster, &url, "first");
    let mut changed = lock(&cluster);
    if let Some(body) = changed.delayed.take() {
        changed.ask_apiserver("PUT", API_SERVICE, &body);
    }
    let status = changed.acquire();
    drop(changed);
    let second = roll_back_again(&cluster, &url);

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

/// Runs the command a second time, without faults.
fn roll_back_again(cluster: &Mutex<Cluster>, url: &str) -> Result<(), String> {
    let second = roll_back(cluster, url, "second");
    // If this machine stalls, a read may exceed the command's limit of 1 s. Then the operator runs the command again.
    match second.as_ref().is_err_and(|why| why.ends_with("does not answer")) {
        true => roll_back(cluster, url, "second"),
        false => second,
    }
}

/// Makes rollbacks with the fault at the first request that can have it, at the second one, and so on. `attempt` makes
/// one with the fault at the request of this number, and returns whether the fault occurred.
fn check(attempt: impl Fn(usize) -> bool + Sync) {
    let (attempt, mut faults) = (&attempt, 0);
    loop {
        let has_fault: Vec<bool> = thread::scope(|scope| {
            let numbers = faults + 1..=faults + AT_ONCE;
            let rollbacks: Vec<_> = numbers.map(|number| scope.spawn(move || attempt(number))).collect();
            rollbacks.into_iter().map(|rollback| rollback.join().expect("no panic")).collect()
        });
        faults += has_fault.iter().filter(|has_fault| **has_fault).count();
        if has_fault.contains(&false) {
            break;
        }
    }
    assert!(faults >= FAULTS_MIN, "{faults}");
}

#[test]
fn a_rollback_with_a_refused_request_is_completed_by_the_next() {
    check(|number| roll_back_twice(Fault::Refused, number));
}

#[test]
fn a_rollback_with_an_unanswered_write_is_completed_by_the_next() {
    check(|number| roll_back_twice(Fault::Unanswered, number));
}

#[test]
fn a_killed_rollback_is_completed_by_the_next() {
    check(|number| roll_back_twice(Fault::Killed, number));
}

#[test]
fn a_delayed_request_of_a_killed_rollback_exposes_no_outdated_lease() {
    check(|number| roll_back_twice(Fault::Delayed, number));
}

#[test]
fn a_rollback_that_fails_beside_a_local_api_service_is_completed_by_the_next() {
    check(|number| roll_back_twice(Fault::MadeLocal, number));
}

/// Goal: the second run does not report success if it can no longer write the Leases. The policy has ended, or the
/// replica has lost the Lease of the hand-over.
#[test]
fn a_rollback_that_cannot_be_completed_is_too_late() {
    for has_handover in [true, false] {
        let server = TestServer::start();
        // The fault can occur once the policy has effect. The first request after that checks the effect. The second
        // request, which has the fault, begins the phase `hold`.
        let cluster = Arc::new(Mutex::new(Cluster::new(server.endpoint(), Fault::MadeLocal, 2)));
        let url = serve(&cluster);
        let first = roll_back(&cluster, &url, "first").expect_err("incomplete");
        assert!(first.contains("the rollback is incomplete: run it again at once"), "{first}");
        let mut changed = lock(&cluster);
        assert_eq!(changed.step_of_handover(), "serving");
        let policy = changed.objects.get_mut(POLICY).expect("the policy stays");
        if has_handover {
            policy["metadata"]["annotations"]["coordination-apiserver/end"] = "2020-01-01T00:00:00Z".into();
        } else {
            let (status, answer) = changed.ask_replica("DELETE", &path("kube-system", HANDOVER), "");
            assert_eq!(status, 200, "{answer}");
        }
        drop(changed);
        let second = roll_back(&cluster, &url, "second").expect_err("too late");
        assert!(second.contains("an earlier rollback was not complete when its admission policy ended"), "{second}");
        assert_eq!(lock(&cluster).step_of_handover(), "not-ours", "the replicas are told");
        assert!(!lock(&cluster).has_policy());
    }
}

/// Goal: a rollback overwrites no newer built-in Leases, and no lock gets a second holder, whichever request fails. An
/// earlier rollback was killed when the APIService was local, and its policy has ended. In built-in storage, a client
/// has acquired a lock, and a node has renewed its Lease. Then a tool has registered the Service again.
#[test]
fn a_rollback_after_writes_of_clients_to_built_in_storage_is_too_late() {
    check(roll_back_too_late);
}

/// Makes a rollback that is too late, with a fault at the request `number`, and then another one. Returns whether the
/// fault occurred.
fn roll_back_too_late(number: usize) -> bool {
    let server = TestServer::start();
    let cluster = Arc::new(Mutex::new(Cluster::new(server.endpoint(), Fault::Refused, number)));
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
    let cut = lock(&cluster);
    let what = format!("request {number} at {:?}: {first:?}", cut.step);
    assert_ne!(cut.step_of_handover(), "serving", "the client keeps its lock: {what}");
    let mark = &cut.objects[API_SERVICE]["metadata"]["annotations"]["coordination-apiserver/taken-over"];
    assert!(mark.is_null(), "no later run takes the Service for that of the takeover: {what}");
    drop(cut);
    let runs = [first, roll_back_again(&cluster, &url)];
    let is_too_late = |run: &Result<(), String>| {
        let too_late = "an earlier rollback was not complete when its admission policy ended";
        run.as_ref().is_err_and(|error| error.contains(too_late))
    };
    assert!(runs.iter().any(is_too_late), "{what}, {:?}", runs[1]);
    let cluster = lock(&cluster);
    assert_eq!(cluster.holders().get("changed"), Some(&"third"), "the client keeps its lock: {what}");
    assert_eq!(cluster.step_of_handover(), "not-ours", "the replicas are told: {what}");
    assert!(cluster.is_local() && !cluster.has_policy(), "{what}");
    cluster.step.is_some()
}
