//! perf(1), which records where a server's processor time goes.

use crate::process::Process;
use std::fs::File;
use std::path::PathBuf;
use std::process::{Command, Stdio};

/// `perf record` under way.
#[derive(Debug)]
pub(super) struct Recorder {
    process: Process,
    file: PathBuf,
    /// What it says.
    log: PathBuf,
}

impl Recorder {
    pub(super) fn start(pids: &[u32], file: PathBuf, log: PathBuf) -> Result<Self, String> {
        // One of before is not to pass for what is recorded now.
        File::create(&file).map_err(|e| format!("{}: {e}", file.display()))?;
        let pids: Vec<String> = pids.iter().map(u32::to_string).collect();
        let mut command = Command::new("perf");
        command.args(["record", "--event", &event(), "--freq", "1999", "--call-graph", "dwarf,16384"]);
        command.arg("--output").arg(&file).args(["--pid", &pids.join(",")]);
        let process = Process::start_silent(command.stdout(Stdio::null()), &log)
            .map_err(|e| format!("{e} (perf/flamegraph says what to install)"))?;
        Ok(Self { process, file, log })
    }

    /// It writes its file when it is interrupted, or when the servers have ended.
    pub(super) fn end(self) -> Result<(), String> {
        self.process.interrupt()?;
        if self.file.metadata().is_ok_and(|metadata| metadata.len() > 0) {
            return Ok(());
        }
        let complaint = std::fs::read_to_string(&self.log).unwrap_or_default();
        Err(format!("perf has recorded nothing: {}", complaint.trim()))
    }
}

/// What perf counts: cycles, or where the machine (a virtual one) has no counter for them, the clock.
fn event() -> String {
    let output = Command::new("perf").args(["stat", "--event", "cycles:u", "true"]).output();
    let has_cycles = output.is_ok_and(|output| !String::from_utf8_lossy(&output.stderr).contains("not supported"));
    if has_cycles { "cycles" } else { "cpu-clock" }.to_owned()
}
