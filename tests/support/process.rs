//! The real program, as a process.

use crate::support::client::{Client, request};
use crate::support::ports::free_port;
use crate::support::stream::Endpoint;
use crate::support::{PATIENCE, eventually, shown};
use std::ffi::OsString;
use std::fs::{self, File};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Output, Stdio};
use std::thread;
use std::time::{Duration, Instant};
use tempfile::TempDir;

/// A running server. Dropping it kills the process.
pub(crate) struct Process {
    child: Child,
    endpoint: Endpoint,
    secure: SocketAddr,
    /// Folder with the server's certificates, its log and, unless a flag names another folder, its store.
    folder: TempDir,
    /// Arguments of `sh`, which executes the program; for a restart.
    words: Vec<OsString>,
}

impl Process {
    /// Starts the server with cleartext and TLS on free ports, additional `flags`, and at most `files_max` open files.
    ///
    /// # Panics
    /// If the server does not answer in time.
    pub(crate) fn start(flags: &[&str], files_max: u32) -> Self {
        Self::start_under(&[], flags, files_max)
    }

    /// Starts the server as [`Process::start`] does, under the command `wrapper`, such as `env` with its arguments.
    ///
    /// # Panics
    /// If the server does not answer in time.
    pub(crate) fn start_under(wrapper: &[OsString], flags: &[&str], files_max: u32) -> Self {
        let process = Self::spawn(wrapper, flags, files_max);
        eventually("the process answers", || process.answers());
        process
    }

    /// Starts the server as [`Process::start_under`] does, but does not wait until the server answers.
    pub(crate) fn spawn(wrapper: &[OsString], flags: &[&str], files_max: u32) -> Self {
        let folder = tempfile::tempdir().expect("a temporary folder can be made");
        let (insecure, secure) = (free_port(), free_port());
        let mut words: Vec<OsString> = ["-c", "ulimit -n \"$1\" && shift && exec \"$@\"", "sh"].map(Into::into).into();
        words.push(files_max.to_string().into());
        words.extend_from_slice(wrapper);
        words.push(env!("CARGO_BIN_EXE_coordination-apiserver").into());
        words.extend(["--insecure-port".into(), insecure.port().to_string().into()]);
        words.extend(["--secure-port".into(), secure.port().to_string().into()]);
        words.extend(["--cert-dir".into(), folder.path().join("certs").into()]);
        words.extend(flags.iter().map(Into::into));
        let child = spawn(&words, folder.path());
        Self { child, endpoint: Endpoint { address: insecure, tls: None }, secure, folder, words }
    }

    /// Restarts a server that has ended, with the same ports and folders.
    ///
    /// # Panics
    /// If the server does not answer in time.
    pub(crate) fn restart(&mut self) {
        self.respawn();
        eventually("the process answers", || self.answers());
    }

    /// Restarts a server that has ended, without waiting for it.
    pub(crate) fn respawn(&mut self) {
        self.child = spawn(&self.words, self.folder.path());
    }

    /// Kills the server with SIGKILL.
    ///
    /// # Panics
    /// If that fails.
    pub(crate) fn kill(&mut self) {
        self.child.kill().expect("the child can be killed");
        self.child.wait().expect("the child can be waited for");
    }

    /// Whether the process runs.
    ///
    /// # Panics
    /// If the kernel does not report it.
    pub(crate) fn is_running(&mut self) -> bool {
        self.child.try_wait().expect("the child can be waited for").is_none()
    }

    /// Returns the process id.
    pub(crate) fn id(&self) -> u32 {
        self.child.id()
    }

    /// Returns the folder of the server's certificates.
    pub(crate) fn cert_dir(&self) -> PathBuf {
        self.folder.path().join("certs")
    }

    /// Returns the folder of the server's store.
    pub(crate) fn data_dir(&self) -> PathBuf {
        self.cert_dir().join("data")
    }

    /// Returns the server's log since its first start.
    pub(crate) fn log(&self) -> String {
        fs::read_to_string(self.folder.path().join("log")).unwrap_or_default()
    }

    /// Returns the endpoint of the cleartext port.
    pub(crate) fn endpoint(&self) -> &Endpoint {
        &self.endpoint
    }

    /// Returns the address of the TLS port.
    pub(crate) fn secure_address(&self) -> SocketAddr {
        self.secure
    }

    /// Whether the server answers a new connection and is ready.
    pub(crate) fn answers(&self) -> bool {
        let Ok(mut client) = Client::try_open(&self.endpoint) else { return false };
        client.stream.set_read_timeout(Some(Duration::from_millis(500)));
        let sent = client.try_send(&request("GET", "/readyz", ""));
        sent.and_then(|()| client.try_recv("GET")).is_ok_and(|got| got.status() == 200)
    }

    /// Limits the open files of the process from now on (prlimit(1)).
    ///
    /// # Panics
    /// If that fails.
    pub(crate) fn limit_files(&self, files_max: u32) {
        let limit = format!("--nofile={files_max}");
        let done = Command::new("prlimit").args(["--pid", &self.child.id().to_string(), &limit]).status();
        assert!(done.is_ok_and(|status| status.success()), "prlimit cannot limit the files");
    }

    /// Sends a signal by its name.
    ///
    /// # Panics
    /// If the signal cannot be sent.
    pub(crate) fn signal(&self, name: &str) {
        signal(&self.child, name);
    }

    /// Stops the server with SIGTERM.
    ///
    /// # Panics
    /// If it does not end in time with status 0.
    #[track_caller]
    pub(crate) fn stop(&mut self) {
        self.signal("TERM");
        assert_eq!(self.wait().code(), Some(0));
    }

    /// Waits until the process ends.
    ///
    /// # Panics
    /// If it does not end in time.
    pub(crate) fn wait(&mut self) -> ExitStatus {
        let deadline = Instant::now() + PATIENCE;
        loop {
            if let Some(status) = self.child.try_wait().expect("the child can be waited for") {
                return status;
            }
            assert!(Instant::now() < deadline, "the process has not ended");
            thread::sleep(Duration::from_millis(10));
        }
    }

    /// Measures the share of one core that the process uses during `span`.
    ///
    /// # Panics
    /// If the kernel does not report it.
    pub(crate) fn cpu_share_over(&self, span: Duration) -> f64 {
        let (before, begun) = (self.cpu_seconds(), Instant::now());
        thread::sleep(span);
        (self.cpu_seconds() - before) / begun.elapsed().as_secs_f64()
    }

    /// Returns the peak of the process's resident memory so far, in bytes (proc(5), `/proc/pid/status`, `VmHWM`).
    ///
    /// # Panics
    /// If the kernel does not report it.
    pub(crate) fn memory_peak_bytes(&self) -> usize {
        let status = fs::read_to_string(format!("/proc/{}/status", self.child.id())).expect("the process runs");
        let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).expect("status has the peak");
        let kib: usize = line.trim().trim_end_matches(" kB").parse().expect("a number");
        kib * 1024
    }

    /// Returns the user and system time so far, in seconds (proc(5), `/proc/pid/stat`, fields 14 and 15).
    ///
    /// # Panics
    /// If the kernel does not report it.
    pub(crate) fn cpu_seconds(&self) -> f64 {
        /// `USER_HZ`, the unit of these fields on every Linux.
        const TICKS_PER_SECOND: f64 = 100.0;
        let stat = fs::read_to_string(format!("/proc/{}/stat", self.child.id())).expect("the process runs");
        // Field 2 is the name, which may contain anything. It ends at the last parenthesis.
        let (_, after_name) = stat.rsplit_once(')').expect("stat has a name");
        let ticks = after_name.split_whitespace().skip(11).take(2).map(|ticks| ticks.parse::<f64>().expect("a number"));
        ticks.sum::<f64>() / TICKS_PER_SECOND
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _it_may_have_ended = self.child.kill();
        let _it_may_have_ended = self.child.wait();
        if thread::panicking() {
            let log = fs::read(self.folder.path().join("log")).unwrap_or_default();
            #[allow(clippy::print_stderr, reason = "the only way to add to a failing test's message")]
            {
                eprintln!("the server's log:\n{}", shown(&log).replace("\\n", "\n"));
            }
        }
    }
}

/// Starts `sh` with these arguments. Its output is appended to the log in `folder`.
fn spawn(words: &[OsString], folder: &Path) -> Child {
    let log = File::options().create(true).append(true).open(folder.join("log")).expect("the log can be written");
    Command::new("sh")
        .args(words)
        .stdin(Stdio::null())
        .stdout(log.try_clone().expect("the log can be written"))
        .stderr(log)
        .spawn()
        .expect("sh can be started")
}

/// Starts the program with these flags, expects it to fail, and returns the last line of its log, without the program's
/// name.
///
/// # Panics
/// If it does not end with status 1, or if the last line does not begin with the program's name.
#[track_caller]
pub(crate) fn failure(args: &[&str]) -> String {
    let Output { status, stderr, .. } =
        Command::new(env!("CARGO_BIN_EXE_coordination-apiserver")).args(args).output().expect("the program runs");
    let stderr = String::from_utf8(stderr).expect("UTF-8");
    assert_eq!(status.code(), Some(1), "{args:?}: {stderr}");
    let line = stderr.lines().last().unwrap_or_default();
    line.strip_prefix("coordination-apiserver: ").unwrap_or_else(|| panic!("no last line: {stderr}")).to_owned()
}

/// Sends a signal by its name.
///
/// # Panics
/// If the signal cannot be sent.
pub(crate) fn signal(child: &Child, name: &str) {
    let done = Command::new("kill").args(["-s", name, &child.id().to_string()]).status();
    assert!(done.is_ok_and(|status| status.success()), "SIG{name} could not be sent");
}
