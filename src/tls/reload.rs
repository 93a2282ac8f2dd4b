//! Watches the TLS files and the cluster's authentication settings. When a file or a setting changes, sends the event
//! loop a new configuration. Later handshakes use the new configuration. On open connections, the server evaluates the
//! certificates of the peers again, with the new CAs.
//!
//! A configuration has three parts: the serving certificate and key, the client CAs, and the front-proxy CAs. If the
//! input of a part becomes invalid, the last valid part stays in use. So an error in one part does not delay changes
//! of the others. Errors are logged at once, then hourly.

use super::authorities::Authorities;
use super::config::{Secure, TlsConfigError, rustls_config};
use super::config_map::{CLIENT_CA, ClusterAuthentication, FRONT_PROXY_CA, origin};
use super::expiry::{Kind, Validity, Watched};
use super::identity::validity_of;
use super::source::{AuthoritiesPem, FrontProxySource, ServingPem, TlsSources};
use super::trust::{FrontProxy, Trust};
use crate::clock::Clock;
use crate::timestamp::Time;
use crate::updates::UpdateSender;
use rustls::sign::CertifiedKey;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::thread;
use std::time::{Duration, Instant};

/// Interval between checks of the files. The files have a few KiB, and each check reads their whole content. So
/// neither the symbolic links of a mounted Secret nor a copied modification time can hide a change.
pub const LOOK_EVERY: Duration = Duration::from_secs(5);

/// Interval between log lines about a lasting error.
const TELL_EVERY: Duration = Duration::from_hours(1);

/// Result of a change of the files or of the cluster's settings.
#[derive(Clone, Debug)]
pub enum Reload {
    /// New certificates or CAs.
    Done(Secure),
    /// Invalid certificates or CAs. The previous ones stay in use.
    Failed,
    /// Last second at which each watched certificate or set of CAs is valid, with the flag that names its file. The
    /// serving certificate is not among them, since [`Secure`] has its last second.
    Expiries(Vec<(&'static str, Time)>),
}

/// The sources and the current parts of the TLS configuration. Builds a new configuration when a source changes.
#[derive(Debug)]
pub struct Reloader {
    sources: TlsSources,
    cluster: Option<ClusterAuthentication>,
    serving: Part<Arc<CertifiedKey>>,
    clients: Part<Authorities>,
    proxies: Part<(Authorities, FrontProxy)>,
    /// The certificates whose expiry the log and a metric report. These include the client certificates for etcd and
    /// for kube-apiserver, which the clients of etcd and of kube-apiserver load themselves.
    watched: Vec<Watched>,
}

/// A part of a TLS configuration, built from the last valid input.
#[derive(Debug)]
struct Part<T> {
    /// The part as built from the last valid input; `None` before the first valid input.
    right: Option<T>,
    /// Fingerprint of the last input, valid or not.
    fingerprint: Option<u64>,
    /// Error of the last input.
    error: Option<TlsConfigError>,
    /// Time of the last log line about the error.
    told: Option<Instant>,
}

impl<T> Default for Part<T> {
    fn default() -> Self {
        Self { right: None, fingerprint: None, error: None, told: None }
    }
}

impl<T> Part<T> {
    /// Builds the part again if its input has changed. Returns whether the part has changed.
    fn update<F: Hash>(
        &mut self,
        found: Result<F, TlsConfigError>,
        make: impl FnOnce(F) -> Result<T, TlsConfigError>,
    ) -> bool {
        let fingerprint = fingerprint_of(&found);
        if self.fingerprint.replace(fingerprint) == Some(fingerprint) {
            return false;
        }
        match found.and_then(make) {
            Ok(right) => {
                (self.right, self.error) = (Some(right), None);
                true
            }
            Err(error) => {
                (self.error, self.told) = (Some(error), None);
                false
            }
        }
    }

    /// Returns the error of the part, if a log line about this error is due.
    fn untold(&mut self, now: Instant) -> Option<&TlsConfigError> {
        let error = self.error.as_ref()?;
        if self.told.is_some_and(|told| now.duration_since(told) < TELL_EVERY) {
            return None;
        }
        self.told = Some(now);
        Some(error)
    }
}

/// Computes a hash of the input, to detect a change. The hash must not be stored, because its algorithm may change with
/// the Rust release.
fn fingerprint_of(found: &Result<impl Hash, TlsConfigError>) -> u64 {
    let mut hasher = DefaultHasher::new();
    found.as_ref().map_err(ToString::to_string).hash(&mut hasher);
    hasher.finish()
}

impl Reloader {
    /// Creates the reloader and the first configuration.
    ///
    /// # Errors
    /// A file that cannot be read, has no usable content, or does not fit the other files.
    pub fn new(sources: TlsSources) -> Result<(Self, Secure), TlsConfigError> {
        let client_ca = sources.client_ca.clone().unwrap_or_else(|| origin(CLIENT_CA));
        let front_proxy_ca = match &sources.front_proxy {
            FrontProxySource::File(file, _) => file.clone(),
            FrontProxySource::None | FrontProxySource::Cluster { .. } => origin(FRONT_PROXY_CA),
        };
        let watched = vec![
            Watched::new(Kind::Serving, "tls-cert-file", sources.cert.clone()),
            Watched::new(Kind::ClientCa, CLIENT_CA, client_ca),
            Watched::new(Kind::FrontProxyCa, FRONT_PROXY_CA, front_proxy_ca),
        ];
        let (serving, clients, proxies) = (Part::default(), Part::default(), Part::default());
        let mut reloader = Self { sources, cluster: None, serving, clients, proxies, watched };
        reloader.update_parts();
        for error in [&mut reloader.serving.error, &mut reloader.clients.error, &mut reloader.proxies.error] {
            error.take().map_or(Ok(()), Err)?;
        }
        let secure = reloader.secure().expect("without an error, there is a serving certificate and key");
        Ok((reloader, secure))
    }

    /// Also watches the expiry of these client certificates for etcd. Each has the flag that names its file.
    pub fn watch_etcd_certs(&mut self, certs: impl Iterator<Item = (&'static str, PathBuf)>) {
        self.watched.extend(certs.map(|(flag, file)| Watched::new(Kind::Etcd, flag, file)));
    }

    /// Also watches the expiry of `pem`, the client certificate of the kubeconfig `file`.
    pub fn watch_kubeconfig(&mut self, file: PathBuf, pem: &[u8]) {
        self.watched.push(Watched::kubeconfig(file, pem));
    }

    /// Watches for changes on a separate thread until the event loop has ended: checks the files once `every` has
    /// passed, and sooner if settings of the cluster arrive.
    ///
    /// # Errors
    /// The thread cannot be started.
    pub fn follow(
        mut self,
        every: Duration,
        cluster: Option<Receiver<ClusterAuthentication>>,
        updates: UpdateSender<Reload>,
    ) -> io::Result<()> {
        let run = move || {
            let (mut cluster, clock) = (cluster, Clock::start());
            loop {
                if let Some(lasts) = self.expiries_changed()
                    && !updates.send(Reload::Expiries(lasts))
                {
                    return;
                }
                self.tell_expiry(clock.now().wall, Instant::now());
                match cluster.as_ref().map(|receiver| receiver.recv_timeout(every)) {
                    None => thread::sleep(every),
                    Some(Err(RecvTimeoutError::Timeout)) => {}
                    Some(Err(RecvTimeoutError::Disconnected)) => cluster = None,
                    Some(Ok(said)) if self.cluster.as_ref() == Some(&said) => {}
                    Some(Ok(said)) => {
                        tracing::info!("received the authentication settings of the cluster");
                        self.cluster = Some(said);
                    }
                }
                if updates.is_closed() {
                    return;
                }
                if let Some(secure) = self.changed() {
                    tracing::info!("loaded new certificates or CAs");
                    if !updates.send(Reload::Done(secure)) {
                        return;
                    }
                }
                for error in self.untold(Instant::now()) {
                    tracing::warn!(%error, "cannot load certificates or CAs; the previous ones stay in use");
                    if !updates.send(Reload::Failed) {
                        return;
                    }
                }
            }
        };
        thread::Builder::new().name("certificates".to_owned()).spawn(run).map(drop)
    }

    /// Returns a new configuration if a part has changed.
    fn changed(&mut self) -> Option<Secure> {
        if self.update_parts() { self.secure() } else { None }
    }

    /// Builds the parts again whose input has changed. Returns whether a part has changed.
    fn update_parts(&mut self) -> bool {
        let mut is_other = self.serving.update(self.sources.serving(), ServingPem::make);
        if let Some(found) = self.sources.clients(self.cluster.as_ref()) {
            is_other |= self.clients.update(found, AuthoritiesPem::make);
        }
        if let Some(found) = self.sources.proxies(self.cluster.as_ref()) {
            is_other |= self.proxies.update(found, |(pem, front_proxy)| Ok((pem.make()?, front_proxy)));
        }
        is_other
    }

    /// Builds a configuration from the last valid parts; `None` without a serving certificate and key. If the client
    /// CAs or the front-proxy CAs have never had valid input, the server trusts no CA of that kind.
    fn secure(&self) -> Option<Secure> {
        let serving = self.serving.right.clone()?;
        let is_complete = self.clients.right.is_some() && self.proxies.right.is_some();
        let clients = self.clients.right.clone().unwrap_or_default();
        let (proxies, front_proxy) = self.proxies.right.clone().unwrap_or_default();
        if front_proxy.allowed_names.is_empty() && clients.overlap(&proxies) {
            tracing::warn!(
                "a client CA is also a front-proxy CA, and every common name is allowed: the owner of any certificate \
                 of this CA can act as any user; name the front proxy in requestheader-allowed-names"
            );
        }
        let trust = Arc::new(Trust::new(clients, proxies, front_proxy, is_complete));
        let config = rustls_config(serving, Arc::clone(&trust));
        Some(Secure { config: Arc::new(config), trust, serving_last: self.serving_validity().map(|of| *of.end()) })
    }

    fn serving_validity(&self) -> Option<Validity> {
        validity_of(self.serving.right.as_ref()?.cert.first()?)
    }

    /// Notes the present validity of each watched certificate. If one has changed, returns the last second of each.
    fn expiries_changed(&mut self) -> Option<Vec<(&'static str, Time)>> {
        let serving = self.serving_validity();
        let clients = self.clients.right.as_ref().and_then(Authorities::validity);
        let proxies = self.proxies.right.as_ref().and_then(|(proxies, _)| proxies.validity());
        let mut is_other = false;
        for cert in &mut self.watched {
            is_other |= match cert.kind {
                Kind::Serving => cert.note(serving.clone()),
                Kind::ClientCa => cert.note(clients.clone()),
                Kind::FrontProxyCa => cert.note(proxies.clone()),
                Kind::Etcd => cert.look(),
                Kind::Kubeconfig => false,
            };
        }
        let lasts = self.watched.iter().filter(|cert| cert.kind != Kind::Serving).filter_map(Watched::last);
        is_other.then(|| lasts.collect())
    }

    /// Writes the log lines that are due about certificates that expire soon, have expired or are not valid yet.
    fn tell_expiry(&mut self, wall: Time, now: Instant) {
        for cert in &mut self.watched {
            if let Some(trouble) = cert.due(wall, now) {
                cert.tell(trouble);
            }
        }
    }

    /// Returns the errors that are due for a log line.
    fn untold(&mut self, now: Instant) -> impl Iterator<Item = &TlsConfigError> {
        [self.serving.untold(now), self.clients.untold(now), self.proxies.untold(now)].into_iter().flatten()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tls::expiry::{TELL_EXPIRY_EVERY, Trouble};
    use crate::updates;
    use mio::{Events, Poll, Token, Waker};
    use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, DnType, IsCa, KeyPair};
    use rustls_pki_types::CertificateDer;
    use std::fs;
    use std::sync::mpsc;
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
        TlsSources { cert, key, client_ca, front_proxy }
    }

    /// Returns whether the certificate proves a user, and whether it proves a front proxy. Evaluates it at a time at
    /// which rcgen's default certificates are valid.
    fn proves(secure: &Secure, chain: &[CertificateDer<'_>]) -> (bool, bool) {
        let proof = secure.trust.prove(chain, Time(1_767_225_600));
        (proof.user.is_some(), proof.is_front_proxy)
    }

    #[test]
    fn only_changed_and_valid_files_are_loaded() {
        let dir = tempfile::tempdir().expect("a folder");
        let (old, new) = (ca(), ca());
        write_serving(&dir);
        fs::write(dir.path().join("ca.crt"), old.pem()).expect("written");
        let (mut reloader, first) = Reloader::new(sources(&dir, FrontProxySource::None)).expect("a configuration");
        assert_eq!((proves(&first, &client(&old)), proves(&first, &client(&new))), ((true, false), (false, false)));
        assert!(reloader.changed().is_none());

        // First a key that does not fit the certificate, then a file that is briefly missing. Each error is logged
        // once, and again after an hour.
        let key = fs::read(dir.path().join("tls.key")).expect("read");
        let now = Instant::now();
        assert_eq!(reloader.untold(now).count(), 0);
        fs::write(dir.path().join("tls.key"), KeyPair::generate().expect("a key").serialize_pem()).expect("written");
        assert!(reloader.changed().is_none());
        assert_eq!((reloader.untold(now).count(), reloader.untold(now).count()), (1, 0));
        fs::remove_file(dir.path().join("tls.key")).expect("removed");
        assert!(reloader.changed().is_none() && reloader.changed().is_none());
        assert_eq!((reloader.untold(now).count(), reloader.untold(now).count()), (1, 0));
        assert_eq!((reloader.untold(now + TELL_EVERY).count(), reloader.untold(now + TELL_EVERY).count()), (1, 0));

        // While `tls.key` is missing, other client CAs are loaded.
        fs::write(dir.path().join("ca.crt"), new.pem()).expect("written");
        let second = reloader.changed().expect("a configuration");
        assert_eq!((proves(&second, &client(&old)), proves(&second, &client(&new))), ((false, false), (true, false)));
        assert!(reloader.changed().is_none());
        fs::write(dir.path().join("tls.key"), key).expect("written");
        assert!(reloader.changed().is_some());
        assert_eq!(reloader.untold(now + 2 * TELL_EVERY).count(), 0);
    }

    #[test]
    fn a_serving_pair_reloads_despite_an_invalid_client_ca() {
        let dir = tempfile::tempdir().expect("a folder");
        let own = ca();
        write_serving(&dir);
        fs::write(dir.path().join("ca.crt"), own.pem()).expect("written");
        let (mut reloader, _first) = Reloader::new(sources(&dir, FrontProxySource::None)).expect("a configuration");
        let served = |reloader: &Reloader| reloader.serving.right.as_ref().expect("a pair").cert.clone();
        let before = served(&reloader);
        fs::write(dir.path().join("ca.crt"), "").expect("written");
        write_serving(&dir);
        let second = reloader.changed().expect("a configuration");
        assert_ne!(served(&reloader), before);
        // The empty `ca.crt` is invalid, so the previous CAs are still trusted.
        assert_eq!(proves(&second, &client(&own)), (true, false));
        assert_eq!(reloader.untold(Instant::now()).count(), 1);
    }

    #[test]
    fn an_unusable_or_expiring_serving_certificate_is_logged_daily() {
        const DAY: i64 = 24 * 3600;
        let dir = tempfile::tempdir().expect("a folder");
        fs::write(dir.path().join("ca.crt"), ca().pem()).expect("written");
        // `LAST`, 2026-01-01, is the last second of each certificate's validity. Each pair has the length of the
        // validity, and how long before its end the log warns, both in days.
        const LAST: Time = Time(1_767_225_600);
        for (days, soon) in [(365, 30), (90, 22), (4, 1)] {
            let key = KeyPair::generate().expect("a key");
            let mut params = CertificateParams::new(vec!["localhost".to_owned()]).expect("a name");
            params.not_after = rcgen::date_time_ymd(2026, 1, 1);
            params.not_before = params.not_after - time::Duration::days(days);
            let cert = params.self_signed(&key).expect("a certificate");
            fs::write(dir.path().join("tls.crt"), cert.pem()).expect("written");
            fs::write(dir.path().join("tls.key"), key.serialize_pem()).expect("written");
            let (mut reloader, first) = Reloader::new(sources(&dir, FrontProxySource::None)).expect("a configuration");
            assert_eq!(first.serving_last, Some(LAST));
            let now = Instant::now();
            reloader.expiries_changed();
            let serving = reloader.watched.iter_mut().find(|cert| cert.kind == Kind::Serving).expect("it is watched");
            let mut trouble = |wall, now| serving.due(wall, now);
            assert_eq!(trouble(Time(LAST.0 - days * DAY - 1), now), Some(Trouble::NotYetValid), "{days}");
            assert_eq!(trouble(Time(LAST.0 - (soon + 1) * DAY), now), None, "{days}");
            assert_eq!(trouble(Time(LAST.0 - soon * DAY), now), Some(Trouble::ExpiresSoon), "{days}");
            let later = now + TELL_EXPIRY_EVERY;
            assert_eq!(trouble(LAST, later - Duration::from_secs(1)), None);
            assert_eq!(trouble(LAST, later), Some(Trouble::ExpiresSoon));
            assert_eq!(trouble(Time(LAST.0 + DAY), later), Some(Trouble::Expired));
        }
    }

    /// A replaced CA may stay in a file until it expires, so the CA that expires last counts.
    #[test]
    fn the_expiry_of_each_certificate_is_reported() {
        let dir = tempfile::tempdir().expect("a folder");
        let path = |name: &str| dir.path().join(name);
        let until = |year| {
            let mut params = CertificateParams::default();
            params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
            params.not_after = rcgen::date_time_ymd(year, 1, 1);
            params.self_signed(&KeyPair::generate().expect("a key")).expect("a certificate").pem()
        };
        write_serving(&dir);
        fs::write(path("ca.crt"), until(2025) + &until(2028)).expect("written");
        fs::write(path("proxy.crt"), until(2027)).expect("written");
        fs::write(path("etcd.crt"), until(2026)).expect("written");
        let front_proxy = FrontProxySource::File(path("proxy.crt"), FrontProxy::default());
        let (mut reloader, _first) = Reloader::new(sources(&dir, front_proxy)).expect("a configuration");
        reloader.watch_etcd_certs([("etcd-certfile", path("etcd.crt"))].into_iter());
        reloader.watch_kubeconfig(path("kubeconfig"), until(2025).as_bytes());
        let [in_2025, in_2026, in_2027, in_2028] =
            [1_735_689_600, 1_767_225_600, 1_798_761_600, 1_830_297_600].map(Time);
        let mut lasts = vec![
            ("client-ca-file", in_2028),
            ("requestheader-client-ca-file", in_2027),
            ("etcd-certfile", in_2026),
            ("kubeconfig", in_2025),
        ];
        assert_eq!(reloader.expiries_changed(), Some(lasts.clone()));
        assert_eq!(reloader.expiries_changed(), None, "nothing has changed");
        fs::write(path("ca.crt"), until(2027)).expect("written");
        assert!(reloader.changed().is_some());
        lasts[0].1 = in_2027;
        assert_eq!(reloader.expiries_changed(), Some(lasts));
    }

    /// Returns a reloader that trusts the CAs of the cluster, with its folder and its first configuration.
    fn cluster_reloader() -> (TempDir, Reloader, Secure) {
        let dir = tempfile::tempdir().expect("a folder");
        write_serving(&dir);
        let from = FrontProxySource::Cluster { with_clients: true };
        let (reloader, first) = Reloader::new(sources(&dir, from)).expect("a configuration");
        (dir, reloader, first)
    }

    /// Creates a ConfigMap with these values.
    fn cluster_with(client_ca: &str, front_proxy_ca: &str, allowed_names: &str) -> ClusterAuthentication {
        let values = [
            ("client-ca-file", client_ca),
            ("requestheader-client-ca-file", front_proxy_ca),
            ("requestheader-allowed-names", allowed_names),
        ];
        ClusterAuthentication::new(values.map(|(key, value)| (key.to_owned(), value.to_owned())).into())
    }

    #[test]
    fn files_are_checked_even_when_equal_settings_arrive() {
        let (dir, reloader, _first) = cluster_reloader();
        let mut poll = Poll::new().expect("a poll");
        let waker = Waker::new(poll.registry(), Token(0)).expect("a waker");
        let (sender, reloads) = updates::queue(Arc::new(waker));
        let (settings, received) = mpsc::channel();
        reloader.follow(Duration::from_hours(1), Some(received), sender).expect("a thread");
        let equal = cluster_with(&ca().pem(), &ca().pem(), "[]");
        for what in ["the first settings", "equal settings and another serving certificate"] {
            settings.send(equal.clone()).expect("a receiver");
            let reload = loop {
                match reloads.next() {
                    Some(Reload::Expiries(_)) => continue,
                    Some(reload) => break reload,
                    None => {}
                }
                let mut events = Events::with_capacity(1);
                poll.poll(&mut events, Some(Duration::from_secs(20))).expect("a poll");
                assert!(!events.is_empty(), "no reload after {what}");
            };
            assert!(matches!(reload, Reload::Done(_)), "{what}: {reload:?}");
            // The thread reads `tls.crt` and `tls.key` only when the next settings arrive. So it never finds only one
            // of the two files changed.
            write_serving(&dir);
        }
    }

    #[test]
    fn invalid_front_proxy_names_do_not_block_client_cas() {
        let (clients, proxies, later) = (ca(), ca(), ca());
        let (_dir, mut reloader, _first) = cluster_reloader();
        let mut said = |client_ca: String, allowed_names: &str| {
            reloader.cluster = Some(cluster_with(&client_ca, &proxies.pem(), allowed_names));
            let secure = reloader.changed().expect("a configuration");
            (secure, reloader.untold(Instant::now()).count())
        };
        let (before, wrong) = said(clients.pem(), "[]");
        assert_eq!((proves(&before, &client(&clients)), wrong), ((true, false), 0));
        let (after, wrong) = said(later.pem(), "front-proxy-client");
        assert_eq!(
            (proves(&after, &client(&later)), proves(&after, &client(&clients))),
            ((true, false), (false, false))
        );
        assert_eq!((proves(&after, &client(&proxies)), wrong), ((false, true), 1));
    }

    #[test]
    fn an_invalid_cluster_ca_leaves_the_other_ca_in_use() {
        let (clients, proxies, later) = (ca(), ca(), ca());
        let (_dir, mut reloader, _first) = cluster_reloader();
        let mut said = |client_ca: &str, front_proxy_ca: String| {
            reloader.cluster = Some(cluster_with(client_ca, &front_proxy_ca, "[]"));
            reloader.changed()
        };
        let half = said("noise", proxies.pem()).expect("a configuration");
        assert!(!half.trust.is_complete());
        assert_eq!(proves(&half, &client(&proxies)), (false, true));
        let whole = said(&clients.pem(), proxies.pem()).expect("a configuration");
        assert!(whole.trust.is_complete());
        let other = said("noise", later.pem()).expect("a configuration");
        assert!(other.trust.is_complete());
        assert_eq!(proves(&other, &client(&clients)), (true, false));
        assert_eq!(
            (proves(&other, &client(&proxies)), proves(&other, &client(&later))),
            ((false, false), (false, true))
        );
    }

    #[test]
    fn a_cluster_without_a_front_proxy_ca_is_incomplete() {
        let (_dir, mut reloader, _first) = cluster_reloader();
        reloader.cluster = Some(cluster_with(&ca().pem(), "", "[]"));
        assert!(!reloader.changed().expect("the authorities of clients").trust.is_complete());
        let told: Vec<_> = reloader.untold(Instant::now()).map(ToString::to_string).collect();
        let expected = "ConfigMap kube-system/extension-apiserver-authentication, requestheader-client-ca-file: holds \
                        no PEM certificate";
        assert_eq!(told, [expected]);
        reloader.cluster = Some(cluster_with(&ca().pem(), &ca().pem(), "[]"));
        assert!(reloader.changed().expect("both").trust.is_complete());
    }

    #[test]
    fn no_client_is_trusted_before_the_cluster_is_read() {
        let (clients, proxies) = (ca(), ca());
        let (_dir, mut reloader, first) = cluster_reloader();
        assert!(!first.trust.is_complete());
        assert_eq!(proves(&first, &client(&proxies)), (false, false));

        reloader.cluster = Some(cluster_with(&clients.pem(), &proxies.pem(), "[]"));
        let second = reloader.changed().expect("a configuration");
        assert!(second.trust.is_complete());
        assert_eq!(proves(&second, &client(&proxies)), (false, true));
        assert_eq!(proves(&second, &client(&clients)), (true, false));
    }
}
