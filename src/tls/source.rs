//! Where certificates, key and authorities come from, and how what is read there becomes one of the parts of a
//! configuration: the serving pair, the authorities of clients, those of the front proxy.
//!
//! Reading and making are two steps, so that what was read can be told from what was read before without making it.

use super::authorities::Authorities;
use super::config::{TlsConfigError, TlsConfigErrorCause, certs_of, key_of, provider};
use super::config_map::{self, CLIENT_CA, ClusterAuthentication, FRONT_PROXY_CA};
use super::trust::FrontProxy;
use rustls::sign::CertifiedKey;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Where what TLS is made of comes from. All files are PEM.
#[derive(Clone, Debug)]
pub struct TlsSources {
    /// The serving certificate, followed by its intermediates.
    pub cert: PathBuf,
    /// Its private key: PKCS #8, PKCS #1 or SEC 1.
    pub key: PathBuf,
    /// The authorities of clients.
    pub client_ca: Option<PathBuf>,
    /// The authorities of the front proxy.
    pub front_proxy: FrontProxySource,
    /// ALPN protocol IDs, the preferred one first.
    pub alpn: Vec<Vec<u8>>,
}

/// Where the front proxy's authorities come from.
#[derive(Clone, Debug)]
pub enum FrontProxySource {
    /// There is no front proxy.
    None,
    /// From a file.
    File(PathBuf, FrontProxy),
    /// From the cluster, which is asked ([`ClusterAuthentication`]).
    Cluster {
        /// Whether its authorities of clients are believed too.
        with_clients: bool,
    },
}

/// A text in PEM, and where it is from.
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

    /// A key of the ConfigMap, if it is there.
    fn of_config_map(said: &ClusterAuthentication, key: &str) -> Option<Self> {
        said.value(key).map(|text| Self { path: config_map::origin(key), text: text.as_bytes().to_vec() })
    }

    fn wrong(&self) -> impl FnOnce(rustls::Error) -> TlsConfigError {
        |e| TlsConfigError::new(&self.path, TlsConfigErrorCause::Rustls(e))
    }
}

/// The serving certificate with its intermediates, and its key.
#[derive(Hash)]
pub(super) struct ServingPem {
    cert: Pem,
    key: Pem,
}

impl ServingPem {
    /// What is served with.
    pub(super) fn make(self) -> Result<Arc<CertifiedKey>, TlsConfigError> {
        let chain = certs_of(&self.cert.path, &self.cert.text)?;
        let key = key_of(&self.key.path, &self.key.text)?;
        CertifiedKey::from_der(chain, key, &provider()).map(Arc::new).map_err(self.key.wrong())
    }
}

/// Certificates of authorities, if there are any.
#[derive(Hash)]
pub(super) struct AuthoritiesPem(Option<Pem>);

impl AuthoritiesPem {
    /// The authorities.
    pub(super) fn make(self) -> Result<Authorities, TlsConfigError> {
        let Some(pem) = self.0 else { return Ok(Authorities::default()) };
        Authorities::new(certs_of(&pem.path, &pem.text)?).map_err(pem.wrong())
    }
}

impl TlsSources {
    /// Reads the serving pair.
    pub(super) fn serving(&self) -> Result<ServingPem, TlsConfigError> {
        Ok(ServingPem { cert: Pem::of_file(&self.cert)?, key: Pem::of_file(&self.key)? })
    }

    /// Reads the authorities of clients; `None` until the cluster has told of them.
    pub(super) fn clients(
        &self,
        cluster: Option<&ClusterAuthentication>,
    ) -> Option<Result<AuthoritiesPem, TlsConfigError>> {
        if let FrontProxySource::Cluster { with_clients: true } = self.front_proxy {
            return cluster.map(|said| Ok(AuthoritiesPem(Pem::of_config_map(said, CLIENT_CA))));
        }
        Some(self.client_ca.as_deref().map(Pem::of_file).transpose().map(AuthoritiesPem))
    }

    /// Reads the authorities of the front proxy, and how it is known; `None` until the cluster has told of them. A
    /// cluster that has none does not forward anything to anybody.
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
