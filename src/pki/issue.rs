//! Issues certificates with rcgen, and verifies them with the same verifier as a peer would use.

use crate::tls::config::provider;
use crate::tls::expiry::EXPIRES_SOON_SECONDS;
use crate::tls::identity::GROUP_MASTERS;
use rcgen::{
    BasicConstraints, Certificate, CertificateParams, DistinguishedName, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer,
    KeyPair, KeyUsagePurpose, PublicKeyData as _, SanType,
};
use rustls::client::WebPkiServerVerifier;
use rustls::client::danger::ServerCertVerifier as _;
use rustls::server::WebPkiClientVerifier;
use rustls::{CertificateError, RootCertStore};
use rustls_pki_types::{CertificateDer, ServerName, UnixTime};
use std::fmt::Write as _;
use std::net::IpAddr;
use std::sync::Arc;
use time::{Duration, OffsetDateTime};
use x509_parser::prelude::{FromDer as _, X509Certificate};

/// Remaining validity below which the server renews a certificate when the server starts. A running server does not
/// renew certificates, but logs a warning from the same remaining validity on.
pub(super) const RENEW_BEFORE: Duration = Duration::seconds(EXPIRES_SOON_SECONDS);
const AUTHORITY_VALIDITY: Duration = Duration::days(3650);
const LEAF_VALIDITY: Duration = Duration::days(365);
/// Time by which the validity of a new certificate begins before its issue, for peers whose clock is slow.
const BACKDATED: Duration = Duration::minutes(5);

/// A certificate that is not a CA certificate.
#[derive(Clone, Copy, Debug)]
pub(super) enum Leaf<'a> {
    /// A serving certificate for these names.
    Serving(&'a [ServerName<'static>]),
    /// The admin's client certificate, with all rights.
    Admin,
}

/// The facts of a certificate that decide whether it is renewed.
#[derive(Clone, Debug)]
pub(super) struct Facts {
    pub(super) is_ca: bool,
    pub(super) not_before: OffsetDateTime,
    pub(super) not_after: OffsetDateTime,
    public_key_info: Vec<u8>,
}

impl Facts {
    /// Whether `key` is the key of the certificate.
    pub(super) fn is_of(&self, key: &KeyPair) -> bool {
        key.subject_public_key_info() == self.public_key_info
    }
}

/// Parses a certificate to its facts; `None` if the certificate is malformed.
pub(super) fn facts_of(cert: &CertificateDer<'_>) -> Option<Facts> {
    let (_, cert) = X509Certificate::from_der(cert).ok()?;
    let time = |at: x509_parser::time::ASN1Time| OffsetDateTime::from_unix_timestamp(at.timestamp()).ok();
    Some(Facts {
        is_ca: cert.is_ca(),
        not_before: time(cert.validity().not_before)?,
        not_after: time(cert.validity().not_after)?,
        public_key_info: cert.public_key().raw.to_vec(),
    })
}

/// The verdict about a certificate that the CA has issued: whether to renew it, and why.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    /// The certificate is valid, and is not renewed.
    Good,
    /// The certificate is renewed, because it has expired or expires within [`RENEW_BEFORE`].
    Expiring,
    /// The certificate is renewed, because it lacks a name of the server.
    OtherNames,
}

/// Verifies `chain` as a peer that trusts `ca` would, and decides whether to renew the first certificate. `facts` are
/// the facts of this certificate. The error is the reason why the peer would refuse the chain.
pub(super) fn judge(
    leaf: &Leaf<'_>,
    chain: &[CertificateDer<'static>],
    ca: &CertificateDer<'static>,
    facts: &Facts,
    now: OffsetDateTime,
) -> Result<Verdict, rustls::Error> {
    let Some((cert, intermediates)) = chain.split_first() else {
        return Err(rustls::Error::NoCertificatesPresented);
    };
    let mut roots = RootCertStore::empty();
    roots.add(ca.clone())?;
    let roots = Arc::new(roots);
    let unfit = |e: rustls::server::VerifierBuilderError| rustls::Error::General(e.to_string());
    // Verifies the chain at a time at which the certificate was valid. So an expired certificate of this CA passes, and
    // a certificate of another CA fails. Only a certificate of this CA may be renewed.
    let seconds = u64::try_from(facts.not_before.unix_timestamp()).unwrap_or_default();
    let then = UnixTime::since_unix_epoch(std::time::Duration::from_secs(seconds));
    let mut lacks_name = false;
    match leaf {
        Leaf::Serving(names) => {
            let verifier = WebPkiServerVerifier::builder_with_provider(roots, provider()).build().map_err(unfit)?;
            for name in *names {
                match verifier.verify_server_cert(cert, intermediates, name, &[], then) {
                    Ok(_) => {}
                    Err(rustls::Error::InvalidCertificate(
                        CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. },
                    )) => lacks_name = true,
                    Err(e) => return Err(e),
                }
            }
        }
        Leaf::Admin => {
            let verifier = WebPkiClientVerifier::builder_with_provider(roots, provider()).build().map_err(unfit)?;
            verifier.verify_client_cert(cert, intermediates, then)?;
        }
    }
    Ok(match () {
        () if lacks_name => Verdict::OtherNames,
        () if facts.not_after <= now + RENEW_BEFORE => Verdict::Expiring,
        () => Verdict::Good,
    })
}

/// Issues the certificate of a new CA, and returns it in PEM. The name of the CA is derived from its key. So two CAs of
/// this program practically never have the same name, and one key always gives the same name.
pub(super) fn new_authority(key: &KeyPair) -> Result<String, rcgen::Error> {
    let now = OffsetDateTime::now_utc();
    let mut params = CertificateParams::default();
    let mut name = "coordination-apiserver-ca@".to_owned();
    for byte in params.key_identifier(key).iter().take(4) {
        _ = write!(name, "{byte:02x}");
    }
    params.distinguished_name = DistinguishedName::new();
    params.distinguished_name.push(DnType::CommonName, name);
    params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::DigitalSignature];
    params.not_before = now - BACKDATED;
    params.not_after = now + AUTHORITY_VALIDITY;
    Ok(params.self_signed(key)?.pem())
}

/// A CA that can issue certificates, since its key is present.
pub(super) struct Authority {
    issuer: Issuer<'static, KeyPair>,
    not_after: OffsetDateTime,
}

impl Authority {
    pub(super) fn new(cert: &CertificateDer<'_>, key: KeyPair) -> Result<Self, rcgen::Error> {
        let facts = facts_of(cert).ok_or(rcgen::Error::CouldNotParseCertificate)?;
        Ok(Self { issuer: Issuer::from_ca_cert_der(cert, key)?, not_after: facts.not_after })
    }

    /// Issues a certificate for `key`. The certificate never expires later than the certificate of the CA.
    pub(super) fn issue(
        &self,
        leaf: &Leaf<'_>,
        key: &KeyPair,
        now: OffsetDateTime,
    ) -> Result<Certificate, rcgen::Error> {
        let mut params = CertificateParams::default();
        params.distinguished_name = DistinguishedName::new();
        params.use_authority_key_identifier_extension = true;
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        params.not_before = now - BACKDATED;
        params.not_after = (now + LEAF_VALIDITY).min(self.not_after);
        match leaf {
            Leaf::Serving(names) => {
                params.distinguished_name.push(DnType::CommonName, "coordination-apiserver");
                params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
                params.subject_alt_names = names.iter().filter_map(san_of).collect();
            }
            Leaf::Admin => {
                params.distinguished_name.push(DnType::OrganizationName, GROUP_MASTERS);
                params.distinguished_name.push(DnType::CommonName, "admin");
                params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
            }
        }
        params.signed_by(key, &self.issuer)
    }
}

fn san_of(name: &ServerName<'static>) -> Option<SanType> {
    match name {
        ServerName::DnsName(name) => name.as_ref().try_into().ok().map(SanType::DnsName),
        ServerName::IpAddress(ip) => Some(SanType::IpAddress(IpAddr::from(*ip))),
        _ => None,
    }
}
