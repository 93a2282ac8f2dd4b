//! The servers of a run and their loads. Server and load have a core each, or share two cores.

mod etcd;
mod nghttp2;
mod recorder;

use crate::measurement::Told;
use crate::process::{LOOK, Process, pinned, words};
use crate::turns::Turns;
use crate::{Against, Args, Cores, Storage};
use recorder::Recorder;
use std::cell::RefCell;
use std::ffi::OsString;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::sleep;
use std::time::{Duration, Instant};

/// Resources of a run: programs, cores, ports, and a temporary folder.
#[derive(Debug)]
pub(crate) struct Lab {
    dir: tempfile::TempDir,
    /// Folder for the data folders of servers and etcds, on the disk to be measured.
    data: tempfile::TempDir,
    /// Storages with which this project's server is measured.
    pub(crate) storage: Vec<Storage>,
    /// Folder with the release binaries, such as `loadgen` and `perf-floor`.
    bin: PathBuf,
    /// The server program to measure.
    server: PathBuf,
    etcd: PathBuf,
    /// Number of replicas of a server with `--storage etcd`.
    replicas: u8,
    server_core: String,
    load_core: String,
    port: u16,
    pub(crate) is_quick: bool,
    /// Durations of the warm-up and of the measured time.
    pub(crate) warm_up: String,
    pub(crate) duration: Duration,
    /// File for the recording of perf(1) with the server's processor time, if `--record` requests it.
    record: Option<PathBuf>,
    /// The running perf(1), from a scenario's first load to the scenario's end.
    recorder: RefCell<Option<Recorder>>,
    /// Whether a signal has asked this program to end.
    interrupted: Arc<AtomicBool>,
}

/// A running server with all its replicas: this project's server, a server of `--against`, or perf-floor.
#[derive(Debug)]
pub(crate) struct Server {
    pub(crate) name: String,
    /// Replicas of the server. Only a server with `--storage etcd` has more than one.
    replicas: Vec<Replica>,
    /// `--ca`, `--cert` and `--key` for the load generator.
    credentials: Vec<String>,
    placement: Placement,
    /// The server's etcd. It is dropped after the replicas, which use it.
    _etcd: Option<Process>,
    /// The server's data folder. It is dropped after the processes, which write to it.
    _data: Option<tempfile::TempDir>,
}

/// A replica of a server.
#[derive(Debug)]
struct Replica {
    /// URLs of the replica with TLS and in cleartext; `None` if it does not serve the protocol.
    https: Option<String>,
    http: Option<String>,
    /// Processes of the replica whose processor time is counted.
    pids: Vec<u32>,
    /// Process that this run has started; `None` for a server of `--against`, which keeps running after the run.
    _process: Option<Process>,
}

/// The replicas that get the load, and the replicas whose processor time counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Aim {
    /// The first replica gets the load, and its processor time counts.
    First,
    /// All replicas get the load, and their processor time counts.
    All,
    /// The first replica receives the load. The processor time of the last replica counts: this replica only applies
    /// the writes of the first.
    Bystander,
}

impl Replica {
    /// Creates a replica that serves only at `url`, in cleartext or with TLS.
    fn at(url: String, pids: Vec<u32>, process: Option<Process>) -> Self {
        let (https, http) = if url.starts_with("https://") { (Some(url), None) } else { (None, Some(url)) };
        Self { https, http, pids, _process: process }
    }
}

impl Server {
    /// Creates a server that has neither an etcd nor a data folder.
    fn new(name: &str, replicas: Vec<Replica>, credentials: Vec<String>, placement: Placement) -> Self {
        Self { name: name.to_owned(), replicas, credentials, placement, _etcd: None, _data: None }
    }

    /// Returns the URLs for a load, and the processes whose processor time counts. Returns `None` if the server has too
    /// few replicas for `aim`, or if a loaded replica does not serve the protocol.
    fn aimed_at(&self, aim: Aim, tls: bool) -> Option<(Vec<&str>, Vec<u32>)> {
        let (loaded, counted) = match aim {
            Aim::First => (self.replicas.get(..1)?, self.replicas.get(..1)?),
            Aim::All => (&*self.replicas, &*self.replicas),
            Aim::Bystander => (self.replicas.get(..1)?, self.replicas.get(1..)?.last_chunk::<1>()?.as_slice()),
        };
        let urls: Option<Vec<&str>> =
            loaded.iter().map(|replica| if tls { replica.https.as_deref() } else { replica.http.as_deref() }).collect();
        Some((urls?, counted.iter().flat_map(|replica| replica.pids.iter().copied()).collect()))
    }
}

/// Cores of server and load.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Placement {
    /// Server and load have their own core each.
    Apart,
    /// Server and load run on both cores, as the scheduler decides.
    Together,
}

/// The reason why a measurement is missing.
#[derive(Debug)]
pub(crate) enum Stop {
    /// The measurement failed, with this message.
    Failed(String),
    /// A program of another package is not installed.
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

/// The protocols of a load: the version of HTTP, with or without TLS.
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
            // The path is made absolute, since a name without a folder would be searched in PATH.
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
            etcd: args.etcd.clone(),
            replicas: args.replicas,
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

    /// Returns the cores for a process. `own` is the process's core with [`Placement::Apart`].
    fn cores(&self, placement: Placement, own: &str) -> String {
        match placement {
            Placement::Apart => own.to_owned(),
            Placement::Together => format!("{},{}", self.server_core, self.load_core),
        }
    }

    /// Returns the folder for data folders, on the disk to be measured.
    pub(crate) fn data_dir(&self) -> &Path {
        self.data.path()
    }

    /// Starts this project's server, with all its replicas and without Leases.
    pub(crate) fn start_server(&self, placement: Placement, storage: Storage) -> Result<Server, String> {
        let data_folder = || tempfile::tempdir_in(&self.data).map_err(|e| format!("no data folder: {e}"));
        let flags = |words: &[&str]| words.iter().map(OsString::from).collect::<Vec<_>>();
        let (data, etcd, flags) = match storage {
            Storage::Memory => (None, None, flags(&["--storage", "memory"])),
            Storage::Disk => {
                let data = data_folder()?;
                let mut flags = flags(&["--storage", "disk", "--data-dir"]);
                flags.push(data.path().into());
                (Some(data), None, flags)
            }
            Storage::Etcd => {
                let data = data_folder()?;
                let (etcd, url) = self.start_etcd(data.path())?;
                (Some(data), Some(etcd), flags(&["--storage", "etcd", "--etcd-servers", &url]))
            }
        };
        let replicas = if storage == Storage::Etcd { self.replicas } else { 1 };
        let replicas: Result<_, _> = (0..replicas).map(|_| self.start_replica(placement, &flags)).collect();
        let file = |name: &str| self.pki().join(name).to_string_lossy().into_owned();
        Ok(Server {
            name: storage.subject().to_owned(),
            replicas: replicas?,
            credentials: ["--ca", &file("ca.crt"), "--cert", &file("admin.crt"), "--key", &file("admin.key")]
                .map(str::to_owned)
                .to_vec(),
            placement,
            _etcd: etcd,
            _data: data,
        })
    }

    /// Starts one replica of this project's server with these storage flags.
    fn start_replica(&self, placement: Placement, storage: &[OsString]) -> Result<Replica, String> {
        let secure = self.free_port(self.port)?;
        let insecure = self.free_port(secure + 1)?;
        let mut command = pinned(&self.cores(placement, &self.server_core), &self.server);
        command.arg("--cert-dir").arg(self.pki()).args(storage);
        command.args(["--secure-port", &secure.to_string(), "--insecure-port", &insecure.to_string()]);
        let log = self.dir.path().join(format!("server-{secure}.log"));
        let process = Process::start(&mut command, &log, || self.is_interrupted())?;
        Ok(Replica {
            https: Some(format!("https://127.0.0.1:{secure}")),
            http: Some(format!("http://127.0.0.1:{insecure}")),
            pids: vec![process.pid()],
            _process: Some(process),
        })
    }

    /// Returns the folder with the certificates of this project's servers.
    fn pki(&self) -> PathBuf {
        self.dir.path().join("pki")
    }

    /// Reads the histograms of the durations of the server's event-loop turns, since its start.
    pub(crate) fn turns(&self, server: &Server) -> Result<Turns, String> {
        let url = server.replicas.first().and_then(|replica| replica.http.as_deref());
        Turns::read(url.ok_or("the server does not serve cleartext")?)
    }

    /// Returns the first free port on 127.0.0.1, from `from` on.
    fn free_port(&self, from: u16) -> Result<u16, String> {
        let until = self.port.saturating_add(PORTS);
        (from..until)
            .find(|&port| std::net::TcpListener::bind(("127.0.0.1", port)).is_ok())
            .ok_or_else(|| format!("no port is free from {from} to {until}; --port sets another first port"))
    }

    /// Describes a running server of `--against` and its credentials.
    pub(crate) fn other_server(&self, against: &Against, args: &Args) -> Server {
        let flags = [("--ca", &args.against_ca), ("--cert", &args.against_cert), ("--key", &args.against_key)];
        let credentials = flags.into_iter().filter_map(|(flag, path)| Some((flag, path.as_ref()?)));
        let credentials = credentials.flat_map(|(flag, path)| [flag.to_owned(), path.display().to_string()]);
        let replica = Replica::at(against.url.clone(), against.pids.clone(), None);
        Server::new(&against.name, vec![replica], credentials.collect(), Placement::Apart)
    }

    /// Builds the command of the load generator. `through` is an optional prefix of the command, such as `nice`.
    /// Returns `None` if the server does not serve the protocols of `wire`.
    fn loadgen(
        &self,
        server: &Server,
        aim: Aim,
        wire: Wire,
        arguments: &[String],
        through: &[&str],
    ) -> Option<Command> {
        let (urls, pids) = server.aimed_at(aim, wire.tls)?;
        let cores = self.cores(server.placement, &self.load_core);
        let mut command = pinned(&cores, Path::new(through.first().copied().unwrap_or("env")));
        command.args(through.get(1..).unwrap_or_default()).arg(self.bin.join("loadgen")).args(arguments);
        command.args(["--server", &urls.join(",")]);
        if wire.tls {
            command.args(&server.credentials);
        }
        command.arg(if wire.http1 { "--http1" } else { "--http2" });
        let pids: Vec<String> = pids.iter().map(u32::to_string).collect();
        command.args(["--output", "json", "--pid", &pids.join(",")]);
        Some(command)
    }

    /// Runs a load on the server's first replica to its end. Returns `None` if the server does not serve the protocols
    /// of `wire`.
    pub(crate) fn load(&self, server: &Server, wire: Wire, arguments: &[String]) -> Option<Result<Told, Stop>> {
        self.load_aimed(server, Aim::First, wire, arguments)
    }

    /// Runs a load on the replicas of `aim` to its end. Returns `None` if a replica is missing or lacks the protocols
    /// of `wire`.
    pub(crate) fn load_aimed(
        &self,
        server: &Server,
        aim: Aim,
        wire: Wire,
        arguments: &[String],
    ) -> Option<Result<Told, Stop>> {
        self.loadgen(server, aim, wire, arguments, &[]).map(|command| self.finish(command, server))
    }

    /// Runs another load with low priority, beside the measured load.
    pub(crate) fn load_aside(&self, server: &Server, wire: Wire, arguments: &[String]) -> Option<Result<Told, Stop>> {
        self.loadgen(server, Aim::First, wire, arguments, &["nice", "-n", "19"])
            .map(|command| self.finish(command, server))
    }

    /// Starts a load that runs until SIGINT. Returns the process and its command line.
    pub(crate) fn start_load(
        &self,
        server: &Server,
        wire: Wire,
        arguments: &[String],
    ) -> Result<(Process, String), String> {
        let command = self.loadgen(server, Aim::First, wire, arguments, &[]);
        let mut command = command.ok_or("the server does not serve the protocols of this load")?;
        let told = words(&command);
        let process = Process::start_silent(command.stdout(Stdio::piped()), &self.dir.path().join("load.log"))?;
        Ok((process, told))
    }

    /// Runs a load generator to its end, and parses its line of JSON.
    fn finish(&self, command: Command, server: &Server) -> Result<Told, Stop> {
        self.record(server)?;
        let told = words(&command);
        let Output { stdout, stderr } = self.output(command)?;
        Told::parse(stdout.as_bytes(), told.clone()).ok_or_else(|| Stop::Failed(format!("{told}: {}", stderr.trim())))
    }

    /// Runs a command until it ends, or until this program must end. Returns the command's output.
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

    /// Waits for `time`. Returns an error at once if this program must end.
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

    /// Whether a signal has asked this program to end.
    pub(crate) fn is_interrupted(&self) -> bool {
        self.interrupted.load(Ordering::Relaxed)
    }

    /// Starts to record with perf(1) where the first replica spends its processor time, if `--record` requests it and
    /// no recording runs.
    fn record(&self, server: &Server) -> Result<(), String> {
        let mut recorder = self.recorder.borrow_mut();
        if let (Some(file), None) = (&self.record, recorder.as_ref()) {
            let pids = server.replicas.first().map_or(&[][..], |replica| &replica.pids);
            *recorder = Some(Recorder::start(pids, file.clone(), self.dir.path().join("perf.log"))?);
        }
        Ok(())
    }

    /// Ends the recording of perf(1). Returns an error if the recording is empty.
    pub(crate) fn end_recording(&self) -> Result<(), String> {
        self.recorder.take().map_or(Ok(()), Recorder::end)
    }

    /// Starts perf-floor, a minimal server. It shows the least that requests over HTTP/1.1 cost.
    pub(crate) fn start_floor(&self, placement: Placement) -> Result<Server, String> {
        let port = self.free_port(self.port)?;
        let mut command = pinned(&self.cores(placement, &self.server_core), &self.bin.join("perf-floor"));
        let process = Process::start(command.arg(port.to_string()), &self.dir.path().join("floor.log"), || {
            self.is_interrupted()
        })?;
        let replica = Replica::at(format!("http://127.0.0.1:{port}"), vec![process.pid()], Some(process));
        Ok(Server::new("echo", vec![replica], Vec::new(), placement))
    }
}

/// Output of a command.
#[derive(Debug)]
struct Output {
    stdout: String,
    stderr: String,
}

/// Number of ports to try, from the port of `--port` on. It is enough for several servers with several replicas.
const PORTS: u16 = 100;

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser as _;

    #[test]
    fn a_load_is_aimed_at_the_first_replica_by_default() {
        let replica = |number: u32| Replica {
            https: Some(format!("https://{number}")),
            http: (number == 1).then(|| "http://1".to_owned()),
            pids: vec![number],
            _process: None,
        };
        let server =
            |replicas: u32| Server::new("x", (1..=replicas).map(replica).collect(), Vec::new(), Placement::Apart);
        let three = server(3);
        assert_eq!(three.aimed_at(Aim::First, true), Some((vec!["https://1"], vec![1])));
        assert_eq!(three.aimed_at(Aim::All, true), Some((vec!["https://1", "https://2", "https://3"], vec![1, 2, 3])));
        assert_eq!(three.aimed_at(Aim::Bystander, true), Some((vec!["https://1"], vec![3])));
        assert_eq!(three.aimed_at(Aim::First, false), Some((vec!["http://1"], vec![1])));
        assert_eq!(three.aimed_at(Aim::All, false), None);
        assert_eq!(server(1).aimed_at(Aim::Bystander, true), None);
    }

    #[test]
    fn an_interrupted_run_ends_its_load() {
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
