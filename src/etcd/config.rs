//! Where etcd is, and how a client proves who it is.

use super::client::in_words;
use crate::engine::EngineError;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;
use tonic::transport::{Certificate, Channel, ClientTlsConfig, Endpoint, Identity};

/// Where etcd is. The flags of kube-apiserver have the same meaning.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Config {
    /// URLs of the members, with `http://` or `https://`; at least one.
    pub endpoints: Vec<String>,
    /// PEM file with the authorities of the members' certificates. An `https` URL needs it.
    pub ca_file: Option<PathBuf>,
    /// PEM file with the client's certificate.
    pub cert_file: Option<PathBuf>,
    /// PEM file with the key of that certificate.
    pub key_file: Option<PathBuf>,
    /// What all keys of the store begin with.
    pub prefix: String,
    /// Bytes of the journal beyond which its beginning is deleted.
    pub journal_bytes_max: u64,
    /// Bytes that the database may have in use before creations are refused; none for a share of etcd's quota.
    pub store_bytes_max: Option<u64>,
    /// Time after which history is compacted; none if somebody else does it.
    pub compaction_interval: Option<Duration>,
}

/// Contents of the files that a [`Config`] names.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Pem {
    ca: Option<Vec<u8>>,
    identity: Option<(Vec<u8>, Vec<u8>)>,
}

/// Time after which a member that does not accept a connection is given up.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(1);
/// Time between two PINGs on a connection, and time for the answer.
const KEEP_ALIVE: Duration = Duration::from_secs(1);

impl Config {
    /// What the store is called in messages.
    #[must_use]
    pub fn store(&self) -> String {
        format!("etcd at {}, {}", self.endpoints.join(","), self.prefix)
    }

    /// The reason for a failure, and what it may mean. A member that does not like a client's certificate ends the
    /// connection, and its alert is often lost.
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

    /// Reads the files.
    ///
    /// # Errors
    /// The file that cannot be read.
    pub(super) fn read_pem(&self) -> Result<Pem, EngineError> {
        let identity = match (&self.cert_file, &self.key_file) {
            (Some(cert), Some(key)) => Some((read(cert)?, read(key)?)),
            _ => None,
        };
        Ok(Pem { ca: self.ca_file.as_deref().map(read).transpose()?, identity })
    }

    /// A channel to each member. It connects when it is used.
    ///
    /// # Errors
    /// The URL or the file that is no good.
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
