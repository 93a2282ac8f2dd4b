//! The flags for this server's etcd, with kube-apiserver's names and meaning.

use crate::etcd::Config;
use std::path::{Path, PathBuf};

/// Flags of etcd.
#[derive(Clone, Debug, clap::Args)]
pub struct EtcdArgs {
    /// URLs of the members of the etcd in which replicas store Leases (--storage etcd), separated by commas: http:// or
    /// https:// with a host and a port.
    #[arg(long, value_name = "URLS", value_delimiter = ',')]
    pub etcd_servers: Vec<String>,

    /// PEM file with the certificate authorities of etcd's members. Needed for https:// URLs.
    #[arg(long, value_name = "FILE")]
    pub etcd_cafile: Option<PathBuf>,

    /// PEM file with the client certificate for etcd. Needs --etcd-keyfile.
    #[arg(long, value_name = "FILE", requires = "etcd_keyfile")]
    pub etcd_certfile: Option<PathBuf>,

    /// PEM file with the private key of --etcd-certfile.
    #[arg(long, value_name = "FILE", requires = "etcd_certfile")]
    pub etcd_keyfile: Option<PathBuf>,

    /// Beginning of all keys of this server in etcd. All replicas have the same prefix, and no other program has keys
    /// with this prefix.
    #[arg(long, value_name = "PREFIX", default_value = "/coordination-apiserver")]
    pub etcd_prefix: String,
}

impl EtcdArgs {
    /// Returns the configuration of etcd, with default limits for this server's data in etcd.
    #[must_use]
    pub fn config(&self) -> Config {
        Config {
            endpoints: self.etcd_servers.clone(),
            ca_file: self.etcd_cafile.clone(),
            cert_file: self.etcd_certfile.clone(),
            key_file: self.etcd_keyfile.clone(),
            prefix: self.etcd_prefix.clone(),
            ..Config::default()
        }
    }

    /// Whether the command line has a flag for etcd's URLs or files.
    pub(super) fn is_used(&self) -> bool {
        !self.etcd_servers.is_empty() || self.named_files().next().is_some()
    }

    /// Returns each file that a flag names, with the flag.
    pub(super) fn named_files(&self) -> impl Iterator<Item = (&'static str, &Path)> {
        [
            ("--etcd-cafile", &self.etcd_cafile),
            ("--etcd-certfile", &self.etcd_certfile),
            ("--etcd-keyfile", &self.etcd_keyfile),
        ]
        .into_iter()
        .filter_map(|(flag, file)| Some((flag, file.as_deref()?)))
    }

    /// Checks the flags of etcd.
    ///
    /// # Errors
    /// The first error.
    pub(super) fn check(&self) -> Result<(), String> {
        check_members("etcd", &self.etcd_servers, self.etcd_cafile.is_some())?;
        if !self.etcd_prefix.starts_with('/') || self.etcd_prefix.trim_end_matches('/').is_empty() {
            return Err(format!("--etcd-prefix {:?}: it must begin with / and have a name after it", self.etcd_prefix));
        }
        Ok(())
    }
}

/// Checks the URLs of etcd's members in the flag `--{prefix}-servers`. `has_authorities` is whether the flag
/// `--{prefix}-cafile` is given.
///
/// # Errors
/// The first URL that is malformed, or that needs the missing `--{prefix}-cafile`.
pub(super) fn check_members(prefix: &str, urls: &[String], has_authorities: bool) -> Result<(), String> {
    for url in urls {
        if !is_member(url) {
            return Err(format!("--{prefix}-servers {url:?}: not a URL such as https://127.0.0.1:2379"));
        }
        if url.starts_with("https://") && !has_authorities {
            return Err(format!("--{prefix}-servers {url:?} needs --{prefix}-cafile"));
        }
    }
    Ok(())
}

/// Whether `url` is the URL of a member of etcd.
fn is_member(url: &str) -> bool {
    let rest = url.strip_prefix("https://").or_else(|| url.strip_prefix("http://")).unwrap_or_default();
    let (host, port) = rest.rsplit_once(':').unwrap_or_default();
    !host.is_empty() && !rest.contains(['/', '?', '#', '@', ' ']) && port.parse::<u16>().is_ok()
}
