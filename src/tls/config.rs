//! The rustls configuration: certificate and key, client authentication, versions, ALPN.
//!
//! This module chooses the crypto provider itself, and ignores rustls's default for the process. So no other crate can
//! replace the provider.

use super::trust::Trust;
use super::wall_clock::WallClock;
use crate::timestamp::Time;
use rustls::ServerConfig;
use rustls::crypto::{CryptoProvider, aws_lc_rs};
use rustls::server::NoServerSessionStorage;
use rustls::sign::{CertifiedKey, SingleCertAndKey};
use rustls_pki_types::pem::{self, PemObject};
use rustls_pki_types::{CertificateDer, PrivateKeyDer};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use thiserror::Error;

/// ALPN protocol ID of HTTP/2 over TLS (RFC 9113 §3.1).
pub const ALPN_HTTP_2: &[u8] = b"h2";
/// ALPN protocol ID of HTTP/1.1 (RFC 7301 §6).
const ALPN_HTTP_1_1: &[u8] = b"http/1.1";

/// TLS configuration and trust in client certificates. They are built together and replaced together.
#[derive(Clone, Debug)]
pub struct Secure {
    /// The rustls configuration.
    pub config: Arc<ServerConfig>,
    /// Trust in the peers' certificates.
    pub trust: Arc<Trust>,
    /// Last second at which the serving certificate is valid; `None` if unreadable.
    pub serving_last: Option<Time>,
}

/// An error of the TLS configuration, with the file or the other source that it concerns.
#[derive(Debug, Error)]
#[error("{path}: {cause}")]
pub struct TlsConfigError {
    path: PathBuf,
    cause: TlsConfigErrorCause,
}

#[derive(Debug, Error)]
pub(super) enum TlsConfigErrorCause {
    #[error("{0}")]
    Io(io::Error),
    #[error("not PEM: {0}")]
    Pem(pem::Error),
    #[error("holds no PEM certificate")]
    NoCertificate,
    #[error("holds no PEM private key")]
    NoPrivateKey,
    #[error("no list of strings: {0}")]
    NoList(serde_json::Error),
    #[error("{}", rustls_words(.0))]
    Rustls(rustls::Error),
}

impl TlsConfigError {
    pub(super) fn new(path: &Path, cause: TlsConfigErrorCause) -> Self {
        Self { path: path.to_owned(), cause }
    }

    /// Returns the file, or the name of the other source.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }
}

fn rustls_words(error: &rustls::Error) -> String {
    match error {
        rustls::Error::InconsistentKeys(_) => "the private key does not belong to the certificate".to_owned(),
        e => e.to_string(),
    }
}

/// Builds the configuration of a server that requests a client certificate. Clients without a certificate are
/// accepted: each request is authorized separately, and health checks need no certificate. A certificate that `trust`
/// rejects is refused. The server prefers HTTP/2.
pub(super) fn rustls_config(serving: Arc<CertifiedKey>, trust: Arc<Trust>) -> ServerConfig {
    let mut config = ServerConfig::builder_with_details(provider(), Arc::new(WallClock))
        .with_protocol_versions(&[&rustls::version::TLS13, &rustls::version::TLS12])
        .expect("the provider has cipher suites of both versions")
        .with_client_cert_verifier(trust)
        .with_cert_resolver(Arc::new(SingleCertAndKey::from(serving)));
    config.alpn_protocols = [ALPN_HTTP_2, ALPN_HTTP_1_1].map(<[u8]>::to_vec).into();
    // No client can resume a TLS session. A resumed session keeps the client certificate of its first handshake, even
    // after the client has renewed this certificate. And rustls does not check whether that certificate has expired.
    // Clients of client-go lose nothing by full handshakes: client-go never resumes a session.
    config.session_storage = Arc::new(NoServerSessionStorage {});
    config.send_tls13_tickets = 0;
    config
}

/// Returns the default crypto provider of aws-lc-rs. All TLS code of this crate gets its provider from here.
#[must_use]
pub(crate) fn provider() -> Arc<CryptoProvider> {
    Arc::new(aws_lc_rs::default_provider())
}

/// Parses all certificates of a PEM text, at least one. `path` is its origin.
pub(super) fn certs_of(path: &Path, text: &[u8]) -> Result<Vec<CertificateDer<'static>>, TlsConfigError> {
    let certs = CertificateDer::pem_slice_iter(text)
        .collect::<Result<Vec<_>, _>>()
        .map_err(|e| TlsConfigError::new(path, TlsConfigErrorCause::Pem(e)))?;
    match certs.is_empty() {
        true => Err(TlsConfigError::new(path, TlsConfigErrorCause::NoCertificate)),
        false => Ok(certs),
    }
}

/// Parses the first private key of a PEM text.
pub(super) fn key_of(path: &Path, text: &[u8]) -> Result<PrivateKeyDer<'static>, TlsConfigError> {
    PrivateKeyDer::from_pem_slice(text).map_err(|e| match e {
        pem::Error::NoItemsFound => TlsConfigError::new(path, TlsConfigErrorCause::NoPrivateKey),
        e => TlsConfigError::new(path, TlsConfigErrorCause::Pem(e)),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tls::reload::Reloader;
    use crate::tls::source::{FrontProxySource, TlsSources};
    use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, DnType, IsCa, KeyPair};
    use rustls::pki_types::ServerName;
    use rustls::{ClientConfig, ClientConnection, RootCertStore, ServerConnection};
    use std::fs;

    struct Pki {
        dir: tempfile::TempDir,
        issuer: CertifiedIssuer<'static, KeyPair>,
    }

    impl Pki {
        fn new() -> Self {
            let dir = tempfile::tempdir().expect("a folder");
            let mut params = CertificateParams::default();
            params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
            params.distinguished_name.push(DnType::CommonName, "test CA");
            let issuer = CertifiedIssuer::self_signed(params, KeyPair::generate().expect("a key")).expect("a CA");
            fs::write(dir.path().join("ca.crt"), issuer.pem()).expect("written");
            let pki = Self { dir, issuer };
            for name in ["server", "client"] {
                let (cert, key) = pki.leaf(name);
                fs::write(pki.path(&format!("{name}.crt")), cert).expect("written");
                fs::write(pki.path(&format!("{name}.key")), key).expect("written");
            }
            pki
        }

        fn leaf(&self, name: &str) -> (String, String) {
            let key = KeyPair::generate().expect("a key");
            let mut params = CertificateParams::new(vec!["localhost".to_owned()]).expect("a name");
            params.distinguished_name.push(DnType::CommonName, name);
            (params.signed_by(&key, &self.issuer).expect("a certificate").pem(), key.serialize_pem())
        }

        fn path(&self, name: &str) -> PathBuf {
            self.dir.path().join(name)
        }

        fn server(&self, cert: &str, key: &str, client_ca: &str) -> Result<Arc<ServerConfig>, String> {
            let sources = TlsSources {
                cert: self.path(cert),
                key: self.path(key),
                client_ca: Some(self.path(client_ca)),
                front_proxy: FrontProxySource::None,
            };
            Reloader::new(sources).map(|(_, secure)| secure.config).map_err(|e| {
                let message = e.to_string();
                assert!(message.starts_with(&e.path().display().to_string()) && !message.contains('\n'), "{message}");
                message
            })
        }

        fn client(&self, own: Option<&str>, version: &'static rustls::SupportedProtocolVersion) -> ClientConfig {
            let mut roots = RootCertStore::empty();
            roots.add(self.issuer.der().clone()).expect("a root");
            let builder = ClientConfig::builder_with_provider(provider())
                .with_protocol_versions(&[version])
                .expect("versions")
                .with_root_certificates(roots);
            let mut config = match own {
                None => builder.with_no_client_auth(),
                Some(name) => {
                    let key = PrivateKeyDer::from_pem_file(self.path(&format!("{name}.key"))).expect("a key");
                    let chain = CertificateDer::pem_file_iter(self.path(&format!("{name}.crt"))).expect("a file");
                    let chain = chain.collect::<Result<Vec<_>, _>>().expect("certificates");
                    builder.with_client_auth_cert(chain, key).expect("a client configuration")
                }
            };
            config.alpn_protocols = vec![ALPN_HTTP_1_1.to_vec(), ALPN_HTTP_2.to_vec()];
            config
        }
    }

    /// Runs a TLS handshake in memory, until neither end has more output.
    fn handshake(
        server: &Arc<ServerConfig>,
        client: &Arc<ClientConfig>,
    ) -> Result<(ServerConnection, ClientConnection), rustls::Error> {
        let mut server = ServerConnection::new(server.clone()).expect("a server");
        let name = ServerName::try_from("localhost").expect("a name");
        let mut client = ClientConnection::new(client.clone(), name).expect("a client");
        while client.wants_write() || server.wants_write() {
            let mut wire = Vec::new();
            client.write_tls(&mut wire).expect("memory");
            let mut rest = wire.as_slice();
            while !rest.is_empty() {
                server.read_tls(&mut rest).expect("memory");
                server.process_new_packets()?;
            }
            let mut wire = Vec::new();
            server.write_tls(&mut wire).expect("memory");
            let mut rest = wire.as_slice();
            while !rest.is_empty() {
                client.read_tls(&mut rest).expect("memory");
                client.process_new_packets()?;
            }
        }
        Ok((server, client))
    }

    #[test]
    fn both_versions_take_clients_with_and_without_certificate_and_never_resume() {
        let pki = Pki::new();
        let server = pki.server("server.crt", "server.key", "ca.crt").expect("a configuration");
        for version in [&rustls::version::TLS12, &rustls::version::TLS13] {
            for own in [None, Some("client")] {
                let client = Arc::new(pki.client(own, version));
                for nth in 0..2 {
                    let (server, _client) = handshake(&server, &client).expect("a handshake");
                    assert_eq!(server.protocol_version(), Some(version.version));
                    let kind = server.handshake_kind();
                    assert_eq!(kind, Some(rustls::HandshakeKind::Full), "handshake {nth}, {version:?} {own:?}");
                    assert_eq!(server.alpn_protocol(), Some(ALPN_HTTP_2), "the server prefers HTTP/2");
                    let user =
                        server.peer_certificates().and_then(<[_]>::first).and_then(super::super::identity::identity_of);
                    assert_eq!(user.map(|id| id.user).as_deref(), own);
                }
            }
        }
    }

    #[test]
    fn a_client_of_another_authority_is_refused() {
        let (pki, other) = (Pki::new(), Pki::new());
        let server = pki.server("server.crt", "server.key", "ca.crt").expect("a configuration");
        for name in ["client.crt", "client.key"] {
            fs::copy(other.path(name), pki.path(name)).expect("copied");
        }
        let client = Arc::new(pki.client(Some("client"), &rustls::version::TLS13));
        assert!(matches!(handshake(&server, &client), Err(rustls::Error::InvalidCertificate(_))));
    }

    #[test]
    fn an_error_names_the_file_and_the_reason() {
        let pki = Pki::new();
        fs::write(pki.path("empty"), "").expect("written");
        fs::write(pki.path("noise"), "-----BEGIN CERTIFICATE-----\n!!\n-----END CERTIFICATE-----\n").expect("written");
        fs::write(pki.path("der"), "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n").expect("written");
        let failed = |cert, key, ca| pki.server(cert, key, ca).expect_err("an error");
        for (message, file, reason) in [
            (failed("absent", "server.key", "ca.crt"), "absent", "No such file"),
            (failed("empty", "server.key", "ca.crt"), "empty", "no PEM certificate"),
            (failed("noise", "server.key", "ca.crt"), "noise", "not PEM"),
            (failed("server.crt", "absent", "ca.crt"), "absent", "No such file"),
            (failed("server.crt", "ca.crt", "ca.crt"), "ca.crt", "no PEM private key"),
            (failed("server.crt", "client.key", "ca.crt"), "client.key", "does not belong"),
            (failed("server.crt", "server.key", "empty"), "empty", "no PEM certificate"),
            (failed("server.crt", "server.key", "der"), "der", "certificate"),
        ] {
            assert!(message.contains(file) && message.contains(reason), "{message}");
        }
    }
}
