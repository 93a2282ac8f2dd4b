//! Runs perf(1), which records where a server spends its processor time.

use crate::process::Process;
use std::fs::File;
use std::path::PathBuf;
use std::process::{Command, Stdio};

/// A running `perf record`.
#[derive(Debug)]
pub(super) struct Recorder {
    process: Process,
    file: PathBuf,
    /// Log of perf.
    log: PathBuf,
}

impl Recorder {
    pub(super) fn start(pids: &[u32], file: PathBuf, log: PathBuf) -> Result<Self, String> {
        // The file is emptied first: an older recording must not be taken for a new one.
        File::create(&file).map_err(|e| format!("{}: {e}", file.display()))?;
        let pids: Vec<String> = pids.iter().map(u32::to_string).collect();
        let mut command = Command::new("perf");
        command.args(["record", "--event", &event(), "--freq", "1999", "--call-graph", "dwarf,16384"]);
        command.arg("--output").arg(&file).args(["--pid", &pids.join(",")]);
        let process = Process::start_silent(command.stdout(Stdio::null()), &log)
            .map_err(|e| format!("{e} (perf/flamegraph says what to install)"))?;
        Ok(Self { process, file, log })
    }

    /// Ends the recording. perf(1) writes its file when it receives SIGINT, or when the recorded processes have ended.
    pub(super) fn end(self) -> Result<(), String> {
        self.process.interrupt()?;
        if self.file.metadata().is_ok_and(|metadata| metadata.len() > 0) {
            return Ok(());
        }
        let complaint = std::fs::read_to_string(&self.log).unwrap_or_default();
        Err(format!("perf has recorded nothing: {}", complaint.trim()))
    }
}

/// Returns the event that perf(1) samples: cycles, or the clock if the machine cannot count cycles. Some virtual
/// machines cannot.
fn event() -> String {
    let output = Command::new("perf").args(["stat", "--event", "cycles:u", "true"]).output();
    let has_cycles = output.is_ok_and(|output| !String::from_utf8_lossy(&output.stderr).contains("not supported"));
    if has_cycles { "cycles" } else { "cpu-clock" }.to_owned()
}
