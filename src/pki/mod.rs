//! The server's own certificates. When the server starts, it creates missing files in the certificate folder, and
//! renews certificates that expire soon.
//!
//! ```text
//! ca.crt         ca.key          the CA, 10 years; signs the other two certificates
//! apiserver.crt  apiserver.key   the serving certificate, 1 year
//! admin.crt      admin.key       a client certificate of group system:masters, 1 year
//! admin.kubeconfig               that client certificate and the CA certificate, for kubectl
//! .lock                          held while anything here is read or written
//! .admin.kubeconfig.lock         held by the running server that has written admin.kubeconfig
//! ```
//!
//! Like every key in the folder, `ca.key` can be read only by its owner. Operators may move `ca.key` away, since the
//! server needs this key only to sign certificates. Without `ca.key`, the server can neither renew the other
//! certificates nor issue a certificate for a new address.
//!
//! Invariant: the server never overwrites a key, or a certificate that the CA in the folder has not issued. A renewal
//! uses the same key, so it replaces only the certificate file, in one step. A new key is written before its
//! certificate. So a crash leaves at worst a key without a certificate. The next start then issues the certificate.

mod files;
mod issue;
mod kubeconfig;

use issue::{Authority, Leaf, Verdict};
use rustls_pki_types::pem::{self, PemObject};
use rustls_pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use std::fs::File;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};
use thiserror::Error;
use time::OffsetDateTime;
use tracing::{info, warn};

/// Returns the default certificate folder: `coordination-apiserver` in the state folder of the XDG Base Directory
/// Specification.
///
/// # Errors
/// The user has no home folder. There is no other default, because a shared folder such as `/tmp` is no place for keys.
pub fn default_cert_dir() -> io::Result<PathBuf> {
    use etcetera::BaseStrategy;
    etcetera::choose_base_strategy()
        .ok()
        .and_then(|strategy| strategy.state_dir())
        .filter(|dir| dir.is_absolute())
        .map(|dir| dir.join("coordination-apiserver"))
        .ok_or_else(|| io::Error::new(io::ErrorKind::NotFound, "the user has no home folder: name one with --cert-dir"))
}

/// Returns the names that the serving certificate must contain: the host name, the loopback names, and the bind address
/// unless it is unspecified.
#[must_use]
pub fn serving_names(bind_address: IpAddr) -> Vec<ServerName<'static>> {
    let host = rustix::system::uname().nodename().to_string_lossy().to_ascii_lowercase();
    let dns = ["localhost".to_owned(), host].into_iter().filter_map(|name| {
        // A host name that is not a DNS name cannot be in a certificate.
        rustls_pki_types::DnsName::try_from(name).ok().map(ServerName::DnsName)
    });
    let loopback = [IpAddr::from([127, 0, 0, 1]), IpAddr::from([0, 0, 0, 0, 0, 0, 0, 1])];
    let addresses = loopback.into_iter().chain((!bind_address.is_unspecified()).then_some(bind_address));
    let mut names = Vec::new();
    for name in dns.chain(addresses.map(ServerName::from)) {
        if !names.contains(&name) {
            names.push(name);
        }
    }
    names
}

/// A certificate folder that contains a CA.
#[derive(Clone, Debug)]
pub struct CertDir {
    dir: PathBuf,
}

impl CertDir {
    /// Opens a certificate folder. Creates the folder and the CA if they are missing.
    ///
    /// # Errors
    /// Existing files are unreadable, invalid or contradictory: the server reports such files, and never overwrites
    /// them. Or missing files cannot be written.
    pub fn open(dir: &Path) -> Result<Self, PkiError> {
        files::make_folder(dir).map_err(|e| PkiError::new(dir, Cause::Folder(e)))?;
        let certs = Self { dir: dir.to_owned() };
        let _lock = certs.lock()?;
        let (cert, key) = (certs.ca_cert(), certs.path("ca.key"));
        if !present(&cert)? {
            let made = match certs.existing_key(&key)? {
                Some(pair) => pair,
                None => certs.new_key(&key)?,
            };
            let authority = issue::new_authority(&made).map_err(|e| PkiError::new(&cert, Cause::Sign(e)))?;
            certs.write(&cert, authority.as_bytes(), files::MODE_PUBLIC)?;
            info!(file = %cert.display(), "made a certificate authority");
        }
        certs.check_authority()?;
        Ok(certs)
    }

    /// Issues the serving certificate if it is missing. Renews the certificate if it lacks one of `names` or expires
    /// soon.
    ///
    /// # Errors
    /// The errors of [`CertDir::open`].
    pub fn ensure_serving(&self, names: &[ServerName<'static>]) -> Result<(), PkiError> {
        self.ensure_leaf("apiserver", &Leaf::Serving(names))
    }

    /// Issues the admin's client certificate if it is missing. Renews the certificate if it expires soon.
    ///
    /// # Errors
    /// The errors of [`CertDir::open`].
    pub fn ensure_admin(&self) -> Result<(), PkiError> {
        self.ensure_leaf("admin", &Leaf::Admin)
    }

    /// Writes the admin's kubeconfig for a server that listens at `addr`. `serving_cert` is the operator's own serving
    /// certificate, if the server does not use the certificate in this folder. The kubeconfig then trusts only
    /// `serving_cert`.
    ///
    /// The file is `admin.kubeconfig`. If another server that shares the folder has claimed that file, `addr` is part
    /// of the file name.
    ///
    /// # Errors
    /// A file of the folder cannot be read or written.
    pub fn write_kubeconfig(&self, addr: SocketAddr, serving_cert: Option<&Path>) -> Result<AdminKubeconfig, PkiError> {
        let _lock = self.lock()?;
        let claim_path = self.path(".admin.kubeconfig.lock");
        let claim = files::try_claim(&claim_path).map_err(|e| PkiError::new(&claim_path, Cause::Lock(e)))?;
        let path = self.path(&match &claim {
            Some(_) => "admin.kubeconfig".to_owned(),
            None => format!("admin-{}.kubeconfig", file_name_of(addr)),
        });
        let trusted = serving_cert.map_or_else(|| self.ca_cert(), Path::to_owned);
        let text = kubeconfig::render(&kubeconfig::Admin {
            addr,
            trusted: &read_certs(&trusted)?,
            cert_pem: &read(&self.admin_cert())?,
            key_pem: &read(&self.admin_key())?,
        });
        if !present(&path)? || read(&path)? != text.as_bytes() {
            self.write(&path, text.as_bytes(), files::MODE_SECRET)?;
        }
        Ok(AdminKubeconfig { path, _claim: claim })
    }

    /// Returns the path of the CA certificate.
    #[must_use]
    pub fn ca_cert(&self) -> PathBuf {
        self.path("ca.crt")
    }

    /// Returns the path of the serving certificate.
    #[must_use]
    pub fn serving_cert(&self) -> PathBuf {
        self.path("apiserver.crt")
    }

    /// Returns the path of the serving certificate's key.
    #[must_use]
    pub fn serving_key(&self) -> PathBuf {
        self.path("apiserver.key")
    }

    /// Returns the path of the admin's client certificate.
    #[must_use]
    pub fn admin_cert(&self) -> PathBuf {
        self.path("admin.crt")
    }

    /// Returns the path of the key of the admin's client certificate.
    #[must_use]
    pub fn admin_key(&self) -> PathBuf {
        self.path("admin.key")
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.join(name)
    }

    fn lock(&self) -> Result<File, PkiError> {
        files::lock_folder(&self.dir).map_err(|e| PkiError::new(&self.dir, Cause::Lock(e)))
    }

    fn write(&self, path: &Path, bytes: &[u8], mode: u32) -> Result<(), PkiError> {
        files::write_whole(path, bytes, mode).map_err(|e| PkiError::new(path, Cause::Write(e)))
    }

    fn new_key(&self, path: &Path) -> Result<rcgen::KeyPair, PkiError> {
        let pair = rcgen::KeyPair::generate_for(&rcgen::PKCS_ECDSA_P256_SHA256)
            .map_err(|e| PkiError::new(path, Cause::Sign(e)))?;
        self.write(path, pair.serialize_pem().as_bytes(), files::MODE_SECRET)?;
        Ok(pair)
    }

    fn existing_key(&self, path: &Path) -> Result<Option<rcgen::KeyPair>, PkiError> {
        if !present(path)? {
            return Ok(None);
        }
        if files::is_open_to_others(path).map_err(|e| PkiError::new(path, Cause::Read(e)))? {
            warn!(file = %path.display(), "a private key can be read by others than its owner");
        }
        let der = PrivateKeyDer::from_pem_file(path).map_err(|e| PkiError::new(path, Cause::Pem(e)))?;
        rcgen::KeyPair::try_from(&der).map(Some).map_err(|e| PkiError::new(path, Cause::NotAKey(e)))
    }

    fn check_authority(&self) -> Result<(), PkiError> {
        let path = self.ca_cert();
        let certs = read_certs(&path)?;
        let facts =
            issue::facts_of(first(&certs, &path)?).ok_or_else(|| PkiError::new(&path, Cause::NotACertificate))?;
        if !facts.is_ca {
            return Err(PkiError::new(&path, Cause::NotAnAuthority));
        }
        if let Some(key) = self.existing_key(&self.path("ca.key"))?
            && !facts.is_of(&key)
        {
            return Err(PkiError::new(&path, Cause::OtherKey("ca.key")));
        }
        let now = OffsetDateTime::now_utc();
        if facts.not_after <= now {
            return Err(PkiError::new(&path, Cause::Expired(facts.not_after)));
        }
        if facts.not_after <= now + issue::RENEW_BEFORE {
            warn!(file = %path.display(), until = %facts.not_after.date(), "the certificate authority expires soon");
        }
        Ok(())
    }

    fn ensure_leaf(&self, name: &str, leaf: &Leaf<'_>) -> Result<(), PkiError> {
        let _lock = self.lock()?;
        let (cert_path, key_path) = (self.path(&format!("{name}.crt")), self.path(&format!("{name}.key")));
        let ca_certs = read_certs(&self.ca_cert())?;
        let ca = first(&ca_certs, &self.ca_cert())?;
        let existing_key = self.existing_key(&key_path)?;
        let now = OffsetDateTime::now_utc();

        let reason = if present(&cert_path)? {
            let Some(key) = &existing_key else { return Err(PkiError::new(&cert_path, Cause::KeyMissing(key_path))) };
            let chain = read_certs(&cert_path)?;
            let facts = issue::facts_of(first(&chain, &cert_path)?)
                .ok_or_else(|| PkiError::new(&cert_path, Cause::NotACertificate))?;
            if !facts.is_of(key) {
                return Err(PkiError::new(&cert_path, Cause::OtherKey("its key")));
            }
            match issue::judge(leaf, &chain, ca, &facts, now) {
                Ok(Verdict::Good) => return Ok(()),
                Ok(Verdict::Expiring) if facts.not_after > now && !present(&self.path("ca.key"))? => {
                    warn!(file = %cert_path.display(), until = %facts.not_after.date(), "a certificate expires soon, and there is no ca.key to renew it with");
                    return Ok(());
                }
                Ok(Verdict::Expiring) => "it has expired, or expires soon",
                Ok(Verdict::OtherNames) => "it lacks a name of this server",
                Err(e) => return Err(PkiError::new(&cert_path, Cause::NotIssuedHere(e))),
            }
        } else {
            "it was missing"
        };

        let ca_key_path = self.path("ca.key");
        let Some(ca_key) = self.existing_key(&ca_key_path)? else {
            return Err(PkiError::new(&ca_key_path, Cause::AuthorityKeyMissing(cert_path)));
        };
        let key = match existing_key {
            Some(key) => key,
            None => self.new_key(&key_path)?,
        };
        let sign_error = |e| PkiError::new(&cert_path, Cause::Sign(e));
        let authority = Authority::new(ca, ca_key).map_err(|e| PkiError::new(&self.ca_cert(), Cause::Sign(e)))?;
        let cert = authority.issue(leaf, &key, now).map_err(sign_error)?;
        // rcgen encodes the issuer's name again. If this encoding differs from the subject of the CA, no peer can
        // verify the certificate. So the server verifies the new certificate before it writes the file. Otherwise the
        // next start would refuse that file.
        let facts = issue::facts_of(cert.der()).ok_or_else(|| PkiError::new(&cert_path, Cause::NotACertificate))?;
        issue::judge(leaf, &[cert.der().clone()], ca, &facts, now)
            .map_err(|e| PkiError::new(&self.ca_cert(), Cause::CannotIssue(e)))?;
        self.write(&cert_path, cert.pem().as_bytes(), files::MODE_PUBLIC)?;
        info!(file = %cert_path.display(), reason, until = %facts.not_after.date(), "issued a certificate");
        Ok(())
    }
}

/// The admin's kubeconfig file. Until this value is dropped, no other server overwrites the file.
#[derive(Debug)]
pub struct AdminKubeconfig {
    path: PathBuf,
    _claim: Option<File>,
}

impl AdminKubeconfig {
    /// Returns the path of the kubeconfig file.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }
}

/// Formats an address for a file name. The result contains neither brackets nor colons, since colons separate paths in
/// `KUBECONFIG`.
fn file_name_of(addr: SocketAddr) -> String {
    addr.to_string().replace(['[', ']'], "").replace(':', "-")
}

/// An error about a file of the certificate folder.
#[derive(Debug, Error)]
#[error("{path}: {cause}")]
pub struct PkiError {
    path: PathBuf,
    cause: Cause,
}

#[derive(Debug, Error)]
enum Cause {
    #[error("the key is missing that is needed to issue {0}")]
    AuthorityKeyMissing(PathBuf),
    #[error("a certificate issued with this authority does not verify: {0}")]
    CannotIssue(rustls::Error),
    #[error("the certificate authority expired on {}; move this file away to have a new one made", .0.date())]
    Expired(OffsetDateTime),
    #[error("cannot use this folder for certificates: {0}")]
    Folder(io::Error),
    #[error("its private key {0} is missing; put it back, or move the certificate away to have both made anew")]
    KeyMissing(PathBuf),
    #[error("cannot lock this folder: {0}")]
    Lock(io::Error),
    #[error("not an X.509 certificate")]
    NotACertificate,
    #[error("not a usable private key: {0}")]
    NotAKey(rcgen::Error),
    #[error("not the certificate of a certificate authority")]
    NotAnAuthority,
    #[error(
        "not issued by the ca.crt beside it ({0}); name your own certificate with --tls-cert-file, or move this one away"
    )]
    NotIssuedHere(rustls::Error),
    #[error("the certificate does not belong to {0}")]
    OtherKey(&'static str),
    #[error("{}", pem_words(.0))]
    Pem(pem::Error),
    #[error("{0}")]
    Read(io::Error),
    #[error("cannot issue: {0}")]
    Sign(rcgen::Error),
    #[error("cannot write: {0}")]
    Write(io::Error),
}

impl PkiError {
    fn new(path: &Path, cause: Cause) -> Self {
        Self { path: path.to_owned(), cause }
    }

    /// Whether the error is about the folder itself, whose path may be wrong.
    #[must_use]
    pub fn is_of_folder(&self) -> bool {
        matches!(self.cause, Cause::Folder(_) | Cause::Lock(_))
    }
}

fn pem_words(error: &pem::Error) -> String {
    match error {
        pem::Error::Io(e) => e.to_string(),
        pem::Error::NoItemsFound => "contains no PEM item of the expected kind".to_owned(),
        e => format!("not PEM: {e}"),
    }
}

fn present(path: &Path) -> Result<bool, PkiError> {
    path.try_exists().map_err(|e| PkiError::new(path, Cause::Read(e)))
}

fn read(path: &Path) -> Result<Vec<u8>, PkiError> {
    std::fs::read(path).map_err(|e| PkiError::new(path, Cause::Read(e)))
}

fn read_certs(path: &Path) -> Result<Vec<CertificateDer<'static>>, PkiError> {
    CertificateDer::pem_file_iter(path)
        .and_then(Iterator::collect::<Result<Vec<_>, _>>)
        .map_err(|e| PkiError::new(path, Cause::Pem(e)))
}

fn first<'a>(certs: &'a [CertificateDer<'static>], path: &Path) -> Result<&'a CertificateDer<'static>, PkiError> {
    certs.first().ok_or_else(|| PkiError::new(path, Cause::Pem(pem::Error::NoItemsFound)))
}

#[cfg(test)]
mod tests;
