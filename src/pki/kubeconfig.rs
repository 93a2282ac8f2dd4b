//! Renders the admin's kubeconfig with all its data inline. So an operator needs to copy only this file to the host
//! where kubectl runs.

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use rustls::client::verify_server_name;
use rustls::server::ParsedCertificate;
use rustls_pki_types::{CertificateDer, ServerName};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use x509_parser::extensions::GeneralName;
use x509_parser::prelude::{FromDer as _, X509Certificate};

/// The content of the admin's kubeconfig.
#[derive(Clone, Copy, Debug)]
pub(super) struct Admin<'a> {
    /// Address at which the server listens.
    pub(super) addr: SocketAddr,
    /// Certificates by which kubectl verifies the server: the CA certificate, or the serving certificate itself.
    pub(super) trusted: &'a [CertificateDer<'static>],
    /// The admin's client certificate, in PEM.
    pub(super) cert_pem: &'a [u8],
    /// The key of the admin's client certificate, in PEM.
    pub(super) key_pem: &'a [u8],
}

/// Renders the kubeconfig. All values are base64, addresses or DNS names, so no value needs quotes in YAML.
pub(super) fn render(admin: &Admin<'_>) -> String {
    let addr = reachable(admin.addr);
    let trusted: String = admin.trusted.iter().map(|cert| pem(cert)).collect();
    let server_name = admin.trusted.first().and_then(|cert| name_to_expect(cert, addr.ip()));
    let server_name = server_name.map_or_else(String::new, |name| format!("    tls-server-name: {name}\n"));
    format!(
        "apiVersion: v1
kind: Config
clusters:
- name: coordination-apiserver
  cluster:
    server: https://{addr}
{server_name}    certificate-authority-data: {ca}
users:
- name: admin
  user:
    client-certificate-data: {cert}
    client-key-data: {key}
contexts:
- name: admin@coordination-apiserver
  context:
    cluster: coordination-apiserver
    user: admin
current-context: admin@coordination-apiserver
",
        ca = BASE64_STANDARD.encode(trusted),
        cert = BASE64_STANDARD.encode(admin.cert_pem),
        key = BASE64_STANDARD.encode(admin.key_pem),
    )
}

/// Returns an address at which this host can connect to a server that listens at `addr`.
fn reachable(addr: SocketAddr) -> SocketAddr {
    let ip = match addr.ip() {
        IpAddr::V4(ip) if ip.is_unspecified() => Ipv4Addr::LOCALHOST.into(),
        IpAddr::V6(ip) if ip.is_unspecified() => Ipv6Addr::LOCALHOST.into(),
        ip => ip,
    };
    SocketAddr::new(ip, addr.port())
}

/// Returns the name by which kubectl verifies the operator's own serving certificate, if the certificate is not valid
/// for the address. Returns `None` for a CA certificate: the certificates that this CA issues are valid for the
/// address.
fn name_to_expect(cert: &CertificateDer<'static>, ip: IpAddr) -> Option<String> {
    let (_, parsed) = X509Certificate::from_der(cert).ok()?;
    if parsed.is_ca() || verify_server_name(&ParsedCertificate::try_from(cert).ok()?, &ServerName::from(ip)).is_ok() {
        return None;
    }
    let names = parsed.subject_alternative_name().ok()??;
    names.value.general_names.iter().find_map(|name| match name {
        // Only a valid DNS name is accepted: no wildcard, and nothing that needs quotes in YAML.
        GeneralName::DNSName(name) if rustls_pki_types::DnsName::try_from(*name).is_ok() => Some((*name).to_owned()),
        _ => None,
    })
}

/// Encodes a certificate in PEM (RFC 7468 §5).
fn pem(cert: &CertificateDer<'_>) -> String {
    let base64 = BASE64_STANDARD.encode(cert);
    let mut out = String::with_capacity(base64.len() + base64.len() / 64 + 64);
    out.push_str("-----BEGIN CERTIFICATE-----\n");
    let mut rest = base64.as_str();
    while let Some((line, after)) = rest.split_at_checked(64.min(rest.len())).filter(|(line, _)| !line.is_empty()) {
        out.push_str(line);
        out.push('\n');
        rest = after;
    }
    out.push_str("-----END CERTIFICATE-----\n");
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use rcgen::{BasicConstraints, CertificateParams, IsCa, KeyPair};
    use rustls_pki_types::pem::PemObject as _;

    fn cert(names: &[&str], is_ca: bool) -> CertificateDer<'static> {
        let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
        let mut params = CertificateParams::new(names).expect("names");
        if is_ca {
            params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        }
        params.self_signed(&KeyPair::generate().expect("a key")).expect("a certificate").der().clone()
    }

    fn rendered(addr: &str, trusted: CertificateDer<'static>) -> String {
        let addr = addr.parse().expect("an address");
        render(&Admin { addr, trusted: &[trusted], cert_pem: b"the certificate", key_pem: b"the key" })
    }

    #[test]
    fn the_kubeconfig_names_a_reachable_address() {
        for (addr, server) in [
            ("127.0.0.1:8443", "https://127.0.0.1:8443"),
            ("0.0.0.0:6443", "https://127.0.0.1:6443"),
            ("[::]:1", "https://[::1]:1"),
            ("10.1.2.3:8443", "https://10.1.2.3:8443"),
        ] {
            let text = rendered(addr, cert(&["ca"], true));
            assert!(text.contains(&format!("    server: {server}\n")), "{text}");
            assert!(!text.contains("tls-server-name"), "{text}");
        }
    }

    #[test]
    fn the_kubeconfig_embeds_keys_and_certificates() {
        let ca = cert(&["ca"], true);
        let text = rendered("127.0.0.1:8443", ca.clone());
        let value = |key: &str| {
            let line = text.lines().find_map(|line| line.trim().strip_prefix(key)).expect("a line");
            BASE64_STANDARD.decode(line.trim_start_matches(':').trim()).expect("base64")
        };
        assert_eq!(value("client-certificate-data"), b"the certificate");
        assert_eq!(value("client-key-data"), b"the key");
        assert_eq!(CertificateDer::from_pem_slice(&value("certificate-authority-data")).expect("PEM"), ca);
    }

    #[test]
    fn the_kubeconfig_sets_a_tls_server_name_if_needed() {
        let text = rendered("127.0.0.1:8443", cert(&["*.example.org", "leases.example.org"], false));
        assert!(text.contains("    tls-server-name: leases.example.org\n"), "{text}");
        let text = rendered("127.0.0.1:8443", cert(&["leases.example.org", "127.0.0.1"], false));
        assert!(!text.contains("tls-server-name"), "{text}");
    }

    #[test]
    fn pem_lines_are_64_wide_whatever_the_length() {
        for len in [0, 1, 47, 48, 49, 96, 1000] {
            let der = CertificateDer::from(vec![7; len]);
            let text = pem(&der);
            assert!(text.lines().all(|line| line.len() <= 64));
            assert_eq!(CertificateDer::from_pem_slice(text.as_bytes()).expect("PEM"), der, "{len}");
        }
    }
}
