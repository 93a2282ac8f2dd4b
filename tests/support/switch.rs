//! A simulated kube-apiserver and a real replica, for tests of the commands `takeover` and `rollback` with the flag
//! `--without-etcd`. In one run of a command, a chosen request has a fault. A real kube-apiserver does not fail at a
//! chosen request.
//!
//! Built-in storage is kube-apiserver's own storage of Leases. The APIService is local if it names no Service, so that
//! kube-apiserver serves the Leases in built-in storage.
//!
//! A command runs in this process, and makes the process ignore SIGHUP, SIGINT and SIGTERM.

use super::client::is_timeout;
use super::eventually_within;
use super::handover::{HANDOVER, NAMESPACE, try_call};
use super::lease::{path, version};
use super::stream::Endpoint;
use coordination_apiserver::cli::SwitchArgs;
use coordination_apiserver::switch::SwitchError;
use k8s_openapi::jiff::Timestamp;
use k8s_openapi::jiff::fmt::rfc2822::DateTimePrinter;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::fs;
use std::io::{self, BufRead as _, BufReader, Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::path::PathBuf;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::thread;
use std::time::Duration;
use tempfile::TempDir;

/// Namespace of the Leases of nodes.
pub(crate) const NODES: &str = "kube-node-lease";

// Paths at kube-apiserver.
pub(crate) const API_SERVICE: &str = "/apis/apiregistration.k8s.io/v1/apiservices/v1.coordination.k8s.io";
pub(crate) const POLICY: &str =
    "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicies/coordination-apiserver-switch";
pub(crate) const BINDING: &str =
    "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicybindings/coordination-apiserver-switch";
pub(crate) const LEASES: &str = "/apis/coordination.k8s.io/v1/";
pub(crate) const ALL_LEASES: &str = "/apis/coordination.k8s.io/v1/leases";
const CONFIG_MAP: &str = "/api/v1/namespaces/kube-system/configmaps/coordination-apiserver-switch";
const CANARY: &str = "/apis/apiregistration.k8s.io/v1/apiservices/v1.canary.coordination-apiserver.io";
/// Path of the API group of the canary, the test APIService of a takeover.
const CANARY_GROUP: &str = "/apis/canary.coordination-apiserver.io/";

/// Number of trials of [`count_faults`] that run at the same time. They mostly sleep.
const AT_ONCE: usize = 4;
/// Time after which a command counts as hung. Even on an idle machine, a command may wait for 10 s by itself.
const COMMAND_MAX: Duration = Duration::from_secs(120);
/// Time between two looks of a watch for new events.
const WATCH_EVERY: Duration = Duration::from_millis(10);

/// HTTP status and body of a response.
pub(crate) type Answer = (u16, Value);

/// A fault in a run of a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fault {
    /// The server answers a request with 500, and does not carry it out.
    Refused,
    /// The server carries out a write, and closes the connection without an answer.
    Unanswered,
    /// The server carries out a write. Then the command is killed.
    Killed,
    /// While the admission policy has effect, somebody makes the APIService local. The server refuses the request that
    /// the command sends next.
    MadeLocal,
    /// The command is killed. The server carries out a write of the command only at [`Cluster::carry_out_delayed`].
    Delayed,
}

/// The request that has a fault.
pub(crate) struct Plan {
    /// Name of the run with the fault.
    pub(crate) run: &'static str,
    pub(crate) fault: Fault,
    /// Number of the request with the fault, among the requests that can have it. Begins at 1.
    pub(crate) number: usize,
    /// Whether a request can have the fault, apart from the rules of the fault itself.
    pub(crate) can_fail: fn(&Cluster, &Request) -> bool,
}

/// A request of a command.
pub(crate) struct Request {
    /// Name of the command's run.
    run: String,
    /// Whether the command sends the request to the replica. Otherwise the request is to kube-apiserver.
    is_to_replica: bool,
    pub(crate) method: String,
    pub(crate) target: String,
    pub(crate) body: String,
}

/// A simulated kube-apiserver and a real replica.
pub(crate) struct Cluster {
    replica: Endpoint,
    /// Objects in the storage of kube-apiserver, by their paths.
    pub(crate) objects: BTreeMap<String, Value>,
    /// Last `resourceVersion` in the storage of kube-apiserver.
    version: u64,
    /// Events of all built-in Leases so far, for watches.
    events: Arc<Mutex<Vec<Value>>>,
    /// Whether kube-apiserver notices a change of the APIService late: after its answer to the next request for Leases.
    pub(crate) switches_late: bool,
    /// Whether the APIService named a Service after the last request for Leases.
    was_registered: bool,
    plan: Plan,
    /// Number of requests so far that could have the fault.
    counted: usize,
    /// Step of the hand-over just before the fault; `None` if no request had the fault.
    pub(crate) step: Option<String>,
    /// Names of the killed runs.
    killed: Vec<String>,
    /// Method, target and body of the delayed request.
    delayed: Option<[String; 3]>,
    /// Function that is called before each request. In it, clients of kube-apiserver may write objects.
    pub(crate) before_request: fn(&mut Cluster, &Request),
    /// Whether clients must not write built-in Leases now.
    must_be_closed: fn(&Cluster) -> bool,
    /// Whether clients could write built-in Leases when they must not.
    pub(crate) was_open: bool,
}

impl Cluster {
    /// Creates the cluster without Leases. The APIService names the Service of the replica.
    pub(crate) fn new(
        replica: Endpoint,
        plan: Plan,
        before_request: fn(&mut Self, &Request),
        must_be_closed: fn(&Self) -> bool,
    ) -> Self {
        Self {
            replica,
            objects: [(API_SERVICE.to_owned(), api_service())].into(),
            version: 1,
            events: Arc::default(),
            switches_late: false,
            was_registered: true,
            plan,
            counted: 0,
            step: None,
            killed: Vec::new(),
            delayed: None,
            before_request,
            must_be_closed,
            was_open: false,
        }
    }

    /// Replaces the plan, after a run that was only a preparation.
    pub(crate) fn replan(&mut self, plan: Plan) {
        (self.plan, self.counted, self.step) = (plan, 0, None);
    }

    /// Answers a request of a command. Returns `None` if the connection ends without an answer.
    fn answer(&mut self, request: &Request) -> Option<Answer> {
        (self.before_request)(self, request);
        let can_fail = self.can_fail(request);
        self.counted += usize::from(can_fail);
        let fails = can_fail && self.counted == self.plan.number;
        if fails {
            self.step = Some(self.step_of_handover());
            if self.plan.fault == Fault::MadeLocal {
                self.make_local();
            }
            if matches!(self.plan.fault, Fault::Refused | Fault::MadeLocal) {
                return Some(failure(500, "a fault"));
            }
        }
        let Request { run, method, target, body, .. } = request;
        if fails && self.plan.fault == Fault::Delayed {
            self.delayed = Some([method, target, body].map(Clone::clone));
            self.killed.push(run.clone());
            return None;
        }
        let answer = match request.is_to_replica {
            true => self.ask_replica(method, target, body),
            false => self.ask_apiserver(method, target, body),
        };
        if fails && self.plan.fault == Fault::Killed {
            self.killed.push(run.clone());
        }
        self.note_if_open();
        (!fails).then_some(answer)
    }

    /// Carries out the request that [`Fault::Delayed`] has delayed.
    pub(crate) fn carry_out_delayed(&mut self) {
        let [method, target, body] = self.delayed.take().expect("a delayed request");
        self.ask_apiserver(&method, &target, &body);
        self.note_if_open();
    }

    fn note_if_open(&mut self) {
        self.was_open |= !self.forwards() && !self.has_policy() && (self.must_be_closed)(self);
    }

    fn can_fail(&self, request: &Request) -> bool {
        let has_cause = match self.plan.fault {
            Fault::Refused => true,
            // Some requests change nothing in the cluster. For them, a lost answer has the same effect as a refusal. A
            // kill has the same effect as a kill after the last write.
            Fault::Unanswered | Fault::Killed | Fault::Delayed => {
                request.method != "GET" && !request.target.contains("dryRun")
            }
            Fault::MadeLocal => self.has_policy(),
        };
        has_cause && request.run == self.plan.run && (self.plan.can_fail)(self, request)
    }

    pub(crate) fn ask_replica(&self, method: &str, target: &str, body: &str) -> Answer {
        try_call(&self.replica, method, target, body).expect("an answer")
    }

    /// Answers a request to kube-apiserver. It forwards requests for the canary, and may forward those for Leases.
    pub(crate) fn ask_apiserver(&mut self, method: &str, target: &str, body: &str) -> Answer {
        let is_of_canary = target.starts_with(CANARY_GROUP) && self.objects.contains_key(CANARY);
        if !target.starts_with(LEASES) && !is_of_canary {
            return self.ask_storage(method, target, body);
        }
        let is_forbidden = method != "GET" && self.has_policy() && !self.is_permitted(method, target, body);
        let answer = match self.forwards() || is_of_canary {
            true => self.ask_replica(method, target, body),
            false if is_forbidden => failure(403, "the admission policy forbids it"),
            false => self.ask_storage(method, target, body),
        };
        self.was_registered = !self.is_local();
        answer
    }

    /// Whether kube-apiserver forwards requests for Leases to the replica.
    fn forwards(&self) -> bool {
        if self.switches_late { self.was_registered } else { !self.is_local() }
    }

    /// Whether the admission policy permits a write of a built-in Lease. The simulated policy of a takeover permits
    /// each update without a new holder. That of a rollback permits every deletion, since only the command deletes
    /// Leases in those tests.
    fn is_permitted(&self, method: &str, target: &str, body: &str) -> bool {
        if self.objects[POLICY]["metadata"]["annotations"]["coordination-apiserver/permitted"] != "renewals" {
            return method == "DELETE" || target.contains("fieldManager=coordination-apiserver-rollback");
        }
        let after: Value = serde_json::from_str(body).unwrap_or_default();
        let before = self.objects.get(target).map(|before| &before["spec"]["holderIdentity"]);
        method == "PUT" && before == Some(&after["spec"]["holderIdentity"])
    }

    /// Reads or writes an object in the storage of kube-apiserver.
    pub(crate) fn ask_storage(&mut self, method: &str, target: &str, body: &str) -> Answer {
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
                let metadata = json!({"resourceVersion": self.version.to_string()});
                let (kind, version) = ("LeaseList", "coordination.k8s.io/v1");
                (200, json!({"kind": kind, "apiVersion": version, "metadata": metadata, "items": items}))
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
            ("DELETE", Some(mut found)) => {
                self.objects.remove(&path);
                self.version += 1;
                found["metadata"]["resourceVersion"] = self.version.to_string().into();
                self.tell(&path, "DELETED", &found);
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
                    self.tell(&path, "MODIFIED", &object);
                    self.objects.insert(path, object.clone());
                }
                (200, object)
            }
        }
    }

    /// Adds an event for the watches of built-in Leases. A replica treats the types `ADDED` and `MODIFIED` alike.
    fn tell(&self, path: &str, kind: &str, object: &Value) {
        if path.starts_with(LEASES) {
            lock(&self.events).push(json!({"type": kind, "object": object}));
        }
    }

    pub(crate) fn has_policy(&self) -> bool {
        [POLICY, BINDING].iter().all(|path| self.objects.contains_key(*path))
    }

    pub(crate) fn is_local(&self) -> bool {
        self.objects[API_SERVICE]["spec"]["service"].is_null()
    }

    /// Makes the APIService local. kube-apiserver notices it at once.
    pub(crate) fn make_local(&mut self) {
        self.set_service(Value::Null);
    }

    /// Registers the Service in the APIService again, as a GitOps tool does. kube-apiserver notices it at once.
    pub(crate) fn register(&mut self) {
        self.set_service(api_service()["spec"]["service"].clone());
    }

    fn set_service(&mut self, service: Value) {
        (self.version, self.was_registered) = (self.version + 1, !service.is_null());
        let found = self.objects.get_mut(API_SERVICE).expect("the APIService");
        found["spec"]["service"] = service;
        found["metadata"]["resourceVersion"] = self.version.to_string().into();
    }

    /// Returns the built-in Leases and their paths.
    pub(crate) fn leases(&self) -> impl Iterator<Item = (&String, &Value)> {
        self.objects.iter().filter(|(path, _)| path.starts_with(LEASES))
    }

    /// Returns the holder of each built-in Lease, by the name of the Lease.
    pub(crate) fn holders(&self) -> BTreeMap<&str, &str> {
        holders(self.leases().map(|(_, lease)| lease))
    }

    pub(crate) fn step_of_handover(&self) -> String {
        let (_, lease) = self.ask_replica("GET", &path("kube-system", HANDOVER), "");
        lease["metadata"]["annotations"]["coordination-apiserver/step"].as_str().unwrap_or_default().to_owned()
    }
}

/// Returns the holder of each Lease, by the name of the Lease.
pub(crate) fn holders<'l>(leases: impl Iterator<Item = &'l Value>) -> BTreeMap<&'l str, &'l str> {
    let holders = leases.map(|lease| {
        let holder = lease["spec"]["holderIdentity"].as_str().unwrap_or_default();
        (lease["metadata"]["name"].as_str().unwrap_or_default(), holder)
    });
    holders.collect()
}

/// Acquires the Lease `changed` as the client `holder`, which sends its requests by `ask`. Returns the status of the
/// first refusal, or 200.
pub(crate) fn acquire(holder: &str, mut ask: impl FnMut(&str, &str, &str) -> Answer) -> u16 {
    let path = path(NAMESPACE, "changed");
    let (status, mut lease) = ask("GET", &path, "");
    if status != 200 {
        return status;
    }
    lease["spec"]["holderIdentity"] = holder.into();
    ask("PUT", &path, &lease.to_string()).0
}

/// Returns the APIService that names the Service of the replica.
fn api_service() -> Value {
    json!({
        "kind": "APIService", "apiVersion": "apiregistration.k8s.io/v1",
        "metadata": {
            "name": "v1.coordination.k8s.io", "uid": "u", "resourceVersion": "1",
            "annotations": {"coordination-apiserver/taken-over": "true"},
        },
        "spec": {
            "group": "coordination.k8s.io", "version": "v1", "groupPriorityMinimum": 16500, "versionPriority": 15,
            "caBundle": "Y2E=", "service": {"name": "coordination-apiserver", "namespace": "kube-system"},
        },
    })
}

fn failure(code: u16, message: &str) -> Answer {
    let reason = if code == 404 { "NotFound" } else { "" };
    let body = json!({
        "kind": "Status", "apiVersion": "v1", "status": "Failure", "message": message, "reason": reason, "code": code,
    });
    (code, body)
}

pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().expect("no thread has panicked")
}

/// Starts the servers of the cluster on one port, and returns their URL. The first segment of a request's path names
/// the run of the command, such as `first`. The second segment names the server, `apiserver` or `replica`.
pub(crate) fn serve(cluster: &Arc<Mutex<Cluster>>) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let url = format!("http://{}", listener.local_addr().expect("bound"));
    // A watch needs no lock of the cluster. So `Cluster::before_request` can wait until the replica has an event.
    let (cluster, events) = (Arc::clone(cluster), Arc::clone(&lock(cluster).events));
    thread::spawn(move || {
        for socket in listener.incoming() {
            let socket = socket.expect("a connection");
            let (cluster, events) = (Arc::clone(&cluster), Arc::clone(&events));
            thread::spawn(move || serve_one(socket, &cluster, &events));
        }
    });
    url
}

/// Answers the one request of a connection.
fn serve_one(socket: TcpStream, cluster: &Mutex<Cluster>, events: &Mutex<Vec<Value>>) -> io::Result<()> {
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
    if target.contains("watch=true") {
        return serve_watch(socket, target, events);
    }
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
        // The command is not really killed: its thread goes on. Without an answer, the thread waits until its own
        // timeout, and so uses little of the processor.
        return socket.read_to_end(&mut Vec::new()).map(drop);
    }
    let answer = cluster.answer(&request);
    drop(cluster);
    let Some((status, body)) = answer else { return Ok(()) };
    let (body, date) = (body.to_string(), DateTimePrinter::new().timestamp_to_rfc9110_string(&Timestamp::now()));
    let date = date.expect("the present year has four digits");
    let head =
        format!("HTTP/1.1 {status} -\r\nDate: {date}\r\nContent-Length: {}\r\nConnection: close\r\n\r\n", body.len());
    socket.get_mut().write_all(format!("{head}{body}").as_bytes())
}

/// Answers a watch of built-in Leases, until the client closes the connection.
fn serve_watch(mut socket: BufReader<TcpStream>, target: &str, events: &Mutex<Vec<Value>>) -> io::Result<()> {
    let begin = target.split_once("resourceVersion=").and_then(|(_, text)| text.split('&').next()?.parse().ok());
    let begin: u64 = begin.expect("a resourceVersion");
    socket.get_mut().write_all(b"HTTP/1.1 200 -\r\nConnection: close\r\n\r\n")?;
    socket.get_ref().set_read_timeout(Some(WATCH_EVERY))?;
    let mut sent = 0;
    loop {
        let new = lock(events)[sent..].to_vec();
        sent += new.len();
        for event in new.iter().filter(|event| version(&event["object"]) > begin) {
            socket.get_mut().write_all(format!("{event}\n").as_bytes())?;
        }
        match socket.read(&mut [0]) {
            Err(error) if is_timeout(&error) => {}
            closed => return closed.map(drop),
        }
    }
}

/// Writes a kubeconfig for the server at `url`. Returns its path, and its folder, which is deleted when the returned
/// value is dropped.
pub(crate) fn write_kubeconfig(url: &str) -> (PathBuf, TempDir) {
    let text = format!(
        "{{clusters: [{{name: c, cluster: {{server: '{url}', certificate-authority-data: Y2E=}}}}], \
         users: [{{name: u, user: {{}}}}], contexts: [{{name: c, context: {{cluster: c, user: u}}}}], \
         current-context: c}}"
    );
    write_file("kubeconfig", &text)
}

/// Writes the file for the flag `--apiservice`, like [`write_kubeconfig`].
pub(crate) fn write_api_service() -> (PathBuf, TempDir) {
    write_file("apiservice.yaml", &api_service().to_string())
}

fn write_file(name: &str, text: &str) -> (PathBuf, TempDir) {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join(name);
    fs::write(&file, text).expect("written");
    (file, folder)
}

/// Runs a command until it ends or is killed. `url` is the URL of the simulated servers, and `run` the name of the run.
/// An error has the lines that the command has printed, and its error.
pub(crate) fn run(
    cluster: &Mutex<Cluster>,
    url: &str,
    run: &str,
    command: impl FnOnce(SwitchArgs, &mut dyn FnMut(&str)) -> Result<(), SwitchError> + Send + 'static,
) -> Result<(), String> {
    let apiserver = format!("{url}/{run}/apiserver");
    let (kubeconfig, _folder) = write_kubeconfig(&apiserver);
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
        let done = command(switch, &mut say);
        done.map_err(|error| format!("{lines}{error}"))
    });
    let is_killed = || lock(cluster).killed.iter().any(|killed| killed == run);
    eventually_within(COMMAND_MAX, "the end of the command", || command.is_finished() || is_killed());
    if is_killed() { Err("killed".to_owned()) } else { command.join().expect("no panic") }
}

/// Whether a command has failed because the machine is busy: a read has exceeded the command's limit of 1 s.
pub(crate) fn is_late(ended: &Result<(), String>) -> bool {
    ended.as_ref().is_err_and(|why| why.ends_with("does not answer"))
}

/// Runs a command that has no fault. If the command is [late](is_late), runs it again, as an operator would.
pub(crate) fn run_without_fault(mut run: impl FnMut() -> Result<(), String>) -> Result<(), String> {
    let ended = run();
    if is_late(&ended) { run() } else { ended }
}

/// Makes trials with the numbers 1, 2 and so on, until a trial has no fault. In a trial, the request with the trial's
/// number has the fault. `has_fault` makes a trial, and returns whether there was such a request. Returns the number of
/// trials with a fault.
pub(crate) fn count_faults(has_fault: impl Fn(usize) -> bool + Sync) -> usize {
    let (next, end) = (AtomicUsize::new(1), AtomicUsize::new(usize::MAX));
    thread::scope(|scope| {
        for _ in 0..AT_ONCE {
            scope.spawn(|| {
                loop {
                    let number = next.fetch_add(1, Ordering::Relaxed);
                    if number >= end.load(Ordering::Relaxed) {
                        break;
                    }
                    if !has_fault(number) {
                        end.fetch_min(number, Ordering::Relaxed);
                    }
                }
            });
        }
    });
    end.into_inner() - 1
}
