//! The servers of a run and the loads on them, each on a core of its own or all on both.

mod nghttp2;
mod recorder;

use crate::measurement::Told;
use crate::process::{LOOK, Process, pinned, words};
use crate::turns::Turns;
use crate::{Against, Args, Cores, Storage};
use recorder::Recorder;
use std::cell::RefCell;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::sleep;
use std::time::{Duration, Instant};

/// What a run has: programs, cores, ports, a folder that goes with it.
#[derive(Debug)]
pub(crate) struct Lab {
    dir: tempfile::TempDir,
    /// Where the data folders are.
    data: tempfile::TempDir,
    /// Where servers keep their Leases.
    pub(crate) storage: Vec<Storage>,
    /// Where the release binaries are.
    bin: PathBuf,
    /// The server that is measured.
    server: PathBuf,
    server_core: String,
    load_core: String,
    port: u16,
    pub(crate) is_quick: bool,
    /// Seconds of warm-up and of measurement.
    pub(crate) warm_up: String,
    pub(crate) duration: Duration,
    /// Where processor time is recorded, if it is.
    record: Option<PathBuf>,
    /// Who records it, from the first load of a scenario to its end.
    recorder: RefCell<Option<Recorder>>,
    /// Set when the run is to end.
    interrupted: Arc<AtomicBool>,
}

/// A running Lease server.
#[derive(Debug)]
pub(crate) struct Server {
    pub(crate) name: String,
    https: Option<String>,
    http: Option<String>,
    /// `--ca`, `--cert`, `--key` of the load.
    credentials: Vec<String>,
    pids: Vec<u32>,
    placement: Placement,
    /// Ours; somebody else's goes on.
    _process: Option<Process>,
    /// The data folder, which goes after the process.
    _data: Option<tempfile::TempDir>,
}

/// Which cores server and load run on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Placement {
    /// Each has its own.
    Apart,
    /// Both have both, and the scheduler moves them as it likes.
    Together,
}

/// Why there is no measurement.
#[derive(Debug)]
pub(crate) enum Stop {
    /// Something went wrong.
    Failed(String),
    /// A program of another package is not there.
    Missing(String),
}

impl From<String> for Stop {
    fn from(words: String) -> Self {
        Self::Failed(words)
    }
}

impl From<&str> for Stop {
    fn from(words: &str) -> Self {
        Self::Failed(words.to_owned())
    }
}

/// A variant of the protocols.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Wire {
    pub(crate) http1: bool,
    pub(crate) tls: bool,
}

impl Lab {
    pub(crate) fn new(args: &Args, cores: Cores, interrupted: Arc<AtomicBool>) -> Result<Self, String> {
        let dir = tempfile::tempdir().map_err(|e| format!("no temporary folder: {e}"))?;
        let data = args.data_dir.as_ref().map_or_else(tempfile::tempdir, tempfile::tempdir_in);
        let data = data.map_err(|e| format!("no folder for data folders: {e}"))?;
        let own = std::env::current_exe().map_err(|e| e.to_string())?;
        let bin = own.parent().map(Path::to_path_buf).unwrap_or_default();
        let server = match &args.server {
            // As a path: a name alone would be looked for among the system's programs.
            Some(file) => file.canonicalize().map_err(|e| format!("{}: {e}", file.display()))?,
            None => bin.join("coordination-apiserver"),
        };
        let (warm_up, duration_ms) = if args.quick { ("100ms", 300) } else { ("1s", 2_000) };
        Ok(Self {
            dir,
            data,
            storage: args.storage.clone(),
            bin,
            server,
            server_core: cores.server.to_string(),
            load_core: cores.load.to_string(),
            port: args.port,
            is_quick: args.quick,
            warm_up: warm_up.to_owned(),
            duration: args.duration.unwrap_or_else(|| Duration::from_millis(duration_ms)),
            record: args.record.clone(),
            recorder: RefCell::new(None),
            interrupted,
        })
    }

    /// The cores of a process whose own core is this one.
    fn cores(&self, placement: Placement, own: &str) -> String {
        match placement {
            Placement::Apart => own.to_owned(),
            Placement::Together => format!("{},{}", self.server_core, self.load_core),
        }
    }

    /// The folder on the disk that is measured.
    pub(crate) fn data_dir(&self) -> &Path {
        self.data.path()
    }

    /// Starts a server of ours that holds no Lease.
    pub(crate) fn start_server(&self, placement: Placement, storage: Storage) -> Result<Server, String> {
        let secure = self.free_port(self.port)?;
        let insecure = self.free_port(secure + 1)?;
        let pki = self.dir.path().join("pki");
        let cores = self.cores(placement, &self.server_core);
        let mut command = pinned(&cores, &self.server);
        command.arg("--cert-dir").arg(&pki);
        command.args(["--secure-port", &secure.to_string(), "--insecure-port", &insecure.to_string()]);
        let data = match storage {
            Storage::Disk => {
                let data = tempfile::tempdir_in(&self.data).map_err(|e| format!("no data folder: {e}"))?;
                command.args(["--storage", "disk", "--data-dir"]).arg(data.path());
                Some(data)
            }
            Storage::Memory => {
                command.args(["--storage", "memory"]);
                None
            }
        };
        let process = Process::start(&mut command, &self.dir.path().join(format!("server-{secure}.log")), || {
            self.is_interrupted()
        })?;
        let file = |name: &str| pki.join(name).to_string_lossy().into_owned();
        Ok(Server {
            name: storage.subject().to_owned(),
            https: Some(format!("https://127.0.0.1:{secure}")),
            http: Some(format!("http://127.0.0.1:{insecure}")),
            credentials: ["--ca", &file("ca.crt"), "--cert", &file("admin.crt"), "--key", &file("admin.key")]
                .map(str::to_owned)
                .to_vec(),
            pids: vec![process.pid()],
            placement,
            _process: Some(process),
            _data: data,
        })
    }

    /// How long the server's turns have taken until now.
    pub(crate) fn turns(&self, server: &Server) -> Result<Turns, String> {
        Turns::read(server.http.as_deref().ok_or("the server does not serve cleartext")?)
    }

    /// The first port from here on that nobody has.
    fn free_port(&self, from: u16) -> Result<u16, String> {
        let until = self.port.saturating_add(PORTS);
        (from..until)
            .find(|&port| std::net::TcpListener::bind(("127.0.0.1", port)).is_ok())
            .ok_or_else(|| format!("no port is free from {from} to {until}; --port names others"))
    }

    /// A server of somebody else's.
    pub(crate) fn other_server(&self, against: &Against, args: &Args) -> Server {
        let flags = [("--ca", &args.against_ca), ("--cert", &args.against_cert), ("--key", &args.against_key)];
        let is_secure = against.url.starts_with("https://");
        let credentials = flags.into_iter().filter_map(|(flag, path)| Some((flag, path.as_ref()?)));
        Server {
            name: against.name.clone(),
            https: is_secure.then(|| against.url.clone()),
            http: (!is_secure).then(|| against.url.clone()),
            credentials: credentials.flat_map(|(flag, path)| [flag.to_owned(), path.display().to_string()]).collect(),
            pids: against.pids.clone(),
            placement: Placement::Apart,
            _process: None,
            _data: None,
        }
    }

    /// The command of a load, started by another (`nice`) if one is named; `None` if the server does not serve this.
    fn loadgen(&self, server: &Server, wire: Wire, arguments: &[String], through: &[&str]) -> Option<Command> {
        let url = if wire.tls { server.https.as_ref()? } else { server.http.as_ref()? };
        let cores = self.cores(server.placement, &self.load_core);
        let mut command = pinned(&cores, Path::new(through.first().copied().unwrap_or("env")));
        command.args(through.get(1..).unwrap_or_default()).arg(self.bin.join("loadgen")).args(arguments);
        command.args(["--server", url]);
        if wire.tls {
            command.args(&server.credentials);
        }
        command.arg(if wire.http1 { "--http1" } else { "--http2" });
        let pids: Vec<String> = server.pids.iter().map(u32::to_string).collect();
        command.args(["--output", "json", "--pid", &pids.join(",")]);
        Some(command)
    }

    /// Runs a load to its end; `None` if the server does not serve this.
    pub(crate) fn load(&self, server: &Server, wire: Wire, arguments: &[String]) -> Option<Result<Told, Stop>> {
        self.loadgen(server, wire, arguments, &[]).map(|command| self.finish(command, server))
    }

    /// The same, giving way to others: what the machine does beside the load that is measured.
    pub(crate) fn load_aside(&self, server: &Server, wire: Wire, arguments: &[String]) -> Option<Result<Told, Stop>> {
        self.loadgen(server, wire, arguments, &["nice", "-n", "19"]).map(|command| self.finish(command, server))
    }

    /// Starts a load that goes on until it is interrupted.
    pub(crate) fn start_load(
        &self,
        server: &Server,
        wire: Wire,
        arguments: &[String],
    ) -> Result<(Process, String), String> {
        let command = self.loadgen(server, wire, arguments, &[]);
        let mut command = command.ok_or("the server does not serve this")?;
        let told = words(&command);
        let process = Process::start_silent(command.stdout(Stdio::piped()), &self.dir.path().join("load.log"))?;
        Ok((process, told))
    }

    /// Runs a load generator that prints one line of JSON.
    fn finish(&self, command: Command, server: &Server) -> Result<Told, Stop> {
        self.record(server)?;
        let told = words(&command);
        let Output { stdout, stderr } = self.output(command)?;
        Told::parse(stdout.as_bytes(), told.clone()).ok_or_else(|| Stop::Failed(format!("{told}: {}", stderr.trim())))
    }

    /// Runs a command to its end, or to that of the run; what it has printed.
    fn output(&self, mut command: Command) -> Result<Output, Stop> {
        let [stdout, stderr] = ["output", "output.log"].map(|name| self.dir.path().join(name));
        let file = File::create(&stdout).map_err(|e| format!("{}: {e}", stdout.display()))?;
        let mut process = Process::start_silent(command.stdout(file), &stderr)?;
        while process.is_running() {
            self.pass(LOOK)?;
        }
        let read = |path: &Path| std::fs::read_to_string(path).map_err(|e| format!("{}: {e}", path.display()));
        Ok(Output { stdout: read(&stdout)?, stderr: read(&stderr)? })
    }

    /// Lets this time pass; an error if the run is to end.
    pub(crate) fn pass(&self, time: Duration) -> Result<(), Stop> {
        let until = Instant::now() + time;
        loop {
            if self.is_interrupted() {
                return Err(Stop::from("interrupted"));
            }
            let rest = until.saturating_duration_since(Instant::now());
            if rest.is_zero() {
                return Ok(());
            }
            sleep(rest.min(LOOK));
        }
    }

    /// Whether the run is to end.
    pub(crate) fn is_interrupted(&self) -> bool {
        self.interrupted.load(Ordering::Relaxed)
    }

    /// Records where the server's processor time goes, if that is wanted and nobody does it yet.
    fn record(&self, server: &Server) -> Result<(), String> {
        let mut recorder = self.recorder.borrow_mut();
        if let (Some(file), None) = (&self.record, recorder.as_ref()) {
            *recorder = Some(Recorder::start(&server.pids, file.clone(), self.dir.path().join("perf.log"))?);
        }
        Ok(())
    }

    /// Ends what [`Self::record`] has begun. An error if it has recorded nothing.
    pub(crate) fn end_recording(&self) -> Result<(), String> {
        self.recorder.take().map_or(Ok(()), Recorder::end)
    }

    /// Starts the echo; gives its address.
    pub(crate) fn start_floor(&self, placement: Placement) -> Result<Server, String> {
        let port = self.free_port(self.port)?;
        let mut command = pinned(&self.cores(placement, &self.server_core), &self.bin.join("perf-floor"));
        let process = Process::start(command.arg(port.to_string()), &self.dir.path().join("floor.log"), || {
            self.is_interrupted()
        })?;
        Ok(Server {
            name: "echo".to_owned(),
            https: None,
            http: Some(format!("http://127.0.0.1:{port}")),
            credentials: Vec::new(),
            pids: vec![process.pid()],
            placement,
            _process: Some(process),
            _data: None,
        })
    }
}

/// What a command has printed.
#[derive(Debug)]
struct Output {
    stdout: String,
    stderr: String,
}

/// Ports that are looked through.
const PORTS: u16 = 60;

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser as _;

    #[test]
    fn a_load_ends_when_the_run_is_to_end() {
        let interrupted = Arc::new(AtomicBool::new(false));
        let lab = Lab::new(&Args::parse_from(["perf/run"]), Cores::first(), interrupted.clone()).expect("a lab");
        let command = |script: &str| {
            let mut command = Command::new("sh");
            command.args(["-c", script]);
            command
        };
        let output = lab.output(command("echo told; echo complained >&2")).expect("output");
        assert_eq!((output.stdout.as_str(), output.stderr.as_str()), ("told\n", "complained\n"));
        interrupted.store(true, Ordering::Relaxed);
        let began = Instant::now();
        assert!(lab.output(command("exec sleep 600")).is_err());
        assert!(began.elapsed() < Duration::from_secs(300));
    }
}
