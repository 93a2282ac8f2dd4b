//! Where certificates, key and authorities come from, and how what is read there becomes a configuration.
//!
//! Reading and building are two steps, so that what was read can be told from what was read before without building.

use super::authorities::Authorities;
use super::config::{
    Resumption, Secure, TlsConfigError, TlsConfigErrorCause, authorities_of, certs_of, key_of, rustls_config,
};
use super::trust::{FrontProxy, Trust};
use crate::cluster::{CONFIG_MAP, CONFIG_MAP_NAMESPACE, ClusterAuthentication};
use std::fs;
use std::hash::{DefaultHasher, Hash, Hasher};
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

/// What the files hold.
#[derive(Hash)]
pub(super) struct Material {
    cert: Vec<u8>,
    key: Vec<u8>,
    client_ca: Option<Vec<u8>>,
    front_proxy_ca: Option<Vec<u8>>,
}

impl TlsSources {
    /// Reads the files.
    pub(super) fn read(&self) -> Result<Material, TlsConfigError> {
        let read = |path: &Path| fs::read(path).map_err(|e| TlsConfigError::new(path, TlsConfigErrorCause::Io(e)));
        Ok(Material {
            cert: read(&self.cert)?,
            key: read(&self.key)?,
            client_ca: self.client_ca.as_deref().map(read).transpose()?,
            front_proxy_ca: match &self.front_proxy {
                FrontProxySource::File(path, _) => Some(read(path)?),
                FrontProxySource::None | FrontProxySource::Cluster { .. } => None,
            },
        })
    }
}

impl Material {
    /// A number that is another one when a file holds something else. Not for keeping: it differs between processes.
    pub(super) fn fingerprint(&self) -> u64 {
        let mut hasher = DefaultHasher::new();
        self.hash(&mut hasher);
        hasher.finish()
    }

    /// Makes a configuration of what the files of `sources` hold and of what the cluster has told so far.
    pub(super) fn secure(
        &self,
        sources: &TlsSources,
        cluster: Option<&ClusterAuthentication>,
        resumption: &Resumption,
    ) -> Result<Secure, TlsConfigError> {
        let rustls = |path: &Path| {
            let path = path.to_owned();
            move |e| TlsConfigError::new(&path, TlsConfigErrorCause::Rustls(e))
        };
        let chain = certs_of(&sources.cert, &self.cert)?;
        let key = key_of(&sources.key, &self.key)?;
        let (mut clients, mut proxies) = (Authorities::default(), Authorities::default());
        if let (Some(path), Some(text)) = (&sources.client_ca, &self.client_ca) {
            clients = authorities_of(path, text)?;
        }
        let mut front_proxy = FrontProxy::default();
        let mut is_complete = true;
        match (&sources.front_proxy, &self.front_proxy_ca, cluster) {
            (FrontProxySource::File(path, own), Some(text), _) => {
                proxies = authorities_of(path, text)?;
                front_proxy = own.clone();
            }
            (FrontProxySource::Cluster { with_clients }, _, Some(cluster)) => {
                let authorities = |key: &str, text: &str| match text {
                    "" => Ok(Authorities::default()),
                    text => authorities_of(&in_config_map(key), text.as_bytes()),
                };
                if *with_clients {
                    clients = authorities("client-ca-file", &cluster.client_ca)?;
                }
                proxies = authorities("requestheader-client-ca-file", &cluster.front_proxy_ca)?;
                front_proxy = cluster.front_proxy.clone();
            }
            (FrontProxySource::Cluster { .. }, _, None) => is_complete = false,
            (FrontProxySource::None | FrontProxySource::File(..), _, _) => {}
        }
        let trust = Arc::new(Trust::new(clients, proxies, front_proxy, is_complete));
        let config = rustls_config(chain, key, Arc::clone(&trust), sources.alpn.clone(), resumption)
            .map_err(rustls(&sources.key))?;
        Ok(Secure { config: Arc::new(config), trust })
    }
}

/// What stands for the path of a key of the ConfigMap in a message.
fn in_config_map(key: &str) -> PathBuf {
    PathBuf::from(format!("ConfigMap {CONFIG_MAP_NAMESPACE}/{CONFIG_MAP}, {key}"))
}
