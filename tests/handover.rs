//! The hand-over: the move of Leases between this server and built-in storage (kube-apiserver's own storage of Leases)
//! in a real etcd. If this machine has no etcd, the tests of this file check nothing, or fail if `REQUIRE_ETCD` is set.
//!
//! Goal: no write is lost during the hand-over, and no lock has two holders. Method: each test writes Leases to etcd as
//! kube-apiserver would. The commands `takeover` and `rollback` request each phase of the hand-over by a write to one
//! Lease; so do the tests.

#![allow(clippy::panic, clippy::unwrap_used, reason = "tests fail by panicking")]

mod support;

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use coordination_apiserver::etcd::Config;
use coordination_apiserver::etcd::built_in::{BuiltInCommand, BuiltInEvent, BuiltInPort, Wanted};
use mio::{Events, Poll, Token, Waker};
use serde_json::{Value, json};
use std::fs;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::thread;
use std::time::Duration;
use support::eventually;
use support::handover::{API_SERVICE, EARLY, HANDOVER, LATE, LATER, NAMESPACE, Rig, key};
use support::lease::{collection, path};
use support::watch::{Watch, expect_expired, kind};

fn new(name: &str) -> String {
    json!({"metadata": {"name": name}, "spec": {"holderIdentity": "new"}}).to_string()
}

fn renew(spec: &mut Value) {
    spec["renewTime"] = LATE.into();
}

fn acquire(spec: &mut Value) {
    spec["holderIdentity"] = "other".into();
}

/// Changes the spec of a Lease, as a client that has just read the Lease. Returns the status.
fn change(rig: &Rig, name: &str, change: impl FnOnce(&mut Value)) -> u16 {
    let lease = rig.lease(name);
    let version = version_of(&lease);
    rig.update(lease, &version, change)
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
        // An update may name the Lease's version of built-in storage only while the Lease is as it was copied. The
        // first renewal has changed the Lease, so a second update with this version is refused.
        assert_eq!(rig.update(lease, &version.to_string(), |spec| spec["renewTime"] = LATER.into()), 409);
        rig.reach("serve", "serving");
        assert_eq!(rig.update(rig.lease("a"), &version.to_string(), renew), 409, "{storage}");
        assert_eq!(rig.call("DELETE", &path_of_b, &delete).0, 200, "{storage}");
    }
}

/// Goal: during a takeover, an update with an outdated version of built-in storage gets 409, so the client reads the
/// Lease again. A renewal with a version that the server has not imported yet succeeds.
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
    assert_eq!(change(&rig, "a", acquire), 429);
    assert_eq!(change(&rig, "a", |spec| spec["holderIdentity"] = "".into()), 429, "release");
    assert_eq!(rig.call("POST", &collection(NAMESPACE), &new("b")).0, 429);
    assert_eq!(rig.call("PUT", &path(NAMESPACE, "b"), &new("b")).0, 429, "a creation by PUT");
    assert_eq!(rig.call("DELETE", &path(NAMESPACE, "a"), "").0, 429);
    assert_eq!(rig.call("DELETE", &collection(NAMESPACE), "").0, 429);
    let answer = rig.client().call("POST", &collection(NAMESPACE), &new("b"));
    assert_eq!(answer.head.field("retry-after"), Some("1"));
    assert_eq!(change(&rig, "a", renew), 200);

    // Meanwhile, other clients write to built-in storage: an older renewal, a creation, an acquisition and a deletion.
    // The server must follow them, but keep its later renewal.
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
    assert_eq!(change(&rig, "a", acquire), 200);
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
    rig.take_over();
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
    assert_eq!(change(&rig, "a", |spec| spec["holderIdentity"] = "third".into()), 200);
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
        rig.take_over();
        let mut watch = Watch::open(rig.server.endpoint(), &format!("{}?watch=1", collection(NAMESPACE)));
        // Longer than the interval at which the server writes due changes to built-in storage. So none is left to
        // write.
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

/// Goal: after somebody has deleted and recreated the APIService, a server with outdated Leases waits for a takeover,
/// even if the server starts again.
#[test]
fn a_recreated_api_service_needs_a_takeover() {
    let Some(mut rig) = Rig::start("disk") else { return };
    rig.put_built_in("a", "h", EARLY);
    rig.take_over();
    rig.delete(API_SERVICE);
    eventually("the server notices the deletion", || rig.step() == "not-ours");
    assert!(rig.annotation("message").contains("until takeover is run again"), "{}", rig.annotation("message"));
    rig.put_built_in("a", "acquired there", LATER);
    rig.register(true);
    rig.server.kill();
    rig.server.restart();
    thread::sleep(Duration::from_secs(2));
    assert_eq!(rig.step(), "not-ours");
    assert_eq!(rig.call("POST", &collection(NAMESPACE), &new("b")).0, 429);
    rig.take_over();
    assert_eq!(rig.holder("a"), "acquired there");
}

/// Goal: a deletion of the APIService is noticed even if nobody reads the APIService before it is there again.
#[test]
fn an_api_service_recreated_during_a_restart_needs_a_takeover() {
    let Some(rig) = recreated_during_a_restart() else { return };
    eventually("the server notices the deletion", || rig.step() == "not-ours");
    assert!(rig.built_in("a").expect("a Lease").contains("acquired there"), "nothing was written");
    rig.reach("import", "imported");
    rig.reach("serve", "serving");
    assert_eq!(rig.holder("a"), "acquired there");
    eventually("the UID", || rig.annotation("apiservice-uid") == "second");
}

/// Goal: a rollback after an unnoticed deletion of the APIService keeps the newer built-in Leases.
#[test]
fn a_rollback_with_a_recreated_api_service_writes_nothing() {
    let Some(rig) = recreated_during_a_restart() else { return };
    rig.reach("freeze", "not-ours");
    assert!(rig.built_in("a").expect("a Lease").contains("acquired there"), "nothing was written");
}

/// Returns a server after a takeover and a restart. During the restart, somebody has deleted the APIService and created
/// it again, and a client has acquired the built-in Lease `a`.
fn recreated_during_a_restart() -> Option<Rig> {
    let mut rig = Rig::start("disk")?;
    rig.put_built_in("a", "h", EARLY);
    rig.take_over();
    eventually("the UID", || rig.annotation("apiservice-uid") == "first");
    rig.server.kill();
    rig.put_built_in("a", "acquired there", LATER);
    rig.recreate_api_service("second");
    rig.server.restart();
    Some(rig)
}

/// Goal: if kube-apiserver encrypts the Leases in etcd, the server writes no plaintext Lease beside them. Method: the
/// server begins to serve as after a takeover without access to the cluster's etcd, so it has not read the Leases
/// before.
#[test]
fn nothing_is_written_beside_encrypted_leases() {
    let Some(rig) = Rig::start("memory") else { return };
    rig.register(true);
    rig.etcd.put(&key("a"), b"k8s:enc:aescbc:v1:key:x");
    rig.ask_with("serve", Some("serving"));
    assert_eq!(rig.call("POST", &collection(NAMESPACE), &new("b")).0, 201);
    eventually("the reason", || rig.annotation("message").contains("encrypted at rest"));
    thread::sleep(Duration::from_secs(1));
    assert_eq!(rig.built_in("b"), None);
    assert!(rig.built_in("a").expect("a Lease").starts_with("k8s:enc:"), "the Lease is as it was");
    // A rollback reads only changes. It continues once these changes show that no encrypted Lease is left.
    rig.delete_built_in("a");
    rig.reach("freeze", "written-back");
    assert!(rig.built_in("b").is_some());
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
    rig.take_over();
    let mut watch = Watch::open(rig.server.endpoint(), &format!("{}?watch=1", collection(NAMESPACE)));
    assert_eq!(change(&rig, "a", renew), 200);
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

    // A restart does not end the phase `freeze`: the server still refuses writes. The next takeover ends the phase, and
    // imports the present content of built-in storage.
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
    rig.take_over();
    assert_eq!(rig.call("DELETE", &path(NAMESPACE, "a"), "").0, 200);
    rig.server.kill();
    rig.server.restart();
    eventually("the deletion", || rig.built_in("a").is_none());
    assert!(rig.built_in("b").is_some());
}

/// Goal: if an operator restores the etcd of kube-apiserver from a backup, the server writes the changes since the
/// backup again. Method: etcd starts again with an older copy of its data.
#[test]
fn a_restored_built_in_storage_gets_the_changes_since_the_backup_again() {
    let Some(mut rig) = Rig::start("disk") else { return };
    rig.put_built_in("a", "h", EARLY);
    rig.put_built_in("b", "h", EARLY);
    rig.take_over();
    let backup = |data: &Path| data.with_extension("backup");
    rig.etcd.restart_after(|data| {
        let copied = Command::new("cp").arg("-r").arg(data).arg(backup(data)).status();
        assert!(copied.is_ok_and(|status| status.success()), "the data folder can be copied");
    });
    assert_eq!(change(&rig, "a", acquire), 200);
    assert_eq!(rig.call("DELETE", &path(NAMESPACE, "b"), "").0, 200);
    let is_fed = |rig: &Rig| rig.built_in("a").is_some_and(|a| a.contains("other")) && rig.built_in("b").is_none();
    eventually("the changes are fed", || is_fed(&rig));

    // The server is paused. Otherwise it could notice the restore, and write the changes to built-in storage again,
    // before the test looks.
    rig.server.signal("STOP");
    rig.etcd.restart_after(|data| {
        fs::remove_dir_all(data).expect("the data folder can be removed");
        fs::rename(backup(data), data).expect("the backup can be restored");
    });
    assert!(!is_fed(&rig), "the backup has the former holder");
    rig.server.signal("CONT");
    // The server learns of the restore with its next request to etcd, which this creation causes.
    assert_eq!(rig.call("POST", &collection(NAMESPACE), &new("c")).0, 201);
    eventually("the changes are fed again", || is_fed(&rig));
}

/// Goal: a hand-over loses no Lease if there are more than the server imports or encodes in one turn of its event loop.
#[test]
fn a_hand_over_of_many_leases_loses_none() {
    const LEASES: usize = 3_000;
    for storage in ["memory", "disk"] {
        let Some(rig) = Rig::start(storage) else { return };
        let names: Vec<_> = (0..LEASES).map(|number| format!("l{number:04}")).collect();
        rig.put_many_built_in(&names);
        rig.reach("import", "imported");
        assert_eq!(rig.annotation("message"), "3000 Leases are here");
        rig.register(true);
        assert_eq!(change(&rig, "l1500", renew), 200);
        rig.reach("serve", "serving");
        assert_eq!(change(&rig, "l0000", acquire), 200);
        assert_eq!(change(&rig, "l2999", acquire), 200);
        assert_eq!(rig.call("DELETE", &path(NAMESPACE, "l2000"), "").0, 200);
        rig.reach("freeze", "written-back");
        assert_eq!(rig.annotation("message"), "2999 Leases written back");
        assert_eq!(rig.count_built_in(), LEASES - 1, "{storage}");
        for name in ["l0000", "l2999"] {
            assert!(rig.built_in(name).is_some_and(|value| value.contains("other")), "{storage}: {name}");
        }
        assert_eq!(rig.built_in("l2000"), None);

        // kube-apiserver deletes most of the Leases. The next takeover must delete the same ones here.
        rig.register(false);
        let [first, end] = ["l0100", "l2900"].map(|name| BASE64_STANDARD.encode(key(name)));
        rig.ask_etcd("kv/deleterange", &json!({"key": first, "range_end": end}));
        rig.reach("import", "imported");
        assert_eq!(rig.annotation("message"), "200 Leases are here");
        for (name, status) in [("l0099", 200), ("l0100", 404), ("l2899", 404), ("l2900", 200)] {
            assert_eq!(rig.call("GET", &path(NAMESPACE, name), "").0, status, "{storage}: {name}");
        }
    }
}

#[test]
fn outdated_leases_are_not_written_after_a_rollback() {
    let Some(mut rig) = Rig::start("disk") else { return };
    rig.put_built_in("a", "h", EARLY);
    rig.take_over();
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
    // This server's Leases are outdated, so it must not write them to built-in storage.
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
    // The server has written the renewal to built-in storage, so the next import finds the renewal's time there.
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
        rig.take_over();
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

/// Goal: a client that renews a Lease during a takeover can renew it after the takeover, with the version that it got.
/// Method: etcd is paused while the server reads built-in storage, and continues in the phase `serve`.
#[test]
fn a_renewal_during_a_takeover_keeps_its_version() {
    for storage in ["memory", "disk"] {
        let Some(rig) = Rig::start(storage) else { return };
        rig.put_built_in("a", "h", EARLY);
        rig.reach("import", "imported");
        rig.register(true);
        assert_eq!(change(&rig, "a", renew), 200);
        // The read of the Lease waits for a round. So the paused read returns no change.
        let renewed = rig.lease("a");
        rig.etcd.signal("STOP");
        // Longer than the pause between two reads. So the server waits for the answer to a read.
        thread::sleep(Duration::from_millis(400));
        rig.ask_for("serve");
        // In this time, the server sees the new phase.
        thread::sleep(Duration::from_millis(100));
        rig.etcd.signal("CONT");
        eventually("serving", || rig.step() == "serving");
        let version = version_of(&renewed);
        assert_eq!(rig.update(renewed, &version, |spec| spec["renewTime"] = LATER.into()), 200, "{storage}");
    }
}

/// Goal: while the kube-apiservers switch to this server, it copies renewals to built-in storage, where watches from
/// before the switch read them. It also does so if it serves again after a rollback was abandoned.
#[test]
fn renewals_are_fed_during_a_switch_and_after_an_abandoned_freeze() {
    let Some(rig) = Rig::start("disk") else { return };
    rig.put_built_in("a", "h", EARLY);
    rig.reach("import", "imported");
    rig.register(true);
    let fed = |time: &str| {
        let before = rig.built_in_revision("a");
        assert_eq!(change(&rig, "a", |spec| spec["renewTime"] = time.into()), 200);
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
    rig.take_over();
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

/// Goal: a Lease that etcd refuses does not make the server forget which other Leases it has written. Otherwise the
/// server would take its own writes for those of another client, and log a warning. Method: etcd accepts no large
/// request. While etcd is stopped, clients create a large Lease, and so many small ones that the server writes them in
/// several transactions. The first one fails.
#[test]
fn a_refused_lease_hides_no_written_lease() {
    let Some(rig) = Rig::start_with(&["--max-request-bytes=200000"], "memory") else { return };
    rig.take_over();
    rig.etcd.signal("STOP");
    let create = |body: &str| assert_eq!(rig.call("POST", &collection(NAMESPACE), body).0, 201);
    create(&new("first"));
    // The server begins to write `first`, and waits for etcd. So its next write has all Leases that are created below.
    thread::sleep(Duration::from_millis(500));
    create(&json!({"metadata": {"name": "a"}, "spec": {"holderIdentity": "h".repeat(300_000)}}).to_string());
    (0..250).for_each(|number| create(&new(&format!("b{number}"))));
    rig.etcd.signal("CONT");
    eventually("the refusal", || rig.annotation("message").contains("request is too large"));
    assert_eq!(rig.call("DELETE", &path(NAMESPACE, "a"), "").0, 200);
    eventually("the other Leases are written", || rig.count_built_in() == 251);
    create(&new("last"));
    eventually("the last Lease is written", || rig.built_in("last").is_some());
    assert!(!rig.server.log().contains("another client has written"), "{}", rig.server.log());
}

/// The thread that reads and writes built-in storage, without a server.
struct BuiltIn {
    poll: Poll,
    port: BuiltInPort,
}

impl BuiltIn {
    fn start(rig: &Rig) -> Self {
        let poll = Poll::new().expect("a poll");
        let waker = Waker::new(poll.registry(), Token(0)).expect("a waker");
        let config = Config { endpoints: vec![rig.etcd.url()], prefix: "/registry".into(), ..Config::default() };
        Self { poll, port: BuiltInPort::start(config, Arc::new(waker)).expect("a port") }
    }

    /// Returns the answer to the command that was sent.
    fn answer(&mut self) -> BuiltInEvent {
        loop {
            let mut events = Events::with_capacity(1);
            self.poll.poll(&mut events, Some(Duration::from_secs(30))).expect("an event of the thread");
            if let Some(event) = self.port.next() {
                return event;
            }
        }
    }

    /// Reads the changes since the last read. Returns the names of the changed Leases.
    fn read(&mut self) -> Vec<String> {
        self.port.send(BuiltInCommand::Read { is_complete: false });
        match self.answer() {
            BuiltInEvent::Read { leases, .. } => leases.into_keys().collect(),
            other => panic!("{other:?}"),
        }
    }
}

/// Goal: a read of the changes returns each changed Lease once, whether no Lease, some or most have changed. If many
/// have changed, the thread reads all Leases.
#[test]
fn a_read_returns_only_changed_leases() {
    const LEASES: usize = 5_000;
    let Some(rig) = Rig::start("memory") else { return };
    let mut built_in = BuiltIn::start(&rig);
    let names: Vec<_> = (0..LEASES).map(|number| format!("l{number:04}")).collect();
    rig.put_many_built_in(&names);
    assert_eq!(built_in.read().len(), LEASES);
    for changed in [0, 1, LEASES / 2, LEASES - 1] {
        rig.put_many_built_in(&names[..changed]);
        let expected: Vec<_> = names[..changed].iter().map(|name| format!("{NAMESPACE}/{name}")).collect();
        assert_eq!(built_in.read(), expected);
    }
    rig.delete_built_in("l0000");
    assert_eq!(built_in.read(), ["default/l0000"]);
}

/// Goal: a canceled write ends before it has written all Leases. The next commands are carried out as usual.
#[test]
fn a_canceled_write_ends_early() {
    const LEASES: usize = 5_000;
    let Some(rig) = Rig::start("memory") else { return };
    rig.register(true);
    let mut built_in = BuiltIn::start(&rig);
    let lease = |number| Wanted { key: format!("{NAMESPACE}/l{number}"), value: Some(b"{}".to_vec()) };
    let leases: Vec<_> = (0..LEASES).map(lease).collect();
    let write = BuiltInCommand::Write { leases, is_complete: false, is_forced: false, api_service: None };
    built_in.port.send(write.clone());
    built_in.port.cancel();
    assert!(matches!(built_in.answer(), BuiltInEvent::Failed { is_lost: false, .. }));
    let last = format!("l{}", LEASES - 1);
    assert_eq!(rig.built_in(&last), None);
    built_in.port.send(write);
    assert_eq!(built_in.answer(), BuiltInEvent::Written { overtaken: Vec::new() });
    assert_eq!(rig.count_built_in(), LEASES);
}

/// Goal: a Lease that cannot be copied delays the end of a takeover, but no renewal of another Lease.
#[test]
fn a_lease_that_cannot_be_copied_delays_no_renewal() {
    let Some(rig) = Rig::start("memory") else { return };
    rig.put_built_in("a", "h", EARLY);
    rig.put_built_in("b", "h", EARLY);
    rig.reach("import", "imported");
    rig.register(true);
    let labels: Value = (0..=1_000).map(|number| (format!("l{number}"), "")).collect();
    let lease = json!({
        "kind": "Lease", "apiVersion": "coordination.k8s.io/v1",
        "metadata": {"name": "b", "namespace": NAMESPACE, "labels": labels},
    });
    rig.etcd.put(&key("b"), lease.to_string().as_bytes());
    eventually("the reason", || rig.annotation("message").contains("default/b: metadata: Too many"));
    assert_eq!(rig.step(), "", "the command does not replace the APIService");
    assert_eq!(change(&rig, "a", renew), 200);
    assert_eq!(rig.call("GET", &path(NAMESPACE, "b"), "").0, 404, "nobody renews an older state");
    rig.ask_for("serve");
    assert_eq!(change(&rig, "a", |spec| spec["renewTime"] = LATER.into()), 200);
    assert_eq!(rig.step(), "");
    rig.delete_built_in("b");
    eventually("the end of the takeover", || rig.step() == "serving");
}

#[test]
fn a_lease_that_cannot_be_read_is_reported() {
    let Some(rig) = Rig::start("memory") else { return };
    rig.etcd.put(&key("a"), b"k8s:enc:aescbc:v1:key:x");
    rig.ask_for("import");
    eventually("the reason", || rig.annotation("message").contains("default/a is encrypted at rest"));
    assert_eq!(rig.step(), "");
    // The phase `undo` cancels the takeover. The unreadable Lease is deleted before the next takeover.
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
    assert_eq!(change(&rig, "a", renew), 200);
    assert_eq!(change(&rig, "a", acquire), 429);
    assert_eq!(rig.call("DELETE", &path(NAMESPACE, "a"), "").0, 429);
    assert_eq!(rig.call("POST", &collection(NAMESPACE), &new("b")).0, 429);
    let version = version_of(&rig.lease("a"));
    let replicas = "labelSelector=apiserver.kubernetes.io/identity%3Dcoordination-apiserver&resourceVersion=0";
    let [watch, others] = [format!("watch=1&{replicas}"), "labelSelector=a%3Db&resourceVersion=0".to_owned()];
    let at_version = format!("watch=1&resourceVersion={version}");
    for query in ["", "resourceVersion=0", "watch=1", &at_version, &watch, &others] {
        let (status, _) = rig.call("GET", &format!("{}?{query}", collection(NAMESPACE)), "");
        assert_eq!(status, 429, "a watch from a version of this server must not reach built-in storage: {query}");
    }
    let listed = rig.call("GET", &format!("{}?{replicas}", collection(NAMESPACE)), "").0;
    assert_eq!(listed, 200, "the command looks for replicas that have not confirmed the phase");
    rig.register(true);
    rig.ask_with("serve", Some("serving"));
    assert_eq!(change(&rig, "a", acquire), 200);
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
