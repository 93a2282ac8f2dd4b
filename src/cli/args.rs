//! The server's command line. Its flags have kube-apiserver's names. The server checks the flags as far as possible
//! before it starts.

use super::PROGRAM;
use super::cluster_etcd::ClusterEtcdArgs;
use super::etcd::EtcdArgs;
use super::offline::{InspectArgs, MigrateArgs};
use super::switch::{RollbackArgs, TakeoverArgs};
use crate::build_info::BuildInfo;
use crate::cluster::{ReplicaEndpoint, ServiceName};
use crate::etcd;
use crate::features::FeatureGates;
use crate::journal::{FORMAT, FORMAT_WRITTEN_MIN};
use crate::lease::validation::format::is_dns_subdomain;
use crate::logging::LogFormat;
use crate::tls::source::FrontProxySource;
use crate::tls::trust::{FrontProxy, HeaderNames};
use clap::{Parser, Subcommand, ValueEnum};
use clap_complete::Shell;
use compact_str::CompactString;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};
use std::time::Duration;

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

    /// PEM file with the certificate authorities of clients. The CN of a client certificate names the user, and each O
    /// names a group. The file replaces the authority in --cert-dir, so the server makes no admin certificate.
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
    /// connection on the TLS port whose client has no rights: no certificate, or one that gives no rights. Each client
    /// first has half a second to show a certificate. Until then, or if every client has rights, the new connection
    /// waits.
    // The default is enough for 10,000 kubelets with one connection each, for other clients, and for the old
    // connections of nodes that reconnect.
    #[arg(long, value_name = "N", default_value = "16384")]
    pub max_connections: NonZeroUsize,

    /// Number of events in the watch window: the last changes of Leases, in memory. A watch resumes from the window,
    /// and a list of an earlier state reads the window. Both get 410 for a version before the window.
    #[arg(long, value_name = "N", default_value = "100000")]
    pub watch_window_events: NonZeroUsize,

    /// Bytes of memory that the watch window may take; a plain number or one with KiB, MiB or GiB. The server drops the
    /// oldest events above this limit or above --watch-window-events, whichever comes first.
    #[arg(long, value_name = "BYTES", default_value = "256MiB", value_parser = parse_bytes)]
    pub watch_window_bytes: NonZeroUsize,

    /// Quota: bytes of memory for the Leases of all namespaces.
    ///
    /// A namespace may take at most half of the quota that the other namespaces do not use. Each Lease counts for at
    /// least 16 KiB. The exceptions are kube-node-lease and kube-system. There, a Lease has two parts: its labels,
    /// annotations, owner references and finalizers, and all its other fields. Only the bytes of a part above 16 KiB
    /// count.
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
    /// changes in its watch window: a watch that resumes at this replica from before these changes gets 410.
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
    /// The seconds count from the first request for a lock after the start. If the store already has Leases of clients,
    /// the seconds count from the start. The store is new until one of these Leases is older than N seconds. A lock
    /// with a shorter leaseDurationSeconds is reserved only for its leaseDurationSeconds. Meanwhile any other client
    /// that tries to acquire the lock gets 429 with Retry-After. Nodes' Leases are not reserved. With --storage memory,
    /// the store is new at each start.
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub reclaim_seconds: u32,

    /// Features of kube-apiserver that are switched on or off, as Name=true or Name=false, separated by commas. Known:
    /// ShardedListAndWatch (alpha, default false): the parameter shardSelector limits a list, a watch or a deletion of
    /// a collection to one shard of the Leases.
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

    /// Copy all Leases with their versions from a data folder to etcd, or back, while no server uses either. The new
    /// store must be empty. The Leases of the old store stay as they are. Watches from before the copy get 410.
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

    pub(super) fn parse_features(&self) -> Result<FeatureGates, String> {
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

    pub(super) fn named_files(&self) -> impl Iterator<Item = (&'static str, &Path)> {
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
}

fn parse_node_name(text: &str) -> Result<CompactString, String> {
    match is_dns_subdomain(text.as_bytes()) {
        true => Ok(text.into()),
        false => Err("the name of a Node is wanted".to_owned()),
    }
}

/// Parses a number of bytes, without a suffix or with KiB, MiB or GiB.
pub(super) fn parse_bytes(text: &str) -> Result<NonZeroUsize, String> {
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
