//! Certificate authorities that vouch for the same thing, each for as long as it is valid itself.
//!
//! To webpki a trust anchor is a name and a key, and it does not look at when it is valid. Go does (`crypto/x509`,
//! `Certificate.isValid`), and so does kube-apiserver: a key that was retired with its authority vouches for nobody. So
//! each authority has a verifier of its own here, which is asked only while the authority is valid.

use super::config::provider;
use super::identity::validity_of;
use crate::limits::INTERMEDIATES_MAX;
use crate::timestamp::Time;
use rustls::server::WebPkiClientVerifier;
use rustls::server::danger::ClientCertVerifier;
use rustls::{CertificateError, DistinguishedName, RootCertStore};
use rustls_pki_types::{CertificateDer, UnixTime};
use std::ops::RangeInclusive;
use std::sync::Arc;

/// Authorities of one kind; none certifies nobody.
#[derive(Clone, Debug, Default)]
pub struct Authorities(Vec<Authority>);

#[derive(Clone, Debug)]
struct Authority {
    validity: RangeInclusive<Time>,
    verifier: Arc<dyn ClientCertVerifier>,
}

impl Authorities {
    /// These authorities.
    ///
    /// # Errors
    /// rustls's, if one of the certificates is of no use.
    pub fn new(certs: Vec<CertificateDer<'static>>) -> Result<Self, rustls::Error> {
        let authority = |cert: CertificateDer<'static>| {
            let validity =
                validity_of(&cert).ok_or(rustls::Error::InvalidCertificate(CertificateError::BadEncoding))?;
            let mut root = RootCertStore::empty();
            root.add(cert)?;
            let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(root), provider())
                .build()
                .map_err(|e| rustls::Error::General(e.to_string()))?;
            Ok(Authority { validity, verifier })
        };
        certs.into_iter().map(authority).collect::<Result<_, _>>().map(Self)
    }

    /// Their subjects, from which a client chooses its certificate.
    pub(super) fn subjects(&self) -> impl Iterator<Item = DistinguishedName> {
        self.0.iter().flat_map(|authority| authority.verifier.root_hint_subjects().iter().cloned())
    }

    /// Verifies a client's certificate at the time `now`, and gives the last second at which the authority that vouches
    /// for it is valid.
    ///
    /// # Errors
    /// rustls's, `UnknownIssuer` if nobody who is valid now has issued it, or if more than [`INTERMEDIATES_MAX`] come with it.
    pub(super) fn verify(
        &self,
        own: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        now: UnixTime,
    ) -> Result<Time, rustls::Error> {
        let mut refusal = UNKNOWN_ISSUER;
        if intermediates.len() > INTERMEDIATES_MAX {
            return Err(refusal);
        }
        let at = Time(i64::try_from(now.as_secs()).unwrap_or(i64::MAX));
        for authority in self.0.iter().filter(|authority| authority.validity.contains(&at)) {
            match authority.verifier.verify_client_cert(own, intermediates, now) {
                Ok(_) => return Ok(*authority.validity.end()),
                Err(error) => refusal = graver(refusal, error),
            }
        }
        Err(refusal)
    }
}

/// That one authority does not know the issuer says less than what another finds wrong.
pub(super) fn graver(refusal: rustls::Error, other: rustls::Error) -> rustls::Error {
    if other == UNKNOWN_ISSUER { refusal } else { other }
}

/// What is wrong where nobody vouches.
pub(super) const UNKNOWN_ISSUER: rustls::Error = rustls::Error::InvalidCertificate(CertificateError::UnknownIssuer);
