//! A cluster of etcd processes, which can be started, killed, paused and compacted. Only processes that this program
//! started are ended. Replicas connect to the members with TLS and client certificates. This program connects in
//! cleartext.

use crate::http::Connection;
use crate::process::{free_port, signal};
use coordination_apiserver::pki::{CertDir, PkiError, serving_names};
use rustix::process::Signal;
use std::fs::OpenOptions;
use std::net::Ipv4Addr;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// A running cluster of etcd. Dropping this value kills all members.
#[derive(Debug)]
pub(crate) struct Etcd {
    binary: PathBuf,
    folder: PathBuf,
    /// The cluster's certificates. Replicas use the admin's certificate as their client certificate.
    pub(crate) certs: CertDir,
    members: Vec<Member>,
}

#[derive(Debug)]
struct Member {
    /// Port for clients in cleartext.
    client: u16,
    /// Port for clients that authenticate with certificates.
    secure: u16,
    /// Port for the other members.
    peer: u16,
    /// The member's process; `None` while the member is dead.
    child: Option<Child>,
}

impl Etcd {
    /// Starts a cluster of `members` members, with its data in `folder`.
    ///
    /// # Errors
    /// If a member cannot be started, or does not answer in time.
    pub(crate) fn start(binary: &Path, folder: &Path, members: u32) -> Result<Self, String> {
        let member = |_| -> std::io::Result<Member> {
            Ok(Member { client: free_port()?, secure: free_port()?, peer: free_port()?, child: None })
        };
        let certs = certificates(&folder.join("etcd-certs")).map_err(|e| e.to_string())?;
        let members = (0..members).map(member).collect::<Result<_, _>>().map_err(|e| format!("no free port: {e}"))?;
        let mut etcd = Self { binary: binary.to_owned(), folder: folder.to_owned(), certs, members };
        for member in 0..etcd.len() {
            etcd.revive(member)?;
        }
        etcd.await_quorum()?;
        Ok(etcd)
    }

    /// Returns the number of members.
    pub(crate) fn len(&self) -> usize {
        self.members.len()
    }

    /// Returns the members' ports for clients that authenticate with certificates.
    pub(crate) fn ports(&self) -> Vec<u16> {
        self.members.iter().map(|member| member.secure).collect()
    }

    /// Starts a member with its data folder, unless the member runs.
    pub(crate) fn revive(&mut self, member: usize) -> Result<(), String> {
        let url = |port: u16| format!("http://127.0.0.1:{port}");
        let cluster: Vec<_> =
            self.members.iter().enumerate().map(|(at, member)| format!("m{at}={}", url(member.peer))).collect();
        let told = |e: std::io::Error| format!("{}: {e}", self.binary.display());
        let log = OpenOptions::new().create(true).append(true).open(self.folder.join(format!("etcd-{member}.log")));
        let Member { client, secure, peer, child } = &mut self.members[member];
        if child.is_some() {
            return Ok(());
        }
        let mut command = Command::new(&self.binary);
        command
            .arg(format!("--name=m{member}"))
            .arg(format!("--data-dir={}", self.folder.join(format!("etcd-{member}")).display()))
            .args([
                format!("--listen-client-urls={},https://127.0.0.1:{secure}", url(*client)),
                format!("--advertise-client-urls={}", url(*client)),
            ])
            .arg(format!("--cert-file={}", self.certs.serving_cert().display()))
            .arg(format!("--key-file={}", self.certs.serving_key().display()))
            .arg(format!("--trusted-ca-file={}", self.certs.ca_cert().display()))
            .arg("--client-cert-auth")
            // The member's gRPC gateway authenticates to the member with this certificate.
            .arg(format!("--client-cert-file={}", self.certs.admin_cert().display()))
            .arg(format!("--client-key-file={}", self.certs.admin_key().display()))
            .args([
                format!("--listen-peer-urls={}", url(*peer)),
                format!("--initial-advertise-peer-urls={}", url(*peer)),
            ])
            .arg(format!("--initial-cluster={}", cluster.join(",")))
            .arg("--log-level=warn");
        let command = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(log.map_err(told)?).process_group(0);
        *child = Some(command.spawn().map_err(told)?);
        Ok(())
    }

    /// Kills a member with SIGKILL.
    pub(crate) fn kill(&mut self, member: usize) {
        if let Some(mut child) = self.members[member].child.take() {
            // The member may have ended by itself.
            _ = child.kill();
            _ = child.wait();
        }
    }

    /// Pauses a member with SIGSTOP, or resumes it with SIGCONT.
    pub(crate) fn pause(&self, member: usize, is_paused: bool) -> Result<(), String> {
        match &self.members[member].child {
            Some(child) => signal(child.id(), if is_paused { Signal::STOP } else { Signal::CONT }),
            None => Ok(()),
        }
    }

    /// Returns the index of the member that says of itself that it leads the cluster; `None` if no running member says
    /// so.
    pub(crate) fn leader(&self) -> Option<usize> {
        let status = |member: &Member| {
            member.child.as_ref()?;
            ask(member.client, "maintenance/status", "{}")
        };
        self.members
            .iter()
            .position(|member| status(member).is_some_and(|status| status["leader"] == status["header"]["member_id"]))
    }

    /// Waits up to `limit` until a running member accepts a write.
    pub(crate) fn await_write(&self, limit: Duration) {
        let begun = Instant::now();
        let takes_write = |member: &Member| {
            let body = r#"{"key":"d3JpdGU=","value":"AA=="}"#;
            member.child.is_some() && ask_within(PROBE, member.client, "kv/put", body).is_some()
        };
        while begun.elapsed() < limit && !self.members.iter().any(takes_write) {
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    /// Compacts etcd at its newest revision.
    pub(crate) fn compact(&self) {
        let port = self.members.iter().find(|member| member.child.is_some()).map(|member| member.client);
        let range = port.and_then(|port| ask(port, "kv/range", r#"{"key":"AA=="}"#));
        if let (Some(port), Some(revision)) =
            (port, range.and_then(|answer| Some(answer["header"]["revision"].as_str()?.to_owned())))
        {
            _ = ask(port, "kv/compaction", &format!(r#"{{"revision":"{revision}"}}"#));
        }
    }

    /// Waits until all running members serve linearizable reads.
    pub(crate) fn await_quorum(&self) -> Result<(), String> {
        let begun = Instant::now();
        let is_serving =
            |member: &Member| member.child.is_none() || ask(member.client, "kv/range", r#"{"key":"AA=="}"#).is_some();
        while !self.members.iter().all(is_serving) {
            if begun.elapsed() > QUORUM_MAX {
                return Err(format!("etcd serves no reads after {QUORUM_MAX:?}"));
            }
            std::thread::sleep(Duration::from_millis(50));
        }
        Ok(())
    }
}

impl Drop for Etcd {
    fn drop(&mut self) {
        for member in 0..self.len() {
            self.kill(member);
        }
    }
}

fn certificates(folder: &Path) -> Result<CertDir, PkiError> {
    let certs = CertDir::open(folder)?;
    certs.ensure_serving(&serving_names(Ipv4Addr::LOCALHOST.into()))?;
    certs.ensure_admin()?;
    Ok(certs)
}

/// Sends a request to the gRPC gateway of a member (etcd's API in JSON), and returns the response. `None` if there is
/// no response, or the response is an error.
fn ask(port: u16, path: &str, body: &str) -> Option<serde_json::Value> {
    ask_within(Duration::from_secs(2), port, path, body)
}

fn ask_within(patience: Duration, port: u16, path: &str, body: &str) -> Option<serde_json::Value> {
    let mut connection = Connection::open(port, patience).ok()?;
    let (answer, _) = connection.ask("POST", &format!("/v3/{path}"), "application/json", body).ok()?;
    let answer: serde_json::Value = serde_json::from_slice(&answer.body).ok()?;
    answer.get("header").is_some().then_some(answer)
}

/// Maximum wait for the response to one write. A member loses a write that it forwards to a dead leader, so the next
/// attempt must come soon.
const PROBE: Duration = Duration::from_millis(50);
/// Maximum wait until the cluster serves. A healthy cluster serves sooner.
const QUORUM_MAX: Duration = Duration::from_secs(30);
