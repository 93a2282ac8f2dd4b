//! Log lines about certificates that expire soon, have expired, or are not valid yet.

use super::config::certs_of;
use super::identity::validity_of;
use crate::timestamp::{Time, push_time};
use std::fs;
use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
use time::OffsetDateTime;

/// Interval between log lines about the same trouble with a certificate.
pub(super) const TELL_EXPIRY_EVERY: Duration = Duration::from_hours(24);

/// A certificate expires soon if fewer than this many seconds of its validity are left: 30 days. For a short validity,
/// the last quarter of the validity counts instead. Otherwise the log would always warn about a certificate that is
/// valid for a few days.
pub(crate) const EXPIRES_SOON_SECONDS: i64 = 30 * 24 * 3600;
const EXPIRES_SOON_PART: i64 = 4;

/// First and last second at which a certificate is valid.
pub(super) type Validity = RangeInclusive<Time>;

/// A reason why a certificate cannot be used, or soon cannot be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Trouble {
    NotYetValid,
    ExpiresSoon,
    Expired,
}

impl Trouble {
    fn of(validity: &Validity, wall: Time) -> Option<Self> {
        let (first, last) = (*validity.start(), *validity.end());
        let soon = EXPIRES_SOON_SECONDS.min(last.0.saturating_sub(first.0) / EXPIRES_SOON_PART);
        if last < wall {
            Some(Self::Expired)
        } else if wall < first {
            Some(Self::NotYetValid)
        } else if wall.0 >= last.0.saturating_sub(soon) {
            Some(Self::ExpiresSoon)
        } else {
            None
        }
    }
}

/// The last log line about the validity of a certificate.
#[derive(Debug, Default)]
pub(super) struct ExpiryLog {
    /// Trouble in the last log line, and time of that line; `None` if there is no trouble.
    told: Option<(Trouble, Instant)>,
}

impl ExpiryLog {
    /// Returns the trouble with a certificate if a log line about it is due: at once, and then every day.
    pub(super) fn due(&mut self, validity: &Validity, wall: Time, now: Instant) -> Option<Trouble> {
        let Some(trouble) = Trouble::of(validity, wall) else {
            self.told = None;
            return None;
        };
        if self.told.is_some_and(|(told, at)| told == trouble && now.duration_since(at) < TELL_EXPIRY_EVERY) {
            return None;
        }
        self.told = Some((trouble, now));
        Some(trouble)
    }
}

/// What a watched certificate is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Serving,
    ClientCa,
    FrontProxyCa,
    Etcd,
    Kubeconfig,
}

impl Kind {
    /// Returns the words for log lines: the name of the certificate, the effect if it is not valid, and the remedy.
    fn words(self) -> [&'static str; 3] {
        match self {
            Self::Serving => [
                "the serving certificate",
                "clients refuse this server",
                "renew it; a restart renews it if this server has issued it",
            ],
            Self::ClientCa => [
                "the client CA",
                "this server refuses the client certificates of this CA",
                "renew it, and then the client certificates",
            ],
            Self::FrontProxyCa => [
                "the front-proxy CA",
                "this server refuses all requests that kube-apiserver forwards",
                "renew it, and then the front-proxy certificate of kube-apiserver",
            ],
            Self::Etcd => [
                "the client certificate for etcd",
                "etcd refuses new connections",
                "renew it; this server loads the new file by itself",
            ],
            Self::Kubeconfig => [
                "the client certificate of the kubeconfig",
                "kube-apiserver refuses this server",
                "renew it, and restart this server",
            ],
        }
    }
}

/// A certificate, or a set of CAs, whose expiry this server watches.
#[derive(Debug)]
pub(super) struct Watched {
    pub(super) kind: Kind,
    /// Name of the flag that names the file. The key of a CA in the cluster's ConfigMap has the same name as the flag.
    flag: &'static str,
    /// The file, or the name of the other source.
    file: PathBuf,
    /// Validity of the certificate; `None` if there is no certificate, or if no usable one was read yet.
    validity: Option<Validity>,
    log: ExpiryLog,
}

impl Watched {
    pub(super) fn new(kind: Kind, flag: &'static str, file: PathBuf) -> Self {
        Self { kind, flag, file, validity: None, log: ExpiryLog::default() }
    }

    /// Watches `pem`, the client certificate of the kubeconfig `file`. The certificate does not change: the client for
    /// kube-apiserver loads it only at the start.
    pub(super) fn kubeconfig(file: PathBuf, pem: &[u8]) -> Self {
        let validity = validity_in(&file, pem);
        Self { validity, ..Self::new(Kind::Kubeconfig, "kubeconfig", file) }
    }

    /// Reads the certificate in the file again. Returns whether the validity has changed.
    pub(super) fn look(&mut self) -> bool {
        let found = fs::read(&self.file).ok().and_then(|text| validity_in(&self.file, &text));
        // A file with unusable content may just be being written. So the last known validity stays.
        found.is_some() && self.note(found)
    }

    /// Notes the present validity. Returns whether it has changed.
    pub(super) fn note(&mut self, validity: Option<Validity>) -> bool {
        let is_other = self.validity != validity;
        self.validity = validity;
        is_other
    }

    /// Returns the flag, and the last second at which the certificate is valid.
    pub(super) fn last(&self) -> Option<(&'static str, Time)> {
        Some((self.flag, *self.validity.as_ref()?.end()))
    }

    /// Returns the trouble with the certificate, if a log line about it is due.
    pub(super) fn due(&mut self, wall: Time, now: Instant) -> Option<Trouble> {
        self.log.due(self.validity.as_ref()?, wall, now)
    }

    /// Writes a log line about the trouble with the certificate.
    pub(super) fn tell(&self, trouble: Trouble) {
        let (flag, file, [name, effect, remedy]) = (self.flag, self.file.display(), self.kind.words());
        let (from, until) = self.validity.as_ref().map(words_of).unwrap_or_default();
        match trouble {
            Trouble::NotYetValid => {
                tracing::error!(flag, %file, from, "{name} is not valid yet: {effect}; check the clocks");
            }
            Trouble::ExpiresSoon => tracing::warn!(flag, %file, until, "{name} expires soon: {remedy}"),
            Trouble::Expired => tracing::error!(flag, %file, until, "{name} has expired: {effect}; {remedy}"),
        }
    }
}

/// Returns the validity of the first certificate in a PEM text from `file`; `None` if the text has none.
fn validity_in(file: &Path, text: &[u8]) -> Option<Validity> {
    validity_of(certs_of(file, text).ok()?.first()?)
}

/// Returns the first second and the last day of a validity as texts.
fn words_of(validity: &Validity) -> (String, String) {
    let mut from = Vec::new();
    push_time(&mut from, *validity.start());
    let until = OffsetDateTime::from_unix_timestamp(validity.end().0);
    let until = until.map_or_else(|_| String::new(), |at| at.date().to_string());
    (String::from_utf8(from).unwrap_or_default(), until)
}

#[cfg(test)]
mod tests {
    use super::*;
    use rcgen::{CertificateParams, KeyPair, date_time_ymd};

    const DAY: i64 = 24 * 3600;

    #[test]
    fn a_new_trouble_is_logged_at_once_and_then_daily() {
        let (first, last) = (Time(100 * DAY), Time(465 * DAY));
        let (validity, mut log, begun) = (first..=last, ExpiryLog::default(), Instant::now());
        let day = |days: u64| begun + Duration::from_hours(24 * days);
        assert_eq!(log.due(&validity, Time(first.0 - 1), day(0)), Some(Trouble::NotYetValid));
        assert_eq!(log.due(&validity, Time(first.0 - 1), day(0)), None);
        assert_eq!(log.due(&validity, Time(first.0 - 1), day(1)), Some(Trouble::NotYetValid));
        assert_eq!(log.due(&validity, first, day(1)), None);
        assert_eq!(log.due(&validity, last, day(1)), Some(Trouble::ExpiresSoon));
        assert_eq!(log.due(&validity, Time(last.0 + 1), day(1)), Some(Trouble::Expired));
        // A renewed certificate ends the trouble. So the next trouble is logged at once, although the last log line
        // about the same trouble was on the same day.
        let renewed = first..=Time(last.0 + 365 * DAY);
        assert_eq!(log.due(&renewed, Time(last.0 + 1), day(1)), None);
        assert_eq!(log.due(&validity, Time(last.0 + 1), day(1)), Some(Trouble::Expired));
    }

    #[test]
    fn unusable_content_keeps_the_last_expiry() {
        let dir = tempfile::tempdir().expect("a folder");
        let file = dir.path().join("client.crt");
        let write = |year| {
            let mut params = CertificateParams::default();
            (params.not_before, params.not_after) = (date_time_ymd(2025, 1, 1), date_time_ymd(year, 1, 1));
            let cert = params.self_signed(&KeyPair::generate().expect("a key")).expect("a certificate");
            fs::write(&file, cert.pem()).expect("written");
        };
        let mut cert = Watched::new(Kind::Etcd, "etcd-certfile", file.clone());
        assert!(!cert.look());
        assert_eq!((cert.last(), cert.due(Time(0), Instant::now())), (None, None), "there is no file");
        write(2026);
        assert_eq!((cert.look(), cert.look()), (true, false));
        assert_eq!(cert.last(), Some(("etcd-certfile", Time(1_767_225_600))));
        assert_eq!(cert.due(Time(1_767_225_600), Instant::now()), Some(Trouble::ExpiresSoon));
        fs::write(&file, "half a file").expect("written");
        assert!(!cert.look());
        assert_eq!(cert.last(), Some(("etcd-certfile", Time(1_767_225_600))));
        write(2027);
        assert!(cert.look());
        assert_eq!(cert.last(), Some(("etcd-certfile", Time(1_798_761_600))));
    }

    #[test]
    fn the_log_names_the_beginning_to_the_second_and_the_day_of_expiry() {
        let words = words_of(&(Time(1_767_225_601)..=Time(1_798_761_600)));
        assert_eq!(words, ("2026-01-01T00:00:01Z".to_owned(), "2027-01-01".to_owned()));
    }
}
