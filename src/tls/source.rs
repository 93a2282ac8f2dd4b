//! Reads the sources of the TLS configuration, and builds the three parts of the configuration from them: the serving
//! certificate and key, the client CAs, and the front-proxy CAs.
//!
//! Reading and building are two steps, so that a part is built only if its input differs from the previous input.

use super::authorities::Authorities;
use super::config::{TlsConfigError, TlsConfigErrorCause, certs_of, key_of, provider};
use super::config_map::{self, CLIENT_CA, ClusterAuthentication, FRONT_PROXY_CA};
use super::trust::FrontProxy;
use rustls::sign::CertifiedKey;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Sources of certificates, keys and CAs. All files are PEM.
#[derive(Clone, Debug)]
pub struct TlsSources {
    /// File with the serving certificate, followed by its intermediate certificates.
    pub cert: PathBuf,
    /// File with the private key of the serving certificate, in PKCS #8, PKCS #1 or SEC 1.
    pub key: PathBuf,
    /// File with the client CAs; `None` if they come from the cluster ([`FrontProxySource::Cluster`]), or if there are
    /// none.
    pub client_ca: Option<PathBuf>,
    /// The source of the front-proxy CAs.
    pub front_proxy: FrontProxySource,
}

/// Source of the front-proxy CAs.
#[derive(Clone, Debug)]
pub enum FrontProxySource {
    /// There is no front proxy.
    None,
    /// A file, and the configuration of the front proxy.
    File(PathBuf, FrontProxy),
    /// The cluster ([`ClusterAuthentication`]).
    Cluster {
        /// Whether the cluster's client CA is trusted too.
        with_clients: bool,
    },
}

/// A PEM text, and the file or ConfigMap key that it comes from.
#[derive(Hash)]
pub(super) struct Pem {
    path: PathBuf,
    text: Vec<u8>,
}

impl Pem {
    fn of_file(path: &Path) -> Result<Self, TlsConfigError> {
        let text = fs::read(path).map_err(|e| TlsConfigError::new(path, TlsConfigErrorCause::Io(e)))?;
        Ok(Self { path: path.to_owned(), text })
    }

    /// Returns the value of a key of the ConfigMap, if the value is present.
    fn of_config_map(said: &ClusterAuthentication, key: &str) -> Option<Self> {
        said.value(key).map(|text| Self { path: config_map::origin(key), text: text.as_bytes().to_vec() })
    }

    fn wrong(&self) -> impl FnOnce(rustls::Error) -> TlsConfigError {
        |e| TlsConfigError::new(&self.path, TlsConfigErrorCause::Rustls(e))
    }
}

/// PEM of the serving certificate with its intermediate certificates, and PEM of its private key.
#[derive(Hash)]
pub(super) struct ServingPem {
    cert: Pem,
    key: Pem,
}

impl ServingPem {
    /// Parses the certificate chain and the private key into the form that rustls uses.
    ///
    /// # Errors
    /// If a file is malformed, or if the key does not belong to the certificate.
    pub(super) fn make(self) -> Result<Arc<CertifiedKey>, TlsConfigError> {
        let chain = certs_of(&self.cert.path, &self.cert.text)?;
        let key = key_of(&self.key.path, &self.key.text)?;
        CertifiedKey::from_der(chain, key, &provider()).map(Arc::new).map_err(self.key.wrong())
    }
}

/// PEM of the certificates of CAs; `None` if there are no CAs.
#[derive(Hash)]
pub(super) struct AuthoritiesPem(Option<Pem>);

impl AuthoritiesPem {
    /// Parses the PEM, and builds the set of CAs.
    pub(super) fn make(self) -> Result<Authorities, TlsConfigError> {
        let Some(pem) = self.0 else { return Ok(Authorities::default()) };
        Authorities::new(certs_of(&pem.path, &pem.text)?).map_err(pem.wrong())
    }
}

impl TlsSources {
    /// Reads the serving certificate and key.
    pub(super) fn serving(&self) -> Result<ServingPem, TlsConfigError> {
        Ok(ServingPem { cert: Pem::of_file(&self.cert)?, key: Pem::of_file(&self.key)? })
    }

    /// Reads the client CAs; `None` if they come from the cluster, and the cluster has not sent its settings yet.
    pub(super) fn clients(
        &self,
        cluster: Option<&ClusterAuthentication>,
    ) -> Option<Result<AuthoritiesPem, TlsConfigError>> {
        if let FrontProxySource::Cluster { with_clients: true } = self.front_proxy {
            return cluster.map(|said| Ok(AuthoritiesPem(Pem::of_config_map(said, CLIENT_CA))));
        }
        Some(self.client_ca.as_deref().map(Pem::of_file).transpose().map(AuthoritiesPem))
    }

    /// Reads the front-proxy CAs and the front proxy's configuration; `None` if they come from the cluster, and the
    /// cluster has not sent its settings yet. A cluster without front-proxy CAs forwards no requests, so their absence
    /// is an error.
    pub(super) fn proxies(
        &self,
        cluster: Option<&ClusterAuthentication>,
    ) -> Option<Result<(AuthoritiesPem, FrontProxy), TlsConfigError>> {
        match &self.front_proxy {
            FrontProxySource::None => Some(Ok((AuthoritiesPem(None), FrontProxy::default()))),
            FrontProxySource::File(path, own) => {
                Some(Pem::of_file(path).map(|pem| (AuthoritiesPem(Some(pem)), own.clone())))
            }
            FrontProxySource::Cluster { .. } => cluster.map(|said| {
                let none =
                    || TlsConfigError::new(&config_map::origin(FRONT_PROXY_CA), TlsConfigErrorCause::NoCertificate);
                let pem = Pem::of_config_map(said, FRONT_PROXY_CA).ok_or_else(none)?;
                Ok((AuthoritiesPem(Some(pem)), said.front_proxy()?))
            }),
        }
    }
}
