//! The configuration of the access to etcd: addresses, credentials and limits.

use super::client::in_words;
use crate::engine::EngineError;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;
use tonic::transport::{Certificate, Channel, ClientTlsConfig, Endpoint, Identity};

/// The address and credentials of etcd, as in kube-apiserver's `--etcd-*` flags, and limits.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Config {
    /// URLs of the members, with `http://` or `https://`; at least one.
    pub endpoints: Vec<String>,
    /// PEM file with the CAs of the members' certificates. An `https` URL needs this file.
    pub ca_file: Option<PathBuf>,
    /// PEM file with the client's certificate.
    pub cert_file: Option<PathBuf>,
    /// PEM file with the private key of the client's certificate.
    pub key_file: Option<PathBuf>,
    /// Prefix of all keys of the store.
    pub prefix: String,
    /// Size of the journal above which its oldest entries are deleted, in bytes.
    pub journal_bytes_max: u64,
    /// Maximum size of etcd's pages in use, in bytes; `None` for 80 percent of etcd's quota. Above the maximum, the
    /// server refuses to create Leases.
    pub store_bytes_max: Option<u64>,
    /// Interval of compactions; `None` if something else compacts etcd.
    pub compaction_interval: Option<Duration>,
    /// Time without an answer after which a request to the store fails; `None` to repeat the request without end.
    pub patience: Option<Duration>,
}

/// The contents of the files in a [`Config`].
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Pem {
    ca: Option<Vec<u8>>,
    identity: Option<(Vec<u8>, Vec<u8>)>,
}

/// Timeout of connecting to a member.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(1);
/// Interval of HTTP/2 PINGs on a connection, and timeout of the acknowledgement of a PING.
const KEEP_ALIVE: Duration = Duration::from_secs(1);

impl Config {
    /// Returns the name of the store in messages.
    #[must_use]
    pub fn store(&self) -> String {
        format!("etcd at {}, {}", self.endpoints.join(","), self.prefix)
    }

    /// Adds a likely cause to the reason for a failure. A member that rejects a client's certificate closes the
    /// connection, and the member's TLS alert is often lost.
    pub(super) fn explained(&self, reason: String) -> String {
        let is_tls = self.endpoints.iter().any(|url| url.starts_with("https://"));
        let signs = ["broken pipe", "connection reset", "connection closed", "connection error", "alert"];
        let is_refusal = signs.iter().any(|sign| reason.to_ascii_lowercase().contains(sign));
        match self.cert_file {
            None if is_tls && is_refusal => format!("{reason}; etcd may want a client certificate (--etcd-certfile)"),
            Some(_) if is_tls && is_refusal => {
                format!("{reason}; etcd may not trust the client certificate (--etcd-certfile)")
            }
            None | Some(_) => reason,
        }
    }

    /// Reads the certificate files.
    ///
    /// # Errors
    /// A file cannot be read.
    pub(super) fn read_pem(&self) -> Result<Pem, EngineError> {
        let identity = match (&self.cert_file, &self.key_file) {
            (Some(cert), Some(key)) => Some((read(cert)?, read(key)?)),
            _ => None,
        };
        Ok(Pem { ca: self.ca_file.as_deref().map(read).transpose()?, identity })
    }

    /// Creates a channel to each member. A channel connects on first use.
    ///
    /// # Errors
    /// A URL or a file is invalid.
    pub(super) fn channels(&self, pem: &Pem) -> Result<Vec<Channel>, EngineError> {
        let channel = |url: &String| {
            let wrong = |cause: tonic::transport::Error| EngineError::Io {
                what: format!("cannot use {url}"),
                cause: io::Error::other(in_words("", &cause)),
            };
            let mut endpoint = Endpoint::from_shared(url.clone())
                .map_err(wrong)?
                .connect_timeout(CONNECT_TIMEOUT)
                .http2_keep_alive_interval(KEEP_ALIVE)
                .keep_alive_timeout(KEEP_ALIVE)
                .keep_alive_while_idle(true)
                .tcp_nodelay(true);
            if url.starts_with("https://") {
                endpoint = endpoint.tls_config(pem.tls()).map_err(wrong)?;
            }
            Ok(endpoint.connect_lazy())
        };
        self.endpoints.iter().map(channel).collect()
    }
}

impl Pem {
    fn tls(&self) -> ClientTlsConfig {
        let mut tls = ClientTlsConfig::new();
        if let Some(ca) = &self.ca {
            tls = tls.ca_certificate(Certificate::from_pem(ca));
        }
        if let Some((cert, key)) = &self.identity {
            tls = tls.identity(Identity::from_pem(cert, key));
        }
        tls
    }
}

fn read(file: &Path) -> Result<Vec<u8>, EngineError> {
    fs::read(file).map_err(|cause| EngineError::Io { what: format!("cannot read {}", file.display()), cause })
}
