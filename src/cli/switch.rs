//! The flags of `takeover` and `rollback`, which switch a cluster's Leases over to this server and back.

use super::api_service::read_api_service;
use super::checks::check_files;
use std::path::PathBuf;

/// Flags of `takeover`.
#[derive(Clone, Debug, clap::Args)]
pub struct TakeoverArgs {
    /// Access to the cluster and to the replicas.
    #[command(flatten)]
    pub cluster: SwitchArgs,

    /// Manifest of the APIService v1.coordination.k8s.io, with its Service and caBundle.
    #[arg(long, value_name = "FILE")]
    pub apiservice: PathBuf,

    /// With --without-etcd: keep kube-controller-manager from marking nodes as not ready for 11 minutes.
    ///
    /// In that time, kube-controller-manager's watch of built-in Leases ends. Without this flag, restart
    /// kube-controller-manager right after the takeover.
    #[arg(long, requires = "without_etcd")]
    pub shield: bool,
}

/// Flags of `rollback`.
#[derive(Clone, Debug, clap::Args)]
pub struct RollbackArgs {
    /// Access to the cluster and to the replicas.
    #[command(flatten)]
    pub cluster: SwitchArgs,

    /// File that takeover got with its flag --apiservice. Needed to cancel a takeover that has not replaced the
    /// APIService, and if the APIService is local and the admission policy of an earlier rollback is gone.
    #[arg(long, value_name = "FILE")]
    pub apiservice: Option<PathBuf>,
}

/// Flags of both commands.
#[derive(Clone, Debug, clap::Args)]
pub struct SwitchArgs {
    /// Kubeconfig of a member of system:masters, with a client certificate.
    #[arg(long, value_name = "FILE")]
    pub kubeconfig: PathBuf,

    /// URL of a replica; once for each replica.
    #[arg(long = "endpoint", value_name = "URL", required = true)]
    pub endpoints: Vec<String>,

    /// URL of a kube-apiserver; once for each of them.
    ///
    /// [default: the addresses of the Service kubernetes]
    #[arg(long = "kube-apiserver", value_name = "URL")]
    pub kube_apiservers: Vec<String>,

    /// Switch without access to the cluster's etcd: Leases are copied through kube-apiserver.
    ///
    /// Watches of built-in Leases that are open at the switch get no more events. See docs/deploy.md.
    #[arg(long)]
    pub without_etcd: bool,

    /// Make all checks, and change nothing in the cluster.
    #[arg(long)]
    pub dry_run: bool,
}

impl TakeoverArgs {
    /// Checks the flags beyond clap's rules.
    ///
    /// # Errors
    /// The first error.
    pub(super) fn check(&self) -> Result<(), String> {
        read_api_service(&self.apiservice)?;
        self.cluster.check()
    }
}

impl RollbackArgs {
    /// Checks the flags beyond clap's rules.
    ///
    /// # Errors
    /// The first error.
    pub(super) fn check(&self) -> Result<(), String> {
        if let Some(file) = &self.apiservice {
            read_api_service(file)?;
        }
        self.cluster.check()
    }
}

impl SwitchArgs {
    /// Checks the flags beyond clap's rules.
    ///
    /// # Errors
    /// The first error.
    pub(super) fn check(&self) -> Result<(), String> {
        check_files(&[("--kubeconfig", &self.kubeconfig)])?;
        for (flag, urls) in [("--endpoint", &self.endpoints), ("--kube-apiserver", &self.kube_apiservers)] {
            if let Some(url) = urls.iter().find(|url| !is_https(url)) {
                return Err(format!("{flag} {url:?}: not a URL such as https://127.0.0.1:8443"));
            }
        }
        Ok(())
    }
}

/// Whether `url` is an HTTPS URL of a server, without a path.
fn is_https(url: &str) -> bool {
    let authority = url.strip_prefix("https://").unwrap_or_default().trim_end_matches('/');
    !authority.is_empty() && !authority.contains(['/', '?', '#', '@', ' '])
}
