//! Follows the files that TLS is made of, and what the cluster says of its authorities, and hands the event loop a new
//! configuration when either changes. Connections that are open stay as they are; handshakes that begin afterwards get
//! the new one. What is wrong is told in one line, and what was right stays.

use super::config::{Resumption, Secure, TlsConfigError, TlsConfigErrorCause};
use super::source::TlsSources;
use crate::cluster::ClusterAuthentication;
use crate::updates::{Update, UpdateSender};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io;
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::thread;
use std::time::Duration;

/// How often files are looked at. They are read whole: a few KiB, and neither the symbolic links of a mounted Secret
/// nor a copied modification time can hide a change.
pub const LOOK_EVERY: Duration = Duration::from_secs(5);

/// What is needed to make a configuration anew, and what the present one was made of.
#[derive(Debug)]
pub struct Reloader {
    sources: TlsSources,
    resumption: Resumption,
    cluster: Option<ClusterAuthentication>,
    /// Of what was last tried, with or without success.
    fingerprint: u64,
}

impl Reloader {
    /// The first configuration, and what will make the next ones.
    ///
    /// # Errors
    /// A file that cannot be read, holds nothing of use, or does not fit the others.
    pub fn new(sources: TlsSources) -> Result<(Self, Secure), TlsConfigError> {
        let rustls = |e| TlsConfigError::new(&sources.key, TlsConfigErrorCause::Rustls(e));
        let resumption = Resumption::new().map_err(rustls)?;
        let material = sources.read()?;
        let secure = material.secure(&sources, None, &resumption)?;
        let fingerprint = material.fingerprint();
        Ok((Self { sources, resumption, cluster: None, fingerprint }, secure))
    }

    /// Follows on a thread of its own, until the loop is gone: files `every` so often, the cluster when it has said
    /// something.
    ///
    /// # Errors
    /// The thread cannot be started.
    pub fn follow(
        mut self,
        every: Duration,
        cluster: Option<Receiver<ClusterAuthentication>>,
        updates: UpdateSender,
    ) -> io::Result<()> {
        let run = move || {
            let mut cluster = cluster;
            loop {
                match cluster.as_ref().map(|receiver| receiver.recv_timeout(every)) {
                    None => thread::sleep(every),
                    Some(Err(RecvTimeoutError::Timeout)) => {}
                    Some(Err(RecvTimeoutError::Disconnected)) => cluster = None,
                    Some(Ok(said)) if self.cluster.as_ref() == Some(&said) => continue,
                    Some(Ok(said)) => {
                        tracing::info!("the cluster has said how it authenticates");
                        self.cluster = Some(said);
                        // Whatever the files hold, there is something new.
                        self.fingerprint = !self.fingerprint;
                    }
                }
                if updates.is_closed() {
                    return;
                }
                match self.changed() {
                    None => {}
                    Some(Ok(secure)) => {
                        tracing::info!("certificates loaded anew");
                        if !updates.send(Update::Secure(secure)) {
                            return;
                        }
                    }
                    Some(Err(error)) => tracing::warn!(%error, "certificates not loaded; the present ones stay"),
                }
            }
        };
        thread::Builder::new().name("certificates".to_owned()).spawn(run).map(drop)
    }

    /// A configuration, or why there is none, if something else was found than the last time.
    fn changed(&mut self) -> Option<Result<Secure, TlsConfigError>> {
        let read = self.sources.read();
        let fingerprint = match &read {
            Ok(material) => material.fingerprint(),
            Err(error) => {
                let mut hasher = DefaultHasher::new();
                error.to_string().hash(&mut hasher);
                hasher.finish()
            }
        };
        if std::mem::replace(&mut self.fingerprint, fingerprint) == fingerprint {
            return None;
        }
        Some(read.and_then(|material| material.secure(&self.sources, self.cluster.as_ref(), &self.resumption)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lease::Time;
    use crate::tls::source::FrontProxySource;
    use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, DnType, IsCa, KeyPair};
    use rustls_pki_types::CertificateDer;
    use std::fs;
    use tempfile::TempDir;

    fn ca() -> CertifiedIssuer<'static, KeyPair> {
        let mut params = CertificateParams::default();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.distinguished_name.push(DnType::CommonName, "a CA");
        CertifiedIssuer::self_signed(params, KeyPair::generate().expect("a key")).expect("a CA")
    }

    fn client(ca: &CertifiedIssuer<'static, KeyPair>) -> [CertificateDer<'static>; 1] {
        let mut params = CertificateParams::default();
        params.distinguished_name.push(DnType::CommonName, "somebody");
        let key = KeyPair::generate().expect("a key");
        [params.signed_by(&key, ca).expect("a certificate").der().clone()]
    }

    fn write_serving(dir: &TempDir) {
        let key = KeyPair::generate().expect("a key");
        let params = CertificateParams::new(vec!["localhost".to_owned()]).expect("a name");
        fs::write(dir.path().join("tls.crt"), params.self_signed(&key).expect("a certificate").pem()).expect("written");
        fs::write(dir.path().join("tls.key"), key.serialize_pem()).expect("written");
    }

    fn sources(dir: &TempDir, front_proxy: FrontProxySource) -> TlsSources {
        let client_ca = match front_proxy {
            FrontProxySource::Cluster { .. } => None,
            FrontProxySource::None | FrontProxySource::File(..) => Some(dir.path().join("ca.crt")),
        };
        let (cert, key) = (dir.path().join("tls.crt"), dir.path().join("tls.key"));
        TlsSources { cert, key, client_ca, front_proxy, alpn: Vec::new() }
    }

    /// What the certificate proves at a time at which rcgen's defaults are valid.
    fn proves(secure: &Secure, chain: &[CertificateDer<'_>]) -> (bool, bool) {
        let proof = secure.trust.prove(chain, Time(1_767_225_600));
        (proof.user.is_some(), proof.is_front_proxy)
    }

    #[test]
    fn only_what_is_new_and_right_is_taken() {
        let dir = tempfile::tempdir().expect("a folder");
        let (old, new) = (ca(), ca());
        write_serving(&dir);
        fs::write(dir.path().join("ca.crt"), old.pem()).expect("written");
        let (mut reloader, first) = Reloader::new(sources(&dir, FrontProxySource::None)).expect("a configuration");
        assert_eq!((proves(&first, &client(&old)), proves(&first, &client(&new))), ((true, false), (false, false)));
        assert!(reloader.changed().is_none());

        // A key that does not fit: told once.
        let key = fs::read(dir.path().join("tls.key")).expect("read");
        fs::write(dir.path().join("tls.key"), KeyPair::generate().expect("a key").serialize_pem()).expect("written");
        assert!(reloader.changed().expect("a change").is_err());
        assert!(reloader.changed().is_none());
        // A file that is away for a moment: told once.
        fs::remove_file(dir.path().join("tls.key")).expect("removed");
        assert!(reloader.changed().expect("a change").is_err());
        assert!(reloader.changed().is_none());

        fs::write(dir.path().join("tls.key"), key).expect("written");
        fs::write(dir.path().join("ca.crt"), new.pem()).expect("written");
        let second = reloader.changed().expect("a change").expect("a configuration");
        assert_eq!((proves(&second, &client(&old)), proves(&second, &client(&new))), ((false, false), (true, false)));
        assert!(reloader.changed().is_none());
    }

    #[test]
    fn nothing_is_trusted_before_the_cluster_has_spoken() {
        let dir = tempfile::tempdir().expect("a folder");
        write_serving(&dir);
        let (clients, proxies) = (ca(), ca());
        let (mut reloader, first) =
            Reloader::new(sources(&dir, FrontProxySource::Cluster { with_clients: true })).expect("a configuration");
        assert!(!first.trust.is_complete());
        assert_eq!(proves(&first, &client(&proxies)), (false, false));

        reloader.cluster = Some(ClusterAuthentication {
            client_ca: clients.pem(),
            front_proxy_ca: proxies.pem(),
            ..ClusterAuthentication::default()
        });
        reloader.fingerprint = !reloader.fingerprint;
        let second = reloader.changed().expect("a change").expect("a configuration");
        assert!(second.trust.is_complete());
        assert_eq!(proves(&second, &client(&proxies)), (false, true));
        assert_eq!(proves(&second, &client(&clients)), (true, false));
    }
}
