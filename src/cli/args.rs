//! The server's command line. Its flags have kube-apiserver's names. The server checks the flags as far as possible
//! before it starts.

use super::cluster_etcd::ClusterEtcdArgs;
use super::etcd::EtcdArgs;
use super::offline::{InspectArgs, MigrateArgs};
use super::switch::{RollbackArgs, TakeoverArgs};
use super::{PROGRAM, Stop, one_line, wrong_usage};
use crate::build_info::BuildInfo;
use crate::cluster::{ReplicaEndpoint, ServiceName};
use crate::etcd;
use crate::features::FeatureGates;
use crate::journal::{FORMAT, FORMAT_WRITTEN_MIN};
use crate::lease::validation::format::is_dns_subdomain;
use crate::logging::LogFormat;
use crate::tls::source::FrontProxySource;
use crate::tls::trust::{FrontProxy, HeaderNames};
use clap::error::ErrorKind;
use clap::{Parser, Subcommand, ValueEnum};
use clap_complete::Shell;
use compact_str::CompactString;
use std::ffi::OsString;
use std::fs;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Minimum age at which the history of etcd may be compacted, in seconds. A replica whose watch of etcd was interrupted
/// for longer loads all Leases again.
const COMPACTION_SECONDS_MIN: u32 = 60;

/// A Kubernetes API server for Leases (coordination.k8s.io/v1).
///
/// Without any flag the server makes its own certificates, stores Leases in a data folder, listens on
/// https://127.0.0.1:8443, and logs how to use kubectl with it.
#[derive(Clone, Debug, Parser)]
#[command(name = PROGRAM, version = BuildInfo::version(), max_term_width = 120, args_conflicts_with_subcommands = true)]
// The last value of a repeated flag counts, as with Kubernetes' programs (pflag). Commands inherit this.
#[command(args_override_self = true)]
pub struct Args {
    /// Command that runs in place of the server.
    #[command(subcommand)]
    pub command: Option<Command>,

    /// IP address on which the server listens for HTTPS. 0.0.0.0 or :: is every interface, by IPv4 and IPv6. A client
    /// without a certificate may only read the health and the version of the server. But anybody who reaches the port
    /// can open connections, each of which takes memory: see --max-connections.
    #[arg(long, value_name = "IP", default_value_t = IpAddr::V4(Ipv4Addr::LOCALHOST))]
    pub bind_address: IpAddr,

    /// Port for HTTPS with authentication. 0 switches HTTPS off, and then --insecure-port is needed.
    #[arg(long, value_name = "PORT", default_value_t = 8443)]
    pub secure_port: u16,

    /// Folder of the server's own certificate authority, the serving certificate, and the admin's client certificate
    /// and kubeconfig. Only at its start, the server makes missing files and renews certificates that expire within 30
    /// days. While the server runs, its log warns before the serving certificate expires.
    ///
    /// [default: coordination-apiserver in the user's state folder, $XDG_STATE_HOME or ~/.local/state]
    #[arg(long, value_name = "DIR")]
    pub cert_dir: Option<PathBuf>,

    /// PEM file with the serving certificate, followed by its intermediates, to use in place of the one in --cert-dir.
    /// Needs --tls-private-key-file.
    #[arg(long, value_name = "FILE", requires = "tls_private_key_file")]
    pub tls_cert_file: Option<PathBuf>,

    /// PEM file with the private key of --tls-cert-file.
    #[arg(long, value_name = "FILE", requires = "tls_cert_file")]
    pub tls_private_key_file: Option<PathBuf>,

    /// PEM file with the certificate authorities of clients. The CN of a client certificate is the user, the O are the
    /// groups. The file replaces the authority in --cert-dir, so the server makes no admin certificate.
    ///
    /// [default: ca.crt in --cert-dir, or the cluster's with --requestheader-from-cluster]
    #[arg(long, value_name = "FILE")]
    pub client_ca_file: Option<PathBuf>,

    /// PEM file with the certificate authorities of front proxies, such as kube-apiserver's aggregator. A front proxy
    /// authorizes each request that it forwards, and names the user in header fields (the other flags
    /// --requestheader-...). The server refuses a request with such a field from anybody else.
    #[arg(long, value_name = "FILE", conflicts_with = "requestheader_from_cluster")]
    pub requestheader_client_ca_file: Option<PathBuf>,

    /// Common Names (CN) of the certificates of front proxies, separated by commas. Without this flag, any name is
    /// allowed.
    #[arg(
        long,
        value_name = "NAMES",
        value_delimiter = ',',
        requires = "requestheader_client_ca_file",
        conflicts_with = "requestheader_from_cluster"
    )]
    pub requestheader_allowed_names: Vec<String>,

    /// Header fields in which a front proxy sends the name of the user, separated by commas. The first field that is
    /// not empty counts.
    #[arg(
        long,
        value_name = "FIELDS",
        value_delimiter = ',',
        default_value = "X-Remote-User",
        requires = "requestheader_client_ca_file",
        conflicts_with = "requestheader_from_cluster"
    )]
    pub requestheader_username_headers: Vec<String>,

    /// Header fields in which a front proxy sends the groups of the user, separated by commas. Each field line has one
    /// group.
    #[arg(
        long,
        value_name = "FIELDS",
        value_delimiter = ',',
        default_value = "X-Remote-Group",
        requires = "requestheader_client_ca_file",
        conflicts_with = "requestheader_from_cluster"
    )]
    pub requestheader_group_headers: Vec<String>,

    /// Header fields in which a front proxy sends the UID of the user, separated by commas. The first field that is not
    /// empty counts.
    #[arg(
        long,
        value_name = "FIELDS",
        value_delimiter = ',',
        default_value = "X-Remote-Uid",
        requires = "requestheader_client_ca_file",
        conflicts_with = "requestheader_from_cluster"
    )]
    pub requestheader_uid_headers: Vec<String>,

    /// Prefixes of the header fields in which a front proxy sends extra attributes of the user, separated by commas.
    #[arg(
        long,
        value_name = "PREFIXES",
        value_delimiter = ',',
        default_value = "X-Remote-Extra-",
        requires = "requestheader_client_ca_file",
        conflicts_with = "requestheader_from_cluster"
    )]
    pub requestheader_extra_headers_prefix: Vec<String>,

    /// Take the values of all flags --requestheader-... from the ConfigMap
    /// kube-system/extension-apiserver-authentication, and follow its changes. Without --client-ca-file, take the
    /// authorities of clients from the ConfigMap too. /readyz fails until the server has read the ConfigMap once. Needs
    /// --kubeconfig, or a pod's service account.
    #[arg(long)]
    pub requestheader_from_cluster: bool,

    /// Watch the cluster's namespaces, and refuse to create a Lease in a namespace that does not exist or is being
    /// deleted. Until the server has listed the namespaces once, /readyz fails and every namespace counts as existing.
    /// Needs --kubeconfig, or a pod's service account.
    #[arg(long)]
    pub namespaces_from_cluster: bool,

    /// Service whose EndpointSlices the replicas write. The slices have the --advertise-address of each ready replica.
    /// The Service must have no selector, and a port named https. The last replica stays in the slices when it stops.
    /// Needs --storage etcd, and --kubeconfig or a pod's service account.
    #[arg(long, value_name = "NAMESPACE/NAME", requires = "advertise_address")]
    pub publish_endpoints: Option<ServiceName>,

    /// IP address at which clients reach this replica, for --publish-endpoints.
    #[arg(long, value_name = "IP", requires = "publish_endpoints")]
    pub advertise_address: Option<IpAddr>,

    /// Name of this replica's Node, for --publish-endpoints. The kube-proxy of this Node routes to this replica while
    /// the EndpointSlices contain the replica, and to any replica otherwise.
    #[arg(long, value_name = "NODE", requires = "publish_endpoints", value_parser = parse_node_name)]
    pub node_name: Option<CompactString>,

    /// Kubeconfig of the cluster, for --requestheader-from-cluster, --namespaces-from-cluster and
    /// --publish-endpoints.
    ///
    /// [default: the service account of the pod]
    #[arg(long, value_name = "FILE")]
    pub kubeconfig: Option<PathBuf>,

    /// Port on 127.0.0.1 for cleartext HTTP without authentication and with all rights, for measurements and tests. 0
    /// switches cleartext HTTP off.
    #[arg(long, value_name = "PORT", default_value_t = 0)]
    pub insecure_port: u16,

    /// Maximum number of open connections on all ports together. At the limit, a new connection evicts the oldest
    /// connection that is at least half a second old and whose client has no rights. (Such a client has no certificate,
    /// or one that gives no rights.) If there is no such connection, the new one waits.
    // The default is enough for 10,000 kubelets with one connection each, for other clients, and for the old
    // connections of nodes that reconnect.
    #[arg(long, value_name = "N", default_value = "16384")]
    pub max_connections: NonZeroUsize,

    /// Number of events in the watch window: the last changes of Leases, in memory. A watch resumes from the window,
    /// and a list of an earlier state reads the window. From a version before the window, both get 410.
    #[arg(long, value_name = "N", default_value = "100000")]
    pub watch_window_events: NonZeroUsize,

    /// Bytes of memory that the watch window may take; a plain number or one with KiB, MiB or GiB. The server drops the
    /// oldest events above this limit or above --watch-window-events, whichever comes first.
    #[arg(long, value_name = "BYTES", default_value = "256MiB", value_parser = parse_bytes)]
    pub watch_window_bytes: NonZeroUsize,

    /// Quota: bytes of memory for the Leases of all namespaces.
    ///
    /// A namespace may take at most half of the quota that the other namespaces do not use. Each Lease counts for at
    /// least 16 KiB. In kube-node-lease and kube-system only the bytes of a Lease above 16 KiB count.
    ///
    /// Above the quota the server refuses creations with 403. It also refuses updates that lengthen labels,
    /// annotations, owner references or finalizers, and updates after which all other fields together have more than
    /// about 2,000 characters. It never refuses a renewal for the quota.
    ///
    /// A ResourceQuota of the cluster does not apply to this server.
    #[arg(long, value_name = "BYTES", default_value = "512MiB", value_parser = parse_bytes)]
    pub lease_quota_bytes: NonZeroUsize,

    /// Storage of the Leases. `disk`: the folder --data-dir; the server answers a write when the disk has the write,
    /// and a restart loses nothing. `etcd`: the etcd of --etcd-servers, for any number of replicas; a replica answers a
    /// write when a quorum of etcd has the write. `memory`: the memory of the process; a restart loses all Leases.
    #[arg(long, value_name = "KIND", value_enum, default_value_t = StorageKind::Disk)]
    pub storage: StorageKind,

    /// Folder of the store with --storage disk. One server at a time can use a data folder.
    ///
    /// [default: data in --cert-dir]
    #[arg(long, value_name = "DIR")]
    pub data_dir: Option<PathBuf>,

    /// Access to etcd.
    #[command(flatten)]
    pub etcd: EtcdArgs,

    /// Access to the etcd of kube-apiserver.
    #[command(flatten)]
    pub cluster_etcd: ClusterEtcdArgs,

    /// Approximate maximum size of the journal in etcd, in bytes. Replicas delete the oldest entries of a longer
    /// journal, even if the watch window still contains their changes. A replica that starts later does not have these
    /// changes: a watch that resumes there from before them gets 410.
    #[arg(long, value_name = "BYTES", default_value = "256MiB", value_parser = parse_bytes)]
    pub etcd_journal_bytes: NonZeroUsize,

    /// Limit on the bytes in use in etcd's database, with the data of other products. Above this limit, replicas refuse
    /// creations of Leases. Renewals, changes and deletions go on until etcd's own quota.
    ///
    /// [default: 80 % of the quota that etcd reports; etcd before 3.6 reports none, and then there is no limit]
    #[arg(long, value_name = "BYTES", value_parser = parse_bytes)]
    pub etcd_store_bytes: Option<NonZeroUsize>,

    /// Age at which replicas compact the history of etcd, in seconds, at least 60; 0 for never. Use this flag only for
    /// an etcd that no other product uses and that does not compact itself. kube-apiserver compacts the etcd that it
    /// uses.
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub etcd_compaction_seconds: u32,

    /// Format in which the server writes its store. During an upgrade of replicas, give the newest format that the old
    /// release reads, until no replica runs the old release.
    #[arg(long, value_name = "N", default_value_t = FORMAT,
        value_parser = clap::value_parser!(u8).range(i64::from(FORMAT_WRITTEN_MIN)..=i64::from(FORMAT)))]
    pub journal_format: u8,

    /// End watches with 410 when the server stops, so that clients list again. Use this flag for the last stop before
    /// another storage serves the Leases. Without this flag, clients resume their watches, except with --storage
    /// memory: then watches always end with 410.
    #[arg(long)]
    pub stop_expires_watches: bool,

    /// Seconds for which a new store reserves each missing lock for the lock's former holder. 0 reserves nothing.
    ///
    /// The seconds count from the first request for a lock after the start. A lock with a shorter leaseDurationSeconds
    /// is reserved only for its leaseDurationSeconds. Meanwhile any other client that tries to acquire the lock gets
    /// 429 with Retry-After. Nodes' Leases are not reserved. With --storage memory, the store is new at each start.
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub reclaim_seconds: u32,

    /// Features of kube-apiserver that are switched on or off, as Name=true or Name=false, separated by commas. Known:
    /// ShardedListAndWatch (alpha, default false): the parameter shardSelector limits a list or watch to one shard of
    /// the Leases.
    #[arg(long, value_name = "GATES", value_delimiter = ',')]
    pub feature_gates: Vec<String>,

    /// Format of the log, which goes to standard error.
    #[arg(long, value_name = "FORMAT", value_enum, default_value_t = LogFormat::Text)]
    pub log_format: LogFormat,

    /// Verbosity of the log, 0 to 10: 4 and more adds debugging, 6 and more tracing.
    #[arg(short, long = "v", value_name = "N", default_value_t = 0, value_parser = clap::value_parser!(u8).range(0..=10))]
    pub verbosity: u8,
}

/// A command that runs in place of the server.
#[derive(Clone, Debug, Subcommand)]
pub enum Command {
    /// Print the content of a stopped server's data folder, or of the store in etcd. The command reads a damaged store
    /// as far as possible. It never changes a store.
    Inspect(InspectArgs),

    /// Move all Leases with their versions from a data folder to etcd, or back, while no server uses either. The new
    /// store must be empty. The old store stays as it is. Watches from before the move get 410.
    MigrateStorage(MigrateArgs),

    /// Switch the cluster's Leases over from kube-apiserver to the replicas of this server, while clients go on. The
    /// command copies all Leases, and replaces the APIService. If a kube-apiserver does not forward requests to the
    /// replicas 3 s later, the command undoes the takeover.
    Takeover(TakeoverArgs),

    /// Give the cluster's Leases back to kube-apiserver, while clients go on.
    Rollback(RollbackArgs),

    /// Print a script that completes this program's command lines in a shell.
    Completion {
        /// The shell.
        shell: Shell,
    },

    /// Print the manual page of this program, or of one of its commands, for man(1).
    Man {
        /// The command.
        #[arg(value_parser = ["completion", "inspect", "man", "migrate-storage", "rollback", "takeover"])]
        command: Option<String>,
    },
}

/// Storage of the Leases, the value of `--storage`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum StorageKind {
    /// In a data folder on disk.
    Disk,
    /// In etcd.
    Etcd,
    /// In the memory of the process.
    Memory,
}

impl Args {
    /// Parses and checks a command line. The first word is the name of the program.
    ///
    /// # Errors
    /// The reason why the server does not start, or the text for `--help` and `--version`.
    pub fn parse_checked(words: impl IntoIterator<Item = OsString>) -> Result<Self, Stop> {
        let args = Self::try_parse_from(words).map_err(|e| match e.kind() {
            ErrorKind::DisplayHelp | ErrorKind::DisplayVersion => Stop::Information(e.render().to_string()),
            _ => Stop::Wrong(wrong_usage(&e)),
        })?;
        let checked = match &args.command {
            Some(Command::Inspect(inspect)) => inspect.check(),
            Some(Command::MigrateStorage(migrate)) => migrate.check(),
            Some(Command::Takeover(takeover)) => takeover.check(),
            Some(Command::Rollback(rollback)) => rollback.check(),
            Some(Command::Completion { .. } | Command::Man { .. }) => Ok(()),
            None => args.check(),
        };
        checked.map_err(|message| Stop::Wrong(one_line(&message)))?;
        Ok(args)
    }

    /// Returns the address and port of HTTPS; `None` if HTTPS is switched off.
    #[must_use]
    pub fn secure_addr(&self) -> Option<SocketAddr> {
        (self.secure_port != 0).then(|| SocketAddr::new(self.bind_address, self.secure_port))
    }

    /// Returns the address and port of cleartext HTTP, always on loopback; `None` if cleartext HTTP is switched off.
    #[must_use]
    pub fn insecure_addr(&self) -> Option<SocketAddr> {
        (self.insecure_port != 0).then(|| SocketAddr::from((Ipv4Addr::LOCALHOST, self.insecure_port)))
    }

    /// Returns the feature gates; the defaults if [`Args::parse_checked`] refuses the settings.
    #[must_use]
    pub fn features(&self) -> FeatureGates {
        self.parse_features().unwrap_or_default()
    }

    fn parse_features(&self) -> Result<FeatureGates, String> {
        FeatureGates::parse(&self.feature_gates)
    }

    /// Whether some flag makes the server send requests to a cluster's kube-apiserver.
    #[must_use]
    pub fn asks_cluster(&self) -> bool {
        self.requestheader_from_cluster || self.namespaces_from_cluster || self.publish_endpoints.is_some()
    }

    /// Returns the endpoint at which clients reach this replica; `None` if the replica does not publish an endpoint.
    #[must_use]
    pub fn endpoint(&self) -> Option<ReplicaEndpoint> {
        let address = SocketAddr::new(self.advertise_address?, self.secure_port);
        Some(ReplicaEndpoint { address, node: self.node_name.clone() })
    }

    fn check_endpoints(&self) -> Result<(), String> {
        if self.publish_endpoints.is_none() {
            return Ok(());
        }
        if self.storage != StorageKind::Etcd {
            return Err("--publish-endpoints needs --storage etcd".into());
        }
        if self.secure_port == 0 {
            return Err("--publish-endpoints needs a --secure-port".into());
        }
        // The API refuses an address of these kinds in an EndpointSlice: unspecified, loopback, link-local and
        // multicast (Kubernetes, `ValidateEndpointIP`).
        match self.advertise_address {
            Some(IpAddr::V6(address)) if address.is_unicast_link_local() => {}
            Some(IpAddr::V4(address)) if address.is_link_local() => {}
            Some(address) if !(address.is_unspecified() || address.is_loopback() || address.is_multicast()) => {
                return Ok(());
            }
            _ => {}
        }
        let address = self.advertise_address.map_or_else(String::new, |address| address.to_string());
        Err(format!("--advertise-address {address}: an EndpointSlice cannot hold it"))
    }

    /// Returns the files of the serving certificate and its key that the flags name; `None` if they name none.
    #[must_use]
    pub fn serving_files(&self) -> Option<(&Path, &Path)> {
        self.tls_cert_file.as_deref().zip(self.tls_private_key_file.as_deref())
    }

    /// Returns the source of the certificate authorities of front proxies, and the rules that identify a front proxy.
    #[must_use]
    pub fn front_proxy(&self) -> FrontProxySource {
        if self.requestheader_from_cluster {
            return FrontProxySource::Cluster { with_clients: self.client_ca_file.is_none() };
        }
        let Some(ca) = &self.requestheader_client_ca_file else { return FrontProxySource::None };
        let trimmed = |names: &[String]| names.iter().map(|name| name.trim().to_owned()).collect();
        let front_proxy = FrontProxy {
            allowed_names: self.requestheader_allowed_names.iter().filter(|name| !name.is_empty()).cloned().collect(),
            header_names: HeaderNames {
                username: trimmed(&self.requestheader_username_headers),
                group: trimmed(&self.requestheader_group_headers),
                uid: trimmed(&self.requestheader_uid_headers),
                extra_prefix: trimmed(&self.requestheader_extra_headers_prefix),
            },
        };
        FrontProxySource::File(ca.clone(), front_proxy)
    }

    /// Whether a flag names the file `path`. If so, an unusable file counts as a wrong command line.
    #[must_use]
    pub fn names(&self, path: &Path) -> bool {
        self.named_files().any(|(_, named)| named == path)
    }

    fn named_files(&self) -> impl Iterator<Item = (&'static str, &Path)> {
        [
            ("--tls-cert-file", &self.tls_cert_file),
            ("--tls-private-key-file", &self.tls_private_key_file),
            ("--client-ca-file", &self.client_ca_file),
            ("--requestheader-client-ca-file", &self.requestheader_client_ca_file),
            ("--kubeconfig", &self.kubeconfig),
        ]
        .into_iter()
        .filter_map(|(flag, file)| Some((flag, file.as_deref()?)))
        .chain(self.etcd.named_files())
        .chain(self.cluster_etcd.named_files())
    }

    /// Returns the file of each client certificate for etcd, with the name of its flag.
    pub fn etcd_certs(&self) -> impl Iterator<Item = (&'static str, PathBuf)> {
        [
            ("etcd-certfile", &self.etcd.etcd_certfile),
            ("cluster-etcd-certfile", &self.cluster_etcd.cluster_etcd_certfile),
        ]
        .into_iter()
        .filter_map(|(flag, file)| Some((flag, file.clone()?)))
    }

    /// Returns the configuration of etcd, with the limits that flags set for this server's data in etcd.
    #[must_use]
    pub fn etcd_config(&self) -> etcd::Config {
        etcd::Config {
            journal_bytes_max: self.etcd_journal_bytes.get() as u64,
            store_bytes_max: self.etcd_store_bytes.map(|bytes| bytes.get() as u64),
            compaction_interval: (self.etcd_compaction_seconds > 0)
                .then(|| Duration::from_secs(self.etcd_compaction_seconds.into())),
            ..self.etcd.config()
        }
    }

    fn check_etcd(&self) -> Result<(), String> {
        if self.storage != StorageKind::Etcd {
            let is_used = self.etcd.is_used() || self.etcd_store_bytes.is_some() || self.etcd_compaction_seconds > 0;
            return if is_used { Err("the flags --etcd-... are for --storage etcd".into()) } else { Ok(()) };
        }
        if self.etcd.etcd_servers.is_empty() {
            return Err("--storage etcd needs --etcd-servers".into());
        }
        if (1..COMPACTION_SECONDS_MIN).contains(&self.etcd_compaction_seconds) {
            return Err(format!("--etcd-compaction-seconds: 0, or at least {COMPACTION_SECONDS_MIN}"));
        }
        self.etcd.check()
    }

    /// Checks the flags beyond clap's rules: combinations of flags, and the files that flags name.
    fn check(&self) -> Result<(), String> {
        if self.secure_port == 0 && self.insecure_port == 0 {
            return Err(
                "--secure-port 0 switches HTTPS off, and without --insecure-port nothing is left to serve".into()
            );
        }
        if self.secure_port == self.insecure_port {
            return Err(format!("--secure-port and --insecure-port are both {}", self.secure_port));
        }
        if self.secure_port == 0 && self.requestheader_from_cluster {
            return Err("--requestheader-from-cluster is about HTTPS, which --secure-port 0 switches off".into());
        }
        if self.storage != StorageKind::Disk && self.data_dir.is_some() {
            return Err("--data-dir is for --storage disk".into());
        }
        self.parse_features().map_err(|reason| format!("--feature-gates: {reason}"))?;
        self.check_etcd()?;
        self.cluster_etcd.check()?;
        self.check_endpoints()?;
        if self.kubeconfig.is_some() && !self.asks_cluster() {
            return Err("--kubeconfig is for --requestheader-from-cluster, --namespaces-from-cluster and \
                        --publish-endpoints, of which none is given"
                .into());
        }
        for (flag, names) in [
            ("--requestheader-username-headers", &self.requestheader_username_headers),
            ("--requestheader-group-headers", &self.requestheader_group_headers),
            ("--requestheader-uid-headers", &self.requestheader_uid_headers),
            ("--requestheader-extra-headers-prefix", &self.requestheader_extra_headers_prefix),
        ] {
            if names.iter().any(|name| !is_field_name(name.trim())) {
                return Err(format!("{flag} {:?}: not names of fields, separated by commas", names.join(",")));
            }
        }
        // One empty value is a list without names, which allows all names. Two empty values, from `,`, make a list that
        // allows no name in kube-apiserver. So this server must not treat such a list as allowing all names.
        let allowed = &self.requestheader_allowed_names;
        if allowed.len() > 1 && allowed.iter().all(String::is_empty) {
            return Err(format!("--requestheader-allowed-names {:?}: no name among the commas", allowed.join(",")));
        }
        check_files(&self.named_files().collect::<Vec<_>>())?;
        check_folder("--cert-dir", self.cert_dir.as_deref())?;
        check_folder("--data-dir", self.data_dir.as_deref())
    }
}

/// Checks that the process can read the files that flags name.
///
/// # Errors
/// The error of the first file that the process cannot read.
pub(super) fn check_files(files: &[(&str, &Path)]) -> Result<(), String> {
    files.iter().try_for_each(|(flag, file)| match fs::read(file) {
        Ok(_) => Ok(()),
        Err(e) => Err(format!("{flag} {}: {e}", file.display())),
    })
}

/// Checks that a flag names a folder, or a path at which a folder can be created.
///
/// # Errors
/// The reason why `dir` cannot be a folder.
pub(super) fn check_folder(flag: &str, dir: Option<&Path>) -> Result<(), String> {
    match dir {
        Some(dir) if dir.as_os_str().is_empty() => Err(format!("{flag} is empty")),
        Some(dir) if dir.exists() && !dir.is_dir() => Err(format!("{flag} {}: not a folder", dir.display())),
        Some(_) | None => Ok(()),
    }
}

/// Whether `name` is a field name (RFC 9110 §5.1), or a prefix of one.
fn is_field_name(name: &str) -> bool {
    !name.is_empty() && name.bytes().all(|b| b.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&b))
}

fn parse_node_name(text: &str) -> Result<CompactString, String> {
    match is_dns_subdomain(text.as_bytes()) {
        true => Ok(text.into()),
        false => Err("the name of a Node is wanted".to_owned()),
    }
}

/// Parses a number of bytes, without a suffix or with KiB, MiB or GiB.
fn parse_bytes(text: &str) -> Result<NonZeroUsize, String> {
    let units = [("KiB", 1 << 10), ("MiB", 1 << 20), ("GiB", 1 << 30), ("", 1)];
    let (digits, unit) =
        units.into_iter().find_map(|(suffix, unit)| Some((text.strip_suffix(suffix)?, unit))).unwrap_or((text, 1));
    let wrong = || "a number of bytes is wanted, such as 1048576, 512KiB, 256MiB or 2GiB".to_owned();
    if !digits.bytes().all(|b| b.is_ascii_digit()) {
        return Err(wrong());
    }
    let number: usize = digits.parse().map_err(|_| wrong())?;
    let bytes = number.checked_mul(unit).ok_or_else(wrong)?;
    NonZeroUsize::new(bytes).ok_or_else(|| "must be more than 0".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    fn parse(words: &[&str]) -> Result<Args, Stop> {
        Args::parse_checked([PROGRAM].iter().chain(words).map(OsString::from))
    }

    fn wrong(words: &[&str]) -> String {
        match parse(words) {
            Err(Stop::Wrong(line)) => line,
            other => panic!("{words:?} gave {other:?}"),
        }
    }

    #[test]
    fn the_command_is_consistent() {
        Args::command().debug_assert();
    }

    #[test]
    fn no_arguments_give_the_documented_defaults() {
        let args = parse(&[]).expect("defaults");
        assert_eq!(args.secure_addr(), Some("127.0.0.1:8443".parse().expect("an address")));
        assert_eq!(args.insecure_addr(), None);
        assert_eq!(args.serving_files(), None);
        assert_eq!((args.max_connections.get(), args.watch_window_events.get()), (16_384, 100_000));
        assert_eq!(args.watch_window_bytes.get(), 256 << 20);
        assert_eq!((args.lease_quota_bytes.get(), args.reclaim_seconds), (512 << 20, 0));
        assert_eq!((args.log_format, args.verbosity), (LogFormat::Text, 0));
    }

    #[test]
    fn verbosity_is_written_in_each_way_of_klog() {
        for words in [&["-v", "4"][..], &["-v=4"], &["-v4"], &["--v", "4"], &["--v=4"]] {
            assert_eq!(parse(words).expect("a command line").verbosity, 4, "{words:?}");
        }
    }

    #[test]
    fn the_last_value_of_a_repeated_flag_counts_and_lists_grow() {
        let words = ["--storage=memory", "--log-format=text", "--storage=etcd", "--log-format=json"];
        let servers = ["http://127.0.0.1:1", "http://127.0.0.1:2"];
        let lists = servers.map(|url| format!("--etcd-servers={url}"));
        let words: Vec<_> = words.into_iter().chain(lists.iter().map(String::as_str)).collect();
        let args = parse(&words).expect("a command line");
        assert_eq!((args.storage, args.log_format), (StorageKind::Etcd, LogFormat::Json));
        assert_eq!(args.etcd.etcd_servers, servers);
        assert!(parse(&["--stop-expires-watches"; 2]).expect("a command line").stop_expires_watches);
        let args = parse(&["inspect", "--data-dir=/nowhere/a", "--data-dir=/nowhere/b"]).expect("a command line");
        let Some(Command::Inspect(inspect)) = args.command else { panic!("no inspect") };
        assert_eq!(inspect.data_dir.as_deref(), Some(Path::new("/nowhere/b")));
    }

    #[test]
    fn bytes_take_binary_suffixes() {
        for (text, bytes) in
            [("1", 1), ("1048576", 1 << 20), ("3KiB", 3 << 10), ("256MiB", 256 << 20), ("2GiB", 2 << 30)]
        {
            assert_eq!(parse_bytes(text).map(NonZeroUsize::get), Ok(bytes), "{text}");
        }
        for text in [
            "",
            "0",
            "0MiB",
            "-1",
            "+1",
            "1.5GiB",
            "1MB",
            "1M",
            "MiB",
            "KiBKiB",
            "1KiBiB",
            "1 MiB",
            "99999999999GiB",
            "é",
        ] {
            assert!(parse_bytes(text).is_err(), "{text}");
        }
    }

    #[test]
    fn the_insecure_port_is_on_loopback_for_any_bind_address() {
        let args = parse(&["--bind-address=::", "--secure-port=0", "--insecure-port=8080"]).expect("a command line");
        assert_eq!(args.secure_addr(), None);
        assert_eq!(args.insecure_addr(), Some("127.0.0.1:8080".parse().expect("an address")));
    }

    #[test]
    fn conflicting_flags_are_refused() {
        assert!(wrong(&["--secure-port=0"]).contains("--insecure-port"));
        assert!(wrong(&["--insecure-port=8443"]).contains("both 8443"));
        assert!(wrong(&["--tls-cert-file=/dev/null"]).contains("--tls-private-key-file"));
        assert!(wrong(&["--tls-private-key-file=/dev/null"]).contains("--tls-cert-file"));
        assert!(wrong(&["--kubeconfig=/dev/null"]).contains("--requestheader-from-cluster"));
        assert!(parse(&["--kubeconfig=/dev/null", "--namespaces-from-cluster"]).is_ok());
        let publish = "--publish-endpoints=kube-system/leases";
        let published = ["--storage=etcd", "--etcd-servers=http://127.0.0.1:2379", publish];
        let endpoint = parse(&[&published[..], &["--advertise-address=10.0.0.1"]].concat()).expect("flags").endpoint();
        let address = "10.0.0.1:8443".parse().expect("an address");
        assert_eq!(endpoint, Some(ReplicaEndpoint { address, node: None }));
        assert!(wrong(&["--node-name=node-a"]).contains("--publish-endpoints"));
        for (node, is_name) in [("node-a.example", true), ("", false), ("Node", false), ("a/b", false)] {
            let flags = ["--advertise-address=10.0.0.1".to_owned(), format!("--node-name={node}")];
            let flags = flags.iter().map(String::as_str);
            let parsed = parse(&published.iter().copied().chain(flags).collect::<Vec<_>>());
            let named = parsed.ok().and_then(|args| args.endpoint()?.node);
            assert_eq!(named, is_name.then(|| node.into()), "{node:?}");
        }
        assert!(wrong(&[publish]).contains("--advertise-address"));
        assert!(wrong(&["--advertise-address=10.0.0.1"]).contains("--publish-endpoints"));
        assert!(wrong(&[publish, "--advertise-address=10.0.0.1"]).contains("--storage etcd"));
        assert!(wrong(&["--publish-endpoints=leases", "--advertise-address=10.0.0.1"]).contains("NAMESPACE/NAME"));
        for address in ["0.0.0.0", "127.0.0.1", "::", "::1", "169.254.0.1", "fe80::1", "224.0.0.1"] {
            let address = format!("--advertise-address={address}");
            assert!(
                wrong(&[&published[..], &[&address]].concat()).contains("an EndpointSlice cannot hold it"),
                "{address}"
            );
        }
        let ca = "--requestheader-client-ca-file";
        for rest in ["allowed-names", "username-headers", "group-headers", "uid-headers", "extra-headers-prefix"] {
            let flag = format!("--requestheader-{rest}=x");
            assert!(wrong(&[&flag]).contains(ca));
            assert!(wrong(&[&flag, "--requestheader-from-cluster"]).contains("--requestheader-from-cluster"));
            assert!(parse(&[&flag, &format!("{ca}=/dev/null")]).is_ok());
        }
        assert!(
            wrong(&["--client-ca-file=/nowhere/ca.crt"]).contains("--client-ca-file /nowhere/ca.crt: No such file")
        );
    }

    #[test]
    fn storage_is_disk_by_default_and_its_flags_are_checked() {
        assert_eq!(parse(&[]).expect("defaults").storage, StorageKind::Disk);
        assert!(parse(&["--data-dir=/nowhere/data"]).is_ok());
        assert!(wrong(&["--data-dir=/nowhere/data", "--storage=memory"]).contains("--storage disk"));
        assert!(wrong(&["--data-dir="]).contains("--data-dir"));
        assert!(wrong(&["--data-dir=/dev/null"]).contains("--data-dir /dev/null: not a folder"));
        assert!(wrong(&["--storage=tape"]).contains("[possible values: disk, etcd, memory]"));
        let inspect = parse(&["inspect", "--data-dir=/nowhere/data", "--changes"]).expect("a command line");
        assert!(matches!(
            inspect.command,
            Some(Command::Inspect(InspectArgs { data_dir: Some(_), changes: true, .. }))
        ));
        assert!(wrong(&["inspect", "--data-dir=/dev/null"]).contains("not a folder"));
        assert!(wrong(&["inspect", "--storage=disk"]).contains("--storage"));
        assert!(
            wrong(&["inspect", "--data-dir=/x", "--etcd-servers=http://127.0.0.1:1"]).contains("cannot be used with")
        );
        assert!(wrong(&["inspect", "--etcd-cafile=/dev/null"]).contains("need --etcd-servers"));
    }

    #[test]
    fn a_migration_needs_two_different_stores() {
        let [command, etcd] = ["migrate-storage", "--etcd-servers=http://127.0.0.1:1"];
        let both = ["--from=disk", "--to=etcd"];
        assert!(parse(&[command, both[0], both[1], etcd]).is_ok());
        assert!(wrong(&[command, both[0], etcd]).contains("--to"));
        assert!(wrong(&[command, both[0], both[1]]).contains("needs --etcd-servers"));
        assert!(wrong(&[command, "--from=disk", "--to=disk", etcd]).contains("the same"));
        assert!(wrong(&[command, "--from=memory", "--to=disk", etcd]).contains("possible values: disk, etcd"));
        assert!(wrong(&[command, both[0], both[1], etcd, "--data-dir=/dev/null"]).contains("not a folder"));
    }

    #[test]
    fn cluster_etcd_flags_are_allowed_with_any_storage() {
        assert_eq!(parse(&[]).expect("defaults").cluster_etcd.config(), None);
        let [servers, ca] = ["--cluster-etcd-servers=https://10.0.0.1:2379", "--cluster-etcd-cafile=/dev/null"];
        let config = parse(&[servers, ca]).expect("a command line").cluster_etcd.config().expect("an etcd");
        assert_eq!((config.endpoints.len(), config.prefix.as_str()), (1, "/registry"));
        assert!(wrong(&[servers]).contains("needs --cluster-etcd-cafile"));
        assert!(wrong(&[ca]).contains("--cluster-etcd-servers"));
        assert!(wrong(&["--cluster-etcd-servers=10.0.0.1"]).contains("not a URL such as"));
        assert!(wrong(&[servers, ca, "--cluster-etcd-certfile=/dev/null"]).contains("--cluster-etcd-keyfile"));
        assert!(wrong(&[servers, ca, "--cluster-etcd-prefix=registry"]).contains("must begin with /"));
    }

    #[test]
    fn a_switch_needs_a_kubeconfig_and_endpoints() {
        let dir = tempfile::tempdir().expect("a folder");
        let file = dir.path().join("apiservice.yaml");
        let manifest = "apiVersion: apiregistration.k8s.io/v1\nkind: APIService\nmetadata: {name: \
                        v1.coordination.k8s.io}\nspec:\n  groupPriorityMinimum: 16500\n  versionPriority: 15\n  \
                        caBundle: Y2E=\n  service: {name: a, namespace: b}\n";
        fs::write(&file, manifest).expect("written");
        let service = format!("--apiservice={}", file.display());
        let [kubeconfig, endpoint] = ["--kubeconfig=/dev/null", "--endpoint=https://10.0.0.1:8443"];
        assert!(parse(&["takeover", kubeconfig, endpoint, endpoint, &service, "--dry-run"]).is_ok());
        assert!(parse(&["rollback", kubeconfig, endpoint, &service]).is_ok());
        assert!(parse(&["rollback", kubeconfig, endpoint, "--kube-apiserver=https://[::1]:6443/"]).is_ok());
        assert!(wrong(&["takeover", kubeconfig, endpoint]).contains("--apiservice"));
        assert!(wrong(&["rollback", kubeconfig]).contains("--endpoint"));
        assert!(wrong(&["rollback", endpoint]).contains("--kubeconfig"));
        for url in ["http://10.0.0.1:8443", "10.0.0.1:8443", "https://", "https://10.0.0.1/api"] {
            assert!(wrong(&["rollback", kubeconfig, "--endpoint", url]).contains("not a URL such as"), "{url}");
        }
        for command in ["takeover", "rollback"] {
            let with = |file| wrong(&[command, kubeconfig, endpoint, file]);
            assert!(with("--apiservice=/nowhere").starts_with("--apiservice /nowhere: No such file"), "{command}");
            assert!(with("--apiservice=/dev/null").contains("no APIService v1.coordination.k8s.io in it"), "{command}");
        }
    }

    #[test]
    fn feature_gates_are_off_unless_switched_on() {
        let is_on = |words: &[&str]| parse(words).expect("a command line").features().sharded_list_and_watch;
        assert!(!is_on(&[]) && !is_on(&["--feature-gates="]));
        assert!(is_on(&["--feature-gates=ShardedListAndWatch=true"]));
        assert!(!is_on(&["--feature-gates", "ShardedListAndWatch=true,ShardedListAndWatch=false"]));
        assert!(is_on(&["--feature-gates=ShardedListAndWatch=false", "--feature-gates=ShardedListAndWatch=true"]));
    }

    #[test]
    fn only_known_formats_can_be_written() {
        assert_eq!(parse(&[]).expect("defaults").journal_format, FORMAT);
        for format in [FORMAT_WRITTEN_MIN - 1, FORMAT + 1] {
            assert!(wrong(&["--journal-format", &format.to_string()]).contains("--journal-format"), "{format}");
        }
    }

    #[test]
    fn etcd_flags_are_parsed_and_checked() {
        let etcd = "--storage=etcd";
        assert!(wrong(&[etcd]).contains("--etcd-servers"));
        assert!(wrong(&["--etcd-servers=http://127.0.0.1:2379"]).contains("--storage etcd"));
        let args = parse(&[etcd, "--etcd-servers=http://127.0.0.1:2379,http://[::1]:2379"]).expect("a command line");
        assert_eq!(args.etcd.etcd_servers, ["http://127.0.0.1:2379", "http://[::1]:2379"]);
        assert_eq!(args.etcd.etcd_prefix, "/coordination-apiserver");
        for url in ["127.0.0.1:2379", "http://127.0.0.1", "http://:1", "http://a:b", "ftp://a:1", "http://a:1/x", ""] {
            assert!(wrong(&[etcd, &format!("--etcd-servers={url}")]).contains("not a URL"), "{url}");
        }
        assert!(wrong(&[etcd, "--etcd-servers=https://127.0.0.1:2379"]).contains("needs --etcd-cafile"));
        let servers = "--etcd-servers=http://127.0.0.1:2379";
        for prefix in ["", "/", "//", "leases"] {
            assert!(wrong(&[etcd, servers, &format!("--etcd-prefix={prefix}")]).contains("--etcd-prefix"), "{prefix}");
        }
        assert!(wrong(&[etcd, servers, "--etcd-certfile=/dev/null"]).contains("--etcd-keyfile"));
        assert!(wrong(&[etcd, servers, "--etcd-cafile=/nowhere/ca"]).contains("--etcd-cafile /nowhere/ca: No such"));
        assert!(wrong(&[etcd, servers, "--data-dir=/nowhere/data"]).contains("--storage disk"));
        assert!(wrong(&[etcd, servers, "--etcd-compaction-seconds=59"]).contains("at least 60"));
        assert!(wrong(&["--etcd-compaction-seconds=60"]).contains("--storage etcd"));
        let config = parse(&[etcd, servers]).expect("a command line").etcd_config();
        assert_eq!(
            (config.journal_bytes_max, config.store_bytes_max, config.compaction_interval),
            (256 << 20, None, None)
        );
    }

    #[test]
    fn request_header_flags_are_lists_with_defaults() {
        let ca = "--requestheader-client-ca-file=/dev/null";
        let FrontProxySource::File(_, usual) = parse(&[ca]).expect("a command line").front_proxy() else {
            panic!("no file")
        };
        assert_eq!(usual, FrontProxy::default());
        let words = [
            ca,
            "--requestheader-allowed-names=a,b",
            "--requestheader-allowed-names=c",
            "--requestheader-group-headers=X-A, X-B",
        ];
        let FrontProxySource::File(_, own) = parse(&words).expect("a command line").front_proxy() else {
            panic!("no file")
        };
        assert_eq!(own.allowed_names, ["a", "b", "c"]);
        assert_eq!(own.header_names.group, ["X-A", "X-B"]);
        assert_eq!(own.header_names.username, ["X-Remote-User"]);
        // An empty list, which a script may pass, allows any name.
        let any = parse(&[ca, "--requestheader-allowed-names="]).expect("a command line").front_proxy();
        assert!(matches!(any, FrontProxySource::File(_, front_proxy) if front_proxy.allowed_names.is_empty()));
        for value in [",", ",,"] {
            let flag = format!("--requestheader-allowed-names={value}");
            assert!(wrong(&[ca, &flag]).contains("--requestheader-allowed-names"), "{value}");
        }
        for value in ["", "X-A,,X-B", "X A", "X:"] {
            let flag = format!("--requestheader-username-headers={value}");
            assert!(wrong(&[ca, &flag]).contains("--requestheader-username-headers"), "{value}");
        }
    }

    #[test]
    fn the_front_proxy_comes_from_the_cluster_or_from_a_file() {
        let cluster = parse(&["--requestheader-from-cluster"]).expect("a command line").front_proxy();
        assert!(matches!(cluster, FrontProxySource::Cluster { with_clients: true }));
        let cluster = parse(&["--requestheader-from-cluster", "--client-ca-file=/dev/null"]).expect("a command line");
        assert!(matches!(cluster.front_proxy(), FrontProxySource::Cluster { with_clients: false }));
        assert!(matches!(parse(&[]).expect("a command line").front_proxy(), FrontProxySource::None));
        for flag in ["--requestheader-client-ca-file=/dev/null", "--requestheader-allowed-names=a"] {
            assert!(wrong(&["--requestheader-from-cluster", flag]).contains("--requestheader-from-cluster"), "{flag}");
        }
        let words = ["--requestheader-from-cluster", "--secure-port=0", "--insecure-port=8080"];
        assert!(wrong(&words).contains("--requestheader-from-cluster"));
        assert!(
            wrong(&["--namespaces-from-cluster", "--kubeconfig=/nowhere/x"])
                .contains("--kubeconfig /nowhere/x: No such file")
        );
    }

    #[test]
    fn an_error_message_is_one_line_for_any_input() {
        for words in [&["--log-format=y\nx\u{1b}[31m"][..], &["--sekure-port=1"], &["stray\r\n"], &["-x"]] {
            let line = wrong(words);
            assert!(!line.chars().any(char::is_control) && !line.contains("Usage"), "{line}");
        }
        assert!(wrong(&["--log-format=xml"]).contains("[possible values: text, json]"));
        assert!(wrong(&["--secure-port=70000"]).contains("70000"));
    }

    #[test]
    fn help_and_version_are_not_errors() {
        let Err(Stop::Information(help)) = parse(&["--help"]) else { panic!("no help") };
        for argument in Args::command().get_arguments() {
            let flag = argument.get_long().expect("every flag has a long name");
            assert!(help.contains(&format!("--{flag}")), "{flag}");
        }
        assert!(help.matches("[default: ").count() == 25, "{help}");
        let Err(Stop::Information(version)) = parse(&["--version"]) else { panic!("no version") };
        assert_eq!(version.trim(), format!("{PROGRAM} {}", BuildInfo::version()));
    }
}
