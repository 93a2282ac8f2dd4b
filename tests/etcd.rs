//! Replicas over a real etcd. If this machine has no etcd, the tests of this file check nothing, or fail if
//! `REQUIRE_ETCD` is set.

#![allow(clippy::panic, clippy::unwrap_used, reason = "tests fail by panicking")]

mod support;

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use coordination_apiserver::limits::OBJECT_BYTES_MAX;
use coordination_apiserver::pki::{CertDir, serving_names};
use serde_json::{Value, json};
use std::io::{Read as _, Write as _};
use std::net::{Ipv4Addr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use std::{fs, io, thread};
use support::client::{Client, request};
use support::etcd::Etcd;
use support::eventually;
use support::lease::{collection, new, path, version};
use support::ports::free_port;
use support::process::{self, Process};
use support::watch::Watch;

const FILES_MAX: u32 = 1024;
const NAMESPACE: &str = "shared";

fn replica(etcd: &Etcd) -> Process {
    Process::start(&["--storage=etcd", "--etcd-servers", &etcd.url()], FILES_MAX)
}

fn client(replica: &Process) -> Client {
    Client::open(replica.endpoint())
}

fn create(client: &mut Client, name: &str) -> Value {
    client.call("POST", &collection(NAMESPACE), &new(name)).expect_status(201, name).json()
}

fn items(replica: &Process) -> Value {
    let mut list = client(replica).call("GET", &collection(NAMESPACE), "").expect_status(200, "list").json();
    list["items"].take()
}

/// Reads a metric of a replica. Returns `None` while the replica loads its store again and so closes connections.
fn metric(replica: &Process, name: &str) -> Option<u64> {
    let mut client = Client::try_open(replica.endpoint()).ok()?;
    client.try_send(&request("GET", "/metrics", "")).ok()?;
    let text = String::from_utf8(client.try_recv("GET").ok()?.body).expect("UTF-8");
    let line = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
    Some(line.unwrap_or_else(|| panic!("{name}")).parse().expect("a number"))
}

#[test]
fn each_replica_serves_the_acknowledged_writes_of_the_other() {
    let Some(etcd) = Etcd::start(&[]) else { return };
    let [one, other] = [replica(&etcd), replica(&etcd)];
    let mut watch = Watch::open(other.endpoint(), &format!("{}?watch=true", collection(NAMESPACE)));
    for round in 0..20 {
        let (writer, reader) = if round % 2 == 0 { (&one, &other) } else { (&other, &one) };
        let name = format!("l{round}");
        let created = create(&mut client(writer), &name);
        let read = client(reader).call("GET", &path(NAMESPACE, &name), "").expect_status(200, "read").json();
        assert_eq!(read, created);
        assert_eq!(watch.next()["object"], created, "the next event");
        // A version from one replica is valid on the other.
        let mut renewed = created;
        renewed["spec"]["renewTime"] = "2026-01-02T03:04:05.000001Z".into();
        let target = path(NAMESPACE, &name);
        client(reader).call("PUT", &target, &renewed.to_string()).expect_status(200, "renewed");
        client(writer).call("PUT", &target, &renewed.to_string()).expect_status(409, "an old version");
        assert_eq!(watch.next()["type"], "MODIFIED");
    }
    assert_eq!(items(&one), items(&other));
    let from_version = format!("{}?resourceVersion=0", collection(NAMESPACE));
    client(&one).call("GET", &from_version, "").expect_status(200, "version 0");
}

#[test]
fn a_watch_resumes_at_another_replica_after_a_kill() {
    let Some(etcd) = Etcd::start(&[]) else { return };
    let [mut one, other] = [replica(&etcd), replica(&etcd)];
    let mut seen = version(&create(&mut client(&one), "first"));
    for round in 0..3 {
        let missed = version(&create(&mut client(&one), &format!("missed-{round}")));
        one.kill();
        let begun = Instant::now();
        let made = create(&mut client(&other), &format!("made-{round}"));
        assert!(begun.elapsed() < Duration::from_millis(200), "{:?}", begun.elapsed());
        one.restart();
        for replica in [&other, &one] {
            let target = format!("{}?watch=true&resourceVersion={seen}", collection(NAMESPACE));
            let mut watch = Watch::open(replica.endpoint(), &target);
            assert_eq!(version(&watch.next()["object"]), missed);
            assert_eq!(version(&watch.next()["object"]), version(&made));
        }
        seen = version(&made);
    }
}

/// docs/fencing.md promises that each change of a lock has a higher version than all earlier ones, at every replica and
/// after deletions.
#[test]
fn versions_of_a_lock_increase_across_replicas() {
    let Some(etcd) = Etcd::start(&[]) else { return };
    let mut replicas = [replica(&etcd), replica(&etcd)];
    let (mut last, lock) = (0, path(NAMESPACE, "lock"));
    for round in 0..6 {
        // In rounds 1, 2, 4 and 5 the requested replica was down during the last changes, including the deletion.
        let [asked, other] = [round / 3, 1 - round / 3];
        let taken = create(&mut client(&replicas[asked]), "lock");
        assert!(version(&taken) > last, "round {round}: {} after {last}", version(&taken));
        replicas[asked].kill();
        let mut renewed = taken.clone();
        renewed["spec"]["renewTime"] = "2026-01-02T03:04:05.000001Z".into();
        let renewed = client(&replicas[other]).call("PUT", &lock, &renewed.to_string()).expect_status(200, "renewed");
        assert!(version(&renewed.json()) > version(&taken), "round {round}");
        client(&replicas[other]).call("DELETE", &lock, "").expect_status(200, "deleted");
        last = version(&client(&replicas[other]).call("GET", &collection(NAMESPACE), "").json());
        replicas[asked].restart();
    }
}

#[test]
fn no_acknowledged_write_is_lost_when_etcd_is_killed() {
    let Some(mut etcd) = Etcd::start(&[]) else { return };
    let [one, other] = [replica(&etcd), replica(&etcd)];
    let mut known = Vec::new();
    for round in 0..3 {
        let endpoint = one.endpoint().clone();
        let writer = thread::spawn(move || {
            let mut client = Client::open(&endpoint);
            (0..200).map(|at| create(&mut client, &format!("l{round}-{at}"))).collect::<Vec<_>>()
        });
        thread::sleep(Duration::from_millis(100));
        etcd.restart(Duration::from_millis(300));
        known.extend(writer.join().expect("every creation is acknowledged"));
    }
    for replica in [&one, &other] {
        let items = items(replica);
        assert_eq!(items.as_array().map(Vec::len), Some(known.len()));
        for lease in &known {
            let name = &lease["metadata"]["name"];
            let found = items.as_array().unwrap().iter().find(|item| item["metadata"]["name"] == *name);
            assert_eq!(found.map(version), Some(version(lease)), "{name}");
        }
    }
}

#[test]
fn without_etcd_only_reads_from_version_zero_are_served() {
    let Some(etcd) = Etcd::start(&[]) else { return };
    let replica = replica(&etcd);
    let created = create(&mut client(&replica), "a");
    let mut watch = Watch::open(replica.endpoint(), &format!("{}?watch=true", collection(NAMESPACE)));
    assert_eq!(watch.next()["object"], created);
    etcd.signal("STOP");
    let write = |holder: &str| {
        let mut changed = created.clone();
        changed["spec"]["holderIdentity"] = holder.into();
        let mut client = client(&replica);
        thread::spawn(move || client.call("PUT", &path(NAMESPACE, "a"), &changed.to_string()))
    };
    let in_flight = write("x");
    thread::sleep(Duration::from_millis(300));
    let behind_it = write("y");
    eventually("the replica is not ready", || !replica.answers());
    assert!(!in_flight.is_finished(), "its outcome is unknown");
    behind_it.join().unwrap().expect_status(503, "a write behind a change in flight");
    for (method, target, body) in [
        ("GET", path(NAMESPACE, "a"), String::new()),
        ("GET", collection(NAMESPACE), String::new()),
        ("POST", collection(NAMESPACE), new("b")),
        ("PUT", path(NAMESPACE, "a"), created.to_string()),
    ] {
        let refused = client(&replica).call(method, &target, &body).expect_status(503, &target);
        assert_eq!(refused.head.field("retry-after"), Some("1"), "{target}");
    }
    let old = format!("{}?resourceVersion=0", path(NAMESPACE, "a"));
    assert_eq!(client(&replica).call("GET", &old, "").expect_status(200, "version 0").json(), created);
    etcd.signal("CONT");
    eventually("the replica is ready again", || replica.answers());
    let changed = in_flight.join().unwrap().expect_status(200, "the change in flight").json();
    assert_eq!(watch.next()["object"], changed, "the watch is still open");
    let made = create(&mut client(&replica), "b");
    assert_eq!(watch.next()["object"], made);
}

/// A relay between a replica and etcd. Only this relay's replica loses etcd when a test cuts or hangs the relay.
struct Relay {
    address: SocketAddr,
    is_cut: Arc<AtomicBool>,
    /// Whether the relay keeps its connections open but passes no bytes on.
    hangs: Arc<AtomicBool>,
    open: Arc<Mutex<Vec<TcpStream>>>,
}

impl Relay {
    fn start(etcd: &Etcd) -> Self {
        let listener = TcpListener::bind(free_port()).unwrap();
        let address = listener.local_addr().unwrap();
        let etcd = etcd.url().trim_start_matches("http://").to_owned();
        let (is_cut, hangs, open) = (Arc::default(), Arc::default(), Arc::default());
        let relay = Self { address, is_cut: Arc::clone(&is_cut), hangs: Arc::clone(&hangs), open: Arc::clone(&open) };
        thread::spawn(move || {
            for replica in listener.incoming().flatten() {
                if is_cut.load(Ordering::Acquire) {
                    continue;
                }
                let Ok(member) = TcpStream::connect(&etcd) else { continue };
                for (from, to) in [(&replica, &member), (&member, &replica)] {
                    let (from, to) = (from.try_clone().unwrap(), to.try_clone().unwrap());
                    let hangs = Arc::clone(&hangs);
                    thread::spawn(move || pass_on(&from, &to, &hangs));
                }
                open.lock().unwrap().extend([replica, member]);
            }
        });
        relay
    }

    fn cut(&self) {
        self.is_cut.store(true, Ordering::Release);
        for connection in self.open.lock().unwrap().drain(..) {
            _ = connection.shutdown(Shutdown::Both);
        }
    }

    fn hang(&self) {
        self.hangs.store(true, Ordering::Release);
    }
}

/// Passes bytes on until the end of `from`, or until the relay hangs.
fn pass_on(mut from: &TcpStream, mut to: &TcpStream, hangs: &AtomicBool) -> io::Result<()> {
    let mut buffer = [0; 4096];
    loop {
        let read = from.read(&mut buffer)?;
        if read == 0 || hangs.load(Ordering::Acquire) {
            return Ok(());
        }
        to.write_all(&buffer[..read])?;
    }
}

/// Goal: an etcd member that hangs delays a write by about a second at most. The connections to the member stay open,
/// so only the missing answers and events show that the member hangs.
#[test]
fn a_hanging_member_delays_writes_by_about_a_second_at_most() {
    let Some(etcd) = Etcd::start(&[]) else { return };
    let relay = Relay::start(&etcd);
    // Both addresses lead to the same etcd member. The replica uses the first one, the relay's, as long as the relay
    // passes bytes on.
    let servers = format!("http://{},{}", relay.address, etcd.url());
    let replica = Process::start(&["--storage=etcd", "--etcd-servers", &servers], FILES_MAX);
    let mut client = client(&replica);
    let mut watch = Watch::open(replica.endpoint(), &format!("{}?watch=true", collection(NAMESPACE)));
    // The replica's HTTP/2 PINGs detect a hanging connection only two seconds after the last answer. The last answer
    // here is the event of this creation. The creations below must not wait that long.
    let mut created = create(&mut client, "before");
    relay.hang();
    for name in ["a", "b"] {
        assert_eq!(watch.next()["object"], created, "the next event");
        let begun = Instant::now();
        created = create(&mut client, name);
        assert!(begun.elapsed() < Duration::from_millis(1_500), "{name}: {:?}", begun.elapsed());
    }
    assert_eq!(watch.next()["object"], created, "the last event");
    assert_eq!(metric(&replica, "coordination_journal_reloads_total"), Some(0));
}

#[test]
fn a_replica_cut_off_from_etcd_sends_its_clients_to_others() {
    let Some(etcd) = Etcd::start(&[]) else { return };
    let relay = Relay::start(&etcd);
    let cut_off =
        Process::start(&["--storage=etcd", "--etcd-servers", &format!("http://{}", relay.address)], FILES_MAX);
    let other = replica(&etcd);
    let created = create(&mut client(&cut_off), "a");
    // In this time, the first replica reads the identity Lease of the other one: the Lease by which replicas know each
    // other. A replica sends its clients away only if it knows of another replica.
    thread::sleep(Duration::from_secs(2));
    let mut kept = client(&cut_off);
    kept.call("GET", &path(NAMESPACE, "a"), "").expect_status(200, "before");
    let mut watch = Watch::open(cut_off.endpoint(), &format!("{}?watch=true", collection(NAMESPACE)));
    assert_eq!(watch.next()["object"], created);
    relay.cut();
    let begun = Instant::now();
    assert_eq!(watch.try_next().expect("the stream ends with its last chunk"), None);
    assert!(begun.elapsed() < Duration::from_secs(10), "{:?}", begun.elapsed());
    kept.send(request("GET", &path(NAMESPACE, "a"), ""));
    assert!(kept.try_recv("GET").is_err(), "the connection is closed");
    // The watch resumes at the other replica.
    let target = format!("{}?watch=true&resourceVersion={}", collection(NAMESPACE), version(&created));
    let mut watch = Watch::open(other.endpoint(), &target);
    let made = create(&mut client(&other), "b");
    assert_eq!(watch.next()["object"], made);
    // The replica without etcd still serves reads that accept any version (`resourceVersion=0`).
    let old = format!("{}?resourceVersion=0", path(NAMESPACE, "a"));
    client(&cut_off).call("GET", &old, "").expect_status(200, "version 0");
}

#[test]
fn a_start_waits_until_etcd_answers() {
    let Some(etcd) = Etcd::start(&[]) else { return };
    etcd.signal("STOP");
    let replica = thread::scope(|scope| {
        let started = scope.spawn(|| replica(&etcd));
        // Longer than the timeout of one request to etcd (1.5 s), so the replica must try again.
        thread::sleep(Duration::from_secs(3));
        etcd.signal("CONT");
        started.join().expect("the replica is ready")
    });
    assert!(replica.log().contains("no member of etcd answers; trying again"), "{}", replica.log());
    create(&mut client(&replica), "a");
}

#[test]
fn a_replica_stops_cleanly_while_etcd_does_not_answer() {
    let Some(etcd) = Etcd::start(&[]) else { return };
    let mut serving = replica(&etcd);
    create(&mut client(&serving), "a");
    etcd.signal("STOP");
    eventually("the replica is not ready", || !serving.answers());
    let begun = Instant::now();
    serving.signal("TERM");
    assert_eq!(serving.wait().code(), Some(0), "{}", serving.log());
    assert!(begun.elapsed() < Duration::from_secs(5), "{:?}", begun.elapsed());
    assert!(serving.log().contains("etcd has not answered for two seconds"), "{}", serving.log());
    etcd.signal("CONT");
}

#[test]
fn a_replica_behind_the_etcd_compaction_reloads() {
    let Some(mut etcd) = Etcd::start(&[]) else { return };
    let [one, other] = [replica(&etcd), replica(&etcd)];
    create(&mut client(&one), "before");
    other.signal("STOP");
    // The restart of etcd ends the connection of the stopped (SIGSTOP) replica. So the journal entries of the creations
    // below cannot wait in a buffer of its socket.
    etcd.restart(Duration::ZERO);
    for at in 0..10 {
        create(&mut client(&one), &format!("l{at}"));
    }
    // etcd compacts the entries that the stopped replica has not received.
    let revision = etcd.put("/elsewhere", b"");
    etcd.call("kv/compaction", &format!(r#"{{"revision":"{revision}","physical":true}}"#)).expect("compacted");
    other.signal("CONT");
    eventually("the replica has loaded again", || metric(&other, "coordination_journal_reloads_total") == Some(1));
    eventually("the replica is ready again", || other.answers());
    assert_eq!(items(&one), items(&other));
    create(&mut client(&other), "after");
    assert_eq!(items(&one), items(&other));
}

/// Goal: if an operator restores etcd from a backup, all replicas adopt the restored state. Method: etcd starts again
/// with an older copy of its data folder. The Leases `lost0` to `lost4` are not in the copy.
#[test]
fn all_replicas_adopt_the_state_of_a_restored_etcd() {
    let Some(mut etcd) = Etcd::start(&[]) else { return };
    let [one, other] = [replica(&etcd), replica(&etcd)];
    create(&mut client(&one), "kept");
    let kept = items(&one);
    let backup = tempfile::tempdir().expect("a temporary folder can be made");
    etcd.restart_after(|data| copy(data, backup.path()));
    for at in 0..5 {
        create(&mut client(&other), &format!("lost{at}"));
    }
    // Without these Leases, a replica would have the state of the backup already, and need not load again.
    eventually("the other replica has them", || items(&one).as_array().map(Vec::len) == Some(6));
    etcd.restart_after(|data| {
        fs::remove_dir_all(data).expect("the data folder can be removed");
        copy(backup.path(), data);
    });
    for replica in [&one, &other] {
        eventually("the replica has loaded again", || metric(replica, "coordination_journal_reloads_total") >= Some(1));
        eventually("the replica is ready again", || replica.answers());
        assert_eq!(items(replica), kept);
    }
    create(&mut client(&other), "new");
    assert_eq!(items(&one).as_array().map(Vec::len), Some(2));
    assert_eq!(items(&one), items(&other));
}

/// Goal: a replica ends if somebody deletes its store. It must not create a new store while it runs, since the new
/// store would repeat resourceVersions of the deleted one.
#[test]
fn a_replica_ends_when_its_store_is_deleted() {
    let Some(etcd) = Etcd::start(&[]) else { return };
    let mut replica = replica(&etcd);
    let before = create(&mut client(&replica), "a");
    etcd.delete_all("/coordination-apiserver/");
    assert_eq!(replica.wait().code(), Some(1));
    assert!(replica.log().contains("was deleted while this server used it"), "{}", replica.log());
    replica.restart();
    let after = create(&mut client(&replica), "a");
    assert!(version(&after) > version(&before), "{before} {after}");
}

/// An operator copies all keys to another etcd. The copied keys get other revisions and versions there, so they no
/// longer fit together. A replica must refuse such a store.
#[test]
fn a_store_of_copied_keys_is_refused() {
    let (Some(etcd), Some(other)) = (Etcd::start(&[]), Etcd::start(&[])) else { return };
    let mut replica = replica(&etcd);
    create(&mut client(&replica), "a");
    create(&mut client(&replica), "b");
    replica.stop();
    let [key, end] = ["/coordination-apiserver/", "/coordination-apiserver0"].map(|key| BASE64_STANDARD.encode(key));
    let range = json!({"key": key, "range_end": end}).to_string();
    let found: Value = serde_json::from_str(&etcd.call("kv/range", &range).expect("an answer")).expect("JSON");
    for kv in found["kvs"].as_array().expect("keys") {
        let put = json!({"key": kv["key"], "value": kv["value"]}).to_string();
        other.call("kv/put", &put).expect("an answer");
    }
    let line = failure(&["--etcd-servers", &other.url()]);
    assert!(line.contains("a copy of the keys") && line.contains("migrate-storage"), "{line}");
}

/// Goal: a replica refuses a store that has lost writes. Method: an operator deletes the entries of the journal, but no
/// other key.
#[test]
fn a_store_without_its_entries_is_refused() {
    let Some(etcd) = Etcd::start(&[]) else { return };
    let mut replica = replica(&etcd);
    create(&mut client(&replica), "a");
    replica.stop();
    etcd.delete_all("/coordination-apiserver/journal/");
    let line = failure(&["--etcd-servers", &etcd.url()]);
    assert!(line.contains("journal is damaged") && line.contains("it has 0 entries of"), "{line}");
    let (status, report, stderr) = run(&["inspect", "--etcd-servers", &etcd.url()]);
    assert_eq!(status, Some(1), "{report}");
    assert!(stderr.contains("it has 0 entries of"), "{stderr}");
}

/// Copies a folder with all its content.
fn copy(from: &Path, to: &Path) {
    fs::create_dir_all(to).expect("a folder can be made");
    for entry in fs::read_dir(from).expect("a folder") {
        let (from, to) = entry.map(|entry| (entry.path(), to.join(entry.file_name()))).expect("an entry");
        if from.is_dir() { copy(&from, &to) } else { _ = fs::copy(&from, &to).expect("a file can be copied") }
    }
}

#[test]
fn each_replica_has_an_identity_lease() {
    let Some(etcd) = Etcd::start(&[]) else { return };
    let [one, mut other] = [replica(&etcd), replica(&etcd)];
    let identities = || {
        let selector = "labelSelector=apiserver.kubernetes.io%2Fidentity%3Dcoordination-apiserver";
        let list = client(&one).call("GET", &format!("{}?{selector}", collection("kube-system")), "").json();
        list["items"].as_array().expect("items").len()
    };
    eventually("both identity Leases exist", || identities() == 2);
    other.stop();
    assert_eq!(identities(), 1, "a replica that stops deletes its Lease");
    let mut last = one;
    last.stop();
}

#[test]
fn the_reservation_of_locks_begins_on_all_replicas_at_once() {
    let Some(etcd) = Etcd::start(&[]) else { return };
    let flags = ["--storage=etcd", "--etcd-servers", &etcd.url(), "--reclaim-seconds=1"];
    let [one, other] = [(); 2].map(|()| Process::start(&flags, FILES_MAX));
    client(&one).call("POST", &collection("kube-node-lease"), &new("node")).expect_status(201, "a node's Lease");
    client(&other)
        .call("GET", &path("kube-node-lease", "node"), "")
        .expect_status(200, "the other replica has the Lease");
    let lock = r#"{"metadata":{"name":"lock"},"spec":{"holderIdentity":"a"}}"#;
    // For one second (`--reclaim-seconds`), each replica lets only the former holder of a lock create the lock. On
    // `other`, this second began when `other` received the node's Lease, and it is over after this pause. If the second
    // began only with the request below, this request would get 429.
    thread::sleep(Duration::from_millis(1100));
    client(&other).call("POST", &collection(NAMESPACE), lock).expect_status(201, "the reservation is over");
}

/// Goal: after a switch by hand, a replica that starts later, or dies and starts again, reserves locks too.
#[test]
fn a_replica_that_starts_on_a_young_store_reserves_locks() {
    let Some(etcd) = Etcd::start(&[]) else { return };
    let flags = ["--storage=etcd", "--etcd-servers", &etcd.url(), "--reclaim-seconds=600"];
    let mut one = Process::start(&flags, FILES_MAX);
    client(&one).call("POST", &collection("kube-node-lease"), &new("node")).expect_status(201, "a node's Lease");
    one.kill();
    one.restart();
    let later = Process::start(&flags, FILES_MAX);
    let lock = r#"{"metadata":{"name":"lock"},"spec":{"holderIdentity":"a"}}"#;
    for replica in [&one, &later] {
        client(replica).call("POST", &collection(NAMESPACE), lock).expect_status(429, "the lock is reserved");
    }
}

/// Goal: a replica that starts on a store in use for longer than `--reclaim-seconds` reserves no lock. Method: several
/// starts, since the replica may load the store in one turn of the event loop, or in several.
#[test]
fn a_replica_that_starts_on_an_old_store_reserves_no_lock() {
    let Some(etcd) = Etcd::start(&[]) else { return };
    let flags = ["--storage=etcd", "--etcd-servers", &etcd.url(), "--reclaim-seconds=2"];
    let mut replica = Process::start(&flags, FILES_MAX);
    client(&replica).call("POST", &collection("kube-node-lease"), &new("node")).expect_status(201, "a node's Lease");
    thread::sleep(Duration::from_secs(4));
    for start in 0..8 {
        replica.kill();
        replica.restart();
        create(&mut client(&replica), &format!("lock{start}"));
    }
}

/// Goal: a replica that loads the store again still reserves locks: only the former holder of a lock may create it.
/// Method: both replicas reserve locks, and one of them misses compacted entries and so loads the store again.
#[test]
fn a_reload_does_not_end_the_reservation_of_locks() {
    let Some(mut etcd) = Etcd::start(&[]) else { return };
    let flags = ["--storage=etcd", "--etcd-servers", &etcd.url(), "--reclaim-seconds=600"];
    let [one, other] = [(); 2].map(|()| Process::start(&flags, FILES_MAX));
    let create_node = |name: &str| {
        client(&one).call("POST", &collection("kube-node-lease"), &new(name)).expect_status(201, "a node's Lease");
    };
    create_node("before");
    other.signal("STOP");
    etcd.restart(Duration::ZERO);
    eventually("the replica is ready again", || one.answers());
    create_node("missed");
    let revision = etcd.put("/elsewhere", b"");
    etcd.call("kv/compaction", &format!(r#"{{"revision":"{revision}","physical":true}}"#)).expect("compacted");
    other.signal("CONT");
    eventually("the replica has loaded again", || metric(&other, "coordination_journal_reloads_total") == Some(1));
    eventually("the replica is ready again", || other.answers());
    let lock = r#"{"metadata":{"name":"lock"},"spec":{"holderIdentity":"a"}}"#;
    for replica in [&one, &other] {
        client(replica).call("POST", &collection(NAMESPACE), lock).expect_status(429, "the lock is reserved");
    }
}

#[test]
fn a_full_etcd_refuses_creations_and_keeps_leases() {
    let Some(etcd) = Etcd::start(&["--quota-backend-bytes=4194304"]) else { return };
    let replica = replica(&etcd);
    let kept = create(&mut client(&replica), "kept");
    // Keys outside of the store's prefix, as of another product, fill etcd.
    let large = vec![b'x'; 1 << 20];
    for at in 0..8 {
        etcd.call("kv/put", &put(&format!("/other/{at}"), &large));
    }
    // etcd measures its size some time after a write, so creations may still succeed.
    eventually("a creation finds no space", || {
        let name = format!("l{}", fastrand::u32(..));
        let answer = client(&replica).call("POST", &collection(NAMESPACE), &new(&name));
        assert!([201, 507].contains(&answer.status()), "{}", answer.status());
        answer.status() == 507
    });
    let read = client(&replica).call("GET", &path(NAMESPACE, "kept"), "").expect_status(200, "kept").json();
    assert_eq!(read, kept);
    assert!(metric(&replica, "coordination_journal_storage_errors_total") > Some(0));
}

/// Returns a Lease whose holder's name has `bytes` bytes.
fn long(name: &str, bytes: usize) -> String {
    new(name).replace("node-a", &"x".repeat(bytes))
}

#[test]
fn a_large_lease_is_stored_or_refused_and_the_replica_continues() {
    /// Maximum length of a Lease without its holder, in bytes.
    const OTHER_BYTES: usize = 1024;
    let Some(etcd) = Etcd::start(&[]) else { return };
    let replica = replica(&etcd);
    let mut client = client(&replica);
    for n in 0..3 {
        let largest = long(&format!("a{n}"), OBJECT_BYTES_MAX - OTHER_BYTES);
        client.call("POST", &collection(NAMESPACE), &largest).expect_status(201, "the largest");
    }
    let larger = long("b", OBJECT_BYTES_MAX);
    client.call("POST", &collection(NAMESPACE), &larger).expect_status(500, "too large");
    create(&mut client, "c");
    assert_eq!(metric(&replica, "coordination_journal_storage_errors_total"), Some(0));
}

#[test]
fn a_batch_too_large_for_etcd_fails_alone() {
    let Some(etcd) = Etcd::start(&["--max-request-bytes=400000"]) else { return };
    let replica = replica(&etcd);
    let mut client = client(&replica);
    for n in 0..3 {
        let refused = client.call("POST", &collection(NAMESPACE), &long(&format!("l{n}"), 500_000));
        let status = refused.expect_status(500, "larger than etcd allows").json();
        assert_eq!(status["message"], "etcdserver: request is too large");
        create(&mut client, &format!("s{n}"));
    }
    assert_eq!(items(&replica).as_array().map(Vec::len), Some(3));
    assert_eq!(metric(&replica, "coordination_journal_storage_errors_total"), Some(0));
}

#[test]
fn a_store_over_its_budget_refuses_only_creations() {
    let Some(etcd) = Etcd::start(&[]) else { return };
    let flags = ["--storage=etcd", "--etcd-servers", &etcd.url(), "--etcd-store-bytes=2MiB"];
    let replica = Process::start(&flags, FILES_MAX);
    let kept = create(&mut client(&replica), "kept");
    let large = vec![b'x'; 1 << 20];
    let [.., revision] = [(); 3].map(|()| etcd.put("/other", &large));
    let created = |name: &str| client(&replica).call("POST", &collection(NAMESPACE), &new(name)).status();
    eventually("a creation is refused", || created(&format!("l{}", fastrand::u32(..))) == 507);
    let mut client = client(&replica);
    client.call("PUT", &path(NAMESPACE, "put"), &new("put")).expect_status(507, "a creation by PUT");
    let renewed = kept.to_string().replace(r#""leaseTransitions":0"#, r#""leaseTransitions":1"#);
    client.call("PUT", &path(NAMESPACE, "kept"), &renewed).expect_status(200, "a change");
    client.call("DELETE", &path(NAMESPACE, "kept"), "").expect_status(200, "a deletion");
    assert!(metric(&replica, "coordination_store_in_use_bytes") > metric(&replica, "coordination_store_limit_bytes"));
    // A compaction makes space: it frees the pages of overwritten values.
    etcd.call("kv/compaction", &format!(r#"{{"revision":"{revision}","physical":true}}"#)).expect("compacted");
    eventually("creations succeed again", || created("later") == 201);
}

/// Runs the program with these arguments until it ends. Returns exit status, standard output and standard error.
fn run(args: &[&str]) -> (Option<i32>, String, String) {
    let Output { status, stdout, stderr } =
        Command::new(env!("CARGO_BIN_EXE_coordination-apiserver")).args(args).output().expect("the program runs");
    let text = |bytes| String::from_utf8(bytes).expect("UTF-8");
    (status.code(), text(stdout), text(stderr))
}

#[test]
fn leases_move_from_a_disk_to_etcd_and_back_with_their_versions() {
    let Some(etcd) = Etcd::start(&[]) else { return };
    let folders = tempfile::tempdir().expect("a folder");
    let folder = |name: &str| folders.path().join(name).to_string_lossy().into_owned();
    let on_disk = |folder: &str| Process::start(&["--data-dir", folder], FILES_MAX);
    let (old, url) = (folder("old"), etcd.url());
    let mut server = on_disk(&old);
    for at in 0..30 {
        create(&mut client(&server), &format!("l{at}"));
    }
    client(&server).call("DELETE", &path(NAMESPACE, "l7"), "").expect_status(200, "a deletion");
    let before = items(&server);
    let last = client(&server).call("GET", &collection(NAMESPACE), "").json();
    server.stop();
    let migrate = |from: &str, to: &str, folder: &str| {
        run(&["migrate-storage", "--from", from, "--to", to, "--data-dir", folder, "--etcd-servers", &url])
    };

    let (status, stdout, stderr) = migrate("disk", "etcd", &folder("nothing"));
    assert_eq!((status, stdout.as_str()), (Some(1), ""));
    assert!(stderr.contains("nothing") && stderr.lines().count() == 1, "{stderr}");
    let (status, stdout, stderr) = migrate("disk", "etcd", &old);
    assert_eq!((status, stderr.as_str()), (Some(0), ""));
    let moved = format!("moved 29 Leases at resourceVersion {}", version(&last));
    assert!(stdout.starts_with(&moved), "{stdout}");
    let (status, _, stderr) = migrate("disk", "etcd", &old);
    assert_eq!(status, Some(1));
    assert!(stderr.contains("holds Leases already"), "{stderr}");

    let (status, report, _) = run(&["inspect", "--etcd-servers", &url]);
    assert_eq!(status, Some(0));
    assert!(report.contains("Leases               29\n"), "{report}");
    let mut replicas = [replica(&etcd), replica(&etcd)];
    for replica in &replicas {
        assert_eq!(items(replica), before);
    }
    // Each replica also writes its identity Lease. So a few versions may lie between `last` and `next`.
    let next = version(&create(&mut client(&replicas[0]), "next"));
    assert!((1..=5).contains(&(next - version(&last))), "{next}");
    let after = items(&replicas[1]);
    let target = folder("new");
    let (status, _, stderr) = migrate("etcd", "disk", &target);
    assert_eq!(status, Some(1));
    assert!(stderr.contains("stop all replicas first"), "{stderr}");
    assert!(!Path::new(&target).exists(), "no server must start on an incomplete copy");
    for replica in &mut replicas {
        replica.stop();
    }
    let (status, changes, _) = run(&["inspect", "--etcd-servers", &url, "--changes"]);
    assert!(status == Some(0) && changes.lines().filter(|line| line.contains("next")).count() == 1, "{changes}");

    let kinds = ["migrate-storage", "--from=etcd", "--to=disk", "--data-dir", &target];
    let (status, _, stderr) = run(&[&kinds[..], &["--etcd-servers", &url, "--etcd-prefix=/wrong"]].concat());
    assert_eq!(status, Some(1));
    assert!(stderr.contains("/wrong holds no store") && !Path::new(&target).exists(), "{stderr}");
    let (status, _, stderr) = migrate("etcd", "disk", &target);
    assert_eq!((status, stderr.as_str()), (Some(0), ""));
    let server = on_disk(&target);
    assert_eq!(items(&server), after);
    assert!(version(&create(&mut client(&server), "last")) > next);
}

#[test]
fn both_sides_authenticate_over_tls() {
    let folders = tempfile::tempdir().expect("a folder");
    let certs = |name: &str| {
        let certs = CertDir::open(&folders.path().join(name)).expect("an authority");
        certs.ensure_serving(&serving_names(Ipv4Addr::LOCALHOST.into())).expect("a serving certificate");
        certs.ensure_admin().expect("a client certificate");
        certs
    };
    let (own, foreign) = (certs("own"), certs("foreign"));
    let file = |flag: &str, path: PathBuf| format!("--{flag}={}", path.display());
    let port = free_port().port();
    let flags = [
        format!("https://127.0.0.1:{port}"),
        file("cert-file", own.serving_cert()),
        file("key-file", own.serving_key()),
        file("trusted-ca-file", own.ca_cert()),
        "--client-cert-auth".to_owned(),
        file("client-cert-file", own.admin_cert()),
        file("client-key-file", own.admin_key()),
    ];
    let Some(_etcd) = Etcd::start(&flags.each_ref().map(String::as_str)) else { return };
    let server = format!("--etcd-servers=https://127.0.0.1:{port}");
    let start = |ca: &CertDir, client: Option<&CertDir>| {
        let mut flags = vec![server.clone(), file("etcd-cafile", ca.ca_cert())];
        if let Some(client) = client {
            flags.extend([file("etcd-certfile", client.admin_cert()), file("etcd-keyfile", client.admin_key())]);
        }
        flags
    };
    let refused = |flags: Vec<String>, reason: &str| {
        let line = failure(&flags.iter().map(String::as_str).collect::<Vec<_>>());
        assert!(line.contains(reason), "{line}");
    };
    thread::scope(|scope| {
        // Each start fails only at the timeout for etcd, so the three starts run at the same time.
        scope.spawn(|| refused(start(&foreign, Some(&own)), "UnknownIssuer"));
        scope.spawn(|| refused(start(&own, None), "may want a client certificate"));
        scope.spawn(|| refused(start(&own, Some(&foreign)), "may not trust the client certificate"));
    });
    let mut flags = start(&own, Some(&own));
    flags.push("--storage=etcd".to_owned());
    let replica = Process::start(&flags.iter().map(String::as_str).collect::<Vec<_>>(), FILES_MAX);
    create(&mut client(&replica), "a");
}

fn put(key: &str, value: &[u8]) -> String {
    let encode = |bytes: &[u8]| BASE64_STANDARD.encode(bytes);
    format!(r#"{{"key":"{}","value":"{}"}}"#, encode(key.as_bytes()), encode(value))
}

/// Starts the program with storage in etcd and these flags, expects it to fail, and returns the last line of its log.
#[track_caller]
fn failure(args: &[&str]) -> String {
    let port = format!("--insecure-port={}", free_port().port());
    process::failure(&[&["--secure-port=0", &port, "--storage=etcd"], args].concat())
}

#[test]
fn a_failed_start_is_reported_in_one_line() {
    let Some(etcd) = Etcd::start(&[]) else { return };
    etcd.put("/registry/leases/kube-system/a", b"x");
    let url = etcd.url();
    let line = failure(&["--etcd-servers", &url, "--etcd-prefix=/registry"]);
    assert!(line.contains("/registry") && line.contains("another product"), "{line}");
    etcd.put("/newer/format", b"coordination-apiserver 2");
    let line = failure(&["--etcd-servers", &url, "--etcd-prefix=/newer"]);
    assert!(line.contains("run the release that wrote it") && !line.contains("--etcd-prefix"), "{line}");
    let over_tls = url.replace("http", "https");
    thread::scope(|scope| {
        // Both starts fail only at the timeout for etcd, so they run at the same time.
        scope.spawn(|| {
            let line = failure(&["--etcd-servers", "http://127.0.0.1:9"]);
            assert!(line.contains("cannot reach etcd at http://127.0.0.1:9") && line.contains("refused"), "{line}");
        });
        scope.spawn(|| {
            let line = failure(&["--etcd-servers", &over_tls, "--etcd-cafile=/dev/null"]);
            assert!(line.contains("etcd"), "{line}");
        });
    });
    for call in [
        ("auth/user/add", r#"{"name":"root","password":"x"}"#),
        ("auth/user/grant", r#"{"user":"root","role":"root"}"#),
        ("auth/enable", "{}"),
    ] {
        etcd.call(call.0, call.1).expect("an answer");
    }
    let line = failure(&["--etcd-servers", &url]);
    assert!(line.contains("user name is empty"), "{line}");
}
