//! A server behind kube-apiserver's aggregator. The aggregator is a front proxy: it names the user of each request in
//! header fields.

use super::client::Client;
use super::server::TestServer;
use super::stream::Endpoint;
use super::tls::{AUTHORITY, Authority};
use coordination_apiserver::server::Config;
use coordination_apiserver::tls::config::Secure;
use coordination_apiserver::tls::reload::Reloader;
use coordination_apiserver::tls::source::{FrontProxySource, TlsSources};
use coordination_apiserver::tls::trust::{FrontProxy, HeaderNames};
use rustls::ClientConfig;
use std::fs;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;
use tempfile::TempDir;

/// Common Name of the allowed front proxy.
pub(crate) const PROXY: &str = "front-proxy-client";

/// A server behind an aggregator. Certificates of clients are from [`AUTHORITY`], those of front proxies from another
/// authority.
pub(crate) struct Aggregated {
    pub(crate) server: TestServer,
    pub(crate) proxies: Authority,
    pub(crate) files: TempDir,
    reloader: Option<Reloader>,
}

impl Aggregated {
    /// Starts a server with the default limits.
    pub(crate) fn start() -> Self {
        Self::start_with(Config::default())
    }

    /// Starts a server with these limits.
    ///
    /// # Panics
    /// If it does not start.
    pub(crate) fn start_with(config: Config) -> Self {
        let (files, proxies) = (tempfile::tempdir().expect("a folder"), Authority::new());
        AUTHORITY.write_serving(files.path());
        fs::write(files.path().join("ca.crt"), AUTHORITY.pem()).expect("written");
        fs::write(files.path().join("proxy.crt"), proxies.pem()).expect("written");
        let path = |name: &str| -> PathBuf { files.path().join(name) };
        let front_proxy = FrontProxy { allowed_names: vec![PROXY.to_owned()], header_names: HeaderNames::default() };
        let sources = TlsSources {
            cert: path("tls.crt"),
            key: path("tls.key"),
            client_ca: Some(path("ca.crt")),
            front_proxy: FrontProxySource::File(path("proxy.crt"), front_proxy),
        };
        let (reloader, secure): (Reloader, Secure) = Reloader::new(sources).expect("the files fit");
        let any_port = SocketAddr::from(([127, 0, 0, 1], 0));
        let server = TestServer::start_with(Config { secure: Some((any_port, secure)), ..config });
        Self { server, proxies, files, reloader: Some(reloader) }
    }

    /// Returns the endpoint of the TLS port, for a client with this configuration.
    pub(crate) fn endpoint(&self, config: Arc<ClientConfig>) -> Endpoint {
        Endpoint { address: self.server.secure_address(), tls: Some(config) }
    }

    /// Returns the endpoint of the TLS port, for kube-apiserver's aggregator.
    pub(crate) fn aggregator_endpoint(&self) -> Endpoint {
        self.endpoint(self.proxies.client_config(PROXY, &[]))
    }

    /// Opens a connection of HTTP/1.1.
    #[track_caller]
    pub(crate) fn connect(&self, config: Arc<ClientConfig>) -> Client {
        Client::open(&self.endpoint(config))
    }

    /// Connects as kube-apiserver's aggregator, in HTTP/1.1.
    #[track_caller]
    pub(crate) fn aggregator(&self) -> Client {
        Client::open(&self.aggregator_endpoint())
    }

    /// Starts to reload the certificates and authorities whenever their files change.
    ///
    /// # Panics
    /// At the second call.
    pub(crate) fn reload(&mut self) {
        let reloader = self.reloader.take().expect("once");
        let every = Duration::from_millis(20);
        reloader.follow(every, None, self.server.reload_sender()).expect("a thread can be started");
    }

    /// Replaces a file atomically, as a kubelet replaces the files of a mounted Secret.
    ///
    /// # Panics
    /// If it cannot be written.
    pub(crate) fn write(&self, name: &str, content: String) {
        let new = self.files.path().join("new");
        fs::write(&new, content).expect("written");
        fs::rename(new, self.files.path().join(name)).expect("renamed");
    }
}
