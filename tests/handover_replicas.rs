//! The hand-over with several replicas: the move of Leases from or to built-in storage (kube-apiserver's own storage of
//! Leases). The replicas share a real etcd with a kube-apiserver. If this machine has no etcd, the tests of this file
//! check nothing, or fail if `REQUIRE_ETCD` is set.

#![allow(clippy::panic, clippy::unwrap_used, reason = "tests fail by panicking")]

mod support;

use serde_json::json;
use std::cmp::Reverse;
use std::env;
use std::io;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;
use std::time::{Duration, Instant};
use support::eventually;
use support::handover::{EARLY, LATE, NAMESPACE, Rig, call, start_server, try_call};
use support::lease::{collection, path};
use support::process::Process;
use support::stream::Endpoint;

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

/// Returns the end of a replica's name: its port. The first replica by name copies Leases from and to built-in storage.
/// Among replicas of one host, the port decides which one is the first.
fn name_end(server: &Process) -> String {
    server.secure_address().port().to_string()
}

/// Returns the number of ready replicas. Each ready replica renews one Lease with this label, its identity Lease.
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

/// Starts two replicas. The replica that is first by name copies Leases. Returns a rig with the other replica, and the
/// replica that copies. Returns `None` if this machine has no etcd.
fn start_two() -> Option<(Rig, Process)> {
    let mut rig = Rig::start("etcd")?;
    let mut first = start_server(&rig.etcd, "etcd");
    if name_end(&rig.server) < name_end(&first) {
        std::mem::swap(&mut rig.server, &mut first);
    }
    eventually("two replicas", || replicas(&rig) == 2);
    Some((rig, first))
}

/// Goal: a leader keeps its lock if the copying replica dies. client-go gives up the lock after 10 s without a
/// successful renewal.
#[test]
fn renewals_resume_soon_after_the_copying_replica_dies() {
    let Some((rig, mut first)) = start_two() else { return };
    rig.put_built_in("a", "h", EARLY);
    rig.reach("import", "imported");
    rig.register(true);
    renew_until_acknowledged(&rig);
    first.kill();
    let waited = renew_until_acknowledged(&rig);
    assert!(waited < Duration::from_secs(10), "{waited:?}");
    assert_eq!(replicas(&rig), 1);
    rig.reach("serve", "serving");
}

/// Goal: if a creation by a paused replica takes effect late in built-in storage, it is undone. The replica that begins
/// to copy deletes the Lease: the next replica by name, or the paused one after its pause. Method: the test itself
/// creates a Lease in built-in storage, in place of the paused replica.
#[test]
fn a_late_creation_of_a_paused_replica_is_undone() {
    let Some((rig, first)) = start_two() else { return };
    rig.take_over();
    first.signal("STOP");
    rig.put_built_in("early", "h", EARLY);
    eventually("a deletion by the next replica", || rig.built_in("early").is_none());
    rig.put_built_in("late", "h", EARLY);
    first.signal("CONT");
    eventually("a deletion by the replica that was paused", || rig.built_in("late").is_none());
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
    /// Acquires the lock at random times: reads it from built-in storage, and later writes it there. If a client renews
    /// the lock at this server in between, the write must fail.
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

    /// Reads the lock at the replica `endpoint`, and then renews the lock. The read must have the holder of the last
    /// acquisition that was complete before the read, or of a later one. The same rule applies to a successful renewal.
    /// Returns the HTTP status of the renewal, or that of a failed read.
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

/// Goal: on every replica, a renewal and an acquisition in built-in storage never both succeed, and a read is current.
/// Method: clients renew at the replicas and acquire in built-in storage, at random times. Meanwhile replicas are
/// paused, or killed and started again at once. Some pauses of the replica that copies outlast its identity Lease, so
/// another replica begins to copy. `HANDOVER_SECONDS` sets the length of the run in seconds; the default is 14.
#[test]
fn renewals_exclude_acquisitions_while_replicas_die() {
    let Some(mut rig) = Rig::start("etcd") else { return };
    let mut others = [start_server(&rig.etcd, "etcd"), start_server(&rig.etcd, "etcd")];
    // The copying replica is the first by name, and the name ends with the port. So `others[1]` copies. The test pauses
    // and kills only `others`.
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
                        // A replica that has just started refuses requests until it has loaded the store.
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
