//! The processes that a run starts. Servers and loads are pinned to cores. All end with this program, unless SIGKILL
//! ends this program.

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::fs::File;
use std::io::{BufRead as _, BufReader};
use std::os::fd::AsFd;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// A process that is killed when this value is dropped.
#[derive(Debug)]
pub(crate) struct Process {
    child: Child,
}

/// Builds the command of a program that is pinned to `cores`: one core, or a list in taskset's form.
pub(crate) fn pinned(cores: &str, program: &Path) -> Command {
    let mut command = Command::new("taskset");
    command.arg("-c").arg(cores).arg(program);
    command
}

/// Formats a command as a user would type it.
pub(crate) fn words(command: &Command) -> String {
    let words = std::iter::once(command.get_program()).chain(command.get_args());
    words.map(|word| without_place(&word.to_string_lossy())).collect::<Vec<_>>().join(" ")
}

/// Replaces the names of this machine's folders in a word of a command. The repository stores commands with their
/// results, and these names would mean nothing on another machine.
pub(crate) fn without_place(word: &str) -> String {
    let programs = std::env::current_exe().ok().and_then(|exe| Some(exe.parent()?.to_path_buf()));
    let places = [
        (programs, "target/release"),
        (Some(std::env::temp_dir()), "TMP"),
        (std::env::var_os("HOME").map(PathBuf::from), "~"),
    ];
    places.into_iter().fold(word.to_owned(), |word, (folder, name)| {
        // The root folder is not replaced, since it is part of every path.
        match folder.filter(|folder| folder.parent().is_some()) {
            Some(folder) => word.replace(&*folder.to_string_lossy(), name),
            None => word,
        }
    })
}

impl Process {
    /// Starts a server and waits until it is ready: until its log contains [`READY`], or it has printed a line. The
    /// server's standard error is written to `log`. `taskset` starts no child, but executes the program in its place
    /// (`exec`). So the process id is the server's. If `is_over` returns true, the wait ends with an error.
    pub(crate) fn start(command: &mut Command, log: &Path, is_over: impl Fn() -> bool) -> Result<Self, String> {
        let told = words(command);
        let mut process = Self::start_silent(command.stdout(Stdio::piped()), log)?;
        let Some(stdout) = process.child.stdout.take() else { return Err(format!("{told}: no output")) };
        while !is_readable(&stdout).map_err(|e| format!("{told}: {e}"))? {
            if std::fs::read_to_string(log).is_ok_and(|log| log.contains(READY)) {
                process.child.stdout = Some(stdout);
                return Ok(process);
            }
            if is_over() {
                return Err(format!("{told}: interrupted"));
            }
        }
        let mut reader = BufReader::new(stdout);
        let mut line = String::new();
        if reader.read_line(&mut line).map_err(|e| format!("{told}: {e}"))? == 0 {
            let complaint = std::fs::read_to_string(log).unwrap_or_default();
            return Err(format!("{told}: did not start: {}", complaint.trim()));
        }
        // Nobody reads the pipe from now on. It can hold the few lines that the server still prints.
        process.child.stdout = Some(reader.into_inner());
        Ok(process)
    }

    /// Starts a load, or a server that prints nothing. The process has its own process group, so a Ctrl-C in the
    /// terminal does not reach it. Instead, this program ends the process, and does not count an interrupted load as
    /// failed.
    pub(crate) fn start_silent(command: &mut Command, log: &Path) -> Result<Self, String> {
        let told = words(command);
        let log = File::create(log).map_err(|e| format!("{}: {e}", log.display()))?;
        let child = command.stdin(Stdio::null()).stderr(log).process_group(0).spawn();
        Ok(Self { child: child.map_err(|e| format!("{told}: {e}"))? })
    }

    /// Returns the process id.
    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Whether the process runs.
    pub(crate) fn is_running(&mut self) -> bool {
        matches!(self.child.try_wait(), Ok(None))
    }

    /// Waits until the process listens on this port of 127.0.0.1.
    pub(crate) fn wait_for_port(&mut self, port: u16) -> Result<(), String> {
        let deadline = Instant::now() + Duration::from_secs(10);
        while std::net::TcpStream::connect(("127.0.0.1", port)).is_err() {
            if let Ok(Some(status)) = self.child.try_wait() {
                return Err(format!("port {port}: the server ended with {status}"));
            }
            if Instant::now() > deadline {
                return Err(format!("port {port}: no listener after 10 s"));
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        Ok(())
    }

    /// Ends the process with SIGINT and returns its standard output. perf(1), and a load without an end, run until this
    /// signal.
    pub(crate) fn interrupt(mut self) -> Result<String, String> {
        let pid = i32::try_from(self.pid()).ok().and_then(rustix::process::Pid::from_raw);
        let pid = pid.ok_or("no such process")?;
        rustix::process::kill_process(pid, rustix::process::Signal::INT).map_err(|e| e.to_string())?;
        let mut text = String::new();
        if let Some(mut stdout) = self.child.stdout.take() {
            std::io::Read::read_to_string(&mut stdout, &mut text).map_err(|e| e.to_string())?;
        }
        _ = self.child.wait();
        Ok(text)
    }
}

/// Waits for at most [`LOOK`]. Returns whether the pipe has data or is closed.
fn is_readable(pipe: &impl AsFd) -> rustix::io::Result<bool> {
    let moment = Timespec::try_from(LOOK).map_err(|_| rustix::io::Errno::INVAL)?;
    match poll(&mut [PollFd::new(pipe, PollFlags::IN)], Some(&moment)) {
        Err(rustix::io::Errno::INTR) => Ok(false),
        ready => ready.map(|count| count > 0),
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // The process may have ended by itself.
        _ = self.child.kill();
        _ = self.child.wait();
    }
}

/// Text in the log line that this project's server writes when it is ready.
const READY: &str = "Ready: ";

/// Interval between two checks of a process. It is so long that the checks do not disturb the measurement.
pub(crate) const LOOK: Duration = Duration::from_millis(50);

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::process::{Pid, getpgid, test_kill_process};

    #[test]
    fn a_process_has_its_own_group_and_ends_when_dropped() {
        let folder = tempfile::tempdir().expect("a folder");
        let mut process =
            Process::start_silent(Command::new("sleep").arg("600"), &folder.path().join("log")).expect("sleep");
        let pid = Pid::from_raw(i32::try_from(process.pid()).expect("a process")).expect("a process");
        assert_eq!(getpgid(Some(pid)), Ok(pid));
        assert!(process.is_running());
        drop(process);
        assert!(test_kill_process(pid).is_err());
    }

    #[test]
    fn an_interrupted_run_stops_waiting_for_a_silent_server() {
        let folder = tempfile::tempdir().expect("a folder");
        let log = folder.path().join("log");
        let start = |script: &str, is_over: bool| {
            Process::start(Command::new("sh").args(["-c", script]), &log, || is_over).map(|process| process.pid())
        };
        let told = start("exec sleep 600", true).expect_err("over");
        assert!(told.ends_with("interrupted"), "{told}");
        assert!(start("sleep 0.1; echo serves; exec sleep 600", false).is_ok());
        assert!(start("sleep 0.1; echo INFO Ready: kubectl >&2; exec sleep 600", false).is_ok());
        let told = start("echo why >&2; exit 1", false).expect_err("it ended");
        assert!(told.ends_with("did not start: why"), "{told}");
    }

    #[test]
    fn temporary_folder_paths_are_not_shown() {
        let file = std::env::temp_dir().join("x/ca.crt");
        assert_eq!(without_place(&file.to_string_lossy()), "TMP/x/ca.crt");
        assert_eq!(without_place("--name"), "--name");
    }
}
