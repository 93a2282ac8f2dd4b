//! The program from outside: messages about a wrong command line, start and stop.

#[path = "support/ports.rs"]
mod ports;

use std::fs::{self, File};
use std::net::TcpListener;
use std::path::Path;
use std::process::{Command, Output};

const EXE: &str = env!("CARGO_BIN_EXE_coordination-apiserver");

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

#[cfg(unix)]
mod running {
    use super::*;
    use coordination_apiserver::tls::reload::LOOK_EVERY;
    use rustix::process::{Pid, Signal, kill_process};
    use std::io::{self, BufRead, BufReader, ErrorKind, PipeReader, PipeWriter, Read as _, Write as _, pipe};
    use std::net::TcpStream;
    use std::os::unix::net::UnixDatagram;
    use std::os::unix::process::ExitStatusExt as _;
    use std::process::{Child, ExitStatus, Stdio};
    use std::time::{Duration, Instant};

    /// A server that is killed when the value is dropped.
    struct Running {
        child: Child,
        log: Box<dyn BufRead>,
        /// The part of the log that [`Self::read_until`] has read so far.
        started: String,
    }

    impl Running {
        fn start(cert_dir: &Path, args: &[&str]) -> Self {
            let mut server = Self::spawn(command(cert_dir, args));
            server.read_until("Ready: ");
            server
        }

        fn spawn(mut command: Command) -> Self {
            let mut child = command.stderr(Stdio::piped()).spawn().expect("it runs");
            let log = Box::new(BufReader::new(child.stderr.take().expect("a pipe")));
            Self { child, log, started: String::new() }
        }

        /// Reads the log until a line holds `words`.
        fn read_until(&mut self, words: &str) {
            loop {
                let before = self.started.len();
                let read = self.log.read_line(&mut self.started).expect("UTF-8");
                assert!(read > 0, "it ended: {}", self.started);
                if self.started[before..].contains(words) {
                    return;
                }
            }
        }

        /// Returns the text after `Ready: ` in the ready line, which must be the last line read.
        fn ready(&self) -> &str {
            self.started.split_once("Ready: ").expect("it is ready").1.trim_end()
        }

        fn signal(&self, signal: Signal) {
            kill_process(Pid::from_child(&self.child), signal).expect("the process runs");
        }

        fn wait(&mut self) -> ExitStatus {
            let deadline = Instant::now() + Duration::from_secs(10);
            loop {
                if let Some(status) = self.child.try_wait().expect("it is ours") {
                    return status;
                }
                assert!(Instant::now() < deadline, "the process does not end");
                std::thread::sleep(Duration::from_millis(10));
            }
        }

        /// Returns the whole log of a server that has ended.
        fn log(&mut self) -> String {
            let mut text = self.started.clone();
            self.log.read_to_string(&mut text).expect("UTF-8");
            text
        }
    }

    impl Drop for Running {
        fn drop(&mut self) {
            _ = self.child.kill();
            _ = self.child.wait();
        }
    }

    fn command(cert_dir: &Path, args: &[&str]) -> Command {
        let mut command = Command::new(EXE);
        command.arg("--cert-dir").arg(cert_dir).args(args).stdout(Stdio::null());
        command
    }

    fn free_port() -> u16 {
        ports::free_port().port()
    }

    #[test]
    fn the_ready_line_shows_the_usage_and_a_signal_stops_the_server() {
        for signal in [Signal::TERM, Signal::INT] {
            let dir = tempfile::tempdir().expect("a folder");
            let (secure, insecure) = (free_port(), free_port());
            let args = [format!("--secure-port={secure}"), format!("--insecure-port={insecure}")];
            let mut server = Running::start(dir.path(), &args.each_ref().map(String::as_str));
            let kubeconfig = dir.path().join("admin.kubeconfig");
            assert_eq!(server.ready(), format!("kubectl --kubeconfig {} get leases -A", kubeconfig.display()));
            let text = fs::read_to_string(kubeconfig).expect("read");
            assert!(text.contains(&format!("server: https://127.0.0.1:{secure}\n")), "{text}");
            for ignored in [Signal::HUP, Signal::USR1, Signal::USR2] {
                server.signal(ignored);
                server.read_until("ignored: ");
            }
            server.signal(signal);
            assert_eq!(server.wait().code(), Some(0));
            let log = server.log();
            let warning = log.lines().find(|line| line.contains("WARN") && line.contains("without authentication"));
            assert!(warning.is_some_and(|line| line.contains(&format!("127.0.0.1:{insecure}"))), "{log}");
        }
    }

    #[test]
    fn a_change_of_holder_is_logged_with_both_holders_and_its_author() {
        let dir = tempfile::tempdir().expect("a folder");
        let port = free_port();
        let args = [format!("--insecure-port={port}"), "--secure-port=0".to_owned()];
        let mut server = Running::start(dir.path(), &args.each_ref().map(String::as_str));
        let call = |method: &str, path: &str, version: &str, holder: &str| {
            let metadata = format!(r#"{{"name":"lock","resourceVersion":"{version}"}}"#);
            let spec = format!(r#"{{"holderIdentity":"{holder}"}}"#);
            let body = format!(
                r#"{{"kind":"Lease","apiVersion":"coordination.k8s.io/v1","metadata":{metadata},"spec":{spec}}}"#
            );
            let mut stream = TcpStream::connect(("127.0.0.1", port)).expect("it listens");
            let head = format!("{method} /apis/coordination.k8s.io/v1/namespaces/default/leases{path} HTTP/1.1");
            let fields =
                "Host: x\r\nUser-Agent: taker/1.0 \"x\"\r\nConnection: close\r\nContent-Type: application/json";
            let request = format!("{head}\r\n{fields}\r\nContent-Length: {}\r\n\r\n{body}", body.len());
            stream.write_all(request.as_bytes()).expect("sent");
            let mut answer = String::new();
            stream.read_to_string(&mut answer).expect("an answer");
            answer
        };
        let created = call("POST", "", "", "first");
        assert!(created.starts_with("HTTP/1.1 201"), "{created}");
        let (_, version) = created.split_once(r#""resourceVersion":""#).expect("a version");
        let version = version.split('"').next().unwrap_or_default();
        let updated = call("PUT", "/lock", version, "second");
        assert!(updated.starts_with("HTTP/1.1 200"), "{updated}");
        server.read_until(r#"from="first""#);
        let line = server.started.lines().last().expect("a line");
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
        server.signal(Signal::TERM);
        assert_eq!(server.wait().code(), Some(0));
    }

    #[test]
    fn no_admin_certificate_is_created_for_a_foreign_authority() {
        let dir = tempfile::tempdir().expect("a folder");
        let (port, cluster) = (free_port(), dir.path().join("cluster.kubeconfig"));
        let text = format!(
            "{{clusters: [{{name: a, cluster: {{server: 'http://127.0.0.1:{}'}}}}], current-context: a, \
             contexts: [{{name: a, context: {{cluster: a, user: a}}}}], users: [{{name: a, user: {{}}}}]}}",
            free_port()
        );
        fs::write(&cluster, text).expect("written");
        let cluster = format!("--kubeconfig={}", cluster.display());
        let args = [&*format!("--secure-port={port}"), "--requestheader-from-cluster", &cluster];
        let mut server = Running::spawn(command(dir.path(), &args));
        server.read_until("cannot follow");
        assert!(server.started.contains("server=\"http://127.0.0.1:"), "{}", server.started);
        let made: Vec<_> =
            fs::read_dir(dir.path()).expect("a folder").map(|file| file.expect("a file").file_name()).collect();
        assert!(made.iter().any(|name| name == "apiserver.crt"), "{made:?}");
        assert!(!made.iter().any(|name| name.to_string_lossy().starts_with("admin")), "{made:?}");
        server.signal(Signal::TERM);
        assert_eq!(server.wait().code(), Some(0));
        let log = server.log();
        assert!(!log.contains("Ready"), "the server is ready without a client authority: {log}");
    }

    #[test]
    fn a_second_server_does_not_overwrite_the_first_kubeconfig() {
        let dir = tempfile::tempdir().expect("a folder");
        let ports = [free_port(), free_port()];
        let start = |port: u16| {
            let data = format!("--data-dir={}", dir.path().join(port.to_string()).display());
            Running::start(dir.path(), &[&format!("--secure-port={port}"), &data])
        };
        let [first, second] = ports.map(start);
        let paths =
            [dir.path().join("admin.kubeconfig"), dir.path().join(format!("admin-127.0.0.1-{}.kubeconfig", ports[1]))];
        for ((server, path), port) in [first, second].into_iter().zip(&paths).zip(ports) {
            assert_eq!(server.ready(), format!("kubectl --kubeconfig {} get leases -A", path.display()));
            let text = fs::read_to_string(path).expect("read");
            assert!(text.contains(&format!("server: https://127.0.0.1:{port}\n")), "{text}");
        }
    }

    #[test]
    fn an_expired_certificate_is_reported_at_once() {
        let dir = tempfile::tempdir().expect("a folder");
        let key = rcgen::KeyPair::generate().expect("a key");
        let mut params = rcgen::CertificateParams::new(vec!["localhost".to_owned()]).expect("a name");
        params.not_after = rcgen::date_time_ymd(2026, 1, 1);
        let (cert_file, key_file) = (dir.path().join("tls.crt"), dir.path().join("tls.key"));
        fs::write(&cert_file, params.self_signed(&key).expect("a certificate").pem()).expect("written");
        fs::write(&key_file, key.serialize_pem()).expect("written");
        let args = [
            format!("--secure-port={}", free_port()),
            format!("--tls-cert-file={}", cert_file.display()),
            format!("--tls-private-key-file={}", key_file.display()),
        ];
        let mut server = Running::spawn(command(dir.path(), &args.each_ref().map(String::as_str)));
        let started = Instant::now();
        server.read_until("has expired");
        assert!(started.elapsed() < LOOK_EVERY, "{}", server.started);
        assert!(server.started.contains("ERROR") && server.started.contains("2026-01-01"), "{}", server.started);
    }

    /// Goal: a server that still waits for etcd ends at once on a signal. The status shows that the server handled the
    /// signal. A process with PID 1 ignores signals that it does not handle.
    #[test]
    fn a_signal_during_the_start_ends_the_server_at_once() {
        let dir = tempfile::tempdir().expect("a folder");
        let port = format!("--insecure-port={}", free_port());
        for (signal, status) in [(Signal::TERM, 143), (Signal::INT, 130)] {
            // This etcd takes connections and answers nothing.
            let etcd = TcpListener::bind(("127.0.0.1", 0)).expect("a port");
            etcd.set_nonblocking(true).expect("a mode");
            let servers = format!("--etcd-servers=http://{}", etcd.local_addr().expect("an address"));
            let args = ["--storage=etcd", &servers, &port, "--secure-port=0"];
            let mut server = Running::spawn(command(dir.path(), &args));
            let started = Instant::now();
            let _connection = loop {
                match etcd.accept() {
                    Ok(connection) => break connection,
                    Err(e) => assert!(started.elapsed() < Duration::from_secs(10), "it does not ask etcd: {e}"),
                }
                std::thread::sleep(Duration::from_millis(10));
            };
            server.signal(signal);
            assert_eq!(server.wait().code(), Some(status), "{signal:?}");
        }
    }

    /// Goal: a service manager gets a notification when the server is ready and when it stops. Method: a socket in the
    /// place of systemd's, with the protocol of sd_notify(3).
    #[test]
    fn a_service_manager_is_notified() {
        let dir = tempfile::tempdir().expect("a folder");
        let path = dir.path().join("notify");
        let manager = UnixDatagram::bind(&path).expect("a socket");
        manager.set_read_timeout(Some(Duration::from_secs(10))).expect("a time");
        let heard = || {
            let mut message = [0; 64];
            let length = manager.recv(&mut message).expect("a message");
            String::from_utf8_lossy(&message[..length]).trim().to_owned()
        };
        let mut start = command(dir.path(), &[&format!("--secure-port={}", free_port())]);
        start.env("NOTIFY_SOCKET", &path);
        let mut server = Running::spawn(start);
        assert_eq!(heard(), "READY=1");
        server.signal(Signal::TERM);
        assert_eq!(heard(), "STOPPING=1");
        assert_eq!(server.wait().code(), Some(0));
    }

    /// Goal: a service manager that reads no notifications blocks neither requests nor the stop.
    #[test]
    fn an_unread_notification_does_not_block_the_server() {
        let dir = tempfile::tempdir().expect("a folder");
        let path = dir.path().join("notify");
        let _manager = UnixDatagram::bind(&path).expect("a socket");
        let filler = UnixDatagram::unbound().expect("a socket");
        filler.set_nonblocking(true).expect("a mode");
        let error = std::iter::repeat_with(|| filler.send_to(b"x", &path)).find_map(Result::err);
        assert_eq!(error.map(|e| e.kind()), Some(ErrorKind::WouldBlock));
        let mut start = command(dir.path(), &[&format!("--secure-port={}", free_port())]);
        start.env("NOTIFY_SOCKET", &path);
        let mut server = Running::spawn(start);
        server.read_until("Ready: ");
        server.signal(Signal::TERM);
        assert_eq!(server.wait().code(), Some(0));
    }

    /// Creates a full pipe. A write to it blocks, since nobody reads.
    fn full_pipe() -> (PipeReader, PipeWriter) {
        let (reader, mut writer) = pipe().expect("a pipe");
        rustix::io::ioctl_fionbio(&writer, true).expect("a mode");
        for size in [4096, 1] {
            let error = std::iter::repeat_with(|| writer.write(&vec![b'x'; size])).find_map(Result::err);
            assert_eq!(error.map(|e| e.kind()), Some(ErrorKind::WouldBlock));
        }
        rustix::io::ioctl_fionbio(&writer, false).expect("a mode");
        (reader, writer)
    }

    #[test]
    fn an_unread_failure_line_does_not_block_the_exit() {
        let (_unread, stderr) = full_pipe();
        let child = Command::new(EXE).arg("--no-such-flag").stderr(stderr).spawn().expect("it runs");
        let mut program = Running { child, log: Box::new(io::empty()), started: String::new() };
        assert_eq!(program.wait().code(), Some(2));
    }

    #[test]
    fn an_unread_log_does_not_block_the_server() {
        let dir = tempfile::tempdir().expect("a folder");
        let port = free_port();
        let (_unread, stderr) = full_pipe();
        let child = Command::new(EXE)
            .args([format!("--insecure-port={port}"), "--secure-port=0".to_owned()])
            .env("HOME", dir.path())
            .env_remove("XDG_STATE_HOME")
            .stdout(Stdio::null())
            .stderr(stderr)
            .spawn()
            .expect("it runs");
        let mut server = Running { child, log: Box::new(io::empty()), started: String::new() };
        let deadline = Instant::now() + Duration::from_secs(10);
        let mut client = loop {
            match TcpStream::connect(("127.0.0.1", port)) {
                Ok(client) => break client,
                Err(e) => assert!(Instant::now() < deadline, "it does not listen: {e}"),
            }
            std::thread::sleep(Duration::from_millis(10));
        };
        client.set_read_timeout(Some(Duration::from_secs(10))).expect("a time");
        client.write_all(b"GET /healthz HTTP/1.1\r\nHost: a\r\n\r\n").expect("sent");
        let mut answer = [0; 12];
        client.read_exact(&mut answer).expect("an answer");
        assert_eq!(&answer, b"HTTP/1.1 200");
        server.signal(Signal::TERM);
        assert_eq!(server.wait().code(), Some(0));
    }

    #[test]
    fn the_log_is_json_on_request() {
        let dir = tempfile::tempdir().expect("a folder");
        let port = format!("--secure-port={}", free_port());
        let mut server = Running::start(dir.path(), &[&port, "--log-format=json"]);
        server.signal(Signal::TERM);
        assert_eq!(server.wait().code(), Some(0));
        let log = server.log();
        assert!(log.lines().count() >= 4, "{log}");
        for line in log.lines() {
            let value: serde_json::Value = serde_json::from_str(line).expect("JSON");
            assert!(value["message"].is_string() && value["level"].is_string(), "{line}");
        }
    }

    #[test]
    fn sigterm_and_sigint_together_stop_the_server() {
        let dir = tempfile::tempdir().expect("a folder");
        let port = format!("--secure-port={}", free_port());
        let mut server = Running::start(dir.path(), &[&port]);
        server.signal(Signal::TERM);
        server.signal(Signal::INT);
        let status = server.wait();
        // After SIGTERM the server stops with status 0, perhaps before SIGINT arrives. Otherwise the later signal ends
        // the process at once: status 130 for SIGINT. If both signals are pending, the kernel delivers SIGINT first,
        // since its number is lower. Then SIGTERM is the later signal: status 143.
        assert!(matches!(status.code(), Some(0 | 130 | 143)), "{status:?}");
        assert_eq!(status.signal(), None);
    }
}
