//! A server in a separate thread, on free ports of loopback.

use super::client::Client;
use super::stream::Endpoint;
use super::tls::{AUTHORITY, admin_client_config};
use coordination_apiserver::cluster::{BuiltInRequests, Cluster, NamespaceChange};
use coordination_apiserver::etcd;
use coordination_apiserver::server::{Config, Server, ShutdownHandle, StorageConfig};
use coordination_apiserver::tls::reload::Reload;
use coordination_apiserver::updates::UpdateSender;
use std::env;
use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::Path;
use std::sync::mpsc;
use std::thread::{self, JoinHandle};
use tempfile::TempDir;

/// A running server. Dropping it stops the server.
pub(crate) struct TestServer {
    insecure: SocketAddr,
    secure: Option<SocketAddr>,
    shutdown: ShutdownHandle,
    reloads: UpdateSender<Reload>,
    namespaces: UpdateSender<NamespaceChange>,
    /// Requests to the thread that follows built-in Leases; `None` once that thread has started.
    built_in: Option<BuiltInRequests>,
    thread: Option<JoinHandle<io::Result<()>>>,
    /// Data folder that this value created because of `TEST_STORAGE=disk`.
    _data: Option<TempDir>,
}

/// Environment variable for the storage of each [`TestServer`]: `disk`, or the URL of an etcd, in which each server has
/// a separate prefix. With `memory`, or without the variable, each server has the storage of its own [`Config`], by
/// default memory.
const STORAGE: &str = "TEST_STORAGE";

/// Any free port of loopback.
const ANY_PORT: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(Ipv4Addr::LOCALHOST), 0);

impl TestServer {
    /// Starts a server with cleartext and default limits.
    pub(crate) fn start() -> Self {
        Self::start_with(Config::default())
    }

    /// Starts a server with cleartext, TLS and default limits.
    pub(crate) fn start_secure() -> Self {
        Self::start_secure_with(Config::default())
    }

    /// Starts a server with cleartext, TLS and these limits.
    pub(crate) fn start_secure_with(config: Config) -> Self {
        Self::start_with(Config { secure: Some((ANY_PORT, AUTHORITY.server_config())), ..config })
    }

    /// Starts a server with cleartext and this configuration.
    ///
    /// # Panics
    /// If the server does not start.
    pub(crate) fn start_with(config: Config) -> Self {
        let kind = env::var(STORAGE).unwrap_or_default();
        let data = (kind == "disk").then(|| TempDir::new().expect("a data folder"));
        let storage = match &data {
            Some(data) => StorageConfig::Disk(data.path().join("data")),
            None if kind.starts_with("http://") => StorageConfig::Etcd(new_store(&kind)),
            None => config.storage,
        };
        let config = Config { insecure: Some(ANY_PORT), storage, ..config };
        let (started, when_started) = mpsc::channel();
        let thread = thread::Builder::new().name("server".to_owned()).spawn(move || {
            let mut server = Server::bind(config).map_err(|error| io::Error::other(error.to_string()))?;
            // This call lets the server work in the phases of a rollback without etcd. A takeover also needs the thread
            // that `TestServer::follow_built_in` starts.
            let built_in = server.follow_built_in();
            server.load().map_err(io::Error::other)?;
            let addresses = (server.insecure_addr(), server.secure_addr());
            let senders = (server.reload_sender(), server.namespace_sender());
            started.send((addresses, senders, built_in, server.shutdown_handle())).map_err(io::Error::other)?;
            server.run().map_err(io::Error::other)
        });
        let thread = thread.expect("a thread can be started");
        let Ok(((Some(insecure), secure), (reloads, namespaces), built_in, shutdown)) = when_started.recv() else {
            panic!("the server has not started: {:?}", thread.join());
        };
        let (built_in, thread) = (Some(built_in), Some(thread));
        Self { insecure, secure, shutdown, reloads, namespaces, built_in, thread, _data: data }
    }

    /// Returns the endpoint of the cleartext port.
    pub(crate) fn endpoint(&self) -> Endpoint {
        Endpoint { address: self.insecure, tls: None }
    }

    /// Returns the address of the TLS port.
    ///
    /// # Panics
    /// If the server has none.
    pub(crate) fn secure_address(&self) -> SocketAddr {
        self.secure.expect("the server was started with TLS")
    }

    /// Returns the endpoint of the TLS port, for a client with all rights.
    pub(crate) fn secure_endpoint(&self) -> Endpoint {
        Endpoint { address: self.secure_address(), tls: Some(admin_client_config()) }
    }

    /// Opens a new connection to the cleartext port.
    #[track_caller]
    pub(crate) fn client(&self) -> Client {
        Client::open(&self.endpoint())
    }

    /// Returns the sender of new certificates and authorities.
    pub(crate) fn reload_sender(&self) -> UpdateSender<Reload> {
        self.reloads.clone()
    }

    /// Returns the sender of changes of namespaces.
    pub(crate) fn namespace_sender(&self) -> UpdateSender<NamespaceChange> {
        self.namespaces.clone()
    }

    /// Starts the thread that follows the built-in Leases: those that the kube-apiserver in a kubeconfig itself stores.
    ///
    /// # Panics
    /// If the kubeconfig is invalid, or at the second call.
    pub(crate) fn follow_built_in(&mut self, kubeconfig: &Path) {
        let cluster = Cluster::configured(Some(kubeconfig)).expect("a kubeconfig");
        let requests = self.built_in.take().expect("once");
        cluster.follow(None, None, None, Some(requests)).expect("a thread can be started");
    }

    /// Returns the handle that stops the server.
    pub(crate) fn shutdown_handle(&self) -> ShutdownHandle {
        self.shutdown.clone()
    }

    /// Waits until the server has stopped. Returns the result of `Server::run`.
    ///
    /// # Panics
    /// If the server's thread has panicked.
    pub(crate) fn join(mut self) -> io::Result<()> {
        let thread = self.thread.take().expect("join is called once");
        thread.join().expect("the server does not panic")
    }
}

/// Whether `TEST_STORAGE` makes each [`TestServer`] store Leases durably.
pub(crate) fn is_durable() -> bool {
    let kind = env::var(STORAGE).unwrap_or_default();
    let is_known = matches!(kind.as_str(), "" | "disk" | "memory") || kind.starts_with("http://");
    assert!(is_known, "{STORAGE} is disk, memory or the URL of an etcd, not {kind}");
    !matches!(kind.as_str(), "" | "memory")
}

/// Returns a configuration of etcd with a new prefix.
fn new_store(url: &str) -> etcd::Config {
    etcd::Config {
        endpoints: vec![url.to_owned()],
        prefix: format!("/test/{:032x}", fastrand::u128(..)),
        journal_bytes_max: u64::MAX,
        ..etcd::Config::default()
    }
}

impl Drop for TestServer {
    fn drop(&mut self) {
        let Some(thread) = self.thread.take() else { return };
        self.shutdown.shutdown();
        let ended = thread.join();
        // A second panic would hide the first one's message.
        if !thread::panicking() {
            ended.expect("the server does not panic").expect("the server ends well");
        }
    }
}
