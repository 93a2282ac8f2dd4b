//! A server as a process, which can be started, probed and killed. Only processes that this program started are ended.

use crate::http::Connection;
use coordination_apiserver::pki::CertDir;
use rustix::process::{Pid, Signal, kill_process};
use std::fs::{File, OpenOptions};
use std::io::{Read as _, Seek as _, SeekFrom, Write as _};
use std::os::unix::process::{CommandExt as _, ExitStatusExt as _};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// The parts of a server's command line.
#[derive(Clone, Debug)]
pub(crate) struct Program {
    pub(crate) file: PathBuf,
    pub(crate) port: u16,
    pub(crate) storage: Storage,
    pub(crate) log: PathBuf,
    /// Value of `--watch-window-events`.
    pub(crate) window: u32,
}

/// The storage of a server's Leases.
#[derive(Clone, Debug)]
pub(crate) enum Storage {
    Memory,
    /// A journal on disk, in this folder.
    Disk(PathBuf),
    /// etcd at these URLs, with the client certificates in this folder.
    Etcd(String, CertDir),
}

/// A running server. Dropping this value kills the process.
#[derive(Debug)]
pub(crate) struct Server {
    child: Child,
    started: Instant,
    port: u16,
    log: PathBuf,
    /// Length of the log file at this start, in bytes. The lines of earlier starts come before this offset.
    log_start: u64,
}

impl Program {
    /// Starts the server, without waiting until it is ready. Signals from the terminal do not reach the server.
    pub(crate) fn start(&self) -> Result<Server, String> {
        let told = |e: std::io::Error| format!("{}: {e}", self.log.display());
        let mut log = OpenOptions::new().create(true).append(true).open(&self.log).map_err(told)?;
        writeln!(log, "---- start").map_err(told)?;
        let log_start = log.metadata().map_err(told)?.len();
        let mut command = Command::new(&self.file);
        command.args(["--secure-port", "0", "--insecure-port", &self.port.to_string()]);
        command.args(["--watch-window-events", &self.window.to_string()]);
        // To judge a 410, the checker counts events. So the number of events must be the only limit of the watch
        // window, and the limit in bytes is set too high to matter.
        command.args(["--watch-window-bytes", &(u64::from(self.window) * EVENT_BYTES_MAX).to_string()]);
        match &self.storage {
            Storage::Memory => command.args(["--storage", "memory"]),
            Storage::Disk(data) => command.args(["--storage", "disk", "--data-dir"]).arg(data),
            Storage::Etcd(urls, certs) => command
                .args(["--storage", "etcd", "--etcd-servers", urls, "--etcd-cafile"])
                .arg(certs.ca_cert())
                .arg("--etcd-certfile")
                .arg(certs.admin_cert())
                .arg("--etcd-keyfile")
                .arg(certs.admin_key()),
        };
        let command = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(log).process_group(0);
        let started = Instant::now();
        let child = command.spawn().map_err(|e| format!("{}: {e}", self.file.display()))?;
        Ok(Server { child, started, port: self.port, log: self.log.clone(), log_start })
    }
}

impl Server {
    /// Waits until `/readyz` answers with 200. Returns the time since the start of the process.
    pub(crate) fn wait_ready(&mut self) -> Result<Duration, String> {
        let begun = Instant::now();
        loop {
            let answer = Connection::open(self.port, ANSWER_MAX).and_then(|mut c| c.ask("GET", "/readyz", "", ""));
            if answer.is_ok_and(|(answer, _)| answer.status == 200) {
                return Ok(self.started.elapsed());
            }
            self.check_running()?;
            if begun.elapsed() > READY_MAX {
                return Err(format!("the server is not ready after {READY_MAX:?}: {}", self.last_lines()));
            }
            std::thread::sleep(READY_EVERY);
        }
    }

    /// Checks that the server has not ended.
    ///
    /// # Errors
    /// If the server has ended. The text quotes the last lines of its log.
    pub(crate) fn check_running(&mut self) -> Result<(), String> {
        match self.child.try_wait() {
            Ok(Some(status)) => Err(format!("the server ended with {status}: {}", self.last_lines())),
            Ok(None) | Err(_) => Ok(()),
        }
    }

    /// Returns the process id of the server.
    pub(crate) fn id(&self) -> u32 {
        self.child.id()
    }

    /// Whether the server runs.
    pub(crate) fn is_running(&mut self) -> bool {
        matches!(self.child.try_wait(), Ok(None))
    }

    /// Whether the log of this start shows a snapshot that has begun and not finished.
    pub(crate) fn is_taking_snapshot(&self) -> bool {
        let text = self.log_text();
        text.matches("snapshot begun").count() > text.matches("snapshot finished").count()
    }

    /// Kills the server with SIGKILL and waits for its end. Returns whether it was taking a snapshot.
    pub(crate) fn kill(&mut self) -> Result<bool, String> {
        if let Ok(Some(status)) = self.child.try_wait() {
            return Err(format!("the server ended by itself with {status}: {}", self.last_lines()));
        }
        self.child.kill().and_then(|()| self.child.wait()).map_err(|e| e.to_string())?;
        Ok(self.is_taking_snapshot())
    }

    /// Stops the server with SIGTERM and waits until it has ended.
    ///
    /// # Errors
    /// If the server does not end in time, or ends with another exit status than 0. An end by SIGTERM itself (status
    /// 143) is an error only if the server served: a server that still starts has no graceful stop.
    pub(crate) fn terminate(&mut self) -> Result<(), String> {
        let served = self.log_text().contains(SERVING_WORDS);
        signal(self.child.id(), Signal::TERM)?;
        let begun = Instant::now();
        while begun.elapsed() < TERM_MAX {
            if let Some(status) = self.child.try_wait().map_err(|e| e.to_string())? {
                let is_at_once = status.signal() == Some(Signal::TERM.as_raw())
                    || status.code() == Some(128 + Signal::TERM.as_raw());
                return if status.success() || is_at_once && !served {
                    Ok(())
                } else {
                    Err(format!("the server ended with {status} after SIGTERM: {}", self.last_lines()))
                };
            }
            std::thread::sleep(READY_EVERY);
        }
        Err(format!("the server still runs {TERM_MAX:?} after SIGTERM"))
    }

    /// Returns the line that the server has logged about its store in this start; empty if there is none yet.
    pub(crate) fn store_line(&self) -> String {
        let text = self.log_text();
        text.lines().find(|line| STORE_WORDS.iter().any(|word| line.contains(word))).unwrap_or_default().to_owned()
    }

    fn last_lines(&self) -> String {
        let text = self.log_text();
        let lines: Vec<_> = text.lines().collect();
        lines.get(lines.len().saturating_sub(3)..).unwrap_or_default().join("; ")
    }

    /// Returns the lines that the server has logged in this start.
    fn log_text(&self) -> String {
        let mut bytes = Vec::new();
        if let Ok(mut file) = File::open(&self.log)
            && file.seek(SeekFrom::Start(self.log_start)).is_ok()
        {
            _ = file.read_to_end(&mut bytes);
        }
        String::from_utf8_lossy(&bytes).into_owned()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // The server may have ended by itself.
        _ = self.child.kill();
        _ = self.child.wait();
    }
}

/// Sends a signal to a process that this program has started.
pub(crate) fn signal(id: u32, signal: Signal) -> Result<(), String> {
    let pid = i32::try_from(id).ok().and_then(Pid::from_raw).ok_or("no such process")?;
    kill_process(pid, signal).map_err(|e| e.to_string())
}

/// Returns a free port of 127.0.0.1. Another process may take the port before its use.
pub(crate) fn free_port() -> std::io::Result<u16> {
    let listener = std::net::TcpListener::bind((std::net::Ipv4Addr::LOCALHOST, 0))?;
    Ok(listener.local_addr()?.port())
}

/// Maximum memory of an event of this program's Leases in the server's watch window, in bytes.
const EVENT_BYTES_MAX: u64 = 4_096;
/// Maximum wait for the response to a probe. A running server responds sooner.
const ANSWER_MAX: Duration = Duration::from_secs(5);
/// Interval between two probes.
const READY_EVERY: Duration = Duration::from_millis(1);
/// Maximum time from the start of a server until it is ready.
const READY_MAX: Duration = Duration::from_secs(60);
/// Maximum time from SIGTERM until a server has ended.
const TERM_MAX: Duration = Duration::from_secs(30);
/// Words in the log line of a server that accepts connections. From this line on, SIGTERM stops the server gracefully.
const SERVING_WORDS: &str = "serving cleartext HTTP";
/// Words in the log lines about the store. A server with a store logs at least one such line when it starts.
const STORE_WORDS: [&str; 2] = ["journal loaded", "new store"];
