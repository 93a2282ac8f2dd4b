//! The program from outside: messages about a wrong command line, start and stop.

#![allow(clippy::panic, clippy::unwrap_used, reason = "tests fail by panicking")]

mod support;

use coordination_apiserver::tls::reload::LOOK_EVERY;
use rustix::process::{Pid, Signal, kill_process};
use std::ffi::OsString;
use std::fs::{self, File};
use std::io::{ErrorKind, PipeReader, PipeWriter, Write as _, pipe};
use std::net::TcpListener;
use std::os::fd::AsRawFd as _;
use std::os::unix::net::UnixDatagram;
use std::os::unix::process::ExitStatusExt as _;
use std::path::Path;
use std::process::{Command, Output};
use std::time::{Duration, Instant};
use support::client::Client;
use support::ports::free_port;
use support::process::Process;
use support::{eventually, lease};

const EXE: &str = env!("CARGO_BIN_EXE_coordination-apiserver");
const FILES_MAX: u32 = 1024;

fn program(args: &[&str]) -> Output {
    // An impossible home folder, so that tests never create certificates in a user's home.
    Command::new(EXE).args(args).env("HOME", "/dev/null").env_remove("XDG_STATE_HOME").output().expect("it runs")
}

/// Runs the program and returns its one line about the failure.
#[track_caller]
fn failure(args: &[&str], status: i32) -> String {
    let output = program(args);
    let stderr = String::from_utf8(output.stderr).expect("UTF-8");
    assert_eq!(output.status.code(), Some(status), "{args:?}: {stderr}");
    assert_eq!(String::from_utf8_lossy(&output.stdout), "", "{args:?}");
    assert!(stderr.ends_with('\n') && stderr.lines().count() == 1, "{args:?}: {stderr:?}");
    let line = stderr.trim_end().strip_prefix("coordination-apiserver: ").expect("the program's name").to_owned();
    assert!(!line.chars().any(char::is_control), "{line:?}");
    line
}

#[test]
fn an_invalid_flag_is_reported_in_one_line_with_status_2() {
    for (args, expected) in [
        (&["--no-such-flag"][..], "--no-such-flag"),
        (&["stray"], "stray"),
        (&["--secure-prot=1"], "--secure-port"),
        (&["--bind-address=localhost"], "--bind-address"),
        (&["--bind-address=1.2.3.4.5"], "--bind-address"),
        (&["--secure-port=65536"], "65536"),
        (&["--secure-port=-1"], "-1"),
        (&["--secure-port=https"], "https"),
        (&["--secure-port="], "--secure-port"),
        (&["--secure-port"], "--secure-port"),
        (&["--secure-port=many", "--secure-port=2"], "many"),
        (&["--secure-port=0"], "--insecure-port"),
        (&["--insecure-port=70000"], "70000"),
        (&["--insecure-port=8443"], "8443"),
        (&["--max-connections=0"], "--max-connections"),
        (&["--max-connections=many"], "many"),
        (&["--watch-window-events=0"], "--watch-window-events"),
        (&["--watch-window-events=1.5"], "1.5"),
        (&["--watch-window-bytes=0"], "--watch-window-bytes"),
        (&["--watch-window-bytes=256MB"], "512KiB"),
        (&["--watch-window-bytes=99999999999999999999"], "--watch-window-bytes"),
        (&["--feature-gates=ShardedListAndWatch"], "--feature-gates: missing bool value for ShardedListAndWatch"),
        (&["--feature-gates=ShardedListAndWatch=on"], "--feature-gates: invalid value of ShardedListAndWatch=on"),
        (
            &["--feature-gates=ShardedListAndWatch=true,WatchList=true"],
            "--feature-gates: unrecognized feature gate: WatchList",
        ),
        (&["--log-format=xml"], "text, json"),
        (&["--log-format=a\nb\u{1b}[1m"], "--log-format"),
        (&["-v=11"], "11"),
        (&["-v=loud"], "loud"),
        (&["--tls-cert-file=/dev/null"], "--tls-private-key-file"),
        (&["--tls-private-key-file=/dev/null"], "--tls-cert-file"),
        (
            &["--tls-cert-file=/nowhere/a", "--tls-private-key-file=/nowhere/b"],
            "--tls-cert-file /nowhere/a: No such file",
        ),
        (&["--client-ca-file=/nowhere/ca"], "--client-ca-file /nowhere/ca: No such file"),
        (&["--client-ca-file=/"], "--client-ca-file /: "),
        (
            &["--requestheader-client-ca-file=/dev/null", "--requestheader-allowed-names=,"],
            "--requestheader-allowed-names \",\": ",
        ),
        (&["--cert-dir="], "--cert-dir"),
        (&["--cert-dir=/dev/null"], "--cert-dir /dev/null: not a folder"),
        (&["--cert-dir=/dev/null/x"], "--cert-dir /dev/null/x: "),
    ] {
        let line = failure(args, 2);
        assert!(line.contains(expected), "{args:?}: {line}");
    }
}

#[test]
fn a_file_without_a_certificate_is_an_invalid_flag_value() {
    let dir = tempfile::tempdir().expect("a folder");
    let file = dir.path().join("empty.pem");
    fs::write(&file, "").expect("written");
    let file = file.to_str().expect("UTF-8");
    let (cert, key, ca) = (
        format!("--tls-cert-file={file}"),
        format!("--tls-private-key-file={file}"),
        format!("--client-ca-file={file}"),
    );
    let line = failure(&[&cert, &key, &ca], 2);
    assert!(line.contains("empty.pem: holds no PEM certificate"), "{line}");
}

#[test]
fn a_port_in_use_is_reported_in_one_line_with_status_1() {
    let taken = TcpListener::bind("127.0.0.1:0").expect("a port");
    let port = taken.local_addr().expect("an address").port();
    let line = failure(&["--secure-port=0", &format!("--insecure-port={port}")], 1);
    assert!(line.contains(&format!("127.0.0.1:{port}")) && line.contains("in use"), "{line}");
}

#[test]
fn a_kube_apiserver_that_does_not_answer_is_reported_in_one_line_with_status_1() {
    let dir = tempfile::tempdir().expect("a folder");
    let kubeconfig = dir.path().join("kubeconfig");
    let text = "apiVersion: v1\nkind: Config\nclusters:\n- name: c\n  cluster: {server: 'https://127.0.0.1:1', \
                insecure-skip-tls-verify: true}\nusers:\n- name: u\n  user: {}\ncontexts:\n- name: c\n  context: \
                {cluster: c, user: u}\ncurrent-context: c\n";
    fs::write(&kubeconfig, text).expect("written");
    let kubeconfig = format!("--kubeconfig={}", kubeconfig.display());
    let line = failure(&["rollback", &kubeconfig, "--endpoint=https://127.0.0.1:2"], 1);
    assert!(line.starts_with("https://127.0.0.1:1") && line.contains(": no answer from kube-apiserver: "), "{line}");
}

/// Goal: a command that cannot reach etcd prints a warning soon, and ends with the reason. Port 9 refuses connections.
#[test]
fn a_command_that_cannot_reach_etcd_ends_with_the_reason() {
    let dir = tempfile::tempdir().expect("a folder");
    let folder = format!("--data-dir={}", dir.path().join("new").display());
    let migrate = ["migrate-storage", "--from=etcd", "--to=disk", &folder];
    let commands = [&["inspect"][..], &migrate];
    std::thread::scope(|scope| {
        // The commands end only at their timeout for etcd, so they run at the same time.
        for command in commands {
            scope.spawn(move || {
                let output = program(&[command, &["--etcd-servers=http://127.0.0.1:9"]].concat());
                let stderr = String::from_utf8(output.stderr).expect("UTF-8");
                assert!(output.status.code() == Some(1) && output.stdout.is_empty(), "{stderr}");
                let (told, failed) = stderr.trim_end().rsplit_once('\n').expect("a warning before the failure");
                assert!(told.contains("trying again") && told.contains("refused"), "{stderr}");
                assert!(failed.contains("cannot reach etcd at http://127.0.0.1:9"), "{stderr}");
                assert!(failed.contains("refused"), "{stderr}");
            });
        }
    });
}

/// Goal: a document that is printed to a full disk is not taken for a complete one.
#[test]
fn a_document_that_cannot_be_printed_is_an_error() {
    for words in [&["--help"][..], &["man"], &["completion", "bash"]] {
        let full = File::options().write(true).open("/dev/full").expect("a device");
        let output = Command::new(EXE).args(words).stdout(full).output().expect("it starts");
        assert_eq!(output.status.code(), Some(1), "{words:?}");
        let line = String::from_utf8_lossy(&output.stderr);
        assert!(line.contains("cannot write to standard output: No space left on device"), "{line}");
    }
}

/// Goal: a write beyond the limit for the size of a file is reported. By default, the signal SIGXFSZ would end the
/// program without a message.
#[test]
fn a_file_size_limit_is_an_error_of_every_command() {
    let dir = tempfile::tempdir().expect("a folder");
    let script = "ulimit -f 0 && file=$1 && shift && exec \"$@\" > \"$file\"";
    for words in [&["--help"][..], &["man"], &["completion", "bash"]] {
        let mut limited = Command::new("sh");
        limited.args(["-c", script, "sh"]).arg(dir.path().join("printed")).arg(EXE).args(words);
        let output = limited.output().expect("it starts");
        let line = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(1), "{words:?}: {line}");
        assert!(line.contains("cannot write to standard output: File too large"), "{line}");
    }
}

/// Goal: the damage of a store is reported even if the summary of the store cannot be printed.
#[test]
fn damage_is_reported_even_if_standard_output_is_full() {
    let folder = tempfile::tempdir().expect("a folder");
    fs::write(folder.path().join("journal.redb"), "no store").expect("written");
    let full = File::options().write(true).open("/dev/full").expect("a device");
    let mut inspect = Command::new(EXE);
    inspect.args(["inspect", "--data-dir"]).arg(folder.path()).stdout(full);
    let output = inspect.output().expect("it starts");
    assert_eq!(output.status.code(), Some(1));
    let lines = String::from_utf8_lossy(&output.stderr);
    assert!(lines.contains("the file is too short") && lines.contains("cannot write to standard output"), "{lines}");
}

#[test]
fn help_and_version_go_to_standard_output() {
    for (flag, expected) in [("--help", "--watch-window-bytes"), ("--version", env!("CARGO_PKG_VERSION"))] {
        let output = program(&[flag]);
        assert!(output.status.success());
        assert!(output.stderr.is_empty());
        assert!(String::from_utf8_lossy(&output.stdout).contains(expected));
    }
}

/// Waits until the server has logged a line with these words, and returns the line.
fn logged(server: &Process, words: &str) -> String {
    let mut found = None;
    eventually(words, || {
        found = server.log().split_inclusive('\n').find(|line| line.contains(words)).map(str::to_owned);
        found.as_ref().is_some_and(|line| line.ends_with('\n'))
    });
    found.unwrap()
}

/// Checks that the ready line names this kubeconfig, and that the kubeconfig names the server.
fn expect_usage(server: &Process, kubeconfig: &Path) {
    let line = logged(server, "Ready: ");
    let (_, usage) = line.trim_end().split_once("Ready: ").unwrap();
    assert_eq!(usage, format!("kubectl --kubeconfig {} get leases -A", kubeconfig.display()));
    let text = fs::read_to_string(kubeconfig).unwrap();
    assert!(text.contains(&format!("server: https://{}\n", server.secure_address())), "{text}");
}

#[test]
fn the_ready_line_shows_the_usage_and_a_signal_stops_the_server() {
    for signal in ["TERM", "INT"] {
        let mut server = Process::start(&[], FILES_MAX);
        expect_usage(&server, &server.cert_dir().join("admin.kubeconfig"));
        for (count, ignored) in (1..).zip(["HUP", "USR1", "USR2"]) {
            server.signal(ignored);
            eventually(ignored, || server.log().matches("ignored: ").count() == count);
        }
        server.signal(signal);
        assert_eq!(server.wait().code(), Some(0));
        let (log, address) = (server.log(), server.endpoint().address.to_string());
        let warning = log.lines().find(|line| line.contains("WARN") && line.contains("without authentication"));
        assert!(warning.is_some_and(|line| line.contains(&address)), "{log}");
    }
}

#[test]
fn a_change_of_holder_is_logged_with_both_holders_and_its_author() {
    let mut server = Process::start(&[], FILES_MAX);
    let mut client = Client::open(server.endpoint());
    let lines = "User-Agent: taker/1.0 \"x\"\r\nContent-Type: application/json\r\n";
    let created = client.call_with("POST", &lease::collection("default"), lines, lease::new("lock"));
    let mut lock = created.expect_status(201, "the first holder").json();
    lock["spec"]["holderIdentity"] = "second".into();
    let updated = client.call_with("PUT", &lease::path("default", "lock"), lines, lock.to_string());
    updated.expect_status(200, "the second holder");
    let line = logged(&server, r#"from="node-a""#);
    for part in [
        "INFO",
        "holder of a Lease changed",
        r#"namespace="default""#,
        r#"name="lock""#,
        r#"to="second""#,
        r#"user="system:unsecured""#,
        r#"user_agent="taker/1.0 \"x\"""#,
    ] {
        assert!(line.contains(part), "{part}: {line}");
    }
    server.stop();
}

#[test]
fn no_admin_certificate_is_created_for_a_foreign_authority() {
    let dir = tempfile::tempdir().unwrap();
    let cluster = dir.path().join("cluster.kubeconfig");
    let text = format!(
        "{{clusters: [{{name: a, cluster: {{server: 'http://{}'}}}}], current-context: a, \
         contexts: [{{name: a, context: {{cluster: a, user: a}}}}], users: [{{name: a, user: {{}}}}]}}",
        free_port()
    );
    fs::write(&cluster, text).unwrap();
    let cluster = format!("--kubeconfig={}", cluster.display());
    let mut server = Process::spawn(&[], &["--insecure-port=0", "--requestheader-from-cluster", &cluster], FILES_MAX);
    logged(&server, "cannot follow");
    assert!(server.log().contains("server=\"http://127.0.0.1:"));
    let files = fs::read_dir(server.cert_dir()).unwrap();
    let made: Vec<_> = files.map(|file| file.unwrap().file_name()).collect();
    assert!(made.iter().any(|name| name == "apiserver.crt"), "{made:?}");
    assert!(!made.iter().any(|name| name.to_string_lossy().starts_with("admin")), "{made:?}");
    server.stop();
    assert!(!server.log().contains("Ready"), "the server is ready without a client authority");
}

#[test]
fn a_second_server_does_not_overwrite_the_first_kubeconfig() {
    let first = Process::start(&[], FILES_MAX);
    let (certs, data) = (first.cert_dir(), tempfile::tempdir().unwrap());
    let flags = ["--cert-dir", certs.to_str().unwrap(), "--data-dir", data.path().to_str().unwrap()];
    let second = Process::start(&flags, FILES_MAX);
    expect_usage(&first, &certs.join("admin.kubeconfig"));
    let port = second.secure_address().port();
    expect_usage(&second, &certs.join(format!("admin-127.0.0.1-{port}.kubeconfig")));
}

#[test]
fn an_expired_certificate_is_reported_at_once() {
    let dir = tempfile::tempdir().unwrap();
    let key = rcgen::KeyPair::generate().unwrap();
    let mut params = rcgen::CertificateParams::new(vec!["localhost".to_owned()]).unwrap();
    params.not_after = rcgen::date_time_ymd(2026, 1, 1);
    let (cert_file, key_file) = (dir.path().join("tls.crt"), dir.path().join("tls.key"));
    fs::write(&cert_file, params.self_signed(&key).unwrap().pem()).unwrap();
    fs::write(&key_file, key.serialize_pem()).unwrap();
    let flags = ["--tls-cert-file", cert_file.to_str().unwrap(), "--tls-private-key-file", key_file.to_str().unwrap()];
    let started = Instant::now();
    let server = Process::spawn(&[], &flags, FILES_MAX);
    let line = logged(&server, "has expired");
    assert!(started.elapsed() < LOOK_EVERY, "{line}");
    assert!(line.contains("ERROR") && line.contains("2026-01-01"), "{line}");
}

/// Goal: a server that still waits for etcd ends at once on a signal. A process with PID 1 ignores signals that it does
/// not handle, so the server must handle them. The exit status shows that it did.
#[test]
fn a_signal_during_the_start_ends_the_server_at_once() {
    for (signal, status) in [("TERM", 143), ("INT", 130)] {
        // This listener stands in for an etcd that takes connections and answers nothing.
        let etcd = TcpListener::bind(("127.0.0.1", 0)).unwrap();
        etcd.set_nonblocking(true).unwrap();
        let servers = format!("--etcd-servers=http://{}", etcd.local_addr().unwrap());
        let mut server = Process::spawn(&[], &["--storage=etcd", &servers], FILES_MAX);
        let mut connection = None;
        eventually("it asks etcd", || {
            connection = etcd.accept().ok();
            connection.is_some()
        });
        server.signal(signal);
        assert_eq!(server.wait().code(), Some(status), "{signal}");
    }
}

/// Returns the command that starts a server with this socket in the place of systemd's.
fn notifying(socket: &Path) -> [OsString; 2] {
    ["env".into(), format!("NOTIFY_SOCKET={}", socket.display()).into()]
}

/// Goal: a service manager gets a notification when the server is ready and when it stops. Method: a socket in the
/// place of systemd's, with the protocol of sd_notify(3).
#[test]
fn a_service_manager_is_notified() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("notify");
    let manager = UnixDatagram::bind(&path).unwrap();
    manager.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
    let heard = || {
        let mut message = [0; 64];
        let length = manager.recv(&mut message).expect("a message");
        String::from_utf8_lossy(&message[..length]).trim().to_owned()
    };
    let mut server = Process::spawn(&notifying(&path), &[], FILES_MAX);
    assert_eq!(heard(), "READY=1");
    server.signal("TERM");
    assert_eq!(heard(), "STOPPING=1");
    assert_eq!(server.wait().code(), Some(0));
}

/// Goal: a service manager that reads no notifications blocks neither requests nor the stop.
#[test]
fn an_unread_notification_does_not_block_the_server() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("notify");
    let _manager = UnixDatagram::bind(&path).unwrap();
    let filler = UnixDatagram::unbound().unwrap();
    filler.set_nonblocking(true).unwrap();
    let error = std::iter::repeat_with(|| filler.send_to(b"x", &path)).find_map(Result::err);
    assert_eq!(error.map(|e| e.kind()), Some(ErrorKind::WouldBlock));
    let mut server = Process::start_under(&notifying(&path), &[], FILES_MAX);
    logged(&server, "Ready: ");
    server.stop();
}

/// Creates a full pipe. A write to it blocks, since nobody reads.
fn full_pipe() -> (PipeReader, PipeWriter) {
    let (reader, mut writer) = pipe().unwrap();
    rustix::io::ioctl_fionbio(&writer, true).unwrap();
    for size in [4096, 1] {
        let error = std::iter::repeat_with(|| writer.write(&vec![b'x'; size])).find_map(Result::err);
        assert_eq!(error.map(|e| e.kind()), Some(ErrorKind::WouldBlock));
    }
    rustix::io::ioctl_fionbio(&writer, false).unwrap();
    (reader, writer)
}

#[test]
fn an_unread_failure_line_does_not_block_the_exit() {
    let (_unread, stderr) = full_pipe();
    let mut program = Command::new(EXE).arg("--no-such-flag").stderr(stderr).spawn().unwrap();
    let mut status = None;
    eventually("the exit", || {
        status = program.try_wait().unwrap();
        status.is_some()
    });
    assert_eq!(status.unwrap().code(), Some(2));
}

#[test]
fn an_unread_log_does_not_block_the_server() {
    let (_unread, stderr) = full_pipe();
    let stderr_path = format!("/proc/{}/fd/{}", std::process::id(), stderr.as_raw_fd());
    let wrapper = ["sh", "-c", "exec \"$@\" 2>\"$0\"", &stderr_path].map(OsString::from);
    let mut server = Process::start_under(&wrapper, &[], FILES_MAX);
    server.stop();
    assert_eq!(server.log(), "");
}

#[test]
fn the_log_is_json_on_request() {
    let mut server = Process::start(&["--log-format=json"], FILES_MAX);
    logged(&server, "Ready: ");
    server.stop();
    let log = server.log();
    assert!(log.lines().count() >= 4, "{log}");
    for line in log.lines() {
        let value: serde_json::Value = serde_json::from_str(line).expect("JSON");
        assert!(value["message"].is_string() && value["level"].is_string(), "{line}");
    }
}

#[test]
fn sigterm_and_sigint_together_stop_the_server() {
    let mut server = Process::start(&[], FILES_MAX);
    let id = Pid::from_raw(server.id().try_into().unwrap()).unwrap();
    for signal in [Signal::TERM, Signal::INT] {
        kill_process(id, signal).unwrap();
    }
    let status = server.wait();
    // After SIGTERM the server stops with status 0, perhaps before SIGINT arrives. Otherwise the later signal ends the
    // process at once: status 130 for SIGINT. If both signals are pending, the kernel delivers SIGINT first, since its
    // number is lower. Then SIGTERM is the later signal: status 143.
    assert!(matches!(status.code(), Some(0 | 130 | 143)), "{status:?}");
    assert_eq!(status.signal(), None);
}
