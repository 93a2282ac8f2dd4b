//! Certificate authorities (CAs) for one purpose, each valid for its own period.
//!
//! A trust anchor in webpki is only a name and a key. webpki ignores the anchor's validity and the usages that its
//! certificate allows. Go checks the validity and the usages (`crypto/x509`, `Certificate.Verify`), and so does
//! kube-apiserver. In kube-apiserver, an expired CA certifies nobody. A client certificate among the CAs certifies only
//! its own client. So this module builds a verifier for each CA. The verifier is used only while the CA is valid, and
//! only for peers that the CA may certify.

use super::config::provider;
use super::identity::validity;
use crate::limits::{CHAIN_BYTES_MAX, INTERMEDIATES_MAX};
use crate::timestamp::Time;
use rustls::server::WebPkiClientVerifier;
use rustls::server::danger::ClientCertVerifier;
use rustls::{CertificateError, DistinguishedName, RootCertStore};
use rustls_pki_types::{CertificateDer, UnixTime};
use std::ops::RangeInclusive;
use std::sync::Arc;
use x509_parser::certificate::X509Certificate;
use x509_parser::error::X509Error;
use x509_parser::prelude::FromDer;
use x509_parser::x509::X509Version;

/// CAs for one purpose. An empty set certifies nobody.
#[derive(Clone, Debug, Default)]
pub struct Authorities(Vec<Authority>);

#[derive(Clone, Debug)]
struct Authority {
    cert: CertificateDer<'static>,
    validity: RangeInclusive<Time>,
    certifies: Certifies,
    verifier: Arc<dyn ClientCertVerifier>,
}

/// The peers that the key of a certificate may certify.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Certifies {
    /// Clients, with at most `intermediates_max` intermediate CAs in the path.
    Clients { intermediates_max: usize },
    /// Only the certificate itself, which is trusted because it is among the CAs.
    Itself,
    /// No clients.
    Nobody,
}

impl Certifies {
    /// Returns the peers that the key of `cert` may certify. Applies RFC 5280 §4.2.1.3, §4.2.1.9 and §4.2.1.12 as Go
    /// does. A certificate before version 3 has no constraints. The extended key usages of a CA limit all certificates
    /// below it. Each intermediate CA counts for the path length.
    fn of(cert: &X509Certificate<'_>) -> Result<Self, X509Error> {
        let constraints = cert.basic_constraints()?.map(|extension| extension.value);
        let is_authority = match constraints {
            Some(constraints) => constraints.ca,
            None => cert.version() != X509Version::V3,
        };
        let key_usage = cert.key_usage()?.map(|extension| extension.value);
        let may_sign = key_usage.is_none_or(|usage| usage.flags == 0 || usage.key_cert_sign());
        let extended = cert.extended_key_usage()?.map(|extension| extension.value);
        let may_be_for_clients = extended.is_none_or(|usage| usage.any || usage.client_auth);
        if !may_be_for_clients {
            return Ok(Self::Nobody);
        }
        if !(is_authority && may_sign) {
            return Ok(Self::Itself);
        }
        let path_len = constraints.and_then(|constraints| constraints.path_len_constraint);
        let intermediates_max = path_len.map_or(usize::MAX, |len| usize::try_from(len).unwrap_or(usize::MAX));
        Ok(Self::Clients { intermediates_max })
    }
}

impl Authorities {
    /// Creates a set of these CAs.
    ///
    /// # Errors
    /// rustls's error if a certificate is malformed or contradicts itself. A certificate that may certify nobody is
    /// accepted.
    pub fn new(certs: Vec<CertificateDer<'static>>) -> Result<Self, rustls::Error> {
        let authority = |cert: CertificateDer<'static>| {
            let (validity, certifies) =
                read(&cert).map_err(|_| rustls::Error::InvalidCertificate(CertificateError::BadEncoding))?;
            let mut root = RootCertStore::empty();
            root.add(cert.clone())?;
            let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(root), provider())
                .build()
                .map_err(|e| rustls::Error::General(e.to_string()))?;
            Ok(Authority { cert, validity, certifies, verifier })
        };
        certs.into_iter().map(authority).collect::<Result<_, _>>().map(Self)
    }

    /// Whether the two sets share a CA.
    #[must_use]
    pub(super) fn overlap(&self, those: &Self) -> bool {
        self.0.iter().any(|one| those.0.iter().any(|other| other.cert == one.cert))
    }

    /// Returns the first and the last second at which any of the CAs is valid; `None` without CAs. A replaced CA may
    /// stay in the set until it expires, so the set expires with its last CA.
    pub(super) fn validity(&self) -> Option<RangeInclusive<Time>> {
        let first = self.0.iter().map(|authority| *authority.validity.start()).min()?;
        let last = self.0.iter().map(|authority| *authority.validity.end()).max()?;
        Some(first..=last)
    }

    /// Returns the subjects of the CAs. By these, a client chooses its certificate.
    pub(super) fn subjects(&self) -> impl Iterator<Item = DistinguishedName> {
        self.0.iter().flat_map(|authority| authority.verifier.root_hint_subjects().iter().cloned())
    }

    /// Verifies a client's certificate at the time `now`, and returns the last second at which its CA is valid.
    ///
    /// # Errors
    /// rustls's error. `UnknownIssuer` means that no valid CA has issued the certificate, or that the peer sent too
    /// much: more than [`INTERMEDIATES_MAX`] further certificates, or more than [`CHAIN_BYTES_MAX`] bytes of
    /// certificates.
    pub(super) fn verify(
        &self,
        own: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        now: UnixTime,
    ) -> Result<Time, rustls::Error> {
        let mut refusal = UNKNOWN_ISSUER;
        let chain_bytes = own.len() + intermediates.iter().map(|cert| cert.len()).sum::<usize>();
        if intermediates.len() > INTERMEDIATES_MAX || chain_bytes > CHAIN_BYTES_MAX {
            return Err(refusal);
        }
        let at = Time(i64::try_from(now.as_secs()).unwrap_or(i64::MAX));
        for authority in self.0.iter().filter(|authority| authority.validity.contains(&at)) {
            let intermediates_max = match authority.certifies {
                Certifies::Itself if authority.cert == *own => return Ok(*authority.validity.end()),
                Certifies::Itself | Certifies::Nobody => continue,
                Certifies::Clients { intermediates_max } => intermediates_max,
            };
            // Intermediates come in path order, the issuer of the client's certificate first (RFC 5246 §7.4.2). So the
            // path to this CA may use only the first `intermediates_max` of them.
            let intermediates = intermediates.get(..intermediates_max).unwrap_or(intermediates);
            match authority.verifier.verify_client_cert(own, intermediates, now) {
                Ok(_) => return Ok(*authority.validity.end()),
                Err(error) => refusal = graver(refusal, error),
            }
        }
        Err(refusal)
    }
}

/// Returns a certificate's validity, and whom its key may certify.
fn read(cert: &CertificateDer<'_>) -> Result<(RangeInclusive<Time>, Certifies), X509Error> {
    let (_, cert) = X509Certificate::from_der(cert)?;
    Ok((validity(&cert), Certifies::of(&cert)?))
}

/// Returns the more specific error. Any error is more specific than [`UNKNOWN_ISSUER`].
pub(super) fn graver(refusal: rustls::Error, other: rustls::Error) -> rustls::Error {
    if other == UNKNOWN_ISSUER { refusal } else { other }
}

/// The error if no CA has issued the certificate.
pub(super) const UNKNOWN_ISSUER: rustls::Error = rustls::Error::InvalidCertificate(CertificateError::UnknownIssuer);
