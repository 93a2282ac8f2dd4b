//! Checks of the command line beyond clap's rules: combinations of flags, and the files and folders that flags name.

use super::args::{Args, Command, StorageKind};
use super::{Stop, one_line, wrong_usage};
use crate::http::is_token_byte;
use clap::Parser;
use clap::error::ErrorKind;
use std::ffi::OsString;
use std::fs;
use std::net::IpAddr;
use std::path::Path;

/// Minimum age at which the history of etcd may be compacted, in seconds. A replica whose watch of etcd was interrupted
/// for longer loads all Leases again.
const COMPACTION_SECONDS_MIN: u32 = 60;

impl Args {
    /// Parses and checks a command line. The first word is the name of the program.
    ///
    /// # Errors
    /// The reason why the server does not start, or the text for `--help` and `--version`.
    pub fn parse_checked(words: impl IntoIterator<Item = OsString>) -> Result<Self, Stop> {
        let args = Self::try_parse_from(words).map_err(|e| match e.kind() {
            ErrorKind::DisplayHelp | ErrorKind::DisplayVersion => Stop::Information(e.render().to_string()),
            _ => Stop::Wrong(wrong_usage(&e)),
        })?;
        let checked = match &args.command {
            Some(Command::Inspect(inspect)) => inspect.check(),
            Some(Command::MigrateStorage(migrate)) => migrate.check(),
            Some(Command::Takeover(takeover)) => takeover.check(),
            Some(Command::Rollback(rollback)) => rollback.check(),
            Some(Command::Completion { .. } | Command::Man { .. }) => Ok(()),
            None => args.check(),
        };
        checked.map_err(|message| Stop::Wrong(one_line(&message)))?;
        Ok(args)
    }

    /// Checks the flags beyond clap's rules: combinations of flags, and the files that flags name.
    fn check(&self) -> Result<(), String> {
        if self.secure_port == 0 && self.insecure_port == 0 {
            return Err(
                "--secure-port 0 switches HTTPS off, and without --insecure-port nothing is left to serve".into()
            );
        }
        if self.secure_port == self.insecure_port {
            return Err(format!("--secure-port and --insecure-port are both {}", self.secure_port));
        }
        if self.secure_port == 0 && self.requestheader_from_cluster {
            return Err("--requestheader-from-cluster is about HTTPS, which --secure-port 0 switches off".into());
        }
        if self.storage != StorageKind::Disk && self.data_dir.is_some() {
            return Err("--data-dir is for --storage disk".into());
        }
        self.parse_features().map_err(|reason| format!("--feature-gates: {reason}"))?;
        self.check_etcd()?;
        self.cluster_etcd.check()?;
        self.check_endpoints()?;
        if self.kubeconfig.is_some() && !self.asks_cluster() {
            return Err("--kubeconfig is for --requestheader-from-cluster, --namespaces-from-cluster and \
                        --publish-endpoints, of which none is given"
                .into());
        }
        for (flag, names) in [
            ("--requestheader-username-headers", &self.requestheader_username_headers),
            ("--requestheader-group-headers", &self.requestheader_group_headers),
            ("--requestheader-uid-headers", &self.requestheader_uid_headers),
            ("--requestheader-extra-headers-prefix", &self.requestheader_extra_headers_prefix),
        ] {
            if names.iter().any(|name| !is_field_name(name.trim())) {
                return Err(format!("{flag} {:?}: not names of fields, separated by commas", names.join(",")));
            }
        }
        // One empty value is a list without names, which allows all names. Two empty values, from `,`, make a list that
        // allows no name in kube-apiserver. So this server must not treat such a list as allowing all names.
        let allowed = &self.requestheader_allowed_names;
        if allowed.len() > 1 && allowed.iter().all(String::is_empty) {
            return Err(format!("--requestheader-allowed-names {:?}: no name among the commas", allowed.join(",")));
        }
        check_files(&self.named_files().collect::<Vec<_>>())?;
        check_folder("--cert-dir", self.cert_dir.as_deref())?;
        check_folder("--data-dir", self.data_dir.as_deref())
    }

    fn check_etcd(&self) -> Result<(), String> {
        if self.storage != StorageKind::Etcd {
            let is_used = self.etcd.is_used() || self.etcd_store_bytes.is_some() || self.etcd_compaction_seconds > 0;
            return if is_used { Err("the flags --etcd-... are for --storage etcd".into()) } else { Ok(()) };
        }
        if self.etcd.etcd_servers.is_empty() {
            return Err("--storage etcd needs --etcd-servers".into());
        }
        if (1..COMPACTION_SECONDS_MIN).contains(&self.etcd_compaction_seconds) {
            return Err(format!("--etcd-compaction-seconds: 0, or at least {COMPACTION_SECONDS_MIN}"));
        }
        self.etcd.check()
    }

    fn check_endpoints(&self) -> Result<(), String> {
        if self.publish_endpoints.is_none() {
            return Ok(());
        }
        if self.storage != StorageKind::Etcd {
            return Err("--publish-endpoints needs --storage etcd".into());
        }
        if self.secure_port == 0 {
            return Err("--publish-endpoints needs a --secure-port".into());
        }
        // The API refuses an address of these kinds in an EndpointSlice: unspecified, loopback, link-local and
        // multicast (Kubernetes, `ValidateEndpointIP`).
        match self.advertise_address {
            Some(IpAddr::V6(address)) if address.is_unicast_link_local() => {}
            Some(IpAddr::V4(address)) if address.is_link_local() => {}
            Some(address) if !(address.is_unspecified() || address.is_loopback() || address.is_multicast()) => {
                return Ok(());
            }
            _ => {}
        }
        let address = self.advertise_address.map_or_else(String::new, |address| address.to_string());
        Err(format!("--advertise-address {address}: an EndpointSlice cannot hold it"))
    }
}

/// Checks that the process can read the files that flags name.
///
/// # Errors
/// The error of the first file that the process cannot read.
pub(super) fn check_files(files: &[(&str, &Path)]) -> Result<(), String> {
    files.iter().try_for_each(|(flag, file)| match fs::read(file) {
        Ok(_) => Ok(()),
        Err(e) => Err(format!("{flag} {}: {e}", file.display())),
    })
}

/// Checks that a flag names a folder, or a path at which a folder can be created.
///
/// # Errors
/// The reason why `dir` cannot be a folder.
pub(super) fn check_folder(flag: &str, dir: Option<&Path>) -> Result<(), String> {
    match dir {
        Some(dir) if dir.as_os_str().is_empty() => Err(format!("{flag} is empty")),
        Some(dir) if dir.exists() && !dir.is_dir() => Err(format!("{flag} {}: not a folder", dir.display())),
        Some(_) | None => Ok(()),
    }
}

/// Whether `name` is a field name (RFC 9110 §5.1), or a prefix of one.
fn is_field_name(name: &str) -> bool {
    !name.is_empty() && name.bytes().all(is_token_byte)
}
