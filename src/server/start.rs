//! The start of a server: its configuration, its listeners, and the checks before it is ready.

use super::connections::Connections;
use super::endpoints::Endpoints;
use super::storage::{self, TableLimits};
use super::{Awaited, LISTENER_TOKENS, Server, ShutdownHandle, WAKER_TOKEN};
use crate::api::handover::Handover;
use crate::api::{Api, Reclaim};
use crate::buffer::Pool;
use crate::clock::{Clock, RareWarning, wall_micros};
use crate::cluster::{EndpointsSender, Followed, Namespaces};
use crate::etcd;
use crate::etcd::built_in::BuiltInPort;
use crate::features::FeatureGates;
use crate::journal::FORMAT;
use crate::listener::Listener;
use crate::resource::ResourceVersion;
use crate::route::Probe;
use crate::schedule::Queues;
use crate::serve::Service;
use crate::tls::config::Secure;
use crate::tls::trust::Trust;
use crate::updates;
use crate::watch::StopKind;
use mio::{Poll, Token, Waker};
use std::collections::BinaryHeap;
use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use thiserror::Error;

/// Configuration of a server.
#[derive(Clone, Debug)]
pub struct Config {
    /// Address and configuration of the TLS listener.
    pub secure: Option<(SocketAddr, Secure)>,
    /// Address of the cleartext listener. Any peer that can connect has full rights, so the command line offers only a
    /// loopback address.
    pub insecure: Option<SocketAddr>,
    /// Namespaces of the cluster.
    pub namespaces: Namespaces,
    /// Maximum number of connections. At the limit, a new connection evicts the oldest connection whose peer has no
    /// rights. That peer first gets some time to show a certificate. During this time, and if all peers have rights,
    /// new connections wait in the listen queue.
    pub max_connections: usize,
    /// Maximum number of events in the event log, the log of the last changes. A resumed watch starts with events of
    /// this log.
    pub watch_window_events: usize,
    /// Maximum memory of the events in the event log, in bytes.
    pub watch_window_bytes: usize,
    /// Maximum total size of the Leases, in bytes.
    pub lease_quota_bytes: usize,
    /// Storage of the Leases.
    pub storage: StorageConfig,
    /// The etcd of the cluster's kube-apiservers, if this server copies Leases from that etcd and back.
    pub cluster_etcd: Option<etcd::Config>,
    /// Format version in which the store is written.
    pub journal_format: u8,
    /// Whether a stop ends watches with 410 although the Leases are kept, so that clients list again. The operator sets
    /// this if clients will continue with another storage.
    pub stop_expires_watches: bool,
    /// Longest time for which a missing lock is reserved for its former holder, in seconds; 0 reserves no lock. A lock
    /// is a Lease that has a holder and is not a node's Lease. After a switch to this server, the table may lack a lock
    /// that a client still holds. The time counts from the first request for any lock. If the store already has Leases
    /// of clients at the start, and all are younger than this time, the time counts from the start.
    pub reclaim_seconds: u32,
    /// Feature gates.
    pub features: FeatureGates,
    /// Resources of the cluster that this server watches. `/metrics` shows the time of the last response about each.
    pub followed: Vec<Followed>,
    /// Sender of the replicas' addresses to the thread that publishes them for the Service; `None` if this server does
    /// not publish them.
    pub endpoints: Option<EndpointsSender>,
}

/// Storage of the Leases.
#[derive(Clone, Debug)]
pub enum StorageConfig {
    /// In the memory of this process.
    Memory,
    /// In a data folder that only this process uses.
    Disk(PathBuf),
    /// In etcd, where other replicas share it.
    Etcd(etcd::Config),
}

impl Default for Config {
    fn default() -> Self {
        Self {
            secure: None,
            insecure: None,
            namespaces: Namespaces::default(),
            max_connections: 16_384,
            watch_window_events: 100_000,
            watch_window_bytes: 256 * 1024 * 1024,
            lease_quota_bytes: 512 * 1024 * 1024,
            storage: StorageConfig::Memory,
            cluster_etcd: None,
            journal_format: FORMAT,
            stop_expires_watches: false,
            reclaim_seconds: 0,
            features: FeatureGates::default(),
            followed: Vec::new(),
            endpoints: None,
        }
    }
}

/// Why a server could not start: the failed action and its cause.
#[derive(Debug, Error)]
#[error("{what}: {cause}")]
pub struct ServerError {
    what: String,
    #[source]
    cause: Box<dyn std::error::Error + Send + Sync>,
}

impl Server {
    /// Opens the listeners and the store of `config`.
    ///
    /// # Errors
    /// [`ServerError`] if an address or the store cannot be used.
    pub fn bind(config: Config) -> Result<Self, ServerError> {
        let failed = |what: &str| {
            let what = what.to_owned();
            move |cause: io::Error| ServerError { what, cause: cause.into() }
        };
        let poll = Poll::new().map_err(failed("cannot make a poll"))?;
        let waker = Arc::new(Waker::new(poll.registry(), WAKER_TOKEN).map_err(failed("cannot make a waker"))?);
        let (reload_sender, reloads) = updates::queue(Arc::clone(&waker));
        let (namespace_sender, namespace_changes) = updates::queue(Arc::clone(&waker));
        let endpoints = Endpoints::new(config.endpoints, updates::queue(Arc::clone(&waker)));
        let mut listeners = Vec::new();
        let trust = config.secure.as_ref().map_or_else(|| Arc::new(Trust::none()), |(_, own)| Arc::clone(&own.trust));
        let serving_last = config.secure.as_ref().and_then(|(_, own)| own.serving_last);
        let secure = config.secure.map(|(addr, secure)| (addr, Some(secure.config)));
        for (addr, tls) in secure.into_iter().chain(config.insecure.map(|addr| (addr, None))) {
            let mut listener = Listener::bind(addr, tls).map_err(failed(&format!("cannot listen on {addr}")))?;
            let token = Token(LISTENER_TOKENS + listeners.len());
            listener.register(poll.registry(), token).map_err(failed("cannot register a listener"))?;
            listeners.push(listener);
        }
        // With a journal, the table starts with the `resourceVersion` that the journal contains.
        let version = ResourceVersion(match config.storage {
            StorageConfig::Disk(_) | StorageConfig::Etcd(_) => 0,
            StorageConfig::Memory => wall_micros(),
        });
        let mut api = Api::new();
        api.namespaces = config.namespaces;
        api.reclaim = Reclaim::new(config.reclaim_seconds);
        api.features = config.features;
        api.metrics.serving_last = serving_last;
        api.metrics.followed = config.followed;
        let awaited = Awaited {
            request_header: (!trust.is_complete())
                .then(|| api.health.register("requestheader-from-cluster", &[Probe::Readyz], "not yet read")),
            namespaces: (api.namespaces.is_awaited())
                .then(|| api.health.register("namespaces-from-cluster", &[Probe::Readyz], "not yet listed")),
            journal: (!matches!(config.storage, StorageConfig::Memory))
                .then(|| api.health.register("journal", &[Probe::Readyz], "not yet read")),
        };
        let table_limits = TableLimits {
            window_events: config.watch_window_events,
            window_bytes: config.watch_window_bytes,
            quota_bytes: config.lease_quota_bytes,
        };
        let table = table_limits.table(version);
        api.storage = storage::check(&config.storage)
            .and_then(|()| storage::open(&config.storage, config.journal_format, &waker, 0, false))
            .map_err(|cause| ServerError { what: "cannot open the store".into(), cause: cause.into() })?;
        if let Some(etcd) = config.cluster_etcd {
            let port = BuiltInPort::start(etcd, Arc::clone(&waker))
                .map_err(|cause| ServerError { what: "cannot reach built-in storage".into(), cause: cause.into() })?;
            api.handover = Handover::with_built_in(port);
        }
        let service = Service::new(api, table, trust);
        Ok(Self {
            poll,
            listeners,
            conns: Connections::default(),
            former: None,
            recheck_slot: None,
            max_connections: config.max_connections,
            full_warning: RareWarning::default(),
            exhausted_warning: RareWarning::default(),
            service,
            pool: Pool::default(),
            clock: Clock::start(),
            queues: Queues::default(),
            timers: BinaryHeap::new(),
            jobs_check_ms: 0,
            shutdown: ShutdownHandle { asked: Arc::new(AtomicBool::new(false)), waker },
            reloads,
            reload_sender,
            namespace_changes,
            namespace_sender,
            endpoints,
            awaited,
            table_limits,
            has_loaded: false,
            losses: 0,
            journal_format: config.journal_format,
            stop_ms: None,
            move_ms: None,
            stop_kind: match config.storage {
                StorageConfig::Memory => StopKind::Forgets,
                StorageConfig::Disk(_) | StorageConfig::Etcd(_) if config.stop_expires_watches => StopKind::Forgets,
                StorageConfig::Disk(_) | StorageConfig::Etcd(_) => StopKind::Resumes,
            },
            storage: config.storage,
        })
    }
}
