//! The flags of the etcd of the cluster's kube-apiservers.

use super::etcd::check_members;
use crate::etcd::Config;
use std::path::{Path, PathBuf};

/// Flags of the cluster's etcd.
#[derive(Clone, Debug, clap::Args)]
pub struct ClusterEtcdArgs {
    /// URLs of the cluster's etcd, in which kube-apiserver stores its built-in Leases, separated by commas. During a
    /// takeover, this server copies Leases from the cluster's etcd. From then until the end of a rollback, this server
    /// writes changes of Leases back to the cluster's etcd. Between 65 minutes after the takeover and the rollback,
    /// this server writes back no renewals. Without this flag, the commands takeover and rollback need --without-etcd.
    /// The server writes to the cluster's etcd only while the APIService of Leases names a Service.
    #[arg(long, value_name = "URLS", value_delimiter = ',')]
    pub cluster_etcd_servers: Vec<String>,

    /// PEM file with the certificate authorities of the members of the cluster's etcd. Needed for https:// URLs.
    #[arg(long, value_name = "FILE", requires = "cluster_etcd_servers")]
    pub cluster_etcd_cafile: Option<PathBuf>,

    /// PEM file with the client certificate for the cluster's etcd. Needs --cluster-etcd-keyfile.
    #[arg(long, value_name = "FILE", requires = "cluster_etcd_keyfile", requires = "cluster_etcd_servers")]
    pub cluster_etcd_certfile: Option<PathBuf>,

    /// PEM file with the private key of --cluster-etcd-certfile.
    #[arg(long, value_name = "FILE", requires = "cluster_etcd_certfile")]
    pub cluster_etcd_keyfile: Option<PathBuf>,

    /// Beginning of kube-apiserver's keys in the cluster's etcd: the value of kube-apiserver's flag --etcd-prefix.
    #[arg(long, value_name = "PREFIX", default_value = "/registry")]
    pub cluster_etcd_prefix: String,
}

impl ClusterEtcdArgs {
    /// Returns the configuration of the cluster's etcd; `None` if no flag names its URLs.
    #[must_use]
    pub fn config(&self) -> Option<Config> {
        (!self.cluster_etcd_servers.is_empty()).then(|| Config {
            endpoints: self.cluster_etcd_servers.clone(),
            ca_file: self.cluster_etcd_cafile.clone(),
            cert_file: self.cluster_etcd_certfile.clone(),
            key_file: self.cluster_etcd_keyfile.clone(),
            prefix: self.cluster_etcd_prefix.clone(),
            ..Config::default()
        })
    }

    /// Returns each file that a flag names, with the flag.
    pub(super) fn named_files(&self) -> impl Iterator<Item = (&'static str, &Path)> {
        [
            ("--cluster-etcd-cafile", &self.cluster_etcd_cafile),
            ("--cluster-etcd-certfile", &self.cluster_etcd_certfile),
            ("--cluster-etcd-keyfile", &self.cluster_etcd_keyfile),
        ]
        .into_iter()
        .filter_map(|(flag, file)| Some((flag, file.as_deref()?)))
    }

    /// Checks the flags beyond clap's rules.
    ///
    /// # Errors
    /// The first error.
    pub(super) fn check(&self) -> Result<(), String> {
        check_members("cluster-etcd", &self.cluster_etcd_servers, self.cluster_etcd_cafile.is_some())?;
        if !self.cluster_etcd_prefix.starts_with('/') {
            return Err(format!("--cluster-etcd-prefix {:?}: it must begin with /", self.cluster_etcd_prefix));
        }
        Ok(())
    }
}
