//! Tests a certificate folder from the first start to the expiry of the certificates.

use super::*;
use crate::tls::identity::identity_of;
use crate::tls::reload::Reloader;
use crate::tls::source::{FrontProxySource, TlsSources};
use rcgen::{BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, KeyPair};
use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::PermissionsExt as _;

const LOOPBACK: IpAddr = IpAddr::V4(std::net::Ipv4Addr::LOCALHOST);

/// The path of a certificate folder inside a temporary folder. The path does not exist yet, so its creation is part of
/// each test.
struct Folder(tempfile::TempDir);

impl Folder {
    fn new() -> Self {
        Self(tempfile::tempdir().expect("a folder"))
    }

    /// Returns a certificate folder that a first start of the server has filled.
    fn made() -> Self {
        let folder = Self::new();
        folder.ensure().expect("made");
        folder
    }

    fn dir(&self) -> PathBuf {
        self.0.path().join("a/b")
    }

    fn file(&self, name: &str) -> PathBuf {
        self.dir().join(name)
    }

    fn ensure(&self) -> Result<CertDir, PkiError> {
        ensure_cert_dir(&self.dir(), &serving_names(LOOPBACK))
    }

    /// Returns the name and the content of every file in the folder.
    fn content(&self) -> BTreeMap<String, Vec<u8>> {
        let entries = fs::read_dir(self.dir()).expect("a folder").map(|entry| entry.expect("an entry"));
        entries.map(|e| (e.file_name().to_string_lossy().into_owned(), fs::read(e.path()).expect("read"))).collect()
    }

    /// Returns the names of the files that have changed since `before`.
    fn changed(&self, before: &BTreeMap<String, Vec<u8>>) -> Vec<String> {
        self.content()
            .into_iter()
            .filter(|(name, bytes)| before.get(name) != Some(bytes))
            .map(|(name, _)| name)
            .collect()
    }

    fn cert(&self, name: &str) -> CertificateDer<'static> {
        CertificateDer::from_pem_file(self.file(name)).expect("a certificate")
    }

    fn key(&self, name: &str) -> KeyPair {
        KeyPair::try_from(&PrivateKeyDer::from_pem_file(self.file(name)).expect("PEM")).expect("a key")
    }

    /// Replaces the certificate `name` by a certificate with the same key that expires at `not_after`. The CA in the
    /// folder issues it.
    fn reissue(&self, name: &str, not_after: OffsetDateTime) {
        let issuer = rcgen::Issuer::from_ca_cert_der(&self.cert("ca.crt"), self.key("ca.key")).expect("an issuer");
        let names = vec!["localhost".to_owned(), "127.0.0.1".to_owned()];
        let mut params = CertificateParams::new(names).expect("names");
        params.not_before = not_after - time::Duration::days(365);
        params.not_after = not_after;
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth, ExtendedKeyUsagePurpose::ClientAuth];
        let cert = params.signed_by(&self.key(&format!("{name}.key")), &issuer).expect("a certificate");
        fs::write(self.file(&format!("{name}.crt")), cert.pem()).expect("written");
    }

    /// Returns the error of a start, and checks that the start has changed no file.
    fn refusal(&self) -> String {
        let before = self.content();
        let error = self.ensure().expect_err("an error").to_string();
        assert_eq!(self.changed(&before), [] as [&str; 0], "{error}");
        assert!(!error.contains('\n'), "{error}");
        error
    }
}

/// Completes a certificate folder, as the start of a server does.
fn ensure_cert_dir(dir: &Path, names: &[ServerName<'static>]) -> Result<CertDir, PkiError> {
    let certs = CertDir::open(dir)?;
    certs.ensure_serving(names)?;
    certs.ensure_admin()?;
    Ok(certs)
}

fn mode(path: &Path) -> u32 {
    fs::metadata(path).expect("metadata").permissions().mode() & 0o777
}

#[test]
fn the_first_start_creates_all_files_and_protects_keys() {
    let folder = Folder::new();
    let certs = folder.ensure().expect("made");
    certs.write_kubeconfig("127.0.0.1:8443".parse().expect("an address"), None).expect("written");
    let names: Vec<String> = folder.content().into_keys().collect();
    let expected = [
        ".admin.kubeconfig.lock",
        ".lock",
        "admin.crt",
        "admin.key",
        "admin.kubeconfig",
        "apiserver.crt",
        "apiserver.key",
        "ca.crt",
        "ca.key",
    ];
    assert_eq!(names, expected);
    assert_eq!(mode(&folder.dir()), 0o700);
    for name in names {
        let public = name.ends_with(".crt");
        assert_eq!(mode(&folder.file(&name)) & 0o077 != 0, public, "{name}");
    }
}

#[test]
fn issued_certificates_serve_and_authenticate_the_admin() {
    let folder = Folder::new();
    let certs = folder.ensure().expect("made");
    let sources = TlsSources {
        cert: certs.serving_cert(),
        key: certs.serving_key(),
        client_ca: Some(certs.ca_cert()),
        front_proxy: FrontProxySource::None,
    };
    Reloader::new(sources).expect("a configuration");

    let admin = identity_of(&folder.cert("admin.crt")).expect("an identity");
    assert_eq!(admin.user, "admin");
    assert_eq!(admin.groups, ["system:masters", "system:authenticated"]);
    let facts = issue::facts_of(&folder.cert("admin.crt")).expect("facts");
    let as_server = Leaf::Serving(&[]);
    let judged = |leaf, name| {
        issue::judge(leaf, &[folder.cert(name)], &folder.cert("ca.crt"), &facts, OffsetDateTime::now_utc())
    };
    assert_eq!(judged(&Leaf::Admin, "admin.crt"), Ok(Verdict::Good));
    assert!(judged(&Leaf::Admin, "apiserver.crt").is_err(), "a serving certificate is no client's");
    assert_eq!(judged(&as_server, "apiserver.crt"), Ok(Verdict::Good));
    assert!(judged(&Leaf::Serving(&serving_names(LOOPBACK)), "admin.crt").is_err(), "nor the other way round");
}

#[test]
fn the_second_start_changes_nothing() {
    let folder = Folder::made();
    let before = folder.content();
    folder.ensure().expect("reused");
    assert_eq!(folder.changed(&before), [] as [&str; 0]);
}

#[test]
fn the_kubeconfig_follows_the_port() {
    let folder = Folder::new();
    let certs = folder.ensure().expect("made");
    let kubeconfig = |addr: &str| certs.write_kubeconfig(addr.parse().expect("an address"), None).expect("written");
    let names_server = |name: &str, addr: &str| {
        fs::read_to_string(folder.file(name)).expect("read").contains(&format!("server: https://{addr}\n"))
    };
    drop(kubeconfig("127.0.0.1:8443"));
    assert!(names_server("admin.kubeconfig", "127.0.0.1:8443"));
    let before = folder.content();
    let first = kubeconfig("127.0.0.1:9443");
    assert_eq!(folder.changed(&before), ["admin.kubeconfig"]);
    assert!(names_server("admin.kubeconfig", "127.0.0.1:9443"));
    assert_eq!(mode(first.path()), 0o600);

    // The first server (`first`) still runs. So no other server may write its kubeconfig.
    let before = folder.content();
    for (addr, name) in
        [("127.0.0.1:8443", "admin-127.0.0.1-8443.kubeconfig"), ("[::1]:8443", "admin---1-8443.kubeconfig")]
    {
        let second = kubeconfig(addr);
        assert_eq!(second.path(), folder.file(name));
        assert!(names_server(name, addr));
    }
    assert!(!folder.changed(&before).iter().any(|name| name == "admin.kubeconfig"));
    drop(first);
    assert_eq!(kubeconfig("127.0.0.1:8443").path(), folder.file("admin.kubeconfig"));
}

#[test]
fn a_certificate_near_its_expiry_is_renewed_with_its_key() {
    let folder = Folder::made();
    for name in ["apiserver", "admin"] {
        for days in [29, -1] {
            folder.reissue(name, OffsetDateTime::now_utc() + time::Duration::days(days));
            let before = folder.content();
            ensure_cert_dir(&folder.dir(), &serving_names(LOOPBACK)[..1]).expect("renewed");
            assert_eq!(folder.changed(&before), [format!("{name}.crt")]);
            let facts = issue::facts_of(&folder.cert(&format!("{name}.crt"))).expect("facts");
            assert!(facts.not_after > OffsetDateTime::now_utc() + time::Duration::days(300));
        }
    }
    let before = folder.content();
    folder.reissue("apiserver", OffsetDateTime::now_utc() + time::Duration::days(40));
    ensure_cert_dir(&folder.dir(), &serving_names(LOOPBACK)[..1]).expect("as it is");
    assert_eq!(folder.changed(&before), ["apiserver.crt"], "40 days are enough: only the test has changed it");
}

#[test]
fn a_new_bind_address_renews_the_serving_certificate_alone() {
    let folder = Folder::made();
    let before = folder.content();
    let names = serving_names(IpAddr::from([10, 1, 2, 3]));
    ensure_cert_dir(&folder.dir(), &names).expect("renewed");
    assert_eq!(folder.changed(&before), ["apiserver.crt"]);
    let before = folder.content();
    ensure_cert_dir(&folder.dir(), &names).expect("reused");
    folder.ensure().expect("fewer names are fine");
    assert_eq!(folder.changed(&before), [] as [&str; 0]);
}

#[test]
fn a_missing_certificate_is_issued_again_for_its_key() {
    let folder = Folder::made();
    for name in ["apiserver.crt", "admin.crt", "ca.crt"] {
        fs::remove_file(folder.file(name)).expect("removed");
        let before = folder.content();
        folder.ensure().expect("made good");
        assert_eq!(folder.changed(&before), [name], "an authority made again for its key still is the issuer");
    }
}

#[test]
fn a_certificate_without_its_key_is_refused() {
    for name in ["apiserver", "admin"] {
        let folder = Folder::made();
        fs::remove_file(folder.file(&format!("{name}.key"))).expect("removed");
        let error = folder.refusal();
        assert!(error.contains(&format!("{name}.crt: its private key")), "{error}");
    }
}

#[test]
fn the_ca_key_is_needed_only_to_sign() {
    let folder = Folder::made();
    folder.reissue("admin", OffsetDateTime::now_utc() + time::Duration::days(3));
    fs::remove_file(folder.file("ca.key")).expect("removed");
    folder.ensure().expect("an admin certificate that still holds is used");
    fs::remove_file(folder.file("apiserver.crt")).expect("removed");
    let error = folder.refusal();
    assert!(error.contains("ca.key: the key is missing") && error.contains("apiserver.crt"), "{error}");
}

#[test]
fn an_unreadable_file_is_named_and_left_unchanged() {
    for name in ["ca.crt", "ca.key", "apiserver.crt", "apiserver.key", "admin.crt", "admin.key"] {
        for noise in ["", "noise", "-----BEGIN CERTIFICATE-----\n!\n-----END CERTIFICATE-----\n"] {
            let folder = Folder::made();
            fs::write(folder.file(name), noise).expect("written");
            let error = folder.refusal();
            assert!(error.contains(&format!("{name}: ")), "{error}");
        }
    }
}

#[test]
fn a_certificate_that_does_not_match_its_key_is_refused() {
    for (name, expected) in [
        ("ca.key", "does not belong to ca.key"),
        ("apiserver.key", "does not belong to its key"),
        ("admin.key", "does not belong to its key"),
    ] {
        let folder = Folder::made();
        fs::write(folder.file(name), KeyPair::generate().expect("a key").serialize_pem()).expect("written");
        let error = folder.refusal();
        assert!(error.contains(expected), "{error}");
    }
}

#[test]
fn an_expired_certificate_of_another_ca_is_refused() {
    let (folder, other) = (Folder::made(), Folder::made());
    other.reissue("apiserver", OffsetDateTime::now_utc() - time::Duration::days(1));
    for name in ["apiserver.crt", "apiserver.key"] {
        fs::copy(other.file(name), folder.file(name)).expect("copied");
    }
    let error = folder.refusal();
    assert!(error.contains("not issued by the ca.crt beside it"), "{error}");
}

/// Puts an operator's own CA, whose subject has several parts, into the folder before the first start.
fn own_authority(folder: &Folder, change: impl FnOnce(&mut CertificateParams)) {
    let key = KeyPair::generate_for(&rcgen::PKCS_ECDSA_P384_SHA384).expect("a key");
    let mut params = CertificateParams::default();
    params.distinguished_name = rcgen::DistinguishedName::new();
    params.distinguished_name.push(DnType::CountryName, "NL");
    params.distinguished_name.push(DnType::OrganizationName, "Örg");
    params.distinguished_name.push(DnType::CommonName, "our own");
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    params.not_after = OffsetDateTime::now_utc() + time::Duration::days(100);
    change(&mut params);
    let cert = params.self_signed(&key).expect("a certificate");
    fs::create_dir_all(folder.dir()).expect("a folder");
    fs::write(folder.file("ca.crt"), cert.pem()).expect("written");
    fs::write(folder.file("ca.key"), key.serialize_pem()).expect("written");
}

#[test]
fn a_users_own_ca_is_used_and_limits_the_expiry() {
    let folder = Folder::new();
    own_authority(&folder, |_| {});
    let before = folder.content();
    folder.ensure().expect("made");
    assert!(folder.changed(&before).iter().all(|name| !name.starts_with("ca.")));
    let of = |name| issue::facts_of(&folder.cert(name)).expect("facts").not_after;
    assert_eq!(of("apiserver.crt"), of("ca.crt"));
}

#[test]
fn a_non_ca_or_expired_ca_certificate_is_refused() {
    let folder = Folder::new();
    own_authority(&folder, |params| params.is_ca = IsCa::NoCa);
    assert!(
        folder.ensure().expect_err("an error").to_string().contains("not the certificate of a certificate authority")
    );
    let folder = Folder::new();
    own_authority(&folder, |params| params.not_after = OffsetDateTime::now_utc() - time::Duration::days(1));
    assert!(folder.ensure().expect_err("an error").to_string().contains("the certificate authority expired on"));
}

/// The error tells the user to move away the file of the CA, and not the folder: by default, the folder also contains
/// the store.
#[test]
fn an_expired_ca_is_replaced_after_its_file_is_moved_away() {
    let folder = Folder::new();
    own_authority(&folder, |params| params.not_after = OffsetDateTime::now_utc() - time::Duration::days(1));
    let error = folder.ensure().expect_err("an error").to_string();
    assert!(error.contains("ca.crt: ") && error.contains("move this file away"), "{error}");
    let key = fs::read(folder.file("ca.key")).expect("read");
    fs::remove_file(folder.file("ca.crt")).expect("removed");
    folder.ensure().expect("a new CA");
    assert_eq!(fs::read(folder.file("ca.key")).expect("read"), key, "the new CA has the key of the expired one");
}

#[test]
fn a_folder_that_cannot_be_created_is_an_error() {
    let error = ensure_cert_dir(Path::new("/dev/null/x"), &[]).expect_err("an error");
    assert!(error.is_of_folder());
    assert!(error.to_string().starts_with("/dev/null/x: cannot use this folder for certificates: "), "{error}");
}

/// Goal: servers that start at the same moment on one folder agree on its content. Method: many threads start on an
/// empty folder. Each thread opens the lock files itself, as a process does. All starts must succeed, and a further
/// start must change nothing.
#[test]
fn concurrent_starts_create_one_set_of_files() {
    let folder = Folder::new();
    std::thread::scope(|scope| {
        let start = |port: u16| {
            let certs = folder.ensure().expect("made or found");
            certs.write_kubeconfig(SocketAddr::new(LOOPBACK, port), None).expect("written")
        };
        let mut started = Vec::new();
        for port in 1..=8 {
            started.push(scope.spawn(move || start(port)));
        }
        let kubeconfigs: Vec<_> = started.into_iter().map(|thread| thread.join().expect("no panic")).collect();
        assert_eq!(kubeconfigs.iter().filter(|one| one.path() == folder.file("admin.kubeconfig")).count(), 1);
    });
    let before = folder.content();
    assert_eq!(before.len(), 16, "no temporary file is left");
    folder.ensure().expect("consistent");
    assert_eq!(folder.changed(&before), [] as [&str; 0]);
}

#[test]
fn serving_names_are_unique() {
    let names = serving_names(LOOPBACK);
    let unspecified = serving_names(IpAddr::from([0, 0, 0, 0]));
    assert_eq!(names, unspecified);
    assert_eq!(names.iter().filter(|name| **name == ServerName::from(LOOPBACK)).count(), 1);
    assert_eq!(names.first(), Some(&ServerName::try_from("localhost").expect("a name")));
    let more = serving_names(IpAddr::from([10, 0, 0, 1]));
    assert_eq!(more.len(), names.len() + 1);
}
