//! A real etcd of one member, as a process.

use crate::support::client::{Client, request};
use crate::support::eventually;
use crate::support::ports::free_port;
use crate::support::process::signal;
use crate::support::stream::Endpoint;
use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use std::env;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::Duration;
use tempfile::TempDir;

/// A running etcd. Dropping it kills the process.
pub(crate) struct Etcd {
    child: Child,
    binary: PathBuf,
    client: SocketAddr,
    peer: SocketAddr,
    folder: TempDir,
    flags: Vec<String>,
}

impl Etcd {
    /// Starts an etcd with additional `flags`. An `https` URL in place of a flag is a further address at which etcd
    /// serves clients. Returns `None` if this machine has no etcd. The environment variable `ETCD` names the binary;
    /// the default is the one from `tests/e2e/controlplane/build`. With the variable `REQUIRE_ETCD`, a missing binary
    /// is a failure.
    ///
    /// # Panics
    /// If etcd does not answer in time.
    pub(crate) fn start(flags: &[&str]) -> Option<Self> {
        let Some(binary) = binary() else {
            assert!(env::var_os("REQUIRE_ETCD").is_none(), "etcd is not installed");
            #[allow(clippy::print_stderr, reason = "a test that does not run must say so")]
            {
                eprintln!("NOT RUN: etcd is not installed; tests/e2e/controlplane/build builds one");
            }
            return None;
        };
        let folder = tempfile::tempdir().expect("a temporary folder can be made");
        let (client, peer) = (free_port(), free_port());
        let flags: Vec<_> = flags.iter().map(|flag| (*flag).to_owned()).collect();
        let child = spawn(&binary, folder.path(), client, peer, &flags);
        let etcd = Self { child, binary, client, peer, folder, flags };
        eventually("etcd answers", || etcd.answers());
        Some(etcd)
    }

    /// Returns the URL for clients.
    pub(crate) fn url(&self) -> String {
        format!("http://{}", self.client)
    }

    fn answers(&self) -> bool {
        self.call("kv/range", r#"{"key":"AA=="}"#).is_some_and(|answer| answer.contains("header"))
    }

    /// Sends a request to etcd's gateway, the API of etcd as JSON. Returns `None` if etcd does not answer.
    pub(crate) fn call(&self, path: &str, body: &str) -> Option<String> {
        let endpoint = Endpoint { address: self.client, tls: None };
        let mut client = Client::try_open(&endpoint).ok()?;
        client.try_send(&request("POST", &format!("/v3/{path}"), body)).ok()?;
        let answer = client.try_recv("POST").ok()?;
        Some(String::from_utf8_lossy(&answer.body).into_owned())
    }

    /// Puts a key, and returns the revision of the write.
    ///
    /// # Panics
    /// If etcd refuses the request.
    pub(crate) fn put(&self, key: &str, value: &[u8]) -> u64 {
        let (key, value) = (BASE64_STANDARD.encode(key), BASE64_STANDARD.encode(value));
        let answer = self.call("kv/put", &format!(r#"{{"key":"{key}","value":"{value}"}}"#)).expect("an answer");
        let answer: serde_json::Value = serde_json::from_str(&answer).expect("JSON");
        let revision = answer["header"]["revision"].as_str().unwrap_or_else(|| panic!("{answer}"));
        revision.parse().expect("a number")
    }

    /// Deletes all keys that begin with `prefix`, which ends with a slash.
    ///
    /// # Panics
    /// If etcd does not answer.
    pub(crate) fn delete_all(&self, prefix: &str) {
        let end = format!("{}0", prefix.strip_suffix('/').expect("a slash at the end"));
        let (key, end) = (BASE64_STANDARD.encode(prefix), BASE64_STANDARD.encode(end));
        let answer = self.call("kv/deleterange", &format!(r#"{{"key":"{key}","range_end":"{end}"}}"#));
        assert!(answer.as_ref().is_some_and(|answer| answer.contains("deleted")), "{answer:?}");
    }

    /// Kills etcd with SIGKILL, and starts it again on its data after `pause`.
    ///
    /// # Panics
    /// If etcd does not answer in time.
    pub(crate) fn restart(&mut self, pause: Duration) {
        self.restart_after(|_| thread::sleep(pause));
    }

    /// Kills etcd with SIGKILL, calls `act` with the path of the data folder, and starts etcd again. `act` may change
    /// the folder.
    ///
    /// # Panics
    /// If etcd does not answer in time.
    pub(crate) fn restart_after(&mut self, act: impl FnOnce(&Path)) {
        self.child.kill().expect("the child can be killed");
        self.child.wait().expect("the child can be waited for");
        act(&self.folder.path().join("etcd"));
        self.child = spawn(&self.binary, self.folder.path(), self.client, self.peer, &self.flags);
        eventually("etcd answers", || self.answers());
    }

    /// Sends a signal by its name.
    ///
    /// # Panics
    /// If the signal cannot be sent.
    pub(crate) fn signal(&self, name: &str) {
        signal(&self.child, name);
    }
}

impl Drop for Etcd {
    fn drop(&mut self) {
        let _it_may_have_ended = self.child.kill();
        let _it_may_have_ended = self.child.wait();
    }
}

fn binary() -> Option<PathBuf> {
    if let Some(named) = env::var_os("ETCD") {
        return Some(named.into());
    }
    let cache = env::var_os("XDG_CACHE_HOME")
        .map(PathBuf::from)
        .or_else(|| Some(PathBuf::from(env::var_os("HOME")?).join(".cache")))?;
    let built = cache.join("coordination-apiserver/e2e/bin/etcd");
    built.is_file().then_some(built)
}

fn spawn(binary: &Path, folder: &Path, client: SocketAddr, peer: SocketAddr, flags: &[String]) -> Child {
    let (client, peer) = (format!("http://{client}"), format!("http://{peer}"));
    let (more, flags): (Vec<_>, Vec<_>) = flags.iter().cloned().partition(|flag| flag.starts_with("https://"));
    let clients: Vec<_> = std::iter::once(client.clone()).chain(more).collect();
    Command::new(binary)
        .args(["--name=one", "--log-level=error", "--log-outputs=/dev/null"])
        .arg(format!("--data-dir={}", folder.join("etcd").display()))
        .arg(format!("--listen-client-urls={}", clients.join(",")))
        .arg(format!("--advertise-client-urls={client}"))
        .args([format!("--listen-peer-urls={peer}"), format!("--initial-advertise-peer-urls={peer}")])
        .arg(format!("--initial-cluster=one={peer}"))
        .args(flags)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .expect("etcd can be started")
}
