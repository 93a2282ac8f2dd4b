//! The servers of a run and the loads on them, each on a core of its own or all on both.

use crate::measurement::Told;
use crate::process::{Process, pinned, words};
use crate::turns::Turns;
use crate::{Against, Args, Cores};
use loadgen_account::Limit;
use perf::OURS;
use serde_json::json;
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

    /// Starts a server of ours.
    pub(crate) fn start_server(&self, placement: Placement) -> Result<Server, String> {
        let secure = self.free_port(self.port)?;
        let insecure = self.free_port(secure + 1)?;
        let pki = self.dir.path().join("pki");
        let cores = self.cores(placement, &self.server_core);
        let mut command = pinned(&cores, &self.server);
        command.arg("--cert-dir").arg(&pki);
        command.args(["--secure-port", &secure.to_string(), "--insecure-port", &insecure.to_string()]);
        let process = Process::start(&mut command, &self.dir.path().join(format!("server-{secure}.log")), || {
            self.is_interrupted()
        })?;
        let file = |name: &str| pki.join(name).to_string_lossy().into_owned();
        Ok(Server {
            name: OURS.to_owned(),
            https: Some(format!("https://127.0.0.1:{secure}")),
            http: Some(format!("http://127.0.0.1:{insecure}")),
            credentials: ["--ca", &file("ca.crt"), "--cert", &file("admin.crt"), "--key", &file("admin.key")]
                .map(str::to_owned)
                .to_vec(),
            pids: vec![process.pid()],
            placement,
            _process: Some(process),
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

    /// Starts nghttpd on a file of `bytes` bytes; gives its URL.
    pub(crate) fn start_nghttpd(&self, tls: bool, bytes: usize) -> Result<(Process, String), Stop> {
        let nghttpd = program("nghttpd")?;
        let docroot = self.dir.path().join("docroot");
        let write =
            std::fs::create_dir_all(&docroot).and_then(|()| std::fs::write(docroot.join("lease"), vec![b'x'; bytes]));
        write.map_err(|e| format!("{}: {e}", docroot.display()))?;
        let port = self.free_port(self.port)?;
        let mut command = pinned(&self.server_core, &nghttpd);
        command.args(["--address", "127.0.0.1", "--htdocs"]).arg(&docroot);
        if !tls {
            command.arg("--no-tls");
        }
        command.arg(port.to_string());
        if tls {
            // A server of ours has made them.
            let pki = self.dir.path().join("pki");
            command.arg(pki.join("apiserver.key")).arg(pki.join("apiserver.crt"));
        }
        let log = self.dir.path().join("nghttpd.log");
        let mut process = Process::start_silent(command.stdout(Stdio::null()), &log)?;
        process.wait_for_port(port)?;
        let scheme = if tls { "https" } else { "http" };
        Ok((process, format!("{scheme}://127.0.0.1:{port}/lease")))
    }

    /// Loads nghttpd, first for a moment to learn how fast it is, and then for as long as is measured; what it prints
    /// in the form of the load generator's.
    pub(crate) fn h2load(&self, nghttpd: &Process, url: &str, streams: u32) -> Result<Told, Stop> {
        let h2load = program("h2load")?;
        let pids = [nghttpd.pid()];
        let mut requests = if self.is_quick { 4_000_u64 } else { 100_000 };
        let mut last = None;
        for _ in 0..2 {
            let mut command = pinned(&self.load_core, &h2load);
            command.args(["-t", "1", "-c", "8", "-m", &streams.to_string(), "-n", &requests.to_string(), url]);
            let told = words(&command);
            let before = loadgen_account::cpu_ns(&pids);
            let text = self.output(command)?.stdout;
            let after = loadgen_account::cpu_ns(&pids);
            let run = H2load::of(&text).ok_or_else(|| format!("{told}: cannot read its results: {text}"))?;
            let cpu_us = before.zip(after).map(|(before, after)| whole(after.saturating_sub(before)) / 1_000.0);
            let server_share = cpu_us.map(|us| us / 1e6 / run.seconds);
            let json = json!({
                "requests": run.succeeded,
                "requests_per_second": run.per_second,
                "measured_s": run.seconds,
                "server_cpu_us": cpu_us,
                "server_cpu_us_per_request": cpu_us.map(|us| us / whole(run.succeeded.max(1))),
                "server_cpu_share": server_share,
                "limit": Limit::of(server_share, None, None).map(Limit::name),
                "server_memory_kib": { "end": loadgen_account::memory(&pids).map(|memory| memory.resident_kib) },
                "latency": { "ms_max": run.ms_max },
                "errors": { "failed": requests - run.succeeded.min(requests) },
            });
            last = Some(Told { json, command: told });
            // As many as fit in what is measured.
            requests = rounded(run.per_second * self.duration.as_secs_f64()).max(1_000);
        }
        last.ok_or_else(|| Stop::Failed("h2load did not run".to_owned()))
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
        })
    }
}

/// What a command has printed.
#[derive(Debug)]
struct Output {
    stdout: String,
    stderr: String,
}

/// `perf record` under way.
#[derive(Debug)]
struct Recorder {
    process: Process,
    file: PathBuf,
    /// What it says.
    log: PathBuf,
}

impl Recorder {
    fn start(pids: &[u32], file: PathBuf, log: PathBuf) -> Result<Self, String> {
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
    fn end(self) -> Result<(), String> {
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

/// What h2load says at its end.
#[derive(Debug, PartialEq)]
struct H2load {
    seconds: f64,
    per_second: f64,
    succeeded: u64,
    ms_max: Option<f64>,
}

impl H2load {
    fn of(text: &str) -> Option<Self> {
        // finished in 2.35s, 425000.12 req/s, 300.00MB/s
        let finished = text.lines().find_map(|line| line.strip_prefix("finished in "))?;
        let mut parts = finished.split(", ");
        let seconds = duration_ms(parts.next()?)? / 1_000.0;
        let per_second = parts.next()?.strip_suffix(" req/s")?.parse().ok()?;
        // requests: 1000 total, 1000 started, 1000 done, 1000 succeeded, 0 failed, 0 errored, 0 timeout
        let requests = text.lines().find_map(|line| line.strip_prefix("requests: "))?;
        let succeeded = requests.split(", ").find_map(|part| part.strip_suffix(" succeeded"))?.parse().ok()?;
        // time for request:      123us      4.56ms      1.23ms       0.4ms    70.00%
        let times = text.lines().find_map(|line| line.strip_prefix("time for request:"));
        let ms_max = times.and_then(|times| duration_ms(times.split_ascii_whitespace().nth(1)?));
        Some(Self { seconds, per_second, succeeded, ms_max })
    }
}

/// `2.35s`, `4.56ms`, `123us`, in milliseconds.
fn duration_ms(text: &str) -> Option<f64> {
    for (unit, ms) in [("us", 1e-3), ("ms", 1.0), ("s", 1e3)] {
        if let Some(number) = text.strip_suffix(unit) {
            return Some(number.parse::<f64>().ok()? * ms);
        }
    }
    None
}

/// Where a program of another package is; or what to install.
fn program(name: &str) -> Result<PathBuf, Stop> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let folders = std::env::split_paths(&path).chain([PathBuf::from("/usr/sbin")]);
    folders.map(|folder| folder.join(name)).find(|file| file.is_file()).ok_or_else(|| {
        let package = "apt-get install nghttp2-server nghttp2-client (Debian), or your system's nghttp2";
        Stop::Missing(format!("{name} is not installed: {package}"))
    })
}

#[expect(clippy::cast_precision_loss, reason = "counts are far below 2^52")]
fn whole(number: u64) -> f64 {
    number as f64
}

#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a rate is positive and far below")]
fn rounded(number: f64) -> u64 {
    number as u64
}

/// How often it is looked whether a load has ended, or the run is to: so seldom that it takes nothing from what is
/// measured.
const LOOK: Duration = Duration::from_millis(50);
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

    #[test]
    fn reads_what_h2load_prints() {
        let text = "starting benchmark...\n\nfinished in 250.00ms, 400000.50 req/s, 300.00MB/s\n\
            requests: 1000 total, 1000 started, 1000 done, 999 succeeded, 1 failed, 0 errored, 0 timeout\n\
            status codes: 999 2xx, 0 3xx, 1 4xx, 0 5xx\n\
            time for request:      123us      4.50ms      1.23ms       400us    70.00%\n";
        let run = H2load { seconds: 0.25, per_second: 400_000.5, succeeded: 999, ms_max: Some(4.5) };
        assert_eq!(H2load::of(text), Some(run));
        assert_eq!(H2load::of("finished"), None);
    }
}
