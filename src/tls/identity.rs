//! Reads the identity in a client certificate, by kube-apiserver's rules for X.509 client certificates.
//!
//! This module does not decide whether the certificate is trusted. The caller has already verified the certificate's
//! chain.

use crate::timestamp::Time;
use rustls_pki_types::CertificateDer;
use std::ops::RangeInclusive;
use x509_parser::prelude::{FromDer, X509Certificate};

/// Group of all authenticated users.
pub const GROUP_AUTHENTICATED: &str = "system:authenticated";
/// Group of all unauthenticated users; never combined with [`GROUP_AUTHENTICATED`].
pub const GROUP_UNAUTHENTICATED: &str = "system:unauthenticated";
/// Group with all rights.
pub const GROUP_MASTERS: &str = "system:masters";
/// User name of requests without credentials.
pub const USER_ANONYMOUS: &str = "system:anonymous";

/// A user and its groups: apiserver's `user.Info` without the UID and `Extra`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Identity {
    /// User name, never empty.
    pub user: String,
    /// Groups, in the order of the certificate or of the front proxy's field lines; repeated groups stay repeated.
    pub groups: Vec<String>,
}

impl Identity {
    /// Whether the user is a member of `group`.
    #[must_use]
    pub fn is_in(&self, group: &str) -> bool {
        self.groups.iter().any(|own| own == group)
    }
}

/// Returns the user of a verified client certificate: the Common Name as user, the Organizations as groups.
///
/// `None` means unauthenticated: no Common Name, or an unreadable subject. The last of several Common Names counts, as
/// in Go's `crypto/x509/pkix`.
#[must_use]
pub fn identity_of(cert: &CertificateDer<'_>) -> Option<Identity> {
    let (rest, cert) = X509Certificate::from_der(cert).ok()?;
    if !rest.is_empty() {
        return None;
    }
    // If any value has an unreadable string type (BMPString, TeletexString), the whole certificate is refused. A user
    // without one of its groups would have an identity that the issuer did not intend.
    let user = cert.subject().iter_common_name().last()?.as_str().ok()?;
    if user.is_empty() {
        return None;
    }
    let mut groups = Vec::new();
    for organization in cert.subject().iter_organization() {
        groups.push(organization.as_str().ok()?.to_owned());
    }
    let decided = |group: &String| group == GROUP_AUTHENTICATED || group == GROUP_UNAUTHENTICATED;
    if user != USER_ANONYMOUS && !groups.iter().any(decided) {
        groups.push(GROUP_AUTHENTICATED.to_owned());
    }
    Some(Identity { user: user.to_owned(), groups })
}

/// Returns the certificate's Common Name, the last one if it has several.
#[must_use]
pub fn common_name_of(cert: &CertificateDer<'_>) -> Option<String> {
    let (_, cert) = X509Certificate::from_der(cert).ok()?;
    Some(cert.subject().iter_common_name().last()?.as_str().ok()?.to_owned())
}

/// Returns the first and the last second of a certificate's validity.
#[must_use]
pub fn validity_of(cert: &CertificateDer<'_>) -> Option<RangeInclusive<Time>> {
    let (_, cert) = X509Certificate::from_der(cert).ok()?;
    Some(validity(&cert))
}

/// [`validity_of`] for a parsed certificate.
pub(super) fn validity(cert: &X509Certificate<'_>) -> RangeInclusive<Time> {
    let validity = cert.validity();
    Time(validity.not_before.timestamp())..=Time(validity.not_after.timestamp())
}

#[cfg(test)]
mod tests {
    use super::*;
    use rcgen::{CertificateParams, CustomExtension, DistinguishedName, DnType, DnValue, KeyPair};

    fn cert(attributes: &[(DnType, DnValue)]) -> CertificateDer<'static> {
        let mut params = CertificateParams::default();
        params.distinguished_name = DistinguishedName::new();
        for (kind, value) in attributes {
            params.distinguished_name.push(kind.clone(), value.clone());
        }
        let key = KeyPair::generate().expect("a key");
        params.self_signed(&key).expect("a certificate").der().clone()
    }

    fn utf8(s: &str) -> DnValue {
        DnValue::Utf8String(s.to_owned())
    }

    #[test]
    fn common_name_is_the_user_and_organization_the_group() {
        let cert = cert(&[
            (DnType::CommonName, utf8("system:node:n1")),
            (DnType::OrganizationName, utf8("system:nodes")),
            (DnType::OrganizationalUnitName, utf8("not a group")),
        ]);
        let found = identity_of(&cert).expect("an identity");
        assert_eq!(found.user, "system:node:n1");
        assert_eq!(found.groups, ["system:nodes", "system:authenticated"]);
    }

    #[test]
    fn a_certificate_without_a_common_name_has_no_identity() {
        assert_eq!(identity_of(&cert(&[(DnType::OrganizationName, utf8("system:masters"))])), None);
        assert_eq!(identity_of(&cert(&[(DnType::CommonName, utf8(""))])), None);
        assert_eq!(identity_of(&cert(&[])), None);
    }

    #[test]
    fn authentication_groups_are_not_added_twice() {
        for group in [GROUP_AUTHENTICATED, GROUP_UNAUTHENTICATED] {
            let cert = cert(&[(DnType::CommonName, utf8("u")), (DnType::OrganizationName, utf8(group))]);
            assert_eq!(identity_of(&cert).expect("an identity").groups, [group]);
        }
        let anonymous = cert(&[(DnType::CommonName, utf8(USER_ANONYMOUS))]);
        assert!(identity_of(&anonymous).expect("an identity").groups.is_empty());
    }

    #[test]
    fn a_value_that_cannot_be_read_refuses_the_certificate() {
        let bmp = DnValue::BmpString("system:masters".try_into().expect("BMP"));
        assert_eq!(
            identity_of(&cert(&[(DnType::CommonName, utf8("u")), (DnType::OrganizationName, bmp.clone())])),
            None
        );
        assert_eq!(identity_of(&cert(&[(DnType::CommonName, bmp)])), None);
    }

    /// Each Organization is a group, and the last Common Name is the user. rcgen keeps one value per attribute type. So
    /// this test patches the subject's DER: the OID of the Organizational Unit becomes that of the Organization or of
    /// the Common Name. The three OIDs have the same length.
    #[test]
    fn several_organizations_are_several_groups_and_the_last_common_name_counts() {
        const OID_CN: [u8; 5] = [0x06, 0x03, 0x55, 0x04, 0x03];
        const OID_O: [u8; 5] = [0x06, 0x03, 0x55, 0x04, 0x0a];
        const OID_OU: [u8; 5] = [0x06, 0x03, 0x55, 0x04, 0x0b];
        let made = cert(&[
            (DnType::CommonName, utf8("alice")),
            (DnType::OrganizationName, utf8("one")),
            (DnType::OrganizationalUnitName, utf8("two")),
        ]);
        let as_organization = CertificateDer::from(replaced(&made, OID_OU, OID_O));
        let found = identity_of(&as_organization).expect("an identity");
        assert_eq!(found.groups, ["one", "two", "system:authenticated"]);
        let as_common_name = CertificateDer::from(replaced(&made, OID_OU, OID_CN));
        assert_eq!(identity_of(&as_common_name).expect("an identity").user, "two");
    }

    fn replaced(der: &[u8], from: [u8; 5], to: [u8; 5]) -> Vec<u8> {
        let mut out = der.to_vec();
        for at in 0..out.len().saturating_sub(from.len()) {
            if out[at..at + from.len()] == from {
                out[at..at + to.len()].copy_from_slice(&to);
            }
        }
        out
    }

    #[test]
    fn a_malformed_certificate_has_no_identity() {
        let mut params = CertificateParams::default();
        params.distinguished_name.push(DnType::CommonName, "u");
        params.custom_extensions = vec![CustomExtension::from_oid_content(&[1, 2, 3], vec![0xff; 8])];
        let whole = params.self_signed(&KeyPair::generate().expect("a key")).expect("a certificate").der().to_vec();
        assert!(identity_of(&whole.clone().into()).is_some());
        for len in 0..whole.len() {
            assert_eq!(identity_of(&whole[..len].to_vec().into()), None, "cut at {len}");
        }
        let trailing: Vec<u8> = whole.iter().copied().chain([0]).collect();
        assert_eq!(identity_of(&trailing.into()), None);
        // The parser must not panic, whichever byte changes.
        for at in 0..whole.len() {
            let mut changed = whole.clone();
            changed[at] ^= 0x55;
            let _ = identity_of(&changed.into());
        }
    }
}
