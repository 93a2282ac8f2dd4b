//! A server that receives the load: its address, its name, and its TLS configuration.

use crate::flags::ServerArgs;
use crate::kubeconfig::{self, Access};
use crate::origin::{MediaType, Origin, Version};
use rustls::crypto::aws_lc_rs;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{ClientConfig, ClientConnection, RootCertStore};
use std::net::{SocketAddr, ToSocketAddrs};
use std::path::Path;
use std::sync::Arc;

/// A server that requests are sent to.
#[derive(Clone, Debug)]
pub(crate) struct Target {
    /// URL of the server, for messages.
    pub(crate) url: String,
    /// Address of the server's socket. A host name in the URL is resolved once, at the start.
    pub(crate) address: SocketAddr,
    /// What all requests to this server have in common.
    pub(crate) origin: Origin,
    /// TLS configuration, and the name to verify the server's certificate by; `None` in cleartext.
    tls: Option<(Arc<ClientConfig>, ServerName<'static>)>,
}

impl Target {
    /// Returns the servers that the command line or a kubeconfig names, at least one. Errors are sentences for the
    /// user.
    pub(crate) fn of_args(args: &ServerArgs, media_type: MediaType) -> Result<Vec<Self>, String> {
        let access = match &args.kubeconfig {
            _ if !args.server.is_empty() => {
                let file =
                    |path: &Path| std::fs::read(path).map_err(|e| format!("cannot read {}: {e}", path.display()));
                let client = match (&args.cert, &args.key) {
                    (Some(cert), Some(key)) => Some((file(cert)?, file(key)?)),
                    _ => None,
                };
                let ca = args.ca.as_deref().map(file).transpose()?;
                let of_server = |server: &String| {
                    let access =
                        Access { server: server.clone(), ca: ca.clone(), client: client.clone(), ..Access::default() };
                    Self::of_access(&access, args.version(), media_type)
                };
                return args.server.iter().map(of_server).collect();
            }
            Some(path) => kubeconfig::read(path)?,
            None => {
                let dir = coordination_apiserver::pki::default_cert_dir().map_err(|e| e.to_string())?;
                kubeconfig::read(&dir.join("admin.kubeconfig")).map_err(|e| {
                    format!("{e} (is coordination-apiserver running? otherwise name --kubeconfig or --server)")
                })?
            }
        };
        Ok(vec![Self::of_access(&access, args.version(), media_type)?])
    }

    /// Returns the server, for a load that supports only one. Several servers on the command line are an error.
    pub(crate) fn only_of_args(args: &ServerArgs, media_type: MediaType) -> Result<Self, String> {
        let mut targets = Self::of_args(args, media_type)?;
        match (targets.pop(), targets.is_empty()) {
            (Some(target), true) => Ok(target),
            _ => Err("bench takes one --server".to_owned()),
        }
    }

    fn of_access(access: &Access, version: Version, media_type: MediaType) -> Result<Self, String> {
        let url = access.server.trim_end_matches('/');
        let (secure, rest) = match url.split_once("://") {
            Some(("https", rest)) => (true, rest),
            Some(("http", rest)) => (false, rest),
            _ => return Err(format!("server {url:?} is no http:// or https:// URL")),
        };
        if rest.contains(['/', '?', '#', '@']) || rest.is_empty() {
            return Err(format!("server {url:?} must be a name and a port, with no path"));
        }
        // The port follows the last colon of the authority. The colons inside the brackets of an IPv6 address do not
        // count.
        let (name, port) = match rest.rsplit_once(':') {
            Some((name, port)) if !port.ends_with(']') => {
                (name, port.parse().map_err(|_| format!("server {url:?} has no valid port"))?)
            }
            _ => (rest, if secure { 443 } else { 80 }),
        };
        let name = name.trim_start_matches('[').trim_end_matches(']');
        let mut addresses = (name, port).to_socket_addrs().map_err(|e| format!("cannot resolve {name:?}: {e}"))?;
        let address = addresses.next().ok_or_else(|| format!("{name:?} has no address"))?;
        let tls = if secure {
            let certificate_name = access.tls_server_name.as_deref().unwrap_or(name).to_owned();
            let server_name = ServerName::try_from(certificate_name).map_err(|e| format!("server {url:?}: {e}"))?;
            Some((Arc::new(client_config(access, version)?), server_name))
        } else {
            None
        };
        Ok(Self { url: url.to_owned(), address, origin: Origin::new(version, secure, rest, media_type), tls })
    }

    /// Creates a TLS connection before its handshake, or `None` in cleartext.
    pub(crate) fn new_tls(&self) -> Result<Option<Box<ClientConnection>>, rustls::Error> {
        let Some((config, name)) = &self.tls else { return Ok(None) };
        let mut tls = ClientConnection::new(config.clone(), name.clone())?;
        // The maximum number of requests in flight bounds the unsent data, so rustls needs no limit.
        tls.set_buffer_limit(None);
        Ok(Some(Box::new(tls)))
    }
}

/// Returns a TLS configuration for TLS 1.3 and 1.2, with the certificate authorities and the client certificate of
/// `access`. ALPN offers only this version of HTTP. TLS sessions are resumed if the server permits it.
fn client_config(access: &Access, version: Version) -> Result<ClientConfig, String> {
    let ca = access
        .ca
        .as_deref()
        .ok_or("an https:// server needs a certificate authority: --ca, or a kubeconfig with one")?;
    let mut roots = RootCertStore::empty();
    for certificate in certificates(ca, "certificate authority")? {
        roots.add(certificate).map_err(|e| format!("certificate authority: {e}"))?;
    }
    let builder = ClientConfig::builder_with_provider(Arc::new(aws_lc_rs::default_provider()))
        .with_safe_default_protocol_versions()
        .map_err(|e| e.to_string())?
        .with_root_certificates(roots);
    let mut config = match &access.client {
        Some((certificate, key)) => {
            let key = PrivateKeyDer::from_pem_slice(key).map_err(|e| format!("client key: {e}"))?;
            let chain = certificates(certificate, "client certificate")?;
            builder.with_client_auth_cert(chain, key).map_err(|e| format!("client certificate: {e}"))?
        }
        None => builder.with_no_client_auth(),
    };
    config.alpn_protocols = vec![version.alpn().to_vec()];
    Ok(config)
}

fn certificates(pem: &[u8], what: &str) -> Result<Vec<CertificateDer<'static>>, String> {
    let found: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(pem).collect();
    let found = found.map_err(|e| format!("{what}: {e}"))?;
    if found.is_empty() { Err(format!("{what}: no certificate in it")) } else { Ok(found) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::args::{Args, Command};
    use clap::Parser as _;

    fn target(server: &str) -> Result<Target, String> {
        Target::of_access(&Access { server: server.to_owned(), ..Access::default() }, Version::Http2, MediaType::Json)
    }

    #[test]
    fn a_server_url_is_parsed_into_its_parts() {
        let cleartext = target("http://127.0.0.1:8080/").expect("valid");
        assert_eq!(cleartext.address.to_string(), "127.0.0.1:8080");
        assert_eq!(target("http://[::1]:81").expect("valid").address.to_string(), "[::1]:81");
        assert_eq!(target("http://[::1]").expect("valid").address.port(), 80);
        for server in ["", "127.0.0.1:8080", "ftp://x", "http://", "http://x/y", "http://127.0.0.1:70000"] {
            assert!(target(server).is_err(), "{server}");
        }
    }

    #[test]
    fn a_bench_takes_one_server() {
        let of = |server: &str| {
            let words = ["loadgen", "bench", "renew", "--server", server];
            let Some(Command::Bench(args)) = Args::try_parse_from(words).expect("valid").command else { panic!() };
            Target::only_of_args(&args.server, MediaType::Json).map(|target| target.url)
        };
        assert_eq!(of("http://127.0.0.1:1"), Ok("http://127.0.0.1:1".to_owned()));
        assert_eq!(of("http://127.0.0.1:1,http://127.0.0.1:2"), Err("bench takes one --server".to_owned()));
    }

    #[test]
    fn a_secure_server_needs_an_authority() {
        assert!(target("https://127.0.0.1:8443").expect_err("no authority").contains("--ca"));
    }
}
