//! The etcd of a server with `--storage etcd`: one member, with its data on the disk to be measured.

use super::Lab;
use crate::process::Process;
use std::path::Path;
use std::process::{Command, Stdio};

impl Lab {
    /// Starts an etcd with its data in `data`, on cores that the scheduler chooses. Returns the process and its URL.
    pub(super) fn start_etcd(&self, data: &Path) -> Result<(Process, String), String> {
        let port = self.free_port(self.port)?;
        let peer_port = self.free_port(port + 1)?;
        let [url, peer_url] = [port, peer_port].map(|port| format!("http://127.0.0.1:{port}"));
        let mut command = Command::new(&self.etcd);
        command.args(["--name", "perf", "--log-level", "error", "--data-dir"]).arg(data);
        command.args(["--listen-client-urls", &url, "--advertise-client-urls", &url]);
        command.args(["--listen-peer-urls", &peer_url, "--initial-advertise-peer-urls", &peer_url]);
        command.args(["--initial-cluster", &format!("perf={peer_url}")]);
        let log = self.dir.path().join(format!("etcd-{port}.log"));
        let mut process = Process::start_silent(command.stdout(Stdio::null()), &log)?;
        process.wait_for_port(port)?;
        Ok((process, url))
    }
}
