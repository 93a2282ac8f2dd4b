//! Issues certificates with rcgen, and verifies them with the same verifier as a peer.

use crate::tls::config::provider;
use crate::tls::identity::GROUP_MASTERS;
use crate::tls::reload::EXPIRES_SOON_SECONDS;
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

/// A certificate is renewed if less than this time of its validity is left. The server checks this only at its start.
/// The log begins to warn about a running server's certificate at the same time.
pub(super) const RENEW_BEFORE: Duration = Duration::seconds(EXPIRES_SOON_SECONDS);
const AUTHORITY_VALIDITY: Duration = Duration::days(3650);
const LEAF_VALIDITY: Duration = Duration::days(365);
/// The validity of a new certificate begins this long before its issue, for peers whose clock is a little late.
const BACKDATED: Duration = Duration::minutes(5);

/// A certificate that is not a CA certificate.
#[derive(Clone, Copy, Debug)]
pub(super) enum Leaf<'a> {
    /// A serving certificate for these names.
    Serving(&'a [ServerName<'static>]),
    /// A client certificate with all rights.
    Admin,
}

/// The relevant facts of a certificate.
#[derive(Clone, Debug)]
pub(super) struct Facts {
    pub(super) is_ca: bool,
    pub(super) not_before: OffsetDateTime,
    pub(super) not_after: OffsetDateTime,
    public_key_info: Vec<u8>,
}

impl Facts {
    /// Whether `key` belongs to the certificate.
    pub(super) fn is_of(&self, key: &KeyPair) -> bool {
        key.subject_public_key_info() == self.public_key_info
    }
}

/// Reads the facts of a certificate; `None` if it is malformed.
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

/// What to do with a certificate that the CA issued.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    /// Keep the certificate.
    Good,
    /// Renew the certificate, because it expires within [`RENEW_BEFORE`] or has expired.
    Expiring,
    /// Renew the certificate, because it lacks a name.
    OtherNames,
}

/// Judges `chain` like a peer that trusts `ca`. `facts` are those of the first certificate. The error is the reason
/// for which the peer would refuse the chain.
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
    // Verifies at a time when the certificate was valid. So an expired certificate of this CA passes, and a
    // certificate of a different CA fails. Only the former may be renewed.
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

/// Issues the certificate of a new CA, in PEM. The CA's name is derived from its key. So two CAs of this program never
/// share a name, and the same key gives the same name.
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

/// A CA that can issue certificates.
pub(super) struct Authority {
    issuer: Issuer<'static, KeyPair>,
    not_after: OffsetDateTime,
}

impl Authority {
    pub(super) fn new(cert: &CertificateDer<'_>, key: KeyPair) -> Result<Self, rcgen::Error> {
        let facts = facts_of(cert).ok_or(rcgen::Error::CouldNotParseCertificate)?;
        Ok(Self { issuer: Issuer::from_ca_cert_der(cert, key)?, not_after: facts.not_after })
    }

    /// Issues a certificate for `key`. The certificate never expires after the CA.
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
