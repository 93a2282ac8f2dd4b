//! The credentials of a connection's peer, and the caller of each request on the connection.
//!
//! The server evaluates the peer's certificates again when the last evaluation expires or when the trusted CAs change.
//! If the certificates proved no identity, the server also evaluates them again when the clock goes back, since they
//! may only have seemed expired. kube-apiserver verifies the chain for every request. So removed CAs and expired
//! certificates have the same effect in both servers. Invariant: only a proven front proxy may name users in field
//! lines.

use super::request_header::{self, Unnamed};
use super::{Caller, has_rights};
use crate::api_error::ApiError;
use crate::clock::Now;
use crate::http::FieldLines;
use crate::timestamp::Time;
use crate::tls::identity::Identity;
use crate::tls::trust::{Proof, Trust};
use rustls_pki_types::CertificateDer;
use std::cell::Cell;
use std::fmt;
use std::rc::Rc;
use std::sync::Arc;

/// The credentials of a connection's peer.
pub struct Credentials {
    kind: Kind,
    /// The user that the front proxy named in its last request. The next request reuses the memory of this value.
    spoken_for: Cell<Option<Rc<Identity>>>,
}

enum Kind {
    /// The peer uses cleartext on loopback, and has full rights.
    Insecure,
    /// The peer uses TLS, and the server has not evaluated the peer's certificates yet.
    Unproven,
    /// The peer uses TLS. `proof` is what the peer's certificates prove with the CAs in `trust`, at the time `since`.
    Proven { trust: Arc<Trust>, proof: Proof, since: Time, is_anonymous: bool },
}

impl Kind {
    fn proven(trust: Arc<Trust>, proof: Proof, since: Time) -> Self {
        let is_anonymous = !proof.is_front_proxy && !proof.user.as_deref().is_some_and(has_rights);
        Self::Proven { trust, proof, since, is_anonymous }
    }

    /// Whether the evaluation still holds at the time `now`, with the CAs in `trust`. If the clock has gone back since
    /// the evaluation, it may have been ahead before, so that valid certificates seemed to have expired. So an
    /// evaluation that proved no identity does not hold after the clock has gone back.
    fn holds(&self, trust: &Arc<Trust>, now: Time) -> bool {
        let Self::Proven { trust: own, proof, since, .. } = self else { return false };
        let is_proof = proof.is_front_proxy || proof.user.is_some();
        Arc::ptr_eq(own, trust) && now < proof.until && (is_proof || *since <= now)
    }
}

impl Credentials {
    /// Creates credentials of a peer on the cleartext port.
    #[must_use]
    pub fn insecure() -> Self {
        Self { kind: Kind::Insecure, spoken_for: Cell::default() }
    }

    /// Creates credentials of a peer during its handshake.
    #[must_use]
    pub fn unproven() -> Self {
        Self { kind: Kind::Unproven, spoken_for: Cell::default() }
    }

    /// Evaluates the peer's certificates again, if the last evaluation no longer holds. Call this function each time
    /// before the server serves requests of the connection. `chain` is the certificate chain, with the peer's own
    /// certificate first. The chain may be empty.
    pub fn refresh(&mut self, trust: &Arc<Trust>, chain: &[CertificateDer<'_>], now: Now) {
        if self.is_insecure() || self.kind.holds(trust, now.wall) {
            return;
        }
        let proof = trust.prove(chain, now.wall);
        self.kind = Kind::proven(Arc::clone(trust), proof, now.wall);
    }

    /// Whether the peer is on the cleartext port and needs no proof.
    #[must_use]
    pub fn is_insecure(&self) -> bool {
        matches!(self.kind, Kind::Insecure)
    }

    /// Whether the peer is a front proxy, which may name any user as the caller of a request.
    #[must_use]
    pub fn is_front_proxy(&self) -> bool {
        matches!(&self.kind, Kind::Proven { proof, .. } if proof.is_front_proxy)
    }

    /// Whether the peer is anonymous: it has not proven an identity with rights. The server reads and queues fewer
    /// bytes for anonymous peers. A cluster's CA may issue many certificates, so a user without more rights than an
    /// anonymous peer counts as anonymous too. A front proxy never counts as anonymous, even if one of its requests
    /// names no user.
    #[must_use]
    pub fn is_anonymous(&self) -> bool {
        match &self.kind {
            Kind::Insecure => false,
            Kind::Unproven => true,
            Kind::Proven { is_anonymous, .. } => *is_anonymous,
        }
    }

    /// Returns the time at which the peer's certificates must be evaluated again, such as their expiry; `None` in
    /// cleartext, and before the first evaluation.
    #[must_use]
    pub fn proven_until(&self) -> Option<Time> {
        match &self.kind {
            Kind::Insecure | Kind::Unproven => None,
            Kind::Proven { proof, .. } => Some(proof.until),
        }
    }

    /// Returns the caller of a request with these field lines.
    ///
    /// # Errors
    /// [`ApiError::Unauthorized`] if the field lines of a front proxy are unreadable, or if the field lines of any
    /// other peer name a user. Such a peer is an attacker or a misconfigured aggregator. kube-apiserver ignores such
    /// field lines, but an operator notices a refusal sooner.
    pub fn caller(&self, fields: &dyn FieldLines) -> Result<Caller, ApiError> {
        let (trust, proof) = match &self.kind {
            Kind::Insecure => return Ok(Caller::Insecure),
            Kind::Unproven => return Err(ApiError::Unauthorized),
            Kind::Proven { trust, proof, .. } => (trust, proof),
        };
        if proof.is_front_proxy {
            let mut identity = self.spoken_for.take().unwrap_or_default();
            // If a waiting request still uses the last identity, the present request gets a new one.
            if Rc::get_mut(&mut identity).is_none() {
                identity = Rc::default();
            }
            let read = Rc::get_mut(&mut identity).map_or(Err(Unnamed::Unreadable), |identity| {
                request_header::read(trust.header_names(), fields, identity)
            });
            self.spoken_for.set(Some(Rc::clone(&identity)));
            match read {
                Ok(()) => return Ok(Caller::Proxied(identity)),
                Err(Unnamed::Unreadable) => return Err(ApiError::Unauthorized),
                Err(Unnamed::Absent) => {}
            }
        }
        if request_header::is_claim(trust.header_names(), fields) {
            let user = proof.user.as_ref().map(|user| &user.user);
            tracing::debug!(user, "refused a request whose header fields name a user: the peer is no front proxy");
            return Err(ApiError::Unauthorized);
        }
        Ok(proof.user.as_ref().map_or(Caller::Anonymous, |user| Caller::User(Rc::clone(user))))
    }
}

impl fmt::Debug for Credentials {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.kind {
            Kind::Insecure => f.write_str("Insecure"),
            Kind::Unproven => f.write_str("Unproven"),
            Kind::Proven { proof, .. } => proof.fmt(f),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::http::Lines;

    fn proven(proof: Proof) -> Credentials {
        let kind = Kind::proven(Arc::new(Trust::none()), proof, Time(5));
        Credentials { kind, spoken_for: Cell::default() }
    }

    fn direct() -> Credentials {
        let user = Identity { user: "alice".into(), groups: vec!["system:monitoring".into()] };
        proven(Proof { user: Some(Rc::new(user)), is_front_proxy: false, until: Time(9) })
    }

    fn proxy() -> Credentials {
        proven(Proof { user: None, is_front_proxy: true, until: Time(9) })
    }

    const PLAIN: Lines<'_> = Lines(&[("Host", b"x")]);
    const BOB: Lines<'_> = Lines(&[("Host", b"x"), ("X-Remote-User", b"bob"), ("X-Remote-Group", b"dev")]);
    const EVE: Lines<'_> = Lines(&[("X-Remote-User", b"eve")]);
    const GROUP: Lines<'_> = Lines(&[("X-Remote-Group", b"system:masters")]);
    const IMPERSONATOR: Lines<'_> = Lines(&[("X-Remote-User", b"bob"), ("impersonate-user", b"eve")]);

    #[test]
    fn each_front_proxy_request_has_the_user_of_its_headers() {
        let proxy = proxy();
        let user = |lines: &Lines<'_>| match proxy.caller(lines) {
            Ok(Caller::Proxied(identity)) => Ok((identity.user.clone(), identity.groups.clone())),
            Ok(other) => panic!("{other:?}"),
            Err(error) => Err(error),
        };
        assert_eq!(user(&BOB), Ok(("bob".into(), vec!["dev".into()])));
        assert_eq!(user(&EVE), Ok(("eve".into(), vec![])));
        assert_eq!(user(&GROUP), Err(ApiError::Unauthorized));
        assert_eq!(user(&IMPERSONATOR), Err(ApiError::Unauthorized));
        assert_eq!(user(&BOB), Ok(("bob".into(), vec!["dev".into()])));
        // If the front proxy names no user, the caller is the user of its certificate. This certificate names no user,
        // so the caller is anonymous.
        assert!(matches!(proxy.caller(&PLAIN), Ok(Caller::Anonymous)));
    }

    #[test]
    fn a_later_request_does_not_change_an_earlier_identity() {
        let proxy = proxy();
        let Ok(Caller::Proxied(bob)) = proxy.caller(&BOB) else { panic!("not bob") };
        let Ok(Caller::Proxied(eve)) = proxy.caller(&EVE) else { panic!("not eve") };
        assert_eq!((bob.user.as_str(), eve.user.as_str()), ("bob", "eve"));
    }

    #[test]
    fn identity_headers_of_other_clients_are_refused() {
        for credentials in [direct(), proven(Proof { user: None, is_front_proxy: false, until: Time(9) })] {
            for lines in [BOB, EVE, GROUP] {
                assert!(matches!(credentials.caller(&lines), Err(ApiError::Unauthorized)));
            }
        }
        assert!(matches!(direct().caller(&PLAIN), Ok(Caller::User(user)) if user.user == "alice"));
        assert!(matches!(Credentials::unproven().caller(&PLAIN), Err(ApiError::Unauthorized)));
        assert!(matches!(Credentials::insecure().caller(&BOB), Ok(Caller::Insecure)));
    }

    #[test]
    fn a_proof_ends_at_its_expiry_or_when_the_trust_changes() {
        let mut alice = direct();
        let Kind::Proven { trust, .. } = &alice.kind else { panic!("proven") };
        let trust = Arc::clone(trust);
        alice.refresh(&trust, &[], Now { ms: 0, wall: Time(8) });
        assert!(!alice.is_anonymous());
        let mut expired = direct();
        let Kind::Proven { trust: own, .. } = &expired.kind else { panic!("proven") };
        let own = Arc::clone(own);
        expired.refresh(&own, &[], Now { ms: 0, wall: Time(9) });
        assert!(expired.is_anonymous());
        alice.refresh(&Arc::new(Trust::none()), &[], Now { ms: 0, wall: Time(8) });
        assert!(alice.is_anonymous());
    }

    #[test]
    fn only_a_failed_proof_ends_when_the_clock_goes_back() {
        let trust = Arc::new(Trust::none());
        let mut peer = Credentials::unproven();
        let evaluated_at = |wall| {
            peer.refresh(&trust, &[], Now { ms: 0, wall: Time(wall) });
            let Kind::Proven { since, .. } = &peer.kind else { panic!("proven") };
            since.0
        };
        assert_eq!([5, 7, 3, 4].map(evaluated_at), [5, 5, 3, 3]);
        let mut alice = direct();
        let Kind::Proven { trust, .. } = &alice.kind else { panic!("proven") };
        let trust = Arc::clone(trust);
        alice.refresh(&trust, &[], Now { ms: 0, wall: Time(4) });
        assert!(!alice.is_anonymous());
    }

    #[test]
    fn a_user_without_permissions_counts_as_anonymous() {
        for (user, groups, is_anonymous) in [
            ("alice", &["system:authenticated"][..], true),
            ("system:node:n", &[], true),
            ("system:node:n", &["system:nodes"], false),
            ("alice", &["x", "system:masters"], false),
            ("alice", &["system:monitoring"], false),
        ] {
            let groups = groups.iter().map(|group| (*group).into()).collect();
            let user = Identity { user: user.into(), groups };
            let found = proven(Proof { user: Some(Rc::new(user)), is_front_proxy: false, until: Time(9) });
            assert_eq!(found.is_anonymous(), is_anonymous, "{found:?}");
        }
    }
}
