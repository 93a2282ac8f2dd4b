//! Durability on disk across SIGKILL and restarts, and the error messages about a data folder or disk that is unusable.

#![allow(clippy::panic, clippy::unwrap_used, reason = "tests fail by panicking")]

mod support;

use serde_json::Value;
use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::process::Command;
use std::thread;
use std::time::Duration;
use support::client::{Client, request};
use support::eventually;
use support::lease::{collection, new, path, version};
use support::process::{Process, failure};
use support::watch::Watch;
use tempfile::TempDir;

const FILES_MAX: u32 = 1024;
const NAMESPACE: &str = "kept";

/// Returns the flags of a server that uses no folder but `data`.
fn flags(data: &Path) -> [String; 4] {
    ["--secure-port=0".into(), "--insecure-port=1".into(), "--data-dir".into(), data.to_string_lossy().into_owned()]
}

fn failure_with(data: &Path) -> String {
    failure(&flags(data).each_ref().map(String::as_str))
}

fn create(client: &mut Client, name: &str) -> Value {
    client.call("POST", &collection(NAMESPACE), &new(name)).expect_status(201, name).json()
}

#[test]
fn a_kill_loses_no_acknowledged_write() {
    let mut process = Process::start(&[], FILES_MAX);
    let mut known: Vec<Value> = Vec::new();
    for round in 0..3 {
        let mut client = Client::open(process.endpoint());
        for at in 0..20 {
            known.push(create(&mut client, &format!("l{round}-{at}")));
        }
        let mut renewed = known[round].clone();
        renewed["spec"]["renewTime"] = "2026-01-02T03:04:05.000001Z".into();
        let target = path(NAMESPACE, renewed["metadata"]["name"].as_str().expect("a name"));
        known[round] = client.call("PUT", &target, &renewed.to_string()).expect_status(200, "renewed").json();
        let gone = known.pop().expect("a Lease");
        let target = path(NAMESPACE, gone["metadata"]["name"].as_str().expect("a name"));
        client.call("DELETE", &target, "").expect_status(200, "deleted");
        process.kill();
        process.restart();
        let list = Client::open(process.endpoint()).call("GET", &collection(NAMESPACE), "").json();
        let mut items = list["items"].as_array().expect("items").clone();
        for item in &mut items {
            item["kind"] = "Lease".into();
            item["apiVersion"] = "coordination.k8s.io/v1".into();
        }
        let mut sorted = known.clone();
        sorted.sort_by_key(|object| object["metadata"]["name"].as_str().expect("a name").to_owned());
        assert_eq!(items, sorted, "round {round}");
    }
    let last = version(known.last().expect("a Lease"));
    assert!(version(&create(&mut Client::open(process.endpoint()), "later")) > last, "versions never go back");
}

/// Goal: a server that dies just after a switch by hand still reserves missing locks for their former holders. A server
/// with an old store reserves none.
#[test]
fn a_restart_keeps_the_reservations_of_a_young_store() {
    for (flag, pause, status) in
        [("--reclaim-seconds=600", Duration::ZERO, 429), ("--reclaim-seconds=1", Duration::from_secs(3), 201)]
    {
        let mut process = Process::start(&[flag], FILES_MAX);
        let mut client = Client::open(process.endpoint());
        client.call("POST", &collection("kube-node-lease"), &new("node")).expect_status(201, "a node's Lease");
        thread::sleep(pause);
        process.kill();
        process.restart();
        let lock = Client::open(process.endpoint()).call("POST", &collection(NAMESPACE), &new("lock"));
        assert_eq!(lock.status(), status, "{flag}");
    }
}

/// docs/fencing.md promises that each change of a lock has a higher version than all earlier ones, also after a
/// deletion or a restart.
#[test]
fn versions_of_a_lock_increase_across_deletions_and_restarts() {
    for storage in ["--storage=disk", "--storage=memory"] {
        let mut process = Process::start(&[storage], FILES_MAX);
        let mut last = 0;
        let mut grows = |object: &Value| {
            assert!(version(object) > last, "{storage}: {} after {last}", version(object));
            last = version(object);
        };
        for round in 0..4 {
            let mut client = Client::open(process.endpoint());
            let lock = path(NAMESPACE, "lock");
            let mut taken = create(&mut client, "lock");
            grows(&taken);
            taken["spec"]["holderIdentity"] = "another".into();
            grows(&client.call("PUT", &lock, &taken.to_string()).expect_status(200, "taken").json());
            if round % 2 == 0 {
                process.kill();
            } else {
                process.stop();
            }
            process.restart();
            // Storage in memory has lost the Lease.
            let deleted = Client::open(process.endpoint()).call("DELETE", &lock, "");
            assert_eq!(deleted.status(), if storage == "--storage=disk" { 200 } else { 404 });
        }
    }
}

#[test]
fn a_watch_resumes_after_a_kill_and_after_a_stop() {
    let mut process = Process::start(&[], FILES_MAX);
    let mut seen = version(&create(&mut Client::open(process.endpoint()), "first"));
    for (round, signal) in ["KILL", "TERM", "KILL"].into_iter().enumerate() {
        let mut client = Client::open(process.endpoint());
        let missed = version(&create(&mut client, &format!("missed-{round}")));
        process.signal(signal);
        let status = process.wait();
        assert_eq!(status.code(), if signal == "TERM" { Some(0) } else { None }, "{}", process.log());
        process.restart();
        let target = format!("{}?watch=true&resourceVersion={seen}", collection(NAMESPACE));
        let mut watch = Watch::open(process.endpoint(), &target);
        let event = watch.next();
        assert_eq!((event["type"].as_str(), version(&event["object"])), (Some("ADDED"), missed), "{event}");
        let made = version(&create(&mut Client::open(process.endpoint()), &format!("seen-{round}")));
        seen = version(&watch.next()["object"]);
        assert_eq!(seen, made, "the next event");
    }
}

#[test]
fn a_data_folder_in_use_refuses_a_second_process() {
    let process = Process::start(&[], FILES_MAX);
    let line = failure_with(&process.data_dir());
    let folder = process.data_dir().to_string_lossy().into_owned();
    assert!(line.contains(&folder) && line.contains(&format!("process {}", process.id())), "{line}");
}

/// Renames a backup over the file of a running server, as an operator could. The server still has the old file open,
/// but its next start would read the backup.
fn replace_store(process: &Process) {
    let [file, backup] = ["journal.redb", "backup"].map(|name| process.data_dir().join(name));
    fs::copy(&file, &backup).expect("a copy");
    fs::rename(&backup, &file).expect("a rename");
}

/// The next start of the server reads the new file, so it would lose a write to the old file. So the server must not
/// acknowledge the write.
#[test]
fn a_server_acknowledges_no_write_to_a_file_that_was_replaced() {
    let mut process = Process::start(&[], FILES_MAX);
    let mut client = Client::open(process.endpoint());
    create(&mut client, "a");
    replace_store(&process);
    client.send(request("POST", &collection(NAMESPACE), &new("b")));
    let answer = client.try_recv("POST");
    assert!(!answer.is_ok_and(|answer| answer.status() == 201), "the write is acknowledged");
    assert_eq!(process.wait().code(), Some(1));
    assert!(process.log().contains("somebody has moved, replaced or deleted"), "{}", process.log());
}

/// Goal: the exit status shows an error of the stop itself. A stop syncs the file, and each sync notices that the file
/// was replaced.
#[test]
fn a_failed_sync_of_a_stop_sets_the_exit_status() {
    let mut process = Process::start(&[], FILES_MAX);
    create(&mut Client::open(process.endpoint()), "a");
    replace_store(&process);
    process.signal("TERM");
    assert_eq!(process.wait().code(), Some(1), "{}", process.log());
    assert!(process.log().contains("somebody has moved, replaced or deleted"), "{}", process.log());
}

#[test]
fn an_unwritable_data_folder_is_named_in_the_error() {
    let folder = TempDir::new().expect("a folder");
    let file = folder.path().join("file");
    File::create(&file).expect("a file");
    let below = file.join("data");
    let line = failure_with(&below);
    assert!(line.contains(&*below.to_string_lossy()) && line.contains("Not a directory"), "{line}");
    // Even root cannot create a folder in /proc.
    let line = failure_with(Path::new("/proc/data"));
    assert!(line.contains("/proc/data"), "{line}");
}

/// Goal: with any changed byte in the store, the server names the damage and does not start, or it has all Leases.
#[test]
fn a_flipped_byte_is_reported_or_harmless() {
    let mut process = Process::start(&[], FILES_MAX);
    let mut client = Client::open(process.endpoint());
    for at in 0..50 {
        create(&mut client, &format!("l{at}"));
    }
    let held = client.call("GET", &collection(NAMESPACE), "").json();
    process.signal("TERM");
    process.wait();
    let file = process.data_dir().join("journal.redb");
    let whole = fs::read(&file).expect("the store");
    let mut refused = 0;
    for at in (0..whole.len()).step_by(whole.len() / 40) {
        fs::write(&file, &whole).expect("the store is as it was");
        File::options().write(true).open(&file).expect("the store").write_at(&[!whole[at]], at as u64).expect("a byte");
        process.respawn();
        let mut is_ready = false;
        eventually("the process is ready or has ended", || {
            is_ready = process.answers();
            is_ready || !process.is_running()
        });
        if is_ready {
            let list = Client::open(process.endpoint()).call("GET", &collection(NAMESPACE), "").json();
            assert_eq!(list["items"], held["items"], "byte {at}");
            process.kill();
        } else {
            refused += 1;
            let log = process.log();
            let line = log.lines().last().unwrap_or_default();
            assert!(line.contains("journal.redb") && line.contains("damaged"), "byte {at}: {line}");
        }
    }
    assert!(refused > 0, "no changed byte was detected");
}

/// Goal: on a full disk, the server refuses writes and serves reads. No write is lost. Writes succeed again when the
/// disk has space, without a restart.
#[test]
fn a_full_disk_refuses_writes_until_there_is_room() {
    let Some(disk) = SmallDisk::mount("6m") else { return };
    let data = disk.0.path().join("data");
    let data_dir = data.to_string_lossy().into_owned();
    let mut process = Process::start(&["--data-dir", &data_dir], FILES_MAX);
    let mut client = Client::open(process.endpoint());
    create(&mut client, "before");
    let filler = disk.0.path().join("filler");
    fill(&filler);
    let large = new("large").replace("node-a", &"x".repeat(400_000));
    let mut acknowledged = vec!["before".to_owned()];
    let mut refused = None;
    for at in 0..64 {
        let name = format!("large-{at}");
        let got = client.call("POST", &collection(NAMESPACE), &large.replace("large", &name));
        if got.status() != 201 {
            refused = Some(got);
            break;
        }
        acknowledged.push(name);
    }
    let refused = refused.expect("no write is refused").expect_status(507, "no space");
    assert!(refused.head.field("retry-after").is_some(), "{refused}");
    assert!(refused.json()["message"].as_str().is_some_and(|message| message.contains("no space")), "{refused}");
    client.call("GET", &path(NAMESPACE, "before"), "").expect_status(200, "reads go on");
    client.call("GET", "/readyz/journal", "").expect_status(503, "the journal cannot be written");
    client.call("GET", "/livez", "").expect_status(200, "it lives");
    fs::remove_file(&filler).expect("the filler goes");
    eventually("writes work again", || client.call("POST", &collection(NAMESPACE), &new("after")).status() == 201);
    acknowledged.push("after".to_owned());
    client.call("GET", "/readyz/journal", "").expect_status(200, "the journal can be written");
    process.kill();
    process.restart();
    let mut client = Client::open(process.endpoint());
    for name in &acknowledged {
        client.call("GET", &path(NAMESPACE, name), "").expect_status(200, name);
    }
    process.kill();
}

/// Goal: at a limit for the size of a file, the server refuses writes, as on a full disk. By default, the signal
/// SIGXFSZ would end the process.
#[test]
fn a_file_size_limit_refuses_writes() {
    let limited = ["sh", "-c", "ulimit -f 4096 && exec \"$@\"", "sh"].map(Into::into);
    let mut process = Process::start_under(&limited, &[], FILES_MAX);
    let mut client = Client::open(process.endpoint());
    let large = new("large").replace("node-a", &"x".repeat(400_000));
    let mut acknowledged = 0;
    let refused = loop {
        let got =
            client.call("POST", &collection(NAMESPACE), &large.replace("large", &format!("large-{acknowledged}")));
        if got.status() != 201 {
            break got;
        }
        acknowledged += 1;
    };
    refused.expect_status(507, "no space");
    client.call("GET", &path(NAMESPACE, "large-0"), "").expect_status(200, "reads go on");
    process.kill();
    process.restart();
    let mut client = Client::open(process.endpoint());
    for number in 0..acknowledged {
        client.call("GET", &path(NAMESPACE, &format!("large-{number}")), "").expect_status(200, "acknowledged");
    }
    process.kill();
}

/// A separate file system, unmounted when this is dropped.
struct SmallDisk(TempDir);

impl SmallDisk {
    /// Mounts a file system of this size. `None` without the right to mount.
    fn mount(size: &str) -> Option<Self> {
        let folder = TempDir::new().expect("a folder");
        let options = format!("size={size}");
        let mounted = Command::new("mount").args(["-t", "tmpfs", "-o", &options, "tmpfs"]).arg(folder.path()).output();
        mounted.is_ok_and(|output| output.status.success()).then_some(Self(folder))
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        let _it_may_be_busy = Command::new("umount").arg("--lazy").arg(self.0.path()).status();
    }
}

/// Fills the file system of `file` except for 1 MiB.
fn fill(file: &Path) {
    let filler = File::create(file).expect("a file");
    let (page, mut bytes) = ([7; 4096], 0);
    while filler.write_all_at(&page, bytes).is_ok() {
        bytes += 4096;
    }
    filler.set_len(bytes.saturating_sub(1024 * 1024)).expect("a shorter file");
}
