//! Tests of the commands `takeover` and `rollback` with fake kube-apiservers and replicas: HTTP servers without TLS.
//! The commands request phases of their work from the replicas. An APIService is local if it names no Service, so that
//! kube-apiserver serves its own Leases.

use super::checks::check_copies;
use super::clients::{Clients, Server};
use super::lease::Lease;
use super::live::{await_stores, unconfirmed};
use super::phase::{Claim, Handover};
use super::policy::{Installed, await_effect, put};
use super::rollback::{check_phase, end_incomplete, tell_given_back};
use super::takeover::{check_imported, check_service, read_api_service, register, switch};
use super::without_etcd::{TOO_LATE, hold};
use super::{
    AUTOMANAGED, CONFLICT, NOT_FOUND, Report, TAKEN_OVER, await_local, await_switch, make_local,
    make_local_if_registered, names_service, replace_api_service,
};
use crate::handover::{ASKED, MESSAGE, NAME, PHASE, Phase, STEP, Step};
use k8s_openapi::kube_aggregator::pkg::apis::apiregistration::v1::APIService;
use kube::api::PostParams;
use serde_json::{Value, json};
use std::fs;
use std::io::{self, BufRead as _, BufReader, Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};
use tokio::runtime;

const WANTED: &str = "
apiVersion: apiregistration.k8s.io/v1
kind: APIService
metadata:
  name: v1.coordination.k8s.io
  labels: {app: coordination-apiserver}
spec:
  group: coordination.k8s.io
  version: v1
  groupPriorityMinimum: 16500
  versionPriority: 15
  caBundle: Y2E=
  service: {name: coordination-apiserver, namespace: kube-system, port: 443}
";

fn read(text: &str) -> Result<APIService, String> {
    let dir = tempfile::tempdir().expect("a folder");
    let file = dir.path().join("apiservice.yaml");
    fs::write(&file, text).expect("written");
    read_api_service(&file).map_err(|error| error.to_string().replace(&file.display().to_string(), "FILE"))
}

fn local() -> APIService {
    serde_json::from_value(json!({
        "metadata": {"name": "v1.coordination.k8s.io", "labels": {AUTOMANAGED: "onstart"}, "resourceVersion": "7"},
        "spec": {"group": "coordination.k8s.io", "version": "v1", "groupPriorityMinimum": 16500, "versionPriority": 15},
    }))
    .expect("an APIService")
}

#[test]
fn registration_replaces_spec_and_label_and_can_be_undone() {
    let wanted = read(WANTED).expect("an APIService");
    let mut service = local();
    register(&mut service, &wanted);
    assert!(names_service(&service));
    assert_eq!(service.spec, wanted.spec);
    assert_eq!(service.metadata.resource_version.as_deref(), Some("7"), "somebody else's change is not undone");
    let labels = service.metadata.labels.clone().expect("labels");
    assert_eq!(labels.into_iter().collect::<Vec<_>>(), [("app".to_owned(), "coordination-apiserver".to_owned())]);
    assert!(service.metadata.annotations.as_ref().is_some_and(|all| all.contains_key(TAKEN_OVER)));
    make_local(&mut service);
    assert!(!names_service(&service));
    assert_eq!((&service.spec, &service.metadata.annotations), (&local().spec, &None));
    assert_eq!(service.metadata.labels.expect("labels").get(AUTOMANAGED).map(String::as_str), Some("onstart"));
}

#[test]
fn the_api_service_is_found_among_other_objects() {
    let file = format!("---\nkind: Service\nmetadata: {{name: v1.coordination.k8s.io}}\n---{WANTED}---\nkind: Role\n");
    assert_eq!(read(&file), read(WANTED));
}

#[test]
fn a_file_without_a_whole_api_service_is_refused() {
    for (text, says) in [
        (WANTED.replace("v1.coordination.k8s.io", "v1.apps"), "no APIService v1.coordination.k8s.io in it"),
        (WANTED.replace("kind: APIService", "kind: Service"), "no APIService v1.coordination.k8s.io in it"),
        (WANTED.replace("  caBundle: Y2E=\n", ""), "no service or no caBundle"),
        (WANTED.replace("Y2E=", "Y2E"), "the caBundle is not Base64 (Invalid padding); write the file again"),
        (WANTED.replace("16500", "many"), "the APIService is malformed: invalid type"),
        ("\0".to_owned(), "no APIService"),
    ] {
        let error = read(&text).expect_err("no APIService");
        assert!(error.starts_with("--apiservice FILE: ") && error.contains(says), "{error}");
    }
}

#[test]
fn a_takeover_refuses_the_service_of_another_server() {
    let wanted = read(WANTED).expect("an APIService");
    let refusal = |present: &APIService| check_service(present, &wanted).err().map(|error| error.to_string());
    assert_eq!(refusal(&local()), None);
    assert_eq!(refusal(&read(&WANTED.replace("443", "8443")).expect("an APIService")), None);
    let other = read(&WANTED.replace("namespace: kube-system", "namespace: other")).expect("an APIService");
    let error = refusal(&other).expect("another Service");
    assert!(error.starts_with("the APIService names the Service other/coordination-apiserver instead of"), "{error}");
}

#[test]
fn a_dry_run_refuses_what_a_rollback_refuses() {
    let refuses = |phase, step| check_phase(&Handover { phase, step, ..Handover::default() }).is_err();
    assert!(refuses(None, None) && refuses(Some(Phase::Copy), None) && refuses(Some(Phase::Hold), None));
    assert!(!refuses(Some(Phase::Hold), Some(Step::NotOurs)) && !refuses(Some(Phase::Serve), Some(Step::Serving)));
}

#[test]
fn the_handover_lease_gives_phase_and_step() {
    let lease: Lease = serde_json::from_value(json!({
        "metadata": {"uid": "u", "resourceVersion": "7", "annotations": {PHASE: "import", STEP: "imported", MESSAGE: "7 Leases are here"}},
    }))
    .expect("a Lease");
    let message = "7 Leases are here".to_owned();
    let uid = Some("u".to_owned());
    let (phase, step) = (Some(Phase::Import), Some(Step::Imported));
    let seen = Handover { uid, version: "7".to_owned(), phase, step, message, ..Handover::default() };
    assert_eq!(Handover::of(Some(&lease)), seen);
    assert_eq!(Handover::of(None), Handover::default());
}

#[test]
fn leases_are_given_back_once_the_api_service_has_named_no_service() {
    for phase in [Phase::Serve, Phase::Undo, Phase::Freeze, Phase::Hold] {
        let seen = |step| Handover { phase: Some(phase), step, ..Handover::default() };
        assert!(seen(Some(Step::NotOurs)).is_given_back() && !seen(None).is_given_back(), "{phase}");
    }
}

/// Response of a fake server: the HTTP status and the body. With `None`, the server closes the connection.
type Answer = Option<(u16, Value)>;

/// Starts a fake server, and returns its URL. Each connection has a thread of its own, in which `answer` gets the
/// request line. So a request that `answer` leaves without an answer delays no other request.
pub(super) fn serve(answer: impl Fn(&str) -> Answer + Send + Sync + 'static) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let url = format!("http://{}", listener.local_addr().expect("bound"));
    let answer = Arc::new(answer);
    thread::spawn(move || {
        for socket in listener.incoming() {
            let (socket, answer) = (socket.expect("a connection"), Arc::clone(&answer));
            thread::spawn(move || serve_one(socket, &*answer));
        }
    });
    url
}

/// Answers the one request of a connection. Fails if the client closes the connection earlier.
fn serve_one(socket: TcpStream, answer: &dyn Fn(&str) -> Answer) -> io::Result<()> {
    let mut socket = BufReader::new(socket);
    let (mut request, mut body_len) = (String::new(), 0);
    socket.read_line(&mut request)?;
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
    socket.read_exact(&mut vec![0; body_len])?;
    let Some((status, body)) = answer(&request) else { return Ok(()) };
    let body = body.to_string();
    let head = format!("HTTP/1.1 {status} -\r\nContent-Length: {}\r\nConnection: close\r\n\r\n", body.len());
    socket.get_mut().write_all(format!("{head}{body}").as_bytes())
}

fn run<T>(work: impl Future<Output = T>) -> T {
    runtime::Builder::new_current_thread().enable_all().build().expect("a runtime").block_on(work)
}

/// Returns the answer to a request for a missing object.
pub(super) fn missing() -> Answer {
    let (status, reason) = ("Failure", "NotFound");
    let body = json!({"kind": "Status", "apiVersion": "v1", "status": status, "reason": reason, "code": NOT_FOUND});
    Some((NOT_FOUND, body))
}

/// Returns the answer of a replica in the phase `serve`, with the id of the last request for a phase.
fn serving(asked: &str) -> Answer {
    let annotations = json!({PHASE: "serve", STEP: "serving", ASKED: asked});
    Some((200, json!({"metadata": {"uid": "u", "annotations": annotations}})))
}

#[test]
fn a_command_that_loses_its_claim_after_a_conflict_does_not_replace_the_api_service() {
    let writes = Arc::new(AtomicUsize::new(0));
    let (counted, seen) = (Arc::clone(&writes), Arc::clone(&writes));
    let apiserver = serve(move |request| {
        let is_refused = request.starts_with("PUT") && counted.fetch_add(1, Ordering::SeqCst) == 0;
        if is_refused { Some((CONFLICT, json!("changed"))) } else { Some((200, json!(local()))) }
    });
    let replica = serve(move |_| serving(if seen.load(Ordering::SeqCst) == 0 { "ours" } else { "another" }));
    run(async {
        let clients = Clients::without_tls(&apiserver, &replica);
        let mut claim = Claim::of(&Handover { asked: "ours".to_owned(), ..Handover::default() });
        let check = async || claim.check(&clients).await;
        let replaced = replace_api_service(&clients, &PostParams::default(), check, make_local).await;
        assert!(replaced.is_err() && claim.is_lost(), "{replaced:?}");
    });
    assert_eq!(writes.load(Ordering::SeqCst), 1, "the APIService of the other command stays");
}

/// Goal: a command does not repeat the last import of a complete takeover. The import would replace newer Leases of the
/// replicas by built-in ones. Method: the takeover of a killed command becomes complete after the start of the next
/// command.
#[test]
fn a_takeover_that_has_become_complete_requests_no_phase() {
    let wanted = read(WANTED).expect("an APIService");
    let (registered, writes) = (json!(wanted), Arc::new(AtomicUsize::new(0)));
    let counted = Arc::clone(&writes);
    let server = serve(move |request| {
        if request.contains("/apiservices/") {
            return Some((200, registered.clone()));
        }
        counted.fetch_add(usize::from(request.starts_with("PUT")), Ordering::SeqCst);
        serving("ours")
    });
    let mut say = |_: &str| {};
    let switched = run(async {
        let clients = Clients::without_tls(&server, &server);
        let mut claim = Claim::of(&Handover { asked: "ours".to_owned(), ..Handover::default() });
        switch(&clients, &wanted, &mut claim, &mut Report::new(&mut say)).await
    });
    assert_eq!(switched.map_err(|error| error.to_string()), Ok(()));
    assert_eq!(writes.load(Ordering::SeqCst), 0);
}

#[test]
fn a_cancellation_keeps_the_api_service_of_a_later_takeover() {
    let writes = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&writes);
    let apiserver = serve(move |request| {
        counted.fetch_add(usize::from(request.starts_with("PUT")), Ordering::SeqCst);
        Some((200, json!(read(WANTED).expect("an APIService"))))
    });
    let replica = serve(|_| serving("another"));
    let made_local = run(async { make_local_if_registered(&Clients::without_tls(&apiserver, &replica)).await });
    assert_eq!(made_local.map_err(|error| error.to_string()), Err("another command is at work".to_owned()));
    assert_eq!(writes.load(Ordering::SeqCst), 0);
}

#[test]
fn an_object_that_another_command_deletes_is_created_again() {
    let is_deleted = AtomicBool::new(false);
    let apiserver = serve(move |request| {
        is_deleted.fetch_or(request.starts_with("PUT"), Ordering::SeqCst);
        let is_present = request.starts_with("POST") || !is_deleted.load(Ordering::SeqCst);
        if is_present { Some((200, json!(local()))) } else { missing() }
    });
    let replica = serve(|_| serving("ours"));
    let existed = run(async { put(&Clients::without_tls(&apiserver, &replica).api_services(), local()).await });
    assert_eq!(existed.map_err(|error| error.to_string()), Ok(false));
}

#[test]
fn a_rollback_stops_for_a_replica_that_answers_without_its_store() {
    let outcome = |answer: Answer| {
        let replica =
            serve(move |request| if request.contains("/readyz/journal") { answer.clone() } else { missing() });
        run(async { await_stores(&Clients::without_tls(&replica, &replica), Duration::ZERO).await })
            .map_err(|error| error.to_string().replace(&replica, "URL"))
    };
    let error = outcome(Some((503, json!("behind")))).expect_err("without its store");
    assert!(error.starts_with("replica URL: ") && error.contains("stop it"), "{error}");
    assert_eq!(outcome(Some((200, json!("ok")))), Ok(()));
    assert_eq!(outcome(missing()), Ok(()), "a server without a store");
    assert_eq!(outcome(None), Ok(()), "a dead replica");
}

#[test]
fn a_kube_apiserver_that_was_silent_during_a_rollback_is_reported() {
    for (silent, reports) in [(0, 0), (2, 1)] {
        let asked = AtomicUsize::new(0);
        let apiserver = serve(move |_| if asked.fetch_add(1, Ordering::SeqCst) < silent { None } else { missing() });
        let replica = serve(|_| serving("ours"));
        let mut lines = Vec::new();
        let mut say = |line: &str| lines.push(line.to_owned());
        run(async { await_local(&Clients::without_tls(&apiserver, &replica), &mut Report::new(&mut say)).await })
            .expect("switched");
        assert_eq!(lines.len(), reports, "{lines:?}");
        let is_named = |line: &String| line.contains(&apiserver) && line.contains("restart its clients");
        assert!(lines.iter().all(is_named), "{lines:?}");
    }
}

#[test]
fn a_kube_apiserver_that_answers_after_the_limit_is_not_silent() {
    let apiserver = serve(|_| serving("ours"));
    let replica = serve(|_| serving("ours"));
    run(async {
        let clients = Clients::without_tls(&apiserver, &replica);
        let probe = async |apiserver: &Server| apiserver.get("/livez/ping").await.map(drop);
        await_effect(&clients, Instant::now(), Duration::ZERO, probe).await.expect("the last probe");
        let error = await_switch(&clients, false, Duration::ZERO).await.expect_err("it still forwards").to_string();
        assert!(error.ends_with("has not switched"), "{error}");
        assert!(!clients.apiservers()[0].was_silent());
    });
}

/// Goal: a rollback tells the replicas that the APIService is local, unless they know it or follow another command.
#[test]
fn a_rollback_tells_the_replicas_that_kube_apiserver_has_the_leases() {
    let outcome = |asked: &'static str, step: &'static str| {
        let writes = Arc::new(AtomicUsize::new(0));
        let counted = Arc::clone(&writes);
        let replica = serve(move |request| {
            counted.fetch_add(usize::from(request.starts_with("PUT")), Ordering::SeqCst);
            Some((200, json!({"metadata": {"uid": "u", "annotations": {PHASE: "freeze", STEP: step, ASKED: asked}}})))
        });
        let mut lines = 0;
        let mut say = |_: &str| lines += 1;
        run(async {
            let clients = Clients::without_tls(&replica, &replica);
            let mut claim = Claim::of(&Handover { asked: "ours".to_owned(), ..Handover::default() });
            tell_given_back(&clients, &mut claim, &mut Report::new(&mut say)).await;
        });
        (writes.load(Ordering::SeqCst), lines)
    };
    assert_eq!(outcome("ours", "written-back"), (1, 0));
    assert_eq!(outcome("ours", "not-ours"), (0, 0), "the replicas know it");
    assert_eq!(outcome("another", "written-back"), (0, 0), "the replicas follow another command");
}

/// Goal: a rollback without etcd whose admission policy somebody has deleted does not report success, even if the
/// replicas still serve. And a rollback cancels an incomplete takeover. It also writes the APIService, although the
/// APIService is local. So a delayed request of the takeover to register the Service fails.
#[test]
fn a_rollback_that_has_lost_its_policy_is_too_late() {
    let outcome_of = |phase: &'static str, step: &'static str, without_etcd, is_dry_run| {
        let writes = Arc::new([0, 0].map(AtomicUsize::new));
        let (counted, seen) = (Arc::clone(&writes), Arc::clone(&writes));
        let apiserver = serve(move |request| {
            counted[1].fetch_add(usize::from(request.starts_with("PUT")), Ordering::SeqCst);
            if request.contains("/apiservices/") { Some((200, json!(local()))) } else { missing() }
        });
        let replica = serve(move |request| {
            let written = usize::from(request.starts_with("PUT"));
            let has_written = seen[0].fetch_add(written, Ordering::SeqCst) + written > 0;
            let step = if has_written { "not-ours" } else { step };
            Some((200, json!({"metadata": {"uid": "u", "annotations": {PHASE: phase, STEP: step}}})))
        });
        let mut say = |_: &str| {};
        let mut report = Report::new(&mut say);
        let ended = run(async {
            let clients = Clients::without_tls(&apiserver, &replica);
            end_incomplete(&clients, without_etcd, is_dry_run, &mut report).await
        });
        (ended.map_err(|error| error.to_string()), writes.each_ref().map(|count| count.load(Ordering::SeqCst)))
    };
    let outcome = |phase, step, is_dry_run| outcome_of(phase, step, true, is_dry_run);
    let too_late = || Err(TOO_LATE.to_owned());
    assert_eq!(outcome("hold", "released", false), (too_late(), [1, 0]), "the command ends the rollback");
    assert_eq!(outcome("hold", "released", true), (too_late(), [0, 0]));
    assert_eq!(outcome("hold", "not-ours", false), (Ok(()), [0, 0]), "a complete rollback");
    assert_eq!(outcome("serve", "", false), (Ok(()), [1, 1]), "an incomplete takeover is cancelled");
    assert_eq!(outcome("serve", "", true), (Ok(()), [0, 0]));
    assert_eq!(outcome("serve", "serving", false), (too_late(), [1, 0]), "a complete takeover without a rollback");
    assert_eq!(outcome("serve", "serving", true), (too_late(), [0, 0]));
    assert_eq!(outcome_of("serve", "serving", false, false), (Ok(()), [0, 0]), "the replicas will notice it");
    assert_eq!(outcome("serve", "not-ours", false), (Ok(()), [0, 0]), "the replicas know it");
}

/// Goal: a failed rollback without etcd keeps its admission policy while only the policy protects outdated built-in
/// Leases: the APIService is local, and the replicas do not know it.
#[test]
fn a_rollback_that_fails_beside_a_local_api_service_keeps_its_policy() {
    let outcome = |step: &'static str| {
        let writes = Arc::new([0, 0].map(AtomicUsize::new));
        let counted = Arc::clone(&writes);
        let server = serve(move |request| {
            if request.contains("/apiservices/") {
                return Some((200, json!(local())));
            }
            if request.contains("/validatingadmissionpolicies/") {
                counted[1].fetch_add(1, Ordering::SeqCst);
                return missing();
            }
            if request.starts_with("PUT") {
                counted[0].fetch_add(1, Ordering::SeqCst);
                return Some((500, json!("refused")));
            }
            Some((200, json!({"metadata": {"uid": "u", "annotations": {PHASE: "serve", STEP: step, ASKED: "ours"}}})))
        });
        let mut say = |_: &str| {};
        let held = run(async {
            let clients = Clients::without_tls(&server, &server);
            let policy = Installed::with_left("7", Duration::from_secs(60));
            let mut claim = Claim::of(&Handover { asked: "ours".to_owned(), ..Handover::default() });
            hold(&clients, &policy, Duration::from_secs(15), false, &mut claim, &mut Report::new(&mut say)).await
        });
        (held.expect_err("not held").to_string(), writes.each_ref().map(|count| count.load(Ordering::SeqCst)))
    };
    let (error, writes) = outcome("serving");
    assert!(error.starts_with("the rollback is incomplete: run it again at once: "), "{error}");
    assert_eq!(writes, [1, 0], "only the request to stop all writes, and no deletion of the policy");
    let (error, [phases, policies]) = outcome("not-ours");
    assert!(error.starts_with("somebody has made the APIService local"), "{error}");
    assert!(phases == 0 && policies > 0, "{phases} {policies}");
}

#[test]
fn replicas_that_do_not_confirm_a_phase_are_named() {
    let identity = |name: &str, asked: &str| {
        let labels = json!({"kubernetes.io/hostname": "h"});
        json!({"metadata": {"name": name, "namespace": "n", "labels": labels, "annotations": {ASKED: asked}}})
    };
    let told = |other: &str| {
        let items = [identity("one", "now"), identity("other", other)];
        let list = json!({"kind": "LeaseList", "apiVersion": "coordination.k8s.io/v1", "metadata": {}, "items": items});
        let replica = serve(move |request| request.contains("resourceVersion=0").then(|| (200, list.clone())));
        run(async { unconfirmed(&Clients::without_tls(&replica, &replica), "now").await })
    };
    assert_eq!(told("now"), None);
    let told = told("before").expect("an unconfirmed replica");
    assert!(told.starts_with("not confirmed by replica other on host h: "), "{told}");
}

/// Goal: a command of an older release does not act in a phase that a newer release has begun.
#[test]
fn a_phase_of_a_newer_release_is_refused() {
    let writes = Arc::new(AtomicUsize::new(0));
    let serve_object = |object: Value| {
        let counted = Arc::clone(&writes);
        serve(move |request| {
            counted.fetch_add(usize::from(!request.starts_with("GET")), Ordering::SeqCst);
            Some((200, object.clone()))
        })
    };
    let apiserver = serve_object(json!(local()));
    let annotations = json!({PHASE: "thaw", STEP: "held", ASKED: "a"});
    let replica = serve_object(json!({"metadata": {"uid": "u", "annotations": annotations}}));
    let expected = "this release does not know the phase \"thaw\" of the hand-over: run the command of the release \
                    that began this phase";
    run(async {
        let clients = Clients::without_tls(&apiserver, &replica);
        let seen = Handover::seen(&clients).await.expect("a replica that responds");
        assert_eq!((seen.phase, seen.to_string()), (None, "thaw, held".to_owned()));
        let started = Handover::seen_at_start(&clients).await;
        assert_eq!(started.map_err(|error| error.to_string()), Err(expected.to_owned()));
        let mut say = |_: &str| {};
        for is_dry_run in [false, true] {
            let ended = end_incomplete(&clients, true, is_dry_run, &mut Report::new(&mut say)).await;
            assert_eq!(ended.map_err(|error| error.to_string()), Err(expected.to_owned()));
        }
    });
    assert_eq!(writes.load(Ordering::SeqCst), 0);
}

/// Returns a Lease with a UID, and with a `renewTime` in this second.
fn lease(uid: &str, second: u32) -> Value {
    let renewed = format!("2026-01-01T00:00:{second:02}.000000Z");
    json!({"metadata": {"namespace": "n", "name": "l", "uid": uid}, "spec": {"renewTime": renewed}})
}

/// Starts a fake server. Its list of Leases contains the Lease `listed`, if any. A later read of this single Lease
/// returns `present`, as if the Lease had changed since the list.
fn serve_lease(listed: Option<Value>, present: Option<Value>) -> String {
    let list = json!({"kind": "LeaseList", "apiVersion": "coordination.k8s.io/v1", "metadata": {}, "items": Vec::from_iter(listed)});
    serve(move |request| match (request.contains("/leases/"), &present) {
        (false, _) => Some((200, list.clone())),
        (true, Some(lease)) => Some((200, lease.clone())),
        (true, None) => missing(),
    })
}

#[test]
fn the_replicas_must_have_current_copies_of_the_leases_that_kube_apiserver_serves() {
    let outcome = |present: Option<Value>, copy: Option<Value>| {
        let apiserver = serve_lease(Some(lease("u", 5)), present);
        let replica = serve_lease(copy.clone(), copy);
        run(async { check_copies(&Clients::without_tls(&apiserver, &replica), Duration::ZERO).await })
            .map_err(|error| error.to_string())
    };
    let present = || Some(lease("u", 5));
    for copy in [None, Some(lease("v", 5)), Some(lease("u", 4))] {
        let error = outcome(present(), copy).expect_err("another etcd");
        assert!(error.contains("Lease n/l") && error.contains("--etcd-servers-overrides"), "{error}");
    }
    assert_eq!(outcome(present(), present()), Ok(()));
    assert_eq!(outcome(present(), Some(lease("u", 6))), Ok(()), "renewed meanwhile");
    assert_eq!(outcome(None, None), Ok(()), "deleted meanwhile");
    assert_eq!(outcome(Some(lease("v", 3)), Some(lease("v", 3))), Ok(()), "created again meanwhile");
}

/// Goal: just before it replaces the APIService, the command `takeover` fails if the replicas cannot import a Lease. If
/// a copy is missing, the error also contains a later message of the replicas, if there is one.
#[test]
fn a_lease_that_can_no_longer_be_imported_ends_a_takeover() {
    const COPIED: &str = "1 Leases are here";
    let outcome = |served: Option<Value>, step: &'static str, message: &'static str| {
        let apiserver = serve_lease(served.clone(), served);
        let replica = serve(move |request| match (request.contains(NAME), request.contains("/leases/")) {
            (true, _) => {
                let annotations = json!({PHASE: "import", STEP: step, MESSAGE: message, ASKED: "ours"});
                Some((200, json!({"metadata": {"uid": "u", "annotations": annotations}})))
            }
            (false, true) => missing(),
            (false, false) => {
                let (kind, version) = ("LeaseList", "coordination.k8s.io/v1");
                Some((200, json!({"kind": kind, "apiVersion": version, "metadata": {}, "items": []})))
            }
        });
        run(async {
            let clients = Clients::without_tls(&apiserver, &replica);
            let mut claim = Claim::of(&Handover { asked: "ours".to_owned(), ..Handover::default() });
            check_imported(&clients, &mut claim, COPIED, Duration::ZERO).await
        })
        .map_err(|error| error.to_string())
    };
    let refused = "n/l is encrypted at rest";
    for served in [None, Some(lease("u", 5))] {
        assert_eq!(outcome(served, "", refused), Err(refused.to_owned()));
    }
    assert_eq!(outcome(None, "imported", COPIED), Ok(()));
    let missing_copy = |message| outcome(Some(lease("u", 5)), "imported", message).expect_err("a missing copy");
    assert!(missing_copy(COPIED).ends_with("run the command with --without-etcd"));
    assert!(missing_copy("no answer from etcd").ends_with("--without-etcd: no answer from etcd"));
}
