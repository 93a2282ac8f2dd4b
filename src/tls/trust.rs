//! Decides which client certificates to trust, and which identities they prove.
//!
//! There are two kinds of CAs. A certificate of the client CA names a user. A certificate of the front-proxy CA with an
//! allowed Common Name lets the peer name users in field lines. The handshake accepts a certificate of any of these
//! CAs, or no certificate. After the handshake, [`Trust::prove`] determines the CA of the certificate.

use super::authorities::{Authorities, UNKNOWN_ISSUER, graver};
use super::identity::{Identity, common_name_of, identity_of, validity_of};
use crate::timestamp::Time;
use rustls::client::danger::HandshakeSignatureValid;
use rustls::crypto::{WebPkiSupportedAlgorithms, verify_tls12_signature, verify_tls13_signature};
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::{DigitallySignedStruct, DistinguishedName, SignatureScheme};
use rustls_pki_types::{CertificateDer, UnixTime};
use std::rc::Rc;
use std::time::Duration;

/// The client CAs and front-proxy CAs, and the front proxy's configuration.
#[derive(Debug)]
pub struct Trust {
    clients: Authorities,
    front_proxy: Authorities,
    /// Allowed Common Names of a front proxy; an empty list allows any name.
    allowed_names: Vec<String>,
    header_names: HeaderNames,
    /// Subjects of all CAs. The server sends them, so that a client can choose its certificate.
    subjects: Vec<DistinguishedName>,
    algorithms: WebPkiSupportedAlgorithms,
    is_complete: bool,
}

/// The Common Names by which a front proxy is recognised, and the field lines that it uses.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct FrontProxy {
    /// Allowed Common Names; an empty list allows any name.
    pub allowed_names: Vec<String>,
    /// Names of the front proxy's field lines.
    pub header_names: HeaderNames,
}

/// Names of the field lines in which a front proxy names a user, compared case-insensitively (RFC 9110 §5.1).
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct HeaderNames {
    /// Field names for the user name, tried in order. Of each name, the server reads the first line. The first value
    /// that is not empty counts.
    pub username: Vec<String>,
    /// Field names for groups. Every line of every name counts.
    pub group: Vec<String>,
    /// Field names for the user's UID, with the same rule as for the user name.
    pub uid: Vec<String>,
    /// Prefixes of field names for further attributes (`Extra`). The rest of the field name is the attribute's key.
    pub extra_prefix: Vec<String>,
}

impl Default for HeaderNames {
    fn default() -> Self {
        Self {
            username: vec!["X-Remote-User".into()],
            group: vec!["X-Remote-Group".into()],
            uid: vec!["X-Remote-Uid".into()],
            extra_prefix: vec!["X-Remote-Extra-".into()],
        }
    }
}

/// The identities that a peer's certificates prove.
#[derive(Clone, Debug)]
pub struct Proof {
    /// The user, if the client CA certifies one.
    pub user: Option<Rc<Identity>>,
    /// Whether the peer is a front proxy.
    pub is_front_proxy: bool,
    /// Time at which the certificates must be evaluated again.
    pub until: Time,
}

impl Trust {
    /// Creates trust in these CAs. `is_complete` is false while the server still waits for valid CAs from the cluster.
    #[must_use]
    pub fn new(clients: Authorities, proxies: Authorities, front_proxy: FrontProxy, is_complete: bool) -> Self {
        Self {
            subjects: clients.subjects().chain(proxies.subjects()).collect(),
            clients,
            front_proxy: proxies,
            allowed_names: front_proxy.allowed_names,
            header_names: front_proxy.header_names,
            algorithms: super::config::provider().signature_verification_algorithms,
            is_complete,
        }
    }

    /// Creates trust in no CA, for a server without TLS.
    #[must_use]
    pub fn none() -> Self {
        Self::new(Authorities::default(), Authorities::default(), FrontProxy::default(), true)
    }

    /// Whether the server knows the client CAs and the front-proxy CAs. It does not know them while the cluster's
    /// settings are missing, or have never been valid. As long as they are unknown, the server is not ready.
    #[must_use]
    pub fn is_complete(&self) -> bool {
        self.is_complete
    }

    /// Returns the names of the front proxy's field lines.
    #[must_use]
    pub fn header_names(&self) -> &HeaderNames {
        &self.header_names
    }

    /// Evaluates a certificate chain at the time `now`. The peer's own certificate comes first in `chain`.
    #[must_use]
    pub fn prove(&self, chain: &[CertificateDer<'_>], now: Time) -> Proof {
        let Some((own, intermediates)) = chain.split_first() else {
            return Proof { user: None, is_front_proxy: false, until: Time(i64::MAX) };
        };
        let at = UnixTime::since_unix_epoch(Duration::from_secs(u64::try_from(now.0).unwrap_or(0)));
        let vouched = |authorities: &Authorities| authorities.verify(own, intermediates, at).ok();
        let proxy_last = vouched(&self.front_proxy).filter(|_| self.is_allowed(own));
        let user = vouched(&self.clients).and_then(|last| Some((Rc::new(identity_of(own)?), last)));
        // A proof of no identity remains valid while the configured CAs are unchanged, since an invalid certificate
        // does not become valid with time. The exception is a certificate that is not valid yet: its owner must
        // reconnect later.
        let authorities_last = proxy_last.into_iter().chain(user.as_ref().map(|(_, last)| *last)).min();
        // Expired certificates are skipped, because they did not contribute to this proof.
        let lasts = chain.iter().filter_map(validity_of).map(|validity| *validity.end()).filter(|last| *last >= now);
        let last = authorities_last.map(|last| lasts.fold(last, Time::min));
        Proof {
            user: user.map(|(user, _)| user),
            is_front_proxy: proxy_last.is_some(),
            until: last.map_or(Time(i64::MAX), |last| Time(last.0.saturating_add(1))),
        }
    }

    fn is_allowed(&self, own: &CertificateDer<'_>) -> bool {
        self.allowed_names.is_empty() || common_name_of(own).is_some_and(|name| self.allowed_names.contains(&name))
    }
}

impl ClientCertVerifier for Trust {
    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        &self.subjects
    }

    /// Clients without a certificate are accepted, because health checks need no identity. A request that needs an
    /// identity is refused later.
    fn client_auth_mandatory(&self) -> bool {
        false
    }

    fn verify_client_cert(
        &self,
        own: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        now: UnixTime,
    ) -> Result<ClientCertVerified, rustls::Error> {
        let mut refusal = UNKNOWN_ISSUER;
        for authorities in [&self.clients, &self.front_proxy] {
            match authorities.verify(own, intermediates, now) {
                Ok(_) => return Ok(ClientCertVerified::assertion()),
                Err(error) => refusal = graver(refusal, error),
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
    use crate::limits::{CHAIN_BYTES_MAX, INTERMEDIATES_MAX};
    use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, DnType, IsCa, KeyPair, date_time_ymd};
    use rustls::CertificateError;
    use std::ops::Range;

    struct Ca(CertifiedIssuer<'static, KeyPair>);

    impl Ca {
        fn new(name: &str) -> Self {
            Self::valid(name, 2000..2100)
        }

        /// Creates a CA that is valid from the first day of `years.start` to the first day of `years.end`.
        fn valid(name: &str, years: Range<i32>) -> Self {
            let mut params = Self::params(name, IsCa::Ca(BasicConstraints::Unconstrained));
            params.not_before = date_time_ymd(years.start, 1, 1);
            params.not_after = date_time_ymd(years.end, 1, 1);
            Self::of(params)
        }

        fn params(name: &str, is_ca: IsCa) -> CertificateParams {
            let mut params = CertificateParams::default();
            params.is_ca = is_ca;
            params.distinguished_name.push(DnType::CommonName, name);
            params
        }

        fn of(params: CertificateParams) -> Self {
            Self(CertifiedIssuer::self_signed(params, KeyPair::generate().expect("a key")).expect("a CA"))
        }

        /// Creates an intermediate CA, certified by this CA.
        fn below(&self, name: &str) -> Self {
            let params = Self::params(name, IsCa::Ca(BasicConstraints::Unconstrained));
            Self(CertifiedIssuer::signed_by(params, KeyPair::generate().expect("a key"), &self.0).expect("a CA"))
        }

        fn leaf(&self, name: &str) -> CertificateDer<'static> {
            let mut params = CertificateParams::default();
            params.distinguished_name.push(DnType::CommonName, name);
            params.not_before = date_time_ymd(2020, 1, 1);
            params.not_after = date_time_ymd(2030, 1, 1);
            let key = KeyPair::generate().expect("a key");
            params.signed_by(&key, &self.0).expect("a certificate").der().clone()
        }

        fn roots(&self) -> Authorities {
            roots(&[self])
        }
    }

    fn roots(authorities: &[&Ca]) -> Authorities {
        Authorities::new(authorities.iter().map(|ca| ca.0.der().clone()).collect()).expect("authorities")
    }

    fn trust(clients: Authorities, proxies: Authorities, allowed: &[&str]) -> Trust {
        let allowed_names = allowed.iter().map(|name| (*name).to_owned()).collect();
        let front_proxy = FrontProxy { allowed_names, ..FrontProxy::default() };
        Trust::new(clients, proxies, front_proxy, true)
    }

    /// `NOW` is 2026-01-01. `LAST` is the last second of the leaves' validity.
    const NOW: Time = Time(1_767_225_600);
    const LAST: Time = Time(1_893_456_000);

    fn found(trust: &Trust, cert: &CertificateDer<'static>, now: Time) -> (Option<String>, bool) {
        let proof = trust.prove(std::slice::from_ref(cert), now);
        (proof.user.map(|user| user.user.clone()), proof.is_front_proxy)
    }

    #[test]
    fn each_ca_proves_only_its_own_clients() {
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
        // The right name, but certified by the wrong CA.
        assert_eq!(found(&strict, &clients.leaf("aggregator"), NOW), (Some("aggregator".into()), false));
    }

    /// An empty name in the list of allowed names is a name, as in kube-apiserver. So the list is not empty, and does
    /// not allow every name.
    #[test]
    fn an_empty_allowed_name_does_not_allow_every_name() {
        let (clients, proxies) = (Ca::new("clients"), Ca::new("proxies"));
        let trust = trust(clients.roots(), proxies.roots(), &[""]);
        assert_eq!(found(&trust, &proxies.leaf("front-proxy-client"), NOW), (None, false));
    }

    #[test]
    fn a_chain_with_too_many_intermediates_is_refused() {
        let ca = Ca::new("clients");
        let trust = trust(ca.roots(), Authorities::default(), &[]);
        for (further, is_found) in [(INTERMEDIATES_MAX, true), (INTERMEDIATES_MAX + 1, false)] {
            let chain: Vec<_> = [ca.leaf("alice")].into_iter().chain((0..further).map(|_| ca.leaf("x"))).collect();
            assert_eq!(trust.prove(&chain, NOW).user.is_some(), is_found, "{further} beside its own");
        }
    }

    /// The client CA itself has issued the client's certificate. So webpki ignores the intermediate certificates, even
    /// if they are junk. Only the limit on the bytes refuses the chain.
    #[test]
    fn a_chain_with_too_many_bytes_is_refused() {
        let ca = Ca::new("clients");
        let trust = trust(ca.roots(), Authorities::default(), &[]);
        let own = ca.leaf("alice");
        let at = UnixTime::since_unix_epoch(Duration::from_secs(NOW.0.unsigned_abs()));
        let junk_bytes_max = CHAIN_BYTES_MAX - own.len();
        for (junk_bytes, is_found) in [(junk_bytes_max, true), (junk_bytes_max + 1, false)] {
            let chain = [own.clone(), CertificateDer::from(vec![0_u8; junk_bytes])];
            assert_eq!(trust.verify_client_cert(&own, &chain[1..], at).is_ok(), is_found, "{junk_bytes} bytes of junk");
            assert_eq!(trust.prove(&chain, NOW).user.is_some(), is_found, "{junk_bytes} bytes of junk");
        }
    }

    #[test]
    fn one_ca_may_certify_users_and_the_front_proxy() {
        let ca = Ca::new("both");
        let trust = trust(ca.roots(), ca.roots(), &["proxy"]);
        assert_eq!(found(&trust, &ca.leaf("proxy"), NOW), (Some("proxy".into()), true));
        assert_eq!(found(&trust, &ca.leaf("alice"), NOW), (Some("alice".into()), false));
    }

    /// Two CAs with the same name are different CAs.
    #[test]
    fn cas_with_the_same_name_differ_by_key() {
        let (clients, proxies) = (Ca::new("kubernetes"), Ca::new("kubernetes"));
        let trust = trust(clients.roots(), proxies.roots(), &[]);
        assert_eq!(found(&trust, &clients.leaf("a"), NOW), (Some("a".into()), false));
        assert_eq!(found(&trust, &proxies.leaf("b"), NOW), (None, true));
    }

    #[test]
    fn a_proof_ends_when_the_certificate_expires() {
        let (clients, proxies) = (Ca::new("clients"), Ca::new("proxies"));
        let trust = trust(clients.roots(), proxies.roots(), &[]);
        let chain = [clients.leaf("alice")];
        assert_eq!(trust.prove(&chain, NOW).until, Time(LAST.0 + 1));
        assert!(trust.prove(&chain, LAST).user.is_some());
        assert!(trust.prove(&chain, Time(LAST.0 + 1)).user.is_none());
        assert!(trust.prove(&[], NOW).user.is_none());
        // The certificate that expires first limits the proof. An already expired certificate does not limit it, since
        // otherwise every request would evaluate the certificates again.
        let (soon, ended) = (Ca::valid("soon", 2000..2027), Ca::valid("ended", 2000..2020));
        for (other, until) in [(&soon, Time(1_798_761_600)), (&ended, Time(LAST.0 + 1))] {
            let chain = [clients.leaf("alice"), other.0.der().clone()];
            let proof = trust.prove(&chain, NOW);
            assert!(proof.user.is_some());
            assert_eq!(proof.until, Time(until.0 + i64::from(until != Time(LAST.0 + 1))));
        }
    }

    fn lets_in(trust: &Trust, cert: &CertificateDer<'static>, now: Time) -> bool {
        let at = UnixTime::since_unix_epoch(Duration::from_secs(now.0.unsigned_abs()));
        match trust.verify_client_cert(cert, &[], at) {
            Ok(_) => true,
            Err(error) => {
                assert_eq!(error, rustls::Error::InvalidCertificate(CertificateError::UnknownIssuer));
                false
            }
        }
    }

    #[test]
    fn a_ca_is_trusted_only_while_it_is_valid() {
        for years in [2020..2025, 2027..2030] {
            let (other, both) = (Ca::new("other"), Ca::valid("retired, or not yet in office", years));
            let leaf = both.leaf("front-proxy-client");
            // Trusts the CA `both`, which is not valid now, alone or beside the valid CA `other`.
            for own in [&[&both][..], &[&both, &other], &[&other, &both]] {
                let trust = trust(roots(own), roots(own), &[]);
                assert_eq!((found(&trust, &leaf, NOW), lets_in(&trust, &leaf, NOW)), ((None, false), false));
                let is_other = own.len() > 1;
                assert_eq!(lets_in(&trust, &other.leaf("a"), NOW), is_other);
                assert_eq!(found(&trust, &other.leaf("a"), NOW), (is_other.then(|| "a".into()), is_other));
            }
        }
    }

    /// As in Go (`crypto/x509`, `Certificate.Verify`), a client whose own certificate is among the CAs cannot issue
    /// certificates.
    #[test]
    fn a_ca_certifies_only_as_its_certificate_allows() {
        use rcgen::ExtendedKeyUsagePurpose::{Any, ClientAuth, ServerAuth};
        use rcgen::KeyUsagePurpose::{CrlSign, DigitalSignature, KeyCertSign};
        let authority = IsCa::Ca(BasicConstraints::Unconstrained);
        for (is_ca, key_usages, extended, certifies) in [
            (authority, vec![], vec![], true),
            (authority, vec![KeyCertSign, CrlSign], vec![ClientAuth], true),
            (authority, vec![DigitalSignature, KeyCertSign], vec![ServerAuth, Any], true),
            (IsCa::NoCa, vec![], vec![], false),
            (IsCa::ExplicitNoCa, vec![], vec![], false),
            (IsCa::ExplicitNoCa, vec![KeyCertSign], vec![ClientAuth], false),
            (authority, vec![DigitalSignature, CrlSign], vec![], false),
            (authority, vec![], vec![ServerAuth], false),
        ] {
            let what = format!("{is_ca:?}, {key_usages:?}, {extended:?}");
            let is_for_clients = extended != [ServerAuth];
            let mut params = Ca::params("pinned", is_ca);
            (params.key_usages, params.extended_key_usages) = (key_usages, extended);
            let (pinned, other) = (Ca::of(params), Ca::new("other"));
            let leaf = pinned.leaf("front-proxy-client");
            for own in [&[&pinned][..], &[&pinned, &other], &[&other, &pinned]] {
                let trust = trust(roots(own), roots(own), &[]);
                assert_eq!(lets_in(&trust, &leaf, NOW), certifies, "{what}");
                let proven = (certifies.then(|| "front-proxy-client".into()), certifies);
                assert_eq!(found(&trust, &leaf, NOW), proven, "{what}");
                if !certifies {
                    // The client itself is trusted, since its certificate is among the CAs.
                    let itself = (is_for_clients.then(|| "pinned".into()), is_for_clients);
                    assert_eq!(found(&trust, pinned.0.der(), NOW), itself, "{what}");
                }
            }
        }
    }

    #[test]
    fn the_path_length_limit_of_a_ca_is_enforced() {
        for (constraint, longest) in [
            (BasicConstraints::Constrained(0), 0),
            (BasicConstraints::Constrained(1), 1),
            (BasicConstraints::Constrained(9), 2),
            (BasicConstraints::Unconstrained, 2),
        ] {
            let first = Ca::of(Ca::params("first", IsCa::Ca(constraint)));
            let second = first.below("second");
            let third = second.below("third");
            let trust = trust(first.roots(), Authorities::default(), &[]);
            let (second_cert, third_cert) = (second.0.der().clone(), third.0.der().clone());
            for (length, chain) in [
                vec![first.leaf("a")],
                vec![second.leaf("a"), second_cert.clone()],
                vec![third.leaf("a"), third_cert, second_cert],
            ]
            .iter()
            .enumerate()
            {
                assert_eq!(trust.prove(chain, NOW).user.is_some(), length <= longest, "{constraint:?}, {length}");
            }
        }
    }

    #[test]
    fn a_proof_ends_when_the_ca_expires() {
        // 2027-01-01 is the last second of the first CA. The second CA is valid for longer than the leaf certificate.
        const LAST_OF_CA: Time = Time(1_798_761_600);
        let (soon, late) = (Ca::valid("soon", 2020..2027), Ca::new("late"));
        let leaf = soon.leaf("a");
        for trust in [trust(soon.roots(), late.roots(), &[]), trust(late.roots(), soon.roots(), &[])] {
            let proof = trust.prove(std::slice::from_ref(&leaf), NOW);
            assert_eq!((proof.user.is_some() || proof.is_front_proxy, proof.until), (true, Time(LAST_OF_CA.0 + 1)));
            assert!(lets_in(&trust, &leaf, LAST_OF_CA));
            assert_ne!(found(&trust, &leaf, LAST_OF_CA), (None, false));
            let after = Time(LAST_OF_CA.0 + 1);
            assert_eq!((found(&trust, &leaf, after), lets_in(&trust, &leaf, after)), ((None, false), false));
        }
    }

    #[test]
    fn an_empty_trust_admits_no_client() {
        let alice = Ca::new("clients").leaf("alice");
        let at = UnixTime::since_unix_epoch(Duration::from_secs(1_767_225_600));
        assert!(Trust::none().verify_client_cert(&alice, &[], at).is_err());
        assert_eq!(found(&Trust::none(), &alice, NOW), (None, false));
    }
}
