//! Certificates for tests, new in each process: an authority, a serving certificate, and client certificates.

use coordination_apiserver::tls::config::Secure;
use coordination_apiserver::tls::reload::Reloader;
use coordination_apiserver::tls::source::{FrontProxySource, TlsSources};
use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, DnType, ExtendedKeyUsagePurpose, IsCa, KeyPair,
    KeyUsagePurpose,
};
use rustls::crypto::aws_lc_rs;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer};
use rustls::{ClientConfig, RootCertStore};
use std::fs;
use std::path::Path;
use std::sync::{Arc, LazyLock};
use std::time::{Duration, SystemTime};

/// The authority that issues serving certificates and that servers of this process trust.
pub(crate) static AUTHORITY: LazyLock<Authority> = LazyLock::new(Authority::new);

/// A certificate authority.
pub(crate) struct Authority(CertifiedIssuer<'static, KeyPair>);

impl Authority {
    /// Creates a new authority, which no server trusts yet.
    ///
    /// # Panics
    /// If the key cannot be generated.
    pub(crate) fn new() -> Self {
        let mut params = CertificateParams::default();
        params.distinguished_name.push(DnType::CommonName, "test-ca");
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::DigitalSignature];
        let key = KeyPair::generate().expect("a key can be made");
        Self(CertifiedIssuer::self_signed(params, key).expect("an authority can be made"))
    }

    /// Returns the configuration of a server that requests client certificates of this authority.
    ///
    /// # Panics
    /// If a step of its creation fails.
    pub(crate) fn server_config(&self) -> Secure {
        let folder = tempfile::tempdir().expect("a temporary folder can be made");
        let [cert_file, key_file, ca_file] = ["tls.crt", "tls.key", "ca.crt"].map(|name| folder.path().join(name));
        self.write_serving(folder.path());
        fs::write(&ca_file, self.pem()).expect("the authority can be written");
        let sources = TlsSources {
            cert: cert_file,
            key: key_file,
            client_ca: Some(ca_file),
            front_proxy: FrontProxySource::None,
        };
        Reloader::new(sources).expect("the files fit").1
    }

    /// Returns the authority's certificate.
    pub(crate) fn pem(&self) -> String {
        self.0.pem()
    }

    /// Writes a new serving certificate and its key to `tls.crt` and `tls.key`.
    ///
    /// # Panics
    /// If that fails.
    pub(crate) fn write_serving(&self, folder: &Path) {
        let key = KeyPair::generate().expect("a key can be made");
        let names = vec!["localhost".to_owned(), "127.0.0.1".to_owned()];
        let mut params = CertificateParams::new(names).expect("the names are valid");
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
        let cert = params.signed_by(&key, &self.0).expect("a certificate can be made");
        fs::write(folder.join("tls.crt"), cert.pem()).expect("the certificate can be written");
        fs::write(folder.join("tls.key"), key.serialize_pem()).expect("the key can be written");
    }

    /// Returns the configuration of a client that trusts [`AUTHORITY`] and has an expired certificate of this
    /// authority.
    ///
    /// # Panics
    /// If the certificate cannot be created.
    pub(crate) fn expired_client_config(&self, user: &str) -> Arc<ClientConfig> {
        self.client_config_of(user, &[], |params| params.not_after = rcgen::date_time_ymd(2020, 1, 1))
    }

    /// Returns the configuration of a client that trusts [`AUTHORITY`] and has a certificate of this authority, which
    /// expires after `valid`.
    ///
    /// # Panics
    /// If the certificate cannot be created.
    pub(crate) fn short_client_config(&self, user: &str, groups: &[&str], valid: Duration) -> Arc<ClientConfig> {
        self.client_config_of(user, groups, |params| params.not_after = (SystemTime::now() + valid).into())
    }

    /// Returns the configuration of a client that trusts [`AUTHORITY`] and has a certificate of this authority.
    ///
    /// # Panics
    /// If the certificate cannot be created.
    pub(crate) fn client_config(&self, user: &str, groups: &[&str]) -> Arc<ClientConfig> {
        self.client_config_of(user, groups, |_| {})
    }

    fn client_config_of(
        &self,
        user: &str,
        groups: &[&str],
        change: impl FnOnce(&mut CertificateParams),
    ) -> Arc<ClientConfig> {
        let key = KeyPair::generate().expect("a key can be made");
        let mut params = CertificateParams::default();
        params.distinguished_name.push(DnType::CommonName, user);
        for group in groups {
            params.distinguished_name.push(DnType::OrganizationName, *group);
        }
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
        change(&mut params);
        let cert = params.signed_by(&key, &self.0).expect("a certificate can be made");
        let key = PrivateKeyDer::from(PrivatePkcs8KeyDer::from(key.serialize_der()));
        client_config(Some((cert.der().clone(), key)))
    }
}

/// Returns the configuration of a client that trusts [`AUTHORITY`] and has no certificate.
///
/// # Panics
/// If a step of its creation fails.
pub(crate) fn anonymous_client_config() -> Arc<ClientConfig> {
    client_config(None)
}

/// Returns the configuration of a client that trusts [`AUTHORITY`] and has all rights.
pub(crate) fn admin_client_config() -> Arc<ClientConfig> {
    AUTHORITY.client_config("test-admin", &["system:masters"])
}

fn client_config(identity: Option<(CertificateDer<'static>, PrivateKeyDer<'static>)>) -> Arc<ClientConfig> {
    let mut roots = RootCertStore::empty();
    roots.add(AUTHORITY.0.der().clone()).expect("the certificate is valid");
    let builder = ClientConfig::builder_with_provider(Arc::new(aws_lc_rs::default_provider()))
        .with_safe_default_protocol_versions()
        .expect("the provider has the versions")
        .with_root_certificates(roots);
    Arc::new(match identity {
        Some((cert, key)) => {
            builder.with_client_auth_cert(vec![cert], key).expect("the key belongs to the certificate")
        }
        None => builder.with_no_client_auth(),
    })
}
