//! The program: reads the command line, starts the log, loads the certificates, opens the listeners, and runs the
//! event loop until a signal.
//!
//! A failed start prints one line on standard error. Its exit status is 2 if the command line is wrong, else 1.

use coordination_apiserver::cli::{
    self, Args, Command, DurableKind, InspectArgs, MigrateArgs, PROGRAM, Stop, StorageKind, USAGE, one_line,
};
use coordination_apiserver::cluster::{
    self, Cluster, EndpointsReceiver, Followed, Namespaces, PublishedEndpoints, ServiceName,
};
use coordination_apiserver::logging::{self, LogGuard};
use coordination_apiserver::offline::Store;
use coordination_apiserver::pki::{self, AdminKubeconfig, CertDir, PkiError};
use coordination_apiserver::server::{Config, Server, ShutdownHandle, StorageConfig};
use coordination_apiserver::switch::{self, SwitchError};
use coordination_apiserver::tls::config::{Secure, TlsConfigError};
use coordination_apiserver::tls::reload::{LOOK_EVERY, Reloader};
use coordination_apiserver::tls::source::{FrontProxySource, TlsSources};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use rustix::system::uname;
use sd_notify::NotifyState;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM, SIGUSR1, SIGUSR2, SIGXFSZ};
use signal_hook::iterator::Signals;
use std::fmt::Display;
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::atomic::AtomicBool;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::sync::{Arc, OnceLock};
use std::time::Duration;
use std::{env, panic, path, process, thread};
use tracing::{info, warn};

fn main() -> ExitCode {
    bound_panics();
    if let Err(e) = survive_file_size_limit() {
        return Failure::at_runtime(format!("cannot take signals: {e}")).report();
    }
    let args = match Args::parse_checked(env::args_os()) {
        Ok(args) => args,
        Err(Stop::Information(text)) => {
            return print(text.as_bytes());
        }
        Err(Stop::Wrong(line)) => return Failure { line, status: USAGE }.report(),
    };
    match &args.command {
        Some(Command::Inspect(args)) => logged(logging::init_for_command(), || inspect(args)),
        Some(Command::MigrateStorage(args)) => logged(logging::init_for_command(), || migrate(args)),
        Some(Command::Takeover(args)) => switched(|say| switch::takeover(args, say)),
        Some(Command::Rollback(args)) => switched(|say| switch::rollback(args, say)),
        Some(Command::Completion { shell }) => print(&cli::completion(*shell)),
        Some(Command::Man { command }) => print(&cli::manual(command.as_deref())),
        None => logged(logging::init(args.log_format, args.verbosity), || run(&args).map(|()| ExitCode::SUCCESS)),
    }
}

/// Runs `work` with this log, and reports its failure.
fn logged(log: io::Result<LogGuard>, work: impl FnOnce() -> Result<ExitCode, Failure>) -> ExitCode {
    let log = match log {
        Ok(log) => log,
        Err(e) => return Failure::at_runtime(format!("cannot start the log: {e}")).report(),
    };
    let outcome = work();
    // The drop of the log writes all queued log lines. So the line about a failure is the last on standard error.
    drop(log);
    outcome.unwrap_or_else(|failure| failure.report())
}

/// Prints a document.
fn print(document: &[u8]) -> ExitCode {
    let mut out = io::stdout();
    let printed = out.write_all(document).and_then(|()| out.flush());
    check_printed(printed).map_or_else(|failure| failure.report(), |()| ExitCode::SUCCESS)
}

/// Checks that a document was printed. A closed pipe is no failure: its reader needs no more of the document.
fn check_printed(printed: io::Result<()>) -> Result<(), Failure> {
    match printed {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => {
            Err(Failure::at_runtime(format!("cannot write to standard output: {error}")))
        }
        Ok(()) | Err(_) => Ok(()),
    }
}

/// Loads the certificates, and runs the server until it stops.
fn run(args: &Args) -> Result<(), Failure> {
    let shutdown = Arc::new(OnceLock::new());
    stop_on_signals(Arc::clone(&shutdown)).map_err(|e| Failure::at_runtime(format!("cannot take signals: {e}")))?;
    let max_connections = connections_max(args.max_connections.get());
    let (endpoints_sender, endpoints) = cluster::endpoints();
    let of_cluster = OfCluster {
        authentication: args.requestheader_from_cluster.then(Followed::authentication),
        namespaces: args.namespaces_from_cluster.then(Followed::namespaces),
        endpoints: args.publish_endpoints.clone().map(|service| (Followed::endpoints(), service)),
    };
    let cluster = match args.asks_cluster() {
        true => Some(Cluster::configured(args.kubeconfig.as_deref()).map_err(Failure::wrong)?),
        false => None,
    };
    let mut tls = match args.secure_addr() {
        Some(_) => Some(Tls::new(args)?),
        None => None,
    };
    if let Some(tls) = &mut tls
        && let Some(file) = &args.kubeconfig
        && let Some(pem) = cluster.as_ref().and_then(Cluster::client_cert_pem)
    {
        tls.reloader.watch_kubeconfig(file.clone(), pem);
    }
    let namespaces = if args.namespaces_from_cluster { Namespaces::awaited() } else { Namespaces::default() };
    let storage = match args.storage {
        StorageKind::Disk => {
            StorageConfig::Disk(data_dir(args.data_dir.as_deref(), args.cert_dir.as_deref()).map_err(Failure::wrong)?)
        }
        StorageKind::Etcd => StorageConfig::Etcd(args.etcd_config()),
        StorageKind::Memory => StorageConfig::Memory,
    };
    let mut server = Server::bind(Config {
        secure: args.secure_addr().zip(tls.as_ref().map(|tls| tls.secure.clone())),
        insecure: args.insecure_addr(),
        namespaces,
        max_connections,
        watch_window_events: args.watch_window_events.get(),
        watch_window_bytes: args.watch_window_bytes.get(),
        lease_quota_bytes: args.lease_quota_bytes.get(),
        storage,
        cluster_etcd: args.cluster_etcd.config(),
        stop_expires_watches: args.stop_expires_watches,
        journal_format: args.journal_format,
        reclaim_seconds: args.reclaim_seconds,
        features: args.features(),
        followed: of_cluster.iter().cloned().collect(),
        endpoints: args.publish_endpoints.is_some().then_some(endpoints_sender),
    })
    .map_err(Failure::at_runtime)?;
    // From now on a signal stops the server gracefully.
    _ = shutdown.set(server.shutdown_handle());

    let certs = tls.as_ref().and_then(|tls| tls.admin.as_ref());
    // The program claims the kubeconfig file until the program ends, so that no other server overwrites the file.
    let kubeconfig = server
        .secure_addr()
        .zip(certs)
        .map(|(addr, certs)| certs.write_kubeconfig(addr, args.tls_cert_file.as_deref()).map_err(Failure::at_runtime));
    let kubeconfig = kubeconfig.transpose()?;
    let usage = usage(args, &server, kubeconfig.as_ref().map(AdminKubeconfig::path));
    start_helpers(&mut server, tls.take().map(|tls| tls.reloader), cluster, of_cluster, endpoints)
        .map_err(|e| Failure::at_runtime(format!("cannot start a thread: {e}")))?;
    server.announce(&uname().nodename().to_string_lossy(), args.endpoint());
    if let Some(addr) = server.secure_addr() {
        info!(%addr, "serving HTTPS");
    }
    if let Some(addr) = server.insecure_addr() {
        warn!(%addr, "serving cleartext HTTP without authentication: whoever reaches this port may do everything");
    }
    if server.await_ready().map_err(Failure::at_runtime)? {
        info!("{usage}");
        notify(NotifyState::Ready);
    }
    server.run().map_err(Failure::at_runtime)
}

/// Prints the content of a store. The exit status is 1 if the store is damaged.
fn inspect(args: &InspectArgs) -> Result<ExitCode, Failure> {
    let store = match args.etcd.etcd_servers.is_empty() {
        true => Store::Disk(data_dir(args.data_dir.as_deref(), None).map_err(Failure::wrong)?),
        false => Store::Etcd(args.etcd.config()),
    };
    let mut out = io::BufWriter::new(io::stdout().lock());
    let (summary, printed) = store.inspect(args.changes, &mut out).map_err(Failure::at_runtime)?;
    for complaint in &summary.complaints {
        _ = writeln!(io::stderr(), "{PROGRAM}: {}", one_line(complaint));
    }
    check_printed(printed)?;
    Ok(if summary.complaints.is_empty() { ExitCode::SUCCESS } else { ExitCode::from(STATUS_FAILED) })
}

/// Moves the Leases of one store to another.
fn migrate(args: &MigrateArgs) -> Result<ExitCode, Failure> {
    let folder = data_dir(args.data_dir.as_deref(), None).map_err(Failure::wrong)?;
    let store = |kind| match kind {
        DurableKind::Disk => Store::Disk(folder.clone()),
        DurableKind::Etcd => Store::Etcd(args.etcd.config()),
    };
    let (from, to) = (store(args.from), store(args.to));
    let moved = from.migrate_to(&to).map_err(Failure::at_runtime)?;
    let (leases, version) = (moved.leases, moved.version.0);
    _ = writeln!(io::stdout(), "moved {leases} Leases at resourceVersion {version} from {from} to {to}");
    Ok(ExitCode::SUCCESS)
}

/// Runs `takeover` or `rollback`, and prints its steps.
fn switched(run: impl FnOnce(&mut dyn FnMut(&str)) -> Result<(), SwitchError>) -> ExitCode {
    let mut say = |line: &str| _ = writeln!(io::stdout(), "{line}");
    run(&mut say).map_or_else(|error| Failure::at_runtime(error).report(), |()| ExitCode::SUCCESS)
}

/// Returns the data folder that the user named. Otherwise returns the data folder beside the certificates.
///
/// # Errors
/// The user named no folder, and has no home folder.
fn data_dir(named: Option<&Path>, cert_dir: Option<&Path>) -> io::Result<PathBuf> {
    let dir = match (named, cert_dir) {
        (Some(named), _) => named.to_owned(),
        (None, Some(cert_dir)) => cert_dir.join(DATA_DIR),
        (None, None) => pki::default_cert_dir()
            .map_err(|_| io::Error::other("the user has no home folder: name a folder with --data-dir"))?
            .join(DATA_DIR),
    };
    // Printed and logged paths must be valid in any folder.
    path::absolute(dir)
}

/// Notifies the service manager, if one started the program (sd_notify(3)). While the queue of the manager's socket is
/// full, a notification blocks. So the caller waits for [`NOTIFY_MAX`] at most.
fn notify(state: NotifyState<'static>) {
    let send = move || {
        if let Err(error) = sd_notify::notify(&[state]) {
            warn!(%error, "cannot notify the service manager");
        }
    };
    if let Err(error) = run_within(NOTIFY_MAX, "notify", send) {
        warn!(%error, "cannot notify the service manager");
    }
}

/// Runs `work` on a separate thread with this name, and waits until it has ended, for `max` at most.
///
/// # Errors
/// The thread cannot be started.
fn run_within(max: Duration, name: &str, work: impl FnOnce() + Send + 'static) -> io::Result<()> {
    let (done, ended) = mpsc::channel::<()>();
    let run = move || {
        work();
        drop(done);
    };
    thread::Builder::new().name(name.to_owned()).spawn(run)?;
    _ = ended.recv_timeout(max);
    Ok(())
}

/// The resources of the cluster that this server watches because of its flags; `None` for a resource that it does not
/// watch.
struct OfCluster {
    authentication: Option<Followed>,
    namespaces: Option<Followed>,
    endpoints: Option<(Followed, ServiceName)>,
}

impl OfCluster {
    fn iter(&self) -> impl Iterator<Item = &Followed> {
        let endpoints = self.endpoints.iter().map(|(followed, _)| followed);
        self.authentication.iter().chain(&self.namespaces).chain(endpoints)
    }
}

/// Starts a thread for each kind of blocking work: the reload of certificates, and the requests to the cluster.
fn start_helpers(
    server: &mut Server,
    reloader: Option<Reloader>,
    cluster: Option<Cluster>,
    OfCluster { authentication, namespaces, endpoints: service }: OfCluster,
    endpoints: EndpointsReceiver,
) -> io::Result<()> {
    let (said, heard) = mpsc::channel();
    if let Some(reloader) = reloader {
        reloader.follow(LOOK_EVERY, authentication.is_some().then_some(heard), server.reload_sender())?;
    }
    if let Some(cluster) = cluster {
        let namespaces = namespaces.map(|followed| (followed, server.namespace_sender()));
        let published = server.published_sender();
        let endpoints =
            service.map(|(followed, service)| PublishedEndpoints { followed, service, endpoints, published });
        cluster.follow(
            authentication.map(|followed| (followed, said)),
            namespaces,
            endpoints,
            Some(server.follow_built_in()),
        )?;
    }
    Ok(())
}

/// TLS configuration and its reloader.
struct Tls {
    secure: Secure,
    reloader: Reloader,
    /// The folder with the admin's client certificate, if the server accepts that certificate.
    admin: Option<CertDir>,
}

impl Tls {
    fn new(args: &Args) -> Result<Self, Failure> {
        let (sources, admin) = tls_sources(args)?;
        let (mut reloader, secure) =
            Reloader::new(sources).map_err(|e: TlsConfigError| match args.names(e.path()) {
                true => Failure::wrong(e),
                false => Failure::at_runtime(e),
            })?;
        reloader.watch_etcd_certs(args.etcd_certs());
        Ok(Self { secure, reloader, admin })
    }
}

/// Returns the sources of the certificates. The certificate folder supplies each certificate that the command line
/// does not name. The function does not touch the folder if the server needs no file from the folder.
fn tls_sources(args: &Args) -> Result<(TlsSources, Option<CertDir>), Failure> {
    let wrong_folder = |e: PkiError| match (&args.cert_dir, e.is_of_folder()) {
        (Some(_), true) => Failure::wrong(format!("--cert-dir {e}")),
        (None, true) => Failure::at_runtime(format!("{e}; name another one with --cert-dir")),
        (_, false) => Failure::at_runtime(e),
    };
    let front_proxy = args.front_proxy();
    let sources = |cert: &Path, key: &Path, client_ca: Option<PathBuf>| TlsSources {
        cert: cert.to_owned(),
        key: key.to_owned(),
        client_ca,
        front_proxy: front_proxy.clone(),
    };
    let (own_serving, own_ca) = (args.serving_files(), args.client_ca_file.as_deref());
    let is_ca_elsewhere = own_ca.is_some() || matches!(front_proxy, FrontProxySource::Cluster { with_clients: true });
    if let (Some((cert, key)), true) = (own_serving, is_ca_elsewhere) {
        return Ok((sources(cert, key, own_ca.map(Path::to_owned)), None));
    }

    let dir = match &args.cert_dir {
        // Printed and logged paths must be valid in any folder.
        Some(dir) => path::absolute(dir).map_err(|e| Failure::wrong(format!("--cert-dir {}: {e}", dir.display())))?,
        None => pki::default_cert_dir().map_err(Failure::wrong)?,
    };
    let certs = CertDir::open(&dir).map_err(wrong_folder)?;
    let (serving_cert, serving_key) = (certs.serving_cert(), certs.serving_key());
    let (cert, key) = match own_serving {
        Some(own) => own,
        None => {
            certs.ensure_serving(&pki::serving_names(args.bind_address)).map_err(wrong_folder)?;
            (serving_cert.as_path(), serving_key.as_path())
        }
    };
    if is_ca_elsewhere {
        return Ok((sources(cert, key, own_ca.map(Path::to_owned)), None));
    }
    certs.ensure_admin().map_err(wrong_folder)?;
    Ok((sources(cert, key, Some(certs.ca_cert())), Some(certs)))
}

/// Returns the line that explains how to reach the server.
fn usage(args: &Args, server: &Server, kubeconfig: Option<&Path>) -> String {
    match (server.secure_addr(), kubeconfig) {
        (_, Some(path)) => {
            format!("Ready: kubectl --kubeconfig {} get leases -A", shell_word(&path.to_string_lossy()))
        }
        (Some(addr), None) if args.client_ca_file.is_none() => {
            format!("Ready: https://{addr}, for clients that the cluster trusts")
        }
        (Some(addr), None) => format!("Ready: https://{addr}, for clients with a certificate from --client-ca-file"),
        (None, None) => {
            let addr = server.insecure_addr().map_or_else(String::new, |addr| addr.to_string());
            format!("Ready: kubectl --server http://{addr} get leases -A")
        }
    }
}

/// Stops the server gracefully on the first SIGTERM or SIGINT. The second one ends the process at once, with exit
/// status 128 plus the signal's number, as in a shell. While `shutdown` is empty, no server runs yet, and even the
/// first one ends the process at once. Without a handler, a process with PID 1 would ignore SIGTERM and SIGINT during
/// the start. SIGHUP, SIGUSR1 and SIGUSR2, which would end the process by default, have no effect.
fn stop_on_signals(shutdown: Arc<OnceLock<ShutdownHandle>>) -> io::Result<()> {
    let mut signals = Signals::new([SIGTERM, SIGINT, SIGHUP, SIGUSR1, SIGUSR2])?;
    let wait = move || {
        let mut asked = false;
        for signal in signals.forever() {
            let name = signal_hook::low_level::signal_name(signal);
            if ![SIGTERM, SIGINT].contains(&signal) {
                info!(signal = name, "ignored: the server reloads changed certificates and authorities by itself");
                continue;
            }
            // The store survives an end at any time, as it survives SIGKILL.
            let Some(handle) = shutdown.get().filter(|_| !asked) else { process::exit(128 + signal) };
            asked = true;
            info!(signal = name, "stopping; the same signal again stops at once");
            notify(NotifyState::Stopping);
            handle.shutdown();
        }
    };
    thread::Builder::new().name("signals".to_owned()).spawn(wait).map(drop)
}

/// Makes a write beyond the limit for the size of a file (`ulimit -f`) fail with an error. Without this handler, the
/// signal SIGXFSZ would end the process without a message.
fn survive_file_size_limit() -> io::Result<()> {
    signal_hook::flag::register(SIGXFSZ, Arc::<AtomicBool>::default()).map(drop)
}

/// Ends the process [`REPORT_MAX`] after a panic at the latest. If nobody reads standard error, the log's thread may
/// hold the lock of standard error for ever. The message about the panic would then wait for that lock, with the
/// listeners open.
fn bound_panics() {
    let print = panic::take_hook();
    panic::set_hook(Box::new(move |panicked| {
        let (printing, printed) = mpsc::channel::<()>();
        let watch = move || {
            if printed.recv_timeout(REPORT_MAX) == Err(RecvTimeoutError::Timeout) {
                process::abort();
            }
        };
        // If the thread cannot start, the message may wait for ever. Nothing else can report the panic, so the message
        // is printed all the same.
        _ = thread::Builder::new().name("panic".to_owned()).spawn(watch);
        print(panicked);
        drop(printing);
    }));
}

/// Raises the soft limit of open files to the hard limit: only programs that call `select(2)` need a low soft limit.
/// Returns the maximum number of connections: `wanted`, or fewer if the limit of open files is lower. At the maximum,
/// the server evicts an anonymous peer for a new one (`Server::make_place`). If the process instead ran out of file
/// descriptors, `accept` would fail, and no new peer would get in.
fn connections_max(wanted: usize) -> usize {
    let Rlimit { current, maximum } = getrlimit(Resource::Nofile);
    let is_lifted = current != maximum && setrlimit(Resource::Nofile, Rlimit { current: maximum, maximum }).is_ok();
    // `None` means that there is no limit of open files.
    let Some(files) = (if is_lifted { maximum } else { current }) else { return wanted };
    let allowed = usize::try_from(files.saturating_sub(FILES_RESERVED)).unwrap_or(usize::MAX).max(1);
    if allowed < wanted {
        warn!(
            files,
            wanted, allowed, "the limit of open files (ulimit -n) allows fewer connections than --max-connections"
        );
    }
    wanted.min(allowed)
}

/// Quotes a word for a POSIX shell, if needed.
fn shell_word(word: &str) -> String {
    let plain = |b: u8| b.is_ascii_alphanumeric() || b"/._-+=:@%,".contains(&b);
    if !word.is_empty() && word.bytes().all(plain) {
        return word.to_owned();
    }
    format!("'{}'", word.replace('\'', r"'\''"))
}

/// A failure of the program: one line, and its exit status.
#[derive(Debug)]
struct Failure {
    line: String,
    status: u8,
}

impl Failure {
    fn wrong(why: impl Display) -> Self {
        Self { line: one_line(&why.to_string()), status: USAGE }
    }

    fn at_runtime(why: impl Display) -> Self {
        Self { line: one_line(&why.to_string()), status: STATUS_FAILED }
    }

    /// Prints the line. If nobody reads standard error, the log's thread may hold the lock of standard error for ever.
    /// So a separate thread prints, and the program ends after [`REPORT_MAX`] at the latest.
    fn report(&self) -> ExitCode {
        let line = format!("{PROGRAM}: {}\n", self.line);
        let print = move || _ = io::stderr().write_all(line.as_bytes());
        if run_within(REPORT_MAX, "report", print.clone()).is_err() {
            print();
        }
        ExitCode::from(self.status)
    }
}

/// Name of the data folder beside the certificates.
const DATA_DIR: &str = "data";
/// Exit status of a failure if the command line is correct.
const STATUS_FAILED: u8 = 1;
/// Longest wait until the line about a failure, or the message about a panic, is printed.
const REPORT_MAX: Duration = Duration::from_secs(1);
/// Longest wait for the service manager to take a notification. The event loop serves no request meanwhile.
const NOTIFY_MAX: Duration = Duration::from_millis(100);
/// Number of open files reserved for other purposes than connections of clients. Examples are standard streams,
/// listeners, the poll and its waker, the signals' pipe, the store, and connections to etcd.
const FILES_RESERVED: u64 = 32;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_is_quoted_as_one_shell_word() {
        assert_eq!(shell_word("/home/u/.local/state/x/admin.kubeconfig"), "/home/u/.local/state/x/admin.kubeconfig");
        assert_eq!(shell_word("/My Files/it's"), r"'/My Files/it'\''s'");
        assert_eq!(shell_word(""), "''");
    }

    #[test]
    fn a_failure_is_one_line() {
        assert_eq!(Failure::at_runtime("a\n  b").line, "a b");
    }
}
