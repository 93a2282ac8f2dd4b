//! Whose client certificates are believed, and what one of them proves.
//!
//! There are two authorities, and they say different things. The client CA names users; a certificate of the
//! front-proxy CA, of an allowed Common Name, lets its bearer name users in field lines. The handshake lets in who is
//! certified by either, or shows nothing; which one it was is found out afterwards by [`Trust::prove`], since rustls
//! does not verify again when a session is resumed.

use super::identity::{Identity, common_name_of, identity_of, not_after_of};
use crate::auth::request_header::HeaderNames;
use crate::lease::Time;
use rustls::client::danger::HandshakeSignatureValid;
use rustls::crypto::{CryptoProvider, WebPkiSupportedAlgorithms, verify_tls12_signature, verify_tls13_signature};
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::server::{VerifierBuilderError, WebPkiClientVerifier};
use rustls::{CertificateError, DigitallySignedStruct, DistinguishedName, RootCertStore, SignatureScheme};
use rustls_pki_types::{CertificateDer, UnixTime};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

/// The authorities of clients, and how a front proxy is known and speaks.
#[derive(Debug)]
pub struct Trust {
    clients: Authority,
    front_proxy: Authority,
    /// Common Names of a front proxy; none is any.
    allowed_names: Vec<String>,
    header_names: HeaderNames,
    /// Subjects of all authorities, from which a client chooses its certificate.
    subjects: Vec<DistinguishedName>,
    algorithms: WebPkiSupportedAlgorithms,
    is_complete: bool,
}

/// One authority; none certifies nobody.
type Authority = Option<Arc<dyn ClientCertVerifier>>;

/// How a front proxy is known, and in which field lines it speaks.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FrontProxy {
    /// Common Names that it may have; none is any.
    pub allowed_names: Vec<String>,
    /// The names of the field lines.
    pub header_names: HeaderNames,
}

/// What a peer's certificates prove.
#[derive(Clone, Debug)]
pub struct Proof {
    /// Who it is, if the client CA says so.
    pub user: Option<Rc<Identity>>,
    /// It may speak for others.
    pub is_front_proxy: bool,
    /// From when on this must be proven again.
    pub until: Time,
}

impl Trust {
    /// Trust in these authorities. `is_complete` is whether nothing is still to be learned from the cluster.
    ///
    /// # Errors
    /// rustls's, if the roots are of no use.
    pub fn new(
        provider: &Arc<CryptoProvider>,
        clients: RootCertStore,
        proxies: RootCertStore,
        front_proxy: FrontProxy,
        is_complete: bool,
    ) -> Result<Self, VerifierBuilderError> {
        let mut subjects = clients.subjects();
        subjects.extend(proxies.subjects());
        let authority = |roots: RootCertStore| {
            if roots.is_empty() {
                return Ok(None);
            }
            WebPkiClientVerifier::builder_with_provider(Arc::new(roots), Arc::clone(provider)).build().map(Some)
        };
        Ok(Self {
            clients: authority(clients)?,
            front_proxy: authority(proxies)?,
            allowed_names: front_proxy.allowed_names,
            header_names: front_proxy.header_names,
            subjects,
            algorithms: provider.signature_verification_algorithms,
            is_complete,
        })
    }

    /// Trust in nobody, for a server without TLS.
    #[must_use]
    pub fn nobody() -> Self {
        Self {
            clients: None,
            front_proxy: None,
            allowed_names: Vec::new(),
            header_names: HeaderNames::default(),
            subjects: Vec::new(),
            algorithms: super::config::provider().signature_verification_algorithms,
            is_complete: true,
        }
    }

    /// Whether all is known that is to be known; before that the server is not ready.
    #[must_use]
    pub fn is_complete(&self) -> bool {
        self.is_complete
    }

    /// The field lines in which a front proxy speaks.
    #[must_use]
    pub fn header_names(&self) -> &HeaderNames {
        &self.header_names
    }

    /// What a chain proves at the time `now`; the peer's own certificate is first.
    #[must_use]
    pub fn prove(&self, chain: &[CertificateDer<'_>], now: Time) -> Proof {
        let Some((own, intermediates)) = chain.split_first() else {
            return Proof { user: None, is_front_proxy: false, until: Time(i64::MAX) };
        };
        let at = UnixTime::since_unix_epoch(Duration::from_secs(u64::try_from(now.0).unwrap_or(0)));
        let is_of = |authority: &Authority| {
            authority.as_ref().is_some_and(|ca| ca.verify_client_cert(own, intermediates, at).is_ok())
        };
        let is_front_proxy = is_of(&self.front_proxy) && self.is_allowed(own);
        let user = is_of(&self.clients).then(|| identity_of(own)).flatten().map(Rc::new);
        let is_proven = is_front_proxy || user.is_some();
        // What is refused stays refused for as long as the trust is the same: time does not mend certificates, except
        // one that is not valid yet, whose bearer may come again.
        let until = if is_proven { chain.iter().filter_map(not_after_of).min() } else { None };
        Proof { user, is_front_proxy, until: until.map_or(Time(i64::MAX), |last| Time(last.0.saturating_add(1))) }
    }

    fn is_allowed(&self, own: &CertificateDer<'_>) -> bool {
        self.allowed_names.is_empty() || common_name_of(own).is_some_and(|name| self.allowed_names.contains(&name))
    }
}

impl ClientCertVerifier for Trust {
    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        &self.subjects
    }

    /// Who shows nothing comes in: health checks need no identity, and who is asked for one is told with each request.
    fn client_auth_mandatory(&self) -> bool {
        false
    }

    fn verify_client_cert(
        &self,
        own: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        now: UnixTime,
    ) -> Result<ClientCertVerified, rustls::Error> {
        let mut refusal = rustls::Error::InvalidCertificate(CertificateError::UnknownIssuer);
        for authority in [&self.clients, &self.front_proxy].into_iter().flatten() {
            match authority.verify_client_cert(own, intermediates, now) {
                Ok(verified) => return Ok(verified),
                // That one of them does not know the issuer says less than what the other finds wrong.
                Err(rustls::Error::InvalidCertificate(CertificateError::UnknownIssuer)) => {}
                Err(error) => refusal = error,
            }
        }
        Err(refusal)
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        own: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls12_signature(message, own, signature, &self.algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        own: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls13_signature(message, own, signature, &self.algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.algorithms.supported_schemes()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, DnType, IsCa, KeyPair, date_time_ymd};

    struct Ca(CertifiedIssuer<'static, KeyPair>);

    impl Ca {
        fn new(name: &str) -> Self {
            let mut params = CertificateParams::default();
            params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
            params.distinguished_name.push(DnType::CommonName, name);
            Self(CertifiedIssuer::self_signed(params, KeyPair::generate().expect("a key")).expect("a CA"))
        }

        fn leaf(&self, name: &str) -> CertificateDer<'static> {
            let mut params = CertificateParams::default();
            params.distinguished_name.push(DnType::CommonName, name);
            params.not_before = date_time_ymd(2020, 1, 1);
            params.not_after = date_time_ymd(2030, 1, 1);
            let key = KeyPair::generate().expect("a key");
            params.signed_by(&key, &self.0).expect("a certificate").der().clone()
        }

        fn roots(&self) -> RootCertStore {
            let mut roots = RootCertStore::empty();
            roots.add(self.0.der().clone()).expect("a root");
            roots
        }
    }

    fn trust(clients: RootCertStore, proxies: RootCertStore, allowed: &[&str]) -> Trust {
        let allowed_names = allowed.iter().map(|name| (*name).to_owned()).collect();
        let front_proxy = FrontProxy { allowed_names, ..FrontProxy::default() };
        Trust::new(&super::super::config::provider(), clients, proxies, front_proxy, true).expect("trust")
    }

    /// 2026-01-01 and the last second of the leaves' validity.
    const NOW: Time = Time(1_767_225_600);
    const LAST: Time = Time(1_893_456_000);

    fn found(trust: &Trust, cert: &CertificateDer<'static>, now: Time) -> (Option<String>, bool) {
        let proof = trust.prove(std::slice::from_ref(cert), now);
        (proof.user.map(|user| user.user.clone()), proof.is_front_proxy)
    }

    #[test]
    fn each_authority_says_its_own() {
        let (clients, proxies, others) = (Ca::new("clients"), Ca::new("proxies"), Ca::new("others"));
        let (alice, proxy) = (clients.leaf("alice"), proxies.leaf("front-proxy-client"));
        for allowed in [&[][..], &["front-proxy-client"], &["x", "front-proxy-client"]] {
            let trust = trust(clients.roots(), proxies.roots(), allowed);
            assert_eq!(found(&trust, &alice, NOW), (Some("alice".into()), false));
            assert_eq!(found(&trust, &proxy, NOW), (None, true));
            assert_eq!(found(&trust, &others.leaf("front-proxy-client"), NOW), (None, false));
        }
        let strict = trust(clients.roots(), proxies.roots(), &["aggregator"]);
        assert_eq!(found(&strict, &proxy, NOW), (None, false));
        // The right name of the wrong authority.
        assert_eq!(found(&strict, &clients.leaf("aggregator"), NOW), (Some("aggregator".into()), false));
    }

    #[test]
    fn one_authority_may_be_both() {
        let ca = Ca::new("both");
        let trust = trust(ca.roots(), ca.roots(), &["proxy"]);
        assert_eq!(found(&trust, &ca.leaf("proxy"), NOW), (Some("proxy".into()), true));
        assert_eq!(found(&trust, &ca.leaf("alice"), NOW), (Some("alice".into()), false));
    }

    /// Two authorities of one name are still two.
    #[test]
    fn an_authority_is_its_key_and_not_its_name() {
        let (clients, proxies) = (Ca::new("kubernetes"), Ca::new("kubernetes"));
        let trust = trust(clients.roots(), proxies.roots(), &[]);
        assert_eq!(found(&trust, &clients.leaf("a"), NOW), (Some("a".into()), false));
        assert_eq!(found(&trust, &proxies.leaf("b"), NOW), (None, true));
    }

    #[test]
    fn a_proof_ends_with_the_certificate() {
        let (clients, proxies) = (Ca::new("clients"), Ca::new("proxies"));
        let trust = trust(clients.roots(), proxies.roots(), &[]);
        let chain = [clients.leaf("alice")];
        assert_eq!(trust.prove(&chain, NOW).until, Time(LAST.0 + 1));
        assert!(trust.prove(&chain, LAST).user.is_some());
        assert!(trust.prove(&chain, Time(LAST.0 + 1)).user.is_none());
        assert!(trust.prove(&[], NOW).user.is_none());
    }

    #[test]
    fn who_trusts_nobody_lets_nobody_in() {
        let alice = Ca::new("clients").leaf("alice");
        let at = UnixTime::since_unix_epoch(Duration::from_secs(1_767_225_600));
        assert!(Trust::nobody().verify_client_cert(&alice, &[], at).is_err());
        assert_eq!(found(&Trust::nobody(), &alice, NOW), (None, false));
    }
}
